#!/usr/bin/env python3
"""The values of many small models by onnxruntime with its optimisations off: the peer of
`cargo xtask campaign graphs`, which starts it.

    python3 scripts/onnx/peer_of_graphs.py

Needs numpy, onnx (with ml_dtypes) and onnxruntime. It says `ready`; then each line of its input names folders with
tabs between them, and it answers `done`. A folder holds m.onnx and NAME.npy for each input; the
values of all nodes become out/NAME.npy, and where one cannot be computed the reason becomes the
file `error`. sizes/NAME.npy is what a sum would be if all its terms were positive: what it rounds
has that size. The bits of bf16 lie in NAME.bf16.npy. Nodes are run one by one, so that one for which onnxruntime has no kernel is computed
by the evaluator of the `onnx` package and the rest by onnxruntime all the same.
"""

import sys
import warnings
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

OPTIONS = onnxruntime.SessionOptions()
OPTIONS.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
OPTIONS.log_severity_level = 4
OPTIONS.intra_op_num_threads = 1
OPTIONS.inter_op_num_threads = 1

# onnxruntime's reductions lose a NaN, depending on its place; the evaluator's do not.
LOSES_NAN = {"ReduceMax", "ReduceMin"}
# The evaluator's faults, which matter where onnxruntime does not know a version of the operators yet: sums of
# absolute values have signs, the LRN looks at no neighbour, an LSTM's initial state has one direction, a
# Loop's outputs lack an axis or a turn, squares of 32-bit numbers have 64, and a zero point is added ahead of
# rounding.
WRONG = {"LpNormalization", "LRN", "LSTM", "Loop", "ReduceSumSquare", "QLinearConv"}
# Sums of elements or of products.
SUMS = {
    *("MatMul", "Gemm", "Einsum", "Conv", "ConvTranspose", "AveragePool", "GlobalAveragePool", "ReduceSum"),
    *("ReduceMean", "CumSum", "Col2Im", "BatchNormalization"),
}
BF16 = np.dtype(ml_dtypes.bfloat16)
# Operators whose version 22 differs by types alone, for which onnxruntime has the version before.
SAME_BEFORE = {"GlobalLpPool", "MaxRoiPool"}


def session(model, feed):
    """Runs a model by onnxruntime."""
    s = onnxruntime.InferenceSession(model.SerializeToString(), OPTIONS, providers=["CPUExecutionProvider"])
    return s.run(None, feed)


def evaluator(model, feed):
    """Runs a model by the evaluator of the onnx package."""
    if WRONG & {n.op_type for n in model.graph.node}:
        raise NotImplementedError("the evaluator is wrong here")
    return ReferenceEvaluator(model).run(None, feed)


def max_of_windows(model, feed):
    """A MaxPool that keeps NaN, and -inf where there is nothing else, which onnxruntime takes for the least
    number: of the numbers, and of where they are none."""
    (node,) = model.graph.node
    if len(node.output) > 1:
        # Indices of NaN.
        raise NotImplementedError("no peer agrees with another here")
    x = feed[node.input[0]]
    none = np.isnan(x)
    (largest,) = session(model, {node.input[0]: np.where(none, x.dtype.type(-np.inf), x)})
    (has_none,) = session(model, {node.input[0]: none.astype(x.dtype)})
    least = np.finfo(x.dtype).min
    largest = np.where((largest == least) & ~(x == least).any(), x.dtype.type(-np.inf), largest)
    return [np.where(has_none == 1, x.dtype.type(np.nan), largest)]


def attributes(node):
    """The attributes of a node by their names."""
    return {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}


def log_softmax(model, feed):
    """A LogSoftmax that neither loses what is no number nor rounds a small probability to 0."""
    (x,) = feed.values()
    axis = attributes(model.graph.node[0]).get("axis", -1)
    wide = x.astype(np.float64)
    wide = wide - np.max(wide, axis=axis, keepdims=True)
    return [(wide - np.log(np.sum(np.exp(wide), axis=axis, keepdims=True))).astype(x.dtype)]


def log_sum_exp(model, feed):
    """A ReduceLogSumExp likewise."""
    (node,) = model.graph.node
    x, options = feed[node.input[0]], attributes(node)
    axes = options.get("axes", [])
    if len(node.input) > 1 and node.input[1]:
        known = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
        axes = (known | feed)[node.input[1]]
    if len(axes) == 0 and options.get("noop_with_empty_axes", 0):
        return [x]
    axes = tuple(int(a) % max(x.ndim, 1) for a in axes) or tuple(range(x.ndim))
    wide = x.astype(np.float64)
    most = np.max(wide, axis=axes, keepdims=True, initial=-np.inf)
    most = np.where(np.isfinite(most), most, 0.0)
    total = np.log(np.sum(np.exp(wide - most), axis=axes, keepdims=True)) + most
    kept = total if options.get("keepdims", 1) else total.reshape([d for i, d in enumerate(x.shape) if i not in axes])
    return [kept.astype(x.dtype)]


