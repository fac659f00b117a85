#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=300 takes=45 kernels=newest,6.12,debug check=debug
# Encrypted tenants when writes fail and after crashes: no ciphertext is written twice, reclaim copies no torn record, and
# of two records of a key the newer one stays. Readers of a shared tenant, and checksums of producers.
# slow: two pools whose segments are all reclaimed, and blocks of 29 MiB.
. "${0%/*}/pool.bash"
blue=/dev/kvblk/$pool/blue
plain=/dev/kvblk/$pool/plain

# twins: print how many units of the members have the bytes of an earlier unit. Only units of random bytes count
twins() {
	python3 - /dev/flash0 /dev/flash1 <<-'END'
		import mmap, os, sys
		mib, seen, twins = mmap.mmap(-1, 1 << 20), set(), 0
		for device in sys.argv[1:]:
		    fd = os.open(device, os.O_RDONLY | os.O_DIRECT)
		    for start in range(0, os.lseek(fd, 0, os.SEEK_END), len(mib)):
		        got = os.preadv(fd, [mib], start)
		        for at in range(0, got, 4096):
		            unit = mib[at:at + 4096]
		            if len(set(unit)) > 200:
		                twins += unit in seen
		                seen.add(unit)
		print(twins)
	END
}

# tear COUNT DEVICE: clear the last unit of the payload of COUNT records of 70000 bytes
tear() {
	python3 - "$@" <<-'END'
		import mmap, os, struct, sys
		count, fd = int(sys.argv[1]), os.open(sys.argv[2], os.O_RDWR | os.O_DIRECT)
		mib, zeroes, found = mmap.mmap(-1, 1 << 20), mmap.mmap(-1, 4096), []
		for start in range(0, os.lseek(fd, 0, os.SEEK_END), len(mib)):
		    os.preadv(fd, [mib], start)
		    # the length is at offset 52, that of the header at 10
		    found += [start + at + mib[at + 10] * 4096 for at in range(0, len(mib), 4096)
		              if mib[at:at + 8] == b"KVVRECD\0" and mib[at + 52:at + 56] == struct.pack("<I", 70000)]
		if len(found) < count:
		    sys.exit(f"{len(found)} records found")
		for at in found[:count]:
		    os.pwritev(fd, [zeroes], at + 70000 // 4096 * 4096)
	END
}

unlock() {
	check kvblk tenant key $pool blue --key-file "$tmp/key"
}

# import_torn: import the image of a crash, with torn records
import_torn() {
	check cp "$tmp/image" /dev/copy0
	check tear 20 /dev/copy0
	pool_import --force /dev/copy0
	bear_errors
}

# all_reclaimed COMMAND...: fill the pool until each segment was reclaimed; run a command again and again
all_reclaimed() {
	local first=$((10000 * ++fills)) until=$(($(counter segments_reclaimed) + 15)) round
	for ((round = 0; round < 60; round++)); do
		"$@"
		of $plain put $((first + 100 * round)) 100 140000
		[ "$(counter segments_reclaimed)" -lt $until ] || break
	done
	more_than $((until - 1)) segments_reclaimed
}

# all_there: after durable puts all blocks are hits
all_there() {
	KV_DURABLE=1 of $blue put 1 40 70000
	expect "durable puts" $((stored + exists)) 40
	of $blue get 1 40 70000
	expect "gets of durable blocks" "$hits $bad" "40 0"
}

# newest FIRST COUNT LENGTH NR: all blocks are hits, NR of them with tag 2, of the last put
newest() {
	local line
	# blocks with the older tag are wrong ones
	line=$(guest_blocks $blue get "$1" "$2" "$3" 2 2>/dev/null) || true
	eval "$line"
	expect "blocks, and older ones among them" "$hits $bad" "$2 $(($2 - $4))"
}

kv_load
umask 77
head -c 32 /dev/urandom >"$tmp/key"
flash 2 100
fills=0

echo "-- a put that is tried again"
dm_create half /dev/flash0 "0 %s linear /dev/flash0 0"
pool_format /dev/mapper/half /dev/flash1
bear_errors
check kvblk tenant create $pool blue --encrypt --key-file "$tmp/key"
check kvblk tenant create $pool plain
for tenant in $blue $plain; do
	before=$(counter write_errors)
	# every second MiB fails, so parts of the blocks are written
	dm_set half /dev/flash0 "$(for ((m = 0; m < 100; m += 2)); do echo "$((m * 2048)) 2048 linear /dev/flash0 $((m * 2048))"; echo "$((m * 2048 + 2048)) 2048 error"; done)"
	of "$tenant" put 1 20 1000000
	expect "puts" "$stored" 20
	dm_set half /dev/flash0 "0 %s linear /dev/flash0 0"
	more_than "$before" write_errors
	of "$tenant" get 1 20 1000000
	expect "gets" "$hits $bad" "20 0"
	if [ "$tenant" = $blue ]; then
		expect "units of ciphertext that are on members twice" "$(twins)" 0
	else
		[ "$(twins)" -gt 20 ] || fail "no block was written in parts and again: the test does not see it"
	fi
done
check pool_destroy
check dmsetup remove half

echo "-- readers of a shared tenant"
pool_format /dev/flash0
check kvblk tenant create $pool blue --encrypt --key-file "$tmp/key"
check kvblk tenant create $pool plain
check kvblk tenant create $pool red --encrypt
of $blue put 1 40 70000
for t in plain red; do
	of /dev/kvblk/$pool/$t get 1 40 70000
	expect "gets by $t, which shares nothing" "$misses" 40
	check kvblk tenant set $pool $t --shared blue
	of /dev/kvblk/$pool/$t get 1 40 70000
	expect "gets by $t" "$hits $bad" "40 0"
done
of $plain put 31 20 80000 2
of $plain get 31 20 80000 2
expect "gets of own blocks" "$hits $bad" "20 0"

echo "-- checksums of producers"
KV_ENCRYPTED=1 check guest_put_get $blue checksums_of_an_encrypted_tenant

echo "-- reclaim after a crash"
nullb_create copy0 100
check dd if=/dev/flash0 of="$tmp/image" bs=1M iflag=direct conv=sparse status=none
check pool_destroy
import_torn
check kvblk tenant set $pool plain --shared blue
of $plain get 1 30 70000
expect "gets by a reader, without the key" "$misses" 30
unlock
all_reclaimed of $blue put 1 40 70000
more_than 0 checksum_failures
all_there
check pool_destroy
# without the key nothing proves a record; retained ones would be copied
import_torn
line=$(guest_hint $blue 1 40 retain=3600) || fail "guest_hint: $line"
all_reclaimed true
expect "checksum failures without the key" "$(counter checksum_failures)" 0
unlock
all_there
check pool_destroy

echo "-- two records of a key after a crash"
large=$((29 << 20))
nullb_remove copy0
for i in 0 1; do
	nullb_remove flash$i
	nullb_create flash$i 600
	nullb_create copy$i 600
	dm_flakey flaky$i /dev/flash$i
done
pool_create --format --yes --segment-size 64M /dev/mapper/flaky0 /dev/mapper/flaky1
bear_errors
check kvblk tenant create $pool blue --encrypt --key-file "$tmp/key"
of $blue put 1 20 70000 1
of $blue put 101 3 $large 1
put $sysfs/suspect_ms 1500
check dmsetup suspend --noflush --nolockfs flaky1
defer '[ ! -b /dev/mapper/flaky1 ] || dmsetup resume flaky1'
guest_blocks $blue get 1 20 70000 1 >/dev/null &
wait_for 20 member_is flaky1 suspect
of $blue put 1 20 70000 2
small=$stored
[ "$small" -gt 0 ] && [ "$small" -lt 20 ] || fail "$small of 20 blocks are on one of two members"
of $blue put 101 3 $large 2
big=$stored
for i in 0 1; do
	check dd if=/dev/flash$i of=/dev/copy$i bs=1M iflag=direct oflag=direct conv=sparse status=none
done
put $sysfs/suspect_ms 60000
check dmsetup resume flaky1
wait
wait_for 60 member_is flaky1 up
check pool_destroy
pool_import --force /dev/copy0 /dev/copy1
unlock
newest 1 20 70000 $small
newest 101 3 $large $big
