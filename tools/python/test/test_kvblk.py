#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: test_kvblk.py POOL [CLASS...]

The package on a real pool, or on the pool "fake" of libkvblk-fake, which has further tests. Prints
TAP.
"""

import array
import asyncio
import concurrent.futures
import ctypes
import doctest
import errno
import gc
import importlib
import logging
import os
import resource
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from unittest import mock

import kvblk
import tap
from fakepool import arrivals, fault, gate
from kvblk import adapter
from salts import SALT, salt_file

try:
    import numpy
except ImportError:
    numpy = None

POOL = sys.argv[1] if len(sys.argv) > 1 else "fake"
FAKE = POOL == "fake"
run = os.urandom(6).hex()
number = iter(range(1 << 30))


def key(name="key"):
    """Return a key that is unique in the pool."""
    return f"{run} {name} {next(number)}".encode()


def data(length):
    return os.urandom(length)


class TestPool(unittest.TestCase):
    def setUp(self):
        self.pool = kvblk.Pool(POOL)

    def tearDown(self):
        self.pool.close()

    def raises(self, number, call, *args, **kwargs):
        with self.assertRaises(kvblk.KvblkError) as caught:
            call(*args, **kwargs)
        self.assertEqual(caught.exception.errno, number, caught.exception)
        return caught.exception


class OneBlock(TestPool):
    def test_put_and_get(self):
        k, block = key(), data(10000)
        self.assertIsNone(self.pool.get(k))
        self.assertNotIn(k, self.pool)
        self.assertIs(self.pool.put(k, block), kvblk.Put.STORED)
        self.assertIs(self.pool.put(k, block), kvblk.Put.EXISTS)
        self.assertIs(self.pool.put(k, block[:-1]), kvblk.Put.DIFFERS)
        self.assertTrue(kvblk.Put.EXISTS)
        self.assertFalse(kvblk.Put.DIFFERS)
        self.assertFalse(kvblk.Put.PENDING)
        self.assertIn(k, self.pool)
        self.assertEqual(self.pool.exists(k), len(block))
        self.assertEqual(self.pool.get(k), block)
        self.assertTrue(self.pool.delete(k))
        self.assertFalse(self.pool.delete(k))
        self.assertIsNone(self.pool.get(k))
        self.assertIsNone(self.pool.get_into(k, bytearray(10000)))

    def test_part(self):
        k, block = key(), data(20000)
        self.pool.put(k, block)
        part = bytearray(5000)
        self.assertEqual(self.pool.get_into(k, part, offset=8192), 5000)
        self.assertEqual(part, block[8192:13192])
        self.assertEqual(self.pool.get_into(k, part, offset=19000), 1000)
        self.assertEqual(part[:1000], block[19000:])
        self.raises(errno.ERANGE, self.pool.get_into, k, part, offset=20000)

    def test_too_short(self):
        k = key()
        self.pool.put(k, data(5000))
        for options in ({}, {"layout_tag": 0}):
            e = self.raises(errno.EMSGSIZE, self.pool.get_into, k, bytearray(4999), **options)
            self.assertEqual((e.strerror, e.value_len), ("the block is longer than the buffer", 5000))

    def test_bad_keys(self):
        for bad in (b"", b"x" * 513):
            for call in (lambda k: self.pool.put(k, b"x"), self.pool.get, self.pool.delete, self.pool.exists):
                self.assertRaisesRegex(ValueError, "a key has 1 to 512 bytes", call, bad)

    @unittest.skipUnless(numpy, "no numpy")
    def test_keys_of_wide_items(self):
        """Keys with items of more than a byte are rejected: len() is not their length in bytes."""
        wide = [numpy.array([0x3301], numpy.uint64), array.array("I", [1, 2]), memoryview(bytes(8)).cast("I")]
        for bad in wide:
            self.assertRaises(TypeError, self.pool.put, bad, b"x")
            self.assertRaises(TypeError, self.pool.lookup, [bad])

    def test_bad_options(self):
        self.assertRaises(ValueError, self.pool.put, key(), b"x", ttl=-1)
        self.assertRaises(ValueError, self.pool.lookup, [key()], lease=-1)
        self.assertRaises(OverflowError, self.pool.put, key(), b"x", priority=256)
        self.assertRaises(TypeError, self.pool.put, key(), b"x", nonsense=1)
        if not FAKE:
            self.raises(errno.EINVAL, self.pool.put, key(), b"x", priority=4)

    def test_no_such_pool(self):
        e = self.raises(errno.ENODEV, kvblk.Pool, "nowhere")
        self.assertEqual(e.strerror, "no such pool, or it is being destroyed")
        self.raises(errno.ENOTTY, kvblk.Pool, "/dev/null" if not FAKE else "/dev/zero")

    def test_closed(self):
        self.pool.close()
        self.assertRaisesRegex(ValueError, "the pool is closed", self.pool.get, key())
        self.pool.close()

    def test_info(self):
        info = self.pool.get_info()
        self.assertEqual(info.ops_max, 1024)
        self.assertEqual(len(info.pool_uuid), 16)
        self.assertGreater(info.value_max, 0)

    def test_declined(self):
        if not FAKE:
            self.skipTest("a pool's admission policy can't be told to decline one put")
        with fault(DECLINE=1):
            answer = self.pool.put(key(), b"x")
        self.assertIs(answer, kvblk.Put.DECLINED)
        self.assertFalse(answer)

    def test_durable(self):
        name = key()
        self.assertEqual(self.pool.put_many([name], [b"x" * 100], durable=True), [kvblk.Put.STORED])
        self.assertIs(self.pool.put(name, b"x" * 100, durable=True), kvblk.Put.EXISTS)
        self.assertEqual(self.pool.get(name), b"x" * 100)

    def test_prefetch(self):
        try:
            self.assertFalse(self.pool.prefetch(key()))
        except kvblk.KvblkError as e:
            self.assertEqual(e.errno, errno.EOPNOTSUPP)

    @unittest.skipUnless(FAKE, "only the fake pool is slow on request")
    def test_prefetch_late(self):
        names = [key(), key()]
        self.pool.put_many(names, [b"x" * 100] * 2)
        with fault(DRAM=1000000, DELAY_MS=20):
            late = self.pool.prefetch_many(names, timeout=0.001)
            self.assertEqual([answer.errno for answer in late], [errno.ETIME] * 2)
            self.assertEqual(self.pool.prefetch_many(names, timeout=60), [True, True])

    def test_prestage_without_memory(self):
        name = key()
        self.pool.put(name, b"x" * 100)
        with self.assertRaises(kvblk.KvblkError) as caught:
            self.pool.prestage([name])
        self.assertEqual(caught.exception.errno, errno.EOPNOTSUPP)

    @unittest.skipUnless(FAKE, "the pool of this test keeps no blocks in memory")
    def test_prestage(self):
        names = [key() for _ in range(6)]
        self.pool.put_many(names[:3] + names[4:], [b"x" * 100] * 5)
        with fault(DRAM=1000000, LEASE=1):
            got = self.pool.prestage(names, max_bytes=250, stop_at_miss=True, timeout=60, cookie=7, priority=3)
            self.assertEqual(got.states, ["loaded"] * 2 + ["clipped", "missing", "clipped", "clipped"])
            self.assertEqual((got.leading, got.here, got.leased, got.loaded_bytes), (2, 2, 0, 200))
            self.assertFalse(got.lease)
            with self.pool.prestage(names, lease=60) as got:
                self.assertEqual(got.states, ["resident"] * 2 + ["loaded", "missing"] + ["loaded"] * 2)
                self.assertEqual((got.leading, got.here, got.leased), (3, 5, 5))
                self.assertTrue(got.lease)
            self.assertFalse(got.lease)
            self.assertEqual(self.pool.prestage([]).states, [])
            more = [key() for _ in range(5)]
            self.pool.put_many(more[:3] + more[4:], [b"x" * 100] * 4)
            with mock.patch.object(kvblk.pool, "LOOKUP_MAX", 2):
                got = self.pool.prestage(more, stop_at_miss=True)
                self.assertEqual(got.states, ["loaded"] * 3 + ["missing", "clipped"])
                self.assertEqual((got.leading, got.here, got.loaded_bytes), (3, 3, 300))
                with self.pool.prestage(more, lease=60, max_bytes=50) as got:
                    self.assertEqual(got.states, ["resident"] * 3 + ["missing", "clipped"])
                    self.assertTrue(got.lease)

    def test_prestage_states(self):
        """A state of a later library has a name, too."""
        self.assertEqual([kvblk.pool._state(number) for number in (5, 6, 0)], ["expired", "unknown", "unknown"])

    @unittest.skipUnless(FAKE, "only the fake pool is slow on request")
    def test_prestage_late(self):
        names = [key(), key()]
        self.pool.put_many(names, [b"x" * 100] * 2)
        with fault(DRAM=1000000, DELAY_MS=20):
            self.assertEqual(self.pool.prestage(names, timeout=0.001).states, ["expired"] * 2)

    def test_prestage_wrong(self):
        for keys, options, error in (([b""], {}, ValueError), ([b"x" * 513], {}, ValueError), (["x"], {}, TypeError),
                                     ([key()], {"lease": -1}, ValueError), ([key()], {"timeout": -1}, ValueError),
                                     ([key()], {"max_bytes": -1}, OverflowError),
                                     ([key()], {"priority": 4}, kvblk.KvblkError), ([key()], {"priority": -1}, OverflowError),
                                     ([key()], {"lease": 1 << 30}, (OverflowError, kvblk.KvblkError))):
            with self.assertRaises(error, msg=(len(keys), options)):
                self.pool.prestage(keys, **options)

    def test_hint(self):
        names = [key() for _ in range(4)]
        self.pool.put_many(names[:3], [b"x" * 100] * 3)
        self.assertEqual(self.pool.hint(names, release=True), 3)
        self.assertEqual(self.pool.hint(names[3:], demote=True), 0)
        self.assertEqual(self.pool.hint([], demote=True), 0)
        for keys, options, error in ((names, {}, kvblk.KvblkError), (names, {"release": True, "demote": True}, kvblk.KvblkError),
                                     (names, {"priority": 4}, kvblk.KvblkError), (names, {"priority": -1}, OverflowError),
                                     (names, {"retain": -1}, ValueError), (names, {"retain": 86401}, kvblk.KvblkError),
                                     ([b""], {"demote": True}, ValueError), (["x"], {"demote": True}, TypeError)):
            with self.assertRaises(error, msg=options):
                self.pool.hint(keys, **options)
        with kvblk.Pool(POOL, rdonly=True) as reader, self.assertRaises(kvblk.KvblkError) as caught:
            reader.hint(names, demote=True)
        self.assertEqual(caught.exception.errno, errno.EBADF)

    @unittest.skipUnless(FAKE, "only the fake pool reports hints")
    def test_hint_values(self):
        names = [key() for _ in range(3)]
        self.pool.put_many(names, [b"x" * 100] * 3)
        with tempfile.NamedTemporaryFile() as log, fault(HINTS=log.name), mock.patch.object(kvblk.pool, "LOOKUP_MAX", 2):
            self.assertEqual(self.pool.hint(names, priority=0, retain=1.5, demote=True), 3)
            self.pool.hint(names[:1], retain=0)
            self.assertEqual(log.read().decode().splitlines(), [f"{name.hex()} priority=0 retain=2 demote" for name in names]
                             + [f"{names[0].hex()} retain=0"])

    @unittest.skipUnless(FAKE, "only the fake pool waits on request")
    def test_gil(self):
        """The GIL is released in the kernel: the get completes only when another thread opens the gate."""
        k = key()
        self.pool.put(k, b"x" * 100)
        with gate() as go_on, concurrent.futures.ThreadPoolExecutor(1) as threads:
            future = threads.submit(self.pool.get_into, k, bytearray(100))
            go_on(1)
            self.assertEqual(future.result(60), 100)


class Batches(TestPool):
    def test_one_result_a_key(self):
        keys = [key() for _ in range(50)]
        blocks = [data(1000 + i) for i in range(50)]
        self.assertEqual(set(self.pool.put_many(keys[::2], blocks[::2])), {kvblk.Put.STORED})
        self.assertEqual(set(self.pool.put_many(keys, blocks)), {kvblk.Put.STORED, kvblk.Put.EXISTS})
        self.assertEqual(self.pool.delete_many(keys[1::5]), [True] * 10)
        bufs = [bytearray(1050) for _ in keys]
        bufs[4] = bytearray(4)
        got = self.pool.get_many(keys, bufs)
        for i, length in enumerate(got):
            if i % 5 == 1:
                self.assertIsNone(length)
            elif i == 4:
                self.assertEqual(length.errno, errno.EMSGSIZE)
            else:
                self.assertEqual(bufs[i][:length], blocks[i])

    def test_chain(self):
        keys = [key() for _ in range(5)]
        self.assertTrue(all(self.pool.put_many(keys[:3], [b"x"] * 3, chain=True, continues=True)))
        self.assertTrue(all(self.pool.put_many(keys[3:], [b"x"] * 2, chain=True, parent=keys[2], missed=True)))

    def test_scatter(self):
        block = data(100000)
        view = memoryview(block)
        k = key()
        self.pool.put(k, [view[:10], view[10:50000], view[50000:]])
        self.assertEqual(self.pool.get(k), block)
        parts = [bytearray(n) for n in (4096, 1, 65536, 40000)]
        self.assertEqual(self.pool.get_into(k, parts), 100000)
        self.assertEqual(b"".join(parts)[:100000], block)
        block = data(1024)
        view = memoryview(block)
        k = key()
        self.pool.put(k, [view[i:i + 1] for i in range(1024)])
        self.assertEqual(self.pool.get(k), block)

    def test_one_that_cannot_be(self):
        """A wrong operation gets its own error, and the others are done."""
        keys = [key() for _ in range(4)]
        done = self.pool.put_many(keys, [b"a", b"", (4096, 1 << 32), b"d"], chain=True)
        self.assertEqual([done[0], done[3]], [kvblk.Put.STORED] * 2)
        self.assertEqual([done[1].errno, done[2].errno], [errno.EINVAL] * 2)
        self.assertEqual([self.pool.get(k) for k in keys], [b"a", None, None, b"d"])

    def test_limits(self):
        self.assertRaisesRegex(ValueError, "2 keys and 1 buffers", self.pool.put_many, [b"x", b"y"], [b"x"])
        self.assertRaisesRegex(ValueError, "not 1025", self.pool.put, key(), [b"x"] * 1025)
        self.raises(errno.EINVAL, self.pool.put, key(), b"")
        self.raises(errno.EINVAL, self.pool.get_into, key(), (4096, 1 << 32))

    def test_any_length(self):
        """Longer batches run in parts, and empty ones return nothing."""
        self.assertEqual((self.pool.put_many([], []), self.pool.get_many([], []), self.pool.delete_many([])), ([], [], []))
        # different keys, because operations in flight on one key are not ordered
        keys, doomed = [key() for _ in range(2500)], [key() for _ in range(1500)]
        self.assertEqual(self.pool.put_many(keys, keys, chain=True), [kvblk.Put.STORED] * 2500)
        self.assertEqual(self.pool.put_many(doomed, doomed), [kvblk.Put.STORED] * 1500)
        bufs = [bytearray(len(k)) for k in keys]
        self.assertEqual(self.pool.get_many(keys, bufs), [*map(len, keys)])
        self.assertEqual(bufs, keys)
        with kvblk.Queue(self.pool) as queue:
            # more than are in flight at once
            jobs = [queue.get(keys * 7, bufs * 7), queue.get([], []), queue.delete([*doomed, key()])]
            over = []
            while len(over) < 3:
                over += queue.wait(60)
            self.assertEqual(jobs[0].results, [*map(len, keys)] * 7)
            self.assertEqual((jobs[1].results, jobs[2].results), ([], [True] * 1500 + [False]))
        self.assertEqual(self.pool.delete_many(doomed + keys), [False] * 1500 + [True] * 2500)

    @unittest.skipUnless(FAKE, "only the fake pool logs puts")
    def test_chain_of_any_length(self):
        """The parts of a long chain are connected."""
        keys = [key("chain").replace(b" ", b"-") for _ in range(2500)]
        with tempfile.NamedTemporaryFile("r") as log, fault(LOG=log.name):
            self.pool.put_many(keys, [b"x"] * 2500, chain=True, parent=b"first")
            lines = log.read().splitlines()
        self.assertEqual([line.split()[:2] for line in lines],
                         [[k.decode(), f"parent={parent.decode()}"] for k, parent in zip(keys, [b"first", *keys])])


class Lookups(TestPool):
    def test_lookup_prefix(self):
        keys = [key() for _ in range(300)]
        self.pool.put_many(keys[:200], [b"x" * 5000] * 200)
        self.pool.delete(keys[150])
        with self.pool.lookup_prefix(keys, lease=30) as run:
            self.assertEqual(run.leading, 150)
            self.assertTrue(run.lease)
        self.assertFalse(run.lease)
        found = self.pool.lookup(keys, sizes=True)
        self.assertEqual((found.leading, found.present, len(found)), (150, 199, 300))
        self.assertEqual([found[i] for i in (0, 149, 150, 151, 199, 200)], [True, True, False, True, True, False])
        self.assertEqual(found.sizes, [5000] * 150 + [0] + [5000] * 49 + [0] * 100)
        self.assertFalse(found.lease)
        self.assertRaises(TypeError, bool, found)
        late = self.pool.lookup(keys[:1], lease=30)
        self.assertRaises(IndexError, found.__getitem__, 300)
        self.assertEqual(sum(found), 199)
        self.pool.close()
        late.lease.release()

    def test_lengths_and_tags(self):
        keys = [key("short"), key("rather long"), key("the longest of them all")]
        self.pool.put(keys[0], b"1", caller_tag=11)
        self.pool.put(keys[2], b"333", caller_tag=1 << 63)
        found = self.pool.lookup(keys, sizes=True, tags=True)
        self.assertEqual((found.sizes, found.tags, list(found)), ([1, 0, 3], [11, 0, 1 << 63], [True, False, True]))

    def test_many(self):
        keys = [key() for _ in range(3000)]
        for i in range(0, 3000, 1000):
            self.pool.put_many(keys[i:i + 1000], [b"x"] * 1000)
        self.assertEqual(self.pool.lookup(keys).present, 3000)
        self.assertEqual(len(self.pool.lookup([], sizes=True)), 0)
        # more than a lookup takes, with a lease of several parts
        with mock.patch.object(kvblk.pool, "LOOKUP_MAX", 1024):
            absent = key()
            with self.pool.lookup([*keys, absent, keys[0]], lease=30, sizes=True) as found:
                self.assertEqual((found.leading, found.present, len(found)), (3000, 3001, 3002))
                self.assertEqual(found.sizes, [1] * 3000 + [0, 1])
                self.assertEqual([found[i] for i in (0, 1023, 1024, 2999, 3000, 3001)], [True] * 4 + [False, True])
                self.assertTrue(found.lease)
            self.assertEqual(self.pool.lookup([absent, *keys], prefix=True).present, 0)

    def test_lease_of_a_part(self):
        """With a lease, a prefix ends where the lease ends; the end of the lease is known."""
        keys = [key() for _ in range(20)]
        self.pool.put_many(keys, [b"x"] * 20)
        began = time.monotonic()
        with self.pool.lookup_prefix(keys, lease=30) as found:
            self.assertEqual((found.leading, found.leased), (20, 20))
            self.assertTrue(began + 29 < found.lease.end < time.monotonic() + 31)
        self.assertEqual(self.pool.lookup_prefix(keys).lease.end, 0)
        if FAKE:
            with fault(LEASE_KEYS=3), mock.patch.object(kvblk.pool, "LOOKUP_MAX", 8):
                with self.pool.lookup_prefix(keys, lease=30) as found:
                    self.assertEqual((found.leading, found.present, found.leased), (3, 20, 3))

    def test_tiers(self):
        keys = [key(), key()]
        self.pool.put(keys[0], b"x")
        self.assertEqual(self.pool.lookup(keys, quiet=True, tiers=True).tiers, ["member", None])
        # as if the kernel reported a tier that the package does not know
        with mock.patch.object(kvblk.pool, "_TIERS", (None,)):
            self.assertEqual(self.pool.lookup(keys, quiet=True, tiers=True).tiers, ["unknown", None])

    def test_times(self):
        keys = [key() for _ in range(5)]
        self.pool.put_many([*keys[:2], *keys[3:]], [b"x" * 1000] * 4)
        self.assertIsNone(self.pool.lookup(keys, quiet=True).times)
        times = self.pool.lookup(keys, quiet=True, times=True).times
        self.assertEqual((len(times), times[2]), (5, 0))
        self.assertTrue(self.pool.get_info().predicts)
        if FAKE:
            with fault(RATE=10000):
                self.assertEqual(self.pool.lookup(keys, quiet=True, times=True).times, [0.1, 0.2, 0, 0.3, 0.4])
                with mock.patch.object(kvblk.pool, "LOOKUP_MAX", 8):
                    # parts of present, of absent and of both kinds of keys
                    parts = [*[keys[0]] * 8, *[keys[2]] * 8, keys[0], keys[2], keys[1]]
                    self.assertEqual(self.pool.lookup(parts, quiet=True, times=True).times,
                                     [*(i / 10 for i in range(1, 9)), *[0] * 8, 0.9, 0, 1.0])
                report = kvblk.adapter.Report(logging.getLogger("test"))
                # a block takes 100 ms to load
                for compute_s, worth in ((0, 2), (0.2, 2), (0.05, 0)):
                    found = kvblk.adapter.Checked(self.pool, report, compute_s).look_up(keys, [0] * 5, prefix=True)
                    self.assertEqual((found.leading, found.worth), (2, worth))
                    found = kvblk.adapter.Checked(self.pool, report, compute_s).look_up(keys, [0] * 5)
                    self.assertEqual((found.leading, found.worth), (2, 5))
                with mock.patch.object(kvblk.results.Info, "predicts", False), self.assertRaisesRegex(ValueError, "predicts"):
                    kvblk.adapter.Checked(self.pool, report, 0.05)

    def test_layout_tag(self):
        k = key()
        self.pool.put(k, b"x", layout_tag=5)
        self.assertEqual(self.pool.get_into(k, bytearray(1), layout_tag=5), 1)
        self.assertEqual(self.pool.layout_tag(k, bytearray(1)), 5)
        self.assertIsNone(self.pool.layout_tag(key(), bytearray(1)))
        if not FAKE:
            self.assertIsNone(self.pool.get_into(k, bytearray(1), layout_tag=6))


class OnlyDlpack:
    """Memory with no interface but DLPack."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self):
        return self.array.__dlpack__()


