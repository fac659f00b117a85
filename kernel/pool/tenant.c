// SPDX-License-Identifier: GPL-2.0
/*
 * Tenants: key spaces of a pool with device nodes of their own. The rules:
 * - An id belongs to one tenant for the pool's life. So blocks of a removed tenant cannot come back
 *   in another one: neither from members, nor from a put that was in flight.
 * - Superblocks carry the table of tenants with the member list. An id is used only after all
 *   members in use have recorded that it is given, or else a crash could make it free again.
 * - A block is dead if its id is not in use. Gets of the tenant need not check that, because only
 *   its open files find the block, and these end. Reads of a shared tenant check it, because the
 *   readers' files stay. The index's sweep frees the entry.
 * - To clear a tenant is to give it a new id, with a new account of the same limits.
 * "default" (id 0) and "nvme-kv" (KVBLK_NVME_TENANT) always exist. They have no struct
 * kvblk_tenant: their nodes are the pool's. Superblocks do not have "nvme-kv".
 */
#include <linux/netlink.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "pool/pool.h"

/* ---- the table ---- */

static bool entry_used(const struct kvblk_d_tenant *entry)
{
	return entry->flags;
}

static bool entry_encrypted(const struct kvblk_d_tenant *entry)
{
	return le16_to_cpu(entry->flags) & KVBLK_TENANTF_ENCRYPTED;
}

static bool entry_common(const struct kvblk_d_tenant *entry)
{
	return kvblk_tenant_common(le16_to_cpu(entry->id));
}

static bool entry_named(const struct kvblk_d_tenant *entry, const char *name)
{
	return entry_used(entry) && !strcmp((const char *)entry->name, name);
}

bool kvblk_tenant_entry(struct kvblk_pool *pool, u32 i, struct kvblk_d_tenant *entry)
{
	guard(spinlock)(&pool->member_list_lock);
	*entry = pool->tenants.table[i];
	return entry_used(entry);
}

/* Returns the slot of the tenant @name, or of no tenant if @name is NULL; NULL: there is none. */
static struct kvblk_d_tenant *table_find(struct kvblk_pool *pool, const char *name)
{
	struct kvblk_d_tenant *entry = pool->tenants.table;

	lockdep_assert_held(&pool->tenants.lock);
	for (; entry - pool->tenants.table < KVBLK_POOL_TENANTS; entry++)
		if (name ? entry_named(entry, name) : !entry_used(entry))
			return entry;
	return NULL;
}

/* Writes change @seq to all members. Returns 0, or -EIO with a message: the tick tries again. */
static int table_write(struct kvblk_pool *pool, u64 seq, struct netlink_ext_ack *extack)
{
	char name[KVBLK_NAME_MAX];

	kvblk_pool_write_supers(pool);
	if (kvblk_pool_list_recorded(pool, seq, name))
		return 0;
	return kvblk_refuse(extack, -EIO, "member %.22s cannot record the change: see dmesg, or remove it",
			    name);
}

/* Gives @slot the tenant @entry. Returns as table_write(). */
static int table_set(struct kvblk_pool *pool, struct kvblk_d_tenant *slot,
		     const struct kvblk_d_tenant *entry, struct netlink_ext_ack *extack)
{
	u64 seq;

	scoped_guard(spinlock, &pool->member_list_lock) {
		*slot = *entry;
		pool->tenants.encrypts |= entry_encrypted(entry);
		seq = kvblk_member_list_changed(pool);
	}
	return table_write(pool, seq, extack);
}

/* Returns the number of the change. */
static u64 next_id_set(struct kvblk_pool *pool, u32 id)
{
	guard(spinlock)(&pool->member_list_lock);
	pool->tenants.next_id = id;
	return kvblk_member_list_changed(pool);
}

/* Makes an id free again that no record has, or else a pod could not use its name any more. */
static void id_return(struct kvblk_pool *pool, u32 id)
{
	next_id_set(pool, id);
	kvblk_pool_write_epoch(pool);
}

