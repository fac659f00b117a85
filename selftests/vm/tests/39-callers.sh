#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=120 takes=30 leaks=1 kernels=newest,6.12,debug,debug-smp
# A caller that does not continue, stopped or in a page fault of its own, does not hold up a member or a pool. It can
# still release its resources afterwards.
. "${0%/*}/pool.bash"

kv_load
flash 2 80

# hold WHAT: start a caller that stalls; sets $holder
hold() {
	coproc holding { exec guest_pager_stall $node hold "$1"; }
	# shellcheck disable=SC2154 # by coproc
	holder=$holding_PID
	defer "kill -KILL $holder 2>/dev/null || true"
	read -r -t $((60 * KVBLK_SLOW)) _ <&"${holding[0]}" || fail "nobody is stalled"
}

# go_on: let the caller continue, and check its results
go_on() {
	kill -USR1 "$holder"
	wait "$holder" || fail "what the caller got was wrong"
}

for what in lookup results put landed things; do
	echo "-- stalled: $what"
	pool_format /dev/flash0 /dev/flash1
	hold $what
	check timeout $((60 * KVBLK_SLOW)) kvblk member remove --yes $pool flash0
	wait_for 60 member_is flash0 gone
	refuse command kvblk pool destroy $pool
	check timeout $((60 * KVBLK_SLOW)) kvblk pool destroy --force $pool
	wait_for 60 pool_is_gone $pool
	pool_format /dev/flash0 /dev/flash1
	blocks put 1 20 50000
	expect "blocks of another pool of this name" "$stored" 20
	go_on
	blocks get 1 20 50000
	expect "blocks found then" "$hits" 20
	check pool_destroy
done
