// SPDX-License-Identifier: GPL-2.0
/*
 * Minor numbers of device nodes. A number belongs to one tenant of one pool uuid until the module
 * is unloaded: a node that was copied into a container opens that tenant or none.
 */
#include <linux/slab.h>

#include "pool/pool.h"

#define KIND_MINORS	(1u << (MINORBITS - 3))	/* of each kind of a pool's nodes */
#define TENANT_MINORS	(1u << (MINORBITS - 2))	/* behind them */

#define NUMBERS		(KVBLK_NODES * KIND_MINORS + TENANT_MINORS)

static_assert(NUMBERS <= 1u << MINORBITS);

struct kvblk_number {
	struct list_head link;
	uuid_t pool;
	u16 tenant;
	u32 minor;
	bool used;			/* taken; a part of a pool in two needs a second number */
};

static dev_t numbers_devt;
static LIST_HEAD(numbers);		/* never shrinks; under kvblk_pools_lock */
static u32 nr_numbers[2];		/* of pools, of tenants: tenants must not use up a pool's */

struct kvblk_number *kvblk_number_take(const uuid_t *pool, u16 tenant)
{
	struct kvblk_number *fresh __free(kfree) = kzalloc(sizeof(*fresh), GFP_KERNEL), *number;

	if (!fresh)
		return ERR_PTR(-ENOMEM);
	guard(mutex)(&kvblk_pools_lock);
	list_for_each_entry(number, &numbers, link)
		if (!number->used && number->tenant == tenant && uuid_equal(&number->pool, pool))
			break;
	if (list_entry_is_head(number, &numbers, link)) {
		if (nr_numbers[!!tenant] == (tenant ? TENANT_MINORS : KIND_MINORS))
			return ERR_PTR(-ENOSPC);
		number = no_free_ptr(fresh);
		uuid_copy(&number->pool, pool);
		number->tenant = tenant;
		number->minor = nr_numbers[!!tenant]++;
		list_add_tail(&number->link, &numbers);
	}
	number->used = true;
	return number;
}

void kvblk_number_drop(struct kvblk_number *number)
{
	guard(mutex)(&kvblk_pools_lock);
	number->used = false;
}

dev_t kvblk_number_devt(const struct kvblk_number *number, u32 kind)
{
	return MKDEV(MAJOR(numbers_devt), kind * KIND_MINORS + number->minor);
}

int kvblk_numbers_init(void)
{
	return alloc_chrdev_region(&numbers_devt, 0, NUMBERS, "kvblk");
}

void kvblk_numbers_exit(void)
{
	struct kvblk_number *number, *next;

	unregister_chrdev_region(numbers_devt, NUMBERS);
	list_for_each_entry_safe(number, next, &numbers, link)
		kfree(number);
}
