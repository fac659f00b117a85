// SPDX-License-Identifier: MIT
/*
 * The directory, with Valkey servers killed, stopped and replaced, and with a cluster of moving slots;
 * and with a server of another protocol.
 */
#include <errno.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <systemd/sd-event.h>
#include <time.h>

#include "kvblk_test.h"
#include "pod/directory.h"
#include "pod/directory_wire.h"
#include "pod/valkey.h"
#include "valkey_server.h"

#define WAIT_S		60
#define SERVERS		4
#define TTL		3600

static const uint8_t pod[16] = "uuid of the pod.";
static struct valkey_server servers[SERVERS];
static sd_event *event;
static struct directory *dir;
static char said[16384];
static int lost_calls;

void log_line(int level, const char *format, ...)
{
	size_t len = strlen(said);
	va_list args;

	va_start(args, format);
	vsnprintf(said + len, sizeof(said) - len, format, args);
	va_end(args);
	strncat(said, "\n", sizeof(said) - strlen(said) - 1);
}

static int logged(const char *text)
{
	int n = 0;

	for (const char *at = said; (at = strstr(at, text)); at++)
		n++;
	return n;
}

/*
 * Advance or stop the directory's clock, but not sd_event's. While the clock is stopped, no server
 * is late or dead, however slow the test is.
 */
static int64_t clock_ahead;		/* seconds */
static bool clock_stopped;

int __real_clock_gettime(clockid_t clock, struct timespec *ts);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ts);

int __wrap_clock_gettime(clockid_t clock, struct timespec *ts)
{
	static struct timespec last;

	if (!clock_stopped)
		__real_clock_gettime(clock, &last);
	*ts = last;
	ts->tv_sec += clock_ahead;
	return 0;
}

/* Allocations until one fails; 0: none does. */
static int fail_at;

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
void *__real_calloc(size_t nr, size_t size);
void *__wrap_calloc(size_t nr, size_t size);

void *__wrap_malloc(size_t size)
{
	return fail_at && !--fail_at ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t nr, size_t size)
{
	return fail_at && !--fail_at ? NULL : __real_calloc(nr, size);
}

static time_t real_seconds(void)
{
	struct timespec ts;

	__real_clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec;
}

