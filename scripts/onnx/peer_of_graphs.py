#!/usr/bin/env python3
"""The values of many small models by onnxruntime with its optimisations off: the peer of
`cargo xtask campaign graphs`, which starts it.

    python3 scripts/onnx/peer_of_graphs.py

Needs numpy, onnx and onnxruntime. It says `ready`; then each line of its input names folders with
tabs between them, and it answers `done`. A folder holds m.onnx and NAME.npy for each input; the
values of all nodes become out/NAME.npy, and where one cannot be computed the reason becomes the
file `error`. Nodes are run one by one, so that one for which onnxruntime has no kernel is computed
by the evaluator of the `onnx` package and the rest by onnxruntime all the same.
"""

import sys
import warnings
from pathlib import Path

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

# onnxruntime's pools lose a NaN, depending on its place; the evaluator's do not.
LOSES_NAN = {"MaxPool", "GlobalMaxPool"}
# The evaluator's sums of absolute values have signs; its GlobalMaxPool of volumes has the wrong rank.
WRONG = {"LpNormalization"}
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


def max_over_all(model, feed):
    """A GlobalMaxPool that keeps NaN."""
    x = feed[model.graph.node[0].input[0]]
    return [np.max(x, axis=tuple(range(2, x.ndim)), keepdims=True)]


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
    return one, {n: values[n] for n in names if n not in small}


def peers(node, values):
    """Who computes a node, the first who can."""
    floats = [values[n] for n in node.input if n in values and values[n].dtype.kind == "f"]
    if node.op_type in LOSES_NAN and any(np.isnan(a).any() for a in floats):
        return (max_over_all,) if node.op_type == "GlobalMaxPool" else (evaluator,)
    return (session, evaluator)


def compute(model, node, values):
    """The outputs of a node, or an exception that says who could not compute them and why."""
    reasons = []
    one, feed = alone(model, node, values)
    if node.op_type in SAME_BEFORE:
        one.opset_import[0].version = 21
    for peer in peers(node, values):
        try:
            return peer(one, feed)
        except Exception as e:  # whatever a library raises is its answer
            reasons.append(f"{node.op_type}: {type(e).__name__}: {e}"[:300])
    raise NotImplementedError("\n".join(reasons))


def answer(folder):
    """Writes the values of a folder's nodes, as far as they can be computed."""
    model = onnx.load_from_string((folder / "m.onnx").read_bytes())
    values = {p.stem: np.load(p) for p in folder.glob("*.npy")}
    values.update({t.name: numpy_helper.to_array(t) for t in model.graph.initializer})
    try:
        for node in model.graph.node:
            names = [o for o in node.output if o]
            for name, array in zip(names, compute(model, node, values)):
                array = np.ascontiguousarray(array).reshape(np.shape(array))
                np.save(folder / "out" / f"{name}.npy", array)
                values[name] = array
    except Exception as e:
        (folder / "error").write_text(str(e))


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
