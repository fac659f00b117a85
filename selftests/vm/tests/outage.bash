# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# A pool of two targets, one of which dies and returns, over any transport.
. "${BASH_SOURCE[0]%/*}/pool.bash"

outage() {
	local threads=3 here gone
	[ "$KVBLK_KERNEL" != debug-smp ] || threads=1
	kv_load
	flash 2 200
	export CONNECT_ARGS="--reconnect-delay=1 --ctrl-loss-tmo=600"
	"$1" left /dev/flash0
	left=${namespaces[0]}
	"$1" right /dev/flash1
	right=${namespaces[0]}
	events_start
	pool_format "$left" "$right"
	kvblk doctor >"$tmp/doctor" || true
	grep -q "^change  *nvme  *nvme[0-9]* of member ${right#/dev/}: fast_io_fail_tmo is off: .* ctrl_loss_tmo, 600 s\$" "$tmp/doctor" ||
		fail "the doctor does not see the timeouts: $(cat "$tmp/doctor")"
	check guest_put_get "$node" sizes pieces partial too_small mixed_batch dedupe
	no_failures

	blocks put 1 100 60000
	expect "puts" "$stored" 100
	stress_start -e -n -t "$threads" -k 300 -l 60000
	blocks get 1 100 60000
	expect "gets before the outage" "$hits" 100
	# until suspect_ms is lowered: gets would wait for the member until it is back, and blocks() would not return
	check nvmet_kill right
	put "$sysfs/suspect_ms" 2000
	# by state: on a slow machine an earlier event may exist, and a get already in flight waits for the host
	wait_for 20 member_is "${right#/dev/}" suspect
	blocks get 1 100 60000
	here=$hits gone=$misses
	[ "$here" -gt 20 ] && [ "$gone" -gt 20 ] || fail "with one of two members silent $here of 100 blocks are hits"
	blocks lookup 1 100 60000
	expect "lookups of what the other member has" "$present" "$here"
	blocks put 500 60 60000
	expect "puts while one member is silent" "$stored" 60
	blocks get 500 60 60000
	expect "gets of them" "$hits" 60

	check nvmet_revive right
	wait_for 60 pool_is_up
	put "$sysfs/suspect_ms" 60000
	blocks get 1 100 60000
	expect "gets after the outage" "$hits" 100
	blocks put 1000 100 60000
	expect "puts after the outage" "$stored" 100
	blocks get 1000 100 60000
	expect "gets of them" "$hits" 100
	stress_stop

	echo "-- gone for good"
	check nvme disconnect -n right
	wait_for 20 event member-dead
	blocks get 1 100 60000
	blocks put 2000 50 60000
	expect "puts with one member dead" "$stored" 50
	check kvblk member remove --yes $pool "${right#/dev/}"
	wait_for 20 member_is "${right#/dev/}" gone
}
