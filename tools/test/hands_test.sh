#!/bin/bash
# SPDX-License-Identifier: MIT
# usage: hands_test.sh COMMAND
# Output and questions for operators, on the pools that fake_admin.c reads from the file "state"; COMMAND is linked
# with fake_admin.c. A case is one line with the expected result.
set -u
here=$(readlink -f "$0")
kvblk=$(readlink -f "${1:?usage: hands_test.sh COMMAND}")
. "$(dirname "$here")/command.bash"
# files that stand for devices: like devices, tmpfs allows RWF_NOWAIT reads, which other file systems may not
flash=$(mktemp -d -p /dev/shm)
trap 'rm -rf "$dir" "$flash"' EXIT
export KVBLK_FAKE_ADMIN=$dir/state KVBLK_FAKE_LOG=$dir/log

# logged LINE...: check the changes made since the last call
logged() {
	touch log
	diff <(printf '%s\n' "$@" | sed '/^$/d') log > err
	verdict $? "changed: $*"
	rm -f log
}

# state EXPRESSION...: change the state, the dict d
state() {
	python3 -c 'import json, sys; d = json.load(open("state")); [exec(e) for e in sys.argv[1:]]; json.dump(d, open("state", "w"))' "$@"
}

# terminal ANSWER ARGUMENT...: run the command on a terminal and type ANSWER; returns its exit code, with the screen
# in out
terminal() {
	python3 - "$kvblk" "$@" <<- 'END' > out 2> err
		import os, pty, sys
		pid, fd = pty.fork()
		if not pid:
		    os.execv(sys.argv[1], ["kvblk"] + sys.argv[3:])
		os.write(fd, sys.argv[2].encode() + b"\n")
		shown = b""
		while True:
		    try:
		        data = os.read(fd, 4096)
		    except OSError:
		        break
		    if not data:
		        break
		    shown += data
		sys.stdout.buffer.write(shown.replace(b"\r", b""))
		sys.stdout.flush()
		os._exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
	END
}

cat > state << 'END'
{"pools": [
  {"name": "kv0", "nr_members": 2, "capacity": 1073741824, "free": 536870912, "nr_segments": 128, "free_segments": 64,
   "index_slots": 65536, "index_used": 1000, "index_bytes": 2097152, "value_max": 8372224, "birth": 1790000000, "epoch": 3}],
 "members": [
  {"pool": "kv0", "name": "nvme0n1", "path": "/dev/nvme0n1", "state": "up", "size": 537919488, "segment_size": 8388608,
   "nr_segments": 64, "free_segments": 32, "open_segments": 2, "sealed_segments": 28, "uuid0": 1, "device": "nvme3n1",
   "place": "nqn.a nsid 1"},
  {"pool": "kv0", "name": "nvme0n2", "path": "/dev/nvme0n2", "state": "up", "size": 537919488, "segment_size": 8388608,
   "nr_segments": 64, "free_segments": 62, "ready_segments": 2, "uuid0": 2, "device": "nvme7n1"},
  {"pool": "kv0", "name": "nvme7n1", "state": "missing", "uuid0": 7, "place": "nqn.b nsid 2"}],
 "stats": [
  {"pool": "kv0", "counters": {"puts": 5}, "latency": {}}]}
END

echo "# lists"
expect 0 '^NAME  *MEMBERS  *CAPACITY' list
expect 0 '^kv0  *2  *1 GiB  *512 MiB  *1000  *65536$' list
expect 0 $'^kv0\t2\t1073741824\t536870912\t1000\t65536$' pool list -Hp
expect 0 $'^kv0\t2\t1 GiB\t' -H pool ls
[ "$(wc -l < out)" = 1 ]
verdict $? "-H leaves the headings out"
expect 0 '^kv0  *2  *1073741824 ' pool list -p
expect 0 $'^kv0\tnvme0n1\tup\t537919488\t8388608\t64\t32\t28\t/dev/nvme0n1\tnvme3n1\t01000000-0000-0000-0000-000000000000\tnqn.a nsid 1$' member list -Hp kv0
expect 0 $'^kv0\tnvme7n1\tmissing\t0\t0\t0\t\t\t\t\t07000000-0000-0000-0000-000000000000\tnqn.b nsid 2$' member list -Hp kv0
expect 0 '^kv0 .* 0  *-  *-  *-  *-  *07000000-0000-0000-0000-000000000000 nqn.b nsid 2$' member list kv0
expect 0 '"capacity": 1073741824' pool list -o json -H

