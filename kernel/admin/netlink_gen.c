// SPDX-License-Identifier: ((GPL-2.0 WITH Linux-syscall-note) OR BSD-3-Clause)
/* Do not edit directly, auto-generated from: */
/*	uapi/netlink/kvblk.yaml */
/* YNL-GEN kernel source */
/* To regenerate run: uapi/netlink/regen KERNEL-SOURCE */

#include <net/netlink.h>
#include <net/genetlink.h>

#include "netlink_gen.h"

#include <linux/kvblk_netlink.h>

/* Common nested types */
const struct nla_policy kvblk_member_spec_nl_policy[KVBLK_A_MEMBER_PLACE + 1] = {
	[KVBLK_A_MEMBER_PATH] = { .type = NLA_NUL_STRING, .len = KVBLK_PATH_LEN_MAX, },
	[KVBLK_A_MEMBER_SEGMENT_SIZE] = { .type = NLA_UINT, },
	[KVBLK_A_MEMBER_NAME] = { .type = NLA_NUL_STRING, .len = KVBLK_NAME_LEN_MAX, },
	[KVBLK_A_MEMBER_PLACE] = { .type = NLA_NUL_STRING, .len = KVBLK_PLACE_LEN_MAX, },
};

/* KVBLK_CMD_POOL_CREATE - do */
static const struct nla_policy kvblk_pool_create_nl_policy[KVBLK_A_POOL_POD_OF + 1] = {
	[KVBLK_A_POOL_NAME] = { .type = NLA_NUL_STRING, .len = KVBLK_NAME_LEN_MAX, },
	[KVBLK_A_POOL_FLAGS] = NLA_POLICY_MASK(NLA_U32, 0x1),
	[KVBLK_A_POOL_ADD_FLAGS] = NLA_POLICY_MASK(NLA_U32, 0xf),
	[KVBLK_A_POOL_INDEX_SLOTS] = { .type = NLA_UINT, },
	[KVBLK_A_POOL_MEMBER] = NLA_POLICY_NESTED(kvblk_member_spec_nl_policy),
	[KVBLK_A_POOL_NODE] = NLA_POLICY_EXACT_LEN(16),
	[KVBLK_A_POOL_POD] = { .type = NLA_NUL_STRING, .len = KVBLK_NAME_LEN_MAX, },
	[KVBLK_A_POOL_POD_OF] = { .type = NLA_NUL_STRING, .len = KVBLK_PATH_LEN_MAX, },
};

/* KVBLK_CMD_POOL_IMPORT - do */
static const struct nla_policy kvblk_pool_import_nl_policy[KVBLK_A_POOL_PREEMPT + 1] = {
	[KVBLK_A_POOL_NAME] = { .type = NLA_NUL_STRING, .len = KVBLK_NAME_LEN_MAX, },
	[KVBLK_A_POOL_ADD_FLAGS] = NLA_POLICY_MASK(NLA_U32, 0xf),
	[KVBLK_A_POOL_INDEX_SLOTS] = { .type = NLA_UINT, },
	[KVBLK_A_POOL_MEMBER] = NLA_POLICY_NESTED(kvblk_member_spec_nl_policy),
	[KVBLK_A_POOL_NODE] = NLA_POLICY_EXACT_LEN(16),
	[KVBLK_A_POOL_PREEMPT] = NLA_POLICY_EXACT_LEN(16),
};

/* KVBLK_CMD_POOL_DESTROY - do */
static const struct nla_policy kvblk_pool_destroy_nl_policy[KVBLK_A_POOL_FORCE + 1] = {
	[KVBLK_A_POOL_NAME] = { .type = NLA_NUL_STRING, .len = KVBLK_NAME_LEN_MAX, },
	[KVBLK_A_POOL_FORCE] = { .type = NLA_FLAG, },
};

/* KVBLK_CMD_POOL_GET - do */
static const struct nla_policy kvblk_pool_get_do_nl_policy[KVBLK_A_POOL_TENANT + 1] = {
	[KVBLK_A_POOL_NAME] = { .type = NLA_NUL_STRING, .len = KVBLK_NAME_LEN_MAX, },
	[KVBLK_A_POOL_TENANT] = { .type = NLA_NUL_STRING, .len = KVBLK_NAME_LEN_MAX, },
};

