#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""usage: kv_mooncake.py RPC_PORT HTTP_PORT OBJECTS SEGMENT_MIB

A client of Mooncake Store, whose master listens at these ports: stores that many objects of 1 MiB, far more than its segment holds, and
loads each of them again. The rule: an object that comes back with another byte is a failure at once; one that is not there yet has a
minute to come.
"""
import ctypes
import os
import sys
import time

from mooncake.store import MooncakeDistributedStore

SIZE = 1 << 20
PATIENCE = 60 * int(os.environ.get("KVBLK_SLOW", "1"))


def within(what, call, want):
    """Calls it until it returns that."""
    end = time.monotonic() + PATIENCE
    while (got := call()) != want:
        if time.monotonic() > end:
            sys.exit(f"{what}: {got}, should be {want}")
        time.sleep(0.05)


def main():
    rpc, http, objects, segment = (int(word) for word in sys.argv[1:])
    store = MooncakeDistributedStore()
    got = store.setup(local_hostname="127.0.0.1", metadata_server=f"http://127.0.0.1:{http}/metadata",
                      global_segment_size=segment << 20, local_buffer_size=32 << 20, protocol="tcp", rdma_devices="",
                      master_server_addr=f"127.0.0.1:{rpc}", enable_ssd_offload=True, ssd_offload_path=os.getcwd())
    if got:
        sys.exit(f"setup: {got}")
    buf = bytearray(SIZE)
    addr = ctypes.addressof((ctypes.c_char * SIZE).from_buffer(buf))
    store.register_buffer(addr, SIZE)
    stored = {}
    for number in range(objects):
        stored[f"object-{number}"] = buf[:] = os.urandom(SIZE)
        within(f"put of object {number}", lambda: store.put_from(f"object-{number}", addr, SIZE), 0)
        # what is evicted before it was offloaded is gone: a segment's worth is a second's
        time.sleep(0.1)
    for key, data in stored.items():
        within(f"get of {key}", lambda: store.get_into(key, addr, SIZE), SIZE)
        if buf != data:
            sys.exit(f"{key} came back with other bytes")
    print(f"{objects} objects came back as they were stored", flush=True)
    store.close()
    # its threads outlive it
    os._exit(0)


main()
