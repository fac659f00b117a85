# SPDX-License-Identifier: MIT
"""Leases between SGLang's question whether pages are there and its load of them.

SGLang asks in one thread and loads in another one, names no request in either call, and may load nothing or only a
leading part of what it found. So a lease is kept under the keys that it is for. The load of the last of them releases
it; otherwise the kernel ends it when its time is over, and here it is forgotten at the next question.
"""

from __future__ import annotations

import collections
import threading
import time
from collections.abc import Sequence

import kvblk


class _Held:
    __slots__ = ("lease", "keys", "left", "until")

    def __init__(self, lease: kvblk.Lease, keys: Sequence[bytes], until: float):
        self.lease = lease
        self.keys = keys
        self.left = len(keys)
        self.until = until


class Leases:
    """Any thread may use it."""

    def __init__(self, seconds: float):
        self.seconds = seconds
        self.expired = 0
        self._lock = threading.Lock()
        # in the order of their ends, for all last equally long
        self._held: collections.deque[_Held] = collections.deque()
        # several requests may wait for the same page: the oldest lease is used first
        self._of_key: dict[bytes, collections.deque[_Held]] = {}

    def __len__(self) -> int:
        """Leases that are held."""
        with self._lock:
            return sum(1 for held in self._held if held.left)

    def hold(self, lease: kvblk.Lease, keys: Sequence[bytes]) -> None:
        """Keep a lease until each of the keys has been loaded; without keys, it ends now."""
        self._forget_expired()
        if not lease:
            return
        if not keys:
            _release(lease)
            return
        held = _Held(lease, keys, time.monotonic() + self.seconds)
        with self._lock:
            self._held.append(held)
            for key in keys:
                self._of_key.setdefault(key, collections.deque()).append(held)

    def loaded(self, keys: Sequence[bytes]) -> None:
        """These pages have been loaded, or could not be: they need no lease any more."""
        over = []
        with self._lock:
            for key in keys:
                waiting = self._of_key.get(key)
                if waiting is None:
                    continue
                held = waiting.popleft()
                if not waiting:
                    del self._of_key[key]
                held.left -= 1
                if not held.left:
                    over.append(held)
        for held in over:
            _release(held.lease)

    def _forget_expired(self) -> None:
        now = time.monotonic()
        with self._lock:
            while self._held and (self._held[0].until <= now or not self._held[0].left):
                held = self._held.popleft()
                if not held.left:
                    continue
                self.expired += 1
                for key in held.keys:
                    waiting = self._of_key.get(key)
                    if waiting is not None and held in waiting:
                        waiting.remove(held)
                        if not waiting:
                            del self._of_key[key]
                held.left = 0

    def release(self) -> None:
        """End them all."""
        with self._lock:
            held, self._held = self._held, collections.deque()
            self._of_key = {}
        for one in held:
            _release(one.lease)


def _release(lease: kvblk.Lease) -> None:
    try:
        lease.release()
    except (kvblk.KvblkError, ValueError):  # it ends when its time is over, or with the pool
        pass
