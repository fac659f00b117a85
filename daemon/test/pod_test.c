// SPDX-License-Identifier: MIT
/*
 * Touches and deletes between nodes: what a peer receives, what it can make this host do, hostile
 * messages, changes of pools and configuration, errors. The module is replaced, and the test is
 * the peer.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <systemd/sd-event.h>
#include <time.h>
#include <unistd.h>
#include <zmq.h>

#include <linux/kvblk.h>

#include "free_port.h"
#include "kvblk_test.h"
#include "lib/kvblk_admin.h"
#include "pod/delete_wire.h"
#include "pod/directory.h"
#include "pod/pod.h"
#include "pod/touch_wire.h"

#define WAIT_MS		30000
#define TICK_US		10000

static const uint8_t kv0[16] = "uuid of pool kv0", kv1[16] = "uuid of pool kv1", other[16] = "uuid of a remote";
static const uint8_t id[16] = "the id of a blok";
static const uint8_t this_node[16] = "this host's node", far_node[16] = "another's nodeid";
static const uint8_t asker[16] = "a peer that asks";

/* Ticks come soon, or not at all: then the next one is counted, and is the last. */
static atomic_bool stopped;
static atomic_int last_ticks;

int __real_sd_event_source_set_time_relative(sd_event_source *source, uint64_t us);
int __wrap_sd_event_source_set_time_relative(sd_event_source *source, uint64_t us);

int __wrap_sd_event_source_set_time_relative(sd_event_source *source, uint64_t us)
{
	if (!stopped)
		return __real_sd_event_source_set_time_relative(source, TICK_US);
	last_ticks += us == 1000000;
	return __real_sd_event_source_set_time_relative(source, us * 3600);
}

static atomic_int ahead;	/* seconds by which deletes' clock is ahead */

int __real_clock_gettime(clockid_t clock, struct timespec *ts);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ts);

int __wrap_clock_gettime(clockid_t clock, struct timespec *ts)
{
	int err = __real_clock_gettime(clock, ts);

	if (clock == CLOCK_BOOTTIME)
		ts->tv_sec += ahead;
	return err;
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char said[8192];		/* under @lock */

__attribute__((format(printf, 1, 0)))
static void say(const char *format, va_list args)
{
	size_t len;

	pthread_mutex_lock(&lock);
	len = strlen(said);
	vsnprintf(said + len, sizeof(said) - len, format, args);
	strncat(said, "\n", sizeof(said) - strlen(said) - 1);
	pthread_mutex_unlock(&lock);
}

void log_line(int level, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	say(format, args);
	va_end(args);
}

void log_of(const char *pool, const char *member, int level, const char *format, ...)
{
	va_list args;

	assert_string_equal(pool, "kv0");
	va_start(args, format);
	say(format, args);
	va_end(args);
}

/* Count the lines with @text. */
static int logged(const char *text)
{
	int n = 0;

	pthread_mutex_lock(&lock);
	for (const char *at = said; (at = strstr(at, text)); at++)
		n++;
	pthread_mutex_unlock(&lock);
	return n;
}

/* replacements of libkvblk-admin's functions */

static atomic_bool has_kv1, reports;
static atomic_int open_error, touch_error, opens, touches, touched_ids;
static char touched_pool[KVBLK_NAME_LEN_MAX + 1];	/* under @lock */

int kvblk_admin_open(struct kvblk_admin **admin)
{
	if (open_error)
		return open_error;
	opens++;
	*admin = malloc(1);
	return 0;
}

void kvblk_admin_close(struct kvblk_admin *admin)
{
	free(admin);
}

static struct kvblk_pool_state *pool(const char *name, const uint8_t uuid[16], bool in_pod,
				     struct kvblk_pool_state *next)
{
	struct kvblk_pool_state *state = calloc(1, sizeof(*state));

	snprintf(state->name, sizeof(state->name), "%s", name);
	memcpy(state->uuid, uuid, 16);
	state->pod_uuid[3] = in_pod;
	state->next = next;
	return state;
}

int kvblk_pool_list(struct kvblk_admin *admin, const char *name, struct kvblk_pool_state **list)
{
	assert_null(name);
	*list = pool("kv0", kv0, true, pool("alone", other, false, NULL));
	if (has_kv1)
		*list = pool("kv1", kv1, true, *list);
	return 0;
}

int kvblk_touched_list(struct kvblk_admin *admin, const char *pool, struct kvblk_touched **list)
{
	struct kvblk_touched *touched;

	assert_null(pool);
	*list = NULL;
	if (!reports)
		return 0;
	touched = calloc(1, sizeof(*touched));
	memcpy(touched->owner_pool, other, 16);
	touched->nr = 1;
	touched->ids = id;
	*list = touched;
	return 0;
}

void kvblk_list_free(void *list)
{
	struct link {
		struct link *next;
	} *at = list, *next;

	for (; at; at = next) {
		next = at->next;
		free(at);
	}
}

int kvblk_touch(struct kvblk_admin *admin, const char *pool, const void *ids, size_t nr)
{
	assert_non_null(admin);
	assert_in_range(nr, 1, TOUCHWIRE_IDS);
	pthread_mutex_lock(&lock);
	snprintf(touched_pool, sizeof(touched_pool), "%s", pool);
	pthread_mutex_unlock(&lock);
	touched_ids += (int)nr;
	touches++;
	return touch_error;
}

static atomic_bool stalled;
static atomic_int delete_error, deletes, deleted_ids;
static char deleted_pool[KVBLK_NAME_LEN_MAX + 1];	/* under @lock */

/* Every second block was not there. */
int kvblk_pool_delete(struct kvblk_admin *admin, const char *pool, const uint8_t *ids,
		      unsigned int nr, int32_t *results)
{
	assert_non_null(admin);
	assert_in_range(nr, 1, DELETEWIRE_IDS);
	pthread_mutex_lock(&lock);
	snprintf(deleted_pool, sizeof(deleted_pool), "%s", pool);
	pthread_mutex_unlock(&lock);
	for (unsigned int i = 0; i < nr; i++) {
		assert_memory_equal(ids + (size_t)i * 16, id, 16);
		results[i] = i % 2 ? -ENOENT : 0;
	}
	deleted_ids += (int)nr;
	deletes++;
	while (stalled)
		usleep(1000);
	return delete_error;
}

int kvblk_host_id(uint8_t node[16])
{
	memcpy(node, this_node, sizeof(this_node));
	return 0;
}

/* The node "peers" of pool kv0 is a socket, whose other end is the test's. */

static atomic_int module = -1, node_fd = -1;
static atomic_int want_span, node_error, start_error, answer_error, node_opens, node_starts;

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __real_ioctl(int fd, unsigned long request, ...);
int __wrap_ioctl(int fd, unsigned long request, ...);
ssize_t __real_write(int fd, const void *buf, size_t len);
ssize_t __wrap_write(int fd, const void *buf, size_t len);

int __wrap_open(const char *path, int flags, ...)
{
	int ends[2];

	if (strncmp(path, "/dev/kvblk/", 11) != 0)
		return __real_open(path, flags);
	assert_int_equal(flags, O_RDWR | O_NONBLOCK | O_CLOEXEC);
	node_opens++;
	errno = !strcmp(path, "/dev/kvblk/kv0/peers") ? node_error : ENOENT;
	if (errno)
		return -1;
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, ends), 0);
	if (module >= 0)
		close(module);
	node_fd = ends[1];
	module = ends[0];
	return ends[1];
}

