# SPDX-License-Identifier: MIT
"""Pools, batches, lookups, leases, memory: all of it the calling thread's, without the GIL."""

from __future__ import annotations

import bisect
import ctypes
import enum
import errno
import functools
import itertools
import math
import operator
import os
import threading
import time
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from . import buffers
from ._native import ffi, lib
from .buffers import Buffer
from .errors import MISS, KvblkError, check
from .process import OfProcess

KEY_MAX = 512
VALUE_MAX = 64 << 20
OPS_MAX = 1024
LOOKUP_MAX = 65536

OP_PUT, OP_GET, OP_DELETE, OP_PREFETCH = 1, 2, 3, 4
OPF_PARTIAL, OPF_LAYOUT, OPF_HARD_DEADLINE, OPF_DURABLE = 1, 2, 4, 8
SUBMIT_CHAIN = 1
HINT_CONTINUES, HINT_MISSED = 1, 2
LOOKUP_LEASE, LOOKUP_PREFIX = 1, 2


class Put(enum.Enum):
    """What became of a put that did not fail. True: the pool has the block, with these bytes' length."""

    #: It has been written.
    STORED = "stored"
    #: The pool had it before; nothing was written.
    EXISTS = "exists"
    #: The pool has a block of another length under this key; nothing was written.
    DIFFERS = "differs"
    #: Another put of the key is in flight, which may fail.
    PENDING = "pending"
    #: The pool's admission policy declined it; that is no error.
    DECLINED = "declined"

    def __bool__(self) -> bool:
        return self is Put.STORED or self is Put.EXISTS


_PUTS = {-errno.EEXIST: Put.EXISTS, -errno.EALREADY: Put.PENDING, -errno.ENOBUFS: Put.DECLINED}
_LEN_DIFFERS = 4
#: options of a put that need no operation with an extension, a tag or flags
_PLAIN = frozenset(("priority", "ttl", "timeout"))


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


def raised(result: Any) -> Any:
    """The one result of a call on one block."""
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
    """Found blocks stay readable until ``release()``, the end of the ``with``, or its time's end."""

    __slots__ = ("_pool", "_id")

    def __init__(self, pool: Pool, lease: int):
        super().__init__()
        self._pool = pool
        self._id = lease

    def release(self) -> None:
        """End it; again, when its time has ended, or when the pool is closed, it does nothing. Nor does it in a child
        of fork(): the lease is the parent's."""
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
    """The answer to a lookup: ``leading``, ``present`` and ``leased`` are numbers of keys.

    ``lookup[i]`` tells whether key i is present. ``sizes`` and ``tags`` are lists where they were asked for. Used in
    a ``with``, the lease ends with it.
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
    """What became of the keys of a :meth:`Pool.prestage`.

    ``states`` has a word for each: "loaded", "resident" (it was in memory before), "missing", "clipped" (left out:
    behind ``max_bytes``, behind the first miss, for want of memory, or canceled) or "expired". ``leading``,
    ``present`` and ``leased`` are numbers of keys whose blocks are in memory now; ``loaded_bytes`` were brought there.
    Used in a ``with``, the lease ends with it.
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


#: The pool's handle of each registered memory. A pool and its memory are a cycle, and the collector finalizes what is
#: in one in any order; what is reachable from here it does not find, so that a pool outlives its memory.
_alive: dict[int, Any] = {}


def _unregister(number: int, process: OfProcess, keep: Any, handle: Any) -> None:
    """When the last that uses it is gone; ``keep`` had to stay until then."""
    pool = _alive.pop(number, None)
    # the memory is the parent's, in a child of fork()
    if not process.inherited:
        lib.kvblk_mem_unregister(handle)
    del pool


