"""Tuning from Python: the requests of ``squall tune``, and the report of what was found."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from squall import _squall
from squall._dimensions import Extents, texts

Event = dict[str, Any]


class Report:
    """What tuning found. In a notebook it shows itself as the page that ``squall tune`` writes."""

    def __init__(self, data: dict[str, Any], page: str) -> None:
        #: All facts, as ``squall tune --json`` gives them.
        self.data = data
        self._page = page

    @property
    def tasks(self) -> list[dict[str, Any]]:
        """One dictionary for each task: name, best and baseline time, winner, curve."""
        return self.data["tasks"]

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes the page as an HTML file."""
        path = Path(path)
        path.write_text(self._page, encoding="utf-8")
        return path

    def __repr__(self) -> str:
        trials = sum(t["trials"] for t in self.tasks)
        return f"Report({self.data['input']!r}, {len(self.tasks)} tasks, {trials} trials)"

    def _repr_html_(self) -> str:
        import html

        page = html.escape(self._page, quote=True)
        return f'<iframe srcdoc="{page}" style="width: 100%; height: 40em; border: 0"></iframe>'


def tune(
    source: str | os.PathLike[str],
    *,
    seconds: float | None = None,
    trials: int | None = None,
    trials_per_task: int | None = None,
    store: str | os.PathLike[str] = "tuned.squall",
    target: str = "cpu",
    precision: str | None = None,
    threads: int = 1,
    seed: int = 0,
    strategy: str | None = None,
    only: str | None = None,
    predictor: str | os.PathLike[str] | None = None,
    dims: Mapping[str, Extents] | None = None,
    progress: bool | Callable[[Event], object] = False,
    judge: Callable[[bytes], str | None] | None = None,
) -> Report:
    """Tunes what ``squall tune`` tunes: a model.onnx, a list.ops, a kernel.toml, an operator line.

    The arguments are those of the command. Every trial is kept in ``store``; the same call goes on
    where the last one ended. ``progress`` shows a bar where tqdm is installed, or is called with
    each event. Ctrl-C ends the run within a second; the exception's ``report`` holds what was found.

    ``judge`` is for kernels of one's own: in place of a comparison with a reference it is given the
    bytes of all outputs, one after another, before a configuration is timed, and says why they are
    wrong, or None. What it has judged once is in the store, whatever it says later.
    """
    options = {
        "source": os.fspath(source),
        "store": os.fspath(store),
        "dims": texts(dims),
        "seconds": seconds,
        "trials": trials,
        "trials_per_task": trials_per_task,
        "target": target,
        "precision": precision,
        "threads": threads,
        "seed": seed,
        "strategy": strategy,
        "only": only,
        "predictor": None if predictor is None else os.fspath(predictor),
    }
    if seconds is None and trials is None and trials_per_task is None:
        options["seconds"] = 60.0
    with _Progress(progress, seconds, trials) as listener:
        data, page, ended = _squall.tune(options, listener, judge)
    report = Report(json.loads(data), page)
    if ended is not None:
        ended.report = report  # type: ignore[attr-defined]
        raise ended
    return report


def tune_model(
    model: str | os.PathLike[str], seconds: float | None = 120.0, **arguments: Any
) -> Report:
    """Tunes the kernels of an ONNX model; the arguments are those of :func:`tune`."""
    if "trials" in arguments or "trials_per_task" in arguments:
        seconds = arguments.pop("seconds", None)
    return tune(model, seconds=seconds, **arguments)


def tasks(
    source: str | os.PathLike[str], *, dims: Mapping[str, Extents] | None = None, target: str = "cpu"
) -> dict[str, Any]:
    """The distinct kernels of an input, and the operators that are not tuned.

    >>> [t["flop"] for t in tasks("matmul m=8 n=8 k=8")["tasks"]]
    [1024]
    """
    return json.loads(_squall.tasks(os.fspath(source), texts(dims), target))


class _Progress:
    """A bar of tqdm's, a callback, or nothing."""

    def __init__(
        self,
        wanted: bool | Callable[[Event], object],
        seconds: float | None,
        trials: int | None,
    ) -> None:
        self._call = wanted if callable(wanted) else None
        self._bar: Any = None
        if wanted is True:
            try:
                from tqdm.auto import tqdm
            except ImportError:
                return
            self._bar = tqdm(total=trials if seconds is None else None, unit="trial")

    def __enter__(self) -> Callable[[str], object] | None:
        if self._call is not None:
            call = self._call
            return lambda line: call(json.loads(line))
        if self._bar is not None:
            return self._show
        return None

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def _show(self, line: str) -> None:
        event = json.loads(line)
        if event["event"] == "trial":
            best = event["best_ns"]
            self._bar.set_postfix_str(
                event["task"] + ("" if best is None else f" {best / 1e3:.2f} us"), refresh=False
            )
            self._bar.update()
        elif event["event"] in ("note", "trouble"):
            self._bar.write(event["text"])