/* Run the loop until @condition is true. */
#define wait_for(condition)								\
	do {										\
		time_t wait_end = real_seconds() + WAIT_S;				\
											\
		while (!(condition)) {							\
			if (real_seconds() > wait_end)					\
				fail_msg("not in time: %s; log:\n%s", #condition, said);	\
			assert_true(sd_event_run(event, 10000) >= 0);			\
		}									\
	} while (0)

/* Run the loop for some seconds, to check that nothing more happens. */
static void run_some_ticks(void)
{
	time_t end = real_seconds() + 3;

	wait_for(real_seconds() >= end);
}

static struct directory_counts counts(void)
{
	struct directory_counts now;

	assert_true(directory_counts(&now));
	return now;
}

static void on_lost(void *arg)
{
	assert_ptr_equal(arg, &lost_calls);
	lost_calls++;
}

static struct config config;

/* Open a directory at @nr of the servers, and with more settings. */
static void open_directory(unsigned int first, unsigned int nr, const char *more)
{
	char text[1024] = "directory: { engine = \"valkey\"; ttl_s = 3600; servers = (";
	size_t len = strlen(text);

	for (unsigned int i = first; i < first + nr; i++)
		len += (size_t)snprintf(text + len, sizeof(text) - len, "%s\"%s\"", i > first ? "," : "",
					servers[i].address);
	snprintf(text + len, sizeof(text) - len, "); %s };", more);
	assert_int_equal(config_parse(text, &config, stderr), 0);
	assert_int_equal(directory_open(event, &config.directory, on_lost, &lost_calls, &dir), 0);
	config_free(&config);
}

static int begin(void **state)
{
	said[0] = '\0';
	lost_calls = 0;
	clock_ahead = 0;
	clock_stopped = false;
	clock_gettime(CLOCK_MONOTONIC, &(struct timespec){ 0 });
	clock_stopped = true;
	return sd_event_new(&event) < 0;
}

static int begin_with_valkey(void **state)
{
	static const char *const none[] = { NULL };

	if (!valkey_server_exists()) {
		print_message("no " VALKEY_SERVER ": install it to run this test\n");
		skip();
	}
	for (unsigned int i = 0; i < 2; i++)
		valkey_server_start(&servers[i], none);
	return begin(state);
}

static int end(void **state)
{
	directory_close(dir);
	dir = NULL;
	event = sd_event_unref(event);
	for (unsigned int i = 0; i < SERVERS; i++)
		valkey_server_stop(&servers[i]);
	return 0;
}

/* Send a command as hiredis formats it. Returns the reply as a text, an integer as its digits. */
static const char *command(struct valkey_server *server, const char *format, ...)
{
	static char text[8192];
	redisReply *reply;
	va_list args;

	va_start(args, format);
	reply = redisvCommand(server->control, format, args);
	va_end(args);
	assert_non_null(reply);
	if (reply->type == REDIS_REPLY_ERROR)
		fail_msg("%s: %s", format, reply->str);
	if (reply->type == REDIS_REPLY_INTEGER)
		snprintf(text, sizeof(text), "%lld", reply->integer);
	else
		snprintf(text, sizeof(text), "%s", reply->str ? reply->str : "");
	freeReplyObject(reply);
	return text;
}

static struct kvblk_anchor anchor(uint32_t n)
{
	struct kvblk_anchor it = { .member = "uuid of a member", .generation = 1ull << 40 | n, .segment = n };

	memcpy(it.id, "block number", 12);
	memcpy(it.id + 12, &n, 4);
	return it;
}

static unsigned int slot_of(uint32_t n)
{
	struct kvblk_anchor it = anchor(n);
	char key[DIRWIRE_KEY];

	dirwire_key(pod, it.id, key);
	return dirwire_slot(key, sizeof(key));
}

static void publish(uint32_t first, uint32_t nr)
{
	for (uint32_t i = 0; i < nr; i++)
		directory_publish(dir, pod, (struct kvblk_anchor[]){ anchor(first + i) }, 1);
}

/* an answer */
static struct {
	unsigned int calls;
	unsigned int nr;
	struct kvblk_anchor hints[DIRECTORY_IDS];
	bool again;		/* publish and ask in the answer */
} got;

static void on_answer(void *arg, const struct kvblk_anchor *hints, unsigned int nr)
{
	assert_ptr_equal(arg, &got);
	assert_in_range(nr, 0, DIRECTORY_IDS);
	got.calls++;
	got.nr = nr;
	if (nr)
		memcpy(got.hints, hints, nr * sizeof(*hints));
	if (!got.again)
		return;
	got.again = false;
	publish(0, 3);
	directory_ask(dir, pod, (struct kvblk_peers_id[1]){ 0 }, 1, on_answer, &got);
}

static void ask_only(uint32_t first, uint32_t nr)
{
	struct kvblk_peers_id ids[DIRECTORY_IDS + 1];

	for (uint32_t i = 0; i < nr; i++) {
		struct kvblk_anchor it = anchor(first + i);

		memcpy(ids[i].id, it.id, 16);
	}
	directory_ask(dir, pod, ids, nr, on_answer, &got);
}

/* Ask for @nr anchors, and check the hints. Returns their number. */
static unsigned int ask(uint32_t first, uint32_t nr)
{
	got.calls = 0;
	ask_only(first, nr);
	wait_for(got.calls);
	for (unsigned int i = 0; i < got.nr; i++) {
		struct kvblk_anchor it = anchor(got.hints[i].segment);

		assert_in_range(got.hints[i].segment, first, first + nr - 1);
		assert_memory_equal(&got.hints[i], &it, sizeof(it));
	}
	return got.nr;
}

static void published(uint64_t nr)
{
	wait_for(counts().published + counts().dropped >= nr);
}

static uint64_t done(void)
{
	return counts().published + counts().dropped;
}

static void publish_and_wait(uint32_t first, uint32_t nr)
{
	uint64_t before = done();

	publish(first, nr);
	published(before + nr);
}

/* Publish until the servers store all: a server that a busy host delays counts as dead, and drops. */
static void publish_all(uint32_t first, uint32_t nr)
{
	const uint64_t up = counts().up;
	uint64_t dropped;

	do {
		wait_for(counts().up == up);
		dropped = counts().dropped;
		publish_and_wait(first, nr);
	} while (counts().dropped != dropped);
}

/* Open the directory on the first @nr servers, and wait until all are up. */
static void open_and_wait(unsigned int nr, const char *more)
{
	open_directory(0, nr, more);
	wait_for(counts().up == nr);
}

/* live nodes */
static struct {
	int calls;
	unsigned int nr;
	struct directory_node nodes[8];
} live;

static void on_nodes(void *arg, const struct directory_node *nodes, unsigned int nr)
{
	assert_ptr_equal(arg, &live);
	assert_in_range(nr, 1, 8);
	live.calls++;
	live.nr = nr;
	memcpy(live.nodes, nodes, nr * sizeof(*nodes));
}

/* ---- formats ---- */

TEST(test_slots)
{
	assert_int_equal(dirwire_slot("123456789", 9), 0x31c3);
	assert_int_equal(dirwire_slot("{user1000}.following", 20), dirwire_slot("user1000", 8));
	assert_int_equal(dirwire_slot("foo{{bar}}zap", 13), dirwire_slot("{bar", 4));
	assert_int_equal(dirwire_slot("foo{bar}{zap}", 13), dirwire_slot("bar", 3));
	/* no tag */
	assert_int_equal(dirwire_slot("foo{}{bar}", 10), 8363);
	assert_int_equal(dirwire_slot("}foo{", 5), 8453);
}

TEST(test_values)
{
	struct kvblk_anchor it = anchor(7), read = { .reserved = 1 };
	char value[DIRWIRE_VALUE + 1] = { 0 };

	dirwire_value(&it, value);
	assert_memory_equal(value, "\7\0\0\0\0\1\0\0" "\7\0\0\0" "uuid of a member", DIRWIRE_VALUE);
	assert_true(dirwire_read(value, DIRWIRE_VALUE, &read));
	memcpy(read.id, it.id, 16);
	assert_memory_equal(&read, &it, sizeof(it));
	assert_false(dirwire_read(value, DIRWIRE_VALUE - 1, &read));
	assert_false(dirwire_read(value, DIRWIRE_VALUE + 1, &read));
	assert_false(dirwire_read(value, 0, &read));
}

TEST(test_node_format)
{
	char text[16 + DIRECTORY_ENDPOINT];
	struct directory_node node;

	memset(text, 'x', sizeof(text));
	assert_false(dirwire_read_node(text, 16, &node));
	assert_true(dirwire_read_node(text, 17, &node));
	assert_string_equal(node.endpoint, "x");
	assert_true(dirwire_read_node(text, sizeof(text) - 1, &node));
	assert_int_equal(strlen(node.endpoint), DIRECTORY_ENDPOINT - 1);
	assert_false(dirwire_read_node(text, sizeof(text), &node));
	text[20] = '\n';
	assert_false(dirwire_read_node(text, 30, &node));
	text[20] = '\0';
	assert_false(dirwire_read_node(text, 30, &node));
}

/* ---- separate servers ---- */

TEST_WITH(test_publish, begin_with_valkey, end)
{
	char key[DIRWIRE_KEY];
	uint64_t before;
	int ttl;

	open_and_wait(1, "ask_ms = 1000;");
	before = done();
	publish(100, 20);
	published(before + 20);
	assert_int_equal(ask(90, 64), 20);
	assert_int_equal(ask(200, 64), 0);
	dirwire_key(pod, anchor(100).id, key);
	ttl = atoi(command(&servers[0], "TTL %b", key, sizeof(key)));
	assert_in_range(ttl, TTL - WAIT_S, TTL);
	/* another pod has other anchors */
	got.calls = 0;
	directory_ask(dir, (const uint8_t *)"another pod's id", (struct kvblk_peers_id[]){ { "block numberd\0\0" } },
		      1, on_answer, &got);
	wait_for(got.calls);
	assert_int_equal(got.nr, 0);
	/* more ids than a question may have */
	assert_int_equal(ask(99, DIRECTORY_IDS + 1), 20);
	/* a repeated anchor replaces the first */
	directory_publish(dir, pod, (struct kvblk_anchor[]){ anchor(100), anchor(100) }, 2);
	published(before + 22);
	assert_int_equal(ask(100, 1), 1);
	assert_int_equal(logged("connected to server"), 1);
}

TEST_WITH(test_wrong_values, begin_with_valkey, end)
{
	static const size_t len[] = { 0, 1, DIRWIRE_VALUE - 1, DIRWIRE_VALUE + 1 };
	char key[DIRWIRE_KEY], value[DIRWIRE_VALUE + 1] = { 0 };

	open_and_wait(1, "ask_ms = 1000;");
	publish_and_wait(0, 1);
	for (uint32_t i = 0; i < 4; i++) {
		dirwire_key(pod, anchor(1 + i).id, key);
		command(&servers[0], "SET %b %b", key, sizeof(key), value, len[i]);
	}
	dirwire_key(pod, anchor(5).id, key);
	command(&servers[0], "RPUSH %b x", key, sizeof(key));
	assert_int_equal(ask(0, 6), 1);
	assert_int_equal(got.hints[0].segment, 0);
}

/* A dead server: no answer, at once. A new process: dropped anchors are requested again. */
TEST_WITH(test_death, begin_with_valkey, end)
{
	uint64_t before;

	open_and_wait(1, "");
	assert_int_equal(lost_calls, 0);
	valkey_server_stop(&servers[0]);
	wait_for(!counts().up);
	got.calls = 0;
	ask_only(0, 64);
	assert_int_equal(got.calls, 1);
	assert_int_equal(got.nr, 0);
	before = counts().dropped;
	publish(0, 5);
	assert_int_equal(counts().dropped, before + 5);
	assert_true(directory_has_room(dir));
	/* several attempts, one line */
	run_some_ticks();
	assert_int_equal(logged("no connection to server"), 1);
	assert_true(valkey_server_try(&servers[0], NULL));
	wait_for(counts().up == 1);
	wait_for(lost_calls == 1);
	assert_int_equal(logged("connected to server"), 2);
}

/* An empty server in place of the first, with nothing published meanwhile. */
TEST_WITH(test_new_process, begin_with_valkey, end)
{
	open_and_wait(1, "");
	valkey_server_stop(&servers[0]);
	assert_true(valkey_server_try(&servers[0], NULL));
	wait_for(lost_calls == 1);
	/* not more often than each minute */
	valkey_server_stop(&servers[0]);
	assert_true(valkey_server_try(&servers[0], NULL));
	wait_for(logged("connected to server") == 3);
	run_some_ticks();
	assert_int_equal(lost_calls, 1);
	clock_ahead += 60;
	wait_for(lost_calls == 2);
}

/* A broken connection loses no anchors. */
TEST_WITH(test_same_process, begin_with_valkey, end)
{
	open_and_wait(1, "ask_ms = 1000;");
	publish(0, 10);
	wait_for(ask(0, 10) == 10);
	command(&servers[0], "CLIENT KILL TYPE normal SKIPME yes");
	wait_for(logged("connected to server") == 2);
	assert_int_equal(ask(0, 10), 10);
	run_some_ticks();
	assert_int_equal(lost_calls, 0);
	/* the anchors are published again in time */
	clock_ahead += TTL / 2;
	wait_for(lost_calls == 1);
}

TEST_WITH(test_hang, begin_with_valkey, end)
{
	uint64_t late;

	open_and_wait(1, "ask_ms = 20;");
	late = counts().late;
	valkey_server_hang(&servers[0]);
	clock_stopped = false;
	assert_int_equal(ask(0, 64), 0);
	assert_int_equal(counts().late, late + 1);
	/* then the server counts as dead */
	wait_for(!counts().up);
	assert_int_equal(logged("no response"), 1);
	got.calls = 0;
	ask_only(0, 1);
	assert_int_equal(got.calls, 1);
	/* accepting connections is not enough to be up */
	run_some_ticks();
	assert_int_equal(counts().up, 0);
	publish(0, 1);
	kill(servers[0].pid, SIGCONT);
	wait_for(counts().up == 1);
	wait_for(lost_calls == 1);
}

/* Detect a hang without any question. */
TEST_WITH(test_silent_hang, begin_with_valkey, end)
{
	open_and_wait(1, "");
	valkey_server_hang(&servers[0]);
	clock_stopped = false;
	wait_for(!counts().up);
}

TEST_WITH(test_two, begin_with_valkey, end)
{
	uint64_t before;
	int first, second;

	open_and_wait(2, "ask_ms = 1000;");
	publish_and_wait(0, 64);
	assert_int_equal(ask(0, 64), 64);
	first = atoi(command(&servers[0], "DBSIZE"));
	second = atoi(command(&servers[1], "DBSIZE"));
	assert_int_equal(first + second, 64);
	assert_in_range(first, 8, 56);
	valkey_server_stop(&servers[0]);
	wait_for(counts().up == 1);
	assert_int_equal(ask(0, 64), second);
	before = counts().dropped;
	publish(0, 64);
	wait_for(counts().dropped == before + (uint64_t)first);
}

/* A part of the answers in time. */
TEST_WITH(test_one_of_two_hangs, begin_with_valkey, end)
{
	uint32_t n = 0;
	uint64_t before;
	int second;

	open_and_wait(2, "ask_ms = 1000;");
	publish_and_wait(0, 64);
	second = atoi(command(&servers[1], "DBSIZE"));
	before = counts().late;
	valkey_server_hang(&servers[0]);
	got.calls = 0;
	ask_only(0, 64);
	/* once a later question to the second server is answered, so is its part of the first one */
	while (slot_of(n) < DIRWIRE_SLOTS / 2)
		n++;
	ask_only(n, 1);
	wait_for(got.calls == 1);
	assert_int_equal(got.nr, 1);
	assert_int_equal(counts().late, before);
	clock_ahead = 1;
	wait_for(got.calls == 2);
	assert_int_equal(got.nr, second);
	assert_int_equal(counts().late, before + 1);
}

TEST_WITH(test_bounds, begin_with_valkey, end)
{
	uint64_t before;

	open_and_wait(1, "ask_ms = 1000;");
	valkey_server_hang(&servers[0]);
	before = counts().dropped;
	publish(0, 10000);
	assert_true(directory_has_room(dir));
	publish(0, 6000);
	assert_false(directory_has_room(dir));
	assert_int_equal(counts().dropped, before);
	publish(0, 10000);
	assert_in_range(counts().dropped - before, 9000, 10000);
	/* a stuck server makes no caller wait */
	clock_stopped = false;
	clock_ahead = 1;
	assert_true(directory_has_room(dir));
	got.calls = 0;
	for (int i = 0; i < 1100; i++)
		ask_only(0, 64);
	assert_int_equal(got.calls, 1100 - 1024);
	wait_for(got.calls == 1100);
	wait_for(!counts().up);
	assert_int_equal(counts().dropped, before + 26000);
	kill(servers[0].pid, SIGCONT);
	wait_for(lost_calls);
}

TEST_WITH(test_refused_set, begin_with_valkey, end)
{
	uint64_t before;

	open_and_wait(1, "");
	command(&servers[0], "CONFIG SET maxmemory 1");
	before = counts().dropped;
	publish(0, 3);
	wait_for(counts().dropped == before + 3);
	assert_int_equal(logged("refuses a command: OOM command not allowed"), 1);
	clock_ahead += 60;
	publish(0, 1);
	wait_for(logged("refuses a command") == 2);
}

TEST_WITH(test_close, begin_with_valkey, end)
{
	open_and_wait(2, "ask_ms = 1000;");
	valkey_server_hang(&servers[0]);
	valkey_server_hang(&servers[1]);
	publish(0, 1000);
	got.calls = 0;
	ask_only(0, 64);
	assert_int_equal(got.calls, 0);
	got.again = true;
	directory_close(dir);
	dir = NULL;
	assert_int_equal(got.calls, 2);
	assert_false(directory_counts(&(struct directory_counts){ 0 }));
}

TEST_WITH(test_open_errors, begin_with_valkey, end)
{
	static const char node[] = "id of the node A";
	char text[256];
	uint64_t before;
	int calls;

	/* a server in two forms */
	assert_int_equal(config_parse("directory: { engine = \"valkey\"; servers = ( \"[::1]:6379\", \"[::1]:06379\" ); };",
				      &config, stderr), 0);
	assert_int_equal(directory_open(event, &config.directory, on_lost, &lost_calls, &dir), -EEXIST);
	config_free(&config);
	/* the directory, a server; without a connection, the next tick tries again */
	snprintf(text, sizeof(text), "directory: { engine = \"valkey\"; servers = ( \"%s\" ); ask_ms = 1000; };",
		 servers[0].address);
	assert_int_equal(config_parse(text, &config, stderr), 0);
	for (int i = 1; i <= 2; i++) {
		fail_at = i;
		assert_int_equal(directory_open(event, &config.directory, on_lost, &lost_calls, &dir), -ENOMEM);
		assert_false(directory_counts(&(struct directory_counts){ 0 }));
	}
	fail_at = 3;
	assert_int_equal(directory_open(event, &config.directory, on_lost, &lost_calls, &dir), 0);
	config_free(&config);
	assert_int_equal(fail_at, 0);
	assert_int_equal(logged("Cannot allocate memory"), 1);
	wait_for(counts().up == 1);
	/* a queue */
	before = counts().dropped;
	fail_at = 1;
	publish(0, 2);
	assert_int_equal(counts().dropped, before + 1);
	/* a question */
	fail_at = 1;
	got.calls = 0;
	ask_only(0, 2);
	assert_int_equal(got.calls, 1);
	assert_int_equal(ask(0, 2), 1);
	/* an announcement, and its answer; the later one is answered last */
	calls = live.calls;
	fail_at = 1;
	directory_join(dir, pod, (const uint8_t *)node, "x", on_nodes, &live);
	assert_int_equal(fail_at, 0);
	directory_join(dir, pod, (const uint8_t *)node, "x", on_nodes, &live);
	fail_at = 1;
	wait_for(!fail_at);
	assert_int_equal(ask(0, 2), 1);
	assert_int_equal(live.calls, calls);
}

TEST_WITH(test_no_server, begin, end)
{
	/* refused by the kernel at once, and by ports without a listener */
	snprintf(servers[0].address, sizeof(servers[0].address), "255.255.255.255:1");
	snprintf(servers[1].address, sizeof(servers[1].address), "127.0.0.1:%d", free_port());
	snprintf(servers[2].address, sizeof(servers[2].address), "[::1]:%d", free_port());
	open_directory(0, 3, "");
	wait_for(logged("no connection to server") == 3);
	assert_int_equal(logged("[::1]:"), 1);
	got.calls = 0;
	ask_only(0, 1);
	assert_int_equal(got.calls, 1);
	assert_int_equal(counts().servers, 3);
}

static void password(const char *path, const char *text, mode_t mode)
{
	int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	fchmod(fd, mode);
	close(fd);
}

TEST_WITH(test_password, begin_with_valkey, end)
{
	char path[] = "/tmp/directory_test.8453XXX", more[64];

	close(mkstemp(path));
	snprintf(more, sizeof(more), "password_file = \"%s\";", path);
	command(&servers[0], "CONFIG SET requirepass secret");
	open_directory(0, 1, "");
	wait_for(logged("NOAUTH"));
	directory_close(dir);
	password(path, "wrong\n", 0600);
	open_directory(0, 1, more);
	wait_for(logged("WRONGPASS"));
	password(path, "secret\n", 0644);
	directory_close(dir);
	open_directory(0, 1, more);
	wait_for(logged("chmod 600"));
	/* the file is read again at the next attempt */
	password(path, "secret\n", 0600);
	wait_for(counts().up == 1);
	unlink(path);
}

/* ---- nodes ---- */

static void join(const char *node, const char *endpoint)
{
	int before = live.calls;

	directory_join(dir, pod, (const uint8_t *)node, endpoint, on_nodes, &live);
	wait_for(live.calls == before + 1);
}

TEST_WITH(test_nodes, begin_with_valkey, end)
{
	static const char a[] = "id of the node A", b[] = "id of the node B";
	char key[DIRWIRE_NODES_KEY], longest[DIRECTORY_ENDPOINT + 1];
	int before;

	dirwire_nodes_key(pod, key);
	open_directory(0, 1, "");
	before = live.calls;
	/* no server is up yet */
	directory_join(dir, pod, (const uint8_t *)a, "tcp://a:1", on_nodes, &live);
	wait_for(counts().up == 1);
	join(a, "tcp://a:1");
	assert_int_equal(live.calls, before + 1);
	assert_int_equal(live.nr, 1);
	assert_memory_equal(live.nodes[0].id, a, 16);
	assert_string_equal(live.nodes[0].endpoint, "tcp://a:1");
	join(b, "tcp://b:1");
	assert_int_equal(live.nr, 2);
	join(a, "tcp://a:1");
	assert_int_equal(live.nr, 2);
	/* the lease ends by the server's clock: set the end of B's lease to the past */
	assert_in_range(atoi(command(&servers[0], "TTL %b", key, sizeof(key))), 1, DIRECTORY_LEASE_S);
	command(&servers[0], "ZINCRBY %b -100 %s%s", key, sizeof(key), b, "tcp://b:1");
	join(a, "tcp://a:1");
	assert_int_equal(live.nr, 1);
	assert_memory_equal(live.nodes[0].id, a, 16);
	/* skips members of the set that are no nodes */
	command(&servers[0], "ZADD %b 99999999999 short", key, sizeof(key));
	join(b, "tcp://b:2");
	assert_int_equal(live.nr, 2);
	memset(longest, 'x', sizeof(longest));
	longest[DIRECTORY_ENDPOINT] = '\0';
	before = live.calls;
	directory_join(dir, pod, (const uint8_t *)a, longest, on_nodes, &live);
	join(a, longest + 1);
	assert_int_equal(live.calls, before + 1);
	assert_int_equal(live.nr, 3);
	command(&servers[0], "DEL %b", key, sizeof(key));
	command(&servers[0], "SET %b x", key, sizeof(key));
	directory_join(dir, pod, (const uint8_t *)a, "tcp://a:1", on_nodes, &live);
	wait_for(logged("WRONGTYPE"));
	assert_int_equal(live.calls, before + 1);
}

/* ---- clusters ---- */

static bool is_formed(struct valkey_server *server, unsigned int nodes)
{
	char known[32];
	const char *info = command(server, "CLUSTER INFO");

	snprintf(known, sizeof(known), "cluster_known_nodes:%u\r", nodes);
	return strstr(info, "cluster_state:ok") && strstr(info, known);
}

/* Three servers with a third of the slots each, and one without slots. */
static int begin_with_cluster(void **state)
{
	static const char *const more[] = { "--cluster-enabled", "yes", "--cluster-require-full-coverage", "no", NULL };
	int err;

	if (!valkey_server_exists()) {
		print_message("no " VALKEY_SERVER ": install it to run this test\n");
		skip();
	}
	for (unsigned int i = 0; i < SERVERS; i++) {
		valkey_server_start(&servers[i], more);
		if (i)
			command(&servers[0], "CLUSTER MEET 127.0.0.1 %d %d", servers[i].port, servers[i].bus);
		if (i < 3)
			command(&servers[i], "CLUSTER ADDSLOTSRANGE %d %d", (int)i * 5461,
				i == 2 ? 16383 : (int)i * 5461 + 5460);
	}
	err = begin(state);
	for (unsigned int i = 0; i < SERVERS; i++)
		wait_for(is_formed(&servers[i], SERVERS));
	return err;
}

TEST_WITH(test_cluster, begin_with_cluster, end)
{
	int size[3];

	/* the first server names the rest */
	open_directory(0, 1, "ask_ms = 1000;");
	wait_for(counts().up == 3);
	publish_all(0, 64);
	for (int i = 0; i < 3; i++) {
		size[i] = atoi(command(&servers[i], "DBSIZE"));
		assert_in_range(size[i], 4, 60);
	}
	assert_int_equal(ask(0, 64), 64);
	/* the third server dies; two go on */
	valkey_server_stop(&servers[2]);
	wait_for(counts().up == 2);
	assert_int_equal(ask(0, 64), size[0] + size[1]);
	/* the node in the configuration dies, too */
	valkey_server_stop(&servers[0]);
	wait_for(counts().up == 1);
	assert_int_equal(ask(0, 64), size[1]);
}

TEST_WITH(test_moved, begin_with_cluster, end)
{
	char id[64];
	uint64_t before;

	open_directory(0, 1, "ask_ms = 1000;");
	wait_for(counts().up == 3);
	snprintf(id, sizeof(id), "%s", command(&servers[3], "CLUSTER MYID"));
	/* with the largest epoch, or else a message of the former owner takes the slot back */
	command(&servers[3], "CLUSTER BUMPEPOCH");
	for (int i = SERVERS - 1; i >= 0; i--)
		command(&servers[i], "CLUSTER SETSLOT %u NODE %s", slot_of(1), id);
	before = counts().dropped;
	publish(1, 1);
	wait_for(counts().dropped == before + 1);
	wait_for(counts().up == 4);
	wait_for(lost_calls);
	publish_all(1, 1);
	assert_int_equal(atoi(command(&servers[3], "DBSIZE")), 1);
	assert_int_equal(ask(1, 1), 1);
	assert_int_equal(logged("refuses"), 0);
}

TEST_WITH(test_failover, begin_with_cluster, end)
{
	char id[64];

	snprintf(id, sizeof(id), "%s", command(&servers[0], "CLUSTER MYID"));
	command(&servers[3], "CLUSTER REPLICATE %s", id);
	open_and_wait(3, "ask_ms = 1000;");
	publish_all(0, 64);
	wait_for(atoi(command(&servers[3], "DBSIZE")) == atoi(command(&servers[0], "DBSIZE")));
	valkey_server_stop(&servers[0]);
	wait_for(counts().up == 2);
	publish(0, 64);
	command(&servers[3], "CLUSTER FAILOVER TAKEOVER");
	wait_for(counts().up == 3);
	assert_int_equal(ask(0, 64), 64);
	wait_for(lost_calls == 1);
}

/* ---- a fake server ---- */

#define RUN_ID		"$14\r\nrun_id:0123456\r\n"
#define SEPARATE	"-ERR This instance has cluster support disabled\r\n"

/**
 * struct fake - a server with given replies
 * @listener: socket
 * @fd: last connection, or -1
 * @accepts: event source of @listener
 * @reads: event source of @fd
 * @greeting: bytes to send at the first command; NULL: they were sent
 * @then: bytes to send at later commands
 */
static struct {
	int listener;
	int fd;
	sd_event_source *accepts;
	sd_event_source *reads;
	const char *greeting;
	const char *then;
} fake = { .fd = -1 };

static int on_fake_read(sd_event_source *source, int fd, uint32_t revents, void *arg)
{
	const char *text = fake.greeting ? fake.greeting : fake.then;
	char buf[65536];

	if (read(fd, buf, sizeof(buf)) <= 0) {
		sd_event_source_set_enabled(source, SD_EVENT_OFF);
		return 0;
	}
	fake.greeting = NULL;
	assert_true(send(fd, text, strlen(text), MSG_NOSIGNAL) >= 0);
	return 0;
}

static int on_fake_accept(sd_event_source *source, int fd, uint32_t revents, void *arg)
{
	/* serve a single connection */
	sd_event_source_set_enabled(source, SD_EVENT_OFF);
	fake.fd = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
	assert_true(fake.fd >= 0);
	return sd_event_add_io(event, &fake.reads, fake.fd, EPOLLIN, on_fake_read, NULL);
}

/* Open a directory at a server that sends @greeting, and later @then. */
static void open_fake(const char *greeting, const char *then)
{
	int port = 0;

	begin(NULL);
	fake.listener = bind_port(&port);
	assert_true(fake.listener >= 0);
	assert_int_equal(listen(fake.listener, 8), 0);
	assert_true(sd_event_add_io(event, &fake.accepts, fake.listener, EPOLLIN, on_fake_accept, NULL) >= 0);
	fake.greeting = greeting;
	fake.then = then;
	snprintf(servers[0].address, sizeof(servers[0].address), "127.0.0.1:%d", port);
	open_directory(0, 1, "ask_ms = 1000;");
}

static void close_fake(void)
{
	sd_event_source_disable_unref(fake.accepts);
	fake.reads = sd_event_source_disable_unref(fake.reads);
	if (fake.fd >= 0)
		close(fake.fd);
	fake.fd = -1;
	close(fake.listener);
	end(NULL);
}

TEST(test_wrong_greetings)
{
	static const struct {
		const char *greeting;
		const char *says;
	} wrong[] = {
		{ "HTTP/1.1 400 Bad Request\r\n\r\n", "Protocol error" },
		{ "+OK\r\n", "unexpected reply" },
		{ "$3\r\nabc\r\n", "unexpected reply" },
		{ "-LOADING wait\x1b[2J\r\n", "LOADING wait?[2J" },
		{ RUN_ID "-NOPERM no\r\n", "NOPERM no" },
		{ RUN_ID SEPARATE "+more\r\n", "unexpected reply" },
	};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		open_fake(wrong[i].greeting, "");
		wait_for(logged("no connection to server"));
		if (!logged(wrong[i].says))
			fail_msg("%s: %s", wrong[i].greeting, said);
		assert_int_equal(counts().up, 0);
		close_fake();
	}
}

