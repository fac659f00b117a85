#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=150 pci=switch,unreachable kernels=newest takes=31,36
# "kvblk topo" lists devices with and without P2P memory, each member's route to them, and why it is not direct, in text
# and in JSON. "kvblk bench" uses such memory, reports the way, and names what it lacks.
. "${0%/*}/pool.bash"

# json EXPRESSION COMMAND...: the expression is true of the command's JSON, d; route(MEMBER, DEVICE) finds a route
json() {
	"${@:2}" -o json >"$tmp/json" || fail "exit code $?: ${*:2}"
	python3 - "$tmp/json" "$1" <<-'END' || fail "${*:2}: not $1: $(cat "$tmp/json")"
		import json, sys
		d = json.load(open(sys.argv[1]))
		def route(member, device):
		    members = {m["name"]: m["routes"] for p in d["pools"] for m in p["members"]}
		    return next(r for r in members[member] if r["device"] == device)
		sys.exit(not eval(sys.argv[2]))
	END
}

# said PATTERN: the output of the last code() has such a line
said() {
	grep -qE -- "$1" "$tmp/out" || fail "not said: $1: $(cat "$tmp/out")"
}

# bench OPTION...: run a short benchmark
bench() {
	local blocks=()
	[[ " $* " != *" --op get "* ]] || blocks=(--blocks 16)
	kvblk bench $pool --size 256K --depth 4 --count 64 "${blocks[@]}" "$@"
}

# routes_known: run puts until all routes are known
routes_known() {
	check bench --op put --mem "gpu:${gpus[0]}" >/dev/null
	! kvblk topo --lines | grep -q "^$gpu .* unknown "
}

echo "-- without the module"
disks=("$(vm_disk 0)" "$(vm_disk 1)")
members=("${disks[0]##*/}" "${disks[1]##*/}")
cmb=$(vm_disk_bdf 0)
code 1 'modprobe kvblk' kvblk topo
said "^$cmb +.* NVMe drive +nvme .* 64 MiB"
code 1 "no pool $pool: .*modprobe kvblk" kvblk topo $pool

echo "-- without a pool"
kv_load
p2p_load
gpu=$(p2p_bdf "${gpus[0]}")
code 0 "^$gpu  1af4:1110 device .* kvblk_testgpu .* 64 MiB     64 MiB$" kvblk topo
json "d['module'] and d['p2pdma'] and d['pools'] == [] and {x['address'] for x in d['devices']} == {'$gpu', '$cmb'}" kvblk topo
json "all(x['p2pmem']['published'] for x in d['devices'] if x['address'] == '$gpu')" kvblk topo
code 1 'no pool absent' kvblk topo absent
code 2 'letters' kvblk topo a/b
code 2 'unrecognized' kvblk topo --frob

echo "-- before anybody went there"
pool_format "${disks[@]}"
code 0 'integrity is full' kvblk topo $pool
code 1 'no pool absent' kvblk topo $pool absent
put $sysfs/integrity header
json "route('${members[0]}', '$gpu')['route'] == 'unknown' and (route('${members[0]}', '$gpu')['distance'] or 1) > 0" kvblk topo $pool
json "d['pools'][0]['integrity'] == 'header' and d['pools'][0]['members'][0]['transport'] == 'pcie'" kvblk topo
expect "lines for the GPU, one for each member" "$(kvblk topo --lines | grep -c "^$gpu  $pool ")" 2

echo "-- bench, to and from the GPU, from and to the host"
wait_for 20 routes_known
case $KVBLK_PCI in
switch)
	json 'd["mem"] == "gpu" and d["mem_device"] == "'"$gpu"'" and d["bounced_ops"] == 0 and d["ops"] == 64' \
		bench --op get --mem "gpu:${gpus[0]}" --engine ioctl
	json 'd["direct_ops"] == 64' bench --op put --mem "gpu:$(p2p_memory "$gpu")"
	json 'd["direct_ops"] == 64' bench --op get --mem "gpu:${gpus[0]}" --engine uring-fixed
	code 0 "^memory     P2P memory of $gpu" bench --op get --mem gpu:"${gpus[0]}"
	check p2p_witness bench --op get --mem gpu:"${gpus[0]}"
	expect "pages to the GPU" "$p2p_pages" $((64 * 64))
	json "route('${members[0]}', '$gpu')['route'] in ('direct', 'trial')" kvblk topo
	;;
