#!/usr/bin/env python3
"""Squall's search against Kernel Tuner's own strategies, inside Kernel Tuner's simulation mode.

    kernel_tuner_spaces.py CACHE.json[.gz] .. [--seeds N] [--strategies a,b] [--out FILE.json]

Each space is a cache file in which every legal configuration was measured; a run is replayed from
it. A run is read at 25, 50, 100, 200 and 400 evaluations: a distinct configuration counts once,
failures included. Its value is optimum / best so far; the score of a strategy is (mean value - R) /
(1 - R) with R the exact expectation of even draws, so that 0 is chance and 1 the optimum at once:
what `squall replay` computes. The aggregate is the mean over spaces and budgets.

Runs that are in FILE.json already are not repeated, so that an interrupted campaign goes on.
"""

import argparse
import contextlib
import gzip
import io
import json
import os
import random
import sys
import time
import warnings

import kernel_tuner
import kernel_tuner.interface
import numpy
from constraint import FunctionConstraint

import squall
from squall.kernel_tuner import SquallStrategy

BUDGETS = [25, 50, 100, 200, 400]
OURS = "squall"
# These are no searches, need packages of their own, or have several objectives.
LEFT_OUT = {"brute_force", "skopt", "pyatf_strategies", "nsga2", "nsga3", "bayes_opt"}


class Space:
    """A cache file with the value of each of its configurations."""

    def __init__(self, path, folder):
        self.name = os.path.basename(path).removesuffix(".gz").removesuffix(".json")
        opened = gzip.open if path.endswith(".gz") else open
        with opened(path, "rt", encoding="utf-8") as file:
            self.data = json.load(file)
        self.data.setdefault("objective", "time")
        self.data.setdefault("device_name", "")
        self.path = os.path.join(folder, self.name + ".json")
        with open(self.path, "w", encoding="utf-8") as file:
            # Kernel Tuner looks at the last characters to see whether a file is complete.
            head = {k: v for k, v in self.data.items() if k != "cache"}
            data = {**head, "cache": self.data["cache"]}
            file.write(json.dumps(data)[:-2] + "}\n}")
        times = {k: self._time(e) for k, e in self.data["cache"].items()}
        optimum = min(t for t in times.values() if t is not None)
        self.values = {k: 0.0 if t is None else optimum / t for k, t in times.items()}
        ranked = sorted(self.values.values(), reverse=True)
        self.chance = [chance(ranked, k) for k in BUDGETS]
        names = list(self.data["tune_params"])
        legal = {tuple(e[n] for n in names) for e in self.data["cache"].values()}
        # A constraint as Kernel Tuner itself makes one of a cache: a lambda it would rewrite, and
        # of a method it would make a deep copy.
        self.restrictions = [FunctionConstraint(lambda *values: values in legal)]

    @staticmethod
    def _time(entry):
        t = entry.get("time")
        good = isinstance(t, (int, float)) and t == t and t not in (1e20, float("inf"))
        return float(t) if good and "__error__" not in entry else None

    def run(self, strategy, seed):
        """The values in the order of the evaluations, and the seconds that the run took."""
        random.seed(seed)
        numpy.random.seed(seed)
        chosen = SquallStrategy(seed=seed) if strategy == OURS else strategy
        began = time.perf_counter()
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            results, _ = kernel_tuner.tune_kernel(
                self.data["kernel_name"],
                "__global__ void nothing() {}",
                self.data["problem_size"],
                [],
                self.data["tune_params"],
                restrictions=self.restrictions,
                strategy=chosen,
                strategy_options={"max_fevals": BUDGETS[-1]},
                simulation_mode=True,
                cache=self.path,
                lang="CUDA",
                quiet=True,
                seed=seed,
            )
        took = time.perf_counter() - began
        names = self.data["tune_params_keys"]
        keys = dict.fromkeys(",".join(str(r[n]) for n in names) for r in results if r)
        return [self.values[k] for k in keys], took


