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

# attach COUNT: connect this node to the enclosure with COUNT namespaces. By its host id the target tells it from others.
attach() {
	local id
	printf -v id '%08x-0000-4000-8000-000000000000' "'$KVBLK_NODE"
	modprobe nvme-tcp
	check nvme connect -t tcp -a e -s 4420 -n pod --hostid="$id" --hostnqn="nqn.2014-08.org.nvmexpress:uuid:$id" --keep-alive-tmo=5 --reconnect-delay=1 --ctrl-loss-tmo=600 >"$tmp/connect"
	wait_for 10 nvmet_ready pod "$1"
}

# namespace N: print the block device of a namespace of the enclosure
namespace() {
	nvmet_namespaces pod | sed -n "$1p"
}
