# SPDX-License-Identifier: MIT
"""The backend of SGLang's HiCache.

Only the constructor and the registration of host pools raise, because then SGLang reports the error and does not
attach. A later error is a missing page or a failed store, which is counted and logged as a rate-limited warning. A page
is present only if all of its bytes were loaded.
"""

from __future__ import annotations

import collections
import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import kvblk
from kvblk import adapter
from kvblk.pool import LOOKUP_MAX, OPS_MAX
from sglang.srt.mem_cache.hicache_storage import (
    STORAGE_BATCH_SIZE,
    HiCacheStorage,
    PoolHitPolicy,
    PoolName,
    PoolTransferResult,
)

from .leases import Leases
from .options import Options
from .pages import Origin, Pages, UnusablePool, is_replicated, memory_of

logger = logging.getLogger(__name__)

#: most keys to remember for clear()
KNOWN_MAX = 1 << 20

COUNTERS = ("lookups", "looked_up_pages", "found_pages", "loaded_pages", "missed_pages", "wrong_length_pages",
            "failed_load_pages", "stored_pages", "present_pages", "declined_pages", "failed_store_pages",
            "failed_lookups", "expired_leases")


class HiCacheKvblk(HiCacheStorage):  # type: ignore[misc]
    """The backend; README.md describes its configuration. ``counters`` has its statistics."""

    def __init__(self, storage_config: Any, kwargs: Any = None):
        extra = storage_config.extra_config
        self.options = Options.of(extra)
        if getattr(storage_config, "should_split_heads", False):
            raise ValueError("kvblk: tp_lcm_size with the layout page_head is not supported")
        self.storage_config = storage_config
        self.registered_pools: dict[str, Any] = {}
        self.counters: collections.Counter[str] = collections.Counter(dict.fromkeys(COUNTERS, 0))
        self._origin = Origin(storage_config, self.options.model, self.options.salt, self.options.secret())
        # without interface_v1 SGLang copies each page, and calls batch_get and batch_set
        self._zero_copy = bool((extra or {}).get("interface_v1", 0))
        self._lock = threading.Lock()
        self._warnings = adapter.Warnings(logger, f"kvblk pool {self.options.pool}")
        self._measured: dict[str, list[float]] = {name: [] for name in ("prefetch_pgs", "backup_pgs",
                                                                        "prefetch_bandwidth", "backup_bandwidth")}
        self._leases = Leases(self.options.lease_s)
        self._known: set[bytes] = set()
        self._forgot = False
        self._kv: Pages | None = None
        self._flat: Pages | None = None
        self._pages: dict[str, Pages] = {}
        self._unusable: dict[str, str] = {}
        self._memory: list[tuple[int, int]] = []
        self._pool = self.options.open()
        self._checked = adapter.Checked(self._pool, self._warnings.tell)
        self._limits = self._pool.info()
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
            self._trouble(f"host pool {name!r}", e)
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
            leading, leases = self._leading(pages.keys(keys), pages.nbytes)
            self._hold(leases, pages.keys(keys[:leading]))
            return leading
        except Exception as e:
            self._trouble("lookup", e, "failed_lookups", 1)
            return 0

    def exists(self, key: str) -> bool:
        try:
            pages = self._asked()
            return pages is not None and self._checked.look_up(pages.keys([key]), [pages.nbytes]).there[0]
        except Exception as e:
            self._trouble("lookup", e, "failed_lookups", 1)
            return False

    def batch_exists_v2(self, keys: list[str], pool_transfers: Any = None, extra_info: Any = None) -> Any:
        try:
            return self._restorable(keys, pool_transfers or [])
        except Exception as e:
            self._trouble("lookup", e, "failed_lookups", 1)
            return PoolTransferResult(0, {}, [])

    def _asked(self) -> Pages | None:
        return self._kv if self._zero_copy else self._flat

    def _restorable(self, hashes: list[str], transfers: Sequence[Any]) -> Any:
        """Find the prefix lengths that all pools can serve. Keeps leases only on pages of the longest prefix."""
        anchor = self._asked()
        if not hashes or anchor is None and not self._is_logical():
            return PoolTransferResult(0, {}, [])
        leading, leases = (len(hashes), []) if anchor is None else self._leading(anchor.keys(hashes), anchor.nbytes)
        hits: dict[Any, int] = {PoolName.KV: leading} if leading else {}
        # pools may choose which block groups to serve, but not with this backend
        asked = [t for t in transfers if t.hit_policy != PoolHitPolicy.BLOCK_GROUPS]
        windows = [leading if t.hit_policy == PoolHitPolicy.ALL_PAGES else max(1, len(t.keys or ())) for t in asked]
        present, more = self._present(asked, hashes[:leading]) if leading else ([], [])
        lengths = set(range(1, leading + 1))
        for transfer, window, there in zip(asked, windows, present):
            good = _complete(there, window)
            if good:
                hits[transfer.name] = good[-1]
            lengths.intersection_update(good)
        longest = max(lengths, default=0)
        wanted = anchor.keys(hashes[:longest]) if anchor is not None else []
        for transfer, window in zip(asked, windows):
            side = self._pages.get(str(transfer.name))
            if side is not None:
                wanted.extend(side.keys(hashes[max(0, longest - window):longest]))
        self._hold(leases + more, wanted)
        return PoolTransferResult(longest, hits, sorted(lengths))

    def _leading(self, keys: list[bytes], length: int) -> tuple[int, list[tuple[kvblk.Lease, list[bytes]]]]:
        """Count the leading keys that are present, and lease their pages."""
        leading = 0
        leases = []
        for part in _parts(keys, LOOKUP_MAX):
            found = self._checked.look_up(part, [length] * len(part), lease=self.options.lease_s, prefix=True)
            leases.append((found.lease, part))
            leading += found.leading
            if found.leading < len(part):
                break
        self._count(lookups=1, looked_up_pages=len(keys), found_pages=leading)
        return leading, leases

    def _present(self, transfers: Sequence[Any],
                 hashes: list[str]) -> tuple[list[list[bool]], list[tuple[kvblk.Lease, list[bytes]]]]:
        """Return which pages of side pools are present, with leases; one call for all pools."""
        pools = [self._pages.get(str(t.name)) for t in transfers]
        keys = [key for pages in pools if pages is not None for key in pages.keys(hashes)]
        lengths = [pages.nbytes for pages in pools if pages is not None for _ in hashes]
        bits: list[bool] = []
        leases = []
        for at, part in zip(range(0, len(keys), LOOKUP_MAX), _parts(keys, LOOKUP_MAX)):
            found = self._checked.look_up(part, lengths[at:at + LOOKUP_MAX], lease=self.options.lease_s)
            leases.append((found.lease, part))
            bits += found.there
        self._count(looked_up_pages=len(keys), found_pages=sum(bits))
        answers = []
        for pages in pools:
            answers.append(bits[:len(hashes)] if pages is not None else [False] * len(hashes))
            del bits[:len(hashes) if pages is not None else 0]
        return answers, leases

    def _hold(self, leases: list[tuple[kvblk.Lease, list[bytes]]], wanted: Sequence[bytes]) -> None:
        expected = frozenset(wanted)
        for lease, keys in leases:
            self._leases.hold(lease, [key for key in keys if key in expected])

    # Loads

    def batch_get_v1(self, keys: list[str], host_indices: Any, extra_info: Any = None) -> list[bool]:
        try:
            if self._kv is None:
                # a pool that only counts tokens has nothing to load; otherwise nothing was loaded
                return [self._is_logical()] * len(keys)
            return self._load(self._kv, keys, host_indices)
        except Exception as e:
            self._trouble("load", e, "failed_load_pages", len(keys))
            return [False] * len(keys)

    def batch_get_v2(self, transfers: list[Any], extra_info: Any = None) -> dict[str, list[bool]]:
        return self._each_pool("load", "failed_load_pages", transfers, self._load)

    def _load(self, pages: Pages, hashes: Sequence[str], host_indices: Any) -> list[bool]:
        keys = pages.keys(hashes)
        try:
            return self._load_into(keys, pages.pieces(host_indices, len(keys)), [pages.nbytes] * len(keys))
        finally:
            self._leases.loaded(keys)

    def _load_into(self, keys: list[bytes], buffers: Sequence[Any], sizes: Sequence[int]) -> list[bool]:
        begin = time.monotonic()
        good = [False] * len(keys)
        for at, part in zip(range(0, len(keys), OPS_MAX), _parts(keys, OPS_MAX)):
            try:
                results = self._pool.get_many(part, buffers[at:at + OPS_MAX], timeout=self.options.timeout_s,
                                              hard=self.options.hard_deadline)
            except kvblk.KvblkError as e:
                self._trouble("load", e, "failed_load_pages", len(part))
                continue
            for i, result in enumerate(results, at):
                if isinstance(result, kvblk.KvblkError) and not adapter.is_wrong(result, sizes[i]):
                    self._trouble("load", result, "failed_load_pages", 1)
                elif result is None:
                    self._count(missed_pages=1)
                elif adapter.is_wrong(result, sizes[i]):
                    self._count(wrong_length_pages=1)
                else:
                    good[i] = True
            self._refuse(part, results, sizes[at:at + OPS_MAX])
        self._know(key for key, is_good in zip(keys, good) if is_good)
        self._count(loaded_pages=sum(good))
        self._measure("prefetch", sum(good), sum(s for s, is_good in zip(sizes, good) if is_good), begin)
        return good

    # Stores

    def batch_set_v1(self, keys: list[str], host_indices: Any, extra_info: Any = None) -> list[bool]:
        try:
            if self._kv is None:
                return [self._is_logical()] * len(keys)
            return self._store(self._kv, keys, host_indices, _parent(extra_info))
        except Exception as e:
            self._trouble("store", e, "failed_store_pages", len(keys))
            return [False] * len(keys)

    def batch_set_v2(self, transfers: list[Any], extra_info: Any = None) -> dict[str, list[bool]]:
        return self._each_pool("store", "failed_store_pages", transfers, self._store, _parent(extra_info))

    def _store(self, pages: Pages, hashes: Sequence[str], host_indices: Any, parent: str | None) -> list[bool]:
        keys = pages.keys(hashes)
        return self._store_from(keys, pages.pieces(host_indices, len(keys)), [pages.nbytes] * len(keys),
                                pages.keys([parent])[0] if parent else b"")

    def _store_from(self, keys: list[bytes], buffers: Sequence[Any], sizes: Sequence[int],
                    parent: bytes) -> list[bool]:
        begin = time.monotonic()
        good = [False] * len(keys)
        written = written_bytes = 0
        for at, part in zip(range(0, len(keys), OPS_MAX), _parts(keys, OPS_MAX)):
            # a full batch may continue: SGLang splits a prompt into batches of this size
            more = at + len(part) < len(keys) or len(keys) == STORAGE_BATCH_SIZE
            try:
                results = self._pool.put_many(part, buffers[at:at + OPS_MAX], chain=True, continues=more,
                                              parent=parent, **self.options.put_options())
            except kvblk.KvblkError as e:
                self._trouble("store", e, "failed_store_pages", len(part))
                break
            parent = part[-1]
            for i, result in enumerate(results, at):
                if isinstance(result, kvblk.KvblkError):
                    self._trouble("store", result, "failed_store_pages", 1)
                    continue
                good[i] = bool(result)
                self._count(**{_PUT_COUNTERS[result]: 1})
                if result is kvblk.Put.STORED:
                    written += 1
                    written_bytes += sizes[i]
            self._refuse(part, results, sizes[at:at + OPS_MAX])
        self._know(key for key, is_good in zip(keys, good) if is_good)
        self._measure("backup", written, written_bytes, begin)
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

    def _refuse(self, keys: list[bytes], results: Sequence[Any], sizes: Sequence[int]) -> None:
        """Delete blocks whose load or store showed another length."""
        wrong = [key for key, result, size in zip(keys, results, sizes) if adapter.is_wrong(result, size)]
        if wrong:
            self._checked.refuse(wrong, "it has another length than SGLang's pages")

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
                self._leases.loaded(ids)
            return [t if is_good else None for t, is_good in zip(target_locations, good)]
        except Exception as e:
            self._trouble("load", e, "failed_load_pages", len(keys))
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
            self._trouble("store", e, "failed_store_pages", len(keys))
            return False

    # The rest

    def clear(self) -> bool:
        """Delete the blocks that this process stored or loaded; returns False if some remain."""
        with self._lock:
            keys, self._known = list(self._known), set()
            complete, self._forgot = not self._forgot, False
        deleted = 0
        for part in _parts(keys, OPS_MAX):
            try:
                for result in self._pool.delete_many(part):
                    if isinstance(result, kvblk.KvblkError):
                        raise result
                    deleted += result
            except Exception as e:
                complete = False
                self._trouble("delete", e)
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
                self.counters["expired_leases"] = self._leases.expired
                stats.kvblk = dict(self.counters)
            return stats
        except Exception as e:
            self._trouble("statistics", e)
            return None

    def close(self) -> None:
        """End leases, unregister memory, close the pool. Later calls miss."""
        try:
            self._leases.release()
            self._pool.close()
            logger.info("kvblk pool %s: closed; %s", self.options.pool,
                        ", ".join(f"{name} {count}" for name, count in self.counters.items() if count))
        except Exception as e:
            self._trouble("close", e)

    def _count(self, **numbers: int) -> None:
        with self._lock:
            for name, number in numbers.items():
                self.counters[name] += number

    def _measure(self, what: str, pages: int, nbytes: int, begin: float) -> None:
        if self.storage_config.enable_storage_metrics and pages:
            with self._lock:
                self._measured[f"{what}_pgs"].append(pages)
                self._measured[f"{what}_bandwidth"].append(nbytes / 1e9 / max(time.monotonic() - begin, 1e-9))

    def _know(self, keys: Any) -> None:
        with self._lock:
            self._known.update(keys)
            if len(self._known) > KNOWN_MAX:
                self._forgot = True
                while len(self._known) > KNOWN_MAX:
                    self._known.pop()

    def _trouble(self, what: str, error: BaseException, counter: str | None = None, count: int = 0) -> None:
        """Count an error, and log a rate-limited warning."""
        if counter:
            self._count(**{counter: count})
        if isinstance(error, (kvblk.KvblkError, ValueError)):
            self._warnings.tell(what, error)
        else:
            self._warnings.tell(what, repr(error))
            logger.debug("kvblk: %s", what, exc_info=error)


_PUT_COUNTERS = {kvblk.Put.STORED: "stored_pages", kvblk.Put.EXISTS: "present_pages",
                 kvblk.Put.PENDING: "present_pages", kvblk.Put.DECLINED: "declined_pages",
                 kvblk.Put.DIFFERS: "wrong_length_pages"}


def _parts(items: list[bytes], most: int) -> list[list[bytes]]:
    return [items[at:at + most] for at in range(0, len(items), most)]


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
