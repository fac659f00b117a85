// SPDX-License-Identifier: GPL-2.0
/*
 * Events, multicast to operators by netlink. The rule: an event may be reported from any context,
 * its caller never waits, and listeners are notified if an event was lost.
 */
#include <linux/llist.h>
#include <linux/slab.h>
#include <net/genetlink.h>

#include "report/report.h"

#define EVENTS_MAX		4096	/* longest queue; further events are lost */

static struct genl_family *event_family;
static unsigned int event_group;
static netlink_filter_fn event_filter;

/* Attribute of each event's value; 0: none. */
static const u8 event_attrs[] = {
	[KVBLK_EVENT_MEMBER_UP] = KVBLK_A_EVENT_BLOCKS,
	[KVBLK_EVENT_MEMBER_SUSPECT] = KVBLK_A_EVENT_SILENCE_MS,
	[KVBLK_EVENT_CHECKSUM] = KVBLK_A_EVENT_SEGMENT,
	[KVBLK_EVENT_READ_ERROR] = KVBLK_A_EVENT_SEGMENT,
	[KVBLK_EVENT_WRITE_ERROR] = KVBLK_A_EVENT_SEGMENT,
	[KVBLK_EVENT_RECLAIM_RATE] = KVBLK_A_EVENT_SEGMENTS_RECLAIMED,
	[KVBLK_EVENT_LOW_SPACE] = KVBLK_A_EVENT_FREE_SEGMENTS,
	[KVBLK_EVENT_RESTORE_FAILED] = KVBLK_A_EVENT_ERROR,
	[KVBLK_EVENT_REQUEST_DONE] = KVBLK_A_EVENT_ERROR,
	[KVBLK_EVENT_MEMBER_FAILING] = KVBLK_A_EVENT_IO_ERRORS,
	[KVBLK_EVENT_MEMBER_READ_ONLY] = KVBLK_A_EVENT_IO_ERRORS,
	[KVBLK_EVENT_NO_SPACE] = KVBLK_A_EVENT_PUTS,
};

struct event {
	struct llist_node node;
	enum kvblk_event type;
	u64 value;
	u64 request;			/* id of the completed request, or 0 */
	u64 time;
	char pool[KVBLK_NAME_MAX];
	char member[KVBLK_NAME_MAX];
	char place[KVBLK_PLACE_MAX];
	uuid_t uuid;
};

static LLIST_HEAD(events);
static atomic_t nr_events;
static atomic_t event_lost;

static void event_send(const struct event *event)
{
	const int attr = event_attrs[event->type];
	struct sk_buff *skb = genlmsg_new(GENLMSG_DEFAULT_SIZE, GFP_KERNEL);
	void *hdr = skb ? genlmsg_put(skb, 0, 0, event_family, 0, KVBLK_CMD_EVENT_NTF) : NULL;

	if (!hdr ||
	    nla_put_u32(skb, KVBLK_A_EVENT_TYPE, event->type) ||
	    nla_put_string(skb, KVBLK_A_EVENT_POOL, event->pool) ||
	    (event->member[0] && nla_put_string(skb, KVBLK_A_EVENT_MEMBER, event->member)) ||
	    (!uuid_is_null(&event->uuid) &&
	     nla_put(skb, KVBLK_A_EVENT_UUID, UUID_SIZE, &event->uuid)) ||
	    (event->place[0] && nla_put_string(skb, KVBLK_A_EVENT_PLACE, event->place)) ||
	    nla_put_uint(skb, KVBLK_A_EVENT_TIME, event->time) ||
	    (attr && nla_put_uint(skb, attr, event->value)) ||
	    (event->request && nla_put_uint(skb, KVBLK_A_EVENT_REQUEST, event->request))) {
		nlmsg_free(skb);
		atomic_set(&event_lost, 1);
		return;
	}
	genlmsg_end(skb, hdr);
	genlmsg_multicast_netns_filtered(event_family, &init_net, skb, 0, event_group, GFP_KERNEL,
					 event_filter, NULL);
}

static void events_send(struct work_struct *work)
{
	struct llist_node *list = llist_reverse_order(llist_del_all(&events));
	struct event *event, *next;

	llist_for_each_entry_safe(event, next, list, node) {
		event_send(event);
		kfree(event);
		atomic_dec(&nr_events);
	}
	/* as a socket with a full buffer does, because some listeners wait for a certain event */
	if (atomic_xchg(&event_lost, 0))
		genl_set_err(event_family, &init_net, 0, event_group, -ENOBUFS);
}

static DECLARE_WORK(events_work, events_send);

/*
 * Queue an event for the worker, because most I/O completes in interrupts, which must not enter
 * netlink. Copy names, because pool and member may be freed before the worker runs.
 */
static void event_add(const char *pool, const char *name, const struct kvblk_flash *flash,
		      enum kvblk_event type, u64 value, u64 request)
{
	struct event *event = NULL;

	if (!genl_has_listeners(event_family, &init_net, event_group))
		return;
	if (atomic_inc_return(&nr_events) <= EVENTS_MAX)
		event = kzalloc(sizeof(*event), GFP_ATOMIC | __GFP_NOWARN);
	if (!event) {
		atomic_dec(&nr_events);
		atomic_set(&event_lost, 1);
		schedule_work(&events_work);
		return;
	}
	event->type = type;
	event->value = value;
	event->request = request;
	event->time = ktime_get_real_ns();
	strscpy(event->pool, pool);
	strscpy(event->member, name);
	if (flash) {
		strscpy(event->place, flash->place);
		uuid_copy(&event->uuid, &flash->uuid);
	}
	if (llist_add(&event->node, &events))
		schedule_work(&events_work);
}

void kvblk_event(struct kvblk_pool *pool, const struct kvblk_flash *flash,
		 enum kvblk_event type, u64 value)
{
	event_add(pool->name, flash ? flash->name : "", flash, type, value, 0);
}

void kvblk_event_request(const char *pool, const char *member, u64 request, int err)
{
	event_add(pool, member, NULL, KVBLK_EVENT_REQUEST_DONE, -err, request);
}

void kvblk_events_begin(struct genl_family *family, unsigned int group, netlink_filter_fn filter)
{
	event_family = family;
	event_group = group;
	event_filter = filter;
}

void kvblk_events_end(void)
{
	flush_work(&events_work);
}
