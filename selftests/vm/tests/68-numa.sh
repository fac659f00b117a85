#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=200 takes=25 mem=640M append=numa=fake=2 kernels=newest,6.12 check=newest
# A host of two nodes: the index has memory of both. Blocks in DRAM are on the node dram_node, or else on the node of
# the task that puts or gets, also if a put uses the memory of other blocks. Nodes without memory are refused.
. "${0%/*}/numa.bash"

kv_load
flash 1 74
pool_format --index-slots 1500000 /dev/flash0
MiB=$((1 << 20))
put $sysfs/dram_bytes $((512 * MiB))

# pages of the index's arrays on each node
read -r zero one < <(awk '/\[kvblk\]/ {
	for (i = 1; i <= NF; i++)
		if (match($i, /^N[01]=/) && /pages=[0-9][0-9][0-9][0-9]/)
			pages[substr($i, 2, 1)] += substr($i, 4)
} END { print pages[0] + 0, pages[1] + 0 }' /proc/vmallocinfo)
[ $(((zero + one) << 12)) -ge $((38 * MiB)) ] || fail "the arrays of an index of $(cat $sysfs/index_bytes) bytes have $zero and $one pages"
echo "pages of the index on the nodes: $zero and $one"
[ $((4 * zero)) -gt "$one" ] && [ $((4 * one)) -gt "$zero" ] || fail "the index has $zero pages on node 0, and $one on node 1"

mapfile -t base < <(nodes)

# empty: take the memory of all blocks, also of deleted ones
empty() {
	put $sysfs/dram_bytes 0
	for nid in 0 1; do
		wait_for 30 node_has $nid $((base[nid] + 4))
	done
	put $sysfs/dram_bytes $((512 * MiB))
}

# lands_on N COMMAND...: a command brings 30 MiB of blocks into DRAM, to node N
lands_on() {
	local nid=$1
	shift
	mapfile -t before < <(nodes)
	expect "dram_used before" "$(cat $sysfs/dram_used)" 0
	check "$@"
	expect "dram_used" "$(cat $sysfs/dram_used)" $((30 * MiB))
	mapfile -t now < <(nodes)
	[ $((now[nid] - before[nid])) -gt 20 ] && [ $((now[1 - nid] - before[1 - nid])) -lt 10 ] ||
		fail "node $nid, $*: ${now[*]} MiB are reclaimable on the nodes, were ${before[*]}"
}

# blocks that members have
put $sysfs/dram_bytes 0
blocks put 1 30 $MiB
blocks get 1 30 $MiB
put $sysfs/dram_bytes $((512 * MiB))

# the CPU's node, unless the task has a policy
expect "dram_node" "$(cat $sysfs/dram_node)" -1
here=$(basename /sys/devices/system/cpu/cpu0/node*)
lands_on "${here#node}" taskset -c 0 guest_blocks $node put 101 30 $MiB
blocks delete 101 30 $MiB
empty
for nid in 0 1; do
	lands_on $nid on_node $nid guest_blocks $node prefetch 1 30 $MiB
	empty
	put $sysfs/dram_promote 1
	lands_on $nid on_node $nid guest_blocks $node get 1 30 $MiB
	put $sysfs/dram_promote 0
	empty
done

# dram_node, though the other node has memory of deleted blocks, and whatever the task's policy
for nid in 0 1; do
	put $sysfs/dram_node $nid
	lands_on $nid guest_blocks $node put 201 30 $MiB
	blocks delete 201 30 $MiB
done
empty
put $sysfs/dram_promote 1
for nid in 0 1; do
	put $sysfs/dram_node $nid
	lands_on $nid on_node $((1 - nid)) guest_blocks $node get 1 30 $MiB
	empty
done

# absent nodes, and numbers out of range
for bad in 2 1023; do
	code 1 'dram_node: No such device' kvblk pool set $pool dram_node=$bad
done
refuse kvblk pool set $pool dram_node=1024
refuse kvblk pool set $pool dram_node=-2
expect "dram_node" "$(kvblk pool get $pool dram_node)" 1
check kvblk pool set $pool dram_node=-1
expect "dram_node" "$(cat $sysfs/dram_node)" -1
no_failures
