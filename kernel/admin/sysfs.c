// SPDX-License-Identifier: GPL-2.0
/*
 * /sys/class/kvblk/<pool>/, see Documentation/ABI/testing/sysfs-class-kvblk. The rules: one value a
 * file. A rejected write changes nothing. No file takes pool->admin, so readers never wait for a
 * change of members. Values that move with the pool's use are for monitors: 0440, of monitor_gid.
 */
#include <linux/build_bug.h>
#include <linux/cleanup.h>
#include <linux/kobject.h>
#include <linux/kstrtox.h>
#include <linux/nodemask.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>
#include <linux/sysfs.h>

#include "admin/admin.h"

/* ---- properties ---- */

static const char *pool_state(struct kvblk_pool *pool)
{
	struct kvblk_member *member;

	if (READ_ONCE(pool->dying))
		return "destroying";
	if (atomic_read(&pool->restoring))
		return "restoring";
	guard(rcu)();
	kvblk_for_each_member(pool, member)
		if (!kvblk_flash_may_write(&member->flash))
			return "degraded";
	return "up";
}

/* X(name, mode, format, value of a struct kvblk_pool *pool) */
#define POOL_VALUES(X)									\
	X(uuid, 0444, "%pUb", &pool->uuid)						\
	X(state, 0444, "%s", pool_state(pool))						\
	X(strict, 0444, "%d", !!(pool->flags & KVBLK_POOL_STRICT))			\
	X(birth, 0444, "%llu", pool->birth)						\
	X(epoch, 0444, "%llu", READ_ONCE(pool->epoch))					\
	X(capacity, 0444, "%llu", kvblk_pool_space(pool).bytes)				\
	X(unsure, 0444, "%d", atomic_read(&pool->unsure))				\
	X(value_max, 0444, "%u", kvblk_pool_value_max(pool, false))				\
	X(index_slots, 0444, "%llu", kvblk_index_slots(&pool->index))			\
	X(index_bytes, 0444, "%llu", kvblk_index_bytes(&pool->index))

/* likewise, for monitors */
#define POOL_USE_VALUES(X)								\
	X(free, 0440, "%llu", kvblk_pool_space(pool).free_bytes)			\
	X(leased_bytes, 0440, "%llu", atomic64_read(&pool->lease.total))		\
	X(dram_used, 0440, "%llu", percpu_counter_sum_positive(&pool->dram.bytes))	\
	X(duel_winner, 0440, "%s", READ_ONCE(pool->policy.second_only) ? "second" : "first") \
	X(duel_refs, 0440, "%llu", READ_ONCE(pool->duel.all.refs))			\
	X(duel_first_hits, 0440, "%llu", READ_ONCE(pool->duel.all.hits[KVBLK_DUEL_FIRST])) \
	X(duel_second_hits, 0440, "%llu", READ_ONCE(pool->duel.all.hits[KVBLK_DUEL_SECOND])) \
	X(index_used, 0440, "%llu", kvblk_index_used(&pool->index))

#define POOL_ATTR(_name, _mode, _format, _value)			\
static ssize_t _name##_show(struct device *dev,				\
			    struct device_attribute *attr, char *buf)	\
{									\
	struct kvblk_pool *pool = kvblk_dev_pool(dev);			\
									\
	return sysfs_emit(buf, _format "\n", _value);			\
}									\
static DEVICE_ATTR(_name, _mode, _name##_show, NULL);

POOL_VALUES(POOL_ATTR)
POOL_USE_VALUES(POOL_ATTR)

#define X(name, mode, format, value)	&dev_attr_##name.attr,
static struct attribute *pool_attrs[] = {
	POOL_VALUES(X)
	NULL
};

static struct attribute *pool_use_attrs[] = {
	POOL_USE_VALUES(X)
	NULL
};

#undef X

static const struct attribute_group pool_group = { .attrs = pool_attrs };
static const struct attribute_group pool_use_group = { .attrs = pool_use_attrs };

/* ---- tunables ---- */

enum {
#define X(name, type, standard, least, most)	TUNABLE_##name,
	KVBLK_TUNABLES(X)
#undef X
	TUNABLES,
};

/* A tunable: 32 or (@wide) 64 bits in struct kvblk_tunables, signed or not, from @min to @max. */
struct tunable {
	struct device_attribute attr;
	size_t offset;
	bool wide;
	s64 min;
	s64 max;
};

static struct tunable tunables[TUNABLES];

/* Names of a tunable's values from 0 on; none if they are numbers. */
static const char * const tunable_names[TUNABLES][3] = {
	[TUNABLE_integrity] = {
		[KVBLK_CHECK_HEADER] = "header",
		[KVBLK_CHECK_FULL] = "full",
		[KVBLK_CHECK_PRODUCER] = "producer",
	},
	[TUNABLE_dram_mode] = {
		[KVBLK_DRAM_THROUGH] = "through",
		[KVBLK_DRAM_EVICT] = "evict",
		[KVBLK_DRAM_TOUCHED] = "touched",
	},
};

/* Serializes stores to all pools' tunables; outside kvblk_duel.judge. */
static DEFINE_MUTEX(tunables_lock);

static void tunable_set(struct kvblk_tunables *tun, const struct tunable *t, s64 value)
{
	void *p = (void *)tun + t->offset;

	if (t->wide)
		WRITE_ONCE(*(s64 *)p, value);
	else
		WRITE_ONCE(*(s32 *)p, value);
}

static ssize_t tunable_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	struct tunable *t = container_of(attr, struct tunable, attr);
	const char * const *names = tunable_names[t - tunables];
	void *p = (void *)&kvblk_dev_pool(dev)->tun + t->offset;
	s64 value = t->wide ? READ_ONCE(*(s64 *)p) : READ_ONCE(*(s32 *)p);

	return *names ? sysfs_emit(buf, "%s\n", names[value]) : sysfs_emit(buf, "%lld\n", value);
}

