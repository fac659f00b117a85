/* SPDX-License-Identifier: GPL-2.0 */
#ifndef KVBLK_SHIM_LINUX_LIMITS_H
#define KVBLK_SHIM_LINUX_LIMITS_H

#include_next <linux/limits.h>
#include <limits.h>

#define U8_MAX		((u8)~0U)
#define U16_MAX		((u16)~0U)
#define U32_MAX		((u32)~0U)
#define U64_MAX		((u64)~0ULL)
#define S32_MAX		((s32)(U32_MAX >> 1))

#endif
