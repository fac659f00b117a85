// SPDX-License-Identifier: MIT
/*
 * libkvblk as a runtime uses it, on the pool of fake_pool.c; VM tests cover the rest.
 * install_test.sh builds and runs this program.
 */
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
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
	CHECK(kvblk_open(NULL, &kv) == -EINVAL);
	CHECK(kvblk_open("", &kv) == -EINVAL);
	CHECK(kvblk_open("absent", &kv) == -ENODEV);
	CHECK(kvblk_open("/dev/absent", &kv) == -ENODEV);
	CHECK(kvblk_open("/dev/null/absent", &kv) == -ENODEV);
	CHECK(strstr(kvblk_strerror(-ENODEV), "no such pool"));
	CHECK(kvblk_open(name, &kv) == -ENAMETOOLONG);
	CHECK(kvblk_open("/dev/null", &kv) == -ENOTTY);
	CHECK(kvblk_open("/etc/passwd", &kv) == -ENOTTY);
	CHECK(mkdtemp(fifo) && !rmdir(fifo) && !mkfifo(fifo, 0600));
	CHECK(kvblk_open(fifo, &kv) == -ENOTTY);
	unlink(fifo);
	kvblk_close(NULL);
	verdict("what is no pool is refused");
}

static void single(struct kvblk *kv)
{
	struct kvblk_put_options options = { .priority = 3, .parent_len = 513 };
	static unsigned char data[10000], buf[20000], key[513];
	struct kvblk_info info;
	uint32_t size = 1;
	size_t len;

	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (unsigned char)(i * 7);
	CHECK(!kvblk_info(kv, &info) && !strcmp(info.pool_name, "fake"));
	CHECK(kvblk_fd(kv) >= 0);
	CHECK(kvblk_exists(kv, "k", 1, &size) == -ENOENT && !size);
	CHECK(kvblk_delete(kv, "k", 1) == -ENOENT);
	len = sizeof(buf);
	CHECK(kvblk_get(kv, "k", 1, buf, &len) == -ENOENT);
	CHECK(!kvblk_put(kv, "k", 1, data, sizeof(data), NULL));
	CHECK(kvblk_put(kv, "k", 1, data, 1, NULL) == -EEXIST);
	CHECK(!kvblk_exists(kv, "k", 1, &size) && size == sizeof(data));
	CHECK(!kvblk_exists(kv, "k", 1, NULL));
	len = sizeof(buf);
	CHECK(!kvblk_get(kv, "k", 1, buf, &len) && len == sizeof(data));
	CHECK(!memcmp(buf, data, sizeof(data)));
	len = 9999;
	CHECK(kvblk_get(kv, "k", 1, buf, &len) == -EMSGSIZE && len == 10000);
	len = 100;
	CHECK(!kvblk_get_range(kv, "k", 1, 9950, buf, &len) && len == 50);
	CHECK(!memcmp(buf, data + 9950, 50));
	CHECK(kvblk_get_range(kv, "k", 1, 10000, buf, &len) == -ERANGE);
	CHECK(!kvblk_delete(kv, "k", 1));
	CHECK(kvblk_exists(kv, "k", 1, NULL) == -ENOENT);
	verdict("single blocks");

	len = sizeof(buf);
	CHECK(kvblk_put(kv, key, 0, data, 1, NULL) == -EINVAL);
	CHECK(kvblk_put(kv, key, 513, data, 1, NULL) == -EINVAL);
	CHECK(kvblk_put(kv, key, 512, data, 1, &options) == -EINVAL);
	CHECK(kvblk_get(kv, key, 0, buf, &len) == -EINVAL);
	CHECK(kvblk_get(kv, key, 513, buf, &len) == -EINVAL);
	CHECK(kvblk_get_range(kv, key, 513, 0, buf, &len) == -EINVAL);
	CHECK(kvblk_delete(kv, key, 65537) == -EINVAL);
	CHECK(kvblk_exists(kv, key, 513, NULL) == -EINVAL);
	verdict("keys of a wrong length are refused");
}

