# SPDX-License-Identifier: MIT
"""Options of the configuration."""

from __future__ import annotations

import dataclasses
import importlib.metadata
from typing import ClassVar

from kvblk import adapter


#: of LMCache
VERSION = importlib.metadata.version("lmcache")
TESTED = ("0.5.6",)


@dataclasses.dataclass(frozen=True)
class Options(adapter.Options):
    """What README.md lists."""

    #: what LMCache's keys do not tell of the bytes
    layout: str = ""

    LIMITS: ClassVar[dict[str, tuple[float, float]]] = {
        **adapter.Options.LIMITS,
        # LMCache gives the memory of a store to others after 300 s, that of a load after 600 s, done or not
        "timeout_s": (0.001, 240),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_version("LMCache", VERSION, TESTED)
