// SPDX-License-Identifier: MIT
/* Subscribing, see zmq_sub.h. */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

#include "kv_events/zmq_sub.h"

/*
 * An engine may have 32 MiB waiting here, and more in its own queue. It is not the place
 * to make up for a slow reader: a batch that is lost costs tokens.
 */
#define WAITING		4
#define BATCH_BYTES	(8ll << 20)

/**
 * struct zmqsub - it
 * @loop: the socket
 * @monitor: what becomes of its connection; ZeroMQ tells nothing of one that it tries in vain
 * @connected: there is one
 */
struct zmqsub {
	struct zmqloop *loop;
	struct zmqloop *monitor;
	zmqsub_fn *fn;
	void *arg;
	bool connected;
};

/* Topic, number, batch. */
static void on_message(void *arg, void *frames, size_t nr)
{
	zmq_msg_t *batch = (zmq_msg_t *)frames + 2;
	struct zmqsub *sub = arg;

	if (nr == 3)
		sub->fn(sub->arg, zmq_msg_data(batch), zmq_msg_size(batch));
}

/* A number of 16 bits for what happened, and one of 32; the endpoint. */
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
	/* ends the monitor, too */
	zmqloop_close(sub->loop);
	zmqloop_close(sub->monitor);
	free(sub);
}
