#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=120 takes=36 check=debug
# Lookups tell what is there; what is leased survives pressure, until release, close or the lease's end.
. "${0%/*}/pool.bash"

kv_load
flash 1 74
engines=(ioctl uring)
# slow, and what the ioctl does the ring does too
[ "$KVBLK_KERNEL" != debug-smp ] || engines=(uring)
for engine in "${engines[@]}"; do
	pool_format /dev/flash0
	check env "KV_ENGINE=$engine" kv_lookup $node
	no_failures
	more_than 0 segments_reclaimed
	check pool_destroy
done
