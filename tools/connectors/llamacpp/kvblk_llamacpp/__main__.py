# SPDX-License-Identifier: MIT
"""Continue a prompt; blocks of it that the pool has are not computed.

The second run restores the prompt's blocks, in another process:

    python -m kvblk_llamacpp --model model.gguf --pool kv0 --prompt "$(cat long.txt)"
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from typing import Any

import kvblk

from .cache import PrefixCache
from .runtime import PACKAGES, Library, Session
from .state import Unsupported

TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q8_0": 8, "bf16": 30}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m kvblk_llamacpp", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", required=True, metavar="GGUF")
    parser.add_argument("--pool", default="kv0", help="name of a pool, or path of a node (kv0); '': without kvblk")
    parser.add_argument("--prompt", help="a text; without it the prompt is read from standard input")
    parser.add_argument("-n", "--tokens", type=int, default=16, help="how many to generate (16)")
    parser.add_argument("--context", type=int, default=4096, help="tokens that the context holds (4096)")
    parser.add_argument("--batch", type=int, default=512, help="tokens decoded at once (512)")
    parser.add_argument("--threads", type=int, default=1, help="threads that compute (1)")
    parser.add_argument("--gpu-layers", type=int, default=0, help="layers on a GPU (0)")
    parser.add_argument("--kv-type", choices=TYPES, default="f16", help="type of K and V in the cache (f16)")
    parser.add_argument("--salt", default="", help="keys of another salt are other keys")
    parser.add_argument("--salt-file", default=kvblk.SALT_FILE, help="the deployment's salt (%(default)s); '': none")
    parser.add_argument("--block-tokens", type=int, default=64, help="tokens of a block (64)")
    parser.add_argument("--timeout", type=float, default=2.0, help="seconds for a get or put (2)")
    parser.add_argument("--no-save", action="store_true", help="store nothing")
    parser.add_argument("--package", choices=PACKAGES, default="", help="whose llama.cpp (the one that is there)")
    parser.add_argument("--json", action="store_true", help="one object instead of text")
    parser.add_argument("-v", "--verbose", action="store_true", help="llama.cpp's own log, too")
    return parser.parse_args()


def run(args: argparse.Namespace) -> dict[str, Any]:
    prompt = sys.stdin.read() if args.prompt is None else args.prompt
    kind = TYPES[args.kv_type]
    with Session(args.model, library=Library(args.package), threads=args.threads, gpu_layers=args.gpu_layers,
                 verbose=args.verbose, n_ctx=args.context, n_batch=args.batch, type_k=kind, type_v=kind) as session:
        cache = PrefixCache.of(session, pool=args.pool, salt=args.salt, salt_file=args.salt_file,
                               block_tokens=args.block_tokens, timeout_s=args.timeout) if args.pool else None
        # split batches without kvblk, too, or else the answer would differ
        session.cut = args.block_tokens
        tokens = session.tokenize(prompt)
        if not tokens:
            raise ValueError("the prompt is empty")
        if len(tokens) + args.tokens > args.context:
            raise ValueError(f"{len(tokens)} tokens and {args.tokens} more do not fit into a context of {args.context}")
        started = time.monotonic()
        restored = cache.restore(tokens) if cache else 0
        session.decode(tokens[restored:], restored)
        output = [session.sample()]
        first = time.monotonic() - started
        while len(output) < args.tokens and not session.is_end(output[-1]):
            session.decode(output[-1:], len(tokens) + len(output) - 1)
            output.append(session.sample())
        if cache and not args.no_save:
            cache.save(tokens + output, restored)
        report: dict[str, Any] = {
            "prompt_tokens": len(tokens), "restored_tokens": restored, "first_token_ms": round(first * 1000, 3),
            "tokens": output, "text": b"".join(map(session.piece, output)).decode(errors="replace"),
        }
        if cache:
            report["block_bytes"] = cache.block_bytes
            report["stats"] = cache.report.counts()
            cache.close()
        return report


def main() -> int:
    args = arguments()
    logging.basicConfig(format="%(name)s: %(message)s")
    try:
        report = run(args)
    except (kvblk.KvblkError, Unsupported, ValueError, RuntimeError) as e:
        print(f"kvblk_llamacpp: {e}", file=sys.stderr)
        return 1
    if args.json:
        print(json.dumps(report))
        return 0
    print(f"prompt: {report['prompt_tokens']} tokens, {report['restored_tokens']} of them from kvblk")
    print(f"time to first token: {report['first_token_ms']} ms")
    print(f"tokens: {' '.join(map(str, report['tokens']))}")
    if "stats" in report:
        stats = report["stats"]
        print(f"kvblk: {stats['load_blocks']} blocks restored, {stats['store_blocks']} stored, "
              f"{report['block_bytes']} bytes each")
    return 0


if __name__ == "__main__":
    sys.exit(main())
