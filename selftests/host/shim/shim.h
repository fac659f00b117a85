/* SPDX-License-Identifier: GPL-2.0 */
/* Controls of the shim itself, for tests. */
#ifndef KVBLK_SHIM_H
#define KVBLK_SHIM_H

/* Allocations that succeed before one fails; -1: none fails. */
extern int shim_fail_alloc;

#endif
