// SPDX-License-Identifier: MIT
/*
 * libkvblk, used as by a runtime, on the pool of libkvblk-fake; VM tests cover the rest.
 * install_test.sh builds and runs this program.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <kvblk.h>

static int nr_tests, nr_failed;

#define CHECK(condition) check(!!(condition), #condition, __LINE__)

static void check(int good, const char *what, int line)
{
	if (good)
		return;
	nr_failed++;
	printf("  # line %d: %s\n", line, what);
}

static void verdict(const char *name)
{
	static int failed_before;

	printf("%s %d lib: %s\n", nr_failed == failed_before ? "ok" : "not ok",
	       ++nr_tests, name);
	failed_before = nr_failed;
}

static void opening(void)
{
	char fifo[] = "/tmp/kvblk-lib-test-XXXXXX", name[300];
	struct kvblk *kv;
	int fd;

	memset(name, 'x', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	CHECK(kvblk_open(NULL, 0, &kv) == -EINVAL);
	CHECK(kvblk_open("", 0, &kv) == -EINVAL);
	CHECK(kvblk_open("fake", 2, &kv) == -EINVAL);
	CHECK(kvblk_open("absent", 0, &kv) == -ENODEV);
	CHECK(kvblk_open("/dev/absent", 0, &kv) == -ENODEV);
	CHECK(kvblk_open("/dev/null/absent", 0, &kv) == -ENODEV);
	CHECK(kvblk_open(name, 0, &kv) == -ENAMETOOLONG);
	CHECK(kvblk_open("/dev/null", 0, &kv) == -ENOTTY);
	CHECK(kvblk_open("/etc/passwd", KVBLK_OPEN_RDONLY, &kv) == -ENOTTY);
	CHECK(mkdtemp(fifo) && !rmdir(fifo) && !mkfifo(fifo, 0600));
	CHECK(kvblk_open(fifo, 0, &kv) == -ENOTTY);
	unlink(fifo);
	kvblk_close(NULL);
	verdict("what is no pool is refused");

	fd = open("/dev/null", O_RDWR);
	CHECK(kvblk_open_fd(fd, &kv) == -ENOTTY && !close(fd));
	CHECK(kvblk_open_fd(-1, &kv) == -EBADF);
	CHECK(!kvblk_open("fake", KVBLK_OPEN_RDONLY, &kv));
	CHECK(kvblk_put(kv, "k", 1, "x", 1, NULL) == -EBADF);
	CHECK(kvblk_exists(kv, "k", 1, NULL) == -ENOENT);
	kvblk_close(kv);
	fd = open("/dev/kvblk/fake/default", O_RDWR);
	CHECK(!kvblk_open_fd(fd, &kv) && kvblk_fd(kv) == fd);
	kvblk_close(kv);
	verdict("read-only pools, and pools of a descriptor");
}

static void single(struct kvblk *kv)
{
	struct kvblk_put_options put = { .size = sizeof(put), .priority = 3, .parent_len = 513 };
	struct kvblk_get_options part = { .size = sizeof(part), .flags = KVBLK_OPF_PARTIAL, .offset = 9950 };
	struct kvblk_get_options layout = { .size = sizeof(layout), .flags = KVBLK_OPF_LAYOUT, .layout_tag = 7 };
	static unsigned char data[10000], buf[20000], key[513];
	struct kvblk_info info;
	struct kvblk_mem *mem;
	uint32_t size = 1;
	size_t len;

	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (unsigned char)(i * 7);
	CHECK(!kvblk_get_info(kv, &info, sizeof(info)) && !strcmp(info.pool_name, "fake"));
	CHECK(info.features & KVBLK_FEAT_URING && info.dma_align && info.chunk_size && info.value_max);
	CHECK(kvblk_fd(kv) >= 0);
	CHECK(kvblk_exists(kv, "k", 1, &size) == -ENOENT && !size);
	CHECK(kvblk_delete(kv, "k", 1) == -ENOENT);
	len = sizeof(buf);
	CHECK(kvblk_get(kv, "k", 1, buf, &len, NULL) == -ENOENT);
	len = 0;
	CHECK(kvblk_get(kv, "k", 1, NULL, &len, NULL) == -ENOENT);
	CHECK(!kvblk_put(kv, "k", 1, data, sizeof(data), NULL));
	CHECK(kvblk_put(kv, "k", 1, data, 1, NULL) == -EEXIST);
	CHECK(!kvblk_exists(kv, "k", 1, &size) && size == sizeof(data));
	CHECK(!kvblk_exists(kv, "k", 1, NULL));
	len = sizeof(buf);
	CHECK(!kvblk_get(kv, "k", 1, buf, &len, NULL) && len == sizeof(data));
	CHECK(!memcmp(buf, data, sizeof(data)));
	len = 9999;
	CHECK(kvblk_get(kv, "k", 1, buf, &len, NULL) == -EMSGSIZE && len == 10000);
	len = 0;
	CHECK(kvblk_get(kv, "k", 1, NULL, &len, NULL) == -EMSGSIZE && len == 10000);
	len = 100;
	CHECK(!kvblk_get(kv, "k", 1, buf, &len, &part) && len == 50);
	CHECK(!memcmp(buf, data + 9950, 50));
	part.offset = 10000;
	CHECK(kvblk_get(kv, "k", 1, buf, &len, &part) == -ERANGE);
	len = sizeof(buf);
	CHECK(kvblk_get(kv, "k", 1, buf, &len, &layout) == -ENOENT);
	CHECK(!kvblk_delete(kv, "k", 1));
	CHECK(kvblk_exists(kv, "k", 1, NULL) == -ENOENT);
	verdict("single blocks");

	len = sizeof(buf);
	CHECK(kvblk_put(kv, key, 0, data, 1, NULL) == -EINVAL);
	CHECK(kvblk_put(kv, key, 513, data, 1, NULL) == -EINVAL);
	CHECK(kvblk_put(kv, key, 512, data, 1, &put) == -EINVAL);
	CHECK(kvblk_get(kv, key, 0, buf, &len, NULL) == -EINVAL);
	CHECK(kvblk_get(kv, key, 513, buf, &len, NULL) == -EINVAL);
	CHECK(kvblk_get(kv, key, 513, buf, &len, &part) == -EINVAL);
	CHECK(kvblk_delete(kv, key, 65537) == -EINVAL);
	CHECK(kvblk_exists(kv, key, 513, NULL) == -EINVAL);
	verdict("keys of a wrong length are refused");

	put = (struct kvblk_put_options){ .size = sizeof(put), .parent = "p", .parent_len = 1, .layout_tag = 7 };
	CHECK(!kvblk_mem_register(kv, data, sizeof(data), NULL, &mem));
	put.mem = mem;
	CHECK(!kvblk_put(kv, "m", 1, data + 100, 200, &put));
	CHECK(kvblk_put(kv, "n", 1, data + 9900, 101, &put) == -EFAULT);
	layout.mem = mem;
	len = 300;
	CHECK(!kvblk_get(kv, "m", 1, data + 5000, &len, &layout) && len == 200);
	CHECK(!memcmp(data + 100, data + 5000, 200));
	len = 1;
	CHECK(kvblk_get(kv, "m", 1, data + sizeof(data), &len, &layout) == -EFAULT);
	kvblk_mem_unregister(mem);
	put = (struct kvblk_put_options){ .size = sizeof(put), .deadline_ns = 1 };
	layout = (struct kvblk_get_options){ .size = sizeof(layout), .deadline_ns = 1 };
	setenv("KVBLK_FAKE_DELAY_MS", "1", 1);
	CHECK(kvblk_put(kv, "late", 4, data, 1, &put) == -ETIME);
	len = 300;
	CHECK(kvblk_get(kv, "m", 1, buf, &len, &layout) == -ETIME);
	unsetenv("KVBLK_FAKE_DELAY_MS");
	verdict("registered memory, tags and deadlines of single blocks");
}

static void batches(struct kvblk *kv)
{
	struct kvblk_prefix prefix = { .size = sizeof(prefix) };
	struct kvblk_result results[3];
	struct kvblk_piece pieces[2];
	struct kvblk_op_ext ext;
	struct kvblk_op ops[3];
	char data[] = "0123456789", buf[10] = "";
	unsigned int nr = 77;

	CHECK(!kvblk_prep_piece(&pieces[0], NULL, (uintptr_t)data, 4));
	CHECK(!kvblk_prep_piece(&pieces[1], NULL, (uintptr_t)data + 4, 6));
	kvblk_prep_put(&ops[0], "a0", 2, pieces, 2);
	kvblk_prep_put(&ops[1], "a1", 2, pieces, 1);
	kvblk_prep_delete(&ops[2], "zz", 2);
	kvblk_prep_ext(&ops[0], &ext);
	ext.caller_tag = 77;
	ops[2].cookie = 42;
	CHECK(!kvblk_submit(kv, ops, 3, results, 0));
	CHECK(results[0].res == 10 && results[1].res == 4);
	CHECK(results[2].res == -ENOENT && results[2].cookie == 42);
	CHECK(!kvblk_prep_piece(&pieces[0], NULL, (uintptr_t)buf, sizeof(buf)));
	kvblk_prep_get(&ops[0], "a0", 2, pieces, 1);
	CHECK(!kvblk_submit(kv, ops, 1, results, 0));
	CHECK(results[0].res == 10 && results[0].caller_tag == 77);
	CHECK(!memcmp(buf, data, 10));
	CHECK(kvblk_submit(kv, ops, 0, results, 0) == -EINVAL);
	CHECK(kvblk_submit(kv, ops, KVBLK_OPS_MAX + 1, results, 0) == -EINVAL);
	verdict("a batch has a result for each operation");

	CHECK(!kvblk_lookup_prefix(kv, "a0a1a2", 2, 3, 1000, &prefix));
	CHECK(prefix.nr_leading == 2 && prefix.nr_leased == 2 && prefix.lease && prefix.lease_end_ns);
	CHECK(!kvblk_lease_release(kv, prefix.lease));
	CHECK(kvblk_lease_release(kv, prefix.lease) == -ENOENT);
	CHECK(!kvblk_lease_release(kv, 0));
	/* a block without a lease may be evicted before the fetch */
	setenv("KVBLK_FAKE_LEASE_KEYS", "1", 1);
	CHECK(!kvblk_lookup_prefix(kv, "a0a1a2", 2, 3, 1000, &prefix));
	CHECK(prefix.nr_leading == 1 && prefix.nr_leased == 1);
	CHECK(!kvblk_lease_release(kv, prefix.lease));
	unsetenv("KVBLK_FAKE_LEASE_KEYS");
	CHECK(!kvblk_lookup_prefix(kv, "a0a1a2", 2, 3, 0, &prefix));
	CHECK(prefix.nr_leading == 2 && !prefix.nr_leased && !prefix.lease && !prefix.lease_end_ns);
	CHECK(!kvblk_lookup_prefix(kv, "b0", 2, 1, 1000, &prefix));
	CHECK(!prefix.nr_leading && !prefix.lease);
	CHECK(kvblk_lookup_prefix(kv, "b0", 0, 1, 0, &prefix) == -EINVAL);
	verdict("prefix lookups and leases");

	CHECK(kvblk_cancel(kv, 1, &nr) == -ENOENT && !nr);
	CHECK(kvblk_cancel(kv, 0, NULL) == -EINVAL);
	CHECK(!kvblk_drain(kv, 0));
	verdict("cancel and drain of nothing");

	/* truncated to 16 bits, both numbers would be valid */
	kvblk_prep_put(&ops[0], "a", 65536 + 1, pieces, 65536 + 1);
	CHECK(ops[0].key_len > KVBLK_KEY_MAX);
	CHECK(ops[0].nr_pieces > KVBLK_PIECES_MAX);
	CHECK(kvblk_prep_piece(&pieces[0], NULL, (uintptr_t)data, 0) == -EINVAL);
	CHECK(sizeof(size_t) == 4 ||
	      kvblk_prep_piece(&pieces[0], NULL, (uintptr_t)data, (size_t)(1ull << 32)) == -EINVAL);
	verdict("lengths are never cut to fit");
}

