#!/bin/bash
# SPDX-License-Identifier: MIT
# vm: timeout=120 pci=switch,two-gpus,two-switches,unreachable kernels=newest,6.12-p2p:switch,6.12-p2p:unreachable takes=33,14,10,16
# The bed for P2PDMA itself, without kvblk: memory of a test GPU and of a drive's CMB as source and destination of
# direct I/O, the witness' counts, and a GPU removed while in use.
. "${0%/*}/../lib.sh"
MiB=1048576

# moved P2P BRIDGE HOST COMMAND...: run a command, for which the kernel must map these numbers of 4 KiB pages
moved() {
	local want="$1 peer to peer, $2 of these through the bridge, $3 of the host" got
	shift 3
	check p2p_witness "$@"
	got="$p2p_pages peer to peer, $p2p_bridge_pages of these through the bridge, $host_pages of the host"
	[ "$got" = "$want" ] || fail "pages: $got; should be $want: $*"
}

# the error of I/O to a drive that cannot be reached, and the driver's attempts: it repeats each request of a list alone
case $KVBLK_KERNEL in
6.12-p2p) unreachable=EREMOTEIO tries=2 ;;
*) unreachable=EINVAL tries=1 ;;
esac

# refused ERRNO COMMAND...: I/O fails with ERRNO, and the kernel maps nothing, above all no host memory
refused() {
	local errno=$1 rc=0
	shift
	p2p_witness "$@" >"$tmp/refused" || rc=$?
	cat "$tmp/refused"
	[ $rc = 2 ] && grep -q ": $errno$" "$tmp/refused" || fail "should end with $errno: $*"
	[ "$p2p_pages $host_pages" = "0 0" ] || fail "mapped although refused: $p2p_pages pages peer to peer, $host_pages of the host: $*"
}

# round_trip MEMORY DRIVE BRIDGE: transfer directly both ways, then compare the drive's content through host memory
round_trip() {
	moved 512 $(($3 * 512)) 256 guest_p2p_plain trip "$1" "$2" $MiB
	moved 256 $(($3 * 256)) 0 guest_p2p_plain read "$1" "$2" $MiB
	moved 1 "$3" 0 guest_p2p_plain write "$1" "$2" 4096
}

# holder MEMORY: start a process that maps 1 MiB, with output in $tmp/holder; holder_ends CODE: let it read the memory
# once more, and check its exit code
holder() {
	mkfifo "$tmp/wake"
	guest_p2p_plain hold "$1" $MiB <>"$tmp/wake" >"$tmp/holder" &
	holder=$!
	wait_for 5 grep -qs ready "$tmp/holder"
}

holder_ends() {
	local rc=0
	echo >"$tmp/wake"
	wait $holder || rc=$?
	rm "$tmp/wake"
	[ $rc = "$1" ] || fail "the holder ended with $rc, not $1: $(cat "$tmp/holder")"
}

gpu_driver() {
	put "/sys/bus/pci/drivers/kvblk_testgpu/$1" "$2"
}

p2p_load
gpu=$(p2p_bdf "${gpus[0]}")
cmb=$(vm_disk_bdf 0)
cmb_used=$(p2p_used "$cmb")
memory=("${gpus[@]}")
for node in "${gpus[@]}"; do memory+=("$(p2p_memory "$(p2p_bdf "$node")")"); done
memory+=("$(p2p_memory "$cmb")")
[ "$(cat "/sys/class/misc/${gpus[0]##*/}/hbm_size")" = $((64 * MiB)) ] || fail "the GPU has not 64 MiB"
[ "$(cat "/sys/bus/pci/devices/$gpu/p2pmem/size")" = $((64 * MiB)) ] || fail "it is not P2P memory"

echo "-- the witness, on transfers that do not need it"
moved 0 0 768 guest_p2p_plain trip host "$(vm_disk 0)" $MiB
moved 0 0 1 guest_p2p_plain read host "$(vm_disk 1)" 4096

echo "-- drives that can be reached, or not"
case $KVBLK_PCI in
two-gpus) [ ${#gpus[@]} = 2 ] || fail "not two GPUs: ${gpus[*]}" ;;&
switch | two-gpus) bridge=0 ;;
two-switches) bridge=1 ;;
unreachable) bridge= ;;
esac
for m in "${memory[@]}"; do
	round_trip "$m" "$(vm_disk 0)" 0
	if [ -n "$bridge" ]; then
		round_trip "$m" "$(vm_disk 1)" "$bridge"
	else
		refused $unreachable guest_p2p_plain read "$m" "$(vm_disk 1)" 4096
		[ "$p2p_refused" = $tries ] || fail "$p2p_refused requests were refused, not $tries"
		refused $unreachable guest_p2p_plain write "$m" "$(vm_disk 1)" $MiB
	fi
