/* SPDX-License-Identifier: MIT */
/* kvblkd --apply: once, for "kvblk apply". */
#ifndef KVBLKD_ONCE_H
#define KVBLKD_ONCE_H

#include <stdbool.h>

/* Brings the host to what is in @path, or prints what that takes; an exit code. */
int apply_once(const char *path, bool dry_run, bool json);

#endif