/* Hints: the values arrive, absent blocks are skipped, wrong ones are refused. */
static void hints(struct kvblk *kv)
{
	static uint16_t lens[200];
	static char many[200 * 4];
	struct kvblk_hint hint = { .size = sizeof(hint), .flags = KVBLK_OPF_RELEASE };
	struct { struct kvblk_hint it; uint64_t more; } longer = { .it.size = sizeof(longer), .more = 1 };
	char path[] = "/tmp/hints.XXXXXX", line[64];
	struct kvblk *reader;
	unsigned int nr = 7;
	FILE *file;

	CHECK(close(mkstemp(path)) == 0);
	setenv("KVBLK_FAKE_HINTS", path, 1);
	for (unsigned int i = 0; i < 200; i++) {
		lens[i] = 4;
		snprintf(line, sizeof(line), "h%03u", i);
		memcpy(many + 4 * i, line, 4);
		CHECK(i % 2 || !kvblk_put(kv, many + 4 * i, 4, "x", 1, NULL));
	}
	/* more than a batch */
	CHECK(!kvblk_hint_keys(kv, many, lens, 200, &hint, &nr) && nr == 100);
	CHECK(!kvblk_hint_keys(kv, many + 4, lens, 1, &hint, &nr) && !nr);
	CHECK(!kvblk_hint_keys(kv, many, lens, 1, &hint, NULL));
	hint.flags = KVBLK_OPF_PRIORITY | KVBLK_OPF_RETAIN | KVBLK_OPF_DEMOTE;
	hint.priority = 2;
	hint.retain_s = 60;
	CHECK(!kvblk_hint_keys(kv, many, lens, 1, &hint, &nr) && nr == 1);
	file = fopen(path, "r");
	for (unsigned int i = 0; file && i < 102; i++) {
		CHECK(fgets(line, sizeof(line), file));
		CHECK(i ? !!strstr(line, i < 101 ? " release\n" : "68303030 priority=2 retain=60 demote\n") :
		      !strcmp(line, "68303030 release\n"));
	}
	CHECK(file && !fgets(line, sizeof(line), file) && !fclose(file));
	hint.flags |= KVBLK_OPF_RELEASE;
	CHECK(kvblk_hint_keys(kv, many, lens, 1, &hint, NULL) == -EINVAL);
	hint.flags = 1u << 31;
	CHECK(kvblk_hint_keys(kv, many, lens, 1, &hint, NULL) == -EOPNOTSUPP);
	hint.flags = KVBLK_OPF_PRIORITY;
	CHECK(kvblk_hint_keys(kv, many, lens, 1, &hint, NULL) == -EINVAL);
	hint.retain_s = 0;
	hint.priority = 256;
	CHECK(kvblk_hint_keys(kv, many, lens, 1, &hint, NULL) == -EINVAL);
	hint.priority = 0;
	CHECK(kvblk_hint_keys(kv, many, lens, 0, &hint, NULL) == -EINVAL);
	CHECK(kvblk_hint_keys(kv, many, lens, KVBLK_LOOKUP_MAX + 1, &hint, NULL) == -EINVAL);
	CHECK(kvblk_hint_keys(kv, many, lens, 1, NULL, NULL) == -EINVAL);
	CHECK(kvblk_hint_keys(kv, many, lens, 1, &longer.it, NULL) == -E2BIG);
	hint.size = 4;
	CHECK(kvblk_hint_keys(kv, many, lens, 1, &hint, NULL) == -EINVAL);
	hint.size = sizeof(hint);
	CHECK(!kvblk_open("fake", KVBLK_OPEN_RDONLY, &reader));
	CHECK(kvblk_hint_keys(reader, many, lens, 1, &hint, NULL) == -EBADF);
	kvblk_close(reader);
	unsetenv("KVBLK_FAKE_HINTS");
	unlink(path);
	verdict("hints");
}

