#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=240 takes=40 kernels=newest,6.12,debug,debug-smp check=debug leaks=1
# Quotas of tenants. Usage is exactly what the tenant has on members, whatever way blocks come and leave. A hard limit
# fails puts and is never exceeded. Above a soft limit the tenant's own coldest blocks go, and no other tenant's.
# slow: floods, and a pool that is filled, on an emulated CPU.
. "${0%/*}/pool.bash"
llm=/dev/kvblk/$pool/llm chat=/dev/kvblk/$pool/chat
# bytes of a block's record on a member: a header of 4 KiB, and the payload in units of 4 KiB
size=50000 record=57344

# show TENANT FIELD...: print fields of a tenant in one line; counters by their names
show() {
	kvblk tenant list $pool -o json | python3 -c 'import json, sys
tenant = next(t for t in json.load(sys.stdin) if t["name"] == sys.argv[1])
print(*({**tenant, **tenant["counters"]}[field] for field in sys.argv[2:]))' "$@"
}

# uses TENANT BLOCKS: the tenant has as many blocks, of one size
uses() {
	[ "$(show "$1" used_bytes used_blocks)" = "$(($2 * record)) $2" ]
}

# used TENANT BLOCKS
used() {
	expect "usage of $1" "$(show "$1" used_bytes used_blocks)" "$(($2 * record)) $2"
}

# at_most TENANT BLOCKS: for wait_for
at_most() {
	[ "$(show "$1" used_blocks)" -le "$2" ]
}

# limit TENANT OPTION...
limit() {
	check kvblk tenant set $pool "$@"
}

