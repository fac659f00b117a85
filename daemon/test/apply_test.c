// SPDX-License-Identifier: MIT
/*
 * apply() with a host, a module and a clock played by the test. Calls of the module are counted,
 * and reports are compared word for word.
 */
#include <errno.h>
#include <time.h>
#include <unistd.h>

#include "apply/apply.h"
#include "apply/host_state.h"
#include "apply/kmod.h"
#include "apply/newest.h"
#include "common/beat.h"
#include "common/signature.h"
#include "host/fabrics.h"
#include "host/kept.h"
#include "kvblk_test.h"

#define POOL_UUID	{ 0x8a, 0xde, [15] = 1 }
#define MEMBER		{ 2, [15] = 2 }
#define STEP_AGAIN	"add /dev/bad to pool kv0: member bad (02000000-0000-0000-0000-000000000002) was not restored completely"
#define STEP_IN		"import pool kv0 from /dev/bad"

static struct kvblk_found found = {
	.path = "/dev/bad", .pool = "kv0", .pool_uuid = POOL_UUID, .uuid = MEMBER,
	.nr_members = 1, .members = { { MEMBER, "bad" } }, .data_end = 1000,
};
static struct kvblk_member_state member = {
	.pool = "kv0", .name = "bad", .path = "/dev/bad", .uuid = MEMBER,
};
static char directory[] = "/tmp/apply_test.XXXXXX";
static struct kvblk_pool_state pool = { .name = "kv0", .uuid = POOL_UUID };

/* A device of another pool of the pod, and the module's entry while it is followed. */
#define STEP_FOLLOWS	"follow /dev/theirs in pool kv0: member 03000000-0000-0000-0000-000000000003 of node b"
static struct kvblk_found theirs = {
	.path = "/dev/theirs", .pool = "kv0", .pool_uuid = MEMBER, .uuid = { 3, [15] = 3 },
	.owner = "b", .pod = "rack7",
};
static struct kvblk_member_state foreign = {
	.pool = "kv0", .name = "theirs", .path = "/dev/theirs", .uuid = { 3, [15] = 3 }, .owner = "b",
	.state = KVBLK_MEMBER_STATUS_UP,
};

/* Tenants of the pool; the last one is created by a step. */
static struct kvblk_tenant_state tenants[2] = {
	{ .pool = "kv0", .name = "default" }, { .pool = "kv0", .name = "blue" },
};

/* Tenants that the module lists when a step looks, if not those that the pass found. */
static struct kvblk_tenant_state *others_tenants;

static int set_err;
static unsigned int nr_sets;
static bool pool_up, follows;
static int64_t seconds;
static const char *signature;	/* signature on the device, or NULL */
static int admin_err;
static int remove_err;
static unsigned int nr_adds, nr_removes, nr_imports;
static uint64_t slots;
static uint64_t beat;
static bool readable;
static const char *imports;	/* name of the pool to import */
static char *said;
static size_t said_len;
static FILE *to;

int __wrap_clock_gettime(clockid_t id, struct timespec *ts);
int __wrap_clock_gettime(clockid_t id, struct timespec *ts)
{
	*ts = (struct timespec){ .tv_sec = seconds };
	return 0;
}

/* There is a kept key of the tenant blue. */
static bool key_kept;

int state_read(const struct config *config, struct state *state)
{
	static struct kept_key key = { POOL_UUID, "blue" };
	static struct state_newest newest;
	static char *loaded[] = { "kvblk" };

	*state = (struct state){
		.modules = { loaded, 1 }, .pools = pool_up ? &pool : NULL,
		.members = pool_up ? &member : NULL, .found = &found,
		.foreign = pool_up && follows ? &foreign : NULL,
		.tenants = pool_up ? tenants : NULL, .newest = &newest,
		.keys = key_kept ? &key : NULL, .nr_keys = key_kept,
	};
	state->nr_newest = plan_keeps(config->pools) && !newest_read(pool.uuid, &newest);
	return 0;
}

void state_free(struct state *state)
{
}

