#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=120 takes=26 kernels=newest,6.12,debug,debug-smp
# The queue of a silent device is full: no submitter waits for room there. Deadlines hold, a killed process ends at once, others go on;
# what the queue had no room for is done when the device answers.
. "${0%/*}/pool.bash"

kv_load
flash 2 80
dm_create slow /dev/flash1 "0 %s linear /dev/flash1 0"
# the host's own patience is longer than the test's
modprobe -q nvme_core || true
timeout_of=/sys/module/nvme_core/parameters/io_timeout
defer "echo $(cat $timeout_of) >$timeout_of"
put $timeout_of 600
CONNECT_ARGS="--queue-size=16 --nr-io-queues=1" nvmet_tcp_up full /dev/mapper/slow
# a scheduler has twice the room
for scheduler in /sys/block/nvme*/queue/scheduler; do
	put "$scheduler" none
done
pool_format "${namespaces[0]}"
# before all else is taken down
defer 'dmsetup resume slow'
blocks put 1 32 200000
expect "puts" "$stored" 32
check kvblk pool create other --format --yes --segment-size 8M /dev/flash0
defer '[ ! -d /sys/class/kvblk/other ] || kvblk pool destroy other'

# dead PID: a kill has ended it
dead() {
	[ ! -d "/proc/$1" ] || grep -q '^State:.*Z' "/proc/$1/status"
}

for engine in ioctl uring; do
	export KV_ENGINE=$engine
	echo "-- $engine"
	check dmsetup suspend --noflush --nolockfs slow
	KV_DEADLINE_MS=1000 blocks get 1 32 200000
	expect "gets that were late" "$late" 32
	# into its own memory, and from there
	guest_blocks $node get 1 32 200000 >"$tmp/killed" 2>&1 &
	killed=$!
	guest_blocks $node put 100 32 200000 >"$tmp/puts" 2>&1 &
	puts=$!
	full() { [ "$(awk '{ print $1 + $2 }' "/sys/block/${namespaces[0]#/dev/}/inflight")" -ge 12 ]; }
	wait_for 10 full
	# not even its read waits for room there: it could not exit
	check kvblk pool import --scan >"$tmp/found" 2>"$tmp/said"
	grep -q "${namespaces[0]} does not answer" "$tmp/said" || fail "the full device is not told: $(cat "$tmp/said")"
	kill -KILL $killed
	wait_for 10 dead $killed
	# what needs room on it is another's matter
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