def softplus(_, feed):
    """A Softplus of any size."""
    (x,) = feed.values()
    wide = x.astype(np.float64)
    return [(np.maximum(wide, 0) + np.log1p(np.exp(-np.abs(wide)))).astype(x.dtype)]


# Of these onnxruntime loses what is no number, and the evaluator what is very large or small.
OWN = {"LogSoftmax": log_softmax, "ReduceLogSumExp": log_sum_exp, "Softplus": softplus}


def leaves_gaps(node):
    """Whether a pool takes its padding from its windows, and these do not touch each other."""
    sizes = attributes(node)
    is_same = sizes.get("auto_pad", b"").startswith(b"SAME")
    return is_same and any(s > k for s, k in zip(sizes.get("strides", []), sizes["kernel_shape"]))


def max_over_all(model, feed):
    """A GlobalMaxPool that keeps NaN and -inf."""
    x = feed[model.graph.node[0].input[0]]
    return [np.max(x, axis=tuple(range(2, x.ndim)), keepdims=True)]


def response_normalised(model, feed):
    """An LRN of any rank: all but the first two axes are one."""
    (name,) = feed
    x = feed[name]
    one = onnx.ModelProto()
    one.CopyFrom(model)
    flat = x.reshape(*x.shape[:2], -1, 1)
    for v in (*one.graph.input, *one.graph.output):
        v.CopyFrom(onnx.helper.make_tensor_value_info(v.name, onnx.TensorProto.FLOAT, flat.shape))
    return [y.reshape(x.shape) for y in session(one, {name: flat})]


def needed(node, known):
    """The names that a node and the graphs in it take from around it."""
    names = [n for n in node.input if n]
    graphs = [a.g for a in node.attribute if a.type == onnx.AttributeProto.GRAPH]
    for graph in graphs:
        for inner in graph.node:
            names += needed(inner, known)
        names += [o.name for o in graph.output]
    return list(dict.fromkeys(n for n in names if n in known))


def alone(model, node, values):
    """The model of one node over known values, with the types of its outputs, which onnxruntime
    asks for."""
    def info(name):
        array = values[name]
        kind = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
        return onnx.helper.make_tensor_value_info(name, kind, array.shape)

    # What decides shapes is known when they are inferred.
    names = needed(node, values)
    small = [n for n in names if n in node.input and values[n].dtype == np.int64 and values[n].size < 64]
    graph = onnx.helper.make_graph(
        [node],
        "one",
        [info(n) for n in names if n not in small],
        [onnx.helper.make_empty_tensor_value_info(o) for o in node.output if o],
        [numpy_helper.from_array(values[n], n) for n in small],
    )
    one = onnx.helper.make_model(graph, ir_version=model.ir_version, opset_imports=model.opset_import)
    inferred = {v.name: v for v in onnx.shape_inference.infer_shapes(one).graph.output}
    for o in one.graph.output:
        if o.name in inferred and inferred[o.name].type.WhichOneof("value"):
            o.CopyFrom(inferred[o.name])
        elif node.domain and names:
            # Operators of other domains give what they are given.
            kind = onnx.helper.np_dtype_to_tensor_dtype(values[names[0]].dtype)
            o.CopyFrom(onnx.helper.make_tensor_value_info(o.name, kind, None))
    return one, {n: values[n] for n in names if n not in small}


def peers(node, values):
    """Who computes a node, the first who can."""
    floats = [values[n] for n in node.input if n in values and values[n].dtype.kind == "f"]
    if node.op_type == "GlobalMaxPool" and not np.isfinite(floats[0]).all():
        return (max_over_all,)
    if node.op_type in LOSES_NAN and any(np.isnan(a).any() for a in floats):
        return (evaluator,)
    if node.op_type == "MaxPool" and floats and not np.isfinite(floats[0]).all():
        return (max_of_windows,)
    # SAME windows that leave gaps have padding below 0: one library refuses it, one takes it for 0, one cuts.
    if node.op_type in ("MaxPool", "LpPool", "AveragePool") and leaves_gaps(node):
        return ()
    if node.op_type in OWN and not node.domain:
        return (OWN[node.op_type],)
    # It has other shapes of pools of nothing.
    if node.op_type in ("MaxPool", "GlobalMaxPool") and floats and floats[0].size == 0:
        return ()
    # Without a bound it takes the largest number for one, and changes infinities; PyTorch and numpy do not.
    bounds = [n for n in node.input[1:3] if n]
    if node.op_type == "Clip" and len(bounds) < 2 and floats and np.isinf(floats[0]).any():
        return (evaluator,)
    # The mean of nothing is 0 there, and no number in numpy.
    if node.op_type == "ReduceMean" and floats and floats[0].size == 0:
        return (evaluator,)
    # It divides by the number of elements of a slice.
    if node.op_type == "Scan" and any(values[n].size == 0 for n in node.input):
        return (evaluator,)
    # Its sums of 32-bit numbers that do not fit stay at the limit along some axes, and wrap along others.
    if node.op_type in ("ReduceSum", "ReduceProd") and not floats:
        return (evaluator,)
    if node.op_type == "LRN" and floats[0].ndim != 4:
        return (response_normalised,)
    return (session, evaluator)


