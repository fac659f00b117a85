# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# Hosts with NUMA nodes, of the kernel's option numa=fake. Sourced by tests, hence not executable.
. "${BASH_SOURCE[0]%/*}/pool.bash"

# on_node N COMMAND...: run a command with memory of that node only (MPOL_BIND)
on_node() {
	python3 -c 'import ctypes, os, sys
node = ctypes.c_ulong(1 << int(sys.argv[1]))
if ctypes.CDLL(None).syscall(238, 2, ctypes.byref(node), ctypes.c_ulong(64)):
	sys.exit("set_mempolicy")
os.execvp(sys.argv[2], sys.argv[2:])' "$@"
}

# nodes: print MiB of reclaimable memory of each node
nodes() {
	awk '$3 == "KReclaimable:" { print int($4 / 1024) }' /sys/devices/system/node/node[01]/meminfo
}

# node_has N MIB: node N has at most MIB reclaimable MiB; for wait_for
node_has() {
	mapfile -t now < <(nodes)
	[ "${now[$1]}" -le "$2" ]
}