/* KVBLK_CMD_POOL_GET - dump */
static const struct nla_policy kvblk_pool_get_dump_nl_policy[KVBLK_A_POOL_TENANT + 1] = {
	[KVBLK_A_POOL_TENANT] = { .type = NLA_NUL_STRING, .len = KVBLK_NAME_LEN_MAX, },
};

/* KVBLK_CMD_MEMBER_ADD - do */
static const struct nla_policy kvblk_member_add_nl_policy[KVBLK_A_MEMBER_PLACE + 1] = {
	[KVBLK_A_MEMBER_POOL] = { .type = NLA_NUL_STRING, .len = KVBLK_NAME_LEN_MAX, },
	[KVBLK_A_MEMBER_PATH] = { .type = NLA_NUL_STRING, .len = KVBLK_PATH_LEN_MAX, },
	[KVBLK_A_MEMBER_SEGMENT_SIZE] = { .type = NLA_UINT, },
	[KVBLK_A_MEMBER_ADD_FLAGS] = NLA_POLICY_MASK(NLA_U32, 0xf),
	[KVBLK_A_MEMBER_NAME] = { .type = NLA_NUL_STRING, .len = KVBLK_NAME_LEN_MAX, },
	[KVBLK_A_MEMBER_PLACE] = { .type = NLA_NUL_STRING, .len = KVBLK_PLACE_LEN_MAX, },
};

/* KVBLK_CMD_MEMBER_REMOVE - do */
static const struct nla_policy kvblk_member_remove_nl_policy[KVBLK_A_MEMBER_UUID + 1] = {
	[KVBLK_A_MEMBER_POOL] = { .type = NLA_NUL_STRING, .len = KVBLK_NAME_LEN_MAX, },
	[KVBLK_A_MEMBER_NAME] = { .type = NLA_NUL_STRING, .len = KVBLK_NAME_LEN_MAX, },
	[KVBLK_A_MEMBER_UUID] = NLA_POLICY_EXACT_LEN(16),
};

/* KVBLK_CMD_MEMBER_GET - do */
static const struct nla_policy kvblk_member_get_do_nl_policy[KVBLK_A_MEMBER_NAME + 1] = {
	[KVBLK_A_MEMBER_POOL] = { .type = NLA_NUL_STRING, .len = KVBLK_NAME_LEN_MAX, },
	[KVBLK_A_MEMBER_NAME] = { .type = NLA_NUL_STRING, .len = KVBLK_NAME_LEN_MAX, },
};

/* KVBLK_CMD_MEMBER_GET - dump */
static const struct nla_policy kvblk_member_get_dump_nl_policy[KVBLK_A_MEMBER_POOL + 1] = {
	[KVBLK_A_MEMBER_POOL] = { .type = NLA_NUL_STRING, .len = KVBLK_NAME_LEN_MAX, },
};

/* KVBLK_CMD_STATS_GET - do */
static const struct nla_policy kvblk_stats_get_do_nl_policy[KVBLK_A_STATS_MEMBER + 1] = {
	[KVBLK_A_STATS_POOL] = { .type = NLA_NUL_STRING, .len = KVBLK_NAME_LEN_MAX, },
	[KVBLK_A_STATS_TENANT] = { .type = NLA_NUL_STRING, .len = KVBLK_NAME_LEN_MAX, },
	[KVBLK_A_STATS_MEMBER] = { .type = NLA_NUL_STRING, .len = KVBLK_NAME_LEN_MAX, },
};

/* KVBLK_CMD_STATS_GET - dump */
static const struct nla_policy kvblk_stats_get_dump_nl_policy[KVBLK_A_STATS_SCOPE + 1] = {
	[KVBLK_A_STATS_POOL] = { .type = NLA_NUL_STRING, .len = KVBLK_NAME_LEN_MAX, },
	[KVBLK_A_STATS_TENANT] = { .type = NLA_NUL_STRING, .len = KVBLK_NAME_LEN_MAX, },
	[KVBLK_A_STATS_SCOPE] = NLA_POLICY_MAX(NLA_U32, 2),
};

