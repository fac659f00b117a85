#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=300 takes=60 kernels=newest,6.12,debug check=debug leaks=1
# Encrypted tenants: members have no plaintext of the blocks. A changed record is a miss. Without the key, or with another
# key, nothing is read. Reclaim moves the records without the key.
# slow: blocks of 64 MiB, and segments that are written several times.
. "${0%/*}/pool.bash"
blue=/dev/kvblk/$pool/blue
marker=plaintext-of-a-block-that-nobody-else-may-see

# seen PATTERN: print how often the members have the pattern
seen() {
	python3 - "$1" /dev/flash0 /dev/flash1 <<-'END'
		import mmap, os, sys
		mib, count = mmap.mmap(-1, 1 << 20), 0
		for device in sys.argv[2:]:
		    fd = os.open(device, os.O_RDONLY | os.O_DIRECT)
		    for start in range(0, os.lseek(fd, 0, os.SEEK_END), len(mib)):
		        got = os.preadv(fd, [mib], start)
		        count += mib[:got].count(sys.argv[1].encode())
		print(count)
	END
}

# harm HOW LENGTH COUNT DEVICE...: change COUNT records of this length: a bit of the payload's last chunk, of a tag, or
# exchange the payloads of two
harm() {
	python3 - "$@" <<-'END'
		import mmap, os, struct, sys
		how, length, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
		found = []
		mib, unit = mmap.mmap(-1, 1 << 20), mmap.mmap(-1, 4096)
		for device in sys.argv[4:]:
		    fd = os.open(device, os.O_RDWR | os.O_DIRECT)
		    for start in range(0, os.lseek(fd, 0, os.SEEK_END), len(mib)):
		        os.preadv(fd, [mib], start)
		        # the length is at offset 52, that of the header at 10
		        found += [(fd, start + at, mib[at + 10]) for at in range(0, len(mib), 4096)
		                  if mib[at:at + 8] == b"KVVRECD\0" and mib[at + 52:at + 56] == struct.pack("<I", length)]
		if len(found) < count:
		    sys.exit(f"{len(found)} records found")
		def flip(fd, at):
		    os.preadv(fd, [unit], at & ~4095)
		    unit[at & 4095] ^= 1
		    os.pwritev(fd, [unit], at & ~4095)
		whole = -length // 4096 * -4096
		for i, (fd, at, units) in enumerate(found[:count]):
		    if how == "bit":
		        flip(fd, at + units * 4096 + length - 1)
		    elif how == "tag":
		        flip(fd, at + 1024)
		    elif i % 2:
		        ours, theirs = mmap.mmap(-1, whole), mmap.mmap(-1, whole)
		        other, where, _ = found[i - 1]
		        os.preadv(fd, [ours], at + units * 4096)
		        os.preadv(other, [theirs], where + units * 4096)
		        os.pwritev(fd, [theirs], at + units * 4096)
		        os.pwritev(other, [ours], where + units * 4096)
	END
}

# locked: print whether the key of the tenant blue is missing
locked() {
	kvblk tenant list $pool -o json | python3 -c 'import json, sys; print(*(t["encrypted"] and t["locked"] for t in json.load(sys.stdin) if t["name"] == "blue"))'
}

# no_key: gets miss and puts fail, because the pool has no key
no_key() {
	expect "locked" "$(locked)" True
	of $blue get 1 40 70000
	expect "hits without the key" "$hits $misses $bad" "0 40 0"
	of $blue lookup 1 40 70000
	expect "blocks found without the key" "$present" 40
	code 1 'key of the encrypted tenant is missing' kvblk put $pool/blue new "$tmp/marked"
	code 1 'key of the encrypted tenant is missing' kvblk put $pool/blue marked "$tmp/marked"
}

kv_load
umask 77
head -c 32 /dev/urandom >"$tmp/key"

echo "-- blocks of all sizes"
# the device allocates memory when written
nullb_create big 1100
pool_create --format --yes --segment-size 128M /dev/big
check kvblk tenant create $pool blue --encrypt --key-file "$tmp/key"
for size in 1 4096 65535 65536 65537 $(((12 << 20) + 4096)); do
	of $blue put $size 1 $size
	expect "puts of $size bytes" "$stored" 1
	of $blue get $size 1 $size
	expect "gets of $size bytes" "$hits $bad" "1 0"
	of $blue delete $size 1 $size
done
head -c 64M /dev/urandom >"$tmp/large"
check kvblk put $pool/blue large "$tmp/large"
check kvblk get $pool/blue large "$tmp/back"
check cmp "$tmp/large" "$tmp/back"
rm "$tmp/large" "$tmp/back"
check pool_destroy
nullb_remove big