#define NODE(ip, port)	"*2\r\n" ip ":" port "\r\n"
#define RANGE(begin, end, node)	"*3\r\n:" begin "\r\n:" end "\r\n" node

/* Wrong ranges and nodes have no server; the right range counts. */
TEST(test_wrong_slots)
{
	open_fake(RUN_ID "*13\r\n:1\r\n*0\r\n" RANGE("5", "2", NODE("$-1\r\n", "1"))
		  RANGE("0", "16384", NODE("$-1\r\n", "1")) RANGE("-1", "16383", NODE("$-1\r\n", "1"))
		  RANGE("0", "16383", ":7\r\n") "*2\r\n:0\r\n:1\r\n"
		  RANGE("0", "1", "*0\r\n") RANGE("0", "1", NODE("$9\r\nlocalhost\r\n", "1"))
		  RANGE("0", "1", NODE("$9\r\n127.0.0.1\r\n", "0")) RANGE("0", "1", NODE("$9\r\n127.0.0.1\r\n", "65536"))
		  RANGE("0", "1", NODE(":7\r\n", "1")) RANGE("2", "3", NODE("$0\r\n\r\n", "1")), "+PONG\r\n");
	wait_for(counts().up == 1);
	/* the right range is of the same address, port 1 */
	assert_int_equal(counts().servers, 2);
	got.calls = 0;
	ask_only(0, 64);
	assert_int_equal(got.calls, 1);
	publish(0, 64);
	directory_join(dir, pod, pod, "x", on_nodes, &live);
	close_fake();
}

