// SPDX-License-Identifier: GPL-2.0
/*
 * Memory of PCI devices (a GPU's BAR, a drive's CMB), and which members reach it
 * without the host's memory.
 *
 * The rules:
 * - A page says that it is such memory, its physical address whose: a provider
 *   is known from its first transfer, or from who looked into sysfs, until its
 *   driver lets it go. Pinned pages keep that from happening under an I/O.
 * - A route is a provider and a member. It is direct when the member's queue
 *   takes such pages, PCI can route between the two, and what was written and
 *   read back that way once was right. Whatever fails later makes it a bounce,
 *   until the provider goes, or the member.
 * - A bio has pages of one provider, or of none: see zone_device_pages_compatible()
 *   in block/blk.h.
 */
#include <linux/blkdev.h>
#include <linux/io.h>
#include <linux/memremap.h>
#include <linux/pci.h>
#include <linux/pci-p2pdma.h>
#include <linux/random.h>
#include <linux/rculist.h>
#include <linux/slab.h>
#include <linux/sysfs.h>

#include "kvblk.h"

#ifdef CONFIG_PCI_P2PDMA

#define PROBE_BYTES	KVBLK_UNIT

/*
 * struct provider - a device with memory that others can be let at
 * @serial: never used twice; what routes know it by
 * @nr: its place in kvblk_member.routes
 */
struct provider {
	struct list_head link;
	struct pci_dev *pdev;		/* with its ref */
	u32 serial;
	u32 nr;
	struct rcu_head rcu;
};

static LIST_HEAD(providers);		/* readers: RCU */
static DEFINE_MUTEX(providers_lock);	/* providers, all routes */
static u32 provider_serial;

static const char * const route_names[] = {
	[KVBLK_ROUTE_UNKNOWN] = "unknown",
	[KVBLK_ROUTE_DIRECT] = "direct",
	[KVBLK_ROUTE_BOUNCE] = "bounce",
};

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

/* Notes @pdev, if there is room for it. */
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

	list_for_each_entry_rcu(p, &providers, link,
				lockdep_is_held(&providers_lock))
		if (pci_has_memory(p->pdev, addr))
			return p;
	return NULL;
}

/* The driver lets its device go: with the next one everything may differ. */
static int pci_changed(struct notifier_block *nb, unsigned long action, void *data)
{
	struct pci_dev *pdev = to_pci_dev(data);
	struct provider *p, *gone = NULL;

	if (action != BUS_NOTIFY_UNBIND_DRIVER && action != BUS_NOTIFY_DEL_DEVICE)
		return NOTIFY_DONE;
	mutex_lock(&providers_lock);
	list_for_each_entry(p, &providers, link)
		if (p->pdev == pdev)
			gone = p;
	if (gone)
		list_del_rcu(&gone->link);
	mutex_unlock(&providers_lock);
	if (gone) {
		synchronize_rcu();
		pci_dev_put(gone->pdev);
		kfree(gone);
	}
	return NOTIFY_DONE;
}

static struct notifier_block pci_notifier = { .notifier_call = pci_changed };

/* ---- routes ---- */

/*
 * The PCI device that a member hangs on. NULL: it can't be told, since NVMe
 * multipath has the disk hang on the subsystem; then the probe tells all.
 */
static struct device *member_device(struct kvblk_member *member)
{
	struct device *dev = disk_to_dev(member->bdev->bd_disk);

	while (dev && !dev_is_pci(dev))
		dev = dev->parent;
	return dev;
}

/* Writes or reads one unit at @pos; 0 or a negative errno. */
static int probe_io(struct kvblk_member *member, blk_opf_t opf, u64 pos, void *buf)
{
	return kvblk_io_sync(member, opf | REQ_NOMERGE, pos, buf, PROBE_BYTES);
}

/*
 * Moves bytes both ways between the media and @there, and looks at them through
 * host memory. The only place where the CPU reads more than the odd end of a
 * transfer from such memory.
 */
