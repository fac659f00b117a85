// SPDX-License-Identifier: MIT
/*
 * HTTP, see http.h: libmicrohttpd without a thread. Its epoll descriptor and its next
 * timeout are sources of the loop. A client that is slow or says nothing has a
 * connection and its memory, for a while, and nothing else.
 */
#include <errno.h>
#include <microhttpd.h>
#include <netdb.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "http.h"

#define CONNECTIONS		32u
#define CONNECTIONS_OF_ONE	16u	/* client, so that others have some */
#define TIMEOUT_S		10u
#define MEMORY			((size_t)16 << 10)
#define BACKLOG			16

struct http {
	struct MHD_Daemon *daemon;
	sd_event_source *io;
	sd_event_source *timer;
	http_answer_fn *answer;
	void *arg;
};

static enum MHD_Result reply(struct MHD_Connection *connection, struct http_answer *answer)
{
	struct MHD_Response *response;
	enum MHD_Result ret;

	response = MHD_create_response_from_buffer(answer->len, answer->body,
						   MHD_RESPMEM_MUST_FREE);
	if (!response) {
		free(answer->body);
		return MHD_NO;
	}
	MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, answer->type);
	MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
	if (answer->status == MHD_HTTP_METHOD_NOT_ALLOWED)
		MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
	ret = MHD_queue_response(connection, answer->status, response);
	MHD_destroy_response(response);
	return ret;
}

static void say(struct http_answer *answer, unsigned int status, const char *text)
{
	answer->status = status;
	answer->type = "text/plain; charset=utf-8";
	answer->body = strdup(text);
	answer->len = answer->body ? strlen(text) : 0;
}

static enum MHD_Result on_request(void *arg, struct MHD_Connection *connection, const char *url,
				  const char *method, const char *version, const char *upload,
				  size_t *upload_size, void **state)
{
	struct http_answer answer = { 0 };
	struct http *http = arg;

	(void)version;
	(void)upload;
	(void)upload_size;
	(void)state;
	/* at once: a body that comes with it is not read */
	if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
		say(&answer, MHD_HTTP_METHOD_NOT_ALLOWED, "only GET and HEAD\n");
	else
		http->answer(http->arg, url,
			     MHD_lookup_connection_value(connection, MHD_HEADER_KIND,
							 MHD_HTTP_HEADER_ACCEPT), &answer);
	if (!answer.status)
		say(&answer, MHD_HTTP_NOT_FOUND, "there are /metrics, /ready and /healthz\n");
	return reply(connection, &answer);
}

/* ---- the loop ---- */

static void run(struct http *http)
{
	MHD_UNSIGNED_LONG_LONG ms;

	MHD_run(http->daemon);
	if (MHD_get_timeout(http->daemon, &ms) != MHD_YES) {
		sd_event_source_set_enabled(http->timer, SD_EVENT_OFF);
		return;
	}
	sd_event_source_set_time_relative(http->timer, ms * 1000);
	sd_event_source_set_enabled(http->timer, SD_EVENT_ONESHOT);
}

static int on_io(sd_event_source *source, int fd, uint32_t revents, void *arg)
{
	(void)source;
	(void)fd;
	(void)revents;
	run(arg);
	return 0;
}

static int on_timer(sd_event_source *source, uint64_t us, void *arg)
{
	(void)source;
	(void)us;
	run(arg);
	return 0;
}

static int add_sources(struct http *http, sd_event *event)
{
	const union MHD_DaemonInfo *info = MHD_get_daemon_info(http->daemon,
							       MHD_DAEMON_INFO_EPOLL_FD);
	int err = info ? sd_event_add_io(event, &http->io, info->epoll_fd, EPOLLIN, on_io, http) :
			 -EIO;

	if (err >= 0)
		err = sd_event_add_time_relative(event, &http->timer, CLOCK_MONOTONIC, 0, 0,
						 on_timer, http);
	return err < 0 ? err : 0;
}

/* ---- opening and closing ---- */

static int listen_on(const char *address, unsigned int port)
{
	struct addrinfo hints = { .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE,
				  .ai_socktype = SOCK_STREAM }, *found;
	char service[8];
	int fd, err = 0;

	snprintf(service, sizeof(service), "%u", port);
	if (getaddrinfo(address, service, &hints, &found))
		return -EADDRNOTAVAIL;
	fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){ 1 }, sizeof(int)) ||
	    bind(fd, found->ai_addr, found->ai_addrlen) || listen(fd, BACKLOG))
		err = -errno;
	freeaddrinfo(found);
	if (err && fd >= 0)
		close(fd);
	return err ? err : fd;
}

int http_open(sd_event *event, const char *address, unsigned int port,
	      http_answer_fn *answer, void *arg, struct http **handle)
{
	struct http *http = calloc(1, sizeof(*http));
	int fd, err;

	if (!http)
		return -ENOMEM;
	http->answer = answer;
	http->arg = arg;
	fd = listen_on(address, port);
	if (fd < 0) {
		free(http);
		return fd;
	}
	http->daemon = MHD_start_daemon(MHD_USE_EPOLL, 0, NULL, NULL, on_request, http,
					MHD_OPTION_LISTEN_SOCKET, fd,
					MHD_OPTION_CONNECTION_LIMIT, CONNECTIONS,
					MHD_OPTION_PER_IP_CONNECTION_LIMIT, CONNECTIONS_OF_ONE,
					MHD_OPTION_CONNECTION_TIMEOUT, TIMEOUT_S,
					MHD_OPTION_CONNECTION_MEMORY_LIMIT, MEMORY,
					MHD_OPTION_END);
	if (!http->daemon) {
		close(fd);
		free(http);
		return -EIO;
	}
	err = add_sources(http, event);
	if (err)
		http_close(http);
	else
		*handle = http;
	return err;
}

void http_close(struct http *http)
{
	if (!http)
		return;
	sd_event_source_disable_unref(http->io);
	sd_event_source_disable_unref(http->timer);
	/* closes the socket, too */
	MHD_stop_daemon(http->daemon);
	free(http);
}
