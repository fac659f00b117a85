# SPDX-License-Identifier: MIT
"""A storage plugin of LMCache's in-process engine.

A block of the pool holds the bytes of a chunk. Its tag holds the chunk's format and number of tokens. These and
LMCache's metadata, which the key space covers, determine the shape. A chunk of any other shape is not stored.
"""

from __future__ import annotations

import asyncio
import collections
import concurrent.futures
import functools
import hashlib
import json
import threading
from collections.abc import Callable, Sequence
from typing import Any

import kvblk
from lmcache.v1.memory_management import MemoryFormat
from lmcache.v1.storage_backend.abstract_backend import StoragePluginInterface

from .options import Options
from .store import Store, log, runtime

#: prefix of the options in ``extra_config``
PREFIX = "kvblk."
#: formats of complete chunks: the shape follows from LMCache's metadata
FORMATS = {fmt.value: fmt for fmt in (MemoryFormat.KV_2LTD, MemoryFormat.KV_MLA_FMT)}
#: the formats' dimension of tokens
TOKENS = 2

Done = Callable[[Any], None]


class _Run:
    """Consecutive chunks of a prompt with equal tags: one batch of puts."""

    __slots__ = ("tag", "keys", "blocks", "objs")

    def __init__(self, tag: int):
        self.tag = tag
        self.keys: list[Any] = []
        self.blocks: list[bytes] = []
        self.objs: list[Any] = []


