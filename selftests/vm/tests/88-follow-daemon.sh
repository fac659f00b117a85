#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: nodes=e,a,b kernels=debug check=debug mem=768M timeout=400 takes=89
# kvblkd on b follows the members of a: formatted before b's eyes, formatted anew, and all members again after b's pool
# was down. Nothing changes while kvblkd is dead, or when kvblkd starts again. A member that was
# unfollowed by hand stays so until kvblkd reads the file again. The reuse grace is that of the file.
# slow: three machines, and kvblkd looks every 30 seconds.
. "${0%/*}/pod.bash"

# join N...: create the pool of the node in the pod of namespace 3
join() {
	up "$@" -- --seed-of "$(namespace 3)"
}

# configure FOLLOW: write the file of kvblkd
configure() {
	cat >/tmp/kvblkd.conf <<-END
		pools = ( { name = "$pool"; tunables: { suspect_ms = 60000; reuse_grace_ms = 4000; };
		            pod: { name = "here"; follow = $1; }; } );
	END
}

# daemon_start: start kvblkd and wait until it has looked once
daemon_start() {
	rm -f /tmp/notify /tmp/notified
	python3 - /tmp/notify >/tmp/notified 2>&1 <<-'END' &
		import os, sys
		import _socket as socket
		s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
		s.bind(sys.argv[1])
		while True:
		    print(s.recv(4096).decode().replace("\n", " "), flush=True)
	END
	wait_for 30 test -S /tmp/notify
	NOTIFY_SOCKET=/tmp/notify kvblkd --config /tmp/kvblkd.conf >/tmp/log 2>&1 &
	echo $! >/tmp/pid
	wait_for 60 ready 1
}

# ready COUNT: kvblkd has reported so often that it has looked after a start or a reload
ready() {
	[ "$(grep -c 'READY=1' /tmp/notified)" -ge "$1" ]
}

# reload: let kvblkd read the file and look
reload() {
	local before
	before=$(grep -c 'READY=1' /tmp/notified)
	daemon_signal HUP
	wait_for 60 ready $((before + 1))
}

daemon_signal() {
	kill "-$1" "$(cat /tmp/pid)"
}

daemon_ended() {
	! kill -0 "$(cat /tmp/pid)" 2>/dev/null
}

# logged TEXT [COUNT]: the log of kvblkd has so many such lines
logged() {
	[ "$(grep -c -- "$1" /tmp/log)" = "${2:-1}" ]
}

# look: an event lets kvblkd look at all devices now
look() {
	echo change >"/sys/class/block/$(basename "$(namespace 1)")/uevent"
}

# foreign: print name, state and uuid of each followed member
foreign() {
	kvblk member list "$pool" --foreign -H | awk -F '\t' '{ print $2, $3, $NF }' | sort
}

# follows COUNT: COUNT members are followed, and all are up
follows() {
	[ "$(foreign | grep -c ' up ')" = "$1" ] && [ "$(foreign | wc -l)" = "$1" ]
}

# got FIRST COUNT: the node gets the blocks, all from another node's members
got() {
	wait_for 20 sees "$1" "$2"
	blocks get "$1" "$2" $len 7
	expect "hits, of them foreign" "$hits $foreign" "$2 $2"
}

enclosure 4 128
defer 'at b cat /tmp/log'
at a load
at a attach 4
at b load
at b configure false
at b daemon_start
at b attach 4
at b up 3 4

echo "-- only if the file says so"
at a join 1 2
at a blocks put 0 100 $len 7
at b reload
at b follows 0
# up has set 3000
at b wait_for 30 set_to reuse_grace_ms 4000
at b configure true
at b reload
at b wait_for 30 follows 2
at b logged '^kvblkd: follow /dev/nvme.* in pool pb: member .* of node .*: done' 2
at b got 0 100

echo "-- formatted anew, which no event reports"
at a pool_destroy
at a join 1 2
at a blocks put 1000 100 $len 7
at b wait_for 120 logged '^kvblkd: follow /dev/nvme.*, which was formatted anew: done' 2
at b wait_for 30 follows 2
at b got 1000 100

echo "-- without kvblkd, and with it again"
was=$(at b foreign)
at b daemon_signal KILL
at b wait_for 10 daemon_ended
at a blocks put 2000 100 $len 7
at b got 2000 100
at b daemon_start
at b logged ' in pool pb: ' 0
expect "followed members" "$(at b foreign)" "$was"

echo "-- unfollowed by hand"
name=${was%% *}
at b check kvblk member unfollow pb "$name"
at b look
at b wait_for 30 logged '^kvblkd: pool pb: /dev/.* of node .* was unfollowed; to follow it again, reload kvblkd or run: kvblk apply'
at b follows 1
at b reload
at b wait_for 30 follows 2

echo "-- the pool goes down and comes up"
at b pool_destroy
at b reload
at b wait_for 60 follows 2
at b set_to reuse_grace_ms 4000
at b got 2000 100
at b no_failures
at b daemon_signal TERM
at b wait_for 10 daemon_ended
