/* SPDX-License-Identifier: MIT */
/* Declarations shared by the files of libkvblk-fake. */
#ifndef LIBKVBLK_FAKE_H
#define LIBKVBLK_FAKE_H

#include <stdbool.h>
#include <stdint.h>

/* Returns true if @fd is of the fake pool. */
bool fake_is_node(int fd);

/* Answer an ioctl for the module. Returns 0 or a negative errno. */
int fake_ioctl(int fd, unsigned long request, void *arg);

/* Returns a number of the environment, 0 if not set. */
uint64_t fake_setting(const char *name);

#endif