# opened: $stepper_pid has the node open; for wait_for
opened() {
	readlink /proc/$stepper_pid/fd/* | grep -qx $llm
}

# again: stop and import the pool
again() {
	check pool_destroy
	pool_import /dev/flash0 /dev/flash1
}

kv_load
flash 2 160
pool_format /dev/flash0 /dev/flash1
check kvblk tenant create $pool llm
check kvblk tenant create $pool chat

echo "-- usage is what was put"
of $llm put 1 20 $size 1
of $chat put 1 5 $size 2
of $node put 1 3 $size 3
used llm 20
used chat 5
used default 3
of $llm put 1 20 $size 1
expect "puts of blocks that are there" "$exists" 20
used llm 20
of $llm delete 1 5 $size
used llm 15
of $llm put 3 5 $size 1
expect "puts after deletes" "$stored $exists" "3 2"
used llm 18
head -c $size /dev/urandom | check kvblk put $pool/llm --ttl 1 short -
used llm 19
expired() {
	! kvblk get $pool/llm short "$tmp/block" 2>/dev/null
}
wait_for 20 expired
kvblk rm $pool/llm short || true
used llm 18
expect "counters of llm" "$(show llm puts put_bytes over_quota quota_drops)" "24 $((24 * size)) 0 0"

echo "-- it is the same after a restart"
again
used llm 18
used chat 5
used default 3
expect "counters of llm" "$(show llm puts hits misses)" "0 0 0"
of $llm get 1 20 $size 1
expect "counters of gets" "$(show llm hits hit_bytes misses)" "18 $((18 * size)) 2"
of $llm put 1 2 $size 1
used llm 20

echo "-- a hard limit is never exceeded"
limit llm --quota-blocks 25 --quota-blocks-soft 25
expect "limits" "$(show llm quota_blocks quota_blocks_soft quota_bytes weight)" "25 25 0 100"
for i in {21..30}; do
	of $llm put "$i" 1 $size 1
	expect "puts beyond the limit" "$stored $quota" "$((i <= 25)) $((i > 25))"
done
used llm 25
expect "puts that failed" "$(show llm over_quota puts)" "5 7"
of $llm get 21 10 $size 1
expect "blocks that were put" "$hits $misses $bad" "5 5 0"
of $chat put 6 5 $size 2
expect "puts of another tenant" "$stored" 5
limit llm --quota-blocks 0 --quota-blocks-soft 0 --quota-bytes $((40 * record)) --quota-bytes-soft $((40 * record))
# batches, and several at once
for i in 1 2 3; do
	guest_blocks $llm put $((100 * i)) 30 $size 1 >"$tmp/flood$i" &
done
for ((i = 0; i < 10; i++)); do
	at_most llm 40 || fail "llm uses $(show llm used_blocks) blocks, its limit is 40"
done
wait
# puts that come close to the limit together may fail, one alone does not
for i in {201..220}; do
	of $llm put "$i" 1 $size 1
done
used llm 40

echo "-- beyond a soft limit the coldest go, of this tenant only"
limit llm --quota-bytes 0 --quota-bytes-soft 0
of $llm delete 21 400 $size
used llm 20
of $llm get 1 20 $size 1
expect "hot blocks" "$hits" 20
limit llm --quota-blocks-soft 40
for i in {1..6}; do
	of $llm put $((1000 * i)) 30 $size 1
	expect "puts" "$stored" 30
	wait_for 20 at_most llm 40
done
of $llm get 1 20 $size 1
expect "hot blocks" "$hits $bad" "20 0"
of $chat get 1 10 $size 2
expect "blocks of chat" "$hits $bad" "10 0"
used chat 10
used default 3
left=$(show llm used_blocks) dropped=$(show llm quota_drops)
expect "blocks that were put, and dropped" $((20 + 180 - left)) "$dropped"
[ "$left" -gt 30 ] || fail "only $left blocks are left of 40"

echo "-- what was dropped stays away, and what is left is the same after a restart"
again
used llm "$left"
of $llm get 1 20 $size 1
expect "hot blocks" "$hits $bad" "20 0"
expect "limits after a restart" "$(show llm quota_blocks_soft)" 0

echo "-- a limit below the usage"
limit llm --quota-blocks 16
wait_for 20 at_most llm 15
used llm "$(show llm used_blocks)"
limit chat --quota-bytes-soft 1
wait_for 20 uses chat 0
of $chat get 1 10 $size 2
expect "blocks of chat" "$hits" 0
limit chat --quota-bytes-soft 0
used default 3

echo "-- a quota in memory: blocks beyond it go to members"
put $sysfs/dram_bytes $((64 << 20))
put $sysfs/dram_mode evict
limit chat --quota-dram $((10 * record))
for i in {1..30}; do
	of $chat put "$i" 1 $size 2
	expect "puts" "$stored" 1
	[ "$(show chat used_dram)" -le $((10 * record)) ] || fail "chat uses $(show chat used_dram) bytes of memory"
done
[ "$(show chat used_dram)" -gt 0 ] || fail "chat uses no memory"
[ "$(show chat used_blocks)" -ge 20 ] || fail "chat has $(show chat used_blocks) blocks on members"
of $chat get 1 30 $size 2
expect "blocks of chat" "$hits $bad" "30 0"
[ "$(show chat used_dram)" -le $((10 * record)) ] || fail "chat uses $(show chat used_dram) bytes of memory"
expect "memory of llm" "$(show llm used_dram)" 0
limit chat --quota-blocks 25 --quota-blocks-soft 25
of $chat put 101 10 $size 2
put $sysfs/dram_bytes 0
# no_memory: for wait_for
no_memory() {
	[ "$(show chat used_dram)" = 0 ]
}
wait_for 20 no_memory
of $chat get 1 110 $size 2
used chat "$hits"
at_most chat 25 || fail "memory was written to members beyond the quota"
limit chat --quota-blocks 0 --quota-blocks-soft 0

echo "-- a removed member takes its share along, and a clear all"
before=$(show chat used_blocks)
check kvblk member remove --yes $pool flash1
wait_for 20 member_is flash1 gone
of $chat get 1 110 $size 2
used chat "$hits"
[ "$hits" -lt "$before" ] || fail "the member had no blocks"
limit chat --weight 300
check kvblk tenant clear --yes $pool chat
used chat 0
expect "limits and counters after a clear" "$(show chat quota_dram weight puts used_dram)" "$((10 * record)) 300 0 0"
of $chat put 1 5 $size 2
used chat 5
check kvblk tenant remove --yes $pool chat
check kvblk tenant create $pool chat
expect "a tenant of the same name" "$(show chat used_blocks quota_dram weight puts)" "0 0 100 0"

echo "-- segments that are reclaimed take their blocks along"
limit llm --quota-blocks 0
of $llm put 10000 2500 $size 1
of $llm get 10000 2500 $size 1
[ "$misses" -gt 0 ] || fail "nothing was reclaimed"
of $llm get 1 40 $size 1
rest=$hits
settled_usage() {
	of $llm get 10000 2500 $size 1
	uses llm $((hits + rest))
}
wait_for 20 settled_usage

echo "-- mode and owner, for open files, too"
coproc stepper { KV_STEP=1 exec guest_blocks $llm put 20000 2 $size 1 >"$tmp/stepper" 2>&1; }
stepper_pid=$!
defer "kill $stepper_pid 2>/dev/null; wait $stepper_pid 2>/dev/null || true"
echo -n x >&"${stepper[1]}"
wait_for 20 opened
limit llm --mode 0640 --owner 65534
expect "owner of the node" "$(stat -c %a:%u:%g $llm)" 640:65534:0
echo -n x >&"${stepper[1]}"
wait $stepper_pid || fail "puts of an open file: $(cat "$tmp/stepper")"
check pool_destroy
pool_import /dev/flash0
expect "owner of the node" "$(stat -c %a:%u:%g $llm)" 640:65534:0

echo "-- bad input"
limit llm --quota-bytes 1M
code 1 'is above quota-bytes (1048576)' kvblk tenant set $pool llm --quota-bytes-soft 2M
code 1 'is above quota-blocks (5)' kvblk tenant set $pool llm --quota-blocks 5 --quota-blocks-soft 6 --weight 7
code 1 "the node of \"default\"" kvblk tenant set $pool default --mode 0600
code 1 none kvblk tenant set $pool none --weight 7
expect "limits" "$(show llm quota_bytes quota_bytes_soft quota_blocks weight)" "1048576 0 0 100"
limit default --quota-bytes 1G --weight 50
expect "limits of default" "$(show default quota_bytes weight)" "1073741824 50"
no_failures
