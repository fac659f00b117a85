// SPDX-License-Identifier: MIT
/* Connections to Valkey servers, see valkey.h. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

#include "common/clock.h"
#include "pod/valkey.h"

#define REPLY_BYTES	(1u << 20)	/* far above the longest reply to a command of kvblkd */

/**
 * struct waiting - a command without a reply
 * @fn: handler
 * @arg: argument of @fn
 * @sent: time of valkey_send(), monotonic microseconds
 */
struct waiting {
	valkey_reply *fn;
	void *arg;
	uint64_t sent;
};

/**
 * struct valkey - a connection
 * @context: buffers and parser
 * @io: event source of the socket
 * @down: see valkey_open()
 * @arg: argument of @down
 * @first: place of the oldest command in @waiting
 * @nr: commands in @waiting
 * @waiting: ring of commands without a reply
 */
struct valkey {
	redisContext *context;
	sd_event_source *io;
	valkey_down *down;
	void *arg;
	unsigned int first;
	unsigned int nr;
	struct waiting waiting[VALKEY_COMMANDS];
};

static struct waiting take_first(struct valkey *conn)
{
	struct waiting first = conn->waiting[conn->first];

	conn->first = (conn->first + 1) % VALKEY_COMMANDS;
	conn->nr--;
	return first;
}

/* Handle the replies that have arrived. Returns NULL, or why the connection must end. */
static const char *take_replies(struct valkey *conn)
{
	redisContext *context = conn->context;
	struct waiting waiting;
	bool keep = true;
	void *reply;

	if (redisBufferRead(context) != REDIS_OK)
		return context->errstr;
	while (keep && redisGetReplyFromReader(context, &reply) == REDIS_OK && reply) {
		if (conn->nr) {
			waiting = take_first(conn);
			keep = waiting.fn(waiting.arg, reply);
		} else {
			keep = false;
		}
		freeReplyObject(reply);
	}
	if (context->err)
		return context->errstr;
	if (!keep)
		return "unexpected reply";
	return context->reader->len > REPLY_BYTES ? "a reply without an end" : NULL;
}

static int on_io(sd_event_source *source, int fd, uint32_t revents, void *arg)
{
	struct valkey *conn = arg;
	const char *why = NULL;
	int done = 0;

	if (revents & ~(uint32_t)EPOLLOUT)
		why = take_replies(conn);
	/* replies may have caused commands */
	if (!why && redisBufferWrite(conn->context, &done) != REDIS_OK)
		why = conn->context->errstr;
	if (why) {
		sd_event_source_set_enabled(source, SD_EVENT_OFF);
		conn->down(conn->arg, why);
		return 0;
	}
	sd_event_source_set_io_events(source, done ? EPOLLIN : EPOLLIN | EPOLLOUT);
	return 0;
}

int valkey_open(sd_event *event, const char *ip, int port, valkey_down *down, void *arg,
		struct valkey **handle)
{
	struct valkey *conn = calloc(1, sizeof(*conn));
	int err = 0;

	if (!conn)
		return -ENOMEM;
	conn->down = down;
	conn->arg = arg;
	conn->context = redisConnectNonBlock(ip, port);
	if (!conn->context)
		err = -ENOMEM;
	else if (conn->context->err)
		err = errno ? -errno : -EIO;
	else if (fcntl(conn->context->fd, F_SETFD, FD_CLOEXEC))
		err = -errno;
#if HIREDIS_MAJOR >= 1
	if (!err)
		conn->context->reader->maxelements = REPLY_BYTES / 16;
#endif
	if (!err)
		err = sd_event_add_io(event, &conn->io, conn->context->fd, EPOLLIN | EPOLLOUT, on_io, conn);
	if (err < 0) {
		valkey_close(conn);
		return err;
	}
	*handle = conn;
	return 0;
}

void valkey_close(struct valkey *conn)
{
	struct waiting waiting;

	sd_event_source_disable_unref(conn->io);
	if (conn->context)
		redisFree(conn->context);
	conn->context = NULL;
	while (conn->nr) {
		waiting = take_first(conn);
		waiting.fn(waiting.arg, NULL);
	}
	free(conn);
}

bool valkey_send(struct valkey *conn, int argc, const char **argv, const size_t *len,
		 valkey_reply *fn, void *arg)
{
	if (!conn->context || conn->nr == VALKEY_COMMANDS ||
	    redisAppendCommandArgv(conn->context, argc, argv, len) != REDIS_OK)
		return false;
	conn->waiting[(conn->first + conn->nr++) % VALKEY_COMMANDS] = (struct waiting){ fn, arg, clock_us() };
	sd_event_source_set_io_events(conn->io, EPOLLIN | EPOLLOUT);
	return true;
}

uint64_t valkey_age(const struct valkey *conn)
{
	return conn->nr ? clock_us() - conn->waiting[conn->first].sent + 1 : 0;
}
