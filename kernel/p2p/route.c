// SPDX-License-Identifier: GPL-2.0
/*
 * Memory of PCI devices (a GPU's BAR, a drive's CMB), and members that reach it directly. Rules:
 * - The page type marks such memory, the physical address its device. A device ("provider") is
 *   listed from the first transfer until its driver unbinds, which pinned pages prevent during I/O.
 * - A route is a pair of provider and member. It is direct if the member's queue accepts such
 *   pages, PCI can route between the two, and a probe has written and read back correct data.
 *   Probes run in the background, and again after an I/O error possibly caused by the route.
 *   Until then, and after a second error, transfers bounce through kernel memory.
 * - If the provider has no memory to allocate for a probe, callers' memory serves for trials. A
 *   get is read directly and then through kernel memory, and both are compared. A page of a put
 *   is written to media and read back. Each trial proves one direction. The caller may write
 *   meanwhile, so a single failure proves nothing. A faked proof harms only the device's users.
 * - A bio has pages of one provider or none: see zone_device_pages_compatible() in block/blk.h.
 * - No I/O is waited for under providers_lock.
 * - The CPU reads such memory through the kernel's mapping, which is uncached, only in probes and
 *   trials, at the end of a transfer, and for a caller in another address space than the region's.
 */
#include <linux/blkdev.h>
#include <linux/io.h>
#include <linux/memremap.h>
#include <linux/pci.h>
#include <linux/pci-p2pdma.h>
#include <linux/random.h>
#include <linux/rculist.h>
#include <linux/slab.h>

#include "request.h"

#ifdef CONFIG_PCI_P2PDMA

#define PROBE_BYTES	KVBLK_UNIT
#define TRIAL_FAILURES	4
#define TRIAL_PAUSE	(60 * HZ)	/* after the first failure, then longer */

struct provider {
	struct list_head link;
	struct pci_dev *pdev;		/* reference held */
	u32 serial;	/* never reused; routes refer to the provider by this number */
	u32 nr;		/* index in kvblk_flash_p2p.routes */
	struct rcu_head rcu;
};

static LIST_HEAD(providers);		/* readers use RCU */
static DEFINE_MUTEX(providers_lock);	/* protects providers and all routes */
static u32 provider_serial;

static bool pci_has_memory(struct pci_dev *pdev, phys_addr_t addr)
{
	struct resource *res;
	int i;

	pci_dev_for_each_resource(pdev, res, i)
		if (resource_type(res) == IORESOURCE_MEM && addr >= res->start &&
		    addr <= res->end && i < PCI_STD_NUM_BARS)
			return true;
	return false;
}

static bool pci_is_provider(struct pci_dev *pdev)
{
	return rcu_access_pointer(pdev->p2pdma);
}

static struct provider *provider_of(const struct pci_dev *pdev)
{
	struct provider *p;

	lockdep_assert_held(&providers_lock);
	list_for_each_entry(p, &providers, link)
		if (p->pdev == pdev)
			return p;
	return NULL;
}

/* Lists @pdev. Returns NULL if there are too many providers, or no memory. */
static struct provider *provider_add(struct pci_dev *pdev)
{
	struct provider *p;
	u32 taken = 0;

	lockdep_assert_held(&providers_lock);
	list_for_each_entry(p, &providers, link) {
		if (p->pdev == pdev)
			return p;
		taken |= BIT(p->nr);
	}
	if (taken == BIT(KVBLK_PROVIDERS_MAX) - 1)
		return NULL;
	p = kzalloc(sizeof(*p), GFP_KERNEL);
	if (!p)
		return NULL;
	p->pdev = pci_dev_get(pdev);
	p->serial = ++provider_serial;
	p->nr = ffz(taken);
	list_add_rcu(&p->link, &providers);
	return p;
}

static struct provider *provider_find(phys_addr_t addr)
{
	struct provider *p;

	list_for_each_entry_rcu(p, &providers, link, lockdep_is_held(&providers_lock))
		if (pci_has_memory(p->pdev, addr))
			return p;
	return NULL;
}

