// SPDX-License-Identifier: GPL-2.0
/*
 * guest_netlink_input POOL MEMBER SPARE [TEST...]: bad input of the netlink family.
 *
 * POOL: up and idle. MEMBER: the name of its only member, which may be dead in the test "routes".
 * SPARE: the path of a blank device of 100 MiB or more. Each request is rejected with the errno
 * that uapi/netlink/kvblk.yaml documents and with a message. All pools, members and the content
 * of SPARE stay unchanged.
 *
 * Environment, if POOL is in the pod "here", for the test "follow":
 *   KV_FOLLOWED     path of a device that POOL follows
 *   KV_OTHER_POD    path of a member in another pod
 */
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/genetlink.h>
#include <linux/keyctl.h>
#include <linux/netlink.h>
#include <sched.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/kvblk_netlink.h>

#include "kv_test.h"

#define POOL_STRICT_MASK	1u
#define ADD_MASK		3u
#define MEMBERS_MAX		64

static const char *pool, *member, *spare;
/* NULL if the pool is in no pod */
static const char *followed, *other_pod;
static int sock = -1;
static size_t recv_size = 1 << 15;
static uint16_t family;
static unsigned int nr_refused;

struct req {
	union {
		struct nlmsghdr hdr;
		char buf[65536];
	};
};

struct answer {
	int err;		/* errno, 0: accepted */
	char text[256];		/* message of an error */
	char reply[65536];	/* attributes of all messages */
	size_t len;
	unsigned int messages;
	unsigned int parts;	/* datagrams received */
};

static int open_socket(void)
{
	struct timeval patience = { .tv_sec = 60 };
	int one = 1, fd;

	fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_GENERIC);
	if (fd < 0 ||
	    setsockopt(fd, SOL_NETLINK, NETLINK_EXT_ACK, &one, sizeof(one)) ||
	    setsockopt(fd, SOL_NETLINK, NETLINK_CAP_ACK, &one, sizeof(one)) ||
	    setsockopt(fd, SOL_NETLINK, NETLINK_GET_STRICT_CHK, &one,
		       sizeof(one)) ||
	    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience,
		       sizeof(patience))) {
		perror("netlink socket");
		exit(KSFT_FAIL);
	}
	return fd;
}

static void begin(struct req *req, int cmd, int flags)
{
	struct genlmsghdr *genl = NLMSG_DATA(&req->hdr);

	memset(req, 0, NLMSG_LENGTH(GENL_HDRLEN));
	req->hdr.nlmsg_len = NLMSG_LENGTH(GENL_HDRLEN);
	req->hdr.nlmsg_type = family;
	req->hdr.nlmsg_flags = NLM_F_REQUEST | flags;
	genl->cmd = cmd;
	genl->version = KVBLK_FAMILY_VERSION;
}

/* Append an attribute; the caller ensures the space. */
static struct nlattr *put(struct req *req, int type, const void *data,
			  size_t len)
{
	struct nlattr *attr = (void *)(req->buf + NLMSG_ALIGN(req->hdr.nlmsg_len));

	memset(attr, 0, NLA_HDRLEN + NLA_ALIGN(len));
	attr->nla_type = type;
	attr->nla_len = NLA_HDRLEN + len;
	if (len)
		memcpy((char *)attr + NLA_HDRLEN, data, len);
	req->hdr.nlmsg_len = (char *)attr - req->buf + NLA_HDRLEN + NLA_ALIGN(len);
	return attr;
}

static void put_str(struct req *req, int type, const char *value)
{
	put(req, type, value, strlen(value) + 1);
}

static void put_u32(struct req *req, int type, uint32_t value)
{
	put(req, type, &value, sizeof(value));
}

static void put_u64(struct req *req, int type, uint64_t value)
{
	put(req, type, &value, sizeof(value));
}

static struct nlattr *nest(struct req *req, int type)
{
	return put(req, type | NLA_F_NESTED, NULL, 0);
}

static void nest_end(struct req *req, struct nlattr *attr)
{
	attr->nla_len = req->buf + req->hdr.nlmsg_len - (char *)attr;
}

/* Begin a request with the name of a pool or member. */
static void begin_on(struct req *req, int cmd, int flags, int attr, const char *name)
{
	begin(req, cmd, flags);
	put_str(req, attr, name);
}

static void put_member(struct req *req, const char *path, uint32_t segment_size)
{
	struct nlattr *attr = nest(req, KVBLK_A_POOL_MEMBER);

	if (path)
		put_str(req, KVBLK_A_MEMBER_PATH, path);
	put_u32(req, KVBLK_A_MEMBER_SEGMENT_SIZE, segment_size);
	nest_end(req, attr);
}

static const struct nlattr *find(const void *attrs, size_t len, int type)
{
	const struct nlattr *attr = attrs;

	while (len >= NLA_HDRLEN && attr->nla_len >= NLA_HDRLEN &&
	       attr->nla_len <= len) {
		size_t step = NLA_ALIGN(attr->nla_len);

		if ((attr->nla_type & NLA_TYPE_MASK) == type)
			return attr;
		if (step >= len)
			break;
		len -= step;
		attr = (const void *)((const char *)attr + step);
	}
	return NULL;
}

static void take_error(struct answer *answer, const struct nlmsghdr *hdr)
{
	const struct nlmsgerr *e = NLMSG_DATA(hdr);
	const char *tlvs = (const char *)NLMSG_DATA(hdr);
	const struct nlattr *text;

	answer->err = -e->error;
	if (!(hdr->nlmsg_flags & NLM_F_ACK_TLVS))
		return;
	/* an error repeats the request's header, the end of a dump has the errno only */
	tlvs += hdr->nlmsg_type == NLMSG_ERROR ? sizeof(*e) : NLMSG_ALIGN(sizeof(int));
	text = find(tlvs, (const char *)hdr + hdr->nlmsg_len - tlvs,
		    NLMSGERR_ATTR_MSG);
	if (text)
		snprintf(answer->text, sizeof(answer->text), "%s",
			 (const char *)text + NLA_HDRLEN);
}

static void take_reply(struct answer *answer, const struct nlmsghdr *hdr)
{
	size_t skip = NLMSG_LENGTH(GENL_HDRLEN), len = hdr->nlmsg_len - skip;

	if (answer->len + len > sizeof(answer->reply)) {
		printf("# too long a reply\n");
		exit(KSFT_FAIL);
	}
	memcpy(answer->reply + answer->len, (const char *)hdr + skip, len);
	answer->len += len;
	answer->messages++;
}

static void talk_through(int fd, struct req *req, struct answer *answer)
{
	static uint32_t seq;
	static char buf[1 << 15] __attribute__((aligned(8)));
	const struct nlmsghdr *hdr;
	ssize_t len;

	memset(answer, 0, sizeof(*answer));
	req->hdr.nlmsg_flags |= NLM_F_ACK;
	req->hdr.nlmsg_seq = ++seq;
	if (send(fd, req->buf, req->hdr.nlmsg_len, 0) < 0) {
		answer->err = errno;
		return;
	}
	for (;;) {
		len = recv(fd, buf, recv_size, MSG_TRUNC);
		if (len < 0 || (size_t)len > recv_size) {
			printf("# no answer: %s\n", strerror(errno));
			exit(KSFT_FAIL);
		}
		answer->parts++;
		for (hdr = (void *)buf; NLMSG_OK(hdr, len);
		     hdr = NLMSG_NEXT(hdr, len)) {
			if (hdr->nlmsg_seq != seq)
				continue;
			if (hdr->nlmsg_type == NLMSG_ERROR ||
			    hdr->nlmsg_type == NLMSG_DONE) {
				take_error(answer, hdr);
				return;
			}
			take_reply(answer, hdr);
		}
	}
}

static void talk(struct req *req, struct answer *answer)
{
	talk_through(sock, req, answer);
}

static uint16_t find_family(int fd)
{
	static struct req req;
	static struct answer answer;
	const struct nlattr *id;

	begin(&req, CTRL_CMD_GETFAMILY, 0);
	req.hdr.nlmsg_type = GENL_ID_CTRL;
	put_str(&req, CTRL_ATTR_FAMILY_NAME, KVBLK_FAMILY_NAME);
	talk_through(fd, &req, &answer);
	id = answer.err ? NULL : find(answer.reply, answer.len, CTRL_ATTR_FAMILY_ID);
	return id ? *(const uint16_t *)((const char *)id + NLA_HDRLEN) : 0;
}

#define SPARE_BYTES	(1 << 20)

struct picture {
	struct answer pools;
	struct answer members;
	struct answer foreign;
	struct answer tenants;
	char spare[SPARE_BYTES];
};

/* Clear all attributes of @type, a number that may change at any time. */
static void forget(struct answer *answer, int type)
{
	char *p = answer->reply;

	while (p < answer->reply + answer->len) {
		struct nlattr *attr = (struct nlattr *)p;

		if (attr->nla_type == type)
			memset(p + NLA_HDRLEN, 0, attr->nla_len - NLA_HDRLEN);
		p += NLA_ALIGN(attr->nla_len);
	}
}

/* Clear the in-flight counts, because I/O of checkpoints changes them. */
static void forget_inflight(struct answer *answer)
{
	forget(answer, KVBLK_A_MEMBER_INFLIGHT);
}

static void take_picture(struct picture *picture)
{
	static char buf[SPARE_BYTES] __attribute__((aligned(4096)));
	static struct req req;
	ssize_t len;
	int fd;

	begin(&req, KVBLK_CMD_POOL_GET, NLM_F_DUMP);
	talk(&req, &picture->pools);
	begin(&req, KVBLK_CMD_MEMBER_GET, NLM_F_DUMP);
	talk(&req, &picture->members);
	begin(&req, KVBLK_CMD_FOREIGN_GET, NLM_F_DUMP);
	talk(&req, &picture->foreign);
	begin(&req, KVBLK_CMD_TENANT_GET, NLM_F_DUMP);
	talk(&req, &picture->tenants);
	ASSERT_EQ(picture->pools.err, 0, "dump of pools");
	ASSERT_EQ(picture->members.err, 0, "dump of members");
	ASSERT_EQ(picture->foreign.err, 0, "dump of foreign members");
	ASSERT_EQ(picture->tenants.err, 0, "dump of tenants");
	forget_inflight(&picture->members);
	forget_inflight(&picture->foreign);
	/* udev may open a node at any time */
	forget(&picture->tenants, KVBLK_A_TENANT_OPENERS);

	fd = open(spare, O_RDONLY | O_DIRECT);
	ASSERT(fd >= 0, "%s: %s", spare, strerror(errno));
	len = read(fd, buf, sizeof(buf));
	close(fd);
	ASSERT_EQ(len, sizeof(buf), "%s", spare);
	memcpy(picture->spare, buf, sizeof(buf));
}

static bool same(const struct answer *a, const struct answer *b)
{
	return a->len == b->len && !memcmp(a->reply, b->reply, a->len);
}

static bool same_picture(const struct picture *a, const struct picture *b)
{
	return same(&a->pools, &b->pools) && same(&a->members, &b->members) &&
	       same(&a->foreign, &b->foreign) && same(&a->tenants, &b->tenants) &&
	       !memcmp(a->spare, b->spare, sizeof(a->spare));
}

static struct picture before, after;

/* Wait until two pictures are equal: a new pool opens segments for a while. */
static void settle(void)
{
	for (int i = 0; i < 100; i++) {
		take_picture(&before);
		usleep(1000000);
		take_picture(&after);
		if (same_picture(&before, &after))
			return;
	}
	ASSERT(false, "the pool does not come to rest");
}

