// SPDX-License-Identifier: MIT
/*
 * Administration over the generic netlink family "kvblk".
 *
 * A handle is a socket with one request in progress at most. A request completes with the
 * kernel's acknowledgment, its error, or the end of the dump. Each of them may carry a
 * message, which the handle keeps until the next request.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <linux/netlink.h>
#include <netlink/genl/ctrl.h>
#include <netlink/genl/genl.h>
#include <netlink/netlink.h>

#include "lib.h"

/* The longest request: a pool of 64 members with paths of 4095 bytes. */
#define REQUEST_MAX	(292 << 10)

#ifndef SOL_NETLINK
#define SOL_NETLINK	270
#endif

/**
 * struct kvblk_admin - a connection
 * @sock: the socket
 * @family: number of the netlink family
 * @parse: handler of the current request's replies, or NULL
 * @replies: argument of @parse
 * @err: result of the current request
 * @done: the current request is complete
 * @request: kernel's number of the last request while it is in progress, else 0
 * @feed: subscription that reports the completion of @request, or NULL
 * @message: kernel's message on the last request
 */
struct kvblk_admin {
	struct nl_sock *sock;
	int family;
	int (*parse)(struct nlmsghdr *hdr, void *replies);
	void *replies;
	int err;
	bool done;
	uint64_t request;
	struct kvblk_feed *feed;
	char message[256];
};

int kvblk_nl_errno(int nlerr)
{
	switch (nlerr < 0 ? -nlerr : nlerr) {
	case 0:
		return 0;
	case NLE_OBJ_NOTFOUND:
	case NLE_NOADDR:
		return -ENOENT;
	case NLE_PERM:
		return -EPERM;
	case NLE_NOACCESS:
		return -EACCES;
	case NLE_NOMEM:
		return -ENOMEM;
	case NLE_AGAIN:
		return -EAGAIN;
	case NLE_INTR:
	case NLE_DUMP_INTR:
		return -EINTR;
	case NLE_AF_NOSUPPORT:
	case NLE_PROTO_MISMATCH:
		return -EPROTONOSUPPORT;
	case NLE_MSGSIZE:
	case NLE_MSG_OVERFLOW:
		return -EMSGSIZE;
	default:
		return -EIO;
	}
}

void kvblk_nl_string(char *to, size_t len, struct nlattr *attr)
{
	if (!attr)
		return;
	/* some kernel strings have no NUL in the attribute */
	snprintf(to, len, "%.*s", nla_len(attr), (char *)nla_data(attr));
}

bool kvblk_nl_uint(uint64_t *to, struct nlattr *attr)
{
	if (attr && nla_len(attr) == (int)sizeof(uint32_t))
		*to = nla_get_u32(attr);
	else if (attr && nla_len(attr) == (int)sizeof(uint64_t))
		*to = nla_get_u64(attr);
	else
		return false;
	return true;
}

/* Keep the message and the request number of a reply. */
static void keep_attrs(struct kvblk_admin *admin, struct nlattr *attrs, int len)
{
	kvblk_nl_string(admin->message, sizeof(admin->message),
			nla_find(attrs, len, NLMSGERR_ATTR_MSG));
	kvblk_nl_uint(&admin->request, nla_find(attrs, len, NLMSGERR_ATTR_COOKIE));
}

static int on_valid(struct nl_msg *msg, void *arg)
{
	struct kvblk_admin *admin = arg;
	int err;

	if (!admin->parse)
		return NL_OK;
	err = admin->parse(nlmsg_hdr(msg), admin->replies);
	if (err && !admin->err)
		admin->err = err;
	return NL_OK;
}

/* Take the result of a do request: libnl calls on_ack() for 0 and on_error() for errors. */
static void keep_verdict(struct kvblk_admin *admin, struct nlmsgerr *verdict)
{
	struct nlmsghdr *hdr = (struct nlmsghdr *)((char *)verdict - NLMSG_HDRLEN);
	size_t skip = sizeof(*verdict);

	/* without NLM_F_CAPPED the reply contains the whole request */
	if (!(hdr->nlmsg_flags & NLM_F_CAPPED))
		skip += verdict->msg.nlmsg_len - NLMSG_HDRLEN;
	skip = NLMSG_ALIGN(skip);
	if ((hdr->nlmsg_flags & NLM_F_ACK_TLVS) &&
	    hdr->nlmsg_len > NLMSG_HDRLEN + skip)
		keep_attrs(admin, (struct nlattr *)((char *)verdict + skip),
			   (int)(hdr->nlmsg_len - NLMSG_HDRLEN - skip));
	if (verdict->error && !admin->err)
		admin->err = verdict->error;
	admin->done = true;
}

static int on_ack(struct nl_msg *msg, void *arg)
{
	keep_verdict(arg, nlmsg_data(nlmsg_hdr(msg)));
	return NL_STOP;
}