class Memory(OfProcess):
    """Memory registered with a pool: pinned once, or a GPU's; ``memory[a:b]`` is a buffer for puts and gets.

    A buffer that lies within one registered memory is used through it in any case. ``close()`` unregisters it when
    the slices and views of it and the operations that are in flight then are gone; that of the pool does so for all.
    """

    KINDS = {1: "registered", 2: "addressed", 3: "staged"}

    def __init__(self, pool: Pool, handle: Any, address: int, length: int, keep: Any):
        super().__init__()
        self._pool = pool
        self._number = int(ffi.cast("uintptr_t", handle))
        _alive[self._number] = pool.handle
        self.handle: Any = ffi.gc(handle, functools.partial(_unregister, self._number, OfProcess(), keep))
        self._readable = True
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
        """How operations reach it: "registered" (once), "addressed" (each time anew), "staged" (through the host)."""
        return self.KINDS[lib.kvblk_mem_kind(self._open())]

    def view(self) -> memoryview:
        """The memory, to read and write; not a GPU's."""
        if not self._readable:
            raise ValueError("the CPU can't read this memory")
        array = (ctypes.c_char * self.nbytes).from_address(self.address)
        array.handle = self._open()  # type: ignore[attr-defined]
        return memoryview(array).cast("B")

    def part(self, offset: int, length: int) -> buffers.Piece:
        """For Pool.batch()."""
        return offset, length, self._number, self._open()

    def __getitem__(self, part: slice) -> buffers.MemorySlice:
        start, stop, step = part.indices(self.nbytes)
        if step != 1 or stop <= start:
            raise ValueError("a slice of registered memory has a length, and no step")
        return buffers.MemorySlice(self.part(start, stop - start))

    @property
    def piece(self) -> buffers.Piece:
        return self.part(0, self.nbytes)

    def close(self) -> None:
        """Let go of it; again it does nothing."""
        # the pool's lock may be held for ever in a child of fork()
        if not self.inherited:
            self._pool.forget(self)
        self.handle = None

    def __enter__(self) -> Memory:
        return self

    def __exit__(self, *what: object) -> None:
        self.close()


#: for a piece's handle: the library is to find it
_FIND = 1


class _Ranges(NamedTuple):
    """Registered memory, sorted by where it starts."""

    starts: list[int]
    memory: list[Memory]
    #: the same for the library, and what keeps it
    native: Any
    keep: Any

    @classmethod
    def of(cls, memory: list[Memory]) -> _Ranges:
        memory.sort(key=lambda m: m.address)
        starts = [m.address for m in memory]
        arrays = [ffi.new("uint64_t[]", column) for column in (starts, [m.nbytes for m in memory],
                                                               [m._number for m in memory])]
        native = ffi.new("struct kvpy_ranges *", (len(memory), *arrays))
        return cls(starts, memory, native, (arrays, [m.handle for m in memory]))


class Batch:
    """Operations, filled in; run by the calling thread or a thread of the library."""

    __slots__ = ("native", "opcode", "keep")

    def __init__(self, native: Any, opcode: int, keep: Any):
        self.native = native
        self.opcode = opcode
        self.keep = keep

    def results(self) -> list[Any]:
        """One for each operation, when it is over; frees the batch."""
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
            if res[i] == -errno.EEXIST and flag & _LEN_DIFFERS:
                answers[i] = Put.DIFFERS
        return answers

    def free(self) -> None:
        native, self.native = self.native, None
        self.keep = None
        if native:
            lib.kvpy_batch_free(native)


