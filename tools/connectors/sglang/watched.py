# SPDX-License-Identifier: MIT
"""The backend, as it is, with a line of JSON for each call in the file that KVBLK_SGLANG_EVENTS names."""

import json
import os

from kvblk_sglang import HiCacheKvblk


def _watched(name):
    def call(self, keys, *args, **kwargs):
        result = getattr(HiCacheKvblk, name)(self, keys, *args, **kwargs)
        with open(os.environ["KVBLK_SGLANG_EVENTS"], "a") as events:
            print(json.dumps({"call": name, "keys": len(keys), "result": result, "leases": len(self._leases),
                              **self.counters}), file=events)
        return result
    return call


class Watched(HiCacheKvblk):
    batch_exists = _watched("batch_exists")
    batch_get_v1 = _watched("batch_get_v1")
    batch_set_v1 = _watched("batch_set_v1")
