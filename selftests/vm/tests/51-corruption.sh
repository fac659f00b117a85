#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=60 takes=10
# Garbage written to a member below the pool, and sectors that go bad: a miss, an event, a zeroed buffer, never a wrong
# byte.
. "${0%/*}/pool.bash"

# damage_parts DEVICE LENGTH COUNT: change one byte in COUNT records of that length, each in another 256 KiB part, or in
# the payload's last one
damage_parts() {
	python3 - "$@" <<-'END'
		import mmap, os, struct, sys
		device, length, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
		fd = os.open(device, os.O_RDWR | os.O_DIRECT)
		mib = mmap.mmap(-1, 1 << 20)
		found = []
		for start in range(0, os.lseek(fd, 0, os.SEEK_END), len(mib)):
		    os.preadv(fd, [mib], start)
		    for at in range(0, len(mib), 4096):
		        if mib[at:at + 8] == b"KVVRECD\0" and struct.pack("<I", length) in mib[at:at + 256]:
		            found.append(start + at)
		page = mmap.mmap(-1, 4096)
		for part, at in enumerate(found[:count]):
		    byte = at + 4096 + min((part << 18) + 4097 * part, length - 1)
		    os.preadv(fd, [page], byte & ~4095)
		    page[byte & 4095] ^= 1
		    os.pwritev(fd, [page], byte & ~4095)
		sys.exit(f"{len(found)} records found" if len(found) < count else 0)
	END
}

kv_load
flash 2 100
# dm, so that the member's bytes can be written below it
dm_create over "/dev/flash0" "0 %s linear /dev/flash0 0"
events_start
pool_format /dev/mapper/over /dev/flash1
blocks put 1 300 70000
expect "puts" "$stored" 300

head -c 12M /dev/urandom >"$tmp/garbage"
check dd if="$tmp/garbage" of=/dev/flash0 bs=1M seek=2 oflag=direct conv=notrunc status=none
blocks get 1 300 70000
[ "$misses" -gt 20 ] || fail "12 MiB of garbage cost $misses blocks only: the test does not hit"
[ "$hits" -gt 100 ] || fail "garbage on one of two members left $hits of 300 blocks"
expect "checksum failures" "$(counter checksum_failures)" "$misses"
wait_for 5 event checksum
lost=$misses
blocks lookup 1 300 70000
expect "what is found after a failed check" "$present" $((300 - lost))
blocks get 1 300 70000
expect "misses, the second time" "$misses" "$lost"
blocks put 1 300 70000
expect "puts of what was lost" "$stored" "$lost"
blocks get 1 300 70000
expect "gets of all" "$hits" 300

echo "-- blocks exchanged: each is whole, at a place that is not its own"
blocks put 1000 100 70000
check dd if=/dev/flash0 of="$tmp/half" bs=1M count=99 iflag=direct status=none
check dd if="$tmp/half" of=/dev/flash0 bs=4k skip=768 seek=1024 count=8192 oflag=direct conv=notrunc status=none
blocks get 1 300 70000
lost=$misses
blocks get 1000 100 70000
[ $((lost + misses)) -gt 0 ] || fail "no block was exchanged: the test does not hit"

echo "-- zeroes"
check dd if=/dev/zero of=/dev/flash0 bs=1M seek=1 count=98 oflag=direct conv=notrunc status=none
blocks get 1 300 70000
blocks get 1000 100 70000
blocks put 2000 100 70000
blocks get 2000 100 70000
expect "gets after all this" "$hits" 100
went_there

check pool_destroy
for irqmode in 0 1 2; do
	echo "-- a byte in each part of large blocks, which land in a task, a softirq, a timer's interrupt: irqmode $irqmode"
	nullb_create "whole$irqmode" 100 "irqmode=$irqmode"
	pool_format "/dev/whole$irqmode"
	blocks put 1 16 1900001
	expect "puts" "$stored" 16
	check damage_parts "/dev/whole$irqmode" 1900001 8
	blocks get 1 16 1900001
	expect "misses" "$misses" 8
	expect "hits" "$hits" 8
	expect "checksum failures" "$(counter checksum_failures)" 8
	if [ "$irqmode" = 0 ]; then
		# requests have at most 127 KiB: 22 for a block in parts of 256 KiB, 16 in parts of 1 MiB
		before=$(awk '{ print $1 }' "/sys/block/whole$irqmode/stat")
		blocks get 1 16 1900001
		expect "hits of undamaged blocks" "$hits" 8
		reads=$(($(awk '{ print $1 }' "/sys/block/whole$irqmode/stat") - before))
		[ "$reads" -lt $((8 * 19)) ] || fail "8 blocks that land in a task took $reads reads: their parts are small"
	fi
	check pool_destroy
done

echo "-- bad sectors"
nullb_create bad 100
pool_format /dev/bad
bear_errors
blocks put 1 200 70000
expect "puts" "$stored" 200
put $configfs/nullb/bad/badblocks "+$((4 * 2048))-$((7 * 2048))"
blocks get 1 200 70000
[ "$misses" -gt 10 ] || fail "3 MiB of bad sectors cost $misses blocks only"
[ "$hits" -gt 50 ] || fail "3 MiB of bad sectors left $hits of 200 blocks"
more_than 0 read_errors
wait_for 5 event read-error
put $configfs/nullb/bad/badblocks "-$((4 * 2048))-$((7 * 2048))"
blocks put 300 20 70000
expect "puts afterwards" "$stored" 20
went_there
