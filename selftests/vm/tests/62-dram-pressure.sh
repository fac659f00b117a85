#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=200 takes=30 mem=640M append=numa=fake=2 kernels=newest,6.12 check=newest
# Blocks in DRAM on a host of two nodes with little memory: they count as reclaimable on each node, programs get the
# memory without an OOM kill, no cgroup is charged, puts use the memory that other blocks have left, and every byte of a
# get is right.
. "${0%/*}/numa.bash"

kv_load
flash 1 74
pool_format /dev/flash0
put $sysfs/dram_bytes $((1 << 30))
MiB=$((1 << 20))

kib() {
	awk -v field="$1:" '$1 == field { print $2 }' /proc/meminfo
}

# hog MIB: run a program that uses this much memory and ends
hog() {
	check python3 -c 'import sys; x = bytearray(b"\1") * (int(sys.argv[1]) << 20)' "$1"
}

reclaimable=$(kib KReclaimable)
available=$(kib MemAvailable)
mapfile -t before < <(nodes)
expect "nodes" "${#before[@]}" 2

# fill_nodes FIRST COUNT: put COUNT blocks on each node
fill_nodes() {
	for nid in 0 1; do
		check on_node $nid guest_blocks $node put $(($1 + $2 * nid)) "$2" $MiB >"$tmp/on_node"
		grep -q "memory=$2 " "$tmp/on_node" || fail "puts on node $nid: $(cat "$tmp/on_node")"
	done
	mapfile -t now < <(nodes)
	for nid in 0 1; do
		[ $((now[nid] - before[nid])) -gt $(($2 * 4 / 5)) ] || fail "reclaimable on the nodes: ${now[*]} MiB, was ${before[*]}"
	done
}
fill_nodes 1 75
[ $(($(kib KReclaimable) - reclaimable)) -gt $((130 << 10)) ] || fail "150 MiB of blocks are no reclaimable memory: $(kib KReclaimable) KiB, was $reclaimable"
[ $((available - $(kib MemAvailable))) -lt $((100 << 10)) ] || fail "150 MiB of blocks count as used: $(kib MemAvailable) KiB available, was $available"

# more than is free: the pool must give up some
hog $((($(kib MemFree) >> 10) + 100))
more_than 10 dram_squeezed
blocks get 1 150 $MiB
[ "$misses" -gt 10 ] || fail "only $misses of 150 blocks have gone"

# a smaller limit is enforced on both nodes
put $sysfs/dram_bytes 0
wait_for 30 dram_is 0
put $sysfs/dram_bytes $((1 << 30))
fill_nodes 201 40
put $sysfs/dram_bytes $((8 * MiB))
for nid in 0 1; do
	wait_for 30 node_has $nid $((before[nid] + 20))
done
put $sysfs/dram_bytes $((1 << 30))

# the next puts use the memory that blocks have left, and the kernel takes it, too
used() {
	echo $((($(kib KReclaimable) - empty) >> 10))
}
put $sysfs/dram_bytes 0
wait_for 30 dram_is 0
put $sysfs/dram_bytes $((1 << 30))
empty=$(kib KReclaimable)
for first in 301 401; do
	# on one CPU, because each node keeps its own
	check taskset -c 0 guest_blocks $node put $first 60 $MiB
	expect "dram_used" "$(cat $sysfs/dram_used)" $((60 * MiB))
	[ "$(used)" -lt 80 ] || fail "60 MiB of blocks take $(used) MiB"
	blocks get $first 60 $MiB
	expect "gets" "$hits" 60
	blocks delete $first 60 $MiB
	expect "dram_used without blocks" "$(cat $sysfs/dram_used)" 0
	[ "$(used)" -gt 40 ] || fail "of 60 MiB of blocks that have left $(used) MiB are kept"
done
for i in 1 2 3; do
	put /proc/sys/vm/drop_caches 2
done
[ "$(used)" -lt 20 ] || fail "memory pressure leaves $(used) MiB without blocks"

# a caller whose cgroup may use less than it puts
cgroup_up memory
put "$cgroup/memory.max" $((96 * MiB))
(cgroup_enter && exec guest_blocks $node put 1001 200 $MiB) >"$tmp/small" ||
	fail "puts in a small cgroup: $(cat "$tmp/small")"
cat "$tmp/small"
grep -q 'stored=200 ' "$tmp/small" || fail "not all puts in a small cgroup were stored"
charged=$(cat "$cgroup/memory.current")
[ "$charged" -lt $((16 * MiB)) ] || fail "the cgroup pays for $charged bytes when its program has gone"
expect "kills in the cgroup" "$(awk '$1 == "oom_kill" { print $2 }' "$cgroup/memory.events")" 0

stress_start -t 3 -n -k 2000 -l 200000
for i in 1 2 3 4 5; do
	hog 250
	blocks put $((2000 + 100 * i)) 60 $MiB
done
stress_stop
no_failures
