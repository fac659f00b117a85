# SPDX-License-Identifier: MIT
"""An OffloadingSpec of vLLM: moves chunks of the KV cache directly between its tensors and a pool, without a tier
between.

The manager runs in the scheduler and holds the leases; the worker runs beside the model and moves the bytes. A chunk is
one value of the pool per rank. Its id is vLLM's key of 36 bytes (hash of the tokens, number of the KV cache group); its
bytes are the pages of the group's layers in order.

Use it through :class:`kvblk_vllm.offloading.KvblkOffloadingConnector`: vLLM's own OffloadingConnector stops the engine
when a load fails.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from kvblk.adapter import COUNTERS
from kvblk.pool import PIECES_MAX
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.metrics import OffloadingConnectorStats
from vllm.v1.kv_offload.base import (CanonicalKVCaches, GPULoadStoreSpec, LoadStoreSpec, Locality, LookupResult, Medium,
                                     OffloadingCounterMetadata, OffloadingEvent, OffloadingManager,
                                     OffloadingMetricMetadata, OffloadingSpec, OffloadingWorker, OffloadKey,
                                     PrepareStoreOutput, ReqContext, RequestOffloadingContext, ScheduleEndContext,
                                     TransferResult, get_offload_group_idx)
from vllm.v1.kv_offload.config import OffloadingConfig
from vllm.v1.metrics.cache_hit_source import CacheHitSource

from .find import Finder
from .keys import BlockKeys, Ranks, chains
from .options import WHERE, Options
from .report import PROMETHEUS, Report, log, stats_of
from .slab import Mover, Pages, Transfer

#: fields that the connector adds to kv_connector_extra_config: bytes of a block in the only KV cache group, or 0; the
#: model, see model_of()
PAGE_BYTES = "kvblk_page_bytes"
MODEL = "kvblk_model"


class KeySpec(LoadStoreSpec):
    """Ids of chunks, and the id of each chunk's predecessor in its prompt, if known."""

    def __init__(self, ids: list[bytes], parents: list[bytes | None]):
        self.ids = ids
        self.parents = parents

    def __repr__(self) -> str:
        return f"KeySpec({len(self.ids)} chunks)"


def keys_of(config: OffloadingConfig, options: Options, way: str, model: str, replicated: bool, whole: bool = False,
            more: str = "", length: int = 0) -> BlockKeys:
    """Build the keys of an engine.

    ``model``: description of the model beyond config.model. ``whole``: a chunk is one value with the bytes of all
    ranks. ``length``: length of a value, if known.
    """
    parallel = config.parallel
    ranks = Ranks(parallel.tp_size, parallel.pp_size, parallel.pcp_size, parallel.dcp_size)
    groups = " ".join(f"{group.group_id}:{group.tokens_per_block}" for group in config.groups)
    layout = f"{config.kv_cache_layout} chunk={config.cache.blocks_per_chunk} groups={groups}"
    if parallel.pp_size == 1 or whole:
        # otherwise the scheduler knows only the first stage's; the key has the stage in any case
        layout += f" layers={'+'.join(str(len(group.layer_names)) for group in config.groups)}"
        layout += f" bytes={config.worker_kv_bytes_per_block}"
    if whole:
        layout += f" tp={ranks.tp} pp={ranks.pp} pcp={ranks.pcp}"
    layout += more
    return BlockKeys(way=way, model=model, dtype=config.model.dtype, layout=layout,
                     block_tokens=config.cache.tokens_per_hash, ranks=Ranks(dcp=ranks.dcp) if whole else ranks,
                     same=replicated, salt=options.salt, secret=options.secret(), tokenizer=options.tokenizer,
                     lengths=[length] if length else ())


