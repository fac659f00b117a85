#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: kernels=newest,6.12,debug check=debug mem=1G timeout=400 takes=46
# Two pools of a pod on one machine: what the second gets from the first is fetched by owner, once, and counts as a hit
# of the first. So reclaim of the first keeps these blocks and drops the others. What finds no room, and what is not
# followed any more, is counted as lost. The first deletes by id what another node names. Only root fetches and deletes.
# slow: a log that is turned over with a reuse grace, and 8,000 gets.
. "${0%/*}/pool.bash"
nobody=(setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps -all --bounding-set -all)

# has COUNT FIRST NR: of these blocks, the pool finds so many
has() {
	present=$(guest_blocks "$node" lookup "$2" "$3" $len) && [ "$present" = "present=$1" ]
}

# touched COUNT [OWNER]: so many blocks were got from others, now counted as hits of OWNER
touched() {
	check library_touches "$pool" "${@:2}" >"$tmp/touched"
	cat "$tmp/touched"
	expect "blocks fetched" "$(sed -n 's/^fetched=\([0-9]*\) .*/\1/p' "$tmp/touched")" "$1"
}

kv_load
flash 3 200
two_pools
on ta blocks put 0 400 $len 7
expect "blocks put" "$stored" 400
on tb check kvblk member follow tb /dev/flash0
wait_for 20 on tb has 400 0 400
on tb touched 0

echo "-- fetched by owner, each block once"
for first in 0 100 200 300; do
	on tb blocks get $first 20 $len 7
	on tb blocks get $first 20 $len 7
done
expect "foreign gets" "$(counter foreign_gets)" 160
owner=$(kvblk pool show ta -o json | sed -n 's/.*"uuid": "\([^"]*\)".*/\1/p' | tr -d - | head -n 1)
code 1 'Operation not permitted' "${nobody[@]}" /build/user/selftests/.bin/library_touches tb
on tb touched 80
expect "owner" "$(awk '$1 == "owner" { print $2, $3 }' "$tmp/touched" | sort -u)" "$owner aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
on tb touched 0
on tb blocks get 1000 20 $len 7
on tb touched 0

echo "-- touched: a pool counts its own blocks only"
expect "touches" "$(on ta counter touches)" 0
# a hit late in a block's stay is what reclaim looks for
on ta blocks put 1000 1000 $len 7
for first in 0 100 200 300; do
	on tb blocks get $first 20 $len 7
done
on tb touched 80 ta
expect "touches" "$(on ta counter touches)" 80
on tb blocks get 0 10 $len 7
# foreign entries of its index are not its own
on tb touched 10 tb
expect "touches of what is not here" "$(on tb counter touches)" 0

echo "-- reclaim keeps them and drops the others"
next=2000
# dropped: put more blocks; of the first 400 only the touched ones are left. Asked of tb, because lookups are hits.
dropped() {
	on ta blocks put $next 100 $len 7
	next=$((next + 100))
	for first in 20 120 220 320; do
		on tb has 0 $first 80 || return
	done
}
wait_for 120 dropped
for first in 0 100 200 300; do
	wait_for 10 on tb has 20 $first 20
	on ta blocks get $first 20 $len 7
	expect "hits of touched blocks" "$hits" 20
done
[ "$(on ta counter reinserts)" -ge 80 ] || fail "touched blocks were not written again"

echo "-- deleted by id, and not twice; blocks of others are not here"
on tb blocks get 0 20 $len 7
check library_touches tb ta delete >"$tmp/touched"
expect "results" "$(grep deleted= "$tmp/touched" | tr '\n' ' ')" "deleted=20 missing=0 deleted=0 missing=20 "
on ta blocks get 0 20 $len 7
expect "hits of deleted blocks" "$hits" 0
on tb blocks get 100 20 $len 7
check library_touches tb tb delete >"$tmp/touched"
expect "results" "$(grep deleted= "$tmp/touched" | tr '\n' ' ')" "deleted=0 missing=20 deleted=0 missing=20 "
on ta blocks get 100 20 $len 7
expect "hits of blocks that another pool was to delete" "$hits" 20

echo "-- lost: no longer followed, and no room"
on tb blocks get 100 20 $len 7
on tb check kvblk member unfollow tb flash0
on tb touched 0
expect "lost" "$(on tb counter touches_lost)" 20
on ta pool_destroy
on ta pod_pool_short --seed-of /dev/flash1 /dev/flash0
len=4096
wait_for 40 on ta takes_puts 9999
on ta blocks put 0 8000 $len 7
expect "blocks put" "$stored" 8000
on tb check kvblk member follow tb /dev/flash0
wait_for 60 on tb has 8000 0 8000
on tb blocks get 0 8000 $len 7
expect "foreign hits" "$hits $foreign" "8000 8000"
check library_touches tb ta >"$tmp/touched"
cat "$tmp/touched"
fetched=$(sed -n 's/^fetched=\([0-9]*\) .*/\1/p' "$tmp/touched")
lost=$(($(on tb counter touches_lost) - 20))
expect "fetched and lost" "$((fetched + lost))" 8000
[ "$lost" -gt 0 ] || fail "8000 blocks found room in lines of 8"
[ "$fetched" -gt 7000 ] || fail "only $fetched blocks were remembered"
expect "touches" "$(on ta counter touches)" "$fetched"
on tb touched 0
on ta no_failures
on tb no_failures
