/* SPDX-License-Identifier: GPL-2.0 */
#ifndef KVBLK_SHIM_LINUX_PREFETCH_H
#define KVBLK_SHIM_LINUX_PREFETCH_H

#define prefetch(p)		__builtin_prefetch(p)
#define prefetchw(p)		__builtin_prefetch(p, 1)

#endif
