"""Pictures of what was found, by matplotlib (``pip install 'squall[plots]'``).

Each function draws into the axes given, or into new ones, and gives the axes back.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from squall._report import Report
from squall._results import pairs_of
from squall._store import Store


def _axes(axes: Any) -> Any:
    if axes is not None:
        return axes
    try:
        from matplotlib import pyplot
    except ImportError:
        raise ImportError("plots need matplotlib: `pip install 'squall[plots]'`") from None
    return pyplot.subplots(figsize=(7, 4.5), layout="constrained")[1]


def _chosen(report: Report, task: str | None) -> list[dict[str, Any]]:
    found = [t for t in report.tasks if task is None or task in t["name"]]
    if not found:
        names = ", ".join(t["name"] for t in report.tasks)
        raise ValueError(f"no task is called {task!r}; there are {names}")
    return found


def plot_curve(report: Report, task: str | None = None, axes: Any = None) -> Any:
    """The best time of each task over the trials, relative to its untuned kernel where that is
    known, else to its first time. ``task`` chooses tasks by a part of their name.
    """
    tasks = [t for t in _chosen(report, task) if t["curve"]]
    if not tasks:
        raise ValueError("no trial of these tasks was measured")
    axes = _axes(axes)
    most = max(t["trials"] + t["known"] for t in tasks)
    for t in tasks[:12]:
        base = t["untuned_ns"] or t["curve"][0][1]
        steps = [(n, base / ns) for n, ns in t["curve"]]
        steps.append((max(most, steps[-1][0]), steps[-1][1]))
        axes.step(*zip(*steps), where="post", label=t["name"])
    if len(tasks) > 12:
        axes.plot([], [], " ", label=f"and {len(tasks) - 12} more")
    axes.axhline(1.0, color="0.7", linewidth=0.8, zorder=0)
    axes.set_yscale("log")
    axes.set_xlabel("trials")
    axes.set_ylabel("times as fast as untuned")
    axes.set_title(f"{report.data['input']} on {report.data['device']}", fontsize=10, wrap=True)
    axes.legend(fontsize=8)
    return axes


def plot_roofline(report: Report, axes: Any = None) -> Any:
    """Each task's rate over its operations per byte, below what the machine can do.

    Operations are those of the winner's algorithm, as in the report's page.
    """
    roof, threads = report.data["roof"], report.data["threads"]
    if roof is None:
        raise ValueError("the report has no roof: the machine's limits were not measured")
    points = [
        (t["operations"] / t["bytes"], t["operations"] / t["best_ns"], t["name"])
        for t in report.tasks
        if t["best_ns"] and t["operations"] and t["bytes"]
    ]
    if not points:
        raise ValueError("no task with counted operations was measured")
    axes = _axes(axes)
    peak = roof["peak_gflops"]
    slopes = [(level["name"], level["gbs"]) for level in roof["levels"]]
    slopes.append(("memory", roof["memory_gbs"]))
    low = min([p[0] for p in points] + [peak / max(s for _, s in slopes)]) / 2
    high = max([p[0] for p in points] + [peak / roof["memory_gbs"]]) * 2
    for i, (name, gbs) in enumerate(slopes):
        knee = peak / gbs
        style = "-" if name == "memory" else ":"
        start, color = min(low, knee), f"{0.65 - 0.5 * (i + 1) / len(slopes):.2f}"
        label = f"{name}, {gbs:.0f} GB/s"
        axes.plot([start, knee], [start * gbs, peak], style, color=color, label=label)
    knee = peak / max(s for _, s in slopes)
    axes.plot([knee, high], [peak, peak], color="0.15", label=f"arithmetic, {peak:.0f} GFLOP/s")
    for i, (x, y, name) in enumerate(points):
        if len(points) <= 10:
            axes.plot(x, y, "o", label=name)
        else:
            axes.plot(x, y, "o", color="C0", label="tasks" if i == 0 else None)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("operations per byte")
    axes.set_ylabel("GFLOP/s")
    axes.set_title(f"{report.data['input']}, {threads} thread{'s'[: threads > 1]}", fontsize=10)
    axes.legend(fontsize=8)
    return axes


def importance(store: Store, task: str) -> dict[str, float]:
    """How much of the spread of a task's times each knob explains by itself, from 0 to 1.

    For each knob of the sketch with the most trials: the variance of the mean logarithm of the time
    at each of its values, over the variance of all. Only trials that ran count.
    """
    rows: dict[str, list[tuple[dict[str, str], float]]] = {}
    columns = store.columns(task)
    for kind, tunable, text, seconds, name in zip(
        *(columns[c] for c in ("kind", "tunable", "configuration", "seconds", "name"))
    ):
        if kind == "trial" and seconds:
            pairs = pairs_of(text)
            rows.setdefault(f"{name} {tunable}", []).append((pairs, math.log(seconds)))
    if not rows:
        raise ValueError(f"{store.path} has no measured trial of a task called {task!r}")
    trials = max(rows.values(), key=len)
    return _explained(trials)


def _explained(trials: Sequence[tuple[Mapping[str, str], float]]) -> dict[str, float]:
    mean = sum(t for _, t in trials) / len(trials)
    spread = sum((t - mean) ** 2 for _, t in trials)
    shares = {}
    for knob in trials[0][0]:
        groups: dict[str, list[float]] = {}
        for pairs, t in trials:
            groups.setdefault(pairs.get(knob, ""), []).append(t)
        if len(groups) < 2:
            continue
        between = sum(len(g) * (sum(g) / len(g) - mean) ** 2 for g in groups.values())
        # What as many groups would explain by chance is taken off.
        n, k = len(trials), len(groups)
        within = (spread - between) / (n - k) if n > k else spread / n
        corrected = between - (k - 1) * within
        shares[knob] = min(1.0, max(0.0, corrected / spread)) if spread > 0 else 0.0
    return dict(sorted(shares.items(), key=lambda s: -s[1]))


def plot_importance(store: Store, task: str, axes: Any = None) -> Any:
    """:func:`importance` as bars, the most important knob on top."""
    shares = importance(store, task)
    if not shares:
        raise ValueError(f"no knob of {task!r} was tried with two values")
    axes = _axes(axes)
    named = list(shares.items())[:15][::-1]
    axes.barh([n for n, _ in named], [s for _, s in named])
    axes.set_xlim(0, 1)
    axes.set_xlabel("share of the spread of times that a knob explains by itself")
    axes.set_title(task, fontsize=10)
    return axes
