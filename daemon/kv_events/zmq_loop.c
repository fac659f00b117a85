// SPDX-License-Identifier: MIT
/*
 * ZeroMQ on sd_event, see zmq_loop.h. ZMQ_FD is edge-triggered and signals any change of state,
 * so ZMQ_EVENTS is queried until the socket is no longer readable.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <zmq.h>

#include "kv_events/zmq_loop.h"

#define TURN_MESSAGES	256

struct zmqloop {
	void *socket;
	zmqloop_fn *fn;
	zmqloop_room_fn *room;
	void *arg;
	sd_event_source *io;
	sd_event_source *again;
};

static bool is_readable(const struct zmqloop *loop)
{
	size_t len = sizeof(int);
	int events = 0;

	return !zmq_getsockopt(loop->socket, ZMQ_EVENTS, &events, &len) && (events & ZMQ_POLLIN);
}

static bool take_message(struct zmqloop *loop)
{
	zmq_msg_t frames[ZMQLOOP_FRAMES], rest;
	size_t nr = 0;
	bool more = true;

	for (size_t i = 0; i < ZMQLOOP_FRAMES; i++)
		zmq_msg_init(&frames[i]);
	zmq_msg_init(&rest);
	while (more) {
		zmq_msg_t *frame = nr < ZMQLOOP_FRAMES ? &frames[nr] : &rest;

		if (zmq_msg_recv(frame, loop->socket, ZMQ_DONTWAIT) < 0)
			break;
		more = zmq_msg_more(frame);
		nr++;
	}
	if (!more)
		loop->fn(loop->arg, frames, nr);
	for (size_t i = 0; i < ZMQLOOP_FRAMES; i++)
		zmq_msg_close(&frames[i]);
	zmq_msg_close(&rest);
	return !more;
}

static int read_some(struct zmqloop *loop)
{
	int n = 0;

	while (n < TURN_MESSAGES && is_readable(loop) && take_message(loop))
		n++;
	if (n == TURN_MESSAGES)
		sd_event_source_set_enabled(loop->again, SD_EVENT_ONESHOT);
	if (loop->room)
		loop->room(loop->arg);
	return 0;
}

static int on_io(sd_event_source *source, int fd, uint32_t revents, void *arg)
{
	return read_some(arg);
}

static int on_again(sd_event_source *source, void *arg)
{
	return read_some(arg);
}

static int set_options(void *socket, int hwm, long long most)
{
	const struct {
		int option;
		const void *value;
		size_t len;
	} options[] = {
		{ ZMQ_SNDHWM, &hwm, sizeof(hwm) },
		{ ZMQ_RCVHWM, &hwm, sizeof(hwm) },
		{ ZMQ_MAXMSGSIZE, &(int64_t){ most }, sizeof(int64_t) },
		{ ZMQ_LINGER, &(int){ 0 }, sizeof(int) },
		{ ZMQ_IPV6, &(int){ 1 }, sizeof(int) },
	};

	for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
		if (zmq_setsockopt(socket, options[i].option, options[i].value, options[i].len))
			return -errno;
	}
	return 0;
}

static int add_sources(struct zmqloop *loop, sd_event *event)
{
	size_t len = sizeof(int);
	int fd, err;

	if (zmq_getsockopt(loop->socket, ZMQ_FD, &fd, &len))
		return -errno;
	err = sd_event_add_io(event, &loop->io, fd, EPOLLIN, on_io, loop);
	if (err >= 0)
		err = sd_event_add_defer(event, &loop->again, on_again, loop);
	return err < 0 ? err : 0;
}

int zmqloop_open(sd_event *event, void *context, int type, int hwm, long long most,
		 zmqloop_fn *fn, zmqloop_room_fn *room, void *arg, struct zmqloop **handle)
{
	struct zmqloop *loop = calloc(1, sizeof(*loop));
	int err = -ENOMEM;

	if (!loop)
		return -ENOMEM;
	loop->fn = fn;
	loop->room = room;
	loop->arg = arg;
	loop->socket = zmq_socket(context, type);
	if (loop->socket)
		err = set_options(loop->socket, hwm, most);
	if (!err && fn)
		err = add_sources(loop, event);
	if (err)
		zmqloop_close(loop);
	else
		*handle = loop;
	return err;
}

void *zmqloop_socket(struct zmqloop *loop)
{
	return loop->socket;
}

void zmqloop_close(struct zmqloop *loop)
{
	if (!loop)
		return;
	sd_event_source_disable_unref(loop->io);
	sd_event_source_disable_unref(loop->again);
	if (loop->socket)
		zmq_close(loop->socket);
	free(loop);
}
