# SPDX-License-Identifier: MIT
"""Options of the configuration."""

from __future__ import annotations

import dataclasses
import importlib.metadata
from typing import ClassVar

from kvblk import adapter


#: version of LMCache
VERSION = importlib.metadata.version("lmcache")
TESTED = ("0.5.6",)


@dataclasses.dataclass(frozen=True)
class Options(adapter.Options):
    """The options that README.md lists."""

    #: format of the bytes, which LMCache's keys lack
    layout: str = ""

    LIMITS: ClassVar[dict[str, tuple[float, float]]] = {
        **adapter.Options.LIMITS,
        # LMCache reuses the memory of a store after 300 s and of a load after 600 s, complete or not
        "timeout_s": (0.001, 240),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_version("LMCache", VERSION, TESTED)
