#!/bin/bash
# SPDX-License-Identifier: MIT
# usage: daemon_test.sh KVBLKD
# kvblkd without the module: rejects invalid arguments, waits for the module, and ends on a signal.
set -u
kvblkd=$(readlink -f "${1:?usage: daemon_test.sh KVBLKD}")
here=$(dirname "$(readlink -f "$0")")
number=0
failed=0

verdict() {
	number=$((number + 1))
	[ "$1" = 0 ] || failed=$((failed + 1))
	[ "$1" = 0 ] && echo "ok $number kvblkd: $2" || echo "not ok $number kvblkd: $2"
}

# expect CODE PATTERN ARGUMENT...
expect() {
	local code=$1 pattern=$2 out got
	shift 2
	out=$("$kvblkd" "$@" 2>&1)
	got=$?
	[ "$got" = "$code" ] && grep -qE -- "$pattern" <<< "$out"
	verdict $? "$*: code $code, got $got, and \"$pattern\""
}

# ends SIGNAL FIRST-LINE: kvblkd logs FIRST-LINE, and SIGNAL ends it cleanly
ends() {
	local pid line rest
	coproc "$kvblkd" --config "$dir/empty" 2>&1
	pid=$COPROC_PID
	exec 3<&"${COPROC[0]}"
	read -r line <&3
	kill "-$1" "$pid"
	rest=$(cat <&3)
	wait "$pid" && [[ $line == "$2" && $rest == *"received SIG$1; exiting" ]]
	verdict $? "SIG$1 ends it; it said: $line; $rest"
}

expect 0 'Example' --help
expect 0 '^kvblkd [0-9]' --version
expect 2 'unexpected argument "kv0"' kv0
expect 2 'unrecognized option' --frob
expect 2 'require --apply' --dry-run
expect 2 'unknown format; pass json or text' --apply -o xml

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export RUNTIME_DIRECTORY=$dir/run
# for configurations that kvblkd starts with, or else it makes the host's salt
salt="salt = \"$dir/salt\";"
echo 'pools = ( { name = "kv0"; } );' > "$dir/right"
printf 'pools = (\n{ name = "kv0"; tunables: { suspect_ms = 1; }; } );\n' > "$dir/wrong"
expect 0 '' --check "$dir/right"
expect 1 '/wrong:2: pools\[0\]\.tunables\.suspect_ms: 1 is not allowed, it must be a number from 100 to 3600000, or with a unit, as 3s$' --check "$dir/wrong"
printf 'exporters: {\nkv_events: { medium = "a b"; changes = 1500; };\n};\n' > "$dir/wrong-events"
expect 1 '/wrong-events:2: exporters\.kv_events\.medium: a b is not allowed, it must be a string: up to 55 characters' --check "$dir/wrong-events"
expect 1 '/wrong-events:2: exporters\.kv_events: changes 1500 must be a power of two$' --check "$dir/wrong-events"
expect 1 '/none: No such file or directory$' --check "$dir/none"
expect 0 '' --check "$here/../doc/kvblkd.conf"
echo 'pools = (' > "$dir/none-at-all"
expect 78 '/none-at-all:[0-9]+: syntax error' --config "$dir/none-at-all"
expect 78 '/none: No such file or directory$' --config "$dir/none"
expect 1 'nothing was changed' --apply --config "$dir/wrong"
expect 1 'nothing was changed: .*/none: No such file or directory; /usr/share/doc/kvblk/kvblkd.conf is an example$' --apply --config "$dir/none"
diff <("$kvblkd" --settings) <(sed -n '/^\.\\" begin: /,/^\.\\" end/{/^\.\\"/d;p;}' "$here/../doc/kvblkd.conf.5") >&2
verdict $? "the man page has the settings that kvblkd --settings prints"

diff <("$kvblkd" --metrics) <(sed -n '/^     - meaning$/,/^$/{/^     - meaning$/d;/^$/d;p;}' "$here/../../Documentation/metrics.rst") >&2
verdict $? "Documentation/metrics.rst has the metrics that kvblkd --metrics prints"

# free_port VARIABLE...: set to ports without a listener
free_port() {
	local at=$((20000 + $$ % 10000)) name
	for name; do
		while grep -qi ":$(printf %04x $at) .* 0A " /proc/net/tcp /proc/net/tcp6; do
			at=$((at + 1))
		done
		printf -v "$name" %d $at
		at=$((at + 1))
	done
}

