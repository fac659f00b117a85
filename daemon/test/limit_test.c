// SPDX-License-Identifier: MIT
/* Rate limit: what is logged of a storm, and never for another member. */
#include "kvblk_test.h"
#include "log/ratelimit.h"

static struct limit limit;

static bool take(unsigned int type, unsigned int member, int64_t now)
{
	struct kvblk_notice notice = { .type = type, .pool = "kv0" };
	char text[32];

	snprintf(notice.member, sizeof(notice.member), "m%u", member);
	snprintf(text, sizeof(text), "m%u at %d", member, (int)now);
	return limit_take(&limit, &notice, 4, text, now);
}

/* 40 s of two flapping members, four events a millisecond. */
TEST(test_storm)
{
	const struct limit_kind *kind;
	unsigned int lines = 0;
	uint64_t more, sum = 0;

	memset(&limit, 0, sizeof(limit));
	assert_int_equal(limit_due(&limit, 1000), -1);
	for (int i = 0; i < 160000; i++)
		lines += take(1 + i / 2 % 2, i % 2, 1000 + i / 4000);
	assert_int_equal(lines, 4);
	assert_int_equal(limit_due(&limit, 1040), 20);
	assert_null(limit_next(&limit, 1059, &more));
	while ((kind = limit_next(&limit, 1060, &more))) {
		lines++;
		sum += more;
		assert_string_equal(kind->text, !strcmp(kind->member, "m0") ?
				    "m0 at 1039" : "m1 at 1039");
	}
	assert_int_equal(lines, 8);
	assert_int_equal(sum, 160000 - 4);
	/* after the storm the next event is logged at once, a minute later */
	assert_false(take(1, 0, 1119));
	assert_int_equal(limit_due(&limit, 1119), 1);
	assert_non_null(limit_next(&limit, 1120, &more));
	assert_int_equal(more, 1);
	assert_true(take(1, 0, 1180));
}

/* More kinds than fit: the oldest is replaced, and all are logged. */
TEST(test_many)
{
	memset(&limit, 0, sizeof(limit));
	for (unsigned int i = 0; i < 2 * LIMIT_KINDS; i++)
		assert_true(take(1, i, 1000 + i / 8));
	assert_false(take(1, 2 * LIMIT_KINDS - 1, 1064));
	assert_true(take(1, 0, 1064));
}

TEST_MAIN("limit")
