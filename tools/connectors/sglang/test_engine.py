# SPDX-License-Identifier: MIT
"""SGLang's engine with the backend, end to end on a CPU: its answers, and the pages that came from the pool.

Each run is a process with its own engine, which takes a minute or two and 3 GB: one at a time, except in TwoEngines.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import engine
import sglang
from pools import FAKE, POOL

VM = "KVBLK_CARRY" in os.environ
if VM:
    import carried

in_vm = unittest.skipUnless(VM, "what happens to the pool of selftests/runtimes")
HERE = Path(__file__).resolve().parent


def prompt(step, tokens=600):
    """Return the tokens of a prompt with a unique beginning."""
    return [3 + i * step % 250 for i in range(tokens)]


PROMPT, OTHER = prompt(7), prompt(11)
PAGES = 9  # complete pages of 64 tokens in each prompt
WARM = prompt(13, 40)  # less than a page: warms up a process, whose first request takes longer
# unused models: importing all of them takes a minute
UNUSED = [path.stem for path in Path(sglang.__path__[0], "srt", "models").glob("*.py") if path.stem != "llama"]


def on_a_cpu(dir, events):
    """Return the environment of a process with an engine; watched.py writes to ``events``."""
    path = [str(HERE / "cpu"), str(HERE), os.environ.get("PYTHONPATH", "")]
    return {"PYTHONPATH": ":".join(filter(None, path)), "SGLANG_USE_CPU_ENGINE": "1",
            "SGLANG_DISABLED_MODEL_ARCHS": ",".join(UNUSED), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1",
            "KVBLK_FAKE_STORE": str(dir / "store"), "KVBLK_SGLANG_EVENTS": str(events),
            "KVBLK_SGLANG_BEFORE_LOAD": f"{events}.before_load"}


def setUpModule():
    """Create two models, and store the pages of an engine that was asked twice."""
    temporary = tempfile.TemporaryDirectory(prefix="kvblk-sglang-")
    unittest.addModuleCleanup(temporary.cleanup)
    Run.dir = Path(temporary.name)
    Run("models", str(Run.dir / "tiny"), str(Run.dir / "other")).end()
    Run.first = Run.of([["ask", WARM], ["ask", PROMPT], ["stored", PAGES], ["flush"], ["ask", PROMPT]])
    Run.first.finish()
    # drop the warm-up's answer
    del Run.first.answers[0]


class Run:
    """A process of engine.py: ``answers`` has one per step, ``events`` the output of watched.py, ``said`` the whole
    output."""

    dir = first = None
    count = 0

    def __init__(self, *arguments, steps=(), **environment):
        Run.count += 1
        self.what, self.steps, self.answers, self.events = arguments, steps, [], []
        self.said_in = self.dir / f"said{Run.count}"
        self.events_in = self.dir / f"events{Run.count}"
        with self.said_in.open("w") as said:
            self.process = subprocess.Popen(
                [sys.executable, "-W", "ignore", str(HERE / "engine.py"), *arguments], cwd=self.dir, stdout=said,
                stderr=subprocess.STDOUT, start_new_session=True,
                env={**os.environ, **on_a_cpu(self.dir, self.events_in), **environment})

    @classmethod
    def of(cls, steps, model="tiny", extra=None, arguments=None, environment=None):
        """Start an engine with the backend, or without one if ``extra`` is False."""
        job = cls.dir / f"job{cls.count}"
        with_storage = {} if extra is False else dict(
            hicache_storage_backend="dynamic",
            hicache_storage_backend_extra_config=engine.storage({"pool": POOL, **(extra or {})}))
        job.write_text(json.dumps({"arguments": {**engine.arguments(model_path=str(cls.dir / model), **with_storage),
                                                 **(arguments or {})}, "steps": steps}))
        run = cls("run", str(job), steps=steps, **(environment or {}))
        run.title = f"{model} {(arguments or {}).get('hicache_mem_layout', 'page_first_direct')}"
        return run

    def end(self, timeout=900):
        """Wait for the process; a killed engine may have any exit code."""
        try:
            return self.process.wait(timeout)
        finally:
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            self.said = self.said_in.read_text()

    def read(self):
        said = [json.loads(line) for line in self.said.splitlines() if line.startswith('{"step"')]
        self.answers = said[1:]
        if self.events_in.exists():
            self.events = [json.loads(line) for line in self.events_in.read_text().splitlines()]
        for (_, *asked), answer in zip(self.steps, self.answers):
            if answer["step"] == "ask" and asked[0] is not WARM:
                print(f"# {self.title}: {answer['cached']} of {len(asked[0])} tokens cached, first token after "
                      f"{answer['first'] * 1000:.0f} ms", flush=True)

    def finish(self):
        """Wait for the process; returns its answers, one per step, and the backend's events."""
        code = self.end()
        self.read()
        if code or len(self.answers) != len(self.steps):
            raise AssertionError(f"exit code {code}, {len(self.answers)} answers to {len(self.steps)} steps:\n"
                                 f"{self.said[-6000:]}")
        return self.answers, self.events


