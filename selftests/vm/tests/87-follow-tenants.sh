#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=300 takes=75 kernels=newest,6.12,debug check=debug mem=1G
# Tenants of two pools of a pod, of which the second follows the first. A tenant that both have by the same name and id is
# shared: the node of the second pool finds, gets and touches the first one's blocks, by hints, too. Other tenants are
# apart. A new tenant gets the id of the tenant on the other node, or an id that neither node gave. Tables in conflict are
# refused. Blocks of a tenant that conflicts later are neither found nor served until the tables agree; the log says so once.
# A node that claims to have given nearly all ids uses up no ids of its followers.
# slow: sweeps of the index take half a minute, and superblocks are read each 5 seconds.
. "${0%/*}/pool.bash"

# of POOL TENANT COMMAND...: run a command about this tenant
of() {
	pool=$1 node=/dev/kvblk/$1/$2 sysfs=/sys/class/kvblk/$1
	"${@:3}"
}

# tenants: print "NAME ID" of each tenant of the pool except "nvme-kv"
tenants() {
	kvblk tenant list "$pool" -o json | python3 -c 'import json, sys; print(*(t[k] for t in json.load(sys.stdin) if t["name"] != "nvme-kv" for k in ("name", "id")))'
}

# gets FIRST COUNT TAG: the second pool finds and gets these blocks of the first
gets() {
	wait_for 30 sees "$1" "$2"
	blocks get "$1" "$2" $len "$3"
	expect "hits, of them foreign" "$hits $foreign $bad" "$2 $2 0"
}

# finds COUNT FIRST NR: of these blocks, the tenant finds so many
finds() {
	present=$(guest_blocks "$node" lookup "$2" "$3" $len) && [ "$present" = "present=$1" ]
}

# logged COUNT PATTERN: so many lines of the kernel log match; said PATTERN: one does
logged() {
	local nr
	nr=$(dmesg | grep -cE "$2") || true
	expect "lines of the log with $2" "$nr" "$1"
}

said() {
	dmesg | grep -qE "$1"
}

# claim NEXT: the superblocks of /dev/flash0 say that the next tenant gets this id
claim() {
	python3 - "$1" /dev/flash0 <<-'END'
		import mmap, os, struct, sys
		def crc32c(data):
		    crc = 0xffffffff
		    for byte in data:
		        crc = table[(crc ^ byte) & 255] ^ crc >> 8
		    return crc ^ 0xffffffff
		table = list(range(256))
		for _ in range(8):
		    table = [n >> 1 ^ (0x82f63b78 if n & 1 else 0) for n in table]
		fd = os.open(sys.argv[2], os.O_RDWR | os.O_DIRECT)
		for at in 0, 65536:
		    copy = mmap.mmap(-1, 65536)
		    os.preadv(fd, [copy], at)
		    crc = copy[8:12]
		    copy[8:12] = bytes(4)
		    if struct.pack("<I", crc32c(copy[:])) != crc:
		        sys.exit("a superblock is damaged")
		    copy[3976:3980] = struct.pack("<I", int(sys.argv[1]))
		    copy[8:12] = struct.pack("<I", crc32c(copy[:]))
		    os.pwritev(fd, [copy], at)
	END
}

# foreign_up NAME: the second pool follows this member
foreign_up() {
	kvblk member list tb --foreign -H | awk -F '\t' -v name="$1" '$2 == name && $3 == "up" { n++ } END { exit !n }'
}

# used: print the entries of the pool's index; used_is_at_most COUNT: for wait_for
used() {
	kvblk pool show "$pool" -o json | sed -n 's/.*"index_used": \([0-9]*\).*/\1/p'
}

used_is_at_most() {
	[ "$(used)" -le "$1" ]
}

# follow_hinted: let tb follow the members of ta by hints
follow_hinted() {
	local name

	for name in flash0 flash1; do
		check kvblk member follow tb --hinted /dev/$name
	done
	for name in flash0 flash1; do
		wait_for 30 foreign_up $name
	done
}

