// SPDX-License-Identifier: GPL-2.0
/*
 * Registered memory: pinned once, for many operations. The rules:
 * - Host memory is pinned until its region ends, and charged as locked memory to the user that
 *   registered it, as io_uring's buffers are: the file, and so the region, may outlive any mm.
 * - Memory of a PCI device is not charged. GUP allows no long-term pins of it, because its driver
 *   may reclaim it at any time, but not while pinned. The driver first removes the mapping from the
 *   caller's address space: the pins end with the mapping, and the region is unusable afterwards.
 * - An operation that transfers to such a region, directly or by the CPU, holds the pins meanwhile:
 *   kvblk_region_use(). With the pins it waits neither for a page fault nor for space. A ring's
 *   operation holds them until its result is taken.
 * - Operations find a region under RCU and are counted by CPU, so that threads do not contend. A
 *   percpu_ref would need a grace period to end, but a program may register the same memory again
 *   as soon as a region without operations is unregistered: no page may be charged twice.
 */
#include <linux/io.h>
#include <linux/memremap.h>
#include <linux/mm.h>
#include <linux/nospec.h>
#include <linux/pagemap.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/sched/user.h>

#include "memory/memory.h"

#define PAGES_STEP	32768u	/* pinned, unpinned or counted between calls of cond_resched() */
/* Most references of a page; above GUP's own limit there is only a warning. */
#define PAGE_REFS_MAX	(INT_MAX / 2)

bool kvblk_user_device(u64 user, unsigned int gup, phys_addr_t *addr)
{
	struct page *page;
	bool device;

	if (pin_user_pages_fast(user & PAGE_MASK, 1, gup | FOLL_PCI_P2PDMA, &page) != 1)
		return false;
	device = is_pci_p2pdma_page(page);
	*addr = page_to_phys(page);
	unpin_user_page(page);
	return device;
}

bool kvblk_region_use(struct kvblk_region *region)
{
	return !READ_ONCE(region->gone) && refcount_inc_not_zero(&region->pins);
}

static void region_unpin(struct kvblk_region *region)
{
	u32 at, nr;

	for (at = 0; at < region->nr_pages; at += nr) {
		nr = min(region->nr_pages - at, PAGES_STEP);
		unpin_user_pages_dirty_lock(region->pages + at, nr, !region->device);
		cond_resched();
	}
}

void kvblk_region_unuse(struct kvblk_region *region)
{
	if (refcount_dec_and_test(&region->pins))
		region_unpin(region);
}

/* Charges @pages. Returns 0 or -ENOMEM if that exceeds RLIMIT_MEMLOCK. */
static int region_charge(struct kvblk_region *region, u64 pages)
{
	long limit = rlimit(RLIMIT_MEMLOCK) >> PAGE_SHIFT;
	long old = atomic_long_read(&region->user->locked_vm);

	do {
		if (old + (long)pages > limit && !capable(CAP_IPC_LOCK))
			return -ENOMEM;
	} while (!atomic_long_try_cmpxchg(&region->user->locked_vm, &old, old + pages));
	atomic64_add(pages, &region->mm->pinned_vm);
	region->charged += pages;
	return 0;
}

static void region_free_rcu(struct rcu_head *rcu)
{
	struct kvblk_region *region = container_of(rcu, struct kvblk_region, rcu);

	free_percpu(region->users);
	kvfree(region);
}

static void region_free(struct kvblk_region *region)
{
	if (!region->device)
		region_unpin(region);
	atomic64_sub(region->charged, &region->mm->pinned_vm);
	atomic_long_sub(region->charged, &region->user->locked_vm);
	free_uid(region->user);
	mmdrop(region->mm);
	kvfree(region->run);
	call_rcu(&region->rcu, region_free_rcu);
}

static void region_put(struct kvblk_region *region)
{
	bool last;

	/* if this is not the last reference, only RCU keeps the region */
	scoped_guard(rcu) {
		last = refcount_dec_and_test(&region->refs);
		/* pairs with the barrier of prepare_to_wait_event() in region_quiet() */
		smp_mb__after_atomic();
		if (!last && READ_ONCE(region->closing))
			wake_up_var(&region->refs);
	}
	if (last)
		region_free(region);
}

/* Counts an operation in @part. Returns false if the region has ended. */
static bool region_enter(struct kvblk_region *region, struct kvblk_part *part)
{
	part->users = raw_cpu_ptr(region->users);
	return refcount_inc_not_zero(part->users);
}

static void region_leave(struct kvblk_region *region, refcount_t *users)
{
	if (refcount_dec_and_test(users))
		region_put(region);
}

