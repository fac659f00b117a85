#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=300 pci=switch,two-gpus,two-switches,unreachable kernels=newest,6.12-p2p:switch,6.12-p2p:unreachable,debug-smp:switch check=newest takes=46,33,29,34
# Puts and gets directly from and to memory of PCI devices where possible, through the CPU elsewhere, with the same
# bytes. The way is proved by the kernel's own counts: see p2p_witness.
# slow: the data path under each policy, and each way in which a route ends.
. "${0%/*}/p2p.bash"

# all except aligned_is_direct, which requires that a drive reaches the memory
indirect=(sizes pieces mixed_pieces overlapping_and_reversed_pieces partial too_small dedupe mixed_batch)
engines=(ioctl uring)
# only the ring, unless time allows both: it runs all that the ioctl does
[ "$KVBLK_KERNEL-$KVBLK_PCI-$KVBLK_DEPTH" = newest-switch-all ] || engines=(uring)

# trips POLICY MEMORY WAY PAGES TEST...: run tests of guest_put_get with all engines, each in a new pool. WAY: see
# guest_put_get. PAGES: whether some or none must go peer to peer
trips() {
	local policy=$1 memory=$2 way=$3 pages=$4 engine
	shift 4
	for engine in "${engines[@]}"; do
		fresh_pool "$policy"
		[ "$pages" = none ] || warm "$memory"
		check p2p_witness env "KV_ENGINE=$engine" "KV_MEMORY=$memory" "KV_WAY=$way" guest_put_get $node "$@"
		case $pages in
		some) [ "$p2p_pages" -gt 100 ] || fail "$p2p_pages pages went peer to peer" ;;
		none) [ "$p2p_pages" = 0 ] || fail "$p2p_pages pages went peer to peer, should be none" ;;
		esac
		echo "$memory, $engine: $p2p_pages pages peer to peer, $host_pages of the host"
	done
}

# again GPU: rebind the GPU, which makes it a new device with unknown routes
again() {
	put /sys/bus/pci/drivers/kvblk_testgpu/unbind "$1"
	put /sys/bus/pci/drivers/kvblk_testgpu/bind "$1"
}

# exhaust MEMORY BYTES: occupy all of a GPU's memory except BYTES; given_back: free it
exhaust() {
	mkfifo "$tmp/wake"
	guest_p2p_plain hold "$1" $(($(cat "/sys/bus/pci/devices/$gpu/p2pmem/available") - $2)) <>"$tmp/wake" >"$tmp/holder" &
	holder=$!
	defer "kill $holder 2>/dev/null || true"
	wait_for 10 grep -qs ready "$tmp/holder"
}

given_back() {
	echo >"$tmp/wake"
	wait $holder
	rm "$tmp/wake"
}

# put_tried KEY MEMBER LOOKS: put a block, and let the member's probe run for LOOKS looks at most
put_tried() {
	local look
	mkfifo "$tmp/leave"
	# keep the process, so that no memory is left for work that it starts in the background
	env "KV_MEMORY=${gpus[0]}" KV_STAY=1 guest_blocks $node put "$1" 1 300000 <>"$tmp/leave" >"$tmp/put" &
	wait_for 20 [ -s "$tmp/put" ]
	# wait for the probe, which does not run if the put went to the other member
	for ((look = 0; look < $3; look++)); do
		case "$(routes "$gpu" "$2")" in unknown*) sleep 0.1 ;; *) break ;; esac
	done
	echo >"$tmp/leave"
	check wait $!
	rm "$tmp/leave"
}

on_trial() {
	routes "$gpu" | grep -q '^trial'
}

# tried MEMBER ROUTE: put and get until the member's route is no longer on trial
tried() {
	local i
	for ((i = 0; i < 40; i++)); do
		put_tried $((800000 + i)) "$1" $(((i + 1) * 3))
		check env "KV_MEMORY=${gpus[0]}" guest_blocks $node get $((800000 + i)) 1 300000 >/dev/null
		# shellcheck disable=SC2254 # a pattern
		case "$(routes "$gpu" "$1")" in
		$2) return ;;
		unknown* | trial*) ;;
		*) break ;;
		esac
	done
	fail "route of $gpu to $1: $(routes "$gpu" "$1"), should become $2"
}

kv_load
p2p_load
disks=("$(vm_disk 0)" "$(vm_disk 1)")
members=("${disks[0]##*/}" "${disks[1]##*/}")
gpu=$(p2p_bdf "${gpus[0]}")
cmb=$(vm_disk_bdf 0)
pool_format "${disks[@]}"

echo "-- routes, before anybody went there"
expect "default policy" "$(cat $sysfs/integrity)" full
route_is "$gpu" "${members[0]}" "unknown -"
route_is "$cmb" "${members[0]}" "unknown -"
# with multipath a drive has no PCI parent, so only a transfer can find out
unreachable="bounce probe"
[ "$KVBLK_KERNEL" != 6.12-p2p ] || unreachable="bounce unreachable"
case $KVBLK_KERNEL:$KVBLK_PCI in
6.12-p2p:unreachable) route_is "$gpu" "${members[1]}" "$unreachable" ;;
*) route_is "$gpu" "${members[1]}" "unknown -" ;;
esac
# the second drive may be unreachable: then either way is right
way=direct
data=(aligned_is_direct "${indirect[@]}")
[ "$KVBLK_PCI" != unreachable ] || way=any data=("${indirect[@]}")

