#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=100 check=newest,6.12,debug takes=20 leaks=1 kernels=newest,6.12,debug,debug-smp
# A pool returns warm: with all its blocks after a clean stop, without those deleted or expired. Blocks from before a
# member was formatted again are not served. See 76-assembly for members that are missing or out of date.
. "${0%/*}/pool.bash"

kv_load
flash 2 120
flash0=/dev/flash0 flash1=/dev/flash1
pool_format $flash0 $flash1
check crash_acked run -t 3 -n 12 -l 60000 $node "$tmp/journal"
uuid=$(cat $sysfs/uuid 2>/dev/null || kvblk pool show $pool | awk '/^uuid/ { print $2 }')

echo "-- a clean stop"
for round in 1 2; do
	check pool_destroy
	[ ! -e $node ] || fail "the node is still there"
	pool_import $flash1 $flash0
	check crash_acked check -t 3 -p 100 $node "$tmp/journal"
	no_failures
done
[ "$(kvblk pool show $pool | awk '/^uuid/ { print $2 }')" = "$uuid" ] || fail "the pool has another uuid"
more_than 50 restored

echo "-- it can be used as before"
blocks put 1 100 50000
expect "puts" "$stored" 100
blocks get 1 100 50000
expect "gets" "$hits" 100
check pool_destroy

echo "-- a member that was removed does not come back with what it had"
pool_import
check kvblk member remove --yes $pool flash1
wait_for 20 member_is flash1 gone
blocks get 1 100 50000
[ "$hits" -lt 100 ] || fail "a member that was removed had no block"
here=$hits
blocks put 1 100 50000 77
expect "puts of what is away" "$stored" $((100 - here))
blocks delete 1 100 50000
expect "deletes" "$deleted" 100
refuse kvblk member add $pool $flash1
check kvblk member add $pool --format --yes --segment-size 8M $flash1
wait_for 20 member_is flash1 up
blocks get 1 100 50000
expect "deleted blocks that a member brought back" "$hits" 0
check pool_destroy
pool_import
blocks get 1 100 50000
expect "deleted blocks after another restart" "$hits" 0

echo "-- a member formatted again serves nothing of its former life, not even after a crash"
blocks put 2000 200 50000
expect "puts" "$stored" 200
check pool_destroy
pool_format $flash0 $flash1
blocks get 2000 200 50000
expect "blocks of a former life" "$hits" 0
blocks put 3000 6 50000
put $sysfs/integrity 0
blocks put 4000 20 50000
expect "puts without checksums" "$stored" 20
blocks get 4000 20 50000
expect "gets without checksums" "$hits" 20
nullb_create copy0 120
nullb_create copy1 120
crash_image $flash0 /dev/copy0
crash_image $flash1 /dev/copy1
check pool_destroy
pool_import /dev/copy0 /dev/copy1
blocks get 2000 200 50000
expect "blocks of a former life after a crash" "$hits" 0
put $sysfs/integrity 0
blocks get 3000 6 50000
expect "blocks just put, after a crash" "$hits" 6
blocks get 4000 20 50000
expect "blocks without checksums after a crash" "$hits" 0

echo "-- put without checksums: served without them only"
blocks put 5000 20 50000
expect "puts without checksums" "$stored" 20
check pool_destroy
pool_import /dev/copy0 /dev/copy1
put $sysfs/integrity 0
blocks get 5000 10 50000
expect "gets without checksums" "$hits" 10
put $sysfs/integrity 1
blocks get 5000 20 50000
expect "gets of what has none" "$hits" 0
no_failures

echo "-- a copy of a member that is active is refused"
code 1 'is another path to a member in use' kvblk member add $pool $flash0
code 1 'is another path to a member in use' kvblk pool create other $flash0 $flash1
blocks get 3000 6 50000
expect "gets after the refusals" "$hits" 6

echo "-- destroyed while its node is open"
coproc holder { exec guest_blocks $node hold; }
holder_pid=$!
defer "kill $holder_pid 2>/dev/null; wait $holder_pid 2>/dev/null || true"
read -r _ <&"${holder[0]}"
code 1 "guest_blocks ($holder_pid) has the node open: close it" kvblk pool destroy $pool
blocks get 3000 6 50000
expect "gets after a refused destroy" "$hits" 6
check kvblk pool destroy $pool --force
[ ! -e $node ] || fail "the node is still there"
kill "$holder_pid"
wait "$holder_pid" 2>/dev/null || true
check pool_destroy
echo "-- who is closing it is waited for: a ring's end comes after its process's"
for round in 1 2 3 4 5; do
	pool_import /dev/copy0 /dev/copy1
	check kvblk bench $pool --op put --size 4K --depth 16 --count 64 --engine uring >/dev/null
	check kvblk pool destroy $pool
done
pool_import /dev/copy0 /dev/copy1
coproc holder { exec guest_blocks $node hold; }
holder_pid=$!
read -r _ <&"${holder[0]}"
(sleep 1 && kill $holder_pid) &
check kvblk pool destroy $pool
wait

echo "-- what is believed without checksums is durable when it is put: a target may lose its cache, and a host is not told"
nullb_create cached 120 cache_size=64 fua=0
# flushes: print the device's flushes; it has no FUA, so each write that bypasses its cache makes one
flushes() {
	awk '{ print $16 }' /sys/block/cached/stat
}
# put_each FIRST: put ten blocks in sequence, because simultaneous writes share a flush
put_each() {
	local i
	for ((i = 0; i < 10; i++)); do
		blocks put $(($1 + i)) 1 50000
	done
}
pool_format /dev/cached
before=$(flushes)
put_each 6000
# segments that open and seal flush, too
[ $(($(flushes) - before)) -lt 10 ] || fail "puts with checksums: $(($(flushes) - before)) flushes"
put $sysfs/integrity 0
before=$(flushes)
put_each 7000
[ $(($(flushes) - before)) -ge 10 ] || fail "ten puts without checksums: $(($(flushes) - before)) flushes"
blocks get 6000 10 50000
blocks get 7000 10 50000
expect "gets" "$hits" 10

if [ "$KVBLK_DEPTH" = all ] && [ -e /sys/power/pm_test ]; then
	echo "-- a request that is under way writes nothing behind a hibernation image: the host does not freeze beside it"
	# freezes: freeze tasks and work queues, and thaw at once
	freezes() {
		echo freeze 2>/dev/null >/sys/power/state
	}
	for value in pm_test=freezer sync_on_suspend=0 pm_freeze_timeout=500; do
		# the value in brackets, if the file lists several
		before=$(sed 's/.*\[\(.*\)\].*/\1/' "/sys/power/${value%=*}")
		defer "put /sys/power/${value%=*} $before"
		put "/sys/power/${value%=*}" "${value#*=}"
	done
	delay=/sys/module/suspend/parameters/pm_test_delay
	defer "put $delay $(cat $delay)"
	put $delay 0
	check freezes
	modprobe -q dm_delay || true
	# reads at once, writes after 0.7 s, and there are more than ten
	dm_create late $flash1 "0 %s delay $flash1 0 0 $flash1 0 700"
	code 1 'the request goes on' command kvblk member add --format --yes --segment-size 8M $pool /dev/mapper/late
	refuse member_is late up
	refuse freezes
	wait_for 60 member_is late up
	wait_for 20 freezes
	blocks get 6000 10 50000
	expect "gets after it" "$hits" 10
	check pool_destroy
fi
