/* SPDX-License-Identifier: MIT */
/* libnl helpers shared by admin.c, events.c and stats.c. */
#ifndef KVBLK_NETLINK_PRIVATE_H
#define KVBLK_NETLINK_PRIVATE_H

#include <netlink/attr.h>
#include <netlink/handlers.h>

#include "kvblk.h"

/* Translate libnl's error code, of either sign, to a negative errno. */
int kvblk_nl_errno(int nlerr);

/* Copy a string attribute, truncated to @len. Leaves @to unchanged if @attr is NULL. */
void kvblk_nl_string(char *to, size_t len, struct nlattr *attr);

/* Read a number of 4 or 8 bytes. Returns false and leaves @to unchanged if there is none. */
bool kvblk_nl_uint(uint64_t *to, struct nlattr *attr);

/*
 * Subscribe a non-blocking socket to multicast group @group; calls @on_valid for each message.
 * Returns 0, or -ENOENT if there is no module or no such group.
 */
int kvblk_nl_listen(const char *group, nl_recvmsg_msg_cb_t on_valid, void *arg,
		    struct nl_sock **sock);

/* Read messages until @on_valid sets @fresh. Returns 0, -EAGAIN, -ENOBUFS or -ENOMEM. */
int kvblk_nl_hear(struct nl_sock *sock, bool *fresh);

/* Parse a message into @stats, which must be zeroed. Returns 0 or -EBADMSG. */
int kvblk_stats_parse(struct nlmsghdr *hdr, struct kvblk_stats *stats);

#endif
