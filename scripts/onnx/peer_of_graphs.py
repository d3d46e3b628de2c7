#!/usr/bin/env python3
"""The values of many small models by onnxruntime with its optimisations off: the peer of
`cargo xtask campaign graphs`, which starts it.

    python3 scripts/onnx/peer_of_graphs.py

Needs numpy, onnx and onnxruntime. It says `ready`; then each line of its input names folders with
tabs between them, and it answers `done`. A folder holds m.onnx and NAME.npy for each input; its
outputs become out/NAME.npy, or the reason why there are none the file `error`. What onnxruntime has
no kernel for the evaluator of the `onnx` package computes.
"""

import sys
import warnings
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx.reference import ReferenceEvaluator

OPTIONS = onnxruntime.SessionOptions()
OPTIONS.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
OPTIONS.log_severity_level = 4
OPTIONS.intra_op_num_threads = 1
OPTIONS.inter_op_num_threads = 1

# onnxruntime's pools lose a NaN, depending on its place; the evaluator's do not.
LOSES_NAN = {"MaxPool", "GlobalMaxPool"}
# The evaluator's sums of absolute values have signs.
WRONG = {"LpNormalization"}


def session(model):
    """Runs a model by onnxruntime."""
    s = onnxruntime.InferenceSession(model, OPTIONS, providers=["CPUExecutionProvider"])
    return lambda feed: (s.run(None, feed), [o.name for o in s.get_outputs()])


def evaluator(model):
    """Runs a model by the evaluator of the onnx package."""
    if WRONG & {n.op_type for n in onnx.load_from_string(model).graph.node}:
        raise NotImplementedError("the evaluator is wrong here")
    e = ReferenceEvaluator(onnx.load_from_string(model))
    return lambda feed: (e.run(None, feed), list(e.output_names))


def typed(model):
    """The model with the types of its outputs, which onnxruntime asks for."""
    loaded = onnx.load_from_string(model)
    loaded = onnx.shape_inference.infer_shapes(loaded)
    known = {v.name: v for v in loaded.graph.value_info}
    known.update({v.name: v for v in loaded.graph.output if v.type.WhichOneof("value")})
    names = [o.name for o in loaded.graph.output]
    del loaded.graph.output[:]
    loaded.graph.output.extend(known[n] for n in names)
    # They are outputs now, and may not be named twice.
    kept = [v for v in loaded.graph.value_info if v.name not in names]
    del loaded.graph.value_info[:]
    loaded.graph.value_info.extend(kept)
    return loaded.SerializeToString()


def answer(folder):
    """Writes the outputs of a folder's model."""
    model = (folder / "m.onnx").read_bytes()
    feed = {p.stem: np.load(p) for p in folder.glob("*.npy")}
    reasons = []
    loaded = onnx.load_from_string(model)
    arrays = [*feed.values(), *map(onnx.numpy_helper.to_array, loaded.graph.initializer)]
    is_hard = any(a.dtype.kind == "f" and not np.isfinite(a).all() for a in arrays)
    first = is_hard and LOSES_NAN & {n.op_type for n in loaded.graph.node}
    for peer in (evaluator, session) if first else (session, evaluator):
        try:
            outputs, names = peer(typed(model))(feed)
            for name, array in zip(names, outputs):
                np.save(folder / "out" / f"{name}.npy", np.ascontiguousarray(array).reshape(np.shape(array)))
            (folder / "by").write_text(peer.__name__)
            return
        except Exception as e:  # whatever a library raises is its answer
            reasons.append(f"{type(e).__name__}: {e}"[:300])
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
