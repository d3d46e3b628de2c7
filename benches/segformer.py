"""Builds a block of Segformer (arXiv 2105.15203, MiT-B0) as ONNX: `python3 segformer.py OUT.onnx`.

Stage 2 of an image of 512x512: 64x64 tokens of 64 channels, two heads of 32; keys and values are
of an image that a 4x4 convolution makes four times smaller. Then the mixing feed-forward network:
a product, a 3x3 depthwise convolution, GELU and a product. Weights are random.
"""

import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SIDE, WIDTH, HEADS, REDUCED, HIDDEN = 64, 64, 2, 4, 256
TOKENS, HEAD, KEYS = SIDE * SIDE, WIDTH // HEADS, (SIDE // REDUCED) ** 2
random = np.random.default_rng(0)
nodes, weights = [], []


def weight(name, *shape):
    values = random.standard_normal(shape) / np.sqrt(shape[0])
    weights.append(numpy_helper.from_array(values.astype(np.float32), name))
    return name


def ints(name, values):
    weights.append(numpy_helper.from_array(np.array(values, np.int64), name))
    return name


def node(op, inputs, output, **attributes):
    nodes.append(helper.make_node(op, inputs, [output], name=output, **attributes))
    return output


def norm(x, name):
    return node("LayerNormalization", [x, weight(name + ".w", WIDTH), weight(name + ".b", WIDTH)], name)


def linear(x, name, rows, columns):
    product = node("MatMul", [x, weight(name + ".w", rows, columns)], name + ".product")
    return node("Add", [product, weight(name + ".b", columns)], name)


def heads(x, name, tokens, order):
    split = node("Reshape", [x, ints(name + ".shape", [1, tokens, HEADS, HEAD])], name + ".split")
    return node("Transpose", [split], name, perm=order)


def image(x, name, channels):
    turned = node("Transpose", [x], name + ".turned", perm=[0, 2, 1])
    return node("Reshape", [turned, ints(name + ".shape", [1, channels, SIDE, SIDE])], name)


def tokens(x, name, channels):
    flat = node("Reshape", [x, ints(name + ".shape", [1, channels, -1])], name + ".flat")
    return node("Transpose", [flat], name, perm=[0, 2, 1])


first = norm("x", "norm1")
q = heads(linear(first, "q", WIDTH, WIDTH), "queries", TOKENS, [0, 2, 1, 3])
small = node(
    "Conv",
    [image(first, "image", WIDTH), weight("sr.w", WIDTH, WIDTH, REDUCED, REDUCED), weight("sr.b", WIDTH)],
    "sr",
    kernel_shape=[REDUCED, REDUCED],
    strides=[REDUCED, REDUCED],
)
small = norm(tokens(small, "small", WIDTH), "norm.small")
k = heads(linear(small, "k", WIDTH, WIDTH), "keys", KEYS, [0, 2, 3, 1])
v = heads(linear(small, "v", WIDTH, WIDTH), "values", KEYS, [0, 2, 1, 3])
scores = node("MatMul", [q, k], "scores")
weights.append(numpy_helper.from_array(np.array(HEAD**-0.5, np.float32), "scale"))
softmax = node("Softmax", [node("Mul", [scores, "scale"], "scaled")], "softmax", axis=-1)
mixed = node("Transpose", [node("MatMul", [softmax, v], "mixed")], "mixed.turned", perm=[0, 2, 1, 3])
mixed = node("Reshape", [mixed, ints("mixed.shape", [1, TOKENS, WIDTH])], "mixed.flat")
x = node("Add", ["x", linear(mixed, "proj", WIDTH, WIDTH)], "attended")
hidden = image(linear(norm(x, "norm2"), "fc1", WIDTH, HIDDEN), "hidden", HIDDEN)
mixed = node(
    "Conv",
    [hidden, weight("dw.w", HIDDEN, 1, 3, 3), weight("dw.b", HIDDEN)],
    "dw",
    kernel_shape=[3, 3],
    pads=[1, 1, 1, 1],
    group=HIDDEN,
)
gelu = node("Gelu", [tokens(mixed, "dw.tokens", HIDDEN)], "gelu")
node("Add", [x, linear(gelu, "fc2", HIDDEN, WIDTH)], "y")
shape = [1, TOKENS, WIDTH]
graph = helper.make_graph(
    nodes,
    "segformer_block",
    [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
    [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
    weights,
)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
onnx.checker.check_model(model, full_check=True)
onnx.save(model, sys.argv[1])
