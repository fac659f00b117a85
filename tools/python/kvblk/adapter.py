# SPDX-License-Identifier: MIT
"""Common parts of adapters for runtimes: options, version checks, lookups that check lengths, slab registration,
rate-limited warnings.

Used by the adapters in tools/connectors, and available to your own.
"""

from __future__ import annotations

import dataclasses
import errno
import itertools
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, TypeVar

from .errors import KvblkError
from .keys import SALT_FILE, deployment_salt
from .pool import OPS_MAX, Pool
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
    #: accept a version of the runtime that the adapter was not tested with
    any_version: bool = False

    #: lowest and highest value of each number
    LIMITS: ClassVar[dict[str, tuple[float, float]]] = {
        "threads": (1, 64), "lease_s": (0.001, 3600), "timeout_s": (0.001, 3600), "ttl_s": (0, 2**32 - 1),
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
        longest = pool.info().lease_ms_max / 1000
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


class Warnings:
    """Log warnings, at most one of each kind in ``INTERVAL`` seconds, with the number of those suppressed."""

    INTERVAL = 30.0

    def __init__(self, log: logging.Logger, who: str = "kvblk"):
        self.log = log
        self.who = who
        self._lock = threading.Lock()
        self._told: dict[str, tuple[float, int]] = {}

    def tell(self, doing: str, what: object) -> None:
        """Warn that ``what``, an exception or a sentence, happened while ``doing``."""
        kind = f"{doing} {getattr(what, 'errno', None) or type(what).__name__}"
        now = time.monotonic()
        with self._lock:
            last, more = self._told.get(kind, (-self.INTERVAL, 0))
            if now - last < self.INTERVAL:
                self._told[kind] = last, more + 1
                return
            self._told[kind] = now, 0
        self.log.warning("%s: %s: %s%s", self.who, doing, what,
                         f" ({more} more of this kind since the last message)" if more else "")


class Found(NamedTuple):
    """Result of :meth:`Checked.look_up`."""

    #: for each key: its block is present and has the right length
    there: list[bool]
    #: for each key: its block is present and leased
    leased: list[bool]
    lease: Lease

    @property
    def leading(self) -> int:
        """Number of leading keys whose blocks are present."""
        return self.there.index(False) if False in self.there else len(self.there)


class Checked:
    """A pool whose block lengths the caller knows.

    A put does not replace an existing block. So a block of the wrong length would be found by each lookup, fail each
    load, and block each store. Such a block is deleted and reported as missing.

    >>> with Pool(POOL) as pool:
    ...     checked = Checked(pool, lambda doing, what: None)
    ...     pool.put(b"checked", b"too long")
    ...     checked.look_up([b"checked"], [4]).there, b"checked" in pool
    <Put.STORED: 'stored'>
    ([False], False)
    """

    def __init__(self, pool: Pool, tell: Callable[[str, object], None]):
        self._pool = pool
        #: callback like Warnings.tell()
        self._tell = tell

    def look_up(self, keys: Sequence[bytes], lengths: Sequence[int], *, lease: float = 0, prefix: bool = False) -> Found:
        """Like Pool.lookup(), with the expected ``lengths`` of the blocks; 0 if unknown."""
        answer = self._pool.lookup(keys, lease=lease, prefix=prefix, sizes=True)
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
        if prefix and False in there:
            end = there.index(False)
            there = there[:end] + [False] * (len(there) - end)
        return Found(there, [a and b for a, b in zip(there, leased)], answer.lease)

    def refuse(self, keys: Sequence[bytes], why: str) -> None:
        """Delete blocks whose content contradicts their keys."""
        self._tell("blocks deleted that others stored under our keys", ValueError(why))
        for start in range(0, len(keys), OPS_MAX):
            try:
                for result in self._pool.delete_many(keys[start:start + OPS_MAX]):
                    if isinstance(result, KvblkError):
                        self._tell("a wrong block was not deleted", result)
            except (KvblkError, ValueError) as e:
                self._tell("wrong blocks were not deleted", e)


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
