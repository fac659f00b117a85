/* SPDX-License-Identifier: GPL-2.0 */
/* Pools and their members: how they come, are watched, and go. */
#ifndef KVBLK_POOL_H
#define KVBLK_POOL_H

#include "log/log.h"

/* ---- pool.c, assemble.c ---- */

/**
 * struct kvblk_above - what pools have of the rooms above theirs
 * @fops: of the node
 * @nvme_fops: of the node that takes NVMe commands
 * @groups: the node's attributes
 * @rescue: pool->rescue_work
 * @tell_stats: pool->stats_work
 * @pool_init: what they keep in a new pool; 0 or -ENOMEM
 * @pool_exit: nobody knows the pool any more
 * @pool_up: after device_add(): members/
 * @pool_down: undoes it
 * @member_up: members/<name>/; may sleep, as the next one
 * @member_down: undoes it
 */
struct kvblk_above {
	const struct file_operations *fops;
	const struct file_operations *nvme_fops;
	const struct attribute_group **groups;
	work_func_t rescue;
	work_func_t tell_stats;
	int (*pool_init)(struct kvblk_pool *pool);
	void (*pool_exit)(struct kvblk_pool *pool);
	int (*pool_up)(struct kvblk_pool *pool);
	void (*pool_down)(struct kvblk_pool *pool);
	int (*member_up)(struct kvblk_member *member);
	void (*member_down)(struct kvblk_member *member);
};

/* main.c's. */
extern const struct kvblk_above *kvblk_above;

/* Class and device numbers. */
int kvblk_pools_init(const struct kvblk_above *above);
void kvblk_pools_exit(void);
extern struct list_head kvblk_pools;
extern struct mutex kvblk_pools_lock;

struct netlink_ext_ack;

/* What an administrator asks for; filled by netlink. */
struct kvblk_member_spec {
	char *path;			/* kvblk_member_open() takes it, and leaves NULL */
	char name[KVBLK_NAME_MAX];	/* that a new member is to have, or "" */
	char place[KVBLK_PLACE_MAX];	/* where the device is, or "" */
	dev_t dev;			/* what @path means to the administrator */
	u32 segment_size;		/* bytes; 0: chosen */
};

#define KVBLK_ADD_FORMAT	BIT(0)	/* whatever is on it */
#define KVBLK_ADD_FORCE		BIT(1)	/* take it from its owner, or though it may be a copy */
#define KVBLK_ADD_DEGRADED	BIT(2)	/* import without what is missing or out of date */
#define KVBLK_ADD_RENAME	BIT(3)	/* import under another name */

/**
 * struct kvblk_pool_spec - a pool that is to be made or to come back
 * @name: of it
 * @pool_flags: KVBLK_SBF_*, of a new one
 * @index_slots: entries of the index; 0: as many as before, or by the capacity
 * @node: 16 bytes, the identity of this host; all zeroes: not known
 * @members: its devices
 * @nr_members: of them
 */
struct kvblk_pool_spec {
	const char *name;
	u32 pool_flags;
	u64 index_slots;
	const u8 *node;
	struct kvblk_member_spec *members;
	u32 nr_members;
};

/*
 * All of these may sleep, take pool->admin where they need it, and put a
 * sentence into @extack on every error.
 *
 * kvblk_pool_create: a new pool of empty members. -EEXIST name in use, -EINVAL bad
 * name, and the errors of kvblk_member_add. All members come, or nothing does.
 * kvblk_pool_import: the pool that the devices are members of. Errors as of
 * kvblk_pool_create, and: -ENODATA a device is no member, -EXDEV a device is of
 * another pool, -ENODEV a member is missing, -ESTALE one is out of date, -ENOSPC
 * fewer index slots than before and not @force.
 * kvblk_pool_destroy: -ENOENT; -EBUSY when its node is open and not @force. 0 with a
 * sentence: it is down, but a member's superblock could not be written.
 * kvblk_member_add: -EEXIST this member is active, -EBUSY device in use,
 * -EINVAL device unfit, -ENOTEMPTY it holds something else, -EUCLEAN damaged,
 * -EPROTONOSUPPORT of a newer version, -EREMOTE owned by another node, -ESTALE a
 * member of this pool whose blocks are out of date.
 * kvblk_member_remove: by name, or (@uuid) by that. -ENOENT; asynchronous, an event
 * tells the end, unless the member is missing. 0 with a sentence: others do not know yet,
 * and deletes fail.
 */
int kvblk_pool_create(const struct kvblk_pool_spec *spec, u32 add_flags,
		      struct netlink_ext_ack *extack);
int kvblk_pool_import(const struct kvblk_pool_spec *spec, u32 add_flags,
		      struct netlink_ext_ack *extack);
int kvblk_pool_destroy(const char *name, bool force,
		       struct netlink_ext_ack *extack);
/* Takes a reference on the pool's device (put_device(&pool->dev)), or NULL. */
struct kvblk_pool *kvblk_pool_find(const char *name);
int kvblk_member_add(struct kvblk_pool *pool,
		     struct kvblk_member_spec *spec, u32 add_flags,
		     struct netlink_ext_ack *extack);
int kvblk_member_remove(struct kvblk_pool *pool, const char *name,
			const uuid_t *uuid, struct netlink_ext_ack *extack);

/* Longest block that a member that is up can take. */
u32 kvblk_pool_value_max(struct kvblk_pool *pool);
/* No member holds such a block, whether it answers now or not. */
bool kvblk_pool_too_long(struct kvblk_pool *pool, u32 bytes);
/* Bytes of all members that serve, and of their free segments. */
u64 kvblk_pool_capacity(struct kvblk_pool *pool);
u64 kvblk_pool_free_bytes(struct kvblk_pool *pool);

