// SPDX-License-Identifier: MIT
/*
 * LD_PRELOAD library: forwards a program's system calls on /dev/kvblk/POOL/... to carry_server in
 * the VM at KVBLK_CARRY=ADDRESS:PORT, where the real module handles each call. Not supported:
 * io_uring; registered memory is registered here only. KVBLK_CARRY_BEFORE_GET=COMMAND is run in
 * the VM once, before the program's first get.
 *
 * The local descriptor of a node refers to /dev/null, so poll(2), fstat(2) and fork(2) work on
 * the host.
 */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>

#include <linux/kvblk.h>

#include "carry.h"

#define DIRECTORY	"/dev/kvblk/"
#define MAX_FDS		1024
#define MAX_REGIONS	256
#define MAX_IDLE	64

/* protects everything below */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct node {
	int owner;		/* connection whose end closes the node; 0: not a node */
	uint32_t session;
	struct { char *addr; uint64_t length; } regions[MAX_REGIONS]; /* length 0: free */
} nodes[MAX_FDS];
static int idle[MAX_IDLE], nr_idle;
static pid_t idle_of;		/* owner of the idle connections */

/* Attempts, because QEMU's network may drop a freshly accepted connection. */
#define TRIES	10

static int connect_to(const struct sockaddr_in *address)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct timeval patience = { .tv_sec = 20 };
	char hello;

	if (fd < 0)
		return -errno;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){ 1 }, sizeof(int));
	/* time out: QEMU may accept a connection and fail to make it in the VM, silently */
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	if (connect(fd, (const struct sockaddr *)address, sizeof(*address)) ||
	    !receive_all(fd, &hello, 1)) {
		close(fd);
		return -EHOSTUNREACH;
	}
	patience.tv_sec = 0;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	return fd;
}

static int connection(void)
{
	const char *where = getenv("KVBLK_CARRY");
	struct sockaddr_in address = { .sin_family = AF_INET };
	char host[64];
	int port, fd = -EHOSTUNREACH;

	if (!where || sscanf(where, "%63[^:]:%d", host, &port) != 2)
		return -EHOSTUNREACH;
	address.sin_port = htons((uint16_t)port);
	if (!inet_aton(host, &address.sin_addr))
		return -EHOSTUNREACH;
	for (int i = 0; i < TRIES; i++) {
		fd = connect_to(&address);
		if (fd != -EHOSTUNREACH)
			break;
		usleep(100000);
	}
	return fd;
}

static int get_idle(void)
{
	int fd = -1;

	pthread_mutex_lock(&lock);
	if (idle_of != getpid()) {
		/* after fork() the connections belong to the parent; exec() closes the descriptors */
		nr_idle = 0;
		idle_of = getpid();
	}
	if (nr_idle)
		fd = idle[--nr_idle];
	pthread_mutex_unlock(&lock);
	return fd >= 0 ? fd : connection();
}

static void put_idle(int fd)
{
	pthread_mutex_lock(&lock);
	if (idle_of == getpid() && nr_idle < MAX_IDLE) {
		idle[nr_idle++] = fd;
		fd = -1;
	}
	pthread_mutex_unlock(&lock);
	if (fd >= 0)
		close(fd);
}

/* Growing payload of a request. */
struct text {
	char *bytes;
	size_t len, room;
};

static void add(struct text *t, const void *bytes, size_t len)
{
	if (t->len + len > t->room) {
		t->room = (t->len + len) * 2;
		t->bytes = realloc(t->bytes, t->room);
		if (!t->bytes)
			abort();
	}
	memcpy(t->bytes + t->len, bytes, len);
	t->len += len;
}

/*
 * Send a request and receive the head of its reply. Returns 0, or -EIO if the VM does not
 * respond.
 */
static int ask(int fd, struct carry_request head, const struct text *payload,
	       struct carry_reply *answer)
{
	head.len = payload->len;
	if (!send_all(fd, &head, sizeof(head)) || !send_all(fd, payload->bytes, payload->len) ||
	    !receive_all(fd, answer, sizeof(*answer)))
		return -EIO;
	return 0;
}

