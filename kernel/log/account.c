// SPDX-License-Identifier: GPL-2.0
/*
 * Accounts of tenants: what a tenant uses, and what it may use. The rules:
 * - Usage is counted by segment: an account has a row for each segment of the pool's members, one
 *   word with the generation, the number of readable records, and their units. A row counts only
 *   records of its generation. So when a segment's generation ends, what dies is subtracted at
 *   once, without a look at the entries, and what leaves the index later is not subtracted again.
 * - The index calls kvblk_account_entry() under its stripe's lock, the only place that counts.
 * - A put reserves its units before it writes, and ends the reservation once its record is counted
 *   or has failed. Meanwhile it may count twice: a put that comes close to a hard limit together
 *   with others may fail although it would just fit, but no limit is exceeded.
 * - Accounts live as long as the pool, because open files, DRAM blocks and puts refer to them. One
 *   of a removed tenant is closed, and opened again for another tenant when nothing refers to it.
 */
#include <linux/bitfield.h>
#include <linux/rculist.h>
#include <linux/slab.h>

#include "log/log.h"

#define GRANULE_SEGS	BIT(KVBLK_GRANULE_SHIFT)

/* Fields of a row: a segment has at most 2^18 units, and no more records. */
#define ROW_UNITS	GENMASK_ULL(23, 0)
#define ROW_BLOCKS	GENMASK_ULL(47, 24)
#define ROW_GEN		GENMASK_ULL(63, 48)

static_assert(KVBLK_SEGMENT_MAX >> KVBLK_UNIT_SHIFT <= ROW_UNITS);

static s64 row_of_gen(u16 gen)
{
	return FIELD_PREP(ROW_GEN, (u64)gen);
}

static void used_add(struct kvblk_account *account, s64 units, s64 blocks)
{
	atomic64_add(units, &account->used[KVBLK_ACCOUNT_UNITS]);
	atomic64_add(blocks, &account->used[KVBLK_ACCOUNT_BLOCKS]);
}

static atomic64_t *account_row(const struct kvblk_account *account, u32 seg)
{
	atomic64_t *rows = rcu_dereference(account->rows[seg >> KVBLK_GRANULE_SHIFT]);

	return rows ? &rows[seg % GRANULE_SEGS] : NULL;
}

void kvblk_account_entry(struct kvblk_index *idx, const struct kvblk_slot *slot, bool came)
{
	struct kvblk_pool *pool = container_of(idx, struct kvblk_pool, index);
	struct kvblk_account *account;
	struct kvblk_member *member;
	atomic64_t *row;
	s64 old, units;

	if (slot->seg >= KVBLK_SEGS_MAX)
		return;
	guard(rcu)();
	account = rcu_dereference(pool->tenants.account[slot->tenant]);
	row = account ? account_row(account, slot->seg) : NULL;
	member = kvblk_member_of(pool, slot->seg);
	if (!row || !member)
		return;
	units = kvblk_slot_units(&member->flash, slot);
	old = atomic64_read(row);
	do {
		if (FIELD_GET(ROW_GEN, (u64)old) != slot->gen)
			return;
		if (!came && WARN_ON_ONCE(FIELD_GET(ROW_UNITS, (u64)old) < units ||
					  !FIELD_GET(ROW_BLOCKS, (u64)old)))
			return;
	} while (!atomic64_try_cmpxchg(row, &old, old + (came ? 1 : -1) *
				       (s64)(units + FIELD_PREP(ROW_BLOCKS, 1ull))));
	used_add(account, came ? units : -units, came ? 1 : -1);
}

