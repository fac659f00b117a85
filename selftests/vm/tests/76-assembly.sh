#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=500 takes=100 leaks=1 check=debug
# Pools are imported whole, or with "degraded" without missing or outdated members. Nothing is formatted without
# request. A member that was away while its pool was up keeps its blocks, except for those put or deleted meanwhile.
# slow: some thirty imports, each with its writes.
. "${0%/*}/pool.bash"

kv_load
flash 3 120
flash0=/dev/flash0 flash1=/dev/flash1 flash2=/dev/flash2

# hits_are FIRST COUNT HITS [TAG]
hits_are() {
	blocks get "$1" "$2" 50000 "${4:-0}"
	expect "gets from $1 on" "$hits" "$3"
}

# super DEVICE COPY: save the superblocks; super_back: restore them
super() {
	check dd if="$1" of="$2" bs=64K count=2 iflag=direct status=none
}

super_back() {
	check dd if="$2" of="$1" bs=64K count=2 oflag=direct conv=notrunc status=none
}

echo "-- a new pool takes blank devices only, and tells what it did"
kvblk pool create $pool --segment-size 8M $flash0 $flash1 >"$tmp/made"
defer pool_destroy
expect "what create tells" "$(cat "$tmp/made")" "t: 2 members: flash0 formatted (new), flash1 formatted (new)"
blocks put 1 100 50000
check pool_destroy
for other in $pool other; do
	code 1 "flash0 is of pool t: import it" kvblk pool create "$other" $flash0 $flash1
done
code 1 "is not a member of a pool" kvblk pool import $pool $flash0 $flash1 $flash2
code 1 "no member of this pool was found" kvblk pool import other
code 1 "no member of this pool was found" kvblk pool import $pool $flash2
code 1 "flash0 is named twice" kvblk pool import $pool $flash0 /dev/../dev/flash0 $flash1

echo "-- it is found by what is written on its members"
kvblk pool import --scan >"$tmp/found"
grep -q '^pool t, uuid .* 2 members$' "$tmp/found" && grep -q '^  /dev/flash1 .* clean, by ' "$tmp/found" || fail "scan: $(cat "$tmp/found")"
uuid=$(sed -n 's/^pool t, uuid \([^,]*\),.*/\1/p' "$tmp/found")
kvblk pool import "$uuid" >"$tmp/made"
expect "what import tells" "$(sed 's/([0-9]* blocks)/(blocks)/g' "$tmp/made")" "t: 2 members: flash0 restored (blocks), flash1 restored (blocks)"
expect "blocks that came back" "$(grep -o '([0-9]*' "$tmp/made" | tr -d '(' | paste -sd+ | bc)" 100
hits_are 1 100 100
code 1 "there is a pool t already" kvblk pool import $pool $flash0 $flash1
check kvblk pool import --all
check pool_destroy
check kvblk pool import --all
hits_are 1 100 100
check pool_destroy
mkdir -p "/dev/disk/by-id/$(printf 'x%.0s' {1..100})"
defer 'rm -rf /dev/disk/by-id/xxx*'
long=/dev/disk/by-id/$(printf 'x%.0s' {1..100})/nvme-uuid.$(printf 'y%.0s' {1..150})
ln -s $flash1 "$long"
kvblk pool import $pool $flash0 "$long" >"$tmp/made"
grep -q 'flash1 restored' "$tmp/made" || fail "a device by a long name: $(cat "$tmp/made")"
kvblk member list $pool | grep -q " $long " || fail "the path is not told"
check pool_destroy

echo "-- a member is missing"
code 1 "member flash1 is missing" kvblk pool import $pool $flash0
hidden=$tmp/flash1
super $flash1 "$hidden"
check dd if=/dev/zero of=$flash1 bs=64K count=2 oflag=direct status=none
code 1 "member flash1 is missing" kvblk pool import $pool
kvblk pool import --scan | grep -q '^  flash1 .* missing; it was at: device flash1$' || fail "scan does not tell what is missing"
super_back $flash1 "$hidden"
pool_import --degraded $flash0
kvblk member list $pool | grep -q '^t *flash1 *missing' || fail "the missing member is not listed: $(kvblk member list $pool)"
blocks get 1 100 50000
[ "$hits" -gt 10 ] && [ "$misses" -gt 10 ] || fail "with one of two members $hits of 100 blocks are hits"

