# SPDX-License-Identifier: MIT
"""KV-cache blocks in and out of kvblk pools, without a copy.

:class:`Pool` is an open pool: puts, gets, lookups, leases, registered memory, one block or many at a time.
:class:`AsyncPool` is one for asyncio, :class:`FuturePool` for concurrent.futures, :class:`Worker` for other event
loops. :class:`Keyspace` makes keys that no two runtimes, models or parallel layouts share.

A miss is None, a put that the pool declined is ``Put.DECLINED``: neither is an exception. What fails is a
:class:`KvblkError` with errno and the sentence: raised by calls on one block, in the list of results of calls on many.
"""

from ._native import ffi as _ffi
from ._native import lib as _lib
from .background import AsyncPool, FuturePool, Job, Worker
from .buffers import Buffer, MemorySlice
from .errors import KvblkError
from .keys import Keyspace, block_id, block_ids
from .pool import Batch, Info, Lease, Lookup, Memory, Pool, Prestaged, Put

__version__: str = _ffi.string(_lib.kvblk_version()).decode()
__all__ = ["AsyncPool", "Batch", "Buffer", "FuturePool", "Info", "Job", "Keyspace", "KvblkError", "Lease", "Lookup",
           "Memory", "MemorySlice", "Pool", "Prestaged", "Put", "Worker", "block_id", "block_ids"]
