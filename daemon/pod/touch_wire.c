// SPDX-License-Identifier: MIT
/* The messages' format, see touch_wire.h. */
#include <string.h>

#include "pod/touch_wire.h"

#define MAGIC		"kvblkt01"
#define MAGIC_LEN	(sizeof(MAGIC) - 1)

_Static_assert(MAGIC_LEN + 16 == TOUCHWIRE_TOPIC, "a topic has no other bytes");

void touchwire_topic(const uint8_t uuid[16], uint8_t topic[TOUCHWIRE_TOPIC])
{
	memcpy(topic, MAGIC, MAGIC_LEN);
	memcpy(topic + MAGIC_LEN, uuid, 16);
}

bool touchwire_read(const void *topic, size_t topic_len, const void *ids, size_t ids_len,
		    struct touchwire *message)
{
	if (topic_len != TOUCHWIRE_TOPIC || memcmp(topic, MAGIC, MAGIC_LEN) != 0 || !ids_len ||
	    ids_len % TOUCHWIRE_ID || ids_len > TOUCHWIRE_IDS * TOUCHWIRE_ID)
		return false;
	message->pool = (const uint8_t *)topic + MAGIC_LEN;
	message->ids = ids;
	message->nr = ids_len / TOUCHWIRE_ID;
	return true;
}
