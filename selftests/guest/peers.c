// SPDX-License-Identifier: GPL-2.0
/*
 * The node "peers" beside NODE: this program is the daemon that speaks to other nodes.
 *
 * usage: guest_peers NODE input
 *	Bad input of each field and message, and a second daemon.
 *	or: guest_peers NODE anchors COUNT CHAINS
 *	The pool has COUNT blocks in CHAINS chains. Their anchors, and those of new puts.
 *	or: guest_peers NODE moved
 *	Prints "listening", and ends when a block has moved to another segment.
 *	or: guest_peers NODE slow COUNT STOP-FILE
 *	Prints "listening", reads nothing until STOP-FILE exists, then the anchors of COUNT blocks.
 *	or: guest_peers NODE hints FIRST COUNT OWNER-NODE
 *	Finds the COUNT blocks of OWNER-NODE by hints only.
 *	or: guest_peers NODE late FIRST | dead FIRST | full FIRST
 *	Lookups of block FIRST, which is not here: without an answer in time; with a daemon
 *	that ends; more than may ask.
 *	or: guest_peers NODE delete FIRST OWNER-NODE
 *	Deletes of blocks FIRST to FIRST + 9 of OWNER-NODE, answered in each way. The last one is
 *	left.
 *	or: guest_peers NODE end FIRST ABSENT
 *	Prints "waiting" when a delete of FIRST and a lookup of ABSENT wait; the pool is destroyed.
 */
#include <poll.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "kv_io.h"
#include "want.h"

#define LONG_MS		KVBLK_PEERS_WAIT_MAX	/* never reached by a test that passes */
#define SHORT_MS	200u
#define NAMES_MAX	8192u

static const char *node;

union message {
	struct {
		struct kvblk_peers_msg head;
		union {
			struct kvblk_anchor anchors[84];
			struct kvblk_peers_id ids[64];
			struct kvblk_peers_result results[64];
		};
	};
	uint8_t bytes[KVBLK_PEERS_MSG_MAX];
};

static char path[256];		/* of the node that was opened last */

static int peers_open(const char *of, int flags)
{
	int fd;

	snprintf(path, sizeof(path), "%.*speers", (int)(strrchr(of, '/') + 1 - of), of);
	fd = open(path, O_RDWR | O_CLOEXEC | flags);
	if (fd < 0)
		kv_die("can't open %s", path);
	return fd;
}

static int start(int fd, uint32_t flags, uint32_t span, uint32_t ask_ms, uint32_t delete_ms)
{
	struct kvblk_peers arg = {
		.size = sizeof(arg), .flags = flags, .span = span, .ask_ms = ask_ms,
		.delete_ms = delete_ms,
	};

	return kv_ioctl(fd, KVBLK_IOC_PEERS, &arg);
}

static int daemon_of(const char *of, uint32_t span, uint32_t ask_ms, uint32_t delete_ms)
{
	int fd = peers_open(of, 0), err = start(fd, 0, span, ask_ms, delete_ms);

	errno = -err;
	if (err)
		kv_die("no daemon of %s", of);
	return fd;
}

static int take(int fd, union message *message)
{
	ssize_t got = read(fd, message, sizeof(*message));

	return got < 0 ? -errno : (int)got;
}

/* Return the next message of @type. */
static void take_type(int fd, union message *message, uint32_t type)
{
	do {
		int got = take(fd, message);

		errno = -got;
		if (got <= 0)
			kv_die("read: %d", got);
	} while (message->head.type != type);
}

static int give(int fd, const union message *message, size_t entries)
{
	ssize_t put = write(fd, message, sizeof(message->head) + entries);

	return put < 0 ? -errno : put == (ssize_t)(sizeof(message->head) + entries) ? 0 : -EIO;
}

/* ---- names of blocks ---- */

static struct kvblk_anchor names[NAMES_MAX];
static unsigned int nr_names;

static struct kvblk_anchor *name_find(const uint8_t id[16])
{
	for (unsigned int i = 0; i < nr_names; i++)
		if (!memcmp(names[i].id, id, 16))
			return &names[i];
	return NULL;
}

