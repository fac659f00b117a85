# SPDX-License-Identifier: MIT
"""Counters, and rate-limited warnings."""

from __future__ import annotations

import errno
import logging
import threading
from collections.abc import Iterable
from typing import Any

from kvblk import KvblkError, Put
from kvblk.adapter import Warnings

log = logging.getLogger("vllm.kvblk")

#: counters of the whole process, for tests and debugging; the engine gets those of each part
_total: dict[str, int] = {}
_lock = threading.Lock()

#: counters and their descriptions
COUNTERS = {
    "lookup_calls": "Lookups asked of the kvblk pool, each of many blocks.",
    "lookup_blocks": "Blocks that lookups asked for.",
    "lookup_hits": "Blocks that lookups found, and leased.",
    "lookup_errors": "Lookups that failed, which count as misses.",
    "load_blocks": "Blocks loaded from the kvblk pool.",
    "load_bytes": "Bytes loaded from the kvblk pool.",
    "load_misses": "Blocks that were gone, or of another length, when they were to be loaded.",
    "load_errors": "Blocks that could not be loaded because of an error, deadlines included.",
    "store_blocks": "Blocks stored in the kvblk pool.",
    "store_bytes": "Bytes stored in the kvblk pool.",
    "store_present": "Blocks not stored because the pool had them, or was getting them.",
    "store_declined": "Blocks that the pool's admission policy declined.",
    "store_errors": "Blocks that could not be stored because of an error, deadlines included.",
}


def counters() -> dict[str, int]:
    """Return the counters of the adapter in this process."""
    with _lock:
        return dict(_total)


class Report:
    """Counters and log of one part of the adapter."""

    def __init__(self, part: str):
        self.part = part
        self._new: dict[str, int] = {}
        #: Warnings.tell(): rate-limited warning about an action and its error
        self.error = Warnings(log, f"kvblk {part}").tell

    def count(self, name: str, by: int = 1) -> None:
        if not by:
            return
        with _lock:
            _total[name] = _total.get(name, 0) + by
            self._new[name] = self._new.get(name, 0) + by

    def take(self) -> dict[str, int]:
        """Return the counters since the last call."""
        with _lock:
            new, self._new = self._new, {}
        return new

    def summary(self) -> str:
        """Return the counters of this process as text."""
        return ", ".join(f"{name} {number}" for name, number in sorted(counters().items())) or "nothing to count"

    def stored(self, results: Iterable[Put | KvblkError], sizes: Iterable[int]) -> list[bool]:
        """Count results of puts; returns which blocks the pool has now."""
        there = []
        for result, size in zip(results, sizes):
            if isinstance(result, KvblkError):
                self.count("store_errors")
                self.error("a block was not stored", result)
            elif result is Put.STORED:
                self.count("store_blocks")
                self.count("store_bytes", size)
            else:
                self.count("store_declined" if result is Put.DECLINED else "store_present")
            there.append(not isinstance(result, KvblkError) and bool(result))
        return there

    def loaded(self, results: Iterable[int | None | KvblkError], sizes: Iterable[int]) -> list[bool]:
        """Count results of gets; returns which blocks were loaded completely."""
        there = []
        for result, size in zip(results, sizes):
            if isinstance(result, KvblkError) and result.errno != errno.EMSGSIZE:
                self.count("load_errors")
                self.error("a block was not loaded", result)
            elif result != size:
                # a different length means a different block; a longer one fails with EMSGSIZE
                self.count("load_misses")
            else:
                self.count("load_blocks")
                self.count("load_bytes", size)
            there.append(result == size)
        return there


def stats_of(report: Report, stats: Any) -> Any:
    """Add new counts to an OffloadingConnectorStats; returns None if there are none."""
    new = report.take()
    for name, by in new.items():
        stats.increase_counter(PROMETHEUS + name, by)
    return stats if new else None


#: prefix of metric names
PROMETHEUS = "vllm:kvblk_"
