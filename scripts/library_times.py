#!/usr/bin/env python3
"""Times exported networks: opening, a run beside `squall bench`, and a run through ONNX Runtime.

    python3 library_times.py SQUALL MODEL.onnx .. [--seconds S] [--store FILE]

SQUALL is the binary; a release build. Rounds of all three alternate, and each is represented by its
median round's best time, so that a moment when the machine is busy hurts all. Prints a line a model:
ms to open, ms of bench, ratio of the library, ratio through ONNX Runtime (`-` without it), and
whether the output is that of `squall run`, bit by bit. Needs numpy; ONNX Runtime is optional."""

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROUNDS = 7
TYPES = {"float32": np.float32, "float64": np.float64, "int64": np.int64, "int32": np.int32,
         "int8": np.int8, "uint8": np.uint8, "bool": np.bool_}


def call(*words, cwd=None):
    done = subprocess.run([str(w) for w in words], cwd=cwd, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, words))}: {done.stderr}")
    return done.stdout


def arrays(ports):
    random = np.random.default_rng(0)
    for p in ports:
        kind = TYPES[p["type"]]
        if np.issubdtype(kind, np.floating):
            yield random.standard_normal(p["shape"]).astype(kind)
        else:
            yield random.integers(0, 2, p["shape"]).astype(kind)


def session_of(folder, name):
    try:
        import onnxruntime
    except ImportError:
        return None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.register_custom_ops_library(str(folder / f"lib{name}_ort.so"))
    return onnxruntime.InferenceSession(
        str(folder / f"{name}_ort.onnx"), options, providers=["CPUExecutionProvider"])


def through(session, feeds, seconds):
    best, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        begin = time.perf_counter()
        session.run(None, feeds)
        best = min(best, time.perf_counter() - begin)
    return 1e3 * best


def measure(squall, model, seconds, store):
    with tempfile.TemporaryDirectory() as place:
        folder, keep = Path(place) / "lib", Path(place) / "keep"
        more = ["--store", store] if store else []
        facts = json.loads(call(squall, "export", model, "--network", "net", "--out", folder,
                                "--ort", "--build", "--json", *more))
        inputs = list(arrays(facts["inputs"]))
        files, given = [], []
        for i, x in enumerate(inputs):
            files.append(folder / f"in_{i}.bin")
            x.tofile(files[-1])
            np.save(folder / f"in_{i}.npy", x)
            several = len(inputs) > 1
            named = f"{facts['inputs'][i]['name']}=" if several else ""
            given += ["--input", f"{named}{folder / f'in_{i}.npy'}"]
        out = ["--output", folder / "y.npy"]
        call(squall, "run", model, *given, *out, "--keep", keep, *more)
        call(folder / "example", *files, cwd=folder)
        kind = TYPES[facts["outputs"][0]["type"]]
        ours = np.fromfile(folder / "output_0.bin", kind)
        equal = np.array_equal(ours.view(np.uint8), np.load(folder / "y.npy").ravel().view(np.uint8))
        session = session_of(folder, "net")
        feeds = {p["name"]: x for p, x in zip(facts["inputs"], inputs)}
        bench, library, operator, opened = [], [], [], []
        runs = 3
        for _ in range(ROUNDS):
            said = call(keep / "network", seconds, cwd=keep)
            bench.append(int(re.search(r"inferences \d+ (\d+)", said)[1]) / 1e6)
            runs = max(3, int(1e3 * seconds / bench[-1]))
            said = call(folder / "example", "--runs", runs, *files, cwd=folder)
            opened.append(float(re.search(r"opened in ([\d.]+)", said)[1]))
            library.append(float(re.search(r"best ([\d.]+)", said)[1]))
            if session:
                operator.append(through(session, feeds, seconds))
        ratio = statistics.median(a / b for a, b in zip(library, bench))
        ort = "-"
        if session:
            ort = f"{statistics.median(a / b for a, b in zip(operator, bench)):.3f}"
        print(f"{Path(model).stem:20} open {max(opened):6.2f} ms  bench {min(bench):8.3f} ms  "
              f"library {ratio:.3f}  onnxruntime {ort}  {'equal' if equal else 'DIFFERENT'}",
              flush=True)
        return equal


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("squall", type=Path)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--store")
    a = parser.parse_args()
    squall = a.squall.resolve()
    fine = [measure(squall, model, a.seconds, a.store) for model in a.models]
    sys.exit(0 if all(fine) else 1)


if __name__ == "__main__":
    main()
