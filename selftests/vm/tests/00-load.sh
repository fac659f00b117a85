#!/bin/bash
# SPDX-License-Identifier: MIT
# vm: timeout=30 kernels=newest,6.12,6.12-p2p,debug,debug-smp check=newest,6.12,debug takes=1
# The module has the same version as the command, loads, unloads and leaves nothing behind.
. "${0%/*}/../lib.sh"

kv_load
[ "kvblk $(</sys/module/kvblk/version)" = "$(kvblk --version)" ] || fail "module $(</sys/module/kvblk/version), command $(kvblk --version)"
check kv_unload
for left in /dev/kvblk /sys/class/kvblk /sys/class/kvblk-nvme /sys/class/kvblk-changes /sys/module/kvblk /sys/kernel/debug/kvblk; do
	[ ! -e "$left" ] || fail "left behind: $left"
done
