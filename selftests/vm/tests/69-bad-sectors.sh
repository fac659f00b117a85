#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=400 takes=150 kernels=newest,debug check=debug
# Unreadable metadata, permanent or once: one bad 4 KiB costs no block, two cost the blocks that they describe, while
# they are bad. A delete that cannot know what is there fails, and after the loss is given up later deletes work. kvblkd
# reads again what could not be read.
# slow: a pool is imported twice for each unit of metadata.
. "${0%/*}/daemon.bash"

kv_load
nullb_create bad 100
nullb_create once 100 badblocks_once=1
# units of 4 KiB: superblocks, the only page of the table, data from 1 MiB on in segments of 8 MiB
slot0=32 slot1=33

# sectors_bad DEVICE UNIT...: make units unreadable and unwritable; on "once" only the first try fails
sectors_bad() {
	local unit
	for unit in "${@:2}"; do
		put "$configfs/nullb/$1/badblocks" "+$((unit * 8))-$((unit * 8 + 7))"
	done
}

sectors_well() {
	local unit
	for unit in "${@:2}"; do
		put "$configfs/nullb/$1/badblocks" "-$((unit * 8))-$((unit * 8 + 7))"
	done
}

# summary SEGMENT PAGE: print its unit
summary() {
	echo $((256 + ($1 + 1) * 2048 - 1 - $2))
}

all_there() {
	blocks get 1 200 70000
	expect "gets, $1" "$hits" 200
}

# each_bad: make one unit after the other bad, on "bad" permanently and on "once" once; the pool returns with all its blocks
each_bad() {
	local unit
	for unit in "${units[@]}"; do
		sectors_bad bad "$unit"
		sectors_bad once "$unit"
		pool_import /dev/bad /dev/once
		all_there "unit $unit is bad"
		expect "members that are up" "$(member_states | grep -c ' up$')" 2
		expect "deletes that are unsure" "$(cat $sysfs/unsure)" 0
		check pool_destroy
		sectors_well bad "$unit"
		# writes that failed while it was bad are repeated now
		pool_import /dev/bad /dev/once
		all_there "unit $unit is well"
		check pool_destroy
	done
}

pool_format /dev/bad /dev/once
blocks put 1 200 70000
expect "puts" "$stored" 200
blocks delete 1000 1 1
check pool_destroy
units=(0 15 16 31 "$slot0" "$slot1" "$(summary 0 0)" "$(summary 0 1)")
[ "$KVBLK_DEPTH" != all ] || units=({0..33} "$(summary 0 0)" "$(summary 0 1)" "$(summary 1 0)" "$(summary 1 1)")

echo "-- one bad 4 KiB: ${units[*]}"
each_bad

echo "-- the only page of the table: the member is unrestored, and nothing of it is lost"
sectors_bad bad $slot0 $slot1
events_start
check kvblk pool import $pool /dev/bad /dev/once
defer pool_destroy
wait_for 30 member_is bad unrestored
wait_for 5 event restore-failed
epoch=$(cat $sysfs/epoch)
blocks get 1 200 70000
[ "$hits" -gt 20 ] && [ "$misses" -gt 20 ] || fail "with one of two members $hits of 200 blocks are hits"
here=$hits
code 4 "member bad is unrestored" kvblk status
check kvblk member add $pool /dev/bad
wait_for 30 member_is bad unrestored
expect "the epoch after a second try" "$(cat $sysfs/epoch)" "$epoch"
blocks put 5000 10 70000
expect "puts" "$stored" 10
check pool_destroy
sectors_well bad $slot0 $slot1
pool_import /dev/bad /dev/once
all_there "the next import"
blocks get 5000 10 70000
expect "gets of what was put meanwhile" "$hits" 10
check pool_destroy

