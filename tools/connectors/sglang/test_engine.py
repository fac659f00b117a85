# SPDX-License-Identifier: MIT
"""SGLang's engine with the backend, end to end on a CPU: what it answers, what came from the pool, and when.

Each run is a process with an engine of its own, a minute or two and some GB: one at a time.
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import engine
import sglang
from pools import FAKE, POOL

HERE = Path(__file__).resolve().parent
PROMPT = [3 + i * 7 % 250 for i in range(600)]
OTHER = [3 + i * 11 % 250 for i in range(600)]
PAGES = 9  # whole pages of 64 tokens in each
# the models that are not used here: the import of all of them takes a minute
UNUSED = [path.stem for path in Path(sglang.__path__[0], "srt", "models").glob("*.py") if path.stem != "llama"]


class Engine(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory(prefix="kvblk-sglang-")
        cls.addClassCleanup(temporary.cleanup)
        cls.dir = Path(temporary.name)
        cls.python("models", str(cls.dir / "tiny"), str(cls.dir / "other"))
        # who stored what others look for: an engine that is asked twice, with nothing left in its memory between
        cls.first, cls.events = cls.run_engine([["ask", PROMPT], ["stored", PAGES], ["flush"], ["ask", PROMPT]])

    @classmethod
    def python(cls, *arguments, **environment):
        """Run engine.py; what it says on its standard output."""
        path = [str(HERE / "cpu"), str(HERE), os.environ.get("PYTHONPATH", "")]
        done = subprocess.run(
            [sys.executable, "-W", "ignore", str(HERE / "engine.py"), *arguments], cwd=cls.dir, timeout=900, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONPATH": ":".join(filter(None, path)), "SGLANG_USE_CPU_ENGINE": "1",
                 "SGLANG_DISABLED_MODEL_ARCHS": ",".join(UNUSED),
                 "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "KVBLK_FAKE_STORE": str(cls.dir / "store"),
                 **environment})
        if done.returncode:
            raise AssertionError(f"engine.py ended with {done.returncode}:\n{done.stdout[-6000:]}")
        return done.stdout

    @classmethod
    def run_engine(cls, steps, model="tiny", extra=None, arguments=None, environment=None):
        """Its answers, one a step, and the backend's events."""
        job, events = cls.dir / "job", cls.dir / "events"
        events.unlink(missing_ok=True)
        with_storage = {} if extra is False else dict(
            hicache_storage_backend="dynamic",
            hicache_storage_backend_extra_config=engine.storage({"pool": POOL, **(extra or {})}))
        job.write_text(json.dumps({"arguments": {**engine.arguments(model_path=str(cls.dir / model), **with_storage),
                                                 **(arguments or {})}, "steps": steps}))
        said = cls.python("run", str(job), KVBLK_SGLANG_EVENTS=str(events), **(environment or {}))
        (cls.dir / "said").write_text(said)
        answers = [json.loads(line) for line in said.splitlines() if line.startswith('{"step"')]
        told = [json.loads(line) for line in events.read_text().splitlines()] if events.exists() else []
        for answer in answers:
            if answer["step"] == "ask":
                print(f"# {model} {(arguments or {}).get('hicache_mem_layout', 'page_first_direct')}: "
                      f"{answer['cached']} of {len(PROMPT)} tokens cached, first token after "
                      f"{answer['first'] * 1000:.0f} ms", flush=True)
        asked = [answer for answer in answers[1:]]
        if len(asked) != len(steps):
            raise AssertionError(f"{len(asked)} answers to {len(steps)} steps:\n{said[-6000:]}")
        return asked, told

    def loaded(self, events):
        return sum(sum(event["result"]) for event in events if event["call"] == "batch_get_v1")

    def test_flushed(self):
        ask, stored, flush, again = self.first
        self.assertEqual((ask["cached"], stored["pages"], flush["success"]), (0, PAGES, True))
        self.assertEqual(again["output"], ask["output"])
        self.assertEqual(again["cached"], PAGES * 64)
        self.assertEqual(self.loaded(self.events), PAGES)
        self.assertEqual(self.events[-1]["leases"], 0)

    def test_another_process(self):
        (ask,), events = self.run_engine([["ask", PROMPT]])
        self.assertEqual(ask["output"], self.first[0]["output"])
        self.assertEqual(ask["cached"], PAGES * 64)
        self.assertEqual(self.loaded(events), PAGES)

    def test_another_model_and_lost_loads(self):
        """Another model finds nothing of the first one's; then a load in four is lost, and nothing else changes."""
        steps = [["ask", PROMPT], ["stored", PAGES], ["flush"], ["ask", PROMPT], ["flush"], ["ask", PROMPT]]
        (ask, _, _, again, _, third), events = self.run_engine(
            steps, model="other", environment={"KVBLK_FAKE_LOSE": "4"} if FAKE else {})
        self.assertEqual(ask["cached"], 0)
        self.assertEqual(events[0], {**events[0], "call": "batch_exists", "result": 0})
        self.assertNotEqual(ask["output"], self.first[0]["output"])
        self.assertEqual([again["output"], third["output"]], [ask["output"]] * 2)
        if FAKE:
            self.assertEqual(events[-1]["missed_pages"] > 0, True)
            self.assertLess(again["cached"], PAGES * 64)
            self.assertGreater(again["cached"], 0)

    def test_another_dtype_attached_late(self):
        """Storage that is attached while the engine runs, with mistakes; the other dtype's pages are not found."""
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
        self.assertEqual((ask["cached"], detached["cached"]), (0, 0))
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
        said = (self.dir / "said").read_text()
        self.assertIn(f"in {segments} segments, layout {arguments['hicache_mem_layout']}", said)
        self.assertEqual(ask["cached"], 0, "the pages of another layout")
        self.assertEqual(again["cached"], PAGES * 64)
        self.assertEqual([ask["output"], again["output"]], [self.first[0]["output"]] * 2)
        self.assertEqual(self.loaded(events), PAGES)

    def test_injector(self):
        """SGLang's own: calls fail and take time; answers stay what they are."""
        steps = [["ask", PROMPT]] + [["flush"], ["ask", PROMPT], ["flush"], ["ask", OTHER]] * 6
        answers, events = self.run_engine(steps, environment={"SGLANG_TEST_HICACHE_BACKEND_RANDOM_FAILURE": "0.3",
                                                              "SGLANG_TEST_HICACHE_BACKEND_RANDOM_DELAY": "0.1"})
        self.assertIn("failure_prob=0.3", (self.dir / "said").read_text())
        asks = [answer for answer in answers if answer["step"] == "ask"]
        self.assertEqual({str(a["output"]) for a in asks[:1] + asks[1::2]}, {str(self.first[0]["output"])})
        self.assertEqual(len({str(a["output"]) for a in asks[2::2]}), 1)
        self.assertGreater(self.loaded(events), 0)


if __name__ == "__main__":
    unittest.main()
