// SPDX-License-Identifier: MIT
/*
 * Subscriptions to the module's multicast groups. The socket never blocks; a datagram
 * carries one message.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <netlink/genl/ctrl.h>
#include <netlink/genl/genl.h>
#include <netlink/netlink.h>

#include "lib.h"

#define RECEIVE_BUFFER	(1 << 20)

/**
 * struct kvblk_feed - a subscriber
 * @sock: the socket
 * @notice: the last event
 * @stats: the last statistics
 * @fresh: &enum kvblk_feed_group of the message that was just received, or 0
 */
struct kvblk_feed {
	struct nl_sock *sock;
	struct kvblk_notice notice;
	struct kvblk_stats stats;
	unsigned int fresh;
};

/* Parse an event into @notice, which must be zeroed. Returns 0 or -EBADMSG. */
static int parse_event(struct nlmsghdr *hdr, struct kvblk_notice *notice)
{
	struct nlattr *tb[KVBLK_A_EVENT_MAX + 1];

	if (genlmsg_parse(hdr, 0, tb, KVBLK_A_EVENT_MAX, NULL) || !tb[KVBLK_A_EVENT_TYPE])
		return -EBADMSG;
	notice->type = nla_get_u32(tb[KVBLK_A_EVENT_TYPE]);
	kvblk_nl_string(notice->pool, sizeof(notice->pool),
			tb[KVBLK_A_EVENT_POOL]);
	kvblk_nl_string(notice->member, sizeof(notice->member),
			tb[KVBLK_A_EVENT_MEMBER]);
	if (tb[KVBLK_A_EVENT_UUID] && nla_len(tb[KVBLK_A_EVENT_UUID]) >= 16)
		memcpy(notice->uuid, nla_data(tb[KVBLK_A_EVENT_UUID]), 16);
	kvblk_nl_string(notice->place, sizeof(notice->place), tb[KVBLK_A_EVENT_PLACE]);
	kvblk_nl_uint(&notice->time_ns, tb[KVBLK_A_EVENT_TIME]);
	for (unsigned int i = 0; i <= KVBLK_A_EVENT_MAX; i++)
		if (kvblk_find_name(KVBLK_NAME_EVENT_NUMBER, i) &&
		    kvblk_nl_uint(&notice->number[i], tb[i]))
			notice->has |= 1U << i;
	return 0;
}

static int on_valid(struct nl_msg *msg, void *arg)
{
	struct kvblk_feed *feed = arg;
	struct nlmsghdr *hdr = nlmsg_hdr(msg);

	switch (genlmsg_hdr(hdr)->cmd) {
	case KVBLK_CMD_EVENT_NTF:
		memset(&feed->notice, 0, sizeof(feed->notice));
		if (!parse_event(hdr, &feed->notice))
			feed->fresh = KVBLK_FEED_EVENTS;
		break;
	case KVBLK_CMD_STATS_NTF:
		memset(&feed->stats, 0, sizeof(feed->stats));
		if (!kvblk_stats_parse(hdr, &feed->stats))
			feed->fresh = KVBLK_FEED_STATS;
		break;
	}
	return NL_OK;
}

static const struct {
	unsigned int bit;
	const char *name;
} groups[] = {
	{ KVBLK_FEED_EVENTS, KVBLK_MCGRP_EVENTS },
	{ KVBLK_FEED_STATS, KVBLK_MCGRP_STATS },
};

#define NR_GROUPS	(sizeof(groups) / sizeof(groups[0]))

/*
 * Ask whether this user may receive messages, because the kernel lets everybody join a group, but
 * skips the sockets of others. Returns 0, -EPERM, or an error of the connection.
 */
static int may_receive(void)
{
	struct kvblk_stats *list;
	struct kvblk_admin *admin;
	int err = kvblk_admin_open(&admin);

	if (err)
		return err;
	err = kvblk_stats_list(admin, KVBLK_STATS_SCOPE_POOL, NULL, &list);
	kvblk_list_free(list);
	kvblk_admin_close(admin);
	return err == -EPERM ? err : 0;
}

static int subscribe(struct nl_sock *sock, unsigned int mask)
{
	int numbers[NR_GROUPS] = { 0 }, err = may_receive();

	if (!err)
		err = kvblk_nl_errno(genl_connect(sock));
	/* resolve all groups before joining one, or else a message could pass for a reply */
	for (size_t i = 0; i < NR_GROUPS && !err; i++) {
		if (!(mask & groups[i].bit))
			continue;
		numbers[i] = genl_ctrl_resolve_grp(sock, KVBLK_FAMILY_NAME, groups[i].name);
		if (numbers[i] < 0)
			err = kvblk_nl_errno(numbers[i]);
	}
	if (!err) {
		nl_socket_set_buffer_size(sock, RECEIVE_BUFFER, 0);
		err = kvblk_nl_errno(nl_socket_set_nonblocking(sock));
	}
	for (size_t i = 0; i < NR_GROUPS && !err; i++) {
		if (mask & groups[i].bit)
			err = kvblk_nl_errno(nl_socket_add_membership(sock, numbers[i]));
	}
	return err;
}

int kvblk_feed_open(unsigned int mask, struct kvblk_feed **handle)
{
	struct kvblk_feed *feed;
	int err;

	if (!mask || mask & ~(KVBLK_FEED_EVENTS | KVBLK_FEED_STATS))
		return -EINVAL;
	feed = calloc(1, sizeof(*feed));
	if (!feed)
		return -ENOMEM;
	feed->sock = nl_socket_alloc();
	if (!feed->sock) {
		free(feed);
		return -ENOMEM;
	}
	nl_socket_disable_seq_check(feed->sock);
	nl_socket_modify_cb(feed->sock, NL_CB_VALID, NL_CB_CUSTOM, on_valid, feed);
	err = subscribe(feed->sock, mask);
	if (err)
		kvblk_feed_close(feed);
	else
		*handle = feed;
	return err;
}

void kvblk_feed_close(struct kvblk_feed *feed)
{
	if (!feed)
		return;
	nl_socket_free(feed->sock);
	free(feed);
}

int kvblk_feed_fd(const struct kvblk_feed *feed)
{
	return nl_socket_get_fd(feed->sock);
}

int kvblk_feed_read(struct kvblk_feed *feed, const struct kvblk_notice **notice,
		    const struct kvblk_stats **stats)
{
	int err;

	do {
		feed->fresh = 0;
		errno = 0;
		err = nl_recvmsgs_default(feed->sock);
		/* libnl returns NLE_NOMEM for both ENOMEM and ENOBUFS */
		if (err == -NLE_NOMEM && errno == ENOBUFS)
			return -ENOBUFS;
		if (err < 0)
			return kvblk_nl_errno(err);
	} while (!feed->fresh);
	if (notice)
		*notice = feed->fresh == KVBLK_FEED_EVENTS ? &feed->notice : NULL;
	if (stats)
		*stats = feed->fresh == KVBLK_FEED_STATS ? &feed->stats : NULL;
	return 0;
}