done
[ "$KVBLK_PCI" = switch ] || exit 0

echo "-- not through nvme-tcp, device mapper, null_blk"
nvmet_tcp_up p2p "$(vm_disk 1)"
dm_create over "$(vm_disk 1)" "0 %s linear $(vm_disk 1) 0"
nullb_create p2p 64
for device in "${namespaces[0]}" /dev/mapper/over /dev/p2p; do
	for m in "${gpus[0]}" "$(p2p_memory "$cmb")"; do
		refused EREMOTEIO guest_p2p_plain read "$m" "$device" $MiB
		refused EREMOTEIO guest_p2p_plain write "$m" "$device" 4096
	done
	moved 0 0 0 guest_p2p_plain read host /dev/p2p $MiB
done

echo "-- memory comes back, and ends"
wait_for 5 p2p_all_free "$gpu"
[ "$(p2p_used "$cmb")" = "$cmb_used" ] || fail "memory of the CMB was not given back"
guest_p2p_plain hold "${gpus[0]}" $((65 * MiB)) </dev/null >"$tmp/full" && fail "more than the GPU has"
grep -q ENOMEM "$tmp/full" || fail "not ENOMEM: $(cat "$tmp/full")"
holder "${gpus[0]}"
[ "$(p2p_used "$gpu")" = $MiB ] || fail "the holder has $(p2p_used "$gpu") bytes, not 1 MiB"
holder_ends 0
wait_for 5 p2p_all_free "$gpu"

echo "-- the GPU goes while it is mapped"
for m in "${gpus[0]}" "$(p2p_memory "$gpu")"; do
	holder "$m"
	gpu_driver unbind "$gpu"
	[ ! -e "${gpus[0]}" ] || fail "the node outlived its device"
	gpu_driver bind "$gpu"
	holder_ends 3
	p2p_all_free "$gpu" || fail "memory of the GPU was not given back"
	round_trip "$m" "$(vm_disk 0)" 0
done

echo "-- the GPU goes in the middle of I/O"
for m in "${gpus[0]}" "$(p2p_memory "$gpu")"; do
	for i in 0 1; do
		rm -f "$tmp/loop$i" # the last round's says "ready", too
		guest_p2p_plain loop "$m" "$(vm_disk "$i")" $MiB >"$tmp/loop$i" &
	done
	for i in 0 1; do wait_for 5 grep -qs ready "$tmp/loop$i"; done
	sleep 0.3 # let I/O start
	gpu_driver unbind "$gpu"
	wait
	for i in 0 1; do
		grep -q 'read: E' "$tmp/loop$i" || fail "the loop ended otherwise: $(cat "$tmp/loop$i")"
		cat "$tmp/loop$i"
	done
	gpu_driver bind "$gpu"
	p2p_all_free "$gpu" || fail "memory of the GPU was not given back"
done

echo "-- rmmod while it is mapped"
holder "${gpus[0]}"
refuse rmmod kvblk_testgpu
holder_ends 0
holder "$(p2p_memory "$gpu")"
check rmmod kvblk_testgpu
holder_ends 3
