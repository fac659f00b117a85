// SPDX-License-Identifier: MIT
/*
 * The place of a block device, as text that is valid across reboots. A kernel name is
 * not: after a reboot it may name another device.
 */
#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "lib.h"

/* Read the first line of @directory/@file without blanks around it. Returns false if empty. */
static bool read_line(const char *directory, const char *file, char *line, size_t size)
{
	char path[PATH_MAX + 64];
	char *from = line, *end;
	FILE *in;

	snprintf(path, sizeof(path), "%s/%s", directory, file);
	in = fopen(path, "re");
	if (!in)
		return false;
	if (!fgets(line, (int)size, in))
		line[0] = '\0';
	fclose(in);
	for (end = line + strlen(line); end > line && isspace((unsigned char)end[-1]); end--)
		;
	*end = '\0';
	from += strspn(line, " \t");
	memmove(line, from, strlen(from) + 1);
	return *line;
}

static void place_read(const char *directory, char place[KVBLK_PLACE_LEN_MAX + 1])
{
	static const char *const serials[][2] = {
		{ "wwid", "wwid" }, { "device/wwid", "wwid" }, { "device/serial", "serial" },
		{ "serial", "serial" }, { "dm/uuid", "dm uuid" }, { "dm/name", "dm" },
		{ "loop/backing_file", "loop" },
	};
	char line[KVBLK_PLACE_LEN_MAX + 1], nsid[16];
	const char *name = strrchr(directory, '/');

	snprintf(place, KVBLK_PLACE_LEN_MAX + 1, "device %s", name ? name + 1 : directory);
	/* an NQN has at most 223 characters */
	if (read_line(directory, "device/subsysnqn", line, sizeof(line)) &&
	    read_line(directory, "nsid", nsid, sizeof(nsid))) {
		snprintf(place, KVBLK_PLACE_LEN_MAX + 1, "%.223s nsid %.10s", line, nsid);
	} else {
		for (size_t i = 0; i < sizeof(serials) / sizeof(serials[0]); i++) {
			if (!read_line(directory, serials[i][0], line, sizeof(line)))
				continue;
			snprintf(place, KVBLK_PLACE_LEN_MAX + 1, "%s %.220s", serials[i][1], line);
			break;
		}
	}
	for (; *place; place++) {
		if (*place < ' ' || *place > '~')
			*place = '?';
	}
}

void kvblk_place_of(const char *path, char place[KVBLK_PLACE_LEN_MAX + 1])
{
	char link[64], directory[PATH_MAX], file[PATH_MAX + 16], partition[16];
	struct stat st;
	size_t len;

	*place = '\0';
	if (stat(path, &st) || !S_ISBLK(st.st_mode))
		return;
	snprintf(link, sizeof(link), "/sys/dev/block/%u:%u", major(st.st_rdev), minor(st.st_rdev));
	if (!realpath(link, directory))
		return;
	snprintf(file, sizeof(file), "%s/..", directory);
	if (!read_line(directory, "partition", partition, sizeof(partition))) {
		place_read(directory, place);
	} else if (realpath(file, directory)) {
		place_read(directory, place);
		len = strlen(place);
		snprintf(place + len, KVBLK_PLACE_LEN_MAX + 1 - len, " partition %.4s", partition);
	}
}
