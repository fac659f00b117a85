/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The tunables of a pool: sysfs has a file for each row, and user space checks
 * what it is told against the same rows. Rule: no kernel type but the names in
 * the column "type".
 */
#ifndef KVBLK_TUNABLES_H
#define KVBLK_TUNABLES_H

#include <linux/kvblk.h>

#include "policy/policy.h"

#define KVBLK_BOUNCES_MAX	64
#define KVBLK_BOUNCES		8

/* X(name, type, default, least, most) */
#define KVBLK_TUNABLES(X)							\
	/* free segments (free + ready), of all, at which reclaim starts, stops */ \
	X(low_permille, u32, 20, 1, 998)					\
	X(high_permille, u32, 40, 2, 999)					\
	/* bytes written again, of bytes put */					\
	X(reinsert_permille, u32, KVBLK_POLICY_REINSERT, 0,			\
	  KVBLK_POLICY_REINSERT_MAX)						\
	/* first-touch chains admitted; see policy/policy.h */			\
	X(admit_permille, u32, KVBLK_POLICY_ADMIT, 0, KVBLK_POLICY_ADMIT_MAX)	\
	/* of first offers, those admitted; of the others, those remembered */	\
	X(first_permille, u32, KVBLK_POLICY_FIRST, 0, KVBLK_POLICY_FIRST)	\
	X(second_permille, u32, KVBLK_POLICY_SECOND, 0, KVBLK_POLICY_SECOND)	\
	/* enum kvblk_check */							\
	X(integrity, u32, KVBLK_CHECK_FULL, 0, KVBLK_CHECK_PRODUCER)		\
	/* that one batch keeps in flight */					\
	X(queue_bytes, u64, 256u << 20, 1u << 20, 1ull << 36)			\
	/* of puts on a member at once, while gets come; 0: any */		\
	X(put_window_bytes, u64, 1u << 20, 0, 1ull << 36)				\
	/* silence after which a member is suspect */				\
	X(suspect_ms, u32, 5000, 100, 3600000)					\
	/* errors in a row after which a member is failing; 0: any */		\
	X(failing_run, u32, 32, 0, 1000000)					\
	/* of a second's I/O, errors at which it is; 0: any */			\
	X(failing_permille, u32, 100, 0, 1000)					\
	/* segments are discarded before reuse */				\
	X(discard, u32, 1, 0, 1)						\
	/* of a member's bytes, and of the memory for blocks, that may be leased */	\
	X(lease_permille, u32, 250, 0, 1000)					\
	/* leased keys an open file may hold */					\
	X(lease_keys_max, u32, 1 << 20, 0, 1 << 24)				\
	/* segments reclaimed a second, above which an event goes out */	\
	X(reclaim_event_rate, u32, 16, 0, 1000000)				\
	/* between notifications of statistics; 0: none */			\
	X(stats_seconds, u32, 0, 0, 86400)					\
	/* host memory for blocks; 0: none */					\
	X(dram_bytes, u64, 0, 0, 1ull << 44)					\
	/* enum kvblk_dram_mode */						\
	X(dram_mode, u32, KVBLK_DRAM_EVICT, 0, KVBLK_DRAM_TOUCHED)		\
	/* a get of a block that was asked for before leaves it there */	\
	X(dram_promote, u32, 0, 0, 1)						\
	/* see p2p/bounce.c */							\
	X(bounce_chunks, u32, KVBLK_BOUNCES, 0, KVBLK_BOUNCES_MAX)

#endif
