# SPDX-License-Identifier: MIT
"""The backend with SGLang's own host pools, factory and fault injector, on the emulated pool; without an engine."""

import errno
import hashlib
import logging
import os
import threading
import time
import unittest
import unittest.mock
from types import SimpleNamespace

import kvblk
import torch
from sglang.srt.mem_cache.hicache_storage import (
    HiCacheStorageExtraInfo,
    HiCacheStorageFailureInjector,
    PoolHitPolicy,
    PoolName,
    PoolTransfer,
    PoolTransferResult,
)
from sglang.srt.mem_cache.memory_pool_host import LogicalHostPool
from sglang.srt.mem_cache.storage import StorageBackendFactory
from sglang.srt.observability.metrics_collector import StorageMetrics

import kvblk_sglang.backend
import kvblk_sglang.pages
from pools import FAKE, PAGE, POOL, config, fill, indices, mha, mla, page_bytes
from salts import SALT, salt_file

LAYOUTS = {
    **{f"mha {layout}": (mha, layout, segments) for layout, segments in
       (("page_first", 2), ("page_first_direct", 2), ("layer_first", 8), ("page_head", 2))},
    **{f"mla {layout}": (mla, layout, segments) for layout, segments in
       (("page_first", 1), ("page_first_direct", 1), ("layer_first", 4))},
}
_run = os.urandom(6).hex()
_fresh = iter(range(1 << 30))


def hashes(count, what=None):
    """Return unique keys in SGLang's format."""
    what = next(_fresh) if what is None else what
    return [hashlib.sha256(f"{_run} {what} {i}".encode()).hexdigest() for i in range(count)]


class Spy:
    """A pool that records its calls, and fails on request."""

    def __init__(self, pool):
        self.pool = pool
        self.calls = []
        self.fail = {}

    def __getattr__(self, name):
        method = getattr(self.pool, name)

        def call(*args, **options):
            self.calls.append((name, args, options))
            if name in self.fail:
                raise self.fail[name]
            return method(*args, **options)
        return call

    def __contains__(self, key):
        if "lookup" in self.fail:
            raise self.fail["lookup"]
        return key in self.pool

    def of(self, name):
        return [(args, options) for called, args, options in self.calls if called == name]


#: arguments of SGLang for the keys
ARGS = dict.fromkeys(("model_path", "revision", "quantization", "quantization_param_path", "json_model_override_args",
                      "speculative_algorithm", "speculative_draft_model_path", "speculative_draft_model_revision",
                      "speculative_draft_model_quantization", "speculative_draft_kv_cache_dtype", "tokenizer_path",
                      "context_length", "load_format"))
ARGS.update(model_path="/model", kv_cache_dtype="auto", dtype="bfloat16")


class Case(unittest.TestCase):
    def setUp(self):
        started = unittest.mock.patch.object(kvblk_sglang.pages, "server_args", lambda: SimpleNamespace(**ARGS))
        started.start()
        self.addCleanup(started.stop)
        for name in ("LOSE", "DECLINE", "CORRUPT"):
            os.environ.pop(f"KVBLK_FAKE_{name}", None)
        self.addCleanup(lambda: [os.environ.pop(f"KVBLK_FAKE_{n}", None) for n in ("LOSE", "DECLINE", "CORRUPT")])

    def backend(self, host_pool=None, extra=None, pools=None, **changes):
        """Create a backend as SGLang does: by its factory, then with its host pools."""
        made = StorageBackendFactory.create_backend("dynamic", config(extra, **changes), host_pool)
        self.addCleanup(made.close)
        made._pool = made._checked._pool = Spy(made._pool)
        if host_pool is not None:
            made.register_mem_pool_host(host_pool)
            for name, pool in (pools or {}).items():
                made.register_mem_host_pool_v2(pool, name)
            made.on_host_pools_registered()
        return made