/* Check that @req is rejected with @err and changes nothing. */
static void __attribute__((format(printf, 3, 4)))
refused(struct req *req, int err, const char *format, ...)
{
	static struct answer answer;
	char what[200];
	va_list args;

	va_start(args, format);
	vsnprintf(what, sizeof(what), format, args);
	va_end(args);
	/*
	 * a request that takes over 5 s gets EINPROGRESS and continues: repeat until it is
	 * rejected
	 */
	for (int i = 0; i < 20; i++) {
		talk(req, &answer);
		if (answer.err != EINPROGRESS)
			break;
	}
	EXPECT_EQ(answer.err, err, "%s (%s)", what, answer.text);
	EXPECT(answer.text[0], "%s: no sentence", what);
	EXPECT_EQ(answer.messages, 0, "%s: replies", what);
	take_picture(&after);
	EXPECT(same(&before.pools, &after.pools), "%s: pools changed", what);
	EXPECT(same(&before.members, &after.members), "%s: members changed",
	       what);
	EXPECT(same(&before.foreign, &after.foreign), "%s: foreign members changed",
	       what);
	EXPECT(same(&before.tenants, &after.tenants), "%s: tenants changed", what);
	EXPECT(!memcmp(before.spare, after.spare, sizeof(before.spare)),
	       "%s: %s was written", what, spare);
	nr_refused++;
}

/* Begin a pool-create request that is valid once the caller adds a member. */
static void create(struct req *req, const char *name)
{
	begin(req, KVBLK_CMD_POOL_CREATE, 0);
	if (name)
		put_str(req, KVBLK_A_POOL_NAME, name);
}

static void add(struct req *req, const char *name, const char *path)
{
	begin(req, KVBLK_CMD_MEMBER_ADD, 0);
	if (name)
		put_str(req, KVBLK_A_MEMBER_POOL, name);
	if (path)
		put_str(req, KVBLK_A_MEMBER_PATH, path);
}

static void follow(struct req *req, const char *path, const char *name)
{
	begin_on(req, KVBLK_CMD_MEMBER_FOLLOW, 0, KVBLK_A_MEMBER_POOL, pool);
	if (path)
		put_str(req, KVBLK_A_MEMBER_PATH, path);
	if (name)
		put_str(req, KVBLK_A_MEMBER_NAME, name);
}

static char *repeat(char c, size_t n)
{
	static char text[8192];

	memset(text, c, n);
	text[n] = '\0';
	return text;
}

TEST(pool_names)
{
	static const char *const bad[] = {
		"", ".", "..", ".hidden", "-dash", "_line", "a/b", "/", "a b",
		"a\n", "a\tb", "a%s", "\xc3\xa4", "a\x7f", "a:b", "a*",
	};
	static struct req req;

	settle();
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		create(&req, bad[i]);
		put_member(&req, spare, 8 << 20);
		refused(&req, EINVAL, "create \"%s\"", bad[i]);
	}
	for (size_t n = 32; n < 8000; n *= 3) {
		create(&req, repeat('n', n));
		put_member(&req, spare, 8 << 20);
		refused(&req, EINVAL, "create, name of %zu characters", n);
	}
	create(&req, NULL);
	put_member(&req, spare, 8 << 20);
	refused(&req, EINVAL, "create without a name");
	begin(&req, KVBLK_CMD_POOL_CREATE, 0);
	put(&req, KVBLK_A_POOL_NAME, "newpool", 7);
	put_member(&req, spare, 8 << 20);
	refused(&req, EINVAL, "create, name without its NUL");
	create(&req, pool);
	put_member(&req, spare, 8 << 20);
	refused(&req, EEXIST, "create a pool that is there");
}

/* Requests that name a pool: the attribute, and whether it is a dump. */
static const struct {
	int cmd;
	int attr;
	int flags;
	const char *what;
} on_pools[] = {
	{ KVBLK_CMD_POOL_DESTROY, KVBLK_A_POOL_NAME, 0, "destroy" },
	{ KVBLK_CMD_POOL_GET, KVBLK_A_POOL_NAME, 0, "pool-get" },
	{ KVBLK_CMD_POOL_CLEAR, KVBLK_A_POOL_NAME, 0, "clear" },
	{ KVBLK_CMD_MEMBER_ADD, KVBLK_A_MEMBER_POOL, 0, "add" },
	{ KVBLK_CMD_MEMBER_REMOVE, KVBLK_A_MEMBER_POOL, 0, "remove" },
	{ KVBLK_CMD_MEMBER_GET, KVBLK_A_MEMBER_POOL, 0, "member-get" },
	{ KVBLK_CMD_MEMBER_GET, KVBLK_A_MEMBER_POOL, NLM_F_DUMP, "member dump" },
	{ KVBLK_CMD_STATS_GET, KVBLK_A_STATS_POOL, 0, "stats-get" },
	{ KVBLK_CMD_STATS_GET, KVBLK_A_STATS_POOL, NLM_F_DUMP, "stats dump" },
	{ KVBLK_CMD_ROUTE_GET, KVBLK_A_ROUTE_POOL, NLM_F_DUMP, "route dump" },
	{ KVBLK_CMD_MEMBER_FOLLOW, KVBLK_A_MEMBER_POOL, 0, "follow" },
	{ KVBLK_CMD_FOREIGN_GET, KVBLK_A_MEMBER_POOL, NLM_F_DUMP, "foreign dump" },
	{ KVBLK_CMD_TOUCH, KVBLK_A_TOUCH_POOL, 0, "touch" },
	{ KVBLK_CMD_DELETE, KVBLK_A_TOUCH_POOL, 0, "delete" },
	{ KVBLK_CMD_TOUCHED_GET, KVBLK_A_TOUCH_POOL, NLM_F_DUMP, "dump of touched blocks" },
	{ KVBLK_CMD_TENANT_CREATE, KVBLK_A_TENANT_POOL, 0, "create a tenant" },
	{ KVBLK_CMD_TENANT_REMOVE, KVBLK_A_TENANT_POOL, 0, "remove a tenant" },
	{ KVBLK_CMD_TENANT_CLEAR, KVBLK_A_TENANT_POOL, 0, "clear a tenant" },
	{ KVBLK_CMD_TENANT_SET, KVBLK_A_TENANT_POOL, 0, "set a tenant" },
	{ KVBLK_CMD_TENANT_KEY, KVBLK_A_TENANT_POOL, 0, "give a tenant's key" },
	{ KVBLK_CMD_TENANT_GET, KVBLK_A_TENANT_POOL, NLM_F_DUMP, "dump of tenants" },
};

/* Add a key of @bytes to the process keyring. Returns its serial number. */
static int32_t new_key(size_t bytes)
{
	long serial = syscall(SYS_add_key, "user", "kvblk:test", repeat('k', bytes), bytes,
			      KEY_SPEC_PROCESS_KEYRING);

	ASSERT(serial > 0, "no key of %zu bytes: %s", bytes, strerror(errno));
	return (int32_t)serial;
}

/* Append all attributes that such a request needs, except for the pool's name. */
static void put_rest(struct req *req, int cmd, int flags)
{
	if (cmd == KVBLK_CMD_MEMBER_ADD || cmd == KVBLK_CMD_MEMBER_FOLLOW)
		put_str(req, KVBLK_A_MEMBER_PATH, spare);
	else if (cmd == KVBLK_CMD_MEMBER_REMOVE ||
		 (cmd == KVBLK_CMD_MEMBER_GET && !flags))
		put_str(req, KVBLK_A_MEMBER_NAME, member);
	else if (cmd == KVBLK_CMD_ROUTE_GET)
		put_str(req, KVBLK_A_ROUTE_MEMBER, member);
	else if (cmd == KVBLK_CMD_TOUCH || cmd == KVBLK_CMD_DELETE)
		put(req, KVBLK_A_TOUCH_IDS, "0123456789abcdef", 16);
	else if (cmd == KVBLK_CMD_TENANT_CREATE || cmd == KVBLK_CMD_TENANT_REMOVE ||
		 cmd == KVBLK_CMD_TENANT_CLEAR || cmd == KVBLK_CMD_TENANT_SET)
		put_str(req, KVBLK_A_TENANT_NAME, "newtenant");
	if (cmd == KVBLK_CMD_TENANT_KEY) {
		put_str(req, KVBLK_A_TENANT_NAME, "newtenant");
		put_u32(req, KVBLK_A_TENANT_KEY, (uint32_t)new_key(32));
	}
}

TEST(unknown_pools)
{
	static struct req req;

	settle();
	for (size_t i = 0; i < sizeof(on_pools) / sizeof(*on_pools); i++) {
		int cmd = on_pools[i].cmd, attr = on_pools[i].attr;
		int flags = on_pools[i].flags;
		const char *what = on_pools[i].what;

		begin_on(&req, cmd, flags, attr, "nosuchpool");
		put_rest(&req, cmd, flags);
		refused(&req, ENOENT, "%s, unknown pool", what);

		begin_on(&req, cmd, flags, attr, "");
		put_rest(&req, cmd, flags);
		refused(&req, EINVAL, "%s, empty pool name", what);

		begin_on(&req, cmd, flags, attr, repeat('p', 32));
		put_rest(&req, cmd, flags);
		refused(&req, EINVAL, "%s, too long a pool name", what);

		begin(&req, cmd, flags);
		put(&req, attr, pool, strlen(pool));
		put_rest(&req, cmd, flags);
		refused(&req, EINVAL, "%s, pool name without its NUL", what);

		begin(&req, cmd, flags);
		put(&req, attr, NULL, 0);
		put_rest(&req, cmd, flags);
		refused(&req, EINVAL, "%s, pool name of no bytes", what);

		if (flags)
			continue;
		begin(&req, cmd, flags);
		put_rest(&req, cmd, flags);
		refused(&req, EINVAL, "%s without a pool", what);
	}
}

static bool member_is_dead(void)
{
	static struct answer answer;
	static struct req req;
	const struct nlattr *state;

	begin_on(&req, KVBLK_CMD_MEMBER_GET, 0, KVBLK_A_MEMBER_POOL, pool);
	put_str(&req, KVBLK_A_MEMBER_NAME, member);
	talk(&req, &answer);
	state = find(answer.reply, answer.len, KVBLK_A_MEMBER_STATE);
	ASSERT(state, "%s has no state: %s", member, answer.text);
	return *(const uint32_t *)((const char *)state + NLA_HDRLEN) ==
	       KVBLK_MEMBER_STATUS_DEAD;
}

/* Route dumps must name a member; a dead member has no routes. */
TEST(routes)
{
	static struct answer answer;
	static struct req req;

	settle();
	for (int i = 0; i < 4; i++) {
		static const char *const names[] = { "nosuchmember", "", NULL };

		begin(&req, KVBLK_CMD_ROUTE_GET, NLM_F_DUMP);
		if (i < 3)
			put_str(&req, KVBLK_A_ROUTE_POOL, pool);
		if (i == 3 || names[i])
			put_str(&req, KVBLK_A_ROUTE_MEMBER, i == 3 ? member : names[i]);
		refused(&req, i ? EINVAL : ENOENT, "routes, request %d", i);
	}
	begin_on(&req, KVBLK_CMD_ROUTE_GET, NLM_F_DUMP, KVBLK_A_ROUTE_POOL, pool);
	put_str(&req, KVBLK_A_ROUTE_MEMBER, repeat('m', 32));
	refused(&req, EINVAL, "routes, too long a member's name");
	begin_on(&req, KVBLK_CMD_ROUTE_GET, NLM_F_DUMP, KVBLK_A_ROUTE_POOL, pool);
	put_str(&req, KVBLK_A_ROUTE_MEMBER, member);
	if (member_is_dead()) {
		refused(&req, ENOENT, "routes of a dead member");
		return;
	}
	talk(&req, &answer);
	EXPECT_EQ(answer.err, 0, "routes of %s", member);
}

