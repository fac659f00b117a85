#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=400 kernels=debug mem=1G disks=1
# A caller that holds memory by rings that it does not reap, by leases, or by keys that fault does not affect others: no
# page stays pinned, their puts find space in DRAM, memory reported as reclaimable is reclaimable, and gets have
# priority. Blocks in DRAM are intact.
. "${0%/*}/pool.bash"

MiB=$((1 << 20))
kv_load
flash 2 240
dm_flakey bad /dev/flash1
pool_format /dev/flash0 /dev/mapper/bad
bear_errors

# by_ones FIRST COUNT: a bystander's puts of 1 MiB; each waits until a block has left DRAM
by_ones() {
	local i
	for ((i = 0; i < $2; i++)); do
		wait_for 10 dram_is $((15 * MiB))
		blocks put $(($1 + i)) 1 $MiB
		expect "bystander's put in memory" "$memory" 1
	done
}

# empty: remove all blocks from DRAM, although held or leased
empty() {
	put $sysfs/dram_bytes 0
	wait_for 20 dram_is 0
	put $sysfs/dram_bytes $((16 * MiB))
}

echo "-- direct gets that are over keep no page pinned"
blocks put 1 40 $MiB
before=$(pinned)
KV_UNMAP=1 hold get 1 40 $MiB
wait_for 20 pinned_is "$before"
release
expect "gets" "$(tail -n 1 "$tmp/held")" good=40

echo "-- nor does a ring that is not reaped keep memory of the pool's"
put $sysfs/dram_mode evict
put $sysfs/dram_bytes $((16 * MiB))
hold prefetch 1 15 $MiB
wait_for 20 counts_more 14 prefetches
by_ones 101 8
empty
release
expect "prefetches" "$(tail -n 1 "$tmp/held")" good=15
blocks put 201 15 $MiB
hold get 201 15 $MiB
by_ones 301 8
empty
release
expect "gets" "$(tail -n 1 "$tmp/held")" good=15

echo "-- nor a lease: what it is on may be written"
blocks put 401 15 $MiB
expect "puts in memory" "$memory" 15
hold lease 401 15 $MiB
by_ones 501 8
empty
blocks get 401 15 $MiB
expect "leased blocks" "$hits" 15
release
for first in 1 101 201 301 401 501; do
	blocks delete $first 40 $MiB
done
empty

echo "-- keys that never come are paid for by who names them"
cgroup_up memory
kib() { awk -v field="$1:" '$1 == field { print $2 }' /proc/meminfo; }
free=$(kib MemFree)
: >"$tmp/held"
(cgroup_enter && exec guest_pin $node lookup 1 40 0) >"$tmp/held" &
holder=$!
defer "kill -KILL $holder 2>/dev/null || true"
wait_for 20 grep -q holding "$tmp/held"
taken=$((free - $(kib MemFree))) charged=$(($(cat "$cgroup/memory.current") >> 10))
echo "40 lookups take $taken KiB, of which their cgroup pays $charged"
[ $taken -lt $((charged + (16 << 10))) ] || fail "40 lookups take $taken KiB, and their cgroup pays $charged"
kill -KILL $holder
wait $holder || true

echo "-- a member that fails writes costs no block that is in memory"
put $sysfs/dram_bytes $((64 * MiB))
blocks put 2001 20 $MiB
blocks get 2001 20 $MiB
expect "gets from memory" "$memory" 20
drops=$(counter dram_drops)
dm_flakey_set bad /dev/flash1 0 3600 error_writes
put $sysfs/dram_bytes 0
wait_for 20 dram_is 0
more_than 0 write_errors
dm_flakey_set bad /dev/flash1 1 0
expect "dropped" "$(counter dram_drops)" "$drops"
blocks get 2001 20 $MiB
expect "gets of what was in memory" "$hits" 20

check pool_destroy

echo "-- nobody is killed for memory that is told to be reclaimable"
# a drive, because null_blk itself uses memory
pool_format "$(vm_disk 0)"
put $sysfs/dram_bytes $((1 << 30))
# hog MIB: run a program that uses this much more than is free
hog() {
	check python3 -c 'import sys; x = bytearray(b"\1") * (int(sys.argv[1]) << 20)' $((($(kib MemFree) >> 10) + $1))
}
for what in get lease; do
	blocks put 1001 320 $MiB
	expect "puts in memory" "$memory" 320
	hold $what 1001 320 $MiB
	hog 150
	kill -KILL $holder
	wait $holder || true
	blocks delete 1001 320 $MiB
	put $sysfs/dram_bytes 0
	wait_for 20 dram_is 0
	put $sysfs/dram_bytes $((1 << 30))
done
! dmesg | grep -q 'Out of memory' || fail "somebody was killed: $(dmesg | grep 'Out of memory')"

