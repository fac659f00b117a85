// SPDX-License-Identifier: MIT
/* Names of numbers, and sentences about events. */
#include <inttypes.h>
#include <stdio.h>

#include <linux/kvblk_names.h>

#include "lib.h"

#define ARRAY_SIZE(a)	(sizeof(a) / sizeof((a)[0]))

_Static_assert(KVBLK_A_COUNTER_MAX < KVBLK_STATS_COUNTERS,
	       "struct kvblk_stats has no room for a counter");
_Static_assert(KVBLK_A_GAUGE_MAX < KVBLK_STATS_GAUGES,
	       "struct kvblk_stats has no room for a gauge");
_Static_assert(KVBLK_A_LATENCY_LOOKUP < KVBLK_STATS_LATENCIES,
	       "struct kvblk_stats has no room for a histogram");
_Static_assert(KVBLK_A_EVENT_MAX < KVBLK_NOTICE_NUMBERS,
	       "struct kvblk_notice has no room for a number");
_Static_assert(KVBLK_A_TENANT_COUNTER_MAX < KVBLK_TENANT_COUNTERS,
	       "struct kvblk_tenant_state has no room for a counter");

#define COUNTER(name, NAME)		[KVBLK_A_COUNTER_##NAME] = name,
#define TENANT_COUNTER(name, NAME)	[KVBLK_A_TENANT_COUNTER_##NAME] = name,
#define GAUGE(name, NAME)		[KVBLK_A_GAUGE_##NAME] = name,
#define LATENCY(name, NAME)		[KVBLK_A_LATENCY_##NAME] = name,
#define MEMBER_STATUS(name, NAME)	[KVBLK_MEMBER_STATUS_##NAME] = name,
#define ROUTE_STATUS(name, NAME)	[KVBLK_ROUTE_STATUS_##NAME] = name,
#define EVENT(name, NAME)		[KVBLK_EVENT_##NAME] = name,
#define EVENT_NUMBER(name, NAME)	[KVBLK_A_EVENT_##NAME] = name,

static const char *const counters[] = { KVBLK_COUNTER_TABLE(COUNTER) };
static const char *const gauges[] = { KVBLK_GAUGE_TABLE(GAUGE) };
static const char *const tenant_counters[] = { KVBLK_TENANT_COUNTER_TABLE(TENANT_COUNTER) };
static const char *const latencies[] = { KVBLK_LATENCY_TABLE(LATENCY) };
static const char *const member_statuses[] = { KVBLK_MEMBER_STATUS_TABLE(MEMBER_STATUS) };
static const char *const route_statuses[] = { KVBLK_ROUTE_STATUS_TABLE(ROUTE_STATUS) };
static const char *const events[] = { KVBLK_EVENT_TABLE(EVENT) };
static const char *const event_numbers[] = { KVBLK_EVENT_NUMBER_TABLE(EVENT_NUMBER) };

static const struct {
	const char *const *names;
	size_t nr;
} kinds[] = {
	[KVBLK_NAME_COUNTER] = { counters, ARRAY_SIZE(counters) },
	[KVBLK_NAME_GAUGE] = { gauges, ARRAY_SIZE(gauges) },
	[KVBLK_NAME_LATENCY] = { latencies, ARRAY_SIZE(latencies) },
	[KVBLK_NAME_MEMBER_STATUS] = { member_statuses, ARRAY_SIZE(member_statuses) },
	[KVBLK_NAME_ROUTE_STATUS] = { route_statuses, ARRAY_SIZE(route_statuses) },
	[KVBLK_NAME_EVENT] = { events, ARRAY_SIZE(events) },
	[KVBLK_NAME_EVENT_NUMBER] = { event_numbers, ARRAY_SIZE(event_numbers) },
	[KVBLK_NAME_TENANT_COUNTER] = { tenant_counters, ARRAY_SIZE(tenant_counters) },
};

const char *kvblk_find_name(unsigned int kind, unsigned int n)
{
	return kind < ARRAY_SIZE(kinds) && n < kinds[kind].nr ? kinds[kind].names[n] : NULL;
}

