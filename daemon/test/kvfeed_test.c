// SPDX-License-Identifier: MIT
/*
 * The exporter of KV events as subscribers see it. Change feeds are pipes: the test controls their
 * records, losses and ends.
 *
 * usage: kvfeed_test
 *	or: kvfeed_test serve CONFIG
 *	Export with that file until standard input ends. Change feeds are the FIFOs
 *	POOL.changes in the directory of CONFIG.
 */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include <zmq.h>

#include "kv_events/publisher.h"
#include "lib/kvblk_admin.h"
#include "kvblk_test.h"

#define WAIT_MS	30000
#define HASH	0xfedcba9800000000

/* replacements of libkvblk's functions */

static int next_changes = -ENODEV;	/* next change feed of pool kv0 */
static const char *fifos;

int kvblk_changes_open(const char *pool, int flags, const struct kvblk_changes *changes)
{
	char path[256];
	int fd = next_changes;

	assert_int_equal(flags, O_NONBLOCK);
	assert_int_equal(changes->size, sizeof(*changes));
	assert_int_equal(changes->flags, KVBLK_CHANGES_PRESENT);
	assert_int_equal(changes->record_size, sizeof(struct kvblk_change));
	if (fifos) {
		snprintf(path, sizeof(path), "%s/%s.changes", fifos, pool);
		fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
		return fd < 0 ? -ENODEV : fd;
	}
	assert_int_equal(changes->nr_records, 1024);
	if (fd < 0 || strcmp(pool, "kv0") != 0)
		return -ENODEV;
	next_changes = -ENODEV;
	return fd;
}

void log_line(int level, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
}

static atomic_bool no_memory;	/* fail once */

void *__real_calloc(size_t nr, size_t size);
void *__wrap_calloc(size_t nr, size_t size);

void *__wrap_calloc(size_t nr, size_t size)
{
	return atomic_exchange(&no_memory, false) ? NULL : __real_calloc(nr, size);
}

static char dir[] = "/tmp/kvfeed_test-XXXXXX";
static void *context, *sub;
static struct config config;

/* Returns a Unix socket for the engine, which is a source; a port for kvblkd's sockets. */
static const char *endpoint(const char *name)
{
	static struct {
		char name[16];
		char text[128];
	} all[8];
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(at);
	size_t n = 0;
	int fd;

	while (*all[n].name && strcmp(all[n].name, name) != 0)
		n++;
	if (*all[n].name)
		return all[n].text;
	snprintf(all[n].name, sizeof(all[n].name), "%s", name);
	snprintf(all[n].text, sizeof(all[n].text), "ipc://%s/%s", dir, name);
	if (!strcmp(name, "engine"))
		return all[n].text;
	fd = socket(AF_INET, SOCK_STREAM, 0);
	assert_true(fd >= 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &len), 0);
	close(fd);
	snprintf(all[n].text, sizeof(all[n].text), "tcp://127.0.0.1:%u", ntohs(at.sin_port));
	return all[n].text;
}

static void configure(const char *name, const char *replay, const char *more)
{
	char text[1024];

	config_free(&config);
	snprintf(text, sizeof(text), "pools = ( { name = \"kv0\"; } ); exporters: { kv_events: {"
		 "endpoint = \"%s\"; replay = \"%s\"; sources = ( \"%s\" );"
		 "topic = \"t\"; repeat = 1; changes = 1024; %s }; };",
		 endpoint(name), replay, endpoint("engine"), more);
	assert_int_equal(config_parse(text, &config, stderr), 0);
	kvfeed_configure(&config);
}

static void *connect_to(const char *name, int type)
{
	void *socket = zmq_socket(context, type);

	zmq_setsockopt(socket, ZMQ_RCVTIMEO, &(int){ WAIT_MS }, sizeof(int));
	zmq_setsockopt(socket, ZMQ_LINGER, &(int){ 0 }, sizeof(int));
	if (type == ZMQ_SUB)
		zmq_setsockopt(socket, ZMQ_SUBSCRIBE, "", 0);
	assert_int_equal(zmq_connect(socket, endpoint(name)), 0);
	return socket;
}

/* Wait for a batch with this event and return its number. @topic is NULL for a replay. */
static uint64_t wait_event(void *socket, const char *topic, const struct kvwire_bytes *event)
{
	const time_t end = time(NULL) + WAIT_MS / 1000;
	uint64_t number;
	char bytes[4096];
	int len;

	do {
		/* skip repeats of the last batch */
		assert_true(time(NULL) <= end);
		if (!topic)
			assert_int_equal(zmq_recv(socket, bytes, sizeof(bytes), 0), 0);
		len = zmq_recv(socket, bytes, sizeof(bytes), 0);
		assert_in_range(len, topic ? strlen(topic) : 0, 1);
		assert_int_equal(zmq_recv(socket, &number, sizeof(number), 0), sizeof(number));
		len = zmq_recv(socket, bytes, sizeof(bytes), 0);
		assert_in_range(len, 0, sizeof(bytes));
	} while (event && !memmem(bytes, (size_t)len, event->data, event->len));
	return be64toh(number);
}

