/* SPDX-License-Identifier: GPL-2.0 */
/* DRAM blocks. dram.c puts and finds them, demote.c evicts. */
#ifndef KVBLK_DRAM_H
#define KVBLK_DRAM_H

#include "log/log.h"

/* bytes that a CPU counts by itself before it adds them to those of all */
#define KVBLK_DRAM_BATCH	SZ_256K

/* ---- demote.c ---- */

int kvblk_dram_init(struct kvblk_pool *pool);
/* Writes needed blocks to members, drops the rest. No operation is in flight. May sleep. */
void kvblk_dram_close(struct kvblk_pool *pool);
void kvblk_dram_exit(struct kvblk_pool *pool);

/* ---- dram.c ---- */

/* Evicts DRAM blocks if dram_bytes was lowered. Called each second. Does not sleep. */
void kvblk_dram_tick(struct kvblk_pool *pool);
bool kvblk_dram_has_space(struct kvblk_pool *pool, u64 bytes);
/* Returns whether the tenant's quota has space for @bytes of DRAM blocks. */
static inline bool kvblk_dram_quota_fits(struct kvblk_account *account, s64 bytes)
{
	s64 quota = READ_ONCE(account->limits.dram);

	return likely(!quota) || (bytes <= quota &&
		__percpu_counter_compare(&account->dram, quota - bytes, KVBLK_DRAM_BATCH) <= 0);
}

/*
 * Allocates a block; the caller fills @rec, and @bv from 1 on. @recycle: @bv may have bytes of
 * another tenant, because the caller writes all of them. Returns NULL if dram_bytes or the tenant's
 * quota is reached, or memory is short. May sleep.
 */
struct kvblk_dram_block *kvblk_dram_block_new(struct kvblk_pool *pool,
					      struct kvblk_account *account, u32 length,
					      u32 key_len, bool recycle);
/* Inserts @obj, and consumes it. Returns 0, -EEXIST for a known id, -ENOSPC, -ENOMEM. May sleep. */
int kvblk_dram_block_enter(struct kvblk_pool *pool, struct kvblk_dram_block *obj);
/*
 * Keeps @obj as a copy of a member's block at @slot, with a reference. Eviction skips it until
 * kvblk_dram_block_queue(). Returns false if a valid copy exists or memory is short. May sleep.
 */
bool kvblk_dram_block_keep(struct kvblk_pool *pool, struct kvblk_dram_block *obj,
			   const struct kvblk_slot *slot);
/* Appends @obj at the hot end of its LRU list unless it was removed. Does not sleep. */
void kvblk_dram_block_queue(struct kvblk_pool *pool, struct kvblk_dram_block *obj);
/* Returns the DRAM block of index entry @slot with a reference, or NULL. */
struct kvblk_dram_block *kvblk_dram_block_get(struct kvblk_pool *pool, struct kvblk_id id,
					      const struct kvblk_slot *slot);
/* Queues a block found only in DRAM for a durable write to a member now. */
void kvblk_dram_flush(struct kvblk_pool *pool, struct kvblk_id id, const struct kvblk_slot *slot);
/*
 * Let a block leave DRAM. Demote: a copy of a member's block now, other blocks once a member has
 * them. Release: before others, unwritten, unless it is requested again or the release is
 * canceled; a cancel leaves the block's place in the list. pool->users is held.
 */
void kvblk_dram_demote(struct kvblk_pool *pool, struct kvblk_id id, const struct kvblk_slot *slot);
void kvblk_dram_release(struct kvblk_pool *pool, struct kvblk_id id, const struct kvblk_slot *slot);
void kvblk_dram_cancel_release(struct kvblk_pool *pool, struct kvblk_id id,
			       const struct kvblk_slot *slot);
bool kvblk_dram_holds(struct kvblk_pool *pool, struct kvblk_id id, const struct kvblk_slot *slot);
/*
 * Drop a reference. Return whether it was the last: then the memory is idle or, with _free, the
 * kernel's again. Any context.
 */
bool kvblk_dram_block_put(struct kvblk_dram_block *obj);
bool kvblk_dram_block_free(struct kvblk_dram_block *obj);
enum kvblk_verdict kvblk_dram_block_judge(const struct kvblk_pool *pool,
					  const struct kvblk_dram_block *obj);
/* Counts and reports that @obj no longer holds the bytes that were put. Any context. */
void kvblk_dram_block_damaged(struct kvblk_pool *pool, const struct kvblk_dram_block *obj);
/* Removes a damaged DRAM block, and its index entry if no member has the block. */
void kvblk_dram_block_spoil(struct kvblk_pool *pool, struct kvblk_dram_block *obj);
/* Removes the DRAM block of @id unless the index entry refers to it. */
void kvblk_dram_forget(struct kvblk_pool *pool, struct kvblk_id id);
/*
 * Removes the blocks in @nr segments from @first on, before the numbers are reused. No copy of
 * such a block may be added meanwhile. May sleep.
 */
void kvblk_dram_forget_segments(struct kvblk_pool *pool, u32 first, u32 nr);

/* ---- shared by dram.c and demote.c; only the last two may sleep ---- */

/* Returns the bytes charged for a block: whole pages. */
static inline u64 kvblk_dram_block_bytes(u32 length)
{
	return round_up((u64)length, PAGE_SIZE);
}

/*
 * Compares the size of all DRAM blocks to @bytes. Returns less than, equal to or more than 0. Exact
 * but for puts on other CPUs at the same time, or else each put would write a line that all share.
 */
static inline int kvblk_dram_compare(struct kvblk_dram *dram, s64 bytes)
{
	return __percpu_counter_compare(&dram->bytes, bytes, KVBLK_DRAM_BATCH);
}

/* Returns the bytes above which eviction starts. */
static inline u64 kvblk_dram_low(u64 limit)
{
	return limit - limit / 16;
}

/* Returns whether the entry of @obj's id, copied to @slot, has the place of @obj. */
bool kvblk_dram_block_current(struct kvblk_pool *pool, const struct kvblk_dram_block *obj,
			      struct kvblk_slot *slot);
void kvblk_dram_block_unqueue(struct kvblk_dram_node *node, struct kvblk_dram_block *obj);
/* Lists @obj as urgent. The caller queues dram.work and holds a reference. */
void kvblk_dram_block_flush(struct kvblk_pool *pool, struct kvblk_dram_block *obj);
/* Removes @obj from the table. The caller holds a reference. */
void kvblk_dram_block_remove(struct kvblk_pool *pool, struct kvblk_dram_block *obj);

/* Frees idle folios of a node. Returns their bytes: at least @bytes, unless fewer are idle. */
u64 kvblk_dram_idle_free(struct kvblk_pool *pool, int nid, u64 bytes);
/*
 * Frees idle folios that dram_bytes does not allow, about @most bytes. Returns whether some remain.
 */
bool kvblk_dram_idle_trim(struct kvblk_pool *pool, u64 most);

/* Initialises the table and lists. Returns 0 or -ENOMEM. */
int kvblk_dram_blocks_init(struct kvblk_pool *pool);
void kvblk_dram_blocks_exit(struct kvblk_pool *pool);

#endif