/* Note the anchors of @message, those of new blocks if @add. Returns how many blocks have moved. */
static unsigned int names_note(const union message *message, bool add)
{
	unsigned int moved = 0;

	for (unsigned int i = 0; i < message->head.nr; i++) {
		const struct kvblk_anchor *anchor = &message->anchors[i];
		struct kvblk_anchor *known = name_find(anchor->id);

		WANT(anchor->reserved, 0, "reserved");
		WANT(anchor->generation > 0, true, "the generation");
		if (known)
			moved += known->segment != anchor->segment ||
				 known->generation != anchor->generation;
		else if (add && nr_names < NAMES_MAX)
			names[nr_names++] = *anchor;
	}
	return moved;
}

/* Read the anchors of present blocks. */
static void names_present(int fd)
{
	union message message;

	nr_names = 0;
	do {
		take_type(fd, &message, KVBLK_PEERS_ANCHORS);
		WANT(message.head.cookie, 0, "cookie of anchors");
		names_note(&message, true);
	} while (message.head.nr);
}

/* Read anchors until those of @count blocks are known: the owner writes summaries each second. */
static void names_until(int fd, unsigned int count)
{
	union message message;

	names_present(fd);
	while (nr_names < count) {
		take_type(fd, &message, KVBLK_PEERS_ANCHORS);
		names_note(&message, true);
	}
	WANT(nr_names, count, "anchors");
}

/* ---- calls that wait ---- */

struct call {
	pthread_t thread;
	void (*run)(struct call *call);
	uint64_t nr;
	int res;
};

static int returned;

static void *call_run(void *arg)
{
	struct call *call = arg;

	call->run(call);
	__atomic_add_fetch(&returned, 1, __ATOMIC_SEQ_CST);
	return NULL;
}

static struct call *call(void (*run)(struct call *call), uint64_t nr)
{
	struct call *call = calloc(1, sizeof(*call));

	if (!call)
		kv_die("no memory");
	call->run = run;
	call->nr = nr;
	if (pthread_create(&call->thread, NULL, call_run, call))
		kv_die("no thread");
	return call;
}

static int call_end(struct call *call)
{
	int res;

	pthread_join(call->thread, NULL);
	res = call->res;
	free(call);
	return res;
}

static void run_lookup(struct call *call)
{
	struct kv_key key = kv_key(call->nr);
	uint32_t size = 0;
	struct kvblk_lookup lookup = {
		.size = sizeof(lookup), .nr_keys = 1, .key_stride = key.len,
		.keys = kv_addr(key.bytes), .sizes = kv_addr(&size),
	};
	int fd = kv_open(node);

	call->res = kv_ioctl(fd, KVBLK_IOC_LOOKUP, &lookup) ?: (int)lookup.nr_present;
	close(fd);
}

static void run_delete(struct call *call)
{
	int fd = kv_open(node);

	call->res = kv_delete(fd, call->nr).res;
	close(fd);
}

/* As run_delete(), in a ring. */
static void run_ring_delete(struct call *call)
{
	struct kv_key key = kv_key(call->nr);
	struct kvblk_op op = kv_op(KVBLK_OP_DELETE, &key, NULL, 0);
	struct kvblk_result result;
	int fd = kv_open(node);

	memset(&result, 0xff, sizeof(result));
	kv_ring_submit(fd, &op, &result, 1);
	call->res = result.res;
	close(fd);
}

/* As run_delete(), with a deadline that passes. */
static void run_late_delete(struct call *call)
{
	struct kv_key key = kv_key(call->nr);
	struct kvblk_op op = kv_op(KVBLK_OP_DELETE, &key, NULL, 0);
	struct timespec now;
	int fd = kv_open(node);

	clock_gettime(CLOCK_MONOTONIC, &now);
	op.deadline_ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec +
			 SHORT_MS * 1000000ull;
	call->res = kv_one(fd, &op).res;
	close(fd);
}

/* ---- tests ---- */

