#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=120 disks=3 disk-size=256M phases=2 takes=19
# The machine dies in the middle of writes. What comes back is right, nearly all that was acknowledged comes back, what was deleted
# does not. The acknowledgments are on a disk of their own.
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
	# it goes on writing until it dies
	cat <&10
	fail "no power cut came"
fi
pool_import --force "${disks[@]}"
check crash_acked check -t 3 -p 95 $node "$journal"
# a put that the power cut tore was never acknowledged: its checksum may be wrong
for name in read_errors write_errors put_errors; do
	expect $name "$(counter $name)" 0
done
blocks put 1 50 50000
expect "puts after the power cut" "$stored" 50
blocks get 1 50 50000
expect "gets of them" "$hits" 50

# and once more, from a clean stop
check pool_destroy
pool_import "${disks[@]}"
check crash_acked check -t 3 -p 95 $node "$journal"
