/* SPDX-License-Identifier: MIT */
/* Kernel modules, through libkmod. */
#ifndef KVBLKD_APPLY_KMOD_H
#define KVBLKD_APPLY_KMOD_H

#include <stdbool.h>

/* Returns true if the module is loaded or built in. */
bool modules_loaded(const char *name);

/* Load the module and its dependencies. Returns 0 or a negative errno. */
int modules_load(const char *name);

#endif
