// SPDX-License-Identifier: MIT
/*
 * A program of version 1.0 of the libraries: compiled with the headers as they were released then
 * (abi/lib-1.0), linked with libraries that have only the symbols of then, and run with the
 * libraries of today on the pool of libkvblk-fake. It calls what the headers have. Behind each
 * structure that it allocates is a pattern, which no library may change. Rule: it is not touched
 * when the libraries grow.
 *
 * usage: program, with KVBLK_FAKE_DRAM=1048576 in the environment
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <kvblk.h>
#include <kvblk_admin.h>
#include <kvblk_keys.h>

#define LEN	10000u
#define NR	4

#define EXPECT(cond)	expect(!!(cond), #cond, __LINE__)

/* @it, and bytes that belong to another variable of the program */
#define GUARDED(type, name)				\
	struct {					\
		type it;				\
		unsigned char behind[64];		\
	} name = { .behind = { 0 } };			\
	memset(name.behind, 0xa5, sizeof(name.behind))
#define INTACT(name)	intact((name).behind, sizeof((name).behind))

static unsigned char data[LEN], room[LEN];
static unsigned int failures, nr_tests;

static void expect(bool good, const char *what, int line)
{
	if (good)
		return;
	failures++;
	printf("# line %d: %s\n", line, what);
}

static bool intact(const unsigned char *behind, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (behind[i] != 0xa5)
			return false;
	return true;
}

static void test_version(struct kvblk *kv)
{
	int major, minor;

	EXPECT(sscanf(kvblk_version(), "%d.%d", &major, &minor) == 2);
	EXPECT(major == KVBLK_VERSION_MAJOR && minor >= KVBLK_VERSION_MINOR);
	EXPECT(!strcmp(kvblk_result_text(0), "success") && *kvblk_result_text(-ENOENT));
	EXPECT(kvblk_result_action(1) == KVBLK_DO_NOTHING);
	EXPECT(kvblk_result_action(-ENOENT) == KVBLK_DO_RECOMPUTE);
	EXPECT(kvblk_result_action(-ENOBUFS) == KVBLK_DO_SKIP);
	EXPECT(kvblk_result_action(-EINVAL) == KVBLK_DO_REPORT);
}

static void test_open(struct kvblk *kv)
{
	struct kvblk *other = NULL;
	int fd;

	EXPECT(kvblk_open("absent", 0, &other) == -ENODEV);
	EXPECT(!kvblk_open("fake", KVBLK_OPEN_RDONLY, &other));
	EXPECT(kvblk_put(other, "k", 1, "x", 1, NULL) == -EBADF);
	kvblk_close(other);
	fd = open("/dev/kvblk/fake/default", O_RDWR);
	EXPECT(!kvblk_open_fd(fd, &other) && kvblk_fd(other) == fd);
	kvblk_close(other);
}

static void test_info(struct kvblk *kv)
{
	GUARDED(struct kvblk_info, info);

	EXPECT(!kvblk_get_info(kv, &info.it, sizeof(info.it)));
	EXPECT(info.it.size == sizeof(info.it) && !strcmp(info.it.pool_name, "fake"));
	EXPECT(info.it.features & KVBLK_FEAT_URING && info.it.features & KVBLK_FEAT_DRAM);
	EXPECT(INTACT(info));
}

static void test_single_blocks(struct kvblk *kv)
{
	GUARDED(struct kvblk_put_options, put);
	GUARDED(struct kvblk_get_options, get);
	uint32_t length = 1;
	size_t len = LEN;

	KVBLK_INIT(&put.it);
	put.it.priority = KVBLK_PRIORITY_MAX;
	put.it.ttl_s = 1000;
	put.it.layout_tag = 5;
	put.it.caller_tag = 6;
	put.it.parent = "parent";
	put.it.parent_len = 6;
	EXPECT(!kvblk_put(kv, "one", 3, data, LEN, &put.it));
	EXPECT(kvblk_put(kv, "one", 3, data, LEN, NULL) == -EEXIST);
	EXPECT(!kvblk_exists(kv, "one", 3, &length) && length == LEN);
	KVBLK_INIT(&get.it);
	get.it.flags = KVBLK_OPF_LAYOUT;
	get.it.layout_tag = 5;
	EXPECT(!kvblk_get(kv, "one", 3, room, &len, &get.it) && len == LEN);
	EXPECT(!memcmp(room, data, LEN));
	get.it.flags = KVBLK_OPF_PARTIAL;
	get.it.layout_tag = 0;
	get.it.offset = LEN - 10;
	EXPECT(!kvblk_get(kv, "one", 3, room, &len, &get.it) && len == 10);
	EXPECT(!kvblk_delete(kv, "one", 3) && kvblk_delete(kv, "one", 3) == -ENOENT);
	len = 0;
	EXPECT(kvblk_get(kv, "one", 3, NULL, &len, NULL) == -ENOENT);
	EXPECT(INTACT(put) && INTACT(get));
}

