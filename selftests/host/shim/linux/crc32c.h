/* SPDX-License-Identifier: GPL-2.0 */
/* CRC-32C as in the kernel: not inverted at either end. */
#ifndef KVBLK_SHIM_LINUX_CRC32C_H
#define KVBLK_SHIM_LINUX_CRC32C_H

#include <linux/types.h>

u32 crc32c(u32 crc, const void *data, size_t len);

#endif