/* Removes a provider when its driver unbinds, because with another driver all may differ. */
static int pci_changed(struct notifier_block *nb, unsigned long action, void *data)
{
	struct provider *gone;

	/* the latter two as well, because a transfer may have listed the device in between */
	if (action != BUS_NOTIFY_UNBIND_DRIVER && action != BUS_NOTIFY_DEL_DEVICE &&
	    action != BUS_NOTIFY_UNBOUND_DRIVER && action != BUS_NOTIFY_REMOVED_DEVICE)
		return NOTIFY_DONE;
	scoped_guard(mutex, &providers_lock) {
		gone = provider_of(to_pci_dev(data));
		if (gone)
			list_del_rcu(&gone->link);
	}
	if (gone) {
		synchronize_rcu();
		pci_dev_put(gone->pdev);
		kfree(gone);
	}
	return NOTIFY_DONE;
}

static struct notifier_block pci_notifier = { .notifier_call = pci_changed };

static struct device *flash_device(struct kvblk_flash *flash)
{
	struct device *dev = disk_to_dev(flash->bdev->bd_disk);

	while (dev && !dev_is_pci(dev))
		dev = dev->parent;
	return dev;
}

/* Returns whether a probe is valid for all paths: of an nvme subsystem, not for legs of a RAID. */
static bool flash_is_multipath(struct kvblk_flash *flash)
{
	struct device *parent = disk_to_dev(flash->bdev->bd_disk)->parent;

	return parent && parent->class && !strcmp(parent->class->name, "nvme-subsystem");
}

static int probe_io(struct kvblk_flash *flash, blk_opf_t opf, u64 pos, void *buf)
{
	return kvblk_io_sync(flash, opf | REQ_NOMERGE, pos, buf, PROBE_BYTES);
}

/* Transfers data both ways between media and @there, and compares the copies in host memory. */
static bool probe_at(struct kvblk_flash *flash, u64 pos, void __force *there)
{
	u8 *host __free(kfree) = kmalloc(2 * PROBE_BYTES, GFP_KERNEL);
	u8 *back = host + PROBE_BYTES;

	if (!host)
		return false;
	get_random_bytes(host, PROBE_BYTES);
	memcpy_toio((void __iomem *)there, host, PROBE_BYTES);
	/* flush the posted writes */
	readb((void __iomem *)there);
	if (probe_io(flash, REQ_OP_WRITE, pos, there) ||
	    probe_io(flash, REQ_OP_READ, pos, back) || memcmp(host, back, PROBE_BYTES))
		return false;
	get_random_bytes(host, PROBE_BYTES);
	if (probe_io(flash, REQ_OP_WRITE, pos, host) || probe_io(flash, REQ_OP_READ, pos, there))
		return false;
	memcpy_fromio(back, (void __iomem *)there, PROBE_BYTES);
	return !memcmp(host, back, PROBE_BYTES);
}

/* Probes a write of a caller's page. Returns 1, -EINVAL: wrong, -EIO: rejected, other: unknown. */
static int probe_from(struct kvblk_flash *flash, u64 pos, void __force *there)
{
	u8 *before __free(kfree) = kmalloc(3 * PROBE_BYTES, GFP_KERNEL);
	u8 *after = before + PROBE_BYTES, *back = after + PROBE_BYTES;
	int err;

	if (!before)
		return -EAGAIN;
	/* overwrite the media, or else old data could match by chance */
	get_random_bytes(back, PROBE_BYTES);
	memcpy_fromio(before, (void __iomem *)there, PROBE_BYTES);
	/* all ones (reads of no device) or all zeroes (a fresh page) prove nothing */
	if (!memchr_inv(before, before[0], PROBE_BYTES) || probe_io(flash, REQ_OP_WRITE, pos, back))
		return -EAGAIN;
	err = probe_io(flash, REQ_OP_WRITE, pos, there);
	if (err)
		return err;
	if (probe_io(flash, REQ_OP_READ, pos, back))
		return -EAGAIN;
	memcpy_fromio(after, (void __iomem *)there, PROBE_BYTES);
	if (!memcmp(before, back, PROBE_BYTES))
		return 1;
	return memcmp(before, after, PROBE_BYTES) ? -EAGAIN : -EINVAL;
}

