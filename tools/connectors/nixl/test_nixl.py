# SPDX-License-Identifier: MIT
"""NIXL's own agent with the backend KVBLK, on the emulated pool or that of selftests/runtimes; run by ./check.

NIXL_PLUGIN_DIR names the plugin's directory. Each test has its own keys, volumes and agents.
"""

import contextlib
import ctypes
import itertools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

os.environ.setdefault("NIXL_LOG_LEVEL", "WARN")     # NIXL and the plugin read this when they are loaded

import tap
from fakepool import fault
from salts import salt_file

try:
    from nixl_cu12 import _bindings as bindings
    from nixl_cu12._api import nixl_agent, nixl_agent_config, nixl_thread_sync_t
except ImportError:
    from nixl_cu13 import _bindings as bindings
    from nixl_cu13._api import nixl_agent, nixl_agent_config, nixl_thread_sync_t
try:
    import torch
    GPU = torch.cuda.is_available()
except ImportError:
    GPU = False

POOL = os.environ.get("KVBLK_POOL", "fake")
VM = "KVBLK_CARRY" in os.environ
if VM:
    import carried
MIB = 1 << 20
numbers = itertools.count(1)


class Buffer:
    """Memory at a fixed address."""

    def __init__(self, data):
        self.bytes = bytearray(data)
        self.addr = ctypes.addressof((ctypes.c_char * len(self.bytes)).from_buffer(self.bytes))


class Agent:
    """A NIXL agent with one backend, KVBLK."""

    def __init__(self, sync_mode=None, **params):
        self.name = f"agent{next(numbers)}"
        self.nixl = nixl_agent(self.name, nixl_agent_config(backends=[], sync_mode=sync_mode))
        self.nixl.create_backend("KVBLK", {"pool": POOL, **{k: str(v) for k, v in params.items()}})

    def memory(self, buffer):
        self.nixl.register_memory([(buffer.addr, len(buffer.bytes), 0, "")], "DRAM")
        return buffer

    def objects(self, names, length):
        """Register objects; returns their ids."""
        ids = [next(numbers) for _ in names]
        self.nixl.register_memory([(0, length, i, name) for i, name in zip(ids, names)], "OBJ")
        return ids

    def prepare(self, op, local, remote, kind="OBJ", memory="DRAM"):
        """Prepare a transfer; ``local``: (address, length); ``remote``: (offset, length, id)."""
        return self.nixl.initialize_xfer(op, self.nixl.get_xfer_descs([(a, n, 0) for a, n in local], memory),
                                         self.nixl.get_xfer_descs(remote, kind), self.name)

    def wait(self, handle, state=None):
        state = state or self.nixl.check_xfer_state(handle)
        until = time.monotonic() + 20
        while state == "PROC":
            assert time.monotonic() < until, "a transfer hangs"
            time.sleep(0.001)
            state = self.nixl.check_xfer_state(handle)
        return state

    def run(self, op, local, remote, kind="OBJ", memory="DRAM"):
        handle = self.prepare(op, local, remote, kind, memory)
        state = self.wait(handle, self.nixl.transfer(handle))
        handle.release()
        return state

    def present(self, names):
        return [found and int(found["size"])
                for found in self.nixl.query_memory([(0, 0, 0, name) for name in names], "KVBLK", "OBJ")]


def fresh(text="key"):
    return f"{text}-{os.getpid()}-{next(numbers)}"


@contextlib.contextmanager
def stderr():
    """Capture stderr of the process, including C++; yields a list that gets the text at the end."""
    text = []
    sys.stderr.flush()
    saved = os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            yield text
        finally:
            os.dup2(saved, 2)
            os.close(saved)
            file.seek(0)
            text.append(file.read().decode())


fake = unittest.skipUnless(POOL == "fake", "wants the fake pool")
in_vm = unittest.skipUnless(VM, "what happens to the pool of selftests/runtimes")


@unittest.skipUnless(GPU, "no GPU, or no torch that uses it")
class Gpu(unittest.TestCase):
    LAYERS, BLOCKS, PAGE = 16, 20, 32 << 10

    def test_layers(self):
        """A KV cache in GPU memory with a tensor per layer; an object is a block of all layers."""
        agent = Agent()
        caches = [torch.randint(0, 256, (self.BLOCKS, self.PAGE), dtype=torch.uint8, device="cuda")
                  for _ in range(self.LAYERS)]
        want = [cache.clone() for cache in caches]
        torch.cuda.synchronize()
        agent.nixl.register_memory([(cache.data_ptr(), cache.nbytes, 0, "") for cache in caches], "VRAM")
        ids = agent.objects([fresh() for _ in range(self.BLOCKS)], self.LAYERS * self.PAGE)
        local = [(cache.data_ptr() + i * self.PAGE, self.PAGE) for i in range(self.BLOCKS) for cache in caches]
        remote = [(layer * self.PAGE, self.PAGE, ids[i]) for i in range(self.BLOCKS) for layer in range(self.LAYERS)]
        self.assertEqual(agent.run("WRITE", local, remote, memory="VRAM"), "DONE")
        for cache in caches:
            cache.zero_()
        torch.cuda.synchronize()
        # into other blocks than the original ones
        local = [(cache.data_ptr() + (self.BLOCKS - 1 - i) * self.PAGE, self.PAGE)
                 for i in range(self.BLOCKS) for cache in caches]
        self.assertEqual(agent.run("READ", local, remote, memory="VRAM"), "DONE")
        for cache, old in zip(caches, want):
            self.assertTrue(torch.equal(cache, old.flip(0)))
        # a single layer
        self.assertEqual(agent.run("READ", local[:1], [(7 * self.PAGE, self.PAGE, ids[3])], memory="VRAM"), "DONE")
        self.assertTrue(torch.equal(caches[0][self.BLOCKS - 1], want[7][3]))


