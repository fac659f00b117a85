# SPDX-License-Identifier: MIT
"""An L2 adapter of LMCache's multi-process server, of type "plugin".

LMCache gives such an adapter more information than a "native_plugin": the address of its memory, which is registered
once; the form of its objects, which goes into their keys; abandoned lookups, whose leases end then.

LMCache keeps account of the keys that the adapter reports as stored. The adapter therefore reports the keys that the
pool has, independent of the rest of their batch. It reports a key as deleted if a lookup finds it missing. If the
reported keys exceed the pool's capacity, it reports the least recently used ones as deleted, because looking them up
would mark them as used.
"""

from __future__ import annotations

import collections
import hashlib
import re
import select
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import kvblk
from kvblk.results import OP_GET, OP_PUT
from lmcache.lmcache_native import Bitmap
from lmcache.v1.distributed.internal_api import L2StoreResult
from lmcache.v1.distributed.l2_adapters.base import L2AdapterInterface
from lmcache.v1.platform import create_event_notifier

from .client import Client, Completion
from .options import Options
from .store import log

#: most keys to remember as reported to LMCache
TOLD_MAX = 1 << 18
#: form of the output of any serde
_SERDE = re.compile(r"\(\d+,\) torch\.uint8")


def layout_tag(obj: Any) -> int:
    """Return a number that identifies the format of an object's bytes."""
    text = f"{form_of(obj.meta.shapes or [obj.meta.shape], obj.meta.dtypes or [obj.meta.dtype])} {obj.meta.fmt}"
    # 0 means no tag
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") or 1


def form_of(shapes: Sequence[Any], dtypes: Sequence[Any]) -> str:
    """Return the shapes and types of an object's tensors as text."""
    return " ".join(f"{tuple(shape)} {dtype}" for shape, dtype in zip(shapes, dtypes))


def bytes_of(shapes: Sequence[Any], dtypes: Sequence[Any]) -> int:
    return sum(shape.numel() * dtype.itemsize for shape, dtype in zip(shapes, dtypes))


class _Client(Client):
    """A client that knows the form of each buffer, and so needs no option ``layout``."""

    def __init__(self, params: dict[str, Any]):
        self._open(Options.read(params, "adapter_params"))


class _Forms:
    """Form and length of objects, by model, rank and group.

    LMCache passes the layout of its own memory with a lookup. With a serde, stored objects have another form, which
    only the objects themselves show. So the form of an object is remembered for the form of the last lookup. The output
    of a serde may be shorter than its form, so its length is 0: unknown.
    """

    def __init__(self) -> None:
        self._asked: dict[Any, tuple[str, int]] = {}
        self._seen: dict[Any, tuple[str, int]] = {}

    def asked(self, key: Any, layouts: dict[int, Any]) -> tuple[str, int]:
        """Return form and length for a lookup with these layouts."""
        layout = layouts.get(key.object_group_id)
        if layout is not None:
            self._asked[self._place(key)] = (form_of(layout.shapes, layout.dtypes), bytes_of(layout.shapes, layout.dtypes))
        return self.last(key)

    def last(self, key: Any) -> tuple[str, int]:
        place = self._place(key)
        asked = self._asked.get(place, ("", 0))
        return self._seen.get((place, asked), asked)

    def seen(self, key: Any, obj: Any) -> str:
        """Record and return the form of an object of a store or load."""
        shapes, dtypes = obj.meta.shapes or [obj.meta.shape], obj.meta.dtypes or [obj.meta.dtype]
        form = form_of(shapes, dtypes)
        place = self._place(key)
        self._seen[place, self._asked.get(place, ("", 0))] = form, 0 if self.varies(key, form) else obj.get_size()
        return form

    def varies(self, key: Any, form: str) -> bool:
        """Return True if objects of this form may be shorter than it: outputs of a serde, not LMCache's own layout."""
        return _SERDE.fullmatch(form) is not None and form != self._asked.get(self._place(key), ("", 0))[0]

    @staticmethod
    def _place(key: Any) -> tuple[Any, ...]:
        return key.model_name, key.kv_rank, key.object_group_id


