// SPDX-License-Identifier: MIT
/*
 * libkvblk as a runtime uses it, on the pool of libkvblk-fake; VM tests cover the rest.
 * install_test.sh builds and runs this program.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
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

	memset(name, 'x', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	CHECK(kvblk_open(NULL, 0, &kv) == -EINVAL);
	CHECK(kvblk_open("", 0, &kv) == -EINVAL);
	CHECK(kvblk_open("absent", 0, &kv) == -ENODEV);
	CHECK(kvblk_open("/dev/absent", 0, &kv) == -ENODEV);
	CHECK(kvblk_open("/dev/null/absent", 0, &kv) == -ENODEV);
	CHECK(kvblk_open(name, 0, &kv) == -ENAMETOOLONG);
	CHECK(kvblk_open("/dev/null", 0, &kv) == -ENOTTY);
	CHECK(kvblk_open("/etc/passwd", 0, &kv) == -ENOTTY);
	CHECK(mkdtemp(fifo) && !rmdir(fifo) && !mkfifo(fifo, 0600));
	CHECK(kvblk_open(fifo, 0, &kv) == -ENOTTY);
	CHECK(kvblk_open("fake", 1u << 31, &kv) == -EINVAL);
	CHECK(kvblk_open_fd(-1, &kv) == -EBADF);
	unlink(fifo);
	kvblk_close(NULL);
	verdict("what is no pool is refused");
}

static void single(struct kvblk *kv)
{
	struct kvblk_put_options options = { .size = sizeof(options), .parent = "p", .parent_len = 513 };
	struct kvblk_get_options part = { .size = sizeof(part), .flags = KVBLK_OPF_PARTIAL, .offset = 9950 };
	static unsigned char data[10000], buf[20000], key[513];
	struct kvblk_info info;
	uint32_t size = 1;
	size_t len;

	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (unsigned char)(i * 7);
	CHECK(!kvblk_get_info(kv, &info, sizeof(info)) && !strcmp(info.pool_name, "fake"));
	CHECK(kvblk_fd(kv) >= 0);
	CHECK(kvblk_exists(kv, "k", 1, &size) == -ENOENT && !size);
	CHECK(kvblk_delete(kv, "k", 1) == -ENOENT);
	len = sizeof(buf);
	CHECK(kvblk_get(kv, "k", 1, buf, &len, NULL) == -ENOENT);
	CHECK(!kvblk_put(kv, "k", 1, data, sizeof(data), NULL));
	CHECK(kvblk_put(kv, "k", 1, data, 1, NULL) == -EEXIST);
	CHECK(!kvblk_exists(kv, "k", 1, &size) && size == sizeof(data));
	CHECK(!kvblk_exists(kv, "k", 1, NULL));
	len = sizeof(buf);
	CHECK(!kvblk_get(kv, "k", 1, buf, &len, NULL) && len == sizeof(data));
	CHECK(!memcmp(buf, data, sizeof(data)));
	len = 9999;
	CHECK(kvblk_get(kv, "k", 1, buf, &len, NULL) == -EMSGSIZE && len == 10000);
	len = 100;
	CHECK(!kvblk_get(kv, "k", 1, buf, &len, &part) && len == 50);
	CHECK(!memcmp(buf, data + 9950, 50));
	part.offset = 10000;
	CHECK(kvblk_get(kv, "k", 1, buf, &len, &part) == -ERANGE);
	/* the length alone */
	len = 0;
	CHECK(kvblk_get(kv, "k", 1, NULL, &len, NULL) == -EMSGSIZE && len == 10000);
	CHECK(!kvblk_delete(kv, "k", 1));
	CHECK(kvblk_exists(kv, "k", 1, NULL) == -ENOENT);
	verdict("single blocks");

	len = sizeof(buf);
	CHECK(kvblk_put(kv, key, 0, data, 1, NULL) == -EINVAL);
	CHECK(kvblk_put(kv, key, 513, data, 1, NULL) == -EINVAL);
	CHECK(kvblk_put(kv, key, 512, data, 1, &options) == -EINVAL);
	CHECK(kvblk_get(kv, key, 0, buf, &len, NULL) == -EINVAL);
	CHECK(kvblk_get(kv, key, 513, buf, &len, NULL) == -EINVAL);
	CHECK(kvblk_delete(kv, key, 65537) == -EINVAL);
	CHECK(kvblk_exists(kv, key, 513, NULL) == -EINVAL);
	options.size = 0;
	CHECK(kvblk_put(kv, key, 512, data, 1, &options) == -EINVAL);
	verdict("keys of a wrong length are refused");
}

