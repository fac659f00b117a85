#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=200 takes=25 kernels=newest,6.12,debug check=debug leaks=1
# Puts, declined blocks and requests of other tenants change no answer to a tenant's puts, whatever declines puts:
# second offers, sparing admission, or a kind of chains that is not requested again. The admission of a tenant ends with
# the tenant, also amid puts and while reclaim drops blocks.
. "${0%/*}/pool.bash"
llm=/dev/kvblk/$pool/llm chat=/dev/kvblk/$pool/chat
# a number that no block had yet; few blocks, or else two could have the same print
key=1 few=20

# flood NODE: put more new blocks than the pool's memory of declined ones holds
flood() {
	of "$1" put $key 16000 512
	key=$((key + 16000))
}

# answers [NODE...]: put the same new blocks three times to llm; $said has the numbers of stored, existing and declined
# ones. Tenants NODE put the same blocks, before and after, and others make the pool's memory forget.
answers() {
	local first=$key round t
	key=$((key + few))
	said=
	for round in 1 2 3; do
		for t in "$@"; do
			of "$t" put $first $few 512
			of "$t" put $first $few 512
			[ $round != 2 ] || flood "$t"
		done
		of $llm put $first $few 512
		said+="$stored/$exists/$declined "
	done
	said=${said% }
}

# same ANSWERS: llm's puts return this, alone and beside the others
same() {
	answers
	expect "answers alone" "$said" "$1"
	answers $chat $node
	expect "answers beside others" "$said" "$1"
}

kv_load
flash 1 74
# small memories of declined blocks
pool_format --index-slots 1500 /dev/flash0
put $sysfs/first_duel 0
check kvblk tenant create $pool llm
check kvblk tenant create $pool chat

echo "-- chains that are never requested are declined, but only of the tenant whose chains they are"
KV_CHAIN=1 of $chat put $key 4000 $len
key=$((key + 4000))
more_than 0 segments_reclaimed
KV_CHAIN=1 of $chat put $key 640 512
key=$((key + 640))
[ "$declined" -gt 320 ] || fail "chat: $declined of 640 are declined"
for t in $llm $node; do
	KV_CHAIN=1 of "$t" put $key 640 512
	key=$((key + 640))
	expect "$t: stored, declined" "$stored $declined" "640 0"
done

echo "-- second offers"
put $sysfs/first_permille 0
same "0/0/$few $few/0/0 0/$few/0"
export KV_CHAIN=1
same "0/0/$few $few/0/0 0/$few/0"
unset KV_CHAIN

echo "-- sparing admission"
put $sysfs/first_permille 1000
put $sysfs/admit_permille 0
flood $chat
flood $node
same "0/0/$few $few/0/0 0/$few/0"

echo "-- a tenant is removed amid its puts, and before reclaim finds its blocks"
put $sysfs/admit_permille 1000
put $sysfs/first_permille 0
of $chat put $key 500 512
of $chat put $key 500 512
[ "$stored" -gt 400 ] || fail "$stored of 500 are stored at their second offer"
key=$((key + 500))
coproc putter {
	while guest_blocks $chat put $key 100000 512; do :; done >"$tmp/putter" 2>&1
}
putter_pid=$!
defer "kill $putter_pid 2>/dev/null; wait $putter_pid 2>/dev/null || true"
declines=$(counter put_declined)
more_than $((declines + 100)) put_declined
check kvblk tenant remove --yes --force $pool chat
wait $putter_pid || true
grep -q ': -19 ' "$tmp/putter" || fail "the puts did not get ENODEV: $(cat "$tmp/putter")"
put $sysfs/first_permille 1000
reclaimed=$(counter segments_reclaimed)
of $llm put $key 2000 $len
more_than $((reclaimed + 8)) segments_reclaimed
check kvblk tenant clear --yes $pool llm
of $llm put $key $few $len
expect "puts after a clear" "$stored" $few
no_failures
