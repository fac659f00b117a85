# SPDX-License-Identifier: MIT
"""Keys that no two runtimes, models or parallel layouts share: see kvblk_keyspace_init(3).

The first put of a key decides its bytes. So anybody who can open the pool and guess a key can store a wrong block for
others, unless the keys contain the deployment's salt, a secret.
"""

from __future__ import annotations

import array
import errno
import functools
import logging
import os
from collections.abc import Iterable, Sequence

from ._native import ffi, lib
from .errors import KvblkError

PREFIX_LEN = 20
ID_LEN = 32
SALT_LEN = 64
#: file of the deployment's salt, made by kvblkd
SALT_FILE = "/etc/kvblk/salt"

log = logging.getLogger("kvblk")


@functools.cache
def _warn_once(path: str) -> None:
    log.warning("kvblk: %s: no such file, so the keys have no secret, and anybody who can open the pool and guess a key can "
                "store a wrong block; start kvblkd first, or copy the file of a host that shares blocks (kvblk keyspace)", path)


def deployment_salt(salt_file: str = SALT_FILE) -> str:
    """Read the deployment's salt, for ``Keyspace(secret=...)``. Return "" if there is none.

    Logs a warning, once for each file, if the file is missing. Raises KvblkError if it is unreadable or malformed, if
    others may read it, or if neither root nor the caller owns it. ``salt_file=""`` means no salt.

    >>> deployment_salt("")
    ''
    """
    if not salt_file:
        return ""
    if "\0" in salt_file:
        raise ValueError("the name of a salt's file has a zero byte")
    salt, why = ffi.new("char[]", SALT_LEN + 1), ffi.new("char *[1]")
    err = lib.kvblk_keyspace_salt(os.fsencode(salt_file), salt, why)
    if err == -errno.ENOENT:
        _warn_once(salt_file)
    elif err:
        raise KvblkError(-err, f"the salt {salt_file} can't be used: {ffi.string(why[0]).decode()}")
    return str(ffi.string(salt), "ascii")


class Keyspace:
    """The keys of one origin: everything that a block's bytes depend on, except its tokens.

    ``secret`` is the deployment's salt, from :func:`deployment_salt`. Without it, others can guess the keys.

    >>> space = Keyspace(runtime="example/1", model="tiny", dtype="float16", layout="LKTHD", block_tokens=64)
    >>> first = block_id(None, range(64))
    >>> space.key(first).hex()[:16]
    '6b766231e7940858'
    >>> other = Keyspace(runtime="example/1", model="tiny", dtype="bfloat16", layout="LKTHD", block_tokens=64)
    >>> other.key(first) == space.key(first)
    False
    """

    __slots__ = ("prefix",)

    def __init__(self, *, runtime: str, model: str, dtype: str, layout: str, block_tokens: int, tokenizer: str = "",
                 salt: str = "", secret: str = "", tp_rank: int = 0, tp_size: int = 1, pp_rank: int = 0, pp_size: int = 1,
                 cp_rank: int = 0, cp_size: int = 1):
        texts = []
        for text in (runtime, model, tokenizer, dtype, layout, salt, secret):
            if "\0" in text:
                raise ValueError("a text of a key space has a zero byte")
            texts.append(text.encode())
        prefix = ffi.new("uint8_t[]", PREFIX_LEN)
        err = lib.kvpy_keyspace(prefix, *texts, block_tokens, [tp_rank, tp_size, pp_rank, pp_size, cp_rank, cp_size])
        if err:
            raise KvblkError(-err, "a key space needs runtime, model, dtype, layout and block_tokens, "
                                   "and each rank must be below its size")
        #: common prefix of all keys
        self.prefix = bytes(ffi.buffer(prefix))

    def key(self, block: bytes) -> bytes:
        """Return the key of the block with this id, 1 to 492 bytes."""
        if not block:
            raise ValueError("a block's id has at least a byte")
        return self.prefix + block

    def keys(self, blocks: Iterable[bytes]) -> list[bytes]:
        """Return the keys of many blocks."""
        prefix = self.prefix
        return [prefix + block for block in blocks]


def block_id(parent: bytes | None, tokens: Sequence[int], extra: bytes = b"") -> bytes:
    """Compute a block's id from its tokens and the id of the preceding block (None for the first block).

    >>> len(block_id(None, [1, 2, 3]))
    32
    """
    if parent is not None and len(parent) != ID_LEN:
        raise ValueError(f"the parent's id has {len(parent)} bytes, should be {ID_LEN}")
    if isinstance(tokens, (bytes, bytearray)):
        raise TypeError("tokens are numbers")
    packed = array.array("I", tokens)
    out = ffi.new("uint8_t[]", ID_LEN)
    lib.kvpy_block_id(ffi.NULL if parent is None else parent, ffi.from_buffer("uint32_t[]", packed), len(packed),
                      extra, len(extra), out)
    return bytes(ffi.buffer(out))


def block_ids(tokens: Sequence[int], block_tokens: int, extra: bytes = b"") -> list[bytes]:
    """Compute the ids of a prompt's complete blocks, first block first.

    >>> len(block_ids(range(200), 64))
    3
    """
    ids: list[bytes] = []
    parent = None
    for start in range(0, len(tokens) - block_tokens + 1, block_tokens):
        parent = block_id(parent, tokens[start:start + block_tokens], extra)
        ids.append(parent)
    return ids
