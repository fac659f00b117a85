# SPDX-License-Identifier: MIT
"""SGLang's HiCache: its backend "file" against ours, through the functions of its HiCacheController that call each of
them.

SGLang has one thread for loads and one for stores, with a batch of pages at a time: an operation is such a batch.
"""

from __future__ import annotations

import hashlib
import types
from collections.abc import Sequence
from typing import Any

import torch
from sglang.srt.managers.cache_controller import HiCacheController
from sglang.srt.mem_cache.hicache_storage import HiCacheStorageConfig
from sglang.srt.mem_cache.storage import StorageBackendFactory

import pools
import turns

#: an 8B model
LAYERS, HEADS, DIM = 32, 8, 128
TOKEN = 2 * LAYERS * HEADS * DIM * 2


class Backend(turns.Side):
    """A storage backend with a host pool: the first half is put, gets go to the second half."""

    def __init__(self, host: Any, name: str, extra: dict[str, Any]):
        self.host = host
        config = HiCacheStorageConfig(tp_rank=0, tp_size=1, pp_rank=0, pp_size=1, attn_cp_rank=0, attn_cp_size=1, is_mla_model=False,
                                      enable_storage_metrics=False, is_page_first_layout=True, model_name="org/model-8b",
                                      extra_config=extra)
        self.backend = StorageBackendFactory.create_backend(name, config, host)
        self.backend.register_mem_pool_host(host)
        self.backend.register_mem_host_pool_v2(host, "kv")
        if hasattr(self.backend, "on_host_pools_registered"):
            self.backend.on_host_pools_registered()
        # the parts of the controller and of an operation that its functions use
        self.controller = types.SimpleNamespace(storage_backend=self.backend, storage_host_pool=host, page_size=host.page_size)
        self.operation = types.SimpleNamespace(request_id="bench", is_terminated=lambda: False)
        zero_copy = name == "dynamic"
        self.set = HiCacheController._page_set_zero_copy if zero_copy else HiCacheController._generic_page_set
        self.get_pages = HiCacheController._page_get_zero_copy if zero_copy else HiCacheController._generic_page_get
        self.count = turns.TOTAL // (host.page_size * TOKEN)

    def batch(self, round_number: int, batch: Sequence[int], half: int) -> tuple[list[str], torch.Tensor]:
        hashes = [hashlib.sha256(f"{round_number} {i}".encode()).hexdigest() for i in batch]
        first = (batch[0] + half * self.count) * self.host.page_size
        return hashes, torch.arange(first, first + len(batch) * self.host.page_size, dtype=torch.int64)

    def prepare(self, round_number: int) -> None:
        for i in range(self.count):
            words = self.page(i)
            words.copy_(torch.arange(i, i + words.numel(), dtype=torch.int64))
            words[::turns.PAGE // 8] = round_number
            self.page(self.count + i).zero_()

    def page(self, i: int) -> _Page:
        return _Page(self.host.kv_buffer[0, i], self.host.kv_buffer[1, i])

    def put(self, round_number: int, batches: Sequence[Sequence[int]]) -> list[float]:
        spent = []
        for batch in batches:
            hashes, where = self.batch(round_number, batch, 0)
            start = turns.clock()
            good = self.set(self.controller, hashes, where)
            spent.append(turns.clock() - start)
            if not good:
                raise AssertionError("a store failed")
        return spent

    def get(self, round_number: int, batches: Sequence[Sequence[int]]) -> list[float]:
        spent = []
        for batch in batches:
            hashes, where = self.batch(round_number, batch, 1)
            start = turns.clock()
            found = self.backend.batch_exists(hashes)
            count = self.get_pages(self.controller, self.operation, hashes, where)
            spent.append(turns.clock() - start)
            if found != len(batch) or count != len(batch):
                raise AssertionError(f"{found} of {len(batch)} pages are there, {count} came")
        return spent

    def check(self) -> None:
        for i in range(self.count):
            if not self.page(i).equal(self.page(self.count + i)):
                raise AssertionError("what was got is not what was put")

    def delete(self, round_number: int, batches: Sequence[Sequence[int]]) -> None:
        if not self.backend.clear():
            raise AssertionError("clear failed")

    def close(self) -> None:
        # "file" has no close()
        getattr(self.backend, "close", int)()


class _Page:
    """K and V of a page of the layout page_first_direct, each in one piece, as one row of words."""

    def __init__(self, *halves: torch.Tensor):
        self.halves = [half.reshape(-1).view(torch.int64) for half in halves]

    def numel(self) -> int:
        return sum(half.numel() for half in self.halves)

    def copy_(self, words: torch.Tensor) -> None:
        for half, part in zip(self.halves, words.chunk(2)):
            half.copy_(part)

    def __setitem__(self, where: slice, value: int) -> None:
        for half in self.halves:
            half[where] = value

    def zero_(self) -> None:
        for half in self.halves:
            half.zero_()

    def equal(self, other: _Page) -> bool:
        return all(torch.equal(a, b) for a, b in zip(self.halves, other.halves))


def main() -> None:
    args = turns.arguments(["file"])
    for size in args.sizes:
        host = pools.mha("page_first_direct", LAYERS, HEADS, DIM, size // TOKEN, 2 * turns.TOTAL // size)
        ours = Backend(host, "dynamic", {"backend_name": "kvblk", "module_path": "kvblk_sglang", "class_name": "HiCacheKvblk",
                                         "interface_v1": 1, "pool": args.pool})
        theirs = Backend(host, "file", {"file_storage_path": args.directory})
        turns.compare(args, ours, theirs, size, 4 * turns.OBJECTS[size], threads=1, runtime="sglang", peer="file", direct=False)
        ours.close()
        theirs.close()


turns.run(main)
