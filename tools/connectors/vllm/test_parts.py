#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The adapter without the engine: options, keys, leases and failures.

The pool is KVBLK_POOL. Tests that need faults of the emulated pool are skipped on another one.
"""

import contextlib
import dataclasses
import errno
import inspect
import itertools
import json
import os
import pathlib
import pickle
import sys
import tempfile
import threading
import types
import unittest
from unittest import mock

import kvblk
import tap
import torch
from fakepool import fault, gate
from huggingface_hub import ResolvedRevision
from kvblk import KvblkError
from salts import salt_file
from vllm.config import KVTransferConfig
from vllm.distributed.kv_transfer.kv_connector.v1 import KVConnectorRole
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.worker import OffloadingConnectorWorker
from vllm.distributed.kv_transfer.kv_connector.v1.offloading_connector import OffloadingConnector
from vllm.engine.arg_utils import EngineArgs
from vllm.v1.core import kv_cache_utils
from vllm.v1.kv_offload import base
from vllm.v1.kv_offload.config import (OffloadingCacheConfig, OffloadingConfig, OffloadingGroupConfig,
                                       OffloadingModelConfig, OffloadingParallelConfig)
from vllm.v1.kv_offload.tiering.base import TransferJob

from kvblk_vllm import counters, metadata, report, slab, spec, tier
from kvblk_vllm.find import Finder
from kvblk_vllm.keys import BlockKeys, Ranks, chains, model_of
from kvblk_vllm.offloading import KvblkOffloadingConnector, check_recovery, check_sync_loads
from kvblk_vllm.options import Options
from kvblk_vllm.scheduler import KvblkConnectorScheduler
from kvblk_vllm.worker import KvblkConnectorWorker

number = itertools.count()
PAGE = 4096
POOL = os.environ.get("KVBLK_POOL", "fake")
#: configuration of the spec, as KvblkOffloadingConnector passes it
EXTRA = {"kvblk": {"pool": POOL}, spec.MODEL: "model"}
on_fake = unittest.skipUnless(POOL == "fake", "needs a fault of the fake pool")


def ident():
    """Return a unique block id."""
    return os.urandom(28) + next(number).to_bytes(4, "big")


def config(**changes):
    groups = changes.pop("groups", (OffloadingGroupConfig(tokens_per_block=16, layer_names=("a", "b"), group_id=0), ))
    parallel = OffloadingParallelConfig(rank=0, world_size=1, tp_size=1, pp_size=1, pcp_size=1, dcp_size=1,
                                        data_parallel_index=0, data_parallel_size=1, data_parallel_rank_local=None,
                                        is_parallelism_agnostic=False)
    parallel = dataclasses.replace(parallel, **changes.pop("parallel", {}))
    known = dict(groups=groups, worker_kv_bytes_per_block=2 * PAGE, enable_kv_cache_events=False,
                 extra_config=EXTRA, engine_id="test", kv_cache_layout="LBHNC",
                 model=OffloadingModelConfig("model", "bfloat16"), cache=OffloadingCacheConfig(16, 1),
                 parallel=parallel)
    known.update(changes)
    return OffloadingConfig(**known)


class OptionsTest(unittest.TestCase):
    def refused(self, text, **given):
        with self.assertRaisesRegex(ValueError, text):
            Options.read(given, "here")

    def test_bad(self):
        """Unknown options and invalid values are rejected with a message that names them"""
        self.refused("here has the unknown option 'pol'; there are pool, threads", pool=POOL, pol=1)
        self.refused('the option "pool" is missing')
        self.refused("the option pool is 7, should be a text", pool=7)
        self.refused("the option threads is 0, should be 1 to 64", pool=POOL, threads=0)
        self.refused("the option threads is 2.5, should be a whole number", pool=POOL, threads=2.5)
        self.refused("the option threads is True, should be a whole number", pool=POOL, threads=True)
        self.refused("the option timeout_s is nan", pool=POOL, timeout_s=float("nan"))
        self.refused("the option lease_s is 15, should be at least twice timeout_s", pool=POOL, lease_s=15)
        self.refused("the option priority is 4", pool=POOL, priority=4)
        self.refused("the option salt has a zero byte", pool=POOL, salt="\0")
        with self.assertRaisesRegex(ValueError, 'here needs a dictionary with at least "pool", not None'):
            Options.read(None, "here")
        with self.assertRaisesRegex(ValueError, "the option layers is -1"):
            metadata.ConnectorOptions.read({"pool": POOL, "layers": -1}, "here")

    def test_good(self):
        """Options are accepted, with integers for times, too"""
        read = Options.read({"pool": POOL, "timeout_s": 2, "ttl_s": 60}, "here")
        self.assertEqual(read.put_options(), {"priority": 0, "ttl": 60.0, "timeout": 2.0})

    def test_no_pool(self):
        """A missing pool is a single clear error"""
        with self.assertRaisesRegex(RuntimeError, "the pool 'nobody' can't be opened: .*kvblk pool list"):
            Options(pool="nobody").open()


class KeysTest(unittest.TestCase):
    def test_nothing_shared(self):
        """Two models, types, layouts, ranks, salts or ways never share a key"""
        plain = Options(pool=POOL, salt_file="")
        block = ident()

        def keys(conf, opts=plain, way="offload", model="model", **more):
            return spec.keys_of(conf, opts, way, model, False, **more).all([block])

        two = OffloadingGroupConfig(16, ("a", "b"), 1)
        made = [
            keys(config()),
            keys(config(), model="other"),
            keys(config(model=OffloadingModelConfig("model", "float16"))),
            keys(config(kv_cache_layout="BLHNC")),
            keys(config(worker_kv_bytes_per_block=PAGE)),
            keys(config(cache=OffloadingCacheConfig(16, 2))),
            keys(config(cache=OffloadingCacheConfig(32, 1))),
            keys(config(groups=(OffloadingGroupConfig(32, ("a", "b"), 0), ))),
            keys(config(groups=(OffloadingGroupConfig(16, ("a", "b", "c"), 0), ))),
            keys(config(groups=(OffloadingGroupConfig(16, ("a", "b"), 0), two))),
            keys(config(parallel=dict(tp_size=2, world_size=2))),
            keys(config(parallel=dict(tp_size=2, world_size=2, dcp_size=2))),
            keys(config(parallel=dict(pp_size=2, world_size=2))),
            keys(config(parallel=dict(pcp_size=2, world_size=2))),
            keys(config(parallel=dict(tp_size=4, world_size=4))),
            keys(config(), Options(pool=POOL, salt="x")),
            keys(config(), Options(pool=POOL, salt_file=salt_file(self))),
            keys(config(), Options(pool=POOL, salt_file=salt_file(self), salt="x")),
            keys(config(), Options(pool=POOL, tokenizer="x")),
            keys(config(), way="tier"),
            keys(config(), way="tier", whole=True),
            keys(config(parallel=dict(tp_size=2, world_size=2)), way="tier", whole=True),
            keys(config(), way="tier", whole=True, more=" row=1"),
        ]
        every = [key for some in made for key in some]
        self.assertEqual(len(every), len(set(every)))
        self.assertEqual([len(some) for some in made][10:15], [2, 2, 2, 2, 4])
        # names of nodes and replicas do not change keys
        self.assertEqual(made[0], keys(config(engine_id="x", parallel=dict(data_parallel_index=1))))

    def test_salt_refused(self):
        """A salt that others may read is an error, and not left out of the keys"""
        with self.assertRaisesRegex(RuntimeError, "others may read it"):
            spec.keys_of(config(), Options(pool=POOL, salt_file=salt_file(self, 0o644)), "offload", "model", False)

    def engine(self, **args):
        """Return vLLM's configuration for an engine's arguments."""
        return EngineArgs(**{"model": self.model, "skip_tokenizer_init": True, **args}).create_engine_config()

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.model = scratch.name
        (pathlib.Path(self.model) / "config.json").write_text(json.dumps({
            "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 512, "hidden_size": 256,
            "intermediate_size": 512, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
            "max_position_embeddings": 4096, "dtype": "bfloat16"}))

    def test_model(self):
        """Engines with different weights, or different use of them, never share a key; others do"""
        plain = Options(pool=POOL)
        rope = {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}
        ngram = {"method": "ngram", "num_speculative_tokens": 2, "prompt_lookup_max": 3}
        differ = [{}, {"revision": "v2"}, {"code_revision": "v2"}, {"hf_config_path": f"{self.model}/"},
                  {"load_format": "dummy"}, {"quantization": "fp8"},
                  {"quantization_config": {"linear": {"weight": "fp8_per_block_static"}}}, {"hf_overrides": rope},
                  {"max_model_len": 1024}, {"max_model_len": -1}, {"model_impl": "transformers"}, {"dtype": "float32"},
                  {"kv_cache_dtype_skip_layers": ["0"]}, {"mamba_cache_dtype": "float32"},
                  {"speculative_config": ngram}, {"attention_backend": "CPU_ATTN"},
                  {"cp_kv_cache_interleave_size": 16}]
        made = [model_of(self.engine(**args), plain) for args in differ]
        self.assertEqual(len(set(made)), len(made), made)
        # a process of the same engine, and another engine
        self.assertEqual(model_of(pickle.loads(pickle.dumps(self.engine())), plain), made[0])
        self.assertEqual(model_of(self.engine(max_num_seqs=7, seed=3, gpu_memory_utilization=0.5), plain), made[0])

    def test_commit(self):
        """A branch is represented by its commit"""
        plain = Options(pool=POOL)
        config = self.engine()
        made = []
        for commit, branch in (("a" * 40, None), ("b" * 40, None), ("b" * 40, "main"), ("b" * 40, "b" * 40)):
            config.model_config.revision = ResolvedRevision(commit, branch)
            made.append(model_of(config, plain))
        self.assertEqual([text == made[1] for text in made], [False, True, True, True])

    def test_named(self):
        """The option model replaces paths and revisions, and a function, but nothing else"""
        named = Options(pool=POOL, model="x")
        here = model_of(self.engine(), named)
        self.assertNotIn(self.model, here)
        self.assertEqual(model_of(self.engine(revision="v2"), named), here)
        self.assertNotEqual(model_of(self.engine(), Options(pool=POOL, model="y")), here)
        self.assertNotEqual(model_of(self.engine(quantization="fp8"), named), here)
        function = self.engine(hf_overrides=lambda config: config)
        self.assertEqual(model_of(function, named), here)
        with self.assertRaisesRegex(ValueError, "hf_overrides is a function.*: set the option model"):
            model_of(function, Options(pool=POOL))

    def test_told(self):
        """KvblkOffloadingConnector passes the model to its spec; KvblkTier, which gets none, requires a name"""
        config = self.engine(quantization="fp8", kv_transfer_config=KVTransferConfig(
            kv_connector="KvblkOffloadingConnector", kv_connector_module_path="kvblk_vllm.offloading", kv_role="kv_both",
            kv_connector_extra_config={"kvblk": {"pool": POOL}}))
        with mock.patch.object(OffloadingConnector, "__init__", side_effect=StopIteration):
            with self.assertRaises(StopIteration):
                KvblkOffloadingConnector(config, KVConnectorRole.SCHEDULER, mock.Mock(kv_cache_groups=[]))
        self.assertEqual(config.kv_transfer_config.kv_connector_extra_config[spec.MODEL],
                         model_of(config, Options(pool=POOL)))
        with self.assertRaisesRegex(ValueError, 'tier needs the option "model"'):
            tier.KvblkTier(mock.Mock(), memoryview(bytearray(PAGE)).cast("B", (1, PAGE)), "KvblkTier", pool=POOL)

    def test_ranks(self):
        """A worker's keys are among the scheduler's; each rank has its own"""
        conf = config(parallel=dict(tp_size=2, pp_size=2, world_size=4))
        blocks = [ident(), ident()]
        scheduler = spec.keys_of(conf, Options(pool=POOL), "offload", "model", False)
        self.assertEqual(scheduler.values, 4)
        theirs = []
        for rank in range(4):
            # the second stage has other layers and sizes
            own = dataclasses.replace(conf, worker_kv_bytes_per_block=PAGE * (1 + rank // 2),
                                      parallel=dataclasses.replace(conf.parallel, rank=rank))
            theirs.append(spec.keys_of(own, Options(pool=POOL), "offload", "model", False).of_rank(rank, blocks))
        self.assertEqual(scheduler.all(blocks), [keys[i] for i in range(2) for keys in theirs])
        self.assertEqual(Ranks(2, 2, 2).of(5), {"tp_rank": 1, "tp_size": 2, "cp_rank": 0, "cp_size": 2, "pp_rank": 1,
                                                "pp_size": 2})

    def test_same(self):
        """If all ranks hold equal bytes (MLA) there is one value, of rank 0 of 1"""
        conf = config(parallel=dict(tp_size=8, world_size=8))
        keys = spec.keys_of(conf, Options(pool=POOL), "offload", "model", True)
        block = ident()
        self.assertEqual(keys.all([block]), keys.of_rank(5, [block]))
        one = spec.keys_of(config(), Options(pool=POOL), "offload", "model", False)
        self.assertEqual(keys.all([block]), one.all([block]))

    def test_parts(self):
        """Each part of a block has its own key"""
        keys = BlockKeys(way="w", model="m", dtype="d", layout="l", block_tokens=16, ranks=Ranks(2), parts=3)
        block = ident()
        every = keys.all([block])
        self.assertEqual(len(set(every)), 6)
        ranks = [keys.of_rank(rank, [block], part)[0] for rank in range(2) for part in range(3)]
        self.assertEqual(every, ranks)

    def test_chains(self):
        """Stores are split at a block that does not follow the previous one"""
        a, b, c, d = b"a", b"b", b"c", b"d"
        self.assertEqual(chains([a, b, c, d], [None, a, b, c], 9), [(0, 4)])
        self.assertEqual(chains([a, b, d], [None, a, c], 9), [(0, 2), (2, 3)])
        self.assertEqual(chains([a, b, c], [None, None, b], 9), [(0, 1), (1, 3)])
        self.assertEqual(chains([a, b, c], [None, a, b], 2), [(0, 2), (2, 3)])
        self.assertEqual(chains([], [], 9), [])


class WithPool(unittest.TestCase):
    KEYS = BlockKeys(way="test", model="m", dtype="d", layout="l", block_tokens=16, ranks=Ranks())

    def setUp(self):
        self.pool = kvblk.Pool(POOL)
        self.before = counters()
        self.addCleanup(self.pool.close)

    def counted(self, name):
        return counters().get(name, 0) - self.before.get(name, 0)

    def put(self, keys, blocks, size=PAGE):
        for key in keys.all(blocks):
            self.pool.put(key, os.urandom(size))


class FinderTest(WithPool):
    def setUp(self):
        super().setUp()
        self.find = Finder(self.pool, self.KEYS, Options(pool=POOL), report.Report("test"))
        self.blocks = [ident() for _ in range(6)]

    def ask(self, *wanted, request="r", prefix=True):
        blocks = self.blocks
        return [self.find.hit(request, blocks[i], lambda i=i: blocks[i:], prefix) for i in wanted]

    def leasing(self, most):
        """Return a lookup that leases at most ``most`` keys."""
        lookup = self.pool.lookup

        def few(*args, **kwargs):
            answer = lookup(*args, **kwargs)
            answer.leased = most
            return answer
        return few

    def test_one_lookup(self):
        """All blocks of a prompt are looked up in one call, and leased until the load completes"""
        self.put(self.KEYS, self.blocks[:4])
        self.assertEqual(self.ask(0, 1, 2, 3, 4), [True] * 4 + [False])
        self.assertEqual(self.counted("lookup_calls"), 1)
        self.assertEqual(self.counted("lookup_hits"), 4)
        self.assertEqual(self.find.leases(), 1)
        self.find.load("r")
        self.find.unused("r")
        self.find.finished("r")
        self.assertEqual(self.find.leases(), 1)
        self.find.loaded("r", ())
        self.assertEqual(self.find.leases(), 0)

    def test_load_or_compute(self):
        """With block_compute_ms only blocks that are faster to load are hits; the others are not announced as removed"""
        self.put(self.KEYS, self.blocks[:4])
        find = Finder(self.pool, self.KEYS, Options(pool=POOL, block_compute_ms=100), report.Report("test"), events=True)
        find.announce(self.blocks[:4])
        find.told()
        lookup = self.pool.lookup
        values = self.KEYS.values

        def slow(*args, **kwargs):
            answer = lookup(*args, **kwargs)
            # two blocks come soon, the others from a loaded member
            if kwargs.get("times"):
                answer.times = [0.05 if i < near * values else 2 for i in range(len(answer))]
            return answer

        def ask(request, prefix=True):
            # up to the third: vLLM asks for no block behind a miss
            return [find.hit(request, self.blocks[i], lambda i=i: self.blocks[i:], prefix) for i in range(3)]

        with mock.patch.object(self.pool, "lookup", slow):
            near = 2
            self.assertEqual(ask("slow"), [True, True, False])
            near = 0
            # a waiting request keeps the lease of what it will load, and no more
            for _ in range(3):
                find.next_step()
                self.assertEqual(ask("slow"), [True, True, False])
                self.assertEqual(ask("none"), [False] * 3)
                self.assertEqual(find.leases(), 1)
            self.assertEqual(ask("backwards", prefix=False), [True] * 3)
        find.next_step()
        self.assertEqual(ask("fast"), [True] * 3)
        self.assertEqual(find.told(), [])
        find.reset()

    def test_waiting(self):
        """A waiting request keeps its hits, and looks up missing blocks again once per step"""
        self.put(self.KEYS, self.blocks[:2])
        self.ask(0, 1, 2)
        self.ask(0, 1, 2)
        self.assertEqual(self.counted("lookup_calls"), 1)
        self.find.next_step()
        self.put(self.KEYS, self.blocks[2:4])
        self.assertEqual(self.ask(0, 1, 2, 3, 4), [True] * 4 + [False])
        self.assertEqual(self.counted("lookup_calls"), 2)
        self.find.unused("r")
        self.assertEqual(self.find.leases(), 0)

    def test_stale(self):
        """A result is not used if its lease may end before the load does"""
        self.put(self.KEYS, self.blocks[:2])
        self.ask(0)
        with mock.patch("kvblk_vllm.find.time.monotonic", lambda: 1e9):
            self.pool.delete(self.KEYS.all(self.blocks)[0])
            self.assertEqual(self.ask(0), [False])
        self.assertEqual(self.counted("lookup_calls"), 2)

    def test_gone_request(self):
        """A request that ends without a load releases its lease"""
        self.put(self.KEYS, self.blocks[:2])
        self.ask(0, 1)
        self.find.finished("r")
        self.assertEqual(self.find.leases(), 0)
        self.ask(0)
        self.find.load("r")
        self.find.reset()
        self.assertEqual(self.find.leases(), 0)
        self.find.loaded("r", ())

    def test_lost(self):
        """A block whose load failed is not a hit again for this request, unless the request was preempted"""
        self.put(self.KEYS, self.blocks[:2])
        self.ask(0, 1)
        self.find.load("r")
        self.find.loaded("r", self.blocks[1:2])
        self.assertEqual(self.ask(0, 1), [True, False])
        self.assertEqual(self.ask(0, 1, request="s"), [True, True])
        self.find.preempted("r")
        self.assertEqual(self.ask(0, 1), [True, True])

    def test_unleased(self):
        """A block that could not be leased is not a hit"""
        self.put(self.KEYS, self.blocks[:4])
        for prefix in (True, False):
            with self.subTest(prefix=prefix), mock.patch.object(self.pool, "lookup", self.leasing(2)):
                self.assertEqual(self.ask(0, 1, 2, request=str(prefix), prefix=prefix), [True, True, False])

    def test_holes(self):
        """Without prefix order, blocks behind a missing one are found"""
        self.put(self.KEYS, [self.blocks[0], *self.blocks[2:4]])
        self.assertEqual(self.ask(0, 1, 2, 3, 4, prefix=False), [True, False, True, True, False])
        self.assertEqual(self.counted("lookup_calls"), 1)

    def test_ranks(self):
        """A block is present if all ranks' values are"""
        keys = BlockKeys(way="test", model="m", dtype="d", layout="l", block_tokens=16, ranks=Ranks(2))
        find = Finder(self.pool, keys, Options(pool=POOL), report.Report("test"))
        self.put(keys, self.blocks[:3])
        self.pool.delete(keys.of_rank(1, self.blocks)[1])
        for prefix, wanted in ((True, [True, False]), (False, [True, False, True])):
            hits = [find.hit(str(prefix), b, lambda: self.blocks, prefix) for b in self.blocks[:len(wanted)]]
            self.assertEqual(hits, wanted)
        self.assertEqual(find.present(self.blocks), [True, False, True, False, False, False])

    def test_error(self):
        """A failed lookup is a miss, counted, and logged with a rate limit"""
        with mock.patch.object(self.pool, "lookup", side_effect=KvblkError(errno.ENODEV)), \
                self.assertLogs("vllm.kvblk", "WARNING") as logged:
            self.assertEqual(self.ask(0), [False])
            self.find.next_step()
            self.assertEqual(self.ask(0), [False])
            self.assertEqual(self.find.present(self.blocks), [False] * 6)
        self.assertEqual(self.counted("lookup_errors"), 3)
        self.assertEqual(len(logged.records), 2)
        self.assertIn("[Errno 19]", logged.output[0])
        self.pool.close()
        self.assertEqual(self.ask(0, request="s"), [False])

    def test_announce(self):
        """A stored block is announced once; a missing one is announced as removed"""
        self.find = Finder(self.pool, self.KEYS, Options(pool=POOL), report.Report("test"), events=True)
        self.put(self.KEYS, self.blocks[:2])
        self.find.announce(self.blocks)
        self.assertEqual(self.find.told(), [(block, True) for block in self.blocks[:2]])
        self.find.announce(self.blocks, "abcd")
        with mock.patch.object(self.pool, "lookup", side_effect=KvblkError(errno.ENODEV)):
            self.ask(0, request="q")
        with mock.patch.object(self.pool, "lookup", self.leasing(0)):
            for prefix in (True, False):
                self.ask(0, request=f"q{prefix}", prefix=prefix)
        self.assertEqual(self.find.told(), [])
        self.pool.delete(self.KEYS.all(self.blocks)[1])
        self.ask(0, 1)
        # announced again after it was stored again
        self.put(self.KEYS, self.blocks[1:2])
        self.find.announce(self.blocks, "abcd")
        self.assertEqual(self.find.told(), [(self.blocks[1], None), (self.blocks[1], "b")])
        self.assertEqual(self.find.told(), [])