def is_half(array):
    """Whether it holds floats of 16 bits."""
    return array.dtype in (np.float16, BF16)


def compute(model, node, values):
    """The outputs of a node, or an exception that says who could not compute them and why. Floats of
    16 bits are computed as those of 32 and rounded."""
    halves = {n: a for n, a in values.items() if n in needed(node, values) and is_half(a)}
    dtypes = None
    if halves and node.op_type not in ("Cast", "CastLike", "BitCast"):
        one, _ = alone(model, node, values)
        dtypes = [onnx.helper.tensor_dtype_to_np_dtype(o.type.tensor_type.elem_type) for o in one.graph.output]
        values = {**values, **{n: a.astype(np.float32) for n, a in halves.items()}}
    reasons = []
    one, feed = alone(model, node, values)
    if node.op_type in SAME_BEFORE:
        one.opset_import[0].version = 21
    for peer in peers(node, values):
        try:
            arrays = peer(one, feed)
            return arrays if dtypes is None else [np.asarray(a).astype(t) for a, t in zip(arrays, dtypes)]
        except Exception as e:  # whatever a library raises is its answer
            reasons.append(f"{node.op_type}: {type(e).__name__}: {e}"[:300])
    raise NotImplementedError("\n".join(reasons) or f"{node.op_type}: no peer agrees with another here")


def sizes(model, node, values):
    """What the node would give if all terms of its sums were positive; None where it is no sum."""
    operands = [n for n in node.input if n]
    if node.op_type not in SUMS or values[operands[0]].dtype.kind not in "fV":
        return None

    def size(a):
        a = a.astype(np.float64 if a.dtype == np.float64 else np.float32)
        return np.abs(np.nan_to_num(a, nan=0.0, posinf=0.0, neginf=0.0)).astype(a.dtype)

    positive = {n: size(values[n]) if values[n].dtype.kind in "fV" else values[n] for n in operands}
    if node.op_type == "BatchNormalization":
        positive[operands[3]] = -positive[operands[3]]
    absolute = onnx.NodeProto()
    absolute.CopyFrom(node)
    for a in absolute.attribute:
        a.f = abs(a.f)
    try:
        one, feed = alone(model, absolute, positive)
        return session(one, feed)[0]
    except Exception:  # the caller has a coarser measure
        return None


def save(path, array):
    """Writes an array."""
    array = np.ascontiguousarray(array).reshape(np.shape(array))
    if array.dtype == BF16:
        np.save(path.with_name(path.name + ".bf16.npy"), array.view(np.uint16))
    else:
        np.save(path.with_name(path.name + ".npy"), array)


def read(path):
    """The name and the elements of an input's file."""
    array = np.load(path)
    name = path.name.removesuffix(".npy")
    return (name[:-5], array.view(BF16)) if name.endswith(".bf16") else (name, array)


def answer(folder):
    """Writes the values of a folder's nodes, as far as they can be computed."""
    model = onnx.load_from_string((folder / "m.onnx").read_bytes())
    values = dict(map(read, folder.glob("*.npy")))
    values.update({t.name: numpy_helper.to_array(t) for t in model.graph.initializer})
    reasons = []
    for node in model.graph.node:
        try:
            names = [o for o in node.output if o]
            for name, array in zip(names, compute(model, node, values)):
                save(folder / "out" / name, array)
                values[name] = np.asarray(array)
            size = sizes(model, node, values)
            if size is not None:
                save(folder / "sizes" / names[0], size)
        except KeyError:
            pass  # an operand could not be computed, which was said
        except Exception as e:
            reasons.append(str(e))
    if reasons:
        (folder / "error").write_text("\n".join(reasons))


def main():
    """Answers line after line."""
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    print("ready", flush=True)
    for line in sys.stdin:
        for name in line.rstrip("\n").split("\t"):
            answer(Path(name))
        print("done", flush=True)


if __name__ == "__main__":
    main()
