# SPDX-License-Identifier: MIT
"""A KVConnectorBase_V1 of vLLM: moves blocks directly between the KV cache's tensors and a pool, layer by layer.

A block of the KV cache is stored as several values, one for each few layers (option ``layers``). Loads of all layers
start together, the first layers' first. Before each layer the model waits for the loads of that layer, so it computes
the first layers while later ones are loading. Each layer is stored while the model computes the next ones.

Only complete blocks whose bytes are known to be right are stored. vLLM uses a load before it completes: in the same
step (and in the next step with asynchronous scheduling) requests compute on top of blocks that are still loading. If
such a load fails, vLLM recomputes the blocks, but the bytes of this step are wrong. Therefore:

- blocks computed in a step are stored once all loads up to that step have succeeded on all ranks;
- blocks whose load failed, and all blocks computed on top of them, are ``tainted`` until they are overwritten.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from vllm.config import VllmConfig
from vllm.distributed.kv_events import MEDIUM_STORAGE, BlockRemoved, BlockStored, KVCacheEvent
from vllm.distributed.kv_transfer.kv_connector.v1.base import (KVConnectorBase_V1, KVConnectorMetadata, KVConnectorRole,
                                                               KVConnectorWorkerMetadata)
from vllm.distributed.kv_transfer.kv_connector.v1.metrics import KVConnectorStats
from vllm.v1.core.kv_cache_utils import (BlockHash, generate_block_hash_extra_keys, maybe_convert_block_hash,
                                         resolve_kv_cache_block_sizes, to_event_extra_keys)
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.kv_cache_interface import (FullAttentionSpec, KVCacheConfig, MLAAttentionSpec, UniformTypeKVCacheSpecs,
                                        get_kv_cache_spec_kind, group_kernel_blocks)
from vllm.v1.kv_offload.base import Locality
from vllm.v1.metrics.cache_hit_source import CacheHitSource
from vllm.v1.outputs import KVConnectorOutput

from .find import Finder
from .keys import BlockKeys, Ranks, model_of
from .offloading import check_recovery, warn_of_policy
from .options import WHERE, Options
from .report import Report, log
from .slab import Mover, Pages, Transfer
from .spec import OWNER

if TYPE_CHECKING:
    from vllm.forward_context import ForwardContext
    from vllm.v1.core.kv_cache_manager import KVCacheBlocks
    from vllm.v1.request import Request

#: common fields of KV events
PLACE: dict[str, Any] = {"medium": MEDIUM_STORAGE, "group_idx": 0, "locality": Locality.REMOTE.value, "ownership": OWNER}
#: default size of a value, at least, unless the model's blocks are smaller or ``layers`` is set
VALUE_MIN = 256 << 10


@dataclasses.dataclass(frozen=True)
class ConnectorOptions(Options):
    """Common options and those of this connector."""

    layers: int = 0
    decode: bool = False

    LIMITS: ClassVar[dict[str, tuple[float, float]]] = {**Options.LIMITS, "layers": (0, 1024)}


@dataclasses.dataclass
class Move:
    """Blocks of one request: ids, places in the KV cache, and the id of the block before the first."""

    request: str
    ids: list[bytes]
    blocks: list[int]
    parent: bytes | None = None


@dataclasses.dataclass
class KvblkMetadata(KVConnectorMetadata):
    """Message of the scheduler to the workers, each step."""

    step: int
    loads: list[Move] = dataclasses.field(default_factory=list)
    stores: list[Move] = dataclasses.field(default_factory=list)
    preempted: set[str] = dataclasses.field(default_factory=set)
    #: finished requests whose blocks are kept until the workers report that their stores completed
    awaited: set[str] = dataclasses.field(default_factory=set)


@dataclasses.dataclass
class KvblkWorkerMetadata(KVConnectorWorkerMetadata):
    """Message of a worker to the scheduler.

    ``steps``: number of ranks that completed the loads of a step. ``failed``: blocks whose load failed. ``stored``:
    completed stores by request.
    """

    steps: dict[int, int]
    failed: set[int]
    stored: dict[str, int] = dataclasses.field(default_factory=dict)

    def aggregate(self, other: KVConnectorWorkerMetadata) -> KvblkWorkerMetadata:
        assert isinstance(other, KvblkWorkerMetadata)
        steps = dict(self.steps)
        for step, ranks in other.steps.items():
            steps[step] = steps.get(step, 0) + ranks
        stored = dict(self.stored)
        for name, number in other.stored.items():
            stored[name] = stored.get(name, 0) + number
        return KvblkWorkerMetadata(steps, self.failed | other.failed, stored)


class KvblkStats(KVConnectorStats):
    """Counters for vLLM's log."""

    def reset(self) -> None:
        self.data: dict[str, int | float] = {}

    def aggregate(self, other: KVConnectorStats) -> KVConnectorStats:
        for name, number in other.data.items():
            self.data[name] = self.data.get(name, 0) + number
        return self

    def reduce(self) -> dict[str, int | float]:
        return dict(self.data)

    def is_empty(self) -> bool:
        return not self.data