class AnotherLengthTest(WithPool):
    """A block of another length under our key is missing, and deleted, so that the right one can be stored."""
    LENGTHS = BlockKeys(way="lengths", model="m", dtype="d", layout="l", block_tokens=16, ranks=Ranks(2), parts=2,
                        lengths=[PAGE, 2 * PAGE])

    def setUp(self):
        super().setUp()
        self.find = Finder(self.pool, self.LENGTHS, Options(pool=POOL), report.Report("test"))
        self.blocks = [ident() for _ in range(3)]
        for block in self.blocks:
            for key, size in zip(self.LENGTHS.all([block]), self.LENGTHS.lengths):
                self.pool.put(key, os.urandom(size))
        #: key of a part of the second block
        self.key = self.LENGTHS.all(self.blocks[1:2])[3]

    def stored_longer(self):
        self.pool.delete(self.key)
        self.assertIs(self.pool.put(self.key, os.urandom(3 * PAGE)), kvblk.Put.STORED)

    def test_lookup(self):
        """Every kind of lookup checks lengths"""
        for ask in (lambda: self.find.hit("prefix", self.blocks[1], lambda: self.blocks[1:]),
                    lambda: self.find.hit("holes", self.blocks[1], lambda: self.blocks[1:], False),
                    lambda: self.find.present(self.blocks)[1]):
            self.stored_longer()
            with self.assertLogs("vllm.kvblk", "WARNING") if ask() else contextlib.nullcontext():
                self.assertFalse(ask())
            self.assertNotIn(self.key, self.pool)
        self.assertEqual(self.find.present(self.blocks), [True, False, True])

    def test_transfer(self):
        """A load or a store that finds such a block deletes it, too"""
        for store in (False, True):
            self.stored_longer()
            memory = bytearray(2 * PAGE)
            with mock.patch.object(slab, "register_slab", return_value=""):
                mover = slab.HostMover(kvblk.Pool(POOL), Options(pool=POOL), report.Report("test"), [(0, 0)], PAGE)
            over = []
            places = [[(kvblk.buffers.piece_of(memory, True)[0], len(memory))]]
            if store:
                mover.put(slab.Transfer(over.append), [self.key], places, None)
            else:
                mover.get(slab.Transfer(over.append), [self.key], places, lambda at, there: over.append(there))
            mover.drain()
            self.assertEqual(over[:-1], [] if store else [[False]])
            self.assertNotIn(self.key, self.pool)
            mover.close()


