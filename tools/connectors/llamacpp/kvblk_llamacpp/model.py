# SPDX-License-Identifier: MIT
"""The identity of a GGUF file's model.

Hashing the whole file takes as long as reading it. By default the digest covers the header (metadata with the
tokenizer; names, shapes, types and offsets of tensors), the length, and 4 KiB at both ends of each tensor: training
changes nearly all of a tensor. ``whole=True`` hashes the whole file.
"""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
import re
import struct
from typing import Any

SAMPLE = 4096
_FIXED = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_STRING, _ARRAY = 8, 9


class _Reader:
    """Reader of a GGUF header, field by field."""

    def __init__(self, data: Any):
        self.data, self.at = data, 0

    def number(self, form: str) -> int:
        value: int = struct.unpack_from(form, self.data, self.at)[0]
        self.at += struct.calcsize(form)
        return value

    def text(self) -> bytes:
        length = self.number("<Q")
        self.at += length
        return bytes(self.data[self.at - length:self.at])

    def value(self, kind: int) -> Any:
        """Return an integer or text value; skip other values."""
        if kind in _FIXED:
            start = self.at
            self.at += _FIXED[kind]
            return int.from_bytes(self.data[start:self.at], "little")
        if kind == _STRING:
            return self.text()
        if kind != _ARRAY:
            raise ValueError(f"type {kind} of a value is unknown")
        inner, count = self.number("<I"), self.number("<Q")
        if inner in _FIXED:
            self.at += _FIXED[inner] * count
        else:
            for _ in range(count):
                self.value(inner)
        return None


class _Header:
    """Header of a file: the offsets of its tensors."""

    def __init__(self, data: Any):
        if data[:4] != b"GGUF":
            raise ValueError("it does not begin with GGUF")
        reader = _Reader(data)
        reader.at = 8
        tensors, values = reader.number("<Q"), reader.number("<Q")
        facts = {}
        for _ in range(values):
            name = reader.text()
            facts[name] = reader.value(reader.number("<I"))
        self.names, offsets = [], []
        for _ in range(tensors):
            self.names.append(reader.text())
            dimensions = reader.number("<I")
            reader.at += 8 * dimensions + 4
            offsets.append(reader.number("<Q"))
        align = facts.get(b"general.alignment") or 32
        start = -(-reader.at // align) * align
        self.end = reader.at
        self.starts = sorted(start + offset for offset in offsets)
        self.splits = facts.get(b"split.count") or 1


def _read(path: str, whole: bool) -> tuple[bytes, _Header]:
    with open(path, "rb") as file, contextlib.ExitStack() as stack:
        try:
            data = stack.enter_context(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
            header = _Header(data)
        except (ValueError, struct.error, OverflowError) as e:
            raise ValueError(f"{path} is not a GGUF file: {e}") from None
        hashed = hashlib.blake2b(digest_size=32)
        hashed.update(struct.pack("<QQ", len(data), whole))
        with memoryview(data) as view:
            if whole:
                hashed.update(view)
            else:
                hashed.update(view[:header.end])
                for start, after in zip(header.starts, [*header.starts[1:], len(data)]):
                    hashed.update(view[start:min(start + SAMPLE, after)])
                    hashed.update(view[max(start, after - SAMPLE):after])
    return hashed.digest(), header


def _files(path: str, splits: int) -> list[str]:
    """Return all files of a split model: NAME-00001-of-00003.gguf."""
    match = re.fullmatch(r"(.*)-\d{5}-of-(\d{5})\.gguf", path)
    if splits == 1:
        return [path]
    if not match or int(match[2]) != splits:
        raise ValueError(f"{path} is one of {splits} files, but not named -00001-of-{splits:05}.gguf")
    return [f"{match[1]}-{i:05}-of-{splits:05}.gguf" for i in range(1, splits + 1)]


class Model:
    """Properties of a model's files that keys depend on."""

    def __init__(self, path: str | os.PathLike[str], whole: bool = False):
        path = os.fspath(path)
        digest, header = _read(path, whole)
        parts = [(digest, header)]
        if header.splits > 1:
            parts = [_read(file, whole) for file in _files(path, header.splits)]
        self.digest = hashlib.blake2b(b"".join(d for d, _ in parts), digest_size=32).hexdigest()
        #: True if the rotation of K depends on the length of the context
        self.long_rope = any(name.startswith(b"rope_factors_long") for _, h in parts for name in h.names)


def model_digest(path: str | os.PathLike[str], whole: bool = False) -> str:
    """Return the digest of the model in a GGUF file and its split files."""
    return Model(path, whole).digest
