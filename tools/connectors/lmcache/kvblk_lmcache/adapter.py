# SPDX-License-Identifier: MIT
"""An L2 adapter of LMCache's multi-process server, of type "plugin".

LMCache tells such an adapter more than a "native_plugin": where its memory is, which is registered once; what its
objects look like, so that those with another dtype or shape are misses; which lookups were given up, whose leases end
then. For the rest it is LMCache's own adapter of native connectors over :class:`Client`.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from lmcache.v1.distributed.l2_adapters.native_connector_l2_adapter import (
    NativeConnectorL2Adapter,
    _object_key_to_string,
)

from .client import Client
from .options import Options


def layout_tag(obj: Any) -> int:
    """A number for how the bytes of an object of LMCache are to be read."""
    meta = obj.meta
    shapes = [tuple(shape) for shape in meta.shapes or (meta.shape,)]
    text = f"{shapes} {meta.dtypes or (meta.dtype,)} {meta.fmt}"
    # 0 is for none
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") or 1


class TaggedClient(Client):
    """A client that is told what the buffers hold, and which keys nobody waits for."""

    def __init__(self, **params: Any):
        self._local = threading.local()
        self._open(Options.read(params, "adapter_params"), "lmcache-l2-tagged")

    @contextlib.contextmanager
    def objects(self, objects: Sequence[Any]) -> Iterator[None]:
        """For what this thread submits meanwhile: LMCache's own adapter hands on the bytes only."""
        self._local.tags = [layout_tag(obj) for obj in objects]
        try:
            yield
        finally:
            self._local.tags = None

    def _tags(self, count: int) -> Sequence[int | None]:
        return getattr(self._local, "tags", None) or super()._tags(count)

    def give_up(self, keys: Sequence[str]) -> None:
        self.store.leases.give_up(self._known(keys)[1])


class Adapter(NativeConnectorL2Adapter):
    """``adapter_params`` are the options of README.md."""

    def __init__(self, params: dict[str, Any], l1_memory_desc: Any = None):
        self._kvblk = TaggedClient(**params)
        if l1_memory_desc is not None:
            # of memory that LMCache allocates as it goes, what there is now
            length = l1_memory_desc.stable_registration_size or l1_memory_desc.size
            self._kvblk.store.register(l1_memory_desc.ptr, length)
        super().__init__(self._kvblk, type_name="kvblk")

    def submit_store_task(self, keys: list[Any], objects: list[Any]) -> int:
        with self._kvblk.objects(objects):
            return super().submit_store_task(keys, objects)  # type: ignore[no-any-return]

    def submit_load_task(self, keys: list[Any], objects: list[Any]) -> int:
        with self._kvblk.objects(objects):
            return super().submit_load_task(keys, objects)  # type: ignore[no-any-return]

    def submit_unlock(self, keys: list[Any]) -> None:
        super().submit_unlock(keys)
        self._kvblk.give_up([_object_key_to_string(key) for key in keys])

    def report_status(self) -> dict[str, Any]:
        """LMCache's, with the pool's name and what was counted."""
        return {**super().report_status(), "pool": self._kvblk.store.options.pool,
                "counts": self._kvblk.store.report.counts()}
