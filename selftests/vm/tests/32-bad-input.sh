#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=60 takes=7
# Bad input of the data path gets the errno that the ABI promises, and changes nothing.
. "${0%/*}/pool.bash"

kv_load
flash 1 80
pool_format /dev/flash0
check guest_ioctl_input $node
# the control block, two puts each of "odd but good" and "longer structures", the rest of open modes
expect "puts stored" "$(counter puts)" 6
expect "leased blocks left over" "$(kvblk pool show $pool -o json | sed -n 's/.*"leased_bytes": \([0-9]*\).*/\1/p')" 0
no_failures
