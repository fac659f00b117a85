// SPDX-License-Identifier: MIT
/*
 * Publishing, see zmq_pub.h. Batch numbers start at the time in microseconds, so that they
 * continue above those of the previous process; subscribers see a gap and request a replay. If
 * the clock was set back, numbers restart lower, and a subscriber that drops old numbers waits
 * until they catch up. A file to prevent that is not worth it, because systemd keeps the clock
 * from going back over a boot.
 *
 * Replay requests are queued and answered one after another. A message is built only when its
 * peer can accept it. A peer that requests and does not read therefore holds a message or two,
 * and the queue for at most STALLED_US.
 */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <zmq.h>

#include "kv_events/zmq_peers.h"
#include "kv_events/zmq_pub.h"

#define END_NUMBER	UINT64_MAX
#define REQUEST_BYTES	256
#define IDENTITY_BYTES	255	/* ZeroMQ's limit */
#define QUESTIONS	64u
#define TURN_BATCHES	4u
#define STALLED_US	2000000ull
#define MISSING_FEW	1024u
#define ACCURACY_US	10000ull
/* Limits for a replay: queued messages for each peer, and bytes in the socket. */
#define ANSWER_HWM	1
#define ANSWER_SNDBUF	(128 << 10)
/* Overhead of a kept batch in addition to its bytes. */
#define KEPT_BYTES	256u
/* Least number of batches that are queued for a subscriber. */
#define PUB_HWM_LEAST	64
#define ROOM_FIRST	64u

/**
 * struct answer - answer to a replay request
 * @next: number of the next batch
 * @last: number of the last batch
 * @share: next share, if @shares
 * @shares: number of shares that replay all stored hashes; 0: the answer consists of kept
 *	batches
 * @identity_len: bytes of @identity
 */
struct answer {
	uint64_t next;
	uint64_t last;
	uint64_t share;
	uint64_t shares;
	size_t identity_len;
	char identity[IDENTITY_BYTES];
};

/**
 * struct zmqpub - the publisher
 * @pub: PUB socket
 * @router: ROUTER socket
 * @pub_peers: limits @pub's peers, whose topics ZeroMQ stores
 * @router_peers: limits @router's peers, whose unfinished messages ZeroMQ stores
 * @kept: ring of the last @nr batches; batch N is at kept[N % room]
 * @nr: batches in @kept
 * @room: size of @kept, a power of two
 * @bytes: memory of the kept batches
 * @first: number of the first batch of this process
 * @next: number of the next batch
 * @answers: queue of answers; the first is being sent
 * @nr_answers: entries of @answers in use
 * @again: deferred source, continues sending
 * @stalled: timer, drops the first answer if its peer accepts no message
 */
struct zmqpub {
	const struct zmqpub_rules *rules;
	struct zmqloop *pub;
	struct zmqloop *router;
	struct zmqpeers *pub_peers;
	struct zmqpeers *router_peers;
	zmq_msg_t *kept;
	size_t nr;
	size_t room;
	size_t bytes;
	uint64_t first;
	uint64_t next;
	struct answer answers[QUESTIONS];
	unsigned int nr_answers;
	sd_event_source *again;
	sd_event_source *stalled;
};

/* Returns 0 or a negative errno. */
static int send_bytes(void *socket, const void *data, size_t len, int more)
{
	return zmq_send(socket, data, len, ZMQ_DONTWAIT | more) < 0 ? -errno : 0;
}

/* Send @message by reference, without copying its bytes. Returns 0 or a negative errno. */
static int send_copy(void *socket, zmq_msg_t *message, int more)
{
	zmq_msg_t copy;
	int err;

	zmq_msg_init(&copy);
	if (!zmq_msg_copy(&copy, message) && zmq_msg_send(&copy, socket, ZMQ_DONTWAIT | more) >= 0)
		return 0;
	err = -errno;
	zmq_msg_close(&copy);
	return err;
}

