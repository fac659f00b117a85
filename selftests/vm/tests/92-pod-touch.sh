#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: nodes=e,a,b kernels=debug check=debug mem=768M timeout=400 takes=33
# Two nodes of a pod with kvblkd on both: what b gets of a's blocks counts as hits on a. Without one of the daemons gets
# go on, touches are lost, and once it is back they count again.
. "${0%/*}/pod.bash"

# got COUNT: all of these blocks are got from the other node
got() {
	blocks get 0 "$1" $len 7
	expect "hits, of them foreign" "$hits $foreign" "$1 $1"
}

# counts MORE: b gets 100 blocks, and a counts at least as many touches as MORE more than $was
counts() {
	at b got 100
	now=$(at a counter touches)
	[ "$now" -ge $((was + $1)) ]
}

# touched: touches of b reach a, by and by each of them
touched() {
	was=$(at a counter touches)
	wait_for 60 counts 1
	was=$(at a counter touches)
	wait_for 60 counts 100
	echo "touches on a: $now"
}

pair 128 1
at b follow 1
at a blocks put 0 200 $len 7
at b wait_sees 0 200

echo "-- nobody tells"
at b got 100
expect "touches without kvblkd" "$(at a counter touches)" 0

echo "-- with kvblkd"
at a daemon b
at b daemon a
touched
expect "touches on b" "$(at b counter touches)" 0

echo "-- a's kvblkd dies"
at a daemon_kill
was=$(at a counter touches)
for _ in 1 2 3; do
	at b got 200
done
at a daemon b
touched

echo "-- b's kvblkd dies"
at b daemon_kill
for _ in 1 2 3; do
	at b got 200
done
at b daemon a
touched

for n in a b; do
	at $n no_failures
	daemon_quiet $n
done
