#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: nodes=e,a,b kernels=debug check=debug mem=768M timeout=200 takes=7
# The lines to copy in Documentation/pod.rst make an enclosure and a pod of two nodes, of which b gets what a puts.
. "${0%/*}/pod.bash"

# lines COMMENT: run the lines below this comment of the document, with its names of drives, the bed's drives and addresses
lines() {
	local pod=/kvblk/Documentation/pod.rst
	grep -qx "    # $1" $pod || fail "pod.rst has no lines for: $1"
	awk -v from="    # $1" '/^    drive=/ { print } $0 == from { on = 1; next } on && /^(    #|[^ ])/ { exit } on' $pod |
		sed "s|/dev/nvme\${n}n1|/dev/flash\$((n - 1))|; s/10.0.0.7/${bed:-e}/" >/tmp/lines
	check bash -e /tmp/lines
}

# host: give this machine the ids that the document wants
host() {
	local id
	id=$(host_id)
	mkdir -p /etc/nvme
	echo "$id" >/etc/nvme/hostid
	echo "nqn.2014-08.org.nvmexpress:uuid:$id" >/etc/nvme/hostnqn
	check /usr/lib/systemd/systemd-udevd --daemon
	modprobe nvme-tcp
	load
}

# has_drives COUNT: so many have udev's names
has_drives() {
	[ "$(find /dev/disk/by-id -name 'nvme-Linux_rack7_?' 2>/dev/null | wc -l)" = "$1" ]
}

# in_kv0 COMMAND...: run a command for the document's pool
in_kv0() {
	pool=kv0 node=/dev/kvblk/kv0/default sysfs=/sys/class/kvblk/kv0
	"$@"
}

flash 4 128
bed=0.0.0.0 lines "the enclosure, with four drives"
# first is last on b, as the kernel's scan may have it
first=/sys/kernel/config/nvmet/subsystems/nqn.2026-11.org.example:pod/namespaces/1/enable
put "$first" 0
at b host
at b lines "both nodes"
at b wait_for 20 has_drives 3
put "$first" 1
at b wait_for 20 has_drives 4
at a host
at a lines "both nodes"
at a wait_for 20 has_drives 4
expect "the last drive found by b" "$(at b readlink /dev/disk/by-id/nvme-Linux_rack7_1)" "../../nvme0n4"
at a lines "node a: owns the first half, and begins the pod"
at b lines "node b: owns the second half, and joins by any member of the pod"
at b lines "node b reads what a owns, and the other way round"
at a in_kv0 blocks put 0 100 $len 7
at b in_kv0 wait_sees 0 100
at b in_kv0 got 0 100 100 100

# from the first setting of a group to the next text
awk -v to="$tmp/kvblkd.conf" '
	/^    (subsystems|pools|pod|directory)[ :]/ && !on { on = 1; file = to ++nr }
	/^[^ ]/ { on = 0 }
	on { print >file }' /kvblk/Documentation/pod.rst
for conf in "$tmp"/kvblkd.conf*; do
	check kvblkd --check "$conf"
done
