#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=300 pci=switch kernels=newest,6.12-p2p:switch takes=74
# The tests of the data path with memory of a GPU as source and destination: directly, through kernel memory, and in one
# list with host memory. Impossible cases are skipped by name in the output.
# slow: the tests of the data path again, each with three kinds of memory.
. "${0%/*}/p2p.bash"
data=(kinds_of_memory partial_limits layout_tag delete keys concurrent_puts batch_of_1024 chain_of_1024 duplicates_in_a_batch
	large_operations_and_results deadlines cancel_what_is_not_there cancel_in_flight)
uring=(inline_operations small_entries bad_commands fixed_buffers registered_memory registered_device_memory
	registered_device_memory_of_another bad_registrations ten_thousand)

# section MEMORY POLICY PAGES: set memory and policy of the following tests; PAGES: whether some or none must go peer to
# peer
section() {
	export KV_MEMORY=$1
	policy=$2 pages=$3
	echo "-- $KV_MEMORY, checked: $policy"
}

on() {
	disks=("$@")
	fresh_pool "$policy"
	[ "$pages" = none ] || warm "$KV_MEMORY"
}

# moves COMMAND...: run a command; pages go peer to peer as the section says
moves() {
	local t0=$SECONDS
	check p2p_witness "$@"
	case $pages in
	some) [ "$p2p_pages" -gt 100 ] || fail "$p2p_pages pages went peer to peer: $*" ;;
	none) [ "$p2p_pages" = 0 ] || fail "$p2p_pages pages went peer to peer, should be none: $*" ;;
	esac
	echo "$1: $p2p_pages pages peer to peer, $host_pages of the host, $((SECONDS - t0)) s"
}

# operations: run all operations in all forms
operations() {
	on "${drives[@]}"
	moves env KV_ENGINE=uring guest_put_get "$node" "${data[@]}"
	moves guest_uring "$node" "${uring[@]}"
	moves guest_pager_stall "$node"
	moves env KV_ENGINE=uring guest_pager_stall "$node"
	no_failures
}

# stress: fill the pool several times; everything is read and compared
stress() {
	on "${small[@]}"
	moves guest_stress -m write -t 3 -k 2000 -l 600000 -b $((2 * 144 << 20)) "$node"
	more_than 10 segments_reclaimed
	moves env KV_ENGINE=uring guest_stress -t 3 -s 5 -k 1000 -l 600000 "$node"
	no_failures
}

kv_load
p2p_load
gpu=$(p2p_bdf "${gpus[0]}")
partitions

section "${gpus[0]}" header some
operations
stress
section "${gpus[0]}" full none
operations
more_than 100 put_bounced
more_than 100 get_bounced
[ "$KVBLK_DEPTH" = check ] || stress
section "${gpus[0]},host" header some
operations
check guest_ioctl_input "$node"
[ "$KVBLK_DEPTH" = check ] || stress
section "host,${gpus[0]}" full none
on "${drives[@]}"
check guest_ioctl_input "$node"
[ "$KVBLK_DEPTH" = check ] || stress
wait_for 10 p2p_all_free "$gpu"
