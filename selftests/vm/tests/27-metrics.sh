#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=600 takes=50 disks=1 kernels=newest
# kvblkd's metrics in the Prometheus that Debian has: its values are those of "kvblk stat", every query of the dashboard answers, a member
# that fails makes its alert fire and /ready answer 503, and when it is well again both are as before.
# slow: Prometheus and promtool, which is run for each query, are large programs for an emulated CPU.
. "${0%/*}/pool.bash"

conf=$tmp/kvblkd.conf
shipped=/kvblk/monitoring
prometheus=http://127.0.0.1:9090

# page STATUS PATTERN PATH [ACCEPT]: kvblkd answers so
page() {
	{ exec 7<>/dev/tcp/127.0.0.1/9733; } 2>/dev/null || return
	printf 'GET %s HTTP/1.1\r\nHost: kvblkd\r\nConnection: close\r\nAccept: %s\r\n\r\n' "$3" "${4:-*/*}" >&7
	tr -d '\r' <&7 >"$tmp/answer"
	exec 7>&-
	grep -q "^HTTP/1.1 $1 " "$tmp/answer" && grep -qE "$2" "$tmp/answer"
}

# ask PATH EXPRESSION: it is true of d, which is what Prometheus answers. stat() is what "kvblk stat" tells of the pool; told() and seen()
# are numbers of it, and of d, by name of the metric and last label.
ask() {
	python3 - "$prometheus$1" "$2" <<-'END'
		import json, subprocess, sys, urllib.request
		def stat():
		    return json.loads(subprocess.run(["kvblk", "stat", "-o", "json"], stdout=subprocess.PIPE, check=True).stdout)[0]
		def told(numbers, name, suffix, group, family):
		    return {(name + family + suffix, n[len(group):]) if n.startswith(group) else (name + n + suffix, ""): value
		            for n, value in numbers.items() if n != "segments"}
		def seen(member):
		    return {(m["__name__"], m.get("reason", m.get("state", ""))): int(float(r["value"][1]))
		            for r in d["result"] for m in [r["metric"]] if m.get("member") == member}
		try:
		    d = json.load(urllib.request.urlopen(sys.argv[1]))["data"]
		except OSError:
		    sys.exit(1)
		sys.exit(not eval(sys.argv[2]))
	END
}

prometheus_is_up() {
	ask '/api/v1/query?query=up%7Bjob=%22kvblk%22%7D' 'd["result"] and d["result"][0]["value"][1] == "1"'
}

# same: Prometheus has each counter and gauge of the pool and of its members as kvblk stat has it
same() {
	ask '/api/v1/query?query=%7Bpool=%22t%22,__name__!~%22.*_(bucket|sum|info|state|health)%22%7D' 'all(
		(told(s["counters"], prefix, "_total", "miss_", "misses") | told(s["gauges"], prefix, "", "segments_", "segments")).items()
		<= seen(s.get("member")).items()
		for p in [stat()] for s, prefix in [(p, "kvblk_")] + [(m, "kvblk_member_") for m in p["members"]])'
}

# firing [ALERT...]: these alerts and no others
firing() {
	ask /api/v1/alerts "sorted({a['labels']['alertname'] for a in d['alerts'] if a['state'] == 'firing'}) == sorted('$*'.split())"
}

cat >"$conf" <<-END
	pools = ( { name = "$pool"; tunables: { suspect_ms = 60000; }; } );
	exporters: { metrics: { }; };
END
sed 's/for: [0-9]*m$/for: 1s/' $shipped/kvblk-alerts.yaml >"$tmp/alerts.yaml"
cat >"$tmp/prometheus.yaml" <<-END
	global: { scrape_interval: 1s, evaluation_interval: 1s }
	rule_files: [ "$tmp/alerts.yaml" ]
	scrape_configs: [ { job_name: kvblk, static_configs: [ { targets: [ "127.0.0.1:9733" ] } ] } ]
END

kvblkd --config "$conf" 2>"$tmp/log" &
daemon=$!
defer "kill $daemon 2>/dev/null; wait $daemon 2>/dev/null || true; cat $tmp/log"
wait_for 30 page 503 '^the module kvblk is not loaded$' /ready
kv_load
wait_for 10 page 503 "^pool $pool: it is not up$" /ready
flash 2 300
dm_flakey flaky /dev/flash1
# the VM's drive outlives this test, and others find what is on it
defer 'blkdiscard /dev/nvme0n1'
pool_format /dev/flash0 /dev/mapper/flaky /dev/nvme0n1
wait_for 30 page 200 '^ready$' /ready
prometheus --config.file="$tmp/prometheus.yaml" --storage.tsdb.path="$tmp/tsdb" --web.listen-address=127.0.0.1:9090 2>"$tmp/prometheus" &
defer "kill $! 2>/dev/null; wait $! 2>/dev/null || true; grep -v 'level=info' $tmp/prometheus || true"

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
# a drive tells what was written to it, in units of 512,000 bytes
units=$(nvme smart-log -o json /dev/nvme0 | python3 -c 'import json, sys; print(int(json.load(sys.stdin)["data_units_written"]))')
check ask '/api/v1/query?query=kvblk_member_drive_written_bytes_total/512000' \
	"[(r['metric']['member'], 0 < float(r['value'][1]) <= $units) for r in d['result']] == [('nvme0n1', True)]"
check ask '/api/v1/query?query=kvblk_member_drive_used_ratio' "[float(r['value'][1]) for r in d['result']] == [0]"
check ask '/api/v1/query?query=sum(kvblk_transfer_seconds_count%7Bop=%22get%22%7D)' 'd["result"][0]["value"][1] == "200"'
wait_for 60 firing

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
# misses are looked at over ten minutes
wait_for 60 firing KvblkUnusualMisses

echo "-- what is taken down is not ready"
check pool_destroy
wait_for 10 page 503 "^pool $pool: it is not up$" /ready
wait_for 60 firing KvblkNotReady KvblkUnusualMisses
check kill -0 $daemon
