#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=100 takes=14 leaks=1 kernels=newest,6.12,debug,debug-smp
# Threads mix all operations while members are removed and added: every byte of a get is right, and afterwards the pool
# works as before.
. "${0%/*}/pool.bash"

kv_load
flash 3 100
pool_format /dev/flash0 /dev/flash1 /dev/flash2

# another_member N: remove a member and add it back, empty
another_member() {
	check kvblk member remove --yes $pool "flash$1"
	wait_for 20 member_is "flash$1" gone
	check kvblk member add $pool --format --yes --segment-size 8M "/dev/flash$1"
	wait_for 20 member_is "flash$1" up
}

for KV_ENGINE in ioctl uring; do
	export KV_ENGINE
	puts=$(counter puts) gets=$(counter gets) rounds=0
	stress_start -t 5 -d -n -k 3000 -l 100000
	until ((rounds >= 3)) && (($(counter puts) > puts + 300 && $(counter gets) > gets + 100)); do
		another_member $((rounds % 3))
		rounds=$((rounds + 1))
		kill -0 "$stress" 2>/dev/null || break
	done
	stress_stop
	echo "$KV_ENGINE: members went and came back $rounds times"
	# in the second round, by uring, puts are written one at a time and the others are queued
	put $sysfs/put_window_bytes 1
	put $sysfs/dram_bytes $((16 << 20))
done
no_failures
blocks put 1 100 50000
expect "puts after the stress" "$stored" 100
blocks get 1 100 50000
expect "gets after the stress" "$hits" 100