class LikeTorch:
    """The part of torch.Tensor that the package uses."""

    def __init__(self, block, contiguous=True):
        self.block = block
        self.nbytes = len(block)
        self.contiguous = contiguous

    def data_ptr(self):
        return ctypes.addressof(ctypes.c_char.from_buffer(self.block))

    def is_contiguous(self):
        return self.contiguous


@unittest.skipUnless(FAKE and "KVBLK_FAKE_CUDA" in os.environ, "needs the fake CUDA driver")
class GpuChecksums(TestPool):
    """Checksums by a GPU, whose code the fake driver runs on the CPU."""

    PAGE = 70000

    def setUp(self):
        super().setUp()
        integrity = mock.patch.dict(os.environ, KVBLK_FAKE_INTEGRITY="1")
        integrity.start()
        self.addCleanup(integrity.stop)
        self.cuda = ctypes.CDLL(os.environ["KVBLK_FAKE_CUDA"], mode=ctypes.RTLD_GLOBAL)
        self.cuda.fake_cuda_bytes.restype = ctypes.c_void_p
        self.memory = self.pool.alloc("cuda:0", 8 * self.PAGE)
        self.bytes = self.cuda.fake_cuda_bytes(ctypes.c_uint64(self.memory.address))
        self.content = data(4 * self.PAGE)
        ctypes.memmove(self.bytes, self.content, len(self.content))

    def pages(self, first):
        return [[(self.memory.address + page * self.PAGE, self.PAGE)
                 for page in (first + i, first + 3 - i)] for i in range(2)]

    def got(self, page):
        return ctypes.string_at(self.bytes + page * self.PAGE, self.PAGE)

    def test_batches(self):
        self.assertTrue(self.pool.gpu_checksums(self.memory[0:100]))
        self.assertTrue(self.pool.gpu_checksums((self.memory.address + 7, 100)))
        self.assertFalse(self.pool.gpu_checksums(bytearray(100)))
        keys = [key(), key()]
        launches = self.cuda.fake_cuda_launches()
        self.assertEqual(self.pool.put_many(keys, self.pages(0), chain=True, gpu_checksums=True), [kvblk.Put.STORED] * 2)
        self.assertEqual(self.cuda.fake_cuda_launches(), launches + 1)
        self.assertEqual(self.pool.get_many([*keys, key()], [*self.pages(4), self.pages(4)[0]], gpu_checksums=True),
                         [2 * self.PAGE] * 2 + [None])
        self.assertEqual(self.cuda.fake_cuda_launches(), launches + 2)
        for page in range(4):
            self.assertEqual(self.got(4 + page), self.content[page * self.PAGE:(page + 1) * self.PAGE])

    def test_many(self):
        """One launch verifies all gets of a batch."""
        k, count = key(), 1000
        self.pool.put_many([k], [[(self.memory.address, 100)]], gpu_checksums=True)
        launches = self.cuda.fake_cuda_launches()
        places = [[(self.memory.address + 4 * self.PAGE + 100 * i, 100)] for i in range(count)]
        self.assertEqual(self.pool.get_many([k] * count, places, gpu_checksums=True), [100] * count)
        self.assertEqual(self.cuda.fake_cuda_launches(), launches + 1)
        self.assertEqual(ctypes.string_at(self.bytes + 4 * self.PAGE, 100 * count), self.content[:100] * count)

    def test_queue(self):
        keys = [key(), key()]
        with kvblk.Queue(self.pool) as jobs:
            for call, first, want in (jobs.put, 0, kvblk.Put.STORED), (jobs.get, 4, 2 * self.PAGE):
                launches = self.cuda.fake_cuda_launches()
                job = call(keys, self.pages(first), gpu_checksums=True)
                while job.results is None:
                    jobs.wait(10)
                self.assertEqual(job.results, [want] * 2)
                self.assertEqual(self.cuda.fake_cuda_launches(), launches + 1)

    def test_part(self):
        """A part that begins within a chunk and ends in the next one needs two checksums."""
        k, part = key(), (self.memory.address + 4 * self.PAGE, 10000)
        self.pool.put_many([k], self.pages(0)[:1], gpu_checksums=True)
        self.assertEqual(self.pool.get_many([k], [part], offset=60000, gpu_checksums=True), [10000])
        self.assertEqual(self.got(4)[:10000], self.content[60000:70000])

    def test_drain(self):
        """Drain returns after the verification, which may write to the blocks' memory."""
        k = key()
        self.pool.put_many([k], self.pages(0)[:1], gpu_checksums=True)
        with kvblk.Queue(self.pool) as jobs:
            launches = self.cuda.fake_cuda_launches()
            job = jobs.get([k], self.pages(4)[:1], gpu_checksums=True)
            jobs.drain(60)
            self.assertEqual((job.results, self.cuda.fake_cuda_launches()), (None, launches + 1))
            self.assertEqual((jobs.wait(60), self.cuda.fake_cuda_launches()), ([job], launches + 1))
            self.assertEqual(job.results, [2 * self.PAGE])

    def test_close(self):
        """Neither drain nor close returns while another thread verifies a job, and gets a damaged block again."""
        k = key()
        self.pool.put_many([k], self.pages(0)[:1], gpu_checksums=True)
        with gate() as go_on, arrivals() as arrived, concurrent.futures.ThreadPoolExecutor(3) as threads:
            jobs = kvblk.Queue(self.pool)
            job = jobs.get([k], self.pages(4)[:1], gpu_checksums=True)
            arrived()
            go_on(1)
            select.select([jobs], [], [])
            ctypes.memset(self.bytes + 4 * self.PAGE, self.content[0] ^ 1, 1)
            collecting = threads.submit(jobs.wait)
            arrived()
            ends = [threads.submit(end) for end in (jobs.drain, jobs.close)]
            # neither can end, so a longer wait would change nothing
            early = concurrent.futures.wait(ends, 0.3).done
            go_on(1)
            self.assertEqual(early, set())
            self.assertEqual((ends[1].result(60), ends[0].result(60), collecting.result(60)), ([], None, [job]))
        self.assertEqual(job.results, [2 * self.PAGE])
        self.assertEqual(self.got(4), self.content[:self.PAGE])

    def test_handler(self):
        """A signal handler may drain or close while its thread verifies."""
        k = key()
        self.pool.put_many([k], self.pages(0)[:1], gpu_checksums=True)
        for end in "drain", "close":
            jobs = kvblk.Queue(self.pool)
            job = jobs.get([k], self.pages(4)[:1], gpu_checksums=True)
            batch = job.batch
            with mock.patch("kvblk.results.lib") as lib:
                lib.kvpy_batch_verify.side_effect = lambda *_: setattr(batch, "verifier", None) or getattr(jobs, end)()
                self.assertEqual(jobs.wait(60), [job])
            self.assertEqual(lib.kvpy_batch_verify.call_count, 1)
            jobs.close()

    def test_drain_timeout(self):
        """A drain that has waited long enough leaves the verification to who takes the job."""
        k = key()
        self.pool.put_many([k], self.pages(0)[:1], gpu_checksums=True)
        with kvblk.Queue(self.pool) as jobs:
            job = jobs.get([k], self.pages(4)[:1], gpu_checksums=True)
            select.select([jobs], [], [])
            launches = self.cuda.fake_cuda_launches()
            with self.assertRaises(kvblk.KvblkError) as raised:
                jobs.drain(0)
            self.assertEqual((raised.exception.errno, self.cuda.fake_cuda_launches()), (errno.ETIME, launches))
            self.assertEqual(jobs.wait(60), [job])

    def test_host_memory(self):
        """Memory of no GPU: the kernel computes the checksums."""
        k, block = key(), bytearray(data(100))
        self.assertIs(self.pool.put_many([k], [block], gpu_checksums=True)[0], kvblk.Put.STORED)
        self.assertEqual(self.pool.get_many([k], [block], gpu_checksums=True), [100])


