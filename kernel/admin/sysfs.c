// SPDX-License-Identifier: GPL-2.0
/*
 * /sys/class/kvblk/<pool>/: properties of the pool, tunables, counters/ and members/<name>/. Each
 * file is documented in Documentation/ABI/testing/sysfs-class-kvblk.
 *
 * The rules: one value a file. A rejected write changes nothing. No file takes pool->admin, so that
 * a reader never waits for the addition or removal of a member.
 */
#include <linux/cleanup.h>
#include <linux/kobject.h>
#include <linux/kstrtox.h>
#include <linux/mutex.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>
#include <linux/sysfs.h>

#include "admin/admin.h"

/* ---- properties ---- */

static ssize_t uuid_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%pUb\n", &kvblk_dev_pool(dev)->uuid);
}
static DEVICE_ATTR_RO(uuid);

static ssize_t state_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	struct kvblk_pool *pool = kvblk_dev_pool(dev);
	struct kvblk_member *member;
	const char *state = "up";
	int i;

	if (READ_ONCE(pool->dying))
		return sysfs_emit(buf, "destroying\n");
	if (atomic_read(&pool->restoring))
		return sysfs_emit(buf, "restoring\n");
	scoped_guard(rcu)
		kvblk_for_each_member(pool, member, i)
			if (!kvblk_flash_may_write(&member->flash))
				state = "degraded";
	return sysfs_emit(buf, "%s\n", state);
}
static DEVICE_ATTR_RO(state);

/* X(name, value of a struct kvblk_pool *pool) */
#define POOL_VALUES(X)									\
	X(strict, !!(pool->flags & KVBLK_POOL_STRICT))					\
	X(birth, pool->birth)								\
	X(epoch, READ_ONCE(pool->epoch))						\
	X(capacity, kvblk_pool_space(pool).bytes)					\
	X(free, kvblk_pool_space(pool).free_bytes)					\
	X(unsure, atomic_read(&pool->unsure))						\
	X(leased_bytes, READ_ONCE(pool->lease.total))					\
	X(dram_used, atomic64_read(&pool->dram.bytes))					\
	X(value_max, kvblk_pool_value_max(pool))					\
	X(index_slots, kvblk_index_slots(&pool->index))					\
	X(index_used, kvblk_index_used(&pool->index))					\
	X(index_bytes, kvblk_index_bytes(&pool->index))

#define X(_name, _value)						\
static ssize_t _name##_show(struct device *dev,				\
			    struct device_attribute *attr, char *buf)	\
{									\
	struct kvblk_pool *pool = kvblk_dev_pool(dev);			\
									\
	return sysfs_emit(buf, "%llu\n", (u64)(_value));		\
}									\
static DEVICE_ATTR_RO(_name);
POOL_VALUES(X)
#undef X

static struct attribute *pool_attrs[] = {
	&dev_attr_uuid.attr,
	&dev_attr_state.attr,
#define X(name, value)	&dev_attr_##name.attr,
	POOL_VALUES(X)
#undef X
	NULL
};

static const struct attribute_group pool_group = {
	.attrs = pool_attrs,
};

/* ---- tunables ---- */

/* A tunable: a u32 or (@wide) u64 in struct kvblk_tunables, from @min to @max. */
struct tunable {
	struct device_attribute attr;
	size_t offset;
	bool wide;
	u64 min;
	u64 max;
};

static const char * const check_names[] = {
	[KVBLK_CHECK_HEADER] = "header",
	[KVBLK_CHECK_FULL] = "full",
	[KVBLK_CHECK_PRODUCER] = "producer",
};

static const char * const dram_names[] = {
	[KVBLK_DRAM_THROUGH] = "through",
	[KVBLK_DRAM_EVICT] = "evict",
	[KVBLK_DRAM_TOUCHED] = "touched",
};

/* Return the names of the values from 0 on, or NULL for a number. */
static const char * const *tunable_names(const struct tunable *t)
{
	if (t->offset == offsetof(struct kvblk_tunables, integrity))
		return check_names;
	return t->offset == offsetof(struct kvblk_tunables, dram_mode) ? dram_names : NULL;
}

/* Serializes stores to all pools' tunables; innermost. */
static DEFINE_MUTEX(tunables_lock);

