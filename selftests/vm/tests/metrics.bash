# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# shellcheck disable=SC2154 # of lib.sh
# kvblkd's metrics, and a Prometheus that scrapes them. Source this after pool.bash.
shipped=/kvblk/monitoring
prometheus=http://127.0.0.1:9090

# prometheus_start: scrape each second; the shipped alerts fire after a second
prometheus_start() {
	sed 's/for: [0-9]*m$/for: 1s/' $shipped/kvblk-alerts.yaml >"$tmp/alerts.yaml"
	cat >"$tmp/prometheus.yaml" <<-END
		global: { scrape_interval: 1s, evaluation_interval: 1s }
		rule_files: [ "$tmp/alerts.yaml" ]
		scrape_configs: [ { job_name: kvblk, static_configs: [ { targets: [ "127.0.0.1:9733" ] } ] } ]
	END
	prometheus --config.file="$tmp/prometheus.yaml" --storage.tsdb.path="$tmp/tsdb" --web.listen-address=127.0.0.1:9090 2>"$tmp/prometheus" &
	defer "kill $! 2>/dev/null; wait $! 2>/dev/null || true; grep -v 'level=info' $tmp/prometheus || true"
}

# ask PATH EXPRESSION: the expression is true of d, Prometheus' answer. stat() is the pool's entry of "kvblk stat";
# told() and seen() are numbers of it, and of d, by name of the metric and last label.
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

# same: Prometheus and kvblk stat agree on each counter and gauge of the pool and of its members
same() {
	ask '/api/v1/query?query=%7Bpool=%22t%22,__name__!~%22.*_(bucket|sum|info|state|health)%22%7D' 'all(
		(told(s["counters"], prefix, "_total", "miss_", "misses") | told(s["gauges"], prefix, "", "segments_", "segments")).items()
		<= seen(s.get("member")).items()
		for p in [stat()] for s, prefix in [(p, "kvblk_")] + [(m, "kvblk_member_") for m in p["members"]])'
}

# firing [ALERT...]: exactly these alerts fire
firing() {
	ask /api/v1/alerts "sorted({a['labels']['alertname'] for a in d['alerts'] if a['state'] == 'firing'}) == sorted('$*'.split())"
}
