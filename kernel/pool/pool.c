// SPDX-License-Identifier: GPL-2.0
/* Properties derived from members; epochs; the list of pools. */
#include "pool/pool.h"

const struct kvblk_upper_ops *kvblk_upper_ops;
LIST_HEAD(kvblk_pools);
DEFINE_MUTEX(kvblk_pools_lock);		/* protects kvblk_pools */

/* Return the longest block that fits a segment, with a header and one summary page. */
static u32 member_value_max(const struct kvblk_member *member, bool encrypted)
{
	u32 align = member->flash.record_align >> KVBLK_UNIT_SHIFT;
	u32 units = round_down(member->flash.segment_units - 1, align);

	if (units >= kvblk_record_units(encrypted, KVBLK_VALUE_MAX, align))
		return KVBLK_VALUE_MAX;
	return (units - kvblk_header_units(encrypted, units << KVBLK_UNIT_SHIFT)) <<
	       KVBLK_UNIT_SHIFT;
}

static u32 value_max(struct kvblk_pool *pool, bool encrypted, bool any)
{
	struct kvblk_member *member;
	u32 most = 0;

	guard(rcu)();
	kvblk_for_each_member(pool, member)
		if (any || kvblk_flash_may_read(&member->flash))
			most = max(most, member_value_max(member, encrypted));
	return most;
}

u32 kvblk_pool_value_max(struct kvblk_pool *pool, bool encrypted)
{
	return value_max(pool, encrypted, false);
}

bool kvblk_pool_too_long(struct kvblk_pool *pool, bool encrypted, u32 bytes)
{
	u32 most;

	/* shorter than any segment */
	if (bytes <= SZ_4M)
		return false;
	most = value_max(pool, encrypted, true);
	return most && bytes > most;
}

struct kvblk_space kvblk_pool_space(struct kvblk_pool *pool)
{
	struct kvblk_space space = {};
	struct kvblk_member *member;
	u32 avail;
	u64 size;

	guard(rcu)();
	kvblk_for_each_member(pool, member) {
		if (!kvblk_flash_in_use(&member->flash))
			continue;
		size = kvblk_flash_segment_bytes(&member->flash);
		avail = kvblk_member_is_up(member) ? kvblk_member_avail(member) : 0;
		space.bytes += member->flash.nr_segs * size;
		space.free_bytes += avail * size;
		space.segs += member->flash.nr_segs;
		space.free_segs += avail;
	}
	return space;
}

static void flash_align(const struct kvblk_flash *flash, u32 *addr, u32 *len)
{
	*len |= bdev_logical_block_size(flash->bdev) - 1;
	*addr |= bdev_dma_alignment(flash->bdev);
	/* a gap inside a page would split bios at arbitrary offsets */
	if (queue_virt_boundary(bdev_get_queue(flash->bdev)))
		*len |= PAGE_SIZE - 1;
}

void kvblk_pool_limits(struct kvblk_pool *pool)
{
	u32 addr = 0, len = 0, units = 1;
	struct kvblk_foreign *foreign;
	struct kvblk_member *member;
	struct kvblk_align align;
	bool stable = false;

	lockdep_assert_held(&pool->admin);
	kvblk_for_each_member(pool, member) {
		struct block_device *bdev = member->flash.bdev;

		/* the device is being closed */
		if (!member->flash.bdev_file)
			continue;
		kvblk_io_limits(&member->flash);
		units = max(units, member->flash.record_align >> KVBLK_UNIT_SHIFT);
		stable |= bdev_stable_writes(bdev);
		flash_align(&member->flash, &addr, &len);
	}
	list_for_each_entry(foreign, &pool->foreign.list, link) {
		kvblk_io_limits(&foreign->flash);
		flash_align(&foreign->flash, &addr, &len);
	}
	align.addr_mask = addr | len;
	align.len_mask = len;
	WRITE_ONCE(pool->align.both, align.both);
	WRITE_ONCE(pool->align_units, units);
	WRITE_ONCE(pool->stable_writes, stable);
	kvblk_policy_resize(&pool->policy, kvblk_pool_space(pool).bytes);
}

static bool member_behind(const struct kvblk_member *member)
{
	return READ_ONCE(member->log.epoch) != READ_ONCE(member->flash.pool->epoch);
}

/* Return whether the member must record epochs: a returning one waits for restore_settle(). */
static bool member_records(const struct kvblk_member *member)
{
	return kvblk_member_stays(member) && !READ_ONCE(member->log.missing);
}

static bool member_grace_old(const struct kvblk_member *member)
{
	const struct kvblk_pool *pool = member->flash.pool;

	return kvblk_pool_in_pod(pool) &&
	       READ_ONCE(member->log.grace) != READ_ONCE(pool->tun.reuse_grace_ms);
}