/* Takes an id that no member will give again. Returns it, or an error with a message. */
static int id_take(struct kvblk_pool *pool, const char *name, bool clear,
		   struct netlink_ext_ack *extack)
{
	const int id = kvblk_agree_id(pool, name, clear, extack);
	int err;

	if (id < 0)
		return id;
	if (id >= KVBLK_NVME_TENANT)
		return kvblk_refuse(extack, -ENOSPC, "no id is left: a pool has 16382 for tenants, and each clear takes one");
	err = table_write(pool, next_id_set(pool, id + 1), extack);
	if (!err)
		return id;
	id_return(pool, id);
	return err;
}

/* ---- shared tenants ---- */

bool kvblk_tenant_shared_name(struct kvblk_pool *pool, u16 tenant, char name[KVBLK_NAME_MAX])
{
	const int shared = kvblk_tenant_shared(pool, tenant);
	struct kvblk_d_tenant *entry = pool->tenants.table;

	if (shared < 0)
		return false;
	guard(spinlock)(&pool->member_list_lock);
	for (; entry - pool->tenants.table < KVBLK_POOL_TENANTS; entry++)
		if (entry_used(entry) && le16_to_cpu(entry->id) == shared) {
			strscpy(name, entry->name, KVBLK_NAME_MAX);
			return true;
		}
	return false;
}

/* Gives the cleared tenant @from, now @to, what it reads, and its readers. */
static void shared_move(struct kvblk_pool *pool, u16 from, u16 to)
{
	u16 *shared = pool->tenants.shared;
	u32 id;

	lockdep_assert_held(&pool->tenants.lock);
	WRITE_ONCE(shared[to], shared[from]);
	for (id = 0; id < KVBLK_TENANT_IDS; id++)
		if (shared[id] == from + 1)
			WRITE_ONCE(shared[id], to + 1);
}

/* ---- openers ---- */

/* Ends the open files of @id, and refuses new ones. Returns 0, or -EBUSY with a message. */
static int openers_end(struct kvblk_pool *pool, u16 id, bool force, struct netlink_ext_ack *extack)
{
	struct kvblk_opener *opener;

	guard(spinlock)(&pool->openers_lock);
	list_for_each_entry(opener, &pool->openers, link) {
		if (opener->tenant != id)
			continue;
		if (!force)
			return kvblk_refuse(extack, -EBUSY, "%.15s (%d) has the node open: close it, or pass \"force\"",
					    opener->comm, pid_nr(opener->pid));
		WRITE_ONCE(opener->ended, true);
	}
	clear_bit(id, pool->tenants.live);
	return 0;
}

/* ---- admissions ---- */

/* Gives tenant @id an admission without knowledge. Returns 0 or an error. */
static int admission_add(struct kvblk_pool *pool, u16 id)
{
	struct kvblk_admission *admission = kvblk_admission_new(&pool->policy);
	int err;

	if (!admission)
		return -ENOMEM;
	err = xa_err(xa_store(&pool->tenants.admissions, id, admission, GFP_KERNEL));
	if (err)
		kvblk_admission_free(admission);
	return err;
}

static void admission_del(struct kvblk_pool *pool, u16 id)
{
	struct kvblk_admission *admission = xa_erase(&pool->tenants.admissions, id);

	/* puts, demotions and reclaim may still use the admission */
	synchronize_rcu();
	kvblk_admission_free(admission);
}

void kvblk_admissions_exit(struct kvblk_pool *pool)
{
	struct kvblk_admission *admission;
	unsigned long id;

	xa_for_each(&pool->tenants.admissions, id, admission)
		kvblk_admission_free(admission);
	xa_destroy(&pool->tenants.admissions);
}

/* ---- nodes ---- */

