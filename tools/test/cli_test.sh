#!/bin/bash
# SPDX-License-Identifier: MIT
# usage: cli_test.sh COMMAND FAKE-POOL
# The command without the module: each invalid argument fails with exit code 2, a message and no change. The data path
# runs on the emulated pool of libkvblk-fake. A case is one line with the expected result.
set -u
kvblk=$(readlink -f "${1:?usage: cli_test.sh COMMAND FAKE-POOL}")
fake=$(readlink -f "${2:?usage: cli_test.sh COMMAND FAKE-POOL}")
docs=$(dirname "$(readlink -f "$0")")/../kvblk
. "$(dirname "$(readlink -f "$0")")/command.bash"

# usage PATTERN ARGUMENT...: check that the command rejects its arguments, and prints nothing on stdout
usage() {
	expect 2 "$@"
	[ ! -s out ] || verdict 1 "kvblk ${*:2} prints to stdout"
}

# expect_fake: like expect, on the emulated pool
expect_fake() {
	LD_PRELOAD=$fake expect "$@"
}

# has KEY PATTERN: check a value of the JSON in out
has() {
	python3 - "$1" "$2" <<- 'END' 2>> err
		import json, re, sys
		try:
		    value = json.load(open("out"))
		    for part in sys.argv[1].split("."):
		        value = value[int(part)] if isinstance(value, list) else value[part]
		except (ValueError, LookupError) as error:
		    sys.exit(f"no {sys.argv[1]}: {error}")
		sys.exit(not re.fullmatch(sys.argv[2], str(value)))
	END
	verdict $? "$1 is $2"
}

echo "# wrong usage"
usage 'a verb is missing'
usage 'no "frob"; see: kvblk --help' frob
usage 'no "frob"; see: kvblk pool --help' pool frob
usage 'did you mean "kvblk import"' imprt
usage 'did you mean "kvblk pool list"' pool lsit
usage 'did you mean "kvblk member remove"' member remve kv0 x
usage 'option "-x" comes after the verb' -x pool list
usage 'option "--format" comes after the verb' pool --format create kv0 /dev/null
usage 'did you mean "--format"' pool create kv0 --fromat /dev/null
usage 'did you mean "--ttl"' put kv0 key --ttk=3
usage 'did you mean "--output"' pool list --ouput json
# no suggestion for a word that is the value of another option
usage 'must be a path' pool create kv0 --member --frob
usage 'must be text or json' -o xml pool list
usage 'must be text or json' --output=xml pool list
usage 'must be text or json' pool -o xml list
usage 'verb' pool
usage 'verb' member
usage 'missing NAME' pool create
usage 'missing DEVICE' pool create kv0
usage 'missing POOL' pool get
usage 'there is no tunable "frob"; there are low_permille, ' pool get kv0 frob
usage 'unexpected argument "discard"' pool get kv0 discard discard
usage 'missing POOL and NAME=VALUE' pool set
usage 'missing NAME=VALUE' pool set kv0
usage 'give NAME=VALUE' pool set kv0 suspect_ms
usage 'there is no tunable' pool set kv0 frob=1
usage 'suspect_ms=99: must be a number from 100 to 3600000, or with a unit, as 3s' pool set kv0 suspect_ms=99
usage 'dram_bytes=1Q: must be a number from 0 to [0-9]*, or with a suffix, as 16M' pool set kv0 dram_bytes=1Q
usage 'suspect_ms=: must be' pool set kv0 suspect_ms=
usage 'integrity=half: must be header, full or producer' pool set kv0 integrity=half
usage 'queue_bytes=128G: must be' pool set kv0 queue_bytes=128G
usage 'unexpected argument "kv0"' apply kv0
usage 'a verb is missing' policy
usage 'did you mean "kvblk policy explain"' policy explian kv0
usage 'missing POOL$' policy explain
usage 'unexpected argument "kv1"' policy explain kv0 kv1
usage '1 to 31 letters' policy explain 'a b'
usage '--count' policy explain kv0 --count 0
usage 'must be a path' pool create kv0 nvme1n1
usage 'given twice' pool create kv0 /dev/null /dev/null
usage 'at most 4095 bytes' pool create kv0 "/dev/$(printf 'x%.0s' {1..4095})"
usage '1 to 31 letters' pool create 'a b' /dev/null
usage '1 to 31 letters' pool create '' /dev/null
usage '1 to 31 letters' pool create .. /dev/null
usage '1 to 31 letters' pool create a/b /dev/null
usage '1 to 31 letters' pool create "$(printf 'x%.0s' {1..32})" /dev/null
usage 'power of two' pool create kv0 --segment-size 12M /dev/null
# shellcheck disable=SC2046 # one word each
usage 'at most 64 members' pool create kv0 $(printf '/dev/flash%s ' {0..64})
usage 'from 8 MiB to 1 GiB' pool create kv0 --segment-size 4M /dev/null
usage 'from 8 MiB to 1 GiB' pool create kv0 --segment-size 2G /dev/null
usage 'from 8 MiB to 1 GiB' pool create kv0 --segment-size -8M /dev/null
usage 'from 8 MiB to 1 GiB' pool create kv0 --segment-size 8Q /dev/null
usage 'from 8 MiB to 1 GiB' pool create kv0 --segment-size 99999999999999T /dev/null
usage 'number from 1 to 68719476736' pool create kv0 --index-slots 0 /dev/null
usage '--index-slots -1: must be a number from 1 to 68719476736' pool create kv0 --index-slots -1 /dev/null
usage 'number from 1' pool create kv0 --index-slots x /dev/null
usage 'seed-of needs --pod' pool create kv0 --seed-of /dev/null /dev/null
usage '1 to 31 letters' pool create kv0 --pod a/b /dev/null
usage 'must be a path' pool create kv0 --pod a --seed-of null /dev/null
usage 'unrecognized option' pool create kv0 --frob /dev/null
usage 'index-slots cannot be used with --block-size' pool create kv0 --index-slots 5 --block-size 1M /dev/null
usage 'from 1 B to 64 MiB' pool create kv0 --block-size 65M /dev/null
usage 'missing --model or --block-size' pool plan --capacity 1T
usage 'model cannot be used with --block-size' pool plan --capacity 1T --model llama-3.1-8b --block-size 1M
usage 'missing --capacity or DEVICE' pool plan --block-size 1M
usage 'capacity cannot be used with DEVICE' pool plan --block-size 1M --capacity 1T /dev/null
usage 'members needs --capacity' plan --block-size 1M --members 2 /dev/null
usage 'tokens needs --model' pool plan --block-size 1M --tokens 16 --capacity 1T
usage 'dtype needs --model' pool plan --block-size 1M --dtype fp8 --capacity 1T
usage 'must be fp16' pool plan --model llama-3.1-8b --dtype int4 --capacity 1T
usage 'model gpt: must be .* llama-3.1-8b,' pool plan --model gpt --capacity 1T
usage 'from 1 B to 64 MiB' pool plan --block-size 65M --capacity 1T
usage 'from 64 MiB' pool plan --block-size 1M --capacity 1
usage 'number from 1 to 64' pool plan --block-size 1M --capacity 1T --members 65
usage 'number from 1 to 1024' pool plan --model llama-3.1-8b --ranks 0 --capacity 1T
usage 'number from 0.01' pool plan --block-size 1M --capacity 1T --dwpd 0
usage 'from 1 B' pool plan --block-size 1M --capacity 1T --write-rate 0
usage 'power of two' pool plan --block-size 1M --capacity 1T --segment-size 12M
usage 'number from 1 to' pool plan --block-size 1M --capacity 1T --index-slots 0
usage 'give either NAME, --all or --scan' pool import
usage 'give either NAME' pool import kv0 --all
usage 'give either NAME' pool import --all --scan
usage 'name needs NAME' pool import --all --name kv1
usage '1 to 31 letters' pool import 'a b'
usage 'must be a path' pool import kv0 nvme1n1
usage 'given twice' pool import kv0 /dev/null /dev/null
usage 'number from 1' pool import kv0 --index-slots 0
usage 'unrecognized option' pool import kv0 --format
usage 'missing POD and NODE' pool adopt
usage 'missing NODE' pool adopt rack7
usage 'unexpected argument "more"' pool adopt rack7 a kv0 more
usage '1 to 31 letters' pool adopt rack7 a --name a/b
usage 'number from 1' pool adopt rack7 a --index-slots 0
usage 'must be text or json' pool list -o xml
usage 'unexpected argument "kv0"' pool list kv0
usage 'missing NAME' pool show
usage 'unexpected argument "kv1"' pool show kv0 kv1
usage 'missing NAME' pool destroy
usage 'missing POOL and DEVICE' member add
usage 'missing DEVICE' member add kv0
usage 'must be a path' member add kv0 nvme1n1
usage 'unexpected argument' member add kv0 /dev/null /dev/zero
usage 'missing MEMBER' member remove kv0
usage 'unexpected argument' member list kv0 kv1
usage 'verb' tenant
usage 'did you mean "kvblk tenant create"' tenant crate kv0 blue
for verb in create set remove clear; do
	usage 'missing POOL and TENANT' tenant $verb
	usage 'missing TENANT' tenant $verb kv0
	usage 'unexpected argument "more"' tenant $verb kv0 blue more
	usage 'tenant name "a/b": must be 1 to 31 letters' tenant $verb kv0 a/b
	usage 'tenant name "": must be' tenant $verb kv0 ''
	usage 'tenant name ".x": must be' tenant $verb kv0 .x
	usage 'pool name "a b": must be' tenant $verb 'a b' blue
	usage '1 to 31 letters' tenant $verb kv0 "$(printf 'x%.0s' {1..32})"
