#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=60 takes=10
# A runtime needs the node's group, not root. Without the group it has no access, and only root administers. Change feeds
# have a group of their own.
. "${0%/*}/pool.bash"
nobody=(setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps -all --bounding-set -all)
member=(setpriv --reuid 65534 --regid 65534 --groups 4242 --inh-caps -all --bounding-set -all)
monitor=(setpriv --reuid 65534 --regid 65534 --groups 4242,4343 --inh-caps -all --bounding-set -all)

kv_load
flash 1 200
pool_format /dev/flash0
expect "mode of the node" "$(stat -c %a $node)" 660
expect "owner of the node" "$(stat -c %u:%g $node)" 0:0
[ -c $node ] || fail "$node is no character device"
expect "mode of the directory" "$(stat -c %a /dev/kvblk)" 755
refuse "${nobody[@]}" guest_blocks $node put 1 1 1000

# check the udev rule, and do the same by hand
grep -q 'GROUP="kvblk"' /kvblk/tools/udev/60-kvblk.rules || fail "the udev rule names no group kvblk"
grep -q 'MODE="0660"' /kvblk/tools/udev/60-kvblk.rules || fail "the udev rule does not set 0660"
grep -q 'SUBSYSTEM=="kvblk"' /kvblk/tools/udev/60-kvblk.rules || fail "the udev rule is not for kvblk"
grep -q 'SUBSYSTEM=="kvblk-nvme", GROUP="kvblk", MODE="0660"' /kvblk/tools/udev/60-kvblk.rules || fail "the udev rule is not for kvblk-nvme"
grep -q 'SUBSYSTEM=="kvblk-changes", GROUP="kvblk-monitor", MODE="0640"' /kvblk/tools/udev/60-kvblk.rules || fail "the udev rule is not for kvblk-changes"
expect "subsystem that the rule matches" "$(basename "$(readlink -f $sysfs/subsystem)")" kvblk
check chgrp 4242 $node

expect "mode and owner of the change feed" "$(stat -c %a:%u:%g /dev/kvblk/$pool/changes)" 640:0:0
expect "subsystem that its rule matches" "$(basename "$(readlink -f "/sys/class/kvblk-changes/$pool/subsystem")")" kvblk-changes
check chgrp 4343 /dev/kvblk/$pool/changes
refuse "${member[@]}" guest_changes $node late
check "${monitor[@]}" guest_changes $node late

check "${member[@]}" guest_put_get $node sizes pieces batch_of_1024 dedupe
refuse "${nobody[@]}" guest_blocks $node put 1 1 1000
chmod 440 $node
refuse "${nobody[@]}" guest_blocks $node get 1 1 1000
chmod 660 $node

refuse "${member[@]}" kvblk pool destroy $pool
refuse "${member[@]}" kvblk member remove --yes $pool flash0
refuse "${member[@]}" sh -c "echo 5 >$sysfs/suspect_ms"
check "${member[@]}" kvblk pool list
check "${member[@]}" guest_blocks $node put 1 5 1000
no_failures
