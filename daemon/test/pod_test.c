// SPDX-License-Identifier: MIT
/*
 * Touches between nodes: what a peer receives, what it can make this host do, hostile
 * messages, changes of pools and configuration, errors. The module is replaced, and the test is
 * the peer.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <systemd/sd-event.h>
#include <unistd.h>
#include <zmq.h>

#include "kvblk_test.h"
#include "lib/kvblk_admin.h"
#include "pod/pod.h"
#include "pod/touch_wire.h"

#define WAIT_MS		30000
#define TICK_US		10000

static const uint8_t kv0[16] = "uuid of pool kv0", kv1[16] = "uuid of pool kv1", other[16] = "uuid of a remote";
static const uint8_t id[16] = "the id of a blok";

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

static void *context, *xpub, *sub;
static char listen_at[64], peer_at[64];

static struct config config;

static void free_endpoint(char *text, size_t len)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t size = sizeof(at);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	assert_true(fd >= 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &size), 0);
	close(fd);
	snprintf(text, len, "tcp://127.0.0.1:%u", ntohs(at.sin_port));
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

/* Wait until kvblkd subscribes to the topic of @uuid (1), or ends that (0). */
static void hears(const uint8_t uuid[16], uint8_t what)
{
	uint8_t got[64], touched[1 + TOUCHWIRE_TOPIC] = { what };

	touchwire_topic(uuid, touched + 1);
	for (int nr = 0; nr < 1;) {
		assert_int_equal(receive(xpub, got, sizeof(got)), sizeof(touched));
		nr += !memcmp(got, touched, sizeof(touched));
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
	context = zmq_ctx_new();
	free_endpoint(listen_at, sizeof(listen_at));
	free_endpoint(peer_at, sizeof(peer_at));
	xpub = client(ZMQ_XPUB);
	zmq_setsockopt(xpub, ZMQ_SNDHWM, &(int){ 0 }, sizeof(int));
	zmq_setsockopt(xpub, ZMQ_XPUB_VERBOSER, &(int){ 1 }, sizeof(int));
	assert_int_equal(zmq_bind(xpub, peer_at), 0);
	sub = client(ZMQ_SUB);
	stopped = has_kv1 = reports = false;
	open_error = touch_error = 0;
	said[0] = '\0';
	configure(listen_at);
	hears(kv0, 1);
	touches = touched_ids = 0;
	return 0;
}

static int end(void **state)
{
	int before = logged("no longer publishing");

	configure("");
	WAIT_FOR(logged("no longer publishing") > before || !logged("publishing at"));
	config_free(&config);
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

TEST_MAIN("pod")
