# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# usage: target.bash NAME...
# The other machine of tests that boot: a unit runs this script. It provides an NVMe/TCP target for each name on
# 127.0.0.1, the first one at port 4420, with files on the VM's drive 0.
# The rule: nothing is cleaned up at exit.
. "${BASH_SOURCE[0]%/*}/../lib.sh"
trap - EXIT ERR
rmdir "$tmp"
mkdir -p /srv/flash
mountpoint -q /srv/flash || mount "$(vm_disk 0)" /srv/flash
for name; do
	nvmet_target tcp 127.0.0.1 "nqn.2026-11.org.kvblk:$name" "/srv/flash/$name"
done