static int on_error(struct sockaddr_nl *addr, struct nlmsgerr *verdict,
		    void *arg)
{
	keep_verdict(arg, verdict);
	return NL_STOP;
}

/* Take the end of a dump: an int, 0 or an error, followed by attributes. */
static int on_finish(struct nl_msg *msg, void *arg)
{
	struct kvblk_admin *admin = arg;
	struct nlmsghdr *hdr = nlmsg_hdr(msg);
	int len = nlmsg_datalen(hdr), err;

	admin->done = true;
	if (len < (int)sizeof(err))
		return NL_STOP;
	memcpy(&err, nlmsg_data(hdr), sizeof(err));
	if ((hdr->nlmsg_flags & NLM_F_ACK_TLVS) && len > (int)sizeof(err))
		keep_attrs(admin,
			   (struct nlattr *)((char *)nlmsg_data(hdr) + sizeof(err)),
			   len - (int)sizeof(err));
	if (err && !admin->err)
		admin->err = err;
	return NL_STOP;
}

int kvblk_admin_open(struct kvblk_admin **handle)
{
	struct kvblk_admin *admin = calloc(1, sizeof(*admin));
	int err, on = 1;

	if (!admin)
		return -ENOMEM;
	admin->sock = nl_socket_alloc();
	if (!admin->sock) {
		err = -ENOMEM;
		goto free_handle;
	}
	err = kvblk_nl_errno(genl_connect(admin->sock));
	if (err)
		goto free_socket;
	admin->family = genl_ctrl_resolve(admin->sock, KVBLK_FAMILY_NAME);
	if (admin->family < 0) {
		err = kvblk_nl_errno(admin->family);
		goto free_socket;
	}
	if (setsockopt(nl_socket_get_fd(admin->sock), SOL_NETLINK,
		       NETLINK_EXT_ACK, &on, sizeof(on)) ||
	    setsockopt(nl_socket_get_fd(admin->sock), SOL_NETLINK,
		       NETLINK_CAP_ACK, &on, sizeof(on))) {
		err = -errno;
		goto free_socket;
	}
	nl_socket_modify_cb(admin->sock, NL_CB_VALID, NL_CB_CUSTOM, on_valid,
			    admin);
	nl_socket_modify_cb(admin->sock, NL_CB_ACK, NL_CB_CUSTOM, on_ack,
			    admin);
	nl_socket_modify_cb(admin->sock, NL_CB_FINISH, NL_CB_CUSTOM, on_finish,
			    admin);
	nl_socket_modify_err_cb(admin->sock, NL_CB_CUSTOM, on_error, admin);
	*handle = admin;
	return 0;

free_socket:
	nl_socket_free(admin->sock);
free_handle:
	free(admin);
	return err;
}

void kvblk_admin_close(struct kvblk_admin *admin)
{
	if (!admin)
		return;
	kvblk_feed_close(admin->feed);
	nl_socket_free(admin->sock);
	free(admin);
}

const char *kvblk_admin_message(const struct kvblk_admin *admin)
{
	return admin->message;
}

struct nl_msg *kvblk_request_new(struct kvblk_admin *admin, int command, int flags)
{
	struct nl_msg *msg = nlmsg_alloc_size(REQUEST_MAX);

	admin->message[0] = '\0';
	admin->request = 0;
	kvblk_feed_close(admin->feed);
	admin->feed = NULL;
	if (!msg)
		return NULL;
	if (!genlmsg_put(msg, NL_AUTO_PORT, NL_AUTO_SEQ, admin->family, 0,
			 NLM_F_REQUEST | flags, (uint8_t)command,
			 KVBLK_FAMILY_VERSION)) {
		nlmsg_free(msg);
		return NULL;
	}
	return msg;
}

/* Send and free @msg, then receive until the request completes. */
static int run_request(struct kvblk_admin *admin, struct nl_msg *msg)
{
	int err;

	admin->err = 0;
	admin->done = false;
	err = nl_send_auto(admin->sock, msg);
	nlmsg_free(msg);
	if (err < 0)
		return kvblk_nl_errno(err);
	while (!admin->done) {
		err = nl_recvmsgs_default(admin->sock);
		if (err == -NLE_INTR || err == -NLE_AGAIN)
			continue;
		/* receive the rest, or else it would be read as replies to the next request */
		if (err == -NLE_DUMP_INTR) {
			if (!admin->err)
				admin->err = -EINTR;
			continue;
		}
		/* ignore libnl's own error for a result that the kernel has reported */
		if (err < 0 && !admin->done)
			return kvblk_nl_errno(err);
	}
	return admin->err;
}