class Prompt:
    """Order of a request's chunks in each group, from the notes of vLLM's scheduler in the request's context."""

    def __init__(self, context: ReqContext):
        self._context = context

    def of_group(self, group: int) -> list[OffloadKey]:
        # not part of the manager's interface, but the only way to know the next chunks
        known = getattr(self._context, "_offload_key_positions", None) or {}
        keys = [key for key in known if get_offload_group_idx(key) == group]
        # the notes are in order, except for sliding windows and repeated notes
        keys.sort(key=known.__getitem__)
        return keys

    def beside(self, key: OffloadKey, backwards: bool) -> list[OffloadKey]:
        """Return a key and those that vLLM will ask for after it: up to the prompt's end, or back to its start."""
        keys = self.of_group(get_offload_group_idx(key))
        if key not in keys:
            return [key]
        at = keys.index(key)
        return keys[:at + 1] if backwards else keys[at:]

    def parents(self, wanted: Iterable[OffloadKey]) -> dict[OffloadKey, OffloadKey | None]:
        """Return the predecessor of each key; unknown for a key that is not in the prompt."""
        before: dict[OffloadKey, OffloadKey | None] = {}
        for group in {get_offload_group_idx(key) for key in wanted}:
            last: OffloadKey | None = None
            for key in self.of_group(group):
                before[key] = last
                last = key
        return before


class Walk:
    """Direction of vLLM's walk through a request's chunks: position of the last lookup in each group."""

    __slots__ = ("last",)

    def __init__(self) -> None:
        self.last: dict[int, int] = {}

    @classmethod
    def backwards(cls, key: OffloadKey, context: ReqContext) -> bool:
        """Return True if vLLM walks from the last chunk to the first, as for sliding windows."""
        walk = context.get_state(cls)
        if walk is None:
            walk = cls()
            context.set_state(walk)
        at = context.get_offload_key_position(key) or 0
        group = get_offload_group_idx(key)
        backwards = at < walk.last.get(group, at)
        walk.last[group] = at
        return backwards


#: owner in KV events
OWNER = "kvblk"


def events_of(find: Finder, key: Callable[[bytes], OffloadKey], locality: Locality, owner: str) -> Iterator[OffloadingEvent]:
    """Convert the changes of a Finder to events. ``key``: makes vLLM's key of a block."""
    for removed, told in itertools.groupby(find.told(), lambda block: block[1] is None):
        yield OffloadingEvent(keys=[key(block) for block, _ in told], medium=Medium.STORAGE, removed=removed,
                              locality=locality, ownership=owner, removal_expected=True)


