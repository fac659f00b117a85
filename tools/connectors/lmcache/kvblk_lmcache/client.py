# SPDX-License-Identifier: MIT
"""The client for LMCache's L2 adapter "native_plugin".

LMCache polls one descriptor and collects completions in one thread. Other threads submit while holding a lock. So no
call blocks or raises, and each batch has exactly one completion.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

import kvblk
from kvblk.results import OP_DELETE, OP_GET, OP_PUT

from .keys import ObjectKeys
from .options import Options
from .store import Store, runtime

Completion = tuple[int, bool, str, list[bool]]


class _Task:
    """A batch of LMCache, which several batches of kvblk run."""

    __slots__ = ("number", "opcode", "results", "left", "keys")

    def __init__(self, number: int, opcode: int, count: int):
        self.number = number
        self.opcode = opcode
        self.results = [False] * count
        self.left = 0
        self.keys: list[bytes] = []


class _Part:
    """The part of a task in one batch of kvblk."""

    __slots__ = ("task", "tag", "places", "keys", "bufs", "varying")

    def __init__(self, task: _Task, tag: int | None):
        self.task = task
        self.tag = tag
        self.places: list[int] = []
        self.keys: list[bytes] = []
        self.bufs: list[Any] = []
        self.varying: list[Any] = []


class Client:
    """A pool behind LMCache's interface of native connectors; README.md lists the options."""

    def __init__(self, **params: Any):
        options = Options.read(params, "adapter_params")
        if not options.layout:
            raise ValueError('kvblk: the option "layout" is missing: LMCache tells a native_plugin neither dtype nor '
                             'shape of its chunks, so name what tells them apart, such as "bfloat16"')
        self._open(options)

    def _open(self, options: Options) -> None:
        secret = options.secret()
        self.store = Store(options)
        try:
            self._queue = kvblk.Queue(self.store.pool, options.threads)
        except kvblk.KvblkError:
            self.store.close()
            raise
        self._fd = self._queue.fileno()
        self.keys = ObjectKeys(runtime=runtime("lmcache-l2"), layout=options.layout, salt=options.salt,
                               secret=secret)
        self._numbers = itertools.count(1)
        #: protects the fields below, and the descriptor against being closed
        self._lock = threading.Lock()
        self._over: list[Completion] = []
        self._closed = False

    # LMCache's interface

    def event_fd(self) -> int:
        """Return a descriptor that is readable when there are completions."""
        return self._fd

    def submit_batch_get(self, keys: Sequence[str], bufs: Sequence[Any]) -> int:
        return self.submit(OP_GET, self._known(keys), bufs)

    def submit_batch_set(self, keys: Sequence[str], bufs: Sequence[Any]) -> int:
        return self.submit(OP_PUT, self._known(keys), bufs)

    def submit_batch_delete(self, keys: Sequence[str]) -> int:
        return self.submit(OP_DELETE, self._known(keys), None)

    def submit_batch_exists(self, keys: Sequence[str]) -> int:
        """Look up keys synchronously, since that needs no I/O. Blocks found are leased until they are loaded."""
        task = _Task(self.number(), 0, len(keys))
        # LMCache passes no lengths
        task.results = self.look_up(self._known(keys), [0] * len(keys))
        self._finish(task, wake=True)
        return task.number

    def drain_completions(self) -> list[Completion]:
        """Return the completions since the last call: (number, success, error text, success of each key)."""
        for job in self._queue.completed():
            self._take(job, wake=False)
        with self._lock:
            over, self._over = self._over, []
        return over

    def close(self) -> None:
        """Cancel all operations, and wait until the kernel no longer uses their memory."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        for job in self._queue.close():
            self._take(job, wake=False)
        self.store.close()

    def wake(self) -> None:
        """Make the descriptor readable."""
        os.eventfd_write(self._fd, 1)  # type: ignore[attr-defined,unused-ignore]

    # Batches

    def _known(self, keys: Sequence[str]) -> list[bytes | None]:
        """Return kvblk's keys; None for an invalid key."""
        return [self.known(self.keys.key, text) for text in keys]

    def known(self, make: Callable[..., bytes], key: Any, *more: Any) -> bytes | None:
        """Convert one of LMCache's keys with ``make``; returns None for an invalid key."""
        try:
            return make(key, *more)
        except ValueError as e:
            self.store.report.trouble("keys_unknown", "a key is unknown", f"{key!r:.200}: {e}")
            return None

    def number(self) -> int:
        """Return a new task number."""
        return next(self._numbers)

    def look_up(self, keys: Sequence[bytes | None], lengths: Sequence[int]) -> list[bool]:
        """Look up keys without I/O; leases the blocks found until they are loaded."""
        found = [False] * len(keys)
        places = [place for place, key in enumerate(keys) if key is not None]
        if places and not self._closed:
            known = [key for key in keys if key is not None]
            for place, there in zip(places, self.store.present(known, [lengths[i] for i in places], lease=True)):
                found[place] = there
        return found

    def submit(self, opcode: int, keys: Sequence[bytes | None], bufs: Sequence[Any] | None,
               tags: Sequence[int] | None = None, varying: Sequence[Any] | None = None) -> int:
        """Start a batch, whose completion drain_completions() returns.

        ``tags``: layout tag of each buffer. ``varying``: LMCache's objects whose blocks may be shorter than their
        buffers, None for the others.
        """
        task = _Task(self.number(), opcode, len(keys))
        parts: list[_Part] = []
        for place, key in enumerate(keys):
            if key is None or bufs is not None and not self.store.fits(len(bufs[place])):
                continue
            tag = tags[place] if tags else None
            if not parts or parts[-1].tag != tag:
                parts.append(_Part(task, tag))
            part = parts[-1]
            part.places.append(place)
            part.keys.append(key)
            if bufs is not None:
                part.bufs.append(bufs[place])
                part.varying.append(varying[place] if varying else None)
        task.left = len(parts)
        if opcode == OP_GET:
            task.keys = [key for part in parts for key in part.keys]
        if not parts:
            self._finish(task, wake=True)
        for part in parts:
            try:
                self._start(opcode, part)
            except (kvblk.KvblkError, ValueError, TypeError, MemoryError) as e:
                self.store.report.trouble("batches_not_started", "a batch was not started", e, len(part.keys))
                self._finish(task, wake=True)
        return task.number

    def _start(self, opcode: int, part: _Part) -> None:
        options = self.store.options
        if opcode == OP_PUT:
            # no chain, because LMCache mixes prompts in a batch
            self._queue.put(part.keys, part.bufs, part, layout_tag=part.tag or 0, caller_tag=part.tag or 0,
                            **options.put_options())
        elif opcode == OP_GET:
            self._queue.get(part.keys, part.bufs, part, layout_tag=part.tag, timeout=options.timeout_s)
        else:
            self._queue.delete(part.keys, part)

    def _take(self, job: kvblk.Job, wake: bool) -> None:
        """Record the results of a completed batch of kvblk."""
        part: _Part = job.tag
        store = self.store
        task = part.task
        results = job.results or []
        hidden = [key for key, result in zip(part.keys, results) if result is None]
        if task.opcode == OP_DELETE:
            good = store.report.deleted(results)
        else:
            lengths = [*map(len, part.bufs)]
            results = [result if obj is None else _fitted(result, obj, length)
                       for result, obj, length in zip(results, part.varying, lengths)]
            good = (store.checked.stored(part.keys, results, lengths) if task.opcode == OP_PUT else
                    store.checked.loaded(part.keys, results, lengths))
        for place, went_well in zip(part.places, good):
            task.results[place] = went_well
        if hidden and part.tag is not None and not self._closed:
            # the miss may have another cause, such as a failed drive: check the tag
            wrong = store.of_another_tag(hidden, part.tag)
            if wrong:
                store.checked.refuse(wrong, "it has another layout than LMCache's chunks")
        self._finish(task, wake)

    def _finish(self, task: _Task, wake: bool) -> None:
        """Complete a task if none of its batches is in flight."""
        with self._lock:
            task.left -= 1
            if task.left > 0:
                return
            bad = task.results.count(False) if task.opcode else 0
            self._over.append((task.number, not bad, f"{bad} of {len(task.results)} keys failed" if bad else "",
                               task.results))
            if wake and not self._closed:
                self.wake()
        if task.keys:
            self.store.leases.end(task.keys)


def _fitted(result: Any, obj: Any, length: int) -> Any:
    """Convert the result of a put or get of an object whose block may be shorter than its buffer. Sets the object's
    length, or else a deserializer would read old bytes of the buffer."""
    if result is kvblk.Put.DIFFERS:
        return kvblk.Put.EXISTS
    if isinstance(result, int) and 0 < result < length:
        obj.set_used_size(result)
        return length
    return result
