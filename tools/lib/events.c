// SPDX-License-Identifier: MIT
/*
 * The multicast group "events", and subscriptions in general. The socket never blocks; a
 * datagram carries one event.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <netlink/genl/ctrl.h>
#include <netlink/genl/genl.h>
#include <netlink/netlink.h>

#include <linux/kvblk_names.h>

#include "netlink.h"

#define RECEIVE_BUFFER	(1 << 20)

/**
 * struct kvblk_events - a subscriber
 * @sock: the socket
 * @notice: the last event
 * @fresh: the last datagram was a valid event
 */
struct kvblk_events {
	struct nl_sock *sock;
	struct kvblk_notice notice;
	bool fresh;
};

static int on_valid(struct nl_msg *msg, void *arg)
{
	struct kvblk_events *events = arg;
	struct kvblk_notice *notice = &events->notice;
	struct nlattr *tb[KVBLK_A_EVENT_MAX + 1];
	struct genlmsghdr *hdr = genlmsg_hdr(nlmsg_hdr(msg));

	if (hdr->cmd != KVBLK_CMD_EVENT_NTF ||
	    genlmsg_parse(nlmsg_hdr(msg), 0, tb, KVBLK_A_EVENT_MAX, NULL) ||
	    !tb[KVBLK_A_EVENT_TYPE])
		return NL_OK;
	memset(notice, 0, sizeof(*notice));
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
		if (kvblk_event_number_name(i) &&
		    kvblk_nl_uint(&notice->number[i], tb[i]))
			notice->has |= 1U << i;
	events->fresh = true;
	return NL_OK;
}

int kvblk_nl_listen(const char *group, nl_recvmsg_msg_cb_t on_message, void *arg,
		    struct nl_sock **handle)
{
	struct nl_sock *sock = nl_socket_alloc();
	int number, err;

	if (!sock)
		return -ENOMEM;
	nl_socket_disable_seq_check(sock);
	err = kvblk_nl_errno(genl_connect(sock));
	if (err)
		goto free_socket;
	/* safe on this socket: it sends no other requests, so replies cannot get mixed up */
	number = genl_ctrl_resolve_grp(sock, KVBLK_FAMILY_NAME, group);
	if (number < 0) {
		err = kvblk_nl_errno(number);
		goto free_socket;
	}
	nl_socket_set_buffer_size(sock, RECEIVE_BUFFER, 0);
	nl_socket_modify_cb(sock, NL_CB_VALID, NL_CB_CUSTOM, on_message, arg);
	err = kvblk_nl_errno(nl_socket_set_nonblocking(sock));
	if (err)
		goto free_socket;
	err = kvblk_nl_errno(nl_socket_add_membership(sock, number));
	if (err)
		goto free_socket;
	*handle = sock;
	return 0;

free_socket:
	nl_socket_free(sock);
	return err;
}

int kvblk_nl_hear(struct nl_sock *sock, bool *fresh)
{
	int err;

	do {
		*fresh = false;
		errno = 0;
		err = nl_recvmsgs_default(sock);
		/* libnl returns NLE_NOMEM for both ENOMEM and ENOBUFS */
		if (err == -NLE_NOMEM && errno == ENOBUFS)
			return -ENOBUFS;
		if (err < 0)
			return kvblk_nl_errno(err);
	} while (!*fresh);
	return 0;
}

int kvblk_events_open(struct kvblk_events **handle)
{
	struct kvblk_events *events = calloc(1, sizeof(*events));
	int err;

	if (!events)
		return -ENOMEM;
	err = kvblk_nl_listen(KVBLK_MCGRP_EVENTS, on_valid, events, &events->sock);
	if (err)
		free(events);
	else
		*handle = events;
	return err;
}

void kvblk_events_close(struct kvblk_events *events)
{
	if (!events)
		return;
	nl_socket_free(events->sock);
	free(events);
}

int kvblk_events_fd(const struct kvblk_events *events)
{
	return nl_socket_get_fd(events->sock);
}

int kvblk_events_read(struct kvblk_events *events,
		      const struct kvblk_notice **notice)
{
	int err = kvblk_nl_hear(events->sock, &events->fresh);

	if (!err)
		*notice = &events->notice;
	return err;
}

static const char *const event_names[] = {
#define X(name, NAME)	[KVBLK_EVENT_##NAME] = name,
	KVBLK_EVENT_TABLE(X)
#undef X
};

#define NR_EVENT_TYPES	(sizeof(event_names) / sizeof(event_names[0]))

_Static_assert(KVBLK_A_EVENT_MAX < KVBLK_NOTICE_NUMBERS,
	       "struct kvblk_notice has no room for a number");

static const char *const number_names[KVBLK_A_EVENT_MAX + 1] = {
#define X(name, NAME)	[KVBLK_A_EVENT_##NAME] = name,
	KVBLK_EVENT_NUMBER_TABLE(X)
#undef X
};

const char *kvblk_event_number_name(unsigned int number)
{
	return number <= KVBLK_A_EVENT_MAX ? number_names[number] : NULL;
}

/* Text of each event, with a conversion for @number if it has one. */
static const struct {
	const char *format;
	unsigned int number;
} event_texts[NR_EVENT_TYPES] = {
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
};

const char *kvblk_event_name(unsigned int type)
{
	if (type >= NR_EVENT_TYPES || !event_names[type])
		return "unknown";
	return event_names[type];
}

void kvblk_event_text(const struct kvblk_notice *notice, char *buf, size_t len)
{
	const char *format = "event of unknown type %" PRIu64;
	uint64_t number = notice->type;
	int n;

	if (number < NR_EVENT_TYPES && event_texts[number].format) {
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
