// SPDX-License-Identifier: MIT
/*
 * Exported metrics: each line is parsed again, in both formats. Values are looked up by name and
 * labels, as Prometheus does.
 */
#include <linux/kvblk_names.h>

#include "kvblk_test.h"
#include "metrics/metrics.h"

static struct kvblk_pool_state pool = { .name = "kv0", .capacity = 1000, .free = 250,
					.index_slots = 77, .index_bytes = 4096 };
static struct kvblk_member_state broken = { .pool = "kv0", .name = "m1", .size = 500,
					    .state = KVBLK_MEMBER_STATUS_UP, .failing = true };
static struct kvblk_member_state well = { .next = &broken, .pool = "kv0", .name = "m0",
					  .path = "/dev/m0", .size = 600,
					  .state = KVBLK_MEMBER_STATUS_UP, .uuid = { 0xa0 },
					  .device = "nvme1n1", .place = "nqn.a nsid 1" };
static struct kvblk_member_state theirs = { .pool = "kv0", .name = "f0", .size = 700, .owner = "b",
					    .state = KVBLK_MEMBER_STATUS_UP, .uuid = { 0xc0 },
					    .device = "nvme2n1", .place = "nqn.b nsid 2",
					    .blocks = 11, .lacks = 12, .gets = 13, .get_bytes = 14,
					    .get_misses = 15, .has_use = true };
static struct kvblk_stats of_pool = { .pool = "kv0" };
static struct kvblk_stats of_member = { .pool = "kv0", .member = "m0" };
static struct kvblk_stats of_size = { .pool = "kv0", .size_max = 4096 };

static struct kvblk_tenant_state common = { .pool = "kv0", .name = "default" };
static struct kvblk_tenant_state blue = {
	.next = &common, .pool = "kv0", .name = "blue", .has_limits = true, .quota_bytes = 21,
	.quota_dram = 23, .has_used = true, .used_bytes = 24, .used_dram = 26,
	.counter = { [KVBLK_A_TENANT_COUNTER_PUTS] = 27, [KVBLK_A_TENANT_COUNTER_QUOTA_DROPS] = 28 },
	.has_counter = { [KVBLK_A_TENANT_COUNTER_PUTS] = true, [KVBLK_A_TENANT_COUNTER_HITS] = true,
			 [KVBLK_A_TENANT_COUNTER_QUOTA_DROPS] = true },
};

static bool rated = true;

/* m0 is a drive, m1 is not */
static struct smart drive(const char *of, const char *member)
{
	struct smart none = { .asked = true };

	assert_string_equal(of, "kv0");
	return strcmp(member, "m0") != 0 ? none : (struct smart){
		.asked = true, .valid = true, .rated = rated, .time = 1795000000, .warning = 5, .used = 107, .spare = 3,
		.spare_least = 10, .written = 512000.0 * 12345678901,
	};
}

static bool tunable(const char *of, const char *name, uint64_t *value)
{
	assert_string_equal(of, "kv0");
	*value = 42;
	return strcmp(name, "integrity") != 0;
}

static double budget_ratio(const char *of)
{
	assert_string_equal(of, "kv0");
	return 1.25;
}

static const struct kvfeed_source sources[] = { { "tcp://a:1", true }, { "ipc:///b", false } };

static struct metrics metrics = {
	.sources = sources, .nr_sources = 2,
	.snapshot = { .pools = &pool, .members = &well, .foreign = &theirs, .stats = &of_pool,
		      .member_stats = &of_member, .size_stats = &of_size,
		      .tenants = &blue },
	.up = true, .ready = false, .config_valid = true, .steps_failed = 3, .seconds = 0.0625, .smart = drive,
	.tunable = tunable, .budget_ratio = budget_ratio, .process_bytes = 4096, .process_cpu_s = 1.5, .process_fds = 9,
	.prestage = { .requests = { 5, 4, 3, 2, 1 }, .sessions = 6,
		      .prefetches = { .blocks = { 0, 9, 8, 7, 6, 5 }, .bytes = 77, .waiting = 2 } },
	.kv_events = { .stored = 7, .removed = 3, .lost = 1, .hashes = 4, .untold = 6, .token_bytes = 99 },
	.directory = { .servers = 3, .up = 2, .late = 3, .dropped = 4 },
};

static char *text;

