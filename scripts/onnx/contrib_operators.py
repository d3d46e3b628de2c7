#!/usr/bin/env python3
"""Operators that onnxruntime adds to ONNX (domain com.microsoft), through `squall check` and
onnxruntime on the same random inputs; then whole models that onnxruntime wrote after its own
fusions.

    python3 scripts/onnx/contrib_operators.py target/release/squall [MODEL.onnx ...]
    python3 scripts/onnx/contrib_operators.py target/release/squall --rounds 20 --only 'QLinear*'

Needs numpy, onnx and onnxruntime. A model given here is written by onnxruntime at its level
"extended" and at its level "all but layouts"; weights that it lacks must lie beside it. Quantised
operators are tried in --rounds rounds of random cases (quantised_cases.py), and compared with
onnxruntime without optimisations: integers within one step, floats within 1e-4 of the largest, and
within 1e-2 of it where activations are quantised by both. The exit code is 1 if any answer differs
by more than that (1e-4 of other operators) or is refused.
"""

import argparse
import fnmatch
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import quantised_cases
from onnx import TensorProto, helper, numpy_helper

RANDOM = np.random.default_rng(7)


def floats(*shape):
    return RANDOM.uniform(-1, 1, shape).astype("float32")


def cases():
    """(name, operator, inputs, attributes, outputs); None is an input that is not given."""
    x = floats(2, 5, 8)
    yield "gelu", "Gelu", [x], {}, 1
    yield "bias_gelu", "BiasGelu", [x, floats(8)], {}, 1
    yield "fast_gelu", "FastGelu", [x], {}, 1
    yield "fast_gelu_bias", "FastGelu", [x, floats(8)], {}, 1
    yield "quick_gelu", "QuickGelu", [x], {"alpha": 1.5}, 1
    caches = [floats(9, 4), floats(9, 4)]
    places = np.array([[3, 0, 8, 1, 2], [5, 5, 4, 0, 7]], np.int64)
    for turned in (0, 1):
        kind = {"interleaved": turned}
        name = f"rotary_{turned}"
        yield name, "RotaryEmbedding", [floats(2, 5, 24), places, *caches], kind, 1
        yield name + "_heads", "RotaryEmbedding", [floats(2, 3, 5, 8), places, *caches], kind, 1
        first = np.array([2], np.int64)
        yield name + "_first", "RotaryEmbedding", [floats(2, 5, 24), first, *caches], kind, 1
    a, b = floats(2, 3, 4, 5), floats(2, 3, 5, 6)
    yield "fused_matmul", "FusedMatMul", [a, b], {"alpha": 0.25}, 1
    at, bt = a.swapaxes(2, 3).copy(), b.swapaxes(2, 3).copy()
    yield "fused_matmul_ta", "FusedMatMul", [at, b], {"transA": 1}, 1
    yield "fused_matmul_tb", "FusedMatMul", [a, bt], {"transB": 1, "alpha": 2.0}, 1
    batched = a.transpose(2, 0, 1, 3).copy()
    yield "fused_matmul_batch_a", "FusedMatMul", [batched, b], {"transBatchA": 1}, 1
    both = b.transpose(3, 0, 1, 2).copy()
    turned = {"transBatchB": 1, "transB": 1}
    yield "fused_matmul_batch_b", "FusedMatMul", [a, both], turned, 1
    for kind in ("Relu", "LeakyRelu", "Tanh", "Sigmoid"):
        extra = {"activation_alpha": 0.3} if kind == "LeakyRelu" else {}
        given = [floats(4, 6), floats(6, 3), floats(3)]
        yield f"gemm_{kind}", "FusedGemm", given, {"activation": kind, **extra}, 1
    image, filters, bias = floats(1, 4, 9, 9), floats(6, 4, 3, 3), floats(6)
    for kind, params in (
        ("Relu", []),
        ("LeakyRelu", [0.2]),
        ("Clip", [-0.5, 0.75]),
        ("HardSigmoid", [0.3, 0.4]),
        ("Tanh", []),
    ):
        more = {"activation": kind, "kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
        if params:
            more["activation_params"] = params
        yield f"conv_{kind}", "FusedConv", [image, filters, bias], more, 1
    summed = [image, filters, bias, floats(1, 6, 9, 9)]
    more = {"activation": "Relu", "kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    yield "conv_sum", "FusedConv", summed, more, 1
    skip = [x, floats(2, 5, 8), floats(8), floats(8), floats(8)]
    yield "skip_norm", "SkipLayerNormalization", skip[:4], {"epsilon": 1e-6}, 1
    yield "skip_norm_sum", "SkipLayerNormalization", skip, {}, (0, 3)
    yield "skip_rms", "SkipSimplifiedLayerNormalization", skip[:3], {"epsilon": 1e-6}, 1
    ids = RANDOM.integers(0, 11, (2, 5)).astype("int32")
    segments = RANDOM.integers(0, 2, (2, 5)).astype("int32")
    tables = [floats(11, 8), floats(7, 8), floats(2, 8), floats(8), floats(8)]
    embed = [ids, segments, *tables]
    yield "embed", "EmbedLayerNormalization", embed, {"epsilon": 1e-6}, (0, 1)
    weights, bias = floats(8, 24), floats(24)
    yield "attention", "Attention", [x, weights, bias], {"num_heads": 2}, 1
    mask = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], "int32")
    yield "attention_mask", "Attention", [x, weights, bias, mask], {"num_heads": 2}, 1
    wide = RANDOM.integers(0, 2, (2, 5, 5)).astype("int32")
    wide[:, :, 0] = 1
    yield "attention_mask_3d", "Attention", [x, weights, bias, wide], {"num_heads": 4}, 1
    lengths = np.array([3, 5], "int32")
    yield "attention_lengths", "Attention", [x, weights, bias, lengths], {"num_heads": 2}, 1
    causal = {"num_heads": 2, "unidirectional": 1}
    yield "attention_causal", "Attention", [x, weights, bias], causal, 1
    bias4 = floats(2, 2, 5, 5)
    with_bias = [x, weights, bias, None, None, bias4]
    yield "attention_bias", "Attention", with_bias, {"num_heads": 2, "scale": 0.3}, 1
    q, k, v = floats(2, 3, 8), floats(2, 5, 8), floats(2, 5, 8)
    yield "multi_head", "MultiHeadAttention", [q, k, v], {"num_heads": 2}, 1
    yield "multi_head_bias", "MultiHeadAttention", [q, k, v, floats(24)], {"num_heads": 4}, 1
    padded = [q, k, v, None, mask]
    yield "multi_head_mask", "MultiHeadAttention", padded, {"num_heads": 2}, 1


