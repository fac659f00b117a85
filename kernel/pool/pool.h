/* SPDX-License-Identifier: GPL-2.0 */
/* Pools and their members: assembly, superblocks, watchdog, removal. */
#ifndef KVBLK_POOL_H
#define KVBLK_POOL_H

#include <linux/unaligned.h>

#include "dram/dram.h"
#include "memory/cipher.h"

/* ---- pool.c, assemble.c ---- */

/* Callbacks into the layers above pools; all may sleep. */
struct kvblk_upper_ops {
	const struct file_operations *fops[KVBLK_NODES];
	const struct file_operations *tenant_fops;
	const struct attribute_group **groups;
	work_func_t rescue;		/* of pool->rescue_work */
	work_func_t report_stats;	/* of pool->stats_work */
	int (*pool_init)(struct kvblk_pool *pool);	/* the upper layers' fields; 0 or -ENOMEM */
	void (*pool_exit)(struct kvblk_pool *pool);	/* after the last reference is put */
	/* sysfs members/ and tenants/, after device_add() */
	int (*pool_up)(struct kvblk_pool *pool);
	void (*pool_down)(struct kvblk_pool *pool);	/* before device_del() */
	int (*member_up)(struct kvblk_member *member);	/* sysfs members/<name>/ */
	void (*member_down)(struct kvblk_member *member);
	/* sysfs tenants/<name>/ */
	int (*tenant_up)(struct kvblk_pool *pool, const char *name, u16 tenant);
	void (*tenant_down)(struct kvblk_pool *pool, u16 tenant);
};

extern const struct kvblk_upper_ops *kvblk_upper_ops;

int kvblk_pools_init(const struct kvblk_upper_ops *upper_ops);
void kvblk_pools_exit(void);
extern struct list_head kvblk_pools;
extern struct mutex kvblk_pools_lock;

struct netlink_ext_ack;