int kvblk_request_run(struct kvblk_admin *admin, struct nl_msg *msg, int err)
{
	/* subscribe first: the completion event may arrive before the reply */
	if (!err)
		err = kvblk_feed_open(KVBLK_FEED_EVENTS, &admin->feed);
	if (err) {
		nlmsg_free(msg);
		return err;
	}
	err = run_request(admin, msg);
	if (err != -EINPROGRESS) {
		kvblk_feed_close(admin->feed);
		admin->feed = NULL;
	}
	return err;
}

uint64_t kvblk_admin_request(const struct kvblk_admin *admin)
{
	return admin->request;
}

int kvblk_admin_wait(struct kvblk_admin *admin, int timeout_ms)
{
	const int64_t end = now_ms() + timeout_ms;
	const struct kvblk_notice *notice;
	struct pollfd pollfd = { .events = POLLIN };
	int64_t left;
	int err;

	if (!admin->feed || !admin->request)
		return -EINVAL;
	pollfd.fd = kvblk_feed_fd(admin->feed);
	for (;;) {
		err = kvblk_feed_read(admin->feed, &notice, NULL);
		if (!err && notice->type == KVBLK_EVENT_REQUEST_DONE &&
		    notice->number[KVBLK_A_EVENT_REQUEST] == admin->request)
			break;
		if (!err)
			continue;
		if (err != -EAGAIN)
			return err;
		left = timeout_ms < 0 ? -1 : end - now_ms();
		if (timeout_ms >= 0 && left <= 0)
			return -ETIMEDOUT;
		if (poll(&pollfd, 1, (int)left) < 0)
			return -errno;
	}
	err = -(int)notice->number[KVBLK_A_EVENT_ERROR];
	admin->request = 0;
	return err;
}

int kvblk_read_sized(void *to, size_t size, const void *from)
{
	const char *bytes = from;
	uint32_t len;

	memcpy(&len, from, sizeof(len));
	if (len < sizeof(len))
		return -EINVAL;
	if (len > KVBLK_STRUCT_MAX)
		return -E2BIG;
	for (size_t i = size; i < len; i++) {
		/* NOLINTNEXTLINE(clang-analyzer-core.uninitialized.Branch): in the caller's size */
		if (bytes[i])
			return -E2BIG;
	}
	memset(to, 0, size);
	memcpy(to, from, len < size ? len : size);
	return 0;
}

static int put_member_spec(struct nl_msg *msg, const struct kvblk_member_spec *spec)
{
	char place[KVBLK_PLACE_LEN_MAX + 1];
	int err;

	if (!spec->path)
		return -EINVAL;
	kvblk_place_of(spec->path, place);
	err = nla_put_string(msg, KVBLK_A_MEMBER_PATH, spec->path);
	if (!err && *place)
		err = nla_put_string(msg, KVBLK_A_MEMBER_PLACE, place);
	if (!err && spec->name)
		err = nla_put_string(msg, KVBLK_A_MEMBER_NAME, spec->name);
	if (!err && spec->segment_size)
		err = nla_put_u32(msg, KVBLK_A_MEMBER_SEGMENT_SIZE,
				  spec->segment_size);
	if (!err && spec->hinted)
		err = nla_put_flag(msg, KVBLK_A_MEMBER_HINTED);
	return err ? -EMSGSIZE : 0;
}

static int put_flags(struct nl_msg *msg, int attr, uint32_t flags)
{
	return flags ? nla_put_u32(msg, attr, flags) : 0;
}

/* Add the host's identity. Without an identity the module compares host names. */
static int put_node(struct nl_msg *msg)
{
	uint8_t id[16];

	if (kvblk_host_id(id))
		return 0;
	return nla_put(msg, KVBLK_A_POOL_NODE, sizeof(id), id);
}

static int put_members(struct nl_msg *msg, const struct kvblk_pool_spec *spec)
{
	const char *at = (const char *)spec->members;
	struct kvblk_member_spec member;

	for (size_t i = 0; i < spec->nr_members; i++) {
		struct nlattr *nest = nla_nest_start(msg, KVBLK_A_POOL_MEMBER);
		int err = kvblk_read_sized(&member, sizeof(member), at);

		if (!err)
			err = nest ? put_member_spec(msg, &member) : -EMSGSIZE;
		if (err)
			return err;
		nla_nest_end(msg, nest);
		at += member.size;
	}
	return 0;
}

static int put_pool_spec(struct nl_msg *msg, const struct kvblk_pool_spec *spec)
{
	if (!spec->name)
		return -EINVAL;
	if (put_node(msg) || nla_put_string(msg, KVBLK_A_POOL_NAME, spec->name) ||
	    put_flags(msg, KVBLK_A_POOL_FLAGS, spec->flags) ||
	    put_flags(msg, KVBLK_A_POOL_ADD_FLAGS, spec->add_flags))
		return -EMSGSIZE;
	if (spec->index_slots &&
	    nla_put_u64(msg, KVBLK_A_POOL_INDEX_SLOTS, spec->index_slots))
		return -EMSGSIZE;
	if ((spec->pod && nla_put_string(msg, KVBLK_A_POOL_POD, spec->pod)) ||
	    (spec->pod_of && nla_put_string(msg, KVBLK_A_POOL_POD_OF, spec->pod_of)) ||
	    (spec->preempt && nla_put(msg, KVBLK_A_POOL_PREEMPT, 16, spec->preempt)))
		return -EMSGSIZE;
	return put_members(msg, spec);
}