class Request:
    """A request's context, as vLLM's scheduler makes it."""

    def __init__(self, name, keys, tokens=16):
        self.context = base.ReqContext(req_id=name)
        self.keys = keys
        for i, key in enumerate(keys):
            self.context.set_offload_key_position(key, (i + 1) * tokens)


class Offload(WithPool):
    """A manager and a worker, with a KV cache of two tensors."""

    BLOCKS = 16

    def make(self, **changes):
        self.spec = spec.KvblkOffloadingSpec(config(**changes))
        self.cache = [torch.randint(-128, 127, (self.BLOCKS, PAGE), dtype=torch.int8) for _ in range(2)]
        tensors = [base.CanonicalKVCacheTensor(t, PAGE) for t in self.cache]
        refs = [base.CanonicalKVCacheRef(i, PAGE) for i in range(2)]
        groups = [refs] if len(self.spec.config.groups) == 1 else [refs[:1], refs[1:]]
        self.manager = self.spec.get_manager()
        self.addCleanup(self.manager.shutdown)
        self.worker = self.spec.get_worker(base.CanonicalKVCaches(tensors, groups))
        self.addCleanup(self.worker.shutdown)

    def store(self, request, blocks, job=1, sizes=None, indices=None, keys=None):
        out = self.manager.prepare_store(keys or request.keys, request.context)
        gpu = base.GPULoadStoreSpec(blocks, sizes or [len(blocks)], indices or [0])
        self.assertTrue(self.worker.submit_store(job, gpu, pickle.loads(pickle.dumps(out.store_spec))))
        self.worker.wait({job})
        results = self.worker.get_finished()
        self.manager.complete_store(set(out.keys_to_store), request.context)
        return out, results

    def load(self, request, blocks, job=2, sizes=None, indices=None, keys=None):
        keys = keys or request.keys
        for key in keys:
            self.assertIs(self.manager.lookup(key, request.context), base.LookupResult.HIT)
        loads = self.manager.prepare_load(keys, request.context)
        gpu = base.GPULoadStoreSpec(blocks, sizes or [len(blocks)], indices or [0])
        self.assertTrue(self.worker.submit_load(job, pickle.loads(pickle.dumps(loads)), gpu))
        self.worker.wait({job})
        results = self.worker.get_finished()
        self.manager.complete_load(keys, request.context)
        return results

    def keys(self, count, group=0):
        return [base.make_offload_key(os.urandom(32), group) for _ in range(count)]

    def connector(self, theirs, several):
        """Our connector over a worker of vLLM."""
        made = KvblkOffloadingConnector.__new__(KvblkOffloadingConnector)
        made.connector_worker, made.connector_scheduler, made._by_request = theirs, None, several
        made._connector_metadata = mock.Mock(spec=base.LoadStoreSpec)
        return made


