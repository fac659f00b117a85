/* SPDX-License-Identifier: GPL-2.0 */
/* Helpers of netlink.c for commands that are implemented in other files. */
#ifndef KVBLK_NETLINK_H
#define KVBLK_NETLINK_H

#include <net/genetlink.h>

#include "admin/admin.h"

#define KVBLK_NL_TENANT		"default"	/* pool-get and stats-get know no other one */

/*
 * Fill @skb with a message about @pool or, in a dump, with messages about its parts from *@part on,
 * which is advanced. @monitor: the requester may monitor. Returns 0, or an error with a message.
 */
typedef int kvblk_nl_fill_fn(struct sk_buff *skb, const struct genl_info *info,
			     struct kvblk_pool *pool, int *part, bool monitor);

/* Check that @attr (may be NULL) has a name. Returns 0, or -EINVAL with a message if empty. */
int kvblk_nl_name(const struct nlattr *attr, struct netlink_ext_ack *extack);
/* Check that @attr (may be NULL) names an existing tenant. Returns 0 or -EOPNOTSUPP. */
int kvblk_nl_tenant(const struct nlattr *attr, struct netlink_ext_ack *extack);
/* Find the member called @name. RCU. Returns NULL with a message if there is none. */
struct kvblk_member *kvblk_nl_member(struct kvblk_pool *pool, const struct nlattr *name,
				     struct netlink_ext_ack *extack);
extern struct genl_family *kvblk_nl;

/*
 * Copy the 32 bytes of the key @serial, which the current task may search. Returns 0, or an errno
 * with a message: of the keyrings, or -EINVAL the key is of another type or length.
 */
int kvblk_keyring_read(s32 serial, u8 *bytes, struct netlink_ext_ack *extack);

/*
 * Put a nest of @nr values, whose attributes begin with @first. @wanted: which ones; NULL: all.
 * Returns whether @skb is full.
 */
bool kvblk_nl_put_uints(struct sk_buff *skb, int type, int first, const u64 *values, int nr,
			const bool *wanted);

/* Return 0, or -EPERM with a message if the requester may not monitor. */
int kvblk_nl_refuse_user(const struct sk_buff *request, struct netlink_ext_ack *extack);

/* Begin a reply to @info, one of several if it asks for a dump. Returns NULL if @skb is full. */
void *kvblk_nl_begin(struct sk_buff *skb, const struct genl_info *info);
/* End the message at @hdr. If too long (@full), remove it and return -EMSGSIZE. */
int kvblk_nl_end(struct sk_buff *skb, void *hdr, bool full);
/* Reply to @request with @fill's message about the pool in attribute @type. */
int kvblk_nl_reply(const struct sk_buff *request, struct genl_info *info, int type,
		   kvblk_nl_fill_fn *fill);
/* A dumpit() of @fill's messages about each pool, or about the pool that @only names. */
int kvblk_nl_dump(struct sk_buff *skb, struct netlink_callback *cb,
		  const struct nlattr *only, kvblk_nl_fill_fn *fill);

#endif
