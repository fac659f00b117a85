/* SPDX-License-Identifier: GPL-2.0 */
/* Lock assertions: check that the lock is held, not by which thread. */
#ifndef KVBLK_SHIM_LINUX_LOCKDEP_H
#define KVBLK_SHIM_LINUX_LOCKDEP_H

#include <linux/bug.h>

#define MAX_LOCKDEP_SUBCLASSES		8UL
#define lockdep_assert_held(lock)	WARN_ON(!spin_is_locked(lock))

#endif
