#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: kernels=newest,6.12,debug check=debug mem=1G timeout=200 takes=25
# What a follower could not enter at first, it enters later: blocks for which its index had no room, and blocks that
# seemed to be expired because of an owner's wrong clock.
. "${0%/*}/pool.bash"
len=16384

# followed NAME FIELD: print a number of a followed member
followed() {
	kvblk member list tb --foreign -o json |
		awk -v name="\"$1\"," -v field="\"$2\":" '$1 == "\"name\":" { at = $2 } $1 == field && at == name { print $2 + 0 }'
}

# complete NAME LEAST: all blocks of the member have a slot, at least so many
complete() {
	[ "$(followed "$1" lacks)" = 0 ] && [ "$(followed "$1" blocks)" -ge "$2" ]
}

# lacking: some blocks of flash1 have no slot; sets $lacks and $blocks; for wait_for
lacking() {
	lacks=$(followed flash1 lacks) blocks=$(followed flash1 blocks)
	[ "$lacks" -gt 0 ]
}

# follow NAME: follow a member, and wait until all of it was read
follow() {
	check kvblk member follow tb "/dev/$1"
	wait_for 20 is_up "$1"
}

is_up() {
	[ "$(kvblk member list tb --foreign -H | awk -F '\t' -v name="$1" '$2 == name { print $3 }')" = up ]
}

kv_load
flash 3 96
node_id a
on ta pod_pool /dev/flash0 /dev/flash1
on ta blocks put 0 1000 $len 7
expect "blocks put" "$stored" 1000

echo "-- an index with too few slots, and more room once a member is not followed any more"
node_id b
on tb pod_pool --seed-of /dev/flash0 --index-slots 400 /dev/flash2
follow flash0
follow flash1
wait_for 20 lacking
echo "flash1: $blocks blocks have a slot, $lacks have none"
check kvblk member unfollow tb flash0
wait_for 60 complete flash1 $((blocks + lacks))
on tb blocks get 0 1000 $len 7
[ "$hits" -ge $((blocks + lacks)) ] || fail "$hits hits"
on tb pool_destroy

echo "-- an owner that is down, and whose clocks are far ahead"
put_day() {
	head -c 5000 /dev/urandom | kvblk put ta --ttl 86400 "day$1" -
}
# put_days NR...: put blocks that expire; after an import there may be no space within the grace
put_days() {
	local nr
	for nr; do
		wait_for 30 put_day "$nr"
	done
}
# has_days NR...: the follower has all of these blocks
has_days() {
	local nr
	for nr; do
		kvblk get tb "day$nr" >/dev/null 2>&1 || return 1
	done
}
on tb pod_pool --seed-of /dev/flash0 /dev/flash2
put_days 0
on ta pool_destroy
for n in 0 1; do
	check crash_media_fuzz field /dev/flash$n wall=1000 table.time=$((200 * 86400))
done
follow flash0
follow flash1
on tb blocks get 0 1000 $len 7
expect "hits of blocks that do not expire" "$hits" 1000
refuse has_days 0

echo "-- the clocks are set back"
node_id a
on ta pool_import --force /dev/flash0 /dev/flash1
put_days 1 2 3 4
wait_for 60 has_days 1 2 3 4
on tb no_failures
on tb pool_destroy
on ta pool_destroy
