# SPDX-License-Identifier: MIT
"""The adapter with a real llama.cpp and a small random model, on the emulated pool or that of selftests/runtimes; run
by ./check.

A test that loses, breaks or replaces blocks compares the tokens with those of a run without kvblk.
"""

from __future__ import annotations

import errno
import importlib.util
import json
import logging
import mmap
import os
import pathlib
import signal
import struct
import subprocess
import sys
import tempfile
import unittest
import uuid
from typing import Any
from unittest import mock

import kvblk
import tap
from salts import salt_file

from kvblk_llamacpp import Library, PrefixCache, Session, model_digest, state
from kvblk_llamacpp.cache import Options
from kvblk_llamacpp.model import Model, _Header
from kvblk_llamacpp.tiny import write

POOL = os.environ.get("KVBLK_POOL", "fake")
FAKE = POOL == "fake"
VM = "KVBLK_CARRY" in os.environ
if VM:
    import carried
#: unique per run, for pools that outlive it
RUN = uuid.uuid4().hex
BLOCK = 64
PROMPT = [3 + i * 7 % 250 for i in range(600)]
TEXT = "The quick brown fox jumps over the lazy dog. " * 20
WHOLE = (len(PROMPT) - 1) // BLOCK  # blocks that restore() may find
q8_0 = {"type_k": 8, "type_v": 8}

directory = tempfile.TemporaryDirectory(prefix="kvblk-llamacpp-")
here = pathlib.Path(directory.name)
model, other = str(here / "tiny.gguf"), str(here / "other.gguf")


def setUpModule() -> None:
    write(model)
    write(other, seed=1)


def tearDownModule() -> None:
    directory.cleanup()


def generate(session: Session, restored: int, prompt: list[int] | None = None, count: int = 32) -> list[int]:
    """Return the tokens that follow a prompt whose first tokens are in the context."""
    tokens = list(prompt or PROMPT)
    session.decode(tokens[restored:], restored)
    output = [session.sample()]
    while len(output) < count:
        session.decode(output[-1:], len(tokens) + len(output) - 1)
        output.append(session.sample())
    return output


def kv_of(session: Session) -> bytes:
    """Return the state of the context's first sequence."""
    size = session.c.llama_state_seq_get_size(session.context, 0)
    room = bytearray(size)
    got = session.c.llama_state_seq_get_data(session.context, kvblk.buffers.piece_of(room, True)[0], size, 0)
    return bytes(room[:got])


class Case(unittest.TestCase):
    """A separate pool for each test, and sessions."""

    def setUp(self) -> None:
        # keeps the process's emulated pool open
        self.pool = kvblk.Pool(POOL)
        self.addCleanup(self.pool.close)
        self.salt = f"{self.id()} {RUN}"
        for name in "FAIL", "LOSE", "DECLINE":
            os.environ.pop(f"KVBLK_FAKE_{name}", None)
        logging.getLogger("kvblk.llamacpp").setLevel(logging.CRITICAL)

    def env(self, **settings: object) -> None:
        """Set the emulated pool's faults until the test ends."""
        if not FAKE:
            self.skipTest("needs the fake pool")
        # os.environ changes the environment that C's getenv() reads
        change = mock.patch.dict(os.environ, {f"KVBLK_FAKE_{name}": str(value) for name, value in settings.items()})
        change.start()
        self.addCleanup(change.stop)

    def session(self, path: str = model, **params: Any) -> Session:
        session = Session(path, **{"n_ctx": 2048, **params})
        self.addCleanup(session.close)
        return session

    def cache(self, session: Session, **options: Any) -> PrefixCache:
        cache = PrefixCache.of(session, **{"pool": POOL, "salt": self.salt, "timeout_s": 30, **options})
        self.addCleanup(cache.close)
        return cache

    def stored(self, **params: Any) -> tuple[PrefixCache, list[int]]:
        """Return a cache that has saved the prompt, and the model's answer."""
        session = self.session(**params)
        output = generate(session, 0)
        cache = self.cache(session)
        cache.save(PROMPT + output)
        self.assertGreaterEqual(cache.report.counts()["store_blocks"] + cache.report.counts()["store_present"], WHOLE)
        return cache, output

    def again(self, **params: Any) -> tuple[PrefixCache, int, list[int]]:
        """Use another context; returns its cache, the number of restored tokens, and the model's answer."""
        session = self.session(**params)
        cache = self.cache(session)
        restored = cache.restore(PROMPT)
        self.assertEqual(cache.report.errors(), 0)
        return cache, restored, generate(session, restored)