flash 2 240
pool_format /dev/flash0 /dev/flash1
head -c 32 /dev/urandom >"$tmp/other-key"
for ((i = 0; i < 4096; i++)); do echo "$marker"; done >"$tmp/marked"

echo "-- keys that are refused"
for n in 0 31 33; do
	head -c $n /dev/zero >"$tmp/wrong"
	code 1 'a key has 32 bytes' kvblk tenant create $pool blue --encrypt --key-file "$tmp/wrong"
done
check kvblk tenant create $pool plain
code 1 'is not encrypted' kvblk tenant key $pool plain --key-file "$tmp/key"
code 1 'no tenant none' kvblk tenant key $pool none --key-file "$tmp/key"

echo "-- no plaintext on members"
check kvblk tenant create $pool blue --encrypt --key-file "$tmp/key"
expect "locked" "$(locked)" False
check kvblk put $pool/blue marked "$tmp/marked"
check kvblk get $pool/blue marked "$tmp/back"
check cmp "$tmp/marked" "$tmp/back"
expect "plaintext on members" "$(seen "$marker")" 0
check kvblk put $pool/plain marked "$tmp/marked"
[ "$(seen "$marker")" -gt 4000 ] || fail "no plaintext of the other tenant: the test does not see blocks"
check kvblk get $pool/blue marked "$tmp/part" --offset 65530 --length 20
check cmp "$tmp/part" <(tail -c +65531 "$tmp/marked" | head -c 20)
check kvblk get $pool/blue marked "$tmp/part" --offset 131072 --length 4
check cmp "$tmp/part" <(tail -c +131073 "$tmp/marked" | head -c 4)

echo "-- what was changed on a member is a miss"
of $blue put 1 60 70000
expect "puts" "$stored" 60
failures=0
for how in bit tag swap; do
	check harm $how 70000 4 /dev/flash0 /dev/flash1
	of $blue get 1 60 70000
	expect "misses, $how" "$misses $bad" "4 0"
	failures=$((failures + 4))
	expect "checksum failures" "$(counter checksum_failures)" $failures
	of $blue put 1 60 70000
	expect "puts of what was lost" "$stored" 4
done
# the rest is read back below
of $blue get 1 60 70000
expect "hits" "$hits" 60

echo "-- without the key, with another one, with the right one"
check pool_destroy
pool_import /dev/flash0 /dev/flash1
no_key
code 1 "not the key of tenant blue" kvblk tenant key $pool blue --key-file "$tmp/other-key"
no_key
check kvblk tenant key $pool blue --key-file "$tmp/key"
expect "locked" "$(locked)" False
of $blue get 1 60 70000
expect "hits with the key" "$hits $bad" "60 0"
check kvblk get $pool/blue marked "$tmp/back"
check cmp "$tmp/marked" "$tmp/back"
# the same key again changes nothing
check kvblk tenant key $pool blue --key-file "$tmp/key"

echo "-- reclaim moves records"
reclaimed=$(counter segments_reclaimed)
for ((round = 0; round < 60; round++)); do
	of $blue get 1 60 70000
	of $blue put $((1000 + 100 * round)) 100 140000
	[ "$(counter reinserts)" -lt 20 ] || break
done
more_than "$reclaimed" segments_reclaimed
more_than 0 reinserts
of $blue get 1 60 70000
expect "wrong blocks" "$bad" 0
[ "$hits" -gt 10 ] || fail "$hits of 60 blocks that are used are left"
expect "checksum failures" "$(counter checksum_failures)" 0

echo "-- removed: nothing opens, and outputs do not have the key"
of $blue put 1 40 70000
nullb_create copy0 240
nullb_create copy1 240
crash_image /dev/flash0 /dev/copy0
crash_image /dev/flash1 /dev/copy1
check kvblk tenant remove --yes $pool blue
[ ! -e $blue ] || fail "the node is still there"
check pool_destroy
pool_import /dev/copy0 /dev/copy1
no_key
hex=$(od -An -v -tx1 "$tmp/key" | tr -d ' \n')
{
	dmesg
	kvblk tenant list $pool -o json
	kvblk pool show $pool -o json
	grep -rs . $sysfs/ /sys/class/kvblk-tenant/ || true
} >"$tmp/outputs"
! grep -qiF "$hex" "$tmp/outputs" || fail "an output has the key in hex"
! grep -qaFf "$tmp/key" "$tmp/outputs" || fail "an output has the key"
