"""An exported network library, as Python opens it: what networks on CPUs and on GPUs have in common.
"""

from __future__ import annotations

import ctypes
import json
import operator
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


class Library:
    """A C library that ``squall export`` wrote to a folder and built."""

    def __init__(self, folder: str | os.PathLike[str], name: str) -> None:
        self.folder = Path(folder)
        self.name = name
        library = self.folder / f"lib{name}.so"
        if not library.exists():
            raise FileNotFoundError(
                f"{library} is not there: export with --build, or run `make` in {self.folder}"
            )
        self._library = ctypes.CDLL(os.fspath(library.resolve()))
        describe = self._function("describe", ctypes.c_char_p)
        #: Tensors, instruction set or architecture, digests, how many kernels were tuned.
        self.description: dict[str, Any] = json.loads(describe())
        self.inputs: list[dict[str, Any]] = self.description["inputs"]
        self.outputs: list[dict[str, Any]] = self.description["outputs"]
        if any("extents" in t for t in self.outputs):
            raise RuntimeError(
                f"{self.name}: the extents of an output depend on the values of the run; the "
                "library's header says how C calls it"
            )
        self._model = ctypes.c_void_p()
        self._error_text = self._function("error_text", ctypes.c_char_p, ctypes.c_int)
        self._close = self._function("close", None, ctypes.c_void_p)
        self._run = self._function(
            "run", ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p
        )
        #: Dimensions over whose extents the library is made; none where all are fixed.
        self._symbols: list[dict[str, Any]] = self.description.get("symbols", [])
        # Size, the tensors, extents if some vary, a pool or a stream.
        count = len(self.inputs) + len(self.outputs) + 2 + bool(self._symbols)
        self._io = ctypes.c_size_t * count
        self._io_bytes = ctypes.sizeof(self._io)
        self._position = {t["name"]: i for i, t in enumerate(self.inputs)}
        self._wanted = [(_dtype(t["type"]), tuple(t["shape"])) for t in self.inputs]
        self._given = [(_dtype(t["type"]), tuple(t["shape"])) for t in self.outputs]

    def _open(self) -> None:
        """Opens the file of weights."""
        opened = self._function("open", ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)
        weights = os.fsencode(self.folder / self.description["weights"]["file"])
        self._check(opened(ctypes.byref(self._model), weights))
        bytes_of = self._function("workspace_bytes", ctypes.c_size_t, ctypes.c_void_p)
        self._workspace_bytes = bytes_of(self._model)

    def _function(self, name: str, result: Any, *arguments: Any) -> Any:
        function = getattr(self._library, f"{self.name}_{name}")
        function.restype, function.argtypes = result, arguments
        return function

    def _check(self, code: int) -> None:
        if code:
            raise RuntimeError(f"{self.name}: {self._error_text(code).decode()}")

    def export(self, out: str | os.PathLike[str]) -> Path:
        """Copies the library with its sources, header and weights into a new folder."""
        return Path(shutil.copytree(self.folder, out))

    def _ordered(self, arrays: tuple[Any, ...], named: Mapping[str, Any]) -> tuple[Any, ...]:
        """The inputs in the model's order."""
        names = [t["name"] for t in self.inputs]
        if len(arrays) > len(names):
            raise TypeError(f"{len(arrays)} arrays for {len(names)} inputs: {', '.join(names)}")
        found = dict(zip(names, arrays))
        for name, array in named.items():
            if name not in self._position:
                raise TypeError(f"there is no input {name!r}; there are {', '.join(names)}")
            if name in found:
                raise TypeError(f"input {name!r} is given twice")
            found[name] = array
        missing = [n for n in names if n not in found]
        if missing:
            raise TypeError(f"inputs are missing: {', '.join(missing)}")
        return tuple(found[n] for n in names)

    def _array(self, numpy: Any, given: Any, i: int) -> Any:
        """An input as a C-contiguous numpy array, without a copy where it is one."""
        dtype, shape = self._wanted[i]
        array = given
        if not isinstance(given, numpy.ndarray):
            if hasattr(given, "__dlpack__"):
                if getattr(given, "requires_grad", False):
                    given = given.detach()
                array = numpy.from_dlpack(given)
            else:
                array = numpy.asarray(given)
        # Extents that vary are looked at by `_at`, all together.
        fits = array.shape == shape or (self._symbols and array.ndim == len(shape))
        if array.dtype == dtype and fits and array.flags.c_contiguous:
            return array
        name = self.inputs[i]["name"]
        if array.dtype != dtype:
            raise TypeError(
                f"input {name!r} is {dtype.name}, the array given {array.dtype!s}: convert it with"
                f" .astype({dtype.name!r})"
            )
        if not fits:
            wanted = shape if not self._symbols else self._shape_text(self.inputs[i])
            raise ValueError(f"input {name!r} has shape {wanted}, the array given {array.shape}")
        return numpy.ascontiguousarray(array)

    def _at(self, arrays: list[Any]) -> tuple[Any, list[tuple[Any, tuple[int, ...]]]]:
        """The extents of the symbols in these inputs, and types and shapes of the outputs."""
        found: dict[str, int] = {}
        for tensor, array in zip(self.inputs, arrays):
            # An axis that is a symbol itself says its extent.
            found.update((a, n) for a, n in zip(tensor["axes"], array.shape) if a not in found)
        extents = []
        for i, symbol in enumerate(self._symbols):
            least, most, multiple = symbol["least"], symbol["most"], symbol["multiple"]
            # A symbol that no axis is has its least extent.
            extent = found.get(f"s{i}", -(-least // multiple) * multiple)
            if not least <= extent <= most or extent % multiple:
                of = f" in multiples of {multiple}" if multiple > 1 else ""
                raise ValueError(
                    f"{symbol['name']} is {extent}, and the network takes {least} to {most}{of}"
                )
            extents.append(extent)
        for tensor, array in zip(self.inputs, arrays):
            shape = tuple(_value(axis, extents) for axis in tensor["axes"])
            if array.shape != shape:
                at = ", ".join(f"{s['name']}={n}" for s, n in zip(self._symbols, extents))
                raise ValueError(
                    f"input {tensor['name']!r} has shape {shape} at {at}, the array given"
                    f" {array.shape}"
                )
        shapes = (tuple(_value(axis, extents) for axis in t["axes"]) for t in self.outputs)
        given = [(dtype, shape) for (dtype, _), shape in zip(self._given, shapes)]
        return (ctypes.c_int64 * len(extents))(*extents), given

    def _shape_text(self, tensor: dict[str, Any]) -> str:
        """A shape with symbols by their names; a formula of some stands as its largest value."""
        if "axes" not in tensor:
            return str(tensor["shape"])
        names = {f"s{i}": s["name"] for i, s in enumerate(self._symbols)}
        pairs = zip(tensor["axes"], tensor["shape"])
        return f"[{', '.join(names.get(a) or (a if a.isdigit() else f'<={n}') for a, n in pairs)}]"

    def _returned(self, results: list[Any], arrays: tuple[Any, ...]) -> Any:
        torch = sys.modules.get("torch")
        # A module that another thread is importing has no tensors yet.
        if torch is not None and any(isinstance(a, getattr(torch, "Tensor", ())) for a in arrays):
            results = [torch.from_numpy(r) for r in results]
        return self._named(results)

    def _named(self, results: list[Any]) -> Any:
        if len(results) == 1:
            return results[0]
        return {t["name"]: r for t, r in zip(self.outputs, results)}

    def __repr__(self) -> str:
        def tensors(all_: list[dict[str, Any]]) -> str:
            return ", ".join(f"{t['name']}: {t['type']}{self._shape_text(t)}" for t in all_)

        return f"{type(self).__name__}({tensors(self.inputs)} -> {tensors(self.outputs)})"

    def __del__(self) -> None:
        model = getattr(self, "_model", None)
        if model:
            self._close(model)
            self._model = ctypes.c_void_p()


# Looked up once, not at each call of a network.
_address_of = ctypes.addressof
_lent = ctypes.c_char.from_buffer


def address(array: Any) -> int:
    """Where the elements of a C-contiguous numpy array lie.

    The buffer protocol takes a quarter of the time of numpy's own ``ctypes.data``, but refuses
    arrays that are read-only or empty.
    """
    try:
        return _address_of(_lent(array))
    except (TypeError, ValueError, BufferError):
        return array.__array_interface__["data"][0]


#: What the words of a formula do; a quotient is rounded down.
_OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.floordiv,
    "<": operator.lt,
}


def _value(formula: str, extents: list[int]) -> int:
    """The value of an axis' formula in postfix, where `s0` is the first symbol's extent."""
    stack: list[int] = []
    for word in formula.split():
        if word in _OPERATIONS:
            last = stack.pop()
            stack.append(int(_OPERATIONS[word](stack.pop(), last)))
        else:
            stack.append(extents[int(word[1:])] if word[0] == "s" else int(word))
    return stack.pop()


def _dtype(name: str) -> Any:
    """A type as numpy has it, in the byte order of this machine."""
    import numpy

    return numpy.dtype(name)
