// SPDX-License-Identifier: GPL-2.0
/*
 * Watches how the kernel maps the data of PCI NVMe drives for DMA, and counts the bytes in
 * /sys/module/kvblk_p2pwitness/parameters:
 *
 *   bus_bytes		peer to peer, inside a switch
 *   bridge_bytes	peer to peer, through the host bridge
 *   host_bytes		host memory
 *   refused		requests that could not be mapped
 *   missed		missed calls; if not 0, the other counts are wrong
 *
 * The rule: count only actions of the block layer and the DMA mapping, observed by probes. With
 * an IOMMU host memory takes another path; the test VMs have none.
 *
 * Since 6.17 the block layer maps a request page by page. Before, the driver maps a scatterlist
 * as a whole, except for requests of one page or of two adjacent pages of host memory.
 */
#include <linux/atomic.h>
#include <linux/blk-mq.h>
#include <linux/dma-mapping.h>
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/pci-p2pdma.h>
#include <linux/scatterlist.h>
#include <linux/sysfs.h>
#ifdef KVBLK_HAVE_BLK_DMA_ITER
#include <linux/blk-mq-dma.h>
#endif

static atomic64_t bus_bytes, bridge_bytes, host_bytes, refused;

static bool is_drive(struct device *dev)
{
	return dev_is_pci(dev) && to_pci_dev(dev)->class == PCI_CLASS_STORAGE_EXPRESS;
}

#ifdef KVBLK_HAVE_BLK_DMA_ITER
struct mapping {
	struct request *rq;
	struct blk_dma_iter *iter;
};

static int map_begins(struct kretprobe_instance *ri, struct pt_regs *regs)
{
	struct mapping *mapping = (void *)ri->data;

	mapping->rq = (void *)regs_get_kernel_argument(regs, 0);
	mapping->iter = (void *)regs_get_kernel_argument(regs, 3);
	return 0;
}

NOKPROBE_SYMBOL(map_begins);

static int map_ends(struct kretprobe_instance *ri, struct pt_regs *regs)
{
	struct mapping *mapping = (void *)ri->data;
	bool mapped = regs_return_value(regs) & 0xff;	/* only the low byte holds a bool */

	if (!mapped)
		atomic64_inc(&refused);
	else if (mapping->iter->p2pdma.map == PCI_P2PDMA_MAP_BUS_ADDR)
		atomic64_add(blk_rq_payload_bytes(mapping->rq), &bus_bytes);
	return 0;
}

NOKPROBE_SYMBOL(map_ends);

/* Not called for transfers inside a switch, whose bus address is known. */
static int map_phys(struct kprobe *p, struct pt_regs *regs)
{
	struct device *dev = (void *)regs_get_kernel_argument(regs, 0);
	size_t size = regs_get_kernel_argument(regs, 2);
	unsigned long attrs = regs_get_kernel_argument(regs, 4);

	if (is_drive(dev))
		atomic64_add(size, attrs & DMA_ATTR_MMIO ? &bridge_bytes : &host_bytes);
	return 0;
}

NOKPROBE_SYMBOL(map_phys);

#define MAP_REQUEST	"blk_rq_dma_map_iter_start"
#define MAP_PART	"dma_map_phys"

#else
struct mapping {
	struct sg_table *table;
};

static int map_begins(struct kretprobe_instance *ri, struct pt_regs *regs)
{
	struct mapping *mapping = (void *)ri->data;

	mapping->table = (void *)regs_get_kernel_argument(regs, 1);
	return !is_drive((void *)regs_get_kernel_argument(regs, 0));
}

NOKPROBE_SYMBOL(map_begins);

static int map_ends(struct kretprobe_instance *ri, struct pt_regs *regs)
{
	struct mapping *mapping = (void *)ri->data;
	struct scatterlist *sg;
	unsigned int i;

	if ((int)regs_return_value(regs)) {
		atomic64_inc(&refused);
		return 0;
	}
	for_each_sgtable_sg(mapping->table, sg, i)
		atomic64_add(sg->length, !is_pci_p2pdma_page(sg_page(sg)) ? &host_bytes :
			     sg_dma_is_bus_address(sg) ? &bus_bytes : &bridge_bytes);
	return 0;
}

NOKPROBE_SYMBOL(map_ends);

static int map_phys(struct kprobe *p, struct pt_regs *regs)
{
	if (is_drive((void *)regs_get_kernel_argument(regs, 0)))
		atomic64_add(regs_get_kernel_argument(regs, 3), &host_bytes);
	return 0;
}

NOKPROBE_SYMBOL(map_phys);

#define MAP_REQUEST	"dma_map_sgtable"
#define MAP_PART	"dma_map_page_attrs"

#endif

static struct kretprobe request_probe = {
	.kp.symbol_name = MAP_REQUEST,
	.entry_handler = map_begins,
	.handler = map_ends,
	.data_size = sizeof(struct mapping),
	.maxactive = 64,
};

static struct kprobe phys_probe = {
	.symbol_name = MAP_PART,
	.pre_handler = map_phys,
};

static int counter_get(char *buffer, const struct kernel_param *kp)
{
	return sysfs_emit(buffer, "%lld\n", atomic64_read((atomic64_t *)kp->arg));
}

static const struct kernel_param_ops counter_ops = { .get = counter_get };

module_param_cb(bus_bytes, &counter_ops, &bus_bytes, 0444);
module_param_cb(bridge_bytes, &counter_ops, &bridge_bytes, 0444);
module_param_cb(host_bytes, &counter_ops, &host_bytes, 0444);
module_param_cb(refused, &counter_ops, &refused, 0444);

static int missed_get(char *buffer, const struct kernel_param *kp)
{
	return sysfs_emit(buffer, "%lu\n",
			  request_probe.nmissed + request_probe.kp.nmissed + phys_probe.nmissed);
}

static const struct kernel_param_ops missed_ops = { .get = missed_get };

module_param_cb(missed, &missed_ops, NULL, 0444);

static int __init p2pwitness_init(void)
{
	int err;

	err = register_kretprobe(&request_probe);
	if (err)
		return err;
	err = register_kprobe(&phys_probe);
	if (err)
		unregister_kretprobe(&request_probe);
	return err;
}
module_init(p2pwitness_init);

static void __exit p2pwitness_exit(void)
{
	unregister_kprobe(&phys_probe);
	unregister_kretprobe(&request_probe);
}
module_exit(p2pwitness_exit);

MODULE_DESCRIPTION("Counts how data of PCI NVMe drives is mapped for DMA, for tests");
MODULE_LICENSE("GPL");
