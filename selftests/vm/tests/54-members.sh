#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=900 takes=150 mem=3G kernels=newest,debug check=debug waits=1
# One of several NVMe/TCP targets is killed, flaps, fails every second I/O, is silent, read-only, loses its namespace or
# its controller, under load: the other members work without errors, no more blocks miss than it had, the log stays
# short, and it recovers. A member that leaves with stale blocks and returns has all its other blocks.
# slow: nine ways to fail, each with the time that a host takes to notice; at depth all, the same with eight members.
. "${0%/*}/pool.bash"

fast="--reconnect-delay=1 --ctrl-loss-tmo=600 --fast_io_fail_tmo=3"

# target_up N: create the target mN over its devices and connect; sets ${disk[N]} to its namespace
target_up() {
	CONNECT_ARGS=$fast nvmet_tcp_up "m$1" "/dev/mapper/back$1"
	disk[$1]=${namespaces[0]}
}

# second_mib TARGET: set the dm target of every second MiB of the first member: "error", or the device
second_mib() { dm_set half /dev/flash0 "0 %s $1"; }

write_protect() {
	check nvme set-feature "${disk[0]}" -n 1 -f 0x84 --value="$1" >/dev/null
}

state_not_up() {
	! member_is "$name" up
}

# comes_back COMMAND...: the member lost its device; added again, under any device name, it has its blocks
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

# fail_SCENARIO: break the target; heal_SCENARIO: repair it
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
# with -1 the driver holds I/O until the target is back
fail_waiting() { put "$(nvmet_controller m0)/fast_io_fail_tmo" -1; check nvmet_kill m0; }
heal_waiting() { check nvmet_revive m0; put "$(nvmet_controller m0)/fast_io_fail_tmo" 3; }

# others_go_on: new callers get no error, and their puts can be read
others_go_on() {
	blocks put $next 20 50000
	expect "puts" "$stored $errors" "20 0"
	blocks get $next 20 50000
	expect "gets of them" "$hits" 20
	next=$((next + 20))
}

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
	# at most 1.3 times the member's share
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

# stale_places: put a failing member's blocks again, then remove the member. Its records cannot be invalidated, so the
# pool remembers exactly these as stale: every other block returns with the member, also those at the same place of
# other segments.
stale_places() {
	local old said
	echo "-- $members members, one goes with stale blocks"
	blocks put 1000000 $((200 * members)) 50000
	expect "puts" "$stored" $((200 * members))
	put $sysfs/suspect_ms 1500
	# the few reads that fail after fast_io_fail_tmo make the member failing: else it would be up again by the puts
	put $sysfs/failing_run 4
	check nvmet_kill m0
	blocks get 1000000 40 50000
	wait_for 30 state_not_up
	blocks put 1000000 $((75 * members)) 50000 77
	[ "$stored" -gt 50 ] && [ "$errors" = 0 ] || fail "$stored of 75 blocks are put anew, $errors errors"
	old=$((75 * members - stored))
	put "$(nvmet_controller m0)/delete_controller" 1
	put $sysfs/failing_run 32
	comes_back revive_and_reconnect
	wait_for 120 pool_is_up
	put $sysfs/suspect_ms 60000
	blocks get 1000000 $((200 * members)) 50000
	expect "gets when it is back" "$hits" $((200 * members))
	# a hit with another tag counts as bad
	said=$(guest_blocks $node get 1000000 $((75 * members)) 50000 77 2>/dev/null) || true
	[[ $said == *" bad=$old" ]] || fail "stale blocks are back: $said, should be bad=$old"
}

revive_and_reconnect() {
	check nvmet_revive m0
	reconnect
}

all_scenarios() {
	local i
	members=$1 next=1 disk=()
	for ((i = 0; i < members; i++)); do
		[ $i = 0 ] || dm_create "back$i" "/dev/flash$i" "0 %s linear /dev/flash$i 0"
		target_up "$i"
	done
	# the name stays, whatever the device is called later
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
# the first target's device: every second MiB is on another device
nullb_create other 500
dm_create half /dev/flash0 "0 %s linear /dev/flash0 0"
dm_create back0 /dev/flash0 "0 $(($(blockdev --getsz /dev/flash0) * 2)) striped 2 2048 /dev/other 0 /dev/mapper/half 0"
flaps=2
all_scenarios 2
[ "$KVBLK_DEPTH" != all ] || { flaps=15; all_scenarios 8; }