void kvblk_segment_gen_set(struct kvblk_pool *pool, u32 seg, u16 gen)
{
	struct kvblk_account *account;
	atomic64_t *row;
	s64 old;

	/* after the entries that moved: pairs with find_again() of the index */
	smp_store_release(&pool->seg_gen[seg], gen);
	/* pairs with rows_begin() */
	smp_mb();
	guard(rcu)();
	list_for_each_entry_rcu(account, &pool->tenants.accounts, link) {
		row = account_row(account, seg);
		if (!row)
			continue;
		old = atomic64_read(row);
		/* a page of the table that is read again ends nothing */
		while (FIELD_GET(ROW_GEN, (u64)old) != gen) {
			if (!atomic64_try_cmpxchg(row, &old, row_of_gen(gen)))
				continue;
			used_add(account, -(s64)FIELD_GET(ROW_UNITS, (u64)old),
				 -(s64)FIELD_GET(ROW_BLOCKS, (u64)old));
			break;
		}
	}
}

/* ---- life of accounts ---- */

/* Adds the rows of a granule without blocks of the tenant. Returns 0 or -ENOMEM. */
static int rows_begin(struct kvblk_pool *pool, struct kvblk_account *account, u32 granule)
{
	const u16 *gens = pool->seg_gen + ((size_t)granule << KVBLK_GRANULE_SHIFT);
	atomic64_t *rows;
	u32 i;
	u16 gen;

	lockdep_assert_held(&pool->tenants.lock);
	if (rcu_access_pointer(account->rows[granule]))
		return 0;
	rows = kvcalloc(GRANULE_SEGS, sizeof(*rows), GFP_KERNEL);
	if (!rows)
		return -ENOMEM;
	rcu_assign_pointer(account->rows[granule], rows);
	for (i = 0; i < GRANULE_SEGS; i++)
		do {
			gen = READ_ONCE(gens[i]);
			atomic64_set(&rows[i], row_of_gen(gen));
			/* kvblk_segment_gen_set() sees the row, or the generation is seen here */
			smp_mb();
		} while (READ_ONCE(gens[i]) != gen);
	return 0;
}

int kvblk_accounts_grow(struct kvblk_pool *pool, u32 seg_base, u32 nr_segs)
{
	u32 first = seg_base >> KVBLK_GRANULE_SHIFT, i;
	struct kvblk_account *account;

	guard(mutex)(&pool->tenants.lock);
	list_for_each_entry(account, &pool->tenants.accounts, link)
		for (i = 0; i < DIV_ROUND_UP(nr_segs, GRANULE_SEGS); i++)
			if (rows_begin(pool, account, first + i))
				return -ENOMEM;
	return 0;
}

static void account_free(struct kvblk_account *account)
{
	u32 i;

	WARN_ON_ONCE(percpu_counter_sum(&account->dram));
	for (i = 0; i < KVBLK_GRANULES; i++)
		kvfree(rcu_dereference_protected(account->rows[i], true));
	percpu_counter_destroy(&account->dram);
	free_percpu(account->counters);
	kfree(account);
}

static struct kvblk_account *account_new(void)
{
	struct kvblk_account *account = kzalloc(sizeof(*account), GFP_KERNEL);

	if (!account)
		return NULL;
	account->counters = alloc_percpu(struct kvblk_tenant_counters);
	if (account->counters && !percpu_counter_init(&account->dram, 0, GFP_KERNEL))
		return account;
	free_percpu(account->counters);
	kfree(account);
	return NULL;
}

/* Returns whether anything still refers to a closed account. */
static bool account_busy(struct kvblk_pool *pool, struct kvblk_account *account)
{
	return READ_ONCE(pool->tenants.openers[account->id]) ||
	       percpu_counter_sum(&account->dram) ||
	       atomic64_read(&account->held[KVBLK_ACCOUNT_BLOCKS]);
}

/* Takes an account to open: a closed one if possible. Returns NULL without memory. */
static struct kvblk_account *account_take(struct kvblk_pool *pool)
{
	struct kvblk_account *account;
	int cpu;

	list_for_each_entry(account, &pool->tenants.closed, link) {
		if (account_busy(pool, account))
			continue;
		list_del(&account->link);
		for_each_possible_cpu(cpu)
			memset(per_cpu_ptr(account->counters, cpu), 0, sizeof(*account->counters));
		return account;
	}
	return account_new();
}

