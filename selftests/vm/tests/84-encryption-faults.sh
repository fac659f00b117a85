#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=200 takes=35 kernels=newest,6.12,debug check=debug
# Encrypted tenants when writes fail and after crashes: no ciphertext is written twice, and of two records of a key the
# newer one stays. Readers of a shared tenant, and checksums of producers.
. "${0%/*}/pool.bash"
blue=/dev/kvblk/$pool/blue
plain=/dev/kvblk/$pool/plain

# twins: print how many units of the members have the bytes of an earlier one; only units that look random count
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

unlock() {
	check kvblk tenant key $pool blue --key-file "$tmp/key"
}

# newest FIRST COUNT LENGTH NR: all blocks are there, NR of them as they were put last, with tag 2
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

check pool_destroy

echo "-- two records of a key after a crash"
large=$((29 << 20))
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