static void batches(struct kvblk *kv)
{
	struct kvblk_prefix prefix = { .size = sizeof(prefix) };
	struct kvblk_result results[3];
	struct kvblk_piece pieces[2];
	struct kvblk_op_ext ext;
	struct kvblk_op ops[3];
	char data[] = "0123456789", buf[10] = "";

	CHECK(!kvblk_prep_piece(&pieces[0], NULL, (uintptr_t)(data), 4));
	CHECK(!kvblk_prep_piece(&pieces[1], NULL, (uintptr_t)(data + 4), 6));
	kvblk_prep_put(&ops[0], "a0", 2, pieces, 2);
	kvblk_prep_put(&ops[1], "a1", 2, pieces, 1);
	kvblk_prep_delete(&ops[2], "zz", 2);
	kvblk_prep_ext(&ops[0], &ext);
	ext.caller_tag = 77;
	ops[2].cookie = 42;
	CHECK(!kvblk_submit(kv, ops, 3, results, 0));
	CHECK(results[0].res == 10 && results[1].res == 4);
	CHECK(results[2].res == -ENOENT && results[2].cookie == 42);
	CHECK(!kvblk_prep_piece(&pieces[0], NULL, (uintptr_t)(buf), sizeof(buf)));
	kvblk_prep_get(&ops[0], "a0", 2, pieces, 1);
	CHECK(!kvblk_submit(kv, ops, 1, results, 0));
	CHECK(results[0].res == 10 && results[0].caller_tag == 77);
	CHECK(!memcmp(buf, data, 10));
	CHECK(kvblk_submit(kv, ops, 0, results, 0) == -EINVAL);
	verdict("a batch has a result for each operation");

	CHECK(!kvblk_lookup_prefix(kv, "a0a1a2", 2, 3, 1000, &prefix));
	CHECK(prefix.nr_leading == 2 && prefix.nr_leased == 2 && prefix.lease && prefix.lease_end_ns);
	CHECK(!kvblk_lease_release(kv, prefix.lease));
	/* a prefix is never longer than what is leased */
	setenv("KVBLK_FAKE_LEASE_KEYS", "1", 1);
	CHECK(!kvblk_lookup_prefix(kv, "a0a1a2", 2, 3, 1000, &prefix));
	CHECK(prefix.nr_leading == 1 && prefix.nr_leased == 1);
	CHECK(!kvblk_lease_release(kv, prefix.lease));
	CHECK(!kvblk_lookup_prefix(kv, "a0a1a2", 2, 3, 0, &prefix) && prefix.nr_leading == 2);
	unsetenv("KVBLK_FAKE_LEASE_KEYS");
	CHECK(!kvblk_lookup_prefix(kv, "b0", 2, 1, 0, &prefix));
	CHECK(!prefix.nr_leading && !prefix.lease && !kvblk_lease_release(kv, prefix.lease));
	CHECK(kvblk_lookup_prefix(kv, "b0", 0, 1, 0, &prefix) == -EINVAL);
	CHECK(kvblk_cancel(kv, 1, NULL) == -ENOENT);
	verdict("prefix lookups, leases, cancel");

	/* truncated to 16 bits, both numbers would be valid */
	kvblk_prep_put(&ops[0], "a", 65536 + 1, pieces, 65536 + 1);
	CHECK(ops[0].key_len > KVBLK_KEY_MAX);
	CHECK(ops[0].nr_pieces > KVBLK_PIECES_MAX);
	CHECK(kvblk_prep_piece(&pieces[0], NULL, (uintptr_t)buf, 0) == -EINVAL);
	CHECK(kvblk_prep_piece(&pieces[0], NULL, (uintptr_t)buf, (size_t)UINT32_MAX + 1) == -EINVAL);
	verdict("lengths are never cut to fit");
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
static void prefetch_many(struct kvblk *kv)
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
	verdict("prefetches of more than a batch");
}

