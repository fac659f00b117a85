#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=120 takes=26 kernels=newest,6.12,debug,debug-smp
# The queue of a silent device is full, but no submitter waits for it: deadlines hold, a killed process exits at once,
# other devices work. I/O that found the queue full is done when the device responds.
. "${0%/*}/pool.bash"

kv_load
flash 2 80
dm_create slow /dev/flash1 "0 %s linear /dev/flash1 0"
# longer than this test, or else the host resets the controller
modprobe -q nvme_core || true
timeout_of=/sys/module/nvme_core/parameters/io_timeout
defer "echo $(cat $timeout_of) >$timeout_of"
put $timeout_of 600
CONNECT_ARGS="--queue-size=16 --nr-io-queues=1" nvmet_tcp_up full /dev/mapper/slow
# a scheduler doubles the queue, and I/Os that are merged do not fill it
for scheduler in /sys/block/nvme*/queue/scheduler; do
	put "$scheduler" none
	put "${scheduler%/*}/nomerges" 2
done
pool_format "${namespaces[0]}"
# deferred last, so run first: the rest of the cleanup needs the device
defer 'dmsetup resume slow'
blocks put 1 32 200000
expect "puts" "$stored" 32
check kvblk pool create other --format --yes --segment-size 8M /dev/flash0
defer '[ ! -d /sys/class/kvblk/other ] || kvblk pool destroy other'

# dead PID: true if the process has ended
dead() {
	[ ! -d "/proc/$1" ] || grep -q '^State:.*Z' "/proc/$1/status"
}

for engine in ioctl uring; do
	export KV_ENGINE=$engine
	echo "-- $engine"
	check dmsetup suspend --noflush --nolockfs slow
	KV_DEADLINE_MS=1000 blocks get 1 32 200000
	expect "gets that were late" "$late" 32
	# block both directions between memory and device
	guest_blocks $node get 1 32 200000 >"$tmp/killed" 2>&1 &
	killed=$!
	guest_blocks $node put 100 32 200000 >"$tmp/puts" 2>&1 &
	puts=$!
	full() { [ "$(awk '{ print $1 + $2 }' "/sys/block/${namespaces[0]#/dev/}/inflight")" -ge 12 ]; }
	wait_for 10 full
	# the scan must not wait in the device's queue, or else it could not exit
	check kvblk pool import --scan >"$tmp/found" 2>"$tmp/said"
	grep -q "${namespaces[0]} does not answer" "$tmp/said" || fail "the full device is not told: $(cat "$tmp/said")"
	kill -KILL $killed
	wait_for 10 dead $killed
	# another pool does not need the full device
	node=/dev/kvblk/other/default blocks put 1 32 50000
	expect "another pool's puts" "$stored" 32
	check dmsetup resume slow
	wait $puts || fail "puts: $(cat "$tmp/puts")"
	grep -q 'stored=32 .* bad=0' "$tmp/puts" || fail "puts: $(cat "$tmp/puts")"
	blocks get 1 32 200000
	expect "gets when it answers" "$hits" 32
	blocks get 100 32 200000
	expect "gets of what was put meanwhile" "$hits" 32
	blocks delete 100 32 1
	node=/dev/kvblk/other/default blocks delete 1 32 1
done
no_failures
