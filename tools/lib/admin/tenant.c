// SPDX-License-Identifier: MIT
/*
 * Tenants of pools. The rule: a field without a value is not sent: a new tenant has the module's
 * default, an existing tenant does not change.
 */
#include <errno.h>
#include <stdio.h>

#include <linux/netlink.h>
#include <netlink/genl/genl.h>
#include <netlink/netlink.h>

#include "lib.h"

#define MODE_MAX	0777u
#define FIELDS_ALL	((uint32_t)KVBLK_TENANT_SHARED * 2 - 1)

static int put_tenant_spec(struct nl_msg *msg, const char *pool,
			   const struct kvblk_tenant_spec *spec)
{
	if (!pool || !spec->name || spec->mode > MODE_MAX)
		return -EINVAL;
	if (nla_put_string(msg, KVBLK_A_TENANT_POOL, pool) ||
	    nla_put_string(msg, KVBLK_A_TENANT_NAME, spec->name) ||
	    (spec->mode && nla_put_u32(msg, KVBLK_A_TENANT_MODE, spec->mode)) ||
	    (spec->uid && nla_put_u32(msg, KVBLK_A_TENANT_UID, spec->uid)) ||
	    (spec->gid && nla_put_u32(msg, KVBLK_A_TENANT_GID, spec->gid)) ||
	    (spec->key && nla_put_s32(msg, KVBLK_A_TENANT_KEY, spec->key)))
		return -EMSGSIZE;
	return 0;
}

int kvblk_tenant_create(struct kvblk_admin *admin, const char *pool,
			const struct kvblk_tenant_spec *callers)
{
	struct nl_msg *msg = kvblk_request_new(admin, KVBLK_CMD_TENANT_CREATE, NLM_F_ACK);
	struct kvblk_tenant_spec spec;
	int err;

	if (!msg)
		return -ENOMEM;
	err = kvblk_read_sized(&spec, sizeof(spec), callers);
	if (!err)
		err = put_tenant_spec(msg, pool, &spec);
	return kvblk_request_run(admin, msg, err);
}

static int put_tenant(struct nl_msg *msg, const char *pool, const char *name, bool force)
{
	if (!pool || !name)
		return -EINVAL;
	if (nla_put_string(msg, KVBLK_A_TENANT_POOL, pool) ||
	    nla_put_string(msg, KVBLK_A_TENANT_NAME, name) ||
	    (force && nla_put_flag(msg, KVBLK_A_TENANT_FORCE)))
		return -EMSGSIZE;
	return 0;
}

/* Run a request that ends the life of a tenant's blocks. */
static int end_blocks(struct kvblk_admin *admin, int command, const char *pool, const char *name,
		      bool force)
{
	struct nl_msg *msg = kvblk_request_new(admin, command, NLM_F_ACK);

	return msg ? kvblk_request_run(admin, msg, put_tenant(msg, pool, name, force)) : -ENOMEM;
}

static int put_u32(struct nl_msg *msg, bool set, int attr, uint32_t value)
{
	return set ? nla_put_u32(msg, attr, value) : 0;
}

static int put_u64(struct nl_msg *msg, bool set, int attr, uint64_t value)
{
	return set ? nla_put_u64(msg, attr, value) : 0;
}

static int put_change(struct nl_msg *msg, const struct kvblk_tenant_change *change)
{
	const uint32_t fields = change->fields;

	if (fields & ~FIELDS_ALL)
		return -EINVAL;
	if (put_u32(msg, fields & KVBLK_TENANT_MODE, KVBLK_A_TENANT_MODE, change->mode) ||
	    put_u32(msg, fields & KVBLK_TENANT_UID, KVBLK_A_TENANT_UID, change->uid) ||
	    put_u32(msg, fields & KVBLK_TENANT_GID, KVBLK_A_TENANT_GID, change->gid) ||
	    put_u32(msg, fields & KVBLK_TENANT_WEIGHT, KVBLK_A_TENANT_WEIGHT, change->weight) ||
	    put_u64(msg, fields & KVBLK_TENANT_QUOTA_BYTES, KVBLK_A_TENANT_QUOTA_BYTES,
		    change->quota_bytes) ||
	    put_u64(msg, fields & KVBLK_TENANT_QUOTA_BYTES_SOFT, KVBLK_A_TENANT_QUOTA_BYTES_SOFT,
		    change->quota_bytes_soft) ||
	    put_u64(msg, fields & KVBLK_TENANT_QUOTA_BLOCKS, KVBLK_A_TENANT_QUOTA_BLOCKS,
		    change->quota_blocks) ||
	    put_u64(msg, fields & KVBLK_TENANT_QUOTA_BLOCKS_SOFT, KVBLK_A_TENANT_QUOTA_BLOCKS_SOFT,
		    change->quota_blocks_soft) ||
	    put_u64(msg, fields & KVBLK_TENANT_QUOTA_DRAM, KVBLK_A_TENANT_QUOTA_DRAM,
		    change->quota_dram))
		return -EMSGSIZE;
	if (fields & KVBLK_TENANT_SHARED &&
	    nla_put_string(msg, KVBLK_A_TENANT_SHARED, change->shared ? change->shared : ""))
		return -EMSGSIZE;
	return 0;
}

