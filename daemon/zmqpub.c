// SPDX-License-Identifier: MIT
/*
 * Publishing, see zmqpub.h. The first number is the time in microseconds: after a
 * restart numbers go on above those of the process before, which subscribers see as a
 * gap, and ask.
 */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <zmq.h>

#include "zmqpub.h"

#define END_NUMBER	UINT64_MAX
#define REQUEST_BYTES	256
/* Messages of answers that wait for one that asks: a dump of 67 million hashes. */
#define ANSWER_BATCHES	65536

/**
 * struct zmqpub - it
 * @pub: socket
 * @router: socket
 * @kept: the last @nr batches, that of number N in kept[N % rules->buffer]
 * @nr: how many
 * @first: number of the first batch of all
 * @next: number of the next batch
 */
struct zmqpub {
	const struct zmqpub_rules *rules;
	zmqpub_dump_fn *dump;
	void *arg;
	struct zmqloop *pub;
	struct zmqloop *router;
	zmq_msg_t *kept;
	size_t nr;
	uint64_t first;
	uint64_t next;
};

/* One that asked, and whether it still takes what it is sent. */
struct client {
	struct zmqpub *pub;
	zmq_msg_t *identity;
	bool gone;
};

/* ---- messages ---- */

static bool send_bytes(void *socket, const void *data, size_t len, int more)
{
	return zmq_send(socket, data, len, ZMQ_DONTWAIT | more) >= 0;
}

/* Its bytes are shared, not copied. */
static bool send_copy(void *socket, zmq_msg_t *message, int more)
{
	zmq_msg_t copy;

	zmq_msg_init(&copy);
	if (!zmq_msg_copy(&copy, message) && zmq_msg_send(&copy, socket, ZMQ_DONTWAIT | more) >= 0)
		return true;
	zmq_msg_close(&copy);
	return false;
}

static zmq_msg_t *batch(const struct zmqpub *pub, uint64_t number)
{
	return &pub->kept[number % pub->rules->buffer];
}

static void publish(struct zmqpub *pub, uint64_t number)
{
	const uint64_t be = htobe64(number);
	void *socket = zmqloop_socket(pub->pub);

	if (send_bytes(socket, pub->rules->topic, strlen(pub->rules->topic), ZMQ_SNDMORE) &&
	    send_bytes(socket, &be, sizeof(be), ZMQ_SNDMORE))
		send_copy(socket, batch(pub, number), 0);
}

int zmqpub_send(struct zmqpub *pub, const struct kvwire_bytes *bytes)
{
	zmq_msg_t message;

	if (zmq_msg_init_size(&message, bytes->len))
		return -errno;
	memcpy(zmq_msg_data(&message), bytes->data, bytes->len);
	/* frees the one that was there */
	zmq_msg_move(batch(pub, pub->next), &message);
	pub->nr += pub->nr < pub->rules->buffer;
	publish(pub, pub->next++);
	return 0;
}

void zmqpub_repeat(struct zmqpub *pub)
{
	if (pub->nr)
		publish(pub, pub->next - 1);
}

/* ---- replay ---- */

/* Up to the batch, which follows. */
static bool begin_answer(struct client *client, uint64_t number)
{
	void *socket = zmqloop_socket(client->pub->router);
	const uint64_t be = htobe64(number);

	client->gone = client->gone || !send_copy(socket, client->identity, ZMQ_SNDMORE) ||
		       !send_bytes(socket, "", 0, ZMQ_SNDMORE) ||
		       !send_bytes(socket, &be, sizeof(be), ZMQ_SNDMORE);
	return !client->gone;
}

/* All batches of a dump have the last number: what comes next follows on them. */
static bool answer_dumped(void *arg, const struct kvwire_bytes *bytes)
{
	struct client *client = arg;

	if (begin_answer(client, client->pub->next - 1))
		client->gone = !send_bytes(zmqloop_socket(client->pub->router), bytes->data, bytes->len, 0);
	return !client->gone;
}

