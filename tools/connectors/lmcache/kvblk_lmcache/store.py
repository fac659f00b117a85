# SPDX-License-Identifier: MIT
"""The common part of all interfaces to LMCache: open pool, leases, registered memory, counters."""

from __future__ import annotations

import collections
import errno
import logging
import threading
import time
from collections.abc import Iterable, Sequence

import kvblk
from kvblk import adapter
from kvblk.pool import LOOKUP_MAX
from lmcache.logging import init_logger

from .options import VERSION, Options

log: logging.Logger = init_logger(__name__)


def runtime(interface: str) -> str:
    """Name of the layout of blocks: LMCache does not version it, but keeps it within a minor release."""
    return f"{interface}/{'.'.join(VERSION.split('.')[:2])}"


class Report:
    """Count events, and log rate-limited warnings."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: collections.Counter[str] = collections.Counter()
        self._warnings = adapter.Warnings(log)

    def count(self, what: str, number: int = 1) -> None:
        with self._lock:
            self._counts[what] += number

    def trouble(self, what: str, why: object, number: int = 1) -> None:
        self.count(what, number)
        self._warnings.tell(what.replace("_", " "), why)

    def counts(self) -> dict[str, int]:
        with self._lock:
            return dict(self._counts)


class _Held:
    __slots__ = ("lease", "keys", "until")

    def __init__(self, lease: kvblk.Lease, keys: set[bytes], until: float):
        self.lease = lease
        self.keys = keys
        self.until = until


class Leases:
    """Leases of lookups, each held until its blocks are loaded or given up.

    LMCache does not connect a load with its lookup. A load ends the latest lease that covers its blocks, so a remaining
    lease expires first.
    """

    def __init__(self, report: Report) -> None:
        self._lock = threading.Lock()
        self._held: list[_Held] = []
        self._report = report

    def __len__(self) -> int:
        with self._lock:
            return len(self._held)

    def hold(self, lease: kvblk.Lease, keys: Iterable[bytes], seconds: float) -> None:
        now = time.monotonic()
        with self._lock:
            # the kernel has ended expired leases
            self._held = [held for held in self._held if held.until > now]
            self._held.append(_Held(lease, set(keys), now + seconds))

    def loaded(self, keys: Iterable[bytes]) -> None:
        """End the lease of the lookup that found these keys: they are loaded."""
        wanted = set(keys)
        with self._lock:
            for held in reversed(self._held):
                if wanted and wanted <= held.keys:
                    self._held.remove(held)
                    break
            else:
                return
        self._release(held)

    def give_up(self, keys: Iterable[bytes]) -> bool:
        """Give up keys of a lookup; its lease ends with the last of them. Returns True if there was a lease."""
        wanted = set(keys)
        over = []
        found = False
        with self._lock:
            for held in reversed(self._held):
                both = held.keys & wanted
                if both:
                    found = True
                    held.keys -= both
                    wanted -= both
                    if not held.keys:
                        over.append(held)
            self._held = [held for held in self._held if held.keys]
        for held in over:
            self._release(held)
        return found

    def clear(self) -> None:
        with self._lock:
            over, self._held = self._held, []
        for held in over:
            self._release(held)

    def _release(self, held: _Held) -> None:
        try:
            held.lease.release()
        except (kvblk.KvblkError, ValueError) as e:
            self._report.trouble("leases_not_released", e)


class Store:
    """An open pool with the options of the configuration."""

    def __init__(self, options: Options):
        self.options = options
        self.report = Report()
        self.leases = Leases(self.report)
        self.pool = options.open()
        self.checked = adapter.Checked(self.pool, lambda doing, what: self.report.trouble(doing.replace(" ", "_"), what))
        self.value_max = self.pool.info().value_max

    def register(self, address: int, length: int) -> None:
        """Pin LMCache's memory once, so that operations need not pin it."""
        adapter.register_slab(self.pool, address, length, self.value_max, log)

    def present(self, keys: list[bytes], lengths: Sequence[int], *, lease: bool) -> list[bool]:
        """Return which keys are in the pool with these lengths (0: any); ``lease``: lease the blocks found."""
        seconds = self.options.lease_s if lease else 0
        found: list[bool] = []
        try:
            for start in range(0, len(keys), LOOKUP_MAX):
                part = keys[start:start + LOOKUP_MAX]
                answer = self.checked.look_up(part, lengths[start:start + LOOKUP_MAX], lease=seconds)
                if answer.lease:
                    self.leases.hold(answer.lease, (key for key, there in zip(part, answer.there) if there), seconds)
                found += answer.there
        except (kvblk.KvblkError, ValueError) as e:
            self.report.trouble("lookups_failed", e)
        found += [False] * (len(keys) - len(found))
        self.report.count("looked_up", len(keys))
        self.report.count("found", sum(found))
        return found

    def of_another_tag(self, keys: list[bytes], tag: int) -> list[bytes]:
        """Return which of up to 1024 keys are in the pool with another caller tag."""
        try:
            answer = self.pool.lookup(keys, tags=True)
        except (kvblk.KvblkError, ValueError) as e:
            self.report.trouble("lookups_failed", e)
            return []
        return [key for i, (key, has) in enumerate(zip(keys, answer.tags or ())) if answer[i] and has != tag]

    def fits(self, length: int) -> bool:
        """Return True if the pool accepts blocks of this length."""
        if 0 < length <= self.value_max:
            return True
        self.report.trouble("blocks_too_long", f"{length} bytes, the pool takes 1 to {self.value_max}; lower "
                            "LMCache's chunk size")
        return False

    def stored(self, result: kvblk.Put | kvblk.KvblkError) -> bool:
        """Count the result of a put; returns True if the pool has the block."""
        if isinstance(result, kvblk.KvblkError):
            self._failed("puts_failed", result)
            return False
        self.report.count("puts_declined" if result is kvblk.Put.DECLINED else "put")
        return bool(result)

    def loaded(self, result: int | None | kvblk.KvblkError, length: int) -> bool:
        """Count the result of a get; returns True if it filled its buffer."""
        if result == length:
            self.report.count("got")
            return True
        if result is None:
            self.report.count("gets_missed")
        elif isinstance(result, int) or result.errno == errno.EMSGSIZE:
            self.report.trouble("gets_of_another_length", f"the block does not have the {length} bytes that LMCache "
                                "asks for: do two configurations share model name, layout and salt?")
        else:
            self._failed("gets_failed", result)
        return False

    def deleted(self, result: bool | kvblk.KvblkError) -> bool:
        """Count the result of a delete; returns True if it removed a block."""
        if isinstance(result, kvblk.KvblkError):
            self._failed("deletes_failed", result)
            return False
        return result

    def _failed(self, what: str, error: kvblk.KvblkError) -> None:
        if error.errno == errno.ECANCELED:
            self.report.count("canceled")
        else:
            self.report.trouble(what, error)

    def close(self) -> None:
        self.leases.clear()
        self.pool.close()
