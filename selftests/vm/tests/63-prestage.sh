#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=180 takes=50 kernels=newest,6.12,debug check=debug
# Blocks are in DRAM before they are requested: by the command, and by hints at kvblkd's socket; in order, as far as
# they are wanted and DRAM has space. Prefetched blocks are served from DRAM, and a lease keeps them there.
# slow: memory is filled several times over.
. "${0%/*}/daemon.bash"

socket=$tmp/prestage.sock
MiB=$((1 << 20))
prestage() {
	python3 /kvblk/selftests/runtimes/prestage.py "$@"
}

# keys FIRST COUNT [FIRST COUNT]...: write keys to the file keys
keys() {
	: >"$tmp/keys"
	while [ $# -gt 0 ]; do
		prestage keys "$1" "$2" >>"$tmp/keys"
		shift 2
	done
}

# warm CODE RESULTS [OPTION]...: run kvblk prefetch on the file keys; check its exit code and the first letter of each
# key's result
warm() {
	local rc=0
	kvblk prefetch $pool --hex --keys "$tmp/keys" -H -p "${@:3}" >"$tmp/said" || rc=$?
	cat "$tmp/said"
	expect "exit code of kvblk prefetch ${*:3}" $rc "$1"
	expect "results" "$(cut -c1 "$tmp/said" | tr -d '\n')" "$2"
}

# order FIRST COUNT [FIELD=JSON]...: order blocks through the socket; sets variables to the response
order() {
	local line
	request='' state='' loaded=0 leading=0 leased=0 results=''
	line=$(prestage order "$socket" "$@") || fail "order $*"
	echo "order $*: $line"
	eval "$line"
}

# from_memory FIRST COUNT: gets of these blocks read nothing from the members
from_memory() {
	local reads
	reads=$(counter read_bytes)
	blocks get "$1" "$2" $MiB
	expect "gets of $2 from $1 on, and from memory" "$hits $memory" "$2 $2"
	[ $(($(counter read_bytes) - reads)) -lt $MiB ] || fail "gets of what was prefetched read from the members"
}

# has_room: one more block fits; the pool frees a sixteenth, but no more
has_room() {
	[ $(($(cat $sysfs/dram_used) + MiB)) -le "$(cat $sysfs/dram_bytes)" ]
}

cat >"$conf" <<-END
	prestage: { socket = "$socket"; pools = ( "$pool" ); waiting = 4; request_bytes = "16M"; };
END
kv_load
flash 2 74
echo "-- of those that a get holds up, one with a priority goes first"
tracefs_mount
dm_flakey held /dev/flash0
pool_format /dev/mapper/held
check guest_prefetch_order $node put
put $sysfs/dram_bytes $((32 * MiB))
put $sysfs/put_window_bytes 65536
put $tracefs/events/kvblk/kvblk_get/enable 1
defer "put $tracefs/events/kvblk/kvblk_get/enable 0; echo >$tracefs/trace"
check dmsetup suspend --noflush --nolockfs held
defer '[ ! -b /dev/mapper/held ] || dmsetup resume held'
guest_prefetch_order $node run &
wait_for 20 counts_more 1 inflight
check dmsetup resume held
wait $! || fail "a block was not there"
put $tracefs/events/kvblk/kvblk_get/enable 0
lengths=$(grep -o 'kvblk_get: .*length=[0-9]*' $tracefs/trace | sed 's/.*=//' | tr '\n' ' ')
# only the get and requests already in flight precede the higher priority
[[ $lengths =~ ^(100000\ ){1,2}50000 ]] || fail "blocks came in this order: $lengths"
check pool_destroy
check dmsetup remove held

echo "-- the first ones serve while the last ones are under way"
# blocks on the second member arrive once that is fast again
dm_create late /dev/flash1 "0 %s linear /dev/flash1 0"
second_is() { dm_set late /dev/flash1 "0 %s $1"; }
modprobe -q dm_delay || true
pool_format /dev/flash0 /dev/mapper/late
put $sysfs/suspect_ms 3600000
# or else the cleanup waits for the device
defer '[ ! -b /dev/mapper/late ] || second_is "linear /dev/flash1 0"'
blocks put 1 16 65536
second_is "delay /dev/flash1 0 600000"
soon=() behind=()
for i in {1..16}; do
	KV_DEADLINE_MS=$((200 * KVBLK_SLOW)) blocks get "$i" 1 65536
	if [ "$hits" = 1 ]; then
		soon+=("$i" 1)
	else
		behind+=("$i" 1)
	fi
done
[ ${#soon[@]} -ge 8 ] && [ ${#behind[@]} -ge 8 ] || fail "on the members: ${soon[*]}, ${behind[*]}"
put $sysfs/dram_bytes $((32 * MiB))
keys "${soon[@]}" "${behind[@]}"
kvblk prefetch $pool --hex --keys "$tmp/keys" -H -p >"$tmp/came" &
# in_memory NR: the block is in DRAM; for wait_for
in_memory() {
	blocks get "$1" 1 65536
	[ "$memory" = 1 ]
}
for ((i = 0; i < ${#soon[@]}; i += 2)); do
	wait_for 20 in_memory "${soon[i]}"
done
[ ! -s "$tmp/came" ] || fail "the last ones have come: $(cat "$tmp/came")"
second_is "linear /dev/flash1 0"
wait $! || fail "the prefetch failed: $(cat "$tmp/came")"
expect "results" "$(cut -c1 "$tmp/came" | tr -d '\n')" llllllllllllllll
check pool_destroy
check dmsetup remove late

pool_format /dev/flash0 /dev/flash1
daemon_start
wait_for 30 logged "listening at $socket"
blocks put 1 60 $MiB
expect "puts" "$stored" 60

echo "-- no memory"
keys 1 2
code 1 'keeps no blocks in the host.s memory' kvblk prefetch $pool --hex --keys "$tmp/keys"
order 1 2
expect "a hint for a pool without memory" "$state" failed
put $sysfs/dram_bytes $((32 * MiB))

echo "-- by the command"
keys 1 3 901 1 4 2
warm 3 lllmcc --stop
keys 1 3
from_memory 1 3
keys 11 5
warm 0 llccc --max-bytes 2M
expect "prefetched" "$(counter prefetches)" 5

echo "-- by hints"
order 21 4
expect "a hint" "$state $loaded $leading $leased $results" "completed 4 4 0 llll"
from_memory 21 4
order 21 5 'mode="warm"' max_bytes=$((2 * MiB))
expect "a hint of what is there, but one" "$loaded $leading $results" "1 5 rrrrl"
order 26 2 deadline=1
expect "a hint that is late" "$results" ee
prestage ask "$socket" POST /v1/sessions/chat-1 31 3 | grep -q '"keys": 3' || fail "a session is not taken"
order 0 0 'session_id="chat-1"'
expect "a hint by a session" "$loaded $results" "3 lll"
from_memory 31 3
[[ $(prestage ask "$socket" POST /l2/prefetch 0 0 'session_id="chat-2"') == *'unknown session chat-2'* ]] || fail "another session is known"
[[ $(prestage ask "$socket" POST /l2/prefetch 1 1 'pool="other"') == *'pool other is not available at this socket'* ]] || fail "another pool is allowed"

echo "-- more than there is room for"
put $sysfs/dram_bytes $((8 * MiB))
order 1 60
clipped=${results//[lr]/}
[[ $clipped =~ ^c+$ ]] && [ ${#clipped} -ge 40 ] && [ "$loaded" -le 20 ] || fail "a hint of more than memory holds: $results"

echo "-- a lease keeps blocks in memory, and the pool, until it is released"
put $sysfs/dram_bytes $((16 * MiB))
put $sysfs/dram_mode through
order 51 4
expect "not leased" "$leading $leased" "4 0"
order 41 4 'mode="lookup"' lease_ms=60000
expect "leased" "$leading $leased" "4 4"
for i in {1001..1020}; do
	wait_for 20 has_room
	blocks put "$i" 1 $MiB
done
blocks get 51 4 $MiB
expect "gets of what is not leased" "$hits $memory" "4 0"
from_memory 41 4
blocks put 1101 200 $MiB
blocks get 1 40 $MiB
[ "$misses" -gt 20 ] || fail "of 40 blocks only $misses went from the pool"
blocks get 41 4 $MiB
expect "gets of leased blocks" "$hits" 4
prestage ask "$socket" DELETE "/l2/prefetch/$request" | grep -q released || fail "the lease is not released"
put $sysfs/dram_bytes $((32 * MiB))
order 1299 2 'mode="lookup"'
expect "leased" "$leased" 2
code 1 'force' kvblk pool destroy $pool
prestage ask "$socket" DELETE "/l2/prefetch/$request" | grep -q released || fail "the lease is not released"

echo "-- what was asked for lately stays, what was not makes room"
put $sysfs/dram_bytes 0
put $sysfs/dram_mode evict
wait_for 20 dram_is 0
put $sysfs/dram_bytes $((16 * MiB))
blocks put 2001 4 $MiB
from_memory 2001 4
blocks put 2011 8 $MiB
# blocks that do not fit are clipped, and cause evictions
ordered() {
	order 1289 8
	[[ $results =~ ^[lr]{8}$ ]]
}
wait_for 20 ordered
from_memory 2001 4
blocks get 2011 8 $MiB
[ "$memory" -lt 8 ] || fail "nothing went for what was prefetched"

check pool_destroy
check kill -0 $daemon
