#!/usr/bin/env python3
"""79 single operators at the sizes of real models on a CUDA GPU: Squall beside PyTorch, eager and
compiled, in one call.

    gpu_operators.py make FOLDER [--squall PATH] [--peers PATH/operators.py]
    gpu_operators.py check [--only A,B]
    gpu_operators.py run FOLDER --squall PATH --out r.json [--only A,B] [--part I/N] [--budget S]
    gpu_operators.py table r1.json [r2.json ..]

make   writes one small folder with all files that `run` needs: this script with its two modules,
       the shared list of operators, digests of its arrays and, where it is named, the binary.
       Models and arrays, 423 MiB, are made again from the list's seed on the machine with the GPU,
       which needs numpy, onnx, PyTorch and, for three operators, torchvision.
check  compares PyTorch's formulas with onnxruntime on this machine's CPU at the real sizes.
run    times each operator: PyTorch eager and compiled, each captured in a CUDA graph, and
       `squall bench --target cuda --json`, whose `median_ns` is the same for Squall: the device
       time of one of many replays between two events, without copies from the host. Compilers
       run ahead of all timing, in several processes; while something is timed, nothing else runs.
       The results are compared with PyTorch's in 64-bit floats. The file is written after each
       operator, and a file that is there is gone on with.
table  prints the table of one or several such files.

`ratio` is PyTorch's time over Squall's, above 1 where Squall is faster; times are medians over
windows of replays. PyTorch's is the least of its ways, each replayed from Python as fast as that
can, and again from a queue that was filled while the GPU waited, so that Python costs nothing.
"""

import argparse
import hashlib
import importlib.util
import json
import math
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time
import types
from pathlib import Path

import numpy as np
from torch_times import built, constants_of, distance, read_case, warm, worker

HERE = Path(__file__).resolve().parent
LIST = "operators.py"
OWN = ("gpu_operators.py", "torch_operators.py", "torch_times.py")
# Ratios that the project has set itself.
WANTED, LEAST = 1.2, 0.7
# How long PyTorch may take for one operator, with all ways and their compilation.
PATIENCE_S = 120


# ---- the list of operators -----------------------------------------------------------------------


def peers_list(named):
    """The path of the shared list of operators: the named one, the one beside this script, or the
    one in a folder `shared/` beside the checkout (for a worktree: beside its main checkout)."""
    places = [Path(named)] if named else [HERE / LIST]
    if not named:
        for above in HERE.parents:
            places.append(above / "shared" / "peers" / LIST)
    return next((p for p in places if p.exists()), None)