kv_load
flash 3 96
node_id a
on ta pod_pool_short /dev/flash0 /dev/flash1
node_id b
on tb pod_pool_short --seed-of /dev/flash0 /dev/flash2

check kvblk tenant create ta llm
check kvblk tenant create tb llm

echo "-- questions to the other node, and hints"
KV_CHAIN=1 of ta llm blocks put 1000 30 $len 7
follow_hinted
check guest_peers /dev/kvblk/tb/llm hints 1000 30 /dev/kvblk/ta/llm
of tb llm blocks get 1000 30 $len 7
expect "hits, of them foreign" "$hits $foreign" "30 30"
check guest_peers /dev/kvblk/tb/llm delete 1000 /dev/kvblk/ta/llm
on tb check kvblk member unfollow tb flash0
on tb check kvblk member unfollow tb flash1

echo "-- hints about a tenant that another one reads"
of ta llm blocks delete 1000 30 $len
KV_CHAIN=1 of ta llm blocks put 2000 30 $len 7
follow_hinted
check kvblk tenant set tb default --shared llm
check timeout $((60 * KVBLK_SLOW)) guest_peers /dev/kvblk/tb/default hints 2000 30 /dev/kvblk/ta/llm
of tb default blocks get 2000 30 $len 7
expect "hits, of them foreign" "$hits $foreign" "30 30"
check kvblk tenant set tb default --shared none
on tb check kvblk member unfollow tb flash0
on tb check kvblk member unfollow tb flash1

echo "-- the same name and id: shared; others are not"
check kvblk tenant create ta solo
of ta default blocks put 0 20 $len 6
of ta llm blocks put 0 100 $len 7
of ta solo blocks put 0 50 $len 8
on tb check kvblk member follow tb /dev/flash0
on tb check kvblk member follow tb /dev/flash1
of tb llm gets 0 100 7
of tb default gets 0 20 6
of tb default blocks get 20 80 $len
expect "hits of what only a tenant has" "$hits" 0
of tb llm blocks put 0 20 $len 7
expect "puts of what the other node has" "$stored $exists" "0 20"
of tb llm blocks delete 20 10 $len
expect "deletes of what the other node has" "$deleted $absent $remote" "0 0 10"

echo "-- a new tenant gets the id that it has on the other node, or one that is new on both"
check kvblk tenant create tb solo
expect "tenants" "$(on tb tenants)" "default 0 llm 1 solo 2"
of tb solo gets 0 50 8
check kvblk tenant create ta more
check kvblk tenant create tb mine
expect "tenants" "$(on tb tenants)" "default 0 llm 1 solo 2 mine 4"
of tb mine blocks get 0 100 $len
expect "hits of a tenant that only one node has" "$hits" 0

echo "-- touched and deleted by id"
library_touches tb >"$tmp/touched"
of tb llm blocks get 0 20 $len 7
of tb solo blocks get 0 10 $len 8
check library_touches tb ta >"$tmp/touched"
grep -q '^fetched=30 ' "$tmp/touched" || fail "touches: $(cat "$tmp/touched")"
expect "touches" "$(on ta counter touches)" 30
of tb solo blocks get 0 10 $len 8
check library_touches tb ta delete >"$tmp/touched"
expect "results" "$(grep deleted= "$tmp/touched" | tr '\n' ' ')" "deleted=10 missing=0 deleted=0 missing=10 "
of ta solo blocks get 0 20 $len 8
expect "hits after the delete" "$hits" 10
of ta llm blocks get 0 20 $len 7
expect "hits of another tenant" "$hits" 20
of tb solo blocks get 0 10 $len
expect "hits after the delete" "$hits" 0

echo "-- refused, as long as the tables are in conflict"
# the first pool follows nobody, so it gives the same id to another tenant
check kvblk tenant create ta late
code 1 'id 4 is tenant late here, mine there: clear one' kvblk member follow ta /dev/flash2
expect "members followed" "$(kvblk member list ta --foreign -H | wc -l)" 0
wait_for 20 said 'id 4 is tenant mine here and late on node'
of tb llm gets 0 100 7
check kvblk tenant clear --yes tb mine
expect "tenants" "$(on tb tenants)" "default 0 llm 1 solo 2 mine 5"
wait_for 20 said 'the tenants agree with those of node'

