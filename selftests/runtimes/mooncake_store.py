#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""usage: mooncake_store.py RPC_PORT HTTP_PORT OBJECTS SEGMENT_MIB [EVENT...]

A client of Mooncake Store, whose master listens at these ports: stores this many objects of 1 MiB, far more than its
segment holds, and loads each of them again. Then a second client loads a tenth of them from this one, and a third one
is killed while it stores. Before each EVENT the file at-EVENT is created and go-EVENT awaited; then all objects are
loaded again. The rule: an object with a wrong byte is a failure at once. A missing object has a minute to appear, but
after an event it may be gone.
"""
import ctypes
import hashlib
import os
import signal
import subprocess
import sys
import time

from mooncake.store import MooncakeDistributedStore

SIZE = 1 << 20
PATIENCE = 60 * int(os.environ.get("KVBLK_SLOW", "1"))


def within(what, call, want):
    """Call it until it returns that."""
    end = time.monotonic() + PATIENCE
    while (got := call()) != want:
        if time.monotonic() > end:
            sys.exit(f"{what}: {got}, should be {want}")
        time.sleep(0.05)


def client(rpc, http, segment):
    store = MooncakeDistributedStore()
    got = store.setup(local_hostname="127.0.0.1", metadata_server=f"http://127.0.0.1:{http}/metadata",
                      global_segment_size=segment << 20, local_buffer_size=32 << 20, protocol="tcp", rdma_devices="",
                      master_server_addr=f"127.0.0.1:{rpc}", enable_ssd_offload=True, ssd_offload_path=os.getcwd())
    if got:
        sys.exit(f"setup: {got}")
    buf = bytearray(SIZE)
    addr = ctypes.addressof((ctypes.c_char * SIZE).from_buffer(buf))
    store.register_buffer(addr, SIZE)
    return store, buf, addr


def put(store, buf, addr, name):
    buf[:] = os.urandom(SIZE)
    within(f"put of {name}", lambda: store.put_from(name, addr, SIZE), 0)
    return hashlib.sha256(buf).hexdigest()


def load(store, buf, addr, name, digest):
    within(f"get of {name}", lambda: store.get_into(name, addr, SIZE), SIZE)
    if hashlib.sha256(buf).hexdigest() != digest:
        sys.exit(f"{name} came back with other bytes")


def end():
    # exit without cleanup, because Mooncake's threads would not end
    sys.stdout.flush()
    os._exit(0)


def other(what, *words, **options):
    return subprocess.Popen([sys.executable, __file__, *sys.argv[1:5], what, *words], stdout=subprocess.PIPE, text=True, **options)


def event(name):
    """Request a change of the pool and wait for it."""
    open(f"at-{name}", "x").close()
    within(name, lambda: os.path.exists(f"go-{name}"), True)


def main():
    rpc, http, objects, segment = (int(word) for word in sys.argv[1:5])
    if sys.argv[5:6] == ["loads"]:
        one = client(rpc, http, 16)
        for word in sys.argv[6:]:
            load(*one, *word.split(":"))
        one[0].close()
        end()
    if sys.argv[5:6] == ["stores"]:
        one = client(rpc, http, 16)
        for number in range(1000):
            print(put(*one, f"killed-{number}"), flush=True)
    one = client(rpc, http, segment)
    store, buf, addr = one
    stored = {}
    for number in range(objects):
        stored[f"object-{number}"] = put(*one, f"object-{number}")
        # paced at a segment's size per second, because an object evicted before its offload is lost
        time.sleep(0.1)
    for name, digest in stored.items():
        load(*one, name, digest)
    print(f"{objects} objects came back as they were stored", flush=True)
    some = [f"{name}:{digest}" for name, digest in stored.items()][::10]
    if other("loads", *some).wait(PATIENCE):
        sys.exit("another client does not get them")
    print(f"{len(some)} of them in another process", flush=True)
    counts = {}
    for name in sys.argv[5:]:
        event(name)
        there = 0
        for key, digest in stored.items():
            if store.get_into(key, addr, SIZE) == SIZE:
                there += 1
                if hashlib.sha256(buf).hexdigest() != digest:
                    sys.exit(f"{name}: {key} came back with other bytes")
        print(f"{name}: {there} objects are there", flush=True)
        counts[name] = there
    # objects in the client's own memory are available even during the failure
    if counts and not (counts["fail"] < counts["heal"] <= objects and counts["evict"] < counts["heal"]):
        sys.exit(f"what was there after each event: {counts}")
    with other("stores") as killed:
        for _ in range(5):
            killed.stdout.readline()
        killed.send_signal(signal.SIGKILL)
    for number in range(5):
        load(*one, f"after-{number}", put(*one, f"after-{number}"))
    print("a client that was killed while it stored hinders nobody", flush=True)
    store.close()
    end()


main()