static void answer_kept(struct client *client, uint64_t number)
{
	if (begin_answer(client, number))
		client->gone = !send_copy(zmqloop_socket(client->pub->router), batch(client->pub, number), 0);
}

static void answer(struct client *client, uint64_t from)
{
	struct zmqpub *pub = client->pub;
	uint64_t oldest = pub->next - pub->nr;

	if (from < oldest && oldest != pub->first) {
		/* no end: it asks again, or has nothing */
		if (pub->dump(pub->arg, answer_dumped, client))
			return;
	} else {
		for (uint64_t n = from > oldest ? from : oldest; n < pub->next; n++)
			answer_kept(client, n);
	}
	if (begin_answer(client, END_NUMBER))
		send_bytes(zmqloop_socket(pub->router), "", 0, 0);
}

/* Who asks, nothing, and from which number on. What is something else is no question. */
static void on_request(void *arg, void *frames, size_t nr)
{
	zmq_msg_t *frame = frames;
	struct client client = { arg, &frame[0], false };
	uint64_t be;

	if (nr != 3 || zmq_msg_size(&frame[1]) || zmq_msg_size(&frame[2]) != sizeof(be))
		return;
	memcpy(&be, zmq_msg_data(&frame[2]), sizeof(be));
	answer(&client, be64toh(be));
}

/* ---- opening and closing ---- */

static int bind_to(struct zmqloop *loop, const char *endpoint)
{
	return zmq_bind(zmqloop_socket(loop), endpoint) ? -errno : 0;
}

static int open_sockets(struct zmqpub *pub, sd_event *event, void *context)
{
	const struct zmqpub_rules *rules = pub->rules;
	/* all that is kept, and the end */
	int hwm = rules->buffer < ANSWER_BATCHES ? ANSWER_BATCHES : (int)rules->buffer + 1;
	int err = zmqloop_open(event, context, ZMQ_PUB, (int)rules->buffer, REQUEST_BYTES, NULL, NULL,
			       &pub->pub);

	if (!err)
		err = zmqloop_open(event, context, ZMQ_ROUTER, hwm, REQUEST_BYTES, on_request, pub,
				   &pub->router);
	/* one that is gone, or takes nothing, is an error, and the rest is not made for it */
	if (!err && zmq_setsockopt(zmqloop_socket(pub->router), ZMQ_ROUTER_MANDATORY, &(int){ 1 }, sizeof(int)))
		err = -errno;
	if (!err)
		err = bind_to(pub->pub, rules->endpoint);
	return err ? err : bind_to(pub->router, rules->replay);
}

int zmqpub_open(sd_event *event, void *context, const struct zmqpub_rules *rules,
		zmqpub_dump_fn *dump, void *arg, struct zmqpub **handle)
{
	struct zmqpub *pub = calloc(1, sizeof(*pub));
	struct timespec ts;
	int err;

	if (!pub)
		return -ENOMEM;
	pub->rules = rules;
	pub->dump = dump;
	pub->arg = arg;
	clock_gettime(CLOCK_REALTIME, &ts);
	pub->first = (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
	pub->next = pub->first;
	pub->kept = calloc(rules->buffer, sizeof(*pub->kept));
	for (size_t i = 0; pub->kept && i < rules->buffer; i++)
		zmq_msg_init(&pub->kept[i]);
	err = pub->kept ? open_sockets(pub, event, context) : -ENOMEM;
	if (err)
		zmqpub_close(pub);
	else
		*handle = pub;
	return err;
}

void zmqpub_close(struct zmqpub *pub)
{
	if (!pub)
		return;
	zmqloop_close(pub->pub);
	zmqloop_close(pub->router);
	for (size_t i = 0; pub->kept && i < pub->rules->buffer; i++)
		zmq_msg_close(&pub->kept[i]);
	free(pub->kept);
	free(pub);
}