class Configuration(Case):
    def refused(self, sentence, extra=None, drop=(), error=ValueError, **changes):
        given = config(extra, **changes)
        for name in drop:
            del given.extra_config[name]
        with self.assertRaisesRegex(error, sentence):
            StorageBackendFactory.create_backend("dynamic", given, None)

    def test_unknown_option(self):
        self.refused("unknown option 'lease'; there are pool, ", {"lease": 3})
        self.refused("threads of its own", {"threads": 8})

    def test_pool_missing(self):
        self.refused("\"pool\" is missing", drop=["pool"])

    def test_no_such_pool(self):
        self.refused("the pool 'nobody' can't be opened: .*errno", {"pool": "nobody"}, error=RuntimeError)

    def test_bad_values(self):
        for name, value in (("lease_s", -1), ("lease_s", 4000), ("timeout_s", 0), ("timeout_s", "10"), ("ttl_s", -1),
                            ("priority", 4), ("priority", 1.5), ("priority", True), ("hard_deadline", 1),
                            ("salt", 3), ("salt", "a\0b"), ("model", None), ("pool", ""), ("pool", 1)):
            with self.subTest(name=name, value=value):
                self.refused(f"option \"?{name}", {name: value})

    def test_salt_refused(self):
        """A salt that others may read is an error, and not left out of the keys"""
        self.refused("others may read it", {"salt_file": salt_file(self, 0o644)}, error=RuntimeError)

    def test_no_model(self):
        with unittest.mock.patch.dict(ARGS, model_path=None):
            self.refused("set the option 'model'", model_name=None)

    def test_part_of_the_key_unknown(self):
        """If SGLang has renamed or lacks a part of the key, startup fails"""
        for name in ARGS:
            args = SimpleNamespace(**{n: v for n, v in ARGS.items() if n != name})
            with self.subTest(name), unittest.mock.patch.object(kvblk_sglang.pages, "server_args", lambda: args):
                self.refused(f"has no {name}, which has to be in the keys")
        for name, make in (("head_num", mha), ("v_head_dim", mha), ("layout", mha), ("dtype", mha),
                           ("kv_cache_dim", mla), ("dsa_kv_cache_store_fp8", mla)):
            pool = make()
            delattr(pool, name)
            with self.subTest(name), self.assertRaisesRegex(ValueError, f"has no {name}, which"):
                origin = kvblk_sglang.pages.Origin(config(), "", "")
                origin.space("kv", pool, [1])
        with self.assertRaisesRegex(ValueError, "of the class Other .* is not known"):
            origin.space("kv", type("Other", (), {"dtype": torch.uint8})(), [1])

    def test_no_arguments(self):
        """Without SGLang's arguments startup fails, too"""
        unittest.mock.patch.stopall()
        for answer in ({"return_value": None}, {"side_effect": AttributeError("server_args")}):
            with unittest.mock.patch("sglang.srt.runtime_context.get_server_args", **answer):
                self.refused("SGLang's arguments")

    def test_version(self):
        """An untested version fails at startup, unless it is allowed"""
        with unittest.mock.patch("kvblk_sglang.options.VERSION", "0.5.230"):
            self.refused("tested with SGLang 0.5.23, and 0.5.230 is installed")
            self.backend(extra={"any_version": True})
        self.backend(extra={"model": "given"}, model_name=None)

    def test_split_heads(self):
        self.refused("tp_lcm_size", should_split_heads=True)

    def test_options_of_sglang_itself(self):
        self.backend(mha(), {"prefetch_threshold": 1, "hicache_storage_pass_prefix_keys": True, "lease_s": 1,
                             "timeout_s": 5, "ttl_s": 60, "priority": 3, "hard_deadline": True, "salt": "x"})

    def test_layout_without_addresses(self):
        pool = mha()
        with unittest.mock.patch.object(pool, "get_page_buffer_meta", side_effect=ValueError("Unsupported layout")):
            backend = self.backend()
            with self.assertRaisesRegex(ValueError, "gives no addresses.*'kv'.*Unsupported layout"):
                backend.register_mem_pool_host(pool)

    def test_page_longer_than_a_block(self):
        backend = self.backend()
        backend._limits = backend._limits._replace(value_max=4096)
        with self.assertRaisesRegex(ValueError, "use a smaller --page-size"):
            backend.register_mem_pool_host(mha())

    def test_rank_without_memory(self):
        pool = mla()
        pool._is_dummy, pool.kv_buffer = True, None
        with self.assertRaisesRegex(ValueError, "no host memory"):
            self.backend().register_mem_pool_host(pool)

    def test_unusable_side_pool(self):
        backend = self.backend()
        backend.register_mem_pool_host(mha())
        side = mha()
        with unittest.mock.patch.object(side, "get_page_buffer_meta", side_effect=NotImplementedError("no way")):
            backend.register_mem_host_pool_v2(side, PoolName.SWA)
        with self.assertRaisesRegex(ValueError, "'swa'.*no way"):
            backend.on_host_pools_registered()