int __wrap_ioctl(int fd, unsigned long request, ...)
{
	const struct kvblk_peers *args;
	va_list list;

	va_start(list, request);
	args = va_arg(list, void *);
	va_end(list);
	if (request != KVBLK_IOC_PEERS)
		return __real_ioctl(fd, request, args);
	assert_int_equal(args->size, sizeof(*args));
	assert_int_equal(args->delete_ms, 5000);
	assert_int_equal(args->span, want_span);
	assert_int_equal(args->ask_ms, want_span ? 7 : 0);
	assert_int_equal(args->flags, 0);
	assert_int_equal(args->reserved, 0);
	errno = start_error;
	node_starts += !errno;
	return errno ? -1 : 0;
}

/* Only answers with results fail. */
ssize_t __wrap_write(int fd, const void *buf, size_t len)
{
	errno = fd == node_fd && len > sizeof(struct kvblk_peers_msg) ? answer_error : 0;
	return errno ? -1 : __real_write(fd, buf, len);
}

/* The directory: answers at the close if @holds. Loses its contents when @loses. */

static atomic_bool holds, loses, full;
static atomic_int directory_error, directories, published;
static directory_lost *lost_fn;
static directory_answer *held_fn;
static void *held_arg;
static const struct kvblk_anchor hint = { "the id of a blok", "uuid of a member", 9, 8, 0 };

int directory_open(sd_event *event, const struct config_directory *config, directory_lost *lost,
		   void *arg, struct directory **dir)
{
	assert_non_null(event);
	assert_string_equal(config->servers.text[0], "127.0.0.1:6379");
	assert_int_equal(config->ttl_s, 90);
	if (directory_error)
		return directory_error;
	lost_fn = lost;
	*dir = malloc(1);
	directories++;
	return 0;
}

void directory_close(struct directory *dir)
{
	if (dir && held_fn)
		held_fn(held_arg, &hint, 1);
	held_fn = NULL;
	directories -= !!dir;
	free(dir);
}

void directory_publish(struct directory *dir, const uint8_t uuid[16], const struct kvblk_anchor *anchors,
		       unsigned int nr)
{
	assert_non_null(dir);
	assert_memory_equal(uuid, "\0\0\0\1\0", 5);
	for (unsigned int i = 0; i < nr; i++)
		assert_memory_equal(&anchors[i], &hint, sizeof(hint));
	published += (int)nr;
}

bool directory_has_room(const struct directory *dir)
{
	assert_non_null(dir);
	if (atomic_exchange(&loses, false))
		lost_fn(NULL);
	return !full;
}

void directory_ask(struct directory *dir, const uint8_t uuid[16], const struct kvblk_peers_id *ids,
		   unsigned int nr, directory_answer *fn, void *arg)
{
	assert_non_null(dir);
	assert_memory_equal(uuid, "\0\0\0\1\0", 5);
	assert_memory_equal(ids[nr - 1].id, id, 16);
	if (!holds) {
		fn(arg, &hint, 1);
		return;
	}
	held_fn = fn;
	held_arg = arg;
}

static void *context, *xpub, *sub;
static char listen_at[64], peer_at[64];

static _Atomic(const struct directory_node *) listed;
static atomic_int nr_listed;

void directory_join(struct directory *dir, const uint8_t uuid[16], const uint8_t node[16],
		    const char *endpoint, directory_nodes *fn, void *arg)
{
	uint8_t own[16];

	assert_non_null(dir);
	assert_memory_equal(uuid, "\0\0\0\1\0", 5);
	assert_int_equal(kvblk_host_id(own), 0);
	assert_memory_equal(node, own, sizeof(own));
	assert_string_equal(endpoint, listen_at);
	if (nr_listed)
		fn(arg, listed, (unsigned int)nr_listed);
}
static struct config config;

