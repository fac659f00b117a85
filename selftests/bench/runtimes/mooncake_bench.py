# SPDX-License-Identifier: MIT
"""Mooncake Store's offload to disk: its bucket backend against its NVMe-KV backend on the pool's node. Gets only.

A round has its own master and client. The client puts objects into its memory, and Mooncake offloads them in the
background, once per heartbeat, which is why puts have no figure. Then the copies in memory are cleared, so that gets
come from disk; Mooncake counts these.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

import turns

RPC, HTTP, METRICS = 50551, 18081, 19003
PATIENCE = 60
# Mooncake never deletes from a pool: the puts of all rounds must fit, or reclaim evicts objects of the current round
ROUNDS = 5
turns.TOTAL = 64 << 20


def client(size: int, number: int) -> None:
    """Run a client that takes commands on stdin."""
    from mooncake.store import MooncakeDistributedStore  # pylint: disable=import-outside-toplevel

    slab = turns.Slab(size)
    slab.stamp(number)
    keys = [f"{number}-{i}" for i in range(slab.count)]
    store = MooncakeDistributedStore()
    if store.setup(local_hostname="127.0.0.1", metadata_server=f"http://127.0.0.1:{HTTP}/metadata",
                   global_segment_size=turns.TOTAL + (128 << 20), local_buffer_size=64 << 20, protocol="tcp", rdma_devices="",
                   master_server_addr=f"127.0.0.1:{RPC}", enable_ssd_offload=True, ssd_offload_path=os.getcwd()):
        raise AssertionError("setup failed")
    store.register_buffer(slab.memory.ctypes.data, slab.memory.nbytes)
    sources, targets = ([each.ctypes.data + i * size for i in range(slab.count)] for each in (slab.source, slab.target))

    def until(what: str, done: Any) -> None:
        end = time.monotonic() + PATIENCE
        while not done():
            if time.monotonic() > end:
                raise AssertionError(what)
            time.sleep(0.05)

    for line in sys.stdin:
        command = line.split()
        answer: Any = True
        if command[0] == "put":
            for key, source in zip(keys, sources):
                until("a put fails", lambda key=key, source=source: store.put_from(key, source, size) == 0)
            for key in keys:
                until("an object is not offloaded", lambda key=key: any(
                    replica.is_local_disk_replica() for replica in store.get_replica_desc(key)))
            # only objects whose lease has ended are cleared
            left = set(keys)
            until("copies in memory stay", lambda: left.difference_update(
                store.batch_replica_clear(sorted(left), store.get_hostname())) or not left)
        elif command[0] == "get":
            step = int(command[1])
            read = store.get_offload_rpc_read_count()
            answer = []
            for i in range(0, slab.count, step):
                start = turns.clock()
                got = store.batch_get_into(keys[i:i + step], targets[i:i + step], [size] * step)
                answer.append(turns.clock() - start)
                if got != [size] * step:
                    raise AssertionError(f"got {got}")
            if store.get_offload_rpc_read_count() - read < slab.count / step:
                raise AssertionError("gets came from memory")
        else:
            slab.check()
        print(json.dumps(answer), flush=True)


class Tier(turns.Side):
    """A backend of Mooncake."""

    def __init__(self, size: int, directory: str, **env: str):
        self.size = size
        self.directory = directory
        self.env = {**os.environ, "MOONCAKE_OFFLOAD_HEARTBEAT_INTERVAL_SECONDS": "1",
                    # an incomplete bucket stays in memory
                    "MOONCAKE_OFFLOAD_BUCKET_SIZE_LIMIT_BYTES": str(size),
                    "MOONCAKE_OFFLOAD_LOCAL_BUFFER_SIZE_BYTES": str(128 << 20), **env}
        self.running: list[subprocess.Popen[str]] = []

    def prepare(self, round_number: int) -> None:
        here = os.path.dirname(os.path.abspath(__import__("mooncake").__file__))
        master = subprocess.Popen(
            [f"{here}/mooncake_master", f"-rpc_port={RPC}", "-enable_http_metadata_server=true",
             "-http_metadata_server_host=127.0.0.1", f"-http_metadata_server_port={HTTP}", "-metrics_host=127.0.0.1",
             f"-metrics_port={METRICS}", "-rpc_address=127.0.0.1", "-enable_offload=true", "-default_kv_lease_ttl=500"],
            text=True, stdout=subprocess.DEVNULL, stderr=open("master.log", "w", encoding="utf-8"))
        time.sleep(2)
        os.makedirs(self.directory, exist_ok=True)
        # the time makes the keys different in each run of the benchmark
        number = time.time_ns() // 1000 % (1 << 40) << 16 | round_number
        made = subprocess.Popen([sys.executable, __file__, "client", str(self.size), str(number)], text=True, cwd=self.directory,
                                env=self.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                stderr=open("client.log", "w", encoding="utf-8"))
        self.running = [made, master]

    def ask(self, *words: Any) -> Any:
        client_process = self.running[0]
        print(*words, file=client_process.stdin, flush=True)
        for line in client_process.stdout:
            try:
                return json.loads(line)
            except ValueError:
                # skip other output
                pass
        for name in ("master.log", "client.log"):
            with open(name, encoding="utf-8") as log:
                print(*log.readlines()[-30:], sep="", file=sys.stderr)
        raise AssertionError(f"{words}: the client ended")

    def put(self, round_number: int, batches: Sequence[Sequence[int]]) -> list[float]:
        self.ask("put")
        return [0.0]

    def get(self, round_number: int, batches: Sequence[Sequence[int]]) -> list[float]:
        return self.ask("get", len(batches[0]))

    def check(self) -> None:
        self.ask("check")

    def delete(self, round_number: int, batches: Sequence[Sequence[int]]) -> None:
        self.close()
        turns.unlink_all(self.directory)

    def close(self) -> None:
        for process in self.running:
            process.kill()
            process.wait()
        self.running = []


def main() -> None:
    if sys.argv[1] == "client":
        client(int(sys.argv[2]), int(sys.argv[3]))
        return
    args = turns.arguments(["bucket"])
    os.chdir(os.environ["TMPDIR"])
    args.rounds = min(args.rounds, ROUNDS)
    for size in args.sizes:
        ours = Tier(size, args.directory + "/none", MOONCAKE_OFFLOAD_STORAGE_BACKEND_DESCRIPTOR="nvme_kv_storage_backend",
                    MOONCAKE_NVME_KV_DEVICE_PATH=f"/dev/kvblk/{args.pool}/nvme-kv", MOONCAKE_NVME_KV_TRANSPORT="ioctl",
                    MOONCAKE_NVME_KV_NSID="1")
        theirs = Tier(size, args.directory + "/bucket", MOONCAKE_OFFLOAD_STORAGE_BACKEND_DESCRIPTOR="bucket_storage_backend")
        turns.compare(args, ours, theirs, size, turns.OBJECTS[size], threads=1, ops=("get", ), runtime="mooncake", peer="bucket",
                      direct=False)


turns.run(main)