class Adapter(L2AdapterInterface):
    """The adapter; README.md lists its ``adapter_params``."""

    def __init__(self, params: dict[str, Any], l1_memory_desc: Any = None):
        super().__init__()
        self._client = _Client(params)
        if l1_memory_desc is not None:
            # if LMCache allocates memory on demand, only the present part
            length = l1_memory_desc.stable_registration_size or l1_memory_desc.size
            self._client.store.register(l1_memory_desc.ptr, length)
        self._forms = _Forms()
        self._stored, self._found, self._loaded = (create_event_notifier() for _ in range(3))
        #: protects the fields below; held from a submission until the task is recorded
        self._lock = threading.Lock()
        #: tasks in flight, by number (the client's and LMCache's): opcode, keys, blocks, lengths
        self._tasks: dict[int, tuple[int, list[Any], list[bytes | None], list[int]]] = {}
        self._store_results: dict[int, L2StoreResult] = {}
        self._lookup_results: dict[int, Bitmap] = {}
        self._load_results: dict[int, Bitmap] = {}
        #: keys reported to LMCache as stored, and bytes of their blocks; least recently used first
        self._told: collections.OrderedDict[bytes, tuple[Any, int]] = collections.OrderedDict()
        self._told_bytes = 0
        self._capacity = self._client.store.pool.get_info().capacity
        self._closed = False
        self._thread = threading.Thread(target=self._collect, name="kvblk-l2", daemon=True)
        self._thread.start()

    # Stores

    def get_store_event_fd(self) -> int:
        return self._stored.fileno()  # type: ignore[no-any-return]

    def submit_store_task(self, keys: list[Any], objects: list[Any]) -> int:
        return self._submit(OP_PUT, keys, objects)

    def pop_completed_store_tasks(self) -> dict[int, L2StoreResult]:
        with self._lock:
            results, self._store_results = self._store_results, {}
        return results

    # Lookups

    def get_lookup_and_lock_event_fd(self) -> int:
        return self._found.fileno()  # type: ignore[no-any-return]

    def submit_lookup_and_lock_task(self, keys: list[Any], group_layout_descs: dict[int, Any]) -> int:
        asked = [self._forms.asked(key, group_layout_descs) for key in keys]
        blocks = [self._client.known(self._client.keys.of_object, key, form) for key, (form, _) in zip(keys, asked)]
        found = self._client.look_up(blocks, [length for _, length in asked])
        self._used(block for block, there in zip(blocks, found) if there)
        self._forget(block for block, there in zip(blocks, found) if not there)
        number = self._client.number()
        self._result(self._lookup_results, number, _bitmap(found), self._found)
        return number

    def query_lookup_and_lock_result(self, task_id: int) -> Bitmap | None:
        with self._lock:
            return self._lookup_results.pop(task_id, None)

    def submit_unlock(self, keys: list[Any]) -> None:
        self._client.store.leases.drop([block for block in self._blocks(keys) if block is not None])

    # Loads

    def get_load_event_fd(self) -> int:
        return self._loaded.fileno()  # type: ignore[no-any-return]

    def submit_load_task(self, keys: list[Any], objects: list[Any]) -> int:
        return self._submit(OP_GET, keys, objects)

    def query_load_result(self, task_id: int) -> Bitmap | None:
        with self._lock:
            return self._load_results.pop(task_id, None)

    # Deletes

    def delete(self, keys: list[Any]) -> None:
        store = self._client.store
        blocks = [block for block in self._blocks(keys) if block is not None]
        try:
            results = store.pool.delete_many(blocks)
        except (kvblk.KvblkError, ValueError) as e:
            store.report.trouble("delete_errors", "blocks were not deleted", e, len(blocks))
            return
        store.report.deleted(results)
        self._forget(block for block, result in zip(blocks, results) if not isinstance(result, kvblk.KvblkError))

    # The rest

    def report_status(self) -> dict[str, Any]:
        return {"is_healthy": self._thread.is_alive() and not self._closed, "type": "kvblk",
                "pool": self._client.store.options.pool, "counts": self._client.store.report.counts(),
                "keys_told": len(self._told)}

    def close(self) -> None:
        """Cancel all operations, and wait until the kernel no longer uses LMCache's memory."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._client.wake()
        self._thread.join()
        self._client.close()
        for event in (self._stored, self._found, self._loaded):
            event.close()

    # Tasks

    def _blocks(self, keys: Sequence[Any]) -> list[bytes | None]:
        """Return kvblk's keys of objects in their last known form; None for an invalid key."""
        return [self._client.known(self._client.keys.of_object, key, self._forms.last(key)[0]) for key in keys]

    def _submit(self, opcode: int, keys: list[Any], objects: list[Any]) -> int:
        forms = [self._forms.seen(key, obj) for key, obj in zip(keys, objects)]
        blocks = [self._client.known(self._client.keys.of_object, key, form) for key, form in zip(keys, forms)]
        bufs = [obj.byte_array for obj in objects]
        with self._lock:
            number = self._client.submit(opcode, blocks, bufs, [*map(layout_tag, objects)],
                                         [obj if self._forms.varies(key, form) else None
                                          for key, form, obj in zip(keys, forms, objects)])
            self._tasks[number] = opcode, list(keys), blocks, [*map(len, bufs)]
        return number

    def _collect(self) -> None:
        """Report completed tasks to LMCache until the adapter is closed."""
        poll = select.poll()
        poll.register(self._client.event_fd(), select.POLLIN)
        while not self._closed:
            poll.poll()
            for completion in self._client.drain_completions():
                self._take(completion)

    def _take(self, completion: Completion) -> None:
        number, good, _, results = completion
        with self._lock:
            opcode, keys, blocks, lengths = self._tasks.pop(number)
        if opcode == OP_GET:
            self._tell(self._notify_keys_accessed, [key for key, there in zip(keys, results) if there])
            self._result(self._load_results, number, _bitmap(results), self._loaded)
            return
        there = {block: (key, length) for block, key, length, ok in zip(blocks, keys, lengths, results) if ok and block}
        with self._lock:
            # 0 for known keys: LMCache counts only new bytes
            new = [0 if block in self._told else length for block, (_, length) in there.items()]
        if there:
            # report first, or else another thread that finds a key missing could report the deletion earlier
            self._tell(self._notify_keys_stored, [key for key, _ in there.values()], new)
        with self._lock:
            for block, about in there.items():
                self._told_bytes += about[1] if block not in self._told else 0
                self._told.setdefault(block, about)
                self._told.move_to_end(block)
        self._forget_oldest()
        # a declined key fails the task, because after a success LMCache may drop the copies of all keys
        self._result(self._store_results, number, L2StoreResult(good, sum(new)), self._stored)

    @staticmethod
    def _tell(notify: Callable[..., None], *about: Any) -> None:
        """Call LMCache's listeners. An exception must not end the thread that completes all tasks."""
        try:
            notify(*about)
        except Exception:
            log.exception("kvblk: a listener of LMCache failed")

    def _result(self, results: dict[int, Any], number: int, result: Any, event: Any) -> None:
        """Publish a task's result to LMCache."""
        with self._lock:
            results[number] = result
            if not self._closed:
                event.notify()

    # Blocks dropped by the pool

    def _used(self, blocks: Iterable[bytes | None]) -> None:
        with self._lock:
            for block in blocks:
                if block and block in self._told:
                    self._told.move_to_end(block)

    def _forget(self, blocks: Iterable[bytes | None]) -> None:
        """Report missing keys as deleted, if they were reported as stored."""
        with self._lock:
            gone = [self._told.pop(block) for block in blocks if block and block in self._told]
            self._told_bytes -= sum(length for _, length in gone)
        if gone:
            self._tell(self._notify_keys_deleted, [key for key, _ in gone], [length for _, length in gone])

    def _forget_oldest(self) -> None:
        """Report the least recently used keys as deleted until the rest fits into the pool."""
        with self._lock:
            oldest = []
            more = self._told_bytes - self._capacity
            for number, (block, (_, length)) in enumerate(self._told.items()):
                if number >= len(self._told) - TOLD_MAX and more <= 0:
                    break
                oldest.append(block)
                more -= length
        self._forget(oldest)


def _bitmap(bits: Sequence[bool]) -> Bitmap:
    bitmap = Bitmap(len(bits))
    for i, bit in enumerate(bits):
        if bit:
            bitmap.set(i)
    return bitmap