# ask PORT PATH [METHOD [HEADER]]: print the complete answer
ask() {
	local fd
	exec {fd}<>"/dev/tcp/127.0.0.1/$1" || return
	printf '%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n%s\r\n' "${3:-GET}" "$2" "${4:+$4$'\r\n'}" >&$fd
	tr -d '\r' <&$fd
	exec {fd}>&-
}

# answers STATUS PATTERN PORT PATH [METHOD [HEADER]]
answers() {
	local out
	out=$(ask "${@:3}")
	[[ $out == "HTTP/1.1 $1 "* ]] && grep -qE -- "$2" <<< "$out"
	verdict $? "${*:4} answers $1 and \"$2\""
}

# says PATTERN: read the daemon's log up to a matching line
says() {
	local line
	while read -r -t 60 line <&3; do
		[[ $line =~ $1 ]] && return
	done
	return 1
}

exports() {
	local port other taken slow=() fd i
	free_port port other taken
	echo "$salt exporters: { metrics: { port = $port; }; };" > "$dir/exports"
	coproc "$kvblkd" --config "$dir/exports" 2>&1
	pid=$COPROC_PID
	exec 3<&"${COPROC[0]}"
	says "listening on 127.0.0.1 port $port"
	verdict $? "it listens"
	answers 200 '^ok$' "$port" /healthz
	answers 503 '^the module kvblk is not loaded$' "$port" /ready
	answers 200 '^kvblk_up 0$' "$port" /metrics
	answers 200 '^kvblkd_config_valid 1$' "$port" /metrics
	answers 200 '^Content-Type: text/plain; version=0.0.4; charset=utf-8$' "$port" /metrics
	answers 200 '^# EOF$' "$port" /metrics GET 'Accept: application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.3'
	answers 404 'not found; pages: /metrics' "$port" /
	answers 404 'not found; pages: /metrics' "$port" /metrics/
	answers 405 '^Allow: GET, HEAD$' "$port" /metrics POST 'Content-Length: 9999999'
	answers 405 'only GET' "$port" /ready DELETE
	[ "$(ask "$port" /metrics HEAD | sed -n '/^$/,$p' | wc -c)" -le 1 ]
	verdict $? "HEAD has no body"

	# too long a request, and clients that send nothing, half a request, or read nothing
	# in a subshell, because the connection may end while the request is written
	(ask "$port" "/$(head -c 100000 /dev/zero | tr '\0' x)") > "$dir/much" 2>&1
	for ((i = 0; i < 12; i++)); do
		exec {fd}<> "/dev/tcp/127.0.0.1/$port"
		slow+=("$fd")
		[ $((i % 3)) = 0 ] || printf 'GET /metrics HTTP/1.1\r\n' >&"$fd"
		[ $((i % 3)) != 1 ] || printf 'Host: x\r\n\r\n' >&"$fd"
	done
	answers 200 '^ok$' "$port" /healthz
	for fd in "${slow[@]}"; do exec {fd}>&-; done

	# another port; a port in use that becomes free; none
	echo "exporters: { metrics: { port = $other; address = \"127.0.0.1\"; }; };" > "$dir/exports"
	kill -HUP "$pid"
	says "listening on 127.0.0.1 port $other"
	answers 200 '^ok$' "$other" /healthz
	! ask "$port" /healthz > "$dir/old" 2>&1
	verdict $? "SIGHUP moves the listener"
	echo "$salt exporters: { metrics: { port = $taken; }; };" > "$dir/holder"
	expect 1 'kvblkd is already running' --config "$dir/holder"
	RUNTIME_DIRECTORY=$dir/other "$kvblkd" --config "$dir/holder" 2> "$dir/held" &
	holder=$!
	until grep -q "listening on" "$dir/held"; do sleep 0.05; done
	cp "$dir/holder" "$dir/exports"
	kill -HUP "$pid"
	says "cannot listen on 127.0.0.1 port $taken: Address already in use; retrying every 5 s"
	verdict $? "an address that is taken is told"
	kill "$holder"
	says "listening on 127.0.0.1 port $taken"
	answers 200 '^ok$' "$taken" /healthz
	: > "$dir/exports"
	kill -HUP "$pid"
	says "no longer listening"
	kill -TERM "$pid"
	says "received SIGTERM; exiting" && wait "$pid"
	verdict $? "without a section nothing listens"
}

