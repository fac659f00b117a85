#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=150 takes=95 kernels=newest,6.12,debug check=debug waits=1
# Statistics: the members' counters add up to the pool's, which keeps them when a member leaves. Each reason of a miss
# has its counter. Listeners get statistics at the interval of the pool.
# slow: statistics come each second and each third, for half a minute.
. "${0%/*}/pool.bash"

# so EXPRESSION: true of p, the pool's statistics; c and g, its counters and gauges; m, the members' statistics by name;
# total(COUNTER), their sum; was, the pool's statistics at the previous call. The members' are read a moment later than
# the pool's.
so() {
	[ ! -e "$tmp/stat" ] || cp "$tmp/stat" "$tmp/stat.was"
	kvblk stat $pool -o json >"$tmp/stat" || return
	python3 - "$tmp/stat" "$1" <<-'END'
		import json, os, sys
		p, = json.load(open(sys.argv[1]))
		m = {s["member"]: s for s in p["members"]}
		was = json.load(open(sys.argv[1] + ".was"))[0] if os.path.exists(sys.argv[1] + ".was") else None
		sys.exit(not eval(sys.argv[2], {"p": p, "c": p["counters"], "g": p["gauges"], "m": m, "was": was,
		                                "total": lambda name: sum(s["counters"][name] for s in m.values())}))
	END
}

stats() {
	so "$1" || fail "not so: $1: $(cat "$tmp/stat")"
}

kv_load
flash 3 100
pool_format /dev/flash0 /dev/flash1

echo "-- members add up"
blocks put 1 40 50000
expect stored "$stored" 40
blocks get 1 40 50000
stats 'c["puts"] == 40 and c["put_bytes"] == 40 * 50000 and c["gets"] == 40 and c["get_bytes"] == 40 * 50000'
wait_for 20 so 'all(total(name) == c[name] for name in next(iter(m.values()))["counters"] if not name.endswith(("read_bytes", "write_bytes")))'
stats 'total("puts") == 40 and all(s["counters"]["puts"] == s["counters"]["put_direct"] + s["counters"]["put_bounced"] for s in m.values())'
stats 'all(s["counters"]["write_bytes"] >= s["counters"]["puts"] * (50000 + 4096) for s in m.values())'
stats 'all(0 < s["counters"]["puts"] == sum(s["latency"]["put"]["log2_buckets"]) for s in m.values())'
stats 'sum(p["latency"]["get"]["log2_buckets"]) == 40 and "lookups" not in m["flash0"]["counters"] and "delete" not in m["flash0"]["latency"]'
# reads before a device is a member count for the pool only
wait_for 20 so 'total("write_bytes") == c["write_bytes"] and 0 < total("read_bytes") <= c["read_bytes"]'
wait_for 20 so 'all(s["gauges"]["segments"] == sum(s["gauges"]["segments_" + state] for state in ("free", "ready", "open", "sealed", "retiring")) for s in m.values())'
wait_for 20 so 'all(value == sum(s["gauges"][name] for s in m.values()) for name, value in g.items() if name not in ("leased_bytes", "index_used", "dram_bytes"))'
wait_for 20 so 'g["index_used"] == 40 and g["inflight"] == 0 and g["queued"] == 0 and g["leased_bytes"] == 0'
expect "a member alone" "$(kvblk stat $pool flash1 -o json | grep -c '"member": "flash1"')" 1
code 1 'has no member flash2' kvblk stat $pool flash2

echo "-- what is there is not written again"
blocks put 1 40 50000
stats 'c["put_exists"] == 40 and c["put_exists_bytes"] == 40 * 50000 and c["puts"] == 40'

# classes OPERATION COUNTS: the number of operations in each size class
classes() {
	stats "[sum(s['$1']['log2_buckets']) for s in p['latency_by_size']] == $2"
}

