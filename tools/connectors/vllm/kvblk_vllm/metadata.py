# SPDX-License-Identifier: MIT
"""Options, layout of the values and messages that KvblkConnector's scheduler and workers share."""

from __future__ import annotations

import dataclasses
import re
from typing import ClassVar

from vllm.config import VllmConfig
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorMetadata, KVConnectorWorkerMetadata
from vllm.distributed.kv_transfer.kv_connector.v1.metrics import KVConnectorStats
from vllm.v1.core.kv_cache_utils import resolve_kv_cache_block_sizes
from vllm.v1.kv_cache_interface import (FullAttentionSpec, KVCacheConfig, MLAAttentionSpec, UniformTypeKVCacheSpecs,
                                        get_kv_cache_spec_kind)

from .keys import BlockKeys, Ranks, model_of
from .options import Options

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
    #: finished requests whose blocks are kept until the workers report the end of the stores
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
        # with a single group, equal to the block size of vLLM's hashes
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
            secret=options.secret(), tokenizer=options.tokenizer, lengths=[len(names) * self.page for names in self.parts])
        self.world = parallel.world_size
        #: number of stores of a list of blocks, over all ranks
        self.stores = self.keys.values


def layer_order(name: str) -> list[tuple[int, str]]:
    """Sort key that orders layer names by their numbers."""
    return [(int(text), "") if text.isdigit() else (-1, text) for text in re.split(r"(\d+)", name)]
