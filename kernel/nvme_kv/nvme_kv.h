/* SPDX-License-Identifier: GPL-2.0 */
/* The node that takes NVMe's key-value commands: what its files share. */
#ifndef KVBLK_NVME_KV_H
#define KVBLK_NVME_KV_H

#include <linux/nvme_ioctl.h>

#include "chardev/chardev.h"

/* The namespace that the node is. */
#define KVBLK_NVME_NSID		1
/* The command set of key-value namespaces. */
#define KVBLK_NVME_CSI		1
/* Bytes of a list: with its longest key alone, and the most that is made of it. */
#define KVBLK_NVME_LIST_MIN	24
#define KVBLK_NVME_LIST_MAX	(4 + 1024 * 20)

/* An admin command: 0, a status of NVMe, or an error. May sleep. */
int kvblk_nvme_admin(struct kvblk_file *file, const struct nvme_uring_cmd *cmd);

/*
 * Keys from that one on (NULL: from the first), as List returns them, to @size bytes
 * at @to that are zero. How many bytes, or an error; -EINTR: killed; -ETIME. May sleep.
 */
int kvblk_nvme_list(struct kvblk_file *file, const struct kvblk_id *from, u64 deadline,
		    void *to, u32 size);

#endif
