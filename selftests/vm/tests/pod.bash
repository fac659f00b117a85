# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# The nodes of a test with the header nodes=e,NODE...: e is the enclosure and runs the test, the others connect to its
# NVMe/TCP target. Sourced by tests, hence not executable.
. "${BASH_SOURCE[0]%/*}/pool.bash"
# import finds a pool by its name, so each node has one of its own
pool=p$KVBLK_NODE
node=/dev/kvblk/$pool/default
sysfs=/sys/class/kvblk/$pool

# ask VERB NODE [FILE]: let the host do something to a node, see selftests/vm/nodes.py
ask() {
	local rc
	echo "node $1 $2 ${3--}" >&200
	read -r _ rc <&200
	return "$rc"
}

# at NODE COMMAND...: run a command on another node, with this test's functions. What it sets up stays there.
at() {
	local file rc=0
	file=$(mktemp /log/at.XXXXXX)
	{
		echo ". ${BASH_SOURCE[0]}"
		# shellcheck disable=SC2016 # for the other node
		echo 'rm -r "$tmp"; tmp=/tmp; trap '\''[ -z "$why" ] || echo "$why"'\'' EXIT'
		declare -f
		printf '%q ' "${@:2}"
	} >"$file"
	ask run "$1" "${file##*/}" || rc=$?
	cat "$file.out"
	return $rc
}

# enclosure COUNT MB: provide namespaces with reservations to all nodes
enclosure() {
	flash "$1" "$2"
	TARGET_RESV=1 nvmet_target tcp 0.0.0.0 pod /dev/flash+([0-9])
}

# host_id: print the id by which the target tells this node from others
host_id() {
	printf '%08x-0000-4000-8000-000000000000' "'$KVBLK_NODE"
}

# attach COUNT: connect this node to the enclosure with COUNT namespaces
attach() {
	local id
	id=$(host_id)
	modprobe nvme-tcp
	check nvme connect -t tcp -a e -s 4420 -n pod --hostid="$id" --hostnqn="nqn.2014-08.org.nvmexpress:uuid:$id" --keep-alive-tmo=5 --reconnect-delay=1 --ctrl-loss-tmo=600 >"$tmp/connect"
	wait_for 10 nvmet_ready pod "$1"
}

# pair MB [EACH]: an enclosure of namespaces of this size, of which a and b own EACH (2)
pair() {
	local n each=${2:-2}
	enclosure $((2 * each)) "$1"
	for n in a b; do
		at $n attach $((2 * each))
	done
	# shellcheck disable=SC2046 # numbers
	at a up $(seq "$each")
	# shellcheck disable=SC2046
	at b join $(seq $((each + 1)) $((2 * each)))
}

# both_follow: a and b follow each other
both_follow() {
	at b follow 1 2
	at a follow 3 4
}

# namespace N: print the block device of a namespace of the enclosure
namespace() {
	nvmet_namespaces pod | sed -n "$1p"
}

# load: load the module on this node, with a node id of its own
load() {
	[ -d /sys/module/kvblk ] || kv_load
	node_id "$KVBLK_NODE"
}