done
usage 'missing --key-file' tenant key kv0 blue
usage '--key-file needs --encrypt' tenant create kv0 blue --key-file "$dir/key"
(umask 77; for n in 0 31 33 32; do head -c $n /dev/zero >"$dir/key-$n"; done)
chmod 640 "$dir/key-32"
for verb in 'create --encrypt' key; do
	# shellcheck disable=SC2086 # several words
	for n in 0 31 33; do expect 1 'a key has 32 bytes' tenant $verb kv0 blue --key-file "$dir/key-$n"; done
	# shellcheck disable=SC2086
	expect 1 'chmod 600' tenant $verb kv0 blue --key-file "$dir/key-32"
	# shellcheck disable=SC2086
	expect 1 'No such file' tenant $verb kv0 blue --key-file "$dir/none"
done
for verb in create set; do
	for mode in '' 8 0x1ff 0 00 1000 -1 ' 660' 660x rw 7777777777777777777777777; do
		usage "--mode $mode: must be octal permission bits from 1 to 0777, like 0660" tenant $verb kv0 blue "--mode=$mode"
	done
	for id in '' no-such-one -1 4294967295 99999999999999999999 0x1 1.5; do
		usage "--owner $id: there is no such user" tenant $verb kv0 blue "--owner=$id"
		usage "--group $id: there is no such group" tenant $verb kv0 blue "--group=$id"
	done
	for size in '' -1 1x 1.5G ' 1' 16777216T; do
		for option in quota-bytes quota-bytes-soft quota-dram; do
			usage "--$option $size: must be a size from 0 B to 16 EiB" tenant $verb kv0 blue "--$option=$size"
		done
	done
	for count in '' -1 1K 1.5 18446744073709551616; do
		usage "--quota-blocks $count: must be a number from 0 to 18446744073709551615" tenant $verb kv0 blue "--quota-blocks=$count"
		usage "--quota-blocks-soft $count: must be a number from 0" tenant $verb kv0 blue "--quota-blocks-soft=$count"
	done
	for weight in '' 0 10001 -1 1K 1.5; do
		usage "--weight $weight: must be a number from 1 to 10000" tenant $verb kv0 blue "--weight=$weight"
	done
	usage 'tenant name "": must be' tenant $verb kv0 blue --shared=
	usage 'tenant name "a/b": must be' tenant $verb kv0 blue --shared a/b
done
usage 'nothing to change: give an option, like --quota-bytes' tenant set kv0 blue
usage '"default" is part of each pool: it cannot be removed or cleared' tenant remove kv0 default --yes
usage '"default" is part of each pool' tenant clear kv0 default --force -y
usage 'unexpected argument "kv1"' tenant list kv0 kv1
for verb in put get exists rm prefetch hint; do
	usage 'missing POOL' $verb
	usage 'missing KEY' $verb kv0
	usage 'odd number' $verb kv0 --hex abc
	usage 'not hex' $verb kv0 --hex zz
	usage '1 to 512 bytes' $verb kv0 "$(printf 'x%.0s' {1..513})"
	usage '1 to 512 bytes' $verb kv0 ''
	usage 'must be text or json' $verb kv0 key -o yaml
done
for verb in put get exists rm hint; do
	usage 'tenant name "": must be' $verb kv0/ key
	usage 'tenant name "a/b": must be' $verb kv0/a/b key
	usage 'pool name "a b": must be' $verb 'a b/c' key
	usage 'pool name "x*": must be' $verb "$(printf 'x%.0s' {1..99})/c" key
done
usage 'tenant name "": must be' bench kv0/ --op put
usage 'odd number' rm kv0 --hex aa abc
usage 'odd number' prefetch kv0 --hex aa abc
usage 'from 1 B to' prefetch kv0 key --max-bytes 0
usage 'from 1 B to' prefetch kv0 key --max-bytes 1.5M
usage 'time from 0.001' prefetch kv0 key --deadline 0
usage 'from 0 to 3' prefetch kv0 key --priority 4
usage 'time from 0.001' prefetch kv0 key --deadline -1
usage '1 to 31 letters' prefetch kv0/default key
printf 'key\n\n' > keys
usage '1 to 512 bytes' prefetch kv0 --keys keys
printf 'zz\n' > keys
usage 'not hex' prefetch kv0 --keys keys --hex
: > keys
usage 'missing KEY or --keys' prefetch kv0 --keys keys
yes | head -65537 > keys
usage 'at most 65536 keys' prefetch kv0 --keys keys
expect 1 'absent: No such file' prefetch kv0 --keys absent
expect 1 'Is a directory' prefetch kv0 --keys .
usage 'from 0 to 3' put kv0 key --priority 4
usage 'from 0 to 3' put kv0 key --priority -1
usage 'time from 0.001 to 1073741824 seconds' put kv0 key --ttl 0
usage 'time from 0.001' put kv0 key --ttl 4294967296
usage 'time from 0.001' put kv0 key --ttl 1x
usage 'time from 0.001' put kv0 key --ttl 1hh
usage 'time from 0.001' put kv0 key --ttl 60000d
usage 'time from 0.001' put kv0 key --ttl -1h
usage '1 to 512 bytes' put kv0 key --parent ''
usage 'number from 0' put kv0 key --caller-tag 18446744073709551616
usage 'number from 0' put kv0 key --layout-tag x
usage 'unexpected argument "more"' put kv0 key file more
usage 'from 0 B to 64 MiB' get kv0 key --offset 65M
usage 'from 1 B to 64 MiB' get kv0 key --length 0
usage 'needs a FILE' get kv0 key -o json
usage 'time from 0.1' stat --watch=0
usage 'time from 0.1' stat --watch 0
usage 'time from 0.1' stat kv0 -w 1us
usage 'time from 0.1' stat --watch=nan
usage 'time from 0.1' stat --watch=kv0
usage 'MEMBER cannot be used with --watch' stat kv0 --watch kv1
usage 'count needs --watch' stat --count 3
usage 'unexpected argument' status kv0 kv1
usage 'unexpected argument "kv0"' doctor kv0
usage 'time from 0.1 to 86400' iostat 1ms
usage 'kvblk iostat -o json' top -o json
usage 'time from 0.1 to 3600' top 1ms
usage 'unexpected argument' top kv0 1 2
usage 'INTERVAL frob: must be a time' top kv0 frob
usage 'INTERVAL frob: must be a time' iostat kv0 frob
usage 'COUNT 0: must be a number from 1' iostat kv0 1 0
usage 'COUNT 2s: must be a number' iostat 1 2s
usage 'unexpected argument' iostat kv0 1 2 3
usage '1 to 31 letters' iostat a/b
usage '1 to 31 letters' pool status a/b
usage 'number from 1' stat --watch --count 0
usage 'unexpected argument' stat kv0 nvme0n1 nvme1n1
usage 'MEMBER cannot be used with --watch' stat kv0 nvme0n1 --watch
usage '1 to 31 letters' topo kv0 a/b
usage 'unrecognized option' topo --frob
usage 'must be text or json' topo -o xml kv0
# shellcheck disable=SC2046 # one word each
usage 'at most 256 pools' topo $(printf 'kv%s ' {0..256})
usage 'number from 1' events --count 0
usage 'time from' events --seconds -1
usage 'missing --trace or --synthetic' replay --pool kv0
usage 'trace cannot be used with --synthetic' replay --pool kv0 --trace x --synthetic
usage 'missing --pool or --simulate' replay --synthetic
usage 'unexpected argument "kv1"' replay --pool kv0 --synthetic kv1
usage 'needs --synthetic' replay --pool kv0 --trace x --seed 1
usage 'needs --synthetic' replay --pool kv0 --trace x --requests 1
usage 'must be chat' replay --pool kv0 --synthetic=frob
usage 'number from 1' replay --pool kv0 --synthetic --requests 0
usage 'number from 1' replay --pool kv0 --synthetic --limit 0
usage 'from 1 B to 64 MiB' replay --pool kv0 --synthetic --block-size 0
usage 'from 1 B to 64 MiB' replay --pool kv0 --synthetic --block-size 65M
usage 'from 1 B to 64 MiB' replay --pool kv0 --synthetic --block-size 1.5M
usage 'number from 0' replay --pool kv0 --synthetic --speed -1
usage 'number from 0' replay --pool kv0 --synthetic --speed fast
usage 'number from 1' replay --pool kv0 --synthetic --threads 0
usage 'number from 1' replay --pool kv0 --synthetic --threads 1025
usage 'time from' replay --pool kv0 --synthetic --seconds 0
usage 'from 4 KiB' replay --pool kv0 --synthetic --buffer 1
usage 'needs --simulate' replay --pool kv0 --synthetic --capacity 0.1
usage 'cannot be used with --simulate' replay --simulate --synthetic --pool kv0
usage 'cannot be used with --simulate' replay --simulate --synthetic --verify
usage 'cannot be used with --simulate' replay --simulate --synthetic --quiet
usage 'number from' replay --simulate --synthetic --capacity 0
usage 'number from' replay --simulate --synthetic --capacity nan
usage 'number from 8' replay --simulate --synthetic --segments 1
usage 'number from 0 to 1000' replay --simulate --synthetic --admit-permille 1001
usage 'number from 0 to 1000' replay --simulate --synthetic --first-permille 1001
usage 'needs --simulate' replay --pod 4 --trace x --pool kv0
usage 'number from 1 to 1024' replay --simulate --pod 0
usage 'must be rr, session or prefix' replay --simulate --pod 4 --route hash
usage 'must be none, follow or directory' replay --simulate --pod 4 --sharing all
usage 'needs --pod' replay --simulate --synthetic --sharing follow
usage 'time from' replay --simulate --pod 4 --fresh soon
usage 'needs --kill' replay --simulate --pod 4 --adopt 60
usage 'needs --restart-rack' replay --simulate --pod 4 --bandwidth 1G
for event in x 1 @5 1- 1-2 1-2-3@5 -1@5 1.5@5; do
	usage 'must be nodes and a time, like 3@60' replay --simulate --pod 4 "--kill=$event"