/* Requests that may name a tenant; only "default" exists. */
TEST(tenants)
{
	static const struct {
		int cmd;
		int pool;
		int tenant;
	} asks[] = {
		{ KVBLK_CMD_POOL_GET, KVBLK_A_POOL_NAME, KVBLK_A_POOL_TENANT },
		{ KVBLK_CMD_STATS_GET, KVBLK_A_STATS_POOL, KVBLK_A_STATS_TENANT },
	};
	static const char *const bad[] = { "other", "", "defaul", "default2", "Default" };
	static struct answer answer;
	static struct req req;

	settle();
	for (size_t i = 0; i < 4; i++) {
		int cmd = asks[i / 2].cmd, attr = asks[i / 2].tenant;
		int flags = i % 2 ? NLM_F_DUMP : 0;

		for (size_t j = 0; j <= sizeof(bad) / sizeof(*bad); j++) {
			const char *tenant = j ? bad[j - 1] : repeat('t', 32);

			begin(&req, cmd, flags);
			if (!flags)
				put_str(&req, asks[i / 2].pool, pool);
			put_str(&req, attr, tenant);
			refused(&req, j ? EOPNOTSUPP : EINVAL,
				"command %d, flags %x, tenant \"%s\"", cmd, flags, tenant);
			talk(&req, &answer);
			EXPECT(!j || strstr(answer.text, tenant), "\"%s\" is not in: %s",
			       tenant, answer.text);
		}
		begin(&req, cmd, flags);
		if (!flags)
			put_str(&req, asks[i / 2].pool, pool);
		put_str(&req, attr, "default");
		talk(&req, &answer);
		EXPECT_EQ(answer.err, 0, "command %d, flags %x, its tenant", cmd, flags);
		EXPECT(answer.messages, "command %d, flags %x: no reply", cmd, flags);
		EXPECT(find(answer.reply, answer.len, attr), "command %d: no tenant", cmd);
	}
}

/* Begin a request about a tenant; @name may be NULL. */
static void about_tenant(struct req *req, int cmd, const char *name)
{
	begin_on(req, cmd, 0, KVBLK_A_TENANT_POOL, pool);
	if (name)
		put_str(req, KVBLK_A_TENANT_NAME, name);
}

TEST(tenant_names)
{
	static const int cmds[] = {
		KVBLK_CMD_TENANT_CREATE, KVBLK_CMD_TENANT_SET, KVBLK_CMD_TENANT_REMOVE,
		KVBLK_CMD_TENANT_CLEAR,
	};
	static const char *const bad[] = {
		"", ".", "..", ".hidden", "-dash", "_line", "a/b", "/", "a b", "a\n", "a%s",
		"\xc3\xa4",
	};
	static const char *const reserved[] = { "default", "nvme-kv", "changes", "peers" };
	static struct req req;

	settle();
	for (size_t i = 0; i < sizeof(cmds) / sizeof(*cmds); i++) {
		int cmd = cmds[i];

		about_tenant(&req, cmd, NULL);
		refused(&req, EINVAL, "no tenant named, command %d", cmd);
		for (size_t j = 0; j < sizeof(bad) / sizeof(*bad); j++) {
			about_tenant(&req, cmd, bad[j]);
			refused(&req, EINVAL, "tenant \"%s\", command %d", bad[j], cmd);
		}
		for (size_t n = 32; n < 8000; n *= 3) {
			about_tenant(&req, cmd, repeat('t', n));
			refused(&req, EINVAL, "tenant of %zu characters, command %d", n, cmd);
		}
		about_tenant(&req, cmd, NULL);
		put(&req, KVBLK_A_TENANT_NAME, "tenant", 6);
		refused(&req, EINVAL, "tenant without its NUL, command %d", cmd);
		about_tenant(&req, cmd, NULL);
		put(&req, KVBLK_A_TENANT_NAME, NULL, 0);
		refused(&req, EINVAL, "tenant of no bytes, command %d", cmd);
		if (cmd == KVBLK_CMD_TENANT_CREATE)
			continue;
		about_tenant(&req, cmd, "nosuchtenant");
		refused(&req, ENOENT, "unknown tenant, command %d", cmd);
		if (cmd == KVBLK_CMD_TENANT_SET)
			continue;
		for (int force = 0; force < 2; force++) {
			for (int i = 0; i < 2; i++) {
				about_tenant(&req, cmd, reserved[i]);
				if (force)
					put(&req, KVBLK_A_TENANT_FORCE, NULL, 0);
				refused(&req, EINVAL, "\"%s\", command %d, force %d",
					reserved[i], cmd, force);
			}
		}
		about_tenant(&req, cmd, "nosuchtenant");
		put_u32(&req, KVBLK_A_TENANT_FORCE, 1);
		refused(&req, ERANGE, "force with a value, command %d", cmd);
	}
	for (size_t i = 0; i < sizeof(reserved) / sizeof(*reserved); i++) {
		about_tenant(&req, KVBLK_CMD_TENANT_CREATE, reserved[i]);
		refused(&req, EEXIST, "create \"%s\"", reserved[i]);
	}
}

TEST(tenant_owners)
{
	static const uint32_t modes[] = { 01000, 04755, 0100660, 1u << 31, -1u };
	static const int owners[] = { KVBLK_A_TENANT_UID, KVBLK_A_TENANT_GID };
	static const int replies[] = {
		KVBLK_A_TENANT_ID, KVBLK_A_TENANT_DEVNODE, KVBLK_A_TENANT_OPENERS,
		KVBLK_A_TENANT_FORCE,
	};
	static const char zeroes[16];
	static struct req req;

	settle();
	for (size_t i = 0; i < sizeof(modes) / sizeof(*modes); i++) {
		about_tenant(&req, KVBLK_CMD_TENANT_CREATE, "newtenant");
		put_u32(&req, KVBLK_A_TENANT_MODE, modes[i]);
		refused(&req, ERANGE, "mode %o", modes[i]);
	}
	for (int i = 0; i < 2; i++) {
		about_tenant(&req, KVBLK_CMD_TENANT_CREATE, "newtenant");
		put_u32(&req, owners[i], -1u);
		refused(&req, EINVAL, "invalid owner, attribute %d", owners[i]);
	}
	for (int type = KVBLK_A_TENANT_MODE; type <= KVBLK_A_TENANT_GID; type++) {
		for (size_t n = 0; n < 9; n++) {
			if (n == 4)
				continue;
			about_tenant(&req, KVBLK_CMD_TENANT_CREATE, "newtenant");
			put(&req, type, zeroes, n);
			refused(&req, EINVAL, "attribute %d of %zu bytes", type, n);
		}
	}
	for (size_t i = 0; i < sizeof(replies) / sizeof(*replies); i++) {
		about_tenant(&req, KVBLK_CMD_TENANT_CREATE, "newtenant");
		put_u32(&req, replies[i], 0);
		refused(&req, EINVAL, "create with attribute %d", replies[i]);
	}
	about_tenant(&req, KVBLK_CMD_TENANT_CLEAR, "default");
	put_u32(&req, KVBLK_A_TENANT_MODE, 0600);
	refused(&req, EINVAL, "clear with a mode");
}

TEST(tenant_limits)
{
	static const int uints[] = {
		KVBLK_A_TENANT_QUOTA_BYTES, KVBLK_A_TENANT_QUOTA_BYTES_SOFT,
		KVBLK_A_TENANT_QUOTA_BLOCKS, KVBLK_A_TENANT_QUOTA_BLOCKS_SOFT,
		KVBLK_A_TENANT_QUOTA_DRAM,
	};
	static const int nodes[] = {
		KVBLK_A_TENANT_MODE, KVBLK_A_TENANT_UID, KVBLK_A_TENANT_GID,
	};
	static const int replies[] = {
		KVBLK_A_TENANT_ID, KVBLK_A_TENANT_DEVNODE, KVBLK_A_TENANT_OPENERS,
		KVBLK_A_TENANT_FORCE, KVBLK_A_TENANT_USED_BYTES, KVBLK_A_TENANT_USED_BLOCKS,
		KVBLK_A_TENANT_USED_DRAM, KVBLK_A_TENANT_COUNTERS,
	};
	static const uint32_t weights[] = { 0, 10001, -1u };
	static const char zeroes[16];
	static struct req req;

	settle();
	for (size_t i = 0; i < sizeof(uints) / sizeof(*uints); i++) {
		for (size_t n = 0; n < 16; n++) {
			if (n == 4 || n == 8)
				continue;
			about_tenant(&req, KVBLK_CMD_TENANT_SET, "default");
			put(&req, uints[i], zeroes, n);
			refused(&req, EINVAL, "attribute %d of %zu bytes", uints[i], n);
		}
	}
	for (size_t i = 0; i < sizeof(weights) / sizeof(*weights); i++) {
		about_tenant(&req, KVBLK_CMD_TENANT_SET, "default");
		put_u32(&req, KVBLK_A_TENANT_WEIGHT, weights[i]);
		refused(&req, ERANGE, "weight %u", weights[i]);
	}
	about_tenant(&req, KVBLK_CMD_TENANT_SET, "default");
	put_u64(&req, KVBLK_A_TENANT_WEIGHT, 100);
	refused(&req, EINVAL, "weight of 8 bytes");
	/* soft limits, the attributes after the hard ones; what is valid must not stay */
	for (int hard = KVBLK_A_TENANT_QUOTA_BYTES; hard <= KVBLK_A_TENANT_QUOTA_BLOCKS; hard += 2) {
		about_tenant(&req, KVBLK_CMD_TENANT_SET, "default");
		put_u32(&req, KVBLK_A_TENANT_WEIGHT, 7);
		put_u64(&req, KVBLK_A_TENANT_QUOTA_DRAM, 1 << 20);
		put_u64(&req, hard, 1ull << 40);
		put_u64(&req, hard + 1, (1ull << 40) + 1);
		refused(&req, EINVAL, "attribute %d below its soft limit", hard);
	}
	for (size_t i = 0; i < sizeof(nodes) / sizeof(*nodes); i++) {
		about_tenant(&req, KVBLK_CMD_TENANT_SET, "default");
		put_u32(&req, KVBLK_A_TENANT_WEIGHT, 7);
		put_u32(&req, nodes[i], 0600);
		refused(&req, EINVAL, "node of \"default\", attribute %d", nodes[i]);
	}
	for (size_t i = 0; i < sizeof(replies) / sizeof(*replies); i++) {
		about_tenant(&req, KVBLK_CMD_TENANT_SET, "default");
		put_u32(&req, replies[i], 0);
		refused(&req, EINVAL, "set with attribute %d", replies[i]);
	}
}

