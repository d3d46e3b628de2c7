#!/usr/bin/env python3
"""Writes two attention networks with random weights, for trying what ONNX exporters make of
such networks: several inputs, int64 ids, embeddings by Gather, masks that are computed.

    python3 attention_models.py FOLDER [--layers N]     needs numpy and onnx

bert.onnx   BERT-base (Devlin et al., 2018): 12 layers, 768 wide, 12 heads, 128 tokens; inputs
            input_ids, attention_mask and token_type_ids (int64), output last_hidden_state.
swin.onnx   the first two stages of a shifted-window transformer (Liu et al., 2021) on an image of
            3 x 224 x 224: windows of 7 x 7, every second block shifted, its mask written with
            ScatterND, Equal and Where as exporters of PyTorch do; output logits of 1,000 classes.
"""

import argparse
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 17


class Net:
    """Nodes and weights of a graph under construction."""

    def __init__(self, seed):
        self.random = np.random.default_rng(seed)
        self.nodes, self.weights, self.known = [], [], {}

    def op(self, kind, *inputs, **attributes):
        name = f"{kind}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name=name, **attributes))
        return name

    def constant(self, value, dtype=np.int64):
        array = np.asarray(value, dtype)
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self.known:
            self.known[key] = f"c_{len(self.known)}"
            self.weights.append(numpy_helper.from_array(array, self.known[key]))
        return self.known[key]

    def weight(self, *shape, scale=None):
        scale = scale or 1 / np.sqrt(shape[0])
        array = (self.random.standard_normal(shape) * scale).astype(np.float32)
        name = f"w_{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def linear(self, x, inside, outside):
        y = self.op("MatMul", x, self.weight(inside, outside))
        return self.op("Add", y, self.weight(outside, scale=0.02))

    def norm(self, x, width):
        scale = np.float32(1) + np.float32(0.02) * self.random.standard_normal(width)
        s = self.constant(scale, np.float32)
        return self.op("LayerNormalization", x, s, self.weight(width, scale=0.02), axis=-1)

    def gelu(self, x):
        root = self.constant(np.sqrt(2), np.float32)
        erf = self.op("Erf", self.op("Div", x, root))
        one = self.op("Add", erf, self.constant(1, np.float32))
        return self.op("Mul", self.op("Mul", x, one), self.constant(0.5, np.float32))

    def model(self, name, inputs, outputs):
        graph = helper.make_graph(self.nodes, name, inputs, outputs, self.weights)
        opset = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(graph, opset_imports=opset, ir_version=8)
        onnx.checker.check_model(model)
        return model


def bert(layers):
    """BERT-base without its pooler."""
    net, tokens, width, heads = Net(1), 128, 768, 12
    depth = width // heads
    word = net.op("Gather", net.weight(30522, width, scale=0.05), "input_ids")
    kind = net.op("Gather", net.weight(2, width, scale=0.05), "token_type_ids")
    place = net.weight(1, tokens, width, scale=0.05)
    x = net.norm(net.op("Add", net.op("Add", word, kind), place), width)
    mask = net.op("Unsqueeze", "attention_mask", net.constant([1, 2]))
    mask = net.op("Cast", mask, to=TensorProto.FLOAT)
    mask = net.op("Sub", net.constant(1, np.float32), mask)
    mask = net.op("Mul", mask, net.constant(-3.4e38, np.float32))
    split = net.constant([0, 0, heads, depth])
    for _ in range(layers):
        q, k, v = (net.op("Reshape", net.linear(x, width, width), split) for _ in range(3))
        q = net.op("Transpose", q, perm=[0, 2, 1, 3])
        k = net.op("Transpose", k, perm=[0, 2, 3, 1])
        v = net.op("Transpose", v, perm=[0, 2, 1, 3])
        scores = net.op("Div", net.op("MatMul", q, k), net.constant(np.sqrt(depth), np.float32))
        share = net.op("Softmax", net.op("Add", scores, mask), axis=-1)
        y = net.op("Transpose", net.op("MatMul", share, v), perm=[0, 2, 1, 3])
        y = net.linear(net.op("Reshape", y, net.constant([0, 0, width])), width, width)
        x = net.norm(net.op("Add", y, x), width)
        y = net.linear(net.gelu(net.linear(x, width, 4 * width)), 4 * width, width)
        x = net.norm(net.op("Add", y, x), width)
    ids = ["input_ids", "attention_mask", "token_type_ids"]
    inputs = [helper.make_tensor_value_info(n, TensorProto.INT64, [1, tokens]) for n in ids]
    y = helper.make_tensor_value_info(x, TensorProto.FLOAT, [1, tokens, width])
    return net.model("bert", inputs, [y])


def windows(net, x, side, width, window=7):
    """[1, side * side, width] -> [windows, 49, width]."""
    n = side // window
    x = net.op("Reshape", x, net.constant([1, n, window, n, window, width]))
    x = net.op("Transpose", x, perm=[0, 1, 3, 2, 4, 5])
    return net.op("Reshape", x, net.constant([n * n, window * window, width]))


