// SPDX-License-Identifier: MIT
/*
 * libkvblk-admin without the module: names, sentences, and structures of programs that were
 * built with another version. VM tests cover the rest.
 */
/* for their static functions */
#include "../lib/admin/admin.c"	/* NOLINT(bugprone-suspicious-include) */
#include "../lib/admin/tenant.c"	/* NOLINT(bugprone-suspicious-include) */

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kvblk_test.h"

TEST(test_names)
{
	static const struct {
		unsigned int kind, first, last;
	} ranges[] = {
		{ KVBLK_NAME_COUNTER, KVBLK_A_COUNTER_PUTS, KVBLK_A_COUNTER_MAX },
		{ KVBLK_NAME_TENANT_COUNTER, KVBLK_A_TENANT_COUNTER_PUTS,
		  KVBLK_A_TENANT_COUNTER_MAX },
		{ KVBLK_NAME_GAUGE, KVBLK_A_GAUGE_INFLIGHT, KVBLK_A_GAUGE_MAX },
		{ KVBLK_NAME_LATENCY, KVBLK_A_LATENCY_PUT, KVBLK_A_LATENCY_LOOKUP },
		{ KVBLK_NAME_EVENT, KVBLK_EVENT_POOL_UP, KVBLK_EVENT_MEMBER_FENCED },
		{ KVBLK_NAME_MEMBER_STATUS, 0, KVBLK_MEMBER_STATUS_UNRESTORED },
	};

	for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
		for (unsigned int n = ranges[i].first; n <= ranges[i].last; n++)
			assert_string_not_equal(kvblk_name(ranges[i].kind, n), "unknown");
		assert_string_equal(kvblk_name(ranges[i].kind, ranges[i].last + 1), "unknown");
		assert_string_equal(kvblk_name(ranges[i].kind, UINT32_MAX), "unknown");
	}
	assert_string_equal(kvblk_name(KVBLK_NAME_COUNTER, 0), "unknown");
	assert_string_equal(kvblk_name(KVBLK_NAME_MEMBER_STATUS, KVBLK_MEMBER_STATUS_UP), "up");
	assert_string_equal(kvblk_name(KVBLK_NAME_ROUTE_STATUS, KVBLK_ROUTE_STATUS_TRIAL), "trial");
	assert_string_equal(kvblk_name(KVBLK_NAME_EVENT_NUMBER, KVBLK_A_EVENT_BLOCKS), "blocks");
	/* an attribute of events that is no number */
	assert_string_equal(kvblk_name(KVBLK_NAME_EVENT_NUMBER, KVBLK_A_EVENT_TYPE), "unknown");
	assert_string_equal(kvblk_name(0, 1), "unknown");
	assert_string_equal(kvblk_name(KVBLK_NAME_TENANT_COUNTER + 1, 1), "unknown");
}

static void says(const struct kvblk_notice *notice, const char *part)
{
	char text[256];

	kvblk_event_text(notice, text, sizeof(text));
	assert_non_null(strstr(text, part));
}

TEST(test_texts)
{
	struct kvblk_notice notice = { .pool = "kv0" };
	char text[256];

	for (notice.type = KVBLK_EVENT_POOL_UP; notice.type <= KVBLK_EVENT_MEMBER_FENCED; notice.type++) {
		kvblk_event_text(&notice, text, sizeof(text));
		assert_null(strstr(text, "unknown"));
	}
	says(&notice, "unknown");
	notice.type = KVBLK_EVENT_MEMBER_FAILING;
	notice.number[KVBLK_A_EVENT_IO_ERRORS] = UINT64_MAX;
	says(&notice, "18446744073709551615 I/O errors");
	notice.type = KVBLK_EVENT_RESTORE_FAILED;
	notice.number[KVBLK_A_EVENT_ERROR] = EIO;
	says(&notice, "error 5");
	notice.type = KVBLK_EVENT_REQUEST_DONE;
	says(&notice, "failed: error 5");
	notice.number[KVBLK_A_EVENT_ERROR] = 0;
	says(&notice, "succeeded");
	kvblk_event_text(&notice, text, 8);
	assert_string_equal(text, "pool kv");
}

/* A later version's spec. */
struct long_spec {
	struct kvblk_member_spec known;
	uint64_t more;
};