static int assemble(struct kvblk_admin *admin, int command,
		    const struct kvblk_pool_spec *callers)
{
	struct nl_msg *msg = kvblk_request_new(admin, command, NLM_F_ACK);
	struct kvblk_pool_spec spec;
	int err;

	if (!msg)
		return -ENOMEM;
	err = kvblk_read_sized(&spec, sizeof(spec), callers);
	if (!err)
		err = put_pool_spec(msg, &spec);
	return kvblk_request_run(admin, msg, err);
}

int kvblk_pool_create(struct kvblk_admin *admin,
		      const struct kvblk_pool_spec *spec)
{
	return assemble(admin, KVBLK_CMD_POOL_CREATE, spec);
}

int kvblk_pool_import(struct kvblk_admin *admin,
		      const struct kvblk_pool_spec *spec)
{
	return assemble(admin, KVBLK_CMD_POOL_IMPORT, spec);
}

int kvblk_pool_destroy(struct kvblk_admin *admin, const char *name, bool force)
{
	struct nl_msg *msg = kvblk_request_new(admin, KVBLK_CMD_POOL_DESTROY, NLM_F_ACK);
	int err = 0;

	if (!msg)
		return -ENOMEM;
	if (nla_put_string(msg, KVBLK_A_POOL_NAME, name) ||
	    (force && nla_put_flag(msg, KVBLK_A_POOL_FORCE)))
		err = -EMSGSIZE;
	return kvblk_request_run(admin, msg, err);
}

int kvblk_pool_clear(struct kvblk_admin *admin, const char *name)
{
	struct nl_msg *msg = kvblk_request_new(admin, KVBLK_CMD_POOL_CLEAR, NLM_F_ACK);

	if (!msg)
		return -ENOMEM;
	if (nla_put_string(msg, KVBLK_A_POOL_NAME, name)) {
		nlmsg_free(msg);
		return -EMSGSIZE;
	}
	return run_request(admin, msg);
}

static int member_request(struct kvblk_admin *admin, int command,
			  const char *pool,
			  const struct kvblk_member_spec *callers,
			  uint32_t add_flags)
{
	struct nl_msg *msg = kvblk_request_new(admin, command, NLM_F_ACK);
	struct kvblk_member_spec spec;
	int err;

	if (!msg)
		return -ENOMEM;
	err = kvblk_read_sized(&spec, sizeof(spec), callers);
	if (!err && (nla_put_string(msg, KVBLK_A_MEMBER_POOL, pool) ||
		     put_flags(msg, KVBLK_A_MEMBER_ADD_FLAGS, add_flags)))
		err = -EMSGSIZE;
	if (!err)
		err = put_member_spec(msg, &spec);
	return kvblk_request_run(admin, msg, err);
}

int kvblk_member_add(struct kvblk_admin *admin, const char *pool,
		     const struct kvblk_member_spec *spec, uint32_t add_flags)
{
	return member_request(admin, KVBLK_CMD_MEMBER_ADD, pool, spec,
			      add_flags);
}

int kvblk_member_follow(struct kvblk_admin *admin, const char *pool,
			const struct kvblk_member_spec *spec)
{
	return member_request(admin, KVBLK_CMD_MEMBER_FOLLOW, pool, spec, 0);
}

int kvblk_member_remove(struct kvblk_admin *admin, const char *pool,
			const struct kvblk_member_spec *callers)
{
	struct nl_msg *msg = kvblk_request_new(admin, KVBLK_CMD_MEMBER_REMOVE, NLM_F_ACK);
	struct kvblk_member_spec spec;
	int err;

	if (!msg)
		return -ENOMEM;
	err = kvblk_read_sized(&spec, sizeof(spec), callers);
	if (!err && !spec.name == !spec.uuid)
		err = -EINVAL;
	if (!err && (nla_put_string(msg, KVBLK_A_MEMBER_POOL, pool) ||
		     (spec.uuid ? nla_put(msg, KVBLK_A_MEMBER_UUID, 16, spec.uuid) :
				  nla_put_string(msg, KVBLK_A_MEMBER_NAME, spec.name))))
		err = -EMSGSIZE;
	return kvblk_request_run(admin, msg, err);
}

/* Lists. The first member of each state is its link, so all lists share one type. */
struct link {
	struct link *next;
};

