# SPDX-License-Identifier: MIT
"""A SecondaryTierManager of vLLM: a pool below the CPU tier of TieringOffloadingSpec.

Runs in the scheduler. A chunk is one value of the pool: a row of the CPU tier's slab, which holds the bytes of all
ranks. The slab is registered once; values are transferred directly between the slab and the members.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterable
from typing import Any, ClassVar

import numpy
from kvblk.adapter import COUNTERS
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.metrics import OffloadingConnectorStats
from vllm.v1.kv_offload.base import (Locality, LookupResult, Medium, OffloadingCounterMetadata, OffloadingEvent,
                                     OffloadingMetricMetadata, OffloadingSpec, OffloadKey, ReqContext,
                                     RequestOffloadingContext, ScheduleEndContext, get_offload_group_idx)
from vllm.v1.kv_offload.tiering.backpressure import BackpressureDetector
from vllm.v1.kv_offload.tiering.base import JobResult, SecondaryTierManager, TransferJob

from .find import Finder
from .keys import chains
from .options import Options
from .report import PROMETHEUS, Report, log, stats_of
from .slab import HostMover, Transfer
from .spec import Prompt, Walk, events_of, keys_of


class KvblkTier(SecondaryTierManager):
    """The class for "secondary_tiers": {"type": "KvblkTier", "module_path": "kvblk_vllm.tier", "pool": ...}."""

    medium: ClassVar[Medium | None] = Medium.STORAGE

    @classmethod
    def build_metric_definitions(cls, extra_config: dict[str, Any]) -> dict[str, OffloadingMetricMetadata]:
        return {PROMETHEUS + name: OffloadingCounterMetadata(documentation=text) for name, text in COUNTERS.items()}

    def __init__(self, offloading_spec: OffloadingSpec, primary_kv_view: memoryview, tier_type: str,
                 backpressure_detector: BackpressureDetector | None = None, locality: str | None = None,
                 enable_kv_events: bool = False, **options: Any):
        super().__init__(offloading_spec, primary_kv_view, tier_type, backpressure_detector)
        self.report = Report("tier")
        self.locality = Locality(locality) if locality is not None else Locality.REMOTE
        opts = Options.read(options, f"the secondary tier {tier_type}")
        if not opts.model:
            raise ValueError('kvblk: the secondary tier needs the option "model": vLLM tells a tier neither revision nor '
                             "quantization nor overrides, so it takes a name that stands for all of them (README.md, Keys)")
        # the CPU tier holds the ranks' bytes in sequence, or once if all are equal
        keys = keys_of(offloading_spec.config, opts, "tier", opts.model, replicated=False, whole=True,
                       length=self._block_size_bytes,
                       more=f" row={self._block_size_bytes} copies={'1' if offloading_spec.replicated_layout else 'n'}"
                            f" canonical={int(offloading_spec.config.canonical_layout)}")
        self._keys = keys
        pool = opts.open()
        limit = pool.get_info().value_max
        if self._block_size_bytes > limit:
            pool.close()
            raise ValueError(f"kvblk: a chunk of the CPU tier has {self._block_size_bytes} bytes, the pool takes "
                             f"{limit}: lower blocks_per_chunk (or block_size) in kv_connector_extra_config")
        # keep only the address, because a reference to the buffer would keep vLLM from closing it
        slab = numpy.frombuffer(primary_kv_view, dtype=numpy.uint8)
        self._address = int(slab.ctypes.data)
        self._length = slab.nbytes
        del slab
        try:
            self._mover = HostMover(pool, opts, self.report, [(self._address, self._length)], self._block_size_bytes)
        except BaseException:
            pool.close()
            raise
        events = offloading_spec.kv_events_config.enable_kv_cache_events
        if enable_kv_events and not events:
            log.warning("kvblk: enable_kv_events is set, but KV cache events are off: there will be none")
        self._find = Finder(pool, keys, opts, self.report, enable_kv_events and events)
        self._done: list[JobResult] = []
        log.info("kvblk tier: chunks of %d bytes, %d in the CPU tier; memory is %s", self._block_size_bytes,
                 self._length // self._block_size_bytes, self._mover.kind or "not registered")

    # Lookups

    def lookup(self, key: OffloadKey, req_context: ReqContext) -> LookupResult:
        backwards = Walk.backwards(key, req_context)

        def ahead() -> list[bytes]:
            return [bytes(k) for k in Prompt(req_context).beside(key, backwards)]

        hit = self._find.hit(req_context.req_id, bytes(key), ahead, not backwards)
        return LookupResult.HIT if hit else LookupResult.MISS

    # Transfers

    def _places(self, chunks: Iterable[Any]) -> list[list[tuple[int, int]]]:
        """Return the memory of each chunk; raises ValueError if a chunk is not in the slab."""
        size = self._block_size_bytes
        last = self._length // size - 1
        places = []
        for chunk in map(int, chunks):
            if not 0 <= chunk <= last:
                raise ValueError(f"chunk {chunk} is none of the CPU tier's, which are 0 to {last}")
            places.append([(self._address + chunk * size, size)])
        return places

    def submit_store(self, job_metadata: TransferJob) -> None:
        job = _Job(self, job_metadata)
        # vLLM passes chunks in any order
        prompt = Prompt(job_metadata.req_context)
        position = job_metadata.req_context.get_offload_key_position
        pairs = sorted(zip(job_metadata.keys, job_metadata.chunk_ids),
                       key=lambda pair: (get_offload_group_idx(pair[0]), position(pair[0]) or 0))
        before = prompt.parents(key for key, _ in pairs)
        blocks = [bytes(key) for key, _ in pairs]
        parents = [None if (parent := before.get(key)) is None else bytes(parent) for key, _ in pairs]
        try:
            places = self._places(chunk for _, chunk in pairs)
        except ValueError as e:
            self.report.trouble("store_errors", "chunks were not stored", e, len(blocks))
            job.failed = True
            self.over(job)
            return
        for start, end in chains(blocks, parents, len(blocks)):
            parent_id = parents[start]
            self._mover.put(job, self._keys.of_rank(0, blocks[start:end]), places[start:end],
                            None if parent_id is None else self._keys.of_rank(0, [parent_id])[0],
                            functools.partial(job.note, blocks[start:end]))
        if not job.left:
            self.over(job)

    def submit_load(self, job_metadata: TransferJob) -> None:
        job = _Job(self, job_metadata)
        blocks = [bytes(key) for key in job_metadata.keys]
        self._find.load(job.request)
        try:
            places = self._places(job_metadata.chunk_ids)
        except ValueError as e:
            self.report.trouble("load_errors", "chunks were not loaded", e, len(blocks))
            job.lost += blocks
            self.over(job)
            return
        self._mover.get(job, self._keys.of_rank(0, blocks), places, functools.partial(job.note, blocks))
        if not job.left:
            self.over(job)

    def over(self, job: _Job) -> None:
        """Complete a job."""
        took = time.monotonic() - job.began
        if job.promotion:
            # report lost chunks as misses from now on, or else the request would retry forever
            self._find.loaded(job.request, job.lost)
            good = tuple(OffloadKey(block) for block in job.good)
            self._done.append(JobResult(job.number, success=not job.lost, successful_keys=good if job.lost else None,
                                        transfer_time=took, transfer_bytes=job.bytes))
        else:
            self._done.append(JobResult(job.number, success=not job.failed, transfer_time=took,
                                        transfer_bytes=job.bytes))
            self._find.announce(job.good)

    def get_finished_jobs(self) -> Iterable[JobResult]:
        self._mover.poll()
        done, self._done = self._done, []
        return done

    def drain_jobs(self) -> None:
        self._mover.drain()

    # Events, requests

    def take_events(self) -> Iterable[OffloadingEvent]:
        return list(events_of(self._find, OffloadKey, self.locality, self.tier_type))

    def on_new_request(self, req_context: ReqContext) -> RequestOffloadingContext:
        return RequestOffloadingContext()

    def on_request_finished(self, req_context: ReqContext) -> None:
        self._find.finished(req_context.req_id)

    def on_schedule_end(self, context: ScheduleEndContext) -> None:
        for request in context.new_req_ids:
            self._find.unused(request)
        self._find.next_step()

    def get_stats(self) -> Any:
        return stats_of(self.report, OffloadingConnectorStats())

    def shutdown(self) -> None:
        self._find.reset()
        self._mover.close()
        log.info("kvblk tier: %s", self.report.summary())


class _Job(Transfer):
    """A job of vLLM."""

    __slots__ = ("number", "request", "promotion", "good", "lost")

    def __init__(self, tier: KvblkTier, of: TransferJob):
        super().__init__(lambda _: tier.over(self))
        self.number = of.job_id
        self.request = of.req_context.req_id
        self.promotion = of.is_promotion
        self.good: list[bytes] = []
        self.lost: list[bytes] = []

    def note(self, blocks: list[bytes], at: int, there: list[bool]) -> None:
        """Note which of the blocks from ``at`` on succeeded."""
        for block, ok in zip(blocks[at:], there):
            (self.good if ok else self.lost).append(block)
