/* SPDX-License-Identifier: MIT */
/*
 * Publisher of KV events, compatible with vLLM's. PUB sends topic, number and batch. ROUTER
 * receives the number from which a subscriber needs a replay, and sends an empty frame, topic,
 * number and batch. No subscriber can stall the publisher or hold more than a few messages: a
 * slow one loses batches, detects that by the numbers, and requests a replay.
 */
#ifndef KVBLKD_KV_EVENTS_ZMQ_PUB_H
#define KVBLKD_KV_EVENTS_ZMQ_PUB_H

#include "kv_events/block_set.h"
#include "kv_events/zmq_loop.h"

struct zmqpub;

/**
 * struct zmqpub_rules - settings
 * @endpoint: endpoint of PUB
 * @replay: endpoint of ROUTER
 * @topic: topic of all messages
 * @buffer_bytes: memory of the batches kept for replay; about as much may be queued for each
 *	subscriber
 * @shares: kvevents_shares()
 * @share: kvevents_share(), for a request of more than is kept
 * @arg: argument of both callbacks
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
 * zmqpub_open() - bind the sockets
 * @event: the loop
 * @context: context of ZeroMQ
 * @rules: settings; must outlive the handle, with all that they point to
 * @handle: set on success
 *
 * Return: 0 or a negative errno, if an endpoint is in use or invalid.
 */
int zmqpub_open(sd_event *event, void *context, const struct zmqpub_rules *rules, struct zmqpub **handle);

/* Close the publisher. NULL is ignored. */
void zmqpub_close(struct zmqpub *pub);

/* Publish and keep @batch. Returns 0 or a negative errno. */
int zmqpub_send(struct zmqpub *pub, const struct kvwire_bytes *batch);

/*
 * Send the last batch again under its number, so that a subscriber that is new or lost the batch
 * notices without waiting for the next. Applying a batch twice changes nothing.
 */
void zmqpub_repeat(struct zmqpub *pub);

#endif
