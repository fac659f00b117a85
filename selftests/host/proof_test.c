// SPDX-License-Identifier: GPL-2.0
/*
 * The proof of a new record, and the verdict about a payload, in all cases. A future kind, too,
 * without a row in kvblk_proofs.
 */
#include <linux/array_size.h>

#include "kvblk_test.h"
#include "memory/memory.h"

#define BIT_OF(x)	(1u << (x))
#define HEADER		BIT_OF(KVBLK_CHECK_HEADER)
#define FULL		BIT_OF(KVBLK_CHECK_FULL)
#define PRODUCER	BIT_OF(KVBLK_CHECK_PRODUCER)
#define ANY_POLICY	(HEADER | FULL | PRODUCER)
#define NONE		BIT_OF(KVBLK_INTEGRITY_NONE)
#define GIVEN		BIT_OF(KVBLK_INTEGRITY_PRODUCER)
#define SUMMED		(BIT_OF(KVBLK_INTEGRITY_CRC32C) | GIVEN)
#define ROWLESS_KIND	KVBLK_INTEGRITIES
#define KINDS		(KVBLK_INTEGRITIES + 1)
#define SECRET		BIT_OF(KVBLK_INTEGRITY_AES_GCM)
#define ROWLESS		BIT_OF(ROWLESS_KIND)
#define ANY_INTEGRITY	(NONE | SUMMED)

static const struct kvblk_proof *kind(u8 integrity)
{
	static const struct kvblk_proof rowless;

	return integrity == ROWLESS_KIND ? &rowless : &kvblk_proofs[integrity];
}

enum want { NO, YES, ANY };

static bool fits(enum want want, bool is)
{
	return want == ANY || (want == YES) == is;
}

/* The first row that matches decides. @policies, @integrities: sets. */
static const struct row {
	unsigned int policies, integrities;
	enum want durable, unproven, seen, returned;
	enum kvblk_verdict verdict;
} rows[] = {
	/* policies integrities durable unproven seen returned */
	{ ANY_POLICY, SECRET, ANY, ANY, ANY, ANY, KVBLK_VERIFY },
	{ ANY_POLICY, ROWLESS, ANY, ANY, ANY, ANY, KVBLK_REFUSE },
	{ FULL, NONE, ANY, ANY, ANY, ANY, KVBLK_REFUSE },
	{ ANY_POLICY, NONE, ANY, YES, ANY, ANY, KVBLK_REFUSE },
	{ ANY_POLICY, NONE, ANY, NO, ANY, ANY, KVBLK_SERVE },
	{ ANY_POLICY, SUMMED, ANY, ANY, YES, ANY, KVBLK_VERIFY },
	{ ANY_POLICY, SUMMED, ANY, YES, NO, ANY, KVBLK_VERIFY },
	{ ANY_POLICY, SUMMED, ANY, NO, NO, YES, KVBLK_SERVE },
	{ FULL, SUMMED, ANY, NO, NO, NO, KVBLK_VERIFY },
	{ HEADER | PRODUCER, SUMMED, NO, NO, NO, NO, KVBLK_VERIFY },
	{ HEADER | PRODUCER, SUMMED, YES, NO, NO, NO, KVBLK_SERVE },
};

static enum kvblk_verdict expected(const struct kvblk_proof_case *get)
{
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		if (rows[i].policies & BIT_OF(get->policy) &&
		    rows[i].integrities & BIT_OF(get->integrity) &&
		    fits(rows[i].durable, get->durable) && fits(rows[i].unproven, get->unproven) &&
		    fits(rows[i].seen, get->seen) && fits(rows[i].returned, get->returned))
			return rows[i].verdict;
	fail_msg("no row for policy %u, integrity %u", get->policy, get->integrity);
	return KVBLK_REFUSE;
}

TEST(verdict_on_member)
{
	for (unsigned int n = 0; n < KINDS * 3 * 16; n++) {
		struct kvblk_proof_case get = {
			.policy = n / 16 % 3,
			.integrity = n / 48,
			.durable = n & 1,
			.unproven = n & 2,
			.seen = n & 4,
			.returned = n & 8,
		};

		assert_int_equal(kvblk_proof_judge(kind(get.integrity), &get), expected(&get));
	}
}

static const struct {
	unsigned int policies, integrities;
	enum want unproven;
	enum kvblk_verdict verdict;
} dram_rows[] = {
	{ ANY_POLICY, SECRET | ROWLESS, ANY, KVBLK_REFUSE },
	{ FULL, SUMMED, ANY, KVBLK_VERIFY },
	{ FULL, NONE, YES, KVBLK_REFUSE },
	{ PRODUCER, GIVEN, ANY, KVBLK_VERIFY },
	{ ANY_POLICY, ANY_INTEGRITY, ANY, KVBLK_SERVE },
};

TEST(verdict_in_dram)
{
	for (unsigned int n = 0; n < 3 * KINDS * 2; n++) {
		u32 policy = n % 3, integrity = n / 3 % KINDS, i = 0;
		bool unproven = n / 3 / KINDS;

		while (!(dram_rows[i].policies & BIT_OF(policy) &&
			 dram_rows[i].integrities & BIT_OF(integrity) &&
			 fits(dram_rows[i].unproven, unproven)))
			i++;
		assert_int_equal(kvblk_proof_judge_dram(kind(integrity), policy, integrity,
							unproven), dram_rows[i].verdict);
	}
}

/* A record of each policy is served under the same policy, unless its segment was torn. */
TEST(choice)
{
	for (unsigned int n = 0; n < 3 * 4; n++) {
		u32 policy = n % 3;
		bool given = n / 3 & 1, unseen = n / 6;
		struct kvblk_proof_case get = {
			.policy = policy,
			.integrity = kvblk_proof_choose(policy, given, unseen),
			.seen = true,
		};

		assert_int_equal(get.integrity == KVBLK_INTEGRITY_PRODUCER, given);
		assert_int_equal(get.integrity == KVBLK_INTEGRITY_NONE,
				 !given && (policy == KVBLK_CHECK_HEADER ||
					    (policy == KVBLK_CHECK_PRODUCER && unseen)));
		assert_int_not_equal(kvblk_proof_judge(kind(get.integrity), &get), KVBLK_REFUSE);
	}
}

TEST_MAIN("proof")