TEST(tenant_keys)
{
	static const int cmds[] = { KVBLK_CMD_TENANT_CREATE, KVBLK_CMD_TENANT_KEY };
	static const size_t lens[] = { 1, 16, 31, 33, 64 };
	static const char zeroes[16];
	static struct req req;
	int32_t serial;

	settle();
	for (int i = 0; i < 2; i++) {
		for (size_t n = 0; n < 9; n++) {
			if (n == 4)
				continue;
			about_tenant(&req, cmds[i], "newtenant");
			put(&req, KVBLK_A_TENANT_KEY, zeroes, n);
			refused(&req, EINVAL, "serial of %zu bytes", n);
		}
		for (size_t n = 0; n < sizeof(lens) / sizeof(*lens); n++) {
			about_tenant(&req, cmds[i], "newtenant");
			put_u32(&req, KVBLK_A_TENANT_KEY, (uint32_t)new_key(lens[n]));
			refused(&req, EINVAL, "key of %zu bytes", lens[n]);
		}
		about_tenant(&req, cmds[i], "newtenant");
		put_u32(&req, KVBLK_A_TENANT_KEY, 0);
		refused(&req, EINVAL, "key 0");
		about_tenant(&req, cmds[i], "newtenant");
		put_u32(&req, KVBLK_A_TENANT_KEY, INT32_MAX);
		refused(&req, ENOKEY, "a key that is not there");
		about_tenant(&req, cmds[i], "newtenant");
		put_u32(&req, KVBLK_A_TENANT_KEY, (uint32_t)KEY_SPEC_PROCESS_KEYRING);
		refused(&req, EINVAL, "a keyring");
		serial = new_key(32);
		syscall(SYS_keyctl, KEYCTL_REVOKE, serial);
		about_tenant(&req, cmds[i], "newtenant");
		put_u32(&req, KVBLK_A_TENANT_KEY, (uint32_t)serial);
		refused(&req, EKEYREVOKED, "a revoked key");
	}
	serial = new_key(32);
	about_tenant(&req, KVBLK_CMD_TENANT_KEY, "newtenant");
	refused(&req, EINVAL, "no key");
	about_tenant(&req, KVBLK_CMD_TENANT_KEY, "newtenant");
	put_u32(&req, KVBLK_A_TENANT_KEY, (uint32_t)serial);
	refused(&req, ENOENT, "a key of an unknown tenant");
	about_tenant(&req, KVBLK_CMD_TENANT_KEY, "default");
	put_u32(&req, KVBLK_A_TENANT_KEY, (uint32_t)serial);
	refused(&req, EINVAL, "a key of a tenant that is not encrypted");
	about_tenant(&req, KVBLK_CMD_TENANT_SET, "default");
	put_u32(&req, KVBLK_A_TENANT_KEY, (uint32_t)serial);
	refused(&req, EINVAL, "set with a key");
	about_tenant(&req, KVBLK_CMD_TENANT_CREATE, "nvme-kv");
	put_u32(&req, KVBLK_A_TENANT_KEY, (uint32_t)serial);
	refused(&req, EEXIST, "a reserved name with a key");
}

TEST(member_names)
{
	static const struct {
		int cmd;
		int pool;
		int member;
	} asks[] = {
		{ KVBLK_CMD_MEMBER_REMOVE, KVBLK_A_MEMBER_POOL, KVBLK_A_MEMBER_NAME },
		{ KVBLK_CMD_MEMBER_GET, KVBLK_A_MEMBER_POOL, KVBLK_A_MEMBER_NAME },
		{ KVBLK_CMD_STATS_GET, KVBLK_A_STATS_POOL, KVBLK_A_STATS_MEMBER },
	};
	static struct req req;

	settle();
	for (int i = 0; i < 3; i++) {
		int cmd = asks[i].cmd, name = asks[i].member;

		if (cmd != KVBLK_CMD_STATS_GET) {
			begin_on(&req, cmd, 0, asks[i].pool, pool);
			refused(&req, EINVAL, "no member named, command %d", cmd);
		}
		begin_on(&req, cmd, 0, asks[i].pool, pool);
		put_str(&req, name, "nosuchmember");
		refused(&req, ENOENT, "unknown member, command %d", cmd);

		begin_on(&req, cmd, 0, asks[i].pool, pool);
		put_str(&req, name, "");
		refused(&req, EINVAL, "empty member name, command %d", cmd);

		begin_on(&req, cmd, 0, asks[i].pool, pool);
		put_str(&req, name, repeat('m', 32));
		refused(&req, EINVAL, "long member name, command %d", cmd);

		begin_on(&req, cmd, 0, asks[i].pool, pool);
		put_u32(&req, name, 0x41414141);
		refused(&req, EINVAL, "member name no string, command %d", cmd);
	}
}

/* A statistics dump has exactly one known scope; a single request has none. */
TEST(stats_scopes)
{
	static struct req req;

	settle();
	for (uint32_t scope = KVBLK_STATS_SCOPE_SIZE + 1; scope; scope <<= 1) {
		begin(&req, KVBLK_CMD_STATS_GET, NLM_F_DUMP);
		put_u32(&req, KVBLK_A_STATS_SCOPE, scope);
		refused(&req, ERANGE, "scope %u", scope);
	}
	for (size_t n = 0; n < 9; n++) {
		if (n == 4)
			continue;
		begin(&req, KVBLK_CMD_STATS_GET, NLM_F_DUMP);
		put(&req, KVBLK_A_STATS_SCOPE, repeat('\0', n), n);
		refused(&req, EINVAL, "scope of %zu bytes", n);
	}
	begin_on(&req, KVBLK_CMD_STATS_GET, 0, KVBLK_A_STATS_POOL, pool);
	put_u32(&req, KVBLK_A_STATS_SCOPE, KVBLK_STATS_SCOPE_MEMBER);
	refused(&req, EINVAL, "scope of a single answer");
	begin_on(&req, KVBLK_CMD_STATS_GET, NLM_F_DUMP, KVBLK_A_STATS_MEMBER, member);
	refused(&req, EINVAL, "a dump of one member");
}

static void bad_path(const char *path, int err, const char *what)
{
	static struct req req;

	create(&req, "newpool");
	put_member(&req, path, 0);
	refused(&req, err, "create, %s", what);
	add(&req, pool, path);
	refused(&req, err, "add, %s", what);
	follow(&req, path, NULL);
	refused(&req, err, "follow, %s", what);
}

TEST(paths)
{
	settle();
	bad_path(NULL, EINVAL, "no path");
	bad_path("", EINVAL, "empty path");
	bad_path("/", EINVAL, "path without a last part");
	bad_path("/dev/", EINVAL, "path that ends in a slash");
	bad_path("/dev/nosuchdevice", ENOENT, "path of nothing");
	bad_path("/dev", ENOTBLK, "directory");
	bad_path("/dev/null", ENOTBLK, "character device");
	bad_path("/proc/self/exe", ENOTBLK, "file");
	bad_path(repeat('y', 4095), ENAMETOOLONG, "last part of 4095 characters");
	bad_path(repeat('y', 4096), EINVAL, "path of 4096 characters");
	bad_path(repeat('y', 8000), EINVAL, "path of 8000 characters");
	bad_path("/dev/a\nb", EINVAL, "path with a new line");
	bad_path("/dev/\033[2J", EINVAL, "path with an escape sequence");
	bad_path("/dev/\xe9", EINVAL, "path that is no ASCII");
}

/* A member's name and place accept only text that is safe for terminals and metrics. */
TEST(texts_of_members)
{
	static const struct {
		int attr;
		const char *text;
	} bad[] = {
		{ KVBLK_A_MEMBER_NAME, "" },
		{ KVBLK_A_MEMBER_NAME, ".a" },
		{ KVBLK_A_MEMBER_NAME, "a/b" },
		{ KVBLK_A_MEMBER_NAME, "a b" },
		{ KVBLK_A_MEMBER_NAME, "a\"b" },
		{ KVBLK_A_MEMBER_NAME, "a\nb" },
		{ KVBLK_A_MEMBER_NAME, "\xc3\xa4" },
		{ KVBLK_A_MEMBER_NAME, "mmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmm" },
		{ KVBLK_A_MEMBER_PLACE, "a\nb" },
		{ KVBLK_A_MEMBER_PLACE, "\xe9" },
		{ KVBLK_A_MEMBER_PLACE, NULL },		/* 240 characters */
	};
	static struct req req;
	struct nlattr *attr;

	settle();
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		const char *text = bad[i].text ?: repeat('p', 240);

		create(&req, "newpool");
		attr = nest(&req, KVBLK_A_POOL_MEMBER);
		put_str(&req, KVBLK_A_MEMBER_PATH, spare);
		put_str(&req, bad[i].attr, text);
		nest_end(&req, attr);
		refused(&req, EINVAL, "create, text %zu", i);
		add(&req, pool, spare);
		put_str(&req, bad[i].attr, text);
		refused(&req, EINVAL, "add, text %zu", i);
		follow(&req, spare, NULL);
		put_str(&req, bad[i].attr, text);
		refused(&req, EINVAL, "follow, text %zu", i);
	}
	add(&req, pool, spare);
	put_str(&req, KVBLK_A_MEMBER_NAME, member);
	put_u32(&req, KVBLK_A_MEMBER_ADD_FLAGS, KVBLK_ADD_FLAG_FORMAT);
	refused(&req, EEXIST, "add, another member's name");
	begin_on(&req, KVBLK_CMD_POOL_IMPORT, 0, KVBLK_A_POOL_NAME, "newpool");
	attr = nest(&req, KVBLK_A_POOL_MEMBER);
	put_str(&req, KVBLK_A_MEMBER_PATH, spare);
	put_str(&req, KVBLK_A_MEMBER_NAME, "name");
	nest_end(&req, attr);
	refused(&req, EINVAL, "import, a name");
}

TEST(segment_sizes)
{
	static const uint32_t bad[] = {
		1, 4096, 1 << 20, 4 << 20, (8 << 20) - 1, (8 << 20) + 1,
		9 << 20, 12 << 20, (1u << 30) + 1, 3u << 29, 1u << 31, -1u,
	};
	static struct req req;

	settle();
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		create(&req, "newpool");
		put_member(&req, spare, bad[i]);
		refused(&req, EINVAL, "create, segments of %u bytes", bad[i]);
		add(&req, pool, spare);
		put_u32(&req, KVBLK_A_MEMBER_SEGMENT_SIZE, bad[i]);
		refused(&req, EINVAL, "add, segments of %u bytes", bad[i]);
	}
	add(&req, pool, spare);
	put_u64(&req, KVBLK_A_MEMBER_SEGMENT_SIZE, (1ull << 32) + (8 << 20));
	refused(&req, EINVAL, "segments of more than 32 bits");
	add(&req, pool, spare);
	put_u64(&req, KVBLK_A_MEMBER_SEGMENT_SIZE, 1 << 30);
	refused(&req, EINVAL, "segments, in 64 bits, that the device is too small for");
	add(&req, pool, spare);
	put_u32(&req, KVBLK_A_MEMBER_SEGMENT_SIZE, 1 << 30);
	refused(&req, EINVAL, "segments that the device is too small for");
}

TEST(members)
{
	static struct req req;
	char path[64];

	settle();
	create(&req, "newpool");
	refused(&req, EINVAL, "create without members");

	create(&req, "newpool");
	for (int i = 0; i < MEMBERS_MAX + 1; i++)
		put_member(&req, spare, 0);
	refused(&req, EINVAL, "create with 65 members");

	create(&req, "newpool");
	put_member(&req, spare, 0);
	put_member(&req, spare, 0);
	refused(&req, EEXIST, "create, a member twice");

	create(&req, "newpool");
	put_member(&req, spare, 0);
	put_member(&req, "/dev/nosuchdevice", 0);
	refused(&req, ENOENT, "create, the second member is not there");

	snprintf(path, sizeof(path), "/dev/%s", member);
	create(&req, "newpool");
	put_member(&req, path, 0);
	refused(&req, EBUSY, "create, the member is another pool's");
	add(&req, pool, path);
	refused(&req, EEXIST, "add a member that is there");
}

static void import(struct req *req, const char *name)
{
	begin(req, KVBLK_CMD_POOL_IMPORT, 0);
	if (name)
		put_str(req, KVBLK_A_POOL_NAME, name);
}