def transfer_results(made):
    with mock.patch("vllm.distributed.kv_transfer.kv_connector.v1.offloading_connector.OffloadingConnectorMetadata",
                    object):
        return made.get_transfer_results(set())


class OffloadingTest(Offload):
    def test_round(self):
        """Blocks are stored from the KV cache's tensors and loaded into others; other blocks are untouched"""
        self.make()
        request = Request("r", self.keys(3))
        out, results = self.store(request, [1, 5, 7])
        self.assertEqual(out.keys_to_store, request.keys)
        self.assertTrue(results[0].success)
        self.assertEqual(results[0].transfer_size, 3 * 2 * PAGE)
        was = [t.clone() for t in self.cache]
        other = Request("s", request.keys)
        results = self.load(other, [2, 3, 4])
        self.assertTrue(results[0].success)
        for now, old in zip(self.cache, was):
            for to, source in ((2, 1), (3, 5), (4, 7)):
                self.assertTrue(torch.equal(now[to], old[source]))
            for i in set(range(self.BLOCKS)) - {2, 3, 4}:
                self.assertTrue(torch.equal(now[i], old[i]))
        self.assertFalse(self.worker.failed_blocks)
        self.assertEqual(self.counted("lookup_hits"), 3)
        # present already, so nothing is stored
        out, _ = self.store(Request("t", request.keys), [])
        self.assertEqual(out.keys_to_store, [])

    def test_another_length(self):
        """A chunk of another length is a miss if its length is known, otherwise its load fails once"""
        for known in (True, False):
            self.make(extra_config={**EXTRA, **({spec.PAGE_BYTES: 2 * PAGE} if known else {})})
            request = Request("r", self.keys(1))
            key = self.spec.keys.all([bytes(request.keys[0])])[0]
            self.pool.put(key, os.urandom(PAGE))
            if known:
                self.assertIs(self.manager.lookup(request.keys[0], request.context), base.LookupResult.MISS)
            else:
                self.load(request, [1])
                self.assertEqual(self.worker.failed_blocks, {1})
            self.store(Request("s", request.keys), [1])
            self.load(Request("t", request.keys), [2], job=4)
            self.assertTrue(torch.equal(self.cache[0][1], self.cache[0][2]))

    def test_out_of_bounds(self):
        """A block outside the KV cache is neither stored nor loaded"""
        self.make()
        for block in (-1, self.BLOCKS):
            request = Request("r", self.keys(1))
            self.store(request, [block])
            self.assertIs(self.manager.lookup(request.keys[0], request.context), base.LookupResult.MISS)
            good = Request("s", self.keys(1))
            self.store(good, [1])
            self.load(good, [block])
            self.assertEqual(self.worker.failed_blocks, {block})
            self.worker.failed_blocks.clear()

    def test_expedited(self):
        """A load that vLLM 0.33 waits for in the same step"""
        self.make()
        request = Request("r", self.keys(1))
        self.store(request, [1])
        theirs = OffloadingConnectorWorker(self.spec, None, None)
        theirs.worker = self.worker
        self.pool.delete(self.spec.keys.all([bytes(request.keys[0])])[0])
        entry = types.SimpleNamespace(sync=True, req_id="r", src_spec=self.manager.prepare_load(request.keys, request.context),
                                      dst_spec=base.GPULoadStoreSpec([2], [1], [0]))
        theirs.start_kv_transfers(types.SimpleNamespace(load_jobs={7: entry}, store_jobs={}, jobs_to_flush=None))
        self.worker.wait({7})
        results = transfer_results(self.connector(theirs, True))
        # a request of the running step is not named
        waited_for = "sync" in inspect.getsource(OffloadingConnectorWorker.start_kv_transfers)
        self.assertEqual(results.failed_recving, set() if waited_for else {"r"})
        loads = self.manager.prepare_load(request.keys, request.context)
        self.assertTrue(self.worker.submit_load(8, loads, base.GPULoadStoreSpec([2], [1], [0]), expedited=True))

    def test_lost(self):
        """A failed load is a success for vLLM, names its blocks to the connector, and is not a hit again"""
        self.make()
        request = Request("r", self.keys(3))
        self.store(request, [1, 2, 3])
        other = Request("s", request.keys)
        self.manager.lookup(request.keys[0], other.context)
        self.pool.delete(self.spec.keys.all([bytes(request.keys[1])])[0])
        results = self.load(other, [4, 5, 6])
        self.assertTrue(results[0].success)
        self.assertEqual(self.worker.failed_blocks, {5})
        self.assertEqual(self.worker.failed_jobs, {2})
        self.assertEqual(self.counted("load_misses"), 1)
        self.assertIs(self.manager.lookup(request.keys[0], other.context), base.LookupResult.MISS)
        self.manager.on_schedule_end(base.ScheduleEndContext((), ("s", )))
        self.assertIs(self.manager.lookup(request.keys[0], other.context), base.LookupResult.HIT)

    def test_length(self):
        """A value of another length is a miss"""
        self.make()
        request = Request("r", self.keys(2))
        for key, size in zip(self.spec.keys.all([bytes(k) for k in request.keys]), (PAGE, 2 * PAGE + 1)):
            self.pool.put(key, os.urandom(size))
        self.load(request, [4, 5])
        self.assertEqual(self.worker.failed_blocks, {4, 5})
        self.assertEqual(self.counted("load_misses"), 2)

    def test_errors(self):
        """Errors of the pool end jobs without an exception"""
        self.make()
        request = Request("r", self.keys(2))
        failed = [KvblkError(errno.ETIME), kvblk.Put.DECLINED]

        def results(job):
            job.batch.free()
            job.results = failed

        with mock.patch("kvblk.background.Job.finish", results), self.assertLogs("vllm.kvblk", "WARNING"):
            _, done = self.store(request, [1, 2])
        self.assertTrue(done[0].success)
        self.assertEqual(self.counted("store_errors"), 1)
        self.assertEqual(self.counted("store_declined"), 1)
        self.pool.delete_many(self.spec.keys.all([bytes(k) for k in request.keys]))
        self.store(request, [1, 2])
        failed = [KvblkError(errno.EIO), 2 * PAGE]
        with mock.patch("kvblk.background.Job.finish", results), self.assertLogs("vllm.kvblk", "WARNING"):
            self.load(Request("s", request.keys), [4, 5])
        self.assertEqual(self.worker.failed_blocks, {4})
        self.assertEqual(self.counted("load_errors"), 1)
        # a batch that cannot be submitted
        self.worker.failed_blocks.clear()
        with mock.patch.object(self.worker._mover.pool, "batch", side_effect=MemoryError), \
                self.assertLogs("vllm.kvblk", "WARNING"):
            self.load(Request("t", request.keys), [4, 5], job=3)
        self.assertEqual(self.worker.failed_blocks, {4, 5})

    def test_closed(self):
        """After shutdown a manager misses, and a worker fails blocks"""
        self.make()
        request = Request("r", self.keys(2))
        self.store(request, [1, 2])
        self.manager.shutdown()
        self.assertIs(self.manager.lookup(request.keys[0], request.context), base.LookupResult.MISS)
        self.worker.shutdown()
        ids = [bytes(key) for key in request.keys]
        self.worker.submit_load(7, spec.KeySpec(ids, [None, None]), base.GPULoadStoreSpec([4, 5], [2], [0]))
        self.worker.wait({7})
        self.assertEqual([r.job_id for r in self.worker.get_finished()], [7])
        self.assertEqual(self.worker.failed_blocks, {4, 5})

    @on_fake
    def test_stores_at_end(self):
        """A worker's shutdown waits, up to timeout_s, for stores in flight and those kept for the next step"""
        from vllm.distributed.kv_transfer.kv_connector.v1.offloading.worker import OffloadingConnectorWorker

        from kvblk_vllm.offloading import KvblkOffloadingConnector
        for timeout, there in ((10, True), (0.1, False)):
            self.make(extra_config={**EXTRA, "kvblk": {"pool": POOL, "timeout_s": timeout}})
            theirs = OffloadingConnectorWorker(self.spec, None, None)
            theirs.worker = self.worker
            made = KvblkOffloadingConnector.__new__(KvblkOffloadingConnector)
            made.connector_worker, made.connector_scheduler = theirs, None
            request = Request("r", self.keys(3))
            ids = [bytes(key) for key in request.keys]
            with fault(DELAY_MS=400):
                self.worker.submit_store(1, base.GPULoadStoreSpec([1, 2], [2], [0]), spec.KeySpec(ids[:2], [None] * 2))
                theirs._unsubmitted_store_jobs.append(
                    (2, base.GPULoadStoreSpec([3], [1], [0]), spec.KeySpec(ids[2:], [ids[1]])))
                made.shutdown()
            self.assertEqual(self.manager._find.present(ids), [there] * 3)

    def test_chunks(self):
        """Chunks of two blocks: parts of a chunk are loaded, but not stored"""
        self.make(cache=OffloadingCacheConfig(16, 2))
        request = Request("r", self.keys(3), tokens=32)
        self.store(request, [1, 2, 3, 4, 5], indices=[1])
        ids = [bytes(k) for k in request.keys]
        # the first chunk lacks its first block
        self.assertEqual(self.manager._find.present(ids), [False, True, True])
        was = [t.clone() for t in self.cache]
        self.load(Request("s", request.keys), [8, 9, 10], indices=[3], keys=request.keys[1:])
        for now, old in zip(self.cache, was):
            for to, source in ((8, 3), (9, 4), (10, 5)):
                self.assertTrue(torch.equal(now[to], old[source]))
            for i in set(range(self.BLOCKS)) - {8, 9, 10}:
                self.assertTrue(torch.equal(now[i], old[i]))
        # chunks whose blocks are unknown are neither stored nor loaded
        with self.assertLogs("vllm.kvblk", "WARNING"):
            self.store(Request("t", self.keys(3), tokens=32), [1, 2, 3])
            self.load(Request("u", request.keys), [8, 9], keys=request.keys[1:], job=5)
        self.assertEqual(self.worker.failed_blocks, {8, 9})

    def test_groups(self):
        """Each KV cache group has its own tensors"""
        self.make(groups=(OffloadingGroupConfig(16, ("a", ), 0), OffloadingGroupConfig(16, ("b", ), 1)))
        keys = self.keys(2) + self.keys(1, group=1)
        request = Request("r", keys)
        self.store(request, [1, 2, 3], sizes=[2, 1], indices=[0, 0])
        was = [t.clone() for t in self.cache]
        self.load(Request("s", keys), [8, 9, 10], sizes=[2, 1], indices=[0, 0])
        self.assertTrue(torch.equal(self.cache[0][8:10], was[0][1:3]))
        self.assertTrue(torch.equal(self.cache[1][10], was[1][3]))
        self.assertTrue(torch.equal(self.cache[1][8:10], was[1][8:10]))

    def test_backwards(self):
        """vLLM's walk from the last block to the first needs two lookups"""
        self.make()
        request = Request("r", self.keys(6))
        self.store(request, [1, 2, 3, 4, 5, 6])
        self.before = counters()
        other = Request("s", request.keys)
        for key in reversed(other.keys):
            self.assertIs(self.manager.lookup(key, other.context), base.LookupResult.HIT)
        self.assertEqual(self.counted("lookup_calls"), 2)

    def test_chain(self):
        """A prompt's blocks are stored as a chain that continues where the last store ended"""
        self.make()
        request = Request("r", self.keys(4))
        with mock.patch.object(self.worker._mover._queue, "put", wraps=self.worker._mover._queue.put) as put:
            self.store(request, [1, 2], keys=request.keys[:2])
            self.store(request, [3, 4], keys=request.keys[2:], job=3)
        ids = self.spec.keys.all([bytes(k) for k in request.keys])
        first, second = (call for call in put.call_args_list)
        self.assertEqual((first.args[0], first.kwargs["parent"], first.kwargs["chain"]), (ids[:2], b"", True))
        self.assertEqual((second.args[0], second.kwargs["parent"]), (ids[2:], ids[1]))

    def test_reset(self):
        """After a reset of the cache, older blocks are not found"""
        self.make()
        request = Request("r", self.keys(2))
        self.store(request, [1, 2])
        self.manager.reset_cache()
        self.assertIs(self.manager.lookup(request.keys[0], Request("s", request.keys).context), base.LookupResult.MISS)
        self.store(request, [1, 2])
        self.load(Request("t", request.keys), [4, 5])
        self.assertFalse(self.worker.failed_blocks)

    def test_events(self):
        """KV events report stored and lost blocks"""
        self.make(enable_kv_cache_events=True)
        first = request = Request("r", self.keys(2))
        self.store(request, [1, 2])
        event, = self.manager.take_events()
        self.assertEqual((set(event.keys), event.removed, event.ownership), (set(request.keys), False, "kvblk"))
        self.pool.delete(self.spec.keys.all([bytes(request.keys[0])])[0])
        self.manager.lookup(request.keys[0], Request("s", request.keys).context)
        event, = self.manager.take_events()
        self.assertEqual((event.keys, event.removed), ([request.keys[0]], True))
        # removed: a block found missing, and one forgotten by a reset
        request = Request("t", self.keys(2))
        self.store(request, [1, 2])
        list(self.manager.take_events())
        self.pool.delete(self.spec.keys.all([bytes(request.keys[0])])[0])
        self.manager.lookup(request.keys[0], Request("u", request.keys).context)
        self.manager.reset_cache()
        event, = self.manager.take_events()
        self.assertEqual((set(event.keys), event.removed), ({*request.keys, *first.keys[1:]}, True))

    def test_refused(self):
        """vLLM's own connector, an overlong chunk and canonical_layout are rejected at startup"""
        with self.assertRaisesRegex(ValueError, "KvblkOffloadingConnector"):
            self.make(extra_config={"kvblk": {"pool": POOL}})
        with self.assertRaisesRegex(ValueError, "lower blocks_per_chunk"):
            self.make(cache=OffloadingCacheConfig(16, 1024))
        with self.assertRaisesRegex(ValueError, "canonical_layout"):
            self.make(canonical_layout=True)

    def test_connector(self):
        """The connector reports failed blocks to the engine, or requests if there are several groups"""
        for several in (False, True):
            self.make()
            request = Request("r", self.keys(2))
            self.put(self.spec.keys, [bytes(k) for k in request.keys], 2 * PAGE)
            self.manager.lookup(request.keys[0], request.context)
            self.pool.delete(self.spec.keys.all([bytes(request.keys[1])])[0])
            out = self.manager.prepare_load(request.keys, request.context)
            self.worker.submit_load(3, out, base.GPULoadStoreSpec([4, 5], [2], [0]))
            self.worker.wait({3})
            theirs = OffloadingConnectorWorker(self.spec, None, None)
            theirs.worker, theirs._load_jobs = self.worker, {3: "r"}
            made = self.connector(theirs, several)
            results = transfer_results(made)
            self.assertEqual(results.finished_recving, {"r"})
            self.assertEqual(results.failed_recving, {"r"} if several else set())
            self.assertEqual(made.get_block_ids_with_load_errors(), set() if several else {5})
            self.assertEqual(made.get_block_ids_with_load_errors(), set())


