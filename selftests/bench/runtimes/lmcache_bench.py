# SPDX-License-Identifier: MIT
"""LMCache's L2 adapters of its server (ours against fs and fs_native), and its engine's local_disk against our plugin."""

from __future__ import annotations

import argparse
import json
import select
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from lmcache.utils import CacheEngineKey
from lmcache.v1.config import LMCacheEngineConfig
from lmcache.v1.distributed.api import ObjectKey
from lmcache.v1.distributed.internal_api import L1MemoryDesc
from lmcache.v1.distributed.l2_adapters import create_l2_adapter
from lmcache.v1.distributed.l2_adapters.config import parse_args_to_l2_adapters_config
from lmcache.v1.event_manager import EventManager
from lmcache.v1.memory_management import MemoryFormat, MemoryObjMetadata, TensorMemoryObj
from lmcache.v1.metadata import LMCacheMetadata
from lmcache.v1.platform import consume_fd
from lmcache.v1.storage_backend.storage_manager import StorageManager

import turns

#: an 8B model: layers, heads and head size
LAYERS, HEADS, DIM = 32, 8, 128
TOKEN = 2 * LAYERS * HEADS * DIM * 2


class L2(turns.Side):
    """An L2 adapter, driven as the server's controllers do: tasks, event descriptors, results."""

    def __init__(self, slab: turns.Slab, spec: dict[str, Any], directory: str = ""):
        self.slab = slab
        self.directory = directory
        config = parse_args_to_l2_adapters_config(argparse.Namespace(l2_adapter=[json.dumps(spec)])).adapters[0]
        self.adapter = create_l2_adapter(config, l1_memory_desc=L1MemoryDesc(
            ptr=slab.memory.ctypes.data, size=slab.memory.nbytes, align_bytes=turns.PAGE))
        self.prepare = slab.stamp
        self.check = slab.check

    def keys(self, round_number: int, batch: Sequence[int]) -> list[ObjectKey]:
        return [ObjectKey(chunk_hash=(round_number << 32 | i).to_bytes(32, "big"), model_name="org/model-8b",
                          kv_rank=0x01000100) for i in batch]

    def objects(self, view: Any, batch: Sequence[int]) -> list[TensorMemoryObj]:
        out = []
        for i in batch:
            data = torch.from_numpy(view(i)).view(torch.bfloat16)
            about = MemoryObjMetadata(shape=data.shape, dtype=data.dtype, address=data.data_ptr(), phy_size=data.nbytes,
                                      fmt=MemoryFormat.KV_2LTD, ref_count=1)
            out.append(TensorMemoryObj(data, about, parent_allocator=None))
        return out

    def put(self, round_number: int, batches: Sequence[Sequence[int]]) -> list[float]:
        adapter = self.adapter
        fd = adapter.get_store_event_fd()
        poll = select.poll()
        poll.register(fd, select.POLLIN)

        def over() -> Iterator[int]:
            poll.poll()
            consume_fd(fd)
            for task, result in adapter.pop_completed_store_tasks().items():
                if not result.is_successful():
                    raise AssertionError("a store failed")
                yield task

        # made before the clock starts, as in LMCache
        made = [(self.keys(round_number, batch), self.objects(self.slab.put_view, batch)) for batch in batches]
        return turns.in_flight(made, turns.THREADS, lambda each: adapter.submit_store_task(*each), over)

    def get(self, round_number: int, batches: Sequence[Sequence[int]]) -> list[float]:
        adapter = self.adapter
        looking: dict[int, Any] = {}
        loading: dict[int, tuple[int, Any]] = {}
        fds = [adapter.get_lookup_and_lock_event_fd(), adapter.get_load_event_fd()]
        poll = select.poll()
        for fd in fds:
            poll.register(fd, select.POLLIN)

        def start(each: Any) -> int:
            task = adapter.submit_lookup_and_lock_task(each[0], {})
            looking[task] = each
            return task

        def over() -> Iterator[int]:
            for fd, _ in poll.poll():
                consume_fd(fd)
            for task in list(looking):
                found = adapter.query_lookup_and_lock_result(task)
                if found is not None:
                    keys, objects = looking.pop(task)
                    self._all(found, keys)
                    loading[adapter.submit_load_task(keys, objects)] = task, keys
            for load in list(loading):
                loaded = adapter.query_load_result(load)
                if loaded is not None:
                    task, keys = loading.pop(load)
                    self._all(loaded, keys)
                    adapter.submit_unlock(keys)
                    yield task

        made = [(self.keys(round_number, batch), self.objects(self.slab.get_view, batch)) for batch in batches]
        return turns.in_flight(made, turns.THREADS, start, over)

    @staticmethod
    def _all(bits: Any, keys: Sequence[Any]) -> None:
        if not all(bits.test(i) for i in range(len(keys))):
            raise AssertionError("an object is not there")

    def delete(self, round_number: int, batches: Sequence[Sequence[int]]) -> None:
        if self.directory:
            turns.unlink_all(self.directory)
        else:
            for batch in batches:
                self.adapter.delete(self.keys(round_number, batch))

    def close(self) -> None:
        self.adapter.close()


