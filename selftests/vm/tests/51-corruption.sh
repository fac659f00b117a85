#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=60 takes=10
# Garbage written to a member under the pool's feet, and sectors that go bad: a miss, an event, a zeroed buffer, never a wrong byte.
. "${0%/*}/pool.bash"

kv_load
flash 2 100
# below the member there is a way to its bytes
dm_create over "/dev/flash0" "0 %s linear /dev/flash0 0"
events_start
pool_format /dev/mapper/over /dev/flash1
blocks put 1 300 70000
expect "puts" "$stored" 300

head -c 12M /dev/urandom >"$tmp/garbage"
check dd if="$tmp/garbage" of=/dev/flash0 bs=1M seek=2 oflag=direct conv=notrunc status=none
blocks get 1 300 70000
[ "$misses" -gt 20 ] || fail "12 MiB of garbage cost $misses blocks only: the test does not hit"
[ "$hits" -gt 100 ] || fail "garbage on one of two members left $hits of 300 blocks"
expect "checksum failures" "$(counter checksum_failures)" "$misses"
wait_for 5 event checksum
lost=$misses
blocks lookup 1 300 70000
expect "what is found after a failed check" "$present" $((300 - lost))
blocks get 1 300 70000
expect "misses, the second time" "$misses" "$lost"
blocks put 1 300 70000
expect "puts of what was lost" "$stored" "$lost"
blocks get 1 300 70000
expect "gets of all" "$hits" 300

echo "-- blocks exchanged: each is whole, at a place that is not its own"
blocks put 1000 100 70000
check dd if=/dev/flash0 of="$tmp/half" bs=1M count=99 iflag=direct status=none
check dd if="$tmp/half" of=/dev/flash0 bs=4k skip=768 seek=1024 count=8192 oflag=direct conv=notrunc status=none
blocks get 1 300 70000
blocks get 1000 100 70000

echo "-- zeroes"
check dd if=/dev/zero of=/dev/flash0 bs=1M seek=1 count=98 oflag=direct conv=notrunc status=none
blocks get 1 300 70000
blocks get 1000 100 70000
blocks put 2000 100 70000
blocks get 2000 100 70000
expect "gets after all this" "$hits" 100
went_there

echo "-- bad sectors"
check pool_destroy
nullb_create bad 100
pool_format /dev/bad
bear_errors
blocks put 1 200 70000
expect "puts" "$stored" 200
# 3 MiB of the first segment
put $configfs/nullb/bad/badblocks "+$((4 * 2048))-$((7 * 2048))"
blocks get 1 200 70000
[ "$misses" -gt 10 ] || fail "3 MiB of bad sectors cost $misses blocks only"
[ "$hits" -gt 50 ] || fail "3 MiB of bad sectors left $hits of 200 blocks"
more_than 0 read_errors
wait_for 5 event read-error
put $configfs/nullb/bad/badblocks "-$((4 * 2048))-$((7 * 2048))"
blocks put 300 20 70000
expect "puts afterwards" "$stored" 20
went_there