struct replies {
	struct link *first;
	struct link **last;
};

void *kvblk_reply_add(struct replies *replies, size_t size)
{
	struct link *state = calloc(1, size);

	if (state) {
		*replies->last = state;
		replies->last = &state->next;
	}
	return state;
}

void kvblk_list_free(void *list)
{
	struct link *state = list, *next;

	for (; state; state = next) {
		next = state->next;
		free(state);
	}
}

static int put_names(struct nl_msg *msg, const struct question *question)
{
	for (size_t i = 0; i < 2; i++) {
		if (question->names[i].name &&
		    nla_put_string(msg, question->names[i].attr,
				   question->names[i].name))
			return -EMSGSIZE;
	}
	return question->scope && nla_put_u32(msg, KVBLK_A_STATS_SCOPE,
					      question->scope) ? -EMSGSIZE : 0;
}

void *kvblk_list_get(struct kvblk_admin *admin, const struct question *question, int *err)
{
	const int flags = question->dump ? NLM_F_DUMP : NLM_F_ACK;
	struct replies replies;
	struct nl_msg *msg;
	int tries = 10;

	do {
		replies = (struct replies){ .last = &replies.first };
		msg = kvblk_request_new(admin, question->command, flags);
		if (!msg) {
			*err = -ENOMEM;
			return NULL;
		}
		*err = put_names(msg, question);
		if (*err) {
			nlmsg_free(msg);
			return NULL;
		}
		admin->parse = question->parse;
		admin->replies = &replies;
		*err = run_request(admin, msg);
		admin->parse = NULL;
		if (!*err)
			return replies.first;
		kvblk_list_free(replies.first);
	} while (*err == -EINTR && question->dump && --tries);
	return NULL;
}

void kvblk_nl_u32(uint32_t *to, struct nlattr *attr)
{
	uint64_t value;

	if (kvblk_nl_uint(&value, attr))
		*to = value < UINT32_MAX ? (uint32_t)value : UINT32_MAX;
}

static void get_uuid(uint8_t to[16], struct nlattr *attr)
{
	if (attr && nla_len(attr) >= 16)
		memcpy(to, nla_data(attr), 16);
}

static int parse_pool(struct nlmsghdr *hdr, void *arg)
{
	struct nlattr *tb[KVBLK_A_POOL_MAX + 1];
	struct kvblk_pool_state *pool;

	if (genlmsg_parse(hdr, 0, tb, KVBLK_A_POOL_MAX, NULL))
		return -EBADMSG;
	pool = kvblk_reply_add(arg, sizeof(*pool));
	if (!pool)
		return -ENOMEM;
	kvblk_nl_string(pool->name, sizeof(pool->name), tb[KVBLK_A_POOL_NAME]);
	get_uuid(pool->uuid, tb[KVBLK_A_POOL_UUID]);
	kvblk_nl_u32(&pool->flags, tb[KVBLK_A_POOL_FLAGS]);
	kvblk_nl_u32(&pool->nr_members, tb[KVBLK_A_POOL_NR_MEMBERS]);
	kvblk_nl_uint(&pool->birth, tb[KVBLK_A_POOL_BIRTH]);
	kvblk_nl_uint(&pool->epoch, tb[KVBLK_A_POOL_EPOCH]);
	kvblk_nl_uint(&pool->capacity, tb[KVBLK_A_POOL_CAPACITY]);
	pool->has_use = kvblk_nl_uint(&pool->free, tb[KVBLK_A_POOL_FREE]);
	kvblk_nl_u32(&pool->nr_segments, tb[KVBLK_A_POOL_NR_SEGMENTS]);
	kvblk_nl_u32(&pool->free_segments, tb[KVBLK_A_POOL_FREE_SEGMENTS]);
	kvblk_nl_uint(&pool->index_slots, tb[KVBLK_A_POOL_INDEX_SLOTS]);
	kvblk_nl_uint(&pool->index_used, tb[KVBLK_A_POOL_INDEX_USED]);
	kvblk_nl_uint(&pool->index_evicted, tb[KVBLK_A_POOL_INDEX_EVICTED]);
	kvblk_nl_uint(&pool->index_bytes, tb[KVBLK_A_POOL_INDEX_BYTES]);
	kvblk_nl_uint(&pool->index_lacks, tb[KVBLK_A_POOL_INDEX_LACKS]);
	kvblk_nl_uint(&pool->leased_bytes, tb[KVBLK_A_POOL_LEASED_BYTES]);
	kvblk_nl_u32(&pool->value_max, tb[KVBLK_A_POOL_VALUE_MAX]);
	kvblk_nl_string(pool->devnode, sizeof(pool->devnode),
			tb[KVBLK_A_POOL_DEVNODE]);
	kvblk_nl_uint(&pool->checksum_failures, tb[KVBLK_A_POOL_CHECKSUM_FAILURES]);
	kvblk_nl_uint(&pool->read_errors, tb[KVBLK_A_POOL_READ_ERRORS]);
	kvblk_nl_uint(&pool->write_errors, tb[KVBLK_A_POOL_WRITE_ERRORS]);
	kvblk_nl_uint(&pool->put_nospace, tb[KVBLK_A_POOL_PUT_NOSPACE]);
	kvblk_nl_uint(&pool->cleared, tb[KVBLK_A_POOL_CLEARED]);
	kvblk_nl_u32(&pool->unsure, tb[KVBLK_A_POOL_UNSURE]);
	kvblk_nl_string(pool->pod, sizeof(pool->pod), tb[KVBLK_A_POOL_POD]);
	get_uuid(pool->pod_uuid, tb[KVBLK_A_POOL_POD_UUID]);
	return 0;
}

