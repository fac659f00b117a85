/* SPDX-License-Identifier: GPL-2.0 */
/* Empty: pin_test.c has definitions for memory/pin.c. */
#ifndef KVBLK_SHIM_LINUX_SCHED_SIGNAL_H
#define KVBLK_SHIM_LINUX_SCHED_SIGNAL_H

#endif