TEST(test_too_many_servers)
{
	static char greeting[65536];
	size_t len = (size_t)snprintf(greeting, sizeof(greeting), RUN_ID "*200\r\n");

	for (int i = 0; i < 200; i++)
		len += (size_t)snprintf(greeting + len, sizeof(greeting) - len,
					RANGE("%d", "%d", NODE("$9\r\n127.0.0.1\r\n", "1%03d")), i, i, i);
	/* a tick sends PING and CLUSTER SLOTS; the next tick forgets servers without slots */
	open_fake(greeting, "+PONG\r\n*0\r\n");
	wait_for(counts().up == 1);
	assert_int_equal(counts().servers, 128);
	wait_for(counts().servers == 1);
	close_fake();
}

TEST(test_wrong_replies)
{
	static const struct {
		const char *reply;
		bool lost;
	} replies[] = {
		{ ":1\r\n", true },
		{ "*1\r\n$-1\r\n", true },
		{ "$1073741824\r\nx", false },
		{ "*2\r\n*0\r\n:5\r\n", false },
		{ "-MOVED x\r\n", false },
		{ "*2\r\n$-1\r\n$-1\r\n+more\r\n", true },
	};

	for (size_t i = 0; i < sizeof(replies) / sizeof(replies[0]); i++) {
		open_fake(RUN_ID SEPARATE, replies[i].reply);
		wait_for(counts().up == 1);
		clock_stopped = false;
		assert_int_equal(ask(0, 2), 0);
		if (replies[i].lost)
			wait_for(logged("unexpected reply"));
		else
			assert_int_equal(logged("unexpected"), 0);
		close_fake();
	}
}

