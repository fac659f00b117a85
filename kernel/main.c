// SPDX-License-Identifier: GPL-2.0
/* Loads and unloads the module, and gives lower layers their callbacks. kvblk.h is the map. */
#include <linux/module.h>

#include "admin/admin.h"
#include "admin/netlink_gen.h"
#include "chardev/chardev.h"

static int upper_pool_init(struct kvblk_pool *pool)
{
	kvblk_lease_pool_init(pool);
	return kvblk_req_pool_init(pool);
}

static void upper_pool_exit(struct kvblk_pool *pool)
{
	kvblk_lease_pool_exit(pool);
	kvblk_req_pool_exit(pool);
}

static const struct kvblk_upper_ops upper_ops = {
	.fops[KVBLK_NODE_BLOCKS] = &kvblk_fops,
	.fops[KVBLK_NODE_NVME] = &kvblk_nvme_fops,
	.fops[KVBLK_NODE_CHANGES] = &kvblk_changes_fops,
	.fops[KVBLK_NODE_PEERS] = &kvblk_peers_fops,
	.tenant_fops = &kvblk_tenant_fops,
	.groups = kvblk_pool_groups,
	.rescue = kvblk_rescue_work,
	.report_stats = kvblk_nl_stats_work,
	.pool_init = upper_pool_init,
	.pool_exit = upper_pool_exit,
	.pool_up = kvblk_sysfs_pool_init,
	.pool_down = kvblk_sysfs_pool_exit,
	.member_up = kvblk_sysfs_member_add,
	.member_down = kvblk_sysfs_member_del,
	.tenant_up = kvblk_sysfs_tenant_add,
	.tenant_down = kvblk_sysfs_tenant_del,
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

static int pools_init(void)
{
	return kvblk_pools_init(&upper_ops);
}

static int netlink_init(void)
{
	return kvblk_netlink_init(&kvblk_nl_family);
}

/* A part may use those above it. */
static const struct {
	int (*init)(void);
	void (*exit)(void);
} parts[] = {
	{ kvblk_io_init, kvblk_io_exit },
	{ kvblk_record_init, kvblk_record_exit },
	{ kvblk_throttle_init, kvblk_throttle_exit },
	{ pools_init, kvblk_pools_exit },
	{ kvblk_req_init, kvblk_req_exit },
	{ kvblk_lease_init, kvblk_lease_exit },
	{ kvblk_p2p_init, kvblk_p2p_exit },
	{ netlink_init, kvblk_netlink_exit },
};

static void parts_exit(int nr)
{
	while (nr--)
		parts[nr].exit();
}

static int __init kvblk_init(void)
{
	int i, err;

	for (i = 0; i < ARRAY_SIZE(parts); i++) {
		err = parts[i].init();
		if (err) {
			parts_exit(i);
			return err;
		}
	}
	return 0;
}

/* Pools pin the module, so none exist. */
static void __exit kvblk_exit(void)
{
	parts_exit(ARRAY_SIZE(parts));
	/* regions are freed by RCU callbacks */
	rcu_barrier();
}

module_init(kvblk_init);
module_exit(kvblk_exit);
MODULE_DESCRIPTION("Key-value blocks on NVMe-oF namespaces");
MODULE_VERSION(KVBLK_VERSION);
MODULE_LICENSE("GPL");