/* Ends the region for new operations. Called once, by the caller that set @closing or erased it. */
static void region_close(struct kvblk_region *region)
{
	u32 cpu;

	for_each_possible_cpu(cpu)
		region_leave(region, per_cpu_ptr(region->users, cpu));
}

static int region_runs(struct kvblk_region *region)
{
	u32 i = region->nr_pages, run = 0;

	region->run = kvmalloc_array(i, sizeof(*region->run), GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	if (!region->run)
		return -ENOMEM;
	while (i--) {
		run = run && region->pages[i] + 1 == region->pages[i + 1] ? run + 1 : 1;
		region->run[i] = run;
		if (!(i % PAGES_STEP))
			cond_resched();
	}
	return 0;
}

/* Returns 0, -EXDEV unless all are host memory or of one device, -ENOMEM if pinned too often. */
static int pages_check(struct kvblk_region *region, u32 from)
{
	struct page *const *pages = region->pages;
	u32 i;

	for (i = from; i < region->nr_pages; i++) {
		if (region->device &&
		    (!is_pci_p2pdma_page(pages[i]) ||
		     !zone_device_pages_have_same_pgmap(pages[0], pages[i])))
			return -EXDEV;
		if (folio_ref_count(page_folio(pages[i])) > PAGE_REFS_MAX)
			return -ENOMEM;
		region->private &= folio_test_anon(page_folio(pages[i]));
	}
	return 0;
}

static int region_pin(struct kvblk_region *region, u32 nr, unsigned int gup)
{
	int err;

	while (region->nr_pages < nr) {
		long got = pin_user_pages_fast((region->addr & PAGE_MASK) +
					       ((u64)region->nr_pages << PAGE_SHIFT),
					       min(nr - region->nr_pages, PAGES_STEP),
					       FOLL_WRITE | gup,
					       region->pages + region->nr_pages);

		if (got <= 0)
			return got == -ENOMEM ? -ENOMEM : got == -EREMOTEIO ? -EXDEV : -EFAULT;
		region->nr_pages += got;
		err = pages_check(region, region->nr_pages - got);
		if (err)
			return err;
		if (fatal_signal_pending(current))
			return -EINTR;
		cond_resched();
	}
	return 0;
}

/* Returns the pages that cannot be moved or freed: all of a huge page if part is pinned. */
static u64 region_pages(const struct kvblk_region *region)
{
	const struct folio *last = NULL, *folio;
	u64 pages = 0;
	u32 i;

	for (i = 0; i < region->nr_pages; i++, last = folio) {
		folio = page_folio(region->pages[i]);
		if (folio != last)
			pages += folio_nr_pages(folio);
		if (!(i % PAGES_STEP))
			cond_resched();
	}
	return pages;
}

static int host_begin(struct kvblk_region *region, u32 nr)
{
	return region_charge(region, nr) ?: region_pin(region, nr, FOLL_LONGTERM) ?:
	       /* a page that is mapped twice is pinned twice */
	       region_charge(region, max(region_pages(region), nr) - nr) ?: region_runs(region);
}

#if defined(CONFIG_PCI_P2PDMA) && defined(CONFIG_MMU_NOTIFIER)
static void device_gone(struct kvblk_region *region)
{
	if (!xchg(&region->gone, true))
		kvblk_region_unuse(region);
}

static bool device_changed(struct mmu_interval_notifier *notifier,
			   const struct mmu_notifier_range *range, unsigned long seq)
{
	struct kvblk_region *region = container_of(notifier, struct kvblk_region, notifier);

	/* unpinning may sleep */
	if (!mmu_notifier_range_blockable(range))
		return false;
	mmu_interval_set_seq(notifier, seq);
	/* events that keep the pages mapped */
	if (range->event != MMU_NOTIFY_PROTECTION_VMA &&
	    range->event != MMU_NOTIFY_PROTECTION_PAGE && range->event != MMU_NOTIFY_SOFT_DIRTY)
		device_gone(region);
	return true;
}

static const struct mmu_interval_notifier_ops device_ops = {
	.invalidate = device_changed,
};

static void device_end(struct kvblk_region *region)
{
	mmu_interval_notifier_remove(&region->notifier);
	device_gone(region);
}

/* Takes page faults before anything is pinned, because a pager may take any time. */
static int device_fault_in(const struct kvblk_region *region)
{
	u64 at, n;

	for (at = 0; at < region->length; at += n) {
		n = min(region->length - at, (u64)SZ_128M);
		if (fault_in_safe_writeable(u64_to_user_ptr(region->addr + at), n))
			return -EFAULT;
		cond_resched();
	}
	return 0;
}

static int device_begin(struct kvblk_region *region, u32 nr)
{
	u64 addr = region->addr & PAGE_MASK;
	int err;

	/* GUP strips tags off an address, the notifier does not */
	if (region->addr + region->length > current->mm->task_size)
		return -EFAULT;
	err = device_fault_in(region);
	if (err)
		return err;
	refcount_set(&region->pins, 2);	/* for the region and for this function */
	err = mmu_interval_notifier_insert(&region->notifier, current->mm, addr,
					   (u64)nr << PAGE_SHIFT, &device_ops);
	if (err)
		return err;
	/* from here on the notifier sees every change of the mapping */
	mmu_interval_read_begin(&region->notifier);
	err = region_pin(region, nr, FOLL_PCI_P2PDMA | FOLL_NOFAULT) ?: region_runs(region);
	kvblk_region_unuse(region);
	if (!err && READ_ONCE(region->gone))
		err = -EFAULT;
	if (err)
		device_end(region);
	return err;
}
#else
static void device_end(struct kvblk_region *region) {}
static int device_begin(struct kvblk_region *region, u32 nr) { return -EFAULT; }
#endif

/* Returns the place of a handle among the near ones, or NULL. */
static struct kvblk_region __rcu **region_near(struct kvblk_regions *regions, u32 handle)
{
	u32 i = handle - 1;

	return i < KVBLK_REGIONS_NEAR ?
	       regions->near + array_index_nospec(i, KVBLK_REGIONS_NEAR) : NULL;
}

/* Adds a region to both lists at once, or else one removed meanwhile could stay in @near. */
static int region_publish(struct kvblk_regions *regions, struct kvblk_region *region, u32 *handle)
{
	int err;

	guard(spinlock)(&regions->all.xa_lock);
	err = __xa_alloc(&regions->all, handle, region, XA_LIMIT(1, KVBLK_REGIONS_MAX),
			 GFP_KERNEL_ACCOUNT);
	if (!err && region_near(regions, *handle))
		rcu_assign_pointer(*region_near(regions, *handle), region);
	return err;
}

static struct kvblk_region *region_erase(struct kvblk_regions *regions, u32 handle)
{
	lockdep_assert_held(&regions->all.xa_lock);
	if (region_near(regions, handle))
		RCU_INIT_POINTER(*region_near(regions, handle), NULL);
	return __xa_erase(&regions->all, handle);
}

int kvblk_region_add(struct kvblk_regions *regions, u64 addr, u64 length, u32 *handle)
{
	struct kvblk_region *region;
	phys_addr_t at;
	bool device;
	u32 nr, cpu;
	int err;

	if (!length || length > KVBLK_REGION_MAX || addr + length < addr)
		return -EINVAL;
	nr = DIV_ROUND_UP_ULL(offset_in_page(addr) + length, PAGE_SIZE);
	device = IS_ENABLED(CONFIG_PCI_P2PDMA) && IS_ENABLED(CONFIG_MMU_NOTIFIER) &&
		 kvblk_user_device(addr, FOLL_WRITE, &at);
	/* reject more than the user may lock before pinning any */
	if (!device && nr > rlimit(RLIMIT_MEMLOCK) >> PAGE_SHIFT && !capable(CAP_IPC_LOCK))
		return -ENOMEM;
	region = kvzalloc(struct_size(region, pages, nr), GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	if (!region)
		return -ENOMEM;
	region->users = alloc_percpu_gfp(refcount_t, GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	if (!region->users) {
		kvfree(region);
		return -ENOMEM;
	}
	refcount_set(&region->refs, 1 + num_possible_cpus());
	for_each_possible_cpu(cpu)
		refcount_set(per_cpu_ptr(region->users, cpu), 1);
	region->addr = addr;
	region->length = length;
	region->device = device;
	region->private = !device;
	region->user = get_uid(current_user());
	region->mm = current->mm;
	mmgrab(region->mm);
	err = device ? device_begin(region, nr) : host_begin(region, nr);
	if (!err) {
		err = region_publish(regions, region, handle);
		if (err && device)
			device_end(region);
	}
	if (err) {
		region_close(region);
		region_put(region);
	}
	return err == -EBUSY ? -ENOSPC : err;
}

/* Ends an erased region: nothing sets @closing any more. */
static void region_end(struct kvblk_region *region)
{
	if (region->device)
		device_end(region);
	if (!region->closing)
		region_close(region);
	region_put(region);
}

/* Waits until only the file and the caller hold references. Returns 0 or -ERESTARTSYS. */
static int region_quiet(struct kvblk_region *region)
{
	/* poll, because a ring's worker is asked to stop without being woken */
	long step = current->flags & PF_IO_WORKER ? HZ / 10 : MAX_SCHEDULE_TIMEOUT, left;

	do
		left = ___wait_var_event(&region->refs,
					 ___wait_cond_timeout(refcount_read(&region->refs) <= 2),
					 TASK_INTERRUPTIBLE, 0, step,
					 __ret = schedule_timeout(__ret));
	while (!left);
	return left < 0 ? left : 0;
}

int kvblk_region_wait(struct kvblk_regions *regions, u32 handle)
{
	struct kvblk_region *region;
	bool closes;
	int err;

	scoped_guard(spinlock, &regions->all.xa_lock) {
		region = xa_load(&regions->all, handle);
		if (!region || region->waiting)
			return region ? -EBUSY : -ENOENT;
		refcount_inc(&region->refs);
		region->waiting = true;
		closes = !region->closing;
		WRITE_ONCE(region->closing, true);
	}
	if (closes)
		region_close(region);
	err = region_quiet(region);
	scoped_guard(spinlock, &regions->all.xa_lock) {
		region->waiting = false;
		/* the handle may have been unregistered and reused */
		if (!err && xa_load(&regions->all, handle) != region)
			err = -ENOENT;
		if (!err)
			region_erase(regions, handle);
	}
	if (!err)
		region_end(region);
	region_put(region);
	return err;
}

int kvblk_region_remove(struct kvblk_regions *regions, u32 handle)
{
	struct kvblk_region *region;

	scoped_guard(spinlock, &regions->all.xa_lock)
		region = region_erase(regions, handle);
	if (!region)
		return -ENOENT;
	region_end(region);
	return 0;
}

void kvblk_region_remove_all(struct kvblk_regions *regions)
{
	struct kvblk_region *region;
	unsigned long handle;

	xa_for_each(&regions->all, handle, region)
		kvblk_region_remove(regions, handle);
	xa_destroy(&regions->all);
}

/* Finds a region and counts an operation in @part. Returns NULL if there is none. */
static struct kvblk_region *region_find(struct kvblk_regions *regions, u32 handle,
					struct kvblk_part *part)
{
	struct kvblk_region __rcu **near;
	struct kvblk_region *region;

	guard(rcu)();
	near = region_near(regions, handle);
	region = near ? rcu_dereference(*near) : xa_load(&regions->all, handle);
	return region && region_enter(region, part) ? region : NULL;
}

/* Sets @part of @src to a piece of a region. @again: that of the part before. */
static noinline int part_enter(struct kvblk_regions *regions, const struct kvblk_piece *piece,
			       struct kvblk_src *src, struct kvblk_part *part, bool again)
{
	struct kvblk_region *region;

	if (again) {
		region = part[-1].region;
		part->users = part[-1].users;
		refcount_inc(part->users);
	} else {
		region = region_find(regions, piece->handle, part);
	}
	part->kind = KVBLK_PART_REGION;
	part->region = region;
	if (!region || READ_ONCE(region->gone) || READ_ONCE(region->closing))
		return -ENXIO;
	if (piece->addr > region->length || piece->length > region->length - piece->addr)
		return -EFAULT;
	if (part == src->parts && !region->device)
		src->first = kvblk_region_stretch(region, piece->addr, piece->length);
	return 0;
}

static int part_resolve(struct kvblk_regions *regions, const struct kvblk_piece *piece,
			struct kvblk_src *src, struct kvblk_part *part)
{
	part->addr = piece->addr;
	part->length = piece->length;
	if (piece->type != KVBLK_PIECE_REGISTERED)
		return 0;
	return part_enter(regions, piece, src, part,
			  part != src->parts && part[-1].region &&
			  piece[-1].handle == piece->handle);
}

int kvblk_src_resolve(struct kvblk_regions *regions, const struct kvblk_piece *pieces,
		      struct kvblk_src *src)
{
	int err = 0;
	u32 i;

	/* the usual case needs no loop */
	if (src->nr == 1)
		return part_resolve(regions, pieces, src, src->parts);
	for (i = 0; i < src->nr && !err; i++)
		err = part_resolve(regions, &pieces[i], src, &src->parts[i]);
	return err;
}

void kvblk_parts_put(struct kvblk_part *parts, u32 nr)
{
	for (; parts && nr; parts++, nr--)
		if (parts->region)
			region_leave(parts->region, parts->users);
}
