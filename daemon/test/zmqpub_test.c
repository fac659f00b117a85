// SPDX-License-Identifier: MIT
/* Publishing and subscribing: numbers, what is sent again and to whom, strange requests. */
#include <endian.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <zmq.h>

#include <cmocka.h>

#include "../zmqpub.h"
#include "../zmqsub.h"

#define BUFFER	4
#define PUB	"inproc://pub"
#define REPLAY	"inproc://replay"

static const struct zmqpub_rules rules = { PUB, REPLAY, "kv", BUFFER };
static sd_event *event;
static void *context, *sub, *dealer;
static struct zmqpub *zmqpub;
static uint64_t last;		/* number */
static unsigned int dumps, more;
static bool endless;

static int dump(void *arg, kvevents_publish_fn *publish, void *to)
{
	assert_ptr_equal(arg, &dumps);
	dumps++;
	if (endless) {
		while (publish(to, &(struct kvwire_bytes){ .data = (char []){ "more" }, .len = 4 }))
			more++;
		return -ECANCELED;
	}
	publish(to, &(struct kvwire_bytes){ .data = (char []){ "all" }, .len = 3 });
	publish(to, &(struct kvwire_bytes){ .data = (char []){ "of it" }, .len = 5 });
	return 0;
}

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
	(void)state;
	context = zmq_ctx_new();
	assert_true(sd_event_new(&event) >= 0);
	assert_int_equal(zmqpub_open(event, context, &rules, dump, &dumps, &zmqpub), 0);
	sub = client(ZMQ_SUB, PUB);
	dealer = client(ZMQ_DEALER, REPLAY);
	dumps = 0;
	last = 0;
	return 0;
}

static int end(void **state)
{
	(void)state;
	zmqpub_close(zmqpub);
	zmq_close(sub);
	zmq_close(dealer);
	zmq_ctx_term(context);
	event = sd_event_unref(event);
	return 0;
}

/* The next frame of @socket, for which the loop runs; it is @want, unless that is NULL. */
static size_t frame(void *socket, void *to, size_t room, const char *want)
{
	int len = -1;

	for (int i = 0; i < 1000 && len < 0; i++) {
		assert_true(sd_event_run(event, 0) >= 0);
		len = zmq_recv(socket, to, room, ZMQ_DONTWAIT);
		if (len < 0)
			zmq_poll(&(zmq_pollitem_t){ socket, 0, ZMQ_POLLIN, 0 }, 1, 1);
	}
	assert_true(len >= 0);
	if (want) {
		assert_int_equal(len, strlen(want));
		assert_memory_equal(to, want, len);
	}
	return (size_t)len;
}

/* A message: @first, a number, which is returned, and @batch. */
static uint64_t message(void *socket, const char *first, const char *batch)
{
	uint64_t number;
	char bytes[64];

	frame(socket, bytes, sizeof(bytes), first);
	assert_int_equal(frame(socket, &number, sizeof(number), NULL), sizeof(number));
	frame(socket, bytes, sizeof(bytes), batch);
	return be64toh(number);
}

static void publish(int nr)
{
	char text[16];

	snprintf(text, sizeof(text), "b%d", nr);
	assert_int_equal(zmqpub_send(zmqpub, &(struct kvwire_bytes){ .data = text, .len = strlen(text) }), 0);
	last = message(sub, "kv", text);
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
	assert_int_equal(message(dealer, "", ""), UINT64_MAX);
}

static bool is_quiet(void *socket)
{
	for (int i = 0; i < 10; i++)
		sd_event_run(event, 0);
	return zmq_poll(&(zmq_pollitem_t){ socket, 0, ZMQ_POLLIN, 0 }, 1, 20) == 0;
}

static void test_numbers(void **state)
{
	uint64_t first, now = (uint64_t)time(NULL) * 1000000;

	(void)state;
	zmqpub_repeat(zmqpub);
	publish(0);
	first = last;
	assert_in_range(first, now - 10000000, now + 10000000);
	for (int i = 1; i < 10; i++) {
		publish(i);
		assert_int_equal(last, first + (uint64_t)i);
	}
	zmqpub_repeat(zmqpub);
	assert_int_equal(message(sub, "kv", "b9"), last);
	publish(10);
	assert_int_equal(last, first + 10);
	assert_true(is_quiet(sub));
}

