# SPDX-License-Identifier: MIT
"""vLLM's KV cache in kvblk pools, in one of three ways; README.md describes their configuration.

- ``offloading.KvblkOffloadingConnector`` with ``spec.KvblkOffloadingSpec``: vLLM's own offloading, directly between the
  KV cache's tensors and a pool.
- ``tier.KvblkTier``: a secondary tier below vLLM's CPU tier.
- ``connector.KvblkConnector``: a separate connector, which loads and saves layer by layer.

This package does not import vLLM: each module imports it in the process that needs it.
"""

try:
    from kvblk.adapter import Leases as _  # noqa: F401
except ImportError as e:
    raise ImportError("kvblk for Python is missing, or is older: pip install ./tools/python, of kvblk's tree") from e

from .report import counters

__version__ = "1.1"
__all__ = ["counters"]
