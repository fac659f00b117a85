// SPDX-License-Identifier: GPL-2.0
/*
 * Memory that a file has registered: pinned once, for many operations.
 *
 * The rules:
 * - The host's is pinned for as long as the caller likes, and is locked memory of
 *   his. A PCI device's is not locked memory, and its driver may want to go at any
 *   time (mm/gup.c: is_valid_gup_args()): therefore such a region is on a list,
 *   and is taken away from its file before the driver is unbound. Operations
 *   under way keep it, as they keep what they pin themselves.
 * - Whoever takes a region out of file->regions puts the file's reference.
 * - regions_lock is outside of the xarray's lock. A device's region is in its
 *   file's and on the list, or is being taken out of both.
 */
#include <linux/io.h>
#include <linux/memremap.h>
#include <linux/mm.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>

#include "kvblk.h"

static LIST_HEAD(device_regions);
static DEFINE_MUTEX(regions_lock);	/* it, and devices_going */
static u32 devices_going;		/* between the notifiers' calls */

static void region_free(struct kvblk_region *region)
{
	unpin_user_pages_dirty_lock(region->pages, region->nr_pages, !region->device);
	if (!region->device)
		account_locked_vm(region->mm, region->nr_pages, false);
	mmdrop(region->mm);
	kvfree(region->run);
	kvfree(region);
}

void kvblk_region_put(struct kvblk_region *region)
{
	if (refcount_dec_and_test(&region->refs))
		region_free(region);
}