def chance(ranked, k):
    """What k even draws without repetition are expected to find."""
    n, total, alive = len(ranked), 0.0, 1.0
    for i, value in enumerate(ranked):
        after = alive * max(n - i - k, 0) / (n - i)
        total, alive = total + (alive - after) * value, after
        if alive <= 1e-15:
            break
    return total


def same_searchspaces():
    """Kernel Tuner's search space of a file is made once, not once a run: it takes seconds."""
    made, original = {}, kernel_tuner.interface.Searchspace

    def searchspace(tune_params, restrictions, max_threads, **options):
        key = json.dumps(tune_params, default=str) + str(id(restrictions))
        if key not in made:
            made[key] = original(tune_params, restrictions, max_threads, **options)
        return made[key]

    kernel_tuner.interface.Searchspace = searchspace


def main():
    said = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    said.add_argument("caches", nargs="+")
    said.add_argument("--seeds", type=int, default=20)
    said.add_argument("--strategies", help="comma separated; all of Kernel Tuner's without it")
    said.add_argument("--out", help="JSON with every run, read first where it is there")
    said.add_argument("--folder", default="/tmp", help="where cache files are unpacked")
    a = said.parse_args()
    theirs = sorted(set(kernel_tuner.interface.strategy_map) - LEFT_OUT)
    strategies = a.strategies.split(",") if a.strategies else [OURS, *theirs]
    kept = {"runs": {}}
    if a.out and os.path.exists(a.out):
        with open(a.out, encoding="utf-8") as file:
            kept = json.load(file)
    same_searchspaces()
    spaces = [Space(path, a.folder) for path in a.caches]
    for seed in range(a.seeds):
        for space in spaces:
            for strategy in strategies:
                runs = kept["runs"].setdefault(strategy, {}).setdefault(space.name, {})
                if str(seed) in runs:
                    continue
                try:
                    values, took = space.run(strategy, seed)
                except Exception as e:  # a strategy of theirs that fails is said, and left out
                    print(f"{strategy} on {space.name}, seed {seed}: {e!r:.200}", file=sys.stderr)
                    continue
                best = [round(max(values[:b], default=0.0), 6) for b in BUDGETS]
                runs[str(seed)] = {"best": best, "evaluations": len(values), "seconds": round(took, 3)}
        report(kept, spaces, strategies, a)


def report(kept, spaces, strategies, a):
    """Prints the aggregates and writes everything down."""
    table = []
    for strategy in strategies:
        scores, cost, counted, evaluations = [], 0.0, 0, 0
        for space in spaces:
            runs = kept["runs"][strategy].get(space.name, {}).values()
            if not runs:
                continue
            counted += len(runs)
            cost += sum(r["seconds"] for r in runs)
            evaluations += sum(r["evaluations"] for r in runs)
            for i, even in enumerate(space.chance):
                mean = sum(r["best"][i] for r in runs) / len(runs)
                scores.append(max(-1.0, min(1.0, (mean - even) / (1 - even))) if even < 1 else 0.0)
        if scores:
            ms = 1e3 * cost / max(evaluations, 1)
            table.append((sum(scores) / len(scores), strategy, counted, ms))
    table.sort(reverse=True)
    print(f"{'score':>7}  {'strategy':<24} {'runs':>5}  ms an evaluation, Kernel Tuner's own included")
    for score, strategy, counted, ms in table:
        print(f"{score:7.3f}  {strategy:<24} {counted:5}  {ms:.2f}", flush=True)
    if a.out:
        kept |= {
            "kernel_tuner": kernel_tuner.__version__,
            "squall": squall.__version__,
            "spaces": [s.name for s in spaces],
            "budgets": BUDGETS,
            "table": [
                {"strategy": s, "score": round(x, 4), "runs": n, "ms": round(ms, 3)}
                for x, s, n, ms in table
            ],
        }
        with open(a.out + ".new", "w", encoding="utf-8") as file:
            json.dump(kept, file, indent=1)
        os.replace(a.out + ".new", a.out)


if __name__ == "__main__":
    main()
