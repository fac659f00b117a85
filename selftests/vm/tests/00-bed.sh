#!/bin/bash
# SPDX-License-Identifier: MIT
# vm: timeout=90 disks=1 takes=11
# The test bed itself: devices made by lib.sh keep data, and a device under dm-log-writes can be replayed.
. "${0%/*}/../lib.sh"

# pattern DEVICE: write random data and read it back
pattern() {
	head -c 1M /dev/urandom >"$tmp/data"
	check dd if="$tmp/data" of="$1" bs=64k oflag=direct conv=fsync status=none
	check cmp -n 1048576 "$tmp/data" "$1"
}

nullb_create bed0 64
nullb_create bed1 64
nullb_create bed2 64
nvmet_tcp_up bed /dev/bed0 /dev/bed1
[ ${#namespaces[@]} = 2 ] || fail "two namespaces expected: ${namespaces[*]}"
pattern "${namespaces[1]}"
pattern "$(vm_disk 0)"

dm_logwrites logged /dev/bed2 "${namespaces[0]}"
pattern /dev/mapper/logged
dm_logwrites_mark logged end
check dm_remove logged
blkdiscard /dev/bed2
check /kvblk/selftests/vm/replay-log "${namespaces[0]}" /dev/bed2 --mark end
check cmp -n 1048576 "$tmp/data" /dev/bed2

dm_flakey flaky /dev/bed2
check dd if=/dev/mapper/flaky of=/dev/null bs=4k count=1 iflag=direct status=none
dm_flakey_set flaky /dev/bed2 0 60 error_reads
refuse dd if=/dev/mapper/flaky of=/dev/null bs=4k count=1 iflag=direct status=none
