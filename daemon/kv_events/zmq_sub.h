/* SPDX-License-Identifier: MIT */
/* Subscription to an engine's KV events. A lost batch costs tokens only: no replay is needed. */
#ifndef KVBLKD_KV_EVENTS_ZMQ_SUB_H
#define KVBLKD_KV_EVENTS_ZMQ_SUB_H

#include <stdbool.h>

#include "kv_events/zmq_loop.h"

struct zmqsub;

typedef void zmqsub_fn(void *arg, const void *batch, size_t len);

/* Subscribe to @endpoint and keep reconnecting. Returns 0 or a negative errno. */
int zmqsub_open(sd_event *event, void *context, const char *endpoint, zmqsub_fn *fn, void *arg,
		struct zmqsub **handle);

/* Returns true if the connection is established. */
bool zmqsub_connected(const struct zmqsub *sub);

/* Close the subscription. NULL is ignored. */
void zmqsub_close(struct zmqsub *sub);

#endif
