# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# What carry's commands are besides pool.bash: what happens to the pool "t" of serve.guest. Not a program: it is not executable.
. "${BASH_SOURCE[0]%/*}/../vm/tests/pool.bash"

drives=(flash0 flash1 flash2 flash3)
# the most that a list of bad blocks takes
drive_mb=128

# drives_fail, drives_heal: each transfer of each drive ends with an error; the pool is as before when they are healed
# shellcheck disable=SC2154 # configfs is lib.sh's
drives_fail() {
	local drive
	for drive in "${drives[@]}"; do put "$configfs/nullb/$drive/badblocks" "+0-$((drive_mb * 2048 - 1))"; done
}

drives_heal() {
	local drive
	for drive in "${drives[@]}"; do put "$configfs/nullb/$drive/badblocks" "-0-$((drive_mb * 2048 - 1))"; done
	# each second the watchdog looks at what failed in the one before: a drive that is up may be found to fail yet
	sleep 3
	wait_for 60 pool_is_up
}

# drives_go, drives_come: the targets are away, and are back
drives_go() {
	local n
	for n in "${!drives[@]}"; do nvmet_kill "nqn.2026-11.org.kvblk:$n"; done
}

drives_come() {
	local n
	for n in "${!drives[@]}"; do nvmet_revive "nqn.2026-11.org.kvblk:$n"; done
	wait_for 120 pool_is_up
}

# evict: other blocks take the place of all that has no lease, what was asked for lately too; a drive's worth at a time, for each call has
# a limit
evict() {
	local first i
	first=$(cat /tmp/evicted 2>/dev/null || echo 1000000)
	echo $((first + 2000)) >/tmp/evicted
	put "$sysfs/reinsert_permille" 0
	for ((i = 0; i < 2 * ${#drives[@]}; i++)); do blocks put $((first + i * drive_mb)) "$drive_mb" 1048576; done
	put "$sysfs/reinsert_permille" 1000
}
