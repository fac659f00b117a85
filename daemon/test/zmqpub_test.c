// SPDX-License-Identifier: MIT
/* Publisher and subscriber: numbers, replay and its recipients, invalid requests. */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include <zmq.h>

#include "free_port.h"
#include "kv_events/zmq_pub.h"
#include "kv_events/zmq_sub.h"
#include "kvblk_test.h"

#define BUFFER	6	/* batches */
#define BATCH	(10u << 10)
#define PUB	"inproc://pub"
#define REPLAY	"inproc://replay"

static sd_event *event;
static void *context, *sub, *dealer;
static struct zmqpub *zmqpub;
static uint64_t last;		/* last number */
static char *received;		/* a frame, with a terminating 0 */
static unsigned int made;	/* shares made */
static size_t nr_shares, share_bytes;
static bool no_memory;
static bool held;		/* the loop does not run */

int __real_zmq_send(void *socket, const void *data, size_t len, int flags);
int __wrap_zmq_send(void *socket, const void *data, size_t len, int flags);

static bool no_memory_to_send;

/* Fail for the batch of a message. */
int __wrap_zmq_send(void *socket, const void *data, size_t len, int flags)
{
	if (!no_memory_to_send || !len || (flags & ZMQ_SNDMORE))
		return __real_zmq_send(socket, data, len, flags);
	errno = ENOMEM;
	return -1;
}

static size_t shares(void *arg)
{
	assert_ptr_equal(arg, &made);
	return nr_shares;
}

/* Share 3 of 7 is "3/7", padded with blanks to @share_bytes. */
static int share(void *arg, size_t number, size_t nr, kvevents_publish_fn *publish, void *to)
{
	char *text = malloc(share_bytes + 32);
	int len = sprintf(text, "%zu/%zu", number, nr);
	bool taken;

	assert_ptr_equal(arg, &made);
	assert_true(number < nr);
	made++;
	memset(text + len, ' ', share_bytes);
	taken = !no_memory && publish(to, &(struct kvwire_bytes){ .data = text, .len = (size_t)len + share_bytes });
	free(text);
	return no_memory ? -ENOMEM : taken ? 0 : -ECANCELED;
}

static struct zmqpub_rules rules = { PUB, REPLAY, "kv", BUFFER * (BATCH + 256), shares, share, &made };

static void *client(int type, const char *endpoint)
{
	void *socket = zmq_socket(context, type);

	zmq_setsockopt(socket, ZMQ_LINGER, &(int){ 0 }, sizeof(int));
	if (type == ZMQ_SUB)
		zmq_setsockopt(socket, ZMQ_SUBSCRIBE, "kv", 2);
	assert_int_equal(zmq_connect(socket, endpoint), 0);
	return socket;
}

static int begin(void **state)
{
	context = zmq_ctx_new();
	assert_true(sd_event_new(&event) >= 0);
	assert_int_equal(zmqpub_open(event, context, &rules, &zmqpub), 0);
	sub = client(ZMQ_SUB, PUB);
	dealer = client(ZMQ_DEALER, REPLAY);
	made = 0;
	nr_shares = 2;
	share_bytes = 0;
	no_memory = false;
	last = 0;
	return 0;
}

static int end(void **state)
{
	zmqpub_close(zmqpub);
	free(received);
	received = NULL;
	zmq_close(sub);
	zmq_close(dealer);
	zmq_ctx_term(context);
	event = sd_event_unref(event);
	return 0;
}

/* Run the loop until @socket receives a frame, which must begin with @want unless NULL. */
static size_t frame(void *socket, const char *want)
{
	size_t got;
	int len = -1;
	zmq_msg_t message;

	zmq_msg_init(&message);
	for (int i = 0; i < 20000 && len < 0; i++) {
		assert_true(held || sd_event_run(event, 0) >= 0);
		len = zmq_msg_recv(&message, socket, ZMQ_DONTWAIT);
		if (len < 0)
			zmq_poll(&(zmq_pollitem_t){ socket, 0, ZMQ_POLLIN, 0 }, 1, 1);
	}
	assert_true(len >= 0);
	got = (size_t)len;
	free(received);
	received = calloc(1, got + 1);
	memcpy(received, zmq_msg_data(&message), got);
	zmq_msg_close(&message);
	if (want) {
		assert_in_range(got, strlen(want), SIZE_MAX);
		assert_memory_equal(received, want, strlen(want));
		assert_int_equal(strspn(received + strlen(want), " "), got - strlen(want));
	}
	return got;
}