static void batches(struct kvblk *kv)
{
	struct kvblk_result results[3];
	struct kvblk_piece pieces[2];
	struct kvblk_op ops[3];
	char data[] = "0123456789", buf[10] = "";
	unsigned int nr = 7;
	uint64_t lease = 7;

	kvblk_piece_user(&pieces[0], data, 4);
	kvblk_piece_user(&pieces[1], data + 4, 6);
	kvblk_prep_put(&ops[0], "a0", 2, pieces, 2);
	kvblk_prep_put(&ops[1], "a1", 2, pieces, 1);
	kvblk_prep_delete(&ops[2], "zz", 2);
	ops[0].caller_tag = 77;
	ops[2].cookie = 42;
	CHECK(!kvblk_submit(kv, ops, 3, results, 0));
	CHECK(results[0].res == 10 && results[1].res == 4);
	CHECK(results[2].res == -ENOENT && results[2].cookie == 42);
	kvblk_piece_user(&pieces[0], buf, sizeof(buf));
	kvblk_prep_get(&ops[0], "a0", 2, pieces, 1);
	CHECK(!kvblk_submit(kv, ops, 1, results, 0));
	CHECK(results[0].res == 10 && results[0].caller_tag == 77);
	CHECK(!memcmp(buf, data, 10));
	CHECK(kvblk_submit(kv, ops, 0, results, 0) == -EINVAL);
	verdict("a batch has a result for each operation");

	CHECK(!kvblk_lookup_prefix(kv, "a0a1a2", 2, 3, 1000, &nr, &lease));
	CHECK(nr == 2 && lease && lease != 7);
	CHECK(!kvblk_lease_release(kv, lease));
	CHECK(!kvblk_lookup_prefix(kv, "b0", 2, 1, 0, &nr, &lease));
	CHECK(!nr && !lease);
	CHECK(kvblk_lookup_prefix(kv, "b0", 0, 1, 0, &nr, NULL) == -EINVAL);
	CHECK(kvblk_cancel(kv, 1, NULL) == -ENOENT);
	verdict("prefix lookups, leases, cancel");

	/* truncated to 16 bits, both numbers would be valid */
	kvblk_prep_put(&ops[0], "a", 65536 + 1, pieces, 65536 + 1);
	CHECK(ops[0].key_len > KVBLK_KEY_MAX);
	CHECK(ops[0].nr_pieces > KVBLK_PIECES_MAX);
	verdict("lengths are never cut to fit");
}

/* Returns a letter for the state of each of the @nr keys at @got. */
static const char *states(const struct kvblk_prefetched *got, unsigned int nr)
{
	static char text[KVBLK_OPS_MAX * 3];

	for (unsigned int i = 0; i < nr; i++)
		text[i] = "?LRMCE"[got[i].state <= KVBLK_PREFETCH_EXPIRED ? got[i].state : 0];
	text[nr] = '\0';
	return text;
}

#define NR_MANY	(KVBLK_OPS_MAX * 2 + 5)

/* More keys than a batch: states keep the order, and clipped keys are at the end. */
static void prefetch_many(struct kvblk *kv)
{
	struct kvblk_prefetch_options options = { .max_bytes = KVBLK_OPS_MAX + 3 };
	static struct kvblk_prefetched got[NR_MANY];
	static uint16_t lens[NR_MANY];
	static char keys[NR_MANY * 5 + 1];
	struct kvblk_prefetch_sum sum;

	for (int i = 0; i < NR_MANY; i++) {
		snprintf(keys + 5 * i, 6, "M%04d", i);
		lens[i] = 5;
		CHECK(!kvblk_put(kv, keys + 5 * i, 5, "x", 1, NULL));
	}
	CHECK(!kvblk_prefetch(kv, keys, lens, NR_MANY, &options, got, &sum));
	CHECK(sum.nr_leading == KVBLK_OPS_MAX + 3 && sum.loaded_bytes == sum.nr_leading);
	options.max_bytes = 0;
	CHECK(!kvblk_prefetch(kv, keys, lens, NR_MANY, &options, got, &sum));
	CHECK(sum.nr_leading == NR_MANY && sum.loaded_bytes == KVBLK_OPS_MAX + 2);
	CHECK(strspn(states(got, NR_MANY), "R") == KVBLK_OPS_MAX + 3);
	verdict("prefetches of more than a batch");
}

