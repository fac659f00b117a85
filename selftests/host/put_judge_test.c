// SPDX-License-Identifier: GPL-2.0
/* The verdict of a put about the entry of its key, in all cases. */
#include <linux/array_size.h>

#include "kvblk_test.h"
#include "ops/put_judge.h"

#define BIT_OF(x)	(1u << (x))
#define FREE		BIT_OF(KVBLK_SLOT_FREE)
#define WRITING		BIT_OF(KVBLK_SLOT_WRITING)
#define LIVE		BIT_OF(KVBLK_SLOT_LIVE)
#define MOVING		BIT_OF(KVBLK_SLOT_MOVING)
#define PRESENT		(LIVE | MOVING)
#define ANY_OLDER	15u
#define GOES		(BIT_OF(KVBLK_OLDER_GOES) | BIT_OF(KVBLK_OLDER_MUST))
#define CLEARS		(GOES | BIT_OF(KVBLK_OLDER_NONE))

enum want { NO, YES, ANY };

/* The first row that matches decides. @states, @older: sets of states and of kinds of puts. */
static const struct row {
	unsigned int states;
	enum want served, expired, foreign, in_dram, same_length, durable, retried;
	unsigned int older;
	enum kvblk_put_verdict verdict;
} rows[] = {
	/* states served expired foreign in_dram same_length durable retried older */
	{ FREE, ANY, ANY, ANY, ANY, ANY, ANY, ANY, ANY_OLDER, KVBLK_PUT_WRITE },
	{ WRITING, YES, ANY, ANY, ANY, ANY, ANY, ANY, ANY_OLDER, KVBLK_PUT_BUSY },
	{ MOVING, ANY, YES, ANY, ANY, ANY, ANY, ANY, ANY_OLDER, KVBLK_PUT_WAIT },
	{ MOVING, NO, NO, ANY, ANY, ANY, ANY, ANY, ANY_OLDER, KVBLK_PUT_BUSY },
	{ LIVE | WRITING, NO, ANY, ANY, ANY, ANY, ANY, NO, CLEARS, KVBLK_PUT_FAIL },
	{ LIVE | WRITING, NO, ANY, ANY, ANY, ANY, ANY, ANY, ANY_OLDER,
	  KVBLK_PUT_TAKE_OVER },
	{ LIVE, YES, YES, ANY, ANY, ANY, ANY, ANY, ANY_OLDER, KVBLK_PUT_EXPIRE },
	{ PRESENT, YES, NO, NO, YES, ANY, YES, ANY, ANY_OLDER, KVBLK_PUT_DEMOTE },
	{ PRESENT, YES, NO, NO, ANY, ANY, ANY, NO, GOES, KVBLK_PUT_REPLACE },
	{ PRESENT, YES, NO, ANY, NO, YES, YES, ANY, ANY_OLDER, KVBLK_PUT_FLUSH },
	{ PRESENT, YES, NO, ANY, ANY, ANY, ANY, ANY, ANY_OLDER, KVBLK_PUT_EXISTS },
};

static bool fits(enum want want, bool is)
{
	return want == ANY || (want == YES) == is;
}

static bool matches(const struct row *row, const struct kvblk_put_case *put)
{
	return row->states & BIT_OF(put->state) && row->older & BIT_OF(put->older) &&
	       fits(row->served, put->served) && fits(row->expired, put->expired) &&
	       fits(row->foreign, put->foreign) && fits(row->in_dram, put->in_dram) &&
	       fits(row->same_length, put->same_length) && fits(row->durable, put->durable) &&
	       fits(row->retried, put->retried);
}

/* Number of cases: four states, four kinds of puts, seven other facts. */
#define CASES	(4u * 4 * (1u << 7))

static struct kvblk_put_case nth(unsigned int n)
{
	return (struct kvblk_put_case) {
		.state = n & 3, .older = n >> 2 & 3, .served = n >> 4 & 1, .expired = n >> 5 & 1,
		.foreign = n >> 6 & 1, .in_dram = n >> 7 & 1, .same_length = n >> 8 & 1,
		.durable = n >> 9 & 1, .retried = n >> 10 & 1,
	};
}

TEST(every_case_has_its_verdict)
{
	unsigned int used[ARRAY_SIZE(rows)] = {};

	for (unsigned int n = 0; n < CASES; n++) {
		struct kvblk_put_case put = nth(n);
		unsigned int i = 0;

		while (!matches(&rows[i], &put))
			assert_true(++i < ARRAY_SIZE(rows));
		used[i]++;
		assert_int_equal(kvblk_put_judge(&put), rows[i].verdict);
	}
	for (unsigned int i = 0; i < ARRAY_SIZE(rows); i++)
		assert_true(used[i] > 0);
}

/* Rules that no table may break. */
TEST(no_block_is_lost_or_promised_wrongly)
{
	for (unsigned int n = 0; n < CASES; n++) {
		struct kvblk_put_case put = nth(n);
		enum kvblk_put_verdict verdict = kvblk_put_judge(&put);
		bool writes = verdict <= KVBLK_PUT_REPLACE;
		bool readable = put.state >= KVBLK_SLOT_LIVE && put.served && !put.expired;

		/* only a put with permission to replace overwrites a served block */
		if (readable && writes)
			assert_true(verdict == KVBLK_PUT_REPLACE && put.older >= KVBLK_OLDER_GOES &&
				    !put.retried && !put.foreign);
		/* the owner of an entry that is served is never disturbed */
		if (put.state == KVBLK_SLOT_WRITING && put.served)
			assert_int_equal(verdict, KVBLK_PUT_BUSY);
		/* a durable put never reports a block as present if a crash may lose the block */
		if (verdict == KVBLK_PUT_EXISTS && put.durable && !put.foreign)
			assert_false(put.in_dram || put.same_length);
		/* an older record that must not come back is never left behind by a write */
		if (verdict == KVBLK_PUT_TAKE_OVER)
			assert_false(kvblk_put_clears(put.older, put.retried));
		/* a put waits only for an entry that changes by itself */
		if (verdict == KVBLK_PUT_WAIT)
			assert_int_equal(put.state, KVBLK_SLOT_MOVING);
	}
}

TEST_MAIN("put_judge")
