#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=600 takes=50 disks=1 kernels=newest
# kvblkd's metrics in Debian's Prometheus: values equal those of "kvblk stat", and every query of the dashboard has a
# result, also about a pool that follows another one. A failing member raises its alert and makes /ready return 503;
# both end when it recovers.
# slow: Prometheus and promtool, which is run for each query, are large programs for an emulated CPU.
. "${0%/*}/daemon.bash"
. "${0%/*}/metrics.bash"

cat >"$conf" <<-END
	pools = ( { name = "$pool"; ready = "all"; tunables: { suspect_ms = 60000; }; } );
	exporters: { metrics: { }; };
END
daemon_start
wait_for 30 page 503 '^the module kvblk is not loaded$' /ready
kv_load
wait_for 10 page 503 "^pool $pool is not up$" /ready
flash 2 300
dm_flakey flaky /dev/flash1
# the VM's drive outlives this test: leave it blank for the next one
defer 'blkdiscard /dev/nvme0n1'
pool_format /dev/flash0 /dev/mapper/flaky /dev/nvme0n1
wait_for 30 page 200 '^ready$' /ready
prometheus_start

echo "-- both formats; the values are those of kvblk stat"
wait_for 120 prometheus_is_up
blocks put 1 200 50000
blocks get 1 200 50000
expect "gets" "$hits" 200
blocks get 1000 1 50000
blocks lookup 1 200 50000
blocks delete 199 2 50000
wait_for 10 page 200 '^# EOF$' /metrics application/openmetrics-text
wait_for 10 page 200 '^kvblk_deletes_total\{pool="t"\} 2$' /metrics
sed '1,/^$/d' "$tmp/answer" | promtool check metrics || fail "promtool check metrics"
wait_for 60 same
# the drive reports its writes in units of 512,000 bytes
units=$(nvme smart-log -o json /dev/nvme0 | python3 -c 'import json, sys; print(int(json.load(sys.stdin)["data_units_written"]))')
check ask '/api/v1/query?query=kvblk_member_drive_written_bytes_total/512000' \
	"[(r['metric']['member'], 0 < float(r['value'][1]) <= $units) for r in d['result']] == [('nvme0n1', True)]"
check ask '/api/v1/query?query=kvblk_member_drive_used_ratio' "[float(r['value'][1]) for r in d['result']] == [0]"
check ask '/api/v1/query?query=sum(kvblk_transfer_seconds_count%7Bop=%22get%22%7D)' 'd["result"][0]["value"][1] == "200"'
wait_for 60 firing

echo "-- a pool that follows another one"
mkdir -p /var/lib/kvblk
echo 0123456789abcdef0123456789abcdef >/var/lib/kvblk/node
defer 'rm /var/lib/kvblk/node'
# other_pool NAME OPTION... DEVICE: create one more pool of the pod
other_pool() {
	check kvblk pool create "$1" --force --pod here --format --yes --segment-size 8M "${@:2}"
	defer "kvblk pool destroy $1"
}
# follower_says SUFFIX NUMBER: this metric of the followed member has this value
follower_says() {
	page 200 "^kvblk_foreign_member_$1\\{pool=\"follower\",member=\"theirs\"$2\\} $3\$" /metrics
}
nullb_create flash2 96
nullb_create flash3 96
other_pool owner /dev/flash2
other_pool follower --seed-of /dev/flash2 /dev/flash3
node=/dev/kvblk/owner/default blocks put 1 20 50000
check kvblk member follow --name theirs follower /dev/flash2
wait_for 30 follower_says blocks_total '' 20
node=/dev/kvblk/follower/default blocks get 1 20 50000
expect "gets, of them foreign" "$hits $foreign" "20 20"
wait_for 10 follower_says gets_total '' 20
wait_for 10 follower_says get_bytes_total '' 1000000
wait_for 10 follower_says state ',state="up"' 1
wait_for 60 ask '/api/v1/query?query=kvblk_foreign_member_gets_total' '[r["value"][1] for r in d["result"]] == ["20"]'

echo "-- every query of the dashboard answers"
python3 - $shipped/kvblk-dashboard.json >"$tmp/queries" <<-'END'
	import json, sys
	for panel in json.load(open(sys.argv[1]))["panels"]:
	    for target in panel.get("targets", []):
	        print(target["expr"].replace("$instance", ".*").replace("$pool", ".*").replace("$__rate_interval", "5m"))
END
while read -r query; do
	promtool query instant $prometheus "$query" >"$tmp/said" </dev/null || fail "$query: $(cat "$tmp/said")"
	[ -s "$tmp/said" ] || fail "nothing answers: $query"
done <"$tmp/queries"
queries=$(wc -l <"$tmp/queries")
[ "$queries" -gt 30 ] || fail "the dashboard has $queries queries"

echo "-- a member that fails is told, and that it is well again, too"
dm_flakey_set flaky /dev/flash1 0 1 error_reads error_writes
blocks get 1 198 50000
wait_for 20 page 503 "^pool $pool: member flaky is failing$" /ready
wait_for 60 firing KvblkMemberFailing KvblkNotReady KvblkPoolDegraded KvblkUnusualMisses
dm_flakey_set flaky /dev/flash1 1 0
wait_for 60 page 200 '^ready$' /ready
# the alert on misses covers ten minutes
wait_for 60 firing KvblkUnusualMisses

echo "-- what is taken down is not ready"
check pool_destroy
wait_for 10 page 503 "^pool $pool is not up$" /ready
wait_for 60 firing KvblkNotReady KvblkUnusualMisses
check kill -0 $daemon
