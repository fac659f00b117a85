/* SPDX-License-Identifier: GPL-2.0 */
/* The kernel's integer types, in addition to the uapi header's. */
#ifndef KVBLK_SHIM_LINUX_TYPES_H
#define KVBLK_SHIM_LINUX_TYPES_H

#include_next <linux/types.h>
#include <linux/compiler.h>
#include <stdint.h>
#include <sys/types.h>

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s8 s8;
typedef __s16 s16;
typedef __s32 s32;
typedef __s64 s64;
typedef unsigned int gfp_t;

typedef struct {
	int counter;
} atomic_t;

typedef struct {
	s64 counter;
} atomic64_t;

#endif
