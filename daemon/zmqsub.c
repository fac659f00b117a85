// SPDX-License-Identifier: MIT
/* Subscribing, see zmqsub.h. */
#include <errno.h>
#include <stdlib.h>
#include <zmq.h>

#include "zmqsub.h"

/*
 * An engine may have 32 MiB waiting here, and more in its own queue. It is not the place
 * to make up for a slow reader: a batch that is lost costs tokens.
 */
#define WAITING		4
#define BATCH_BYTES	(8ll << 20)

struct zmqsub {
	struct zmqloop *loop;
	zmqsub_fn *fn;
	void *arg;
};

/* Topic, number, batch. */
static void on_message(void *arg, void *frames, size_t nr)
{
	zmq_msg_t *batch = (zmq_msg_t *)frames + 2;
	struct zmqsub *sub = arg;

	if (nr == 3)
		sub->fn(sub->arg, zmq_msg_data(batch), zmq_msg_size(batch));
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
	zmqloop_close(sub->loop);
	free(sub);
}
