#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=120 takes=66 check=debug leaks=1 kernels=newest,6.12,debug,debug-smp waits=1
# A stall is not passed on: neither by a caller in a page fault that its pager does not resolve, nor by an
# administrator's request to a device that does not respond.
# slow: requests and scans that get no answer for the 5 s after which a request goes on by itself.
. "${0%/*}/pool.bash"

kv_load
flash 3 80
pool_format /dev/flash0
check guest_pager_stall $node
check env KV_ENGINE=uring guest_pager_stall $node
# blocks that were requested before are promoted to DRAM
for engine in ioctl uring; do
	blocks put 6000010 1 65536
	blocks get 6000010 1 65536
	put $sysfs/dram_bytes $((16 << 20))
	put $sysfs/dram_promote 1
	check env KV_DRAM=1 KV_ENGINE=$engine guest_pager_stall $node stalled_copy
	put $sysfs/dram_bytes 0
	wait_for 20 dram_is 0
done
no_failures
check kvblk pool destroy $pool

# device_silent NAME: queue I/O to a device until device_answers
device_silent() {
	check dmsetup suspend --noflush --nolockfs "$1"
}

device_answers() {
	[ ! -b "/dev/mapper/$1" ] || dmsetup resume "$1"
}

dm_create slow /dev/flash1 "0 %s linear /dev/flash1 0"
defer 'device_answers slow'
events_start

# missed_epoch: a member that was silent while the pool's epoch advanced keeps its blocks when it responds again
missed_epoch() {
	echo "-- an epoch that a silent member misses"
	: >"$tmp/events"
	put $sysfs/suspect_ms 500
	blocks put 1 20 50000
	device_silent slow
	guest_blocks $node get 1 20 50000 &
	wait_for 10 event member-suspect
	code 4 'deletes fail until' kvblk member remove --yes $pool flash0
	wait_for 10 member_is flash0 gone
	device_answers slow
	wait_for 10 event member-answers
	wait $!
	blocks get 1 20 50000
	silent_had=$hits
	sleep 1
	crash_image /dev/mapper/slow /dev/flash2
	check kvblk pool destroy $pool
	crash_image /dev/flash2 /dev/mapper/slow
	pool_import /dev/mapper/slow
	blocks get 1 20 50000
	expect "gets after the crash" "$hits" "$silent_had"
	[ "$hits" -gt 0 ] || fail "the silent member had no block to lose"
	check kvblk member add $pool --format --yes /dev/flash0
	wait_for 20 pool_is_up
}

# goes_on REQUEST...: a request that waits for a device is answered with "goes on"
soon=(timeout $((60 * KVBLK_SLOW)))
goes_on() {
	echo "-- a device that does not answer: $*"
	: >"$tmp/events"
	"${soon[@]}" kvblk "$@" >"$tmp/answer" 2>&1 && fail "done, on a silent device"
	cat "$tmp/answer"
	grep -q "goes on" "$tmp/answer" || fail "another refusal, or no answer"
	# registering a netlink family takes generic netlink's lock
	check "${soon[@]}" kvblk pool list
	! modinfo nbd >"$tmp/nbd" 2>&1 || check "${soon[@]}" modprobe nbd nbds_max=0
	[ ! -d /sys/module/nbd ] || check "${soon[@]}" modprobe -r nbd
}

device_silent slow
goes_on pool create $pool --format --yes --segment-size 8M /dev/mapper/slow
code 1 'being created already' kvblk pool create $pool --format --yes /dev/flash0
# pools on other devices can be created and destroyed meanwhile
check "${soon[@]}" kvblk pool create other --format --yes --segment-size 8M /dev/flash0
check "${soon[@]}" kvblk pool destroy other
check "${soon[@]}" kvblk pool import --all >"$tmp/all" 2>"$tmp/said"
grep -q '^other: 1 member: flash0 restored' "$tmp/all" || fail "a pool does not come beside a silent device: $(cat "$tmp/all" "$tmp/said")"
grep -q '/dev/mapper/slow does not answer' "$tmp/said" || fail "the silent device is not told: $(cat "$tmp/said")"
code 1 'timed out' "${soon[@]}" kvblk pool import other /dev/mapper/slow
check "${soon[@]}" kvblk pool destroy other
device_answers slow
wait_for 20 event pool-up
wait_for 20 event request-done
grep -a 'request-done.*succeeded' "$tmp/events" || fail "no event of a success"
defer pool_destroy
check kvblk member add $pool --format --yes /dev/flash0
wait_for 20 pool_is_up

echo "-- a member that does not answer keeps no other one"
device_silent slow
guest_blocks $node put 1 20 50000 >"$tmp/puts" &
check "${soon[@]}" kvblk member remove --yes $pool flash0
wait_for 20 member_is flash0 gone
device_answers slow
wait $!
check kvblk member add $pool --format --yes /dev/flash0
wait_for 20 pool_is_up
missed_epoch

# a request for the same device is rejected while the first one is pending
check dd if=/dev/zero of=/dev/flash2 bs=1M count=1 oflag=direct status=none
dm_create late /dev/flash2 "0 %s linear /dev/flash2 0"
defer 'device_answers late'
device_silent late
goes_on member add $pool --format --yes /dev/mapper/late
code 1 'being added already' kvblk member add $pool --format --yes /dev/mapper/late
check "${soon[@]}" kvblk member remove --yes $pool flash0
wait_for 20 member_is flash0 gone
check "${soon[@]}" kvblk member add $pool --format --yes /dev/flash0
wait_for 20 pool_is_up
device_answers late
wait_for 20 member_is late up
check kvblk member remove --yes $pool late
wait_for 20 member_is late gone

device_silent slow
goes_on pool destroy $pool
device_answers slow
wait_for 20 event pool-down
wait_for 20 pool_is_gone $pool

echo "-- a request that fails in the end"
: >"$tmp/events"
device_silent slow
refuse command kvblk pool create $pool --format --yes --index-slots 1 /dev/mapper/slow
device_answers slow
wait_for 20 event request-done
grep -a 'request-done.*failed' "$tmp/events" || fail "no event of a failure"

echo "-- who asked waits for the end"
check kvblk pool create $pool --format --yes --segment-size 8M /dev/flash0
device_silent slow
library_wait $pool /dev/mapper/slow >"$tmp/wait" &
wait_for 60 [ -s "$tmp/wait" ]
expect "what the wait says at first" "$(cat "$tmp/wait")" waits
device_answers slow
check wait $!
expect "what the wait says" "$(xargs <"$tmp/wait")" "waits 0"
check kvblk pool destroy $pool
check dmsetup remove --retry slow
