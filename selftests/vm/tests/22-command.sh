#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=180 takes=31 kernels=newest,6.12,debug check=debug
# The command against the module: nouns and verbs work as their help says, in text and in JSON, with exit codes for
# scripts. kvblkd logs events, waits for the module and survives its removal.
. "${0%/*}/pool.bash"

# json EXPRESSION COMMAND...: the expression is true of the command's JSON, d
json() {
	"${@:2}" -o json >"$tmp/json" || fail "exit code $?: ${*:2}"
	python3 -c 'import json, sys; d = json.load(open(sys.argv[1])); sys.exit(not eval(sys.argv[2]))' "$tmp/json" "$1" ||
		fail "${*:2}: not $1: $(cat "$tmp/json")"
}

logged() {
	grep -q -- "$1" "$tmp/log"
}

absent() {
	! kvblk exists $pool "$1" >/dev/null
}

flash 3 200
code 1 'modprobe kvblk' kvblk pool list
/build/user/daemon/kvblkd 2>"$tmp/log" &
daemon=$!
defer "kill $daemon 2>/dev/null || true"
wait_for 10 logged 'waiting for it'
kv_load
wait_for 10 logged 'no pools yet'

json 'd == []' kvblk pool list
code 1 "no pool $pool; pools here: none" kvblk get $pool key
code 1 "^kvblk: $pool: /dev/nope does not exist\$" kvblk pool create $pool /dev/flash0 /dev/nope
code 1 "^kvblk: $pool: /dev/null is not a block device\$" kvblk pool create $pool /dev/null
nullb_create tiny 40
code 1 'tiny is too small (40 MiB): 8 segments need 65 MiB' kvblk pool create $pool /dev/tiny
json 'd["nr_members"] == 2' kvblk pool create $pool --format --yes --strict --segment-size 16M --index-slots 5000 --member /dev/flash0 /dev/flash1
defer pool_destroy
wait_for 30 pool_is_up
wait_for 10 logged "^kvblkd: pool-up: pool $pool"
json 'len(d) == 1 and d[0]["name"] == "t"' kvblk pool list
expect "a list for scripts" "$(kvblk pool list -Hp | cut -f 1,2)" "$pool	2"
json 'd["strict"] and d["index_slots"] >= 5000 and len(d["members"]) == 2 and d["epoch"] == 1' kvblk pool show $pool
kvblk pool plan --block-size 1M --segment-size 16M --index-slots 5000 /dev/flash0 /dev/flash1 -o json >"$tmp/plan"
# lock debugging makes an index larger than the command can compute
values=(nr_segments index_bytes)
[[ $KVBLK_KERNEL != debug* ]] || unset 'values[1]'
for value in "${values[@]}"; do
	json "d['$value'] == $(sed -n "s/.*\"$value\": \([0-9]*\).*/\1/p" "$tmp/plan")" kvblk pool show $pool
done
json 'all(m["segment_size"] == 16 << 20 and m["state"] == "up" for m in d)' kvblk member list $pool
code 1 'there is a pool' kvblk pool create $pool --format --yes /dev/flash2
code 1 'no pool' kvblk pool destroy absent
code 1 "no pool tt; pools here: $pool\$" kvblk get tt key
code 1 "no pool tt; pools here: $pool\$" kvblk topo tt

head -c 3000000 /dev/urandom >"$tmp/block"
json 'd["result"] == "stored" and d["length"] == 3000000 and not d["direct"]' \
	kvblk put $pool a "$tmp/block" --caller-tag 7 --layout-tag 0x10 --priority 1 --parent root
json 'd["result"] == "exists"' kvblk put $pool a "$tmp/block"
code 1 'another length' kvblk put $pool a /etc/passwd
check kvblk put $pool short "$tmp/block" --ttl 1
check cmp "$tmp/block" <(kvblk get $pool a)
json 'd["fetched"] == 1024 and d["length"] == 3000000 and d["caller_tag"].endswith("07")' \
	kvblk get $pool --hex 61 "$tmp/part" --offset 1M --length 1K
