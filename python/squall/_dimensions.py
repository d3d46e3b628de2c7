"""Extents of a model's symbolic dimensions: one, or a range for all of which kernels are made."""

from __future__ import annotations

from collections.abc import Mapping

#: One extent; a range such as ``range(1, 513)`` or ``range(64, 2049, 64)``; or text as the command
#: line takes it, such as ``"1..512"`` or ``"64..2048:64"``.
Extents = int | range | str


def texts(dims: Mapping[str, Extents] | None) -> list[tuple[str, str]]:
    """Dimensions with their extents as the command line has them."""
    return [(name, _text(name, extents)) for name, extents in (dims or {}).items()]


def _text(name: str, extents: Extents) -> str:
    if isinstance(extents, str):
        return extents
    if not isinstance(extents, range):
        return str(int(extents))
    if len(extents) == 0 or extents.step < 1 or extents[0] % extents.step:
        raise ValueError(
            f"dims[{name!r}]: {extents} must rise, hold an extent, and begin at a multiple of its"
            f" step"
        )
    return f"{extents[0]}..{extents[-1]}:{extents.step}"
