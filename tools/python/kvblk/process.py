# SPDX-License-Identifier: MIT
"""Objects that belong to one process.

A child of fork() shares the open node of its parent, but has none of its threads and registered memory, and its leases
are the parent's. Such an object therefore works only in the process that made it. A child may close its copy without
effect on the parent.
"""

from __future__ import annotations

import os

#: identifies this process; a process id could be equal in another PID namespace
_this = object()


def _forked() -> None:
    global _this
    _this = object()


os.register_at_fork(after_in_child=_forked)


class OfProcess:
    """Base of objects that hold a descriptor, a lease, threads or registered memory."""

    __slots__ = ("_process",)

    def __init__(self) -> None:
        self._process = _this

    @property
    def inherited(self) -> bool:
        """True in a child of fork()."""
        return self._process is not _this

    def check_process(self) -> None:
        """Raise ValueError in a child of fork()."""
        if self._process is not _this:
            raise ValueError(f"this {type(self).__name__} is the parent process'; after fork() open the pool anew")
