// SPDX-License-Identifier: MIT
/*
 * HTTP, see http.h: libmicrohttpd without a thread. The loop polls its epoll descriptor, its
 * timeout and the listening socket. Connections are accepted here, because libmicrohttpd cannot
 * tell users apart.
 *
 * A user with many idle or slow connections must not cost other users theirs. Users with one
 * connection each cannot occupy the listener for long: the oldest is dropped. A user is a uid
 * (Unix socket), an IPv4 address or an IPv6 network.
 */
#include <errno.h>
#include <grp.h>
#include <microhttpd.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "http/http.h"

#define CONNECTIONS		32u
/* per turn of the loop, so that requests already received are answered */
#define ACCEPTS			8u
#define IDLE_S			10u	/* seconds without traffic in either direction */
#define HEADER_US		5000000ull
#define REQUEST_US		60000000ull
#define ACCURACY_US		1000ull	/* 0 means sd-event's default, 250 ms */
#define MEMORY			((size_t)16 << 10)
#define BACKLOG			128
#define BODIES			4u	/* bodies of full length that a user may send at a time */

/**
 * struct user - owner of a connection
 * @uid: peer of a Unix socket, else -1
 * @address: peer of a TCP connection: first 64 bits of IPv6, or IPv4 in the last 32
 */
struct user {
	uid_t uid;
	struct in6_addr address;
};

/**
 * struct client - a connection
 * @older: entry of &struct http.clients, until @fd is -1
 * @fd: libmicrohttpd's socket; -1: shut down, libmicrohttpd will close it
 * @deadline: timer of the header, then of the request
 * @bytes: memory of the request's body
 * @started: libmicrohttpd's connection refers to the struct, and on_connection() frees it
 * @asks: a header was received, and its answer was not sent yet
 */
struct client {
	TAILQ_ENTRY(client) older;
	struct http *http;
	struct user user;
	int fd;
	sd_event_source *deadline;
	size_t bytes;
	bool started;
	bool asks;
};

/**
 * struct http - a listener
 * @io: event source of @daemon's epoll descriptor
 * @again: deferred source, runs @daemon in the next turn
 * @clients: open connections, oldest first
 * @nr_clients: length of @clients
 */
struct http {
	sd_event *event;
	struct MHD_Daemon *daemon;
	int fd;
	sd_event_source *listener;
	sd_event_source *io;
	sd_event_source *again;
	sd_event_source *timer;
	TAILQ_HEAD(clients, client) clients;
	unsigned int nr_clients;
	struct http_rules rules;
};

/* A request whose body is being received. */
struct upload {
	char *body;
	size_t len;
	size_t room;
	bool too_long;
	bool too_much;
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

/* Returns the client, NULL if it was dropped before libmicrohttpd started the connection. */
static struct client *client_of(struct MHD_Connection *connection)
{
	return MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
}

static enum MHD_Result answer(struct http *http, struct MHD_Connection *connection,
			      struct http_request *request)
{
	const struct client *client = client_of(connection);
	struct http_answer answer = { 0 };

	request->accept = MHD_lookup_connection_value(connection, MHD_HEADER_KIND,
						      MHD_HTTP_HEADER_ACCEPT);
	request->uid = client ? client->user.uid : (uid_t)-1;
	http->rules.answer(http->rules.arg, request, &answer);
	if (!answer.status)
		return say(connection, MHD_HTTP_NOT_FOUND, http->rules.pages);
	return reply(connection, &answer);
}

static bool same_user(const struct user *a, const struct user *b)
{
	return a->uid == b->uid && !memcmp(&a->address, &b->address, sizeof(a->address));
}

/* Reserve @room for a body. Returns false if the user's bodies would exceed BODIES * @most. */
static bool may_grow(struct client *client, size_t room, size_t most)
{
	const struct client *other;
	size_t all = 0;

	if (!client)
		return false;
	TAILQ_FOREACH(other, &client->http->clients, older) {
		if (other != client && same_user(&other->user, &client->user))
			all += other->bytes;
	}
	if (all && all + room > BODIES * most)
		return false;
	client->bytes = room;
	return true;
}

/* Receive a part of the body. Drop a body that is too long, but read it to its end. */
static void take(struct upload *upload, struct client *client, const char *bytes, size_t len, size_t most)
{
	size_t room = upload->room;
	char *more;

	upload->too_long |= upload->len + len > most;
	if (upload->too_long || upload->too_much)
		return;
	while (room < upload->len + len + 1)
		room = room ? 2 * room : 4096;
	if (room > upload->room && !may_grow(client, room, most)) {
		upload->too_much = true;
		return;
	}
	more = room > upload->room ? realloc(upload->body, room) : upload->body;
	if (!more) {
		upload->too_much = true;
		return;
	}
	upload->body = more;
	upload->room = room;
	memcpy(more + upload->len, bytes, len);
	upload->len += len;
	more[upload->len] = '\0';
}

/* Record that a header was received, or that its answer was sent, and restart the deadline. */
static void set_asks(struct client *client, bool asks)
{
	if (!client || client->fd < 0)
		return;
	client->asks = asks;
	client->bytes = asks ? client->bytes : 0;
	sd_event_source_set_time_relative(client->deadline, asks ? REQUEST_US : HEADER_US);
	sd_event_source_set_enabled(client->deadline, SD_EVENT_ONESHOT);
}

static enum MHD_Result on_request(void *arg, struct MHD_Connection *connection, const char *url,
				  const char *method, const char *version, const char *bytes,
				  size_t *len, void **state)
{
	struct http_request request = { .method = method, .path = url };
	struct upload *upload = *state;
	struct http *http = arg;

	if (!upload)
		set_asks(client_of(connection), true);
	if (!http->rules.body_max) {
		/* answer at once, without reading a body */
		if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
			return say(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "only GET and HEAD\n");
		return answer(http, connection, &request);
	}
	if (!upload) {
		*state = calloc(1, sizeof(*upload));
		return *state ? MHD_YES : MHD_NO;
	}
	if (*len) {
		take(upload, client_of(connection), bytes, *len, http->rules.body_max);
		*len = 0;
		return MHD_YES;
	}
	if (upload->too_long)
		return say(connection, MHD_HTTP_CONTENT_TOO_LARGE, "the request is too long\n");
	if (upload->too_much)
		return say(connection, MHD_HTTP_TOO_MANY_REQUESTS, "too many long requests at a time\n");
	request.body = upload->body;
	request.len = upload->len;
	return answer(http, connection, &request);
}

static void on_completed(void *arg, struct MHD_Connection *connection, void **state,
			 enum MHD_RequestTerminationCode code)
{
	struct upload *upload = *state;