static void free_endpoint(char *text, size_t len)
{
	snprintf(text, len, "tcp://127.0.0.1:%d", free_port());
}

static void configure_text(const char *text)
{
	config_free(&config);
	assert_int_equal(config_parse(text, &config, stderr), 0);
	pod_configure(&config);
}

static void configure(const char *endpoint)
{
	char text[512];

	snprintf(text, sizeof(text), "pod: { listen = \"%s\"; peers = ( \"%s\" ); };", endpoint, peer_at);
	configure_text(*endpoint ? text : "");
}

#define WAIT_FOR(condition) do {							\
	int ms = 0;									\
											\
	for (; !(condition) && ms < WAIT_MS; ms++)					\
		usleep(1000);								\
	assert_in_range(ms, 0, WAIT_MS - 1);						\
} while (0)

/* Receive a frame of at most @size bytes. Returns its length. */
static size_t receive(void *socket, void *buf, size_t size)
{
	int len = zmq_recv(socket, buf, size, 0);

	assert_in_range(len, 0, size);
	return (size_t)len;
}

/* Wait until kvblkd subscribes to both topics of @uuid (1), or ends that (0). */
static void hears(const uint8_t uuid[16], uint8_t what)
{
	uint8_t got[64], touched[1 + TOUCHWIRE_TOPIC] = { what }, asked[1 + DELETEWIRE_TOPIC] = { what };

	touchwire_topic(uuid, touched + 1);
	deletewire_question_topic(uuid, asked + 1);
	for (int nr = 0; nr < 2;) {
		assert_int_equal(receive(xpub, got, sizeof(got)), sizeof(touched));
		nr += !memcmp(got, touched, sizeof(touched)) || !memcmp(got, asked, sizeof(asked));
	}
}

static void send_touches(const uint8_t uuid[16], size_t bytes)
{
	static const char ids[128 << 10];
	uint8_t topic[TOUCHWIRE_TOPIC];

	touchwire_topic(uuid, topic);
	zmq_send(xpub, topic, sizeof(topic), ZMQ_SNDMORE);
	zmq_send(xpub, ids, bytes, 0);
}

static void *client(int type)
{
	void *socket = zmq_socket(context, type);

	zmq_setsockopt(socket, ZMQ_LINGER, &(int){ 0 }, sizeof(int));
	zmq_setsockopt(socket, ZMQ_RCVTIMEO, &(int){ WAIT_MS }, sizeof(int));
	return socket;
}

static int begin(void **state)
{
	int before = node_starts;

	context = zmq_ctx_new();
	free_endpoint(listen_at, sizeof(listen_at));
	free_endpoint(peer_at, sizeof(peer_at));
	xpub = client(ZMQ_XPUB);
	zmq_setsockopt(xpub, ZMQ_SNDHWM, &(int){ 0 }, sizeof(int));
	zmq_setsockopt(xpub, ZMQ_XPUB_VERBOSER, &(int){ 1 }, sizeof(int));
	assert_int_equal(zmq_bind(xpub, peer_at), 0);
	sub = client(ZMQ_SUB);
	stopped = has_kv1 = reports = stalled = false;
	open_error = touch_error = delete_error = 0;
	node_error = start_error = answer_error = want_span = directory_error = 0;
	holds = loses = full = false;
	said[0] = '\0';
	configure(listen_at);
	hears(kv0, 1);
	touches = touched_ids = deletes = deleted_ids = 0;
	WAIT_FOR(node_starts > before);
	return 0;
}

static int end(void **state)
{
	int before = logged("no longer publishing");

	configure("");
	WAIT_FOR(logged("no longer publishing") > before || !logged("publishing at"));
	config_free(&config);
	close(module);
	module = -1;
	zmq_close(sub);
	zmq_close(xpub);
	zmq_ctx_term(context);
	return 0;
}

TEST(test_wire)
{
	static const char ids[TOUCHWIRE_IDS * TOUCHWIRE_ID + 16];
	uint8_t topic[TOUCHWIRE_TOPIC + 1] = { 0 };
	struct touchwire message;

	touchwire_topic(kv0, topic);
	assert_memory_equal(topic, "kvblkt01uuid of pool kv0", TOUCHWIRE_TOPIC);
	for (size_t len = 0; len <= sizeof(ids); len++) {
		bool good = len && len % 16 == 0 && len <= KVBLK_TOUCH_LEN_MAX;

		assert_int_equal(touchwire_read(topic, TOUCHWIRE_TOPIC, ids, len, &message), good);
	}
	assert_true(touchwire_read(topic, TOUCHWIRE_TOPIC, ids, 48, &message));
	assert_int_equal(message.nr, 3);
	assert_ptr_equal(message.ids, ids);
	assert_memory_equal(message.pool, kv0, 16);
	for (size_t len = 0; len <= sizeof(topic); len++)
		assert_int_equal(touchwire_read(topic, len, ids, 16, &message), len == TOUCHWIRE_TOPIC);
	/* another version, another magic */
	for (int i = 0; i < 8; i++) {
		topic[i] ^= 1;
		assert_false(touchwire_read(topic, TOUCHWIRE_TOPIC, ids, 16, &message));
		topic[i] ^= 1;
	}
}

