#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: nodes=e,a,b,c kernels=debug check=debug mem=768M timeout=400 takes=40
# Three nodes of a pod: c follows a and b, and gets what both put. a is lost, and b and c adopt its pool at once: one of
# them has the pool, without a member that it does not see; the other one gets an error and changes nothing. The missing
# member, which a has reserved, returns by force only.
. "${0%/*}/pod.bash"

# hide N: remove the device node of a namespace; show N
hide() {
	namespace "$1" >/tmp/hidden
	rm "$(</tmp/hidden)"
}

show() {
	IFS=: read -r major minor <"/sys/class/block/$(basename "$(</tmp/hidden)")/dev"
	mknod "$(</tmp/hidden)" b "$major" "$minor"
}

adopt() {
	kvblk pool adopt here a --yes --name adopted --degraded
}

enclosure 4 128
for n in a b c; do
	at $n attach 4
done
at a up 1 2
at b join 3
at c join 4
at b follow 1 2
at c follow 1 2 3
at a blocks put 0 100 $len 7
at b blocks put 1000 100 $len 7
at c wait_sees 0 100
at c wait_sees 1000 100
at c got 0 100 100 100
at c got 1000 100 100 100

echo "-- b and c adopt the pool of a at once"
ask kill a
for n in b c; do
	at $n hide 2
done
for n in b c; do
	at $n begin adopt
done
for n in b c; do
	at $n wait_for 120 has_ended
	at $n cat /tmp/begun | tee "$tmp/$n"
done
winner=b loser=c
grep -qx succeeded "$tmp/b" || winner=c loser=b
grep -qx succeeded "$tmp/$winner" || fail "no node has the pool"
grep -qx failed "$tmp/$loser" || fail "both nodes have the pool"
# by how far the winner was when the loser looked
grep -qE 'belongs to node . now|is reserved by another node|was written by another node|node a (is up|has no pool)' "$tmp/$loser" ||
	fail "the error of the other node"

echo "-- $winner has the pool"
works() {
	wait_for 30 pool_is_up
	blocks get 0 100 $len 7
	[ "$hits" -gt 0 ] || fail "no hits on one of two members"
	blocks put 2000 20 $len 7
	expect "puts" "$stored" 20
	no_failures
}
at $winner on adopted works
only_own() {
	expect "pools" "$(kvblk pool list -H | awk '{ print $1 }')" "$pool"
	wait_sees 2000 20
	got 2000 20 20 20
	no_failures
}
at $loser only_own
at $loser refuse kernel_said 'write to foreign member'

echo "-- the missing member returns"
returns() {
	local device
	device=$(</tmp/hidden)
	code 1 "was in use by node a" kvblk member add adopted "$device" --yes
	check kvblk member add adopted "$device" --yes --force
	wait_for 30 pool_is_up
	blocks get 0 100 $len 7
	expect "hits" "$hits" 100
	blocks put 3000 20 $len 7
	expect "puts" "$stored" 20
}
at $winner show
at $winner on adopted returns
