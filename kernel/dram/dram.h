/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Shared by dram.c, which puts and finds DRAM blocks, and demote.c, which evicts. Only
 * kvblk_dram_blocks_init() and kvblk_dram_blocks_exit() may sleep.
 */
#ifndef KVBLK_DRAM_H
#define KVBLK_DRAM_H

/* Returns the bytes charged for a block: whole pages. */
static inline u64 kvblk_dram_block_bytes(u32 length)
{
	return round_up((u64)length, PAGE_SIZE);
}

/* Returns the bytes above which eviction starts. */
static inline u64 kvblk_dram_low(u64 limit)
{
	return limit - limit / 16;
}

/* Returns whether the entry of @obj's id, copied to @slot, has the place of @obj. */
bool kvblk_dram_block_current(struct kvblk_pool *pool, const struct kvblk_dram_block *obj,
			      struct kvblk_slot *slot);
/* Takes @obj off its list; node->lock is held. */
void kvblk_dram_block_unqueue(struct kvblk_dram_node *node, struct kvblk_dram_block *obj);
/* Lists @obj as urgent. The caller queues dram.work and holds a reference. */
void kvblk_dram_block_flush(struct kvblk_pool *pool, struct kvblk_dram_block *obj);
/* Removes @obj from the table. The caller holds a reference. */
void kvblk_dram_block_remove(struct kvblk_pool *pool, struct kvblk_dram_block *obj);

/* Initialises the table and lists. Returns 0 or -ENOMEM. */
int kvblk_dram_blocks_init(struct kvblk_pool *pool);
void kvblk_dram_blocks_exit(struct kvblk_pool *pool);

#endif
