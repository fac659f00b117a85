#!/bin/bash
# SPDX-License-Identifier: MIT
# vm: timeout=60 disks=1 phases=2 takes=28 kernels=newest,debug
# The test bed itself: data synced before a power cut is there in the next phase.
. "${0%/*}/../lib.sh"

disk=$(vm_disk 0)
if [ "$phase" = 1 ]; then
	echo synced | dd of="$disk" bs=4k conv=sync,fsync oflag=direct status=none
	vm_power_cut
	sleep 60
	fail "no power cut came"
fi
[ "$(head -c 6 "$disk")" = synced ] || fail "synced data is gone"
