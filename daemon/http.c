// SPDX-License-Identifier: MIT
/*
 * HTTP, see http.h: libmicrohttpd without a thread. Its epoll descriptor and its next
 * timeout are sources of the loop. A client that is slow or says nothing has a
 * connection and its memory, for a while, and nothing else.
 */
#include <errno.h>
#include <grp.h>
#include <microhttpd.h>
#include <netdb.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "http.h"

#define CONNECTIONS		32u
#define CONNECTIONS_OF_ONE	16u	/* client, so that others have some */
#define TIMEOUT_S		10u
#define ACCURACY_US		1000ull	/* 0 would be sd-event's default, 250 ms */
#define MEMORY			((size_t)16 << 10)
#define BACKLOG			16

struct http {
	struct MHD_Daemon *daemon;
	sd_event_source *io;
	sd_event_source *again;		/* the daemon has more to do: in the next turn */
	sd_event_source *timer;
	struct http_rules rules;
};

/* A request whose body comes in. */
struct upload {
	char *body;
	size_t len;
	size_t room;
	bool too_long;
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
	if (answer->status == MHD_HTTP_METHOD_NOT_ALLOWED && answer->allow)
		MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, answer->allow);
	ret = MHD_queue_response(connection, answer->status, response);
	MHD_destroy_response(response);
	return ret;
}

static enum MHD_Result say(struct MHD_Connection *connection, unsigned int status, const char *text)
{
	struct http_answer answer = {
		.status = status,
		.type = "text/plain; charset=utf-8",
		.body = strdup(text),
		.allow = "GET, HEAD",
	};

	answer.len = answer.body ? strlen(text) : 0;
	return reply(connection, &answer);
}

static uid_t peer_of(struct MHD_Connection *connection)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
	struct ucred peer = { .uid = (uid_t)-1 };

	if (info)
		getsockopt(info->connect_fd, SOL_SOCKET, SO_PEERCRED, &peer,
			   &(socklen_t){ sizeof(peer) });
	return peer.uid;
}

static enum MHD_Result answer(struct http *http, struct MHD_Connection *connection,
			      struct http_request *request)
{
	struct http_answer answer = { 0 };

	request->accept = MHD_lookup_connection_value(connection, MHD_HEADER_KIND,
						      MHD_HTTP_HEADER_ACCEPT);
	request->uid = peer_of(connection);
	http->rules.answer(http->rules.arg, request, &answer);
	if (!answer.status)
		return say(connection, MHD_HTTP_NOT_FOUND, http->rules.pages);
	return reply(connection, &answer);
}

/* Reads a body that is too long to its end, so that the sender reads the answer, and does not keep it. */
static void take(struct upload *upload, const char *bytes, size_t len, size_t most)
{
	size_t room = upload->room;
	char *more;

	if (upload->too_long || upload->len + len > most) {
		upload->too_long = true;
		return;
	}
	while (room < upload->len + len + 1)
		room = room ? 2 * room : 4096;
	more = room > upload->room ? realloc(upload->body, room) : upload->body;
	if (!more) {
		upload->too_long = true;
		return;
	}
	upload->body = more;
	upload->room = room;
	memcpy(more + upload->len, bytes, len);
	upload->len += len;
	more[upload->len] = '\0';
}

static enum MHD_Result on_request(void *arg, struct MHD_Connection *connection, const char *url,
				  const char *method, const char *version, const char *bytes,
				  size_t *len, void **state)
{
	struct http_request request = { .method = method, .path = url };
	struct upload *upload = *state;
	struct http *http = arg;

	(void)version;
	if (!http->rules.body_max) {
		/* at once: a body that comes with it is not read */
		if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
			return say(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "only GET and HEAD\n");
		return answer(http, connection, &request);
	}
	if (!upload) {
		*state = calloc(1, sizeof(*upload));
		return *state ? MHD_YES : MHD_NO;
	}
	if (*len) {
		take(upload, bytes, *len, http->rules.body_max);
		*len = 0;
		return MHD_YES;
	}
	if (upload->too_long)
		return say(connection, MHD_HTTP_CONTENT_TOO_LARGE, "the request is too long\n");
	request.body = upload->body;
	request.len = upload->len;
	return answer(http, connection, &request);
}

