/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Tunables of a pool. Each row is a file in sysfs, see Documentation/ABI/testing/sysfs-class-kvblk;
 * user space validates values with the same rows: no kernel type except in the column "type".
 */
#ifndef KVBLK_TUNABLES_H
#define KVBLK_TUNABLES_H

#include <linux/kvblk.h>

#include "policy/policy.h"

#define KVBLK_DRAM_NODE_MAX	1023	/* the largest number of a NUMA node on any host */
#define KVBLK_BOUNCES_MAX	64
#define KVBLK_BOUNCES		8

/* X(name, type, default, least, most) */
#define KVBLK_TUNABLES(X)							\
	X(low_permille, u32, 20, 1, 998)					\
	X(high_permille, u32, 40, 2, 999)					\
	X(reinsert_permille, u32, KVBLK_POLICY_REINSERT, 0, KVBLK_POLICY_REINSERT_MAX) \
	X(admit_permille, u32, KVBLK_POLICY_ADMIT, 0, KVBLK_POLICY_ADMIT_MAX)	\
	X(first_permille, u32, KVBLK_POLICY_FIRST, 0, KVBLK_POLICY_FIRST)	\
	X(first_duel, u32, 1, 0, 1)						\
	X(second_permille, u32, KVBLK_POLICY_SECOND, 0, KVBLK_POLICY_SECOND)	\
	X(integrity, u32, KVBLK_CHECK_FULL, 0, KVBLK_CHECK_PRODUCER)		\
	X(queue_bytes, u64, 256u << 20, 1u << 20, 1ull << 36)			\
	X(put_window_bytes, u64, 1u << 20, 0, 1ull << 36)				\
	X(suspect_ms, u32, 5000, 100, 3600000)					\
	X(failing_run, u32, 32, 0, 1000000)					\
	X(failing_permille, u32, 100, 0, 1000)					\
	X(discard, u32, 1, 0, 1)						\
	X(lease_permille, u32, 250, 0, 1000)					\
	X(lease_keys_max, u32, 1 << 20, 0, 1 << 24)				\
	X(reclaim_event_rate, u32, 16, 0, 1000000)				\
	X(stats_seconds, u32, 0, 0, 86400)					\
	X(dram_bytes, u64, 0, 0, 1ull << 44)					\
	X(dram_mode, u32, KVBLK_DRAM_EVICT, 0, KVBLK_DRAM_TOUCHED)		\
	X(dram_promote, u32, 0, 0, 1)						\
	X(dram_node, s32, -1, -1, KVBLK_DRAM_NODE_MAX)				\
	X(bounce_chunks, u32, KVBLK_BOUNCES, 0, KVBLK_BOUNCES_MAX)		\
	X(reuse_grace_ms, u32, 10000, 3000, 600000)

#endif
