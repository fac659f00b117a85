# SPDX-License-Identifier: MIT
"""vLLM's KV cache as scatter lists, and background transfers of blocks.

A block of another length than its key says is deleted, because lookups would find it forever and stores would not
replace it.
"""

from __future__ import annotations

import errno
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import kvblk
import torch
from kvblk import KvblkError
from kvblk.adapter import Checked, register_slab

from .options import Options
from .report import Report, log

#: blocks of a batch, which are in flight at once
BATCH = 256
#: exceptions of a call to kvblk: error of the pool, closed queue, invalid key or list, no memory
ERRORS = (KvblkError, ValueError, TypeError, MemoryError)


#: callback: index of the batch's first block, and which blocks of the batch succeeded
Results = Callable[[int, list[bool]], None]


class Pages:
    """Memory of the blocks of one layer, or of a group of layers that share pages."""

    __slots__ = ("address", "number", "stride", "size")

    def __init__(self, tensor: torch.Tensor, stride: int, size: int):
        self.address = tensor.data_ptr()
        self.number = tensor.shape[0]
        self.stride = stride
        self.size = size

    def piece(self, block: int) -> tuple[int, int]:
        """Return address and length of a block; raises ValueError if there is no such block."""
        if not 0 <= block < self.number:
            raise ValueError(f"block {block} is none of the KV cache's, which are 0 to {self.number - 1}")
        return self.address + block * self.stride, self.size


class Transfer:
    """A group of batches; ``done`` is called when all are complete, in the thread that collects them."""

    __slots__ = ("left", "began", "done", "bytes", "failed")

    def __init__(self, done: Callable[[Transfer], None]):
        self.left = 0
        self.began = time.monotonic()
        self.done = done
        #: bytes of the blocks that succeeded
        self.bytes = 0
        #: an error occurred; misses and declined blocks are not errors
        self.failed = False


class _Failed:
    """Result of a job that could not be submitted."""

    __slots__ = ("tag", "results")

    def __init__(self, tag: Any, number: int, error: BaseException):
        self.tag = tag
        self.results = [error if isinstance(error, KvblkError) else KvblkError(errno.EINVAL, str(error))] * number


class HostMover:
    """Move blocks between a pool and slabs of memory in the background. For one thread only."""

    def __init__(self, pool: kvblk.Pool, options: Options, report: Report, slabs: Sequence[tuple[int, int]],
                 longest: int, block: int = 0):
        self.pool = pool
        self.report = report
        self._timeout = options.timeout_s
        self._put_options = options.put_options()
        self._checked = Checked(pool, report)
        self._queue = kvblk.Queue(pool, options.threads)
        self._failed: queue.SimpleQueue[_Failed] = queue.SimpleQueue()
        self._flight = 0
        #: batches of stores in flight
        self._storing = 0
        self._gpu_checksums = False
        #: kind of the memory: the slowest of all slabs
        self.kind = min((register_slab(pool, address, length, longest, log, block=block)
                         for address, length in slabs),
                        key=_KINDS.index)

    #: longest wait for the queue's descriptor, seconds
    PATIENCE = 1.0

    # Start

    def get(self, transfer: Transfer, keys: Sequence[bytes], buffers: Sequence[Any], each: Results) -> None:
        """Load blocks; ``each`` is called for each batch, before the transfer completes."""
        for at in range(0, len(keys), BATCH):
            part = slice(at, at + BATCH)
            self._submit(transfer, self._queue.get, keys[part], buffers[part], (each, at), store=False,
                         timeout=self._timeout, gpu_checksums=self._gpu_checksums)

    def put(self, transfer: Transfer, keys: Sequence[bytes], buffers: Sequence[Any], parent: bytes | None,
            each: Results = lambda at, there: None) -> None:
        """Store consecutive blocks of a prompt; ``each`` as for :meth:`get`."""
        for at in range(0, len(keys), BATCH):
            part = slice(at, at + BATCH)
            before = keys[at - 1] if at else parent or b""
            self._submit(transfer, self._queue.put, keys[part], buffers[part], (each, at), store=True, chain=True,
                         parent=before, continues=at + BATCH < len(keys), gpu_checksums=self._gpu_checksums,
                         **self._put_options)

    def _submit(self, transfer: Transfer, call: Any, keys: Sequence[bytes], buffers: Sequence[Any], tag: Any,
                store: bool, **options: Any) -> None:
        job_tag = (transfer, tag, keys, [size_of(buffer) for buffer in buffers], store)
        transfer.left += 1
        self._flight += 1
        self._storing += store
        self._hand_over(call, keys, buffers, job_tag, options)

    def _hand_over(self, call: Any, keys: Sequence[bytes], buffers: Sequence[Any], tag: Any,
                   options: dict[str, Any]) -> None:
        self._start(call, keys, buffers, tag, options)

    def _start(self, call: Any, keys: Sequence[bytes], buffers: Sequence[Any], tag: Any,
               options: dict[str, Any]) -> None:
        try:
            call(keys, buffers, tag, **options)
        except ERRORS as e:
            self._failed.put(_Failed(tag, len(keys), e))

    # End

    def poll(self, timeout: float | None = 0) -> None:
        """Complete finished jobs; ``timeout``: wait that long for a job to finish."""
        if not self._flight:
            return
        jobs: list[Any] = []
        while not self._failed.empty():
            jobs.append(self._failed.get())
        try:
            if timeout and not jobs:
                jobs += self._queue.wait(min(timeout, self.PATIENCE))
            else:
                jobs += self._queue.completed()
        except ERRORS as e:
            self.report.tell("taking results failed", e)
        for job in jobs:
            self._finish(job)

    def _finish(self, job: Any) -> None:
        transfer, (each, at), keys, sizes, store = job.tag
        self._flight -= 1
        self._storing -= store
        there = self._checked.stored(keys, job.results, sizes) if store else self._checked.loaded(keys, job.results, sizes)
        transfer.bytes += sum(size for size, ok in zip(sizes, there) if ok)
        transfer.failed |= any(isinstance(result, Exception) for result in job.results)
        each(at, there)
        transfer.left -= 1
        if not transfer.left:
            transfer.done(transfer)

    def wait(self, until: Callable[[], bool]) -> None:
        """Wait for a condition. Ends in any case, because each operation has a deadline or ends with its device."""
        while not until() and self._flight:
            self.poll(1.0)

    def drain(self) -> None:
        """Wait until nothing is in flight."""
        self.wait(lambda: False)

    def _finish_stores(self) -> None:
        """Wait for stores in flight, up to the timeout of a store."""
        end = time.monotonic() + self._timeout
        while self._storing and (left := end - time.monotonic()) > 0:
            self.poll(left)
        if self._storing:
            log.warning("%s: %d batches of stores are canceled, which are not over %g s after the end",
                        self.report.who, self._storing, self._timeout)

    def _stop(self) -> None:
        """Submit no more jobs to the queue."""

    def close(self) -> None:
        """Finish stores, cancel the other operations, and wait until their memory is unused."""
        self._finish_stores()
        self._stop()
        while not self._failed.empty():
            self._finish(self._failed.get())
        for job in self._queue.close():
            self._finish(job)
        self.pool.close()


