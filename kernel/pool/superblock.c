// SPDX-License-Identifier: GPL-2.0
/* Superblocks of members: read, check, write, wipe. */
#include <linux/netlink.h>
#include <linux/slab.h>
#include <linux/utsname.h>
#include <linux/vmalloc.h>

#include "pool/pool.h"

struct kvblk_life kvblk_super_life(const struct kvblk_d_super *sb)
{
	bool prev = le16_to_cpu(sb->state) == KVBLK_SB_ACTIVATING;

	return (struct kvblk_life) {
		.epoch = le64_to_cpu(prev ? sb->prev_epoch : sb->epoch),
		.activation = le64_to_cpu(prev ? sb->prev_activation : sb->activation),
	};
}

bool kvblk_super_lived(const struct kvblk_d_super *sb, const struct kvblk_life *life)
{
	struct kvblk_life own = kvblk_super_life(sb);

	return (own.epoch == life->epoch && own.activation == life->activation) ||
	       (le64_to_cpu(sb->epoch) == life->epoch &&
		le64_to_cpu(sb->activation) == life->activation);
}

static bool super_has_min_seq(const struct kvblk_d_super *sb)
{
	u32 i;

	for (i = 0; i < KVBLK_SB_TENANTS; i++)
		if (sb->tenants[i].flags && sb->tenants[i].min_seq)
			return true;
	return false;
}

/* Bytes at both ends of a device where RAIDs and partition tables keep their metadata. */
#define EDGE_BYTES	((size_t)SZ_1M)

static u64 super_tail(const struct kvblk_member *member)
{
	u64 bytes = bdev_nr_bytes(member->flash.bdev);

	return bytes > EDGE_BYTES ? bytes - EDGE_BYTES : 0;
}

/* Read the edge at @pos into @edge, and find OTHER unless it is all zeroes. */
static int super_blank(struct kvblk_member *member, void *edge, u64 pos)
{
	size_t len = min_t(u64, EDGE_BYTES, bdev_nr_bytes(member->flash.bdev));
	int err = kvblk_io_read(&member->flash, pos, edge, len);

	if (err || memchr_inv(edge, 0, len))
		member->found = KVBLK_FOUND_OTHER;
	return err;
}

/* Return whether other data overwrote the first superblock, at @place. @sb: the second one. */
static bool super_given_away(const struct kvblk_d_super *place, const struct kvblk_d_super *sb)
{
	static const size_t damage[] = { SECTOR_SIZE, KVBLK_UNIT, sizeof(*sb) };
	u32 i;

	/* md's metadata 1.2 begins at 4 KiB and preserves the bytes before */
	if (le64_to_cpu(place->magic) == KVBLK_SB_MAGIC)
		return memchr_inv(place->tenants, 0, sizeof(*place->tenants)) &&
		       memcmp(place->tenants, sb->tenants, sizeof(*sb->tenants));
	/* zeroes before an intact rest are damage: a file system has more data behind its zeroes */
	for (i = 0; i < ARRAY_SIZE(damage); i++)
		if (!memchr_inv(place, 0, damage[i]) &&
		    !memcmp((const void *)place + damage[i], (const void *)sb + damage[i],
			    sizeof(*sb) - damage[i]))
			return false;
	return true;
}

int kvblk_super_read(struct kvblk_member *member)
{
	/* both copies lie in this edge, which super_blank() checks if neither is valid */
	struct kvblk_d_super *copies __free(kvfree) = vzalloc(EDGE_BYTES);
	struct kvblk_d_super *sb = member->log.super, *copy, *shrunk = NULL;
	bool damaged = false, newer = false, second = false;
	int err, unread = 0, i;

	if (!copies)
		return -ENOMEM;
	member->found = KVBLK_FOUND_OTHER;
	for (i = 0; i < 2; i++) {
		copy = &copies[i];
		err = kvblk_io_read(&member->flash, KVBLK_SB_OFFSET(i), copy, sizeof(*copy));
		if (err) {
			dev_warn(&member->flash.pool->dev, "member %s: cannot read superblock %c (error %d)\n",
				 member->flash.name, 'A' + i, err);
			unread = err;
			continue;
		}
		err = kvblk_super_check(copy, member->flash.size);
		newer |= err == -EPROTONOSUPPORT || err == -EROFS;
		damaged |= err && err != -ENODATA;
		if (err == -ERANGE && !kvblk_super_check(copy, U64_MAX))
			shrunk = copy;
		if (err || (member->found == KVBLK_FOUND_MEMBER &&
			    le64_to_cpu(copy->seq) < le64_to_cpu(sb->seq)))
			continue;
		/* only the second copy is valid */
		second = member->found != KVBLK_FOUND_MEMBER && i;
		member->found = KVBLK_FOUND_MEMBER;
		memcpy(sb, copy, sizeof(*sb));
	}
	err = 0;
	/* do not overwrite fields of later versions */
	if (newer || (member->found == KVBLK_FOUND_MEMBER && super_has_min_seq(sb))) {
		member->found = KVBLK_FOUND_NEWER;
	} else if (member->found == KVBLK_FOUND_MEMBER) {
		/* one valid copy is enough; an unreadable first place does not prove other data */
		if (second && !unread && super_given_away(&copies[0], sb))
			member->found = KVBLK_FOUND_FORMER;
	} else if (unread) {
		err = unread;
	} else if (shrunk) {
		member->found = KVBLK_FOUND_SHRUNK;
		memcpy(sb, shrunk, sizeof(*sb));
	} else if (damaged) {
		member->found = KVBLK_FOUND_DAMAGED;
	} else {
		member->found = KVBLK_FOUND_BLANK;
		err = super_blank(member, copies, 0) ?:
		      super_blank(member, copies, super_tail(member));
	}
	return err;
}