/* A peer receives what was got from its pool, and not what was got from others. */
TEST_WITH(test_published, begin, end)
{
	uint8_t topic[TOUCHWIRE_TOPIC], got[64];

	touchwire_topic(other, topic);
	assert_int_equal(zmq_setsockopt(sub, ZMQ_SUBSCRIBE, topic, sizeof(topic)), 0);
	assert_int_equal(zmq_connect(sub, listen_at), 0);
	reports = true;
	assert_int_equal(receive(sub, got, sizeof(got)), sizeof(topic));
	assert_memory_equal(got, topic, sizeof(topic));
	assert_int_equal(receive(sub, got, sizeof(got)), sizeof(id));
	assert_memory_equal(got, id, sizeof(id));
}

/* Touches reach their pool; anything else has no effect and is logged once. */
TEST_WITH(test_taken, begin, end)
{
	static const size_t bad[] = { 0, 1, 15, 17, KVBLK_TOUCH_LEN_MAX - 1, KVBLK_TOUCH_LEN_MAX + 16 };
	uint8_t topic[TOUCHWIRE_TOPIC + 1] = { 0 };

	send_touches(kv0, 32);
	WAIT_FOR(touches == 1);
	assert_int_equal(touched_ids, 2);
	assert_string_equal(touched_pool, "kv0");
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		send_touches(kv0, bad[i]);
	touchwire_topic(kv0, topic);
	zmq_send(xpub, topic, TOUCHWIRE_TOPIC, 0);
	zmq_send(xpub, topic, sizeof(topic), ZMQ_SNDMORE);
	zmq_send(xpub, id, sizeof(id), 0);
	for (int i = 0; i < 5; i++)
		zmq_send(xpub, i ? (const void *)id : topic, i ? sizeof(id) : TOUCHWIRE_TOPIC, i < 4 ? ZMQ_SNDMORE : 0);
	send_touches(other, 16);
	send_touches(kv1, 16);
	send_touches(kv0, KVBLK_TOUCH_LEN_MAX);
	WAIT_FOR(touches == 2);
	assert_int_equal(touched_ids, 2 + TOUCHWIRE_IDS);
	assert_int_equal(logged("messages of an unknown form"), 1);
	assert_int_equal(logged(peer_at), 1);
}

/* Between two ticks a peer has as many messages as its own gets could fill. */
TEST_WITH(test_flood, begin, end)
{
	last_ticks = 0;
	stopped = true;
	WAIT_FOR(last_ticks);
	for (int i = 0; i < 400; i++)
		send_touches(kv0, 16);
	WAIT_FOR(touches == 256);
	usleep(5 * TICK_US);
	assert_int_equal(touches, 256);
}

/* Topics follow the pools. */
TEST_WITH(test_pools, begin, end)
{
	has_kv1 = true;
	hears(kv1, 1);
	send_touches(kv1, 16);
	WAIT_FOR(touches == 1);
	assert_string_equal(touched_pool, "kv1");
	has_kv1 = false;
	hears(kv1, 0);
	send_touches(kv0, 16);
	WAIT_FOR(touches == 2);
	assert_string_equal(touched_pool, "kv0");
}

/* An error of the module costs touches, and the connection is opened again. */
TEST_WITH(test_module, begin, end)
{
	int before = opens;

	touch_error = -ENOENT;
	send_touches(kv0, 16);
	WAIT_FOR(touches == 1);
	touch_error = -EPERM;
	open_error = -ENOENT;
	send_touches(kv0, 16);
	WAIT_FOR(logged("cannot exchange touches with the module: Operation not permitted") == 1);
	touch_error = open_error = 0;
	WAIT_FOR(opens == before + 1);
	send_touches(kv0, 16);
	WAIT_FOR(touches == 3);
	assert_int_equal(logged("cannot exchange"), 1);
}

/* An endpoint in use is tried again until it is free; the same configuration changes nothing. */
TEST_WITH(test_endpoints, begin, end)
{
	char taken[64], line[128];
	void *rep = client(ZMQ_REP);

	configure(listen_at);
	/* a frame that is too long ends the connection, until sockets are opened again */
	send_touches(kv0, 65 << 10);
	hears(kv0, 0);
	assert_int_equal(touches, 0);
	free_endpoint(taken, sizeof(taken));
	assert_int_equal(zmq_bind(rep, taken), 0);
	configure(taken);
	snprintf(line, sizeof(line), "cannot publish at %s", taken);
	WAIT_FOR(logged(line) == 1);
	assert_int_equal(logged("no longer publishing"), 1);
	zmq_close(rep);
	snprintf(line, sizeof(line), "publishing at %s, following 1 peers", taken);
	WAIT_FOR(logged(line) == 1);
	hears(kv0, 1);
	send_touches(kv0, 16);
	WAIT_FOR(touches == 1);
}