/* ---- member.c, superblock.c, watchdog.c ---- */

/* What is on a device that is to become a member. */
enum kvblk_found {
	KVBLK_FOUND_BLANK,
	KVBLK_FOUND_MEMBER,
	KVBLK_FOUND_OTHER,
	KVBLK_FOUND_DAMAGED,
	KVBLK_FOUND_NEWER,
	KVBLK_FOUND_FORMER,		/* a member once: something else was written there since */
	KVBLK_FOUND_SHRUNK,		/* a member of more bytes */
};

/*
 * The life that a member's blocks are of: what it was last active in. An
 * activation that got no further than superblocks is none.
 */
struct kvblk_life {
	u64 epoch;
	u64 activation;
};

struct kvblk_life kvblk_super_life(const struct kvblk_d_super *sb);
/*
 * Of this life, or about to be when it began. Deletes may have passed by any other
 * member.
 */
bool kvblk_super_lived(const struct kvblk_d_super *sb, const struct kvblk_life *life);

/* Opens the device and reads its superblocks into @sb. */
struct kvblk_member *kvblk_member_open(struct kvblk_pool *pool,
				       struct kvblk_member_spec *spec,
				       struct kvblk_d_super *sb,
				       enum kvblk_found *found,
				       struct netlink_ext_ack *extack);
void kvblk_member_free(struct kvblk_member *member);
/* Refuses, with a sentence, to overwrite or use @sb, which was found there. */
int kvblk_found_unfit(struct kvblk_member *member, const struct kvblk_d_super *sb,
		      enum kvblk_found found, u32 add_flags,
		      struct netlink_ext_ack *extack);
/* Geometry from @sb, or (NULL) a new one: memory only. */
int kvblk_member_setup(struct kvblk_member *member, const struct kvblk_d_super *sb,
		       u32 segment_size, struct netlink_ext_ack *extack);
/*
 * Lists the member in the roster, under its name there or (@spec, or NULL: one that
 * comes back) that of a new one. Returns 0, -EEXIST or -ENOSPC, with a sentence.
 */
int kvblk_member_list(struct kvblk_member *member, const struct kvblk_member_spec *spec,
		      struct netlink_ext_ack *extack);
/* Gives it segment numbers: -ENOSPC. */
int kvblk_member_place(struct kvblk_member *member, struct netlink_ext_ack *extack);
/* Formats it, writes its superblocks. */
int kvblk_member_prepare(struct kvblk_member *member, u16 state,
			 struct netlink_ext_ack *extack);
/*
 * Makes it active and visible, and starts to restore it. The caller keeps
 * pool->users from ending.
 */
int kvblk_member_start(struct kvblk_member *member, struct netlink_ext_ack *extack);
/* Stops background work; seals what is open, if the device takes it. */
void kvblk_member_stop(struct kvblk_member *member);
/* Reads both superblocks; the newest valid one ends in @sb, of a former member too. */
int kvblk_super_read(struct kvblk_member *member, struct kvblk_d_super *sb,
		     enum kvblk_found *found);
/* @epoch: of the pool. Nothing else may write the member's superblocks meanwhile. */
int kvblk_super_write(struct kvblk_member *member, u16 state, u64 epoch);
/* A removed member is nobody's: its superblocks are zeroed. */
bool kvblk_super_wipe(struct kvblk_member *member);
/* The same of all where others may look for what is theirs, for a new member. */
bool kvblk_super_wipe_all(struct kvblk_member *member);
/* member->super_work: the pool's epoch into its superblock. */
void kvblk_super_work(struct work_struct *work);
/*
 * Has the pool's epoch told to the members that have an older one and answer.
 * No sleep.
 */
void kvblk_pool_tell_epoch(struct kvblk_pool *pool);
/*
 * Begins the seqs of the next epoch once half of this one's are used up and all members
 * know that epoch. Each second; no sleep.
 */
void kvblk_pool_seq(struct kvblk_pool *pool);
/* They all know it. */
bool kvblk_pool_told(struct kvblk_pool *pool);
/*
 * When all that stay know the pool's epoch, what lost members hold can't come
 * back: pool->unsure. pool->admin held. Returns how many do not know it.
 */
u32 kvblk_pool_settle(struct kvblk_pool *pool);
/*
 * Ends that @member is counted in pool->unsure; pool->admin held. Returns how many times
 * it was.
 */
u32 kvblk_member_unsure_end(struct kvblk_member *member);
/*
 * Restores an unrestored member of which nothing has been read yet. Returns false if it
 * has to leave and come back instead, through its filter. pool->admin held.
 */
bool kvblk_member_retry(struct kvblk_member *member);
/* Has the segments read again that could not be, or given up; pool->admin held. */
void kvblk_member_reread(struct kvblk_member *member, bool forfeit);
/*
 * Each second: if a delete was refused for what nobody has read, that is given up, so
 * that the next ones are not. No sleep.
 */
void kvblk_pool_give_up(struct kvblk_pool *pool);
/* Another node has it, and it is not to be taken all the same: with a sentence. */
bool kvblk_super_owned(struct kvblk_member *member, const struct kvblk_d_super *sb,
		       u32 add_flags, struct netlink_ext_ack *extack);
/* Its superblock has an old epoch, roster or time, and is to have the new one. */
bool kvblk_member_untold(const struct kvblk_member *member);
/* What members can take directly; pool->admin held. */
void kvblk_pool_limits(struct kvblk_pool *pool);
/* A member of this uuid, and not dead, is in use on this node; takes kvblk_pools_lock. */
bool kvblk_member_active(const u8 uuid[16]);
/* Each second; no sleep. */
void kvblk_member_watch(struct kvblk_member *member);
/* What it keeps in a new member. */
void kvblk_watch_init(struct kvblk_member *member);

#endif