class Start(unittest.TestCase):
    def test_what_it_offers(self):
        agent = nixl_agent("offers", nixl_agent_config(backends=[]))
        self.assertIn("KVBLK", agent.get_plugin_list())
        self.assertEqual(sorted(agent.get_plugin_mem_types("KVBLK")), ["BLK_SEG", "DRAM_SEG", "OBJ_SEG", "VRAM_SEG"])
        params = agent.get_plugin_params("KVBLK")
        self.assertEqual(params["query_mem_mode"], "actual")
        # the defaults are valid, with a pool
        agent.create_backend("KVBLK", {**params, "pool": POOL})

    def test_bad_parameters(self):
        for params, sentence in (
                ({"pool": ""}, "the parameter pool is missing"),
                ({"pool": "nowhere"}, "pool nowhere can't be opened: no such pool"),
                ({"pool": "/dev/null"}, "pool /dev/null can't be opened"),
                ({"device_name": "other"}, 'device_name="other" is not the same as'),
                ({"salt": "a", "bucket": "b"}, 'bucket="b" is not the same as the other one of salt and bucket'),
                ({"colour": "red"}, 'there is no parameter "colour"'),
                ({"threads": "0"}, 'threads="0" is not a number from 1 to 64'),
                ({"threads": "65"}, 'threads="65" is not'),
                ({"threads": "4x"}, 'threads="4x" is not'),
                ({"num_tasks": "0"}, 'num_tasks="0" is not'),
                ({"timeout_ms": "-1"}, 'timeout_ms="-1" is not'),
                ({"ttl_s": "4294967296"}, 'ttl_s="4294967296" is not'),
                ({"priority": "4"}, 'priority="4" is not a number from 0 to 3'),
                ({"blk_size": "1000"}, "that is a multiple of 512"),
                ({"query_mem_mode": "guess"}, 'query_mem_mode="guess" is not "actual" or'),
                ({"ignore_read_not_found": "1"}, 'ignore_read_not_found="1" is not "true" or'),
                ({"key_rule": "any"}, 'key_rule="any" is not "kvblk" or'),
                ({"key_rule": "doca_memos", "salt": "x"}, "no place for a salt"),
                ({"nguid": "12"}, "is not 32 hexadecimal digits"),
                ({"nguid": "12" * 16}, "is not the UUID of pool")):
            with self.subTest(params), stderr() as text:
                with self.assertRaises(bindings.nixlBackendError):
                    Agent(**params)
            lines = [line for line in text[0].splitlines() if line.startswith("E KVBLK: ")]
            self.assertEqual(len(lines), 1, text[0])
            self.assertIn(sentence, lines[0])

    def test_salt_refused(self):
        """A salt that can't be used is an error, and not left out of the keys."""
        for mode, text, sentence in ((0o644, "0" * 64 + "\n", "others may read it"),
                                     (0o640, "0" * 64, "it is not 64 hex digits")):
            with self.subTest(sentence), stderr() as said, self.assertRaises(bindings.nixlBackendError):
                Agent(salt_file=salt_file(self, mode, text))
            self.assertIn(f"can't be used: {sentence}", said[0])

    def test_device_name_and_nguid(self):
        agent = nixl_agent("device", nixl_agent_config(backends=[]))
        agent.create_backend("KVBLK", {"device_name": f"/dev/kvblk/{POOL}/default",
                                       **({"nguid": b"libkvblk-fake".ljust(16, b"\0").hex()} if POOL == "fake" else {})})


