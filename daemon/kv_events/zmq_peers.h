/* SPDX-License-Identifier: MIT */
/*
 * Limits for the peers of a listening TCP socket of ZeroMQ. ZeroMQ limits neither a peer's
 * subscriptions nor a message without an end, and allocates about 33 times the bytes received.
 * The memory is bounded by limiting the number of peers and the bytes of each.
 */
#ifndef KVBLKD_KV_EVENTS_ZMQ_PEERS_H
#define KVBLKD_KV_EVENTS_ZMQ_PEERS_H

#include "kv_events/zmq_loop.h"

#define ZMQPEERS_MAX	256u		/* most connections */
#define ZMQPEERS_BYTES	(32u << 10)	/* most bytes received from a connection */

struct zmqpeers;

/**
 * zmqpeers_open() - watch the peers of a socket that is not bound yet
 * @event: the loop
 * @context: context of ZeroMQ
 * @socket: socket whose peers send only short messages
 * @endpoint: endpoint that @socket will be bound to
 * @handle: set on success; close it after @socket
 *
 * Disconnects a peer that has sent more than ZMQPEERS_BYTES, and a new peer if there are already
 * ZMQPEERS_MAX.
 *
 * Return: 0 or a negative errno.
 */
int zmqpeers_open(sd_event *event, void *context, struct zmqloop *socket, const char *endpoint,
		  struct zmqpeers **handle);

/* Free @peers. NULL is ignored. */
void zmqpeers_close(struct zmqpeers *peers);

#endif