/* Returns a route's new state, or UNKNOWN. @page: a caller's, or NULL; @from: from probe_from(). */
static enum kvblk_route_state route_probe(struct pci_dev *pdev, struct kvblk_flash *flash,
					  struct page *page, int *from)
{
	u32 units = flash->record_align >> KVBLK_UNIT_SHIFT;
	enum kvblk_route_state state = KVBLK_ROUTE_UNKNOWN;
	void *there = pci_alloc_p2pmem(pdev, PROBE_BYTES);
	struct kvblk_reservation resv;
	u64 pos;

	if (!flash->ops->reserve || (!there && !page)) {
		if (there)
			pci_free_p2pmem(pdev, there, PROBE_BYTES);
		return KVBLK_ROUTE_TRIAL;
	}
	if (!flash->ops->reserve(flash, units, &resv)) {
		pos = kvblk_seg_pos(flash, resv.segment, resv.unit);
		if (there) {
			state = probe_at(flash, pos, there) ? KVBLK_ROUTE_DIRECT :
							      KVBLK_ROUTE_BOUNCE;
		} else {
			*from = probe_from(flash, pos, page_address(page));
			state = *from == -EIO ? KVBLK_ROUTE_BOUNCE : KVBLK_ROUTE_TRIAL;
		}
		kvblk_reservation_release(&resv, NULL);
	}
	if (there)
		pci_free_p2pmem(pdev, there, PROBE_BYTES);
	return state;
}

static struct kvblk_route *route_of(const struct provider *p, struct kvblk_flash *flash)
{
	struct kvblk_route *route = &flash->p2p.routes[p->nr];

	lockdep_assert_held(&providers_lock);
	if (route->serial != p->serial) {
		WRITE_ONCE(route->state, KVBLK_ROUTE_UNKNOWN);
		WRITE_ONCE(route->proven, 0);
		route->failures = 0;
		route->errors = 0;
		WRITE_ONCE(route->next, jiffies);
		route->why = NULL;
		/* pairs with route_state() */
		smp_store_release(&route->serial, p->serial);
	}
	return route;
}

static struct kvblk_route *route_find(phys_addr_t addr, struct kvblk_flash *flash)
{
	const struct provider *p = provider_find(addr);

	return p ? route_of(p, flash) : NULL;
}

/* Returns the reason why a route cannot be direct, or NULL if a probe must decide. */
static const char *route_look(struct pci_dev *pdev, struct kvblk_flash *flash, int *distance)
{
	struct device *dev;

	*distance = -1;
	if (!blk_queue_pci_p2pdma(bdev_get_queue(flash->bdev)))
		return "queue";
	/* of other drivers' disks the parents may be gone */
	dev = flash_device(flash);
	if (!dev)
		return flash_is_multipath(flash) ? NULL : "unreachable";
	*distance = pci_p2pdma_distance(pdev, dev, false);
	return *distance < 0 ? "unreachable" : NULL;
}

static void route_doubt(struct kvblk_route *route)
{
	if (++route->failures < TRIAL_FAILURES) {
		WRITE_ONCE(route->next, jiffies + TRIAL_PAUSE * route->failures);
		return;
	}
	route->why = "probe";
	WRITE_ONCE(route->state, KVBLK_ROUTE_BOUNCE);
}

static void route_prove(struct kvblk_route *route, u32 proven)
{
	WRITE_ONCE(route->proven, route->proven | proven);
	if (route->proven == (KVBLK_PROVEN_GET | KVBLK_PROVEN_PUT))
		WRITE_ONCE(route->state, KVBLK_ROUTE_DIRECT);
}

