# SPDX-License-Identifier: MIT
"""The adapter's options, from SGLang's ``--hicache-storage-backend-extra-config``."""

from __future__ import annotations

import dataclasses
import importlib.metadata
from collections.abc import Mapping
from typing import Any

from kvblk import adapter

#: SGLang's own fields of the same dictionary; SGLang removes most of them before it calls the backend
OF_SGLANG = frozenset({"backend_name", "module_path", "class_name", "interface_v1", "prefetch_threshold",
                       "prefetch_timeout_base", "prefetch_timeout_per_ki_token", "hicache_storage_pass_prefix_keys",
                       "tp_lcm_size"})


#: version of SGLang
VERSION = importlib.metadata.version("sglang")
TESTED = ("0.5.23",)


@dataclasses.dataclass(frozen=True)
class Options(adapter.CheckedOptions):
    """Options; README.md describes them."""

    #: loads complete at their deadline even if a device does not respond, by copying through kernel memory
    hard_deadline: bool = False
    #: name of the weights, instead of their served name, path and revision
    model: str = ""

    @classmethod
    def of(cls, extra: Mapping[str, Any] | None) -> Options:
        """Read the options of an extra config."""
        given = {name: value for name, value in (extra or {}).items() if name not in OF_SGLANG}
        if "threads" in given:
            raise ValueError("kvblk: the option threads is not for SGLang, which loads and stores in threads of its own")
        options = cls.read(given, "the extra config of SGLang's storage backend")
        options.check_version("SGLang", VERSION, TESTED)
        return options
