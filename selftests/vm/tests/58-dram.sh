#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=300 takes=90 leaks=1 kernels=newest,6.12,debug,debug-smp check=debug
# DRAM that holds blocks: a put is complete in DRAM, wanted blocks are demoted to a member when space is needed, others
# are dropped. Deleted and expired blocks do not come back, leased blocks stay, memory pressure frees DRAM, every byte
# is right.
# slow: memory is filled and emptied in each mode, and with members that do not answer.
. "${0%/*}/pool.bash"

kv_load
flash 4 74
pool_format /dev/flash0 /dev/flash1
MiB=$((1 << 20))

dram() {
	put $sysfs/dram_bytes "$1"
	[ $# = 1 ] || put $sysfs/dram_mode "$2"
}

# dram_end: wait until DRAM is empty
dram_end() {
	dram 0
	wait_for 20 dram_is 0
}

# puts and gets complete without the members
dram $((24 * MiB)) evict
written=$(counter write_bytes)
blocks put 1 20 $MiB
expect "puts into memory" "$stored $memory" "20 20"
blocks get 1 20 $MiB
expect "gets from memory" "$hits $memory" "20 20"
blocks put 1 20 $MiB
expect "puts of what is there" "$exists" 20
expect "counted" "$(counter dram_puts) $(counter dram_gets)" "20 20"
[ $(($(counter write_bytes) - written)) -lt $MiB ] || fail "blocks in memory were written: $(($(counter write_bytes) - written)) bytes"
expect "dram_used" "$(cat $sysfs/dram_used)" $((20 * MiB))
grep -q '"dram_bytes": '$((20 * MiB)) <<<"$(kvblk stat $pool -o json)" || fail "the gauge dram_bytes is not 20 MiB"

# the coldest blocks are demoted; nothing is declined yet, so all can be read
blocks put 101 40 $MiB
wait_for 20 dram_is $((24 * MiB))
blocks get 1 20 $MiB
expect "gets of what was asked for" "$hits" 20
blocks get 101 40 $MiB
expect "gets of the others" "$hits" 40
more_than 10 dram_writes
expect "dropped" "$(counter dram_drops)" 0

# with less DRAM, and with none, the rest is demoted, too
dram_end
blocks get 1 20 $MiB
expect "gets when all is on the members" "$hits $memory" "20 0"
blocks delete 1 20 $MiB
blocks delete 101 40 $MiB
expect "deleted on the members" "$deleted" 40

# demote only requested blocks: by gets, by lookups, by puts of the same key, or by the hint of a put, which applies to
# its chain
dram $((64 * MiB)) touched
blocks put 201 40 $MiB
KV_MISSED=1 blocks put 241 1 $MiB
KV_CHAIN=1 KV_MISSED=1 blocks put 251 8 $MiB
expect "puts of a chain into memory" "$memory" 8
blocks get 201 4 $MiB
blocks lookup 205 4 $MiB
blocks put 209 4 $MiB
drops=$(counter dram_drops)
dram_end
blocks get 201 40 $MiB
expect "gets of what was asked for" "$hits $misses" "12 28"
expect "dropped" $(($(counter dram_drops) - drops)) 28
blocks get 241 20 $MiB
expect "gets of what was asked for before" "$hits $misses" "9 11"

# deletes and expiries in DRAM are final
dram $((64 * MiB)) evict
blocks put 301 10 $MiB
blocks delete 301 5 $MiB
expect "deleted in memory" "$deleted" 5
blocks get 301 10 $MiB
expect "gets after deletes" "$hits $misses" "5 5"
expect "memory after deletes" "$(cat $sysfs/dram_used)" $((5 * MiB))
blocks put 301 5 $MiB 7
expect "puts after deletes" "$memory" 5

# durable blocks are on a member; a durable put of a block in DRAM counts as "exists"
KV_DURABLE=1 blocks put 401 5 $MiB
expect "durable puts" "$stored $memory" "5 0"
blocks get 401 5 $MiB
expect "a copy stays in memory" "$hits $memory" "5 5"
blocks put 311 20 $MiB
expect "blocks in memory before" "$memory" 20
KV_DURABLE=1 blocks put 301 32 $MiB 7
expect "durable puts of what is in memory, of what is nowhere" "$exists $stored" "30 2"
blocks put 351 3 $MiB
# the state that a crash would leave
crash_image /dev/flash0 /dev/flash2
crash_image /dev/flash1 /dev/flash3

# mode through: on a member and in DRAM
dram $((64 * MiB)) through
written=$(counter write_bytes)
blocks put 501 10 $MiB
expect "puts through memory" "$stored $memory" "10 0"
[ $(($(counter write_bytes) - written)) -ge $((10 * MiB)) ] || fail "puts that go through were not written"
reads=$(counter read_bytes)
blocks get 501 10 $MiB
expect "gets of copies" "$hits $memory" "10 10"
[ $(($(counter read_bytes) - reads)) -lt $MiB ] || fail "gets of copies read from the members"
blocks delete 501 10 $MiB
blocks get 501 10 $MiB
expect "copies of deleted blocks" "$misses" 10
# copies in DRAM are dropped without writes
dram_end
blocks get 401 5 $MiB
expect "gets when the copies have gone" "$hits $memory" "5 0"
# if checksums are left to producers, the copy has none, but the record has
put $sysfs/integrity producer
dram $((64 * MiB)) through
blocks put 521 3 $MiB
dram_end
put $sysfs/integrity full
blocks get 521 3 $MiB
expect "gets of records whose copies had no checksums" "$hits $memory" "3 0"
blocks delete 521 3 $MiB

# prefetches load blocks into DRAM, and so does a second get
dram $((16 * MiB)) evict
blocks prefetch 401 7 $MiB
expect "prefetched, absent" "$hits $misses" "5 2"
reads=$(counter read_bytes)
blocks prefetch 401 5 $MiB
expect "prefetched again" "$exists" 5
blocks get 401 5 $MiB
expect "gets of what was prefetched" "$hits $memory" "5 5"
[ $(($(counter read_bytes) - reads)) -lt $MiB ] || fail "gets of what was prefetched read from the members"
expect "counted" "$(counter prefetches)" 5
dram_end
code 1 'Operation not supported' guest_blocks $node prefetch 401 1 $MiB
dram $((16 * MiB))
put $sysfs/dram_promote 0
blocks get 401 5 $MiB
blocks get 401 5 $MiB
expect "gets that promote nothing" "$memory" 0
put $sysfs/dram_promote 1
blocks get 401 5 $MiB
expect "gets that promote" "$memory" 0
blocks get 401 5 $MiB
expect "gets of what was promoted" "$memory" 5
dram $((2 * MiB))
wait_for 20 dram_is $((2 * MiB))
blocks prefetch 301 5 $MiB
[ "$full" -ge 3 ] || fail "of 5 prefetches into 2 MiB only $full found no room"

# destroying a pool writes the wanted blocks
dram $((64 * MiB)) evict
blocks put 601 8 $MiB
blocks get 601 8 $MiB
check pool_destroy
pool_import /dev/flash0 /dev/flash1
blocks get 601 8 $MiB
expect "blocks after a restart" "$hits" 8
blocks get 401 5 $MiB
expect "durable blocks after a restart" "$hits" 5

# a crash keeps the blocks reported as durable
check pool_destroy
kvblk pool import $pool /dev/flash2 /dev/flash3 --force
defer pool_destroy
wait_for 30 pool_is_up
put $sysfs/suspect_ms 60000
blocks get 401 5 $MiB
expect "durable blocks after a crash" "$hits" 5
blocks get 301 32 $MiB
expect "blocks that were made durable, after a crash" "$hits" 32
blocks get 351 3 $MiB
expect "blocks that were in memory only, after a crash" "$misses" 3

dram $((16 * MiB)) evict
check env KV_DRAM=1 guest_lookup_lease $node

# copies leave with their member: a new member's blocks at the same place are not taken for them
dram $((64 * MiB)) evict
for member in flash2 flash3; do
	check kvblk member remove --yes $pool $member
	wait_for 20 member_is $member gone
done
check kvblk member add $pool --format --yes --segment-size 8M /dev/flash0
wait_for 20 member_is flash0 up
KV_DURABLE=1 blocks put 901 4 4096 1
dram_end
dram $((64 * MiB)) evict
put $sysfs/dram_promote 1
for i in 1 2 3; do
	blocks get 901 4 4096 1
done
expect "copies" "$memory" 4
check kvblk member remove --yes $pool flash0
wait_for 20 member_is flash0 gone
expect "memory of a member that has gone" "$(cat $sysfs/dram_used)" 0
check kvblk member add $pool --format --yes --segment-size 8M /dev/flash0
wait_for 20 member_is flash0 up
KV_DURABLE=1 blocks put 901 4 4096 2
expect "puts after that" "$stored" 4
dram_end
blocks get 901 4 4096 2
expect "gets after that" "$hits" 4

# memory pressure drops cold blocks, and the pool continues
dram $((128 * MiB)) evict
blocks put 701 100 $MiB
for i in 1 2 3; do
	put /proc/sys/vm/drop_caches 2
done
more_than 0 dram_squeezed
blocks get 701 100 $MiB
blocks put 801 20 $MiB
blocks get 801 20 $MiB
expect "gets after memory pressure" "$hits" 20

# all operations and leases at once, while dram_bytes changes
from_memory=$(counter dram_gets)
for KV_ENGINE in ioctl uring; do
	export KV_ENGINE
	stress_start -t 4 -n -k 2000 -l 100000
	for i in 1 2 3 4; do
		for mode in evict touched through; do
			dram $(((RANDOM % 3 + 1) * 4 * MiB)) $mode
			sleep 0.5
			[ $((i % 2)) = 0 ] || put /proc/sys/vm/drop_caches 2
			[ $((RANDOM % 4)) != 0 ] || dram 0
		done
	done
	stress_stop
done
no_failures
more_than $((from_memory + 100)) dram_gets
dram_end

echo "-- a silent member holds up what is on its way there, and nothing else"
check pool_destroy
dm_flakey silent /dev/flash1
pool_format /dev/flash0 /dev/mapper/silent
bear_errors
dram $((16 * MiB)) touched
blocks put 1 12 $MiB
blocks get 1 12 $MiB
expect "gets from memory" "$memory" 12
check dmsetup suspend --noflush --nolockfs silent
defer '[ ! -b /dev/mapper/silent ] || dmsetup resume silent'
put $sysfs/suspect_ms 1500
# blocks are demoted to both members in turn
put $sysfs/dram_bytes $((2 * MiB))
wait_for 20 member_is silent suspect
[ "$(cat $sysfs/dram_used)" -ge $MiB ] || fail "nothing is on its way to a silent member"
put $sysfs/dram_bytes $((24 * MiB))
written=$(counter dram_writes)
blocks put 101 8 $MiB
blocks get 101 8 $MiB
expect "puts and gets beside a silent member" "$hits" 8
put $sysfs/dram_bytes $((12 * MiB))
wait_for 20 counts_more $((written + 3)) dram_writes
blocks get 101 8 $MiB
expect "gets of what left memory" "$hits" 8
put $sysfs/suspect_ms 60000
check dmsetup resume silent
wait_for 20 member_is silent up
dram_end
blocks get 1 12 $MiB
expect "gets of what was on its way there" "$hits $memory" "12 0"
# a block to be made durable stays in DRAM if it cannot be written, and is lost with its pool
dram $((24 * MiB)) touched
blocks put 201 8 $MiB
check dmsetup suspend --noflush --nolockfs silent
put $sysfs/suspect_ms 1500
KV_DURABLE=1 guest_blocks $node put 201 8 $MiB >/dev/null &
durable=$!
wait_for 20 member_is silent suspect
kill -KILL $durable
wait $durable || true
pool_destroy &
sleep 2
dm_flakey_set silent /dev/flash1 0 1 error_writes
# writing the superblock fails, too, which is a warning
rc=0
wait $! || rc=$?
expect "exit code of the pool's destroy" $rc 4

echo "-- a pool that goes while no member takes a write drops what it has in memory"
for i in 0 1; do
	check dd if=/dev/zero of=/dev/flash$i bs=1M count=1 oflag=direct status=none
	dm_flakey bad$i /dev/flash$i
done
pool_format /dev/mapper/bad0 /dev/mapper/bad1
# let each member fail a write before both count as failing: the block then waits for the other member
put $sysfs/failing_permille 0
put $sysfs/failing_run 40
dram $((64 * MiB)) touched
blocks put 1 28 $MiB
blocks get 1 28 $MiB
expect "gets from memory" "$memory" 28
for i in 0 1; do
	dm_flakey_set bad$i /dev/flash$i 0 3600 error_writes
done
rc=0
pool_destroy || rc=$?
expect "exit code of the pool's destroy" $rc 4
