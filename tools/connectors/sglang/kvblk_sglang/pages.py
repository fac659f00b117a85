# SPDX-License-Identifier: MIT
"""Pages of SGLang's host pools as blocks of kvblk: their keys and memory.

A block is a page: the segments that get_page_buffer_meta() of the host pool lists for it, in order. The key space
covers everything that their meaning depends on, so a page of another model, dtype, layout, shape, rank or pool is never
found. If SGLang lacks a part of the key, or has renamed it, startup fails, or else two models would share pages.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import kvblk

from .options import VERSION

#: increase the number when the bytes of a page change their meaning in the same key space
RUNTIME = f"sglang-hicache/{VERSION}/1"

# attributes that describe the arrangement of a host pool's pages; no pool has all of them
_SHAPE = ("layout", "storage_format_tag", "layer_num", "target_layer_num", "start_layer", "end_layer", "head_num",
          "head_group_num", "head_dim", "v_head_dim", "kv_lora_rank", "qk_rope_head_dim", "kv_cache_dim",
          "dsa_kv_cache_store_fp8", "dcp_size", "dcp_rank", "index_head_dim", "indexer_dtype",
          "indexer_page_stride_size", "num_mamba_layers", "temporal_dtype", "temporal_state_elem_size",
          "temporal_state_shape", "conv_dtype", "conv_state_shapes", "item_bytes", "slot_page_size", "pool_name")
# attributes that a pool of each class must have; the key has the segment sizes for each class
_NEEDED = {
    "MHATokenToKVPoolHost": ("layer_num", "target_layer_num", "start_layer", "end_layer", "head_num", "head_dim",
                             "v_head_dim"),
    "MHATokenToKOnlyPoolHost": ("layer_num", "start_layer", "end_layer", "head_num", "head_dim"),
    "MLATokenToKVPoolHost": ("layer_num", "target_layer_num", "start_layer", "end_layer", "kv_lora_rank",
                             "qk_rope_head_dim", "kv_cache_dim", "dsa_kv_cache_store_fp8"),
    "MambaPoolHost": ("num_mamba_layers", "temporal_dtype", "temporal_state_shape", "conv_dtype", "conv_state_shapes"),
    "DSAIndexerPoolHost": ("layer_num", "target_layer_num", "start_layer", "end_layer", "indexer_dtype",
                           "indexer_page_stride_size"),
    "MiniMaxM3Nvfp4IndexKPoolHost": ("layer_num", "target_layer_num", "start_layer", "end_layer"),
    "DeepSeekV4PagedHostPool": ("layer_num", "pool_name", "item_bytes", "slot_page_size"),
    "DeepSeekV4StateHostPool": ("layer_num", "pool_name"),
    "UnifiedPageEnvelopeHostPool": ("start_layer", "end_layer", "item_bytes"),
    "LogicalHostPool": (),
}


class UnusablePool(ValueError):
    """A host pool whose pages cannot be stored, and the reason."""


def page_id(key: str) -> bytes:
    """Return the 32 bytes of SGLang's hash; other texts are hashed."""
    try:
        raw = bytes.fromhex(key)
    except ValueError:
        raw = b""
    return raw if len(raw) == 32 and len(key) == 64 else hashlib.sha256(b"text\0" + key.encode()).digest()


def server_args() -> Any:
    """Return SGLang's arguments; raises ValueError if they are unknown."""
    try:
        from sglang.srt.runtime_context import get_server_args
        args = get_server_args()
    except Exception as e:
        raise ValueError(f"kvblk: SGLang's arguments can't be had, which name model and types in keys: {e!r}") from e
    if args is None:
        raise ValueError("kvblk: SGLang's arguments, which name model and types in keys, are not there in this process")
    return args


class Origin:
    """Common properties of all host pools of an engine: the model, and this process's rank."""

    def __init__(self, config: Any, model: str, salt: str, secret: str = ""):
        args = server_args()
        self.config = config
        self.salt = salt
        self.secret = secret
        self.tokenizer = str(_known(args, "tokenizer_path") or "")
        self.model = {
            # the served name does not identify the weights
            "model": [model] if model else [_known(config, "model_name"), *_fields(args, "model_path", "revision")],
            "quantization": _fields(args, "quantization", "quantization_param_path", "json_model_override_args"),
            # RoPE may depend on the context length
            "length": _known(args, "context_length"),
            "random": _known(args, "load_format") == "dummy",
        }
        if not any(self.model["model"]):
            raise ValueError("kvblk: SGLang names no model: set the option 'model'")
        self.draft = _fields(args, "speculative_algorithm", "speculative_draft_model_path",
                             "speculative_draft_model_revision", "speculative_draft_model_quantization")
        # the host stores an fp8 pool as uint8, whatever its element type
        self.numbers = _fields(args, "kv_cache_dtype", "speculative_draft_kv_cache_dtype", "dtype")

    def space(self, name: str, host_pool: Any, form: Any) -> kvblk.Keyspace:
        """Make the key space of a host pool's pages. ``form`` describes how they are stored."""
        config = self.config
        dtype = str(_known(host_pool, "dtype"))
        model: dict[str, Any] = dict(self.model)
        layers = getattr(host_pool, "layer_num", 0)
        # pages of the target model may include layers of a draft model
        if name.startswith("draft") or getattr(host_pool, "target_layer_num", layers) != layers:
            model["draft"] = self.draft
        alone = is_replicated(name, host_pool, config.is_mla_model)
        return kvblk.Keyspace(
            runtime=RUNTIME,
            model=_text(model),
            dtype=_text([dtype, self.numbers if _known(host_pool.dtype, "itemsize") == 1 else None]),
            layout=_text([name, type(host_pool).__name__, form, _shape(host_pool), _fields(config, "dcp_size", "dcp_rank")]),
            block_tokens=page_tokens(host_pool),
            tokenizer=self.tokenizer,
            salt=self.salt,
            secret=self.secret,
            tp_rank=0 if alone else _known(config, "tp_rank"),
            tp_size=1 if alone else _known(config, "tp_size"),
            pp_rank=_known(config, "pp_rank"),
            pp_size=_known(config, "pp_size"),
            cp_rank=_known(config, "attn_cp_rank"),
            cp_size=_known(config, "attn_cp_size"),
        )


