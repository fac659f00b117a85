/* SPDX-License-Identifier: GPL-2.0 */
/* User space is preemptible: rescheduling points do nothing. */
#ifndef KVBLK_SHIM_LINUX_SCHED_H
#define KVBLK_SHIM_LINUX_SCHED_H

#include <linux/compiler.h>

#define cond_resched()		((void)0)

#endif
