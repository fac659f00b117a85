#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""vLLM's engine with each of the three ways, on the fake pool: tokens have to be those of an engine without kvblk.

Each run is a process of its own; the pool's blocks pass from one to the next through a file. KVBLK_TEST_MODELS names
a directory for the two tiny models, which is kept.
"""

import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest

import tap

HERE = pathlib.Path(__file__).resolve().parent
BLOCK = 32
TOKENS = 8
numbers = random.Random(5)
COMMON = [numbers.randrange(3, 500) for _ in range(300)]
#: prompts that share nine blocks, and go on
TAILS = [COMMON[:288] + [numbers.randrange(3, 500) for _ in range(100)] for _ in range(3)]

#: front end, scheduler and worker in processes of their own, each with its own copy of the pool
PROCESSES = {"VLLM_ENABLE_V1_MULTIPROCESSING": "1", "KVBLK_FAKE_MERGE": "1"}

WAYS = {
    "offloading": {"kv_connector": "KvblkOffloadingConnector", "kv_connector_module_path": "kvblk_vllm.offloading"},
    "tier": {"kv_connector": "OffloadingConnector"},
    "connector": {"kv_connector": "KvblkConnector", "kv_connector_module_path": "kvblk_vllm.connector"},
}


def transfer(way, **options):
    options = {"pool": "fake", **options}
    if way == "tier":
        extra = {"spec_name": "CpuTieringSpec", "spec_module_path": "cpu_tiering", "cpu_bytes_to_use": 64 << 20,
                 "secondary_tiers": [{"type": "KvblkTier", "module_path": "kvblk_vllm.tier", **options}]}
    else:
        if way == "connector":
            # four values a block: the model has four layers
            options.setdefault("layers", 1)
        extra = {"kvblk": options}
    return {"kv_role": "kv_both", "kv_load_failure_policy": "recompute", "kv_connector_extra_config": extra,
            **WAYS[way]}


def tiny_model(path, seed):
    """A Llama of four layers with random weights, and a tokenizer."""
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


class Engine(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        models = pathlib.Path(os.environ.get("KVBLK_TEST_MODELS", cls.scratch.name))
        cls.models = [models / "tiny0", models / "tiny1"]
        for seed, path in enumerate(cls.models):
            tiny_model(path, seed)
        # what is right
        cls.right = cls.engine(None, [{"prompts": [COMMON]}, *({"prompts": [tail], "reset": {}} for tail in TAILS)])
        cls.right = [step["outs"][0] for step in cls.right["steps"]]

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    @classmethod
    def engine(cls, way, steps, model=0, llm=None, env=None, options=None):
        asked = {"model": str(cls.models[model]), "tokens": TOKENS, "steps": steps, "llm": llm or {},
                 "transfer": transfer(way, **options or {}) if way else None}
        environ = {**os.environ, "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1",
                   "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "PYTHONPATH": str(HERE),
                   "KVBLK_FAKE_STORE": f"{cls.scratch.name}/{way}", **(env or {})}
        run = subprocess.run([sys.executable, str(HERE / "engine_run.py"), json.dumps(asked)], env=environ, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=cls.scratch.name, timeout=900)
        for line in run.stdout.splitlines():
            if line.startswith("RESULT "):
                return json.loads(line[7:])
        raise AssertionError(f"the engine ended with {run.returncode}:\n{run.stdout[-6000:]}")

    def check_out(self, out, right):
        self.assertEqual(out["tokens"], right["tokens"])
        self.assertEqual(out["finish"], "length")
        for got, wanted in zip(out["logprobs"], right["logprobs"]):
            # a prefix that is computed in one go or was there rounds otherwise
            self.assertAlmostEqual(got, wanted, delta=0.05)

    def check_way(self, way, reset, processes):
        common, tails = self.right[0], self.right[1:]
        values = 4 if way == "connector" else 1
        blocks = len(COMMON) // BLOCK * values

        first = self.engine(way, [{"prompts": [COMMON]}], env=processes)
        self.check_out(first["steps"][0]["outs"][0], common)
        self.assertEqual(first["steps"][0]["outs"][0]["cached"], 0)

        second = self.engine(way, [
            {"prompts": [COMMON]},
            {"prompts": [COMMON], "reset": reset, "env": {"KVBLK_FAKE_LOSE": "5"}},
            {"prompts": [COMMON], "reset": reset, "env": {"KVBLK_FAKE_LOSE": "1"}},
            {"prompts": TAILS, "reset": reset, "env": {"KVBLK_FAKE_LOSE": "7"}},
            {"prompts": TAILS[:1], "reset": reset, "env": {"KVBLK_FAKE_LOSE": "0"}},
            {"prompts": TAILS[1:], "reset": reset},
        ])["steps"]
        self.check_out(second[0]["outs"][0], common)
        self.assertEqual(second[0]["outs"][0]["cached"], len(COMMON) // BLOCK * BLOCK)
        self.assertEqual(second[0]["counted"]["lookup_calls"], 1)
        self.assertEqual(second[0]["counted"]["load_blocks"], blocks)
        self.assertNotIn("store_blocks", second[0]["counted"])
        print(f"# {way}: time to the first token {first['steps'][0]['ttft'] * 1e3:.1f} ms computed, "
              f"{second[0]['ttft'] * 1e3:.1f} ms loaded; request {first['steps'][0]['took'] * 1e3:.1f} ms, "
              f"{second[0]['took'] * 1e3:.1f} ms")

        self.check_out(second[1]["outs"][0], common)
        self.assertGreater(second[1]["counted"]["load_misses"], 0)
        self.assertGreater(second[1]["counted"]["load_blocks"], 0)
        self.check_out(second[2]["outs"][0], common)
        self.assertGreaterEqual(second[2]["counted"]["load_misses"], blocks)
        self.assertNotIn("load_blocks", second[2]["counted"])
        # several at once on the same blocks, some of which are lost; what is stored then has to be right, too
        for step, rights in ((3, tails), (4, tails[:1]), (5, tails[1:])):
            for out, right in zip(second[step]["outs"], rights):
                self.check_out(out, right)
        self.assertGreater(second[3]["counted"]["load_misses"], 0)
        self.assertGreater(second[5]["counted"]["load_blocks"], 0)

    def check_miss(self, way, **other):
        step = self.engine(way, [{"prompts": [COMMON]}], **other)["steps"][0]
        self.assertEqual(step["outs"][0]["cached"], 0)
        self.assertNotIn("lookup_hits", step["counted"])
        self.assertGreater(step["counted"]["store_blocks"], 0)

    def test_1_offloading(self):
        """KvblkOffloadingConnector loads, and computes what is lost"""
        self.check_way("offloading", {}, PROCESSES)

    def test_2_offloading_other_type(self):
        """KvblkOffloadingConnector misses blocks of another data type"""
        self.check_miss("offloading", llm={"dtype": "float32"})

    def test_3_tier(self):
        """KvblkTier loads, and vLLM computes what is lost"""
        self.check_way("tier", {"reset_connector": True}, {})

    def test_4_tier_other_type(self):
        """KvblkTier misses blocks of another data type"""
        self.check_miss("tier", llm={"dtype": "float32"})

    def test_5_connector(self):
        """KvblkConnector loads layer by layer, and vLLM computes what is lost"""
        self.check_way("connector", {}, PROCESSES)

    def test_6_connector_other_model(self):
        """KvblkConnector misses blocks of another model"""
        self.check_miss("connector", model=1)


if __name__ == "__main__":
    tap.main()
