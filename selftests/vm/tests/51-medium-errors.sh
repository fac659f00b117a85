#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=120 kernels=newest takes=36
# A bad sector costs its block only, though the block layer merges reads of neighbours and an error fails the merged
# request: gets of own and of foreign blocks, and the copies of reclaim.
. "${0%/*}/pool.bash"

read_merges() {
	local merges
	read -r _ merges _ <"/sys/block/${disk#/dev/}/stat"
	echo "$merges"
}

# fail_reads: make the bad sectors unreadable
fail_reads() {
	merges=$(read_merges)
	put $scsi/opts 2
}

# were_merged: fail unless reads were merged since the last call, or since fail_reads
were_merged() {
	local before=$merges
	merges=$(read_merges)
	echo "$((merges - before)) reads were merged"
	[ "$merges" -gt "$before" ] || fail "no reads were merged"
}

kv_load
flash 1 96
# two requests at once, of 1 ms each, so that others wait and are merged
medium_errors ndelay=1000000 max_queue=2
put "/sys/block/${disk#/dev/}/queue/scheduler" mq-deadline
# scsi_debug fails commands for reservations, and device mapper has none for two targets
sectors=$(blockdev --getsz "$disk")
check dmsetup create worn --table "0 2048 linear $disk 0
2048 $((sectors - 2048)) linear $disk 2048"
defer 'dm_remove worn'

echo "-- the copies of reclaim"
pool_format /dev/mapper/worn
blocks put 1 60 $len
expect "puts" "$stored" 60
blocks put 1000 600 $len
# late in the stay of their segment, so that reclaim keeps them
blocks get 21 20 $len
expect "gets" "$hits" 20
fail_reads
next=2000
while [ "$(counter segments_reclaimed)" = 0 ]; do
	[ $next -lt 20000 ] || fail "nothing was reclaimed"
	blocks put $next 50 $len
	next=$((next + 50))
done
more_than 0 read_errors
were_merged
blocks get 21 20 $len
expect "gets of copies beside a bad sector" "$hits" 19
put $scsi/opts 0
check pool_destroy

echo "-- gets of foreign blocks"
node_id a
on ta pod_pool_short /dev/mapper/worn
node_id b
on tb pod_pool_short --seed-of /dev/mapper/worn /dev/flash0
check kvblk member follow tb /dev/mapper/worn
on ta blocks put 1 60 $len
expect "puts" "$stored" 60
wait_for 20 on tb sees 1 60
fail_reads
on tb blocks get 1 60 $len
expect "foreign gets beside a bad sector" "$hits" 59
were_merged

echo "-- gets of own blocks"
on ta blocks get 1 60 $len
expect "own gets beside a bad sector" "$hits" 59
were_merged
