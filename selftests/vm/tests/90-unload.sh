#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=100 takes=28 leaks=1 check=newest,6.12,debug kernels=newest,6.12,debug,debug-smp
# A module that was used and is unloaded leaves nothing: no node, class, netlink family, cache, workqueue, thread or
# claimed device. It cannot be unloaded while in use.
. "${0%/*}/pool.bash"

# state: print objects made by the module, and modules it uses
state() {
	{
		genl ctrl list | grep -i kvblk
		find /sys/kernel/slab /sys/bus/workqueue/devices /sys/class /sys/kernel/debug /sys/devices/virtual \
			-maxdepth 1 -iname '*kvblk*'
		find /dev -path '/dev/kvblk*'
		grep -i kvblk /proc/devices /proc/slabinfo /proc/modules
		cat /proc/[0-9]*/comm | grep -i '^kvblk'
	} 2>/dev/null || true
}

memory() {
	awk '/^(Slab|Percpu|VmallocUsed|MemFree|Buffers|Cached)/ { print $1, $2 }' /proc/meminfo | tr '\n' ' '
}

# devices and modules loaded here must not count as a difference
flash 2 100
kv_depends
state >"$tmp/before"
[ ! -s "$tmp/before" ] || fail "there is something of kvblk before it is loaded: $(cat "$tmp/before")"
for round in 1 2 3; do
	check insmod "$modules/kvblk.ko"
	pool_format /dev/flash0 /dev/flash1
	check guest_stress -n -s 2 -t 3 $node
	[ "$(state | wc -l)" -gt 2 ] || fail "a module in use is not seen: this test looks at the wrong places"
	if [ $round = 1 ]; then
		coproc holder { exec guest_blocks $node hold; }
		holder_pid=$!
		read -r _ <&"${holder[0]}"
		refuse rmmod kvblk
		[ -c $node ] || fail "a refused unload took the node away"
		check guest_blocks $node put 1 10 1000
		kill "$holder_pid"
		wait "$holder_pid" 2>/dev/null || true
	fi
	[ $round = 3 ] || check kvblk pool destroy $pool
	# the task that destroyed the pool may still hold the module for a moment
	[ $round = 3 ] || wait_for 5 rmmod kvblk
	# round 3: an unused pool does not hold the module, or can be destroyed
	if [ -d /sys/module/kvblk ] && ! rmmod kvblk 2>"$tmp/rmmod"; then
		check kvblk pool destroy $pool
		wait_for 5 rmmod kvblk
	fi
	state >"$tmp/after"
	[ ! -s "$tmp/after" ] || fail "left behind: $(cat "$tmp/after")"
	check python3 -c 'import os; [os.close(os.open(d, os.O_RDWR | os.O_EXCL)) for d in ("/dev/flash0", "/dev/flash1")]'
	echo "round $round: $(memory)"
done

echo "-- the memory of a destroyed pool goes, whoever has its node open"
vmalloc() {
	awk '/^VmallocUsed/ { print $2 }' /proc/meminfo
}
check insmod "$modules/kvblk.ko"
mkfifo "$tmp/told"
exec 9<>"$tmp/told"
stay=() holders=()
before=$(vmalloc)
for round in 1 2 3; do
	pool_format --index-slots 2000000 /dev/flash0
	blocks put 1 20 1000
	[ $(($(vmalloc) - before)) -gt 40000 ] || fail "an index of 2,000,000 slots takes $(($(vmalloc) - before)) KiB"
	mkfifo "$tmp/stay$round"
	exec {fd}<>"$tmp/stay$round"
	stay[round]=$fd
	KV_STAY=1 guest_blocks $node lease 1 20 1 <&"$fd" >&9 &
	holders+=($!)
	defer "kill $! 2>/dev/null || true"
	read -r leased <&9
	expect "round $round" "$leased" leased=20
	check kvblk pool destroy --force $pool
	kept=$(($(vmalloc) - before))
	[ $kept -lt $((10000 * round)) ] || fail "round $round: a destroyed pool keeps $kept KiB"
done
for round in 1 2 3; do
	echo >&"${stay[round]}"
	read -r answer <&9
	expect "a lookup in a destroyed pool" "$answer" "lookup=-19"
done
kill "${holders[@]}"
wait "${holders[@]}" || true
wait_for 5 rmmod kvblk

[[ $KVBLK_DEPTH == all || $KVBLK_KERNEL == debug* ]] || exit 0
echo "-- loads and unloads, a pool that is made and destroyed, opens and operations, all at once"
# churn WHAT: repeat a command, which may fail; each success adds a line to $tmp/WHAT
churn() {
	until [ -e "$tmp/over" ]; do
		"$1" && echo good >>"$tmp/$1"
	done >"$tmp/said.$1" 2>>"$tmp/wrong" || true
}
loads() {
	insmod "$modules/kvblk.ko"
	sleep 0.05
	rmmod kvblk
}
makes() {
	command kvblk pool create $pool --format --yes --segment-size 8M /dev/flash0 /dev/flash1
	sleep "0.$((RANDOM % 4))"
	command kvblk pool destroy --force $pool
	sleep "0.$((RANDOM % 4))"
}
uses() {
	guest_blocks $node put $RANDOM 30 5000 && guest_blocks $node lease 1 5 1 && guest_blocks $node get 1 1000 5000
}
# often: each of them has succeeded so often; for wait_for
often() {
	wc -l "$tmp/loads" "$tmp/makes" "$tmp/uses" | awk -v times=$times '$1 < times { exit 1 }'
}
times=2
[ "$KVBLK_DEPTH" != all ] || times=20
for what in loads makes uses; do
	: >"$tmp/$what"
	churn $what &
done
defer 'touch "$tmp/over"'
wait_for $((20 + 5 * times)) often
touch "$tmp/over"
wait
! grep -E 'WRONG|LEFT|FORMER' "$tmp/wrong" || fail "a wrong byte"
if [ -d /sys/module/kvblk ]; then
	[ ! -d $sysfs ] || check kvblk pool destroy --force $pool
	wait_for 5 rmmod kvblk
fi
state >"$tmp/after"
[ ! -s "$tmp/after" ] || fail "left behind: $(cat "$tmp/after")"
