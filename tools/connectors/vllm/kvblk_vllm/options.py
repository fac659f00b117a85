# SPDX-License-Identifier: MIT
"""Options of the configuration, and the pool that they name."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import kvblk

from .report import log


@dataclasses.dataclass(frozen=True)
class Options:
    """What all three ways know; README.md has the meanings."""

    pool: str = ""
    threads: int = 8
    lease_s: float = 60.0
    timeout_s: float = 10.0
    ttl_s: float = 0.0
    priority: int = 0
    salt: str = ""
    model: str = ""
    tokenizer: str = ""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            kind = type(field.default)
            if kind is float and type(value) is int:
                object.__setattr__(self, field.name, float(value))
            elif type(value) is not kind:
                raise ValueError(f"kvblk: the option {field.name} is {value!r}, should be a {_KINDS[kind]}")
        if not self.pool:
            raise ValueError('kvblk: the option "pool" is missing: the name of a pool, or the path of its node')
        self._within("threads", 1, 256)
        self._within("timeout_s", 0.001, 600)
        self._within("lease_s", 0.001, 3600)
        self._within("ttl_s", 0, 2**32 - 1)
        self._within("priority", 0, 3)
        if self.lease_s < self.timeout_s * 2:
            raise ValueError(f"kvblk: the option lease_s is {self.lease_s:g}, should be at least twice timeout_s "
                             f"({self.timeout_s:g}): a lease has to outlast the load")
        for name in ("salt", "model", "tokenizer"):
            if "\0" in getattr(self, name):
                raise ValueError(f"kvblk: the option {name} has a zero byte")

    def _within(self, name: str, low: float, high: float) -> None:
        value = getattr(self, name)
        # what is not a number is not between two
        if not low <= value <= high:
            raise ValueError(f"kvblk: the option {name} is {value}, should be {low:g} to {high:g}")

    @classmethod
    def read(cls, given: Any, where: str) -> Any:
        """Options of this class out of a dictionary of the configuration."""
        if not isinstance(given, Mapping):
            raise ValueError(f'kvblk: {where} needs a dictionary "kvblk" with at least "pool", not {given!r}')
        known = [field.name for field in dataclasses.fields(cls)]
        for name in given:
            if name not in known:
                raise ValueError(f"kvblk: {where} has an unknown option {name!r}; there are {', '.join(known)}")
        return cls(**given)

    def open(self) -> kvblk.Pool:
        """The pool."""
        try:
            return kvblk.Pool(self.pool)
        except kvblk.KvblkError as e:
            raise RuntimeError(f"kvblk: the pool {self.pool!r} can't be opened: {e.strerror} (errno {e.errno}); "
                               "`kvblk pool list` shows the pools of this host") from e

    def put_options(self) -> dict[str, Any]:
        return {"priority": self.priority, "ttl": self.ttl_s, "timeout": self.timeout_s}


_KINDS = {str: "text", int: "whole number", float: "number"}

#: bytes that are registered as one: the library takes up to 64 GiB
REGION = 32 << 30


def register(pool: kvblk.Pool, address: int, length: int, longest: int, region: int = REGION) -> str:
    """Register a slab of the runtime, once; how operations reach it: "registered", "addressed", "staged" or "".

    ``longest``: no piece of an operation is longer. Regions overlap by that much, so that each piece lies in one.
    """
    kinds = set()
    start = 0
    while start < length:
        size = min(region + longest, length - start)
        try:
            kinds.add(pool.register((address + start, size)).kind)
        except kvblk.KvblkError as e:
            log.warning("kvblk: %d bytes of the KV cache can't be registered: %s (errno %s); each operation pins its "
                        "memory anew, which is slower. Raise the limit on locked memory: ulimit -l, LimitMEMLOCK= "
                        "of systemd, or --ulimit memlock=-1 of docker", size, e.strerror, e.errno)
            kinds.add("")
            break
        start += region
    return "staged" if "staged" in kinds else "" if "" in kinds else kinds.pop()
