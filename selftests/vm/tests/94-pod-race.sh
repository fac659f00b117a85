#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: nodes=e,a,b kernels=debug check=debug mem=768M timeout=1500 takes=95 waits=1
# A reader that is slow at one step of a get races with an owner that reuses each segment as soon as the grace allows:
# where a record begins or ends, before the table page that proves the read, or everywhere. It gets no wrong byte, with
# checksums and without. The delays are a device mapper's over real members. In make check-all all delays are tried, and
# for longer.
# slow: three machines, and delays longer than the shortest grace, 3 s.
. "${0%/*}/pod.bash"

len=524288
# integrity, and the delays
cases=("header 3200 0 0" "full 0 3200 0") rounds=2
[ "$KVBLK_DEPTH" != all ] || cases+=("full 3200 0 0" "header 0 3200 0" "full 0 0 3200" "header 0 0 3200" "full 3200 3200 3200" "header 3200 3200 3200") rounds=5

# slow META EVEN ODD: set how many ms reads of a's members take on this node: of metadata, of even and odd parts. A record
# lies in two or three parts.
slow() {
	local n device size from delay table part=512
	for n in 1 2; do
		device=$(namespace $n)
		size=$(blockdev --getsz "$device")
		table=
		# metadata ends at 1 MiB, two parts
		for ((from = 0; from < size; from += part)); do
			delay=$(((from / part) % 2 ? $3 : $2))
			((from >= 2048)) || delay=$1
			table+="$from $((size - from < part ? size - from : part)) "
			[ "$delay" = 0 ] && table+="linear $device $from"$'\n' || table+="delay $device $from $delay"$'\n'
		done
		if [ -b "/dev/mapper/slow$n" ]; then
			check dmsetup load "slow$n" <<<"$table"
			check dmsetup resume --nolockfs "slow$n"
		else
			check dmsetup create "slow$n" <<<"$table"
			check kvblk member follow --name "n$n" "$pool" "/dev/mapper/slow$n"
		fi
	done
}

# write_on TIMES LEN: put the same blocks over and over, which are more than the members hold
write_on() {
	local tag nr
	for ((tag = 1; tag <= $1; tag++)); do
		for ((nr = 0; nr < 480; nr += 32)); do
			blocks put $nr 32 "$2" $tag
			sleep 1
		done
	done
}

# race LEN META EVEN ODD: find what is there, then get blocks with these delays, in four processes at once
race() {
	local i gets=()
	slow 0 0 0
	sleep 2
	slow "${@:2}"
	for i in 0 1 2 3; do
		blocks get $((RANDOM % 448)) 32 "$1" >"/tmp/race$i" &
		gets+=($!)
	done
	for i in 0 1 2 3; do
		wait "${gets[i]}" || fail "$(cat "/tmp/race$i")"
		grep -o ' hits=[0-9]*' "/tmp/race$i"
	done
}

pair 112
at b slow 0 0 0
for case in "${cases[@]}"; do
	echo "-- $case"
	for n in a b; do
		at $n set_tunable integrity "${case%% *}"
	done
	at a begin write_on $rounds $len
	until at a has_ended 2>/dev/null; do
		# shellcheck disable=SC2086 # three numbers
		at b race $len ${case#* }
	done | tee "$tmp/hits"
	at a ended
	grep -q 'hits=[1-9]' "$tmp/hits" || fail "no block is served"
done
at a more_than 20 segments_reclaimed
echo "table reads as proofs: $(at b counter foreign_proofs), of them in vain: $(at b counter miss_foreign_late)"
at b more_than 50 foreign_proofs
at b more_than 0 miss_foreign_late
at b no_failures
at b refuse kernel_said 'write to foreign member'
