// SPDX-License-Identifier: GPL-2.0
/*
 * Generic netlink: administrators' requests and queries. Policies in netlink_gen.c, generated from
 * uapi/netlink/kvblk.yaml, check types and lengths of attributes; this file and pool/ check values.
 * The rule: a rejected request returns a message and has changed nothing.
 *
 * Operations run in parallel. Replies take no lock of a pool, or else a hanging member would hang
 * the command that shows it: pool->users keeps the pool's parts, RCU its members. A dump walks
 * pools by name, so that pools may be added or removed meanwhile.
 */
#include <linux/build_bug.h>
#include <linux/cleanup.h>
#include <linux/log2.h>
#include <linux/module.h>
#include <linux/overflow.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "admin/netlink.h"
#include "admin/netlink_gen.h"
#include "chardev/chardev.h"

static_assert(sizeof_field(struct kvblk_pool, name) == KVBLK_NAME_LEN_MAX + 1);
static_assert(KVBLK_PATH_LEN_MAX < PATH_MAX);
static_assert(sizeof_field(struct kvblk_member, flash.place) == KVBLK_PLACE_LEN_MAX + 1);
static_assert(KVBLK_DEVNODE_LEN_MAX ==
	      sizeof("kvblk//default") - 1 + KVBLK_NAME_LEN_MAX);
static_assert(KVBLK_TENANT_DEVNODE_LEN_MAX ==
	      sizeof("kvblk//") - 1 + 2 * KVBLK_NAME_LEN_MAX);
static_assert((int)KVBLK_POOL_FLAG_STRICT == KVBLK_POOL_STRICT);
static_assert((int)KVBLK_ADD_FLAG_FORMAT == KVBLK_ADD_FORMAT);
static_assert((int)KVBLK_ADD_FLAG_FORCE == KVBLK_ADD_FORCE);
static_assert((int)KVBLK_ADD_FLAG_DEGRADED == KVBLK_ADD_DEGRADED);
static_assert((int)KVBLK_ADD_FLAG_RENAME == KVBLK_ADD_RENAME);
static_assert((int)KVBLK_MEMBER_STATUS_REMOVING == (int)KVBLK_MEMBER_REMOVING);
static_assert(KVBLK_A_POOL_PUT_NOSPACE - KVBLK_A_POOL_CHECKSUM_FAILURES == KVBLK_CLEARABLE - 1);
static_assert((int)KVBLK_ROUTE_STATUS_DIRECT == (int)KVBLK_ROUTE_DIRECT);
static_assert((int)KVBLK_ROUTE_STATUS_BOUNCE == (int)KVBLK_ROUTE_BOUNCE);
static_assert((int)KVBLK_ROUTE_STATUS_TRIAL == (int)KVBLK_ROUTE_TRIAL);

/* ---- requests ---- */

