# SPDX-License-Identifier: MIT
"""vLLM's secondary tiers below its CPU tier: fs against ours, with jobs submitted and polled as by its TieringManager."""

from __future__ import annotations

import itertools
import time
import types
from collections.abc import Iterator, Sequence
from typing import Any

import numpy
from vllm.v1.kv_offload import base
from vllm.v1.kv_offload.config import (OffloadingCacheConfig, OffloadingConfig, OffloadingGroupConfig, OffloadingModelConfig,
                                       OffloadingParallelConfig)
from vllm.v1.kv_offload.tiering.base import TransferJob
from vllm.v1.kv_offload.tiering.fs.manager import FileSystemTierManager

import turns
from kvblk_vllm.tier import KvblkTier

#: an 8B model has 128 KiB a token
TOKEN = 128 << 10
#: seconds between polls for completed jobs; vLLM polls at each step
STEP = 0.0005


def owner(tokens: int) -> Any:
    """Return the part of vLLM's configuration that a tier needs: one worker, one group."""
    parallel = OffloadingParallelConfig(rank=0, world_size=1, tp_size=1, pp_size=1, pcp_size=1, dcp_size=1, data_parallel_index=0,
                                        data_parallel_size=1, data_parallel_rank_local=None, is_parallelism_agnostic=False)
    config = OffloadingConfig(
        groups=(OffloadingGroupConfig(tokens_per_block=tokens, layer_names=("all", ), group_id=0), ),
        worker_kv_bytes_per_block=tokens * TOKEN, enable_kv_cache_events=False, extra_config={}, engine_id="bench",
        kv_cache_layout="LBHNC", model=OffloadingModelConfig("org/model-8b", "bfloat16"), cache=OffloadingCacheConfig(tokens, 1),
        parallel=parallel)
    return types.SimpleNamespace(config=config, replicated_layout=False, blocks_per_chunk=1,
                                 kv_events_config=types.SimpleNamespace(enable_kv_cache_events=False))


class Tier(turns.Side):
    """A tier on a slab: the first half is put, gets go to the second half."""

    numbers = itertools.count(1)

    def __init__(self, slab: turns.Slab, kind: Any, directory: str = "", **options: Any):
        self.slab = slab
        self.directory = directory
        view = memoryview(slab.memory.view(numpy.int8).reshape(2 * slab.count, slab.size))
        self.tier = kind(offloading_spec=owner(slab.size // TOKEN), primary_kv_view=view, tier_type=kind.__name__, **options)
        self.prepare = slab.stamp
        self.check = slab.check

    def keys(self, round_number: int, batch: Sequence[int]) -> list[Any]:
        # spread like hashes, because fs makes directories of the first bytes
        return [base.make_offload_key(((round_number << 16 | i) * 0x9e3779b97f4a7c15 % (1 << 256)).to_bytes(32, "little"), 0)
                for i in batch]

    def jobs(self, round_number: int, batches: Sequence[Sequence[int]], half: int) -> list[TransferJob]:
        made = []
        for batch in batches:
            keys = self.keys(round_number, batch)
            number = next(self.numbers)
            context = base.ReqContext(req_id=str(number))
            for place, key in enumerate(keys):
                context.set_offload_key_position(key, (place + 1) * (self.slab.size // TOKEN))
            chunks = numpy.arange(batch[0], batch[0] + len(batch)) + half * self.slab.count
            made.append(TransferJob(number, keys, chunks, bool(half), context))
        return made

    def over(self) -> Iterator[int]:
        done = list(self.tier.get_finished_jobs())
        if not done:
            time.sleep(STEP)
        for result in done:
            if not result.success:
                raise AssertionError("a job failed")
            yield result.job_id

    def put(self, round_number: int, batches: Sequence[Sequence[int]]) -> list[float]:
        return self._run(self.jobs(round_number, batches, 0), self.tier.submit_store)

    def get(self, round_number: int, batches: Sequence[Sequence[int]]) -> list[float]:
        return self._run(self.jobs(round_number, batches, 1), self.tier.submit_load)

    def _run(self, jobs: list[TransferJob], submit: Any) -> list[float]:
        def start(job: TransferJob) -> int:
            submit(job)
            return job.job_id

        return turns.in_flight(jobs, turns.THREADS, start, self.over)

    def delete(self, round_number: int, batches: Sequence[Sequence[int]]) -> None:
        if self.directory:
            turns.unlink_all(self.directory, ".bin")
            return
        pool, keys = self.tier._mover.pool, self.tier._keys
        for batch in batches:
            if not all(pool.delete_many(keys.of_rank(0, [bytes(key) for key in self.keys(round_number, batch)]))):
                raise AssertionError("an object is not there")

    def close(self) -> None:
        self.tier.shutdown()


def main() -> None:
    args = turns.arguments(["fs"])
    for size in args.sizes:
        slab = turns.Slab(size)
        ours = Tier(slab, KvblkTier, pool=args.pool, model="org/model-8b", threads=turns.THREADS)
        theirs = Tier(slab, FileSystemTierManager, args.directory, root_dir=args.directory, n_read_threads=turns.THREADS,
                      n_write_threads=turns.THREADS)
        # fs uses O_DIRECT if the file system supports it
        turns.compare(args, ours, theirs, size, turns.OBJECTS[size], runtime="vllm", peer="fs", direct=theirs.tier._use_o_direct)
        ours.close()
        theirs.close()


turns.run(main)