echo "-- it is well again while the pool is up"
sectors_bad bad $slot0 $slot1
check kvblk pool import $pool /dev/bad /dev/once
wait_for 30 member_is bad unrestored
epoch=$(cat $sysfs/epoch)
sectors_well bad $slot0 $slot1
blocks get 1 200 70000
expect "gets while nobody tries again" "$hits" "$here"
expect "the epoch" "$(cat $sysfs/epoch)" "$epoch"
check kvblk member add $pool /dev/bad
wait_for 30 pool_is_up
all_there "it was added again"
check pool_destroy

echo "-- the same with kvblkd, which tries again by itself, with growing gaps"
sectors_bad bad $slot0 $slot1
echo "pools = ( { name = \"$pool\"; } );" >"$conf"
tries() { dmesg | grep -c 'member bad: cannot restore its blocks' || true; }
before=$(tries)
daemon_start
wait_for 40 logged 'add /dev/bad to pool .*: failed: the member is still not restored; retrying within 60 s$'
wait_for 30 member_is bad unrestored
[ $(($(tries) - before)) -le 4 ] || fail "it was read $(($(tries) - before)) times in vain"
sectors_well bad $slot0 $slot1
wait_for 30 pool_is_up
all_there "kvblkd added it again"
kill "$daemon"
wait "$daemon" || true
check pool_destroy

echo "-- deletes pass it by"
sectors_bad bad $slot0 $slot1
check kvblk pool import $pool /dev/bad /dev/once
wait_for 30 member_is bad unrestored
expect "members that deletes can't know of" "$(cat $sysfs/unsure)" 1
kvblk pool show $pool | grep -q 'deletes  *fail' || fail "not told: $(kvblk pool show $pool)"
blocks delete 1000000 1 1
expect "a delete that can't know" "$errors" 1
sure() { [ "$(cat $sysfs/unsure)" = 0 ]; }
wait_for 20 sure
blocks delete 1 50 70000
gone=$((deleted + absent)) failed=$errors
[ $gone -gt 10 ] || fail "$gone of 50 deletes succeeded"
sectors_well bad $slot0 $slot1
check kvblk member add $pool /dev/bad
wait_for 30 pool_is_up
blocks get 1 50 70000
[ "$hits" -le "$failed" ] || fail "$hits of 50 are back, $failed deletes failed"
blocks get 51 150 70000
expect "gets of the others" "$hits" 150
blocks delete 1 50 70000
expect "the rest of the deletes" $((deleted + absent)) 50
check pool_destroy
pool_import /dev/bad /dev/once
blocks get 1 50 70000
expect "gets of what was deleted" "$hits" 0
check pool_destroy

echo "-- some of a member was restored before it could not be: what passes it by stays away"
MiB=$((1 << 20))
nullb_create many 260
pool_format /dev/many
blocks put 1 170 $MiB
expect "puts" "$stored" 170
check pool_destroy
# headers of blocks, and summaries, from the third segment on
headers=()
for segment in {2..31}; do
	for block in {0..6}; do headers+=($((256 + segment * 2048 + block * 257))); done
	headers+=("$(summary "$segment" 0)")
done
sectors_bad many "${headers[@]}"
check kvblk pool import $pool /dev/many
wait_for 60 member_is many unrestored
[ "$(cat $sysfs/members/many/restored)" -gt 0 ] || fail "nothing was restored before"
nullb_create third 400
check kvblk member add $pool --format --yes --segment-size 8M /dev/third
wait_for 20 member_is third up
blocks put 1 170 $MiB
expect "puts of what is a miss" "$stored" 170
sectors_well many "${headers[@]}"
check kvblk member add $pool /dev/many
wait_for 60 pool_is_up
wait_for 20 sure
blocks delete 1 170 $MiB
expect "deletes" "$deleted" 170
check pool_destroy
pool_import /dev/many /dev/third
blocks get 1 170 $MiB
expect "gets of what was deleted" "$hits" 0
check pool_destroy
nullb_remove many
nullb_remove third

