// SPDX-License-Identifier: GPL-2.0
/*
 * Change feeds (journals): a reader that follows one knows which tagged blocks a pool has.
 *
 * usage: guest_journal_follow NODE follow STOP-FILE
 *	Follows, and prints "following" once it has caught up. When STOP-FILE exists,
 *	waits until its set is equal to that of a new journal, at most for one pass of
 *	the index sweep. Prints "same=1 blocks=N stored=N removed=N".
 *	or: guest_journal_follow NODE input|late|end
 *	The interface: bad input; a late reader; a pool that is destroyed.
 */
#include <poll.h>
#include <stdarg.h>

#include "kv_io.h"

#define ROOM		65536u
#define RECORDS		512u
#define SET_MAX		(1u << 20)

static const char *node;
static int wrong;

#define WANT(got, want, ...) want_eq((long long)(got), (long long)(want), #got, __VA_ARGS__)

static void __attribute__((format(printf, 4, 5)))
want_eq(long long got, long long want, const char *what, const char *format, ...)
{
	va_list args;

	if (got == want)
		return;
	wrong++;
	printf("%s is %lld, not %lld: ", what, got, want);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	printf("\n");
}

static int journal(int fd, uint32_t flags, uint32_t nr)
{
	struct kvblk_journal arg = { .size = sizeof(arg), .flags = flags, .nr_records = nr };
	int ret = ioctl(fd, KVBLK_IOC_JOURNAL, &arg);

	return ret < 0 ? -errno : ret;
}

static int journal_must(uint32_t flags, uint32_t nr)
{
	int fd = kv_open(node), ret = journal(fd, flags, nr);

	errno = ret < 0 ? -ret : 0;
	if (ret < 0)
		kv_die("no journal");
	close(fd);
	return ret;
}

/* Read whole records. Returns their number or a negative errno. */
static ssize_t take(int fd, struct kvblk_journal_record *records, size_t nr)
{
	ssize_t got = read(fd, records, nr * sizeof(*records));

	if (got < 0)
		return -errno;
	if ((size_t)got % sizeof(*records))
		kv_die("a part of a record");
	return got / (ssize_t)sizeof(*records);
}

struct set {
	uint64_t token[SET_MAX], tag[SET_MAX];	/* tag 0: free, or removed */
	uint64_t blocks, stored, removed;
};

static uint64_t *set_tag(struct set *set, uint64_t token)
{
	uint64_t at = kv_mix(token) % SET_MAX;

	/* slots are never reused: the test has few tokens */
	while (set->token[at] && set->token[at] != token)
		at = (at + 1) % SET_MAX;
	set->token[at] = token;
	return &set->tag[at];
}