class KvblkManager(OffloadingManager):
    """The manager in the scheduler: finds chunks and decides which to store."""

    def __init__(self, spec: KvblkOffloadingSpec):
        self.report = Report("offloading manager")
        self._pool = spec.options.open()
        self._find = Finder(self._pool, spec.keys, spec.options, self.report,
                            spec.kv_events_config.enable_kv_cache_events)
        #: events from before a reset
        self._events: list[OffloadingEvent] = []
        #: suffix of each id: a reset changes it, so that older chunks are not found
        self._era = b""

    def _id(self, key: OffloadKey) -> bytes:
        return bytes(key) + self._era

    def _key(self, block: bytes) -> OffloadKey:
        return OffloadKey(block[:len(block) - len(self._era)] if self._era else block)

    def lookup(self, key: OffloadKey, req_context: ReqContext) -> LookupResult:
        backwards = Walk.backwards(key, req_context)

        def ahead() -> list[bytes]:
            return [self._id(k) for k in Prompt(req_context).beside(key, backwards)]

        hit = self._find.hit(req_context.req_id, self._id(key), ahead, not backwards)
        return LookupResult.HIT if hit else LookupResult.MISS

    def get_load_source(self, key: OffloadKey, req_context: ReqContext) -> CacheHitSource:
        return CacheHitSource.DISK

    def prepare_load(self, keys: Collection[OffloadKey], req_context: ReqContext) -> KeySpec:
        self._find.load(req_context.req_id)
        return KeySpec([self._id(key) for key in keys], [None] * len(keys))

    def complete_load(self, keys: Collection[OffloadKey], req_context: ReqContext) -> None:
        # A failed load ends here like a successful one, but only a failed load makes the request ask again. The
        # exception is preemption, see on_schedule_end().
        self._find.loaded(req_context.req_id, [self._id(key) for key in keys])

    def prepare_store(self, keys: Collection[OffloadKey], req_context: ReqContext) -> PrepareStoreOutput:
        keys = list(keys)
        present = self._find.present([self._id(key) for key in keys])
        self.report.count("store_present", sum(present))
        wanted = [key for key, there in zip(keys, present) if not there]
        before = Prompt(req_context).parents(wanted)
        parents = [before.get(key) for key in wanted]
        return PrepareStoreOutput(
            keys_to_store=wanted, evicted_keys=[],
            store_spec=KeySpec([self._id(key) for key in wanted],
                               [None if parent is None else self._id(parent) for parent in parents]))

    def complete_store(self, keys: Collection[OffloadKey], req_context: ReqContext, success: bool = True) -> None:
        # announce() checks the pool, which may have declined some
        self._find.announce([self._id(key) for key in keys])

    def take_events(self) -> Iterable[OffloadingEvent]:
        events, self._events = self._events, []
        events += events_of(self._find, self._key, Locality.REMOTE, OWNER)
        return events

    def on_new_request(self, req_context: ReqContext) -> RequestOffloadingContext:
        return RequestOffloadingContext()

    def on_request_finished(self, req_context: ReqContext) -> None:
        self._find.finished(req_context.req_id)

    def on_schedule_end(self, context: ScheduleEndContext) -> None:
        for request in context.preempted_req_ids:
            self._find.preempted(request)
        for request in context.new_req_ids:
            self._find.unused(request)
        self._find.next_step()

    def reset_cache(self) -> None:
        self._find.reset()
        # convert pending events first, because that cuts off the current era's suffix
        self._events += events_of(self._find, self._key, Locality.REMOTE, OWNER)
        self._era = os.urandom(8)

    def get_stats(self) -> Any:
        return stats_of(self.report, OffloadingConnectorStats())

    def shutdown(self) -> None:
        self._find.reset()
        self._pool.close()