static bool is_node(const char *path)
{
	return !strncmp(path, DIRECTORY, strlen(DIRECTORY));
}

static int open_node(const char *path, int flags)
{
	struct text payload = { .bytes = (char *)path, .len = strlen(path) };
	struct carry_reply answer = { .ret = -EIO };
	static int (*next)(const char *path, int flags, ...);
	int owner = connection(), fd;

	if (owner < 0) {
		errno = -owner;
		return -1;
	}
	if (!ask(owner, (struct carry_request){ .what = CARRY_OPEN }, &payload, &answer) &&
	    answer.ret >= 0) {
		if (!next)
			next = dlsym(RTLD_NEXT, "open");
		fd = next("/dev/null", flags & ~O_CREAT);
		if (fd >= 0 && fd < MAX_FDS) {
			pthread_mutex_lock(&lock);
			memset(&nodes[fd], 0, sizeof(nodes[fd]));
			nodes[fd].owner = owner;
			nodes[fd].session = (uint32_t)answer.ret;
			pthread_mutex_unlock(&lock);
			return fd;
		}
		answer.ret = -EMFILE;
	}
	close(owner);
	errno = -answer.ret;
	return -1;
}

static mode_t mode_of(int flags, va_list args)
{
	return flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(args, mode_t) : 0;
}

