#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=200 pci=switch kernels=newest,6.12-p2p:switch check=debug takes=84
# Failing members, damaged media, lookups, leases and the library with memory of a GPU as source and destination:
# directly, through kernel memory, and in one list with host memory.
# slow: five tests of the host's memory again, each with three kinds of memory.
. "${0%/*}/p2p.bash"
nr=48
# whole pages, because some drives transfer nothing else directly
len=$((244 * 4096))

# again TEST ENGINE: run a test of host memory with blocks in memory of a GPU, of both, and of the host. Its members are
# no drives, so everything is bounced
again() {
	local t0=$SECONDS
	echo "-- $*"
	check env "KV_MEMORY=${gpus[0]},${gpus[0]},host" "KV_ENGINE=$2" "${0%/*}/$1"
	echo "$1: $((SECONDS - t0)) s"
}

# peers PAGES COMMAND...: run a command; at least PAGES pages go peer to peer, none if 0
peers() {
	check p2p_witness "${@:2}"
	[ "$p2p_pages" -ge "$1" ] || fail "$p2p_pages pages went peer to peer, should be $1: ${*:2}"
	[ "$p2p_pages" = 0 ] || [ "$1" != 0 ] || fail "$p2p_pages pages went peer to peer, should be none: ${*:2}"
}

# scribble FILE BYTES DRIVE SEGMENT [BYTE]: overwrite part of a segment; the partition begins at 1 MiB, its segments 1
# MiB later
scribble() {
	check dd if="$1" of="$3" bs="$2" count=1 seek=$(((2 + $4 * 8 << 20) + ${5-0})) oflag=direct,seek_bytes conv=notrunc status=none
}

# lost PAGES: get all blocks; some miss, each counted as damage; put these again from $from
lost() {
	local before missed
	before=$(counter checksum_failures)
	peers "$1" blocks get 1 $nr $len
	missed=$misses
	[ "$misses" -gt 0 ] && [ "$hits" -gt 10 ] || fail "damage cost $misses of $nr blocks"
	expect "checksum failures" $(($(counter checksum_failures) - before)) "$misses"
	KV_MEMORY=$from blocks put 1 $nr $len
	expect "puts of what was lost" "$stored" "$missed"
}

# damage POLICY MEMORY ENGINE FROM: damage blocks put from FROM, then get them directly into MEMORY. The kernel then
# checks headers only, so whole blocks or headers are damaged: writes begin where a segment does. "full" detects all
damage() {
	local pages=$((nr * len * 3 / 4 / 4096)) from=$4 segment
	echo "-- damage, $*"
	export KV_MEMORY=$2 KV_ENGINE=$3
	# half of the memory is the host's
	[[ $2 != *,host ]] || pages=$((pages / 2))
	fresh_pool "$1"
	warm "${gpus[0]}"
	KV_MEMORY=$from blocks put 1 $nr $len
	peers $pages blocks get 1 $nr $len
	expect "gets" "$hits" $nr
	echo "headers of zeroes"
	for segment in 0 1 2; do
		scribble /dev/zero 4096 "${drives[0]}" $segment
	done
	lost $pages
	echo "garbage"
	scribble "$tmp/garbage" $((12 << 20)) "${drives[0]}" 1
	lost $((pages / 2))
	if [ "$1" = producer ]; then
		echo "a page of garbage in payloads, behind what comes in one part"
		put $sysfs/integrity full
		put $sysfs/bounce_chunks 32
		for segment in 0 1 2; do
			scribble "$tmp/garbage" 4096 "${drives[1]}" $segment $((180 * 4096))
		done
		lost 0
		put $sysfs/integrity "$1"
	fi
	echo "whole blocks, at a place that is not theirs"
	check dd if="${drives[1]}" of="$tmp/segment" bs=1M skip=10 count=8 iflag=direct status=none
	scribble "$tmp/segment" $((8 << 20)) "${drives[1]}" 2
	lost $((pages / 2))
	unset KV_MEMORY KV_ENGINE
}