static char *tenant_devnode(const struct device *dev, umode_t *mode, kuid_t *uid, kgid_t *gid)
{
	const struct kvblk_tenant *tenant = container_of(dev, struct kvblk_tenant, dev);

	if (mode)
		*mode = le16_to_cpu(tenant->entry.mode);
	if (uid)
		*uid = make_kuid(&init_user_ns, le32_to_cpu(tenant->entry.uid));
	if (gid)
		*gid = make_kgid(&init_user_ns, le32_to_cpu(tenant->entry.gid));
	return kasprintf(GFP_KERNEL, "kvblk/%s/%s", tenant->pool->name, tenant->entry.name);
}

static void tenant_release(struct device *dev)
{
	struct kvblk_tenant *tenant = container_of(dev, struct kvblk_tenant, dev);
	struct kvblk_pool *pool = tenant->pool;

	kfree(tenant);
	put_device(&pool->dev);
}

static struct class tenant_class = { .name = "kvblk-tenant" };

static const struct device_type tenant_type = {
	.name = "kvblk-tenant",
	.devnode = tenant_devnode,
	.release = tenant_release,
};

/* Adds the node of @entry. Returns 0 or an error. */
static int node_add(struct kvblk_pool *pool, const struct kvblk_d_tenant *entry)
{
	struct kvblk_tenant *tenant = kzalloc(sizeof(*tenant), GFP_KERNEL);
	int err;

	lockdep_assert_held(&pool->tenants.lock);
	if (!tenant)
		return -ENOMEM;
	tenant->entry = *entry;
	tenant->pool = pool;
	get_device(&pool->dev);
	device_initialize(&tenant->dev);
	tenant->dev.class = &tenant_class;
	tenant->dev.type = &tenant_type;
	/* no name has a colon */
	err = dev_set_name(&tenant->dev, "%s:%s", pool->name, entry->name);
	if (err)
		goto put;
	tenant->number = kvblk_number_take(&pool->uuid, le16_to_cpu(entry->id));
	err = PTR_ERR_OR_ZERO(tenant->number);
	if (err)
		goto put;
	tenant->dev.devt = kvblk_number_devt(tenant->number, KVBLK_NODE_TENANT);
	cdev_init(&tenant->cdev, kvblk_upper_ops->tenant_fops);
	tenant->cdev.owner = THIS_MODULE;
	err = cdev_device_add(&tenant->cdev, &tenant->dev);
	if (err)
		goto number;
	list_add_tail(&tenant->link, &pool->tenants.list);
	return 0;

number:
	kvblk_number_drop(tenant->number);
put:
	put_device(&tenant->dev);
	return err;
}

static struct kvblk_account *tenant_account(struct kvblk_pool *pool, __le16 id)
{
	return rcu_dereference_protected(pool->tenants.account[le16_to_cpu(id)],
					 lockdep_is_held(&pool->tenants.lock));
}

/* Adds the node of @entry and lets it be opened. @limits: or NULL. Returns 0 or an error. */
static int tenant_add(struct kvblk_pool *pool, const struct kvblk_d_tenant *entry,
		      const struct kvblk_tenant_limits *limits)
{
	const u16 id = le16_to_cpu(entry->id);
	int err = kvblk_account_open(pool, id, limits);

	if (err)
		return err;
	err = admission_add(pool, id);
	if (err)
		goto account;
	if (entry_encrypted(entry))
		set_bit(id, pool->tenants.encrypted);
	scoped_guard(spinlock, &pool->openers_lock)
		set_bit(id, pool->tenants.live);
	err = kvblk_upper_ops->tenant_up(pool, (const char *)entry->name, id);
	if (err)
		goto openers;
	err = node_add(pool, entry);
	if (!err)
		return 0;
	kvblk_upper_ops->tenant_down(pool, id);
openers:
	openers_end(pool, id, true, NULL);
	admission_del(pool, id);
account:
	kvblk_account_close(pool, tenant_account(pool, entry->id));
	return err;
}

static void node_del(struct kvblk_tenant *tenant)
{
	lockdep_assert_held(&tenant->pool->tenants.lock);
	list_del(&tenant->link);
	cdev_device_del(&tenant->cdev, &tenant->dev);
	kvblk_number_drop(tenant->number);
	put_device(&tenant->dev);
}