class Layouts(Case):
    def test_pages_come_back(self):
        for name, (make, layout, segments) in LAYOUTS.items():
            with self.subTest(name):
                pool = make(layout)
                backend = self.backend(pool, is_mla_model=make is mla)
                fill(pool, 1)
                want = [page_bytes(pool, n) for n in (5, 3, 9)]
                keys = hashes(3)
                self.assertEqual(backend.batch_set_v1(keys, indices(5, 3, 9)), [True] * 3)
                fill(pool, 2)
                before = [page_bytes(pool, n) for n in range(64)]
                self.assertEqual(backend.batch_exists(keys + hashes(2)), 3)
                self.assertEqual(backend.batch_get_v1(keys, indices(20, 21, 7)), [True] * 3)
                for number in range(64):
                    place = {20: 0, 21: 1, 7: 2}.get(number)
                    self.assertEqual(page_bytes(pool, number), before[number] if place is None else want[place])
                (_, buffers), _ = backend._pool.of("put_many")[0]
                self.assertEqual([len(pieces) for pieces in buffers], [segments] * 3)

    def test_without_a_copy(self):
        for name, (make, layout, _) in LAYOUTS.items():
            with self.subTest(name):
                pool = make(layout)
                backend = self.backend(pool, is_mla_model=make is mla)
                registered = backend._pool.of("register")
                self.assertEqual(len(registered), 1, "the slab is registered once")
                address, length = registered[0][0][0]
                self.assertEqual((address, length), (pool.kv_buffer.data_ptr(), pool.kv_buffer.nbytes))
                keys = hashes(2)
                backend.batch_set_v1(keys, indices(1, 2))
                backend.batch_get_v1(keys, indices(3, 4))
                for call in ("put_many", "get_many"):
                    for pieces in backend._pool.of(call)[0][0][1]:
                        for at, size in pieces:
                            self.assertTrue(address <= at and at + size <= address + length)

    def test_registration_refused(self):
        pool = mha()
        backend = self.backend()
        backend._pool.fail["register"] = kvblk.KvblkError(errno.ENOMEM)
        with self.assertLogs("kvblk_sglang.backend", "WARNING") as logged:
            backend.register_mem_pool_host(pool)
        self.assertEqual(len(logged.output), 1)
        self.assertIn("ulimit -l", logged.output[0])
        keys = hashes(1)
        self.assertEqual(backend.batch_set_v1(keys, indices(1)), [True])
        self.assertEqual(backend.batch_get_v1(keys, indices(2)), [True])

    def test_copied_pages(self):
        pool = mha("layer_first")
        backend = self.backend(pool, {"interface_v1": 0})
        fill(pool, 3)
        keys = hashes(2)
        want = [page_bytes(pool, n) for n in (0, 1)]
        self.assertTrue(backend.batch_set(keys, [pool.get_data_page(0), pool.get_data_page(PAGE)]))
        self.assertEqual(backend.batch_exists(keys + hashes(1)), 2)
        self.assertTrue(backend.exists(keys[0]))
        self.assertFalse(backend.exists(hashes(1)[0]))
        places = [pool.get_dummy_flat_data_page() for _ in range(3)]
        got = backend.batch_get(keys + hashes(1), places)
        self.assertIs(got[0], places[0])
        self.assertIsNone(got[2])
        self.assertEqual([bytes(p.view(torch.uint8).numpy()) for p in got[:2]], want)
        # segments are ordered differently than in a scatter list, so the two never match
        self.assertEqual(self.backend(pool).batch_exists(keys), 0)

    def test_pages_that_only_count(self):
        side = mla()
        pool = LogicalHostPool(PAGE * 64, PAGE)
        backend = self.backend(pool, pools={PoolName.KV: pool, PoolName.DEEPSEEK_V4_C4: side}, is_mla_model=True)
        keys = hashes(3)
        transfer = PoolTransfer(PoolName.DEEPSEEK_V4_C4, host_indices=indices(0, 1), keys=keys[:2])
        self.assertEqual(backend.batch_set_v1(keys, indices(0, 1, 2)), [True] * 3)
        self.assertEqual(backend.batch_set_v2([transfer]), {PoolName.DEEPSEEK_V4_C4: [True, True]})
        self.assertEqual(backend.batch_exists_v2(keys, [PoolTransfer(PoolName.DEEPSEEK_V4_C4)]).kv_hit_pages, 2)
        self.assertEqual(backend.batch_get_v1(keys, indices(0, 1, 2)), [True] * 3)
        self.assertEqual(backend.batch_exists(keys), 0)


class Keys(Case):
    def test_salt(self):
        """The backend puts the deployment's salt into its keys"""
        self.assertEqual(self.backend(extra={"salt_file": salt_file(self)})._origin.secret, SALT)

    def prefix(self, pool=None, name="kv", extra=None, args=None, **changes):
        backend = self.backend()
        args = SimpleNamespace(**{**ARGS, **(args or {})})
        with unittest.mock.patch.object(kvblk_sglang.pages, "server_args", return_value=args):
            given = config(extra, **changes)
            origin = kvblk_sglang.pages.Origin(given, given.extra_config.get("model", ""),
                                               given.extra_config.get("salt", ""), backend.options.secret())
            del backend
            return kvblk_sglang.pages.Pages(name, pool or mha(), origin).space.prefix

    def test_none_shares_a_key(self):
        args = dict(model_path="/m", revision=None, quantization=None, kv_cache_dtype="auto", dtype="bfloat16",
                    speculative_draft_model_path=None)
        fp8 = mha(dtype=torch.uint8)
        prefixes = {
            "plain": self.prefix(extra={"salt_file": ""}),
            "model name": self.prefix(model_name="other"),
            "model option": self.prefix(extra={"model": "other"}),
            "salt": self.prefix(extra={"salt": "s"}),
            "deployment": self.prefix(extra={"salt_file": salt_file(self)}),
            "deployment and salt": self.prefix(extra={"salt_file": salt_file(self), "salt": "s"}),
            "dtype": self.prefix(mha(dtype=torch.float16)),
            "layout": self.prefix(mha("page_first")),
            "layout 2": self.prefix(mha("layer_first")),
            "layout 3": self.prefix(mha("page_head")),
            "layers": self.prefix(mha(layers=2)),
            "heads": self.prefix(mha(heads=4, dim=32)),
            "head size": self.prefix(mha(heads=1, dim=128)),
            "page size": self.prefix(mha(page=32)),
            "mla": self.prefix(mla()),
            "pool": self.prefix(name="swa"),
            "tp size": self.prefix(tp_size=2),
            "tp rank": self.prefix(tp_size=2, tp_rank=1),
            "pp": self.prefix(pp_size=2),
            "pp rank": self.prefix(pp_size=2, pp_rank=1),
            "cp": self.prefix(attn_cp_size=2),
            "cp rank": self.prefix(attn_cp_size=2, attn_cp_rank=1),
            "server": self.prefix(args=args),
            "path": self.prefix(args={**args, "model_path": "/n"}),
            "revision": self.prefix(args={**args, "revision": "2"}),
            "quantization": self.prefix(args={**args, "quantization": "awq"}),
            "overrides": self.prefix(args={**args, "json_model_override_args": '{"rope_theta": 5e5}'}),
            "length": self.prefix(args={**args, "context_length": 1024}),
            "random": self.prefix(args={**args, "load_format": "dummy"}),
            "uint8": self.prefix(fp8, args=args),
            "e4m3": self.prefix(fp8, args={**args, "kv_cache_dtype": "fp8_e4m3"}),
            "e5m2": self.prefix(fp8, args={**args, "kv_cache_dtype": "fp8_e5m2"}),
            "draft": self.prefix(name="draft", args=args),
            "draft model": self.prefix(name="draft", args={**args, "speculative_draft_model_path": "/d"}),
        }
        names = {}
        for name, prefix in prefixes.items():
            self.assertNotIn(prefix, names, f"{name} is like {names.get(prefix)}")
            names[prefix] = name

    def test_same_again(self):
        self.assertEqual(self.prefix(), self.prefix())
        # replicas and data-parallel ranks share pages
        self.assertEqual(self.prefix(), self.prefix(dp_rank=3))
        # a draft model does not change the target model's keys, unless its layers share the pages
        args = dict(model_path="/m")
        drafted = dict(args, speculative_draft_model_path="/d")
        self.assertEqual(self.prefix(args=args), self.prefix(args=drafted))
        packed = mha()
        packed.target_layer_num = 3
        self.assertNotEqual(self.prefix(packed, args=args), self.prefix(packed, args=drafted))
        # the served name does not matter if the option model is set
        self.assertEqual(self.prefix(extra={"model": "m"}), self.prefix(extra={"model": "m"}, model_name="prod"))

    def test_mla_ranks(self):
        def of(rank, pool, name="kv"):
            return self.prefix(pool, name, is_mla_model=True, tp_rank=rank, tp_size=2)
        self.assertEqual(of(0, mla()), of(1, mla()))
        self.assertEqual(of(0, mla()), self.prefix(mla(), is_mla_model=True))
        self.assertNotEqual(of(0, mla(), "mamba"), of(1, mla(), "mamba"))
        self.assertNotEqual(of(0, mha(), "draft"), of(1, mha(), "draft"))
        self.assertEqual(of(0, mla(), "draft"), of(1, mla(), "draft"))

    def test_ids(self):
        self.assertEqual(kvblk_sglang.pages.page_id("ab" * 32), b"\xab" * 32)
        odd = [kvblk_sglang.pages.page_id(key) for key in ("x", "ab" * 31, " ".join(["ab"] * 32), "", "ab" * 33, "é")]
        self.assertEqual({len(one) for one in odd}, {32})
        self.assertEqual(len(set(odd)), len(odd))

    def test_other_model_misses(self):
        pool = mha()
        keys = hashes(2)
        self.assertEqual(self.backend(pool).batch_set_v1(keys, indices(0, 1)), [True, True])
        other = self.backend(pool, model_name="other")
        self.assertEqual(other.batch_exists(keys), 0)
        self.assertEqual(other.batch_get_v1(keys, indices(0, 1)), [False, False])
        self.assertEqual(self.backend(pool).batch_exists(keys), 2)