static void print(enum metrics_format format)
{
	size_t len;
	FILE *to;

	free(text);
	to = open_memstream(&text, &len);
	metrics_print(to, format, &metrics);
	fclose(to);
}

/* Returns the value of the sample @name with its labels, "" if there is none. */
static const char *value(const char *name)
{
	static char found[64];
	size_t len = strlen(name);

	for (const char *line = text; *line; line = strchr(line, '\n') + 1) {
		if (strncmp(line, name, len) != 0 || line[len] != ' ')
			continue;
		snprintf(found, sizeof(found), "%.*s", (int)strcspn(line + len + 1, "\n"),
			 line + len + 1);
		return found;
	}
	return "";
}

#define expect(name, wanted)	assert_string_equal(value(name), wanted)

TEST(test_values)
{
	of_pool.has_counter[KVBLK_A_COUNTER_PUT_BYTES] = true;
	of_pool.counter[KVBLK_A_COUNTER_PUT_BYTES] = UINT64_MAX;
	of_pool.has_counter[KVBLK_A_COUNTER_MISS_READ_ERROR] = true;
	of_pool.counter[KVBLK_A_COUNTER_MISS_READ_ERROR] = 5;
	of_pool.has_gauge[KVBLK_A_GAUGE_SEGMENTS] = true;
	of_pool.has_gauge[KVBLK_A_GAUGE_SEGMENTS_SEALED] = true;
	of_pool.gauge[KVBLK_A_GAUGE_SEGMENTS_SEALED] = 3;
	of_pool.has_gauge[KVBLK_A_GAUGE_INDEX_USED] = true;
	of_member.has_counter[KVBLK_A_COUNTER_PUTS] = true;
	of_member.counter[KVBLK_A_COUNTER_PUTS] = 9;
	of_member.has_gauge[KVBLK_A_GAUGE_INFLIGHT] = true;
	of_member.has_gauge[KVBLK_A_GAUGE_SEGMENTS_FREE] = true;
	of_member.gauge[KVBLK_A_GAUGE_SEGMENTS_FREE] = 4;
	for (int format = METRICS_TEXT; format <= METRICS_OPENMETRICS; format++) {
		/* an exporter that does not run has no metrics */
		metrics.publishes = format != METRICS_TEXT;
		metrics.prestages = format != METRICS_TEXT;
		metrics.has_directory = format != METRICS_TEXT;
		print(format);
		expect("kvblk_build_info{version=\"" KVBLK_VERSION "\"}", "1");
		expect("kvblk_up", "1");
		expect("kvblk_ready", "0");
		expect("kvblkd_config_valid", "1");
		expect("kvblkd_steps_failed", "3");
		expect("kvblk_scrape_duration_seconds", "0.062500000");
		expect("kvblk_kv_events_stored_total", format == METRICS_TEXT ? "" : "7");
		expect("kvblk_kv_events_removed_total", format == METRICS_TEXT ? "" : "3");
		expect("kvblk_kv_events_losses_total", format == METRICS_TEXT ? "" : "1");
		expect("kvblk_kv_events_untold_total", format == METRICS_TEXT ? "" : "6");
		expect("kvblk_kv_events_token_bytes", format == METRICS_TEXT ? "" : "99");
		expect("kvblk_kv_events_hashes", format == METRICS_TEXT ? "" : "4");
		expect("kvblk_kv_events_source_connected{source=\"tcp://a:1\"}", "1");
		expect("kvblk_kv_events_source_connected{source=\"ipc:///b\"}", "0");
		expect("kvblk_prestage_requests_total{outcome=\"accepted\"}", format == METRICS_TEXT ? "" : "5");
		expect("kvblk_prestage_requests_total{outcome=\"missing\"}", format == METRICS_TEXT ? "" : "1");
		expect("kvblk_prestage_blocks_total{result=\"loaded\"}", format == METRICS_TEXT ? "" : "9");
		expect("kvblk_prestage_blocks_total{result=\"expired\"}", format == METRICS_TEXT ? "" : "5");
		expect("kvblk_prestage_bytes_total", format == METRICS_TEXT ? "" : "77");
		expect("kvblk_prestage_waiting", format == METRICS_TEXT ? "" : "2");
		expect("kvblk_prestage_sessions", format == METRICS_TEXT ? "" : "6");
		expect("kvblkd_directory_up", format == METRICS_TEXT ? "" : "2");
		expect("kvblkd_directory_late_total", format == METRICS_TEXT ? "" : "3");
		expect("kvblkd_directory_dropped_total", format == METRICS_TEXT ? "" : "4");
		expect("kvblk_capacity_bytes{pool=\"kv0\"}", "1000");
		expect("kvblk_free_bytes{pool=\"kv0\"}", "250");
		expect("kvblk_index_entries{pool=\"kv0\"}", "77");
		expect("kvblk_pool_health{pool=\"kv0\",health=\"ok\"}", "0");
		expect("kvblk_pool_health{pool=\"kv0\",health=\"degraded\"}", "1");
		expect("kvblk_pool_health{pool=\"kv0\",health=\"down\"}", "0");
		expect("kvblk_put_bytes_total{pool=\"kv0\"}", "18446744073709551615");
		/* the module did not report these */
		expect("kvblk_puts_total{pool=\"kv0\"}", "");
		expect("kvblk_misses_total{pool=\"kv0\",reason=\"read_error\"}", "5");
		expect("kvblk_segments{pool=\"kv0\",state=\"sealed\"}", "3");
		expect("kvblk_segments{pool=\"kv0\",state=\"\"}", "");
		expect("kvblk_index_used{pool=\"kv0\"}", "0");
		expect("kvblk_member_info{pool=\"kv0\",member=\"m0\",path=\"/dev/m0\",device=\"nvme1n1\",uuid=\"a0000000-0000-0000-0000-000000000000\",place=\"nqn.a nsid 1\"}", "1");
		expect("kvblk_member_size_bytes{pool=\"kv0\",member=\"m1\"}", "500");
		expect("kvblk_member_state{pool=\"kv0\",member=\"m0\",state=\"up\"}", "1");
		expect("kvblk_member_state{pool=\"kv0\",member=\"m1\",state=\"up\"}", "0");
		expect("kvblk_member_state{pool=\"kv0\",member=\"m1\",state=\"failing\"}", "1");
		expect("kvblk_member_state{pool=\"kv0\",member=\"m1\",state=\"missing\"}", "0");
		expect("kvblk_member_drive_used_ratio{pool=\"kv0\",member=\"m0\"}", "1.07");
		expect("kvblk_member_drive_used_ratio{pool=\"kv0\",member=\"m1\"}", "");
		expect("kvblk_member_drive_spare_ratio{pool=\"kv0\",member=\"m0\"}", "0.03");
		expect("kvblk_member_drive_warnings{pool=\"kv0\",member=\"m0\"}", "5");
		expect("kvblk_member_drive_written_bytes_total{pool=\"kv0\",member=\"m0\"}", "6.320987597312e+15");
		expect("kvblk_member_drive_read_timestamp_seconds{pool=\"kv0\",member=\"m0\"}", "1795000000");
		expect("kvblk_tunable{pool=\"kv0\",tunable=\"suspect_ms\"}", "42");
		expect("kvblk_tunable{pool=\"kv0\",tunable=\"integrity\"}", "");
		expect("kvblk_budget_ratio{pool=\"kv0\"}", "1.25");
		expect("process_resident_memory_bytes", "4096");
		expect("process_open_fds", "9");
		expect("process_cpu_seconds_total", "1.500000");
		expect("kvblk_member_puts_total{pool=\"kv0\",member=\"m0\"}", "9");
		expect("kvblk_member_inflight{pool=\"kv0\",member=\"m0\"}", "0");
		expect("kvblk_member_segments{pool=\"kv0\",member=\"m0\",state=\"free\"}", "4");
	}
}