class Pool(OfProcess):
    """An open pool. Any number of threads may use it at once; a child of fork() opens its own.

    >>> with Pool(POOL) as pool:
    ...     pool.put(b"greeting", b"hello")
    ...     pool.get(b"greeting")
    ...     pool.get(b"nobody") is None
    <Put.STORED: 'stored'>
    bytearray(b'hello')
    True

    ``name`` is a pool's, or the path of a node. Without such a pool or the right to use it that is a
    :class:`KvblkError`.
    """

    def __init__(self, name: str | os.PathLike[str]):
        super().__init__()
        out = ffi.new("struct kvblk **")
        text = os.fsencode(name)
        if b"\0" in text:
            raise ValueError("a pool's name has no zero byte")
        check(lib.kvblk_open(text, out))
        # closed when the last call that uses it is over
        self._handle: Any = ffi.gc(out[0], lib.kvblk_close)
        self._lock = threading.Lock()
        self._ranges = _Ranges.of([])

    @property
    def handle(self) -> Any:
        self.check_process()
        handle = self._handle
        if handle is None:
            raise ValueError("the pool is closed")
        return handle

    @property
    def closed(self) -> bool:
        return self._handle is None

    def close(self) -> None:
        """Close it, which ends its leases, and its registered memory."""
        for memory in self._ranges.memory:
            memory.close()
        self._handle = None

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *what: object) -> None:
        self.close()

    def fileno(self) -> int:
        """The node's descriptor, which stays the pool's."""
        return lib.kvblk_fd(self.handle)  # type: ignore[no-any-return]

    def info(self) -> Info:
        """Limits and features."""
        out = ffi.new("struct kvpy_info *")
        check(lib.kvpy_info(self.handle, out))
        return Info(ffi.string(out.pool_name).decode(), bytes(ffi.buffer(out.pool_uuid)), out.features, out.capacity,
                    out.value_max, out.ops_max, out.lookup_max, out.lease_ms_max, out.dma_align, out.chunk_size)

    # Memory

    def register(self, buf: Buffer, *, block_max: int = 0) -> Memory:
        """Pin a buffer once, for many operations. It stays pinned until ``close()``, of the memory or of the pool.

        The pages are what is registered: an (address, length) must not be mapped anew meanwhile. ``block_max``: the
        longest block, should the memory have to be staged; 0: 16 MiB, or what the pool takes if that is less.

        >>> slab = bytearray(1 << 20)
        >>> with Pool(POOL) as pool, pool.register(slab) as memory:
        ...     pool.put(b"of the slab", memory[4096:8192])
        <Put.STORED: 'stored'>
        """
        address, length, handle, keep = buffers.piece_of(buf, True)
        if handle:
            raise ValueError("that is registered memory")
        out = ffi.new("struct kvblk_mem **")
        check(lib.kvpy_register(self.handle, address, length, block_max, out))
        return self._remember(Memory(self, out[0], address, length, (buf, keep)))

    def alloc(self, source: str, length: int, *, block_max: int = 0) -> Memory:
        """Fresh registered memory of "host", a PCI device ("0000:03:00.0"), a driver's node, or "cuda:0"."""
        out = ffi.new("struct kvblk_mem **")
        check(lib.kvpy_alloc(self.handle, source.encode(), length, block_max, out))
        address = int(ffi.cast("uintptr_t", lib.kvblk_mem_addr(out[0])))
        memory = Memory(self, out[0], address, length, None)
        memory._readable = not source.startswith("cuda:")
        return self._remember(memory)

    def _remember(self, memory: Memory) -> Memory:
        with self._lock:
            # anew each time, for threads that look meanwhile
            self._ranges = _Ranges.of([*self._ranges.memory, memory])
        return memory

    def forget(self, memory: Memory) -> None:
        """For Memory.close()."""
        with self._lock:
            self._ranges = _Ranges.of([m for m in self._ranges.memory if m is not memory])

    def _within(self, address: int, length: int) -> buffers.Piece | None:
        ranges = self._ranges
        at = bisect.bisect(ranges.starts, address) - 1
        if at < 0:
            return None
        memory = ranges.memory[at]
        handle = memory.handle
        if handle is None or address + length > memory.address + memory.nbytes:
            return None
        return address - memory.address, length, memory._number, handle

    # Batches

    def batch(self, opcode: int, keys: Sequence[bytes], bufs: Sequence[Buffer] | None, *, op_flags: int = 0,
              priority: int = 0, ttl: float = 0, timeout: float | None = None, offset: int = 0, layout_tag: int = 0,
              caller_tag: int = 0, parent: bytes | None = None, chain: bool = False, continues: bool = False,
              missed: bool = False, durable: bool = False, session: int = 0, cookie: int = 0) -> Batch:
        """A batch that is filled in, for those who run it themselves: see kvblk.background."""
        handle = self.handle
        parent = parent or b""
        count = len(keys)
        if not 1 <= count <= OPS_MAX:
            raise ValueError(f"a batch has 1 to {OPS_MAX} operations, not {count}")
        lens = [*map(len, keys)]
        joined = _joined(keys, lens, sum(lens))
        if len(parent) > KEY_MAX:
            raise ValueError(f"a key has 1 to {KEY_MAX} bytes")
        counts = [1] * count
        #: of each piece: its address and length
        places: list[int] = []
        mems: list[int] = []
        keep: list[Any] = []
        ranges = self._ranges
        if bufs is None:
            counts = [0] * count
        else:
            if len(bufs) != count:
                raise ValueError(f"there are {count} keys and {len(bufs)} buffers")
            write = opcode == OP_GET
            piece_of = buffers.piece_of
            known = bool(ranges.memory)
            for i, buf in enumerate(bufs):
                # a copy: another thread may change the list
                parts = tuple(buf) if type(buf) is list else (buf,)
                counts[i] = len(parts)
                if len(parts) > 1024:
                    raise ValueError(f"a scatter list has up to 1024 pieces, not {len(parts)}")
                # a KV cache's, which may be many
                if len(parts) > 1 and set(map(type, parts)) == {tuple} and set(map(len, parts)) == {2}:
                    places += map(operator.index, itertools.chain.from_iterable(parts))
                    mems += [_FIND if known else 0] * len(parts)
                    continue
                for part in parts:
                    address, length, mem, owner = piece_of(part, write)
                    if mem:
                        if _alive.get(mem) is not handle:
                            raise ValueError("this memory is registered with another pool")
                    elif known:
                        within = self._within(address, length)
                        if within is not None:
                            address, length, mem, registered = within
                            owner = (owner, registered)
                    places += address, length
                    mems.append(mem)
                    keep.append(owner)
            if _FIND in mems:
                keep.append(ranges)
        if durable:
            op_flags |= OPF_DURABLE
        options = {
            "opcode": opcode, "priority": priority, "op_flags": op_flags, "ttl_s": _seconds(ttl), "offset": offset,
            "submit_flags": SUBMIT_CHAIN if chain else 0,
            "hints": (HINT_CONTINUES if continues else 0) | (HINT_MISSED if missed else 0),
            "cookie": cookie, "layout_tag": layout_tag, "caller_tag": caller_tag, "session": session,
            "deadline_ns": _deadline(timeout),
        }
        native = lib.kvpy_batch_new(ffi.new("struct kvpy_options *", options), count, joined, lens, parent,
                                    len(parent), counts, len(mems), places, mems, ranges.native)
        if not native:
            raise MemoryError
        return Batch(native, opcode, keep)

    def run(self, batch: Batch) -> list[Any]:
        """Run a batch, and wait for its results."""
        try:
            handle = self.handle
        except ValueError:
            batch.free()
            raise
        lib.kvpy_batch_run(handle, batch.native)
        return batch.results()

    def _alone(self, opcode: int, keys: Sequence[bytes], bufs: Sequence[Buffer], priority: int = 0, ttl: float = 0,
               timeout: float | None = None) -> tuple[int, int] | None:
        """A batch of one block in one piece, run at once: its result and flags; None: it takes batch().

        A short way: what batch() does for any number of blocks and pieces takes a block of 2 MiB one part in thirty.
        """
        key = keys[0]
        if type(key) is not bytes or not 1 <= len(key) <= KEY_MAX or len(bufs) != 1 or type(bufs[0]) is list:
            return None
        handle = self.handle
        address, length, mem, keep = buffers.piece_of(bufs[0], opcode == OP_GET)
        if mem:
            if _alive.get(mem) is not handle:
                return None
        elif self._ranges.memory:
            within = self._within(address, length)
            if within is not None:
                address, length, mem, registered = within
                keep = keep, registered
        answer = lib.kvpy_one(handle, opcode, key, len(key), address, length, mem, priority, _seconds(ttl),
                              _deadline(timeout))
        del keep
        if answer < 0:
            raise KvblkError(-answer)
        res = answer & 0xffffffff
        return res - (1 << 32) if res >> 31 else res, answer >> 32

    def put_many(self, keys: Sequence[bytes], bufs: Sequence[Buffer], **options: Any) -> list[Put | KvblkError]:
        """Store blocks, all in flight at once; one result a key.

        ``priority`` (0 to 3), ``ttl`` (seconds), ``timeout`` (seconds), ``layout_tag``, ``caller_tag``, ``session``
        hold for each. ``chain=True``: they are consecutive blocks of one prompt, the first one's predecessor is
        ``parent``, and with ``continues=True`` the next batch goes on. ``missed=True``: they were asked for before, and
        misses, so they are worth a write. ``durable=True``: they are not left in the host's memory alone, if the pool
        keeps blocks there.

        >>> with Pool(POOL) as pool:
        ...     pool.put_many([b"a", b"b"], [b"1" * 4096, [b"2" * 2048, b"3" * 2048]], chain=True)
        [<Put.STORED: 'stored'>, <Put.STORED: 'stored'>]
        """
        if len(keys) == 1 and _PLAIN.issuperset(options):
            alone = self._alone(OP_PUT, keys, bufs, **options)
            if alone is not None:
                res, flags = alone
                return [Put.DIFFERS if res == -errno.EEXIST and flags & _LEN_DIFFERS else put_result(res)]
        return self.run(self.batch(OP_PUT, keys, bufs, **options))

    def get_many(self, keys: Sequence[bytes], bufs: Sequence[Buffer], *, offset: int | None = None,
                 layout_tag: int | None = None, timeout: float | None = None,
                 hard: bool = False) -> list[int | None | KvblkError]:
        """Fetch blocks, all in flight at once; a length for each key, or None for a miss.

        ``offset``: a part of each, as long as its buffer. ``layout_tag``: a block with another one is a miss.
        ``timeout``: seconds; with ``hard=True`` kept by all means, through kernel memory.
        """
        if len(keys) == 1 and offset is None and layout_tag is None and not hard:
            alone = self._alone(OP_GET, keys, bufs, timeout=timeout)
            if alone is not None:
                return [get_result(alone[0])]
        return self.run(self.batch(OP_GET, keys, bufs, **get_options(offset, layout_tag, timeout, hard)))

    def delete_many(self, keys: Sequence[bytes]) -> list[bool | KvblkError]:
        """Remove blocks, durably; False: there was none."""
        return self.run(self.batch(OP_DELETE, keys, None))

    def prefetch_many(self, keys: Sequence[bytes], *, timeout: float | None = None) -> list[bool | KvblkError]:
        """Bring blocks that will be wanted soon into the host's memory; False: there is none. It is a KvblkError with
        EOPNOTSUPP where the pool has no such memory, with ENOSPC when that is full, with ETIME when ``timeout`` (seconds)
        passed first."""
        return self.run(self.batch(OP_PREFETCH, keys, None, timeout=timeout))

    # One block

    def put(self, key: bytes, buf: Buffer, **options: Any) -> Put:
        """Store a block; options as for :meth:`put_many`."""
        return raised(self.put_many((key,), (buf,), **options)[0])  # type: ignore[no-any-return]

    def get_into(self, key: bytes, buf: Buffer, **options: Any) -> int | None:
        """Fetch a block into a buffer; its length, None: a miss. Options as for :meth:`get_many`."""
        return raised(self.get_many((key,), (buf,), **options)[0])  # type: ignore[no-any-return]

    def layout_tag(self, key: bytes, buf: Buffer, *, timeout: float | None = None) -> int | None:
        """Fetch a block into a buffer, whatever its layout tag; returns that tag, None: a miss.

        Tells a block that each get with another ``layout_tag`` misses from one that can't be read.
        """
        batch = self.batch(OP_GET, (key,), (buf,), timeout=timeout)
        lib.kvpy_batch_run(self.handle, batch.native)
        tag = int(batch.native.layout_tags[0])
        return None if raised(batch.results()[0]) is None else tag

    def get(self, key: bytes) -> bytearray | None:
        """Fetch a block into fresh memory; None: a miss."""
        while size := self.size(key):
            buf = bytearray(size)
            try:
                got = self.get_into(key, buf)
            except KvblkError as e:
                # another block came in its place
                if e.errno == errno.EMSGSIZE:
                    continue
                raise
            return None if got is None else buf if got == size else buf[:got]
        return None

    def delete(self, key: bytes) -> bool:
        """Remove a block, durably; False: there was none."""
        return raised(self.delete_many((key,))[0])  # type: ignore[no-any-return]

    def prefetch(self, key: bytes) -> bool:
        """As :meth:`prefetch_many`."""
        return raised(self.prefetch_many((key,))[0])  # type: ignore[no-any-return]

    def size(self, key: bytes) -> int | None:
        """The length of a block, without I/O; None: there is none."""
        sizes = self.lookup((key,), sizes=True).sizes
        return sizes[0] or None if sizes else None

    def __contains__(self, key: bytes) -> bool:
        return self.lookup((key,)).present == 1

    # Lookups

    def lookup(self, keys: Sequence[bytes], *, lease: float = 0, prefix: bool = False, sizes: bool = False,
               tags: bool = False) -> Lookup:
        """Ask for many blocks, without I/O.

        ``lease``: seconds for which what is found stays readable. ``prefix``: stop at the first absent key.

        >>> with Pool(POOL) as pool:
        ...     pool.put(b"one", b"1")
        ...     with pool.lookup([b"one", b"two"], lease=10, sizes=True) as found:
        ...         found.leading, found[1], found.sizes
        <Put.STORED: 'stored'>
        (1, False, [1, 0])
        """
        count = len(keys)
        if not 1 <= count <= LOOKUP_MAX:
            raise ValueError(f"a lookup has 1 to {LOOKUP_MAX} keys, not {count}")
        sizes_of_keys = set(map(len, keys))
        same = len(sizes_of_keys) == 1
        lens = [] if same else [*map(len, keys)]
        joined = _joined(keys, sizes_of_keys, count * max(sizes_of_keys) if same else sum(lens))
        bits = bytearray((count + 7) // 8)
        room = ffi.new("uint32_t[]", count) if sizes else ffi.NULL
        tag_room = ffi.new("uint64_t[]", count) if tags else ffi.NULL
        out = ffi.new("struct kvpy_lookup *")
        check(lib.kvpy_lookup(self.handle, count, joined, max(sizes_of_keys) if same else 0, ffi.NULL if same else lens,
                              (LOOKUP_LEASE if lease else 0) | (LOOKUP_PREFIX if prefix else 0),
                              _milliseconds(lease), ffi.from_buffer("uint8_t[]", bits), room, tag_room, out))
        return Lookup(count, bits, out, Lease(self, out.lease), ffi.unpack(room, count) if sizes else None,
                      ffi.unpack(tag_room, count) if tags else None)

    def leading_run(self, keys: Sequence[bytes], *, lease: float = 0) -> Lookup:
        """How many keys from the first on are present: ``leading`` of the answer, and a lease on those."""
        return self.lookup(keys, lease=lease, prefix=True)

    def prestage(self, keys: Sequence[bytes], *, lease: float = 0, max_bytes: int = 0, stop_at_miss: bool = False,
                 timeout: float | None = None, cookie: int = 0, priority: int = 0) -> Prestaged:
        """Bring blocks that will be wanted soon into the host's memory, in the order asked; ends with the last one.

        ``lease``: seconds for which what is in memory at the end stays. ``max_bytes``: from the first block that is too
        much on, none is brought. ``stop_at_miss``: the keys are a prompt's, what is behind the first miss is of no use.
        ``timeout``: seconds. ``cookie``: for :meth:`cancel`. ``priority``: 0 to 3; of what gets hold up, puts too,
        those with more go first. A :class:`KvblkError` with EOPNOTSUPP: the pool has no such memory. For asyncio:
        ``asyncio.to_thread(pool.prestage, keys)``.
        """
        count = len(keys)
        if not 1 <= count <= LOOKUP_MAX:
            raise ValueError(f"prestage takes 1 to {LOOKUP_MAX} keys, not {count}")
        lens = [*map(len, keys)]
        joined = _joined(keys, lens, sum(lens))
        answer = ffi.new("struct kvpy_prefetch *", {
            "max_bytes": max_bytes, "deadline_ns": _deadline(timeout), "cookie": cookie,
            "lease_ms": _milliseconds(lease), "stop_at_miss": stop_at_miss, "priority": priority})
        states = ffi.new("uint32_t[]", count)
        check(lib.kvpy_prefetch(self.handle, count, joined, lens, answer, states))
        return Prestaged(ffi.unpack(states, count), answer, Lease(self, answer.lease))

    def cancel(self, cookie: int) -> int:
        """Cancel operations of this handle with this cookie; how many were found."""
        out = ffi.new("unsigned int *")
        answer = lib.kvblk_cancel(self.handle, cookie, out)
        return 0 if answer == MISS else check(answer) or out[0]

    def drain(self, timeout: float | None = None) -> None:
        """Wait until operations in flight are over and their memory is quiet; KvblkError with ETIME: not by then."""
        deadline = _deadline(timeout)
        while (answer := lib.kvblk_drain(self.handle, deadline)) == -errno.EINTR:
            pass
        check(answer)


def get_options(offset: int | None, layout_tag: int | None, timeout: float | None, hard: bool) -> dict[str, Any]:
    """Of gets, for Pool.batch()."""
    flags = 0
    if offset is not None:
        flags |= OPF_PARTIAL
    if layout_tag is not None:
        flags |= OPF_LAYOUT
    if hard:
        flags |= OPF_HARD_DEADLINE
    return {"op_flags": flags, "offset": offset or 0, "layout_tag": layout_tag or 0, "timeout": timeout}


def _joined(keys: Sequence[bytes], sizes: Collection[int], total: int) -> bytes:
    """The keys one behind the other; they have these sizes, so many bytes in total."""
    joined = b"".join(keys)
    if len(joined) != total:
        # of items that have more than a byte
        raise TypeError("keys are bytes")
    if min(sizes) < 1 or max(sizes) > KEY_MAX:
        raise ValueError(f"a key has 1 to {KEY_MAX} bytes")
    return joined


def _deadline(timeout: float | None) -> int:
    if timeout is None or timeout == math.inf:
        return 0
    if not timeout >= 0:
        raise ValueError("a timeout is not negative")
    return time.monotonic_ns() + int(timeout * 1e9)


def _seconds(ttl: float) -> int:
    if ttl < 0:
        raise ValueError("a time to live is not negative")
    # not 0, which is for ever
    return max(1, round(ttl)) if ttl else 0


def _milliseconds(lease: float) -> int:
    if lease < 0:
        raise ValueError("a lease's time is not negative")
    return max(1, round(lease * 1000)) if lease else 0
