// SPDX-License-Identifier: GPL-2.0
/* Statistics by netlink. The rule: each value is a row in kvblk.yaml, each message fits a page. */
#include <linux/build_bug.h>
#include <linux/cleanup.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>

#include "admin/netlink.h"
#include "admin/netlink_gen.h"

static_assert(KVBLK_A_COUNTER_MAX == (int)KVBLK_COUNTERS);
static_assert(KVBLK_A_LATENCY_GET_NS - KVBLK_A_LATENCY_PUT_NS == 1);
static_assert(sizeof_field(struct kvblk_stats, hists[0]) <= KVBLK_LATENCY_LEN_MAX);

enum stats_gauge {
#define X(name, NAME)	GAUGE_##NAME,
	KVBLK_GAUGE_TABLE(X)
#undef X
	GAUGES,
	MEMBER_GAUGES = GAUGE_SEGMENTS_RETIRING + 1,	/* gauges that members have, too */
};

/* The longest message, a pool's with values of 8 bytes, fits. */
static_assert((KVBLK_COUNTERS + GAUGES) * (NLA_HDRLEN + sizeof(u64)) +
	      KVBLK_HISTS * (NLA_HDRLEN + sizeof_field(struct kvblk_stats, hists[0])) +
	      256 <= GENLMSG_DEFAULT_SIZE);

