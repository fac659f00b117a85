# SPDX-License-Identifier: MIT
"""KvblkConnector in a worker: moves blocks between the KV cache's tensors and the pool, layer by layer."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from vllm.v1.kv_cache_interface import group_kernel_blocks

from .metadata import ConnectorOptions, KvblkMetadata, KvblkWorkerMetadata, Shape
from .report import Report, log
from .slab import Mover, Pages, Transfer


class KvblkConnectorWorker:
    """The connector in a worker. Methods have the names of vLLM's hooks."""

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
        # with MLA all ranks hold the same bytes, so rank 0 alone stores
        self._stores = shape.keys.ranks.number == shape.world or rank == 0
        pool = options.open()
        try:
            longest = max(len(names) for names in shape.parts) * shape.page
            limit = pool.get_info().value_max
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
        #: failed blocks that are reported to the model's runner, but not to the scheduler
        self._reported: set[int] = set()
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

    def start_load_kv(self, meta: KvblkMetadata) -> None:
        """Start all loads of a step, the first layers' first."""
        self._enter(meta)
        for part in range(len(self._pages)):
            for move in meta.loads:
                load = _Load(self, part, move.blocks)
                self._coming[part] += 1
                self._mover.get(load, self._keys.of_rank(self._rank, move.ids, part),
                                self._buffers(part, move.blocks), load.note)

    def load_done(self, load: _Load) -> None:
        """Complete a load."""
        self._failed |= load.failed_blocks
        self._coming[load.part] -= 1

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Wait until the loads of a layer complete or fail."""
        part = self._part_of.get(layer_name, -1)
        if part >= 0 and self._coming[part]:
            self._mover.wait(lambda: not self._coming[part])

    # Stores

    def save_kv_layer(self, layer_name: str, meta: KvblkMetadata) -> None:
        """Store a layer's blocks of this step, which are complete."""
        self._enter(meta)
        part = self._ends.get(layer_name)
        if part is not None:
            self._store(part)

    def _store(self, part: int) -> None:
        if part in self._put or self._meta is None or not self._stores:
            return
        self._put.add(part)
        for move in self._meta.stores:
            self._stores_of[move.request] = self._stores_of.get(move.request, 0) + 1
            keys = self._keys.of_rank(self._rank, move.ids, part)
            parent = None if move.parent is None else self._keys.of_rank(self._rank, [move.parent], part)[0]
            self._mover.put(_Store(self, move.request), keys, self._buffers(part, move.blocks), parent)

    def store_done(self, store: _Store) -> None:
        """Complete a store."""
        name = store.request
        self._stores_of[name] -= 1
        if not self._stores_of[name]:
            del self._stores_of[name]
        self._stored[name] = self._stored.get(name, 0) + 1

    def wait_for_save(self) -> None:
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

    def handle_preemptions(self, meta: KvblkMetadata) -> None:
        """Wait for the stores of preempted requests, before their blocks are overwritten."""
        self._mover.wait(lambda: meta.preempted.isdisjoint(self._stores_of))

    def get_finished(self) -> set[str]:
        """Return the requests that the scheduler waits for and whose stores have completed."""
        self._mover.poll()
        done = self._awaited - self._stores_of.keys()
        self._awaited -= done
        return done

    def get_block_ids_with_load_errors(self) -> set[int]:
        """Return the blocks whose load failed since the last call."""
        failed, self._failed = self._failed, set()
        self._reported |= failed
        return failed

    def build_connector_worker_meta(self) -> KvblkWorkerMetadata | None:
        """Return a message of what completed since the last one, or None if nothing did."""
        steps, self._steps = self._steps, {}
        failed, self._reported = self._reported, set()
        stored, self._stored = self._stored, {}
        return KvblkWorkerMetadata(steps, failed, stored) if steps or failed or stored else None

    def shutdown(self) -> None:
        self._mover.close()
        log.info("kvblk connector: %s", self.report.summary())


class _Load(Transfer):
    """The load of one value of each block of a request."""

    __slots__ = ("part", "blocks", "failed_blocks")

    def __init__(self, worker: KvblkConnectorWorker, part: int, blocks: list[int]):
        super().__init__(lambda _: worker.load_done(self))
        self.part = part
        self.blocks = blocks
        self.failed_blocks: set[int] = set()

    def note(self, at: int, there: list[bool]) -> None:
        """Note the blocks of a batch whose load failed."""
        self.failed_blocks.update(self.blocks[at + i] for i, ok in enumerate(there) if not ok)


class _Store(Transfer):
    """The store of one value of each block of a request."""

    __slots__ = ("request",)

    def __init__(self, worker: KvblkConnectorWorker, request: str):
        super().__init__(lambda _: worker.store_done(self))
        self.request = request
