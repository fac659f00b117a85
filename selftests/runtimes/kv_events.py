#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""KV events: engines, subscribers and routers, to check that kvblkd reports what its pools have.

usage: kv_events.py follow POOL ENDPOINT REPLAY STOP-FILE [LOSE]
           Builds the set of stored blocks from batches, and prints "following". Drops each LOSE-th batch, and requests
           missing ones. When STOP-FILE exists, waits until the set equals the kernel's, for some minutes at most. Prints
           "same=1 hashes=N tokens=N stored=N removed=N cleared=N gaps=N dumps=N".
       kv_events.py load POOL ENGINE-ENDPOINT PROMPTS [SEED]
           Puts the blocks of this many prompts, and publishes their tokens as an engine does.
       kv_events.py register INDEXER-URL ENDPOINT REPLAY
           Registers kvblkd with Dynamo's indexer, once that is up.
       kv_events.py compare POOL INDEXER-URL PROMPTS [SEED]
           Waits until Dynamo's indexer and the pool agree on each of these prompts, for some minutes at most. Prints
           "same=1 whole=N part=N none=N": prompts of which all, the beginning or nothing is present.
"""
import ctypes
import errno
import fcntl
import hashlib
import json
import os
import random
import struct
import sys
import time
import urllib.error
import urllib.request

import msgpack
import zmq

END = (1 << 64) - 1
BLOCK_SIZE = 16  # tokens
BLOCK_BYTES = 20000
MODEL = "m"
WAIT = 180 * int(os.environ.get("KVBLK_SLOW", "1"))
CHANGES = 0xDC08  # KVBLK_IOC_CHANGES
RECORD = struct.Struct("=QQQQIIII")  # struct kvblk_change
STORED, REMOVED, CAUGHT_UP = 1, 2, 3


# Prompts: chains of blocks, many with a common beginning.

def prompts(number, seed=1):
    """Yield lists of blocks, each (hash, parent's hash or None, tokens)."""
    trunks = 6
    for i in range(number):
        trunk = random.Random(f"{seed} trunk {i % trunks}")
        own = random.Random(f"{seed} prompt {i}")
        length = own.randint(1, 12)
        shared = own.randint(0, 3)
        chain, parent = [], None
        for block in range(shared + length):
            dice = trunk if block < shared else own
            tokens = [dice.randrange(100000) for _ in range(BLOCK_SIZE)]
            digest = hashlib.sha256(f"{parent} {tokens}".encode()).digest()
            number = int.from_bytes(digest[-8:], "big")
            chain.append((number, parent, tokens))
            parent = number
        yield chain


# A pool through libkvblk and through a change feed.

class PutOptions(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint32), ("flags", ctypes.c_uint32), ("ttl_s", ctypes.c_uint32), ("priority", ctypes.c_uint32),
                ("deadline_ns", ctypes.c_uint64), ("mem", ctypes.c_void_p), ("parent", ctypes.c_char_p), ("parent_len", ctypes.c_size_t),
                ("layout_tag", ctypes.c_uint64), ("caller_tag", ctypes.c_uint64)]


class Prefix(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint32), ("nr_leading", ctypes.c_uint32), ("nr_leased", ctypes.c_uint32), ("reserved", ctypes.c_uint32),
                ("lease", ctypes.c_uint64), ("lease_end_ns", ctypes.c_uint64)]


