#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=600 disks=2 phases=3 append=kvblk.boot=disk1 share=packages:--debs takes=300 kernels=newest check=debug
# The life of a host, from bare root to the second power cut: packages, file, boot; targets from two discovery
# controllers; traffic replayed at full speed; a lost and restored target, a killed daemon, a tunable changed live, a
# power cut, and a warm pool. At each step "kvblk status", /ready, Prometheus and its alerts agree, and a router that
# subscribes to the KV events has the kernel's blocks.
# slow: three boots with systemd, and twice Prometheus, by an emulated CPU.
. "${0%/*}/boot.bash"
. "${0%/*}/metrics.bash"

events=/kvblk/selftests/runtimes/kv_events.py
discovery='discovery = (
  { address = "127.0.0.1"; port = 4420; keep_alive = 60; ctrl_loss = 4; reconnect_delay = 1; fast_io_fail = 2; },
  { address = "127.0.0.1"; port = 4421; keep_alive = 60; ctrl_loss = 4; reconnect_delay = 1; fast_io_fail = 2; }
);'

# status_is HEALTH MEMBERS-UP: kvblk status reports this
status_is() {
	local said
	said=$(kvblk status -o json) || true
	[[ $said =~ ^\{[[:space:]]*\"health\":\ \"$1\" && $said =~ \"members_up\":\ $2, ]]
}

# alarmed [ALERT...]: exactly these alerts fire; the one on misses is ignored, because it covers ten minutes
alarmed() {
	ask /api/v1/alerts "sorted({a['labels']['alertname'] for a in d['alerts'] if a['state'] == 'firing'} - {'KvblkUnusualMisses'}) == sorted('$*'.split())"
}

# subscribed: check that a new subscriber has the kernel's blocks; sets $hashes to their number, $tokens to those with
# tokens
subscribed() {
	local told
	told=$(timeout $((100 * KVBLK_SLOW)) python3 $events follow $pool tcp://127.0.0.1:5557 tcp://127.0.0.1:5558 /dev/null) ||
		fail "a subscriber has not what there is: $told"
	hashes=0 tokens=0
	eval "$(grep ^same <<<"$told")"
}

# all_tell HEALTH MEMBERS-UP READY [ALERT...]: everything that an operator looks at agrees; metrics have no "note"
all_tell() {
	wait_for 90 status_is "$1" "$2"
	wait_for 30 page "$3" . /ready
	wait_for 60 ask "/api/v1/query?query=kvblk_pool_health%7Bhealth=%22${1/note/ok}%22%7D" 'd["result"] and d["result"][0]["value"][1] == "1"'
	wait_for 60 alarmed "${@:4}"
	wait_for 60 same
	subscribed
}

if [ "$phase" = 1 ]; then
	echo "-- a bare root: packages, a pool, the file"
	packages_install
	other_machine left right
	first_pool
	host_config 'ready = "all";' "failing_run = 7;" "$discovery"
	power_cut
fi

check systemctl -q is-enabled kvblkd target
defer pool_destroy
defer 'systemctl stop kvblkd'
prometheus_start
if [ "$phase" = 2 ]; then
	echo "-- boot, two discovery controllers"
	wait_for 90 page 200 '^ready$' /ready
	for port in 4420 4421; do
		check daemon_told "connect to nqn.2014-08.org.nvmexpress.discovery, tcp 127.0.0.1 port $port: done"
	done
	check daemon_told "connect to $nqn:right, tcp 127.0.0.1 port 4421: done"
	wait_for 120 prometheus_is_up
	all_tell ok 2 200

	echo "-- replay at full speed"
	check kvblk replay --pool $pool --synthetic --requests 100 --block-size 16K --threads 2 --verify --quiet
	blocks put 1 100 50000
	expect "puts" "$stored" 100
	check python3 $events load $pool $engine 50
	all_tell ok 2 200
	# blocks of other loads have no tokens
	[ "$tokens" -gt 300 ] || fail "$tokens of $hashes hashes have tokens"

	echo "-- a target is lost under load, and comes back"
	stress_start -e -n -t 2 -k 300 -l 10000 -p 100
	check nvmet_kill $nqn:right
	wait_for 60 daemon_told "member-dead: pool $pool"
	stress_stop
	all_tell degraded 1 503 KvblkMemberDead KvblkNotReady KvblkPoolDegraded
	check nvmet_revive $nqn:right
	# the errors remain a note until the pool is imported again
	all_tell note 2 200
	warm

	echo "-- the daemon is killed under load"
	stress_start -e -n -t 2 -k 300 -l 10000 -p 100
	pid=$(daemon_pid)
	check systemctl kill -s KILL kvblkd
	wait_for 30 respawned "$pid"
	stress_stop
	all_tell note 2 200

	echo "-- the file is changed live"
	host_config "" "failing_run = 9;" "$discovery"
	check systemctl reload kvblkd
	wait_for 30 set_to failing_run 9
	all_tell note 2 200
	warm
	power_cut
fi

echo "-- boot, warm"
wait_for 90 page 200 '^ready$' /ready
wait_for 120 prometheus_is_up
all_tell ok 2 200
check ask '/api/v1/query?query=kvblk_restored_total' 'int(d["result"][0]["value"][1]) >= 100'
[ "$hashes" -gt 0 ] || fail "a subscriber hears of no block that came back"
expect "failing_run" "$(cat $sysfs/failing_run)" 9
warm