/* kvblk_refuse() with a message about @attr. */
#define nl_refuse(extack, attr, err, fmt, ...)				\
({									\
	NL_SET_ERR_MSG_ATTR_FMT(extack, attr, fmt, ##__VA_ARGS__);	\
	(err);								\
})

static int nl_refuse_unprivileged(struct sk_buff *skb, struct genl_info *info)
{
	if (netlink_capable(skb, CAP_SYS_ADMIN))
		return 0;
	return kvblk_refuse(info->extack, -EPERM, "needs CAP_SYS_ADMIN in the initial user namespace: run as root");
}

int kvblk_nl_refuse_user(const struct sk_buff *request, struct netlink_ext_ack *extack)
{
	if (kvblk_may_monitor(request))
		return 0;
	return kvblk_refuse(extack, -EPERM, "run as root, or as a member of the group kvblk-monitor (see monitor_gid)");
}

int kvblk_nl_name(const struct nlattr *attr, struct netlink_ext_ack *extack)
{
	if (!attr || *(const char *)nla_data(attr))
		return 0;
	return nl_refuse(extack, attr, -EINVAL, "the name is empty: a name has 1 to 31 characters");
}

static int nl_name(struct genl_info *info, int type, const char *what)
{
	if (GENL_REQ_ATTR_CHECK(info, type))
		return kvblk_refuse(info->extack, -EINVAL, "%s name missing", what);
	return kvblk_nl_name(info->attrs[type], info->extack);
}

/* Return the pool named @attr, with a reference, or an ERR_PTR() with a message. */
static struct kvblk_pool *nl_pool_find(const struct nlattr *attr, struct netlink_ext_ack *extack)
{
	return kvblk_pool_find(nla_data(attr)) ?:
	       ERR_PTR(nl_refuse(extack, attr, -ENOENT,
				 "there is no pool of this name: see \"kvblk pool list\""));
}

/* nl_pool_find() of attribute @type, which may be missing or empty. */
static struct kvblk_pool *nl_pool(struct genl_info *info, int type)
{
	int err = nl_name(info, type, "pool");

	return err ? ERR_PTR(err) : nl_pool_find(info->attrs[type], info->extack);
}

int kvblk_nl_tenant(const struct nlattr *attr, struct netlink_ext_ack *extack)
{
	if (!attr || !nla_strcmp(attr, KVBLK_NL_TENANT))
		return 0;
	return nl_refuse(extack, attr, -EOPNOTSUPP,
			 "tenant \"%s\" is not supported, only \"" KVBLK_NL_TENANT "\" is",
			 (const char *)nla_data(attr));
}

static u64 nl_uint(const struct nlattr *attr)
{
	return attr ? nla_get_uint(attr) : 0;
}

static int nl_member_texts(struct nlattr **attrs, struct kvblk_member_spec *spec,
			   struct netlink_ext_ack *extack)
{
	const struct nlattr *name = attrs[KVBLK_A_MEMBER_NAME];
	const struct nlattr *place = attrs[KVBLK_A_MEMBER_PLACE];

	if (name && !kvblk_name_valid(nla_data(name), KVBLK_NAME_MAX))
		return nl_refuse(extack, name, -EINVAL, "invalid member name: 1 to 31 of A-Z a-z 0-9 . _ -, the first a letter or digit");
	if (place && !kvblk_text_printable(nla_data(place)))
		return nl_refuse(extack, place, -EINVAL, "invalid place: only printable ASCII is allowed");
	if (name)
		strscpy(spec->name, nla_data(name));
	if (place)
		strscpy(spec->place, nla_data(place));
	return 0;
}

static int nl_device(const struct nlattr *attr, dev_t *dev, struct netlink_ext_ack *extack)
{
	const char *path = nla_data(attr);
	int err;

	if (!*path)
		return nl_refuse(extack, attr, -EINVAL, "the path is empty: a path has 1 to 4095 characters");
	if (!*kbasename(path))
		return nl_refuse(extack, attr, -EINVAL, "the path ends with a slash: pass the path of a device");
	/* the path is printed in terminals, logs and metrics */
	if (!kvblk_text_printable(path))
		return nl_refuse(extack, attr, -EINVAL, "invalid path: only printable ASCII is allowed; pass another path of the device");
	err = lookup_bdev(path, dev);
	if (err == -ENOENT)
		return nl_refuse(extack, attr, err, "%.54s does not exist", path);
	if (err == -ENOTBLK)
		return nl_refuse(extack, attr, err, "%.54s is not a block device", path);
	if (err)
		return nl_refuse(extack, attr, err, "%.40s cannot be looked up (error %d)",
				 path, err);
	return 0;
}

static int nl_member_spec(struct nlattr **attrs, struct kvblk_member_spec *spec,
			  struct netlink_ext_ack *extack)
{
	const struct nlattr *path = attrs[KVBLK_A_MEMBER_PATH];
	const struct nlattr *size = attrs[KVBLK_A_MEMBER_SEGMENT_SIZE];
	const u64 bytes = nl_uint(size);
	int err;

	if (!path) {
		NL_SET_ERR_ATTR_MISS(extack, NULL, KVBLK_A_MEMBER_PATH);
		return kvblk_refuse(extack, -EINVAL, "member path missing: pass the path of a block device");
	}
	err = nl_device(path, &spec->dev, extack) ?: nl_member_texts(attrs, spec, extack);
	if (err)
		return err;
	spec->path = nla_strdup(path, GFP_KERNEL_ACCOUNT);
	if (!spec->path)
		return -ENOMEM;
	if (bytes && (!is_power_of_2(bytes) || bytes < KVBLK_SEGMENT_MIN ||
		      bytes > KVBLK_SEGMENT_MAX))
		return nl_refuse(extack, size, -EINVAL, "invalid segment size: a power of two from 8 MiB to 1 GiB, or 0 for the default");
	spec->segment_size = bytes;
	return 0;
}

static int nl_member_specs(struct genl_info *info, struct kvblk_member_spec *specs)
{
	struct nlattr *tb[KVBLK_A_MEMBER_PLACE + 1], *attr;
	int err, rem, nr = 0;

	nlmsg_for_each_attr(attr, info->nlhdr, GENL_HDRLEN, rem) {
		if (nla_type(attr) != KVBLK_A_POOL_MEMBER)
			continue;
		if (nr == KVBLK_MEMBERS_MAX)
			return nl_refuse(info->extack, attr, -EINVAL, "too many members: a pool has at most 64");
		err = nla_parse_nested(tb, ARRAY_SIZE(tb) - 1, attr, kvblk_member_spec_nl_policy,
				       info->extack) ?:
		      nl_member_spec(tb, &specs[nr], info->extack);
		if (err)
			return err;
		nr++;
	}
	if (!nr) {
		NL_SET_ERR_ATTR_MISS(info->extack, NULL, KVBLK_A_POOL_MEMBER);
		return kvblk_refuse(info->extack, -EINVAL, "a pool needs at least one member");
	}
	return nr;
}

/* ---- requests with device I/O ---- */

#define JOB_WAIT_MS		5000	/* longest wait before -EINPROGRESS */

enum nl_job_state { NL_JOB_WAITED_FOR, NL_JOB_DONE, NL_JOB_LEFT };

/* A request for a worker: doit() holds a lock of all netlink, and a device may take minutes. */
struct nl_job {
	struct work_struct work;
	struct completion over;
	int (*run)(struct nl_job *job);
	int err;
	atomic_t state;			/* &enum nl_job_state: who ends last frees the job */
	u64 request;			/* number, reported in the event */
	struct netlink_ext_ack extack;
	struct kvblk_pool *pool;	/* with a reference on its device, or NULL */
	char name[KVBLK_NAME_MAX];	/* of the pool */
	char member[KVBLK_NAME_MAX];
	bool force;
	u8 preempt[16];			/* for @spec */
	struct kvblk_pool_spec spec;
	u32 add_flags;
	uuid_t uuid;			/* of the member to remove if @member is "" */
	u8 *ids;			/* @nr_ids packed ids of blocks to delete, or NULL */
	u32 nr_ids;
	s32 *results;			/* of each id */
	struct kvblk_tenant_spec tenant;
	struct kvblk_tenant_set tenant_set;
	u32 max_specs;			/* entries of @specs */
	struct kvblk_member_spec specs[];
};

static struct workqueue_struct *nl_jobs;
static atomic64_t nl_last_request;

static void nl_job_free(struct nl_job *job)
{
	u32 i;

	if (job->pool)
		put_device(&job->pool->dev);
	for (i = 0; i < job->max_specs; i++)
		kfree(job->specs[i].path);
	kvfree(job->ids);
	kvfree(job->results);
	memzero_explicit(job->tenant.key, sizeof(job->tenant.key));
	kvfree(job);
}

static void nl_job_work(struct work_struct *work)
{
	struct nl_job *job = container_of(work, struct nl_job, work);
	int err = job->run(job);

	if (err == -ENOMEM && !job->extack._msg)
		NL_SET_ERR_MSG(&job->extack, "no memory for the request");
	job->err = err;
	if (atomic_cmpxchg(&job->state, NL_JOB_WAITED_FOR, NL_JOB_DONE) == NL_JOB_WAITED_FOR) {
		complete_all(&job->over);
	} else {
		if (err)
			pr_err("kvblk %s: request %llu failed (error %d)%s%s\n", job->name,
			       job->request, err, job->extack._msg ? ": " : "",
			       job->extack._msg ?: "");
		else if (job->extack._msg)
			pr_warn("kvblk %s: %s\n", job->name, job->extack._msg);
		kvblk_event_request(job->name, job->member, job->request, err);
		nl_job_free(job);
	}
	/* safe as the last step, because unloading flushes the workqueue */
	module_put(THIS_MODULE);
}

static struct nl_job *nl_job_alloc(struct genl_info *info, u32 nr_specs, const char *name)
{
	struct nl_job *job = kvzalloc(struct_size(job, specs, nr_specs), GFP_KERNEL);

	if (!job)
		return ERR_PTR(kvblk_refuse(info->extack, -ENOMEM, "no memory for the request"));
	job->max_specs = nr_specs;
	strscpy(job->name, name);
	return job;
}

/* nl_job_alloc() for @pool, or an ERR_PTR(). Takes over the caller's reference on its device. */
static struct nl_job *nl_job_of(struct genl_info *info, u32 nr_specs, struct kvblk_pool *pool)
{
	struct nl_job *job = nl_job_alloc(info, nr_specs, pool->name);

	if (IS_ERR(job))
		put_device(&pool->dev);
	else
		job->pool = pool;
	return job;
}

/* nl_job_alloc() for the pool that a privileged request names, whether it exists or not. */
static struct nl_job *nl_pool_job(struct sk_buff *skb, struct genl_info *info, u32 nr_specs)
{
	int err = nl_refuse_unprivileged(skb, info) ?: nl_name(info, KVBLK_A_POOL_NAME, "pool");

	if (err)
		return ERR_PTR(err);
	return nl_job_alloc(info, nr_specs, nla_data(info->attrs[KVBLK_A_POOL_NAME]));
}

/* Execute the job. Returns its result, or -EINPROGRESS: a worker has it, an event reports it. */
static int nl_job_wait(struct genl_info *info, struct nl_job *job, int (*run)(struct nl_job *job))
{
	const u64 request = atomic64_inc_return(&nl_last_request);

	if (!try_module_get(THIS_MODULE))
		return kvblk_refuse(info->extack, -ENODEV, "the module is being unloaded");
	job->run = run;
	job->request = request;
	init_completion(&job->over);
	INIT_WORK(&job->work, nl_job_work);
	queue_work(nl_jobs, &job->work);
	wait_for_completion_killable_timeout(&job->over, msecs_to_jiffies(JOB_WAIT_MS));
	if (atomic_cmpxchg(&job->state, NL_JOB_WAITED_FOR, NL_JOB_LEFT) == NL_JOB_WAITED_FOR) {
		NL_SET_ERR_MSG(info->extack,
			       "a device is slow: the request goes on, and an event will report its result");
		nl_set_extack_cookie_u64(info->extack, request);
		return -EINPROGRESS;
	}
	/* the worker may be between cmpxchg() and complete_all() */
	wait_for_completion(&job->over);
	/* the message is a constant, or in the job's buffer, which is freed */
	if (job->extack._msg == job->extack._msg_buf)
		NL_SET_ERR_MSG_FMT(info->extack, "%s", job->extack._msg_buf);
	else
		info->extack->_msg = job->extack._msg;
	return job->err;
}

/* Execute the job and free it. Returns as nl_job_wait(). */
static int nl_job_run(struct genl_info *info, struct nl_job *job, int (*run)(struct nl_job *job))
{
	int err = nl_job_wait(info, job, run);

	if (err != -EINPROGRESS)
		nl_job_free(job);
	return err;
}

static int nl_pool_assemble(struct nl_job *job)
{
	return kvblk_pool_assemble(&job->spec, job->add_flags, &job->extack);
}

static int nl_refuse_import_flags(struct genl_info *info, const struct nlattr *flags)
{
	if (!(nl_uint(flags) & (KVBLK_ADD_DEGRADED | KVBLK_ADD_RENAME)))
		return 0;
	return nl_refuse(info->extack, flags, -EINVAL, "\"degraded\" and \"rename\" are valid for import only");
}

static int nl_pod(struct nlattr **attrs, struct kvblk_pool_spec *spec,
		  struct netlink_ext_ack *extack)
{
	const struct nlattr *pod = attrs[KVBLK_A_POOL_POD], *of = attrs[KVBLK_A_POOL_POD_OF];
	int err;

	if (of && !pod)
		return nl_refuse(extack, of, -EINVAL, "pod name missing: pass that of the device's pod, too");
	err = kvblk_nl_name(pod, extack);
	if (!err && of)
		err = nl_device(of, &spec->pod_of, extack);
	if (!err && pod)
		strscpy(spec->pod, nla_data(pod));
	return err;
}

static int nl_assemble(struct sk_buff *skb, struct genl_info *info, bool import)
{
	struct nl_job *job = nl_pool_job(skb, info, KVBLK_MEMBERS_MAX);
	struct nlattr **attrs = info->attrs;
	int nr;

	if (IS_ERR(job))
		return PTR_ERR(job);
	nr = nl_member_specs(info, job->specs);
	if (nr < 0) {
		nl_job_free(job);
		return nr;
	}
	job->add_flags = nl_uint(attrs[KVBLK_A_POOL_ADD_FLAGS]);
	job->spec = (struct kvblk_pool_spec) {
		.import = import,
		.name = job->name,
		.members = job->specs,
		.nr_members = nr,
		/* the policy of import rejects flags */
		.pool_flags = nl_uint(attrs[KVBLK_A_POOL_FLAGS]),
		.index_slots = nl_uint(attrs[KVBLK_A_POOL_INDEX_SLOTS]),
	};
	if (attrs[KVBLK_A_POOL_NODE])
		nla_memcpy(job->spec.node, attrs[KVBLK_A_POOL_NODE], sizeof(job->spec.node));
	if (import && attrs[KVBLK_A_POOL_PREEMPT]) {
		nla_memcpy(job->preempt, attrs[KVBLK_A_POOL_PREEMPT], sizeof(job->preempt));
		job->spec.preempt = job->preempt;
	}
	nr = import ? 0 : nl_pod(attrs, &job->spec, info->extack);
	if (nr) {
		nl_job_free(job);
		return nr;
	}
	return nl_job_run(info, job, nl_pool_assemble);
}

int kvblk_nl_pool_create_doit(struct sk_buff *skb, struct genl_info *info)
{
	return nl_refuse_import_flags(info, info->attrs[KVBLK_A_POOL_ADD_FLAGS]) ?:
	       nl_assemble(skb, info, false);
}

int kvblk_nl_pool_import_doit(struct sk_buff *skb, struct genl_info *info)
{
	const struct nlattr *flags = info->attrs[KVBLK_A_POOL_ADD_FLAGS];

	if (nl_uint(flags) & KVBLK_ADD_FORMAT)
		return nl_refuse(info->extack, flags, -EINVAL, "\"format\" is not valid for import, only for create and member add");
	return nl_assemble(skb, info, true);
}

static int nl_pool_destroy(struct nl_job *job)
{
	return kvblk_pool_destroy(job->name, job->force, &job->extack);
}

int kvblk_nl_pool_destroy_doit(struct sk_buff *skb, struct genl_info *info)
{
	struct nl_job *job = nl_pool_job(skb, info, 0);

	if (IS_ERR(job))
		return PTR_ERR(job);
	job->force = info->attrs[KVBLK_A_POOL_FORCE];
	return nl_job_run(info, job, nl_pool_destroy);
}

int kvblk_nl_pool_clear_doit(struct sk_buff *skb, struct genl_info *info)
{
	int err = nl_refuse_unprivileged(skb, info);
	struct kvblk_pool *pool;

	if (err)
		return err;
	pool = nl_pool(info, KVBLK_A_POOL_NAME);
	if (IS_ERR(pool))
		return PTR_ERR(pool);
	kvblk_stats_clear(pool);
	put_device(&pool->dev);
	return 0;
}

static struct nl_job *nl_member_job(struct genl_info *info, const char *name)
{
	struct kvblk_pool *pool = nl_pool(info, KVBLK_A_MEMBER_POOL);
	struct nl_job *job;

	if (IS_ERR(pool))
		return ERR_CAST(pool);
	job = nl_job_of(info, 1, pool);
	if (!IS_ERR(job))
		strscpy(job->member, name);
	return job;
}

static int nl_member_add(struct nl_job *job)
{
	/* another pool may follow what returns to an adopted one */
	if (!(job->add_flags & KVBLK_ADD_FORMAT))
		kvblk_foreign_share(job->specs->dev);
	return kvblk_member_add(job->pool, job->specs, job->add_flags, &job->extack);
}

/* Run a request about the device that it names. */
static int nl_member_spec_job(struct sk_buff *skb, struct genl_info *info, bool hinted,
			      int (*run)(struct nl_job *job))
{
	struct kvblk_member_spec spec = { .hinted = hinted };
	struct nl_job *job;
	int err;

	err = nl_refuse_unprivileged(skb, info) ?:
	      nl_refuse_import_flags(info, info->attrs[KVBLK_A_MEMBER_ADD_FLAGS]) ?:
	      nl_member_spec(info->attrs, &spec, info->extack);
	if (!err) {
		job = nl_member_job(info, spec.name[0] ? spec.name : kbasename(spec.path));
		err = PTR_ERR_OR_ZERO(job);
	}
	if (err) {
		kfree(spec.path);
		return err;
	}
	job->specs[0] = spec;
	job->add_flags = nl_uint(info->attrs[KVBLK_A_MEMBER_ADD_FLAGS]);
	return nl_job_run(info, job, run);
}

int kvblk_nl_member_add_doit(struct sk_buff *skb, struct genl_info *info)
{
	return nl_member_spec_job(skb, info, false, nl_member_add);
}

static int nl_member_follow(struct nl_job *job)
{
	return kvblk_follow(job->pool, job->specs, &job->extack);
}

int kvblk_nl_member_follow_doit(struct sk_buff *skb, struct genl_info *info)
{
	return nl_member_spec_job(skb, info, info->attrs[KVBLK_A_MEMBER_HINTED],
				  nl_member_follow);
}

static int nl_member_remove(struct nl_job *job)
{
	if (!kvblk_unfollow(job->pool, job->member, job->member[0] ? NULL : &job->uuid))
		return 0;
	return kvblk_member_remove(job->pool, job->member, job->member[0] ? NULL : &job->uuid,
				   &job->extack);
}

int kvblk_nl_member_remove_doit(struct sk_buff *skb, struct genl_info *info)
{
	const struct nlattr *uuid = info->attrs[KVBLK_A_MEMBER_UUID];
	const struct nlattr *name = info->attrs[KVBLK_A_MEMBER_NAME];
	struct nl_job *job;
	int err;

	err = nl_refuse_unprivileged(skb, info);
	if (err)
		return err;
	if (uuid && name)
		return nl_refuse(info->extack, uuid, -EINVAL, "pass the member's name or its uuid, not both");
	err = uuid ? 0 : nl_name(info, KVBLK_A_MEMBER_NAME, "member");
	if (err)
		return err;
	job = nl_member_job(info, uuid ? "" : nla_data(name));
	if (IS_ERR(job))
		return PTR_ERR(job);
	if (uuid)
		import_uuid(&job->uuid, nla_data(uuid));
	return nl_job_run(info, job, nl_member_remove);
}

static int nl_tenant_create(struct nl_job *job)
{
	return kvblk_tenant_create(job->pool, &job->tenant, &job->extack);
}

static int nl_tenant_set(struct nl_job *job)
{
	return kvblk_tenant_set(job->pool, &job->tenant_set, &job->extack);
}

static int nl_tenant_remove(struct nl_job *job)
{
	return kvblk_tenant_remove(job->pool, job->tenant.name, job->force, &job->extack);
}

static int nl_tenant_clear(struct nl_job *job)
{
	return kvblk_tenant_clear(job->pool, job->tenant.name, job->force, &job->extack);
}

static struct nl_job *nl_tenant_job(struct sk_buff *skb, struct genl_info *info)
{
	int err = nl_refuse_unprivileged(skb, info) ?:
		  nl_name(info, KVBLK_A_TENANT_NAME, "tenant");
	struct kvblk_pool *pool;
	struct nl_job *job;

	if (err)
		return ERR_PTR(err);
	pool = nl_pool(info, KVBLK_A_TENANT_POOL);
	if (IS_ERR(pool))
		return ERR_CAST(pool);
	job = nl_job_of(info, 0, pool);
	if (!IS_ERR(job))
		strscpy(job->tenant.name, nla_data(info->attrs[KVBLK_A_TENANT_NAME]));
	return job;
}

static int nl_tenant_key(struct nl_job *job)
{
	return kvblk_tenant_key(job->pool, &job->tenant, &job->extack);
}

/* Returns nl_tenant_job() with the key that the request names, if any. */
static struct nl_job *nl_tenant_job_key(struct sk_buff *skb, struct genl_info *info)
{
	const struct nlattr *key = info->attrs[KVBLK_A_TENANT_KEY];
	struct nl_job *job = nl_tenant_job(skb, info);
	int err;

	if (IS_ERR(job) || !key)
		return job;
	job->tenant.encrypted = true;
	err = kvblk_keyring_read(nla_get_s32(key), job->tenant.key, info->extack);
	if (!err)
		return job;
	nl_job_free(job);
	return ERR_PTR(err);
}

int kvblk_nl_tenant_key_doit(struct sk_buff *skb, struct genl_info *info)
{
	struct nl_job *job = nl_tenant_job_key(skb, info);

	if (IS_ERR(job))
		return PTR_ERR(job);
	if (job->tenant.encrypted)
		return nl_job_run(info, job, nl_tenant_key);
	nl_job_free(job);
	return kvblk_refuse(info->extack, -EINVAL, "key missing: pass the serial number of a kernel key");
}

int kvblk_nl_tenant_create_doit(struct sk_buff *skb, struct genl_info *info)
{
	struct nl_job *job = nl_tenant_job_key(skb, info);

	if (IS_ERR(job))
		return PTR_ERR(job);
	/* the policy rejects a mode of 0 */
	job->tenant.mode = nl_uint(info->attrs[KVBLK_A_TENANT_MODE]) ?: 0660;
	job->tenant.uid = nl_uint(info->attrs[KVBLK_A_TENANT_UID]);
	job->tenant.gid = nl_uint(info->attrs[KVBLK_A_TENANT_GID]);
	return nl_job_run(info, job, nl_tenant_create);
}

/* Take attribute @type, if any, as what bit @given of @set says. Returns its value. */
static u64 nl_tenant_given(struct genl_info *info, int type, struct kvblk_tenant_set *set,
			   u32 given)
{
	const struct nlattr *attr = info->attrs[type];

	if (attr)
		set->given |= given;
	return nl_uint(attr);
}

int kvblk_nl_tenant_set_doit(struct sk_buff *skb, struct genl_info *info)
{
	struct nl_job *job = nl_tenant_job(skb, info);
	struct kvblk_tenant_set *set;

	if (IS_ERR(job))
		return PTR_ERR(job);
	set = &job->tenant_set;
	set->spec = (struct kvblk_tenant_spec) {
		.mode = nl_tenant_given(info, KVBLK_A_TENANT_MODE, set, KVBLK_TENANT_MODE),
		.uid = nl_tenant_given(info, KVBLK_A_TENANT_UID, set, KVBLK_TENANT_UID),
		.gid = nl_tenant_given(info, KVBLK_A_TENANT_GID, set, KVBLK_TENANT_GID),
	};
	strscpy(set->spec.name, job->tenant.name);
	set->limits = (struct kvblk_tenant_limits) {
		.bytes = nl_tenant_given(info, KVBLK_A_TENANT_QUOTA_BYTES, set,
					 KVBLK_TENANT_BYTES),
		.bytes_soft = nl_tenant_given(info, KVBLK_A_TENANT_QUOTA_BYTES_SOFT, set,
					      KVBLK_TENANT_BYTES_SOFT),
		.blocks = nl_tenant_given(info, KVBLK_A_TENANT_QUOTA_BLOCKS, set,
					  KVBLK_TENANT_BLOCKS),
		.blocks_soft = nl_tenant_given(info, KVBLK_A_TENANT_QUOTA_BLOCKS_SOFT, set,
					       KVBLK_TENANT_BLOCKS_SOFT),
		.dram = nl_tenant_given(info, KVBLK_A_TENANT_QUOTA_DRAM, set, KVBLK_TENANT_DRAM),
		.weight = nl_tenant_given(info, KVBLK_A_TENANT_WEIGHT, set, KVBLK_TENANT_SHARE),
	};
	if (info->attrs[KVBLK_A_TENANT_SHARED]) {
		set->given |= KVBLK_TENANT_SHARED;
		strscpy(set->shared, nla_data(info->attrs[KVBLK_A_TENANT_SHARED]));
	}
	return nl_job_run(info, job, nl_tenant_set);
}

static int nl_tenant_end(struct sk_buff *skb, struct genl_info *info,
			 int (*run)(struct nl_job *job))
{
	struct nl_job *job = nl_tenant_job(skb, info);

	if (IS_ERR(job))
		return PTR_ERR(job);
	job->force = info->attrs[KVBLK_A_TENANT_FORCE];
	return nl_job_run(info, job, run);
}

int kvblk_nl_tenant_remove_doit(struct sk_buff *skb, struct genl_info *info)
{
	return nl_tenant_end(skb, info, nl_tenant_remove);
}

int kvblk_nl_tenant_clear_doit(struct sk_buff *skb, struct genl_info *info)
{
	return nl_tenant_end(skb, info, nl_tenant_clear);
}

/* ---- replies ---- */

struct genl_family *kvblk_nl;	/* passed by main.c: netlink_gen.c depends on this file */

void *kvblk_nl_begin(struct sk_buff *skb, const struct genl_info *info)
{
	bool dump = (info->nlhdr->nlmsg_flags & NLM_F_DUMP) == NLM_F_DUMP;

	return genlmsg_put(skb, info->snd_portid, info->snd_seq, kvblk_nl, dump ? NLM_F_MULTI : 0,
			   info->genlhdr->cmd);
}

int kvblk_nl_end(struct sk_buff *skb, void *hdr, bool full)
{
	if (full) {
		genlmsg_cancel(skb, hdr);
		return -EMSGSIZE;
	}
	genlmsg_end(skb, hdr);
	return 0;
}

bool kvblk_nl_put_uints(struct sk_buff *skb, int type, int first, const u64 *values, int nr,
			const bool *wanted)
{
	struct nlattr *nest = nla_nest_start(skb, type);
	bool full = !nest;
	int i;

	for (i = 0; i < nr && !full; i++)
		if (!wanted || wanted[i])
			full = nla_put_uint(skb, first + i, values[i]);
	if (!full)
		nla_nest_end(skb, nest);
	return full;
}

static int nl_fill_pool(struct sk_buff *skb, const struct genl_info *info,
			struct kvblk_pool *pool, int *part, bool monitor)
{
	void *hdr = kvblk_nl_begin(skb, info);
	struct kvblk_space space = kvblk_pool_space(pool);
	char node[KVBLK_NAME_MAX + sizeof("kvblk//default")];
	bool full;
	u32 i;

	snprintf(node, sizeof(node), "kvblk/%s/default", pool->name);
	full = !hdr ||
	       nla_put_string(skb, KVBLK_A_POOL_NAME, pool->name) ||
	       nla_put(skb, KVBLK_A_POOL_UUID, UUID_SIZE, &pool->uuid) ||
	       nla_put_u32(skb, KVBLK_A_POOL_FLAGS, pool->flags) ||
	       nla_put_uint(skb, KVBLK_A_POOL_BIRTH, pool->birth) ||
	       nla_put_uint(skb, KVBLK_A_POOL_EPOCH, READ_ONCE(pool->epoch)) ||
	       nla_put_uint(skb, KVBLK_A_POOL_NR_MEMBERS, READ_ONCE(pool->nr_members)) ||
	       nla_put_uint(skb, KVBLK_A_POOL_CAPACITY, space.bytes) ||
	       nla_put_uint(skb, KVBLK_A_POOL_NR_SEGMENTS, space.segs) ||
	       nla_put_uint(skb, KVBLK_A_POOL_INDEX_SLOTS, kvblk_index_slots(&pool->index)) ||
	       nla_put_uint(skb, KVBLK_A_POOL_INDEX_BYTES, kvblk_index_bytes(&pool->index)) ||
	       nla_put_uint(skb, KVBLK_A_POOL_VALUE_MAX, kvblk_pool_value_max(pool, false)) ||
	       nla_put_string(skb, KVBLK_A_POOL_DEVNODE, node) ||
	       nla_put_string(skb, KVBLK_A_POOL_TENANT, KVBLK_NL_TENANT) ||
	       nla_put_uint(skb, KVBLK_A_POOL_UNSURE, atomic_read(&pool->unsure)) ||
	       (kvblk_pool_in_pod(pool) &&
		(nla_put_string(skb, KVBLK_A_POOL_POD, pool->pod_name) ||
		 nla_put(skb, KVBLK_A_POOL_POD_UUID, UUID_SIZE, pool->pod)));
	if (full || !monitor)
		return kvblk_nl_end(skb, hdr, full);
	full = nla_put_uint(skb, KVBLK_A_POOL_FREE, space.free_bytes) ||
	       nla_put_uint(skb, KVBLK_A_POOL_FREE_SEGMENTS, space.free_segs) ||
	       nla_put_uint(skb, KVBLK_A_POOL_INDEX_USED, kvblk_index_used(&pool->index)) ||
	       nla_put_uint(skb, KVBLK_A_POOL_INDEX_EVICTED,
			    atomic64_read(&pool->index.nr_evicted)) ||
	       nla_put_uint(skb, KVBLK_A_POOL_LEASED_BYTES, atomic64_read(&pool->lease.total)) ||
	       nla_put_uint(skb, KVBLK_A_POOL_INDEX_LACKS, atomic64_read(&pool->index_lacks)) ||
	       nla_put_uint(skb, KVBLK_A_POOL_CLEARED, READ_ONCE(pool->cleared_at));
	for (i = 0; i < KVBLK_CLEARABLE && !full; i++)
		full = nla_put_uint(skb, KVBLK_A_POOL_CHECKSUM_FAILURES + i,
				    kvblk_stats_errors(pool, i));
	return kvblk_nl_end(skb, hdr, full);
}

#define PATH_TOLD_MAX	1023		/* longest path that always fits into a member's message */

static bool nl_put_flash(struct sk_buff *skb, const struct kvblk_flash *flash)
{
	return nla_put_string(skb, KVBLK_A_MEMBER_POOL, flash->pool->name) ||
	       nla_put_string(skb, KVBLK_A_MEMBER_NAME, flash->name) ||
	       (strlen(flash->path) <= PATH_TOLD_MAX &&
		nla_put_string(skb, KVBLK_A_MEMBER_PATH, flash->path)) ||
	       nla_put(skb, KVBLK_A_MEMBER_UUID, UUID_SIZE, &flash->uuid) ||
	       nla_put_uint(skb, KVBLK_A_MEMBER_SLOT, flash->slot) ||
	       nla_put_u32(skb, KVBLK_A_MEMBER_STATE, READ_ONCE(flash->state)) ||
	       nla_put_uint(skb, KVBLK_A_MEMBER_SUSPECT, READ_ONCE(flash->suspect)) ||
	       nla_put_uint(skb, KVBLK_A_MEMBER_FAILING, kvblk_flash_fails(flash)) ||
	       nla_put_uint(skb, KVBLK_A_MEMBER_SIZE, flash->size) ||
	       nla_put_uint(skb, KVBLK_A_MEMBER_SEGMENT_SIZE, kvblk_flash_segment_bytes(flash)) ||
	       nla_put_uint(skb, KVBLK_A_MEMBER_NR_SEGMENTS, flash->nr_segs) ||
	       nla_put_uint(skb, KVBLK_A_MEMBER_RECORD_ALIGN, flash->record_align) ||
	       nla_put_uint(skb, KVBLK_A_MEMBER_INCARNATION, flash->incarnation) ||
	       (flash->place[0] && nla_put_string(skb, KVBLK_A_MEMBER_PLACE, flash->place)) ||
	       /* a dead member's device name may belong to another device by now */
	       (READ_ONCE(flash->state) != KVBLK_MEMBER_DEAD &&
		nla_put_string(skb, KVBLK_A_MEMBER_DEVICE, flash->device));
}

static int nl_fill_foreign(struct sk_buff *skb, const struct genl_info *info,
			   const struct kvblk_foreign *foreign, bool monitor)
{
	void *hdr = kvblk_nl_begin(skb, info);
	struct kvblk_foreign_stats stats;
	char conflict[KVBLK_NAME_MAX];
	bool full = !hdr || nl_put_flash(skb, &foreign->flash) ||
		    nla_put_string(skb, KVBLK_A_MEMBER_OWNER, foreign->owner) ||
		    nla_put(skb, KVBLK_A_MEMBER_OWNER_NODE, sizeof(foreign->node), foreign->node) ||
		    (foreign->hinted && nla_put_flag(skb, KVBLK_A_MEMBER_HINTED)) ||
		    (kvblk_agree_conflict(foreign, conflict) &&
		     nla_put_string(skb, KVBLK_A_MEMBER_CONFLICT, conflict));

	if (full || !monitor)
		return kvblk_nl_end(skb, hdr, full);
	kvblk_foreign_stats(foreign, &stats);
	full = nla_put_uint(skb, KVBLK_A_MEMBER_BLOCKS, READ_ONCE(foreign->blocks)) ||
	       nla_put_uint(skb, KVBLK_A_MEMBER_LACKS, READ_ONCE(foreign->lacks)) ||
	       nla_put_uint(skb, KVBLK_A_MEMBER_GETS, stats.gets) ||
	       nla_put_uint(skb, KVBLK_A_MEMBER_GET_BYTES, stats.get_bytes) ||
	       nla_put_uint(skb, KVBLK_A_MEMBER_GET_MISSES, stats.misses) ||
	       nla_put_uint(skb, KVBLK_A_MEMBER_INFLIGHT,
			    kvblk_flash_inflight(&foreign->flash, NULL));
	return kvblk_nl_end(skb, hdr, full);
}

static int nl_fill_member(struct sk_buff *skb, const struct genl_info *info,
			  const struct kvblk_member *member, bool monitor)
{
	const struct kvblk_flash *flash = &member->flash;
	const struct kvblk_log *log = &member->log;
	void *hdr = kvblk_nl_begin(skb, info);
	bool full = !hdr || nl_put_flash(skb, flash) ||
		    nla_put_uint(skb, KVBLK_A_MEMBER_FORMATTED, log->formatted);

	if (!full && monitor)
		full = nla_put_uint(skb, KVBLK_A_MEMBER_FREE_SEGMENTS,
				    kvblk_member_avail(member)) ||
		       nla_put_uint(skb, KVBLK_A_MEMBER_READY_SEGMENTS, READ_ONCE(log->nr_ready)) ||
		       nla_put_uint(skb, KVBLK_A_MEMBER_OPEN_SEGMENTS, READ_ONCE(log->nr_open)) ||
		       nla_put_uint(skb, KVBLK_A_MEMBER_SEALED_SEGMENTS,
				    READ_ONCE(log->nr_sealed)) ||
		       nla_put_uint(skb, KVBLK_A_MEMBER_INFLIGHT,
				    kvblk_flash_inflight(flash, NULL)) ||
		       nla_put_uint(skb, KVBLK_A_MEMBER_RESTORED, READ_ONCE(log->restored)) ||
		       nla_put_uint(skb, KVBLK_A_MEMBER_UNREAD_SEGMENTS,
				    READ_ONCE(log->nr_unread));
	return kvblk_nl_end(skb, hdr, full);
}

static int nl_fill_missing(struct sk_buff *skb, const struct genl_info *info,
			   const struct kvblk_pool *pool,
			   const struct kvblk_d_member *entry, const char *place)
{
	void *hdr = kvblk_nl_begin(skb, info);

	return kvblk_nl_end(skb, hdr, !hdr ||
		      nla_put_string(skb, KVBLK_A_MEMBER_POOL, pool->name) ||
		      nla_put_string(skb, KVBLK_A_MEMBER_NAME, entry->name) ||
		      nla_put(skb, KVBLK_A_MEMBER_UUID, UUID_SIZE, entry->uuid) ||
		      nla_put_u32(skb, KVBLK_A_MEMBER_STATE, KVBLK_MEMBER_STATUS_MISSING) ||
		      (place[0] && nla_put_string(skb, KVBLK_A_MEMBER_PLACE, place)));
}

static void nl_put_pool(struct kvblk_pool *pool)
{
	kvblk_pool_leave(pool);
	put_device(&pool->dev);
}

int kvblk_nl_reply(const struct sk_buff *request, struct genl_info *info, int type,
		   kvblk_nl_fill_fn *fill)
{
	struct kvblk_pool *pool = nl_pool(info, type);
	struct sk_buff *reply;
	int err;

	if (IS_ERR(pool))
		return PTR_ERR(pool);
	if (!kvblk_pool_enter(pool)) {
		put_device(&pool->dev);
		return nl_refuse(info->extack, info->attrs[type], -ENOENT,
				 "the pool is being destroyed");
	}
	reply = genlmsg_new(GENLMSG_DEFAULT_SIZE, GFP_KERNEL);
	err = reply ? fill(reply, info, pool, NULL, kvblk_may_monitor(request)) : -ENOMEM;
	nl_put_pool(pool);
	if (err)
		nlmsg_free(reply);
	else
		err = genlmsg_reply(reply, info);
	if (err == -ENOMEM)
		NL_SET_ERR_MSG(info->extack, "no memory for the reply");
	return err;
}

int kvblk_nl_pool_get_doit(struct sk_buff *skb, struct genl_info *info)
{
	return kvblk_nl_tenant(info->attrs[KVBLK_A_POOL_TENANT], info->extack) ?:
	       kvblk_nl_reply(skb, info, KVBLK_A_POOL_NAME, nl_fill_pool);
}

struct kvblk_member *kvblk_nl_member(struct kvblk_pool *pool, const struct nlattr *name,
				     struct netlink_ext_ack *extack)
{
	struct kvblk_member *member = kvblk_member_named(pool, nla_data(name), NULL);

	if (!member)
		NL_SET_ERR_MSG_ATTR(extack, name, "the pool has no member of this name: see \"kvblk member list\"");
	return member;
}

static int nl_fill_named_member(struct sk_buff *skb, const struct genl_info *info,
				struct kvblk_pool *pool, int *part, bool monitor)
{
	struct kvblk_member *member;

	guard(rcu)();
	member = kvblk_nl_member(pool, info->attrs[KVBLK_A_MEMBER_NAME], info->extack);
	return member ? nl_fill_member(skb, info, member, monitor) : -ENOENT;
}

int kvblk_nl_member_get_doit(struct sk_buff *skb, struct genl_info *info)
{
	return nl_name(info, KVBLK_A_MEMBER_NAME, "member") ?:
	       kvblk_nl_reply(skb, info, KVBLK_A_MEMBER_POOL, nl_fill_named_member);
}

/* ---- dumps ---- */

/* Position of a dump: pools before @pool, and parts of @pool below @part, are done. */
struct nl_cursor {
	char pool[KVBLK_NAME_MAX];	/* "" at first */
	int part;			/* -1: all are done */
};

static struct nl_cursor *nl_cursor(struct netlink_callback *cb)
{
	static_assert(sizeof(struct nl_cursor) <= sizeof_field(struct netlink_callback, ctx));
	return (struct nl_cursor *)cb->ctx;
}

/* Return the first pool by name after @name (@from: or of it), for nl_put_pool(), or NULL. */
static struct kvblk_pool *nl_next_pool(const char *name, bool from)
{
	struct kvblk_pool *pool, *next = NULL;

	guard(mutex)(&kvblk_pools_lock);
	list_for_each_entry(pool, &kvblk_pools, link) {
		int order = strcmp(pool->name, name);

		if (order < 0 || (order == 0 && !from) ||
		    (next && strcmp(pool->name, next->name) > 0) || !kvblk_pool_enter(pool))
			continue;
		if (next)
			kvblk_pool_leave(next);
		next = pool;
	}
	if (next)
		get_device(&next->dev);
	return next;
}

/* kvblk_nl_fill_fn for members by slot, then missing ones. */
static int nl_dump_members(struct sk_buff *skb, const struct genl_info *info,
			   struct kvblk_pool *pool, int *part, bool monitor)
{
	char place[KVBLK_PLACE_MAX];
	struct kvblk_d_member entry;
	struct kvblk_member *member;
	int err;

	scoped_guard(rcu) {
		for (; (member = kvblk_member_from(pool, *part)); *part = member->flash.slot) {
			err = nl_fill_member(skb, info, member, monitor);
			if (err)
				return err;
		}
	}
	*part = max(*part, KVBLK_MEMBERS_MAX);
	for (; *part < KVBLK_MEMBERS_MAX + KVBLK_SB_MEMBERS; (*part)++) {
		if (!kvblk_member_list_missing(pool, *part - KVBLK_MEMBERS_MAX, &entry, place))
			continue;
		err = nl_fill_missing(skb, info, pool, &entry, place);
		if (err)
			return err;
	}
	return 0;
}

/* Start a dump at the pool that @attr (may be NULL) names. */
static int nl_begin_dump(struct netlink_callback *cb, const struct nlattr *attr)
{
	struct nl_cursor *cursor = nl_cursor(cb);
	int err = kvblk_nl_name(attr, cb->extack);
	struct kvblk_pool *pool;

	if (err || !attr || cursor->pool[0])
		return err;
	pool = nl_pool_find(attr, cb->extack);
	if (IS_ERR(pool))
		return PTR_ERR(pool);
	strscpy(cursor->pool, pool->name);
	put_device(&pool->dev);
	return 0;
}

int kvblk_nl_dump(struct sk_buff *skb, struct netlink_callback *cb,
		  const struct nlattr *only, kvblk_nl_fill_fn *fill)
{
	const bool monitor = kvblk_may_monitor(cb->skb);
	struct nl_cursor *cursor = nl_cursor(cb);
	struct kvblk_pool *pool;
	int err = nl_begin_dump(cb, only);

	while (!err && (pool = nl_next_pool(cursor->pool, cursor->part >= 0))) {
		if (only && nla_strcmp(only, pool->name)) {
			nl_put_pool(pool);
			break;
		}
		if (strcmp(pool->name, cursor->pool)) {
			strscpy(cursor->pool, pool->name);
			cursor->part = 0;
		}
		err = fill(skb, genl_info_dump(cb), pool, &cursor->part, monitor);
		nl_put_pool(pool);
		if (!err)
			cursor->part = -1;
	}
	return skb->len ?: err;
}

int kvblk_nl_pool_get_dumpit(struct sk_buff *skb, struct netlink_callback *cb)
{
	return kvblk_nl_tenant(genl_info_dump(cb)->attrs[KVBLK_A_POOL_TENANT], cb->extack) ?:
	       kvblk_nl_dump(skb, cb, NULL, nl_fill_pool);
}

int kvblk_nl_member_get_dumpit(struct sk_buff *skb, struct netlink_callback *cb)
{
	return kvblk_nl_dump(skb, cb, genl_info_dump(cb)->attrs[KVBLK_A_MEMBER_POOL],
			     nl_dump_members);
}

/* Put limits and, for a @monitor, usage of tenant @id. Returns whether the message is full. */
static bool nl_put_account(struct sk_buff *skb, struct kvblk_pool *pool, u16 id, bool monitor)
{
	const struct kvblk_tenant_limits *limits;
	struct kvblk_tenant_counters counters;
	struct kvblk_account *account;

	static_assert(sizeof(counters) == KVBLK_A_TENANT_COUNTER_MAX * sizeof(u64));
	guard(rcu)();
	account = rcu_dereference(pool->tenants.account[id]);
	/* the tenant is being removed */
	if (!account)
		return false;
	kvblk_stats_tenant(account, &counters);
	limits = &account->limits;
	if (nla_put_uint(skb, KVBLK_A_TENANT_QUOTA_BYTES, READ_ONCE(limits->bytes)) ||
	    nla_put_uint(skb, KVBLK_A_TENANT_QUOTA_BYTES_SOFT, READ_ONCE(limits->bytes_soft)) ||
	    nla_put_uint(skb, KVBLK_A_TENANT_QUOTA_BLOCKS, READ_ONCE(limits->blocks)) ||
	    nla_put_uint(skb, KVBLK_A_TENANT_QUOTA_BLOCKS_SOFT, READ_ONCE(limits->blocks_soft)) ||
	    nla_put_uint(skb, KVBLK_A_TENANT_QUOTA_DRAM, READ_ONCE(limits->dram)) ||
	    nla_put_u32(skb, KVBLK_A_TENANT_WEIGHT, READ_ONCE(limits->weight)))
		return true;
	return monitor &&
	       (nla_put_uint(skb, KVBLK_A_TENANT_USED_BYTES,
			     kvblk_account_used(account, KVBLK_ACCOUNT_UNITS) <<
			     KVBLK_UNIT_SHIFT) ||
		nla_put_uint(skb, KVBLK_A_TENANT_USED_BLOCKS,
			     kvblk_account_used(account, KVBLK_ACCOUNT_BLOCKS)) ||
		nla_put_uint(skb, KVBLK_A_TENANT_USED_DRAM,
			     percpu_counter_sum_positive(&account->dram)) ||
		kvblk_nl_put_uints(skb, KVBLK_A_TENANT_COUNTERS, KVBLK_A_TENANT_COUNTER_PUTS,
				   (const u64 *)&counters, KVBLK_A_TENANT_COUNTER_MAX, NULL));
}

static int nl_fill_tenant(struct sk_buff *skb, const struct genl_info *info,
			  struct kvblk_pool *pool, const struct kvblk_d_tenant *entry, bool monitor)
{
	char node[KVBLK_TENANT_DEVNODE_LEN_MAX + 1], shared[KVBLK_NAME_MAX];
	void *hdr = kvblk_nl_begin(skb, info);
	u16 id = le16_to_cpu(entry->id);
	bool encrypted = le16_to_cpu(entry->flags) & KVBLK_TENANTF_ENCRYPTED;

	snprintf(node, sizeof(node), "kvblk/%s/%s", pool->name, entry->name);
	return kvblk_nl_end(skb, hdr, !hdr || nl_put_account(skb, pool, id, monitor) ||
		nla_put_string(skb, KVBLK_A_TENANT_POOL, pool->name) ||
		nla_put_string(skb, KVBLK_A_TENANT_NAME, (const char *)entry->name) ||
		nla_put_uint(skb, KVBLK_A_TENANT_ID, id) ||
		nla_put_string(skb, KVBLK_A_TENANT_DEVNODE, node) ||
		(kvblk_tenant_shared_name(pool, id, shared) &&
		 nla_put_string(skb, KVBLK_A_TENANT_SHARED, shared)) ||
		/* udev decides on the nodes of "default" and "nvme-kv" */
		(!kvblk_tenant_common(id) &&
		 (nla_put_u32(skb, KVBLK_A_TENANT_MODE, le16_to_cpu(entry->mode)) ||
		  nla_put_u32(skb, KVBLK_A_TENANT_UID, le32_to_cpu(entry->uid)) ||
		  nla_put_u32(skb, KVBLK_A_TENANT_GID, le32_to_cpu(entry->gid)))) ||
		(encrypted && nla_put_flag(skb, KVBLK_A_TENANT_ENCRYPTED)) ||
		(encrypted && kvblk_tenant_locked(pool, id) &&
		 nla_put_flag(skb, KVBLK_A_TENANT_LOCKED)) ||
		(monitor && nla_put_uint(skb, KVBLK_A_TENANT_OPENERS,
					 READ_ONCE(pool->tenants.openers[id]))));
}

/* kvblk_nl_fill_fn for tenants by slot. */
static int nl_dump_tenants(struct sk_buff *skb, const struct genl_info *info,
			   struct kvblk_pool *pool, int *part, bool monitor)
{
	struct kvblk_d_tenant entry;
	int err;

	for (; *part < KVBLK_POOL_TENANTS; (*part)++) {
		err = kvblk_tenant_entry(pool, *part, &entry) ?
		      nl_fill_tenant(skb, info, pool, &entry, monitor) : 0;
		if (err)
			return err;
	}
	return 0;
}

int kvblk_nl_tenant_get_dumpit(struct sk_buff *skb, struct netlink_callback *cb)
{
	return kvblk_nl_dump(skb, cb, genl_info_dump(cb)->attrs[KVBLK_A_TENANT_POOL],
			     nl_dump_tenants);
}

/* kvblk_nl_fill_fn for foreign members by granule. */
static int nl_dump_foreign(struct sk_buff *skb, const struct genl_info *info,
			   struct kvblk_pool *pool, int *part, bool monitor)
{
	const struct kvblk_foreign *foreign, *last = NULL;
	unsigned long i;
	int err;

	guard(rcu)();
	xa_for_each_start(&pool->foreign.granules, i, foreign, *part) {
		err = foreign == last ? 0 : nl_fill_foreign(skb, info, foreign, monitor);
		if (err)
			return err;
		last = foreign;
		*part = i + 1;
	}
	return 0;
}

int kvblk_nl_foreign_get_dumpit(struct sk_buff *skb, struct netlink_callback *cb)
{
	return kvblk_nl_dump(skb, cb, genl_info_dump(cb)->attrs[KVBLK_A_MEMBER_POOL],
			     nl_dump_foreign);
}

#define TOUCHED_MESSAGES	256	/* most in a dump of a pool: gets go on meanwhile */
#define TOUCHED_ROOM		1024	/* bytes left that are worth a message */

/* kvblk_nl_fill_fn for the blocks of an owner. Takes only what fits, because it is forgotten. */
static int nl_fill_touched(struct sk_buff *skb, const struct genl_info *info,
			   struct kvblk_pool *pool, int *part, struct kvblk_touches_taken *take)
{
	void *hdr = kvblk_nl_begin(skb, info);
	struct nlattr *ids;
	int room;

	if (!hdr || nla_put_string(skb, KVBLK_A_TOUCH_POOL, pool->name))
		return kvblk_nl_end(skb, hdr, true);
	room = skb_tailroom(skb) - 2 * nla_total_size(UUID_SIZE) - NLA_HDRLEN;
	if (room < TOUCHED_ROOM)
		return kvblk_nl_end(skb, hdr, true);
	take->room = min(room, KVBLK_TOUCH_LEN_MAX) / KVBLK_ID_BYTES;
	ids = nla_reserve(skb, KVBLK_A_TOUCH_IDS, take->room * KVBLK_ID_BYTES);
	take->ids = nla_data(ids);
	kvblk_touches_take(pool, take);
	if (!take->nr) {
		genlmsg_cancel(skb, hdr);
		return 0;
	}
	ids->nla_len = nla_attr_size(take->nr * KVBLK_ID_BYTES);
	nlmsg_trim(skb, take->ids + take->nr * KVBLK_ID_BYTES);
	(*part)++;
	return kvblk_nl_end(skb, hdr,
			    nla_put(skb, KVBLK_A_TOUCH_OWNER_POOL, UUID_SIZE, &take->pool) ||
			    nla_put(skb, KVBLK_A_TOUCH_OWNER_NODE, UUID_SIZE, take->node));
}

/* kvblk_nl_fill_fn for foreign blocks that were got, by owner. */
static int nl_dump_touched(struct sk_buff *skb, const struct genl_info *info,
			   struct kvblk_pool *pool, int *part, bool monitor)
{
	struct kvblk_touches_taken take = {};
	int err = 0;

	do {
		take.nr = 0;
		err = nl_fill_touched(skb, info, pool, part, &take);
	} while (!err && take.nr && *part < TOUCHED_MESSAGES);
	return err;
}

int kvblk_nl_touched_get_dumpit(struct sk_buff *skb, struct netlink_callback *cb)
{
	if (!netlink_capable(cb->skb, CAP_SYS_ADMIN))
		return kvblk_refuse(cb->extack, -EPERM, "needs CAP_SYS_ADMIN in the initial user namespace: run as root");
	return kvblk_nl_dump(skb, cb, genl_info_dump(cb)->attrs[KVBLK_A_TOUCH_POOL],
			     nl_dump_touched);
}

static int nl_refuse_ids(struct sk_buff *skb, struct genl_info *info)
{
	const struct nlattr *ids = info->attrs[KVBLK_A_TOUCH_IDS];
	int err = nl_refuse_unprivileged(skb, info);

	if (err)
		return err;
	if (GENL_REQ_ATTR_CHECK(info, KVBLK_A_TOUCH_IDS))
		return kvblk_refuse(info->extack, -EINVAL, "ids missing: pass 16 bytes for each block");
	if (!nla_len(ids) || nla_len(ids) % KVBLK_ID_BYTES || nla_len(ids) > KVBLK_TOUCH_LEN_MAX)
		return nl_refuse(info->extack, ids, -EINVAL, "invalid ids: 16 bytes for each of 1 to 1024 blocks");
	return 0;
}

/* Find the pool, in a pod, of a privileged request about ids. Returns as nl_pool(). */
static struct kvblk_pool *nl_pool_of_ids(struct sk_buff *skb, struct genl_info *info)
{
	int err = nl_refuse_ids(skb, info);
	struct kvblk_pool *pool = err ? ERR_PTR(err) : nl_pool(info, KVBLK_A_TOUCH_POOL);

	if (IS_ERR(pool) || kvblk_pool_in_pod(pool))
		return pool;
	put_device(&pool->dev);
	err = kvblk_refuse(info->extack, -EINVAL, "the pool is in no pod: nobody else gets its blocks");
	return ERR_PTR(err);
}

int kvblk_nl_touch_doit(struct sk_buff *skb, struct genl_info *info)
{
	const struct nlattr *ids = info->attrs[KVBLK_A_TOUCH_IDS];
	struct kvblk_pool *pool = nl_pool_of_ids(skb, info);
	int err = 0;

	if (IS_ERR(pool))
		return PTR_ERR(pool);
	if (!kvblk_pool_enter(pool)) {
		err = kvblk_refuse(info->extack, -ENODEV, "the pool is being destroyed");
	} else {
		kvblk_touch(pool, nla_data(ids), nla_len(ids) / KVBLK_ID_BYTES);
		kvblk_pool_leave(pool);
	}
	put_device(&pool->dev);
	return err;
}

static int nl_delete(struct nl_job *job)
{
	int err = kvblk_delete_ids(job->pool, job->ids, job->nr_ids, job->results);

	return err == -ENODEV ? kvblk_refuse(&job->extack, err, "the pool is being destroyed") :
				err;
}

static int nl_reply_results(struct genl_info *info, const s32 *results, u32 nr)
{
	const size_t bytes = nr * sizeof(*results);
	struct sk_buff *reply = genlmsg_new(nla_total_size(bytes), GFP_KERNEL);
	void *hdr = reply ? kvblk_nl_begin(reply, info) : NULL;

	if (!hdr || kvblk_nl_end(reply, hdr, nla_put(reply, KVBLK_A_TOUCH_RESULTS, bytes,
						     results))) {
		nlmsg_free(reply);
		return kvblk_refuse(info->extack, -ENOMEM, "no memory for the reply");
	}
	return genlmsg_reply(reply, info);
}

int kvblk_nl_delete_doit(struct sk_buff *skb, struct genl_info *info)
{
	const struct nlattr *ids = info->attrs[KVBLK_A_TOUCH_IDS];
	struct kvblk_pool *pool = nl_pool_of_ids(skb, info);
	struct nl_job *job;
	int err;

	if (IS_ERR(pool))
		return PTR_ERR(pool);
	job = nl_job_of(info, 0, pool);
	if (IS_ERR(job))
		return PTR_ERR(job);
	job->nr_ids = nla_len(ids) / KVBLK_ID_BYTES;
	job->ids = kvmemdup(nla_data(ids), nla_len(ids), GFP_KERNEL);
	job->results = kvcalloc(job->nr_ids, sizeof(*job->results), GFP_KERNEL);
	err = job->ids && job->results ? nl_job_wait(info, job, nl_delete) :
	      kvblk_refuse(info->extack, -ENOMEM, "no memory for the request");
	if (err == -EINPROGRESS)
		return err;
	if (!err)
		err = nl_reply_results(info, job->results, job->nr_ids);
	nl_job_free(job);
	return err;
}

struct nl_routes {
	struct sk_buff *skb;
	const struct genl_info *info;
	const struct kvblk_member *member;
};

static int nl_fill_route(const struct kvblk_way *way, void *arg)
{
	struct nl_routes *routes = arg;
	struct sk_buff *skb = routes->skb;
	void *hdr = kvblk_nl_begin(skb, routes->info);

	return kvblk_nl_end(skb, hdr, !hdr ||
		      nla_put_string(skb, KVBLK_A_ROUTE_POOL, routes->member->flash.pool->name) ||
		      nla_put_string(skb, KVBLK_A_ROUTE_MEMBER, routes->member->flash.name) ||
		      nla_put_string(skb, KVBLK_A_ROUTE_DEVICE, way->device) ||
		      (way->distance >= 0 &&
		       nla_put_uint(skb, KVBLK_A_ROUTE_DISTANCE, way->distance)) ||
		      nla_put_u32(skb, KVBLK_A_ROUTE_STATE, way->state) ||
		      (way->why && nla_put_string(skb, KVBLK_A_ROUTE_WHY, way->why)));
}

/* Return the live member named @name with its flash.ref, or NULL. */
static struct kvblk_member *nl_member_get(struct kvblk_pool *pool, const struct nlattr *name)
{
	struct kvblk_member *member;

	guard(rcu)();
	member = kvblk_nl_member(pool, name, NULL);
	return member && READ_ONCE(member->flash.state) != KVBLK_MEMBER_DEAD &&
	       percpu_ref_tryget_live_rcu(&member->flash.ref) ? member : NULL;
}

int kvblk_nl_route_get_dumpit(struct sk_buff *skb, struct netlink_callback *cb)
{
	struct nl_routes routes = { .skb = skb, .info = genl_info_dump(cb) };
	const struct nlattr *name = routes.info->attrs[KVBLK_A_ROUTE_MEMBER];
	const struct nlattr *of = routes.info->attrs[KVBLK_A_ROUTE_POOL];
	struct nl_cursor *cursor = nl_cursor(cb);
	struct kvblk_member *member = NULL;
	struct kvblk_pool *pool;
	int err;

	err = kvblk_nl_refuse_user(cb->skb, cb->extack);
	if (err)
		return err;
	if (!of || !name)
		return kvblk_refuse(cb->extack, -EINVAL, "pool name or member name missing");
	err = nl_begin_dump(cb, of) ?: kvblk_nl_name(name, cb->extack);
	if (err)
		return err;
	pool = nl_next_pool(cursor->pool, true);
	if (pool && !strcmp(pool->name, cursor->pool))
		member = nl_member_get(pool, name);
	if (member) {
		routes.member = member;
		err = kvblk_p2p_ways(&member->flash, &cursor->part, nl_fill_route, &routes);
		kvblk_member_put(member);
	} else {
		err = nl_refuse(cb->extack, name, -ENOENT,
				"no such member, or it is dead or being removed: see \"kvblk member list\"");
	}
	if (pool)
		nl_put_pool(pool);
	return skb->len ?: err;
}

int kvblk_netlink_init(struct genl_family *family)
{
	int err;

	/* freezable like pool->wq, because jobs write superblocks and tables */
	nl_jobs = alloc_workqueue("kvblk-admin", WQ_UNBOUND | WQ_FREEZABLE, 0);
	if (!nl_jobs)
		return -ENOMEM;
	/* block devices have no network namespace: administer from the initial namespace */
	family->netnsok = false;
	kvblk_nl = family;
	kvblk_events_begin(family, KVBLK_NLGRP_EVENTS, kvblk_monitor_filter);
	err = genl_register_family(family);
	if (err)
		destroy_workqueue(nl_jobs);
	return err;
}

/* All pools are destroyed and no request runs, so no event follows. */
void kvblk_netlink_exit(void)
{
	destroy_workqueue(nl_jobs);
	kvblk_events_end();
	genl_unregister_family(kvblk_nl);
}
