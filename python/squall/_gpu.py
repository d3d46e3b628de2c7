"""Networks on NVIDIA GPUs: a library that ``squall export --target cuda`` wrote, called with tensors in
device memory (by DLPack) or with arrays of the host, which are copied there and back.
"""

from __future__ import annotations

import ctypes
import math
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from squall._dlpack import Borrowed, GpuArray, is_on_gpu
from squall._library import Library, address

_ALIGNMENT = 256
_NON_BLOCKING = 1


class _Driver:
    """The part of CUDA's driver that is needed, found where the exported library finds it."""

    def __init__(self) -> None:
        library = os.environ.get("SQUALL_LIBCUDA") or "libcuda.so.1"
        try:
            # Global: an exported library looks among what its process has loaded first.
            self._cuda = ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
        except OSError as e:
            raise RuntimeError(f"CUDA cannot be used: no NVIDIA driver ({e})") from e
        self._contexts: dict[int, ctypes.c_void_p] = {}
        # Memory may be freed by a collection in the middle of `using`.
        self._lock = threading.RLock()

    def call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._cuda, name)(*arguments)
        if code:
            text = ctypes.c_char_p()
            self._cuda.cuGetErrorString(code, ctypes.byref(text))
            raise RuntimeError(f"CUDA: {(text.value or b'an error').decode()} ({name}: {code})")

    @contextmanager
    def using(self, device: int) -> Iterator[None]:
        """The device's primary context, which torch and cupy use as well, is this thread's."""
        with self._lock:
            if device not in self._contexts:
                self.call("cuInit", 0)
                number, context = ctypes.c_int(), ctypes.c_void_p()
                self.call("cuDeviceGet", ctypes.byref(number), device)
                self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), number)
                self._contexts[device] = context
            context = self._contexts[device]
        before = ctypes.c_void_p()
        self.call("cuCtxGetCurrent", ctypes.byref(before))
        if before.value == context.value:
            yield
            return
        self.call("cuCtxSetCurrent", context)
        try:
            yield
        finally:
            if before.value:
                self.call("cuCtxSetCurrent", before)


_driver: _Driver | None = None


def _the_driver() -> _Driver:
    global _driver
    if _driver is None:
        _driver = _Driver()
    return _driver


class _Memory:
    """Device memory, which goes when nothing holds it any more."""

    def __init__(self, device: int, size: int) -> None:
        self._driver, self._device = _the_driver(), device
        self._at = ctypes.c_uint64()
        with self._driver.using(device):
            self._driver.call("cuMemAlloc_v2", ctypes.byref(self._at), ctypes.c_size_t(max(size, 1)))
        self.pointer: int = self._at.value

    def __del__(self) -> None:
        if getattr(self, "pointer", 0) and not sys.is_finalizing():
            with self._driver.using(self._device):
                self._driver.call("cuMemFree_v2", self._at)


def _rounded(size: int) -> int:
    return (size + _ALIGNMENT - 1) // _ALIGNMENT * _ALIGNMENT


class _Slot:
    """A stream with memory for a call's tensors and workspace: what calls with the host's arrays use."""

    def __init__(self, device: int, sizes: list[int], workspace: int) -> None:
        self._driver = driver = _the_driver()
        self._device = device
        self._memory = _Memory(device, _rounded(workspace) + sum(map(_rounded, sizes)))
        self.workspace = self._memory.pointer
        self.pointers = []
        at = self.workspace + _rounded(workspace)
        for size in sizes:
            self.pointers.append(at)
            at += _rounded(size)
        self.stream = ctypes.c_void_p()
        with driver.using(device):
            driver.call("cuStreamCreate", ctypes.byref(self.stream), _NON_BLOCKING)

    def __del__(self) -> None:
        if getattr(self, "stream", None) and not sys.is_finalizing():
            with self._driver.using(self._device):
                self._driver.call("cuStreamDestroy_v2", self.stream)


