#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=600 takes=90 kernels=debug check=newest share=pypi:ai-dynamo-runtime==1.6.1
# Dynamo's indexer, registered with kvblkd, knows for each prompt which part the pool has: after reclaim, if it joins
# late, and after kvblkd was killed.
# slow: what reclaim drops is told within half a minute.
. "${0%/*}/daemon.bash"

publish=tcp://127.0.0.1:5557 replay=tcp://127.0.0.1:5558 engine=tcp://127.0.0.1:5560
events=/kvblk/selftests/runtimes/kv_events.py
prompts=1400

follower_start() {
	daemon_start
	wait_for 30 logged 'following pool t'
}

# indexer PORT: start an indexer and register it with kvblkd
indexer() {
	PYTHONPATH=/share python3 -m dynamo.indexer --port "$1" --threads 1 >"$tmp/indexer-$1" 2>&1 &
	defer "kill $! 2>/dev/null; wait $! 2>/dev/null || true; tail -n 20 $tmp/indexer-$1"
	check python3 $events register "http://127.0.0.1:$1" $publish $replay
}

# agree PORT: compare indexer and pool
agree() {
	local same=0 whole=0 part=0 none=0
	python3 $events compare $pool "http://127.0.0.1:$1" $prompts >"$tmp/agree" || { cat "$tmp/agree"; fail "the indexer at $1 is wrong"; }
	cat "$tmp/agree"
	eval "$(grep ^same "$tmp/agree")"
	[ "$whole" -gt 0 ] && [ "$part" -gt 0 ] || fail "$whole prompts are there and $part in part: that says little"
}

load() {
	check timeout $((120 * KVBLK_SLOW)) python3 $events load $pool $engine $prompts
}

cat >"$conf" <<-END
	pools = ( { name = "$pool"; } );
	exporters: { kv_events: { sources = ( "$engine" ); buffer_bytes = "64K"; repeat = 1; }; };
END
kv_load
flash 2 74
pool_format /dev/flash0 /dev/flash1
follower_start

echo "-- one that is there from the beginning"
indexer 8090
load
wait_for 60 counts_more 0 segments_reclaimed
agree 8090

echo "-- one that comes late"
indexer 8091
agree 8091

echo "-- another kvblkd, which the engine tells its tokens again"
kill -KILL $daemon
wait $daemon || true
follower_start
load
agree 8090
agree 8091
