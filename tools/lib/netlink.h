/* SPDX-License-Identifier: MIT */
/* What admin.c, events.c and stats.c share of libnl. */
#ifndef KVBLK_NETLINK_PRIVATE_H
#define KVBLK_NETLINK_PRIVATE_H

#include <netlink/attr.h>
#include <netlink/handlers.h>

#include "kvblk.h"

/* libnl's error, of either sign, as a negative errno */
int kvblk_nl_errno(int nlerr);

/* Copies a string attribute, cut to @len; leaves @to alone without one. */
void kvblk_nl_string(char *to, size_t len, struct nlattr *attr);

/* An unsigned number of 4 or 8 bytes; false, and @to alone, without one. */
bool kvblk_nl_uint(uint64_t *to, struct nlattr *attr);

/*
 * A socket that hears multicast group @group of the module, does not block, and calls
 * @on_valid with each message. 0; -ENOENT: no module, or no such group.
 */
int kvblk_nl_listen(const char *group, nl_recvmsg_msg_cb_t on_valid, void *arg,
		    struct nl_sock **sock);

/* Reads messages until @on_valid has set @fresh. 0, -EAGAIN, -ENOBUFS, -ENOMEM. */
int kvblk_nl_hear(struct nl_sock *sock, bool *fresh);

/* Statistics in a message, into @stats, which is all zero: 0 or -EBADMSG. */
int kvblk_stats_parse(struct nlmsghdr *hdr, struct kvblk_stats *stats);

#endif