int kvblk_pool_list(struct kvblk_admin *admin, const char *name,
		    struct kvblk_pool_state **list)
{
	const struct question question = {
		.command = KVBLK_CMD_POOL_GET,
		.dump = !name,
		.names = { { KVBLK_A_POOL_NAME, name } },
		.parse = parse_pool,
	};
	int err;

	*list = kvblk_list_get(admin, &question, &err);
	return err;
}

static int parse_member(struct nlmsghdr *hdr, void *arg)
{
	struct nlattr *tb[KVBLK_A_MEMBER_MAX + 1];
	struct kvblk_member_state *member;
	uint32_t suspect = 0, failing = 0, formatted = 0;

	if (genlmsg_parse(hdr, 0, tb, KVBLK_A_MEMBER_MAX, NULL))
		return -EBADMSG;
	member = kvblk_reply_add(arg, sizeof(*member));
	if (!member)
		return -ENOMEM;
	kvblk_nl_string(member->pool, sizeof(member->pool),
			tb[KVBLK_A_MEMBER_POOL]);
	kvblk_nl_string(member->name, sizeof(member->name),
			tb[KVBLK_A_MEMBER_NAME]);
	kvblk_nl_string(member->path, sizeof(member->path),
			tb[KVBLK_A_MEMBER_PATH]);
	get_uuid(member->uuid, tb[KVBLK_A_MEMBER_UUID]);
	kvblk_nl_u32(&member->slot, tb[KVBLK_A_MEMBER_SLOT]);
	kvblk_nl_u32(&member->state, tb[KVBLK_A_MEMBER_STATE]);
	kvblk_nl_u32(&suspect, tb[KVBLK_A_MEMBER_SUSPECT]);
	member->suspect = suspect != 0;
	kvblk_nl_u32(&failing, tb[KVBLK_A_MEMBER_FAILING]);
	member->failing = failing != 0;
	member->read_only = failing >= 2;
	member->fenced = failing == 3;
	kvblk_nl_uint(&member->size, tb[KVBLK_A_MEMBER_SIZE]);
	kvblk_nl_u32(&member->segment_size, tb[KVBLK_A_MEMBER_SEGMENT_SIZE]);
	kvblk_nl_u32(&member->nr_segments, tb[KVBLK_A_MEMBER_NR_SEGMENTS]);
	member->has_use = tb[KVBLK_A_MEMBER_FREE_SEGMENTS];
	kvblk_nl_u32(&member->free_segments, tb[KVBLK_A_MEMBER_FREE_SEGMENTS]);
	kvblk_nl_u32(&member->ready_segments, tb[KVBLK_A_MEMBER_READY_SEGMENTS]);
	kvblk_nl_u32(&member->open_segments, tb[KVBLK_A_MEMBER_OPEN_SEGMENTS]);
	kvblk_nl_u32(&member->sealed_segments, tb[KVBLK_A_MEMBER_SEALED_SEGMENTS]);
	kvblk_nl_u32(&member->record_align, tb[KVBLK_A_MEMBER_RECORD_ALIGN]);
	kvblk_nl_u32(&member->inflight, tb[KVBLK_A_MEMBER_INFLIGHT]);
	kvblk_nl_uint(&member->incarnation, tb[KVBLK_A_MEMBER_INCARNATION]);
	kvblk_nl_uint(&member->restored, tb[KVBLK_A_MEMBER_RESTORED]);
	kvblk_nl_u32(&formatted, tb[KVBLK_A_MEMBER_FORMATTED]);
	member->formatted = formatted != 0;
	kvblk_nl_string(member->place, sizeof(member->place), tb[KVBLK_A_MEMBER_PLACE]);
	kvblk_nl_string(member->device, sizeof(member->device), tb[KVBLK_A_MEMBER_DEVICE]);
	kvblk_nl_u32(&member->unread_segments, tb[KVBLK_A_MEMBER_UNREAD_SEGMENTS]);
	kvblk_nl_string(member->owner, sizeof(member->owner), tb[KVBLK_A_MEMBER_OWNER]);
	get_uuid(member->owner_node, tb[KVBLK_A_MEMBER_OWNER_NODE]);
	member->has_use |= kvblk_nl_uint(&member->blocks, tb[KVBLK_A_MEMBER_BLOCKS]);
	kvblk_nl_uint(&member->lacks, tb[KVBLK_A_MEMBER_LACKS]);
	kvblk_nl_uint(&member->gets, tb[KVBLK_A_MEMBER_GETS]);
	kvblk_nl_uint(&member->get_bytes, tb[KVBLK_A_MEMBER_GET_BYTES]);
	kvblk_nl_uint(&member->get_misses, tb[KVBLK_A_MEMBER_GET_MISSES]);
	member->hinted = tb[KVBLK_A_MEMBER_HINTED];
	kvblk_nl_string(member->conflict, sizeof(member->conflict), tb[KVBLK_A_MEMBER_CONFLICT]);
	return 0;
}

