// SPDX-License-Identifier: GPL-2.0
/*
 * Change feeds, the node "changes" beside NODE: a reader that follows one knows which tagged blocks
 * a pool has.
 *
 * usage: guest_changes NODE follow STOP-FILE
 *	Follows, and prints "following" once it has caught up. When STOP-FILE exists,
 *	waits until its set is equal to that of a new feed, at most for one pass of
 *	the index sweep. Prints "same=1 blocks=N stored=N removed=N".
 *	or: guest_changes NODE input|records|late|end
 *	The interface: bad input; sizes of records, and tokens; a late reader; a pool that is
 *	destroyed.
 */
#include <grp.h>
#include <poll.h>
#include <sys/wait.h>

#include "kv_io.h"
#include "want.h"

#define ROOM		65536u
#define RECORDS		512u
#define SET_MAX		(1u << 20)

static const char *node;
static char changes_node[256];

static int changes_open(int flags)
{
	int fd = open(changes_node, O_RDONLY | O_CLOEXEC | flags);

	if (fd < 0)
		kv_die("can't open %s", changes_node);
	return fd;
}

static int start(int fd, uint32_t flags, uint32_t nr, uint32_t record_size)
{
	struct kvblk_changes arg = {
		.size = sizeof(arg), .flags = flags, .nr_records = nr, .record_size = record_size,
	};

	return kv_ioctl(fd, KVBLK_IOC_CHANGES, &arg);
}

/* Return a feed of @nr records that is open with @open_flags. */
static int feed(int open_flags, uint32_t flags, uint32_t nr)
{
	int fd = changes_open(open_flags), err = start(fd, flags, nr, sizeof(struct kvblk_change));

	errno = -err;
	if (err)
		kv_die("no feed");
	return fd;
}

/* Read whole records. Returns their number or a negative errno. */
static ssize_t take(int fd, struct kvblk_change *records, size_t nr)
{
	ssize_t got = read(fd, records, nr * sizeof(*records));

	if (got < 0)
		return -errno;
	if ((size_t)got % sizeof(*records))
		kv_die("a part of a record");
	return got / (ssize_t)sizeof(*records);
}

struct token {
	uint64_t word[2];
};

struct set {
	struct token token[SET_MAX];
	uint64_t tag[SET_MAX];	/* 0: free, or removed */
	uint64_t blocks, stored, removed;
};

static struct token token_of(const struct kvblk_change *record)
{
	return (struct token){ { record->token[0], record->token[1] } };
}

static bool token_same(struct token a, struct token b)
{
	return a.word[0] == b.word[0] && a.word[1] == b.word[1];
}

static uint64_t *set_tag(struct set *set, struct token token)
{
	uint64_t at = kv_mix(token.word[0]) % SET_MAX;

	/* slots are never reused: the test has few tokens */
	while (set->token[at].word[0] && !token_same(set->token[at], token))
		at = (at + 1) % SET_MAX;
	set->token[at] = token;
	return &set->tag[at];
}

static void set_apply(struct set *set, const struct kvblk_change *r)
{
	uint64_t *tag = set_tag(set, token_of(r));

	if (r->op == KVBLK_CHANGE_STORED) {
		if (!r->caller_tag || !r->length)
			kv_die("stored without a tag or a length");
		set->blocks += !*tag;
		*tag = r->caller_tag;
		set->stored++;
	} else if (r->op == KVBLK_CHANGE_REMOVED) {
		/* a new feed does not report the store of a block that has already expired */
		if (*tag)
			WANT(r->caller_tag, *tag, "removed with another tag than it had");
		set->blocks -= !!*tag;
		*tag = 0;
		set->removed++;
	} else {
		errno = 0;
		kv_die("op %u", r->op);
	}
}

static bool set_same(const struct set *a, struct set *b)
{
	if (a->blocks != b->blocks)
		return false;
	for (unsigned int i = 0; i < SET_MAX; i++)
		if (a->tag[i] && *set_tag(b, a->token[i]) != a->tag[i])
			return false;
	return true;
}

static void set_read(struct set *set)
{
	int fd = feed(0, KVBLK_CHANGES_PRESENT, ROOM);
	struct kvblk_change records[RECORDS];
	ssize_t nr;

	memset(set, 0, sizeof(*set));
	for (;;) {
		nr = take(fd, records, RECORDS);
		if (nr <= 0)
			kv_die("read of what is there: %zd", nr);
		for (ssize_t i = 0; i < nr; i++) {
			if (records[i].op == KVBLK_CHANGE_CAUGHT_UP) {
				close(fd);
				return;
			}
			set_apply(set, &records[i]);
		}
	}
}

