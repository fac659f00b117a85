# SPDX-License-Identifier: MIT
"""The unchanged backend, which writes a line of JSON for each call to the file KVBLK_SGLANG_EVENTS.

If the file KVBLK_SGLANG_BEFORE_LOAD has a command of the VM, the command runs before the next load.
KVBLK_SGLANG_KILL=PAGES kills the process during the first store of at least that many pages, and creates a file beside
the events.
"""

import json
import os
import signal
import threading
import time

import kvblk
from kvblk_sglang import HiCacheKvblk


def _before_load():
    try:
        with open(os.environ["KVBLK_SGLANG_BEFORE_LOAD"]) as file:
            command = file.read()
        os.unlink(file.name)
    except (KeyError, FileNotFoundError):
        return
    import carried
    carried.guest(command)


def _killed_amid(put_many):
    """Store half of the pages, then the others one by one; the process is killed meanwhile."""
    def call(pool, keys, bufs, **options):
        half = len(keys) // 2
        put_many(pool, keys[:half], bufs[:half], **options)
        open(os.environ["KVBLK_SGLANG_EVENTS"] + ".killed", "x").close()
        threading.Timer(0.01, os.kill, (os.getpid(), signal.SIGKILL)).start()
        for i in range(half, len(keys)):
            put_many(pool, keys[i:i + 1], bufs[i:i + 1], **options)
        time.sleep(60)
    return call


def _watched(name):
    def call(self, keys, *args, **kwargs):
        if name == "batch_get_v1":
            _before_load()
        elif name == "batch_set_v1":
            if len(keys) >= int(os.environ.get("KVBLK_SGLANG_KILL", len(keys) + 1)):
                kvblk.Pool.put_many = _killed_amid(kvblk.Pool.put_many)
        result = getattr(HiCacheKvblk, name)(self, keys, *args, **kwargs)
        with open(os.environ["KVBLK_SGLANG_EVENTS"], "a") as events:
            print(json.dumps({"call": name, "keys": len(keys), "result": result, "leases": len(self._leases),
                              **self.report.counts()}), file=events)
        return result
    return call


class Watched(HiCacheKvblk):
    batch_exists = _watched("batch_exists")
    batch_get_v1 = _watched("batch_get_v1")
    batch_set_v1 = _watched("batch_set_v1")