int fabrics_connect(struct config_fabric *fabric, char *why, size_t len)
{
	return -1;
}

int modules_load(const char *name)
{
	return -ENOENT;
}

bool signature_find(const struct kvblk_found *on, char *what, size_t len)
{
	assert_ptr_equal(on, &found);
	snprintf(what, len, "%s", signature ? signature : "");
	return signature;
}

bool beat_read(const struct kvblk_found *on, uint64_t *to_beat)
{
	assert_ptr_equal(on, &found);
	*to_beat = beat;
	return readable;
}

int kvblk_scan(const char *const *paths, size_t nr_paths, struct kvblk_found **list)
{
	assert_int_equal(nr_paths, 1);
	assert_string_equal(paths[0], "/dev/bad");
	*list = &found;
	return 0;
}

void kvblk_list_free(void *list)
{
}

int kvblk_admin_open(struct kvblk_admin **admin)
{
	*admin = NULL;
	return 0;
}

void kvblk_admin_close(struct kvblk_admin *admin)
{
}

const char *kvblk_admin_message(const struct kvblk_admin *admin)
{
	return "no";
}

int kvblk_admin_wait(struct kvblk_admin *admin, int timeout_ms)
{
	return 0;
}

int kvblk_member_add(struct kvblk_admin *admin, const char *name,
		     const struct kvblk_member_spec *spec, uint32_t add_flags)
{
	assert_string_equal(name, "kv0");
	assert_string_equal(spec->path, "/dev/bad");
	assert_int_equal(add_flags, 0);
	nr_adds++;
	if (!admin_err && member.state == KVBLK_MEMBER_STATUS_UNRESTORED)
		member.state = KVBLK_MEMBER_STATUS_RESTORING;
	return admin_err;
}

int kvblk_member_follow(struct kvblk_admin *admin, const char *name,
			const struct kvblk_member_spec *spec)
{
	assert_string_equal(name, "kv0");
	assert_string_equal(spec->path, "/dev/theirs");
	assert_string_equal(spec->name, "theirs");
	nr_adds++;
	follows = !admin_err;
	return admin_err;
}

int kvblk_member_remove(struct kvblk_admin *admin, const char *name,
			const struct kvblk_member_spec *spec)
{
	assert_string_equal(name, "kv0");
	assert_null(spec->name);
	assert_memory_equal(spec->uuid, foreign.uuid, 16);
	nr_removes++;
	return remove_err;
}

int kvblk_pool_import(struct kvblk_admin *admin, const struct kvblk_pool_spec *spec)
{
	assert_string_equal(spec->name, imports);
	assert_int_equal(!!spec->preempt, strcmp(imports, "kv0") != 0);
	nr_imports++;
	slots = spec->index_slots;
	if (spec->preempt) {
		assert_memory_equal(spec->preempt, found.node, 16);
		assert_int_equal(spec->add_flags, KVBLK_ADD_FLAG_RENAME);
		found.own = !admin_err;
		return admin_err;
	}
	pool_up = !admin_err;
	return admin_err;
}

int kvblk_tenant_create(struct kvblk_admin *admin, const char *name,
			const struct kvblk_tenant_spec *spec)
{
	assert_string_equal(name, "kv0");
	assert_string_equal(spec->name, "blue");
	assert_int_equal(spec->mode, 0600);
	assert_int_equal(spec->uid, 5);
	assert_int_equal(spec->gid, 0);
	/* the key is on the disk first */
	assert_int_equal(spec->key, key_kept ? 7 : 0);
	tenants[1].encrypted = spec->key;
	nr_adds++;
	if (!admin_err)
		tenants[0].next = &tenants[1];
	return admin_err;
}

/* The kernel's key of the tenant blue, while it has one. */
static int32_t key_serial;
static bool key_fails;

int32_t tenant_key_make(const struct kept_key *key, const char *master, char *why, size_t len)
{
	assert_memory_equal(key->pool_uuid, pool.uuid, 16);
	assert_string_equal(key->tenant, "blue");
	assert_string_equal(master, CONFIG_MASTER_KEY);
	assert_int_equal(key_serial, 0);
	snprintf(why, len, "no master key");
	key_kept |= !key_fails;
	key_serial = key_fails ? 0 : 7;
	return key_serial;
}

