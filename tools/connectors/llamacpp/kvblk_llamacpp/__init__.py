# SPDX-License-Identifier: MIT
"""llama.cpp's KV cache in kvblk pools: the blocks of a prompt that any process computed need not be computed again.

:class:`PrefixCache` restores and saves a sequence of a context of llama.cpp. :class:`Session` is a model with such a
context, for programs that have none of their own. ``python -m kvblk_llamacpp`` is a command that shows both.
"""

from .cache import PrefixCache, Stats
from .model import model_digest
from .runtime import Library, Session

__all__ = ["Library", "PrefixCache", "Session", "Stats", "model_digest"]
