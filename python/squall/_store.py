"""What is known: the records of a store, and the answers of a predictor."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterable
from typing import Any

from squall import _squall


class Store:
    """A file of records, as ``squall tune`` writes it.

    A store is a SQLite file with plain columns, so that other tools read it too:
    ``pandas.read_sql("select name, tunable, time_ns from record", sqlite3.connect(path))``.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)

    def records(self, name: str | None = None) -> list[dict[str, Any]]:
        """The records of tasks whose name matches (``conv*``), oldest first, with all fields."""
        return [json.loads(line) for line in _squall.trials(self.path, name)]

    def columns(self, name: str | None = None) -> dict[str, list[Any]]:
        """Trials as columns for ``pandas.DataFrame`` or ``polars.DataFrame``.

        ``seconds`` is None for a configuration that failed, and ``failure`` says at which stage.
        """
        rows = [_row(r) for r in self.records(name)]
        return {c: [row[c] for row in rows] for c in _COLUMNS}

    def trials(self, name: str | None = None) -> Any:
        """The same as a pandas data frame."""
        try:
            import pandas
        except ImportError:
            raise ImportError(
                "Store.trials() needs pandas: `pip install pandas`, or use Store.columns()"
            ) from None
        return pandas.DataFrame(self.columns(name))

    def arrow(self, name: str | None = None) -> Any:
        """The same as an Arrow table."""
        try:
            import pyarrow
        except ImportError:
            raise ImportError(
                "Store.arrow() needs pyarrow: `pip install pyarrow`, or use Store.columns()"
            ) from None
        return pyarrow.table(self.columns(name))

    def best(self, name: str | None = None) -> dict[str, dict[str, Any]]:
        """For each task's name its fastest trial, a row of :meth:`columns`."""
        found: dict[str, dict[str, Any]] = {}
        for record in self.records(name):
            row = _row(record)
            if row["seconds"] is None or row["kind"] != "trial":
                continue
            known = found.get(row["name"])
            if known is None or row["seconds"] < known["seconds"]:
                found[row["name"]] = row
        return found

    def __repr__(self) -> str:
        return f"Store({self.path!r})"


_COLUMNS = (
    "name",
    "task",
    "kind",
    "device",
    "toolchain",
    "tunable",
    "configuration",
    "seconds",
    "failure",
    "recorded",
)


def _row(record: dict[str, Any]) -> dict[str, Any]:
    outcome = record["outcome"]
    samples = sorted(outcome["measured"]["samples"]) if "measured" in outcome else []
    middle = len(samples) // 2
    if not samples:
        seconds = None
    elif len(samples) % 2:
        seconds = samples[middle] * 1e-9
    else:
        seconds = (samples[middle - 1] + samples[middle]) / 2 * 1e-9
    failed = outcome.get("failed")
    failure = failed["stage"] if failed else ("infeasible" if "infeasible" in outcome else None)
    row = {c: record.get(c) for c in _COLUMNS}
    row.update(seconds=seconds, failure=failure, recorded=record["time"])
    return row


def predict(
    predictor: str | os.PathLike[str],
    problems: str | Iterable[str],
    *,
    device: str | None = None,
    solver: str | None = None,
    target: str = "cpu",
    top: int = 1,
) -> list[dict[str, Any]]:
    """Tuned parameters of problems that were never tuned, best first.

    A problem is a key of MIOpen's databases, a MIOpenDriver line, or an operator line, by what the
    predictor was trained on. Each entry names the problem and the solver, or the task, and has
    ``predictions``; where there is none, ``why`` says the reason.
    """
    text = problems if isinstance(problems, str) else "\n".join(problems)
    options = {
        "predictor": os.fspath(predictor),
        "problems": text,
        "solver": solver,
        "device": device,
        "target": target,
        "top": top,
    }
    return json.loads(_squall.predict(options))


def choose(
    chooser: str | os.PathLike[str],
    problems: str | Iterable[str],
    *,
    device: str,
    workspace: int | None = None,
    without: Iterable[str] = (),
    measure: int | None = None,
    uses: float = 1000,
    predictor: str | os.PathLike[str] | None = None,
    recall: bool = True,
    top: int | None = None,
) -> list[dict[str, Any]]:
    """Which of MIOpen's solvers serves each problem, as ``squall choose`` says it.

    A problem is a key of MIOpen's databases or a MIOpenDriver line. Each entry has ``problem``,
    ``source``, ``measure`` (how many of the first to time before one is kept) and ``solutions``,
    best first, with times in milliseconds.
    """
    options = {
        "chooser": os.fspath(chooser),
        "problems": problems if isinstance(problems, str) else "\n".join(problems),
        "device": device,
        "workspace": workspace,
        "without": list(without),
        "measure": measure,
        "uses": float(uses),
        "predictor": None if predictor is None else os.fspath(predictor),
        "recall": recall,
        "top": top,
    }
    lines, notes = _squall.choose(options)
    for note in notes:
        warnings.warn(note, stacklevel=2)
    return [json.loads(line) for line in lines]