class Objects(unittest.TestCase):
    def setUp(self):
        self.agent = Agent()

    def store(self, name, data, agent=None):
        agent = agent or self.agent
        source = agent.memory(Buffer(data))
        ids = agent.objects([name], len(data))
        return agent.run("WRITE", [(source.addr, len(data))], [(0, len(data), ids[0])])

    def fetch(self, name, length, agent=None):
        agent = agent or self.agent
        target = agent.memory(Buffer(bytes(length)))
        ids = agent.objects([name], length)
        agent.run("READ", [(target.addr, length)], [(0, length, ids[0])])
        return bytes(target.bytes)

    def test_many_descriptors(self):
        nr, length = 2500, 1000
        names = [fresh() for _ in range(nr)]
        data = os.urandom(nr * length)
        buffer, back = self.agent.memory(Buffer(data)), self.agent.memory(Buffer(bytes(nr * length)))
        ids = self.agent.objects(names, length)
        places = list(range(nr))
        # neither in the order of memory nor of ids
        mixed = sorted(places, key=lambda i: i * 7919 % nr)
        self.assertEqual(self.agent.present(names[:3]), [None] * 3)
        state = self.agent.run("WRITE", [(buffer.addr + i * length, length) for i in mixed],
                               [(0, length, ids[i]) for i in mixed])
        self.assertEqual(state, "DONE")
        self.assertEqual(self.agent.present(names), [length] * nr)
        state = self.agent.run("READ", [(back.addr + (nr - 1 - i) * length, length) for i in places],
                               [(0, length, ids[i]) for i in places])
        self.assertEqual(state, "DONE")
        for i in places:
            at = (nr - 1 - i) * length
            self.assertEqual(back.bytes[at:at + length], data[i * length:(i + 1) * length])

    def test_two_names_for_an_id(self):
        """Another name under an id is rejected, because transfers name objects by id; the first object is unchanged"""
        agent, a, b = self.agent, fresh(), fresh()
        memory = agent.memory(Buffer(b"a" * 4096))
        first = agent.nixl.register_memory([(0, 4096, 7, a)], "OBJ")
        with stderr() as said, self.assertRaises(Exception):
            agent.nixl.register_memory([(0, 4096, 7, b)], "OBJ")
        self.assertIn("devId 7 stands for another object", said[0])
        with self.assertRaises(Exception):
            # a list with such an object is rejected as a whole
            agent.nixl.register_memory([(0, 4096, 8, b), (0, 4096, 7, b)], "OBJ")
        again = agent.nixl.register_memory([(0, 2048, 7, a)], "OBJ")
        self.assertEqual(agent.run("WRITE", [(memory.addr, 4096)], [(0, 4096, 7)]), "DONE")
        self.assertEqual(agent.present([a, b]), [4096, None])
        # an id without registrations is free
        agent.nixl.deregister_memory(first)
        with self.assertRaises(Exception):
            agent.nixl.register_memory([(0, 4096, 7, b)], "OBJ")
        agent.nixl.deregister_memory(again)
        agent.nixl.register_memory([(0, 4096, 7, b)], "OBJ")
        agent.nixl.register_memory([(0, 4096, 8, a)], "OBJ")
        memory.bytes[:] = b"b" * 4096
        self.assertEqual(agent.run("WRITE", [(memory.addr, 4096)], [(0, 4096, 7)]), "DONE")
        self.assertEqual((self.fetch(a, 4096), self.fetch(b, 4096)), (b"a" * 4096, b"b" * 4096))

    def test_scatter(self):
        """An object from scattered pieces of memory is one block of the pool."""
        name, piece, nr = fresh(), 300, 40
        buffer, back = self.agent.memory(Buffer(os.urandom(100000))), self.agent.memory(Buffer(bytes(100000)))
        ids = self.agent.objects([name], piece * nr)
        places = [(i * 1777 % 90000) for i in range(nr)]
        remote = [(i * piece, piece, ids[0]) for i in range(nr)]
        self.assertEqual(self.agent.run("WRITE", [(buffer.addr + p, piece) for p in places], remote), "DONE")
        self.assertEqual(self.agent.present([name]), [piece * nr])
        expected = b"".join(bytes(buffer.bytes[p:p + piece]) for p in places)
        self.assertEqual(self.fetch(name, piece * nr), expected)
        self.assertEqual(self.agent.run("READ", [(back.addr + p, piece) for p in places], remote), "DONE")
        for p in places:
            self.assertEqual(back.bytes[p:p + piece], buffer.bytes[p:p + piece])
        # adjacent in memory and in the object
        whole = [(back.addr + i * piece, piece) for i in range(nr)]
        self.assertEqual(self.agent.run("READ", whole, remote), "DONE")
        self.assertEqual(back.bytes[:nr * piece], expected)
        self.assertEqual(self.agent.run("WRITE", whole, remote), "DONE")
        self.assertEqual(self.fetch(name, piece * nr), expected)
        # more pieces than an operation supports: a read is split, a write fails
        nr = 1025
        many = self.agent.objects([fresh()], 2 * nr)
        local = [(buffer.addr + 4 * i, 2) for i in range(nr)]
        with stderr() as text, self.assertRaises(bindings.nixlNotSupportedError):
            self.agent.run("WRITE", local, [(2 * i, 2, many[0]) for i in range(nr)])
        self.assertIn("in up to 1024 pieces", text[0])
        self.assertEqual(self.agent.run("READ", [(back.addr + 4 * i, 2) for i in range(nr)],
                                        [(2 * i, 2, ids[0]) for i in range(nr)]), "DONE")
        self.assertEqual(b"".join(bytes(back.bytes[4 * i:4 * i + 2]) for i in range(nr)), expected[:2 * nr])

    def test_write_from_the_middle(self):
        name = fresh()
        buffer = self.agent.memory(Buffer(bytes(4096)))
        ids = self.agent.objects([name], 4096)
        with stderr() as text, self.assertRaises(bindings.nixlNotSupportedError):
            self.agent.run("WRITE", [(buffer.addr, 1024)], [(512, 1024, ids[0])])
        self.assertIn("a write may not begin at byte 512", text[0])
        self.assertEqual(self.agent.present([name]), [None])

    def test_parts(self):
        name, data = fresh(), os.urandom(10000)
        self.assertEqual(self.store(name, data), "DONE")
        back = self.agent.memory(Buffer(bytes(10000)))
        # registered with a longer length than stored: only partial reads succeed
        ids = self.agent.objects([name], 20000)
        state = self.agent.run("READ", [(back.addr, 100), (back.addr + 100, 7)], [(5000, 100, ids[0]), (9, 7, ids[0])])
        self.assertEqual(state, "DONE")
        self.assertEqual(back.bytes[:107], data[5000:5100] + data[9:16])
        self.assertEqual(self.agent.run("READ", [(back.addr, 10000)], [(0, 10000, ids[0])]), "DONE")
        self.assertEqual(back.bytes, data)
        # across the end, and behind it
        for offset in (9950, 10000, 15000):
            with stderr(), self.assertRaises(bindings.nixlMismatchError):
                self.agent.run("READ", [(back.addr, 100)], [(offset, 100, ids[0])])

    def test_another_length(self):
        """A block of another length than the object is not returned."""
        name = fresh()
        self.store(name, b"x" * 1000)
        for length in (999, 1001, 4000):
            with stderr(), self.assertRaises(bindings.nixlMismatchError):
                self.fetch(name, length)
        self.assertEqual(self.fetch(name, 1000), b"x" * 1000)

    def test_write_again(self):
        """The last write is read; with names that identify content, the object is left unchanged."""
        name = fresh()
        self.store(name, b"1" * 1000)
        self.assertEqual(self.store(name, b"2" * 1000), "DONE")
        self.assertEqual(self.fetch(name, 1000), b"2" * 1000)
        self.assertEqual(self.store(name, b"3" * 500), "DONE")
        self.assertEqual(self.fetch(name, 500), b"3" * 500)
        writer = Agent(overwrite="false")
        self.assertEqual(self.store(name, b"4" * 500, writer), "DONE")
        for length in 499, 501:
            with stderr(), self.assertRaises(bindings.nixlMismatchError):
                self.store(name, b"5" * length, writer)
        self.assertEqual(self.fetch(name, 500), b"3" * 500)

    def test_misses(self):
        name, missing = fresh(), fresh()
        self.store(name, b"x" * 100)
        back = self.agent.memory(Buffer(b"-" * 300))
        ids = self.agent.objects([missing, name], 100)
        with stderr() as text, self.assertRaises(bindings.nixlNotFoundError):
            self.agent.run("READ", [(back.addr, 100), (back.addr + 200, 100)], [(0, 100, i) for i in ids])
        # only NIXL's own log lines, because this is not an error
        self.assertNotIn("W KVBLK", text[0])
        self.assertIn(bytes(back.bytes[:100]), (b"-" * 100, bytes(100)))
        self.assertEqual(back.bytes[200:], b"x" * 100)
        # another failure determines the status of the request
        with stderr() as text, self.assertRaises(bindings.nixlMismatchError):
            longer = self.agent.objects([name], 150)
            self.agent.run("READ", [(back.addr, 100), (back.addr + 100, 150)], [(0, 100, ids[0]), (0, 150, longer[0])])
        ignoring = Agent(ignore_read_not_found="true")
        self.assertEqual(self.fetch(missing, 100, ignoring), bytes(100))

    @fake
    def test_lost(self):
        name = fresh()
        self.store(name, b"x" * 100)
        with fault(LOSE=1), stderr(), self.assertRaises(bindings.nixlNotFoundError):
            self.fetch(name, 100)

    @fake
    def test_declined(self):
        name = fresh()
        with fault(DECLINE=1):
            with stderr(), self.assertRaises(bindings.nixlNotAllowedError):
                self.store(name, b"x")
            self.assertEqual(self.store(name, b"x", Agent(ignore_put_declined="true")), "DONE")
        self.assertEqual(self.agent.present([name]), [None])

    @fake
    def test_another_caller_writes(self):
        """Another caller's concurrent write of the same objects counts as a later one."""
        names = [fresh(), fresh()]
        self.store(names[0], b"old")
        with fault(BUSY=1):
            for name in names:
                self.assertEqual(self.store(name, b"new"), "DONE")
        self.assertEqual(self.agent.present(names), [3, None])

    @fake
    def test_what_is_said_of_objects(self):
        with tempfile.NamedTemporaryFile("r") as file, fault(LOG=file.name):
            self.store("first", b"x")
            self.store("second", b"x", Agent(ttl_s=77, priority=3))
            told = [line.split(" ", 1)[1] for line in open(file.name, errors="replace").read().splitlines()]
        self.assertEqual(told, ["parent= priority=0 ttl=0", "parent= priority=3 ttl=77"])

    def test_query(self):
        names = [fresh() for _ in range(1000)]
        for i in (0, 7, 999):
            self.store(names[i], b"x" * (i + 1))
        truth = [i + 1 if i in (0, 7, 999) else None for i in range(1000)]
        self.assertEqual(self.agent.present(names), truth)
        with stderr() as text:
            assuming = Agent(query_mem_mode="assume_success")
        self.assertIn("answered as actual", text[0])
        self.assertEqual(assuming.present(names), truth)
        with stderr(), self.assertRaises(bindings.nixlNotSupportedError):
            self.agent.nixl.query_memory([(0, 1, 0, "")], "KVBLK", "DRAM")

    def test_key_lengths(self):
        long = "k" * (492 - len(fresh()))
        longest = fresh(long)[:492].ljust(492, "k")
        self.assertEqual(self.store(longest, b"longest"), "DONE")
        self.assertEqual(self.store(longest[:-1], b"shorter"), "DONE")
        self.assertEqual(self.fetch(longest, 7), b"longest")
        with stderr() as text, self.assertRaises(bindings.nixlBackendError):
            self.agent.objects([longest + "k"], 7)
        self.assertIn("is longer than 492", text[0])

    def test_salt_file(self):
        """The deployment's salt is part of the keys, beside the caller's."""
        path, name = salt_file(self), fresh()
        agents = [Agent(salt_file=""), Agent(salt_file=path), Agent(salt_file=path, salt="a"), Agent(salt_file="", salt="a")]
        for number, agent in enumerate(agents):
            self.assertEqual(agent.present([name]), [None])
            self.assertEqual(self.store(name, bytes([number]), agent), "DONE")
        for number, agent in enumerate(agents):
            self.assertEqual(self.fetch(name, 1, agent), bytes([number]))
        self.assertEqual(self.fetch(name, 1, Agent(salt_file=path)), b"\1")

    def test_no_key_is_shared(self):
        """Names, ids, salts, key rules and blocks of volumes never share a key."""
        number = next(numbers) << 32 | os.getpid()
        raw = number.to_bytes(8, "little")
        places = []
        for agent in (self.agent, Agent(salt="a"), Agent(bucket="b"), Agent(key_rule="doca_memos")):
            buffer = agent.memory(Buffer(bytes(512)))
            agent.nixl.register_memory([(0, 512, number, "")], "OBJ")
            places.append((agent, buffer, "OBJ", (0, 512, number)))
            if len(places) < 8:
                ids = agent.objects([raw, raw + (1).to_bytes(8, "little")], 512)
                places += [(agent, buffer, "OBJ", (0, 512, i)) for i in ids]
        for size in (512, 1024):
            agent = Agent(blk_size=size)
            buffer = agent.memory(Buffer(bytes(size)))
            agent.nixl.register_memory([(0, 1 << 30, number, "")], "BLOCK")
            places += [(agent, buffer, "BLOCK", (at * size, size, number)) for at in (1, 2)]
        self.assertGreater(len(places), 13)
        for i, (agent, buffer, kind, remote) in enumerate(places):
            buffer.bytes[:] = bytes([i + 1]) * len(buffer.bytes)
            self.assertEqual(agent.run("WRITE", [(buffer.addr, len(buffer.bytes))], [remote], kind), "DONE")
        for i, (agent, buffer, kind, remote) in enumerate(places):
            self.assertEqual(agent.run("READ", [(buffer.addr, len(buffer.bytes))], [remote], kind), "DONE")
            self.assertEqual(buffer.bytes, bytes([i + 1]) * len(buffer.bytes), i)

    def test_doca_memos_keys(self):
        agent = Agent(key_rule="doca_memos")
        raw = os.urandom(15) + b"\xff"
        self.assertEqual(self.store(raw.hex(), b"by hex", agent), "DONE")
        self.assertEqual(self.fetch(raw.hex().upper(), 6, agent), b"by hex")
        self.assertEqual(self.fetch(raw, 6, agent), b"by hex")
        odd = fresh("z")[-15:]
        self.assertEqual(self.store(odd, b"raw", agent), "DONE")
        self.assertEqual(self.fetch(odd, 3, agent), b"raw")
        for bad in ("x" * 17, "ab" * 17, "a" * 31):
            with stderr() as text, self.assertRaises(bindings.nixlBackendError):
                agent.objects([bad], 1)
            self.assertIn("is longer than 16", text[0])


