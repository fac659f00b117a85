#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=100 kernels=debug,debug-smp leaks=1
# The module's allocations fail at random while threads mix all operations: -ENOMEM, never a wrong byte; and nothing leaks.
. "${0%/*}/pool.bash"

# stress_starving FAULT: with one of fault injection's kinds, for whoever is called by the module
stress_starving() {
	local dir=/sys/kernel/debug/$1 start
	start=$(cat /sys/module/kvblk/sections/.text)
	put "$dir/task-filter" N
	put "$dir/ignore-gfp-wait" N
	[ ! -e "$dir/min-order" ] || put "$dir/min-order" 0
	put "$dir/verbose" 0
	put "$dir/interval" 1
	put "$dir/times" 1000000
	put "$dir/stacktrace-depth" 32
	put "$dir/require-start" "$start"
	put "$dir/require-end" "$(printf '%#x' $((start + $(cat /sys/module/kvblk/coresize))))"
	defer "put $dir/probability 0"
	put "$dir/probability" 5
	check kv_stress -e -n -o -t 3 -k 500 -l 60000 -s 10 "$node"
	put "$dir/probability" 0
	echo "$1, $KV_ENGINE: $((1000000 - $(cat "$dir/times"))) allocations failed"
	[ "$(cat "$dir/times")" -lt 999950 ] || fail "$1 has hardly made anything fail"
}

kv_load
# its memory is there before: an allocation of the device's that fails is a write error
for i in 0 1; do
	nullb_create flash$i 100 discard=0
	check dd if=/dev/zero of=/dev/flash$i bs=1M count=100 oflag=direct status=none
done
pool_format /dev/flash0 /dev/flash1
for KV_ENGINE in ioctl uring; do
	export KV_ENGINE
	stress_starving failslab
	stress_starving fail_page_alloc
done
blocks put 1 100 50000
expect "puts after it" "$stored" 100
blocks get 1 100 50000
expect "gets after it" "$hits" 100
