#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: kernels=newest,6.12 check=newest mem=1G timeout=200 takes=30
# The host of two pools of a pod, one of which follows the other, freezes its tasks and work queues for longer than the
# grace, as at a suspend, while the owner reclaims and the follower gets. No get returns a wrong byte, the first ones
# afterwards are proven by the table, and new blocks are found. Devices and clocks go on, because the root file system
# of these machines survives no suspend of its device.
. "${0%/*}/pool.bash"

[ -e /sys/power/pm_test ] || skip "no CONFIG_PM_DEBUG"

# frozen: freeze for 11 s, unless a task cannot be frozen; for wait_for
frozen() {
	echo freeze 2>/dev/null >/sys/power/state
}

# put_on, get_on: put so many blocks that the owner reclaims, or get them, until $tmp/enough exists
put_on() {
	local nr=1000
	while [ ! -e "$tmp/enough" ]; do
		on ta blocks put $nr 200 $len 7
		nr=$((nr + 200))
	done
}

get_on() {
	while [ ! -e "$tmp/enough" ]; do
		on tb blocks get 0 100 $len 7
		on tb blocks get 1000 2000 $len 7
	done
}

kv_load
flash 2 96
node_id a
on ta pod_pool /dev/flash0
node_id b
on tb pod_pool --seed-of /dev/flash0 /dev/flash1
for value in power/pm_test=freezer power/sync_on_suspend=0 module/suspend/parameters/pm_test_delay=11; do
	# the value in brackets, if the file lists several
	before=$(sed 's/.*\[\(.*\)\].*/\1/' "/sys/${value%=*}")
	defer "put /sys/${value%=*} $before"
	put "/sys/${value%=*}" "${value#*=}"
done
on ta blocks put 0 100 $len 7
check kvblk member follow tb /dev/flash0
wait_for 20 on tb sees 0 100
on tb blocks get 0 100 $len 7
expect "foreign hits" "$hits $foreign" "100 100"

echo "-- idle"
# proven: the first gets afterwards are proven by the table; for wait_for, because polls may be faster than they
proven() {
	frozen || return
	on tb blocks get 0 100 $len 7
	expect "foreign hits" "$hits $foreign" "100 100"
	on tb counts_more "$proofs" foreign_proofs
}
proofs=$(on tb counter foreign_proofs)
wait_for 60 proven
echo "$((value - proofs)) gets were proven by the table"

echo "-- under puts, reclaim and gets"
put_on >"$tmp/puts" 2>&1 &
putter=$!
get_on >"$tmp/gets" 2>&1 &
getter=$!
defer 'touch "$tmp/enough"; wait'
wait_for 60 on ta counts_more 0 segments_reclaimed
wait_for 60 frozen
echo "puts and gets until then:"
tail -n 2 "$tmp/puts" "$tmp/gets"
reclaimed=$(on ta counter segments_reclaimed)
wait_for 60 on ta counts_more "$reclaimed" segments_reclaimed
touch "$tmp/enough"
wait $putter || fail "puts: $(tail "$tmp/puts")"
wait $getter || fail "gets: $(tail "$tmp/gets")"
grep -q 'foreign=[1-9]' "$tmp/gets" || fail "no get found a block: $(tail "$tmp/gets")"

echo "-- and the follower finds what is new"
on ta blocks put 900000 50 $len 7
new=$stored
[ "$new" -gt 0 ] || fail "the owner puts no more"
wait_for 20 on tb sees 900000 "$new"
on tb blocks get 900000 "$new" $len 7
expect "foreign hits, misses" "$hits $foreign $misses" "$new $new 0"
on tb no_failures
