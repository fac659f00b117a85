#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=120 takes=20
# Tunables accept their range and nothing else. Each file of a pool, its members and tenants is readable and documented,
# and can be read while members, tenants and pools are added and removed.
. "${0%/*}/pool.bash"

abi=/kvblk/Documentation/ABI/testing/sysfs-class-kvblk
documented=$(<$abi)

# ranges: try each tunable with its whole range, and with values outside
ranges() {
	python3 - "$sysfs" <<-'END'
		import errno, os, sys

		RANGES = {
		    "low_permille": (1, 998), "high_permille": (2, 999), "reinsert_permille": (0, 4000), "admit_permille": (0, 1000),
		    "first_permille": (0, 1000), "first_duel": (0, 1), "second_permille": (0, 1000),
		    "integrity": (0, 2), "queue_bytes": (1 << 20, 1 << 36), "put_window_bytes": (0, 1 << 36),
		    "suspect_ms": (100, 3600000), "failing_run": (0, 1000000),
		    "failing_permille": (0, 1000), "discard": (0, 1), "lease_permille": (0, 1000), "lease_keys_max": (0, 1 << 24), "reclaim_event_rate": (0, 1000000),
		    "dram_bytes": (0, 1 << 44), "dram_mode": (0, 2), "dram_promote": (0, 1), "dram_node": (-1, 0), "bounce_chunks": (0, 64), "stats_seconds": (0, 86400), "reuse_grace_ms": (3000, 600000)}
		NAMES = {"integrity": ["header", "full", "producer"], "dram_mode": ["through", "evict", "touched"]}
		os.chdir(sys.argv[1])

		def shown(name, value):
		    return f"{NAMES[name][value] if name in NAMES else value}\n"

		def read(name):
		    with open(name) as f:
		        return f.read()

		def write(name, text):
		    """The errno, 0: taken."""
		    fd = os.open(name, os.O_WRONLY)
		    try:
		        os.write(fd, text.encode())
		        return 0
		    except OSError as e:
		        return e.errno
		    finally:
		        os.close(fd)

		def accepts(name, text):
		    error = write(name, text)
		    assert not error, f"{name} refuses {text!r}: {os.strerror(error)}"
		    value = NAMES[name].index(text) if text in NAMES.get(name, []) else int(text, 0)
		    assert read(name) == shown(name, value), f"{name} is {read(name)!r} after a write of {text!r}"

		def refuses(name, text, error):
		    was = {n: read(n) for n in RANGES}
		    got = write(name, text)
		    assert got == error, f"{name}, write of {text!r}: {errno.errorcode.get(got)}, should be {errno.errorcode.get(error)}"
		    now = {n: read(n) for n in RANGES}
		    assert was == now, f"{name}, write of {text!r}: {was} became {now}"

		writable = {n for n in os.listdir() if os.path.isfile(n) and os.stat(n).st_mode & 0o222} - {"uevent"}
		assert writable == set(RANGES), writable
		accepts("high_permille", "999")
		accepts("low_permille", "1")
		for name, (low, high) in RANGES.items():
		    if name == "high_permille":
		        accepts("low_permille", "1")
		    was = read(name).strip()
		    for text in str(low), str(high), f"{low}\n", hex(high), f"+{high}":
		        accepts(name, text)
		    for text in NAMES.get(name, []):
		        accepts(name, text)
		    accepts(name, str(high))
		    for n in low - 1, high + 1, 1 << 45, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, 1 << 64, (1 << 64) + low, 10 ** 40, -(1 << 32), -(1 << 64):
		        # the bed has one node
		        refuses(name, str(n), errno.ENODEV if (name, n) == ("dram_node", 1) else errno.ERANGE)
		    if high < 1 << 32:
		        for n in (1 << 32), (1 << 32) + low, (1 << 32) + high:
		            refuses(name, str(n), errno.ERANGE)
		    for text in (" ", "\n", "\0", "-", "--1", "+-1", "x", f"{low}x", "0x", "0xg", "1.5", "1 2", "1e3", "1,000", "true", "y",
		                 "%d", f"{low} ", f" {low}", f"{low}\n\n", f"{low}\n1", "\u0661", "9" * 4096, "x" * 4096):
		        refuses(name, text, errno.ERANGE if text[0] == "9" else errno.EINVAL)
		    write(name, "")
		    assert read(name) == shown(name, high), f"{name} is {read(name)} after an empty write"
		    if name == "low_permille":
		        was = "20"
		    accepts(name, was)
		accepts("low_permille", "20")
		accepts("high_permille", "40")
		refuses("low_permille", "40", errno.EINVAL)
		refuses("low_permille", "41", errno.EINVAL)
		refuses("high_permille", "20", errno.EINVAL)
		refuses("high_permille", "19", errno.EINVAL)
	END
}

