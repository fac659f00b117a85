# SPDX-License-Identifier: MIT
"""A small random model, for tests and demonstrations: python -m kvblk_llamacpp.tiny OUT.gguf

Its tokens are bytes. Its output is meaningless, but depends on the whole prompt. Needs numpy.
"""

from __future__ import annotations

import argparse
import struct
from typing import Any

import numpy

ALIGN = 32
VOCABULARY = 512
_U32, _F32, _STRING, _ARRAY, _I32 = 4, 6, 8, 9, 5


def _text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


def _array(kind: int, values: list[bytes]) -> bytes:
    return struct.pack("<IQ", kind, len(values)) + b"".join(values)


def _facts(layers: int, width: int, heads: int) -> dict[str, tuple[int, bytes]]:
    def u32(n: int) -> tuple[int, bytes]:
        return _U32, struct.pack("<I", n)

    def f32(x: float) -> tuple[int, bytes]:
        return _F32, struct.pack("<f", x)

    # the last: llama.cpp's replacement of a space
    tokens = [b"<unk>", b"<s>", b"</s>", *(b"<0x%02X>" % i for i in range(256)), "\u2581".encode()]
    kinds = [2, 3, 3, *[6] * 256, 1]
    while len(tokens) < VOCABULARY:
        tokens.append(b"t%d" % len(tokens))
        kinds.append(1)
    return {
        "general.architecture": (_STRING, _text(b"llama")), "general.name": (_STRING, _text(b"tiny")),
        "llama.context_length": u32(32768), "llama.embedding_length": u32(width), "llama.block_count": u32(layers),
        "llama.feed_forward_length": u32(2 * width), "llama.attention.head_count": u32(heads),
        "llama.attention.head_count_kv": u32(heads // 2), "llama.rope.dimension_count": u32(width // heads),
        "llama.vocab_size": u32(VOCABULARY), "llama.attention.layer_norm_rms_epsilon": f32(1e-5),
        "tokenizer.ggml.model": (_STRING, _text(b"llama")),
        "tokenizer.ggml.tokens": (_ARRAY, _array(_STRING, [_text(t) for t in tokens])),
        "tokenizer.ggml.scores": (_ARRAY, _array(_F32, [struct.pack("<f", 0)] * VOCABULARY)),
        "tokenizer.ggml.token_type": (_ARRAY, _array(_I32, [struct.pack("<i", k) for k in kinds])),
        "tokenizer.ggml.bos_token_id": u32(1), "tokenizer.ggml.eos_token_id": u32(2),
        "tokenizer.ggml.unknown_token_id": u32(0),
    }


def write(path: str, seed: int = 0, layers: int = 4, width: int = 256) -> None:
    """Write a model of ``layers`` layers; another seed gives another model of the same shape."""
    random = numpy.random.default_rng(seed)
    heads = width // 64
    kv = heads // 2 * 64

    def weights(*shape: int, scale: float = 0.05) -> Any:
        return (random.standard_normal(shape, dtype=numpy.float32) * scale).astype(numpy.float32)

    ones = numpy.ones(width, numpy.float32)
    tensors = {"token_embd.weight": weights(VOCABULARY, width, scale=1.0), "output_norm.weight": ones,
               "output.weight": weights(VOCABULARY, width)}
    for i in range(layers):
        shapes = {"attn_q": (width, width), "attn_k": (kv, width), "attn_v": (kv, width), "attn_output": (width, width),
                  "ffn_gate": (2 * width, width), "ffn_up": (2 * width, width), "ffn_down": (width, 2 * width)}
        tensors |= {f"blk.{i}.{name}.weight": weights(*shape) for name, shape in shapes.items()}
        tensors |= {f"blk.{i}.{name}.weight": ones for name in ("attn_norm", "ffn_norm")}
    facts = _facts(layers, width, heads)
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(facts))
    for name, (kind, value) in facts.items():
        head += _text(name.encode()) + struct.pack("<I", kind) + value
    at = 0
    for name, data in tensors.items():
        shape = data.shape[::-1]
        head += _text(name.encode()) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 0, at)
        at += -(-data.nbytes // ALIGN) * ALIGN
    with open(path, "wb") as out:
        out.write(head.ljust(-(-len(head) // ALIGN) * ALIGN, b"\0"))
        for data in tensors.values():
            raw = data.tobytes()
            out.write(raw.ljust(-(-len(raw) // ALIGN) * ALIGN, b"\0"))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m kvblk_llamacpp.tiny", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("path", metavar="OUT.gguf")
    parser.add_argument("--seed", type=int, default=0, help="another one is another model (0)")
    parser.add_argument("--layers", type=int, default=4, help="(4)")
    parser.add_argument("--width", type=int, default=256, choices=(128, 256, 512, 1024, 2048), help="(256)")
    args = parser.parse_args()
    write(args.path, args.seed, args.layers, args.width)


if __name__ == "__main__":
    main()
