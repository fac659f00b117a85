/* SPDX-License-Identifier: MIT */
/* What admin.c and events.c share of libnl. */
#ifndef KVBLK_NETLINK_PRIVATE_H
#define KVBLK_NETLINK_PRIVATE_H

#include <netlink/attr.h>

#include "kvblk.h"

/* libnl's error, of either sign, as a negative errno */
int kvblk_nl_errno(int nlerr);

/* Copies a string attribute, cut to @len; leaves @to alone without one. */
void kvblk_nl_string(char *to, size_t len, struct nlattr *attr);

/* An unsigned number of 4 or 8 bytes; false, and @to alone, without one. */
bool kvblk_nl_uint(uint64_t *to, struct nlattr *attr);

#endif
