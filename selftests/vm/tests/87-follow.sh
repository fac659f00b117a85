#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=150 kernels=newest,6.12,debug check=debug mem=1G takes=57
# Two pools of a pod on one machine: the second follows the members of the first. Its lookups and gets find the blocks
# that the first has, soon after the puts; they say so, as traces do; leases of such blocks end within the reuse grace;
# change feeds include them. The second writes no byte to them, whatever happens; blocks that the first deletes or
# reclaims are misses and never wrong; a member that is lost or formatted anew costs misses only.
# slow: 200 MB of puts under gets of as much, on an emulated CPU, and leases that end within the reuse grace.
. "${0%/*}/pool.bash"

follow() {
	check kvblk member follow "$pool" "$@"
}

# foreign_is NAME STATE: the second pool follows this member
foreign_is() {
	kvblk member list tb --foreign -H | awk -F '\t' -v name="$1" -v state="$2" '$2 == name && $3 == state { n++ } END { exit !n }'
}

# image: print a checksum of the first pool's members
image() {
	cat /dev/flash0 /dev/flash1 | sha256sum
}

kv_load
flash 4 96
nullb_create spare 104
node_id a
on ta pod_pool /dev/flash0 /dev/flash1
node_id b
on tb pod_pool --seed-of /dev/flash0 /dev/flash2
on ta blocks put 0 100 $len 7
expect "blocks put" "$stored" 100

# refused: not another node's, not of a pod, and names that are taken
code 1 "not of another node's" kvblk member follow tb /dev/flash2
code 1 "not a member of a pool" kvblk member follow tb /dev/flash3
code 1 "no pool" kvblk member follow tc /dev/flash0
on t pool_format /dev/flash3
code 1 "is in no pod" kvblk member follow t /dev/flash0
code 1 "not in this pod" kvblk member follow tb /dev/flash3
on t pool_destroy
code 1 "has a member flash2" kvblk member follow --name flash2 tb /dev/flash0

# blocks that are there, and blocks that come later
on tb follow /dev/flash0
on tb follow /dev/flash1
code 1 "followed already" kvblk member follow tb /dev/flash0
on t pool_create --force --pod there --format --yes --segment-size 8M /dev/flash3
KV_FOLLOWED=/dev/flash0 KV_OTHER_POD=/dev/flash3 check guest_netlink_input tb flash2 /dev/spare follow types_of_pods
on t pool_destroy
wait_for 10 on tb sees 0 100
on tb changes_start
on tb blocks get 0 100 $len 7
expect "foreign hits" "$hits $foreign" "100 100"
expect "foreign gets" "$(counter foreign_gets)" 100
on ta blocks put 100 100 $len 7
wait_for 10 on tb sees 100 100
on tb blocks get 0 200 $len 7
expect "foreign hits" "$hits $foreign" "200 200"
KV_DEADLINE_MS=60000 on tb blocks get 0 200 $len 7
expect "foreign hits with hard deadlines" "$hits $foreign" "200 200"

# traced by name
tracefs_mount
put $tracefs/events/kvblk/kvblk_get/enable 1
on tb blocks get 0 10 $len 7
on ta blocks get 0 10 $len 7
put $tracefs/events/kvblk/kvblk_get/enable 0
expect "traced gets of foreign blocks" "$(grep -cE ' kvblk_get: tb: .* res=65536 (direct|bounced)\|foreign ns=' $tracefs/trace)" 10
expect "traced gets of own blocks" "$(grep -cE ' kvblk_get: ta: .* res=65536 (direct|bounced) ns=' $tracefs/trace)" 10

# a get whose task does not run ends without it, and is read again for the rest of the last page: it counts once
on ta blocks put 200 10 65001 7
wait_for 10 on tb sees 200 10
before=$(pinned) gets=$(on tb counter foreign_gets) bounced=$(on tb counter get_bounced)
on tb hold get 200 10 65001
wait_for 20 pinned_is "$before"
release
expect "gets" "$(tail -n 1 "$tmp/held")" good=10
expect "gets read again" "$(on tb counter get_bounced)" $((bounced + 10))
expect "foreign gets" "$(on tb counter foreign_gets)" $((gets + 10))
got=$(kvblk member list tb --foreign -o json | sed -n 's/^ *"gets": \([0-9]*\).*/\1/p' | awk '{ n += $1 } END { print n }')
expect "gets by member" "$got" $((gets + 10))

