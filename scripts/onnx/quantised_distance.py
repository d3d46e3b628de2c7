#!/usr/bin/env python3
"""How far quantised networks are from the literal graph: onnxruntime with every optimisation off.

    python3 scripts/onnx/quantised_distance.py target/release/squall MODEL.onnx [more.onnx ...]

Needs numpy, onnx and onnxruntime; openvino is asked where it is installed. For each model the largest
difference of the first output over its largest value, of Squall, of onnxruntime as it is and of
OpenVINO, for --inputs random inputs (the largest of all is printed). The exit code is 1 where Squall
is farther than each of the others by more than --slack times.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnxruntime as ort

OFF = ort.GraphOptimizationLevel.ORT_DISABLE_ALL


def session(model, level=None):
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    if level is not None:
        options.graph_optimization_level = level
    return ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])


def squall(program, model, names, feed, folder):
    command = [program, "run", model, "--threads", "1", "--output", folder / "y.npy"]
    for name, array in zip(names, feed):
        np.save(folder / f"{name.replace('/', '_')}.npy", array)
        place = folder / f"{name.replace('/', '_')}.npy"
        command += ["--input", place if len(names) == 1 else f"{name}={place}"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError((done.stderr.splitlines() or ["no answer"])[0][:150])
    return np.load(folder / "y.npy")


def openvino(model):
    """A function that runs a model; none where OpenVINO is not there or refuses it."""
    try:
        import openvino as ov

        compiled = ov.Core().compile_model(str(model), "CPU", {"INFERENCE_NUM_THREADS": 1})
        return lambda feed: compiled(feed)[0]
    except Exception:
        return None


def distance(got, want):
    return float(np.max(np.abs(got - want)) / max(1e-30, float(np.max(np.abs(want)))))


def rows(given, model, folder):
    """The distances of one model, by who ran it."""
    random = np.random.default_rng(5)
    literal, optimised, peer = session(model, OFF), session(model), openvino(model)
    inputs = literal.get_inputs()
    names = [i.name for i in inputs]
    far = {}
    for _ in range(given.inputs):
        shapes = [[e if isinstance(e, int) else 1 for e in i.shape] for i in inputs]
        feed = [random.uniform(-1, 1, shape).astype("float32") for shape in shapes]
        by_name = dict(zip(names, feed))
        want = literal.run(None, by_name)[0]
        answers = {
            "squall": squall(given.squall, model, names, feed, folder),
            "onnxruntime": optimised.run(None, by_name)[0],
        }
        if peer:
            answers["openvino"] = peer(feed)
        for who, got in answers.items():
            far[who] = max(far.get(who, 0.0), distance(got.reshape(want.shape), want))
    return far


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("squall")
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--inputs", type=int, default=1, help="random inputs of each model [1]")
    parser.add_argument("--slack", type=float, default=1.0, help="times the farther library [1]")
    given = parser.parse_args()
    bad = 0
    print(f"{'model':34} {'squall':>10} {'onnxruntime':>12} {'openvino':>10}")
    for model in given.models:
        with tempfile.TemporaryDirectory() as folder:
            try:
                far = rows(given, model, Path(folder))
            except Exception as e:
                print(f"{model.name:34} {str(e)[:90]}")
                bad += 1
                continue
        others = [v for who, v in far.items() if who != "squall"]
        bad += far["squall"] > given.slack * max(others) + 1e-6
        cells = [f"{far[w]:.4f}" if w in far else "-" for w in ("squall", "onnxruntime", "openvino")]
        print(f"{model.name:34} {cells[0]:>10} {cells[1]:>12} {cells[2]:>10}", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