TEST(test_sizes)
{
	/* a version whose last field is @name */
	const uint32_t shorter = offsetof(struct kvblk_member_spec, uuid);
	struct kvblk_member_spec spec = { .size = shorter, .name = "a", .uuid = (void *)1 }, read;
	struct long_spec later = { { .size = sizeof(later), .path = "/b" }, 0 };

	assert_int_equal(kvblk_read_sized(&read, sizeof(read), &spec), 0);
	assert_string_equal(read.name, "a");
	assert_null(read.uuid);
	assert_int_equal(kvblk_read_sized(&read, sizeof(read), &later), 0);
	assert_string_equal(read.path, "/b");
	assert_int_equal(read.size, sizeof(later));
	later.more = 1;
	assert_int_equal(kvblk_read_sized(&read, sizeof(read), &later), -E2BIG);
	spec.size = UINT32_MAX;
	assert_int_equal(kvblk_read_sized(&read, sizeof(read), &spec), -E2BIG);
	spec.size = 0;
	assert_int_equal(kvblk_read_sized(&read, sizeof(read), &spec), -EINVAL);
}

TEST(test_members)
{
	struct long_spec members[2] = {
		{ { .size = sizeof(members[0]), .path = "/no/a", .segment_size = 8 << 20 }, 0 },
		{ { .size = sizeof(members[0]), .path = "/no/b", .name = "b" }, 0 },
	};
	struct kvblk_pool_spec spec = {
		.size = sizeof(spec), .name = "p", .nr_members = 2, .members = &members[0].known,
	};
	struct nl_msg *msg = nlmsg_alloc();
	struct nlattr *attr;
	int left, nr = 0;

	assert_int_equal(put_members(msg, &spec), 0);
	nlmsg_for_each_attr(attr, nlmsg_hdr(msg), 0, left) {
		struct nlattr *tb[KVBLK_A_MEMBER_MAX + 1];

		assert_int_equal(nla_parse_nested(tb, KVBLK_A_MEMBER_MAX, attr, NULL), 0);
		assert_string_equal(nla_get_string(tb[KVBLK_A_MEMBER_PATH]), nr ? "/no/b" : "/no/a");
		assert_int_equal(!!tb[KVBLK_A_MEMBER_NAME], nr);
		assert_int_equal(!!tb[KVBLK_A_MEMBER_SEGMENT_SIZE], !nr);
		nr++;
	}
	assert_int_equal(nr, 2);
	members[1].more = 1;
	assert_int_equal(put_members(msg, &spec), -E2BIG);
	members[1].more = 0;
	members[1].known.path = NULL;
	assert_int_equal(put_members(msg, &spec), -EINVAL);
	spec.name = NULL;
	assert_int_equal(put_pool_spec(msg, &spec), -EINVAL);
	nlmsg_free(msg);
}

TEST(test_tenant_spec)
{
	const struct kvblk_tenant_spec defaults = { .size = sizeof(defaults), .name = "t" };
	struct kvblk_tenant_spec spec = {
		.size = sizeof(spec), .name = "t", .mode = 0600, .uid = 5, .gid = UINT32_MAX - 1,
		.key = -3,
	};
	struct nlattr *tb[KVBLK_A_TENANT_MAX + 1];
	struct nl_msg *msg = nlmsg_alloc();

	assert_int_equal(put_tenant_spec(msg, "p", &defaults), 0);
	assert_int_equal(nlmsg_parse(nlmsg_hdr(msg), 0, tb, KVBLK_A_TENANT_MAX, NULL), 0);
	assert_string_equal(nla_get_string(tb[KVBLK_A_TENANT_POOL]), "p");
	assert_string_equal(nla_get_string(tb[KVBLK_A_TENANT_NAME]), "t");
	assert_null(tb[KVBLK_A_TENANT_MODE]);
	assert_null(tb[KVBLK_A_TENANT_UID]);
	assert_null(tb[KVBLK_A_TENANT_GID]);
	assert_null(tb[KVBLK_A_TENANT_KEY]);
	nlmsg_free(msg);

	msg = nlmsg_alloc();
	assert_int_equal(put_tenant_spec(msg, "p", &spec), 0);
	assert_int_equal(nlmsg_parse(nlmsg_hdr(msg), 0, tb, KVBLK_A_TENANT_MAX, NULL), 0);
	assert_int_equal(nla_get_u32(tb[KVBLK_A_TENANT_MODE]), 0600);
	assert_int_equal(nla_get_u32(tb[KVBLK_A_TENANT_UID]), 5);
	assert_int_equal(nla_get_u32(tb[KVBLK_A_TENANT_GID]), UINT32_MAX - 1);
	assert_int_equal(nla_get_s32(tb[KVBLK_A_TENANT_KEY]), -3);
	spec.mode = 01000;
	assert_int_equal(put_tenant_spec(msg, "p", &spec), -EINVAL);
	spec = defaults;
	assert_int_equal(put_tenant_spec(msg, NULL, &spec), -EINVAL);
	spec.name = NULL;
	assert_int_equal(put_tenant_spec(msg, "p", &spec), -EINVAL);
	assert_int_equal(put_tenant(msg, "p", NULL, false), -EINVAL);
	assert_int_equal(put_tenant(msg, NULL, "t", false), -EINVAL);
	nlmsg_free(msg);

	msg = nlmsg_alloc();
	assert_int_equal(put_key(msg, "p", NULL, 7), -EINVAL);
	assert_int_equal(put_key(msg, "p", "t", 7), 0);
	assert_int_equal(nlmsg_parse(nlmsg_hdr(msg), 0, tb, KVBLK_A_TENANT_MAX, NULL), 0);
	assert_string_equal(nla_get_string(tb[KVBLK_A_TENANT_NAME]), "t");
	assert_int_equal(nla_get_s32(tb[KVBLK_A_TENANT_KEY]), 7);
	nlmsg_free(msg);

	for (int force = 0; force < 2; force++) {
		msg = nlmsg_alloc();
		assert_int_equal(put_tenant(msg, "p", "t", force), 0);
		assert_int_equal(nlmsg_parse(nlmsg_hdr(msg), 0, tb, KVBLK_A_TENANT_MAX, NULL), 0);
		assert_string_equal(nla_get_string(tb[KVBLK_A_TENANT_NAME]), "t");
		assert_int_equal(!!tb[KVBLK_A_TENANT_FORCE], force);
		nlmsg_free(msg);
	}
}

