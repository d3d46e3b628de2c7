"""Writes 40 models of random shapes, of no known network, for benches/general/gather.sh.

    python benches/general/models.py FOLDER

Three of four are image networks of random stages (residual, inverted, bottleneck, two branches,
plain), the others blocks of transformers. Weights are absent: tuning needs none.
"""
import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper


def absent(name, shape):
    """A weight that is in no file."""
    t = TensorProto(name=name, data_type=1, dims=shape, data_location=TensorProto.EXTERNAL)
    size = str(4 * int(np.prod(shape)))
    for key, value in (("location", "absent.bin"), ("offset", "0"), ("length", size)):
        t.external_data.add(key=key, value=value)
    return t


class Net:
    """A model in the making; methods return the names of values."""

    def __init__(self, seed):
        self.random = np.random.default_rng(seed)
        self.nodes, self.weights, self.count = [], [], 0

    def op(self, kind, *inputs, **attributes):
        self.count += 1
        out = f"{kind}{self.count}"
        self.nodes.append(helper.make_node(kind, list(inputs), [out], name=out, **attributes))
        return out

    def weight(self, *shape):
        self.count += 1
        self.weights.append(absent(f"w{self.count}", [int(x) for x in shape]))
        return f"w{self.count}"

    def integers(self, values):
        name = f"i{len(self.weights)}"
        self.weights.append(onnx.numpy_helper.from_array(np.array(values, np.int64), name))
        return name

    def conv(self, x, c, k, r, stride=1, groups=1, act="Relu"):
        y = self.op("Conv", x, self.weight(k, c // groups, r, r), self.weight(k),
                    strides=[stride] * 2, pads=[r // 2] * 4, group=int(groups),
                    kernel_shape=[r, r])
        return self.op(act, y) if act else y


def block(n, kind, x, c, k, stride):
    """One block of an image network, from c to k channels."""
    pick = n.random.choice
    if kind == "residual":
        return n.conv(n.conv(x, c, k, 3, stride), k, k, 3, act=None)
    if kind == "inverted":
        e = int(c * pick([2, 3, 4, 6]))
        y = n.conv(n.conv(x, c, e, 1), e, e, int(pick([3, 5])), stride, groups=e)
        return n.conv(y, e, k, 1, act=None)
    if kind == "bottleneck":
        m = max(8, k // 4 // 4 * 4)
        return n.conv(n.conv(n.conv(x, c, m, 1), m, m, 3, stride), m, k, 1, act=None)
    if kind == "branches":
        a = max(8, k // 3 // 4 * 4)
        b, m = k - a, max(8, (k - a) // 2)
        u = n.conv(x, c, a, 1, stride)
        v = n.conv(n.conv(x, c, m, 1), m, b, int(pick([3, 5])), stride)
        return n.op("Concat", u, v, axis=1)
    return n.conv(x, c, k, 3, stride, act=None)


def images(seed):
    n = Net(seed)
    pick = n.random.choice
    size = int(pick([96, 112, 128, 160, 192, 224, 256]))
    c = int(pick([16, 24, 32, 48, 56, 64, 72]))
    x, h = n.conv("x", 3, c, int(pick([3, 5, 7])), 2), size // 2
    for _ in range(4):
        k = int(c * pick([1, 1.5, 2]) // 8 * 8) or 8
        kind = pick(["residual", "inverted", "bottleneck", "plain", "branches"])
        stride = 2 if h >= 14 else 1
        for b in range(2):
            y = block(n, kind, x, c if b == 0 else k, k, stride if b == 0 else 1)
            x = n.op("Relu", n.op("Add", y, x) if b > 0 else y)
        c, h = k, (h + stride - 1) // stride
    x = n.op("Flatten", n.op("GlobalAveragePool", x))
    classes = 1000 if seed % 2 else 365
    x = n.op("Gemm", x, n.weight(classes, c), n.weight(classes), transB=1)
    return n, [1, 3, size, size], x


def transformer(seed):
    n = Net(seed)
    pick = n.random.choice
    tokens = int(pick([32, 48, 64, 96, 160, 196, 256, 384]))
    width = int(pick([192, 256, 320, 384, 512, 640, 1024]))
    each = int(pick([32, 64]))

    def linear(x, a, b):
        return n.op("Add", n.op("MatMul", x, n.weight(a, b)), n.weight(b))

    def norm(x):
        return n.op("LayerNormalization", x, n.weight(width), n.weight(width), axis=-1)

    def heads(x, order):
        split = n.op("Reshape", x, n.integers([0, 0, width // each, each]))
        return n.op("Transpose", split, perm=order)

    y = norm("x")
    q, k, v = (linear(y, width, width) for _ in range(3))
    q, k, v = heads(q, [0, 2, 1, 3]), heads(k, [0, 2, 3, 1]), heads(v, [0, 2, 1, 3])
    z = n.op("MatMul", n.op("Softmax", n.op("MatMul", q, k), axis=-1), v)
    z = n.op("Reshape", n.op("Transpose", z, perm=[0, 2, 1, 3]), n.integers([0, 0, width]))
    x = n.op("Add", linear(z, width, width), "x")
    inner = int(width * pick([2, 3, 4]))
    y = n.op("Relu", linear(norm(x), width, inner))
    return n, [1, tokens, width], n.op("Add", linear(y, inner, width), x)


def main():
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for seed in range(40):
        n, shape, y = (transformer if seed % 4 == 3 else images)(seed)
        given = helper.make_tensor_value_info("x", 1, shape)
        made = helper.make_tensor_value_info(y, 1, None)
        graph = helper.make_graph(n.nodes, "random", [given], [made], n.weights)
        opset = [helper.make_opsetid("", 17)]
        model = helper.make_model(graph, opset_imports=opset, ir_version=8)
        (folder / f"m{seed:02}.onnx").write_bytes(model.SerializeToString())


if __name__ == "__main__":
    main()