static void prefetches(struct kvblk *kv)
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
	options.lease_ms = KVBLK_LEASE_MS_MAX + 1;
	CHECK(kvblk_prestage(kv, keys, lens, 5, &options, got, NULL) == -EINVAL);
	options = (struct kvblk_prestage_options){ .size = sizeof(options), .priority = KVBLK_PRIORITY_MAX + 1 };
	CHECK(kvblk_prestage(kv, keys, lens, 5, &options, got, NULL) == -EINVAL);
	verdict("prefetches that make no sense are refused");

	options = (struct kvblk_prestage_options){ .size = sizeof(options), .stop_at_miss = true, .priority = 3 };
	CHECK(!kvblk_prestage(kv, keys, lens, 5, &options, got, &sum));
	CHECK(!strcmp(states(got, 5), "LMCCC") && got[0].length == 100);
	CHECK(sum.nr_leading == 1 && sum.nr_here == 1 && sum.loaded_bytes == 100 && !sum.lease);
	options = (struct kvblk_prestage_options){ .size = sizeof(options), .max_bytes = 149, .lease_ms = 1000 };
	CHECK(!kvblk_prestage(kv, keys, lens, 5, &options, got, &sum));
	/* p3 exceeds max_bytes, which clips all blocks behind it */
	CHECK(!strcmp(states(got, 5), "RMLCC") && got[1].length == 0 && got[3].length == 100);
	CHECK(sum.nr_leading == 1 && sum.nr_here == 2 && sum.loaded_bytes == 50);
	CHECK(sum.nr_leased == 2 && sum.lease && !kvblk_lease_release(kv, sum.lease));
	CHECK(!kvblk_prestage(kv, keys, lens, 5, NULL, got, NULL));
	CHECK(!strcmp(states(got, 5), "RMRLL"));
	CHECK(!kvblk_put(kv, "p-1", 3, data, 1, NULL));
	CHECK(!kvblk_prestage(kv, keys, lens, 5, NULL, got, &sum));
	CHECK(!strcmp(states(got, 5), "RCRRR") && sum.nr_leading == 1);
	verdict("prefetches: limits, a miss, what is there, no room");

	setenv("KVBLK_FAKE_DELAY_MS", "1", 1);
	options = (struct kvblk_prestage_options){ .size = sizeof(options), .deadline_ns = 1, .lease_ms = 1000 };
	CHECK(!kvblk_prestage(kv, keys, lens, 5, &options, got, &sum));
	CHECK(!strcmp(states(got, 5), "EEEEE") && !sum.nr_here && !sum.lease);
	unsetenv("KVBLK_FAKE_DELAY_MS");
	verdict("prefetches that are late");
	setenv("KVBLK_FAKE_DRAM", "100000", 1);
	prefetch_many(kv);
}

static void names(void)
{
	for (unsigned int i = KVBLK_PRESTAGE_LOADED; i <= KVBLK_PRESTAGE_EXPIRED; i++)
		CHECK(kvblk_prestage_state_name(i));
	CHECK(!strcmp(kvblk_prestage_state_name(KVBLK_PRESTAGE_EXPIRED), "expired"));
	CHECK(!kvblk_prestage_state_name(0) && !kvblk_prestage_state_name(KVBLK_PRESTAGE_EXPIRED + 1));
	CHECK(strstr(kvblk_result_text(-ENOENT), "no such block"));
	CHECK(strcmp(kvblk_result_text(-ENOBUFS), strerror(ENOBUFS)));
	CHECK(*kvblk_result_text(-12345) && *kvblk_result_text(0));
	CHECK(kvblk_result_action(100) == KVBLK_DO_NOTHING && kvblk_result_action(-EEXIST) == KVBLK_DO_NOTHING);
	CHECK(kvblk_result_action(-ENOENT) == KVBLK_DO_RECOMPUTE && kvblk_result_action(-ENOBUFS) == KVBLK_DO_SKIP);
	CHECK(kvblk_result_action(-EINVAL) == KVBLK_DO_REPORT && kvblk_result_action(-12345) == KVBLK_DO_REPORT);
	CHECK(!strcmp(kvblk_version(), "1.0") && KVBLK_VERSION_MAJOR == 1 && KVBLK_VERSION_MINOR == 0);
	verdict("results and states have names");
}

