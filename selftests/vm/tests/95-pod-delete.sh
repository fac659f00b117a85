#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: nodes=e,a,b kernels=debug check=debug mem=768M timeout=500 takes=77
# Two nodes of a pod with kvblkd on both: b deletes blocks of a, which are then gone on both nodes, also after a is killed
# and imports its pool again. Without one of the daemons the deletes fail with -EREMOTE and delete nothing. Blocks of the
# NVMe key-value node are deleted so, too. A caller that is killed does not wait for the answer.
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

# tag OPCODE ARGUMENT...: send an NVMe key-value command for the key "abcd"
tag() {
	nvme io-passthru "/dev/kvblk/$pool/nvme-kv" --namespace-id=1 --opcode="$1" --cdw2=0x64636261 --cdw11=4 "${@:2}"
}

tag_store() {
	head -c 1000 /dev/urandom >/tmp/value
	check tag 1 --data-len=1000 --cdw10=1000 --write --input-file=/tmp/value
}

tag_is_there() {
	tag 0x14 >/dev/null 2>&1
}

tag_is_gone() {
	code 1 0x87 tag 0x14
}

tag_delete() {
	check tag 0x10
	tag_is_gone
}

# killed: a process ends at once that waits for the answer to a delete
killed() {
	local began=$SECONDS rc=0
	timeout -s KILL 1 guest_blocks "$node" delete 70 1 $len || rc=$?
	expect "exit code" $rc 137
	((SECONDS - began <= 3)) || fail "the process ended after $((SECONDS - began)) seconds"
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
at a tag_store
at b wait_for 20 tag_is_there
at b tag_delete
at a tag_is_gone

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

echo "-- a's kvblkd is stopped"
at a daemon_signal STOP
at b killed
at a daemon_signal CONT
wait_for 60 at b reached

echo "-- b's kvblkd dies"
at b daemon_kill
at b refused 60 5
at b daemon a
wait_for 60 at b reached
at b deletes 60 1
at b got 60 1 0 0
at a got 71 29 29 0
at b more_than 61 foreign_deletes
at b more_than 10 foreign_deletes_refused

for n in a b; do
	at $n no_failures
	daemon_quiet $n
done
