#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=150 kernels=newest,6.12 takes=30
# "kvblk apply" makes the host match the configuration file (modules, subsystems, pools, tunables) with the least
# change, and never formats. Each error of the file is reported and changes nothing. Tunables are set live, and saved
# for the next boot.
. "${0%/*}/pool.bash"

conf=$tmp/kvblkd.conf

config() {
	cat >"$conf" <<-END
		subsystems = (
		  { nqn = "left"; address = "flash.test"; port = ${port[0]}; keep_alive = 600; ${2-} },
		  { nqn = "right"; address = "flash.test"; port = ${port[1]}; keep_alive = 600; ${2-} }
		);
		pools = ( { name = "$pool"; tunables: { suspect_ms = 60000; $1 }; } );
	END
	sed -i 's/"\(left\|right\)"/"nqn.2026-11.org.kvblk:\1"/' "$conf"
}

# applied PATTERN...: "kvblk apply" prints exactly these lines
applied() {
	local i=0 line
	kvblk apply --config "$conf" >"$tmp/applied" || fail "exit code $?: $(cat "$tmp/applied")"
	mapfile -t lines <"$tmp/applied"
	expect "steps of: $(cat "$tmp/applied")" ${#lines[@]} $#
	for line; do
		# shellcheck disable=SC2053 # a pattern
		[[ ${lines[i]} == $line ]] || fail "step $i: ${lines[i]}, should be $line"
		i=$((i + 1))
	done
}

member_is_dead() {
	member_states | grep -q ' dead$'
}

# connections: count connections to targets, without local drives, which a shared VM may have
connections() {
	find -L /sys/class/nvme -maxdepth 2 -name transport -exec grep -Lx pcie {} + | wc -l
}

kv_load
for name in left right; do
	truncate -s 120M "$tmp/$name"
	nvmet_tcp_up "nqn.2026-11.org.kvblk:$name" "$tmp/$name"
	port+=("$target_port") member+=("${namespaces[0]}")
done
pool_format "${member[@]}"
blocks put 1 100 50000
check pool_destroy
for name in left right; do
	check nvme disconnect -n "nqn.2026-11.org.kvblk:$name" >/dev/null
done
check rmmod nvme-tcp
expect connections "$(connections)" 0

echo "-- an error changes nothing"
config 'integrity = "half";'
code 1 ':5: pools\[0\].tunables.integrity: half is not allowed, it must be header, full or producer' kvblk apply --config "$conf"
code 1 'nothing was changed' kvblk apply --config "$conf"
expect "module nvme-tcp" "$(find /sys/module -maxdepth 1 -name nvme_tcp)" ""

echo "-- from nothing to all, by a name of two addresses, of which one does not answer"
cp /etc/hosts "$tmp/hosts"
defer 'cat "$tmp/hosts" >/etc/hosts'
printf '::1 flash.test\n127.0.0.1 flash.test\n' >>/etc/hosts
config 'failing_run = 7;'
code 0 '^load module nvme-tcp$' kvblk apply --config "$conf" --dry-run
code 0 '^connect to nqn.2026-11.org.kvblk:left, tcp flash.test port' kvblk apply --config "$conf" --dry-run
expect "module nvme-tcp" "$(find /sys/module -maxdepth 1 -name nvme_tcp)" ""
# the namespace appears only after the connection is made
enable=$configfs/nvmet/subsystems/nqn.2026-11.org.kvblk:right/namespaces/1/enable
put "$enable" 0
(
	until [ "$(connections)" = 2 ]; do sleep .1; done
	put "$enable" 1
) &
applied 'load module nvme-tcp: done' "connect to *:left*: done" "connect to *:right*: done" \
	"import pool $pool from /dev/nvme?n1, /dev/nvme?n1: done" \
	"set suspect_ms of pool $pool from 5000 to 60000: done" "set failing_run of pool $pool from 32 to 7: done"
expect failing_run "$(cat $sysfs/failing_run)" 7
expect "targets" "$(grep -lx 'traddr=127.0.0.1,.*' /sys/class/nvme/*/address | wc -l)" 2
expect fast_io_fail_tmo "$(cat "$(nvmet_controller nqn.2026-11.org.kvblk:left)/fast_io_fail_tmo")" 8
wait_for 30 pool_is_up
blocks get 1 100 50000
expect "gets" "$hits" 100
code 0 '^nothing to do$' kvblk apply --config "$conf"

echo "-- a changed file, no more than what changed"
config 'failing_run = 8; low_permille = 50; high_permille = 60;' 'reconnect_delay = 3; fast_io_fail = -1;'
applied "set reconnect_delay of nvme? (*:left) from 2 to 3: done" "set ctrl_loss of nvme? (*:left) from 600 to 600: done" \
	"set fast_io_fail of nvme? (*:left) from 8 to -1: done" \
	"set reconnect_delay of nvme? (*:right) from 2 to 3: done" "set ctrl_loss of nvme? (*:right) from 600 to 600: done" \
	"set fast_io_fail of nvme? (*:right) from 8 to -1: done" \
	"set high_permille of pool $pool from 40 to 60: done" "set low_permille of pool $pool from 20 to 50: done" \
	"set failing_run of pool $pool from 7 to 8: done"
code 0 '^nothing to do$' kvblk apply --config "$conf"

echo "-- a lost member comes back with its blocks, a blank device is not taken"
check nvme disconnect -n nqn.2026-11.org.kvblk:right >/dev/null
wait_for 30 member_is_dead
applied "connect to *:right*: done" "add /dev/nvme*n* to pool $pool: lost member nvme?n1 (*): done"
wait_for 30 pool_is_up
blocks get 1 100 50000
expect "gets" "$hits" 100
nullb_create blank 100
sed -i 's,name = "t";,name = "t"; members = ( "/dev/blank" );,' "$conf"
applied "note: pool $pool: /dev/blank is not a member; to add it, run: kvblk member add" "nothing to do"
expect "members" "$(member_states | wc -l)" 2
expect "what the blank device holds" "$(head -c 1M /dev/blank | tr -d '\0' | wc -c)" 0

echo "-- tunables by hand"
expect "get" "$(kvblk pool get $pool failing_run)" 8
expect "get of all" "$(kvblk pool get -H $pool | wc -l)" "$(kvblk pool get $pool -o json | grep -c :)"
code 0 '^failing_run  *8  *set  *32  *-  *a number from 0 to 1000000$' kvblk pool get $pool
code 0 '^suspect_ms  *60000  *set  *5000  *ms  *a number from 100 to 3600000, or' kvblk pool get $pool
code 0 $'^integrity\tfull\tdefault\tfull\t\theader, full or producer$' kvblk pool get $pool -H
expect "numbers and words" "$(kvblk pool get $pool -o json | grep -E 'integrity|failing_run' | xargs)" "integrity: full, failing_run: 8,"
code 1 'low_permille, 60, must be below high_permille, 60; nothing was changed' kvblk pool set $pool low_permille=60 failing_run=1
expect failing_run "$(cat $sysfs/failing_run)" 8
check kvblk pool set $pool low_permille=100 high_permille=200 queue_bytes=64M
expect "queue_bytes and watermarks" "$(cat $sysfs/queue_bytes $sysfs/low_permille $sysfs/high_permille | xargs)" "67108864 100 200"
check kvblk pool set $pool low_permille=10 high_permille=20
check kvblk pool set $pool failing_run=9 discard=0 --save-dir="$conf.d" --save
check kvblk pool set $pool failing_run=11 --save-dir="$conf.d" --save
code 0 "set low_permille of pool $pool from 10 to 50" kvblk apply --config "$conf" --dry-run
check kvblk apply --config "$conf"
expect "saved failing_run, discard" "$(cat $sysfs/failing_run $sysfs/discard | xargs)" "11 0"
expect "files there" "$(ls "$conf.d")" "90-pool-set-$pool.conf"
echo '{' >"$conf.d/90-pool-set-$pool.conf"
code 1 "90-pool-set-$pool.conf:.*not saved" kvblk pool set $pool failing_run=12 --save-dir="$conf.d" --save
rm -r "$conf.d"

echo "-- a secret that others may read, a target that is not there, a pool that is not in the file"
echo DHHC-1:00:x: >"$tmp/secret"
chmod 644 "$tmp/secret"
cat >"$conf" <<-END
	subsystems = (
	  { nqn = "nqn.2026-11.org.kvblk:left"; address = "127.0.0.1"; port = 4999; },
	  { nqn = "nqn.2026-11.org.kvblk:left"; address = "nowhere.test"; },
	  { nqn = "nqn.2026-11.org.kvblk:right"; address = "127.0.0.1"; port = 4998; dhchap_secret_file = "$tmp/secret"; }
	);
	pools = ( { name = "other"; } );
END
code 1 '^connect to .*:left, tcp 127.0.0.1 port 4999: failed: ' kvblk apply --config "$conf"
code 1 '^connect to .*:left, tcp nowhere.test port 4420: failed: cannot resolve nowhere.test: ' kvblk apply --config "$conf"
code 1 "failed: $tmp/secret holds a secret and others may read it: chmod 600 $tmp/secret" kvblk apply --config "$conf"
code 1 '^note: pool other: waiting for its members, none found' kvblk apply --config "$conf"
code 1 "^note: pool $pool is up but not in the file; it stays unchanged" kvblk apply --config "$conf"
expect "members" "$(member_states | wc -l)" 2
expect "damaged blocks" "$(counter checksum_failures)" 0