done
usage 'time from 0' replay --simulate --pod 4 --kill 1@
usage '--kill: must be nodes from 0 to 3' replay --simulate --pod 4 --kill 4@5
usage '--restart-rack: must be nodes from 0 to 3, the lower one first' replay --simulate --pod 4 --restart-rack 2-1@5
usage 'must leave a node' replay --simulate --pod 4 --kill 0-3@5
usage 'number from 1 to 4096' replay --simulate --pod 4 --sharing directory --span 0
usage 'number from 1 to 4096' replay --simulate --pod 4 --sharing directory --span 4097
usage '--budget cannot be used with --pod' replay --simulate --pod 4 --budget 1
usage '--cache cannot be used with --pod' replay --simulate --pod 4 --cache lru
usage '--ttft cannot be used with --pod' replay --simulate --pod 4 --ttft llama-3.1-8b --flash-load 4096
usage 'too many for each of 1024 nodes' replay --simulate --pod 1024 --synthetic --requests 100000000
usage 'from 0.001 to' replay --simulate --synthetic --budget 0
usage 'budget needs --cache kvblk' replay --simulate --synthetic --budget 1 --cache lru
usage 'needs --simulate' replay --pool kv0 --synthetic --budget 1
usage 'number from 0 to 4000' replay --simulate --synthetic --reinsert-permille 4001
usage 'number from 0' replay --simulate --synthetic --salt -1
usage 'number from 0 to 1024' replay --simulate --synthetic --batch 1025
usage 'needs --simulate' replay --pool kv0 --synthetic --batch 1
usage 'needs --simulate' replay --pool kv0 --synthetic --salt 1
usage 'must be kvblk' replay --simulate --synthetic --cache arc
usage 'dram -1: must be a number from 0 to 100' replay --simulate --synthetic --dram -1
usage 'dram 16G: must be a number from 0 to 100' replay --simulate --synthetic --dram 16G
usage 'must be through, evict or touched' replay --simulate --synthetic --dram 0.1 --dram-mode back
usage 'number from 0 to 1' replay --simulate --synthetic --dram 0.1 --dram-promote 2
usage 'dram-mode needs --dram' replay --simulate --synthetic --dram-mode touched
usage 'dram-promote needs --dram' replay --simulate --synthetic --dram-promote 0
usage 'dram needs --cache kvblk' replay --simulate --synthetic --dram 0.1 --cache lru
usage 'needs --simulate' replay --pool kv0 --synthetic --dram 0.1
usage 'must be llama-3.1-8b or' replay --simulate --synthetic --flash-load 1 --ttft gpt
usage 'ttft needs --flash-load' replay --simulate --synthetic --ttft llama-3.1-8b
usage 'needs --dram-load' replay --simulate --synthetic --ttft llama-3.1-8b --flash-load 1 --dram 0.1
usage 'ttft needs --cache kvblk' replay --simulate --synthetic --ttft llama-3.1-8b --flash-load 1 --cache fifo
usage 'ttft needs --simulate' replay --pool kv0 --synthetic --ttft llama-3.1-8b --flash-load 1
usage 'servers needs --ttft' replay --simulate --synthetic --servers 2
usage 'number from 1 to 1024' replay --simulate --synthetic --servers 0
usage 'number from 1 to 1024' replay --simulate --synthetic --gpus 0
usage 'gpu v100: must be h100 or a100' replay --simulate --synthetic --gpu v100
usage 'number from 0.01 to 1' replay --simulate --synthetic --mfu 1.1
usage 'number from 1 to 1048576' replay --simulate --synthetic --tokens 0
usage 'flash-load fast: must be a number' replay --simulate --synthetic --flash-load fast
usage 'flash-load slow: must be a time' replay --simulate --synthetic --flash-load 6000,slow
usage 'dram-load 0: must be a number' replay --simulate --synthetic --dram-load 0
usage 'a report is HTML' report -o json x
usage 'missing POOL' bench --op get
usage 'missing --op and POOL' bench
usage 'missing --op' bench kv0
usage 'must be put' bench kv0 --op rm
usage 'from 1 B to 64 MiB' bench kv0 --op put --size 65M
usage 'number from 1' bench kv0 --op put --depth 0
usage 'at most 1024' bench kv0 --op get --depth 1025
usage 'number from 1' bench kv0 --op put --threads 0
usage 'time from 0.01' bench kv0 --op put --seconds 0
usage 'number from 1' bench kv0 --op put --count 0
usage 'for get and exists' bench kv0 --op put --blocks 10
usage 'must be uring, uring-fixed or ioctl' bench kv0 --op put --engine frob
usage 'must be host, gpu' bench kv0 --op put --mem cpu
usage 'must be host, gpu' bench kv0 --op put --mem gpu:
usage 'moves no blocks' bench kv0 --op exists --mem gpu
usage 'unexpected argument' bench kv0 kv1 --op put
usage '1 to 31 letters' bench 'a b' --op put

usage 'unexpected argument "kv0"' keyspace kv0
usage '--group .*--new' keyspace --group kvblk
usage 'no such group' keyspace --new --group no-such-group --salt-file salt
usage 'missing --priority, --retain, --demote or --release' hint kv0 key
usage '--release excludes' hint kv0 key --release --demote
usage 'from 0 to 3' hint kv0 key --priority 4
usage 'time from 0 ' hint kv0 key --retain 25h
usage 'odd number' hint kv0 --demote --hex aa abc
usage '--new needs a --salt-file' keyspace --new --salt-file ''
usage '--model .*--runtime' keyspace --model tiny
usage 'a key space needs --runtime, --model' keyspace --runtime a --model b --dtype c --layout d
usage 'each rank must be below' keyspace --runtime a --model b --dtype c --layout d --block-tokens 1 --tp-rank 2 --tp-size 2
usage 'must be a number from 1 to' keyspace --runtime a --model b --dtype c --layout d --block-tokens 0

echo "# help and version"
verbs=('pool create' 'pool import' 'pool adopt' 'pool destroy' 'pool list' 'pool show' 'pool plan' 'pool clear' 'pool get' 'pool set' apply 'policy explain' 'member add' 'member follow' 'member unfollow' 'member remove' 'member wipe' 'member list' 'tenant create' 'tenant set' 'tenant key' 'tenant remove' 'tenant clear' 'tenant list' put get exists rm prefetch hint keyspace status stat iostat top
	topo doctor events replay report bench)
expect 0 '^kvblk [0-9]' --version
for noun in '' pool member tenant policy; do
	# shellcheck disable=SC2086 # no noun is no argument
	expect 0 'Example' $noun --help
done
for verb in "${verbs[@]}"; do
	# shellcheck disable=SC2086 # two words
	expect 0 'Example' $verb --help
	# shellcheck disable=SC2086
	expect 0 '-o, --output' $verb --help
done

for noun in pool member tenant policy; do
	expect 0 "^Usage: kvblk $noun VERB" help $noun
	expect 0 "^Usage: kvblk $noun VERB" $noun -h
	expect 0 "^Usage: kvblk $noun VERB" $noun help
done
expect 0 '^Usage: kvblk VERB' help
expect 0 '^Usage: kvblk VERB' -h
for words in 'help pool create' 'pool help create' 'pool create -h' 'pool create -?' '-h pool create' 'pool -h create'; do
	# shellcheck disable=SC2086 # several words
	expect 0 '^Usage: kvblk pool create .OPTION' $words
done
expect 0 '^Usage: kvblk put' help put
usage 'no "frob"' help frob
for words in 'rm kv0' 'del kv0' 'delete kv0' 'remove kv0'; do
	# shellcheck disable=SC2086
	usage 'missing KEY' $words