/* Exported calls have the names of inline ones, which a program in C cannot link. */
static void *exported(const char *name)
{
	void *call = dlvsym(RTLD_DEFAULT, name, "KVBLK_1.0");

	EXPECT(call);
	return call;
}

static void test_exported_calls(struct kvblk *kv)
{
	static const char *const names[] = { "kvblk_prep_put", "kvblk_prep_get" };
	void (*prep)(struct kvblk_op *op, const void *key, size_t key_len,
		     const struct kvblk_piece *pieces, unsigned int nr_pieces);
	void (*prep_delete)(struct kvblk_op *op, const void *key, size_t key_len);
	void (*prep_ext)(struct kvblk_op *op, struct kvblk_op_ext *ext);
	GUARDED(struct kvblk_op, op);
	GUARDED(struct kvblk_op, same);
	GUARDED(struct kvblk_op_ext, ext);
	GUARDED(struct kvblk_piece, piece);

	EXPECT(!kvblk_prep_piece(&piece.it, NULL, (uintptr_t)data, LEN));
	for (unsigned int i = 0; i < 2; i++) {
		prep = exported(names[i]);
		if (!prep)
			return;
		prep(&op.it, "one", 3, &piece.it, 1);
		(i ? kvblk_prep_get : kvblk_prep_put)(&same.it, "one", 3, &piece.it, 1);
		EXPECT(!memcmp(&op.it, &same.it, sizeof(op.it)));
	}
	prep_delete = exported("kvblk_prep_delete");
	if (!prep_delete)
		return;
	prep_delete(&op.it, "one", 3);
	kvblk_prep_delete(&same.it, "one", 3);
	EXPECT(!memcmp(&op.it, &same.it, sizeof(op.it)));
	prep_delete = exported("kvblk_prep_prefetch");
	if (!prep_delete)
		return;
	prep_delete(&op.it, "one", 3);
	kvblk_prep_prefetch(&same.it, "one", 3);
	EXPECT(!memcmp(&op.it, &same.it, sizeof(op.it)));
	prep_ext = exported("kvblk_prep_ext");
	if (!prep_ext)
		return;
	prep_ext(&op.it, &ext.it);
	EXPECT(op.it.ext == (uintptr_t)&ext.it && ext.it.size == sizeof(ext.it));
	EXPECT(INTACT(op) && INTACT(same) && INTACT(ext) && INTACT(piece));
}

static char keys[NR][16];
static struct kvblk_piece piece;
static struct kvblk_op ops[NR];

static void prepare(uint8_t opcode)
{
	EXPECT(!kvblk_prep_piece(&piece, NULL, (uintptr_t)data, 100));
	for (unsigned int i = 0; i < NR; i++) {
		snprintf(keys[i], sizeof(keys[i]), "key %03u", i);
		if (opcode == KVBLK_OP_PUT)
			kvblk_prep_put(&ops[i], keys[i], 7, &piece, 1);
		else
			kvblk_prep_delete(&ops[i], keys[i], 7);
		ops[i].cookie = i + 1;
	}
}

