/* SPDX-License-Identifier: MIT */
/*
 * Batches of KV events to subscribers, as vLLM's publisher sends them: PUB sends topic,
 * number and batch; ROUTER takes the number from which a subscriber wants them again, and
 * sends nothing, topic, number and batch.
 * Rule: no subscriber holds anything up, or more than a few messages; one that is too slow
 * loses batches, sees that by the numbers, and asks.
 */
#ifndef KVBLKD_ZMQPUB_H
#define KVBLKD_ZMQPUB_H

#include "kv_events/block_set.h"
#include "kv_events/zmq_loop.h"

struct zmqpub;

/**
 * struct zmqpub_rules - how it publishes
 * @endpoint: that PUB listens on
 * @replay: that ROUTER listens on
 * @topic: of all messages
 * @buffer_bytes: memory of the batches that are kept for those that ask; about as much
 *	may wait for each subscriber
 * @shares: as kvevents_shares(), of @arg
 * @share: as kvevents_share(), of @arg, for one that asks for more than is kept
 * @arg: for both
 */
struct zmqpub_rules {
	const char *endpoint;
	const char *replay;
	const char *topic;
	size_t buffer_bytes;
	size_t (*shares)(void *arg);
	int (*share)(void *arg, size_t number, size_t shares, kvevents_publish_fn *publish, void *to);
	void *arg;
};

/**
 * zmqpub_open() - listens
 * @event: the loop
 * @context: of ZeroMQ
 * @rules: and what it points to, must stay
 * @handle: set
 *
 * Return: 0 or a negative errno: an endpoint is taken, or can't be.
 */
int zmqpub_open(sd_event *event, void *context, const struct zmqpub_rules *rules, struct zmqpub **handle);

/* NULL is no error. */
void zmqpub_close(struct zmqpub *pub);

/* Sends @batch and keeps it. 0 or a negative errno. */
int zmqpub_send(struct zmqpub *pub, const struct kvwire_bytes *batch);

/*
 * Sends the last batch again, with its number: so a subscriber that is new, or lost that
 * batch, need not wait for the next one. To apply it twice changes nothing.
 */
void zmqpub_repeat(struct zmqpub *pub);

#endif
