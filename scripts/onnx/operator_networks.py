#!/usr/bin/env python3
"""Four networks that live off operators beside convolutions and products, at real sizes, untuned,
beside onnxruntime, OpenVINO and MNN.

    operator_networks.py make FOLDER [--only A,B]
    taskset -c 0 operator_networks.py run FOLDER --squall PATH --out r.json [--only A,B]
                                      [--threads T] [--rounds N] [--seconds S] [--check-only]

make  writes the networks with random weights of fixed seeds. It needs numpy, onnx, onnxruntime.
run   has OpenVINO and MNN beside onnxruntime where they are installed (`pip install numpy onnx
      onnxruntime openvino mnn`). It calls `shared/peers/networks.py`, which takes all in turns, and
      ends with a printed reason where that file is not there. Before anything is timed, every
      program's result is compared with onnxruntime's: a network on which Squall differs is not
      timed, a library that differs does not count. Squall gets no store: its kernels are guesses.
      The first call compiles them, which can take a minute; timed calls find them compiled.

window   an image transformer of 12 layers on 224 x 224: 196 tokens, 384 wide, 6 heads, attention
         within windows of 7 x 7 and in every third layer among all, both by Einsum, with relative
         position bias, LayerNormalization, and GELU by Erf.
detect   a detector on 320 x 320: a backbone of 3x3 and depthwise convolutions with Sigmoid * Mul, a
         pyramid with nearest Resize, 6,300 boxes of 80 classes by Sigmoid and Exp,
         NonMaxSuppression, which keeps 500 of 906 candidates, TopK of these.
speech   80 mel bins x 1,000 frames: two convolutions, four LSTM layers of 320 units in two
         directions over 250 steps, LayerNormalization after each, LogSoftmax over 1,024 tokens.
segment  a segmenter on 384 x 384: inverted residuals, dilated convolutions at four rates, Resize
         bilinear with aligned corners and with half pixels, ConvTranspose, ArgMax over 21 classes.

`ratio` is the time of the fastest library whose result is right over Squall's, above 1 where Squall
is faster. All times are the fastest inference of all rounds, in ms.
"""

import argparse
import json
import math
import os
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
from attention_models import Net
from onnx import TensorProto, helper, numpy_helper

HERE = Path(__file__).resolve().parent
PEERS = ("onnxruntime", "openvino", "mnn")
# How far a float may be off, relative to the largest of its column or output.
TOLERANCE = 1e-3


def session_of(model):
    """onnxruntime's session of a model."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 3
    return ort.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])


# ---- parts that the networks share ---------------------------------------------------------------


class Graph(Net):
    """A graph under construction, with the forms that exporters of PyTorch write."""

    def several(self, kind, count, *inputs, **attributes):
        """A node of several results."""
        name = f"{kind}_{len(self.nodes)}"
        names = [f"{name}_{i}" for i in range(count)]
        self.nodes.append(helper.make_node(kind, list(inputs), names, name=name, **attributes))
        return names

    def given(self, array):
        """A weight of these elements."""
        return self.constant(array, np.float32)

    def extent(self, x, axis):
        """The extent of an axis, as exporters ask for it."""
        return self.op("Gather", self.op("Shape", x), self.constant(axis), axis=0)

    def view(self, x, *rest):
        """x.view(x.size(0), ..): the first extent is asked for, the others are known."""
        first = self.op("Unsqueeze", self.extent(x, 0), self.constant([0]))
        parts = [self.constant([n]) for n in rest]
        return self.op("Reshape", x, self.op("Concat", first, *parts, axis=0))

    def conv(self, x, inside, outside, kernel=3, stride=1, rate=1, group=1, gain=2.0):
        """A convolution that keeps the size but for its stride, its normalisation folded in."""
        shape = (outside, inside // group, kernel, kernel)
        w = self.weight(*shape, scale=math.sqrt(gain / math.prod(shape[1:])))
        b = self.weight(outside, scale=0.1)
        pad = rate * (kernel // 2)
        return self.op(
            "Conv", x, w, b, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[pad] * 4,
            dilations=[rate] * 2, group=group,
        )  # fmt: skip

    def finish(self, name, given, value, result, shape, kind=TensorProto.FLOAT):
        """The model of one input and one output, which the last node gets as its result's name."""
        if value != result:
            self.nodes[-1].output[0] = result
        inputs = [helper.make_tensor_value_info(given[0], TensorProto.FLOAT, given[1])]
        return self.model(name, inputs, [helper.make_tensor_value_info(result, kind, shape)])


