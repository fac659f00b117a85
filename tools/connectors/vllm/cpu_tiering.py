# SPDX-License-Identifier: MIT
"""vLLM's TieringOffloadingSpec on a CPU, for test_engine.py: vLLM has no worker for its CPU tier there.

The worker copies between "GPU" blocks and the CPU tier's slab synchronously.
"""

import time

from vllm.v1.kv_offload.base import OffloadingWorker, TransferResult
from vllm.v1.kv_offload.cpu.shared_offload_region import SharedOffloadRegion
from vllm.v1.kv_offload.tiering.spec import TieringOffloadingSpec


class CopyingWorker(OffloadingWorker):
    def __init__(self, caches, region):
        self.region = region
        self.done = []
        self.cache = [t.tensor for t in caches.tensors]
        self.slab = [region.create_next_worker_view(t.page_size_bytes) for t in caches.tensors]

    def copy(self, job, cache, slab, store):
        began = time.monotonic()
        size = 0
        for block, chunk in zip(cache.block_ids, slab.block_ids):
            for a, b in zip(self.cache, self.slab):
                if store:
                    b[int(chunk)].copy_(a[int(block)])
                else:
                    a[int(block)].copy_(b[int(chunk)])
                size += b.shape[1]
        self.done.append(TransferResult(job, True, size, time.monotonic() - began))
        return True

    def submit_store(self, job_id, src_spec, dst_spec):
        return self.copy(job_id, src_spec, dst_spec, True)

    def submit_load(self, job_id, src_spec, dst_spec):
        return self.copy(job_id, dst_spec, src_spec, False)

    def get_finished(self):
        done, self.done = self.done, []
        return done

    def wait(self, job_ids):
        pass

    def shutdown(self):
        self.cache.clear()
        self.slab.clear()
        self.region.cleanup()


class CpuTieringSpec(TieringOffloadingSpec):
    def get_worker(self, kv_caches):
        assert self.blocks_per_chunk == 1
        if self._worker is None:
            region = SharedOffloadRegion(engine_id=self._engine_id, num_chunks=self.num_chunks,
                                         rank=self.config.parallel.rank, kv_bytes_per_chunk=self.kv_bytes_per_chunk,
                                         cpu_page_size=self.cpu_page_size_per_worker)
            self._worker = CopyingWorker(kv_caches, region)
        return self._worker
