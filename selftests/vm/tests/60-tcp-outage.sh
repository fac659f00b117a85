#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=150 takes=21 kernels=newest,6.12,debug,debug-smp waits=1
# Round trips over nvme-tcp; then one target dies under load: its blocks are misses at once, the other member is not delayed, and
# when the target is back so are the blocks.
. "${0%/*}/outage.bash"

outage nvmet_tcp_up
