#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=300 takes=15 kernels=debug check=debug leaks=1
# Three tenants put, delete, replace and get blocks of the same keys at once, with bytes of their own, while reclaim drops
# some. Each get finds the last acknowledged block of its own tenant or none, never a byte of another one. A fourth tenant
# fills the pool and is cleared again and again, meanwhile; gets of what it had before find nothing.
. "${0%/*}/pool.bash"

seconds=10 bytes=40000000
[ "$KVBLK_DEPTH" != all ] || seconds=60 bytes=240000000
tenants=(default blue red)

# traffic TENANT SALT: change blocks while they are read
traffic() {
	local rc=0 tenant=/dev/kvblk/$pool/$1
	guest_oracle "$tenant" write "$tmp/journal.$1" 1 500 49152 $bytes $seconds "$2" &
	guest_oracle "$tenant" read "$tmp/journal.$1" 0 0 || rc=1
	wait $! && return $rc
}

kv_load
flash 2 80
pool_format /dev/flash0 /dev/flash1
put "$sysfs/first_duel" 0
for t in blue red green; do
	check kvblk tenant create $pool $t
done
salt=0
for t in "${tenants[@]}"; do
	traffic "$t" $((++salt)) >"$tmp/$t" 2>&1 &
	pids+=($!)
done
green=/dev/kvblk/$pool/green round=0
while kill -0 "${pids[@]}" 2>/dev/null; do
	((++round))
	node=$green blocks put 1 50 49152 $round
	expect "puts of green" "$((stored + full))" 50
	check kvblk tenant clear --yes $pool green
	node=$green blocks get 1 50 49152 $round
	expect "gets after a clear" "$hits $bad" "0 0"
done
for i in "${!pids[@]}"; do
	wait "${pids[i]}" || { cat "$tmp/${tenants[i]}"; fail "wrong results of ${tenants[i]}"; }
	grep -h '^puts=\|^gets=' "$tmp/${tenants[i]}"
	hits=0
	eval "$(grep '^gets=' "$tmp/${tenants[i]}")"
	((hits > 100)) || fail "only $hits hits of ${tenants[i]}"
done
echo "clears: $round"
(($(counter segments_reclaimed) > 0)) || fail "nothing was reclaimed"