static ssize_t tunable_store(struct device *dev, struct device_attribute *attr,
			     const char *buf, size_t count)
{
	struct tunable *t = container_of(attr, struct tunable, attr);
	const char * const *names = tunable_names[t - tunables];
	int err, name = *names ? __sysfs_match_string(names, t->max + 1, buf) : -EINVAL;
	struct kvblk_pool *pool = kvblk_dev_pool(dev);
	struct kvblk_tunables tun;
	s64 value = name;

	err = name < 0 ? kstrtos64(buf, 0, &value) : 0;
	if (err)
		return err;
	if (value < t->min || value > t->max)
		return -ERANGE;
	if (t == &tunables[TUNABLE_dram_node] && value != NUMA_NO_NODE &&
	    (value >= nr_node_ids || !node_state(value, N_NORMAL_MEMORY)))
		return -ENODEV;

	guard(mutex)(&tunables_lock);
	tun = pool->tun;
	tunable_set(&tun, t, value);
	if (tun.low_permille >= tun.high_permille)
		return -EINVAL;
	err = kvblk_policy_set_first(&pool->policy, tun.first_permille);
	if (err)
		return err;
	tunable_set(&pool->tun, t, value);
	kvblk_duel_set(&pool->duel, tun.first_duel);
	kvblk_bounce_trim(pool, tun.bounce_chunks);
	WRITE_ONCE(pool->policy.admit_permille, tun.admit_permille);
	WRITE_ONCE(pool->policy.second_permille, tun.second_permille);
	WRITE_ONCE(pool->policy.reinsert_permille, tun.reinsert_permille);
	return count;
}

static struct tunable tunables[TUNABLES] = {
#define X(_name, _type, _standard, _least, _most) {			\
	.attr = __ATTR(_name, 0644, tunable_show, tunable_store),	\
	.offset = offsetof(struct kvblk_tunables, _name),		\
	.wide = sizeof(_type) == sizeof(u64),				\
	.min = (_least),						\
	.max = (_most) + BUILD_BUG_ON_ZERO(sizeof(_type) < sizeof(s64) && (_most) > S32_MAX), \
},
	KVBLK_TUNABLES(X)
#undef X
};

static struct attribute *tunable_attrs[] = {
#define X(name, type, standard, least, most)	&tunables[TUNABLE_##name].attr.attr,
	KVBLK_TUNABLES(X)
#undef X
	NULL
};

static const struct attribute_group tunable_group = { .attrs = tunable_attrs };

/* ---- counters/ ---- */

static struct device_attribute counters[KVBLK_COUNTERS];

static ssize_t counter_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%llu\n", kvblk_stats_counter(kvblk_dev_pool(dev), attr - counters));
}

