#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: nodes=e,a,b kernels=debug check=debug mem=768M timeout=600 takes=60 waits=1
# Two nodes of a pod whose kvblkd use a directory on a Valkey server: b follows a by hints, finds what a put, and in the
# list of nodes finds a's kvblkd, which deletes blocks for b. Without the server, or without its own kvblkd, b gets what
# it has found, and misses the rest. If the server or kvblkd hangs, lookups wait for ask_ms and nothing else waits. A
# server that comes back empty learns all blocks again.
# slow: three machines, a server that hangs and dies, and the time until both kvblkd have connected again.
. "${0%/*}/pod.bash"

# asking: look up absent blocks until asking_ends
asking() {
	guest_blocks "$node" lookup 100000 1000000000 $len </dev/null >/dev/null 2>&1 &
	echo $! >/tmp/asking
}

asking_ends() {
	kill "$(cat /tmp/asking)"
}

# misses_in_time FIRST COUNT: no block is found, and lookups wait no longer than ask_ms, a second. A wait for the server
# or for kvblkd would end with the test.
misses_in_time() {
	local began=$SECONDS
	blocks lookup "$1" "$2" $len
	expect "blocks found" "$present" 0
	((SECONDS - began <= $2 + 10 * KVBLK_SLOW)) || fail "lookups of $2 blocks took $((SECONDS - began)) s"
}

# own_go_on FIRST: the node puts blocks and gets them, and gets the foreign blocks found before
own_go_on() {
	chains "$1" 100
	got "$1" 100 100 0
	got 0 100 100 100
}

has_keys() {
	[ "$(valkey-cli dbsize)" -ge "$1" ]
}

pair 256 1
valkey 6379
here="\"$(my_address):6379\""
daemons_with "$here"

echo "-- b finds by hints what a puts"
at a chains 0 100
at b wait_for 60 sees 0 100
at b got 0 100 100 100
at b more_than 0 asks_answered
at a chains 200 100

echo "-- the nodes find each other by the directory"
at a chains 1000 100
at b wait_for 60 sees 1000 100
at b wait_for 90 reached

echo "-- the server hangs: lookups wait for ask_ms, and nothing else waits"
# in segments of their own, of which b has no hint
keys=$(valkey-cli dbsize)
at a blocks put 2000 3 5000000 7
wait_for 30 has_keys $((keys + 3))
at b asking
kill -STOP $server
at b wait_for 30 metric_is directory_late_total '[1-9][0-9]*'
at b asking_ends
at b misses_in_time 2000 3
at b own_go_on 5000
at a chains 5200 50
kill -CONT $server
at b wait_for 60 sees 2000 3

echo "-- b's kvblkd hangs: the same"
at a blocks put 2010 3 5000000 7
at b daemon_signal STOP
at b misses_in_time 2010 3
at b own_go_on 5100
at b daemon_signal CONT
at b wait_for 60 sees 2010 3

echo "-- the server dies"
kill $server
wait $server || true
at b got 0 100 100 100
at a chains 300 100
# blocks in segments that were hinted are found
at b blocks lookup 300 100 $len

echo "-- it is back, without its contents"
valkey 6379
at b wait_for 90 sees 300 100
at b wait_for 90 sees 200 100
at b got 200 200 200 200

echo "-- b has no kvblkd"
at b daemon_kill
at a chains 400 100
at b blocks lookup 400 100 $len
at b got 0 100 100 100
at b daemon_with "$here"
at b wait_for 60 sees 400 100

for n in a b; do
	at $n no_failures
	at $n daemon_log
done
at b refuse kernel_said 'write to foreign member'
