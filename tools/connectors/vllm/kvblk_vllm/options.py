# SPDX-License-Identifier: MIT
"""Options of the configuration, and the pool that they name."""

from __future__ import annotations

import dataclasses

import vllm
from kvblk import adapter

#: versions of vLLM that the adapter knows
TESTED = "0.32", "0.33"
#: of this one, what blocks depend on: a minor version may change what a layout's name or a hash stands for
SERIES = ".".join(vllm.__version__.split(".")[:2])


@dataclasses.dataclass(frozen=True)
class Options(adapter.Options):
    """What all three ways know; README.md has the meanings."""

    model: str = ""
    tokenizer: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_version("vLLM", vllm.__version__, TESTED)
        if self.lease_s < self.timeout_s * 2:
            raise ValueError(f"kvblk: the option lease_s is {self.lease_s:g}, should be at least twice timeout_s "
                             f"({self.timeout_s:g}): a lease has to outlast the load")


#: what names the options of a connector in its configuration
WHERE = 'kv_connector_extra_config["kvblk"]'