static struct device_attribute counters[KVBLK_COUNTERS] = {
#define X(_name, NAME)	\
	[KVBLK_C_##NAME] = { { .name = _name, .mode = 0440 }, .show = counter_show },
	KVBLK_COUNTER_TABLE(X)
#undef X
};

static struct attribute *counter_attrs[] = {
#define X(name, NAME)	&counters[KVBLK_C_##NAME].attr,
	KVBLK_COUNTER_TABLE(X)
#undef X
	NULL
};

static const struct attribute_group counter_group = { .name = "counters", .attrs = counter_attrs };

const struct attribute_group *kvblk_pool_groups[] = {
	&pool_group, &pool_use_group, &tunable_group, &counter_group, NULL
};

/* ---- directories ---- */

/* members/, members/<name>/, ... An open directory keeps the kobject beyond the object. */
struct dir {
	struct kobject kobj;
	struct list_head link;		/* dirs; dirs_lock */
	struct kvblk_pool *pool;
	struct kvblk_member *member;	/* of members/<name>/ */
	u16 tenant;			/* of tenants/<name>/ */
};

/* A kind of directory. */
struct dir_kind {
	const struct kobj_type ktype;
	const struct attribute_group **use; /* files for monitors, or NULL */
	bool of_pool;			/* @use is in the directory above */
};

static LIST_HEAD(dirs);
/* protects dirs; held while files change their owner, so that none misses a change; a leaf */
static DEFINE_MUTEX(dirs_lock);

static void dir_release(struct kobject *kobj)
{
	kfree(container_of(kobj, struct dir, kobj));
}

#define DIR_KIND(_groups, _use, _of_pool) {					\
	.ktype = {								\
		.release = dir_release,						\
		.sysfs_ops = &kobj_sysfs_ops,					\
		.default_groups = (_groups),					\
	},									\
	.use = (_use),								\
	.of_pool = (_of_pool),							\
}

/* ---- members/ ---- */

/* X(name, mode, format, value of a struct kvblk_member *member) */
#define MEMBER_VALUES(X)								\
	X(state, 0444, "%s", kvblk_member_state_names[READ_ONCE(member->flash.state)])	\
	X(suspect, 0444, "%d", READ_ONCE(member->flash.suspect))			\
	X(failing, 0444, "%d", kvblk_flash_fails(&member->flash))			\
	X(path, 0444, "%s", member->flash.path)						\
	X(device, 0444, "%s",								\
	  READ_ONCE(member->flash.state) == KVBLK_MEMBER_DEAD ? "" : member->flash.device) \
	X(place, 0444, "%s", member->flash.place)					\
	X(uuid, 0444, "%pUb", &member->flash.uuid)					\
	X(size, 0444, "%llu", member->flash.size)					\
	X(segment_size, 0444, "%llu", kvblk_flash_segment_bytes(&member->flash))		\
	X(nr_segments, 0444, "%u", member->flash.nr_segs)				\
	X(record_align, 0444, "%u", member->flash.record_align)				\
	X(incarnation, 0444, "%#018llx", member->flash.incarnation)

/* likewise, for monitors */
#define MEMBER_USE_VALUES(X)								\
	X(free_segments, 0440, "%u", kvblk_member_avail(member))			\
	X(sealed_segments, 0440, "%u", READ_ONCE(member->log.nr_sealed))		\
	X(inflight, 0440, "%llu", kvblk_flash_inflight(&member->flash, NULL))		\
	X(restored, 0440, "%llu", READ_ONCE(member->log.restored))			\
	X(unread_segments, 0440, "%u", READ_ONCE(member->log.nr_unread))

/* dir->member is valid, because kvblk_sysfs_member_del() waits for readers. */
#define MEMBER_ATTR(_name, _mode, _format, _value)			\
static ssize_t member_##_name##_show(struct kobject *kobj,		\
				     struct kobj_attribute *attr, char *buf) \
{									\
	struct kvblk_member *member = container_of(kobj, struct dir, kobj)->member; \
									\
	return sysfs_emit(buf, _format "\n", _value);			\
}									\
static struct kobj_attribute member_attr_##_name =			\
	__ATTR(_name, _mode, member_##_name##_show, NULL);

MEMBER_VALUES(MEMBER_ATTR)
MEMBER_USE_VALUES(MEMBER_ATTR)

#define X(name, mode, format, value)	&member_attr_##name.attr,
static struct attribute *member_attrs[] = {
	MEMBER_VALUES(X)
	NULL
};

static struct attribute *member_use_attrs[] = {
	MEMBER_USE_VALUES(X)
	NULL
};

#undef X

static const struct attribute_group member_group = { .attrs = member_attrs };
static const struct attribute_group member_use_group = { .attrs = member_use_attrs };
static const struct attribute_group *member_groups[] = { &member_group, &member_use_group, NULL };
static const struct attribute_group *of_pool[] = { &pool_use_group, &counter_group, NULL };
static const struct attribute_group *of_member[] = { &member_use_group, NULL };

static const struct dir_kind members_kind = DIR_KIND(NULL, of_pool, true);
static const struct dir_kind member_kind = DIR_KIND(member_groups, of_member, false);

/* ---- tenants/ ---- */

/* Prints a value of the tenant's account. A clear that failed halfway leaves no account. */
#define TENANT_ACCOUNT_SHOW(_name, _format, _value)			\
static ssize_t tenant_##_name##_show(struct kobject *kobj,		\
				     struct kobj_attribute *attr, char *buf) \
{									\
	const struct dir *dir = container_of(kobj, struct dir, kobj);	\
	struct kvblk_account *account;					\
									\
	guard(rcu)();							\
	account = rcu_dereference(dir->pool->tenants.account[dir->tenant]); \
	return account ? sysfs_emit(buf, _format "\n", _value) : -ENODEV; \
}