static void test_replay(void **state)
{
	char text[16];

	(void)state;
	ask_from(0);
	is_end();
	for (int i = 0; i < BUFFER; i++)
		publish(i);
	/* nothing is missing: from whenever, all that there was */
	ask_from(0);
	for (int i = 0; i < BUFFER; i++) {
		snprintf(text, sizeof(text), "b%d", i);
		assert_int_equal(message(dealer, "", text), last - BUFFER + 1 + (uint64_t)i);
	}
	is_end();
	ask_from(last);
	assert_int_equal(message(dealer, "", "b3"), last);
	is_end();
	ask_from(last + 1);
	is_end();
	assert_int_equal(dumps, 0);
	publish(BUFFER);
	ask_from(last - BUFFER + 1);
	assert_int_equal(message(dealer, "", "b1"), last - BUFFER + 1);
	for (int i = 2; i <= BUFFER; i++)
		message(dealer, "", (snprintf(text, sizeof(text), "b%d", i), text));
	is_end();
	/* one of them is not kept any more */
	ask_from(last - BUFFER);
	assert_int_equal(message(dealer, "", "all"), last);
	assert_int_equal(message(dealer, "", "of it"), last);
	is_end();
	assert_int_equal(dumps, 1);
	assert_true(is_quiet(sub));
}

/* One that asks and doesn't read gets so many batches, however often it asks. */
static void test_unread(void **state)
{
	(void)state;
	for (int i = 0; i <= BUFFER; i++)
		publish(i);
	endless = true;
	for (int i = 0; i < 3; i++)
		ask_from(0);
	for (int i = 0; i < 1000 && dumps < 3; i++)
		sd_event_run(event, 1000);
	endless = false;
	assert_int_equal(dumps, 3);
	assert_in_range(more, 1, 70000);
}

static void test_strange(void **state)
{
	(void)state;
	publish(0);
	zmq_send(dealer, "x", 1, 0);
	ask("", 0, "1234567", 7);
	ask("", 0, "", 0);
	ask("x", 1, "12345678", 8);
	zmq_send(dealer, "", 0, ZMQ_SNDMORE);
	ask("12345678", 8, "12345678", 8);
	assert_true(is_quiet(dealer));
	/* a crowd, some of whom are gone before they are answered */
	for (int i = 0; i < 1000; i++) {
		void *other = client(ZMQ_DEALER, REPLAY);

		zmq_send(other, "", 0, ZMQ_SNDMORE);
		zmq_send(other, "\0\0\0\0\0\0\0\0", 8, 0);
		if (i % 2)
			sd_event_run(event, 0);
		zmq_close(other);
	}
	ask_from(0);
	assert_int_equal(message(dealer, "", "b0"), last);
	is_end();
}

static void test_taken(void **state)
{
	struct zmqpub_rules others = rules;
	struct zmqpub *other;

	(void)state;
	assert_int_equal(zmqpub_open(event, context, &rules, dump, NULL, &other), -EADDRINUSE);
	others.endpoint = "inproc://other";
	assert_int_equal(zmqpub_open(event, context, &others, dump, NULL, &other), -EADDRINUSE);
	others = (struct zmqpub_rules){ "inproc://third", "inproc://fourth", "", 1 };
	assert_int_equal(zmqpub_open(event, context, &others, dump, NULL, &other), 0);
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

/* More than the loop takes in one turn; messages that are none. */
static void test_subscriber(void **state)
{
	void *engine = zmq_socket(context, ZMQ_PUB);
	struct zmqsub *source;

	(void)state;
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_numbers, begin, end),
		cmocka_unit_test_setup_teardown(test_replay, begin, end),
		cmocka_unit_test_setup_teardown(test_unread, begin, end),
		cmocka_unit_test_setup_teardown(test_strange, begin, end),
		cmocka_unit_test_setup_teardown(test_taken, begin, end),
		cmocka_unit_test_setup_teardown(test_subscriber, begin, end),
	};

	return cmocka_run_group_tests_name("zmqpub", tests, NULL, NULL);
}
