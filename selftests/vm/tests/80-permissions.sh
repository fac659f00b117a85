#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=120 takes=25 check=debug
# A runtime needs the node's group, not root. Without the group it has no access, and only root administers. Counters,
# routes, events and fill levels are for root and the group of the parameter monitor_gid; so are change feeds. A container
# with the node may use the pool, and do nothing else.
. "${0%/*}/pool.bash"
nobody=(setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps -all --bounding-set -all)
member=(setpriv --reuid 65534 --regid 65534 --groups 4242 --inh-caps -all --bounding-set -all)
monitor=(setpriv --reuid 65534 --regid 65534 --groups 4343 --inh-caps -all --bounding-set -all)
both=(setpriv --reuid 65534 --regid 65534 --groups "4242,4343" --inh-caps -all --bounding-set -all)
monitor_gid=/sys/module/kvblk/parameters/monitor_gid
# files that move with the use of the pool
use=(free leased_bytes dram_used duel_{winner,refs,first_hits,second_hits} index_used counters/{gets,get_misses,lookup_hits}
	members/flash0/{free_segments,sealed_segments,inflight,restored,unread_segments} tenants/default/{used_{bytes,blocks,dram},openers})

# blind USER...: the user learns that there is a pool, and nothing of its use
blind() {
	local f
	for f in "${use[@]}"; do
		refuse "$@" cat "$sysfs/$f" 2>/dev/null
	done
	check "$@" cat $sysfs/{state,capacity,index_slots,value_max,members/flash0/{state,size}} >/dev/null
	for f in "stat $pool" status "iostat $pool" events; do
		# shellcheck disable=SC2086 # words
		refuse "$@" kvblk $f 2>"$tmp/refused"
		grep -q kvblk-monitor "$tmp/refused" || fail "kvblk $f does not name the group: $(cat "$tmp/refused")"
	done
	expect "pool list" "$("$@" kvblk pool list -Hp | cut -f 1,2,4,5)" "$pool"$'\t1\t\t'
	expect "pool list -o json" "$("$@" kvblk pool list -o json | grep -c '"\(free\|free_segments\|index_used\|index_evicted\|leased_bytes\)": null')" 5
	expect "member list" "$("$@" kvblk member list -Hp $pool | cut -f 2,3,7,8)" $'flash0\tup\t\t'
	check "$@" kvblk pool show $pool >/dev/null
}

# sighted USER...: the user may monitor
sighted() {
	local f
	for f in "${use[@]}"; do
		check "$@" cat "$sysfs/$f" >/dev/null
	done
	check "$@" kvblk status >/dev/null
	expect "puts that the monitor sees" "$("$@" kvblk stat $pool -o json | sed -n 's/.*"puts": \([0-9]*\).*/\1/p' | head -n 1)" "$(counter puts)"
	expect "pool list" "$("$@" kvblk pool list -Hp | cut -f 5)" "$(cat $sysfs/index_used)"
}

# owned GROUP: the files of use belong to root and the group, and no other file is writable for it
owned() {
	expect "files of use" "$(cd $sysfs && stat -c %a:%u:%g "${use[@]}" | sort -u)" "440:0:$1"
	expect "files that a group may write" "$(find $sysfs/ -type f -perm /022)" ""
}

heard() {
	grep -q pool-down "$tmp/events"
}

kv_load
flash 3 200
pool_format /dev/flash0
expect "mode of the node" "$(stat -c %a $node)" 660
expect "owner of the node" "$(stat -c %u:%g $node)" 0:0
[ -c $node ] || fail "$node is no character device"
expect "mode of the directory" "$(stat -c %a /dev/kvblk)" 755
refuse "${nobody[@]}" guest_blocks $node put 1 1 1000

# check the udev rule, and do the same by hand
grep -q 'GROUP="kvblk"' /kvblk/tools/udev/60-kvblk.rules || fail "the udev rule names no group kvblk"
grep -q 'MODE="0660"' /kvblk/tools/udev/60-kvblk.rules || fail "the udev rule does not set 0660"
grep -q 'SUBSYSTEM=="kvblk"' /kvblk/tools/udev/60-kvblk.rules || fail "the udev rule is not for kvblk"
grep -q 'SUBSYSTEM=="kvblk-nvme", GROUP="kvblk", MODE="0660"' /kvblk/tools/udev/60-kvblk.rules || fail "the udev rule is not for kvblk-nvme"
grep -q 'SUBSYSTEM=="kvblk-changes", GROUP="kvblk-monitor", MODE="0640"' /kvblk/tools/udev/60-kvblk.rules || fail "the udev rule is not for kvblk-changes"
expect "subsystem that the rule matches" "$(basename "$(readlink -f $sysfs/subsystem)")" kvblk
check chgrp 4242 $node