class Mover(HostMover):
    """Move blocks of tensors on the host or a GPU.

    On a GPU a batch starts after the work submitted to the GPU's stream before it: the model may still be writing the
    blocks to store, or zeroing the blocks to load.
    """

    def __init__(self, pool: kvblk.Pool, options: Options, report: Report, tensors: Sequence[torch.Tensor],
                 longest: int, block: int):
        storages = {(storage.data_ptr(), storage.nbytes()) for storage in (t.untyped_storage() for t in tensors)}
        super().__init__(pool, options, report, sorted(storages), longest, block)
        self._tensors = list(tensors)
        self._device = tensors[0].device
        self._ordered: queue.SimpleQueue[Any] | None = None
        self._thread: threading.Thread | None = None
        if self._device.type != "cpu":
            address, length = min(storages)
            self._gpu_checksums = options.gpu_checksums and pool.gpu_checksums((address, min(length, longest)))
            # poll often, because jobs that wait for the GPU do not show in the queue's descriptor
            self.PATIENCE = 0.002
            self._ordered = queue.SimpleQueue()
            self._thread = threading.Thread(target=self._in_order, name="kvblk-order", daemon=True)
            self._thread.start()

    def _event(self) -> Any:
        event = torch.Event(device=self._device)
        event.record()
        return event

    def _hand_over(self, call: Any, keys: Sequence[bytes], buffers: Sequence[Any], tag: Any,
                   options: dict[str, Any]) -> None:
        if self._ordered is None:
            self._start(call, keys, buffers, tag, options)
        else:
            self._ordered.put((self._event(), call, keys, buffers, tag, options))

    def _in_order(self) -> None:
        assert self._ordered is not None
        while (item := self._ordered.get()) is not None:
            event, call, keys, buffers, tag, options = item
            try:
                event.synchronize()
            except RuntimeError as e:
                self._failed.put(_Failed(tag, len(keys), e))
                continue
            self._start(call, keys, buffers, tag, options)

    def _stop(self) -> None:
        if self._ordered is not None and self._thread is not None:
            self._ordered.put(None)
            self._thread.join()
            self._thread = None


#: kinds of memory, slowest first
_KINDS = ["staged", "", "addressed", "registered"]


def size_of(buffer: Any) -> int:
    """Return the number of bytes of a scatter list of (address, length)."""
    return sum(length for _, length in buffer)
