#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=180 takes=37 check=debug
# Bad netlink requests get the errno that the spec promises and a message, and change nothing. Dumps of many datagrams
# are complete while a pool is created and destroyed. Events report what happened.
. "${0%/*}/pool.bash"

# small_pool NAME DEVICE...: create a pool beside that of the test
small_pool() {
	check kvblk pool create "$1" --format --yes --segment-size 8M "${@:2}"
	defer "kvblk pool destroy $1"
}

churn() {
	while [ ! -e "$tmp/stop" ]; do
		kvblk pool create churn --format --yes --segment-size 8M /dev/flash1
		kvblk pool destroy churn
	done
}

dead_member() {
	kvblk member list z | grep -q ' dead '
}

kv_load
# 8 segments of 8 MiB each
flash 20 68
events_start
pool_format /dev/flash0
check guest_netlink_input $pool flash0 /dev/flash1

small_pool a /dev/flash2
small_pool z /dev/flash3
small_pool many /dev/flash{4..19}
expect "members of the pool many" "$(kvblk member list many | grep -c flash)" 16
churn &
churn=$!
defer "touch $tmp/stop; wait $churn || true"
check guest_netlink_input $pool flash0 /dev/flash1 dumps
touch "$tmp/stop"
check wait $churn

put "$configfs/nullb/flash3/power" 0
wait_for 30 dead_member
check guest_netlink_input z flash3 /dev/flash1 routes

# a valid request after many invalid ones
check kvblk member add $pool --format --yes /dev/flash1
wait_for 30 member_is flash1 up
wait_for 10 event pool-up
wait_for 10 event member-up
check kvblk member remove --yes $pool flash1
wait_for 30 member_is flash1 gone
wait_for 10 event member-down
refuse kvblk pool show nosuchpool 2>"$tmp/refused"
grep -q 'there is no pool of this name' "$tmp/refused" || fail "the kernel's sentence is not shown: $(cat "$tmp/refused")"
no_failures