/* Structures of programs built with another version: shorter or longer than the library's. */
static void versions(struct kvblk *kv)
{
	struct { struct kvblk_prefix prefix; uint64_t more, guard; } prefix;
	struct { struct kvblk_info info; uint64_t guard; } info = { .guard = 7 };
	struct { struct kvblk_lookup lookup; uint64_t guard; } lookup = { .guard = 7 };
	struct { struct kvblk_put_options o; uint64_t more; } put = { .o.size = sizeof(put) };
	struct { struct kvblk_queue_options o; uint64_t more; } options = { .o.size = sizeof(options), .more = 1 };
	struct { struct kvblk_result result; uint64_t more; } results[2];
	struct kvblk_mem_options memory = { .size = 8 };
	struct kvblk_get_options get = { .size = 8 };
	struct kvblk_queue *queue;
	struct kvblk_piece piece;
	struct kvblk_mem *mem;
	struct kvblk_op ops[2];
	size_t len = 1;

	lookup.lookup.nr_keys = 1;
	lookup.lookup.key_stride = 1;
	lookup.lookup.keys = (uintptr_t)"v";
	CHECK(!kvblk_lookup_keys(kv, &lookup.lookup, KVBLK_LOOKUP_SIZE_VER0) && lookup.guard == 7);
	CHECK(lookup.lookup.size <= KVBLK_LOOKUP_SIZE_VER0);
	CHECK(kvblk_lookup_keys(kv, &lookup.lookup, KVBLK_LOOKUP_SIZE_VER0 - 8) == -EINVAL);
	CHECK(!kvblk_get_info(kv, &info.info, KVBLK_INFO_SIZE_VER0) && info.guard == 7);
	CHECK(kvblk_get_info(kv, &info.info, KVBLK_INFO_SIZE_VER0 - 1) == -EINVAL);
	memset(&prefix, 7, sizeof(prefix));
	prefix.prefix.size = sizeof(prefix.prefix) + sizeof(prefix.more);
	CHECK(!kvblk_lookup_prefix(kv, "v", 1, 1, 0, &prefix.prefix));
	CHECK(prefix.prefix.size == sizeof(prefix.prefix) && !prefix.prefix.lease);
	CHECK(prefix.guard == 0x0707070707070707);
	prefix.prefix.size = sizeof(prefix.prefix) - 8;
	prefix.prefix.lease_end_ns = 7;
	CHECK(kvblk_lookup_prefix(kv, "v", 1, 1, 0, &prefix.prefix) == -EINVAL && prefix.prefix.lease_end_ns == 7);

	put.more = 1;
	CHECK(kvblk_put(kv, "v", 1, "x", 1, &put.o) == -E2BIG);
	put.more = 0;
	CHECK(!kvblk_put(kv, "v", 1, "x", 1, &put.o));
	CHECK(kvblk_get(kv, "v", 1, &piece, &len, &get) == -EINVAL);
	CHECK(kvblk_mem_alloc(kv, "host", 1, &memory, &mem) == -EINVAL);
	CHECK(kvblk_queue_create(kv, &options.o, &queue) == -E2BIG);

	CHECK(!kvblk_prep_piece(&piece, NULL, (uintptr_t)&len, 1));
	for (int i = 0; i < 2; i++)
		kvblk_prep_get(&ops[i], "v", 1, &piece, 1);
	memset(results, 7, sizeof(results));
	CHECK(!kvblk_submit_sized(kv, ops, 2, &results[0].result, sizeof(results[0]), 0));
	CHECK(results[0].result.res == 1 && !results[0].more && results[1].result.res == 1 && !results[1].more);
	CHECK(kvblk_submit_sized(kv, ops, 2, &results[0].result, 32, 0) == -EINVAL);
	CHECK(!kvblk_delete(kv, "v", 1));
	verdict("structures of other versions");
}