# up N... [-- OPTION...]: create this node's pool of the namespaces N
up() {
	local devices=()
	load
	while [ $# -gt 0 ] && [ "$1" != -- ]; do
		devices+=("$(namespace "$1")")
		shift
	done
	shift $(($# > 0))
	pool_create --pod here --format --yes --segment-size 8M "$@" "${devices[@]}"
	# or else puts wait for 10 seconds wherever the pool is full
	put "$sysfs/reuse_grace_ms" 3000
}

# join N...: create this node's pool in the pod of the first namespace
join() {
	up "$@" -- --seed-of "$(namespace 1)"
}

# follow N...: follow the namespaces N, as members nN: their devices' names may be taken
follow() {
	local n
	for n; do
		check kvblk member follow --name "n$n" "$pool" "$(namespace "$n")"
	done
}

# wait_sees FIRST COUNT: wait until this node finds all of these blocks
wait_sees() {
	wait_for 20 sees "$@"
}

# got FIRST COUNT HITS FOREIGN: gets of these blocks have so many hits, foreign ones among them
got() {
	blocks get "$1" "$2" $len 7
	expect "hits, of them foreign" "$hits $foreign" "$3 $4"
}

# kernel_said PATTERN: print such lines of this node's kernel log
kernel_said() {
	dmesg | grep -E "$1"
}

# begin COMMAND...: run a command in the background; has_ended; ended: wait for it, it must have succeeded
begin() {
	( ("$@") && echo succeeded || echo failed) >/tmp/begun 2>&1 &
}

has_ended() {
	grep -qE '^(succeeded|failed)$' /tmp/begun
}

ended() {
	wait_for 120 has_ended
	cat /tmp/begun
	grep -q '^succeeded$' /tmp/begun
}

# get_on FIRST COUNT: get blocks until /tmp/enough exists; a get may take as long as an outage
get_on() {
	while [ ! -e /tmp/enough ]; do
		check guest_blocks "$node" get "$1" "$2" $len 7
	done
}

set_tunable() {
	put "$sysfs/$1" "$2"
}

# again N...: import this node's pool from the namespaces N
again() {
	local n devices=()
	load
	for n; do
		devices+=("$(namespace "$n")")
	done
	pool_import "${devices[@]}"
}

# daemon_start CONFIGURATION: start kvblkd on the node
daemon_start() {
	echo "salt = \"\"; $1" >/tmp/kvblkd.conf
	setsid kvblkd --config /tmp/kvblkd.conf </dev/null >/dev/null 2>>/tmp/kvblkd.log &
	echo $! >/tmp/kvblkd.pid
}

# daemon PEER: start kvblkd on the node, with one other
daemon() {
	daemon_start "pod: { listen = \"tcp://*:5570\"; peers = ( \"tcp://$1:5570\" ); };"
}

# daemon_with SERVERS [SETTINGS]: start kvblkd with metrics and with a directory on servers such as '"10.0.0.8:6379"'
daemon_with() {
	daemon_start "pools = ( { name = \"$pool\"; pod: { name = \"here\"; }; } ); exporters: { metrics: { }; };
		pod: { listen = \"tcp://$(getent hosts "$KVBLK_NODE" | awk '{ print $1 }'):5570\"; };
		directory: { engine = \"valkey\"; servers = ( $1 ); ask_ms = 1000; ${2-} };"
}

# daemons_with SERVERS [SETTINGS]: a and b have a kvblkd each, which follows the other's only member by hints
daemons_with() {
	local n
	for n in a b; do
		at $n daemon_with "$@"
		wait_for 60 at $n hinted || { at $n daemon_log; at $n kvblk member list --foreign; fail "no member is followed"; }
	done
}

# hinted: the only foreign member is followed by hints
hinted() {
	[ "$(kvblk member list "$pool" --foreign -H | awk -F '\t' '{ print $3, $11 }')" = "up hinted" ]
}

# metric_is NAME NUMBER: a metric of the node's kvblkd has a value, a regular expression
metric_is() {
	page 200 "^kvblkd_$1 $2\$" /metrics
}

# metric NAME: print a metric of the node's kvblkd
metric() {
	page 200 "^kvblkd_$1 " /metrics && awk -v name="kvblkd_$1" '$1 == name { print $2 }' "$tmp/answer"
}

# valkey PORT [OPTION...]: start a Valkey server on the node, with data in memory only; sets $server to its process
valkey() {
	local dir=$tmp/valkey.$1
	mkdir -p "$dir"
	valkey-server --port "$1" --bind 0.0.0.0 --protected-mode no --save "" --appendonly no --dir "$dir" "${@:2}" >"$dir/log" &
	server=$!
	defer "kill -KILL $server 2>/dev/null || true"
	wait_for 20 valkey_answers "$1"
}

valkey_answers() {
	[ "$(valkey-cli -p "$1" ping 2>/dev/null)" = PONG ]
}

# my_address: print the address at which the other nodes reach the node
my_address() {
	ip -o -4 route get "$(getent hosts a | awk '{ print $1 }')" | grep -o 'src [0-9.]*' | cut -d ' ' -f 2
}

# chains FIRST COUNT: put blocks in chains
chains() {
	KV_CHAIN=1 blocks put "$1" "$2" $len 7
	expect "blocks put" "$stored" "$2"
}

daemon_signal() {
	kill "-$1" "$(cat /tmp/kvblkd.pid)"
}

daemon_kill() {
	daemon_signal KILL
}

daemon_log() {
	cat /tmp/kvblkd.log
}

# daemon_quiet NODE: a node's kvblkd has published, and warned of nothing
daemon_quiet() {
	at "$1" daemon_log | tee "$tmp/log"
	grep -q 'pod: publishing at tcp://\*:5570, following 1 peers' "$tmp/log" || fail "kvblkd of $1 does not publish"
	! grep warning "$tmp/log" || fail "kvblkd of $1 warns"
}

# reached: the owner deletes a block and its answer arrives. Until the daemons are connected both ways, deletes are
# refused, of which some are done: so another block is next.
reached() {
	local next
	next=$(cat /tmp/next 2>/dev/null || echo 1000)
	blocks delete "$next" 1 $len
	[ "$remote" = 1 ] || echo $((next + 1)) >/tmp/next
	[ "$deleted" = 1 ]
}