static bool probe_at(struct kvblk_member *member, u64 pos, void __force *there)
{
	u8 *host = kmalloc(2 * PROBE_BYTES, GFP_KERNEL);
	u8 *back = host + PROBE_BYTES;
	bool right = false;

	if (!host)
		return false;
	get_random_bytes(host, PROBE_BYTES);
	memcpy_toio((void __iomem *)there, host, PROBE_BYTES);
	/* posted writes are there when a read has come back */
	readb((void __iomem *)there);
	if (probe_io(member, REQ_OP_WRITE, pos, there) ||
	    probe_io(member, REQ_OP_READ, pos, back) ||
	    memcmp(host, back, PROBE_BYTES))
		goto out;
	get_random_bytes(host, PROBE_BYTES);
	if (probe_io(member, REQ_OP_WRITE, pos, host) ||
	    probe_io(member, REQ_OP_READ, pos, there))
		goto out;
	memcpy_fromio(back, (void __iomem *)there, PROBE_BYTES);
	right = !memcmp(host, back, PROBE_BYTES);
out:
	kfree(host);
	return right;
}

/* DIRECT or BOUNCE; UNKNOWN: there is no room for it now. */
static enum kvblk_route_state route_probe(struct pci_dev *pdev,
					  struct kvblk_member *member)
{
	enum kvblk_route_state state = KVBLK_ROUTE_UNKNOWN;
	struct kvblk_room room;
	void *there;

	there = pci_alloc_p2pmem(pdev, PROBE_BYTES);
	/* a driver that keeps its memory for itself: the first transfer tells */
	if (!there)
		return KVBLK_ROUTE_DIRECT;
	if (!kvblk_room_reserve(member, KVBLK_CLASS_NEW, 1, &room)) {
		state = probe_at(member, kvblk_seg_pos(member, room.segment, room.unit),
				 there) ? KVBLK_ROUTE_DIRECT : KVBLK_ROUTE_BOUNCE;
		kvblk_room_release(&room, NULL);
	}
	pci_free_p2pmem(pdev, there, PROBE_BYTES);
	return state;
}

static struct kvblk_route *route_of(const struct provider *p,
				    struct kvblk_member *member)
{
	struct kvblk_route *route = &member->routes[p->nr];

	lockdep_assert_held(&providers_lock);
	if (route->serial != p->serial)
		*route = (struct kvblk_route) { .serial = p->serial };
	return route;
}

/* What can be told without a transfer. */
static void route_look(struct provider *p, struct kvblk_member *member)
{
	struct kvblk_route *route = route_of(p, member);
	struct device *dev = member_device(member);

	if (route->state != KVBLK_ROUTE_UNKNOWN)
		return;
	route->distance = dev ? pci_p2pdma_distance(p->pdev, dev, false) : -1;
	route->why = NULL;
	if (!blk_queue_pci_p2pdma(bdev_get_queue(member->bdev)))
		route->why = "queue";
	else if (dev && route->distance < 0)
		route->why = "unreachable";
	if (route->why)
		WRITE_ONCE(route->state, KVBLK_ROUTE_BOUNCE);
}


static enum kvblk_route_state route_state(phys_addr_t addr,
					  struct kvblk_member *member)
{
	struct kvblk_route *route;
	struct provider *p;

	guard(rcu)();
	p = provider_find(addr);
	if (!p)
		return KVBLK_ROUTE_UNKNOWN;
	route = &member->routes[p->nr];
	return READ_ONCE(route->serial) == p->serial ? READ_ONCE(route->state) :
						       KVBLK_ROUTE_UNKNOWN;
}

