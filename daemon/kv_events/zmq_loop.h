/* SPDX-License-Identifier: MIT */
/* ZeroMQ sockets on an sd_event loop. A turn reads few messages, so as not to stall the loop. */
#ifndef KVBLKD_KV_EVENTS_ZMQ_LOOP_H
#define KVBLKD_KV_EVENTS_ZMQ_LOOP_H

#include <stddef.h>
#include <systemd/sd-event.h>

#define ZMQLOOP_FRAMES	3

/* Handle a message of @nr frames. @frames has the first ZMQLOOP_FRAMES, each a zmq_msg_t. */
typedef void zmqloop_fn(void *arg, void *frames, size_t nr);

/* Called when the socket may accept messages to send. */
typedef void zmqloop_room_fn(void *arg);

struct zmqloop;

/**
 * zmqloop_open() - open a socket
 * @event: the loop
 * @context: context of ZeroMQ
 * @type: ZMQ_PUB, ZMQ_SUB, ...
 * @hwm: queued messages for each peer and direction; 0: no limit
 * @most: longest frame to receive, bytes
 * @fn: callback for messages; NULL: do not receive
 * @room: callback after receiving, or NULL
 * @arg: argument of both callbacks
 * @handle: set on success
 *
 * Return: 0 or a negative errno.
 */
int zmqloop_open(sd_event *event, void *context, int type, int hwm, long long most,
		 zmqloop_fn *fn, zmqloop_room_fn *room, void *arg, struct zmqloop **handle);

void *zmqloop_socket(struct zmqloop *loop);

/* Close the socket and drop unsent messages. NULL is ignored. */
void zmqloop_close(struct zmqloop *loop);

#endif
