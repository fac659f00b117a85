# SPDX-License-Identifier: MIT
"""Pools. Calls run in the calling thread and release the GIL."""

from __future__ import annotations

import bisect
import errno
import itertools
import math
import operator
import os
import threading
import time
from collections.abc import Collection, Sequence
from typing import Any, TypedDict

from . import buffers
from ._native import ffi, lib
from .buffers import Buffer
from .errors import MISS, KvblkError, check
from .memory import FIND, Memory, Ranges, alive
from .process import OfProcess
from .results import (LEN_DIFFERS, OP_DELETE, OP_GET, OP_PREFETCH, OP_PUT, Batch, Info, Lease, Lookup, Prestaged, Put,
                      get_result, put_result, raised)

KEY_MAX = 512
VALUE_MAX = 64 << 20
OPS_MAX = 1024
LOOKUP_MAX = 65536

OPF_PARTIAL, OPF_LAYOUT, OPF_HARD_DEADLINE, OPF_DURABLE = 1, 2, 4, 8
SUBMIT_CHAIN = 1
HINT_CONTINUES, HINT_MISSED = 1, 2
LOOKUP_LEASE, LOOKUP_PREFIX = 1, 2


class Pool(OfProcess):
    """An open pool. Many threads may use it at once; a child of fork() must open its own.

    >>> with Pool(POOL) as pool:
    ...     pool.put(b"greeting", b"hello")
    ...     pool.get(b"greeting")
    ...     pool.get(b"nobody") is None
    <Put.STORED: 'stored'>
    bytearray(b'hello')
    True

    ``name`` is the name of a pool, or the path of a node. Raises :class:`KvblkError` if there is no such pool or the
    caller may not use it.
    """

    def __init__(self, name: str | os.PathLike[str]):
        super().__init__()
        out = ffi.new("struct kvblk **")
        text = os.fsencode(name)
        if b"\0" in text:
            raise ValueError("a pool's name has no zero byte")
        check(lib.kvblk_open(text, out))
        # closes the node when the last call that uses the handle returns
        self._handle: Any = ffi.gc(out[0], lib.kvblk_close)
        self._lock = threading.Lock()
        self._ranges = Ranges.of([])

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
        """Close the pool and its registered memory, and end its leases."""
        for memory in self._ranges.memory:
            memory.close()
        self._handle = None

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *what: object) -> None:
        self.close()

    def fileno(self) -> int:
        """Return the node's descriptor, which the pool owns."""
        return int(lib.kvblk_fd(self.handle))

    def info(self) -> Info:
        """Return limits and features of the pool."""
        out = ffi.new("struct kvpy_info *")
        check(lib.kvpy_info(self.handle, out))
        return Info(ffi.string(out.pool_name).decode(), bytes(ffi.buffer(out.pool_uuid)), out.features, out.capacity,
                    out.value_max, out.ops_max, out.lookup_max, out.lease_ms_max, out.dma_align, out.chunk_size)

    # Memory

    def register(self, buf: Buffer, *, block_max: int = 0) -> Memory:
        """Pin a buffer once, for many operations. It stays pinned until ``close()`` of the memory or the pool.

        The registration is of the pages: do not remap the addresses of an (address, length) buffer before ``close()``.
        ``block_max`` is the longest block if the memory has to be staged; 0: the pool's limit, at most 16 MiB.

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
        """Allocate and register memory of "host", a PCI device ("0000:03:00.0"), a driver's node, or "cuda:0"."""
        out = ffi.new("struct kvblk_mem **")
        check(lib.kvpy_alloc(self.handle, source.encode(), length, block_max, out))
        address = int(ffi.cast("uintptr_t", lib.kvblk_mem_addr(out[0])))
        return self._remember(Memory(self, out[0], address, length, None, readable=not source.startswith("cuda:")))

    def _remember(self, memory: Memory) -> Memory:
        with self._lock:
            # replaced, not changed, because other threads read it without the lock
            self._ranges = Ranges.of([*self._ranges.memory, memory])
        return memory

    def forget(self, memory: Memory) -> None:
        """Remove closed memory; for Memory.close()."""
        with self._lock:
            self._ranges = Ranges.of([m for m in self._ranges.memory if m is not memory])

    def _within(self, address: int, length: int) -> buffers.Piece | None:
        ranges = self._ranges
        at = bisect.bisect(ranges.starts, address) - 1
        if at < 0:
            return None
        memory = ranges.memory[at]
        handle = memory.handle
        if handle is None or address + length > memory.address + memory.nbytes:
            return None
        return address - memory.address, length, memory.number, handle

    # Batches

    def batch(self, opcode: int, keys: Sequence[bytes], bufs: Sequence[Buffer] | None, *, op_flags: int = 0,
              priority: int = 0, ttl: float = 0, timeout: float | None = None, offset: int = 0, layout_tag: int = 0,
              caller_tag: int = 0, parent: bytes | None = None, chain: bool = False, continues: bool = False,
              missed: bool = False, durable: bool = False, session: int = 0, cookie: int = 0) -> Batch:
        """Prepare a batch; kvblk.background runs batches, too."""
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
        #: address and length of each piece
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
                # copy the list, because another thread may change it
                parts = tuple(buf) if type(buf) is list else (buf,)
                counts[i] = len(parts)
                if len(parts) > 1024:
                    raise ValueError(f"a scatter list has up to 1024 pieces, not {len(parts)}")
                # fast path for the long scatter lists of a KV cache
                if len(parts) > 1 and set(map(type, parts)) == {tuple} and set(map(len, parts)) == {2}:
                    places += map(operator.index, itertools.chain.from_iterable(parts))
                    mems += [FIND if known else 0] * len(parts)
                    continue
                for part in parts:
                    address, length, mem, owner = piece_of(part, write)
                    if mem:
                        if alive.get(mem) is not handle:
                            raise ValueError("this memory is registered with another pool")
                    elif known:
                        within = self._within(address, length)
                        if within is not None:
                            address, length, mem, registered = within
                            owner = (owner, registered)
                    places += address, length
                    mems.append(mem)
                    keep.append(owner)
            if FIND in mems:
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
        """Run a batch and wait for its results."""
        try:
            handle = self.handle
        except ValueError:
            batch.free()
            raise
        lib.kvpy_batch_run(handle, batch.native)
        return batch.results()

    def _alone(self, opcode: int, keys: Sequence[bytes], bufs: Sequence[Buffer], *, priority: int = 0, ttl: float = 0,
               timeout: float | None = None) -> tuple[int, int] | None:
        """Run one operation on one piece. Returns result and flags, or None if the operation needs batch().

        A fast path: batch() costs 3 % of the time of a 2 MiB block.
        """
        key = keys[0]
        if type(key) is not bytes or not 1 <= len(key) <= KEY_MAX or len(bufs) != 1 or type(bufs[0]) is list:
            return None
        handle = self.handle
        address, length, mem, keep = buffers.piece_of(bufs[0], opcode == OP_GET)
        if mem:
            if alive.get(mem) is not handle:
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

    def put_many(self, keys: Sequence[bytes], bufs: Sequence[Buffer], *, priority: int = 0, ttl: float = 0,
                 timeout: float | None = None, layout_tag: int = 0, caller_tag: int = 0, session: int = 0,
                 chain: bool = False, parent: bytes | None = None, continues: bool = False, missed: bool = False,
                 durable: bool = False) -> list[Put | KvblkError]:
        """Store blocks, all in flight at once; returns one result per key.

        Options, for all blocks:

        - ``priority``: 0 (evicted first) to 3
        - ``ttl``, ``timeout``: seconds
        - ``layout_tag``, ``caller_tag``, ``session``: integers
        - ``chain=True``: the blocks are consecutive blocks of one prompt; ``parent`` is the key of the preceding block,
          and ``continues=True`` announces that the chain continues in the next batch
        - ``missed=True``: the blocks were requested before and missed, so writing them is worthwhile
        - ``durable=True``: complete only when the blocks survive a crash, even if the pool keeps blocks in host memory

        >>> with Pool(POOL) as pool:
        ...     pool.put_many([b"a", b"b"], [b"1" * 4096, [b"2" * 2048, b"3" * 2048]], chain=True)
        [<Put.STORED: 'stored'>, <Put.STORED: 'stored'>]
        """
        # options that kvpy_one() lacks
        batched = layout_tag or caller_tag or session or chain or parent or continues or missed or durable
        if len(keys) == 1 and not batched:
            alone = self._alone(OP_PUT, keys, bufs, priority=priority, ttl=ttl, timeout=timeout)
            if alone is not None:
                res, flags = alone
                return [Put.DIFFERS if res == -errno.EEXIST and flags & LEN_DIFFERS else put_result(res)]
        return self.run(self.batch(OP_PUT, keys, bufs, priority=priority, ttl=ttl, timeout=timeout,
                                   layout_tag=layout_tag, caller_tag=caller_tag, session=session, chain=chain,
                                   parent=parent, continues=continues, missed=missed, durable=durable))

    def get_many(self, keys: Sequence[bytes], bufs: Sequence[Buffer], *, offset: int | None = None,
                 layout_tag: int | None = None, timeout: float | None = None,
                 hard: bool = False) -> list[int | None | KvblkError]:
        """Fetch blocks, all in flight at once; returns a length for each key, or None for a miss.

        ``offset``: fetch only a part of each block, as long as its buffer. ``layout_tag``: a block with another tag is
        a miss. ``timeout``: seconds. ``hard=True``: complete on time in any case, by copying through kernel memory.
        """
        if len(keys) == 1 and offset is None and layout_tag is None and not hard:
            alone = self._alone(OP_GET, keys, bufs, timeout=timeout)
            if alone is not None:
                return [get_result(alone[0])]
        return self.run(self.batch(OP_GET, keys, bufs, **get_options(offset, layout_tag, timeout, hard)))

    def delete_many(self, keys: Sequence[bytes]) -> list[bool | KvblkError]:
        """Remove blocks durably; returns False for a missing block."""
        return self.run(self.batch(OP_DELETE, keys, None))

    def prefetch_many(self, keys: Sequence[bytes], *, timeout: float | None = None) -> list[bool | KvblkError]:
        """Load blocks into host memory before they are needed; returns False for a missing block.

        A result is a KvblkError with EOPNOTSUPP if the pool keeps no blocks in host memory, with ENOSPC if that memory
        is full, and with ETIME if ``timeout`` (seconds) passed.
        """
        return self.run(self.batch(OP_PREFETCH, keys, None, timeout=timeout))

    # Single blocks

    def put(self, key: bytes, buf: Buffer, *, priority: int = 0, ttl: float = 0, timeout: float | None = None,
            layout_tag: int = 0, caller_tag: int = 0, session: int = 0, chain: bool = False,
            parent: bytes | None = None, continues: bool = False, missed: bool = False, durable: bool = False) -> Put:
        """Store a block; options as for :meth:`put_many`."""
        return raised(self.put_many((key,), (buf,), priority=priority, ttl=ttl, timeout=timeout, layout_tag=layout_tag,
                                    caller_tag=caller_tag, session=session, chain=chain, parent=parent,
                                    continues=continues, missed=missed, durable=durable)[0])

    def get_into(self, key: bytes, buf: Buffer, *, offset: int | None = None, layout_tag: int | None = None,
                 timeout: float | None = None, hard: bool = False) -> int | None:
        """Fetch a block into a buffer; returns its length, or None for a miss. Options as for :meth:`get_many`."""
        results = self.get_many((key,), (buf,), offset=offset, layout_tag=layout_tag, timeout=timeout, hard=hard)
        return raised(results[0])

    def layout_tag(self, key: bytes, buf: Buffer, *, timeout: float | None = None) -> int | None:
        """Fetch a block into a buffer, whatever its layout tag; returns the tag, or None for a miss.

        Distinguishes a block with another ``layout_tag`` from one that cannot be read.
        """
        batch = self.batch(OP_GET, (key,), (buf,), timeout=timeout)
        lib.kvpy_batch_run(self.handle, batch.native)
        tag = int(batch.native.layout_tags[0])
        return None if raised(batch.results()[0]) is None else tag

    def get(self, key: bytes) -> bytearray | None:
        """Fetch a block into new memory; returns None for a miss."""
        while size := self.size(key):
            buf = bytearray(size)
            try:
                got = self.get_into(key, buf)
            except KvblkError as e:
                # a longer block has replaced the one found
                if e.errno == errno.EMSGSIZE:
                    continue
                raise
            if got is None:
                return None
            # a shorter block may have replaced the one found
            return buf if got == size else buf[:got]
        return None

    def delete(self, key: bytes) -> bool:
        """Remove a block durably; returns False if it is missing."""
        return raised(self.delete_many((key,))[0])

    def prefetch(self, key: bytes) -> bool:
        """Load a block into host memory, as :meth:`prefetch_many`."""
        return raised(self.prefetch_many((key,))[0])

    def size(self, key: bytes) -> int | None:
        """Return the length of a block, without I/O, or None if it is missing."""
        sizes = self.lookup((key,), sizes=True).sizes
        return sizes[0] or None if sizes else None

    def __contains__(self, key: bytes) -> bool:
        return self.lookup((key,)).present == 1

    # Lookups

    def lookup(self, keys: Sequence[bytes], *, lease: float = 0, prefix: bool = False, sizes: bool = False,
               tags: bool = False) -> Lookup:
        """Look up many blocks, without I/O.

        ``lease``: seconds for which the blocks found stay readable. ``prefix``: stop at the first missing key.

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
        """Count the leading keys that are present (``leading`` of the result), and lease their blocks."""
        return self.lookup(keys, lease=lease, prefix=True)

    def prestage(self, keys: Sequence[bytes], *, lease: float = 0, max_bytes: int = 0, stop_at_miss: bool = False,
                 timeout: float | None = None, cookie: int = 0, priority: int = 0) -> Prestaged:
        """Load blocks into host memory before they are needed, in the order of the keys; returns when the last one is
        loaded.

        - ``lease``: seconds for which the blocks in memory at the end stay there
        - ``max_bytes``: the first block that exceeds this limit ends the loading
        - ``stop_at_miss``: the keys are a prompt's, so do not load blocks behind the first miss
        - ``timeout``: seconds
        - ``cookie``: for :meth:`cancel`
        - ``priority``: 0 to 3; gets delay prefetches, and a higher priority resumes first

        Raises :class:`KvblkError` with EOPNOTSUPP if the pool keeps no blocks in host memory. For asyncio use
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
        """Cancel operations of this pool object with this cookie; returns the number found in flight."""
        out = ffi.new("unsigned int *")
        answer = lib.kvblk_cancel(self.handle, cookie, out)
        return 0 if answer == MISS else check(answer) or out[0]

    def drain(self, timeout: float | None = None) -> None:
        """Wait for all operations in flight; raises KvblkError with ETIME after ``timeout`` seconds."""
        deadline = _deadline(timeout)
        while (answer := lib.kvblk_drain(self.handle, deadline)) == -errno.EINTR:
            pass
        check(answer)


class GetOptions(TypedDict):
    """Options of a get, as arguments of Pool.batch()."""

    op_flags: int
    offset: int
    layout_tag: int
    timeout: float | None


def get_options(offset: int | None, layout_tag: int | None, timeout: float | None, hard: bool) -> GetOptions:
    """Return the options of a get as arguments of Pool.batch()."""
    flags = 0
    if offset is not None:
        flags |= OPF_PARTIAL
    if layout_tag is not None:
        flags |= OPF_LAYOUT
    if hard:
        flags |= OPF_HARD_DEADLINE
    return {"op_flags": flags, "offset": offset or 0, "layout_tag": layout_tag or 0, "timeout": timeout}


def _joined(keys: Sequence[bytes], sizes: Collection[int], total: int) -> bytes:
    """Join keys that have these sizes and this total length."""
    joined = b"".join(keys)
    if len(joined) != total:
        # len() counts items, which may have more than one byte
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
    # 0 would mean no expiry
    return max(1, round(ttl)) if ttl else 0


def _milliseconds(lease: float) -> int:
    if lease < 0:
        raise ValueError("a lease's time is not negative")
    return max(1, round(lease * 1000)) if lease else 0
