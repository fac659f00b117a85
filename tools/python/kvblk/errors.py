# SPDX-License-Identifier: MIT
"""Errors of kvblk as exceptions. A miss is not an error."""

from __future__ import annotations

import errno

from ._native import ffi, lib


class KvblkError(OSError):
    """An error of kvblk: ``errno``, and what kvblk means by it in ``strerror``.

    >>> raise KvblkError(errno.ENOSPC)
    Traceback (most recent call last):
      ...
    kvblk.errors.KvblkError: [Errno 28] no room in the pool and none can be made, or its members did not answer in time
    """

    def __init__(self, number: int, what: str | None = None):
        if what is None:
            what = ffi.string(lib.kvblk_strerror(number)).decode()
        super().__init__(number, what)


def check(answer: int) -> int:
    """Return ``answer``, or raise KvblkError if it is a negative errno."""
    if answer < 0:
        raise KvblkError(-answer)
    return answer


MISS = -errno.ENOENT
