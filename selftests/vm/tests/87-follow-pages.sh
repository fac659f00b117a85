#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: kernels=debug check=debug mem=3G timeout=600 takes=60
# A follower of a member with a segment table of four pages, of which it reads those that the change page names. It finds
# what the owner puts into segments of any page, and loses what the owner reclaims there, with no wrong byte. It reads
# all pages after more changes than the change page holds, and while there is no change page; the owner goes on, too. An
# idle owner's blocks are got without a read of the table.
# slow: over a thousand segments are written, 4 MiB each.
. "${0%/*}/pool.bash"
# of two such blocks, each needs a segment of its own
big=4194304
next=1000000

# field OFFSET TYPE COUNT: print numbers of the member's change page, as od does
field() {
	dd if=/dev/deep bs=4096 count=1 skip=$((page_at / 4096)) iflag=direct status=none | od -An -v -w4096 -j "$1" -t "$2" -N "$3"
}

# changes: print the number of table writes of which the owner has told
changes() {
	echo $(($(field 24 u8 8)))
}

# told_since NR: print which pages were written since then, or in the last 1,016 writes
told_since() {
	local nr at
	local -a ring
	nr=$(changes)
	read -ra ring <<<"$(field 32 u4 4064)"
	at=$((nr - $1 > 1016 ? nr - 1016 : $1))
	for (( ; at < nr; at++)); do
		echo "${ring[at % 1016]}"
	done | sort -u | paste -sd ' '
}

# tells BEAT: the owner has written the change page since it had this beat
tells() {
	[ $(($(field 16 u8 8))) -gt "$1" ]
}

# told: wait until the change page has all table writes so far, except for those of one that is being written
told() {
	wait_for 20 tells $(($(field 16 u8 8) + 1))
}

# fill COUNT: use up segments
fill() {
	on ta blocks put $next "$1" $big 7
	next=$((next + $1))
}

# turn COUNT: use up segments, whose blocks are deleted, so that they are reclaimed first
turn() {
	fill "$1"
	on ta blocks delete $((next - $1)) "$1" $big
}

# table_reads: print how often the follower has read pages of the table, of which there are four
table_reads() {
	dmsetup message seen 0 @stats_print 0 | awk '{ print $2 }'
}

# found FIRST COUNT: the follower finds and gets the owner's blocks
found() {
	wait_for 20 on tb sees "$1" "$2"
	on tb blocks get "$1" "$2" "$len" 7
	expect "foreign hits" "$hits $foreign" "$2 $2"
}

kv_load
nullb_create deep 3400 blocksize=4096
flash 1 96
dm_create own /dev/deep "0 %s linear /dev/deep 0"
dm_create seen /dev/deep "0 %s linear /dev/deep 0"
expect "id of the statistics" "$(dmsetup message seen 0 @stats_create 256+64 64)" 0
node_id a
on ta pod_pool_short /dev/mapper/own
node_id b
on tb pod_pool_short --seed-of /dev/mapper/own /dev/flash0
page_at=$(($(dd if=/dev/deep bs=4096 count=1 iflag=direct status=none | od -An -t u8 -j 232 -N 8) - 4096))
on tb check kvblk member follow tb /dev/mapper/seen
on ta blocks put 0 20 $len 7
found 0 20

echo "-- more changes than the change page holds, none of the last of page 0"
fill 100
on ta blocks put 20 20 $len 7
found 20 20
check dmsetup suspend --noflush seen
defer 'dmsetup resume seen'
was=$(changes)
fill 5
on ta blocks put 40 20 $len 7
fill 25
reads=$(table_reads)
# overrun: turn the log until so; for wait_for
overrun() {
	turn 32
	[ $(($(changes) - was)) -gt 1016 ] && [[ " $(told_since "$was") " != *" 0 "* ]]
}
wait_for 120 overrun
echo "$(($(changes) - was)) changes, the last ones of pages $(told_since "$was")"
expect "reads of the table" "$(table_reads)" "$reads"
check dmsetup resume seen
found 0 60
reads=$(($(table_reads) - reads))
# or else each change that is still named was read for
[ $reads -lt 1000 ] || fail "$reads reads of four pages"

echo "-- pages one by one"
marks=(0 20 40) pages=
# each_page: put blocks, use up fewer segments than any page has, until each page but the first had some; for wait_for
each_page() {
	local mark=$((${#marks[@]} * 100))
	told
	was=$(changes)
	turn 3
	on ta blocks put $mark 20 $len 7
	found $mark 20
	marks+=("$mark")
	told
	pages=$(tr ' ' '\n' <<<"$pages $(told_since "$was")" | sort -u | paste -sd ' ')
	fill 35
	[[ $pages == *1*2*3* ]]
}
wait_for 120 each_page

echo "-- without a change page"
nullb_create beats 1
dm_set own /dev/deep "0 $((page_at / 512)) linear /dev/deep 0
$((page_at / 512)) 8 linear /dev/beats 0
$((page_at / 512 + 8)) $(($(blockdev --getsz /dev/deep) - page_at / 512 - 8)) linear /dev/deep $((page_at / 512 + 8))"
check dd if=/dev/zero of=/dev/deep bs=4096 count=1 seek=$((page_at / 4096)) oflag=direct status=none
turn 8
on ta blocks put 20000 20 $len 7
found 20000 20
expect "change page" "$(field 0 x8 4096 | tr -d ' 0')" ""
dm_set own /dev/deep "0 %s linear /dev/deep 0"
wait_for 20 tells 0
told
turn 8
on ta blocks put 20100 20 $len 7
found 20100 20
marks+=(20000 20100)

echo "-- the whole log is turned over, under gets"
# gets POOL: get all these blocks; sets $got to the number of hits
gets() {
	local mark
	got=0
	for mark in "${marks[@]}"; do
		on "$1" blocks get "$mark" 20 $len 7
		got=$((got + hits))
	done
}
# turned: put more blocks, while the follower gets the former ones, until many of these were reclaimed; for wait_for
turned() {
	local putter
	fill 64 &
	putter=$!
	while kill -0 $putter 2>/dev/null; do
		gets tb
	done
	wait $putter || fail "puts failed"
	next=$((next + 64))
	gets tb
	[ $got -lt $((${#marks[@]} * 12)) ]
}
wait_for 120 turned
# agree: the follower gets what the owner has, and misses the rest; for wait_for
agree() {
	local owner
	gets ta
	owner=$got
	gets tb
	[ $got = "$owner" ]
}
wait_for 20 agree
len=$big found $((next - 32)) 32
on ta no_failures
on tb no_failures

echo "-- an idle owner's blocks, without reads of the table"
# of 10 seconds, a proof by a beat is two seconds old
put /sys/class/kvblk/ta/reuse_grace_ms 10000
on ta blocks put 30000 20 $len 7
found 30000 20
# idle: the table was not read for a while, and no get needs it; for wait_for
idle() {
	local reads proofs
	reads=$(table_reads) proofs=$(on tb counter foreign_proofs)
	sleep 12
	reads=$(($(table_reads) - reads))
	on tb blocks get 30000 20 $len 7
	expect "foreign hits" "$hits $foreign" "20 20"
	proofs=$(($(on tb counter foreign_proofs) - proofs))
	echo "$reads reads of the table, $proofs by gets"
	[ "$reads $proofs" = "0 0" ]
}
wait_for 60 idle