echo "# a user who may not monitor"
cp state state.all
state 'd["pools"][0].pop("free")' 'd["members"][0].pop("free_segments")'
expect 0 '^kv0  *2  *1 GiB  *-  *-  *65536$' pool list
expect 0 $'^kv0\t2\t1073741824\t\t\t65536$' pool list -Hp
expect 0 '"free": null' pool list -o json
expect 0 '^use  *for root and the group kvblk-monitor$' pool show kv0
expect 0 '^kv0  *nvme0n1  *up .* 64  *-  *-  */dev/nvme0n1' member list kv0
expect 0 '"inflight": null' member list -o json kv0
mv state.all state

echo "# questions before a loss"
truncate -s 32M "$flash/blank"
{
	echo data
	head -c 3000000 /dev/zero
} > "$flash/data"
expect 0 '' pool create kv0 --format "$flash/blank"
expect 1 '/data, 2.86 MiB: data that is not kvblk' pool create kv0 --format "$flash/blank" "$flash/data"
grep -q 'Nothing was changed. Pass --yes to proceed' err && ! grep -q /blank err
verdict $? "only what would be lost is told"
expect 1 'kv0: this would be lost' member add kv0 --format "$flash/data"
expect 0 '' pool create kv0 --format --yes "$flash/data"
expect 0 '' member add kv0 -y --format "$flash/data"
expect 0 '' member add kv0 "$flash/data"
expect 1 'member nvme0n1 of pool kv0 .uuid 01000000-0000-0000-0000-000000000000; device now: nvme3n1; place: nqn.a nsid 1.: this would be lost' member remove kv0 nvme0n1
grep -q '^  up to 240 MiB of blocks, in 30 of 64 segments$' err
verdict $? "what would be lost is told in numbers"
expect 1 'up to 240 MiB' member rm kv0 /dev/nvme0n1
expect 1 'would have if its device came back' member remove kv0 07000000-0000-0000-0000-000000000000
expect 1 'up to 240 MiB' member remove kv0 /dev/nvme3n1
# the name of the missing member is now the kernel name of another device
expect 1 'nvme7n1: this is member nvme0n2 .02000000-.*, and member nvme7n1 .07000000-.*: give a uuid$' member remove -y kv0 nvme7n1
expect 0 '' member remove kv0 nvme0n2
expect 0 '' member remove -y kv0 /dev/nvme0n1
expect 0 '' destroy kv0
expect 1 'not a member of pool kv0' member remove kv0 /dev/frob
# the beginning of a uuid, and a uuid with a digit too many
expect 1 'not a member of pool kv0' member remove kv0 0
expect 1 'not a member of pool kv0' member remove kv0 01000000-0000-0000-0000-0000000000000
logged 'create kv0 slots=0' 'create kv0 slots=0' "add kv0 $flash/data 1" "add kv0 $flash/data 0" 'remove kv0 uuid0=2' 'remove kv0 uuid0=1' \
	'destroy kv0'
for answer in n '' yep; do
	! terminal "$answer" member remove kv0 nvme0n1 && grep -q 'nothing was changed' out
	verdict $? "\"$answer\" is no"
done
logged ''
for answer in y Y yes; do
	terminal "$answer" member remove kv0 nvme0n1 && grep -q 'Continue?' out
	verdict $? "\"$answer\" is yes"
done
logged 'remove kv0 uuid0=1' 'remove kv0 uuid0=1' 'remove kv0 uuid0=1'
expect 0 '' member add --name left kv0 /dev/null
expect 2 'member name "a/b": must be' member add --name a/b kv0 /dev/null
expect 0 '' pool clear kv0
expect 0 '"cleared": true' clear kv0 -o json
logged 'add kv0 /dev/null 0 name=left' 'clear kv0' 'clear kv0'

echo "# an index that is too small"
truncate -s 4G "$flash/big"
rm -f log
# the pool of the state has 1 GiB and 65536 slots
expect 0 '' pool create kv0 "$flash/big"
[ ! -s err ]
verdict $? "nothing is said about an index that does"
state 'd["pools"][0]["capacity"] = 1 << 40'
expect 0 'kv0: blocks below 18.82 MiB fill the index, 65536 slots, before the flash; .* see kvblk pool plan$' pool create kv0 "$flash/big"
expect 0 '' pool create kv0 --index-slots 5 "$flash/big"
expect 0 '' pool create kv0 --block-size 8K "$flash/big"
[ ! -s err ]
verdict $? "nothing is said where the index was chosen"
state 'd["pools"][0]["capacity"] = 1 << 30'
logged 'create kv0 slots=0' 'create kv0 slots=0' 'create kv0 slots=5' "create kv0 slots=$("$kvblk" plan --block-size 8K "$flash/big" -o json |
	python3 -c 'import json, sys; print(json.load(sys.stdin)["index_slots"])')"