static uint64_t number(void *socket)
{
	uint64_t be;

	assert_int_equal(frame(socket, NULL), sizeof(be));
	memcpy(&be, received, sizeof(be));
	return be64toh(be);
}

/* Receive a published message: topic, number, @batch. Returns the number. */
static uint64_t message(void *socket, const char *batch)
{
	uint64_t got;

	frame(socket, "kv");
	got = number(socket);
	frame(socket, batch);
	return got;
}

/* Receive a replayed message as vLLM and SGLang send it: empty frame, topic, number, @batch. */
static uint64_t answered(void *socket, const char *batch)
{
	int more;
	uint64_t got;

	assert_int_equal(frame(socket, NULL), 0);
	got = message(socket, batch);
	zmq_getsockopt(socket, ZMQ_RCVMORE, &more, &(size_t){ sizeof(more) });
	assert_false(more);
	return got;
}

static void publish(int nr)
{
	char text[BATCH] = "";
	int len = sprintf(text, "b%d", nr);

	memset(text + len, ' ', sizeof(text) - (size_t)len);
	assert_int_equal(zmqpub_send(zmqpub, &(struct kvwire_bytes){ .data = text, .len = sizeof(text) }), 0);
	text[len] = '\0';
	last = message(sub, text);
}

static void ask(const void *first, size_t len, const void *second, size_t len2)
{
	zmq_send(dealer, first, len, ZMQ_SNDMORE);
	zmq_send(dealer, second, len2, 0);
}

static void ask_from(uint64_t number)
{
	const uint64_t be = htobe64(number);

	ask("", 0, &be, sizeof(be));
}

static void is_end(void)
{
	assert_int_equal(frame(dealer, NULL), 0);
	assert_int_equal(frame(dealer, NULL), 0);
	assert_int_equal(number(dealer), UINT64_MAX);
	assert_int_equal(frame(dealer, NULL), 0);
}

static bool is_quiet(void *socket)
{
	for (int i = 0; i < 10; i++)
		sd_event_run(event, 0);
	return zmq_poll(&(zmq_pollitem_t){ socket, 0, ZMQ_POLLIN, 0 }, 1, 20) == 0;
}

TEST_WITH(test_numbers, begin, end)
{
	uint64_t first, now = (uint64_t)time(NULL) * 1000000;

	zmqpub_repeat(zmqpub);
	publish(0);
	first = last;
	assert_in_range(first, now - 10000000, now + 10000000);
	for (int i = 1; i < 10; i++) {
		publish(i);
		assert_int_equal(last, first + (uint64_t)i);
	}
	zmqpub_repeat(zmqpub);
	assert_int_equal(message(sub, "b9"), last);
	publish(10);
	assert_int_equal(last, first + 10);
	assert_true(is_quiet(sub));
}