/* Members of other nodes have names of their own, which no sum over own members includes. */
TEST(test_foreign)
{
	for (int format = METRICS_TEXT; format <= METRICS_OPENMETRICS; format++) {
		print(format);
		expect("kvblk_foreign_member_info{pool=\"kv0\",member=\"f0\",owner=\"b\",device=\"nvme2n1\",uuid=\"c0000000-0000-0000-0000-000000000000\",place=\"nqn.b nsid 2\"}", "1");
		expect("kvblk_foreign_member_size_bytes{pool=\"kv0\",member=\"f0\"}", "700");
		expect("kvblk_foreign_member_blocks_total{pool=\"kv0\",member=\"f0\"}", "11");
		expect("kvblk_foreign_member_lacks_total{pool=\"kv0\",member=\"f0\"}", "12");
		expect("kvblk_foreign_member_gets_total{pool=\"kv0\",member=\"f0\"}", "13");
		expect("kvblk_foreign_member_get_bytes_total{pool=\"kv0\",member=\"f0\"}", "14");
		expect("kvblk_foreign_member_misses_total{pool=\"kv0\",member=\"f0\"}", "15");
		expect("kvblk_foreign_member_state{pool=\"kv0\",member=\"f0\",state=\"up\"}", "1");
		expect("kvblk_foreign_member_state{pool=\"kv0\",member=\"f0\",state=\"suspect\"}", "0");
		expect("kvblk_foreign_member_state{pool=\"kv0\",member=\"f0\",state=\"fenced\"}", "");
		expect("kvblk_member_state{pool=\"kv0\",member=\"f0\",state=\"up\"}", "");
		expect("kvblk_member_size_bytes{pool=\"kv0\",member=\"f0\"}", "");
	}
	theirs.suspect = true;
	/* a caller that may not read statistics */
	theirs.has_use = false;
	print(METRICS_TEXT);
	expect("kvblk_foreign_member_state{pool=\"kv0\",member=\"f0\",state=\"up\"}", "0");
	expect("kvblk_foreign_member_state{pool=\"kv0\",member=\"f0\",state=\"suspect\"}", "1");
	expect("kvblk_foreign_member_gets_total{pool=\"kv0\",member=\"f0\"}", "");
	theirs.suspect = false;
	theirs.has_use = true;
	theirs.state = KVBLK_MEMBER_STATUS_UNRESTORED;
	print(METRICS_TEXT);
	expect("kvblk_foreign_member_state{pool=\"kv0\",member=\"f0\",state=\"unrestored\"}", "1");
	expect("kvblk_pool_health{pool=\"kv0\",health=\"degraded\"}", "1");
	theirs.state = KVBLK_MEMBER_STATUS_UP;
}