class Transfers(unittest.TestCase):
    def setUp(self):
        self.agent = Agent()

    def test_prepared_once(self):
        """A transfer is posted a hundred times, each time with other bytes in memory."""
        agent = Agent()
        names = [fresh() for _ in range(10)]
        buffer, back = agent.memory(Buffer(bytes(10000))), agent.memory(Buffer(bytes(10000)))
        remote = [(0, 1000, i) for i in agent.objects(names, 1000)]
        write = agent.prepare("WRITE", [(buffer.addr + 1000 * i, 1000) for i in range(10)], remote)
        read = agent.prepare("READ", [(back.addr + 1000 * i, 1000) for i in range(10)], remote)
        for turn in range(100):
            buffer.bytes[:] = os.urandom(10000)
            self.assertEqual(agent.wait(write, agent.nixl.transfer(write)), "DONE", turn)
            self.assertEqual(agent.wait(read, agent.nixl.transfer(read)), "DONE", turn)
            self.assertEqual(back.bytes, buffer.bytes, turn)
        write.release()
        read.release()

    def test_descriptors_made_before(self):
        """make_prepped_xfer() passes neighbors of a volume as one descriptor."""
        agent, nr, page = Agent(blk_size=4096), 64, 4096
        volume = next(numbers)
        buffer, back = agent.memory(Buffer(os.urandom(nr * page))), agent.memory(Buffer(bytes(nr * page)))
        agent.nixl.register_memory([(0, nr * page, volume, "")], "BLOCK")
        remote = agent.nixl.prep_xfer_dlist(
            agent.name, agent.nixl.get_xfer_descs([(i * page, page, volume) for i in range(nr)], "BLOCK"))
        for op, memory in (("WRITE", buffer), ("READ", back)):
            local = agent.nixl.prep_xfer_dlist(
                "NIXL_INIT_AGENT", agent.nixl.get_xfer_descs([(memory.addr + i * page, page, 0) for i in range(nr)], "DRAM"))
            for indices in (list(range(40)), list(range(63, 39, -1))):
                handle = agent.nixl.make_prepped_xfer(op, local, indices, remote, indices)
                self.assertEqual(agent.wait(handle, agent.nixl.transfer(handle)), "DONE")
                handle.release()
        self.assertEqual(back.bytes, buffer.bytes)

    def test_two_agents(self):
        name, other = fresh(), Agent()
        buffer = self.agent.memory(Buffer(b"shared" * 100))
        back = other.memory(Buffer(bytes(600)))
        ids, others = self.agent.objects([name], 600), other.objects([name], 600)
        self.assertEqual(self.agent.run("WRITE", [(buffer.addr, 600)], [(0, 600, ids[0])]), "DONE")
        self.assertEqual(other.run("READ", [(back.addr, 600)], [(0, 600, others[0])]), "DONE")
        self.assertEqual(back.bytes, b"shared" * 100)
        self.assertEqual(other.present([name]), [600])

    @fake
    def test_post_twice(self):
        buffer, ids = self.agent.memory(Buffer(bytes(10))), self.agent.objects([fresh()], 10)
        with fault(DELAY_MS=200):
            handle = self.agent.prepare("WRITE", [(buffer.addr, 10)], [(0, 10, ids[0])])
            self.assertEqual(self.agent.nixl.transfer(handle), "PROC")
            with stderr(), self.assertRaises(bindings.nixlRepostActiveError):
                self.agent.nixl.transfer(handle)
            self.assertEqual(self.agent.wait(handle), "DONE")
        handle.release()

    @fake
    def test_released_in_flight(self):
        name = fresh()
        buffer, ids = self.agent.memory(Buffer(b"x" * 100)), self.agent.objects([name], 100)
        self.assertEqual(self.agent.run("WRITE", [(buffer.addr, 100)], [(0, 100, ids[0])]), "DONE")
        target = Buffer(b"-" * 100)
        registered = self.agent.nixl.register_memory([(target.addr, 100, 0, "")], "DRAM")
        late = fresh()
        ids += self.agent.objects([late], 100)
        with fault(DELAY_MS=5000):
            read = self.agent.prepare("READ", [(target.addr, 100)], [(0, 100, ids[0])])
            write = self.agent.prepare("WRITE", [(buffer.addr, 100)], [(0, 100, ids[1])])
            for handle in (read, write):
                self.assertEqual(self.agent.nixl.transfer(handle), "PROC")
            t0 = time.monotonic()
            read.release()
            write.release()
            self.assertLess(time.monotonic() - t0, 3)
            # after this no operation writes to the memory
            self.agent.nixl.deregister_memory(registered)
            self.assertLess(time.monotonic() - t0, 4)
            self.assertEqual(target.bytes, b"-" * 100)
            del self.agent
            self.assertLess(time.monotonic() - t0, 4.5)
        self.assertEqual(target.bytes, b"-" * 100)
        self.assertEqual(Agent().present([name, late]), [100, None])

    @fake
    def test_many_released_in_flight(self):
        """More jobs than threads: queued jobs must not start after the release."""
        agent = Agent(threads=2)
        buffer = agent.memory(Buffer(b"x" * 100))
        names = [fresh() for _ in range(50)]
        ids = agent.objects(names, 100)
        with fault(DELAY_MS=300):
            handles = [agent.prepare("WRITE", [(buffer.addr, 100)], [(0, 100, i)]) for i in ids]
            for handle in handles:
                self.assertEqual(agent.nixl.transfer(handle), "PROC")
            t0 = time.monotonic()
            for handle in handles:
                handle.release()
            # this transfer waits for none of the others
            last = agent.objects([fresh()], 100)
            self.assertEqual(agent.run("WRITE", [(buffer.addr, 100)], [(0, 100, last[0])]), "DONE")
            self.assertLess(time.monotonic() - t0, 6)
        # except one job per thread that was starting at the cancel
        self.assertGreaterEqual(Agent().present(names).count(None), 48)

    @fake
    def test_agent_goes_in_flight(self):
        buffer, ids = self.agent.memory(Buffer(bytes(10))), self.agent.objects([fresh()], 10)
        handle = self.agent.prepare("WRITE", [(buffer.addr, 10)], [(0, 10, ids[0])])
        with fault(DELAY_MS=5000):
            self.assertEqual(self.agent.nixl.transfer(handle), "PROC")
            handle._released = True     # never released
            agent, self.agent.nixl.agent = handle._agent, None
            del handle
            self.assertEqual(sys.getrefcount(agent), 2)
            t0 = time.monotonic()
            del agent
            self.assertLess(time.monotonic() - t0, 4)

    @fake
    def test_deadline(self):
        agent = Agent(timeout_ms=100)
        buffer, ids = agent.memory(Buffer(bytes(10))), agent.objects([fresh()], 10)
        for op in ("WRITE", "READ"):
            with fault(DELAY_MS=5000), stderr():
                t0 = time.monotonic()
                with self.assertRaises(bindings.nixlCancelledError):
                    agent.run(op, [(buffer.addr, 10)], [(0, 10, ids[0])])
                self.assertLess(time.monotonic() - t0, 4)
                self.assertGreater(time.monotonic() - t0, 0.09)

    def test_memory_that_went(self):
        """A prepared transfer fails after its memory was deregistered."""
        buffer = Buffer(b"old" * 100)
        registered = self.agent.nixl.register_memory([(buffer.addr, 300, 0, "")], "DRAM")
        name = fresh()
        ids = self.agent.objects([name], 300)
        handle = self.agent.prepare("WRITE", [(buffer.addr, 300)], [(0, 300, ids[0])])
        self.agent.nixl.deregister_memory(registered)
        self.agent.memory(Buffer(b"new" * 100))
        with stderr() as text, self.assertRaises(bindings.nixlNotFoundError):
            self.agent.nixl.transfer(handle)
        self.assertIn("was deregistered since it was prepared", text[0])
        self.assertEqual(self.agent.present([name]), [None])

    @fake
    def test_memlock(self):
        with fault(MEMLOCK=1), stderr() as text:
            buffers = [self.agent.memory(Buffer(bytes([i]) * 100)) for i in range(1, 4)]
        self.assertEqual(text[0].count("raise RLIMIT_MEMLOCK"), 1, text[0])
        names = [fresh() for _ in buffers]
        remote = [(0, 100, i) for i in self.agent.objects(names, 100)]
        local = [(b.addr, 100) for b in buffers]
        self.assertEqual(self.agent.run("WRITE", local, remote), "DONE")
        self.assertEqual(self.agent.run("READ", local[::-1], remote), "DONE")
        self.assertEqual([b.bytes[0] for b in buffers], [3, 2, 1])

    def test_threads(self):
        failed = []

        def work(seed):
            try:
                buffer = self.agent.memory(Buffer(os.urandom(40000)))
                back = self.agent.memory(Buffer(bytes(40000)))
                for _ in range(20):
                    ids = self.agent.objects([fresh() for _ in range(20)], 2000)
                    remote = [(0, 2000, i) for i in ids]
                    for op, memory in (("WRITE", buffer), ("READ", back)):
                        state = self.agent.run(op, [(memory.addr + 2000 * i, 2000) for i in range(20)], remote)
                        assert state == "DONE", state
                    assert back.bytes == buffer.bytes
                    back.bytes[:] = bytes(40000)
            except Exception as error:
                failed.append((seed, error))

        # NIXL's own lists allow one thread at a time by default
        self.agent = Agent(sync_mode=nixl_thread_sync_t.NIXL_THREAD_SYNC_STRICT)
        threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            self.assertFalse(thread.is_alive())
        self.assertEqual(failed, [])