/* Leases and registered memory belong to a handle, and end with it. */
static void handles(struct kvblk *kv)
{
	struct kvblk_prefix prefix = { .size = sizeof(prefix) };
	struct kvblk_result result;
	struct kvblk_piece piece;
	struct kvblk *other = NULL;
	struct kvblk_mem *mem = NULL;
	struct kvblk_op op;

	CHECK(!kvblk_open("fake", 0, &other) && !kvblk_mem_alloc(other, "host", 4096, NULL, &mem));
	CHECK(!kvblk_prep_piece(&piece, mem, 0, 10));
	kvblk_prep_put(&op, "h", 1, &piece, 1);
	CHECK(!kvblk_submit(kv, &op, 1, &result, 0) && result.res == -ENXIO);
	CHECK(!kvblk_submit(other, &op, 1, &result, 0) && result.res == 10);
	CHECK(!kvblk_lookup_prefix(other, "h", 1, 1, 1000, &prefix) && prefix.lease);
	CHECK(kvblk_lease_release(kv, prefix.lease) == -ENOENT);
	setenv("KVBLK_FAKE_LEASE", "1", 1);
	op.opcode = KVBLK_OP_GET;
	CHECK(!kvblk_submit(other, &op, 1, &result, 0) && result.res == 10);
	kvblk_mem_unregister(mem);
	kvblk_close(other);
	CHECK(kvblk_get(kv, "h", 1, &result, &(size_t){ sizeof(result) }, NULL) == -ENOENT);
	unsetenv("KVBLK_FAKE_LEASE");
	CHECK(!kvblk_delete(kv, "h", 1));
	verdict("what belongs to a handle");
}

/* Returns a letter for the state of each of the @nr keys at @got. */
static const char *states(const struct kvblk_prestaged *got, unsigned int nr)
{
	static char text[KVBLK_OPS_MAX * 3];

	for (unsigned int i = 0; i < nr; i++)
		text[i] = "?LRMCE"[got[i].state <= KVBLK_PRESTAGE_EXPIRED ? got[i].state : 0];
	text[nr] = '\0';
	return text;
}

#define NR_MANY	(KVBLK_OPS_MAX * 2 + 5)

/* More keys than a batch: states keep the order, and clipped keys are at the end. */
static void prestage_many(struct kvblk *kv)
{
	struct kvblk_prestage_options options = { .size = sizeof(options), .max_bytes = KVBLK_OPS_MAX + 3 };
	static struct kvblk_prestaged got[NR_MANY];
	static uint16_t lens[NR_MANY];
	static char keys[NR_MANY * 5 + 1];
	struct kvblk_prestage_sum sum = { .size = sizeof(sum) };

	for (int i = 0; i < NR_MANY; i++) {
		snprintf(keys + 5 * i, 6, "M%04d", i);
		lens[i] = 5;
		CHECK(!kvblk_put(kv, keys + 5 * i, 5, "x", 1, NULL));
	}
	CHECK(!kvblk_prestage(kv, keys, lens, NR_MANY, &options, got, &sum));
	CHECK(sum.nr_leading == KVBLK_OPS_MAX + 3 && sum.loaded_bytes == sum.nr_leading);
	options.max_bytes = 0;
	CHECK(!kvblk_prestage(kv, keys, lens, NR_MANY, &options, got, &sum));
	CHECK(sum.nr_leading == NR_MANY && sum.loaded_bytes == KVBLK_OPS_MAX + 2);
	CHECK(strspn(states(got, NR_MANY), "R") == KVBLK_OPS_MAX + 3);
	verdict("prestaging of more than a batch");
}