static void test_batch(struct kvblk *kv)
{
	struct { struct kvblk_result it[NR]; unsigned char behind[64]; } results;
	struct kvblk_op_ext ext;
	struct kvblk_op op;
	unsigned int found = 7;

	memset(results.behind, 0xa5, sizeof(results.behind));
	prepare(KVBLK_OP_PUT);
	EXPECT(!kvblk_submit(kv, ops, NR, results.it, KVBLK_SUBMIT_CHAIN));
	for (unsigned int i = 0; i < NR; i++)
		EXPECT(results.it[i].res == 100 && results.it[i].cookie == i + 1);
	kvblk_prep_get(&op, keys[0], 7, &piece, 1);
	kvblk_prep_ext(&op, &ext);
	op.flags = KVBLK_OPF_LAYOUT;
	ext.layout_tag = 1;
	EXPECT(!kvblk_submit(kv, &op, 1, results.it, 0) && results.it[0].res == -ENOENT);
	prepare(KVBLK_OP_DELETE);
	EXPECT(!kvblk_submit(kv, ops, NR, results.it, 0));
	for (unsigned int i = 0; i < NR; i++)
		EXPECT(!results.it[i].res);
	EXPECT(kvblk_cancel(kv, 1, &found) == -ENOENT && !found);
	EXPECT(!kvblk_drain(kv, 0));
	EXPECT(INTACT(results));
}

static void test_memory(struct kvblk *kv)
{
	GUARDED(struct kvblk_mem_options, options);
	GUARDED(struct kvblk_mem_info, info);
	GUARDED(struct kvblk_piece, at);
	struct kvblk_put_options put = { .size = sizeof(put) };
	struct kvblk_mem *mem = NULL;

	KVBLK_INIT(&options.it);
	options.it.lanes = 3;
	EXPECT(!kvblk_mem_register(kv, data, LEN, &options.it, &mem));
	if (!mem)
		return;
	EXPECT(kvblk_mem_addr(mem) == data);
	KVBLK_INIT(&info.it);
	EXPECT(!kvblk_mem_get_info(mem, &info.it));
	EXPECT(info.it.size == sizeof(info.it) && info.it.kind == KVBLK_MEM_REGISTERED);
	EXPECT(info.it.length == LEN);
	EXPECT(!kvblk_prep_piece(&at.it, mem, 10, 20));
	EXPECT(kvblk_prep_piece(&at.it, mem, LEN, 1) == -EFAULT);
	put.mem = mem;
	EXPECT(!kvblk_put(kv, "mem", 3, data + 10, 20, &put) && !kvblk_delete(kv, "mem", 3));
	kvblk_mem_unregister(mem);
	EXPECT(!kvblk_mem_alloc(kv, "host", LEN, NULL, &mem));
	kvblk_mem_unregister(mem);
	EXPECT(INTACT(options) && INTACT(info) && INTACT(at));
}

static void test_queue(struct kvblk *kv, unsigned int threads)
{
	struct { struct kvblk_completion it[NR]; unsigned char behind[64]; } completions;
	GUARDED(struct kvblk_queue_options, options);
	struct kvblk_queue *queue = NULL;
	struct pollfd ready = { .events = POLLIN };
	unsigned int last = 0;

	memset(completions.behind, 0xa5, sizeof(completions.behind));
	KVBLK_INIT(&options.it);
	options.it.threads = threads;
	options.it.depth = 2 * NR;
	EXPECT(!kvblk_queue_create(kv, &options.it, &queue));
	if (!queue)
		return;
	for (uint8_t opcode = KVBLK_OP_PUT; opcode; opcode = opcode == KVBLK_OP_PUT ? KVBLK_OP_DELETE : 0) {
		int res = opcode == KVBLK_OP_PUT ? 100 : 0;

		prepare(opcode);
		EXPECT(!kvblk_queue_submit(queue, ops, NR, KVBLK_SUBMIT_CHAIN, &last));
		ready.fd = kvblk_queue_eventfd(queue);
		EXPECT(poll(&ready, 1, 60000) == 1);
		EXPECT(kvblk_queue_wait(queue, completions.it, NR, NR, 0) == NR);
		last = 0;
		for (unsigned int i = 0; i < NR; i++) {
			const struct kvblk_completion *c = &completions.it[i];

			EXPECT(c->tag == &last && c->res == res && c->cookie == c->index + 1);
			last += !c->left;
		}
		EXPECT(last == 1);
	}
	EXPECT(kvblk_queue_cancel(queue, &last) == -ENOENT && !kvblk_queue_drain(queue, 0));
	kvblk_queue_stop(queue);
	EXPECT(kvblk_queue_submit(queue, ops, 1, 0, NULL) == -ECANCELED);
	kvblk_queue_destroy(queue);
	EXPECT(INTACT(options) && INTACT(completions));
}

static void test_ring(struct kvblk *kv)
{
	test_queue(kv, 0);
}