/* Finds the provider of @addr and its route to @member. May take as long as I/O. */
static void route_discover(phys_addr_t addr, struct kvblk_member *member)
{
	enum kvblk_route_state state;
	struct pci_dev *pdev = NULL;
	struct kvblk_route *route;
	struct provider *p;
	u32 serial;

	mutex_lock(&providers_lock);
	p = provider_find(addr);
	if (!p) {
		for_each_pci_dev(pdev) {
			if (!pci_is_provider(pdev) || !pci_has_memory(pdev, addr))
				continue;
			p = provider_add(pdev);
			pci_dev_put(pdev);
			break;
		}
	}
	if (!p)
		goto out;
	route_look(p, member);
	route = route_of(p, member);
	if (route->state != KVBLK_ROUTE_UNKNOWN || route->probing)
		goto out;
	/* not under the lock: a silent member must not stop the others */
	route->probing = true;
	serial = p->serial;
	pdev = pci_dev_get(p->pdev);
	mutex_unlock(&providers_lock);
	state = route_probe(pdev, member);
	pci_dev_put(pdev);
	mutex_lock(&providers_lock);
	if (route->serial == serial) {
		route->probing = false;
		route->why = state == KVBLK_ROUTE_BOUNCE ? "probe" : NULL;
		WRITE_ONCE(route->state, state);
	}
out:
	mutex_unlock(&providers_lock);
}

/* Calls for the first page of each run of pages of the same owner. */
static int mem_each_provider(const struct kvblk_mem *mem, struct kvblk_member *member,
			     int (*look)(phys_addr_t addr, struct kvblk_member *member))
{
	struct page *last = NULL;
	int err = 0;
	u32 i;

	for (i = 1; i < mem->nr && !err; i++) {
		struct page *page = mem->bv[i].bv_page;

		if (!is_pci_p2pdma_page(page) ||
		    (last && zone_device_pages_have_same_pgmap(last, page)))
			continue;
		last = page;
		err = look(page_to_phys(page), member);
	}
	return err;
}

static int look_known(phys_addr_t addr, struct kvblk_member *member)
{
	switch (route_state(addr, member)) {
	case KVBLK_ROUTE_DIRECT:
		return 0;
	case KVBLK_ROUTE_BOUNCE:
		return -EREMOTEIO;
	default:
		return -EAGAIN;
	}
}

static int look_discover(phys_addr_t addr, struct kvblk_member *member)
{
	int err = look_known(addr, member);

	if (err != -EAGAIN)
		return err;
	route_discover(addr, member);
	err = look_known(addr, member);
	/* no room to probe, or too many providers: not now */
	return err == -EAGAIN ? -EREMOTEIO : err;
}

static int look_failed(phys_addr_t addr, struct kvblk_member *member)
{
	struct kvblk_route *route;
	struct provider *p;

	guard(mutex)(&providers_lock);
	p = provider_find(addr);
	if (!p)
		return 0;
	route = route_of(p, member);
	route->why = "error";
	WRITE_ONCE(route->state, KVBLK_ROUTE_BOUNCE);
	return 0;
}

int kvblk_p2p_route(const struct kvblk_mem *mem, struct kvblk_member *member,
		    bool wait)
{
	return mem_each_provider(mem, member, wait ? look_discover : look_known);
}

void kvblk_p2p_failed(const struct kvblk_mem *mem, struct kvblk_member *member)
{
	mem_each_provider(mem, member, look_failed);
}

ssize_t kvblk_p2p_show(struct kvblk_member *member, char *buf)
{
	struct pci_dev *pdev = NULL;
	struct provider *p;
	int at = 0;

	guard(mutex)(&providers_lock);
	for_each_pci_dev(pdev)
		if (pci_is_provider(pdev))
			provider_add(pdev);
	list_for_each_entry(p, &providers, link) {
		struct kvblk_route *route = route_of(p, member);

		route_look(p, member);
		at += sysfs_emit_at(buf, at, "%s %d %s %s\n", pci_name(p->pdev),
				    route->distance, route_names[route->state],
				    route->why ?: "-");
	}
	return at;
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