static void account_limit(struct kvblk_account *account, enum kvblk_account_kind kind,
			  u64 hard, u64 soft, u32 shift)
{
	u64 most = hard ? hard >> shift : U64_MAX;

	if (soft)
		soft >>= shift;
	else
		/* or else a quota of one block would hold none */
		soft = hard && most ? max(most - DIV_ROUND_UP_ULL(most, 16), 1ull) : most;
	WRITE_ONCE(account->hard[kind], most);
	WRITE_ONCE(account->soft[kind], soft);
}

void kvblk_account_set(struct kvblk_pool *pool, struct kvblk_account *account,
		       const struct kvblk_tenant_limits *limits)
{
	lockdep_assert_held(&pool->tenants.lock);
	/* readers take single values, see READ_ONCE() */
	WRITE_ONCE(account->limits.bytes, limits->bytes);
	WRITE_ONCE(account->limits.bytes_soft, limits->bytes_soft);
	WRITE_ONCE(account->limits.blocks, limits->blocks);
	WRITE_ONCE(account->limits.blocks_soft, limits->blocks_soft);
	WRITE_ONCE(account->limits.dram, limits->dram);
	WRITE_ONCE(account->limits.weight, limits->weight);
	account_limit(account, KVBLK_ACCOUNT_UNITS, limits->bytes, limits->bytes_soft,
		      KVBLK_UNIT_SHIFT);
	account_limit(account, KVBLK_ACCOUNT_BLOCKS, limits->blocks, limits->blocks_soft, 0);
	WRITE_ONCE(account->limited, limits->bytes || limits->bytes_soft ||
		   limits->blocks || limits->blocks_soft);
	kvblk_account_check(pool, account);
}

int kvblk_account_open(struct kvblk_pool *pool, u16 id, const struct kvblk_tenant_limits *limits)
{
	static const struct kvblk_tenant_limits none = { .weight = KVBLK_TENANT_WEIGHT };
	struct kvblk_account *account = account_take(pool);
	u32 i;

	lockdep_assert_held(&pool->tenants.lock);
	if (!account)
		return -ENOMEM;
	WRITE_ONCE(account->id, id);
	kvblk_account_set(pool, account, limits ?: &none);
	list_add_tail_rcu(&account->link, &pool->tenants.accounts);
	for (i = 0; i < KVBLK_GRANULES; i++)
		if (READ_ONCE(pool->granule[i]) && rows_begin(pool, account, i)) {
			kvblk_account_close(pool, account);
			return -ENOMEM;
		}
	rcu_assign_pointer(pool->tenants.account[id], account);
	return 0;
}

void kvblk_account_close(struct kvblk_pool *pool, struct kvblk_account *account)
{
	atomic64_t *rows;
	u32 i;

	lockdep_assert_held(&pool->tenants.lock);
	RCU_INIT_POINTER(pool->tenants.account[account->id], NULL);
	list_del_rcu(&account->link);
	WRITE_ONCE(account->limited, false);
	WRITE_ONCE(account->limits.dram, 0);
	/* nothing is counted from now on */
	synchronize_rcu();
	for (i = 0; i < KVBLK_GRANULES; i++) {
		rows = rcu_dereference_protected(account->rows[i], true);
		RCU_INIT_POINTER(account->rows[i], NULL);
		kvfree(rows);
	}
	for (i = 0; i < KVBLK_ACCOUNT_KINDS; i++)
		atomic64_set(&account->used[i], 0);
	list_add(&account->link, &pool->tenants.closed);
}

int kvblk_accounts_init(struct kvblk_pool *pool)
{
	struct kvblk_tenants *tenants = &pool->tenants;

	INIT_LIST_HEAD(&tenants->accounts);
	INIT_LIST_HEAD(&tenants->closed);
	tenants->account = kvcalloc(KVBLK_TENANT_IDS, sizeof(*tenants->account), GFP_KERNEL);
	guard(mutex)(&tenants->lock);
	return tenants->account && !kvblk_account_open(pool, 0, NULL) ?
	       kvblk_account_open(pool, KVBLK_NVME_TENANT, NULL) : -ENOMEM;
}