static void prefetches(struct kvblk *kv)
{
	static const uint16_t lens[] = { 2, 3, 2, 2, 2 };
	static const char keys[] = "p0p-1p2p3p4", data[100];
	struct kvblk_prefetch_options options = { .max_bytes = 250 };
	struct kvblk_prefetched got[5];
	struct kvblk_prefetch_sum sum;
	uint16_t bad = 0;

	CHECK(!kvblk_put(kv, "p0", 2, data, 100, NULL));
	CHECK(!kvblk_put(kv, "p2", 2, data, 50, NULL));
	CHECK(!kvblk_put(kv, "p3", 2, data, 100, NULL));
	CHECK(!kvblk_put(kv, "p4", 2, data, 1, NULL));
	CHECK(kvblk_prefetch(kv, keys, lens, 5, &options, got, NULL) == -EOPNOTSUPP);
	setenv("KVBLK_FAKE_DRAM", "251", 1);
	CHECK(kvblk_prefetch(kv, keys, lens, 0, NULL, got, NULL) == -EINVAL);
	CHECK(kvblk_prefetch(kv, keys, lens, KVBLK_LOOKUP_MAX + 1, NULL, got, NULL) == -EINVAL);
	CHECK(kvblk_prefetch(kv, keys, &bad, 1, NULL, got, NULL) == -EINVAL);
	bad = KVBLK_KEY_MAX + 1;
	CHECK(kvblk_prefetch(kv, keys, &bad, 1, NULL, got, NULL) == -EINVAL);
	options.lease_ms = KVBLK_LEASE_MS_MAX + 1;
	CHECK(kvblk_prefetch(kv, keys, lens, 5, &options, got, NULL) == -EINVAL);
	options = (struct kvblk_prefetch_options){ .priority = KVBLK_PRIORITY_MAX + 1 };
	CHECK(kvblk_prefetch(kv, keys, lens, 5, &options, got, NULL) == -EINVAL);
	verdict("prefetches that make no sense are refused");

	options = (struct kvblk_prefetch_options){ .stop_at_miss = true, .priority = 3 };
	CHECK(!kvblk_prefetch(kv, keys, lens, 5, &options, got, &sum));
	CHECK(!strcmp(states(got, 5), "LMCCC") && got[0].length == 100);
	CHECK(sum.nr_leading == 1 && sum.nr_here == 1 && sum.loaded_bytes == 100 && !sum.lease);
	options = (struct kvblk_prefetch_options){ .max_bytes = 149, .lease_ms = 1000 };
	CHECK(!kvblk_prefetch(kv, keys, lens, 5, &options, got, &sum));
	/* p3 exceeds max_bytes, which clips all blocks behind it */
	CHECK(!strcmp(states(got, 5), "RMLCC") && got[1].length == 0 && got[3].length == 100);
	CHECK(sum.nr_leading == 1 && sum.nr_here == 2 && sum.loaded_bytes == 50);
	CHECK(sum.nr_leased == 2 && sum.lease && !kvblk_lease_release(kv, sum.lease));
	CHECK(!kvblk_prefetch(kv, keys, lens, 5, NULL, got, NULL));
	CHECK(!strcmp(states(got, 5), "RMRLL"));
	CHECK(!kvblk_put(kv, "p-1", 3, data, 1, NULL));
	CHECK(!kvblk_prefetch(kv, keys, lens, 5, NULL, got, &sum));
	CHECK(!strcmp(states(got, 5), "RCRRR") && sum.nr_leading == 1);
	verdict("prefetches: limits, a miss, what is there, no room");

	setenv("KVBLK_FAKE_DELAY_MS", "1", 1);
	options = (struct kvblk_prefetch_options){ .deadline_ns = 1, .lease_ms = 1000 };
	CHECK(!kvblk_prefetch(kv, keys, lens, 5, &options, got, &sum));
	CHECK(!strcmp(states(got, 5), "EEEEE") && !sum.nr_here && !sum.lease);
	unsetenv("KVBLK_FAKE_DELAY_MS");
	verdict("prefetches that are late");
	setenv("KVBLK_FAKE_DRAM", "100000", 1);
	prefetch_many(kv);
}

