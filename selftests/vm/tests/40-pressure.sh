#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=150 takes=14 kernels=newest,6.12,debug,debug-smp
# Several threads put ten times the pool's size (emulated in make check: three times). The pool keeps accepting puts,
# and every byte of a get is right.
. "${0%/*}/pool.bash"

times=3
[ "$KVBLK_DEPTH" != all ] && [ "$KVBLK_KERNEL" != debug ] || times=10
kv_load
flash 2 68
pool_format /dev/flash0 /dev/flash1
check guest_stress -m write -t 3 -k 4000 -l 400000 -b $((2 * 68 * times << 20)) $node
no_failures
# 16 segments per filling: all but two fillings at least have been reclaimed
more_than $((16 * (times - 2))) segments_reclaimed
more_than 0 dropped
blocks put 1 200 20000
expect "puts after the pressure" "$stored" 200
# with so few segments, any but the open one may be the next victim
blocks get 1 200 20000
[ "$hits" -ge 1 ] || fail "of 200 blocks just put none is there"
for nr in 1001 1002 1003 1004 1005; do
	blocks put $nr 1 20000
	blocks get $nr 1 20000
	expect "get of the block just put" "$hits" 1
done
check kvblk pool destroy "$pool"

# segments without live blocks are reclaimed before an older one; of eight segments five are filled when reclaim begins
pool_format /dev/flash0
blocks put 1 300 20000
blocks put 2001 720 20000
blocks put 4001 340 20000
blocks delete 2001 720 20000
blocks put 6001 510 20000
wait_for 60 counts_more 0 segments_reclaimed
blocks get 1 300 20000
expect "gets of blocks in the oldest segment" "$hits" 300
