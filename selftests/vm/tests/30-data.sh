#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=150 check=newest,6.12,debug,uml takes=41 kernels=newest,6.12,debug,debug-smp,uml
# Blocks of all lengths, alignments and scatters are returned as they were put; also in a strict pool, and up to 64 MiB.
# slow: 26 tests by both interfaces, with blocks of up to 64 MiB, copied by an emulated CPU.
. "${0%/*}/pool.bash"

kv_load
flash 2 384
engines=(ioctl uring)
# only the ring on this slow kernel: it runs all that the ioctl does
[ "$KVBLK_KERNEL" != debug-smp ] || engines=(uring)
for engine in "${engines[@]}"; do
	echo "-- $engine"
	pool_format /dev/flash0 /dev/flash1
	check env "KV_ENGINE=$engine" guest_put_get $node
	no_failures
	more_than 100 get_direct
	more_than 100 get_bounced
	check pool_destroy
done

pool_create --format --yes --strict --segment-size 8M /dev/flash0 /dev/flash1
check guest_put_get $node sizes aligned_is_direct pieces mixed_pieces partial too_small
no_failures
expect get_direct "$(counter get_direct)" 0
expect put_direct "$(counter put_direct)" 0
check pool_destroy

nullb_create large 1160
pool_create --format --yes --segment-size 128M /dev/large
check guest_put_get $node info largest
no_failures
