/* SPDX-License-Identifier: MIT */
/*
 * Keys and values of the directory:
 *   "kva", first 8 bytes of the pod's uuid, id of the block -> generation (64 bits), segment (32 bits),
 *                                                              uuid of the member
 *   "kvn", uuid of the pod                                  -> sorted set of nodes, scored by the end of
 *                                                              their leases: node id, endpoint
 * Numbers are little-endian. A value of another length is of another version, and is skipped.
 */
#ifndef KVBLKD_POD_DIRECTORY_WIRE_H
#define KVBLKD_POD_DIRECTORY_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <linux/kvblk.h>

#include "pod/directory.h"

#define DIRWIRE_KEY		27u
#define DIRWIRE_VALUE		28u
#define DIRWIRE_NODES_KEY	19u
#define DIRWIRE_SLOTS		16384u	/* hash slots of a cluster */

/* Write the key of the block @id in the pod @pod. */
void dirwire_key(const uint8_t pod[16], const uint8_t id[16], char key[DIRWIRE_KEY]);

/* Write the value of @anchor. */
void dirwire_value(const struct kvblk_anchor *anchor, char value[DIRWIRE_VALUE]);

/* Parse a value into all fields of @anchor but the id. Returns false if it is of another version. */
bool dirwire_read(const char *value, size_t len, struct kvblk_anchor *anchor);

/* Write the key of the nodes of the pod @pod. */
void dirwire_nodes_key(const uint8_t pod[16], char key[DIRWIRE_NODES_KEY]);

/* Parse a node. Returns false unless the endpoint is of 1 to DIRECTORY_ENDPOINT - 1 printable characters. */
bool dirwire_read_node(const char *text, size_t len, struct directory_node *node);

/* Returns the hash slot of a key, as a cluster computes it. */
unsigned int dirwire_slot(const char *key, size_t len);

#endif
