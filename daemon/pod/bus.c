// SPDX-License-Identifier: MIT
/* Sockets to the other nodes, see bus.h. */
#include <errno.h>
#include <stdlib.h>
#include <zmq.h>

#include "common/clock.h"
#include "kv_events/zmq_loop.h"
#include "kv_events/zmq_peers.h"
#include "log/log.h"
#include "pod/bus.h"

#define TELL_SECONDS	60	/* least time between two lines about a peer */
#define REQUEST_BYTES	256	/* a subscription */
/* More than a message has, because ZeroMQ ends a connection for good after a longer frame. */
#define FRAME_BYTES	(64ll << 10)

/**
 * struct peer - another node
 * @bus: the bus
 * @endpoint: endpoint of the node's kvblkd
 * @sub: subscription
 * @refused: messages refused since the last line about them
 * @told: time of the last line about refused messages, seconds
 */
struct peer {
	struct bus *bus;
	const char *endpoint;
	struct zmqloop *sub;
	uint64_t refused;
	int64_t told;
};

/**
 * struct bus - connections to the other nodes
 * @fn: callback for messages
 * @arg: argument of @fn
 * @context: context of ZeroMQ
 * @pub: socket for the messages of this host
 * @pub_peers: limits @pub's peers, because ZeroMQ stores their topics
 * @nr: entries of @peers
 */
struct bus {
	bus_fn *fn;
	void *arg;
	void *context;
	struct zmqloop *pub;
	struct zmqpeers *pub_peers;
	size_t nr;
	struct peer peers[];
};

static void refuse(struct peer *peer)
{
	int64_t now = clock_s();

	peer->refused++;
	if (peer->told && now - peer->told < TELL_SECONDS)
		return;
	log_line(LOG_LINE_WARNING, "pod: peer %s sent %llu messages of an unknown form; messages ignored",
		 peer->endpoint, (unsigned long long)peer->refused);
	peer->refused = 0;
	peer->told = now;
}

static void on_message(void *arg, void *frames, size_t nr)
{
	zmq_msg_t *topic = frames, *body = topic + 1;
	struct peer *peer = arg;
	struct bus *bus = peer->bus;

	if (nr != 2 || zmq_msg_size(topic) != BUS_TOPIC ||
	    !bus->fn(bus->arg, (unsigned int)(peer - bus->peers), zmq_msg_data(topic),
		     zmq_msg_data(body), zmq_msg_size(body)))
		refuse(peer);
}

/*
 * Detect a peer whose host has died, within 20 seconds instead of the system's two hours, or else
 * nothing connects to the host when it is up again. ZeroMQ's heartbeats would add to the bytes that
 * zmq_peers.h limits.
 */
static int keep_alive(struct zmqloop *loop)
{
	static const struct {
		int option;
		int value;
	} options[] = {
		{ ZMQ_TCP_KEEPALIVE, 1 },
		{ ZMQ_TCP_KEEPALIVE_IDLE, 5 },
		{ ZMQ_TCP_KEEPALIVE_INTVL, 5 },
		{ ZMQ_TCP_KEEPALIVE_CNT, 3 },
	};

	for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
		if (zmq_setsockopt(zmqloop_socket(loop), options[i].option, &options[i].value,
				   sizeof(int)))
			return -errno;
	}
	return 0;
}

static int open_peer(sd_event *event, struct bus *bus, const char *endpoint)
{
	struct peer *peer = &bus->peers[bus->nr];
	int err;

	*peer = (struct peer){ .bus = bus, .endpoint = endpoint };
	err = zmqloop_open(event, bus->context, ZMQ_SUB, BUS_QUEUED, FRAME_BYTES, on_message, NULL,
			   peer, &peer->sub);
	if (err)
		return err;
	bus->nr++;
	err = keep_alive(peer->sub);
	if (!err && zmq_connect(zmqloop_socket(peer->sub), endpoint))
		err = -errno;
	return err;
}

static int open_parts(sd_event *event, struct bus *bus, const struct config_peers *config)
{
	int err;

	bus->context = zmq_ctx_new();
	if (!bus->context)
		return -ENOMEM;
	/* a socket for each peer, and some of ZeroMQ's own */
	zmq_ctx_set(bus->context, ZMQ_MAX_SOCKETS, (int)config->peers.nr + 16);
	err = zmqloop_open(event, bus->context, ZMQ_PUB, BUS_QUEUED, REQUEST_BYTES, NULL, NULL, NULL,
			   &bus->pub);
	if (!err)
		err = keep_alive(bus->pub);
	if (!err)
		err = zmqpeers_open(event, bus->context, bus->pub, config->listen, &bus->pub_peers);
	if (!err && zmq_bind(zmqloop_socket(bus->pub), config->listen))
		err = -errno;
	for (size_t i = 0; i < config->peers.nr && !err; i++)
		err = open_peer(event, bus, config->peers.text[i]);
	return err;
}

int bus_open(sd_event *event, const struct config_peers *config, bus_fn *fn, void *arg,
	     struct bus **handle)
{
	struct bus *bus = calloc(1, sizeof(*bus) + config->peers.nr * sizeof(bus->peers[0]));
	int err;

	if (!bus)
		return -ENOMEM;
	bus->fn = fn;
	bus->arg = arg;
	err = open_parts(event, bus, config);
	if (err)
		bus_close(bus);
	else
		*handle = bus;
	return err;
}

void bus_close(struct bus *bus)
{
	if (!bus)
		return;
	for (size_t i = 0; i < bus->nr; i++)
		zmqloop_close(bus->peers[i].sub);
	zmqloop_close(bus->pub);
	zmqpeers_close(bus->pub_peers);
	if (bus->context)
		zmq_ctx_term(bus->context);
	free(bus);
}

void bus_subscribe(struct bus *bus, const uint8_t topic[BUS_TOPIC], bool on)
{
	int option = on ? ZMQ_SUBSCRIBE : ZMQ_UNSUBSCRIBE;

	for (size_t i = 0; i < bus->nr; i++)
		zmq_setsockopt(zmqloop_socket(bus->peers[i].sub), option, topic, BUS_TOPIC);
}

void bus_publish(struct bus *bus, const uint8_t topic[BUS_TOPIC], const void *body, size_t len)
{
	void *socket = zmqloop_socket(bus->pub);

	if (zmq_send(socket, topic, BUS_TOPIC, ZMQ_DONTWAIT | ZMQ_SNDMORE) >= 0)
		zmq_send(socket, body, len, ZMQ_DONTWAIT);
}
