# SPDX-License-Identifier: MIT
"""A KVConnectorBase_V1 of vLLM: moves blocks directly between the KV cache's tensors and a pool, layer by layer.

A block of the KV cache is stored as several values, one for each few layers (option ``layers``). Loads of all layers
start together, the first layers' first. Before each layer the model waits for the loads of that layer, so it computes
the first layers while later ones are loading. Each layer is stored while the model computes the next ones.

Only complete blocks whose bytes are known to be right are stored. vLLM uses a load before it completes: in the same
step (and in the next step with asynchronous scheduling) requests compute on top of blocks that are still loading. If
such a load fails, vLLM recomputes the blocks, but the bytes of this step are wrong. Therefore:

- blocks computed in a step are stored once all loads up to that step have succeeded on all ranks;
- blocks whose load failed are ``tainted`` until they are overwritten; a request with a tainted block stores no more.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
from vllm.config import VllmConfig
from vllm.distributed.kv_events import KVCacheEvent
from vllm.distributed.kv_transfer.kv_connector.v1.base import (KVConnectorBase_V1, KVConnectorMetadata, KVConnectorRole,
                                                               KVConnectorWorkerMetadata)
from vllm.distributed.kv_transfer.kv_connector.v1.metrics import KVConnectorStats
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.kv_cache_interface import KVCacheConfig
from vllm.v1.metrics.cache_hit_source import CacheHitSource
from vllm.v1.outputs import KVConnectorOutput

from .metadata import ConnectorOptions, KvblkMetadata, KvblkStats, KvblkWorkerMetadata, Shape
from .offloading import check_recovery, warn_of_policy
from .options import WHERE
from .scheduler import KvblkConnectorScheduler
from .worker import KvblkConnectorWorker

if TYPE_CHECKING:
    from vllm.forward_context import ForwardContext
    from vllm.v1.core.kv_cache_manager import KVCacheBlocks
    from vllm.v1.request import Request


class KvblkConnector(KVConnectorBase_V1):
    """The class for kv_connector, with kv_connector_module_path "kvblk_vllm.connector"."""

    _cache_hit_source = CacheHitSource.DISK

    def __init__(self, vllm_config: VllmConfig, role: KVConnectorRole, kv_cache_config: KVCacheConfig):
        super().__init__(vllm_config, role, kv_cache_config)
        check_recovery(vllm_config, "KvblkConnector", 'use KvblkOffloadingConnector ("kvblk_vllm.offloading")')
        transfer = self._kv_transfer_config
        self._options = ConnectorOptions.read(transfer.kv_connector_extra_config.get("kvblk"), WHERE)
        self._shape = Shape(vllm_config, kv_cache_config, self._options)
        self.connector_scheduler: KvblkConnectorScheduler | None = None
        self.connector_worker: KvblkConnectorWorker | None = None
        if role == KVConnectorRole.SCHEDULER:
            warn_of_policy(vllm_config)
            wanted = vllm_config.kv_events_config
            self.connector_scheduler = KvblkConnectorScheduler(self._shape, self._options,
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
        self.connector_worker = KvblkConnectorWorker(self._shape, self._options,
                                                     self._vllm_config.parallel_config.rank, kv_caches,
                                                     self._kv_cache_config.num_blocks)

    @property
    def worker(self) -> KvblkConnectorWorker:
        assert self.connector_worker is not None
        return self.connector_worker

    def _metadata(self) -> KvblkMetadata:
        meta = self._get_connector_metadata()
        assert isinstance(meta, KvblkMetadata)
        return meta

    def handle_preemptions(self, kv_connector_metadata: KVConnectorMetadata) -> None:
        assert isinstance(kv_connector_metadata, KvblkMetadata)
        if kv_connector_metadata.preempted:
            self.worker.handle_preemptions(kv_connector_metadata)

    def start_load_kv(self, forward_context: ForwardContext, **kwargs: Any) -> None:
        self.worker.start_load_kv(self._metadata())

    def wait_for_layer_load(self, layer_name: str) -> None:
        self.worker.wait_for_layer_load(layer_name)

    def save_kv_layer(self, layer_name: str, kv_layer: torch.Tensor, attn_metadata: Any, **kwargs: Any) -> None:
        self.worker.save_kv_layer(layer_name, self._metadata())

    def wait_for_save(self) -> None:
        self.worker.wait_for_save()

    def get_finished(self, finished_req_ids: set[str]) -> tuple[set[str] | None, set[str] | None]:
        return self.worker.get_finished() or None, None

    def get_block_ids_with_load_errors(self) -> set[int]:
        return self.worker.get_block_ids_with_load_errors()

    def build_connector_worker_meta(self) -> KVConnectorWorkerMetadata | None:
        return None if self.connector_worker is None else self.connector_worker.build_connector_worker_meta()

    # Scheduler

    @property
    def scheduler(self) -> KvblkConnectorScheduler:
        assert self.connector_scheduler is not None
        return self.connector_scheduler

    def get_num_new_matched_tokens(self, request: Request, num_computed_tokens: int) -> tuple[int | None, bool]:
        return self.scheduler.get_num_new_matched_tokens(request, num_computed_tokens), False

    def update_state_after_alloc(self, request: Request, blocks: KVCacheBlocks, num_external_tokens: int) -> None:
        self.scheduler.update_state_after_alloc(request, num_external_tokens)

    def build_connector_meta(self, scheduler_output: SchedulerOutput) -> KVConnectorMetadata:
        return self.scheduler.build_connector_meta(scheduler_output)

    def update_connector_output(self, connector_output: KVConnectorOutput) -> None:
        meta = connector_output.kv_connector_worker_meta
        if isinstance(meta, KvblkWorkerMetadata):
            wrong = self.scheduler.update_connector_output(meta)
            if wrong and self._kv_cache_manager is not None:
                # or else vLLM leaves the blocks in the prefix cache, and recomputes none whose request ends first
                self._kv_cache_manager.evict_blocks(wrong)

    def request_finished(self, request: Request, block_ids: list[int]) -> tuple[bool, dict[str, Any] | None]:
        return self.scheduler.request_finished(request), None

    def take_events(self) -> Iterable[KVCacheEvent]:
        return self.scheduler.take_events()

    def reset_cache(self) -> bool | None:
        self.scheduler.reset_cache()
        return True

    # Both

    def get_kv_connector_stats(self) -> KVConnectorStats | None:
        half = self.connector_scheduler or self.connector_worker
        new = half.report.take() if half is not None else None
        return KvblkStats(data=dict(new)) if new else None

    @classmethod
    def build_kv_connector_stats(cls, data: dict[str, Any] | None = None) -> KVConnectorStats | None:
        return KvblkStats(data=data or {})

    def shutdown(self) -> None:
        if self.connector_worker is not None:
            self.connector_worker.shutdown()
        if self.connector_scheduler is not None:
            self.connector_scheduler.shutdown()