static uint64_t wait_cleared(void *socket, const char *topic)
{
	struct kvwire_bytes event = { 0 };
	uint64_t number;

	kvwire_cleared(&event);
	number = wait_event(socket, topic, &event);
	kvwire_free(&event);
	return number;
}

static void wait_stored(const struct kvwire_block *block)
{
	struct kvwire_bytes event = { 0 };

	kvwire_stored(&event, block, "STORAGE");
	wait_event(sub, "t", &event);
	kvwire_free(&event);
}

/* Wait for the removal of @hash, which may be part of an event for several hashes. */
static uint64_t wait_removed(uint64_t hash)
{
	const uint64_t number = hash;
	struct kvwire_bytes event = { 0 };

	/* the end of an event for this hash only, up to its medium */
	kvwire_removed(&event, &number, 1, "");
	event.len -= sizeof("\xa6medium\xa0") - 1;
	hash = wait_event(sub, "t", &(struct kvwire_bytes){ .data = event.data + event.len - 9, .len = 9 });
	kvwire_free(&event);
	return hash;
}

static int begin_changes(void)
{
	int fds[2];

	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	fcntl(fds[0], F_SETFL, O_NONBLOCK);
	next_changes = fds[0];
	return fds[1];
}

static void tell(int fd, uint8_t op, uint64_t token, uint64_t tag)
{
	const struct kvblk_change record = { .op = op, .token = { token, 1 }, .caller_tag = tag };

	assert_int_equal(write(fd, &record, sizeof(record)), sizeof(record));
}

static const struct kvwire_block first = { .hash = HASH + 1, .tokens = { "\x05\x06", 2 }, .nr_tokens = 2 };
static const struct kvwire_block second = {
	.hash = HASH + 2, .has_parent = true, .parent = HASH + 1, .tokens = { "\x07\x08", 2 }, .nr_tokens = 2,
};

static void send_batch(void *engine, const struct kvwire_bytes *batch)
{
	zmq_send(engine, "engine's", 8, ZMQ_SNDMORE);
	zmq_send(engine, "\0\0\0\0\0\0\0\1", 8, ZMQ_SNDMORE);
	zmq_send(engine, batch->data, batch->len, 0);
}

/* Publish until the exporter has received it: its subscription may take a while. */
static void engine_tells(void *engine)
{
	struct kvwire_bytes events = { 0 }, batch = { 0 };

	zmq_setsockopt(engine, ZMQ_XPUB_NODROP, &(int){ 0 }, sizeof(int));
	kvwire_stored(&events, &first, "GPU");
	kvwire_stored(&events, &second, "GPU");
	kvwire_batch(&batch, 1, &events, 2);
	send_batch(engine, &(struct kvwire_bytes){ .data = (char []){ "what" }, .len = 4 });
	send_batch(engine, &batch);
	kvwire_free(&events);
	kvwire_free(&batch);
}

