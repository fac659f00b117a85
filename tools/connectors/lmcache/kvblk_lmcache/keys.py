# SPDX-License-Identifier: MIT
"""Keys of LMCache's multi-process server as keys of kvblk.

The chunk hash, over all tokens up to the chunk's end, is the id; all the rest goes into the key space. kv_rank packs
sizes and ranks of the parallel layout, and goes there as it is. To a native_plugin LMCache's keys are texts,
`<model>@<kv_rank>@<object group>@<chunk hash>[@<cache salt>]`.
"""

from __future__ import annotations

import functools
import json
from typing import Any

import kvblk


class ObjectKeys:
    """Makes keys. ``runtime`` and ``layout`` tell what LMCache's keys do not: how the bytes are to be read. So does the
    ``form`` of an object, where LMCache tells it."""

    def __init__(self, *, runtime: str, layout: str, salt: str):
        self._runtime = runtime
        self._layout = layout
        self._salt = salt
        # as many as there are users with a salt of their own
        self._space = functools.lru_cache(4096)(self._new_space)

    def _new_space(self, model: str, kv_rank: str, group: str, cache_salt: str, form: str) -> kvblk.Keyspace:
        return kvblk.Keyspace(runtime=self._runtime, model=model, dtype=self._layout or "as the layout tells",
                              layout=f"kv_rank {kv_rank}, group {group}{form and ', '}{form}", block_tokens=1,
                              salt=json.dumps([self._salt, cache_salt]))

    def key(self, text: str) -> bytes:
        """The key; ValueError: the text is none of LMCache's keys."""
        model, kv_rank, group, rest = text.split("@", 3)
        chunk_hash, _, cache_salt = rest.partition("@")
        return self._key(bytes.fromhex(chunk_hash), model, kv_rank, group, cache_salt, "")

    def of_object(self, key: Any, form: str) -> bytes:
        """The key of an object with one of LMCache's ObjectKeys; ValueError: it can't have one."""
        return self._key(key.chunk_hash, key.model_name, f"{key.kv_rank:08x}", f"{key.object_group_id:x}", key.cache_salt,
                         form)

    def _key(self, block: bytes, *space: str) -> bytes:
        if not 1 <= len(block) <= 64:
            raise ValueError(f"a chunk hash of {len(block)} bytes")
        try:
            return self._space(*space).key(block)
        except kvblk.KvblkError as e:
            raise ValueError(e.strerror) from e