def loaded(events):
    return sum(sum(event["result"]) for event in events if event["call"] == "batch_get_v1")


class AnotherProcess(unittest.TestCase):
    """A second engine, which loads the first one's pages from the pool, under faults of the pool."""

    @classmethod
    def setUpClass(cls):
        steps = [["ask", WARM], ["ask", PROMPT]]
        if VM:
            short = engine.storage({"pool": POOL, "lease_s": 1})
            steps += [["flush"], ["before_load", carried.EVICT], ["ask", PROMPT],
                      ["flush"], ["before_load", carried.FAIL], ["ask", PROMPT], ["guest", carried.HEAL],
                      ["flush"], ["ask", PROMPT],
                      ["detach"], ["attach", short],
                      # a new prompt, because pages that were loaded stay in the pool
                      ["ask", OTHER], ["stored", PAGES],
                      ["flush"], ["before_load", carried.EVICT], ["ask", OTHER], ["stored", PAGES],
                      ["flush"], ["ask", OTHER]]
        # an eviction takes half a minute, or several on a busy machine
        cls.answers, cls.events = Run.of(steps, extra={"lease_s": 1800}).finish()
        cls.asks = [answer for answer in cls.answers if answer["step"] == "ask"][1:]

    def answered(self, number, computed=None):
        """Check that the tokens equal computed ones; returns the cached tokens, and the gets of the pool."""
        ask, computed = self.asks[number], computed or Run.first.answers[0]
        self.assertEqual(ask["output"], computed["output"])
        return ask["cached"], ask.get("gets")

    def test_1_found(self):
        self.assertEqual(self.answered(0), (PAGES * 64, PAGES if VM else None))
        loads = [event for event in self.events if event["call"] == "batch_get_v1"]
        self.assertEqual(sum(loads[0]["result"]), PAGES)
        print(f"# first token: {Run.first.answers[0]['first'] * 1000:.0f} ms where all was computed, "
              f"{self.asks[0]['first'] * 1000:.0f} ms in a new process that has it from the pool", flush=True)

    @in_vm
    def test_2_evicted_between_lookup_and_load(self):
        """The lease keeps the pages found."""
        self.assertEqual(self.answered(1), (PAGES * 64, PAGES))

    @in_vm
    def test_3_drives_that_fail_between_lookup_and_load(self):
        self.assertEqual(self.answered(2), (0, 0))

    @in_vm
    def test_4_drives_that_are_back(self):
        self.assertEqual(self.answered(3), (PAGES * 64, PAGES))

    @in_vm
    def test_5_evicted_after_its_lease(self):
        self.assertEqual([a["success"] for a in self.answers if a["step"] in ("attach", "detach")], [True, True])
        self.assertEqual([a["pages"] for a in self.answers if a["step"] == "stored"], [PAGES, PAGES])
        self.assertEqual([self.answered(i, self.asks[4]) for i in (4, 5, 6)], [(0, 0), (0, 0), (PAGES * 64, PAGES)])


