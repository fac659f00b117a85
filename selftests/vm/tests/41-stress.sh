#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=100 takes=14 leaks=1 kernels=newest,6.12,debug,debug-smp
# Threads mix all operations while members come and go: every byte got is right, and afterwards the pool is as good as new.
. "${0%/*}/pool.bash"

kv_load
flash 3 100
pool_format /dev/flash0 /dev/flash1 /dev/flash2

# another_member N: goes and comes back, empty
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
	# by uring, puts go one by one, and the others wait for them
	put $sysfs/put_window_bytes 1
	put $sysfs/dram_bytes $((16 << 20))
done
no_failures
blocks put 1 100 50000
expect "puts after the stress" "$stored" 100
blocks get 1 100 50000
expect "gets after the stress" "$hits" 100
