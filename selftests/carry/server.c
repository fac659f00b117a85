// SPDX-License-Identifier: GPL-2.0
/*
 * usage: carry_server PORT
 * VM side of selftests/carry: makes the system calls of programs on the host, on this VM's pools,
 * in one thread per connection. Runs forever.
 */
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

#include <linux/kvblk.h>

#include "carry.h"

#define MAX_SESSIONS	4096

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct { int fd; unsigned int users; } sessions[MAX_SESSIONS]; /* protected by lock */

static _Noreturn void die(const char *what)
{
	perror(what);
	exit(1);
}

static void *memory(size_t len)
{
	void *p = aligned_alloc(4096, (len + 4096) & ~4095ul);

	if (!p)
		die("memory");
	return p;
}

static int open_session(const char *path)
{
	int fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK), id = -ENFILE;

	if (fd < 0)
		return -errno;
	pthread_mutex_lock(&lock);
	for (int i = 0; i < MAX_SESSIONS && id < 0; i++) {
		if (!sessions[i].users) {
			sessions[i].fd = fd;
			sessions[i].users = 1;
			id = i;
		}
	}
	pthread_mutex_unlock(&lock);
	if (id < 0)
		close(fd);
	return id;
}

/* Return the session's descriptor, valid until put_session(); -1 if it has ended. */
static int get_session(uint32_t id)
{
	int fd = -1;

	pthread_mutex_lock(&lock);
	if (id < MAX_SESSIONS && sessions[id].users) {
		sessions[id].users++;
		fd = sessions[id].fd;
	}
	pthread_mutex_unlock(&lock);
	return fd;
}

static void put_session(uint32_t id)
{
	int fd = -1;

	pthread_mutex_lock(&lock);
	if (!--sessions[id].users)
		fd = sessions[id].fd;
	pthread_mutex_unlock(&lock);
	/* without the lock, because close() may take long */
	if (fd >= 0)
		close(fd);
}

static bool reply(int sock, int ret, const void *data, size_t len)
{
	struct carry_reply head = { .ret = ret, .len = len };

	return send_all(sock, &head, sizeof(head)) && send_all(sock, data, len);
}

static int run_ioctl(int fd, uint64_t request, void *arg)
{
	int ret = ioctl(fd, request, arg);

	return ret < 0 ? -errno : ret;
}

/* Return the next @len bytes of a payload. */
static void *take(char **at, size_t len)
{
	char *from = *at;

	*at += len;
	return from;
}

/* Return a deadline on this clock from the time left. */
static uint64_t deadline(uint64_t left)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return left ? (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec + left : 0;
}

static bool plain(int sock, int fd, uint64_t request, void *arg, size_t len)
{
	struct kvblk_drain_arg *drain = arg;

	if (request == KVBLK_IOC_DRAIN && len >= sizeof(*drain))
		drain->deadline_ns = deadline(drain->deadline_ns);
	return reply(sock, run_ioctl(fd, request, arg), arg, len);
}

static bool submit(int sock, int fd, char *at)
{
	struct kvblk_submit_arg s = { .size = sizeof(s) };
	struct kvblk_result *results;
	struct kvblk_piece **pieces;
	struct kvblk_op *ops;
	char **data;
	bool good;
	size_t all;
	int ret;

	s.nr_ops = *(uint32_t *)take(&at, 4);
	s.flags = *(uint32_t *)take(&at, 4);
	ops = memory(s.nr_ops * sizeof(*ops));
	results = memory(s.nr_ops * sizeof(*results));
	pieces = memory(s.nr_ops * sizeof(*pieces));
	data = memory(s.nr_ops * sizeof(*data));
	for (uint32_t i = 0; i < s.nr_ops; i++) {
		struct kvblk_op *op = &ops[i];
		size_t len = 0;

		memcpy(op, take(&at, sizeof(*op)), sizeof(*op));
		op->deadline_ns = deadline(op->deadline_ns);
		op->key = (uintptr_t)take(&at, op->key_len);
		if (op->ext) {
			struct kvblk_op_ext *ext = memory(sizeof(*ext));

			memcpy(ext, take(&at, sizeof(*ext)), sizeof(*ext));
			if (ext->parent)
				ext->parent = (uintptr_t)take(&at, ext->parent_len);
			op->ext = (uintptr_t)ext;
		}
		pieces[i] = memory(op->nr_pieces * sizeof(**pieces));
		memset(pieces[i], 0, op->nr_pieces * sizeof(**pieces));
		for (int j = 0; j < op->nr_pieces; j++) {
			uint32_t part;

			memcpy(&part, take(&at, 4), 4);
			pieces[i][j].length = part;
			len += part;
		}
		data[i] = memory(len);
		if (op->opcode == KVBLK_OP_PUT)
			memcpy(data[i], take(&at, len), len);
		len = 0;
		for (int j = 0; j < op->nr_pieces; j++) {
			pieces[i][j].addr = (uintptr_t)data[i] + len;
			len += pieces[i][j].length;
		}
		op->pieces = op->nr_pieces ? (uintptr_t)pieces[i] : 0;
	}
	s.op_size = sizeof(*ops);
	s.result_size = sizeof(*results);
	s.ops = (uintptr_t)ops;
	s.results = (uintptr_t)results;
	ret = run_ioctl(fd, KVBLK_IOC_SUBMIT, &s);
	all = s.nr_ops * sizeof(*results);
	for (uint32_t i = 0; i < s.nr_ops && !ret; i++) {
		if (ops[i].opcode == KVBLK_OP_GET && results[i].res > 0)
			all += (size_t)results[i].res;
	}
	good = send_all(sock, &(struct carry_reply){ .ret = ret, .len = ret ? 0 : all }, sizeof(struct carry_reply)) &&
	       (ret || send_all(sock, results, s.nr_ops * sizeof(*results)));
	for (uint32_t i = 0; i < s.nr_ops; i++) {
		if (good && !ret && ops[i].opcode == KVBLK_OP_GET && results[i].res > 0)
			good = send_all(sock, data[i], (size_t)results[i].res);
		free((void *)(uintptr_t)ops[i].ext);
		free(pieces[i]);
		free(data[i]);
	}
	free(data);
	free(pieces);
	free(results);
	free(ops);
	return good;
}