@in_vm
class TwoEngines(unittest.TestCase):
    """Two engines on one pool at the same time; one is killed while it stores."""

    def test_both(self):
        third, long = prompt(17), prompt(19, 1600)
        here = {name: str(Run.dir / name) for name in ("a", "b", "a asked", "b asked", "a ended")}
        failures = carried.counters()["checksum_failures"]
        killed = Run.dir / f"events{Run.count + 1}.killed"
        # one engine may find the other's pages, and then stores nothing
        both = [["ask", third], ["stored", PAGES, 5]]
        a = Run.of([["tell", here["a"]], ["wait", here["b"]], *both, ["tell", here["a asked"]],
                    ["wait", here["b asked"]], ["flush"], ["ask", third], ["ask", long], ["wait", str(killed)]],
                   environment={"KVBLK_SGLANG_KILL": "20"})
        b = Run.of([["tell", here["b"]], ["wait", here["a"]], *both, ["tell", here["b asked"]],
                    ["wait", here["a asked"]], ["flush"], ["ask", third],
                    ["wait", here["a ended"]], ["flush"], ["ask", long], ["stored", 12, 5], ["flush"],
                    ["ask", long], ["detach"], ["flush"], ["ask", long]])
        try:
            a.end()
        finally:
            Path(here["a ended"]).touch()
            b.end()
        a.read()
        b.finish()
        asked = [answer for answer in a.answers if answer["step"] == "ask"]
        first, again, after_kill, later, computed = [answer for answer in b.answers if answer["step"] == "ask"]
        self.assertEqual([asked[0]["output"], asked[1]["output"], again["output"]], [first["output"]] * 3)
        self.assertEqual([asked[1]["cached"], again["cached"]], [PAGES * 64] * 2)
        self.assertTrue(killed.exists())
        self.assertEqual([event for event in a.events if event["call"] == "batch_set_v1" and event["keys"] >= 20], [])
        print(f"# killed in a store of 25 pages: the other engine finds {after_kill['cached'] // 64}", flush=True)
        # half of the pages had been stored
        self.assertGreaterEqual(after_kill["cached"], 12 * 64)
        self.assertLess(after_kill["cached"], 24 * 64)
        self.assertEqual((later["cached"], computed["cached"]), (24 * 64, 0))
        self.assertEqual([after_kill["output"], later["output"]], [computed["output"]] * 2)
        self.assertEqual(carried.counters()["checksum_failures"], failures)