class Volumes(unittest.TestCase):
    SIZE = 4096

    def setUp(self):
        self.agent = Agent(blk_size=self.SIZE)
        self.volume = next(numbers) << 32 | os.getpid()
        self.agent.nixl.register_memory([(0, 1 << 40, self.volume, "")], "BLOCK")
        self.buffer = self.agent.memory(Buffer(os.urandom(16 * self.SIZE)))
        self.back = self.agent.memory(Buffer(bytes(16 * self.SIZE)))

    def run_at(self, op, memory, offset, length):
        return self.agent.run(op, [(memory.addr, length)], [(offset, length, self.volume)], "BLOCK")

    def present(self, *ranges):
        return self.agent.nixl.query_memory([(at, n, self.volume, "") for at, n in ranges], "KVBLK", "BLOCK")

    def test_write_and_read(self):
        at = 5 << 33
        self.assertEqual(self.run_at("WRITE", self.buffer, at, 8 * self.SIZE), "DONE")
        self.assertEqual(self.run_at("READ", self.back, at, 8 * self.SIZE), "DONE")
        self.assertEqual(self.back.bytes[:8 * self.SIZE], self.buffer.bytes[:8 * self.SIZE])
        # reads may cover any bytes
        self.assertEqual(self.run_at("READ", self.back, at + 100, 3 * self.SIZE), "DONE")
        self.assertEqual(self.back.bytes[:3 * self.SIZE], self.buffer.bytes[100:100 + 3 * self.SIZE])
        self.assertEqual(self.present((at, 8 * self.SIZE), (at + 8 * self.SIZE, 1), (at, 9 * self.SIZE)),
                         [{"size": str(8 * self.SIZE)}, None, None])
        with stderr(), self.assertRaises(bindings.nixlNotFoundError):
            self.run_at("READ", self.back, at + self.SIZE, 8 * self.SIZE)

    def test_written_again(self):
        """A volume is mutable: a read returns the last write, never older data."""
        for _ in range(5):
            self.buffer.bytes[:] = os.urandom(16 * self.SIZE)
            self.assertEqual(self.run_at("WRITE", self.buffer, 0, 16 * self.SIZE), "DONE")
            self.assertEqual(self.run_at("READ", self.back, 0, 16 * self.SIZE), "DONE")
            self.assertEqual(self.back.bytes, self.buffer.bytes)

    @fake
    def test_not_written_again(self):
        """A declined write leaves a miss, not the older data."""
        for every in "1", "2", "2":
            self.assertEqual(self.run_at("WRITE", self.buffer, 0, self.SIZE), "DONE")
            with fault(DECLINE=every), stderr(), self.assertRaises(bindings.nixlNotAllowedError):
                # declined in its first batch of puts, or after the block was deleted
                self.run_at("WRITE", self.buffer, 0, self.SIZE)
            self.assertEqual(self.present((0, self.SIZE)), [None])
        self.agent = Agent(blk_size=self.SIZE, ignore_put_declined="true")
        self.agent.nixl.register_memory([(0, 1 << 40, self.volume, "")], "BLOCK")
        self.agent.memory(self.buffer)
        self.assertEqual(self.run_at("WRITE", self.buffer, 0, self.SIZE), "DONE")
        with fault(DECLINE=1):
            self.assertEqual(self.run_at("WRITE", self.buffer, 0, self.SIZE), "DONE")
        self.assertEqual(self.present((0, self.SIZE)), [None])

    def test_parts_that_are_no_neighbors(self):
        """Parts of two blocks or volumes are separate operations, although their offsets are adjacent."""
        self.agent.nixl.register_memory([(0, 1 << 40, self.volume + 1, "")], "BLOCK")
        self.assertEqual(self.run_at("WRITE", self.buffer, 0, 2 * self.SIZE), "DONE")
        self.assertEqual(self.agent.run("WRITE", [(self.buffer.addr + 2 * self.SIZE, self.SIZE)],
                                        [(0, self.SIZE, self.volume + 1)], "BLOCK"), "DONE")
        state = self.agent.run("READ", [(self.back.addr + 100 * i, 100) for i in range(3)],
                               [(0, 100, self.volume), (self.SIZE + 100, 100, self.volume),
                                (200, 100, self.volume + 1)], "BLOCK")
        self.assertEqual(state, "DONE")
        at = (0, self.SIZE + 100, 2 * self.SIZE + 200)
        self.assertEqual(self.back.bytes[:300], b"".join(bytes(self.buffer.bytes[i:i + 100]) for i in at))

    def test_parts_of_blocks(self):
        for offset, length in ((0, 100), (512, self.SIZE), (0, self.SIZE + 512)):
            with stderr() as text, self.assertRaises(bindings.nixlNotSupportedError):
                self.run_at("WRITE", self.buffer, offset, length)
            self.assertIn("multiples of blk_size=4096", text[0])
        self.assertEqual(self.present((0, self.SIZE)), [None])

    def test_gathered(self):
        """Pieces of memory that form a block are one operation."""
        nr = self.SIZE // 512
        local = [(self.buffer.addr + 1024 * i, 512) for i in range(nr)]
        remote = [(512 * i, 512, self.volume) for i in range(nr)]
        self.assertEqual(self.agent.run("WRITE", local, remote, "BLOCK"), "DONE")
        self.assertEqual(self.run_at("READ", self.back, 0, self.SIZE), "DONE")
        for i in range(nr):
            self.assertEqual(self.back.bytes[512 * i:512 * (i + 1)], self.buffer.bytes[1024 * i:1024 * i + 512])