static u64 tunable_load(struct kvblk_tunables *tun, const struct tunable *t)
{
	void *p = (void *)tun + t->offset;

	return t->wide ? READ_ONCE(*(u64 *)p) : READ_ONCE(*(u32 *)p);
}

static void tunable_set(struct kvblk_tunables *tun, const struct tunable *t, u64 value)
{
	void *p = (void *)tun + t->offset;

	if (t->wide)
		WRITE_ONCE(*(u64 *)p, value);
	else
		WRITE_ONCE(*(u32 *)p, value);
}

static ssize_t tunable_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	struct tunable *t = container_of(attr, struct tunable, attr);
	struct kvblk_pool *pool = kvblk_dev_pool(dev);
	u64 value = tunable_load(&pool->tun, t);

	if (tunable_names(t))
		return sysfs_emit(buf, "%s\n", tunable_names(t)[value]);
	return sysfs_emit(buf, "%llu\n", value);
}

static ssize_t tunable_store(struct device *dev, struct device_attribute *attr,
			     const char *buf, size_t count)
{
	struct tunable *t = container_of(attr, struct tunable, attr);
	struct kvblk_pool *pool = kvblk_dev_pool(dev);
	struct kvblk_tunables tun;
	int err, name = -1;
	u64 value;

	if (tunable_names(t))
		name = __sysfs_match_string(tunable_names(t), t->max + 1, buf);
	err = name < 0 ? kstrtou64(buf, 0, &value) : 0;
	if (err)
		return err;
	if (name >= 0)
		value = name;
	if (value < t->min || value > t->max)
		return -ERANGE;

	guard(mutex)(&tunables_lock);
	tun = pool->tun;
	tunable_set(&tun, t, value);
	if (tun.low_permille >= tun.high_permille)
		return -EINVAL;
	err = kvblk_policy_set_first(&pool->policy, tun.first_permille);
	if (err)
		return err;
	tunable_set(&pool->tun, t, value);
	kvblk_bounce_trim(pool, tun.bounce_chunks);
	WRITE_ONCE(pool->policy.admit_permille, tun.admit_permille);
	WRITE_ONCE(pool->policy.second_permille, tun.second_permille);
	WRITE_ONCE(pool->policy.reinsert_permille, tun.reinsert_permille);
	return count;
}

static struct tunable tunables[] = {
#define X(_name, _type, _standard, _least, _most) {			\
	.attr = {							\
		.attr = { .name = __stringify(_name), .mode = 0644 },	\
		.show = tunable_show,					\
		.store = tunable_store,					\
	},								\
	.offset = offsetof(struct kvblk_tunables, _name),		\
	.wide = sizeof(_type) == sizeof(u64),				\
	.min = (_least),						\
	.max = (_most),							\
},
	KVBLK_TUNABLES(X)
#undef X
};

enum {
#define X(name, type, standard, least, most)	TUNABLE_##name,
	KVBLK_TUNABLES(X)
#undef X
};

static struct attribute *tunable_attrs[] = {
#define X(name, type, standard, least, most)	&tunables[TUNABLE_##name].attr.attr,
	KVBLK_TUNABLES(X)
#undef X
	NULL
};

static const struct attribute_group tunable_group = {
	.attrs = tunable_attrs,
};

/* ---- counters/ ---- */

struct counter_attr {
	struct device_attribute attr;
	enum kvblk_counter counter;
};

static ssize_t counter_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	struct counter_attr *c = container_of(attr, struct counter_attr, attr);

	return sysfs_emit(buf, "%llu\n", kvblk_stats_counter(kvblk_dev_pool(dev), c->counter));
}

static struct counter_attr counters[] = {
#define X(_name, NAME) {						\
	.attr = { { .name = _name, .mode = 0444 }, .show = counter_show },	\
	.counter = KVBLK_C_##NAME,					\
},
	KVBLK_COUNTER_TABLE(X)
#undef X
};

static struct attribute *counter_attrs[] = {
#define X(name, NAME)	&counters[KVBLK_C_##NAME].attr.attr,
	KVBLK_COUNTER_TABLE(X)
#undef X
	NULL
};

static const struct attribute_group counter_group = {
	.name = "counters",
	.attrs = counter_attrs,
};

const struct attribute_group *kvblk_pool_groups[] = {
	&pool_group,
	&tunable_group,
	&counter_group,
	NULL
};