static void prestages(struct kvblk *kv)
{
	static const uint16_t lens[] = { 2, 3, 2, 2, 2 };
	static const char keys[] = "p0p-1p2p3p4", data[100];
	struct kvblk_prestage_options options = { .size = sizeof(options), .max_bytes = 250 };
	struct kvblk_prestaged got[5];
	struct kvblk_prestage_sum sum = { .size = sizeof(sum) };
	uint16_t bad = 0;

	CHECK(!kvblk_put(kv, "p0", 2, data, 100, NULL));
	CHECK(!kvblk_put(kv, "p2", 2, data, 50, NULL));
	CHECK(!kvblk_put(kv, "p3", 2, data, 100, NULL));
	CHECK(!kvblk_put(kv, "p4", 2, data, 1, NULL));
	CHECK(kvblk_prestage(kv, keys, lens, 5, &options, got, NULL) == -EOPNOTSUPP);
	setenv("KVBLK_FAKE_DRAM", "251", 1);
	CHECK(kvblk_prestage(kv, keys, lens, 0, NULL, got, NULL) == -EINVAL);
	CHECK(kvblk_prestage(kv, keys, lens, KVBLK_LOOKUP_MAX + 1, NULL, got, NULL) == -EINVAL);
	CHECK(kvblk_prestage(kv, keys, &bad, 1, NULL, got, NULL) == -EINVAL);
	bad = KVBLK_KEY_MAX + 1;
	CHECK(kvblk_prestage(kv, keys, &bad, 1, NULL, got, NULL) == -EINVAL);
	options.lease_ms = 1000;
	/* a lease that the caller could not release */
	CHECK(kvblk_prestage(kv, keys, lens, 5, &options, got, NULL) == -EINVAL);
	options.lease_ms = KVBLK_LEASE_MS_MAX + 1;
	CHECK(kvblk_prestage(kv, keys, lens, 5, &options, got, NULL) == -EINVAL);
	options = (struct kvblk_prestage_options){ .size = sizeof(options), .priority = KVBLK_PRIORITY_MAX + 1 };
	CHECK(kvblk_prestage(kv, keys, lens, 5, &options, got, NULL) == -EINVAL);
	verdict("prestaging that makes no sense is refused");

	options = (struct kvblk_prestage_options){ .size = sizeof(options), .stop_at_miss = true, .priority = 3 };
	CHECK(!kvblk_prestage(kv, keys, lens, 5, &options, got, &sum));
	CHECK(!strcmp(states(got, 5), "LMCCC") && got[0].length == 100);
	CHECK(sum.nr_leading == 1 && sum.nr_here == 1 && sum.loaded_bytes == 100 && !sum.lease);
	options = (struct kvblk_prestage_options){ .size = sizeof(options), .max_bytes = 149, .lease_ms = 1000 };
	CHECK(!kvblk_prestage(kv, keys, lens, 5, &options, got, &sum));
	/* p3 exceeds max_bytes, which clips all blocks behind it */
	CHECK(!strcmp(states(got, 5), "RMLCC") && got[1].length == 0 && got[3].length == 100);
	CHECK(sum.nr_leading == 1 && sum.nr_here == 2 && sum.loaded_bytes == 50);
	CHECK(sum.nr_leased == 2 && sum.lease && sum.lease_end_ns && !kvblk_lease_release(kv, sum.lease));
	CHECK(!kvblk_prestage(kv, keys, lens, 5, NULL, got, NULL));
	CHECK(!strcmp(states(got, 5), "RMRLL"));
	CHECK(!kvblk_put(kv, "p-1", 3, data, 1, NULL));
	CHECK(!kvblk_prestage(kv, keys, lens, 5, NULL, NULL, NULL));
	CHECK(!kvblk_prestage(kv, keys, lens, 5, NULL, got, &sum));
	CHECK(!strcmp(states(got, 5), "RCRRR") && sum.nr_leading == 1);
	verdict("prestaging: limits, a miss, what is there, no room");

	setenv("KVBLK_FAKE_DELAY_MS", "1", 1);
	options = (struct kvblk_prestage_options){ .size = sizeof(options), .deadline_ns = 1, .lease_ms = 1000 };
	CHECK(!kvblk_prestage(kv, keys, lens, 5, &options, got, &sum));
	CHECK(!strcmp(states(got, 5), "EEEEE") && !sum.nr_here && !sum.lease);
	unsetenv("KVBLK_FAKE_DELAY_MS");
	verdict("prestaging that is late");
	setenv("KVBLK_FAKE_DRAM", "100000", 1);
	prestage_many(kv);
}

static void results(void)
{
	static const struct { int res; enum kvblk_action action; } table[] = {
		{ 0, KVBLK_DO_NOTHING }, { 4096, KVBLK_DO_NOTHING }, { -EEXIST, KVBLK_DO_NOTHING },
		{ -ENOENT, KVBLK_DO_RECOMPUTE }, { -ETIME, KVBLK_DO_RECOMPUTE }, { -EIO, KVBLK_DO_RECOMPUTE },
		{ -ENOBUFS, KVBLK_DO_SKIP }, { -ENOSPC, KVBLK_DO_SKIP }, { -EALREADY, KVBLK_DO_SKIP },
		{ -EDQUOT, KVBLK_DO_SKIP },
		{ -ECANCELED, KVBLK_DO_SKIP }, { -EBUSY, KVBLK_DO_RETRY }, { -ENOMEM, KVBLK_DO_RETRY },
		{ -EAGAIN, KVBLK_DO_RETRY }, { -EINVAL, KVBLK_DO_REPORT }, { -EMSGSIZE, KVBLK_DO_REPORT },
		{ -12345, KVBLK_DO_REPORT },
	};
	char version[32];

	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		CHECK(kvblk_result_action(table[i].res) == table[i].action);
		CHECK(*kvblk_result_text(table[i].res));
	}
	CHECK(!strcmp(kvblk_result_text(-ENOENT), "no such block"));
	for (unsigned int i = KVBLK_PRESTAGE_LOADED; i <= KVBLK_PRESTAGE_EXPIRED; i++)
		CHECK(strcmp(kvblk_prestage_state_name(i), "unknown") != 0);
	CHECK(!strcmp(kvblk_prestage_state_name(KVBLK_PRESTAGE_EXPIRED), "expired"));
	CHECK(!strcmp(kvblk_prestage_state_name(0), "unknown"));
	CHECK(!strcmp(kvblk_prestage_state_name(KVBLK_PRESTAGE_EXPIRED + 1), "unknown"));
	snprintf(version, sizeof(version), "%d.%d", KVBLK_VERSION_MAJOR, KVBLK_VERSION_MINOR);
	CHECK(!strcmp(kvblk_version(), version));
	verdict("results have a text and an action");
}

