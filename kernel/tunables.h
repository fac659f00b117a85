/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Tunables of a pool. Each row is a file in sysfs, and user space validates values with the
 * same rows. Rule: no kernel type except in the column "type".
 */
#ifndef KVBLK_TUNABLES_H
#define KVBLK_TUNABLES_H

#include <linux/kvblk.h>

#include "policy/policy.h"

#define KVBLK_BOUNCES_MAX	64
#define KVBLK_BOUNCES		8

/* X(name, type, default, least, most) */
#define KVBLK_TUNABLES(X)							\
	/* free and ready segments at which reclaim starts, stops */		\
	X(low_permille, u32, 20, 1, 998)					\
	X(high_permille, u32, 40, 2, 999)					\
	/* bytes that reclaim writes again, per bytes put */			\
	X(reinsert_permille, u32, KVBLK_POLICY_REINSERT, 0,			\
	  KVBLK_POLICY_REINSERT_MAX)						\
	/* first-touch chains that are admitted; see policy/policy.h */		\
	X(admit_permille, u32, KVBLK_POLICY_ADMIT, 0, KVBLK_POLICY_ADMIT_MAX)	\
	/* first offers admitted; declined first offers remembered */		\
	X(first_permille, u32, KVBLK_POLICY_FIRST, 0, KVBLK_POLICY_FIRST)	\
	X(second_permille, u32, KVBLK_POLICY_SECOND, 0, KVBLK_POLICY_SECOND)	\
	/* enum kvblk_check */							\
	X(integrity, u32, KVBLK_CHECK_FULL, 0, KVBLK_CHECK_PRODUCER)		\
	/* most bytes of a batch in flight */					\
	X(queue_bytes, u64, 256u << 20, 1u << 20, 1ull << 36)			\
	/* most bytes of puts in flight while gets are issued; 0: no limit */	\
	X(put_window_bytes, u64, 1u << 20, 0, 1ull << 36)				\
	/* time without a completion until a member is suspect */		\
	X(suspect_ms, u32, 5000, 100, 3600000)					\
	/* consecutive errors until a member is failing; 0: no limit */		\
	X(failing_run, u32, 32, 0, 1000000)					\
	/* errors in a second's I/O until a member is failing; 0: no limit */	\
	X(failing_permille, u32, 100, 0, 1000)					\
	/* 1: discard segments before reuse */					\
	X(discard, u32, 1, 0, 1)						\
	/* share of a member, and of DRAM, that may be leased */		\
	X(lease_permille, u32, 250, 0, 1000)					\
	/* most leased keys of an open file */					\
	X(lease_keys_max, u32, 1 << 20, 0, 1 << 24)				\
	/* segments reclaimed a second, above which an event is sent */		\
	X(reclaim_event_rate, u32, 16, 0, 1000000)				\
	/* interval of statistics; 0: none */					\
	X(stats_seconds, u32, 0, 0, 86400)					\
	/* DRAM for blocks; 0: none */						\
	X(dram_bytes, u64, 0, 0, 1ull << 44)					\
	/* enum kvblk_dram_mode */						\
	X(dram_mode, u32, KVBLK_DRAM_EVICT, 0, KVBLK_DRAM_TOUCHED)		\
	/* 1: keep blocks in DRAM that are requested again */			\
	X(dram_promote, u32, 0, 0, 1)						\
	/* most bounce chunks; see p2p/bounce.c */				\
	X(bounce_chunks, u32, KVBLK_BOUNCES, 0, KVBLK_BOUNCES_MAX)

#endif