/* Returns tenant @id, or NULL if it has no node because it could not be cleared as a whole. */
static struct kvblk_tenant *tenant_of(struct kvblk_pool *pool, __le16 id)
{
	struct kvblk_tenant *tenant;

	lockdep_assert_held(&pool->tenants.lock);
	list_for_each_entry(tenant, &pool->tenants.list, link)
		if (tenant->entry.id == id)
			return tenant;
	return NULL;
}

/* Removes node, directory, admission and account of tenant @id. */
static void tenant_del(struct kvblk_pool *pool, __le16 id)
{
	struct kvblk_account *account = tenant_account(pool, id);
	struct kvblk_tenant *tenant = tenant_of(pool, id);

	if (tenant)
		node_del(tenant);
	kvblk_upper_ops->tenant_down(pool, le16_to_cpu(id));
	admission_del(pool, le16_to_cpu(id));
	if (account)
		kvblk_account_close(pool, account);
}

/* ---- requests ---- */

static int name_check(const char *name, struct netlink_ext_ack *extack)
{
	if (kvblk_name_valid((const u8 *)name, KVBLK_NAME_MAX))
		return 0;
	return kvblk_refuse(extack, -EINVAL, "invalid tenant name: 1 to 31 of A-Z a-z 0-9 . _ -, the first a letter or digit");
}

static int pool_gone(struct netlink_ext_ack *extack)
{
	return kvblk_refuse(extack, -ENODEV, "the pool is being destroyed");
}

/* Returns the slot of a tenant, or an ERR_PTR() with a message. */
static struct kvblk_d_tenant *tenant_find(struct kvblk_pool *pool, const char *name,
					  struct netlink_ext_ack *extack)
{
	struct kvblk_d_tenant *slot = table_find(pool, name);
	int err = name_check(name, extack);

	if (err)
		return ERR_PTR(err);
	if (!slot)
		return ERR_PTR(kvblk_refuse(extack, -ENOENT, "the pool has no tenant %.31s", name));
	return slot;
}

/* tenant_find() for a tenant to be removed. */
static struct kvblk_d_tenant *tenant_find_mortal(struct kvblk_pool *pool, const char *name,
						 struct netlink_ext_ack *extack)
{
	struct kvblk_d_tenant *slot = tenant_find(pool, name, extack);

	if (!IS_ERR(slot) && entry_common(slot))
		return ERR_PTR(kvblk_refuse(extack, -EINVAL,
					    "\"%.31s\" can neither be removed nor cleared", name));
	return slot;
}

/* Ends the tenant's blocks and open files. Returns 0, or -EBUSY with a message. */
static int tenant_end(struct kvblk_pool *pool, const struct kvblk_d_tenant *slot, bool force,
		      struct netlink_ext_ack *extack)
{
	u16 id = le16_to_cpu(slot->id);

	if (!force)
		wait_event_timeout(pool->settle_wait, READ_ONCE(pool->dying) ||
				   !READ_ONCE(pool->tenants.openers[id]), KVBLK_CLOSE_TIME);
	return openers_end(pool, id, force, extack);
}

static int owner_check(const struct kvblk_tenant_spec *spec, struct netlink_ext_ack *extack)
{
	if (!uid_valid(make_kuid(&init_user_ns, spec->uid)) ||
	    !gid_valid(make_kgid(&init_user_ns, spec->gid)))
		return kvblk_refuse(extack, -EINVAL, "invalid owner or group: 4294967295 is no number of a user");
	return 0;
}

static int spec_check(const struct kvblk_tenant_spec *spec, struct netlink_ext_ack *extack)
{
	int err = name_check(spec->name, extack);

	if (err)
		return err;
	if (kvblk_tenant_name_reserved(spec->name))
		return kvblk_refuse(extack, -EEXIST, "the name %s is reserved", spec->name);
	return owner_check(spec, extack);
}

