#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=3600 takes=60 check=debug
# A pool returns, or is rejected, from members damaged so that every checksum passes: each field of superblock, segment
# table, summary and header is flipped, swapped, at a limit or outdated. 200 images, 700 changes, on the debug kernel,
# 40 on others; in make check-all 10,000 images, 3,000 of them on the newest kernel, the others on the debug kernel. The
# kernel does not complain, the pool works, no byte is wrong, and the other member keeps all its blocks. A namespace
# that claims too many segments is rejected. KV_SEED=NUMBER tries one image.
# slow: a pool made, read through and destroyed for each image.
. "${0%/*}/pool.bash"

kv_load
modprobe -q loop || true

echo "-- a member that claims 165 TiB, in segments of 8 MiB"
nullb_create big $((165 << 20))
refuse_create() {
	code 1 "over 2^20 segments" kvblk pool create $pool --index-slots 4096 "$@" /dev/big
}
super() {
	dd if=/dev/big bs=64k count=2 iflag=direct status=none | cksum
}
refuse_create --format --yes --segment-size 8M
pool_create --index-slots 4096 --format --yes /dev/big
check pool_destroy
check crash_media_fuzz claim /dev/big
before=$(super)
code 1 "over 2^20 segments" kvblk pool import $pool --index-slots 4096 /dev/big
expect "superblocks after the refusal" "$(super)" "$before"

echo "-- and one of 8 EiB"
check nullb_remove big
nullb_create big $(((8 << 40) - 1))
before=$(super)
refuse_create --format --yes
expect "the first bytes after the refusal" "$(super)" "$before"
check nullb_remove big

echo "-- fields of a later version keep what they hold"
flash 2 200
pool_format /dev/flash0 /dev/flash1
check pool_destroy
field() {
	check crash_media_fuzz field "$@"
}
field /dev/flash0 compat=0x40 reserved=0x1122334455667788
pool_import /dev/flash0 /dev/flash1
check pool_destroy
expect "a compat bit and its field" "$(field /dev/flash0 compat reserved | paste -sd' ')" "64 1234605616436508552"

# works FIRST COUNT: the pool accepts puts, and deletes are certain
works() {
	blocks put "$1" "$2" 100000
	expect "puts" "$stored $errors" "$2 0"
	blocks delete "$1" 10 100000
	expect "deletes" "$((deleted + absent)) $errors" "10 0"
}

# lie NAME FIELD=VALUE...: change fields of flash1. Whether the pool accepts flash1 or not, flash0 serves its blocks and
# can be imported again.
lie() {
	echo "-- $1"
	pool_format /dev/flash0 /dev/flash1
	blocks put 1 100 100000
	check pool_destroy
	epoch=$(field /dev/flash1 epoch) life=$(field /dev/flash1 activation)
	now=$(field /dev/flash0 time)
	field /dev/flash1 "${@:2}"
	defer pool_destroy
	if kvblk pool import $pool /dev/flash0 /dev/flash1; then
		# blocks put to flash1 may miss, so works() counts absent ones, too
		works 1000 20
		check pool_destroy
	fi
	for round in 1 2; do
		pool_import --degraded --force /dev/flash0
		works $((1000 + 100 * round)) 20
		blocks get 1 100 100000
		[ "$hits" -ge 40 ] || fail "flash0 has $hits of 100 blocks"
		check pool_destroy
	done
	[ "$(field /dev/flash0 epoch)" -lt $((epoch + 10)) ] && [ "$(field /dev/flash0 list_seq)" -lt 1000 ] &&
		[ "$(field /dev/flash0 time)" -lt $((now + 5 * 86400)) ] ||
		fail "flash0 has numbers of flash1's: $(field /dev/flash0 epoch list_seq time | paste -sd' ')"
}