def load_list(path):
    """The list as a module. It imports onnxruntime, which only its own timing needs."""
    try:
        import onnxruntime  # noqa: F401
    except ImportError:
        sys.modules["onnxruntime"] = types.ModuleType("onnxruntime")
    spec = importlib.util.spec_from_file_location("operators", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def digest(model, given):
    """Of all arrays of a case, with their shapes and types."""
    d = hashlib.sha256()
    for a in [*given.values(), *(c for c in constants_of(model) if c is not None)]:
        d.update(f"{a.dtype.str}{a.shape}".encode() + np.ascontiguousarray(a).tobytes())
    return d.hexdigest()[:16]


def selected(names, only, part):
    """The operators that are asked for: by name, or every N-th from the I-th."""
    unknown = sorted(set(only or []) - set(names))
    if unknown:
        sys.exit(f"no operator is called {', '.join(unknown)}")
    chosen = [n for n in names if not only or n in only]
    if part:
        i, n = (int(p) for p in part.split("/"))
        chosen = chosen[i - 1 :: n]
    return chosen


# ---- make ----------------------------------------------------------------------------------------


def make(a):
    path = peers_list(a.peers)
    if path is None:
        print("skipped: shared/peers/operators.py is not there, and without it there is no list")
        return
    folder = Path(a.folder)
    folder.mkdir(parents=True, exist_ok=True)
    cases, bytes_made = {}, 0
    for name, (model, given) in load_list(path).cases():
        cases[name] = {
            "operator": model.graph.node[0].op_type,
            "inputs": {n: [x.dtype.name, list(x.shape)] for n, x in given.items()},
            "digest": digest(model, given),
        }
        bytes_made += model.ByteSize() + sum(x.nbytes for x in given.values())
    (folder / "list.json").write_text(json.dumps(cases, indent=1) + "\n")
    files = [(path, LIST), *((HERE / name, name) for name in OWN)]
    if a.squall:
        files.append((Path(a.squall), "squall"))
    for source, name in files:
        if source.resolve() != (folder / name).resolve():
            shutil.copy(source, folder / name)
            (folder / name).chmod(0o755)
    size = sum(p.stat().st_size for p in folder.iterdir() if p.is_file())
    print(f"{len(cases)} operators, which are {bytes_made / 2**20:.0f} MiB of models and inputs")
    print(f"{folder}: {size / 2**20:.2f} MiB" + ("" if a.squall else ", without a binary"))


def write_cases(folder, names, work):
    """Writes the models and inputs of these operators, and says whose arrays are not those that
    `make` saw. All have one generator of numbers, so that all are made."""
    path = folder / LIST if (folder / LIST).exists() else peers_list(None)
    if path is None:
        sys.exit(f"{folder} has no {LIST}: make it with `make`")
    known = {}
    if (folder / "list.json").exists():
        known = json.loads((folder / "list.json").read_text())
    import onnx

    strangers = []
    for name, (model, given) in load_list(path).cases():
        if name not in names:
            continue
        (work / name).mkdir(exist_ok=True)
        onnx.save(model, work / name / "model.onnx")
        for n, x in given.items():
            np.save(work / name / f"{n}.npy", x)
        if name in known and known[name]["digest"] != digest(model, given):
            strangers.append(name)
    if strangers:
        print(f"note: other arrays than where the folder was made: {', '.join(strangers)}")


# ---- run -----------------------------------------------------------------------------------------


def same_case(work, name, y):
    """The distance of a result from the reference that PyTorch's process left."""
    inputs, _ = read_case(work, name)
    return distance(name, y, np.load(work / name / "reference.npy"), inputs)


class Worker:
    """The process that times PyTorch; started again where it died or took too long."""

    def __init__(self, command, log):
        self.command, self.log, self.process = command, log, None
        self.about, self.lines = {}, queue.Queue()

    def start(self):
        options = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self.log}
        self.process = subprocess.Popen(self.command, text=True, **options)
        self.lines = queue.Queue()

        def read(stream, lines):
            for line in stream:
                lines.put(line)
            lines.put(None)

        threading.Thread(target=read, args=(self.process.stdout, self.lines), daemon=True).start()
        self.about = json.loads(self.lines.get(timeout=180) or "{}").get("about", {})
        if not self.about:
            raise OSError(f"see {self.log.name}")

    def stop(self):
        if self.process:
            self.process.kill()
            self.process.wait()
        self.process = None

    def ask(self, name, patience):
        """The rows of an operator's ways, as far as they came, an error and a note (or None)."""
        try:
            if self.process is None:
                self.start()
            self.process.stdin.write(name + "\n")
            self.process.stdin.flush()
        except (OSError, queue.Empty) as e:
            self.stop()
            # A process that never started does not start for the next operator either.
            if not self.about:
                sys.exit(f"PyTorch's process does not start: {e}")
            return {}, f"PyTorch's process does not start: {e}", None
        ways, end = {}, time.monotonic() + patience
        while True:
            try:
                line = self.lines.get(timeout=max(end - time.monotonic(), 0.01))
            except queue.Empty:
                self.stop()
                return ways, f"PyTorch took more than {patience:.0f} s", None
            if line is None:
                self.stop()
                return ways, "PyTorch's process ended", None
            said = json.loads(line)
            if said.get("end"):
                if said.get("broken"):
                    self.stop()
                return ways, said.get("error"), said.get("note")
            ways[said["way"]] = said["row"]


def compile_ahead(a, names, work, log):
    """Fills the compilers' cache by several processes at a time, for as long as is allowed."""
    began = time.monotonic()
    env = os.environ | {"TORCHINDUCTOR_COMPILE_THREADS": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, "warm", "--work", str(work), "--device", a.device]
    command += ["--modes", a.modes]
    count = min(a.workers, len(names))
    options = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log, "env": env}
    processes = [subprocess.Popen([*command, *names[i::count]], **options) for i in range(count)]
    for p in processes:
        try:
            p.wait(max(began + a.warm_seconds - time.monotonic(), 0.01))
        except subprocess.TimeoutExpired:
            # The timing process compiles the operators that are left.
            p.kill()
            p.wait()
    print(f"compiled ahead by {count} processes in {time.monotonic() - began:.0f} s", flush=True)