void kvblk_accounts_exit(struct kvblk_pool *pool)
{
	struct kvblk_tenants *tenants = &pool->tenants;
	struct kvblk_account *account, *next;

	/* kvblk_accounts_init() was not called */
	if (!tenants->accounts.next)
		return;
	list_splice_init(&tenants->closed, &tenants->accounts);
	list_for_each_entry_safe(account, next, &tenants->accounts, link)
		account_free(account);
	kvfree(tenants->account);
}

/* ---- quotas ---- */

u64 kvblk_account_used(const struct kvblk_account *account, enum kvblk_account_kind kind)
{
	/* a row is changed before its sum */
	return max(atomic64_read(&account->used[kind]), 0);
}

static bool account_above(const struct kvblk_account *account, enum kvblk_account_kind kind,
			  u64 limit)
{
	u64 held = atomic64_read(&account->held[kind]);

	/* pairs with kvblk_account_release(): a record is held, or used, or both */
	smp_rmb();
	return held + kvblk_account_used(account, kind) > limit;
}

bool kvblk_account_over(const struct kvblk_account *account)
{
	return account_above(account, KVBLK_ACCOUNT_UNITS,
			     READ_ONCE(account->soft[KVBLK_ACCOUNT_UNITS])) ||
	       account_above(account, KVBLK_ACCOUNT_BLOCKS,
			     READ_ONCE(account->soft[KVBLK_ACCOUNT_BLOCKS]));
}

void kvblk_account_check(struct kvblk_pool *pool, const struct kvblk_account *account)
{
	if (!READ_ONCE(account->limited) || !kvblk_account_over(account) ||
	    work_pending(&pool->tenants.quota_work) || !kvblk_pool_enter(pool))
		return;
	queue_work(pool->wq, &pool->tenants.quota_work);
	kvblk_pool_leave(pool);
}

int __kvblk_account_reserve(struct kvblk_pool *pool, struct kvblk_account *account, u32 length,
			    u32 *held)
{
	u32 units = kvblk_record_units(kvblk_tenant_encrypted(pool, READ_ONCE(account->id)), length,
				       READ_ONCE(pool->align_units));
	bool over;

	atomic64_add(units, &account->held[KVBLK_ACCOUNT_UNITS]);
	/* full barrier: of puts that exceed a limit together, each but the first sees another */
	atomic64_inc_return(&account->held[KVBLK_ACCOUNT_BLOCKS]);
	*held = units;
	over = account_above(account, KVBLK_ACCOUNT_UNITS,
			     READ_ONCE(account->hard[KVBLK_ACCOUNT_UNITS])) ||
	       account_above(account, KVBLK_ACCOUNT_BLOCKS,
			     READ_ONCE(account->hard[KVBLK_ACCOUNT_BLOCKS]));
	if (over)
		__kvblk_account_release(pool, account, held);
	return over ? -EDQUOT : 0;
}

void __kvblk_account_release(struct kvblk_pool *pool, struct kvblk_account *account, u32 *held)
{
	/* after the record was counted */
	smp_mb__before_atomic();
	atomic64_sub(*held, &account->held[KVBLK_ACCOUNT_UNITS]);
	atomic64_dec(&account->held[KVBLK_ACCOUNT_BLOCKS]);
	*held = 0;
	/* no earlier, because only a record that is counted can be dropped */
	kvblk_account_check(pool, account);
}

bool kvblk_tenant_over(struct kvblk_pool *pool, u16 id)
{
	const struct kvblk_account *account;

	guard(rcu)();
	account = rcu_dereference(pool->tenants.account[id]);
	return account && READ_ONCE(account->limited) && kvblk_account_over(account);
}
