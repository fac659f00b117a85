// SPDX-License-Identifier: GPL-2.0
/* A member's superblocks. */
#include <linux/netlink.h>
#include <linux/utsname.h>
#include <linux/vmalloc.h>

#include "pool.h"

int kvblk_super_read(struct kvblk_member *member, struct kvblk_d_super *sb,
		     enum kvblk_found *found)
{
	const size_t blank = 1u << 20;
	struct kvblk_d_super *copy;
	bool damaged = false;
	int err, i;

	copy = vmalloc(blank);
	if (!copy)
		return -ENOMEM;
	*found = KVBLK_FOUND_OTHER;
	for (i = 0; i < 2; i++) {
		err = kvblk_io_sync(member, REQ_OP_READ | REQ_META,
				    KVBLK_SB_OFFSET(i), copy, sizeof(*copy));
		if (err)
			goto out;
		err = kvblk_super_check(copy, member->size);
		if (err && err != -ENODATA)
			damaged = true;
		if (err || (*found == KVBLK_FOUND_MEMBER &&
			    le64_to_cpu(copy->seq) < le64_to_cpu(sb->seq)))
			continue;
		*found = KVBLK_FOUND_MEMBER;
		memcpy(sb, copy, sizeof(*sb));
	}
	err = 0;
	if (*found == KVBLK_FOUND_MEMBER)
		goto out;
	if (damaged) {
		*found = KVBLK_FOUND_DAMAGED;
		goto out;
	}
	err = kvblk_io_sync(member, REQ_OP_READ, 0, copy, blank);
	if (!err && !memchr_inv(copy, 0, blank))
		*found = KVBLK_FOUND_BLANK;
out:
	vfree(copy);
	return err;
}

int kvblk_super_write(struct kvblk_member *member, u16 state, u64 epoch)
{
	struct kvblk_pool *pool = member->pool;
	struct kvblk_d_super *sb;
	u32 copies = member->sb_seq ? 1 : 2;
	int err = 0;

	sb = vzalloc(sizeof(*sb));
	if (!sb)
		return -ENOMEM;
	sb->magic = cpu_to_le64(KVBLK_SB_MAGIC);
	sb->version = cpu_to_le16(KVBLK_FORMAT_VERSION);
	sb->state = cpu_to_le16(state);
	sb->pool_flags = cpu_to_le32(pool->flags);
	sb->epoch = cpu_to_le64(epoch);
	sb->incarnation = cpu_to_le64(member->incarnation);
	sb->birth = cpu_to_le64(pool->birth);
	export_uuid(sb->pool_uuid, &pool->uuid);
	export_uuid(sb->member_uuid, &member->uuid);
	memcpy(sb->seed, pool->seed, sizeof(sb->seed));
	strscpy(sb->pool_name, pool->name, sizeof(sb->pool_name));
	strscpy(sb->owner, init_utsname()->nodename, sizeof(sb->owner));
	sb->size = cpu_to_le64(member->size);
	sb->data_start = cpu_to_le64(member->data_start);
	sb->segment_units = cpu_to_le32(member->segment_units);
	sb->nr_segments = cpu_to_le32(member->nr_segs);
	sb->record_align = cpu_to_le32(member->record_align);
	sb->activation = cpu_to_le64(pool->activation);
	sb->prev_epoch = cpu_to_le64(pool->prev_epoch);
	sb->prev_activation = cpu_to_le64(pool->prev_activation);
	sb->tenants[0].flags = cpu_to_le16(1);
	strscpy(sb->tenants[0].name, "default", sizeof(sb->tenants[0].name));
	/* a new member gets both copies, so that no former life shines through */
	for (; copies && !err; copies--) {
		u64 seq = member->sb_seq + 1;

		sb->seq = cpu_to_le64(seq);
		kvblk_super_seal(sb);
		err = kvblk_io_sync(member, REQ_OP_WRITE | REQ_META,
				    KVBLK_SB_OFFSET(seq & 1), sb, sizeof(*sb));
		if (!err)
			err = kvblk_io_flush(member);
		/* what failed may be torn: the next try hits the same copy */
		if (!err)
			member->sb_seq = seq;
	}
	if (!err)
		WRITE_ONCE(member->epoch, epoch);
	vfree(sb);
	return err;
}

/*
 * With member->ref. Nothing else writes superblocks while the member is there. The
 * epoch is one in which the member stays: with the epoch of its own leaving, it
 * could come back with blocks that were deleted since.
 */
void kvblk_super_work(struct work_struct *work)
{
	struct kvblk_member *member = container_of(work, struct kvblk_member,
						   super_work);
	struct kvblk_pool *pool = member->pool;

	bool behind;
	u64 epoch;

	mutex_lock(&pool->admin);
	epoch = pool->epoch;
	behind = member->epoch != epoch && kvblk_member_stays(member);
	mutex_unlock(&pool->admin);
	if (behind && kvblk_super_write(member, KVBLK_SB_ACTIVE, epoch))
		dev_err_ratelimited(&pool->dev, "member %s: superblock can't be written\n",
				    member->name);
	mutex_lock(&pool->admin);
	kvblk_pool_settle(pool);
	mutex_unlock(&pool->admin);
	wake_up_all(&pool->settle_wait);
	kvblk_member_put(member);
}

bool kvblk_super_wipe(struct kvblk_member *member)
{
	void *zero = vzalloc(2 * KVBLK_SB_BYTES);
	bool wiped;

	wiped = zero && !kvblk_io_sync(member, REQ_OP_WRITE | REQ_META, 0, zero,
				       2 * KVBLK_SB_BYTES) &&
		!kvblk_io_flush(member);
	vfree(zero);
	return wiped;
}

bool kvblk_super_owned(struct kvblk_member *member, const struct kvblk_d_super *sb,
		       u32 add_flags, struct netlink_ext_ack *extack)
{
	if (le16_to_cpu(sb->state) == KVBLK_SB_CLEAN ||
	    !strcmp(sb->owner, init_utsname()->nodename) ||
	    (add_flags & KVBLK_ADD_FORCE))
		return false;
	NL_SET_ERR_MSG_FMT(extack, "%s was in use by node %.20s: say \"force\" if that one is down",
			   member->name, sb->owner);
	return true;
}
