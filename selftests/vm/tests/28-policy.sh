#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=300 takes=50 kernels=newest waits=1
# kvblkd keeps a pool within a write budget: admission falls until next to nothing is written, "kvblk policy explain"
# gives the reason, a killed daemon continues, a larger budget opens the pool again, and a value set by hand is the
# maximum. Free segments are kept ahead of the writes. A drive's health is read; a device without one is no error.
# slow: a budget with an interval of a second is kept in minutes.
. "${0%/*}/daemon.bash"

config() {
	echo "pools = ( { name = \"$pool\"; $1 tunables: { admit_permille = ${2-1000}; }; } );" >"$conf"
}

daemon_kill() {
	kill -KILL $daemon
	wait $daemon || true
}

# reload: reload a file that has a budget, and wait until the policy uses it
reload() {
	local before
	before=$(grep -c 'budget of' "$tmp/log" || true)
	kill -HUP $daemon
	wait_for 30 logged 'budget of' $((before + 1))
}

# admission_is ADMIT FIRST SECOND
admission_is() {
	[ "$(cat $sysfs/admit_permille $sysfs/first_permille $sysfs/second_permille | xargs)" = "$*" ]
}

watermarks() {
	[ "$(cat $sysfs/low_permille $sysfs/high_permille | xargs)" = "$*" ]
}

explains() {
	kvblk policy explain $pool | grep -qE -- "$1"
}

# fresh COUNT [CHAIN]: put COUNT new blocks, in chains or, if CHAIN is empty, as single puts
key=1
fresh() {
	KV_CHAIN=${2-1} blocks put $key "$1" 50000
	key=$((key + $1))
}

defer 'rm -rf /run/kvblkd'
kv_load
pool_with_drive
code 1 'kvblkd is not running' command kvblk policy explain $pool

echo "-- free segments ahead of the writes; the health of the one drive"
config 'reserve: { seconds = 3600; most_permille = 150; };'
daemon_start
fresh 800
wait_for 30 watermarks 150 170
# Linux' target returns zeroes here, which must not be taken for a drive's health
refuse logged 'drive: '
check explains "^[0-9-]+ [0-9:]+ reserve .* low_permille 20 -> 150, high_permille 40 -> 170 +reserve for 3600 s: member .* reclaim begins earlier$"

echo "-- a budget of next to nothing: admission falls"
config 'budget: { bytes = "1M"; interval = 1; };'
reload
wait_for 30 watermarks 20 40
# everything is admitted before the first reclaim
fresh 4000
wait_for 60 admission_is 400 0 0
wait_for 30 logged 'warning: .*budget exhausted: writes .* GiB a day'
check explains 'budget +[0-9].*permille 1000 -> .*budget: writes .* of .* GiB a day: admits less$'
check explains 'alert .*budget exhausted'
before=$(counter write_bytes)
fresh 400
expect "stored of 400 that are fresh" "$stored" 0
expect declined "$declined" 400
fresh 400 ""
expect "declined of 400 that are no chain" "$declined" 400
after=$(counter write_bytes)
[ $((after - before)) -lt 1000000 ] || fail "$((after - before)) bytes were written of 40000000"

echo "-- killed: it goes on where it was"
daemon_kill
code 0 'kvblkd is not running: nothing is decided now' command kvblk policy explain $pool
code 0 '"daemon_runs": false' command kvblk policy explain $pool -o json
check admission_is 400 0 0
daemon_start
wait_for 30 logged "pool $pool: policy resumed; upper limits: admit_permille 1000, first_permille 1000, second_permille 1000"
wait_for 30 logged 'budget of'
check admission_is 400 0 0
check explains 'admits less'

echo "-- a larger budget: it opens"
config 'budget: { bytes = "1024T"; interval = 1; };'
reload
wait_for 60 admission_is 1000 1000 1000
check explains 'budget: writes .*: admits more'
fresh 400
expect "stored of 400 that are fresh" "$stored" 400

echo "-- by hand"
check kvblk pool set $pool admit_permille=500
wait_for 30 logged 'admit_permille was set to 500 by hand; this is its upper limit'
check explains ' operator .*admit_permille was set to 500 by hand'
# a value in the file applies when the file is read again
config 'budget: { bytes = "1024T"; interval = 1; };' 600
expect "what a plan would do" "$(kvblk apply --dry-run --config "$conf")" "nothing to do"
reload
wait_for 30 admission_is 600 1000 1000
expect "lines about 500" "$(grep -c 'set to 500' "$tmp/log")" 1

echo "-- what it remembers is damaged: nothing that is set counts as an operator's"
put $sysfs/second_permille 0
daemon_kill
echo '{' >/run/kvblkd/policy.json
KVBLKD_RECORD=/nowhere/record daemon_start
wait_for 30 logged 'policy.json is damaged; the policy starts without history'
wait_for 30 logged 'policy: cannot open the record /nowhere/record: No such file or directory'
wait_for 30 admission_is 600 1000 1000
