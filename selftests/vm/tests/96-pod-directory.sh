#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: nodes=e,a,b kernels=debug check=debug mem=768M timeout=500 takes=60 waits=1
# Two nodes of a pod whose kvblkd use a directory on a Valkey server: b follows a by hints, finds what a put, and in the
# list of nodes finds a's kvblkd, which deletes blocks for b. Without the server, or without its own kvblkd, b gets what
# it has found, and misses the rest. A server that comes back empty learns all blocks again.
# slow: three machines, a server that dies, and the time until both kvblkd have connected again.
. "${0%/*}/pod.bash"

server() {
	valkey-server --port 6379 --bind 0.0.0.0 --protected-mode no --save "" --appendonly no --dir "$tmp" >"$tmp/valkey" &
	server=$!
	defer "kill $server 2>/dev/null || true"
	wait_for 20 server_answers
}

server_answers() {
	[ "$(valkey-cli ping 2>/dev/null)" = PONG ]
}

# daemon_with ADDRESS: start kvblkd with a directory on this server
daemon_with() {
	echo "salt = \"\"; pools = ( { name = \"$pool\"; pod: { name = \"here\"; }; } );
		pod: { listen = \"tcp://$(getent hosts "$KVBLK_NODE" | awk '{ print $1 }'):5570\"; };
		directory: { engine = \"valkey\"; servers = ( \"$1:6379\" ); ask_ms = 1000; };" >/tmp/kvblkd.conf
	setsid kvblkd --config /tmp/kvblkd.conf </dev/null >/dev/null 2>>/tmp/kvblkd.log &
	echo $! >/tmp/kvblkd.pid
}

# hinted: the only foreign member is followed by hints
hinted() {
	[ "$(kvblk member list "$pool" --foreign -H | awk -F '\t' '{ print $3, $11 }')" = "up hinted" ]
}

# chains FIRST COUNT: put blocks in chains
chains() {
	KV_CHAIN=1 blocks put "$1" "$2" $len 7
	expect "blocks put" "$stored" "$2"
}

pair 128 1
server
here=$(ip -o -4 route get "$(getent hosts a | awk '{ print $1 }')" | grep -o 'src [0-9.]*' | cut -d ' ' -f 2)
for n in a b; do
	at $n daemon_with "$here"
	wait_for 60 at $n hinted || { at $n daemon_log; at $n kvblk member list --foreign; fail "no member is followed"; }
done

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

echo "-- the server dies"
kill $server
wait $server || true
at b got 0 100 100 100
at a chains 300 100
# those in segments that were hinted are found
at b blocks lookup 300 100 $len

echo "-- it is back, without its contents"
server
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