/* Sets the key of the new tenant @entry, if encrypted. Returns 0, or an error with a message. */
static int tenant_encrypt(struct kvblk_pool *pool, const struct kvblk_tenant_spec *spec,
			  struct kvblk_d_tenant *entry, struct netlink_ext_ack *extack)
{
	if (!spec->encrypted)
		return 0;
	entry->flags |= cpu_to_le16(KVBLK_TENANTF_ENCRYPTED);
	return kvblk_tenant_key_set(pool, spec->key, entry, true, extack);
}

int kvblk_tenant_create(struct kvblk_pool *pool, const struct kvblk_tenant_spec *spec,
			struct netlink_ext_ack *extack)
{
	struct kvblk_pool *entered __free(kvblk_pool_leave) = kvblk_pool_enter(pool);
	struct kvblk_d_tenant entry = {
		.flags = cpu_to_le16(KVBLK_TENANTF_USED),
		.mode = cpu_to_le16(spec->mode),
		.uid = cpu_to_le32(spec->uid),
		.gid = cpu_to_le32(spec->gid),
	}, *slot;
	int id, err = spec_check(spec, extack);

	if (err)
		return err;
	guard(mutex)(&pool->tenants.lock);
	if (!entered || READ_ONCE(pool->dying))
		return pool_gone(extack);
	if (table_find(pool, spec->name))
		return kvblk_refuse(extack, -EEXIST, "there is a tenant %.31s already", spec->name);
	slot = table_find(pool, NULL);
	if (!slot)
		return kvblk_refuse(extack, -ENOSPC, "a pool has at most 703 tenants besides \"default\"");
	id = id_take(pool, spec->name, false, extack);
	if (id < 0)
		return id;
	entry.id = cpu_to_le16(id);
	strscpy_pad((char *)entry.name, spec->name, sizeof(entry.name));
	err = tenant_encrypt(pool, spec, &entry, extack);
	if (err) {
		id_return(pool, id);
		return err;
	}
	err = tenant_add(pool, &entry, NULL);
	if (err) {
		kvblk_tenant_key_drop(pool, id);
		/* nobody had the node open, because this was the first one of its number */
		clear_bit(id, pool->tenants.encrypted);
		id_return(pool, id);
		return kvblk_refuse(extack, err, "the tenant's node cannot be created (error %d)",
				    err);
	}
	table_set(pool, slot, &entry, extack);
	dev_info(&pool->dev, "tenant %s: created, id %d\n", spec->name, id);
	return 0;
}

int kvblk_tenant_key(struct kvblk_pool *pool, const struct kvblk_tenant_spec *spec,
		     struct netlink_ext_ack *extack)
{
	struct kvblk_pool *entered __free(kvblk_pool_leave) = kvblk_pool_enter(pool);
	struct kvblk_d_tenant *slot;
	int err;

	guard(mutex)(&pool->tenants.lock);
	if (!entered || READ_ONCE(pool->dying))
		return pool_gone(extack);
	slot = tenant_find(pool, spec->name, extack);
	if (IS_ERR(slot))
		return PTR_ERR(slot);
	if (!entry_encrypted(slot))
		return kvblk_refuse(extack, -EINVAL, "the tenant %.31s is not encrypted",
				    spec->name);
	err = kvblk_tenant_key_set(pool, spec->key, slot, false, extack);
	if (!err)
		dev_info(&pool->dev, "tenant %s: unlocked\n", spec->name);
	return err;
}

int kvblk_tenant_remove(struct kvblk_pool *pool, const char *name, bool force,
			struct netlink_ext_ack *extack)
{
	struct kvblk_pool *entered __free(kvblk_pool_leave) = kvblk_pool_enter(pool);
	struct kvblk_d_tenant *slot;
	__le16 id;
	int err;