class Lookups(Case):
    def stored(self, count, **more):
        pool = mha()
        backend = self.backend(pool, **more)
        keys = hashes(count)
        self.assertEqual(backend.batch_set_v1(keys, indices(*range(count))), [True] * count)
        self.released = []
        release = kvblk.Lease.release
        patch = unittest.mock.patch.object(kvblk.Lease, "release", autospec=True,
                                           side_effect=lambda lease: (self.released.append(lease), release(lease)))
        patch.start()
        self.addCleanup(patch.stop)
        return backend, keys

    def test_leading_run(self):
        backend, keys = self.stored(4)
        hole = keys[:2] + hashes(1) + keys[2:]
        self.assertEqual(backend.batch_exists(hole), 2)
        self.assertEqual(backend.batch_exists(hashes(1) + keys), 0)
        self.assertEqual(backend.batch_exists([]), 0)
        self.assertEqual([len(args[0]) for args, _ in backend._pool.of("lookup")], [5, 5], "one call each")

    def test_load_or_compute(self):
        backend, keys = self.stored(4, extra={"block_compute_ms": 100})
        lookup = backend._pool.pool.lookup

        def slow(*args, **options):
            found = lookup(*args, **options)
            found.times = [0.05, 0.06, 2, 2]
            return found

        self.assertEqual(backend.batch_exists(keys), 4)
        with unittest.mock.patch.object(backend._pool.pool, "lookup", slow):
            self.assertEqual(backend.batch_exists(keys), 2)

    def test_load_ends_lease(self):
        backend, keys = self.stored(4, extra={"lease_s": 7})
        self.assertEqual(backend.batch_exists(keys + hashes(3)), 4)
        self.assertEqual(backend._pool.of("lookup")[0][1], {"lease": 7, "prefix": True, "sizes": True})
        self.assertEqual((len(backend._leases), self.released), (1, []))
        backend.batch_get_v1(keys[:3], indices(1, 2, 3))
        self.assertEqual((len(backend._leases), self.released), (1, []))
        backend.batch_get_v1(keys[3:], indices(4))
        self.assertEqual((len(backend._leases), len(self.released)), (0, 1))
        self.assertEqual(backend._leases._of_name, {})

    def test_failed_load_ends_lease(self):
        backend, keys = self.stored(2)
        backend.batch_exists(keys)
        backend._pool.fail["get_many"] = kvblk.KvblkError(errno.ENODEV)
        self.assertEqual(backend.batch_get_v1(keys, indices(1, 2)), [False, False])
        self.assertEqual(len(self.released), 1)
        del backend._pool.fail["get_many"]
        backend.batch_exists(keys)
        self.assertEqual(backend.batch_get_v1(keys, indices(1)), [False, False], "a page has no place")
        self.assertEqual(len(self.released), 2)

    def test_two_requests(self):
        backend, keys = self.stored(2)
        backend.batch_exists(keys)
        backend.batch_exists(keys)
        backend.batch_get_v1(keys, indices(1, 2))
        self.assertEqual((len(backend._leases), len(self.released)), (1, 1))
        backend.batch_get_v1(keys, indices(1, 2))
        self.assertEqual((len(backend._leases), len(self.released)), (0, 2))

    def test_lease_of_revoked_prefetch(self):
        backend, keys = self.stored(2, extra={"lease_s": 0.01})
        backend.batch_exists(keys)
        time.sleep(0.02)
        backend.batch_exists(hashes(1))
        self.assertEqual((len(backend._leases), backend._leases._of_name), (0, {}))
        self.assertEqual(backend.get_stats().kvblk["lease_expired"], 1)

    def test_close_ends_leases(self):
        backend, keys = self.stored(2)
        backend.batch_exists(keys)
        backend.close()
        self.assertEqual(len(self.released), 1)

    def test_release_that_fails(self):
        backend, keys = self.stored(1)
        backend.batch_exists(keys)
        with unittest.mock.patch.object(kvblk.Lease, "release", side_effect=kvblk.KvblkError(errno.ENODEV)):
            self.assertEqual(backend.batch_get_v1(keys, indices(1)), [True])

    def test_more_than_a_lookup_takes(self):
        backend, keys = self.stored(20)
        with unittest.mock.patch.object(kvblk.pool, "LOOKUP_MAX", 8):
            self.assertEqual(backend.batch_exists(keys + hashes(9)), 20)
            self.assertEqual(len(backend._leases), 1)
            self.assertEqual(backend.batch_exists(keys[:3] + hashes(8)), 3)
        backend.batch_get_v1(keys, indices(*range(20)))
        self.assertEqual(len(backend._leases), 1)


