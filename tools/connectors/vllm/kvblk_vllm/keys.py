# SPDX-License-Identifier: MIT
"""Keys: a key space for each rank, followed by vLLM's own hash of the block.

vLLM's hash identifies the block's tokens and all before them, and further inputs that vLLM knows: LoRA, images,
cache_salt. The key space identifies the rest: model, type, layout, ranks.

Engines whose blocks have equal bytes have equal key spaces, whatever their processes are called. Anything that changes
the bytes is part of the key space, or is rejected at startup.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence

from kvblk import Keyspace
from vllm.config import ModelConfig, VllmConfig
from vllm.config.utils import normalize_value
from vllm.platforms import current_platform

from .options import SERIES, Options

#: version of the adapter's format; change it when blocks or ids change but the layout's text does not
RUNTIME = f"vllm/{SERIES}/2"


def _weights(model: ModelConfig) -> list[str | None]:
    # a branch moves; vLLM keeps the commit that it stood for at startup
    revision = getattr(model.revision, "resolved", model.revision)
    return [model.model_weights or model.model, revision, model.code_revision, model.hf_config_path]


def model_of(config: VllmConfig, options: Options) -> str:
    """Describe everything that the bytes of a block depend on besides tokens, layout and rank. Raises ValueError if
    that is not possible.

    This is the weights and how they are used; the option ``model`` replaces names and revisions of the weights. vLLM's
    compute_hash() is not used: it leaves hf_overrides out, and includes settings that some models change when they
    load, in the workers only.
    """
    model, cache, parallel, attention = (config.model_config, config.cache_config, config.parallel_config,
                                         config.attention_config)
    draft = config.speculative_config.draft_model_config if config.speculative_config else None
    images = model.multimodal_config
    overrides = model.hf_overrides
    if callable(overrides):
        if not options.model:
            raise ValueError("kvblk: vLLM's hf_overrides is a function, which can't be in keys: set the option model to a "
                             "name that stands for weights and overrides")
        overrides = {}
    interleave = parallel.cp_kv_cache_interleave_size
    # workers replace the new setting by the old one, but the scheduler does not
    if parallel.decode_context_parallel_size > 1 and parallel.dcp_kv_cache_interleave_size > 1:
        interleave = parallel.dcp_kv_cache_interleave_size
    return json.dumps(normalize_value({
        "weights": options.model or [_weights(model), draft and _weights(draft)],
        "random": config.load_config.load_format == "dummy",
        "quantization": [model.quantization, model.quantization_config],
        "overrides": [overrides, model.model_class_overrides, model.model_impl, model.disable_sliding_window],
        "images": images and [images.mm_processor_kwargs, images.media_io_kwargs, images.video_pruning_rate,
                              images.video_pruning_method, images.mm_encoder_attn_dtype],
        # changes RoPE of some models and attention of others; a length that vLLM chooses is set after these are made
        "length": -1 if model.original_max_model_len == -1 else model.max_model_len,
        "draft": draft and [config.speculative_config.method, draft.quantization, draft.dtype,
                            config.speculative_config.kv_cache_dtype],
        "types": [model.dtype, cache.kv_cache_dtype_skip_layers, cache.mamba_cache_dtype, cache.mamba_ssm_cache_dtype,
                  attention.indexer_kv_dtype],
        # a CPU arranges blocks differently from a GPU in the same layout
        "kernels": [current_platform.device_type, attention.backend, attention.backend_per_kind],
        "interleave": interleave,
    }))


@dataclasses.dataclass(frozen=True)
class Ranks:
    """Distribution of a model over workers. vLLM numbers them by pipeline stage, then prefill context, then tensor
    rank."""

    tp: int = 1
    pp: int = 1
    pcp: int = 1
    dcp: int = 1

    @property
    def number(self) -> int:
        return self.tp * self.pp * self.pcp

    def of(self, rank: int) -> dict[str, int]:
        """Return a rank's arguments of Keyspace. Decode context ranks share the tensor ranks, so tp_rank covers both."""
        return {"tp_rank": rank % self.tp, "tp_size": self.tp, "cp_rank": rank // self.tp % self.pcp,
                "cp_size": self.pcp, "pp_rank": rank // (self.tp * self.pcp), "pp_size": self.pp}


class BlockKeys:
    """Keys of the blocks of one engine: all ranks' for the scheduler, one rank's for a worker.

    A block is one value for each rank and part; it is present if all its values are.
    """

    def __init__(self, *, way: str, model: str, dtype: str, layout: str, block_tokens: int, ranks: Ranks,
                 same: bool = False, parts: int = 1, salt: str = "", secret: str = "", tokenizer: str = "",
                 lengths: Sequence[int] = ()):
        """``same``: all ranks hold equal bytes, as with MLA. ``parts``: values per block and rank. ``lengths``: their
        lengths, if known."""
        self.ranks = Ranks() if same else ranks
        text = f"{way} {layout} dcp={ranks.dcp}"
        self._spaces = [
            Keyspace(runtime=RUNTIME, model=model, dtype=dtype, layout=text, block_tokens=block_tokens, salt=salt,
                     secret=secret, tokenizer=tokenizer, **self.ranks.of(rank)) for rank in range(self.ranks.number)
        ]
        self.parts = parts
        self._tails = [part.to_bytes(2, "big") for part in range(parts)] if parts > 1 else [b""]
        self._heads = [(space.prefix, tail) for space in self._spaces for tail in self._tails]
        #: number of values of a block
        self.values = len(self._heads)
        #: lengths of these values; 0: unknown
        self.lengths = [*(lengths or [0] * parts)] * len(self._spaces)

    def all(self, blocks: Iterable[bytes]) -> list[bytes]:
        """Return the keys of blocks, with the keys of a block next to each other."""
        heads = self._heads
        if len(heads) == 1:
            prefix, tail = heads[0]
            return [prefix + block + tail for block in blocks]
        return [prefix + block + tail for block in blocks for prefix, tail in heads]

    def of_rank(self, rank: int, blocks: Sequence[bytes], part: int = 0) -> list[bytes]:
        """Return the keys of one rank's values of a part."""
        prefix = self._spaces[rank if len(self._spaces) > 1 else 0].prefix
        tail = self._tails[part]
        return [prefix + block + tail for block in blocks]


def chains(blocks: Sequence[bytes], parents: Sequence[bytes | None], most: int) -> list[tuple[int, int]]:
    """Split a list of blocks into runs (start, end) of consecutive blocks of a prompt, of at most ``most`` blocks."""
    runs = []
    start = 0
    for i in range(1, len(blocks) + 1):
        if i == len(blocks) or parents[i] is None or parents[i] != blocks[i - 1] or i - start == most:
            runs.append((start, i))
            start = i
    return runs
