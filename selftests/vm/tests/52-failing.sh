#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=200 takes=60 check=debug leaks=1 kernels=newest,6.12,debug,debug-smp waits=1
# One of two members returns errors or does not respond: its blocks miss in gets and lookups alike, puts go to the other
# member without an error, deletes end, the log stays short. When the member recovers it serves its blocks.
# slow: a member that failed is probed with seconds between, and longer when it fails again.
. "${0%/*}/pool.bash"

# log_lines: print the number of this pool's log lines so far
log_lines() {
	dmesg | grep -c "kvblk $pool: member" || true
}

# misses_alike FIRST COUNT WANTED: gets and lookups both find WANTED blocks
misses_alike() {
	blocks get "$1" "$2" 50000
	expect "gets" "$hits" "$3"
	blocks lookup "$1" "$2" 50000
	expect "lookups" "$present" "$3"
}

kv_load
flash 2 300
dm_flakey flaky /dev/flash1
events_start
pool_format /dev/flash0 /dev/mapper/flaky
blocks put 1 200 50000
expect "puts" "$stored" 200

echo "-- all I/O fails"
lines=$(log_lines)
dm_flakey_set flaky /dev/flash1 0 1 error_reads error_writes
blocks get 1 200 50000
here=$hits
[ "$here" -gt 50 ] && [ "$here" -lt 150 ] || fail "with one of two members failing $here of 200 blocks are hits"
wait_for 10 member_is flaky failing
expect "member's failing" "$(cat $sysfs/members/flaky/failing)" 1
expect "pool's state" "$(cat $sysfs/state)" degraded
wait_for 5 event member-failing
misses_alike 1 200 "$here"
# blocks of the failing member are put to the other one
blocks put 1 200 50000
expect "puts of what is a miss" "$stored" $((200 - here))
expect "puts of what is there" "$exists" "$here"
misses_alike 1 200 200
# their stale records are on the failing member, so a delete cannot promise that they stay deleted
blocks delete 1 200 1
expect "deletes" "$deleted" "$here"
expect "deletes that may not last: -EIO" "$errors" $((200 - here))
blocks put 1000 200 50000
expect "puts while a member fails" "$stored" 200
expect "puts that failed" "$(counter put_errors)" 0
before=$(counter write_errors)
# a failed invalidation is not retried each second
sleep 5
[ $(($(counter write_errors) - before)) -lt 10 ] || fail "$(($(counter write_errors) - before)) write errors of an idle pool in 5 s"

echo "-- it is well again"
dm_flakey_set flaky /dev/flash1 1 0
wait_for 60 member_is flaky up
wait_for 5 event member-answers
misses_alike 1000 200 200
# stale records are invalidated now, so missing blocks count as absent
gone() {
	blocks delete 1 200 1
	[ "$errors" = 0 ]
}
wait_for 30 gone
# a line per state change and kind of error, and one a minute
[ $(($(log_lines) - lines)) -le 20 ] || fail "$(($(log_lines) - lines)) lines in the log"

echo "-- it fails writes and answers reads: its blocks are hits, and puts go elsewhere"
dm_flakey_set flaky /dev/flash1 0 1 error_writes
next=20000
puts_fail() {
	blocks put $next 40 50000
	next=$((next + 40))
	member_is flaky read-only
}
wait_for 20 puts_fail
wait_for 5 event member-read-only
expect "member's failing" "$(cat $sysfs/members/flaky/failing)" 2
expect "pool's state" "$(cat $sysfs/state)" degraded
code 4 "^$pool  *degraded  *2 of 2 " kvblk status
misses_alike 1000 200 200
before=$(counter write_errors)
blocks put 30000 100 50000
expect "puts while a member is read-only" "$stored" 100
# probes may write, too
[ $(($(counter write_errors) - before)) -le 10 ] || fail "$(($(counter write_errors) - before)) of 100 puts tried the read-only member"
expect "puts that failed" "$(counter put_errors)" 0
dm_flakey_set flaky /dev/flash1 1 0
wait_for 60 member_is flaky up

echo "-- writes fail while puts come: no put fails"
before=$(counter write_errors)
stress_start -e -t 2 -k 300 -l 50000
for _ in 1 2 3; do
	dm_flakey_set flaky /dev/flash1 0 1 error_writes
	# at least once: later puts may avoid the member
	wait_for 10 counts_more "$before" write_errors
	sleep 1
	dm_flakey_set flaky /dev/flash1 1 0
	sleep 1
done
stress_stop
expect "puts that failed" "$(counter put_errors)" 0
wait_for 120 member_is flaky up

echo "-- puts of a caller that is gone, and fail then: nobody was told so"
check dmsetup suspend --noflush --nolockfs flaky
defer '[ ! -b /dev/mapper/flaky ] || dmsetup resume flaky'
before=$(counter write_errors)
guest_blocks "$node" put 5000 40 50000 &
# puts alternate between the members
wait_for 10 counts_more 9 inflight
kill -KILL $!
wait $! || true
dm_flakey_set flaky /dev/flash1 0 1 error_writes
wait_for 10 counts_more "$before" write_errors
dm_flakey_set flaky /dev/flash1 1 0
wait_for 120 member_is flaky up
expect "puts that failed" "$(counter put_errors)" 0

echo "-- a large get that fails is many I/Os that fail: the share counts each"
put $sysfs/failing_run 0
blocks put 100000 16 4000000
expect "puts" "$stored" 16
dm_flakey_set flaky /dev/flash1 0 1 error_reads
get_large() {
	blocks get 100000 16 4000000
	member_is flaky failing
}
wait_for 10 get_large
dm_flakey_set flaky /dev/flash1 1 0
wait_for 60 member_is flaky up

echo "-- silent: deletes that wait for it end"
put $sysfs/suspect_ms 1000
blocks put 2000 40 50000
# more on each member than the 4096 stale records that it can list
blocks put 10000 10000 4000
expect "puts" "$stored" 10000
check dmsetup suspend --noflush --nolockfs flaky
# deletes on the silent member end when it becomes suspect
blocks delete 2000 40 1
[ "$errors" -gt 0 ] && [ "$deleted" -gt 0 ] || fail "$deleted deletes, $errors errors"
wait_for 10 member_is flaky suspect
# the silent member's blocks are put to the other one until it has too many stale records; other puts continue
blocks put 10000 10000 4000
[ "$full" -gt 0 ] && [ "$stored" -gt 3000 ] || fail "$stored of the silent member's blocks are stored again, $full are not"
# blocks of the other member are put and deleted as usual; a delete of an unknown key returns at once
blocks put 3000 40 50000
expect "puts while a member is silent" "$stored" 40
blocks delete 3000 40 1
expect "deletes of them" "$deleted" 40
blocks delete 4000 40 1
expect "deletes of what is nowhere" "$absent" 40
check dmsetup resume flaky
wait_for 30 member_is flaky up
put_all() {
	blocks put 10000 10000 4000
	[ "$full" = 0 ]
}
wait_for 60 put_all
blocks get 10000 10000 4000
expect "gets of all of them" "$hits" 10000
blocks get 3000 40 50000
expect "gets of what was deleted" "$hits" 0
expect "checksum failures" "$(counter checksum_failures)" 0