TEST(test_delete_wire)
{
	uint8_t topic[DELETEWIRE_TOPIC + 1] = { 0 }, question_topic[DELETEWIRE_TOPIC];
	uint8_t body[DELETEWIRE_QUESTION + 16];
	struct deletewire_question question = { kv0, far_node, asker, 0x0102030405060708, id, 1 }, got;
	struct deletewire_answer answer = { 7, { 0, -ENOENT, -4095 }, 3 }, back;

	deletewire_question_topic(kv0, question_topic);
	assert_memory_equal(question_topic, "kvblkd01uuid of pool kv0", DELETEWIRE_TOPIC);
	deletewire_answer_topic(asker, topic);
	assert_memory_equal(topic, "kvblka01a peer that asks", DELETEWIRE_TOPIC);

	assert_int_equal(deletewire_write_question(&question, body), 56);
	assert_memory_equal(body, "another's nodeida peer that asks\x08\x07\x06\x05\x04\x03\x02\x01the id of a blok", 56);
	assert_true(deletewire_read_question(question_topic, DELETEWIRE_TOPIC, body, 56, &got));
	assert_memory_equal(got.pool, kv0, 16);
	assert_memory_equal(got.node, far_node, 16);
	assert_memory_equal(got.asker, asker, 16);
	assert_memory_equal(got.ids, id, 16);
	assert_int_equal(got.number, question.number);
	assert_int_equal(got.nr, 1);
	for (size_t len = 0; len <= sizeof(body); len++)
		assert_int_equal(deletewire_read_question(question_topic, DELETEWIRE_TOPIC, body, len, &got),
				 len >= 56 && len % 16 == 8 && len <= DELETEWIRE_QUESTION);
	assert_false(deletewire_read_answer(question_topic, DELETEWIRE_TOPIC, body, 8, &back));

	assert_int_equal(deletewire_write_answer(&answer, body), 20);
	assert_memory_equal(body, "\x07\0\0\0\0\0\0\0\0\0\0\0\xfe\xff\xff\xff\x01\xf0\xff\xff", 20);
	assert_true(deletewire_read_answer(topic, DELETEWIRE_TOPIC, body, 20, &back));
	assert_int_equal(back.number, 7);
	assert_int_equal(back.nr, 3);
	assert_memory_equal(back.results, answer.results, 12);
	memset(body + 8, 0, sizeof(body) - 8);
	for (size_t len = 0; len <= sizeof(body); len++)
		assert_int_equal(deletewire_read_answer(topic, DELETEWIRE_TOPIC, body, len, &back),
				 len >= 8 && len % 4 == 0 && len <= DELETEWIRE_ANSWER);
	assert_false(deletewire_read_question(topic, DELETEWIRE_TOPIC, body, 56, &got));
	/* another length, version or magic of the topic */
	for (size_t len = 0; len <= sizeof(topic); len++)
		assert_int_equal(deletewire_read_answer(topic, len, body, 8, &back), len == DELETEWIRE_TOPIC);
	for (int i = 0; i < 8; i++) {
		topic[i] ^= 1;
		assert_false(deletewire_read_answer(topic, DELETEWIRE_TOPIC, body, 8, &back));
		topic[i] ^= 1;
	}
	/* results are errnos */
	for (int32_t result = -5000; result < 5000; result++) {
		deletewire_write_answer(&(struct deletewire_answer){ 1, { result }, 1 }, body);
		assert_int_equal(deletewire_read_answer(topic, DELETEWIRE_TOPIC, body, 12, &back),
				 result <= 0 && result >= -4095);
	}
}

/* Random bytes: everything that is parsed lies within the frames. */
TEST(test_delete_fuzz)
{
	uint8_t topic[DELETEWIRE_TOPIC];
	struct deletewire_question question;
	struct deletewire_answer answer;
	unsigned int questions = 0, answers = 0;

	for (unsigned int round = 0; round < 200000; round++) {
		size_t len = (size_t)rand() % 4200;
		/* an allocation of the exact length, so that ASan finds a read beyond the end */
		uint8_t *body = malloc(len);

		for (size_t i = 0; i < len && i < 128; i++)
			body[i] = (uint8_t)(rand() % 3 ? 0 : rand());
		if (len > 128)
			memset(body + 128, rand() % 2 ? 0xff : 0, len - 128);
		deletewire_question_topic(kv0, topic);
		if (deletewire_read_question(topic, sizeof(topic), body, len, &question)) {
			questions++;
			assert_ptr_equal(question.ids + (size_t)question.nr * 16, body + len);
		}
		deletewire_answer_topic(asker, topic);
		if (deletewire_read_answer(topic, sizeof(topic), body, len, &answer)) {
			answers++;
			assert_int_equal(8 + answer.nr * 4, len);
		}
		free(body);
	}
	assert_true(questions > 1000);
	assert_true(answers > 10);
}

/* The module asks for @nr blocks of a pool to be deleted. */
static void module_asks(uint64_t cookie, const uint8_t pool[16], const uint8_t node[16], unsigned int nr)
{
	struct {
		struct kvblk_peers_msg head;
		uint8_t ids[DELETEWIRE_IDS][16];
	} message = { .head = { .type = KVBLK_PEERS_DELETE, .nr = nr, .cookie = cookie } };

	memcpy(message.head.pool_uuid, pool, 16);
	memcpy(message.head.node, node, 16);
	for (unsigned int i = 0; i < nr; i++)
		memcpy(message.ids[i], id, 16);
	WAIT_FOR(write(module, &message, sizeof(message.head) + nr * 16ul) > 0);
}

/* Wait for the answer to a question of the module. Returns its number of results. */
static unsigned int module_gets(uint64_t cookie, int32_t results[DELETEWIRE_IDS])
{
	struct {
		struct kvblk_peers_msg head;
		int32_t results[DELETEWIRE_IDS];
	} message;
	ssize_t len;

	WAIT_FOR((len = read(module, &message, sizeof(message))) > 0);
	assert_int_equal(message.head.type, KVBLK_PEERS_DELETED);
	assert_int_equal(message.head.cookie, cookie);
	assert_int_equal(len, sizeof(message.head) + message.head.nr * 4);
	if (results)
		memcpy(results, message.results, message.head.nr * 4ul);
	return message.head.nr;
}

static bool module_gets_nothing(void)
{
	char byte;

	return read(module, &byte, 1) < 0 && errno == EAGAIN;
}