/* Set a message for the administrator, at most 79 characters. Returns @err. */
#define kvblk_refuse(extack, err, fmt, ...)				\
({									\
	NL_SET_ERR_MSG_FMT(extack, fmt, ##__VA_ARGS__);			\
	(err);								\
})

/* A device as the administrator named it; filled by netlink. */
struct kvblk_member_spec {
	char *path;			/* kvblk_member_open() takes ownership and sets NULL */
	char name[KVBLK_NAME_MAX];	/* of a new member, or "" */
	char place[KVBLK_PLACE_MAX];	/* where the device is, or "" */
	dev_t dev;			/* device number of @path */
	u32 segment_size;		/* bytes; 0: choose by capacity */
	bool hinted;			/* follow: &kvblk_foreign.hinted */
};

#define KVBLK_ADD_FORMAT	BIT(0)	/* overwrite whatever the device holds */
#define KVBLK_ADD_FORCE		BIT(1)	/* ignore another owner, or signs of an old copy */
#define KVBLK_ADD_DEGRADED	BIT(2)	/* import without missing or outdated members */
#define KVBLK_ADD_RENAME	BIT(3)	/* import under another name */

/* A pool to create or import. */
struct kvblk_pool_spec {
	bool import;
	const char *name;
	u32 pool_flags;			/* KVBLK_SBF_* of a new pool */
	u64 index_slots;		/* 0: as before, or chosen by capacity */
	u8 node[16];			/* this host's identity, zeroes if unknown */
	const u8 *preempt;		/* import: identity of the dead owner, or NULL */
	char pod[KVBLK_NAME_MAX];	/* name of a new pool's pod, or "" */
	dev_t pod_of;			/* member of the pod to join, or 0: a new pod */
	struct kvblk_member_spec *members;
	u32 nr_members;
};

/*
 * The calls of administrators may sleep, take pool->admin, and set a message on every error.
 * pool_assemble: all members or none. -EEXIST name in use, -EINVAL bad name, and errors of
 *	member_add. Import: -ENODATA a device is no member, -EXDEV it is of another pool, -ENODEV a
 *	member is missing, -ENOSPC fewer index slots than before without KVBLK_ADD_FORCE. Of
 *	@pod_of: -ENODATA no member, -EXDEV in no pod or in another one, -EUCLEAN damaged.
 * pool_destroy: -ENOENT, -EBUSY the node is open, without @force. Returns 0 with a message if a
 *	superblock could not be written.
 * member_add: -EEXIST the member is active, -EBUSY device in use, -EINVAL unsuitable device,
 *	-ENOTEMPTY other data, -EUCLEAN damaged, -EPROTONOSUPPORT newer version, -EREMOTE
 *	owned by another node, -ESTALE a member of this pool with outdated blocks.
 * member_remove: by @uuid or, if NULL, by @name. -ENOENT. An event reports the end, unless the
 *	member is missing. Returns 0 with a message if the others cannot record the new epoch.
 */
int kvblk_pool_assemble(const struct kvblk_pool_spec *spec, u32 add_flags,
			struct netlink_ext_ack *extack);
int kvblk_pool_destroy(const char *name, bool force, struct netlink_ext_ack *extack);
int kvblk_member_add(struct kvblk_pool *pool, struct kvblk_member_spec *spec, u32 add_flags,
		     struct netlink_ext_ack *extack);
int kvblk_member_remove(struct kvblk_pool *pool, const char *name, const uuid_t *uuid,
			struct netlink_ext_ack *extack);
/* Return a pool or NULL: _named with kvblk_pools_lock held, _find with a device reference. */
struct kvblk_pool *kvblk_pool_named(const struct list_head *list, const char *name);
struct kvblk_pool *kvblk_pool_find(const char *name);

/* Free all dead entries of the index. May sleep. */
void kvblk_pool_sweep(struct kvblk_pool *pool);
/* Return the longest block for an available member. */
u32 kvblk_pool_value_max(struct kvblk_pool *pool, bool encrypted);
/* Return whether no member, available or not, can store @bytes. */
bool kvblk_pool_too_long(struct kvblk_pool *pool, bool encrypted, u32 bytes);

/* Sums of a pool's members in use; free_bytes and free_segs of members that are UP. */
struct kvblk_space {
	u64 bytes;
	u64 free_bytes;
	u32 segs;
	u32 free_segs;
};

struct kvblk_space kvblk_pool_space(struct kvblk_pool *pool);

/*
 * Called each second; none sleeps. pool_seq begins the next epoch if half of the seqs are used, and
 * takes seqs from it once all members have recorded it. pool_give_up drops unread segments if a
 * delete was refused for them. pool_write_epoch queues writes of outdated superblocks. pool_grace
 * keeps a lowered reuse_grace_ms' former value for as long as followers may rely on it.
 */
void kvblk_pool_grace(struct kvblk_pool *pool);
void kvblk_pool_seq(struct kvblk_pool *pool);
void kvblk_pool_give_up(struct kvblk_pool *pool);
void kvblk_pool_write_epoch(struct kvblk_pool *pool);
void kvblk_flash_watch(struct kvblk_flash *flash);	/* checks a device's progress and errors */

/*
 * Return whether all members in use have recorded change @seq of the member list or the tenants.
 * If not, @name is one that has not. A returning member need not: after a crash it is out of date.
 * Takes pool->admin.
 */
bool kvblk_pool_list_recorded(struct kvblk_pool *pool, u64 seq, char name[KVBLK_NAME_MAX]);
/* Write outdated superblocks, and wait for some seconds until no writable member has one. */
void kvblk_pool_write_supers(struct kvblk_pool *pool);

/* Time in which io_uring closes a node after its process has exited, jiffies. */
#define KVBLK_CLOSE_TIME	(3 * HZ)

/* ---- number.c ---- */

#define KVBLK_NODE_TENANT	KVBLK_NODES	/* kind of a tenant's node, behind a pool's kinds */

int kvblk_numbers_init(void);
void kvblk_numbers_exit(void);
/*
 * Take the number of @tenant of a pool, 0: of the pool's nodes. It stays theirs until the module is
 * unloaded. Returns the number, for kvblk_number_drop(), or an ERR_PTR(): ENOMEM, or ENOSPC no
 * number is left.
 */
struct kvblk_number *kvblk_number_take(const uuid_t *pool, u16 tenant);
void kvblk_number_drop(struct kvblk_number *number);
dev_t kvblk_number_devt(const struct kvblk_number *number, u32 kind);

/* ---- tenant.c ---- */

/* A tenant to create; filled by netlink. */
struct kvblk_tenant_spec {
	char name[KVBLK_NAME_MAX];
	u32 mode;			/* permission bits of the node */
	u32 uid;			/* owner of the node, in the initial user namespace */
	u32 gid;
	bool encrypted;
	u8 key[KVBLK_KEY_BYTES];	/* if @encrypted */
};

/* Bits of &kvblk_tenant_set.given, one for each field of a request. */
#define KVBLK_TENANT_MODE		BIT(0)
#define KVBLK_TENANT_UID		BIT(1)
#define KVBLK_TENANT_GID		BIT(2)
#define KVBLK_TENANT_NODE		GENMASK(2, 0)
#define KVBLK_TENANT_BYTES		BIT(3)
#define KVBLK_TENANT_BYTES_SOFT		BIT(4)
#define KVBLK_TENANT_BLOCKS		BIT(5)
#define KVBLK_TENANT_BLOCKS_SOFT	BIT(6)
#define KVBLK_TENANT_DRAM		BIT(7)
#define KVBLK_TENANT_SHARE		BIT(8)	/* weight */
#define KVBLK_TENANT_SHARED		BIT(9)

/* A change of a tenant; filled by netlink. */
struct kvblk_tenant_set {
	u32 given;			/* KVBLK_TENANT_*; the rest stays */
	struct kvblk_tenant_spec spec;
	struct kvblk_tenant_limits limits;
	char shared[KVBLK_NAME_MAX];	/* tenant that it reads, too; "": none */
};

int kvblk_tenants_class_init(void);
void kvblk_tenants_class_exit(void);
/* Allocate the table. Returns 0 or -ENOMEM. kvblk_tenants_exit() frees it, after the last user. */
int kvblk_tenants_init(struct kvblk_pool *pool);
void kvblk_tenants_exit(struct kvblk_pool *pool);
/* Free the admissions of tenants, after the last put, the last demotion and reclaim. */
void kvblk_admissions_exit(struct kvblk_pool *pool);
/* Add the nodes of all tenants of a pool that is being assembled. Returns 0 or an error. */
int kvblk_tenants_add(struct kvblk_pool *pool, struct netlink_ext_ack *extack);
/* Remove the nodes of a pool that goes away. May sleep. */
void kvblk_tenants_del(struct kvblk_pool *pool);
/*
 * The calls of administrators set a message on every error, and may sleep for seconds. They return
 * -ENODEV if the pool goes away, and
 * create: -EINVAL bad name or owner, -EEXIST name in use or reserved, -ENOSPC no slot or id is
 *	left, -EIO a member could not record that the id is given, -ENOTUNIQ as kvblk_agree_id().
 * remove, clear: -EINVAL bad name or "default", -ENOENT, -EBUSY the node is open, without @force.
 *	Only clear: -ENOSPC, -EIO as create.
 * set: -EINVAL bad name or owner, the node of "default", or a soft limit above its hard one,
 *	-ENOENT, -EIO a member could not record mode or owner. It changes all that is given, or
 *	nothing.
 * key: -EINVAL bad name, or the tenant is not encrypted, -ENOENT, -EKEYREJECTED another key.
 * The others return 0 with a message if a member could not record the new table.
 */
int kvblk_tenant_create(struct kvblk_pool *pool, const struct kvblk_tenant_spec *spec,
			struct netlink_ext_ack *extack);
int kvblk_tenant_remove(struct kvblk_pool *pool, const char *name, bool force,
			struct netlink_ext_ack *extack);
int kvblk_tenant_clear(struct kvblk_pool *pool, const char *name, bool force,
		       struct netlink_ext_ack *extack);
int kvblk_tenant_set(struct kvblk_pool *pool, const struct kvblk_tenant_set *set,
		     struct netlink_ext_ack *extack);
int kvblk_tenant_key(struct kvblk_pool *pool, const struct kvblk_tenant_spec *spec,
		     struct netlink_ext_ack *extack);
/* Copy slot @i of the table. Returns whether a tenant is there. Does not sleep. */
bool kvblk_tenant_entry(struct kvblk_pool *pool, u32 i, struct kvblk_d_tenant *entry);
/* Return the tenant in use whose blocks reads of @tenant find, too, or -1. Any context. */
static inline int kvblk_tenant_shared(const struct kvblk_pool *pool, u16 tenant)
{
	const int shared = READ_ONCE(pool->tenants.shared[tenant]) - 1;

	return likely(shared < 0) || !test_bit(shared, pool->tenants.live) ? -1 : shared;
}

/* Copy the name of the tenant that @tenant reads, too. Returns false if there is none. */
bool kvblk_tenant_shared_name(struct kvblk_pool *pool, u16 tenant, char name[KVBLK_NAME_MAX]);

/* ---- tenant_key.c ---- */

/* Return whether the key of an encrypted tenant is missing. */
bool kvblk_tenant_locked(struct kvblk_pool *pool, u16 tenant);
/* Return the cipher of a record, with a reference, or an ERR_PTR(): -ENOKEY. May sleep. */
struct kvblk_cipher *kvblk_tenant_cipher(struct kvblk_pool *pool, u16 tenant, u64 activation,
					 u16 epoch);
/*
 * Set the key of the encrypted tenant @entry, or with @new its check, too. Returns 0, or an errno
 * with a message: -EKEYREJECTED another key. tenants.lock, as for the next two.
 */
int kvblk_tenant_key_set(struct kvblk_pool *pool, const u8 *bytes, struct kvblk_d_tenant *entry,
			 bool new, struct netlink_ext_ack *extack);
void kvblk_tenant_key_drop(struct kvblk_pool *pool, u16 tenant);
/* Move the key, if any, to another id of the tenant, which without memory is locked. */
void kvblk_tenant_key_move(struct kvblk_pool *pool, u16 from, u16 to);
void kvblk_tenant_keys_drop(struct kvblk_pool *pool);

/* ---- follow.c ---- */

/*
 * kvblk_follow() opens another node's member for reading, and begins to enter its blocks into the
 * index. Returns 0, -EINVAL the pool is in no pod, -EXDEV the device is not in it, -EEXIST it is a
 * member here or followed, -ENODATA no member, -ENOTUNIQ a tenant is in conflict, and errors of
 * opening, with a message. May sleep.
 * kvblk_unfollow(): by @uuid or, if NULL, by @name. Returns 0 or -ENOENT. Waits for the device.
 */
int kvblk_follow(struct kvblk_pool *pool, struct kvblk_member_spec *spec,
		 struct netlink_ext_ack *extack);
int kvblk_unfollow(struct kvblk_pool *pool, const char *name, const uuid_t *uuid);
void kvblk_unfollow_all(struct kvblk_pool *pool);	/* pool->users is drained */
/* Let a pool of this host take the device @dev, which another one follows. May sleep. */
void kvblk_foreign_share(dev_t dev);
/* Find a foreign member by @uuid or, if NULL, by @name. RCU or pool->admin. */
struct kvblk_foreign *kvblk_foreign_named(struct kvblk_pool *pool, const char *name,
					  const uuid_t *uuid);
/* Return the foreign member of a segment with flash.ref, or NULL if not in use. */
struct kvblk_foreign *kvblk_foreign_get(struct kvblk_pool *pool, u32 seg);
bool kvblk_foreign_served(struct kvblk_pool *pool, const struct kvblk_slot *slot);
/* Return whether a read that is complete found @segment in generation @gen all the time. */
bool kvblk_foreign_believed(const struct kvblk_foreign *foreign, u32 segment, u64 gen);
/* Return until when, of ktime_get_ns(), reads of a foreign block are believed without a poll. */
u64 kvblk_foreign_until(struct kvblk_pool *pool, const struct kvblk_slot *slot);
/* Return the newer valid one of a page's slots, or NULL. */
const struct kvblk_d_table *kvblk_foreign_table(const struct kvblk_foreign *foreign, u32 page,
						const struct kvblk_d_table slots[2]);
/* Convert a time of the owner's clock to the pool's. */
u32 kvblk_foreign_expiry(const struct kvblk_foreign *foreign, u32 expiry);
void kvblk_foreign_poll_now(struct kvblk_foreign *foreign);
/*
 * Poll the member that @anchor names, and scan the segment unless the table shows that it was
 * reused. @hint: number of this hint, not less than before. Returns the first segment number of
 * the member, for kvblk_foreign_polled(), or 0 if the hint is not followed.
 */
u32 kvblk_foreign_hint(struct kvblk_pool *pool, const struct kvblk_anchor *anchor, u64 hint);
/* Return whether a poll has followed @hint, or none will. */
bool kvblk_foreign_polled(struct kvblk_pool *pool, u32 seg_base, u64 hint);
void kvblk_foreign_stats(const struct kvblk_foreign *foreign, struct kvblk_foreign_stats *sum);

/* ---- agree.c ---- */

/* Keep the table of tenants in @sb. Only poll, or unpublished. Returns 0 or -ENOMEM. */
int kvblk_agree_note(struct kvblk_foreign *foreign, const struct kvblk_d_super *sb);
/* Compare the tables if one has changed. Returns whether more tenants agree. Only poll. */
bool kvblk_agree_update(struct kvblk_foreign *foreign);
/* Refuse, with -ENOTUNIQ and a message, an unpublished member whose tenants are in conflict. */
int kvblk_agree_check(const struct kvblk_foreign *foreign, struct netlink_ext_ack *extack);
/*
 * Return an id, not given here before, for the new tenant @name; with @clear, for a new life of it.
 * Returns, with a message, -ENOTUNIQ if another node has the tenant with an id that was given here
 * before. May sleep for seconds. pool->tenants.lock.
 */
int kvblk_agree_id(struct kvblk_pool *pool, const char *name, bool clear,
		   struct netlink_ext_ack *extack);
/* Copy the name of a tenant in conflict with the member's node. Returns false if there is none. */
bool kvblk_agree_conflict(const struct kvblk_foreign *foreign, char name[KVBLK_NAME_MAX]);
/* Return whether a block of @tenant in a foreign segment is one of this pool's tenant. */
bool kvblk_foreign_agrees(struct kvblk_pool *pool, u32 seg, u16 tenant);
/* &kvblk_index.unshared: not kvblk_foreign_agrees(). Does not sleep. */
bool kvblk_index_unshared(const struct kvblk_index *idx, u32 seg, u16 tenant);

/* Return whether each node has @tenant, with the same id. */
static inline bool kvblk_tenant_common(u16 tenant)
{
	return !tenant || tenant == KVBLK_NVME_TENANT;
}

/* Return whether blocks of @tenant on a foreign member are entered and served. */
static inline bool kvblk_tenant_followed(const struct kvblk_foreign *foreign, u16 tenant)
{
	return kvblk_tenant_common(tenant) || test_bit(tenant, foreign->agreed);
}

/* Return whether other nodes may have blocks of @tenant. */
static inline bool kvblk_tenant_in_pod(const struct kvblk_pool *pool, u16 tenant)
{
	return kvblk_tenant_common(tenant) || test_bit(tenant, pool->foreign.agreed);
}

/* ---- touch.c ---- */

#define KVBLK_ID_BYTES	16

/* An id between nodes: two little-endian numbers. */
static inline void kvblk_id_pack(u8 *to, struct kvblk_id id)
{
	put_unaligned_le64(id.hi, to);
	put_unaligned_le64(id.lo, to + 8);
}

static inline struct kvblk_id kvblk_id_unpack(const u8 *from)
{
	return (struct kvblk_id) { get_unaligned_le64(from), get_unaligned_le64(from + 8) };
}

/* Blocks of one owner. */
struct kvblk_touches_taken {
	uuid_t pool;			/* the owner's */
	u8 node[16];			/* id of the owner */
	u8 *ids;			/* array of @room packed ids */
	u32 room;
	u32 nr;
};

/* Allocate the memory of touches, once. Returns 0 or -ENOMEM. pool->admin. */
int kvblk_touches_init(struct kvblk_pool *pool);
void kvblk_touches_exit(struct kvblk_pool *pool);	/* without users */
/* Remember a get of a foreign block, in @seg. Process context. */
void kvblk_touch_note(struct kvblk_pool *pool, struct kvblk_id id, u32 seg);
/* Move remembered blocks of one owner to @take->ids. @take->nr is 0 if there is none. */
void kvblk_touches_take(struct kvblk_pool *pool, struct kvblk_touches_taken *take);
/* Count @nr blocks as hits. Ids of blocks that are not here or foreign are ignored. */
void kvblk_touch(struct kvblk_pool *pool, const u8 *ids, u32 nr);

/* ---- anchors.c ---- */

/* kvblk_peers_queue.anchors: report anchors of own members to the daemon. */
void kvblk_anchors_work(struct work_struct *work);

/* ---- peers.c ---- */

#define KVBLK_ASK_IDS	64u		/* most in a question */

struct kvblk_question;

/* Return one of how many blocks is an anchor while lookups may ask, or else 0. */
static inline u32 kvblk_peers_span(const struct kvblk_pool *pool)
{
	return READ_ONCE(pool->peers.span);
}

/*
 * Ask where missing blocks are, up to KVBLK_ASK_IDS, and follow the hints until @end. Returns 1:
 * members were polled, look again; 0: nothing is known in time; -EINTR: killed. Sleeps.
 */
int kvblk_peers_ask(struct kvblk_pool *pool, const struct kvblk_id *ids, u32 nr, ktime_t end);
/* Give the daemon an anchor. Returns 0, -EAGAIN: it must read first, or -ENODEV: there is none. */
int kvblk_peers_note(struct kvblk_pool *pool, const struct kvblk_anchor *anchor);
/* Tell the daemon of @session that all present anchors were reported. */
void kvblk_peers_caught_up(struct kvblk_pool *pool, u64 session);
/* Return whether a daemon takes deletes of foreign blocks. */
static inline bool kvblk_peers_may_delete(const struct kvblk_pool *pool)
{
	return READ_ONCE(pool->peers.delete_ms);
}

/* Ask the owner of segment @seg to delete a block. Returns NULL if that is not possible. */
struct kvblk_question *kvblk_peers_delete(struct kvblk_pool *pool, struct kvblk_id id, u32 seg);
/* Return whether the question is answered, late, or lost with its daemon. */
bool kvblk_question_over(const struct kvblk_question *question);
/* Wait for that, at most @step jiffies. Returns as wait_event_killable_timeout(). */
long kvblk_question_wait(const struct kvblk_question *question, long step);
/* Return the answer to a delete, or -EREMOTE if there is none. */
int kvblk_question_result(const struct kvblk_question *question);
/* Withdraw and free a question, or NULL. */
void kvblk_question_drop(struct kvblk_question *question);

struct poll_table_struct;

void kvblk_peers_init(struct kvblk_pool *pool);
/* Make @filp a daemon that is not started. Returns 0 or -ENOMEM. */
int kvblk_peers_open(struct kvblk_pool *pool, struct file *filp);
/* Start it; the caller has checked @arg. Returns as KVBLK_IOC_PEERS. */
int kvblk_peers_start(struct file *filp, const struct kvblk_peers *arg);
/* File operations of a daemon. */
ssize_t kvblk_peers_read(struct file *filp, char __user *buf, size_t len, loff_t *pos);
ssize_t kvblk_peers_write(struct file *filp, const char __user *buf, size_t len, loff_t *pos);
__poll_t kvblk_peers_poll(struct file *filp, struct poll_table_struct *table);
int kvblk_peers_release(struct inode *inode, struct file *filp);
/* End all questions and refuse new daemons. */
void kvblk_peers_end(struct kvblk_pool *pool);

/* ---- pool.c: the following calls need pool->admin ---- */

void kvblk_pool_limits(struct kvblk_pool *pool);	/* updates pool->align and others */
/*
 * Subtract lost blocks from pool->unsure if all staying members know the epoch: they cannot return.
 * Returns whether a member lags.
 */
bool kvblk_pool_settle(struct kvblk_pool *pool);
/* Clear @member's counts in pool->unsure. Returns their sum. */
u32 kvblk_member_unsure_end(struct kvblk_member *member);
/* Restart an UNRESTORED member's restore if nothing was read; false: remove it and add it again. */
bool kvblk_member_retry(struct kvblk_member *member);
/* Read unread segments again; with @forfeit, drop segments that still fail. */
void kvblk_member_reread(struct kvblk_member *member, bool forfeit);

/* ---- pool.c: without locks ---- */

/* Return whether the superblock lacks the current epoch, member list or time. */
bool kvblk_member_outdated_super(const struct kvblk_member *member);
bool kvblk_member_active(const u8 uuid[16]);	/* alive on this host; takes kvblk_pools_lock */

/* ---- member.c, fence.c, superblock.c, watchdog.c ---- */

/* Contents of a device that is to become a member. */
enum kvblk_found {
	KVBLK_FOUND_BLANK,
	KVBLK_FOUND_MEMBER,
	KVBLK_FOUND_OTHER,
	KVBLK_FOUND_DAMAGED,
	KVBLK_FOUND_NEWER,
	KVBLK_FOUND_FORMER,		/* a former member, overwritten by something else */
	KVBLK_FOUND_SHRUNK,		/* a member formatted with more bytes */
};

struct kvblk_life kvblk_super_life(const struct kvblk_d_super *sb);
/* Return whether the member was in or entering @life. If not, it may have missed deletes. */
bool kvblk_super_lived(const struct kvblk_d_super *sb, const struct kvblk_life *life);

/* Initialize a zeroed flash of @spec, whose path is taken. Returns 0 or -ENOMEM. */
int kvblk_flash_init(struct kvblk_flash *flash, struct kvblk_pool *pool,
		     const struct kvblk_flash_ops *ops, struct kvblk_member_spec *spec);
void kvblk_flash_open(struct kvblk_flash *flash, struct file *file, const char *name);
void kvblk_flash_exit(struct kvblk_flash *flash);	/* also after a failed init */
/* Open the device, and read its superblocks. */
struct kvblk_member *kvblk_member_open(struct kvblk_pool *pool, struct kvblk_member_spec *spec,
				       struct netlink_ext_ack *extack);
void kvblk_member_free(struct kvblk_member *member);
/* Refuse, with a message, to use or overwrite a device with these contents. */
int kvblk_found_unfit(struct kvblk_member *member, u32 add_flags, struct netlink_ext_ack *extack);
/* Set the geometry in memory, of a @new member or as in the superblock, and take a slot. */
int kvblk_member_setup(struct kvblk_member *member, bool new, u32 segment_size,
		       struct netlink_ext_ack *extack);
/* Add the member to the member list, by @spec->name if new ("": any). 0, -EEXIST or -ENOSPC. */
int kvblk_member_list(struct kvblk_member *member, const struct kvblk_member_spec *spec,
		      struct netlink_ext_ack *extack);
/* Format the device if the member is new, and write its superblocks. */
int kvblk_member_prepare(struct kvblk_member *member, u16 state, struct netlink_ext_ack *extack);
/* Publish the member and start its restore. pool->users held. */
int kvblk_member_start(struct kvblk_member *member, struct netlink_ext_ack *extack);
/* Remove a published member from the pool's arrays. pool->admin; then wait for RCU. */
void kvblk_member_withdraw(struct kvblk_member *member);
/* Stop background work and seal open segments if the device accepts writes. */
void kvblk_member_stop(struct kvblk_member *member);
/* Set member->found; copy the newest valid superblock, even a former member's, to log.super. */
int kvblk_super_read(struct kvblk_member *member);
/* Copy the newest valid superblock to @sb. Returns 0, -ENODATA if none is valid, or an errno. */
int kvblk_super_peek(struct kvblk_member *member, struct kvblk_d_super *sb);
/*
 * Refuse, with -EREMOTE and a message, a member that another node owns, unless forced; with the
 * node @preempt, or NULL, each member that is not this node's.
 */
int kvblk_super_owned(struct kvblk_member *member, u32 add_flags, const u8 *preempt,
		      struct netlink_ext_ack *extack);
/* Write both superblocks with @epoch. The caller excludes other writers. */
int kvblk_super_write(struct kvblk_member *member, u16 state, u64 epoch);
/* Zero a removed member's superblocks, or all places that other software checks for metadata. */
bool kvblk_super_wipe(struct kvblk_member *member);
bool kvblk_super_wipe_all(struct kvblk_member *member);
void kvblk_super_work(struct work_struct *work);
void kvblk_watch_init(struct kvblk_flash *flash);
/*
 * Reserve the device of a pool in a pod, before the first write to it; preempt the node @preempt,
 * or NULL: nobody. With a message: -EBUSY another node holds it, -EOPNOTSUPP it has no
 * reservations, unless forced, -ESTALE another node wrote the superblocks since they were read.
 */
int kvblk_fence_take(struct kvblk_member *member, u32 add_flags, const u8 *preempt,
		     struct netlink_ext_ack *extack);
void kvblk_fence_drop(struct kvblk_flash *flash);	/* after the last write */
void kvblk_fence_watch(struct kvblk_flash *flash);	/* queues a check if due; does not sleep */
void kvblk_fence_work(struct work_struct *work);

#endif
