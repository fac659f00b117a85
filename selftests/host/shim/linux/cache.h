/* SPDX-License-Identifier: GPL-2.0 */
#ifndef KVBLK_SHIM_LINUX_CACHE_H
#define KVBLK_SHIM_LINUX_CACHE_H

#define L1_CACHE_BYTES		64
#define ____cacheline_aligned_in_smp

#endif