/* Subscribe to a topic of the tested host. */
static void listen_to(const uint8_t topic[DELETEWIRE_TOPIC])
{
	assert_int_equal(zmq_setsockopt(sub, ZMQ_SUBSCRIBE, topic, DELETEWIRE_TOPIC), 0);
	assert_int_equal(zmq_connect(sub, listen_at), 0);
}

/*
 * Wait for a question of this host about @nr blocks, which the module asks with @cookie. Ask again,
 * because questions before the subscription arrives are lost.
 */
static void hear_question(uint64_t cookie, unsigned int nr, struct deletewire_question *question)
{
	static uint8_t topic[DELETEWIRE_TOPIC], body[DELETEWIRE_QUESTION];
	zmq_pollitem_t item = { .socket = sub, .events = ZMQ_POLLIN };
	size_t len;

	do {
		for (int i = 0; i < WAIT_MS / 100 && !(item.revents & ZMQ_POLLIN); i++) {
			module_asks(cookie, other, far_node, nr);
			zmq_poll(&item, 1, 100);
		}
		item.revents = 0;
		receive(sub, topic, sizeof(topic));
		len = receive(sub, body, sizeof(body));
		assert_true(deletewire_read_question(topic, sizeof(topic), body, len, question));
	} while (question->nr != nr);
}

/* Receive the next answer of this host. */
static void hear_answer(struct deletewire_answer *answer)
{
	uint8_t topic[DELETEWIRE_TOPIC], body[DELETEWIRE_ANSWER];
	size_t len;

	assert_int_equal(receive(sub, topic, sizeof(topic)), sizeof(topic));
	len = receive(sub, body, sizeof(body));
	assert_true(deletewire_read_answer(topic, sizeof(topic), body, len, answer));
}

static void send_frames(const uint8_t topic[DELETEWIRE_TOPIC], const void *body, size_t len)
{
	zmq_send(xpub, topic, DELETEWIRE_TOPIC, ZMQ_SNDMORE);
	zmq_send(xpub, body, len, 0);
}

static void send_answer(const uint8_t to[16], uint64_t number, const int32_t *results, unsigned int nr)
{
	struct deletewire_answer answer = { .number = number, .nr = nr };
	uint8_t topic[DELETEWIRE_TOPIC], body[DELETEWIRE_ANSWER];

	memcpy(answer.results, results, nr * sizeof(*results));
	deletewire_answer_topic(to, topic);
	send_frames(topic, body, deletewire_write_answer(&answer, body));
}

static void send_question(const uint8_t pool[16], const uint8_t node[16], uint64_t number, unsigned int nr)
{
	uint8_t topic[DELETEWIRE_TOPIC], body[DELETEWIRE_QUESTION], ids[DELETEWIRE_IDS][16];
	struct deletewire_question question = { pool, node, asker, number, ids[0], nr };

	for (unsigned int i = 0; i < nr; i++)
		memcpy(ids[i], id, 16);
	deletewire_question_topic(pool, topic);
	send_frames(topic, body, deletewire_write_question(&question, body));
}

/* A question of the module reaches the owner, and the first right answer the module. */
TEST_WITH(test_delete_asked, begin, end)
{
	static const int32_t results[DELETEWIRE_IDS + 1] = { 0, -ENOENT }, wrong[] = { 1, 0 };
	struct deletewire_question question;
	uint8_t topic[DELETEWIRE_TOPIC];
	int32_t got[DELETEWIRE_IDS];

	deletewire_question_topic(other, topic);
	listen_to(topic);
	hear_question(77, 2, &question);
	assert_memory_equal(question.node, far_node, 16);
	assert_memory_equal(question.ids, id, 16);
	assert_memory_equal(question.ids + 16, id, 16);
	assert_int_equal(question.nr, 2);
	send_answer(question.asker, question.number, results, 1);
	send_answer(question.asker, question.number, results, 3);
	send_answer(question.asker, question.number, wrong, 2);
	send_answer(question.asker, question.number + 1000, results, 2);
	send_answer(asker, question.number, results, 2);
	send_answer(question.asker, question.number, results, 2);
	assert_int_equal(module_gets(77, got), 2);
	assert_int_equal(got[0], 0);
	assert_int_equal(got[1], -ENOENT);
	assert_int_equal(logged("1 messages of an unknown form"), 1);
	/* a second answer comes too late: only the next question is answered */
	send_answer(question.asker, question.number, results, 2);
	hear_question(78, 1, &question);
	send_answer(question.asker, question.number, results, 0);
	assert_int_equal(module_gets(78, NULL), 0);
}

/* Without an answer a question ends; too many end at once. */
TEST_WITH(test_delete_unanswered, begin, end)
{
	for (unsigned int i = 1; i <= 257; i++)
		module_asks(i, other, far_node, 1);
	assert_int_equal(module_gets(257, NULL), 0);
	assert_true(module_gets_nothing());
	ahead += 7;
	for (unsigned int i = 256; i >= 1; i--)
		assert_int_equal(module_gets(i, NULL), 0);
	module_asks(300, other, far_node, 1);
	/* a new configuration closes the node, and so ends the question */
	configure("");
	WAIT_FOR(!module_gets_nothing());
	assert_int_equal(read(module, &(char){ 0 }, 1), 0);
	configure(listen_at);
	WAIT_FOR(logged("following 1 peers") == 2);
}