echo "-- it comes back: with all but what was deleted or put meanwhile"
blocks delete 1 20 50000
expect "deletes, of what is here and what is not" $((deleted + absent)) 20
blocks delete 21 20 50000
blocks put 21 20 50000 77
expect "puts with other bytes" "$stored" 20
check kvblk member add $pool $flash1
wait_for 20 pool_is_up
hits_are 1 20 0
hits_are 21 20 20 77
hits_are 41 60 60
[ "$(kvblk member list $pool | awk 'NR > 1' | wc -l)" = 2 ] || fail "members: $(kvblk member list $pool)"
# recorded within seconds, so that a crash then loses nothing, and brings nothing back
sleep 3
nullb_create copy0 120
nullb_create copy1 120
crash_image $flash0 /dev/copy0
crash_image $flash1 /dev/copy1
check pool_destroy
code 1 "are copies of one member" kvblk pool import $pool
pool_import /dev/copy0 /dev/copy1
hits_are 1 20 0
hits_are 21 20 20 77
hits_are 41 60 60
check pool_destroy
nullb_remove copy0
nullb_remove copy1

echo "-- its pool was down meanwhile: it is out of date"
pool_import --degraded $flash0
check pool_destroy
code 1 "flash1 is out of date" kvblk pool import $pool
pool_import --degraded
kvblk member list $pool | grep -q '^t *flash1 *missing' || fail "it is not left out: $(kvblk member list $pool)"
code 1 "flash1 is out of date" kvblk member add $pool $flash1
check kvblk member add --format --yes --segment-size 8M $pool $flash1
wait_for 20 pool_is_up
kvblk member list $pool | grep -q missing && fail "the one that was overwritten is still missing"
hits_are 1 20 0
hits_are 21 20 20 77
check pool_destroy