static void test_threads(struct kvblk *kv)
{
	test_queue(kv, 2);
}

static void test_lookups(struct kvblk *kv)
{
	GUARDED(struct kvblk_lookup, lookup);
	GUARDED(struct kvblk_prefix, prefix);
	uint32_t sizes[3] = { 1, 1, 1 };
	uint8_t bitmap = 0;

	EXPECT(!kvblk_put(kv, "a", 1, data, 1, NULL) && !kvblk_put(kv, "b", 1, data, 2, NULL));
	memset(&lookup.it, 0, sizeof(lookup.it));
	lookup.it.flags = KVBLK_LOOKUP_LEASE;
	lookup.it.nr_keys = 3;
	lookup.it.key_stride = 1;
	lookup.it.keys = (uintptr_t)"abc";
	lookup.it.bitmap = (uintptr_t)&bitmap;
	lookup.it.sizes = (uintptr_t)sizes;
	lookup.it.lease_ms = 60000;
	EXPECT(!kvblk_lookup_keys(kv, &lookup.it, sizeof(lookup.it)));
	EXPECT(lookup.it.size == sizeof(lookup.it) && bitmap == 3);
	EXPECT(lookup.it.nr_leading == 2 && lookup.it.nr_present == 2 && lookup.it.nr_leased == 2);
	EXPECT(sizes[0] == 1 && sizes[1] == 2 && !sizes[2] && lookup.it.lease_end_ns);
	EXPECT(!kvblk_lease_release(kv, lookup.it.lease));
	EXPECT(kvblk_lease_release(kv, lookup.it.lease) == -ENOENT && !kvblk_lease_release(kv, 0));
	KVBLK_INIT(&prefix.it);
	EXPECT(!kvblk_lookup_prefix(kv, "abc", 1, 3, 60000, &prefix.it));
	EXPECT(prefix.it.size == sizeof(prefix.it) && prefix.it.nr_leading == 2);
	EXPECT(prefix.it.nr_leased == 2 && prefix.it.lease && prefix.it.lease_end_ns);
	EXPECT(!kvblk_lease_release(kv, prefix.it.lease));
	EXPECT(INTACT(lookup) && INTACT(prefix));
}

static void test_prestage(struct kvblk *kv)
{
	struct { struct kvblk_prestaged it[3]; unsigned char behind[64]; } prestaged;
	GUARDED(struct kvblk_prestage_options, options);
	GUARDED(struct kvblk_prestage_sum, sum);
	static const uint16_t lens[3] = { 1, 1, 1 };

	memset(prestaged.behind, 0xa5, sizeof(prestaged.behind));
	KVBLK_INIT(&options.it);
	options.it.lease_ms = 60000;
	KVBLK_INIT(&sum.it);
	/* the blocks of test_lookups() */
	EXPECT(!kvblk_prestage(kv, "abc", lens, 3, &options.it, prestaged.it, &sum.it));
	EXPECT(sum.it.size == sizeof(sum.it) && sum.it.nr_here == 2 && sum.it.nr_leading == 2);
	EXPECT(sum.it.nr_leased == 2 && sum.it.loaded_bytes == 3 && sum.it.lease_end_ns);
	EXPECT(!kvblk_lease_release(kv, sum.it.lease));
	EXPECT(prestaged.it[0].state == KVBLK_PRESTAGE_LOADED && prestaged.it[1].length == 2);
	EXPECT(prestaged.it[2].state == KVBLK_PRESTAGE_MISSING);
	EXPECT(!strcmp(kvblk_prestage_state_name(KVBLK_PRESTAGE_LOADED), "loaded"));
	EXPECT(INTACT(prestaged) && INTACT(options) && INTACT(sum));
}