TEST(imports)
{
	static struct req req;
	char path[64];

	settle();
	import(&req, NULL);
	put_member(&req, spare, 0);
	refused(&req, EINVAL, "import without a name");
	import(&req, "a b");
	put_member(&req, spare, 0);
	refused(&req, EINVAL, "import of a name that is none");
	import(&req, "newpool");
	refused(&req, EINVAL, "import without members");
	import(&req, pool);
	put_member(&req, spare, 0);
	refused(&req, EEXIST, "import of a pool that is up");
	import(&req, "newpool");
	put_member(&req, spare, 0);
	refused(&req, ENODATA, "import of a blank device");
	import(&req, "newpool");
	put_member(&req, spare, 0);
	put_u32(&req, KVBLK_A_POOL_ADD_FLAGS, KVBLK_ADD_FLAG_DEGRADED);
	refused(&req, ENODATA, "import of a blank device, degraded");
	snprintf(path, sizeof(path), "/dev/%s", member);
	import(&req, "newpool");
	put_member(&req, path, 0);
	refused(&req, EBUSY, "import of a member that is another pool's");
	import(&req, "newpool");
	put_member(&req, spare, 0);
	put_u32(&req, KVBLK_A_POOL_ADD_FLAGS, KVBLK_ADD_FLAG_FORMAT);
	refused(&req, EINVAL, "import that formats");
	import(&req, "newpool");
	put_member(&req, spare, 0);
	put_u32(&req, KVBLK_A_POOL_FLAGS, KVBLK_POOL_FLAG_STRICT);
	refused(&req, EINVAL, "import with a pool's flags");
	create(&req, "newpool");
	put_member(&req, spare, 0);
	put_u32(&req, KVBLK_A_POOL_ADD_FLAGS, KVBLK_ADD_FLAG_DEGRADED);
	refused(&req, EINVAL, "create, degraded");
	add(&req, pool, spare);
	put_u32(&req, KVBLK_A_MEMBER_ADD_FLAGS, KVBLK_ADD_FLAG_DEGRADED);
	refused(&req, EINVAL, "add, degraded");
}

static void create_in_pod(struct req *req, const char *pod, const char *pod_of, bool node)
{
	create(req, "newpool");
	put_member(req, spare, 8 << 20);
	if (pod)
		put_str(req, KVBLK_A_POOL_POD, pod);
	if (pod_of)
		put_str(req, KVBLK_A_POOL_POD_OF, pod_of);
	if (node)
		put(req, KVBLK_A_POOL_NODE, "0123456789abcdef", 16);
}

TEST(pods)
{
	static struct req req;
	char path[64];

	settle();
	create_in_pod(&req, "pod", NULL, false);
	refused(&req, EINVAL, "a pod without the host's id");
	create_in_pod(&req, "", NULL, true);
	refused(&req, EINVAL, "a pod without a name");
	create_in_pod(&req, repeat('p', 32), NULL, true);
	refused(&req, EINVAL, "a pod with a name of 32 characters");
	create_in_pod(&req, "-a", NULL, true);
	refused(&req, EINVAL, "a pod of a name that is none");
	create_in_pod(&req, NULL, spare, true);
	refused(&req, EINVAL, "a pod's device without its name");
	create_in_pod(&req, "pod", "", true);
	refused(&req, EINVAL, "a pod's device without a path");
	create_in_pod(&req, "pod", "/dev/", true);
	refused(&req, EINVAL, "a pod's device that is a directory");
	create_in_pod(&req, "pod", "/dev/nope", true);
	refused(&req, ENOENT, "a pod's device that does not exist");
	create_in_pod(&req, "pod", "/dev/null", true);
	refused(&req, ENOTBLK, "a pod's device that is no block device");
	create_in_pod(&req, "pod", spare, true);
	refused(&req, ENODATA, "a pod's device that is blank");
	snprintf(path, sizeof(path), "/dev/%s", member);
	create_in_pod(&req, "pod", path, true);
	refused(&req, EXDEV, "a pod's device of a pool in no pod");
	import(&req, "newpool");
	put_member(&req, spare, 0);
	put_str(&req, KVBLK_A_POOL_POD, "pod");
	refused(&req, EINVAL, "import with a pod");
	import(&req, "newpool");
	put_member(&req, spare, 0);
	put_str(&req, KVBLK_A_POOL_POD_OF, spare);
	refused(&req, EINVAL, "import with a pod's device");
	create_in_pod(&req, "pod", repeat('y', 4096), true);
	refused(&req, EINVAL, "a pod's device with a path of 4096 characters");
	create_in_pod(&req, "pod", "/dev/a\nb", true);
	refused(&req, EINVAL, "a pod's device with a new line");
}

/* The attributes of a pod with a wrong type, a wrong size or no NUL. */
TEST(types_of_pods)
{
	static const int strings[] = { KVBLK_A_POOL_POD, KVBLK_A_POOL_POD_OF };
	static const char zeroes[32];
	static struct req req;

	settle();
	for (int i = 0; i < 2; i++) {
		create_in_pod(&req, i ? "pod" : NULL, NULL, true);
		put(&req, strings[i], "/dev/null", 9);
		refused(&req, EINVAL, "attribute %d without its NUL", strings[i]);
		create_in_pod(&req, i ? "pod" : NULL, NULL, true);
		put(&req, strings[i], NULL, 0);
		refused(&req, EINVAL, "attribute %d of no bytes", strings[i]);
		create_in_pod(&req, i ? "pod" : NULL, NULL, true);
		put_u32(&req, strings[i], 0x41414141);
		refused(&req, EINVAL, "attribute %d that is a number", strings[i]);
		create_in_pod(&req, i ? "pod" : NULL, NULL, true);
		nest_end(&req, nest(&req, strings[i]));
		refused(&req, EINVAL, "attribute %d that is a nest", strings[i]);
	}
	for (size_t n = 0; n <= sizeof(zeroes); n++) {
		create_in_pod(&req, "pod", NULL, false);
		put(&req, KVBLK_A_POOL_NODE, zeroes, n);
		refused(&req, n == 16 ? EINVAL : ERANGE, "a host's id of %zu bytes, zeroes", n);
	}
	for (size_t n = 0; n <= sizeof(zeroes); n++) {
		import(&req, "newpool");
		put_member(&req, spare, 0);
		put(&req, KVBLK_A_POOL_PREEMPT, zeroes, n);
		refused(&req, n == 16 ? ENODATA : ERANGE, "a lost node's id of %zu bytes", n);
	}
	create_in_pod(&req, "pod", NULL, true);
	put(&req, KVBLK_A_POOL_PREEMPT, "0123456789abcdef", 16);
	refused(&req, EINVAL, "create that preempts");
	create_in_pod(&req, "pod", NULL, true);
	put(&req, KVBLK_A_POOL_POD_UUID, "0123456789abcdef", 16);
	refused(&req, EINVAL, "a pod's uuid, which replies have");
}

/* Attributes that member-follow and foreign-get have in common with others are tested above. */
TEST(follow)
{
	static struct req req;
	struct answer *answer = &after.foreign;
	char own[64];

	settle();
	snprintf(own, sizeof(own), "/dev/%s", member);
	follow(&req, NULL, NULL);
	refused(&req, EINVAL, "follow nothing");
	begin_on(&req, KVBLK_CMD_MEMBER_FOLLOW, 0, KVBLK_A_MEMBER_POOL, pool);
	put(&req, KVBLK_A_MEMBER_PATH, spare, strlen(spare));
	refused(&req, EINVAL, "follow a path without its NUL");
	begin_on(&req, KVBLK_CMD_MEMBER_FOLLOW, 0, KVBLK_A_MEMBER_POOL, pool);
	put_u32(&req, KVBLK_A_MEMBER_PATH, 0x41414141);
	refused(&req, EINVAL, "follow a path that is a number");
	for (int type = KVBLK_A_MEMBER_SEGMENT_SIZE; type <= KVBLK_A_MEMBER_MAX; type++) {
		if (type == KVBLK_A_MEMBER_PLACE)
			continue;
		follow(&req, spare, NULL);
		put_u32(&req, type, 0);
		/* a flag has no value */
		refused(&req, type == KVBLK_A_MEMBER_HINTED ? ERANGE : EINVAL,
			"follow with attribute %d, which is not for it", type);
		begin_on(&req, KVBLK_CMD_FOREIGN_GET, NLM_F_DUMP, KVBLK_A_MEMBER_POOL, pool);
		put_u32(&req, type, 0);
		refused(&req, EINVAL, "foreign dump with attribute %d, which is not for it",
			type);
	}
	if (!followed) {
		follow(&req, spare, NULL);
		refused(&req, EINVAL, "follow a blank device, from a pool in no pod");
		follow(&req, own, NULL);
		refused(&req, EINVAL, "follow the own member, from a pool in no pod");
		return;
	}
	follow(&req, spare, NULL);
	refused(&req, ENODATA, "follow a blank device");
	follow(&req, spare, member);
	refused(&req, ENODATA, "follow a blank device, under the name of a member");
	follow(&req, own, NULL);
	refused(&req, EEXIST, "follow the own member");
	follow(&req, own, "other");
	refused(&req, EEXIST, "follow the own member, under another name");
	follow(&req, followed, NULL);
	refused(&req, EEXIST, "follow a member twice");
	follow(&req, followed, "other");
	refused(&req, EEXIST, "follow a member twice, under another name");
	follow(&req, other_pod, NULL);
	refused(&req, EXDEV, "follow a member of another pod");
	create_in_pod(&req, "elsewhere", followed, true);
	refused(&req, EXDEV, "create, a pod's device with another pod's name");
	create_in_pod(&req, "here", other_pod, true);
	refused(&req, EXDEV, "create, another pod's device with this pod's name");

	begin_on(&req, KVBLK_CMD_MEMBER_REMOVE, 0, KVBLK_A_MEMBER_POOL, pool);
	put_str(&req, KVBLK_A_MEMBER_NAME, "nosuchmember");
	refused(&req, ENOENT, "unfollow an unknown name");
	begin_on(&req, KVBLK_CMD_MEMBER_REMOVE, 0, KVBLK_A_MEMBER_POOL, pool);
	put(&req, KVBLK_A_MEMBER_UUID, "0123456789abcdef", 16);
	refused(&req, ENOENT, "unfollow an unknown uuid");
	begin_on(&req, KVBLK_CMD_MEMBER_GET, 0, KVBLK_A_MEMBER_POOL, pool);
	put_str(&req, KVBLK_A_MEMBER_NAME, strrchr(followed, '/') + 1);
	refused(&req, ENOENT, "member-get of a foreign member");

	begin_on(&req, KVBLK_CMD_FOREIGN_GET, NLM_F_DUMP, KVBLK_A_MEMBER_POOL, pool);
	talk(&req, answer);
	EXPECT(answer->messages, "no foreign member");
	for (int type = KVBLK_A_MEMBER_OWNER; type <= KVBLK_A_MEMBER_GET_MISSES; type++)
		EXPECT(find(answer->reply, answer->len, type), "attribute %d of a foreign member",
		       type);
}

