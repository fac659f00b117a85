# SPDX-License-Identifier: MIT
"""Results of a pool's operations, and the batches that return them."""

from __future__ import annotations

import enum
import errno
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ._native import ffi, lib
from .errors import MISS, KvblkError
from .process import OfProcess

if TYPE_CHECKING:
    from .pool import Pool

OP_PUT, OP_GET, OP_DELETE, OP_PREFETCH = 1, 2, 3, 4

_T = TypeVar("_T")


class Put(enum.Enum):
    """Outcome of a put that did not fail. True if the pool has a block of the same length under this key."""

    #: The block was written.
    STORED = "stored"
    #: The pool has the block already; nothing was written.
    EXISTS = "exists"
    #: The pool has a block of another length under this key; nothing was written.
    DIFFERS = "differs"
    #: Another put of the key is in flight, and may fail.
    PENDING = "pending"
    #: The admission policy declined the block.
    DECLINED = "declined"

    def __bool__(self) -> bool:
        return self is Put.STORED or self is Put.EXISTS


_PUTS = {-errno.EEXIST: Put.EXISTS, -errno.EALREADY: Put.PENDING, -errno.ENOBUFS: Put.DECLINED}
LEN_DIFFERS = 4


def put_result(res: int) -> Put | KvblkError:
    if res >= 0:
        return Put.STORED
    known = _PUTS.get(res)
    return KvblkError(-res) if known is None else known


def get_result(res: int) -> int | None | KvblkError:
    return res if res >= 0 else None if res == MISS else KvblkError(-res)


def delete_result(res: int) -> bool | KvblkError:
    return True if res >= 0 else False if res == MISS else KvblkError(-res)


RESULTS = {OP_PUT: put_result, OP_GET: get_result, OP_DELETE: delete_result, OP_PREFETCH: delete_result}


def raised(result: _T | KvblkError) -> _T:
    """Return a result, or raise it if it is a KvblkError."""
    if isinstance(result, KvblkError):
        raise result
    return result


class Info(NamedTuple):
    """Limits and features of a pool, see KVBLK_IOC_INFO in linux/kvblk.h."""

    name: str
    uuid: bytes
    features: int
    capacity: int
    value_max: int
    ops_max: int
    lookup_max: int
    lease_ms_max: int
    dma_align: int
    chunk_size: int


class Lease(OfProcess):
    """A lease: the blocks found stay readable until ``release()``, the end of the ``with``, or the deadline."""

    __slots__ = ("_pool", "_id")

    def __init__(self, pool: Pool, lease: int):
        super().__init__()
        self._pool = pool
        self._id = lease

    def release(self) -> None:
        """End the lease. Does nothing if it has ended, if the pool is closed, or in a child of fork(), whose parent
        owns the lease."""
        lease, self._id = self._id, 0
        if lease and not self.inherited and not self._pool.closed:
            answer = lib.kvblk_lease_release(self._pool.handle, lease)
            if answer not in (0, MISS, -errno.ENODEV):
                raise KvblkError(-answer)

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, *what: object) -> None:
        self.release()

    def __bool__(self) -> bool:
        return self._id != 0


class Lookup:
    """Result of a lookup: ``leading``, ``present`` and ``leased`` are numbers of keys.

    ``lookup[i]`` is true if key i is present. ``sizes`` and ``tags`` are lists if the caller requested them. Leaving a
    ``with`` ends the lease.
    """

    __slots__ = ("leading", "present", "leased", "lease", "sizes", "tags", "_bits", "_count")

    def __init__(self, count: int, bits: bytearray, answer: Any, lease: Lease, sizes: Any, tags: Any):
        self.leading: int = answer.nr_leading
        self.present: int = answer.nr_present
        self.leased: int = answer.nr_leased
        self.lease = lease
        self.sizes: list[int] | None = sizes
        self.tags: list[int] | None = tags
        self._bits = bits
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __bool__(self) -> bool:
        raise TypeError("a lookup is neither true nor false: ask for its leading or present")

    def __getitem__(self, i: int) -> bool:
        if not 0 <= i < self._count:
            raise IndexError(i)
        return bool(self._bits[i >> 3] >> (i & 7) & 1)

    def __enter__(self) -> Lookup:
        return self

    def __exit__(self, *what: object) -> None:
        self.lease.release()


class Prestaged:
    """Result of :meth:`Pool.prestage`.

    ``states`` has a word for each key:

    - "loaded": loaded by this call
    - "resident": in memory before the call
    - "missing": no such block
    - "clipped": not loaded, because of ``max_bytes``, a miss with ``stop_at_miss``, a lack of memory, or a cancel
    - "expired": the deadline passed

    ``leading``, ``present`` and ``leased`` are numbers of keys whose blocks are in memory. ``loaded_bytes`` is the
    number of bytes loaded. Leaving a ``with`` ends the lease.
    """

    __slots__ = ("states", "leading", "present", "leased", "loaded_bytes", "lease")

    WORDS = (None, "loaded", "resident", "missing", "clipped", "expired")

    def __init__(self, states: list[Any], answer: Any, lease: Lease):
        self.states: list[str] = [self.WORDS[state] for state in states]  # type: ignore[misc]
        self.leading: int = answer.nr_leading
        self.present: int = answer.nr_here
        self.leased: int = answer.nr_leased
        self.loaded_bytes: int = answer.loaded_bytes
        self.lease = lease

    def __enter__(self) -> Prestaged:
        return self

    def __exit__(self, *what: object) -> None:
        self.lease.release()


class Batch:
    """A prepared batch of operations, for the calling thread or a thread of the library."""

    __slots__ = ("native", "opcode", "keep")

    def __init__(self, native: Any, opcode: int, keep: Any):
        self.native = native
        self.opcode = opcode
        self.keep = keep

    def results(self) -> list[Any]:
        """Return a result for each operation of a completed batch, and free the batch."""
        native = self.native
        err, nr, opcode = native.err, native.nr, self.opcode
        res = ffi.unpack(native.res, nr) if not err else []
        flags = ffi.unpack(native.flags, nr) if opcode == OP_PUT and -errno.EEXIST in res else ()
        self.free()
        if err:
            raise KvblkError(-err)
        result = RESULTS[opcode]
        answers = [result(r) for r in res]
        for i, flag in enumerate(flags):
            if res[i] == -errno.EEXIST and flag & LEN_DIFFERS:
                answers[i] = Put.DIFFERS
        return answers

    def free(self) -> None:
        native, self.native = self.native, None
        self.keep = None
        if native:
            lib.kvpy_batch_free(native)