# a put of what the other has writes nothing, unless it must be durable here
on tb blocks put 0 50 $len 7
expect "puts of foreign blocks" "$stored $exists $(counter foreign_put_exists)" "0 50 50"
KV_DURABLE=1 on tb blocks put 0 10 $len 7
expect "durable puts of foreign blocks" "$stored" 10
on tb blocks get 0 200 $len 7
expect "hits, of them foreign" "$hits $foreign" "200 190"
on tb blocks put 1000 50 $len 7
on tb blocks get 1000 50 $len 7
expect "own hits" "$hits $foreign" "50 0"
found=$(counter foreign_lookup_hits)
on tb blocks lookup 0 60 $len
expect "lookups that found foreign blocks" "$present $(counter foreign_lookup_hits)" "60 $((found + 50))"

# deletes are the owner's, and no get finds the block afterwards
on tb blocks delete 20 10 $len
expect "deletes of foreign blocks" "$remote" 10
on ta blocks delete 20 10 $len
expect "deletes of own blocks" "$deleted" 10
on tb blocks get 20 10 $len 7
expect "hits of deleted blocks" "$hits" 0
expect "misses, as moved" "$(counter miss_foreign_moved)" 10
on ta blocks put 20 10 $len 8
wait_for 10 on tb sees 20 10
on tb blocks get 20 10 $len 8
expect "hits of blocks put again" "$hits" 10

# the change feed reports foreign blocks as own ones: 60 of these are own
changes_end
expect "blocks of the feed" "$present" 260
[ "$removed" -ge 10 ] || fail "the feed reports $removed removed blocks, should be the 10 deleted ones at least"

# lookups and leases, of own and foreign blocks together
KV_OWNER=/dev/kvblk/ta/default on tb check guest_lookup_lease "$node" foreign_blocks

# the owner reclaims while the other gets: misses, and never a wrong byte
on ta blocks put 2000 3000 $len 9 &
putter=$!
for _ in 1 2 3 4 5; do
	on tb blocks get 0 200 $len
	on tb blocks get 2000 3000 $len
done
wait $putter || fail "puts failed"
on ta more_than 0 segments_reclaimed
on tb no_failures

# the member is formatted anew, then lost
on ta pool_destroy
was=$(image)
on tb blocks get 0 200 $len
on tb blocks get 2000 3000 $len
[ "$hits" -gt 100 ] || fail "a node that is down serves $hits blocks"
expect "image of the foreign members" "$(image)" "$was"
on ta pod_pool --seed-of /dev/flash2 /dev/flash0 /dev/flash1
wait_for 20 foreign_is flash0 unrestored
wait_for 20 foreign_is flash1 unrestored
on tb blocks get 2000 3000 $len
expect "hits of a member that was formatted anew" "$hits" 0
on tb follow /dev/flash0
on tb follow /dev/flash1
on ta blocks put 3000 100 $len 10
wait_for 20 on tb sees 3000 100
on tb blocks get 3000 100 $len 10
expect "hits" "$hits" 100

# not followed any more; the name is free
on tb check kvblk member unfollow tb flash0
expect "foreign members" "$(kvblk member list tb --foreign -H | wc -l)" 1
on tb check kvblk member unfollow tb flash1
on tb blocks get 3000 100 $len 10
expect "hits of what is not followed" "$hits" 0
on tb follow /dev/flash0
on tb follow /dev/flash1
wait_for 20 on tb sees 3000 100
on tb blocks get 3000 100 $len 10
expect "hits" "$hits" 100

# each pool goes down under the other
on tb pool_destroy
on tb pool_import --force /dev/flash2
on tb follow /dev/flash0
wait_for 20 on tb blocks get 3000 20 $len 10
on ta pool_destroy
on tb pool_destroy
