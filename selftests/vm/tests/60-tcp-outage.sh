#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=150 takes=21 kernels=newest,6.12,debug,debug-smp waits=1
# Round trips over nvme-tcp; then one target dies under load: its blocks miss at once, the other member is not delayed,
# and the blocks return with the target.
. "${0%/*}/outage.bash"

outage nvmet_tcp_up