echo "-- one that will never come back"
pool_import --degraded $flash0
code 1 "flash7: not a member of pool $pool" kvblk member remove --yes $pool flash7
code 1 "$uuid: not a member of pool $pool" kvblk member remove --yes $pool "$uuid"
check kvblk member remove --yes $pool "$(kvblk member list $pool -o json | sed -n 's/.*"uuid": "\([^"]*\)".*/\1/p' | tail -n 1)"
kvblk member list $pool | grep -q missing && fail "a missing member can't be removed"
code 1 "flash1 is out of date" kvblk member add $pool $flash1
check pool_destroy
code 1 "flash1 is out of date" kvblk pool import $pool
pool_import $flash0
hits_are 21 20 20 77
check kvblk member add --format --yes --segment-size 8M $pool $flash1
wait_for 20 pool_is_up
blocks put 200 100 50000
expect "puts" "$stored" 100
check pool_destroy

echo "-- an older copy of a member, which others were stopped after"
pool_import
super $flash1 "$tmp/active"
blocks delete 200 50 50000
check pool_destroy
super $flash1 "$tmp/clean"
super_back $flash1 "$tmp/active"
code 1 "flash1 may be an old copy" kvblk pool import $pool
super_back $flash1 "$tmp/clean"
pool_import
hits_are 200 100 50
check pool_destroy

echo "-- the index comes back as large as it was: an import with a smaller one kills nothing, unless it is forced"
nullb_create many 200
pool_format --index-slots 8000 /dev/many
blocks put 1 6000 4000
expect "puts" "$stored" 6000
slots=$(cat $sysfs/index_slots)
check pool_destroy
code 1 "the index had $slots slots" kvblk pool import $pool --index-slots 2000 /dev/many
pool_import /dev/many
expect "slots" "$(cat $sysfs/index_slots)" "$slots"
hits_are 1 6000 6000
check pool_destroy
# as left by a version that did not write this number
check crash_media_fuzz field /dev/many index_slots=0
defer pool_destroy
code 1 "blocks do not fit into" kvblk pool import $pool --index-slots 2000 /dev/many >"$tmp/said"
wait_for 30 pool_is_up
expect "kills, and evictions" "$(counter kills) $(counter evicted)" "0 0"
blocks get 1 6000 4000
[ "$hits" -gt 1000 ] && [ "$hits" -lt 3500 ] || fail "with 2000 slots $hits of 6000 blocks are hits"
{ kvblk status $pool || true; } | grep -q 'do not fit into the index' || fail "status does not tell of blocks that do not fit"
check pool_destroy
expect "the number that is told" "$(crash_media_fuzz field /dev/many index_slots)" 0
pool_import --index-slots 8000 /dev/many
blocks get 1 6000 4000
expect "blocks that are back" "$hits" 6000
check pool_destroy
expect "the number that is told" "$(crash_media_fuzz field /dev/many index_slots)" "$slots"
pool_import --force --index-slots 2000 /dev/many
[ "$(counter evicted)" -gt 2000 ] || fail "nothing was evicted by force"
check pool_destroy
nullb_remove many

echo "-- a member is its owner's by an identity, not by a name that two hosts may share"
mkdir -p /var/lib/kvblk
own=/var/lib/kvblk/node
defer "rm -f $own"
echo 11111111-2222-3333-4444-555555555555 >$own
pool_format $flash2
nullb_create copy2 120
crash_image $flash2 /dev/copy2
check pool_destroy
echo 21111111222233334444555555555555 >$own
code 1 "was in use by node $(hostname)" kvblk pool import $pool /dev/copy2
echo 11111111222233334444555555555555 >$own
name=$(hostname)
defer "hostname $name"
hostname renamed
pool_import /dev/copy2
check pool_destroy
hostname "$name"
# as left by a version that knew names only
pool_import /dev/copy2
crash_image /dev/copy2 $flash2
check pool_destroy
nullb_remove copy2
check crash_media_fuzz field $flash2 node=0
hostname renamed
code 1 "was in use by node $name" kvblk pool import $pool $flash2
hostname "$name"
pool_import $flash2
check pool_destroy
rm $own

echo "-- the first sector is damaged: the second superblock counts; something else was written there: the device is left alone"
for flash in $flash0 $flash1 $flash2; do
	check kvblk member wipe --yes "$flash"
done
nullb_create q1 120
scratch() {
	check dd if=/dev/zero of=/dev/q1 bs=1M oflag=direct conv=notrunc status=none count=120
	pool_format /dev/q1
	blocks put 1 40 50000
	check pool_destroy
}
# left_alone WHAT: no import takes or changes the device
left_alone() {
	local before
	before=$(blkid -p -o export /dev/q1 | grep -E 'TYPE=' || true)
	kvblk pool import --all || true
	[ ! -d $sysfs ] || fail "$1: the pool came up on a drive that blkid calls $before"
	code 1 "q1 was a member\|q1 holds\|no member of this pool" kvblk pool import $pool /dev/q1
	pool_format $flash0
	code 1 "q1 was a member\|q1 holds" kvblk member add $pool /dev/q1
	check pool_destroy
	check kvblk member wipe --yes $flash0
	expect "what blkid says of it" "$(blkid -p -o export /dev/q1 | grep -E 'TYPE=' || true)" "$before"
}
for zeroes in 512 4096 65536; do
	scratch
	check dd if=/dev/zero of=/dev/q1 bs=$zeroes count=1 oflag=direct conv=notrunc status=none
	pool_import
	hits_are 1 40 40
	check pool_destroy
done
scratch
check mkswap -q /dev/q1
left_alone swap
code 1 "holds something else now" kvblk member wipe --yes /dev/q1
scratch
check mkfs.ext4 -q -F -E nodiscard /dev/q1
left_alone ext4
scratch
python3 - <<'END'
import fcntl, os, struct
f = os.open("/dev/q1", os.O_RDWR)
table = bytearray(4096)
table[446:462] = struct.pack("<8B2I", 0, 0, 2, 0, 0x83, 0, 0, 0, 2048, 180000)
table[510:512] = b"\x55\xaa"
os.pwrite(f, bytes(table), 0)
os.fsync(f)
END
left_alone "a partition table"
scratch
# as mdadm does by default, with the first 4 KiB unchanged; libblkid does not know this signature
printf 'something else begins here' | dd of=/dev/q1 bs=1 seek=4096 conv=notrunc,fsync status=none
left_alone "what begins at 4 KiB"
echo "-- what lies at a device's end is somebody's, too; --format and wipe leave nothing"
raid() {
	printf 'Intel Raid ISM Cfg Sig. 1.3.00' | dd of=/dev/q1 bs=1 seek=$((120 * 1048576 - 1024)) conv=notrunc,fsync status=none
}
scratch
raid
left_alone "the metadata of a RAID at its end"
check dd if=/dev/zero of=/dev/q1 bs=1M count=1 oflag=direct conv=notrunc status=none
code 1 "q1 holds other data" kvblk pool create $pool /dev/q1
pool_format /dev/q1
expect "what wipefs finds" "$(wipefs -n /dev/q1 | tail -n +2)" ""
code 1 "in use, or left in a crash, by node $(hostname)" kvblk member wipe --yes /dev/q1
code 1 "cannot wipe" kvblk member wipe --yes --force /dev/q1
nullb_create q2 120
crash_image /dev/q1 /dev/q2
code 1 "in use, or left in a crash, by node $(hostname): nothing was changed" kvblk member wipe --yes /dev/q2
check kvblk member wipe --yes --force /dev/q2
code 1 "is not a member" kvblk member wipe --yes --force /dev/q2
nullb_remove q2
check pool_destroy
check kvblk member wipe --yes /dev/q1
code 1 "no member of this pool was found" kvblk pool import $pool /dev/q1
code 1 "is not a member" kvblk member wipe --yes /dev/q1
pool_create --segment-size 8M /dev/q1

echo "-- a second path to a member in use"
modprobe -q loop || true
loop=$(losetup -f --show /dev/q1)
for format in "" --format; do
	code 1 "is another path to a member in use" kvblk member add --yes $format $pool "$loop"
	# shellcheck disable=SC2086 # an option or none
	code 1 "is another path to a member in use" kvblk pool create other --yes $format "$loop"
done
losetup -d "$loop"
blocks put 1 40 50000
check pool_destroy

echo "-- a device that shrank, and two pools of one name"
dd if=/dev/q1 of="$tmp/head" bs=1M count=1 iflag=direct status=none
nullb_create q2 100
check dd if="$tmp/head" of=/dev/q2 bs=1M oflag=direct status=none
code 1 "q2 has 100 MiB, had 120 as a member" kvblk pool import $pool /dev/q2
nullb_remove q2
pool_format $flash2
check pool_destroy
code 1 "there are two pools of this name" kvblk pool import --all
[ ! -d $sysfs ] || fail "one of two pools of a name was taken"
code 1 "there are two pools of this name" kvblk pool import $pool
uuid=$(kvblk pool import --scan | awk '/^pool t,/ { u = $4 } $1 == "/dev/q1" { sub(",", "", u); print u }')
check kvblk pool import "$uuid" --name other
defer "kvblk pool destroy other || true"
pool_import
kvblk pool list | grep -q '^other' || fail "it has no new name"
check kvblk pool destroy other
check pool_destroy
check kvblk pool import other
check kvblk pool destroy other
nullb_remove q1

echo "-- to come back costs the smallest pool no block"
nullb_create small 67
pool_format /dev/small
blocks put 1000 2000 50000
blocks get 1000 2000 50000
here=$hits
[ "$here" -lt 1500 ] || fail "the pool is not full"
for round in 1 2 3; do
	check pool_destroy
	pool_import /dev/small
	# time for reclaim, which must not start
	sleep 2
	hits_are 1000 2000 "$here"
	expect "segments reclaimed" "$(counter segments_reclaimed)" 0
done
blocks put 5000 100 50000
expect "puts after that" "$stored" 100
check pool_destroy

echo "-- a device number is one pool's: what has a copy of a node opens that pool or none"
# copies NAME: make copies of the pool's nodes
copies() {
	local kind node
	for kind in default nvme-kv; do
		node=/dev/kvblk/$1/$kind
		check mknod "$tmp/$1-$kind" c "$(stat -Lc %Hr "$node")" "$(stat -Lc %Lr "$node")"
	done
}
pool_format $flash0
defer "kvblk pool destroy u 2>/dev/null || true"
check kvblk pool create u --format --yes --segment-size 8M $flash1
blocks put 1 1 50000
check guest_blocks /dev/kvblk/u/default put 2 1 50000
copies $pool
copies u
check pool_destroy
check kvblk pool destroy u
check kvblk pool import u $flash1
pool_import $flash0
for name in $pool u; do
	expect "blocks 1 and 2 by the copy of $name's node" \
		"$(guest_blocks "$tmp/$name-default" lookup 1 1 1) $(guest_blocks "$tmp/$name-default" lookup 2 1 1)" \
		"$([ "$name" = u ] && echo 'present=0 present=1' || echo 'present=1 present=0')"
	for kind in default nvme-kv; do
		expect "number of $name's $kind" "$(stat -c %t:%T "/dev/kvblk/$name/$kind")" "$(stat -c %t:%T "$tmp/$name-$kind")"
	done
done
check pool_destroy
check kvblk pool destroy u
pool_format $flash2
for name in $pool u; do
	for kind in default nvme-kv; do
		refuse python3 -c 'import os, sys; os.open(sys.argv[1], os.O_RDWR)' "$tmp/$name-$kind"
	done
done
