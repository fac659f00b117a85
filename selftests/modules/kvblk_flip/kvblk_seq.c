// SPDX-License-Identifier: GPL-2.0
/*
 * Advances a pool's sequence numbers, as weeks of puts would: write the path of its node to
 * /sys/module/kvblk_seq/parameters/path. A hundred numbers later half of the epoch's are used.
 * -EBUSY: half are used already, and the next epoch has not begun.
 *
 * The rule: only the pool's counter changes.
 */
#include <linux/fs.h>
#include <linux/module.h>
#include <linux/slab.h>

#include "request.h"

static int path_set(const char *text, const struct kernel_param *param)
{
	const u64 half = 1ull << (KVBLK_SEQ_EPOCH_SHIFT - 1);
	const struct kvblk_file *file;
	struct file *node;
	char *path;
	int err = 0;
	u64 seq;

	path = kstrdup(text, GFP_KERNEL);
	if (!path)
		return -ENOMEM;
	node = filp_open(strim(path), O_RDONLY, 0);
	kfree(path);
	if (IS_ERR(node))
		return PTR_ERR(node);
	file = node->private_data;
	seq = atomic64_read(&file->pool->seq);
	if (seq & half)
		err = -EBUSY;
	else
		atomic64_add(half - 100 - (seq & (half - 1)), &file->pool->seq);
	filp_close(node, NULL);
	return err;
}

static const struct kernel_param_ops path_ops = { .set = path_set };
module_param_cb(path, &path_ops, NULL, 0200);

MODULE_DESCRIPTION("Brings a kvblk pool's sequence numbers near half of an epoch's");
MODULE_LICENSE("GPL");
