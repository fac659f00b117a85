# SPDX-License-Identifier: MIT
"""llama.cpp's KV cache in kvblk pools: a prompt's blocks that any process has computed need not be computed again.

:class:`PrefixCache` restores and saves a sequence of a llama.cpp context. :class:`Session` is a model with such a
context, for programs without one. ``kvblk_llamacpp.llama.Llama`` is llama-cpp-python's class with a pool. ``python -m
kvblk_llamacpp`` is a demonstration.
"""

try:
    from kvblk.adapter import Leases as _  # noqa: F401
except ImportError as e:
    raise ImportError("kvblk for Python is missing, or is older: pip install ./tools/python, of kvblk's tree") from e

from .cache import PrefixCache
from .model import Model, model_digest
from .runtime import Library, Session

__all__ = ["Library", "Model", "PrefixCache", "Session", "model_digest"]
