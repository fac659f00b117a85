# SPDX-License-Identifier: MIT
"""The backend of SGLang's HiCache.

Only the constructor and the registration of host pools raise, because then SGLang reports the error and does not
attach. A later error is a missing page or a failed store, which is counted and logged as a rate-limited warning. A page
is present only if all of its bytes were loaded.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import kvblk
from kvblk import adapter
from sglang.srt.mem_cache.hicache_storage import (
    STORAGE_BATCH_SIZE,
    HiCacheStorage,
    PoolHitPolicy,
    PoolName,
    PoolTransferResult,
)

from .options import Options
from .pages import Origin, Pages, UnusablePool, is_replicated, memory_of

logger = logging.getLogger(__name__)

#: most keys to remember for clear()
KNOWN_MAX = 1 << 20


class HiCacheKvblk(HiCacheStorage):  # type: ignore[misc]
    """The backend; README.md describes its configuration. ``report`` has its counters."""

    def __init__(self, storage_config: Any, kwargs: Any = None):
        extra = storage_config.extra_config
        self.options = Options.of(extra)
        if getattr(storage_config, "should_split_heads", False):
            raise ValueError("kvblk: tp_lcm_size with the layout page_head is not supported")
        self.storage_config = storage_config
        self.registered_pools: dict[str, Any] = {}
        self._origin = Origin(storage_config, self.options.model, self.options.salt, self.options.secret())
        # without interface_v1 SGLang copies each page, and calls batch_get and batch_set
        self._zero_copy = bool((extra or {}).get("interface_v1", 0))
        self._lock = threading.Lock()
        self.report = adapter.Report(logger, f"kvblk pool {self.options.pool}")
        self._measured: dict[str, list[float]] = {name: [] for name in ("prefetch_pgs", "backup_pgs",
                                                                        "prefetch_bandwidth", "backup_bandwidth")}
        self._leases = adapter.Leases(self.report)
        self._known: set[bytes] = set()
        self._forgot = False
        self._kv: Pages | None = None
        self._flat: Pages | None = None
        self._pages: dict[str, Pages] = {}
        self._unusable: dict[str, str] = {}
        self._memory: list[tuple[int, int]] = []
        self._pool = self.options.open()
        self._checked = adapter.Checked(self._pool, self.report, self.options.block_compute_ms / 1000)
        self._limits = self._pool.get_info()
        if not self._zero_copy:
            logger.warning("kvblk: \"interface_v1\": 1 is not in the extra config, so SGLang copies each page")

    # Host pools

    def register_mem_pool_host(self, mem_pool_host: Any) -> None:
        super().register_mem_pool_host(mem_pool_host)
        if getattr(mem_pool_host, "kv_buffer", None) is None:
            if getattr(mem_pool_host, "_is_dummy", False):
                raise ValueError("kvblk: this rank has no host memory for its pages: SGLang was started without a "
                                 "storage backend and keeps them on rank 0; start it with this one")
            # such a pool only counts tokens; the next pools hold the pages
            return
        if self._zero_copy:
            self._kv = self._usable(str(PoolName.KV), mem_pool_host)
            self._register_memory(self._kv)
        self._flat = Pages(str(PoolName.KV), mem_pool_host, self._origin, flat=True)

    def register_mem_host_pool_v2(self, host_pool: Any, host_pool_name: Any) -> None:
        name = str(host_pool_name)
        self.registered_pools[host_pool_name] = host_pool
        if host_pool is getattr(self, "mem_pool_host", None):
            if self._kv is not None:
                self._pages[name] = self._kv
            return
        # a failure of a late pool must not stop a running server
        try:
            self._pages[name] = self._usable(name, host_pool)
            self._register_memory(self._pages[name])
        except Exception as e:
            self._unusable[name] = str(e)
            self._trouble(f"host pool {name!r}", e, "unusable_pools")
        if self.storage_config.is_mla_model and self.storage_config.tp_size > 1 and name != PoolName.MAMBA \
                and not is_replicated(name, host_pool, True):
            logger.warning("kvblk: host pool %r is sharded, but SGLang stores it on rank 0 only with a dynamic "
                           "backend: the other ranks find nothing, so there will be no hits", name)

    def on_host_pools_registered(self) -> None:
        if self._unusable:
            raise UnusablePool("; ".join(self._unusable.values()))
        for pages in (self._kv, *self._pages.values()):
            if pages is not None:
                logger.info("kvblk pool %s: pages of %s: %d bytes in %d segments, layout %s", self.options.pool,
                            pages.name, pages.nbytes, len(pages.sizes), getattr(pages.host_pool, "layout", None))

    def _usable(self, name: str, host_pool: Any) -> Pages:
        pages = Pages(name, host_pool, self._origin)
        limit = self._limits.value_max
        if limit and pages.nbytes > limit:
            raise UnusablePool(f"kvblk: a page of host pool {name!r} has {pages.nbytes} bytes, and a block of pool "
                               f"{self.options.pool!r} at most {limit}: use a smaller --page-size")
        return pages

    def _register_memory(self, pages: Pages) -> None:
        for address, length in memory_of(pages.host_pool):
            # skip memory of another pool's registration
            if any(start <= address and address + length <= start + size for start, size in self._memory):
                continue
            self._memory.append((address, length))
            adapter.register_slab(self._pool, address, length, max(pages.sizes), logger)

    # Lookups

    def batch_exists(self, keys: list[str], extra_info: Any = None) -> int:
        try:
            pages = self._asked()
            if pages is None or not keys:
                return 0
            leading, lease = self._leading(pages.keys(keys), pages.nbytes)
            self._leases.hold(lease, pages.keys(keys[:leading]))
            return leading
        except Exception as e:
            self._trouble("lookup", e, "lookup_errors", 1)
            return 0

    def exists(self, key: str) -> bool:
        try:
            pages = self._asked()
            return pages is not None and self._checked.look_up(pages.keys([key]), [pages.nbytes]).there[0]
        except Exception as e:
            self._trouble("lookup", e, "lookup_errors", 1)
            return False

    def batch_exists_v2(self, keys: list[str], pool_transfers: Any = None, extra_info: Any = None) -> Any:
        try:
            return self._restorable(keys, pool_transfers or [])
        except Exception as e:
            self._trouble("lookup", e, "lookup_errors", 1)
            return PoolTransferResult(0, {}, [])

    def _asked(self) -> Pages | None:
        return self._kv if self._zero_copy else self._flat

    def _restorable(self, hashes: list[str], transfers: Sequence[Any]) -> Any:
        """Find the prefix lengths that all pools can serve. Keeps leases only on pages of the longest prefix."""
        anchor = self._asked()
        if not hashes or anchor is None and not self._is_logical():
            return PoolTransferResult(0, {}, [])
        leading, lease = (len(hashes), None) if anchor is None else self._leading(anchor.keys(hashes), anchor.nbytes)
        hits: dict[Any, int] = {PoolName.KV: leading} if leading else {}
        # pools may choose which block groups to serve, but not with this backend
        asked = [t for t in transfers if t.hit_policy != PoolHitPolicy.BLOCK_GROUPS]
        windows = [leading if t.hit_policy == PoolHitPolicy.ALL_PAGES else max(1, len(t.keys or ())) for t in asked]
        present, more = self._present(asked, hashes[:leading]) if leading else ([], None)
        lengths = set(range(1, leading + 1))
        for transfer, window, there in zip(asked, windows, present):
            good = _complete(there, window)
            if good:
                hits[transfer.name] = good[-1]
            lengths.intersection_update(good)
        longest = max(lengths, default=0)
        if lease is not None and anchor is not None:
            self._leases.hold(lease, anchor.keys(hashes[:longest]))
        if more is not None:
            sides = [(self._pages.get(str(transfer.name)), window) for transfer, window in zip(asked, windows)]
            self._leases.hold(more, [key for side, window in sides if side is not None
                                     for key in side.keys(hashes[max(0, longest - window):longest])])
        return PoolTransferResult(longest, hits, sorted(lengths))

    def _leading(self, keys: list[bytes], length: int) -> tuple[int, kvblk.Lease]:
        """Count the leading keys that are present and worth their load, and lease their pages."""
        found = self._checked.look_up(keys, [length] * len(keys), lease=self.options.lease_s, prefix=True)
        self._looked_up(len(keys), found.worth)
        return found.worth, found.lease

    def _present(self, transfers: Sequence[Any], hashes: list[str]) -> tuple[list[list[bool]], kvblk.Lease | None]:
        """Return which pages of side pools are present, with a lease; one call for all pools."""
        pools = [self._pages.get(str(t.name)) for t in transfers]
        keys = [key for pages in pools if pages is not None for key in pages.keys(hashes)]
        lengths = [pages.nbytes for pages in pools if pages is not None for _ in hashes]
        found = self._checked.look_up(keys, lengths, lease=self.options.lease_s) if keys else None
        bits = found.there if found else []
        self._looked_up(len(keys), sum(bits))
        parts = iter([bits[at:at + len(hashes)] for at in range(0, len(bits), len(hashes))])
        return ([next(parts) if pages is not None else [False] * len(hashes) for pages in pools],
                found.lease if found else None)

    def _looked_up(self, wanted: int, found: int) -> None:
        self.report.count("lookup_calls")
        self.report.count("lookup_blocks", wanted)
        self.report.count("lookup_hits", found)

    # Loads

    def batch_get_v1(self, keys: list[str], host_indices: Any, extra_info: Any = None) -> list[bool]:
        try:
            if self._kv is None:
                # a pool that only counts tokens has nothing to load; otherwise nothing was loaded
                return [self._is_logical()] * len(keys)
            return self._load(self._kv, keys, host_indices)
        except Exception as e:
            self._trouble("load", e, "load_errors", len(keys))
            return [False] * len(keys)

    def batch_get_v2(self, transfers: list[Any], extra_info: Any = None) -> dict[str, list[bool]]:
        return self._each_pool("load", "load_errors", transfers, self._load)

    def _load(self, pages: Pages, hashes: Sequence[str], host_indices: Any) -> list[bool]:
        keys = pages.keys(hashes)
        try:
            return self._load_into(keys, pages.pieces(host_indices, len(keys)), [pages.nbytes] * len(keys))
        finally:
            self._leases.drop(keys)

    def _load_into(self, keys: list[bytes], buffers: Sequence[Any], sizes: Sequence[int]) -> list[bool]:
        begin = time.monotonic()
        results = self._pool.get_many(keys, buffers, timeout=self.options.timeout_s,
                                      hard_deadline=self.options.hard_deadline)
        good = self._checked.loaded(keys, results, sizes)
        self._know(key for key, is_good in zip(keys, good) if is_good)
        self._measure("prefetch", [size for size, is_good in zip(sizes, good) if is_good], begin)
        return good

    # Stores

    def batch_set_v1(self, keys: list[str], host_indices: Any, extra_info: Any = None) -> list[bool]:
        try:
            if self._kv is None:
                return [self._is_logical()] * len(keys)
            return self._store(self._kv, keys, host_indices, _parent(extra_info))
        except Exception as e:
            self._trouble("store", e, "store_errors", len(keys))
            return [False] * len(keys)

    def batch_set_v2(self, transfers: list[Any], extra_info: Any = None) -> dict[str, list[bool]]:
        return self._each_pool("store", "store_errors", transfers, self._store, _parent(extra_info))

    def _store(self, pages: Pages, hashes: Sequence[str], host_indices: Any, parent: str | None) -> list[bool]:
        keys = pages.keys(hashes)
        return self._store_from(keys, pages.pieces(host_indices, len(keys)), [pages.nbytes] * len(keys),
                                pages.keys([parent])[0] if parent else b"")

    def _store_from(self, keys: list[bytes], buffers: Sequence[Any], sizes: Sequence[int],
                    parent: bytes) -> list[bool]:
        begin = time.monotonic()
        # a full batch may continue: SGLang splits a prompt into batches of this size
        results = self._pool.put_many(keys, buffers, chain=True, continues=len(keys) == STORAGE_BATCH_SIZE,
                                      parent=parent, **self.options.put_options())
        good = self._checked.stored(keys, results, sizes)
        self._know(key for key, is_good in zip(keys, good) if is_good)
        self._measure("backup", [size for size, result in zip(sizes, results) if result is kvblk.Put.STORED], begin)
        return good

    def _each_pool(self, what: str, counter: str, transfers: Sequence[Any], run: Callable[..., list[bool]],
                   *more: Any) -> dict[str, list[bool]]:
        answers: dict[str, list[bool]] = {}
        for transfer in transfers:
            hashes = transfer.keys or []
            answers[transfer.name] = [False] * len(hashes)
            pages = self._pages.get(str(transfer.name))
            try:
                if pages is None:
                    raise ValueError(f"there is no host pool {str(transfer.name)!r}")
                if hashes:
                    answers[transfer.name] = run(pages, hashes, transfer.host_indices, *more)
            except Exception as e:
                self._trouble(what, e, counter, len(hashes))
        return answers

    def _is_logical(self) -> bool:
        return getattr(getattr(self, "mem_pool_host", None), "kv_buffer", 0) is None

    # Pages that SGLang has copied: without interface_v1

    def get(self, key: str, target_location: Any = None, target_sizes: Any = None) -> Any:
        return self.batch_get([key], [target_location])[0]

    def batch_get(self, keys: list[str], target_locations: Any = None, target_sizes: Any = None) -> list[Any]:
        try:
            if self._flat is None or target_locations is None or any(t is None for t in target_locations):
                raise ValueError("a page needs a host pool, and a place to go to")
            ids = self._flat.keys(keys)
            try:
                good = self._load_into(ids, target_locations, [t.nbytes for t in target_locations])
            finally:
                self._leases.drop(ids)
            return [t if is_good else None for t, is_good in zip(target_locations, good)]
        except Exception as e:
            self._trouble("load", e, "load_errors", len(keys))
            return [None] * len(keys)

    def set(self, key: str, value: Any = None, target_location: Any = None, target_sizes: Any = None) -> bool:
        return self.batch_set([key], [value])

    def batch_set(self, keys: list[str], values: Any = None, target_locations: Any = None,
                  target_sizes: Any = None) -> bool:
        try:
            if self._flat is None or values is None or any(value is None for value in values):
                raise ValueError("a page needs a host pool, and bytes")
            pages = [value.contiguous() for value in values]
            return all(self._store_from(self._flat.keys(keys), pages, [page.nbytes for page in pages], b""))
        except Exception as e:
            self._trouble("store", e, "store_errors", len(keys))
            return False

    # The rest

    def clear(self) -> bool:
        """Delete the blocks that this process stored or loaded; returns False if some remain."""
        with self._lock:
            keys, self._known = list(self._known), set()
            complete, self._forgot = not self._forgot, False
        deleted = 0
        try:
            results = self._pool.delete_many(keys)
            complete &= not any(isinstance(result, kvblk.KvblkError) for result in results)
            deleted = sum(self.report.deleted(results))
        except Exception as e:
            complete = False
            self._trouble("delete", e, "delete_errors", len(keys))
        logger.info("kvblk pool %s: deleted %d pages%s", self.options.pool, deleted,
                    "" if complete else ", but not all that this process knew of")
        return complete

    def get_stats(self) -> Any:
        """Return SGLang's StorageMetrics since the last call, with ``kvblk``: the counters since start."""
        try:
            from sglang.srt.observability.metrics_collector import StorageMetrics
            with self._lock:
                stats = StorageMetrics(**self._measured)
                self._measured = {name: [] for name in self._measured}
            stats.kvblk = self.report.counts()
            return stats
        except Exception as e:
            self._trouble("statistics", e, "statistics_errors")
            return None

    def close(self) -> None:
        """End leases, unregister memory, close the pool. Later calls miss."""
        try:
            self._leases.clear()
            self._pool.close()
            logger.info("kvblk pool %s: closed; %s", self.options.pool, self.report.summary())
        except Exception as e:
            self._trouble("close", e, "close_errors")

    def _measure(self, what: str, sizes: list[int], begin: float) -> None:
        if self.storage_config.enable_storage_metrics and sizes:
            with self._lock:
                self._measured[f"{what}_pgs"].append(len(sizes))
                self._measured[f"{what}_bandwidth"].append(sum(sizes) / 1e9 / max(time.monotonic() - begin, 1e-9))

    def _know(self, keys: Any) -> None:
        with self._lock:
            self._known.update(keys)
            if len(self._known) > KNOWN_MAX:
                self._forgot = True
                while len(self._known) > KNOWN_MAX:
                    self._known.pop()

    def _trouble(self, what: str, error: BaseException, counter: str, count: int = 1) -> None:
        """Count and log an error."""
        usual = isinstance(error, (kvblk.KvblkError, ValueError))
        self.report.trouble(counter, what, error if usual else repr(error), count)
        if not usual:
            logger.debug("kvblk: %s", what, exc_info=error)


def _parent(extra_info: Any) -> str | None:
    """Return the hash of the page before the first one, if SGLang passes it (hicache_storage_pass_prefix_keys)."""
    prefix = getattr(extra_info, "prefix_keys", None)
    return prefix[-1] if prefix else None


def _complete(there: Sequence[bool], window: int) -> list[int]:
    """Return the prefix lengths whose last ``window`` pages are all present."""
    run = 0
    good = []
    for length, is_there in enumerate(there, 1):
        run = run + 1 if is_there else 0
        if run >= min(window, length):
            good.append(length)
    return good