class Pool:
    def __init__(self, name):
        self.lib = ctypes.CDLL("libkvblk.so.1")
        self.handle = ctypes.c_void_p()
        self.name = name
        rc = self.lib.kvblk_open(name.encode(), 0, ctypes.byref(self.handle))
        if rc:
            sys.exit(f"pool {name}: {os.strerror(-rc)}")

    def put(self, number, parent):
        key, before = key_of(number), key_of(parent) if parent is not None else None
        options = PutOptions(size=ctypes.sizeof(PutOptions), parent=before, parent_len=len(before or b""), caller_tag=number)
        data = key * (BLOCK_BYTES // 8)
        rc = self.lib.kvblk_put(self.handle, key, ctypes.c_size_t(len(key)), data, ctypes.c_size_t(len(data)), ctypes.byref(options))
        if -rc not in (0, errno.EEXIST, errno.ENOBUFS, errno.ENOSPC):
            sys.exit(f"put: {os.strerror(-rc)}")

    def leading(self, chain):
        """Return how many leading blocks of a chain are present."""
        keys = b"".join(key_of(number) for number, _, _ in chain)
        found = Prefix(size=ctypes.sizeof(Prefix))
        rc = self.lib.kvblk_lookup_prefix(self.handle, keys, ctypes.c_size_t(8), len(chain), 0, ctypes.byref(found))
        if rc:
            sys.exit(f"lookup: {os.strerror(-rc)}")
        return found.nr_leading

    def tags(self):
        """Return the kernel's dump: the hashes of present blocks."""
        feed = os.open(f"/dev/kvblk/{self.name}/changes", os.O_RDONLY)
        fcntl.ioctl(feed, CHANGES, struct.pack("=IIII", 16, 1, 65536, RECORD.size))
        there = {}
        while True:
            data = os.read(feed, 4096 * RECORD.size)
            for _, *token, tag, _, _, op, _ in RECORD.iter_unpack(data):
                if op == STORED:
                    there[tuple(token)] = tag
                elif op == REMOVED:
                    there.pop(tuple(token), None)
                elif op == CAUGHT_UP:
                    os.close(feed)
                    return set(there.values())


def key_of(number):
    return number.to_bytes(8, "big")


class Engine:
    """Publishes tokens of blocks; the constructor returns once there is a subscriber."""

    def __init__(self, endpoint):
        self.socket = zmq.Context.instance().socket(zmq.XPUB)
        self.socket.setsockopt(zmq.SNDHWM, 0)
        self.socket.bind(endpoint)
        self.number = 0
        self.wait()

    def wait(self):
        """Wait for a subscription, or for the end of one."""
        if not self.socket.poll(60000):
            sys.exit("nobody subscribes")
        self.socket.recv()

    def stored(self, chain):
        event = {"type": "BlockStored", "block_hashes": [number for number, _, _ in chain], "parent_block_hash": chain[0][1],
                 "token_ids": [token for _, _, tokens in chain for token in tokens], "block_size": BLOCK_SIZE, "lora_id": None,
                 "medium": "GPU", "lora_name": None}
        self.socket.send_multipart([b"", self.number.to_bytes(8, "big"), msgpack.packb([time.time(), [event], 0])])
        self.number += 1


class Subscriber:
    """The set of stored blocks, built from batches. lose: drop each such batch."""

    def __init__(self, endpoint, replay, lose=0):
        context = zmq.Context.instance()
        self.sub = context.socket(zmq.SUB)
        self.sub.setsockopt(zmq.SUBSCRIBE, b"")
        # no limit, so that only intentionally dropped batches are lost
        self.sub.setsockopt(zmq.RCVHWM, 0)
        self.sub.connect(endpoint)
        self.dealer = context.socket(zmq.DEALER)
        self.dealer.setsockopt(zmq.RCVHWM, 0)
        self.dealer.connect(replay)
        self.lose, self.last, self.nr = lose, None, 0
        self.hashes = {}
        self.counts = dict.fromkeys(("stored", "removed", "cleared", "gaps", "dumps"), 0)

    def apply(self, payload):
        _, events, _ = msgpack.unpackb(payload, strict_map_key=False)
        for event in events:
            if event["type"] == "AllBlocksCleared":
                self.hashes.clear()
                self.counts["cleared"] += 1
            elif event["type"] == "BlockStored":
                assert event["medium"] == "STORAGE" and len(event["token_ids"]) == event["block_size"] * len(event["block_hashes"])
                for number in event["block_hashes"]:
                    self.hashes[number] = event["token_ids"]
                    self.counts["stored"] += 1
            else:
                assert event["type"] == "BlockRemoved" and event["medium"] == "STORAGE"
                for number in event["block_hashes"]:
                    self.hashes.pop(number, None)
                    self.counts["removed"] += 1

    def ask(self, start):
        """Request and apply batches from start on: these, or a dump of all stored blocks. Returns the last one's number."""
        self.dealer.send_multipart([b"", start.to_bytes(8, "big")])
        numbers = []
        while True:
            if not self.dealer.poll(60000):
                sys.exit("no answer to a question for batches")
            # the frames of vLLM 0.32 and SGLang 0.5.23
            empty, _, number, payload = self.dealer.recv_multipart()
            assert not empty and len(number) == 8
            number = int.from_bytes(number, "big")
            if number == END:
                assert not payload
                break
            # consecutive, so that no reader takes a part for the whole
            assert number == numbers[-1] + 1 if numbers else number >= start
            numbers.append(number)
            self.apply(payload)
        self.counts["dumps"] += len(numbers) > 0 and numbers[0] != start and start != 0
        return numbers[-1] if numbers else start - 1

    def take(self, wait):
        """Receive and apply a batch, waiting at most this many ms. Returns False if none arrived."""
        if not self.sub.poll(wait):
            return False
        _, number, payload = self.sub.recv_multipart()
        number = int.from_bytes(number, "big")
        self.nr += 1
        if self.lose and self.nr % self.lose == 0:
            return True
        start = 0 if self.last is None else self.last + 1
        if number > start:
            self.counts["gaps"] += 1
            self.last = self.ask(start)
        # skip repeated batches
        if self.last is None or number > self.last:
            self.apply(payload)
            self.last = number
        return True


def follow(pool, endpoint, replay, stop_file, lose="0"):
    subscriber = Subscriber(endpoint, replay, int(lose))
    pool = Pool(pool)
    while not subscriber.take(1000):
        pass
    print("following", flush=True)
    while not os.path.exists(stop_file):
        subscriber.take(100)
    end = time.monotonic() + WAIT
    while True:
        tags = pool.tags()
        # the last batch is repeated after a second
        while subscriber.take(300):
            pass
        same = set(subscriber.hashes) == tags
        if same or time.monotonic() > end:
            break
    known = sum(bool(tokens) for tokens in subscriber.hashes.values())
    print(f"same={int(same)} hashes={len(subscriber.hashes)} tokens={known}", *(f"{n}={c}" for n, c in subscriber.counts.items()))
    return same


def load(pool, endpoint, number, seed="1"):
    pool, engine = Pool(pool), Engine(endpoint)
    for chain in prompts(int(number), seed):
        # publish before the put or after, both of which must work
        if len(chain) % 2:
            engine.stored(chain)
        for number, parent, _ in chain:
            pool.put(number, parent)
        if not len(chain) % 2:
            engine.stored(chain)
    # linger, or else closing the socket loses batches
    engine.socket.close(linger=10000)
    zmq.Context.instance().term()
    return True


class Indexer:
    """python -m dynamo.indexer at this URL."""
    INSTANCE = 7

    def __init__(self, url):
        self.url = url

    def post(self, path, question):
        request = urllib.request.Request(self.url + path, json.dumps(question).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def is_up(self):
        try:
            with urllib.request.urlopen(self.url + "/health", timeout=10):
                return True
        except OSError:
            return False

    def register(self, endpoint, replay):
        self.post("/register", {"instance_id": self.INSTANCE, "endpoint": endpoint, "replay_endpoint": replay, "model_name": MODEL,
                                "block_size": BLOCK_SIZE})

    def leading(self, chain):
        """Return how many leading blocks of a chain the indexer knows, like Pool.leading()."""
        answer = self.post("/query", {"token_ids": [token for _, _, tokens in chain for token in tokens], "model_name": MODEL})
        return answer["instances"].get(str(self.INSTANCE), {"disk": 0})["disk"] // BLOCK_SIZE


def differences(pool, indexer, chains):
    """Return counts of the chains, and those on which pool and indexer differ."""
    counts, wrong = dict.fromkeys(("whole", "part", "none"), 0), []
    for chain in chains:
        want, got = pool.leading(chain), indexer.leading(chain)
        counts["none" if not want else "whole" if want == len(chain) else "part"] += 1
        if want != got:
            wrong.append((chain[0][0], len(chain), want, got))
    return counts, wrong


def compare_with(pool, indexer, chains, wait=WAIT):
    end = time.monotonic() + wait
    while True:
        counts, wrong = differences(pool, indexer, chains)
        if not wrong or time.monotonic() > end:
            break
        time.sleep(1)
    for first, length, want, got in wrong[:10]:
        print(f"prompt {first:#x} of {length} blocks: the pool has {want}, the indexer {got}")
    print(f"same={int(not wrong)}", *(f"{name}={count}" for name, count in counts.items()))
    return not wrong


def register(url, endpoint, replay):
    indexer, end = Indexer(url), time.monotonic() + WAIT
    while not indexer.is_up():
        if time.monotonic() > end:
            sys.exit(f"{url} does not answer")
        time.sleep(0.5)
    indexer.register(endpoint, replay)
    return True


def compare(pool, url, number, seed="1"):
    return compare_with(Pool(pool), Indexer(url), list(prompts(int(number), seed)))


if __name__ == "__main__":
    verbs = {"follow": follow, "load": load, "register": register, "compare": compare}
    if len(sys.argv) < 5 or sys.argv[1] not in verbs:
        sys.exit(__doc__)
    sys.exit(not verbs[sys.argv[1]](*sys.argv[2:]))
