#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=60 takes=6 kernels=newest,6.12,debug
# A program compiled with the header of version 2, for 64 and for 32 bits, calls every function, and gets the results
# that the header documents.
. "${0%/*}/pool.bash"

kv_load
flash 1 80
pool_format /dev/flash0
check abi_v2 $node ${node%/*}/changes
# this file exists on kernels that run 32-bit programs
if [ -e /proc/sys/abi/vsyscall32 ]; then
	check abi32_v2 $node ${node%/*}/changes
elif [ "$KVBLK_KERNEL" = newest ]; then
	fail "the newest stock kernel does not run 32-bit programs"
fi
no_failures
expect "blocks left over" "$(kvblk pool show $pool -o json | sed -n 's/.*"index_used": \([0-9]*\).*/\1/p')" 0