int kvblk_super_peek(struct kvblk_member *member, struct kvblk_d_super *sb)
{
	struct kvblk_d_super *copy __free(kvfree) = vmalloc(sizeof(*copy));
	int err, ret = copy ? -ENODATA : -ENOMEM, i;

	for (i = 0; copy && i < 2; i++) {
		err = kvblk_io_read(&member->flash, KVBLK_SB_OFFSET(i), copy, sizeof(*copy));
		if (err && ret)
			ret = err;
		if (err || kvblk_super_check(copy, member->flash.size) ||
		    (!ret && le64_to_cpu(copy->seq) < le64_to_cpu(sb->seq)))
			continue;
		memcpy(sb, copy, sizeof(*sb));
		ret = 0;
	}
	return ret;
}

static void super_owner(char *owner, size_t size)
{
	strscpy_pad(owner, init_utsname()->nodename, size);
	kvblk_text_clean(owner);
}

/* Write both copies in turn: one is always valid, and none is left of an earlier activation. */
static int super_write_copies(struct kvblk_member *member, struct kvblk_d_super *sb)
{
	u64 seq = member->log.sb_seq;
	int err = 0, failed = 0, i;
	bool written = false;

	for (i = 0; i < 2; i++) {
		sb->seq = cpu_to_le64(++seq);
		kvblk_super_seal(sb);
		/* writing a superblock that import rejects would lose the member */
		err = kvblk_super_within(sb, member->flash.size, KVBLK_COUNT_MAX);
		if (!err)
			err = kvblk_io_sync(&member->flash, REQ_OP_WRITE | REQ_META,
					    KVBLK_SB_OFFSET(seq & 1), sb, sizeof(*sb));
		if (!err)
			err = kvblk_io_flush(&member->flash);
		failed = failed ?: err;
		/* the copy may be torn: the next try must hit the same one */
		if (err && err != -EIO)
			break;
		/* if both writes failed, either may have arrived: the next two must be newer */
		if (!err || (i && !written))
			member->log.sb_seq = seq;
		written |= !err;
	}
	if (written && failed)
		dev_warn_ratelimited(&member->flash.pool->dev, "member %s: cannot write one of two superblocks (error %d)\n",
				     member->flash.name, failed);
	return written ? 0 : failed;
}

/* Set the fields known to this version; leave all others unchanged. */
static void super_fill(const struct kvblk_member *member, struct kvblk_d_super *sb,
		       u16 state, u64 epoch)
{
	struct kvblk_pool *pool = member->flash.pool;

	sb->magic = cpu_to_le64(KVBLK_SB_MAGIC);
	sb->version = cpu_to_le16(KVBLK_FORMAT_VERSION);
	sb->state = cpu_to_le16(state);
	sb->pool_flags = cpu_to_le32(pool->flags);
	sb->epoch = cpu_to_le64(epoch);
	sb->incarnation = cpu_to_le64(member->flash.incarnation);
	sb->birth = cpu_to_le64(pool->birth);
	export_uuid(sb->pool_uuid, &pool->uuid);
	export_uuid(sb->member_uuid, &member->flash.uuid);
	memcpy(sb->seed, pool->seed, sizeof(sb->seed));
	strscpy_pad(sb->pool_name, pool->name);
	super_owner(sb->owner, sizeof(sb->owner));
	memcpy(sb->node, pool->node, sizeof(sb->node));
	sb->size = cpu_to_le64(member->flash.size);
	sb->data_start = cpu_to_le64(member->flash.data_start);
	sb->segment_units = cpu_to_le32(member->flash.segment_units);
	sb->nr_segments = cpu_to_le32(member->flash.nr_segs);
	sb->record_align = cpu_to_le32(member->flash.record_align);
	sb->activation = cpu_to_le64(pool->activation);
	sb->prev_epoch = cpu_to_le64(pool->prev_life.epoch);
	sb->prev_activation = cpu_to_le64(pool->prev_life.activation);
	sb->time = cpu_to_le64(kvblk_clock(pool));
	sb->wall = cpu_to_le64(ktime_get_real_seconds());
	sb->index_slots = cpu_to_le64(READ_ONCE(pool->index_slots));
	if (member->flash.short_crc)
		sb->incompat |= cpu_to_le32(KVBLK_SB_IN_SHORT_CRC);
	if (kvblk_pool_in_pod(pool)) {
		sb->ro_compat |= cpu_to_le32(KVBLK_SB_RO_POD);
		memcpy(sb->pod_uuid, pool->pod, sizeof(sb->pod_uuid));
		strscpy_pad(sb->pod_name, pool->pod_name);
		sb->reuse_grace = cpu_to_le32(READ_ONCE(pool->tun.reuse_grace_ms));
	}
}

