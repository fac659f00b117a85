# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# Functions of the VM tests; each test sources this first. The rule: whatever a function sets up is taken down when the
# test ends, in reverse order, so that tests run in any order in one VM.
set -Eeuo pipefail
shopt -s extglob nullglob
export DM_DISABLE_UDEV=1
modules="/build/$(uname -r)"
phase=${1:-1}
configfs=/sys/kernel/config
deferred=()
why=

# fail "why", skip "why": end the test; the reason is its last line of output
fail() {
	why=$1
	exit 1
}

skip() {
	why=$1
	exit 4
}

# check COMMAND...: fail unless the command succeeds
check() {
	"$@" || fail "failed: $*"
}

# refuse COMMAND...: fail unless the command fails
refuse() {
	! "$@" || fail "succeeded, should have failed: $*"
}

# defer "COMMAND": run a command at the end of the test, the last one first
defer() {
	deferred+=("$1")
}

# wait_for SECONDS COMMAND...: repeat a command until it succeeds, or fail. The limit is scaled for slow and busy machines.
wait_for() {
	local limit=$(($1 * 3 * KVBLK_SLOW)) t0=$SECONDS
	shift
	until "$@"; do
		# try once more: this process may have been suspended since the last try
		((SECONDS - t0 < limit)) || { "$@" && return; fail "not within $limit s: $*"; }
		sleep 0.1
	done
}

# pools_say: print the pools and the blocked tasks after a failure
pools_say() {
	local pool task
	for pool in /sys/class/kvblk/*/uuid; do
		pool=$(basename "$(dirname "$pool")")
		echo "-- pool $pool, when the test failed"
		timeout 10 kvblk pool show "$pool"
		timeout 10 kvblk stat "$pool"
	done
	for task in /proc/[0-9]*; do
		# shellcheck disable=SC2015
		[ "$(awk '$1 == "State:" { print $2 }' "$task/status" 2>/dev/null)" != D ] || { echo "waiting: $(<"$task/comm")" && cat "$task/stack"; }
	done
} 2>&1

at_exit() {
	local rc=$? i
	trap - ERR
	set +e
	[ $rc = 0 ] || [ $rc = 4 ] || pools_say
	for ((i = ${#deferred[@]} - 1; i >= 0; i--)); do
		if ! eval "${deferred[i]}"; then
			echo "cleanup failed: ${deferred[i]}"
			[ $rc != 0 ] || { rc=1 why="cleanup failed: ${deferred[i]}"; }
		fi
	done
	[ -z "$why" ] || echo "$why"
	exit $rc
}
trap at_exit EXIT
trap 'rc=$?; [ "$BASH_SUBSHELL" != 0 ] || why="line $LINENO: exit code $rc: $BASH_COMMAND"; exit $rc' ERR
trap 'exit 143' TERM
tmp=$(mktemp -d /tmp/test.XXXXXX)
defer 'rm -rf "$tmp"'

# kv_depends: load the modules that kvblk needs
kv_depends() {
	[ -e "$modules/kvblk.ko" ] || skip "no kvblk.ko for $(uname -r)"
	modinfo -F depends "$modules/kvblk.ko" | tr , '\n' | xargs -r modprobe -a
}

# kv_load [PARAMETER=VALUE...], kv_unload: load and unload the module built for the running kernel
# shellcheck disable=SC2120
kv_load() {
	kv_depends
	check insmod "$modules/kvblk.ko" "$@"
	defer 'kv_unload'
}

# retried, because a request that continues in the background holds the module
kv_unload() {
	local tries
	for ((tries = 0; tries < 100 * KVBLK_SLOW; tries++)); do
		[ -d /sys/module/kvblk ] || return 0
		# explicit 0: in a trap, a bare return gives the status from before the trap
		rmmod kvblk 2>/dev/null && return 0
		sleep 0.1
	done
	rmmod kvblk
}

# put FILE "value": write the value; the error message names both.
put() {
	echo "$2" >"$1" || fail "cannot write $2 to $1"
}

# nullb_create NAME SIZE_MB [ATTRIBUTE=VALUE...]: create /dev/NAME; keeps its data unless memory_backed=0
nullb_create() {
	local name=$1 dir=$configfs/nullb/$1 size=$2 a
	shift 2
	modprobe null_blk nr_devices=0
	check mkdir "$dir"
	defer "nullb_remove $name"
	for a in size="$size" memory_backed=1 discard=1 "$@"; do
		put "$dir/${a%%=*}" "${a#*=}"
	done
	put "$dir/power" 1
	wait_for 5 [ -b "/dev/$name" ]
}

nullb_remove() {
	[ ! -d "$configfs/nullb/$1" ] || rmdir "$configfs/nullb/$1"
}

# node_id DIGIT: give the host an id
node_id() {
	mkdir -p /var/lib/kvblk
	printf '%032d\n' 0 | tr 0 "$1" >/var/lib/kvblk/node
	defer "rm -f /var/lib/kvblk/node"
}

# nvmet_namespaces NAME: print the block devices of a connected subsystem by namespace id
nvmet_namespaces() {
	local b
	for b in /sys/block/nvme+([0-9])n+([0-9]); do
		[ "$(cat "$b/device/subsysnqn" 2>/dev/null)" != "$1" ] || echo "$(cat "$b/nsid") /dev/${b##*/}"
	done | sort -n | cut -d' ' -f2
}