done
for words in 'pool create kv0' 'create kv0'; do
	# shellcheck disable=SC2086
	usage 'missing DEVICE' $words
done
usage 'give either NAME' import
for words in destroy show 'pool rm' 'pool delete' 'pool export' 'pool info'; do
	# shellcheck disable=SC2086
	usage 'missing NAME' $words
done
for words in list ls 'pool ls' 'member ls kv0' 'tenant ls kv0'; do
	# shellcheck disable=SC2086
	usage 'unexpected argument' $words kv1
done
usage 'missing MEMBER' member rm kv0
usage 'missing MEMBER' member delete kv0
usage 'missing TENANT' tenant rm kv0
usage 'missing TENANT' tenant delete kv0
expect 0 'list .*\(also: ls\)' pool --help

echo "# decisions of the daemon"
expect 1 'kv0: kvblkd is not running and left nothing in .*/none; start it' policy explain kv0 --dir "$dir/none"
mkdir run
expect 1 'kv0: kvblkd is not running and left no decision' policy explain kv0 --dir run
: > run/lock
exec 9< run/lock
flock 9
expect 1 'kv0: kvblkd has decided nothing: the pool is not up, or has neither budget nor reserve' policy explain kv0 --dir run
cat > run/decisions.jsonl <<- 'END'
	{"time":1764000000.5,"pool":"kv0","kind":"budget","warning":false,"written_a_day":0.0,"budget_a_day":2147483648.0,"from":{},"to":{},"reason":"budget of 2.00 GiB a day"}
	half a li
	{"time":1764000300.5,"pool":"kv1","kind":"reserve","from":{},"to":{},"reason":"of another pool"}
	{"time":1764000300.5,"pool":"kv0","kind":"budget","warning":false,"written_a_day":4294967296.0,"budget_a_day":2147483648.0,"from":{"admit_permille":700},"to":{"admit_permille":645},"reason":"budget: admits less"}
END
TZ=UTC expect 0 '^TIME +KIND +WRITTEN/DAY  BUDGET/DAY CHANGE +REASON$' policy explain kv0 --dir run
TZ=UTC expect 0 '^2025-11-24 16:05:00 budget +4 GiB +2 GiB admit_permille 700 -> 645 +budget: admits less$' policy explain kv0 --dir run
[ "$(wc -l < out)" = 3 ] && [ ! -s err ]
verdict $? "decisions of this pool alone, and nothing on stderr while the daemon runs"
expect 0 "^1764000300$(printf '\t')budget$(printf '\t')4294967296$(printf '\t')2147483648$(printf '\t')admit_permille 700 -> 645$(printf '\t')budget: admits less$" policy explain -H -p kv0 --dir run --count 1
[ "$(wc -l < out)" = 1 ]
verdict $? "the last one alone"
expect 0 '' -o json policy explain kv0 --dir run
has daemon_runs True
has decisions.1.to.admit_permille 645
exec 9<&-
expect 0 'kvblkd is not running: nothing is decided now' policy explain kv0 --dir run
expect 0 '' -o json policy explain kv9 --dir run
has daemon_runs False
has decisions '\[\]'
# root without capabilities may not read a file of mode 0 either
printf '#!/bin/sh\n[ "$(id -u)" = 0 ] && exec setpriv --inh-caps=-all --bounding-set=-all "%s" "$@"\nexec "%s" "$@"\n' "$kvblk" "$kvblk" > denied
chmod +x denied
for file in decisions.jsonl lock; do
	chmod 0 run/$file
	kvblk=$dir/denied expect 1 'decisions are for root and the group kvblk-monitor \(usermod -aG' policy explain kv0 --dir run
	chmod 600 run/$file
done

echo "# man page and completion know every option, and no others"
options() {
	grep -oE -- '--[a-z][a-z-]+' | sort -u
}
for verb in "${verbs[@]}"; do
	# shellcheck disable=SC2086 # two words
	"$kvblk" $verb --help | grep -oE '^ +(-., )?--[a-z-]+'
done | options > known
sed 's/\\-/-/g' "$docs/../man/kvblk.8" | options > told
echo --usage >> told
echo --version >> known
diff <(sort -u known) <(sort -u told) > err
verdict $? "the man page tells the options"
# synopsis VERB: print the verb's lines of the synopsis, with continuation lines joined
synopsis() {
	sed -n '/^\.SH SYNOPSIS/,/^\.fi/p' "$docs/../man/kvblk.8" | sed -E 's/\\f[BRI]//g; s/\\-/-/g' | sed -e ':a' -e 'N;s/\n        / /;ta' -e 'P;D' |
		grep -E "^kvblk $1( |\$)"
}
for verb in "${verbs[@]}"; do
	synopsis "$verb" > told
	if grep -q ' \.\.\.$' told; then
		continue
	fi
	# shellcheck disable=SC2086 # two words
	"$kvblk" $verb --help | grep -oE '^ +(-., )?--[a-z-]+' | options | grep -vxE -- '--(output|help|usage)' | diff - <(options < told) > err && [ -s told ]
	verdict $? "the synopsis has kvblk $verb with its options"
done
sed -n '/^enum kvblk_event {/,/}/s/^\tKVBLK_EVENT_\([A-Z_]*\).*/\1/p' "$docs/../../uapi/linux/kvblk_netlink.h" | tr A-Z_ a-z- | sort > known
grep -oE '^\.BR [a-z]+-[a-z-]+|^\.BR checksum' "$docs/../man/kvblk.8" | cut -d ' ' -f 2 | sort | diff known - > err
verdict $? "the man page tells the events"
sed -n '/^Events$/,/^Kernel messages$/s/^``\([a-z-]*\)``  .*/\1/p' "$docs/../../Documentation/admin-guide.rst" | sort | diff known - > err
verdict $? "the administrator's guide tells the events"
# shellcheck source=../kvblk/completion/kvblk.bash
. "$docs/completion/kvblk.bash"
# completions WORD...: print the completions of the last word
completions() {
	COMP_WORDS=(kvblk "$@") COMP_CWORD=$# COMPREPLY=()
	_kvblk
	printf '%s\n' "${COMPREPLY[@]}" | sort
}
for verb in "${verbs[@]}"; do
	# shellcheck disable=SC2086 # two words
	completions $verb -- | diff - <({ "$kvblk" $verb --help | grep -oE '^ +(-., )?--[a-z-]+'; echo --usage; } | options) > err
	verdict $? "the completion knows the options of $verb"
done
for noun in '' pool member tenant policy; do
	# shellcheck disable=SC2086 # no noun is no argument
	completions $noun '' | grep -v '^-' | diff - <("$kvblk" $noun --help | sed -n 's/^  \([a-z]*\)  *[a-z].*/\1/p' | grep -v kvblk | sort) > err
	verdict $? "the completion knows the words of kvblk $noun"
done
[ "$(completions replay --synthetic = onc)" = once ] && [ "$(completions stat --output = | xargs)" = 'json text' ]
verdict $? "the completion knows --option=word"

echo "# nothing there"
if [ ! -e /sys/module/kvblk ]; then
	expect 1 'modprobe kvblk' pool list
	expect 1 'modprobe kvblk' tenant list
	expect 1 'modprobe kvblk' tenant create kv0 blue --mode 600 --owner root --group 4294967294
	expect 1 'modprobe kvblk' tenant set kv0 blue --weight 7
	expect 1 'modprobe kvblk' events --seconds 1
	expect 1 'modprobe kvblk' stat --watch 1 --count 1
	expect 1 'modprobe kvblk' stat -w 500ms kv0 --count 1
	expect 5 '^fails  *module  *kvblk is not loaded$' doctor
	expect 5 $'^fails\tmodule\tkvblk is not loaded\tload it' doctor -H
	expect 5 '"verdict": "fails"' doctor -o json
	has verdict fails
	# devices are reported without the module
	expect 1 '^DEVICE .*P2P MEMORY|^no GPU' topo
	expect 1 'modprobe kvblk' topo
	expect 1 '' topo -o json
	has module False
	has pools '\[\]'
	expect 1 'no pool absent: .*modprobe kvblk' topo absent
	[ ! -s out ]
	verdict $? "a pool that is not there is all that is told"
fi
expect 1 'no pool absent' put absent key
expect 1 'no pool absent' get absent key
expect 1 'no pool absent' exists absent key
expect 1 'no pool absent' put absent/blue key
expect 1 '^kvblk: /dev/kvblk/absent/blue: no such node' get /dev/kvblk/absent/blue key
expect 1 '^kvblk: ./absent: no such node' get ./absent key
expect 1 'no pool absent' prefetch absent key
expect 1 'no pool absent' replay --pool absent --synthetic --requests 1
expect 1 'no pool absent' bench absent --op put
expect 1 'No such file' replay --simulate --trace absent
expect 1 'Is a directory' replay --simulate --trace .