/* ---- members/ ---- */

/* A separate object, because an open directory keeps the kobject beyond the member. */
struct member_dir {
	struct kobject kobj;
	struct kvblk_member *member;
};

struct member_attr {
	struct attribute attr;
	ssize_t (*show)(struct kvblk_member *member, char *buf);
};

/* dir->member is valid: kvblk_sysfs_member_del() waits for readers before the member is freed. */
static ssize_t member_show(struct kobject *kobj, struct attribute *attr, char *buf)
{
	struct member_dir *dir = container_of(kobj, struct member_dir, kobj);
	struct member_attr *a = container_of(attr, struct member_attr, attr);

	return a->show(dir->member, buf);
}

static const struct sysfs_ops member_sysfs_ops = {
	.show = member_show,
};

static void member_release(struct kobject *kobj)
{
	kfree(container_of(kobj, struct member_dir, kobj));
}

/* X(name, format, value of a struct kvblk_member *member) */
#define MEMBER_VALUES(X)								\
	X(state, "%s", kvblk_member_state_names[READ_ONCE(member->flash.state)])	\
	X(suspect, "%d", READ_ONCE(member->flash.suspect))				\
	X(failing, "%d", kvblk_flash_fails(&member->flash))				\
	X(path, "%s", member->flash.path)						\
	X(device, "%s",									\
	  READ_ONCE(member->flash.state) == KVBLK_MEMBER_DEAD ? "" : member->flash.device) \
	X(place, "%s", member->flash.place)						\
	X(uuid, "%pUb", &member->flash.uuid)						\
	X(size, "%llu", member->flash.size)						\
	X(segment_size, "%u", member->flash.segment_units << KVBLK_UNIT_SHIFT)		\
	X(nr_segments, "%u", member->flash.nr_segs)					\
	X(free_segments, "%u", kvblk_member_avail(member))				\
	X(sealed_segments, "%u", READ_ONCE(member->log.nr_sealed))			\
	X(inflight, "%llu", kvblk_flash_inflight(&member->flash, NULL))			\
	X(record_align, "%u", member->flash.record_align)				\
	X(incarnation, "%#018llx", member->flash.incarnation)				\
	X(restored, "%llu", READ_ONCE(member->log.restored))				\
	X(unread_segments, "%u", READ_ONCE(member->log.nr_unread))

#define X(_name, _format, _value)					\
static ssize_t member_##_name##_show(struct kvblk_member *member, char *buf) \
{									\
	return sysfs_emit(buf, _format "\n", _value);			\
}									\
static struct member_attr member_attr_##_name = {			\
	.attr = { .name = __stringify(_name), .mode = 0444 },		\
	.show = member_##_name##_show,					\
};

MEMBER_VALUES(X)
#undef X

static struct attribute *member_attrs[] = {
#define X(name, format, value)	&member_attr_##name.attr,
	MEMBER_VALUES(X)
#undef X
	NULL
};
ATTRIBUTE_GROUPS(member);

static const struct kobj_type member_ktype = {
	.release = member_release,
	.sysfs_ops = &member_sysfs_ops,
	.default_groups = member_groups,
};

int kvblk_sysfs_pool_init(struct kvblk_pool *pool)
{
	pool->members_dir = kobject_create_and_add("members", &pool->dev.kobj);
	return pool->members_dir ? 0 : -ENOMEM;
}

void kvblk_sysfs_pool_exit(struct kvblk_pool *pool)
{
	kobject_put(pool->members_dir);
	pool->members_dir = NULL;
}

int kvblk_sysfs_member_add(struct kvblk_member *member)
{
	struct member_dir *dir;
	int err;

	dir = kzalloc(sizeof(*dir), GFP_KERNEL);
	if (!dir)
		return -ENOMEM;
	dir->member = member;
	err = kobject_init_and_add(&dir->kobj, &member_ktype,
				   member->flash.pool->members_dir, "%s",
				   member->flash.name);
	if (err) {
		kobject_put(&dir->kobj);
		return err;
	}
	member->kobj = &dir->kobj;
	return 0;
}

/* Remove the directory and wait for its readers. */
void kvblk_sysfs_member_del(struct kvblk_member *member)
{
	if (!member->kobj)
		return;
	kobject_del(member->kobj);
	kobject_put(member->kobj);
	member->kobj = NULL;
}