echo "# pods"
expect 0 '' pool create kv0 --pod rack7 /dev/null
expect 0 '' pool create kv0 --pod rack7 --seed-of /dev/zero /dev/null
expect 0 '' pool create kv0 --pod rack7 --join /dev/zero /dev/null
logged 'create kv0 slots=0 pod=rack7' 'create kv0 slots=0 pod=rack7 seed-of=/dev/zero' 'create kv0 slots=0 pod=rack7 seed-of=/dev/zero'
expect 0 '"index_slots"' pool show kv0 -o json
! grep -q pod out
verdict $? "a pool in no pod has no field of one"
state 'd["pools"][0]["pod"] = "rack7"'
expect 0 '"pod": "rack7"' pool show kv0 -o json
expect 0 '^pod        rack7, uuid 00000000-0000-0000-0000-000000000000$' pool show kv0
"$kvblk" status >out 2>&1
grep -q '^kv0: part of pod rack7, uuid 0' out
verdict $? "status shows the pod"

echo "# members of other nodes"
state 'd["members"].pop()' 'd["foreign"] = [{"pool": "kv0", "name": "theirs", "state": "up", "owner": "b"}, {"pool": "kv0", "name": "more", "state": "up", "owner": "c"}, {"pool": "kv7", "name": "others", "state": "dead", "owner": "c"}]'
expect 0 '^kv0: part of pod rack7, .*; follows 2 members of other nodes, 2 of them up$' status
[ "$(wc -l < out)" = 3 ]
verdict $? "nothing else is told where all is well"
for case in 'dead is dead, its device is gone: its blocks are misses; connect its device again' \
	'unrestored was formatted anew, or is of another version: its blocks are misses; kvblkd or "kvblk member follow" follows it again' \
	'restoring is being read: '; do
	state "d['foreign'][0]['state'] = '${case%% *}'"
	expect 0 "^kv0: followed member theirs of node b ${case#* }.*To follow it no longer: kvblk member unfollow kv0 theirs$" status
	grep -q '^kv0  *note ' out && grep -q '; follows 2 members of other nodes, 1 of them up$' out
	verdict $? "a member that is ${case%% *} does not serve, and the pool does"
done
state 'd["foreign"][0]["state"] = "up"'
for case in 'suspect does not answer: ' 'failing answers with errors: '; do
	state "d['foreign'][0]['${case%% *}'] = True"
	expect 0 "^kv0: followed member theirs of node b ${case#* }.*; look at its path" status
	state "d['foreign'][0]['${case%% *}'] = False"
done
state 'd["foreign"][1]["lacks"] = 77'
expect 0 '^kv0: 77 blocks of followed member more of node c found no free entry of the index: they are misses; .*--index-slots' status
expect 0 '"nr_foreign_members": 2' status -o json
python3 -c 'import json; p = json.load(open("out"))["pools"][0]
assert p["foreign_members_up"] == 2 and [f["member"] for f in p["findings"]] == ["more"] and p["health"] == "note"' 2> err
verdict $? "JSON has the same"
state 'd["foreign"][0].update(blocks=5, lacks=0, gets=6, get_bytes=3 << 20, get_misses=7)'
expect 0 '^pool kv0, member theirs of node b, up$' stat kv0 theirs
[ "$(awk 'NR > 1 { print $1, $2 }' out | xargs)" = 'blocks 5 lacks 0 gets 6 get_bytes 3145728 get_misses 7' ]
verdict $? "stat has the counters of a followed member"
expect 0 '"owner": "b"' stat kv0 theirs -o json
expect 1 'pool kv0 has no member others: see' stat kv0 others
expect 0 '"foreign_members"' stat kv0 -o json
python3 -c 'import json; f = json.load(open("out"))[0]["foreign_members"]
assert [(m["member"], m["owner"], m["state"]) for m in f] == [("theirs", "b", "up"), ("more", "c", "up")]
assert f[0]["counters"] == {"blocks": 5, "lacks": 0, "gets": 6, "get_bytes": 3 << 20, "get_misses": 7}' 2> err
verdict $? "a pool's stat has its followed members"
expect 0 ' FOREIGN/s$' stat --watch 100ms --count 1
expect 0 '^kv0 .* 0\.0$' stat --watch 100ms --count 1
state 'd["members"].append({"pool": "kv0", "name": "nvme7n1", "state": "missing", "uuid0": 7, "place": "nqn.b nsid 2"})' 'd.pop("foreign")' 'd["pools"][0].pop("pod")'

echo "# tenants"
cp state state.none
state 'd["tenants"] = [
	{"pool": "kv0", "name": "default", "id": 0, "openers": 2},
	{"pool": "kv0", "name": "blue", "id": 7, "mode": "0600", "uid": 0, "gid": 4294967294, "openers": 1,
	 "encrypted": True, "locked": True, "weight": 300, "quota_bytes": 10737418240, "quota_bytes_soft": 10, "quota_blocks": 11, "quota_blocks_soft": 12, "quota_dram": 13,
	 "shared": "common", "used_bytes": 1610612736, "used_blocks": 14, "used_dram": 15,
	 "counters": {"puts": 16, "put_bytes": 17, "hits": 18, "hit_bytes": 19, "misses": 20, "over_quota": 0, "quota_drops": 22}},
	{"pool": "kv0", "name": "common", "id": 8, "mode": "0660", "uid": 0, "gid": 0, "weight": 100, "shared": ""},
	{"pool": "kv1", "name": "default", "id": 0}]'
