# SPDX-License-Identifier: MIT
"""Background batches for asyncio, concurrent.futures and other event loops.

All classes use :class:`Queue`: threads of the library run batches without the GIL, and one descriptor is readable while
there are completed batches.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import errno
import functools
import itertools
import math
import os
import secrets
import select
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ._native import ffi, lib
from .buffers import Buffer
from .errors import KvblkError, check
from .memory import Memory
from .pool import Pool, deadline_of, get_options
from .process import OfProcess
from .results import OP_DELETE, OP_GET, OP_PREFETCH, OP_PUT, Batch, Lookup, Prestaged, Put, raised

#: Pool handle and batches of each queue. Module-level, because the garbage collector must not free a batch that a
#: thread of the library is using.
_running: dict[int, tuple[Any, dict[Any, Batch]]] = {}

#: cookies start at a random number, or else a cookie could equal the cookie of a caller of Pool.prestage()
_cookies = itertools.count(secrets.randbits(62) | 1)

_T = TypeVar("_T")


class Job:
    """A running or completed batch; ``results`` (one per key) is None until it completes. ``tag`` is for the caller."""

    __slots__ = ("batch", "tag", "results")

    def __init__(self, batch: Batch, tag: Any):
        self.batch = batch
        self.tag = tag
        self.results: list[Any] | None = None

    def finish(self) -> None:
        self.results = self.batch.results()


class Queue(OfProcess):
    """Run batches of a pool in up to ``threads`` threads of the library. Any thread may use it, but no child of fork().

    >>> with Pool(POOL) as pool, Queue(pool) as queue:
    ...     job = queue.put([b"in the background"], [b"x" * 4096])
    ...     while queue.wait(10) != [job]:
    ...         pass
    ...     job.results
    [<Put.STORED: 'stored'>]
    """

    def __init__(self, pool: Pool, threads: int = 8):
        super().__init__()
        if threads < 1:
            raise ValueError("a queue has 1 to 64 threads")
        out = ffi.new("struct kvpy_queue **")
        handle = pool.handle
        check(lib.kvpy_queue_create(handle, threads, out))
        self.pool = pool
        self._lock = threading.Condition()
        self._closing = threading.Lock()
        self._stopped = False
        self._jobs: dict[Any, Job] = {}
        self._batches: dict[Any, Batch] = {}
        #: batches that were taken, and are to be verified: they use their memory until then
        self._verifying: set[Batch] = set()
        _running[id(self)] = handle, self._batches
        # a duplicate, open while a thread waits, or else another file could reuse the descriptor's number
        self._waiting = 0
        self._draining = 0
        self._event = os.dup(lib.kvpy_queue_eventfd(out[0]))
        self._queue: Any = out[0]

    def fileno(self) -> int:
        """Return the descriptor; do not read or close it."""
        self.check_process()
        if self._queue is None:
            raise ValueError("the queue is closed")
        return self._event

    def submit(self, opcode: int, keys: Sequence[bytes], bufs: Sequence[Buffer] | None, tag: Any = None, *,
               op_flags: int = 0, priority: int = 0, ttl: float = 0, timeout: float | None = None, offset: int = 0,
               layout_tag: int = 0, caller_tag: int = 0, parent: bytes | None = None, chain: bool = False,
               continues: bool = False, missed: bool = False, durable: bool = False,
               gpu_checksums: bool = False) -> Job:
        """Start a batch; do not touch its buffers until it completes. Options as for Pool.batch().

        Raises KvblkError with ECANCELED while another thread closes the queue.
        """
        self.check_process()
        batch = self.pool.batch(opcode, keys, bufs, op_flags=op_flags, priority=priority, ttl=ttl, timeout=timeout,
                                offset=offset, layout_tag=layout_tag, caller_tag=caller_tag, parent=parent, chain=chain,
                                continues=continues, missed=missed, durable=durable, gpu_checksums=gpu_checksums)
        job = Job(batch, tag)
        with self._lock:
            if self._queue is None or self._stopped:
                batch.free()
                raise ValueError("the queue is closed") if self._queue is None else KvblkError(errno.ECANCELED)
            self._batches[batch.native] = batch
            self._jobs[batch.native] = job
            lib.kvpy_queue_start(self._queue, batch.native)
        return job

    def put(self, keys: Sequence[bytes], bufs: Sequence[Buffer], tag: Any = None, *, priority: int = 0, ttl: float = 0,
            timeout: float | None = None, layout_tag: int = 0, caller_tag: int = 0, chain: bool = False,
            parent: bytes | None = None, continues: bool = False, missed: bool = False, durable: bool = False,
            gpu_checksums: bool = False) -> Job:
        """Start puts; options as for Pool.put_many()."""
        return self.submit(OP_PUT, keys, bufs, tag, priority=priority, ttl=ttl, timeout=timeout, layout_tag=layout_tag,
                           caller_tag=caller_tag, chain=chain, parent=parent, continues=continues, missed=missed,
                           durable=durable, gpu_checksums=gpu_checksums)

    def get(self, keys: Sequence[bytes], bufs: Sequence[Buffer], tag: Any = None, *, offset: int | None = None,
            layout_tag: int | None = None, timeout: float | None = None, hard_deadline: bool = False,
            gpu_checksums: bool = False) -> Job:
        """Start gets; options as for Pool.get_many()."""
        return self.submit(OP_GET, keys, bufs, tag, gpu_checksums=gpu_checksums,
                           **get_options(offset, layout_tag, timeout, hard_deadline))

    def delete(self, keys: Sequence[bytes], tag: Any = None, *, timeout: float | None = None) -> Job:
        """Start deletes; options as for Pool.delete_many()."""
        return self.submit(OP_DELETE, keys, None, tag, timeout=timeout)

    def prefetch(self, keys: Sequence[bytes], tag: Any = None, *, timeout: float | None = None, priority: int = 0) -> Job:
        """Start prefetches; options as for Pool.prefetch_many()."""
        return self.submit(OP_PREFETCH, keys, None, tag, timeout=timeout, priority=priority)

    def cancel(self, job: Job) -> bool:
        """Cancel a job; returns True if one of its operations was found that can be canceled.

        Operations that are canceled have the result KvblkError(ECANCELED). The job completes when its memory is unused.
        """
        self.check_process()
        with self._lock:
            # a completed batch may have been freed
            if self._queue is None or job.batch.native is None or job.batch.native not in self._jobs:
                return False
            return bool(lib.kvpy_queue_cancel(self._queue, job.batch.native))

    def completed(self) -> list[Job]:
        """Return the jobs that completed since the last call."""
        self.check_process()
        with self._lock:
            jobs = [] if self._queue is None else self._taken()
        return self._finished(jobs)

    def _taken(self) -> list[Job]:
        """Called with the lock held. The jobs are still to be finished."""
        jobs = []
        while native := lib.kvpy_queue_take(self._queue):
            jobs.append(self._jobs.pop(native))
            batch = self._batches.pop(native)
            if batch.verifier is not None:
                self._verifying.add(batch)
        return jobs

    def _finished(self, jobs: list[Job]) -> list[Job]:
        for job in jobs:
            job.finish()
        if self._verifying:
            with self._lock:
                self._verifying.difference_update(job.batch for job in jobs)
        return jobs

    def wait(self, timeout: float | None = None) -> list[Job]:
        """Wait until a job completes or the queue is closed, then return as :meth:`completed`."""
        self.check_process()
        end = None if timeout is None else time.monotonic() + timeout
        with self._lock:
            if self._queue is None:
                return []
            self._waiting += 1
        try:
            poll = select.poll()
            poll.register(self._event, select.POLLIN)
            while not (jobs := self.completed()) and self._queue is not None:
                left = None if end is None else end - time.monotonic()
                if left is not None and left <= 0:
                    break
                poll.poll(None if left is None else math.ceil(left * 1000))
            return jobs
        finally:
            with self._lock:
                self._waiting -= 1
                self._let_go()

    def drain(self, timeout: float | None = None) -> None:
        """Wait until the memory of all jobs started before the call is unused; raises KvblkError with ETIME after
        ``timeout`` seconds. The jobs are still to be collected."""
        self.check_process()
        deadline = deadline_of(timeout)
        with self._lock:
            queue, running = self._queue, [*self._batches.items()]
            batches = [*self._batches.values(), *self._verifying]
            if queue is None:
                return
            self._draining += 1
        try:
            while True:
                with self._lock:
                    # submit the rest, because the queue was full
                    lib.kvpy_queue_collect(queue)
                    if not any(self._batches.get(native) is batch and native.left for native, batch in running):
                        break
                answer = lib.kvpy_queue_drain(queue, deadline)
                if answer != -errno.EINTR:
                    check(answer)
            for batch in batches:
                if deadline and time.monotonic_ns() >= deadline:
                    raise KvblkError(errno.ETIME)
                batch.verify()
        finally:
            with self._lock:
                self._draining -= 1
                self._lock.notify_all()

    def _let_go(self) -> None:
        """Close the descriptor if no thread waits on it any more. Called with the lock held."""
        if self._queue is None and not self._waiting and self._event >= 0:
            os.close(self._event)
            self._event = -1

    def close(self) -> list[Job]:
        """Cancel all jobs, wait until their memory is unused, and stop the threads; returns the jobs completed here."""
        if self.inherited:
            # a child of fork() has no such threads, and the parent owns their memory
            self._queue, self._waiting = None, 0
            self._let_go()
            _running.pop(id(self), None)
            return []
        over: list[Job] = []
        with self._closing:
            if self._queue is None:
                return []
            poll = select.poll()
            poll.register(self._event, select.POLLIN)
            while True:
                with self._lock:
                    self._stopped = True
                    # repeated, because a batch that was about to begin is not found
                    lib.kvpy_queue_stop(self._queue)
                    over += self._taken()
                    verifying = [*self._verifying]
                    if not self._jobs:
                        break
                poll.poll(10)
            # also those that other threads have taken
            for batch in verifying:
                batch.verify()
            with self._lock:
                self._verifying.difference_update(verifying)
                self._lock.wait_for(lambda: not self._draining)
                queue, self._queue = self._queue, None
            lib.kvpy_queue_destroy(queue)
            del _running[id(self)]
            with self._lock:
                # wake up threads in wait(); later than the last call that may read the descriptor
                os.write(self._event, (1).to_bytes(8, sys.byteorder))
                self._let_go()
        return self._finished(over)

    def __del__(self) -> None:
        # stop the jobs first, because the kernel may be writing to their memory
        if hasattr(self, "_queue"):
            self.close()

    def __enter__(self) -> Queue:
        return self

    def __exit__(self, *what: object) -> None:
        self.close()


class AsyncPool(OfProcess):
    """A pool for asyncio: coroutines for the event loop that it was made in. Lookups do no I/O and are plain calls.

    >>> async def main():
    ...     async with AsyncPool(POOL) as pool:
    ...         await pool.put(b"from a loop", b"hello")
    ...         buf = bytearray(5)
    ...         return await pool.get_into(b"from a loop", buf), buf
    >>> asyncio.run(main())
    (5, bytearray(b'hello'))

    A cancelled coroutine cancels its operations, and ends when no device uses its buffers any more. So asyncio.wait_for()
    may return after its timeout; gets with ``timeout`` and ``hard_deadline=True`` end on time.
    """

    def __init__(self, pool: Pool | str, threads: int = 32):
        super().__init__()
        self._own = isinstance(pool, str)
        self.pool = Pool(pool) if isinstance(pool, str) else pool
        self._loop = asyncio.get_running_loop()
        self._queue = Queue(self.pool, threads)
        self._loop.add_reader(self._queue, self._take)
        self._closing: asyncio.Future[list[Job]] | None = None
        #: futures of all operations in flight
        self._pending: set[asyncio.Future[Any]] = set()

    def _take(self) -> None:
        for job in self._queue.completed():
            _resolve(job)

    async def _quiet(self, future: asyncio.Future[_T], cancel: Callable[[], object]) -> _T:
        """Wait for operations. If the caller is cancelled, cancel them, and wait until they no longer use memory."""
        self._pending.add(future)
        future.add_done_callback(self._pending.discard)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            while not future.done():
                # repeated, because operations that are about to begin are not found
                cancel()
                # a second cancellation of the caller must not end this wait
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait([future], timeout=0.1)
            raise

    async def _results(self, start: Callable[..., Job]) -> list[Any]:
        """Start a job and wait for its results."""
        future: asyncio.Future[list[Any]] = self._loop.create_future()
        job = start(tag=future)
        return await self._quiet(future, lambda: self._queue.cancel(job))

    async def put_many(self, keys: Sequence[bytes], bufs: Sequence[Buffer], *, priority: int = 0, ttl: float = 0,
                       timeout: float | None = None, layout_tag: int = 0, caller_tag: int = 0, chain: bool = False,
                       parent: bytes | None = None, continues: bool = False, missed: bool = False,
                       durable: bool = False) -> list[Put | KvblkError]:
        """As Pool.put_many()."""
        return await self._results(functools.partial(
            self._queue.put, keys, bufs, priority=priority, ttl=ttl, timeout=timeout, layout_tag=layout_tag,
            caller_tag=caller_tag, chain=chain, parent=parent, continues=continues, missed=missed, durable=durable))

    async def get_many(self, keys: Sequence[bytes], bufs: Sequence[Buffer], *, offset: int | None = None,
                       layout_tag: int | None = None, timeout: float | None = None,
                       hard_deadline: bool = False) -> list[int | None | KvblkError]:
        """As Pool.get_many()."""
        return await self._results(functools.partial(
            self._queue.get, keys, bufs, offset=offset, layout_tag=layout_tag, timeout=timeout,
            hard_deadline=hard_deadline))

    async def delete_many(self, keys: Sequence[bytes], *, timeout: float | None = None) -> list[bool | KvblkError]:
        """As Pool.delete_many()."""
        return await self._results(functools.partial(self._queue.delete, keys, timeout=timeout))

    async def prefetch_many(self, keys: Sequence[bytes], *, timeout: float | None = None,
                            priority: int = 0) -> list[bool | KvblkError]:
        """As Pool.prefetch_many()."""
        return await self._results(functools.partial(self._queue.prefetch, keys, timeout=timeout, priority=priority))

    async def put(self, key: bytes, buf: Buffer, *, priority: int = 0, ttl: float = 0, timeout: float | None = None,
                  layout_tag: int = 0, caller_tag: int = 0, parent: bytes | None = None, continues: bool = False,
                  missed: bool = False, durable: bool = False) -> Put:
        """As Pool.put()."""
        results = await self.put_many((key,), (buf,), priority=priority, ttl=ttl, timeout=timeout,
                                      layout_tag=layout_tag, caller_tag=caller_tag, parent=parent,
                                      continues=continues, missed=missed, durable=durable)
        return raised(results[0])

    async def get_into(self, key: bytes, buf: Buffer, *, offset: int | None = None, layout_tag: int | None = None,
                       timeout: float | None = None, hard_deadline: bool = False) -> int | None:
        """As Pool.get_into()."""
        results = await self.get_many((key,), (buf,), offset=offset, layout_tag=layout_tag, timeout=timeout,
                                      hard_deadline=hard_deadline)
        return raised(results[0])

    async def get(self, key: bytes, *, offset: int | None = None, layout_tag: int | None = None,
                  timeout: float | None = None, hard_deadline: bool = False) -> bytearray | None:
        """As Pool.get()."""
        size = self.exists(key)
        while size:
            buf = bytearray(max(1, size - (offset or 0)))
            try:
                got = await self.get_into(key, buf, offset=offset, layout_tag=layout_tag, timeout=timeout,
                                          hard_deadline=hard_deadline)
            except KvblkError as e:
                # a longer block has replaced the block found
                if e.errno != errno.EMSGSIZE:
                    raise
                size = e.value_len
                continue
            # a shorter block may have replaced the block found
            return None if got is None else buf if got == len(buf) else buf[:got]
        return None

    async def delete(self, key: bytes, *, timeout: float | None = None) -> bool:
        """As Pool.delete()."""
        return raised((await self.delete_many((key,), timeout=timeout))[0])

    async def prefetch(self, key: bytes, *, timeout: float | None = None, priority: int = 0) -> bool:
        """As Pool.prefetch()."""
        return raised((await self.prefetch_many((key,), timeout=timeout, priority=priority))[0])

    async def hint(self, keys: Sequence[bytes], *, priority: int | None = None, retain: float | None = None,
                   demote: bool = False, release: bool = False) -> int:
        """As Pool.hint(), which does no I/O."""
        return await asyncio.to_thread(self.pool.hint, keys, priority=priority, retain=retain, demote=demote,
                                       release=release)

    async def prestage(self, keys: Sequence[bytes], *, lease: float = 0, max_bytes: int = 0, stop_at_miss: bool = False,
                       timeout: float | None = None, priority: int = 0) -> Prestaged:
        """As Pool.prestage()."""
        cookie = next(_cookies)
        future = asyncio.ensure_future(asyncio.to_thread(
            self.pool.prestage, keys, lease=lease, max_bytes=max_bytes, stop_at_miss=stop_at_miss, timeout=timeout,
            cookie=cookie, priority=priority))
        try:
            return await self._quiet(future, lambda: self.pool.cancel(cookie))
        except asyncio.CancelledError:
            if not future.cancelled() and future.exception() is None:
                future.result().lease.release()
            raise

    async def register(self, buf: Buffer, *, block_max: int = 0, lanes: int = 0) -> Memory:
        """As Pool.register(), in a thread, because pinning takes a while."""
        return await asyncio.to_thread(self.pool.register, buf, block_max=block_max, lanes=lanes)

    def exists(self, key: bytes) -> int:
        """As Pool.exists()."""
        return self.pool.exists(key)

    def lookup(self, keys: Sequence[bytes], *, lease: float = 0, prefix: bool = False, quiet: bool = False,
               sizes: bool = False, tags: bool = False, tiers: bool = False, times: bool = False) -> Lookup:
        """As Pool.lookup()."""
        return self.pool.lookup(keys, lease=lease, prefix=prefix, quiet=quiet, sizes=sizes, tags=tags, tiers=tiers,
                                times=times)

    def lookup_prefix(self, keys: Sequence[bytes], *, lease: float = 0) -> Lookup:
        """As Pool.lookup_prefix()."""
        return self.pool.lookup_prefix(keys, lease=lease)

    async def drain(self, timeout: float | None = None) -> None:
        """Wait until the memory of all operations started before the call is unused; raises KvblkError with ETIME
        after ``timeout`` seconds."""
        if self._pending and (await asyncio.wait([*self._pending], timeout=timeout))[1]:
            raise KvblkError(errno.ETIME)

    async def close(self) -> None:
        """Cancel all operations and wait for them; closes the pool if this object opened it.

        Operations submitted during the call raise KvblkError(ECANCELED).
        """
        if self.inherited:
            # the epoll descriptor is shared with the parent: removing a reader here would remove the reader there
            _close_inherited(self)
            return
        if self._closing is None:
            self._loop.remove_reader(self._queue)
            self._closing = self._loop.run_in_executor(None, self._queue.close)
            self._closing.add_done_callback(self._closed)
        # shield the close from a cancellation of its caller
        await asyncio.shield(self._closing)

    def _closed(self, closing: asyncio.Future[list[Job]]) -> None:
        for job in closing.result():
            _resolve(job)
        if self._own:
            self.pool.close()

    async def __aenter__(self) -> AsyncPool:
        return self

    async def __aexit__(self, *what: object) -> None:
        await self.close()


class _Future(concurrent.futures.Future[list[Any]], OfProcess):
    """A running future that raises in a child of fork(), because no thread there will resolve it."""

    def __init__(self) -> None:
        super().__init__()
        OfProcess.__init__(self)
        # rejects cancel(), because a submitted batch cannot be cancelled through its future
        self.set_running_or_notify_cancel()

    def result(self, timeout: float | None = None) -> list[Any]:
        self.check_process()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self.check_process()
        return super().exception(timeout)

    def add_done_callback(self, fn: Callable[[concurrent.futures.Future[list[Any]]], object]) -> None:
        self.check_process()
        super().add_done_callback(fn)


class FuturePool(OfProcess):
    """A pool for concurrent.futures: each call returns a future of the result of the same call of :class:`Pool`.

    >>> with FuturePool(POOL) as pool:
    ...     pool.put_many([b"some day"], [b"hello"]).result()
    [<Put.STORED: 'stored'>]

    A submitted batch cannot be cancelled through its future.
    """

    def __init__(self, pool: Pool | str, threads: int = 32):
        super().__init__()
        self._own = isinstance(pool, str)
        self.pool = Pool(pool) if isinstance(pool, str) else pool
        self._queue = Queue(self.pool, threads)
        self._lock = threading.Lock()
        self._open = True
        # the thread has no reference to this object, or else the object would never be freed
        self._thread = threading.Thread(target=_resolve_all, args=(self._queue,), name="kvblk-futures", daemon=True)
        self._thread.start()

    def put_many(self, keys: Sequence[bytes], bufs: Sequence[Buffer], *, priority: int = 0, ttl: float = 0,
                 timeout: float | None = None, layout_tag: int = 0, caller_tag: int = 0, chain: bool = False,
                 parent: bytes | None = None, continues: bool = False, missed: bool = False,
                 durable: bool = False) -> concurrent.futures.Future[list[Put | KvblkError]]:
        """As Pool.put_many()."""
        future = _Future()
        self._queue.put(keys, bufs, future, priority=priority, ttl=ttl, timeout=timeout, layout_tag=layout_tag,
                        caller_tag=caller_tag, chain=chain, parent=parent, continues=continues, missed=missed,
                        durable=durable)
        return future

    def get_many(self, keys: Sequence[bytes], bufs: Sequence[Buffer], *, offset: int | None = None,
                 layout_tag: int | None = None, timeout: float | None = None,
                 hard_deadline: bool = False) -> concurrent.futures.Future[list[int | None | KvblkError]]:
        """As Pool.get_many()."""
        future = _Future()
        self._queue.get(keys, bufs, future, offset=offset, layout_tag=layout_tag, timeout=timeout,
                        hard_deadline=hard_deadline)
        return future

    def delete_many(self, keys: Sequence[bytes], *,
                    timeout: float | None = None) -> concurrent.futures.Future[list[bool | KvblkError]]:
        """As Pool.delete_many()."""
        future = _Future()
        self._queue.delete(keys, future, timeout=timeout)
        return future

    def prefetch_many(self, keys: Sequence[bytes], *, timeout: float | None = None,
                      priority: int = 0) -> concurrent.futures.Future[list[bool | KvblkError]]:
        """As Pool.prefetch_many()."""
        future = _Future()
        self._queue.prefetch(keys, future, timeout=timeout, priority=priority)
        return future

    def close(self) -> None:
        """Cancel all operations and wait for them; closes the pool if this object opened it."""
        if self.inherited:
            _close_inherited(self)
            return
        with self._lock:
            first, self._open = self._open, False
        if not first:
            return
        for job in self._queue.close():
            _resolve(job)
        # a callback of a future may call close()
        if threading.current_thread() is not self._thread:
            self._thread.join()
        if self._own:
            self.pool.close()

    def __del__(self) -> None:
        if hasattr(self, "_thread"):
            self.close()

    def __enter__(self) -> FuturePool:
        return self

    def __exit__(self, *what: object) -> None:
        self.close()


def _close_inherited(copy: AsyncPool | FuturePool) -> None:
    """Close the descriptors that a child of fork() has inherited."""
    copy._queue.close()
    if copy._own:
        copy.pool.close()


def _resolve_all(queue: Queue) -> None:
    """Resolve futures until the queue is closed."""
    while queue._queue is not None:
        for job in queue.wait():
            _resolve(job)


def _resolve(job: Job) -> None:
    """Resolve the future that is the job's tag."""
    if not job.tag.done():
        job.tag.set_result(job.results)
