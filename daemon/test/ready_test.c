// SPDX-License-Identifier: MIT
/* Readiness: each condition that counts, those that do not, and the reported reasons. */
#include <errno.h>

#include "kvblk_test.h"
#include "metrics/readiness.h"

static char all[] = "all", any[] = "any", half[] = "50%", most[] = "51%";
static struct config_pool configured[] = { { .name = "kv0", .ready = all }, { .name = "kv1", .ready_below = 50 } };
static struct config both = { .pools = configured, .nr_pools = 2 };
static struct config first = { .pools = configured, .nr_pools = 1 };
static struct config none;

static struct kvblk_stats stats[2];
static struct kvblk_member_state members[3];
static struct kvblk_pool_state pools[2];
static struct snapshot snapshot;

/* Two healthy pools, the first with two members. */
static int make(void **state)
{
	memset(stats, 0, sizeof(stats));
	memset(members, 0, sizeof(members));
	memset(pools, 0, sizeof(pools));
	for (int i = 0; i < 3; i++) {
		members[i].next = i < 2 ? &members[i + 1] : NULL;
		members[i].state = KVBLK_MEMBER_STATUS_UP;
		snprintf(members[i].pool, sizeof(members[i].pool), "kv%d", i / 2);
		snprintf(members[i].name, sizeof(members[i].name), "m%d", i);
	}
	for (int i = 0; i < 2; i++) {
		pools[i].next = i ? NULL : &pools[1];
		stats[i].next = i ? NULL : &stats[1];
		snprintf(pools[i].name, sizeof(pools[i].name), "kv%d", i);
		snprintf(stats[i].pool, sizeof(stats[i].pool), "kv%d", i);
		pools[i].capacity = 1000;
		pools[i].nr_segments = 10;
	}
	snapshot = (struct snapshot){ .pools = pools, .members = members, .stats = stats };
	return 0;
}

static void expect(const struct config *config, int err, const char *says)
{
	unsigned int nr, lines = 0;
	char *said;
	size_t len;
	FILE *to = open_memstream(&said, &len);

	nr = ready_reasons(config, &snapshot, err, to);
	fclose(to);
	assert_string_equal(said, says);
	for (const char *c = said; *c; c++)
		lines += *c == '\n';
	assert_int_equal(nr, lines);
	assert_int_equal(ready_reasons(config, &snapshot, err, NULL), nr);
	free(said);
}

TEST_WITH(test_well, make, NULL)
{
	expect(&both, 0, "");
	expect(&none, 0, "");
	/* no pool is configured */
	snapshot = (struct snapshot){ 0 };
	expect(&none, 0, "");
}

TEST_WITH(test_module, make, NULL)
{
	expect(&none, -ENOENT, "the module kvblk is not loaded\n");
	expect(&both, -EIO, "the module kvblk does not respond: Input/output error\n");
}

TEST_WITH(test_pools, make, NULL)
{
	snapshot.pools = &pools[1];
	expect(&both, 0, "pool kv0 is not up\n");
	/* pools that are not configured count only if none is */
	snapshot.pools = pools;
	members[2].state = KVBLK_MEMBER_STATUS_DEAD;
	expect(&first, 0, "");
	expect(&both, 0, "pool kv1: member m2 is dead\n");
	expect(&none, 0, "pool kv1: member m2 is dead\n");
}

TEST_WITH(test_members, make, NULL)
{
	static const struct {
		uint32_t state;
		const char *is;
	} rows[] = {
		{ KVBLK_MEMBER_STATUS_RESTORING, "restoring" },
		{ KVBLK_MEMBER_STATUS_DEAD, "dead" },
		{ KVBLK_MEMBER_STATUS_REMOVING, "removing" },
		{ KVBLK_MEMBER_STATUS_MISSING, "missing" },
		{ 1000, "unknown" },
	};
	char says[128];

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		members[1].state = rows[i].state;
		snprintf(says, sizeof(says), "pool kv0: member m1 is %s\n", rows[i].is);
		expect(&both, 0, says);
	}
	members[1].state = KVBLK_MEMBER_STATUS_UP;
	members[1].suspect = true;
	members[0].failing = true;
	expect(&both, 0, "pool kv0: member m0 is failing\npool kv0: member m1 is suspect\n");
}

/* A member that fails writes serves, so the host stays ready. The answer reports the member. */
TEST_WITH(test_read_only, make, NULL)
{
	char *said;
	size_t len;
	FILE *to;

	members[0].failing = true;
	members[0].read_only = true;
	expect(&both, 0, "");
	assert_string_equal(ready_condition(&members[0]), "read-only");
	to = open_memstream(&said, &len);
	ready_notes(&both, &snapshot, to);
	members[2].state = KVBLK_MEMBER_STATUS_RESTORING;
	ready_notes(&first, &snapshot, to);
	ready_notes(&none, &snapshot, to);
	fclose(to);
	assert_string_equal(said, "pool kv0: member m0 is read-only: its blocks are served, puts use other members\n"
				  "pool kv0: member m0 is read-only: its blocks are served, puts use other members\n"
				  "pool kv0: member m0 is read-only: its blocks are served, puts use other members\n"
				  "pool kv1: member m2 is restoring\n");
	free(said);
	/* a dead member may be in any state before */
	members[0].state = KVBLK_MEMBER_STATUS_DEAD;
	expect(&first, 0, "pool kv0: member m0 is dead\n");
}

/* How many members must serve. By default one is enough, because misses are always allowed. */
TEST_WITH(test_share, make, NULL)
{
	static char *const enough[] = { NULL, any, half };
	static char *const not_enough[] = { all, most };

	members[1].state = KVBLK_MEMBER_STATUS_MISSING;
	for (int i = 0; i < 3; i++) {
		configured[0].ready = enough[i];
		expect(&both, 0, "");
	}
	expect(&none, 0, "");
	for (int i = 0; i < 2; i++) {
		configured[0].ready = not_enough[i];
		expect(&both, 0, "pool kv0: member m1 is missing\n");
	}
	configured[0].ready = any;
	members[0].state = KVBLK_MEMBER_STATUS_RESTORING;
	expect(&both, 0, "pool kv0: member m0 is restoring\npool kv0: member m1 is missing\n");
	snapshot.members = &members[2];
	expect(&both, 0, "pool kv0 has no member\n");
	configured[0].ready = all;
}

TEST_WITH(test_limit, make, NULL)
{
	pools[1].leased_bytes = 299;
	stats[1].gauge[KVBLK_A_GAUGE_SEGMENTS_RETIRING] = 2;
	expect(&both, 0, "");
	pools[1].leased_bytes = 300;
	expect(&both, 0, "pool kv1: leases and readers hold 50.0 %, the limit ready_below is 50 %\n");
	/* the other pool has no limit, and a full pool is normal */
	pools[1].leased_bytes = 0;
	pools[0].leased_bytes = 1000;
	stats[1].gauge[KVBLK_A_GAUGE_SEGMENTS_SEALED] = 10;
	expect(&both, 0, "");
	/* no member is up */
	pools[1].capacity = 0;
	pools[1].nr_segments = 0;
	expect(&both, 0, "");
}

TEST_MAIN("ready")
