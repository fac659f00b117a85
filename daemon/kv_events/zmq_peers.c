// SPDX-License-Identifier: MIT
/*
 * Peers, see zmq_peers.h. A monitor socket reports connections, and TCP_INFO counts their bytes.
 * Each connection is watched through a duplicate of its descriptor, because ZeroMQ's thread may
 * close the original at any time and the number may be reused.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zmq.h>

#include "kv_events/zmq_peers.h"

#define LOOK_US		100000ull	/* ZeroMQ's thread receives at most some MiB in this time */
#define ACCURACY_US	10000ull

/**
 * struct peer - a connection
 * @fd: our duplicate of the descriptor
 * @theirs: ZeroMQ's descriptor, by which the monitor names the connection
 */
struct peer {
	int fd;
	int theirs;
};

/**
 * struct zmqpeers - connections to a socket
 * @monitor: monitor socket, reports connects and disconnects
 * @look: timer, enabled while there are connections
 * @port: port that the socket listens on
 * @nr: entries of @peers in use
 */
struct zmqpeers {
	struct zmqloop *monitor;
	sd_event_source *look;
	in_port_t port;
	unsigned int nr;
	struct peer peers[ZMQPEERS_MAX];
};

static void forget(struct zmqpeers *peers, struct peer *peer)
{
	close(peer->fd);
	*peer = peers->peers[--peers->nr];
}

static void gone(struct zmqpeers *peers, int theirs)
{
	for (unsigned int i = 0; i < peers->nr; i++) {
		if (peers->peers[i].theirs == theirs) {
			forget(peers, &peers->peers[i]);
			return;
		}
	}
}

/* Check that @fd is a connection to the socket: the number may have been reused meanwhile. */
static bool is_peer(const struct zmqpeers *peers, int fd)
{
	struct sockaddr_storage at = { 0 };
	in_port_t port = 0;

	if (getsockname(fd, (struct sockaddr *)&at, &(socklen_t){ sizeof(at) }))
		return false;
	if (at.ss_family == AF_INET)
		port = ((const struct sockaddr_in *)&at)->sin_port;
	else if (at.ss_family == AF_INET6)
		port = ((const struct sockaddr_in6 *)&at)->sin6_port;
	return port && ntohs(port) == peers->port;
}

static void come(struct zmqpeers *peers, int theirs)
{
	int fd = fcntl(theirs, F_DUPFD_CLOEXEC, 0);

	gone(peers, theirs);
	if (fd < 0 || !is_peer(peers, fd)) {
		if (fd >= 0)
			close(fd);
		return;
	}
	if (peers->nr == ZMQPEERS_MAX) {
		shutdown(fd, SHUT_RDWR);
		close(fd);
		return;
	}
	peers->peers[peers->nr++] = (struct peer){ fd, theirs };
	sd_event_source_set_enabled(peers->look, SD_EVENT_ONESHOT);
}

/* Handle a monitor event: 16 bits of event, 32 bits of descriptor; a frame with the endpoint. */
static void on_monitor(void *arg, void *frames, size_t nr)
{
	zmq_msg_t *frame = frames;
	uint16_t what;
	int32_t fd;

	if (!nr || zmq_msg_size(frame) < sizeof(what) + sizeof(fd))
		return;
	memcpy(&what, zmq_msg_data(frame), sizeof(what));
	memcpy(&fd, (char *)zmq_msg_data(frame) + sizeof(what), sizeof(fd));
	if (what == ZMQ_EVENT_ACCEPTED)
		come(arg, fd);
	else
		gone(arg, fd);
}

/* Returns false if the connection has sent too much. */
static bool may_stay(const struct peer *peer)
{
	struct tcp_info info = { 0 };

	return !getsockopt(peer->fd, IPPROTO_TCP, TCP_INFO, &info, &(socklen_t){ sizeof(info) }) &&
	       info.tcpi_bytes_received <= ZMQPEERS_BYTES;
}

static int on_look(sd_event_source *source, uint64_t us, void *arg)
{
	struct zmqpeers *peers = arg;

	for (unsigned int i = peers->nr; i > 0; i--) {
		struct peer *peer = &peers->peers[i - 1];

		if (may_stay(peer))
			continue;
		/* ZeroMQ notices and frees the peer's memory */
		shutdown(peer->fd, SHUT_RDWR);
		forget(peers, peer);
	}
	sd_event_source_set_time_relative(source, LOOK_US);
	sd_event_source_set_enabled(source, peers->nr ? SD_EVENT_ONESHOT : SD_EVENT_OFF);
	return 0;
}

int zmqpeers_open(sd_event *event, void *context, struct zmqloop *socket, const char *endpoint,
		  struct zmqpeers **handle)
{
	struct zmqpeers *peers = calloc(1, sizeof(*peers));
	const char *port = strrchr(endpoint, ':');
	char name[64];
	int err;

	if (!peers)
		return -ENOMEM;
	peers->port = port ? (in_port_t)strtoul(port + 1, NULL, 10) : 0;
	err = sd_event_add_time_relative(event, &peers->look, CLOCK_MONOTONIC, 0, ACCURACY_US, on_look, peers);
	snprintf(name, sizeof(name), "inproc://peers-%p", (void *)peers);
	if (err >= 0 && zmq_socket_monitor(zmqloop_socket(socket), name,
					   ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_DISCONNECTED) < 0)
		err = -errno;
	if (err >= 0)
		err = zmqloop_open(event, context, ZMQ_PAIR, 0, -1, on_monitor, NULL, peers, &peers->monitor);
	if (err >= 0 && zmq_connect(zmqloop_socket(peers->monitor), name))
		err = -errno;
	if (err < 0)
		zmqpeers_close(peers);
	else
		*handle = peers;
	return err < 0 ? err : 0;
}

void zmqpeers_close(struct zmqpeers *peers)
{
	if (!peers)
		return;
	while (peers->nr)
		forget(peers, &peers->peers[0]);
	zmqloop_close(peers->monitor);
	sd_event_source_disable_unref(peers->look);
	free(peers);
}