echo "-- latencies by size: each class has its last byte, and the next one the byte behind"
stats '[s["size_max"] for s in p["latency_by_size"]] == [4096 * 4 ** i for i in range(8)]'
classes put '[0, 0, 40, 0, 0, 0, 0, 0]'
for len in 1 4096 4097 16384 16385 65536 65537 4194304 4194305; do
	blocks put $((1000000 + len)) 1 $len
	blocks get $((1000000 + len)) 1 $len
done
classes put '[2, 2, 42, 1, 0, 1, 1, 0]'
classes get '[2, 2, 42, 1, 0, 1, 1, 0]'
stats 'all((s[op]["total_ns"] > 0) == (sum(s[op]["log2_buckets"]) > 0) for s in p["latency_by_size"] for op in ("put", "get"))'
stats 'all(n == sum(s["put"]["log2_buckets"][i] for s in p["latency_by_size"]) for i, n in enumerate(p["latency"]["put"]["log2_buckets"]))'

# unreaped: whether the latencies of 40 gets exclude the 3 s until their ring's task looks, and the second until the pool
# finishes them for it: none is longer than 2^30 ns
unreaped() {
	so True
	guest_pin $node get 1 40 50000 >"$tmp/held" &
	local holder=$!
	wait_for 60 grep -q holding "$tmp/held"
	# the time itself is tested
	sleep 3
	kill -USR1 $holder
	check wait $holder
	expect "gets that succeeded" "$(grep good= "$tmp/held")" good=40
	so 'c["gets"] - was["counters"]["gets"] == 40 and sum(p["latency"]["get"]["log2_buckets"][30:]) == sum(was["latency"]["get"]["log2_buckets"][30:])'
}

echo "-- a ring's latencies exclude the time until its task looks"
# again, because a host that is busy delays gets, too
unreaped || unreaped || unreaped || fail "latencies of gets that were not reaped: $(cat "$tmp/stat")"

echo "-- a member leaves, and another one has its place"
check kvblk member add --yes $pool --format --segment-size 8M /dev/flash2
wait_for 30 member_is flash2 up
stats 'm["flash2"]["counters"]["write_bytes"] > 0'
blocks put 101 40 50000
blocks get 101 40 50000
stats 'total("puts") == c["puts"] == 89 and m["flash2"]["counters"]["puts"] > 0 and m["flash2"]["counters"]["gets"] > 0'
check kvblk member remove --yes $pool flash2
wait_for 30 member_is flash2 gone
stats 'list(m) == ["flash0", "flash1"] and c["puts"] == 89 and total("puts") < 89'
stats 'all(c[name] >= was["counters"][name] for name in c)'
check kvblk member add --yes $pool --format --segment-size 8M /dev/flash2
wait_for 30 member_is flash2 up
stats 'c["puts"] == 89 and m["flash2"]["counters"]["puts"] == 0 and sum(m["flash2"]["latency"]["get"]["log2_buckets"]) == 0'
no_failures

# missed REASON COUNT: since the previous look COUNT gets missed, all for this reason
missed() {
	stats "c['miss_$1'] - was['counters']['miss_$1'] == c['get_misses'] - was['counters']['get_misses'] == $2"
}

is_well() {
	[ "$(cat $sysfs/members/flaky/failing)" = 0 ]
}

# data TEST: run a test of guest_put_get, whose keys are the same each time
data() {
	blocks delete 1000000 10 1
	check guest_put_get $node "$1"
}

# expired_seen: a get found an expired block before the sweeper removed it
expired_seen() {
	data ttl
	so 'c["miss_expired"] > 0'
}

echo "-- why gets miss"
check kvblk pool destroy $pool
dm_flakey flaky /dev/flash0
pool_format /dev/mapper/flaky
bear_errors
stats 'c["gets"] == c["get_misses"] == 0'
blocks get 500 3 50000
missed absent 3
blocks put 1 8 50000
data layout_tag
missed layout 1
wait_for 60 expired_seen
stats "c['get_misses'] == sum(value for name, value in c.items() if name.startswith('miss_'))"
put $sysfs/integrity header
blocks put 100 2 50000
put $sysfs/integrity full
blocks get 100 2 50000
missed unproven 2