const char *kvblk_name(unsigned int kind, unsigned int n)
{
	const char *name = kvblk_find_name(kind, n);

	return name ? name : "unknown";
}

/* Text of each event, with a conversion for @number if it has one. */
static const struct {
	const char *format;
	unsigned int number;
} event_texts[] = {
	[KVBLK_EVENT_POOL_UP] = { "the pool is up", 0 },
	[KVBLK_EVENT_POOL_DOWN] = { "the pool was destroyed", 0 },
	[KVBLK_EVENT_MEMBER_UP] = {
		"serves; blocks restored: %" PRIu64,
		KVBLK_A_EVENT_BLOCKS },
	[KVBLK_EVENT_MEMBER_DOWN] = { "was removed", 0 },
	[KVBLK_EVENT_MEMBER_DEAD] = { "its device was lost; gets of its blocks miss", 0 },
	[KVBLK_EVENT_MEMBER_SUSPECT] = {
		"no I/O completed for %" PRIu64 " ms; gets of its blocks miss until it responds",
		KVBLK_A_EVENT_SILENCE_MS },
	[KVBLK_EVENT_MEMBER_ANSWERS] = { "responds again", 0 },
	[KVBLK_EVENT_CHECKSUM] = {
		"damaged blocks, whose gets miss; the last in segment %" PRIu64,
		KVBLK_A_EVENT_SEGMENT },
	[KVBLK_EVENT_READ_ERROR] = {
		"reads failed, the last in segment %" PRIu64,
		KVBLK_A_EVENT_SEGMENT },
	[KVBLK_EVENT_WRITE_ERROR] = {
		"writes failed, the last in segment %" PRIu64,
		KVBLK_A_EVENT_SEGMENT },
	[KVBLK_EVENT_RECLAIM_RATE] = {
		"%" PRIu64 " segments were reclaimed in the last second",
		KVBLK_A_EVENT_SEGMENTS_RECLAIMED },
	[KVBLK_EVENT_LOW_SPACE] = {
		"fell below its low watermark; free segments: %" PRIu64,
		KVBLK_A_EVENT_FREE_SEGMENTS },
	[KVBLK_EVENT_RESTORE_FAILED] = {
		"its blocks could not be restored: error %" PRIu64,
		KVBLK_A_EVENT_ERROR },
	[KVBLK_EVENT_REQUEST_DONE] = {
		"a slow request failed: error %" PRIu64,
		KVBLK_A_EVENT_ERROR },
	[KVBLK_EVENT_MEMBER_FAILING] = {
		"%" PRIu64 " I/O errors in a second; gets of its blocks miss until it recovers",
		KVBLK_A_EVENT_IO_ERRORS },
	[KVBLK_EVENT_MEMBER_READ_ONLY] = {
		"%" PRIu64 " I/O errors in a second; only writes fail: its blocks are served, puts use other members",
		KVBLK_A_EVENT_IO_ERRORS },
	[KVBLK_EVENT_NO_SPACE] = { "puts that found no room: %" PRIu64, KVBLK_A_EVENT_PUTS },
	[KVBLK_EVENT_MEMBER_FENCED] = {
		"fenced: its reservation is lost; its blocks are served, and nothing is written" },
};

void kvblk_event_text(const struct kvblk_notice *notice, char *buf, size_t len)
{
	const char *format = "event of unknown type %" PRIu64;
	uint64_t number = notice->type;
	int n;

	if (number < ARRAY_SIZE(event_texts) && event_texts[number].format) {
		format = event_texts[number].format;
		number = notice->number[event_texts[number].number];
	}
	if (notice->type == KVBLK_EVENT_REQUEST_DONE && !number)
		format = "a slow request succeeded";
	if (notice->member[0])
		n = snprintf(buf, len, "pool %s, member %s: ", notice->pool,
			     notice->member);
	else
		n = snprintf(buf, len, "pool %s: ", notice->pool);
	if (n < 0 || (size_t)n >= len)
		return;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	/* the format is from the table above and has at most one PRIu64 */
	snprintf(buf + n, len - (size_t)n, format, number);
#pragma GCC diagnostic pop
}
