#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""kvblkd's KV events have the frames of vLLM's or SGLang's publisher, and the decoder of their wheel reads them.

usage: replay_test.py vllm|sglang KVFEED_TEST
One subscriber requests a replay from 0 from both publishers. It reads the wheel's answer first, which proves that it can read the
wheel's format.
"""
import importlib
import os
import socket
import subprocess
import sys
import tempfile
import time

import msgspec
import zmq

MODULES = {"vllm": "vllm.distributed.kv_events", "sglang": "sglang.srt.disaggregation.kv_events"}
TOPIC = "kv"


def free_endpoints(number):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    endpoints = [f"tcp://127.0.0.1:{s.getsockname()[1]}" for s in sockets]
    for s in sockets:
        s.close()
    return endpoints


def answer(endpoint, decoder):
    """Returns the numbers and batches of a replay from 0."""
    dealer = zmq.Context.instance().socket(zmq.DEALER)
    dealer.connect(endpoint)
    got = []
    end = time.monotonic() + 60
    while not got and time.monotonic() < end:
        dealer.send_multipart([b"", bytes(8)])
        while True:
            assert dealer.poll(60000), f"{endpoint} does not answer"
            frames = dealer.recv_multipart()
            assert len(frames) == 4 and not frames[0] and len(frames[2]) == 8, [len(frame) for frame in frames]
            number = int.from_bytes(frames[2], "big", signed=True)
            if number == -1:
                assert not frames[1] and not frames[3], frames
                break
            assert frames[1] == TOPIC.encode(), frames
            got.append((number, decoder.decode(frames[3])))
    dealer.close(linger=0)
    return got


def main(name, program):
    module = importlib.import_module(MODULES[name])
    decoder = msgspec.msgpack.Decoder(module.KVEventBatch)
    publish, replay, theirs, their_replay = free_endpoints(4)
    publisher = module.ZmqEventPublisher(0, theirs, their_replay, topic=TOPIC)
    for _ in range(3):
        publisher.publish(module.KVEventBatch(ts=time.time(), events=[module.AllBlocksCleared()]))
    wanted = answer(their_replay, decoder)
    publisher.shutdown()
    with tempfile.TemporaryDirectory() as tmp:
        with open(f"{tmp}/conf", "w") as conf:
            conf.write(f'pools = ( {{ name = "kv0"; }} ); exporters: {{ kv_events: {{ endpoint = "{publish}"; replay = "{replay}"; '
                       f'topic = "{TOPIC}"; }}; }};')
        with subprocess.Popen([program, "serve", f"{tmp}/conf"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as feed:
            try:
                got = answer(replay, decoder)
            finally:
                feed.kill()
    for batches in wanted, got:
        assert batches and isinstance(batches[0][1].events[0], module.AllBlocksCleared), batches
        assert [number for number, _ in batches] == list(range(batches[0][0], batches[0][0] + len(batches))), batches
    print(f"{name}: {len(wanted)} batches of its own and {len(got)} of kvblkd")


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in MODULES:
        sys.exit(__doc__)
    main(sys.argv[1], os.path.abspath(sys.argv[2]))
