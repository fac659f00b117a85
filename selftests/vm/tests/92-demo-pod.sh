#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: nodes=e,a,b kernels=debug check=debug mem=768M timeout=200 takes=30
# The demo of "make demo-pod": one node puts a block and the other gets it; a node is killed, the other goes on, and the
# first one comes back.
. "${0%/*}/../lib.sh"
check bash /kvblk/selftests/vm/demo-pod.guest