/* X(name, mode, format, value of a struct kvblk_account *account) */
#define TENANT_LIMITS(X)								\
	X(quota_bytes, 0444, "%llu", READ_ONCE(account->limits.bytes))			\
	X(quota_bytes_soft, 0444, "%llu", READ_ONCE(account->limits.bytes_soft))		\
	X(quota_blocks, 0444, "%llu", READ_ONCE(account->limits.blocks))			\
	X(quota_blocks_soft, 0444, "%llu", READ_ONCE(account->limits.blocks_soft))	\
	X(quota_dram, 0444, "%llu", READ_ONCE(account->limits.dram))			\
	X(weight, 0444, "%u", READ_ONCE(account->limits.weight))

/* likewise, for monitors */
#define TENANT_USE_VALUES(X)								\
	X(used_bytes, 0440, "%llu",							\
	  kvblk_account_used(account, KVBLK_ACCOUNT_UNITS) << KVBLK_UNIT_SHIFT)		\
	X(used_blocks, 0440, "%llu", kvblk_account_used(account, KVBLK_ACCOUNT_BLOCKS))	\
	X(used_dram, 0440, "%llu", percpu_counter_sum_positive(&account->dram))		\
	X(openers, 0440, "%u", READ_ONCE(dir->pool->tenants.openers[dir->tenant]))

/* Prints a value that needs no account. */
#define TENANT_SHOW(_name, _format, _value)				\
static ssize_t tenant_##_name##_show(struct kobject *kobj,		\
				     struct kobj_attribute *attr, char *buf) \
{									\
	const struct dir *dir = container_of(kobj, struct dir, kobj);	\
									\
	return sysfs_emit(buf, _format "\n", _value);			\
}

/* X(name, mode, format, value of a const struct dir *dir) */
#define TENANT_VALUES(X)								\
	X(id, 0444, "%u", dir->tenant)							\
	X(encrypted, 0444, "%d", kvblk_tenant_encrypted(dir->pool, dir->tenant))		\
	X(locked, 0444, "%d", kvblk_tenant_locked(dir->pool, dir->tenant))

static ssize_t tenant_shared_show(struct kobject *kobj, struct kobj_attribute *attr, char *buf)
{
	const struct dir *dir = container_of(kobj, struct dir, kobj);
	char name[KVBLK_NAME_MAX] = "";

	kvblk_tenant_shared_name(dir->pool, dir->tenant, name);
	return sysfs_emit(buf, "%s\n", name);
}

/* dir->pool is valid, because kvblk_sysfs_tenant_del() waits for readers. */
#define X(name, mode, format, value)	TENANT_ACCOUNT_SHOW(name, format, value)
TENANT_LIMITS(X)
TENANT_USE_VALUES(X)
#undef X
#define X(name, mode, format, value)	TENANT_SHOW(name, format, value)
TENANT_VALUES(X)
#undef X

