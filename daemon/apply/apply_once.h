/* SPDX-License-Identifier: MIT */
/* kvblkd --apply: one pass, for "kvblk apply". */
#ifndef KVBLKD_APPLY_APPLY_ONCE_H
#define KVBLKD_APPLY_APPLY_ONCE_H

#include <stdbool.h>

/* Run one pass of the configuration at @path, or print its steps. Returns an exit code. */
int apply_once(const char *path, bool dry_run, bool json);

#endif
