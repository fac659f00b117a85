#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: nodes=e,a,b kernels=debug check=debug mem=768M timeout=1500 takes=60
# A node puts, deletes and replaces blocks at random and notes in a journal what was acknowledged, while it and a follower
# get them. Own gets find the last acknowledged version or none. So do gets of the follower, but if the owner reclaimed the
# segment before the delete, the version may be found for the rest of the grace. With checksums and without.
# slow: three machines, and all segments are written several times.
. "${0%/*}/pod.bash"

len=49152
seconds=10 times=1
[ "$KVBLK_DEPTH" != all ] || seconds=60 times=12
gets=0 hits=0 foreign=0 stale=0 misses=0 lasting=0 lasting_hits=0

# changes JOURNAL ARGUMENT...: change blocks while this node gets them
changes() {
	local rc=0
	guest_oracle "$node" write "$@" &
	guest_oracle "$node" read "$1" 0 0 || rc=1
	wait $! && return $rc
}

wrong() {
	cat "$tmp/$1"
	fail "wrong results on $1"
}

# judged NODE PERMILLE: of the gets of blocks that the node knew to be present, so many were hits; sets $hits, ...
judged() {
	local line
	line=$(grep '^gets=' "$tmp/$1") || wrong "$1"
	echo "$1: $line"
	eval "$line"
	((lasting > 0 && lasting_hits * 1000 >= lasting * $2)) || fail "$1: $lasting_hits hits of $lasting gets of blocks that it knew to be present"
}

# traffic FIRST COUNT BYTES SECONDS STALE_MS A B: a changes blocks and both nodes get them; A and B are their permille
traffic() {
	local journal=/log/oracle.$1
	for n in a b; do
		at $n set_tunable integrity $integrity
	done
	at a begin changes "$journal" "${@:1:2}" $len "${@:3:2}"
	at b guest_oracle /dev/kvblk/pb/default read "$journal" "$5" 4000 >"$tmp/b" || wrong b
	at a ended >"$tmp/a" || wrong a
	rm "$journal"
	echo "-- $integrity: $(grep '^puts=' "$tmp/a")"
	judged a "$6"
	judged b "$7"
	expect "foreign hits" "$foreign" "$hits"
}

pair 128
at b follow 1 2

# nothing is reclaimed: no deleted version is found, and all others
for integrity in full header; do
	traffic ${#integrity}000000 1000 40000000 $seconds 0 1000 100
done
expect "reclaimed segments" "$(at a counter segments_reclaimed)" 0

# the grace is 3 s, as b has learned by now
for integrity in full header; do
	traffic ${#integrity}900000 2000 $((times * 300000000)) $((times * 10)) 3000 250 50
done
at a more_than 0 segments_reclaimed
at b no_failures
at b refuse kernel_said 'write to foreign member'
