#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: kernels=newest,6.12,debug check=newest timeout=400 takes=80
# In a pod, no segment is opened again within the reuse grace after its reclaim, nor any segment within it after an
# import, or after a format of what was a member. A lowered grace holds only when no follower may rely on the former one.
# Segments that wait for the grace are shown. In no pod, segments are reused at once.
# slow: graces of 10 and 3 seconds, and the 20 seconds after which a lower one holds.
. "${0%/*}/pool.bash"

tracefs_mount
kv_load
node_id 7

put $tracefs/trace_clock boot
defer "put $tracefs/events/kvblk/enable 0; put $tracefs/trace_clock local"

trace_off() {
	put $tracefs/events/kvblk/enable 0
}

trace_on() {
	echo >$tracefs/trace
	put $tracefs/events/kvblk/kvblk_reclaim/enable 1
	put $tracefs/events/kvblk/kvblk_segment/enable 1
}

# reuses [UNTIL]: print, in ms, the time from each reclaim (before UNTIL, in seconds of CLOCK_BOOTTIME) to the next
# opening of the segment
reuses() {
	awk -v until="${1:-1e9}" '{
		for (i = 1; i <= NF; i++) {
			if ($i ~ /^[0-9]+\.[0-9]+:$/) at = $i + 0
			if ($i ~ /^segment=/) segment = $i
		}
	}
	/ kvblk_reclaim: / && at < until { reclaimed[segment] = at }
	/ kvblk_segment: .*open/ && segment in reclaimed {
		printf "%d\n", (at - reclaimed[segment]) * 1000
		delete reclaimed[segment]
	}' $tracefs/trace
}

# first_open: print, in seconds of CLOCK_BOOTTIME, when the first segment was opened
first_open() {
	awk '/ kvblk_segment: .*open/ { for (i = 1; i <= NF; i++) if ($i ~ /^[0-9]+\.[0-9]+:$/) { print $i + 0; exit } }' $tracefs/trace
}

writes() {
	echo "$1" 2>/dev/null >$sysfs/reuse_grace_ms
}

boottime() {
	awk '{ print $1 }' /proc/uptime
}

# waited FROM LEAST: the first segment was opened LEAST seconds after FROM
waited() {
	local opened
	opened=$(first_open)
	echo "opened $opened, activated after $1"
	awk -v opened="$opened" -v from="$1" -v least="$2" 'BEGIN { exit !(opened && opened - from >= least) }' ||
		fail "a segment was opened too early"
}

flash 1 96
echo "-- in no pod"
pool_format /dev/flash0
trace_on
blocks put 0 3000 65536
trace_off
least=$(reuses | sort -n | head -1)
[ -n "$least" ] && [ "$least" -lt 3000 ] || fail "the shortest time to a reuse is $least ms"
pool_destroy

echo "-- in a pod, formatted over another pool"
pool_create --force --pod here --format --yes --segment-size 8M /dev/flash0
expect "grace" "$(cat $sysfs/reuse_grace_ms)" 10000
for bad in 2999 600001 x -1 ''; do
	refuse writes "$bad"
done
lowered=$(boottime)
put $sysfs/reuse_grace_ms 3000
nullb_create copy0 96
# copied: /dev/copy0 has the state of a crash now, with the lower grace; for wait_for
copied() {
	crash_image /dev/flash0 /dev/copy0
	[ "$(crash_media_fuzz field /dev/copy0 reuse_grace)" = 3000 ]
}
wait_for 20 copied
trace_on
# more than the pool holds: these puts wait for a grace
(wait_for 60 counts_more 0 segments_retiring) &
blocks put 0 3000 65536
trace_off
wait $! || fail "no segment that waits for the grace is shown"
# followers may rely on 10 s for 20 s more
reuses "$(awk -v at="$lowered" 'BEGIN { print at + 20 }')" | sort -n >"$tmp/reuses"
least=$(head -1 "$tmp/reuses")
echo "$(wc -l <"$tmp/reuses") segments reused, the first after $least ms"
[ -n "$least" ] && [ "$least" -ge 10000 ] || fail "a segment was reused after $least ms"
[ "$stored" -gt 1000 ] || fail "puts in a pod found no room: $stored of 3000 stored"

echo "-- the lower grace, once followers know it"
trace_on
next=10000
# reused_early: put more blocks; a segment was reused within the former grace
reused_early() {
	blocks put $next 200 65536
	next=$((next + 200))
	least=$(reuses | sort -n | head -1)
	[ -n "$least" ] && [ "$least" -lt 10000 ]
}
wait_for 60 reused_early
trace_off
reuses | sort -n >"$tmp/reuses"
least=$(head -1 "$tmp/reuses")
echo "$(wc -l <"$tmp/reuses") segments reused, the first after $least ms"
[ "$least" -ge 3000 ] || fail "a segment was reused after $least ms"
none_retiring() { [ "$(counter segments_retiring)" = 0 ]; }
wait_for 60 none_retiring

echo "-- after an import"
pool_destroy
trace_on
from=$(boottime)
pool_import --force /dev/flash0
expect "grace after an import" "$(cat $sysfs/reuse_grace_ms)" 3000
# stores NR: the block is there, or can be put
stores() {
	blocks put "$1" 1 65536
	[ "$((stored + exists))" = 1 ]
}
wait_for 20 stores 20000
trace_off
waited "$from" 3

echo "-- after a crash that followed on the lower grace"
pool_destroy
trace_on
from=$(boottime)
pool_import --force /dev/copy0
expect "grace after the crash" "$(cat $sysfs/reuse_grace_ms)" 3000
wait_for 40 stores 30000
trace_off
waited "$from" 10