def model_of(op, inputs, attributes, outputs):
    names = ["" if a is None else f"x{i}" for i, a in enumerate(inputs)]
    wanted = range(outputs) if isinstance(outputs, int) else outputs
    results = ["" if i not in wanted else f"y{i}" for i in range(max(wanted) + 1)]
    node = helper.make_node(op, names, results, domain="com.microsoft", **attributes)
    given = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in zip(names, inputs)
        if a is not None
    ]
    # The embedding's mask index, which onnxruntime wants named, is none of our outputs.
    kept = [r for r in results if r and not (op == "EmbedLayerNormalization" and r == "y1")]
    out = [helper.make_tensor_value_info(r, TensorProto.FLOAT, None) for r in kept]
    graph = helper.make_graph([node], "case", given, out)
    sets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=sets, ir_version=8)


def session(model, level=ort.GraphOptimizationLevel.ORT_ENABLE_ALL, out=None):
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = level
    if out:
        options.optimized_model_filepath = str(out)
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def check(squall, folder, model, feed, expected, atol="1e-4", rtol="1e-4"):
    """What `squall check` says of a model, its inputs and its outputs."""
    data = folder / "data"
    data.mkdir(exist_ok=True)
    for old in data.iterdir():
        old.unlink()
    for kind, arrays in (("input", feed), ("output", expected)):
        for i, array in enumerate(arrays):
            (data / f"{kind}_{i}.pb").write_bytes(numpy_helper.from_array(array).SerializeToString())
    command = [squall, "check", model, "--test-data", data, "--rtol", rtol, "--atol", atol]
    done = subprocess.run(command, capture_output=True, text=True)
    lines = [l for l in (done.stdout + done.stderr).splitlines() if l.startswith(("right", "wrong", "error"))]
    return done.returncode == 0, (lines or ["no answer"])[0][:150]


