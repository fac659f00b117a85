#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=150 net=1 kernels=newest,6.12,debug-smp takes=43 waits=1
# Round trips over nvme-rdma; then one target dies under load: its blocks miss at once, the other member is not delayed,
# and the blocks return with the target.
# slow: an emulated CPU behind software RoCE moves 16 MB/s.
. "${0%/*}/outage.bash"

outage nvmet_rdma_up