# nvmet_target TYPE ADDRESS NAME BACKING...: create a target with one namespace for each backing block device or file;
# sets $target_port. TARGET_RUN is put before the command that makes the target's socket, for a net namespace.
# TARGET_TSAS=tls1.3 requires TLS. TARGET_RESV=1 lets hosts reserve the namespaces.
nvmet_target() {
	local type=$1 address=$2 name=$3 subsystem=$configfs/nvmet/subsystems/$3 port n=0 backing
	shift 3
	modprobe -a nvmet "nvmet-$type"
	check mkdir "$subsystem"
	defer "nvmet_down $name"
	put "$subsystem/attr_allow_any_host" 1
	for backing; do
		n=$((n + 1))
		mkdir "$subsystem/namespaces/$n"
		put "$subsystem/namespaces/$n/device_path" "$backing"
		[ -z "${TARGET_RESV-}" ] || put "$subsystem/namespaces/$n/resv_enable" 1
		put "$subsystem/namespaces/$n/enable" 1
	done
	n=1
	while [ -d "$configfs/nvmet/ports/$n" ]; do n=$((n + 1)); done
	port=$configfs/nvmet/ports/$n
	target_port=$((4419 + n))
	mkdir "$port"
	put "$port/addr_trtype" "$type"
	put "$port/addr_adrfam" ipv4
	put "$port/addr_traddr" "$address"
	put "$port/addr_trsvcid" $target_port
	[ -z "${TARGET_TSAS-}" ] || put "$port/addr_tsas" "$TARGET_TSAS"
	# shellcheck disable=SC2086 # several words
	check ${TARGET_RUN-} ln -s "$subsystem" "$port/subsystems/$name"
}