unreachable)
	# puts from the GPU go to the drive that reaches it, and can be read back directly
	json 'd["bounced_ops"] == 0' bench --op put --mem "gpu:${gpus[0]}"
	check bench --op get --mem host
	json 'd["bounced_ops"] > 0 and d["direct_ops"] > 0' bench --op get --mem "gpu:${gpus[0]}"
	code 0 "^$gpu .* bounce .* ${members[1]}  *[A-Za-z]" kvblk topo
	json "route('${members[1]}', '$gpu')['route'] == 'bounce' and route('${members[1]}', '$gpu')['reason']" kvblk topo
	json "route('${members[0]}', '$gpu')['route'] in ('direct', 'trial')" kvblk topo
	;;
esac
json 'd["mem"] == "host" and d["mem_device"] is None and d["bounced_ops"] == 0' bench --op get --mem host
# any provider with free memory: the drive's CMB, or the GPU
json 'd["mem"] == "gpu"' bench --op get --mem gpu
put $sysfs/integrity full
json 'd["bounced_ops"] == 64' bench --op put --mem "gpu:${gpus[0]}"
wait_for 5 p2p_all_free "$gpu"

echo "-- what it lacks"
code 1 '64 MiB' kvblk bench $pool --op put --size 4M --depth 32 --mem "gpu:${gpus[0]}"
code 1 'no device has' kvblk bench $pool --op put --size 4M --depth 64 --mem gpu
code 1 'No such file' bench --op put --mem gpu:/dev/absent
code 1 'no memory of a PCI device' bench --op put --mem gpu:/dev/zero
code 2 'must be host, gpu' bench --op put --mem cpu
code 2 'no blocks' kvblk bench $pool --op exists --mem gpu
mkfifo "$tmp/wake"
guest_p2p_plain hold "${gpus[0]}" $((64 << 20)) <>"$tmp/wake" >"$tmp/holder" &
holder=$!
wait_for 5 grep -qs ready "$tmp/holder"
code 1 'no room' bench --op put --mem "gpu:${gpus[0]}"
kill $holder
wait $holder 2>/dev/null || true
[ "$KVBLK_PCI" = switch ] || exit 0

echo "-- behind nvme-tcp"
check pool_destroy
nvmet_tcp_up topo "${disks[1]}"
pool_format "${namespaces[0]}"
put $sysfs/integrity header
json "[route('${namespaces[0]##*/}', '$gpu')[k] for k in ('distance', 'route', 'why')] == [None, 'bounce', 'queue']" kvblk topo $pool
json "d['pools'][0]['members'][0]['transport'] == 'tcp'" kvblk topo $pool
code 0 "^$gpu .* bounce .* ${namespaces[0]##*/}  *NVMe/TCP" kvblk topo $pool
json 'd["bounced_ops"] == 64 and d["direct_ops"] == 0' bench --op put --mem "gpu:${gpus[0]}"

echo "-- a GPU without its driver is no provider"
put /sys/bus/pci/drivers/kvblk_testgpu/unbind "$gpu"
json "'$gpu' not in [x['address'] for x in d['devices']]" kvblk topo

echo "-- nor is one whose driver has no memory to give"
put /sys/module/kvblk_testgpu/parameters/bare 1
put /sys/bus/pci/drivers/kvblk_testgpu/bind "$gpu"
json "'$gpu' not in [x['address'] for x in d['devices']]" kvblk topo
json "'$gpu' not in [r['device'] for p in d['pools'] for m in p['members'] for r in m['routes']]" kvblk topo $pool
put /sys/bus/pci/drivers/kvblk_testgpu/unbind "$gpu"
put /sys/module/kvblk_testgpu/parameters/bare 0
put /sys/bus/pci/drivers/kvblk_testgpu/bind "$gpu"