class KvblkWorker(OffloadingWorker):
    """The worker beside the model: moves chunks between the KV cache's tensors and the pool."""

    def __init__(self, spec: KvblkOffloadingSpec, caches: CanonicalKVCaches):
        self.report = Report("offloading worker")
        self._keys = spec.keys
        self._rank = 0 if spec.replicated_layout else spec.config.parallel.rank
        self._per_chunk = spec.blocks_per_chunk
        self._groups = [
            [Pages(caches.tensors[ref.tensor_idx].tensor, _stride(caches.tensors[ref.tensor_idx].tensor),
                   ref.page_size_bytes) for ref in refs] for refs in caches.group_data_refs
        ]
        self._done: list[TransferResult] = []
        self._open: dict[int, _Job] = {}
        #: blocks of the KV cache whose load failed, and jobs of such loads
        self.failed_blocks: set[int] = set()
        self.failed_jobs: set[int] = set()
        tensors = [tensor.tensor for tensor in caches.tensors]
        self._scratch: Any = None
        if self._per_chunk > 1:
            page = max(pages.size for group in self._groups for pages in group)
            self._scratch = tensors[0].new_empty(page)
            tensors.append(self._scratch)
        pool = spec.options.open()
        try:
            most = self._check(pool)
            self._mover = Mover(pool, spec.options, self.report, tensors, *most)
        except BaseException:
            pool.close()
            raise
        log.info("kvblk offloading: %d groups, %d tensors, %d blocks a chunk; memory is %s", len(self._groups),
                 len(caches.tensors), self._per_chunk, self._mover.kind or "not registered")

    def _check(self, pool: Any) -> tuple[int, int]:
        """Check the pool's limits; returns the longest page and the longest chunk."""
        limit = pool.get_info().value_max
        longest = most = 0
        for number, group in enumerate(self._groups):
            size = sum(pages.size for pages in group) * self._per_chunk
            if size > limit or len(group) * self._per_chunk > PIECES_MAX:
                raise ValueError(f"kvblk: a chunk of KV cache group {number} has {size} bytes in "
                                 f"{len(group) * self._per_chunk} pieces; the pool takes {limit} bytes in "
                                 f"{PIECES_MAX}: "
                                 "lower blocks_per_chunk (or block_size) in kv_connector_extra_config")
            longest = max(longest, *(pages.size for pages in group))
            most = max(most, size)
        return longest, most

    def _chunks(self, spec: GPULoadStoreSpec, number: int) -> list[_Chunk]:
        """Return the blocks of the KV cache of each chunk."""
        chunks: list[_Chunk] = []
        at = 0
        for group, (count, index) in enumerate(zip(spec.group_sizes, spec.block_indices)):
            blocks = [int(block) for block in spec.block_ids[at:at + count]]
            at += count
            skip = index % self._per_chunk
            while blocks:
                take = self._per_chunk - skip
                chunks.append(_Chunk(group, skip, blocks[:take]))
                blocks = blocks[take:]
                skip = 0
        if len(chunks) != number:
            raise ValueError(f"{number} chunks are in {len(chunks)} places")
        return chunks

    def _pieces(self, chunk: _Chunk) -> list[tuple[int, int]]:
        """Return the memory of a chunk, with the scratch page in place of missing blocks."""
        pieces = []
        pages_of = self._groups[chunk.group]
        last = chunk.skip + len(chunk.blocks)
        for i in range(self._per_chunk):
            for pages in pages_of:
                if chunk.skip <= i < last:
                    pieces.append(pages.piece(chunk.blocks[i - chunk.skip]))
                else:
                    pieces.append((self._scratch.data_ptr(), pages.size))
        return pieces

    def submit_store(self, job_id: int, src_spec: GPULoadStoreSpec, dst_spec: LoadStoreSpec) -> bool:
        assert isinstance(dst_spec, KeySpec)
        job = _Job(self, job_id)
        try:
            chunks = self._chunks(src_spec, len(dst_spec.ids))
            pieces = [self._pieces(chunk) for chunk in chunks]
        except ValueError as e:
            # the assignment of blocks to chunks is unknown, or a block is out of range
            self.report.trouble("store_errors", "chunks were not stored", e, len(dst_spec.ids))
            return self._begin(job)
        # a chunk that lacks blocks (before a sliding window) must not be stored, because lookups would find it as
        # complete
        whole = [i for i, chunk in enumerate(chunks) if len(chunk.blocks) == self._per_chunk]
        ids = [dst_spec.ids[i] for i in whole]
        parents = [dst_spec.parents[i] for i in whole]
        for start, end in chains(ids, parents, len(ids)):
            parent = parents[start]
            self._mover.put(
                job, self._keys.of_rank(self._rank, ids[start:end]),
                [pieces[i] for i in whole[start:end]],
                None if parent is None else self._keys.of_rank(self._rank, [parent])[0])
        return self._begin(job)

    def submit_load(self, job_id: int, src_spec: LoadStoreSpec, dst_spec: GPULoadStoreSpec,
                    expedited: bool = False) -> bool:
        # vLLM 0.33 waits for expedited loads in their step; no special handling, because all batches are in flight
        # together
        assert isinstance(src_spec, KeySpec)
        job = _Job(self, job_id)
        try:
            chunks = self._chunks(dst_spec, len(src_spec.ids))
            pieces = [self._pieces(chunk) for chunk in chunks]
        except ValueError as e:
            self.report.trouble("load_errors", "chunks were not loaded", e, len(src_spec.ids))
            job.lost.update(int(block) for block in dst_spec.block_ids)
            return self._begin(job)

        def loaded(at: int, there: list[bool]) -> None:
            for i, ok in enumerate(there):
                if not ok:
                    job.lost.update(chunks[at + i].blocks)

        self._mover.get(job, self._keys.of_rank(self._rank, src_spec.ids), pieces, loaded)
        return self._begin(job)

    def _begin(self, job: _Job) -> bool:
        self._open[job.id] = job
        if not job.left:
            self.finish(job)
        return True

    def finish(self, job: _Job) -> None:
        """Complete a job. vLLM accepts only success; the connector reports failures."""
        self._open.pop(job.id, None)
        if job.lost:
            self.failed_blocks |= job.lost
            self.failed_jobs.add(job.id)
        self._done.append(TransferResult(job.id, True, job.bytes, time.monotonic() - job.began))

    def get_finished(self) -> list[TransferResult]:
        self._mover.poll()
        done, self._done = self._done, []
        return done

    def wait(self, job_ids: set[int]) -> None:
        self._mover.wait(lambda: not job_ids & self._open.keys())

    def shutdown(self) -> None:
        self._mover.close()
        log.info("kvblk offloading worker: %s", self.report.summary())


