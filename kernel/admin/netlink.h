/* SPDX-License-Identifier: GPL-2.0 */
/* What netlink.c has for those that answer requests elsewhere. */
#ifndef KVBLK_NETLINK_H
#define KVBLK_NETLINK_H

#include <net/genetlink.h>

#include "admin/admin.h"

/* No tenant but this one is there yet. */
#define KVBLK_NL_TENANT		"default"

/* Says in @skb what a message tells of @pool: 0, or an error, with a sentence. */
typedef int kvblk_nl_fill_fn(struct sk_buff *skb, const struct genl_info *info,
			     int flags, struct kvblk_pool *pool);
/* The same of its parts from *@part on, which moves with them. */
typedef int kvblk_nl_parts_fn(struct sk_buff *skb, const struct genl_info *info,
			      struct kvblk_pool *pool, u32 *part);

/* A name in @attr, which has passed its policy; NULL with a sentence. */
const char *kvblk_nl_name(const struct nlattr *attr, struct netlink_ext_ack *extack);
/* @attr, if there is one, names a tenant that is there: 0, or with a sentence. */
int kvblk_nl_tenant(const struct nlattr *attr, struct netlink_ext_ack *extack);
/* The member that @name names; RCU. NULL with a sentence. */
struct kvblk_member *kvblk_nl_member(struct kvblk_pool *pool, const struct nlattr *name,
				     struct netlink_ext_ack *extack);
/* A message that answers @info, NULL: no room. */
void *kvblk_nl_begin(struct sk_buff *skb, const struct genl_info *info, int flags);
/* A notification @cmd, NULL: no room. */
void *kvblk_nl_begin_notice(struct sk_buff *skb, u8 cmd);
/* Sends it to the group. May sleep. */
void kvblk_nl_multicast(struct sk_buff *skb, unsigned int group);
bool kvblk_nl_heard(unsigned int group);
/* Ends the message at @hdr, or takes it back when it did not fit: -EMSGSIZE. */
int kvblk_nl_end(struct sk_buff *skb, void *hdr, bool full);
/* Answers with what @fill says of the pool that attribute @type names. */
int kvblk_nl_reply(struct genl_info *info, int type, kvblk_nl_fill_fn *fill);
/* A dumpit() of what @fill says of each pool, or of the one that @only names. */
int kvblk_nl_dump(struct sk_buff *skb, struct netlink_callback *cb,
		  const struct nlattr *only, kvblk_nl_parts_fn *fill);

#endif