static void input(void)
{
	struct { struct kvblk_peers io; uint64_t tail[2]; } c = { 0 };
	int fd = peers_open(node, O_NONBLOCK), other = peers_open(node, 0), data = kv_open(node);
	struct pollfd ready = { .fd = fd, .events = POLLIN };
	union message m = { .head.type = KVBLK_PEERS_HINTS };
	static uint8_t large[sizeof(m) + 1];
	int status = -1;
	pid_t child;

	WANT(take(fd, &m), -EINVAL, "a read before the start");
	WANT(give(fd, &m, 0), -EINVAL, "a write before the start");
	WANT(poll(&ready, 1, 0), 1, "poll before the start");
	WANT(ready.revents, POLLERR, "poll before the start");
	c.io.delete_ms = 1;
	WANT(kv_ioctl(fd, KVBLK_IOC_PEERS, &c), -EINVAL, "size 0");
	c.io.size = KVBLK_PEERS_SIZE_VER0 - 1;
	WANT(kv_ioctl(fd, KVBLK_IOC_PEERS, &c), -EINVAL, "one short");
	c.io.size = KVBLK_STRUCT_MAX + 1;
	WANT(kv_ioctl(fd, KVBLK_IOC_PEERS, &c), -E2BIG, "size 4097");
	c.io.size = sizeof(c);
	c.tail[1] = 1;
	WANT(kv_ioctl(fd, KVBLK_IOC_PEERS, &c), -E2BIG, "a tail");
	c.tail[1] = 0;
	c.io.reserved = 1;
	WANT(kv_ioctl(fd, KVBLK_IOC_PEERS, &c), -EINVAL, "reserved");
	c.io.reserved = 0;
	WANT(kv_ioctl(fd, KVBLK_IOC_PEERS, NULL), -EFAULT, "NULL");
	WANT(start(fd, 1, 1, 1, 1), -EOPNOTSUPP, "a flag");
	WANT(start(fd, 1u << 31, 1, 1, 1), -EOPNOTSUPP, "a flag");
	WANT(start(fd, 0, KVBLK_PEERS_SPAN_MAX + 1, 1, 1), -EINVAL, "a large span");
	WANT(start(fd, 0, 1, 0, 1), -EINVAL, "no wait of lookups");
	WANT(start(fd, 0, 1, LONG_MS + 1, 1), -EINVAL, "a long wait of lookups");
	WANT(start(fd, 0, 0, 1, 1), -EINVAL, "a wait of lookups that do not ask");
	WANT(start(fd, 0, 1, 1, 0), -EINVAL, "no wait of deletes");
	WANT(start(fd, 0, 1, 1, LONG_MS + 1), -EINVAL, "a long wait of deletes");
	WANT(kv_ioctl(fd, KVBLK_IOC_INFO, &c), -ENOTTY, "a command of another node");
	WANT(start(data, 0, 1, 1, 1), -ENOTTY, "a command of this node");
	WANT(lseek(fd, 0, SEEK_SET) < 0 ? -errno : 0, -ESPIPE, "seek");

	WANT(kv_ioctl(fd, KVBLK_IOC_PEERS, &c), 0, "a tail of zeroes, and no directory");
	WANT(start(fd, 0, 1, 1, 1), -EBUSY, "a second start");
	WANT(start(other, 0, 1, 1, 1), -EBUSY, "a second daemon");
	WANT(poll(&ready, 1, 0), 0, "poll of nothing");
	WANT(take(fd, &m), -EAGAIN, "nothing");
	WANT(read(fd, &m, sizeof(m) - 1) < 0 ? -errno : 0, -EINVAL, "a short buffer");

	memset(&m, 0, sizeof(m));
	m.head.type = KVBLK_PEERS_HINTS;
	m.head.cookie = 1;
	WANT(give(fd, &m, 0), -ENOENT, "an answer to no question");
	WANT(write(fd, &m, sizeof(m.head) - 1) < 0 ? -errno : 0, -EINVAL, "a short message");
	WANT(write(fd, large, sizeof(large)) < 0 ? -errno : 0, -EINVAL, "a long message");
	WANT(write(fd, (void *)0xffffffff81000000ull, 100) < 0 ? -errno : 0, -EFAULT, "the kernel");
	WANT(give(fd, &m, 4), -EINVAL, "more than its entries");
	WANT(give(fd, &m, sizeof(m.anchors[0])), -EINVAL, "an entry too many");
	m.head.nr = 1;
	WANT(give(fd, &m, 0), -EINVAL, "an entry that is missing");
	m.anchors[0].reserved = 1;
	WANT(give(fd, &m, sizeof(m.anchors[0])), -EINVAL, "reserved of an anchor");
	m.anchors[0].reserved = 0;
	m.head.nr = 0x80000001;
	WANT(give(fd, &m, sizeof(m.anchors[0])), -EINVAL, "many entries");
	m.head.nr = 0;
	m.head.pool_uuid[15] = 1;
	WANT(give(fd, &m, 0), -EINVAL, "a pool");
	m.head.pool_uuid[15] = 0;
	m.head.node[0] = 1;
	WANT(give(fd, &m, 0), -EINVAL, "a node");
	m.head.node[0] = 0;
	for (uint32_t type = 0; type < 8; type++) {
		m.head.type = type;
		WANT(give(fd, &m, 0), type == KVBLK_PEERS_HINTS || type == KVBLK_PEERS_DELETED ?
		     -ENOENT : -EINVAL, "type %u", type);
	}
	m.head.type = KVBLK_PEERS_DELETED;
	m.head.nr = 65;
	WANT(give(fd, &m, 65 * sizeof(m.results[0])), -EINVAL, "65 results");

	close(fd);
	WANT(start(other, 0, 1, 1, 1), 0, "after the other one");
	/* without the capability, even a user whom the mode lets */
	if (chmod(path, 0666))
		kv_die("chmod");
	child = fork();
	if (!child)
		_exit(setresuid(65534, 65534, 65534) || open(path, O_RDWR) >= 0 || errno != EPERM);
	waitpid(child, &status, 0);
	WANT(status, 0, "an open by nobody");
	if (chmod(path, 0600))
		kv_die("chmod");
}

