#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=400 takes=120 kernels=newest waits=1
# kvblkd's KV events: subscribers that apply them have the kernel's set, with the tokens reported by an engine. One
# loses batches and requests them again, one joins late, after reclaim. Also after lost records of the change feed, and
# after kvblkd was killed.
# slow: what reclaim drops is told by the index' sweep, half a minute a pass, and each of three parts waits for it.
. "${0%/*}/daemon.bash"

publish=tcp://127.0.0.1:5557 replay=tcp://127.0.0.1:5558 engine=tcp://127.0.0.1:5560
events=/kvblk/selftests/runtimes/kv_events.py

follower_start() {
	daemon_start
	wait_for 30 logged 'following pool t'
}

# follow NAME [LOSE]: run a subscriber in the background, until followed
declare -A followers
follow() {
	python3 $events follow $pool $publish $replay "$tmp/stop-$1" "${@:2}" >"$tmp/follow-$1" 2>&1 &
	followers[$1]=$!
	defer "kill ${followers[$1]} 2>/dev/null; wait ${followers[$1]} 2>/dev/null || true"
	wait_for 60 grep -q '^following' "$tmp/follow-$1"
}

# followed NAME: end the subscriber; its set must equal the kernel's; sets variables to its counts
followed() {
	touch "$tmp/stop-$1"
	wait "${followers[$1]}" || { cat "$tmp/follow-$1"; fail "subscriber $1 has not what there is"; }
	same=0 hashes=0 tokens=0 stored=0 removed=0 cleared=0 gaps=0
	eval "$(grep ^same "$tmp/follow-$1")"
	echo "$1: $(grep ^same "$tmp/follow-$1")"
}

# more NAME THAN
more() {
	[ "${!1}" -gt "$2" ] || fail "$1 is $2 or less: ${!1}"
}

# load PROMPTS SEED
load() {
	check timeout $((120 * KVBLK_SLOW)) python3 $events load $pool $engine "$@"
}

cat >"$conf" <<-END
	pools = ( { name = "$pool"; } );
	exporters: { kv_events: { sources = ( "$engine" ); hash_only = true; changes = 1024; buffer_bytes = "64K"; repeat = 1; }; };
END
kv_load
flash 2 74
pool_format /dev/flash0 /dev/flash1
follower_start

echo "-- a subscriber that loses each seventh batch, one that comes late, reclaim"
follow lossy 7
load 500 1
follow late
load 1000 2
wait_for 60 counts_more 0 segments_reclaimed
followed lossy
for name in hashes tokens stored removed gaps; do
	more $name 0
done
followed late
more tokens 0
more removed 0

echo "-- kvblkd is held up, and the change feed loses records"
follow over
kill -STOP $daemon
blocks put 100000 1500 5000 7
more stored 1100
blocks delete 100000 700 1
kill -CONT $daemon
wait_for 30 logged "the change feed of pool $pool overflowed"
followed over
expect "how often all was cleared" "$cleared" 1

echo "-- another kvblkd"
follow both
kill -KILL $daemon
wait $daemon || true
follower_start
load 100 3
followed both
more cleared 1
more tokens 0

echo "-- the pool goes, and the daemon stays"
check pool_destroy
wait_for 30 logged "the change feed of pool $pool has ended"
check kill -0 $daemon