	if (upload)
		free(upload->body);
	free(upload);
	*state = NULL;
	set_asks(client_of(connection), false);
}

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
	run(arg);
	return 0;
}

static int on_again(sd_event_source *source, void *arg)
{
	run(arg);
	return 0;
}

static int on_timer(sd_event_source *source, uint64_t us, void *arg)
{
	run(arg);
	return 0;
}

static unsigned int connections_of(const struct http *http, const struct user *user)
{
	const struct client *client;
	unsigned int nr = 0;

	TAILQ_FOREACH(client, &http->clients, older)
		nr += same_user(&client->user, user);
	return nr;
}

static void forget(struct client *client)
{
	TAILQ_REMOVE(&client->http->clients, client, older);
	client->http->nr_clients--;
	client->deadline = sd_event_source_disable_unref(client->deadline);
	client->fd = -1;
}

/* Shut the connection down. libmicrohttpd then closes the socket and calls on_connection(). */
static void drop(struct client *client)
{
	shutdown(client->fd, SHUT_RDWR);
	forget(client);
	if (!client->started)
		free(client);
}

static int on_deadline(sd_event_source *source, uint64_t us, void *arg)
{
	drop(arg);
	return 0;
}

/*
 * Drop a connection in favour of @user. If another user has at least two more connections than
 * @user, or any while @user has none, drop one of the user with the most: the oldest idle one,
 * or else the oldest. Otherwise drop @user's own oldest idle connection. Returns false if none
 * was dropped.
 */
static bool make_room(struct http *http, const struct user *user)
{
	struct client *client, *idle = NULL, *oldest = NULL;
	unsigned int own = connections_of(http, user), most = 0;
	bool others;

	TAILQ_FOREACH(client, &http->clients, older) {
		unsigned int nr = connections_of(http, &client->user);

		if (nr > most && !same_user(&client->user, user))
			most = nr;
	}
	others = own ? most > own + 1 : most > 0;
	TAILQ_FOREACH_REVERSE(client, &http->clients, clients, older) {
		bool is_own = same_user(&client->user, user);

		if (is_own == others || (others && connections_of(http, &client->user) != most))
			continue;
		oldest = client;
		idle = client->asks ? idle : client;
	}
	if (!idle && others)
		idle = oldest;
	if (idle)
		drop(idle);
	return idle;
}

/* Returns the user's part of an address: 64 bits of IPv6, as a host may use all the rest. */
static struct in6_addr network_of(const struct in6_addr *address)
{
	struct in6_addr network = { 0 };

	if (IN6_IS_ADDR_V4MAPPED(address))
		network.s6_addr32[3] = address->s6_addr32[3];
	else
		memcpy(&network, address, 8);
	return network;
}

static struct user user_of(int fd, const struct sockaddr_storage *peer)
{
	struct ucred ucred = { .uid = (uid_t)-1 };
	struct user user = { .uid = (uid_t)-1 };

	if (peer->ss_family == AF_INET6) {
		user.address = network_of(&((const struct sockaddr_in6 *)peer)->sin6_addr);
	} else if (peer->ss_family == AF_INET) {
		user.address.s6_addr32[3] = ((const struct sockaddr_in *)peer)->sin_addr.s_addr;
	} else {
		getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &ucred, &(socklen_t){ sizeof(ucred) });
		user.uid = ucred.uid;
	}
	return user;
}

static struct client *client_new(struct http *http, int fd, const struct user *user)
{
	struct client *client = calloc(1, sizeof(*client));

