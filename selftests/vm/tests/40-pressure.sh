#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=150 takes=14
# Ten times the pool's size is put by several threads (a slow kernel: three times): the pool goes on taking puts, and every byte that
# is got is right.
. "${0%/*}/pool.bash"

times=10
[ "$KVBLK_KERNEL" != debug ] || times=3
kv_load
flash 2 68
pool_format /dev/flash0 /dev/flash1
check kv_stress -m write -t 3 -k 4000 -l 400000 -b $((2 * 68 * times << 20)) $node
no_failures
# all that was put but for two fillings, at least, was thrown out again: 16 segments each
more_than $((16 * (times - 2))) segments_reclaimed
more_than 0 dropped
blocks put 1 200 20000
expect "puts after the pressure" "$stored" 200
blocks get 1 200 20000
# a segment that was long open goes as one of its age, with what it took last: of so few segments it may be the next
[ "$hits" -ge 100 ] || fail "of 200 blocks just put $hits are there"
blocks get 181 20 20000
expect "of the 20 blocks put last" "$hits" 20