/* Drop duplicates: a member that returns during the dump appears as missing and as present. */
static void drop_twins(struct kvblk_member_state **list)
{
	struct kvblk_member_state **at, *one, *later;

	for (at = list; (one = *at);) {
		for (later = one->next; later; later = later->next)
			if (!strcmp(later->pool, one->pool) && !strcmp(later->name, one->name))
				break;
		/* missing members are listed last, and may have returned since */
		if (later && later->state == KVBLK_MEMBER_STATUS_MISSING) {
			while (one->next != later)
				one = one->next;
			one->next = later->next;
			free(later);
		} else if (later) {
			*at = one->next;
			free(one);
		} else {
			at = &one->next;
		}
	}
}

int kvblk_member_list(struct kvblk_admin *admin, const char *pool,
		      struct kvblk_member_state **list)
{
	const struct question question = {
		.command = KVBLK_CMD_MEMBER_GET,
		.dump = true,
		.names = { { KVBLK_A_MEMBER_POOL, pool } },
		.parse = parse_member,
	};
	int err;

	*list = kvblk_list_get(admin, &question, &err);
	drop_twins(list);
	return err;
}

int kvblk_foreign_list(struct kvblk_admin *admin, const char *pool,
		       struct kvblk_member_state **list)
{
	const struct question question = {
		.command = KVBLK_CMD_FOREIGN_GET,
		.dump = true,
		.names = { { KVBLK_A_MEMBER_POOL, pool } },
		.parse = parse_member,
	};
	int err;

	*list = kvblk_list_get(admin, &question, &err);
	return err;
}

#define ID_BYTES	16	/* bytes of a block's id */

static int parse_touched(struct nlmsghdr *hdr, void *arg)
{
	struct nlattr *tb[KVBLK_A_TOUCH_MAX + 1], *ids;
	struct kvblk_touched *touched;
	uint8_t *copy;
	size_t len;

	if (genlmsg_parse(hdr, 0, tb, KVBLK_A_TOUCH_MAX, NULL))
		return -EBADMSG;
	ids = tb[KVBLK_A_TOUCH_IDS];
	len = ids ? (size_t)nla_len(ids) / ID_BYTES * ID_BYTES : 0;
	touched = kvblk_reply_add(arg, sizeof(*touched) + len);
	if (!touched)
		return -ENOMEM;
	kvblk_nl_string(touched->pool, sizeof(touched->pool), tb[KVBLK_A_TOUCH_POOL]);
	get_uuid(touched->owner_pool, tb[KVBLK_A_TOUCH_OWNER_POOL]);
	get_uuid(touched->owner_node, tb[KVBLK_A_TOUCH_OWNER_NODE]);
	touched->nr = (uint32_t)(len / ID_BYTES);
	copy = (uint8_t *)(touched + 1);
	if (len)
		memcpy(copy, nla_data(ids), len);
	touched->ids = copy;
	return 0;
}

int kvblk_touched_list(struct kvblk_admin *admin, const char *pool,
		       struct kvblk_touched **list)
{
	const struct question question = {
		.command = KVBLK_CMD_TOUCHED_GET,
		.dump = true,
		.names = { { KVBLK_A_TOUCH_POOL, pool } },
		.parse = parse_touched,
	};
	int err;

	*list = kvblk_list_get(admin, &question, &err);
	return err;
}

/* Run a request about @nr blocks of a pool. */
static int ids_request(struct kvblk_admin *admin, int command, const char *pool, const void *ids,
		       size_t nr)
{
	struct nl_msg *msg;

	if (!nr || nr > KVBLK_TOUCH_LEN_MAX / ID_BYTES)
		return -EINVAL;
	msg = kvblk_request_new(admin, command, NLM_F_ACK);
	if (!msg)
		return -ENOMEM;
	if (nla_put_string(msg, KVBLK_A_TOUCH_POOL, pool) ||
	    nla_put(msg, KVBLK_A_TOUCH_IDS, (int)(nr * ID_BYTES), ids)) {
		nlmsg_free(msg);
		return -EMSGSIZE;
	}
	return run_request(admin, msg);
}