	guard(mutex)(&pool->tenants.lock);
	if (!entered || READ_ONCE(pool->dying))
		return pool_gone(extack);
	slot = tenant_find_mortal(pool, name, extack);
	err = PTR_ERR_OR_ZERO(slot) ?: tenant_end(pool, slot, force, extack);
	if (err)
		return err;
	id = slot->id;
	/* before a member may fail: without its key no block can be read */
	kvblk_tenant_key_drop(pool, le16_to_cpu(id));
	table_set(pool, slot, &(struct kvblk_d_tenant) {}, extack);
	tenant_del(pool, id);
	dev_info(&pool->dev, "tenant %s: removed\n", name);
	return 0;
}

int kvblk_tenant_clear(struct kvblk_pool *pool, const char *name, bool force,
		       struct netlink_ext_ack *extack)
{
	struct kvblk_pool *entered __free(kvblk_pool_leave) = kvblk_pool_enter(pool);
	struct kvblk_tenant_limits limits = {};
	struct kvblk_d_tenant *slot, entry;
	struct kvblk_account *account;
	int id, err;

	guard(mutex)(&pool->tenants.lock);
	if (!entered || READ_ONCE(pool->dying))
		return pool_gone(extack);
	slot = tenant_find_mortal(pool, name, extack);
	if (IS_ERR(slot))
		return PTR_ERR(slot);
	/* before the tenant ends, because a member may fail */
	id = id_take(pool, name, true, extack);
	if (id < 0)
		return id;
	err = tenant_end(pool, slot, force, extack);
	if (err) {
		id_return(pool, id);
		return err;
	}
	entry = *slot;
	/* NULL after a clear that failed halfway */
	account = tenant_account(pool, entry.id);
	if (account)
		limits = account->limits;
	kvblk_tenant_key_move(pool, le16_to_cpu(entry.id), id);
	tenant_del(pool, entry.id);
	shared_move(pool, le16_to_cpu(entry.id), id);
	entry.id = cpu_to_le16(id);
	table_set(pool, slot, &entry, extack);
	err = tenant_add(pool, &entry, account ? &limits : NULL);
	if (err)
		return kvblk_refuse(extack, err, "cleared, but the new node cannot be created (error %d): remove it",
				    err);
	dev_info(&pool->dev, "tenant %s: cleared, id %d\n", name, id);
	return 0;
}

static int limits_check(const struct kvblk_tenant_limits *limits, struct netlink_ext_ack *extack)
{
	if (limits->bytes && limits->bytes_soft > limits->bytes)
		return kvblk_refuse(extack, -EINVAL, "quota-bytes-soft (%llu) is above quota-bytes (%llu)",
				    limits->bytes_soft, limits->bytes);
	if (limits->blocks && limits->blocks_soft > limits->blocks)
		return kvblk_refuse(extack, -EINVAL, "quota-blocks-soft (%llu) is above quota-blocks (%llu)",
				    limits->blocks_soft, limits->blocks);
	return 0;
}

/* Merges the given fields of @set into the limits @are. */
static struct kvblk_tenant_limits limits_merge(const struct kvblk_tenant_limits *are,
					       const struct kvblk_tenant_set *set)
{
	struct kvblk_tenant_limits limits = *are;

	if (set->given & KVBLK_TENANT_BYTES)
		limits.bytes = set->limits.bytes;
	if (set->given & KVBLK_TENANT_BYTES_SOFT)
		limits.bytes_soft = set->limits.bytes_soft;
	if (set->given & KVBLK_TENANT_BLOCKS)
		limits.blocks = set->limits.blocks;
	if (set->given & KVBLK_TENANT_BLOCKS_SOFT)
		limits.blocks_soft = set->limits.blocks_soft;
	if (set->given & KVBLK_TENANT_DRAM)
		limits.dram = set->limits.dram;
	if (set->given & KVBLK_TENANT_SHARE)
		limits.weight = set->limits.weight;
	return limits;
}

