"""Search alone: a space of tunable parameters, and a study that proposes its configurations.

Values are the caller's own: numbers, words, booleans, anything that can be told apart. Squall sees
their positions, and whether they are whole numbers.
"""

from __future__ import annotations

import ast
import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, Union

from squall import _squall

Configuration = dict[str, Any]
Restriction = Union[str, Callable[..., bool]]

#: More configurations than this are not listed one by one for restrictions that only Python can
#: evaluate.
MOST_LISTED = 5_000_000
_CHUNK = 65_536


@dataclass(frozen=True)
class Failed:
    """The outcome of a configuration that has no time.

    ``stage`` is ``build``, ``launch``, ``timeout`` or ``wrong_answer``; ``why`` is for the reader.
    """

    stage: str = "launch"
    why: str = ""


class Space:
    """The legal configurations of tunable parameters.

    ``parameters`` maps names to their values. Each of ``restrictions`` is a condition in Python's
    spelling over the names (``"block_x * block_y <= 1024"``), or a function that takes the
    parameters by name, or a configuration as one dictionary, and says whether it is legal.
    Conditions over whole numbers and words are compiled, so that huge spaces cost nothing; others
    are evaluated once for each configuration.

    >>> space = Space({"x": [1, 2, 4], "mode": ["row", "tile"]}, ["x > 1 or mode == 'row'"])
    >>> len(space), {"x": 1, "mode": "tile"} in space
    (5, False)
    >>> list(Space({"x": [0.5, 1.5]}, [lambda x: x > 1]))
    [{'x': 1.5}]
    """

    def __init__(
        self,
        parameters: Mapping[str, Iterable[Any]],
        restrictions: Restriction | Sequence[Restriction] | None = None,
    ) -> None:
        self.parameters: dict[str, list[Any]] = {
            name: list(values) for name, values in parameters.items()
        }
        self._kinds = {name: _kind(values) for name, values in self.parameters.items()}
        self._positions = {
            name: {_key(v): i for i, v in enumerate(values)}
            for name, values in self.parameters.items()
        }
        for name, values in self.parameters.items():
            if len(self._positions[name]) < len(values):
                raise ValueError(f"parameter {name!r} has equal values: {values!r}")
        self._given = [self._parameter(i, name) for i, name in enumerate(self.parameters)]
        compiled: list[str] = []
        evaluated: list[Callable[[Configuration], bool]] = []
        for restriction in _listed(restrictions):
            text = restriction if isinstance(restriction, str) else None
            if text is not None and self._compiles(text):
                compiled.append(text)
            else:
                evaluated.append(_predicate(restriction, list(self.parameters)))
        #: Restrictions that the extension understands, and whether there are others.
        self.compiled, self.evaluated = compiled, bool(evaluated)
        self._inner = _squall.SearchSpace(self._given, compiled)
        if evaluated:
            self._inner = self._filtered(evaluated)

    @classmethod
    def of(
        cls, parameters: Mapping[str, Iterable[Any]], configurations: Iterable[Sequence[Any]]
    ) -> Space:
        """The space of just these configurations, each the parameters' values in their order."""
        space = cls(parameters)
        names = list(space.parameters)
        rows = [space._indices(dict(zip(names, values))) for values in configurations]
        space._inner = _squall.SearchSpace.listed(space._given, rows)
        return space

    def _parameter(self, i: int, name: str) -> tuple[str, Any, bool]:
        """A parameter as the extension takes it: a name of letters, numbers or words."""
        values, kind = self.parameters[name], self._kinds[name]
        label = name if _is_plain(name) else f"parameter_{i}"
        if kind in ("whole", "truth"):
            return (label, [int(v) for v in values], True)
        if kind == "word":
            return (label, values, False)
        if kind == "number":
            # Numbers are a scale, in whatever order they were given: each goes by its rank.
            rank = {v: i for i, v in enumerate(sorted(values))}
            return (label, [rank[v] for v in values], True)
        return (label, [f"v{i}" for i in range(len(values))], False)

    def _compiles(self, text: str) -> bool:
        """Whether the extension understands a condition as Python does."""
        try:
            tree = ast.parse(text.strip(), mode="eval")
        except SyntaxError as e:
            raise ValueError(f"restriction {text!r}: {e.msg}") from None
        names = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
        exact = ("whole", "truth", "word")
        if any(self._kinds.get(n, "function") not in exact for n in names):
            return False
        if not all(_is_plain(n) for n in names):
            return False
        try:
            _squall.SearchSpace(self._given, [text])
        except _squall.Error as e:
            # What is understood and leaves nothing is the caller's mistake, not the language's.
            return "no legal configuration" in str(e)
        return True

    def _filtered(self, predicates: list[Callable[[Configuration], bool]]) -> _squall.SearchSpace:
        count = self._inner.count()
        if count > MOST_LISTED:
            raise ValueError(
                f"{count:,} configurations are too many to evaluate a function for each: write"
                " restrictions as strings over whole numbers, or fewer values"
            )
        legal = []
        for first in range(0, count, _CHUNK):
            for indices in self._inner.range(first, _CHUNK):
                configuration = self._configuration(indices)
                if all(p(configuration) for p in predicates):
                    legal.append(indices)
        if not legal:
            raise ValueError("no configuration meets all restrictions")
        return _squall.SearchSpace.listed(self._given, legal)

    def _configuration(self, indices: Sequence[int]) -> Configuration:
        return {n: v[i] for (n, v), i in zip(self.parameters.items(), indices)}

    def _indices(self, configuration: Mapping[str, Any]) -> list[int]:
        if set(configuration) != set(self.parameters):
            raise ValueError(
                f"{dict(configuration)!r} has other parameters than {list(self.parameters)!r}"
            )
        try:
            return [self._positions[n][_key(configuration[n])] for n in self.parameters]
        except (KeyError, TypeError):
            raise ValueError(f"{dict(configuration)!r} has a value that is none of its parameter's") from None

    def __len__(self) -> int:
        return self._inner.count()

    def __contains__(self, configuration: object) -> bool:
        if not isinstance(configuration, Mapping):
            return False
        try:
            return self._inner.contains(self._indices(configuration))
        except ValueError:
            return False

    def __iter__(self) -> Iterator[Configuration]:
        first = 0
        while rows := self._inner.range(first, _CHUNK):
            yield from map(self._configuration, rows)
            first += len(rows)

    def __repr__(self) -> str:
        return f"Space({len(self.parameters)} parameters, {self._inner.count():,} configurations)"

    def sample(self, count: int, seed: int = 0) -> list[Configuration]:
        """Configurations drawn evenly, no two equal; all of them where there are no more."""
        return [self._configuration(c) for c in self._inner.sample(count, seed)]