#define X(_name, _mode, _format, _value)				\
static struct kobj_attribute tenant_attr_##_name =			\
	__ATTR(_name, _mode, tenant_##_name##_show, NULL);
TENANT_VALUES(X)
TENANT_LIMITS(X)
TENANT_USE_VALUES(X)
#undef X
static struct kobj_attribute tenant_attr_shared = __ATTR(shared, 0444, tenant_shared_show, NULL);

#define X(name, mode, format, value)	&tenant_attr_##name.attr,
static struct attribute *tenant_attrs[] = {
	TENANT_VALUES(X)
	TENANT_LIMITS(X)
	X(shared, 0444, "%s", name)
	NULL
};

static struct attribute *tenant_use_attrs[] = {
	TENANT_USE_VALUES(X)
	NULL
};

#undef X

static const struct attribute_group tenant_group = { .attrs = tenant_attrs };
static const struct attribute_group tenant_use_group = { .attrs = tenant_use_attrs };
static const struct attribute_group *tenant_groups[] = { &tenant_group, &tenant_use_group, NULL };
static const struct attribute_group *of_tenant[] = { &tenant_use_group, NULL };

static const struct dir_kind tenants_kind = DIR_KIND(NULL, NULL, false);
static const struct dir_kind tenant_kind = DIR_KIND(tenant_groups, of_tenant, false);

/* ---- life of directories ---- */

/* Give the files for monitors to their group. After an error they are root's alone. */
static void dir_own(struct dir *dir)
{
	const struct dir_kind *kind = container_of(dir->kobj.ktype, struct dir_kind, ktype);
	kgid_t gid = kvblk_monitor_gid();

	lockdep_assert_held(&dirs_lock);
	if (!gid_valid(gid))
		gid = GLOBAL_ROOT_GID;
	if (kind->use)
		sysfs_groups_change_owner(kind->of_pool ? dir->kobj.parent : &dir->kobj, kind->use,
					  GLOBAL_ROOT_UID, gid);
}

void kvblk_sysfs_monitor(void)
{
	struct dir *dir;

	guard(mutex)(&dirs_lock);
	list_for_each_entry(dir, &dirs, link)
		dir_own(dir);
}

/* Adds a directory with the object of @of. Returns its kobject or an ERR_PTR(). */
static struct kobject *dir_add(struct kobject *parent, const struct dir_kind *kind,
			       const char *name, const struct dir *of)
{
	struct dir *dir = kmemdup(of, sizeof(*dir), GFP_KERNEL);
	int err;

	if (!dir)
		return ERR_PTR(-ENOMEM);
	err = kobject_init_and_add(&dir->kobj, &kind->ktype, parent, "%s", name);
	if (err) {
		kobject_put(&dir->kobj);
		return ERR_PTR(err);
	}
	guard(mutex)(&dirs_lock);
	list_add_tail(&dir->link, &dirs);
	dir_own(dir);
	return &dir->kobj;
}

/* Before the files of @kobj, or of the pool above it, are removed. */
static void dir_unlist(struct kobject *kobj)
{
	guard(mutex)(&dirs_lock);
	list_del(&container_of(kobj, struct dir, kobj)->link);
}

/* Removes a directory and waits for its readers. */
static void dir_del(struct kobject *kobj)
{
	dir_unlist(kobj);
	kobject_del(kobj);
	kobject_put(kobj);
}

int kvblk_sysfs_pool_init(struct kvblk_pool *pool)
{
	const struct dir of = { .pool = pool };

	pool->tenants.dir = dir_add(&pool->dev.kobj, &tenants_kind, "tenants", &of);
	if (IS_ERR(pool->tenants.dir))
		return PTR_ERR(pool->tenants.dir);
	pool->members_dir = dir_add(&pool->dev.kobj, &members_kind, "members", &of);
	if (!IS_ERR(pool->members_dir))
		return 0;
	dir_del(pool->tenants.dir);
	return PTR_ERR(pool->members_dir);
}

/* The directories of members may still be there: they keep the kobject. */
void kvblk_sysfs_pool_exit(struct kvblk_pool *pool)
{
	dir_unlist(pool->members_dir);
	kobject_put(pool->members_dir);
	pool->members_dir = NULL;
	dir_del(pool->tenants.dir);
	pool->tenants.dir = NULL;
}

int kvblk_sysfs_member_add(struct kvblk_member *member)
{
	const struct dir of = { .pool = member->flash.pool, .member = member };
	struct kobject *kobj = dir_add(of.pool->members_dir, &member_kind, member->flash.name, &of);

	if (IS_ERR(kobj))
		return PTR_ERR(kobj);
	member->kobj = kobj;
	return 0;
}

void kvblk_sysfs_member_del(struct kvblk_member *member)
{
	if (!member->kobj)
		return;
	dir_del(member->kobj);
	member->kobj = NULL;
}

int kvblk_sysfs_tenant_add(struct kvblk_pool *pool, const char *name, u16 tenant)
{
	const struct dir of = { .pool = pool, .tenant = tenant };

	return PTR_ERR_OR_ZERO(dir_add(pool->tenants.dir, &tenant_kind, name, &of));
}

/* Returns the tenant's directory, valid under tenants.lock, or NULL. */
static struct dir *tenant_dir(const struct kvblk_pool *pool, u16 tenant)
{
	struct dir *dir;

	guard(mutex)(&dirs_lock);
	list_for_each_entry(dir, &dirs, link)
		if (dir->kobj.ktype == &tenant_kind.ktype && dir->pool == pool &&
		    dir->tenant == tenant)
			return dir;
	return NULL;
}

void kvblk_sysfs_tenant_del(struct kvblk_pool *pool, u16 tenant)
{
	struct dir *dir = tenant_dir(pool, tenant);

	if (dir)
		dir_del(&dir->kobj);
}
