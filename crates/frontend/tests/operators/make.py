#!/usr/bin/env python3
"""Writes the models beside this file, one for each generation of the specification, with an input and the outputs that
onnx's own reference computes for it, all outputs in one flat array. Needs onnx and numpy: pip install onnx numpy"""

from pathlib import Path

import numpy as np
from onnx import TensorProto, checker, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

HERE = Path(__file__).parent
SHAPE = [2, 4, 9, 10]


class Net:
    def __init__(self, opset):
        self.opset, self.nodes, self.weights, self.outputs = opset, [], [], []
        self.rng = np.random.default_rng(opset)

    def weight(self, *shape, positive=False):
        values = self.rng.standard_normal(shape) * 0.5
        return self.constant((np.abs(values) + 0.5 if positive else values).astype(np.float32))

    def constant(self, values):
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def hidden(self, op, *inputs, **attributes):
        name = f"{op}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], name=f"node_{name}", **attributes))
        return name

    def out(self, op, *inputs, **attributes):
        self.outputs.append(self.hidden(op, *inputs, **attributes))

    def model(self, shapes):
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPE)
        outputs = [helper.make_tensor_value_info(o, TensorProto.FLOAT, s) for o, s in zip(self.outputs, shapes)]
        graph = helper.make_graph(self.nodes, "operators", [x], outputs, self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)])
        model.ir_version = 8
        return model

    def save(self):
        image = np.random.default_rng(1).standard_normal(SHAPE).astype(np.float32)
        made = ReferenceEvaluator(self.model([None] * len(self.outputs))).run(None, {"x": image})
        model = self.model([m.shape for m in made])
        checker.check_model(model)
        (HERE / f"opset{self.opset}.onnx").write_bytes(model.SerializeToString())
        np.save(HERE / f"opset{self.opset}_input.npy", image)
        np.save(HERE / f"opset{self.opset}_output.npy", np.concatenate([m.astype(np.float32).ravel() for m in made]))


def images(net):
    """Convolutions and pools in all their forms."""
    w = net.weight
    net.out("Conv", "x", w(6, 4, 3, 3), w(6), pads=[1, 0, 2, 1], strides=[2, 1])
    net.out("Conv", "x", w(6, 2, 3, 2), group=2, dilations=[2, 3], pads=[2, 1, 0, 3])
    net.out("Conv", "x", w(4, 1, 3, 3), w(4), group=4, auto_pad="SAME_UPPER", strides=[2, 3])
    net.out("Conv", "x", w(8, 1, 2, 2), group=4, auto_pad="SAME_LOWER")
    net.out("Conv", "x", w(3, 4, 1, 1), auto_pad="VALID")
    line = net.hidden("Reshape", "x", net.constant(np.array([2, 12, 30], np.int64)))
    net.out("Conv", line, w(5, 12, 3), w(5), pads=[2, 0], strides=[2])
    net.out("MaxPool", line, kernel_shape=[4], strides=[3])
    net.out("MaxPool", "x", kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 1])
    net.out("MaxPool", "x", kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1)
    net.out("AveragePool", "x", kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 1])
    net.out("AveragePool", "x", kernel_shape=[3, 3], pads=[1, 0, 1, 0], count_include_pad=1)
    net.out("GlobalAveragePool", "x")
    net.out("GlobalMaxPool", "x")
    normed = [w(4), w(4), w(4), w(4, positive=True)]
    net.out("Relu", net.hidden("BatchNormalization", "x", *normed, epsilon=1e-3))
    c = net.hidden("Conv", "x", w(4, 4, 3, 3), w(4))
    net.out("BatchNormalization", c, *normed)
    grouped = net.hidden("Conv", "x", w(4, 2, 3, 3), group=2, pads=[1, 1, 1, 1])
    grouped = net.hidden("BatchNormalization", grouped, *normed)
    net.out("Relu", net.hidden("Add", "x", grouped))
    scaled = net.hidden("Mul", net.hidden("Conv", "x", w(6, 4, 1, 1)), w(6, 1, 1))
    net.out("LeakyRelu", net.hidden("Add", w(1, 6, 1, 1), scaled), alpha=0.2)


