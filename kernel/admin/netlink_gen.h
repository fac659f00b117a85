/* SPDX-License-Identifier: ((GPL-2.0 WITH Linux-syscall-note) OR BSD-3-Clause) */
/* Do not edit directly, auto-generated from: */
/*	uapi/netlink/kvblk.yaml */
/* YNL-GEN kernel header */
/* To regenerate run: uapi/netlink/regen KERNEL-SOURCE */

#ifndef _LINUX_KVBLK_GEN_H
#define _LINUX_KVBLK_GEN_H

#include <net/netlink.h>
#include <net/genetlink.h>

#include <linux/kvblk_netlink.h>

/* Common nested types */
extern const struct nla_policy kvblk_member_spec_nl_policy[KVBLK_A_MEMBER_PLACE + 1];

int kvblk_nl_pool_create_doit(struct sk_buff *skb, struct genl_info *info);
int kvblk_nl_pool_import_doit(struct sk_buff *skb, struct genl_info *info);
int kvblk_nl_pool_destroy_doit(struct sk_buff *skb, struct genl_info *info);
int kvblk_nl_pool_get_doit(struct sk_buff *skb, struct genl_info *info);
int kvblk_nl_pool_get_dumpit(struct sk_buff *skb, struct netlink_callback *cb);
int kvblk_nl_member_add_doit(struct sk_buff *skb, struct genl_info *info);
int kvblk_nl_member_remove_doit(struct sk_buff *skb, struct genl_info *info);
int kvblk_nl_member_get_doit(struct sk_buff *skb, struct genl_info *info);
int kvblk_nl_member_get_dumpit(struct sk_buff *skb,
			       struct netlink_callback *cb);
int kvblk_nl_stats_get_doit(struct sk_buff *skb, struct genl_info *info);
int kvblk_nl_stats_get_dumpit(struct sk_buff *skb, struct netlink_callback *cb);
int kvblk_nl_route_get_dumpit(struct sk_buff *skb, struct netlink_callback *cb);
int kvblk_nl_pool_clear_doit(struct sk_buff *skb, struct genl_info *info);
int kvblk_nl_member_follow_doit(struct sk_buff *skb, struct genl_info *info);
int kvblk_nl_foreign_get_dumpit(struct sk_buff *skb,
				struct netlink_callback *cb);
int kvblk_nl_touched_get_dumpit(struct sk_buff *skb,
				struct netlink_callback *cb);
int kvblk_nl_touch_doit(struct sk_buff *skb, struct genl_info *info);
int kvblk_nl_delete_doit(struct sk_buff *skb, struct genl_info *info);
int kvblk_nl_tenant_create_doit(struct sk_buff *skb, struct genl_info *info);
int kvblk_nl_tenant_remove_doit(struct sk_buff *skb, struct genl_info *info);
int kvblk_nl_tenant_clear_doit(struct sk_buff *skb, struct genl_info *info);
int kvblk_nl_tenant_get_dumpit(struct sk_buff *skb,
			       struct netlink_callback *cb);
int kvblk_nl_tenant_set_doit(struct sk_buff *skb, struct genl_info *info);
int kvblk_nl_tenant_key_doit(struct sk_buff *skb, struct genl_info *info);

enum {
	KVBLK_NLGRP_EVENTS,
	KVBLK_NLGRP_STATS,
};

extern struct genl_family kvblk_nl_family;

#endif /* _LINUX_KVBLK_GEN_H */