class TierTest(WithPool):
    CHUNKS = 8

    def setUp(self):
        super().setUp()
        self.slab = torch.randint(-128, 127, (self.CHUNKS, PAGE), dtype=torch.int8)
        self.view = memoryview(self.slab.numpy())

    def make(self, **given):
        owner = types.SimpleNamespace(config=given.pop("config", config()), replicated_layout=False,
                                      kv_events_config=types.SimpleNamespace(enable_kv_cache_events=True))
        given = {"pool": POOL, "model": "m", **given}
        self.tier = tier.KvblkTier(offloading_spec=owner, primary_kv_view=self.view, tier_type="KvblkTier", **given)
        self.addCleanup(self.tier.shutdown)

    def keys(self, count):
        return [base.make_offload_key(os.urandom(32), 0) for _ in range(count)]

    def job(self, request, keys, chunks, promotion):
        job = TransferJob(next(number), keys, torch.tensor(chunks).numpy(), promotion, request.context)
        (self.tier.submit_load if promotion else self.tier.submit_store)(job)
        self.tier.drain_jobs()
        result, = self.tier.get_finished_jobs()
        self.assertEqual(result.job_id, job.job_id)
        return result

    def test_round(self):
        """Chunks are stored from the slab and loaded elsewhere, in any order"""
        self.make(enable_kv_events=True)
        request = Request("r", self.keys(3))
        with mock.patch.object(self.tier._mover._queue, "put", wraps=self.tier._mover._queue.put) as put:
            keys = [request.keys[i] for i in (2, 0, 1)]
            self.assertTrue(self.job(request, dict.fromkeys(keys), [2, 0, 1], False).success)
        stored, = put.call_args_list
        self.assertEqual(stored.args[0], self.tier._keys.all([bytes(key) for key in request.keys]))
        event, = self.tier.take_events()
        self.assertEqual((set(event.keys), event.removed), (set(keys), False))
        was = self.slab.clone()
        other = Request("s", request.keys)
        for key in request.keys:
            self.assertIs(self.tier.lookup(key, other.context), base.LookupResult.HIT)
        self.assertEqual(self.counted("lookup_calls"), 1)
        self.assertEqual(self.tier._find.leases(), 1)
        result = self.job(other, request.keys, [5, 6, 7], True)
        self.assertTrue(result.success and result.successful_keys is None)
        self.assertEqual(self.tier._find.leases(), 0)
        self.assertTrue(torch.equal(self.slab[5:], was[:3]))
        self.assertTrue(torch.equal(self.slab[:5], was[:5]))

    def test_lost(self):
        """A partly failed load reports the keys loaded; the others miss from then on"""
        self.make()
        request = Request("r", self.keys(3))
        self.job(request, request.keys, [0, 1, 2], False)
        self.tier.lookup(request.keys[0], request.context)
        ids = self.tier._keys.all([bytes(key) for key in request.keys])
        self.pool.delete(ids[1])
        result = self.job(request, request.keys, [5, 6, 7], True)
        self.assertFalse(result.success)
        self.assertEqual(set(result.successful_keys), {request.keys[0], request.keys[2]})
        self.pool.put(ids[1], os.urandom(PAGE))
        self.assertIs(self.tier.lookup(request.keys[1], request.context), base.LookupResult.MISS)
        self.assertIs(self.tier.lookup(request.keys[1], Request("s", request.keys).context), base.LookupResult.HIT)
        # another length
        self.pool.delete(ids[1])
        self.pool.put(ids[1], os.urandom(PAGE - 1))
        self.assertEqual(self.job(Request("t", request.keys), request.keys[1:2], [5], True).successful_keys, ())

    def test_another_length(self):
        """A block of another length is a miss for the first request, and is replaced by the next store"""
        self.make()
        request = Request("r", self.keys(1))
        key = self.tier._keys.of_rank(0, [bytes(request.keys[0])])[0]
        self.pool.put(key, b"x" * 10)
        self.assertIs(self.tier.lookup(request.keys[0], request.context), base.LookupResult.MISS)
        self.assertTrue(self.job(request, request.keys, [1], False).success)
        self.assertEqual(self.pool.exists(key), PAGE)
        self.assertIs(self.tier.lookup(request.keys[0], Request("s", request.keys).context), base.LookupResult.HIT)

    def test_out_of_bounds(self):
        """A chunk outside the slab is neither stored nor loaded, and memory beside the slab is untouched"""
        beside = torch.randint(-128, 127, (self.CHUNKS + 2, PAGE), dtype=torch.int8)
        was = beside.clone()
        self.view = memoryview(beside[1:-1].numpy())
        self.make()
        good, bad = Request("r", self.keys(1)), Request("s", self.keys(2))
        self.assertTrue(self.job(good, good.keys, [0], False).success)
        for chunk in (-1, self.CHUNKS):
            with self.subTest(chunk=chunk):
                self.assertFalse(self.job(bad, bad.keys, [1, chunk], False).success)
                self.assertFalse(any(self.tier._find.present([bytes(key) for key in bad.keys])))
                result = self.job(Request("t", good.keys), good.keys, [chunk], True)
                self.assertFalse(result.success)
                self.assertEqual(result.successful_keys, ())
        self.assertTrue(torch.equal(beside, was))

    @on_fake
    def test_declined(self):
        """A declined block does not fail the job"""
        self.make()
        request = Request("r", self.keys(2))
        with fault(DECLINE=1):
            self.assertTrue(self.job(request, request.keys, [0, 1], False).success)
        self.assertEqual(self.counted("store_declined"), 2)
        with mock.patch.object(self.tier._mover.pool, "batch", side_effect=KvblkError(errno.ENOMEM)), \
                self.assertLogs("vllm.kvblk", "WARNING"):
            self.assertFalse(self.job(request, request.keys, [0, 1], False).success)

    def test_shutdown(self):
        """After shutdown nothing refers to the slab, which vLLM is about to unmap"""
        self.make()
        request = Request("r", self.keys(2))
        self.job(request, request.keys, [0, 1], False)
        self.tier.lookup(request.keys[0], request.context)
        self.tier.shutdown()
        self.view.release()

    @on_fake
    def test_stores_at_end(self):
        """A tier's shutdown waits for stores in flight"""
        self.make()
        request = Request("r", self.keys(2))
        with fault(DELAY_MS=400):
            self.tier.submit_store(TransferJob(next(number), request.keys, torch.tensor([0, 1]).numpy(), False,
                                               request.context))
            self.tier.shutdown()
        for key in self.tier._keys.all([bytes(key) for key in request.keys]):
            self.assertIn(key, self.pool)

    def test_refused(self):
        """Unknown options and overlong rows are rejected"""
        with self.assertRaisesRegex(ValueError, "secondary tier KvblkTier has the unknown option 'root_dir'"):
            self.make(root_dir="/")
        self.view = memoryview(bytearray(16 << 20)).cast("B", (1, 16 << 20))
        with self.assertRaisesRegex(ValueError, "lower blocks_per_chunk"):
            self.make()


