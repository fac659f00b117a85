#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: nodes=e,a,b kernels=debug check=debug mem=768M timeout=600 takes=150 waits=1
# A node of a pod is lost, and another adopts its pool: the blocks are hits there, through the adopted pool and through
# the own pool that follows the members, and puts and deletes work. A node that only hung finds itself fenced when it
# goes on: the node serves blocks, writes nothing, says so once, and gets the pool back when the other one gives it. A
# node that was lost follows its former pool until then.
# slow: three machines, a node's death and boot, and seconds of silence before each adoption.
. "${0%/*}/pod.bash"

# up N N [OPTION...]: create the pool of the node of two namespaces; members are named by them, because a boot names devices
# anew
up() {
	load
	pool_create --pod rack --format --yes --segment-size 8M --name "m$1" --name "m$2" "${@:3}" "$(namespace "$1")" "$(namespace "$2")"
}

# join N N: create the pool of the node in the pod of the first namespace
join() {
	up "$@" --seed-of "$(namespace 1)"
}

# here NODE COMMAND...: run a command on a node, about its own pool: the pools of all nodes have one name
here() {
	at "$1" on kv0 "${@:2}"
}

follow() {
	local n
	for n; do
		check kvblk member follow "$pool" --name "m$n" "$(namespace "$n")"
	done
}

wait_sees() {
	wait_for 30 sees "$@"
}

puts() {
	blocks put "$1" "$2" $len 7
	expect "puts" "$stored" "$2"
}

deletes() {
	blocks delete "$1" "$2" $len
	expect "deletes" "$deleted" "$2"
}

# adopt NODE [ARGUMENT...]: adopt the pool of the node, and wait until it is up
adopt() {
	check kvblk pool adopt rack "$1" --yes "${@:2}"
}

is_up() {
	wait_for 30 pool_is_up
	put "$sysfs/suspect_ms" 60000
}

# said PATTERN: print how often the kernel's log has it; said_once PATTERN
said() { dmesg | grep -cE "$1" || true; }
said_once() { [ "$(said "$1")" = 1 ]; }

# sectors N: print the sectors that the node has written to a namespace
sectors() { awk '{ print $7 }' "/sys/block/$(basename "$(namespace "$1")")/stat"; }

enclosure 6 128
for n in a b; do
	at $n attach 6
done
here a up 1 2
here b join 3 4
here b follow 1 2
here a follow 3 4
here a puts 0 100
here b puts 1000 50
here b wait_sees 0 100
here a wait_sees 1000 50

echo "-- what is refused"
refused() {
	code 1 "node a is up, it writes to $(namespace 1)\|node a is up, it writes to $(namespace 2)" kvblk pool adopt rack a --yes
	code 1 "this would be done" kvblk pool adopt rack a --force
	code 1 "pool kv0 is this node's own" kvblk pool adopt rack b --yes
	code 1 "no member of a pool in pod shelf" kvblk pool adopt shelf a --yes
	code 1 "node c has no pool in pod rack" kvblk pool adopt rack c --yes
	got 0 100 100 100
}
here b refused

echo "-- a is lost, and b adopts its pool"
ask kill a
here b adopt a
adopted() {
	is_up
	got 0 100 100 0
	puts 2000 50
	deletes 10 10
	got 2000 50 50 0
	kvblk pool show kv0-a | grep -q '^pod  *rack,' || fail "the pod: $(kvblk pool show kv0-a)"
}
at b on kv0-a adopted
# the own pool follows the members on, which another pool of this host has now
here b wait_sees 2000 50
here b got 2000 50 50 50
here b got 0 10 10 10
here b got 20 80 80 80
here b got 1000 50 50 0

echo "-- a comes back without its pool, and imports nothing of others"
ask boot a
at a attach 6
here a load
import_refused() { code 1 "of node b, not of this one" kvblk pool import kv0 --force; }
here a import_refused
all() { check kvblk pool import --all && [ -z "$(kvblk pool list -H)" ]; }
here a all

echo "-- meanwhile a follows its former pool"
# owned_by NODE N...: followed members are of this node
owned_by() {
	local n
	for n in "${@:2}"; do
		expect "owner of m$n" "$(kvblk member list "$pool" --foreign -H | awk -F '\t' -v name="m$n" '$2 == name { print $4 }')" "$1"
	done
}
former() {
	join 5 6
	follow 1 2 3 4
	owned_by b 1 2 3 4
	wait_sees 20 80
	got 20 80 80 80
	got 1000 50 50 50
	got 2000 50 50 50
	blocks put 20 10 $len 7
	expect "puts of blocks that are there" "$exists" 10
	puts 7000 20
}
at a on kv1 former
at b on kv0-a puts 2100 20
later() {
	wait_sees 2100 20
	got 2100 20 20 20
	no_failures
	check pool_destroy
	for n in 5 6; do
		check kvblk member wipe --yes "$(namespace $n)"
	done
}
at a on kv1 later

echo "-- b gives it back"
at b check kvblk pool destroy kv0-a
back() {
	adopt b kv0-a --name kv0
	is_up
	got 0 10 10 0
	got 10 10 0 0
	got 20 80 80 0
	got 2000 50 50 0
	puts 3000 50
}
here a back
here a follow 3 4
here a wait_sees 1000 50
here b wait_sees 3000 50
here b got 3000 50 50 50

echo "-- by name, each node imports its own pool"
own() {
	check pool_destroy
	check kvblk pool import "$pool"
	is_up
	got 3000 50 50 0
}
here a own
here a follow 3 4

echo "-- a only hangs, and b adopts its pool"
ask stop a
here b adopt a
at b on kv0-a is_up
at b on kv0-a got 3000 50 50 0
at b on kv0-a puts 4000 20
ask go a
fenced() {
	local n before
	wait_for 60 member_is m1 fenced
	wait_for 60 member_is m2 fenced
	for n in 1 2; do
		# the state changes before the line is written
		wait_for 30 said_once "kvblk kv0: member m$n: fenced by key 0xbbbbbbbbbbbbbbbb of node b; "
	done
	before=$(sectors 1)
	got 3000 50 50 0
	blocks put 5000 10 $len 7
	expect "puts without a member" "$stored" 0
	expect "sectors written to a fenced member" "$(sectors 1)" "$before"
	code 4 "fenced, its reservation is lost" kvblk status
	for n in 1 2; do
		said_once "member m$n: fenced by"
	done
}
here a fenced
at b on kv0-a got 3000 50 50 0
at b on kv0-a got 4000 20 20 0
at b on kv0-a no_failures
here b wait_sees 4000 20

echo "-- a destroys its pool, b gives the other one back, and a adopts that"
down() {
	code 4 "pool down as after a crash" kvblk pool destroy "$pool"
	import_refused
}
here a down
at b check kvblk pool destroy kv0-a
returned() {
	adopt b kv0-a --name kv0
	is_up
	got 3000 50 50 0
	got 4000 20 20 0
	puts 6000 20
}
here a returned
here b wait_sees 6000 20
here b got 6000 20 20 20
here a no_failures
here b no_failures
here b refuse kernel_said 'reservation conflict|write to foreign member'