echo "-- one page of the table of two"
nullb_create large 1100
pool_format /dev/large /dev/once
blocks put 1 200 70000
check pool_destroy
unread_is() { [ "$(cat $sysfs/members/large/unread_segments)" = "$1" ]; }
sectors_bad large $slot0 $slot1
pool_import /dev/large /dev/once
expect "segments that are unread" "$(cat $sysfs/members/large/unread_segments)" 127
blocks get 1 200 70000
expect "hits with half of the blocks unread" "$hits" 100
blocks put 5000 100 70000
expect "puts, to the other segments too" "$stored" 100
sectors_well large $slot0 $slot1
check kvblk member add $pool /dev/large
wait_for 20 unread_is 0
all_there "it is read again"
expect "deletes that are unsure" "$(cat $sysfs/unsure)" 0
check pool_destroy
sectors_bad large $slot0 $slot1
pool_import /dev/large /dev/once
sectors_well large $slot0 $slot1
blocks delete 1 1 70000
expect "a delete that can't know" "$errors" 1
wait_for 20 sure
expect "segments that are unread" "$(cat $sysfs/members/large/unread_segments)" 0
blocks delete 1 200 70000
expect "deletes" $((deleted + absent)) 200
blocks put 6000 1000 70000
expect "puts, to what was given up too" "$stored" 1000
check pool_destroy
pool_import /dev/large /dev/once
blocks get 1 200 70000
expect "gets of what was deleted" "$hits" 0
blocks get 6000 1000 70000
expect "gets of the others" "$hits" 1000
check pool_destroy
nullb_remove large

echo "-- a lease, and summaries that can't be read: their segments are reclaimed"
pool_format /dev/bad
blocks put 1 800 70000
expect "puts" "$stored" 800
mkfifo "$tmp/stay"
KV_STAY=1 guest_blocks $node lease 400 1 1 <>"$tmp/stay" >"$tmp/leased" &
lease=$!
defer "kill $lease 2>/dev/null; wait $lease 2>/dev/null || true"
wait_for 10 grep -q 'leased=1' "$tmp/leased"
pages=()
for ((i = 0; i < 12; i++)); do
	pages+=("$(summary $i 1)")
done
sectors_bad bad "${pages[@]}"
bear_errors
blocks put 10000 800 70000
[ "$stored" -gt 700 ] || fail "$stored of 800 are stored: $full found no room"
more_than 5 segments_reclaimed
blocks get 400 1 70000
expect "gets of the leased block" "$hits" 1
kill $lease
wait $lease || true
check pool_destroy
sectors_well bad "${pages[@]}"

echo "-- superblocks that can't be written when the pool goes"
pool_format /dev/bad /dev/once
blocks put 1 200 70000
sectors_bad bad 0 16
code 4 "pool down as after a crash: bad cannot be written" kvblk pool destroy $pool
sectors_well bad 0 16
pool_import /dev/bad /dev/once
all_there "the next import, which needs no force"

echo "-- and when a member is removed"
nullb_create third 100
check kvblk member add $pool --format --yes --segment-size 8M /dev/third
wait_for 20 pool_is_up
sectors_bad bad 0 16
sectors_bad third 0 16
code 4 "member removed, but deletes fail until the other members can be written" kvblk member remove --yes $pool third
expect "deletes that are unsure" "$(cat $sysfs/unsure)" 1
blocks delete 100000 1 1
expect "a delete that is not sure" "$errors" 1
sectors_well bad 0 16
wait_for 20 sure
blocks delete 100000 1 1
expect "the delete then" "$absent" 1
wait_for 20 member_is third gone
nullb_remove third

echo "-- a device that dies while it is made a member leaves nothing behind"
filters() { grep -c absent_alloc /proc/vmallocinfo || true; }
if grep -q kvblk /proc/vmallocinfo; then
	nullb_create third 100 irqmode=2 completion_nsec=100000000
	expect "filters before" "$(filters)" 0
	kvblk member add $pool --format --yes --segment-size 8M /dev/third 2>"$tmp/added" &
	adding=$!
	wait_for 20 member_is third missing
	nullb_remove third
	! wait $adding || fail "it was added"
	wait_for 20 member_is third gone
	expect "filters after" "$(filters)" 0
fi
check pool_destroy