# nvmet_up TYPE ADDRESS NAME BACKING...: create a target and connect to it; sets the array $namespaces to the devices.
# CONNECT_ARGS is added to nvme connect.
nvmet_up() {
	nvmet_target "$@"
	modprobe "nvme-$1"
	# shellcheck disable=SC2086 # several words
	check nvme connect --keep-alive-tmo=600 -t "$1" -a "$2" -s $target_port -n "$3" ${CONNECT_ARGS-} >"$tmp/connect"
	wait_for 10 nvmet_ready "$3" $(($# - 3))
	mapfile -t namespaces < <(nvmet_namespaces "$3")
}

nvmet_ready() {
	local devices
	mapfile -t devices < <(nvmet_namespaces "$1")
	[ ${#devices[@]} = "$2" ] && [ -b "${devices[0]}" ]
}

# nvmet_controller NAME: print the sysfs directory of the host's controller
nvmet_controller() {
	local c
	for c in /sys/class/nvme/nvme*; do
		[ "$(cat "$c/subsysnqn")" != "$1" ] || echo "$c"
	done
}

# nvmet_rescanned NAME: rescan and check for the only namespace. Needed because the host's first scan may precede the
# target's change, and the host does not repeat it.
nvmet_rescanned() {
	put "$(nvmet_controller "$1")/rescan_controller" 1
	nvmet_ready "$1" 1
}

# nvmet_tcp_up NAME BACKING...: nvmet_up over TCP on 127.0.0.1
nvmet_tcp_up() {
	nvmet_up tcp 127.0.0.1 "$@"
}

# nvmet_rdma_up NAME BACKING...: nvmet_up over software RoCE on the VM's network card (header net=1)
nvmet_rdma_up() {
	if ! rdma link 2>/dev/null | grep -q rxe0; then
		modprobe -qa virtio_net rdma_rxe
		[ -d /sys/class/net/eth0 ] || skip "no network card, the test's header lacks net=1"
		ip address replace 10.0.2.15/24 dev eth0
		ip link set eth0 up
		check rdma link add rxe0 type rxe netdev eth0
		defer 'rdma link delete rxe0'
	fi
	nvmet_up rdma 10.0.2.15 "$@"
}

# nvmet_kill NAME: remove the target while the host is connected; nvmet_revive NAME: restore it
nvmet_kill() {
	local link
	for link in "$configfs"/nvmet/ports/*/subsystems/"$1"; do
		basename "$(dirname "$(dirname "$link")")" >"/tmp/nvmet-port-$1"
		check rm "$link"
	done
}

nvmet_revive() {
	check ln -s "$configfs/nvmet/subsystems/$1" "$configfs/nvmet/ports/$(cat "/tmp/nvmet-port-$1")/subsystems/$1"
}

# nvmet_down NAME: disconnect and remove the target
nvmet_down() {
	local subsystem=$configfs/nvmet/subsystems/$1 link port n
	[ -d "$subsystem" ] || return 0
	nvme disconnect -n "$1" >/dev/null || true
	for link in "$configfs"/nvmet/ports/*/subsystems/"$1"; do
		[ ! -e "$link" ] || rm "$link"
	done
	for port in "$configfs"/nvmet/ports/*; do
		[ ! -d "$port" ] || [ -n "$(ls "$port/subsystems")" ] || rmdir "$port"
	done
	for n in "$subsystem"/namespaces/*; do
		[ ! -d "$n" ] || { put "$n/enable" 0 && rmdir "$n"; }
	done
	rmdir "$subsystem"
}

dm_remove() {
	[ ! -b "/dev/mapper/$1" ] || dmsetup remove --retry "$1"
}

# dm_create NAME DEVICE TARGET-LINE: create /dev/mapper/NAME over DEVICE; %s in the line is the length in sectors
dm_create() {
	local line
	# shellcheck disable=SC2059 # the caller's line is the format
	line=$(printf "$3" "$(blockdev --getsz "$2")")
	check dmsetup create "$1" --table "$line"
	defer "dm_remove $1"
}

# dm_set NAME DEVICE TABLE: replace the table of a dm_create device, with the same %s; I/O held by the old table is
# completed first
dm_set() {
	# shellcheck disable=SC2059 # the caller's table is the format
	check dmsetup load "$1" <<<"$(printf "$3" "$(blockdev --getsz "$2")")"
	check dmsetup resume --nolockfs "$1"
}

# dm_flakey NAME DEVICE: create a device that works. dm_flakey_set NAME DEVICE UP DOWN [FEATURE...]: make it work for UP
# seconds and fail for DOWN seconds, in turn (features of dm-flakey)
dm_flakey() {
	modprobe -q dm_flakey || true
	dm_create "$1" "$2" "0 %s flakey $2 0 1 0"
}

dm_flakey_set() {
	local name=$1 device=$2 up=$3 down=$4
	shift 4
	dm_set "$name" "$device" "0 %s flakey $device 0 $up $down $# $*"
}

# dm_logwrites NAME DEVICE LOG: create a device whose writes are also logged, in order, to LOG; see vm/replay-log
dm_logwrites() {
	modprobe -q dm_log_writes || true
	dm_create "$1" "$2" "0 %s log-writes $2 $3"
}

dm_logwrites_mark() {
	check dmsetup message "$1" 0 mark "$2"
}

# medium_errors PARAMETER...: create a SCSI disk with these parameters of scsi_debug. Eight of its sectors cannot be read
# while $scsi/opts is 2. Sets $disk and $scsi.
medium_errors() {
	check modprobe sd_mod
	check modprobe scsi_debug dev_size_mb=100 medium_error_start=$((3 * 2048)) medium_error_count=8 "$@"
	defer 'rmmod scsi_debug'
	scsi=/sys/bus/pseudo/drivers/scsi_debug
	wait_for 10 compgen -G "$scsi/adapter0/host*/target*/*/block/*" >/dev/null
	disk=/dev/$(basename "$scsi"/adapter0/host*/target*/*/block/*)
}

# vm_disk N: the block device of the VM's drive N (header disks=)
vm_disk() {
	local block ubd=(/dev/ubd{a,b,c,d,e,f,g,h})
	[ ! -b "${ubd[$1]}" ] || { echo "${ubd[$1]}" && return; }
	for block in /sys/block/nvme+([0-9])n+([0-9]); do
		if [ "$(tr -d ' ' 2>/dev/null <"$block/device/serial")" = "disk$1" ]; then
			echo "/dev/${block##*/}"
			return
		fi
	done
	fail "no drive disk$1: see disks= in the test's header"
}

# p2p_load: load the test GPUs (header pci=) and the witness; sets the array $gpus to the GPUs' nodes
p2p_load() {
	local dir=$modules/selftests/modules/kvblk_testgpu
	[ -e "$dir/kvblk_testgpu.ko" ] || skip "no test GPU for $(uname -r): that kernel has no CONFIG_PCI_P2PDMA"
	check insmod "$dir/kvblk_testgpu.ko"
	defer 'p2p_unload kvblk_testgpu'
	check insmod "$dir/kvblk_p2pwitness.ko"
	defer 'p2p_unload kvblk_p2pwitness'
	gpus=(/dev/kvblk_testgpu+([0-9]))
	[ ${#gpus[@]} != 0 ] || fail "no test GPU: see pci= in the test's header"
}

p2p_unload() {
	[ ! -d "/sys/module/$1" ] || rmmod "$1"
}

# p2p_bdf NODE: print the PCI address of a test GPU
p2p_bdf() {
	basename "$(readlink -f "/sys/class/misc/${1##*/}/device")"
}

# vm_disk_bdf N: the PCI address of the VM's drive N
vm_disk_bdf() {
	local controller
	for controller in /sys/class/nvme/nvme*; do
		if [ "$(tr -d ' ' <"$controller/serial")" = "disk$1" ]; then
			cat "$controller/address"
			return
		fi
	done
	fail "no drive disk$1: see disks= in the test's header"
}

# p2p_memory BDF: print the file whose mmap() provides the P2P memory of this PCI device
p2p_memory() {
	echo "/sys/bus/pci/devices/$1/p2pmem/allocate"
}

# p2p_used BDF: print the bytes of P2P memory in use, mapped or pinned; a drive uses some of its CMB for queues.
# p2p_all_free BDF: true if none of a GPU's memory is in use
p2p_used() {
	local dir=/sys/bus/pci/devices/$1/p2pmem
	echo $(($(cat "$dir/size") - $(cat "$dir/available")))
}

p2p_all_free() {
	[ "$(p2p_used "$1")" = 0 ]
}

p2p_counters=(bus_bytes bridge_bytes host_bytes refused missed)

# p2p_witness COMMAND...: run a command and return its status. Sets counts of 4 KiB pages that the kernel mapped for PCI
# NVMe drives meanwhile: $p2p_pages (peer to peer), $p2p_bridge_pages (of these, through the host bridge), $host_pages
# (host memory, as for bounced transfers). $p2p_refused counts the requests that the kernel refused to map.
p2p_witness() {
	local rc=0 dir=/sys/module/kvblk_p2pwitness/parameters c now
	local -A seen
	for c in "${p2p_counters[@]}"; do read -r "seen[$c]" <"$dir/$c"; done
	"$@" || rc=$?
	for c in "${p2p_counters[@]}"; do read -r now <"$dir/$c" && seen[$c]=$((now - seen[$c])); done
	[ "${seen[missed]}" = 0 ] || fail "the witness missed ${seen[missed]} calls"
	p2p_bridge_pages=$(((seen[bridge_bytes] + 4095) / 4096))
	p2p_pages=$(((seen[bus_bytes] + 4095) / 4096 + p2p_bridge_pages))
	host_pages=$(((seen[host_bytes] + 4095) / 4096))
	p2p_refused=${seen[refused]}
	return $rc
}

# cgroup_up CONTROLLER: create a cgroup; sets $cgroup to its directory. cgroup_enter: move the calling subshell into it
cgroup_up() {
	check mkdir "$tmp/cgroups"
	check mount -t cgroup2 none "$tmp/cgroups"
	defer 'umount "$tmp/cgroups"'
	put "$tmp/cgroups/cgroup.subtree_control" "+$1"
	cgroup=$tmp/cgroups/own
	check mkdir "$cgroup"
	defer 'rmdir "$cgroup"'
}

cgroup_enter() {
	echo "$BASHPID" >"$cgroup/cgroup.procs"
}

# vm_power_cut: from now on, within about a second, the VM is killed and the next phase booted (header phases=); goes on at once
vm_power_cut() {
	echo power-cut >&200
}