static void anchors(unsigned int count, unsigned int chains)
{
	int fd = daemon_of(node, 1, LONG_MS, LONG_MS), data = kv_open(node);
	struct pollfd ready = { .fd = fd, .events = POLLIN };
	union message m;
	char byte = 1;

	names_until(fd, count);
	WANT(kv_put(data, 8000000, &byte, 1).res, 1, "put");
	take_type(fd, &m, KVBLK_PEERS_ANCHORS);
	WANT(m.head.nr, 1, "anchors of a put");
	WANT(name_find(m.anchors[0].id) != NULL, false, "a new name");
	WANT(kv_delete(data, 8000000).res, 0, "delete");
	close(fd);

	/* no record of a run but its first block, and the first and the last record of a segment */
	fd = daemon_of(node, KVBLK_PEERS_SPAN_MAX, LONG_MS, LONG_MS);
	names_present(fd);
	WANT(nr_names >= chains, true, "%u anchors of %u chains", nr_names, chains);
	WANT(nr_names <= count / 4, true, "%u anchors of %u blocks", nr_names, count);
	close(fd);

	/* without a span there are none */
	fd = daemon_of(node, 0, 0, LONG_MS);
	ready.fd = fd;
	WANT(kv_put(data, 8000000, &byte, 1).res, 1, "put");
	WANT(kv_delete(data, 8000000).res, 0, "delete");
	WANT(poll(&ready, 1, 0), 0, "no directory");
}

static void listening(const char *what)
{
	printf("%s\n", what);
	fflush(stdout);
}

static void moved(void)
{
	int fd = daemon_of(node, 1, LONG_MS, LONG_MS);
	union message m;

	names_present(fd);
	listening("listening");
	do
		take_type(fd, &m, KVBLK_PEERS_ANCHORS);
	while (!names_note(&m, false));
}

static void slow(unsigned int count, const char *stop_file)
{
	int fd = daemon_of(node, 1, LONG_MS, LONG_MS);

	listening("listening");
	while (access(stop_file, F_OK))
		usleep(100000);
	names_until(fd, count);
}

/* Answer @question with the places of its blocks that are known. */
static void answer(int fd, const union message *question)
{
	union message m = {
		.head = { .type = KVBLK_PEERS_HINTS, .cookie = question->head.cookie },
	};

	WANT(question->head.nr > 0 && question->head.nr <= 64, true, "ids of a question");
	for (unsigned int i = 0; i < question->head.nr; i++) {
		const struct kvblk_anchor *known = name_find(question->ids[i].id);

		if (known)
			m.anchors[m.head.nr++] = *known;
	}
	WANT(give(fd, &m, m.head.nr * sizeof(m.anchors[0])), 0, "hints");
}

