#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=150 takes=20 kernels=newest,6.12,debug check=debug leaks=1
# A tenant that other tenants may read, for system prompts: gets, lookups, leases and prefetches find the shared blocks
# behind own blocks; puts and deletes do not touch shared blocks. The administrator chooses the readers, until a removal.
. "${0%/*}/pool.bash"
sys=/dev/kvblk/$pool/sys llm=/dev/kvblk/$pool/llm chat=/dev/kvblk/$pool/chat

# shared_of TENANT: print the name of the tenant that it reads, too
shared_of() {
	kvblk tenant list $pool -o json | python3 -c 'import json, sys; print(*(t.get("shared") or "none" for t in json.load(sys.stdin) if t["name"] == sys.argv[1]))' "$1"
}

kv_load
flash 2 120
pool_format /dev/flash0 /dev/flash1
for t in sys llm chat; do
	check kvblk tenant create $pool $t
done
of $sys put 1 40 200000 1

echo "-- nobody reads another tenant unless told to"
of $llm get 1 40 200000 1
expect "gets" "$hits $misses" "0 40"
check kvblk tenant set $pool llm --shared sys
expect "shared" "$(shared_of llm) $(shared_of chat) $(shared_of sys)" "sys none none"
of $chat get 1 40 200000 1
expect "gets of a tenant that was not told to" "$hits $misses" "0 40"

echo "-- gets, lookups, leases and prefetches find what is shared"
of $llm get 1 50 200000 1
expect "gets" "$hits $misses $bad" "40 10 0"
of $llm lookup 1 50 200000
expect "lookups" "$present" 40
of $llm times 1 40 200000
put "$sysfs/dram_bytes" $((32 << 20))
of $llm prefetch 1 10 200000
expect "prefetched" "$hits $misses" "10 0"
of $llm get 1 10 200000 1
expect "gets of what was prefetched" "$hits $memory $bad" "10 10 0"
put "$sysfs/dram_bytes" 0
KV_STAY=1 of $llm lease 1 40 200000 </dev/null

echo "-- the tenant's own blocks come first"
of $llm put 31 20 200000 2
expect "puts" "$stored" 20
of $llm get 31 20 200000 2
expect "gets of own blocks" "$hits $bad" "20 0"
of $sys get 31 10 200000 1
expect "what is shared is unchanged" "$hits $bad" "10 0"
of $llm delete 31 10 200000
expect "deletes of own blocks" "$deleted" 10
of $llm get 31 10 200000 1
expect "gets of what is shared, behind them" "$hits $bad" "10 0"

echo "-- only its owner changes it"
of $llm delete 1 30 200000
expect "deletes" "$deleted $absent" "0 30"
of $sys get 1 40 200000 1
expect "gets by the owner" "$hits $bad" "40 0"
of $sys delete 1 10 200000
of $llm get 1 40 200000 1
expect "gets after the owner's deletes" "$hits $misses $bad" "30 10 0"

echo "-- it ends with the choice, with a clear and with the tenant"
check kvblk tenant set $pool llm --shared none
expect "shared" "$(shared_of llm)" none
of $llm get 11 20 200000 1
expect "gets" "$hits $misses" "0 20"
check kvblk tenant set $pool llm --shared sys
of $llm get 11 20 200000 1
expect "gets" "$hits $misses" "20 0"
check kvblk tenant clear --yes $pool sys
of $llm get 11 20 200000 1
expect "gets after a clear" "$hits $misses" "0 20"
of $sys put 11 20 200000 3
of $llm get 11 20 200000 3
expect "gets of what was put after it" "$hits $bad" "20 0"
check kvblk tenant clear --yes $pool llm
expect "shared" "$(shared_of llm)" sys
of $llm get 11 20 200000 3
expect "gets of a cleared tenant" "$hits $bad" "20 0"
check kvblk tenant remove --yes $pool sys
expect "shared" "$(shared_of llm)" none
of $llm get 11 20 200000 3
expect "gets after a removal" "$hits $misses" "0 20"
check kvblk tenant create $pool sys
of $sys put 11 20 200000 4
of $llm get 11 20 200000 4
expect "gets of another tenant of the name" "$hits $misses" "0 20"

echo "-- bad input"
code 1 'reads its own blocks anyway' kvblk tenant set $pool llm --shared llm
code 1 'no tenant nobody' kvblk tenant set $pool llm --shared nobody
expect "shared" "$(shared_of llm)" none
no_failures