# starts PATTERN: kvblkd starts with the file "salted", logs PATTERN, and ends
starts() {
	coproc "$kvblkd" --config "$dir/salted" 2>&1
	pid=$COPROC_PID
	exec 3<&"${COPROC[0]}"
	says "$1"
	verdict $? "it logs \"$1\""
	kill -TERM "$pid"
	wait "$pid"
}

# The salt is made once, is right, and is not replaced; a wrong one is logged and stays.
makes_salt() {
	local group
	group="600 $(id -gn)"
	[ "$(id -u)" != 0 ] || ! getent group kvblk > /dev/null || group='640 kvblk'
	echo "salt = \"$dir/new/salt\";" > "$dir/salted"
	starts "salt $dir/new/salt: made; copy it to hosts that share blocks"
	[ "$(stat -c '%a %G' "$dir/new/salt")" = "$group" ] && grep -qxE '[0-9a-f]{64}' "$dir/new/salt" && [ "$(ls "$dir/new")" = salt ]
	verdict $? "the salt is right, and $group"
	cp "$dir/new/salt" "$dir/before"
	starts 'waiting for it'
	cmp -s "$dir/new/salt" "$dir/before"
	verdict $? "it keeps the salt"
	chmod 644 "$dir/new/salt"
	starts "salt $dir/new/salt: others may read it"
	echo short > "$dir/new/salt"
	chmod 600 "$dir/new/salt"
	starts "salt $dir/new/salt: it is not 64 hex digits"
	[ "$(cat "$dir/new/salt")" = short ]
	verdict $? "it keeps a wrong salt"
	mkdir "$dir/no-salt"
	echo "salt = \"$dir/no-salt\";" > "$dir/salted"
	starts "salt $dir/no-salt: it is not a regular file"
	echo "salt = \"$dir/none/at/all\";" > "$dir/salted"
	starts "salt $dir/none/at/all: No such file or directory"
}

# Leases need more descriptors than the soft limit of a shell or systemd.
has_files() {
	local pid limit
	coproc { ulimit -Sn 64 && exec "$kvblkd" --config "$dir/empty" 2>&1; }
	pid=$COPROC_PID
	exec 3<&"${COPROC[0]}"
	says "waiting for it"
	limit=$(awk '/^Max open files/ { print ($4 == $5) }' "/proc/$pid/limits")
	kill -TERM "$pid"
	says "received SIGTERM; exiting" && wait "$pid" && [ "$limit" = 1 ]
	verdict $? "it may have as many open files as the hard limit allows"
}

# A pass that cannot read the state counts as a failed step, and READY=1 is not sent.
unreadable() {
	local port
	free_port port
	echo "$salt exporters: { metrics: { port = $port; }; };" > "$dir/exports"
	: > "$dir/blind"
	# GLOB_NOSPACE, GLOB_NOMATCH
	cc -shared -fPIC -o "$dir/glob.so" -include unistd.h -xc - <<< "int glob(void) { return access(\"$dir/blind\", F_OK) ? 3 : 1; }"
	python3 -c '
import socket, sys
notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
notify.bind(sys.argv[1])
print("bound", flush=True)
while "STOPPING=1" not in (said := notify.recv(4096).decode()):
    print(said, flush=True)' "$dir/notify" > "$dir/notified" &
	until [ -s "$dir/notified" ]; do sleep 0.05; done
	coproc LD_PRELOAD=$dir/glob.so NOTIFY_SOCKET=$dir/notify "$kvblkd" --config "$dir/exports" 2>&1
	pid=$COPROC_PID
	exec 3<&"${COPROC[0]}"
	says "cannot read host state: .*; retrying in [0-9]+ s"
	answers 200 '^kvblkd_steps_failed 1$' "$port" /metrics
	until grep -q ^STATUS= "$dir/notified"; do sleep 0.05; done
	grep -q "^STATUS=cannot read host state" "$dir/notified" && ! grep -q READY "$dir/notified"
	verdict $? "a host that can't be read is not ready"
	rm "$dir/blind"
	kill -HUP "$pid"
	says "in force"
	until grep -q READY=1 "$dir/notified"; do sleep 0.05; done
	answers 200 '^kvblkd_steps_failed 0$' "$port" /metrics
	kill -TERM "$pid"
	says "received SIGTERM; exiting" && wait
	verdict $? "and is when it can"
}

