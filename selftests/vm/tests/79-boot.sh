#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=300 disks=2 phases=3 append=kvblk.boot=disk1 takes=150 kernels=newest,6.12 check=newest
# A host with systemd: installed, configured and enabled once, it has its pool back after a power cut, warm, without
# intervention: module, group of the node, a target that is late. The daemon is hardened, is restarted if killed, and
# rejects a broken file. At the next boot a target stays away, and the pool is up without it.
# slow: three boots with systemd, by an emulated CPU.
. "${0%/*}/boot.bash"

# monitored: the udev rule has written the group that may read counters
monitored() {
	[ "$(cat /sys/module/kvblk/parameters/monitor_gid)" = "$(getent group kvblk-monitor | cut -d: -f3)" ]
}

if [ "$phase" = 1 ]; then
	echo "-- from a bare host"
	host_install
	other_machine left right
	first_pool
	host_config "" "failing_run = 7;"
	check systemctl enable --now kvblkd
	wait_for 30 page 200 '^ready$' /ready
	blocks put 1 100 50000
	expect "the salt's owner, group and mode" "$(stat -c '%U %G %a' /etc/kvblk/salt)" "root kvblk 640"
	kvblk keyspace >/etc/kvblk/before
	power_cut
fi

check systemctl -q is-enabled kvblkd target
defer pool_destroy
defer 'systemctl stop kvblkd'
if [ "$phase" = 2 ]; then
	echo "-- no hand"
	wait_for 60 page 200 '^ready$' /ready
	check kvblk status
	warm
	check daemon_told "connect to $nqn:left, .*: failed: "
	check daemon_told "import pool $pool from /dev/nvme.*: done"
	expect "failing_run" "$(cat $sysfs/failing_run)" 7
	expect "the salt" "$(kvblk keyspace)" "$(cat /etc/kvblk/before)"
	expect "the node's group and mode" "$(stat -c '%G %a' $node)" "kvblk 660"
	wait_for 10 monitored
	expect "the counters' group and mode" "$(stat -c '%G %a' $sysfs/counters/gets)" "kvblk-monitor 440"
	expect "the daemon's rights" "$(awk '/^(CapEff|CapBnd|NoNewPrivs|Seccomp):/ { print $2 }' "/proc/$(daemon_pid)/status" | xargs)" \
		"0000000000210000 0000000000210041 1 2"
	expect "the lock's group and mode" "$(stat -c '%G %a' /run/kvblkd/lock)" "kvblk-monitor 640"

	echo "-- killed under load"
	stress_start -e -n -t 2 -k 300 -l 10000 -p 100
	pid=$(daemon_pid)
	check systemctl kill -s KILL kvblkd
	wait_for 30 respawned "$pid"
	wait_for 30 page 200 '^ready$' /ready
	stress_stop

	echo "-- a changed file, and one with an error"
	host_config "" "failing_run = 9;"
	check systemctl reload kvblkd
	wait_for 30 set_to failing_run 9
	host_config "" "failing_run = -1;"
	refuse systemctl reload kvblkd
	check daemon_told 'kvblkd.conf:5: pools\[0\].tunables.failing_run: -1 is not allowed'
	check systemctl -q is-active kvblkd
	expect "failing_run" "$(cat $sysfs/failing_run)" 9

	echo "-- the next time one target stays away"
	host_config 'degraded_after = 5; ready = "all";' "failing_run = 9;"
	sed -i 's/ left right$/ left/' /etc/systemd/system/target.service
	power_cut
fi

wait_for 60 daemon_told "import pool $pool from /dev/nvme.*, degraded: .* missing after 5 s: done"
wait_for 30 page 503 "^pool $pool: member .* is missing$" /ready
blocks get 1 100 50000
[ "$hits" -gt 20 ] && [ "$misses" -gt 20 ] || fail "without one of two members $hits of 100 blocks are hits"
check /bin/bash "${0%/*}/target.bash" right
wait_for 90 page 200 '^ready$' /ready
warm