check cmp "$tmp/part" <(tail -c +1048577 "$tmp/block" | head -c 1024)
json 'd == [{"key": "a", "present": True, "length": 3000000}]' kvblk exists $pool a
code 3 'b *absent' kvblk exists $pool a b
code 3 'no such block' kvblk get $pool b "$tmp/none"
[ ! -e "$tmp/none" ] || fail "a miss made a file"
wait_for 10 absent short
json 'd == [{"key": "a", "removed": True}]' kvblk rm $pool a
code 3 'no such block' kvblk rm $pool a

json 'd[0]["counters"]["puts"] == 2 and d[0]["counters"]["deletes"] == 1 and sum(d[0]["latency"]["put"]["log2_buckets"]) > 0' kvblk stat $pool
# by a node with another path, as in a container
check mknod "$tmp/node" c "$(stat -Lc %Hr $node)" "$(stat -Lc %Lr $node)"
check kvblk put "$tmp/node" by-path "$tmp/block"
check cmp "$tmp/block" <(kvblk get "$tmp/node" by-path)
code 1 "$tmp/none: no such node" kvblk get "$tmp/none" by-path
code 1 "$tmp/block is not the node of a pool" kvblk get "$tmp/block" by-path
check kvblk rm $pool by-path
put /proc/sys/kernel/io_uring_disabled 2
code 1 'io_uring is forbidden here, by sysctl kernel.io_uring_disabled' kvblk bench $pool --op put --size 4K --seconds 0.1
put /proc/sys/kernel/io_uring_disabled 0
expect "lines of stat" "$(kvblk stat $pool --watch=0.2 --count 2 | wc -l)" 3
expect "objects of stat" "$(kvblk stat --watch=0.2 --count 2 -o json | grep -c per_second)" 2
others=$(listeners) # includes kvblkd
kvblk events $pool --count 2 -o json >"$tmp/events.json" &
wait_for 10 more_listeners "$others"
json 'd["added"]' kvblk member add $pool --format --yes --segment-size 8M /dev/flash2
wait_for 30 member_is flash2 up
code 1 'flash2, 200 MiB: blocks of pool t, one of its 3 members' kvblk pool create other --format /dev/flash2
json 'd["removed"]' kvblk member remove --yes $pool /dev/flash2
check wait $!
expect events "$(grep -oE '"event":"member-(up|down)"' "$tmp/events.json" | xargs)" 'event:member-up event:member-down'
expect "numbers of events" "$(grep -oE '"(blocks|error)": *[0-9]+' "$tmp/events.json" | tr -d '" ')" blocks:0
expect "events of a second" "$(kvblk events --seconds 0.2)" ""
code 1 'initial network namespace' unshare -n kvblk pool list

kvblk doctor -H >"$tmp/doctor" || true
for line in 'ok	module	kvblk .* is loaded' "ok	pool	$pool: 2 of 2 members serve"; do
	grep -q "^$line" "$tmp/doctor" || fail "the doctor does not say $line: $(cat "$tmp/doctor")"
done
json 'd["health"] == "ok" and d["pools"][0]["members_up"] == 2' kvblk status
code 0 "^$pool  *ok  *2 of 2" kvblk status
json 'd["pool"] == "t" and d["seconds"] > 0.1 and d["health"] == "ok"' kvblk iostat $pool 200ms 1

coproc holder { exec guest_blocks $node hold; }
holder_pid=$!
read -r _ <&"${holder[0]}"
code 1 'has the node open: close it, or pass --force' kvblk pool destroy $pool
json 'd["destroyed"]' kvblk pool destroy $pool --force
wait_for 10 logged "^kvblkd: pool-down: pool $pool"
kill "$holder_pid"
wait "$holder_pid" 2>/dev/null || true
kv_unload
wait_for 10 logged 'was unloaded'
kill $daemon
check wait $daemon