class Loads(Case):
    @unittest.skipUnless(FAKE, "a pool that loses blocks on demand")
    def test_lost(self):
        pool = mha()
        backend = self.backend(pool)
        fill(pool, 1)
        keys = hashes(4)
        backend.batch_set_v1(keys, indices(0, 1, 2, 3))
        self.assertEqual(backend.batch_exists(keys), 4)
        os.environ["KVBLK_FAKE_LOSE"] = "2"
        got = backend.batch_get_v1(keys, indices(10, 11, 12, 13))
        self.assertEqual(sorted(got), [False, False, True, True])
        for i, good in enumerate(got):
            if good:
                self.assertEqual(page_bytes(pool, 10 + i), page_bytes(pool, i))
        self.assertEqual(backend.report.counts()["load_misses"], 2)

    def test_other_length(self):
        pool = mha()
        backend = self.backend(pool)
        keys = hashes(3)
        ids = backend._kv.keys(keys)
        with kvblk.Pool(POOL) as other:
            other.put(ids[0], b"x" * 4096)
            other.put(ids[1], b"x" * (backend._kv.nbytes + 4096))
            other.put(ids[2], b"x" * backend._kv.nbytes)
        self.assertEqual(backend.batch_get_v1(keys, indices(0, 1, 2)), [False, False, True])
        self.assertEqual(backend.report.counts()["wrong_blocks"], 2)
        self.assertEqual(backend.report.counts()["load_errors"], 0)
        self.assertEqual(backend.batch_exists(keys), 0)
        self.assertEqual(backend.batch_set_v1(keys, indices(0, 1, 2)), [True] * 3)

    def test_other_length_is_replaced(self):
        """A page of another length is not a hit, and is deleted, so that the right one can be stored"""
        for ask in (lambda b, keys: b.batch_exists(keys), lambda b, keys: b.exists(keys[0]),
                    lambda b, keys: b.batch_exists_v2(keys, []).kv_hit_pages,
                    lambda b, keys: sum(b.batch_set_v1(keys, indices(0)))):
            backend = self.backend(mha())
            keys = hashes(1)
            key, = backend._kv.keys(keys)
            with kvblk.Pool(POOL) as other:
                other.put(key, b"x" * 10)
                self.assertFalse(ask(backend, keys))
                self.assertNotIn(key, other)
            self.assertEqual(backend.batch_set_v1(keys, indices(0)), [True])
            self.assertEqual(backend.batch_exists(keys), 1)

    def test_one_fails(self):
        backend = self.backend(mha())
        keys = hashes(3)
        backend.batch_set_v1(keys, indices(0, 1, 2))
        real = backend._pool.pool.get_many

        def get_many(*args, **options):
            results = real(*args, **options)
            results[1] = kvblk.KvblkError(errno.ETIME)
            return results
        with unittest.mock.patch.object(backend._pool.pool, "get_many", get_many), \
                self.assertLogs("kvblk_sglang.backend", "WARNING") as logged:
            self.assertEqual(backend.batch_get_v1(keys, indices(0, 1, 2)), [True, False, True])
            self.assertEqual(backend.batch_get_v1(keys, indices(0, 1, 2)), [True, False, True])
        self.assertEqual(len(logged.output), 1, "once in a while")
        self.assertIn(f"Errno {errno.ETIME}", logged.output[0])

    def test_deadline(self):
        backend = self.backend(mha(), {"timeout_s": 3, "hard_deadline": True})
        backend.batch_get_v1(hashes(1), indices(0))
        backend.batch_set_v1(hashes(1), indices(0))
        self.assertEqual(backend._pool.of("get_many")[0][1], {"timeout": 3, "hard_deadline": True})
        self.assertEqual(backend._pool.of("put_many")[0][1]["timeout"], 3)

    def test_split(self):
        count = 2500
        pool = mha(layers=1, heads=1, dim=8, page=4, pages=count)
        backend = self.backend(pool)
        fill(pool, 1)
        keys = hashes(count)
        where = torch.arange(count * 4)
        self.assertEqual(backend.batch_set_v1(keys, where), [True] * count)
        want = bytes(pool.kv_buffer.view(torch.uint8).numpy())
        fill(pool, 2)
        self.assertEqual(backend.batch_exists(keys), count)
        self.assertEqual(backend.batch_get_v1(keys, where), [True] * count)
        self.assertEqual(bytes(pool.kv_buffer.view(torch.uint8).numpy()), want)
        for call in ("put_many", "get_many"):
            self.assertEqual([len(args[0]) for args, _ in backend._pool.of(call)], [count])
        self.assertEqual(len(backend._leases), 0)


