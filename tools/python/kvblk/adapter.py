# SPDX-License-Identifier: MIT
"""Common parts of adapters for runtimes: options, version checks, leases, lookups that check lengths, slab registration,
counters, rate-limited warnings.

Used by the adapters in tools/connectors, and available to your own.
"""

from __future__ import annotations

import collections
import dataclasses
import errno
import itertools
import logging
import threading
import time
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, TypeVar

from .errors import Action, KvblkError
from .keys import SALT_FILE, deployment_salt
from .pool import Pool
from .results import Lease, Put

_KINDS = {str: "text", int: "whole number", float: "number", bool: "true or false"}
_Options = TypeVar("_Options", bound="Options")


@dataclasses.dataclass(frozen=True)
class Options:
    """Options common to all adapters. An adapter adds fields in a subclass, with their limits in ``LIMITS``.

    Raises a one-sentence error for an unknown option, an invalid value or a missing pool.

    >>> Options.read({"pool": "kv0", "priority": 2}, "the example").priority
    2
    >>> Options.read({"pool": "kv0", "prio": 2}, "the example")
    Traceback (most recent call last):
      ...
    ValueError: kvblk: the example has the unknown option 'prio'; there are pool, threads, lease_s, timeout_s, ttl_s, \
priority, salt, salt_file, any_version
    """

    #: name of the pool, or path of a node
    pool: str = ""
    #: most batches in flight at once
    threads: int = 8
    #: seconds for which the blocks found by a lookup stay readable
    lease_s: float = 60.0
    #: deadline of a put or get, in seconds
    timeout_s: float = 10.0
    #: time to live of a block in seconds; 0: no expiry
    ttl_s: float = 0.0
    #: 0 (evicted first) to 3
    priority: int = 0
    #: part of the keys: runtimes with different salts share no blocks
    salt: str = ""
    #: file of the deployment's salt, which is part of the keys, too; "": none
    salt_file: str = SALT_FILE
    #: accept a version of the runtime without a test of the adapter
    any_version: bool = False

    #: lowest and highest value of each number
    LIMITS: ClassVar[dict[str, tuple[float, float]]] = {
        "threads": (1, 64), "lease_s": (0.001, 3600), "timeout_s": (0.001, 3600), "ttl_s": (0, 2**30),
        "priority": (0, 3),
    }

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            name, value = field.name, getattr(self, field.name)
            kind: Any = type(field.default)
            if kind is float and type(value) is int:
                value = float(value)
                object.__setattr__(self, name, value)
            if type(value) is not kind:
                raise ValueError(f"kvblk: the option {name} is {value!r}, should be a {_KINDS[kind]}")
            low, high = self.LIMITS.get(name, (0, 0))
            # NaN fails this comparison, too
            if name in self.LIMITS and not low <= value <= high:
                raise ValueError(f"kvblk: the option {name} is {value}, should be {low:g} to {high:g}")
            if kind is str and "\0" in value:
                raise ValueError(f"kvblk: the option {name} has a zero byte")
        if not self.pool:
            raise ValueError('kvblk: the option "pool" is missing: the name of a pool, or the path of its node')

    @classmethod
    def read(cls: type[_Options], given: Any, where: str) -> _Options:
        """Read options from a dictionary of a configuration; ``where`` names it in errors."""
        if not isinstance(given, Mapping):
            raise ValueError(f'kvblk: {where} needs a dictionary with at least "pool", not {given!r}')
        known = [field.name for field in dataclasses.fields(cls)]
        for name in given:
            if name not in known:
                raise ValueError(f"kvblk: {where} has the unknown option {name!r}; there are {', '.join(known)}")
        return cls(**given)

    def open(self) -> Pool:
        """Open the pool; raises RuntimeError if that fails."""
        try:
            pool = Pool(self.pool)
        except KvblkError as e:
            raise RuntimeError(f"kvblk: the pool {self.pool!r} can't be opened: {e.strerror} (errno {e.errno}); "
                               "`kvblk pool list` shows the pools of this host") from e
        longest = pool.get_info().lease_ms_max / 1000
        if longest and self.lease_s > longest:
            pool.close()
            raise ValueError(f"kvblk: the option lease_s is {self.lease_s:g}, the pool allows up to {longest:g}")
        return pool

    def secret(self) -> str:
        """Return the deployment's salt, for ``Keyspace(secret=...)``, or "" without one.

        Raises RuntimeError if it can't be used, because an adapter must not fall back to keys that others can guess.
        """
        try:
            return deployment_salt(self.salt_file)
        except KvblkError as e:
            raise RuntimeError(f"kvblk: {e.strerror}; `kvblk keyspace` shows it, and the option salt_file names another file "
                               '("": none)') from e

    def check_version(self, runtime: str, version: str, tested: Sequence[str]) -> None:
        """Raise ValueError for a version of the runtime outside the series ``tested``, unless ``any_version`` is set.

        In another version the interfaces that an adapter uses may have changed, and blocks outlive the process. Include
        the version in the keys in any case.

        >>> Options("kv0").check_version("example", "1.2.3", ["1.2"])
        >>> Options("kv0").check_version("example", "1.20", ["1.1", "1.2"])
        Traceback (most recent call last):
          ...
        ValueError: kvblk: this adapter was tested with example 1.1, 1.2, and 1.20 is installed: install one of those, or \
set the option any_version to true to try it
        """
        if not self.any_version and not any(f"{version}.".startswith(f"{series}.") for series in tested):
            raise ValueError(f"kvblk: this adapter was tested with {runtime} {', '.join(tested)}, and {version} is installed: "
                             "install one of those, or set the option any_version to true to try it")

    def put_options(self) -> dict[str, Any]:
        """Return the options of a put, for ``Pool.put_many()`` and similar calls."""
        return {"priority": self.priority, "ttl": self.ttl_s, "timeout": self.timeout_s}


