#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=300 takes=90 kernels=newest,6.12 waits=1
# kvblkd keeps a host as its file says: it connects, imports and tunes, follows a changed file, and reconnects a target
# that the driver gave up, whose member returns with its blocks. It may be killed under load, waits for members before
# it imports a pool without them, and respects what an operator took down. Repeated log lines are counted instead.
# slow: a target is away for 15 s (in make check-all 40 s), and the driver gives one up three times.
. "${0%/*}/daemon.bash"

left=nqn.2026-11.org.kvblk:left right=nqn.2026-11.org.kvblk:right
timing="keep_alive = 5; ctrl_loss = 4; reconnect_delay = 1; fast_io_fail = 2;"

config() {
	cat >"$conf" <<-END
		subsystems = (
		  { nqn = "$left"; address = "127.0.0.1"; port = ${port[0]}; keep_alive = 600; },
		  { nqn = "$right"; address = "127.0.0.1"; port = ${port[1]}; $timing }
		);
		pools = ( { name = "$pool"; tunables: { $1 }; ${2-} } );
	END
}

daemon_end() {
	kill "-${1:-TERM}" $daemon
	wait $daemon || [ "${1-}" = KILL ]
}

reload() {
	local before
	before=$(grep -c 'READY=1' "$tmp/notified")
	kill -HUP $daemon
	wait_for 30 notified "$((before + 1))"
}

# notified COUNT: kvblkd has reported READY at least COUNT times
notified() {
	[ "$(grep -c 'READY=1' "$tmp/notified")" -ge "$1" ]
}

# all_up MEMBERS: the pool has this number of members, all up
all_up() {
	local states
	states=$(member_states 2>/dev/null) && [ "$(grep -c ' up$' <<<"$states")" = "$1" ] && [ "$(wc -l <<<"$states")" = "$1" ]
}

some_dead() {
	member_states | grep -q ' dead$'
}

gone_from_host() {
	[ -z "$(nvmet_controller $right)" ]
}

# right_gone: kill the target and wait until the driver gives it up
right_gone() {
	check nvmet_kill $right
	wait_for 60 gone_from_host
}

python3 - "$tmp/notify" >"$tmp/notified" <<-'END' &
	import os, sys
	import _socket as socket
	s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
	s.bind(sys.argv[1])
	while True:
	    print(s.recv(4096).decode().replace("\n", " "), flush=True)
END
defer "kill $! 2>/dev/null || true"
kv_load
for name in $left $right; do
	truncate -s 120M "$tmp/$name"
	nvmet_tcp_up "$name" "$tmp/$name"
	port+=("$target_port") member+=("${namespaces[0]}")
done
pool_format "${member[@]}"
blocks put 1 100 50000
check pool_destroy
check nvme disconnect -n $left >/dev/null
check nvme disconnect -n $right >/dev/null
kv_unload

echo "-- from a bare host; the module comes later"
config 'suspect_ms = 60000; failing_run = 7;'
NOTIFY_SOCKET=$tmp/notify daemon_start
wait_for 30 logged '^kvblkd: warning: load module kvblk: failed: this kernel has no such module; retrying within 60 s'
wait_for 30 logged "^kvblkd: connect to $left, tcp 127.0.0.1 port ${port[0]}: done"
kv_load
defer pool_destroy
wait_for 30 all_up 2
wait_for 10 set_to failing_run 7
wait_for 30 notified 1
blocks get 1 100 50000
expect "gets" "$hits" 100
expect "capabilities" "$(awk '$1 == "CapEff:" { print $2 }' "/proc/$daemon/status")" 0000000000210000

echo "-- a changed file, and one with an error"
config 'suspect_ms = 2000; failing_run = 9;'
reload
expect "failing_run, suspect_ms" "$(cat $sysfs/failing_run $sysfs/suspect_ms | xargs)" "9 2000"
config 'suspect_ms = 1;'
reload
check logged "kvblkd.conf:5: pools\[0\].tunables.suspect_ms: 1 is not allowed, it must be a number from 100 to 3600000"
check logged 'has errors; keeping the previous configuration'
expect suspect_ms "$(cat $sysfs/suspect_ms)" 2000
config 'suspect_ms = 2000; failing_run = 9;'
reload