/* Queues. Each test runs with both backends. */

#define NR_BLOCKS	40u

static char keys[NR_BLOCKS][4], tags[NR_BLOCKS];
static struct kvblk_piece piece;
static struct kvblk_op ops[NR_BLOCKS];

static struct kvblk_queue *queue_of(struct kvblk *kv, unsigned int threads, unsigned int depth)
{
	struct kvblk_queue_options options = { .size = sizeof(options), .depth = depth, .threads = threads };
	struct kvblk_queue *queue = NULL;

	CHECK(!kvblk_queue_create(kv, &options, &queue));
	return queue;
}

static void prepare(uint8_t opcode)
{
	kvblk_prep_piece(&piece, NULL, (uintptr_t)keys, sizeof(keys));
	for (unsigned int i = 0; i < NR_BLOCKS; i++) {
		snprintf(keys[i], sizeof(keys[i]), "q%02u", i);
		kvblk_prep_put(&ops[i], keys[i], 3, &piece, 1);
		ops[i].opcode = opcode;
		ops[i].cookie = 100 + i;
		if (opcode == KVBLK_OP_DELETE)
			ops[i].pieces = ops[i].nr_pieces = 0;
	}
}

static uint64_t later(unsigned int ms)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec + ms * 1000000ull;
}

/* Collect completions in an event loop, three at a time, without reading the descriptor. */
static unsigned int collect(struct kvblk_queue *queue, unsigned int nr, int expected)
{
	struct pollfd ready = { .fd = kvblk_queue_eventfd(queue), .events = POLLIN };
	struct kvblk_completion c[3];
	unsigned int good = 0, taken = 0;

	while (taken < nr && poll(&ready, 1, 10000) == 1) {
		int got = kvblk_queue_wait(queue, c, 3, 0, 0);

		for (int i = 0; i < got; i++)
			good += c[i].res == expected && !c[i].reserved &&
				c[i].cookie == 100 + (uint64_t)((char *)c[i].tag - tags) + c[i].index;
		taken += got > 0 ? (unsigned int)got : 0;
	}
	CHECK(poll(&ready, 1, 0) == 0);
	return good;
}

static void queue_basics(struct kvblk *kv, unsigned int threads)
{
	struct kvblk_queue *queue = queue_of(kv, threads, NR_BLOCKS);
	struct kvblk_completion c[NR_BLOCKS];

	CHECK(!kvblk_queue_wait(queue, c, 1, 1, 0));
	prepare(KVBLK_OP_PUT);
	for (unsigned int i = 0; i < NR_BLOCKS; i++)
		CHECK(!kvblk_queue_submit(queue, &ops[i], 1, 0, &tags[i]));
	CHECK(kvblk_queue_submit(queue, ops, 1, 0, NULL) == -EAGAIN);
	CHECK(collect(queue, NR_BLOCKS, sizeof(keys)) == NR_BLOCKS);
	/* many operations in one submission */
	prepare(KVBLK_OP_GET);
	CHECK(!kvblk_queue_submit(queue, ops, NR_BLOCKS, 0, &tags[0]));
	CHECK(collect(queue, NR_BLOCKS, sizeof(keys)) == NR_BLOCKS);
	prepare(KVBLK_OP_DELETE);
	CHECK(!kvblk_queue_submit(queue, ops, NR_BLOCKS - 1, KVBLK_SUBMIT_CHAIN, &tags[0]));
	CHECK(!kvblk_queue_submit(queue, &ops[NR_BLOCKS - 1], 1, 0, &tags[NR_BLOCKS - 1]));
	CHECK(!kvblk_queue_drain(queue, 0));
	CHECK(kvblk_queue_wait(queue, c, NR_BLOCKS, NR_BLOCKS, later(10000)) == NR_BLOCKS);
	for (unsigned int i = 0, nr_last = 0; i < NR_BLOCKS; i++) {
		nr_last += !c[i].left;
		CHECK(!c[i].res && nr_last <= 2 && (i < NR_BLOCKS - 1 || nr_last == 2));
	}
	CHECK(kvblk_queue_submit(queue, ops, 0, 0, NULL) == -EINVAL);
	CHECK(kvblk_queue_submit(queue, ops, 1, KVBLK_SUBMIT_INTERRUPTIBLE, NULL) == -EINVAL);
	CHECK(kvblk_queue_submit(queue, ops, NR_BLOCKS + 1, 0, NULL) == -EINVAL);
	CHECK(kvblk_queue_wait(queue, c, 0, 0, 0) == -EINVAL && kvblk_queue_wait(queue, c, 1, 2, 0) == -EINVAL);
	CHECK(kvblk_queue_cancel(queue, &tags[0]) == -ENOENT);
	kvblk_queue_destroy(queue);
	kvblk_queue_destroy(NULL);
	verdict(threads ? "a queue with threads" : "a queue with a ring");
}

/* A chain is a single batch of the pool: the pool admits its first blocks; single puts have no limit. */
static void queue_chain(struct kvblk *kv, unsigned int threads)
{
	struct kvblk_queue *queue = queue_of(kv, threads, 0);
	struct kvblk_completion c[NR_BLOCKS];
	unsigned int nr = 0, nr_stored = 0;

	prepare(KVBLK_OP_PUT);
	setenv("KVBLK_FAKE_DECLINE", "1", 1);
	CHECK(!kvblk_queue_submit(queue, ops, NR_BLOCKS, KVBLK_SUBMIT_CHAIN, &tags[0]));
	CHECK(collect(queue, NR_BLOCKS, -ENOBUFS) == NR_BLOCKS);
	unsetenv("KVBLK_FAKE_DECLINE");
	setenv("KVBLK_FAKE_ADMIT", "3", 1);
	CHECK(!kvblk_queue_submit(queue, ops, NR_BLOCKS, KVBLK_SUBMIT_CHAIN, &tags[0]));
	CHECK(kvblk_queue_wait(queue, c, NR_BLOCKS, NR_BLOCKS, later(10000)) == NR_BLOCKS);
	for (unsigned int i = 0; i < NR_BLOCKS; i++)
		nr += c[i].res == (c[i].index < 3 ? (int)sizeof(keys) : -ENOBUFS);
	CHECK(nr == NR_BLOCKS);
	for (unsigned int i = 0; i < NR_BLOCKS; i++)
		nr_stored += !kvblk_exists(kv, keys[i], 3, NULL);
	CHECK(nr_stored == 3 && !kvblk_exists(kv, keys[2], 3, NULL));
	CHECK(!kvblk_queue_submit(queue, &ops[3], 5, 0, &tags[3]));
	CHECK(collect(queue, 5, sizeof(keys)) == 5);
	unsetenv("KVBLK_FAKE_ADMIT");
	prepare(KVBLK_OP_DELETE);
	CHECK(!kvblk_queue_submit(queue, ops, 8, 0, &tags[0]));
	CHECK(collect(queue, 8, 0) == 8);
	kvblk_queue_destroy(queue);
	verdict(threads ? "chains of threads" : "chains of a ring");
}

