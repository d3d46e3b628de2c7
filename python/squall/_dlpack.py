"""Tensors in memory of NVIDIA GPUs, as DLPack hands them from one package to another: what torch, cupy
and jax give, and arrays of Squall's own. The layout is that of dlpack.h, version 0.8.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import Any

CUDA = 2
#: Codes of types, and numpy's letters for them; bfloat16 has none.
_LETTERS = {0: "i", 1: "u", 2: "f", 6: "b"}


class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _DLManagedTensor(ctypes.Structure):
    pass


_Deleter = ctypes.CFUNCTYPE(None, ctypes.POINTER(_DLManagedTensor))
_DLManagedTensor._fields_ = [
    ("dl_tensor", _DLTensor),
    ("manager_ctx", ctypes.c_void_p),
    ("deleter", _Deleter),
]

_NAME = b"dltensor"
_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.restype, _is_valid.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.c_char_p]
_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


def is_on_gpu(array: Any) -> bool:
    """Whether an array says that it lies in memory of an NVIDIA GPU."""
    device = getattr(array, "__dlpack_device__", None)
    return device is not None and device()[0] == CUDA


class Borrowed:
    """A tensor on a GPU for as long as this object lives; its capsule keeps the memory."""

    def __init__(self, array: Any, stream: int) -> None:
        """Asks for the tensor's content to be there for ``stream`` (0: the default one)."""
        #: A capsule that nobody consumes lets its tensor go by itself.
        self._capsule = array.__dlpack__(stream=stream or 1)
        held = _DLManagedTensor.from_address(_pointer_of(self._capsule, _NAME))
        t = held.dl_tensor
        self.device: int = t.device_id
        self.shape = tuple(t.shape[i] for i in range(t.ndim))
        letter = _LETTERS.get(t.code) if t.lanes == 1 else None
        #: numpy's name of the type; ``?`` where numpy has none.
        self.dtype = "?" if letter is None else f"{letter}{t.bits // 8}"
        self.pointer: int = (t.data or 0) + t.byte_offset
        self.is_dense = not t.strides or _is_dense(self.shape, [t.strides[i] for i in range(t.ndim)])


def _is_dense(shape: tuple[int, ...], strides: list[int]) -> bool:
    """Whether elements lie side by side in row-major order; axes of one element may say anything."""
    step = 1
    for extent, stride in zip(reversed(shape), reversed(strides)):
        if extent != 1 and stride != step:
            return False
        step *= extent
    return True


#: What consumers of our tensors hold, by the address of its structure.
_lent: dict[int, Any] = {}


@_Deleter
def _let_go(managed: Any) -> None:
    _lent.pop(ctypes.addressof(managed.contents), None)


#: Capsules that were handed out. A destructor in Python may run while an error is pending, and would
#: lose it: so the next capsule lets those go that no consumer took.
_handed: list[Any] = []


def _let_unused_go() -> None:
    kept = []
    while _handed:
        capsule = _handed.pop()
        # A consumer renames a capsule that it takes, and calls the deleter.
        if not _is_valid(capsule, _NAME):
            continue
        # This variable and the call's argument alone hold one that nobody else does.
        if sys.getrefcount(capsule) > 2:
            kept.append(capsule)
        else:
            _lent.pop(_pointer_of(capsule, _NAME), None)
    _handed.extend(kept)


class GpuArray:
    """A dense array in memory of a GPU, which other packages take by DLPack: ``torch.from_dlpack(x)``,
    ``cupy.from_dlpack(x)``, ``jax.dlpack.from_dlpack(x)``; ``x.numpy()`` copies it to the host.
    """

    def __init__(
        self,
        pointer: int,
        shape: tuple[int, ...],
        dtype: Any,
        device: int,
        owner: Any,
        copy: Callable[[GpuArray], Any],
    ) -> None:
        """``owner`` keeps the memory; ``copy`` gives the content as a numpy array."""
        self.pointer, self.shape, self.dtype, self.device = pointer, shape, dtype, device
        self._owner, self._copy = owner, copy

    def numpy(self) -> Any:
        """The content as a numpy array."""
        return self._copy(self)

    def __dlpack_device__(self) -> tuple[int, int]:
        return CUDA, self.device

    def __dlpack__(self, *, stream: int | None = None, **_: Any) -> Any:
        """Its content is there already: what writes it has been awaited."""
        kinds = {letter: code for code, letter in _LETTERS.items()}
        if self.dtype.kind not in kinds:
            raise BufferError(f"DLPack hands no {self.dtype.name} on")
        _let_unused_go()
        shape = (ctypes.c_int64 * len(self.shape))(*self.shape)
        managed = _DLManagedTensor()
        t = managed.dl_tensor
        t.data, t.device_type, t.device_id = self.pointer, CUDA, self.device
        t.ndim, t.shape, t.strides = len(self.shape), shape, None
        t.code, t.bits, t.lanes = kinds[self.dtype.kind], 8 * self.dtype.itemsize, 1
        managed.deleter = _let_go
        _lent[ctypes.addressof(managed)] = (managed, shape, self)
        capsule = _new_capsule(ctypes.addressof(managed), _NAME, None)
        _handed.append(capsule)
        return capsule

    def __repr__(self) -> str:
        return f"GpuArray({self.dtype.name}{list(self.shape)}, cuda:{self.device})"