class LayersTest(WithPool):
    """KvblkConnector's scheduler and worker, with a KV cache of four layers in two values per block."""

    BLOCKS, TOKENS, LAYERS = 24, 16, 4

    def setUp(self):
        super().setUp()
        names = [f"model.layers.{i}.attn" for i in range(self.LAYERS)]
        self.options = metadata.ConnectorOptions(pool=POOL)
        self.shape = types.SimpleNamespace(
            block_tokens=self.TOKENS, kind="full_attention", page=PAGE, names=names, parts=[names[:2], names[2:]],
            world=1, stores=2,
            keys=BlockKeys(way="test", model="m", dtype="d", layout="l", block_tokens=self.TOKENS, ranks=Ranks(),
                           parts=2))
        self.cache = {name: torch.randint(-128, 127, (self.BLOCKS, PAGE), dtype=torch.int8) for name in names}
        self.scheduler = KvblkConnectorScheduler(self.shape, self.options, events=True)
        self.addCleanup(self.scheduler.shutdown)
        self.worker = KvblkConnectorWorker(self.shape, self.options, 0, self.cache, self.BLOCKS)
        self.addCleanup(self.worker.shutdown)

    def test_what_vllm_recovers_from(self):
        """Only the runner V1 without asynchronous scheduling recomputes a failed load"""
        for v2, ahead in ((False, False), (True, False), (False, True), (True, True)):
            config = types.SimpleNamespace(use_v2_model_runner=v2,
                                           scheduler_config=types.SimpleNamespace(async_scheduling=ahead))
            with (self.assertRaisesRegex(ValueError, "VLLM_USE_V2_MODEL_RUNNER=0 .* --no-async-scheduling")
                  if v2 or ahead else contextlib.nullcontext()):
                check_recovery(config, "KvblkConnector", "use another")

    def test_sync_loads(self):
        """Loads of the running step are rejected if vLLM could not recover from a failure"""
        def config(budget, v2):
            return types.SimpleNamespace(use_v2_model_runner=v2, scheduler_config=types.SimpleNamespace(async_scheduling=False),
                                         kv_transfer_config=types.SimpleNamespace(kv_connector_extra_config=budget))

        one, two = (types.SimpleNamespace(kv_cache_groups=[None] * groups) for groups in (1, 2))
        budget = {"sync_load_budget_bytes": 1 << 20}
        check_sync_loads(config({}, True), two)
        check_sync_loads(config(budget, False), one)
        with self.assertRaisesRegex(ValueError, "sync_load_budget_bytes.*: leave that out"):
            check_sync_loads(config(budget, True), one)
        with self.assertRaisesRegex(ValueError, 'several KV cache groups .* leave out "sync_load_budget_bytes"'):
            check_sync_loads(config(budget, False), two)

    def request(self, name, hashes, more=1):
        tokens = len(hashes) * self.TOKENS + more
        return types.SimpleNamespace(request_id=name, block_hashes=hashes, num_tokens=tokens, num_prompt_tokens=tokens,
                                     skip_reading_prefix_cache=False, all_token_ids=list(range(tokens)),
                                     lora_request=None, mm_features=(), cache_salt="salt", prompt_embeds=None,
                                     session_id=None)

    def step(self, new=(), old=(), preempted=(), told=True):
        """Run a step with new requests (request, blocks, computed, scheduled) and old ones (request, new blocks,
        computed, scheduled). The model writes the scheduled complete blocks."""
        cached = types.SimpleNamespace(
            req_ids=[r.request_id for r, *_ in old], resumed_req_ids=set(), new_block_ids=[(b, ) for _, b, *_ in old],
            num_computed_tokens=[c for _, _, c, _ in old])
        output = types.SimpleNamespace(
            scheduled_new_reqs=[types.SimpleNamespace(req_id=r.request_id, block_ids=(b, ), num_computed_tokens=c)
                                for r, b, c, _ in new],
            scheduled_cached_reqs=cached, preempted_req_ids=set(preempted),
            num_scheduled_tokens={r.request_id: n for r, _, _, n in [*new, *old]})
        meta = pickle.loads(pickle.dumps(self.scheduler.build_connector_meta(output)))
        self.worker.handle_preemptions(meta)
        if meta.loads:
            self.worker.start_load_kv(meta)
        for name in self.shape.names:
            self.worker.wait_for_layer_load(name)
            self.worker.save_kv_layer(name, meta)
        if not meta.loads:
            self.worker.start_load_kv(meta)
        self.worker.wait_for_save()
        self.worker._mover.drain()
        failed = self.worker.get_block_ids_with_load_errors()
        worker_meta = self.worker.build_connector_worker_meta()
        if told and worker_meta is not None:
            self.scheduler.update_connector_output(worker_meta)
        return meta, failed, worker_meta

    def begin(self, request, blocks, local=0):
        """Add a request; returns the loadable tokens and its schedule."""
        found = self.scheduler.get_num_new_matched_tokens(request, local)
        self.scheduler.update_state_after_alloc(request, found)
        return request, blocks, local + found, request.num_tokens - local - found

    def stored(self, hashes):
        return self.scheduler.find.present(hashes)

    def test_round(self):
        """Complete blocks are stored in the step that computes them, and loaded layer by layer by another request"""
        hashes = [ident() for _ in range(3)]
        meta, *_ = self.step([self.begin(self.request("r", hashes), [1, 2, 3, 4])])
        self.assertEqual([(m.ids, m.blocks, m.parent) for m in meta.stores], [(hashes, [1, 2, 3], None)])
        self.assertEqual(self.counted("store_blocks"), 6)
        was = {name: tensor.clone() for name, tensor in self.cache.items()}
        meta, failed, _ = self.step([self.begin(self.request("s", hashes), [5, 6, 7, 8])])
        self.assertEqual([(m.ids, m.blocks) for m in meta.loads], [(hashes, [5, 6, 7])])
        self.assertFalse(failed or meta.stores)
        for name, tensor in self.cache.items():
            self.assertTrue(torch.equal(tensor[5:8], was[name][1:4]))
            self.assertTrue(torch.equal(tensor[8:], was[name][8:]))
        # a single lookup per request
        self.assertEqual(self.counted("lookup_calls"), 2)
        self.assertEqual(self.scheduler.find.leases(), 0)

    def test_partial(self):
        """The tail of a prompt is not stored, and its last token is always computed"""
        hashes = [ident() for _ in range(2)]
        request = self.request("r", hashes, more=0)
        self.step([self.begin(request, [1, 2])])
        self.assertEqual(self.stored(hashes), [True, True])
        self.assertEqual(self.begin(self.request("s", hashes, more=0), [])[2], self.TOKENS)
        # a prefill chunk that ends within a block
        hashes = [ident() for _ in range(2)]
        request = self.request("t", hashes)
        self.begin(request, [1, 2, 3])
        meta, *_ = self.step([(request, [1, 2], 0, 20)])
        self.assertEqual(meta.stores[0].ids, hashes[:1])
        meta, *_ = self.step(old=[(request, [3], 20, 13)])
        self.assertEqual((meta.stores[0].ids, meta.stores[0].parent), (hashes[1:], hashes[0]))

    def test_early(self):
        """The first layers' values are loaded first"""
        hashes = [ident() for _ in range(2)]
        self.step([self.begin(self.request("r", hashes), [1, 2, 3])])
        with mock.patch.object(self.worker._mover, "get", wraps=self.worker._mover.get) as get:
            self.step([self.begin(self.request("s", hashes), [4, 5, 6])])
        keys = [call.args[1] for call in get.call_args_list]
        self.assertEqual(keys, [self.shape.keys.of_rank(0, hashes, part) for part in range(2)])

    @on_fake
    def test_waits_for_layers(self):
        """A layer waits for its own values, not for those of later layers"""
        hashes = [ident() for _ in range(2)]
        self.step([self.begin(self.request("r", hashes), [1, 2, 3])])
        self.worker.shutdown()
        options = dataclasses.replace(self.options, threads=1)
        self.worker = KvblkConnectorWorker(self.shape, options, 0, self.cache, self.BLOCKS)
        self.addCleanup(self.worker.shutdown)
        was = {name: tensor.clone() for name, tensor in self.cache.items()}
        names = self.shape.names
        with gate() as go_on:
            self.worker.start_load_kv(metadata.KvblkMetadata(9, loads=[metadata.Move("s", hashes, [5, 6])]))
            for early, late in ((names[:2], names[2:]), (names[2:], [])):
                waiter = threading.Thread(target=self.worker.wait_for_layer_load, args=(early[-1], ))
                waiter.start()
                waiter.join(0.05)
                self.assertTrue(waiter.is_alive())
                go_on(1)
                waiter.join(10)
                self.assertFalse(waiter.is_alive())
                for name in early:
                    self.assertTrue(torch.equal(self.cache[name][5:7], was[name][1:3]))
                for name in late:
                    self.assertTrue(torch.equal(self.cache[name], was[name]))
        self.worker.wait_for_save()
        self.assertEqual(self.worker.build_connector_worker_meta().steps, {9: 1})

    def test_layer_of_a_block(self):
        """A block that lacks a layer's value is a miss"""
        hashes = [ident() for _ in range(2)]
        self.step([self.begin(self.request("r", hashes), [1, 2, 3])])
        self.pool.delete(self.shape.keys.of_rank(0, hashes, 1)[1])
        self.assertEqual(self.begin(self.request("s", hashes), [])[2], self.TOKENS)

    def test_nothing_wrong_is_stored(self):
        """Blocks computed on failed loads are not stored: by their request, by a concurrent one, by a later one"""
        hashes = [ident() for _ in range(6)]
        self.step([self.begin(self.request("r", hashes[:2]), [1, 2, 3])])
        first = self.begin(self.request("s", hashes[:3]), [4, 5, 6, 7])
        self.assertEqual(first[2], 2 * self.TOKENS)
        self.pool.delete(self.shape.keys.of_rank(0, hashes, 1)[1])
        # a request that would share the blocks, which vLLM counts as computed, has to wait; simulate no wait
        beside = self.request("t", hashes[:2] + hashes[3:4])
        self.assertIsNone(self.scheduler.get_num_new_matched_tokens(beside, 2 * self.TOKENS))
        self.scheduler.update_state_after_alloc(beside, 0)
        second = (beside, [4, 5, 8, 9], 2 * self.TOKENS, self.TOKENS + 1)
        meta, failed, worker_meta = self.step([first, second], told=False)
        self.assertEqual(failed, {5})
        self.assertFalse(meta.stores)
        # the next step is planned before the failure is known
        after = self.request("u", hashes[:2] + hashes[4:5])
        self.begin(after, [4, 5, 10, 11], local=2 * self.TOKENS)
        meta, *_ = self.step([(after, [4, 5, 10, 11], 2 * self.TOKENS, self.TOKENS + 1)],
                             [(first[0], [], 49, 1)], told=False)
        self.assertFalse(meta.stores)
        # the blocks also leave vLLM's prefix cache, including the blocks of a request that has ended meanwhile
        self.scheduler.request_finished(after)
        self.assertEqual(self.scheduler.update_connector_output(worker_meta), {*range(5, 12)})
        self.assertFalse(self.scheduler._ended)
        after = self.request("w", hashes[:2] + hashes[4:5])
        self.begin(after, [4, 5, 10, 11], local=2 * self.TOKENS)
        self.step([(after, [4, 5, 10, 11], 2 * self.TOKENS, self.TOKENS + 1)], told=False)
        # vLLM recomputes the blocks; another request shares them meanwhile
        late = self.request("v", hashes[:2] + hashes[5:])
        self.begin(late, [4, 5, 12, 13], local=2 * self.TOKENS)
        self.step([(late, [4, 5, 12, 13], 2 * self.TOKENS, self.TOKENS + 1)],
                  [(first[0], [], self.TOKENS, 33), (beside, [], 49, 1)])
        self.step(old=[(r, [], 49, 1) for r in (first[0], beside, after, late)])
        self.assertEqual(self.stored(hashes[2:]), [False] * 4)
        # overwritten blocks may be stored again
        self.assertFalse(self.scheduler._tainted)

    def test_loads_first(self):
        """A request with loads stores its blocks once the loads are known to have succeeded"""
        hashes = [ident() for _ in range(3)]
        self.step([self.begin(self.request("r", hashes[:2]), [1, 2, 3])])
        request = self.request("s", hashes)
        meta, _, worker_meta = self.step([self.begin(request, [4, 5, 6, 7])], told=False)
        self.assertEqual((len(meta.loads), meta.stores), (1, []))
        meta, *_ = self.step(old=[(request, [], 49, 1)], told=False)
        self.assertEqual(meta.stores, [])
        self.scheduler.update_connector_output(worker_meta)
        meta, *_ = self.step(old=[(request, [], 50, 1)])
        self.assertEqual([(m.ids, m.blocks, m.parent) for m in meta.stores], [(hashes[2:], [6], hashes[1])])

    def test_all_ranks(self):
        """A load has succeeded if it did on all ranks"""
        self.scheduler.shape.world = 2
        hashes = [ident() for _ in range(2)]
        self.step([self.begin(self.request("r", hashes[:1]), [1, 2])])
        request = self.request("s", hashes)
        _, _, worker_meta = self.step([self.begin(request, [4, 5, 6])], told=False)
        self.scheduler.update_connector_output(worker_meta)
        self.assertEqual(self.scheduler.find.leases(), 1)
        self.assertEqual(self.step(old=[(request, [], 33, 1)])[0].stores, [])
        self.scheduler.update_connector_output(worker_meta)
        self.assertEqual(self.scheduler.find.leases(), 0)
        self.assertEqual(len(self.step(old=[(request, [], 34, 1)])[0].stores), 1)
        both = worker_meta.aggregate(metadata.KvblkWorkerMetadata({1: 1, 9: 1}, {3}))
        self.assertEqual((both.failed, both.steps[9]), ({3}, 1))

    def test_finish(self):
        """Blocks of a request are kept until its stores complete, and no longer"""
        hashes = [ident()]
        request = self.request("r", hashes)
        with mock.patch.object(self.worker._mover, "poll"), mock.patch.object(self.worker._mover, "drain"):
            self.step([self.begin(request, [1, 2])])
            self.assertTrue(self.scheduler.request_finished(request))
            self.step()
            self.assertEqual(self.worker.get_finished(), set())
        self.worker.handle_preemptions(metadata.KvblkMetadata(0, preempted={"r"}))
        self.assertEqual(self.worker.get_finished(), {"r"})
        self.assertEqual(self.worker.get_finished(), set())
        other = self.request("s", [ident()])
        self.step([self.begin(other, [3, 4])])
        self.assertFalse(self.scheduler.request_finished(other))
        self.step()
        self.assertEqual(self.worker.get_finished(), set())
        # all stores were reported with the steps
        self.assertFalse(self.worker._stores_of or self.worker._stored)

    @on_fake
    def test_stores_at_end(self):
        """A worker's shutdown waits for stores in flight"""
        hashes = [ident() for _ in range(2)]
        with fault(DELAY_MS=400), mock.patch.object(self.worker._mover, "drain"):
            self.step([self.begin(self.request("r", hashes), [1, 2, 3])])
            self.worker.shutdown()
        self.assertEqual(self.stored(hashes), [True] * 2)

    def test_preempted(self):
        """A preempted request restarts with other blocks"""
        hashes = [ident() for _ in range(2)]
        request = self.request("r", hashes)
        self.begin(request, [1, 2, 3])
        self.step([(request, [1, 2], 0, 20)])
        self.step(preempted=["r"])
        found = self.scheduler.get_num_new_matched_tokens(request, 0)
        self.assertEqual(found, self.TOKENS)

    def test_reset(self):
        """After a reset, older blocks are not found"""
        hashes = [ident() for _ in range(2)]
        self.step([self.begin(self.request("r", hashes), [1, 2, 3])])
        self.scheduler.reset_cache()
        self.assertEqual(self.begin(self.request("s", hashes), [])[2], 0)

    def test_events(self):
        """KV events report stored blocks with their tokens, and lost blocks"""
        hashes = [ident() for _ in range(3)]
        outside = [kv_cache_utils.maybe_convert_block_hash(block) for block in hashes]
        request = self.request("r", hashes)
        with mock.patch.object(self.worker._mover, "poll"), mock.patch.object(self.worker._mover, "drain"):
            self.step([self.begin(request, [1, 2, 3, 4])])
            self.assertEqual(self.scheduler.take_events(), [])
            # the stores complete after the request
            self.assertTrue(self.scheduler.request_finished(request))
        self.worker._mover.drain()
        self.pool.delete(self.shape.keys.all(hashes)[4])
        self.step()
        events = self.scheduler.take_events()
        self.assertEqual([(e.block_hashes, e.parent_block_hash, e.token_ids, e.medium, e.ownership) for e in events],
                         [([outside[i]], outside[i - 1] if i else None, list(range(i * 16, i * 16 + 16)), "STORAGE",
                           "kvblk") for i in range(2)])
        self.assertEqual([e.extra_keys for e in events], [[("salt", )], [None]])
        self.assertFalse(self.scheduler._finished)
        self.pool.delete(self.shape.keys.all(hashes)[2])
        request = self.request("s", hashes[:2])
        self.step([self.begin(request, [5, 6, 7])])
        self.step(old=[(request, [], 33, 1)])
        gone, back = self.scheduler.take_events()
        self.assertEqual((gone.block_hashes, gone.medium, gone.ownership), (outside[1:2], "STORAGE", "kvblk"))
        self.assertEqual(back.block_hashes, outside[1:2])
        self.scheduler.reset_cache()
        gone, = self.scheduler.take_events()
        self.assertEqual(gone.block_hashes, outside[:2])

    def test_order(self):
        """Layers sort by number"""
        names = ["l.10.a", "l.2.a", "l.1.a"]
        self.assertEqual(sorted(names, key=metadata.layer_order), ["l.1.a", "l.2.a", "l.10.a"])


