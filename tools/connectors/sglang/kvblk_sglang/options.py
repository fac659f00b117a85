# SPDX-License-Identifier: MIT
"""The adapter's options, from SGLang's ``--hicache-storage-backend-extra-config``."""

from __future__ import annotations

import dataclasses
import importlib.metadata
from collections.abc import Mapping
from typing import Any

from kvblk import adapter

#: What SGLang itself reads from the same dictionary; most of it is gone when the backend gets it.
OF_SGLANG = frozenset({"backend_name", "module_path", "class_name", "interface_v1", "prefetch_threshold",
                       "prefetch_timeout_base", "prefetch_timeout_per_ki_token", "hicache_storage_pass_prefix_keys",
                       "tp_lcm_size"})


#: of SGLang
VERSION = importlib.metadata.version("sglang")
TESTED = ("0.5.23",)


@dataclasses.dataclass(frozen=True)
class Options(adapter.Options):
    """See README.md for what each one means."""

    #: loads end at their deadline even if a device does not answer, through kernel memory
    hard_deadline: bool = False
    #: names the weights, in place of the name they are served under, their path and revision
    model: str = ""

    @classmethod
    def of(cls, extra: Mapping[str, Any] | None) -> Options:
        """Those of an extra config."""
        given = {name: value for name, value in (extra or {}).items() if name not in OF_SGLANG}
        if "threads" in given:
            raise ValueError("kvblk: the option threads is not for SGLang, which loads and stores in threads of its own")
        options = cls.read(given, "the extra config of SGLang's storage backend")
        options.check_version("SGLang", VERSION, TESTED)
        return options