echo "# salt"
tiny=(--runtime example/1 --model tiny --dtype float16 --layout LKTHD --block-tokens 64)
expect 4 'salt: no such file, so anybody' keyspace --salt-file salt
expect 4 '' keyspace --salt-file salt -o json "${tiny[@]}"
has salted False
has fingerprint None
has prefix 6b766231e7940858f1756b790e5d78b122ca70f1
expect 0 '^prefix       6b766231e7940858f1756b790e5d78b122ca70f1$' keyspace --salt-file '' "${tiny[@]}"
expect 0 '^fingerprint  [0-9a-f]{16}$' keyspace --new --salt-file made/salt --group "$(id -gn)"
[ "$(stat -c '%a %G' made/salt)" = "640 $(id -gn)" ] && grep -qxE '[0-9a-f]{64}' made/salt && [ "$(wc -c < made/salt)" = 65 ]
verdict $? "a new salt has 64 hex digits and is its group's"
[ "$(ls made)" = salt ] && ! grep -qf made/salt out err
verdict $? "it leaves no other file, and is not printed"
cp made/salt before
expect 1 'exists already and stays unchanged' keyspace --new --salt-file made/salt
cmp -s made/salt before
verdict $? "a salt is never replaced"
expect 1 'no-such/dir/salt: No such file' keyspace --new --salt-file no-such/dir/salt
umask 077
for i in {1..8}; do
	"$kvblk" keyspace --new --salt-file race/salt > "race-$i" 2>&1 &
done
wait
umask 022
[ "$(grep -l '^fingerprint' race-* | wc -l)" = 1 ] && [ "$(grep -l 'exists already' race-* | wc -l)" = 7 ] && [ "$(ls race)" = salt ]
verdict $? "of eight that make a salt one succeeds"
[ "$(stat -c %a race)" = 755 ]
verdict $? "its directory can be searched, whatever the umask"
printf '%02x' {0..31} > known
echo >> known
chmod 640 known
expect 0 '' keyspace --salt-file known -o json "${tiny[@]}"
has salt_file known
has salted True
has fingerprint d03af759a72afc66
has prefix 6b7662311a472cdbe252ef85e250a7f4bc9872c3
for mode in 644 660 642 641; do
	chmod $mode known
	expect 1 'known: others may read it or its group may change it' keyspace --salt-file known "${tiny[@]}"
	[ ! -s out ] || verdict 1 "a salt of mode $mode is used"
done
chmod 640 known
for text in '' "$(printf %064d 0)" "$(printf %063d 0)\n" "$(printf %065d 0)\n" "$(printf %063d 0)A\n" "$(printf %063d 0)g\n" "$(printf %064d 0)\n\n" \
		"$(printf %063d 0)\n\n" "$(printf %063d 0)\\0\n"; do
	printf '%b' "$text" > known
	expect 1 'known: it is not 64 hex digits in lower case and a newline' keyspace --salt-file known
	expect 1 'known: it is not 64 hex digits' keyspace --new --salt-file known
done
expect 1 'made: it is not a regular file' keyspace --salt-file made
mkfifo -m 600 pipe
expect 1 'pipe: it is not a regular file' keyspace --salt-file pipe
ln -s made/salt link
expect 0 '^fingerprint' keyspace --salt-file link
if [ "$(id -u)" != 0 ]; then
	chmod 200 made/salt
	expect 1 'made/salt: Permission denied' keyspace --salt-file made/salt
fi

echo "# prefetch"
export KVBLK_FAKE_STORE=$dir/prefetch-store
head -c 1000 /dev/zero > block
for key in a b d e; do
	expect_fake 0 '' put fake $key block
done
expect_fake 1 'pool fake keeps no blocks in the host.s memory; see: kvblk pool get fake dram_bytes' prefetch fake a
export KVBLK_FAKE_DRAM=10000
expect_fake 3 '^3 loaded, 0 resident, 1 missing, 0 clipped, 0 expired, the first 2 in memory; 2.93 KiB brought there$' prefetch fake a b c d
sed 's/ *[0-9]* [KB].* / /' out | head -5 | tail -4 | diff - <(printf 'loaded %s\nloaded %s\nmissing %s\nloaded %s\n' a b c d) > err
verdict $? "prefetch: a line for each key, in order"
printf 'a\nb\n' > keys
expect_fake 0 "^clipped$(printf '\t')1000$(printf '\t')d$" prefetch fake d --keys keys --max-bytes 999 --priority 3 -H -p
expect_fake 3 '' prefetch fake --stop 61 63 --hex 64 -o json
has keys.0.result loaded
has keys.0.length 1000
has keys.1.key 63
has keys.1.result missing
has keys.2.result clipped
has leading 1
has loaded_bytes 1000
has clipped 1
KVBLK_FAKE_DELAY_MS=500 expect_fake 0 ' 2 expired, the first 0 in memory' prefetch fake a b --deadline 10ms
unset KVBLK_FAKE_DRAM

echo "# a tenant's node"
expect_fake 0 '' put fake/default by-tenant block
expect_fake 0 '' get fake/default by-tenant tenants-copy
cmp -s block tenants-copy
verdict $? "POOL/TENANT is the tenant's node"
expect_fake 0 '' exists fake by-tenant
expect_fake 0 '' exists /dev/kvblk/fake/default by-tenant
expect_fake 1 '' get fake/blue by-tenant
expect_fake 0 '' rm fake/default by-tenant
expect_fake 3 '' exists fake by-tenant

echo "# hint"
export KVBLK_FAKE_HINTS=$dir/hints
expect_fake 0 '' hint fake a b --priority 2 --retain 1.5m --demote
expect_fake 3 'c: .*no such block' hint fake a c --release
expect_fake 0 '' hint fake --hex 62 --retain 0
expect_fake 3 '' hint fake a c --priority 0 -o json
has 0.key a
has 0.present True
has 1.present False
printf '%s\n' '61 priority=2 retain=90 demote' '62 priority=2 retain=90 demote' '61 release' '62 retain=0' '61 priority=0' | diff - "$dir/hints" > err
verdict $? "hint: the pool gets each hint"
unset KVBLK_FAKE_STORE KVBLK_FAKE_HINTS

echo "# plan"
expect 0 '^index .*--index-slots 18552800 holds 100 % of them; the default, 4194304, 23 %$' pool plan --block-size 64K --capacity 1T
expect 0 '^block  *640 KiB: 16 tokens of llama-3.1-70b, 2 bytes an element, one of 8 ranks$' plan --model llama-3.1-70b --ranks 8 --tokens 16 \
	--capacity 8T --members 4 --write-rate 1G
grep -qE '^ +puts of 1024.0 MiB/s fill the flash in 2.3 hours and wear it out in 0.5 years$' out
verdict $? "the wear of a rate is told"
for member in '2G 63 of 32 MiB' '8G 63 of 128 MiB' '16G 127 of 128 MiB' '200G 1599 of 128 MiB' '256G 1023 of 256 MiB'; do
	expect 0 "^segments  *${member#* }\$" plan --block-size 1M --capacity "${member%% *}"
done
expect 0 '^segments  *32764 of 256 MiB$' plan --model llama-3.1-8b --dtype fp8 --capacity 8T --members 4
expect 0 'default_blocks' pool plan --block-size 64K --capacity 1T -o json
has default_slots 4194304
has model None
has nr_segments 4095
truncate -s 1G flash
expect 0 '^flash .*of 1 GiB$' pool plan --block-size 1M "$PWD/flash"
expect 1 '/dev/absent: No such file' pool plan --block-size 1M /dev/absent
expect 1 'too small: 8 segments of 8 MiB take 65 MiB' pool plan --block-size 1M --capacity 64M
expect 1 '256 tokens of llama-3.1-70b make blocks of 80 MiB, and a block has at most 64 MiB' pool plan --model llama-3.1-70b --capacity 1T

echo "# simulation"
for i in 0 1 2 3 4 5 6 7 8 9; do
	echo "{\"timestamp\": $((i * 1000)), \"input_length\": 2048, \"output_length\": 1, \"hash_ids\": [0, 1, $((2 + i % 2)), $((i + 10))]}"
