#!/usr/bin/env python3
"""A library over a range of extents beside ONNX Runtime: right at every length, and how fast.

  python scripts/varying_check.py LIBRARY_FOLDER MODEL.onnx --symbol seq [--lengths 32] [--seed 0] [--time] [--out FILE]

LIBRARY_FOLDER is what `squall export --network NAME --dim SYMBOL=LEAST..MOST --build` wrote. Lengths are drawn evenly by
logarithm; the least and the largest are always among them. The memory around outputs and the workspace is checked, and the
workspace is filled with NaNs before each run. --time measures both sides in turns, ours also at the first call of a length.
"""
import argparse
import ctypes
import glob
import json
import math
import os
import random
import statistics
import time

import numpy as np

TYPES = {"float32": np.float32, "float64": np.float64, "int64": np.int64, "int32": np.int32, "bool": np.bool_, "uint8": np.uint8}
GUARD = 4096


class Network:
    """The library by its C interface."""

    def __init__(self, folder):
        self.path = glob.glob(os.path.join(folder, "lib*.so")) + glob.glob(os.path.join(folder, "build", "lib*.so"))
        self.name = os.path.basename(self.path[0])[3:-3]
        self.lib = ctypes.CDLL(os.path.abspath(self.path[0]))
        f = lambda n: getattr(self.lib, f"{self.name}_{n}")
        f("describe").restype = ctypes.c_char_p
        self.facts = json.loads(f("describe")())
        f("workspace_bytes").restype = ctypes.c_size_t
        f("workspace_bytes").argtypes = [ctypes.c_void_p]
        f("run").argtypes = [ctypes.c_void_p] * 3
        self.model = ctypes.c_void_p()
        weights = os.path.join(folder, self.facts["weights"]["file"]).encode()
        code = f("open")(ctypes.byref(self.model), weights)
        assert code == 0, f"open: {code}"
        self.run_ = f("run")
        size = f("workspace_bytes")(self.model)
        self.memory = np.full(size + 64 + GUARD, 0xFF, np.uint8)
        at = (-self.memory.ctypes.data) % 64
        self.workspace = self.memory[at : at + size]
        self.fence = self.memory[at + size :]

    def shapes(self, tensors, n):
        return [[value(a, n) for a in t["axes"]] for t in tensors]

    def run(self, arrays, n, poison=True):
        outs = []
        if poison:
            self.memory[:] = 0xFF
        for t, shape in zip(self.facts["outputs"], self.shapes(self.facts["outputs"], n)):
            d = np.dtype(TYPES[t["type"]])
            raw = np.full(int(np.prod(shape)) * d.itemsize + 2 * GUARD, 0xA5, np.uint8)
            outs.append((raw, shape, d))
        extents = (ctypes.c_int64 * 1)(n)
        pointers = [a.ctypes.data for a in arrays] + [r.ctypes.data + GUARD for r, _, _ in outs] + [ctypes.addressof(extents), 0]
        io = (ctypes.c_uint64 * (len(pointers) + 1))((len(pointers) + 1) * 8, *pointers)
        code = self.run_(self.model, ctypes.addressof(io), self.workspace.ctypes.data)
        assert code == 0, f"run at {n}: {code}"
        for raw, shape, d in outs:
            assert (raw[:GUARD] == 0xA5).all() and (raw[-GUARD:] == 0xA5).all(), f"written outside at {n}"
        assert not poison or (self.fence == 0xFF).all(), f"written behind the workspace at {n}"
        return [r[GUARD:-GUARD].view(d).reshape(s) for r, s, d in outs]


def value(formula, n):
    """The value of a formula in postfix order."""
    stack = []
    for w in formula.split():
        if w in "+-*/<":
            b, a = stack.pop(), stack.pop()
            stack.append({"+": a + b, "-": a - b, "*": a * b, "/": a // b if b else 0, "<": int(a < b)}[w])
        else:
            stack.append(n if w == "s0" else int(w))
    return stack[0]


def best(call, seconds=0.3):
    times, end = [], time.perf_counter() + seconds
    while not times or time.perf_counter() < end:
        t = time.perf_counter()
        call()
        times.append(time.perf_counter() - t)
    return 1e3 * min(times)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("folder")
    p.add_argument("model")
    p.add_argument("--lengths", type=int, default=32)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--all", action="store_true", help="every length")
    p.add_argument("--time", action="store_true")
    p.add_argument("--tolerance", type=float, default=2e-3)
    p.add_argument("--out")
    a = p.parse_args()
    import onnxruntime

    net = Network(a.folder)
    s = net.facts["symbols"][0]
    step = s["multiple"]
    low, high = -(-s["least"] // step), s["most"] // step
    rng = random.Random(a.seed)
    lengths = {low, min(low + 1, high), high}
    while len(lengths) < min(a.lengths, high - low + 1):
        lengths.add(round(math.exp(rng.uniform(math.log(low), math.log(high)))))
    if a.all:
        lengths = set(range(low, high + 1))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = net.facts["threads"]
    session = onnxruntime.InferenceSession(a.model, options, providers=["CPUExecutionProvider"])
    draw = np.random.default_rng(a.seed)
    rows, worst = {}, 0.0
    for n in sorted(x * step for x in lengths):
        arrays = []
        for t, shape in zip(net.facts["inputs"], net.shapes(net.facts["inputs"], n)):
            d = TYPES[t["type"]]
            if np.issubdtype(d, np.floating):
                arrays.append(draw.standard_normal(shape).astype(d))
            elif "mask" in t["name"]:
                arrays.append(np.ones(shape, d))
            else:
                arrays.append(draw.integers(0, 2, shape).astype(d))
        feed = {t["name"]: x for t, x in zip(net.facts["inputs"], arrays)}
        t0 = time.perf_counter()
        ours = net.run(arrays, n)
        first = 1e3 * (time.perf_counter() - t0)
        again = net.run(arrays, n)
        theirs = session.run([t["name"] for t in net.facts["outputs"]], feed)
        for x, y, z in zip(ours, theirs, again):
            assert x.shape == y.shape, (n, x.shape, y.shape)
            assert np.array_equal(x, z), f"two runs differ at {n}"
            error = 0.0
            if x.size:
                error = float(np.max(np.abs(x.astype(np.float64) - y)) / (1e-30 + np.max(np.abs(y))))
            worst = max(worst, error)
            if a.all:
                print(f"{n}: {error:.2g}", flush=True)
            assert error < a.tolerance, f"at {n}: differs by {error}"
        if a.time:
            mine, other = [], []
            for _ in range(3):
                mine.append(best(lambda: net.run(arrays, n, False)))
                other.append(best(lambda: session.run(None, feed)))
            rows[n] = {"first_ms": first, "ms": min(mine), "onnxruntime_ms": min(other), "ratio": min(other) / min(mine)}
            print(n, {k: round(v, 3) for k, v in rows[n].items()}, flush=True)
    print(f"{len(lengths)} lengths agree, the largest difference is {worst:.2e}")
    if rows:
        ratios = [r["ratio"] for r in rows.values()]
        mean = statistics.geometric_mean(ratios)
        longest = ratios[-max(1, len(ratios) // 3) :]
        print(f"of onnxruntime: mean {mean:.3f}, longest third {statistics.geometric_mean(longest):.3f}, least {min(ratios):.3f}")
    if a.out:
        json.dump({"model": os.path.basename(a.model), "symbol": s, "threads": net.facts["threads"], "lengths": rows}, open(a.out, "w"), indent=1)


if __name__ == "__main__":
    main()