/* Values that the module does not report of a tenant are missing, as are limits of 0. */
TEST(test_tenants)
{
#define OF(metric, tenant)	"kvblk_tenant_" metric "{pool=\"kv0\",tenant=\"" tenant "\"}"
	for (int format = METRICS_TEXT; format <= METRICS_OPENMETRICS; format++) {
		print(format);
		expect(OF("used_bytes", "blue"), "24");
		expect(OF("used_blocks", "blue"), "0");
		expect(OF("used_dram_bytes", "blue"), "26");
		expect(OF("quota_bytes", "blue"), "21");
		expect(OF("quota_blocks", "blue"), "");
		expect(OF("quota_dram_bytes", "blue"), "23");
		expect(OF("puts_total", "blue"), "27");
		expect(OF("put_bytes_total", "blue"), "");
		expect(OF("hits_total", "blue"), "0");
		expect(OF("quota_drops_total", "blue"), "28");
		expect(OF("used_bytes", "default"), "");
		expect(OF("quota_bytes", "default"), "");
		expect(OF("puts_total", "default"), "");
	}
}

/* As many tenants as a pool can have, with names as long as they can be. */
TEST(test_all_tenants)
{
	enum { NR = 704 };
	struct kvblk_tenant_state *all = calloc(NR, sizeof(*all));
	char name[128];

	for (unsigned int i = 0; i < NR; i++) {
		all[i] = blue;
		all[i].next = i + 1 < NR ? &all[i + 1] : NULL;
		snprintf(all[i].name, sizeof(all[i].name), "%031u", i);
		all[i].used_bytes = i;
		all[i].quota_blocks = 1;
		for (unsigned int j = 1; j <= KVBLK_A_TENANT_COUNTER_MAX; j++) {
			all[i].has_counter[j] = true;
			all[i].counter[j] = UINT64_MAX - i;
		}
	}
	metrics.snapshot.tenants = all;
	for (int format = METRICS_TEXT; format <= METRICS_OPENMETRICS; format++) {
		unsigned int samples = 0;

		print(format);
		for (const char *c = text; (c = strstr(c, "\nkvblk_tenant_")); c++)
			samples++;
		assert_int_equal(samples, NR * (6 + KVBLK_A_TENANT_COUNTER_MAX));
		for (unsigned int i = 0; i < NR; i += NR - 1) {
			char number[24];

			snprintf(name, sizeof(name), OF("used_bytes", "%031u"), i);
			snprintf(number, sizeof(number), "%u", i);
			expect(name, number);
			snprintf(name, sizeof(name), OF("misses_total", "%031u"), i);
			snprintf(number, sizeof(number), "%llu", (unsigned long long)(UINT64_MAX - i));
			expect(name, number);
		}
		/* later metrics are there, too */
		expect("process_open_fds", "9");
	}
	metrics.snapshot.tenants = &blue;
	free(all);
}

