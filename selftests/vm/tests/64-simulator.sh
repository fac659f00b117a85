#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=900 takes=150 mem=2G kernels=debug check=newest
# "kvblk replay --simulate" predicts a pool: the same traffic on a pool, and simulated with the same number of segments
# and batch size, has the same hits and writes within 2 %.
# slow: 66,000 blocks, three times, no faster than memory makes room.
. "${0%/*}/pool.bash"

KiB=1024
# blocks in a segment of 8 MiB, with headers of 4 KiB and a summary
PER_SEGMENT=62
traffic=(--synthetic=chat --requests 3000)

# field NAME FILE: print a field of a replay's JSON
field() {
	python3 -c 'import json, sys; print(json.load(open(sys.argv[2]))[sys.argv[1]])' "$1" "$2"
}

# alike WHAT POOL SIMULATED
alike() {
	echo "$1: $2 on the pool, $3 simulated"
	[ $((50 * ($2 > $3 ? $2 - $3 : $3 - $2))) -le "$3" ] || fail "$1: $2 on the pool, $3 simulated"
}

# compare COPIES OPTION...: replay on the prepared pool and simulate with these options; more than COPIES blocks must be
# copied
compare() {
	local copies=$1 segments distinct capacity written
	shift
	segments=$(counter segments)
	# paced so that DRAM always has space: blocks written to flash at once are not simulated
	check kvblk replay --pool $pool "${traffic[@]}" --speed $((30 / KVBLK_SLOW)) --block-size 128K --buffer 4M --quiet -o json >"$tmp/pool.json"
	check kvblk replay --simulate "${traffic[@]}" -o json >"$tmp/simulated.json"
	distinct=$(field distinct_blocks "$tmp/simulated.json")
	capacity=$(python3 -c 'import sys; a, b, c = map(int, sys.argv[1:]); print((a * b + .5) / c)' "$segments" $PER_SEGMENT "$distinct")
	check kvblk replay --simulate "${traffic[@]}" --segments "$segments" --capacity "$capacity" --batch 32 "$@" -o json >"$tmp/simulated.json"
	expect "blocks simulated" "$(field capacity_blocks "$tmp/simulated.json")" $((segments * PER_SEGMENT))
	written=$(($(counter puts) - $(counter dram_puts) + $(counter dram_writes) + $(counter reinserts)))
	alike hits "$(field hits "$tmp/pool.json")" "$(field hits "$tmp/simulated.json")"
	alike "blocks written" $written "$(field writes "$tmp/simulated.json")"
	more_than "$copies" reinserts
	no_failures
	check pool_destroy
	wait_for 30 pool_is_gone $pool
}

kv_load
# enough segments that two more or less free ones do not matter
flash 1 1050

echo "-- flash"
pool_format /dev/flash0
# as few free segments as the simulation, which has no reserve for bursts
put $sysfs/low_permille 1
put $sysfs/high_permille 2
compare 1000

echo "-- memory in front of it"
pool_format /dev/flash0
put $sysfs/low_permille 1
put $sysfs/high_permille 2
put $sysfs/dram_bytes $((1734 * 128 * KiB))
compare 1000 --dram 0.05

echo "-- of which only what was offered before goes to flash"
# the memory of offers is as large as the index
pool_format --index-slots 12288 /dev/flash0
put $sysfs/low_permille 1
put $sysfs/high_permille 2
put $sysfs/dram_bytes $((1734 * 128 * KiB))
put $sysfs/first_permille 0
compare 0 --dram 0.05 --first-permille 0
