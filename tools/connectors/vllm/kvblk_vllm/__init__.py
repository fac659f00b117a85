# SPDX-License-Identifier: MIT
"""The KV cache of vLLM in kvblk pools, three ways; see README.md for what to configure.

 - ``offloading.KvblkOffloadingConnector`` with ``spec.KvblkOffloadingSpec``: vLLM's own offloading, straight between
   the KV cache's tensors and a pool.
 - ``tier.KvblkTier``: a secondary tier below vLLM's CPU tier.
 - ``connector.KvblkConnector``: a connector of its own, which loads and saves layer by layer.

Nothing here imports vLLM: each module does so itself, in the process that needs it.
"""

try:
    from kvblk.adapter import Checked as _  # noqa: F401
except ImportError as e:
    raise ImportError("kvblk for Python is missing, or is older: pip install ./tools/python, of kvblk's tree") from e

from .report import counters

__version__ = "0.1"
__all__ = ["counters"]
