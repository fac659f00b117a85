#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=140 takes=42 check=debug
# Lookups report the blocks that are present. Leased blocks survive pressure until release, close or the lease's
# deadline. If nearly all of a member is leased, the pool keeps working and reclaim does not copy the blocks again and
# again.
# slow: a pool is written several times over, by both interfaces and once more beside leases.
. "${0%/*}/pool.bash"

kv_load
flash 1 74
engines=(ioctl uring)
# only the ring on this slow kernel: it runs all that the ioctl does
[ "$KVBLK_KERNEL" != debug-smp ] || engines=(uring)
for engine in "${engines[@]}"; do
	pool_format /dev/flash0
	check env "KV_ENGINE=$engine" guest_lookup_lease $node
	no_failures
	more_than 0 segments_reclaimed
	check pool_destroy
done

# lease the blocks of one of two members, held by processes until their stdin ends
holders=()
mkfifo "$tmp/hold"
exec 8<>"$tmp/hold"

# holds FILES: each file leases as much as permitted of its share of blocks 1 to 80
holds() {
	local i
	for ((i = 0; i < $1; i++)); do
		KV_STAY=1 guest_blocks $node lease $((1 + i * 80 / $1)) $((80 / $1)) 1 <&8 >"$tmp/leased" &
		holders+=($!)
		defer "kill $! 2>/dev/null; wait $! 2>/dev/null || true"
		wait_for 20 grep -q leased= "$tmp/leased"
		cat "$tmp/leased"
		rm "$tmp/leased"
	done
}

lets_go() {
	kill "${holders[@]}"
	wait "${holders[@]}" || true
	holders=()
}

# reclaimed: print the segments reclaimed on /dev/small
reclaimed() {
	[[ $(kvblk stat $pool small -o json) =~ \"segments_reclaimed\":\ ([0-9]+) ]] && echo "${BASH_REMATCH[1]}"
}

# puts_reclaim THAN: put more, and check that /dev/small has reclaimed more than THAN segments
next=1000
puts_reclaim() {
	blocks put $next 30 1000000
	next=$((next + 30))
	[ "$(reclaimed)" -gt "$1" ]
}

echo "-- leases of a small member's blocks"
nullb_create small 106
nullb_create large 400
pool_format /dev/small
blocks put 1 80 1000000
small=$(cat $sysfs/capacity)
check kvblk member add --yes --format --segment-size 8M $pool /dev/large
wait_for 30 pool_is_up
holds 4
leased=$(cat $sysfs/leased_bytes)
[ "$leased" -gt $((small / 8)) ] && [ "$leased" -le $((small / 4)) ] || fail "of $small bytes $leased are leased"
while ! puts_reclaim 4; do
	[ $next -lt 1600 ] || fail "a quarter of a member is leased, and it makes no room"
done
expect "puts without room" "$full" 0
lets_go

echo "-- leases of nearly all of it: it rests until they end"
put $sysfs/lease_permille 1000
check pool_destroy
pool_format /dev/small
put $sysfs/lease_permille 1000
put $sysfs/admit_permille 1000
blocks put 1 80 1000000
check kvblk member add --yes --format --segment-size 8M $pool /dev/large
wait_for 30 pool_is_up
holds 5
leased=$(cat $sysfs/leased_bytes)
[ "$leased" -gt $((small * 7 / 10)) ] || fail "of $small bytes $leased are leased"
for ((i = 0; i < 6; i++)); do
	blocks put $((3000 + 40 * i)) 40 1000000
	expect "puts beside leases" "$stored" 40
done
copied=$(counter reinsert_bytes)
[ "$copied" -le "$leased" ] || fail "reclaim copied $copied bytes, of which $leased are leased"
blocks get 1 80 1000000
expect "gets of leased blocks" "$hits" 80
before=$(reclaimed)
lets_go
while ! puts_reclaim "$before"; do
	[ $next -lt 2200 ] || fail "the leases have ended, and the member makes no room"
done
check pool_destroy