expect 0 '^POOL  *TENANT  *ID MODE OWNER  *GROUP  *OPENERS  *USED  *QUOTA WEIGHT$' tenant list
expect 0 '^kv0  *default  *0 -  *-  *-  *2  *-  *-  *-$' tenant list kv0
expect 0 '^kv0  *blue  *7 0600 root  *4294967294  *1  *1.50 GiB  *10 GiB  *300$' tenant ls
[ "$(wc -l < out)" = 5 ] && ! grep -E '.{100}' out
verdict $? "tenants of all pools, in lines that fit"
expect 0 '^kv0  *common  *8 0660 root  *root  *-  *-  *none  *100$' tenant list kv0
expect 0 $'^kv0\tblue\t7\t0600\t0\t4294967294\t1\t1610612736\t10737418240\t300$' tenant list kv0 -Hp
expect 0 $'^kv0\tcommon\t8\t0660\t0\t0\t\t\t0\t100$' tenant list kv0 -Hp
expect 0 $'^kv1\tdefault\t0\t\t\t\t\t\t\t$' -H tenant list kv1
expect 1 'kv9: there is no pool kv9' tenant list kv9
expect 0 '' tenant list kv0 -o json
python3 -c 'import json; d = json.load(open("out"))
limits = {"weight", "quota_bytes", "quota_bytes_soft", "quota_blocks", "quota_blocks_soft", "quota_dram", "shared"}
used = {"used_bytes", "used_blocks", "used_dram", "counters"}
assert d[0] == {"pool": "kv0", "name": "default", "id": 0, "mode": None, "uid": None, "gid": None, "openers": 2, "node": "/dev/kvblk/kv0/default",
	"encrypted": False, "locked": False, **dict.fromkeys(limits | used)}, d[0]
state = next(t for t in json.load(open("state"))["tenants"] if t["name"] == "blue")
assert d[1] == {**state, "node": "/dev/kvblk/kv0/blue"}, d[1]
assert {k for k in d[2] if d[2][k] is None} == used | {"openers"}, d[2]
assert d[2]["quota_bytes"] == 0 and d[2]["shared"] == "" and len(d) == 3, d[2]' 2> err
verdict $? "JSON has the same"
expect 0 '"openers": null' tenant list kv1 -o json
expect 0 '' tenant create kv0 red
[ ! -s out ] && [ ! -s err ]
verdict $? "nothing is said about a success"
expect 0 '"created": true' tenant create kv0 red --mode 0640 --owner root --group 5 -o json
expect 0 '' tenant create kv0 red --mode 7 --owner 4294967294 --group root
logged 'tenant create kv0 red 0660 0:0' 'tenant create kv0 red 0640 0:5' 'tenant create kv0 red 0007 4294967294:0'
for verb in remove clear; do
	expect 1 'tenant blue of pool kv0: this would be lost:' tenant $verb kv0 blue
	grep -qx '  all its blocks' err && grep -q 'Nothing was changed. Pass --yes to proceed' err
	verdict $? "what would be lost is told"
	expect 1 '^  all its blocks, and 1 open file of its node$' tenant $verb kv0 blue --force
	expect 1 'green: pool kv0 has no such tenant; see: kvblk tenant list kv0' tenant $verb kv0 green --yes
	expect 1 'kv9: there is no pool kv9' tenant $verb kv9 blue --yes
	! terminal n tenant $verb kv0 blue && grep -q 'nothing was changed' out
	verdict $? "no is no"
	logged ''
	terminal y tenant $verb kv0 blue && grep -q 'Continue?' out
	verdict $? "yes is yes"
	expect 0 "\"${verb%e}ed\": true" tenant $verb kv0 blue -y --force -o json
	logged "tenant $verb kv0 blue" "tenant $verb kv0 blue force"
	KVBLK_FAKE_REFUSE='sh (12) has the node open: close it, or pass "force"' expect 1 '^kvblk: kv0/blue: sh .12. has .*, or pass --force$' tenant $verb kv0 blue -y
	KVBLK_FAKE_WARN='member nvme0n2 could not record it yet' expect 4 '^kvblk: kv0/blue: member nvme0n2 could not record it yet$' tenant $verb kv0 blue -y
	logged "tenant $verb kv0 blue"