class Stores(Case):
    def test_chain(self):
        backend = self.backend(mha(pages=130), {"priority": 2, "ttl_s": 60})
        keys = hashes(131)
        info = HiCacheStorageExtraInfo(prefix_keys=keys[:1])
        backend.batch_set_v1(keys[1:3], indices(0, 1), info)
        backend.batch_set_v1(keys[3:131], indices(*range(128)), HiCacheStorageExtraInfo())
        first, second = [options for _, options in backend._pool.of("put_many")]
        self.assertEqual(first, dict(chain=True, continues=False, parent=backend._kv.keys(keys[:1])[0], priority=2,
                                     ttl=60, timeout=10))
        self.assertEqual((second["parent"], second["continues"]), (b"", True))

    def test_again(self):
        backend = self.backend(mha())
        keys = hashes(2)
        for _ in range(2):
            self.assertEqual(backend.batch_set_v1(keys, indices(0, 1)), [True, True])
        self.assertEqual((backend.report.counts()["store_blocks"], backend.report.counts()["store_present"]), (2, 2))

    @unittest.skipUnless(FAKE, "a pool that declines on demand")
    def test_declined(self):
        backend = self.backend(mha())
        os.environ["KVBLK_FAKE_DECLINE"] = "1"
        keys = hashes(2)
        with self.assertNoLogs("kvblk_sglang.backend", "WARNING"):
            self.assertEqual(backend.batch_set_v1(keys, indices(0, 1)), [False, False])
        self.assertEqual(backend.report.counts()["store_declined"], 2)
        self.assertEqual(backend.batch_exists(keys), 0)

    def test_clear(self):
        pool = mha()
        backend, other = self.backend(pool), self.backend(pool, model_name="other")
        keys = hashes(3)
        for one in (backend, other):
            one.batch_set_v1(keys, indices(0, 1, 2))
        self.assertTrue(backend.clear())
        self.assertEqual((backend.batch_exists(keys), other.batch_exists(keys)), (0, 3))
        # pages present before, or loaded
        again = self.backend(pool, model_name="other")
        again.batch_get_v1(keys[:2], indices(0, 1))
        self.assertTrue(again.clear())
        self.assertEqual([other.exists(key) for key in keys], [False, False, True])
        other._pool.fail["delete_many"] = kvblk.KvblkError(errno.EIO)
        self.assertFalse(other.clear())
        with unittest.mock.patch.object(kvblk_sglang.backend, "KNOWN_MAX", 2):
            backend.batch_set_v1(hashes(3), indices(0, 1, 2))
        self.assertFalse(backend.clear())

    def test_statistics(self):
        backend = self.backend(mha(), enable_storage_metrics=True)
        keys = hashes(3)
        backend.batch_set_v1(keys, indices(0, 1, 2))
        backend.batch_exists(keys)
        backend.batch_get_v1(keys[:2], indices(0, 1))
        stats = backend.get_stats()
        self.assertIsInstance(stats, StorageMetrics)
        self.assertEqual((stats.backup_pgs, stats.prefetch_pgs), ([3], [2]))
        self.assertGreater(stats.backup_bandwidth[0], 0)
        self.assertGreater(stats.prefetch_bandwidth[0], 0)
        self.assertEqual((stats.kvblk["lookup_hits"], stats.kvblk["load_blocks"]), (3, 2))
        self.assertEqual(backend.get_stats().prefetch_pgs, [], "each is told once")