static void on_completed(void *arg, struct MHD_Connection *connection, void **state,
			 enum MHD_RequestTerminationCode code)
{
	struct upload *upload = *state;

	(void)arg;
	(void)connection;
	(void)code;
	if (upload)
		free(upload->body);
	free(upload);
	*state = NULL;
}

/* ---- the loop ---- */

static void run(struct http *http)
{
	MHD_UNSIGNED_LONG_LONG ms;

	MHD_run(http->daemon);
	sd_event_source_set_enabled(http->timer, SD_EVENT_OFF);
	if (MHD_get_timeout(http->daemon, &ms) != MHD_YES)
		return;
	if (!ms) {
		sd_event_source_set_enabled(http->again, SD_EVENT_ONESHOT);
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

static int on_again(sd_event_source *source, void *arg)
{
	(void)source;
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
		err = sd_event_add_defer(event, &http->again, on_again, http);
	if (err >= 0)
		err = sd_event_add_time_relative(event, &http->timer, CLOCK_MONOTONIC, 0, ACCURACY_US,
						 on_timer, http);
	return err < 0 ? err : 0;
}

/* ---- opening and closing ---- */

int http_listen_ip(const char *address, unsigned int port)
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

/* What is there and answers no more is in the way. */
static void remove_stale(int fd, const struct sockaddr_un *at)
{
	struct stat st;

	if (!lstat(at->sun_path, &st) && S_ISSOCK(st.st_mode) &&
	    connect(fd, (const struct sockaddr *)at, sizeof(*at)) && errno == ECONNREFUSED)
		unlink(at->sun_path);
}

static int group_of(const char *name, gid_t *gid)
{
	const struct group *group;

	*gid = (gid_t)-1;
	if (!name)
		return 0;
	errno = 0;
	group = getgrnam(name);
	if (!group)
		return errno ? -errno : -ESRCH;
	*gid = group->gr_gid;
	return 0;
}

/* Nobody can connect before it listens: then its owner and mode are right. */
int http_listen_unix(const char *path, const char *group, mode_t mode)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	gid_t gid;
	int fd, err = group_of(group, &gid);

	if (err)
		return err;
	snprintf(at.sun_path, sizeof(at.sun_path), "%s", path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	remove_stale(fd, &at);
	if (bind(fd, (const struct sockaddr *)&at, sizeof(at)) || chown(path, (uid_t)-1, gid) ||
	    chmod(path, mode) || listen(fd, BACKLOG)) {
		err = -errno;
		close(fd);
		return err;
	}
	return fd;
}

int http_open(sd_event *event, int fd, const struct http_rules *rules, struct http **handle)
{
	struct http *http = calloc(1, sizeof(*http));
	int err;

	if (!http) {
		close(fd);
		return -ENOMEM;
	}
	http->rules = *rules;
	http->daemon = MHD_start_daemon(MHD_USE_EPOLL, 0, NULL, NULL, on_request, http,
					MHD_OPTION_LISTEN_SOCKET, fd,
					MHD_OPTION_CONNECTION_LIMIT, CONNECTIONS,
					MHD_OPTION_PER_IP_CONNECTION_LIMIT, CONNECTIONS_OF_ONE,
					MHD_OPTION_CONNECTION_TIMEOUT, TIMEOUT_S,
					MHD_OPTION_CONNECTION_MEMORY_LIMIT, MEMORY,
					MHD_OPTION_NOTIFY_COMPLETED, on_completed, NULL,
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

void http_set_body_max(struct http *http, size_t body_max)
{
	http->rules.body_max = body_max;
}

void http_close(struct http *http)
{
	if (!http)
		return;
	sd_event_source_disable_unref(http->io);
	sd_event_source_disable_unref(http->again);
	sd_event_source_disable_unref(http->timer);
	/* closes the socket, too */
	MHD_stop_daemon(http->daemon);
	free(http);
}
