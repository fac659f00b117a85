# SPDX-License-Identifier: MIT
"""Counters and log of the parts of the adapter."""

from __future__ import annotations

import collections
import logging
from typing import Any

from kvblk import adapter

log = logging.getLogger("vllm.kvblk")

#: prefix of metric names
PROMETHEUS = "vllm:kvblk_"

_reports: list[Report] = []


def counters() -> dict[str, int]:
    """Return the counters of the adapter in this process, for tests and debugging; the engine gets those of each part."""
    return dict(sum((report.counts() for report in _reports), collections.Counter[str]()))


class Report(adapter.Report):
    """Counters and log of one part of the adapter."""

    def __init__(self, part: str):
        super().__init__(log, f"kvblk {part}")
        _reports.append(self)


def stats_of(report: Report, stats: Any) -> Any:
    """Add new counts to an OffloadingConnectorStats; returns None if there are none."""
    new = report.take()
    for name, by in new.items():
        stats.increase_counter(PROMETHEUS + name, by)
    return stats if new else None