TEST(test_endless_reply)
{
	static char reply[2 << 20];

	snprintf(reply, sizeof(reply), "$999999999\r\n%0*d", (int)sizeof(reply) - 20, 0);
	open_fake(RUN_ID SEPARATE, reply);
	wait_for(counts().up == 1);
	ask_only(0, 1);
	wait_for(logged("a reply without an end"));
	close_fake();
}

TEST(test_wrong_stored)
{
	uint64_t before;

	open_fake(RUN_ID SEPARATE, ":1\r\n");
	wait_for(counts().up == 1);
	before = counts().dropped;
	publish(0, 1);
	wait_for(counts().dropped == before + 1);
	close_fake();
	/* a cluster that is back after it was down, with its connections */
	open_fake(RUN_ID SEPARATE, "-CLUSTERDOWN The cluster is down\r\n");
	wait_for(counts().up == 1);
	before = counts().dropped;
	publish(0, 1);
	wait_for(counts().dropped == before + 1);
	fake.then = "+OK\r\n";
	publish(0, 1);
	wait_for(lost_calls == 1);
	close_fake();
	open_fake(RUN_ID SEPARATE, "*2\r\n:1\r\n$17\r\nid of the node Ax\r\n");
	wait_for(counts().up == 1);
	join("id of the node B", "x");
	assert_int_equal(live.nr, 1);
	assert_string_equal(live.nodes[0].endpoint, "x");
	close_fake();
}

TEST_MAIN("directory")
