# SPDX-License-Identifier: MIT
"""Leases that last from SGLang's lookup of pages to their load.

SGLang looks up in one thread and loads in another, names no request in either call, and may load only a leading part,
or nothing. So a lease is kept under its keys. The load of its last key releases it. Otherwise the kernel ends it when
it expires, and the next lookup drops it here.
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
    """Leases by key; for any thread."""

    def __init__(self, seconds: float):
        self.seconds = seconds
        self.expired = 0
        self._lock = threading.Lock()
        # in order of expiry, because all leases last equally long
        self._held: collections.deque[_Held] = collections.deque()
        # several requests may wait for a page: the oldest lease is used first
        self._of_key: dict[bytes, collections.deque[_Held]] = {}

    def __len__(self) -> int:
        """Return the number of leases held."""
        with self._lock:
            return sum(1 for held in self._held if held.left)

    def hold(self, lease: kvblk.Lease, keys: Sequence[bytes]) -> None:
        """Keep a lease until each of its keys has been loaded; without keys, end it now."""
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
        """Drop the leases on pages that were loaded, or could not be."""
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
        """End all leases."""
        with self._lock:
            held, self._held = self._held, collections.deque()
            self._of_key = {}
        for one in held:
            _release(one.lease)


def _release(lease: kvblk.Lease) -> None:
    try:
        lease.release()
    except (kvblk.KvblkError, ValueError):  # the lease expires, or ends with the pool
        pass
