#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=400 takes=55 kernels=newest,6.12,debug check=debug
# kvblkd makes and keeps the keys of encrypted tenants, wrapped by a master key, and gives them after an import. No output
# and no memory of kvblkd has a key. It removes the keys of removed tenants.
# slow: kvblkd notices removed tenants after up to 30 s.
. "${0%/*}/daemon.bash"
export STATE_DIRECTORY=$tmp/state
blue=/dev/kvblk/$pool/blue
master=kvblk-test

# config TENANT...: the pool has these encrypted tenants
config() {
	cat >"$conf" <<-END
		master_key = "user:$master";
		pools = ( { name = "$pool"; tenants = ( $(printf '{ name = "%s"; encrypted = true; }, ' "$@") { name = "plain"; } ); } );
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
		cat "$tmp/log" "$STATE_DIRECTORY"/*/*/* /proc/keys
		kvblk tenant list $pool -o json
		kvblk pool show $pool -o json
		kvblk apply --config "$conf" -o json
		grep -rs . $sysfs/ /sys/class/kvblk-tenant/ || true
	} >"$tmp/outputs"
}
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
