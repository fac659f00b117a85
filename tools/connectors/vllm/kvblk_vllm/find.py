# SPDX-License-Identifier: MIT
"""Which blocks of a request the pool has, with few lookups, and a lease from lookup to load.

vLLM asks for one block after the other, and repeats this for a waiting request in each step. The first query of a
request looks up all its further blocks in one call. The blocks found are leased, so they are still there when they are
loaded.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import kvblk
from kvblk import KvblkError
from kvblk.adapter import Checked, Leases

from .keys import BlockKeys
from .options import Options
from .report import Report

#: announced blocks to remember, to announce their removal
ANNOUNCED_MAX = 65536


class _Run:
    """A request: the blocks it asked for. The name of its leases."""

    __slots__ = ("found", "missed", "lost", "until", "loads", "finished")

    def __init__(self) -> None:
        self.found: set[bytes] = set()
        #: missing blocks, and the step of their lookup
        self.missed: dict[bytes, int] = {}
        #: blocks whose load failed: never a hit again, or else the request would retry forever
        self.lost: set[bytes] = set()
        #: until when a load may start, because its lease has to outlast it
        self.until = 0.0
        self.loads = 0
        self.finished = False


class Finder:
    """Lookups of one scheduler, in its thread only. ``events``: record stored and removed blocks for KV events."""

    def __init__(self, pool: kvblk.Pool, keys: BlockKeys, options: Options, report: Report, events: bool = False):
        self._checked = Checked(pool, report, options.block_compute_ms / 1000 / keys.values)
        self._leases = Leases(report)
        self._keys = keys
        self._options = options
        self._report = report
        self._runs: dict[str, _Run] = {}
        self._step = 0
        self._events = events
        #: blocks announced as stored
        self._announced: OrderedDict[bytes, None] = OrderedDict()
        self._told: list[tuple[bytes, Any]] = []

    # Lookups

    def hit(self, request: str, block: bytes, ahead: Callable[[], Sequence[bytes]], prefix: bool = True) -> bool:
        """Return True if a block is present and leased. ``ahead``: the block and those that vLLM will ask for next.

        ``prefix``: blocks behind the first missing one are of no use.
        """
        run = self._runs.get(request)
        if run is None:
            run = self._runs[request] = _Run()
        if block in run.lost:
            return False
        if run.found and not run.loads and time.monotonic() > run.until:
            self._drop(run)
        if block in run.found:
            return True
        if run.missed.get(block) == self._step:
            return False
        self._look_up(run, ahead(), prefix)
        return block in run.found

    def _look_up(self, run: _Run, blocks: Sequence[bytes], prefix: bool) -> None:
        count = self._report.count
        count("lookup_calls")
        count("lookup_blocks", len(blocks))
        found: list[bool | None]
        try:
            answer = self._checked.look_up(self._keys.all(blocks), self._keys.lengths * len(blocks),
                                           lease=self._options.lease_s, prefix=prefix)
        except (KvblkError, ValueError) as e:
            self._report.trouble("lookup_errors", "a lookup failed, which is a miss", e)
            found = [None] * len(blocks)
        else:
            # without a lease the block may be evicted before the load: treat the block as missing
            # so is a block that takes longer to load than to compute
            values = self._keys.values
            found = [(all(answer.leased[at:at + values]) and at + values <= answer.worth or None)
                     if all(answer.there[at:at + values]) else False for at in range(0, len(answer.there), values)]
            if any(found) and not run.found:
                run.until = answer.lease.end - self._options.timeout_s
            # a waiting request repeats its lookup in each step: keep no lease of blocks that it will not load
            self._leases.hold(answer.lease, [run] if any(found) else [])
        self._note(run, blocks, found, prefix)

    def _note(self, run: _Run, blocks: Sequence[bytes], found: Sequence[bool | None], prefix: bool) -> None:
        for block, there in zip(blocks, found):
            if there:
                run.found.add(block)
                run.missed.pop(block, None)
            else:
                run.missed[block] = self._step
                if there is False and self._announced.pop(block, self) is None:
                    self._told.append((block, None))
                if prefix:
                    break
        self._report.count("lookup_hits", sum(map(bool, found)))

    def present(self, blocks: Sequence[bytes]) -> list[bool]:
        """Return which blocks the pool has now, without a lease; False if the lookup fails."""
        values = self._keys.values
        try:
            there = self._checked.look_up(self._keys.all(blocks), self._keys.lengths * len(blocks)).there
        except (KvblkError, ValueError) as e:
            self._report.trouble("lookup_errors", "a lookup before a store failed", e)
            return [False] * len(blocks)
        return [all(there[at:at + values]) for at in range(0, len(there), values)]

    # Leases

    def _drop(self, run: _Run) -> None:
        run.found.clear()
        run.missed.clear()
        while self._leases.drop([run]):
            pass

    def load(self, request: str) -> None:
        """Note that a load of the request starts."""
        self._runs.setdefault(request, _Run()).loads += 1

    def loaded(self, request: str, lost: Iterable[bytes]) -> None:
        """Note that a load completed. ``lost``: blocks that were not loaded, or may not have been."""
        run = self._runs.get(request)
        if run is None or not run.loads:
            return
        run.loads -= 1
        run.lost.update(lost)
        if not run.loads:
            self._drop(run)
            if run.finished:
                del self._runs[request]

    def unused(self, request: str) -> None:
        """Drop the lease of a request that runs: it loads nothing later."""
        run = self._runs.get(request)
        if run is not None and not run.loads:
            self._drop(run)

    def preempted(self, request: str) -> None:
        """Note that the request restarts: it may load the same blocks again."""
        run = self._runs.get(request)
        if run is not None:
            run.lost.clear()

    def finished(self, request: str) -> None:
        """Forget a finished request."""
        run = self._runs.get(request)
        if run is None:
            return
        run.finished = True
        if not run.loads:
            self._drop(run)
            del self._runs[request]

    def next_step(self) -> None:
        """Begin a step: missing blocks may be present now."""
        self._step += 1

    def reset(self) -> None:
        """Drop all leases, also of loads in flight; record all announced blocks as removed."""
        for run in self._runs.values():
            run.loads = 0
            self._drop(run)
        self._runs.clear()
        self._told += [(block, None) for block in self._announced]
        self._announced.clear()

    def leases(self) -> int:
        """Return the number of leases held; for tests."""
        return len(self._leases)

    # Events

    def announce(self, blocks: Sequence[bytes], notes: Sequence[Any] = ()) -> None:
        """Record blocks as stored if the pool has them and they were not announced. ``notes``: passed on with the
        blocks."""
        if not self._events:
            return
        new = [(block, note) for block, note in zip(blocks, notes or [True] * len(blocks)) if block not in self._announced]
        for told, there in zip(new, self.present([block for block, _ in new])):
            if there:
                self._announced[told[0]] = None
                self._told.append(told)
        while len(self._announced) > ANNOUNCED_MAX:
            self._told.append((self._announced.popitem(last=False)[0], None))

    def told(self) -> list[tuple[bytes, Any]]:
        """Return the changes since the last call, in order: (stored block, note) or (removed or forgotten block, None)."""
        told, self._told = self._told, []
        return told