int kvblk_super_write(struct kvblk_member *member, u16 state, u64 epoch)
{
	struct kvblk_pool *pool = member->flash.pool;
	struct kvblk_d_super *sb = member->log.super;
	u64 member_list_seq;
	int err;

	super_fill(member, sb, state, epoch);
	if (kvblk_pool_in_pod(pool)) {
		/* followers may rely on it from now on */
		WRITE_ONCE(pool->grace,
			   max(READ_ONCE(pool->grace), le32_to_cpu(sb->reuse_grace)));
		/* a crash must not forget a former, longer one */
		sb->held_grace = cpu_to_le32(READ_ONCE(pool->grace));
	}
	member_list_seq = kvblk_member_list_store(pool, sb);
	err = super_write_copies(member, sb);
	if (!err) {
		WRITE_ONCE(member->log.epoch, epoch);
		WRITE_ONCE(member->log.activation, pool->activation);
		WRITE_ONCE(member->log.member_list_seq, member_list_seq);
		WRITE_ONCE(member->log.time, le64_to_cpu(sb->time));
		WRITE_ONCE(member->log.grace, le32_to_cpu(sb->reuse_grace));
	}
	return err;
}

/* Write the pool's epoch to the superblock, as the only writer of a published member. */
void kvblk_super_work(struct work_struct *work)
{
	struct kvblk_member *member = container_of(work, struct kvblk_member, log.super_work);
	struct kvblk_pool *pool = member->flash.pool;
	bool behind;
	u64 epoch;
	int err;

	/* skip a removed member: with this epoch, it could return with blocks deleted since */
	scoped_guard(mutex, &pool->admin) {
		epoch = pool->epoch;
		behind = kvblk_member_outdated_super(member);
	}
	err = behind ? kvblk_super_write(member, KVBLK_SB_ACTIVE, epoch) : 0;
	if (err)
		dev_err_ratelimited(&pool->dev, "member %s: cannot write superblock (error %d), retrying; an import after a crash may need \"degraded\"\n",
				    member->flash.name, err);
	scoped_guard(mutex, &pool->admin)
		kvblk_pool_settle(pool);
	wake_up_all(&pool->settle_wait);
	kvblk_member_put(member);
}

static bool super_zero(struct kvblk_member *member, u64 pos, u64 end)
{
	void *zero __free(kvfree) = vzalloc(EDGE_BYTES);
	int err = zero ? 0 : -ENOMEM;
	size_t len;

	for (; !err && pos < end; pos += len) {
		len = min_t(u64, end - pos, EDGE_BYTES);
		err = kvblk_io_sync(&member->flash, REQ_OP_WRITE | REQ_META, pos, zero, len);
	}
	return !err;
}

bool kvblk_super_wipe(struct kvblk_member *member)
{
	return super_zero(member, 0, 2 * KVBLK_SB_BYTES) && !kvblk_io_flush(&member->flash);
}

bool kvblk_super_wipe_all(struct kvblk_member *member)
{
	return super_zero(member, 0, member->flash.data_start) &&
	       super_zero(member, super_tail(member), bdev_nr_bytes(member->flash.bdev)) &&
	       !kvblk_io_flush(&member->flash);
}

/* Return whether this node used the member last: by ids, or by host names if one is unknown. */
static bool super_own(const struct kvblk_pool *pool, const struct kvblk_d_super *sb)
{
	char owner[sizeof(sb->owner)];

	if (memchr_inv(sb->node, 0, sizeof(sb->node)) &&
	    memchr_inv(pool->node, 0, sizeof(pool->node)))
		return !memcmp(sb->node, pool->node, sizeof(sb->node));
	super_owner(owner, sizeof(owner));
	return !strcmp(sb->owner, owner);
}

int kvblk_super_owned(struct kvblk_member *member, u32 add_flags, const u8 *preempt,
		      struct netlink_ext_ack *extack)
{
	const struct kvblk_d_super *sb = member->log.super;

	/* of two nodes that adopt a pool at once, the second must not preempt the first */
	if (preempt && memcmp(sb->node, preempt, sizeof(sb->node)))
		return kvblk_refuse(extack, -EREMOTE, "%.16s belongs to node %.18s now: nothing was taken",
				    member->flash.name, sb->owner);
	if (preempt)
		return 0;
	if (le16_to_cpu(sb->state) == KVBLK_SB_CLEAN || super_own(member->flash.pool, sb) ||
	    (add_flags & KVBLK_ADD_FORCE))
		return 0;
	return kvblk_refuse(extack, -EREMOTE, "%.12s was in use by node %.18s: pass \"force\" if it is down",
			    member->flash.name, sb->owner);
}
