#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=900 takes=150 mem=3G kernels=newest,debug check=debug waits=1
# One of several NVMe/TCP targets is killed, flaps, fails every second I/O, is silent, read-only, loses its namespace or its controller,
# under load: others get no error and go on, no more blocks are misses than it had, the log stays short; then it is well again. One
# that goes with stale blocks, and comes back, has all its other blocks.
# slow: nine ways to fail, each with the time that a host takes to notice; at depth all, the same with eight members.
. "${0%/*}/pool.bash"

fast="--reconnect-delay=1 --ctrl-loss-tmo=600 --fast_io_fail_tmo=3"

# target_up N: the target mN over its devices, connected; its namespace is ${disk[N]}
target_up() {
	CONNECT_ARGS=$fast nvmet_tcp_up "m$1" "/dev/mapper/back$1"
	disk[$1]=${namespaces[0]}
}

# second_mib TARGET: dm's target for every second MiB of the first member: "error", or the device again
second_mib() { dm_set half /dev/flash0 "0 %s $1"; }

write_protect() {
	check nvme set-feature "${disk[0]}" -n 1 -f 0x84 --value="$1" >/dev/null
}

# state_not_up: the first member's
state_not_up() {
	! member_is "$name" up
}

# comes_back: the member lost its device; added anew, whatever the device is called, it has its blocks
comes_back() {
	wait_for 30 member_is "$name" dead
	"$@"
	check kvblk member add $pool "${disk[0]}"
	expect "members" "$(member_states | wc -l)" "$members"
}