done
expect 0 '"removed": true' tenant rm kv0 blue -y -o json
expect 0 '"removed": true' tenant delete kv0 blue -y -o json
KVBLK_FAKE_REFUSE='this name is in use' expect 1 '^kvblk: kv0/blue: this name is in use$' tenant create kv0 blue
KVBLK_FAKE_WARN='member nvme0n2 is stale' expect 4 'kv0/blue: member nvme0n2 is stale' tenant create kv0 blue
rm log
expect 0 '' tenant set kv0 blue --mode 0640 --owner 5 --group 6 --weight 300 --quota-bytes 10G --quota-bytes-soft 9G --quota-blocks 11 \
	--quota-blocks-soft 10 --quota-dram 1M --shared common
expect 0 '"set": true' tenant set kv0 blue --quota-bytes 0 -o json
expect 0 '' tenant set kv0 default --weight 1 --shared none
logged 'tenant set kv0 blue mode=0640 uid=5 gid=6 weight=300 bytes=10737418240 bytes_soft=9663676416 blocks=11 blocks_soft=10 dram=1048576 shared=common' \
	'tenant set kv0 blue bytes=0' 'tenant set kv0 default weight=1 shared='
KVBLK_FAKE_REFUSE='the soft limit is above the hard one' expect 1 '^kvblk: kv0/blue: the soft limit is above the hard one$' tenant set kv0 blue --quota-blocks 1
KVBLK_FAKE_WARN='member nvme0n2 is stale' expect 4 'kv0/blue: member nvme0n2 is stale' tenant set kv0 blue --mode 0600
expect 0 '"created": true' tenant create kv0 red --mode 0640 --group 5 --quota-bytes 2T --weight 7 -o json
logged 'tenant set kv0 blue mode=0600' 'tenant create kv0 red 0640 0:5' 'tenant set kv0 red weight=7 bytes=2199023255552'
KVBLK_FAKE_REFUSE_SET='there is no tenant green' expect 1 '^kvblk: kv0/red was created, but has no limits: there is no tenant green$' \
	tenant create kv0 red --shared green
KVBLK_FAKE_REFUSE='this name is in use' expect 1 '^kvblk: kv0/red: this name is in use$' tenant create kv0 red --shared green
logged 'tenant create kv0 red 0660 0:0'
rm log
mv state.none state

echo "# pools of other nodes of a pod"
cp state state.none
# found POOL NODE NAME FIELDS...: a pool of one member, a file; POOL and NODE are digits, NAME is the node's host name
found() {
	state "d.setdefault('found', []).append({'path': '$flash/$1', 'pool': 'kv0', 'pool_uuid': '0000000$1-0000-0000-0000-000000000000',
		'uuid': '0000000$1-1111-0000-0000-000000000000', 'node': '0000000$2-2222-0000-0000-000000000000', 'owner': '$3', 'epoch': 2,
		'pod': 'rack7', 'pod_uuid': '00000007-3333-0000-0000-000000000000', 'data_start': 8192,
		'members': [{'uuid': '0000000$1-1111-0000-0000-000000000000', 'name': 'm$1'}]})" "${@:4}"
	truncate -s 1M "$flash/$1"
}
# beat POOL N: the owner writes beat N
beat() {
	python3 -c 'import struct, sys; open(sys.argv[1], "r+b").write(b"\0" * 4096 + struct.pack("<IIQQ", 0x4843564b, 0, 0, int(sys.argv[2])))' "$flash/$1" "$2"
}
state 'd["pools"][0]["name"] = "kv1"'
found 1 1 here 'd["found"][-1]["own"] = True'
found 2 2 node-b
found 3 3 node-c 'd["found"][-1]["clean"] = True'
beat 2 5
# a name is that of this node's pool
expect 0 '' pool import kv0 --name kv1
logged "import kv1 8 slots=0 $flash/1"
expect 0 '' pool import --all
logged "import kv0 0 slots=0 $flash/1"
expect 0 '' pool import 00000003-0000-0000-0000-000000000000 --name kv1
logged "import kv1 8 slots=0 $flash/3"
state 'd["found"].pop(0)' 'd["found"].pop(1)'
expect 1 'kv0: this pool of pod rack7 is of node node-b, not of this one: .* kvblk pool adopt rack7 node-b$' pool import kv0 --force
expect 0 '' pool import --all
logged ''
found 1 1 here 'd["found"][-1]["own"] = True'
found 3 3 node-c 'd["found"][-1]["clean"] = True'
expect 0 '^  of node here .this one., id 00000001-2222-0000-0000-000000000000$' pool import --scan
expect 0 '^  of node node-b, id 00000002-2222-0000-0000-000000000000$' pool import --scan
# pools that are adopted
expect 1 'kv0: this would be done:' pool adopt rack7 node-b
grep -q '^  pool kv0 of node node-b (id 00000002-2222-0000-0000-000000000000), in pod rack7, becomes this node.s pool kv0-node-b$' err &&
	grep -q "^  $flash/2: in use, or left in a crash: its reservation is preempted\$" err && grep -q 'Pass --yes to proceed' err