/* Replaces the node. Open files stay, because they belong to the pool. Returns 0 or an error. */
static int node_renew(struct kvblk_pool *pool, const struct kvblk_d_tenant *was,
		      const struct kvblk_d_tenant *entry)
{
	struct kvblk_tenant *tenant = tenant_of(pool, entry->id);
	int err;

	if (tenant)
		node_del(tenant);
	err = node_add(pool, entry);
	/* if memory is short for the old node, too, the next clear adds a node */
	if (err)
		node_add(pool, was);
	return err;
}

/* Changes mode and owner of the node, here and on members. Returns 0 or an error with a message. */
static int owner_set(struct kvblk_pool *pool, struct kvblk_d_tenant *slot,
		     const struct kvblk_tenant_set *set, struct netlink_ext_ack *extack)
{
	const struct kvblk_d_tenant was = *slot;
	struct kvblk_d_tenant entry = was;
	int err;

	if (set->given & KVBLK_TENANT_MODE)
		entry.mode = cpu_to_le16(set->spec.mode);
	if (set->given & KVBLK_TENANT_UID)
		entry.uid = cpu_to_le32(set->spec.uid);
	if (set->given & KVBLK_TENANT_GID)
		entry.gid = cpu_to_le32(set->spec.gid);
	if (!memcmp(&entry, &was, sizeof(was)))
		return 0;
	err = table_set(pool, slot, &entry, extack);
	if (!err) {
		err = node_renew(pool, &was, &entry);
		if (err)
			kvblk_refuse(extack, err, "the tenant's node cannot be created (error %d)",
				     err);
	}
	if (!err)
		return 0;
	scoped_guard(spinlock, &pool->member_list_lock) {
		*slot = was;
		kvblk_member_list_changed(pool);
	}
	kvblk_pool_write_epoch(pool);
	return err;
}

/* Finds the tenant whose blocks @slot's may read. Returns 1 + its id, 0, or an error. */
static int shared_find(struct kvblk_pool *pool, const struct kvblk_d_tenant *slot,
		       const char *name, struct netlink_ext_ack *extack)
{
	const struct kvblk_d_tenant *shared;

	if (!*name)
		return 0;
	/* commands, like a list, know one tenant */
	if (le16_to_cpu(slot->id) == KVBLK_NVME_TENANT)
		return kvblk_refuse(extack, -EINVAL, "NVMe commands reach blocks of \"nvme-kv\" only");
	shared = tenant_find(pool, name, extack);
	if (IS_ERR(shared))
		return PTR_ERR(shared);
	if (shared == slot)
		return kvblk_refuse(extack, -EINVAL, "a tenant reads its own blocks anyway: name another one");
	return le16_to_cpu(shared->id) + 1;
}

int kvblk_tenant_set(struct kvblk_pool *pool, const struct kvblk_tenant_set *set,
		     struct netlink_ext_ack *extack)
{
	struct kvblk_pool *entered __free(kvblk_pool_leave) = kvblk_pool_enter(pool);
	struct kvblk_tenant_limits limits;
	struct kvblk_account *account;
	struct kvblk_d_tenant *slot;
	int err, shared;

	guard(mutex)(&pool->tenants.lock);
	if (!entered || READ_ONCE(pool->dying))
		return pool_gone(extack);
	slot = tenant_find(pool, set->spec.name, extack);
	err = PTR_ERR_OR_ZERO(slot) ?: owner_check(&set->spec, extack);
	if (err)
		return err;
	if (entry_common(slot) && set->given & KVBLK_TENANT_NODE)
		return kvblk_refuse(extack, -EINVAL, "the node of \"%.31s\" is the pool's: use udev rules",
				    set->spec.name);
	account = tenant_account(pool, slot->id);
	if (!account)
		return kvblk_refuse(extack, -ENODEV, "the tenant has no node since a clear: clear it again");
	shared = shared_find(pool, slot, set->shared, extack);
	if (shared < 0)
		return shared;
	limits = limits_merge(&account->limits, set);
	err = limits_check(&limits, extack) ?: owner_set(pool, slot, set, extack);
	if (err)
		return err;
	kvblk_account_set(pool, account, &limits);
	if (set->given & KVBLK_TENANT_SHARED)
		WRITE_ONCE(pool->tenants.shared[le16_to_cpu(slot->id)], shared);
	return 0;
}

