// SPDX-License-Identifier: MIT
/* The identity of the host as an owner of members. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "lib.h"

/* /etc/machine-id is the default */
#define NODE_FILE	"/var/lib/kvblk/node"

/* Read 16 bytes from hexadecimal digits in a file, such as machine-id or a uuid. */
static bool read_id(const char *path, uint8_t id[16])
{
	FILE *in = fopen(path, "re");
	unsigned int nr = 0;
	int c = 0;

	memset(id, 0, 16);
	while (in && nr < 32 && (c = fgetc(in)) != EOF) {
		if (c == '-')
			continue;
		if (!isxdigit(c))
			break;
		c = isdigit(c) ? c - '0' : tolower(c) - 'a' + 10;
		id[nr / 2] |= (uint8_t)(nr % 2 ? c : c << 4);
		nr++;
	}
	if (in)
		fclose(in);
	return nr == 32;
}

int kvblk_host_id(uint8_t id[16])
{
	return read_id(NODE_FILE, id) || read_id("/etc/machine-id", id) ? 0 : -ENOENT;
}