class Commands(unittest.TestCase):
    """python -m kvblk_llamacpp, run as processes that share a pool."""

    def setUp(self) -> None:
        self.store = here / f"{self.id()}.store"

    def start(self, path: str = model, arguments: tuple[str, ...] = (), **settings: object) -> subprocess.Popen[str]:
        if settings and not FAKE:
            self.skipTest("needs the fake pool")
        env = dict(os.environ, KVBLK_FAKE_STORE=str(self.store))
        env |= {f"KVBLK_FAKE_{name}": str(value) for name, value in settings.items()}
        command = [sys.executable, "-m", "kvblk_llamacpp", "--model", path, "--pool", POOL, "--prompt", TEXT, "--json",
                   "--salt", f"{self.id()} {RUN}", "--timeout", "30"]
        return subprocess.Popen([*command, *arguments], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                text=True)

    def end(self, process: subprocess.Popen[str]) -> dict[str, Any]:
        out, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 0, err)
        report: dict[str, Any] = json.loads(out)
        return report

    def run_one(self, *args: Any, **settings: object) -> dict[str, Any]:
        return self.end(self.start(*args, **settings))

    def test_second_process(self) -> None:
        """a second process restores the prompt and gives the same answer"""
        first, second = self.run_one(), self.run_one()
        self.assertEqual(first["tokens"], second["tokens"])
        self.assertEqual(first["restored_tokens"], 0)
        self.assertEqual(second["restored_tokens"], (first["prompt_tokens"] - 1) // BLOCK * BLOCK)
        print(f"# time to first token: {first['first_token_ms']:.1f} ms, then {second['first_token_ms']:.1f} ms")

    def test_without_pool(self) -> None:
        """a restored prompt gives the answer of a run without kvblk"""
        without = self.run_one(model, ("--pool", ""))
        self.run_one()
        self.assertEqual(without["tokens"], self.run_one()["tokens"])

    def test_lost(self) -> None:
        """a get lost in the middle ends the prefix, and the tokens are equal"""
        first = self.run_one()
        lossy = self.run_one(LOSE=5)
        self.assertEqual(lossy["restored_tokens"], 4 * BLOCK)
        self.assertEqual(lossy["stats"]["load_misses"], 1)
        self.assertEqual(first["tokens"], lossy["tokens"])

    def test_other_model(self) -> None:
        """another model of the same shape misses"""
        first, second = self.run_one(), self.run_one(other)
        self.assertEqual(second["restored_tokens"], 0)
        self.assertNotEqual(first["tokens"], second["tokens"])
        self.assertEqual(second["stats"]["store_blocks"], first["stats"]["store_blocks"])

    def test_other_dtype(self) -> None:
        """another type of K and V misses, and restores its own"""
        self.run_one()
        quantized = self.run_one(model, ("--kv-type", "q8_0"))
        self.assertEqual((quantized["restored_tokens"], quantized["stats"]["lookup_hits"]), (0, 0))
        again = self.run_one(model, ("--kv-type", "q8_0"))
        self.assertGreater(again["restored_tokens"], 0)
        self.assertEqual(quantized["tokens"], again["tokens"])

    def test_two_at_once(self) -> None:
        """two concurrent processes give equal answers, and leave right blocks"""
        alone = self.run_one(model, ("--pool", ""))
        reports = [*map(self.end, [self.start(), self.start()])]
        reports.append(self.run_one())
        self.assertEqual([r["tokens"] for r in reports], [alone["tokens"]] * 3)
        self.assertGreater(reports[2]["restored_tokens"], 0)

    def test_wrong_arguments(self) -> None:
        """an error at startup is a message and exit code 1"""
        for arguments, sentence in (
                (("--pool", "nopool"), "'nopool' can't be opened: no such pool"), (("--timeout", "0"), "timeout_s"),
                (("--model", "/absent"), "no model"), (("--context", "100"), "do not fit")):
            process = self.start(model, arguments)
            _, err = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 1, err)
            self.assertIn(sentence, err)
            self.assertEqual(len(err.splitlines()), 1, err)


