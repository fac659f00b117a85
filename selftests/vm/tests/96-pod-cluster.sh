#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: nodes=e,a,b kernels=debug check=debug mem=768M timeout=900 takes=140 waits=1
# Two nodes of a pod whose kvblkd use a directory on a cluster of three Valkey servers. A server is killed, and then the
# server of the list of nodes. Meanwhile b misses exactly the blocks whose anchors are lost, no lookup waits, and the nodes
# know each other. A node whose kvblkd dies leaves the list when the lease ends. Hints for more blocks than b's index has
# slots evict other foreign blocks only.
# slow: three machines, a lease of 15 s, and anchors that are published again once a minute at most.
. "${0%/*}/pod.bash"
ports=(7001 7002 7003)
pids=()

# start N: start server N of the cluster, with its former slots
start() {
	valkey "${ports[$1]}" --cluster-enabled yes --cluster-require-full-coverage no --cluster-preferred-endpoint-type ip --cluster-announce-ip "$address"
	pids[$1]=$server
}

# die N: kill server N
die() {
	kill -KILL "${pids[$1]}"
	wait "${pids[$1]}" || true
}

# server N ARGUMENT...: send a command to server N
server() {
	valkey-cli -p "${ports[$1]}" "${@:2}"
}

# formed: each server knows the others, and all slots have a server
formed() {
	local i info
	for i in 0 1 2; do
		info=$(server $i cluster info) && [[ $info == *cluster_state:ok* && $info == *cluster_known_nodes:3* ]] || return
	done
}

# anchors N: print the number of anchors on server N
anchors() {
	server "$1" eval "return #redis.call('KEYS', 'kva*')" 0
}

# anchors_are NUMBER: the servers have so many anchors; sets the array $has to the number on each server
anchors_are() {
	local i
	for i in 0 1 2; do
		has[i]=$(anchors $i)
	done
	[ $((has[0] + has[1] + has[2])) = "$1" ]
}

# list EXPRESSION: print the value of a Lua expression about the list of nodes, key
list() {
	server "$lister" eval "local key = redis.call('KEYS', 'kvn*')[1]; return $1" 0
}

listed() {
	[ "$(list "redis.call('ZCARD', key)")" = "$1" ]
}

# singles FIRST COUNT: put blocks in segments of their own, so that only its own anchor leads to a block
singles() {
	blocks put "$1" "$2" 5000000 7
	expect "blocks put" "$stored" "$2"
}

# finds FIRST COUNT LEAST MOST: in a single pass the node finds so many blocks, and no question waits until the end of
# ask_ms. The node asks for absent blocks, too.
finds() {
	local asks late
	asks=$(metric directory_questions_total)
	late=$(metric directory_late_total)
	blocks lookup 100000 20 $len
	blocks lookup "$1" "$2" $len
	asks=$(($(metric directory_questions_total) - asks))
	late=$(($(metric directory_late_total) - late))
	echo "questions: $asks, late ones: $late"
	[ "$asks" -ge 20 ] && [ $late = 0 ] && [ "$present" -ge "$3" ] && [ "$present" -le "$4" ]
}

# sees_most FIRST: in a single pass the node finds most of 100 blocks. Blocks of the same hints may evict some.
sees_most() {
	blocks lookup "$1" 100 $len
	[ "$present" -gt 50 ]
}

# follows NUMBER: the node's kvblkd is connected to so many others
follows() {
	[ "$(grep -o 'following [0-9]* peers' /tmp/kvblkd.log | tail -1)" = "following $1 peers" ]
}

enclosure 2 384
for n in a b; do
	at $n attach 2
done
at a up 1
# the index of b is small
join_short() {
	up 2 -- --seed-of "$(namespace 1)" --index-slots 512
}
at b join_short

address=$(my_address)
for i in 0 1 2; do
	start $i
	server 0 cluster meet "$address" "${ports[i]}" >"$tmp/said"
	server $i cluster addslotsrange $((i * 5462)) $((i == 2 ? 16383 : i * 5462 + 5461)) >"$tmp/said"
done
wait_for 60 formed
daemons_with "\"$address:7001\", \"$address:7002\"" 'span = 1;'
for n in a b; do
	at $n wait_for 60 metric_is directory_up 3
done

echo "-- b finds what a puts, and the nodes find each other"
at a singles 2000 12
wait_for 60 anchors_are 12
first=("${has[@]}")
at a singles 2100 12
wait_for 60 anchors_are 24
second=($((has[0] - first[0])) $((has[1] - first[1])) $((has[2] - first[2])))
echo "anchors: ${first[*]}, ${second[*]}"
# or else the chain's anchors lead to the last of these blocks, whose segment has room
at a singles 2200 1
at a chains 1000 50
at b wait_for 60 sees 1000 50
at b wait_for 90 reached
for lister in 0 1 2; do
	[ "$(list "key and 1 or 0")" = 0 ] || break
done
wait_for 60 listed 2

echo "-- a server dies that has no list"
dead=$(((lister + 1) % 3))
third=$(((lister + 2) % 3))
die $dead
at b wait_for 60 finds 2000 12 $((12 - first[dead])) $((12 - first[dead]))
at b wait_for 60 reached
wait_for 60 listed 2

echo "-- it is back, and the server of the list dies"
start $dead
for n in a b; do
	at $n wait_for 60 metric_is directory_up 3
done
wait_for 60 listed 2
for n in a b; do
	at $n wait_for 60 follows 1
done
die "$lister"
# the first server may have its anchors again
at b wait_for 60 finds 2100 12 "${second[third]}" $((12 - second[lister]))
at b wait_for 60 reached
for n in a b; do
	at $n follows 1
done
start "$lister"
wait_for 60 listed 2
at b wait_for 90 sees 2000 12
at b wait_for 90 sees 2100 12

echo "-- b's kvblkd dies"
at b daemon_kill
ends=$(list "redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]")
now=$(list "redis.call('TIME')[1]")
[ $((ends - now)) -le 15 ] || fail "a lease ends after $((ends - now)) s"
wait_for 60 listed 1
now=$(list "redis.call('TIME')[1]")
[ "$now" -ge "$ends" ] || fail "b left the list $((ends - now)) s before its lease ends"
at a wait_for 60 follows 0
at b daemon_with "\"$address:7001\", \"$address:7002\"" 'span = 1;'
wait_for 60 listed 2
at a wait_for 60 follows 1
at b wait_for 90 reached

echo "-- hints for more blocks than b's index has slots"
at b chains 3000 100
at a chains 4000 900
for ((i = 4000; i < 4900; i += 100)); do
	at b wait_for 60 sees_most $i
done
[[ $(at b kvblk pool show pb -o json) =~ \"index_evicted\":\ ([0-9]+) ]]
[ "${BASH_REMATCH[1]}" -gt 150 ] || fail "the index evicted ${BASH_REMATCH[1]} blocks"
at b chains 3100 100
at b got 3000 200 200 0
expect "headers overwritten" "$(at b counter kills)" 0

for n in a b; do
	at $n no_failures
	at $n daemon_log
done
at b refuse kernel_said 'write to foreign member'
