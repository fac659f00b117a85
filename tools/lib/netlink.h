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

#endif