/* KVBLK_CMD_ROUTE_GET - dump */
static const struct nla_policy kvblk_route_get_nl_policy[KVBLK_A_ROUTE_MEMBER + 1] = {
	[KVBLK_A_ROUTE_POOL] = { .type = NLA_NUL_STRING, .len = KVBLK_NAME_LEN_MAX, },
	[KVBLK_A_ROUTE_MEMBER] = { .type = NLA_NUL_STRING, .len = KVBLK_NAME_LEN_MAX, },
};

/* KVBLK_CMD_POOL_CLEAR - do */
static const struct nla_policy kvblk_pool_clear_nl_policy[KVBLK_A_POOL_NAME + 1] = {
	[KVBLK_A_POOL_NAME] = { .type = NLA_NUL_STRING, .len = KVBLK_NAME_LEN_MAX, },
};

/* KVBLK_CMD_MEMBER_FOLLOW - do */
static const struct nla_policy kvblk_member_follow_nl_policy[KVBLK_A_MEMBER_HINTED + 1] = {
	[KVBLK_A_MEMBER_POOL] = { .type = NLA_NUL_STRING, .len = KVBLK_NAME_LEN_MAX, },
	[KVBLK_A_MEMBER_PATH] = { .type = NLA_NUL_STRING, .len = KVBLK_PATH_LEN_MAX, },
	[KVBLK_A_MEMBER_NAME] = { .type = NLA_NUL_STRING, .len = KVBLK_NAME_LEN_MAX, },
	[KVBLK_A_MEMBER_PLACE] = { .type = NLA_NUL_STRING, .len = KVBLK_PLACE_LEN_MAX, },
	[KVBLK_A_MEMBER_HINTED] = { .type = NLA_FLAG, },
};

/* KVBLK_CMD_FOREIGN_GET - dump */
static const struct nla_policy kvblk_foreign_get_nl_policy[KVBLK_A_MEMBER_POOL + 1] = {
	[KVBLK_A_MEMBER_POOL] = { .type = NLA_NUL_STRING, .len = KVBLK_NAME_LEN_MAX, },
};

/* KVBLK_CMD_TOUCHED_GET - dump */
static const struct nla_policy kvblk_touched_get_nl_policy[KVBLK_A_TOUCH_POOL + 1] = {
	[KVBLK_A_TOUCH_POOL] = { .type = NLA_NUL_STRING, .len = KVBLK_NAME_LEN_MAX, },
};

/* KVBLK_CMD_TOUCH - do */
static const struct nla_policy kvblk_touch_nl_policy[KVBLK_A_TOUCH_IDS + 1] = {
	[KVBLK_A_TOUCH_POOL] = { .type = NLA_NUL_STRING, .len = KVBLK_NAME_LEN_MAX, },
	[KVBLK_A_TOUCH_IDS] = { .type = NLA_BINARY, },
};

/* KVBLK_CMD_DELETE - do */
static const struct nla_policy kvblk_delete_nl_policy[KVBLK_A_TOUCH_IDS + 1] = {
	[KVBLK_A_TOUCH_POOL] = { .type = NLA_NUL_STRING, .len = KVBLK_NAME_LEN_MAX, },
	[KVBLK_A_TOUCH_IDS] = { .type = NLA_BINARY, },
};

/* KVBLK_CMD_TENANT_CREATE - do */
static const struct nla_policy kvblk_tenant_create_nl_policy[KVBLK_A_TENANT_KEY + 1] = {
	[KVBLK_A_TENANT_POOL] = { .type = NLA_NUL_STRING, .len = KVBLK_NAME_LEN_MAX, },
	[KVBLK_A_TENANT_NAME] = { .type = NLA_NUL_STRING, .len = KVBLK_NAME_LEN_MAX, },
	[KVBLK_A_TENANT_MODE] = NLA_POLICY_RANGE(NLA_U32, 1, 511),
	[KVBLK_A_TENANT_UID] = { .type = NLA_U32, },
	[KVBLK_A_TENANT_GID] = { .type = NLA_U32, },
	[KVBLK_A_TENANT_KEY] = { .type = NLA_S32, },
};