static enum kvblk_route_state route_state(phys_addr_t addr, struct kvblk_flash *flash,
					  u32 *proven, u32 *serial)
{
	struct kvblk_route *route;
	struct provider *p;

	guard(rcu)();
	p = provider_find(addr);
	if (!p)
		return KVBLK_ROUTE_UNKNOWN;
	route = &flash->p2p.routes[p->nr];
	/* pairs with route_of() */
	if (smp_load_acquire(&route->serial) != p->serial)
		return KVBLK_ROUTE_UNKNOWN;
	*proven = READ_ONCE(route->proven);
	*serial = p->serial;
	if (READ_ONCE(route->state) == KVBLK_ROUTE_TRIAL &&
	    time_before(jiffies, READ_ONCE(route->next)))
		return KVBLK_ROUTE_BOUNCE;
	return READ_ONCE(route->state);
}

static struct provider *provider_discover(phys_addr_t addr)
{
	struct pci_dev *pdev = NULL;
	struct provider *p = provider_find(addr);

	if (p)
		return p;
	for_each_pci_dev(pdev) {
		if (!pci_is_provider(pdev) || !pci_has_memory(pdev, addr))
			continue;
		p = provider_add(pdev);
		pci_dev_put(pdev);
		break;
	}
	return p;
}

void kvblk_p2p_work(struct work_struct *work)
{
	struct kvblk_flash *flash = container_of(work, struct kvblk_flash, p2p.work);
	enum kvblk_route_state state;
	struct pci_dev *pdev = NULL;
	struct kvblk_route *route;
	struct provider *p;
	const char *why;
	int distance, from = 0;
	u32 serial;

	scoped_guard(mutex, &providers_lock) {
		p = provider_discover(page_to_phys(flash->p2p.page));
		if (p) {
			route = route_of(p, flash);
			serial = p->serial;
			pdev = pci_dev_get(p->pdev);
		}
	}
	if (!pdev)
		goto out;

	why = route_look(pdev, flash, &distance);
	state = why ? KVBLK_ROUTE_BOUNCE :
		      route_probe(pdev, flash, flash->p2p.whole ? flash->p2p.page : NULL, &from);
	if (!why && state == KVBLK_ROUTE_BOUNCE)
		why = "probe";

	mutex_lock(&providers_lock);
	if (route->serial == serial && (route->state == KVBLK_ROUTE_UNKNOWN ||
					route->state == KVBLK_ROUTE_TRIAL)) {
		/* UNKNOWN must not override the result of a trial */
		if (state != KVBLK_ROUTE_UNKNOWN) {
			route->why = why;
			WRITE_ONCE(route->state, state);
		}
		if (from > 0)
			route_prove(route, KVBLK_PROVEN_PUT);
		else if (from == -EINVAL)
			route_doubt(route);
	}
	mutex_unlock(&providers_lock);
	pci_dev_put(pdev);
out:
	put_page(flash->p2p.page);
	/* pause, or else an inconclusive probe would be repeated at once */
	WRITE_ONCE(flash->p2p.next, jiffies + HZ);
	/* last, because the next probe sets p2p.page */
	atomic_set_release(&flash->p2p.busy, 0);
	percpu_ref_put(&flash->ref);
}

/* Queues a probe of the route to @page, unless one runs. @whole: the probe may use the page. */
static void route_discover(struct page *page, bool whole, struct kvblk_flash *flash)
{
	if (time_before(jiffies, READ_ONCE(flash->p2p.next)) ||
	    atomic_cmpxchg(&flash->p2p.busy, 0, 1))
		return;
	if (!percpu_ref_tryget_live(&flash->ref)) {
		atomic_set(&flash->p2p.busy, 0);
		return;
	}
	/* keep the driver bound: with another, pci_alloc_p2pmem() does not check for memory */
	get_page(page);
	flash->p2p.page = page;
	flash->p2p.whole = whole;
	queue_work(flash->pool->wq, &flash->p2p.work);
}

/* Calls @look for the first vector of each run of one provider, until @look fails. */
static int mem_each_provider(struct kvblk_req *req, struct kvblk_flash *flash,
			     int (*look)(struct kvblk_req *req, struct bio_vec *bv,
					 struct kvblk_flash *flash))
{
	const struct kvblk_mem *mem = &req->mem;
	struct page *last = NULL;
	int err = 0;
	u32 i;