verdict $? "what will be done is told"
! terminal n pool adopt rack7 node-c && grep -q "^  $flash/3: stopped cleanly" out && grep -q 'nothing was changed' out
verdict $? "no is no"
logged ''
expect 0 '^kv1: 0 members' pool adopt rack7 node-b --yes --name kv1
expect 0 '"name": "kv1"' pool adopt 00000007-3333-0000-0000-000000000000 00000002-2222-0000-0000-000000000000 kv0 -y --name kv1 -o json --index-slots 100 --degraded
expect 0 '' pool adopt rack7 node-c 00000003-0000-0000-0000-000000000000 -y --name kv1 --force
terminal y pool adopt rack7 node-c --name kv1 && grep -q 'Continue?' out
verdict $? "yes is yes"
logged "import kv1 8 preempt=00000002-2222-0000-0000-000000000000 slots=0 $flash/2" \
	"import kv1 c preempt=00000002-2222-0000-0000-000000000000 slots=100 $flash/2" \
	"import kv1 a preempt=00000003-2222-0000-0000-000000000000 slots=0 $flash/3" \
	"import kv1 8 preempt=00000003-2222-0000-0000-000000000000 slots=0 $flash/3"
# the name, if none is given
expect 1 'no pool kv0-node-b$' pool adopt rack7 node-b -y --force
state 'd["pools"][0]["name"] = "kv0-node-b"'
expect 1 'no pool kv0-node-b-2$' pool adopt rack7 node-b -y --force
state 'd["pools"][0]["name"] = "kv1"' 'd["found"][1]["pool"] = "kv0-node-b"'
expect 1 'no pool kv0-node-b-2$' pool adopt rack7 node-b -y --force
state 'd["found"][0]["owner"] = "a node, whose name has more letters than a pool"' 'd["found"][0]["pool"] = "blocks-of-prompts"'
expect 1 'no pool blocks-o-a-node--whose-name-has$' pool adopt rack7 'a node, whose name has more letters than a pool' -y --force
state 'd["found"][0].update(owner="node-b", pool="kv0")' 'd["found"][1]["pool"] = "kv0"'
rm log
# pools that are refused
expect 1 'no member of a pool in pod rack8 was found' pool adopt rack8 node-b -y
expect 1 'node node-d has no pool in pod rack7' pool adopt rack7 node-d -y
expect 1 'node node-b has no pool kv9 in pod rack7' pool adopt rack7 node-b kv9 -y
expect 1 "pool kv0 is this node's own: kvblk pool import 00000001-0000-0000-0000-000000000000" pool adopt rack7 here -y
found 4 2 node-b
expect 1 'node node-b has several pools in pod rack7, such as kv0 .00000002-.*. and kv0 .00000004-.*.: give one, too' pool adopt rack7 node-b -y
state 'd["found"].pop()' 'd["found"][0]["members"].append({"uuid": "00000009-0000-0000-0000-000000000000", "name": "gone"})'
expect 1 'kv0: 1 of 2 members are missing: connect them, or pass --degraded' pool adopt rack7 node-b -y
grep -q 'member gone .00000009-.* was not found' err
verdict $? "what is missing is told"
state 'd["found"][0]["members"].pop()' 'd["found"][2]["pod"] = ""'
expect 1 'pool kv0 is in no pod: nothing fences its owner' pool adopt rack7 node-c kv0 -y
KVBLK_FAKE_REFUSE='2 is reserved by another node with key 0x1' expect 1 'kv0: 2 is reserved by another node' pool adopt rack7 node-b -y --name kv1
beats=5
until [ -e stop ]; do
	beat 2 $((++beats))
	sleep .05
done > /dev/null &
owner=$!
expect 1 "kv0: node node-b is up, it writes to $flash/2: stop it, or pass --force to take its pool away" pool adopt rack7 node-b -y
logged ''
expect 0 '' pool adopt rack7 node-b -y --force --name kv1
logged "import kv1 a preempt=00000002-2222-0000-0000-000000000000 slots=0 $flash/2"
# not killed, or else its last beat might come later
touch stop
wait $owner
# of a member that was away when node-b became the owner, nothing is preempted
found 5 5 node-a 'd["found"][-1].update(pool_uuid=d["found"][0]["pool_uuid"], epoch=1)'
expect 0 '' pool adopt rack7 node-b -y --degraded --name kv1
logged "import kv1 c preempt=00000002-2222-0000-0000-000000000000 slots=0 $flash/2"
mv state.none state

