// SPDX-License-Identifier: GPL-2.0
/*
 * A stand-in for a GPU: QEMU's ivshmem-plain, whose BAR 2 is the "HBM". The HBM is published as
 * p2pmem, and each mmap() of /dev/kvblk_testgpuN allocates pages of it, as with the file
 * p2pmem/allocate in sysfs.
 *
 * The rule: a page lives while a mapping or I/O refers to it. The last reference returns the page
 * to the pool, so p2pmem/available shows whether all are free. Unbinding the device revokes its
 * mappings; the PCI core then waits for the remaining references.
 *
 * A device bound while the parameter "bare" is set publishes nothing: only the PCI core's
 * structure exists, without memory, as for devices of mlx5 and vfio.
 */
#include <linux/fs.h>
#include <linux/idr.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/memremap.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/pci-p2pdma.h>
#include <linux/slab.h>
#include <linux/sysfs.h>

#define HBM_BAR	2

/* 6.15: the folio, not the page, refers to the provider */
#ifndef KVBLK_HAVE_PAGE_PGMAP
static inline struct dev_pagemap *page_pgmap(const struct page *page)
{
	return page->pgmap;
}
#endif

struct testgpu {
	struct kref ref;		/* references: the device's, and one per file */
	struct miscdevice misc;
	int id;
	char name[24];
	resource_size_t hbm_size;

	struct mutex lock;		/* nests inside mmap_lock; protects @pdev and @files */
	struct pci_dev *pdev;		/* NULL once unbound */
	struct list_head files;
};

/* An open file, kept to revoke its mappings. */
struct testgpu_file {
	struct testgpu *gpu;
	struct file *file;
	struct list_head link;
};

static DEFINE_IDA(testgpu_ids);

#ifdef KVBLK_HAVE_PCIM_P2PDMA_INIT
static bool bare;
module_param(bare, bool, 0644);
#endif

static void testgpu_free(struct kref *ref)
{
	kfree(container_of(ref, struct testgpu, ref));
}

/* Called under misc_mtx, hence before or after testgpu_remove()'s misc_deregister(). */
static int testgpu_open(struct inode *inode, struct file *file)
{
	struct testgpu *gpu = container_of(file->private_data, struct testgpu, misc);
	struct testgpu_file *open;

	open = kzalloc(sizeof(*open), GFP_KERNEL);
	if (!open)
		return -ENOMEM;
	kref_get(&gpu->ref);
	open->gpu = gpu;
	open->file = file;
	file->private_data = open;
	guard(mutex)(&gpu->lock);
	list_add(&open->link, &gpu->files);
	return 0;
}

static int testgpu_release(struct inode *inode, struct file *file)
{
	struct testgpu_file *open = file->private_data;
	struct testgpu *gpu = open->gpu;

	scoped_guard(mutex, &gpu->lock)
		list_del(&open->link);
	kfree(open);
	kref_put(&gpu->ref, testgpu_free);
	return 0;
}

static int testgpu_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct testgpu *gpu = ((struct testgpu_file *)file->private_data)->gpu;
	size_t size = vma->vm_end - vma->vm_start, done;
	struct dev_pagemap *pgmap;
	int err, free_count;
	void *hbm;

	if (!(vma->vm_flags & VM_MAYSHARE) || vma->vm_pgoff)
		return -EINVAL;

	guard(mutex)(&gpu->lock);
	if (!gpu->pdev)
		return -ENODEV;
	hbm = pci_alloc_p2pmem(gpu->pdev, size);
	if (!hbm)
		return -ENOMEM;

	/*
	 * The allocation holds one reference on the provider, but the core drops one for each
	 * page that is freed: give each page its own.
	 */
	pgmap = page_pgmap(virt_to_page(hbm));
	for (done = 0; done < size; done += PAGE_SIZE) {
		struct page *page = virt_to_page(hbm + done);

		/* a free page of a provider has no reference; before 6.15, one */
		free_count = page_count(page);
		set_page_count(page, 1);
		err = vm_insert_page(vma, vma->vm_start + done, page);
		if (err) {
			/* inserted pages are freed with the mapping */
			set_page_count(page, free_count);
			pci_free_p2pmem(gpu->pdev, hbm + done, size - done);
			return err;
		}
		percpu_ref_get(&pgmap->ref);
		/* the mapping owns the page now */
		put_page(page);
	}
	percpu_ref_put(&pgmap->ref);
	return 0;
}