TEST_WITH(test_replay, begin, end)
{
	char text[16];

	ask_from(0);
	is_end();
	for (int i = 0; i < BUFFER; i++)
		publish(i);
	/* all batches are still kept: any low number gets all of them */
	ask_from(0);
	for (int i = 0; i < BUFFER; i++) {
		snprintf(text, sizeof(text), "b%d", i);
		assert_int_equal(answered(dealer, text), last - BUFFER + 1 + (uint64_t)i);
	}
	is_end();
	ask_from(last);
	assert_int_equal(answered(dealer, "b5"), last);
	is_end();
	ask_from(last + 1);
	is_end();
	publish(BUFFER);
	ask_from(last - BUFFER + 1);
	assert_int_equal(answered(dealer, "b1"), last - BUFFER + 1);
	for (int i = 2; i <= BUFFER; i++)
		answered(dealer, (snprintf(text, sizeof(text), "b%d", i), text));
	is_end();
	assert_int_equal(made, 0);
	/* dropped meanwhile: all stored hashes, with numbers that end at the last one */
	ask_from(0);
	assert_int_equal(answered(dealer, "0/2"), last - 1);
	assert_int_equal(answered(dealer, "1/2"), last);
	is_end();
	assert_int_equal(made, 2);
	/* the numbers begin at the requested one if it is close */
	for (nr_shares = 1; nr_shares < 1000; nr_shares += 500) {
		ask_from(last - BUFFER);
		for (unsigned int i = 0; i <= BUFFER; i++) {
			snprintf(text, sizeof(text), "%u/%u", i, BUFFER + 1);
			assert_int_equal(answered(dealer, text), last - BUFFER + i);
		}
		is_end();
	}
	assert_true(is_quiet(sub));
	/* without memory to make or send a batch the answer ends */
	for (int i = 0; i < 2; i++) {
		ask_from(0);
		no_memory = !i;
		no_memory_to_send = i;
		assert_int_equal(frame(dealer, NULL), 0);
		frame(dealer, "kv");
		number(dealer);
		assert_int_equal(frame(dealer, NULL), 0);
		no_memory = false;
		no_memory_to_send = false;
	}
	ask_from(last);
	assert_int_equal(answered(dealer, "b6"), last);
	is_end();
}

/*
 * Batches published during an answer follow it, and the answer is complete even if they displace
 * the batches it was to contain.
 */
TEST_WITH(test_overtaken, begin, end)
{
	unsigned int got = 0;
	uint64_t n;

	for (int i = 0; i < BUFFER; i++)
		publish(i);
	ask_from(0);
	assert_int_equal(frame(dealer, NULL), 0);
	/* after the first messages, new batches displace the rest */
	held = true;
	n = message(dealer, "b0");
	for (int i = 0; i < 2 * BUFFER; i++)
		publish(BUFFER + i);
	held = false;
	while (*received == 'b') {
		assert_int_equal(answered(dealer, NULL), ++n);
		got += *received == 'b';
	}
	assert_in_range(got, 1, BUFFER - 2);
	assert_memory_equal(received, "0/", 2);
	while (n < last)
		assert_int_equal(answered(dealer, NULL), ++n);
	is_end();
}

/*
 * A peer that requests and does not read gets only the messages it can accept, however often it
 * requests, and another peer is answered.
 */
TEST_WITH(test_unread, begin, end)
{
	char endpoint[64];
	void *mute;

	end(NULL);
	snprintf(endpoint, sizeof(endpoint), "ipc:///tmp/zmqpub_test-%d", getpid());
	rules.replay = endpoint;
	begin(NULL);
	zmq_close(dealer);
	for (int i = 0; i <= BUFFER; i++)
		publish(i);
	nr_shares = 1000;
	share_bytes = 256 << 10;
	mute = zmq_socket(context, ZMQ_DEALER);
	zmq_setsockopt(mute, ZMQ_LINGER, &(int){ 0 }, sizeof(int));
	zmq_setsockopt(mute, ZMQ_RCVHWM, &(int){ 1 }, sizeof(int));
	zmq_setsockopt(mute, ZMQ_RCVBUF, &(int){ 4096 }, sizeof(int));
	assert_int_equal(zmq_connect(mute, endpoint), 0);
	dealer = mute;
	for (int i = 0; i < 40; i++)
		ask_from(0);
	for (int i = 0; i < 2000 && !made; i++)
		sd_event_run(event, 10000);
	/* long enough for a complete answer */
	for (int i = 0; i < 50; i++)
		sd_event_run(event, 10000);
	/* messages queued here, and those the peer has received */
	assert_in_range(made, 1, 8);
	dealer = client(ZMQ_DEALER, endpoint);
	nr_shares = 2;
	share_bytes = 0;
	ask_from(0);
	assert_int_equal(answered(dealer, "0/2"), last - 1);
	assert_int_equal(answered(dealer, "1/2"), last);
	is_end();
	assert_in_range(made, 1, 12);
	zmq_close(mute);
	rules.replay = REPLAY;
}

