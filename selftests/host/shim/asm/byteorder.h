/* SPDX-License-Identifier: GPL-2.0 */
/* The kernel's names for the conversions of the uapi header. */
#ifndef KVBLK_SHIM_ASM_BYTEORDER_H
#define KVBLK_SHIM_ASM_BYTEORDER_H

#include_next <asm/byteorder.h>

#define cpu_to_le16		__cpu_to_le16
#define cpu_to_le32		__cpu_to_le32
#define cpu_to_le64		__cpu_to_le64
#define le16_to_cpu		__le16_to_cpu
#define le32_to_cpu		__le32_to_cpu
#define le64_to_cpu		__le64_to_cpu

#endif