/* Results have the tags of the block, and lengths where the operation failed. */
static void queue_results(struct kvblk *kv, unsigned int threads)
{
	struct kvblk_put_options put = { .size = sizeof(put), .layout_tag = 1ull << 63, .caller_tag = 5 };
	struct kvblk_queue *queue = queue_of(kv, threads, 0);
	struct { struct kvblk_completion c; uint64_t more; } long_one;
	struct kvblk_completion c;
	struct kvblk_piece one;
	struct kvblk_op op;
	char byte;

	CHECK(!kvblk_put(kv, "tagged", 6, "x", 1, &put) && !kvblk_put(kv, "long", 4, "xy", 2, NULL));
	CHECK(!kvblk_prep_piece(&one, NULL, (uintptr_t)&byte, 1));
	kvblk_prep_get(&op, "tagged", 6, &one, 1);
	CHECK(!kvblk_queue_submit(queue, &op, 1, 0, &op));
	CHECK(kvblk_queue_wait(queue, &c, 1, 1, 0) == 1);
	CHECK(c.res == 1 && c.value_len == 1 && c.layout_tag == 1ull << 63 && c.caller_tag == 5 && byte == 'x');
	CHECK(c.tag == &op && !c.left && c.flags == KVBLK_RES_DIRECT && !c.cookie);
	kvblk_prep_get(&op, "long", 4, &one, 1);
	CHECK(!kvblk_queue_submit(queue, &op, 1, 0, &op));
	memset(&long_one, 7, sizeof(long_one));
	CHECK(kvblk_queue_wait_sized(queue, &long_one.c, sizeof(long_one), 1, 1, 0) == 1);
	CHECK(long_one.c.res == -EMSGSIZE && long_one.c.value_len == 2 && !long_one.more);
	CHECK(kvblk_queue_wait_sized(queue, &c, sizeof(c) - 8, 1, 0, 0) == -EINVAL);
	kvblk_prep_delete(&op, "long", 4);
	CHECK(!kvblk_queue_submit(queue, &op, 1, 0, &op));
	/* the completion is dropped, the operation is not */
	CHECK(!kvblk_queue_drain(queue, later(10000)));
	kvblk_queue_destroy(queue);
	CHECK(kvblk_exists(kv, "long", 4, NULL) == -ENOENT && !kvblk_delete(kv, "tagged", 6));
	verdict(threads ? "results of threads" : "results of a ring");
}

/* Cancel a chain that the pool has not looked at: it never begins. */
static void queue_revokes(struct kvblk *kv)
{
	struct kvblk_queue *queue = queue_of(kv, 0, 0);
	struct kvblk_completion c[2];
	char gate[16];
	int ends[2];

	CHECK(!pipe(ends));
	snprintf(gate, sizeof(gate), "%d", ends[0]);
	prepare(KVBLK_OP_PUT);
	setenv("KVBLK_FAKE_GATE", gate, 1);
	CHECK(!kvblk_queue_submit(queue, ops, 2, KVBLK_SUBMIT_CHAIN, &tags[0]));
	CHECK(!kvblk_queue_wait(queue, c, 2, 1, later(10)));
	CHECK(!kvblk_queue_cancel(queue, &tags[0]));
	CHECK(write(ends[1], "", 1) == 1);
	CHECK(kvblk_queue_wait(queue, c, 2, 2, later(10000)) == 2);
	CHECK(c[0].res == -ECANCELED && c[1].res == -ECANCELED && c[0].cookie == 100);
	unsetenv("KVBLK_FAKE_GATE");
	CHECK(kvblk_exists(kv, keys[0], 3, NULL) == -ENOENT);
	kvblk_queue_destroy(queue);
	close(ends[0]);
	close(ends[1]);
	verdict("a chain that is canceled before it begins");
}

/* Cancel running and waiting submissions by tag; then stop the queue, and destroy a busy one. */
static void queue_cancels(struct kvblk *kv, unsigned int threads)
{
	struct kvblk_queue *queue = queue_of(kv, threads, 0);
	uint64_t end = later(20000);
	unsigned int nr = 0;

	setenv("KVBLK_FAKE_DELAY_MS", "30000", 1);
	prepare(KVBLK_OP_PUT);
	for (unsigned int i = 0; i < 8; i++)
		CHECK(!kvblk_queue_submit(queue, &ops[i], 1, 0, &tags[i]));
	CHECK(kvblk_queue_drain(queue, later(1)) == -ETIME);
	CHECK(!kvblk_queue_cancel(queue, &tags[7]) && !kvblk_queue_cancel(queue, &tags[0]));
	CHECK(collect(queue, 2, -ECANCELED) == 2);
	CHECK(kvblk_queue_cancel(queue, &tags[20]) == -ENOENT);
	kvblk_queue_stop(queue);
	CHECK(kvblk_queue_submit(queue, ops, 1, 0, NULL) == -ECANCELED);
	CHECK(collect(queue, 6, -ECANCELED) == 6);
	CHECK(kvblk_queue_submit(queue, ops, 1, 0, NULL) == -ECANCELED);
	kvblk_queue_destroy(queue);

	queue = queue_of(kv, threads, 0);
	for (unsigned int i = 0; i < 8; i++)
		CHECK(!kvblk_queue_submit(queue, ops, 4, i % 2 ? KVBLK_SUBMIT_CHAIN : 0, NULL));
	kvblk_queue_destroy(queue);
	CHECK(later(0) < end);
	for (unsigned int i = 0; i < NR_BLOCKS; i++)
		nr += !kvblk_exists(kv, keys[i], 3, NULL);
	CHECK(!nr);
	unsetenv("KVBLK_FAKE_DELAY_MS");
	verdict(threads ? "cancel, stop and destroy with threads" : "cancel, stop and destroy with a ring");
}