/* KVBLK_CMD_TENANT_REMOVE - do */
static const struct nla_policy kvblk_tenant_remove_nl_policy[KVBLK_A_TENANT_FORCE + 1] = {
	[KVBLK_A_TENANT_POOL] = { .type = NLA_NUL_STRING, .len = KVBLK_NAME_LEN_MAX, },
	[KVBLK_A_TENANT_NAME] = { .type = NLA_NUL_STRING, .len = KVBLK_NAME_LEN_MAX, },
	[KVBLK_A_TENANT_FORCE] = { .type = NLA_FLAG, },
};

/* KVBLK_CMD_TENANT_CLEAR - do */
static const struct nla_policy kvblk_tenant_clear_nl_policy[KVBLK_A_TENANT_FORCE + 1] = {
	[KVBLK_A_TENANT_POOL] = { .type = NLA_NUL_STRING, .len = KVBLK_NAME_LEN_MAX, },
	[KVBLK_A_TENANT_NAME] = { .type = NLA_NUL_STRING, .len = KVBLK_NAME_LEN_MAX, },
	[KVBLK_A_TENANT_FORCE] = { .type = NLA_FLAG, },
};

/* KVBLK_CMD_TENANT_GET - dump */
static const struct nla_policy kvblk_tenant_get_nl_policy[KVBLK_A_TENANT_POOL + 1] = {
	[KVBLK_A_TENANT_POOL] = { .type = NLA_NUL_STRING, .len = KVBLK_NAME_LEN_MAX, },
};

/* KVBLK_CMD_TENANT_SET - do */
static const struct nla_policy kvblk_tenant_set_nl_policy[KVBLK_A_TENANT_SHARED + 1] = {
	[KVBLK_A_TENANT_POOL] = { .type = NLA_NUL_STRING, .len = KVBLK_NAME_LEN_MAX, },
	[KVBLK_A_TENANT_NAME] = { .type = NLA_NUL_STRING, .len = KVBLK_NAME_LEN_MAX, },
	[KVBLK_A_TENANT_MODE] = NLA_POLICY_RANGE(NLA_U32, 1, 511),
	[KVBLK_A_TENANT_UID] = { .type = NLA_U32, },
	[KVBLK_A_TENANT_GID] = { .type = NLA_U32, },
	[KVBLK_A_TENANT_QUOTA_BYTES] = { .type = NLA_UINT, },
	[KVBLK_A_TENANT_QUOTA_BYTES_SOFT] = { .type = NLA_UINT, },
	[KVBLK_A_TENANT_QUOTA_BLOCKS] = { .type = NLA_UINT, },
	[KVBLK_A_TENANT_QUOTA_BLOCKS_SOFT] = { .type = NLA_UINT, },
	[KVBLK_A_TENANT_QUOTA_DRAM] = { .type = NLA_UINT, },
	[KVBLK_A_TENANT_WEIGHT] = NLA_POLICY_RANGE(NLA_U32, 1, 10000),
	[KVBLK_A_TENANT_SHARED] = { .type = NLA_NUL_STRING, .len = KVBLK_NAME_LEN_MAX, },
};

/* KVBLK_CMD_TENANT_KEY - do */
static const struct nla_policy kvblk_tenant_key_nl_policy[KVBLK_A_TENANT_KEY + 1] = {
	[KVBLK_A_TENANT_POOL] = { .type = NLA_NUL_STRING, .len = KVBLK_NAME_LEN_MAX, },
	[KVBLK_A_TENANT_NAME] = { .type = NLA_NUL_STRING, .len = KVBLK_NAME_LEN_MAX, },
	[KVBLK_A_TENANT_KEY] = { .type = NLA_S32, },
};

