# SPDX-License-Identifier: MIT
"""Options of the configuration, and the pool that they name."""

from __future__ import annotations

import dataclasses

from kvblk import adapter


@dataclasses.dataclass(frozen=True)
class Options(adapter.Options):
    """What all three ways know; README.md has the meanings."""

    model: str = ""
    tokenizer: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.lease_s < self.timeout_s * 2:
            raise ValueError(f"kvblk: the option lease_s is {self.lease_s:g}, should be at least twice timeout_s "
                             f"({self.timeout_s:g}): a lease has to outlast the load")


#: what names the options of a connector in its configuration
WHERE = 'kv_connector_extra_config["kvblk"]'