#: counters of all adapters, and their descriptions
COUNTERS = {
    "lookup_calls": "Lookups asked of the kvblk pool, each of many blocks.",
    "lookup_blocks": "Blocks that lookups asked for.",
    "lookup_hits": "Blocks that lookups found.",
    "lookup_errors": "Lookups that failed, which count as misses.",
    "load_blocks": "Blocks loaded from the kvblk pool.",
    "load_bytes": "Bytes loaded from the kvblk pool.",
    "load_misses": "Blocks that were gone, or of another length, when they were to be loaded.",
    "load_errors": "Blocks that could not be loaded because of an error, deadlines included.",
    "store_blocks": "Blocks stored in the kvblk pool.",
    "store_bytes": "Bytes stored in the kvblk pool.",
    "store_present": "Blocks not stored because the pool had them, or was getting them.",
    "store_declined": "Blocks that the pool did not take: declined, canceled, or without space.",
    "store_errors": "Blocks that could not be stored because of an error, deadlines included.",
    "delete_errors": "Blocks that could not be deleted.",
    "wrong_blocks": "Blocks deleted because others stored them under keys of this runtime.",
    "lease_expired": "Leases that ended by their time, because their blocks were not loaded.",
}


class Report:
    """Counters of an adapter, and a log of its errors; for any thread.

    The log has at most one message of each kind in ``INTERVAL`` seconds, with the number of those suppressed. Errors
    with ``Action.SKIP`` are not logged, because they are the pool's usual answers; ``Action.REPORT`` is an error, and
    the others are warnings.
    """

    INTERVAL = 30.0

    def __init__(self, log: logging.Logger, who: str = "kvblk"):
        self.log = log
        self.who = who
        self._lock = threading.Lock()
        self._told: dict[str, tuple[float, int]] = {}
        self._counts: collections.Counter[str] = collections.Counter()
        self._taken: collections.Counter[str] = collections.Counter()

    def tell(self, doing: str, what: object) -> None:
        """Log that ``what``, an exception or a sentence, happened while ``doing``."""
        action = getattr(what, "action", None)
        if action is Action.SKIP:
            return
        kind = f"{doing} {getattr(what, 'errno', None) or type(what).__name__}"
        now = time.monotonic()
        with self._lock:
            last, more = self._told.get(kind, (-self.INTERVAL, 0))
            if now - last < self.INTERVAL:
                self._told[kind] = last, more + 1
                return
            self._told[kind] = now, 0
        self.log.log(logging.ERROR if action is Action.REPORT else logging.WARNING, "%s: %s: %s%s", self.who, doing, what,
                     f" ({more} more of this kind since the last message)" if more else "")

    def count(self, name: str, by: int = 1) -> None:
        """Add to a counter: one of COUNTERS, or one of the adapter's own."""
        with self._lock:
            self._counts[name] += by

    def trouble(self, name: str, doing: str, what: object, by: int = 1) -> None:
        """Count and log an error."""
        self.count(name, by)
        self.tell(doing, what)

    def counts(self) -> collections.Counter[str]:
        """Return the counters since the start."""
        with self._lock:
            return self._counts.copy()

    def errors(self) -> int:
        """Return the number of errors, of all kinds in COUNTERS."""
        return sum(number for name, number in self.counts().items() if name in COUNTERS and name.endswith("_errors"))

    def take(self) -> dict[str, int]:
        """Return what was counted since the last call."""
        with self._lock:
            new = self._counts - self._taken
            self._taken = self._counts.copy()
        return dict(new)

    def summary(self) -> str:
        """Return the counters as text."""
        return ", ".join(f"{name} {number}" for name, number in sorted(self.counts().items())) or "nothing to count"

    def stored(self, results: Iterable[Put | KvblkError], sizes: Iterable[int]) -> list[bool]:
        """Count results of puts; returns which blocks the pool has now."""
        there = []
        for result, size in zip(results, sizes):
            if result is Put.STORED:
                self.count("store_blocks")
                self.count("store_bytes", size)
            elif isinstance(result, KvblkError) and result.action is not Action.SKIP:
                self.trouble("store_errors", "a block was not stored", result)
            else:
                self.count("store_present" if isinstance(result, Put) and result is not Put.DECLINED else "store_declined")
            there.append(isinstance(result, Put) and bool(result))
        return there

    def loaded(self, results: Iterable[int | None | KvblkError], sizes: Iterable[int]) -> list[bool]:
        """Count results of gets; returns which blocks were loaded completely."""
        there = []
        for result, size in zip(results, sizes):
            if result == size:
                self.count("load_blocks")
                self.count("load_bytes", size)
            elif isinstance(result, KvblkError) and not is_wrong(result, size):
                self.trouble("load_errors", "a block was not loaded", result)
            else:
                self.count("load_misses")
            there.append(result == size)
        return there

    def deleted(self, results: Iterable[bool | KvblkError]) -> list[bool]:
        """Count results of deletes; returns which blocks were removed."""
        gone = []
        for result in results:
            if isinstance(result, KvblkError):
                self.trouble("delete_errors", "a block was not deleted", result)
            gone.append(result is True)
        return gone


