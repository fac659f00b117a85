/* SPDX-License-Identifier: MIT */
/*
 * Messages between the kvblkd of a pod's nodes, of two frames:
 *   topic   24 bytes: "kvblkt", two decimal digits of the version, the uuid of the owner's pool
 *   ids     16 bytes for each of 1 to 1024 blocks, as touched-get of the module returns them
 * An owner subscribes to the topics of the owner's pools. Another version has another topic.
 */
#ifndef KVBLKD_POD_TOUCH_WIRE_H
#define KVBLKD_POD_TOUCH_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TOUCHWIRE_TOPIC	24
#define TOUCHWIRE_ID	16
#define TOUCHWIRE_IDS	1024

/**
 * struct touchwire - a message
 * @pool: uuid of the owner's pool
 * @ids: ids of blocks
 * @nr: number of ids
 */
struct touchwire {
	const uint8_t *pool;
	const void *ids;
	size_t nr;
};

/* Write the topic of the pool with @uuid. */
void touchwire_topic(const uint8_t uuid[16], uint8_t topic[TOUCHWIRE_TOPIC]);

/* Parse two frames, which must outlive @message. Returns false if they are no touches. */
bool touchwire_read(const void *topic, size_t topic_len, const void *ids, size_t ids_len,
		    struct touchwire *message);

#endif
