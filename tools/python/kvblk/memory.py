# SPDX-License-Identifier: MIT
"""Memory registered with a pool."""

from __future__ import annotations

import ctypes
import functools
from typing import TYPE_CHECKING, Any, NamedTuple

from . import buffers
from ._native import ffi, lib
from .errors import check
from .process import OfProcess

if TYPE_CHECKING:
    from .pool import Pool

#: Pool handle of each registered memory, which keeps the pool open longer than the memory. A pool and registered memory
#: form a reference cycle, and the collector finalizes a cycle in any order. Objects reachable from a module are not
#: collected.
alive: dict[int, Any] = {}


def _unregister(number: int, process: OfProcess, keep: Any, handle: Any) -> None:
    """Unregister memory when its last user is gone; ``keep`` keeps the buffer alive until then."""
    pool = alive.pop(number, None)
    # in a child of fork() the parent owns the memory
    if not process.inherited:
        lib.kvblk_mem_unregister(handle)
    del pool


class Memory(OfProcess):
    """Memory registered with a pool: pinned once, or of a GPU. ``memory[a:b]`` is a buffer for puts and gets.

    A buffer within registered memory uses the registration automatically. ``close()`` unregisters the memory once no
    slice, view or operation in flight uses it. Closing the pool closes all its memory.
    """

    KINDS = {1: "registered", 2: "addressed", 3: "staged"}

    def __init__(self, pool: Pool, handle: Any, address: int, length: int, keep: Any, readable: bool = True):
        super().__init__()
        self._pool = pool
        self.number = int(ffi.cast("uintptr_t", handle))
        alive[self.number] = pool.handle
        self.handle: Any = ffi.gc(handle, functools.partial(_unregister, self.number, OfProcess(), keep))
        self._readable = readable
        self.address = address
        self.nbytes = length

    def _open(self) -> Any:
        self.check_process()
        handle = self.handle
        if handle is None:
            raise ValueError("the memory is closed")
        return handle

    @property
    def kind(self) -> str:
        """How operations reach the memory: "registered" (pinned once), "addressed" (pinned each time) or "staged"
        (through the host)."""
        info = ffi.new("struct kvblk_mem_info *", {"size": ffi.sizeof("struct kvblk_mem_info")})
        check(lib.kvblk_mem_get_info(self._open(), info))
        return self.KINDS[info.kind]

    def view(self) -> memoryview:
        """A writable view of the memory; not for memory of a GPU."""
        if not self._readable:
            raise ValueError("the CPU can't read this memory")
        array = (ctypes.c_char * self.nbytes).from_address(self.address)
        array.handle = self._open()  # type: ignore[attr-defined]
        return memoryview(array).cast("B")

    def part(self, offset: int, length: int) -> buffers.Piece:
        """Return a part as a piece for Pool.batch()."""
        return offset, length, self.number, self._open()

    def __getitem__(self, part: slice) -> buffers.MemorySlice:
        start, stop, step = part.indices(self.nbytes)
        if step != 1 or stop <= start:
            raise ValueError("a slice of registered memory has a length, and no step")
        return buffers.MemorySlice(self.part(start, stop - start))

    @property
    def piece(self) -> buffers.Piece:
        return self.part(0, self.nbytes)

    def close(self) -> None:
        """Unregister the memory. Does nothing if it is closed."""
        # in a child of fork() another thread's lock would never be released
        if not self.inherited:
            self._pool.forget(self)
        self.handle = None

    def __enter__(self) -> Memory:
        return self

    def __exit__(self, *what: object) -> None:
        self.close()


#: handle of a piece for the library to search in the registered memory
FIND = 1


class Ranges(NamedTuple):
    """Registered memory, sorted by address."""

    starts: list[int]
    memory: list[Memory]
    #: the ranges for the library, and the objects that keep the ranges alive
    native: Any
    keep: Any

    @classmethod
    def of(cls, memory: list[Memory]) -> Ranges:
        memory.sort(key=lambda m: m.address)
        starts = [m.address for m in memory]
        arrays = [ffi.new("uint64_t[]", column) for column in (starts, [m.nbytes for m in memory],
                                                               [m.number for m in memory])]
        native = ffi.new("struct kvpy_ranges *", (len(memory), *arrays))
        return cls(starts, memory, native, (arrays, [m.handle for m in memory]))