done > trace
expect 0 'hit_ratio' replay --simulate --capacity 1 --cache lru --trace trace -o json
# 40 references to 14 distinct blocks that all fit: all but the first uses hit
has blocks 40
has distinct_blocks 14
has hits 26
has hit_ratio 0.65
has writes_per_hit '0\.538[0-9]*'
expect 0 'distinct_blocks' replay --simulate --capacity 1 --cache lru --trace trace --limit 2 -o json
has requests 2
has distinct_blocks 6
has hits 2
# memory for 5 blocks: the second request's puts find no space there and go to flash. Blocks 10 and 12, never
# requested again, are evicted for later ones; so is 2, requested but not recently, for the copy of 3 that comes from
# flash
expect 0 'hit_ratio' replay --simulate --capacity 1 --dram 0.63 --dram-promote 1 --trace trace --limit 4 -o json
has dram_blocks 5
has hits 8
has dram_hits 7
has puts 8
has admitted 5
has declined 0
has dram_writes 3
has dram_drops 0
has dram_copies 1
has writes_per_block '0\.3125'
expect 0 'hit_ratio' replay --simulate --capacity 1 --dram 0.63 --trace trace --limit 4 -o json
has dram_hits 7
has dram_writes 2
has dram_copies 0
has writes 4
expect 0 'hit_ratio' replay --simulate --capacity 1 --dram 0.63 --dram-mode touched --dram-promote 1 --trace trace --limit 4 -o json
has dram_mode touched
has dram_writes 1
has dram_drops 2
has declined 2
has writes 3
# each block is written, and a copy stays in memory
expect 0 'hit_ratio' replay --simulate --capacity 1 --dram 1 --dram-mode through --trace trace --limit 4 -o json
has hits 8
has dram_hits 8
has dram_writes 0
has writes 8
expect 1 'holds none of the trace.s 8 blocks' replay --simulate --capacity 1 --dram 0.1 --trace trace --limit 4
expect 0 'evictions *2 written, 0 dropped' replay --simulate --capacity 1 --dram 0.63 --trace trace --limit 4
expect 0 'hit ratio' replay --simulate --capacity 0.2 --synthetic --requests 2000
expect 0 'hit_ratio' replay --simulate --capacity 0.2 --synthetic --requests 2000 --seed 7 -o json
cp out first
expect 0 'hit_ratio' replay --simulate --capacity 0.2 --seed 7 --requests 2000 --synthetic -o json
cmp -s out first
verdict $? "same seed, same result"
expect 0 'hit_ratio' replay --simulate --capacity 0.2 --seed 7 --requests 2000 --batch 0 --synthetic -o json
cmp -s out first
verdict $? "all blocks of a request are put together"
expect 0 'hit_ratio' replay --simulate --capacity 0.2 --seed 7 --requests 2000 --batch 4 --synthetic -o json
! cmp -s out first
verdict $? "smaller batches make a difference"
for kind in chat prompts long once scan documents; do
	expect 0 'hit ratio' replay --simulate --capacity 0.2 --requests 500 --synthetic=$kind
done
for cache in kvblk fifo lru optimum; do
	expect 0 'hit_ratio' replay --simulate --synthetic --requests 500 --cache $cache -o json
	has cache $cache
done
expect 0 'day 2 .* of the budget' replay --simulate --synthetic=week --requests 60000 --budget 1
expect 0 'hit_ratio' replay --simulate --capacity 0.1 --synthetic=once --requests 3000 --admit-permille 0 -o json
has declined '[1-9][0-9]*'
expect 0 'hit_ratio' replay --simulate --capacity 0.1 --synthetic=once --requests 3000 --admit-permille 1000 -o json
has declined 0
expect 0 'hit_ratio' replay --simulate --capacity 0.2 --synthetic=long --requests 3000 --reinsert-permille 4000 -o json
has copies '[1-9][0-9]*'
expect 0 'hit_ratio' replay --simulate --capacity 0.2 --synthetic=long --requests 3000 --reinsert-permille 0 -o json
has copies 0
expect 0 'hit_ratio' replay --simulate --capacity 0.2 --seed 7 --requests 2000 --synthetic --salt 0 -o json
cmp -s out first
verdict $? "salt 0 is none"
expect 0 'hit_ratio' replay --simulate --requests 6000 --synthetic=documents --salt 1 -o json
cp out first
expect 0 'hit_ratio' replay --simulate --requests 6000 --synthetic=documents --salt 2 -o json
! cmp -s out first
verdict $? "another salt, another result"
expect 0 'hit ratio' replay --simulate --capacity 0.2 --synthetic --requests 2000 --segments 1024
# 2048 tokens take 32 * 2048 * (2 * 218103808 + 4 * 4096 * 1024) / (0.5 * 989.4e12) = 60.010 ms, 4096 take 124.465 ms,
# the last one alone 30 us. The second request waits 60.010 ms for the first, and finds 4 blocks of 64 MiB. From flash
# they take 10 + 62.5 ms. With memory, 3 of them are loaded while it waits and take 1 + 23.4 ms, the other one takes
# 10 + 15.6 ms. With 2 in the runtime's own memory: 1 + 15.6 and 10 + 31.25 ms.
{ for i in 1 2; do echo '{"timestamp": 0, "hash_ids": [1, 2, 3, 4]}'; done; echo '{"timestamp": 100000, "hash_ids": [5, 6, 7, 8, 9, 10, 11, 12]}'; } > pair
expect 0 'mean_s' replay --simulate --capacity 1 --dram 0.17 --trace pair --ttft llama-3.1-8b --flash-load 4096,10ms --dram-load 8192,1ms -o json
has ttft.none.mean_s '0\.10149[78][0-9]*' # (60.010 + 120.020 + 124.465) / 3
has ttft.none.p50_s '0\.12001[0-9]*'
has ttft.none.p99_s '0\.12446[0-9]*'
has ttft.none.load '0\.002444[0-9]*' # 244.484 ms in 100 s
has ttft.flash.p99_s '0\.13254[0-9]*' # 60.010 + 72.5 + 0.030
has ttft.dram.p99_s '0\.13254[0-9]*' # 2 blocks hold none of the 4
has ttft.prestage.p50_s '0\.11010[0-9]*' # 60.010 + 24.438 + 25.625 + 0.030
has ttft.user_lru.p50_s '0\.11791[0-9]*' # 60.010 + 16.625 + 41.25 + 0.030
has ttft.flash.writes_per_block 0.75
has ttft.none.light.p50_s '0\.06000[0-9]*' # two servers: no queue
has ttft.none.light.load '0\.001222[0-9]*'
has clock_step_s '0\.0' # two times show no step
expect 0 'mean_s' replay --simulate --capacity 1 --trace pair --ttft llama-3.1-8b --flash-load 4096 --servers 2 --tokens 1024 --mfu 0.25 -o json
has ttft.none.p50_s '0\.2489[0-9]*' # no queue: 4096 tokens at half the speed
# The second and the third request load 4 and 2 blocks at once, each at half the rate: the third has 128 MiB after
# 62.5 ms, the second has 128 MiB left, which take 31.25 ms alone. From memory, twice as fast.
{ echo '{"timestamp": 0, "hash_ids": [1, 2, 3, 4]}'; for ids in '1, 2, 3, 4' '1, 2'; do echo "{\"timestamp\": 1000, \"hash_ids\": [$ids]}"; done; } > shared
expect 0 'mean_s' replay --simulate --capacity 4 --dram 1 --trace shared --ttft llama-3.1-8b --flash-load 4096 --dram-load 8192 --servers 2 -o json
has ttft.flash.p50_s '0\.0625[23][0-9]*'
has ttft.flash.p99_s '0\.0937[78][0-9]*'
has ttft.user_lru.mean_s '0\.04606[0-9]*' # (60.010 + 31.28 + 46.905) / 3
# With one server the third waits 62.53 ms. Nothing is prestaged meanwhile, because the second one loads from flash.
expect 0 'mean_s' replay --simulate --capacity 4 --dram 1 --trace shared --ttft llama-3.1-8b --flash-load 4096 --dram-load 8192 -o json
has ttft.prestage.p99_s '0\.0938[0-9]*' # 62.53 + 31.25 + 0.030
# A clock that steps by a second: the second request of a step arrives half a second later, not in a burst. The time at
# 5500 is no multiple, so requests came in bursts.
steps() { for t; do for i in 1 2; do echo "{\"timestamp\": $t, \"hash_ids\": [$((t + i)), $((t + i + 10)), $((t + i + 20)), $((t + i + 30))]}"; done; done; }
steps 0 1000 2000 2999 > stepped
expect 0 'mean_s' replay --simulate --capacity 1 --trace stepped --ttft llama-3.1-8b --flash-load 4096 -o json
has clock_step_s '1\.0'
has ttft.none.p99_s '0\.06000[0-9]*'
expect 0 'clock steps by 1 s, arrivals are spread' replay --simulate --capacity 1 --trace stepped --ttft llama-3.1-8b --flash-load 4096
steps 0 1000 2000 5500 > bursts
expect 0 'mean_s' replay --simulate --capacity 1 --trace bursts --ttft llama-3.1-8b --flash-load 4096 -o json
has clock_step_s '0\.0'
has ttft.none.p99_s '0\.12001[0-9]*'
expect 0 'flash, a runtime.s LRU' replay --simulate --capacity 1 --dram 0.5 --trace pair --ttft llama-3.1-70b --gpu a100 --gpus 8 --flash-load 4096 --dram-load 8192
expect 1 'too small' replay --simulate --capacity 0.1 --trace trace
{ cat trace; echo '{"timestamp": 1'; } > broken
expect 1 'line 11 is no request: no JSON object: ' replay --simulate --trace broken
# refused TEXT LINE: check that LINE is rejected as the 11th line of a trace
refused() {
	{ cat trace; echo "$2"; } > broken
	expect 1 "broken: line 11 is no request: $1" replay --simulate --trace broken
}
refused 'the id 7 comes twice' '{"timestamp": 1, "hash_ids": [5, 7, 6, 7]}'
refused 'a number is too large: ids are up to 9223372036854775807' '{"timestamp": 1, "hash_ids": [18446744073709551615]}'
refused 'the id at place 2 is no whole number' '{"timestamp": 1, "hash_ids": [1, 2.5]}'
refused 'the id at place 1 is no whole number' '{"timestamp": 1, "hash_ids": ["a1"]}'
refused 'the timestamp 3.7 is no whole number of milliseconds; seconds' '{"timestamp": 3.7, "hash_ids": [1]}'
refused 'the timestamp 1.7e.18 is not 0 to 1e.15, in milliseconds' '{"timestamp": 1700000000000000000, "hash_ids": [1]}'
refused 'the timestamp -1 is not 0' '{"timestamp": -1, "hash_ids": [1]}'
refused 'there is no timestamp that is a number' '{"timestamp": "1", "hash_ids": [1]}'
refused 'there is no array hash_ids' '{"timestamp": 1}'
{ cat trace; echo '{"timestamp": 11000.0, "hash_ids": [9223372036854775807, -1]}'; } > broken
expect 0 'hit ratio' replay --simulate --capacity 1 --trace broken
: > empty
expect 1 'no blocks' replay --simulate --trace empty