def roll(net, x, by, axis):
    """A rotation along an axis, as two slices and a concatenation."""
    far = net.constant([np.iinfo(np.int64).max])
    tail = net.op("Slice", x, net.constant([by]), far, net.constant([axis]))
    head = net.op("Slice", x, net.constant([0]), net.constant([by]), net.constant([axis]))
    return net.op("Concat", tail, head, axis=axis)


def shift_mask(net, side, window=7, shift=3):
    """Which windows' members may look at each other: constants by ScatterND, Equal and Where."""
    regions = net.op("ConstantOfShape", net.constant([1, side, side, 1]))
    cuts = [(0, side - window), (side - window, side - shift), (side - shift, side)]
    number = 0
    for top, bottom in cuts:
        for left, right in cuts:
            places = np.stack(
                np.meshgrid([0], np.arange(top, bottom), np.arange(left, right), [0], indexing="ij"), -1
            )
            value = np.full(places.shape[:-1], number, np.float32)
            values = net.constant(value, np.float32)
            regions = net.op("ScatterND", regions, net.constant(places), values)
            number += 1
    of_window = windows(net, regions, side, 1)
    of_window = net.op("Squeeze", of_window, net.constant([2]))
    row = net.op("Unsqueeze", of_window, net.constant([1]))
    column = net.op("Unsqueeze", of_window, net.constant([2]))
    same = net.op("Equal", net.op("Sub", row, column), net.constant(0, np.float32))
    zero, far = net.constant(0, np.float32), net.constant(-100, np.float32)
    return net.op("Unsqueeze", net.op("Where", same, zero, far), net.constant([1]))


def swin_block(net, x, side, width, heads, shifted):
    """Attention within windows, then the multilayer perceptron."""
    window, depth, n = 7, width // heads, side // 7
    y = net.norm(x, width)
    if shifted:
        y = net.op("Reshape", y, net.constant([1, side, side, width]))
        y = roll(net, roll(net, y, 3, 1), 3, 2)
    y = windows(net, y, side, width)
    qkv = net.linear(y, width, 3 * width)
    qkv = net.op("Reshape", qkv, net.constant([n * n, 49, 3, heads, depth]))
    qkv = net.op("Transpose", qkv, perm=[2, 0, 3, 1, 4])
    q, k, v = (net.op("Gather", qkv, net.constant(i), axis=0) for i in range(3))
    q = net.op("Mul", q, net.constant(depth**-0.5, np.float32))
    scores = net.op("MatMul", q, net.op("Transpose", k, perm=[0, 1, 3, 2]))
    scores = net.op("Add", scores, net.weight(1, heads, 49, 49, scale=0.1))
    if shifted:
        scores = net.op("Add", scores, shift_mask(net, side))
    y = net.op("MatMul", net.op("Softmax", scores, axis=-1), v)
    y = net.op("Transpose", y, perm=[0, 2, 1, 3])
    y = net.linear(net.op("Reshape", y, net.constant([n * n, 49, width])), width, width)
    y = net.op("Reshape", y, net.constant([1, n, n, window, window, width]))
    y = net.op("Transpose", y, perm=[0, 1, 3, 2, 4, 5])
    if shifted:
        y = net.op("Reshape", y, net.constant([1, side, side, width]))
        y = roll(net, roll(net, y, side - 3, 1), side - 3, 2)
    x = net.op("Add", x, net.op("Reshape", y, net.constant([1, side * side, width])))
    y = net.linear(net.gelu(net.linear(net.norm(x, width), width, 4 * width)), 4 * width, width)
    return net.op("Add", x, y)


def swin():
    """Two stages of two blocks, and a classifier."""
    net, side, width, heads = Net(2), 56, 96, 3
    x = net.op(
        "Conv", "image", net.weight(96, 3, 4, 4, scale=0.15), net.weight(96, scale=0.02), strides=[4, 4]
    )
    x = net.op("Transpose", net.op("Reshape", x, net.constant([1, 96, side * side])), perm=[0, 2, 1])
    x = net.norm(x, width)
    for stage in range(2):
        for block in range(2):
            x = swin_block(net, x, side, width, heads, shifted=block == 1)
        if stage == 1:
            break
        x = net.op("Reshape", x, net.constant([1, side // 2, 2, side // 2, 2, width]))
        x = net.op("Transpose", x, perm=[0, 1, 3, 4, 2, 5])
        x = net.norm(net.op("Reshape", x, net.constant([1, side**2 // 4, 4 * width])), 4 * width)
        x = net.op("MatMul", x, net.weight(4 * width, 2 * width))
        side, width, heads = side // 2, 2 * width, 2 * heads
    x = net.op("ReduceMean", net.norm(x, width), axes=[1], keepdims=0)
    y = net.linear(x, width, 1000)
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, 224, 224])
    return net.model("swin", [image], [helper.make_tensor_value_info(y, TensorProto.FLOAT, [1, 1000])])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--layers", type=int, default=12, help="of BERT [default: 12]")
    a = parser.parse_args()
    a.folder.mkdir(parents=True, exist_ok=True)
    for name, model in (("bert", bert(a.layers)), ("swin", swin())):
        onnx.save(model, a.folder / f"{name}.onnx")
        print(f"{a.folder / name}.onnx: {len(model.graph.node)} nodes")


if __name__ == "__main__":
    main()
