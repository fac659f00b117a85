// SPDX-License-Identifier: MIT
/* Tenants of pools. The rule: an attribute without a value is left to the module's default. */
#include <errno.h>
#include <stdio.h>

#include <linux/netlink.h>
#include <netlink/genl/genl.h>
#include <netlink/netlink.h>

#include "lib.h"

#define MODE_MAX	0777u

static int put_tenant_spec(struct nl_msg *msg, const char *pool,
			   const struct kvblk_tenant_spec *spec)
{
	if (!pool || !spec->name || spec->mode > MODE_MAX)
		return -EINVAL;
	if (nla_put_string(msg, KVBLK_A_TENANT_POOL, pool) ||
	    nla_put_string(msg, KVBLK_A_TENANT_NAME, spec->name) ||
	    (spec->mode && nla_put_u32(msg, KVBLK_A_TENANT_MODE, spec->mode)) ||
	    (spec->uid && nla_put_u32(msg, KVBLK_A_TENANT_UID, spec->uid)) ||
	    (spec->gid && nla_put_u32(msg, KVBLK_A_TENANT_GID, spec->gid)))
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

int kvblk_tenant_remove(struct kvblk_admin *admin, const char *pool, const char *name, bool force)
{
	return end_blocks(admin, KVBLK_CMD_TENANT_REMOVE, pool, name, force);
}

int kvblk_tenant_clear(struct kvblk_admin *admin, const char *pool, const char *name, bool force)
{
	return end_blocks(admin, KVBLK_CMD_TENANT_CLEAR, pool, name, force);
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
	tenant->has_use = kvblk_nl_uint(&tenant->openers, tb[KVBLK_A_TENANT_OPENERS]);
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
