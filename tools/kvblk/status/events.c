// SPDX-License-Identifier: MIT
/* kvblk events: print events as they happen. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "cli/cli.h"
#include "cli/options.h"
#include "common/uuid.h"

struct events_args {
	struct cli_list list;
	const char *pool;
	uint64_t count;		/* 0: no limit */
	double seconds;		/* 0: no limit */
};

#define AT(field) CLI_FIELD(struct events_args, field)

static const struct cli_option events_options[] = {
	{ "count", 0, CLI_NUMBER, AT(count), "N", "End after N events", 1 },
	{ "seconds", 0, CLI_TIME, AT(seconds), "TIME", "End after this time", 0.001, 1e7 },
	{ 0 },
};

static const struct cli_option events_arguments[] = {
	{ "POOL", 0, CLI_POOL, AT(pool) },
	{ 0 },
};

static const struct cli_syntax events_syntax = {
	.options = events_options,
	.arguments = events_arguments,
	.usage = "[POOL]",
	.doc = "Print the events of POOL, or of all pools, one line each.\v"
	       "Example:\n  kvblk events kv0 --count 1\n\n"
	       "With -o json each line is a JSON object.",
};

static json_t *event_json(const struct kvblk_notice *notice, const char *text)
{
	static const uint8_t none[16];
	char uuid[40];
	json_t *json = json_pack("{s:I, s:s, s:s, s:s, s:s}",
		"time_ns", (json_int_t)notice->time_ns,
		"event", kvblk_name(KVBLK_NAME_EVENT, notice->type),
		"pool", notice->pool,
		"member", notice->member,
		"text", text);

	if (json && memcmp(notice->uuid, none, sizeof(none)) != 0)
		json_object_set_new(json, "uuid", json_string(uuid_format(notice->uuid, uuid)));
	if (json && *notice->place)
		json_object_set_new(json, "place", json_string(notice->place));
	for (unsigned int i = 0; json && i < KVBLK_NOTICE_NUMBERS; i++)
		if (notice->has & 1U << i)
			json_object_set_new(json, kvblk_name(KVBLK_NAME_EVENT_NUMBER, i),
					    json_integer((json_int_t)notice->number[i]));
	return json;
}

static int print_event(const struct kvblk_notice *notice, bool json)
{
	time_t second = (time_t)(notice->time_ns / 1000000000);
	unsigned int ms = (unsigned int)(notice->time_ns / 1000000 % 1000);
	char text[256], when[32] = "";
	struct tm tm;

	kvblk_event_text(notice, text, sizeof(text));
	if (json)
		return cli_print_json_line(event_json(notice, text));
	if (localtime_r(&second, &tm))
		strftime(when, sizeof(when), "%F %T", &tm);
	printf("%s.%03u %-15s %s%s%s\n", when, ms, kvblk_name(KVBLK_NAME_EVENT, notice->type),
	       text, *notice->place ? "; its device: " : "", notice->place);
	return cli_flush();
}

/* Returns the milliseconds until @end for poll(); -1 if @end is NULL. */
static int time_left(const struct timespec *end)
{
	struct timespec now;
	double left;

	if (!end)
		return -1;
	clock_gettime(CLOCK_MONOTONIC, &now);
	left = (double)(end->tv_sec - now.tv_sec) * 1e3 +
	       (double)(end->tv_nsec - now.tv_nsec) / 1e6;
	if (left <= 0)
		return 0;
	return left > 1e9 ? 1000000000 : (int)left + 1;
}

static int listen_to(struct kvblk_feed *feed,
		     const struct events_args *args)
{
	struct pollfd pollfd = {
		.fd = kvblk_feed_fd(feed),
		.events = POLLIN,
	};
	const struct kvblk_notice *notice;
	struct timespec end;
	uint64_t seen = 0;
	int err, ret;

	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_sec += (time_t)args->seconds;
	end.tv_nsec += (long)((args->seconds - (double)(time_t)args->seconds) *
			      1e9);
	while (!args->count || seen < args->count) {
		err = kvblk_feed_read(feed, &notice, NULL);
		if (err == -EAGAIN) {
			ret = poll(&pollfd, 1,
				   time_left(args->seconds > 0 ? &end : NULL));
			if (ret == 0)
				break;
			if (ret < 0 && errno != EINTR)
				return cli_fail("poll: %s", strerror(errno));
			continue;
		}
		if (err == -ENOBUFS) {
			cli_fail("events were lost: they came faster than they were read");
			continue;
		}
		if (err)
			return cli_fail("events: %s", strerror(-err));
		if (args->pool && strcmp(args->pool, notice->pool) != 0)
			continue;
		ret = print_event(notice, args->list.json);
		if (ret)
			return ret;
		seen++;
	}
	return CLI_OK;
}

int events_main(int argc, char **argv)
{
	struct events_args args = { 0 };
	struct kvblk_feed *feed;
	int err, ret;

	cli_parse(&events_syntax, argc, argv, &args);
	err = kvblk_feed_open(KVBLK_FEED_EVENTS, &feed);
	if (err == -ENOENT)
		return cli_no_family();
	if (err == -EPERM)
		return cli_fail("events are for root and the group kvblk-monitor (usermod -aG kvblk-monitor USER, then log in again)");
	if (err)
		return cli_fail("cannot listen to events: %s", strerror(-err));
	ret = listen_to(feed, &args);
	kvblk_feed_close(feed);
	return ret;
}
