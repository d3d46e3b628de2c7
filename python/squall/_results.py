"""What was tried, in the forms of Kernel Tuner: its list of results and its cache file."""

from __future__ import annotations

import json
import os
import re
import statistics
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

_FAILURES = {"build": "CompilationFailedConfig", "infeasible": "InvalidConfig"}
_TIMES = ("compile_time", "verification_time", "benchmark_time", "strategy_time", "framework_time")

#: A pair of a configuration's text: a comma within a value stands behind a backslash.
_PAIR = re.compile(r"([^=,]*)=((?:[^,\\]|\\.|\\$)*)")


def pairs_of(text: str) -> dict[str, str]:
    """The parameters and values of a configuration's text.

    >>> pairs_of(r"flags=-O2\\,-g,tile=4")
    {'flags': '-O2,-g', 'tile': '4'}
    """
    return {name.strip(): _unescaped(value) for name, value in _PAIR.findall(text)}


def _unescaped(value: str) -> str:
    """Backslashes count where they stand before a comma or at the end, and are doubled there."""

    def halved(run: re.Match[str]) -> str:
        # One alone at the end is what older texts have there.
        return run[0][: (len(run[0]) + (run.end() == len(value))) // 2]

    return re.sub(r"\\+(?=,|\Z)", halved, value)


class Results:
    """The configurations that were tried, with their times in milliseconds."""

    def __init__(
        self, parameters: Mapping[str, list[Any]], metrics: Mapping[str, Any] | None
    ) -> None:
        self.rows: list[dict[str, Any]] = []
        self.ended: BaseException | None = None
        self._metrics = dict(metrics or {})
        self._values = {
            n: {(str(int(v)) if isinstance(v, bool) else str(v)): v for v in values}
            for n, values in parameters.items()
        }
        self._facts: dict[str, Any] = {}
        self._winner: dict[str, Any] | None = None

    def configuration(self, text: str) -> dict[str, Any]:
        """A configuration's text as the caller's own values, in the caller's order."""
        pairs = pairs_of(text)
        return {n: values[pairs[n]] for n, values in self._values.items()}

    def extend_cached(self, entries: Mapping[str, Mapping[str, Any]]) -> None:
        """Adds what a cache knows."""
        self.rows += [self._measured(dict(entry)) for entry in entries.values()]

    def add(self, report: Any, records: Iterable[Mapping[str, Any]]) -> None:
        """Adds the trials of a task, and the winner that its rematches settled."""
        task = report.tasks[0]
        self._facts = {
            "device_name": report.data["device"],
            "compiler": report.data["toolchain"],
            "threads": report.data["threads"],
            "strategy": report.data["strategy"],
            "seed": report.data["seed"],
        }
        for record in records:
            own = record["kind"] == "trial" and record["tunable"] == "own"
            if own and record["task"] == task["id"]:
                self.rows.append(self._measured(self._row(record)))
        if task["best"] is not None and task["best"]["tunable"] == "own":
            won = self.configuration(task["best"]["configuration"])
            same = [r for r in self._timed() if all(r[n] == v for n, v in won.items())]
            self._winner = same[-1] if same else None

    def _row(self, record: Mapping[str, Any]) -> dict[str, Any]:
        row = self.configuration(record["configuration"])
        outcome = record["outcome"]
        if "measured" in outcome:
            times = [ns * 1e-6 for ns in outcome["measured"]["samples"]]
            row["time"], row["times"] = statistics.median(times), times
        else:
            failed = outcome.get("failed")
            stage = failed["stage"] if failed else "infeasible"
            row["time"] = row["__error__"] = _FAILURES.get(stage, "RuntimeFailedConfig")
            row["times"] = []
            row["why"] = failed.get("detail", "") if failed else outcome.get("infeasible", "")
        row |= dict.fromkeys(_TIMES, 0.0)
        moment = record.get("time")
        known = isinstance(moment, (int, float))
        row["timestamp"] = str(datetime.fromtimestamp(moment if known else 0, timezone.utc))
        return row

    def _measured(self, row: dict[str, Any]) -> dict[str, Any]:
        """A row with the metrics that the caller defined."""
        if not isinstance(row.get("time"), (int, float)):
            return row
        for name, form in self._metrics.items():
            if callable(form):
                row[name] = form(row)
            else:
                row[name] = eval(form, {"__builtins__": {}}, dict(row))  # their own expressions
        return row

    def _timed(self) -> list[dict[str, Any]]:
        return [r for r in self.rows if isinstance(r.get("time"), (int, float))]

    def env(self) -> dict[str, Any]:
        """Facts of the run, and the best configuration."""
        best = self._winner
        timed = self._timed()
        if timed and (best is None or best not in timed):
            best = min(timed, key=lambda r: r["time"])
        known = [r for r in timed if r is not best and best is not None]
        # Rematches decide between what this run tried; what a cache knows has only its time.
        if best is not None and not self._facts:
            best = min([best, *known], key=lambda r: r["time"])
        facts = {"squall": True, **self._facts}
        return facts if best is None else {**facts, "best_config": best}

    @property
    def device(self) -> str:
        """The device's name; empty where nothing was run."""
        return self._facts.get("device_name", "")

    def progress(self, verbose: bool) -> Callable[[dict[str, Any]], object] | bool:
        """A listener that says how it goes, where that is wanted."""
        if not verbose:
            return False

        def say(event: dict[str, Any]) -> None:
            if event["event"] in ("note", "trouble"):
                print(event["text"])

        return say

    def say(self, verbose: bool, quiet: bool) -> None:
        """Prints what Kernel Tuner prints."""
        if quiet:
            return
        if verbose:
            for row in self.rows:
                print(self._line(row))
        best = self.env().get("best_config")
        if best is not None:
            print(f"best: {self._line(best)}")

    def _line(self, row: Mapping[str, Any]) -> str:
        time = row["time"]
        shown = f"{time:.4f}ms" if isinstance(time, (int, float)) else str(time)
        named = [f"{n}={row[n]}" for n in self._values]
        extra = [f"{n}={row[n]:.4g}" for n in self._metrics if isinstance(row.get(n), float)]
        return ", ".join([*named, f"time={shown}", *extra])


class Cache:
    """A cache file of Kernel Tuner's: what is known of each configuration."""

    def __init__(self, path: Path | None, head: dict[str, Any], keys: list[str]) -> None:
        self.path, self.head = path, head
        self.entries: dict[str, dict[str, Any]] = {}
        self._keys = keys

    @classmethod
    def open(
        cls, path: str | os.PathLike[str] | None, head: dict[str, Any], space: Any
    ) -> Cache:
        """The cache at a path, which need not be there; refused if it is of another kernel."""
        if path is None:
            return cls(None, head, list(space.parameters))
        file = Path(path)
        if file.suffix != ".json":
            file = file.with_name(file.name + ".json")
        cache = cls(file, head, list(space.parameters))
        if file.exists():
            cache._read(file)
            legal = {cache.key(c) for c in space} if cache.entries else set()
            cache.entries = {k: e for k, e in cache.entries.items() if k in legal}
        return cache

    def _read(self, file: Path) -> None:
        text = file.read_text(encoding="utf-8").strip()
        try:
            data = _closed(text)
            entries = data["cache"]
            assert isinstance(entries, dict)
        except (ValueError, KeyError, TypeError, AssertionError):
            raise ValueError(f"{file} is no cache file of Kernel Tuner's") from None
        for key in ("kernel_name", "tune_params_keys", "problem_size"):
            said = data.get(key)
            if key in data and _listed(said) != _listed(self.head[key]):
                raise ValueError(
                    f"{file} is of another kernel: its {key} is {said!r}, here it is"
                    f" {self.head[key]!r}; choose another file"
                )
        self.entries = entries
        self.head["device_name"] = data.get("device_name", "")

    def key(self, configuration: Mapping[str, Any]) -> str:
        """A configuration's name in the file."""
        return ",".join(str(configuration[n]) for n in self._keys)

    def write(self, results: Results) -> None:
        """Writes what is known, in place of what was there."""
        assert self.path is not None
        device = results.device or self.head.get("device_name", "")
        head = {"device_name": device, **{k: v for k, v in self.head.items() if k != "device_name"}}
        entries = {self.key(row): row for row in results.rows}
        text = json.dumps({**head, "cache": entries}, default=_plain, indent=0)
        fresh = self.path.with_name(self.path.name + ".new")
        fresh.write_text(text, encoding="utf-8")
        os.replace(fresh, self.path)


def _closed(text: str) -> dict[str, Any]:
    """A cache file's content; one that an interrupted run left open is closed."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return json.loads(text.rstrip().removesuffix(",") + "}\n}")


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _plain(value: Any) -> Any:
    """A number or an array of numpy's as Python's own."""
    return value.tolist() if hasattr(value, "tolist") else str(value)