# Invalid settings are skipped at the start; a reload with errors keeps the settings in force.
starts_with_errors() {
	local port other
	free_port port other
	mkdir -p "$dir/errors.d"
	echo "$salt exporters: { metrics: { port = $port; }; }; pools = ( { name = \"kv0\"; } );" > "$dir/errors"
	echo 'pools = ( { name = "kv0"; tunables: { old_tunable = 1; }; } );' > "$dir/errors.d/90-pool-set-kv0.conf"
	coproc "$kvblkd" --config "$dir/errors" 2>&1
	pid=$COPROC_PID
	exec 3<&"${COPROC[0]}"
	says 'errors.d/90-pool-set-kv0.conf:1: pools\[0\].tunables.old_tunable: unknown tunable' &&
		says 'invalid settings are skipped, the rest is in force' && says "listening on 127.0.0.1 port $port"
	verdict $? "it starts in spite of an unknown word, which it tells"
	answers 200 '^kvblkd_config_valid 0$' "$port" /metrics
	rm "$dir/errors.d/90-pool-set-kv0.conf"
	kill -HUP "$pid"
	says "in force"
	answers 200 '^kvblkd_config_valid 1$' "$port" /metrics
	echo "exporters: { metrics: { port = $other; frob = 1; }; };" > "$dir/errors"
	kill -HUP "$pid"
	says 'has errors; keeping the previous configuration'
	answers 200 '^kvblkd_config_valid 0$' "$port" /metrics
	kill -TERM "$pid"
	says "received SIGTERM; exiting" && wait "$pid"
	verdict $? "it ends"
}

# greets PORT: ZeroMQ answers with its greeting
greets() {
	local fd
	exec {fd}<>"/dev/tcp/127.0.0.1/$1" || return
	[ "$(head -c 10 <&$fd | od -An -tx1 | tr -d ' ')" = ff00000000000000017f ]
	local rc=$?
	exec {fd}>&-
	return $rc
}

# events PORT REPLAY: write the configuration of publishes()
events() {
	echo "$salt exporters: { kv_events: { endpoint = \"tcp://127.0.0.1:$1\"; replay = \"tcp://127.0.0.1:$2\"; pools = ( \"kv0\" ); }; };" > "$dir/publishes"
}

publishes() {
	local port replay other
	free_port port replay other
	events "$port" "$replay"
	coproc "$kvblkd" --config "$dir/publishes" 2>&1
	pid=$COPROC_PID
	exec 3<&"${COPROC[0]}"
	says "kv_events: publishing at tcp://127.0.0.1:$port" && greets "$port" && greets "$replay"
	verdict $? "it publishes"
	events "$port" "$other"
	cp "$dir/publishes" "$dir/holder"
	kill -HUP "$pid"
	says "no longer publishing" && says "kv_events: publishing at tcp://127.0.0.1:$port" && greets "$other" && ! greets "$replay" 2> "$dir/old"
	verdict $? "SIGHUP moves what it publishes"
	exec 4<&3 3< <(RUNTIME_DIRECTORY=$dir/other exec "$kvblkd" --config "$dir/holder" 2>&1)
	holder=$!
	says "kv_events: cannot publish at .*: Address already in use; retrying every 5 s"
	verdict $? "endpoints that are taken are told"
	kill "$holder"
	exec 3<&4 4<&-
	: > "$dir/publishes"
	kill -HUP "$pid"
	says "no longer publishing"
	kill -TERM "$pid"
	says "received SIGTERM; exiting" && wait "$pid"
	verdict $? "without a section nothing is published"
}

if [ ! -e /sys/module/kvblk ]; then
	makes_salt
	echo "salt = \"\";" > "$dir/empty"
	has_files
	unreadable
	exports
	starts_with_errors
	publishes
	unset JOURNAL_STREAM
	ends TERM 'kvblkd: the module kvblk is not loaded; waiting for it'
	export JOURNAL_STREAM=1:1
	ends INT '<6>the module kvblk is not loaded; waiting for it'
fi
[ "$failed" = 0 ]
