/* SPDX-License-Identifier: MIT */
/*
 * What engines publish: their batches of KV events, from which kvblkd learns the tokens
 * of blocks. Rule: a batch that is lost costs tokens, nothing else, so none is asked for
 * again.
 */
#ifndef KVBLKD_ZMQSUB_H
#define KVBLKD_ZMQSUB_H

#include <stdbool.h>

#include "kv_events/zmq_loop.h"

struct zmqsub;

typedef void zmqsub_fn(void *arg, const void *batch, size_t len);

/* Connects to @endpoint, whenever that is there, again and again. 0 or a negative errno. */
int zmqsub_open(sd_event *event, void *context, const char *endpoint, zmqsub_fn *fn, void *arg,
		struct zmqsub **handle);

/* Whether it is connected now. */
bool zmqsub_connected(const struct zmqsub *sub);

/* NULL is no error. */
void zmqsub_close(struct zmqsub *sub);

#endif
