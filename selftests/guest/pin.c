// SPDX-License-Identifier: GPL-2.0
/*
 * Hold resources of a pool, to prove that other callers are unaffected.
 *
 * usage: guest_pin NODE prefetch|get FIRST COUNT LEN   a ring that is not reaped
 *	or: guest_pin NODE lease FIRST COUNT LEN        for an hour
 *	or: guest_pin NODE lookup FIRST COUNT LEN       COUNT threads, stuck reading their keys
 *	or: guest_pin NODE batch FIRST COUNT LEN        COUNT prefetches by one call
 *	or: guest_pin NODE word NR                      prints the first word of a block
 *
 * The modes that hold print "holding" and continue at SIGUSR1. With KV_UNMAP the ring's buffers
 * are unmapped before that: only the module's pins keep the pages.
 */
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/syscall.h>

#include "kv_io.h"

#define COUNT_MAX	1024u

static int fd;
static uint64_t first;
static unsigned int count;
static size_t len;
static struct kv_key keys[COUNT_MAX];

static void hold(void)
{
	sigset_t go;
	int nr;

	puts("holding");
	fflush(stdout);
	sigemptyset(&go);
	sigaddset(&go, SIGUSR1);
	sigwait(&go, &nr);
}

/*
 * Submit gets or prefetches on a ring with DEFER_TASKRUN, whose completions are not processed
 * until the task enters the kernel to reap them.
 */
static void ring_hold(bool prefetch)
{
	uint8_t *room = kv_map(count * len, MAP_NORESERVE);
	struct kvblk_piece pieces[COUNT_MAX];
	unsigned int good = 0;
	struct io_uring ring;

	if (!prefetch)
		memset(room, 1, count * len);
	if (io_uring_queue_init(COUNT_MAX, &ring, IORING_SETUP_SQE128 | IORING_SETUP_CQE32 |
				IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN))
		kv_die("io_uring_queue_init");
	for (unsigned int i = 0; i < count; i++) {
		uint8_t *sqe = (void *)kv_sqe(&ring, fd, KVBLK_URING_OP, i);
		struct kvblk_op op;

		pieces[i] = kv_piece(room + i * len, len);
		op = kv_op(prefetch ? KVBLK_OP_PREFETCH : KVBLK_OP_GET, &keys[i],
			   prefetch ? NULL : &pieces[i], !prefetch);
		memcpy(sqe + offsetof(struct io_uring_sqe, cmd), &op, sizeof(op));
	}
	if (io_uring_submit(&ring) != (int)count)
		kv_die("io_uring_submit");
	if (getenv("KV_UNMAP"))
		munmap(room, count * len);
	hold();
	for (unsigned int i = 0; i < count; i++)
		good += kv_cqe(&ring, NULL).res >= 0;
	printf("good=%u\n", good);
	io_uring_queue_exit(&ring);
}

static void lease_hold(void)
{
	static uint8_t blob[COUNT_MAX * KVBLK_KEY_MAX];
	static uint16_t lens[COUNT_MAX];
	struct kvblk_lookup io = {
		.size = sizeof(io), .flags = KVBLK_LOOKUP_LEASE, .nr_keys = count,
		.key_lens = kv_addr(lens), .keys = kv_addr(blob), .lease_ms = 3600000,
	};
	uint8_t *at = blob;

	for (unsigned int i = 0; i < count; i++) {
		memcpy(at, keys[i].bytes, keys[i].len);
		at += keys[i].len;
		lens[i] = keys[i].len;
	}
	if (kv_ioctl(fd, KVBLK_IOC_LOOKUP, &io))
		kv_die("KVBLK_IOC_LOOKUP");
	printf("leased=%u\n", io.nr_leased);
	hold();
}

static uint8_t *absent;

static void *lookup_stalled(void *arg)
{
	struct kvblk_lookup io = {
		.size = sizeof(io), .flags = KVBLK_LOOKUP_LEASE, .nr_keys = KVBLK_LOOKUP_MAX,
		.key_stride = 16, .keys = kv_addr(absent), .lease_ms = 1000,
	};

	kv_ioctl(fd, KVBLK_IOC_LOOKUP, &io);
	return NULL;
}

/* Block lookups on a userfaultfd that never provides the page of the keys. */
static void lookup_hold(void)
{
	const size_t bytes = 16 * KVBLK_LOOKUP_MAX;
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register reg = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	int pager = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	struct uffd_msg msg;
	pthread_t thread;

	absent = kv_map(bytes, 0);
	reg.range.start = kv_addr(absent);
	reg.range.len = bytes;
	if (pager < 0 || ioctl(pager, UFFDIO_API, &api) || ioctl(pager, UFFDIO_REGISTER, &reg))
		kv_die("userfaultfd");
	for (unsigned int i = 0; i < count; i++)
		if (pthread_create(&thread, NULL, lookup_stalled, NULL))
			kv_die("pthread_create");
	/* wait until each thread has faulted on its first key */
	for (unsigned int i = 0; i < count;) {
		if (read(pager, &msg, sizeof(msg)) == sizeof(msg))
			i++;
		else
			usleep(1000);
	}
	hold();
	_exit(0);
}

static void batch_run(void)
{
	static struct kvblk_result res[COUNT_MAX];
	static struct kvblk_op ops[COUNT_MAX];
	unsigned int good = 0;

	for (unsigned int i = 0; i < count; i++)
		ops[i] = kv_op(KVBLK_OP_PREFETCH, &keys[i], NULL, 0);
	if (kv_submit(fd, ops, res, count, 0))
		kv_die("KVBLK_IOC_SUBMIT");
	for (unsigned int i = 0; i < count; i++)
		good += res[i].res > 0;
	printf("good=%u\n", good);
}

int main(int argc, char **argv)
{
	sigset_t go;

	if (argc == 4 && !strcmp(argv[2], "word")) {
		printf("%#llx\n", (unsigned long long)
		       kv_page_word(kv_seed(strtoull(argv[3], NULL, 0), 0), 0));
		return 0;
	}
	if (argc != 6)
		return 2;
	sigemptyset(&go);
	sigaddset(&go, SIGUSR1);
	sigprocmask(SIG_BLOCK, &go, NULL);
	first = strtoull(argv[3], NULL, 0);
	count = (unsigned int)strtoul(argv[4], NULL, 0);
	len = strtoul(argv[5], NULL, 0);
	if (count > COUNT_MAX)
		return 2;
	for (unsigned int i = 0; i < count; i++)
		keys[i] = kv_key(first + i);
	fd = kv_open(argv[1]);
	if (!strcmp(argv[2], "prefetch") || !strcmp(argv[2], "get"))
		ring_hold(argv[2][0] == 'p');
	else if (!strcmp(argv[2], "lease"))
		lease_hold();
	else if (!strcmp(argv[2], "lookup"))
		lookup_hold();
	else if (!strcmp(argv[2], "batch"))
		batch_run();
	else
		return 2;
	return 0;
}