/* Touches and deletes: only whole ids, 1 to 1024 of them, and only in a pod. */
TEST(touches)
{
	static const size_t bad[] = { 0, 1, 8, 15, 17, 31, 16383, 16385, 16400, 32768, 60000 };
	static const int cmds[] = { KVBLK_CMD_TOUCH, KVBLK_CMD_DELETE };
	static char ids[60000];
	static struct req req;

	settle();
	for (size_t c = 0; c < sizeof(cmds) / sizeof(*cmds); c++) {
		begin_on(&req, cmds[c], 0, KVBLK_A_TOUCH_POOL, pool);
		refused(&req, EINVAL, "command %d without ids", cmds[c]);
		for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
			begin_on(&req, cmds[c], 0, KVBLK_A_TOUCH_POOL, pool);
			put(&req, KVBLK_A_TOUCH_IDS, ids, bad[i]);
			refused(&req, EINVAL, "command %d, ids of %zu bytes", cmds[c], bad[i]);
		}
		for (size_t n = 16; !followed && n <= KVBLK_TOUCH_LEN_MAX; n *= 4) {
			begin_on(&req, cmds[c], 0, KVBLK_A_TOUCH_POOL, pool);
			put(&req, KVBLK_A_TOUCH_IDS, ids, n);
			refused(&req, EINVAL, "command %d in no pod, %zu bytes", cmds[c], n);
		}
		begin_on(&req, cmds[c], 0, KVBLK_A_TOUCH_POOL, pool);
		put(&req, KVBLK_A_TOUCH_IDS, ids, 16);
		put(&req, KVBLK_A_TOUCH_RESULTS, ids, 4);
		refused(&req, EINVAL, "command %d with results", cmds[c]);
	}
	begin_on(&req, KVBLK_CMD_TOUCHED_GET, NLM_F_DUMP, KVBLK_A_TOUCH_POOL, pool);
	put(&req, KVBLK_A_TOUCH_IDS, ids, 16);
	refused(&req, EINVAL, "dump of touched blocks with ids");
}

TEST(uuids)
{
	static const char uuid[20] = "0123456789abcdefghi";
	static struct req req;

	settle();
	for (size_t n = 0; n <= sizeof(uuid); n++) {
		begin_on(&req, KVBLK_CMD_MEMBER_REMOVE, 0, KVBLK_A_MEMBER_POOL, pool);
		put(&req, KVBLK_A_MEMBER_UUID, uuid, n);
		refused(&req, n == 16 ? ENOENT : ERANGE,
			"remove, a uuid of %zu bytes", n);
	}
	begin_on(&req, KVBLK_CMD_MEMBER_REMOVE, 0, KVBLK_A_MEMBER_POOL, pool);
	put_str(&req, KVBLK_A_MEMBER_NAME, member);
	put(&req, KVBLK_A_MEMBER_UUID, uuid, 16);
	refused(&req, EINVAL, "remove by name and uuid");
}

/* A device with unknown data is not used without "format". */
TEST(foreign_data)
{
	static char zero[4096] __attribute__((aligned(4096)));
	static char data[4096] __attribute__((aligned(4096)));
	static struct req req;
	int fd;

	fd = open(spare, O_RDWR | O_DIRECT);
	ASSERT(fd >= 0, "%s: %s", spare, strerror(errno));
	memset(data, 0x5a, sizeof(data));
	ASSERT_EQ(pwrite(fd, data, sizeof(data), 0), sizeof(data), "%s", spare);
	close(fd);
	settle();
	create(&req, "newpool");
	put_member(&req, spare, 0);
	refused(&req, ENOTEMPTY, "create on a device that holds data");
	add(&req, pool, spare);
	refused(&req, ENOTEMPTY, "add a device that holds data");
	add(&req, pool, spare);
	put_u32(&req, KVBLK_A_MEMBER_ADD_FLAGS, KVBLK_ADD_FLAG_FORCE);
	refused(&req, ENOTEMPTY, "add a device that holds data by force");
	fd = open(spare, O_RDWR | O_DIRECT);
	ASSERT_EQ(pwrite(fd, zero, sizeof(zero), 0), sizeof(zero), "%s", spare);
	close(fd);
}

TEST(flags)
{
	static struct req req;

	settle();
	for (int bit = 0; bit < 32; bit++) {
		uint32_t flag = 1u << bit;

		if (!(flag & POOL_STRICT_MASK)) {
			create(&req, "newpool");
			put_u32(&req, KVBLK_A_POOL_FLAGS, flag);
			put_member(&req, spare, 0);
			refused(&req, EINVAL, "create, flag %d", bit);
		}
		if (flag & ADD_MASK)
			continue;
		create(&req, "newpool");
		put_u32(&req, KVBLK_A_POOL_ADD_FLAGS, flag);
		put_member(&req, spare, 0);
		refused(&req, EINVAL, "create, add flag %d", bit);
		add(&req, pool, spare);
		put_u32(&req, KVBLK_A_MEMBER_ADD_FLAGS, flag);
		refused(&req, EINVAL, "add, add flag %d", bit);
	}
}

TEST(index_slots)
{
	static const uint64_t bad[] = {
		1, 63, (1ull << 36) + 1, 1ull << 37, 1ull << 60, 1ull << 63,
		-1ull, -1ull / 32, -1ull / 20,
	};
	static struct req req;

	settle();
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		create(&req, "newpool");
		put_u64(&req, KVBLK_A_POOL_INDEX_SLOTS, bad[i]);
		put_member(&req, spare, 8 << 20);
		refused(&req, EINVAL, "create, %llu index slots",
			(unsigned long long)bad[i]);
	}
	/* valid, but more memory than the machine has */
	create(&req, "newpool");
	put_u64(&req, KVBLK_A_POOL_INDEX_SLOTS, 1ull << 36);
	put_member(&req, spare, 8 << 20);
	refused(&req, ENOMEM, "create, an index of 2 TiB");
}

/* All numeric attributes, in all invalid sizes. */
TEST(sizes)
{
	static const char bytes[64];
	static struct req req;

	settle();
	for (size_t n = 0; n < 17; n++) {
		if (n != 4) {
			create(&req, "newpool");
			put(&req, KVBLK_A_POOL_FLAGS, bytes, n);
			put_member(&req, spare, 0);
			refused(&req, EINVAL, "pool flags of %zu bytes", n);

			create(&req, "newpool");
			put(&req, KVBLK_A_POOL_ADD_FLAGS, bytes, n);
			put_member(&req, spare, 0);
			refused(&req, EINVAL, "add flags of %zu bytes", n);

			add(&req, pool, spare);
			put(&req, KVBLK_A_MEMBER_ADD_FLAGS, bytes, n);
			refused(&req, EINVAL, "add flags of %zu bytes", n);
		}
		if (n != 4 && n != 8) {
			add(&req, pool, spare);
			put(&req, KVBLK_A_MEMBER_SEGMENT_SIZE, bytes, n);
			refused(&req, EINVAL, "segment size of %zu bytes", n);

			create(&req, "newpool");
			put(&req, KVBLK_A_POOL_INDEX_SLOTS, bytes, n);
			put_member(&req, spare, 0);
			refused(&req, EINVAL, "index slots of %zu bytes", n);
		}
	}
	begin_on(&req, KVBLK_CMD_POOL_DESTROY, 0, KVBLK_A_POOL_NAME, pool);
	put_u32(&req, KVBLK_A_POOL_FORCE, 1);
	refused(&req, ERANGE, "force with a value");
}

TEST(unknown_attributes)
{
	static const int cmds[] = {
		KVBLK_CMD_POOL_CREATE, KVBLK_CMD_POOL_DESTROY,
		KVBLK_CMD_POOL_GET, KVBLK_CMD_MEMBER_ADD,
		KVBLK_CMD_MEMBER_REMOVE, KVBLK_CMD_MEMBER_GET,
		KVBLK_CMD_STATS_GET, KVBLK_CMD_MEMBER_FOLLOW, KVBLK_CMD_TOUCH,
		KVBLK_CMD_DELETE, KVBLK_CMD_TENANT_CREATE,
		KVBLK_CMD_TENANT_REMOVE, KVBLK_CMD_TENANT_CLEAR,
	};
	static const int types[] = { 0, 63, 200, 0x1fff };
	static struct req req;

	settle();
	for (size_t i = 0; i < sizeof(cmds) / sizeof(*cmds); i++) {
		for (size_t j = 0; j < sizeof(types) / sizeof(*types); j++) {
			begin(&req, cmds[i], 0);
			put_u32(&req, types[j], 0);
			refused(&req, EINVAL, "command %d, attribute %d",
				cmds[i], types[j]);
		}
	}
	create(&req, "newpool");
	put(&req, KVBLK_A_POOL_UUID, repeat('u', 16), 16);
	put_member(&req, spare, 0);
	refused(&req, EINVAL, "create, an attribute of replies");
}

TEST(nesting)
{
	static struct req req;
	struct nlattr *attr;

	settle();
	create(&req, "newpool");
	attr = nest(&req, KVBLK_A_POOL_MEMBER);
	put_str(&req, KVBLK_A_MEMBER_PATH, spare);
	nest_end(&req, attr);
	attr->nla_type &= ~NLA_F_NESTED;
	refused(&req, EINVAL, "member that is not flagged as a nest");

	create(&req, "newpool");
	put_str(&req, KVBLK_A_POOL_MEMBER | NLA_F_NESTED, spare);
	refused(&req, EINVAL, "member that is a string");

	create(&req, "newpool");
	nest(&req, KVBLK_A_POOL_MEMBER);
	refused(&req, EINVAL, "member with nothing in it");

	create(&req, "newpool");
	attr = nest(&req, KVBLK_A_POOL_MEMBER);
	put_str(&req, KVBLK_A_MEMBER_PATH, spare);
	put_u32(&req, KVBLK_A_MEMBER_SLOT, 1);
	nest_end(&req, attr);
	refused(&req, EINVAL, "member with an attribute that is not for it");

	create(&req, "newpool");
	attr = nest(&req, KVBLK_A_POOL_MEMBER);
	put(&req, KVBLK_A_MEMBER_PATH, spare, strlen(spare));
	nest_end(&req, attr);
	refused(&req, EINVAL, "member whose path has no NUL");

	create(&req, "newpool");
	attr = nest(&req, KVBLK_A_POOL_MEMBER);
	put_str(&req, KVBLK_A_MEMBER_PATH, spare);
	((struct nlattr *)((char *)attr + NLA_HDRLEN))->nla_len = 4000;
	nest_end(&req, attr);
	refused(&req, EINVAL, "attribute longer than its nest");

	create(&req, "newpool");
	attr = put(&req, KVBLK_A_POOL_FLAGS, "\0\0\0", 4);
	attr->nla_len = 4000;
	refused(&req, EINVAL, "attribute longer than the message");

	create(&req, "newpool");
	attr = put(&req, KVBLK_A_POOL_FLAGS, "\0\0\0", 4);
	attr->nla_len = 2;
	refused(&req, EINVAL, "attribute shorter than its header");
}

#define PRIVILEGED	13

