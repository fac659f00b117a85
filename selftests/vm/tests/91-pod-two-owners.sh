#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: nodes=e,a,b,c kernels=debug check=debug mem=768M timeout=300 takes=48 waits=1
# Devices without reservations, which force admits, fence nobody: two nodes own the members of a at once, because b took
# them over by force while a was silent, and a goes on. Both put and reclaim. No get returns a wrong byte, on neither owner
# nor on c, which follows. When a has left, b can go on.
# slow: four machines, and all segments are written several times.
. "${0%/*}/pod.bash"

join() {
	up "$1" -- --force --seed-of "$(namespace 1)"
}

flash 4 96
nvmet_target tcp 0.0.0.0 pod /dev/flash+([0-9])
for n in a b c; do
	at $n attach 4
done
at a up 1 2 -- --force
at b join 3
at c join 4
at b follow 1 2
at c follow 1 2
at a blocks put 0 100 $len 7
at c wait_sees 0 100
at c got 0 100 100 100

echo "-- b adopts a's pool, and a goes on"
ask stop a
adopt() {
	check kvblk pool adopt here a --yes --force --name adopted
	on adopted wait_for 30 pool_is_up
}
at b adopt
ask go a
# several times what the members have
at a begin blocks put 10000 6000 $len 7
at b on adopted begin blocks put 20000 6000 $len 7
for _ in 1 2 3 4; do
	at c blocks get 0 100 $len 7
	at c blocks get 10000 6000 $len 7
	at c blocks get 20000 6000 $len 7
done
for n in a b; do
	at $n ended
done

echo "-- a leaves, and b goes on"
at a blocks get 10000 6000 $len 7
at a pool_destroy || echo "the pool of a did not go down cleanly"
on_adopted() {
	# blocks that a has overwritten are damaged
	blocks get 20000 6000 $len 7
	# reclaim frees room for as many puts as there have been, and takes what nobody has got
	wait_for 60 settled
	blocks put 40000 50 $len 7
	expect "puts" "$stored" 50
	blocks get 40000 50 $len 7
	[ "$hits" -gt 0 ] || fail "no block of 50 is there"
}
at b on adopted bear_errors
at b on adopted on_adopted
for first in 10000 20000 40000; do
	at c blocks get $first 6000 $len 7
done
