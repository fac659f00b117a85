#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""vLLM's engine in each of the three ways: its tokens must equal those of an engine without kvblk.

KVBLK_POOL is the emulated pool, whose processes share blocks through a file, or the pool of selftests/runtimes, where
drives fail and blocks are evicted. Each engine is a process, on a GPU if vLLM finds one. KVBLK_TEST_MODELS names a
directory in which the two tiny models are kept.
"""

import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import uuid

import tap
from vllm.platforms import current_platform

POOL = os.environ.get("KVBLK_POOL", "fake")
FAKE = POOL == "fake"
if not FAKE:
    import carried

GPU = current_platform.is_cuda_alike()
#: GPU memory of each engine
DEVICE = {"gpu_memory_utilization": 0.05, "kv_cache_memory_bytes": 1 << 30} if GPU else {}
#: required by KvblkConnector, see check_recovery()
RUNNER = {"VLLM_USE_V2_MODEL_RUNNER": "0"}

HERE = pathlib.Path(__file__).resolve().parent
BLOCK = 32
TOKENS = 8
numbers = random.Random(5)
COMMON = [numbers.randrange(3, 500) for _ in range(300)]
#: prompts that share nine blocks
TAILS = [COMMON[:288] + [numbers.randrange(3, 500) for _ in range(100)] for _ in range(3)]
#: a prompt without shared blocks
OTHER = [numbers.randrange(3, 500) for _ in range(300)]
#: prompts of the reference engine without kvblk, in this order
PROMPTS = [COMMON, *TAILS, OTHER]
BLOCKS = len(COMMON) // BLOCK
#: longest wait for an answer, seconds
PATIENCE = 400

#: front end and engine are two processes, which share the emulated pool's blocks
PROCESSES = {"VLLM_ENABLE_V1_MULTIPROCESSING": "1"}
#: keeps stores in flight when the engine ends
SLOW = {"KVBLK_FAKE_DELAY_MS": "1000"}
#: a lease longer than an eviction, which takes half a minute or more, and a shorter one
LONG = {"lease_s": 600}
SHORT = {"lease_s": 10, "timeout_s": 5}

#: equal weights with a different RoPE: different bytes in the same layout
ROPE = {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}

WAYS = {
    "offloading": {"kv_connector": "KvblkOffloadingConnector", "kv_connector_module_path": "kvblk_vllm.offloading"},
    "tier": {"kv_connector": "OffloadingConnector"},
    "connector": {"kv_connector": "KvblkConnector", "kv_connector_module_path": "kvblk_vllm.connector"},
}


def transfer(way, **options):
    options = {"pool": POOL, **options}
    if way == "tier":
        spec = {"spec_name": "TieringOffloadingSpec"} if GPU else {"spec_name": "CpuTieringSpec",
                                                                    "spec_module_path": "cpu_tiering"}
        extra = {**spec, "cpu_bytes_to_use": 64 << 20, "self_describing_kv_events": True,
                 "secondary_tiers": [{"type": "KvblkTier", "module_path": "kvblk_vllm.tier", **options}]}
    else:
        if way == "connector":
            # the model has four layers: four values per block
            options.setdefault("layers", 1)
        extra = {"kvblk": options, "self_describing_kv_events": True}
    return {"kv_role": "kv_both", "kv_load_failure_policy": "recompute", "kv_connector_extra_config": extra,
            **WAYS[way]}


def tiny_model(path, seed):
    """Create a Llama of four layers with random weights, and a tokenizer."""
    if (path / "tokenizer.json").exists():
        return
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    torch.manual_seed(seed)
    config = LlamaConfig(vocab_size=512, hidden_size=256, intermediate_size=512, num_hidden_layers=4,
                         num_attention_heads=4, num_key_value_heads=2, head_dim=64, max_position_embeddings=4096,
                         bos_token_id=1, eos_token_id=2, tie_word_embeddings=False, initializer_range=0.2)
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(path)
    words = ["<unk>", "<s>", "</s>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    words += [f"<x{i}>" for i in range(len(words), 512)]
    tokenizer = Tokenizer(models.BPE(vocab={word: i for i, word in enumerate(words)}, merges=[], unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>",
                            unk_token="<unk>").save_pretrained(path)


class Engine:
    """An engine in a process, which runs one step after the other."""

    def __init__(self, place, name, begin, env):
        environ = {**os.environ, "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1",
                   "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "KVBLK_FAKE_STORE": f"{place}/{name}",
                   "KVBLK_FAKE_MERGE": "1", **(RUNNER if name == "connector" else {}), **env}
        environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")]))
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen([sys.executable, str(HERE / "engine_run.py")], env=environ, text=True, cwd=place,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log,
                                        start_new_session=True)
        self.ask(begin=begin)

    def ask(self, **what):
        """Send a request; :meth:`answer` waits for its result."""
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()

    def answer(self):
        """Wait for an answer; returns None if the process ended."""
        timer = threading.Timer(PATIENCE, self.kill)
        timer.start()
        try:
            for line in self.process.stdout:
                if line.startswith("RESULT "):
                    return json.loads(line[7:])
                self.log.write(line)
        finally:
            timer.cancel()
        self.process.wait()
        return None

    def said(self):
        self.log.seek(0)
        return self.log.read()[-6000:]

    def result(self):
        answer = self.answer()
        if answer is None:
            raise AssertionError(f"the engine ended with {self.process.returncode}:\n{self.said()}")
        return answer

    def step(self, prompts, **more):
        self.ask(prompts=prompts, **more)
        return self.result()

    def again(self, **begin):
        """Start another engine in this process."""
        self.ask(begin=begin)
        self.result()

    def __enter__(self):
        self.result()
        return self

    def end(self):
        self.process.stdin.close()
        if self.answer() is not None or self.process.returncode:
            raise AssertionError(f"the engine ended with {self.process.returncode}:\n{self.said()}")

    def kill(self):
        # the whole process group
        os.killpg(self.process.pid, signal.SIGKILL)

    def __exit__(self, kind, *_):
        if kind is None and self.process.poll() is None:
            self.end()
        else:
            if self.process.poll() is None:
                self.kill()
            self.process.wait()
        self.process.stdout.close()
        self.log.close()


def replay(endpoint):
    """Return the KV events since the engine started, as replayed for a subscriber that missed some."""
    import msgspec
    import zmq

    events = []
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.RCVTIMEO, 30000)
        socket.connect(endpoint)
        socket.send_multipart([b"", bytes(8)])
        while True:
            *_, number, batch = socket.recv_multipart()
            if number == b"\xff" * 8:
                return events
            events += msgspec.msgpack.decode(batch)[1]


class Engines(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.scratch.cleanup)
        models = pathlib.Path(os.environ.get("KVBLK_TEST_MODELS", cls.scratch.name))
        cls.models = [models / "tiny0", models / "tiny1"]
        for seed, path in enumerate(cls.models):
            tiny_model(path, seed)
        #: makes keys differ between runs
        cls.salt = uuid.uuid4().hex
        with cls.engine(None) as engine:
            cls.right = {tuple(prompt): engine.step([prompt], reset={})["outs"][0] for prompt in PROMPTS}

    @classmethod
    def begin(cls, way, model=0, llm=None, **options):
        if way == "tier":
            # required by the tier
            options["model"] = cls.models[model].name
        llm = {**DEVICE, **({"async_scheduling": False} if way == "connector" else {}), **(llm or {})}
        return {"model": str(cls.models[model]), "tokens": TOKENS, "llm": llm,
                "transfer": transfer(way, salt=cls.salt, **options) if way else None}

    @classmethod
    def engine(cls, way, env=None, **begin):
        return Engine(cls.scratch.name, way, cls.begin(way, **begin), env or {})

    def check(self, step, prompts):
        """Check that tokens are right, wherever the blocks came from; returns the adapter's counters."""
        for out, prompt in zip(step["outs"], prompts):
            right = self.right[tuple(prompt)]
            self.assertEqual(out["tokens"], right["tokens"])
            self.assertEqual(out["finish"], "length")
            for got, wanted in zip(out["logprobs"], right["logprobs"]):
                # a loaded prefix, or another number of threads, changes rounding: logits are bfloat16, with steps of
                # 1/16 from 8 on
                self.assertAlmostEqual(got, wanted, delta=0.2)
        return step["counted"]

    def pool(self):
        """Return the pool's counters; the emulated pool has none."""
        return {} if FAKE else carried.counters()

    def check_pool(self, before, gets=None, puts=None):
        """Check the pool's numbers of gets and puts, and that there were no wrong checksums."""
        after = self.pool()
        for name, wanted in (("gets", gets), ("puts", puts), ("checksum_failures", 0)):
            if wanted is not None and not FAKE:
                self.assertEqual(after[name] - before[name], wanted, name)

    def check_way(self, way, reset):
        values = BLOCKS * (4 if way == "connector" else 1)
        before = self.pool()
        with self.engine(way, env={**PROCESSES, **SLOW}) as engine:
            first = engine.step([COMMON])
            self.check(first, [COMMON])
            self.assertEqual(first["outs"][0]["cached"], 0)
        # the engine ended at once, and stored everything
        self.check_pool(before, gets=0, puts=values)

        before = self.pool()
        with self.engine(way, **LONG) as second:
            step = second.step([COMMON])
            counted = self.check(step, [COMMON])
            self.check_pool(before, gets=values, puts=0)
            self.assertEqual(step["outs"][0]["cached"], BLOCKS * BLOCK)
            self.assertEqual((counted["lookup_calls"], counted["load_blocks"]), (1, values))
            self.assertNotIn("store_blocks", counted)
            print(f"# {way}: time to the first token {first['ttft'] * 1e3:.1f} ms computed, "
                  f"{step['ttft'] * 1e3:.1f} ms loaded; request {first['took'] * 1e3:.1f} ms, "
                  f"{step['took'] * 1e3:.1f} ms", flush=True)
            if FAKE:
                self.check_losses(second, values, reset)
            else:
                self.check_faults(second, values, reset)
            before = self.pool()
            with self.engine(way, **SHORT) as third:
                self.check_two(second, third, values, reset)
                self.check_pool(before)
                if not FAKE:
                    self.check_eviction(third, reset)
        before = self.pool()
        events = f"ipc://{self.scratch.name}/events"
        with self.engine(way, **({"enable_kv_events": True} if way == "tier" else {}), llm={
                "dtype": "float32", "kv_events_config": {"enable_kv_cache_events": True, "endpoint": events,
                                                         "replay_endpoint": f"{events}.replay"}}) as fourth:
            self.check_miss(fourth)
            self.check_events(fourth, f"{events}.replay")
            fourth.again(**self.begin(way, model=1))
            self.check_miss(fourth)
            if way != "tier":
                fourth.again(**self.begin(way, llm={"hf_overrides": ROPE}))
                self.check_miss(fourth)
        # the engines share no blocks
        self.check_pool(before, gets=0, puts=(2 if way == "tier" else 3) * values)

    def check_losses(self, engine, values, reset):
        """Blocks are lost between lookup and load."""
        counted = self.check(engine.step([COMMON], reset=reset, env={"KVBLK_FAKE_LOSE": "5"}), [COMMON])
        self.assertGreater(counted["load_misses"], 0)
        self.assertGreater(counted["load_blocks"], 0)
        counted = self.check(engine.step([COMMON], reset=reset, env={"KVBLK_FAKE_LOSE": "1"}), [COMMON])
        self.assertGreaterEqual(counted["load_misses"], values)
        self.assertNotIn("load_blocks", counted)
        # several requests on the same blocks, some of which are lost; later stores must be right, too
        counted = self.check(engine.step(TAILS, reset=reset, env={"KVBLK_FAKE_LOSE": "7"}), TAILS)
        self.assertGreater(counted["load_misses"], 0)
        self.check(engine.step(TAILS[:1], reset=reset, env={"KVBLK_FAKE_LOSE": "0"}), TAILS[:1])
        counted = self.check(engine.step(TAILS[1:], reset=reset), TAILS[1:])
        self.assertGreater(counted["load_blocks"], 0)

    def check_faults(self, engine, values, reset):
        """Drives fail between lookup and load; leased blocks are not evicted."""
        with carried.during("true", carried.HEAL):
            counted = self.check(engine.step([COMMON], reset=reset, before_get=carried.FAIL), [COMMON])
        self.check_lost(counted)
        self.check(engine.step([COMMON], reset=reset), [COMMON])
        counted = self.check(engine.step([COMMON], reset=reset, before_get=carried.EVICT), [COMMON])
        self.assertEqual(counted.get("load_blocks"), values, counted)

    def check_two(self, one, two, values, reset):
        """Run two engines, and kill one while it stores."""
        counted = self.check(two.step([COMMON]), [COMMON])
        self.assertEqual(counted["load_blocks"], values)
        one.ask(prompts=TAILS[:2], reset=reset)
        two.ask(prompts=TAILS[1:], reset=reset)
        self.check(one.result(), TAILS[:2])
        self.check(two.result(), TAILS[1:])
        one.ask(prompts=[OTHER], kill=1)
        self.assertIsNone(one.answer())
        self.assertEqual(one.process.returncode, -signal.SIGKILL)
        self.check(two.step([OTHER]), [OTHER])
        self.check(two.step([OTHER], reset=reset), [OTHER])

    def check_eviction(self, engine, reset):
        """Unleased blocks are evicted between lookup and load."""
        # wait for the lease to end, because an idle machine evicts faster. Not COMMON, because reclaim has copied the
        # leased blocks to a segment that is still open.
        lost = f"sleep {SHORT['lease_s'] + 1}; {carried.EVICT}"
        counted = self.check(engine.step([OTHER], reset=reset, before_get=lost), [OTHER])
        self.check_lost(counted)

    def check_lost(self, counted):
        """Check that blocks were found and none was loaded: each was a miss, or past its deadline."""
        self.assertGreater(counted.get("lookup_hits", 0), 0, counted)
        self.assertGreater(counted.get("load_misses", 0) + counted.get("load_errors", 0), 0, counted)
        self.assertNotIn("load_blocks", counted, counted)

    def check_miss(self, engine):
        step = engine.step([COMMON])
        self.assertEqual(step["outs"][0]["cached"], 0)
        self.assertNotIn("lookup_hits", step["counted"])

    def check_events(self, engine, endpoint):
        """A subscriber learns that the pool has the blocks of the KV cache, with equal tokens."""
        end = time.monotonic() + 60
        while True:
            stored = {"GPU": {}, "STORAGE": {}}
            for event in replay(endpoint):
                self.assertEqual(event["type"], "BlockStored")
                parent, size = event["parent_block_hash"], event["block_size"]
                for i, block in enumerate(event["block_hashes"]):
                    tokens = event["token_ids"][i * size:(i + 1) * size]
                    stored.setdefault(event["medium"], {})[block] = parent, tokens
                    parent = block
            if len(stored["STORAGE"]) >= BLOCKS or time.monotonic() > end:
                break
            # the engine sends events in its steps
            engine.step([[3] * 8])
        self.assertEqual(stored["STORAGE"], stored["GPU"])
        self.assertEqual(sorted(tokens for _, tokens in stored["GPU"].values()),
                         sorted(COMMON[i:i + BLOCK] for i in range(0, BLOCKS * BLOCK, BLOCK)))

    def test_offloading(self):
        """KvblkOffloadingConnector loads, and computes what is lost"""
        self.check_way("offloading", {})

    def test_tier(self):
        """KvblkTier loads, and vLLM computes what is lost"""
        self.check_way("tier", {"reset_connector": True})

    def test_connector(self):
        """KvblkConnector loads layer by layer, and vLLM computes what is lost"""
        self.check_way("connector", {})


if __name__ == "__main__":
    sys.exit(tap.main("vllm"))
