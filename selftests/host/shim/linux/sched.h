/* SPDX-License-Identifier: GPL-2.0 */
/* Nothing is asked to give up its CPU in user space. */
#ifndef KVBLK_SHIM_LINUX_SCHED_H
#define KVBLK_SHIM_LINUX_SCHED_H

#include <linux/compiler.h>

#define cond_resched()		((void)0)
#define cpu_relax()		barrier()
#define might_sleep()		((void)0)

#endif
