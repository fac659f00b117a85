#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=60 takes=6 kernels=newest,6.12,debug
# A program compiled with the header of version 1 calls every function, and gets the results that the header documents.
. "${0%/*}/pool.bash"

kv_load
flash 1 80
pool_format /dev/flash0
check abi_v1 $node
no_failures
expect "blocks left over" "$(kvblk pool show $pool -o json | sed -n 's/.*"index_used": \([0-9]*\).*/\1/p')" 0
