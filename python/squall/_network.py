"""Whole models: a network that leaves as a C library, and is called through that library.

The extension module holds no kernel: what runs here is what ``squall export --network`` writes for
others.
"""

from __future__ import annotations

import ctypes
import json
import os
import tempfile
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from squall import _squall
from squall._dimensions import Extents, texts
from squall._gpu import GpuNetwork
from squall._library import Library, address

_OWN_NAME = "network"


class Network(Library):
    """A model that can be called with arrays.

    ``network(x)`` takes the inputs in the model's order, ``network(ids=.., mask=..)`` by name:
    numpy arrays, or anything with ``__dlpack__`` on the CPU (a torch tensor, a jax array). C-contiguous
    arrays are not copied. One output comes as an array, several as a dictionary by name; torch
    tensors come back where torch tensors went in. Threads may share a network.
    """

    def __init__(self, folder: str | os.PathLike[str], name: str = _OWN_NAME) -> None:
        """Opens a library that was exported to ``folder`` under ``name``, and built."""
        super().__init__(folder, name)
        if "architecture" in self.description:
            raise ValueError(f"{self.folder} holds a network for GPUs: squall.GpuNetwork opens it")
        self._open()
        # What one call at a time uses: a call takes the last one and puts it back, both of which
        # are atomic for a list, so that threads need no lock.
        self._free: list[tuple[Any, int, Any, int]] = []

    def __call__(self, *arrays: Any, **named: Any) -> Any:
        import numpy

        if named or len(arrays) != len(self.inputs):
            arrays = self._ordered(arrays, named)
        # The arrays live until the call is over: pointers do not keep them.
        held = [self._array(numpy, x, i) for i, x in enumerate(arrays)]
        extents, given = (None, self._given) if not self._symbols else self._at(held)
        results = [numpy.empty(shape, dtype) for dtype, shape in given]
        try:
            slot = self._free.pop()
        except IndexError:
            slot = self._slot()
        io = slot[2]
        for i, array in enumerate((*held, *results), 1):
            io[i] = address(array)
        if extents is not None:
            io[1 + len(held) + len(results)] = ctypes.addressof(extents)
        try:
            code = self._run(self._model, slot[3], slot[1])
        finally:
            self._free.append(slot)
        self._check(code)
        return self._returned(results, arrays)

    def _slot(self) -> tuple[Any, int, Any, int]:
        """A workspace and its first aligned address, the list of tensors' addresses and its own."""
        memory = ctypes.create_string_buffer(self._workspace_bytes + 63)
        io = self._io(self._io_bytes)
        return memory, (ctypes.addressof(memory) + 63) & ~63, io, ctypes.addressof(io)


def export(
    model: str | os.PathLike[str],
    out: str | os.PathLike[str],
    name: str = _OWN_NAME,
    *,
    store: str | os.PathLike[str] | None = None,
    dims: Mapping[str, Extents] | None = None,
    target: str = "cpu",
    precision: str | None = None,
    threads: int = 1,
    predictor: str | os.PathLike[str] | None = None,
    onnxruntime: bool = False,
    progress: Callable[[dict[str, Any]], object] | None = None,
) -> dict[str, Any]:
    """Writes a model as a C library into a folder and builds it, as ``squall export --network`` does.

    Kernels are the best of ``store``; those that were never tuned are verified guesses. Gives the
    library's description. ``dims`` gives symbolic dimensions of the model their extents: a number,
    or a range for all of whose extents the one library is made, such as ``range(1, 513)`` or, as
    the command line has it, ``"1..512"``. ``progress`` is called with events; trouble is warned of without one.
    """
    options = {
        "model": os.fspath(model),
        "name": name,
        "out": os.fspath(out),
        "store": None if store is None else os.fspath(store),
        "dims": texts(dims),
        "target": target,
        "precision": precision,
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
    target: str = "cpu",
    **arguments: Any,
) -> Network | GpuNetwork:
    """A model as a callable network; with ``target="cuda"`` (or ``"cuda:1"``) one on a GPU.

    The library is written to ``folder``, or to a temporary one that lives as long as the network;
    the other arguments are those of :func:`export`. Compiled kernels and guesses are kept in the
    user's cache, as those of ``squall run`` are, so that the second time is fast.
    """
    kind, _, number = target.partition(":")
    if kind == "cuda" and not (number or "0").isdigit():
        raise ValueError(f"target={target!r}: a network runs on one GPU, such as 'cuda:0'")
    temporary = None
    if folder is None:
        temporary = tempfile.TemporaryDirectory(prefix="squall-network-")
        folder = temporary.name
    export(model, folder, _OWN_NAME, target=target, **arguments)
    network: Network | GpuNetwork
    if kind == "cuda":
        network = GpuNetwork(folder, device=int(number or 0))
    else:
        network = Network(folder)
    network._temporary = temporary  # type: ignore[union-attr]
    return network
