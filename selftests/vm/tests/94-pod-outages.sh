#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: nodes=e,a,b kernels=debug check=debug mem=768M timeout=500 takes=90 waits=1
# A reader that is stopped in its gets, for longer than the grace, gets no wrong byte afterwards, although all that it
# read was overwritten. Its clock goes on meanwhile, as that of user-mode Linux always does. Wall clocks that jump on
# either side change nothing, and no block outlives its time to live. An enclosure that dies makes misses on both nodes,
# and all blocks are back with it.
# slow: three machines, two pauses in which all is overwritten, a time to live, an outage and the reconnects.
. "${0%/*}/pod.bash"

pair 96
both_follow

# put_for SECONDS: put a block with this time to live; is_there, is_gone
put_for() {
	echo short-lived | check kvblk put --ttl "$1" "$pool" ttl
}

is_there() {
	kvblk exists "$pool" ttl >/dev/null && kvblk get "$pool" ttl >/dev/null
}

is_gone() {
	! kvblk exists "$pool" ttl >/dev/null && ! kvblk get "$pool" ttl >/dev/null
}

all_miss() {
	blocks lookup "$1" "$2" $len && [ "$present" = 0 ] && blocks get "$1" "$2" $len 7 && [ "$hits" = 0 ]
}

for policy in full header; do
	echo "-- the reader is stopped, integrity $policy"
	for n in a b; do
		at $n set_tunable integrity $policy
	done
	at a blocks put 0 1000 $len 7
	at b rm -f /tmp/enough
	at b begin get_on 0 1000
	wait_for 20 at b grep -qs 'foreign=[1-9]' /tmp/begun
	ask stop b
	# more than a's members have
	at a blocks put 10000 4000 $len 7
	ask go b
	at b blocks get 0 1000 $len 7
	at b touch /tmp/enough
	at b ended
done
for n in a b; do
	at $n set_tunable integrity full
done

echo "-- clocks jump"
at a date -s 2027-06-01
at b date -s 2026-01-01
at a blocks put 1000 50 $len 7
at b wait_sees 1000 50
at b got 1000 50 50 50
at a put_for 25
at b wait_for 20 is_there
wait_for 60 at a is_gone
at b is_gone
at a date -s 2025-01-01
at b date -s 2028-01-01
at a blocks put 1100 50 $len 7
at b wait_sees 1100 50
at b got 1000 150 100 100
# by clocks that differ so it may have expired; once they agree, it is found
at a put_for 200
at b date -s 2025-01-01
at b wait_for 60 is_there

echo "-- the enclosure dies"
for n in a b; do
	at $n set_tunable suspect_ms 2000
done
check nvmet_kill pod
at b wait_for 60 all_miss 1000 50
at a wait_for 60 all_miss 1000 50
check nvmet_revive pod
for n in a b; do
	at $n wait_for 90 sees 1000 50
	at $n set_tunable suspect_ms 60000
done
at a got 1000 50 50 0
at b got 1000 50 50 50
at a blocks put 1200 50 $len 7
at b wait_sees 1200 50
at b got 1200 50 50 50
at b refuse kernel_said 'write to foreign member'
