# SPDX-License-Identifier: MIT
"""Background batches for asyncio, concurrent.futures and other event loops.

All classes use :class:`Worker`: threads of the library run batches without the GIL, and one descriptor becomes readable
when a batch completes.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import itertools
import math
import os
import secrets
import select
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from ._native import ffi, lib
from .buffers import Buffer
from .errors import KvblkError, check
from .pool import Pool, get_options
from .process import OfProcess
from .results import OP_DELETE, OP_GET, OP_PREFETCH, OP_PUT, Batch, Lookup, Put, raised

#: Pool handle and batches of each worker. Module-level, because the garbage collector must not free a batch that a
#: thread of the library is using.
_running: dict[int, tuple[Any, dict[Any, Batch]]] = {}


#: cookies start at a random number, or else a cookie could equal the cookie of a caller of Pool.prestage()
_cookies = itertools.count(secrets.randbits(63) | 1)


class Job:
    """A running or completed batch: sets ``results`` (one per key) or ``error`` (of the whole batch) on completion.

    ``tag`` is for the caller.
    """

    __slots__ = ("batch", "cookie", "tag", "results", "error")

    def __init__(self, batch: Batch, cookie: int, tag: Any):
        self.batch = batch
        self.cookie = cookie
        self.tag = tag
        self.results: list[Any] | None = None
        self.error: KvblkError | None = None

    def finish(self) -> None:
        try:
            self.results = self.batch.results()
        except KvblkError as e:
            self.error = e


class Worker(OfProcess):
    """Run batches of a pool in up to ``threads`` threads of the library. Any thread may use it, but no child of fork().

    >>> with Pool(POOL) as pool, Worker(pool) as worker:
    ...     job = worker.put([b"in the background"], [b"x" * 4096])
    ...     while worker.wait(10) != [job]:
    ...         pass
    ...     job.results
    [<Put.STORED: 'stored'>]
    """

    def __init__(self, pool: Pool, threads: int = 8):
        super().__init__()
        out = ffi.new("struct kvblk_async **")
        handle = pool.handle
        check(lib.kvblk_async_create(handle, threads, out))
        self.pool = pool
        self._lock = threading.Lock()
        self._closing = threading.Lock()
        self._jobs: dict[Any, Job] = {}
        self._batches: dict[Any, Batch] = {}
        _running[id(self)] = handle, self._batches
        # a duplicate that stays open while a thread waits, or else another file could reuse the descriptor's number
        self._waiting = 0
        self._event = os.dup(lib.kvblk_async_eventfd(out[0]))
        self._async: Any = out[0]

    def fileno(self) -> int:
        """Return the descriptor; do not read or close it."""
        self.check_process()
        if self._async is None:
            raise ValueError("the worker is closed")
        return self._event

    def submit(self, opcode: int, keys: Sequence[bytes], bufs: Sequence[Buffer] | None, tag: Any = None, *,
               op_flags: int = 0, priority: int = 0, ttl: float = 0, timeout: float | None = None, offset: int = 0,
               layout_tag: int = 0, caller_tag: int = 0, parent: bytes | None = None, chain: bool = False,
               continues: bool = False, missed: bool = False, durable: bool = False, session: int = 0) -> Job:
        """Start a batch; do not touch its buffers until it completes. Options as for Pool.batch()."""
        self.check_process()
        cookie = next(_cookies) & (1 << 64) - 1 or 1
        batch = self.pool.batch(opcode, keys, bufs, op_flags=op_flags, priority=priority, ttl=ttl, timeout=timeout,
                                offset=offset, layout_tag=layout_tag, caller_tag=caller_tag, parent=parent, chain=chain,
                                continues=continues, missed=missed, durable=durable, session=session, cookie=cookie)
        job = Job(batch, cookie, tag)
        with self._lock:
            if self._async is None:
                batch.free()
                raise ValueError("the worker is closed")
            self._batches[batch.native] = batch
            self._jobs[batch.native] = job
            lib.kvpy_batch_start(self._async, batch.native)
        return job

    def put(self, keys: Sequence[bytes], bufs: Sequence[Buffer], tag: Any = None, *, priority: int = 0, ttl: float = 0,
            timeout: float | None = None, layout_tag: int = 0, caller_tag: int = 0, session: int = 0,
            chain: bool = False, parent: bytes | None = None, continues: bool = False, missed: bool = False,
            durable: bool = False) -> Job:
        """Start puts; options as for Pool.put_many()."""
        return self.submit(OP_PUT, keys, bufs, tag, priority=priority, ttl=ttl, timeout=timeout, layout_tag=layout_tag,
                           caller_tag=caller_tag, session=session, chain=chain, parent=parent, continues=continues,
                           missed=missed, durable=durable)

    def get(self, keys: Sequence[bytes], bufs: Sequence[Buffer], tag: Any = None, *, offset: int | None = None,
            layout_tag: int | None = None, timeout: float | None = None, hard: bool = False) -> Job:
        """Start gets; options as for Pool.get_many()."""
        return self.submit(OP_GET, keys, bufs, tag, **get_options(offset, layout_tag, timeout, hard))

    def delete(self, keys: Sequence[bytes], tag: Any = None) -> Job:
        """Start deletes."""
        return self.submit(OP_DELETE, keys, None, tag)

    def cancel(self, job: Job) -> int:
        """Cancel a job; returns the number of its operations found in flight.

        A job that has not started fails as a whole with KvblkError(ECANCELED). In a running job, operations in flight
        fail.
        """
        self.check_process()
        with self._lock:
            # a completed batch may have been freed
            if job.batch.native is None or job.batch.native not in self._jobs:
                return 0
            lib.kvpy_batch_cancel(job.batch.native)
        return self.pool.cancel(job.cookie)

    def completed(self) -> list[Job]:
        """Return the jobs that completed since the last call."""
        self.check_process()
        jobs = []
        with self._lock:
            if self._async is not None:
                jobs = self._taken(self._async)
        for job in jobs:
            job.finish()
        return jobs

    def _taken(self, handle: Any) -> list[Job]:
        jobs = []
        while native := lib.kvpy_batch_take(handle):
            jobs.append(self._jobs.pop(native))
            self._batches.pop(native)
        return jobs

    def wait(self, timeout: float | None = None) -> list[Job]:
        """Wait until a job completes or the worker is closed, then return as :meth:`completed`."""
        self.check_process()
        end = None if timeout is None else time.monotonic() + timeout
        with self._lock:
            if self._async is None:
                return []
            self._waiting += 1
        try:
            poll = select.poll()
            poll.register(self._event, select.POLLIN)
            while not (jobs := self.completed()) and self._async is not None:
                left = None if end is None else end - time.monotonic()
                if left is not None and left <= 0:
                    break
                poll.poll(None if left is None else math.ceil(left * 1000))
            return jobs
        finally:
            with self._lock:
                self._waiting -= 1
                self._let_go()

    def _let_go(self) -> None:
        """Close the descriptor if no thread waits on it any more. Called with the lock held."""
        if self._async is None and not self._waiting and self._event >= 0:
            os.close(self._event)
            self._event = -1

    def close(self) -> list[Job]:
        """Cancel all jobs, wait until their memory is unused, and stop the threads; returns the jobs completed here."""
        if self.inherited:
            # a child of fork() has no such threads, and the parent owns their memory
            self._async, self._waiting = None, 0
            self._let_go()
            _running.pop(id(self), None)
            return []
        over: list[Job] = []
        with self._closing:
            handle = self._async
            if handle is None:
                return []
            lib.kvblk_async_stop(handle)
            poll = select.poll()
            poll.register(self._event, select.POLLIN)
            # repeat: a started job may not have reached the kernel yet
            while self._jobs:
                with self._lock:
                    jobs = list(self._jobs.values())
                    for job in jobs:
                        lib.kvpy_batch_cancel(job.batch.native)
                for job in jobs:
                    lib.kvblk_cancel(_running[id(self)][0], job.cookie, ffi.NULL)
                poll.poll(10)
                with self._lock:
                    over += self._taken(handle)
            with self._lock:
                self._async = None
                # wake up threads in wait()
                os.write(self._event, (1).to_bytes(8, sys.byteorder))
                self._let_go()
            lib.kvblk_async_destroy(handle)
            del _running[id(self)]
        for job in over:
            job.finish()
        return over

    def __del__(self) -> None:
        # stop the jobs first, because the kernel may be writing to their memory
        if hasattr(self, "_async"):
            self.close()

    def __enter__(self) -> Worker:
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

    A cancelled coroutine cancels its operations as :meth:`Worker.cancel` does. Its buffers are in use until the
    operations complete; ``close()`` waits for them.
    """

    def __init__(self, pool: Pool | str, threads: int = 32):
        super().__init__()
        self._own = isinstance(pool, str)
        self.pool = Pool(pool) if isinstance(pool, str) else pool
        self._loop = asyncio.get_running_loop()
        self._worker = Worker(self.pool, threads)
        self._loop.add_reader(self._worker, self._take)
        self._closing: asyncio.Future[list[Job]] | None = None

    def _take(self) -> None:
        for job in self._worker.completed():
            _resolve(job)

    async def _results(self, job: Job) -> list[Any]:
        """Wait for a job whose tag is a future of the event loop."""
        future: asyncio.Future[list[Any]] = job.tag
        try:
            return await future
        except asyncio.CancelledError:
            with contextlib.suppress(ValueError, KvblkError):
                self._worker.cancel(job)
            raise

    async def put_many(self, keys: Sequence[bytes], bufs: Sequence[Buffer], *, priority: int = 0, ttl: float = 0,
                       timeout: float | None = None, layout_tag: int = 0, caller_tag: int = 0, session: int = 0,
                       chain: bool = False, parent: bytes | None = None, continues: bool = False, missed: bool = False,
                       durable: bool = False) -> list[Put | KvblkError]:
        """As Pool.put_many()."""
        job = self._worker.put(keys, bufs, self._loop.create_future(), priority=priority, ttl=ttl, timeout=timeout,
                               layout_tag=layout_tag, caller_tag=caller_tag, session=session, chain=chain,
                               parent=parent, continues=continues, missed=missed, durable=durable)
        return await self._results(job)

    async def get_many(self, keys: Sequence[bytes], bufs: Sequence[Buffer], *, offset: int | None = None,
                       layout_tag: int | None = None, timeout: float | None = None,
                       hard: bool = False) -> list[int | None | KvblkError]:
        """As Pool.get_many()."""
        job = self._worker.get(keys, bufs, self._loop.create_future(), offset=offset, layout_tag=layout_tag,
                               timeout=timeout, hard=hard)
        return await self._results(job)

    async def delete_many(self, keys: Sequence[bytes]) -> list[bool | KvblkError]:
        """As Pool.delete_many()."""
        return await self._results(self._worker.delete(keys, self._loop.create_future()))

    async def prefetch_many(self, keys: Sequence[bytes], *, timeout: float | None = None) -> list[bool | KvblkError]:
        """As Pool.prefetch_many()."""
        job = self._worker.submit(OP_PREFETCH, keys, None, self._loop.create_future(), timeout=timeout)
        return await self._results(job)

    async def put(self, key: bytes, buf: Buffer, *, priority: int = 0, ttl: float = 0, timeout: float | None = None,
                  layout_tag: int = 0, caller_tag: int = 0, session: int = 0, chain: bool = False,
                  parent: bytes | None = None, continues: bool = False, missed: bool = False,
                  durable: bool = False) -> Put:
        """As Pool.put()."""
        results = await self.put_many((key,), (buf,), priority=priority, ttl=ttl, timeout=timeout,
                                      layout_tag=layout_tag, caller_tag=caller_tag, session=session, chain=chain,
                                      parent=parent, continues=continues, missed=missed, durable=durable)
        return raised(results[0])

    async def get_into(self, key: bytes, buf: Buffer, *, offset: int | None = None, layout_tag: int | None = None,
                       timeout: float | None = None, hard: bool = False) -> int | None:
        """As Pool.get_into()."""
        results = await self.get_many((key,), (buf,), offset=offset, layout_tag=layout_tag, timeout=timeout, hard=hard)
        return raised(results[0])

    async def delete(self, key: bytes) -> bool:
        """As Pool.delete()."""
        return raised((await self.delete_many((key,)))[0])

    def lookup(self, keys: Sequence[bytes], *, lease: float = 0, prefix: bool = False, sizes: bool = False,
               tags: bool = False) -> Lookup:
        """As Pool.lookup()."""
        return self.pool.lookup(keys, lease=lease, prefix=prefix, sizes=sizes, tags=tags)

    def leading_run(self, keys: Sequence[bytes], *, lease: float = 0) -> Lookup:
        """As Pool.leading_run()."""
        return self.pool.leading_run(keys, lease=lease)

    async def close(self) -> None:
        """Cancel all operations and wait for them; closes the pool if this object opened it."""
        if self.inherited:
            # the epoll descriptor is shared with the parent: removing a reader here would remove it there
            _close_inherited(self)
            return
        if self._closing is None:
            self._loop.remove_reader(self._worker)
            self._closing = self._loop.run_in_executor(None, self._worker.close)
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
        self._worker = Worker(self.pool, threads)
        self._lock = threading.Lock()
        self._open = True
        # the thread has no reference to this object, or else the object would never be freed
        self._thread = threading.Thread(target=_resolve_all, args=(self._worker,), name="kvblk-futures", daemon=True)
        self._thread.start()

    def put_many(self, keys: Sequence[bytes], bufs: Sequence[Buffer], *, priority: int = 0, ttl: float = 0,
                 timeout: float | None = None, layout_tag: int = 0, caller_tag: int = 0, session: int = 0,
                 chain: bool = False, parent: bytes | None = None, continues: bool = False, missed: bool = False,
                 durable: bool = False) -> concurrent.futures.Future[list[Put | KvblkError]]:
        """As Pool.put_many()."""
        future = _Future()
        self._worker.put(keys, bufs, future, priority=priority, ttl=ttl, timeout=timeout, layout_tag=layout_tag,
                         caller_tag=caller_tag, session=session, chain=chain, parent=parent, continues=continues,
                         missed=missed, durable=durable)
        return future

    def get_many(self, keys: Sequence[bytes], bufs: Sequence[Buffer], *, offset: int | None = None,
                 layout_tag: int | None = None, timeout: float | None = None,
                 hard: bool = False) -> concurrent.futures.Future[list[int | None | KvblkError]]:
        """As Pool.get_many()."""
        future = _Future()
        self._worker.get(keys, bufs, future, offset=offset, layout_tag=layout_tag, timeout=timeout, hard=hard)
        return future

    def delete_many(self, keys: Sequence[bytes]) -> concurrent.futures.Future[list[bool | KvblkError]]:
        """As Pool.delete_many()."""
        future = _Future()
        self._worker.delete(keys, future)
        return future

    def prefetch_many(self, keys: Sequence[bytes], *,
                      timeout: float | None = None) -> concurrent.futures.Future[list[bool | KvblkError]]:
        """As Pool.prefetch_many()."""
        future = _Future()
        self._worker.submit(OP_PREFETCH, keys, None, future, timeout=timeout)
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
        for job in self._worker.close():
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
    copy._worker.close()
    if copy._own:
        copy.pool.close()


def _resolve_all(worker: Worker) -> None:
    """Resolve futures until the worker is closed."""
    while worker._async is not None:
        for job in worker.wait():
            _resolve(job)


def _resolve(job: Job) -> None:
    """Resolve the future that is the job's tag."""
    future = job.tag
    if future.done():
        return
    if job.error is not None:
        future.set_exception(job.error)
    else:
        future.set_result(job.results)