static void names(void)
{
	struct kvblk_notice notice = { .pool = "kv0" };
	char text[256];

	for (unsigned int i = KVBLK_A_COUNTER_PUTS; i <= KVBLK_A_COUNTER_MAX; i++)
		CHECK(kvblk_counter_name(i));
	for (unsigned int i = KVBLK_A_GAUGE_INFLIGHT; i <= KVBLK_A_GAUGE_MAX; i++)
		CHECK(kvblk_gauge_name(i));
	for (unsigned int i = KVBLK_A_LATENCY_PUT; i <= KVBLK_A_LATENCY_LOOKUP; i++)
		CHECK(kvblk_latency_name(i));
	CHECK(!kvblk_counter_name(0) && !kvblk_counter_name(KVBLK_A_COUNTER_MAX + 1));
	CHECK(!kvblk_gauge_name(0) && !kvblk_gauge_name(KVBLK_A_GAUGE_MAX + 1));
	CHECK(!kvblk_latency_name(0) && !kvblk_latency_name(KVBLK_A_LATENCY_LOOKUP + 1));
	CHECK(!strcmp(kvblk_member_status_name(KVBLK_MEMBER_STATUS_UP), "up"));
	CHECK(!strcmp(kvblk_member_status_name(99), "unknown"));
	CHECK(!strcmp(kvblk_route_status_name(KVBLK_ROUTE_STATUS_TRIAL), "trial"));
	CHECK(!kvblk_route_status_name(99));
	for (unsigned int i = KVBLK_EVENT_POOL_UP; i <= KVBLK_EVENT_NO_SPACE; i++) {
		notice.type = i;
		kvblk_event_text(&notice, text, sizeof(text));
		CHECK(strcmp(kvblk_event_name(i), "unknown"));
		CHECK(!strstr(text, "unknown"));
	}
	notice.type = KVBLK_EVENT_MEMBER_FAILING;
	notice.number[KVBLK_A_EVENT_IO_ERRORS] = UINT64_MAX;
	kvblk_event_text(&notice, text, sizeof(text));
	CHECK(strstr(text, "18446744073709551615 I/O errors"));
	notice.type = KVBLK_EVENT_RESTORE_FAILED;
	notice.number[KVBLK_A_EVENT_ERROR] = EIO;
	kvblk_event_text(&notice, text, sizeof(text));
	CHECK(strstr(text, "error 5"));
	notice.type = KVBLK_EVENT_REQUEST_DONE;
	kvblk_event_text(&notice, text, sizeof(text));
	CHECK(strstr(text, "failed: error 5"));
	notice.number[KVBLK_A_EVENT_ERROR] = 0;
	kvblk_event_text(&notice, text, sizeof(text));
	CHECK(strstr(text, "succeeded"));
	CHECK(!strcmp(kvblk_event_number_name(KVBLK_A_EVENT_BLOCKS), "blocks"));
	for (unsigned int i = KVBLK_PREFETCH_LOADED; i <= KVBLK_PREFETCH_EXPIRED; i++)
		CHECK(kvblk_prefetch_state_name(i));
	CHECK(!strcmp(kvblk_prefetch_state_name(KVBLK_PREFETCH_EXPIRED), "expired"));
	CHECK(!kvblk_prefetch_state_name(0) && !kvblk_prefetch_state_name(KVBLK_PREFETCH_EXPIRED + 1));
	CHECK(!kvblk_event_number_name(KVBLK_A_EVENT_TYPE));
	CHECK(!kvblk_event_number_name(KVBLK_A_EVENT_MAX + 1));
	notice.type = KVBLK_EVENT_NO_SPACE + 1;
	kvblk_event_text(&notice, text, sizeof(text));
	CHECK(strstr(text, "unknown") && !strcmp(kvblk_event_name(notice.type), "unknown"));
	kvblk_event_text(&notice, text, 8);
	CHECK(!strcmp(text, "pool kv"));
	CHECK(!strcmp(kvblk_strerror(-ENOENT), kvblk_strerror(ENOENT)));
	CHECK(strcmp(kvblk_strerror(-ENOBUFS), strerror(ENOBUFS)));
	CHECK(strstr(kvblk_strerror(-ENOMEM), "RLIMIT_MEMLOCK"));
	CHECK(*kvblk_strerror(12345) && *kvblk_version());
	verdict("everything has a name");
}

