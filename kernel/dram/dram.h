/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Between the two rooms of the host's memory: dram.c, where blocks come and are found,
 * and demote.c, by which they leave.
 */
#ifndef KVBLK_DRAM_H
#define KVBLK_DRAM_H

/* What it is counted as: whole pages. */
static inline u64 kvblk_object_bytes(u32 length)
{
	return round_up((u64)length, PAGE_SIZE);
}

/* With more than so much it begins to make room. */
static inline u64 kvblk_dram_low(u64 limit)
{
	return limit - limit / 16;
}

/* Its entry says the same place; @slot: the entry, if so. No sleep, as none of these. */
bool kvblk_object_current(struct kvblk_pool *pool, const struct kvblk_object *obj,
			  struct kvblk_slot *slot);
/* Off it; the node's lock is held. */
void kvblk_object_unqueue(struct kvblk_dram_node *node, struct kvblk_object *obj);
/* Has @obj demoted now; the caller queues dram.work, and has a reference. */
void kvblk_object_urge(struct kvblk_pool *pool, struct kvblk_object *obj);
/* Gets find @obj no more. The caller has a reference. */
void kvblk_object_remove(struct kvblk_pool *pool, struct kvblk_object *obj);

/* 0 or -ENOMEM; then kvblk_objects_exit() at the end. Both may sleep. */
int kvblk_objects_init(struct kvblk_pool *pool);
void kvblk_objects_exit(struct kvblk_pool *pool);

#endif