# read_all DIRECTORY: read all files; errors are ignored, because files may be removed meanwhile
read_all() {
	local f text
	for f in "$1"/* "$1"/counters/* "$1"/members/*/* "$1"/tenants/*/*; do
		[ ! -f "$f" ] || read -r text <"$f"
	done 2>/dev/null || true
	: "${text-}"
}

kv_load
flash 3 100
pool_format /dev/flash0 /dev/flash1

expect uuid "$(cat $sysfs/uuid)" "$(kvblk pool show $pool -o json | sed -n 's/.*"uuid": "\(.*\)".*/\1/p' | head -n 1)"
expect state "$(cat $sysfs/state)" up
expect strict "$(cat $sysfs/strict)" 0
expect epoch "$(cat $sysfs/epoch)" 1
[ "$(cat $sysfs/birth)" -gt 1000000000 ] || fail "birth: $(cat $sysfs/birth)"
[ "$(cat $sysfs/free)" -gt 0 ] || fail "free: $(cat $sysfs/free)"
[ "$(cat $sysfs/free)" -le "$(cat $sysfs/capacity)" ] || fail "free is more than capacity"
expect "members" "$(find $sysfs/members -mindepth 1 -maxdepth 1 -printf "%f\n" | sort | xargs)" "flash0 flash1"
expect "member's path" "$(cat $sysfs/members/flash1/path)" /dev/flash1
expect "member's device" "$(cat $sysfs/members/flash1/device)" flash1
expect "member's place" "$(cat $sysfs/members/flash1/place)" "device flash1"
expect "member's state" "$(cat $sysfs/members/flash1/state)" up
expect "member's suspect" "$(cat $sysfs/members/flash1/suspect)" 0
expect "member's size" "$(cat $sysfs/members/flash1/size)" $((100 << 20))
expect "member's segments" "$(cat $sysfs/members/flash1/segment_size)" $((8 << 20))
blocks put 1 10 5000
expect "counters/puts" "$(cat $sysfs/counters/puts)" "$stored"
expect "counters/put_bytes" "$(cat $sysfs/counters/put_bytes)" $((stored * 5000))

# values TENANT FILE...: print these files of the tenant in one line
values() {
	(cd "$sysfs/tenants/$1" && cat "${@:2}" | xargs)
}

(umask 77 && head -c 32 /dev/urandom >"$tmp/key")
check kvblk tenant create $pool llm --quota-bytes 32M --quota-bytes-soft 16M --quota-blocks 900 --quota-blocks-soft 800 --quota-dram 1M --weight 300
check kvblk tenant create $pool blue --encrypt --key-file "$tmp/key"
check kvblk tenant set $pool llm --shared default
node=/dev/kvblk/$pool/llm blocks put 1 10 5000
expect "tenants" "$(find $sysfs/tenants -mindepth 1 -maxdepth 1 -printf "%f\n" | sort | xargs)" "blue default llm nvme-kv"
limits=(quota_bytes quota_bytes_soft quota_blocks quota_blocks_soft quota_dram weight)
expect "limits" "$(values llm "${limits[@]}")" "$((32 << 20)) $((16 << 20)) 900 800 $((1 << 20)) 300"
expect "no limits" "$(values default "${limits[@]}")" "0 0 0 0 0 100"
expect "llm" "$(values llm id encrypted locked shared used_blocks openers)" "1 0 0 default $stored 0"
expect "blue" "$(values blue id encrypted locked shared used_blocks)" "2 1 0 0"
expect "used_bytes" "$(values llm used_bytes)" "$(kvblk tenant list $pool -o json | python3 -c 'import json, sys; print(*(t["used_bytes"] for t in json.load(sys.stdin) if t["name"] == "llm"))')"
exec 8<$node
expect "openers" "$(values default openers)" 1
exec 8<&-

# all files are documented and have one line
for f in $(cd $sysfs && find . -type f ! -path './power/*' ! -name uevent ! -name dev -printf '%P\n'); do
	mapfile -t lines <"$sysfs/$f"
	expect "lines in $f" ${#lines[@]} 1
	doc=${f/members\/flash[01]\//members/<member>/}
	[[ $f != tenants/* ]] || doc="tenants/<tenant>/${f##*/}"
	doc=${doc/counters\/*/counters/<counter>}
	[[ $documented == *"/sys/class/kvblk/<pool>/$doc"$'\n'* ]] || fail "$f is not in ${abi##*/}"
	[[ $documented =~ [^_a-z]${f##*/}[^_a-z] ]] || fail "$f is not in ${abi##*/}"
done
expect "files of another mode" "$(cd $sysfs && find . -type f ! -path './power/*' ! -name uevent ! -perm 444 ! -perm 440 ! -perm 644)" ""
check ranges

# removal waits for readers, which see no freed member
while [ ! -e "$tmp/stop" ]; do read_all $sysfs; done &
reader=$!
defer "touch $tmp/stop; wait $reader || true"
while [ ! -e "$tmp/stop" ]; do
	for v in 30 31 32; do echo $v >$sysfs/high_permille; done 2>/dev/null || true
done &
writer=$!
defer "touch $tmp/stop; wait $writer || true"
exec 9<$sysfs/members/flash1/state
for _ in 1 2 3; do
	check kvblk member add $pool --format --yes /dev/flash2
	wait_for 30 member_is flash2 up
	check kvblk member remove --yes $pool flash2
	wait_for 30 member_is flash2 gone
done
exec 8<$sysfs/tenants/llm/id
for _ in 1 2 3; do
	check kvblk tenant clear --yes $pool llm
	check kvblk tenant set $pool llm --mode 0600
	check kvblk tenant create $pool late
	check kvblk tenant remove --yes $pool late
done
expect "what a cleared tenant keeps" "$(values llm weight shared)" "300 default"
[ "$(values llm id)" -gt 2 ] || fail "a cleared tenant has id $(values llm id)"
refuse cat <&8 2>/dev/null
exec 8<&-
check kvblk tenant remove --yes $pool llm
[ ! -e $sysfs/tenants/llm ] || fail "the directory of a removed tenant is still there"
for _ in 1 2 3; do
	check kvblk pool destroy $pool
	check kvblk pool import $pool
done
refuse cat <&9 2>/dev/null
exec 9<&-
touch "$tmp/stop"
wait $reader $writer
wait_for 30 pool_is_up
no_failures
