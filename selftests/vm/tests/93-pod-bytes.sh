#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: nodes=e,a,b kernels=debug check=debug mem=768M timeout=3600 takes=100
# Members of another node are byte-identical whatever a follower does: gets, lookups, leases, puts, deletes and
# prefetches of their blocks, scans, restarts, I/O errors, damaged reads, and death. The owner is down and has
# released its reservations, so that nothing but the follower's module keeps it from a write. In make check-all
# this goes on for half an hour.
# slow: three machines, and a follower that restarts and dies.
. "${0%/*}/pod.bash"

rounds=1
[ "$KVBLK_DEPTH" != all ] || rounds=30

# image: print a checksum of the members of a, from the enclosure's devices
image() {
	local n
	for n in 0 1; do
		dd if="/dev/flash$n" bs=1M iflag=direct status=none
	done | sha256sum
}

same() {
	expect "image of the foreign members after $1" "$(image)" "$was"
	echo "-- the same bytes after $1"
}

# paths: let the node reach the members of a by devices that can fail
paths() {
	dm_flakey f1 "$(namespace 1)"
	dm_flakey f2 "$(namespace 2)"
}

# faults [UP DOWN FEATURE...]: let the devices fail, or work
faults() {
	[ $# -gt 0 ] || set -- 1 0
	dm_flakey_set f1 "$(namespace 1)" "$@"
	dm_flakey_set f2 "$(namespace 2)" "$@"
}

# follow_paths: follow both, unless that is so already
follow_paths() {
	local name
	for name in f1 f2; do
		is_followed $name || check kvblk member follow --name $name "$pool" "/dev/mapper/$name"
	done
}

# follow_broken: try to follow both, which may be refused
follow_broken() {
	local name
	for name in f1 f2; do
		kvblk member follow --name $name "$pool" "/dev/mapper/$name" || echo "$name is refused"
	done
}

# leave NAME...: follow these members no more
leave() {
	local name
	for name; do
		! is_followed "$name" || check kvblk member unfollow "$pool" "$name"
	done
}

is_followed() {
	kvblk member list "$pool" --foreign -H | grep -qw "$1"
}

# all_there: gets of all blocks of a are hits
all_there() {
	blocks get 0 300 $len 7
	[ "$hits" = 300 ]
}

# with VARIABLE=VALUE COMMAND...
with() {
	local -x "${1?}"
	"${@:2}"
}

# try_all: all operations on blocks of a
try_all() {
	# or else prefetches are not supported
	put "$sysfs/dram_bytes" $((16 << 20))
	wait_for 60 all_there
	check guest_blocks "$node" lookup 0 300 $len
	check guest_blocks "$node" lease 0 300 $len
	blocks put 0 300 $len 7
	blocks put 0 300 $len 8
	blocks delete 100 50 $len
	blocks prefetch 0 300 $len
}

# refused VERB: this is refused for all blocks of a
refused() {
	blocks "$1" 0 300 $len
	expect "blocks of another node, $1" "$remote" 300
}

own_copies() {
	with KV_DURABLE=1 blocks put 0 20 $len 7
	expect "durable puts" "$stored" 20
	blocks get 0 20 $len 7
	expect "hits, of them foreign" "$hits $foreign" "20 0"
	blocks delete 0 10 $len
}

restart() {
	check pool_destroy
	again 3 4
}

storm() {
	while :; do
		guest_blocks "$node" get 0 300 $len 7
		guest_blocks "$node" put 0 300 $len 8
		guest_blocks "$node" delete 0 300 $len
	done
}

pair 72
at a blocks put 0 300 $len 7
at a pool_destroy
was=$(image)

for ((round = 1; round <= rounds; round++)); do
	echo "-- round $round of $rounds"
	at b paths
	at b follow_paths
	at b try_all
	at b refused delete
	at b refused prefetch
	same "gets, lookups, leases, puts, deletes and prefetches"
	at b own_copies
	same "own copies of foreign blocks, durable, and deletes of them"

	at b kvblk doctor || true
	at b kvblk pool clear pb
	at b leave f1 f2
	at b follow_paths
	at b try_all
	same "a clear of the follower's pool, and following anew"

	at b restart
	at b follow_paths
	at b try_all
	same "a restart of the follower"

	for fault in "" "random_read_corrupt 200000000" error_reads; do
		# shellcheck disable=SC2086 # words
		at b faults 0 3600 $fault
		at b blocks get 0 300 $len 7
		at b blocks put 0 300 $len 8
		at b blocks delete 0 300 $len
		at b leave f1 f2
		at b follow_broken
		at b faults
		at b follow_paths
		at b try_all
		same "faults: ${fault:-all I/O fails}"
	done

	at b refuse kernel_said 'write to foreign member'
	at b begin storm
	ask kill b
	same "the follower's death"
	ask boot b
	at b attach 4
	at b again 3 4
	at b follow 1 2
	at b try_all
	same "its return"
	# or else own copies hide blocks of a in the next round
	at b blocks delete 0 300 $len
	at b leave n1 n2
done
at a again 1 2
at a got 0 300 300 0