class Shape:
    """Settings that scheduler and workers share: the keys, and the layers of each value."""

    def __init__(self, config: VllmConfig, cache: KVCacheConfig, options: ConnectorOptions):
        groups = cache.kv_cache_groups
        parallel = config.parallel_config
        other = 'use KvblkOffloadingConnector ("kvblk_vllm.offloading") instead'
        if len(groups) != 1:
            raise ValueError(f"kvblk: this model has {len(groups)} KV cache groups, KvblkConnector takes one: {other}")
        spec = groups[0].kv_cache_spec
        if isinstance(spec, UniformTypeKVCacheSpecs) or not isinstance(spec, FullAttentionSpec):
            raise ValueError(f"kvblk: this model's KV cache is of {type(spec).__name__}, KvblkConnector takes full "
                             f"attention with pages of one size: {other}")
        if parallel.pipeline_parallel_size > 1:
            raise ValueError(f"kvblk: KvblkConnector does not know pipeline stages: {other}")
        # with a single group this is the block size of vLLM's hashes, too
        self.block_tokens, _ = resolve_kv_cache_block_sizes(cache, config)
        self.kind = get_kv_cache_spec_kind(spec).value
        self.page = spec.page_size_bytes
        self.names = sorted(groups[0].layer_names, key=layer_order)
        layers = options.layers or -(-VALUE_MIN // self.page)
        #: names of the layers in each value
        self.parts = [self.names[i:i + layers] for i in range(0, len(self.names), layers)]
        ranks = Ranks(parallel.tensor_parallel_size, 1, parallel.prefill_context_parallel_size,
                      parallel.decode_context_parallel_size)
        model = config.model_config
        dtype = config.cache_config.cache_dtype
        # with MLA all ranks hold the same bytes, unless context parallelism splits the tokens
        same = isinstance(spec, MLAAttentionSpec) and ranks.dcp == 1 and ranks.pcp == 1
        self.keys = BlockKeys(
            way="connector", model=model_of(config, options),
            dtype=str(model.dtype if dtype == "auto" else dtype).removeprefix("torch."),
            layout=f"{config.cache_config.kv_cache_layout} layers={len(self.names)}/{layers} page={self.page} "
                   f"heads={getattr(spec, 'num_kv_heads', 0)}x{getattr(spec, 'head_size', 0)} "
                   f"spec={type(spec).__name__}",
            block_tokens=self.block_tokens, ranks=ranks, same=same, parts=len(self.parts), salt=options.salt,
            tokenizer=options.tokenizer, lengths=[len(names) * self.page for names in self.parts])
        self.world = parallel.world_size
        #: number of stores of a list of blocks, over all ranks
        self.stores = self.keys.values


def layer_order(name: str) -> list[tuple[int, str]]:
    """Sort key that orders layer names by their numbers."""
    return [(int(text), "") if text.isdigit() else (-1, text) for text in re.split(r"(\d+)", name)]


class _Request:
    """Scheduler's state of a request."""

    __slots__ = ("request", "blocks", "computed", "stored", "sent", "storing", "start", "load", "barred")

    def __init__(self, request: Request):
        self.request = request
        self.blocks: list[int] = []
        #: (step, number of complete blocks after it)
        self.computed: list[tuple[int, int]] = []
        #: leading blocks that are stored or need no store
        self.stored = 0
        #: stores in flight on the workers, and their block ranges (first, end)
        self.sent = 0
        self.storing: list[tuple[int, int]] = []
        #: first block and number of blocks to load in the current step
        self.start = 0
        self.load = 0
        #: no more stores, because the blocks may be wrong
        self.barred = False


class Scheduling:
    """The connector in the scheduler."""

    def __init__(self, shape: Shape, options: ConnectorOptions, events: bool = False):
        self.shape = shape
        self.report = Report("connector's scheduler")
        self._decode = options.decode
        self._pool = options.open()
        self.find = Finder(self._pool, shape.keys, options, self.report, events)
        #: events from before a reset
        self._events: list[KVCacheEvent] = []
        self._requests: dict[str, _Request] = {}
        #: finished requests with stores in flight
        self._finished: dict[str, _Request] = {}
        self._step = 0
        #: steps with loads in flight: number of ranks that have not reported, and names of the requests
        self._loading: dict[int, tuple[int, list[str]]] = {}
        #: hashes of blocks to be loaded in the current step
        self._arriving: set[BlockHash] = set()
        #: finished requests that may have used blocks of a load in flight
        self._ended: list[_Request] = []
        #: blocks of the KV cache whose load failed, or that were computed on such blocks
        self._tainted: set[int] = set()
        self._awaited: set[str] = set()
        self._era = b""

    def _ids(self, request: Request, start: int, end: int) -> list[bytes]:
        return [bytes(block) + self._era for block in request.block_hashes[start:end]]

    def matched(self, request: Request, computed: int) -> int | None:
        """Count the tokens that can be loaded behind the computed ones. Returns None to be asked again in the next
        step."""
        size = self.shape.block_tokens
        if self._arriving and not self._arriving.isdisjoint(request.block_hashes[:computed // size]):
            # vLLM counts blocks that another request loads in this step as computed. If that load fails, the other
            # request recomputes them in parts, or not at all if it ends first, and this request would continue on wrong
            # blocks.
            return None
        state = self._requests.get(request.request_id)
        if state is None:
            state = self._requests[request.request_id] = _Request(request)
        state.load = 0
        state.start = start = computed // size
        # the last token must be computed, to produce the next one
        end = min((request.num_tokens - 1) // size, len(request.block_hashes))
        if computed % size or end <= start or request.skip_reading_prefix_cache:
            return 0
        ids = self._ids(request, start, end)
        found = 0
        for i, block in enumerate(ids):
            if not self.find.hit(request.request_id, block, lambda i=i: ids[i:]):  # type: ignore[misc]
                break
            found += 1
        return found * size

    def allocated(self, request: Request, external: int) -> None:
        """Note that the request runs in this step with ``external`` loaded tokens."""
        state = self._requests.get(request.request_id)
        if state is None:
            state = self._requests[request.request_id] = _Request(request)
        state.load = external // self.shape.block_tokens
        self._arriving.update(request.block_hashes[state.start:state.start + state.load])

    def plan(self, output: SchedulerOutput) -> KvblkMetadata:
        """Build the workers' message for this step."""
        self._step += 1
        meta = KvblkMetadata(self._step, preempted=set(output.preempted_req_ids or ()), awaited=self._awaited)
        self._awaited = set()
        size = self.shape.block_tokens
        for request in meta.preempted:
            self.find.preempted(request)
            state = self._requests.get(request)
            if state is not None:
                state.blocks, state.computed, state.stored = [], [], 0
        fresh: set[int] = set()
        for name, blocks, computed, whole in _scheduled(output):
            state = self._requests.get(name)
            if state is None:
                continue
            if whole:
                state.blocks = list(blocks)
                state.computed, state.stored = [], 0
            else:
                state.blocks += blocks
            after = computed + output.num_scheduled_tokens[name]
            state.computed.append((self._step, min(after // size, len(state.blocks))))
            if state.load:
                # the loaded blocks are the last ones that count as computed
                end = computed // size
                start = end - state.load
                state.load = 0
                state.stored = end
                meta.loads.append(Move(name, self._ids(state.request, start, end), state.blocks[start:end]))
                self.find.load(name)
            else:
                self.find.unused(name)
            if self._tainted and not self._tainted.isdisjoint(state.blocks):
                state.barred = True
            # blocks that this step writes completely
            fresh.update(state.blocks[-(-computed // size):after // size])
        if meta.loads:
            self._loading[self._step] = (self.shape.world, [load.request for load in meta.loads])
        settled = min(self._loading) - 1 if self._loading else self._step
        for name in output.num_scheduled_tokens:
            state = self._requests.get(name)
            if state is not None:
                self._store(state, settled, meta)
        # untaint after this step only: in this step the blocks may be read before they are written
        self._tainted -= fresh
        self._arriving.clear()
        self.find.next_step()
        return meta

    def _store(self, state: _Request, settled: int, meta: KvblkMetadata) -> None:
        request = state.request
        end = 0
        while state.computed and state.computed[0][0] <= settled:
            end = max(end, state.computed.pop(0)[1])
        if not end:
            return
        tokens = request.num_tokens if self._decode else request.num_prompt_tokens
        end = min(end, tokens // self.shape.block_tokens, len(request.block_hashes))
        start = state.stored
        if state.barred or end <= start:
            return
        state.stored = end
        ids = self._ids(request, start, end)
        parent = self._ids(request, start - 1, start)[0] if start else None
        # skip present blocks, and store the runs between them
        present = self.find.present(ids)
        self.report.count("store_present", sum(present))
        i = 0
        while i < len(ids):
            j = i
            while j < len(ids) and present[j] == present[i]:
                j += 1
            if not present[i]:
                meta.stores.append(Move(request.request_id, ids[i:j], state.blocks[start + i:start + j],
                                        ids[i - 1] if i else parent))
                state.sent += self.shape.stores
                state.storing.append((start + i, start + j))
            i = j

    def heard(self, meta: KvblkWorkerMetadata) -> set[int]:
        """Process a worker's message. Returns blocks of the KV cache that are not what vLLM assumes."""
        for step, ranks in meta.steps.items():
            if step not in self._loading:
                continue
            left, requests = self._loading[step]
            if left > ranks:
                self._loading[step] = left - ranks, requests
                continue
            del self._loading[step]
            for request in requests:
                self.find.loaded(request, ())
        for name, number in meta.stored.items():
            state = self._requests.get(name) or self._finished.get(name)
            if state is not None:
                state.sent -= number
                if not state.sent:
                    self._finished.pop(name, None)
                    self._announce(state)
        wrong: set[int] = set()
        if meta.failed:
            self._tainted |= meta.failed
            for state in (*self._requests.values(), *self._ended):
                at = next((i for i, block in enumerate(state.blocks) if block in meta.failed), None)
                if at is not None:
                    state.barred = True
                    wrong.update(state.blocks[at:])
        if not self._loading:
            self._ended.clear()
        return wrong

    def finished(self, request: Request) -> bool:
        """Forget a finished request. Returns True if workers may still be reading its blocks."""
        state = self._requests.pop(request.request_id, None)
        self.find.finished(request.request_id)
        if state is None:
            return False
        if self._loading:
            self._ended.append(state)
        if not state.sent:
            return False
        self._awaited.add(request.request_id)
        self._finished[request.request_id] = state
        return True

    # KV events

    def _announce(self, state: _Request) -> None:
        """Announce the stored blocks of a request that the pool has; it may have declined some."""
        for first, last in state.storing:
            self.find.announce(self._ids(state.request, first, last), [(state.request, i) for i in range(first, last)])
        state.storing = []

    def _stored(self, request: Request, i: int) -> BlockStored:
        """Build the event for block ``i`` of a request."""
        start, end = i * self.shape.block_tokens, (i + 1) * self.shape.block_tokens
        extra, _ = generate_block_hash_extra_keys(request, start, end, 0)
        lora = request.lora_request
        return BlockStored(block_hashes=[maybe_convert_block_hash(request.block_hashes[i])],
                           parent_block_hash=maybe_convert_block_hash(request.block_hashes[i - 1]) if i else None,
                           token_ids=request.all_token_ids[start:end], block_size=end - start,
                           lora_id=lora.adapter_id if lora else None, lora_name=lora.name if lora else None,
                           extra_keys=to_event_extra_keys([extra]), kv_cache_spec_kind=self.shape.kind,
                           session_id=request.session_id, **PLACE)

    def take_events(self) -> list[KVCacheEvent]:
        events, self._events = self._events, []
        for removed, told in itertools.groupby(self.find.told(), lambda block: block[1] is None):
            if removed:
                hashes = [BlockHash(block[:len(block) - len(self._era)]) for block, _ in told]
                events.append(BlockRemoved(block_hashes=list(map(maybe_convert_block_hash, hashes)), **PLACE))
            else:
                events += [self._stored(*note) for _, note in told]
        return events

    def reset(self) -> None:
        self.find.reset()
        # convert pending events first, because that cuts off the current era's suffix
        self._events = self.take_events()
        self._era = os.urandom(8)

    def close(self) -> None:
        self.find.reset()
        self._pool.close()


def _scheduled(output: SchedulerOutput) -> Iterable[tuple[str, list[int], int, bool]]:
    """Iterate over the requests of a step: name, blocks, computed tokens, whether these are all its blocks."""
    for new in output.scheduled_new_reqs:
        yield new.req_id, new.block_ids[0], new.num_computed_tokens, True
    old = output.scheduled_cached_reqs
    for i, name in enumerate(old.req_ids):
        groups = old.new_block_ids[i]
        yield name, groups[0] if groups else [], old.num_computed_tokens[i], name in old.resumed_req_ids


class Working:
    """The connector in a worker."""

    def __init__(self, shape: Shape, options: ConnectorOptions, rank: int, caches: dict[str, torch.Tensor],
                 num_blocks: int):
        self.report = Report("connector's worker")
        self._keys = shape.keys
        self._rank = rank
        self._part_of = {name: part for part, names in enumerate(shape.parts) for name in names}
        tensors = []
        self._pages: list[list[Pages]] = []
        for names in shape.parts:
            pages = []
            for name in names:
                tensor = group_kernel_blocks(caches[name], num_blocks)
                stride = tensor.stride(0) * tensor.element_size()
                if stride < shape.page:
                    raise ValueError(f"kvblk: blocks of layer {name} are {stride} bytes apart and have {shape.page}")
                pages.append(Pages(tensor, stride, shape.page))
                tensors.append(tensor)
            self._pages.append(pages)
        self._ends = {names[-1]: part for part, names in enumerate(shape.parts)}
        # with MLA all ranks hold the same bytes, so one of them stores
        self._stores = shape.keys.ranks.number == shape.world or rank == 0
        pool = options.open()
        try:
            longest = max(len(names) for names in shape.parts) * shape.page
            limit = pool.info().value_max
            if longest > limit:
                raise ValueError(f"kvblk: {longest} bytes are in a value of the pool, which takes {limit}: "
                                 'lower the option "layers"')
            self._mover = Mover(pool, options, self.report, tensors, shape.page, longest)
        except BaseException:
            pool.close()
            raise
        #: loads in flight of each part
        self._coming = [0] * len(self._pages)
        self._steps: dict[int, int] = {}
        self._failed: set[int] = set()
        self._told: set[int] = set()
        #: by request: stores in flight, and completed stores that were not reported
        self._stores_of: dict[str, int] = {}
        self._stored: dict[str, int] = {}
        self._awaited: set[str] = set()
        self._put: set[int] = set()
        self._meta: KvblkMetadata | None = None
        log.info("kvblk connector: %d layers in %d values a block, pages of %d bytes; memory is %s", len(shape.names),
                 len(shape.parts), shape.page, self._mover.kind or "not registered")

    def _buffers(self, part: int, blocks: Sequence[int]) -> list[list[tuple[int, int]]]:
        return [[pages.piece(block) for pages in self._pages[part]] for block in blocks]

    def _enter(self, meta: KvblkMetadata) -> None:
        """Begin a step, once: vLLM starts loads before the model runs if there are any, otherwise after it."""
        if self._meta is not meta:
            self._meta = meta
            self._put = set()
            self._awaited |= meta.awaited

    # Loads

    def begin(self, meta: KvblkMetadata) -> None:
        """Start all loads of a step, the first layers' first."""
        self._enter(meta)
        for part in range(len(self._pages)):
            for load in meta.loads:
                def loaded(at: int, there: list[bool], load: Move = load) -> None:
                    self._failed.update(load.blocks[at + i] for i, ok in enumerate(there) if not ok)

                def done(_: Transfer, part: int = part) -> None:
                    self._coming[part] -= 1

                self._coming[part] += 1
                self._mover.get(Transfer(done), self._keys.of_rank(self._rank, load.ids, part),
                                self._buffers(part, load.blocks), loaded)

    def wait_for(self, layer: str) -> None:
        """Wait until the loads of a layer complete or fail."""
        part = self._part_of.get(layer, -1)
        if part >= 0 and self._coming[part]:
            self._mover.wait(lambda: not self._coming[part])

    # Stores

    def computed(self, layer: str, meta: KvblkMetadata) -> None:
        """Store a layer's blocks of this step, which are complete."""
        self._enter(meta)
        part = self._ends.get(layer)
        if part is not None:
            self._store(part)

    def _store(self, part: int) -> None:
        if part in self._put or self._meta is None or not self._stores:
            return
        self._put.add(part)
        for store in self._meta.stores:
            name = store.request
            self._stores_of[name] = self._stores_of.get(name, 0) + 1

            def done(_: Transfer, name: str = name) -> None:
                self._stores_of[name] -= 1
                if not self._stores_of[name]:
                    del self._stores_of[name]
                self._stored[name] = self._stored.get(name, 0) + 1

            keys = self._keys.of_rank(self._rank, store.ids, part)
            parent = None if store.parent is None else self._keys.of_rank(self._rank, [store.parent], part)[0]
            self._mover.put(Transfer(done), keys, self._buffers(part, store.blocks), parent)

    def end(self) -> None:
        """End a step: wait for its loads, and start its remaining stores."""
        meta = self._meta
        if meta is None:
            return
        self._mover.wait(lambda: not any(self._coming))
        for part in range(len(self._pages)):
            # a model that runs as a graph does not report each layer
            self._store(part)
        self._meta = None
        if meta.loads:
            self._steps[meta.step] = 1
        self._mover.poll()

    def preempt(self, requests: set[str]) -> None:
        """Wait for the stores of preempted requests, before their blocks are overwritten."""
        self._mover.wait(lambda: requests.isdisjoint(self._stores_of))

    def finished(self) -> set[str]:
        """Return the requests that the scheduler waits for and whose stores have completed."""
        self._mover.poll()
        done = self._awaited - self._stores_of.keys()
        self._awaited -= done
        return done

    def failed(self) -> set[int]:
        """Return the blocks whose load failed since the last call."""
        failed, self._failed = self._failed, set()
        self._told |= failed
        return failed

    def tell(self) -> KvblkWorkerMetadata | None:
        steps, self._steps = self._steps, {}
        told, self._told = self._told, set()
        stored, self._stored = self._stored, {}
        return KvblkWorkerMetadata(steps, told, stored) if steps or told or stored else None

    def close(self) -> None:
        self._mover.close()
        log.info("kvblk connector: %s", self.report.summary())


class KvblkConnector(KVConnectorBase_V1):
    """The class for kv_connector, with kv_connector_module_path "kvblk_vllm.connector"."""

    _cache_hit_source = CacheHitSource.DISK

    def __init__(self, vllm_config: VllmConfig, role: KVConnectorRole, kv_cache_config: KVCacheConfig):
        super().__init__(vllm_config, role, kv_cache_config)
        check_recovery(vllm_config, "KvblkConnector", 'use KvblkOffloadingConnector ("kvblk_vllm.offloading")')
        transfer = self._kv_transfer_config
        self._options = ConnectorOptions.read(transfer.kv_connector_extra_config.get("kvblk"), WHERE)
        self._shape = Shape(vllm_config, kv_cache_config, self._options)
        self._scheduling: Scheduling | None = None
        self._working: Working | None = None
        if role == KVConnectorRole.SCHEDULER:
            warn_of_policy(vllm_config)
            wanted = vllm_config.kv_events_config
            self._scheduling = Scheduling(self._shape, self._options,
                                          wanted is not None and wanted.enable_kv_cache_events)

    @property
    def requires_kv_delivery(self) -> bool:
        # a dropped store is only a later miss
        return False

    @classmethod
    def get_required_kvcache_layout(cls, vllm_config: VllmConfig) -> str | None:
        # makes a layer's part of a block contiguous
        return "LBHNC"

    @classmethod
    def requires_piecewise_for_cudagraph(cls, extra_config: dict[str, Any]) -> bool:
        return True

    # Worker

    def register_kv_caches(self, kv_caches: dict[str, torch.Tensor]) -> None:
        self._working = Working(self._shape, self._options, self._vllm_config.parallel_config.rank, kv_caches,
                                self._kv_cache_config.num_blocks)

    def _work(self) -> Working:
        assert self._working is not None
        return self._working

    def handle_preemptions(self, kv_connector_metadata: KVConnectorMetadata) -> None:
        assert isinstance(kv_connector_metadata, KvblkMetadata)
        if kv_connector_metadata.preempted:
            self._work().preempt(kv_connector_metadata.preempted)

    def start_load_kv(self, forward_context: ForwardContext, **kwargs: Any) -> None:
        meta = self._get_connector_metadata()
        assert isinstance(meta, KvblkMetadata)
        self._work().begin(meta)

    def wait_for_layer_load(self, layer_name: str) -> None:
        self._work().wait_for(layer_name)

    def save_kv_layer(self, layer_name: str, kv_layer: torch.Tensor, attn_metadata: Any, **kwargs: Any) -> None:
        meta = self._get_connector_metadata()
        assert isinstance(meta, KvblkMetadata)
        self._work().computed(layer_name, meta)

    def wait_for_save(self) -> None:
        self._work().end()

    def get_finished(self, finished_req_ids: set[str]) -> tuple[set[str] | None, set[str] | None]:
        return self._work().finished() or None, None

    def get_block_ids_with_load_errors(self) -> set[int]:
        return self._work().failed()

    def build_connector_worker_meta(self) -> KVConnectorWorkerMetadata | None:
        return None if self._working is None else self._working.tell()

    # Scheduler

    def _schedule(self) -> Scheduling:
        assert self._scheduling is not None
        return self._scheduling

    def get_num_new_matched_tokens(self, request: Request, num_computed_tokens: int) -> tuple[int | None, bool]:
        return self._schedule().matched(request, num_computed_tokens), False

    def update_state_after_alloc(self, request: Request, blocks: KVCacheBlocks, num_external_tokens: int) -> None:
        self._schedule().allocated(request, num_external_tokens)

    def build_connector_meta(self, scheduler_output: SchedulerOutput) -> KVConnectorMetadata:
        return self._schedule().plan(scheduler_output)

    def update_connector_output(self, connector_output: KVConnectorOutput) -> None:
        meta = connector_output.kv_connector_worker_meta
        if isinstance(meta, KvblkWorkerMetadata):
            wrong = self._schedule().heard(meta)
            if wrong and self._kv_cache_manager is not None:
                # otherwise vLLM leaves them in the prefix cache, and recomputes them only if their request does not end
                # first
                self._kv_cache_manager.evict_blocks(wrong)

    def request_finished(self, request: Request, block_ids: list[int]) -> tuple[bool, dict[str, Any] | None]:
        return self._schedule().finished(request), None

    def take_events(self) -> Iterable[KVCacheEvent]:
        return self._schedule().take_events()

    def reset_cache(self) -> bool | None:
        self._schedule().reset()
        return True

    # Both

    def get_kv_connector_stats(self) -> KVConnectorStats | None:
        half = self._scheduling or self._working
        new = half.report.take() if half is not None else None
        return KvblkStats(data=dict(new)) if new else None

    @classmethod
    def build_kv_connector_stats(cls, data: dict[str, Any] | None = None) -> KVConnectorStats | None:
        return KvblkStats(data=data or {})

    def shutdown(self) -> None:
        if self._working is not None:
            self._working.close()
        if self._scheduling is not None:
            self._scheduling.close()