int32_t tenant_key_load(const struct kept_key *key, char *why, size_t len)
{
	assert_string_equal(key->tenant, "blue");
	assert_int_equal(key_serial, 0);
	snprintf(why, len, "no key");
	key_serial = key_kept ? 7 : 0;
	return key_serial;
}

void tenant_key_drop(int32_t serial)
{
	assert_int_equal(serial, key_serial);
	key_serial = 0;
}

int tenant_key_remove(const struct kept_key *key)
{
	assert_string_equal(key->tenant, "blue");
	key_kept = false;
	return 0;
}

int kvblk_tenant_list(struct kvblk_admin *admin, const char *name, struct kvblk_tenant_state **list)
{
	assert_string_equal(name, "kv0");
	*list = others_tenants ? others_tenants : tenants;
	return 0;
}

int kvblk_tenant_key(struct kvblk_admin *admin, const char *name, const char *tenant, int32_t key)
{
	assert_string_equal(name, "kv0");
	assert_string_equal(tenant, "blue");
	assert_int_equal(key, 7);
	if (!admin_err)
		tenants[1].locked = false;
	return admin_err;
}

int kvblk_tenant_set(struct kvblk_admin *admin, const char *name, const char *tenant,
		     const struct kvblk_tenant_change *change)
{
	assert_string_equal(name, "kv0");
	assert_string_equal(tenant, "blue");
	assert_int_equal(change->fields, KVBLK_TENANT_QUOTA_BYTES);
	nr_sets++;
	if (!set_err)
		tenants[1].quota_bytes = change->quota_bytes;
	return set_err;
}

static void tell(void *arg, const struct step *step, enum apply_outcome outcome, const char *why)
{
	static const char *const outcomes[] = { "note", "planned", "done", "failed" };

	fprintf(to, "%s: %s%s%s\n", step->text, outcomes[outcome], *why ? ": " : "", why);
}

static struct apply all = { .told = tell };
static struct config config;

static int begin(void **state)
{
	pool_up = true;
	member.state = KVBLK_MEMBER_STATUS_UP;
	member.unread_segments = 0;
	seconds = 1000;
	signature = NULL;
	admin_err = 0;
	remove_err = 0;
	nr_adds = 0;
	nr_removes = 0;
	nr_imports = 0;
	follows = false;
	found.next = NULL;
	*pool.pod = '\0';
	imports = "kv0";
	readable = true;
	tenants[0].next = NULL;
	tenants[1] = (struct kvblk_tenant_state){ .pool = "kv0", .name = "blue", .mode = 0600, .uid = 5 };
	set_err = 0;
	nr_sets = 0;
	key_kept = false;
	key_fails = false;
	others_tenants = NULL;
	to = open_memstream(&said, &said_len);
	return config_parse("pools = ( { name = \"kv0\"; index_slots = 123456; } );", &config, stderr);
}

static int end(void **state)
{
	apply_forget(&all);
	config_free(&config);
	fclose(to);
	free(said);
	return 0;
}

/* Run a pass and check the reported steps and the time of the next pass. */
static void pass(const char *tells, int64_t next)
{
	struct apply_result result;

	rewind(to);
	assert_int_equal(apply(&all, &config, false, &result), 0);
	fputc('\0', to);
	fflush(to);
	assert_string_equal(said, tells);
	assert_int_equal(result.next, next);
}

/* A failed step is retried with growing delays and reported once. */
TEST_WITH(test_failures, begin, end)
{
	pool_up = false;
	admin_err = -EBUSY;
	pass(STEP_IN ": failed: Device or resource busy: no\n", 1);
	pass("", 1);
	assert_int_equal(nr_imports, 1);
	for (unsigned int gap = 2, i = 2; i < 12; i++, gap = gap > 30 ? 60 : gap * 2) {
		seconds += gap / 2;
		if (gap == 60)
			seconds += 30;
		pass("", gap);
		assert_int_equal(nr_imports, i);
	}
	admin_err = 0;
	seconds += 60;
	pass(STEP_IN ": done\n", -1);
	assert_int_equal(nr_imports, 12);
}

