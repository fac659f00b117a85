#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: nodes=e,a,b kernels=debug check=debug mem=768M timeout=240
# A pool in a pod reserves its members. Another node that preempts one fences it: its blocks are hits, nothing is written
# to it, puts use the other member, one line in the log names the key, or the node that took the pool over. A reservation
# that the target forgets is taken again. Devices without reservations are refused unless forced.
. "${0%/*}/pod.bash"

# key NODE, id NODE: print the key of a node's reservations, and its id, which begins with the same digits
key() {
	printf '0x%08x11112222' "'$1"
}

id() {
	printf '%08x-1111-2222-4444-555555555555' "'$1"
}

prepare() {
	mkdir -p /var/lib/kvblk
	id "$KVBLK_NODE" >/var/lib/kvblk/node
	kv_load
	attach 3
}

# holder N: print type and key of the reservation of a namespace, "0 -" if there is none; rcsts is 1 for the holder
holder() {
	nvme resv-report "$(namespace "$1")" --eds -o json | python3 -c '
import json, sys
r = json.load(sys.stdin)
print(r["rtype"], *["0x%016x" % c["rkey"] for c in r.get("regctlext", r.get("regctl_ext", r.get("regctl", []))) if c["rcsts"]] or ["-"])'
}

held() {
	[ "$(holder "$1")" = "1 $(key "$2")" ]
}

create() {
	pool_format --pod rack "$(namespace 1)" "$(namespace 2)"
}

# member N: print the name of the member on a namespace
member() {
	basename "$(namespace "$1")"
}

# said PATTERN: print how often the kernel's log has it; said_once PATTERN
said() { dmesg | grep -cE "$1" || true; }
said_once() { [ "$(said "$1")" = 1 ]; }

is() { member_is "$(member "$1")" "$2"; }

gets() {
	blocks get 1 100 50000
	expect "hits" "$hits" 100
}

puts() {
	blocks put "$1" 50 50000
	expect "puts" "$stored" 50
}

# sectors N: print the sectors written to a namespace
sectors() {
	awk '{ print $7 }' "/sys/block/$(member "$1")/stat"
}

# preempt N NODE: take the reservation of a namespace away from a node, by hand
preempt() {
	nvme resv-register "$(namespace "$1")" --nrkey="$(key "$KVBLK_NODE")" --rrega=0
	nvme resv-acquire "$(namespace "$1")" --crkey="$(key "$KVBLK_NODE")" --prkey="$(key "$2")" --rtype=1 --racqa=1
}

# opened: each member has segments ready for puts
opened() {
	kvblk member list -o json "$pool" | python3 -c 'import json, sys; sys.exit(not all(m["ready_segments"] for m in json.load(sys.stdin)))'
}

# quiet N: a namespace gets its change page each second, and nothing else
quiet() {
	local before
	before=$(sectors "$1")
	sleep 3
	(($(sectors "$1") - before <= 8 * 4))
}

enable() {
	put "$configfs/nvmet/subsystems/pod/namespaces/$1/enable" "$2"
}

# namespaces 1 and 2 are a's, 3 has no reservations
enclosure 3 120
enable 3 0
put "$configfs/nvmet/subsystems/pod/namespaces/3/resv_enable" 0
enable 3 1
for n in a b; do
	at $n prepare
done

echo "-- a device without reservations"
refused() { code 1 "has no reservations to fence other writers" kvblk pool create "$pool" --pod rack --segment-size 8M "$(namespace 3)"; }
forced() {
	pool_create --pod rack --force --segment-size 8M "$(namespace 3)"
	puts 1
	check pool_destroy
	check kvblk member wipe --yes "$(namespace 3)"
}
at a refused
at a forced

echo "-- the first write needs the reservation"
taken() {
	code 1 "is reserved by another node with key $(key b)" kvblk pool create "$pool" --pod rack --segment-size 8M "$(namespace 1)" "$(namespace 2)"
	code 1 "is reserved by another node with key $(key b)" kvblk pool create "$pool" --pod rack --force --segment-size 8M "$(namespace 1)" "$(namespace 2)"
}
reserve() {
	nvme resv-register "$(namespace 2)" --nrkey="$(key b)" --rrega=0
	nvme resv-acquire "$(namespace 2)" --crkey="$(key b)" --rtype=1 --racqa=0
}
release() {
	nvme resv-release "$(namespace 2)" --crkey="$(key b)" --rtype=1 --rrela=0
}
first() {
	dd if="$(namespace 1)" bs=64K count=1 iflag=direct status=none | tr -d '\0' | wc -c
}
at b reserve
at a taken
expect "bytes on the device that was free" "$(at a first)" 0
at b release

