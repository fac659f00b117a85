# SPDX-License-Identifier: MIT
"""The format in which llama.cpp serializes a sequence: llama_state_seq_get_data().

llama.cpp's headers do not specify it, and a block of wrong structure must not reach llama.cpp. So the layout is learned
from a real state of the context, field by field. A state with any unknown byte is rejected, so an unknown format, a
sliding window or a recurrent state never becomes blocks.
"""

from __future__ import annotations

import itertools
import struct
from typing import NamedTuple

MAGIC = 0xaf143cd8
HEAD = struct.Struct("<IiII")   # magic, sequence, streams, cells
CELL = struct.Struct("<iI")     # position, number of sequences; then extension, sequence
EXTENSION = 12                  # 2D position and token, for models that need them
PLACE = 4                       # the cell's sequence, which readers discard
FORM = struct.Struct("<II")     # V is transposed, layers; then, in newer versions, rotation
ROTATION = 8                    # lengths of the vectors of K and V that are rotated
ROWS = struct.Struct("<iQ")     # type, bytes of a cell
COLUMNS = struct.Struct("<iII")  # type, bytes of an element, elements of a cell


class Unsupported(Exception):
    """A state that cannot be split into blocks."""


class Tensor(NamedTuple):
    """K or V of a layer: its header in the state, and the bytes of a cell."""

    header: bytes
    cell: int


class Layout:
    """The layout of a context's states, learned from ``state``, which has ``cells`` cells."""

    def __init__(self, state: memoryview, cells: int):
        for extension, rotation in itertools.product((0, EXTENSION), (0, ROTATION)):
            self.cell_meta = CELL.size + PLACE + extension
            self.form_length = FORM.size + rotation
            found = self._parse(state, cells)
            if found:
                self.form, self.tensors = found
                return
        raise Unsupported("this model's state in llama.cpp is not a plain KV cache of a known format; sliding windows "
                          "and recurrent layers are not supported")

    def _parse(self, state: memoryview, cells: int) -> tuple[bytes, list[Tensor]] | None:
        at = HEAD.size + cells * self.cell_meta
        try:
            magic, _, streams, count = HEAD.unpack_from(state)
            if (magic, streams, count) != (MAGIC, 1, cells):
                return None
            transposed, layers = FORM.unpack_from(state, at)
            if transposed > 1 or not 1 <= layers <= 4096:
                return None
            form = bytes(state[at:at + self.form_length])
            at += self.form_length
            tensors: list[Tensor] = []
            # some layers have no V
            while at < len(state):
                columns = transposed and len(tensors) >= layers
                header = COLUMNS if columns else ROWS
                fields = header.unpack_from(state, at)
                cell = fields[1] * fields[2] if columns else fields[1]
                tensors.append(Tensor(bytes(state[at:at + header.size]), cell))
                at += header.size + cells * cell
        except struct.error:
            return None
        return (form, tensors) if at == len(state) and layers <= len(tensors) <= 2 * layers else None

    def size(self, cells: int) -> int:
        """Return the length of a state of ``cells`` cells."""
        return (HEAD.size + cells * self.cell_meta + self.form_length
                + sum(len(tensor.header) + cells * tensor.cell for tensor in self.tensors))

    def holds(self, state: memoryview, first: int, cells: int) -> bool:
        """Return True if a state has this layout and the positions from ``first`` on: checks all but K and V."""
        if len(state) != self.size(cells):
            return False
        magic, _, streams, count = HEAD.unpack_from(state)
        if (magic, streams, count) != (MAGIC, 1, cells):
            return False
        at = HEAD.size
        for position in range(first, first + cells):
            if CELL.unpack_from(state, at) != (position, 1):
                return False
            at += self.cell_meta
        if state[at:at + self.form_length] != self.form:
            return False
        at += self.form_length
        for tensor in self.tensors:
            if state[at:at + len(tensor.header)] != tensor.header:
                return False
            at += len(tensor.header) + cells * tensor.cell
        return True

    def text(self) -> str:
        """Describe the layout for the key space."""
        runs = (f"{len([*same])}x{header}" for header, same in itertools.groupby(t.header.hex() for t in self.tensors))
        return f"meta={self.cell_meta} form={self.form.hex()} {' '.join(runs)}"

    def dtype(self) -> str:
        """Return the types of K and V, as ggml's numbers."""
        _, layers = FORM.unpack_from(self.form)
        types = [struct.unpack_from("<i", tensor.header)[0] for tensor in self.tensors]
        return f"k={'+'.join(map(str, sorted({*types[:layers]})))} v={'+'.join(map(str, sorted({*types[layers:]})))}"