/* Parse what put_change() writes for @change to @tb, whose memory is the returned message's. */
static struct nl_msg *change_attrs(const struct kvblk_tenant_change *change,
				   struct nlattr *tb[KVBLK_A_TENANT_MAX + 1])
{
	struct nl_msg *msg = nlmsg_alloc();

	assert_int_equal(put_change(msg, change), 0);
	assert_int_equal(nlmsg_parse(nlmsg_hdr(msg), 0, tb, KVBLK_A_TENANT_MAX, NULL), 0);
	return msg;
}

TEST(test_tenant_change)
{
	const struct {
		uint32_t field;
		int attr;
		uint64_t value;		/* 0: text */
	} rows[] = {
		{ KVBLK_TENANT_MODE, KVBLK_A_TENANT_MODE, 0640 },
		{ KVBLK_TENANT_UID, KVBLK_A_TENANT_UID, 5 },
		{ KVBLK_TENANT_GID, KVBLK_A_TENANT_GID, 6 },
		{ KVBLK_TENANT_WEIGHT, KVBLK_A_TENANT_WEIGHT, 300 },
		{ KVBLK_TENANT_QUOTA_BYTES, KVBLK_A_TENANT_QUOTA_BYTES, 5ull << 40 },
		{ KVBLK_TENANT_QUOTA_BYTES_SOFT, KVBLK_A_TENANT_QUOTA_BYTES_SOFT, 4ull << 40 },
		{ KVBLK_TENANT_QUOTA_BLOCKS, KVBLK_A_TENANT_QUOTA_BLOCKS, 3ull << 32 },
		{ KVBLK_TENANT_QUOTA_BLOCKS_SOFT, KVBLK_A_TENANT_QUOTA_BLOCKS_SOFT, 2ull << 32 },
		{ KVBLK_TENANT_QUOTA_DRAM, KVBLK_A_TENANT_QUOTA_DRAM, 1ull << 40 },
		{ KVBLK_TENANT_SHARED, KVBLK_A_TENANT_SHARED, 0 },
	};
	struct kvblk_tenant_change change = {
		.size = sizeof(change), .mode = 0640, .uid = 5, .gid = 6, .weight = 300,
		.quota_bytes = 5ull << 40, .quota_bytes_soft = 4ull << 40,
		.quota_blocks = 3ull << 32, .quota_blocks_soft = 2ull << 32,
		.quota_dram = 1ull << 40, .shared = "common",
	};
	struct nlattr *tb[KVBLK_A_TENANT_MAX + 1];
	struct nl_msg *msg;
	uint64_t value;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		change.fields = rows[i].field;
		msg = change_attrs(&change, tb);
		for (int attr = 1; attr <= KVBLK_A_TENANT_MAX; attr++)
			assert_int_equal(!!tb[attr], attr == rows[i].attr);
		if (rows[i].value) {
			assert_true(kvblk_nl_uint(&value, tb[rows[i].attr]));
			assert_int_equal(value, rows[i].value);
		} else {
			assert_string_equal(nla_get_string(tb[rows[i].attr]), "common");
		}
		nlmsg_free(msg);
	}
	/* the last field of &enum kvblk_tenant_field */
	assert_int_equal(FIELDS_ALL, (1 << (sizeof(rows) / sizeof(rows[0]))) - 1);
	change.shared = NULL;
	msg = change_attrs(&change, tb);
	assert_string_equal(nla_get_string(tb[KVBLK_A_TENANT_SHARED]), "");
	change.fields = FIELDS_ALL + 1;
	assert_int_equal(put_change(msg, &change), -EINVAL);
	nlmsg_free(msg);
	change.fields = 0;
	msg = change_attrs(&change, tb);
	for (int attr = 1; attr <= KVBLK_A_TENANT_MAX; attr++)
		assert_null(tb[attr]);
	nlmsg_free(msg);
}

