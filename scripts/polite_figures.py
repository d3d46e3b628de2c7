#!/usr/bin/env python3
"""What a user meets who tunes nothing: advice, an idle machine's work, and what a load feels of it. Standard library.

    polite_figures.py SQUALL OUT.json --advice                       answers and their kernels' times, beside tuned ones
    polite_figures.py SQUALL OUT.json --load                         a worker's CPU time and a program's latencies beside it
    polite_figures.py SQUALL OUT.json --idle MODEL.onnx [--minutes 10]   a network after idle minutes, beside as long a tune

Each part is added to OUT.json. Nothing else should run on the machine; --idle takes twice the minutes."""
import argparse
import ctypes
import json
import os
import signal
import statistics
import subprocess
import tempfile
import time

# ResNet-18's convolutions.
LAYERS = [(3, 224, 64, 7, 2, 3), (64, 56, 64, 3, 1, 1), (64, 56, 128, 3, 2, 1), (64, 56, 128, 1, 2, 0), (128, 28, 128, 3, 1, 1)]
LAYERS += [(128, 28, 256, 3, 2, 1), (128, 28, 256, 1, 2, 0), (256, 14, 256, 3, 1, 1), (256, 14, 512, 3, 2, 1), (256, 14, 512, 1, 2, 0)]
LAYERS += [(512, 7, 512, 3, 1, 1)]


def line(layer):
    c, h, k, r, stride, pad = layer
    return f"conv2d n=1 c={c} h={h} w={h} k={k} r={r} s={r} stride={stride} pad={pad}"


def said(command):
    """The JSON object of a command's last line."""
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return json.loads(out.strip().splitlines()[-1])