#define OPEN(name)								\
int name(const char *path, int flags, ...)					\
{										\
	static int (*next)(const char *path, int flags, ...);			\
	va_list args;								\
	mode_t mode;								\
										\
	if (is_node(path))							\
		return open_node(path, flags);					\
	va_start(args, flags);							\
	mode = mode_of(flags, args);						\
	va_end(args);								\
	if (!next)								\
		next = dlsym(RTLD_NEXT, #name);					\
	return next(path, flags, mode);						\
}

OPEN(open)
OPEN(open64)

int close(int fd)
{
	static int (*next)(int fd);
	int owner = 0;

	if (!next)
		next = dlsym(RTLD_NEXT, "close");
	if (fd >= 0 && fd < MAX_FDS) {
		pthread_mutex_lock(&lock);
		owner = nodes[fd].owner;
		nodes[fd].owner = 0;
		pthread_mutex_unlock(&lock);
	}
	if (owner)
		next(owner);
	return next(fd);
}

/* Return the memory of a piece, NULL if the piece exceeds its buffer. */
static char *memory_of(struct node *node, const struct kvblk_piece *piece)
{
	if (piece->type == KVBLK_PIECE_USER)
		return (char *)(uintptr_t)piece->addr;
	if (piece->handle >= MAX_REGIONS ||
	    piece->addr + piece->length > node->regions[piece->handle].length)
		return NULL;
	return node->regions[piece->handle].addr + piece->addr;
}

/* Convert a deadline to the time left, because the VM has its own clock. */
static uint64_t time_left(uint64_t deadline)
{
	struct timespec now;
	uint64_t ns;

	if (!deadline)
		return 0;
	clock_gettime(CLOCK_MONOTONIC, &now);
	ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
	return deadline > ns ? deadline - ns : 1;
}

/*
 * Append an operation, its key, extension, parent, the lengths of its pieces, and the bytes of a
 * put.
 */
static int put_op(struct node *node, struct text *t, const struct kvblk_op *op)
{
	const struct kvblk_piece *pieces = (void *)(uintptr_t)op->pieces;
	const struct kvblk_op_ext *ext = (void *)(uintptr_t)op->ext;
	struct kvblk_op sent = *op;

	if (op->key_len > KVBLK_KEY_MAX || op->nr_pieces > KVBLK_PIECES_MAX)
		return -EINVAL;
	sent.deadline_ns = time_left(op->deadline_ns);
	add(t, &sent, sizeof(sent));
	add(t, (void *)(uintptr_t)op->key, op->key_len);
	if (ext) {
		if (ext->checksums || ext->parent_len > KVBLK_KEY_MAX)
			return -EOPNOTSUPP;
		add(t, ext, sizeof(*ext));
		add(t, (void *)(uintptr_t)ext->parent, ext->parent_len);
	}
	for (int i = 0; i < op->nr_pieces; i++) {
		if (!memory_of(node, &pieces[i]))
			return -ENXIO;
		add(t, &pieces[i].length, sizeof(pieces[i].length));
	}
	for (int i = 0; i < op->nr_pieces && op->opcode == KVBLK_OP_PUT; i++)
		add(t, memory_of(node, &pieces[i]), pieces[i].length);
	return 0;
}

static bool deliver(int fd, struct node *node, const struct kvblk_op *op, size_t len)
{
	const struct kvblk_piece *piece = (void *)(uintptr_t)op->pieces;

	for (; len; piece++) {
		size_t n = piece->length < len ? piece->length : len;

		if (!receive_all(fd, memory_of(node, piece), n))
			return false;
		len -= n;
	}
	return true;
}

static pthread_once_t before_get = PTHREAD_ONCE_INIT;

static void run_before_get(void)
{
	char *command = getenv("KVBLK_CARRY_BEFORE_GET"), said[4096];
	struct text payload = { .bytes = command };
	struct carry_reply answer = { .ret = -EIO };
	int fd;

	if (!command)
		return;
	payload.len = strlen(command);
	fd = get_idle();
	if (fd < 0 || ask(fd, (struct carry_request){ .what = CARRY_RUN }, &payload, &answer) ||
	    answer.len >= sizeof(said) || !receive_all(fd, said, answer.len) || answer.ret) {
		fprintf(stderr, "carry: %s: %d\n", command, answer.ret);
		abort();
	}
	put_idle(fd);
}

static int submit(int fd, struct node *node, const struct kvblk_submit_arg *s)
{
	const struct kvblk_op *ops = (void *)(uintptr_t)s->ops;
	struct kvblk_result *results = (void *)(uintptr_t)s->results;
	struct carry_reply answer = { 0 };
	struct text t = { 0 };
	int err = 0;

	if (s->op_size != sizeof(*ops) || s->result_size != sizeof(*results) || !s->nr_ops ||
	    s->nr_ops > KVBLK_OPS_MAX)
		return -EINVAL;
	for (uint32_t i = 0; i < s->nr_ops; i++) {
		if (ops[i].opcode == KVBLK_OP_GET)
			pthread_once(&before_get, run_before_get);
	}
	add(&t, &s->nr_ops, 4);
	add(&t, &s->flags, 4);
	for (uint32_t i = 0; i < s->nr_ops && !err; i++)
		err = put_op(node, &t, &ops[i]);
	if (!err)
		err = ask(fd, (struct carry_request){ .what = CARRY_SUBMIT, .session = node->session },
			  &t, &answer);
	free(t.bytes);
	if (err || answer.ret)
		return err ? err : answer.ret;
	if (!receive_all(fd, results, s->nr_ops * sizeof(*results)))
		return -EIO;
	for (uint32_t i = 0; i < s->nr_ops; i++) {
		if (ops[i].opcode == KVBLK_OP_GET && results[i].res > 0 &&
		    !deliver(fd, node, &ops[i], (size_t)results[i].res))
			return -EIO;
	}
	return 0;
}

static int lookup(int fd, struct node *node, struct kvblk_lookup *l)
{
	const uint16_t *lens = (void *)(uintptr_t)l->key_lens;
	struct carry_reply answer = { 0 };
	struct kvblk_lookup got;
	struct text t = { 0 };
	size_t bytes = (size_t)l->nr_keys * l->key_stride;
	int err;

	if (l->nr_keys > KVBLK_LOOKUP_MAX || l->key_stride > KVBLK_KEY_MAX)
		return -EINVAL;
	add(&t, l, sizeof(*l));
	if (lens) {
		bytes = 0;
		for (uint32_t i = 0; i < l->nr_keys; i++)
			bytes += lens[i];
		add(&t, lens, l->nr_keys * 2ul);
	}
	add(&t, (void *)(uintptr_t)l->keys, bytes);
	err = ask(fd, (struct carry_request){ .what = CARRY_LOOKUP, .session = node->session }, &t, &answer);
	free(t.bytes);
	if (err)
		return err;
	/* no payload: the session has ended in the VM */
	if (!answer.len)
		return answer.ret;
	if (!receive_all(fd, &got, sizeof(got)) ||
	    (l->caller_tags && !receive_all(fd, (void *)(uintptr_t)l->caller_tags, l->nr_keys * 8ul)) ||
	    (l->sizes && !receive_all(fd, (void *)(uintptr_t)l->sizes, l->nr_keys * 4ul)) ||
	    (l->bitmap && !receive_all(fd, (void *)(uintptr_t)l->bitmap, (l->nr_keys + 7) / 8)) ||
	    (l->tiers && !receive_all(fd, (void *)(uintptr_t)l->tiers, l->nr_keys)))
		return -EIO;
	l->nr_leading = got.nr_leading;
	l->nr_present = got.nr_present;
	l->lease = got.lease;
	l->nr_leased = got.nr_leased;
	return answer.ret;
}

static int plain(int fd, struct node *node, unsigned long request, void *arg)
{
	/* the structures of these ioctls begin with their size */
	struct text t = { .bytes = arg, .len = *(uint32_t *)arg };
	struct carry_reply answer = { 0 };
	int err = ask(fd, (struct carry_request){ .what = CARRY_PLAIN, .session = node->session, .ioctl = request },
		      &t, &answer);

	if (err)
		return err;
	return receive_all(fd, arg, answer.len) ? answer.ret : -EIO;
}

static int reg_buf(struct node *node, struct kvblk_reg_buf_arg *reg)
{
	int err = -ENOSPC;

	pthread_mutex_lock(&lock);
	for (uint32_t i = 1; i < MAX_REGIONS && err; i++) {
		if (!node->regions[i].length) {
			node->regions[i].addr = (char *)(uintptr_t)reg->addr;
			node->regions[i].length = reg->length;
			reg->handle = i;
			err = 0;
		}
	}
	pthread_mutex_unlock(&lock);
	return err;
}

static int unreg_buf(struct node *node, const struct kvblk_unreg_buf_arg *unreg)
{
	if (unreg->handle >= MAX_REGIONS || !node->regions[unreg->handle].length)
		return -ENOENT;
	node->regions[unreg->handle].length = 0;
	return 0;
}

static int carry(struct node *node, unsigned long request, void *arg)
{
	struct kvblk_drain_arg drain;
	int fd, ret;

	if (request == KVBLK_IOC_REG_BUF)
		return reg_buf(node, arg);
	if (request == KVBLK_IOC_UNREG_BUF)
		return unreg_buf(node, arg);
	if (request == KVBLK_IOC_DRAIN) {
		drain = *(struct kvblk_drain_arg *)arg;
		drain.deadline_ns = time_left(drain.deadline_ns);
		arg = &drain;
	}
	fd = get_idle();
	if (fd < 0)
		return -EIO;
	if (request == KVBLK_IOC_SUBMIT)
		ret = submit(fd, node, arg);
	else if (request == KVBLK_IOC_LOOKUP)
		ret = lookup(fd, node, arg);
	else if (request == KVBLK_IOC_INFO || request == KVBLK_IOC_LEASE_RELEASE ||
		 request == KVBLK_IOC_CANCEL || request == KVBLK_IOC_DRAIN)
		ret = plain(fd, node, request, arg);
	else
		ret = -ENOTTY;
	/* close after -EIO, because part of a reply may be pending */
	if (ret == -EIO)
		close(fd);
	else
		put_idle(fd);
	return ret;
}

int ioctl(int fd, unsigned long request, ...)
{
	static int (*next)(int fd, unsigned long request, ...);
	va_list args;
	void *arg;
	int ret;

	va_start(args, request);
	arg = va_arg(args, void *);
	va_end(args);
	if (fd < 0 || fd >= MAX_FDS || !nodes[fd].owner) {
		if (!next)
			next = dlsym(RTLD_NEXT, "ioctl");
		return next(fd, request, arg);
	}
	ret = carry(&nodes[fd], request, arg);
	if (ret < 0) {
		errno = -ret;
		return -1;
	}
	return ret;
}
