# SPDX-License-Identifier: MIT
"""kvblk pools as a storage backend (L3) of SGLang's HiCache; README.md describes the configuration.

``backend`` implements SGLang's interface, ``pages`` makes keys and scatter lists of SGLang's host pools, ``options`` reads
the configuration.
"""

try:
    from kvblk.adapter import Leases as _  # noqa: F401
except ImportError as e:
    raise ImportError("kvblk for Python is missing, or is older: pip install ./tools/python, of kvblk's tree") from e

from .backend import HiCacheKvblk
from .options import Options

__all__ = ["HiCacheKvblk", "Options"]
