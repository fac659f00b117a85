#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=100 takes=16 kernels=newest,6.12,debug,debug-smp
# The only member of a pool fails: a write error fails the put, a read error is a miss. Blocks that the device loses or
# changes silently are misses, too, with an event and a counter. No byte is ever wrong, and the pool recovers with the
# device.
. "${0%/*}/pool.bash"

kv_load
flash 1 100
dm_flakey flaky /dev/flash0
events_start
pool_format /dev/mapper/flaky
bear_errors
works() {
	dm_flakey_set flaky /dev/flash0 1 0
}

echo "-- errors of reads"
blocks put 100 40 70000
dm_flakey_set flaky /dev/flash0 0 1 error_reads
blocks get 100 40 70000
expect "gets from a device that cannot be read" "$hits" 0
more_than 0 read_errors
wait_for 5 event read-error
works
blocks get 100 40 70000
expect "wrong bytes after read errors" "$bad" 0
blocks put 200 40 70000
expect "puts after read errors" "$stored" 40

echo "-- errors of writes"
dm_flakey_set flaky /dev/flash0 0 1 error_writes
blocks put 300 40 70000
expect "puts to a device that cannot be written to" "$errors" 40
more_than 0 write_errors
wait_for 5 event write-error
blocks lookup 300 40 70000
expect "failed puts that are found" "$present" 0
blocks get 200 40 70000
expect "gets while writes fail" "$hits" 40
blocks delete 200 1 1
expect "delete that cannot be made durable: -EIO" "$errors" 1
works
blocks put 300 40 70000
expect "the same puts later" "$stored" 40
blocks get 300 40 70000
expect "gets of them" "$hits" 40

echo "-- writes that are dropped silently"
dm_flakey_set flaky /dev/flash0 0 1 drop_writes
blocks put 400 40 70000
works
before=$(counter checksum_failures)
blocks get 400 40 70000
expect "gets of what was never written" "$hits" 0
more_than "$before" checksum_failures
wait_for 5 event checksum
blocks put 400 40 70000
expect "the same puts later" "$stored" 40

echo "-- reads that are corrupted"
# of a header: the magic, a field, the key, a checksum
for byte in 1 100 516 1030; do
	dm_flakey_set flaky /dev/flash0 0 1 corrupt_bio_byte $byte r 90 0
	before=$(counter checksum_failures)
	blocks put $((byte * 1000)) 20 70000
	blocks get $((byte * 1000)) 20 70000
	expect "gets that were corrupted at byte $byte of each bio" "$hits" 0
	more_than "$before" checksum_failures
	works
done

# nothing depends on a header's padding; a get that bounces to a device reads the payload by a bio of its own
dm_flakey_set flaky /dev/flash0 0 1 corrupt_bio_byte 200 r 90 0
blocks put 3000 20 70000
KV_MEMORY=host blocks get 3000 20 70000
expect "gets whose padding was corrupted" "$hits" 20
works

# a byte of the payload may have that value already
dm_flakey_set flaky /dev/flash0 0 1 corrupt_bio_byte 5000 r 90 0
blocks put 5000 20 70000
blocks get 5000 20 70000
[ "$hits" -lt 5 ] || fail "$hits of 20 gets with a corrupted payload succeeded"
works

echo "-- writes that are corrupted"
dm_flakey_set flaky /dev/flash0 0 1 corrupt_bio_byte 100 w 90 0
blocks put 600 20 70000
works
blocks get 600 20 70000
expect "wrong bytes after corrupted writes" "$bad" 0
blocks put 700 20 70000
expect "puts afterwards" "$stored" 20
blocks get 700 20 70000
expect "gets afterwards" "$hits" 20

echo "-- a mix, under load"
stress_start -e -t 2 -k 500 -l 100000
for features in "error_reads" "error_writes" "drop_writes" "corrupt_bio_byte 40 r 7 0" "corrupt_bio_byte 3000 r 7 0"; do
	# shellcheck disable=SC2086 # several words
	dm_flakey_set flaky /dev/flash0 0 1 $features
	blocks get 700 20 70000
	works
	blocks get 300 20 70000
done
stress_stop
went_there
