#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=100 kernels=debug
# Allocations of the callers fail at random while threads mix all operations: -ENOMEM, never a wrong byte; and nothing leaks.
. "${0%/*}/pool.bash"

# stress_starving FAULT: with one of fault injection's kinds, begun when threads and rings are there
stress_starving() {
	local dir=/sys/kernel/debug/$1 rc=0
	put "$dir/task-filter" Y
	put "$dir/ignore-gfp-wait" N
	put "$dir/verbose" 0
	put "$dir/interval" 1
	put "$dir/times" 10000000
	defer "put $dir/probability 0; put $dir/task-filter N"
	sh -c 'echo 1 >/proc/self/make-it-fail; exec "$@"' - kv_stress -e -n -o -t 3 -k 500 -l 60000 -s 15 "$node" &
	sleep 3
	put "$dir/probability" 2
	wait $! || rc=$?
	put "$dir/probability" 0
	[ $rc = 0 ] || fail "kv_stress found errors (exit code $rc)"
	echo "$1, $KV_ENGINE: $((10000000 - $(cat "$dir/times"))) allocations failed"
	[ "$(cat "$dir/times")" -lt 9999900 ] || fail "$1 has hardly made anything fail"
}

kv_load
flash 2 100
pool_format /dev/flash0 /dev/flash1
for KV_ENGINE in ioctl uring; do
	export KV_ENGINE
	stress_starving failslab
	stress_starving fail_page_alloc
done
blocks put 1 100 50000
expect "puts after it" "$stored" 100
blocks get 1 100 50000
expect "gets after it" "$hits" 100