@in_vm
class Events(unittest.TestCase):
    """Faults of the pool between queryMem() and a read."""

    NR, SIZE = 40, 65536

    def setUp(self):
        self.agent = Agent()
        self.names = [fresh() for _ in range(self.NR)]
        self.data = os.urandom(self.NR * self.SIZE)
        self.memory = self.agent.memory(Buffer(self.data))
        self.local = [(self.memory.addr + i * self.SIZE, self.SIZE) for i in range(self.NR)]
        self.remote = [(0, self.SIZE, i) for i in self.agent.objects(self.names, self.SIZE)]
        self.assertEqual(self.agent.run("WRITE", self.local, self.remote), "DONE")
        self.assertEqual(self.agent.present(self.names), [self.SIZE] * self.NR)

    def fails(self, op, agent=None):
        """Return the error of a transfer of all objects, which must end in time."""
        agent, remote = agent or self.agent, self.remote
        if agent is not self.agent:
            agent.memory(self.memory)
            remote = [(0, self.SIZE, i) for i in agent.objects(self.names, self.SIZE)]
        begin = time.monotonic()
        with stderr(), self.assertRaises((bindings.nixlNotFoundError, bindings.nixlBackendError,
                                          bindings.nixlCancelledError)) as caught:
            agent.run(op, self.local, remote)
        self.assertLess(time.monotonic() - begin, 15)
        return type(caught.exception)

    def test_nothing(self):
        before = carried.counters()["gets"]
        self.assertEqual(self.agent.run("READ", self.local, self.remote), "DONE")
        self.assertEqual(carried.counters()["gets"] - before, self.NR)

    def test_drives_fail(self):
        with carried.during(carried.FAIL, carried.HEAL):
            self.memory.bytes[:] = bytes(len(self.data))
            read = self.fails("READ")
            write = self.fails("WRITE")
        print(f"# drives that fail: a read ends with {read.__name__}, a write with {write.__name__}")
        # a write deletes the old object before it stores the new one, so objects are never mixed
        self.memory.bytes[:] = self.data
        self.assertEqual(self.agent.run("WRITE", self.local, self.remote), "DONE")
        self.memory.bytes[:] = bytes(len(self.data))
        self.assertEqual(self.agent.run("READ", self.local, self.remote), "DONE")
        self.assertEqual(self.memory.bytes, self.data)

    def test_drives_go(self):
        """A drive that does not respond: the read completes on time, because its agent has a hard deadline."""
        with carried.during(carried.GO, carried.COME):
            self.memory.bytes[:] = bytes(len(self.data))
            self.assertEqual(self.fails("READ", Agent(timeout_ms=2000, hard_deadline="true")), bindings.nixlCancelledError)
        self.assertEqual(self.agent.present(self.names), [self.SIZE] * self.NR)
        self.assertEqual(self.agent.run("READ", self.local, self.remote), "DONE")
        self.assertEqual(self.memory.bytes, self.data)

    def test_evicted(self):
        """queryMem() takes no lease: an object found may be evicted, and its read misses."""
        carried.guest(carried.EVICT)
        self.assertEqual(self.fails("READ"), bindings.nixlNotFoundError)
        self.assertEqual(self.agent.present(self.names), [None] * self.NR)