static zmq_msg_t *batch(const struct zmqpub *pub, uint64_t number)
{
	return &pub->kept[number & (pub->room - 1)];
}

static void publish(struct zmqpub *pub, uint64_t number)
{
	const uint64_t be = htobe64(number);
	void *socket = zmqloop_socket(pub->pub);

	if (!send_bytes(socket, pub->rules->topic, strlen(pub->rules->topic), ZMQ_SNDMORE) &&
	    !send_bytes(socket, &be, sizeof(be), ZMQ_SNDMORE))
		send_copy(socket, batch(pub, number), 0);
}

static void drop_oldest(struct zmqpub *pub)
{
	zmq_msg_t *oldest = batch(pub, pub->next - pub->nr);

	pub->bytes -= zmq_msg_size(oldest) + KEPT_BYTES;
	pub->nr--;
	zmq_msg_close(oldest);
}

static bool grow(struct zmqpub *pub)
{
	size_t room = pub->room ? 2 * pub->room : ROOM_FIRST;
	zmq_msg_t *kept = calloc(room, sizeof(*kept));

	if (!kept)
		return false;
	for (uint64_t n = pub->next - pub->nr; n < pub->next; n++) {
		zmq_msg_init(&kept[n & (room - 1)]);
		zmq_msg_move(&kept[n & (room - 1)], batch(pub, n));
		zmq_msg_close(batch(pub, n));
	}
	free(pub->kept);
	pub->kept = kept;
	pub->room = room;
	return true;
}

/* The last batch is always kept, for zmqpub_repeat(). */
int zmqpub_send(struct zmqpub *pub, const struct kvwire_bytes *bytes)
{
	zmq_msg_t *message;

	while (pub->nr && pub->bytes + bytes->len + KEPT_BYTES > pub->rules->buffer_bytes)
		drop_oldest(pub);
	if (pub->nr == pub->room && !grow(pub))
		return -ENOMEM;
	message = batch(pub, pub->next);
	if (zmq_msg_init_size(message, bytes->len))
		return -errno;
	memcpy(zmq_msg_data(message), bytes->data, bytes->len);
	pub->bytes += bytes->len + KEPT_BYTES;
	pub->nr++;
	publish(pub, pub->next++);
	return 0;
}

void zmqpub_repeat(struct zmqpub *pub)
{
	if (pub->nr)
		publish(pub, pub->next - 1);
}

/* Send the frames before the batch, in vLLM's order. Returns 0 or a negative errno. */
static int send_head(struct zmqpub *pub, const struct answer *answer, const char *topic, uint64_t number)
{
	void *socket = zmqloop_socket(pub->router);
	const uint64_t be = htobe64(number);
	int err = send_bytes(socket, answer->identity, answer->identity_len, ZMQ_SNDMORE);

	if (!err)
		err = send_bytes(socket, "", 0, ZMQ_SNDMORE);
	if (!err)
		err = send_bytes(socket, topic, strlen(topic), ZMQ_SNDMORE);
	return err ? err : send_bytes(socket, &be, sizeof(be), ZMQ_SNDMORE);
}

static bool send_share(void *arg, const struct kvwire_bytes *bytes)
{
	const struct zmqpub *pub = arg;

	return !send_bytes(zmqloop_socket(pub->router), bytes->data, bytes->len, 0);
}

/*
 * Switch the answer to a replay of all stored hashes. The batches get consecutive numbers that
 * end at the last published one, so that the next published batch follows. None is below the
 * requested number; the first equals it unless more than MISSING_FEW batches are missing.
 */
static void begin_shares(struct zmqpub *pub, struct answer *answer)
{
	uint64_t missing = pub->next - answer->next;

	answer->last = pub->next - 1;
	answer->share = 0;
	answer->shares = pub->rules->shares(pub->rules->arg);
	if (missing < answer->shares || missing <= MISSING_FEW)
		answer->shares = missing;
	answer->next = pub->next - answer->shares;
}