/* The key space is a test vector of Documentation/keys.rst. */
static void test_keys(struct kvblk *kv)
{
	static const uint8_t digest[16] = {
		0xe7, 0x94, 0x08, 0x58, 0xf1, 0x75, 0x6b, 0x79,
		0x0e, 0x5d, 0x78, 0xb1, 0x22, 0xca, 0x70, 0xf1,
	};
	GUARDED(struct kvblk_keyspace_spec, spec);
	GUARDED(struct kvblk_keyspace, space);
	uint8_t id[KVBLK_BLOCK_ID_LEN], key[KVBLK_KEY_MAX];
	char salt[KVBLK_SALT_LEN + 1];
	const char *why = NULL;
	size_t len = sizeof(key);
	uint32_t token = 1;

	memset(&spec.it, 0, sizeof(spec.it));
	spec.it.size = sizeof(spec.it);
	spec.it.block_tokens = 64;
	spec.it.runtime = "example/1";
	spec.it.model = "tiny";
	spec.it.dtype = "float16";
	spec.it.layout = "LKTHD";
	EXPECT(!kvblk_keyspace_init(&space.it, &spec.it));
	EXPECT(!memcmp(space.it.digest, digest, sizeof(digest)));
	kvblk_block_id(NULL, &token, 1, NULL, 0, id);
	EXPECT(!kvblk_keyspace_key(&space.it, id, sizeof(id), key, &len));
	EXPECT(len == KVBLK_KEYSPACE_LEN + sizeof(id) && !memcmp(key, "kvb1", 4));
	EXPECT(!memcmp(key + KVBLK_KEYSPACE_LEN, id, sizeof(id)));
	EXPECT(kvblk_keyspace_salt("/nonexistent/salt", salt, &why) == -ENOENT && why && !*salt);
	EXPECT(INTACT(spec) && INTACT(space));
}

/* Administration as far as it works without the module. */
static void test_admin(struct kvblk *kv)
{
	GUARDED(struct kvblk_changes, changes);
	struct kvblk_admin *admin = NULL;
	struct kvblk_found *found = NULL;
	const char *null = "/dev/null";
	struct {
		char it[32];
		unsigned char behind[64];
	} text;
	const struct kvblk_notice notice = { .type = UINT32_MAX, .pool = "kv0" };

	EXPECT(!strcmp(kvblk_name(KVBLK_NAME_MEMBER_STATUS, KVBLK_MEMBER_STATUS_UP), "up"));
	EXPECT(!strcmp(kvblk_name(KVBLK_NAME_EVENT, UINT32_MAX), "unknown"));
	memset(text.behind, 0xa5, sizeof(text.behind));
	kvblk_event_text(&notice, text.it, sizeof(text.it));
	EXPECT(memchr(text.it, 0, sizeof(text.it)));
	memset(&changes.it, 0, sizeof(changes.it));
	changes.it.size = sizeof(changes.it);
	changes.it.nr_records = KVBLK_CHANGES_MIN;
	changes.it.record_size = sizeof(struct kvblk_change);
	EXPECT(kvblk_changes_open("absent", O_NONBLOCK, &changes.it) == -ENODEV);
	kvblk_scan(&null, 1, &found);
	kvblk_list_free(found);
	/* hosts with the module have a family, others return an error */
	if (!kvblk_admin_open(&admin)) {
		EXPECT(!kvblk_admin_request(admin) && kvblk_admin_message(admin));
		EXPECT(kvblk_admin_wait(admin, 0) == -EINVAL);
	}
	kvblk_admin_close(admin);
	kvblk_feed_close(NULL);
	EXPECT(INTACT(changes) && INTACT(text));
}

static const struct {
	const char *name;
	void (*run)(struct kvblk *kv);
} tests[] = {
	{ "version", test_version },
	{ "open", test_open },
	{ "info", test_info },
	{ "single_blocks", test_single_blocks },
	{ "exported_calls", test_exported_calls },
	{ "batch", test_batch },
	{ "memory", test_memory },
	{ "ring", test_ring },
	{ "threads", test_threads },
	{ "lookups", test_lookups },
	{ "prestage", test_prestage },
	{ "keys", test_keys },
	{ "admin", test_admin },
};

int main(void)
{
	struct kvblk *kv = NULL;
	bool failed = false;
	int err = kvblk_open("fake", 0, &kv);

	if (err) {
		printf("not ok 1 abi-lib-1.0: no fake pool: %s\n", strerror(-err));
		return 1;
	}
	for (unsigned int i = 0; i < LEN; i++)
		data[i] = (unsigned char)(i * 2654435761u >> 24);
	for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++) {
		failures = 0;
		tests[i].run(kv);
		failed |= failures;
		printf("%sok %u abi-lib-1.0: %s\n", failures ? "not " : "", ++nr_tests, tests[i].name);
	}
	kvblk_close(kv);
	return failed;
}
