# SPDX-License-Identifier: MIT
"""kvblk pools as a storage tier of LMCache.

:class:`Adapter` is an L2 adapter of the multi-process server, of type "plugin". :class:`Client` is an adapter of type
"native_plugin", for servers that accept only these. :class:`StorageBackend` is a storage plugin of the in-process
engine.
"""

try:
    from kvblk.adapter import Leases as _  # noqa: F401
except ImportError as e:
    raise ImportError("kvblk for Python is missing, or is older: pip install ./tools/python, of kvblk's tree") from e

from .adapter import Adapter
from .backend import StorageBackend
from .client import Client

__all__ = ["Adapter", "Client", "StorageBackend"]