#define NR_JOBS	40

static atomic_uint nr_done;

static void done(struct kvblk_job *job)
{
	if (!job->err && !job->results->res)
		nr_done++;
}

/* a job with its own run() */
static int own_run(struct kvblk *kv, struct kvblk_job *job)
{
	(void)kv;
	job->results->res = 0;
	return job->nr_ops == 77 ? -EXDEV : 0;
}

static void background(struct kvblk *kv)
{
	struct kvblk_result results[NR_JOBS];
	struct kvblk_job jobs[NR_JOBS], *over;
	struct kvblk_op ops[NR_JOBS];
	struct kvblk_piece piece;
	char keys[NR_JOBS][4];
	struct kvblk_async *async = NULL;
	struct pollfd ready;
	unsigned int nr = 0;

	CHECK(kvblk_async_create(kv, 0, &async) == -EINVAL);
	CHECK(kvblk_async_create(kv, KVBLK_ASYNC_THREADS_MAX + 1, &async) == -EINVAL && !async);
	CHECK(!kvblk_async_create(kv, 4, &async));
	ready = (struct pollfd){ .fd = kvblk_async_eventfd(async), .events = POLLIN };
	CHECK(!kvblk_async_take(async));
	CHECK(poll(&ready, 1, 0) == 0);
	kvblk_piece_user(&piece, keys, sizeof(keys));
	for (int i = 0; i < NR_JOBS; i++) {
		snprintf(keys[i], sizeof(keys[i]), "j%02d", i);
		kvblk_prep_put(&ops[i], keys[i], 3, &piece, 1);
		jobs[i] = (struct kvblk_job){ .ops = &ops[i], .nr_ops = 1, .results = &results[i] };
		kvblk_async_submit(async, &jobs[i]);
	}
	while (nr < NR_JOBS && poll(&ready, 1, 60000) == 1) {
		while ((over = kvblk_async_take(async))) {
			CHECK(!over->err && over->results->res == sizeof(keys));
			nr++;
		}
	}
	CHECK(nr == NR_JOBS && poll(&ready, 1, 0) == 0);
	for (int i = 0; i < NR_JOBS; i++) {
		kvblk_prep_delete(&ops[i], keys[i], 3);
		jobs[i].done = done;
		kvblk_async_submit(async, &jobs[i]);
	}
	while (nr_done < NR_JOBS)
		usleep(1000);
	CHECK(!kvblk_async_take(async));
	/* an error of the whole batch, and one of the caller's run() */
	jobs[0] = (struct kvblk_job){ .ops = ops, .nr_ops = 0, .results = results };
	jobs[1] = (struct kvblk_job){ .nr_ops = 77, .results = results, .run = own_run };
	kvblk_async_submit(async, &jobs[0]);
	kvblk_async_submit(async, &jobs[1]);
	kvblk_async_destroy(async);
	CHECK(jobs[0].err == -EINVAL || jobs[0].err == -ECANCELED);
	CHECK(jobs[1].err == -EXDEV || jobs[1].err == -ECANCELED);
	kvblk_async_destroy(NULL);
	verdict("batches in the background");
}