static int daemon_fd;

static void *answers(void *arg)
{
	union message m;

	for (;;) {
		take_type(daemon_fd, &m, KVBLK_PEERS_ASK);
		answer(daemon_fd, &m);
	}
	return arg;
}

/* Look up @count blocks as a prefix. Returns how many lead. */
static uint32_t leading(int fd, uint64_t first, uint32_t count)
{
	uint8_t *keys = malloc(count * KVBLK_KEY_MAX), *at = keys;
	uint16_t *lens = calloc(count, sizeof(*lens));
	struct kvblk_lookup lookup = {
		.size = sizeof(lookup), .flags = KVBLK_LOOKUP_PREFIX, .nr_keys = count,
		.keys = kv_addr(keys), .key_lens = kv_addr(lens),
	};

	if (!keys || !lens)
		kv_die("no memory");
	for (uint32_t i = 0; i < count; i++) {
		struct kv_key key = kv_key(first + i);

		lens[i] = key.len;
		memcpy(at, key.bytes, key.len);
		at += key.len;
	}
	WANT(kv_ioctl(fd, KVBLK_IOC_LOOKUP, &lookup), 0, "lookup");
	free(keys);
	free(lens);
	return lookup.nr_leading;
}

static void hints(uint64_t first, unsigned int count, const char *owner)
{
	int fd = kv_open(node), owner_fd = daemon_of(owner, 1, LONG_MS, LONG_MS);
	uint64_t end = kv_now_ms() + 60000ull * kv_slow();
	struct kvblk_anchor is;
	union message m;
	pthread_t thread;
	struct call *asks;

	names_until(owner_fd, count);
	WANT(leading(fd, first, count), 0, "blocks without hints");
	daemon_fd = daemon_of(node, 1, LONG_MS, LONG_MS);

	/* wrong hints are answers, and find nothing */
	is = names[0];
	for (int i = 0; i < 5; i++) {
		memset(&m, 0, sizeof(m));
		asks = call(run_lookup, first);
		take_type(daemon_fd, &m, KVBLK_PEERS_ASK);
		m.head.type = KVBLK_PEERS_HINTS;
		m.head.nr = i > 0;
		m.anchors[0] = is;
		m.anchors[0].member[0] ^= i == 1;
		if (i == 2)
			m.anchors[0].segment = ~0u;
		if (i == 3)
			m.anchors[0].generation = 0;
		/* a newer one may be true soon: the member is polled */
		m.anchors[0].generation += i == 4;
		WANT(give(daemon_fd, &m, m.head.nr * sizeof(m.anchors[0])), 0, "wrong hint %d", i);
		WANT(call_end(asks), 0, "wrong hint %d", i);
		WANT(give(daemon_fd, &m, m.head.nr * sizeof(m.anchors[0])), -ENOENT, "again");
	}

	/* right ones find all, once the owner has written their summaries */
	pthread_create(&thread, NULL, answers, NULL);
	while (leading(fd, first, count) < count && kv_now_ms() < end)
		usleep(100000);
	WANT(leading(fd, first, count), count, "blocks with hints");
}

static void late(uint64_t first)
{
	int fd = daemon_of(node, 1, SHORT_MS, LONG_MS);
	uint64_t begin = kv_now_ms();
	struct call *asks = call(run_lookup, first);
	union message m;

	take_type(fd, &m, KVBLK_PEERS_ASK);
	WANT(m.head.nr, 1, "ids of a question");
	WANT(call_end(asks), 0, "a lookup without an answer");
	WANT(kv_now_ms() - begin >= SHORT_MS, true, "the lookup waited");
	m.head = (struct kvblk_peers_msg){ .type = KVBLK_PEERS_HINTS, .cookie = m.head.cookie };
	WANT(give(fd, &m, 0), -ENOENT, "a late answer");
	close(fd);
}