class SidePools(Case):
    """Interface v2: an ordinary KV pool, an indexer (all pages), a window (trailing pages)."""

    def setUp(self):
        super().setUp()
        self.kv, self.indexer, self.window = mha(), mla(), mla(layers=2)
        self.b = self.backend(self.kv, pools={PoolName.KV: self.kv, PoolName.INDEXER: self.indexer,
                                              PoolName.SWA: self.window})
        self.keys = hashes(6)

    def transfer(self, name, *numbers, keys=None, **more):
        return PoolTransfer(name, host_indices=indices(*numbers) if numbers else None,
                            keys=[self.keys[n] for n in numbers] if keys is None else keys, **more)

    def asked(self, trailing=2):
        return [PoolTransfer(PoolName.INDEXER),
                PoolTransfer(PoolName.SWA, keys=self.keys[-trailing:], hit_policy=PoolHitPolicy.TRAILING_PAGES)]

    def test_round_trip(self):
        pools = {PoolName.KV: self.kv, PoolName.INDEXER: self.indexer, PoolName.SWA: self.window}
        for seed, pool in enumerate(pools.values()):
            fill(pool, seed)
        want = {name: page_bytes(pool, 1) for name, pool in pools.items()}
        puts = [self.transfer(name, 0, 1) for name in pools]
        self.assertEqual(self.b.batch_set_v2(puts), {name: [True, True] for name in pools})
        for pool in pools.values():
            pool.kv_buffer.zero_()
        gets = [self.transfer(name, 9, 8, keys=self.keys[:2]) for name in pools]
        self.assertEqual(self.b.batch_get_v2(gets), {name: [True, True] for name in pools})
        self.assertEqual({name: page_bytes(pool, 8) for name, pool in pools.items()}, want)
        registered = self.b._pool.of("register")
        self.assertEqual(len(registered), 3, "each slab once")

    def test_hits(self):
        self.b.batch_set_v1(self.keys[:5], indices(0, 1, 2, 3, 4))
        self.assertEqual(self.b.batch_exists_v2(self.keys, self.asked()), PoolTransferResult(0, {PoolName.KV: 5}, []))
        self.b.batch_set_v2([self.transfer(PoolName.INDEXER, 0, 1, 2, 3), self.transfer(PoolName.SWA, 0, 2, 3, 4)])
        result = self.b.batch_exists_v2(self.keys, self.asked())
        # complete windows of two pages end at page 1 (its only page) and 4; of 5 pages the indexer lacks the last
        self.assertEqual(result, PoolTransferResult(4, {PoolName.KV: 5, PoolName.INDEXER: 4, PoolName.SWA: 5}, [1, 4]))
        self.assertEqual(self.b.batch_exists_v2(self.keys, self.asked(1)).restorable_prefix_pages, [1, 3, 4])
        self.assertEqual(self.b.batch_exists_v2(self.keys, None).kv_hit_pages, 5)
        self.assertEqual(self.b.batch_exists_v2([], self.asked()).kv_hit_pages, 0)

    def test_calls_and_leases(self):
        for name in (PoolName.KV, PoolName.INDEXER, PoolName.SWA):
            self.b.batch_set_v2([self.transfer(name, 0, 1, 2, 3)])
        result = self.b.batch_exists_v2(self.keys, self.asked())
        self.assertEqual(result.kv_hit_pages, 4)
        self.assertEqual([len(args[0]) for args, _ in self.b._pool.of("lookup")][1:], [8], "one call for all side pools")
        self.assertEqual(len(self.b._leases), 2)
        self.b.batch_get_v1(self.keys[:4], indices(0, 1, 2, 3))
        self.b.batch_get_v2([self.transfer(PoolName.INDEXER, 0, 1, 2, 3)])
        self.assertEqual(len(self.b._leases), 1)
        self.b.batch_get_v2([self.transfer(PoolName.SWA, 2, 3)])
        self.assertEqual(len(self.b._leases), 0, "what is not loaded needs no lease")

    def test_nothing_usable_keeps_no_lease(self):
        self.b.batch_set_v2([self.transfer(PoolName.KV, 0, 1)])
        self.assertEqual(self.b.batch_exists_v2(self.keys, self.asked()).kv_hit_pages, 0)
        self.assertEqual(len(self.b._leases), 0)

    def test_block_groups_have_no_verdict(self):
        self.b.batch_set_v2([self.transfer(PoolName.KV, 0, 1)])
        group = PoolTransfer(PoolName.SWA, hit_policy=PoolHitPolicy.BLOCK_GROUPS)
        self.assertEqual(self.b.batch_exists_v2(self.keys, [group]), PoolTransferResult(2, {PoolName.KV: 2}, [1, 2]))

    def test_bad_transfers(self):
        good = self.transfer(PoolName.KV, 0)
        bad = [PoolTransfer(PoolName.MAMBA, host_indices=indices(0), keys=self.keys[:1]),
               self.transfer(PoolName.INDEXER, 0, keys=self.keys[:2]),
               PoolTransfer(PoolName.SWA, keys=self.keys[:1])]
        want = {PoolName.KV: [True], PoolName.MAMBA: [False], PoolName.INDEXER: [False] * 2, PoolName.SWA: [False]}
        self.assertEqual(self.b.batch_set_v2([good, *bad]), want)
        self.assertEqual(self.b.batch_get_v2([*bad, good]), want)
        unknown = PoolTransfer(PoolName.MAMBA, hit_policy=PoolHitPolicy.TRAILING_PAGES)
        self.assertEqual(self.b.batch_exists_v2(self.keys, [unknown]).kv_hit_pages, 0)

    def test_a_pool_that_comes_later(self):
        late = mla(layers=3)
        self.b.register_mem_host_pool_v2(late, PoolName.DRAFT)
        self.assertEqual(self.b.batch_set_v2([self.transfer(PoolName.DRAFT, 0)]), {PoolName.DRAFT: [True]})
        with unittest.mock.patch.object(late, "get_page_buffer_meta", side_effect=ValueError):
            self.b.register_mem_host_pool_v2(late, PoolName.DRAFT_SWA)
        self.assertEqual(self.b.batch_set_v2([self.transfer(PoolName.DRAFT_SWA, 0)]), {PoolName.DRAFT_SWA: [False]})

    def test_sharded_draft_of_mla(self):
        with self.assertLogs("kvblk_sglang.backend", "WARNING") as logged:
            self.backend(mla(), pools={PoolName.DRAFT: mha()}, is_mla_model=True, tp_size=2)
        self.assertIn("no hits", logged.output[0])