/* ---- life of a pool ---- */

static void entry_common_init(struct kvblk_d_tenant *entry, const char *name, u16 id)
{
	entry->flags = cpu_to_le16(KVBLK_TENANTF_USED);
	entry->id = cpu_to_le16(id);
	strscpy((char *)entry->name, name, sizeof(entry->name));
}

int kvblk_tenants_init(struct kvblk_pool *pool)
{
	struct kvblk_tenants *tenants = &pool->tenants;

	mutex_init(&tenants->lock);
	INIT_WORK(&tenants->quota_work, kvblk_quota_work);
	xa_init(&tenants->keys);
	INIT_LIST_HEAD(&tenants->list);
	xa_init(&tenants->admissions);
	tenants->next_id = 1;
	__set_bit(0, tenants->live);
	__set_bit(KVBLK_NVME_TENANT, tenants->live);
	tenants->table = kvcalloc(KVBLK_POOL_TENANTS, sizeof(*tenants->table), GFP_KERNEL);
	tenants->openers = kvcalloc(KVBLK_TENANT_IDS, sizeof(*tenants->openers), GFP_KERNEL);
	tenants->shared = kvcalloc(KVBLK_TENANT_IDS, sizeof(*tenants->shared), GFP_KERNEL);
	if (!tenants->table || !tenants->openers || !tenants->shared)
		return -ENOMEM;
	entry_common_init(tenants->table, "default", 0);
	entry_common_init(tenants->table + KVBLK_SB_TENANTS, "nvme-kv", KVBLK_NVME_TENANT);
	return kvblk_accounts_init(pool);
}

void kvblk_tenants_exit(struct kvblk_pool *pool)
{
	kvblk_accounts_exit(pool);
	kvfree(pool->tenants.table);
	kvfree(pool->tenants.openers);
	kvfree(pool->tenants.shared);
}

int kvblk_tenants_add(struct kvblk_pool *pool, struct netlink_ext_ack *extack)
{
	const struct kvblk_d_tenant *entry = pool->tenants.table + 1;
	int err;

	guard(mutex)(&pool->tenants.lock);
	if (admission_add(pool, KVBLK_NVME_TENANT))
		return kvblk_refuse(extack, -ENOMEM, "no memory for the admission of NVMe commands");
	err = kvblk_upper_ops->tenant_up(pool, "default", 0) ?:
	      kvblk_upper_ops->tenant_up(pool, "nvme-kv", KVBLK_NVME_TENANT);
	if (err)
		return kvblk_refuse(extack, err, "sysfs entries of tenants cannot be created (error %d)",
				    err);
	for (; entry < pool->tenants.table + KVBLK_SB_TENANTS; entry++) {
		err = entry_used(entry) ? tenant_add(pool, entry, NULL) : 0;
		if (err)
			return kvblk_refuse(extack, err, "the node of tenant %.24s cannot be created (error %d)",
					    entry->name, err);
	}
	return 0;
}

void kvblk_tenants_del(struct kvblk_pool *pool)
{
	const struct kvblk_d_tenant *entry;
	struct kvblk_tenant *tenant, *next;

	guard(mutex)(&pool->tenants.lock);
	list_for_each_entry_safe(tenant, next, &pool->tenants.list, link)
		node_del(tenant);
	for (entry = pool->tenants.table; entry < pool->tenants.table + KVBLK_POOL_TENANTS; entry++)
		if (entry_used(entry))
			kvblk_upper_ops->tenant_down(pool, le16_to_cpu(entry->id));
	kvblk_tenant_keys_drop(pool);
}

int kvblk_tenants_class_init(void)
{
	return class_register(&tenant_class);
}

void kvblk_tenants_class_exit(void)
{
	class_unregister(&tenant_class);
}
