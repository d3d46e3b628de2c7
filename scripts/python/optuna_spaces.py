#!/usr/bin/env python3
"""Squall's sampler against Optuna's TPE and random sampling.

    optuna_spaces.py [CACHE.json[.gz] ..] [--seeds N] [--trials N] [--out FILE.json]

On measured spaces (cache files of Kernel Tuner's) the value is optimum / best after all trials; a
configuration that breaks the space's restrictions, or failed when it was measured, fails. On four
functions of five whole numbers from -50 to 50, shifted at random, it is the best value over the
median of random sampling: less is better. Printed are medians over seeds, and how many trials failed.
"""

import argparse
import gzip
import json
import math
import os
import random
import statistics

import optuna

import squall
from squall.optuna import SquallSampler

optuna.logging.set_verbosity(optuna.logging.ERROR)
SAMPLERS = ("squall", "tpe", "tpe multivariate", "random")


def sphere(x):
    return sum(v * v for v in x)


def ellipsoid(x):
    return sum(10 ** (4 * i / (len(x) - 1)) * v * v for i, v in enumerate(x))


def rosenbrock(x):
    return sum(100 * (b / 10 - (a / 10) ** 2) ** 2 + (1 - a / 10) ** 2 for a, b in zip(x, x[1:]))


def rastrigin(x):
    return sum(10 + (v / 10) ** 2 - 10 * math.cos(2 * math.pi * v / 10) for v in x)


def sampler(name, space, trials, seed):
    if name == "squall":
        return SquallSampler(space, trials=trials, seed=seed)
    if name == "random":
        return optuna.samplers.RandomSampler(seed=seed)
    return optuna.samplers.TPESampler(seed=seed, multivariate="multivariate" in name)


def run(name, space, objective, trials, seed):
    """The best value of a run, and how many of its trials failed."""
    study = optuna.create_study(sampler=sampler(name, space, trials, seed))
    study.optimize(objective, n_trials=trials, catch=(RuntimeError,))
    done = [t.value for t in study.trials if t.value is not None]
    return min(done, default=math.inf), trials - len(done)


class Measured:
    """A space of which every legal configuration was measured."""

    def __init__(self, path):
        self.name = os.path.basename(path).removesuffix(".gz").removesuffix(".json")
        opened = gzip.open if path.endswith(".gz") else open
        with opened(path, "rt", encoding="utf-8") as file:
            data = json.load(file)
        self.parameters = {n: list(dict.fromkeys(v)) for n, v in data["tune_params"].items()}
        self.parameters = {n: sorted(v) if _ordered(v) else v for n, v in self.parameters.items()}
        names = list(self.parameters)
        self.times = {}
        for key, entry in data["cache"].items():
            t = entry.get("time")
            good = isinstance(t, (int, float)) and t == t and t < 1e20 and "__error__" not in entry
            self.times[tuple(entry[n] for n in names)] = t if good else None
        self.optimum = min(t for t in self.times.values() if t is not None)
        self.space = squall.Space.of(self.parameters, self.times)

    def objective(self, trial):
        chosen = []
        for name, values in self.parameters.items():
            steps = {b - a for a, b in zip(values, values[1:])} if _ordered(values) else set()
            if len(steps) == 1 and all(type(v) is int for v in values):
                chosen.append(trial.suggest_int(name, values[0], values[-1], step=steps.pop()))
            else:
                chosen.append(trial.suggest_categorical(name, values))
        time = self.times.get(tuple(chosen))
        if time is None:
            raise RuntimeError("it is not legal, or it failed")
        return time

    def shown(self, best):
        return self.optimum / best if best < math.inf else 0.0


def _ordered(values):
    return all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in values)


class Function:
    """A function of whole numbers, its centre shifted by the seed."""

    def __init__(self, function, dimensions=5):
        self.name, self._function = function.__name__, function
        self._names = [f"x{i}" for i in range(dimensions)]
        self.space = squall.Space({n: range(-50, 51) for n in self._names})
        self._shift = [0] * dimensions

    def seed(self, seed):
        rng = random.Random(f"{self.name} {seed}")
        self._shift = [rng.randint(-30, 30) for _ in self._names]

    def objective(self, trial):
        x = [trial.suggest_int(n, -50, 50) - s for n, s in zip(self._names, self._shift)]
        return float(self._function(x)) + 1.0


def main():
    said = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    said.add_argument("caches", nargs="*")
    said.add_argument("--seeds", type=int, default=20)
    said.add_argument("--trials", type=int, default=100)
    said.add_argument("--out")
    a = said.parse_args()
    rows = []
    for path in a.caches:
        space = Measured(path)
        for name in SAMPLERS:
            runs = [run(name, space.space, space.objective, a.trials, s) for s in range(a.seeds)]
            found = [space.shown(best) for best, _ in runs]
            rows.append(row(space.name, name, found, sum(f for _, f in runs) / a.seeds))
    for function in (sphere, ellipsoid, rosenbrock, rastrigin):
        it, found, failed = Function(function), {}, {}
        for name in SAMPLERS:
            runs = []
            for s in range(a.seeds):
                it.seed(s)
                runs.append(run(name, it.space, it.objective, a.trials, s))
            found[name], failed[name] = [b for b, _ in runs], sum(f for _, f in runs) / a.seeds
        even = statistics.median(found["random"])
        for name in SAMPLERS:
            rows.append(row(it.name, name, [b / even for b in found[name]], failed[name]))
    if a.out:
        facts = {"optuna": optuna.__version__, "squall": squall.__version__}
        facts |= {"seeds": a.seeds, "trials": a.trials, "rows": rows}
        with open(a.out, "w", encoding="utf-8") as file:
            json.dump(facts, file, indent=1)


def row(problem, name, found, failed):
    median = statistics.median(found)
    print(f"{problem:<24} {name:<18} {median:8.4f}  {failed:5.1f} trials failed", flush=True)
    return {
        "problem": problem, "sampler": name, "median": median, "failed": failed,
        "values": [round(v, 6) for v in found],
    }


if __name__ == "__main__":
    main()
