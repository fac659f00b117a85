#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=150 takes=21 kernels=newest,6.12,debug
# The means to observe a working pool: tracepoints, latency histograms and the events of a full pool.
. "${0%/*}/pool.bash"

tracefs_mount
kv_load
flash 2 68
events_start
pool_format /dev/flash0 /dev/flash1
put $tracefs/events/kvblk/enable 1
defer "put $tracefs/events/kvblk/enable 0; echo >$tracefs/trace"

blocks put 1 10 50000
blocks get 1 10 50000
blocks lookup 1 10 50000
blocks delete 1 3 50000
blocks get 1 3 50000
put $tracefs/events/kvblk/enable 0

# traced EVENT PATTERN COUNT: the trace has COUNT such lines
traced() {
	expect "traced $1 with $2" "$(grep -cE " $1: .*$2" $tracefs/trace)" "$3"
}

traced kvblk_put 't: .*length=50000 res=50000 ' 10
traced kvblk_get 't: .*length=50000 res=50000 ' 10
traced kvblk_delete 't: .*res=0 ' 3
traced kvblk_kill 't: ' 3
traced kvblk_lookup 't: ' 10

kvblk stat $pool -o json >"$tmp/stat"
python3 - "$tmp/stat" <<-EOF || fail "histograms do not count what was done: $(cat "$tmp/stat")"
	import json, sys
	pool = json.load(open(sys.argv[1]))[0]
	nr = {name: sum(hist["log2_buckets"]) for name, hist in pool["latency"].items()}
	sys.exit({name: n for name, n in nr.items() if n} != {"put": 10, "get": 10, "delete": 3, "lookup": 10})
EOF

echo "-- a full pool"
put $sysfs/reclaim_event_rate 0
put $tracefs/events/kvblk/kvblk_reclaim/enable 1
put $tracefs/events/kvblk/kvblk_segment/enable 1
check guest_stress -m write -t 2 -k 4000 -l 400000 -b $((2 * 68 * 2 << 20)) $node
wait_for 5 event low-space
wait_for 5 event reclaim-rate
grep -qE ' kvblk_reclaim: t: ' $tracefs/trace || fail "no reclaim in the trace"
grep -qE ' kvblk_segment: t: ' $tracefs/trace || fail "no segment in the trace"

echo "-- a victim holds what its entries say"
check pool_destroy
pool_format /dev/flash0
echo >$tracefs/trace
# a block takes one unit for its header and 13 for its payload
blocks put 1 900 50000
blocks delete 1 300 50000
blocks delete 500 100 50000
blocks put 1 100 50000
blocks put 2000 2000 50000
awk '/ kvblk_reclaim: / { match($0, / live=[0-9]+ units=-?[0-9]+/); split(substr($0, RSTART), f, "[= ]"); n++; wrong += f[3] * 14 != f[5] }
	END { print n + 0, "victims,", wrong + 0, "wrong"; exit !n || wrong }' $tracefs/trace ||
	fail "live units drift: $(grep kvblk_reclaim: $tracefs/trace | tail -n 5)"