class Kernel:
    """A kernel of an answer, compiled as trials are, on memory of its own."""

    def __init__(self, layer, answer, toolchain, folder):
        name = os.path.join(folder, f"{answer['symbol']}-{answer['source']}")
        with open(name + ".c", "w") as f:
            f.write(answer["kernel"])
        flags = [w for w in toolchain.split() if w.startswith("-")]
        subprocess.run(["gcc", *flags, "-shared", "-fPIC", "-w", "-o", name + ".so", name + ".c", "-lm"], check=True)
        library = ctypes.CDLL(name + ".so")
        c, h, k, r, stride, pad = layer
        out = (h + 2 * pad - r) // stride + 1

        def memory(elements):
            raw = ctypes.create_string_buffer(elements * 4 + 4096)
            at = (ctypes.addressof(raw) + 4095) // 4096 * 4096
            return raw, ctypes.c_void_p(at)

        def filled(elements):
            raw, at = memory(elements)
            values = (ctypes.c_float * elements).from_address(at.value)
            for i in range(elements):
                values[i] = ((i * 7919) % 1009) / 1009 - 0.5
            return raw, at

        def bytes_of(what):
            try:
                f = getattr(library, f"{answer['symbol']}_{what}_bytes")
            except AttributeError:
                return 0
            f.restype = ctypes.c_size_t
            return f()

        (self.x, x), (self.w, w), (self.y, y) = filled(c * h * h), filled(k * c * r * r), memory(k * out * out)
        (self.p, prepared), (self.s, work) = memory(bytes_of("prepared") // 4 + 1), memory(bytes_of("workspace") // 4 + 1)
        is_prepared = bytes_of("prepared") > 0
        if is_prepared:
            getattr(library, answer["symbol"] + "_prepare")((ctypes.c_void_p * 1)(w), prepared)
        # Weights that are not packed come behind the data.
        data = (ctypes.c_void_p * 2)(x, w)
        call, outputs = getattr(library, answer["symbol"]), (ctypes.c_void_p * 1)(y)
        self.call = lambda: call(data, outputs, w if not is_prepared else prepared, work)
        self.weights = (data, outputs, w)

    def best_ns(self, seconds=0.15):
        self.call()
        best, end = float("inf"), time.perf_counter() + seconds
        while time.perf_counter() < end:
            t = time.perf_counter_ns()
            self.call()
            best = min(best, time.perf_counter_ns() - t)
        return best


def advice(squall, folder, trials=64):
    """Each layer's answer on a store that knows nothing, and the time of its kernel over that of the tuned one, in turns."""
    rows = []
    for i, layer in enumerate(LAYERS):
        ask = lambda store: said([squall, "advise", line(layer), "--store", store, "--json"])
        answers = [ask(f"{folder}/none-{i}.squall") for _ in range(5)]
        first, store = answers[0]["tasks"][0], f"{folder}/advice-{i}.squall"
        said([squall, "tune", line(layer), "--trials", str(trials), "--store", store, "--json"])
        tuned = ask(store)
        both = [Kernel(layer, a["tasks"][0], a["toolchain"], folder) for a in (answers[0], tuned)]
        times = [[k.best_ns() for k in both] for _ in range(5)]
        best = [min(t[j] for t in times) for j in range(2)]
        ms = statistics.median(a["tasks"][0]["seconds"] for a in answers) * 1e3
        rows.append({"layer": line(layer), "source": first["source"], "answer_ms": round(ms, 2), "advised_ns": best[0], "tuned_ns": best[1]})
        rows[-1]["over_tuned"] = round(best[0] / best[1], 3)
        print(rows[-1], flush=True)
    median = lambda key: statistics.median(r[key] for r in rows)
    return {"trials": trials, "rows": rows, "median_answer_ms": median("answer_ms"), "median_over_tuned": median("over_tuned")}


def descendants(pid):
    """A process and all that it began."""
    parents = {}
    for p in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{p}/stat") as f:
                parents.setdefault(int(f.read().rsplit(")", 1)[1].split()[1]), []).append(int(p))
        except OSError:
            pass
    found, todo = [], [pid]
    while todo:
        found.append(todo.pop())
        todo += parents.get(found[-1], [])
    return found


def cpu_seconds(pids):
    total = 0
    for p in pids:
        try:
            with open(f"/proc/{p}/stat") as f:
                fields = f.read().rsplit(")", 1)[1].split()
            # Its own time, and that of those it began that ended.
            total += sum(map(int, fields[11:15]))
        except OSError:
            pass
    return total / os.sysconf("SC_CLK_TCK")


def latencies(seconds):
    """A program of requests: some 7 ms of work in every 10, which is more than `--busy` is; when each began, and how long it
    took."""
    data, found, end = list(range(120000)), [], time.perf_counter() + seconds
    while time.perf_counter() < end:
        t = time.perf_counter()
        sum(x * x for x in data)
        found.append((t, time.perf_counter() - t))
        time.sleep(max(0.0, 0.01 - found[-1][1]))
    return found


def load(squall, folder, seconds=20, calm=20):
    """What a polite worker takes once a load is there, and what the load feels of it."""
    store = f"{folder}/load.squall"
    said([squall, "tune", line(LAYERS[1]), "--trials", "1", "--store", store, "--json"])
    lines = f"{folder}/layers.ops"
    with open(lines, "w") as f:
        f.write("\n".join(line(l) for l in LAYERS) + "\n")
    said([squall, "advise", lines, "--store", store, "--json"])
    p99 = lambda found: statistics.quantiles([d for _, d in found], n=100)[98] * 1e3
    rounds = []
    for _ in range(3):
        alone = latencies(seconds)
        worker = subprocess.Popen([squall, "worker", "--polite", "--store", store, "--trials", "100000"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(calm)
        before = cpu_seconds(descendants(worker.pid))
        child, out = os.pipe()
        program = os.fork()
        if program == 0:
            found = latencies(seconds)
            with os.fdopen(out, "w") as f:
                json.dump(found, f)
            os._exit(0)
        os.close(out)
        time.sleep(2)
        at = cpu_seconds(descendants(worker.pid))
        time.sleep(seconds - 4)
        after = cpu_seconds(descendants(worker.pid))
        with os.fdopen(child) as f:
            beside = json.load(f)
        os.waitpid(program, 0)
        worker.send_signal(signal.SIGINT)
        worker.wait()
        rounds.append({"worked_before_s": round(before, 2), "share_of_a_core_after_two_seconds": round((after - at) / (seconds - 4), 4)})
        rounds[-1].update({"p99_alone_ms": round(p99(alone), 3), "p99_beside_ms": round(p99(beside), 3)})
        print(rounds[-1], flush=True)
    ratio = statistics.median(r["p99_beside_ms"] / r["p99_alone_ms"] for r in rounds)
    return {"rounds": rounds, "median_p99_ratio": round(ratio, 3)}


def idle(squall, folder, model, minutes):
    """A network's first start on an empty store, after idle minutes with a polite worker, and after as long a tune."""
    polite, tuned = f"{folder}/polite.squall", f"{folder}/tuned.squall"
    bench = lambda store: said([squall, "bench", model, "--store", store, "--seconds", "1", "--json"])
    said([squall, "tune", "softmax rows=8 cols=64", "--trials", "1", "--store", polite, "--json"])
    t = time.perf_counter()
    first = bench(polite)
    start_s = time.perf_counter() - t
    worker = subprocess.Popen([squall, "worker", "--polite", "--store", polite], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(minutes * 60)
    worker.send_signal(signal.SIGINT)
    worker.wait()
    said([squall, "tune", model, "--seconds", str(minutes * 60), "--store", tuned, "--json"])
    turns = [(bench(polite)["best_ns"], bench(tuned)["best_ns"]) for _ in range(5)]
    ours, theirs = (min(t[i] for t in turns) for i in range(2))
    return {"model": os.path.basename(model), "minutes": minutes, "first_start_s": round(start_s, 1), "first_ns": first["best_ns"], "polite_ns": ours, "tuned_ns": theirs, "over_tuned": round(ours / theirs, 3)}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("squall")
    p.add_argument("out")
    p.add_argument("--advice", action="store_true")
    p.add_argument("--load", action="store_true")
    p.add_argument("--idle", metavar="MODEL")
    p.add_argument("--minutes", type=float, default=10)
    a = p.parse_args()
    done = json.load(open(a.out)) if os.path.exists(a.out) else {}
    with tempfile.TemporaryDirectory() as folder:
        if a.advice:
            done["advice"] = advice(a.squall, folder)
        if a.load:
            done["load"] = load(a.squall, folder)
        if a.idle:
            done["idle"] = idle(a.squall, folder, a.idle, a.minutes)
    json.dump(done, open(a.out, "w"))
    print(json.dumps({k: {n: v for n, v in part.items() if n not in ("rows",)} for k, part in done.items() if isinstance(part, dict)}))


if __name__ == "__main__":
    main()
