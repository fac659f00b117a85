#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=150 takes=15 kernels=debug check=debug
# "kvblk apply" creates the tenants of the configuration file and sets limits that differ, again after an import, because
# limits are not on media. A second run changes nothing, and no tenant is removed.
. "${0%/*}/pool.bash"
conf=$tmp/kvblkd.conf

# applied LINE...: "kvblk apply" prints exactly these lines
applied() {
	kvblk apply --config "$conf" >"$tmp/applied" || fail "exit code $?: $(cat "$tmp/applied")"
	expect "steps" "$(cat "$tmp/applied")" "$(printf '%s\n' "$@")"
}

# fields TENANT NAME...: print fields of "kvblk tenant list -o json"
fields() {
	kvblk tenant list $pool -o json | python3 -c 'import json, sys
print(*(t[k] for t in json.load(sys.stdin) if t["name"] == sys.argv[1] for k in sys.argv[2:]))' "$@"
}

limits() {
	fields blue mode uid quota_bytes quota_bytes_soft quota_blocks quota_blocks_soft quota_dram weight shared
}

kv_load
flash 2 120
pool_format /dev/flash0 /dev/flash1
check kvblk tenant create $pool other --weight 7
cat >"$conf" <<-END
	pools = ( { name = "$pool"; tenants = (
	  { name = "blue"; owner = "65534"; mode = "0640"; quota_bytes = "64M"; quota_bytes_soft = "32M"; quota_blocks = 900;
	    quota_blocks_soft = 800; quota_dram = "1M"; weight = 300; shared = "common"; },
	  { name = "common"; }, { name = "default"; weight = 50; } ); } );
END
note="note: tenant other of pool $pool is not in the file; it stays unchanged"
all='quota_bytes from 0 to 67108864, quota_bytes_soft from 0 to 33554432, quota_blocks from 0 to 900, quota_blocks_soft from 0 to 800, quota_dram from 0 to 1048576, weight from 100 to 300, shared from "" to "common"'

echo "-- tenants are created and set, once"
applied "create tenant blue of pool $pool: done" "create tenant common of pool $pool: done" \
	"set tenant default of pool $pool: weight from 100 to 50: done" "set tenant blue of pool $pool: $all: done" "$note"
expect "limits" "$(limits)" "0640 65534 67108864 33554432 900 800 1048576 300 common"
expect "weights" "$(fields default weight) $(fields common weight) $(fields other weight)" "50 100 7"
applied "$note" "nothing to do"

echo "-- limits are set again after an import, and the node is as it was"
check pool_destroy
kvblk apply --config "$conf" >"$tmp/applied" || fail "exit code $?: $(cat "$tmp/applied")"
expect "steps" "$(sed 1d "$tmp/applied")" "set tenant blue of pool $pool: $all: done
set tenant default of pool $pool: weight from 100 to 50: done
$note"
expect "limits" "$(limits)" "0640 65534 67108864 33554432 900 800 1048576 300 common"

echo "-- only what differs is set; a removed tenant is created again"
check kvblk tenant set $pool blue --mode 0600 --quota-dram 0
applied "set tenant blue of pool $pool: mode from 0600 to 0640, quota_dram from 0 to 1048576: done" "$note"
check kvblk tenant set $pool blue --mode 0600
kvblk apply --config "$conf" -o json >"$tmp/applied" || fail "exit code $?: $(cat "$tmp/applied")"
expect "steps in JSON" "$(python3 -c 'import json, sys; print(*(s["step"] for s in json.load(sys.stdin)))' <"$tmp/applied")" "tenant note"
check kvblk tenant remove $pool common --yes
kvblk apply --config "$conf" >"$tmp/applied" || fail "exit code $?: $(cat "$tmp/applied")"
grep -qx "create tenant common of pool $pool: done" "$tmp/applied" || fail "no tenant was created"
expect "the shared tenant" "$(fields blue shared)" common
