/* SPDX-License-Identifier: GPL-2.0 */
/* The character device for NVMe key-value commands: declarations shared by its files. */
#ifndef KVBLK_NVME_KV_H
#define KVBLK_NVME_KV_H

#include <linux/nvme_ioctl.h>

#include "chardev/chardev.h"

#define KVBLK_NVME_NSID		1
#define KVBLK_NVME_CSI		1
#define KVBLK_NVME_KEY_MAX	16	/* bytes in a command's key, at least 1 */
#define KVBLK_NVME_LIST_MIN	24		/* bytes of a list of the longest key alone */
#define KVBLK_NVME_LIST_MAX	(4 + 1024 * 20)	/* bytes of the longest list */

/* Executes an admin command. Returns 0, an NVMe status, or an errno. May sleep. */
int kvblk_nvme_admin(struct kvblk_file *file, const struct nvme_uring_cmd *cmd);

/* Lists keys from @from (NULL: all) into zeroed @to. Returns bytes used, or errno. May sleep. */
int kvblk_nvme_list(struct kvblk_file *file, const struct kvblk_id *from, u64 deadline,
		    void *to, u32 size);

#endif