TEST_WITH(test_index_slots, begin, end)
{
	pool_up = false;
	pass(STEP_IN ": done\n", -1);
	assert_int_equal(slots, 123456);
}

/* A device with a foreign signature is not added until the signature is removed. */
TEST_WITH(test_signatures, begin, end)
{
	signature = "ext4";
	pool_up = false;
	pass(STEP_IN ": failed: /dev/bad also holds ext4; if that is stale, remove it with wipefs\n", 1);
	apply_forget(&all);
	pool_up = true;
	member.state = KVBLK_MEMBER_STATUS_DEAD;
	pass("add /dev/bad to pool kv0: lost member bad (02000000-0000-0000-0000-000000000002): failed: /dev/bad also holds ext4; if that is stale, remove it with wipefs\n", 1);
	assert_int_equal(nr_imports + nr_adds, 0);
	signature = NULL;
	seconds++;
	pass("add /dev/bad to pool kv0: lost member bad (02000000-0000-0000-0000-000000000002): done\n", -1);
	assert_int_equal(nr_adds, 1);
}

/* A member that was not restored is read again, which completes later. */
TEST_WITH(test_unrestored, begin, end)
{
	unsigned int gap = 1;

	member.state = KVBLK_MEMBER_STATUS_UNRESTORED;
	pass(STEP_AGAIN ": done\n", -1);
	assert_int_equal(nr_adds, 1);
	/* fails again and again: at most one try a minute, reported once */
	for (unsigned int i = 1; i < 12; i++) {
		/* the result is unknown while the member is read */
		pass("", -1);
		member.state = KVBLK_MEMBER_STATUS_UNRESTORED;
		pass("", gap);
		assert_int_equal(nr_adds, i);
		seconds += gap - 1;
		pass("", 1);
		assert_int_equal(nr_adds, i);
		seconds++;
		pass(i == 1 ? STEP_AGAIN ": failed: the member is still not restored\n" : "", -1);
		assert_int_equal(nr_adds, i + 1);
		gap = gap > 30 ? 60 : gap * 2;
	}
	/* success; a failure long after counts as the first */
	member.state = KVBLK_MEMBER_STATUS_UP;
	pass("", -1);
	seconds += 1000;
	pass("", -1);
	member.state = KVBLK_MEMBER_STATUS_UNRESTORED;
	pass(STEP_AGAIN ": done\n", -1);
	assert_int_equal(nr_adds, 13);
}

/* A member that is partly unread is read again, although its state does not show that. */
TEST_WITH(test_unread, begin, end)
{
	member.unread_segments = 7;
	pass(STEP_AGAIN ": done\n", 1);
	pass("", 1);
	assert_int_equal(nr_adds, 1);
	seconds++;
	pass(STEP_AGAIN ": failed: the member is still not restored\n", 2);
	seconds++;
	pass("", 1);
	assert_int_equal(nr_adds, 2);
	member.unread_segments = 0;
	pass("", -1);
}