#define NR_QUEUED	40

/* The event loop of kvblk_queue_create(3): more results than one wait returns. */
static void queues(struct kvblk *kv, unsigned int threads)
{
	struct kvblk_queue_options options = { .size = sizeof(options), .depth = NR_QUEUED, .threads = threads };
	struct kvblk_op ops[NR_QUEUED];
	struct kvblk_completion done[8];
	struct kvblk_queue *queue = NULL;
	struct kvblk_piece piece;
	char keys[NR_QUEUED][4];
	struct pollfd ready;
	unsigned int nr = 0;
	int got;

	CHECK(!kvblk_queue_create(kv, &options, &queue));
	ready = (struct pollfd){ .fd = kvblk_queue_eventfd(queue), .events = POLLIN };
	CHECK(poll(&ready, 1, 0) == 0 && kvblk_queue_wait(queue, done, 8, 0, 0) == 0);
	CHECK(!kvblk_prep_piece(&piece, NULL, (uintptr_t)keys, sizeof(keys)));
	for (int i = 0; i < NR_QUEUED; i++) {
		snprintf(keys[i], sizeof(keys[i]), "j%02d", i);
		kvblk_prep_put(&ops[i], keys[i], 3, &piece, 1);
		ops[i].cookie = (uint64_t)i;
	}
	CHECK(!kvblk_queue_submit(queue, ops, NR_QUEUED, KVBLK_SUBMIT_CHAIN, keys));
	CHECK(kvblk_queue_submit(queue, ops, 1, 0, NULL) == -EAGAIN);
	while (nr < NR_QUEUED && poll(&ready, 1, 60000) == 1) {
		got = kvblk_queue_wait(queue, done, 8, 0, 0);
		for (int i = 0; i < got; i++, nr++) {
			CHECK(done[i].res == sizeof(keys) && done[i].tag == keys);
			CHECK(done[i].index == done[i].cookie && done[i].left == NR_QUEUED - 1 - nr);
		}
	}
	CHECK(nr == NR_QUEUED && poll(&ready, 1, 0) == 0);
	CHECK(kvblk_queue_submit(queue, ops, 0, 0, NULL) == -EINVAL);
	for (int i = 0; i < NR_QUEUED; i++)
		CHECK(!kvblk_delete(kv, keys[i], 3));
	kvblk_queue_destroy(queue);
	verdict(threads ? "a queue with threads" : "a queue with a ring");
}

static void queue_options(struct kvblk *kv)
{
	struct {
		struct kvblk_queue_options known;
		uint64_t more;
	} later = { { .size = sizeof(later) }, 1 };
	struct kvblk_queue *queue = NULL;

	CHECK(kvblk_queue_create(kv, &later.known, &queue) == -E2BIG && !queue);
	later.more = 0;
	later.known.depth = KVBLK_QUEUE_DEPTH_MAX + 1;
	CHECK(kvblk_queue_create(kv, &later.known, &queue) == -EINVAL && !queue);
	later.known.depth = 1;
	later.known.threads = KVBLK_QUEUE_THREADS_MAX + 1;
	CHECK(kvblk_queue_create(kv, &later.known, &queue) == -EINVAL && !queue);
	later.known.threads = 0;
	CHECK(!kvblk_queue_create(kv, &later.known, &queue));
	kvblk_queue_destroy(queue);
	verdict("options of another version");
}

int main(void)
{
	struct kvblk *kv;

	opening();
	names();
	if (kvblk_open("fake", 0, &kv)) {
		printf("not ok %d lib: the fake pool is not there\n", ++nr_tests);
		return 1;
	}
	single(kv);
	batches(kv);
	prefetches(kv);
	queues(kv, 0);
	queues(kv, 4);
	queue_options(kv);
	kvblk_close(kv);
	return !!nr_failed;
}
