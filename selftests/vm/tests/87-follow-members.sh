#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: kernels=newest,6.12,debug check=debug mem=768M timeout=200 takes=25
# A follower of members of later versions ignores unknown bits of compat and ro_compat, and refuses to follow one with an
# unknown bit of incompat. If an owner sets such a bit later, its blocks are misses. One pool follows 66 members, more
# than a pool may have of its own.
. "${0%/*}/pool.bash"

# foreign_is NAME STATE: the second pool follows this member
foreign_is() {
	kvblk member list tb --foreign -H | awk -F '\t' -v name="$1" -v state="$2" '$2 == name && $3 == state { n++ } END { exit !n }'
}

# gets FIRST COUNT: the second pool finds and gets these blocks of others
gets() {
	wait_for 20 on tb sees "$1" "$2"
	on tb blocks get "$1" "$2" $len 7
	expect "foreign hits" "$hits $foreign" "$2 $2"
}

# supers OPTION...: copy both superblocks
supers() {
	check dd "$@" bs=64K count=2 conv=notrunc status=none
}

# not_followed: the follower refuses the member of the first pool
not_followed() {
	code 1 "theirs was written by another version of kvblk: update this node" kvblk member follow tb /dev/theirs
}

# all_up COUNT: so many members are followed, and all are up; for wait_for
all_up() {
	[ "$(kvblk member list tb --foreign -H | awk -F '\t' '$3 == "up"' | wc -l)" = "$1" ]
}

# each_got: the owners put more blocks, which the second pool gets; it got some from each member; for wait_for
each_got() {
	on ta blocks put $next 100 $len 7
	on tc blocks put $((next + 100)) 100 $len 7
	gets $next 200
	next=$((next + 200))
	[ "$(kvblk member list tb --foreign -o json | grep -c '^ *"gets": [1-9]')" = 66 ]
}

kv_load
nullb_create own 96
nullb_create theirs 96
node_id a
on ta pod_pool_short /dev/theirs
on ta blocks put 0 20 $len 7
on ta pool_destroy
node_id b
on tb pod_pool_short --seed-of /dev/theirs /dev/own

echo "-- unknown bits of a member to follow"
supers if=/dev/theirs of="$tmp/supers" iflag=direct
check crash_media_fuzz field /dev/theirs compat=0x40 ro_compat=5
on tb check kvblk member follow tb /dev/theirs
gets 0 20
on tb check kvblk member unfollow tb theirs
supers if="$tmp/supers" of=/dev/theirs oflag=direct
# of the newer copy only, as while an owner is updated
check crash_media_fuzz field /dev/theirs incompat=0x40000000
not_followed
check crash_media_fuzz feature /dev/theirs
not_followed
supers if="$tmp/supers" of=/dev/theirs oflag=direct

echo "-- unknown bits of a member that is followed"
node_id a
on ta pool_import --force /dev/theirs
on tb check kvblk member follow tb /dev/theirs
gets 0 20
check crash_media_fuzz feature /dev/theirs
wait_for 20 foreign_is theirs unrestored
on tb blocks get 0 20 $len 7
expect "hits of a member of another version" "$hits" 0
dmesg | grep -q "member theirs: its owner uses another version of kvblk; gets of its blocks miss; update this node" ||
	fail "the log does not say why"
kvblk status tb | grep -q "followed member theirs of node .* is of another version" || fail "status: $(kvblk status tb)"
not_followed

echo "-- and of one that no longer has them"
on ta pool_destroy
on tb check kvblk member follow tb /dev/theirs
gets 0 20
on tb check kvblk member unfollow tb theirs

echo "-- 66 members of two owners"
flash 66 72
mapfile -t devices < <(printf '/dev/flash%d\n' {0..65})
on ta pod_pool_short --seed-of /dev/own "${devices[@]:0:33}"
node_id c
on tc pod_pool_short --seed-of /dev/own "${devices[@]:33}"
for device in "${devices[@]}"; do
	on tb check kvblk member follow tb "$device"
done
wait_for 60 all_up 66
next=1000
wait_for 60 each_got
on tb no_failures