/* Only questions about pools of the tested host reach the module. The asker gets the answer. */
TEST_WITH(test_delete_taken, begin, end)
{
	uint8_t topic[DELETEWIRE_TOPIC];
	struct deletewire_answer answer;
	zmq_pollitem_t item = { .socket = sub, .events = ZMQ_POLLIN };
	int before;

	deletewire_answer_topic(asker, topic);
	listen_to(topic);
	send_question(kv0, far_node, 1, 1);
	send_question(kv1, this_node, 2, 1);
	for (int i = 0; i < WAIT_MS / 100 && !(item.revents & ZMQ_POLLIN); i++) {
		before = deletes;
		send_question(kv0, this_node, 3, 2);
		WAIT_FOR(deletes > before);
		zmq_poll(&item, 1, 100);
	}
	assert_string_equal(deleted_pool, "kv0");
	assert_int_equal(deleted_ids, 2 * deletes);
	hear_answer(&answer);
	assert_int_equal(answer.number, 3);
	assert_int_equal(answer.nr, 2);
	assert_int_equal(answer.results[0], 0);
	assert_int_equal(answer.results[1], -ENOENT);
	/* the module refuses */
	delete_error = -ENODEV;
	send_question(kv0, this_node, 4, DELETEWIRE_IDS);
	do {
		hear_answer(&answer);
	} while (answer.number != 4);
	assert_int_equal(answer.nr, 0);
	assert_int_equal(logged("unknown form"), 0);
}

/* A slow module gets at most 65 questions of a peer, and no question that the asker gave up. */
TEST_WITH(test_delete_slow, begin, end)
{
	uint8_t topic[DELETEWIRE_TOPIC];
	struct deletewire_answer answer;

	deletewire_answer_topic(asker, topic);
	listen_to(topic);
	stalled = true;
	send_question(kv0, this_node, 1, 1);
	WAIT_FOR(deletes == 1);
	for (unsigned int i = 2; i <= 65; i++)
		send_question(kv0, this_node, i, 1);
	/* answered at once */
	answer.number = 0;
	for (int i = 0; i < WAIT_MS / 100 && !answer.number; i++) {
		send_question(kv0, this_node, 66, 1);
		if (zmq_poll(&(zmq_pollitem_t){ .socket = sub, .events = ZMQ_POLLIN }, 1, 100) > 0)
			hear_answer(&answer);
	}
	assert_int_equal(answer.number, 66);
	assert_int_equal(answer.nr, 0);
	ahead += 7;
	stalled = false;
	for (unsigned int i = 1; i <= 65;) {
		hear_answer(&answer);
		if (answer.number == 66)
			continue;
		assert_int_equal(answer.number, i);
		assert_int_equal(answer.nr, i == 1);
		i++;
	}
	assert_int_equal(deletes, 1);
}

/* A pool that was adopted is foreign to another pool of this host. */
TEST_WITH(test_delete_adopted, begin, end)
{
	has_kv1 = true;
	hears(kv1, 1);
	do {
		module_asks(5, kv1, this_node, 1);
	} while (module_gets(5, NULL) != 1);
	assert_string_equal(deleted_pool, "kv1");
}

/* The node is opened again after each failure. Another daemon there is logged once. */
TEST_WITH(test_node, begin, end)
{
	static const struct kvblk_peers_msg none = { .type = KVBLK_PEERS_DELETE }, unknown = { .type = 99 };
	int before;

	/* unknown messages are skipped */
	assert_int_equal(write(module, &unknown, sizeof(unknown)), sizeof(unknown));
	module_asks(1, kv0, this_node, 2);
	assert_int_equal(module_gets(1, NULL), 2);
	/* a refused answer is logged and becomes one without results; a late one is not logged */
	answer_error = EINVAL;
	module_asks(2, kv0, this_node, 2);
	assert_int_equal(module_gets(2, NULL), 0);
	assert_int_equal(logged("the module refuses an answer: Invalid argument"), 1);
	answer_error = ENOENT;
	module_asks(3, kv0, this_node, 2);
	WAIT_FOR(deletes == 3);
	assert_true(module_gets_nothing());
	assert_int_equal(logged("refuses"), 1);
	/* the pool is destroyed */
	answer_error = 0;
	before = node_opens;
	start_error = EBUSY;
	shutdown(module, SHUT_WR);
	WAIT_FOR(node_opens > before + 2);
	assert_int_equal(logged("cannot take the module's questions: another daemon does"), 1);
	node_error = ENOENT;
	start_error = 0;
	before = node_opens;
	WAIT_FOR(node_opens > before + 2);
	before = node_starts;
	node_error = 0;
	WAIT_FOR(node_starts > before);
	/* a malformed message */
	assert_int_equal(write(module, &none, sizeof(none)), sizeof(none));
	WAIT_FOR(logged("cannot read the module's questions: Bad message") == 1);
	WAIT_FOR(node_starts > before + 1);
	module_asks(4, kv0, this_node, 1);
	assert_int_equal(module_gets(4, NULL), 1);
	assert_int_equal(logged("cannot take"), 1);
}

/* The module sends @nr entries of @size bytes, each as @entry. */
static void module_sends(uint32_t type, uint64_t cookie, const void *entry, size_t size, unsigned int nr)
{
	struct {
		struct kvblk_peers_msg head;
		uint8_t entries[KVBLK_PEERS_MSG_MAX - sizeof(struct kvblk_peers_msg)];
	} message = { .head = { .type = type, .nr = nr, .cookie = cookie } };

	for (unsigned int i = 0; i < nr; i++)
		memcpy(message.entries + i * size, entry, size);
	WAIT_FOR(write(module, &message, sizeof(message.head) + nr * size) > 0);
}