class StorageBackend(StoragePluginInterface):
    """The backend, which LMCache creates; README.md describes its configuration."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        given = self.config.extra_config or {}
        options = Options.read({name.removeprefix(PREFIX): value for name, value in given.items()
                                if name.startswith(PREFIX)}, "extra_config")
        if self.config.use_layerwise:
            raise ValueError("kvblk: use_layerwise is not supported: LMCache does not see that a layer's chunk is "
                             "missing, and would compute with what is in the GPU's memory")
        if self.config.pre_caching_hash_algorithm == "builtin":
            log.warning('kvblk: LMCache names chunks by a hash of 64 bits that anyone can make collide, and a pool keeps '
                        'them: set pre_caching_hash_algorithm to "sha256_cbor", and PYTHONHASHSEED')
        self._secret = options.secret()
        self._store = Store(options)
        self._pool = kvblk.FuturePool(self._store.pool, options.threads)
        # threads waiting for loads; kvblk's threads do the I/O
        self._waiting = concurrent.futures.ThreadPoolExecutor(options.threads, "kvblk-loads")
        self._space = functools.lru_cache(256)(self._new_space)
        self._lock = threading.Lock()
        #: keys with puts in flight
        self._putting: collections.Counter[Any] = collections.Counter()
        if self.local_cpu_backend is not None:
            self._use_memory_of(self.local_cpu_backend)

    def _use_memory_of(self, cpu: Any) -> None:
        buffer = getattr(cpu.get_memory_allocator(), "buffer", None)
        if buffer is not None and buffer.numel():
            self._store.register(buffer.data_ptr(), buffer.nbytes)
        close = cpu.close

        def close_after_us() -> None:
            self.close()
            close()

        # close before the owner of the memory, which batches may be using; LMCache closes the owner first
        cpu.close = close_after_us

    def __str__(self) -> str:
        return "kvblk"

    def counts(self) -> dict[str, int]:
        """Return the counters."""
        return self._store.report.counts()

    def get_allocator_backend(self) -> Any:
        return self.local_cpu_backend

    def close(self) -> None:
        """Cancel all operations and wait for them."""
        self._pool.close()
        self._waiting.shutdown(wait=True, cancel_futures=True)
        self._store.close()

    # Keys

    def _new_space(self, model: str, dtype: str, world_size: int, worker_id: int, layout: str) -> kvblk.Keyspace:
        options = self._store.options
        return kvblk.Keyspace(runtime=runtime("lmcache-engine"), model=model, dtype=dtype, layout=layout,
                              block_tokens=self.metadata.chunk_size, tp_rank=worker_id, tp_size=world_size,
                              salt=json.dumps([options.salt, options.layout]), secret=self._secret)

    def _layout(self) -> str:
        """Describe one token of a chunk. Not cached, because LMCache may set it after it created this backend."""
        about = self.metadata
        return f"{[tuple(shape) for shape in about.get_shapes(1)]} {about.get_dtypes()} mla={about.use_mla}"

    def _key(self, key: Any, layout: str) -> bytes:
        space = self._space(key.model_name, str(key.dtype), key.world_size, key.worker_id, layout)
        block = str(key.chunk_hash_hex).encode()
        if key.tags:
            # hashed, because tags of a request have any length
            block += hashlib.sha256(json.dumps(key.tags, default=str).encode()).digest()
        return space.key(block)

    def _keys(self, keys: Sequence[Any]) -> list[bytes]:
        """Return kvblk's keys, up to the first invalid key."""
        layout = self._layout()
        blocks = []
        for key in keys:
            try:
                blocks.append(self._key(key, layout))
            except (kvblk.KvblkError, ValueError) as e:
                self._store.report.trouble("keys_unknown", "a key is unknown", f"{key!r:.200}: {e}")
                break
        return blocks

    # Lookups and leases

    def contains(self, key: Any, pin: bool = False) -> bool:
        return self.batched_contains([key], pin) == 1

    def batched_contains(self, keys: list[Any], pin: bool = False) -> int:
        blocks = self._keys(keys)
        store = self._store
        try:
            found = store.pool.lookup(blocks, lease=store.options.lease_s if pin else 0, prefix=True, sizes=True, tags=True)
            present = self._whole(blocks, found)
        except (kvblk.KvblkError, ValueError) as e:
            store.report.trouble("lookup_errors", "a lookup failed", e)
            return 0
        store.leases.hold(found.lease, blocks[:present])
        store.looked_up(len(blocks), present)
        return present

    def _whole(self, blocks: list[bytes], found: kvblk.Lookup) -> int:
        """Count the leading blocks that are chunks; deletes a block that is not, or else lookups would find it forever."""
        for i, (size, tag) in enumerate(zip((found.sizes or ())[:found.leading], found.tags or ())):
            length = self._length(tag)
            if size != length:
                self._store.checked.refuse(blocks[i:i + 1], f"it has {size} bytes, a chunk like this {length}")
                return i
        return found.leading

    def _length(self, tag: int) -> int:
        """Return the length of a chunk with this tag."""
        if tag >> 32 not in FORMATS:
            return 0
        return sum(shape.numel() * dtype.itemsize for shape, dtype in zip(self.metadata.get_shapes(tag & 0xffffffff),
                                                                          self.metadata.get_dtypes()))

    async def batched_async_contains(self, lookup_id: str, keys: list[Any], pin: bool = False) -> int:
        return self.batched_contains(keys, pin)

    def pin(self, key: Any) -> bool:
        return self.contains(key, True)

    def unpin(self, key: Any) -> bool:
        return self._store.leases.drop(self._keys([key]))

    def touch_cache(self) -> None:
        """Do nothing: the pool tracks use itself."""

    # Puts

    def exists_in_put_tasks(self, key: Any) -> bool:
        with self._lock:
            return key in self._putting

    def batched_submit_put_task(self, keys: Sequence[Any], objs: list[Any], transfer_spec: Any = None,
                                on_complete_callback: Done | None = None) -> list[Any] | None:
        """Store consecutive chunks of a prompt in the background."""
        runs: list[_Run] = []
        for key, block, obj in zip(keys, self._keys(keys), objs):
            if not self._storable(obj):
                break
            tag = obj.meta.fmt.value << 32 | obj.meta.shape[TOKENS]
            # all puts of a batch share a tag, and a prompt's last chunk may be shorter
            if not runs or runs[-1].tag != tag:
                runs.append(_Run(tag))
            runs[-1].keys.append(key)
            runs[-1].blocks.append(block)
            runs[-1].objs.append(obj)
        futures = []
        for i, run in enumerate(runs):
            future = self._put(run, on_complete_callback, parent=runs[i - 1].blocks[-1] if i else b"",
                               continues=i + 1 < len(runs))
            if future is None:
                break
            futures.append(future)
        return futures or None

    async def async_batched_submit_put_task(self, keys: Sequence[Any], objs: list[Any], transfer_spec: Any = None,
                                            on_complete_callback: Done | None = None) -> None:
        self.batched_submit_put_task(keys, objs, transfer_spec, on_complete_callback)

    def _storable(self, obj: Any) -> bool:
        """Return True if a load can derive the shape, and the pool accepts the length."""
        meta = obj.meta
        shapes = [*(meta.shapes or (meta.shape,))]
        dtypes = [*(meta.dtypes or (meta.dtype,))]
        if (meta.fmt.value not in FORMATS or len(meta.shape) <= TOKENS or dtypes != self.metadata.get_dtypes()
                or shapes != self.metadata.get_shapes(meta.shape[TOKENS])):
            self._store.report.trouble("chunks_of_unknown_shape", "a chunk was not stored",
                                       f"its shape is unknown: {meta.fmt}, {shapes}, {dtypes}")
            return False
        return self._store.fits(obj.get_size())

    def _put(self, run: _Run, callback: Done | None, **chain: Any) -> concurrent.futures.Future[Any] | None:
        for obj in run.objs:
            obj.ref_count_up()
        with self._lock:
            self._putting.update(run.keys)
        try:
            future = self._pool.put_many(run.blocks, [obj.byte_array for obj in run.objs], chain=True,
                                         caller_tag=run.tag, **chain, **self._store.options.put_options())
        except (kvblk.KvblkError, ValueError, TypeError, MemoryError) as e:
            self._store.report.trouble("batches_not_started", "a batch was not started", e, len(run.keys))
            self._let_go(run)
            return None
        future.add_done_callback(functools.partial(self._put_is_over, run, callback))
        return future

    def _let_go(self, run: _Run) -> None:
        with self._lock:
            self._putting -= collections.Counter(run.keys)
        for obj in run.objs:
            obj.ref_count_down()

    def _put_is_over(self, run: _Run, callback: Done | None, future: concurrent.futures.Future[Any]) -> None:
        sizes = [obj.get_size() for obj in run.objs]
        self._let_go(run)
        stored = self._store.report.stored(future.result(), sizes)
        for key, is_stored in zip(run.keys, stored):
            if not is_stored or callback is None:
                continue
            try:
                callback(key)
            except Exception:
                log.exception("kvblk: a callback of LMCache for stored chunks failed")

    # Loads

    def get_blocking(self, key: Any) -> Any:
        return self.batched_get_blocking([key])[0]

    def batched_get_blocking(self, keys: list[Any]) -> list[Any]:
        """Load chunks up to the first miss; None for the others."""
        chunks = self._load(self._keys(keys))
        return chunks + [None] * (len(keys) - len(chunks))

    def get_non_blocking(self, key: Any, location: str | None = None) -> concurrent.futures.Future[Any] | None:
        try:
            return self._waiting.submit(self.get_blocking, key)
        except RuntimeError:
            # the pool is closed
            return None

    async def batched_get_non_blocking(self, lookup_id: str, keys: list[Any], transfer_spec: Any = None) -> list[Any]:
        """Load chunks up to the first miss, and return only these. Ends the lookup's lease."""
        try:
            future = self._waiting.submit(self.batched_get_blocking, keys)
        except RuntimeError:
            return []
        try:
            chunks = await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            future.add_done_callback(_drop)
            raise
        finally:
            self._store.leases.drop(self._keys(keys))
        return [chunk for chunk in chunks if chunk is not None]

    def _load(self, blocks: list[bytes]) -> list[Any]:
        """Load chunks up to the first miss."""
        store = self._store
        objs: list[Any] = []
        results: list[Any] = []
        try:
            with store.pool.lookup(blocks, lease=store.options.lease_s, prefix=True, sizes=True, tags=True) as found:
                for size, tag in zip((found.sizes or ())[:self._whole(blocks, found)], found.tags or ()):
                    obj = self._room(size, tag)
                    if obj is None:
                        break
                    objs.append(obj)
                if objs:
                    results = self._pool.get_many(blocks[:len(objs)], [obj.byte_array for obj in objs],
                                                  timeout=store.options.timeout_s).result()
        except (kvblk.KvblkError, ValueError, TypeError, MemoryError) as e:
            store.report.trouble("load_errors", "chunks were not loaded", e, len(blocks))
        good = store.checked.loaded(blocks, results, [obj.get_size() for obj in objs])
        count = good.index(False) if False in good else len(good)
        for obj in objs[count:]:
            obj.ref_count_down()
        return objs[:count]

    def _room(self, size: int, tag: int) -> Any:
        """Allocate LMCache's memory for a block; returns None if there is none."""
        if self.local_cpu_backend is None:
            return None
        # no busy_loop: the wait could be for memory that this load itself holds
        obj = self.local_cpu_backend.allocate(self.metadata.get_shapes(tag & 0xffffffff), self.metadata.get_dtypes(),
                                              FORMATS[tag >> 32], busy_loop=False)
        if obj is None:
            self._store.report.trouble("loads_without_memory", "a chunk was not loaded",
                                       f"no memory for {size} bytes: LMCache's max_local_cpu_size is used up")
        return obj

    # Deletes

    def remove(self, key: Any, force: bool = True) -> bool:
        return self.batched_remove([key], force) == 1

    def batched_remove(self, keys: list[Any], force: bool = True) -> int:
        try:
            return sum(self._store.report.deleted(self._pool.delete_many(self._keys(keys)).result()))
        except (kvblk.KvblkError, ValueError, MemoryError) as e:
            self._store.report.trouble("delete_errors", "chunks were not deleted", e, len(keys))
            return 0


def _drop(future: concurrent.futures.Future[Any]) -> None:
    """Free the chunks of an abandoned load."""
    if not future.cancelled() and future.exception() is None:
        for chunk in future.result():
            if chunk is not None:
                chunk.ref_count_down()