echo "-- a bit that flips in memory is a miss, or is not written"
check insmod "$modules/selftests/modules/kvblk_flip/kvblk_flip.ko"
defer 'rmmod kvblk_flip'
# flip NR: flip a bit of block NR in DRAM
flip() {
	put /sys/module/kvblk_flip/parameters/word "$(guest_pin $node word "$1")"
}
events_start
put $sysfs/dram_bytes $((64 * MiB))
blocks put 3001 4 100000
expect "puts in memory" "$memory" 4
flip 3001
failures=$(counter checksum_failures)
blocks get 3001 4 100000
expect "gets when one has flipped" "$hits $misses $memory" "3 1 3"
expect "failures told" "$(counter checksum_failures)" $((failures + 1))
wait_for 10 event checksum
blocks put 3001 1 100000
expect "put anew" "$memory" 1
# requested blocks are demoted: the damage must be detected before the write
flip 3002
put $sysfs/dram_bytes 0
wait_for 20 dram_is 0
expect "failures told" "$(counter checksum_failures)" $((failures + 2))
blocks get 3001 4 100000
expect "gets from the members" "$hits $misses" "3 1"
# a damaged copy in DRAM: the member's block is right
put $sysfs/dram_bytes $((64 * MiB))
blocks prefetch 3003 1 100000
flip 3003
blocks get 3003 1 100000
expect "get of a copy that has flipped" "$hits $memory" "1 0"
check pool_destroy

echo "-- gets go before prefetches, however many these are"
nullb_create slow 500 mbps=100
pool_format /dev/slow
blocks put 1 400 $MiB
blocks put 901 60 65536
put $sysfs/dram_bytes $((450 * MiB))
# moving: prefetches are in flight, or done; for wait_for
moving() { counts_more 0 inflight || ! kill -0 $batch; }
# beside COUNT: sets $worst to the slowest of 20 gets during COUNT prefetches of 1 MiB
beside() {
	local i
	worst=0
	blocks get 960 1 65536
	guest_pin $node batch 1 "$1" 0 >"$tmp/batch" &
	batch=$!
	wait_for 20 moving
	for i in {1..20}; do
		blocks get $((900 + i)) 1 65536
		[ "$slowest" -le $worst ] || worst=$slowest
		kill -0 $batch 2>/dev/null || break
	done
	wait $batch || fail "prefetches: $(cat "$tmp/batch")"
	expect "prefetches" "$(cat "$tmp/batch")" "good=$1"
	put $sysfs/dram_bytes 0
	wait_for 20 dram_is 0
	put $sysfs/dram_bytes $((450 * MiB))
}
beside 100
few=$worst
beside 400
echo "the slowest get: $few ms beside 100 prefetches, $worst ms beside 400"
[ $worst -le $((2 * few + 400 * KVBLK_SLOW)) ] || fail "a get took $worst ms beside 400 prefetches, $few ms beside 100"
check pool_destroy

echo "-- puts beyond queue_bytes wait before they take room: neither device nor gate gets them, except one put of each task"
dm_create still /dev/slow "0 %s linear /dev/slow 0"
pool_format /dev/mapper/still
put $sysfs/queue_bytes $((2 * MiB))
put $sysfs/put_window_bytes $((256 << 10))
blocks put 901 1 65536
defer '[ ! -b /dev/mapper/still ] || dmsetup resume still'
# gets arrive, but are not answered
comes() { KV_DEADLINE_MS=20 blocks get 901 1 65536; }
first=1000
# gate_holds: whether few of 12 times 32 puts are in flight beside gets. Not if this guest stands still for a second,
# because then no gets come.
gate_holds() {
	local putters=() most=0 i inflight
	check dmsetup suspend --noflush --nolockfs still
	# a full queue gets shorter: it accepts writes again at three quarters
	for i in {1..30}; do
		comes
		! counts_more "$most" waiting_bytes || most=$value
		[ "$i" -le 12 ] || continue
		guest_blocks $node put $first 32 65536 >"$tmp/put$first" &
		putters+=($!)
		first=$((first + 32))
	done
	inflight=$(counter inflight)
	check dmsetup resume still
	wait "${putters[@]}" || fail "puts: $(cat "$tmp"/put*)"
	expect "puts stored" "$(cat "$tmp"/put* | grep -c 'stored=32 .* bad=0')" 12
	rm "$tmp"/put*
	echo "of $((12 * 32)) puts $inflight are in flight, up to $most bytes wait at the gate"
	[ "$most" -le $((2 * MiB + 12 * (65536 + 4096))) ] || fail "$most bytes wait at the gate"
	[ "$most" -gt $((2 * MiB)) ] && [ "$inflight" -lt 150 ]
}
wait_for 20 gate_holds

echo "-- as many puts are in flight as a request gets, at least a quarter of put_window_bytes"
put $sysfs/queue_bytes $((256 * MiB))
put $sysfs/put_window_bytes $MiB
blocks put 902 1 $MiB
# wait_beside NR LEN WAITING: whether WAITING bytes of 32 puts wait after a get of block NR. Not if they come so slowly
# that the first ones are no longer counted, nor if this guest stands still.
wait_beside() {
	local putter waiting most=0
	first=$((first + 32))
	blocks get "$1" 1 "$2"
	check dmsetup suspend --noflush --nolockfs still
	guest_blocks $node put $first 32 65536 >"$tmp/put" &
	putter=$!
	for _ in {1..8}; do
		comes
		waiting=$(counter waiting_bytes)
		[ "$waiting" -le "$most" ] || most=$waiting
	done
	check dmsetup resume still
	wait $putter || fail "puts: $(cat "$tmp/put")"
	echo "after a get of $2 bytes $most bytes of puts wait"
	[ "$most" -eq "$3" ]
}
record=$((65536 + 4096))
wait_for 60 wait_beside 901 65536 $((32 * record - 3 * record))
wait_for 60 wait_beside 902 $MiB $((32 * record - 15 * record))