at a create
at a held 1 a
at a held 2 a
at b held 1 a
at a blocks put 1 100 50000
at a gets

echo "-- pools that come and go"
again() {
	check pool_destroy
	[[ $(holder 1) == 0* ]] || fail "after destroy: $(holder 1)"
	pool_import
	held 1 a && held 2 a
	gets
}
at a again
at a again

echo "-- the target forgets the reservation: it is taken again, and only change pages are written meanwhile"
# segments are opened when the grace of the import ends
at a wait_for 60 opened
at a wait_for 30 quiet 2
began=$SECONDS
before=$(at a sectors 2)
# stopped, or else they see the namespace vanish
ask stop a
ask stop b
enable 2 0
enable 2 1
ask go a
ask go b
expect "reservation of a namespace that was disabled" "$(at b holder 2)" "0 -"
at a wait_for 15 held 2 a
wait_line() { wait_for 5 said_once "member $(member 2): reserved again"; }
at a wait_line
written=$(($(at a sectors 2) - before))
[ $written -le $((8 * (SECONDS - began + 2))) ] || fail "$written sectors written within $((SECONDS - began)) s"
at a is 2 up
at a puts 1000
at a gets

echo "-- b preempts: the member is fenced, its blocks are served, nothing is written"
at b preempt 2 a
fenced() {
	local before
	# puts alternate between the members
	blocks put 2000 20 50000
	expect "puts" "$stored" 20
	wait_for 15 is 2 fenced
	is 1 up
	expect "member's failing" "$(cat "$sysfs/members/$(member 2)/failing")" 3
	expect "pool's state" "$(cat "$sysfs/state")" degraded
	code 4 "is fenced, its reservation is lost: its blocks are served" kvblk status
	gets
	before=$(sectors 2)
	puts 3000
	# blocks on the fenced member stay there, and may return
	blocks delete 1000 50 1
	[ "$errors" -gt 10 ] && [ "$deleted" -gt 10 ] || fail "$deleted deletes, $errors errors"
	sleep 12
	expect "sectors written to a fenced member" "$(sectors 2)" "$before"
	gets
	expect "puts that failed" "$(counter put_errors)" 0
	expect "write errors" "$(counter write_errors)" 0
	said_once "member $(member 2): fenced by key $(key b); "
	expect "lines about the member" "$(said "kvblk $pool: member $(member 2): (fenced|write|.*I/O errors)")" 1
}
at a fenced

echo "-- pool destroy succeeds, and says so"
down() {
	code 4 "pool down as after a crash: $(member 2) is fenced by another node" kvblk pool destroy "$pool"
	[[ $(holder 1) == 0* ]] || fail "after destroy: $(holder 1)"
}
at a down
at b held 2 b
import_refused() { code 1 "is reserved by another node with key $(key b)" kvblk pool import "$pool"; }
at a import_refused
at b release
returns() {
	pool_import
	held 1 a && held 2 a
	gets
}
at a returns

echo "-- b adopts the pool while it is up on a: all members are fenced there"
adopt() {
	check kvblk pool adopt rack a --yes --name pb
	wait_for 30 pool_is_up
}
# stopped, because a pool whose owner writes is not adopted
ask stop a
at b adopt
ask go a
at b gets
at b puts 5000
adopted() {
	wait_for 15 is 1 fenced
	wait_for 15 is 2 fenced
	wait_for 2 said_once "member $(member 1): fenced by key $(key b) of node b; "
	wait_for 2 said_once "member $(member 2): fenced by key $(key b) of node b; "
	gets
	blocks put 6000 10 50000
	expect "puts without a member" "$stored" 0
	code 4 "is fenced by another node" kvblk pool destroy "$pool"
}
at a adopted
both() {
	held 1 b && held 2 b
	blocks get 5000 50 50000
	expect "hits" "$hits" 50
	check pool_destroy
}
at b both
back() {
	check kvblk pool adopt rack b --yes --name pa
	wait_for 30 pool_is_up
	held 1 a && held 2 a
	gets
	blocks get 5000 50 50000
	expect "hits of what b has put" "$hits" 50
	check pool_destroy
}
at a back
