// SPDX-License-Identifier: MIT
/*
 * Statistics by netlink, by request or from the multicast group "stats". Numbers unknown
 * to this library are skipped; numbers that the module does not send stay 0.
 */
#include <errno.h>
#include <string.h>

#include <netlink/genl/genl.h>
#include <netlink/netlink.h>

#include "lib.h"

void kvblk_nl_numbers(uint64_t *to, bool *has, unsigned int kind, struct nlattr *nest)
{
	struct nlattr *attr;
	int left;

	if (!nest)
		return;
	nla_for_each_nested(attr, nest, left) {
		if (kvblk_find_name(kind, nla_type(attr)))
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
		if (!kvblk_find_name(KVBLK_NAME_LATENCY, nla_type(attr)))
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
	kvblk_nl_numbers(stats->counter, stats->has_counter, KVBLK_NAME_COUNTER,
			 tb[KVBLK_A_STATS_COUNTERS]);
	kvblk_nl_numbers(stats->gauge, stats->has_gauge, KVBLK_NAME_GAUGE,
			 tb[KVBLK_A_STATS_GAUGES]);
	parse_latency(stats, tb[KVBLK_A_STATS_LATENCY]);
	return 0;
}
