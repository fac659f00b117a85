// SPDX-License-Identifier: GPL-2.0
/* The character device: open, release, ioctl. */
#include <linux/slab.h>

#include "chardev/chardev.h"

static long kvblk_ioctl(struct file *filp, unsigned int cmd, unsigned long param)
{
	return kvblk_call(filp->private_data, cmd, (void __user *)param);
}

struct kvblk_file *kvblk_file_new(struct kvblk_pool *pool, u16 tenant, fmode_t mode)
{
	struct kvblk_file *file __free(kfree) = kzalloc(sizeof(*file), GFP_KERNEL_ACCOUNT);

	if (!file)
		return ERR_PTR(-ENOMEM);
	file->drainer = kvblk_drainer_new();
	if (!file->drainer)
		return ERR_PTR(-ENOMEM);
	spin_lock(&pool->openers_lock);
	if (pool->dying || !test_bit(tenant, pool->tenants.live)) {
		spin_unlock(&pool->openers_lock);
		kvblk_drainer_put(file->drainer);
		return ERR_PTR(-ENODEV);
	}
	list_add_tail(&file->opener.link, &pool->openers);
	file->opener.pid = get_pid(task_tgid(current));
	get_task_comm(file->opener.comm, current->group_leader);
	file->opener.tenant = tenant;
	pool->tenants.openers[tenant]++;
	/* while the tenant is in use, it has an account */
	file->account = rcu_dereference_protected(pool->tenants.account[tenant], true);
	spin_unlock(&pool->openers_lock);
	refcount_set(&file->refs, 1);
	kvblk_budget_init(&file->budget);
	file->pool = pool;
	file->mode = mode;
	file->tenant = tenant;
	kvblk_tenant_key_derive(&file->key, &pool->secret, file->tenant);
	xa_init_flags(&file->regions.all, XA_FLAGS_ALLOC1);
	spin_lock_init(&file->lock);
	INIT_LIST_HEAD(&file->reqs);
	mutex_init(&file->lease_lock);
	xa_init(&file->leases);
	get_device(&pool->dev);
	return_ptr(file);
}

void kvblk_file_free(struct kvblk_file *file)
{
	struct kvblk_pool *pool = file->pool;

	kvblk_lease_drop_all(file);
	kvblk_region_remove_all(&file->regions);
	scoped_guard(spinlock, &pool->openers_lock) {
		list_del(&file->opener.link);
		pool->tenants.openers[file->tenant]--;
	}
	put_pid(file->opener.pid);
	kvblk_drainer_put(file->drainer);
	kvblk_file_put(file);
	wake_up_all(&pool->settle_wait);
	put_device(&pool->dev);
}

int kvblk_file_open(struct kvblk_pool *pool, u16 tenant, struct inode *inode, struct file *filp)
{
	struct kvblk_file *file = kvblk_file_new(pool, tenant,
						 filp->f_mode & (FMODE_READ | FMODE_WRITE));

	if (IS_ERR(file))
		return PTR_ERR(file);
	filp->private_data = file;
	return nonseekable_open(inode, filp);
}

static int kvblk_open_node(struct inode *inode, struct file *filp)
{
	return kvblk_file_open(kvblk_inode_pool(inode, KVBLK_NODE_BLOCKS), 0, inode, filp);
}

static int kvblk_open_tenant(struct inode *inode, struct file *filp)
{
	const struct kvblk_tenant *tenant = container_of(inode->i_cdev, struct kvblk_tenant, cdev);

	return kvblk_file_open(tenant->pool, le16_to_cpu(tenant->entry.id), inode, filp);
}

int kvblk_file_flush(struct file *filp, fl_owner_t id)
{
	kvblk_file_quiesce(filp->private_data, id);
	return 0;
}

int kvblk_file_release(struct inode *inode, struct file *filp)
{
	kvblk_file_free(filp->private_data);
	return 0;
}

#define NODE_OPERATIONS					\
	.owner = THIS_MODULE,				\
	.flush = kvblk_file_flush,			\
	.release = kvblk_file_release,			\
	.unlocked_ioctl = kvblk_ioctl,			\
	.uring_cmd = kvblk_uring_cmd,			\
	.compat_ioctl = compat_ptr_ioctl

const struct file_operations kvblk_fops = {
	.open = kvblk_open_node,
	NODE_OPERATIONS
};

const struct file_operations kvblk_tenant_fops = {
	.open = kvblk_open_tenant,
	NODE_OPERATIONS
};
