#!/bin/bash
# SPDX-License-Identifier: MIT
# vm: timeout=200 pci=switch kernels=newest takes=58
# libkvblk's memory of all kinds: a test GPU's, P2P memory of any provider in sysfs, host memory, and CUDA memory with a
# fake driver, which tests the path to the drives and back.
# slow: every kind of memory through the whole library; a process of its own for each CUDA driver that lacks something.
. "${0%/*}/pool.bash"

# memory FROM KIND WAY [PAGES]: PAGES: whether some or none must go peer to peer
memory() {
	check p2p_witness library_memory $node "$1" "$2" "$3"
	case ${4-none} in
	some) [ "$p2p_pages" -gt 100 ] || fail "$p2p_pages pages went peer to peer" ;;
	none) [ "$p2p_pages" = 0 ] || fail "$p2p_pages pages went peer to peer, should be none" ;;
	esac
	echo "$1, $3: $p2p_pages pages peer to peer, $host_pages of the host"
}

# no_memory FROM: the memory does not exist, and that is the only error
no_memory() {
	local rc=0
	library_memory $node "$1" any any || rc=$?
	expect "exit code without memory $1" "$rc" 2
}

# cuda KIND [VARIABLE=VALUE...]: run with the fake driver
cuda() {
	local kind=$1
	shift
	check env LD_LIBRARY_PATH=/build/user/selftests/.bin/cuda "$@" library_memory $node cuda:0 "$kind" any
}

kv_load
p2p_load
pool_format "$(vm_disk 0)" "$(vm_disk 1)"
gpu=$(p2p_bdf "${gpus[0]}")
cmb=$(vm_disk_bdf 0)

echo "-- checked by the kernel: through its memory"
memory "${gpus[0]}" registered bounced
memory host registered any

echo "-- straight"
put $sysfs/integrity header
memory "${gpus[0]}" registered direct some
wait_for 10 p2p_all_free "$gpu"
memory "$gpu" registered direct some
memory "$(p2p_memory "$gpu")" registered direct some
wait_for 10 p2p_all_free "$gpu"
# a drive may reject a list of its own memory and other memory; few bytes, because the CPU's copy is slow under emulation
check library_memory $node "$cmb" registered any 65537
memory host registered any

echo "-- CUDA"
cuda staged
cuda staged KVBLK_FAKE_CUDA_MMAP=2
cuda staged KVBLK_FAKE_CUDA_MMAP=3
cuda registered KVBLK_FAKE_CUDA_MMAP=1
put /proc/sys/kernel/io_uring_disabled 2
defer 'echo 0 >/proc/sys/kernel/io_uring_disabled'
cuda staged

echo "-- none"
no_memory cuda:0
no_memory fffe:1f:1f.7
no_memory /nowhere/at/all
no_failures
