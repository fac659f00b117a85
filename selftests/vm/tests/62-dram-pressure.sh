#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=200 takes=30 mem=640M kernels=newest,6.12 check=newest
# Blocks in memory on a host that is short of it: they count as reclaimable, programs get it back without a kill, no cgroup pays for
# them, and each byte that is got meanwhile is right.
. "${0%/*}/pool.bash"

kv_load
flash 1 74
pool_format /dev/flash0
put $sysfs/dram_bytes $((1 << 30))
MiB=$((1 << 20))

# kib FIELD: of /proc/meminfo
kib() {
	awk -v field="$1:" '$1 == field { print $2 }' /proc/meminfo
}

# hog MIB: a program that wants so much, and gives it back
hog() {
	check python3 -c 'import sys; x = bytearray(b"\1") * (int(sys.argv[1]) << 20)' "$1"
}

reclaimable=$(kib KReclaimable)
available=$(kib MemAvailable)
blocks put 1 150 $MiB
expect "puts" "$stored $memory" "150 150"
[ $(($(kib KReclaimable) - reclaimable)) -gt $((130 << 10)) ] || fail "150 MiB of blocks are no reclaimable memory: $(kib KReclaimable) KiB, was $reclaimable"
[ $((available - $(kib MemAvailable))) -lt $((100 << 10)) ] || fail "150 MiB of blocks count as used: $(kib MemAvailable) KiB available, was $available"

# more than is free: some of it comes from the pool
hog $((($(kib MemFree) >> 10) + 100))
more_than 10 dram_squeezed
blocks get 1 150 $MiB
[ "$misses" -gt 10 ] || fail "only $misses of 150 blocks have gone"

# a caller whose cgroup may have less than it puts
cgroups=$tmp/cgroup
check mkdir "$cgroups"
check mount -t cgroup2 none "$cgroups"
defer 'umount "$cgroups"'
put "$cgroups/cgroup.subtree_control" +memory
check mkdir "$cgroups/small"
defer 'rmdir "$cgroups/small"'
put "$cgroups/small/memory.max" $((96 * MiB))
bash -c "echo \$\$ >'$cgroups/small/cgroup.procs'; exec kv_blocks $node put 1001 200 $MiB" >"$tmp/small" ||
	fail "puts in a small cgroup: $(cat "$tmp/small")"
cat "$tmp/small"
grep -q 'stored=200 ' "$tmp/small" || fail "not all puts in a small cgroup were stored"
expect "kills in the cgroup" "$(awk '$1 == "oom_kill" { print $2 }' "$cgroups/small/memory.events")" 0

# all at once
stress_start -t 3 -n -k 2000 -l 200000
for i in 1 2 3 4 5; do
	hog 250
	blocks put $((2000 + 100 * i)) 60 $MiB
done
stress_stop
no_failures
