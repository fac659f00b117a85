#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: nodes=e,a,b kernels=debug check=debug mem=768M timeout=400 takes=55
# A node of a pod is lost, and kvblkd of another node adopts its pool after the time in the file, and not while the node
# writes. The blocks are hits there, and puts work.
# slow: three machines, and seconds of silence before the adoption.
. "${0%/*}/pod.bash"

# configure SETTING: write the file of kvblkd
configure() {
	cat >/tmp/kvblkd.conf <<-END
		pools = ( { name = "$pool"; tunables: { suspect_ms = 60000; reuse_grace_ms = 3000; };
		            pod: { name = "here"; $1 }; } );
	END
}

daemon_start() {
	kvblkd --config /tmp/kvblkd.conf >/tmp/log 2>&1 &
	echo $! >/tmp/pid
}

daemon_signal() {
	kill "-$1" "$(cat /tmp/pid)"
}

daemon_ended() {
	! kill -0 "$(cat /tmp/pid)" 2>/dev/null
}

# look: an event lets kvblkd look at all devices now
look() {
	echo change >"/sys/class/block/$(basename "$(namespace 1)")/uevent"
}

logged() {
	grep -q -- "$1" /tmp/log
}

# looks UNTIL: let kvblkd look each second, until the host is up for so many seconds
looks() {
	until awk -v until="$1" '{ exit $1 < until }' /proc/uptime; do
		look
		sleep 1
	done
}

later() {
	awk -v seconds="$1" '{ print $1 + seconds }' /proc/uptime
}

adopted() {
	look
	logged '^kvblkd: adopt pool pa of node a in pod here as pa-a: .*: done'
}

pair 128
at b follow 1 2
at a blocks put 0 100 $len 7
at b wait_sees 0 100
defer 'at b cat /tmp/log'
at b configure "adopt_after = 10;"
at b daemon_start

echo "-- not while a writes"
at b looks "$(at b later 15)"
at b refuse logged adopt

echo "-- a is lost"
ask kill a
at b wait_for 60 adopted
works() {
	wait_for 30 pool_is_up
	blocks get 0 100 $len 7
	expect "hits, of them foreign" "$hits $foreign" "100 0"
	blocks put 2000 20 $len 7
	expect "puts" "$stored" 20
	no_failures
}
at b on pa-a works
at b wait_sees 2000 20
at b got 2000 20 20 20
at b no_failures
at b refuse kernel_said 'reservation conflict|write to foreign member'
at b daemon_signal TERM
at b wait_for 10 daemon_ended
