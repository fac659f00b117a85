// SPDX-License-Identifier: MIT
/*
 * libkvblk as a runtime uses it, on the pool that fake_pool.c plays; what needs
 * the module is tested in VMs. install_test.sh builds and runs it.
 */
#include <errno.h>
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

	/* as a 16-bit field would cut them, these would be right */
	kvblk_prep_put(&ops[0], "a", 65536 + 1, pieces, 65536 + 1);
	CHECK(ops[0].key_len > KVBLK_KEY_MAX);
	CHECK(ops[0].nr_pieces > KVBLK_PIECES_MAX);
	verdict("lengths are never cut to fit");
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
	for (unsigned int i = KVBLK_EVENT_POOL_UP; i <= KVBLK_EVENT_MEMBER_FAILING; i++) {
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
	CHECK(!kvblk_event_number_name(KVBLK_A_EVENT_TYPE));
	CHECK(!kvblk_event_number_name(KVBLK_A_EVENT_MAX + 1));
	notice.type = KVBLK_EVENT_MEMBER_FAILING + 1;
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
	kvblk_close(kv);
	return !!nr_failed;
}
