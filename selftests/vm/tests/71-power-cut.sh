#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=120 disks=3 disk-size=256M phases=2 takes=19
# The machine dies during writes. All blocks that return are right, nearly all acknowledged ones return, deleted ones do
# not. The acknowledgments are recorded on a separate disk.
. "${0%/*}/pool.bash"

kv_load
disks=("$(vm_disk 0)" "$(vm_disk 1)")
journal=$(vm_disk 2)
if [ "$phase" = 1 ]; then
	pool_format "${disks[@]}"
	exec 10< <(crash_acked run -t 3 -n 0 -k 100 -l 100000 $node "$journal")
	read -r -t $((100 * KVBLK_SLOW)) line <&10 || fail "no batch was finished"
	echo "$line"
	vm_power_cut
	# keep reading its output until the VM dies
	cat <&10
	fail "no power cut came"
fi
pool_import --force "${disks[@]}"
check crash_acked check -t 3 -p 95 $node "$journal"
# checksum errors are not counted: a put that the power cut tore was never acknowledged
for name in read_errors write_errors put_errors; do
	expect $name "$(counter $name)" 0
done
blocks put 1 50 50000
expect "puts after the power cut" "$stored" 50
blocks get 1 50 50000
expect "gets of them" "$hits" 50

check pool_destroy
pool_import "${disks[@]}"
check crash_acked check -t 3 -p 95 $node "$journal"