class Study:
    """Proposes configurations of a space and learns from their times (ask and tell).

    ``trials`` is how many you mean to measure in all: how long the search explores depends on it.
    ``strategy`` is one of :func:`strategies`, by default the first. Equal seeds and equal outcomes
    give equal proposals. A study may be used from several threads.
    """

    def __init__(
        self, space: Space, trials: int = 1000, seed: int = 0, strategy: str | None = None
    ) -> None:
        self.space = space
        self.trials: list[tuple[Configuration, float | Failed]] = []
        self._inner = _squall.AskTell(space._inner, strategy, trials, seed)

    def ask(self, count: int = 1) -> list[Configuration]:
        """At most ``count`` configurations that were neither asked nor told before.

        There are fewer when the search needs outcomes first, and none when all were asked.
        """
        return [self.space._configuration(c) for c in self._inner.ask(count)]

    def tell(self, configuration: Mapping[str, Any], outcome: float | Failed) -> None:
        """Takes note of a configuration's seconds (or any cost that is to be small), or failure.

        The configuration need not have been asked.
        """
        indices = self.space._indices(configuration)
        if isinstance(outcome, Failed):
            told = (indices, None, outcome.stage, outcome.why)
        else:
            told = (indices, float(outcome), "", "")
        self._inner.tell([told])
        self.trials.append((dict(configuration), outcome))

    @property
    def best(self) -> tuple[Configuration, float] | None:
        """The configuration with the least time told, and that time."""
        timed = [(c, t) for c, t in self.trials if not isinstance(t, Failed) and math.isfinite(t)]
        return min(timed, key=lambda trial: trial[1], default=None)

    def optimize(
        self, function: Callable[[Configuration], float | Failed], trials: int | None = None
    ) -> tuple[Configuration, float] | None:
        """Asks, calls ``function`` for seconds, and tells, ``trials`` times or until all are known.

        What has no time is a failed trial: ``function`` gives a :class:`Failed`, NaN or infinity.
        Gives :attr:`best`.
        """
        left = math.inf if trials is None else trials
        while left > 0 and (asked := self.ask()):
            for configuration in asked:
                self.tell(configuration, _timed(function(configuration)))
            left -= len(asked)
        return self.best


def strategies() -> dict[str, str]:
    """Every strategy of a :class:`Study` with what it does in a line, the default first."""
    return dict(_squall.strategies())


def _timed(outcome: float | Failed) -> float | Failed:
    """What a function gave, where NaN is no time."""
    if isinstance(outcome, Failed) or not math.isnan(outcome):
        return outcome
    return Failed("launch", "its time is not a number")


def _listed(restrictions: Restriction | Sequence[Restriction] | None) -> list[Restriction]:
    if restrictions is None:
        return []
    if isinstance(restrictions, str) or callable(restrictions):
        return [restrictions]
    return list(restrictions)


def _is_plain(name: str) -> bool:
    return name.isidentifier() and name.isascii()


def _kind(values: Sequence[Any]) -> str:
    if not values:
        raise ValueError("a parameter needs at least one value")
    if all(isinstance(v, bool) for v in values):
        return "truth"
    if all(isinstance(v, Integral) and not isinstance(v, bool) for v in values):
        return "whole" if all(-(2**62) < int(v) < 2**62 for v in values) else "number"
    if all(isinstance(v, str) and _is_word(v) for v in values):
        return "word"
    if all(isinstance(v, Real) and not isinstance(v, bool) for v in values):
        return "number"
    return "other"


def _is_word(text: str) -> bool:
    return text.isascii() and text.replace("_", "a").replace("-", "a").isalnum()


def _key(value: Any) -> Any:
    """What tells a value apart: 1, 1.0 and True are equal in Python, and are one value here too."""
    try:
        hash(value)
    except TypeError:
        return repr(value)
    return value


def _predicate(restriction: Restriction, names: list[str]) -> Callable[[Configuration], bool]:
    """A restriction as a function of a configuration."""
    if isinstance(restriction, str):
        code = compile(restriction.strip(), "<restriction>", "eval")
        known = {"abs": abs, "max": max, "min": min, "math": math, "__builtins__": {}}

        def evaluated(configuration: Configuration) -> bool:
            try:
                return bool(eval(code, known, configuration))
            except ZeroDivisionError:
                return False

        return evaluated
    arguments = _arguments(restriction)
    if arguments is not None and arguments <= set(names):
        return lambda c: bool(restriction(**{n: c[n] for n in arguments}))
    return lambda c: bool(restriction(c))


def _arguments(function: Callable[..., bool]) -> set[str] | None:
    """The names of a function's arguments; none where they are not known or open."""
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    if any(p.kind not in named for p in found):
        return None
    return {p.name for p in found}