void kvblk_pool_grace(struct kvblk_pool *pool)
{
	u32 ms = kvblk_pool_in_pod(pool) ? READ_ONCE(pool->tun.reuse_grace_ms) : 0;
	struct kvblk_member *member;
	bool recorded = true;

	rcu_read_lock();
	kvblk_for_each_member(pool, member)
		recorded &= !kvblk_flash_in_use(&member->flash) || !member_grace_old(member);
	rcu_read_unlock();
	if (ms >= pool->grace) {
		WRITE_ONCE(pool->grace, ms);
		pool->grace_until = 0;
	} else if (!recorded || !pool->grace_until) {
		pool->grace_until = ktime_get_boottime_ns() +
				    (u64)(pool->grace + KVBLK_FOLLOW_SUPER_MS) * NSEC_PER_MSEC;
	} else if (kvblk_grace_over(pool->grace_until)) {
		WRITE_ONCE(pool->grace, ms);
	}
}

bool kvblk_member_outdated_super(const struct kvblk_member *member)
{
	const struct kvblk_pool *pool = member->flash.pool;

	return (member_behind(member) || member_grace_old(member) ||
		READ_ONCE(member->log.member_list_seq) != READ_ONCE(pool->member_list_seq) ||
		(READ_ONCE(pool->expires) &&
		 kvblk_clock(pool) > READ_ONCE(member->log.time) + KVBLK_CLOCK_SUPER_S)) &&
	       member_records(member);
}

static bool member_super_due(const struct kvblk_member *member)
{
	return kvblk_member_outdated_super(member) && kvblk_flash_may_write(&member->flash);
}

void kvblk_pool_write_epoch(struct kvblk_pool *pool)
{
	struct kvblk_member *member;

	guard(rcu)();
	kvblk_for_each_member(pool, member)
		if (member_super_due(member) && percpu_ref_tryget_live(&member->flash.ref) &&
		    !queue_work(pool->wq, &member->log.super_work))
			kvblk_member_put(member);
}

static bool supers_current(struct kvblk_pool *pool)
{
	struct kvblk_member *member;

	guard(rcu)();
	kvblk_for_each_member(pool, member)
		if (member_super_due(member))
			return false;
	return true;
}

bool kvblk_pool_list_recorded(struct kvblk_pool *pool, u64 seq, char name[KVBLK_NAME_MAX])
{
	struct kvblk_member *member;

	/* kvblk_member_start() publishes members with the current list, except returning ones */
	guard(mutex)(&pool->admin);
	kvblk_for_each_member(pool, member) {
		if (!member_records(member) || READ_ONCE(member->log.member_list_seq) >= seq)
			continue;
		strscpy(name, member->flash.name, KVBLK_NAME_MAX);
		return false;
	}
	return true;
}

#define SUPER_TIME	(3 * HZ)	/* longest wait for members to write a superblock */

void kvblk_pool_write_supers(struct kvblk_pool *pool)
{
	kvblk_pool_write_epoch(pool);
	wait_event_timeout(pool->settle_wait, supers_current(pool), SUPER_TIME);
}

u32 kvblk_member_unsure_end(struct kvblk_member *member)
{
	u32 nr = READ_ONCE(member->unsure) + member->unread_unsure;

	lockdep_assert_held(&member->flash.pool->admin);
	member->unsure = false;
	member->unread_unsure = false;
	return nr;
}

bool kvblk_member_retry(struct kvblk_member *member)
{
	struct kvblk_pool *pool = member->flash.pool;

	lockdep_assert_held(&pool->admin);
	/* the records that a first try has read may have been replaced or deleted since */
	if (member->outdated || member->removing || member->log.missing || member->log.restored ||
	    READ_ONCE(member->log.nr_sealed) || READ_ONCE(member->log.nr_open) ||
	    READ_ONCE(member->log.nr_retiring) || READ_ONCE(member->log.nr_free) ||
	    !percpu_ref_tryget_live(&pool->users))
		return false;
	member->log.retry = true;
	atomic_inc(&pool->restoring);
	if (cmpxchg(&member->flash.state, KVBLK_MEMBER_UNRESTORED, KVBLK_MEMBER_RESTORING) ==
	    KVBLK_MEMBER_UNRESTORED)
		return queue_work(pool->wq, &member->log.restore);
	if (atomic_dec_and_test(&pool->restoring))
		wake_up_all(&pool->restore_wait);
	percpu_ref_put(&pool->users);
	return false;
}

