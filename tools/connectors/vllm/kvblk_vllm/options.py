# SPDX-License-Identifier: MIT
"""Options of the configuration."""

from __future__ import annotations

import dataclasses

import vllm
from kvblk import adapter

#: versions of vLLM that the adapter was tested with
TESTED = "0.32", "0.33"
#: minor version, part of the keys, because it may change the meaning of a layout's name or a hash
SERIES = ".".join(vllm.__version__.split(".")[:2])


@dataclasses.dataclass(frozen=True)
class Options(adapter.CheckedOptions):
    """Options of all three ways; README.md describes them."""

    model: str = ""
    tokenizer: str = ""
    #: let the GPU compute and verify the checksums of blocks in its memory, if it can
    gpu_checksums: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_version("vLLM", vllm.__version__, TESTED)
        if self.lease_s < self.timeout_s * 2:
            raise ValueError(f"kvblk: the option lease_s is {self.lease_s:g}, should be at least twice timeout_s "
                             f"({self.timeout_s:g}): a lease has to outlast the load")


#: the options' place in a configuration, for errors
WHERE = 'kv_connector_extra_config["kvblk"]'