static void set_apply(struct set *set, const struct kvblk_journal_record *r)
{
	uint64_t *tag = set_tag(set, r->token);

	if (r->op == KVBLK_JOURNAL_STORED) {
		if (!r->caller_tag || !r->length)
			kv_die("stored without a tag or a length");
		set->blocks += !*tag;
		*tag = r->caller_tag;
		set->stored++;
	} else if (r->op == KVBLK_JOURNAL_REMOVED) {
		/* a new journal does not report the store of a block that has already expired */
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
	int fd = journal_must(KVBLK_JOURNAL_PRESENT, ROOM);
	struct kvblk_journal_record records[RECORDS];
	ssize_t nr;

	memset(set, 0, sizeof(*set));
	for (;;) {
		nr = take(fd, records, RECORDS);
		if (nr <= 0)
			kv_die("read of what is there: %zd", nr);
		for (ssize_t i = 0; i < nr; i++) {
			if (records[i].op == KVBLK_JOURNAL_CAUGHT_UP) {
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
	struct kvblk_journal_record records[RECORDS];
	ssize_t nr = take(fd, records, RECORDS);

	if (nr == -EAGAIN)
		return false;
	if (nr <= 0)
		kv_die("read: %zd", nr);
	for (ssize_t i = 0; i < nr; i++) {
		if (records[i].op == KVBLK_JOURNAL_CAUGHT_UP) {
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
	int fd = journal_must(KVBLK_JOURNAL_PRESENT | KVBLK_JOURNAL_NONBLOCK, ROOM);
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
	struct { struct kvblk_journal io; uint64_t tail[2]; } j = { 0 };
	int fd = kv_open(node), many[20], writer = open(node, O_WRONLY | O_CLOEXEC), n;
	struct kvblk_journal_record records[4];

	WANT(kv_info(fd).features & KVBLK_FEAT_JOURNAL, KVBLK_FEAT_JOURNAL, "info");
	j.io.nr_records = 1024;
	WANT(ioctl(fd, KVBLK_IOC_JOURNAL, &j) < 0 ? -errno : 0, -EINVAL, "size 0");
	j.io.size = sizeof(j.io) - 1;
	WANT(ioctl(fd, KVBLK_IOC_JOURNAL, &j) < 0 ? -errno : 0, -EINVAL, "one short");
	j.io.size = sizeof(j);
	j.tail[1] = 1;
	WANT(ioctl(fd, KVBLK_IOC_JOURNAL, &j) < 0 ? -errno : 0, -E2BIG, "a tail");
	j.io.size = sizeof(j.io);
	j.io.reserved = 1;
	WANT(ioctl(fd, KVBLK_IOC_JOURNAL, &j) < 0 ? -errno : 0, -EINVAL, "reserved");
	WANT(ioctl(fd, KVBLK_IOC_JOURNAL, NULL) < 0 ? -errno : 0, -EFAULT, "NULL");
	WANT(journal(fd, 4, 1024), -EOPNOTSUPP, "a flag");
	WANT(journal(fd, 1u << 31, 1024), -EOPNOTSUPP, "a flag");
	WANT(journal(fd, 0, 0), -EINVAL, "no records");
	WANT(journal(fd, 0, 512), -EINVAL, "few records");
	WANT(journal(fd, 0, 1025), -EINVAL, "no power of two");
	WANT(journal(fd, 0, KVBLK_JOURNAL_MAX * 2), -EINVAL, "many records");
	WANT(journal(writer, 0, 1024), -EBADF, "a node that is open for writing");
	for (n = 0; n < 20 && (many[n] = journal(fd, 0, 1024)) >= 0; n++)
		;
	WANT(n, 16, "journals of a pool");
	WANT(n < 20 ? many[n] : 0, -EMFILE, "one more");
	WANT(fcntl(many[0], F_GETFD), FD_CLOEXEC, "close-on-exec");
	WANT(fcntl(many[0], F_GETFL) & (O_ACCMODE | O_NONBLOCK), O_RDONLY, "how it is open");
	WANT(write(many[0], records, 32) < 0 ? -errno : 0, -EBADF, "write");
	WANT(lseek(many[0], 0, SEEK_SET), 0, "seeking does nothing");
	while (n-- > 1)
		close(many[n]);
	WANT(read(many[0], records, sizeof(records) - 1) < 0 ? -errno : 0, -EINVAL, "3 records");
	WANT(fcntl(many[0], F_SETFL, O_NONBLOCK), 0, "O_NONBLOCK");
	WANT(take(many[0], records, 4), -EAGAIN, "nothing");
	n = journal(fd, KVBLK_JOURNAL_PRESENT | KVBLK_JOURNAL_NONBLOCK, 1024);
	WANT(read(n, (void *)0xffffffff81000000ull, 1024) < 0 ? -errno : 0, -EFAULT, "the kernel");
	WANT(take(n, records, 4), 1, "what could not be delivered comes again");
	WANT(records[0].op, KVBLK_JOURNAL_CAUGHT_UP, "an empty pool");
	if (setresuid(65534, 65534, 65534))
		kv_die("setresuid");
	WANT(journal(fd, 0, 1024), -EPERM, "without CAP_SYS_ADMIN");
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
	int fd = journal_must(KVBLK_JOURNAL_NONBLOCK, 1024);
	struct kvblk_journal_record records[2048];
	ssize_t nr;

	/* a single lost record starts the loss: none is kept until the loss is reported */
	come_and_go(7000000, 520);
	nr = take(fd, records, 2048);
	WANT(nr, 1025, "1024 records and one that tells of others");
	for (ssize_t i = 0; i < 1024 && i < nr; i++) {
		WANT(records[i].seq, i + 1, "record %zd", i);
		WANT(records[i].caller_tag, 7000000 + i / 2, "record %zd", i);
		WANT(records[i].op, i % 2 ? KVBLK_JOURNAL_REMOVED : KVBLK_JOURNAL_STORED,
		     "record %zd", i);
		WANT(records[i].token, records[i & ~1].token, "record %zd", i);
	}
	WANT(records[1024].op, KVBLK_JOURNAL_LOST, "the last one");
	WANT(records[1024].token, 1040 - 1024, "how many");
	WANT(records[1024].seq, 1025, "the first of them");
	come_and_go(7100000, 1);
	WANT(take(fd, records, 2048), 2, "after it");
	WANT(records[0].seq, 1041, "after it");
	/* closing the journal drops the unread records */
	come_and_go(7200000, 10);
}

static void end(void)
{
	int fd = journal_must(0, 1024);
	struct pollfd ready = { .fd = fd, .events = POLLIN };
	struct kvblk_journal_record records[1024];
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
}

int main(int argc, char **argv)
{
	const char *what = argc > 2 ? argv[2] : "";

	node = argv[1];
	if (!strcmp(what, "follow") && argc == 4)
		follow(argv[3]);
	else if (!strcmp(what, "input") && argc == 3)
		input();
	else if (!strcmp(what, "late") && argc == 3)
		late();
	else if (!strcmp(what, "end") && argc == 3)
		end();
	else
		kv_die("usage: guest_journal_follow NODE follow STOP-FILE | input | late | end");
	return wrong ? 1 : 0;
}
