// SPDX-License-Identifier: MIT
/*
 * An emulated module: linked before the library, it serves the admin calls from the JSON file
 * KVBLK_FAKE_ADMIN. The file has "pools", "members", "foreign", "tenants" and "stats" in the
 * format of "kvblk pool list", "member list", "member list --foreign", "tenant list" and "stat"
 * with -o json. It may have "found", the members that a scan of all devices finds; without it,
 * the devices of the host are read. Each call reads the file again, so that tests can change it,
 * and adds a stat's "per_call" to its counters.
 *
 * KVBLK_FAKE_LOG names a file that gets a line for each change. If KVBLK_FAKE_REFUSE is set,
 * changes fail with that message; if KVBLK_FAKE_WARN is set, they succeed with it.
 * KVBLK_FAKE_REFUSE_SET is likewise for changes of tenants alone.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "../common/uuid.h"
#include "../lib/kvblk_admin.h"

struct kvblk_admin {
	char message[256];
	unsigned int nr_stats;
	unsigned int nr_foreign;
};

static uint64_t number(const json_t *object, const char *name)
{
	return (uint64_t)json_integer_value(json_object_get(object, name));
}

static void text(const json_t *object, const char *name, char *to, size_t size)
{
	const char *value = json_string_value(json_object_get(object, name));

	snprintf(to, size, "%s", value ? value : "");
}

/* Load the array @what of the file. */
static json_t *load(const char *what)
{
	json_t *file = json_load_file(getenv("KVBLK_FAKE_ADMIN"), 0, NULL);
	json_t *array = json_incref(json_object_get(file, what));

	json_decref(file);
	return array;
}

__attribute__((format(printf, 2, 3)))
static int changed(struct kvblk_admin *admin, const char *format, ...)
{
	const char *path = getenv("KVBLK_FAKE_LOG"), *refusal = getenv("KVBLK_FAKE_REFUSE");
	const char *warning = getenv("KVBLK_FAKE_WARN");
	FILE *file = path ? fopen(path, "a") : NULL;
	va_list args;

	snprintf(admin->message, sizeof(admin->message), "%s",
		 refusal ? refusal : warning ? warning : "");
	if (refusal)
		return -EBUSY;
	if (!file)
		return 0;
	va_start(args, format);
	vfprintf(file, format, args);
	va_end(args);
	fputc('\n', file);
	fclose(file);
	return 0;
}

int kvblk_admin_open(struct kvblk_admin **admin)
{
	if (!getenv("KVBLK_FAKE_ADMIN"))
		return -ENOENT;
	*admin = calloc(1, sizeof(**admin));
	return *admin ? 0 : -ENOMEM;
}

void kvblk_admin_close(struct kvblk_admin *admin)
{
	free(admin);
}

const char *kvblk_admin_message(const struct kvblk_admin *admin)
{
	return admin->message;
}

static void fill_pool(struct kvblk_pool_state *pool, const json_t *json)
{
	text(json, "name", pool->name, sizeof(pool->name));
	snprintf(pool->devnode, sizeof(pool->devnode), "kvblk/%s/default", pool->name);
	pool->birth = number(json, "birth");
	pool->epoch = number(json, "epoch");
	pool->nr_members = (uint32_t)number(json, "nr_members");
	pool->capacity = number(json, "capacity");
	pool->free = number(json, "free");
	pool->nr_segments = (uint32_t)number(json, "nr_segments");
	pool->free_segments = (uint32_t)number(json, "free_segments");
	pool->index_slots = number(json, "index_slots");
	pool->index_used = number(json, "index_used");
	pool->index_evicted = number(json, "index_evicted");
	pool->index_bytes = number(json, "index_bytes");
	pool->leased_bytes = number(json, "leased_bytes");
	pool->value_max = (uint32_t)number(json, "value_max");
	text(json, "pod", pool->pod, sizeof(pool->pod));
	pool->unsure = (uint32_t)number(json, "unsure");
	pool->checksum_failures = number(json, "checksum_failures");
	pool->read_errors = number(json, "read_errors");
	pool->write_errors = number(json, "write_errors");
	pool->put_nospace = number(json, "put_nospace");
	pool->has_use = json_object_get(json, "free");
}