echo "# a simulated pod"
# 10 requests, one a second: blocks 0, 1, then 2 or 3 in turn, then a new one; two nodes that never reclaim
pod=(replay --simulate --capacity 2 --trace trace -o json --pod)
expect 0 'hit_ratio' "${pod[@]}" 2 --sharing none
has hits 24 # all but the new block, after each node's first request
has foreign_hits 0
has duplicates 2
expect 0 'hit_ratio' "${pod[@]}" 2 --fresh 2 # node 1 puts its own 0 and 1 before it sees node 0's
has hits 24
has duplicates 2
expect 0 'hit_ratio' "${pod[@]}" 2 --fresh 1
has hits 26
has foreign_hits 10 # 0 and 1, in each second request
has admitted 14
has duplicates 0
has busiest_reads '1\.69[0-9]*' # 22 of 26 from node 0, in means of 13
has index_entries 14
# 64 bytes a block, and 4 KiB for each node and second: node 0 writes in 5 seconds, node 1 in 5
has refresh_bytes_s "$(python3 -c 'print(f"{(14 * 64 + 10 * 4096) / 2 / 9:.6f}[0-9]*")')"
# at 0 s about 4 blocks; at 1 s by node 1 about 4, of which 0 and 1 are found, and again about 2; then about each new block
expect 0 'hit_ratio' "${pod[@]}" 2 --fresh 1 --sharing directory
has hits 26
has duplicates 0
has questions 11
has keys 18
has stale_answers 0
expect 0 'hit_ratio' "${pod[@]}" 2 --fresh 1 --dram 1 --dram-mode through
has hits 26
has foreign_hits 10
has dram_hits 16 # all hits in the own log
expect 0 'hit_ratio' "${pod[@]}" 2 --fresh 1 --dram 1 --dram-mode evict # what is in memory only is not shared
has hits 24
has foreign_hits 0
has dram_blocks 14
has dram_writes 4
expect 0 'hit_ratio' "${pod[@]}" 2 --fresh 1 --kill 1@5 # node 0 goes on and reads 3 from the dead node
has hits 26
has foreign_hits 7 # 0 and 1 at 1 s and 3 s; 3 three times
has phases.1.name kill
has phases.1.from_s 5.0
has phases.1.hits 15
expect 0 'hit_ratio' "${pod[@]}" 2 --sharing none --kill 1@5 --adopt 2
has phases.1.hits 5 # at 5 s 0 and 1, at 6 s 0, 1 and 2
has phases.2.name adopt
has phases.2.hits 9 # node 1 has its blocks again
# both tables, and 9 blocks: 8768 bytes
expect 0 'hit_ratio' "${pod[@]}" 2 --fresh 1 --restart-rack 1@5 --bandwidth 4384
has restart_bytes 8768
has restart_s 2.0
has phases.1.name restart
has phases.1.hits 3 # node 1 sees 0 and 1 of node 0 no more, and puts them
has phases.1.duplicates 2
has phases.2.name refilled
expect 0 'hit_ratio' replay --simulate --capacity 0.1 --synthetic=documents --requests 3000 -o json
cp out plain
expect 0 'hit_ratio' replay --simulate --pod 1 --sharing none --capacity 0.1 --synthetic=documents --requests 3000 -o json
python3 - << 'END' 2>> err
import json
plain, pod = json.load(open("plain")), json.load(open("out"))
for key in plain.keys() & pod.keys():
    assert plain[key] == pod[key], key
assert {"hits", "admitted", "declined", "copies", "hit_ratio"} <= plain.keys() & pod.keys()
END
verdict $? "a pod of one node is the plain simulation"
# hits OPTION...: print the hits of a pod of 8 nodes, each with 500 requests
hits() {
	"$kvblk" replay --simulate --pod 8 --capacity 0.2 --synthetic --requests 500 --segments 64 "$@" -o json > out 2> err &&
		python3 -c 'import json; print(json.load(open("out"))["hits"])'
}
alone=$(hits --sharing none)
more=$((alone * 3 / 2))
[ "$(hits --sharing none --route session)" -gt $more ] && [ "$(hits --sharing none --route prefix)" -gt $more ]
verdict $? "routes by session and by prefix find blocks"
[ "$(hits)" -gt $more ] && [ "$(hits --sharing directory)" -gt $more ]
verdict $? "sharing makes the route unimportant"
hits --fresh 0 > shared
has requests 4000
has duplicates 0
has foreign_hits '[1-9][0-9]*'
has touches_told '[1-9][0-9]*'
expect 0 '^hit ratio' replay --simulate --pod 4 --limit 2000 # chat, for four nodes
expect 0 '^questions .*keys each' replay --simulate --pod 4 --limit 2000 --sharing directory
expect 0 '^kill  *5.0 s' replay --simulate --pod 4 --limit 2000 --kill 0-2@5
expect 0 '^restart  *a node reads .* in 2 s' replay --simulate --pod 4 --limit 2000 --restart-rack 0-3@5
expect 1 'too small' replay --simulate --pod 64 --capacity 1 --trace trace

