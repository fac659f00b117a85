#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=150 takes=33 kernels=newest,6.12,debug
# The library's examples, and the command's benchmark by io_uring, on a real pool; their errors without a pool, and for
# a user who may lock too little memory. The statements of kvblk_lifetimes(7).
. "${0%/*}/pool.bash"

kv_load
flash 2 200
pool_format /dev/flash0 /dev/flash1
examples=/build/user/tools/lib/examples
for example in put_get ring; do
	echo "-- $example"
	check $examples/$example $pool
done
# the root file system may lack rustc
[ ! -e $examples/put_get-rs ] || check $examples/put_get-rs $pool
echo "-- scatter"
check $examples/scatter $pool host
check env LD_LIBRARY_PATH=/build/user/selftests/.bin/cuda $examples/scatter $pool cuda:0
for op in put get exists; do
	check kvblk bench $pool --op $op --size 100K --depth 8 --threads 2 --count 300
done
check kvblk bench $pool --op get --engine ioctl --size 100K --depth 8 --count 100
code 1 'tt: no such pool' $examples/put_get tt
echo "-- 64 KiB of locked memory"
user=(setpriv --reuid 65534 --regid 65534 --groups 4242 --inh-caps -all --bounding-set -all bash -c "ulimit -l 64; exec \"\$@\"" -)
check chgrp 4242 $node
bench=(kvblk bench "$pool" --op put --size 100K --depth 8 --count 100 --engine)
check "${user[@]}" "${bench[@]}" uring
code 1 '800 KiB .* 64 KiB of locked memory (RLIMIT_MEMLOCK); raise that (ulimit -l)' "${user[@]}" "${bench[@]}" uring-fixed
code 1 'RLIMIT_MEMLOCK: raise it (ulimit -l)' "${user[@]}" $examples/scatter $pool host
no_failures
check pool_destroy

echo "-- lifetimes"
modprobe -q dm_delay || true
dm_create slow /dev/flash1 "0 %s delay /dev/flash1 0 0"
pool_format /dev/mapper/slow
put $sysfs/suspect_ms 3600000
# allow a file 15 blocks of 64 KiB
put $sysfs/lease_permille 10
# sh $tmp/delay MS: set the device's latency; I/O held so far is completed first
cat >"$tmp/delay" <<-END
	echo "0 $(blockdev --getsz /dev/flash1) delay /dev/flash1 0 \$1" | dmsetup load slow && dmsetup resume --nolockfs slow
END
defer "sh $tmp/delay 0"
check timeout $((120 * KVBLK_SLOW)) /build/user/tools/test/lifetimes_test $pool "sh $tmp/delay"
no_failures
