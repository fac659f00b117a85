# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# Pools for transfers from and to memory of PCI devices. Sourced by tests, hence not executable.
. "${BASH_SOURCE[0]%/*}/pool.bash"
disks=()

# routes PROVIDER [MEMBER]: print the route "ROUTE WHY" to that member, or to each
routes() {
	kvblk topo -o json "$pool" | awk -F '"' -v provider="$1" -v member="${2-}" '
		$2 == "name" { name = $4 }
		$2 == "device" { device = $4 }
		$2 == "route" { route = $4 }
		$2 == "why" && device == provider && (member == "" || name == member) { print route, $4 ? $4 : "-" }'
}

# route_becomes PROVIDER MEMBER "ROUTE WHY"
route_becomes() {
	[ "$(routes "$1" "$2")" = "$3" ]
}

route_is() {
	route_becomes "$@" || fail "route of $1 to $2: $(routes "$1" "$2"), should be $3: $(kvblk topo --lines "$pool")"
}

# fresh_pool POLICY: create a new pool on $disks
fresh_pool() {
	check pool_destroy
	pool_format "${disks[@]}"
	put "$sysfs/integrity" "$1"
}

# warm MEMORY: put until all routes are known
warm() {
	local kind bdf i
	for kind in ${1//,/ }; do
		case $kind in
		host) continue ;;
		/dev/*) bdf=$(p2p_bdf "$kind") ;;
		*) bdf=$(basename "$(dirname "$(dirname "$kind")")") ;;
		esac
		for ((i = 0; i < 60; i++)); do
			routes "$bdf" | grep -q '^unknown' || continue 2
			check env "KV_MEMORY=$kind" guest_blocks "$node" put $((900000 + i)) 1 300000 >/dev/null
			sleep 0.2
		done
		fail "the routes of $bdf are still unknown: $(kvblk topo --lines "$pool")"
	done
}

# partition DRIVE MB: create the first partition; the kernel ignores later changes of the table until it is told to read it
partition() {
	# type 0x83, from sector 2048 on
	printf '\0\0\0\0\x83\0\0\0\0\x08\0\0%b' "$(printf '\\x%02x\\x%02x\\x%02x\\0' $(($2 * 2048 & 255)) $(($2 * 2048 >> 8 & 255)) $(($2 * 2048 >> 16)))" >"$tmp/entry"
	{ head -c 446 /dev/zero && cat "$tmp/entry" && head -c 48 /dev/zero && printf '\x55\xaa'; } >"$tmp/mbr"
	check dd if="$tmp/mbr" of="$1" bs=512 conv=fsync status=none
	check blockdev --rereadpt "$1"
	wait_for 5 [ -b "${1}p1" ]
	defer "check dd if=/dev/zero of=$1 bs=512 count=1 conv=fsync status=none && blockdev --rereadpt $1"
}

# partitions: sets $drives to both drives, $small to the first 72 MB of each; destroy pools on them before the end
partitions() {
	local drive
	drives=("$(vm_disk 0)" "$(vm_disk 1)")
	small=()
	for drive in "${drives[@]}"; do
		partition "$drive" 72
		small+=("${drive}p1")
	done
	defer pool_destroy
}
