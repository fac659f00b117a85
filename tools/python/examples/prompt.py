#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: prompt.py POOL

Keep the KV cache of prompts in a pool, with asyncio, numpy and, where it is installed, torch: a request loads the blocks
that an earlier one has stored, and computes and stores the others.
"""

import asyncio
import sys

import numpy

import kvblk

try:
    import torch
except ImportError:
    torch = None

LAYERS, BLOCKS, TOKENS, WIDTH = 4, 32, 16, 512
BLOCK_BYTES = LAYERS * TOKENS * WIDTH * 2


def pieces(cache, blocks):
    """Return the scatter list of each block: a block has a piece in each layer."""
    return [[cache[layer, block] for layer in range(LAYERS)] for block in blocks]


def compute(cache, tokens, first):
    """Compute the blocks from ``first`` on, in place of a model."""
    for block in range(first, len(tokens) // TOKENS):
        for layer in range(LAYERS):
            cache[layer, block] = int(tokens[block * TOKENS]) + layer


async def answer(pool, space, tokens, cache):
    """Fill the cache with a prompt's blocks; returns the number of blocks loaded."""
    keys = space.keys(kvblk.block_ids(tokens, TOKENS))
    # the lease keeps the blocks found until they are loaded
    with pool.lookup_prefix(keys, lease=10) as found:
        lengths = await pool.get_many(keys[:found.leading], pieces(cache, range(found.leading)), timeout=1)
    # the first block that is missing or late ends the prefix
    loaded = next((i for i, length in enumerate(lengths) if length != BLOCK_BYTES), len(lengths))
    compute(cache, tokens, loaded)
    results = await pool.put_many(keys[loaded:], pieces(cache, range(loaded, len(keys))), chain=True,
                                  parent=keys[loaded - 1] if loaded else None, timeout=1)
    for result in results:
        if isinstance(result, kvblk.KvblkError) and result.action is kvblk.Action.REPORT:
            print(f"a block was not stored: {result}", file=sys.stderr)
    return loaded


async def main(name):
    space = kvblk.Keyspace(runtime="prompt.py/1", model="example", dtype="float16", layout=f"{LAYERS}x{TOKENS}x{WIDTH}",
                           block_tokens=TOKENS, secret=kvblk.deployment_salt())
    tokens = numpy.random.default_rng().integers(0, 1000, BLOCKS * TOKENS).tolist()
    first = numpy.zeros((LAYERS, BLOCKS, TOKENS * WIDTH), numpy.float16)
    again = (torch.zeros(first.shape, dtype=torch.float16) if torch else numpy.zeros_like(first))
    async with kvblk.AsyncPool(name) as pool:
        # pinned once, not for each operation
        for cache in first, again:
            await pool.register(cache)
        print(f"first request: {await answer(pool, space, tokens, first)} of {BLOCKS} blocks loaded")
        print(f"again: {await answer(pool, space, tokens, again)} of {BLOCKS} blocks loaded")
    if not (numpy.asarray(again) == first).all():
        sys.exit("the blocks loaded are not those stored")


if len(sys.argv) != 2:
    sys.exit((__doc__ or "").partition("\n")[0])
asyncio.run(main(sys.argv[1]))
