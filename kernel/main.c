// SPDX-License-Identifier: GPL-2.0
/*
 * kvblk: pools of NVMe-oF namespaces for the KV cache of language models. This file loads and
 * unloads the module, and gives lower layers their callbacks. kvblk.h is the map.
 */
#include <linux/module.h>
#include <net/genetlink.h>

#include "admin/admin.h"
#include "admin/netlink_gen.h"
#include "chardev/chardev.h"

static int upper_pool_init(struct kvblk_pool *pool)
{
	int err = kvblk_req_pool_init(pool);

	if (err)
		return err;
	err = kvblk_lease_init(pool);
	if (err)
		kvblk_req_pool_exit(pool);
	return err;
}

static void upper_pool_exit(struct kvblk_pool *pool)
{
	kvblk_lease_exit(pool);
	kvblk_req_pool_exit(pool);
}

static const struct kvblk_upper_ops upper_ops = {
	.fops = &kvblk_fops,
	.nvme_fops = &kvblk_nvme_fops,
	.changes_fops = &kvblk_changes_fops,
	.groups = kvblk_pool_groups,
	.rescue = kvblk_rescue_work,
	.report_stats = kvblk_nl_stats_work,
	.pool_init = upper_pool_init,
	.pool_exit = upper_pool_exit,
	.pool_up = kvblk_sysfs_pool_init,
	.pool_down = kvblk_sysfs_pool_exit,
	.member_up = kvblk_sysfs_member_add,
	.member_down = kvblk_sysfs_member_del,
};

static int monitor_gid_set(const char *text, const struct kernel_param *param)
{
	int err = param_set_uint(text, param);

	if (!err)
		kvblk_sysfs_monitor();
	return err;
}

static const struct kernel_param_ops monitor_gid_ops = {
	.set = monitor_gid_set,
	.get = param_get_uint,
};
module_param_cb(monitor_gid, &monitor_gid_ops, &kvblk_monitor_group, 0644);
MODULE_PARM_DESC(monitor_gid, "group that may read counters, fill levels and events (default 4294967295: none)");

static int __init kvblk_init(void)
{
	int err;

	err = kvblk_io_init();
	if (err)
		return err;
	err = kvblk_record_init();
	if (err)
		goto io;
	err = kvblk_throttle_init();
	if (err)
		goto record;
	err = kvblk_pools_init(&upper_ops);
	if (err)
		goto throttle;
	err = kvblk_req_init();
	if (err)
		goto pools;
	err = kvblk_p2p_init();
	if (err)
		goto req;
	err = kvblk_netlink_init(&kvblk_nl_family);
	if (err)
		goto p2p;
	return 0;

p2p:
	kvblk_p2p_exit();
req:
	kvblk_req_exit();
pools:
	kvblk_pools_exit();
throttle:
	kvblk_throttle_exit();
record:
	kvblk_record_exit();
io:
	kvblk_io_exit();
	return err;
}

/* Pools pin the module, so none exist. */
static void __exit kvblk_exit(void)
{
	kvblk_netlink_exit();
	kvblk_p2p_exit();
	kvblk_req_exit();
	kvblk_pools_exit();
	kvblk_throttle_exit();
	kvblk_record_exit();
	kvblk_io_exit();
}

module_init(kvblk_init);
module_exit(kvblk_exit);
MODULE_DESCRIPTION("Key-value blocks on NVMe-oF namespaces");
MODULE_VERSION(KVBLK_VERSION);
MODULE_LICENSE("GPL");