/* Send the next message. Returns 0; -EAGAIN: retry later; other errno: drop the answer. */
static int send_next(struct zmqpub *pub, struct answer *answer)
{
	uint64_t oldest = pub->next - pub->nr;
	int err;

	if (answer->next > answer->last) {
		err = send_head(pub, answer, "", END_NUMBER);
		return err ? err : send_bytes(zmqloop_socket(pub->router), "", 0, 0) ?: -ENODATA;
	}
	/* the requested batches may have been dropped since */
	if (!answer->shares && answer->next < oldest)
		begin_shares(pub, answer);
	err = send_head(pub, answer, pub->rules->topic, answer->next);
	if (err)
		return err;
	if (answer->shares)
		err = pub->rules->share(pub->rules->arg, answer->share++, answer->shares, send_share, pub);
	else
		err = send_copy(zmqloop_socket(pub->router), batch(pub, answer->next), 0);
	/* terminate the multipart message, and with it the answer */
	if (err)
		send_bytes(zmqloop_socket(pub->router), "", 0, 0);
	answer->next++;
	return err;
}

/* Remove the first answer. */
static void end_answer(struct zmqpub *pub)
{
	pub->nr_answers--;
	memmove(&pub->answers[0], &pub->answers[1], pub->nr_answers * sizeof(pub->answers[0]));
}

static void rearm(sd_event_source *timer, uint64_t us)
{
	sd_event_source_set_time_relative(timer, us);
	sd_event_source_set_enabled(timer, SD_EVENT_ONESHOT);
}

/* Send to the first peer until it accepts no more, at most TURN_BATCHES in a turn of the loop. */
static void go_on(void *arg)
{
	struct zmqpub *pub = arg;
	unsigned int sent = 0;
	int err = 0;

	while (sent < TURN_BATCHES && pub->nr_answers) {
		err = send_next(pub, &pub->answers[0]);
		if (err == -EAGAIN)
			break;
		if (err)
			end_answer(pub);
		sent++;
	}
	if (sent)
		rearm(pub->stalled, STALLED_US);
	if (!pub->nr_answers)
		sd_event_source_set_enabled(pub->stalled, SD_EVENT_OFF);
	else if (sent == TURN_BATCHES)
		sd_event_source_set_enabled(pub->again, SD_EVENT_ONESHOT);
}

static int on_again(sd_event_source *source, void *arg)
{
	go_on(arg);
	return 0;
}

static int on_stalled(sd_event_source *source, uint64_t us, void *arg)
{
	struct zmqpub *pub = arg;

	if (pub->nr_answers)
		end_answer(pub);
	if (pub->nr_answers)
		rearm(pub->stalled, STALLED_US);
	go_on(pub);
	return 0;
}

static bool is_answered(const struct zmqpub *pub, const void *identity, size_t len)
{
	for (const struct answer *answer = pub->answers; answer < pub->answers + pub->nr_answers; answer++) {
		if (answer->identity_len == len && !memcmp(answer->identity, identity, len))
			return true;
	}
	return false;
}

/* Queue an answer. While a peer has one in the queue, further requests of that peer are dropped. */
static void ask(struct zmqpub *pub, const void *identity, size_t len, uint64_t from)
{
	uint64_t oldest = pub->next - pub->nr;
	struct answer *answer;

	if (len > IDENTITY_BYTES || pub->nr_answers >= QUESTIONS || is_answered(pub, identity, len))
		return;
	answer = &pub->answers[pub->nr_answers];
	*answer = (struct answer){ .next = from, .last = pub->next - 1, .identity_len = len };
	memcpy(answer->identity, identity, len);
	/* every batch since the start is still kept: send all of them, even for a lower number */
	if (oldest == pub->first && from < oldest)
		answer->next = oldest;
	if (!pub->nr_answers++)
		rearm(pub->stalled, STALLED_US);
}