static bool lookup(int sock, int fd, char *at)
{
	struct kvblk_lookup *l = take(&at, sizeof(*l));
	size_t bitmap = l->bitmap ? (l->nr_keys + 7) / 8 : 0;
	size_t sizes = l->sizes ? l->nr_keys * 4ul : 0;
	size_t tags = l->caller_tags ? l->nr_keys * 8ul : 0;
	size_t tiers = l->tiers ? l->nr_keys : 0;
	size_t all = sizeof(*l) + tags + sizes + bitmap + tiers;
	char *answer = memory(all);
	size_t key_bytes = (size_t)l->nr_keys * l->key_stride;
	bool good;
	int ret;

	if (l->key_lens) {
		uint16_t *lens = take(&at, l->nr_keys * 2ul);

		l->key_lens = (uintptr_t)lens;
		key_bytes = 0;
	}
	l->keys = (uintptr_t)take(&at, key_bytes);
	l->caller_tags = tags ? (uintptr_t)answer + sizeof(*l) : 0;
	l->sizes = sizes ? (uintptr_t)answer + sizeof(*l) + tags : 0;
	l->bitmap = bitmap ? (uintptr_t)answer + sizeof(*l) + tags + sizes : 0;
	l->tiers = tiers ? (uintptr_t)answer + all - tiers : 0;
	ret = run_ioctl(fd, KVBLK_IOC_LOOKUP, l);
	memcpy(answer, l, sizeof(*l));
	good = reply(sock, ret, answer, all);
	free(answer);
	return good;
}

static bool shell(int sock, const char *command)
{
	size_t len = 0, room = 1 << 20;
	char *text = memory(room), *script;
	FILE *pipe;
	bool good;
	int code;

	if (asprintf(&script, "exec bash <<'END_OF_CARRY' 2>&1\n. /kvblk/selftests/carry/guest.bash\n"
		     "%s\nEND_OF_CARRY\n", command) < 0)
		die("memory");
	pipe = popen(script, "r");
	free(script);
	while (pipe && len < room) {
		size_t n = fread(text + len, 1, room - len, pipe);

		if (!n)
			break;
		len += n;
	}
	code = pipe ? pclose(pipe) : -1;
	good = reply(sock, WIFEXITED(code) ? WEXITSTATUS(code) : 255, text, len);
	free(text);
	return good;
}

static void *serve(void *arg)
{
	int sock = (int)(intptr_t)arg, owned = -1;
	struct carry_request head;
	bool good = true;

	setsockopt(sock, IPPROTO_TCP, TCP_NODELAY, &(int){ 1 }, sizeof(int));
	/* a sign of life: QEMU accepts connections on the host even if no server runs in the VM */
	good = send_all(sock, CARRY_HELLO, 1);
	while (good && receive_all(sock, &head, sizeof(head))) {
		char *payload = memory(head.len + 1);
		int fd = -1;

		if (!receive_all(sock, payload, head.len)) {
			free(payload);
			break;
		}
		payload[head.len] = '\0';
		if (head.what > CARRY_OPEN && head.what < CARRY_RUN) {
			fd = get_session(head.session);
			if (fd < 0)
				head.what = 0;
		}
		switch (head.what) {
		case CARRY_OPEN:
			owned = open_session(payload);
			good = reply(sock, owned, NULL, 0);
			break;
		case CARRY_PLAIN:
			good = plain(sock, fd, head.ioctl, payload, head.len);
			break;
		case CARRY_SUBMIT:
			good = submit(sock, fd, payload);
			break;
		case CARRY_LOOKUP:
			good = lookup(sock, fd, payload);
			break;
		case CARRY_RUN:
			good = shell(sock, payload);
			break;
		default:
			good = reply(sock, -EBADF, NULL, 0);
		}
		if (fd >= 0)
			put_session(head.session);
		free(payload);
	}
	if (owned >= 0)
		put_session((uint32_t)owned);
	close(sock);
	return NULL;
}

int main(int argc, char **argv)
{
	struct sockaddr_in address = { .sin_family = AF_INET };
	int sock = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	pthread_t thread;

	if (argc != 2) {
		fputs("usage: carry_server PORT\n", stderr);
		return 2;
	}
	signal(SIGPIPE, SIG_IGN);
	address.sin_port = htons((uint16_t)atoi(argv[1]));
	setsockopt(sock, SOL_SOCKET, SO_REUSEADDR, &(int){ 1 }, sizeof(int));
	if (bind(sock, (struct sockaddr *)&address, sizeof(address)) || listen(sock, 64))
		die("port");
	for (;;) {
		int from = accept4(sock, NULL, NULL, SOCK_CLOEXEC);

		if (from >= 0 && !pthread_create(&thread, NULL, serve, (void *)(intptr_t)from))
			pthread_detach(thread);
	}
}