def finish(command, work, patience):
    """Runs a command to its end, or ends it and all processes that it started after `patience`
    seconds: a kernel that goes on would slow the operator that is timed next."""
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": work}
    process = subprocess.Popen(command, start_new_session=True, **options)
    try:
        said = process.communicate(timeout=patience)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    return process.returncode, *said


def squall_times(a, name, work):
    """Squall's row: device time of the replayed graph, its steps, the result's distance."""
    model, out = work / name / "model.onnx", work / name / "squall.npy"
    inputs = sorted((work / name).glob("x[0-9].npy"))
    arguments = []
    for p in inputs:
        arguments += ["--input", f"{p.stem}={p}" if len(inputs) > 1 else str(p)]
    more = ["--store", os.path.abspath(a.store)] if a.store else []
    target = ["--target", a.target]
    row, began = {}, time.monotonic()
    try:
        if a.tune:
            trials = ["--trials-per-task", str(a.tune)]
            command = [a.squall, "tune", str(model), *target, *trials, *more, "--json"]
            code, _, complaint = finish(command, work, a.patience)
            row["tune_s"] = round(time.monotonic() - began, 1)
            if code:
                row["tune_error"] = complaint.strip()[-300:]
        command = [a.squall, "bench", str(model), *arguments, "--output", str(out), *target]
        command += ["--seconds", str(a.squall_seconds), "--json", *more]
        code, answer, complaint = finish(command, work, a.patience)
    except subprocess.TimeoutExpired:
        return row | {"error": f"took more than {a.patience} s"}
    row["took_s"] = round(time.monotonic() - began, 1)
    if code:
        errors = [l for l in complaint.splitlines() if l.startswith("error")]
        return row | {"error": (errors[0] if errors else complaint.strip()[-300:])[:300]}
    said = json.loads([l for l in answer.splitlines() if l.startswith("{")][-1])
    device = said.get("device") or said
    row |= {"us": device["median_ns"] / 1e3, "best_us": device["best_ns"] / 1e3}
    row["steps"] = [[l["name"], l["by"], l["best_ns"] / 1e3] for l in said["layers"]]
    row["fallbacks"] = said.get("fallbacks")
    if (work / name / "reference.npy").exists():
        row["differs"], row["right"] = same_case(work, name, np.load(out))
    return row


def three_digits(x):
    """A number to three significant digits: small ratios stay above 0."""
    return float(f"{x:.3g}")


def compared(row):
    """Adds the ratio to an operator's row, or why there is none. Wrong results have none."""
    ways = {n: w for n, w in row["pytorch"].items() if w.get("right")}
    ours = row["squall"]
    if "us" not in ours:
        row["not_compared"] = f"Squall: {ours.get('error', 'no time')}"
    elif ours.get("right") is False:
        row["not_compared"] = f"Squall's result differs: {ours['differs']}"
    elif not ways:
        said = row.get("pytorch_error") or str({n: w.get("error", w.get("differs"))
                                               for n, w in row["pytorch"].items()})
        row["not_compared"] = f"PyTorch: {said}"
    else:
        least = lambda w: min(w["us"], w.get("queued_us", math.inf))
        by = min(ways, key=lambda n: least(ways[n]))
        row |= {"pytorch_us": least(ways[by]), "pytorch_by": by, "squall_us": ours["us"]}
        row["ratio"] = three_digits(row["pytorch_us"] / ours["us"])
        from_python = min(w["us"] for w in ways.values())
        row["ratio_from_python"] = three_digits(from_python / ours["us"])
        if ways[by].get("note"):
            row["not_compared"] = f"PyTorch {ways[by]['note']} ({row['ratio']} would be the ratio)"
            del row["ratio"]
    return row


def summary(rows):
    """The figures over all operators that have a ratio."""
    ratios = {n: r["ratio"] for n, r in rows.items() if "ratio" in r}
    mean = math.exp(sum(map(math.log, ratios.values())) / len(ratios)) if ratios else None
    return {
        "operators": len(rows),
        "compared": len(ratios),
        "geometric_mean": mean and round(mean, 3),
        f"below_{LEAST}": sorted(n for n, r in ratios.items() if r < LEAST),
        "below_1": sum(r < 1 for r in ratios.values()),
        "not_compared": {n: r["not_compared"] for n, r in rows.items() if "ratio" not in r},
    }