limit=$(((1 << 48) - 1))
lie "an activation at the end of all epochs" state=3 prev_epoch=2 epoch=$(((1 << 24) - (1 << 16))) activation=7
lie "a life at the end of all epochs" epoch=$(((1 << 24) - (1 << 16)))
lie "the last superblock there can be" seq=$limit
lie "the last list of members there can be" list_seq=$limit
lie "a list that is the newest, with no room for others" list_seq=$((limit / 2))
lie "80 days in the future" time=$((80 * 86400))
lie "a host's clock that was back then" wall=1000
lie "the last segment that can be opened" segment.opened=$((limit - 3))
lie "the last generation" segment.generation=$limit
lie "the last page of the table" table.seq=$limit
lie "the smallest index" index_slots=64
lie "the largest index" index_slots=$((1 << 36))

epoch_is() {
	expect "epochs" "$(field /dev/flash0 epoch) $(field /dev/flash1 epoch)" "$1 $1"
}

echo "-- the last life there can be"
last=$(((1 << 24) - (2 << 16)))
pool_format /dev/flash0 /dev/flash1
blocks put 1 40 100000
check pool_destroy
for device in /dev/flash0 /dev/flash1; do
	field $device epoch=$((last - 1))
done
pool_import /dev/flash0 /dev/flash1
blocks get 1 40 100000
expect "gets in the last life" "$hits" 40
works 1000 40
# enough epochs are left for a removal
check kvblk member remove --yes $pool flash1
wait_for 20 member_is flash1 gone
works 2000 20
check kvblk member add --format --yes --segment-size 8M $pool /dev/flash1
wait_for 30 pool_is_up
works 3000 20
check pool_destroy
epoch_is $((last + 1))
code 1 'no epoch is left' kvblk pool import $pool /dev/flash0 /dev/flash1
epoch_is $((last + 1))
pool_import --force /dev/flash0 /dev/flash1
for first in 1 1000 2000 3000; do
	blocks get $first 40 100000
	expect "blocks of former lives" "$hits" 0
done
works 4000 40
check pool_destroy
epoch_is 1
pool_import /dev/flash0 /dev/flash1
blocks get 4000 40 100000
expect "gets in the second life" "$hits" 30
check pool_destroy

echo "-- half of an epoch's sequence numbers are given: those of the next one follow, and the members know"
check insmod "$modules/selftests/modules/kvblk_flip/kvblk_seq.ko"
defer 'rmmod kvblk_seq'
# seqs_come_far: advance the seqs; fails while the epoch is changing; for wait_for
seqs_come_far() {
	echo $node 2>/dev/null >/sys/module/kvblk_seq/parameters/path
}
pool_format /dev/flash0 /dev/flash1
for epoch in 2 3; do
	wait_for 10 seqs_come_far
	works $((1000 * epoch)) 150
	wait_for 10 set_to epoch $epoch
	works $((1000 * epoch + 500)) 20
done
# reuses keys of deleted blocks
blocks put 2000 5 50000
expect "puts" "$stored" 5
epoch_is 3
for i in 0 1; do
	nullb_create copy$i 200
	crash_image /dev/flash$i /dev/copy$i
done
check pool_destroy
for force in --force ""; do
	# shellcheck disable=SC2086 # or none
	pool_import $force /dev/copy0 /dev/copy1
	here=
	for first in 2000 2500 3000 3500; do
		blocks get $first 150 100000
		here+=" $hits"
	done
	expect "gets after an import $force" "$here" " 145 10 140 10"
	check pool_destroy
done
for i in 0 1; do
	check nullb_remove copy$i
done

first=$((RANDOM * 32768 + RANDOM)) count=40
case $KVBLK_KERNEL/$KVBLK_DEPTH in
newest/all) first=0 count=3000 ;;
debug/all) first=3000 count=7000 ;;
debug/*) count=200 ;;
esac
[ -z "${KV_SEED-}" ] || first=$KV_SEED count=1
echo "-- images $first to $((first + count - 1))"
# or else the kernel drops the log line of each image
limit=$(</proc/sys/kernel/printk_devkmsg)
defer "put /proc/sys/kernel/printk_devkmsg $limit"
put /proc/sys/kernel/printk_devkmsg on
defer pool_destroy
check crash_media_fuzz $pool "$tmp" "$first" "$count"
