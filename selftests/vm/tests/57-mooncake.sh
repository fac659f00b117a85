#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm: timeout=300 takes=59 mem=3G kernels=newest,6.12 check=debug share=pypi:mooncake-transfer-engine-non-cuda==0.3.13.post1
# slow: 150 objects are stored no faster than Mooncake offloads them, and loaded four times.
# Mooncake's unmodified wheel offloads to a pool through NVMe key-value commands, and loads what its memory no longer has.
. "${0%/*}/pool.bash"

kv_load
flash 1 400
pool_format /dev/flash0
export PYTHONPATH=/share HOME="$tmp"
cd "$tmp"
# Mooncake requires a network
check ip link add lan0 type dummy
defer "ip link del lan0"
check ip addr add 192.0.2.1/24 dev lan0
check ip link set lan0 up

# mooncake TRANSPORT EVENT...: store and load 150 MiB through a segment of 64 MiB
mooncake() {
	local transport=$1 rc=0
	/share/mooncake/mooncake_master -rpc_port 50551 -enable_http_metadata_server=true -http_metadata_server_host 127.0.0.1 \
		-http_metadata_server_port 18081 -metrics_host 127.0.0.1 -metrics_port 19003 -rpc_address 127.0.0.1 -enable_offload=true \
		-default_kv_lease_ttl 500 >"master-$transport" 2>&1 &
	master=$!
	defer "kill $master 2>/dev/null; wait $master 2>/dev/null || true"
	wait_for 30 listens_or_died 50551
	wait_for 30 listens_or_died 18081
	MOONCAKE_OFFLOAD_STORAGE_BACKEND_DESCRIPTOR=nvme_kv_storage_backend MOONCAKE_NVME_KV_DEVICE_PATH=/dev/kvblk/$pool/nvme-kv \
		MOONCAKE_NVME_KV_TRANSPORT="$transport" MOONCAKE_NVME_KV_NSID=1 MOONCAKE_OFFLOAD_HEARTBEAT_INTERVAL_SECONDS=1 \
		MOONCAKE_OFFLOAD_LOCAL_BUFFER_SIZE_BYTES=67108864 \
		timeout $((200 * KVBLK_SLOW)) python3 /kvblk/selftests/runtimes/mooncake_store.py 50551 18081 150 64 "${@:2}" >"client-$transport" 2>&1 || rc=$?
	grep -v '^[IWE][0-9]' "client-$transport" || true
	return "$rc"
}

listens_or_died() {
	kill -0 "$master" 2>/dev/null || { tail -n 40 master-*; fail "Mooncake's master died"; }
	(: <>"/dev/tcp/127.0.0.1/$1") 2>/dev/null
}

# events: change the pool between the loads; a list of bad blocks covers 128 MiB
events() {
	local event
	trap 'echo "${why-}"' EXIT
	for event in fail heal evict; do
		wait_for 200 test -e "at-$event"
		case $event in
		fail) put "$configfs/nullb/flash0/badblocks" "+0-$((128 * 2048 - 1))" ;;
		heal) put "$configfs/nullb/flash0/badblocks" "-0-$((128 * 2048 - 1))" && wait_for 60 pool_is_up ;;
		evict)
			# an object of 1 MiB is more than one value of its backend
			more_than 150 puts
			blocks put 1000 300 1048576
			blocks put 2000 300 1048576
			;;
		esac
		touch "go-$event"
	done
}
events >happened 2>&1 &
# the wheel has no executor for io_uring: see tools/connectors/mooncake
mooncake ioctl fail heal evict || { tail -n 40 happened client-ioctl master-ioctl; fail "Mooncake did not get all that it had stored"; }
more_than 150 gets
cat happened
expect checksum_failures "$(counter checksum_failures)" 0
