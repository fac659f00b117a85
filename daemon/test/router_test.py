#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Dynamo's indexer, subscribed to kvblkd's KV events of a simulated pool, knows exactly the pool's blocks.

usage: router_test.py KVFEED_TEST
Needs the packages ai-dynamo-runtime, pyzmq and msgpack. Blocks are put, reclaimed and deleted, records are lost, an indexer subscribes late.
"""
import fcntl
import os
import random
import socket
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../../selftests/runtimes"))
from kv_events import CAUGHT_UP, RECORD, REMOVED, STORED, Engine, Indexer, compare_with, prompts  # noqa: E402

LOST = 4


class MadeUp:
    """A simulated pool, whose change feed begins with the present blocks."""

    def __init__(self, path):
        self.there, self.path, self.feed, self.seq = set(), path, None, 0

    def tell(self, op, number=0, seq=None):
        self.seq += seq is None
        os.write(self.feed, RECORD.pack(self.seq if seq is None else seq, number ^ 0x5555, 1, number, 20000, 0, op, 0))

    def open_feed(self):
        """Open a new change feed. Returns the previous one, which may still have a reader."""
        before = self.feed
        os.mkfifo(self.path + ".new")
        self.feed = os.open(self.path + ".new", os.O_RDWR)
        fcntl.fcntl(self.feed, fcntl.F_SETPIPE_SZ, 1 << 20)
        self.seq = 0
        for number in self.there:
            self.tell(STORED, number, 0)
        self.tell(CAUGHT_UP, 0, 0)
        os.rename(self.path + ".new", self.path)
        return before

    def put(self, number, _parent):
        if number not in self.there:
            self.there.add(number)
            self.tell(STORED, number)

    def reclaim(self, share):
        for number in random.sample(sorted(self.there), int(len(self.there) * share)):
            self.there.remove(number)
            self.tell(REMOVED, number)

    def leading(self, chain):
        return next((i for i, (number, _, _) in enumerate(chain) if number not in self.there), len(chain))


def free_ports(nr):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(nr)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def start_indexer(port, log):
    process = subprocess.Popen([sys.executable, "-m", "dynamo.indexer", "--port", str(port), "--threads", "1"], stdout=log, stderr=log)
    indexer = Indexer(f"http://127.0.0.1:{port}")
    while not indexer.is_up():
        if process.poll() is not None:
            sys.exit("the indexer ended")
    return process, indexer


def main(program):
    publish, replay, engine_port, port, late = free_ports(5)
    endpoints = [f"tcp://127.0.0.1:{publish}", f"tcp://127.0.0.1:{replay}"]
    chains = list(prompts(300))
    right = []
    with tempfile.TemporaryDirectory() as tmp, open(f"{tmp}/log", "w+") as log:
        pool = MadeUp(f"{tmp}/kv0.changes")
        pool.open_feed()
        with open(f"{tmp}/conf", "w") as conf:
            conf.write(f'pools = ( {{ name = "kv0"; }} ); exporters: {{ kv_events: {{ endpoint = "{endpoints[0]}"; replay = "{endpoints[1]}"; '
                       f'sources = ( "tcp://127.0.0.1:{engine_port}" ); repeat = 1; buffer_bytes = 65536; }}; }};')
        feed = subprocess.Popen([program, "serve", f"{tmp}/conf"], stdin=subprocess.PIPE, stderr=log)
        processes = [feed]
        try:
            process, indexer = start_indexer(port, log)
            processes.append(process)
            indexer.register(*endpoints)
            engine = Engine(f"tcp://127.0.0.1:{engine_port}")
            print("-- blocks come")
            for chain in chains[:200]:
                for number, parent, _ in chain:
                    pool.put(number, parent)
                engine.stored(chain)
            right.append(compare_with(pool, indexer, chains, 30))
            print("-- reclaim")
            pool.reclaim(0.1)
            right.append(compare_with(pool, indexer, chains, 30))
            for chain in chains[200:]:
                engine.stored(chain)
                for number, parent, _ in chain[::-1]:
                    pool.put(number, parent)
                if len(chain) % 3 == 0:
                    pool.reclaim(0.02)
            right.append(compare_with(pool, indexer, chains, 30))
            print("-- an indexer that comes late")
            process, other = start_indexer(late, log)
            processes.append(process)
            other.register(*endpoints)
            right.append(compare_with(pool, other, chains, 30))
            print("-- the feed loses records")
            before = sorted(pool.there)
            pool.there = set(random.sample(before, len(before) // 2)) | {number for chain in chains[:9] for number, _, _ in chain}
            old = pool.open_feed()
            os.write(old, RECORD.pack(1, 5, 0, 0, 0, 0, LOST, 0))
            os.close(old)
            for index in indexer, other:
                right.append(compare_with(pool, index, chains, 30))
            print("-- what another kvblkd told is void")
            feed.kill()
            feed.wait()
            pool.there = {number for chain in chains[:99] for number, _, _ in chain}
            os.close(pool.open_feed())
            feed = subprocess.Popen([program, "serve", f"{tmp}/conf"], stdin=subprocess.PIPE, stderr=log)
            processes.append(feed)
            for _ in range(2):
                engine.wait()
            for chain in chains:
                engine.stored(chain)
            for index in indexer, other:
                right.append(compare_with(pool, index, chains, 30))
        finally:
            for process in processes:
                process.kill()
                process.wait()
            if not right or not all(right):
                log.seek(0)
                print(log.read()[-5000:], file=sys.stderr)
    return all(right)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(not main(sys.argv[1]))
