#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=300 takes=78 kernels=newest,6.12,debug,debug-smp check=debug
# While one caller does its worst, no operation of another one fails: gets into memory that faults forever, rings that
# are not reaped, kills in the middle, many leases, canceled puts, ten thousand operations, many deletes on a slow
# member, many waits for memory.
# slow: each kind of caller needs its time to be in the way.
. "${0%/*}/pool.bash"

# bystander: put, get and delete until stopped; $tmp/rounds has the number of rounds, $tmp/bad the first error
bystander() (
	first=1000000
	trap '[ -e "$tmp/stop" ] || echo "$(tail -n 1 "$tmp/said") ${why-}" >"$tmp/bad"' EXIT
	while [ ! -e "$tmp/stop" ]; do
		blocks put $first 20 50000
		[ "$stored $errors" = "20 0" ] || break
		blocks get $first 20 50000
		[ "$hits $errors" = "20 0" ] || break
		blocks delete $first 20 50000
		[ "$deleted $errors" = "20 0" ] || break
		first=$((first + 20))
		echo $(((first - 1000000) / 20)) >"$tmp/rounds"
	done >"$tmp/said" 2>&1
)

# moved: a round was completed since $before
moved() { [ "$(cat "$tmp/rounds")" != "$before" ]; }

kv_load
flash 2 400
pool_format /dev/flash0 /dev/flash1
echo 0 >"$tmp/rounds"
bystander &
defer 'touch "$tmp/stop"'
for worst in "guest_pager_stall $node stalled_rings" "guest_pager_stall $node stopped_ring killed" "guest_lookup_lease $node many_leases limit_of_leases" \
	"guest_uring $node canceled_puts ten_thousand bad_registrations"; do
	echo "-- $worst"
	before=$(cat "$tmp/rounds")
	# shellcheck disable=SC2086 # several words
	check timeout $((100 * KVBLK_SLOW)) $worst
	[ ! -e "$tmp/bad" ] || fail "meanwhile another's: $(cat "$tmp/bad")"
	echo "rounds of the other one: $(($(cat "$tmp/rounds") - before))"
done
echo "-- a cgroup with next to no budget"
cgroup_up io
# budget WHAT: set the cgroup's bytes per second
budget() {
	local i
	for i in 0 1; do
		put "$cgroup/io.max" "$(stat -Lc '%Hr:%Lr' /dev/flash$i) rbps=$1 wbps=$1"
	done
}
budget 4096
blocks put 1 20 50000
# I/O delayed by the cgroup must not make the members suspect
put $sysfs/suspect_ms 1000
(cgroup_enter && exec guest_blocks $node get 1 20 50000) >"$tmp/poor" &
before=$(cat "$tmp/rounds")
sleep 5
wait_for 10 moved
[ ! -e "$tmp/bad" ] || fail "meanwhile another's: $(cat "$tmp/bad")"
echo "rounds of the other one: $(($(cat "$tmp/rounds") - before))"
! grep -q hits "$tmp/poor" || fail "the budget is none: $(cat "$tmp/poor")"
put $sysfs/suspect_ms 60000
budget max
wait $!
grep -q 'hits=20 .* bad=0' "$tmp/poor" || fail "who was over its budget got: $(cat "$tmp/poor")"

echo "-- puts that wait at the gate, while gets come"
put $sysfs/put_window_bytes 4096
while [ ! -e "$tmp/stop_gets" ]; do
	guest_blocks $node get 1 20 50000
done >/dev/null &
getter=$!
defer 'touch "$tmp/stop_gets"; wait $getter 2>/dev/null || true'
# written: print the bytes written by the cgroup
written() {
	awk '{ sub(/.*wbytes=/, ""); bytes += $1 } END { print bytes + 0 }' "$cgroup/io.stat"
}
# a new cgroup has no credit: one block takes 50 s or more, and no other caller waits for it
check rmdir "$cgroup"
check mkdir "$cgroup"
budget $((1000 / KVBLK_SLOW))
(cgroup_enter && exec guest_blocks $node put 6000 32 50000) >"$tmp/poor" &
poor=$!
sleep 2
check timeout $((30 * KVBLK_SLOW)) kvblk bench $pool --op put --size 4K --depth 1 --count 60 --engine ioctl
[ "$(written)" -lt $((16 * 50000)) ] || fail "$(written) bytes were written at 1000 a second"
budget max
wait $poor
grep -q 'stored=32 .* bad=0' "$tmp/poor" || fail "who was over its budget put: $(cat "$tmp/poor")"
[ "$(written)" -ge $((16 * 50000)) ] || fail "$(written) bytes of 32 puts are their cgroup's"
touch "$tmp/stop_gets"
wait $getter

# the bystander still works
before=$(cat "$tmp/rounds")
wait_for 60 moved
touch "$tmp/stop"
wait
[ ! -e "$tmp/bad" ] || fail "another's: $(cat "$tmp/bad")"
no_failures
check pool_destroy

echo "-- many who wait for their memory"
pool_format /dev/flash1
check timeout $((100 * KVBLK_SLOW)) guest_uring $node waiting_for_memory
check pool_destroy

echo "-- many deletes, on a member whose writes take 10 ms"
modprobe -q dm_delay || true
nullb_create roomy 700
dm_create late /dev/roomy "0 %s delay /dev/roomy 0 0 /dev/roomy 0 10"
pool_format /dev/mapper/late
# more than a member can list; at depth all enough to fill the index
storms=24 storm_blocks=1
[ "$KVBLK_DEPTH" != all ] || storms=31 storm_blocks=2
check env KV_STORMS=$storms KV_STORM_BLOCKS=$storm_blocks timeout $((200 * KVBLK_SLOW)) guest_pager_stall $node storm_of_deletes
no_failures