/* Wait for the hint that answers a question of the module. */
static void module_is_told(uint64_t cookie)
{
	struct {
		struct kvblk_peers_msg head;
		struct kvblk_anchor hint;
	} message;
	ssize_t len;

	WAIT_FOR((len = read(module, &message, sizeof(message))) > 0);
	assert_int_equal(len, sizeof(message));
	assert_int_equal(message.head.type, KVBLK_PEERS_HINTS);
	assert_int_equal(message.head.cookie, cookie);
	assert_int_equal(message.head.nr, 1);
	assert_memory_equal(&message.hint, &hint, sizeof(hint));
}

static const char directory_text[] =
	"directory: { engine = \"valkey\"; servers = ( \"127.0.0.1:6379\" ); span = 32; ask_ms = 7; ttl_s = 90; };";

/* Add a directory to the configuration, without @peers alone. */
static void use_directory(bool peers)
{
	int before = node_starts;
	char text[512];

	want_span = 32;
	if (peers)
		snprintf(text, sizeof(text), "%s pod: { listen = \"%s\"; peers = ( \"%s\" ); };", directory_text,
			 listen_at, peer_at);
	configure_text(peers ? text : directory_text);
	WAIT_FOR(directories && node_starts > before);
	published = 0;
}

/* Anchors and questions reach the directory. A full directory delays them; a lost one gets all again. */
TEST_WITH(test_directory, begin, end)
{
	int before;

	use_directory(true);
	module_sends(KVBLK_PEERS_ASK, 1, id, sizeof(id), 64);
	module_is_told(1);
	module_sends(KVBLK_PEERS_ANCHORS, 0, &hint, sizeof(hint), 84);
	WAIT_FOR(published == 84);
	full = true;
	module_sends(KVBLK_PEERS_ANCHORS, 0, &hint, sizeof(hint), 3);
	usleep(5 * TICK_US);
	assert_int_equal(published, 84);
	full = false;
	WAIT_FOR(published == 87);
	/* a delete that waits is not ended for the sake of hints */
	module_asks(2, other, far_node, 1);
	module_sends(KVBLK_PEERS_ASK, 3, id, sizeof(id), 1);
	module_is_told(3);
	before = node_starts;
	loses = true;
	module_sends(KVBLK_PEERS_ASK, 4, id, sizeof(id), 1);
	module_is_told(4);
	assert_false(loses);
	usleep(5 * TICK_US);
	assert_int_equal(node_starts, before);
	ahead += 7;
	WAIT_FOR(node_starts == before + 1);
	/* malformed messages */
	module_sends(KVBLK_PEERS_ASK, 4, id, sizeof(id) - 1, 1);
	WAIT_FOR(node_starts == before + 2);
	module_sends(KVBLK_PEERS_ANCHORS, 0, &hint, sizeof(hint), 0);
	module_sends(KVBLK_PEERS_ASK, 4, id, sizeof(id), 0);
	WAIT_FOR(node_starts == before + 3);
	assert_int_equal(logged("Bad message"), 2);
	/* closed while a question waits */
	holds = true;
	module_sends(KVBLK_PEERS_ASK, 5, id, sizeof(id), 1);
	WAIT_FOR(held_fn);
	want_span = 0;
	configure(listen_at);
	WAIT_FOR(!directories && node_starts == before + 4);
	/* unasked */
	module_sends(KVBLK_PEERS_ASK, 6, id, sizeof(id), 1);
	WAIT_FOR(node_starts == before + 5);
	assert_true(module_gets_nothing());
}

/* Nodes that the directory lists are peers until it lists others; no answer is no list. */
TEST_WITH(test_members, begin, end)
{
	static struct directory_node nodes[4] = {
		{ .endpoint = "tcp://127.0.0.1:1" },
		{ .id = "another node", .endpoint = "tcp://127.0.0.1:2" },
		{ .id = "a third node", .endpoint = "tcp://127.0.0.1:2" },
		{ .id = "a bad node", .endpoint = "ipc:///x" },
	};

	assert_int_equal(kvblk_host_id(nodes[0].id), 0);
	use_directory(true);
	assert_int_equal(logged("following 1 peers"), 2);
	listed = nodes;
	nr_listed = 4;
	WAIT_FOR(logged("following 2 peers") == 1);
	nr_listed = 0;
	usleep(15 * TICK_US);
	assert_int_equal(logged("following"), 3);
	nr_listed = 1;
	WAIT_FOR(logged("following 1 peers") == 3);
	nr_listed = 0;
}

/* A directory alone is enough: deletes of foreign blocks are refused at once. */
TEST_WITH(test_directory_only, begin, end)
{
	int before;

	use_directory(false);
	module_sends(KVBLK_PEERS_ASK, 1, id, sizeof(id), 1);
	module_is_told(1);
	module_asks(2, other, far_node, 1);
	assert_int_equal(module_gets(2, NULL), 0);
	/* also if it cannot be used */
	want_span = 0;
	before = node_starts;
	configure(listen_at);
	WAIT_FOR(!directories && node_starts > before);
	directory_error = -ENOMEM;
	before = node_starts;
	configure_text(directory_text);
	WAIT_FOR(logged("cannot use the directory: Cannot allocate memory; directory ignored") == 1);
	WAIT_FOR(node_starts > before);
	module_asks(3, other, far_node, 1);
	assert_int_equal(module_gets(3, NULL), 0);
	configure(listen_at);
	WAIT_FOR(logged("following 1 peers") == 3);
}

TEST_MAIN("pod")
