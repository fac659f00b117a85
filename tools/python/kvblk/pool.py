# SPDX-License-Identifier: MIT
"""Pools. Calls run in the calling thread and release the GIL.

Batches and lookups may have any number of keys. The library takes KVBLK_OPS_MAX or KVBLK_LOOKUP_MAX at once, so longer
ones run in parts, one after the other.
"""

from __future__ import annotations

import bisect
import errno
import functools
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
from .results import (OP_DELETE, OP_GET, OP_PREFETCH, OP_PUT, Batch, Info, Lease, Lookup, Prestaged, Put, raised,
                      result_of)

KEY_MAX: int = lib.KVBLK_KEY_MAX
VALUE_MAX: int = lib.KVBLK_VALUE_MAX
PIECES_MAX: int = lib.KVBLK_PIECES_MAX
OPS_MAX: int = lib.KVBLK_OPS_MAX
LOOKUP_MAX: int = lib.KVBLK_LOOKUP_MAX

_OPEN_TEXTS = {errno.ENODEV: "no such pool, or it is being destroyed", errno.ENOTTY: "not a node of a kvblk pool",
               errno.EACCES: "permission denied: the node's group, usually kvblk, may open it"}
_TIERS = (None, "member", "memory")


class Pool(OfProcess):
    """An open pool. Many threads may use it at once; a child of fork() must open its own.

    >>> with Pool(POOL) as pool:
    ...     pool.put(b"greeting", b"hello")
    ...     pool.get(b"greeting")
    ...     pool.get(b"nobody") is None
    <Put.STORED: 'stored'>
    bytearray(b'hello')
    True

    ``name`` is the name of a pool, or the path of a node. ``rdonly=True``: open for gets, prefetches, lookups and leases
    only. Raises :class:`KvblkError` if there is no such pool or the caller may not use it.
    """

    def __init__(self, name: str | os.PathLike[str], *, rdonly: bool = False):
        text = os.fsencode(name)
        if b"\0" in text:
            raise ValueError("a pool's name has no zero byte")
        out = ffi.new("struct kvblk **")
        check(lib.kvblk_open(text, lib.KVBLK_OPEN_RDONLY if rdonly else 0, out), _OPEN_TEXTS)
        self._own(out[0])

    @classmethod
    def open_fd(cls, fd: int) -> Pool:
        """Return the pool of an open node, for example one received from another process; the pool owns the descriptor."""
        out = ffi.new("struct kvblk **")
        check(lib.kvblk_open_fd(fd, out), _OPEN_TEXTS)
        pool = cls.__new__(cls)
        pool._own(out[0])
        return pool

    def _own(self, handle: Any) -> None:
        OfProcess.__init__(self)
        # closes the node when the last call that uses the handle returns
        self._handle: Any = ffi.gc(handle, lib.kvblk_close)
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

    def get_info(self) -> Info:
        """Return limits and features of the pool."""
        out = ffi.new("struct kvblk_info *")
        check(lib.kvblk_get_info(self.handle, out, ffi.sizeof(out[0])))
        texts: dict[str, Any] = {"pool_name": ffi.string(out.pool_name).decode(), "pool_uuid": bytes(ffi.buffer(out.pool_uuid))}
        return Info(**texts, **{name: getattr(out, name) for name in Info._fields if name not in texts})

    # Memory

    def register(self, buf: Buffer, *, block_max: int = 0, lanes: int = 0) -> Memory:
        """Pin a buffer once, for many operations. It stays pinned until ``close()`` of the memory or the pool.

        The registration is of the pages: do not remap the addresses of an (address, length) buffer before ``close()``.
        If the memory has to be staged, ``block_max`` is the longest block (0: the pool's limit, at most 16 MiB), and
        ``lanes`` is the number of batches that run at once (0: 2).

        >>> slab = bytearray(1 << 20)
        >>> with Pool(POOL) as pool, pool.register(slab) as memory:
        ...     pool.put(b"of the slab", memory[4096:8192])
        <Put.STORED: 'stored'>
        """
        address, length, handle, keep = buffers.piece_of(buf, True)
        if handle:
            raise ValueError("that is registered memory")
        out = ffi.new("struct kvblk_mem **")
        check(lib.kvblk_mem_register(self.handle, ffi.cast("void *", address), length, _mem_options(block_max, lanes), out))
        return self._remember(Memory(self, out[0], address, length, (buf, keep)))

    def alloc(self, source: str, length: int, *, block_max: int = 0, lanes: int = 0) -> Memory:
        """Allocate and register memory of "host", a PCI device ("0000:03:00.0"), a driver's node, or "cuda:0"."""
        out = ffi.new("struct kvblk_mem **")
        check(lib.kvblk_mem_alloc(self.handle, source.encode(), length, _mem_options(block_max, lanes), out))
        address = int(ffi.cast("uintptr_t", lib.kvblk_mem_addr(out[0])))
        return self._remember(Memory(self, out[0], address, length, None, readable=not source.startswith("cuda:")))

    @functools.cached_property
    def _chunk(self) -> int:
        """Bytes under a checksum; 0 if the pool wants none, or has the kernel check all gets."""
        info = self.get_info()
        wanted = info.features & lib.KVBLK_FEAT_CALLER_CHECKS and info.integrity != lib.KVBLK_CHECK_HEADER
        return info.chunk_size if wanted else 0

    def gpu_checksums(self, buf: Buffer) -> bool:
        """Return whether the option ``gpu_checksums`` is of use for a buffer in registered memory: it is a GPU's, whose
        CUDA can compute checksums, and the pool wants checksums (the tunable ``integrity`` is not header).

        With that option the GPU computes the checksums of puts, and verifies gets, instead of the CPU; the blocks must
        be complete. Memory of a PCI device is then transferred directly even if ``integrity`` is full.
        """
        address, length, mem, _ = buffers.piece_of(buf, False)
        within = None if mem else self._within(address, length)
        if within is not None:
            mem = within[2]
        return bool(mem and self._chunk and lib.kvpy_gpu_sums(self.handle, mem))

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
              missed: bool = False, durable: bool = False, gpu_checksums: bool = False) -> Batch:
        """Prepare a batch; :class:`kvblk.Queue` runs batches, too."""
        handle = self.handle
        parent = parent or b""
        count = len(keys)
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
                if len(parts) > PIECES_MAX:
                    raise ValueError(f"a scatter list has up to {PIECES_MAX} pieces, not {len(parts)}")
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
            op_flags |= lib.KVBLK_OPF_DURABLE
        chunk = self._chunk if gpu_checksums and count else 0
        if chunk and opcode == OP_GET:
            op_flags |= lib.KVBLK_OPF_CALLER_CHECKS
        options = {
            "opcode": opcode, "priority": priority, "chain": chain, "op_flags": op_flags, "ttl_s": _seconds(ttl),
            "offset": offset, "layout_tag": layout_tag, "caller_tag": caller_tag, "deadline_ns": deadline_of(timeout),
            "chunk": chunk,
            "hints": (lib.KVBLK_HINT_CONTINUES if continues else 0) | (lib.KVBLK_HINT_MISSED if missed else 0),
        }
        native = lib.kvpy_batch_new(ffi.new("struct kvpy_options *", options), count, joined, lens, parent,
                                    len(parent), counts, len(mems), places, mems, ranges.native)
        if not native:
            raise MemoryError
        if chunk and opcode == OP_PUT:
            lib.kvpy_batch_checksums(handle, native)
        return Batch(native, opcode, keep, handle if chunk and opcode == OP_GET else None)

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
               timeout: float | None = None) -> list[Any] | None:
        """Run one operation on one piece. Returns its result, or None if the operation needs batch().

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
        out = ffi.new("struct kvpy_result *")
        lib.kvpy_one(handle, opcode, key, len(key), address, length, mem, priority, _seconds(ttl), deadline_of(timeout),
                     out)
        del keep
        return [result_of(opcode, out.res, out.flags, out.value_len)]

    def put_many(self, keys: Sequence[bytes], bufs: Sequence[Buffer], *, priority: int = 0, ttl: float = 0,
                 timeout: float | None = None, layout_tag: int = 0, caller_tag: int = 0, chain: bool = False,
                 parent: bytes | None = None, continues: bool = False, missed: bool = False,
                 durable: bool = False, gpu_checksums: bool = False) -> list[Put | KvblkError]:
        """Store blocks, all in flight at once; returns one result per key.

        Options, for all blocks:

        - ``priority``: 0 (evicted first) to 3
        - ``ttl``, ``timeout``: seconds
        - ``layout_tag``, ``caller_tag``: integers
        - ``chain=True``: the blocks are consecutive blocks of one prompt; ``parent`` is the key of the preceding block,
          and ``continues=True`` announces that the chain continues in the next batch
        - ``missed=True``: the blocks were requested before and missed, so writing them is worthwhile
        - ``durable=True``: complete only when the blocks survive a crash, even if the pool keeps blocks in host memory
        - ``gpu_checksums=True``: the GPU that holds the blocks computes their checksums, see :meth:`gpu_checksums`

        >>> with Pool(POOL) as pool:
        ...     pool.put_many([b"a", b"b"], [b"1" * 4096, [b"2" * 2048, b"3" * 2048]], chain=True)
        [<Put.STORED: 'stored'>, <Put.STORED: 'stored'>]
        """
        # options that kvpy_one() lacks
        batched = layout_tag or caller_tag or chain or parent or continues or missed or durable or gpu_checksums
        if len(keys) == 1 and not batched:
            alone = self._alone(OP_PUT, keys, bufs, priority=priority, ttl=ttl, timeout=timeout)
            if alone is not None:
                return alone
        return self.run(self.batch(OP_PUT, keys, bufs, priority=priority, ttl=ttl, timeout=timeout,
                                   layout_tag=layout_tag, caller_tag=caller_tag, chain=chain, parent=parent,
                                   continues=continues, missed=missed, durable=durable, gpu_checksums=gpu_checksums))

    def get_many(self, keys: Sequence[bytes], bufs: Sequence[Buffer], *, offset: int | None = None,
                 layout_tag: int | None = None, timeout: float | None = None, hard_deadline: bool = False,
                 gpu_checksums: bool = False) -> list[int | None | KvblkError]:
        """Fetch blocks, all in flight at once; returns a length for each key, or None for a miss.

        ``offset``: fetch only a part of each block, as long as its buffer. ``layout_tag``: a block with another tag is
        a miss. ``timeout``: seconds. ``hard_deadline=True``: complete on time in any case, by copying through kernel
        memory. ``gpu_checksums=True``: the GPU verifies the blocks, see :meth:`gpu_checksums`.
        """
        if len(keys) == 1 and offset is None and layout_tag is None and not hard_deadline and not gpu_checksums:
            alone = self._alone(OP_GET, keys, bufs, timeout=timeout)
            if alone is not None:
                return alone
        return self.run(self.batch(OP_GET, keys, bufs, gpu_checksums=gpu_checksums,
                                   **get_options(offset, layout_tag, timeout, hard_deadline)))

    def delete_many(self, keys: Sequence[bytes], *, timeout: float | None = None) -> list[bool | KvblkError]:
        """Remove blocks durably; returns False for a missing block. ``timeout``: seconds."""
        return self.run(self.batch(OP_DELETE, keys, None, timeout=timeout))

    def prefetch_many(self, keys: Sequence[bytes], *, timeout: float | None = None,
                      priority: int = 0) -> list[bool | KvblkError]:
        """Load blocks into host memory before they are needed; returns False for a missing block.

        A result is a KvblkError with EOPNOTSUPP if the pool keeps no blocks in host memory, with ENOSPC if that memory
        is full, and with ETIME if ``timeout`` (seconds) passed. ``priority``: 0 to 3, as for :meth:`prestage`, which
        loads many blocks with limits.
        """
        return self.run(self.batch(OP_PREFETCH, keys, None, timeout=timeout, priority=priority))

    # Single blocks

    def put(self, key: bytes, buf: Buffer, *, priority: int = 0, ttl: float = 0, timeout: float | None = None,
            layout_tag: int = 0, caller_tag: int = 0, parent: bytes | None = None, continues: bool = False,
            missed: bool = False, durable: bool = False) -> Put:
        """Store a block; options as for :meth:`put_many`."""
        return raised(self.put_many((key,), (buf,), priority=priority, ttl=ttl, timeout=timeout, layout_tag=layout_tag,
                                    caller_tag=caller_tag, parent=parent, continues=continues, missed=missed,
                                    durable=durable)[0])

    def get_into(self, key: bytes, buf: Buffer, *, offset: int | None = None, layout_tag: int | None = None,
                 timeout: float | None = None, hard_deadline: bool = False) -> int | None:
        """Fetch a block into a buffer; returns its length, or None for a miss. Options as for :meth:`get_many`."""
        return raised(self.get_many((key,), (buf,), offset=offset, layout_tag=layout_tag, timeout=timeout,
                                    hard_deadline=hard_deadline)[0])

    def layout_tag(self, key: bytes, buf: Buffer, *, timeout: float | None = None) -> int | None:
        """Fetch a block into a buffer, whatever its layout tag; returns the tag, or None for a miss.

        Distinguishes a block with another ``layout_tag`` from one that cannot be read.
        """
        handle = self.handle
        batch = self.batch(OP_GET, (key,), (buf,), timeout=timeout)
        lib.kvpy_batch_run(handle, batch.native)
        tag = int(batch.native.layout_tags[0])
        return None if raised(batch.results()[0]) is None else tag

    def get(self, key: bytes, *, offset: int | None = None, layout_tag: int | None = None, timeout: float | None = None,
            hard_deadline: bool = False) -> bytearray | None:
        """Fetch a block, or its end from ``offset`` on, into new memory; returns None for a miss. Options as for
        :meth:`get_many`."""
        size = self.exists(key)
        while size:
            buf = bytearray(max(1, size - (offset or 0)))
            try:
                got = self.get_into(key, buf, offset=offset, layout_tag=layout_tag, timeout=timeout,
                                    hard_deadline=hard_deadline)
            except KvblkError as e:
                # a longer block has replaced the block found
                if e.errno != errno.EMSGSIZE:
                    raise
                size = e.value_len
                continue
            # a shorter block may have replaced the block found
            return None if got is None else buf if got == len(buf) else buf[:got]
        return None

    def delete(self, key: bytes, *, timeout: float | None = None) -> bool:
        """Remove a block durably; returns False if it is missing."""
        return raised(self.delete_many((key,), timeout=timeout)[0])

    def prefetch(self, key: bytes, *, timeout: float | None = None, priority: int = 0) -> bool:
        """Load a block into host memory, as :meth:`prefetch_many`."""
        return raised(self.prefetch_many((key,), timeout=timeout, priority=priority)[0])

    def exists(self, key: bytes) -> int:
        """Return the length of a block, without I/O, or 0 if it is missing.

        Refreshes the block: as after a get, the pool evicts the block later. ``lookup(quiet=True)`` does not.
        """
        sizes = self.lookup((key,), sizes=True).sizes
        return sizes[0] if sizes else 0

    def __contains__(self, key: bytes) -> bool:
        """Return whether a block is present. Refreshes the block, as :meth:`exists`."""
        return self.exists(key) > 0

    # Lookups

    def lookup(self, keys: Sequence[bytes], *, lease: float = 0, prefix: bool = False, quiet: bool = False,
               sizes: bool = False, tags: bool = False, tiers: bool = False, times: bool = False) -> Lookup:
        """Look up many blocks, without I/O.

        ``lease``: seconds for which the blocks found stay readable. ``prefix``: stop at the first missing key.
        A lookup refreshes the present blocks before the first missing one: as after a get, the pool evicts them later.
        ``quiet``: leave their age as it is. ``tiers``: where each block is: "member", "memory", None for a missing
        block, or "unknown" for a place that only a later version of the package knows. ``times``: for each present
        key the seconds until gets of all present keys up to this one would be complete, if they were submitted now. 0.0
        if the blocks are in memory, or nothing is known of the bandwidth. Raises KvblkError if the kernel module can't
        predict times, see ``Info.predicts``.

        >>> with Pool(POOL) as pool:
        ...     pool.put(b"one", b"1")
        ...     with pool.lookup([b"one", b"two"], lease=10, sizes=True) as found:
        ...         found.leading, found[1], found.sizes
        <Put.STORED: 'stored'>
        (1, False, [1, 0])
        """
        handle, count = self.handle, len(keys)
        flags = (lib.KVBLK_LOOKUP_PREFIX if prefix else 0) | (lib.KVBLK_LOOKUP_QUIET if quiet else 0)
        lease_ms = _milliseconds(lease)
        bits = bytearray((count + 7) // 8)
        room = ffi.new("uint32_t[]", count) if sizes else ffi.NULL
        tag_room = ffi.new("uint64_t[]", count) if tags else ffi.NULL
        tier_room = ffi.new("uint8_t[]", count) if tiers else ffi.NULL
        time_room = ffi.new("uint32_t[]", count) if times else ffi.NULL
        out = ffi.new("struct kvpy_lookup *")
        leading = present = leased = 0
        leases = []
        for start in range(0, count, LOOKUP_MAX):
            part = keys[start:start + LOOKUP_MAX] if count > LOOKUP_MAX else keys
            lengths = set(map(len, part))
            same = len(lengths) == 1
            lens = [] if same else [*map(len, part)]
            joined = _joined(part, lengths, len(part) * max(lengths) if same else sum(lens))
            check(lib.kvpy_lookup(handle, len(part), joined, max(lengths) if same else 0, ffi.NULL if same else lens,
                                  flags | (lib.KVBLK_LOOKUP_LEASE if lease_ms else 0), lease_ms,
                                  ffi.from_buffer("uint8_t[]", bits) + start // 8, room + start if sizes else room,
                                  tag_room + start if tags else tag_room, tier_room + start if tiers else tier_room,
                                  time_room + start if times else time_room, out))
            leading += out.nr_leading if leading == start else 0
            present += out.nr_present
            leased += out.nr_leased
            leases.append((out.lease, out.lease_end_ns))
            if prefix and leading < start + len(part):
                break
            if out.nr_leased < out.nr_present:
                # or else the leased keys would not be the first present keys
                lease_ms = 0
        return Lookup(count, bits, leading, present, leased, Lease(self, leases),
                      ffi.unpack(room, count) if sizes else None, ffi.unpack(tag_room, count) if tags else None,
                      [_tier(number) for number in ffi.unpack(tier_room, count)] if tiers else None,
                      _times(ffi.unpack(time_room, count), bits) if times else None)

    def lookup_prefix(self, keys: Sequence[bytes], *, lease: float = 0) -> Lookup:
        """Count the leading keys that are present (``leading`` of the result), and lease their blocks. With a lease,
        ``leading`` is not more than ``leased``. Refreshes the leading blocks: as after a get, the pool evicts them
        later. ``lookup(prefix=True, quiet=True)`` does not."""
        found = self.lookup(keys, lease=lease, prefix=True)
        if lease:
            found.leading = min(found.leading, found.leased)
        return found

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

        Raises :class:`KvblkError` with EOPNOTSUPP if the pool keeps no blocks in host memory.
        """
        handle, lease_ms = self.handle, _milliseconds(lease)
        options = ffi.new("struct kvblk_prestage_options *", {
            "size": ffi.sizeof("struct kvblk_prestage_options"), "max_bytes": max_bytes, "lease_ms": lease_ms,
            "deadline_ns": deadline_of(timeout), "cookie": cookie, "priority": priority, "stop_at_miss": stop_at_miss})
        total = ffi.new("struct kvblk_prestage_sum *", {"size": ffi.sizeof("struct kvblk_prestage_sum")})
        states: list[str] = []
        leading = here = leased = loaded = 0
        leases = []
        try:
            for start in range(0, len(keys), LOOKUP_MAX):
                part = keys[start:start + LOOKUP_MAX]
                lens = [*map(len, part)]
                room = ffi.new("struct kvblk_prestaged[]", len(part))
                check(lib.kvblk_prestage(handle, _joined(part, lens, sum(lens)), lens, len(part), options, room, total))
                states += [_state(key.state) for key in room]
                leading += total.nr_leading if leading == start else 0
                here += total.nr_here
                leased += total.nr_leased
                loaded += total.loaded_bytes
                leases.append((total.lease, total.lease_end_ns))
                if {"clipped", "expired"} & {*states[start:]} or stop_at_miss and "missing" in states[start:]:
                    states += ["clipped"] * (len(keys) - len(states))
                    break
                if max_bytes:
                    options.max_bytes = max(1, max_bytes - loaded)
                if total.nr_leased < total.nr_here:
                    options.lease_ms = 0
        except BaseException:
            Lease(self, leases).release()
            raise
        return Prestaged(states, leading, here, leased, loaded, Lease(self, leases))

    def hint(self, keys: Sequence[bytes], *, priority: int | None = None, retain: float | None = None,
             demote: bool = False, release: bool = False) -> int:
        """Tell the pool what is known of the blocks' future; returns the number of blocks that the pool has. Does no I/O.

        - ``priority``: 0 (evicted first) to 3, as of a put
        - ``retain``: seconds, up to a day, for which the blocks have the highest priority; 0: no longer
        - ``demote=True``: the blocks need not be in host memory
        - ``release=True``: no one will ask for the blocks, so they are evicted first; not with another hint

        Name the keys of a chain first block first. Hints are advice; to be sure that blocks stay, lease them.
        """
        handle = self.handle
        flags = ((lib.KVBLK_OPF_PRIORITY if priority is not None else 0)
                 | (lib.KVBLK_OPF_RETAIN if retain is not None else 0)
                 | (lib.KVBLK_OPF_DEMOTE if demote else 0) | (lib.KVBLK_OPF_RELEASE if release else 0))
        hint = ffi.new("struct kvblk_hint *", {"size": ffi.sizeof("struct kvblk_hint"), "flags": flags,
                                               "priority": priority or 0, "retain_s": _seconds(retain or 0)})
        out = ffi.new("unsigned int *")
        present = 0
        for start in range(0, len(keys), LOOKUP_MAX):
            part = keys[start:start + LOOKUP_MAX]
            lens = [*map(len, part)]
            check(lib.kvblk_hint_keys(handle, _joined(part, lens, sum(lens)), lens, len(part), hint, out))
            present += out[0]
        return present

    def cancel(self, cookie: int) -> int:
        """Cancel operations of this pool object with this cookie; returns the number found in flight."""
        out = ffi.new("unsigned int *")
        answer = lib.kvblk_cancel(self.handle, cookie, out)
        return 0 if answer == MISS else check(answer) or out[0]

    def drain(self, timeout: float | None = None) -> None:
        """Wait for all operations in flight; raises KvblkError with ETIME after ``timeout`` seconds."""
        deadline = deadline_of(timeout)
        while (answer := lib.kvblk_drain(self.handle, deadline)) == -errno.EINTR:
            pass
        check(answer)


