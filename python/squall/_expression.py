"""Amounts that depend on tunable parameters: problem sizes and what divides them.

Kernel Tuner takes a number, a string in Python's spelling, or a function of the parameters. Squall
launches by expressions over whole numbers, so that each of these becomes a fraction of two such
expressions. A function is called once with symbols in the parameters' place.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from numbers import Integral, Rational, Real
from typing import Any


class Amount:
    """A number that depends on parameters: a whole expression over another one, which is positive."""

    def __init__(self, above: str, below: str = "1") -> None:
        self.above, self.below = above, below

    @classmethod
    def of(cls, value: Any) -> Amount:
        """A number as an amount."""
        if isinstance(value, Amount):
            return value
        if isinstance(value, Integral):
            return cls(str(int(value)))
        if isinstance(value, (Real, Rational)):
            exact = Fraction(float(value))
            return cls(str(exact.numerator), str(exact.denominator))
        raise TypeError(f"{value!r} is no number")

    @property
    def is_whole(self) -> bool:
        return self.below == "1"

    def whole(self) -> str:
        """The amount rounded down, as an expression over whole numbers."""
        return self.above if self.is_whole else f"(({self.above}) // ({self.below}))"

    def __add__(self, other: Any) -> Amount:
        return self._summed(other, "+")

    def __sub__(self, other: Any) -> Amount:
        return self._summed(other, "-")

    def __radd__(self, other: Any) -> Amount:
        return Amount.of(other) + self

    def __rsub__(self, other: Any) -> Amount:
        return Amount.of(other) - self

    def _summed(self, other: Any, sign: str) -> Amount:
        b = Amount.of(other)
        if self.below == b.below:
            return Amount(f"({self.above} {sign} {b.above})", self.below)
        above = f"({_times(self.above, b.below)} {sign} {_times(b.above, self.below)})"
        return Amount(above, _times(self.below, b.below))

    def __mul__(self, other: Any) -> Amount:
        b = Amount.of(other)
        return Amount(_times(self.above, b.above), _times(self.below, b.below))

    def __rmul__(self, other: Any) -> Amount:
        return Amount.of(other) * self

    def __truediv__(self, other: Any) -> Amount:
        b = Amount.of(other)
        return Amount(_times(self.above, b.below), _times(self.below, b.above))

    def __rtruediv__(self, other: Any) -> Amount:
        return Amount.of(other) / self

    def __floordiv__(self, other: Any) -> Amount:
        return Amount((self / other).whole())

    def __rfloordiv__(self, other: Any) -> Amount:
        return Amount.of(other) // self

    def __mod__(self, other: Any) -> Amount:
        return self - (self // other) * other

    def __rmod__(self, other: Any) -> Amount:
        return Amount.of(other) % self

    def __neg__(self) -> Amount:
        return Amount(f"(0 - {self.above})", self.below)

    def __pos__(self) -> Amount:
        return self

    def __pow__(self, exponent: Any) -> Amount:
        if not isinstance(exponent, int) or not 0 <= exponent <= 8:
            raise TypeError("only powers by a small whole number are known")
        product = Amount("1")
        for _ in range(exponent):
            product = product * self
        return product

    def __floor__(self) -> Amount:
        return Amount(self.whole())

    def __ceil__(self) -> Amount:
        return Amount(self.over(Amount("1")))

    def over(self, divisor: Amount) -> str:
        """The amount divided and rounded up, as Kernel Tuner counts blocks."""
        q = self / divisor
        return q.above if q.is_whole else f"(({q.above} + {q.below} - 1) // ({q.below}))"

    def _refuse(self, *_: Any) -> Any:
        raise TypeError("only arithmetic is known of a tunable parameter here")

    __bool__ = __int__ = __float__ = __index__ = _refuse  # type: ignore[assignment]
    __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = _refuse  # type: ignore[assignment]
    __hash__ = object.__hash__


def _times(a: str, b: str) -> str:
    if a == "1":
        return b
    return a if b == "1" else f"({a} * {b})"


class _Parameters(Mapping[str, Amount]):
    """What a function gets in the place of a configuration."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = list(names)

    def __getitem__(self, name: str) -> Amount:
        if name not in self._names:
            raise KeyError(name)
        return Amount(name)

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def traced(function: Callable[[Mapping[str, Any]], Any], names: Iterable[str], what: str) -> Any:
    """What a function says of a configuration, its numbers being amounts.

    Raises ``ValueError`` where it does more than arithmetic with the parameters.
    """
    try:
        return function(_Parameters(names))
    except (TypeError, ValueError) as e:
        raise ValueError(
            f"{what} is a function that does more than arithmetic with the parameters ({e}):"
            " write it as a string, as '(n + block_size_x - 1) // block_size_x'"
        ) from None
    except KeyError as e:
        raise ValueError(f"{what} uses {e}, which is no tunable parameter") from None


def amount(given: Any, names: Iterable[str], what: str) -> Amount:
    """A number, a string in Python's spelling or a function as an amount over parameters."""
    if callable(given):
        given = traced(given, names, what)
    if isinstance(given, str):
        return _read(given, list(names), what)
    try:
        return Amount.of(given)
    except TypeError:
        raise TypeError(f"{what} is {given!r}: it is a number, a string or a function") from None


_BINARY = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b,
}
_CALLS = {"min", "max", "int", "ceil", "floor"}


def _read(text: str, names: list[str], what: str) -> Amount:
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except SyntaxError as e:
        raise ValueError(f"{what} is {text!r}, which is no expression: {e.msg}") from None

    def wrong(node: ast.AST) -> ValueError:
        return ValueError(
            f"{what} is {text!r}: {ast.unparse(node)!r} is not understood; there are + - * / // %,"
            f" powers, min, max, int, ceil, floor and the parameters {', '.join(names)}"
        )

    def value(node: ast.AST) -> Amount:
        if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
            return Amount.of(node.value)
        if isinstance(node, ast.Name) and node.id in names:
            return Amount(node.id)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
            inner = value(node.operand)
            return -inner if isinstance(node.op, ast.USub) else inner
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
            if isinstance(node.right, ast.Constant) and isinstance(node.right.value, int):
                if 0 <= node.right.value <= 8:
                    return value(node.left) ** node.right.value
        elif isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
            return _BINARY[type(node.op)](value(node.left), value(node.right))
        if isinstance(node, ast.Call) and not node.keywords and node.args:
            called = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            called = node.func.id if isinstance(node.func, ast.Name) else called
            if called in _CALLS:
                return _called(called, [value(a) for a in node.args])
        raise wrong(node)

    return value(tree)


def _called(name: str, values: list[Amount]) -> Amount:
    if name in ("min", "max"):
        if all(v.is_whole for v in values):
            return Amount(f"{name}({', '.join(v.above for v in values)})")
        raise ValueError(f"{name} of fractions is not known")
    if name == "ceil":
        return values[0].__ceil__()
    return values[0].__floor__()


def product(given: Any, names: list[str], what: str) -> Amount:
    """What divides an extent of the problem, as Kernel Tuner counts it.

    A list's entries are multiplied; those that are strings are rounded down first.
    """
    if callable(given) or not isinstance(given, (list, tuple)):
        one = amount(given, names, what)
        return one.__floor__() if isinstance(given, str) else one
    total = Amount("1")
    for entry in given:
        total = total * product(entry, names, what)
    return total
