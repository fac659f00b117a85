# SPDX-License-Identifier: MIT
"""Results of a pool's operations, and the batches that return them."""

from __future__ import annotations

import enum
import errno
import threading
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ._native import ffi, lib
from .errors import MISS, KvblkError, check
from .process import OfProcess

if TYPE_CHECKING:
    from .pool import Pool

OP_PUT, OP_GET, OP_DELETE, OP_PREFETCH = (lib.KVBLK_OP_PUT, lib.KVBLK_OP_GET, lib.KVBLK_OP_DELETE,
                                          lib.KVBLK_OP_PREFETCH)

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


def result_of(opcode: int, res: int, flags: int, value_len: int) -> Any:
    """Convert the result of an operation: a Put, the length of a get, or whether the block exists."""
    if opcode == OP_PUT:
        if res >= 0:
            return Put.STORED
        if res == -errno.EEXIST and flags & lib.KVBLK_RES_LEN_DIFFERS:
            return Put.DIFFERS
        if res in _PUTS:
            return _PUTS[res]
    elif res >= 0:
        return res if opcode == OP_GET else True
    elif res == MISS:
        return None if opcode == OP_GET else False
    return KvblkError(-res, value_len=value_len)


def raised(result: _T | KvblkError) -> _T:
    """Return a result, or raise it if it is a KvblkError."""
    if isinstance(result, KvblkError):
        raise result
    return result


class Info(NamedTuple):
    """Limits and features of a pool, see struct kvblk_info in linux/kvblk.h."""

    pool_name: str
    pool_uuid: bytes
    tenant: int
    pool_flags: int
    features: int
    capacity: int
    value_max: int
    key_max: int
    pieces_max: int
    ops_max: int
    lookup_max: int
    lease_ms_max: int
    dma_align: int
    chunk_size: int
    checksum: int
    integrity: int

    @property
    def predicts(self) -> bool:
        """Whether lookups can predict times."""
        return bool(self.features & lib.KVBLK_FEAT_TIMES)


class Lease(OfProcess):
    """A lease: the blocks found stay readable until ``release()``, the end of the ``with``, or the time ``end``.

    ``end`` is a time of time.monotonic(), or 0.0 without a lease.
    """

    __slots__ = ("_pool", "_ids", "end")

    def __init__(self, pool: Pool, leases: Iterable[tuple[int, int]]):
        """``leases``: id and end of each lease of the kernel; id 0: none."""
        super().__init__()
        held = [lease for lease in leases if lease[0]]
        self._pool = pool
        self._ids = [number for number, _ in held]
        self.end: float = min((end for _, end in held), default=0) / 1e9

    def release(self) -> None:
        """End the lease. Does nothing if it has ended, if the pool is closed, or in a child of fork(), whose parent
        owns the lease."""
        leases, self._ids = self._ids, []
        if leases and not self.inherited and not self._pool.closed:
            for answer in [lib.kvblk_lease_release(self._pool.handle, lease) for lease in leases]:
                if answer != MISS:
                    check(answer)

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, *what: object) -> None:
        self.release()

    def __bool__(self) -> bool:
        return bool(self._ids)


class Lookup:
    """Result of a lookup: ``leading``, ``present`` and ``leased`` are numbers of keys.

    ``lookup[i]`` is true if key i is present. ``sizes``, ``tags``, ``tiers`` and ``times`` are lists if the caller
    requested them. Leaving a ``with`` ends the lease.
    """

    __slots__ = ("leading", "present", "leased", "lease", "sizes", "tags", "tiers", "times", "_bits", "_count")

    def __init__(self, count: int, bits: bytes | bytearray, leading: int, present: int, leased: int, lease: Lease,
                 sizes: list[int] | None, tags: list[int] | None, tiers: list[str | None] | None,
                 times: list[float] | None = None):
        self.leading = leading
        self.present = present
        self.leased = leased
        self.lease = lease
        self.sizes = sizes
        self.tags = tags
        self.tiers = tiers
        self.times = times
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

    ``leading``, ``here`` and ``leased`` are numbers of keys whose blocks are in memory. ``loaded_bytes`` is the
    number of bytes loaded. Leaving a ``with`` ends the lease.
    """

    __slots__ = ("states", "leading", "here", "leased", "loaded_bytes", "lease")

    def __init__(self, states: Sequence[str], leading: int, here: int, leased: int, loaded_bytes: int, lease: Lease):
        self.states = states
        self.leading = leading
        self.here = here
        self.leased = leased
        self.loaded_bytes = loaded_bytes
        self.lease = lease

    def __enter__(self) -> Prestaged:
        return self

    def __exit__(self, *what: object) -> None:
        self.lease.release()


class Batch:
    """A prepared batch of operations, for the calling thread or a :class:`kvblk.Queue`."""

    __slots__ = ("native", "opcode", "keep", "verifier", "_verifying")

    def __init__(self, native: Any, opcode: int, keep: Any, verifier: Any = None):
        """``verifier``: the pool's handle if the GPU verifies the gets."""
        self.native = native
        self.opcode = opcode
        self.keep = keep
        self.verifier = verifier
        self._verifying = None if verifier is None else threading.RLock()

    def verify(self) -> None:
        """Let the GPU verify the gets of a completed batch, unless this was done; waits for a thread that does it. Gets
        that do not match write to their memory again."""
        if self._verifying is None:
            return
        with self._verifying:
            if self.verifier is not None:
                lib.kvpy_batch_verify(self.verifier, self.native)
                self.verifier = None

    def results(self) -> list[Any]:
        """Return a result for each operation of a completed batch, and free the batch."""
        native, nr, opcode = self.native, self.native.nr, self.opcode
        self.verify()
        results: list[Any] = ffi.unpack(native.res, nr)
        if opcode != OP_GET or min(results, default=0) < 0:
            results = [result_of(opcode, *result) for result in
                       zip(results, ffi.unpack(native.flags, nr), ffi.unpack(native.lens, nr))]
        self.free()
        return results

    def free(self) -> None:
        native, self.native = self.native, None
        self.keep = self.verifier = None
        if native:
            lib.kvpy_batch_free(native)