/* Threads submit until refused, while the main thread stops the queue. */
static sem_t begun;	/* posted by each submitter, after its first submission */

static void *submitter(void *arg)
{
	struct kvblk_queue *queue = arg;
	struct kvblk_completion c[4];
	struct kvblk_op op;
	long nr = 0;
	int err;

	kvblk_prep_delete(&op, "none", 4);
	do {
		err = kvblk_queue_submit(queue, &op, 1, 0, NULL);
		if (!err && !nr++)
			sem_post(&begun);
		err = err == -EAGAIN ? 0 : err;
		while (kvblk_queue_wait(queue, c, 4, 1, later(1)) > 0)
			;
	} while (!err);
	return (void *)(err == -ECANCELED ? nr : -1);
}

static void queue_shared(struct kvblk *kv, unsigned int threads)
{
	struct kvblk_queue *queue = queue_of(kv, threads, 8);
	pthread_t ids[4];
	void *nr;

	sem_init(&begun, 0, 0);
	for (int i = 0; i < 4; i++)
		CHECK(!pthread_create(&ids[i], NULL, submitter, queue));
	for (int i = 0; i < 4; i++)
		sem_wait(&begun);
	kvblk_queue_stop(queue);
	for (int i = 0; i < 4; i++) {
		pthread_join(ids[i], &nr);
		CHECK((long)nr > 0);
	}
	CHECK(!kvblk_queue_drain(queue, 0));
	kvblk_queue_destroy(queue);
	verdict(threads ? "a queue with threads, of many threads" : "a queue with a ring, of many threads");
}

static void *waiter(void *arg)
{
	struct kvblk_completion c;

	return (void *)(long)kvblk_queue_wait(arg, &c, 1, 1, 0);
}

/* Two threads wait for the only completion: a thread gets the completion, both return. */
static void queue_waiters(struct kvblk *kv, unsigned int threads)
{
	struct kvblk_op op;
	void *got[2];

	kvblk_prep_delete(&op, "none", 4);
	setenv("KVBLK_FAKE_DELAY_MS", "20", 1);
	for (int round = 0; round < 10; round++) {
		struct kvblk_queue *queue = queue_of(kv, threads, 0);
		pthread_t ids[2];

		CHECK(!kvblk_queue_submit(queue, &op, 1, 0, NULL));
		for (int i = 0; i < 2; i++)
			CHECK(!pthread_create(&ids[i], NULL, waiter, queue));
		for (int i = 0; i < 2; i++)
			pthread_join(ids[i], &got[i]);
		CHECK((long)got[0] + (long)got[1] == 1);
		kvblk_queue_destroy(queue);
	}
	unsetenv("KVBLK_FAKE_DELAY_MS");
	verdict(threads ? "two waiting threads and a queue with threads" : "two waiting threads and a ring");
}

static void *foreign(void *arg)
{
	struct kvblk_completion c;

	return (void *)(long)(kvblk_queue_submit(arg, ops, 1, 0, NULL) == -EEXIST &&
			      kvblk_queue_wait(arg, &c, 1, 0, 0) == -EEXIST &&
			      kvblk_queue_eventfd(arg) == -EEXIST);
}

static void queue_options(struct kvblk *kv)
{
	static const struct kvblk_queue_options bad[] = {
		{ .size = sizeof(bad[0]), .depth = KVBLK_QUEUE_DEPTH_MAX + 1 },
		{ .size = sizeof(bad[0]), .threads = KVBLK_QUEUE_THREADS_MAX + 1 },
		{ .size = sizeof(bad[0]), .flags = KVBLK_QUEUE_DEFER },
		{ .size = sizeof(bad[0]), .flags = 8 | KVBLK_QUEUE_ONE_THREAD },
		{ .size = 4 },
	};
	struct kvblk_queue_options one = { .size = sizeof(one), .flags = KVBLK_QUEUE_ONE_THREAD };
	struct kvblk_queue *queue = NULL;
	pthread_t id;
	void *good;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		CHECK(kvblk_queue_create(kv, &bad[i], &queue) == -EINVAL && !queue);
	for (one.threads = 0; one.threads < 2; one.threads++) {
		CHECK(!kvblk_queue_create(kv, &one, &queue));
		CHECK(!pthread_create(&id, NULL, foreign, queue) && !pthread_join(id, &good) && good);
		kvblk_queue_destroy(queue);
	}
	setenv("KVBLK_FAKE_NO_RING", "1", 1);
	CHECK(kvblk_queue_create(kv, NULL, &queue) == -ENOSYS);
	unsetenv("KVBLK_FAKE_NO_RING");
	verdict("options of queues");
}

int main(void)
{
	struct kvblk *kv;

	opening();
	results();
	if (kvblk_open("fake", 0, &kv)) {
		printf("not ok %d lib: the fake pool is not there\n", ++nr_tests);
		return 1;
	}
	single(kv);
	batches(kv);
	hints(kv);
	versions(kv);
	handles(kv);
	prestages(kv);
	queue_options(kv);
	queue_revokes(kv);
	for (unsigned int threads = 0; threads < 4; threads += 3) {
		queue_chain(kv, threads);
		queue_basics(kv, threads);
		queue_results(kv, threads);
		queue_cancels(kv, threads);
		queue_shared(kv, threads);
		queue_waiters(kv, threads);
	}
	kvblk_close(kv);
	return !!nr_failed;
}