static struct set followed, fresh;

/* Apply the records that can be read now. Returns false if there were none. */
static bool follow_some(int fd, uint64_t *seq)
{
	struct kvblk_change records[RECORDS];
	ssize_t nr = take(fd, records, RECORDS);

	if (nr == -EAGAIN)
		return false;
	if (nr <= 0)
		kv_die("read: %zd", nr);
	for (ssize_t i = 0; i < nr; i++) {
		if (records[i].op == KVBLK_CHANGE_CAUGHT_UP) {
			printf("following\n");
			fflush(stdout);
			continue;
		}
		/* records of blocks present at the start have no number */
		if (records[i].seq)
			WANT(records[i].seq, ++*seq, "a number is missing");
		set_apply(&followed, &records[i]);
	}
	return true;
}

static void follow(const char *stop_file)
{
	int fd = feed(O_NONBLOCK, KVBLK_CHANGES_PRESENT, ROOM);
	struct pollfd ready = { .fd = fd, .events = POLLIN };
	uint64_t seq = 0, end;
	bool same = false;

	while (access(stop_file, F_OK)) {
		poll(&ready, 1, 100);
		while (follow_some(fd, &seq) && wrong < 10)
			;
	}
	end = kv_now_ms() + 180000ull * kv_slow();
	while (!same && kv_now_ms() < end) {
		set_read(&fresh);
		while (follow_some(fd, &seq))
			;
		same = set_same(&followed, &fresh);
		if (!same)
			usleep(500000);
	}
	printf("same=%d blocks=%llu stored=%llu removed=%llu\n", same,
	       (unsigned long long)followed.blocks, (unsigned long long)followed.stored,
	       (unsigned long long)followed.removed);
	wrong += !same;
}

static void input(void)
{
	const uint32_t size = sizeof(struct kvblk_change);
	struct { struct kvblk_changes io; uint64_t tail[2]; } c = { 0 };
	int fd = changes_open(0), data = kv_open(node), many[21] = { 0 }, n;
	struct pollfd ready = { .fd = fd, .events = POLLIN };
	struct kvblk_change records[4];

	WANT(take(fd, records, 4), -EINVAL, "a read before the start");
	WANT(poll(&ready, 1, 0), 1, "poll before the start");
	WANT(ready.revents, POLLERR, "poll before the start");
	c.io.nr_records = 1024;
	c.io.record_size = size;
	WANT(kv_ioctl(fd, KVBLK_IOC_CHANGES, &c), -EINVAL, "size 0");
	c.io.size = KVBLK_CHANGES_SIZE_VER0 - 1;
	WANT(kv_ioctl(fd, KVBLK_IOC_CHANGES, &c), -EINVAL, "one short");
	c.io.size = KVBLK_STRUCT_MAX + 1;
	WANT(kv_ioctl(fd, KVBLK_IOC_CHANGES, &c), -E2BIG, "size 4097");
	c.io.size = sizeof(c);
	c.tail[1] = 1;
	WANT(kv_ioctl(fd, KVBLK_IOC_CHANGES, &c), -E2BIG, "a tail");
	WANT(kv_ioctl(fd, KVBLK_IOC_CHANGES, NULL), -EFAULT, "NULL");
	WANT(start(fd, 2, 1024, size), -EOPNOTSUPP, "a flag");
	WANT(start(fd, 1u << 31, 1024, size), -EOPNOTSUPP, "a flag");
	WANT(start(fd, 0, 0, size), -EINVAL, "no records");
	WANT(start(fd, 0, 512, size), -EINVAL, "few records");
	WANT(start(fd, 0, 1025, size), -EINVAL, "no power of two");
	WANT(start(fd, 0, KVBLK_CHANGES_MAX * 2, size), -EINVAL, "many records");
	WANT(start(fd, 0, 1024, 0), -EINVAL, "records of 0 bytes");
	WANT(start(fd, 0, 1024, KVBLK_CHANGE_SIZE_VER0 - 1), -EINVAL, "short records");
	WANT(start(fd, 0, 1024, KVBLK_STRUCT_MAX + 1), -EINVAL, "long records");
	WANT(kv_ioctl(fd, KVBLK_IOC_INFO, &c), -ENOTTY, "a command of the other node");
	WANT(start(data, 0, 1024, size), -ENOTTY, "a command of this node");
	WANT(write(fd, records, size) < 0 ? -errno : 0, -EBADF, "write");
	WANT(lseek(fd, 0, SEEK_SET) < 0 ? -errno : 0, -ESPIPE, "seek");

	c.tail[1] = 0;
	WANT(kv_ioctl(fd, KVBLK_IOC_CHANGES, &c), 0, "a tail of zeroes");
	WANT(start(fd, 0, 1024, size), -EBUSY, "a second start");
	for (n = 0; n < 20; n++) {
		many[n] = changes_open(0);
		if (start(many[n], 0, 1024, size))
			break;
	}
	WANT(n, 15, "more feeds of a pool");
	WANT(start(many[n], 0, 1024, size), -EMFILE, "one more");
	close(many[0]);
	WANT(start(many[n], 0, 1024, size), 0, "instead of another one");
	while (n)
		close(many[n--]);

	WANT(read(fd, records, sizeof(records) - 1) < 0 ? -errno : 0, -EINVAL, "3 records");
	WANT(poll(&ready, 1, 0), 0, "poll of nothing");
	WANT(fcntl(fd, F_SETFL, O_NONBLOCK), 0, "O_NONBLOCK");
	WANT(take(fd, records, 4), -EAGAIN, "nothing");
	close(fd);
	fd = feed(O_NONBLOCK, KVBLK_CHANGES_PRESENT, 1024);
	WANT(read(fd, (void *)0xffffffff81000000ull, 1024) < 0 ? -errno : 0, -EFAULT, "the kernel");
	WANT(take(fd, records, 4), 1, "what could not be delivered comes again");
	WANT(records[0].op, KVBLK_CHANGE_CAUGHT_UP, "an empty pool");
	WANT(records[0].seq, 0, "its number");
	WANT(take(fd, records, 4), -EAGAIN, "nothing else");

	/* the node's mode decides, and nothing else */
	fd = changes_open(0);
	if (setgroups(0, NULL) || setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534))
		kv_die("can't become nobody");
	WANT(open(changes_node, O_RDONLY) < 0 ? -errno : 0, -EACCES, "an open by nobody");
	WANT(start(fd, 0, 1024, size), 0, "without any capability");
}

