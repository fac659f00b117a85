#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: nodes=e,a,b kernels=debug check=debug mem=768M timeout=500 takes=77
# Two nodes of a pod with kvblkd on both: b deletes blocks of a, which are then gone on both nodes, also after a is killed
# and imports its pool again. Without one of the daemons the deletes fail with -EREMOTE and delete nothing.
# slow: three machines, a node's death and boot, and deletes that wait 5 seconds for an answer.
. "${0%/*}/pod.bash"

# refused FIRST COUNT: deletes of these blocks return -EREMOTE
refused() {
	blocks delete "$1" "$2" $len
	expect "deletes, refused ones" "$deleted $remote" "0 $2"
}

# deletes FIRST COUNT: the owner deletes all of these blocks
deletes() {
	blocks delete "$1" "$2" $len
	expect "deletes, refused ones" "$deleted $remote" "$2 0"
}

pair 128 1
at b follow 1
at a blocks put 0 100 $len 7
at a blocks put 1000 100 $len 7
at b wait_sees 0 100
at b wait_sees 1000 100

echo "-- without kvblkd"
at b refused 0 5
at b got 0 100 100 100

echo "-- with kvblkd"
at a daemon b
at b daemon a
wait_for 60 at b reached
at b deletes 0 50
at b got 0 50 0 0
at a got 0 50 0 0
at b got 50 50 50 50

echo "-- a is killed: deletes were durable"
ask kill a
ask boot a
at a attach 2
at a again 1
at a got 0 50 0 0
at a got 50 50 50 0
at b wait_sees 50 50
at b got 0 50 0 0

echo "-- a has no kvblkd"
at b refused 50 1
at b got 50 50 50 50
at a daemon b
wait_for 60 at b reached
at b deletes 50 10

echo "-- b's kvblkd dies"
at b daemon_kill
at b refused 60 5
at b daemon a
wait_for 60 at b reached
at b deletes 60 1
at b got 60 1 0 0
at a got 61 39 39 0

for n in a b; do
	at $n no_failures
	daemon_quiet $n
done