/* Members of other nodes are looked for again and again, unless an operator unfollowed them. */
TEST_WITH(test_follow, begin, end)
{
	strcpy(pool.pod, "rack7");
	pass("", PLAN_FOLLOW_GAP);
	found.next = &theirs;
	/* followed devices are only read: signatures do not matter */
	signature = "ext4";
	admin_err = -EXDEV;
	pass(STEP_FOLLOWS ": failed: Invalid cross-device link: no\n", 1);
	seconds++;
	pass("", 2);
	assert_int_equal(nr_adds, 2);
	admin_err = 0;
	seconds += 2;
	pass(STEP_FOLLOWS ": done\n", PLAN_FOLLOW_GAP);
	pass("", PLAN_FOLLOW_GAP);
	assert_int_equal(nr_adds, 3);
	assert_int_equal(nr_removes, 0);
	/* formatted anew: the former entry is dropped first */
	foreign.state = KVBLK_MEMBER_STATUS_UNRESTORED;
	foreign.uuid[0] = 4;
	theirs.uuid[0] = 5;
	remove_err = -EPERM;
	pass("follow /dev/theirs in pool kv0: member 05000000-0000-0000-0000-000000000003 of node b, which was formatted anew: failed: Operation not permitted: no\n", 1);
	assert_int_equal(nr_adds, 3);
	remove_err = -ENOENT;
	seconds++;
	pass("follow /dev/theirs in pool kv0: member 05000000-0000-0000-0000-000000000003 of node b, which was formatted anew: done\n",
	     PLAN_FOLLOW_GAP);
	assert_int_equal(nr_removes, 2);
	foreign.state = KVBLK_MEMBER_STATUS_UP;
	foreign.uuid[0] = theirs.uuid[0] = 3;
	pass("", PLAN_FOLLOW_GAP);
	follows = false;
	pass("pool kv0: /dev/theirs of node b was unfollowed; to follow it again, reload kvblkd or run: kvblk apply: note\n",
	     PLAN_FOLLOW_GAP);
	pass("", PLAN_FOLLOW_GAP);
	assert_int_equal(nr_adds, 4);
	/* another pool came up, then this one */
	apply_unsettle(&all, "kv");
	pass("", PLAN_FOLLOW_GAP);
	apply_unsettle(&all, "kv0");
	pass(STEP_FOLLOWS ": done\n", PLAN_FOLLOW_GAP);
	/* no pool is up */
	found.next = NULL;
	*pool.pod = '\0';
	pass("", -1);
}

static int begin_tenants(void **state)
{
	begin(state);
	config_free(&config);
	return config_parse("pools = ( { name = \"kv0\"; tenants = ( { name = \"blue\"; mode = \"0600\"; owner = \"5\"; quota_bytes = 7; } ); } );",
			    &config, stderr);
}

#define CREATES		"create tenant blue of pool kv0"
#define SETS		"set tenant blue of pool kv0: quota_bytes from 0 to 7"

/* Tenants are created and set until that succeeds, and again when the pool came up. */
TEST_WITH(test_tenants, begin_tenants, end)
{
	admin_err = -EIO;
	pass(CREATES ": failed: Input/output error: no\n", 1);
	seconds++;
	pass("", 2);
	admin_err = 0;
	set_err = -EOPNOTSUPP;
	seconds += 2;
	pass(CREATES ": done\n" SETS ": failed: Operation not supported: no\n", 1);
	seconds++;
	pass("", 2);
	set_err = 0;
	seconds += 2;
	pass(SETS ": done\n", -1);
	pass("", -1);
	assert_int_equal(nr_adds, 3);
	assert_int_equal(nr_sets, 3);
	/* the operator's limit stays, until the pool comes up again: limits are not on media */
	tenants[1].quota_bytes = 9;
	pass("", -1);
	apply_unsettle(&all, "kv");
	pass("", -1);
	tenants[1].quota_bytes = 0;
	apply_unsettle(&all, "kv0");
	pass(SETS ": done\n", -1);
	assert_int_equal(nr_sets, 4);
	/* the operator removes the tenant */
	tenants[0].next = NULL;
	pass("tenant blue of pool kv0 was removed; to create it again, reload kvblkd or run: kvblk apply: note\n", -1);
	pass("", -1);
	assert_int_equal(nr_adds, 3);
	/* a reload */
	apply_forget(&all);
	pass(CREATES ": done\n", -1);
	assert_int_equal(nr_adds, 4);
}

static int begin_keys(void **state)
{
	begin(state);
	config_free(&config);
	assert_non_null(mkdtemp(directory));
	setenv("STATE_DIRECTORY", directory, 1);
	return config_parse("pools = ( { name = \"kv0\"; tenants = ( { name = \"blue\"; mode = \"0600\"; owner = \"5\"; encrypted = true; } ); } );",
			    &config, stderr);
}

