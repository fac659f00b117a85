#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=300 takes=45 check=debug
# dm-log-writes records puts, deletes and puts again: one run long enough for seals and reclaim, and one through DRAM,
# with durable puts. A new pool then gets the device as it was after flushes, FUA writes and other writes (after each
# flush and FUA write on the debug kernel, and on the newest one in make check-all; else after some): with all writes up
# to there, and with half of those lost that no flush covers. Never a wrong block, one whose delete was acknowledged, or
# one that was never put; all durable ones are there.
# slow: some forty crashes, a pool made, read through and destroyed for each.
. "${0%/*}/pool.bash"

size=66 # eight segments, the minimum
# A prefix of the log lacks the later writes; with -x also a random half of those that no flush covers.
case $KVBLK_KERNEL/$KVBLK_DEPTH in
debug/*) flash=("-e 30" "-e 100000 -h 14 -x 1") memory=("-e 100000 -h 14 -x 3") ;;
newest/all) flash=("-e 30" "-e 100000 -h 14 -x 1") memory=("-e 100000 -h 20 -x 3") ;;
*) flash=("-e 300 -h 14") memory=("-e 100000 -h 14 -x 2") ;;
esac
kv_load

begin() {
	nullb_create data $size
	nullb_create log 1500
	dm_logwrites logged /dev/data /dev/log
	pool_format /dev/mapper/logged
}

# journal [OPTION]...: record a run
journal() {
	check crash_acked run "$@" -m logged $node "$tmp/journal"
}

# check_boundary ENTRY ACKED KIND
check_boundary() {
	kvblk pool import --force $pool /dev/data >"$tmp/create" 2>&1 || {
		# formatting wipes the device and writes the table: a member exists only from its first superblock on
		[ "$1" -le 64 ] && [ $imported = 0 ] && grep -q "no member of this pool" "$tmp/create" && return
		cat "$tmp/create"
		fail "entry $1 ($3, $2 batches acknowledged): the pool cannot be made"
	}
	wait_for 20 grep -qx up "$sysfs/members/logged/state"
	crash_acked check -a "$2" $node "$tmp/journal" >"$tmp/check" 2>&1 || {
		cat "$tmp/check"
		fail "entry $1 ($3, $2 batches acknowledged) leads to wrong blocks"
	}
	trace+=" $1:$(sed -n 's/.*read=\([0-9]*\).*/\1/p' "$tmp/check")"
	kvblk pool destroy $pool || fail "entry $1: the pool cannot be destroyed"
	imported=$((imported + 1))
}

# crashes [OPTIONS]...: run crash_log_replay, once for each argument
crashes() {
	local run imported tried trace entry acked kind
	check pool_destroy
	check dm_remove logged
	for run; do
		imported=0 tried=0 trace=
		# shellcheck disable=SC2086 # several words
		coproc replay { exec crash_log_replay $run /dev/log /dev/data; }
		replay_pid=$!
		exec {from}<&"${replay[0]}" {to}>&"${replay[1]}"
		while read -r entry acked kind <&"$from"; do
			check_boundary "$entry" "$acked" "$kind"
			tried=$((tried + 1))
			echo >&"$to"
		done
		wait $replay_pid || fail "the log cannot be replayed"
		exec {from}<&- {to}>&-
		[ "$imported" -gt 10 ] || fail "only $imported of $tried crashes could be looked at"
		echo "blocks that came back, by entry:$trace"
		echo "$tried crashes ($run) looked at, $imported of them with a pool; the last: $(cat "$tmp/check")"
	done
	nullb_remove data
	nullb_remove log
}

begin
journal -n 9 -k 60 -l 8000000 -w 70000000
more_than 0 segments_reclaimed
more_than 0 segments_sealed
crashes "${flash[@]}"

# nothing is reclaimed: all durable blocks fit
begin
put $sysfs/dram_bytes $((3 << 20))
journal -n 60 -k 300 -l 500000 -d 25
more_than 10 dram_writes
more_than 10 dram_puts
expect "segments reclaimed" "$(counter segments_reclaimed)" 0
crashes "${memory[@]}"