class SlabTest(WithPool):
    def test_order(self):
        """On a GPU a transfer starts after the earlier work of its stream"""
        tensor = torch.zeros(PAGE, dtype=torch.int8)
        mover = slab.Mover(self.pool, Options(pool=POOL), report.Report("test"), [tensor], PAGE, PAGE)
        over = threading.Event()
        import queue
        mover.PATIENCE = 0.002
        mover._event = lambda: types.SimpleNamespace(synchronize=over.wait)
        mover._ordered = queue.SimpleQueue()
        mover._thread = threading.Thread(target=mover._in_order, daemon=True)
        mover._thread.start()
        block = self.KEYS.all([ident()])
        done = []
        mover.put(slab.Transfer(done.append), block, [[(tensor.data_ptr(), PAGE)]], None)
        mover.poll(0.01)
        self.assertFalse(done or block[0] in self.pool)
        over.set()
        mover.drain()
        self.assertTrue(done and block[0] in self.pool)
        # a failed event, as of a lost GPU, fails the transfer
        mover._event = lambda: types.SimpleNamespace(synchronize=mock.Mock(side_effect=RuntimeError("lost")))
        got = []
        mover.get(slab.Transfer(done.append), block, [[(tensor.data_ptr(), PAGE)]], lambda *a: got.append(a))
        mover.drain()
        self.assertEqual(got, [(0, [False])])
        self.assertTrue(done[-1].failed)
        mover.close()

    def test_report(self):
        """An error is logged with a rate limit, and names its part of the adapter"""
        told = report.Report("test")
        with self.assertLogs("vllm.kvblk", "WARNING") as logged:
            for _ in range(5):
                told.tell("reading", KvblkError(errno.EIO))
            told.tell("reading", KvblkError(errno.ETIME))
        self.assertEqual(len(logged.records), 2)
        self.assertIn("kvblk test: reading: [Errno 5]", logged.output[0])


if __name__ == "__main__":
    sys.exit(tap.main("vllm"))