#define LONG_RECORD	(sizeof(struct kvblk_change) + 24)

/* Records of any size, in two feeds that agree; tokens. */
static void records(void)
{
	int longs = changes_open(O_NONBLOCK), shorts = feed(0, 0, 1024), late;
	uint8_t buf[4 * LONG_RECORD];
	struct kvblk_change r[8], l;
	int fd = kv_open(node);
	char byte = 1;
	pid_t child;

	WANT(start(longs, 0, 1024, LONG_RECORD), 0, "long records");
	/* the reader waits for a put, unless that comes first */
	child = fork();
	if (!child) {
		kv_put_tagged(fd, 6000000, &byte, 1, 11);
		kv_delete(fd, 6000000);
		kv_put_tagged(fd, 6000000, &byte, 1, 12);
		kv_put(fd, 6000001, &byte, 1);
		kv_put_tagged(fd, 6000002, &byte, 1, 11);
		_exit(0);
	}
	for (ssize_t n = 0, nr; n < 4; n += nr) {
		nr = take(shorts, r + n, 4);
		if (nr <= 0)
			kv_die("read: %zd", nr);
	}
	waitpid(child, NULL, 0);
	memset(buf, KV_UNTOUCHED, sizeof(buf));
	WANT(read(longs, buf, 4 * LONG_RECORD - 1) < 0 ? -errno : 0, -EINVAL, "3 long records");
	WANT(read(longs, buf, sizeof(buf)), 4 * LONG_RECORD, "4 long records");
	for (unsigned int i = 0; i < 4; i++) {
		memcpy(&l, buf + i * LONG_RECORD, sizeof(l));
		WANT(memcmp(&l, &r[i], sizeof(l)), 0, "record %u in both feeds", i);
		WANT(kv_other_than(0, buf + i * LONG_RECORD + sizeof(l), LONG_RECORD - sizeof(l)), -1,
		     "behind record %u", i);
		WANT(r[i].seq, i + 1, "record %u", i);
		WANT(r[i].op, i == 1 ? KVBLK_CHANGE_REMOVED : KVBLK_CHANGE_STORED, "record %u", i);
		WANT(r[i].caller_tag, i == 2 ? 12 : 11, "record %u", i);
		WANT(r[i].length, 1, "record %u", i);
		WANT(r[i].tenant | r[i].reserved, 0, "record %u", i);
	}
	WANT(token_same(token_of(&r[0]), token_of(&r[1])), true, "tokens of a block");
	WANT(token_same(token_of(&r[0]), token_of(&r[2])), true, "tokens of a block that came back");
	WANT(token_same(token_of(&r[0]), token_of(&r[3])), false, "tokens of two blocks");

	/* a late reader finds the tokens among the present blocks, in any order */
	late = feed(O_NONBLOCK, KVBLK_CHANGES_PRESENT, 1024);
	WANT(take(late, r, 8), 3, "two present blocks and the end");
	WANT(r[0].seq | r[1].seq | r[2].seq, 0, "their numbers");
	WANT(r[2].op, KVBLK_CHANGE_CAUGHT_UP, "the end");
	WANT(token_same(token_of(&r[0]), token_of(&l)) + token_same(token_of(&r[1]), token_of(&l)), 1,
	     "the token of a present block");
	for (uint64_t nr = 6000000; nr < 6000003; nr++)
		kv_delete(fd, nr);
}