int kvblk_pool_list(struct kvblk_admin *admin, const char *name,
		    struct kvblk_pool_state **list)
{
	struct kvblk_pool_state **last = list, *pool;
	json_t *array = load("pools"), *json;
	size_t i;

	*list = NULL;
	json_array_foreach(array, i, json) {
		pool = calloc(1, sizeof(*pool));
		fill_pool(pool, json);
		if (name && strcmp(name, pool->name) != 0) {
			free(pool);
			continue;
		}
		*last = pool;
		last = &pool->next;
	}
	json_decref(array);
	if (!name || *list)
		return 0;
	snprintf(admin->message, sizeof(admin->message), "there is no pool %s", name);
	return -ENOENT;
}

static void fill_member(struct kvblk_member_state *member, const json_t *json)
{
	char state[16];

	text(json, "pool", member->pool, sizeof(member->pool));
	text(json, "name", member->name, sizeof(member->name));
	text(json, "path", member->path, sizeof(member->path));
	text(json, "state", state, sizeof(state));
	while (strcmp(kvblk_name(KVBLK_NAME_MEMBER_STATUS, member->state), state) != 0 &&
	       member->state < 16)
		member->state++;
	member->slot = (uint32_t)number(json, "slot");
	member->suspect = json_is_true(json_object_get(json, "suspect"));
	member->failing = json_is_true(json_object_get(json, "failing"));
	member->read_only = json_is_true(json_object_get(json, "read_only"));
	member->fenced = json_is_true(json_object_get(json, "fenced"));
	member->size = number(json, "size");
	member->segment_size = (uint32_t)number(json, "segment_size");
	member->nr_segments = (uint32_t)number(json, "nr_segments");
	member->free_segments = (uint32_t)number(json, "free_segments");
	member->ready_segments = (uint32_t)number(json, "ready_segments");
	member->open_segments = (uint32_t)number(json, "open_segments");
	member->sealed_segments = (uint32_t)number(json, "sealed_segments");
	member->inflight = (uint32_t)number(json, "inflight");
	member->restored = number(json, "restored");
	member->formatted = json_is_true(json_object_get(json, "formatted"));
	member->uuid[0] = (uint8_t)number(json, "uuid0");
	text(json, "device", member->device, sizeof(member->device));
	text(json, "place", member->place, sizeof(member->place));
	member->unread_segments = (uint32_t)number(json, "unread_segments");
	member->has_use = json_object_get(json, "free_segments");
	text(json, "owner", member->owner, sizeof(member->owner));
	member->blocks = number(json, "blocks");
	member->lacks = number(json, "lacks");
	member->gets = number(json, "gets");
	member->get_bytes = number(json, "get_bytes");
	member->get_misses = number(json, "get_misses");
}

/* List the members in the array @what of the file. */
static int list_members(const char *what, const char *pool, struct kvblk_member_state **list)
{
	struct kvblk_member_state **last = list, *member;
	json_t *array = load(what), *json;
	size_t i;

	*list = NULL;
	json_array_foreach(array, i, json) {
		member = calloc(1, sizeof(*member));
		fill_member(member, json);
		if (pool && strcmp(pool, member->pool) != 0) {
			free(member);
			continue;
		}
		*last = member;
		last = &member->next;
	}
	json_decref(array);
	return 0;
}

int kvblk_member_list(struct kvblk_admin *admin, const char *pool,
		      struct kvblk_member_state **list)
{
	return list_members("members", pool, list);
}

/* Each call adds 10 gets of 1 MiB and 5 misses to the file's. */
int kvblk_foreign_list(struct kvblk_admin *admin, const char *pool,
		       struct kvblk_member_state **list)
{
	int err = list_members("foreign", pool, list);

	for (struct kvblk_member_state *member = *list; member; member = member->next) {
		member->has_use = true;
		member->gets += 10ull * admin->nr_foreign;
		member->get_bytes += 10ull * admin->nr_foreign << 20;
		member->get_misses += 5ull * admin->nr_foreign;
	}
	admin->nr_foreign++;
	return err;
}