static const bool member_counters[KVBLK_COUNTERS] = {
#define X(name, NAME)	\
	[KVBLK_C_##NAME] = true,
	KVBLK_MEMBER_COUNTER_TABLE(X)
#undef X
};

static void gauges_add(const struct kvblk_member *member, u64 *gauges)
{
	u32 ready = READ_ONCE(member->log.nr_ready), open = READ_ONCE(member->log.nr_open);

	gauges[GAUGE_INFLIGHT] += kvblk_flash_inflight(&member->flash, NULL);
	gauges[GAUGE_QUEUED] += READ_ONCE(member->flash.queues[0].nr) +
				READ_ONCE(member->flash.queues[1].nr);
	gauges[GAUGE_WAITING_BYTES] += READ_ONCE(member->log.throttle.waiting);
	gauges[GAUGE_WAITING_KILLS] += READ_ONCE(member->log.kills.nr);
	gauges[GAUGE_SEGMENTS] += member->flash.nr_segs;
	gauges[GAUGE_SEGMENTS_FREE] += READ_ONCE(member->log.nr_free);
	gauges[GAUGE_SEGMENTS_READY] += ready;
	gauges[GAUGE_SEGMENTS_OPEN] += open - min(open, ready);
	gauges[GAUGE_SEGMENTS_SEALED] += READ_ONCE(member->log.nr_sealed);
	gauges[GAUGE_SEGMENTS_RETIRING] += READ_ONCE(member->log.nr_retiring);
}

static void gauges_of_pool(struct kvblk_pool *pool, u64 *gauges)
{
	struct kvblk_member *member;

	scoped_guard(rcu)
		kvblk_for_each_member(pool, member)
			gauges_add(member, gauges);
	gauges[GAUGE_LEASED_BYTES] = atomic64_read(&pool->lease.total);
	gauges[GAUGE_INDEX_USED] = kvblk_index_used(&pool->index);
	gauges[GAUGE_DRAM_BYTES] = percpu_counter_sum_positive(&pool->dram.bytes);
}

/* The put_*() functions return true if @skb is full. */
static const int latency_attrs[KVBLK_HISTS] = {
#define X(name, NAME) \
	[KVBLK_H_##NAME] = KVBLK_A_LATENCY_##NAME,
	KVBLK_LATENCY_TABLE(X)
#undef X
};

static bool put_latencies(struct sk_buff *skb, const struct kvblk_stats *sum, int nr)
{
	struct nlattr *nest = nla_nest_start(skb, KVBLK_A_STATS_LATENCY);
	bool full = !nest;
	int i;

	for (i = 0; i < nr && !full; i++)
		full = nla_put(skb, latency_attrs[i], sizeof(sum->hists[i]), sum->hists[i]);
	if (!full)
		nla_nest_end(skb, nest);
	return full;
}

static bool put_size_stats(struct sk_buff *skb, struct kvblk_pool *pool, u32 size)
{
	struct kvblk_size_stats sum;
	struct nlattr *nest;
	bool full;
	int hist;

	if (nla_put_string(skb, KVBLK_A_STATS_POOL, pool->name) ||
	    nla_put_string(skb, KVBLK_A_STATS_TENANT, KVBLK_NL_TENANT) ||
	    nla_put_uint(skb, KVBLK_A_STATS_SIZE_MAX, KVBLK_SIZE_MAX(size)))
		return true;
	nest = nla_nest_start(skb, KVBLK_A_STATS_LATENCY);
	full = !nest;
	for (hist = 0; hist < KVBLK_SIZED_HISTS && !full; hist++) {
		kvblk_stats_size(pool, hist, size, &sum);
		full = nla_put(skb, KVBLK_A_LATENCY_PUT + hist, sizeof(sum.hist), sum.hist) ||
		       nla_put_uint(skb, KVBLK_A_LATENCY_PUT_NS + hist, sum.ns);
	}
	if (!full)
		nla_nest_end(skb, nest);
	return full;
}

/* Put the statistics of @member, or of the pool if NULL. @sum: a buffer. */
static bool put_stats(struct sk_buff *skb, struct kvblk_pool *pool,
		      const struct kvblk_member *member, struct kvblk_stats *sum)
{
	u64 gauges[GAUGES] = {};

	if (nla_put_string(skb, KVBLK_A_STATS_POOL, pool->name) ||
	    (member ? nla_put_string(skb, KVBLK_A_STATS_MEMBER, member->flash.name) :
		      nla_put_string(skb, KVBLK_A_STATS_TENANT, KVBLK_NL_TENANT)))
		return true;
	if (member) {
		kvblk_stats_member(member, sum);
		gauges_add(member, gauges);
	} else {
		kvblk_stats_pool(pool, sum);
		gauges_of_pool(pool, gauges);
	}
	return kvblk_nl_put_uints(skb, KVBLK_A_STATS_COUNTERS, KVBLK_A_COUNTER_PUTS, sum->counters,
				  KVBLK_COUNTERS, member ? member_counters : NULL) ||
	       kvblk_nl_put_uints(skb, KVBLK_A_STATS_GAUGES, KVBLK_A_GAUGE_INFLIGHT, gauges,
				  member ? MEMBER_GAUGES : GAUGES, NULL) ||
	       /* members have latencies of puts and gets only */
	       put_latencies(skb, sum, member ? KVBLK_SIZED_HISTS : KVBLK_HISTS);
}

/* ---- replies ---- */

static int fill_stats(struct sk_buff *skb, const struct genl_info *info, struct kvblk_pool *pool,
		      const struct kvblk_member *member, struct kvblk_stats *sum)
{
	void *hdr = kvblk_nl_begin(skb, info);

	return kvblk_nl_end(skb, hdr, !hdr || put_stats(skb, pool, member, sum));
}

/* kvblk_nl_fill_fn for the pool, or for the member that the request names. */
static int fill_asked(struct sk_buff *skb, const struct genl_info *info,
		      struct kvblk_pool *pool, int *part, bool monitor)
{
	const struct nlattr *name = info->attrs[KVBLK_A_STATS_MEMBER];
	struct kvblk_stats *sum __free(kfree) = kmalloc(sizeof(*sum), GFP_KERNEL);
	const struct kvblk_member *member;

	if (!sum)
		return -ENOMEM;
	if (!name)
		return fill_stats(skb, info, pool, NULL, sum);
	guard(rcu)();
	member = kvblk_nl_member(pool, name, info->extack);
	return member ? fill_stats(skb, info, pool, member, sum) : -ENOENT;
}

int kvblk_nl_stats_get_doit(struct sk_buff *skb, struct genl_info *info)
{
	return kvblk_nl_refuse_user(skb, info->extack) ?:
	       kvblk_nl_name(info->attrs[KVBLK_A_STATS_MEMBER], info->extack) ?:
	       kvblk_nl_tenant(info->attrs[KVBLK_A_STATS_TENANT], info->extack) ?:
	       kvblk_nl_reply(skb, info, KVBLK_A_STATS_POOL, fill_asked);
}

/* kvblk_nl_fill_fn for the pool, its members by slot, or its size classes. */
static int dump_stats(struct sk_buff *skb, const struct genl_info *info,
		      struct kvblk_pool *pool, int *part, bool monitor)
{
	const struct nlattr *attr = info->attrs[KVBLK_A_STATS_SCOPE];
	u32 scope = attr ? nla_get_u32(attr) : KVBLK_STATS_SCOPE_POOL;
	struct kvblk_stats *sum __free(kfree) = NULL;
	const struct kvblk_member *member;
	void *hdr;
	int err;

	if (scope == KVBLK_STATS_SCOPE_SIZE) {
		for (; *part < KVBLK_SIZES; (*part)++) {
			hdr = kvblk_nl_begin(skb, info);
			if (kvblk_nl_end(skb, hdr, !hdr || put_size_stats(skb, pool, *part)))
				return -EMSGSIZE;
		}
		return 0;
	}
	sum = kmalloc(sizeof(*sum), GFP_KERNEL);
	if (!sum)
		return -ENOMEM;
	if (scope == KVBLK_STATS_SCOPE_POOL)
		return fill_stats(skb, info, pool, NULL, sum);
	guard(rcu)();
	for (; (member = kvblk_member_from(pool, *part)); *part = member->flash.slot) {
		err = fill_stats(skb, info, pool, member, sum);
		if (err)
			return err;
	}
	return 0;
}

int kvblk_nl_stats_get_dumpit(struct sk_buff *skb, struct netlink_callback *cb)
{
	struct nlattr **attrs = genl_info_dump(cb)->attrs;

	return kvblk_nl_refuse_user(cb->skb, cb->extack) ?:
	       kvblk_nl_tenant(attrs[KVBLK_A_STATS_TENANT], cb->extack) ?:
	       kvblk_nl_dump(skb, cb, attrs[KVBLK_A_STATS_POOL], dump_stats);
}

/* ---- notifications ---- */

/* Send a notification, or if @full (too long or NULL) drop it and skip its number. */
static void notice_send(struct kvblk_pool *pool, struct sk_buff *skb, bool full, u64 time)
{
	pool->stats_seq++;
	if (full || nla_put_uint(skb, KVBLK_A_STATS_SEQ, pool->stats_seq) ||
	    nla_put_uint(skb, KVBLK_A_STATS_TIME, time)) {
		nlmsg_free(skb);
		return;
	}
	nlmsg_end(skb, nlmsg_hdr(skb));
	genlmsg_multicast_netns_filtered(kvblk_nl, &init_net, skb, 0, KVBLK_NLGRP_STATS, GFP_KERNEL,
					 kvblk_monitor_filter, NULL);
}

static struct sk_buff *notice_new(void)
{
	struct sk_buff *skb = genlmsg_new(GENLMSG_DEFAULT_SIZE, GFP_KERNEL);

	/* a new skb always has space for the header */
	if (skb)
		genlmsg_put(skb, 0, 0, kvblk_nl, 0, KVBLK_CMD_STATS_NTF);
	return skb;
}

static void report_member(struct kvblk_pool *pool, u32 slot, struct kvblk_stats *sum, u64 time)
{
	const struct kvblk_member *member;
	struct sk_buff *skb;
	bool full;

	if (!rcu_access_pointer(pool->members[slot]))
		return;
	skb = notice_new();
	scoped_guard(rcu) {
		member = rcu_dereference(pool->members[slot]);
		full = !skb || (member && put_stats(skb, pool, member, sum));
	}
	/* a member that has just left takes no number */
	if (member)
		notice_send(pool, skb, full, time);
	else
		nlmsg_free(skb);
}

void kvblk_nl_stats_work(struct work_struct *work)
{
	struct kvblk_pool *pool = container_of(work, struct kvblk_pool, stats_work);
	struct kvblk_stats *sum __free(kfree) = NULL;
	u64 time = ktime_get_real_ns();
	struct sk_buff *skb;
	bool lost;
	u32 i;

	if (!genl_has_listeners(kvblk_nl, &init_net, KVBLK_NLGRP_STATS))
		return;
	sum = kmalloc(sizeof(*sum), GFP_KERNEL);
	skb = notice_new();
	lost = !sum || !skb;
	notice_send(pool, skb, lost || put_stats(skb, pool, NULL, sum), time);
	if (lost)
		return;
	for (i = 0; i < KVBLK_MEMBERS_MAX; i++)
		report_member(pool, i, sum, time);
	for (i = 0; i < KVBLK_SIZES; i++) {
		skb = notice_new();
		notice_send(pool, skb, !skb || put_size_stats(skb, pool, i), time);
	}
}