echo "# refusals of the module"
KVBLK_FAKE_REFUSE='sh (12) has the node open: close it, or pass "force"' expect 1 'kv0: sh .12. has .*, or pass --force$' destroy kv0
KVBLK_FAKE_REFUSE='x may be old: pass "force", or pass "format"' expect 1 'old: pass --force, or pass --format$' member add kv0 /dev/null
KVBLK_FAKE_REFUSE='x is of pool y: import it; "format" erases it' expect 1 'import it; --format erases it$' member add kv0 /dev/null
KVBLK_FAKE_REFUSE='pass "' expect 1 'kv0: pass "$' destroy kv0

echo "# status"
expect 4 '^kv0  *degraded  *2 of 3  *1 GiB  *512 MiB  *1000  *2 %$' status
grep -qxE 'kv0: member nvme7n1 is missing: its blocks are misses; to get them back bring .* at: nqn.b nsid 2; .*"kvblk member add kv0 DEVICE".* Only if .* lost for good: kvblk member remove kv0 07000000-0000-0000-0000-000000000000' out &&
	[ "$(wc -l < out)" = 3 ]
verdict $? "what is missing is told, and what to do"
expect 4 $'^kv0\tdegraded\t2 of 3\t1073741824\t536870912\t1000\t2$' status -Hp kv0
[ "$(wc -l < out)" = 1 ]
verdict $? "-H prints the lines of pools alone"
expect 4 '"do": "to get them back bring its device back' pool status -o json
python3 -c 'import json; d = json.load(open("out")); p = d["pools"][0]; f = p["findings"]
assert d["health"] == p["health"] == f[0]["health"] == "degraded" and f[0]["member"] == "nvme7n1" and len(f) == 1 and p["members_up"] == 2 and p["nr_members"] == 3' 2> err
verdict $? "JSON has the same"
state 'd["members"].pop()'
expect 0 '^kv0  *ok ' status
[ "$(wc -l < out)" = 2 ]
verdict $? "nothing is told where all is well"
for case in 'suspect does not answer: ' 'failing answers with errors: '; do
	state "d['members'][0]['${case%% *}'] = True"
	expect 4 "^kv0: member nvme0n1 ${case#* }.*; look at its path" status
	state "d['members'][0]['${case%% *}'] = False"
done
for case in 'dead is dead, ' 'removing is being removed; wait' 'restoring is finding its blocks'; do
	state "d['members'][1]['state'] = '${case%% *}'"
	expect 4 "^kv0: member nvme0n2 ${case#* }" status
done
# paths as long as udev's links; a path that does not fit is replaced by DEVICE
for length in 100 4000; do
	state "d['members'][0].update(unread_segments=1, path='/dev/disk/by-id/nvme-' + $length * 'x')"
	expect 4 "^kv0: member nvme0n1 has segments .*\(kvblk member add kv0 $([ $length = 100 ] && echo '/dev/disk/by-id/nvme-x{100}' || echo DEVICE)\)$" status
done
state 'd["members"][0].update(unread_segments=0, path="/dev/nvme0n1")'
state 'd["members"][0]["suspect"] = True'
expect 5 '^kv0  *down  *0 of ' status
state 'd["members"][0].update(suspect=False, failing=True, read_only=True)'
expect 4 '^kv0  *degraded  *1 of 2 ' status
grep -q '^kv0: member nvme0n1 answers writes with errors: its blocks are served, ' out
verdict $? "a pool serves if its only member that is up is read-only"
state 'd["members"][0]["fenced"] = True'
expect 4 '^kv0: member nvme0n1 is fenced, its reservation is lost: its blocks are served, ' status
state 'd["members"][0].update(failing=False, read_only=False, fenced=False)' 'd["members"][1]["state"] = "up"' 'd["pools"][0]["index_used"] = 60000'
expect 0 '^kv0  *note ' status
grep -q '^kv0: the index is full, 60000 of 65536 entries, while 512 MiB of flash are free; import it with more --index-slots' out
verdict $? "an index that is too small is told"
state 'd["pools"][0]["free_segments"] = 10'
expect 0 '^kv0  *ok ' status
state 'd["pools"][0].update(checksum_failures=3, read_errors=1, write_errors=2, put_nospace=4)'
expect 0 '^kv0: 3 checksum failures, each a miss, since the pool was assembled; dmesg.*; then: kvblk pool clear kv0$' status
expect 0 '^kv0: 1 failed read, each a miss, since' status
[ "$(grep -c '^kv0: ' out)" = 4 ]
verdict $? "each counter of failures is told"
state 'd["pools"][0].update(checksum_failures=0, read_errors=0, write_errors=0, put_nospace=0)' \
	'd["pools"].append(dict(d["pools"][0], name="kv1"))'