class _Held:
    """A lease, and the names under which it is held."""

    __slots__ = ("lease", "names")

    def __init__(self, lease: Lease, names: set[Hashable]):
        self.lease = lease
        self.names = names


class Leases:
    """Leases from lookups to loads; for any thread.

    Each is held under names: the keys of its blocks, or what the runtime calls a request. It ends when all its names were
    dropped, or at its time. If several leases have a name, for requests that wait for the same block, the oldest is used.

    >>> with Pool(POOL) as pool:
    ...     leases = Leases(Report(logging.getLogger("example")))
    ...     pool.put(b"leased", b"x")
    ...     leases.hold(pool.lookup([b"leased"], lease=10).lease, [b"leased", b"also"])
    ...     leases.drop([b"leased"]), len(leases), leases.drop([b"also"]), len(leases), leases.drop([b"also"])
    <Put.STORED: 'stored'>
    (True, 1, True, 0, False)
    """

    def __init__(self, report: Report):
        self._report = report
        self._lock = threading.Lock()
        #: in the order of their ends, because an adapter's leases last equally long
        self._held: dict[_Held, None] = {}
        self._of_name: dict[Hashable, collections.deque[_Held]] = {}

    def __len__(self) -> int:
        with self._lock:
            return len(self._held)

    def hold(self, lease: Lease, names: Iterable[Hashable]) -> None:
        """Keep a lease until its names are dropped; without names, end it now."""
        held = _Held(lease, set(names))
        now = time.monotonic()
        with self._lock:
            while self._held and (first := next(iter(self._held))).lease.end <= now:
                # the kernel has ended the lease
                self._forget(first)
                self._report.count("lease_expired")
            if lease and held.names:
                self._held[held] = None
                for name in held.names:
                    self._of_name.setdefault(name, collections.deque()).append(held)
                return
        if lease:
            self._release([held])

    def drop(self, names: Iterable[Hashable]) -> bool:
        """Drop names, which were loaded or will not be. Returns True if a lease had one of them."""
        over = []
        found = False
        with self._lock:
            for name in names:
                if name not in self._of_name:
                    continue
                found = True
                held = self._of_name[name][0]
                self._unname(held, name)
                if not held.names:
                    del self._held[held]
                    over.append(held)
        self._release(over)
        return found

    def end(self, names: Iterable[Hashable]) -> bool:
        """End the oldest lease that has all of these names. Returns True if there was one."""
        wanted = set(names)
        with self._lock:
            for held in self._of_name.get(next(iter(wanted), None), ()):
                if wanted <= held.names:
                    self._forget(held)
                    break
            else:
                return False
        self._release([held])
        return True

    def clear(self) -> None:
        """End all leases."""
        with self._lock:
            over, self._held, self._of_name = self._held, {}, {}
        self._release(over)

    def _forget(self, held: _Held) -> None:
        del self._held[held]
        for name in [*held.names]:
            self._unname(held, name)

    def _unname(self, held: _Held, name: Hashable) -> None:
        held.names.discard(name)
        waiting = self._of_name[name]
        waiting.remove(held)
        if not waiting:
            del self._of_name[name]

    def _release(self, over: Iterable[_Held]) -> None:
        for held in over:
            try:
                held.lease.release()
            except (KvblkError, ValueError) as e:
                self._report.tell("a lease was not released, it ends by itself", e)


