// SPDX-License-Identifier: MIT
/* Subscribing, see zmq_sub.h. */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

#include "kv_events/zmq_sub.h"

/* 32 MiB an engine, which has a queue of its own; a batch lost by a slow reader costs tokens. */
#define WAITING		4
#define BATCH_BYTES	(8ll << 20)

/**
 * struct zmqsub - a subscription
 * @loop: SUB socket
 * @monitor: monitor socket of the connection; reports nothing while ZeroMQ tries to connect
 * @connected: the connection is established
 */
struct zmqsub {
	struct zmqloop *loop;
	struct zmqloop *monitor;
	zmqsub_fn *fn;
	void *arg;
	bool connected;
};

/* Handle a message: topic, number, batch. */
static void on_message(void *arg, void *frames, size_t nr)
{
	zmq_msg_t *batch = (zmq_msg_t *)frames + 2;
	struct zmqsub *sub = arg;

	if (nr == 3)
		sub->fn(sub->arg, zmq_msg_data(batch), zmq_msg_size(batch));
}

/* Handle a monitor event: 16 bits of event, 32 bits of value, then a frame with the endpoint. */
static void on_monitor(void *arg, void *frames, size_t nr)
{
	zmq_msg_t *frame = frames;
	struct zmqsub *sub = arg;
	uint16_t what;

	if (!nr || zmq_msg_size(frame) < sizeof(what))
		return;
	memcpy(&what, zmq_msg_data(frame), sizeof(what));
	sub->connected = what == ZMQ_EVENT_HANDSHAKE_SUCCEEDED;
}

static int open_monitor(struct zmqsub *sub, sd_event *event, void *context)
{
	char name[64];
	int err;

	snprintf(name, sizeof(name), "inproc://monitor-%p", (void *)sub);
	if (zmq_socket_monitor(zmqloop_socket(sub->loop), name,
			       ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_DISCONNECTED) < 0)
		return -errno;
	err = zmqloop_open(event, context, ZMQ_PAIR, 0, -1, on_monitor, NULL, sub, &sub->monitor);
	return !err && zmq_connect(zmqloop_socket(sub->monitor), name) ? -errno : err;
}

bool zmqsub_connected(const struct zmqsub *sub)
{
	return sub->connected;
}

int zmqsub_open(sd_event *event, void *context, const char *endpoint, zmqsub_fn *fn, void *arg,
		struct zmqsub **handle)
{
	struct zmqsub *sub = calloc(1, sizeof(*sub));
	int err;

	if (!sub)
		return -ENOMEM;
	sub->fn = fn;
	sub->arg = arg;
	err = zmqloop_open(event, context, ZMQ_SUB, WAITING, BATCH_BYTES, on_message, NULL, sub, &sub->loop);
	if (!err)
		err = open_monitor(sub, event, context);
	if (!err && (zmq_setsockopt(zmqloop_socket(sub->loop), ZMQ_SUBSCRIBE, "", 0) ||
		     zmq_connect(zmqloop_socket(sub->loop), endpoint)))
		err = -errno;
	if (err)
		zmqsub_close(sub);
	else
		*handle = sub;
	return err;
}

void zmqsub_close(struct zmqsub *sub)
{
	if (!sub)
		return;
	/* also ends the monitor */
	zmqloop_close(sub->loop);
	zmqloop_close(sub->monitor);
	free(sub);
}
