#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=180 takes=40 kernels=newest,6.12,debug check=newest,debug
# The Python package's tests and doctests, on a real pool.
. "${0%/*}/pool.bash"

kv_load
flash 2 200
pool_format /dev/flash0 /dev/flash1
PYTHONPATH=/build/user/tools/python-lib check timeout $((120 * KVBLK_SLOW)) python3 /kvblk/tools/python/test/test_kvblk.py $pool
no_failures