static void dead(uint64_t first)
{
	int fd = daemon_of(node, 1, LONG_MS, LONG_MS);
	uint64_t begin = kv_now_ms();
	struct call *read_one = call(run_lookup, first), *other;
	union message m;

	take_type(fd, &m, KVBLK_PEERS_ASK);
	other = call(run_lookup, first + 1);
	while (poll(&(struct pollfd){ .fd = fd, .events = POLLIN }, 1, -1) != 1)
		;
	close(fd);
	WANT(call_end(read_one), 0, "a question that was read");
	WANT(call_end(other), 0, "a question that was not read");
	WANT(kv_now_ms() - begin < LONG_MS, true, "the lookups did not wait longer");
	WANT(call_end(call(run_lookup, first)), 0, "a lookup without a daemon");
}

static void full(uint64_t first)
{
	int fd = daemon_of(node, 1, LONG_MS, LONG_MS);
	struct call *calls[70];
	union message m;

	for (int i = 0; i < 70; i++)
		calls[i] = call(run_lookup, first);
	for (int i = 0; i < 64; i++)
		take_type(fd, &m, KVBLK_PEERS_ASK);
	while (__atomic_load_n(&returned, __ATOMIC_SEQ_CST) < 6)
		usleep(10000);
	close(fd);
	for (int i = 0; i < 70; i++)
		WANT(call_end(calls[i]), 0, "lookup %d", i);
}

/* Answer a delete that @run calls with @nr results of @res. Returns what the delete reports. */
static int deleted(int fd, void (*run)(struct call *call), uint64_t block, uint32_t nr, int res)
{
	struct call *deletes = call(run, block);
	union message m;

	take_type(fd, &m, KVBLK_PEERS_DELETE);
	WANT(m.head.nr, 1, "ids of a delete");
	WANT(kv_other_than(0, m.head.pool_uuid, 16) >= 0, true, "the owner's pool");
	WANT(kv_other_than(0, m.head.node, 16) >= 0, true, "the owner's node");
	m.head = (struct kvblk_peers_msg){ .type = KVBLK_PEERS_HINTS, .cookie = m.head.cookie };
	WANT(give(fd, &m, 0), -ENOENT, "hints for a delete");
	m.head.type = KVBLK_PEERS_DELETED;
	m.head.nr = 2;
	m.results[0].res = m.results[1].res = 0;
	WANT(give(fd, &m, 2 * sizeof(m.results[0])), -EINVAL, "results of two blocks");
	m.head.nr = 1;
	m.results[0].res = 1;
	WANT(give(fd, &m, sizeof(m.results[0])), -EINVAL, "a positive result");
	m.results[0].res = -EPERM;
	WANT(give(fd, &m, sizeof(m.results[0])), -EINVAL, "a result of no delete");
	m.results[0].res = res;
	m.head.nr = nr;
	WANT(give(fd, &m, nr * sizeof(m.results[0])), 0, "the result %d", res);
	return call_end(deletes);
}

