#!/usr/bin/env python3
"""Time to the first result of a model: `squall run` with an empty cache and with a full one, beside
a session of onnxruntime, each in a new process.

    python3 scripts/first_results.py target/release/squall MODEL.onnx .. --out times.json

Models whose weights lie in no file are filled by `../shared/peers/networks.py`, where that is
there. A time is that of the whole process, from its start to its end: it reads the model, compiles
or prepares its kernels, runs once on the same input and writes or drops the output. Both sides may
use all cores; the kernels of both run by one thread, or by as many as --threads says. The output of
each side is compared with the other's before a time counts. Needs numpy, onnx and onnxruntime.
"""

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx

PEERS = Path(__file__).resolve().parents[2] / "shared" / "peers"
SESSION = """
import sys, numpy as np, onnxruntime as ort
options = ort.SessionOptions()
options.intra_op_num_threads, options.log_severity_level = int(sys.argv[4]), 3
session = ort.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
arrays = np.load(sys.argv[2])
results = session.run(None, {i.name: arrays[i.name] for i in session.get_inputs()})
if sys.argv[3]:
    np.save(sys.argv[3], results[0])
"""


def complete(path, folder):
    """The model with its weights, and arrays for its inputs."""
    model = onnx.load(path, load_external_data=False)
    if any(t.data_location == onnx.TensorProto.EXTERNAL for t in model.graph.initializer):
        sys.path.insert(0, str(PEERS))
        spec = importlib.util.spec_from_file_location("networks", PEERS / "networks.py")
        networks = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(networks)
        filled = folder / Path(path).name
        networks.complete(path, str(filled))
        path, model = filled, onnx.load(filled)
    rng = np.random.default_rng(1)
    arrays = {}
    weights = {t.name for t in model.graph.initializer}
    for value in model.graph.input:
        if value.name in weights:
            continue
        tensor = value.type.tensor_type
        shape = [d.dim_value or 1 for d in tensor.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        values = rng.uniform(-1, 1, shape) if dtype.kind == "f" else rng.integers(0, 2, shape)
        arrays[value.name] = values.astype(dtype)
    return path, arrays, model.graph.output[0].name


def seconds(command, **environment):
    """How long a command takes, which must succeed."""
    start = time.perf_counter()
    all_ = {**os.environ, **environment}
    done = subprocess.run(command, env=all_, capture_output=True, text=True)
    took = time.perf_counter() - start
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]}: {done.stderr.strip()[-300:]}")
    return took


def times_of(a, path, folder):
    """The times of one model in seconds, or why there are none."""
    model, arrays, output = complete(path, folder)
    np.savez(folder / "inputs.npz", **arrays)
    given = []
    for i, (name, values) in enumerate(arrays.items()):
        np.save(folder / f"{i}.npy", values)
        given += ["--input", f"{name}={folder}/{i}.npy"]
    theirs, ours = str(folder / "theirs.npy"), str(folder / "ours.npy")
    threads = str(a.threads)
    inputs = str(folder / "inputs.npz")
    session = [sys.executable, "-c", SESSION, str(model), inputs, theirs, threads]
    run = [a.squall, "run", str(model), *given, "--threads", threads]
    run += ["--output", f"{output}={ours}"]
    cache = {"XDG_CACHE_HOME": str(folder / "cache")}
    row = {"onnxruntime": [], "empty": [], "cached": []}
    for _ in range(a.rounds):
        subprocess.run(["rm", "-rf", str(folder / "cache")], check=True)
        row["empty"].append(seconds(run, **cache))
        for _ in range(2):
            row["onnxruntime"].append(seconds(session))
            row["cached"].append(seconds(run, **cache))
    want, got = np.load(theirs), np.load(ours)
    differs = float(np.abs(want - got).max() / max(1e-6, np.abs(want).max()))
    if not differs < 1e-3:
        raise RuntimeError(f"outputs differ by {differs:.2g} of the largest element")
    return {name: round(statistics.median(list_), 3) for name, list_ in row.items()}


def main():
    form = argparse.RawDescriptionHelpFormatter
    p = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    p.add_argument("squall", help="the program")
    p.add_argument("models", nargs="+", metavar="MODEL", help="ONNX files")
    p.add_argument("--threads", type=int, default=1, help="threads of a kernel [default: 1]")
    p.add_argument("--rounds", type=int, default=1, help="empty caches a model [default: 1]")
    p.add_argument("--out", help="JSON of all times, written behind each model")
    a = p.parse_args()
    a.squall = str(Path(a.squall).resolve())
    rows = {}
    print(f"{'model':24}{'empty':>9}{'cached':>9}{'onnxruntime':>13}  cached over onnxruntime's")
    for path in a.models:
        name = Path(path).stem
        with tempfile.TemporaryDirectory() as folder:
            try:
                row = times_of(a, path, Path(folder))
                share = row["cached"] / row["onnxruntime"]
                columns = f"{row['empty']:9.2f}{row['cached']:9.2f}{row['onnxruntime']:13.2f}"
                print(f"{name:24}{columns}{share:8.2f}", flush=True)
            except (RuntimeError, OSError, ValueError) as e:
                row = {"error": str(e)}
                print(f"{name:24}  {e}", flush=True)
        rows[name] = row
        if a.out:
            Path(a.out).write_text(json.dumps(rows, indent=1) + "\n")
    return int(any("error" in r for r in rows.values()))


if __name__ == "__main__":
    sys.exit(main())