/* Compare @bytes with the hexadecimal @text. */
static int is_hex(const uint8_t *bytes, size_t len, const char *text)
{
	char hex[KVBLK_KEY_MAX * 2 + 1];

	for (size_t i = 0; i < len; i++)
		snprintf(hex + 2 * i, 3, "%02x", bytes[i]);
	return !strcmp(hex, text);
}

/* test vectors of Documentation/keys.rst */
static void keyspaces(void)
{
	struct kvblk_keyspace_spec spec = {
		.runtime = "example/1",
		.model = "tiny",
		.dtype = "float16",
		.layout = "LKTHD",
		.block_tokens = 64,
	};
	const struct kvblk_keyspace_spec other = {
		.runtime = "vllm-offload/1",
		.model = "meta-llama/Llama-3.1-8B@d04e592",
		.tokenizer = "llama-3.1",
		.dtype = "bfloat16",
		.layout = "32x2x16x8x128",
		.salt = "tenant-7",
		.block_tokens = 16,
		.tp_rank = 3,
		.tp_size = 8,
		.pp_rank = 1,
		.pp_size = 2,
	};
	uint8_t id[KVBLK_BLOCK_ID_LEN], key[KVBLK_KEY_MAX];
	struct kvblk_keyspace space, space2;
	uint32_t tokens[128];
	size_t len;

	for (uint32_t i = 0; i < 128; i++)
		tokens[i] = i;
	CHECK(!kvblk_keyspace_init(&space, &spec));
	CHECK(is_hex(space.digest, 16, "e7940858f1756b790e5d78b122ca70f1"));
	CHECK(!kvblk_keyspace_init(&space2, &other));
	CHECK(is_hex(space2.digest, 16, "d577bf42b1a739d4f899025fd276a19a"));
	kvblk_block_id(NULL, tokens, 64, NULL, 0, id);
	CHECK(is_hex(id, 32, "b31003adecd2f3f3f642002cd91d93c8cfe37080230027887ca70c22ca578ee6"));
	len = 52;
	CHECK(!kvblk_keyspace_key(&space, id, sizeof(id), key, &len) && len == 52);
	CHECK(is_hex(key, len, "6b766231e7940858f1756b790e5d78b122ca70f1"
			       "b31003adecd2f3f3f642002cd91d93c8cfe37080230027887ca70c22ca578ee6"));
	kvblk_block_id(id, tokens + 64, 64, "picture", 7, key);
	CHECK(is_hex(key, 32, "878c98ba4f20051de973b1c109e200b0a9da6759608a8be236e1f99e2af9b2bb"));
	kvblk_block_id(id, tokens + 64, 64, NULL, 0, id);
	CHECK(is_hex(id, 32, "c644ae874c9d3f3f8aa6cd3539b743c9b37d125608c330405646971387367fd4"));
	len = 51;
	CHECK(kvblk_keyspace_key(&space, id, sizeof(id), key, &len) == -EMSGSIZE);
	len = sizeof(key);
	CHECK(kvblk_keyspace_key(&space, id, 0, key, &len) == -EINVAL);
	CHECK(kvblk_keyspace_key(&space, key, KVBLK_KEY_MAX - KVBLK_KEYSPACE_LEN + 1, key, &len) == -EINVAL);
	spec.tp_rank = 1;
	CHECK(kvblk_keyspace_init(&space, &spec) == -EINVAL);
	spec.tp_rank = 0;
	spec.model = "";
	CHECK(kvblk_keyspace_init(&space, &spec) == -EINVAL);
	spec.model = NULL;
	CHECK(kvblk_keyspace_init(&space, &spec) == -EINVAL);
	verdict("key spaces");
}

int main(void)
{
	struct kvblk *kv;

	opening();
	names();
	if (kvblk_open("fake", &kv)) {
		printf("not ok %d lib: the fake pool is not there\n", ++nr_tests);
		return 1;
	}
	single(kv);
	batches(kv);
	prefetches(kv);
	background(kv);
	keyspaces();
	kvblk_close(kv);
	return !!nr_failed;
}
