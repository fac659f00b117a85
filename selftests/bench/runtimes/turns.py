# SPDX-License-Identifier: MIT
"""A pool and a runtime's own disk tier in turn, under the runtime's own code: shared by the benchmarks of this
directory.

The rules, the same for both sides:
- A round puts the same objects, drops the page cache (drop_caches), gets them into other memory, compares all
  bytes, and deletes them. Puts and gets are timed, the rest is not. Sides take turns; the first of a pair alternates.
- A put of kvblk is on the device when it ends. Writes of a file tier may be in the page cache: its throughput is
  also measured until syncfs() ends; both are reported.
- Gets find nothing in the page cache, because the working set of a disk tier is far larger than memory.
- The time of an operation is the runtime's: from the call until the runtime learns that all is done.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import itertools
import json
import math
import mmap
import os
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy

clock = time.perf_counter
PAGE = 4096
#: threads, or operations in flight, of both sides
THREADS = 4
#: bytes of a round; objects of an operation by size: an 8B model has 128 KiB a token, so 16 and 256 tokens
TOTAL = 384 << 20
OBJECTS = {2 << 20: 8, 32 << 20: 1}
_libc = ctypes.CDLL(None, use_errno=True)


class Slab:
    """Two page-aligned areas of memory: objects to put, and buffers of gets."""

    def __init__(self, size: int):
        self.size = size
        self.count = TOTAL // size
        self.memory = numpy.frombuffer(mmap.mmap(-1, 2 * TOTAL), dtype=numpy.uint8)
        self.source, self.target = self.memory[:TOTAL], self.memory[TOTAL:]
        # 64-bit words that are all different
        self.source.view(numpy.uint64)[:] = numpy.arange(TOTAL // 8, dtype=numpy.uint64) * numpy.uint64(0x9e3779b97f4a7c15)

    def stamp(self, number: int) -> None:
        """Make each page to put different from all other rounds, and clear the results of gets."""
        self.source.view(numpy.uint64)[::PAGE // 8] = number
        self.target[:] = 0

    def put_view(self, i: int) -> Any:
        return self.source[i * self.size:(i + 1) * self.size]

    def get_view(self, i: int) -> Any:
        return self.target[i * self.size:(i + 1) * self.size]

    def check(self) -> None:
        if not numpy.array_equal(self.source.view(numpy.uint64), self.target.view(numpy.uint64)):
            raise AssertionError("what was got is not what was put")


class Side:
    """A tier of a runtime. put and get return the seconds of each operation, and raise if one fails."""

    def put(self, round_number: int, batches: Sequence[Sequence[int]]) -> list[float]:
        raise NotImplementedError

    def get(self, round_number: int, batches: Sequence[Sequence[int]]) -> list[float]:
        raise NotImplementedError

    def check(self) -> None:
        """Compare the results of the last get."""
        raise NotImplementedError

    def delete(self, round_number: int, batches: Sequence[Sequence[int]]) -> None:
        raise NotImplementedError

    def prepare(self, round_number: int) -> None:
        """Prepare a round, before the clock starts."""

    def close(self) -> None:
        pass


def in_flight(batches: Sequence[Any], depth: int, start: Callable[[Any], Any], over: Callable[[], Iterator[Any]]) -> list[float]:
    """Return the seconds of each operation, ``depth`` of them at a time. ``start`` returns an operation's name, ``over``
    waits and yields names of completed ones.
    """
    todo = iter(batches)
    began: dict[Any, float] = {}
    spent = []
    for batch in itertools.islice(todo, depth):
        now = clock()
        began[start(batch)] = now
    while began:
        for name in over():
            spent.append(clock() - began.pop(name))
            for batch in itertools.islice(todo, 1):
                now = clock()
                began[start(batch)] = now
    return spent


def unlink_all(directory: str, suffix: str = "") -> None:
    for parent, _, names in os.walk(directory):
        for name in names:
            if name.endswith(suffix):
                os.unlink(os.path.join(parent, name))


class Run(NamedTuple):
    """A side in a round: MiB/s, and the seconds of each operation."""
    put: float
    put_synced: float
    get: float
    puts: list[float]
    gets: list[float]

    def __str__(self) -> str:
        return f"put {self.put:.0f} ({self.put_synced:.0f}) get {self.get:.0f} longest {max(self.puts):.3f} {max(self.gets):.3f}"


def syncfs(directory: str) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    if _libc.syncfs(fd):
        raise OSError(ctypes.get_errno(), "syncfs")
    os.close(fd)


def one_round(side: Side, number: int, batches: Sequence[Sequence[int]], directory: str) -> Run:
    mib = TOTAL / (1 << 20)
    gc.collect()
    side.prepare(number)
    start = clock()
    puts = side.put(number, batches)
    put = clock()
    syncfs(directory)
    synced = clock()
    with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as file:
        file.write("3")
    begin = clock()
    gets = side.get(number, batches)
    get = clock()
    side.check()
    side.delete(number, batches)
    os.sync()
    return Run(mib / (put - start), mib / (synced - start), mib / (get - begin), puts, gets)


def p99(spent: list[float]) -> float:
    """Return the p99 in ms."""
    return sorted(spent)[math.ceil(0.99 * len(spent)) - 1] * 1000


def compare(args: argparse.Namespace, ours: Side, theirs: Side, size: int, per_op: int, threads: int = THREADS,
            ops: Sequence[str] = ("put", "get"), **about: Any) -> None:
    """Print a JSON line for puts and one for gets, each with the fields of ``about``."""
    count = TOTAL // size
    batches = [range(i, min(i + per_op, count)) for i in range(0, count, per_op)]
    runs: list[tuple[Run, Run]] = []
    # the first round warms up
    for i in range(args.rounds + 1):
        if i % 2:
            own, peer = (one_round(side, 2 * i + j, batches, args.directory) for j, side in enumerate((ours, theirs)))
        else:
            peer, own = (one_round(side, 2 * i + j, batches, args.directory) for j, side in enumerate((theirs, ours)))
        runs.append((own, peer))
        print(f"# {about} {size >> 20} MiB, round {i}, ours {own}, theirs {peer}", flush=True)
    del runs[0]
    for op in ops:
        told, synced, times = {"put": ("put", "put_synced", "puts"), "get": ("get", "get", "gets")}[op]
        ratios = [getattr(own, told) / getattr(peer, synced) for own, peer in runs]
        slow = [p99(sum((getattr(run[side], times) for run in runs), [])) for side in (0, 1)]
        line = {"bench": "runtimes", "transport": "nvme-tcp", **about, "op": op, "size": size, "objects": per_op,
                "threads": threads, "rounds": args.rounds, "unit": "MiB/s",
                "ours": round(statistics.median(getattr(own, told) for own, _ in runs), 1),
                "theirs": round(statistics.median(getattr(peer, synced) for _, peer in runs), 1),
                "ratio": round(statistics.median(ratios), 3), "low": round(min(ratios), 3), "high": round(max(ratios), 3),
                "best": round(max(getattr(own, told) for own, _ in runs) / max(getattr(peer, synced) for _, peer in runs), 3)}
        if op == "put":
            line["theirs_unsynced"] = round(statistics.median(peer.put for _, peer in runs), 1)
            line["ratio_unsynced"] = round(statistics.median(own.put / peer.put for own, peer in runs), 3)
        line.update(operations=sum(len(getattr(own, times)) for own, _ in runs), p99=round(slow[0], 2),
                    p99_theirs=round(slow[1], 2), p99_ratio=round(slow[0] / slow[1], 3))
        with open(args.results, "a", encoding="ascii") as out:
            print(json.dumps(line), file=out)
        print(json.dumps(line), flush=True)


def arguments(peers: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pool", required=True)
    parser.add_argument("--directory", required=True, help="on a file system of the peer's device")
    parser.add_argument("--results", required=True)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--sizes", default=",".join(str(size >> 20) for size in OBJECTS), help="MiB")
    parser.add_argument("--direct", default="0,1", help="with O_DIRECT or not, where the peer can be told")
    parser.add_argument("--peers", default=",".join(peers))
    args = parser.parse_args()
    args.sizes = [int(size) << 20 for size in args.sizes.split(",")]
    args.peers = args.peers.split(",")
    args.direct = [bool(int(each)) for each in args.direct.split(",")]
    return args


def run(main: Callable[[], None]) -> None:
    """Run and exit at once, because the runtime's threads would keep the process alive."""
    code = 1
    try:
        main()
        code = 0
    except BaseException:  # pylint: disable=broad-exception-caught
        traceback.print_exc()
    sys.stdout.flush()
    os._exit(code)
