#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=150 check=newest takes=40
# Times to live and a host clock that jumps: no expired block comes back, and blocks expire on time.
. "${0%/*}/pool.bash"

kv_load
flash 1 120
offset=0
# jump SECONDS: set the clock forward, or back if negative
jump() {
	check date -s "@$(($(date +%s) + $1))" >/dev/null
	offset=$((offset + $1))
}
defer 'jump $((-offset))'

# put_ttl KEY SECONDS
declare -A ends
put_ttl() {
	local up
	read -r up _ </proc/uptime
	ends[$1]=$((${up%.*} + $2))
	head -c 5000 /dev/urandom | check kvblk put $pool --ttl "$2" "$1" -
}

is_gone() {
	! kvblk exists $pool "$1" >/dev/null
}

# is_there KEY: true also if its time is over, on a slow machine
is_there() {
	local up
	is_gone "$1" || return 0
	read -r up _ </proc/uptime
	[ "${up%.*}" -ge "${ends[$1]}" ]
}

hour=3600 century=$((100 * 365 * 24 * 3600))
pool_format /dev/flash0

echo "-- it jumps while the pool is up"
for by in -$hour $hour -$hour $century -$century; do
	put_ttl "before$by" 4
	put_ttl "stays$by" 1000
	jump "$by"
	put_ttl "after$by" 4
	is_there "before$by" && is_there "after$by" || fail "gone at once, when the clock jumps by $by s"
	wait_for 20 is_gone "before$by"
	wait_for 20 is_gone "after$by"
	is_there "stays$by" || fail "gone too early, when the clock jumped by $by s"
done

echo "-- it jumps while the pool is down: back and forth, again and again"
put_ttl old 2
wait_for 20 is_gone old
for by in $century -$century -$hour $hour; do
	check pool_destroy
	jump "$by"
	pool_import
	is_gone old || fail "what had expired is back, when the clock jumps by $by s"
	put_ttl "then$by" 3
	is_there "then$by" || fail "gone at once, when the clock jumped by $by s"
	wait_for 20 is_gone "then$by"
done

echo "-- the time while the pool was down counts"
put_ttl hour $hour
put_ttl long $((3 * hour))
check pool_destroy
jump $((2 * hour))
pool_import
is_gone hour || fail "a block of an hour is there after two"
is_there long || fail "a block of three hours is gone after two"

echo "-- a crash, and a clock that is behind"
put_ttl crash 2
wait_for 20 is_gone crash
# the table's time is written each 10 s
sleep 11
nullb_create copy 120
crash_image /dev/flash0 /dev/copy
check pool_destroy
jump -$((24 * hour))
pool_import /dev/copy
is_gone crash || fail "what had expired is back after a crash"
put_ttl after 3
is_there after || fail "gone at once"
wait_for 20 is_gone after