/* Handle a request: identity, empty frame, first number. Other messages are ignored. */
static void on_request(void *arg, void *frames, size_t nr)
{
	zmq_msg_t *frame = frames;
	uint64_t be;

	if (nr != 3 || zmq_msg_size(&frame[1]) || zmq_msg_size(&frame[2]) != sizeof(be))
		return;
	memcpy(&be, zmq_msg_data(&frame[2]), sizeof(be));
	ask(arg, zmq_msg_data(&frame[0]), zmq_msg_size(&frame[0]), be64toh(be));
}

static int bind_to(struct zmqloop *loop, const char *endpoint)
{
	return zmq_bind(zmqloop_socket(loop), endpoint) ? -errno : 0;
}

static int set_option(struct zmqloop *loop, int option, int value)
{
	return zmq_setsockopt(zmqloop_socket(loop), option, &value, sizeof(value)) ? -errno : 0;
}

static int open_sockets(struct zmqpub *pub, sd_event *event, void *context)
{
	const struct zmqpub_rules *rules = pub->rules;
	size_t hwm = rules->buffer_bytes / KVEVENTS_BATCH_BYTES;
	int err = zmqloop_open(event, context, ZMQ_PUB, hwm < PUB_HWM_LEAST ? PUB_HWM_LEAST : (int)hwm,
			       REQUEST_BYTES, NULL, NULL, NULL, &pub->pub);

	if (!err)
		err = zmqloop_open(event, context, ZMQ_ROUTER, ANSWER_HWM, REQUEST_BYTES, on_request, go_on,
				   pub, &pub->router);
	/* report an unreachable or full peer as an error, instead of dropping the message */
	if (!err)
		err = set_option(pub->router, ZMQ_ROUTER_MANDATORY, 1);
	if (!err)
		err = set_option(pub->router, ZMQ_SNDBUF, ANSWER_SNDBUF);
	/* detect peers whose host has died */
	if (!err)
		err = set_option(pub->pub, ZMQ_TCP_KEEPALIVE, 1);
	if (!err)
		err = set_option(pub->router, ZMQ_TCP_KEEPALIVE, 1);
	if (!err)
		err = zmqpeers_open(event, context, pub->pub, rules->endpoint, &pub->pub_peers);
	if (!err)
		err = zmqpeers_open(event, context, pub->router, rules->replay, &pub->router_peers);
	if (!err)
		err = bind_to(pub->pub, rules->endpoint);
	return err ? err : bind_to(pub->router, rules->replay);
}

static int add_sources(struct zmqpub *pub, sd_event *event)
{
	int err = sd_event_add_defer(event, &pub->again, on_again, pub);

	if (err >= 0)
		err = sd_event_source_set_enabled(pub->again, SD_EVENT_OFF);
	if (err >= 0)
		err = sd_event_add_time_relative(event, &pub->stalled, CLOCK_MONOTONIC, 0, ACCURACY_US,
						 on_stalled, pub);
	if (err >= 0)
		err = sd_event_source_set_enabled(pub->stalled, SD_EVENT_OFF);
	return err < 0 ? err : 0;
}

int zmqpub_open(sd_event *event, void *context, const struct zmqpub_rules *rules, struct zmqpub **handle)
{
	struct zmqpub *pub = calloc(1, sizeof(*pub));
	struct timespec ts;
	int err;

	if (!pub)
		return -ENOMEM;
	pub->rules = rules;
	clock_gettime(CLOCK_REALTIME, &ts);
	pub->first = (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
	pub->next = pub->first;
	err = add_sources(pub, event);
	if (!err)
		err = open_sockets(pub, event, context);
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
	zmqpeers_close(pub->pub_peers);
	zmqpeers_close(pub->router_peers);
	sd_event_source_disable_unref(pub->again);
	sd_event_source_disable_unref(pub->stalled);
	while (pub->nr)
		drop_oldest(pub);
	free(pub->kept);
	free(pub);
}