class GpuNetwork(Library):
    """A model on a GPU that can be called with tensors.

    Tensors in device memory (of torch, cupy, jax, or anything with ``__dlpack__``) stay on the device:
    work is put on the caller's current stream and not awaited, and results are tensors of the same
    package (:class:`GpuArray` where it is none of these). numpy arrays are copied to the device, and
    numpy arrays come back. Threads may share a network. Kernels read inputs and write results where
    they lie, without a copy, but for an input whose address is no multiple of 16 bytes or that is
    itself an output: let no other stream write an input before the call's stream is done. A
    captured graph holds the addresses of its call's tensors, and the workspace of the stream that
    it was captured on: keep those tensors, and do not replay it beside calls on that stream.

    A model that looks values up by numbers that it is given (Gather) can refuse its input. With arrays of
    the host that is an error of the call, with tensors in device memory one of :meth:`synchronize`.
    """

    def __init__(self, folder: str | os.PathLike[str], name: str = "network", device: int = 0) -> None:
        """Opens a library that was exported to ``folder`` for a GPU under ``name``, and built."""
        super().__init__(folder, name)
        if "architecture" not in self.description:
            raise ValueError(f"{self.folder} holds a network for CPUs: squall.Network opens it")
        self.device = device
        self._driver = driver = _the_driver()
        self._finish = self._function("finish", ctypes.c_int, *[ctypes.c_void_p] * 3)
        with driver.using(device):
            self._open()
        self._sizes = [math.prod(shape) * d.itemsize for d, shape in self._wanted + self._given]
        self._free: list[_Slot] = []
        #: Runs of one stream are in order, so that they share a workspace; its memory, the stream's
        #: handle, and what keeps the stream.
        self._workspaces: dict[tuple[int, int], tuple[_Memory, int, Any]] = {}
        self._lock = threading.Lock()

    def __call__(self, *arrays: Any, **named: Any) -> Any:
        if named or len(arrays) != len(self.inputs):
            arrays = self._ordered(arrays, named)
        on_gpu = [is_on_gpu(a) for a in arrays]
        if any(on_gpu):
            if not all(on_gpu):
                name = self.inputs[on_gpu.index(False)]["name"]
                raise ValueError(f"input {name!r} lies on the host and others on the GPU")
            return self._on_gpu(arrays)
        return self._from_host(arrays)

    def synchronize(self) -> None:
        """Waits for all calls; an error where the last one of a stream refused its input."""
        with self._lock, self._driver.using(self.device):
            codes = [
                self._finish(self._model, memory.pointer, stream)
                for memory, stream, _ in self._workspaces.values()
            ]
        for code in codes:
            self._check(code)

    def __del__(self) -> None:
        # Modules and weights go in their own context, when nothing runs any more.
        if getattr(self, "_model", None) and not sys.is_finalizing():
            with self._driver.using(self.device):
                for _, stream, _ in getattr(self, "_workspaces", {}).values():
                    self._driver.call("cuStreamSynchronize", ctypes.c_void_p(stream))
                super().__del__()

    def _launch(self, pointers: list[int], workspace: int, stream: int | None) -> None:
        self._check(self._run(self._model, self._io(self._io_bytes, *pointers, stream or 0), workspace))

    def _from_host(self, arrays: tuple[Any, ...]) -> Any:
        import numpy

        held = [self._array(numpy, x, i) for i, x in enumerate(arrays)]
        results = [numpy.empty(shape, dtype) for dtype, shape in self._given]
        with self._lock:
            slot = self._free.pop() if self._free else None
        if slot is None:
            slot = _Slot(self.device, self._sizes, self._workspace_bytes)
        call = self._driver.call
        with self._driver.using(self.device):
            for array, at in zip(held, slot.pointers):
                size = ctypes.c_size_t(array.nbytes)
                call("cuMemcpyHtoDAsync_v2", ctypes.c_uint64(at), _host(array), size, slot.stream)
            self._launch(slot.pointers, slot.workspace, slot.stream.value)
            self._check(self._finish(self._model, slot.workspace, slot.stream))
            for array, at in zip(results, slot.pointers[len(held) :]):
                size = ctypes.c_size_t(array.nbytes)
                call("cuMemcpyDtoHAsync_v2", _host(array), ctypes.c_uint64(at), size, slot.stream)
            call("cuStreamSynchronize", slot.stream)
        # A slot of a call that failed is not used again: its stream may still write.
        with self._lock:
            self._free.append(slot)
        return self._returned(results, arrays)

    def _on_gpu(self, arrays: tuple[Any, ...]) -> Any:
        package = _package(arrays[0])
        stream, keeper = _current_stream(package, self.device)
        # The default stream of each thread has one handle.
        key = (stream, threading.get_ident() if stream == _OF_THREAD else 0)
        held = [Borrowed(a, stream) for a in arrays]
        for i, h in enumerate(held):
            self._fits(h, i)
        results, pointers = self._results(package)
        with self._lock, self._driver.using(self.device):
            if key not in self._workspaces:
                memory = _Memory(self.device, self._workspace_bytes)
                self._workspaces[key] = (memory, stream, keeper)
            workspace = self._workspaces[key][0].pointer
            self._launch([*(h.pointer for h in held), *pointers], workspace, stream)
            if package not in _STREAMS:
                # Other packages may use the inputs' memory anew on streams that ours does not know.
                self._check(self._finish(self._model, workspace, stream))
        if package == "jax":
            results = [sys.modules["jax"].dlpack.from_dlpack(r) for r in results]
        return self._named(results)

    def _fits(self, given: Borrowed, i: int) -> None:
        dtype, shape = self._wanted[i]
        name = self.inputs[i]["name"]
        if given.dtype != f"{dtype.kind}{dtype.itemsize}":
            raise TypeError(f"input {name!r} is {dtype.name}, and the tensor given is not")
        if given.shape != shape:
            raise ValueError(f"input {name!r} has shape {shape}, the tensor given {given.shape}")
        if given.device != self.device:
            raise ValueError(
                f"the network is on cuda:{self.device}, input {name!r} on cuda:{given.device}"
            )
        if not given.is_dense:
            raise ValueError(f"input {name!r} is not contiguous: give it as .contiguous()")

    def _results(self, package: str) -> tuple[list[Any], list[int]]:
        """Tensors for the results, of the caller's package, and where they lie."""
        if package == "torch":
            torch = sys.modules["torch"]
            tensors = [
                torch.empty(shape, dtype=getattr(torch, d.name), device=f"cuda:{self.device}")
                for d, shape in self._given
            ]
            return tensors, [t.data_ptr() for t in tensors]
        if package == "cupy":
            cupy = sys.modules["cupy"]
            with cupy.cuda.Device(self.device):
                arrays = [cupy.empty(shape, d) for d, shape in self._given]
            return arrays, [a.data.ptr for a in arrays]
        own = [self._own_array(shape, d) for d, shape in self._given]
        return own, [a.pointer for a in own]

    def _own_array(self, shape: tuple[int, ...], dtype: Any) -> GpuArray:
        memory = _Memory(self.device, math.prod(shape) * dtype.itemsize)
        return GpuArray(memory.pointer, shape, dtype, self.device, memory, self._copied)

    def to_gpu(self, array: Any) -> GpuArray:
        """A copy of a numpy array in the memory of the network's GPU."""
        import numpy

        array = numpy.asarray(array, order="C")
        made = self._own_array(array.shape, array.dtype)
        with self._driver.using(self.device):
            size = ctypes.c_size_t(array.nbytes)
            self._driver.call("cuMemcpyHtoD_v2", ctypes.c_uint64(made.pointer), _host(array), size)
            self._driver.call("cuStreamSynchronize", None)
        return made

    def _copied(self, array: GpuArray) -> Any:
        import numpy

        found = numpy.empty(array.shape, array.dtype)
        with self._driver.using(self.device):
            size = ctypes.c_size_t(found.nbytes)
            self._driver.call("cuMemcpyDtoH_v2", _host(found), ctypes.c_uint64(array.pointer), size)
        return found


def _host(array: Any) -> ctypes.c_void_p:
    return ctypes.c_void_p(address(array))


def _package(array: Any) -> str:
    """The package that made an array; jax's arrays come from jaxlib."""
    name = type(array).__module__.partition(".")[0]
    return "jax" if name == "jaxlib" else name


#: Packages that work on a current stream, and free memory in the order of it.
_STREAMS = ("torch", "cupy")


#: CUDA's handle of the default stream of whatever thread uses it.
_OF_THREAD = 2


def _current_stream(package: str, device: int) -> tuple[int, Any]:
    """The stream on which a package works at present, and what keeps it; the default one where the
    package has none."""
    if package == "torch":
        stream = sys.modules["torch"].cuda.current_stream(device)
        return stream.cuda_stream, stream
    if package == "cupy":
        stream = sys.modules["cupy"].cuda.get_current_stream()
        return stream.ptr, stream
    return 0, None