/* Ops table for kvblk */
static const struct genl_split_ops kvblk_nl_ops[] = {
	{
		.cmd		= KVBLK_CMD_POOL_CREATE,
		.doit		= kvblk_nl_pool_create_doit,
		.policy		= kvblk_pool_create_nl_policy,
		.maxattr	= KVBLK_A_POOL_POD_OF,
		.flags		= GENL_CMD_CAP_DO,
	},
	{
		.cmd		= KVBLK_CMD_POOL_IMPORT,
		.doit		= kvblk_nl_pool_import_doit,
		.policy		= kvblk_pool_import_nl_policy,
		.maxattr	= KVBLK_A_POOL_PREEMPT,
		.flags		= GENL_CMD_CAP_DO,
	},
	{
		.cmd		= KVBLK_CMD_POOL_DESTROY,
		.doit		= kvblk_nl_pool_destroy_doit,
		.policy		= kvblk_pool_destroy_nl_policy,
		.maxattr	= KVBLK_A_POOL_FORCE,
		.flags		= GENL_CMD_CAP_DO,
	},
	{
		.cmd		= KVBLK_CMD_POOL_GET,
		.doit		= kvblk_nl_pool_get_doit,
		.policy		= kvblk_pool_get_do_nl_policy,
		.maxattr	= KVBLK_A_POOL_TENANT,
		.flags		= GENL_CMD_CAP_DO,
	},
	{
		.cmd		= KVBLK_CMD_POOL_GET,
		.dumpit		= kvblk_nl_pool_get_dumpit,
		.policy		= kvblk_pool_get_dump_nl_policy,
		.maxattr	= KVBLK_A_POOL_TENANT,
		.flags		= GENL_CMD_CAP_DUMP,
	},
	{
		.cmd		= KVBLK_CMD_MEMBER_ADD,
		.doit		= kvblk_nl_member_add_doit,
		.policy		= kvblk_member_add_nl_policy,
		.maxattr	= KVBLK_A_MEMBER_PLACE,
		.flags		= GENL_CMD_CAP_DO,
	},
	{
		.cmd		= KVBLK_CMD_MEMBER_REMOVE,
		.doit		= kvblk_nl_member_remove_doit,
		.policy		= kvblk_member_remove_nl_policy,
		.maxattr	= KVBLK_A_MEMBER_UUID,
		.flags		= GENL_CMD_CAP_DO,
	},
	{
		.cmd		= KVBLK_CMD_MEMBER_GET,
		.doit		= kvblk_nl_member_get_doit,
		.policy		= kvblk_member_get_do_nl_policy,
		.maxattr	= KVBLK_A_MEMBER_NAME,
		.flags		= GENL_CMD_CAP_DO,
	},
	{
		.cmd		= KVBLK_CMD_MEMBER_GET,
		.dumpit		= kvblk_nl_member_get_dumpit,
		.policy		= kvblk_member_get_dump_nl_policy,
		.maxattr	= KVBLK_A_MEMBER_POOL,
		.flags		= GENL_CMD_CAP_DUMP,
	},
	{
		.cmd		= KVBLK_CMD_STATS_GET,
		.doit		= kvblk_nl_stats_get_doit,
		.policy		= kvblk_stats_get_do_nl_policy,
		.maxattr	= KVBLK_A_STATS_MEMBER,
		.flags		= GENL_CMD_CAP_DO,
	},
	{
		.cmd		= KVBLK_CMD_STATS_GET,
		.dumpit		= kvblk_nl_stats_get_dumpit,
		.policy		= kvblk_stats_get_dump_nl_policy,
		.maxattr	= KVBLK_A_STATS_SCOPE,
		.flags		= GENL_CMD_CAP_DUMP,
	},
	{
		.cmd		= KVBLK_CMD_ROUTE_GET,
		.dumpit		= kvblk_nl_route_get_dumpit,
		.policy		= kvblk_route_get_nl_policy,
		.maxattr	= KVBLK_A_ROUTE_MEMBER,
		.flags		= GENL_CMD_CAP_DUMP,
	},
	{
		.cmd		= KVBLK_CMD_POOL_CLEAR,
		.doit		= kvblk_nl_pool_clear_doit,
		.policy		= kvblk_pool_clear_nl_policy,
		.maxattr	= KVBLK_A_POOL_NAME,
		.flags		= GENL_CMD_CAP_DO,
	},
	{
		.cmd		= KVBLK_CMD_MEMBER_FOLLOW,
		.doit		= kvblk_nl_member_follow_doit,
		.policy		= kvblk_member_follow_nl_policy,
		.maxattr	= KVBLK_A_MEMBER_HINTED,
		.flags		= GENL_CMD_CAP_DO,
	},
	{
		.cmd		= KVBLK_CMD_FOREIGN_GET,
		.dumpit		= kvblk_nl_foreign_get_dumpit,
		.policy		= kvblk_foreign_get_nl_policy,
		.maxattr	= KVBLK_A_MEMBER_POOL,
		.flags		= GENL_CMD_CAP_DUMP,
	},
	{
		.cmd		= KVBLK_CMD_TOUCHED_GET,
		.dumpit		= kvblk_nl_touched_get_dumpit,
		.policy		= kvblk_touched_get_nl_policy,
		.maxattr	= KVBLK_A_TOUCH_POOL,
		.flags		= GENL_CMD_CAP_DUMP,
	},
	{
		.cmd		= KVBLK_CMD_TOUCH,
		.doit		= kvblk_nl_touch_doit,
		.policy		= kvblk_touch_nl_policy,
		.maxattr	= KVBLK_A_TOUCH_IDS,
		.flags		= GENL_CMD_CAP_DO,
	},
	{
		.cmd		= KVBLK_CMD_DELETE,
		.doit		= kvblk_nl_delete_doit,
		.policy		= kvblk_delete_nl_policy,
		.maxattr	= KVBLK_A_TOUCH_IDS,
		.flags		= GENL_CMD_CAP_DO,
	},
	{
		.cmd		= KVBLK_CMD_TENANT_CREATE,
		.doit		= kvblk_nl_tenant_create_doit,
		.policy		= kvblk_tenant_create_nl_policy,
		.maxattr	= KVBLK_A_TENANT_KEY,
		.flags		= GENL_CMD_CAP_DO,
	},
	{
		.cmd		= KVBLK_CMD_TENANT_REMOVE,
		.doit		= kvblk_nl_tenant_remove_doit,
		.policy		= kvblk_tenant_remove_nl_policy,
		.maxattr	= KVBLK_A_TENANT_FORCE,
		.flags		= GENL_CMD_CAP_DO,
	},
	{
		.cmd		= KVBLK_CMD_TENANT_CLEAR,
		.doit		= kvblk_nl_tenant_clear_doit,
		.policy		= kvblk_tenant_clear_nl_policy,
		.maxattr	= KVBLK_A_TENANT_FORCE,
		.flags		= GENL_CMD_CAP_DO,
	},
	{
		.cmd		= KVBLK_CMD_TENANT_GET,
		.dumpit		= kvblk_nl_tenant_get_dumpit,
		.policy		= kvblk_tenant_get_nl_policy,
		.maxattr	= KVBLK_A_TENANT_POOL,
		.flags		= GENL_CMD_CAP_DUMP,
	},
	{
		.cmd		= KVBLK_CMD_TENANT_SET,
		.doit		= kvblk_nl_tenant_set_doit,
		.policy		= kvblk_tenant_set_nl_policy,
		.maxattr	= KVBLK_A_TENANT_SHARED,
		.flags		= GENL_CMD_CAP_DO,
	},
	{
		.cmd		= KVBLK_CMD_TENANT_KEY,
		.doit		= kvblk_nl_tenant_key_doit,
		.policy		= kvblk_tenant_key_nl_policy,
		.maxattr	= KVBLK_A_TENANT_KEY,
		.flags		= GENL_CMD_CAP_DO,
	},
};

static const struct genl_multicast_group kvblk_nl_mcgrps[] = {
	[KVBLK_NLGRP_EVENTS] = { "events", },
	[KVBLK_NLGRP_STATS] = { "stats", },
};

struct genl_family kvblk_nl_family __ro_after_init = {
	.name		= KVBLK_FAMILY_NAME,
	.version	= KVBLK_FAMILY_VERSION,
	.netnsok	= true,
	.parallel_ops	= true,
	.module		= THIS_MODULE,
	.split_ops	= kvblk_nl_ops,
	.n_split_ops	= ARRAY_SIZE(kvblk_nl_ops),
	.mcgrps		= kvblk_nl_mcgrps,
	.n_mcgrps	= ARRAY_SIZE(kvblk_nl_mcgrps),
};