def worth_loading(times: Sequence[float], compute_s: float) -> int:
    """Return how many leading blocks to load, and to compute the others, so that both together take least.

    ``times``: seconds until the blocks up to each are loaded. ``compute_s``: seconds to compute one block.

    >>> worth_loading([0.1, 0.2, 0.3, 2.0, 2.1], 1.0), worth_loading([0.1, 0.2, 0.3, 2.0, 2.1], 0.5)
    (5, 3)
    >>> worth_loading([3.0, 3.1], 0.5), worth_loading([0.0, 0.0], 0.5)
    (0, 2)
    """
    best, least = 0, 0.0
    for number, loaded in enumerate(times, 1):
        saved = loaded - number * compute_s
        if saved <= least:
            best, least = number, saved
    return best


class Found(NamedTuple):
    """Result of :meth:`Checked.look_up`."""

    #: for each key: its block is present and has the right length
    there: list[bool]
    #: for each key: its block is present and leased
    leased: list[bool]
    lease: Lease
    #: number of leading keys whose blocks to load; of a prefix ``leading`` or, if computing is faster, less; else all
    worth: int

    @property
    def leading(self) -> int:
        """Number of leading keys whose blocks are present."""
        return self.there.index(False) if False in self.there else len(self.there)


@dataclasses.dataclass(frozen=True)
class CheckedOptions(Options):
    """Options of adapters that look up by :class:`Checked`."""

    #: milliseconds to compute a block; 0: always load what the pool has
    block_compute_ms: float = 0.0

    LIMITS: ClassVar[dict[str, tuple[float, float]]] = {**Options.LIMITS, "block_compute_ms": (0, 3600000)}