class Engine(turns.Side):
    """A backend of the in-process engine, under its StorageManager: a prompt's chunks in sequential calls."""

    def __init__(self, size: int, backend: str, extra: dict[str, Any], **config: Any):
        self.tokens = size // TOKEN
        self.shape = torch.Size([2, LAYERS, self.tokens, HEADS * DIM])
        metadata = LMCacheMetadata(model_name="org/model-8b", world_size=1, local_world_size=1, worker_id=0, local_worker_id=0,
                                   kv_dtype=torch.bfloat16, kv_shape=(LAYERS, 2, self.tokens, HEADS, DIM), chunk_size=self.tokens)
        self.manager = StorageManager(LMCacheEngineConfig.from_defaults(
            chunk_size=self.tokens, local_cpu=False, max_local_cpu_size=(2 * turns.TOTAL + (64 << 20)) / (1 << 30),
            pre_caching_hash_algorithm="sha256_cbor", extra_config=extra, **config), metadata, EventManager())
        self.backend = self.manager.storage_backends[backend]
        self.sources: list[Any] = []
        self.got: list[Any] = []

    def keys(self, round_number: int, batch: Sequence[int]) -> list[CacheEngineKey]:
        return [CacheEngineKey(model_name="org/model-8b", world_size=1, worker_id=0, chunk_hash=round_number << 32 | i,
                               dtype=torch.bfloat16) for i in batch]

    def prepare(self, round_number: int) -> None:
        if not self.sources:
            for i in range(turns.TOTAL // (self.tokens * TOKEN)):
                obj = self.manager.allocate(self.shape, torch.bfloat16, MemoryFormat.KV_2LTD, busy_loop=False)
                words = self._words(obj)
                words.copy_(torch.arange(i, i + words.numel(), dtype=torch.int64))
                self.sources.append(obj)
        for obj in self.sources:
            self._words(obj)[::turns.PAGE // 8] = round_number

    @staticmethod
    def _words(obj: Any) -> torch.Tensor:
        return obj.tensor.view(-1).view(torch.int64)

    def put(self, round_number: int, batches: Sequence[Sequence[int]]) -> list[float]:
        spent = []
        for batch in batches:
            start = turns.clock()
            left = len(batch)
            over = threading.Event()

            def stored(key: Any) -> None:
                nonlocal left
                left -= 1
                if not left:
                    over.set()

            self.backend.batched_submit_put_task(self.keys(round_number, batch), [self.sources[i] for i in batch],
                                                 on_complete_callback=stored)
            if not over.wait(60):
                raise AssertionError("a store does not end")
            spent.append(turns.clock() - start)
        return spent

    def get(self, round_number: int, batches: Sequence[Sequence[int]]) -> list[float]:
        spent = []
        for batch in batches:
            start = turns.clock()
            objs = self.backend.batched_get_blocking(self.keys(round_number, batch))
            spent.append(turns.clock() - start)
            self.got += objs
        return spent

    def check(self) -> None:
        for source, got in zip(self.sources, self.got, strict=True):
            if got is None:
                raise AssertionError("a chunk is not there")
            if not torch.equal(self._words(source), self._words(got)):
                raise AssertionError("what was got is not what was put")
            self._words(got).zero_()
            got.ref_count_down()
        self.got.clear()

    def delete(self, round_number: int, batches: Sequence[Sequence[int]]) -> None:
        for batch in batches:
            if self.backend.batched_remove(self.keys(round_number, batch)) != len(batch):
                raise AssertionError("an object is not there")

    def close(self) -> None:
        for obj in self.sources:
            obj.ref_count_down()
        self.manager.close()


def main() -> None:
    args = turns.arguments(["fs", "fs_native", "local_disk"])
    for size in args.sizes:
        for peer in args.peers:
            for direct in args.direct:
                about = {"runtime": "lmcache", "peer": peer, "direct": direct}
                if peer == "local_disk":
                    ours: turns.Side = Engine(
                        size, "kvblk", {"storage_plugin.kvblk.module_path": "kvblk_lmcache",
                                        "storage_plugin.kvblk.class_name": "StorageBackend", "kvblk.pool": args.pool,
                                        "kvblk.threads": turns.THREADS}, storage_plugins=["kvblk"])
                    # large enough to never evict: deleted files still count as used there
                    theirs: turns.Side = Engine(
                        size, "LocalDiskBackend", {"use_odirect": direct, "disk_io_threads": turns.THREADS},
                        local_disk=args.directory, max_local_disk_size=1024.0)
                    per_op = 4 * turns.OBJECTS[size]
                else:
                    slab = turns.Slab(size)
                    ours = L2(slab, {"type": "plugin", "module_path": "kvblk_lmcache", "class_name": "Adapter",
                                     "adapter_params": {"pool": args.pool, "threads": turns.THREADS}})
                    workers = {"num_workers": turns.THREADS} if peer == "fs_native" else {}
                    theirs = L2(slab, {"type": peer, "base_path": args.directory, "use_odirect": direct, **workers},
                                args.directory)
                    per_op = turns.OBJECTS[size]
                turns.compare(args, ours, theirs, size, per_op, **about)
                ours.close()
                theirs.close()


turns.run(main)
