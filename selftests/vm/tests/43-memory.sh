#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=100 kernels=debug,debug-smp leaks=1
# The module's allocations fail at random while threads mix all operations: -ENOMEM, never a wrong byte, and no leak.
# Listeners learn that an event was lost, and a lookup without memory for its lease reports that.
. "${0%/*}/pool.bash"

# starve FAULT START END PERCENT: inject failures of this kind into calls by code from START to END
starve() {
	local dir=/sys/kernel/debug/$1
	put "$dir/task-filter" N
	[ ! -e "$dir/ignore-gfp-wait" ] || put "$dir/ignore-gfp-wait" N
	[ ! -e "$dir/min-order" ] || put "$dir/min-order" 0
	put "$dir/verbose" 0
	put "$dir/interval" 1
	put "$dir/times" 1000000
	put "$dir/stacktrace-depth" 32
	put "$dir/require-start" "$2"
	put "$dir/require-end" "$3"
	defer "put $dir/probability 0"
	put "$dir/probability" "$4"
}

# module_starves FAULT PERCENT: inject failures into all calls by the module
module_starves() {
	local start
	start=$(cat /sys/module/kvblk/sections/.text)
	starve "$1" "$start" "$(printf '%#x' $((start + $(cat /sys/module/kvblk/coresize))))" "$2"
}

stress_starving() {
	local dir=/sys/kernel/debug/$1
	module_starves "$1" 5
	check guest_stress -e -n -o -t 3 -k 500 -l 60000 -s 10 "$node"
	put "$dir/probability" 0
	echo "$1, $KV_ENGINE: $((1000000 - $(cat "$dir/times"))) allocations failed"
	[ "$(cat "$dir/times")" -lt 999950 ] || fail "$1 has hardly made anything fail"
}

# lost_event: fail the allocations of the worker that sends events
lost_event() {
	local range
	readarray -t range < <(awk '$4 == "[kvblk]" { print $1, $3 }' /proc/kallsyms | sort | grep -A1 ' events_send$' | cut -d ' ' -f 1)
	events_start 2>"$tmp/said"
	starve failslab "0x${range[0]}" "0x${range[1]}" 100
	check kvblk member remove --yes "$pool" flash1
	wait_for 10 grep -q 'events were lost' "$tmp/said"
	put /sys/kernel/debug/failslab/probability 0
	wait_for 10 member_is flash1 gone
	! event member-down || fail "the event was sent"
	check kvblk member add "$pool" --format --yes /dev/flash1
	wait_for 10 event member-up
}

kv_load
# allocate the devices' memory now, because a failed allocation would be a write error
for i in 0 1; do
	nullb_create flash$i 100 discard=0
	check dd if=/dev/zero of=/dev/flash$i bs=1M count=100 oflag=direct status=none
done
pool_format /dev/flash0 /dev/flash1
lost_event
# 0 %: a task makes single allocations fail by number
for fault in failslab fail_page_alloc fail_usercopy; do
	module_starves $fault 0
done
check env KV_STARVE=1 guest_lookup_lease $node lease_without_memory
for KV_ENGINE in ioctl uring; do
	export KV_ENGINE
	stress_starving failslab
	stress_starving fail_page_alloc
	# second round: with blocks in DRAM
	put $sysfs/dram_bytes $((8 << 20))
done
blocks put 1 100 50000
expect "puts after it" "$stored" 100
blocks get 1 100 50000
expect "gets after it" "$hits" 100