class Checked:
    """A pool whose block lengths the caller knows.

    A put does not replace an existing block. So a block of the wrong length would be found by each lookup, fail each
    load, and block each store. Such a block is deleted and reported as missing.

    >>> with Pool(POOL) as pool:
    ...     checked = Checked(pool, Report(logging.Logger("example", logging.CRITICAL)))
    ...     pool.put(b"checked", b"too long")
    ...     checked.look_up([b"checked"], [4]).there, b"checked" in pool
    <Put.STORED: 'stored'>
    ([False], False)
    """

    def __init__(self, pool: Pool, report: Report, compute_s: float = 0):
        """``compute_s``: seconds to compute one block; 0: load all blocks of a prefix, however long it takes."""
        self._pool = pool
        self.report = report
        self._compute_s = compute_s
        if compute_s and not pool.get_info().predicts:
            raise ValueError("kvblk: the option block_compute_ms needs a kernel module that predicts times: update it, or "
                             "leave the option out")

    def look_up(self, keys: Sequence[bytes], lengths: Sequence[int], *, lease: float = 0, prefix: bool = False) -> Found:
        """Like Pool.lookup(), with the expected ``lengths`` of the blocks; 0 if unknown."""
        times = {"times": True} if prefix and self._compute_s else {}
        answer = self._pool.lookup(keys, lease=lease, prefix=prefix, sizes=True, **times)
        sizes = answer.sizes or []
        there = [size > 0 for size in sizes]
        leased = there
        if answer.leased < answer.present:
            # leases cover the first blocks present
            left = itertools.count(answer.leased, -1)
            leased = [is_there and next(left) > 0 for is_there in there]
        if sizes != lengths:
            wrong = [i for i, (size, length) in enumerate(zip(sizes, lengths)) if size and length and size != length]
            if wrong:
                self.refuse([keys[i] for i in wrong], f"it has {sizes[wrong[0]]} bytes, not {lengths[wrong[0]]}")
                there = there.copy()
                for i in wrong:
                    there[i] = False
        worth = len(there)
        if prefix and False in there:
            worth = there.index(False)
            there = there[:worth] + [False] * (len(there) - worth)
        if answer.times is not None:
            worth = worth_loading(answer.times[:worth], self._compute_s)
        return Found(there, [a and b for a, b in zip(there, leased)], answer.lease, worth)

    def stored(self, keys: Sequence[bytes], results: Sequence[Put | KvblkError], sizes: Sequence[int]) -> list[bool]:
        """Report.stored(), and delete blocks of another length."""
        self._refuse_wrong(keys, results, sizes)
        return self.report.stored(results, sizes)

    def loaded(self, keys: Sequence[bytes], results: Sequence[int | None | KvblkError], sizes: Sequence[int]) -> list[bool]:
        """Report.loaded(), and delete blocks of another length."""
        self._refuse_wrong(keys, results, sizes)
        return self.report.loaded(results, sizes)

    def _refuse_wrong(self, keys: Sequence[bytes], results: Sequence[object], sizes: Sequence[int]) -> None:
        wrong = [key for key, result, size in zip(keys, results, sizes) if is_wrong(result, size)]
        if wrong:
            self.refuse(wrong, "it has another length than the runtime's blocks")

    def refuse(self, keys: Sequence[bytes], why: str) -> None:
        """Delete blocks whose content contradicts their keys."""
        self.report.trouble("wrong_blocks", "blocks deleted that others stored under our keys", ValueError(why), len(keys))
        try:
            self.report.deleted(self._pool.delete_many(keys))
        except (KvblkError, ValueError) as e:
            self.report.trouble("delete_errors", "wrong blocks were not deleted", e, len(keys))


def is_wrong(result: object, length: int) -> bool:
    """True if the result of a put or get of ``length`` bytes shows that the stored block has another length."""
    if isinstance(result, KvblkError):
        return result.errno == errno.EMSGSIZE
    return result is Put.DIFFERS or isinstance(result, int) and result != length


#: bytes per registration; the library's limit is 64 GiB
REGION = 32 << 30


#: default longest block of staged memory
STAGED = 16 << 20


def register_slab(pool: Pool, address: int, length: int, longest: int, log: logging.Logger, region: int = REGION,
                  block: int = 0) -> str:
    """Register a runtime's memory; returns its kind, "registered", "addressed" or "staged", or "" if that failed.

    ``longest`` is the longest piece of an operation: regions overlap by that length, so that each piece lies within
    one. ``block`` is the longest block. If the limit on locked memory is too low, logs one warning; operations then pin
    their memory each time.
    """
    kinds = set()
    block_max = block if block > STAGED else 0
    for start in range(0, length, region):
        size = min(region + longest, length - start)
        try:
            kinds.add(pool.register((address + start, size), block_max=block_max).kind)
        except KvblkError as e:
            log.warning("kvblk: %d bytes of memory can't be registered: %s (errno %s); each operation pins its memory "
                        "anew, which is slower. Raise the limit on locked memory: ulimit -l, LimitMEMLOCK= of "
                        "systemd, --ulimit memlock=-1 of docker", size, e.strerror, e.errno)
            return ""
    return "staged" if "staged" in kinds else "registered" if kinds == {"registered"} else "addressed"