expect "mode and owner of the change feed" "$(stat -c %a:%u:%g /dev/kvblk/$pool/changes)" 640:0:0
expect "subsystem that its rule matches" "$(basename "$(readlink -f "/sys/class/kvblk-changes/$pool/subsystem")")" kvblk-changes
check chgrp 4343 /dev/kvblk/$pool/changes
refuse "${member[@]}" guest_changes $node late
check "${both[@]}" guest_changes $node late

check "${member[@]}" guest_put_get $node sizes pieces batch_of_1024 dedupe
refuse "${nobody[@]}" guest_blocks $node put 1 1 1000
chmod 440 $node
refuse "${nobody[@]}" guest_blocks $node get 1 1 1000
chmod 660 $node

refuse "${member[@]}" kvblk pool destroy $pool
refuse "${member[@]}" kvblk member remove --yes $pool flash0
refuse "${member[@]}" sh -c "echo 5 >$sysfs/suspect_ms"
check "${member[@]}" kvblk pool list
check "${member[@]}" guest_blocks $node put 1 5 1000

echo "-- a container without capabilities"
# as runtimes start it: root by number, in no user namespace
container=(setpriv --inh-caps -all --bounding-set -all)
expect "capabilities" "$("${container[@]}" sh -c 'id -u; grep CapEff /proc/self/status' | xargs)" "0 CapEff: 0000000000000000"
check "${container[@]}" guest_blocks $node put 11 5 1000
check "${container[@]}" guest_blocks $node get 11 5 1000
for verb in "pool destroy $pool" "pool clear $pool" "member remove --yes $pool flash0" "tenant create $pool mine" "tenant set $pool default --weight 200" \
	"stat $pool" events; do
	# shellcheck disable=SC2086 # words
	code 1 'root' "${container[@]}" kvblk $verb
done
read -r major minor < <(stat -c "%Hr %Lr" /dev/kvblk/$pool/changes)
code 1 'Operation not permitted' "${container[@]}" mknod "$tmp/changes" c "$major" "$minor"
# the files are root's, so only a read-only /sys protects tunables
was=$(cat $sysfs/suspect_ms)
check "${container[@]}" sh -c "echo 500 >$sysfs/suspect_ms"
put $sysfs/suspect_ms "$was"

echo "-- who may monitor"
expect "monitor_gid of a module just loaded" "$(cat $monitor_gid)" 4294967295
owned 0
blind "${nobody[@]}"
blind "${member[@]}"
blind "${monitor[@]}"
# pools that are there, and members that come, follow
put $monitor_gid 4343
owned 4343
check kvblk member add $pool --format --yes /dev/flash1
wait_for 30 member_is flash1 up
expect "files of a new member" "$(stat -c %a:%u:%g $sysfs/members/flash1/inflight)" 440:0:4343
check kvblk member remove --yes $pool flash1
wait_for 30 member_is flash1 gone
blind "${nobody[@]}"
blind "${member[@]}"
sighted "${monitor[@]}"
sighted
for f in $sysfs/stats_seconds $monitor_gid; do
	refuse "${monitor[@]}" sh -c "echo 1 >$f" 2>/dev/null
done
refuse "${monitor[@]}" kvblk pool clear $pool 2>/dev/null
refuse "${monitor[@]}" guest_blocks $node get 1 1 1000

echo "-- events"
"${monitor[@]}" kvblk events >"$tmp/events" &
events=$!
defer "kill $events || true"
while ! heard; do
	check kvblk pool create other --format --yes --segment-size 8M /dev/flash2
	check kvblk pool destroy other
done

echo "-- none again"
put $monitor_gid 4294967295
owned 0
blind "${monitor[@]}"
pool_destroy
kv_unload
kv_load monitor_gid=4343
pool_import /dev/flash0
owned 4343
sighted "${monitor[@]}"
no_failures