class Storm(Case):
    """No exception reaches SGLang's threads."""

    def answers(self, b, keys, where, transfer):
        """Call the whole data path; returns its results, and those allowed if nothing works."""
        nothing = [False] * len(keys)
        return [
            (b.batch_exists(keys), 0), (b.exists(keys[0]), False),
            (b.batch_exists_v2(keys, [transfer]).kv_hit_pages, 0),
            (b.batch_get_v1(keys, where), nothing), (b.batch_set_v1(keys, where), nothing),
            (b.batch_get_v2([transfer]), {transfer.name: nothing}),
            (b.batch_set_v2([transfer]), {transfer.name: nothing}),
            (b.get(keys[0], torch.zeros(8)), None), (b.batch_get(keys, [torch.zeros(8)] * len(keys)), [None] * len(keys)),
            (b.set(keys[0], torch.zeros(8)), False), (b.batch_set(keys, [torch.zeros(8)] * len(keys)), False),
        ]

    def test_all_fails(self):
        for error in (kvblk.KvblkError(errno.ENODEV), RuntimeError("a defect"), MemoryError(), OSError(5, "x")):
            with self.subTest(error=error):
                pool = mha()
                b = self.backend(pool, pools={PoolName.KV: pool})
                keys = hashes(2)
                for call in ("lookup", "get_many", "put_many", "delete_many"):
                    b._pool.fail[call] = error
                where = indices(0, 1)
                for got, want in self.answers(b, keys, where, PoolTransfer(PoolName.KV, where, keys=keys)):
                    self.assertEqual(got, want)
                b.clear()
                self.assertIsNotNone(b.get_stats())

    def test_before_and_after(self):
        keys, where = hashes(2), indices(0, 1)
        transfer = PoolTransfer(PoolName.KV, where, keys=keys)
        b = self.backend()
        for got, want in self.answers(b, keys, where, transfer):
            self.assertEqual(got, want)
        pool = mha()
        b = self.backend(pool, pools={PoolName.KV: pool})
        b.batch_set_v1(keys, where)
        b.close()
        for got, want in self.answers(b, keys, where, transfer):
            self.assertEqual(got, want)
        b.close()
        b.clear()

    def test_nonsense(self):
        pool = mha()
        b = self.backend(pool, pools={PoolName.KV: pool})
        keys = hashes(2)
        for where in (None, torch.arange(0), indices(0), indices(0, 1, 2), torch.arange(32).float()):
            self.assertEqual(b.batch_get_v1(keys, where), [False, False])
            self.assertEqual(b.batch_set_v1(keys, where), [False, False])
        self.assertEqual(b.batch_exists(["no hash", ""]), 0)
        self.assertEqual(b.batch_get_v1([], torch.arange(0)), [])
        self.assertEqual(b.batch_get_v2([]), {})
        self.assertIsNone(b.get(keys[0]))
        self.assertFalse(b.set(keys[0]))
        self.assertFalse(b.batch_set(keys))

    def test_injector(self):
        """SGLang's fault injector: pages that are loaded are right, whatever fails."""
        os.environ["SGLANG_TEST_HICACHE_BACKEND_RANDOM_FAILURE"] = "0.3"
        os.environ["SGLANG_TEST_HICACHE_BACKEND_RANDOM_DELAY"] = "0.001"
        self.addCleanup(lambda: [os.environ.pop(f"SGLANG_TEST_HICACHE_BACKEND_RANDOM_{n}") for n in ("FAILURE", "DELAY")])
        pool = mha()
        given = config()
        wrapped = StorageBackendFactory.create_backend("dynamic", given, pool)
        self.assertIsInstance(wrapped, HiCacheStorageFailureInjector)
        self.addCleanup(wrapped.close)
        wrapped.register_mem_pool_host(pool)
        wrapped.on_host_pools_registered()
        fill(pool, 1)
        os.environ["KVBLK_FAKE_LOSE"] = "7"
        loaded = 0
        for _ in range(60):
            keys = hashes(4)
            wrapped.batch_set_v1(keys, indices(0, 1, 2, 3))
            found = wrapped.batch_exists(keys)
            for i, good in enumerate(wrapped.batch_get_v1(keys[:found], indices(*range(10, 10 + found))) if found else []):
                if good:
                    self.assertEqual(page_bytes(pool, 10 + i), page_bytes(pool, i))
                    loaded += 1
                pool.kv_buffer[:, 10 + i].zero_()
        self.assertGreater(loaded, 20)
        self.assertIsInstance(wrapped.get_stats(), StorageMetrics)

    def test_threads(self):
        """Look up, load and store in separate threads."""
        pool = mha()
        b = self.backend(pool)
        fill(pool, 1)
        want = [page_bytes(pool, n) for n in range(4)]
        runs = [hashes(4) for _ in range(40)]
        wrong = []

        def store():
            for keys in runs:
                if b.batch_set_v1(keys, indices(0, 1, 2, 3)) != [True] * 4:
                    wrong.append("store")

        def load(at):
            for keys in runs:
                until = time.monotonic() + 20
                while b.batch_exists(keys) < 4 and time.monotonic() < until:
                    time.sleep(0.001)
                if b.batch_get_v1(keys, indices(*range(at, at + 4))) != [True] * 4 or \
                        [page_bytes(pool, n) for n in range(at, at + 4)] != want:
                    wrong.append(f"load {at}")
        threads = [threading.Thread(target=store), *(threading.Thread(target=load, args=(at,)) for at in (10, 20, 30))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        self.assertEqual(wrong, [])


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR)
    unittest.main()
