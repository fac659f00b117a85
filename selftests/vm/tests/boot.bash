# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# A host that boots with systemd from the VM's drive 1 (header append=kvblk.boot=disk1), and another machine with its
# flash. The rule: only what is installed on the host is used, as by an operator.
. "${BASH_SOURCE[0]%/*}/pool.bash"
PATH=/usr/sbin:/usr/bin:/sbin:/bin:/build/user/selftests/.bin
unset LD_LIBRARY_PATH
conf=/etc/kvblk/kvblkd.conf
nqn=nqn.2026-11.org.kvblk
# address of an engine on the host that publishes the tokens of its blocks
engine=tcp://127.0.0.1:5560
# print the systemd journal after a failure
defer '[ $rc = 0 ] || journalctl -q -b -o short-monotonic -u kvblkd -u target -p info | tail -n 60'

module_install() {
	local to
	to=/lib/modules/$(uname -r)
	cp -r "$modules$to"/updates "$modules$to"/modules.{dep,alias,symbols}{,.bin} "$to/"
}

# host_install: install what was built, as README.md says
host_install() {
	local part
	module_install
	for part in tools daemon; do
		make -s -C "/build/user/$part" install >"$tmp/install" 2>&1 || fail "make install: $(cat "$tmp/install")"
	done
}

# packages_install: install all packages except the module's, which takes most of an hour to compile on an emulated CPU:
# see vm/packages
packages_install() {
	module_install
	DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends /share/*.deb >"$tmp/install" 2>&1 ||
		fail "apt-get install: $(tail -n 50 "$tmp/install")"
}

# other_machine NAME...: start targets that are restarted after each boot, later than kvblkd's first attempt to connect
other_machine() {
	local name
	check mkfs.ext4 -q "$(vm_disk 0)"
	mkdir /srv/flash
	check mount "$(vm_disk 0)" /srv/flash
	for name; do
		# allocated in full, so that a power cut leaves no metadata of the file system pending
		check dd if=/dev/zero of="/srv/flash/$name" bs=1M count=120 conv=fsync status=none
	done
	cat >/etc/systemd/system/target.service <<-END
		[Unit]
		Description=the other machine
		After=kvblkd.service
		[Service]
		Type=oneshot
		RemainAfterExit=yes
		ExecStart=/bin/bash /kvblk/selftests/vm/tests/target.bash $*
		[Install]
		WantedBy=multi-user.target
	END
	check systemctl enable --now target
}

# host_config POOL-SETTINGS TUNABLES [TARGETS]: write the host's file
host_config() {
	mkdir -p /etc/kvblk
	cat >$conf <<-END
		${3-"subsystems = (
		  { nqn = \"$nqn:left\"; address = \"127.0.0.1\"; port = 4420; },
		  { nqn = \"$nqn:right\"; address = \"127.0.0.1\"; port = 4421; }
		);"}
		pools = ( { name = "$pool"; $1 tunables: { suspect_ms = 60000; $2 }; } );
		exporters: { metrics: { }; kv_events: { sources = ( "$engine" ); hash_only = true; repeat = 1; }; };
	END
}

# first_pool: create the pool over both targets by hand, as README.md says
first_pool() {
	local name port=4420 members=()
	check modprobe -a kvblk nvme-tcp
	for name in left right; do
		check nvme connect -t tcp -a 127.0.0.1 -s $port -n "$nqn:$name"
		wait_for 10 nvmet_ready "$nqn:$name" 1
		members+=("$(nvmet_namespaces "$nqn:$name")")
		port=$((port + 1))
	done
	check kvblk pool create --format --yes --segment-size 8M $pool "${members[@]}"
}

# power_cut: cut the power under load; installed files are synced before
power_cut() {
	sync
	stress_start -e -n -t 2 -k 300 -l 10000 -p 100
	sleep 2
	vm_power_cut
	sleep 60
	fail "no power cut came"
}

# respawned PID: kvblkd is another process than PID, and ready
respawned() {
	[ "$(daemon_pid)" != "$1" ] && systemctl -q is-active kvblkd
}

# warm: all blocks are back, without errors
warm() {
	blocks get 1 100 50000
	expect "gets" "$hits" 100
	expect "damaged blocks" "$(counter checksum_failures)" 0
	expect "errors in the journal" "$(journalctl -q -b -u kvblkd -p err)" ""
	expect "failed units" "$(systemctl list-units --failed --plain --no-legend)" ""
}

# daemon_told PATTERN: kvblkd has logged such a line since this boot
daemon_told() {
	journalctl -q -b -u kvblkd -o cat | grep -- "$1" >/dev/null
}

daemon_pid() {
	systemctl show -P MainPID kvblkd
}
