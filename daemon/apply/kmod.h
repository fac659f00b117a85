/* SPDX-License-Identifier: MIT */
/* Kernel modules, through libkmod. */
#ifndef KVBLKD_MODULES_H
#define KVBLKD_MODULES_H

#include <stdbool.h>

/* Whether it is loaded, or built into the kernel. */
bool modules_loaded(const char *name);

/* Loads it and what it needs: 0 or a negative errno. */
int modules_load(const char *name);

#endif