echo "# blocks, on the fake pool"
export KVBLK_FAKE_STORE=$dir/store
head -c 100000 /dev/urandom > block
expect_fake 3 'no such block' get fake key copy
[ ! -e copy ]
verdict $? "a miss makes no file"
expect_fake 3 'absent' exists fake key
expect_fake 3 'no such block' rm fake key
expect_fake 0 '' put fake key block
expect_fake 0 'stored already' put fake key block
expect_fake 1 'another length' put fake key trace
expect_fake 1 'at least one byte' put fake other empty
expect_fake 1 'absent-file' put fake other absent-file
expect_fake 0 'key +100000' exists fake key
KVBLK_FAKE_LOOKUPS=$dir/lookups expect_fake 3 'absent' exists fake key other
[ "$(sort "$dir/lookups" | uniq -c | xargs)" = '2 keys=1 lease_ms=0 quiet' ]
verdict $? "exists asks quietly"
expect_fake 0 'length' exists fake key -o json
has 0.present True
has 0.length 100000
KVBLK_FAKE_RATE=1000000 expect_fake 3 'key  100000  100000 us' exists fake key other --times
KVBLK_FAKE_RATE=1000000 expect_fake 0 'time_us' exists fake key key --times -o json
has 0.time_us 100000
has 1.time_us 200000
expect_fake 0 'key  100000  0 us' exists fake key --times
expect_fake 0 '' get fake key copy
cmp -s block copy
verdict $? "what was put is got"
expect_fake 0 '' get fake --hex 6b6579 copy2
cmp -s block copy2
verdict $? "hex digits name the same key"
expect_fake 0 '' get fake key --offset 1000 --length 1K part
cmp -s part <(tail -c +1001 block | head -c 1024)
verdict $? "a part is got"
expect_fake 1 'not within the block' get fake key --offset 1M part
expect_fake 0 'fetched' get fake key copy -o json
has length 100000
expect_fake 0 '' put fake tagged block --caller-tag 0xfeed --layout-tag 7
expect_fake 0 '' get fake tagged copy -o json
has caller_tag 0x000000000000feed
has layout_tag 0x0000000000000007
expect_fake 0 'removed' rm fake key tagged -o json
expect_fake 3 'absent' exists fake key
KVBLK_FAKE_LOG=$dir/log expect_fake 0 '' put fake told block --parent key --priority 3 --ttl 60
expect_fake 0 '' rm fake told
KVBLK_FAKE_LOG=$dir/log expect_fake 0 '' put fake told block --ttl 1h
expect_fake 0 '' rm fake told
KVBLK_FAKE_LOG=$dir/log expect_fake 0 '' put fake told block --ttl=1500ms
[ "$(cat log)" = 'told parent=key priority=3 ttl=60
told parent= priority=0 ttl=3600
told parent= priority=0 ttl=2' ]
verdict $? "the kernel is told of parent, priority and time to live: $(cat log)"
expect_fake 0 '"result": "exists"' put fake told block -o json
rm -f store

echo "# replay, on the fake pool"
expect_fake 0 'every byte right' replay --pool fake --synthetic --requests 300 --block-size 4K --verify --threads 4
# second run: all blocks hit
expect_fake 0 'hit_ratio' replay --pool fake --synthetic --requests 300 --block-size 4K --verify --threads 4 -o json
has hit_ratio 1.0
has requests 300
has puts 0
has failure None
# blocks of another size have other keys
expect_fake 0 'hit_ratio' replay --pool fake --trace trace --block-size 5001 --buffer 12K --verify -o json
has hits 26
has puts 14
has gets 26
has get_misses 0
has bytes_verified $((26 * 5001))
has mib_s '[0-9.]+(e-[0-9]+)?'
expect_fake 0 'hit_ratio' replay --pool fake --trace trace --block-size 4K --speed 10 -q -o json
has seconds '(0.9|1\.)[0-9.]*'
expect_fake 0 'interrupted' replay --pool fake --trace trace --speed 1 --seconds 0.2 -o json
has requests 1
has interrupted False
expect_fake 0 'hit ratio' replay --pool fake --trace trace --block-size 9K --limit 2 --quiet
grep -q '^requests *2 of 2' out && grep -qE '^throughput +[0-9.]+ MiB/s: put' out && [ ! -s err ]
verdict $? "--limit ends it after two requests, --quiet prints nothing else"
for i in 5000 4000 5100; do
	echo "{\"timestamp\": $i, \"hash_ids\": [$i]}"
done > unordered
expect_fake 0 'requests *3 of 3' replay --pool fake --trace unordered --speed 1 --seconds 20
expect_fake 1 'up to 8 MiB' replay --pool fake --synthetic --block-size 16M
KVBLK_FAKE_CORRUPT=5 expect_fake 1 'WRONG BYTE: block replay-v/00001389/[0-9a-f]*, offset 2500: is' replay --pool fake --trace trace \
	--block-size 5001 --verify
KVBLK_FAKE_LOSE=4 expect_fake 0 'get_misses' replay --pool fake --trace trace --block-size 6K --verify -o json
has get_misses '[1-9][0-9]*'
has hits '1[0-9]|2[0-5]'
KVBLK_FAKE_DECLINE=2 expect_fake 0 'declined' replay --pool fake --trace trace --block-size 7K --buffer 8K -o json
has declined '[1-9][0-9]*'

echo "# report"
expect_fake 0 'latency_ns' replay --pool fake --trace trace --block-size 4K -q -o json
cp out replay.json
expect 0 '<h2>Replay on pool fake</h2>' report replay.json
expect 0 '<svg ' report replay.json replay.json
[ "$(grep -c '<svg ' out)" = 2 ]
verdict $? "several files make one page"
cat > run.jsonl << 'END'
{"time":1790000000.5,"pool":"kv0","seconds":5.0,"put_mib_s":0.0,"get_mib_s":250.0,"hit_ratio":null,"put_p50_ns":0,"put_p99_ns":0,"get_p50_ns":1000,"get_p99_ns":100000,"capacity":1000,"free":1000,"index_used":0,"index_slots":100}
{"time":1790000005.5,"pool":"kv0","seconds":5.0,"put_mib_s":50.0,"get_mib_s":500.0,"hit_ratio":0.5,"put_p50_ns":2048,"put_p99_ns":4096,"get_p50_ns":10000,"get_p99_ns":1000000,"capacity":1000,"free":500,"index_used":20,"index_slots":100}
{"time":1790000010.5,"pool":"kv0","seconds":5.0,"put_mib_s":100.0,"get_mib_s":0.0,"hit_ratio":1.0,"put_p50_ns":2048,"put_p99_ns":4096,"get_p50_ns":0,"get_p99_ns":0,"capacity":1000,"free":250,"index_used":40,"index_slots":100}
END
TZ=UTC expect 0 '<h2>Pool kv0</h2>' report --title 'a <b> & "c"' run.jsonl
python3 - 2> err << 'END'
import re
import xml.etree.ElementTree as tree
page = open("out").read()
# the page loads no resources and runs no script
assert not re.search(r"http|src=|href=|url\(|@import|<script", page)
assert "<h1>a &lt;b&gt; &amp; &quot;c&quot;</h1>" in page
assert "2026-09-21 14:13:20 to 2026-09-21 14:13:30, 3 intervals" in page
assert re.search("put, mean</th><td>50.0 MiB/s<.*hit ratio, mean of intervals</th><td>75.0 %<.*get p99, worst interval</th><td>1.00 ms<", page, re.S)
charts = [tree.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", page, re.S)]
def lines(chart):
    return [re.sub("h0.01", "", path.get("d")) for path in chart.iter("path")]
# 0 to 500 MiB/s is y = 212 to 34; x is 76 to 884
assert lines(charts[0]) == ["M76.0 212.0L480.0 194.2L884.0 176.4", "M76.0 123.0L480.0 34.0L884.0 212.0"], lines(charts[0])
# no point for the first interval, which had no requests
assert lines(charts[1]) == ["M480.0 123.0L884.0 34.0"], lines(charts[1])
# 1 us to 1 ms
assert lines(charts[2])[1] == "M76.0 93.3L480.0 34.0", lines(charts[2])
assert lines(charts[4]) == ["M76.0 212.0L480.0 123.0L884.0 78.5", "M76.0 212.0L480.0 176.4L884.0 140.8"], lines(charts[4])
texts = [[t.text for t in chart.iter("text")] for chart in charts]
assert {"0", "100", "500", "14:13:22", "put", "get"} <= set(texts[0]) and {"0 %", "100 %"} <= set(texts[1]) and {"1 us", "1 ms"} <= set(texts[2])
END
verdict $? "the plots have the numbers"
expect 1 '^kvblk: absent: No such file' report absent
expect 1 'stdin|nothing to report' report
: > empty
expect 1 'nothing to report' report empty
expect 1 '^kvblk: trace:1: neither kvblk iostat nor kvblk replay' report trace
{ cat run.jsonl; echo '{"pool": "kv0", '; } > bad
expect 1 '^kvblk: bad:[45]: no JSON: ' report bad
{ cat run.jsonl; head -n 1 run.jsonl; } > bad
expect 1 '^kvblk: bad:4: no line of .* "time" is missing or wrong' report bad
sed 's/"get_p99_ns":1000000/"get_p99_ns":-1/' run.jsonl > bad
expect 1 '^kvblk: bad:2: no line of .* "get_p99_ns" is missing or wrong' report bad
sed '3s/"free":250/"free":"x"/' run.jsonl > bad
expect 1 '^kvblk: bad:3: .* "free" is missing or wrong' report bad
[ ! -s out ]
verdict $? "of what is wrong no page is made"

echo "# bench, on the fake pool"
rm -f store
expect_fake 0 'mib_s' bench fake --engine ioctl --op put --size 5000 --depth 7 --threads 3 --count 100 -o json
has ops 100
has integrity False
has direct_ops 100
has bounced_ops 0
has mem host
has mem_device None
# a second run puts other blocks
expect_fake 0 '^throughput [0-9.]* MiB/s' bench fake --engine ioctl --op put --size 5000 --count 100
KVBLK_FAKE_LOG=$dir/log2 expect_fake 0 'MiB/s' bench fake --engine ioctl --op get --size 8K --depth 4 --threads 2 --blocks 50 --count 300
[ "$(wc -l < log2)" = 50 ] && grep -q '^bench/00002000/00000000/000000000031 ' log2
verdict $? "a get's blocks are put first"
rm -f log2
KVBLK_FAKE_LOG=$dir/log2 expect_fake 0 'MiB/s' bench fake --engine ioctl --op get --size 8K --blocks 50 --seconds 0.05
[ ! -e log2 ]
verdict $? "blocks that are there are not put again"
expect_fake 0 'ops_s' bench fake --engine ioctl --op exists --size 8K --depth 20 --blocks 50 --count 1000 -o json
has ops 1000
has depth 20
expect_fake 0 'keys/s' bench fake --engine ioctl --op exists --size 1K --blocks 10 --depth 100 --seconds 0.05
KVBLK_FAKE_LOSE=20 expect_fake 1 'a block was dropped' bench fake --engine ioctl --op get --size 8K --blocks 50 --count 300
KVBLK_FAKE_DECLINE=3 expect_fake 1 'put: declined' bench fake --engine ioctl --op put --size 4K --count 300
expect_fake 1 'up to 8 MiB' bench fake --engine ioctl --op put --size 9M
expect_fake 1 'no room' bench fake --engine ioctl --op get --size 8M --blocks 1000
compgen -G '/sys/bus/pci/devices/*/p2pmem' > /dev/null ||
	expect_fake 1 'no PCI device has P2P memory' bench fake --engine ioctl --op put --mem gpu
expect_fake 1 'no memory of a PCI device' bench fake --engine ioctl --op put --mem gpu:/dev/zero
expect_fake 1 'No such file' bench fake --engine ioctl --op put --mem gpu:/dev/absent
expect_fake 0 "^memory  *the host's" bench fake --engine ioctl --op put --size 4K --count 10 --mem host
rm -f store

cases_end