TEST(test_all)
{
	struct kvwire_bytes event = { 0 };
	struct kvfeed_source source = { 0 };
	struct kvevents_counts counts;
	uint64_t number, same;
	char byte, taken[64];
	size_t len = sizeof(taken);
	void *engine, *asks;
	int fd, old;

	assert_non_null(mkdtemp(dir));
	context = zmq_ctx_new();
	engine = zmq_socket(context, ZMQ_XPUB);
	zmq_setsockopt(engine, ZMQ_LINGER, &(int){ 0 }, sizeof(int));
	assert_int_equal(zmq_bind(engine, endpoint("engine")), 0);
	assert_int_equal(config_parse("", &config, stderr), 0);
	kvfeed_configure(&config);
	assert_false(kvfeed_counts(&counts));

	/* a late subscriber receives the last batch */
	configure("a", endpoint("a-replay"), "");
	sub = connect_to("a", ZMQ_SUB);
	wait_cleared(sub, "t");
	assert_true(kvfeed_counts(&counts));

	/* a new pool; tokens published after its blocks; sources that send garbage */
	fd = begin_changes();
	tell(fd, KVBLK_CHANGE_STORED, 1, HASH + 1);
	tell(fd, KVBLK_CHANGE_STORED, 2, HASH + 2);
	tell(fd, KVBLK_CHANGE_STORED, 3, HASH + 3);
	tell(fd, KVBLK_CHANGE_CAUGHT_UP, 0, 0);
	kvfeed_wake();
	assert_int_equal(zmq_recv(engine, &byte, 1, 0), 1);
	engine_tells(engine);
	wait_stored(&first);
	for (int i = 0; i < WAIT_MS && !(kvfeed_sources(&source, 1) == 1 && source.connected); i++)
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	assert_true(source.connected);
	assert_string_equal(source.endpoint, endpoint("engine"));
	engine_tells(engine);
	tell(fd, KVBLK_CHANGE_REMOVED, 1, HASH + 1);
	wait_removed(HASH + 1);
	tell(fd, KVBLK_CHANGE_STORED, 1, HASH + 1);
	wait_stored(&first);

	/*
	 * the pool is destroyed and imported; its feed loses records: what the next one lacks is
	 * removed
	 */
	tell(fd, KVBLK_CHANGE_STORED, 4, HASH + 4);
	old = fd;
	fd = begin_changes();
	close(old);
	wait_removed(HASH + 4);
	tell(fd, KVBLK_CHANGE_STORED, 3, HASH + 3);
	tell(fd, KVBLK_CHANGE_STORED, 2, HASH + 2);
	wait_stored(&second);
	tell(fd, KVBLK_CHANGE_CAUGHT_UP, 0, 0);
	old = fd;
	fd = begin_changes();
	tell(old, KVBLK_CHANGE_LOST, 7, 0);
	close(old);
	tell(fd, KVBLK_CHANGE_STORED, 2, HASH + 2);
	tell(fd, KVBLK_CHANGE_CAUGHT_UP, 0, 0);
	number = wait_removed(HASH + 3);
	assert_true(kvfeed_counts(&counts));
	assert_int_equal(counts.lost, 1);
	assert_int_equal(counts.hashes, 1);

	/* a replay; the same configuration changes nothing */
	configure("a", endpoint("a-replay"), "");
	asks = connect_to("a-replay", ZMQ_DEALER);
	zmq_send(asks, "", 0, ZMQ_SNDMORE);
	zmq_send(asks, "\0\0\0\0\0\0\0\0", 8, 0);
	wait_cleared(asks, NULL);
	while ((same = wait_event(asks, NULL, NULL)) != UINT64_MAX)
		assert_in_range(same, number - 100, number);
	zmq_close(asks);
	tell(fd, KVBLK_CHANGE_REMOVED, 2, HASH + 2);
	assert_int_equal(wait_removed(HASH + 2), number + 1);

	/* the feed loses records, and the pool is destroyed before the next feed is open */
	tell(fd, KVBLK_CHANGE_STORED, 5, HASH + 1);
	wait_stored(&first);
	tell(fd, KVBLK_CHANGE_LOST, 7, 0);
	kvwire_removed(&event, &first.hash, 1, "STORAGE");
	wait_event(sub, "t", &event);
	kvwire_free(&event);

	/* another endpoint, then none */
	close(fd);
	configure("b", endpoint("b-replay"), "hash_only = true; medium = \"DISK\";");
	zmq_close(sub);
	sub = connect_to("b", ZMQ_SUB);
	same = wait_cleared(sub, "t");
	assert_true(same > number + 1);

	/* an error: everything restarts 5 s later, whatever happens meanwhile */
	fd = begin_changes();
	no_memory = true;
	tell(fd, KVBLK_CHANGE_STORED, 1, HASH + 1);
	close(fd);
	kvfeed_wake();
	for (int i = 0; i < 10 && wait_cleared(sub, "t") == same; i++)
		kvfeed_wake();
	assert_false(no_memory);
	assert_true(wait_cleared(sub, "t") > same);

	config_free(&config);
	kvfeed_configure(&config);
	for (int i = 0; kvfeed_counts(&counts) && i < WAIT_MS; i++)
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	assert_false(kvfeed_counts(&counts));
	assert_int_equal(kvfeed_sources(&source, 1), 0);

	/* an endpoint in use */
	assert_int_equal(zmq_bind(engine, "tcp://127.0.0.1:*"), 0);
	zmq_getsockopt(engine, ZMQ_LAST_ENDPOINT, taken, &len);
	configure("b", taken, "");
	nanosleep(&(struct timespec){ .tv_nsec = 300000000 }, NULL);
	assert_false(kvfeed_counts(&counts));
	assert_int_equal(zmq_unbind(engine, taken), 0);
	wait_cleared(sub, "t");
	assert_true(kvfeed_counts(&counts));

	config_free(&config);
	kvfeed_configure(&config);
	while (kvfeed_counts(&counts))
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	zmq_close(sub);
	zmq_close(engine);
	zmq_ctx_term(context);
	snprintf(taken, sizeof(taken), "rm -r %s", dir);
	assert_int_equal(system(taken), 0);
}

static int serve(char *path)
{
	char byte;

	if (config_load(path, &config, stderr))
		return EXIT_FAILURE;
	fifos = dirname(path);
	kvfeed_configure(&config);
	while (read(STDIN_FILENO, &byte, 1) > 0)
		kvfeed_wake();
	return EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "serve"))
		return serve(argv[2]);
	return RUN_TESTS("kvfeed");
}