# ---- window: attention by Einsum -----------------------------------------------------------------


def relative_bias(net, side, heads):
    """The bias of each pair of a window's places for each head: a table and where to look in it."""
    places = np.stack(np.meshgrid(range(side), range(side), indexing="ij")).reshape(2, -1)
    apart = places[:, :, None] - places[:, None, :] + side - 1
    where = net.constant((apart[0] * (2 * side - 1) + apart[1]).reshape(-1))
    table = net.weight((2 * side - 1) ** 2, heads, scale=0.3)
    n = side * side
    bias = net.op("Reshape", net.op("Gather", table, where, axis=0), net.constant([n, n, heads]))
    return net.op("Unsqueeze", net.op("Transpose", bias, perm=[2, 0, 1]), net.constant([0]))


def window_attention(net, x, side, width, heads):
    """Attention among the side x side tokens of each window of x, [windows, side * side, width]."""
    n, depth = side * side, width // heads
    qkv = net.view(net.linear(x, width, 3 * width), n, 3, heads, depth)
    qkv = net.op("Transpose", qkv, perm=[2, 0, 3, 1, 4])
    q, k, v = (net.op("Gather", qkv, net.constant(i), axis=0) for i in range(3))
    q = net.op("Mul", q, net.given(depth**-0.5))
    scores = net.op("Einsum", q, k, equation="bhid,bhjd->bhij")
    scores = net.op("Add", scores, relative_bias(net, side, heads))
    y = net.op("Einsum", net.op("Softmax", scores, axis=-1), v, equation="bhij,bhjd->bhid")
    y = net.op("Transpose", y, perm=[0, 2, 1, 3])
    return net.linear(net.view(y, n, width), width, width)


def window():
    """A transformer with windows in two of three layers."""
    net, side, width, heads, layers, small = Graph(11), 14, 384, 6, 12, 7
    w, b = net.weight(width, 3, 16, 16, scale=0.06), net.weight(width, scale=0.02)
    x = net.op("Conv", "image", w, b, kernel_shape=[16, 16], strides=[16, 16])
    x = net.op("Transpose", net.view(x, width, side * side), perm=[0, 2, 1])
    x = net.op("Add", x, net.weight(1, side * side, width, scale=0.2))
    cut = side // small
    for layer in range(layers):
        y = net.norm(x, width)
        if layer % 3 == 2:
            y = window_attention(net, y, side, width, heads)
        else:
            y = net.view(y, cut, small, cut, small, width)
            y = net.op("Transpose", y, perm=[0, 1, 3, 2, 4, 5])
            y = net.op("Reshape", y, net.constant([-1, small * small, width]))
            y = window_attention(net, y, small, width, heads)
            y = net.op("Reshape", y, net.constant([1, cut, cut, small, small, width]))
            y = net.op("Transpose", y, perm=[0, 1, 3, 2, 4, 5])
            y = net.op("Reshape", y, net.constant([1, side * side, width]))
        x = net.op("Add", x, y)
        y = net.gelu(net.linear(net.norm(x, width), width, 4 * width))
        x = net.op("Add", x, net.linear(y, 4 * width, width))
    x = net.op("ReduceMean", net.norm(x, width), axes=[1], keepdims=0)
    w, b = net.weight(1000, width, scale=0.05), net.weight(1000, scale=0.02)
    y = net.op("Gemm", x, w, b, transB=1)
    return net.finish("window", ("image", [1, 3, 224, 224]), y, "logits", [1, 1000])


# ---- detect: boxes and NonMaxSuppression ---------------------------------------------------------

CLASSES, ANCHORS = 80, 3
# Mean and deviation of a head's values for each anchor. With them about one of a thousand scores is
# above the threshold, most of them of few classes, as of a trained detector, and boxes are several
# cells wide, so that neighbours cover each other. Other convolutions have MIDDLE as their mean.
COMMON = 5
CLASS_MEAN = np.r_[np.full(COMMON, -0.5), np.full(CLASSES - COMMON, -6.5)]
MEAN = np.tile(np.r_[0, 0, 0.6, 0.6, -3.5, CLASS_MEAN], ANCHORS)
MIDDLE = 1.0
SPREAD = np.tile(np.r_[1, 1, 0.4, 0.4, np.full(1 + CLASSES, 1.8)], ANCHORS)
SCORE_THRESHOLD, OVERLAP, KEPT = 0.25, 0.45, 100


