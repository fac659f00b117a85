// SPDX-License-Identifier: MIT
/* Format of the directory, see directory_wire.h. */
#include <endian.h>
#include <string.h>

#include "pod/directory_wire.h"

#define PREFIX_BYTES	3
#define POD_BYTES	8
#define CRC_POLYNOMIAL	0x1021u	/* CRC-16/XMODEM */

_Static_assert(PREFIX_BYTES + POD_BYTES + 16 == DIRWIRE_KEY, "a key has no other bytes");
_Static_assert(PREFIX_BYTES + 16 == DIRWIRE_NODES_KEY, "a key has no other bytes");
_Static_assert(8 + 4 + 16 == DIRWIRE_VALUE, "a value has no other bytes");

static const char anchor_prefix[PREFIX_BYTES] = { 'k', 'v', 'a' };
static const char nodes_prefix[PREFIX_BYTES] = { 'k', 'v', 'n' };

void dirwire_key(const uint8_t pod[16], const uint8_t id[16], char key[DIRWIRE_KEY])
{
	memcpy(key, anchor_prefix, PREFIX_BYTES);
	memcpy(key + PREFIX_BYTES, pod, POD_BYTES);
	memcpy(key + PREFIX_BYTES + POD_BYTES, id, 16);
}

void dirwire_value(const struct kvblk_anchor *anchor, char value[DIRWIRE_VALUE])
{
	uint64_t generation = htole64(anchor->generation);
	uint32_t segment = htole32(anchor->segment);

	memcpy(value, &generation, 8);
	memcpy(value + 8, &segment, 4);
	memcpy(value + 12, anchor->member, 16);
}

bool dirwire_read(const char *value, size_t len, struct kvblk_anchor *anchor)
{
	uint64_t generation;
	uint32_t segment;

	if (len != DIRWIRE_VALUE)
		return false;
	memcpy(&generation, value, 8);
	memcpy(&segment, value + 8, 4);
	memcpy(anchor->member, value + 12, 16);
	anchor->generation = le64toh(generation);
	anchor->segment = le32toh(segment);
	anchor->reserved = 0;
	return true;
}

void dirwire_nodes_key(const uint8_t pod[16], char key[DIRWIRE_NODES_KEY])
{
	memcpy(key, nodes_prefix, PREFIX_BYTES);
	memcpy(key + PREFIX_BYTES, pod, 16);
}

bool dirwire_read_node(const char *text, size_t len, struct directory_node *node)
{
	if (len <= 16 || len - 16 >= DIRECTORY_ENDPOINT)
		return false;
	for (size_t i = 16; i < len; i++) {
		if (text[i] <= ' ' || text[i] > '~')
			return false;
	}
	memcpy(node->id, text, 16);
	memcpy(node->endpoint, text + 16, len - 16);
	node->endpoint[len - 16] = '\0';
	return true;
}

unsigned int dirwire_slot(const char *key, size_t len)
{
	const char *open = memchr(key, '{', len), *close;
	unsigned int crc = 0;

	/* only a tag in braces counts, if there is one; ids may contain braces by chance */
	close = open ? memchr(open, '}', len - (size_t)(open - key)) : NULL;
	if (close && close > open + 1) {
		key = open + 1;
		len = (size_t)(close - key);
	}
	for (size_t i = 0; i < len; i++) {
		crc ^= (unsigned int)(uint8_t)key[i] << 8;
		for (int bit = 0; bit < 8; bit++)
			crc = crc & 0x8000 ? crc << 1 ^ CRC_POLYNOMIAL : crc << 1;
		crc &= 0xffff;
	}
	return crc % DIRWIRE_SLOTS;
}
