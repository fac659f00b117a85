// SPDX-License-Identifier: GPL-2.0
/*
 * kvblk: a pool of NVMe-oF namespaces as a home for the KV cache of language
 * models. Here: the module comes and goes. kvblk.h is the map.
 */
#include <linux/module.h>

#include "kvblk.h"

#define POOL_MINORS	256

dev_t kvblk_devt;

static int __init kvblk_init(void)
{
	int err;

	err = alloc_chrdev_region(&kvblk_devt, 0, POOL_MINORS, "kvblk");
	if (err)
		return err;
	err = class_register(&kvblk_class);
	if (err)
		goto region;
	err = kvblk_req_init();
	if (err)
		goto class;
	err = kvblk_p2p_init();
	if (err)
		goto req;
	err = kvblk_uring_init();
	if (err)
		goto p2p;
	err = kvblk_netlink_init();
	if (err)
		goto uring;
	return 0;

uring:
	kvblk_uring_exit();
p2p:
	kvblk_p2p_exit();
req:
	kvblk_req_exit();
class:
	class_unregister(&kvblk_class);
region:
	unregister_chrdev_region(kvblk_devt, POOL_MINORS);
	return err;
}

/* Pools hold the module, so there are none. */
static void __exit kvblk_exit(void)
{
	kvblk_netlink_exit();
	kvblk_uring_exit();
	kvblk_p2p_exit();
	kvblk_req_exit();
	class_unregister(&kvblk_class);
	unregister_chrdev_region(kvblk_devt, POOL_MINORS);
}

module_init(kvblk_init);
module_exit(kvblk_exit);
MODULE_DESCRIPTION("Key-value blocks on NVMe-oF namespaces");
MODULE_LICENSE("GPL");
