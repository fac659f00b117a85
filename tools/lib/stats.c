// SPDX-License-Identifier: MIT
/*
 * Statistics by netlink, by request or from the multicast group "stats". Numbers unknown
 * to this library are skipped; numbers that the module does not send stay 0.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <netlink/genl/genl.h>
#include <netlink/netlink.h>

#include <linux/kvblk_names.h>

#include "netlink.h"

_Static_assert(KVBLK_A_COUNTER_MAX < KVBLK_STATS_COUNTERS,
	       "struct kvblk_stats has no room for a counter");
_Static_assert(KVBLK_A_GAUGE_MAX < KVBLK_STATS_GAUGES,
	       "struct kvblk_stats has no room for a gauge");
_Static_assert(KVBLK_A_LATENCY_LOOKUP < KVBLK_STATS_LATENCIES,
	       "struct kvblk_stats has no room for a histogram");

/* Read the numbers of @nest with types below @max to @to, and set their @has. */
static void parse_numbers(uint64_t *to, bool *has, int max, struct nlattr *nest)
{
	struct nlattr *attr;
	int left;

	if (!nest)
		return;
	nla_for_each_nested(attr, nest, left) {
		if (nla_type(attr) < max)
			has[nla_type(attr)] = kvblk_nl_uint(&to[nla_type(attr)], attr);
	}
}

static void parse_latency(struct kvblk_stats *stats, struct nlattr *nest)
{
	struct nlattr *attr;
	int left;

	if (!nest)
		return;
	nla_for_each_nested(attr, nest, left) {
		size_t nr = (size_t)nla_len(attr) / sizeof(uint64_t);

		if (nla_type(attr) == KVBLK_A_LATENCY_PUT_NS ||
		    nla_type(attr) == KVBLK_A_LATENCY_GET_NS) {
			kvblk_nl_uint(&stats->latency_ns[nla_type(attr) -
							 KVBLK_A_LATENCY_PUT_NS +
							 KVBLK_A_LATENCY_PUT], attr);
			continue;
		}
		if (nla_type(attr) >= KVBLK_STATS_LATENCIES)
			continue;
		if (nr > KVBLK_STATS_BUCKETS)
			nr = KVBLK_STATS_BUCKETS;
		memcpy(stats->latency[nla_type(attr)], nla_data(attr),
		       nr * sizeof(uint64_t));
		stats->nr_buckets[nla_type(attr)] = (uint32_t)nr;
	}
}

int kvblk_stats_parse(struct nlmsghdr *hdr, struct kvblk_stats *stats)
{
	struct nlattr *tb[KVBLK_A_STATS_MAX + 1];

	if (genlmsg_parse(hdr, 0, tb, KVBLK_A_STATS_MAX, NULL))
		return -EBADMSG;
	kvblk_nl_string(stats->pool, sizeof(stats->pool), tb[KVBLK_A_STATS_POOL]);
	kvblk_nl_string(stats->member, sizeof(stats->member),
			tb[KVBLK_A_STATS_MEMBER]);
	kvblk_nl_uint(&stats->size_max, tb[KVBLK_A_STATS_SIZE_MAX]);
	kvblk_nl_uint(&stats->seq, tb[KVBLK_A_STATS_SEQ]);
	kvblk_nl_uint(&stats->time_ns, tb[KVBLK_A_STATS_TIME]);
	parse_numbers(stats->counter, stats->has_counter, KVBLK_STATS_COUNTERS,
		      tb[KVBLK_A_STATS_COUNTERS]);
	parse_numbers(stats->gauge, stats->has_gauge, KVBLK_STATS_GAUGES,
		      tb[KVBLK_A_STATS_GAUGES]);
	parse_latency(stats, tb[KVBLK_A_STATS_LATENCY]);
	return 0;
}

/**
 * struct kvblk_stats_feed - a subscriber
 * @sock: the socket
 * @stats: the last message
 * @fresh: the last datagram was a valid message
 */
struct kvblk_stats_feed {
	struct nl_sock *sock;
	struct kvblk_stats stats;
	bool fresh;
};

static int on_valid(struct nl_msg *msg, void *arg)
{
	struct kvblk_stats_feed *feed = arg;
	struct genlmsghdr *hdr = genlmsg_hdr(nlmsg_hdr(msg));

	if (hdr->cmd != KVBLK_CMD_STATS_NTF)
		return NL_OK;
	memset(&feed->stats, 0, sizeof(feed->stats));
	feed->fresh = !kvblk_stats_parse(nlmsg_hdr(msg), &feed->stats);
	return NL_OK;
}

int kvblk_stats_open(struct kvblk_stats_feed **handle)
{
	struct kvblk_stats_feed *feed = calloc(1, sizeof(*feed));
	int err;

	if (!feed)
		return -ENOMEM;
	err = kvblk_nl_listen(KVBLK_MCGRP_STATS, on_valid, feed, &feed->sock);
	if (err)
		free(feed);
	else
		*handle = feed;
	return err;
}

void kvblk_stats_close(struct kvblk_stats_feed *feed)
{
	if (!feed)
		return;
	nl_socket_free(feed->sock);
	free(feed);
}

int kvblk_stats_fd(const struct kvblk_stats_feed *feed)
{
	return nl_socket_get_fd(feed->sock);
}

int kvblk_stats_read(struct kvblk_stats_feed *feed, const struct kvblk_stats **stats)
{
	int err = kvblk_nl_hear(feed->sock, &feed->fresh);

	if (!err)
		*stats = &feed->stats;
	return err;
}

#define COUNTER(name, NAME)	[KVBLK_A_COUNTER_##NAME] = name,
#define GAUGE(name, NAME)	[KVBLK_A_GAUGE_##NAME] = name,
#define LATENCY(name, NAME)	[KVBLK_A_LATENCY_##NAME] = name,

/* Define kvblk_KIND_name(). */
#define DEFINE_NAME(kind, KIND)						\
	const char *kvblk_##kind##_name(unsigned int i)			\
	{								\
		static const char *const names[] = {			\
			KVBLK_##KIND##_TABLE(KIND)			\
		};							\
									\
		return i < sizeof(names) / sizeof(names[0]) ?		\
		       names[i] : NULL;					\
	}

DEFINE_NAME(counter, COUNTER)
DEFINE_NAME(gauge, GAUGE)
DEFINE_NAME(latency, LATENCY)
