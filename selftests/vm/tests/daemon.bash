# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# kvblkd beside the test, with a file that the test writes. Tests that boot with systemd use boot.bash.
. "${BASH_SOURCE[0]%/*}/pool.bash"
conf=$tmp/kvblkd.conf

# daemon_start: start kvblkd with the file $conf; sets $daemon to its PID; the log, new at each start, is $tmp/log
daemon_start() {
	kvblkd --config "$conf" 2>"$tmp/log" &
	daemon=$!
	# CONT, because a stopped process does not act on TERM
	defer "kill $daemon 2>/dev/null; kill -CONT $daemon 2>/dev/null; wait $daemon 2>/dev/null || true; cat $tmp/log"
}

# logged TEXT [COUNT]: the log has at least COUNT such lines
logged() {
	[ "$(grep -c -- "$1" "$tmp/log")" -ge "${2:-1}" ]
}

pool_is_here() {
	[ -d $sysfs ]
}

# pool_with_drive: create a pool of two members of 100 MB: /dev/flash0, and a drive over TCP, which reports its health
pool_with_drive() {
	local drive=nqn.2026-11.org.kvblk:drive
	flash 1 100
	truncate -s 100M "$tmp/$drive"
	nvmet_tcp_up $drive "$tmp/$drive"
	pool_format /dev/flash0 "${namespaces[0]}"
}