# lookups PAGES MEMORY COUNTER: test lookups and leases in a new pool; the counter is that of the expected way
lookups() {
	peers "$1" env "KV_MEMORY=$2" KV_ENGINE=uring guest_lookup_lease $node
	more_than 100 "$3"
	more_than 0 segments_reclaimed
	no_failures
}

# library WAY MOVED: run its example, and the command's benchmark with all engines
library() {
	local memory engine op
	for memory in "${gpus[0]}" "$gpu"; do
		code 0 "pinned once, $1" /build/user/tools/lib/examples/scatter $pool "$memory"
	done
	for engine in uring ioctl; do
		for op in put "get --blocks 50"; do
			# shellcheck disable=SC2086 # several words
			code 0 ": $2\$" kvblk bench $pool --op $op --size 100K --depth 8 --count 100 --engine $engine --mem "gpu:${gpus[0]}"
		done
	done
	no_failures
}

p2p_load
gpu=$(p2p_bdf "${gpus[0]}")
again 50-io-errors.sh uring
again 51-corruption.sh ioctl
wait_for 10 p2p_all_free "$gpu"

kv_load
echo "-- a bad sector in a payload costs its block, which can be put again"
medium_errors delay=0
defer pool_destroy
disks=("$disk")
# bad_sector MEMORY NR BYTES: of that many blocks
bad_sector() {
	export KV_MEMORY=$1
	pool_format "${disks[@]}"
	blocks put 1 "$2" "$3"
	put $scsi/opts 2
	# a prefetch costs none
	put $sysfs/dram_bytes $((64 << 20))
	blocks prefetch 1 "$2" "$3"
	put $sysfs/dram_bytes 0
	blocks get 1 "$2" "$3"
	expect "gets beside a bad sector" "$hits" $(($2 - 1))
	put $scsi/opts 0
	blocks put 1 "$2" "$3"
	expect "puts of what the bad sector cost" "$stored" 1
	unset KV_MEMORY
}

bad_sector "${gpus[0]}" 20 $len
more_than 0 device_bounced
check pool_destroy
# reads of small blocks are merged, and fail together
bad_sector host 60 65536
check pool_destroy

partitions
disks=("${small[@]}")
head -c 12M /dev/urandom >"$tmp/garbage"
damage header "${gpus[0]}" ioctl "${gpus[0]}"
put $sysfs/integrity full
KV_MEMORY=${gpus[0]} blocks get 1 $nr $len
expect "gets of what has no checksums" "$hits" 0
damage producer "${gpus[0]},host" uring host

echo "-- damage, after a change of policy: what was not written past the drives' caches is not believed"
expect "cache of ${drives[1]}" "$(cat "/sys/block/${drives[1]##*/}/queue/write_cache")" "write back"
fresh_pool full
blocks put 1 $nr $len
put $sysfs/integrity header
warm "${gpus[0]}"
for segment in 0 1 2; do
	scribble "$tmp/garbage" 4096 "${drives[1]}" $segment $((180 * 4096))
done
export KV_MEMORY=${gpus[0]} KV_ENGINE=ioctl
from=host lost 1
unset KV_MEMORY KV_ENGINE

echo "-- lookups and the library, straight"
disks=("${disks[0]}")
fresh_pool header
warm "${gpus[0]}"
lookups 1000 "${gpus[0]}" device_direct
library straight "100 direct, 0 bounced"
echo "-- the same through the kernel's memory"
fresh_pool full
lookups 0 "${gpus[0]},host" device_bounced
library "through the kernel" "0 direct, 100 bounced"
wait_for 10 p2p_all_free "$gpu"

echo "-- a get that fails in its last part"
nullb_create parts 100
modprobe -q dm_delay || true
dm_create late /dev/parts "0 %s linear /dev/parts 0"
disks=(/dev/mapper/late)
fresh_pool full
warm "${gpus[0]}"
KV_MEMORY=${gpus[0]} blocks put 1 1 300000
KV_MEMORY=${gpus[0]} blocks get 1 1 300000
expect "gets before it" "$hits" 1
dm_set late /dev/parts "0 %s delay /dev/parts 0 300 /dev/parts 0 0"
check env "KV_MEMORY=${gpus[0]}" timeout $((60 * KVBLK_SLOW)) guest_uring $node slow_parts