static const struct file_operations testgpu_fops = {
	.owner = THIS_MODULE,
	.open = testgpu_open,
	.release = testgpu_release,
	.mmap = testgpu_mmap,
};

static ssize_t hbm_size_show(struct device *dev, struct device_attribute *attr,
			     char *buf)
{
	struct miscdevice *misc = dev_get_drvdata(dev);
	struct testgpu *gpu = container_of(misc, struct testgpu, misc);

	return sysfs_emit(buf, "%llu\n", (unsigned long long)gpu->hbm_size);
}
static DEVICE_ATTR_RO(hbm_size);

static struct attribute *testgpu_attrs[] = {
	&dev_attr_hbm_size.attr,
	NULL,
};
ATTRIBUTE_GROUPS(testgpu);

static int testgpu_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct testgpu *gpu;
	int err;

	err = pcim_enable_device(pdev);
	if (err)
		return err;
#ifdef KVBLK_HAVE_PCIM_P2PDMA_INIT
	if (bare)
		return pcim_p2pdma_init(pdev);
#endif
	err = pci_p2pdma_add_resource(pdev, HBM_BAR, 0, 0);
	if (err)
		return dev_err_probe(&pdev->dev, err, "BAR %d cannot be P2P memory\n", HBM_BAR);
	pci_p2pmem_publish(pdev, true);

	gpu = kzalloc(sizeof(*gpu), GFP_KERNEL);
	if (!gpu)
		return -ENOMEM;
	gpu->id = ida_alloc(&testgpu_ids, GFP_KERNEL);
	if (gpu->id < 0) {
		err = gpu->id;
		goto free;
	}
	kref_init(&gpu->ref);
	mutex_init(&gpu->lock);
	INIT_LIST_HEAD(&gpu->files);
	gpu->pdev = pdev;
	gpu->hbm_size = pci_resource_len(pdev, HBM_BAR);
	snprintf(gpu->name, sizeof(gpu->name), "kvblk_testgpu%d", gpu->id);
	gpu->misc.minor = MISC_DYNAMIC_MINOR;
	gpu->misc.name = gpu->name;
	gpu->misc.fops = &testgpu_fops;
	gpu->misc.parent = &pdev->dev;
	gpu->misc.groups = testgpu_groups;
	pci_set_drvdata(pdev, gpu);
	err = misc_register(&gpu->misc);
	if (err)
		goto free_id;
	return 0;

free_id:
	ida_free(&testgpu_ids, gpu->id);
free:
	kfree(gpu);
	return err;
}

static void testgpu_remove(struct pci_dev *pdev)
{
	struct testgpu *gpu = pci_get_drvdata(pdev);
	struct testgpu_file *open;

	if (!gpu)
		return;
	misc_deregister(&gpu->misc);
	scoped_guard(mutex, &gpu->lock) {
		gpu->pdev = NULL;
		list_for_each_entry(open, &gpu->files, link)
			unmap_mapping_range(open->file->f_mapping, 0, 0, 1);
	}
	ida_free(&testgpu_ids, gpu->id);
	kref_put(&gpu->ref, testgpu_free);
}

static const struct pci_device_id testgpu_devices[] = {
	{ PCI_DEVICE(PCI_VENDOR_ID_REDHAT_QUMRANET, 0x1110) },
	{ }
};
MODULE_DEVICE_TABLE(pci, testgpu_devices);

static struct pci_driver testgpu_driver = {
	.name = KBUILD_MODNAME,
	.id_table = testgpu_devices,
	.probe = testgpu_probe,
	.remove = testgpu_remove,
};
module_pci_driver(testgpu_driver);

MODULE_DESCRIPTION("QEMU's ivshmem as a GPU with P2P memory, for tests");
MODULE_LICENSE("GPL");