/* Build request number @i, below PRIVILEGED, which needs privilege before all else. */
static void privileged(struct req *req, int i)
{
	switch (i) {
	case 0:
		create(req, "newpool");
		put_u32(req, KVBLK_A_POOL_ADD_FLAGS, KVBLK_ADD_FLAG_FORMAT);
		put_member(req, spare, 8 << 20);
		return;
	case 1:
		begin_on(req, KVBLK_CMD_POOL_DESTROY, 0, KVBLK_A_POOL_NAME, pool);
		put(req, KVBLK_A_POOL_FORCE, NULL, 0);
		return;
	case 2:
		add(req, pool, spare);
		put_u32(req, KVBLK_A_MEMBER_ADD_FLAGS, KVBLK_ADD_FLAG_FORMAT);
		return;
	case 3:
		begin_on(req, KVBLK_CMD_MEMBER_REMOVE, 0, KVBLK_A_MEMBER_POOL, pool);
		put_str(req, KVBLK_A_MEMBER_NAME, member);
		return;
	case 4:
		begin_on(req, KVBLK_CMD_POOL_CLEAR, 0, KVBLK_A_POOL_NAME, pool);
		return;
	case 5:
		follow(req, spare, NULL);
		return;
	case 6:
		begin_on(req, KVBLK_CMD_TOUCH, 0, KVBLK_A_TOUCH_POOL, pool);
		put_rest(req, KVBLK_CMD_TOUCH, 0);
		return;
	case 7:
		begin_on(req, KVBLK_CMD_TOUCHED_GET, NLM_F_DUMP, KVBLK_A_TOUCH_POOL, pool);
		return;
	case 8:
		import(req, "newpool");
		put_member(req, spare, 0);
		return;
	case 9:
		begin_on(req, KVBLK_CMD_DELETE, 0, KVBLK_A_TOUCH_POOL, pool);
		put_rest(req, KVBLK_CMD_DELETE, 0);
		return;
	case 10:
		about_tenant(req, KVBLK_CMD_TENANT_CREATE, "newtenant");
		return;
	case 11:
		about_tenant(req, KVBLK_CMD_TENANT_REMOVE, "newtenant");
		return;
	case 12:
		about_tenant(req, KVBLK_CMD_TENANT_CLEAR, "newtenant");
		return;
	}
}

static void lower_all(void)
{
	if (setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534))
		exit(KSFT_FAIL);
}

static void lower_sys_admin(void)
{
	struct __user_cap_header_struct header = {
		.version = _LINUX_CAPABILITY_VERSION_3,
	};
	struct __user_cap_data_struct data[2];

	if (syscall(SYS_capget, &header, data))
		exit(KSFT_FAIL);
	data[0].effective &= ~(1u << CAP_SYS_ADMIN);
	data[0].permitted &= ~(1u << CAP_SYS_ADMIN);
	if (syscall(SYS_capset, &header, data))
		exit(KSFT_FAIL);
}

static void lower_namespace(void)
{
	if (unshare(CLONE_NEWUSER))
		exit(KSFT_SKIP);
}

/* Return whether the reply has one of the attributes of @types, which ends with 0. */
static bool has_any(const struct answer *answer, const int *types)
{
	for (; *types; types++)
		if (find(answer->reply, answer->len, *types))
			return true;
	return false;
}

/* Query what each user may know, and what monitors alone may. Returns whether all is well. */
static bool query_as_user(const char *who)
{
	static const int pool_use[] = {
		KVBLK_A_POOL_FREE, KVBLK_A_POOL_FREE_SEGMENTS, KVBLK_A_POOL_INDEX_USED,
		KVBLK_A_POOL_INDEX_EVICTED, KVBLK_A_POOL_LEASED_BYTES, KVBLK_A_POOL_INDEX_LACKS,
		KVBLK_A_POOL_CLEARED, KVBLK_A_POOL_CHECKSUM_FAILURES, KVBLK_A_POOL_READ_ERRORS,
		KVBLK_A_POOL_WRITE_ERRORS, KVBLK_A_POOL_PUT_NOSPACE, 0
	};
	static const int member_use[] = {
		KVBLK_A_MEMBER_FREE_SEGMENTS, KVBLK_A_MEMBER_READY_SEGMENTS,
		KVBLK_A_MEMBER_OPEN_SEGMENTS, KVBLK_A_MEMBER_SEALED_SEGMENTS,
		KVBLK_A_MEMBER_INFLIGHT, KVBLK_A_MEMBER_RESTORED,
		KVBLK_A_MEMBER_UNREAD_SEGMENTS, 0
	};
	static const int tenant_use[] = { KVBLK_A_TENANT_OPENERS, 0 };
	static struct answer answer;
	static struct req req;
	bool good = true;

	for (int i = 0; i < 2; i++) {
		const int dump = i ? NLM_F_DUMP : 0;

		begin(&req, KVBLK_CMD_POOL_GET, dump);
		if (!dump)
			put_str(&req, KVBLK_A_POOL_NAME, pool);
		talk(&req, &answer);
		good &= !answer.err && find(answer.reply, answer.len, KVBLK_A_POOL_CAPACITY) &&
			!has_any(&answer, pool_use);
		begin_on(&req, KVBLK_CMD_MEMBER_GET, dump, KVBLK_A_MEMBER_POOL, pool);
		if (!dump)
			put_str(&req, KVBLK_A_MEMBER_NAME, member);
		talk(&req, &answer);
		good &= !answer.err && find(answer.reply, answer.len, KVBLK_A_MEMBER_SIZE) &&
			!has_any(&answer, member_use);
		begin_on(&req, KVBLK_CMD_STATS_GET, dump, KVBLK_A_STATS_POOL, pool);
		talk(&req, &answer);
		good &= answer.err == EPERM && answer.text[0] && !answer.messages;
		if (!good)
			printf("# %s is told too much or too little (%s)\n", who,
			       dump ? "dump" : "do");
	}
	begin_on(&req, KVBLK_CMD_TENANT_GET, NLM_F_DUMP, KVBLK_A_TENANT_POOL, pool);
	talk(&req, &answer);
	if (answer.err || !find(answer.reply, answer.len, KVBLK_A_TENANT_DEVNODE) ||
	    has_any(&answer, tenant_use)) {
		printf("# %s is told too much or too little of tenants\n", who);
		good = false;
	}
	begin_on(&req, KVBLK_CMD_ROUTE_GET, NLM_F_DUMP, KVBLK_A_ROUTE_POOL, pool);
	put_str(&req, KVBLK_A_ROUTE_MEMBER, member);
	talk(&req, &answer);
	if (answer.err != EPERM || !answer.text[0])
		printf("# %s, routes: %s\n", who, strerror(answer.err));
	return good && answer.err == EPERM && answer.text[0];
}

/* Run without privilege: changes are rejected, and queries of how the pool is used. */
static void try_as(void (*lower)(void), bool old_socket, const char *who)
{
	static struct req req;
	static struct answer answer;
	int status;
	pid_t pid;

	settle();
	fflush(stdout);
	pid = fork();
	ASSERT(pid >= 0, "fork: %s", strerror(errno));
	if (!pid) {
		int bad = 0;

		lower();
		if (!old_socket)
			sock = open_socket();
		for (int i = 0; i < PRIVILEGED; i++) {
			privileged(&req, i);
			talk(&req, &answer);
			if (answer.err != EPERM || !answer.text[0]) {
				printf("# %s, request %d: %s (%s)\n", who, i,
				       strerror(answer.err), answer.text);
				bad = 1;
			}
		}
		bad |= !query_as_user(who);
		fflush(stdout);
		_exit(bad ? KSFT_FAIL : KSFT_PASS);
	}
	ASSERT_EQ(waitpid(pid, &status, 0), pid, "waitpid");
	if (WIFEXITED(status) && WEXITSTATUS(status) == KSFT_SKIP)
		SKIP("%s can't be tried here", who);
	EXPECT_EQ(status, 0, "%s", who);
	take_picture(&after);
	EXPECT(same_picture(&before, &after), "%s changed something", who);
}

TEST(nobody)
{
	try_as(lower_all, false, "nobody");
}

TEST(nobody_with_roots_socket)
{
	try_as(lower_all, true, "nobody with a socket of root's");
}

TEST(no_sys_admin)
{
	try_as(lower_sys_admin, false, "root without CAP_SYS_ADMIN");
}

TEST(root_of_a_namespace)
{
	try_as(lower_namespace, false, "root of a user namespace");
}

TEST(network_namespace)
{
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	ASSERT(pid >= 0, "fork: %s", strerror(errno));
	if (!pid) {
		if (unshare(CLONE_NEWNET))
			_exit(KSFT_FAIL);
		_exit(find_family(open_socket()) ? KSFT_FAIL : KSFT_PASS);
	}
	ASSERT_EQ(waitpid(pid, &status, 0), pid, "waitpid");
	EXPECT_EQ(status, 0, "the family shows in another network namespace");
}

/* An open node keeps the pool from being destroyed, unless forced. */
TEST(busy_pool)
{
	static struct req req;
	char node[80];
	int fd;

	settle();
	snprintf(node, sizeof(node), "/dev/kvblk/%s/default", pool);
	fd = open(node, O_RDWR);
	ASSERT(fd >= 0, "%s: %s", node, strerror(errno));
	begin_on(&req, KVBLK_CMD_POOL_DESTROY, 0, KVBLK_A_POOL_NAME, pool);
	refused(&req, EBUSY, "destroy a pool whose node is open");
	close(fd);
}

TEST(answers)
{
	static struct req req;
	static struct answer one, all;
	const struct nlattr *nested, *attr;

	settle();
	begin_on(&req, KVBLK_CMD_POOL_GET, 0, KVBLK_A_POOL_NAME, pool);
	talk(&req, &one);
	ASSERT_EQ(one.err, 0, "pool-get");
	ASSERT_EQ(one.messages, 1, "pool-get");
	/* not those of a pod, because the pool is in none */
	for (int type = KVBLK_A_POOL_UUID; type < KVBLK_A_POOL_POD; type++)
		EXPECT(type == KVBLK_A_POOL_NODE || find(one.reply, one.len, type),
		       "pool attribute %d", type);

	begin_on(&req, KVBLK_CMD_MEMBER_GET, 0, KVBLK_A_MEMBER_POOL, pool);
	put_str(&req, KVBLK_A_MEMBER_NAME, member);
	talk(&req, &one);
	ASSERT_EQ(one.err, 0, "member-get");
	/* not those of foreign members */
	for (int type = KVBLK_A_MEMBER_POOL; type < KVBLK_A_MEMBER_OWNER; type++)
		EXPECT(type == KVBLK_A_MEMBER_ADD_FLAGS ||
		       find(one.reply, one.len, type),
		       "member attribute %d", type);
	begin_on(&req, KVBLK_CMD_MEMBER_GET, NLM_F_DUMP, KVBLK_A_MEMBER_POOL, pool);
	talk(&req, &all);
	EXPECT_EQ(all.messages, 1, "dump of the members of %s", pool);
	forget_inflight(&one);
	forget_inflight(&all);
	EXPECT(same(&one, &all), "a dump and a question differ");

	begin_on(&req, KVBLK_CMD_TENANT_GET, NLM_F_DUMP, KVBLK_A_TENANT_POOL, pool);
	talk(&req, &all);
	ASSERT_EQ(all.err, 0, "tenant-get");
	EXPECT_EQ(all.messages, 2, "dump of the tenants of %s", pool);
	/* the mode and owner of this node are udev's */
	for (int type = KVBLK_A_TENANT_POOL; type <= KVBLK_A_TENANT_OPENERS; type++)
		EXPECT(!find(all.reply, all.len, type) ==
		       (type >= KVBLK_A_TENANT_MODE && type <= KVBLK_A_TENANT_GID),
		       "tenant attribute %d", type);
	attr = find(all.reply, all.len, KVBLK_A_TENANT_NAME);
	EXPECT(attr && !strcmp((const char *)attr + NLA_HDRLEN, "default"), "name of the tenant");

	begin_on(&req, KVBLK_CMD_STATS_GET, 0, KVBLK_A_STATS_POOL, pool);
	talk(&req, &one);
	ASSERT_EQ(one.err, 0, "stats-get");
	nested = find(one.reply, one.len, KVBLK_A_STATS_COUNTERS);
	ASSERT(nested, "no counters");
	for (int type = KVBLK_A_COUNTER_PUTS; type <= KVBLK_A_COUNTER_MAX; type++) {
		attr = find((const char *)nested + NLA_HDRLEN,
			    nested->nla_len - NLA_HDRLEN, type);
		EXPECT(attr && (attr->nla_len == NLA_HDRLEN + 4 ||
				attr->nla_len == NLA_HDRLEN + 8), "counter %d", type);
	}
	nested = find(one.reply, one.len, KVBLK_A_STATS_LATENCY);
	ASSERT(nested, "no latencies");
	for (int type = KVBLK_A_LATENCY_PUT; type <= KVBLK_A_LATENCY_LOOKUP; type++) {
		attr = find((const char *)nested + NLA_HDRLEN,
			    nested->nla_len - NLA_HDRLEN, type);
		EXPECT(attr && (attr->nla_len - NLA_HDRLEN) % 8 == 0 &&
		       attr->nla_len > NLA_HDRLEN, "latencies %d", type);
	}
	nested = find(one.reply, one.len, KVBLK_A_STATS_GAUGES);
	ASSERT(nested, "no gauges");
	for (int type = 1; type <= KVBLK_A_GAUGE_MAX; type++)
		EXPECT(find((const char *)nested + NLA_HDRLEN,
			    nested->nla_len - NLA_HDRLEN, type), "gauge %d", type);
	EXPECT(!find(one.reply, one.len, KVBLK_A_STATS_MEMBER), "a pool is no member");

	begin_on(&req, KVBLK_CMD_STATS_GET, 0, KVBLK_A_STATS_POOL, pool);
	put_str(&req, KVBLK_A_STATS_MEMBER, member);
	talk(&req, &one);
	ASSERT_EQ(one.err, 0, "stats-get of a member");
	begin_on(&req, KVBLK_CMD_STATS_GET, NLM_F_DUMP, KVBLK_A_STATS_POOL, pool);
	put_u32(&req, KVBLK_A_STATS_SCOPE, KVBLK_STATS_SCOPE_MEMBER);
	talk(&req, &all);
	EXPECT_EQ(all.messages, 1, "dump of the members' statistics of %s", pool);
	ASSERT(find(one.reply, one.len, KVBLK_A_STATS_MEMBER) &&
	       find(all.reply, all.len, KVBLK_A_STATS_MEMBER), "no member's name");
	nested = find(one.reply, one.len, KVBLK_A_STATS_COUNTERS);
	ASSERT(nested, "no counters of a member");
	EXPECT(find((const char *)nested + NLA_HDRLEN, nested->nla_len - NLA_HDRLEN,
		    KVBLK_A_COUNTER_WRITE_BYTES), "a member writes");
	EXPECT(!find((const char *)nested + NLA_HDRLEN, nested->nla_len - NLA_HDRLEN,
		     KVBLK_A_COUNTER_LOOKUPS), "no member looks up");
}

