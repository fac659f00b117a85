#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=3600 takes=60 kernels=newest,debug check=debug
# A follower reads foreign members damaged so that every checksum passes: each field of superblock, segment table,
# summary, header and change page is flipped, swapped, at a limit or outdated, before the follower reads it or while it
# does. 60 images; in make check-all 2,000. The kernel does not complain, no byte is wrong, a damaged member costs no
# block of the other one, and nothing is written to either. KV_SEED=NUMBER tries one image.
# slow: every fourth image waits for the follower's next poll, and the owner's lives for the reuse grace.
. "${0%/*}/pool.bash"

kv_load
modprobe -q loop || true
node_id 7

first=$((RANDOM * 32768 + RANDOM)) count=60
[ "$KVBLK_DEPTH" != all ] || count=2000
[ -z "${KV_SEED-}" ] || first=$KV_SEED count=1
echo "-- images $first to $((first + count - 1))"
# or else the kernel drops the log line of each image
limit=$(</proc/sys/kernel/printk_devkmsg)
defer "put /proc/sys/kernel/printk_devkmsg $limit"
put /proc/sys/kernel/printk_devkmsg on
pools_destroy() {
	for pool in $pool $pool-f; do
		pool_is_gone "$pool" || kvblk pool destroy "$pool"
	done
}
defer pools_destroy
check crash_media_fuzz follow $pool "$tmp" "$first" "$count"
