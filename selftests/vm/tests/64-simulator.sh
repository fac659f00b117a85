#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=1200 takes=230 mem=2G kernels=debug check=newest
# "kvblk replay --simulate" predicts a pool: the same traffic on a pool, and simulated with the same number of segments
# and batch size, has the same hits and writes within 2 %. The last traffic is of another kind.
# slow: 66,000 blocks three times, and 60,000 others, no faster than memory makes room.
. "${0%/*}/pool.bash"

KiB=1024
# blocks in a segment of 8 MiB, with headers of 4 KiB and a summary
PER_SEGMENT=62
traffic=(--synthetic=chat --requests 3000)

# field NAME FILE...: print a field of a replay's JSON, the mean of several
field() {
	python3 -c 'import json, sys; all = [json.load(open(f))[sys.argv[1]] for f in sys.argv[2:]]; print(sum(all) // len(all))' "$@"
}

# alike WHAT POOL SIMULATED
alike() {
	echo "$1: $2 on the pool, $3 simulated"
	[ $((50 * ($2 > $3 ? $2 - $3 : $3 - $2))) -le "$3" ] || fail "$1: $2 on the pool, $3 simulated"
}

# prepare OPTION...: create the pool of the next comparison
prepare() {
	pool_format "$@" /dev/flash0
	# as few free segments as the simulation, which has no reserve for bursts
	put $sysfs/low_permille 1
	put $sysfs/high_permille 2
}

# compare COPIES OPTION...: replay on the prepared pool and simulate with these options; more than COPIES blocks must be
# copied
compare() {
	local copies=$1 segments distinct capacity written past salt
	shift
	segments=$(counter segments)
	# paced so that DRAM always has space: blocks written to flash at once are not simulated
	check kvblk replay --pool $pool "${traffic[@]}" --speed $((30 / KVBLK_SLOW)) --block-size 128K --buffer 4M --quiet -o json >"$tmp/pool.json"
	check kvblk replay --simulate "${traffic[@]}" -o json >"$tmp/simulated.json"
	distinct=$(field distinct_blocks "$tmp/simulated.json")
	capacity=$(python3 -c 'import sys; a, b, c = map(int, sys.argv[1:]); print((a * b + .5) / c)' "$segments" $PER_SEGMENT "$distinct")
	# the ids of the pool's blocks are those of no salt
	for salt in 0 1 2 3; do
		check kvblk replay --simulate "${traffic[@]}" --segments "$segments" --capacity "$capacity" --batch 32 --salt $salt "$@" -o json >"$tmp/simulated$salt.json"
	done
	expect "blocks simulated" "$(field capacity_blocks "$tmp/simulated0.json")" $((segments * PER_SEGMENT))
	expect "blocks of memory" "$(field dram_blocks "$tmp/simulated0.json")" $(($(cat $sysfs/dram_bytes) / 128 / KiB))
	# a put that finds no space in memory goes to flash at once; in the simulation each finds space
	if [ "$(cat $sysfs/dram_bytes)" != 0 ]; then
		past=$(($(counter puts) - $(counter dram_puts)))
		[ $((50 * past)) -le "$(counter puts)" ] || fail "memory had no space for $past of $(counter puts) puts"
	fi
	written=$(($(counter puts) - $(counter dram_puts) + $(counter dram_writes) + $(counter reinserts)))
	alike hits "$(field hits "$tmp/pool.json")" "$(field hits "$tmp"/simulated[0-3].json)"
	alike "blocks written" $written "$(field writes "$tmp"/simulated[0-3].json)"
	more_than "$copies" reinserts
	no_failures
	check pool_destroy
	wait_for 30 pool_is_gone $pool
}

kv_load
# enough segments that two more or less free ones do not matter
flash 1 1050

echo "-- flash"
prepare
compare 1000

echo "-- memory in front of it"
prepare
put $sysfs/dram_bytes $((1734 * 128 * KiB))
compare 1000 --dram 0.05

echo "-- of which only what was offered before goes to flash"
# the memory of offers is as large as the index
prepare --index-slots 12288
put $sysfs/dram_bytes $((1734 * 128 * KiB))
put $sysfs/first_permille 0
compare 0 --dram 0.05 --first-permille 0

echo "-- questions about documents, with memory"
traffic=(--synthetic=documents --requests 3000)
prepare
put $sysfs/dram_bytes $((1399 * 128 * KiB))
compare 1000 --dram 0.05