	for (i = 1; i < mem->nr && !err; i++) {
		struct page *page = mem->bv[i].bv_page;

		if (!is_pci_p2pdma_page(page) ||
		    (last && zone_device_pages_have_same_pgmap(last, page)))
			continue;
		last = page;
		err = look(req, &mem->bv[i], flash);
	}
	return err;
}

static phys_addr_t bv_addr(const struct bio_vec *bv)
{
	return page_to_phys(bv->bv_page) + bv->bv_offset;
}

struct kvblk_trial {
	void __iomem *there;	/* destination in the device's memory */
	phys_addr_t addr;	/* physical address of @there */
	u32 serial;		/* of the provider */
	u32 at;			/* offset in the payload, from req->read.from on */
	u32 bytes;
	bool taken;		/* @data has the bytes of the direct read */
	u8 data[PROBE_BYTES];	/* mark written before the direct read, then the bytes read */
};

/* Writes a random mark to the destination, which the member must overwrite. */
static int trial_begin(struct kvblk_req *req, struct bio_vec *bv, u32 serial)
{
	const struct bio_vec *before;
	struct kvblk_trial *trial;

	if (req->media.trial)
		return 0;
	trial = kmalloc(sizeof(*trial), GFP_KERNEL | __GFP_NOWARN);
	if (!trial)
		return -EREMOTEIO;
	trial->there = (void __force __iomem *)bvec_virt(bv);
	trial->addr = bv_addr(bv);
	trial->serial = serial;
	trial->at = 0;
	for (before = &req->mem.bv[1]; before < bv; before++)
		trial->at += before->bv_len;
	trial->bytes = min(bv->bv_len, PROBE_BYTES);
	trial->taken = false;
	get_random_bytes(trial->data, trial->bytes);
	memcpy_toio(trial->there, trial->data, trial->bytes);
	/* flush the posted writes */
	readb(trial->there);
	req->media.trial = trial;
	return 0;
}

static int look_known(struct kvblk_req *req, struct bio_vec *bv, struct kvblk_flash *flash)
{
	bool put = req->type->reads, whole = false;
	u32 proven = 0, serial = 0;

	switch (route_state(bv_addr(bv), flash, &proven, &serial)) {
	case KVBLK_ROUTE_DIRECT:
		return 0;
	case KVBLK_ROUTE_BOUNCE:
		return -EREMOTEIO;
	case KVBLK_ROUTE_TRIAL:
		if (proven & (put ? KVBLK_PROVEN_PUT : KVBLK_PROVEN_GET))
			return 0;
		if (!put)
			return trial_begin(req, bv, serial);
		whole = !offset_in_page(bv->bv_offset) && bv->bv_len >= PAGE_SIZE;
		if (!whole)
			return -EREMOTEIO;
		fallthrough;
	default:
		route_discover(bv->bv_page + (bv->bv_offset >> PAGE_SHIFT), whole, flash);
		return -EREMOTEIO;
	}
}

static int look_failed(struct kvblk_req *req, struct bio_vec *bv, struct kvblk_flash *flash)
{
	struct kvblk_route *route;

	guard(mutex)(&providers_lock);
	route = route_find(bv_addr(bv), flash);
	/* of transfers in flight together only the first failure counts */
	if (!route || (route->state != KVBLK_ROUTE_DIRECT && route->state != KVBLK_ROUTE_TRIAL))
		return 0;
	route->why = "error";
	WRITE_ONCE(route->proven, 0);
	WRITE_ONCE(route->state, route->errors++ ? KVBLK_ROUTE_BOUNCE : KVBLK_ROUTE_UNKNOWN);
	return 0;
}

int kvblk_p2p_route(struct kvblk_req *req, struct kvblk_flash *flash)
{
	int err = mem_each_provider(req, flash, look_known);

	if (err && req->media.trial) {
		memset_io(req->media.trial->there, 0, req->media.trial->bytes);
		kvblk_p2p_trial_end(req);
	}
	return err;
}