reconnect() {
	local port link
	for link in "$configfs"/nvmet/ports/*/subsystems/m0; do
		port=${link%/subsystems/m0}
	done
	# shellcheck disable=SC2086 # several words
	check nvme connect --keep-alive-tmo=600 -t tcp -a 127.0.0.1 -s "$(cat "$port/addr_trsvcid")" -n m0 $fast >/dev/null
	wait_for 10 nvmet_ready m0 1
	mapfile -t namespaces < <(nvmet_namespaces m0)
	disk[0]=${namespaces[0]}
}

enable() {
	put "$configfs/nvmet/subsystems/m0/namespaces/1/enable" "$1"
	[ "$1" = 0 ] || wait_for 30 nvmet_rescanned m0
	mapfile -t namespaces < <(nvmet_namespaces m0)
	[ "$1" = 0 ] || disk[0]=${namespaces[0]}
}

# fail_SCENARIO: it does; heal_SCENARIO: no longer
fail_killed() { check nvmet_kill m0; }
heal_killed() { check nvmet_revive m0; }
fail_flapping() {
	local i
	for ((i = 0; i < flaps; i++)); do
		check nvmet_kill m0
		sleep 2
		check nvmet_revive m0
		sleep 2
		others_go_on
	done
	check nvmet_kill m0
}
heal_flapping() { check nvmet_revive m0; }
fail_erring() { second_mib error; }
heal_erring() { second_mib "linear /dev/flash0 0"; }
fail_silent() { check dmsetup suspend --noflush --nolockfs back0; }
heal_silent() { check dmsetup resume back0; }
fail_protected() { write_protect 1; }
heal_protected() { write_protect 0; }
fail_disabled() { enable 0; }
heal_disabled() { comes_back enable 1; }
fail_deleted() { put "$(nvmet_controller m0)/delete_controller" 1; }
heal_deleted() { comes_back reconnect; }
# the driver would keep I/O until the target is back
fail_waiting() { put "$(nvmet_controller m0)/fast_io_fail_tmo" -1; check nvmet_kill m0; }
heal_waiting() { check nvmet_revive m0; put "$(nvmet_controller m0)/fast_io_fail_tmo" 3; }

# others_go_on: a caller that comes now gets no error: what it puts is there
others_go_on() {
	blocks put $next 20 50000
	expect "puts" "$stored $errors" "20 0"
	blocks get $next 20 50000
	expect "gets of them" "$hits" 20
	next=$((next + 20))
}

# scenario NAME
scenario() {
	local before=$SECONDS lines
	echo "-- $members members, one is $1"
	lines=$(dmesg | grep -c "kvblk $pool: member")
	first=$next
	blocks put $first 400 4000
	expect "puts" "$stored" 400
	next=$((next + 400))
	put $sysfs/suspect_ms 1500
	stress_start -e -n -t 2 -k 400 -l 50000
	"fail_$1"
	wait_for 30 state_not_up
	for _ in 1 2 3; do others_go_on; done
	blocks get $first 400 4000
	expect "gets and misses" $((hits + misses)) 400
	# not more than 1.3 times its share
	[ $((misses * members * 10)) -le $((400 * 13)) ] || fail "$misses of 400 are misses, with one of $members members"
	"heal_$1"
	wait_for 120 pool_is_up
	put $sysfs/suspect_ms 60000
	blocks get $first 400 4000
	expect "gets when it is well" "$hits" 400
	stress_stop
	lines=$(($(dmesg | grep -c "kvblk $pool: member") - lines))
	[ $lines -le $((20 * (1 + (SECONDS - before) / 60))) ] || fail "$lines lines in the log in $((SECONDS - before)) s"
	expect "damaged blocks" "$(counter checksum_failures)" 0
	expect "puts that failed" "$(counter put_errors)" 0
}

# stale_places: blocks of a member that fails are put anew, then it goes. It can't be told that what it has of them is stale, so that
# is remembered, and no more: each other block is there when it is back, at the same place of other segments too.
stale_places() {
	local old said
	echo "-- $members members, one goes with stale blocks"
	blocks put 1000000 $((200 * members)) 50000
	expect "puts" "$stored" $((200 * members))
	put $sysfs/suspect_ms 1500
	check nvmet_kill m0
	blocks get 1000000 40 50000
	wait_for 30 state_not_up
	blocks put 1000000 $((75 * members)) 50000 77
	[ "$stored" -gt 50 ] && [ "$errors" = 0 ] || fail "$stored of 75 blocks are put anew, $errors errors"
	old=$((75 * members - stored))
	put "$(nvmet_controller m0)/delete_controller" 1
	comes_back revive_and_reconnect
	wait_for 120 pool_is_up
	put $sysfs/suspect_ms 60000
	blocks get 1000000 $((200 * members)) 50000
	expect "gets when it is back" "$hits" $((200 * members))
	# a hit of another tag is a bad one
	said=$(guest_blocks $node get 1000000 $((75 * members)) 50000 77 2>/dev/null) || true
	[[ $said == *" bad=$old" ]] || fail "stale blocks are back: $said, should be bad=$old"
}

revive_and_reconnect() {
	check nvmet_revive m0
	reconnect
}

# all_scenarios MEMBERS
all_scenarios() {
	local i
	members=$1 next=1 disk=()
	for ((i = 0; i < members; i++)); do
		[ $i = 0 ] || dm_create "back$i" "/dev/flash$i" "0 %s linear /dev/flash$i 0"
		target_up "$i"
	done
	# which it keeps, whatever its device is called later
	name=${disk[0]#/dev/}
	pool_format "${disk[@]}"
	stale_places
	for s in killed waiting flapping erring silent protected disabled deleted; do
		scenario $s
	done
	check pool_destroy
	for ((i = 0; i < members; i++)); do
		nvmet_down "m$i"
		[ $i = 0 ] || dm_remove "back$i"
	done
}

kv_load
flash 8 500
modprobe -q dm_mod || true
# the first target's device: every second MiB of it is another one's
nullb_create other 500
dm_create half /dev/flash0 "0 %s linear /dev/flash0 0"
dm_create back0 /dev/flash0 "0 $(($(blockdev --getsz /dev/flash0) * 2)) striped 2 2048 /dev/other 0 /dev/mapper/half 0"
flaps=2
all_scenarios 2
[ "$KVBLK_DEPTH" != all ] || { flaps=15; all_scenarios 8; }
