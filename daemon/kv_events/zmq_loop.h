/* SPDX-License-Identifier: MIT */
/*
 * Sockets of ZeroMQ on an sd_event loop. Rule: one socket does not hold up the loop: it
 * is read a little at a time.
 */
#ifndef KVBLKD_ZMQLOOP_H
#define KVBLKD_ZMQLOOP_H

#include <stddef.h>
#include <systemd/sd-event.h>

#define ZMQLOOP_FRAMES	3

/* Takes a message: @nr frames, the first ZMQLOOP_FRAMES of which are in @frames, a zmq_msg_t each. */
typedef void zmqloop_fn(void *arg, void *frames, size_t nr);

/* The socket may take something to send again. */
typedef void zmqloop_room_fn(void *arg);

struct zmqloop;

/**
 * zmqloop_open() - a socket
 * @event: the loop
 * @context: of ZeroMQ
 * @type: ZMQ_PUB, ZMQ_SUB, ...
 * @hwm: messages that wait for each peer, in each direction; 0: any number
 * @most: bytes of a frame that is received
 * @fn: takes what is received; NULL: nothing is
 * @room: called after that, or NULL
 * @arg: for both
 * @handle: set
 *
 * Return: 0 or a negative errno.
 */
int zmqloop_open(sd_event *event, void *context, int type, int hwm, long long most,
		 zmqloop_fn *fn, zmqloop_room_fn *room, void *arg, struct zmqloop **handle);

void *zmqloop_socket(struct zmqloop *loop);

/* What was not sent is dropped. NULL is no error. */
void zmqloop_close(struct zmqloop *loop);

#endif