/* A target without wear and spare blocks: its zeroes are not exported. */
TEST(test_unrated)
{
	rated = false;
	print(METRICS_TEXT);
	expect("kvblk_member_drive_used_ratio{pool=\"kv0\",member=\"m0\"}", "");
	expect("kvblk_member_drive_spare_ratio{pool=\"kv0\",member=\"m0\"}", "");
	expect("kvblk_member_drive_warnings{pool=\"kv0\",member=\"m0\"}", "");
	expect("kvblk_member_drive_written_bytes_total{pool=\"kv0\",member=\"m0\"}", "6.320987597312e+15");
	rated = true;
}

TEST(test_health)
{
	broken.read_only = true;
	print(METRICS_TEXT);
	expect("kvblk_pool_health{pool=\"kv0\",health=\"degraded\"}", "1");
	expect("kvblk_member_state{pool=\"kv0\",member=\"m1\",state=\"read-only\"}", "1");
	expect("kvblk_member_state{pool=\"kv0\",member=\"m1\",state=\"failing\"}", "0");
	broken.fenced = true;
	print(METRICS_TEXT);
	expect("kvblk_member_state{pool=\"kv0\",member=\"m1\",state=\"fenced\"}", "1");
	expect("kvblk_member_state{pool=\"kv0\",member=\"m1\",state=\"read-only\"}", "0");
	broken.fenced = false;
	well.state = KVBLK_MEMBER_STATUS_DEAD;
	print(METRICS_TEXT);
	expect("kvblk_pool_health{pool=\"kv0\",health=\"degraded\"}", "1");
	well.state = KVBLK_MEMBER_STATUS_UP;
	broken.failing = false;
	broken.read_only = false;
	print(METRICS_TEXT);
	expect("kvblk_pool_health{pool=\"kv0\",health=\"ok\"}", "1");
	broken.suspect = true;
	well.state = KVBLK_MEMBER_STATUS_DEAD;
	print(METRICS_TEXT);
	expect("kvblk_pool_health{pool=\"kv0\",health=\"down\"}", "1");
	expect("kvblk_member_state{pool=\"kv0\",member=\"m1\",state=\"suspect\"}", "1");
	expect("kvblk_member_state{pool=\"kv0\",member=\"m0\",state=\"dead\"}", "1");
	well.state = KVBLK_MEMBER_STATUS_UP;
}

/* Buckets accumulate, end with their last nanosecond, and the rest is in +Inf. */
TEST(test_histogram)
{
	of_size.nr_buckets[KVBLK_A_LATENCY_GET] = 40;
	of_size.latency[KVBLK_A_LATENCY_GET][0] = 1;
	of_size.latency[KVBLK_A_LATENCY_GET][9] = 2;
	of_size.latency[KVBLK_A_LATENCY_GET][20] = 4;
	of_size.latency[KVBLK_A_LATENCY_GET][39] = 8;
	of_size.latency_ns[KVBLK_A_LATENCY_GET] = 12000000034;
	of_pool.nr_buckets[KVBLK_A_LATENCY_DELETE] = 40;
	of_pool.nr_buckets[KVBLK_A_LATENCY_GET] = 40;
	of_member.nr_buckets[KVBLK_A_LATENCY_PUT] = 40;
	of_member.latency[KVBLK_A_LATENCY_PUT][10] = 1;
	print(METRICS_OPENMETRICS);
#define GET(le)	"kvblk_transfer_seconds_bucket{pool=\"kv0\",op=\"get\",size_max=\"4096\",le=\"" le "\"}"
	expect(GET("1.023e-06"), "3");
	expect(GET("2.047e-06"), "3");
	expect(GET("0.001048575"), "3");
	expect(GET("0.002097151"), "7");
	expect(GET("68.719476735"), "7");
	expect(GET("137.438953471"), "");
	expect(GET("5.11e-07"), "");
	expect(GET("+Inf"), "15");
	expect("kvblk_transfer_seconds_count{pool=\"kv0\",op=\"get\",size_max=\"4096\"}", "15");
	expect("kvblk_transfer_seconds_sum{pool=\"kv0\",op=\"get\",size_max=\"4096\"}", "12.000000034");
	expect("kvblk_transfer_seconds_count{pool=\"kv0\",op=\"put\",size_max=\"4096\"}", "");
	expect("kvblk_request_seconds_bucket{pool=\"kv0\",op=\"delete\",le=\"+Inf\"}", "0");
	expect("kvblk_request_seconds_bucket{pool=\"kv0\",op=\"get\",le=\"+Inf\"}", "");
	/* no sum, hence no count */
	assert_null(strstr(text, "kvblk_request_seconds_count"));
	assert_null(strstr(text, "kvblk_member_transfer_seconds_count"));
	expect("kvblk_member_transfer_seconds_bucket{pool=\"kv0\",member=\"m0\",op=\"put\",le=\"+Inf\"}", "1");
}

