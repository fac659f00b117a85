# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# kvblkd beside the test, with a file that the test writes. Those that boot with systemd have boot.bash.
. "${BASH_SOURCE[0]%/*}/pool.bash"
conf=$tmp/kvblkd.conf

# daemon_start: with the file $conf; its log is in $tmp/log, from now on, and its process in $daemon
daemon_start() {
	kvblkd --config "$conf" 2>"$tmp/log" &
	daemon=$!
	# one that was stopped goes on to its end
	defer "kill $daemon 2>/dev/null; kill -CONT $daemon 2>/dev/null; wait $daemon 2>/dev/null || true; cat $tmp/log"
}

# logged TEXT [COUNT]: so often, or more
logged() {
	[ "$(grep -c -- "$1" "$tmp/log")" -ge "${2:-1}" ]
}

pool_is_here() {
	[ -d $sysfs ]
}

# pool_with_drive: a new pool of two members of 100 MB: /dev/flash0, and a drive over TCP, which reports its health
pool_with_drive() {
	local drive=nqn.2026-11.org.kvblk:drive
	flash 1 100
	truncate -s 100M "$tmp/$drive"
	nvmet_tcp_up $drive "$tmp/$drive"
	pool_format /dev/flash0 "${namespaces[0]}"
}
