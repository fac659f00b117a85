// SPDX-License-Identifier: GPL-2.0
/* The node "peers": an open is the pool's daemon, which speaks to other nodes, see pool/peers.c. */
#include <linux/capability.h>

#include "chardev/chardev.h"

static int peers_open(struct inode *inode, struct file *filp)
{
	if (!capable(CAP_SYS_ADMIN))
		return -EPERM;
	return kvblk_peers_open(kvblk_inode_pool(inode, KVBLK_NODE_PEERS), filp) ?:
	       nonseekable_open(inode, filp);
}

static bool wait_valid(u32 ms)
{
	return ms && ms <= KVBLK_PEERS_WAIT_MAX;
}

static long peers_ioctl(struct file *filp, unsigned int cmd, unsigned long param)
{
	struct kvblk_peers arg;
	int err;

	if (cmd != KVBLK_IOC_PEERS)
		return -ENOTTY;
	err = kvblk_struct_read(&arg, sizeof(arg), KVBLK_PEERS_SIZE_VER0, (void __user *)param);
	if (err)
		return err;
	if (arg.flags)
		return -EOPNOTSUPP;
	if (arg.reserved || arg.span > KVBLK_PEERS_SPAN_MAX || !wait_valid(arg.delete_ms) ||
	    (arg.span ? !wait_valid(arg.ask_ms) : arg.ask_ms))
		return -EINVAL;
	return kvblk_peers_start(filp, &arg);
}

const struct file_operations kvblk_peers_fops = {
	.owner = THIS_MODULE,
	.open = peers_open,
	.read = kvblk_peers_read,
	.write = kvblk_peers_write,
	.poll = kvblk_peers_poll,
	.release = kvblk_peers_release,
	.unlocked_ioctl = peers_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
};