/* The differences between the formats; each family appears once. */
TEST(test_formats)
{
	const char *end = "# EOF\n";
	char *seen[512], *line, *rest, *name;
	size_t nr = 0;

	print(METRICS_OPENMETRICS);
	assert_string_equal(text + strlen(text) - strlen(end), end);
	assert_non_null(strstr(text, "\n# TYPE kvblk_put_bytes counter\n# UNIT kvblk_put_bytes bytes\n"));
	assert_non_null(strstr(text, "# TYPE kvblk_build info\n"));
	print(METRICS_TEXT);
	assert_null(strstr(text, "# EOF"));
	assert_null(strstr(text, "# UNIT"));
	assert_non_null(strstr(text, "\n# TYPE kvblk_put_bytes_total counter\n"));
	assert_non_null(strstr(text, "# TYPE kvblk_build_info gauge\n"));
	rest = text;
	while ((line = strsep(&rest, "\n"))) {
		if (strncmp(line, "# TYPE ", 7) != 0)
			continue;
		line += 7;
		name = strsep(&line, " ");
		for (size_t i = 0; i < nr; i++)
			assert_string_not_equal(seen[i], name);
		assert_in_range(nr, 0, 511);
		seen[nr++] = name;
	}
	assert_in_range(nr, 80, 200);
}

/*
 * No two samples have the same name and labels. The missing member is named like the other's
 * device.
 */
TEST(test_no_twins)
{
	struct kvblk_member_state missing = { .pool = "kv0", .name = "nvme1n1",
					      .state = KVBLK_MEMBER_STATUS_MISSING,
					      .uuid = { 0xb0 }, .place = "nqn.b nsid 1" };
	char *line, *other, *end;

	broken.next = &missing;
	for (int format = METRICS_TEXT; format <= METRICS_OPENMETRICS; format++) {
		print(format);
		expect("kvblk_member_state{pool=\"kv0\",member=\"nvme1n1\",state=\"missing\"}", "1");
		expect("kvblk_member_info{pool=\"kv0\",member=\"nvme1n1\",path=\"\",device=\"\",uuid=\"b0000000-0000-0000-0000-000000000000\",place=\"nqn.b nsid 1\"}", "1");
		for (line = text; *line; line = end + 1) {
			end = strchr(line, '\n');
			if (*line == '#')
				continue;
			/* up to the value */
			while (*end != ' ')
				end--;
			for (other = strchr(end, '\n') + 1; *other; other = strchr(other, '\n') + 1)
				assert_int_not_equal(strncmp(other, line, (size_t)(end + 1 - line)), 0);
			end = strchr(end, '\n');
		}
	}
	broken.next = NULL;
}