void kvblk_member_reread(struct kvblk_member *member, bool forfeit)
{
	struct kvblk_pool *pool = member->flash.pool;

	lockdep_assert_held(&pool->admin);
	if (!kvblk_member_is_up(member) || !READ_ONCE(member->log.nr_unread) ||
	    !percpu_ref_tryget_live(&pool->users))
		return;
	WRITE_ONCE(member->log.forfeit, forfeit);
	if (!queue_work(pool->wq, &member->log.restore))
		percpu_ref_put(&pool->users);
}

void kvblk_pool_give_up(struct kvblk_pool *pool)
{
	struct kvblk_member *member;
	bool outdated = false;

	/* do not wait: the next tick tries again */
	if (!READ_ONCE(pool->refused) || !mutex_trylock(&pool->admin))
		return;
	WRITE_ONCE(pool->refused, false);
	kvblk_for_each_member(pool, member) {
		if (READ_ONCE(member->flash.state) == KVBLK_MEMBER_UNRESTORED &&
		    !member->outdated) {
			member->outdated = true;
			outdated = true;
		}
		/* giving up needs a write */
		if (kvblk_flash_may_write(&member->flash))
			kvblk_member_reread(member, true);
	}
	/* members that do not record the new epoch are outdated */
	if (outdated)
		WRITE_ONCE(pool->epoch, pool->epoch + 1);
	mutex_unlock(&pool->admin);
}

bool kvblk_pool_settle(struct kvblk_pool *pool)
{
	struct kvblk_member *member;
	bool recorded = false;

	lockdep_assert_held(&pool->admin);
	kvblk_for_each_member(pool, member) {
		if (!member_records(member))
			continue;
		if (member_behind(member))
			return true;
		recorded = true;
	}
	/* every member able to return knows now that lost members are outdated */
	if (!recorded)
		return false;
	/* a member dying just now may have recorded this very epoch */
	kvblk_for_each_member(pool, member)
		if (!kvblk_member_stays(member) && member->outdated)
			atomic_sub(kvblk_member_unsure_end(member), &pool->unsure);
	atomic_sub(pool->nr_lost, &pool->unsure);
	pool->nr_lost = 0;
	return false;
}

void kvblk_pool_seq(struct kvblk_pool *pool)
{
	u64 seq = atomic64_read(&pool->seq), next = kvblk_seq_epoch(seq);
	struct kvblk_member *member;
	bool all_current = true;

	if (next == seq >> KVBLK_SEQ_EPOCH_SHIFT || next > KVBLK_EPOCH_MAX ||
	    !mutex_trylock(&pool->admin))
		return;
	/* a removal or death may have advanced the epoch already */
	if (pool->epoch < next)
		WRITE_ONCE(pool->epoch, next);
	/* all members must know the epoch, or else the next activation could reuse its seqs */
	kvblk_for_each_member(pool, member)
		all_current &= !member_records(member) || !member_behind(member);
	next = pool->epoch << KVBLK_SEQ_EPOCH_SHIFT;
	/* never back, or else a nonce of an encrypted record could repeat */
	while (all_current && seq < next && !atomic64_try_cmpxchg(&pool->seq, (s64 *)&seq, next))
		;
	mutex_unlock(&pool->admin);
}

void kvblk_pool_sweep(struct kvblk_pool *pool)
{
	u64 at = 0, dropped = 0;
	u32 pass = 0;

	/* a second pass finds entries moved behind the first */
	do {
		at = kvblk_index_sweep(&pool->index, at, 4096, kvblk_now(pool), &dropped);
		cond_resched();
	} while (at || ++pass < 2);
}

bool kvblk_member_active(const u8 uuid[16])
{
	struct kvblk_member *member;
	struct kvblk_pool *pool;

	guard(mutex)(&kvblk_pools_lock);
	guard(rcu)();
	list_for_each_entry(pool, &kvblk_pools, link)
		kvblk_for_each_member(pool, member)
			if (READ_ONCE(member->flash.state) != KVBLK_MEMBER_DEAD &&
			    !memcmp(&member->flash.uuid, uuid, sizeof(member->flash.uuid)))
				return true;
	return false;
}

struct kvblk_pool *kvblk_pool_named(const struct list_head *list, const char *name)
{
	struct kvblk_pool *pool;

	lockdep_assert_held(&kvblk_pools_lock);
	list_for_each_entry(pool, list, link)
		if (!strcmp(pool->name, name))
			return pool;
	return NULL;
}

struct kvblk_pool *kvblk_pool_find(const char *name)
{
	struct kvblk_pool *pool;

	guard(mutex)(&kvblk_pools_lock);
	pool = kvblk_pool_named(&kvblk_pools, name);
	if (pool)
		get_device(&pool->dev);
	return pool;
}
