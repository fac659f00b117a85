# SPDX-License-Identifier: MIT
"""SGLang's own host pools, created on a CPU without an engine, for test_backend.py."""

import os

import torch
from sglang.srt.mem_cache.device_pool_info import KVBufferLayout, KVBuffers, MHABufferInfo, MLABufferInfo
from sglang.srt.mem_cache.hicache_storage import HiCacheStorageConfig
from sglang.srt.mem_cache.pool_host.base import host_memory_budget_scope
from sglang.srt.mem_cache.pool_host.mha import MHATokenToKVPoolHost
from sglang.srt.mem_cache.pool_host.mla import MLATokenToKVPoolHost

PAGE = 16
#: a real pool, or the emulated pool of tools/fake, which has further tests
POOL = os.environ.get("KVBLK_POOL", "fake")
FAKE = POOL == "fake"


def _common(layers, page, pages, layout):
    return dict(host_to_device_ratio=2.0, host_size=0, page_size=page, layout=layout, pin_memory=False,
                device_capacity_tokens=page, start_layer=0, end_layer=layers, host_token_capacity=page * pages)


def _pointers(tensors):
    return torch.tensor([t.data_ptr() for t in tensors], dtype=torch.uint64)


def mha(layout="page_first_direct", layers=4, heads=2, dim=64, page=PAGE, pages=64, dtype=torch.bfloat16):
    kv = tuple(torch.zeros(page, heads, dim, dtype=dtype) for _ in range(layers))
    info = MHABufferInfo(buffers=KVBuffers(k=kv, v=kv, k_data_ptrs=_pointers(kv), v_data_ptrs=_pointers(kv),
                                           layout=KVBufferLayout.NHD),
                         page_size=page, head_num=heads, head_dim=dim, v_head_dim=dim, dtype=dtype,
                         device=torch.device("cpu"))
    with host_memory_budget_scope(1 << 32):
        return MHATokenToKVPoolHost(info, **_common(layers, page, pages, layout))


def mla(layout="page_first_direct", layers=4, dim=80, page=PAGE, pages=64, dtype=torch.bfloat16):
    kv = tuple(torch.zeros(page, 1, dim, dtype=dtype) for _ in range(layers))
    info = MLABufferInfo(buffers=kv, data_ptrs=_pointers(kv), layer_indices=tuple(range(layers)),
                         device_layer_num=layers, page_size=page, kv_lora_rank=dim - 16, qk_rope_head_dim=16,
                         kv_cache_dim=dim, dtype=dtype, device=torch.device("cpu"))
    with host_memory_budget_scope(1 << 32):
        return MLATokenToKVPoolHost(info, target_layer_num=layers, **_common(layers, page, pages, layout))


def fill(pool, seed):
    """Fill a pool with random bytes of a seed."""
    raw = pool.kv_buffer.view(torch.uint8)
    raw.copy_(torch.randint(0, 256, raw.shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(seed)))


def config(extra=None, **changes):
    """Return the configuration that SGLang passes to a backend, for one rank of an ordinary model."""
    values = dict(tp_rank=0, tp_size=1, pp_rank=0, pp_size=1, attn_cp_rank=0, attn_cp_size=1, is_mla_model=False,
                  enable_storage_metrics=False, is_page_first_layout=False, model_name="tiny",
                  extra_config={"backend_name": "kvblk", "module_path": "kvblk_sglang", "class_name": "HiCacheKvblk",
                                "interface_v1": 1, "pool": POOL, **(extra or {})})
    return HiCacheStorageConfig(**{**values, **changes})


def indices(*numbers, page=PAGE):
    """Return host_indices of these pages of a host pool."""
    return torch.cat([torch.arange(n * page, (n + 1) * page, dtype=torch.int64) for n in numbers])


def page_bytes(pool, number):
    """Return all bytes of a page of a host pool, with SGLang's own copy function."""
    return bytes(pool.get_data_page(number * pool.page_size).contiguous().view(torch.uint8).numpy())