away=15
[ "$KVBLK_DEPTH" = check ] || away=40
echo "-- $away s without a target, under load: the driver gives it up, it comes back"
# limited, so that earlier blocks are not reclaimed
stress_start -e -n -t 2 -k 300 -l 10000 -p 100
lines=$(wc -l <"$tmp/log") from=$SECONDS
right_gone
wait_for 30 some_dead
sleep $((from + away > SECONDS ? from + away - SECONDS : 0))
check nvmet_revive $right
wait_for 90 all_up 2
blocks get 1 100 50000
expect "gets" "$hits" 100
sed -n "$((lines + 1)),\$p" "$tmp/log"
lines=$(($(wc -l <"$tmp/log") - lines))
[ $lines -le $((20 * KVBLK_SLOW)) ] || fail "$lines lines in the log"
check logged "^kvblkd: warning: member-dead: pool $pool, member .*; kvblkd adds the member again when its device returns"
check logged "^kvblkd: warning: connect to $right, .*: failed: "
check logged "^kvblkd: add /dev/nvme.* to pool $pool: lost member"

echo "-- killed under load; a target is lost and comes back meanwhile"
daemon_end KILL
right_gone
check nvmet_revive $right
wait_for 30 some_dead
NOTIFY_SOCKET=$tmp/notify daemon_start
wait_for 60 all_up 2
stress_stop
blocks get 1 100 50000
expect "gets" "$hits" 100
expect "damaged blocks" "$(counter checksum_failures)" 0

echo "-- what an operator takes down stays down, until the file is read again"
check pool_destroy
wait_for 30 logged "pool $pool was taken down; to import it again"
refuse pool_is_here
reload
wait_for 30 all_up 2
check set_to failing_run 9

echo "-- members are waited for, then the pool is imported without them; a member that comes late comes back"
check daemon_end
check pool_destroy
right_gone
config 'suspect_ms = 2000;' 'degraded_after = 5;'
NOTIFY_SOCKET=$tmp/notify daemon_start
wait_for 30 logged "pool $pool: waiting for nvme.*; degraded import after 5 s"
refuse pool_is_here
wait_for 30 logged "import pool $pool from /dev/nvme.*, degraded: nvme.* missing after 5 s: done"
check nvmet_revive $right
wait_for 90 all_up 2
blocks get 1 100 50000
expect "gets" "$hits" 100

# hangup_taken: no SIGHUP is pending for kvblkd
hangup_taken() {
	local pending
	pending=$(awk '$1 == "ShdPnd:" { print $2 }' "/proc/$daemon/status")
	(((0x$pending & 1) == 0))
}

echo "-- a file that changes while the first pass is under way: ready when it is in force"
check daemon_end
# accept connections without an answer until the file is removed
python3 - 4499 "$tmp/asked" <<-'END' &
	import os, sys, time
	import _socket as socket
	s = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
	s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
	s.bind(("127.0.0.1", int(sys.argv[1])))
	s.listen(1)
	s._accept()
	open(sys.argv[2], "w").close()
	while os.path.exists(sys.argv[2]):
	    time.sleep(0.1)
END
defer "kill $! 2>/dev/null || true"
config 'suspect_ms = 2000; failing_run = 11;'
sed -i "s/^subsystems = (/&\n  { nqn = \"$left:silent\"; address = \"127.0.0.1\"; port = 4499; },/" "$conf"
before=$(grep -c 'READY=1' "$tmp/notified")
NOTIFY_SOCKET=$tmp/notify daemon_start
wait_for 30 test -e "$tmp/asked"
config 'suspect_ms = 2000; failing_run = 12;'
kill -HUP $daemon
# the signal arrives before the pass ends
wait_for 30 hangup_taken
rm "$tmp/asked"
wait_for 30 notified $((before + 1))
expect failing_run "$(cat $sysfs/failing_run)" 12

check daemon_end
check logged 'received SIGTERM; exiting'
