#!/usr/bin/env python3
"""Writes the example models beside this file. Needs onnx and numpy: pip install onnx numpy

resnet18.onnx   ResNet-18 at 224 x 224 (He et al., 2016), opset 17, batch normalisation folded into the convolutions as
                exporters do. Its weights are external data that does not exist: tuning needs shapes only.
small_net.onnx  a small network with all its weights, and an input with the output that NumPy computes for it in double
                precision, for `squall check small_net.onnx --input small_net_input.npy --expect small_net_output.npy`.
"""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

HERE = Path(__file__).parent
OPSET = 17


def absent(name, shape):
    """A weight whose data lies in a file that is not there."""
    t = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=shape, data_location=TensorProto.EXTERNAL)
    for key, value in (("location", "absent.bin"), ("offset", "0"), ("length", str(4 * int(np.prod(shape))))):
        t.external_data.add(key=key, value=value)
    return t


class Net:
    """Collects nodes and weights; `weight(name, shape)` makes a weight's tensor."""

    def __init__(self, weight):
        self.weight, self.nodes, self.weights, self.count = weight, [], [], {}

    def op(self, kind, *inputs, **attributes):
        n = self.count[kind] = self.count.get(kind, 0) + 1
        name = f"{kind.lower()}{n}"
        self.nodes.append(helper.make_node(kind, list(inputs), [f"{name}_out"], name=name, **attributes))
        return f"{name}_out"

    def parameter(self, name, *shape):
        self.weights.append(self.weight(name, list(shape)))
        return name

    def conv(self, x, c, k, r, stride=1, pad=0, groups=1):
        name = f"conv{self.count.get('Conv', 0) + 1}"
        w = self.parameter(f"{name}_weight", k, c // groups, r, r)
        b = self.parameter(f"{name}_bias", k)
        window = {"kernel_shape": [r, r], "strides": [stride] * 2, "pads": [pad] * 4, "group": groups}
        return self.op("Conv", x, w, b, **window)

    def save(self, path, name, x_shape, y_shape):
        x_info = helper.make_tensor_value_info("input", TensorProto.FLOAT, x_shape)
        y_info = helper.make_tensor_value_info("output", TensorProto.FLOAT, y_shape)
        self.nodes[-1].output[0] = "output"
        graph = helper.make_graph(self.nodes, name, [x_info], [y_info], self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="squall examples")
        model.ir_version = 8
        if not any(w.data_location == TensorProto.EXTERNAL for w in self.weights):
            onnx.checker.check_model(model, full_check=True)
        path.write_bytes(model.SerializeToString())


def resnet18():
    net = Net(absent)
    x = net.op("Relu", net.conv("input", 3, 64, 7, stride=2, pad=3))
    x = net.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    c = 64
    for k in (64, 128, 256, 512):
        for block in range(2):
            stride = 2 if block == 0 and k > 64 else 1
            y = net.op("Relu", net.conv(x, c, k, 3, stride=stride, pad=1))
            y = net.conv(y, k, k, 3, pad=1)
            if c != k:
                x = net.conv(x, c, k, 1, stride=stride)
            x, c = net.op("Relu", net.op("Add", y, x)), k
    x = net.op("Flatten", net.op("GlobalAveragePool", x), axis=1)
    w, b = net.parameter("fc_weight", 1000, 512), net.parameter("fc_bias", 1000)
    net.op("Gemm", x, w, b, transB=1)
    net.save(HERE / "resnet18.onnx", "resnet18", [1, 3, 224, 224], [1, 1000])


def conv_by_windows(x, w, b, stride=1, pad=0, groups=1):
    """The convolution by its definition, in double precision."""
    x = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    k, cg, r, s = w.shape
    windows = np.lib.stride_tricks.sliding_window_view(x, (r, s), axis=(2, 3))[:, :, ::stride, ::stride]
    parts = []
    for g in range(groups):
        image, filters = windows[:, g * cg : (g + 1) * cg], w[g * k // groups : (g + 1) * k // groups]
        parts.append(np.einsum("ncpqrs,kcrs->nkpq", image, filters))
    return np.concatenate(parts, axis=1) + b[:, None, None]


def maxpool_by_windows(x, r, stride, pad):
    x = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)), constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(x, (r, r), axis=(2, 3))[:, :, ::stride, ::stride]
    return windows.max(axis=(4, 5))


def small_net():
    rng = np.random.default_rng(0)
    data = {}

    def weight(name, shape):
        # Of unit variance through each layer; biases small.
        scale = 1 / np.sqrt(np.prod(shape[1:])) if len(shape) > 1 else 0.1
        data[name] = (rng.standard_normal(shape) * scale).astype(np.float32)
        return numpy_helper.from_array(data[name], name)

    net = Net(weight)
    a = net.op("Relu", net.conv("input", 3, 16, 3, pad=1))
    b = net.op("Relu", net.conv(a, 16, 16, 3, pad=1, groups=16))
    b = net.conv(b, 16, 16, 1)
    x = net.op("Add", b, a)
    x = net.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    x = net.op("Relu", net.conv(x, 16, 32, 3, stride=2, pad=1))
    x = net.op("Flatten", net.op("GlobalAveragePool", x), axis=1)
    w, c = net.parameter("fc_weight", 10, 32), net.parameter("fc_bias", 10)
    net.op("Softmax", net.op("Gemm", x, w, c, transB=1), axis=-1)
    net.save(HERE / "small_net.onnx", "small_net", [1, 3, 32, 32], [1, 10])

    image = rng.standard_normal((1, 3, 32, 32)).astype(np.float32)
    p = {name: values.astype(np.float64) for name, values in data.items()}
    relu = lambda v: np.maximum(v, 0)
    conv = lambda v, i, **window: conv_by_windows(v, p[f"conv{i}_weight"], p[f"conv{i}_bias"], **window)
    a = relu(conv(image.astype(np.float64), 1, pad=1))
    x = conv(relu(conv(a, 2, pad=1, groups=16)), 3) + a
    x = relu(conv(maxpool_by_windows(x, 3, 2, 1), 4, stride=2, pad=1))
    z = x.mean(axis=(2, 3)) @ p["fc_weight"].T + p["fc_bias"]
    e = np.exp(z - z.max(axis=1, keepdims=True))
    np.save(HERE / "small_net_input.npy", image)
    np.save(HERE / "small_net_output.npy", (e / e.sum(axis=1, keepdims=True)).astype(np.float32))


if __name__ == "__main__":
    resnet18()
    small_net()
    for f in sorted([*HERE.glob("*.onnx"), *HERE.glob("*.npy")]):
        print(f"{f.stat().st_size:8} {f.name}")
