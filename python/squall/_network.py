"""Whole models: a network that leaves as a C library, and is called through that library.

The extension module holds no kernel: what runs here is what ``squall export --network`` writes for
others.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from squall import _squall

_OWN_NAME = "network"


class Network:
    """A model that can be called with arrays.

    ``network(x)`` takes the inputs in the model's order, ``network(ids=.., mask=..)`` by name:
    numpy arrays, or anything with ``__dlpack__`` on the CPU (a torch tensor, a jax array). C-contiguous
    arrays are not copied. One output comes as an array, several as a dictionary by name; torch
    tensors come back where torch tensors went in. Threads may share a network.
    """

    def __init__(self, folder: str | os.PathLike[str], name: str = _OWN_NAME) -> None:
        """Opens a library that was exported to ``folder`` under ``name``, and built."""
        self.folder = Path(folder)
        self.name = name
        library = self.folder / f"lib{name}.so"
        if not library.exists():
            raise FileNotFoundError(
                f"{library} is not there: export with --build, or run `make` in {self.folder}"
            )
        self._library = ctypes.CDLL(os.fspath(library.resolve()))
        describe = self._function("describe", ctypes.c_char_p)
        #: Tensors, instruction set, digests, how many kernels were tuned.
        self.description: dict[str, Any] = json.loads(describe())
        self.inputs: list[dict[str, Any]] = self.description["inputs"]
        self.outputs: list[dict[str, Any]] = self.description["outputs"]
        self._model = ctypes.c_void_p()
        self._error_text = self._function("error_text", ctypes.c_char_p, ctypes.c_int)
        self._close = self._function("close", None, ctypes.c_void_p)
        self._run = self._function(
            "run", ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p
        )
        opened = self._function("open", ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)
        weights = os.fsencode(self.folder / self.description["weights"]["file"])
        self._check(opened(ctypes.byref(self._model), weights))
        bytes_of = self._function("workspace_bytes", ctypes.c_size_t, ctypes.c_void_p)
        self._workspace_bytes = bytes_of(self._model)
        self._free: list[tuple[Any, int]] = []
        self._lock = threading.Lock()
        # Size, the tensors, no pool.
        self._io = ctypes.c_size_t * (len(self.inputs) + len(self.outputs) + 2)
        self._io_bytes = ctypes.sizeof(self._io)
        self._position = {t["name"]: i for i, t in enumerate(self.inputs)}
        self._wanted = [(_dtype(t["type"]), tuple(t["shape"])) for t in self.inputs]
        self._given = [(_dtype(t["type"]), tuple(t["shape"])) for t in self.outputs]

    def _function(self, name: str, result: Any, *arguments: Any) -> Any:
        function = getattr(self._library, f"{self.name}_{name}")
        function.restype, function.argtypes = result, arguments
        return function

    def _check(self, code: int) -> None:
        if code:
            raise RuntimeError(f"{self.name}: {self._error_text(code).decode()}")

    def __call__(self, *arrays: Any, **named: Any) -> Any:
        import numpy

        if named or len(arrays) != len(self.inputs):
            arrays = self._ordered(arrays, named)
        # The arrays live until the call is over: pointers do not keep them.
        held = [self._array(numpy, x, i) for i, x in enumerate(arrays)]
        results = [numpy.empty(shape, dtype) for dtype, shape in self._given]
        pointers = [a.__array_interface__["data"][0] for a in (*held, *results)]
        io = self._io(self._io_bytes, *pointers, 0)
        workspace = self._workspace()
        try:
            code = self._run(self._model, io, workspace[1])
        finally:
            with self._lock:
                self._free.append(workspace)
        self._check(code)
        return self._returned(results, arrays)

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
        if array.dtype == dtype and array.shape == shape and array.flags.c_contiguous:
            return array
        name = self.inputs[i]["name"]
        if array.dtype != dtype:
            raise TypeError(
                f"input {name!r} is {dtype.name}, the array given {array.dtype!s}: convert it with"
                f" .astype({dtype.name!r})"
            )
        if array.shape != shape:
            raise ValueError(f"input {name!r} has shape {shape}, the array given {array.shape}")
        return numpy.ascontiguousarray(array)

    def _workspace(self) -> tuple[Any, int]:
        """A workspace that no other call uses, and its first aligned address."""
        with self._lock:
            if self._free:
                return self._free.pop()
        memory = ctypes.create_string_buffer(self._workspace_bytes + 63)
        return memory, (ctypes.addressof(memory) + 63) & ~63

    def _returned(self, results: list[Any], arrays: tuple[Any, ...]) -> Any:
        if any(type(a).__module__.partition(".")[0] == "torch" for a in arrays):
            results = [sys.modules["torch"].from_numpy(r) for r in results]
        if len(results) == 1:
            return results[0]
        return {t["name"]: r for t, r in zip(self.outputs, results)}

    def __repr__(self) -> str:
        def tensors(all_: list[dict[str, Any]]) -> str:
            return ", ".join(f"{t['name']}: {t['type']}{t['shape']}" for t in all_)

        return f"Network({tensors(self.inputs)} -> {tensors(self.outputs)})"

    def __del__(self) -> None:
        model = getattr(self, "_model", None)
        if model:
            self._close(model)
            self._model = ctypes.c_void_p()


def _dtype(name: str) -> Any:
    """A type as numpy has it, in the byte order of this machine."""
    import numpy

    return numpy.dtype(name)


def export(
    model: str | os.PathLike[str],
    out: str | os.PathLike[str],
    name: str = _OWN_NAME,
    *,
    store: str | os.PathLike[str] | None = None,
    dims: Mapping[str, int] | None = None,
    target: str = "cpu",
    threads: int = 1,
    predictor: str | os.PathLike[str] | None = None,
    onnxruntime: bool = False,
    progress: Callable[[dict[str, Any]], object] | None = None,
) -> dict[str, Any]:
    """Writes a model as a C library into a folder and builds it, as ``squall export --network`` does.

    Kernels are the best of ``store``; those that were never tuned are verified guesses. Gives the
    library's description. ``progress`` is called with events; trouble is warned of without one.
    """
    options = {
        "model": os.fspath(model),
        "name": name,
        "out": os.fspath(out),
        "store": None if store is None else os.fspath(store),
        "dims": list((dims or {}).items()),
        "target": target,
        "threads": threads,
        "predictor": None if predictor is None else os.fspath(predictor),
        "onnxruntime": onnxruntime,
    }

    def listen(line: str) -> None:
        event = json.loads(line)
        if progress is not None:
            progress(event)
        elif event["event"] == "trouble":
            warnings.warn(event["text"], stacklevel=4)

    description, ended = _squall.export(options, listen)
    if ended is not None:
        raise ended
    return json.loads(description)


def compile(
    model: str | os.PathLike[str],
    *,
    folder: str | os.PathLike[str] | None = None,
    **arguments: Any,
) -> Network:
    """A model as a callable network.

    The library is written to ``folder``, or to a temporary one that lives as long as the network;
    the other arguments are those of :func:`export`. Compiled kernels and guesses are kept in the
    user's cache, as those of ``squall run`` are, so that the second time is fast.
    """
    temporary = None
    if folder is None:
        temporary = tempfile.TemporaryDirectory(prefix="squall-network-")
        folder = temporary.name
    export(model, folder, _OWN_NAME, **arguments)
    network = Network(folder)
    network._temporary = temporary  # type: ignore[attr-defined]
    return network
