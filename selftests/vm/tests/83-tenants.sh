#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=300 takes=65 kernels=newest,6.12,debug,debug-smp check=debug leaks=1
# Tenants of a pool: each has a node and a key space of its own, which others can neither find, read nor delete. They
# survive restarts. What was removed or cleared comes back neither at once nor after a crash, not even under the same name.
# slow: the sweep of the index takes half a minute, and a member that fails is waited for three times.
. "${0%/*}/pool.bash"
llm=/dev/kvblk/$pool/llm chat=/dev/kvblk/$pool/chat

# tenants: print "NAME ID" of each tenant except "nvme-kv"
tenants() {
	kvblk tenant list $pool -o json | python3 -c 'import json, sys; print(*(t[k] for t in json.load(sys.stdin) if t["name"] != "nvme-kv" for k in ("name", "id")))'
}

# crash: import the pool from copies of its members, as after a power cut
crash() {
	nullb_create "copy0$1" 120
	nullb_create "copy1$1" 120
	crash_image /dev/flash0 "/dev/copy0$1"
	crash_image /dev/flash1 "/dev/copy1$1"
	check pool_destroy
	pool_import "/dev/copy0$1" "/dev/copy1$1"
}

# opened: the reader $stepper_pid has the node open; for wait_for
opened() {
	readlink /proc/$stepper_pid/fd/* | grep -qx $llm
}

# index_has COUNT: for wait_for
index_has() {
	[[ $(kvblk pool show $pool -o json) =~ \"index_used\":\ $1[^0-9] ]]
}

kv_load
flash 3 120
pool_format /dev/flash0 /dev/flash1
echo "-- a node of its own, with owner and mode"
expect "tenants" "$(tenants)" "default 0"
check kvblk tenant create $pool llm --mode 0640 --owner 65534 --group 4242
check kvblk tenant create $pool chat
expect "tenants" "$(tenants)" "default 0 llm 1 chat 2"
expect "owner of the node" "$(stat -c %a:%u:%g $llm)" 640:65534:4242
expect "owner of the default" "$(stat -c %a:%u:%g $chat)" 660:0:0

echo "-- the same keys are different blocks"
for t in "$node 3" "$llm 1" "$chat 2"; do
	of "${t% *}" put 1 20 50000 "${t#* }"
	expect "puts of ${t% *}" "$stored" 20
done
of $llm put 21 20 50000 1
for t in $node $chat; do
	of "$t" get 21 20 50000 1
	expect "gets by $t of what llm has" "$hits $misses $bad" "0 20 0"
	of "$t" lookup 21 20 50000
	expect "lookups" "$present" 0
	of "$t" delete 21 20 50000
	expect "deletes" "$deleted $absent" "0 20"
done
of $chat delete 1 10 50000
expect "deletes of own blocks" "$deleted" 10

# all_there: each tenant has its own blocks, with its own bytes
all_there() {
	of $node get 1 20 50000 3
	expect "default" "$hits $bad" "20 0"
	of $llm get 1 40 50000 1
	expect "llm" "$hits $bad" "40 0"
	of $chat get 1 20 50000 2
	expect "chat" "$hits $misses $bad" "10 10 0"
}
all_there

echo "-- they survive a stop, and a crash"
coproc holder { exec guest_blocks $llm hold; }
holder_pid=$!
defer "kill $holder_pid 2>/dev/null; wait $holder_pid 2>/dev/null || true"
read -r _ <&"${holder[0]}"
code 1 "guest_blocks ($holder_pid) has the node open" kvblk pool destroy $pool
kill $holder_pid
wait $holder_pid || true
check pool_destroy
[ ! -e $llm ] || fail "the node is still there"
pool_import
expect "tenants" "$(tenants)" "default 0 llm 1 chat 2"
expect "owner of the node" "$(stat -c %a:%u:%g $llm)" 640:65534:4242
all_there
crash a
expect "tenants" "$(tenants)" "default 0 llm 1 chat 2"
all_there
check pool_destroy
pool_import /dev/flash0 /dev/flash1

echo "-- an open node protects a tenant, unless forced"
coproc stepper { KV_STEP=1 exec guest_blocks $llm get 1 2 50000 1 >"$tmp/stepper" 2>&1; }
stepper_pid=$!
defer "kill $stepper_pid 2>/dev/null; wait $stepper_pid 2>/dev/null || true"
wait_for 20 opened
echo -n x >&"${stepper[1]}"
for verb in remove clear; do
	code 1 "guest_blocks ($stepper_pid) has the node open" kvblk tenant $verb --yes $pool llm
done
all_there
check kvblk tenant remove --yes --force $pool llm
[ ! -e $llm ] || fail "the node is still there"
echo -n x >&"${stepper[1]}"
wait $stepper_pid && fail "a get of a removed tenant succeeded"
grep -q 'submit.*-19' "$tmp/stepper" || fail "the open file did not get ENODEV: $(cat "$tmp/stepper")"
expect "tenants" "$(tenants)" "default 0 chat 2"
wait_for 60 index_has 30

echo "-- nothing comes back under the same name"
check kvblk tenant create $pool llm
expect "tenants" "$(tenants)" "default 0 llm 3 chat 2"
of $llm get 1 40 50000 1
expect "gets after remove and create" "$hits" 0
of $llm put 1 5 50000 4
expect "puts" "$stored" 5
crash b
of $llm get 1 40 50000 4
expect "gets after a crash" "$hits $misses $bad" "5 35 0"
of $chat get 1 20 50000 2
expect "chat" "$hits" 10
check pool_destroy
pool_import /dev/flash0 /dev/flash1
of $llm get 1 40 50000 4
expect "gets after a restart" "$hits $misses $bad" "5 35 0"

echo "-- cleared: all blocks at once, and what is put later stays"
check kvblk tenant clear --yes $pool llm
expect "tenants" "$(tenants)" "default 0 llm 4 chat 2"
of $llm get 1 40 50000 4
expect "gets after a clear" "$hits" 0
of $llm put 31 5 50000 5
crash c
of $llm get 1 40 50000 5
expect "gets after a clear and a crash" "$hits $misses $bad" "5 35 0"
of $chat get 1 20 50000 2
expect "chat" "$hits" 10
check pool_destroy
pool_import /dev/flash0 /dev/flash1

echo "-- a new member knows the tenants; one that cannot be written is told"
check kvblk member add $pool --format --yes --segment-size 8M /dev/flash2
wait_for 20 member_is flash2 up
for m in flash0 flash1; do
	check kvblk member remove --yes $pool $m
	wait_for 20 member_is $m gone
done
of $llm put 41 5 50000 6
check pool_destroy
dm_flakey bad /dev/flash2
pool_import /dev/mapper/bad
bear_errors
of $llm get 41 5 50000 6
expect "gets from the new member" "$hits" 5
dm_flakey_set bad /dev/flash2 0 3600 error_writes
code 1 'cannot record the change' kvblk tenant create $pool late
expect "tenants" "$(tenants)" "default 0 llm 4 chat 2"
code 1 'cannot record the change' kvblk tenant clear --yes $pool llm
of $llm get 41 5 50000 6
expect "gets after a clear that failed" "$hits" 5
code 4 'cannot record the change' kvblk tenant remove --yes $pool llm
dm_flakey_set bad /dev/flash2 1 0
wait_for 30 kvblk tenant create $pool late
expect "tenants" "$(tenants)" "default 0 late 5 chat 2"

echo "-- an id that no tenant got is given again, also the first one"
check pool_destroy
pool_create --format --yes --segment-size 8M /dev/mapper/bad
dm_flakey_set bad /dev/flash2 0 3600 error_writes
code 1 'cannot record the change' kvblk tenant create $pool late
dm_flakey_set bad /dev/flash2 1 0
wait_for 30 kvblk tenant create $pool late
expect "tenants" "$(tenants)" "default 0 late 1"
check kvblk tenant clear --yes $pool late
expect "tenants" "$(tenants)" "default 0 late 2"

echo "-- bad input"
long=$(printf 'x%.0s' {1..32})
for name in a/b .a "a b" "" "$long"; do
	refuse kvblk tenant create $pool "$name"
done
for name in default nvme-kv changes peers; do
	code 1 "is reserved" kvblk tenant create $pool $name
done
code 1 "there is a tenant late already" kvblk tenant create $pool late
for verb in remove clear; do
	for name in default nvme-kv; do
		code 2 "\"$name\" is part of each pool" kvblk tenant $verb --yes $pool $name
	done
	code 1 none kvblk tenant $verb --yes $pool none
	code 1 'no pool' kvblk tenant $verb --yes none late
done
refuse kvblk tenant create $pool mode --mode 1777
expect "tenants" "$(tenants)" "default 0 late 2"
no_failures