echo "-- checked by the kernel: through its memory"
trips full "${gpus[0]}" bounced none "${indirect[@]}"
route_is "$gpu" "${members[0]}" "unknown -"

echo "-- from and to the host's memory that holds blocks"
fresh_pool full
put $sysfs/dram_bytes $((64 << 20))
blocks put 700001 8 300000
expect "puts into memory" "$memory" 8
KV_MEMORY=${gpus[0]} blocks get 700001 8 300000
expect "gets from there to the GPU" "$hits $memory" "8 8"
# puts from the GPU bypass DRAM, because the CPU would have to read them across the bus
for chain in "" 1; do
	KV_MEMORY=${gpus[0]} KV_CHAIN=$chain blocks put 70001${chain:-0} 1 300000
	expect "puts from the GPU" "$stored $memory" "1 0"
done

echo "-- straight"
trips header "${gpus[0]}" "$way" some "${data[@]}"
route_is "$gpu" "${members[0]}" "direct -"
case $KVBLK_PCI in
unreachable) route_is "$gpu" "${members[1]}" "$unreachable" ;;
*) route_is "$gpu" "${members[1]}" "direct -" ;;
esac

echo "-- with others in one list"
trips header "${gpus[0]},host" "$way" some pieces mixed_pieces sizes
case $KVBLK_PCI in
two-gpus) trips header "${gpus[0]},host,${gpus[1]}" "$way" some pieces mixed_pieces sizes ;;
switch)
	# a drive may reject a list of its own memory and other memory: an I/O error, then bounced
	trips header "host,$(p2p_memory "$cmb")" any some pieces mixed_pieces
	trips header "$(p2p_memory "$cmb")" any some sizes
	;;
esac

echo "-- registered"
export KV_REGISTER=1
trips header "${gpus[0]}" "$way" some "${data[@]}"
trips full "${gpus[0]}" bounced none sizes pieces partial
unset KV_REGISTER

echo "-- checked where the CPU is in the way anyhow"
trips producer "${gpus[0]}" "$way" some "${data[@]}"
blocks put 1 40 300000
check env "KV_MEMORY=${gpus[0]}" guest_blocks $node get 1 40 300000
blocks get 1 40 300000
expect "blocks in the host's memory" "$hits" 40
no_failures

echo "-- checked by who made it: straight, although the policy is full"
for engine in "${engines[@]}"; do
	fresh_pool producer
	warm "${gpus[0]}"
	put $sysfs/integrity full
	check p2p_witness env "KV_ENGINE=$engine" "KV_MEMORY=${gpus[0]}" guest_put_get $node checksums
	[ "$p2p_pages" -gt 100 ] || fail "$p2p_pages pages went peer to peer"
	expect "checksum failures" "$(counter checksum_failures)" 0
	more_than 5 device_direct
done

case $KVBLK_PCI in switch | unreachable) ;; *) exit 0 ;; esac
echo "-- no memory to try a route with but callers'"
fresh_pool header
again "$gpu"
exhaust "${gpus[0]}" $((32 * 300000 / 4096 * 4096 + 4096))
# without chunks, such a get uses as much kernel memory as one that is read again
put $sysfs/bounce_chunks 0
mkfifo "$tmp/step"
# a single process, which leaves no memory for late probes
env KV_ENGINE=uring KV_ASYNC=1 KV_STEP=1 KV_STAY=1 "KV_MEMORY=${gpus[0]}" guest_blocks $node put,get 810000 12 300000 \
	<>"$tmp/step" >"$tmp/steps" &
for ((i = 0; i < 12; i++)); do
	# a member is probed once a second
	sleep 0.2
	echo >"$tmp/step"
done
wait_for 60 [ -s "$tmp/steps" ]
wait_for 20 on_trial
case "$(routes "$gpu")" in *direct*) fail "gets that go through the kernel's memory have proven a route" ;; esac
echo >"$tmp/step"
check wait $!
eval "$(cat "$tmp/steps")"
expect "puts and gets by a ring's worker" "$stored $hits" "12 12"
put $sysfs/bounce_chunks 8
tried "${members[0]}" "direct -"
if [ "$KVBLK_PCI" = switch ]; then
	tried "${members[1]}" "direct -"
else
	tried "${members[1]}" "bounce *"
fi
no_failures
given_back
[ "$KVBLK_PCI" = switch ] || exit 0

