# SPDX-License-Identifier: MIT
"""KvblkConnector in the scheduler: finds blocks, and decides which to load and which to store."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from vllm.distributed.kv_events import MEDIUM_STORAGE, BlockRemoved, BlockStored, KVCacheEvent
from vllm.v1.core.kv_cache_utils import (BlockHash, generate_block_hash_extra_keys, maybe_convert_block_hash,
                                         to_event_extra_keys)
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.kv_offload.base import Locality

from .find import Finder
from .metadata import ConnectorOptions, KvblkMetadata, KvblkWorkerMetadata, Move, Shape
from .report import Report
from .spec import OWNER

if TYPE_CHECKING:
    from vllm.v1.request import Request

#: common fields of KV events
PLACE: dict[str, Any] = {"medium": MEDIUM_STORAGE, "group_idx": 0, "locality": Locality.REMOTE.value, "ownership": OWNER}


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


class KvblkConnectorScheduler:
    """The connector in the scheduler. Methods have the names of vLLM's hooks."""

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
        #: blocks of the KV cache whose load failed, until a step overwrites them
        self._tainted: set[int] = set()
        self._awaited: set[str] = set()
        self._era = b""

    def _ids(self, request: Request, start: int, end: int) -> list[bytes]:
        return [bytes(block) + self._era for block in request.block_hashes[start:end]]

    def get_num_new_matched_tokens(self, request: Request, num_computed_tokens: int) -> int | None:
        """Count the tokens that can be loaded behind the computed ones. Returns None to be asked again in the next
        step."""
        size = self.shape.block_tokens
        if self._arriving and not self._arriving.isdisjoint(request.block_hashes[:num_computed_tokens // size]):
            # vLLM counts blocks as computed while another request is loading them. If the load fails, the other
            # request recomputes a part of the blocks, or none if it ends first, and this request would continue on
            # wrong blocks.
            return None
        state = self._requests.get(request.request_id)
        if state is None:
            state = self._requests[request.request_id] = _Request(request)
        state.load = 0
        state.start = start = num_computed_tokens // size
        # the last token must be computed, to produce the next one
        end = min((request.num_tokens - 1) // size, len(request.block_hashes))
        if num_computed_tokens % size or end <= start or request.skip_reading_prefix_cache:
            return 0
        ids = self._ids(request, start, end)
        found = 0
        while found < len(ids) and self.find.hit(request.request_id, ids[found], lambda: ids[found:]):
            found += 1
        return found * size

    def update_state_after_alloc(self, request: Request, num_external_tokens: int) -> None:
        """Note that the request runs in this step with ``num_external_tokens`` loaded tokens."""
        state = self._requests.get(request.request_id)
        if state is None:
            state = self._requests[request.request_id] = _Request(request)
        state.load = num_external_tokens // self.shape.block_tokens
        self._arriving.update(request.block_hashes[state.start:state.start + state.load])

    def build_connector_meta(self, output: SchedulerOutput) -> KvblkMetadata:
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
                # the loaded blocks are the last of the computed blocks
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
            # blocks written completely by this step
            fresh.update(state.blocks[-(-computed // size):after // size])
        if meta.loads:
            self._loading[self._step] = (self.shape.world, [load.request for load in meta.loads])
        settled = min(self._loading) - 1 if self._loading else self._step
        for name in output.num_scheduled_tokens:
            state = self._requests.get(name)
            if state is not None:
                self._store(state, settled, meta)
        # untaint after this step, because the step may read a block before writing the block
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

    def update_connector_output(self, meta: KvblkWorkerMetadata) -> set[int]:
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

    def request_finished(self, request: Request) -> bool:
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

    def reset_cache(self) -> None:
        self.find.reset()
        # convert pending events first, because that cuts off the current era's suffix
        self._events = self.take_events()
        self._era = os.urandom(8)

    def shutdown(self) -> None:
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
