#!/usr/bin/env python3
"""A fleet on one machine beside one process with the same trials: two drivers, two workers that
measure, two that build only.

    python3 scripts/fleet_share.py SQUALL MODEL.onnx [--trials 24] [--rounds 7] [--out OUT.json]

SQUALL is built with `--features fleet`. One process tunes MODEL with --trials trials for each task
from an empty store. Then two drivers submit the model to a fleet at once, so that each job has half
of them, and the workers work until nothing is left. Printed are: trials that were made twice and
jobs' trials that are missing, the share of the measuring workers' time that the server took, and
the model's time with the kernels of either, in turns. PostgreSQL's programs are looked for in
/usr/lib/postgresql/*/bin and the PATH."""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from fleet_campaign import Server


def said(*words):
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{words}: {done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def workers(squall, url, folder, is_builder):
    """Two workers; builders are stopped once the others have ended."""
    made = []
    for number in range(2):
        words = [squall, "worker", "--server", url]
        # One of them measures on each core.
        pin = ["taskset", "-c", str(number % os.cpu_count())]
        if is_builder:
            words, pin = [*words, "--build", "--jobs", "1"], ["nice", "-n", "10"]
        else:
            words += ["--store", folder / f"worker{number}.squall", "--until-idle", "--json"]
        log = open(folder / f"{'builder' if is_builder else 'worker'}{number}.jsonl", "w+")
        made.append((subprocess.Popen([*pin, *map(str, words)], stdout=log,
                                      stderr=subprocess.DEVNULL), log))
    return made


def last_lines(log):
    log.seek(0)
    return [json.loads(line) for line in log if line.startswith("{")]


def main():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("squall")
    p.add_argument("model")
    p.add_argument("--trials", type=int, default=24)
    p.add_argument("--rounds", type=int, default=7)
    p.add_argument("--out")
    a = p.parse_args()
    squall, model = Path(a.squall).resolve(), Path(a.model).resolve()
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        os.chmod(folder, 0o755)
        one, many = folder / "one.squall", folder / "many.squall"
        start = time.monotonic()
        said(squall, "tune", model, "--trials-per-task", a.trials, "--store", one, "--json")
        alone = time.monotonic() - start
        server = Server(folder / "server")
        try:
            said(squall, "fleet", "init", server.url)
            start = time.monotonic()
            drivers = [subprocess.Popen([squall, "fleet", "submit", model, "--server", server.url,
                                         "--trials-per-task", str(a.trials // 2)],
                                        stdout=subprocess.DEVNULL) for _ in range(2)]
            if any(d.wait() for d in drivers):
                sys.exit("a driver failed")
            building = workers(squall, server.url, folder, True)
            measuring = workers(squall, server.url, folder, False)
            if any(w.wait() for w, _ in measuring):
                sys.exit("a worker failed")
            together = time.monotonic() - start
            for w, _ in building:
                w.terminate()
                w.wait()
            said(squall, "fleet", "pull", "--server", server.url, "--store", many)
            twice = server.sql("SELECT count(*) FROM (SELECT 1 FROM squall.record WHERE kind = 0 "
                               "GROUP BY task, tunable, configuration HAVING count(*) > 1) AS t")
            trials = server.sql("SELECT count(*) FROM squall.record WHERE kind = 0")
        finally:
            server.end()
        ends = [last_lines(log)[-1] for _, log in measuring]
        bench = lambda store: said(squall, "bench", model, "--store", store, "--seconds", "1",
                                   "--json")[-1]["best_ns"]
        turns = [(bench(one), bench(many)) for _ in range(a.rounds)]
    times = [min(t[i] for t in turns) for i in range(2)]
    result = {
        "model": model.name,
        "trials_a_task": a.trials,
        "one_process_s": round(alone, 1),
        "fleet_s": round(together, 1),
        "workers": ends,
        "trials": int(trials),
        "trials_twice": int(twice),
        "one_process_ns": times[0],
        "fleet_ns": times[1],
        "fleet_over_one": round(times[1] / times[0], 4),
        "median_of_turns": round(statistics.median(b / a for a, b in turns), 4),
    }
    print(json.dumps(result))
    if a.out:
        Path(a.out).write_text(json.dumps(result))


if __name__ == "__main__":
    main()