class LikeCuda:
    def __init__(self, block, **about):
        self.block = block
        address = ctypes.addressof(ctypes.c_char.from_buffer(block))
        self.__cuda_array_interface__ = {"data": (address, False), "typestr": "<f4", "shape": (len(block) // 4,),
                                         "version": 3, **about}


class Buffers(TestPool):
    def round_trip(self, put, get, block):
        k = key()
        self.assertIs(self.pool.put(k, put), kvblk.Put.STORED)
        self.assertEqual(self.pool.get_into(k, get), len(block))
        self.assertEqual(self.pool.get(k), block)

    def test_protocol(self):
        block = data(8000)
        for kind in (bytearray, lambda b: memoryview(bytearray(b)), lambda b: array.array("I", b),
                     lambda b: memoryview(array.array("d", b))):
            get = kind(bytes(8000))
            self.round_trip(kind(block), get, block)
            self.assertEqual(bytes(get), block)
        self.round_trip(block, bytearray(8000), block)

    def test_refused(self):
        k = key()
        self.pool.put(k, b"12345678")
        for bad in (bytes(8), memoryview(bytes(8)), memoryview(bytearray(16))[::2], "text", None, 7, {}):
            self.assertRaises(TypeError, self.pool.get_into, k, bad)

    def test_tensors(self):
        block = data(8000)
        got = bytearray(8000)
        self.round_trip(LikeTorch(bytearray(block)), LikeTorch(got), block)
        self.assertEqual(got, block)
        got = bytearray(8000)
        self.round_trip(LikeCuda(bytearray(block)), LikeCuda(got), block)
        self.assertEqual(got, block)
        self.round_trip((ctypes.addressof(ctypes.c_char.from_buffer(got)), 8000), [got], block)
        self.assertRaises(TypeError, self.pool.put, key(), LikeTorch(bytearray(8), False))
        self.assertRaises(TypeError, self.pool.put, key(), LikeCuda(bytearray(8), strides=(8,)))
        read_only = LikeCuda(bytearray(8))
        read_only.__cuda_array_interface__["data"] = (4096, True)
        self.assertRaises(TypeError, self.pool.get_into, key(), read_only)

    @unittest.skipUnless(numpy, "no numpy")
    def test_numpy(self):
        want = numpy.random.default_rng().integers(0, 255, (7, 11, 13), dtype=numpy.int64)
        got = numpy.zeros_like(want)
        self.round_trip(want, got, want.tobytes())
        self.assertTrue((want == got).all())
        got[:] = 0
        self.round_trip(OnlyDlpack(want), OnlyDlpack(got), want.tobytes())
        self.assertTrue((want == got).all())
        self.assertRaises(TypeError, self.pool.put, key(), want[:, ::2])
        dates = numpy.arange("2026-01", "2026-09", dtype="datetime64[D]")
        self.round_trip(dates, numpy.zeros_like(dates), dates.tobytes())
        self.assertRaises(TypeError, self.pool.put, key(), dates[::2])
        self.assertRaises(TypeError, self.pool.put, key(), OnlyDlpack(want.T))

    def test_torch(self):
        try:
            import torch
        except ImportError:
            self.skipTest("no torch")
        want = torch.rand(5, 7, 11, dtype=torch.float32).to(torch.bfloat16)
        got = torch.zeros_like(want)
        k = key()
        self.pool.put(k, want)
        self.assertEqual(self.pool.get_into(k, got), want.nbytes)
        self.assertTrue(torch.equal(want, got))
        self.assertRaises(TypeError, self.pool.put, key(), want.T)


class RegisteredMemory(TestPool):
    def test_slices(self):
        slab = bytearray(data(1 << 20))
        with self.pool.register(slab) as memory:
            self.assertEqual((memory.kind, memory.nbytes), ("registered", 1 << 20))
            k = key()
            self.pool.put(k, memory[100:200000])
            self.assertEqual(self.pool.get(k), slab[100:200000])
            self.assertEqual(self.pool.get_into(k, [memory[500000:500100], memory[600000:]]), 199900)
            self.assertEqual(slab[500000:500100] + slab[600000:799800], slab[100:200000])
            for bad in (slice(0, 0), slice(9, 3), slice(0, 10, 2), slice(1 << 20, 1 << 21)):
                self.assertRaises(ValueError, memory.__getitem__, bad)
            self.assertRaises(ValueError, self.pool.register, memory)
        self.assertRaisesRegex(ValueError, "closed", lambda: memory[0:1])
        memory.close()

    def test_found(self):
        """A buffer within registered memory uses the registration; a buffer outside or partly outside does not."""
        slabs = [bytearray(data(100000)) for _ in range(5)]
        other = bytearray(data(1000))
        with self.pool.register(slabs[3]) as kept:
            for slab in slabs[:3]:
                self.pool.register(slab)
            for slab in (*slabs, other):
                k = key()
                self.pool.put(k, memoryview(slab)[7:777])
                self.assertEqual(self.pool.get(k), slab[7:777])
            batch = self.pool.batch(1, [key()], [memoryview(slabs[3])[1:2]])
            self.assertIn(kept.handle, batch.keep[0])
            batch.free()

    def test_closed_meanwhile(self):
        """A prepared batch keeps its memory alive."""
        slab = bytearray(data(10000))
        k = key()
        memory = self.pool.register(slab)
        batch = self.pool.batch(1, [k], [memory[0:10000]])
        memory.close()
        gc.collect()
        self.assertEqual(self.pool.run(batch), [kvblk.Put.STORED])
        self.assertEqual(self.pool.get(k), slab)

    def test_of_another_pool(self):
        """Memory of another pool is rejected: its handle is not valid here."""
        with kvblk.Pool(POOL) as other, other.register(bytearray(8192)) as memory:
            self.assertRaisesRegex(ValueError, "another pool", self.pool.put, key(), memory[0:10])
            with self.pool.register(bytearray(8192)):
                self.assertRaisesRegex(ValueError, "another pool", self.pool.get_into, key(), memory[0:10])
            self.assertIs(other.put(key(), memory[0:10]), kvblk.Put.STORED)

    def test_collected(self):
        """A dropped pool, in a cycle with its memory, is closed after its memory."""
        from kvblk.memory import alive
        before = len(alive)
        for _ in range(20):
            dropped = kvblk.Pool(POOL)
            dropped.register(bytearray(8192))
            number = max(alive)
            self.assertIs(alive[number], dropped.handle)
            del dropped
            gc.collect()
        self.assertEqual(len(alive), before)

    def test_fork(self):
        """A child that exits does not affect its parent, and does not wait for threads that it does not have."""
        slab = bytearray(data(8192))
        queue = kvblk.Queue(self.pool)
        queue.put([key()], [b"x"])
        queue.wait(60)
        with self.pool.register(slab) as memory:
            def child():
                memory.close()
                queue.close()
                gc.collect()
                return True

            self.in_child(child)
            k = key()
            self.assertIs(self.pool.put(k, memory[:]), kvblk.Put.STORED)
            self.assertEqual(self.pool.get(k), slab)
        queue.close()

    def in_child(self, what):
        """Run ``what`` in a child of fork(); the child exits with 0 if it returns true, and with an error if it hangs."""
        child = os.fork()
        if not child:
            good = False
            try:
                signal.alarm(60)
                good = what()
            finally:
                os._exit(0 if good else 1)
        self.assertEqual(os.waitpid(child, 0)[1], 0)

    def refuses(self, call, *args, **kwargs):
        try:
            call(*args, **kwargs)
        except ValueError as e:
            return "the parent process'" in str(e)
        return False

    def test_child_is_refused(self):
        """In a child each object raises at once, and closing it does not affect the parent."""
        queue, futures = kvblk.Queue(self.pool), kvblk.FuturePool(POOL)
        memory = self.pool.register(bytearray(8192))
        k, room = key(), bytearray(5000)
        future = futures.put_many([k], [b"f" * 5000])
        future.result(60)

        def child():
            refused = [self.refuses(*call) for call in (
                (self.pool.get, k), (self.pool.lookup, [k]), (self.pool.put, k, b"x"), (self.pool.get_info,),
                (self.pool.fileno,), (self.pool.register, bytearray(4096)), (kvblk.Queue, self.pool),
                (queue.put, [k], [b"x"]), (queue.get, [k], [room]), (queue.wait,), (queue.completed,),
                (queue.fileno,), (futures.get_many, [k], [room]), (future.result,), (future.exception,),
                (future.add_done_callback, print), (memory.view,), (lambda: memory[:],))]
            futures.close()
            queue.close()
            self.pool.close()
            with kvblk.FuturePool(POOL) as own:
                fine = own.pool.get(k) == b"f" * 5000
            return all(refused) and fine

        self.in_child(child)
        self.assertEqual(futures.get_many([k], [room]).result(60), [5000])
        queue.get([k], [memory[:5000]])
        self.assertEqual(queue.wait(60)[0].results, [5000])
        queue.close()
        futures.close()

    def test_child_closes_a_loop(self):
        """Closing a copy of an AsyncPool in a child does not affect the parent's loop, which shares descriptors."""
        async def main():
            pool, k = kvblk.AsyncPool(POOL), key()
            await pool.put(k, b"x" * 4096)

            def child():
                closing = pool.close()
                try:
                    closing.send(None)
                except StopIteration:
                    return True
                return False

            self.in_child(child)
            self.assertEqual(await asyncio.wait_for(pool.get_into(k, bytearray(4096)), 60), 4096)
            await pool.close()

        asyncio.run(main())

    def test_child_leaves_a_lease(self):
        k = key()
        self.pool.put(k, b"x")
        with self.pool.lookup([k], lease=60) as found:
            lease, = found.lease._ids

            def child():
                found.__exit__(None, None, None)
                return not found.lease

            self.in_child(child)
            # ENOENT would mean that the child has ended the lease
            self.assertEqual(kvblk._native.lib.kvblk_lease_release(self.pool.handle, lease), 0)

    def test_fresh(self):
        memory = self.pool.alloc("host", 1 << 16)
        view = memory.view()
        view[:5] = b"hello"
        k = key()
        self.pool.put(k, memory[0:5])
        memory.close()
        self.pool.close()
        # the view keeps the memory alive
        self.assertEqual(bytes(view[:5]), b"hello")
        with kvblk.Pool(POOL) as pool:
            self.assertEqual(pool.get(k), b"hello")
            self.raises(errno.ENOENT, pool.alloc, "/nowhere/at/all", 4096)


class Background(TestPool):
    def test_from_threads(self):
        with kvblk.Queue(self.pool, 4) as queue:
            want = {}

            def start(n):
                for i in range(20):
                    k, block = key(f"thread {n}"), data(3000)
                    want[k] = block
                    queue.put([k], [block], tag=k)

            threads = [threading.Thread(target=start, args=(n,)) for n in range(4)]
            for thread in threads:
                thread.start()
            over = []
            while len(over) < 80:
                over += queue.wait(60)
            for thread in threads:
                thread.join()
            self.assertEqual({job.tag for job in over}, set(want))
            self.assertEqual({job.results[0] for job in over}, {kvblk.Put.STORED})
            self.assertEqual(queue.completed(), [])
        for k, block in want.items():
            self.assertEqual(self.pool.get(k), block)

    def test_closed(self):
        queue = kvblk.Queue(self.pool)
        queue.put([key() for _ in range(100)], [b"x" * 4096] * 100)
        for job in queue.close():
            self.assertEqual(len(job.results), 100)
        self.assertRaises(ValueError, queue.put, [key()], [b"x"])
        self.assertRaises(ValueError, queue.fileno)
        self.assertEqual(queue.close(), [])
        self.raises(errno.EINVAL, kvblk.Queue, self.pool, 65)
        self.assertRaises(ValueError, kvblk.Queue, self.pool, 0)

    def test_closed_lets_go(self):
        """A pool whose queue was closed closes at once, not when the queue is freed."""
        pool = kvblk.Pool(POOL)
        node = pool.fileno()
        queue = kvblk.Queue(pool)
        event = queue.fileno()
        queue.close()
        pool.close()
        self.assertRaises(OSError, os.fstat, node)
        self.assertRaises(OSError, os.fstat, event)
        self.assertEqual(queue.completed(), [])

    @unittest.skipUnless(FAKE, "only the fake pool waits on request")
    def test_not_begun(self):
        """When a queue is closed, jobs that have not begun are cancelled, and no job can be started."""
        with gate() as go_on, arrivals() as arrived, concurrent.futures.ThreadPoolExecutor(1) as threads:
            queue = kvblk.Queue(self.pool, 1)
            jobs = [queue.put([key()], [b"x"]) for _ in range(3)]
            # or else close() may cancel all three, and end before the put below
            arrived()
            closing = threads.submit(queue.close)
            while not queue._stopped:
                time.sleep(0.001)
            self.raises(errno.ECANCELED, queue.put, [key()], [b"x"])
            go_on(3)
            self.assertEqual(len(closing.result(60)), 3)
        self.assertRaises(ValueError, queue.put, [key()], [b"x"])
        self.assertEqual(jobs[-1].results[0].errno, errno.ECANCELED)

    @unittest.skipUnless(FAKE, "only the fake pool waits on request")
    def test_cancel_before_it_begins(self):
        with gate() as go_on, kvblk.Queue(self.pool, 1) as queue:
            queue.put([key()], [b"x"])
            k = key()
            job = queue.put([k], [b"x"])
            self.assertTrue(queue.cancel(job))
            go_on(2)
            over = []
            while len(over) < 2:
                over += queue.wait(60)
            self.assertEqual((job.results[0].errno, job.results[0].action), (errno.ECANCELED, kvblk.Action.SKIP))
            self.assertFalse(queue.cancel(job))
        self.assertIsNone(self.pool.get(k))

    @unittest.skipUnless(FAKE, "only the fake pool is slow on request")
    def test_cancel_of_many(self):
        """A job of more operations than are in flight at once is canceled, also what was not submitted."""
        k = key()
        self.pool.put(k, b"x")
        bufs = [bytearray(1)] * 20000
        with fault(DELAY_MS=60000), kvblk.Queue(self.pool, 20) as queue:
            job = queue.get([k] * 20000, bufs)
            self.assertTrue(queue.cancel(job))
            while job.results is None:
                queue.cancel(job)
                queue.wait(0.1)
            self.assertEqual({result.errno for result in job.results}, {errno.ECANCELED})

    @unittest.skipUnless(FAKE, "only the fake pool is slow on request")
    def test_drain(self):
        """Drain waits for all jobs started before, and leaves them to be collected."""
        with kvblk.Queue(self.pool, 2) as queue:
            queue.drain()
            k = key()
            job = queue.put([k], [b"x"])
            queue.drain(60)
            self.assertEqual((job.results, queue.wait(60)), (None, [job]))
            with fault(DELAY_MS=200):
                jobs = [queue.get([k], [bytearray(1)]) for _ in range(3)]
                self.raises(errno.ETIME, queue.drain, 0.01)
                queue.drain(60)
            self.assertEqual({*queue.completed()}, {*jobs})

    def test_closed_while_another_waits(self):
        queue = kvblk.Queue(self.pool)
        with concurrent.futures.ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(queue.wait)
            queue.close()
            self.assertEqual(waiting.result(60), [])

    def test_many_descriptors(self):
        """Descriptors above 1023, which select() does not support."""
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, limit[1]), limit[1]))
            held = [os.dup(0) for _ in range(1100)]
        except (OSError, ValueError):
            self.skipTest("no 1100 descriptors")
        try:
            with kvblk.Queue(self.pool) as queue:
                queue.put([key()], [b"x"])
                self.assertEqual(len(queue.wait(60)), 1)
        finally:
            for fd in held:
                os.close(fd)

    def test_dropped(self):
        queue = kvblk.Queue(self.pool)
        queue.put([key() for _ in range(10)], [bytearray(100000) for _ in range(10)])
        del queue
        gc.collect()

    def test_error_of_a_batch(self):
        with kvblk.FuturePool(self.pool) as futures:
            self.assertEqual(futures.get_many([key()], [bytearray(1)]).result(60), [None])
            self.assertRaises(ValueError, futures.put_many, [b""], [b"x"])

    def test_futures(self):
        with kvblk.FuturePool(POOL, threads=3) as futures:
            keys = [key() for _ in range(30)]
            puts = [futures.put_many([k], [k * 10]) for k in keys]
            self.assertTrue(all(f.result(60) == [kvblk.Put.STORED] for f in puts))
            bufs = [bytearray(len(k) * 10) for k in keys]
            gets = futures.get_many(keys, bufs)
            self.assertEqual(gets.result(60), [len(b) for b in bufs])
            self.assertEqual(bufs, [k * 10 for k in keys])
            self.assertEqual(futures.delete_many(keys[:2]).result(60), [True, True])

    def test_asyncio(self):
        async def one(pool, i):
            k, block = key(f"loop {i}"), data(2000 + i)
            self.assertIs(await pool.put(k, block), kvblk.Put.STORED)
            buf = bytearray(4000)
            self.assertEqual(await pool.get_into(k, buf), 2000 + i)
            self.assertEqual(buf[:2000 + i], block)
            self.assertIsNone(await pool.get_into(key(), buf))
            self.assertEqual(pool.lookup_prefix([k, key()]).leading, 1)
            self.assertTrue(await pool.delete(k))

        async def main():
            async with kvblk.AsyncPool(POOL, threads=8) as pool:
                await asyncio.gather(*(one(pool, i) for i in range(100)))
                with self.assertRaises(kvblk.KvblkError):
                    k = key()
                    await pool.put(k, b"12")
                    await pool.get_into(k, bytearray(1))

        asyncio.run(main())

    def test_futures_closed_by_a_callback(self):
        futures = kvblk.FuturePool(self.pool)
        closed = threading.Event()

        def close(_):
            futures.close()
            closed.set()

        futures.put_many([key()], [b"x"]).add_done_callback(close)
        self.assertTrue(closed.wait(60))
        dropped = kvblk.FuturePool(self.pool)
        thread = dropped._thread
        del dropped
        gc.collect()
        thread.join(60)
        self.assertFalse(thread.is_alive())

    def test_asyncio_close(self):
        """close() is called twice, once by a task that is cancelled."""
        async def main():
            pool = kvblk.AsyncPool(POOL)
            put = asyncio.ensure_future(pool.put(key(), b"x"))
            await asyncio.sleep(0)
            closing = asyncio.ensure_future(pool.close())
            await asyncio.sleep(0)
            closing.cancel()
            await pool.close()
            await pool.close()
            try:
                self.assertIs(await put, kvblk.Put.STORED)
            except kvblk.KvblkError as e:
                self.assertEqual(e.errno, errno.ECANCELED)
            self.assertTrue(pool.pool.closed)

        asyncio.run(main())

    def test_close_while_others_put(self):
        """close() ends while threads or coroutines put, who get errors."""
        def put(queue, k):
            while True:
                try:
                    queue.put([k], [b"x"])
                except (ValueError, kvblk.KvblkError) as e:
                    return e

        async def put_async(pool, k):
            while True:
                try:
                    await pool.put(k, b"x")
                except (ValueError, kvblk.KvblkError) as e:
                    return e

        async def main(turn):
            pool = kvblk.AsyncPool(POOL, threads=4)
            keys = [key() for _ in range(4)]
            await asyncio.gather(*(pool.put(k, b"x") for k in keys))
            tasks = [asyncio.ensure_future(put_async(pool, k)) for k in keys]
            await asyncio.sleep(0.001 * (turn % 5))
            await asyncio.wait_for(pool.close(), 60)
            return await asyncio.wait_for(asyncio.gather(*tasks), 60)

        for turn in range(20):
            queue = kvblk.Queue(self.pool, 1)
            with concurrent.futures.ThreadPoolExecutor(3) as threads:
                errors = [threads.submit(put, queue, key()) for _ in range(2)]
                time.sleep(0.001 * (turn % 5))
                threads.submit(queue.close).result(60)
                ends = [error.result(60) for error in errors] + asyncio.run(main(turn))
            for e in ends:
                self.assertTrue(isinstance(e, ValueError) or e.errno == errno.ECANCELED, e)

    def test_asyncio_cancel(self):
        """A cancelled coroutine ends when its memory is unused."""
        async def main():
            async with kvblk.AsyncPool(self.pool, threads=2) as pool:
                task = asyncio.ensure_future(pool.put_many([key() for _ in range(100)], [bytes(10000)] * 100))
                await asyncio.sleep(0)
                task.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await task
                self.assertIs(await pool.put(key(), b"x"), kvblk.Put.STORED)
                k = key()
                await pool.put(k, b"A" * 1000000)
                for turn in range(20):
                    buf = bytearray(1000000)
                    task = asyncio.ensure_future(pool.get_into(k, buf))
                    await asyncio.sleep(0)
                    time.sleep(0.0002 * (turn % 10))
                    task.cancel()
                    with self.assertRaises(asyncio.CancelledError):
                        await task
                    # another request has the memory now
                    buf[:] = b"B" * len(buf)
                    await asyncio.sleep(0.005)
                    self.assertEqual(buf.count(b"B"), len(buf))

        asyncio.run(main())

    @unittest.skipUnless(FAKE, "only the fake pool is slow on request")
    def test_asyncio_cancel_of_slow(self):
        """A cancelled operation is canceled in the pool; one that cannot be is waited for, also if cancelled twice."""
        async def cancelled(task):
            await asyncio.sleep(0.02)
            task.cancel()
            await asyncio.sleep(0.02)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await asyncio.wait_for(asyncio.shield(task), 60)

        async def main():
            async with kvblk.AsyncPool(self.pool, threads=2) as pool:
                k, buf = key(), bytearray(100)
                await pool.put(k, b"x" * 100)
                with fault(DELAY_MS=60000, DRAM=1000000):
                    await cancelled(asyncio.ensure_future(pool.get_into(k, buf)))
                    await cancelled(asyncio.ensure_future(pool.prestage([k], lease=60)))
                self.assertEqual(buf, bytes(100))
                with gate() as go_on:
                    task = asyncio.ensure_future(pool.get_into(k, buf))
                    await asyncio.sleep(0.02)
                    task.cancel()
                    done, _ = await asyncio.wait([task], timeout=0.2)
                    self.assertFalse(done, "it is in the pool still")
                    with self.assertRaises(kvblk.KvblkError) as caught:
                        await pool.drain(0.05)
                    self.assertEqual(caught.exception.errno, errno.ETIME)
                    go_on(1)
                    await pool.drain(60)
                    with self.assertRaises(asyncio.CancelledError):
                        await task
                await pool.drain()

        asyncio.run(main())

    def test_asyncio_calls(self):
        """AsyncPool has the calls and options of Pool."""
        async def main():
            async with kvblk.AsyncPool(POOL) as pool:
                keys, block = [key(), key()], data(5000)
                self.assertEqual(await pool.put_many(keys, [block] * 2, chain=True, layout_tag=5), [kvblk.Put.STORED] * 2)
                self.assertEqual((pool.exists(keys[0]), pool.exists(key())), (5000, 0))
                self.assertEqual(await pool.get(keys[0], layout_tag=5, timeout=60, hard_deadline=True), block)
                self.assertEqual(await pool.get(keys[0], offset=1000), block[1000:])
                self.assertIsNone(await pool.get(key()))
                with await pool.register(bytearray(8192)) as memory:
                    self.assertEqual(await pool.get_into(keys[1], memory[:5000], timeout=60), 5000)
                with pool.lookup_prefix(keys, lease=10) as found:
                    self.assertEqual((found.leading, pool.lookup(keys, quiet=True).present), (2, 2))
                for call in (pool.prefetch(keys[0], timeout=60, priority=1), pool.prestage(keys, timeout=60, priority=1)):
                    try:
                        await call
                    except kvblk.KvblkError as e:
                        self.assertEqual(e.errno, errno.EOPNOTSUPP)
                self.assertEqual(await pool.hint([*keys, key()], priority=1, retain=60), 2)
                many = [key() for _ in range(1500)]
                self.assertEqual(await pool.put_many(many, many), [kvblk.Put.STORED] * 1500)
                self.assertEqual(await pool.get_many([], []), [])
                self.assertTrue(all(await pool.delete_many(many, timeout=60)))
                self.assertTrue(await pool.delete(keys[0], timeout=60))

        asyncio.run(main())


