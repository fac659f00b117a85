/* SPDX-License-Identifier: GPL-2.0 */
/* Nothing is exported in user space. */
#ifndef KVBLK_SHIM_LINUX_EXPORT_H
#define KVBLK_SHIM_LINUX_EXPORT_H

#define EXPORT_SYMBOL(sym)
#define EXPORT_SYMBOL_GPL(sym)

#endif