/* Store @nr blocks and delete them: two records each. */
static void come_and_go(uint64_t first, unsigned int nr)
{
	int fd = kv_open(node);
	char byte = 1;

	for (unsigned int i = 0; i < nr; i++) {
		WANT(kv_put_tagged(fd, first + i, &byte, 1, first + i).res, 1, "put");
		WANT(kv_delete(fd, first + i).res, 0, "delete");
	}
	close(fd);
}

static void late(void)
{
	int fd = feed(O_NONBLOCK, 0, 1024);
	struct kvblk_change records[2048];
	ssize_t nr;

	/* a single lost record starts the loss: none is kept until the loss is reported */
	come_and_go(7000000, 520);
	nr = take(fd, records, 2048);
	WANT(nr, 1025, "1024 records and one that tells of others");
	for (ssize_t i = 0; i < 1024 && i < nr; i++) {
		WANT(records[i].seq, i + 1, "record %zd", i);
		WANT(records[i].caller_tag, 7000000 + i / 2, "record %zd", i);
		WANT(records[i].op, i % 2 ? KVBLK_CHANGE_REMOVED : KVBLK_CHANGE_STORED,
		     "record %zd", i);
		WANT(token_same(token_of(&records[i]), token_of(&records[i & ~1])), true,
		     "token of record %zd", i);
	}
	WANT(records[1024].op, KVBLK_CHANGE_LOST, "the last one");
	WANT(records[1024].token[0], 1040 - 1024, "how many");
	WANT(records[1024].seq, 1025, "the first of them");
	come_and_go(7100000, 1);
	WANT(take(fd, records, 2048), 2, "after it");
	WANT(records[0].seq, 1041, "after it");
	/* closing the feed drops the unread records */
	come_and_go(7200000, 10);
}

static void end(void)
{
	int fd = feed(0, 0, 1024), unstarted = changes_open(0);
	struct pollfd ready = { .fd = fd, .events = POLLIN };
	struct kvblk_change records[1024];
	unsigned int own = 0;
	ssize_t nr;

	come_and_go(7300000, 2);
	printf("open\n");
	fflush(stdout);
	while (poll(&ready, 1, -1) == 1 && !(ready.revents & POLLHUP))
		usleep(10000);
	nr = take(fd, records, 1024);
	/* skip the records of other blocks, which may expire meanwhile */
	for (ssize_t i = 0; i < nr; i++)
		own += records[i].caller_tag / 2 == 7300000 / 2;
	WANT(own, 4, "what is left is read");
	WANT(take(fd, records, 16), 0, "and then it is over");
	WANT(start(unstarted, 0, 1024, sizeof(*records)), -ENODEV, "a start after the end");
}

int main(int argc, char **argv)
{
	const char *what;

	if (argc < 3)
		kv_die("usage: guest_changes NODE follow STOP-FILE | input | records | late | end");
	node = argv[1];
	snprintf(changes_node, sizeof(changes_node), "%.*schanges",
		 (int)(strrchr(node, '/') + 1 - node), node);
	what = argv[2];
	if (!strcmp(what, "follow") && argc == 4)
		follow(argv[3]);
	else if (!strcmp(what, "input") && argc == 3)
		input();
	else if (!strcmp(what, "records") && argc == 3)
		records();
	else if (!strcmp(what, "late") && argc == 3)
		late();
	else if (!strcmp(what, "end") && argc == 3)
		end();
	else
		kv_die("no test %s", what);
	return wrong ? 1 : 0;
}