def products(net):
    w = net.weight
    rows = net.hidden("Reshape", "x", net.constant(np.array([24, 30], np.int64)))
    net.out("Gemm", rows, w(7, 30), w(7), transB=1, alpha=0.5, beta=2.0)
    net.out("Gemm", rows, w(24, 5), w(30, 1), transA=1)
    net.out("Tanh", net.hidden("Gemm", rows, w(30, 4), w(1)))
    net.out("MatMul", "x", w(10, 6))
    net.out("MatMul", "x", w(10))
    net.out("MatMul", "x", net.hidden("Transpose", "x", perm=[0, 1, 3, 2]))
    net.out("MatMul", net.hidden("Transpose", "x", perm=[0, 1, 3, 2]), net.hidden("Reshape", "x", net.constant(np.array([2, 4, 9, 10], np.int64))))
    net.out("MatMul", w(5, 9), "x")
    net.out("MatMul", w(4, 3, 9), "x")
    net.out("Relu", net.hidden("Add", net.hidden("MatMul", "x", w(2, 1, 10, 3)), w(4, 9, 1)))


def maps(net):
    w = net.weight
    positive = net.hidden("Add", net.hidden("Abs", "x"), net.constant(np.float32(0.5)))
    for op in ("Exp", "Sigmoid", "Tanh", "Erf", "Neg", "Abs", "Floor", "Ceil", "Softplus", "Softsign", "Elu", "Selu", "HardSigmoid", "Sin", "Cos"):
        net.out(op, "x")
    for op in ("Log", "Sqrt", "Reciprocal"):
        net.out(op, positive)
    net.out("PRelu", "x", w(4, 1, 1))
    net.out("Pow", "x", net.constant(np.float32(3)))
    net.out("Pow", positive, w(10))
    net.out("Sub", w(9, 1), "x")
    net.out("Div", "x", w(4, 1, 1, positive=True))
    net.out("Max", "x", w(10), w(4, 1, 1))
    net.out("Min", w(9, 10), "x")
    net.out("Sum", "x", positive, w(1, 4, 1, 1))
    net.out("Mean", "x", positive, w(10))
    net.out("Mul", net.hidden("GlobalAveragePool", "x"), "x")


def recent():
    net = Net(17)
    images(net)
    products(net)
    maps(net)
    ints = lambda *values: net.constant(np.array(values, np.int64))
    for op in ("ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceMean"):
        net.out(op, "x", axes=[-1, 1], keepdims=0)
    net.out("ReduceSum", "x", ints(2), keepdims=1)
    net.out("ReduceSum", "x", keepdims=0)
    net.out("Relu", net.hidden("ReduceMean", "x", axes=[2, 3]))
    net.out("Softmax", "x")
    net.out("Softmax", "x", axis=1)
    net.out("LogSoftmax", "x", axis=-2)
    net.out("LayerNormalization", "x", net.weight(10), net.weight(10))
    net.out("LayerNormalization", "x", net.weight(9, 10), axis=2, epsilon=0.1)
    net.out("Clip", "x", net.constant(np.float32(-0.5)), net.constant(np.float32(0.75)))
    net.out("Clip", "x", "", net.constant(np.float32(0.1)))
    net.out("HardSwish", "x")
    net.save()


def old():
    net = Net(9)
    net.out("Conv", "x", net.weight(6, 4, 3, 3), net.weight(6), pads=[1, 1, 1, 1])
    net.out("MaxPool", "x", kernel_shape=[3, 3], strides=[2, 2])
    rows = net.hidden("Flatten", "x", axis=2)
    net.out("Gemm", rows, net.weight(90, 3), net.weight(3))
    # Other axes mean something else before opset 13, which the reference does not know.
    net.out("Softmax", "x", axis=3)
    net.out("LogSoftmax", "x", axis=3)
    net.out("ReduceSum", "x", axes=[1, 2])
    net.out("ReduceMean", "x", axes=[2, 3], keepdims=0)
    # Momentum 1 keeps the reference from mixing in statistics of the batch, which no inference does.
    normed = net.hidden("BatchNormalization", "x", *[net.weight(4, positive=True) for _ in range(4)], momentum=1.0)
    net.out("Clip", normed, min=0.0, max=6.0)
    net.out("Clip", "x", max=0.5)
    net.save()


if __name__ == "__main__":
    recent()
    old()
    for f in sorted(HERE.glob("opset*")):
        print(f"{f.stat().st_size:8} {f.name}")
