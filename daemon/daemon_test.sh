#!/bin/bash
# SPDX-License-Identifier: MIT
# usage: daemon_test.sh KVBLKD
# The daemon without the module: it refuses wrong arguments, waits, and ends when it is asked to.
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

# ends SIGNAL FIRST-LINE: it says that it waits, and SIGNAL ends it in good order
ends() {
	local pid line rest
	coproc "$kvblkd" --config "$dir/empty" 2>&1
	pid=$COPROC_PID
	exec 3<&"${COPROC[0]}"
	read -r line <&3
	kill "-$1" "$pid"
	rest=$(cat <&3)
	wait "$pid" && [[ $line == "$2" && $rest == *"asked to end" ]]
	verdict $? "SIG$1 ends it; it said: $line; $rest"
}

expect 0 'Example' --help
expect 0 '^kvblkd [0-9]' --version
expect 2 'nothing to give' kv0
expect 2 'unrecognized option' --frob
expect 2 'are for --apply' --dry-run
expect 2 'the formats are json and text' --apply -o xml

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
echo 'pools = ( { name = "kv0"; } );' > "$dir/right"
printf 'pools = (\n{ name = "kv0"; tunables: { suspect_ms = 1; }; } );\n' > "$dir/wrong"
expect 0 '' --check "$dir/right"
expect 1 '/wrong:2: pools\[0\]\.tunables\.suspect_ms: 1 is not allowed, it must be a number from 100 to 3600000$' --check "$dir/wrong"
expect 1 '/none: No such file or directory$' --check "$dir/none"
expect 0 '' --check "$here/kvblkd.conf"
expect 78 'suspect_ms: 1 is not allowed' --config "$dir/wrong"
expect 1 'nothing was changed' --apply --config "$dir/wrong"
diff <("$kvblkd" --settings) <(sed -n '/^\.\\" begin: /,/^\.\\" end/{/^\.\\"/d;p;}' "$here/kvblkd.conf.5") >&2
verdict $? "the man page has the settings that kvblkd --settings prints"

if [ ! -e /sys/module/kvblk ]; then
	: > "$dir/empty"
	unset JOURNAL_STREAM
	ends TERM 'kvblkd: the module kvblk is not loaded; waiting for it'
	export JOURNAL_STREAM=1:1
	ends INT '<6>the module kvblk is not loaded; waiting for it'
fi
[ "$failed" = 0 ]