TEST_WITH(test_strange, begin, end)
{
	publish(0);
	zmq_send(dealer, "x", 1, 0);
	ask("", 0, "1234567", 7);
	ask("", 0, "", 0);
	ask("x", 1, "12345678", 8);
	zmq_send(dealer, "", 0, ZMQ_SNDMORE);
	ask("12345678", 8, "12345678", 8);
	assert_true(is_quiet(dealer));
	/* many peers, some closed before they are answered */
	for (int i = 0; i < 1000; i++) {
		void *other = client(ZMQ_DEALER, REPLAY);

		zmq_send(other, "", 0, ZMQ_SNDMORE);
		zmq_send(other, "\0\0\0\0\0\0\0\0", 8, 0);
		if (i % 2)
			sd_event_run(event, 0);
		zmq_close(other);
	}
	ask_from(0);
	assert_int_equal(answered(dealer, "b0"), last);
	is_end();
}

TEST_WITH(test_taken, begin, end)
{
	struct zmqpub_rules others = rules;
	struct zmqpub *other;

	assert_int_equal(zmqpub_open(event, context, &rules, &other), -EADDRINUSE);
	others.endpoint = "inproc://other";
	assert_int_equal(zmqpub_open(event, context, &others, &other), -EADDRINUSE);
	others = (struct zmqpub_rules){ "inproc://third", "inproc://fourth", "", 1, shares, share, &made };
	assert_int_equal(zmqpub_open(event, context, &others, &other), 0);
	zmqpub_close(other);
}

static unsigned int nr_batches;

static void count(void *arg, const void *bytes, size_t len)
{
	assert_ptr_equal(arg, &nr_batches);
	assert_int_equal(len, 5);
	assert_memory_equal(bytes, "batch", 5);
	nr_batches++;
}

/* More messages than a turn of the loop takes; invalid messages. */
TEST_WITH(test_subscriber, begin, end)
{
	void *engine = zmq_socket(context, ZMQ_PUB);
	struct zmqsub *source;

	assert_int_equal(zmq_bind(engine, "inproc://engine"), 0);
	assert_int_equal(zmqsub_open(event, context, "inproc://engine", count, &nr_batches, &source), 0);
	for (int i = 0; i < 10; i++)
		sd_event_run(event, 0);
	for (int i = 0; i < 900; i++) {
		zmq_send(engine, "", 0, ZMQ_SNDMORE);
		zmq_send(engine, "12345678", 8, i % 3 ? ZMQ_SNDMORE : 0);
		if (i % 3)
			zmq_send(engine, "batch", 5, 0);
	}
	for (int i = 0; i < 100 && nr_batches < 600; i++)
		sd_event_run(event, 10000);
	assert_int_equal(nr_batches, 600);
	zmqsub_close(source);
	zmq_close(engine);
}

/* ZeroMQ retries forever: a missing connection is reported, and a lost one. */
TEST_WITH(test_connected, begin, end)
{
	void *engine = zmq_socket(context, ZMQ_PUB);
	char endpoint[64];
	struct zmqsub *source;

	snprintf(endpoint, sizeof(endpoint), "ipc:///tmp/zmqpub_test-source-%d", getpid());
	zmq_setsockopt(engine, ZMQ_LINGER, &(int){ 0 }, sizeof(int));
	assert_int_equal(zmqsub_open(event, context, endpoint, count, &nr_batches, &source), 0);
	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < 20; i++)
			sd_event_run(event, 1000);
		assert_false(zmqsub_connected(source));
		assert_int_equal(zmq_bind(engine, endpoint), 0);
		for (int i = 0; i < 10000 && !zmqsub_connected(source); i++)
			sd_event_run(event, 1000);
		assert_true(zmqsub_connected(source));
		assert_int_equal(zmq_unbind(engine, endpoint), 0);
		zmq_close(engine);
		engine = zmq_socket(context, ZMQ_PUB);
		for (int i = 0; i < 10000 && zmqsub_connected(source); i++)
			sd_event_run(event, 1000);
	}
	zmqsub_close(source);
	zmq_close(engine);
}