static int end_keys(void **state)
{
	char command[64];

	snprintf(command, sizeof(command), "rm -r %s", directory);
	/* for the next mkdtemp() */
	memset(directory + sizeof(directory) - 7, 'X', 6);
	return system(command) | end(state);
}

#define CREATES_SECRET	"create encrypted tenant blue of pool kv0"
#define REMOVES_KEY	"remove the kept keys of tenant blue of pool kv0"

/* A key is kept before the tenant has it, is given after an import, and goes with the tenant. */
TEST_WITH(test_tenant_keys, begin_keys, end_keys)
{
	key_fails = true;
	pass(CREATES_SECRET ": failed: no master key\n", 1);
	assert_int_equal(nr_adds, 0);
	key_fails = false;
	/* the key of a tenant that was not created is no other tenant's */
	admin_err = -EIO;
	seconds++;
	pass(CREATES_SECRET ": failed: Input/output error: no\n", 2);
	assert_true(key_kept);
	admin_err = 0;
	seconds += 2;
	pass(REMOVES_KEY ": done\n" CREATES_SECRET ": done\n", PLAN_KEEP_GAP);
	assert_true(key_kept);
	assert_int_equal(key_serial, 0);
	pass("", PLAN_KEEP_GAP);
	/* an import */
	tenants[1].locked = true;
	admin_err = -EKEYREJECTED;
	pass("give the key of tenant blue of pool kv0: failed: Key was rejected by service: no\n", 1);
	assert_int_equal(key_serial, 0);
	admin_err = 0;
	seconds++;
	pass("give the key of tenant blue of pool kv0: done\n", PLAN_KEEP_GAP);
	/* the operator removes the tenant; another process creates it again meanwhile */
	tenants[0].next = NULL;
	others_tenants = &tenants[1];
	pass(REMOVES_KEY ": failed: the tenant is there again\n"
	     "tenant blue of pool kv0 was removed; to create it again, reload kvblkd or run: kvblk apply: note\n", 1);
	assert_true(key_kept);
	apply_forget(&all);
	pass(REMOVES_KEY ": failed: the tenant is there again\n"
	     CREATES_SECRET ": failed: the tenant is there again\n", 1);
	assert_true(key_kept);
	others_tenants = NULL;
	seconds++;
	pass(REMOVES_KEY ": done\n" CREATES_SECRET ": done\n", PLAN_KEEP_GAP);
	assert_int_equal(nr_adds, 3);
}

/* The newest state of a pool is kept: a device that is older is not imported. */
TEST_WITH(test_rolled_back, begin_keys, end_keys)
{
	char path[KEPT_PATH_LEN], tells[KEPT_PATH_LEN + 256];
	struct state_newest newest;

	tenants[0].next = &tenants[1];
	tenants[1].encrypted = true;
	found.epoch = 2;
	found.seq = 9;
	pool.epoch = 2;
	setenv("STATE_DIRECTORY", "/dev/null", 1);
	pass("pool kv0: cannot write /dev/null/pools/8ade0000-0000-0000-0000-000000000001: Not a directory; a rollback of a member may go unnoticed: note\n",
	     PLAN_KEEP_GAP);
	pass("", PLAN_KEEP_GAP);
	setenv("STATE_DIRECTORY", directory, 1);
	pass("", PLAN_KEEP_GAP);
	assert_int_equal(newest_read(pool.uuid, &newest), 0);
	assert_int_equal(newest.epoch, 2);
	assert_int_equal(newest.members[0].seq, 9);
	pool_up = false;
	found.seq = 7;
	snprintf(tells, sizeof(tells), "pool kv0: not trusted: /dev/bad is at superblock 7, but was at 9 before: a drive or its target may have been rolled back; to accept that, remove %s and reload kvblkd: note\n",
		 newest_path(pool.uuid, path));
	apply_forget(&all);
	pass(tells, PLAN_KEEP_GAP);
	assert_int_equal(nr_imports, 0);
	/* accepted */
	assert_int_equal(unlink(path), 0);
	pass(STEP_IN ": done\n", PLAN_KEEP_GAP);
	assert_int_equal(newest_read(pool.uuid, &newest), 0);
	assert_int_equal(newest.members[0].seq, 7);
	found.epoch = found.seq = pool.epoch = 0;
}