class Examples(unittest.TestCase):
    @unittest.skipUnless(numpy, "no numpy")
    def test_prompt(self):
        """examples/prompt.py loads what it has stored"""
        path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../examples/prompt.py")
        done = subprocess.run([sys.executable, path, POOL], stdout=subprocess.PIPE, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("first request: 0 of 32", done.stdout)
        self.assertIn("again: 32 of 32", done.stdout)


class Errors(TestPool):
    def test_actions(self):
        """Errors have the library's text and action; see the table in libkvblk(3)."""
        wanted = {errno.EBUSY: "RETRY", errno.ENOMEM: "RETRY", errno.ENOSPC: "SKIP", errno.ECANCELED: "SKIP",
                  errno.EIO: "RECOMPUTE", errno.ETIME: "RECOMPUTE", errno.EINVAL: "REPORT", errno.EMSGSIZE: "REPORT",
                  errno.ENODEV: "REPORT", errno.EXFULL: "REPORT"}
        for number, action in wanted.items():
            self.assertIs(kvblk.KvblkError(number).action, kvblk.Action[action], number)
        self.assertEqual(kvblk.KvblkError(errno.EIO).value_len, 0)

    def test_of_calls(self):
        """The errno of a call that is no operation has its usual meaning."""
        e = self.raises(errno.ENOENT, self.pool.alloc, "/nowhere/at/all", 4096)
        self.assertEqual((e.strerror, e.action), ("No such file or directory", kvblk.Action.REPORT))

    def test_rdonly(self):
        k = key()
        self.pool.put(k, b"x")
        with kvblk.Pool(POOL, rdonly=True) as pool:
            self.assertEqual(pool.get(k), b"x")
            e = self.raises(errno.EBADF, pool.put, key(), b"x")
            self.assertIs(e.action, kvblk.Action.REPORT)

    def test_open_fd(self):
        k = key()
        path = POOL if "/" in POOL else f"/dev/kvblk/{POOL}/default"
        fd = ctypes.CDLL(None).open(path.encode(), os.O_RDWR)
        with kvblk.Pool.open_fd(fd) as pool:
            pool.put(k, b"x")
            self.assertEqual(pool.fileno(), fd)
        self.assertEqual(self.pool.get(k), b"x")
        with open("/dev/zero") as other:
            self.raises(errno.ENOTTY, kvblk.Pool.open_fd, other.fileno())


class Keys(unittest.TestCase):
    #: test vectors of Documentation/keys.rst, computed with hashlib
    SPEC = {"runtime": "example/1", "model": "tiny", "dtype": "float16", "layout": "LKTHD", "block_tokens": 64}

    def test_vectors(self):
        space = kvblk.Keyspace(**self.SPEC)
        first = kvblk.block_id(None, range(64))
        self.assertEqual(space.key(first).hex(),
                         "6b766231e7940858f1756b790e5d78b122ca70f1"
                         "b31003adecd2f3f3f642002cd91d93c8cfe37080230027887ca70c22ca578ee6")

    def test_secret_vectors(self):
        self.assertEqual(kvblk.Keyspace(**self.SPEC, secret=SALT).prefix.hex(),
                         "6b7662311a472cdbe252ef85e250a7f4bc9872c3")
        self.assertEqual(kvblk.Keyspace(runtime="vllm-offload/1", model="meta-llama/Llama-3.1-8B@d04e592",
                                        tokenizer="llama-3.1", dtype="bfloat16", layout="32x2x16x8x128", salt="tenant-7",
                                        secret=SALT, block_tokens=16, tp_rank=3, tp_size=8, pp_rank=1,
                                        pp_size=2).prefix.hex(), "6b76623100c079c06024afbdd78f40588898dc6f")
        self.assertEqual(kvblk.Keyspace(runtime="kvblk", model="fingerprint", dtype="none", layout="none", block_tokens=1,
                                        secret=SALT).prefix.hex()[8:24], "d03af759a72afc66")

    def test_each_field_counts(self):
        others = [{"runtime": "example/2"}, {"model": "tiny2"}, {"dtype": "bfloat16"}, {"layout": "KLTHD"},
                  {"block_tokens": 32}, {"tokenizer": "t"}, {"salt": "s"}, {"secret": "s"},
                  {"tp_size": 2}, {"tp_size": 2, "tp_rank": 1},
                  {"pp_size": 2}, {"pp_size": 2, "pp_rank": 1}, {"cp_size": 2}, {"cp_size": 2, "cp_rank": 1},
                  # text that could run into the next field
                  {"model": "tiny\n", "tokenizer": ""}, {"model": "tin", "tokenizer": "y"}]
        prefixes = {kvblk.Keyspace(**self.SPEC).prefix}
        for other in others:
            prefixes.add(kvblk.Keyspace(**{**self.SPEC, **other}).prefix)
        self.assertEqual(len(prefixes), len(others) + 1)

    def test_refused(self):
        for bad in ({"runtime": ""}, {"model": ""}, {"dtype": ""}, {"layout": ""}, {"block_tokens": 0}, {"tp_rank": 1},
                    {"pp_size": 2, "pp_rank": 2}, {"cp_rank": 5, "cp_size": 3}):
            with self.assertRaises(kvblk.KvblkError, msg=bad):
                kvblk.Keyspace(**{**self.SPEC, **bad})
        self.assertRaises(ValueError, kvblk.Keyspace, **{**self.SPEC, "salt": "a\0b"})
        self.assertRaises(ValueError, kvblk.Keyspace, **{**self.SPEC, "secret": "a\0b"})
        self.assertRaises(ValueError, kvblk.block_id, b"short", [1])
        self.assertRaises(TypeError, kvblk.block_id, None, b"tokens")
        self.assertRaises(ValueError, kvblk.Keyspace(**self.SPEC).key, b"")

    def test_chain(self):
        tokens = list(range(1000, 1200))
        ids = kvblk.block_ids(tokens, 64)
        self.assertEqual(len(ids), 3)
        self.assertEqual(ids[1], kvblk.block_id(ids[0], tokens[64:128]))
        tokens[0] += 1
        self.assertFalse(set(ids) & set(kvblk.block_ids(tokens, 64)))
        self.assertNotEqual(kvblk.block_id(None, [1], b"picture"), kvblk.block_id(None, [1]))
        self.assertEqual(kvblk.block_ids(tokens, 201), [])


class Salt(unittest.TestCase):
    def test_read(self):
        for mode in (0o640, 0o600, 0o440, 0o400):
            self.assertEqual(kvblk.deployment_salt(salt_file(self, mode)), SALT)
        self.assertEqual(kvblk.deployment_salt(""), "")
        options = adapter.Options(pool="kv0", salt="tenant", salt_file=salt_file(self))
        self.assertEqual((options.secret(), options.salt), (SALT, "tenant"))
        self.assertEqual(adapter.Options(pool="kv0").salt_file, "/etc/kvblk/salt")
        self.assertEqual(adapter.Options(pool="kv0", salt_file="").secret(), "")

    def test_missing(self):
        path = f"{salt_file(self)}-missing"
        with self.assertLogs("kvblk", "WARNING") as caught:
            for _ in range(3):
                self.assertEqual(kvblk.deployment_salt(path), "")
                self.assertEqual(adapter.Options(pool="kv0", salt_file=path).secret(), "")
        self.assertEqual(len(caught.output), 1)
        self.assertIn(f"{path}: no such file, so the keys have no secret", caught.output[0])

    def refused(self, path, number, said):
        with self.assertRaisesRegex(kvblk.KvblkError, said) as caught:
            kvblk.deployment_salt(path)
        self.assertEqual(caught.exception.errno, number)
        self.assertNotIn(SALT, str(caught.exception))
        self.assertRaisesRegex(RuntimeError, f"{path} can't be used: .*{said}.*salt_file",
                               adapter.Options(pool="kv0", salt_file=path).secret)

    def test_refused(self):
        for mode in (0o644, 0o660, 0o642, 0o641):
            self.refused(salt_file(self, mode), errno.EKEYREJECTED, "others may read it or its group may change it")
        for text in ("", "\n", SALT, f"{SALT[1:]}\n", f"{SALT}0\n", f"{SALT}\n\n", f"{SALT.upper()}\n", f"{SALT[1:]}g\n",
                     f"{SALT[1:]}\0\n", f"{SALT[1:]}\n\n"):
            self.refused(salt_file(self, text=text), errno.EBADMSG, "it is not 64 hex digits in lower case and a newline")
        path = salt_file(self)
        self.refused(os.path.dirname(path), errno.EBADMSG, "it is not a regular file")
        self.refused(f"{path}/below", errno.ENOTDIR, "Not a directory")
        os.mkfifo(f"{path}-fifo", 0o600)
        self.refused(f"{path}-fifo", errno.EBADMSG, "it is not a regular file")
        self.assertRaises(ValueError, kvblk.deployment_salt, "a\0b")
        self.assertRaisesRegex(ValueError, "zero byte", adapter.Options, pool="kv0", salt_file="a\0b")
        self.assertRaisesRegex(ValueError, "should be a text", adapter.Options, pool="kv0", salt_file=None)

    @unittest.skipIf(os.geteuid() != 0, "only root can give a file away")
    def test_owner(self):
        path = salt_file(self)
        os.chown(path, 65534, -1)
        self.refused(path, errno.EKEYREJECTED, "neither root nor the caller owns it")

    @unittest.skipIf(os.geteuid() == 0, "root may read any file")
    def test_unreadable(self):
        self.refused(salt_file(self, 0o200), errno.EACCES, "Permission denied")


class Adapter(TestPool):
    def test_options(self):
        options = adapter.Options(pool=POOL, lease_s=1)
        self.assertEqual(options.lease_s, 1.0)
        options.open().close()
        for bad, said in (({}, "pool.* is missing"), ({"pool": 3}, "should be a text"), ({"threads": 65}, "1 to 64"),
                          ({"threads": 1.5}, "whole number"), ({"threads": True}, "whole number"),
                          ({"lease_s": float("nan")}, "0.001 to 3600"), ({"timeout_s": 0}, "0.001"),
                          ({"ttl_s": -1}, "0 to"), ({"ttl_s": 2**30 + 1}, "0 to"), ({"priority": 4}, "0 to 3"),
                          ({"salt": "a\0"}, "zero byte"), ({"nonsense": 1}, "unknown option")):
            with self.assertRaisesRegex(ValueError, said, msg=bad):
                adapter.Options.read({**({"pool": POOL} if bad else {}), **bad}, "the test")
        self.assertRaisesRegex(ValueError, "needs a dictionary", adapter.Options.read, "kv0", "the test")
        self.assertRaisesRegex(RuntimeError, "'nowhere' can't be opened: no such pool",
                               adapter.Options(pool="nowhere").open)

    def test_log(self):
        log = logging.getLogger("kvblk.test")
        report = adapter.Report(log)
        with self.assertLogs(log) as caught:
            for _ in range(3):
                report.tell("getting", kvblk.KvblkError(errno.EIO))
            report.tell("getting", kvblk.KvblkError(errno.ETIME))
            report.INTERVAL = 0
            report.tell("getting", kvblk.KvblkError(errno.EIO))
            report.tell("getting", kvblk.KvblkError(errno.ENOSPC))
            report.tell("getting", kvblk.KvblkError(errno.EINVAL))
        self.assertEqual([record.levelname for record in caught.records], ["WARNING"] * 3 + ["ERROR"])
        self.assertIn("failed (2 more of this kind", caught.output[2])

    def test_counters(self):
        report = adapter.Report(logging.Logger("test", logging.CRITICAL))
        error = kvblk.KvblkError
        puts = [kvblk.Put.STORED, kvblk.Put.EXISTS, kvblk.Put.DIFFERS, kvblk.Put.DECLINED, error(errno.ENOSPC), error(errno.EIO)]
        self.assertEqual(report.stored(puts, [10] * 6), [True, True] + [False] * 4)
        gets = [10, 9, None, error(errno.EMSGSIZE), error(errno.ETIME)]
        self.assertEqual(report.loaded(gets, [10] * 5), [True] + [False] * 4)
        self.assertEqual(report.deleted([True, False, error(errno.EBUSY)]), [True, False, False])
        want = {"store_blocks": 1, "store_bytes": 10, "store_present": 2, "store_declined": 2, "store_errors": 1,
                "load_blocks": 1, "load_bytes": 10, "load_misses": 3, "load_errors": 1, "delete_errors": 1}
        self.assertEqual((report.counts(), report.take(), report.take(), report.errors()), (want, want, {}, 3))
        self.assertLess(set(want), set(adapter.COUNTERS))

    def test_leases(self):
        """A lease ends with the last of its names, by a load of all, or by its time; the oldest is used first."""
        keys = [key() for _ in range(4)]
        self.pool.put_many(keys, [b"x"] * 4)
        leases = adapter.Leases(adapter.Report(logging.getLogger("kvblk.test")))
        first, second, short = (self.pool.lookup(keys, lease=lease).lease for lease in (60, 60, 0.001))
        leases.hold(first, keys)
        leases.hold(second, keys)
        self.assertTrue(leases.drop(keys[:3]))
        self.assertTrue(first)
        self.assertTrue(leases.drop(keys[3:]))
        self.assertEqual((bool(first), bool(second), len(leases)), (False, True, 1))
        self.assertFalse(leases.end([*keys, key()]))
        self.assertTrue(leases.end(keys[:2]))
        self.assertEqual((bool(second), len(leases), leases.drop(keys)), (False, 0, False))
        leases.hold(self.pool.lookup([key()], lease=60).lease, keys)
        leases.hold(self.pool.lookup(keys, lease=60).lease, [])
        self.assertEqual(len(leases), 0)
        leases.hold(short, ["request"])
        time.sleep(0.005)
        leases.hold(self.pool.lookup(keys, lease=60).lease, ["request"])
        self.assertEqual((len(leases), leases._report.counts()["lease_expired"]), (1, 1))
        leases.clear()
        self.assertEqual((len(leases), leases._of_name), (0, {}))

    def test_slab(self):
        slab = bytearray(data(1 << 20))
        address = ctypes.addressof(ctypes.c_char.from_buffer(slab))
        log = logging.getLogger("kvblk.test")
        self.assertEqual(adapter.register_slab(self.pool, address, len(slab), 5000, log, region=100000), "registered")
        for start in range(0, len(slab) - 5000, 77777):
            batch = self.pool.batch(1, [key()], [memoryview(slab)[start:start + 5000]])
            self.assertIsInstance(batch.keep[0], tuple, "it does not lie in a region")
            batch.free()
        with self.assertLogs(log) as caught:
            # neither the fake pool nor selftests/carry checks that the memory exists
            pins = not FAKE and "KVBLK_CARRY" not in os.environ
            self.assertEqual(adapter.register_slab(self.pool, 4096, 100, 1, log) if pins else "", "")
            log.warning("one")
        self.assertIn("can't be registered" if pins else "one", caught.output[0])

    def test_slab_regions(self):
        """Regions overlap by the longest piece; a failed registration logs one warning that says what to raise."""
        log = logging.getLogger("kvblk.test")
        calls = []
        memory = mock.Mock(kind="registered")
        with mock.patch.object(self.pool, "register", side_effect=lambda buf, block_max: calls.append(buf) or memory):
            self.assertEqual(adapter.register_slab(self.pool, 4096, 10000, 1000, log, region=4000), "registered")
        self.assertEqual(calls, [(4096, 5000), (8096, 5000), (12096, 2000)])
        with mock.patch.object(self.pool, "register", side_effect=kvblk.KvblkError(errno.ENOMEM)), \
                self.assertLogs(log, "WARNING") as caught:
            self.assertEqual(adapter.register_slab(self.pool, 4096, 10000, 1000, log, region=4000), "")
        self.assertEqual(len(caught.output), 1)
        self.assertIn("ulimit -l", caught.output[0])


def suite():
    if sys.argv[2:]:
        return unittest.defaultTestLoader.loadTestsFromNames(sys.argv[2:], sys.modules[__name__])
    tests = unittest.defaultTestLoader.loadTestsFromModule(sys.modules[__name__])
    for name in ("errors", "keys", "pool", "memory", "results", "background", "adapter"):
        tests.addTests(doctest.DocTestSuite(importlib.import_module(f"kvblk.{name}"),
                                            extraglobs={"POOL": POOL, "asyncio": asyncio},
                                            setUp=forget, tearDown=forget))
    return tests


def forget(_):
    """Delete the keys of the examples, which run more than once."""
    with kvblk.Pool(POOL) as pool:
        pool.delete_many([b"greeting", b"nobody", b"of the slab", b"a", b"b", b"one", b"two", b"in the background",
                          b"from a loop", b"some day", b"leased"])


if __name__ == "__main__":
    sys.exit(tap.run("python", suite()))