class GetOptions(TypedDict):
    """Options of a get, as arguments of Pool.batch()."""

    op_flags: int
    offset: int
    layout_tag: int
    timeout: float | None


def get_options(offset: int | None, layout_tag: int | None, timeout: float | None, hard_deadline: bool) -> GetOptions:
    """Return the options of a get as arguments of Pool.batch()."""
    flags = 0
    if offset is not None:
        flags |= lib.KVBLK_OPF_PARTIAL
    if layout_tag is not None:
        flags |= lib.KVBLK_OPF_LAYOUT
    if hard_deadline:
        flags |= lib.KVBLK_OPF_HARD_DEADLINE
    return {"op_flags": flags, "offset": offset or 0, "layout_tag": layout_tag or 0, "timeout": timeout}


def _times(us: list[int], bits: bytearray) -> list[float]:
    """Return seconds. Each part of a lookup has times as if it were the first, so add those of the parts before it."""
    before = 0
    for start in range(LOOKUP_MAX, len(us), LOOKUP_MAX):
        before = max(before, *us[start - LOOKUP_MAX:start])
        for i in range(start, min(start + LOOKUP_MAX, len(us))):
            us[i] += before if bits[i // 8] >> i % 8 & 1 else 0
    return [time / 1e6 for time in us]


def _tier(number: int) -> str | None:
    """Return the name of a tier; "unknown" if the kernel reports a later one: the block is present."""
    return _TIERS[number] if number < len(_TIERS) else "unknown"


@functools.cache
def _state(number: int) -> str:
    """Return the name of a prestage state; "unknown" if libkvblk has none."""
    return str(ffi.string(lib.kvblk_prestage_state_name(number)).decode())


def _mem_options(block_max: int, lanes: int) -> Any:
    return ffi.new("struct kvblk_mem_options *",
                   {"size": ffi.sizeof("struct kvblk_mem_options"), "block_max": block_max, "lanes": lanes})


def _joined(keys: Sequence[bytes], sizes: Collection[int], total: int) -> bytes:
    """Join keys that have these sizes and this total length."""
    joined = b"".join(keys)
    if len(joined) != total:
        # len() counts items, which may have more than one byte
        raise TypeError("keys are bytes")
    if sizes and (min(sizes) < 1 or max(sizes) > KEY_MAX):
        raise ValueError(f"a key has 1 to {KEY_MAX} bytes")
    return joined


def deadline_of(timeout: float | None) -> int:
    """Return the time of CLOCK_MONOTONIC in nanoseconds at which a timeout ends; 0: no deadline."""
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
