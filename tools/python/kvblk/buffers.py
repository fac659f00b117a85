# SPDX-License-Identifier: MIT
"""The caller's memory as (address, length), without copies.

A buffer is

- any object with the buffer protocol: bytes (for puts), bytearray, memoryview, mmap, numpy;
- a tensor of torch (``data_ptr()``), on the CPU or a GPU;
- an object with ``__cuda_array_interface__`` or ``__dlpack__``;
- an (address, length) tuple, for which the caller is responsible;
- a slice of registered memory, see :class:`kvblk.Memory`;
- a list of these: a scatter list of up to 1024 pieces.

The memory must be contiguous. Register memory of a GPU first (``Pool.register()``). For a CUDA tensor of torch,
operations wait for torch's current stream. For other libraries the caller must synchronize.
"""

from __future__ import annotations

import ctypes
import operator
import sys
from typing import Any, Callable

from ._native import ffi

#: Any buffer; see the module's docstring.
Buffer = Any
#: (address or offset, length, handle of registered memory or 0, object that keeps the memory alive)
Piece = tuple[int, int, int, Any]


class MemorySlice:
    """A part of registered memory, made by slicing :class:`kvblk.Memory`."""

    __slots__ = ("piece",)

    def __init__(self, piece: Piece):
        self.piece = piece

    @property
    def nbytes(self) -> int:
        return self.piece[1]


def _protocol(buf: Any, write: bool) -> Piece:
    try:
        data = ffi.from_buffer("char[]", buf, require_writable=write)
    except (ValueError, BufferError, TypeError) as e:
        raise TypeError(f"{type(buf).__name__}: {e}") from None
    return int(ffi.cast("uintptr_t", data)), len(data), 0, data


def _torch(buf: Any, write: bool) -> Piece:
    if not buf.is_contiguous():
        raise TypeError(f"{type(buf).__name__} is not contiguous")
    if getattr(buf, "is_cuda", False):
        # neither the kernel nor the library's stream waits for kernels that write or read the tensor
        sys.modules["torch"].cuda.current_stream(buf.device).synchronize()
    return buf.data_ptr(), buf.nbytes, 0, buf


def _array(buf: Any, write: bool) -> Piece:
    """Arrays of numpy whose type the buffer protocol does not support, such as bfloat16."""
    about = buf.__array_interface__
    address, read_only = about["data"]
    if about.get("strides") is not None:
        raise TypeError(f"{type(buf).__name__} is not contiguous")
    if write and read_only:
        raise TypeError(f"{type(buf).__name__} is read-only")
    return address, buf.nbytes, 0, buf


def _cuda_array(buf: Any, write: bool) -> Piece:
    about = buf.__cuda_array_interface__
    if about.get("strides") is not None:
        raise TypeError(f"{type(buf).__name__} is not contiguous")
    address, read_only = about["data"]
    if write and read_only:
        raise TypeError(f"{type(buf).__name__} is read-only")
    length = int(about["typestr"][2:])
    for n in about["shape"]:
        length *= n
    return address, length, 0, buf


class _DLTensor(ctypes.Structure):
    """DLTensor of dlpack.h, the first field of DLManagedTensor."""

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


#: a private prototype, because attributes of ctypes.pythonapi are shared by all modules
_capsule_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi))


def _dlpack(buf: Any, write: bool) -> Piece:
    # the capsule owns the memory, because no consumer takes it over
    capsule = buf.__dlpack__()
    tensor = _DLTensor.from_address(_capsule_pointer(capsule, b"dltensor"))
    if tensor.bits * tensor.lanes % 8:
        raise TypeError(f"{type(buf).__name__} has elements that are not of whole bytes")
    item = length = tensor.bits * tensor.lanes // 8
    for i in reversed(range(tensor.ndim)):
        if tensor.strides and tensor.shape[i] > 1 and tensor.strides[i] * item != length:
            raise TypeError(f"{type(buf).__name__} is not contiguous")
        length *= tensor.shape[i]
    return (tensor.data or 0) + tensor.byte_offset, length, 0, (buf, capsule)


def _raw(buf: Any, write: bool) -> Piece:
    address, length = buf
    return operator.index(address), operator.index(length), 0, None


def _slice(buf: Any, write: bool) -> Piece:
    piece: Piece = buf.piece
    return piece


_ways: dict[type, Callable[[Any, bool], Piece]] = {tuple: _raw, MemorySlice: _slice}


def _way_of(buf: Any) -> Callable[[Any, bool], Piece]:
    kind = type(buf)
    if hasattr(buf, "data_ptr"):
        return _torch
    if hasattr(kind, "piece"):
        return _slice
    try:
        memoryview(buf).release()
        return _protocol
    except (TypeError, ValueError, BufferError):
        pass
    if hasattr(buf, "__array_interface__"):
        return _array
    if hasattr(buf, "__cuda_array_interface__"):
        return _cuda_array
    if hasattr(buf, "__dlpack__"):
        return _dlpack
    raise TypeError(f"{kind.__name__} is no memory: see the module kvblk.buffers")


def piece_of(buf: Buffer, write: bool) -> Piece:
    """Return the memory of one buffer that is not a list."""
    way = _ways.get(type(buf))
    if way is None:
        way = _ways[type(buf)] = _way_of(buf)
    return way(buf, write)
