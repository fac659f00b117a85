# SPDX-License-Identifier: MIT
"""Errors of kvblk as exceptions. A miss is not an error."""

from __future__ import annotations

import enum
import errno
import os
from collections.abc import Mapping

from ._native import ffi, lib

MISS = -errno.ENOENT


class Action(enum.Enum):
    """What a runtime does about the result of an operation; see libkvblk(3) for the table."""

    #: The operation did its work, or the block is stored already.
    NOTHING = lib.KVBLK_DO_NOTHING
    #: Submit the operation again, later.
    RETRY = lib.KVBLK_DO_RETRY
    #: Continue without: the pool does not take the block now, or another caller stores it.
    SKIP = lib.KVBLK_DO_SKIP
    #: Get: a miss, compute the block. Other operations: as SKIP.
    RECOMPUTE = lib.KVBLK_DO_RECOMPUTE
    #: An error until a person changes something: log the error, and continue as for RECOMPUTE.
    REPORT = lib.KVBLK_DO_REPORT


class KvblkError(OSError):
    """An error of kvblk: ``errno``, its meaning in ``strerror``, and what a runtime does about it in ``action``.

    Without ``text`` the error is the result of an operation. ``value_len`` is the length of the block where it is known,
    as with EMSGSIZE, or else 0. The action for errors of other calls is ``Action.REPORT``.

    >>> raise KvblkError(errno.ENOSPC)
    Traceback (most recent call last):
      ...
    kvblk.errors.KvblkError: [Errno 28] no space in the pool, and none can be made now
    >>> KvblkError(errno.ENOSPC).action
    <Action.SKIP: 2>
    """

    def __init__(self, number: int, text: str | None = None, *, value_len: int = 0):
        self.action = Action.REPORT if text else Action(lib.kvblk_result_action(-number))
        self.value_len = value_len
        super().__init__(number, text or ffi.string(lib.kvblk_result_text(-number)).decode())


def check(answer: int, texts: Mapping[int, str] | None = None) -> int:
    """Return what a call returned, or raise KvblkError if that is a negative errno. ``texts``: meanings of errnos."""
    if answer < 0:
        raise KvblkError(-answer, (texts or {}).get(-answer) or os.strerror(-answer))
    return answer
