# SPDX-License-Identifier: MIT
"""Store and fetch KV-cache blocks in kvblk pools, without copies.

:class:`Pool` is an open pool: puts, gets, lookups, leases and registered memory, for one block or many at a time.
:class:`AsyncPool` is for asyncio, :class:`FuturePool` for concurrent.futures, :class:`Queue` for other event loops.
:class:`Keyspace` makes keys that no two runtimes, models or parallel layouts share, and with
:func:`deployment_salt` that nobody can guess who lacks the deployment's salt.

A miss returns None and a declined put returns ``Put.DECLINED``: neither is an exception. Errors are
:class:`KvblkError`, which says what a runtime does about it. A call on one block raises it, a call on many blocks returns
it in the list of results.
"""

from ._native import ffi as _ffi
from ._native import lib as _lib
from .background import AsyncPool, FuturePool, Job, Queue
from .buffers import Buffer, MemorySlice
from .errors import Action, KvblkError
from .keys import SALT_FILE, Keyspace, block_id, block_ids, deployment_salt
from .memory import Memory
from .pool import Pool
from .results import Batch, Info, Lease, Lookup, Prestaged, Put

__version__: str = _ffi.string(_lib.kvblk_version()).decode()
__all__ = ["Action", "AsyncPool", "Batch", "Buffer", "FuturePool", "Info", "Job", "Keyspace", "KvblkError", "Lease",
           "Lookup", "Memory", "MemorySlice", "Pool", "Prestaged", "Put", "Queue", "SALT_FILE", "block_id", "block_ids",
           "deployment_salt"]
