#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=200 takes=25 check=debug
# The pools of a pod have its uuid, name and seed, and each an identity of its own. A device that cannot give them is
# refused with a sentence, and nothing is formatted. Import, rename and an added member keep the pod.
. "${0%/*}/pool.bash"

kv_load
flash 7 120
id=/var/lib/kvblk/node
mkdir -p ${id%/*}
defer "rm -f $id"
echo 11111111-2222-3333-4444-555555555555 >$id

# bytes DEVICE OFFSET COUNT: print these bytes in hex
bytes() {
	dd if="$1" bs=4096 count=1 iflag=direct status=none | od -An -v -tx1 -j "$2" -N "$3" | tr -d ' \n'
}

# text DEVICE OFFSET: print a name of 32 bytes
text() {
	dd if="$1" bs=4096 count=1 iflag=direct status=none | tail -c +$(($2 + 1)) | head -c 32 | tr -d '\0'
}

pool_uuid() { bytes "$1" 64 16; }
seed() { bytes "$1" 96 32; }
pod_uuid() { bytes "$1" 3920 16; }

# of_pod DEVICE: the superblock has the pod's bit, name, uuid and seed, and the least grace
of_pod() {
	expect "ro_compat of $1" "$(bytes "$1" 20 4)" 01000000
	expect "incompat of $1" "$(bytes "$1" 24 4)" 01000000
	expect "pod of $1" "$(text "$1" 3936)" rack7
	expect "pod uuid of $1" "$(pod_uuid "$1")" "$pod"
	expect "grace of $1" "$(bytes "$1" 3968 4)" 10270000
	expect "seed of $1" "$(seed "$1")" "$seed"
}

# copy DEVICE: make the spare device look like this member
copy() {
	check dd if="$1" of=/dev/flash6 bs=64K count=16 iflag=direct oflag=direct status=none
}

# damage COPY: change a byte of a superblock of the spare device
damage() {
	printf x | check dd of=/dev/flash6 bs=1 seek=$(($1 * 65536 + 4090)) conv=notrunc,fsync status=none
}

# joins DEVICE / refused SENTENCE OPTION...: another pool of the pod is made and destroyed, or not made
joins() {
	check kvblk pool create v --force --pod rack7 --seed-of "$1" --segment-size 8M --format --yes /dev/flash5
	of_pod /dev/flash5
	check kvblk pool destroy v
	check kvblk member wipe --yes /dev/flash5
}

refused() {
	code 1 "$1" kvblk pool create v --segment-size 8M "${@:2}" /dev/flash5
	expect "superblocks of a device that was not taken" "$(bytes /dev/flash5 0 4096 | tr -d 0)" ""
}

echo "-- the first node"
pool_create --force --pod rack7 --segment-size 8M /dev/flash0
pod=$(pod_uuid /dev/flash0) seed=$(seed /dev/flash0)
[[ $pod != *([0]) ]] || fail "the pod has no uuid"
of_pod /dev/flash0
blocks put 1 20 50000

echo "-- another node: from a member that is in use, and one more that joins by it"
check kvblk pool create u --force --pod rack7 --seed-of /dev/flash0 --strict --segment-size 8M /dev/flash1
defer 'kvblk pool destroy u'
of_pod /dev/flash1
joins /dev/flash1
check kvblk pool create w --force --pod rack7 --join /dev/flash1 --segment-size 8M /dev/flash2
defer '! kvblk pool show w >/dev/null 2>&1 || kvblk pool destroy w'
of_pod /dev/flash2
expect "pools" "$(for d in 0 1 2; do pool_uuid /dev/flash$d; echo; done | sort -u | wc -l)" 3
check kvblk pool destroy w
joins /dev/flash2
check kvblk member wipe --yes /dev/flash2
blocks get 1 20 50000
expect "hits" "$hits" 20

echo "-- it is shown"
uuid=$(sed -E 's/(.{8})(.{4})(.{4})(.{4})/\1-\2-\3-\4-/' <<<"$pod")
for name in $pool u; do
	kvblk pool show "$name" | grep -q "^pod  *rack7, uuid $uuid\$" || fail "pool show: $(kvblk pool show "$name")"
	kvblk status "$name" | grep -q "^$name: part of pod rack7, uuid $uuid; follows 0 members of other nodes, 0 of them up\$" || fail "status: $(kvblk status "$name")"
	kvblk pool show "$name" -o json | grep -q "\"pod_uuid\": \"$uuid\"" || fail "pool show -o json: $(kvblk pool show "$name" -o json)"
done
kvblk pool import --scan | grep -c "^  of pod rack7, uuid $uuid\$" >"$tmp/found"
expect "pools of the pod that are found" "$(cat "$tmp/found")" 2

echo "-- a member that is added is of the pod, too"
check kvblk member add $pool --force --segment-size 8M /dev/flash3
wait_for 30 pool_is_up
of_pod /dev/flash3

echo "-- an import keeps the pod, under another name, too"
check pool_destroy
pool_import --force
of_pod /dev/flash0
check pool_destroy
check kvblk pool import $pool --force --name other
defer '! kvblk pool show other >/dev/null 2>&1 || kvblk pool destroy other'
of_pod /dev/flash3
kvblk pool show other | grep -q '^pod  *rack7, ' || fail "the pod after a rename: $(kvblk pool show other)"
check kvblk pool destroy other
check kvblk pool import other --force --name $pool
wait_for 30 pool_is_up
blocks get 1 20 50000
expect "hits" "$hits" 20

echo "-- what gives no seed"
refused "the pod's device is not a member of a pool" --pod rack7 --seed-of /dev/flash6
refused "the pod's device is of pod rack7: pass that name" --pod rack8 --seed-of /dev/flash0
check kvblk pool create n --segment-size 8M /dev/flash4
expect "bits of a pool in no pod" "$(bytes /dev/flash4 20 4)$(bytes /dev/flash4 3920 176 | tr -d 0)" 00000000
! kvblk pool show n | grep -q pod || fail "a pool in no pod: $(kvblk pool show n)"
check kvblk pool destroy n
refused "the pod's device is of pool n, which is in no pod" --pod rack7 --seed-of /dev/flash4
refused "^kvblk: v: /dev/nope does not exist\$" --pod rack7 --seed-of /dev/nope
refused "^kvblk: v: /dev/null is not a block device\$" --pod rack7 --seed-of /dev/null
code 2 "seed-of needs --pod" kvblk pool create v --seed-of /dev/flash0 /dev/flash5

echo "-- what another node writes is seen, and what cannot be read is told"
exec 7</dev/flash6
cat <&7 >/dev/null
dm_create other /dev/flash6 "0 %s linear /dev/flash6 0"
check dd if=/dev/flash0 of=/dev/mapper/other bs=64K count=2 iflag=direct oflag=direct status=none
joins /dev/flash6
exec 7<&-
dm_set other /dev/flash6 "0 %s error"
refused "the pod's device has bad superblocks (error -5): pass another member" --pod rack7 --seed-of /dev/mapper/other
check dm_remove other

echo "-- one good superblock suffices, none does not"
copy /dev/flash0
damage 0
joins /dev/flash6
copy /dev/flash0
damage 1
joins /dev/flash6
damage 0
refused "the pod's device has bad superblocks (error -74): pass another member" --pod rack7 --seed-of /dev/flash6

echo "-- members of later versions: readers may skip bits of ro_compat alone"
copy /dev/flash0
check crash_media_fuzz field /dev/flash6 ro_compat=5 >/dev/null
joins /dev/flash6
code 1 "was written by another version of kvblk" kvblk pool import $pool --name v /dev/flash6
check crash_media_fuzz feature /dev/flash6
refused "the pod's device was written by another version of kvblk: update this node" --pod rack7 --seed-of /dev/flash6
check dd if=/dev/zero of=/dev/flash6 bs=64K count=2 oflag=direct status=none

echo "-- a node without an id"
check pool_destroy
: >$id
refused "a pool in a pod needs this host's id" --pod rack7
refused "a pool in a pod needs this host's id" --pod rack7 --seed-of /dev/flash1
code 1 "a pool in a pod needs this host's id" kvblk pool import $pool
echo 11111111-2222-3333-4444-555555555555 >$id
pool_import --force
of_pod /dev/flash0
