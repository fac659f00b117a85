#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=300 pci=switch,two-switches,unreachable kernels=newest check=newest takes=12,12,12
# Two pools of a pod on one machine: gets of the second go from a drive that the first owns directly to a GPU's memory,
# once a get that was read twice has proven the route. Where the drive does not reach the GPU, or the policy is full, they
# are bounced.
. "${0%/*}/p2p.bash"
# 73 pages, because only aligned memory is read into directly
len=299008

# into_gpu FIRST COUNT TAG: get foreign blocks into the GPU's memory. Sets the counts of p2p_witness, and those of gets:
# $direct, $bounced and $proofs
into_gpu() {
	direct=$(counter device_direct) bounced=$(counter device_bounced) proofs=$(counter foreign_proofs)
	KV_MEMORY=$memory_of_gpu check p2p_witness blocks get "$1" "$2" $len "$3"
	direct=$(($(counter device_direct) - direct)) bounced=$(($(counter device_bounced) - bounced))
	proofs=$(($(counter foreign_proofs) - proofs))
	expect "foreign hits" "$hits $foreign" "$2 $2"
}

# bounces FIRST COUNT TAG: none goes directly
bounces() {
	on tb into_gpu "$@"
	expect "gets directly, bounced" "$direct $bounced" "0 $2"
	expect "pages peer to peer" "$p2p_pages" 0
}

# tried FIRST TAG: the get of a block is read peer to peer, and again by the host; for wait_for
tried() {
	on tb into_gpu "$1" 1 "$2"
	[ "$p2p_pages $direct" = "73 0" ] && [ "$host_pages" -ge 73 ]
}

# goes_direct FIRST COUNT TAG: gets are direct, unless a poll is late, and each is proven by the table; for wait_for
goes_direct() {
	on tb into_gpu "$@"
	echo "$direct directly, $bounced bounced, $proofs proofs, $p2p_pages pages peer to peer"
	[ "$direct" -gt 0 ] && [ $((direct + bounced)) = "$2" ] && [ "$p2p_pages" = $((direct * 73)) ] && [ "$proofs" -ge "$direct" ]
}

kv_load
p2p_load
memory_of_gpu=${gpus[0]}
drive=$(vm_disk 0)
[ "$KVBLK_PCI" = switch ] || drive=$(vm_disk 1)
# as large that the owner reclaims nothing of the first puts
partition "$drive" 136
nullb_create own 104
node_id a
on ta pod_pool --index-slots 30000 "${drive}p1"
node_id b
on tb pod_pool --index-slots 30000 --seed-of "${drive}p1" /dev/own
check kvblk member follow tb "${drive}p1"
put /sys/class/kvblk/ta/integrity header
on ta blocks put 0 32 $len 7
put /sys/class/kvblk/ta/integrity full
on ta blocks put 100 20 $len 7
KV_DURABLE=1 on ta blocks put 200 40 $len 7

echo "-- checked by the kernel: through its memory"
wait_for 20 on tb sees 100 20
bounces 100 20 7

echo "-- straight"
put /sys/class/kvblk/tb/integrity producer
# served without checksums once the segments are sealed
wait_for 20 on tb sees 0 20
wait_for 20 on tb sees 200 20
# nobody knows the route
bounces 0 1 7
if [ "$KVBLK_PCI" = unreachable ]; then
	# with multipath a drive has no PCI parent, so only transfers can find out
	given_up() {
		bounces 0 1 7
		[ "$(counter device_fallbacks)" = 2 ]
	}
	wait_for 60 given_up
	bounces 0 20 7
	expect "requests refused" "$p2p_refused" 0
	expect "transfers that failed" "$(counter device_fallbacks)" 2
	exit 0
fi
wait_for 20 tried 0 7
gets=$(counter foreign_gets)
wait_for 20 goes_direct 0 20 7
more_than $((gets + 19)) foreign_gets
if [ "$KVBLK_PCI" = two-switches ]; then
	expect "pages through the bridge" "$p2p_bridge_pages" "$p2p_pages"
	exit 0
fi
KV_ENGINE=uring wait_for 20 goes_direct 0 20 7
KV_REGISTER=1 wait_for 20 goes_direct 0 20 7
put "$sysfs/integrity" header
wait_for 20 goes_direct 0 20 7
# blocks with checksums, too, if they were put durably
wait_for 20 goes_direct 200 20 7
put "$sysfs/integrity" full
bounces 200 20 7
put "$sysfs/integrity" header
no_failures
