# SPDX-License-Identifier: MIT
"""A replacement of SGLang's GPU kernels, so that its engine and HiCache run on a CPU in tests.

Python finds this module before the real package. The engine calls the copies between the host pool and the "device"
pool, which SGLang looks up as globals that exist only on a GPU, so they are installed as builtins. All other kernels
raise an error.
"""

import builtins
import ctypes

import torch

__version__ = "0.4.10"


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)

    def missing(*args, **kwargs):
        raise NotImplementedError(f"there is no sgl_kernel.{name} on a CPU")
    return missing


def transfer_kv_direct(src_layers, dst_layers, src_indices, dst_indices, page_size):
    """layer_first, io backend direct, in both directions."""
    for src, dst in zip(src_layers, dst_layers):
        dst[dst_indices.long()] = src[src_indices.long()]


def transfer_kv_per_layer_direct_pf_lf(src_ptrs, dst_ptrs, src_indices, dst_indices, layer_id, page_size):
    """page_first_direct, io backend direct, from the host, whose pages are [page, layer, token, ...]."""
    src_indices, dst_indices = src_indices.long(), dst_indices.long()
    for src, dst in zip(src_ptrs, dst_ptrs):
        dst[dst_indices] = src[src_indices // page_size, layer_id, src_indices % page_size].reshape(dst[dst_indices].shape)


def transfer_kv_all_layer_direct_lf_pf(src_ptrs, dst_ptrs, src_indices, dst_indices, page_size):
    """page_first_direct to the host. The sources are all layers of K, then all of V."""
    src_indices, dst_indices = src_indices.long(), dst_indices.long()
    layers = len(src_ptrs) // len(dst_ptrs)
    for i, src in enumerate(src_ptrs):
        at = dst_ptrs[i // layers], (dst_indices // page_size, i % layers, dst_indices % page_size)
        at[0][at[1]] = src[src_indices].reshape(at[0][at[1]].shape)


def transfer_kv_per_layer_pf_lf(src_k, dst_k, src_v, dst_v, src_indices, dst_indices, layer_id, item_size,
                                src_layout_dim):
    """page_first, io backend kernel, from the host, whose pages are [token, layer, ...]."""
    for src, dst in ((src_k, dst_k), (src_v, dst_v)):
        dst[dst_indices.long()] = src[src_indices.long(), layer_id].reshape(dst[dst_indices.long()].shape)


def transfer_kv_all_layer_lf_pf(src_k_layers, dst_k, src_v_layers, dst_v, src_indices, dst_indices, item_size,
                                dst_layout_dim, num_layers):
    """page_first to the host. The sources are addresses of layers."""
    for sources, dst in ((src_k_layers, dst_k), (src_v_layers, dst_v)):
        for layer, source in enumerate(sources.tolist()):
            for src, to in zip(src_indices.tolist(), dst_indices.tolist()):
                ctypes.memmove(dst.data_ptr() + to * dst_layout_dim + layer * item_size, source + src * item_size,
                               item_size)


class _Runtime:
    def cudaHostRegister(self, *args):
        return 0

    def cudaHostUnregister(self, *args):
        return 0

    def cudaGetErrorString(self, *args):
        return "there is no error"


def _without_pinning(make):
    def made(*args, **kwargs):
        kwargs.pop("pin_memory", None)
        return make(*args, **kwargs)
    return made


for _function in (transfer_kv_direct, transfer_kv_per_layer_direct_pf_lf, transfer_kv_all_layer_direct_lf_pf,
                  transfer_kv_per_layer_pf_lf, transfer_kv_all_layer_lf_pf):
    setattr(builtins, _function.__name__, _function)
if not torch.cuda.is_available():
    torch.cuda.cudart = _Runtime
    for _name in ("empty", "zeros"):
        setattr(torch, _name, _without_pinning(getattr(torch, _name)))