int kvblk_tenant_set(struct kvblk_admin *admin, const char *pool, const char *name,
		     const struct kvblk_tenant_change *callers)
{
	struct nl_msg *msg = kvblk_request_new(admin, KVBLK_CMD_TENANT_SET, NLM_F_ACK);
	struct kvblk_tenant_change change;
	int err;

	if (!msg)
		return -ENOMEM;
	err = kvblk_read_sized(&change, sizeof(change), callers);
	if (!err)
		err = put_tenant(msg, pool, name, false);
	if (!err)
		err = put_change(msg, &change);
	return kvblk_request_run(admin, msg, err);
}

int kvblk_tenant_remove(struct kvblk_admin *admin, const char *pool, const char *name, bool force)
{
	return end_blocks(admin, KVBLK_CMD_TENANT_REMOVE, pool, name, force);
}

int kvblk_tenant_clear(struct kvblk_admin *admin, const char *pool, const char *name, bool force)
{
	return end_blocks(admin, KVBLK_CMD_TENANT_CLEAR, pool, name, force);
}

static int put_key(struct nl_msg *msg, const char *pool, const char *name, int32_t key)
{
	int err = put_tenant(msg, pool, name, false);

	if (err)
		return err;
	return nla_put_s32(msg, KVBLK_A_TENANT_KEY, key) ? -EMSGSIZE : 0;
}

int kvblk_tenant_key(struct kvblk_admin *admin, const char *pool, const char *name, int32_t key)
{
	struct nl_msg *msg = kvblk_request_new(admin, KVBLK_CMD_TENANT_KEY, NLM_F_ACK);

	return msg ? kvblk_request_run(admin, msg, put_key(msg, pool, name, key)) : -ENOMEM;
}

static int parse_tenant(struct nlmsghdr *hdr, void *replies)
{
	struct nlattr *tb[KVBLK_A_TENANT_MAX + 1];
	struct kvblk_tenant_state *tenant;

	if (genlmsg_parse(hdr, 0, tb, KVBLK_A_TENANT_MAX, NULL))
		return -EBADMSG;
	tenant = kvblk_reply_add(replies, sizeof(*tenant));
	if (!tenant)
		return -ENOMEM;
	kvblk_nl_string(tenant->pool, sizeof(tenant->pool), tb[KVBLK_A_TENANT_POOL]);
	kvblk_nl_string(tenant->name, sizeof(tenant->name), tb[KVBLK_A_TENANT_NAME]);
	kvblk_nl_u32(&tenant->id, tb[KVBLK_A_TENANT_ID]);
	tenant->has_mode = tb[KVBLK_A_TENANT_MODE];
	kvblk_nl_u32(&tenant->mode, tb[KVBLK_A_TENANT_MODE]);
	kvblk_nl_u32(&tenant->uid, tb[KVBLK_A_TENANT_UID]);
	kvblk_nl_u32(&tenant->gid, tb[KVBLK_A_TENANT_GID]);
	kvblk_nl_string(tenant->devnode, sizeof(tenant->devnode), tb[KVBLK_A_TENANT_DEVNODE]);
	tenant->encrypted = tb[KVBLK_A_TENANT_ENCRYPTED];
	tenant->locked = tb[KVBLK_A_TENANT_LOCKED];
	tenant->has_use = kvblk_nl_uint(&tenant->openers, tb[KVBLK_A_TENANT_OPENERS]);
	tenant->has_limits = tb[KVBLK_A_TENANT_WEIGHT];
	kvblk_nl_u32(&tenant->weight, tb[KVBLK_A_TENANT_WEIGHT]);
	kvblk_nl_uint(&tenant->quota_bytes, tb[KVBLK_A_TENANT_QUOTA_BYTES]);
	kvblk_nl_uint(&tenant->quota_bytes_soft, tb[KVBLK_A_TENANT_QUOTA_BYTES_SOFT]);
	kvblk_nl_uint(&tenant->quota_blocks, tb[KVBLK_A_TENANT_QUOTA_BLOCKS]);
	kvblk_nl_uint(&tenant->quota_blocks_soft, tb[KVBLK_A_TENANT_QUOTA_BLOCKS_SOFT]);
	kvblk_nl_uint(&tenant->quota_dram, tb[KVBLK_A_TENANT_QUOTA_DRAM]);
	kvblk_nl_string(tenant->shared, sizeof(tenant->shared), tb[KVBLK_A_TENANT_SHARED]);
	tenant->has_used = kvblk_nl_uint(&tenant->used_bytes, tb[KVBLK_A_TENANT_USED_BYTES]);
	kvblk_nl_uint(&tenant->used_blocks, tb[KVBLK_A_TENANT_USED_BLOCKS]);
	kvblk_nl_uint(&tenant->used_dram, tb[KVBLK_A_TENANT_USED_DRAM]);
	kvblk_nl_numbers(tenant->counter, tenant->has_counter, KVBLK_NAME_TENANT_COUNTER,
			 tb[KVBLK_A_TENANT_COUNTERS]);
	return 0;
}

int kvblk_tenant_list(struct kvblk_admin *admin, const char *pool,
		      struct kvblk_tenant_state **list)
{
	const struct question question = {
		.command = KVBLK_CMD_TENANT_GET,
		.dump = true,
		.names = { { KVBLK_A_TENANT_POOL, pool } },
		.parse = parse_tenant,
	};
	int err;

	*list = kvblk_list_get(admin, &question, &err);
	return err;
}
