#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=180 takes=48 leaks=1 kernels=newest,6.12,debug,debug-smp
# Operations of io_uring in all forms, fixed buffers, registered memory; deadlines, cancel and exit while a member takes
# ten minutes.
# slow: ten thousand operations, and cancels that must end first.
. "${0%/*}/pool.bash"

kv_load
flash 2 200
pool_format /dev/flash0
check guest_uring $node inline_operations inline_results small_entries bad_commands bad_entries fixed_buffers registered_memory many_regions bad_registrations one_page_often huge_region ten_thousand
no_failures
expect "blocks left over" "$(kvblk pool show $pool -o json | sed -n 's/.*"index_used": \([0-9]*\).*/\1/p')" 0
check pool_destroy

echo "-- a member that answers late"
modprobe -q dm_delay || true
dm_create slow /dev/flash1 "0 %s delay /dev/flash1 0 0"
pool_format /dev/mapper/slow
put $sysfs/suspect_ms 3600000
events_start
check guest_uring $node store
# answers_after MS: set the device's latency; I/O held so far is completed first
answers_after() { dm_set slow /dev/flash1 "0 %s delay /dev/flash1 0 $1"; }
answers_after 600000
# none of these tests waits for the device
check timeout $((60 * KVBLK_SLOW)) guest_uring $node slow_hard_deadline slow_result slow_cancel slow_cancels slow_interrupted slow_batch_canceled slow_exit slow_bystander slow_killed_put slow_drain
guest_uring $node slow_ghosts >"$tmp/ghosts" &
ghosts=$!
wait_for 60 grep -q killed "$tmp/ghosts"
answers_after 0
wait $ghosts || fail "$(cat "$tmp/ghosts")"
answers_after 600000
put $sysfs/queue_bytes $((1 << 20))
check timeout $((60 * KVBLK_SLOW)) guest_uring $node slow_interrupted
check timeout $((60 * KVBLK_SLOW)) guest_uring $node slow_memory
put $sysfs/queue_bytes $((256 << 20))
put $sysfs/suspect_ms 500
wait_for 10 event member-suspect
check guest_uring $node suspect_large_put
put $sysfs/suspect_ms 3600000
answers_after 5000
check guest_uring $node slow_deletes slow_unregister slow_drained slow_unregister_waiting
answers_after 0
check guest_uring $node killed_put_is_absent
no_failures
