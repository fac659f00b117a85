/* SPDX-License-Identifier: MIT */
/*
 * Messages between the kvblkd of a pod's nodes, by ZeroMQ. A node publishes at one endpoint, and
 * subscribes at all peers to the topics that concern it, so that peers send nothing else. ZeroMQ
 * drops messages that a slow or missing peer does not take, so that no other peer waits.
 */
#ifndef KVBLKD_POD_BUS_H
#define KVBLKD_POD_BUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <systemd/sd-event.h>

#include "config/config.h"

#define BUS_TOPIC	24	/* bytes of a topic */
#define BUS_QUEUED	256	/* messages for or from a peer: as touched-get has at most */

struct bus;

/**
 * bus_fn() - take a message
 * @arg: argument of bus_open()
 * @peer: number of the peer that sent it, below &struct config_peers.peers.nr
 * @topic: topic
 * @body: body
 * @len: length of @body, bytes
 *
 * Return: false if the message has an unknown form: the peer is logged.
 */
typedef bool bus_fn(void *arg, unsigned int peer, const uint8_t topic[BUS_TOPIC], const void *body,
		    size_t len);

/**
 * bus_open() - publish at an endpoint, and connect to the peers
 * @event: the loop
 * @config: endpoints; must outlive the bus
 * @fn: callback for messages
 * @arg: argument of @fn
 * @bus: set on success
 *
 * Return: 0 or a negative errno.
 */
int bus_open(sd_event *event, const struct config_peers *config, bus_fn *fn, void *arg,
	     struct bus **bus);

/* Close the sockets and drop unsent messages. NULL is ignored. */
void bus_close(struct bus *bus);

/* Subscribe to a topic at all peers, or end that. */
void bus_subscribe(struct bus *bus, const uint8_t topic[BUS_TOPIC], bool on);

/* Send a message to the peers that subscribe to @topic. It may be lost. */
void bus_publish(struct bus *bus, const uint8_t topic[BUS_TOPIC], const void *body, size_t len);

#endif
