#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=180 takes=20
# Hints on stored blocks, by ioctl and by ring: a released block goes first and is not written, a demoted one moves from
# memory to a member, a retained one and one of the highest priority survive what displaces others, and can be leased
# while they move.
. "${0%/*}/pool.bash"

# output of guest_hint, see hint()
hinted=0 absent=0

# hint FIRST COUNT HINT...
hint() {
	local line
	line=$(guest_hint "$node" "$@") || fail "guest_hint $*: $line"
	echo "hint $*: $line"
	eval "$line"
}

# dram BYTES MODE
dram() {
	put $sysfs/dram_bytes "$1"
	put $sysfs/dram_mode "$2"
}

kv_load
flash 1 80
pool_format /dev/flash0
MiB=$((1 << 20))
put $sysfs/admit_permille 1000

for KV_ENGINE in ioctl uring; do
	export KV_ENGINE
	echo "-- by $KV_ENGINE: memory"
	dram $((24 * MiB)) evict
	blocks put 1 18 $MiB
	expect "puts into memory" "$memory" 18
	blocks get 1 18 $MiB
	hint 9 11 release
	expect "released, and the one that is absent" "$hinted $absent" "10 1"
	blocks get 18 1 $MiB
	writes=$(counter dram_writes) drops=$(counter dram_drops)
	blocks put 101 6 $MiB
	wait_for 20 dram_is $((22 * MiB))
	blocks get 1 8 $MiB
	expect "blocks that stayed, in memory" "$hits $memory" "8 8"
	expect "released blocks that were written" "$(counter dram_writes)" "$writes"
	[ "$(counter dram_drops)" -gt "$drops" ] || fail "no released block was dropped"
	blocks get 9 9 $MiB
	expect "each drop is a released block's" "$misses" $(($(counter dram_drops) - drops))
	blocks get 18 1 $MiB
	expect "a get after the release revives the block" "$hits" 1

	# a block that only memory has is written and leaves; a copy leaves at once
	used=$(cat $sysfs/dram_used)
	hint 1 8 demote
	expect "demoted" "$hinted" 8
	wait_for 20 dram_is $((used - 8 * MiB))
	blocks get 1 8 $MiB
	expect "gets of demoted blocks" "$hits $memory" "8 0"
	dram $((24 * MiB)) through
	used=$(cat $sysfs/dram_used)
	blocks put 201 2 $MiB
	expect "copies in memory" "$(($(cat $sysfs/dram_used) - used))" $((2 * MiB))
	hint 201 2 demote
	expect "copies after the demotion" "$(cat $sysfs/dram_used)" "$used"
	blocks get 201 2 $MiB
	expect "gets without the copies" "$hits $memory" "2 0"
	dram 0 evict
	wait_for 20 dram_is 0
	for first in 1 101 201; do
		blocks delete $first 18 $MiB
	done

	echo "-- by $KV_ENGINE: flash"
	blocks put 301 5 65536
	hint 301 1 retain=3600
	hint 302 1 priority=3
	hint 303 1 retain=3600
	hint 303 1 retain=0
	hint 304 1 priority=3 retain=3600
	hint 304 1 release
	hint 305 1 retain=1
	# the retention ends before reclaim has to decide
	sleep 4
	segments=$(counter segments_reclaimed)
	key=1001
	while [ $(($(counter segments_reclaimed) - segments)) -lt 40 ]; do
		blocks put $key 96 $MiB
		key=$((key + 96))
	done
	present=
	for i in 1 2 3 4 5; do
		blocks get 30$i 1 65536
		present+=$hits
	done
	expect "retained, of priority 3, no longer retained, released, retained until earlier" "$present" 11000
	hint 301 2 release

	guest_hint $node readonly 301 || fail "a hint through a node open for reading was not refused"
done

echo "-- leases of blocks that reclaim moves"
check pool_destroy
nullb_create slow 80 mbps=16
pool_format /dev/slow
# null_blk never completes what takes more than a fiftieth of a second
put $sysfs/discard 0
put $sysfs/lease_permille 1000
put $sysfs/admit_permille 1000
# a segment of nothing else would not be copied
for i in {1..16}; do
	blocks put "$i" 1 $MiB
	hint "$i" 1 priority=3
	blocks put $((100 + 2 * i)) 2 $MiB
done
key=201
while [ ! -e "$tmp/stop" ]; do
	guest_blocks $node put $key 8 $MiB
	key=$((key + 8))
done >/dev/null &
load=$!
defer "touch $tmp/stop; wait $load || true"
tries=0 short=0 present=0 leased=0
until counts_more 5 reinserts; do
	[ $((++tries)) -lt 2000 ] || fail "reclaim has moved $(counter reinserts) blocks"
	eval "$(guest_blocks $node lookup 1 16 $MiB)"
	eval "$(guest_blocks $node lease 1 16 $MiB </dev/null)"
	[ "$leased" -ge "$present" ] || short=$((short + 1))
done
touch "$tmp/stop"
wait $load
echo "$short of $tries lookups could not lease what they found"
[ "$present" -gt 8 ] || fail "of 16 blocks of the highest priority $present are left"
[ $((10 * short)) -lt $tries ] || fail "blocks could not be leased while they moved"
no_failures
