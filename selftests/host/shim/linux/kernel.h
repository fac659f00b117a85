/* SPDX-License-Identifier: GPL-2.0 */
/* The headers that kernel code expects from this one. */
#ifndef KVBLK_SHIM_LINUX_KERNEL_H
#define KVBLK_SHIM_LINUX_KERNEL_H

#include <linux/array_size.h>
#include <linux/bitops.h>
#include <linux/bug.h>
#include <linux/container_of.h>
#include <linux/limits.h>
#include <linux/log2.h>
#include <linux/math.h>
#include <linux/minmax.h>
#include <linux/stddef.h>
#include <linux/types.h>

#endif
