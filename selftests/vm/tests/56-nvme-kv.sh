#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=180 takes=30 kernels=newest,6.12,debug,debug-smp check=debug
# NVMe key-value commands on a node of their own: each opcode, status and bad field through each path of the nvme
# driver, and by nvme-cli. The tenant of the node is listed, and has limits.
. "${0%/*}/pool.bash"

kv_load
flash 2 300
pool_format /dev/flash0
nvme_node=/dev/kvblk/$pool/nvme-kv
expect "mode of the node" "$(stat -c %a "$nvme_node")" "$(stat -c %a $node)"
check guest_nvme_kv "$nvme_node" $node each_opcode short_buffers replace store_options key_lengths key_space bad_fields bad_memory bad_vectors \
	failed_stores store_meets_delete other_ioctls callers_of_32_bits bad_ring_commands many_in_flight threads open_modes list_keys changes identify_data bad_admin_commands
expect "blocks left over" "$(kvblk pool show $pool -o json | sed -n 's/.*"index_used": \([0-9]*\).*/\1/p')" 0
check guest_nvme_kv "$nvme_node" $node list_meets_reclaim

echo "-- nvme-cli"
# kv OPCODE ARGUMENT...: send a command for the key "abcd", as nvme-cli does
kv() {
	nvme io-passthru "$nvme_node" --namespace-id=1 --opcode="$1" --cdw2=0x64636261 --cdw11="${cdw11:-4}" "${@:2}"
}

head -c 10000 /dev/urandom >"$tmp/value"
check kv 1 --data-len=10000 --cdw10=10000 --write --input-file="$tmp/value"
check kv 2 --data-len=12288 --cdw10=12288 --read --raw-binary >"$tmp/copy"
head -c 10000 "$tmp/copy" | cmp - "$tmp/value" || fail "nvme-cli retrieves something else"
check kv 0x14
cdw11=0x204 code 1 0x89 kv 1 --data-len=10000 --cdw10=10000 --write --input-file="$tmp/value"
check kv 0x10
code 1 0x87 kv 0x14
check nvme id-ctrl "$nvme_node" >"$tmp/ctrl"
grep -q "^mn *: kvblk $pool" "$tmp/ctrl" || fail "id-ctrl says: $(cat "$tmp/ctrl")"
check nvme id-ns "$nvme_node" --namespace-id=1 >"$tmp/ns"
check nvme ns-descs "$nvme_node" --namespace-id=1 >"$tmp/descs"
grep -q "^csi *: 0x1" "$tmp/descs" || fail "ns-descs says: $(cat "$tmp/descs")"

echo "-- a tenant that is listed, and has limits"
# fields NAME...: print fields of the tenant in "kvblk tenant list -o json"
fields() {
	kvblk tenant list $pool -o json | python3 -c 'import json, sys
print(*(t[k] for t in json.load(sys.stdin) if t["name"] == "nvme-kv" for k in sys.argv[1:]))' "$@"
}

expect "tenant" "$(fields id node mode used_blocks weight)" "16383 /dev/kvblk/$pool/nvme-kv None 0 100"
check kvblk tenant set $pool nvme-kv --quota-blocks 1 --weight 300
expect "limits" "$(fields quota_blocks weight)" "1 300"
expect "limits in sysfs" "$(cat $sysfs/tenants/nvme-kv/{id,quota_blocks,weight} | xargs)" "16383 1 300"
check kv 1 --data-len=10000 --cdw10=10000 --write --input-file="$tmp/value"
expect "blocks of the tenant" "$(fields used_blocks)" 1
# another key
cdw11=3 code 1 0x81 kv 1 --data-len=10000 --cdw10=10000 --write --input-file="$tmp/value"
check kv 0x14
check kvblk tenant create $pool reader
refuse kvblk get $pool/reader abcd "$tmp/copy" 2>/dev/null
check kvblk tenant set $pool reader --shared nvme-kv
check kvblk get $pool/reader abcd "$tmp/copy"
cmp "$tmp/copy" "$tmp/value" || fail "the reader's block differs"
check kv 0x10
cdw11=3 check kv 1 --data-len=10000 --cdw10=10000 --write --input-file="$tmp/value"
cdw11=3 check kv 0x10
code 1 'NVMe commands reach blocks' kvblk tenant set $pool nvme-kv --shared default
code 1 "node of \"nvme-kv\" is the pool's" kvblk tenant set $pool nvme-kv --mode 0600
code 1 'is reserved' kvblk tenant create $pool nvme-kv
check kvblk tenant remove --yes $pool reader
no_failures

echo "-- a node that is open keeps the pool's memory, and no more"
exec 9<>"$nvme_node"
code 1 'has the node open' kvblk pool destroy $pool
check kvblk pool destroy --force $pool
[ ! -e "$nvme_node" ] || fail "$nvme_node is still there"
exec 9>&-

echo "-- a member that answers late"
modprobe -q dm_delay || true
sectors=$(blockdev --getsz /dev/flash1)
dm_create slow /dev/flash1 "0 %s linear /dev/flash1 0"

# late_from SECTOR [END]: delay I/O between these sectors beyond the test's time; complete the rest, and what was held
late_from() {
	local table="" end=${2-$sectors}
	[ "$1" = 0 ] || table="0 $1 linear /dev/flash1 0"
	[ "$1" = "$sectors" ] || table+=$'\n'"$1 $((end - $1)) delay /dev/flash1 $1 600000"
	[ "$end" = "$sectors" ] || table+=$'\n'"$end $((sectors - end)) linear /dev/flash1 $end"
	dm_set slow /dev/flash1 "${table#$'\n'}"
}

pool_format /dev/mapper/slow
# or else the cleanup waits for the device
defer 'late_from "$sectors"'
put $sysfs/suspect_ms 3600000
check guest_nvme_kv "$nvme_node" $node store
late_from 0
check timeout $((120 * KVBLK_SLOW)) guest_nvme_kv "$nvme_node" $node slow_ring_exit
check timeout $((120 * KVBLK_SLOW)) guest_nvme_kv "$nvme_node" $node slow_list slow_killed slow_pending
late_from "$sectors"
check guest_nvme_kv "$nvme_node" $node store

echo "-- lists that gave up"
put $sysfs/queue_bytes $((1 << 20))
late_from 0
timeout $((120 * KVBLK_SLOW)) guest_nvme_kv "$nvme_node" $node slow_lists >"$tmp/lists" &
wait_for 60 grep -q 'given up' "$tmp/lists"
late_from "$sectors"
wait $! || fail "lists that gave up: $(cat "$tmp/lists")"
no_failures

echo "-- a member whose blocks are still looked for"
check pool_destroy
# sectors after the superblocks and the table, and before the end, where an import looks for foreign signatures
late_from 16384 $((sectors - 8192))
defer pool_destroy
defer 'late_from "$sectors"'
kvblk pool import $pool /dev/mapper/slow &
wait_for 60 member_is slow restoring
check timeout $((120 * KVBLK_SLOW)) guest_nvme_kv "$nvme_node" $node import_pending
late_from "$sectors"
wait $! || fail "the import failed"
wait_for 60 pool_is_up
check guest_nvme_kv "$nvme_node" $node import_over
check pool_destroy
pool_import /dev/mapper/slow
check guest_nvme_kv "$nvme_node" $node import_again
no_failures
