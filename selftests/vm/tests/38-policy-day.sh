#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=900 takes=340 kernels=newest check=debug
# A day of a pool's budget, here 288 intervals of a second, under chats at full speed. The budget is half of the write
# rate without one: it must be kept in the second half of the day, and blocks must still hit. The policy's input and
# decisions are recorded in 38-policy-day.jsonl, for daemon/test/policy_test.c.
# slow: a day of the budget is 288 s.
. "${0%/*}/daemon.bash"

record=/log/38-policy-day.jsonl

# chats: replay new chats until stopped
chats() {
	local seed=1
	while [ ! -e "$tmp/stop" ]; do
		kvblk replay --pool $pool --synthetic --requests 50 --seed $((seed++)) --block-size 64K --threads 2 --quiet >/dev/null || return
	done
}

# written COMMAND...: run a command; sets $rate to the bytes written per second
written() {
	local before start=$SECONDS
	before=$(counter write_bytes)
	"$@"
	rate=$((($(counter write_bytes) - before) / (SECONDS - start)))
}

# looks COUNT: the policy has run at least COUNT times
looks() { [ -e $record ] && [ "$(wc -l <$record)" -ge "$1" ]; }

defer 'rm -rf /run/kvblkd'
kv_load
pool_with_drive
chats &
chats=$!
defer "touch $tmp/stop; wait $chats || true"
wait_for 120 counts_more 0 reclaimed_bytes
written sleep 30
free=$rate
[ "$free" -gt 0 ] || fail "nothing is written"

echo "-- half of it: each of two members a half of the half"
echo "pools = ( { name = \"$pool\"; budget: { bytes = \"$((free * 86400 / 4 >> 20))M\"; interval = 1; }; } );" >"$conf"
rm -f $record
KVBLKD_RECORD=$record daemon_start
wait_for 30 logged 'budget of'
wait_for 300 looks 144
gets_before=$(counter gets)
written wait_for 300 looks 288
touch "$tmp/stop"
check wait $chats
percent=$((rate * 100 / free))
echo "without a budget $free bytes a second, at half of it $percent % of that"
[ $percent -le 60 ] || fail "more than half is written"
[ $percent -gt 0 ] || fail "nothing is written any more"
[ "$(counter gets)" -gt "$gets_before" ] || fail "no block is a hit any more"
check grep -q 'admits less' "$tmp/log"
