#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=300 takes=35 kernels=newest,debug check=debug leaks=1
# Tenants that ask for more than a member can do share the member's bytes by weight, gets as well as puts. An operation that
# waits for a share ends with the deadline, the caller, the member and the pool.
# slow: a member of 20 MB/s.
. "${0%/*}/pool.bash"
b=/dev/kvblk/$pool/b
greedy=()

# done_by COUNTER: set $done_a and $done_b to the bytes that the tenants have done
done_by() {
	read -r done_a done_b < <(kvblk tenant list $pool -o json | python3 -c 'import json, sys
print(*(t["counters"][sys.argv[1]] for t in json.load(sys.stdin) if t["name"] in "ab"))' "$1")
}

# done_both COUNTER BYTES: both tenants have done so much more than $start_a and $start_b together; for wait_for
done_both() {
	done_by "$1"
	[ $((done_a + done_b - start_a - start_b)) -ge "$2" ]
}

# greedy OP: both tenants do more than the member can do, until killed
greedy() {
	local t
	for t in a b; do
		(exec kvblk bench $pool/$t --op "$1" --size 128K --depth 64 --seconds 600 ${2+--blocks "$2"}) >"$tmp/bench" 2>&1 &
		greedy+=($!)
		defer "kill -KILL $! 2>/dev/null || true"
	done
}

# enough: end the greedy ones, killed with operations that wait
enough() {
	kill -KILL "${greedy[@]}" 2>/dev/null || true
	wait "${greedy[@]}" || true
	greedy=()
}

# shares COUNTER PERCENT: while both are greedy, a does so many percent of what b does, within a tenth
shares() {
	local percent
	# both have begun
	done_by "$1"
	start_a=$done_a start_b=$done_b
	wait_for 60 done_more "$1"
	start_a=$done_a start_b=$done_b
	wait_for 90 done_both "$1" $((32 << 20))
	percent=$((100 * (done_a - start_a) / (done_b - start_b)))
	echo "$1: a $(((done_a - start_a) >> 10)) KiB, b $(((done_b - start_b) >> 10)) KiB: $percent %"
	[ $percent -ge $(($2 * 9 / 10)) ] && [ $percent -le $(($2 * 11 / 10)) ] || fail "$1: a did $percent % of b's bytes, not $2 %"
}

# done_more COUNTER: each tenant has done more than at the start, which takes a second of shares; for wait_for
done_more() {
	done_by "$1"
	[ $((done_a - start_a)) -gt $((4 << 20)) ] && [ $((done_b - start_b)) -gt $((4 << 20)) ]
}

kv_load
nullb_create slow 700 mbps=20 discard=0
dm_create slow /dev/slow "0 %s linear /dev/slow 0"
pool_format /dev/mapper/slow
put $sysfs/admit_permille 1000
for t in a b; do
	check kvblk tenant create $pool $t
done

echo "-- gets, by weight"
check kvblk tenant set $pool a --weight 300
greedy get 100
shares hit_bytes 300
check kvblk tenant set $pool a --weight 100
shares hit_bytes 100
enough

echo "-- puts, by weight"
check kvblk tenant set $pool b --weight 300
greedy put
shares put_bytes 33

echo "-- neither gets nor puts of a tenant starve the others of its own"
greedy get 100
for what in hit_bytes put_bytes; do
	done_by $what
	start_a=$done_a start_b=$done_b
	wait_for 90 done_more $what
done
enough

echo "-- a tenant that is not greedy has what it asks for, and every byte is right"
node=$b blocks put 1 64 40000
greedy get 100
node=$b blocks get 1 64 40000
expect "gets" "$hits $bad" "64 0"

echo "-- a get ends with its deadline, although it waits"
KV_DEADLINE_MS=1 node=$b blocks get 1 64 40000
expect "gets" "$((hits + late)) $misses $bad" "64 0 0"
enough

echo "-- what waits for a member that does not respond is a miss"
events_start
put $sysfs/suspect_ms 500
greedy get 100
start_a=0 start_b=0
wait_for 60 done_more hit_bytes
defer 'dmsetup resume slow'
check dmsetup suspend --noflush --nolockfs slow
wait_for 30 event member-suspect
wait_for 30 counts_more 0 miss_member
check dmsetup resume slow
wait_for 30 event member-answers
enough
no_failures

echo "-- a pool is destroyed with gets that wait"
put $sysfs/suspect_ms 60000
greedy get 100
done_by hit_bytes
start_a=$done_a start_b=$done_b
wait_for 60 done_more hit_bytes
check kvblk pool destroy --force $pool
wait_for 60 pool_is_gone $pool
enough