static void fill_stats(struct kvblk_stats *stats, const json_t *json, unsigned int calls)
{
	const json_t *latency = json_object_get(json, "latency"), *buckets;
	const char *name;

	text(json, "pool", stats->pool, sizeof(stats->pool));
	for (unsigned int i = KVBLK_A_COUNTER_PUTS; i <= KVBLK_A_COUNTER_MAX; i++) {
		name = kvblk_name(KVBLK_NAME_COUNTER, i);
		stats->has_counter[i] = true;
		stats->counter[i] = number(json_object_get(json, "counters"), name) +
			calls * number(json_object_get(json, "per_call"), name);
	}
	for (unsigned int i = KVBLK_A_LATENCY_PUT; i <= KVBLK_A_LATENCY_LOOKUP; i++) {
		name = kvblk_name(KVBLK_NAME_LATENCY, i);
		buckets = json_object_get(json_object_get(latency, name), "log2_buckets");
		stats->nr_buckets[i] = (uint32_t)json_array_size(buckets);
		for (uint32_t b = 0; b < stats->nr_buckets[i]; b++)
			stats->latency[i][b] = (calls + 1) *
				(uint64_t)json_integer_value(json_array_get(buckets, b));
	}
}

int kvblk_stats_list(struct kvblk_admin *admin, enum kvblk_stats_scope scope,
		     const char *pool, struct kvblk_stats **list)
{
	struct kvblk_stats **last = list, *stats;
	json_t *array, *json;
	size_t i;

	*list = NULL;
	if (scope != KVBLK_STATS_SCOPE_POOL)
		return 0;
	array = load("stats");
	json_array_foreach(array, i, json) {
		stats = calloc(1, sizeof(*stats));
		fill_stats(stats, json, admin->nr_stats);
		if (pool && strcmp(pool, stats->pool) != 0) {
			free(stats);
			continue;
		}
		*last = stats;
		last = &stats->next;
	}
	admin->nr_stats++;
	json_decref(array);
	if (!pool || *list)
		return 0;
	snprintf(admin->message, sizeof(admin->message), "there is no pool %s", pool);
	return -ENOENT;
}

int kvblk_pool_create(struct kvblk_admin *admin, const struct kvblk_pool_spec *spec)
{
	return changed(admin, "create %s slots=%" PRIu64 "%s%s%s%s", spec->name, spec->index_slots,
		       spec->pod ? " pod=" : "", spec->pod ? spec->pod : "",
		       spec->pod_of ? " seed-of=" : "", spec->pod_of ? spec->pod_of : "");
}

static void uuid(const json_t *object, const char *name, uint8_t to[16])
{
	const char *value = json_string_value(json_object_get(object, name));

	if (value)
		uuid_parse(value, to);
}

static struct kvblk_found *fill_found(const json_t *json)
{
	const char *path = json_string_value(json_object_get(json, "path"));
	const json_t *members = json_object_get(json, "members");
	struct kvblk_found *found = calloc(1, sizeof(*found) + strlen(path) + 1);

	memcpy(found + 1, path, strlen(path) + 1);
	found->path = (const char *)(found + 1);
	text(json, "pool", found->pool, sizeof(found->pool));
	text(json, "owner", found->owner, sizeof(found->owner));
	text(json, "pod", found->pod, sizeof(found->pod));
	uuid(json, "pool_uuid", found->pool_uuid);
	uuid(json, "uuid", found->uuid);
	uuid(json, "pod_uuid", found->pod_uuid);
	uuid(json, "node", found->node);
	found->epoch = number(json, "epoch");
	found->clean = json_is_true(json_object_get(json, "clean"));
	found->own = json_is_true(json_object_get(json, "own"));
	found->data_start = number(json, "data_start");
	found->nr_members = (uint32_t)json_array_size(members);
	for (uint32_t i = 0; i < found->nr_members; i++) {
		uuid(json_array_get(members, i), "uuid", found->members[i].uuid);
		text(json_array_get(members, i), "name", found->members[i].name,
		     sizeof(found->members[i].name));
	}
	return found;
}

