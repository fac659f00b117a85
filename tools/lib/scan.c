// SPDX-License-Identifier: MIT
/*
 * Superblocks on this host's block devices.
 *
 * Read past the page cache, which does not see what the module writes. The check
 * sum is computed bit by bit: that takes a millisecond a device, and no library
 * that the others need anyway has CRC32C.
 */
#include <dirent.h>
#include <endian.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <linux/kvblk_media.h>

#include "lib.h"

#define BLOCK_DIR	"/sys/class/block"

static uint32_t crc32c(uint32_t crc, const uint8_t *bytes, size_t len)
{
	while (len--) {
		crc ^= *bytes++;
		for (int i = 0; i < 8; i++)
			crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78 : 0);
	}
	return crc;
}

static bool super_valid(const struct kvblk_d_super *sb)
{
	static const uint8_t zeroes[sizeof(sb->crc)];
	size_t hole = offsetof(struct kvblk_d_super, crc);
	const uint8_t *bytes = (const void *)sb;
	uint32_t crc;

	if (le64toh(sb->magic) != KVBLK_SB_MAGIC)
		return false;
	crc = crc32c(~0u, bytes, hole);
	crc = crc32c(crc, zeroes, sizeof(zeroes));
	hole += sizeof(sb->crc);
	return le32toh(sb->crc) == (uint32_t)~crc32c(crc, bytes + hole, sizeof(*sb) - hole);
}

/* A name on media as one to print. */
static void take_name(char *to, const uint8_t *from, size_t size)
{
	memcpy(to, from, size);
	to[size - 1] = '\0';
	for (; *to; to++) {
		if (*to < ' ' || *to > '~')
			*to = '?';
	}
}

static struct kvblk_found *found_new(const char *path, const struct kvblk_d_super *sb)
{
	struct kvblk_found *found = calloc(1, sizeof(*found));

	if (!found)
		return NULL;
	found->path = strdup(path);
	if (!found->path) {
		free(found);
		return NULL;
	}
	found->other_version = le16toh(sb->version) != KVBLK_FORMAT_VERSION;
	if (found->other_version)
		return found;
	take_name(found->pool, sb->pool_name, sizeof(found->pool));
	take_name(found->owner, sb->owner, sizeof(found->owner));
	memcpy(found->pool_uuid, sb->pool_uuid, sizeof(found->pool_uuid));
	memcpy(found->uuid, sb->member_uuid, sizeof(found->uuid));
	found->epoch = le64toh(sb->epoch);
	found->roster_seq = le64toh(sb->list_seq);
	found->clean = le16toh(sb->state) == KVBLK_SB_CLEAN;
	found->nr_members = le32toh(sb->nr_members);
	for (uint32_t i = 0; i < found->nr_members; i++) {
		memcpy(found->members[i].uuid, sb->members[i].uuid,
		       sizeof(found->members[i].uuid));
		take_name(found->members[i].name, sb->members[i].name,
			  sizeof(found->members[i].name));
	}
	return found;
}

/* The member at @path; NULL: there is none, or *@err. */
static struct kvblk_found *look(const char *path, struct kvblk_d_super *copies, int *err)
{
	const struct kvblk_d_super *sb = NULL;
	struct kvblk_found *found;
	ssize_t len = -1;
	int fd;

	*err = 0;
	/* neither a tray nor a carrier is waited for */
	fd = open(path, O_RDONLY | O_DIRECT | O_NONBLOCK | O_CLOEXEC);
	if (fd >= 0)
		len = pread(fd, copies, 2 * sizeof(*copies), 0);
	if (len < 0)
		*err = -errno;
	if (fd >= 0)
		close(fd);
	if (len < 0)
		return NULL;
	for (int i = 0; i < 2; i++) {
		if (len < (ssize_t)((i + 1) * sizeof(*copies)) || !super_valid(&copies[i]))
			continue;
		/* as the module sees it: one such copy makes the member so */
		if (le16toh(copies[i].version) != KVBLK_FORMAT_VERSION) {
			sb = &copies[i];
			break;
		}
		if (le32toh(copies[i].nr_members) <= KVBLK_SB_MEMBERS &&
		    (!sb || le64toh(copies[i].seq) > le64toh(sb->seq)))
			sb = &copies[i];
	}
	if (!sb)
		return NULL;
	found = found_new(path, sb);
	if (!found)
		*err = -ENOMEM;
	return found;
}

/* Another device is made of this one: that is the one to take. */
static bool is_held(const char *name)
{
	char path[512];
	struct dirent *entry;
	bool held = false;
	DIR *dir;

	snprintf(path, sizeof(path), BLOCK_DIR "/%s/holders", name);
	dir = opendir(path);
	while (dir && !held && (entry = readdir(dir)))
		held = entry->d_name[0] != '.';
	if (dir)
		closedir(dir);
	return held;
}

static int by_path(const struct dirent **a, const struct dirent **b)
{
	return strverscmp((*a)->d_name, (*b)->d_name);
}

static int not_hidden(const struct dirent *entry)
{
	return entry->d_name[0] != '.';
}

/* The device of this name, where programs look for it. */
static void device_path(const char *name, char *path, size_t size)
{
	char file[512], mapped[256] = "";
	FILE *in;

	snprintf(file, sizeof(file), BLOCK_DIR "/%s/dm/name", name);
	in = fopen(file, "re");
	if (in) {
		if (fscanf(in, "%255s", mapped) != 1)
			mapped[0] = '\0';
		fclose(in);
	}
	if (mapped[0])
		snprintf(path, size, "/dev/mapper/%s", mapped);
	else
		snprintf(path, size, "/dev/%s", name);
	/* as in /sys, where a name has no slash */
	for (char *c = path; (c = strchr(c, '!'));)
		*c = '/';
}

static int scan_all(struct kvblk_d_super *copies, struct kvblk_found **last)
{
	int nr, err = 0, denied = 0, seen = 0;
	struct kvblk_found *found;
	struct dirent **names;
	char path[512];

	nr = scandir(BLOCK_DIR, &names, not_hidden, by_path);
	if (nr < 0)
		return -errno;
	for (int i = 0; i < nr; i++) {
		if (!err && !is_held(names[i]->d_name)) {
			device_path(names[i]->d_name, path, sizeof(path));
			found = look(path, copies, &err);
			seen++;
			denied += err == -EACCES;
			if (found) {
				*last = found;
				last = &found->next;
			}
			/* what can't be read is no member that can be taken */
			if (err != -ENOMEM)
				err = 0;
		}
		free(names[i]);
	}
	free(names);
	return err ?: seen && denied == seen ? -EACCES : 0;
}

int kvblk_scan(const char *const *paths, size_t nr_paths, struct kvblk_found **list)
{
	struct kvblk_found *first = NULL, **last = &first, *found;
	struct kvblk_d_super *copies;
	int err = 0;

	*list = NULL;
	if (posix_memalign((void **)&copies, 4096, 2 * sizeof(*copies)))
		return -ENOMEM;
	if (!paths)
		err = scan_all(copies, last);
	for (size_t i = 0; paths && i < nr_paths && !err; i++) {
		found = look(paths[i], copies, &err);
		if (found) {
			*last = found;
			last = &found->next;
		}
	}
	free(copies);
	if (err)
		kvblk_scan_free(first);
	else
		*list = first;
	return err;
}

void kvblk_scan_free(struct kvblk_found *list)
{
	struct kvblk_found *next;

	for (; list; list = next) {
		next = list->next;
		free(list->path);
		free(list);
	}
}
