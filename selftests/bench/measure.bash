# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# Readings of a benchmark in a guest. Sourced by benchmarks, hence not executable.
# now: print monotonic milliseconds
now() {
	awk '{ printf "%d\n", $1 * 1000 }' /proc/uptime
}

# spent: print the jiffies that the machine has worked
spent() {
	awk '$1 == "cpu" { print $2 + $3 + $4 + $7 + $8 }' /proc/stat
}

# mem_free: print the KiB that are free
mem_free() {
	awk '$1 == "MemFree:" { print $2 }' /proc/meminfo
}

# restored POOL: print the blocks that came back; the member's number follows in the same output
restored() {
	[[ $(kvblk stat "$1" -o json) =~ \"restored\":\ ([0-9]+) ]] && echo "${BASH_REMATCH[1]}"
}
