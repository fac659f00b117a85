// SPDX-License-Identifier: GPL-2.0
/* The node "changes": an open is a reader of the pool's changelog, see report/changelog.c. */
#include <linux/log2.h>

#include "chardev/chardev.h"

/* of version 2: see ioctl.c */
static_assert(sizeof(struct kvblk_changes) == KVBLK_CHANGES_SIZE_VER0);
static_assert(sizeof(struct kvblk_change) == KVBLK_CHANGE_SIZE_VER0);

static int changes_open(struct inode *inode, struct file *filp)
{
	return kvblk_changes_open(kvblk_inode_pool(inode, KVBLK_NODE_CHANGES), filp) ?:
	       nonseekable_open(inode, filp);
}

static long changes_ioctl(struct file *filp, unsigned int cmd, unsigned long param)
{
	struct kvblk_changes arg;
	int err;

	if (cmd != KVBLK_IOC_CHANGES)
		return -ENOTTY;
	err = kvblk_struct_read(&arg, sizeof(arg), KVBLK_CHANGES_SIZE_VER0, (void __user *)param);
	if (err)
		return err;
	if (arg.flags & ~KVBLK_CHANGES_PRESENT)
		return -EOPNOTSUPP;
	if (arg.nr_records < KVBLK_CHANGES_MIN || arg.nr_records > KVBLK_CHANGES_MAX ||
	    !is_power_of_2(arg.nr_records) ||
	    arg.record_size < KVBLK_CHANGE_SIZE_VER0 || arg.record_size > KVBLK_STRUCT_MAX)
		return -EINVAL;
	return kvblk_changes_start(filp, &arg);
}

const struct file_operations kvblk_changes_fops = {
	.owner = THIS_MODULE,
	.open = changes_open,
	.read = kvblk_changes_read,
	.poll = kvblk_changes_poll,
	.release = kvblk_changes_release,
	.unlocked_ioctl = changes_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
};