static int region_runs(struct kvblk_region *region)
{
	u32 i = region->nr_pages, run = 0;

	region->run = kvmalloc_array(i, sizeof(*region->run),
				     GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	if (!region->run)
		return -ENOMEM;
	while (i--) {
		run = run && region->pages[i] + 1 == region->pages[i + 1] ? run + 1 : 1;
		region->run[i] = run;
	}
	return 0;
}

static bool is_device_memory(u64 addr)
{
	struct page *page;
	bool device;

	if (!IS_ENABLED(CONFIG_PCI_P2PDMA) ||
	    pin_user_pages_fast(addr & PAGE_MASK, 1, FOLL_WRITE | FOLL_PCI_P2PDMA,
				&page) != 1)
		return false;
	device = is_pci_p2pdma_page(page);
	unpin_user_page(page);
	return device;
}

/* Pins @nr pages, of the host or of one device. */
static int region_pin(struct kvblk_region *region, u32 nr)
{
	unsigned int gup = FOLL_WRITE |
			   (region->device ? FOLL_PCI_P2PDMA : FOLL_LONGTERM);
	struct page **pages = region->pages;
	u32 i = 0;

	while (region->nr_pages < nr) {
		long got = pin_user_pages_fast((region->addr & PAGE_MASK) +
					       ((u64)region->nr_pages << PAGE_SHIFT),
					       min(nr - region->nr_pages, 1u << 15),
					       gup, pages + region->nr_pages);

		if (got <= 0)
			return got == -ENOMEM ? -ENOMEM :
			       got == -EREMOTEIO ? -EXDEV : -EFAULT;
		region->nr_pages += got;
		for (; region->device && i < region->nr_pages; i++)
			if (!is_pci_p2pdma_page(pages[i]) ||
			    !zone_device_pages_have_same_pgmap(pages[0], pages[i]))
				return -EXDEV;
		if (fatal_signal_pending(current))
			return -EINTR;
		cond_resched();
	}
	return 0;
}

static int region_publish(struct kvblk_region *region, u32 *handle)
{
	return xa_alloc(&region->file->regions, handle, region,
			XA_LIMIT(1, KVBLK_REGIONS_MAX), GFP_KERNEL_ACCOUNT);
}

static int device_region_publish(struct kvblk_region *region, u32 *handle)
{
	int err;

	guard(mutex)(&regions_lock);
	/* it may be this one, which would then wait for the pins */
	if (devices_going)
		return -EAGAIN;
	err = region_publish(region, &region->handle);
	if (err)
		return err;
	*handle = region->handle;
	list_add(&region->link, &device_regions);
	return 0;
}

int kvblk_region_add(struct kvblk_file *file, u64 addr, u64 length, u32 *handle)
{
	u32 first = offset_in_page(addr), nr;
	struct kvblk_region *region;
	int err = 0;

	if (!length || length > KVBLK_REGION_MAX || addr + length < addr)
		return -EINVAL;
	nr = DIV_ROUND_UP_ULL(first + length, PAGE_SIZE);
	region = kvzalloc(struct_size(region, pages, nr), GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	if (!region)
		return -ENOMEM;
	refcount_set(&region->refs, 1);
	region->file = file;
	region->addr = addr;
	region->length = length;
	region->device = is_device_memory(addr);
	if (!region->device)
		err = account_locked_vm(current->mm, nr, true);
	if (err) {
		kvfree(region);
		return err;
	}
	region->mm = current->mm;
	mmgrab(region->mm);
	err = region_pin(region, nr);
	if (!err)
		err = region_runs(region);
	if (!err)
		err = region->device ? device_region_publish(region, handle) :
				       region_publish(region, handle);
	if (err) {
		/* the account is of all pages, pinned or not */
		if (!region->device)
			account_locked_vm(region->mm, nr - region->nr_pages, false);
		region_free(region);
	}
	return err == -EBUSY ? -ENOSPC : err;
}

/* It was taken out of its file's. */
static void region_drop(struct kvblk_region *region)
{
	if (region->device) {
		guard(mutex)(&regions_lock);
		list_del(&region->link);
	}
	kvblk_region_put(region);
}

int kvblk_region_remove(struct kvblk_file *file, u32 handle)
{
	struct kvblk_region *region = xa_erase(&file->regions, handle);

	if (!region)
		return -ENOENT;
	region_drop(region);
	return 0;
}

void kvblk_region_remove_all(struct kvblk_file *file)
{
	struct kvblk_region *region;
	unsigned long handle;

	xa_for_each(&file->regions, handle, region)
		kvblk_region_remove(file, handle);
	xa_destroy(&file->regions);
}

int kvblk_parts_resolve(struct kvblk_file *file, struct kvblk_part *parts, u32 nr)
{
	struct kvblk_region *last = NULL;
	u32 i, last_handle = 0;

	for (i = 0; i < nr; i++) {
		/* a piece becomes a part where it lies */
		struct kvblk_piece piece = *(struct kvblk_piece *)&parts[i];

		static_assert(sizeof(piece) == sizeof(parts[i]));
		parts[i] = (struct kvblk_part) {
			.addr = piece.addr, .length = piece.length,
		};
		if (piece.type != KVBLK_PIECE_REGISTERED)
			continue;
		if (!last || piece.handle != last_handle) {
			xa_lock(&file->regions);
			last = xa_load(&file->regions, piece.handle);
			if (last)
				refcount_inc(&last->refs);
			xa_unlock(&file->regions);
			last_handle = piece.handle;
		} else {
			refcount_inc(&last->refs);
		}
		parts[i].region = last;
		if (last && piece.addr <= last->length &&
		    piece.length <= last->length - piece.addr)
			continue;
		/* the rest are pieces still */
		memset(&parts[i + 1], 0, (nr - i - 1) * sizeof(*parts));
		return last ? -ERANGE : -ENXIO;
	}
	return 0;
}

void kvblk_parts_put(struct kvblk_part *parts, u32 nr)
{
	u32 i;

	for (i = 0; parts && i < nr; i++)
		if (parts[i].region && parts[i].region != KVBLK_FIXED)
			kvblk_region_put(parts[i].region);
}

#ifdef CONFIG_PCI_P2PDMA
void kvblk_region_device_goes(struct pci_dev *pdev)
{
	struct kvblk_region *region, *next;

	guard(mutex)(&regions_lock);
	devices_going++;
	list_for_each_entry_safe(region, next, &device_regions, link) {
		/* its handle is nobody else's until the caller has given it back */
		if (!kvblk_pci_has_memory(pdev, page_to_phys(region->pages[0])) ||
		    xa_cmpxchg(&region->file->regions, region->handle, region,
			       XA_ZERO_ENTRY, GFP_KERNEL) != region)
			continue;
		list_del(&region->link);
		kvblk_region_put(region);
	}
}

void kvblk_region_device_gone(void)
{
	guard(mutex)(&regions_lock);
	/* it may have begun before there was anybody to tell */
	if (devices_going)
		devices_going--;
}
#endif
