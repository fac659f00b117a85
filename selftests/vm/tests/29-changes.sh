#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=240 takes=45 kernels=newest,6.12,debug check=debug waits=1
# Change feed: a reader that follows it through puts, deletes, reclaim, evictions, expiries, the loss and the
# removal of a member has the same blocks as the pool. Also bad input, records and tokens, a late reader, and a pool
# that is destroyed.
# slow: what went with a member or its TTL is told by the index' sweep, half a minute a pass.
. "${0%/*}/pool.bash"

# followed MINIMUM-OF-BLOCKS
followed() {
	changes_end
	[ "$present" -ge "$1" ] || fail "$present blocks, should be $1 or more"
	[ "$removed" -gt 0 ] || fail "nothing was removed"
}

flash2_is_up() {
	member_states | grep -qx 'flash2 up'
}

kv_load
flash 2 74
pool_format --index-slots 3000 /dev/flash0 /dev/flash1

echo "-- bad input; records; a reader who is late"
expect "mode of the node" "$(stat -c %a:%u:%g /dev/kvblk/$pool/changes)" 640:0:0
check guest_changes $node input
check guest_changes $node records
check guest_changes $node late

echo "-- under load, with reclaim and a full index"
blocks put 1 50 5000 7
changes_start
stress_start -k 4000 -l 100000 -n -d
wait_for 60 counts_more 2 segments_reclaimed
wait_for 60 counts_more 0 evicted
stress_stop
followed 1

echo "-- a member is removed, another one is lost"
nullb_create flash2 74
check kvblk member add $pool --format /dev/flash2
wait_for 20 flash2_is_up
blocks put 1000 300 5000 7
changes_start
check kvblk member remove $pool flash1 --yes
check nullb_remove flash2
blocks put 2000 30 5000 7
followed 30

echo "-- a pool that goes is held up by nobody"
guest_changes $node end >"$tmp/end" &
ender=$!
defer "kill $ender 2>/dev/null || true"
wait_for 20 grep -q open "$tmp/end"
check pool_destroy
wait $ender || { cat "$tmp/end"; fail "the end of a feed"; }
kv_unload
