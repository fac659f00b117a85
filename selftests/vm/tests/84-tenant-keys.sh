#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=400 takes=55 kernels=newest,6.12,debug check=debug
# kvblkd makes and keeps the keys of encrypted tenants, wrapped by a master key, and gives them after an import. No output
# and no memory of kvblkd has a key. It removes the keys of removed tenants, and trusts no member that was rolled back or
# forged.
# slow: kvblkd notices removed tenants after up to 30 s.
. "${0%/*}/daemon.bash"
export STATE_DIRECTORY=$tmp/state
blue=/dev/kvblk/$pool/blue
master=kvblk-test
no_member=01234567-0000-4000-8000-000000000000
members=

# config TENANT...: the pool has these encrypted tenants
config() {
	cat >"$conf" <<-END
		master_key = "user:$master";
		pools = ( { name = "$pool"; $members tenants = ( $(printf '{ name = "%s"; encrypted = true; }, ' "$@") { name = "plain"; } ); } );
	END
}

master_add() {
	keyctl padd user $master @u <"$tmp/master" >/dev/null
}

daemon_end() {
	kill $daemon
	wait $daemon
}

reload() {
	kill -HUP $daemon
}

# key_of TENANT: set $file to the file of its key
key_of() {
	file=$(echo "$STATE_DIRECTORY"/keys/*/"$1".0)
	[ -e "$file" ]
}

no_key_of() {
	! key_of "$1"
}

# unwrap FILE: print the key in FILE, which has 16 bytes of IV and a zero, the wrapped key, and a MAC
unwrap() {
	python3 - "$1" "$tmp/master" <<-'END'
		import hashlib, subprocess, sys
		blob = bytes.fromhex(open(sys.argv[1]).read().split()[3])
		wrap = b"ENC_KEY\0" + open(sys.argv[2], "rb").read()
		wrap = hashlib.sha256(wrap.ljust(len("AUTH_KEY") + 1 + 32, b"\0")).hexdigest()
		sys.stdout.buffer.write(subprocess.run(
		    ["openssl", "enc", "-d", "-aes-256-cbc", "-nopad", "-K", wrap, "-iv", blob[:16].hex()],
		    input=blob[17:49], stdout=subprocess.PIPE, check=True).stdout)
	END
}

# memory_has FILE: the daemon's memory has the bytes of FILE
memory_has() {
	python3 - $daemon "$1" <<-'END'
		import sys
		bytes, found = open(sys.argv[2], "rb").read(), False
		with open(f"/proc/{sys.argv[1]}/mem", "rb") as memory:
		    for line in open(f"/proc/{sys.argv[1]}/maps"):
		        first, last = (int(at, 16) for at in line.split()[0].split("-"))
		        try:
		            memory.seek(first)
		            found |= bytes in memory.read(last - first)
		        except (OSError, ValueError, OverflowError):
		            pass
		sys.exit(not found)
	END
}

# forge: make the tenant blue plain in the superblocks of /dev/flash0
forge() {
	python3 - /dev/flash0 <<-'END'
		import mmap, os, struct, sys
		table = []
		for crc in range(256):
		    for _ in range(8):
		        crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
		    table.append(crc)
		fd = os.open(sys.argv[1], os.O_RDWR | os.O_DIRECT)
		both = mmap.mmap(-1, 131072)
		os.preadv(fd, [both], 0)
		for copy in (0, 65536):
		    at = both.find(b"blue\0", copy, copy + 65536) - 16
		    flags, = struct.unpack_from("<H", both, at + 2)
		    struct.pack_into("<H", both, at + 2, flags & ~2)
		    struct.pack_into("<I", both, copy + 8, 0)
		    crc = 0xffffffff
		    for byte in both[copy:copy + 65536]:
		        crc = crc >> 8 ^ table[(crc ^ byte) & 255]
		    struct.pack_into("<I", both, copy + 8, crc ^ 0xffffffff)
		os.pwritev(fd, [both], 0)
	END
}

# is_kept: kvblkd keeps the number of the superblock
is_kept() {
	local seq
	# not through the page cache, which does not see the module's writes
	seq=$(for copy in 0 16; do dd if=/dev/flash0 bs=4096 count=1 skip=$copy iflag=direct status=none | od -An -tu8 -j32 -N8; done |
		sort -n | tail -1)
	[ "$(awk '$1 == "member" { print $3 }' "$newest")" = "${seq// /}" ]
}

# down TENANT...: destroy the pool, and wait until kvblkd has seen its last state. It does not import the pool before the next
# config, because a member is missing that the file names.
down() {
	local before
	before=$(grep -c "$no_member is not a member" "$tmp/log" || true)
	members="members = ( \"$no_member\" );" config "$@"
	reload
	wait_for 30 logged "$no_member is not a member" $((before + 1))
	check pool_destroy
	wait_for 60 is_kept
}

# image NAME, roll_to NAME: save all of the member, and restore it; not to a device, where kvblkd would find a copy
image() {
	dd if=/dev/flash0 bs=1M iflag=direct status=none | gzip -1 >"$tmp/$1"
}

roll_to() {
	gzip -d <"$tmp/$1" | dd of=/dev/flash0 bs=1M iflag=fullblock oflag=direct status=none
}

# unlocked: the pool has the key of the tenant blue
unlocked() {
	kvblk tenant list $pool -o json | python3 -c 'import json, sys
sys.exit(any(t["locked"] for t in json.load(sys.stdin) if t["name"] == "blue"))'
}

hits_are() {
	of $blue get 1 40 70000
	expect "gets" "$hits $bad" "$1 0"
}

kv_load
flash 1 100
head -c 32 /dev/urandom >"$tmp/master"
pool_format /dev/flash0
defer "keyctl unlink %user:$master @u 2>/dev/null || true"

echo "-- no master key, no tenant"
config blue
daemon_start
wait_for 30 logged "create encrypted tenant blue of pool $pool: failed: the master key is not in a keyring"
[ ! -e $blue ] || fail "there is a tenant without a key"
check no_key_of blue
check master_add
reload
wait_for 30 logged "create encrypted tenant blue of pool $pool: done"
check key_of blue
expect "modes of $file" "$(stat -c %a "$file" "${file%/*}" "$STATE_DIRECTORY" | xargs)" "600 700 700"
grep -q "^default user:$master 32 [0-9a-f]\{162\}$" "$file" || fail "no wrapped key: $(cat "$file")"
of $blue put 1 40 70000
expect "puts" "$stored" 40

echo "-- the key is nowhere in the clear"
unwrap "$file" >"$tmp/key"
# this is the key: the module refuses others
check kvblk tenant key $pool blue --key-file <(cat "$tmp/key")
printf 'encrypted tenant' >"$tmp/words"
check memory_has "$tmp/words"
! memory_has "$tmp/key" || fail "kvblkd has the key in memory"
printf %s "$(od -An -v -tx1 "$tmp/key" | tr -d ' \n')" >"$tmp/hex"
! memory_has "$tmp/hex" || fail "kvblkd has the key in memory, in hex"
outputs() {
	{
		dmesg
		cat "$tmp/log" "$STATE_DIRECTORY"/*/*/* "$newest" /proc/keys
		kvblk tenant list $pool -o json
		kvblk pool show $pool -o json
		kvblk apply --config "$conf" -o json
		grep -rs . $sysfs/ /sys/class/kvblk-tenant/ || true
	} >"$tmp/outputs"
}
newest=$(echo "$STATE_DIRECTORY"/pools/*)
outputs
! grep -qiFf "$tmp/hex" "$tmp/outputs" || fail "an output has the key in hex"
! grep -qaFf "$tmp/key" "$tmp/outputs" || fail "an output has the key"
! grep -q ' encrypted ' /proc/keys || fail "a key is left in a keyring: $(cat /proc/keys)"

echo "-- after an import by a new kvblkd and a new module"
check daemon_end
check pool_destroy
check kv_unload
kv_load
defer pool_destroy
daemon_start
wait_for 60 logged "give the key of tenant blue of pool $pool: done"
hits_are 40

echo "-- a removed tenant's key is removed, and a new tenant has another one"
# or else kvblkd would create the tenant again, because the pool has just been imported
config red
reload
wait_for 60 logged "create encrypted tenant red of pool $pool: done"
check kvblk tenant remove --yes $pool blue
wait_for 60 no_key_of blue
check logged "remove the kept keys of tenant blue of pool $pool: done"
check key_of red
config blue red
reload
wait_for 60 logged "create encrypted tenant blue of pool $pool: done"
check key_of blue
unwrap "$file" >"$tmp/other"
! cmp -s "$tmp/key" "$tmp/other" || fail "the new tenant has the former one's key"
of $blue put 1 40 70000
hits_are 40

echo "-- a member that was rolled back is not imported, until an operator accepts it"
down blue red
image image
config blue red green
reload
wait_for 60 logged "create encrypted tenant green of pool $pool: done"
down blue red green
image last
roll_to image
config blue red green
reload
wait_for 60 logged "pool $pool: not trusted: /dev/flash0 is at superblock .* remove $newest and reload kvblkd"
! pool_is_here || fail "the pool was imported"
check key_of green
roll_to last
reload
wait_for 60 pool_is_here
wait_for 60 logged "give the key of tenant green of pool $pool: done"
hits_are 40
down blue red green
roll_to image
rm "$newest"
config blue red green
reload
wait_for 60 pool_is_here
wait_for 60 unlocked
hits_are 40

echo "-- imported by hand it gets no keys"
wait_for 60 [ -e "$newest" ]
down blue red green
roll_to image
check pool_import /dev/flash0
wait_for 60 logged "pool $pool: not trusted: .* before" 2
hits_are 0
check pool_destroy
roll_to last

echo "-- a superblock that says that the tenant is plain"
forge
rm "$newest"
config blue red green
reload
wait_for 60 logged "pool $pool: not trusted: by /dev/flash0 the tenant blue is not encrypted"
! pool_is_here || fail "the pool was imported"