int __real_kvblk_scan(const char *const *paths, size_t nr_paths, struct kvblk_found **list);
int __wrap_kvblk_scan(const char *const *paths, size_t nr_paths, struct kvblk_found **list);
int __wrap_kvblk_scan(const char *const *paths, size_t nr_paths, struct kvblk_found **list)
{
	json_t *array = load("found"), *json;
	struct kvblk_found **last = list;
	size_t i;

	if (paths || !array) {
		json_decref(array);
		return __real_kvblk_scan(paths, nr_paths, list);
	}
	*list = NULL;
	json_array_foreach(array, i, json) {
		*last = fill_found(json);
		last = &(*last)->next;
	}
	json_decref(array);
	return 0;
}

int kvblk_pool_import(struct kvblk_admin *admin, const struct kvblk_pool_spec *spec)
{
	char paths[256] = "", node[40] = "";

	for (uint32_t i = 0; i < spec->nr_members; i++)
		snprintf(paths + strlen(paths), sizeof(paths) - strlen(paths), " %s",
			 spec->members[i].path);
	return changed(admin, "import %s %x%s%s slots=%" PRIu64 "%s", spec->name, spec->add_flags,
		       spec->preempt ? " preempt=" : "",
		       spec->preempt ? uuid_format(spec->preempt, node) : "",
		       spec->index_slots, paths);
}

int kvblk_pool_clear(struct kvblk_admin *admin, const char *name)
{
	return changed(admin, "clear %s", name);
}

int kvblk_pool_destroy(struct kvblk_admin *admin, const char *name, bool force)
{
	return changed(admin, "destroy %s%s", name, force ? " force" : "");
}

int kvblk_member_add(struct kvblk_admin *admin, const char *pool,
		     const struct kvblk_member_spec *spec, uint32_t add_flags)
{
	return changed(admin, "add %s %s %x%s%s", pool, spec->path, add_flags,
		       spec->name ? " name=" : "", spec->name ? spec->name : "");
}

int kvblk_member_remove(struct kvblk_admin *admin, const char *pool,
			const struct kvblk_member_spec *spec)
{
	return spec->uuid ? changed(admin, "remove %s uuid0=%u", pool, spec->uuid[0]) :
			    changed(admin, "remove %s %s", pool, spec->name);
}

static void fill_tenant(struct kvblk_tenant_state *tenant, const json_t *json)
{
	const json_t *counters = json_object_get(json, "counters");
	char mode[16];

	text(json, "pool", tenant->pool, sizeof(tenant->pool));
	text(json, "name", tenant->name, sizeof(tenant->name));
	text(json, "mode", mode, sizeof(mode));
	snprintf(tenant->devnode, sizeof(tenant->devnode), "kvblk/%s/%s", tenant->pool, tenant->name);
	tenant->id = (uint32_t)number(json, "id");
	tenant->has_mode = *mode;
	tenant->mode = (uint32_t)strtoul(mode, NULL, 8);
	tenant->uid = (uint32_t)number(json, "uid");
	tenant->gid = (uint32_t)number(json, "gid");
	tenant->has_use = json_object_get(json, "openers");
	tenant->openers = number(json, "openers");
	tenant->has_limits = json_object_get(json, "weight");
	tenant->weight = (uint32_t)number(json, "weight");
	tenant->quota_bytes = number(json, "quota_bytes");
	tenant->quota_bytes_soft = number(json, "quota_bytes_soft");
	tenant->quota_blocks = number(json, "quota_blocks");
	tenant->quota_blocks_soft = number(json, "quota_blocks_soft");
	tenant->quota_dram = number(json, "quota_dram");
	text(json, "shared", tenant->shared, sizeof(tenant->shared));
	tenant->has_used = json_object_get(json, "used_bytes");
	tenant->used_bytes = number(json, "used_bytes");
	tenant->used_blocks = number(json, "used_blocks");
	tenant->used_dram = number(json, "used_dram");
	for (unsigned int i = 0; i < KVBLK_TENANT_COUNTERS; i++) {
		const char *name = kvblk_name(KVBLK_NAME_TENANT_COUNTER, i);

		tenant->has_counter[i] = json_object_get(counters, name);
		tenant->counter[i] = number(counters, name);
	}
	tenant->encrypted = json_is_true(json_object_get(json, "encrypted"));
	tenant->locked = json_is_true(json_object_get(json, "locked"));
}

