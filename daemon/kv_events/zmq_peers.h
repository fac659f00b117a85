/* SPDX-License-Identifier: MIT */
/*
 * Peers of a ZeroMQ socket that listens by TCP. ZeroMQ bounds neither the topics that a
 * peer subscribes to nor a message without an end, and takes some 33 times the bytes
 * that came.
 * Rule: what peers make ZeroMQ keep is bounded by their number and the bytes of each.
 */
#ifndef KVBLKD_ZMQPEERS_H
#define KVBLKD_ZMQPEERS_H

#include "kv_events/zmq_loop.h"

#define ZMQPEERS_MAX	256u		/* connections */
#define ZMQPEERS_BYTES	(32u << 10)	/* that one may send in all */

struct zmqpeers;

/**
 * zmqpeers_open() - watches the peers of a socket that is not bound yet
 * @event: the loop
 * @context: of ZeroMQ
 * @socket: whose peers have nothing long to send
 * @endpoint: that @socket will be bound to
 * @handle: set; closed after @socket
 *
 * Disconnects a peer that has sent more than ZMQPEERS_BYTES, and one that comes when
 * there are ZMQPEERS_MAX.
 *
 * Return: 0 or a negative errno.
 */
int zmqpeers_open(sd_event *event, void *context, struct zmqloop *socket, const char *endpoint,
		  struct zmqpeers **handle);

/* NULL is no error. */
void zmqpeers_close(struct zmqpeers *peers);

#endif