def show(rows):
    """The table, slowest beside PyTorch first."""
    head = ("operator", "PyTorch us", "by", "Squall us", "ratio", "Python's", "steps", "differs")
    shape = "{:22} {:>10} {:24} {:>10} {:>7} {:>8}  {:34} {}"
    print(shape.format(*head))
    for name, r in sorted(rows.items(), key=lambda nr: nr[1].get("ratio", math.inf)):
        if "ratio" not in r:
            continue
        ours = r["squall"]
        kinds = [by for _, by, _ in ours["steps"]]
        by = ", ".join(f"{kinds.count(k)} {k}" for k in sorted(set(kinds)))
        far = ours.get("differs")
        far = f"{far:.1e}" if isinstance(far, float) else str(far)
        us = [f"{r['pytorch_us']:.2f}", r["pytorch_by"], f"{ours['us']:.2f}"]
        ratios = [f"{r['ratio']:.2f}", f"{r['ratio_from_python']:.2f}"]
        print(shape.format(name, *us, *ratios, by, far))
    s = summary(rows)
    for name, why in s["not_compared"].items():
        print(f"not compared: {name}: {why}")
    for name, r in rows.items():
        if "ratio" in r and r.get("pytorch_error"):
            print(f"not all of PyTorch's ways: {name}: {r['pytorch_error']}")
        for way, w in r["pytorch"].items():
            if not w.get("right"):
                print(f"left out: {name}, {way}: {w.get('error', w.get('differs'))}")
    if s["compared"]:
        low = s[f"below_{LEAST}"]
        print(f"geometric mean {s['geometric_mean']} over {s['compared']} of {s['operators']} "
              f"(wanted {WANTED}); below 1: {s['below_1']}; below {LEAST}: {len(low)} {low}")


def run(a):
    began = time.monotonic()
    folder, work = Path(a.folder).resolve(), Path(a.work).resolve()
    work.mkdir(parents=True, exist_ok=True)
    if a.squall:
        a.squall = str(Path(a.squall).resolve())
        if not os.access(a.squall, os.X_OK):
            Path(a.squall).chmod(0o755)
        said = subprocess.run([a.squall, "--version"], capture_output=True, text=True)
        if said.returncode:
            sys.exit(f"{a.squall} does not run here: {said.stderr.strip()}")
    if a.tune and not a.store:
        a.store = str(work / "tuned.squall")
    from torch_operators import WAYS

    names = selected(list(WAYS), a.only, a.part)
    out = Path(a.out)
    result = json.loads(out.read_text()) if out.exists() else {"rows": {}}
    rows = result["rows"]
    result["squall"] = said.stdout.strip() if a.squall else None
    names = [n for n in names if n not in rows]
    write_cases(folder, names, work)
    # Compilers keep their programs here, for this call's processes alone.
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(work / "inductor")
    print(f"{len(names)} operators are written after {time.monotonic() - began:.0f} s", flush=True)
    with open(work / "pytorch.log", "a") as log:
        if "default" in a.modes.split(",") and a.workers and names:
            compile_ahead(a, names, work, log)
        command = [sys.executable, __file__, "worker", "--work", str(work), "--modes", a.modes]
        command += ["--device", a.device, "--seconds", str(a.seconds)]
        peer = Worker(command, log)
        for i, name in enumerate(names):
            if time.monotonic() - began > a.budget:
                print(f"the time is up: {len(names) - i} operators are left, {names[i]} first")
                break
            row = {}
            row["pytorch"], error, note = peer.ask(name, a.patience)
            row |= {k: v for k, v in (("pytorch_error", error), ("note", note)) if v}
            try:
                row["squall"] = squall_times(a, name, work) if a.squall else {"error": "not asked"}
            except Exception as e:  # the other operators go on
                row["squall"] = {"error": f"{type(e).__name__}: {e}"[:300]}
            rows[name] = compared(row)
            result |= peer.about
            result["what"] = "single operators on a GPU, PyTorch's over Squall's device time"
            result["arguments"] = " ".join(sys.argv[1:])
            result["summary"] = summary(rows)
            shutil.rmtree(work / name)
            partial = out.with_name(out.name + ".part")
            partial.write_text(json.dumps(result, indent=1) + "\n")
            partial.replace(out)
            said = row.get("ratio", row.get("not_compared"))
            print(f"{time.monotonic() - began:4.0f} s  {name}: {said}", flush=True)
        peer.stop()
    show(rows)