/* Returns a connection after the handshake of a socket of @type. */
static int raw_client(int port, const char *type)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
				  .sin_port = htons((uint16_t)port) };
	char hello[256] = "\xff\0\0\0\0\0\0\0\0\x7f\3\0NULL";
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	size_t len = 64 + 2 + 6 + 12 + 4 + strlen(type);

	assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	snprintf(hello + 64, sizeof(hello) - 64, "\4%c\5READY\vSocket-Type", (char)(len - 66));
	hello[len - strlen(type) - 1] = (char)strlen(type);
	snprintf(hello + len - strlen(type), sizeof(hello) - len, "%s", type);
	assert_int_equal(send(fd, hello, len, MSG_NOSIGNAL), len);
	/* a greeting, and a command of more than a byte */
	assert_int_equal(recv(fd, hello, 64 + 3, MSG_WAITALL), 64 + 3);
	assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
	return fd;
}

/* Returns true if the peer has closed @fd. */
static bool is_closed(int fd)
{
	static char bytes[4096];
	ssize_t n;

	sd_event_run(event, 1000);
	while ((n = recv(fd, bytes, sizeof(bytes), 0)) > 0)
		;
	return !n || errno == ECONNRESET;
}

/* Send @part without an end: the connection is closed before ZeroMQ stores much of it. */
static void flood(int port, const char *type, const char *part, size_t len)
{
	int fd = raw_client(port, type);
	size_t sent = 0, most = 12u << 20;
	ssize_t n = 0;

	while (sent < most && !is_closed(fd)) {
		n = send(fd, part + sent % len, len - sent % len, MSG_NOSIGNAL);
		sent += n > 0 ? (size_t)n : 0;
	}
	assert_in_range(sent, 32 << 10, most - 1);
	close(fd);
}

/*
 * Peers that send too much or are too many are disconnected: ZeroMQ limits neither topics nor
 * frames.
 */
TEST_WITH(test_floods, begin, end)
{
	int ports[2] = { free_port(), free_port() };
	static char part[252 * 400];
	char endpoints[2][64];
	int fds[300], closed = 0;

	end(NULL);
	for (int i = 0; i < 2; i++)
		snprintf(endpoints[i], sizeof(endpoints[i]), "tcp://127.0.0.1:%d", ports[i]);
	rules.endpoint = endpoints[0];
	rules.replay = endpoints[1];
	sub = NULL;
	dealer = NULL;
	context = zmq_ctx_new();
	assert_true(sd_event_new(&event) >= 0);
	assert_int_equal(zmqpub_open(event, context, &rules, &zmqpub), 0);
	/* empty frames, more to follow */
	for (size_t i = 0; i < sizeof(part); i++)
		part[i] = !(i % 2);
	flood(ports[1], "DEALER", part, sizeof(part));
	/* subscriptions to unique topics */
	for (size_t i = 0; i < sizeof(part); i++)
		part[i] = i % 252 ? i % 252 == 1 ? (char)250 : i % 252 == 2 ? 1 : (char)random() : 0;
	flood(ports[0], "SUB", part, sizeof(part));
	for (int i = 0; i < 300; i++)
		fds[i] = raw_client(ports[0], "SUB");
	for (int t = 0; t < 1000 && closed < 300 - 256; t++) {
		closed = 0;
		for (int i = 0; i < 300; i++)
			closed += is_closed(fds[i]);
	}
	assert_int_equal(closed, 300 - 256);
	for (int i = 0; i < 300; i++)
		close(fds[i]);
	/* other peers are served, and closed ones are forgotten */
	for (int i = 0; i < 300; i++)
		sd_event_run(event, 1000);
	sub = client(ZMQ_SUB, endpoints[0]);
	dealer = client(ZMQ_DEALER, endpoints[1]);
	assert_int_equal(zmqpub_send(zmqpub, &(struct kvwire_bytes){ .data = (char[]){ "b" }, .len = 1 }), 0);
	ask_from(0);
	answered(dealer, "b");
	is_end();
	for (int i = 0; i < 1000 && is_quiet(sub); i++)
		zmqpub_repeat(zmqpub);
	message(sub, "b");
	rules.endpoint = PUB;
	rules.replay = REPLAY;
}

TEST_MAIN("zmqpub")