/* Add the limits of a tenant, and for a monitor what it uses. */
static void put_limits(struct nl_msg *msg, bool monitor)
{
	struct nlattr *nest;

	nla_put_u32(msg, KVBLK_A_TENANT_WEIGHT, 300);
	nla_put_u64(msg, KVBLK_A_TENANT_QUOTA_BYTES, 5ull << 40);
	nla_put_u32(msg, KVBLK_A_TENANT_QUOTA_BYTES_SOFT, 4);
	nla_put_u32(msg, KVBLK_A_TENANT_QUOTA_BLOCKS, 3);
	nla_put_u32(msg, KVBLK_A_TENANT_QUOTA_BLOCKS_SOFT, 2);
	nla_put_u32(msg, KVBLK_A_TENANT_QUOTA_DRAM, 1);
	nla_put_string(msg, KVBLK_A_TENANT_SHARED, "common");
	if (!monitor)
		return;
	nla_put_u64(msg, KVBLK_A_TENANT_USED_BYTES, 7ull << 40);
	nla_put_u32(msg, KVBLK_A_TENANT_USED_BLOCKS, 8);
	nla_put_u32(msg, KVBLK_A_TENANT_USED_DRAM, 9);
	nest = nla_nest_start(msg, KVBLK_A_TENANT_COUNTERS);
	nla_put_u64(msg, KVBLK_A_TENANT_COUNTER_PUTS, 1ull << 33);
	nla_put_u32(msg, KVBLK_A_TENANT_COUNTER_QUOTA_DROPS, 0);
	/* of a later module */
	nla_put_u32(msg, KVBLK_A_TENANT_COUNTER_MAX + 1, 1);
	nla_put_u32(msg, KVBLK_TENANT_COUNTERS, 1);
	nla_nest_end(msg, nest);
}

/* Parse a reply about a tenant, of the default one if @id is 0, for a monitor, with @limits. */
static void add_tenant(struct replies *replies, uint32_t id, bool monitor, bool limits)
{
	struct nl_msg *msg = nlmsg_alloc();

	assert_non_null(genlmsg_put(msg, 0, 0, 100, 0, 0, KVBLK_CMD_TENANT_GET, 1));
	nla_put_string(msg, KVBLK_A_TENANT_POOL, "p");
	nla_put_string(msg, KVBLK_A_TENANT_NAME, id ? "t" : "default");
	nla_put_u32(msg, KVBLK_A_TENANT_ID, id);
	nla_put_string(msg, KVBLK_A_TENANT_DEVNODE, id ? "kvblk/p/t" : "kvblk/p/default");
	if (id) {
		nla_put_u32(msg, KVBLK_A_TENANT_MODE, 0600);
		nla_put_u32(msg, KVBLK_A_TENANT_UID, 5);
		nla_put_u32(msg, KVBLK_A_TENANT_GID, 6);
		nla_put_flag(msg, KVBLK_A_TENANT_ENCRYPTED);
		nla_put_flag(msg, KVBLK_A_TENANT_LOCKED);
	}
	if (monitor)
		nla_put_u64(msg, KVBLK_A_TENANT_OPENERS, 1ull << 32);
	if (limits)
		put_limits(msg, monitor);
	assert_int_equal(parse_tenant(nlmsg_hdr(msg), replies), 0);
	nlmsg_free(msg);
}