expect 5 '^kv1  *down  *0 of 0' status
expect 0 '^kv0  *ok ' status kv0
expect 1 'kv7: there is no pool kv7' status kv7
state 'd["pools"] = []'
expect 0 '^no pools; .* kvblk pool import --scan' status
expect 0 '"pools": \[\]' status -o json

echo "# iostat"
# between two samples: 30 puts of 1 MiB, 75 gets, 100 keys looked up, 80 found
cat > state << 'END'
{"pools": [{"name": "kv0", "nr_members": 1, "nr_segments": 10, "free_segments": 5, "capacity": 1000, "free": 500},
	   {"name": "kv1", "nr_members": 1, "nr_segments": 10, "free_segments": 5}],
 "members": [{"pool": "kv0", "name": "m", "state": "up"}, {"pool": "kv1", "name": "n", "state": "up"}],
 "stats": [
  {"pool": "kv0", "per_call": {"puts": 30, "put_bytes": 31457280, "gets": 75, "get_bytes": 78643200, "get_misses": 25,
     "lookup_keys": 100, "lookup_hits": 80},
   "latency": {"put": {"log2_buckets": [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 98, 0, 0, 0, 0, 0, 0, 0, 0, 2]},
     "get": {"log2_buckets": [0, 0, 0, 0, 0, 0, 0, 0, 10]}}},
  {"pool": "kv1", "per_call": {"gets": 1, "get_misses": 3}}]}
END
expect 0 '^[0-9:]{8} kv0  *[0-9.]+  *[0-9.]+  *[0-9.]+  *[0-9.]+  *80.0  *2.05 us  *1.05 ms  *512 ns  *512 ns$' iostat 100ms 2
[ "$(wc -l < out)" = 5 ] && [ "$(grep -c '^TIME' out)" = 1 ]
verdict $? "a line for each pool and interval, and one of headings"
expect 0 '^[0-9:]{8} kv1  *0.0  *0.0  *[0-9.]+  *0.0  *25.0  *-  *-  *-  *-$' iostat kv1 100ms 2
expect 0 'TIME' iostat 100ms 12
[ "$(grep -c '^TIME' out)" = 2 ]
verdict $? "headings come again"
expect 0 $'^1[0-9]{9}\tkv0\t[0-9.]+\t[0-9]+\t[0-9.]+\t[0-9]+\t80.0\t2048\t1048576\t512\t512$' iostat -Hp kv0 100ms 1
expect 0 '"pool":"kv1"' iostat -o json 200ms 3
python3 - 2> err << 'END'
import json
lines = [json.loads(line) for line in open("out")]
assert [line["pool"] for line in lines] == ["kv0", "kv1"] * 3
for line in lines[::2]:
    # the ratio of the rates is that of the counters, for any elapsed time
    assert abs(line["put_s"] * line["seconds"] - 30) < .01 and abs(line["get_mib_s"] / line["put_mib_s"] - 2.5) < .01
    assert abs(line["put_mib_s"] / line["put_s"] - 1) < .01 and line["hit_ratio"] == .8 and line["put_p99_ns"] == 1 << 20
    assert line["health"] == "ok" and line["free"] == 500 and 0 < line["seconds"] < 60
END
verdict $? "JSON has the rates"
cp out run.jsonl
expect 0 '<h2>Pool kv1</h2>' report run.jsonl
! terminal '' report run.jsonl && grep -q 'send it to a file' out
verdict $? "no page on a terminal"
state 'd["stats"][1]["per_call"] = {}'
expect 0 '"hit_ratio":null' iostat -o json kv1 100ms 1
expect 0 'kv0 ' iostat kv0
[ "$(wc -l < out)" = 2 ]
verdict $? "without an interval it is one of a second"
expect 1 'kv7: there is no pool kv7' iostat kv7 1

echo "# top"
expect 1 'needs a terminal; .* kvblk iostat' top
state 'd["pools"].pop()' 'd["pools"][0].update(read_errors=7, index_used=10, index_slots=100)' \
	'd["members"] = [{"pool": "kv0", "name": "m0", "state": "up", "size": 1 << 30, "nr_segments": 128, "free_segments": 64,
	 "sealed_segments": 60, "inflight": 3}]' 'd["foreign"] = [{"pool": "kv0", "name": "f0", "state": "up", "owner": "other-node", "suspect": True}]'
python3 -c 'import json; d = json.load(open("state")); json.dump({"pools": [dict(d["pools"][0], name=f"kv{i}") for i in range(30)],
	"members": d["members"] * 20}, open("state.many", "w"))
json.dump({"pools": d["pools"], "foreign": d["foreign"] * 50}, open("state.follows", "w"))'
"$(dirname "$here")/top_test.py" "$kvblk" > out 2> err
verdict $? "the screen"
sed 's/^/  # /' out

cases_end
