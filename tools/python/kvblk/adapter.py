# SPDX-License-Identifier: MIT
"""What adapters for runtimes share: options of a configuration, the runtime's version, lookups that check lengths, a
slab of memory, warnings once in a while.

The adapters are in tools/connectors; one of your own may use this, too.
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
from .pool import OPS_MAX, Lease, Pool, Put

_KINDS = {str: "text", int: "whole number", float: "number", bool: "true or false"}
_Options = TypeVar("_Options", bound="Options")


@dataclasses.dataclass(frozen=True)
class Options:
    """Options that all adapters have; an adapter's own are fields of a subclass, with limits in ``LIMITS``.

    An unknown option, a bad value or a pool that is not there is an error of one sentence.

    >>> Options.read({"pool": "kv0", "priority": 2}, "the example").priority
    2
    >>> Options.read({"pool": "kv0", "prio": 2}, "the example")
    Traceback (most recent call last):
      ...
    ValueError: kvblk: the example has the unknown option 'prio'; there are pool, threads, lease_s, timeout_s, ttl_s, \
priority, salt, any_version
    """

    #: name of a pool, or path of a node
    pool: str = ""
    #: batches in flight at a time
    threads: int = 8
    #: seconds for which what a lookup found stays readable
    lease_s: float = 60.0
    #: deadline of a put or get, seconds
    timeout_s: float = 10.0
    #: seconds until a block is gone, 0: never
    ttl_s: float = 0.0
    #: 0 (evicted first) to 3
    priority: int = 0
    #: blocks of another salt are other blocks
    salt: str = ""
    #: start with a version of the runtime that the adapter was not tested with
    any_version: bool = False

    #: lowest and highest value of numbers
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
            # what is not a number is not between two
            if name in self.LIMITS and not low <= value <= high:
                raise ValueError(f"kvblk: the option {name} is {value}, should be {low:g} to {high:g}")
            if kind is str and "\0" in value:
                raise ValueError(f"kvblk: the option {name} has a zero byte")
        if not self.pool:
            raise ValueError('kvblk: the option "pool" is missing: the name of a pool, or the path of its node')

    @classmethod
    def read(cls: type[_Options], given: Any, where: str) -> _Options:
        """Options out of a dictionary of a configuration, which ``where`` names."""
        if not isinstance(given, Mapping):
            raise ValueError(f'kvblk: {where} needs a dictionary with at least "pool", not {given!r}')
        known = [field.name for field in dataclasses.fields(cls)]
        for name in given:
            if name not in known:
                raise ValueError(f"kvblk: {where} has the unknown option {name!r}; there are {', '.join(known)}")
        return cls(**given)

    def open(self) -> Pool:
        """The pool; RuntimeError: it can't be opened."""
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

    def check_version(self, runtime: str, version: str, tested: Sequence[str]) -> None:
        """Refuse a version of the runtime that is none of the series ``tested``, unless the options say otherwise.

        What an adapter takes from a runtime may have another name or meaning there, and blocks outlive the process.
        Whatever the options say, name the version in the keys.

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
        """For ``Pool.put_many()`` and the like."""
        return {"priority": self.priority, "ttl": self.ttl_s, "timeout": self.timeout_s}


class Warnings:
    """Warnings to a log, of each kind at most one in ``INTERVAL`` seconds, with the number of those left out."""

    INTERVAL = 30.0

    def __init__(self, log: logging.Logger, who: str = "kvblk"):
        self.log = log
        self.who = who
        self._lock = threading.Lock()
        self._told: dict[str, tuple[float, int]] = {}

    def tell(self, doing: str, what: object) -> None:
        """``what`` went wrong when ``doing`` was done: an exception, or a sentence."""
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
    """The answer to :meth:`Checked.look_up`."""

    #: of each key: whether its block is there, with the right length
    there: list[bool]
    #: and whether that is leased
    leased: list[bool]
    lease: Lease

    @property
    def leading(self) -> int:
        """How many are there from the first one on."""
        return self.there.index(False) if False in self.there else len(self.there)


class Checked:
    """A pool of whose blocks it is known how long they should be.

    A put changes nothing under a key that is there. So a block of another length, whoever stored it, would be found by
    each lookup, loaded by none, and replaced by no store. It is deleted, and counts as absent.

    >>> with Pool(POOL) as pool:
    ...     checked = Checked(pool, lambda doing, what: None)
    ...     pool.put(b"checked", b"too long")
    ...     checked.look_up([b"checked"], [4]).there, b"checked" in pool
    <Put.STORED: 'stored'>
    ([False], False)
    """

    def __init__(self, pool: Pool, tell: Callable[[str, object], None]):
        self._pool = pool
        #: as of :class:`Warnings`
        self._tell = tell

    def look_up(self, keys: Sequence[bytes], lengths: Sequence[int], *, lease: float = 0, prefix: bool = False) -> Found:
        """As Pool.lookup(); ``lengths``: of each key's block, 0 where that is not known."""
        answer = self._pool.lookup(keys, lease=lease, prefix=prefix, sizes=True)
        sizes = answer.sizes or []
        there = [size > 0 for size in sizes]
        leased = there
        if answer.leased < answer.present:
            # the first ones are
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
        """Delete blocks that are not what their keys say."""
        self._tell("blocks deleted that others stored under our keys", ValueError(why))
        for start in range(0, len(keys), OPS_MAX):
            try:
                for result in self._pool.delete_many(keys[start:start + OPS_MAX]):
                    if isinstance(result, KvblkError):
                        self._tell("a wrong block was not deleted", result)
            except (KvblkError, ValueError) as e:
                self._tell("wrong blocks were not deleted", e)


def is_wrong(result: object, length: int) -> bool:
    """Whether the result of a put or get of so many bytes says that the key's block has another length."""
    if isinstance(result, KvblkError):
        return result.errno == errno.EMSGSIZE
    return result is Put.DIFFERS or isinstance(result, int) and result != length


#: bytes that are registered as one: the library takes up to 64 GiB
REGION = 32 << 30


#: longest block that staged memory takes if nothing is said
STAGED = 16 << 20


def register_slab(pool: Pool, address: int, length: int, longest: int, log: logging.Logger, region: int = REGION,
                  block: int = 0) -> str:
    """Register a runtime's memory, once; how operations reach it: "registered", "addressed", "staged", or "": not so.

    No piece of an operation is longer than ``longest``: regions overlap by that much, so that each piece lies in one.
    ``block``: the longest block, of all its pieces.
    If the limit on locked memory is too low, that is one warning, and operations pin their memory each time.
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