TEST(test_tenant_state)
{
	struct replies replies = { .last = &replies.first };
	const struct kvblk_tenant_state *tenant;
	int nr = 0;

	add_tenant(&replies, 0, true, false);
	add_tenant(&replies, 9, false, false);
	tenant = (const struct kvblk_tenant_state *)replies.first;
	for (; tenant; tenant = tenant->next, nr++) {
		assert_string_equal(tenant->pool, "p");
		assert_string_equal(tenant->name, nr ? "t" : "default");
		assert_string_equal(tenant->devnode, nr ? "kvblk/p/t" : "kvblk/p/default");
		assert_int_equal(tenant->id, nr ? 9 : 0);
		assert_int_equal(tenant->has_mode, nr);
		assert_int_equal(tenant->mode, nr ? 0600 : 0);
		assert_int_equal(tenant->uid, nr ? 5 : 0);
		assert_int_equal(tenant->gid, nr ? 6 : 0);
		assert_int_equal(tenant->encrypted, nr);
		assert_int_equal(tenant->locked, nr);
		assert_int_equal(tenant->has_use, !nr);
		assert_int_equal(tenant->openers, nr ? 0 : 1ull << 32);
	}
	assert_int_equal(nr, 2);
	kvblk_list_free(replies.first);
}

TEST(test_tenant_limits)
{
	struct replies replies = { .last = &replies.first };
	const struct kvblk_tenant_state *tenant;

	add_tenant(&replies, 0, true, false);
	add_tenant(&replies, 8, false, true);
	add_tenant(&replies, 9, true, true);
	tenant = (const struct kvblk_tenant_state *)replies.first;
	for (; tenant; tenant = tenant->next) {
		const bool monitor = tenant->id == 9;

		assert_int_equal(tenant->has_limits, tenant->id != 0);
		if (!tenant->has_limits) {
			assert_false(tenant->has_used);
			continue;
		}
		assert_int_equal(tenant->weight, 300);
		assert_int_equal(tenant->quota_bytes, 5ull << 40);
		assert_int_equal(tenant->quota_bytes_soft, 4);
		assert_int_equal(tenant->quota_blocks, 3);
		assert_int_equal(tenant->quota_blocks_soft, 2);
		assert_int_equal(tenant->quota_dram, 1);
		assert_string_equal(tenant->shared, "common");
		assert_int_equal(tenant->has_used, monitor);
		assert_int_equal(tenant->used_bytes, monitor ? 7ull << 40 : 0);
		assert_int_equal(tenant->used_blocks, monitor ? 8 : 0);
		assert_int_equal(tenant->used_dram, monitor ? 9 : 0);
		for (int i = 0; i < KVBLK_TENANT_COUNTERS; i++)
			assert_int_equal(tenant->has_counter[i],
					 monitor && (i == KVBLK_A_TENANT_COUNTER_PUTS ||
						     i == KVBLK_A_TENANT_COUNTER_QUOTA_DROPS));
		assert_int_equal(tenant->counter[KVBLK_A_TENANT_COUNTER_PUTS],
				 monitor ? 1ull << 33 : 0);
	}
	kvblk_list_free(replies.first);
}

TEST(test_changes)
{
	const struct kvblk_changes changes = { .size = sizeof(changes) };
	char name[KVBLK_PATH_LEN_MAX + 1], dir[] = "/tmp/kvblk-admin-test-XXXXXX";

	memset(name, 'x', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	assert_int_equal(kvblk_changes_open("", 0, &changes), -EINVAL);
	assert_int_equal(kvblk_changes_open("kv0", O_RDWR, &changes), -EINVAL);
	assert_int_equal(kvblk_changes_open(name, 0, &changes), -ENAMETOOLONG);
	assert_int_equal(kvblk_changes_open("absent", 0, &changes), -ENODEV);
	assert_int_equal(kvblk_changes_open("/dev/null/absent", 0, &changes), -ENODEV);
	assert_int_equal(kvblk_changes_open("/dev/null", O_NONBLOCK, &changes), -ENOTTY);
	assert_int_equal(kvblk_changes_open(NULL, 0, &changes), -EINVAL);
	/* not blocked by a FIFO without a writer */
	assert_non_null(mkdtemp(dir));
	snprintf(name, sizeof(name), "%s/fifo", dir);
	assert_int_equal(mkfifo(name, 0600), 0);
	alarm(10);
	assert_int_equal(kvblk_changes_open(name, 0, &changes), -ENOTTY);
	alarm(0);
	unlink(name);
	rmdir(dir);
}

TEST(test_handles)
{
	struct kvblk_feed *feed;

	assert_int_equal(kvblk_feed_open(0, &feed), -EINVAL);
	assert_int_equal(kvblk_feed_open(KVBLK_FEED_EVENTS | 4, &feed), -EINVAL);
	kvblk_feed_close(NULL);
	kvblk_admin_close(NULL);
	kvblk_list_free(NULL);
}

TEST_MAIN("admin")
