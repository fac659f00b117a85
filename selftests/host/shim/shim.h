/* SPDX-License-Identifier: GPL-2.0 */
/* What tests ask of the shim itself. */
#ifndef KVBLK_SHIM_H
#define KVBLK_SHIM_H

/* Allocations that still succeed before one fails; -1: none fails. */
extern int shim_fail_alloc;

#endif