bool kvblk_p2p_bounces(phys_addr_t addr, struct kvblk_flash *flash)
{
	u32 proven, serial;

	return route_state(addr, flash, &proven, &serial) == KVBLK_ROUTE_BOUNCE;
}

void kvblk_p2p_trial_end(struct kvblk_req *req)
{
	kfree(req->media.trial);
	req->media.trial = NULL;
}

static void trial_report(const struct kvblk_trial *trial, struct kvblk_flash *flash, bool right)
{
	struct kvblk_route *route;

	guard(mutex)(&providers_lock);
	route = route_find(trial->addr, flash);
	if (!route || route->serial != trial->serial || route->state != KVBLK_ROUTE_TRIAL)
		return;
	if (right)
		route_prove(route, KVBLK_PROVEN_GET);
	else
		route_doubt(route);
}

int kvblk_p2p_trial(struct kvblk_req *req)
{
	struct kvblk_trial *trial = req->media.trial;
	struct bio_vec *bv = &req->mem.bv[1];
	u32 at = trial->at, bytes = trial->bytes, part, done = 0;
	bool right = true;

	/* the payload may be in either memory: compare vector by vector */
	for (; done < bytes; bv++) {
		if (at >= bv->bv_len) {
			at -= bv->bv_len;
			continue;
		}
		part = min(bv->bv_len - at, bytes - done);
		if (trial->taken)
			right &= !memcmp(trial->data + done, bvec_virt(bv) + at, part);
		else
			memcpy_fromio(trial->data + done,
				      (void __force __iomem *)(bvec_virt(bv) + at), part);
		done += part;
		at = 0;
	}
	if (!trial->taken) {
		trial->taken = true;
		return -EAGAIN;
	}
	trial_report(trial, req->media.flash, right);
	kvblk_p2p_trial_end(req);
	return 0;
}

void kvblk_p2p_failed(struct kvblk_req *req, struct kvblk_flash *flash)
{
	kvblk_p2p_trial_end(req);
	switch (req->media.io.status) {
	case BLK_STS_TIMEOUT:
	case BLK_STS_NOSPC:
	case BLK_STS_TRANSPORT:
	case BLK_STS_RESV_CONFLICT:
	case BLK_STS_MEDIUM:
	case BLK_STS_PROTECTION:
	case BLK_STS_RESOURCE:
	case BLK_STS_AGAIN:
	case BLK_STS_OFFLINE:
		/* errors independent of the memory's owner */
		return;
	default:
		mem_each_provider(req, flash, look_failed);
	}
}

int kvblk_p2p_ways(struct kvblk_flash *flash, int *at,
		   int (*report)(const struct kvblk_way *way, void *arg), void *arg)
{
	struct pci_dev *pdev = NULL;
	struct kvblk_route *route;
	struct kvblk_way way;
	struct provider *p;
	int err, nr = 0;

	guard(mutex)(&providers_lock);
	for_each_pci_dev(pdev) {
		if (!pci_is_provider(pdev) || nr++ < *at)
			continue;
		p = provider_of(pdev);
		route = p ? route_of(p, flash) : NULL;
		way.device = pci_name(pdev);
		way.state = route ? route->state : KVBLK_ROUTE_UNKNOWN;
		/* do not try to allocate: drivers without a pool (mlx5, vfio) would oops */
		way.why = route_look(pdev, flash, &way.distance);
		if (way.why)
			way.state = KVBLK_ROUTE_BOUNCE;
		else if (route)
			way.why = route->why;
		err = report(&way, arg);
		if (err) {
			pci_dev_put(pdev);
			return err;
		}
		(*at)++;
	}
	return 0;
}

int kvblk_p2p_init(void)
{
	return bus_register_notifier(&pci_bus_type, &pci_notifier);
}

void kvblk_p2p_exit(void)
{
	struct provider *p, *next;

	bus_unregister_notifier(&pci_bus_type, &pci_notifier);
	list_for_each_entry_safe(p, next, &providers, link) {
		pci_dev_put(p->pdev);
		kfree(p);
	}
}
#endif
