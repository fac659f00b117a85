# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# Commands for carry in addition to pool.bash: faults and changes of the pool "t" of serve.guest. Sourced, hence not
# executable.
. "${BASH_SOURCE[0]%/*}/../vm/tests/pool.bash"

drives=(flash0 flash1 flash2 flash3)
# the most that a list of bad blocks can cover
drive_mb=128

# drives_fail, drives_heal: make all transfers of all drives fail; repair them and wait until the pool is up
# shellcheck disable=SC2154 # configfs is lib.sh's
drives_fail() {
	local drive
	for drive in "${drives[@]}"; do put "$configfs/nullb/$drive/badblocks" "+0-$((drive_mb * 2048 - 1))"; done
}

drives_heal() {
	local drive
	for drive in "${drives[@]}"; do put "$configfs/nullb/$drive/badblocks" "-0-$((drive_mb * 2048 - 1))"; done
	# the watchdog checks each second for errors of the previous one: a member that is up may still become failing
	sleep 3
	wait_for 60 pool_is_up
}

# drives_go, drives_come: remove the targets; restore them and wait until the pool is up
drives_go() {
	local n
	for n in "${!drives[@]}"; do nvmet_kill "nqn.2026-11.org.kvblk:$n"; done
}

drives_come() {
	local n
	for n in "${!drives[@]}"; do nvmet_revive "nqn.2026-11.org.kvblk:$n"; done
	wait_for 120 pool_is_up
}

# evict: replace all blocks that are not leased, even recently requested ones; one drive's worth at a time, because each
# call has a time limit
evict() {
	local first i
	first=$(cat /tmp/evicted 2>/dev/null || echo 1000000)
	echo $((first + 2000)) >/tmp/evicted
	put "$sysfs/reinsert_permille" 0
	for ((i = 0; i < 2 * ${#drives[@]}; i++)); do blocks put $((first + i * drive_mb)) "$drive_mb" 1048576; done
	put "$sysfs/reinsert_permille" 1000
}