dm_flakey_set flaky /dev/flash0 0 1 drop_writes
blocks put 200 4 50000
dm_flakey_set flaky /dev/flash0 1 0
blocks get 200 4 50000
missed damaged 4

dm_flakey_set flaky /dev/flash0 0 1 error_reads
blocks get 1 4 50000
missed read_error 4
# the next error makes the member failing until a probe succeeds
put $sysfs/failing_run 1
blocks get 1 1 50000
missed read_error 1
blocks get 2 4 50000
missed member 4
blocks lookup 2 4 50000
stats 'c["lookup_unserved"] == 4 and c["lookup_hits"] == was["counters"]["lookup_hits"]'
dm_flakey_set flaky /dev/flash0 1 0
wait_for 60 is_well

echo "-- gets that end without a block and without a miss"
stats 'c["get_deadlines"] == c["get_errors"] == 0'
data too_small
stats 'c["get_errors"] > 0 and c["get_misses"] == was["counters"]["get_misses"]'
check dmsetup suspend --noflush --nolockfs flaky
defer 'dmsetup resume flaky'
KV_DEADLINE_MS=50 blocks get 2 3 50000
expect "gets that are late" "$late" 3
check dmsetup resume flaky
wait_for 20 so 'c["get_deadlines"] == c["deadlines"] == 3 and c["get_misses"] == was["counters"]["get_misses"]'

# rounds POOL: print the number of rounds of statistics received
rounds() {
	awk -v pool="$1" '$3 == pool && $4 == "pool" { n++ } END { print n + 0 }' "$tmp/feed"
}

rounds_more() {
	[ "$(rounds "$1")" -gt "$2" ]
}

# told POOL AWK-CONDITION COUNT: the pool's last complete round has COUNT such lines
told() {
	expect "lines of $1 with $2" "$(awk -v pool="$1" '$3 == pool { if ($4 == "pool") n = 0; if ('"$2"') n++; if ($5 == 67108864) last = n }
		END { print last + 0 }' "$tmp/feed")" "$3"
}

echo "-- statistics come by themselves, when they are wanted, as often as they are"
check kvblk pool create other --format --yes --segment-size 8M /dev/flash1 /dev/flash2 >/dev/null
defer '[ ! -d /sys/class/kvblk/other ] || kvblk pool destroy other'
was=$(listeners)
library_stats >"$tmp/feed" &
defer "kill $! 2>/dev/null; wait $! 2>/dev/null || true"
wait_for 10 more_listeners "$was"
put /sys/class/kvblk/other/stats_seconds 1
wait_for 20 rounds_more other 3
expect "rounds of a pool that is to tell nothing" "$(rounds $pool)" 0
put $sysfs/stats_seconds 3
wait_for 60 rounds_more $pool 3
put $sysfs/stats_seconds 0
[ "$(rounds $pool)" -lt "$(rounds other)" ] || fail "every third second is as often as each second"
# a round may be in progress
wait_for 20 rounds_more other $(($(rounds other) + 1))
fixed=$(rounds $pool)
wait_for 30 rounds_more other $(($(rounds other) + 5))
expect "rounds of a pool that is to tell nothing any more" "$(rounds $pool)" "$fixed"
told other '$4 == "member"' 2
told other '$4 == "size"' 8
told $pool '$4 == "member"' 1
told $pool "\$4 == \"pool\" && \$6 == $(counter puts)" 1
expect "numbers that do not follow each other" "$(awk '$1 != ++seq[$3]' "$tmp/feed")" ""
expect "rounds whose messages have several times" "$(awk '$4 == "pool" { time[$3] = $2 } $2 != time[$3]' "$tmp/feed")" ""
check kvblk pool destroy other
put $sysfs/stats_seconds 1
wait_for 20 rounds_more $pool "$(rounds $pool)"
fixed=$(rounds other)
wait_for 20 rounds_more $pool $(($(rounds $pool) + 3))
expect "rounds of a pool that is gone" "$(rounds other)" "$fixed"
expect "what the listener complains of" "$(grep wrong "$tmp/feed")" ""
