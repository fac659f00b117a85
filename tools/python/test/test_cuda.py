#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: test_cuda.py [POOL]

Memory of a real NVIDIA GPU, through torch, on a real pool or the emulated pool "fake" of libkvblk-fake.
Skipped without a GPU. test_kvblk.py and selftests/host/gpu_sums_test.c have the tests that need no GPU. Prints TAP.
"""

import asyncio
import os
import sys
import threading
import unittest

import kvblk
import tap

try:
    import torch
    GPU = torch.cuda.is_available()
except ImportError:
    torch = None
    GPU = False
try:
    import cupy
except ImportError:
    cupy = None

POOL = sys.argv[1] if len(sys.argv) > 1 else "fake"
run = os.urandom(6).hex()
number = iter(range(1 << 30))

LAYERS, BLOCKS, PAGE = 24, 40, 32 << 10


def key():
    return f"{run} cuda {next(number)}".encode()


def noise(*shape):
    return torch.randint(0, 256, shape, dtype=torch.uint8, device="cuda")


def busy():
    """Start GPU work of about ten milliseconds in the current stream."""
    m = torch.ones(4096, 4096, device="cuda")
    for _ in range(20):
        m = m @ m
    return m


class Cuda(unittest.TestCase):
    def setUp(self):
        self.pool = kvblk.Pool(POOL)

    def tearDown(self):
        self.pool.close()

    def caches(self):
        """Allocate a KV cache: one registered tensor per layer."""
        caches = [noise(BLOCKS, PAGE) for _ in range(LAYERS)]
        self.kinds = {self.pool.register(cache).kind for cache in caches}
        self.assertEqual(len(self.kinds), 1)
        return caches

    def test_one_block(self):
        longest = min(16 << 20, self.pool.get_info().value_max)
        for length in (1, 4097, 1 << 20, (1 << 20) + 1, 5 << 20, longest):
            k, block = key(), noise(length)
            got = torch.full_like(block, 7)
            with self.pool.register(block), self.pool.register(got):
                self.assertIs(self.pool.put(k, block), kvblk.Put.STORED)
                self.assertEqual(self.pool.get(k), bytes(block.cpu().numpy()))
                self.assertEqual(self.pool.get_into(k, got), length)
                self.assertTrue(torch.equal(block, got))
                self.assertIsNone(self.pool.get_into(key(), got))
                self.assertTrue(torch.equal(block, got), "a miss wrote something")
            self.pool.delete(k)

    def test_blocks_of_many_layers(self):
        """Blocks like those of a KV cache, with one piece per layer."""
        caches = self.caches()
        print(f"# memory of the GPU is {self.kinds.pop()}")
        want = [cache.clone() for cache in caches]
        keys = [key() for _ in range(BLOCKS)]
        lists = [[cache[i] for cache in caches] for i in range(BLOCKS)]
        self.assertEqual(set(self.pool.put_many(keys, lists, chain=True)), {kvblk.Put.STORED})
        for cache in caches:
            cache.fill_(3)
        self.pool.delete(keys[5])
        order = list(reversed(range(BLOCKS)))
        self.assertEqual(self.pool.get_many([keys[i] for i in order], [lists[i] for i in order]),
                         [None if i == 5 else LAYERS * PAGE for i in order])
        for cache, old in zip(caches, want):
            old[5].fill_(3)
            self.assertTrue(torch.equal(cache, old))
        # only layers 4 to 7 of a block
        part = [noise(PAGE) for _ in range(4)]
        for piece in part:
            self.pool.register(piece)
        self.assertEqual(self.pool.get_into(keys[9], part, offset=4 * PAGE), 4 * PAGE)
        for i, piece in enumerate(part):
            self.assertTrue(torch.equal(piece, want[4 + i][9]))

    def test_what_the_gpu_is_still_writing(self):
        """A put waits for the current stream's writes; after a get every stream sees the data."""
        k = key()
        block, got = noise(4 << 20), torch.empty(4 << 20, dtype=torch.uint8, device="cuda")
        stream = torch.cuda.Stream()
        with self.pool.register(block), self.pool.register(got):
            with torch.cuda.stream(stream):
                busy()
                block.fill_(0x5a)
                self.assertIs(self.pool.put(k, block), kvblk.Put.STORED)
            with torch.cuda.stream(stream):
                busy()
                got.zero_()
                self.assertEqual(self.pool.get_into(k, got), 4 << 20)
            self.assertTrue(bool((got == 0x5a).all()))
            self.assertEqual(self.pool.get(k), b"\x5a" * (4 << 20))

    def test_longer_than_a_lane(self):
        k, block = key(), noise(20 << 20)
        with self.pool.register(block):
            with self.assertRaises(kvblk.KvblkError):
                self.pool.put(k, block)
        with self.pool.register(block, block_max=20 << 20):
            self.assertIs(self.pool.put(k, block), kvblk.Put.STORED)
            old = block.clone()
            block.zero_()
            self.assertEqual(self.pool.get_into(k, block), 20 << 20)
            self.assertTrue(torch.equal(block, old))
        self.pool.delete(k)

    def test_allocated(self):
        with self.pool.alloc("cuda:0", 1 << 20) as memory:
            self.assertRaises(ValueError, memory.view)
            k, block = key(), os.urandom(1 << 20)
            self.pool.put(k, block)
            self.assertEqual(self.pool.get_into(k, memory[0:1 << 20]), 1 << 20)
            again = key()
            self.assertIs(self.pool.put(again, memory[4096:8192]), kvblk.Put.STORED)
            self.assertEqual(self.pool.get(again), block[4096:8192])

    def test_mixed(self):
        """A block in memory of both the GPU and the host is rejected."""
        block = noise(4096)
        with self.pool.register(block) as memory:
            if memory.kind != "staged":
                self.skipTest("it is not staged")
            with self.assertRaises(kvblk.KvblkError):
                self.pool.put(key(), [block, bytearray(4096)])

    @unittest.skipUnless(cupy, "no cupy")
    def test_other_libraries(self):
        block = cupy.random.randint(0, 256, 1 << 20).astype(cupy.uint8)
        cupy.cuda.runtime.deviceSynchronize()
        pooled = torch.utils.dlpack.from_dlpack(block)
        k = key()
        with self.pool.register(block):
            self.assertIs(self.pool.put(k, block), kvblk.Put.STORED)
            self.assertEqual(self.pool.get(k), bytes(pooled.cpu().numpy()))
        # managed memory migrates between host and GPU
        managed = cupy.ndarray(1 << 20, dtype=cupy.uint8, memptr=cupy.cuda.malloc_managed(1 << 20))
        managed.fill(9)
        cupy.cuda.runtime.deviceSynchronize()
        with self.pool.register(managed) as memory:
            self.assertIs(self.pool.put(key(), managed), kvblk.Put.STORED)
            self.assertEqual(self.pool.get_into(k, managed), 1 << 20)
            self.assertTrue(bool((managed == block).all()), memory.kind)

    def test_threads(self):
        caches = self.caches()
        want = [cache.clone() for cache in caches]
        wrong = []

        def work(first):
            for turn in range(20):
                for i in range(first, BLOCKS, 4):
                    k, pieces = key(), [cache[i] for cache in caches]
                    if self.pool.put(k, pieces) is not kvblk.Put.STORED or \
                            self.pool.get_into(k, pieces) != LAYERS * PAGE:
                        wrong.append((turn, i))
                    self.pool.delete(k)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])
        for cache, old in zip(caches, want):
            self.assertTrue(torch.equal(cache, old))

    def test_in_the_background(self):
        caches = self.caches()
        keys = [key() for _ in range(BLOCKS)]
        lists = [[cache[i] for cache in caches] for i in range(BLOCKS)]
        want = [cache.clone() for cache in caches]

        async def go():
            async with kvblk.AsyncPool(self.pool) as pool:
                stored = await pool.put_many(keys, lists)
                for cache in caches:
                    cache.zero_()
                torch.cuda.synchronize()
                halves = await asyncio.gather(pool.get_many(keys[::2], lists[::2]), pool.get_many(keys[1::2], lists[1::2]))
                return stored, halves

        stored, halves = asyncio.run(go())
        self.assertEqual(set(stored), {kvblk.Put.STORED})
        self.assertEqual({length for half in halves for length in half}, {LAYERS * PAGE})
        for cache, old in zip(caches, want):
            self.assertTrue(torch.equal(cache, old))

    @unittest.skipUnless(cupy, "no cupy")
    def test_memory_that_went(self):
        """A mistake of the caller is an error, and has no other effect."""
        address = cupy.cuda.runtime.malloc(4 << 20)
        memory = self.pool.register((address, 4 << 20))
        self.assertIs(self.pool.put(key(), memory[0:1 << 20]), kvblk.Put.STORED)
        cupy.cuda.runtime.free(address)
        with self.assertRaises(kvblk.KvblkError):
            self.pool.put(key(), memory[0:1 << 20])
        memory.close()
        self.test_one_block()


if __name__ == "__main__":
    if not GPU:
        print("ok python-cuda # SKIP no GPU, or no torch that uses it")
        sys.exit()
    sys.exit(tap.run("python-cuda", unittest.defaultTestLoader.loadTestsFromTestCase(Cuda)))
