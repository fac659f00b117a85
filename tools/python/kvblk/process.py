# SPDX-License-Identifier: MIT
"""Objects that belong to one process.

fork() copies an object, and shares the open node behind it: the child has none of the threads, its memory is not the
memory that was registered, and a lease that it ends is its parent's. So such an object works in the process that made
it only. A child may close its copy, which takes nothing from the parent.
"""

from __future__ import annotations

import os

#: stands for this process; a number could be the parent's in another PID namespace
_this = object()


def _forked() -> None:
    global _this
    _this = object()


os.register_at_fork(after_in_child=_forked)


class OfProcess:
    """Base of all that holds a descriptor, a lease, threads or registered memory."""

    __slots__ = ("_process",)

    def __init__(self) -> None:
        self._process = _this

    @property
    def inherited(self) -> bool:
        """Whether this is a copy that fork() made."""
        return self._process is not _this

    def check_process(self) -> None:
        """Raise ValueError in a child of fork()."""
        if self._process is not _this:
            raise ValueError(f"this {type(self).__name__} is the parent process'; after fork() open the pool anew")
