# SPDX-License-Identifier: MIT
"""Convert keys of LMCache's multi-process server to keys of kvblk.

The id is the chunk hash, which covers all tokens up to the chunk's end. The key space has the rest. kv_rank packs sizes
and ranks of the parallel layout, and is used unchanged. A native_plugin gets LMCache's keys as text:
`<model>@<kv_rank>@<object group>@<chunk hash>[@<cache salt>]`.
"""

from __future__ import annotations

import functools
import json
from typing import Any

import kvblk


class ObjectKeys:
    """Make keys. ``runtime``, ``layout`` and the ``form`` of an object, if LMCache passes it, describe the format of
    the bytes, which LMCache's keys lack."""

    def __init__(self, *, runtime: str, layout: str, salt: str, secret: str = ""):
        self._runtime = runtime
        self._layout = layout
        self._salt = salt
        self._secret = secret
        # a key space for each user with a separate salt
        self._space = functools.lru_cache(4096)(self._new_space)

    def _new_space(self, model: str, kv_rank: str, group: str, cache_salt: str, form: str) -> kvblk.Keyspace:
        return kvblk.Keyspace(runtime=self._runtime, model=model, dtype=self._layout or "as the layout tells",
                              layout=f"kv_rank {kv_rank}, group {group}{form and ', '}{form}", block_tokens=1,
                              salt=json.dumps([self._salt, cache_salt]), secret=self._secret)

    def key(self, text: str) -> bytes:
        """Return the key; raises ValueError if the text is not a key of LMCache."""
        model, kv_rank, group, rest = text.split("@", 3)
        chunk_hash, _, cache_salt = rest.partition("@")
        return self._key(bytes.fromhex(chunk_hash), model, kv_rank, group, cache_salt, "")

    def of_object(self, key: Any, form: str) -> bytes:
        """Return the key of an object from LMCache's ObjectKey; raises ValueError if that is not possible."""
        return self._key(key.chunk_hash, key.model_name, f"{key.kv_rank:08x}", f"{key.object_group_id:x}", key.cache_salt,
                         form)

    def _key(self, block: bytes, *space: str) -> bytes:
        if not 1 <= len(block) <= 64:
            raise ValueError(f"a chunk hash of {len(block)} bytes")
        try:
            return self._space(*space).key(block)
        except kvblk.KvblkError as e:
            raise ValueError(e.strerror) from e
