#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=180 takes=20 check=debug
# Times that lookups predict, on a member of a known bandwidth: those of its blocks and of what is in flight before them;
# none before the member was busy, none for blocks in memory.
. "${0%/*}/pool.bash"

# output of guest_blocks times, besides $present
first_us=0 last_us=0

# late US: whether the first block would take longer than that
late() {
	blocks times 1 1 $MiB
	[ "$first_us" -gt "$1" ]
}

early() {
	! late "$1"
}

kv_load
MiB=$((1 << 20))
nullb_create slow 200 mbps=20
pool_format /dev/slow
put $sysfs/admit_permille 1000

echo "-- nothing is known"
blocks put 1 1 4096
blocks times 1 1 4096
expect "the time of a block, before the member was busy" "$present $first_us" "1 0"
blocks delete 1 1 4096

echo "-- a busy member"
blocks put 1 64 $MiB
expect "puts" "$stored" 64
while [ ! -e "$tmp/stop" ]; do guest_blocks $node get 1 64 $MiB; done >/dev/null &
load=$!
defer "touch $tmp/stop; wait $load || true"
# the puts may have been too short for two looks of the watchdog
wait_for 60 late 0
touch "$tmp/stop"
wait $load
blocks times 1 64 $MiB
idle=$first_us
# 3.4 s; a busy host makes the member slower
[ "$last_us" -gt 1500000 ] && [ "$last_us" -lt 60000000 ] || fail "64 MiB at 20 MB/s: $last_us us"
[ "$idle" -lt $((last_us / 8)) ] || fail "of $last_us us the first of 64 blocks takes $idle"
blocks times 1000 2 $MiB
expect "absent blocks" "$present $first_us $last_us" "0 0 0"

echo "-- gets in flight"
rm "$tmp/stop"
while [ ! -e "$tmp/stop" ]; do guest_blocks $node get 1 64 $MiB; done >/dev/null &
load=$!
defer "touch $tmp/stop; wait $load || true"
wait_for 30 late $((4 * idle))
touch "$tmp/stop"
wait $load
wait_for 30 early $((2 * idle))

echo "-- blocks in memory"
put $sysfs/dram_bytes $((32 * MiB))
blocks put 201 8 $MiB
expect "puts into memory" "$stored" 8
blocks times 201 8 $MiB
expect "the time of blocks in memory" "$present $last_us" "8 0"
no_failures
check pool_destroy