echo "-- part by part, from a member that lies, and from one that fails"
check pool_destroy
nullb_create lying 200
dm_create over /dev/lying "0 %s linear /dev/lying 0"
pool_format /dev/mapper/over
blocks put 1 40 2000000
# enough chunks, a single one, none
for chunks in 8 1 0; do
	put $sysfs/bounce_chunks $chunks
	KV_MEMORY=${gpus[0]} blocks get 1 40 2000000
	expect "gets with $chunks chunks" "$hits" 40
	KV_ENGINE=uring KV_MEMORY=${gpus[0]},host blocks get 1 40 2000000
	expect "gets with $chunks chunks, in part into the host's memory" "$hits" 40
done
head -c 20M /dev/urandom >"$tmp/garbage"
check dd if="$tmp/garbage" of=/dev/lying bs=1M seek=20 oflag=direct conv=notrunc status=none
KV_MEMORY=${gpus[0]} blocks get 1 40 2000000
[ "$misses" -gt 5 ] && [ "$hits" -gt 15 ] || fail "20 MiB of garbage: $hits hits, $misses misses"
expect "checksum failures" "$(counter checksum_failures)" "$misses"
put $sysfs/bounce_chunks 8
put $configfs/nullb/lying/badblocks "+$((50 * 2048))-$((50 * 2048 + 7))"
KV_MEMORY=${gpus[0]} blocks get 1 40 2000000
expect "gets with a bad sector" "$hits" $((40 - misses))
more_than 0 read_errors
check pool_destroy

echo "-- a process dies with transfers under way"
for i in 1 2 3 4; do
	[ $((i % 2)) = 1 ] && fresh_pool producer || fresh_pool full
	env KV_ENGINE=uring "KV_MEMORY=${gpus[0]}" guest_put_get $node sizes mixed_batch >/dev/null &
	sleep 0.$((i * 3))
	kill -9 $! 2>/dev/null || true
	wait $! 2>/dev/null || true
	wait_for 10 p2p_all_free "$gpu"
done

echo "-- the device goes meanwhile, and comes back as another one"
fresh_pool producer
for way in KV_REGISTER=1 KV_NOTHING=; do
	env "$way" "KV_MEMORY=${gpus[0]}" guest_put_get $node "${data[@]}" >/dev/null 2>&1 &
	sleep 0.5
	put /sys/bus/pci/drivers/kvblk_testgpu/unbind "$gpu"
	wait $! 2>/dev/null || true
	[ -z "$(routes "$gpu" "${members[0]}")" ] || fail "the route outlived its device: $(routes "$gpu" "${members[0]}")"
	put /sys/bus/pci/drivers/kvblk_testgpu/bind "$gpu"
done
check env "KV_UNBIND=$gpu" "KV_MEMORY=${gpus[0]}" guest_uring $node registered_device_goes
wait_for 5 route_becomes "$gpu" "${members[0]}" "unknown -"
trips producer "${gpus[0]}" direct some sizes
route_is "$gpu" "${members[0]}" "direct -"

# with multipath, faults are injected into the drive below
mapfile -t faults < <(compgen -G "/sys/kernel/debug/${members[0]%n*}*n*/fault_inject" && compgen -G "/sys/kernel/debug/${members[1]%n*}*n*/fault_inject")
if [ ${#faults[@]} = 2 ]; then
	echo "-- a transfer fails: again through the kernel's memory; the way is tried out anew, and after a second one left alone"
	for op in get put; do
		before=$(counter device_fallbacks)
		# the log's write, once a second, may take the fault instead
		for ((try = 0; try < 20; try++)); do
			key=$((5000 + try))
			[ $op = get ] || key=$((6000 + try))
			[ $op = put ] || blocks put $key 1 2000000
			warm "${gpus[0]}"
			for f in "${faults[@]}"; do
				put "$f/verbose" 0 # or else the call trace counts as a complaint of the kernel
				put "$f/dont_retry" 1
				put "$f/status" 4 # of the transfer; an unknown command's is taken for an answer to REQ_NOWAIT
				put "$f/probability" 100
				put "$f/times" 1
			done
			check env "KV_MEMORY=${gpus[0]}" guest_blocks $node $op $key 1 2000000
			for f in "${faults[@]}"; do
				put "$f/probability" 0
			done
			blocks get $key 1 2000000
			expect "$op that had to be done again" "$hits" 1
			! routes "$gpu" | grep -q "bounce error" || break
		done
		[ $try -lt 20 ] || fail "no route is given up"
		# of the two members' routes, one has had two errors and the other at most one
		failed=$(($(counter device_fallbacks) - before))
		[ $failed = 2 ] || [ $failed = 3 ] || fail "a route is given up after $failed errors"
		put /sys/bus/pci/drivers/kvblk_testgpu/unbind "$gpu"
		put /sys/bus/pci/drivers/kvblk_testgpu/bind "$gpu"
		warm "${gpus[0]}"
	done
fi

echo "-- behind nvme-tcp"
check pool_destroy
nvmet_tcp_up p2p "${disks[1]}"
disks=("${namespaces[0]}")
# transfers that do not fill logical blocks are bounced anyway
trips header "${gpus[0]}" any none sizes pieces partial
more_than 50 put_bounced
more_than 50 get_bounced
route_is "$gpu" "${namespaces[0]##*/}" "bounce queue"
no_failures
