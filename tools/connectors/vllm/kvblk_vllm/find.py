# SPDX-License-Identifier: MIT
"""What of a request's blocks the pool has: few lookups, and a lease from lookup to load.

vLLM asks for one block after the other, and for a waiting request again in each step. The first question of a request
looks all its further blocks up in one call; what is found is leased, so it is still there when it is loaded.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import kvblk
from kvblk import KvblkError
from kvblk.adapter import Checked

from .keys import BlockKeys
from .options import Options
from .report import Report

#: keys in one call
LOOKUP_MAX = 65536
#: announced blocks that are remembered, to announce their removal
ANNOUNCED_MAX = 65536


class _Run:
    """One request: what it asked for, and the leases on what was found."""

    __slots__ = ("found", "missed", "lost", "leases", "until", "loads", "finished")

    def __init__(self) -> None:
        self.found: set[bytes] = set()
        #: absent ones, and in which step that was seen
        self.missed: dict[bytes, int] = {}
        #: those that a load did not bring: never again a hit for this request, which would not end
        self.lost: set[bytes] = set()
        self.leases: list[kvblk.Lease] = []
        self.until = 0.0
        self.loads = 0
        self.finished = False


class Finder:
    """Of one scheduler, by its thread only. ``events``: there is somebody to tell of what is stored, and what is gone."""

    def __init__(self, pool: kvblk.Pool, keys: BlockKeys, options: Options, report: Report, events: bool = False):
        self._checked = Checked(pool, report.error)
        self._keys = keys
        self._lease = options.lease_s
        #: how long after the lookup a load may begin
        self._fresh = options.lease_s - options.timeout_s
        self._report = report
        self._runs: dict[str, _Run] = {}
        self._step = 0
        self._events = events
        #: blocks told of as stored
        self._announced: OrderedDict[bytes, None] = OrderedDict()
        self._told: list[tuple[bytes, Any]] = []

    # Lookups

    def hit(self, request: str, block: bytes, ahead: Callable[[], Sequence[bytes]], prefix: bool = True) -> bool:
        """Whether a block is there, and stays. ``ahead``: the block and those that will be asked for after it.

        ``prefix``: what lies behind the first absent one is of no use.
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
        most = LOOKUP_MAX // self._keys.values
        for start in range(0, len(blocks), most):
            part = blocks[start:start + most]
            found = self._ask(run, part, prefix)
            self._note(run, part, found, prefix)
            if prefix and not all(found):
                break

    def _ask(self, run: _Run, blocks: Sequence[bytes], prefix: bool) -> list[bool | None]:
        """Which are there, and leased; None: one may be there, and is not leased."""
        count = self._report.count
        count("lookup_calls")
        count("lookup_blocks", len(blocks))
        began = time.monotonic()
        try:
            answer = self._checked.look_up(self._keys.all(blocks), self._keys.lengths * len(blocks), lease=self._lease,
                                           prefix=prefix)
        except (KvblkError, ValueError) as e:
            count("lookup_errors")
            self._report.error("a lookup failed, which is a miss", e)
            return [None] * len(blocks)
        if answer.lease:
            if not run.leases:
                run.until = began + self._fresh
            run.leases.append(answer.lease)
        # a block without a lease might be gone when it is loaded: it is none
        values = self._keys.values
        return [(all(answer.leased[at:at + values]) or None) if all(answer.there[at:at + values]) else False
                for at in range(0, len(answer.there), values)]

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
        """Which blocks the pool has now, without a lease; none where that can't be told."""
        values = self._keys.values
        most = LOOKUP_MAX // values
        found: list[bool] = []
        for start in range(0, len(blocks), most):
            part = blocks[start:start + most]
            try:
                there = self._checked.look_up(self._keys.all(part), self._keys.lengths * len(part)).there
                found += [all(there[at:at + values]) for at in range(0, len(there), values)]
            except (KvblkError, ValueError) as e:
                self._report.count("lookup_errors")
                self._report.error("a lookup before a store failed", e)
                found += [False] * len(part)
        return found

    # Leases

    def _drop(self, run: _Run) -> None:
        leases, run.leases = run.leases, []
        run.found.clear()
        run.missed.clear()
        for lease in leases:
            try:
                lease.release()
            except (KvblkError, ValueError) as e:
                self._report.error("a lease was not released, it ends by itself", e)

    def load(self, request: str) -> None:
        """A load of what was found begins."""
        self._runs.setdefault(request, _Run()).loads += 1

    def loaded(self, request: str, lost: Iterable[bytes]) -> None:
        """It is over. ``lost``: blocks that it did not bring, or may not have brought."""
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
        """The request runs: what it does not load now it will not load."""
        run = self._runs.get(request)
        if run is not None and not run.loads:
            self._drop(run)

    def preempted(self, request: str) -> None:
        """The request will begin again: it may load what it has loaded before."""
        run = self._runs.get(request)
        if run is not None:
            run.lost.clear()

    def finished(self, request: str) -> None:
        """The request asks for nothing more."""
        run = self._runs.get(request)
        if run is None:
            return
        run.finished = True
        if not run.loads:
            self._drop(run)
            del self._runs[request]

    def next_step(self) -> None:
        """What was absent may be there."""
        self._step += 1

    def reset(self) -> None:
        """All leases end, those of loads that are forgotten, too; what was announced is gone."""
        for run in self._runs.values():
            run.loads = 0
            self._drop(run)
        self._runs.clear()
        self._told += [(block, None) for block in self._announced]
        self._announced.clear()

    def leases(self) -> int:
        """For tests: how many are held."""
        return sum(len(run.leases) for run in self._runs.values())

    # Events

    def announce(self, blocks: Sequence[bytes], notes: Sequence[Any] = ()) -> None:
        """Tell of those as stored that the pool has, and that were not told of. ``notes``: what goes with each of them."""
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
        """Since the last call, in order: a block that was stored, and its note; or one that was found missing or is
        forgotten here, and None."""
        told, self._told = self._told, []
        return told