class Restoring(Case):
    """Restores in one process, with manipulated blocks."""

    def foreign(self, block: int, data: bytes | None) -> None:
        """Store the prompt, then put ``data`` under the key of one of its blocks."""
        cache, self.output = self.stored()
        key = cache.keys(PROMPT)[block]
        if data is not None:
            self.assertTrue(self.pool.delete(key))
            self.pool.put(key, data, layout_tag=cache._tag)

    def refused(self, block: int) -> None:
        """The block is not used, the tokens are right, and the right block is stored again."""
        cache, restored, output = self.again()
        self.assertEqual((restored, output), (block * BLOCK, self.output))
        self.assertEqual(cache.report.counts()["wrong_blocks"], 1)
        self.assertEqual(cache.save(PROMPT), 1)
        self.assertEqual(self.again()[1:], (WHOLE * BLOCK, self.output))

    def block(self, number: int, **params: Any) -> bytes:
        cache, _ = self.stored(**params)
        data = self.pool.get(cache.keys(PROMPT)[number])
        assert data is not None
        return bytes(data)

    def test_truncated(self) -> None:
        """a truncated block under our key is refused, recomputed and stored again"""
        self.foreign(3, self.block(3)[:-1000])
        self.refused(3)

    def test_random(self) -> None:
        """random bytes under our key are refused"""
        self.foreign(2, os.urandom(len(self.block(2))))
        self.refused(2)

    def test_other_position(self) -> None:
        """a block of another position under our key is refused"""
        self.foreign(4, self.block(5))
        self.refused(4)

    def test_first(self) -> None:
        """a wrong first block restores nothing"""
        self.foreign(0, self.block(1))
        self.refused(0)

    def test_other_type(self) -> None:
        """a block of another type of K and V, cut to our length, is refused"""
        mine = self.block(1)
        self.foreign(1, self.block(1, type_k=0, type_v=0)[:len(mine)])
        self.refused(1)

    def test_length(self) -> None:
        """a block of wrong length is not fetched"""
        self.foreign(2, b"short")
        cache = self.cache(self.session())
        with mock.patch.object(cache._queue, "get", side_effect=cache._queue.get) as get:
            cache.restore(PROMPT)
        self.assertEqual([call.args[0] for call in get.call_args_list], [cache.keys(PROMPT)[:2]])

    def test_middle(self) -> None:
        """a block one of whose cells has another position is refused"""
        data = bytearray(self.block(3))
        at = state.HEAD.size + 10 * (state.CELL.size + state.PLACE)
        self.assertEqual(struct.unpack_from("<i", data, at), (3 * BLOCK + 10,))
        struct.pack_into("<i", data, at, 3 * BLOCK + 11)
        self.foreign(3, bytes(data))
        self.refused(3)

    def test_llama_refuses(self) -> None:
        """a block that llama.cpp rejects, or reads only in part, is not used"""
        _, output = self.stored()
        for given, told in ((1, 0), (0, 1)):
            session = self.session()
            cache = self.cache(session)
            real, calls = cache._c.llama_state_seq_set_data, []

            def third_fails(context: int, data: int, size: int, sequence: int) -> int:
                calls.append(size)
                third = len(calls) == 3
                return int(real(context, data, size - given * third, sequence)) - told * third

            with mock.patch.object(cache, "_c", mock.Mock(wraps=cache._c)) as c:
                c.llama_state_seq_set_data = third_fails
                restored = cache.restore(PROMPT)
            self.assertEqual(restored, 2 * BLOCK)
            self.assertEqual(generate(session, restored), output)
            # stores the deleted block again
            cache.save(PROMPT)

    def test_layout_tag(self) -> None:
        """a block with another layout tag is refused"""
        cache, self.output = self.stored()
        key = cache.keys(PROMPT)[2]
        data = self.pool.get(key)
        self.pool.delete(key)
        self.pool.put(key, data, layout_tag=cache._tag ^ 1)
        self.refused(2)

    def test_good_block_missed(self) -> None:
        """a present block that a get missed, for example because its drive does not respond, is kept"""
        self.stored()
        for lose in (1, 2, 3):
            self.env(LOSE=lose)
            cache = self.again()[0]
            self.assertEqual((cache.report.counts()["load_misses"], cache.report.counts()["wrong_blocks"]), (1, 0))
            self.env(LOSE=0)
            self.assertEqual(self.again()[1], WHOLE * BLOCK)

    def test_errors(self) -> None:
        """operations that fail are misses, counted, and logged once"""
        _, output = self.stored()
        session = self.session()
        cache = self.cache(session)
        logging.getLogger("kvblk.llamacpp").setLevel(logging.WARNING)
        with self.assertLogs("kvblk.llamacpp") as logs:
            self.env(FAIL=1)
            for _ in range(3):
                self.assertEqual(cache.restore(PROMPT), 0)
        self.assertEqual(cache.report.errors(), 3)
        self.assertEqual(len(logs.output), 1)
        self.assertIn(f"[Errno {errno.EIO}]", logs.output[0])
        self.assertEqual(generate(session, 0), output)

    def test_lookup_fails(self) -> None:
        """a lookup that fails restores and stores nothing, without an exception"""
        _, output = self.stored()
        session = self.session()
        cache = self.cache(session)
        with mock.patch.object(cache._pool, "lookup", side_effect=kvblk.KvblkError(errno.ENODEV)):
            self.assertEqual(cache.restore(PROMPT), 0)
            self.assertEqual(generate(session, 0), output)
            self.assertEqual(cache.save(PROMPT), 0)
        self.assertEqual(cache.report.errors(), 2)

    def test_submit_fails(self) -> None:
        """a batch that fails as a whole is a miss"""
        _, output = self.stored()
        session = self.session()
        cache = self.cache(session)
        real = cache._queue.get

        def broken(*args: Any, **options: Any) -> kvblk.Job:
            job = real(*args, **options)
            while job.results is None:
                cache._queue.wait()
            job.results = [kvblk.KvblkError(errno.EIO)] * len(job.results)
            return job

        with mock.patch.object(cache._queue, "get", broken):
            self.assertEqual(cache.restore(PROMPT), 0)
        self.assertEqual(generate(session, 0), output)

    def test_batch_cannot_start(self) -> None:
        """a second batch that cannot start leaves the first one's blocks, and the caller knows"""
        _, output = self.stored()
        session = self.session()
        with mock.patch("kvblk_llamacpp.cache.BATCH_MOST", 2):
            cache = self.cache(session)
        real, calls = cache._queue.get, []

        def third_fails(*args: Any, **options: Any) -> kvblk.Job:
            calls.append(1)
            if len(calls) == 3:
                raise kvblk.KvblkError(errno.ENOMEM)
            return real(*args, **options)

        with mock.patch.object(cache._queue, "get", third_fails):
            restored = cache.restore(PROMPT)
        self.assertEqual((restored, generate(session, restored)), (2 * BLOCK, output))

    def test_prestage(self) -> None:
        """a prompt's blocks are in the pool's memory; without such memory nothing happens"""
        cache, _ = self.stored()
        self.assertEqual(cache.prestage(PROMPT), 0)
        self.env(DRAM=1 << 30)
        self.assertGreaterEqual(cache.prestage(PROMPT), WHOLE)
        self.assertEqual(set(self.pool.lookup(cache.keys(PROMPT)[:WHOLE], tiers=True).tiers), {"memory"})

    def test_hint(self) -> None:
        """a hint on a prompt is one on each of its blocks; a refused one is counted"""
        cache, _ = self.stored()
        self.assertEqual(cache.hint(PROMPT, retain=60), WHOLE)
        self.assertEqual(cache.hint(PROMPT, release=True), WHOLE)
        self.assertEqual(cache.hint([1] * len(PROMPT), demote=True), 0)
        self.assertEqual(cache.hint(PROMPT, priority=9), 0)
        self.assertEqual(cache.report.counts()["hint_errors"], 1)

    def test_lease(self) -> None:
        """blocks are fetched under a lease, which is released"""
        self.stored()
        self.env(LEASE=1)
        self.assertEqual(self.again()[1], WHOLE * BLOCK)
        session = self.session()
        cache = self.cache(session)
        found = []

        def lookup(*args: Any, **options: Any) -> kvblk.Lookup:
            found.append(kvblk.Pool.lookup(cache._pool, *args, **options))
            self.assertTrue(found[-1].lease)
            return found[-1]

        with mock.patch.object(cache._pool, "lookup", lookup):
            cache.restore(PROMPT)
            os.environ["KVBLK_FAKE_FAIL"] = "1"
            cache.restore(PROMPT)
        self.assertEqual([bool(one.lease) for one in found], [False] * 2)

    def test_unregistered(self) -> None:
        """without registered memory there is one warning, and everything works"""
        _, output = self.stored()
        session = self.session()
        logging.getLogger("kvblk.llamacpp").setLevel(logging.WARNING)
        with mock.patch.object(kvblk.Pool, "register", side_effect=kvblk.KvblkError(errno.ENOMEM)), \
                self.assertLogs("kvblk.llamacpp") as logs:
            cache = self.cache(session)
        self.assertIn("ulimit -l", logs.output[0])
        self.assertEqual(len(logs.output), 1)
        restored = cache.restore(PROMPT)
        self.assertEqual((restored, generate(session, restored)), (WHOLE * BLOCK, output))
        self.assertEqual(cache.save([*PROMPT, *output]), 0)

    def test_bit_by_bit(self) -> None:
        """K, V and the answer equal those of a run without kvblk, whatever part of the prompt was restored"""
        session = self.session()
        cache = self.cache(session)
        output = generate(session, 0)
        computed = kv_of(session)
        cache.save(PROMPT)
        keys = cache.keys(PROMPT)
        for blocks in (*range(WHOLE), WHOLE):
            with self.subTest(blocks=blocks):
                again = self.session()
                part = self.cache(again)
                restored = part.restore(PROMPT[:blocks * BLOCK + 1]) if blocks else 0
                self.assertEqual(restored, blocks * BLOCK)
                self.assertEqual(generate(again, restored), output)
                self.assertTrue(kv_of(again) == computed)
        self.assertEqual(len(keys), WHOLE)

    def test_cut(self) -> None:
        """A batch ends at each end of a block, and nowhere else"""
        session = self.session(n_batch=100)
        sizes: list[tuple[int, int]] = []

        def decode(context: int, batch: Any) -> int:
            sizes.append((batch.pos[0], batch.n_tokens))
            return 0

        with mock.patch.object(session.library, "c", mock.Mock(wraps=session.c, llama_decode=decode)):
            for cut, position, want in ((64, 0, [(0, 64), (64, 64), (128, 22)]), (64, 50, [(50, 14), (64, 64), (128, 64), (192, 8)]),
                                        (0, 50, [(50, 100), (150, 50)]), (128, 0, [(0, 100), (100, 28), (128, 22)])):
                sizes.clear()
                session.cut = cut
                session.decode([5] * 150, position)
                self.assertEqual(sizes, want)

    def test_have(self) -> None:
        """a sequence that has a part of the prompt is completed"""
        _, output = self.stored()
        for have in 0, 1, 63, 64, 100, 5 * BLOCK, len(PROMPT):
            session = self.session()
            cache = self.cache(session)
            if have:
                session.decode(PROMPT[:have], 0)
            with self.subTest(have=have):
                restored = cache.restore(PROMPT, have=have)
                self.assertEqual(restored, max(WHOLE * BLOCK, min(have, len(PROMPT) - 1)))
                self.assertEqual(cache.report.counts()["load_blocks"], WHOLE - have // BLOCK)
                self.assertEqual(generate(session, restored), output)

    def test_have_and_wrong(self) -> None:
        """a wrong block leaves the sequence as it was"""
        self.foreign(1, self.block(2))
        session = self.session()
        cache = self.cache(session)
        session.decode(PROMPT[:100], 0)
        self.assertEqual(cache.restore(PROMPT, have=100), 100)
        self.assertEqual(generate(session, 100), self.output)

    def test_replaces(self) -> None:
        """remains of another prompt in the sequence are removed"""
        _, output = self.stored()
        session = self.session()
        cache = self.cache(session)
        session.decode([5] * 700, 0)
        restored = cache.restore(PROMPT)
        self.assertEqual((restored, generate(session, restored)), (WHOLE * BLOCK, output))
        # also without a replacement
        unknown = PROMPT[::-1]
        self.assertEqual(cache.restore(unknown), 0)
        generate(session, 0, unknown)

    def test_full_context(self) -> None:
        """a full context takes the blocks that fit, and none is counted as wrong"""
        self.stored()
        session = self.session(n_ctx=512, n_seq_max=3)
        cache = self.cache(session)
        session.library.decode(session.context, PROMPT[:200], 0, 1)
        self.assertEqual(cache.restore(PROMPT), (512 - 200) // BLOCK * BLOCK)
        self.assertEqual(cache.report.counts()["wrong_blocks"], 0)

    def test_small_buffer(self) -> None:
        """a round-robin buffer of a few blocks restores and saves the same"""
        session = self.session()
        output = generate(session, 0)
        with mock.patch("kvblk_llamacpp.cache.BATCH_MOST", 2):
            cache = self.cache(session)
            self.assertGreaterEqual(cache.save(PROMPT + output), WHOLE)
            self.assertEqual(self.again()[1:], (WHOLE * BLOCK, output))
            for lose in range(1, WHOLE + 1) if FAKE else ():
                os.environ["KVBLK_FAKE_LOSE"] = str(lose)
                _, restored, said = self.again()
                self.assertLess(restored, WHOLE * BLOCK)
                self.assertEqual(said, output)

    def test_quantized(self) -> None:
        """quantized K and V"""
        _, output = self.stored(**q8_0)
        self.assertEqual(self.again(**q8_0)[1:], (WHOLE * BLOCK, output))

    def test_transposed(self) -> None:
        """V transposed, as without flash attention"""
        cache, output = self.stored(flash_attn_type=0)
        self.assertIn("form=01000000", cache._layout.text())
        self.assertEqual(self.again(flash_attn_type=0)[1:], (WHOLE * BLOCK, output))
        # equal types, but another form
        self.assertEqual(self.again(flash_attn_type=1)[1], 0)

    def test_multiple(self) -> None:
        """a prompt of whole blocks leaves its last one to decode"""
        self.stored()
        cache = self.cache(self.session())
        self.assertEqual(cache.restore(PROMPT[:4 * BLOCK]), 3 * BLOCK)
        self.assertEqual(cache.restore(PROMPT[:BLOCK]), 0)
        self.assertEqual(cache.restore([]), 0)


@unittest.skipUnless(importlib.util.find_spec("llama_cpp"), "needs llama-cpp-python")
@unittest.skipUnless(VM, "what happens to the pool of selftests/runtimes")
class Events(Case):
    """Faults of the pool between lookup and load, and of a process that stores."""

    def restore(self, command: str, **options: Any) -> tuple[int, list[int]]:
        """Restore while ``command`` runs in the VM after the lookup; returns the number of restored tokens and the
        model's answer."""
        session = self.session()
        cache = self.cache(session, **options)

        def lookup(*args: Any, **options: Any) -> kvblk.Lookup:
            found = kvblk.Pool.lookup(cache._pool, *args, **options)
            self.assertEqual(found.leading, WHOLE)
            carried.guest(command)
            return found

        with mock.patch.object(cache._pool, "lookup", lookup):
            restored = cache.restore(PROMPT)
        return restored, generate(session, restored)

    def test_drives_fail(self) -> None:
        """gets from failed drives miss; the blocks are back with the drives"""
        _, output = self.stored()
        try:
            failed = self.restore(carried.FAIL)
        finally:
            carried.guest(carried.HEAL)
        self.assertEqual(failed, (0, output))
        before = carried.counters()["gets"]
        self.assertEqual(self.again()[1:], (WHOLE * BLOCK, output))
        self.assertEqual(carried.counters()["gets"] - before, WHOLE)

    def test_evicted(self) -> None:
        """a block evicted after its lease misses; leased blocks are not evicted"""
        _, output = self.stored()
        self.assertEqual(self.restore(carried.EVICT, lease_s=1), (0, output))
        self.stored()
        self.assertEqual(self.restore(carried.EVICT, lease_s=600), (WHOLE * BLOCK, output))

    def test_killed(self) -> None:
        """a process that is killed while it stores leaves complete blocks"""
        program = ("import os, signal, sys, test_llamacpp as t\n"
                   "from unittest import mock\n"
                   "session = t.Session(sys.argv[1], n_ctx=2048); output = t.generate(session, 0)\n"
                   "with mock.patch('kvblk_llamacpp.cache.BATCH_MOST', 2):\n"
                   "    cache = t.PrefixCache.of(session, pool=t.POOL, salt=sys.argv[2], timeout_s=30)\n"
                   "put, calls = cache._queue.put, []\n"
                   "def killed(*args, **options):\n"
                   "    job = put(*args, **options); calls.append(job)\n"
                   "    if len(calls) == 3: os.kill(os.getpid(), signal.SIGKILL)\n"
                   "    return job\n"
                   "cache._queue.put = killed\n"
                   "cache.save(t.PROMPT + output)\n")
        failures = carried.counters()["checksum_failures"]
        done = subprocess.run([sys.executable, "-c", program, model, self.salt], check=False, timeout=120,
                              cwd=pathlib.Path(__file__).parent)
        self.assertEqual(done.returncode, -signal.SIGKILL)
        _, restored, output = self.again()
        print(f"# killed while it stores {WHOLE} blocks: {restored // BLOCK} are there")
        self.assertLess(restored, WHOLE * BLOCK)
        self.assertEqual(generate(self.session(), 0), output)
        self.stored()
        self.assertEqual(self.again()[1:], (WHOLE * BLOCK, output))
        self.assertEqual(carried.counters()["checksum_failures"], failures)


class Class(Case):
    """llama-cpp-python's class Llama."""

    def llama(self, **arguments: Any) -> Any:
        from kvblk_llamacpp.llama import Llama
        options = {"pool": POOL, "salt": self.salt, "timeout_s": 30}
        llama = Llama(model, n_ctx=2048, verbose=False, kvblk=options, **arguments)
        self.addCleanup(llama.close)
        return llama

    def plain(self, prompt: str) -> str:
        import llama_cpp
        llama = llama_cpp.Llama(model, n_ctx=2048, verbose=False)
        self.addCleanup(llama.close)
        return self.say(llama, prompt)

    @staticmethod
    def say(llama: Any, prompt: str) -> str:
        text: str = llama(prompt, max_tokens=24, temperature=0)["choices"][0]["text"]
        return text

    def test_completion(self) -> None:
        """a new Llama's completion equals that of one without kvblk, and its prompt is restored"""
        expected = self.plain(TEXT)
        first = self.llama()
        self.assertEqual(self.say(first, TEXT), expected)
        self.assertEqual(first.prefixes.report.counts()["load_blocks"], 0)
        second = self.llama()
        real, computed = second.eval, []

        def count(tokens: list[int]) -> None:
            computed.append(len(tokens))
            real(tokens)

        with mock.patch.object(second, "eval", count):
            self.assertEqual(self.say(second, TEXT), expected)
        tokens = second.tokenize(TEXT.encode())
        restored = (len(tokens) - 1) // BLOCK * BLOCK
        self.assertEqual((second.prefixes.report.counts()["restored_tokens"], computed[0]), (restored, len(tokens) - restored))

    def test_turns(self) -> None:
        """turns of a conversation, the second one in another process; repeated and other prompts"""
        longer, another = f"{TEXT} And then? {TEXT[:300]}", f"Once upon a time. {TEXT}"
        expected = {prompt: self.plain(prompt) for prompt in (TEXT, longer, another)}
        llama = self.llama()
        for prompt in TEXT, TEXT, longer, another, TEXT, longer:
            self.assertEqual(self.say(llama, prompt), expected[prompt])
        # blocks that the context has are not requested
        wanted = llama.prefixes.report.counts()["lookup_blocks"]
        self.say(llama, longer)
        self.say(llama, f"{longer}?")
        self.assertLess(llama.prefixes.report.counts()["lookup_blocks"], wanted + 3)
        self.assertEqual(self.say(self.llama(), longer), expected[longer])

    def test_stream(self) -> None:
        """an abandoned stream has stored the computed blocks"""
        expected = self.plain(TEXT)
        llama = self.llama()
        stream = llama(TEXT, max_tokens=24, temperature=0, stream=True)
        next(stream)
        stream.close()
        self.assertGreater(llama.prefixes.report.counts()["store_blocks"], 0)
        second = self.llama()
        self.assertEqual(self.say(second, TEXT), expected)
        self.assertGreater(second.prefixes.report.counts()["load_blocks"], 0)

    def test_lost(self) -> None:
        """lost gets only cost time"""
        self.env(LOSE=3)
        expected = self.plain(TEXT)
        for restored in 0, 2, 2:
            llama = self.llama()
            self.assertEqual(self.say(llama, TEXT), expected)
            self.assertLessEqual(llama.prefixes.report.counts()["load_blocks"], restored)

    def test_logits(self) -> None:
        """with logits_all nothing is restored"""
        self.say(self.llama(), TEXT)
        llama = self.llama(logits_all=True)
        answer = llama(TEXT, max_tokens=2, temperature=0, echo=True, logprobs=1)
        self.assertEqual(llama.prefixes.report.counts()["lookup_blocks"], 0)
        self.assertGreater(len(answer["choices"][0]["logprobs"]["token_logprobs"]), 900)

    def test_refused(self) -> None:
        """an adapter without a salt, and a wrong option"""
        from kvblk_llamacpp.llama import Llama
        with self.assertRaisesRegex(ValueError, "salt must name it"):
            Llama(model, kvblk={"pool": POOL}, lora_path="adapter.gguf")
        with self.assertRaisesRegex(ValueError, "unknown option"):
            Llama(model, kvblk={"pool": POOL, "x": 1}, verbose=False)


class Saving(Case):
    """Which blocks are saved, and how."""

    def test_chain(self) -> None:
        """a prompt is one chain: each batch names the block before it"""
        session = self.session()
        generate(session, 0)
        with mock.patch("kvblk_llamacpp.cache.BATCH_MOST", 4):
            cache = self.cache(session)
        keys = cache.keys(PROMPT)
        with mock.patch.object(cache._queue, "put", side_effect=cache._queue.put) as put:
            cache.save(PROMPT)
        self.assertEqual([call.args[0] for call in put.call_args_list], [keys[:4], keys[4:8], keys[8:]])
        self.assertEqual([call.kwargs["parent"] for call in put.call_args_list], [b"", keys[3], keys[7]])
        self.assertEqual([call.kwargs["continues"] for call in put.call_args_list], [True, True, False])
        self.assertTrue(all(call.kwargs["chain"] for call in put.call_args_list))

    def test_missing_only(self) -> None:
        """only what the pool lacks is put"""
        session = self.session()
        generate(session, 0)
        cache = self.cache(session)
        keys = cache.keys(PROMPT)
        cache.save(PROMPT)
        for i in 2, 3, 6:
            self.pool.delete(keys[i])
        with mock.patch.object(cache._queue, "put", side_effect=cache._queue.put) as put:
            self.assertEqual(cache.save(PROMPT), 3)
        self.assertEqual([(call.args[0], call.kwargs["parent"]) for call in put.call_args_list],
                         [(keys[2:4], keys[1]), ([keys[6]], keys[5])])

    def test_from(self) -> None:
        """blocks before n_from are not put"""
        session = self.session()
        generate(session, 0)
        cache = self.cache(session)
        self.assertEqual(cache.save(PROMPT, 3 * BLOCK), len(PROMPT) // BLOCK - 3)
        self.assertNotIn(cache.keys(PROMPT)[2], self.pool)

    def test_declined(self) -> None:
        """a declined batch is no error, and ends the saving"""
        self.env(DECLINE=1)
        session = self.session()
        output = generate(session, 0)
        with mock.patch("kvblk_llamacpp.cache.BATCH_MOST", 1):
            cache = self.cache(session)
        self.assertEqual(cache.save(PROMPT), 0)
        # two batches were in flight
        self.assertEqual((cache.report.counts()["store_declined"], cache.report.errors()), (2, 0))
        self.assertEqual(generate(session, cache.restore(PROMPT, have=len(PROMPT))), output)

    def test_failed(self) -> None:
        """puts that fail are counted, and raise nothing"""
        session = self.session()
        generate(session, 0)
        cache = self.cache(session)
        self.env(FAIL=3)
        stored = cache.save(PROMPT)
        self.assertEqual(stored + cache.report.errors(), len(PROMPT) // BLOCK)
        self.assertGreater(cache.report.errors(), 0)

    def test_not_decoded(self) -> None:
        """blocks that the context does not have are not stored"""
        session = self.session()
        session.decode(PROMPT[:200], 0)
        self.assertEqual(self.cache(session).save(PROMPT), 3)

    def test_shifted(self) -> None:
        """a sequence that lost its beginning, or a part, stores only complete blocks"""
        session = self.session()
        with mock.patch("kvblk_llamacpp.cache.BATCH_MOST", 1):
            cache = self.cache(session)
        memory = session.c.llama_get_memory(session.context)
        session.decode(PROMPT, 0)
        session.c.llama_memory_seq_rm(memory, 0, 100, 110)
        self.assertEqual(cache.save(PROMPT), 1)
        session.c.llama_memory_seq_rm(memory, 0, 0, 1)
        self.assertEqual(cache.save(PROMPT), 0)

    def test_options_of_puts(self) -> None:
        """priority, time to live and deadline are those of the options"""
        session = self.session()
        generate(session, 0)
        cache = self.cache(session, priority=3, ttl_s=60, timeout_s=1.5)
        with mock.patch.object(cache._queue, "put", side_effect=cache._queue.put) as put:
            cache.save(PROMPT)
        options = put.call_args.kwargs
        self.assertEqual((options["priority"], options["ttl"], options["timeout"]), (3, 60, 1.5))


class Keys(Case):
    """No two origins of blocks share a key."""

    def test_all_differ(self) -> None:
        """different models, types, forms, RoPE, blocks, salts and builds have different keys"""
        plain = {"pool": POOL, "salt_file": ""}
        salted = {"salt_file": salt_file(self)}
        origins: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
            (model, {}, {}), (other, {}, {}), (model, {"type_k": 0, "type_v": 0}, {}), (model, q8_0, {}),
            (model, {"type_k": 8}, {}), (model, {"type_v": 8}, {}), (model, {"flash_attn_type": 0}, {}),
            (model, {"rope_freq_base": 5e5}, {}), (model, {"rope_freq_scale": 0.5}, {}),
            (model, {"yarn_orig_ctx": 999}, {}),
            (model, {}, {"salt": "adapter"}), (model, {}, {"block_tokens": 32}),
            (model, {}, salted), (model, {}, {**salted, "salt": "adapter"}),
        ]
        seen = {}
        for path, params, options in origins:
            session = self.session(path, **params)
            with PrefixCache.of(session, **{**plain, **options}) as cache:
                seen[cache.space.prefix] = path, params, options
        session = self.session()
        with mock.patch.object(session.library, "build", "another"), PrefixCache.of(session, **plain) as cache:
            seen[cache.space.prefix] = "build"
        with mock.patch.dict(os.environ, LLAMA_ATTN_ROT_DISABLE="1"), PrefixCache.of(session, **plain) as cache:
            seen[cache.space.prefix] = "rotation"
        self.assertEqual(len(seen), len(origins) + 2, seen)

    def test_same(self) -> None:
        """settings that do not change K and V do not change keys"""
        prefixes = set()
        for params in {}, {"n_ctx": 1024}, {"n_batch": 64}, {"n_seq_max": 5}, {"threads": 2}:
            with PrefixCache.of(self.session(**params), pool=POOL) as cache:
                prefixes.add(cache.space.prefix)
        copy = here / "copy.gguf"
        copy.write_bytes(pathlib.Path(model).read_bytes())
        with PrefixCache.of(self.session(str(copy)), pool=POOL) as cache:
            prefixes.add(cache.space.prefix)
        self.assertEqual(len(prefixes), 1)

    def test_long_rope(self) -> None:
        """the length of the context is part of the key if RoPE depends on it"""
        about = Model(model)
        about.long_rope = True
        prefixes = set()
        for n_ctx in 1024, 2048:
            session = self.session(n_ctx=n_ctx)
            with PrefixCache(session.library, session.context, session.params, about, pool=POOL) as cache:
                prefixes.add(cache.space.prefix)
        self.assertEqual(len(prefixes), 2)

    def test_digest(self) -> None:
        """the digest covers each tensor, the tokenizer and the length"""
        data = bytearray(pathlib.Path(model).read_bytes())
        copy = here / "changed.gguf"

        def digest(at: int, whole: bool = False) -> str:
            data[at] ^= 1
            copy.write_bytes(data)
            data[at] ^= 1
            return model_digest(copy, whole)

        same = model_digest(model)
        with open(model, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            starts = _Header(mapped).starts
        self.assertGreater(len(starts), 30)
        places = [data.index(b"<0x41>"), *starts, *(start - 1 for start in starts[1:]), len(data) - 1]
        self.assertEqual(len({same, *map(digest, places)}), len({*places}) + 1)
        # only the whole digest covers the middle of a tensor
        middle = len(data) - 256 * 512 * 4 - 256 * 512 * 2
        self.assertNotEqual(model_digest(model, True), digest(middle, True))
        self.assertNotEqual(model_digest(model, True), same)

    def test_not_gguf(self) -> None:
        """a file that is not a model is rejected"""
        for content in b"", b"GGML", b"GGUF", b"GGUF" + b"\xff" * 64, pathlib.Path(model).read_bytes()[:3000]:
            path = here / "broken.gguf"
            path.write_bytes(content)
            with self.subTest(content=content[:8]), self.assertRaisesRegex(ValueError, "not a GGUF file"):
                model_digest(path)

    def test_split(self) -> None:
        """all files of a split model are part of the digest"""
        def part(number: int, seed: int) -> pathlib.Path:
            path = here / f"split-{number:05}-of-00002.gguf"
            name = b"split.count"
            head = struct.pack("<4sIQQQ", b"GGUF", 3, 0, 1, len(name)) + name + struct.pack("<IH", 2, 2)
            path.write_bytes(head + bytes([seed] * 100))
            return path

        first = part(1, 0)
        part(2, 0)
        same = model_digest(first)
        part(2, 1)
        self.assertNotEqual(model_digest(first, True), same)
        alone = here / "alone.gguf"
        alone.write_bytes(first.read_bytes())
        with self.assertRaisesRegex(ValueError, "one of 2 files"):
            model_digest(alone)


class Starting(Case):
    """Errors when the cache is created."""

    def test_options(self) -> None:
        """unknown options and bad values"""
        session = self.session()
        for options, sentence in (
                ({"poool": "x"}, "unknown option 'poool'"), ({"priority": 4}, "priority is 4, should be 0 to 3"),
                ({"timeout_s": 0}, "timeout_s"), ({"block_tokens": 1.5}, "block_tokens"),
                ({"lease_s": True}, "lease_s"), ({"salt": 3}, "salt"), ({"threads": 3}, "threads"),
                ({"hard_deadline": 1}, "hard_deadline")):
            with self.subTest(options=options), self.assertRaisesRegex(ValueError, sentence):
                PrefixCache.of(session, **{"pool": POOL, **options})
        self.assertEqual(Options(), Options.read({}, "the test"))

    def test_salt(self) -> None:
        """a salt that others may read"""
        with self.assertRaisesRegex(RuntimeError, "others may read it"):
            PrefixCache.of(self.session(), pool=POOL, salt_file=salt_file(self, 0o644))

    def test_no_pool(self) -> None:
        """a missing pool"""
        with self.assertRaisesRegex(RuntimeError, "'nopool' can't be opened: no such pool"):
            PrefixCache.of(self.session(), pool="nopool")

    def test_contexts(self) -> None:
        """contexts with one sequence, or a buffer for each"""
        for params, sentence in (
                ({"n_seq_max": 1}, "n_seq_max"), ({"n_seq_max": 4, "kv_unified": False}, "kv_unified"),
                ({"attention_type": 1}, "depends on more")):
            with self.subTest(params=params), self.assertRaisesRegex((ValueError, state.Unsupported), sentence):
                PrefixCache.of(self.session(**params), pool=POOL)

    def test_block_too_large(self) -> None:
        """blocks longer than the pool accepts"""
        if self.pool.get_info().value_max > 8 << 20:
            self.skipTest("the pool takes larger ones")
        with self.assertRaisesRegex(ValueError, "lower block_tokens"):
            PrefixCache.of(self.session(n_ctx=8192), pool=POOL, block_tokens=4096)

    def test_parameters(self) -> None:
        """a session rejects parameters that llama.cpp does not have"""
        with self.assertRaisesRegex(ValueError, "no parameter 'n_ctxx'"):
            Session(model, n_ctxx=1)

    def test_package(self) -> None:
        """an unknown package, and one that is not installed"""
        with self.assertRaisesRegex(ValueError, "package is one of"):
            Library("llama")

    def test_closed(self) -> None:
        """a closed cache restores and saves nothing"""
        cache, _ = self.stored()
        cache.close()
        cache.close()
        self.assertEqual((cache.restore(PROMPT), cache.save(PROMPT)), (0, 0))


class States(unittest.TestCase):
    """The layout of serialized sequences."""

    session: Session
    data: bytes
    layout: state.Layout

    @classmethod
    def setUpClass(cls) -> None:
        cls.session = Session(model, n_ctx=512)
        cls.session.decode(PROMPT[:BLOCK], 0)
        c, context = cls.session.c, cls.session.context
        size = c.llama_state_seq_get_size(context, 0)
        room = mmap.mmap(-1, size)
        import ctypes
        anchor = ctypes.c_char.from_buffer(room)
        assert c.llama_state_seq_get_data(context, ctypes.addressof(anchor), size, 0) == size
        cls.data = room[:size]
        cls.layout = state.Layout(memoryview(cls.data), BLOCK)

    @classmethod
    def tearDownClass(cls) -> None:
        cls.session.close()

    def test_size(self) -> None:
        """a layout learned from some cells gives the size of any number of cells"""
        c, context = self.session.c, self.session.context
        memory = c.llama_get_memory(context)
        for cells in 1, 2, 17:
            c.llama_memory_seq_cp(memory, 0, 1, 0, cells)
            self.assertEqual(self.layout.size(cells), c.llama_state_seq_get_size(context, 1))
            c.llama_memory_seq_rm(memory, 1, -1, -1)

    def test_structure(self) -> None:
        """a change of any structural byte is detected"""
        self.assertTrue(self.layout.holds(memoryview(self.data), 0, BLOCK))
        self.assertFalse(self.layout.holds(memoryview(self.data), 1, BLOCK))
        self.assertFalse(self.layout.holds(memoryview(self.data)[:-1], 0, BLOCK))
        cells = state.HEAD.size + BLOCK * self.layout.cell_meta
        form = range(cells, cells + len(self.layout.form))
        structure = [*range(0, 4), *range(8, 24), *range(cells - 12, cells - 4), *form]
        at = form.stop
        for tensor in self.layout.tensors:
            structure += range(at, at + len(tensor.header))
            at += len(tensor.header) + BLOCK * tensor.cell
        for at in structure:
            changed = bytearray(self.data)
            changed[at] ^= 1
            self.assertFalse(self.layout.holds(memoryview(changed), 0, BLOCK), at)

    def test_unknown(self) -> None:
        """a state with unknown bytes is rejected"""
        zeroes = b"\0" * len(self.data)
        for data in self.data[:-1], self.data + b"\0", self.data + self.data, self.data[:10], b"", zeroes:
            with self.assertRaises(state.Unsupported):
                state.Layout(memoryview(data), BLOCK)

    def test_extended_cells(self) -> None:
        """cells with an extension, as of models with 2D positions"""
        at = state.HEAD.size
        cells = b"".join(self.data[at + i * 12:at + i * 12 + 8] + os.urandom(12) + b"\0" * 4 for i in range(BLOCK))
        data = self.data[:at] + cells + self.data[at + 12 * BLOCK:]
        layout = state.Layout(memoryview(data), BLOCK)
        self.assertEqual(layout.cell_meta, 24)
        self.assertTrue(layout.holds(memoryview(data), 0, BLOCK))
        self.assertNotEqual(layout.text(), self.layout.text())


if __name__ == "__main__":
    sys.exit(tap.main("llamacpp"))