static void delete(uint64_t first, const char *owner)
{
	static const struct {
		uint32_t nr;
		int res, reported;
	} ways[] = {
		{ 1, -EBUSY, -EBUSY }, { 1, -EIO, -EIO }, { 1, -EREMOTE, -EREMOTE },
		{ 1, -ETIME, -EREMOTE }, { 1, -ENODEV, -EREMOTE }, { 0, 0, -EREMOTE },
	};
	int fd, data = kv_open(node), owners = kv_open(owner);
	unsigned int absent = 0;
	struct call *calls[70];
	union message m;
	uint64_t begin;
	char byte;

	WANT(kv_delete(data, first).res, -EREMOTE, "without a daemon");
	/* without a directory, too */
	fd = daemon_of(node, 0, 0, LONG_MS);
	for (unsigned int i = 0; i < ARRAY_SIZE(ways); i++) {
		WANT(deleted(fd, run_delete, first, ways[i].nr, ways[i].res), ways[i].reported,
		     "result %d", ways[i].res);
		WANT(kv_size(data, first) > 0, true, "result %d keeps the block", ways[i].res);
	}
	/* the owner deletes first, or else the next poll would find the block again */
	for (uint64_t nr = first; nr < first + 9; nr++) {
		int res = nr % 3 == 1 ? -ENOENT : 0;

		WANT(kv_delete(owners, nr).res, 0, "the owner's delete");
		WANT(deleted(fd, nr % 3 == 2 ? run_ring_delete : run_delete, nr, 1, res), res,
		     "result %d", res);
		absent += !kv_size(data, nr);
		WANT(kv_get(data, nr, &byte, 1).res, -ENOENT, "a deleted block");
	}
	/* a poll may have read the summary before, but not each time */
	WANT(absent > 0, true, "blocks without an entry at once");
	first += 9;

	/* a delete whose deadline passes leaves no question behind */
	calls[0] = call(run_late_delete, first);
	take_type(fd, &m, KVBLK_PEERS_DELETE);
	WANT(call_end(calls[0]), -ETIME, "a deadline");
	m.head = (struct kvblk_peers_msg){ .type = KVBLK_PEERS_DELETED, .cookie = m.head.cookie };
	WANT(give(fd, &m, 0), -ENOENT, "a late answer");
	WANT(kv_size(data, first) > 0, true, "a block that was not deleted");

	/* more deletes than may wait, and a daemon that ends */
	returned = 0;
	for (int i = 0; i < 70; i++)
		calls[i] = call(run_delete, first);
	for (int i = 0; i < 64; i++)
		take_type(fd, &m, KVBLK_PEERS_DELETE);
	while (__atomic_load_n(&returned, __ATOMIC_SEQ_CST) < 6)
		usleep(10000);
	close(fd);
	for (int i = 0; i < 70; i++)
		WANT(call_end(calls[i]), -EREMOTE, "delete %d", i);

	fd = daemon_of(node, 0, 0, SHORT_MS);
	begin = kv_now_ms();
	WANT(kv_delete(data, first).res, -EREMOTE, "no answer");
	WANT(kv_now_ms() - begin >= SHORT_MS, true, "the delete waited");
	close(fd);
}

static void end(uint64_t first, uint64_t absent)
{
	int fd = daemon_of(node, 1, LONG_MS, LONG_MS), unstarted = peers_open(node, 0);
	struct pollfd ready = { .fd = fd, .events = POLLIN };
	struct call *asks = call(run_lookup, absent), *deletes = call(run_delete, first);
	union message m;
	int res;

	/* both questions */
	WANT(take(fd, &m) > 0, true, "a question");
	WANT(take(fd, &m) > 0, true, "a question");
	listening("waiting");
	while (poll(&ready, 1, -1) == 1 && !(ready.revents & POLLHUP))
		take(fd, &m);
	WANT(take(fd, &m), 0, "a read after the end");
	memset(&m.head, 0, sizeof(m.head));
	m.head.type = KVBLK_PEERS_HINTS;
	WANT(give(fd, &m, 0), -ENODEV, "a write after the end");
	WANT(start(unstarted, 0, 1, 1, 1), -ENODEV, "a start after the end");
	res = call_end(asks);
	WANT(res == 0 || res == -ENODEV, true, "the lookup: %d", res);
	res = call_end(deletes);
	WANT(res == -EREMOTE || res == -ENODEV, true, "the delete: %d", res);
}

int main(int argc, char **argv)
{
	const char *what = argc > 2 ? argv[2] : "";
	uint64_t first = argc > 3 ? strtoull(argv[3], NULL, 0) : 0;
	uint64_t second = argc > 4 ? strtoull(argv[4], NULL, 0) : 0;

	node = argv[1];
	if (!strcmp(what, "input") && argc == 3)
		input();
	else if (!strcmp(what, "anchors") && argc == 5)
		anchors((unsigned int)first, (unsigned int)second);
	else if (!strcmp(what, "moved") && argc == 3)
		moved();
	else if (!strcmp(what, "slow") && argc == 5)
		slow((unsigned int)first, argv[4]);
	else if (!strcmp(what, "hints") && argc == 6)
		hints(first, (unsigned int)second, argv[5]);
	else if (!strcmp(what, "late") && argc == 4)
		late(first);
	else if (!strcmp(what, "dead") && argc == 4)
		dead(first);
	else if (!strcmp(what, "full") && argc == 4)
		full(first);
	else if (!strcmp(what, "delete") && argc == 5)
		delete(first, argv[4]);
	else if (!strcmp(what, "end") && argc == 5)
		end(first, second);
	else
		kv_die("no test %s", what);
	return wrong ? 1 : 0;
}
