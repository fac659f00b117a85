#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=400 takes=60 mem=2G kernels=newest,debug check=debug
# A member keeps its name for life, whatever its device is called, and no other member gets it. Two targets that return
# under each other's device names are told apart by status, list, remove, metrics and events; a missing one is shown
# with its last address. No advice costs data that can be kept, and a member that returns is as before. Odd names and
# paths are rejected.
# slow: three targets that come and go, and a pool that is filled, for an emulated CPU.
. "${0%/*}/daemon.bash"

nqn=nqn.2026-11.org.example:flash

# connect NAME: connect a target; sets ${namespaces[0]} to its namespace
connect() {
	local link
	for link in "$configfs"/nvmet/ports/*/subsystems/"$1"; do
		check nvme connect --keep-alive-tmo=600 -t tcp -a 127.0.0.1 -s "$(cat "${link%/subsystems/*}/addr_trsvcid")" -n "$1" --reconnect-delay=1 --ctrl-loss-tmo=2 >/dev/null
	done
	wait_for 10 nvmet_ready "$1" 1
	mapfile -t namespaces < <(nvmet_namespaces "$1")
}

disconnect() {
	check nvme disconnect -n "$1" >/dev/null
	wait_for 10 is_disconnected "$1"
}

is_disconnected() {
	[ -z "$(nvmet_namespaces "$1")" ]
}

# members COLUMN...: print these columns of the list of members
members() {
	local columns=$*
	kvblk member list $pool -H | cut -f "${columns// /,}" | sort
}

# status_is CODE HEALTH UP
status_is() {
	code "$1" "^$pool  *$2  *$3  " kvblk status
}

# no_series_twice: no series of the metrics occurs twice
no_series_twice() {
	wait_for 10 page 200 '^kvblk_up 1' /metrics text/plain
	sed '1,/^$/d' "$tmp/answer" | promtool check metrics || fail "promtool check metrics"
	sed '1,/^$/d; /^#/d; s/ [^ ]*$//' "$tmp/answer" | sort | uniq -d >"$tmp/twice"
	[ ! -s "$tmp/twice" ] || fail "series twice: $(head -n 3 "$tmp/twice")"
}

kv_load
flash 3 100
# files, because a scan must not find the targets' backing devices
truncate -s 100M "$tmp"/backing-{a,b,c}
printf 'exporters: { metrics: { }; };\n' >"$conf"
daemon_start
CONNECT_ARGS="--reconnect-delay=1 --ctrl-loss-tmo=2"
nvmet_tcp_up $nqn-a "$tmp/backing-a"
a=${namespaces[0]#/dev/}
nvmet_tcp_up $nqn-b "$tmp/backing-b"
b=${namespaces[0]#/dev/}
pool_format "/dev/$a" "/dev/$b"
expect "members" "$(members 2 10 12)" "$a	$a	$nqn-a nsid 1
$b	$b	$nqn-b nsid 1"
blocks put 1 100 50000
expect "puts" "$stored" 100
uuid_b=$(members 2 11 | sed -n "s/^$b	//p")
check pool_destroy
disconnect $nqn-a
disconnect $nqn-b

echo "-- a boot at which one of two did not come, and the other one has its device name"
connect $nqn-b
expect "the device of b" "${namespaces[0]}" "/dev/$a"
code 1 "member $a (.*) was not found; it was at: $nqn-a nsid 1" kvblk pool import $pool
kvblk pool import --scan | grep -q "^  $a .* missing; it was at: $nqn-a nsid 1\$" || fail "scan does not tell where the missing one was"
pool_import --degraded
expect "members" "$(members 2 3 10 12)" "$a	missing		$nqn-a nsid 1
$b	up	$a	$nqn-b nsid 1"
blocks get 1 100 50000
here=$hits
[ "$here" -gt 20 ] && [ "$here" -lt 80 ] || fail "one of two members has $here of 100 blocks"
status_is 4 degraded "1 of 2"
grep -q "member $a is missing: .* bring its device back, which was at: $nqn-a nsid 1; " "$tmp/out" || fail "status: $(cat "$tmp/out")"
! grep -q "$uuid_b" "$tmp/out" || fail "status names the member that serves: $(cat "$tmp/out")"
no_series_twice
grep -q "^kvblk_member_info{pool=\"t\",member=\"$b\",path=\"/dev/$a\",device=\"$a\",uuid=\"$uuid_b\",place=\"$nqn-b nsid 1\"} 1" "$tmp/answer" || fail "metrics do not tell which drive is $b"
grep -q "^kvblk_member_state{pool=\"t\",member=\"$a\",state=\"missing\"} 1" "$tmp/answer" || fail "metrics: $a is not missing"

echo "-- what fits two members is refused; what status says takes the missing one"
code 1 "this is member .* and member .*: give a uuid" kvblk member remove --yes $pool "$a"
code 1 "would be lost" kvblk member remove $pool "/dev/$a"
grep -q "member $b of pool t (uuid $uuid_b; device now: $a; place: $nqn-b nsid 1)" "$tmp/out" || fail "what would be lost: $(cat "$tmp/out")"
kvblk status >"$tmp/out" || true
gone=$(sed -n "s/.*kvblk member remove $pool \(.*\)$/\1/p" "$tmp/out")
code 1 "if its device came back" kvblk member remove $pool "$gone"
grep -q "member $a of pool t (uuid $gone; device now: none; place: $nqn-a nsid 1)" "$tmp/out" || fail "what would be lost: $(cat "$tmp/out")"

echo "-- it comes, under the other one's device name, and is the same member"
connect $nqn-a
expect "the device of a" "${namespaces[0]}" "/dev/$b"
code 1 "is a returning member, which keeps its name" kvblk member add --name other $pool "/dev/$b"
check kvblk member add $pool "/dev/$b"
wait_for 20 pool_is_up
expect "members" "$(members 2 3 10 12)" "$a	up	$b	$nqn-a nsid 1
$b	up	$a	$nqn-b nsid 1"
blocks get 1 100 50000
expect "gets with both" "$hits" 100
status_is 0 ok "2 of 2"
no_series_twice
check pool_destroy
pool_import
expect "members after a restart" "$(members 2 10)" "$a	$b
$b	$a"

echo "-- one that is lost and comes back carries no scar"
events_start
disconnect $nqn-a
wait_for 20 member_is "$a" dead
status_is 4 degraded "1 of 2"
grep -q "$nqn-a nsid 1" "$tmp/out" || fail "status does not tell where the dead one was: $(cat "$tmp/out")"
expect "its device" "$(members 2 10 | grep "^$a")" "$a	"
# another member may take its place, but not its name
nvmet_tcp_up $nqn-c "$tmp/backing-c"
code 1 "the pool has a member $a, present or missing: pass another name" kvblk member add --name "$a" $pool "${namespaces[0]}"
check kvblk member add --name third --segment-size 8M $pool "${namespaces[0]}"
code 1 "the device is member third of the pool already" kvblk member add $pool "${namespaces[0]}"
wait_for 20 member_is third up
connect $nqn-a
check kvblk member add $pool "${namespaces[0]}"
wait_for 20 pool_is_up
expect "members" "$(members 2 12)" "$a	$nqn-a nsid 1
$b	$nqn-b nsid 1
third	$nqn-c nsid 1"
blocks get 1 100 50000
expect "gets with it" "$hits" 100
expect "write errors" "$(counter write_errors)" 0
! event write-error || fail "a write error is told: $(cat "$tmp/events")"
status_is 0 ok "3 of 3"

echo "-- a second path to a member: nothing says to format it"
modprobe -q loop || true
loop=$(losetup -f --show "/dev/$a")
defer "losetup -d $loop"
code 1 "${loop#/dev/} is another path to a member in use" kvblk member add $pool "$loop"
! grep -q format "$tmp/out" || fail "the advice costs a member: $(cat "$tmp/out")"
check pool_destroy
for target in a b c; do nvmet_down "$nqn-$target"; done

echo "-- members of an earlier version, which are called the same"
pool_format /dev/flash0 /dev/flash1
blocks put 1 100 50000
check pool_destroy
python3 - /dev/flash0 /dev/flash1 <<-'END'
	import struct, sys
	table = []
	for n in range(256):
	    for _ in range(8):
	        n = n >> 1 ^ (0x82F63B78 if n & 1 else 0)
	    table.append(n)
	for path in sys.argv[1:]:
	    with open(path, "r+b") as f:
	        for copy in range(2):
	            f.seek(copy << 16)
	            sb = bytearray(f.read(65536))
	            for member in range(2):
	                at = 312 + 56 * member + 16
	                sb[at:at + 32] = b"by-path:0/x".ljust(32, b"\0")
	            sb[49152:] = bytes(16384)
	            sb[8:12] = bytes(4)
	            crc = 0xFFFFFFFF
	            for byte in sb:
	                crc = table[(crc ^ byte) & 255] ^ crc >> 8
	            sb[8:12] = struct.pack("<I", crc ^ 0xFFFFFFFF)
	            f.seek(copy << 16)
	            f.write(sb)
END
blockdev --flushbufs /dev/flash0 /dev/flash1
pool_import /dev/flash0 /dev/flash1
expect "members" "$(members 2)" "by-path:0_x
by-path:0_x-2"
blocks get 1 100 50000
expect "gets" "$hits" 100
was=$(members 2 10)
check pool_destroy
pool_import /dev/flash1 /dev/flash0
expect "members, and their devices" "$(members 2 10)" "$was"
check pool_destroy

echo "-- names that are given, and those that are made"
mkdir "$tmp/x" "$tmp/y"
ln -s /dev/flash0 "$tmp/x/disk"
ln -s /dev/flash1 "$tmp/y/disk"
pool_format "$tmp/x/disk" "$tmp/y/disk"
expect "members" "$(members 2 10)" "disk	flash0
disk-2	flash1"
code 1 "the pool has a member disk-2, present or missing" kvblk member add --format --yes --name disk-2 --segment-size 8M $pool /dev/flash2
code 2 'member name "a"b": must be' kvblk member add --name 'a"b' $pool /dev/flash2
check kvblk member add --format --yes --name left --segment-size 8M $pool /dev/flash2
wait_for 20 member_is left up
check pool_destroy
check kvblk pool create $pool --format --yes --segment-size 8M --name one --name two /dev/flash0 /dev/flash1
expect "members" "$(members 2 10)" "one	flash0
two	flash1"
check pool_destroy
code 1 "present or missing: pass another name" kvblk pool create $pool --format --yes --segment-size 8M --name one --name one /dev/flash0 /dev/flash1
code 2 "3 names for 2 devices" kvblk pool create $pool --name a --name b --name c /dev/flash0 /dev/flash1

echo "-- paths that no terminal, log or scrape takes"
ln -s /dev/flash0 "$tmp/x/we\"ird\\n"
ln -s /dev/flash0 "$tmp/x/new"$'\n'"line"
ln -s /dev/flash0 "$tmp/x/latin"$'\xe9'
for path in "$tmp/x/new"$'\n'"line" "$tmp/x/latin"$'\xe9'; do
	code 1 "printable ASCII" kvblk pool create $pool --format --yes --segment-size 8M "$path"
done
pool_format "$tmp/x/we\"ird\\n"
expect "a member whose path has a quote" "$(members 2)" flash0
kvblk member list $pool -o json | python3 -c 'import json, sys; [m] = json.load(sys.stdin); assert m["path"].endswith("we\"ird\\n"), m' ||
	fail "JSON: $(kvblk member list $pool -o json)"
no_series_twice
grep -q '^kvblk_member_info{.*/we\\"ird\\\\n",' "$tmp/answer" || fail "metrics: $(grep ^kvblk_member_info "$tmp/answer")"
check pool_destroy

echo "-- events, the log and the kernel's log name the same segment; errors that were looked at are cleared"
: >"$tmp/events"
dm_flakey flaky /dev/flash1
pool_format /dev/flash0 /dev/mapper/flaky
bear_errors
blocks put 1 100 50000
dm_flakey_set flaky /dev/flash1 0 1 error_reads
blocks get 1 100 50000
wait_for 10 event read-error
segment=$(sed -n 's/.* read-error .*, member flaky: reads failed, the last in segment \([0-9]*\); its device: .*/\1/p' "$tmp/events" | head -n 1)
[ -n "$segment" ] || fail "no segment is told: $(cat "$tmp/events")"
dmesg | grep -qE "member flaky: [0-9]+ read errors?, the last in segment $segment\$" || fail "the kernel's log names another segment than $segment: $(dmesg | grep 'read error')"
wait_for 10 logged "warning: read-error: pool t, member flaky: reads failed, the last in segment $segment; .*; its device: "
dm_flakey_set flaky /dev/flash1 1 0
status_is 0 note "2 of 2"
grep -q "failed reads\?, each a miss, since the pool was assembled; .*; then: kvblk pool clear $pool\$" "$tmp/out" || fail "status: $(cat "$tmp/out")"
check kvblk pool clear $pool
status_is 0 ok "2 of 2"
more_than 0 read_errors
dm_flakey_set flaky /dev/flash1 0 1 error_reads
blocks get 1 100 50000
dm_flakey_set flaky /dev/flash1 1 0
status_is 0 note "2 of 2"
grep -q "each a miss, since the pool was cleared; " "$tmp/out" || fail "status: $(cat "$tmp/out")"
check pool_destroy

echo "-- a full pool is told once, as what it is; puts without room are a warning"
: >"$tmp/events"
dm_create slow /dev/flash2 "0 %s linear /dev/flash2 0"
pool_format /dev/mapper/slow
# last, so that it runs first: the pool cannot be destroyed while its device is suspended
defer 'dmsetup resume slow'
put $sysfs/admit_permille 1000
for round in 1 2 3; do
	blocks put ${round}000 2000 50000
	sleep 1.1
done
wait_for 10 logged "kvblkd: low-space: pool $pool, member slow: fell below its low watermark"
expect "times that it is told" "$(grep -c ' low-space ' "$tmp/events")" 1
! logged "warning: low-space" || fail "a normal state is a warning"
put $sysfs/suspect_ms 500
check dmsetup suspend --noflush --nolockfs slow
# the last ones put: reclaim may have dropped others
guest_blocks $node get 4980 20 50000 >"$tmp/gets" &
wait_for 10 event member-suspect
blocks put 9000 1 50000
expect "puts without room" "$full" 1
wait_for 10 event no-space
wait_for 10 logged "warning: no-space: pool $pool: puts that found no room: 1; "
check dmsetup resume slow
wait $! || true
