#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=100 takes=19
# A reader that writes to its buffer during gets loses no block. A writer that puts records, summaries and superblocks
# in its payload gets nothing accepted, even after a crash that destroys the real header before them. Neither raises an
# alarm.
. "${0%/*}/pool.bash"

kv_load
nullb_create flash0 100
nullb_create copy 100
nullb_create copy2 100
events_start
pool_format /dev/flash0

check guest_hostile scribble $node
no_failures
echo "rereads: $(counter rereads)"

check guest_hostile forge $node /dev/flash0
no_failures
crash_image /dev/flash0 /dev/copy
crash_image /dev/flash0 /dev/copy2
check pool_destroy

echo "-- after a crash"
pool_import --force /dev/copy
check guest_hostile verify $node
no_failures
! event checksum || fail "a false alarm"
check pool_destroy

echo "-- after a clean stop"
pool_import /dev/copy
check guest_hostile verify $node
no_failures
check pool_destroy

echo "-- after a crash that took the real headers"
check guest_hostile wipe /dev/copy2
pool_import --force /dev/copy2
check guest_hostile verify $node wiped
check pool_destroy
pool_import --force /dev/copy2
check guest_hostile verify $node wiped