# ---- check ---------------------------------------------------------------------------------------


def check(a):
    """Every way of PyTorch, on the CPU, beside onnxruntime."""
    import onnxruntime
    import torch
    from torch_operators import WAYS, reference

    path = peers_list(None)
    if path is None:
        print("skipped: shared/peers/operators.py is not there, and without it there is no list")
        return
    wrong = 0
    for name, (model, given) in load_list(path).cases():
        if a.only and name not in a.only:
            continue
        inputs, constants = list(given.values()), constants_of(model)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        try:
            session = onnxruntime.InferenceSession(model.SerializeToString(), options)
            want = session.run(None, given)[0]
        except Exception:  # operators that onnxruntime lacks, the evaluator of onnx has
            from onnx.reference import ReferenceEvaluator

            want = ReferenceEvaluator(model).run(None, given)[0]
        with torch.inference_mode():
            ys = {"64 bits": reference(name, inputs, constants, "cpu")}
            for variant in WAYS[name]:
                fn, arguments = built(name, variant, False, (inputs, constants), "cpu")
                ys[variant or "eager"] = fn(*arguments).numpy()
        said = []
        for way, y in ys.items():
            far, is_right = distance(name, y, want, inputs)
            wrong += not is_right
            same = way == "64 bits" or y.dtype == want.dtype
            wrong += not same
            said.append(f"{way} {far}{'' if is_right else ' WRONG'}{'' if same else y.dtype}")
        print(f"{name}: {', '.join(said)}", flush=True)
    print(f"{wrong} wrong")
    sys.exit(wrong > 0)


def main():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verbs = p.add_subparsers(dest="verb", required=True)
    names = lambda text: text.split(",")
    m = verbs.add_parser("make")
    m.add_argument("folder")
    m.add_argument("--squall", help="the release build to put in as `squall`")
    m.add_argument("--peers", help="the list, where it is not in shared/peers")
    c = verbs.add_parser("check")
    c.add_argument("--only", type=names)
    r = verbs.add_parser("run")
    r.add_argument("folder")
    r.add_argument("--squall", help="the binary; without it PyTorch alone is timed")
    r.add_argument("--out", required=True)
    r.add_argument("--only", type=names, help="operators, with commas between them")
    r.add_argument("--part", metavar="I/N", help="every N-th operator from the I-th")
    r.add_argument("--budget", type=float, default=520, help="seconds; none begins after them")
    r.add_argument("--patience", type=float, default=PATIENCE_S, help="seconds for an operator")
    r.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 2),
                   help="processes that compile ahead; 0 for none")
    r.add_argument("--warm-seconds", type=float, default=150, help="at most, for these")
    r.add_argument("--squall-seconds", type=float, default=0.4)
    r.add_argument("--store", help="Squall's, of kernels that were tuned")
    r.add_argument("--tune", type=int, metavar="TRIALS", help="for each kernel; untuned without it")
    r.add_argument("--target", default="cuda", help="Squall's")
    t = verbs.add_parser("table")
    t.add_argument("files", nargs="+")
    w = verbs.add_parser("warm")
    w.add_argument("names", nargs="+")
    k = verbs.add_parser("worker")
    for sub in (r, w, k):
        sub.add_argument("--work", default="/tmp/gpu_operators")
        sub.add_argument("--device", default="cuda", help="PyTorch's; cpu tries the script itself")
        sub.add_argument("--modes", default="default",
                         help="of torch.compile, with commas between them; empty for none")
        sub.add_argument("--seconds", type=float, default=0.2, help="of windows, for each way")
    a = p.parse_args()
    if a.verb == "table":
        rows = {}
        for f in a.files:
            rows |= json.loads(Path(f).read_text())["rows"]
        show(rows)
    else:
        {"make": make, "check": check, "run": run, "warm": warm, "worker": worker}[a.verb](a)


if __name__ == "__main__":
    main()