int kvblk_touch(struct kvblk_admin *admin, const char *pool, const void *ids, size_t nr)
{
	return ids_request(admin, KVBLK_CMD_TOUCH, pool, ids, nr);
}

/* Results of a delete, in place of a list's replies. */
struct deleted {
	int32_t *results;
	size_t bytes;
	bool came;
};

static int parse_deleted(struct nlmsghdr *hdr, void *arg)
{
	struct nlattr *tb[KVBLK_A_TOUCH_MAX + 1], *results;
	struct deleted *deleted = arg;

	if (genlmsg_parse(hdr, 0, tb, KVBLK_A_TOUCH_MAX, NULL))
		return -EBADMSG;
	results = tb[KVBLK_A_TOUCH_RESULTS];
	if (!results || (size_t)nla_len(results) != deleted->bytes)
		return -EBADMSG;
	memcpy(deleted->results, nla_data(results), deleted->bytes);
	deleted->came = true;
	return 0;
}

int kvblk_pool_delete(struct kvblk_admin *admin, const char *pool, const uint8_t *ids,
		      unsigned int nr, int32_t *results)
{
	struct deleted deleted = { results, nr * sizeof(*results), false };
	int err;

	admin->parse = parse_deleted;
	admin->replies = &deleted;
	err = ids_request(admin, KVBLK_CMD_DELETE, pool, ids, nr);
	admin->parse = NULL;
	return err || deleted.came ? err : -EBADMSG;
}

static int parse_stats(struct nlmsghdr *hdr, void *arg)
{
	struct kvblk_stats *stats = kvblk_reply_add(arg, sizeof(*stats));

	return stats ? kvblk_stats_parse(hdr, stats) : -ENOMEM;
}

/* Drop the earlier of two entries of a member, which is from before it returned. */
static void drop_former(struct kvblk_stats **list)
{
	struct kvblk_stats *one, *later;

	while ((one = *list)) {
		for (later = one->next; later; later = later->next)
			if (!strcmp(later->pool, one->pool) && !strcmp(later->member, one->member))
				break;
		if (!later) {
			list = &one->next;
			continue;
		}
		*list = one->next;
		free(one);
	}
}

int kvblk_stats_list(struct kvblk_admin *admin, enum kvblk_stats_scope scope,
		     const char *pool, struct kvblk_stats **list)
{
	const struct question question = {
		.command = KVBLK_CMD_STATS_GET,
		.dump = !pool || scope,
		.names = { { KVBLK_A_STATS_POOL, pool } },
		.scope = scope,
		.parse = parse_stats,
	};
	int err;

	*list = kvblk_list_get(admin, &question, &err);
	if (scope == KVBLK_STATS_SCOPE_MEMBER)
		drop_former(list);
	return err;
}

static int parse_route(struct nlmsghdr *hdr, void *arg)
{
	struct nlattr *tb[KVBLK_A_ROUTE_MAX + 1];
	struct kvblk_route_state *route;
	uint64_t distance;

	if (genlmsg_parse(hdr, 0, tb, KVBLK_A_ROUTE_MAX, NULL))
		return -EBADMSG;
	route = kvblk_reply_add(arg, sizeof(*route));
	if (!route)
		return -ENOMEM;
	kvblk_nl_string(route->pool, sizeof(route->pool), tb[KVBLK_A_ROUTE_POOL]);
	kvblk_nl_string(route->member, sizeof(route->member),
			tb[KVBLK_A_ROUTE_MEMBER]);
	kvblk_nl_string(route->device, sizeof(route->device),
			tb[KVBLK_A_ROUTE_DEVICE]);
	route->distance = -1;
	if (kvblk_nl_uint(&distance, tb[KVBLK_A_ROUTE_DISTANCE]) &&
	    distance <= INT32_MAX)
		route->distance = (int32_t)distance;
	kvblk_nl_u32(&route->state, tb[KVBLK_A_ROUTE_STATE]);
	kvblk_nl_string(route->why, sizeof(route->why), tb[KVBLK_A_ROUTE_WHY]);
	return 0;
}

int kvblk_route_list(struct kvblk_admin *admin, const char *pool,
		     const char *member, struct kvblk_route_state **list)
{
	const struct question question = {
		.command = KVBLK_CMD_ROUTE_GET,
		.dump = true,
		.names = {
			{ KVBLK_A_ROUTE_POOL, pool },
			{ KVBLK_A_ROUTE_MEMBER, member },
		},
		.parse = parse_route,
	};
	int err;

	*list = kvblk_list_get(admin, &question, &err);
	return err;
}