	if (!client)
		return NULL;
	client->http = http;
	client->fd = fd;
	client->user = *user;
	if (sd_event_add_time_relative(http->event, &client->deadline, CLOCK_MONOTONIC, HEADER_US,
				       ACCURACY_US, on_deadline, client) < 0) {
		free(client);
		return NULL;
	}
	TAILQ_INSERT_TAIL(&http->clients, client, older);
	http->nr_clients++;
	return client;
}

/* Add a connection. Takes ownership of @fd. */
static void add_client(struct http *http, int fd, const struct sockaddr_storage *peer, socklen_t len)
{
	struct user user = user_of(fd, peer);
	struct client *client;

	if (http->nr_clients >= CONNECTIONS && !make_room(http, &user)) {
		close(fd);
		return;
	}
	if (!client_new(http, fd, &user)) {
		close(fd);
		return;
	}
	if (MHD_add_connection(http->daemon, fd, (const struct sockaddr *)peer, len) == MHD_YES)
		return;
	/* MHD has closed @fd, and called on_connection() only if the connection had started */
	TAILQ_FOREACH(client, &http->clients, older) {
		if (client->fd == fd)
			break;
	}
	if (client) {
		forget(client);
		free(client);
	}
}

/* Find the client by its socket. Called in MHD_add_connection(), since 1.0 in MHD_run(). */
static void start_client(struct http *http, struct MHD_Connection *connection, void **context)
{
	int fd = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
	struct client *client;

	TAILQ_FOREACH(client, &http->clients, older) {
		if (client->fd != fd)
			continue;
		client->started = true;
		*context = client;
	}
}

static void on_connection(void *arg, struct MHD_Connection *connection, void **context,
			  enum MHD_ConnectionNotificationCode code)
{
	struct client *client = *context;

	if (code == MHD_CONNECTION_NOTIFY_STARTED) {
		start_client(arg, connection, context);
		return;
	}
	if (!client)
		return;
	if (client->fd >= 0)
		forget(client);
	free(client);
}

static int on_listener(sd_event_source *source, int fd, uint32_t revents, void *arg)
{
	struct http *http = arg;

	for (unsigned int i = 0; i < ACCEPTS; i++) {
		struct sockaddr_storage peer = { 0 };
		socklen_t len = sizeof(peer);
		int client = accept4(fd, (struct sockaddr *)&peer, &len, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (client < 0)
			break;
		add_client(http, client, &peer, len);
	}
	run(http);
	return 0;
}

static int add_sources(struct http *http)
{
	const union MHD_DaemonInfo *info = MHD_get_daemon_info(http->daemon,
							       MHD_DAEMON_INFO_EPOLL_FD);
	sd_event *event = http->event;
	int err = info ? sd_event_add_io(event, &http->io, info->epoll_fd, EPOLLIN, on_io, http) :
			 -EIO;

	if (err >= 0)
		err = sd_event_add_io(event, &http->listener, http->fd, EPOLLIN, on_listener, http);
	/* limit the rate, or else accept() busy-loops while descriptors are short */
	if (err >= 0)
		err = sd_event_source_set_ratelimit(http->listener, 1000000, 1000);
	if (err >= 0)
		err = sd_event_add_defer(event, &http->again, on_again, http);
	if (err >= 0)
		err = sd_event_add_time_relative(event, &http->timer, CLOCK_MONOTONIC, 0, ACCURACY_US,
						 on_timer, http);
	return err < 0 ? err : 0;
}

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

/* Unlink a socket that no process listens on, or else bind() fails. */
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

/* Owner and mode are set before listen(), so that no client can connect too early. */
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
	int err = -EIO;

	if (!http) {
		close(fd);
		return -ENOMEM;
	}
	http->event = event;
	http->fd = fd;
	http->rules = *rules;
	TAILQ_INIT(&http->clients);
	/* twice the limit: a dropped connection counts until MHD has noticed its end */
	http->daemon = MHD_start_daemon(MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET, 0, NULL, NULL,
					on_request, http,
					MHD_OPTION_CONNECTION_LIMIT, 2 * CONNECTIONS,
					MHD_OPTION_CONNECTION_TIMEOUT, IDLE_S,
					MHD_OPTION_CONNECTION_MEMORY_LIMIT, MEMORY,
					MHD_OPTION_NOTIFY_CONNECTION, on_connection, http,
					MHD_OPTION_NOTIFY_COMPLETED, on_completed, NULL,
					MHD_OPTION_END);
	if (http->daemon)
		err = add_sources(http);
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
	struct client *client, *next;

	if (!http)
		return;
	sd_event_source_disable_unref(http->listener);
	sd_event_source_disable_unref(http->io);
	sd_event_source_disable_unref(http->again);
	sd_event_source_disable_unref(http->timer);
	close(http->fd);
	if (http->daemon)
		MHD_stop_daemon(http->daemon);
	/* connections that MHD has not started */
	for (client = TAILQ_FIRST(&http->clients); client; client = next) {
		next = TAILQ_NEXT(client, older);
		forget(client);
		free(client);
	}
	free(http);
}
