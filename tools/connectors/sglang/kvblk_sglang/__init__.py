# SPDX-License-Identifier: MIT
"""kvblk pools as a storage backend (L3) of SGLang's HiCache: see README.md for the configuration.

``backend`` is what SGLang calls, ``pages`` makes keys and scatter lists of SGLang's host pools, ``leases`` keeps found
pages until they are loaded, ``options`` reads the configuration.
"""

try:
    from kvblk.adapter import Checked as _  # noqa: F401
except ImportError as e:
    raise ImportError("kvblk for Python is missing, or is older: pip install ./tools/python, of kvblk's tree") from e

from .backend import HiCacheKvblk
from .options import Options

__all__ = ["HiCacheKvblk", "Options"]