/* Each counter and gauge of the module has a documented row. */
TEST(test_table)
{
	print(METRICS_TABLE);
#define X(name, NAME) \
	if (strncmp(name, "miss_", 5) != 0) \
		assert_non_null(strstr(text, "* - ``kvblk_" name "_total``\n     - counter\n"));
	KVBLK_COUNTER_TABLE(X)
#undef X
#define X(doc, NAME) \
	if (sizeof(doc) < 60 && strncmp(#NAME, "MISS_", 5) != 0) \
		assert_non_null(strstr(text, "     - " doc "\n"));
	KVBLK_COUNTER_DOC_TABLE(X)
#undef X
#define X(name, NAME) \
	assert_non_null(strstr(text, "* - ``kvblk_tenant_" name "_total``\n     - counter\n"));
	KVBLK_TENANT_COUNTER_TABLE(X)
#undef X
	assert_non_null(strstr(text, "* - ``kvblk_member_put_bytes_total``\n     - counter\n     - bytes\n     - pool, member\n     - Bytes of the blocks stored.\n"));
	assert_null(strstr(text, "kvblk_member_leased_bytes"));
	assert_null(strstr(text, "EOF"));
}

/* A path of any bytes is a label in a line, and is restored by unescaping. */
TEST(test_escapes)
{
	static const struct {
		const char *path;
		const char *label;
	} rows[] = {
		{ "a\"b\\c", "a\\\"b\\\\c" },
		{ "a\nb", "a\\\\x0ab" },
		{ "\xff\x7f", "\\\\xff\\\\x7f" },
		{ "a}b{c=\"1\"} 2", "a}b{c=\\\"1\\\"} 2" },
	};
	unsigned int seed = 1;
	char name[512];
	size_t lines[2], again;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		snprintf(well.path, sizeof(well.path), "%s", rows[i].path);
		print(METRICS_OPENMETRICS);
		snprintf(name, sizeof(name), "kvblk_member_info{pool=\"kv0\",member=\"m0\",path=\"%s\",device=\"nvme1n1\",uuid=\"a0000000-0000-0000-0000-000000000000\",place=\"nqn.a nsid 1\"}",
			 rows[i].label);
		expect(name, "1");
	}
	for (int format = METRICS_TEXT; format <= METRICS_OPENMETRICS; format++) {
		print(format);
		lines[format] = 0;
		for (const char *c = text; *c; c++)
			lines[format] += *c == '\n';
	}
	for (int round = 0; round < 2000; round++) {
		const char *c, *label = "member=\"m0\",path=\"";

		for (int i = 0; i < 31; i++)
			well.path[i] = (char)(rand_r(&seed) % 255 + 1);
		print(round % 2);
		again = 0;
		for (c = text; *c; c++) {
			again += *c == '\n';
			assert_true(*c == '\n' || (*c >= ' ' && *c <= '~'));
		}
		assert_int_equal(again, lines[round % 2]);
		/* the label ends with the first quote that is not escaped */
		for (c = strstr(text, label) + strlen(label); *c != '"'; c++)
			c += *c == '\\';
		assert_memory_equal(c, "\",device=", 9);
	}
}

TEST(test_accept)
{
	static const struct {
		const char *accept;
		enum metrics_format format;
	} rows[] = {
		{ NULL, METRICS_TEXT },
		{ "", METRICS_TEXT },
		{ "*/*", METRICS_TEXT },
		{ "text/html", METRICS_TEXT },
		{ "application/openmetrics-text", METRICS_OPENMETRICS },
		{ "application/openmetrics-text; version=1.0.0", METRICS_OPENMETRICS },
		{ "Application/OpenMetrics-Text ;Version=\"1.0.0\"", METRICS_OPENMETRICS },
		{ "application/openmetrics-text; version=0.0.1", METRICS_TEXT },
		{ "application/openmetrics-text;q=0", METRICS_TEXT },
		{ "application/openmetrics-text;q=nan", METRICS_TEXT },
		{ "application/openmetrics-text, text/plain", METRICS_OPENMETRICS },
		{ "application/openmetrics-text;q=0.4, text/plain;q=0.5", METRICS_TEXT },
		{ "text/plain;version=0.0.4;q=0.3,application/openmetrics-text;q=0.5,*/*;q=0.2", METRICS_OPENMETRICS },
		/* sent by Prometheus 2.53 */
		{ "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
		  METRICS_OPENMETRICS },
		{ ",;,=;q=;q", METRICS_TEXT },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		if (metrics_accepted(rows[i].accept) != rows[i].format)
			fail_msg("%s", rows[i].accept);
	}
}

int main(void)
{
	int failed = RUN_TESTS("metrics");

	free(text);
	return failed;
}