#define CHURN	"churn"		/* created and destroyed meanwhile */

/* List the names of pools and members in a dump; @member_type -1: pools only. */
static size_t names(const struct answer *answer, int pool_type, int member_type,
		    char *out, size_t size)
{
	const char *p = answer->reply;
	size_t len = 0;
	bool skip = false;

	out[0] = '\0';
	while (p < answer->reply + answer->len) {
		const struct nlattr *attr = (const struct nlattr *)p;
		const char *text = p + NLA_HDRLEN;

		if (attr->nla_type == pool_type)
			skip = !strcmp(text, CHURN);
		if (!skip && (attr->nla_type == pool_type ||
			      attr->nla_type == member_type))
			len += snprintf(out + len, size - len, "%s%s",
					attr->nla_type == pool_type ? " " : "/",
					text);
		p += NLA_ALIGN(attr->nla_len);
	}
	return len;
}

/* A dump of many datagrams reports each pool and member exactly once. */
TEST(dumps)
{
	static const struct {
		int cmd;
		int pool_type;
		int member_type;
		uint32_t scope;
	} dumps[] = {
		{ KVBLK_CMD_POOL_GET, KVBLK_A_POOL_NAME, -1, 0 },
		{ KVBLK_CMD_STATS_GET, KVBLK_A_STATS_POOL, -1, 0 },
		{ KVBLK_CMD_STATS_GET, KVBLK_A_STATS_POOL, KVBLK_A_STATS_MEMBER,
		  KVBLK_STATS_SCOPE_MEMBER },
		{ KVBLK_CMD_STATS_GET, KVBLK_A_STATS_POOL, -1, KVBLK_STATS_SCOPE_SIZE },
		{ KVBLK_CMD_MEMBER_GET, KVBLK_A_MEMBER_POOL, KVBLK_A_MEMBER_NAME, 0 },
		{ KVBLK_CMD_TENANT_GET, KVBLK_A_TENANT_POOL, KVBLK_A_TENANT_NAME, 0 },
	};
	const int nr = sizeof(dumps) / sizeof(*dumps);
	static char want[sizeof(dumps) / sizeof(*dumps)][8192], got[8192];
	static struct answer answer;
	static struct req req;
	unsigned int parts = 0;
	int fd = open_socket();

	/* the kernel sizes a dump's datagrams by the largest read of the socket so far */
	recv_size = 4096;
	for (int round = 0; round < 100; round++) {
		for (int i = 0; i < nr; i++) {
			char *text = round ? got : want[i];

			begin(&req, dumps[i].cmd, NLM_F_DUMP);
			if (dumps[i].scope)
				put_u32(&req, KVBLK_A_STATS_SCOPE, dumps[i].scope);
			talk_through(fd, &req, &answer);
			EXPECT_EQ(answer.err, 0, "dump %d", i);
			names(&answer, dumps[i].pool_type, dumps[i].member_type,
			      text, sizeof(got));
			EXPECT(!round || !strcmp(want[i], got), "dump %d:%s, not%s",
			       i, got, want[i]);
			if (answer.parts > parts)
				parts = answer.parts;
		}
	}
	recv_size = 1 << 15;
	close(fd);
	PASSED("up to %u parts", parts);
}

/* Return the number of a multicast group, or 0. */
static uint32_t find_group(const char *name)
{
	static struct req req;
	static struct answer answer;
	const struct nlattr *groups, *group, *attr;

	begin(&req, CTRL_CMD_GETFAMILY, 0);
	req.hdr.nlmsg_type = GENL_ID_CTRL;
	put_str(&req, CTRL_ATTR_FAMILY_NAME, KVBLK_FAMILY_NAME);
	talk(&req, &answer);
	groups = find(answer.reply, answer.len, CTRL_ATTR_MCAST_GROUPS);
	if (!groups)
		return 0;
	for (int i = 1; (group = find(groups + 1, groups->nla_len - NLA_HDRLEN, i)); i++) {
		attr = find(group + 1, group->nla_len - NLA_HDRLEN, CTRL_ATTR_MCAST_GRP_NAME);
		if (!attr || strcmp((const char *)(attr + 1), name))
			continue;
		attr = find(group + 1, group->nla_len - NLA_HDRLEN, CTRL_ATTR_MCAST_GRP_ID);
		return attr ? *(const uint32_t *)(attr + 1) : 0;
	}
	return 0;
}

/*
 * Receive from @fd until a message is @cmd, and an event @event. Returns false if none arrives
 * within a minute.
 */
static bool hears(int fd, int cmd, uint32_t event)
{
	static char buf[1 << 15] __attribute__((aligned(8)));
	const struct nlmsghdr *hdr = (void *)buf;
	const struct genlmsghdr *genl = NLMSG_DATA(hdr);
	const struct nlattr *type;
	ssize_t len;

	while ((len = recv(fd, buf, sizeof(buf), 0)) > 0) {
		if (genl->cmd != cmd)
			continue;
		type = find(buf + NLMSG_LENGTH(GENL_HDRLEN), len - NLMSG_LENGTH(GENL_HDRLEN),
			    KVBLK_A_EVENT_TYPE);
		if (!event || (type && *(const uint32_t *)(type + 1) == event))
			return true;
	}
	return false;
}

static void join(int fd, uint32_t group)
{
	struct sockaddr_nl any = { .nl_family = AF_NETLINK };

	/* a socket without an address gets no multicast: to the kernel, the sender is the same */
	EXPECT(!bind(fd, (struct sockaddr *)&any, sizeof(any)) || errno == EINVAL, "bind: %s", strerror(errno));
	EXPECT(!setsockopt(fd, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &group, sizeof(group)),
	       "join: %s", strerror(errno));
}

static void set_stats_seconds(const char *text)
{
	char path[100];
	int fd;

	snprintf(path, sizeof(path), "/sys/class/kvblk/%s/stats_seconds", pool);
	fd = open(path, O_WRONLY);
	ASSERT(fd >= 0 && write(fd, text, 1) == 1, "%s: %s", path, strerror(errno));
	close(fd);
}

/*
 * The user who opened a socket must be allowed, too: root's request through it is rejected, and it
 * gets no event and no statistics. Leaves SPARE formatted.
 */
TEST(socket_of_a_user)
{
	static const char *const groups[] = { KVBLK_MCGRP_EVENTS, KVBLK_MCGRP_STATS };
	static struct req req;
	static struct answer answer;
	int user, root = open_socket();

	ASSERT(!seteuid(65534), "seteuid: %s", strerror(errno));
	user = open_socket();
	ASSERT(!seteuid(0), "seteuid: %s", strerror(errno));
	begin_on(&req, KVBLK_CMD_STATS_GET, 0, KVBLK_A_STATS_POOL, pool);
	talk_through(user, &req, &answer);
	EXPECT_EQ(answer.err, EPERM, "stats-get through it");

	for (int i = 0; i < 2; i++) {
		uint32_t group = find_group(groups[i]);

		ASSERT(group, "no group %s", groups[i]);
		join(root, group);
		join(user, group);
	}
	privileged(&req, 0);
	talk(&req, &answer);
	EXPECT(!answer.err || answer.err == EINPROGRESS, "create: %s", strerror(answer.err));
	EXPECT(hears(root, KVBLK_CMD_EVENT_NTF, KVBLK_EVENT_POOL_UP), "root gets no event");
	begin_on(&req, KVBLK_CMD_POOL_DESTROY, 0, KVBLK_A_POOL_NAME, "newpool");
	for (int i = 0; i < 60 && answer.err != ENOENT; i++) {
		talk(&req, &answer);
		usleep(answer.err && answer.err != ENOENT ? 1000000 : 0);
	}
	EXPECT_EQ(answer.err, ENOENT, "destroy");
	set_stats_seconds("1");
	EXPECT(hears(root, KVBLK_CMD_STATS_NTF, 0), "root gets no statistics");
	EXPECT(hears(root, KVBLK_CMD_STATS_NTF, 0), "root gets no more statistics");
	set_stats_seconds("0");
	EXPECT(recv(user, &answer, sizeof(answer), MSG_DONTWAIT) < 0 && errno == EAGAIN,
	       "the user gets messages");
	close(root);
	close(user);
}

int main(int argc, char **argv)
{
	int rc;

	if (argc < 4) {
		fprintf(stderr, "usage: guest_netlink_input POOL MEMBER SPARE [TEST...]\n");
		return KSFT_FAIL;
	}
	pool = argv[1];
	member = argv[2];
	spare = argv[3];
	followed = getenv("KV_FOLLOWED");
	other_pod = getenv("KV_OTHER_POD");
	sock = open_socket();
	family = find_family(sock);
	if (!family) {
		printf("# no netlink family %s\n", KVBLK_FAMILY_NAME);
		return KSFT_SKIP;
	}
	rc = kv_run_tests(argc - 4, argv + 4);
	printf("# %u requests refused\n", nr_refused);
	return rc;
}