class Engine(unittest.TestCase):
    def setUp(self):
        self.first, self.events = Run.first.answers, Run.first.events

    def run_engine(self, *arguments, **options):
        run = Run.of(*arguments, **options)
        answers = run.finish()
        self.said = run.said
        return answers

    def nothing_found(self, ask):
        """Check that the first request of an engine found no page, and that the pool delivered none."""
        self.assertEqual(ask["cached"], 0)
        self.assertIn(ask.get("gets", 0), (0,))

    def test_flushed(self):
        ask, stored, flush, again = self.first
        self.assertEqual((ask["cached"], stored["pages"], flush["success"]), (0, PAGES, True))
        self.assertEqual(again["output"], ask["output"])
        self.assertEqual(again["cached"], PAGES * 64)
        self.assertEqual(loaded(self.events), PAGES)
        self.assertEqual(self.events[-1]["leases"], 0)

    def test_another_model_and_lost_loads(self):
        """Another model finds nothing of the first one's; then every fourth load is lost, without other effects."""
        steps = [["ask", PROMPT], ["stored", PAGES], ["flush"], ["ask", PROMPT], ["flush"], ["ask", PROMPT]]
        (ask, _, _, again, _, third), events = self.run_engine(
            steps, model="other", environment={"KVBLK_FAKE_LOSE": "4"} if FAKE else {})
        self.nothing_found(ask)
        self.assertEqual(events[0], {**events[0], "call": "batch_exists", "result": 0})
        self.assertNotEqual(ask["output"], self.first[0]["output"])
        self.assertEqual([again["output"], third["output"]], [ask["output"]] * 2)
        if FAKE:
            self.assertEqual(events[-1]["missed_pages"] > 0, True)
            self.assertLess(again["cached"], PAGES * 64)
            self.assertGreater(again["cached"], 0)

    def test_another_dtype_attached_late(self):
        """Storage is attached while the engine runs, after failed attempts; another dtype's pages are not found."""
        good = engine.storage({"pool": POOL})
        steps = [["ask", OTHER], ["attach", engine.storage({"pool": "nobody"})],
                 ["attach", engine.storage({"pool": POOL, "lease": 1})], ["attach", good], ["ask", PROMPT],
                 ["stored", PAGES], ["detach"], ["flush"], ["ask", PROMPT], ["attach", good], ["flush"],
                 ["ask", PROMPT], ["clear"], ["flush"], ["ask", PROMPT]]
        answers, events = self.run_engine(steps, extra=False, arguments={"dtype": "float32"})
        refused = [answer for answer in answers if answer["step"] == "attach"]
        self.assertEqual([answer["success"] for answer in refused], [False, False, True, True])
        self.assertEqual([a["success"] for a in answers if a["step"] in ("detach", "flush", "clear")], [True] * 5)
        self.assertIn("can't be opened", refused[0]["message"])
        self.assertIn("unknown option", refused[1]["message"])
        ask, detached, attached, cleared = [answer for answer in answers if answer["step"] == "ask"][1:]
        self.nothing_found(ask)
        self.nothing_found(detached)
        self.assertEqual(attached["cached"], PAGES * 64)
        self.assertEqual(cleared["cached"], 0)
        self.assertEqual([answer["output"] for answer in (detached, attached, cleared)], [ask["output"]] * 3)
        self.assertEqual(events[0], {**events[0], "call": "batch_exists", "result": 0})

    def test_layers_first(self):
        self.layout({"hicache_mem_layout": "layer_first"}, 8)

    def test_pages_first(self):
        self.layout({"hicache_mem_layout": "page_first", "hicache_io_backend": "kernel"}, 2)

    def layout(self, arguments, segments):
        (ask, _, _, again), events = self.run_engine([["ask", PROMPT], ["stored", PAGES], ["flush"], ["ask", PROMPT]],
                                                     arguments=arguments)
        self.assertIn(f"in {segments} segments, layout {arguments['hicache_mem_layout']}", self.said)
        self.assertEqual(ask["cached"], 0, "the pages of another layout")
        self.assertEqual(again["cached"], PAGES * 64)
        self.assertEqual([ask["output"], again["output"]], [self.first[0]["output"]] * 2)
        self.assertEqual(loaded(events), PAGES)

    def test_injector(self):
        """SGLang's fault injector: calls fail and are delayed; answers are unchanged."""
        steps = [["ask", PROMPT]] + [["flush"], ["ask", PROMPT], ["flush"], ["ask", OTHER]] * 6
        answers, events = self.run_engine(steps, environment={"SGLANG_TEST_HICACHE_BACKEND_RANDOM_FAILURE": "0.3",
                                                              "SGLANG_TEST_HICACHE_BACKEND_RANDOM_DELAY": "0.1"})
        self.assertIn("failure_prob=0.3", self.said)
        asks = [answer for answer in answers if answer["step"] == "ask"]
        self.assertEqual({str(a["output"]) for a in asks[:1] + asks[1::2]}, {str(self.first[0]["output"])})
        self.assertEqual(len({str(a["output"]) for a in asks[2::2]}), 1)
        self.assertGreater(loaded(events), 0)


if __name__ == "__main__":
    unittest.main()
