# SPDX-License-Identifier: MIT
"""vLLM's OffloadingConnector with KvblkOffloadingSpec, and with loads that may fail.

OffloadingConnector asserts that each load succeeds. A lease makes failures rare, but a member of the pool may fail
between lookup and load. This connector reports failed blocks to the engine, which recomputes them (with
"kv_load_failure_policy": "recompute") or fails the request.
"""

from __future__ import annotations

from typing import Any

from vllm.config import VllmConfig
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole, KVConnectorTransferResults
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.metrics import OffloadingConnectorStats
from vllm.distributed.kv_transfer.kv_connector.v1.offloading_connector import OffloadingConnector
from vllm.v1.kv_cache_interface import AttentionSpec, KVCacheConfig, UniformTypeKVCacheSpecs

from .keys import model_of
from .options import WHERE, Options
from .report import log, stats_of
from .spec import MODEL, PAGE_BYTES, KvblkWorker

SPEC = {"spec_name": "KvblkOffloadingSpec", "spec_module_path": "kvblk_vllm.spec"}


def _name_spec(vllm_config: VllmConfig) -> None:
    """Fill in the spec's name, so that the configuration need not."""
    transfer = vllm_config.kv_transfer_config
    assert transfer is not None
    extra = transfer.kv_connector_extra_config
    for name, value in SPEC.items():
        if extra.setdefault(name, value) != value:
            raise ValueError(f"kvblk: KvblkOffloadingConnector has its own {name}, not {extra[name]!r}")


def warn_of_policy(vllm_config: VllmConfig) -> None:
    transfer = vllm_config.kv_transfer_config
    if transfer is not None and transfer.kv_load_failure_policy != "recompute":
        log.warning('kvblk: kv_load_failure_policy is "%s": if a block is lost between lookup and load, the request '
                    'ends with an error. With "recompute" vLLM computes the block.', transfer.kv_load_failure_policy)


def check_recovery(config: VllmConfig, what: str, otherwise: str) -> None:
    """Reject settings with which vLLM computes wrong tokens after a failed load of the running step.

    The runner V2 continues at the old position; with asynchronous scheduling, results of the next step count (vLLM
    issue 49250). The failure policy does not matter, because the policy of an outer MultiConnector is not visible here.
    """
    if config.use_v2_model_runner or config.scheduler_config.async_scheduling:
        raise ValueError("kvblk: with its model runner V2, or with asynchronous scheduling, vLLM computes wrong tokens when "
                         f"a load of {what} fails: {otherwise} instead, or run it with VLLM_USE_V2_MODEL_RUNNER=0 in the "
                         "environment and --no-async-scheduling")


def check_sync_loads(config: VllmConfig, cache: KVCacheConfig) -> None:
    """Check "sync_load_budget_bytes" (vLLM 0.33 and later): its loads are for requests of the same step."""
    transfer = config.kv_transfer_config
    assert transfer is not None
    if not transfer.kv_connector_extra_config.get("sync_load_budget_bytes"):
        return
    if len(cache.kv_cache_groups) > 1:
        raise ValueError("kvblk: with several KV cache groups vLLM can't be told that a load of the running step failed: "
                         'leave out "sync_load_budget_bytes"')
    check_recovery(config, 'the running step ("sync_load_budget_bytes")', "leave that out")


def _page_bytes(cache: KVCacheConfig) -> int:
    """Return the bytes of a block in the only KV cache group; 0 for several groups, or layers without attention."""
    if len(cache.kv_cache_groups) != 1:
        return 0
    group = cache.kv_cache_groups[0]
    spec = group.kv_cache_spec
    layers = ([*spec.kv_cache_specs.values()] if isinstance(spec, UniformTypeKVCacheSpecs)
              else [spec] * len(group.layer_names))
    if not all(isinstance(layer, AttentionSpec) for layer in layers):
        return 0
    return sum(layer.unpadded_page_size_bytes for layer in layers)


class KvblkOffloadingConnector(OffloadingConnector):
    """The class for kv_connector, with kv_connector_module_path "kvblk_vllm.offloading"."""

    def __init__(self, vllm_config: VllmConfig, role: KVConnectorRole, kv_cache_config: KVCacheConfig):
        _name_spec(vllm_config)
        check_sync_loads(vllm_config, kv_cache_config)
        assert vllm_config.kv_transfer_config is not None
        extra = vllm_config.kv_transfer_config.kv_connector_extra_config
        extra[PAGE_BYTES] = _page_bytes(kv_cache_config)
        extra[MODEL] = model_of(vllm_config, Options.read(extra.get("kvblk"), WHERE))
        super().__init__(vllm_config, role, kv_cache_config)
        if self.connector_worker is None:
            warn_of_policy(vllm_config)
        #: with several groups the engine accepts requests, but not blocks, as failed
        self._by_request = len(kv_cache_config.kv_cache_groups) > 1

    def _mover(self) -> KvblkWorker | None:
        worker = None if self.connector_worker is None else self.connector_worker.worker
        return worker if isinstance(worker, KvblkWorker) else None

    def get_transfer_results(self, finished_req_ids: set[str]) -> KVConnectorTransferResults:
        assert self.connector_worker is not None
        # get_finished() drops the requests of its jobs
        requests = dict(self.connector_worker._load_jobs)
        results = super().get_transfer_results(finished_req_ids)
        worker = self._mover()
        if worker is not None and worker.failed_jobs:
            failed, worker.failed_jobs = worker.failed_jobs, set()
            if self._by_request:
                results.failed_recving |= {name for name in map(requests.get, failed) if name is not None}
        return results

    def get_block_ids_with_load_errors(self) -> set[int]:
        worker = self._mover()
        if worker is None or not worker.failed_blocks:
            return set()
        failed, worker.failed_blocks = worker.failed_blocks, set()
        return set() if self._by_request else failed

    def get_kv_connector_stats(self) -> Any:
        worker = self._mover()
        if worker is not None:
            return stats_of(worker.report, OffloadingConnectorStats())
        return super().get_kv_connector_stats()

    def shutdown(self) -> None:
        worker = self._mover()
        if worker is not None and self.connector_worker is not None:
            # vLLM keeps a step's stores for a next step, which never comes; the blocks are unchanged
            late, self.connector_worker._unsubmitted_store_jobs = self.connector_worker._unsubmitted_store_jobs, []
            for job, source, target in late:
                worker.submit_store(job, source, target)
        super().shutdown()

    @classmethod
    def build_prom_metrics(cls, vllm_config: VllmConfig, *args: Any, **kwargs: Any) -> Any:
        _name_spec(vllm_config)
        return super().build_prom_metrics(vllm_config, *args, **kwargs)