class _Chunk:
    """Blocks of the KV cache of a chunk; ``skip`` blocks of the chunk before them are missing."""

    __slots__ = ("group", "skip", "blocks")

    def __init__(self, group: int, skip: int, blocks: list[int]):
        self.group = group
        self.skip = skip
        self.blocks = blocks


class _Job(Transfer):
    """A job of vLLM."""

    __slots__ = ("id", "lost")

    def __init__(self, worker: KvblkWorker, number: int):
        super().__init__(lambda _: worker.finish(self))
        self.id = number
        #: blocks of the KV cache whose load failed
        self.lost: set[int] = set()


def _stride(tensor: Any) -> int:
    """Return the number of bytes from one block to the next."""
    if tensor.dim() < 2 or tensor[0].numel() and not tensor[0].is_contiguous():
        raise ValueError(f"kvblk: a block of the KV cache is not contiguous: {tuple(tensor.shape)}, {tensor.stride()}")
    return tensor.stride(0) * tensor.element_size()  # type: ignore[no-any-return]


class KvblkOffloadingSpec(OffloadingSpec):
    """The spec that vLLM builds from kv_connector_extra_config, in the scheduler and in each worker."""

    @classmethod
    def build_metric_definitions(cls, extra_config: dict[str, Any]) -> dict[str, OffloadingMetricMetadata]:
        return {PROMETHEUS + name: OffloadingCounterMetadata(documentation=text) for name, text in COUNTERS.items()}

    def __init__(self, config: OffloadingConfig):
        super().__init__(config)
        self.options = Options.read(self.extra_config.get("kvblk"), WHERE)
        if config.canonical_layout:
            raise ValueError("kvblk: canonical_layout is for TieringOffloadingSpec; KvblkOffloadingSpec stores blocks "
                             "as they lie in the KV cache")
        if MODEL not in self.extra_config:
            raise ValueError("kvblk: the connector OffloadingConnector ends the engine when a load fails, which may "
                             "happen when a member of the pool does, and does not tell the model's revision; configure "
                             '"kv_connector": "KvblkOffloadingConnector", "kv_connector_module_path": '
                             '"kvblk_vllm.offloading" instead')
        self.replicated_layout = config.replicated_layout
        page = self.extra_config.get(PAGE_BYTES, 0)
        # only the workers know the length if pages have padding or belong to other stages
        known = page == config.worker_kv_bytes_per_block and config.parallel.pp_size == 1
        self.keys = keys_of(config, self.options, "offload", self.extra_config[MODEL], self.replicated_layout,
                            length=page * self.blocks_per_chunk if known else 0)
        self._manager: KvblkManager | None = None
        self._worker: KvblkWorker | None = None

    def get_manager(self) -> KvblkManager:
        if self._manager is None:
            self._manager = KvblkManager(self)
        return self._manager

    def get_worker(self, kv_caches: CanonicalKVCaches) -> KvblkWorker:
        if self._worker is None:
            self._worker = KvblkWorker(self, kv_caches)
        return self._worker
