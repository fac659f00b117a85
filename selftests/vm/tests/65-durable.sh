#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=200 takes=40 kernels=newest,6.12,debug check=debug
# Durable puts survive a crash: blocks of a pool without checksums, and copies of blocks. Blocks that a member's
# volatile cache may have lost are written again. A block put again while its member is silent has one durable record at
# any time.
. "${0%/*}/pool.bash"

# crash DEVICE...: import into a new pool what a power cut would leave of the devices
crash() {
	local d copies=()
	for d; do
		crash_image "$d" "/dev/after_${d##*/}"
		copies+=("/dev/after_${d##*/}")
	done
	check pool_destroy
	pool_import --force "${copies[@]}"
}

durably() {
	KV_DURABLE=1 blocks put "$@"
}

kv_load
flash 2 100
nullb_create after_flash0 100
nullb_create after_flash1 100

echo "-- no checksums"
pool_format /dev/flash0
put $sysfs/integrity 0
blocks put 1 40 10000
durably 21 60 10000
expect "durable puts of new blocks, of some that nothing proves" "$stored $exists" "60 0"
crash /dev/flash0
blocks get 21 60 10000
expect "durable blocks after a crash" "$hits" 60
blocks get 1 20 10000
expect "others, which nothing proves" "$misses" 20
check pool_destroy

echo "-- in a full segment they are proven, and so is a copy of one"
pool_format /dev/flash0
put $sysfs/integrity 0
blocks put 1 20 100000
blocks put 1000 100 100000
durably 1 20 100000
expect "durable puts of what is in a full segment" "$exists" 20
next=2000
while [ "$(counter reinserts)" -lt 20 ]; do
	[ $next -lt 20000 ] || fail "reclaim copied only $(counter reinserts) blocks"
	blocks get 1 20 100000
	blocks put $next 50 100000
	next=$((next + 50))
done
blocks get 1 20 100000
here=$hits
[ "$here" -gt 0 ] || fail "none of the blocks is there any more"
crash /dev/flash0
blocks get 1 20 100000
expect "copies of durable blocks after a crash" "$hits" "$here"
check pool_destroy

echo "-- the flush fails, and the next one does not tell what was lost"
nullb_create cached 100 cache_size=64
dm_flakey flaky /dev/cached
pool_format /dev/mapper/flaky
blocks put 1 20 10000
dm_flakey_set flaky /dev/cached 0 1 error_writes
durably 1 1 10000
expect "a durable put of a block whose flush fails" "$errors" 1
dm_flakey_set flaky /dev/cached 1 0
durably 1 10 10000
expect "durable puts of the same" "$stored $exists" "10 0"
blocks put 1000 100 100000
durably 1 20 10000
expect "durable puts of what has been sealed since" "$stored $exists" "20 0"
durably 1 20 10000
expect "once more" "$stored $exists" "0 20"
check pool_destroy
# the doubt is recorded on media
pool_format /dev/mapper/flaky
blocks put 1 20 10000
dm_flakey_set flaky /dev/cached 0 1 error_writes
blocks put 100 1 10000
expect "a put that fails" "$errors" 1
dm_flakey_set flaky /dev/cached 1 0
check pool_destroy
pool_import /dev/mapper/flaky
durably 1 20 10000
expect "durable puts of what a stopped pool had in its cache" "$stored $exists" "20 0"
blocks get 1 20 10000
expect "gets" "$hits" 20
check pool_destroy
check dmsetup remove flaky
nullb_remove cached

echo "-- a member is silent, its durable blocks are put again, and it is back"
dm_flakey flaky0 /dev/flash0
dm_flakey flaky1 /dev/flash1
pool_format /dev/mapper/flaky0 /dev/mapper/flaky1
bear_errors
put $sysfs/suspect_ms 1500
put $sysfs/dram_bytes $((24 << 20))
durably 1 40 10000
put $sysfs/dram_bytes 0
wait_for 20 dram_is 0
check dmsetup suspend --noflush --nolockfs flaky1
defer '[ ! -b /dev/mapper/flaky1 ] || dmsetup resume flaky1'
guest_blocks $node get 1 40 10000 >/dev/null &
wait_for 20 member_is flaky1 suspect
blocks get 1 40 10000
here=$hits
[ "$here" -gt 0 ] && [ "$here" -lt 40 ] || fail "$here of 40 blocks are on one of two members"
put $sysfs/dram_bytes $((24 << 20))
# the other member cannot take them: the blocks stay where they are
dm_flakey_set flaky0 /dev/flash0 0 1 error_writes
blocks put 1 40 10000
expect "puts that fail" "$errors $exists" "$((40 - here)) $here"
dm_flakey_set flaky0 /dev/flash0 1 0
blocks get 1 40 10000
expect "gets after puts that failed" "$hits" "$here"
wait_for 60 member_is flaky0 up
blocks put 101 10 10000
expect "puts of others go to memory" "$stored $memory" "10 10"
blocks put 1 40 10000
expect "puts of what the silent member has" "$stored $exists $memory" "$((40 - here)) $here 0"
put $sysfs/suspect_ms 60000
check dmsetup resume flaky1
wait
wait_for 60 member_is flaky1 up
wait_for 20 counts_more $((39 - here)) kills
crash /dev/flash0 /dev/flash1
blocks get 1 40 10000
expect "durable blocks after a crash" "$hits" 40
blocks get 101 10 10000
expect "blocks in memory" "$misses" 10
