#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: kernels=newest,6.12,debug check=debug mem=1G timeout=400 takes=30
# The node peers of two pools of a pod on one machine, whose daemon is a test program. Anchors of present blocks, of puts
# and of blocks that reclaim moves; lookups that ask, and find blocks of a hinted member by hints only; deletes of
# another node's blocks; and daemons that are late, dead, second, or answer nonsense: these cost misses only.
. "${0%/*}/pool.bash"

# peers TEST...: run a test of the pool's daemon
peers() {
	check guest_peers "$node" "$@"
}

# daemon LINE TEST...: run one in the background, until it prints LINE
daemon() {
	guest_peers "$node" "${@:2}" >"$tmp/daemon" &
	daemon=$!
	defer "kill $daemon 2>/dev/null; wait $daemon 2>/dev/null || true"
	wait_for 60 grep -qx "$1" "$tmp/daemon"
}

daemon_ends() {
	wait "$daemon" || { cat "$tmp/daemon"; fail "the daemon failed"; }
}

# foreign_is NAME STATE FINDS: the second pool follows this member
foreign_is() {
	kvblk member list tb --foreign -H | awk -F '\t' -v want="$*" '$2 " " $3 " " $11 == want { n++ } END { exit !n }'
}

kv_load
flash 3 200
two_pools
expect "mode of the node" "$(stat -c %a:%u:%g /dev/kvblk/ta/peers)" 600:0:0

echo "-- bad input, and a second daemon"
on ta peers input
on t pool_format /dev/flash2
code 1 "no daemon.*not connected" guest_peers /dev/kvblk/t/default anchors 0 0
on t pool_destroy

echo "-- anchors of present blocks and of puts"
# chains of 32
KV_CHAIN=1 on ta blocks put 0 100 $len 7
expect "blocks put" "$stored" 100
on ta peers anchors 100 4

echo "-- a hinted member: nothing without hints, all with them"
on tb check kvblk member follow tb --hinted /dev/flash0
wait_for 30 foreign_is flash0 up hinted
on tb peers hints 0 100 /dev/kvblk/ta/default
on tb more_than 5 asks
on tb more_than 5 asks_answered
on tb blocks get 0 100 $len 7
expect "foreign hits" "$hits $foreign" "100 100"
on tb peers late 9000
on tb peers dead 9000
expect "questions beyond the limit" "$(on tb counter asks_lost)" 0
on tb peers full 9000
expect "questions beyond the limit" "$(on tb counter asks_lost)" 6

echo "-- deletes of another node's blocks"
on tb peers delete 0 /dev/kvblk/ta/default

echo "-- a member that is followed as a whole is polled at a hint"
on tb check kvblk member unfollow tb flash0
on tb check kvblk member follow tb /dev/flash0
wait_for 30 foreign_is flash0 up all
wait_for 30 on tb sees 9 91

echo "-- the pool is destroyed while others wait"
on tb daemon waiting end 20 9000
check kvblk pool destroy tb --force
daemon_ends

echo "-- anchors of blocks that reclaim moves"
on ta blocks put 300 100 $len 7
on ta daemon listening moved
turned_over() {
	on ta blocks put "$((next += 100))" 100 $len 7
	on ta blocks get 300 100 $len 7
	! kill -0 "$daemon" 2>/dev/null
}
next=10000
wait_for 200 turned_over
daemon_ends
on ta no_failures

echo "-- more anchors than the daemon has room for, none of which is lost"
on tc pod_pool_short --seed-of /dev/flash0 /dev/flash2
wait_for 40 on tc takes_puts 99999
on tc daemon listening slow 4201 "$tmp/stop"
on tc blocks put 100000 4200 1 7
expect "blocks put" "$stored" 4200
touch "$tmp/stop"
daemon_ends
on tc no_failures
