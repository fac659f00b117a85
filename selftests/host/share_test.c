// SPDX-License-Identifier: GPL-2.0
/* Shares of tenants that wait for a device, by weights: exact, without starvation or savings. */
#include "kvblk_test.h"
#include "log/share.h"

#define MIB		(1ull << 20)
#define TENANTS		64u

static struct tenant {
	u64 clock;
	u64 bytes;			/* served */
	u64 io;				/* bytes of each I/O, 0: none waits */
	u32 weight;
} tenants[TENANTS];
static u64 device;

static int setup(void **state)
{
	memset(tenants, 0, sizeof(tenants));
	device = 0;
	return 0;
}

/* The tenant has I/O of @io bytes from now on, always. */
static void begin(u32 i, u64 io, u32 weight)
{
	tenants[i].io = io;
	tenants[i].weight = weight;
	kvblk_share_begin(&tenants[i].clock, device);
}

/* Serves the next I/O, and returns the tenant. */
static u32 serve(void)
{
	u32 next = TENANTS;

	for (u32 i = 0; i < TENANTS; i++)
		if (tenants[i].io && (next == TENANTS || kvblk_share_behind(tenants[i].clock,
									    tenants[next].clock)))
			next = i;
	tenants[next].bytes += tenants[next].io;
	kvblk_share_serve(&tenants[next].clock, &device, tenants[next].io, tenants[next].weight);
	return next;
}

static void serve_bytes(u64 bytes)
{
	u64 done = 0;

	while (done < bytes)
		done += tenants[serve()].io;
}

/* Tenants @i and @j got bytes by weight, but for an I/O of each. */
static void assert_shares(u32 i, u32 j)
{
	const struct tenant *a = &tenants[i], *b = &tenants[j];
	u64 got = a->bytes * b->weight, due = b->bytes * a->weight;
	u64 most = a->io * b->weight + b->io * a->weight + got / 10000;

	assert_in_range(got, due - min(due, most), due + most);
}

TEST_WITH(two_tenants_share_by_weight, setup, NULL)
{
	static const u32 weights[][2] = { { 300, 100 }, { 1000, 100 }, { 100, 100 }, { 10000, 1 },
					  { 7, 3 } };
	static const u64 ios[] = { 4096, 12288, MIB, 64 * MIB };

	for (u32 w = 0; w < 5; w++)
		for (u32 i = 0; i < 4; i++)
			for (u32 j = 0; j < 4; j++) {
				setup(NULL);
				begin(0, ios[i], weights[w][0]);
				begin(1, ios[j], weights[w][1]);
				serve_bytes(20000 * min(ios[i], ios[j]) + 20 * max(ios[i], ios[j]));
				assert_shares(0, 1);
			}
}

TEST_WITH(many_tenants_share_by_weight, setup, NULL)
{
	for (u32 i = 0; i < TENANTS; i++)
		begin(i, 4096ull << i % 8, 1 + i * i);
	serve_bytes(64 * 4096 * MIB);
	for (u32 i = 1; i < TENANTS; i++)
		assert_shares(i, i - 1);
}

TEST_WITH(a_tenant_that_begins_to_wait_is_next, setup, NULL)
{
	for (u32 i = 1; i < TENANTS; i++)
		begin(i, 16 * MIB, 10000);
	for (u32 i = 0; i < 100; i++) {
		serve_bytes(1024 * MIB);
		begin(0, 4096, 1);
		/* tenants with the same clock are first, at most one I/O each */
		for (u32 j = 0; serve(); j++)
			assert_true(j < TENANTS);
		tenants[0].io = 0;
		/* the clock of tenant 0 is far ahead: the others catch up */
		serve_bytes(64ull * 10000 * MIB);
	}
}

TEST_WITH(a_tenant_saves_nothing_up, setup, NULL)
{
	begin(0, MIB, 100);
	begin(1, MIB, 100);
	serve_bytes(100 * MIB);
	tenants[1].io = 0;
	serve_bytes(10000 * MIB);
	begin(1, MIB, 100);
	tenants[0].bytes = 0;
	tenants[1].bytes = 0;
	serve_bytes(1000 * MIB);
	assert_shares(0, 1);
	assert_in_range(tenants[1].bytes, 498 * MIB, 502 * MIB);
}

TEST_WITH(tiny_ios_count_as_a_unit, setup, NULL)
{
	begin(0, 1, 100);
	begin(1, 4096, 100);
	serve_bytes(1000 * 4096);
	assert_in_range(tenants[0].bytes, 999, 1002);
}

TEST_WITH(clocks_may_wrap, setup, NULL)
{
	device = -(u64)(50 * MIB);
	for (u32 i = 0; i < 2; i++) {
		tenants[i].clock = device;
		begin(i, MIB, 100 + 200 * i);
	}
	serve_bytes(1000 * MIB);
	assert_true(device < 1ull << 40);
	assert_shares(0, 1);
	/* a clock of before the wrap seems far ahead */
	tenants[2].clock = device + (1ull << 62);
	begin(2, MIB, 100);
	assert_int_equal(tenants[2].clock, device);
}

TEST_WITH(a_change_of_weight_takes_effect_at_once, setup, NULL)
{
	begin(0, MIB, 1);
	begin(1, MIB, 10000);
	serve_bytes(20000 * MIB);
	tenants[0].weight = 10000;
	tenants[0].bytes = 0;
	tenants[1].bytes = 0;
	/* an I/O at the former weight may be paid for first */
	serve_bytes(30000 * MIB);
	assert_true(tenants[0].bytes >= 9000 * MIB);
}

TEST_MAIN("share")