#define ADOPTS		"adopt pool kv0 of node a in pod rack7 as kv0-a: the node has written nothing for 60 s"
#define POD_UUID	{ 7, [15] = 7 }

/* The pool of another node of the pod, of the same name, with members of its own. */
static int begin_pod(void **state)
{
	found = (struct kvblk_found){
		.path = "/dev/bad", .pool = "kv0", .pool_uuid = { 9 }, .uuid = { 3 }, .owner = "a",
		.node = { 5 }, .nr_members = 1, .members = { { { 3 }, "m" } }, .data_end = 1000,
		.pod = "rack7", .pod_uuid = POD_UUID,
	};
	pool = (struct kvblk_pool_state){
		.name = "kv0", .uuid = POOL_UUID, .pod = "rack7", .pod_uuid = POD_UUID,
	};
	begin(state);
	strcpy(pool.pod, "rack7");
	config_free(&config);
	imports = "kv0-a";
	return config_parse("pools = ( { name = \"kv0\"; pod: { name = \"rack7\"; follow = false; adopt_after = 60; }; } );",
			    &config, stderr);
}

/* A node that writes nothing for the time in the file is lost; whatever is unknown is no silence. */
TEST_WITH(test_adopt, begin_pod, end)
{
	pass("", 5);
	for (int i = 0; i < 20; i++) {
		seconds += 59;
		beat++;
		pass("", 5);
	}
	seconds += 59;
	readable = false;
	pass("", 5);
	readable = true;
	seconds += 59;
	pass("", 5);
	/* nothing is adopted into a pod that this node has no pool of */
	seconds += 1;
	pool.pod_uuid[0]++;
	pass("", 5);
	pool.pod_uuid[0]--;
	/* neither what its owner stopped */
	found.clean = true;
	pass("", 5);
	found.clean = false;
	pass("", 5);
	seconds += 60;
	assert_int_equal(nr_imports, 0);
	pass(ADOPTS ": done\n", 5);
	assert_int_equal(nr_imports, 1);
	seconds += 600;
	pass("", 5);
	assert_int_equal(nr_imports, 1);
}

/* Another node was faster: it is told once, and the new owner writes. */
TEST_WITH(test_adopt_lost, begin_pod, end)
{
	pass("", 5);
	seconds += 60;
	admin_err = -EBUSY;
	pass(ADOPTS ": failed: Device or resource busy: no\n", 1);
	seconds++;
	pass("", 2);
	seconds += 2;
	pass("", 4);
	assert_int_equal(nr_imports, 3);
	beat++;
	seconds += 4;
	pass("", 5);
	assert_int_equal(nr_imports, 3);
}

/* A pool is adopted as a whole, under a free name, and only if the file says so. */
TEST_WITH(test_adopt_not, begin_pod, end)
{
	pass("", 5);
	found.nr_members = 2;
	seconds += 60;
	pass("pool kv0 of node a: not adopted, because not all members are found once; see: kvblk pool import --scan: note\n", 5);
	found.nr_members = 1;
	config_free(&config);
	assert_int_equal(config_parse("pools = ( { name = \"kv0\"; pod: { name = \"rack7\"; follow = false; }; } );",
				      &config, stderr), 0);
	seconds += 6000;
	pass("", -1);
	config_free(&config);
	assert_int_equal(config_parse("pools = ( { name = \"kv0\"; pod: { name = \"rack7\"; follow = false; adopt_after = 60; }; }, { name = \"kv0-a\"; } );",
				      &config, stderr), 0);
	imports = "kv0-a-2";
	pass("pool kv0-a: waiting for its members, none found; to create a new pool, run: kvblk pool create: note\n"
	     "adopt pool kv0 of node a in pod rack7 as kv0-a-2: the node has written nothing for 60 s: done\n", 5);
	assert_int_equal(nr_imports, 1);
}

TEST_MAIN("apply")