def silu_conv(net, x, inside, outside, kernel=3, stride=1, group=1):
    y = net.conv(x, inside, outside, kernel, stride, group=group)
    return net.op("Mul", y, net.op("Sigmoid", y))


def separable(net, x, inside, outside, stride=1):
    """A depthwise convolution and a pointwise one."""
    x = silu_conv(net, x, inside, inside, 3, stride, group=inside)
    return silu_conv(net, x, inside, outside, 1)


def cross_stage(net, x, inside, outside, count, shortcut=True):
    """Half of the channels through bottlenecks, half past them."""
    half = outside // 2
    y = silu_conv(net, x, inside, half, 1)
    for _ in range(count):
        z = silu_conv(net, silu_conv(net, y, half, half, 1), half, half, 3)
        y = net.op("Add", y, z) if shortcut else z
    y = net.op("Concat", y, silu_conv(net, x, inside, half, 1), axis=1)
    return silu_conv(net, y, outside, outside, 1)


def pooled_pyramid(net, x, width):
    """Three pools after another, all of them kept."""
    steps = [silu_conv(net, x, width, width // 2, 1)]
    for _ in range(3):
        pool = dict(kernel_shape=[5, 5], strides=[1, 1], pads=[2, 2, 2, 2])
        steps.append(net.op("MaxPool", steps[-1], **pool))
    return silu_conv(net, net.op("Concat", *steps, axis=1), 2 * width, width, 1)


def twice(net, x):
    """Nearest interpolation to twice the size."""
    scales = net.given([1, 1, 2, 2])
    form = dict(mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor")
    return net.op("Resize", x, "", scales, **form)


def decoded(net, x, width, side, stride, sizes):
    """The boxes of one level, [1, 3 * side * side, 85]: middle, size, and how sure it is."""
    values = 5 + CLASSES
    x = net.conv(x, width, ANCHORS * values, 1)
    x = net.view(x, ANCHORS, values, side, side)
    x = net.op("Transpose", x, perm=[0, 1, 3, 4, 2])
    middle, size, sure = net.several("Split", 3, x, net.constant([2, 2, 1 + CLASSES]), axis=4)
    ys, xs = np.meshgrid(range(side), range(side), indexing="ij")
    cells = net.given(np.stack([xs, ys], -1)[None, None])
    middle = net.op("Mul", net.op("Add", net.op("Sigmoid", middle), cells), net.given(stride))
    size = net.op("Mul", net.op("Exp", size), net.given(np.reshape(sizes, (1, ANCHORS, 1, 1, 2))))
    x = net.op("Concat", middle, size, net.op("Sigmoid", sure), axis=4)
    return net.view(x, ANCHORS * side * side, values)


def suppressed(net, boxes):
    """The boxes that NonMaxSuppression keeps, the best ones in the order of their scores."""
    parts = net.constant([2, 2, 1, CLASSES])
    middle, size, object_, classes = net.several("Split", 4, boxes, parts, axis=2)
    half = net.op("Mul", size, net.given(0.5))
    corners = net.op("Sub", middle, half), net.op("Add", middle, half)
    corners = net.op("Concat", *corners, axis=2)
    scores = net.op("Transpose", net.op("Mul", classes, object_), perm=[0, 2, 1])
    limits = net.constant([KEPT]), net.given([OVERLAP]), net.given([SCORE_THRESHOLD])
    chosen = net.op("NonMaxSuppression", corners, scores, *limits)
    score = net.op("GatherND", scores, chosen)
    class_, box = (net.op("Gather", chosen, net.constant(i), axis=1) for i in (1, 2))
    corners = net.op("Gather", net.op("Squeeze", corners, net.constant([0])), box, axis=0)
    count = net.op("Min", net.op("Shape", score), net.constant([KEPT]))
    score, order = net.several("TopK", 2, score, count, axis=0, largest=1, sorted=1)
    columns = []
    for whole in (box, class_):
        whole = net.op("Cast", net.op("Gather", whole, order, axis=0), to=TensorProto.FLOAT)
        columns.append(net.op("Unsqueeze", whole, net.constant([1])))
    columns.append(net.op("Gather", corners, order, axis=0))
    columns.append(net.op("Unsqueeze", score, net.constant([1])))
    return net.op("Concat", *columns, axis=1)


def normalised(net, given):
    """Gives the results of each convolution a mean and a deviation, channel by channel, as the
    normalisation of a trained network does, for the noise that the referee gives it. Values would
    grow or fade from layer to layer otherwise, and rounding would grow with them."""
    image = np.random.default_rng(0).uniform(-1, 1, given[1]).astype(np.float32)
    values = {t.name: numpy_helper.to_array(t) for t in net.weights}
    for node in [n for n in net.nodes if n.op_type == "Conv"]:
        part = node.output[0]
        model = net.finish("part", given, part, part, [1, None, None, None])
        y = session_of(model).run(None, {given[0]: image})[0]
        w, b = (values[n] for n in node.input[1:])
        wanted, spread = (MEAN, SPREAD) if y.shape[1] == len(MEAN) else (MIDDLE, np.ones(len(b)))
        scale = spread / (y.std((0, 2, 3)) + 1e-6)
        b = (b - y.mean((0, 2, 3))) * scale + wanted
        node.input[1:] = [net.given(w * scale[:, None, None, None]), net.given(b)]
    used = {n for node in net.nodes for n in node.input}
    net.weights = [t for t in net.weights if t.name in used]


def detect():
    """A backbone, a pyramid down and up, three heads. Each detection: the number of its box, its
    class, four corners, its score."""
    net = Graph(62)
    x = silu_conv(net, "image", 3, 16, 3, 2)
    x = cross_stage(net, silu_conv(net, x, 16, 32, 3, 2), 32, 32, 1)
    fine = cross_stage(net, silu_conv(net, x, 32, 64, 3, 2), 64, 64, 2)
    middle = cross_stage(net, silu_conv(net, fine, 64, 128, 3, 2), 128, 128, 3)
    x = cross_stage(net, silu_conv(net, middle, 128, 256, 3, 2), 256, 256, 1)
    coarse = silu_conv(net, pooled_pyramid(net, x, 256), 256, 128, 1)
    x = net.op("Concat", twice(net, coarse), middle, axis=1)
    middle = silu_conv(net, cross_stage(net, x, 256, 128, 1, False), 128, 64, 1)
    x = net.op("Concat", twice(net, middle), fine, axis=1)
    fine = cross_stage(net, x, 128, 64, 1, False)
    x = net.op("Concat", separable(net, fine, 64, 64, 2), middle, axis=1)
    middle = cross_stage(net, x, 128, 128, 1, False)
    x = net.op("Concat", separable(net, middle, 128, 128, 2), coarse, axis=1)
    coarse = cross_stage(net, x, 256, 256, 1, False)
    levels = [
        decoded(net, fine, 64, 40, 8, [[20, 26], [32, 60], [66, 46]]),
        decoded(net, middle, 128, 20, 16, [[60, 122], [124, 90], [118, 238]]),
        decoded(net, coarse, 256, 10, 32, [[232, 180], [312, 396], [746, 652]]),
    ]
    y, given = suppressed(net, net.op("Concat", *levels, axis=1)), ("image", [1, 3, 320, 320])
    normalised(net, given)
    return net.finish("detect", given, y, "detections", ["found", 7])


# ---- speech: recurrent layers --------------------------------------------------------------------


def recurrent(net, x, inside, units):
    """One LSTM layer of both directions over x, [steps, 1, inside]."""
    # As PyTorch begins recurrent layers.
    shapes, bound = ((4 * units, inside), (4 * units, units), (8 * units,)), units**-0.5
    w, r, b = (net.given(net.random.uniform(-bound, bound, (2, *s))) for s in shapes)
    batch = net.op("Unsqueeze", net.extent(x, 1), net.constant([0]))
    shape = net.op("Concat", net.constant([2]), batch, net.constant([units]), axis=0)
    zero = net.op("Expand", net.given(0), shape)
    form = dict(direction="bidirectional", hidden_size=units)
    y = net.several("LSTM", 3, x, w, r, b, "", zero, zero, **form)[0]
    y = net.op("Transpose", y, perm=[0, 2, 1, 3])
    return net.op("Reshape", y, net.constant([0, 0, -1]))


def speech():
    """Two convolutions, four LSTM layers, a projection."""
    net, bins, frames, channels, units, layers, tokens = Graph(13), 80, 1000, 32, 320, 4, 1024
    x = net.op("Unsqueeze", "features", net.constant([1]))
    x = net.op("Relu", net.conv(x, 1, channels, 3, 2))
    x = net.op("Relu", net.conv(x, channels, channels, 3, 2))
    inside, steps = channels * bins // 4, frames // 4
    x = net.view(net.op("Transpose", x, perm=[0, 2, 1, 3]), steps, inside)
    x = net.norm(net.linear(x, inside, 2 * units), 2 * units)
    x = net.op("Transpose", x, perm=[1, 0, 2])
    for _ in range(layers):
        x = net.norm(recurrent(net, x, 2 * units, units), 2 * units)
    x = net.linear(net.op("Transpose", x, perm=[1, 0, 2]), 2 * units, tokens)
    y, given = net.op("LogSoftmax", x, axis=-1), ("features", [1, frames, bins])
    return net.finish("speech", given, y, "scores", [1, steps, tokens])


# ---- segment: interpolation and transposed convolutions ------------------------------------------


def bounded(net, x):
    """max(0, min(x, 6)), as exporters write it."""
    return net.op("Clip", x, net.given(0), net.given(6))


def inverted(net, x, inside, outside, stride=1, rate=1, widen=6):
    """An inverted residual."""
    y, inner = x, inside * widen
    if widen > 1:
        y = bounded(net, net.conv(y, inside, inner, 1))
    y = bounded(net, net.conv(y, inner, inner, 3, stride, rate, group=inner))
    y = net.conv(y, inner, outside, 1, gain=1.0)
    return net.op("Add", x, y) if stride == 1 and inside == outside else y


def interpolated(net, x, like, channels, places):
    """Linear interpolation to the size of another value, which is asked for."""
    form = dict(mode="linear", coordinate_transformation_mode=places)
    size = net.op("Slice", net.op("Shape", like), *(net.constant([i]) for i in (2, 4, 0)))
    sizes = net.op("Concat", net.constant([1, channels]), size, axis=0)
    return net.op("Resize", x, "", "", sizes, **form)


def segment():
    """Inverted residuals to a sixteenth of the size, context at four rates, a decoder."""
    net, classes, wide = Graph(14), 21, 128
    x = bounded(net, net.conv("image", 3, 32, 3, 2))
    half = x = inverted(net, x, 32, 16, widen=1)
    quarter = x = inverted(net, inverted(net, x, 16, 24, 2), 24, 24)
    plan = ((32, 3, 2, 1), (64, 4, 2, 1), (96, 3, 1, 1), (160, 3, 1, 2), (320, 1, 1, 2))
    inside = 24
    for outside, count, stride, rate in plan:
        for i in range(count):
            x = inverted(net, x, inside, outside, stride if i == 0 else 1, rate)
            inside = outside
    context = [net.op("Relu", net.conv(x, inside, wide, 1))]
    for rate in (6, 12, 18):
        context.append(net.op("Relu", net.conv(x, inside, wide, 3, rate=rate)))
    mean = net.op("Relu", net.conv(net.op("GlobalAveragePool", x), inside, wide, 1))
    context.append(interpolated(net, mean, x, wide, "half_pixel"))
    x = net.op("Relu", net.conv(net.op("Concat", *context, axis=1), 5 * wide, wide, 1))
    x = interpolated(net, x, quarter, wide, "align_corners")
    x = net.op("Concat", x, net.op("Relu", net.conv(quarter, 24, 32, 1)), axis=1)
    x = net.op("Relu", net.conv(x, wide + 32, wide + 32, 3, group=wide + 32))
    x = net.op("Relu", net.conv(x, wide + 32, wide, 1))
    w, b = net.weight(wide, 64, 2, 2, scale=math.sqrt(2 / wide)), net.weight(64, scale=0.1)
    x = net.op("ConvTranspose", x, w, b, kernel_shape=[2, 2], strides=[2, 2])
    x = net.op("Concat", net.op("Relu", x), half, axis=1)
    x = net.op("Relu", net.conv(x, 80, 32, 3))
    x = net.conv(x, 32, classes, 1, gain=4.0)
    x = interpolated(net, x, "image", classes, "half_pixel")
    y, given = net.op("ArgMax", x, axis=1, keepdims=0), ("image", [1, 3, 384, 384])
    return net.finish("segment", given, y, "labels", [1, 384, 384], TensorProto.INT64)


NETWORKS = {"window": window, "detect": detect, "speech": speech, "segment": segment}


def chosen(only):
    """The networks that are asked for."""
    unknown = sorted(set(only or []) - set(NETWORKS))
    if unknown:
        sys.exit(f"no network is called {', '.join(unknown)}")
    return [n for n in NETWORKS if not only or n in only]


def make(a):
    a.folder.mkdir(parents=True, exist_ok=True)
    for name in chosen(a.only):
        model, path = NETWORKS[name](), a.folder / f"{name}.onnx"
        onnx.save(model, path)
        print(f"{path}: {len(model.graph.node)} nodes, {path.stat().st_size / 2**20:.1f} MiB")


# ---- run -----------------------------------------------------------------------------------------


def referee():
    """`shared/peers/networks.py` beside the checkout (for a worktree: its main checkout)."""
    places = (above / "shared" / "peers" / "networks.py" for above in HERE.parents)
    return next((p for p in places if p.exists()), None)


def distance(y, expected):
    """The largest difference relative to the largest value; infinite where one is no number."""
    apart = np.abs(y.astype(np.float64) - expected).max() / max(1e-9, np.abs(expected).max())
    return float(apart) if np.isfinite(apart) else math.inf


def compared(name, y, expected, values, ours):
    """How far a result is off, and the fault if it is wrong, else None. Our detections have to be
    the same in the same order; those of a library may change places where their scores are as near
    as floats may be, and pixels of anyone may have another label where both values are."""
    if y.size != expected.size:
        return math.inf, f"it has the shape {list(y.shape)} in the place of {list(expected.shape)}"
    y = y.reshape(expected.shape)
    if name == "detect":
        if not ours:
            places = {(box, class_): i for i, (box, class_) in enumerate(y[:, :2].tolist())}
            wanted = [places.get((box, class_), 0) for box, class_ in expected[:, :2].tolist()]
            apart = np.abs(y[wanted, 6] - y[:, 6]).max()
            y = y[wanted] if apart <= TOLERANCE else y
        others = int((y[:, :2] != expected[:, :2]).any(1).sum())
        if others:
            return math.inf, f"{others} of {len(y)} detections are others"
        off = max(distance(y[:, i], expected[:, i]) for i in range(2, 7))
    elif name == "segment":
        y = y.astype(np.int64)
        if y.min() < 0 or y.max() >= values.shape[1]:
            return math.inf, "there is no such label"
        given = np.take_along_axis(values, y[:, None], axis=1)[:, 0]
        off = float((values.max(1) - given).max() / np.abs(values).max())
    else:
        off = distance(y, expected)
    return off, None if off <= TOLERANCE else f"it is off by {off:.2g}"


def values_of_labels(path, given):
    """The scores from which ArgMax chooses labels."""
    model = onnx.load(path)
    last = next(n for n in model.graph.node if n.op_type == "ArgMax").input[0]
    model.graph.output.append(helper.make_tensor_value_info(last, TensorProto.FLOAT, None))
    return session_of(model).run([last], {model.graph.input[0].name: given})[0]


class Rounds:
    """Calls of the referee and of Squall for one network."""

    def __init__(self, script, a, name):
        self.script, self.a, self.name = script, a, name
        self.work = (a.folder / "work").resolve()
        self.work.mkdir(exist_ok=True)
        self.model, self.given = self.work / f"{name}.onnx", self.work / f"{name}_input.npy"
        self.result = self.work / f"{name}_squall.npy"

    def call(self, command):
        """Runs a program in the working folder, where Squall finds no store of tuned kernels."""
        free = {k: v for k, v in os.environ.items() if k != "SQUALL_STORE"}
        return subprocess.run(command, cwd=self.work, env=free, capture_output=True, text=True)

    def referee(self, *words):
        """Calls the referee."""
        model = (self.a.folder / f"{self.name}.onnx").resolve()
        command = [sys.executable, self.script, model, "--dir", self.work, *words]
        done = self.call([str(c) for c in (*command, "--threads", self.a.threads)])
        if done.returncode:
            raise RuntimeError(f"networks.py failed: {done.stderr.strip()[-400:]}")
        # Its own summaries end in ratios that do not ask whether a result is right.
        for line in done.stderr.splitlines():
            if not line.startswith((f"{self.name} {{", "geometric mean")):
                print(f"  {line}", flush=True)

    def squall(self, seconds):
        """The words of a call of Squall."""
        command = [self.a.squall.resolve(), "bench", self.model, "--input", self.given, "--json"]
        command += ["--output", self.result, "--threads", self.a.threads]
        command += ["--keep", self.work / f"{self.name}_built", "--seconds", seconds]
        return [str(c) for c in command]

    def results(self):
        """Each program's result for the same input; a program that fails has none."""
        files = {p: self.work / f"{self.name}_{p}.npy" for p in PEERS} | {"squall": self.result}
        for f in files.values():
            f.unlink(missing_ok=True)
        self.referee("--rounds", 0)
        done = self.call(self.squall(0.1))
        if done.returncode:
            print(f"  squall: {done.stderr.strip()[-400:]}", flush=True)
        return {p: np.load(f) for p, f in files.items() if f.exists()}

    def times(self):
        """The fastest inference of each, in ms."""
        out = self.work / f"{self.name}.json"
        words = ("--rounds", self.a.rounds, "--seconds", self.a.seconds, "--out", out)
        self.referee(*words, "--cmd", shlex.join(self.squall(self.a.seconds)))
        return json.loads(out.read_text())["networks"][self.name]


def measured(rounds, name, check_only):
    """One network: all results compared, then times of those that may be timed."""
    results = rounds.results()
    if "onnxruntime" not in results:
        return {"skipped": "onnxruntime does not run it"}
    expected, values = results["onnxruntime"], None
    if name == "segment":
        values = values_of_labels(rounds.model, np.load(rounds.given))
    row = {"off": {}, "wrong": {}}
    for p in (*PEERS[1:], "squall"):
        if p not in results:
            row["wrong"][p] = "it gives no result"
            continue
        off, wrong = compared(name, results[p], expected, values, p == "squall")
        row["off"][p] = off if math.isfinite(off) else None
        if wrong:
            row["wrong"][p] = wrong
    if "squall" in row["wrong"]:
        return row | {"skipped": f"squall: {row['wrong']['squall']}"}
    if check_only:
        return row
    times = rounds.times()
    if "ours" not in times:
        return row | {"skipped": "squall gave no time"}
    row["ms"] = {"squall": times["ours"]} | {p: times[p] for p in PEERS if p in times}
    right = {p: row["ms"][p] for p in PEERS if p in row["ms"] and p not in row["wrong"]}
    row["best"] = min(right, key=right.get)
    row["ratio"] = right[row["best"]] / times["ours"]
    return row


def line_of(name, row):
    """The line that is printed for a network."""
    parts = [f"{p} {ms:.2f} ms" for p, ms in row.get("ms", {}).items()]
    if "ratio" in row:
        parts.append(f"ratio {row['ratio']:.3f} ({row['best']})")
    parts += [f"{p} off by {off:.1e}" for p, off in row.get("off", {}).items() if off is not None]
    parts += [f"{p} is wrong: {why}" for p, why in row.get("wrong", {}).items()]
    parts += [f"skipped: {row['skipped']}"] if "skipped" in row else []
    return f"{name}: " + ", ".join(parts)


def run(a):
    script = referee()
    if script is None:
        print("skipped: shared/peers/networks.py, which runs the libraries, is not there")
        return
    rows = {}
    for name in chosen(a.only):
        if not (a.folder / f"{name}.onnx").exists():
            sys.exit(f"{a.folder / name}.onnx is not there: `operator_networks.py make {a.folder}`")
        try:
            rows[name] = measured(Rounds(script, a, name), name, a.check_only)
        except RuntimeError as e:
            rows[name] = {"skipped": str(e)}
        print(line_of(name, rows[name]), flush=True)
        a.out.write_text(json.dumps({"threads": a.threads, "networks": rows}, indent=1) + "\n")
    ratios = [r["ratio"] for r in rows.values() if "ratio" in r]
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        print(f"ratio, geometric mean of {len(ratios)}: {mean:.3f}, least {min(ratios):.3f}")


def main():
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    modes = parser.add_subparsers(dest="mode", required=True)
    for mode, call in (("make", make), ("run", run)):
        p = modes.add_parser(mode)
        p.set_defaults(call=call)
        p.add_argument("folder", type=Path)
        p.add_argument("--only", type=lambda s: s.split(","), help="names with commas between them")
    p.add_argument("--squall", type=Path, required=True, help="the binary, a release build")
    p.add_argument("--out", type=Path, required=True)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--seconds", type=float, default=2.0, help="of each program in a round")
    p.add_argument("--check-only", action="store_true", help="compare results, time nothing")
    a = parser.parse_args()
    a.call(a)


if __name__ == "__main__":
    main()