class Processes(unittest.TestCase):
    def python(self, program, *args, **options):
        """Run a program in a new process, with this module as t."""
        return subprocess.Popen([sys.executable, "-c", "import test_nixl as t, os, signal, sys\n" + program, *args],
                                cwd=os.path.dirname(os.path.abspath(__file__)), text=True, stdout=subprocess.PIPE, **options)

    def test_two_processes(self):
        program = ("o = t.Objects(); o.agent = t.Agent()\n"
                   "print(getattr(o, sys.argv[1])(sys.argv[3], eval(sys.argv[2])))\n")
        name = fresh()
        with tempfile.TemporaryDirectory() as directory, fault(STORE=f"{directory}/blocks"):
            told = []
            for args in (("store", "b'from one'"), ("fetch", "8")):
                with self.python(program, *args, name) as process:
                    told.append(process.communicate(timeout=60)[0].splitlines()[-1])
        self.assertEqual(told, ["DONE", "b'from one'"])

    @in_vm
    def test_killed_while_it_writes(self):
        """A killed process leaves its complete writes, no wrong data, and the next process writes the rest."""
        program = ("a = t.Agent(); n = int(sys.argv[2]); size = 65536\n"
                   "b = a.memory(t.Buffer(b''.join(bytes([i + 1]) * size for i in range(n))))\n"
                   "ids = a.objects([f'{sys.argv[1]}-{i}' for i in range(n)], size)\n"
                   "for i in range(0, n, 10):\n"
                   "    part = [(b.addr + j * size, size) for j in range(i, i + 10)], [(0, size, j) for j in ids[i:i + 10]]\n"
                   "    print(a.run('WRITE', *part), flush=True)\n")
        nr, size = 200, 65536
        failures = carried.counters()["checksum_failures"]
        for written in 1, 5, 11:
            name = fresh("killed")
            with self.python(program, name, str(nr)) as process:
                told = [process.stdout.readline() for _ in range(written)]
                process.kill()
            self.assertEqual(told, ["DONE\n"] * written)
            self.assertEqual(process.returncode, -signal.SIGKILL)
            agent = Agent(overwrite="false")
            names = [f"{name}-{i}" for i in range(nr)]
            ids = agent.objects(names, size)
            data = b"".join(bytes([i + 1]) * size for i in range(nr))
            memory = agent.memory(Buffer(data))
            there = [i for i, length in enumerate(agent.present(names)) if length == size]
            print(f"# killed after {written * 10} of {nr} objects: {len(there)} are there")
            self.assertLessEqual(set(range(written * 10)), set(there))
            self.assertLess(len(there), nr)
            everything = [(memory.addr + i * size, size) for i in range(nr)], [(0, size, i) for i in ids]
            self.assertEqual(agent.run("WRITE", *everything), "DONE")
            memory.bytes[:] = bytes(len(data))
            self.assertEqual(agent.run("READ", *everything), "DONE")
            self.assertEqual(memory.bytes, data)
        self.assertEqual(carried.counters()["checksum_failures"], failures)

    @fake
    def test_what_is_logged(self):
        """Failed descriptors are logged at level DEBUG, because NIXL has no result per descriptor."""
        program = ("import test_nixl as t\n"
                   "a = t.Agent(salt_file=''); b = a.memory(t.Buffer(bytes(300))); ids = a.objects(['x', 'y', 'z'], 100)\n"
                   "a.run('WRITE', [(b.addr, 100)], [(0, 100, ids[1])])\n"
                   "try: a.run('READ', [(b.addr + 100 * i, 100) for i in range(3)], [(0, 100, i) for i in ids])\n"
                   "except t.bindings.nixlNotFoundError: pass\n"
                   "else: raise SystemExit('done?')\n"
                   "t.sys.stderr.write('misses are behind\\n'); t.sys.stderr.flush()\n"
                   "ids = a.objects(['y'], 50) * 3\n"
                   "for i in range(3):\n"
                   "    try: a.run('READ', [(b.addr, 50)], [(0, 50, ids[0])])\n"
                   "    except t.bindings.nixlMismatchError: pass\n")
        for level, lines in (("DEBUG", ["0: status -4", "2: status -4"]), ("WARN", [])):
            told = subprocess.run([sys.executable, "-c", program], cwd=os.path.dirname(os.path.abspath(__file__)), text=True,
                                  env={**os.environ, "NIXL_LOG_LEVEL": level}, stderr=subprocess.PIPE, timeout=60,
                                  check=True).stderr
            misses, lengths = told.split("misses are behind\n")
            self.assertEqual([line.split("descriptor ")[1].split(",")[0] for line in misses.splitlines()
                              if line.startswith("D KVBLK: read of descriptor")], lines)
            # failures other than misses are logged with a rate limit
            self.assertNotIn("W KVBLK", misses)
            self.assertEqual(lengths.count("W KVBLK: pool fake: read of 1 of 1 descriptors failed"), 1, lengths)

    @fake
    def test_beside_the_plugins_of_the_wheel(self):
        """The plugin in NIXL's own plugin directory, here a copy made of links."""
        wheel = bindings.__name__.split(".")[0]
        packages = os.path.dirname(os.path.dirname(bindings.__file__))
        libraries = f".{wheel}.mesonpy.libs"
        program = (f"from {wheel}._api import nixl_agent, nixl_agent_config\n"
                   "a = nixl_agent('a', nixl_agent_config(backends=[]))\n"
                   f"a.create_backend('POSIX'); a.create_backend('KVBLK', {{'pool': '{POOL}'}})\n"
                   "print(sorted(a.get_plugin_list()), sorted(a.backends))\n")
        with tempfile.TemporaryDirectory() as directory:
            # directories that are left by ".." must not be links
            real = ("", wheel, libraries, f"{libraries}/plugins")
            for path in (os.path.join(parent, name) for parent in real for name in os.listdir(f"{packages}/{parent}")):
                if path in real:
                    os.mkdir(f"{directory}/{path}")
                else:
                    os.symlink(f"{packages}/{path}", f"{directory}/{path}")
            shutil.copy(os.environ["NIXL_PLUGIN_DIR"] + "/libplugin_KVBLK.so", f"{directory}/{libraries}/plugins")
            env = {**os.environ, "PYTHONPATH": directory}
            del env["NIXL_PLUGIN_DIR"]
            told = subprocess.run([sys.executable, "-S", "-c", program], env=env, stdout=subprocess.PIPE, timeout=60,
                                  check=True, text=True).stdout.splitlines()[-1]
        self.assertIn("'KVBLK'", told)
        self.assertIn("'POSIX'", told.split("]")[0])
        self.assertTrue(told.endswith("['KVBLK', 'POSIX']"), told)


if __name__ == "__main__":
    sys.exit(tap.main("nixl"))