def tolerance(name, expected):
    """How far an answer may be from another library's."""
    if expected.dtype != np.float32:
        return 1
    largest = float(np.max(np.abs(expected), initial=1e-6))
    return largest * (1e-2 if "level 4" in name or "Dynamic" in name else 1e-4)


def quantised(squall, place, given):
    """Tries quantised operators; how many answers are bad."""
    bad = {}
    for number, (name, (model, feed)) in enumerate(quantised_cases.cases(given.seed, given.rounds)):
        if not fnmatch.fnmatch(name, given.only):
            continue
        file = place / "case.onnx"
        onnx.save(model, file)
        off = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        try:
            s = session(str(file), off)
            expected = s.run(None, {i.name: a for i, a in zip(s.get_inputs(), feed)})
        except Exception as e:  # onnxruntime does not know every type of every operator
            print(f"      {name}: onnxruntime refuses it: {str(e).splitlines()[0][:110]}")
            continue
        atol = tolerance(name, expected[0])
        fine, said = check(squall, place, file, feed, expected, str(atol), "0")
        right, all_ = bad.get(name, (0, 0))
        bad[name] = (right + fine, all_ + 1)
        if not fine:
            print(f"BAD   {name}, case {number}: {said}", flush=True)
            if given.keep:
                onnx.save(model, given.keep / f"{number}.onnx")
    for name, (right, all_) in sorted(bad.items()):
        print(f"{'right' if right == all_ else 'BAD  '} {name}: {right} of {all_}")
    return sum(all_ - right for right, all_ in bad.values())


def random_feed(s):
    for value in s.get_inputs():
        shape = [e if isinstance(e, int) else 1 for e in value.shape]
        if "int" in value.type:
            yield RANDOM.integers(0, 2, shape).astype(value.type[7:-1])
        else:
            yield floats(*shape)


def main():
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("squall")
    arguments.add_argument("models", nargs="*", type=Path)
    arguments.add_argument("--rounds", type=int, default=2, help="of quantised operators [2]")
    arguments.add_argument("--seed", type=int, default=1, help="of quantised operators [1]")
    arguments.add_argument("--only", default="*", help="cases whose name matches")
    arguments.add_argument("--keep", type=Path, help="a folder for models with bad answers")
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as place:
        place = Path(place)
        bad = quantised(given.squall, place, given)
        for name, op, inputs, attributes, outputs in cases():
            if not fnmatch.fnmatch(name, given.only):
                continue
            model = model_of(op, inputs, attributes, outputs)
            file = place / f"{name}.onnx"
            onnx.save(model, file)
            feed = [a for a in inputs if a is not None]
            s = session(str(file))
            expected = s.run(None, {i.name: a for i, a in zip(s.get_inputs(), feed)})
            fine, said = check(given.squall, place, file, feed, expected)
            bad += not fine
            print(f"{'right' if fine else 'BAD  '} {name}: {said}", flush=True)
        for model in given.models:
            for level in ("ORT_ENABLE_EXTENDED", "ORT_ENABLE_BASIC"):
                file = place / "written.onnx"
                s = session(str(model), getattr(ort.GraphOptimizationLevel, level), file)
                feed = list(random_feed(s))
                expected = s.run(None, {i.name: a for i, a in zip(s.get_inputs(), feed)})
                ops = {n.op_type for n in onnx.load(file, load_external_data=False).graph.node if n.domain}
                fine, said = check(given.squall, place, file, feed, expected)
                bad += not fine
                print(f"{'right' if fine else 'BAD  '} {model.name} {level} {sorted(ops)}: {said}")
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