echo "-- a conflict that comes later: misses, puts that stay here, and no entries that lie about"
before=$(on tb used)
check kvblk tenant clear --yes ta llm
expect "tenants" "$(on ta tenants)" "default 0 llm 5 solo 2 more 3 late 4"
wait_for 20 of tb llm finds 0 0 100
wait_for 20 said 'tenant llm has id 1 here and 5 on node .* not shared'
conflict='tenant llm differs on node .* not shared'
check kvblk status tb | grep "$conflict"
expect "conflicts" "$(kvblk member list tb --foreign -o json | grep -c '"conflict": "llm"')" 2
of tb llm blocks get 0 20 $len
expect "hits of what is not shared any more" "$hits $misses" "0 20"
of tb llm blocks delete 20 10 $len
expect "deletes of what is not shared any more" "$absent $remote" "10 0"
of tb llm blocks put 40 10 $len 9
expect "puts of what is not shared any more" "$stored" 10
of tb llm blocks get 40 10 $len 9
expect "hits, of them foreign" "$hits $foreign" "10 0"
of tb solo gets 10 40 8
check kvblk tenant remove --yes tb solo
# 90 of llm, 40 of solo; ten were put here
wait_for 90 on tb used_is_at_most $((before - 130))
code 1 'tenant llm has id 5 here, 1 there: remove it on one' kvblk member follow ta /dev/flash2
on tb check kvblk member unfollow tb flash0
code 1 'tenant llm has id 1 here, 5 there: remove it on one' kvblk member follow tb /dev/flash0

echo "-- it is over when both were cleared"
of ta llm blocks put 0 50 $len 10
check kvblk tenant clear --yes tb llm
expect "tenants" "$(on tb tenants)" "default 0 llm 6 mine 5"
check kvblk tenant clear --yes ta llm
expect "tenants" "$(on ta tenants)" "default 0 llm 6 solo 2 more 3 late 4"
of ta llm blocks put 50 50 $len 11
check kvblk member follow tb /dev/flash0
of tb llm gets 50 50 11
check kvblk status tb >"$tmp/status"
refuse grep "$conflict" "$tmp/status"
of tb llm blocks get 0 50 $len
expect "hits of what was cleared" "$hits" 0
for line in 'id 4 is tenant mine here and late on node' 'tenant llm has id 1 here and 5 on node'; do
	logged 1 "$line"
done
logged 2 'the tenants agree with those of node'

echo "-- an id that was given here is not given again"
code 1 'flash[01] has it with id 2, given here before: clear it there' kvblk tenant create tb solo
check kvblk member follow ta /dev/flash2
check kvblk tenant clear --yes ta solo
check kvblk tenant create tb solo
expect "tenants" "$(on tb tenants)" "default 0 llm 6 solo 7 mine 5"
expect "tenants" "$(on ta tenants)" "default 0 llm 6 solo 7 more 3 late 4"
of ta solo blocks put 0 20 $len 12
of tb solo gets 0 20 12
of tb llm blocks put 200 20 $len 13
of ta llm gets 200 20 13

echo "-- a node that claims to have given nearly all ids"
check kvblk tenant create ta solo2
check claim 16383
check kvblk tenant create tb next
[[ "$(on tb tenants)" =~ next\ ([0-9]+) ]] || fail "tenants: $(on tb tenants)"
[ "${BASH_REMATCH[1]}" -lt 20 ] || fail "the new tenant has id ${BASH_REMATCH[1]}"
check claim 4000
check kvblk tenant clear --yes tb next
[[ "$(on tb tenants)" =~ next\ 4000 ]] || fail "tenants: $(on tb tenants)"
check kvblk tenant remove --yes tb next

echo "-- after a restart"
on tb pool_destroy
on tb pool_import --force /dev/flash2
check kvblk member follow tb /dev/flash0
check kvblk member follow tb /dev/flash1
of tb solo gets 0 20 12
of tb llm gets 50 50 11
on ta no_failures
on tb no_failures
