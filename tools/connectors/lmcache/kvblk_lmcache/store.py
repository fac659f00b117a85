# SPDX-License-Identifier: MIT
"""The common part of all interfaces to LMCache: open pool, leases, registered memory, counters."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import kvblk
from kvblk import adapter
from lmcache.logging import init_logger

from .options import VERSION, Options

log: logging.Logger = init_logger(__name__)


def runtime(interface: str) -> str:
    """Name of the layout of blocks: LMCache does not version it, but keeps it within a minor release."""
    return f"{interface}/{'.'.join(VERSION.split('.')[:2])}"


class Store:
    """An open pool with the options of the configuration."""

    def __init__(self, options: Options):
        self.options = options
        self.report = adapter.Report(log)
        self.leases = adapter.Leases(self.report)
        self.pool = options.open()
        self.checked = adapter.Checked(self.pool, self.report)
        self.value_max = self.pool.get_info().value_max

    def register(self, address: int, length: int) -> None:
        """Pin LMCache's memory once, so that operations need not pin it."""
        adapter.register_slab(self.pool, address, length, self.value_max, log)

    def present(self, keys: list[bytes], lengths: Sequence[int], *, lease: bool) -> list[bool]:
        """Return which keys are in the pool with these lengths (0: any); ``lease``: lease the blocks found."""
        try:
            answer = self.checked.look_up(keys, lengths, lease=self.options.lease_s if lease else 0)
        except (kvblk.KvblkError, ValueError) as e:
            self.report.trouble("lookup_errors", "a lookup failed", e)
            return [False] * len(keys)
        self.leases.hold(answer.lease, [key for key, there in zip(keys, answer.there) if there])
        self.looked_up(len(keys), sum(answer.there))
        return answer.there

    def looked_up(self, wanted: int, found: int) -> None:
        """Count a lookup."""
        self.report.count("lookup_calls")
        self.report.count("lookup_blocks", wanted)
        self.report.count("lookup_hits", found)

    def of_another_tag(self, keys: list[bytes], tag: int) -> list[bytes]:
        """Return which keys are in the pool with another caller tag."""
        try:
            answer = self.pool.lookup(keys, quiet=True, tags=True)
        except (kvblk.KvblkError, ValueError) as e:
            self.report.trouble("lookup_errors", "a lookup failed", e)
            return []
        return [key for i, (key, has) in enumerate(zip(keys, answer.tags or ())) if answer[i] and has != tag]

    def fits(self, length: int) -> bool:
        """Return True if the pool accepts blocks of this length."""
        if 0 < length <= self.value_max:
            return True
        self.report.trouble("blocks_too_long", "a block was not stored", f"{length} bytes, the pool takes 1 to "
                            f"{self.value_max}; lower LMCache's chunk size")
        return False

    def close(self) -> None:
        self.leases.clear()
        self.pool.close()