_ABSENT = object()


def _known(of: Any, name: str) -> Any:
    """Return an attribute for the key; raises ValueError if there is no such attribute."""
    value = getattr(of, name, _ABSENT)
    if value is _ABSENT:
        raise UnusablePool(f"kvblk: SGLang's {type(of).__name__} has no {name}, which has to be in the keys: this version of "
                           "SGLang is not supported")
    return value


def _fields(of: Any, *names: str) -> list[Any]:
    return [_known(of, name) for name in names]


def _shape(host_pool: Any) -> dict[str, Any]:
    """Describe the arrangement of a host pool's pages; raises ValueError if it is unknown."""
    classes = [cls.__name__ for cls in type(host_pool).__mro__]
    known = [name for name in classes if name in _NEEDED]
    if not known:
        raise UnusablePool(f"kvblk: how the pages of a host pool of the class {classes[0]} are arranged is not known here")
    for name in {"layout", *(part for cls in known for part in _NEEDED[cls])}:
        _known(host_pool, name)
    return {name: getattr(host_pool, name) for name in _SHAPE if hasattr(host_pool, name)}


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def page_tokens(host_pool: Any) -> int:
    """Return the number of entries of host_indices per page."""
    return int(getattr(host_pool, "logical_page_size", None) or host_pool.page_size or 1)


def is_replicated(name: str, host_pool: Any, is_mla_model: bool) -> bool:
    """Return True if all tensor-parallel ranks hold the same pages, of which rank 0 stores one copy."""
    if not is_mla_model or name == "mamba":
        return False
    # pools of full heads (such as a draft model's) are sharded in an MLA model, too; an indexer's keys are not
    return "indexer" in name or not any("MHA" in cls.__name__ for cls in type(host_pool).__mro__)


def memory_of(host_pool: Any) -> list[tuple[int, int]]:
    """Return (address, length) of a host pool's memory, each allocation once."""
    tensors: list[Any] = []
    for source in (getattr(host_pool, "kv_buffer", None), _hybrid_buffers(host_pool)):
        tensors.extend(source if isinstance(source, (list, tuple)) else (source,))
    found = {}
    for tensor in tensors:
        if tensor is None or tensor.device.type != "cpu" or not tensor.numel():
            continue
        storage = tensor.untyped_storage()
        found[storage.data_ptr()] = storage.nbytes()
    return sorted(found.items())


def _hybrid_buffers(host_pool: Any) -> Any:
    try:
        return host_pool.get_hybrid_pool_buffer()
    except (AttributeError, NotImplementedError):
        return None


class Pages:
    """Pages of one host pool."""

    def __init__(self, name: str, host_pool: Any, origin: Origin, flat: bool = False):
        self.name = name
        self.host_pool = host_pool
        self.tokens = page_tokens(host_pool)
        if flat:
            self.sizes: list[int] = []
            self.nbytes = 0
        else:
            self.sizes = self._sizes()
            self.nbytes = sum(self.sizes)
        self.space = origin.space(name, host_pool, "flat" if flat else self.sizes)

    def _sizes(self) -> list[int]:
        import torch
        try:
            meta = self.host_pool.get_page_buffer_meta(torch.arange(self.tokens, dtype=torch.int64))
        except Exception as e:
            raise UnusablePool(f"kvblk: SGLang gives no addresses of the pages of host pool {self.name!r} "
                               f"({type(self.host_pool).__name__}, layout "
                               f"{getattr(self.host_pool, 'layout', None)}): {e}") from e
        sizes = [int(size) for size in meta[1]] if meta else []
        if not sizes or min(sizes) <= 0 or len(sizes) > 1024:
            raise UnusablePool(f"kvblk: a page of host pool {self.name!r} ({type(self.host_pool).__name__}) has "
                               f"{len(sizes)} segments; kvblk takes 1 to 1024 that are not empty")
        return sizes

    def keys(self, hashes: Sequence[str]) -> list[bytes]:
        """Return the keys of pages from SGLang's hashes."""
        return self.space.keys(map(page_id, hashes))

    def pieces(self, host_indices: Any, count: int) -> list[list[tuple[int, int]]]:
        """Return scatter lists of (address, length) for ``count`` pages."""
        if host_indices is None or host_indices.numel() != count * self.tokens:
            raise ValueError(f"host pool {self.name!r}: {count} pages of {self.tokens} tokens, and indices of "
                             f"{0 if host_indices is None else host_indices.numel()} tokens")
        addresses, sizes = self.host_pool.get_page_buffer_meta(host_indices)
        per_page = len(self.sizes)
        if len(addresses) != count * per_page or list(sizes) != self.sizes * count:
            raise ValueError(f"host pool {self.name!r}: its pages had segments of {self.sizes} bytes, now there are "
                             f"{len(addresses)} segments for {count} pages")
        pairs = list(zip(addresses, sizes))
        return [pairs[at:at + per_page] for at in range(0, len(pairs), per_page)]