int kvblk_tenant_list(struct kvblk_admin *admin, const char *pool,
		      struct kvblk_tenant_state **list)
{
	struct kvblk_tenant_state **last = list, *tenant;
	json_t *array = load("tenants"), *json;
	size_t i;

	*list = NULL;
	json_array_foreach(array, i, json) {
		tenant = calloc(1, sizeof(*tenant));
		fill_tenant(tenant, json);
		if (pool && strcmp(pool, tenant->pool) != 0) {
			free(tenant);
			continue;
		}
		*last = tenant;
		last = &tenant->next;
	}
	json_decref(array);
	if (!pool || *list)
		return 0;
	snprintf(admin->message, sizeof(admin->message), "there is no pool %s", pool);
	return -ENOENT;
}

int kvblk_tenant_create(struct kvblk_admin *admin, const char *pool,
			const struct kvblk_tenant_spec *spec)
{
	return changed(admin, "tenant create %s %s %04o %u:%u%s", pool, spec->name, spec->mode,
		       spec->uid, spec->gid, spec->key > 0 ? " key" : "");
}

int kvblk_tenant_key(struct kvblk_admin *admin, const char *pool, const char *name, int32_t key)
{
	return changed(admin, "tenant key %s %s%s", pool, name, key > 0 ? " key" : "");
}

int kvblk_tenant_set(struct kvblk_admin *admin, const char *pool, const char *name,
		     const struct kvblk_tenant_change *change)
{
	const struct {
		uint32_t field;
		const char *name;
		uint64_t value;
	} numbers[] = {
		{ KVBLK_TENANT_UID, "uid", change->uid },
		{ KVBLK_TENANT_GID, "gid", change->gid },
		{ KVBLK_TENANT_WEIGHT, "weight", change->weight },
		{ KVBLK_TENANT_QUOTA_BYTES, "bytes", change->quota_bytes },
		{ KVBLK_TENANT_QUOTA_BYTES_SOFT, "bytes_soft", change->quota_bytes_soft },
		{ KVBLK_TENANT_QUOTA_BLOCKS, "blocks", change->quota_blocks },
		{ KVBLK_TENANT_QUOTA_BLOCKS_SOFT, "blocks_soft", change->quota_blocks_soft },
		{ KVBLK_TENANT_QUOTA_DRAM, "dram", change->quota_dram },
	};
	const char *refusal = getenv("KVBLK_FAKE_REFUSE_SET");
	char text[256] = "";
	size_t len = 0;

	if (refusal) {
		snprintf(admin->message, sizeof(admin->message), "%s", refusal);
		return -EINVAL;
	}
	if (change->fields & KVBLK_TENANT_MODE)
		len += (size_t)snprintf(text, sizeof(text), " mode=%04o", change->mode);
	for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++) {
		if (change->fields & numbers[i].field)
			len += (size_t)snprintf(text + len, sizeof(text) - len, " %s=%" PRIu64,
						numbers[i].name, numbers[i].value);
	}
	if (change->fields & KVBLK_TENANT_SHARED)
		snprintf(text + len, sizeof(text) - len, " shared=%s", change->shared);
	return changed(admin, "tenant set %s %s%s", pool, name, text);
}

int kvblk_tenant_remove(struct kvblk_admin *admin, const char *pool, const char *name, bool force)
{
	return changed(admin, "tenant remove %s %s%s", pool, name, force ? " force" : "");
}

int kvblk_tenant_clear(struct kvblk_admin *admin, const char *pool, const char *name, bool force)
{
	return changed(admin, "tenant clear %s %s%s", pool, name, force ? " force" : "");
}
