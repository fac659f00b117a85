// SPDX-License-Identifier: MIT
/*
 * Finds superblocks on this host's block devices. All devices are read at once, so that
 * one that does not respond costs seconds, not its driver's timeout of minutes. The two
 * copies of a superblock are read in turn, and one valid copy is enough.
 *
 * Reads bypass the page cache, which does not see the module's writes. The bitwise CRC32C
 * takes a millisecond a device, and avoids a dependency on another library.
 */
#include <dirent.h>
#include <endian.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <liburing.h>
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

/* Make text from media printable. */
static void clean_text(char *text, size_t size)
{
	text[size - 1] = '\0';
	for (; *text; text++) {
		if (*text < ' ' || *text > '~')
			*text = '?';
	}
}

static void take_name(char *to, const uint8_t *from, size_t size)
{
	memcpy(to, from, size);
	clean_text(to, size);
}

/* Allocate an entry with its path behind it, so that one free() suffices. */
static struct kvblk_found *found_at(const char *path)
{
	size_t len = strlen(path) + 1;
	struct kvblk_found *found = calloc(1, sizeof(*found) + len);

	if (found)
		found->path = memcpy(found + 1, path, len);
	return found;
}

static struct kvblk_found *found_silent(const char *path)
{
	struct kvblk_found *found = found_at(path);

	if (found)
		found->silent = true;
	return found;
}

/* Check whether other data was written to @place, over the first copy. Uses the module's rule. */
static bool given_away(const struct kvblk_d_super *place, const struct kvblk_d_super *second)
{
	static const size_t damage[] = { 512, 4096, sizeof(*second) };
	const char *bytes = (const char *)place, *own = (const char *)second;

	if (le64toh(place->magic) == KVBLK_SB_MAGIC)
		return false;
	for (size_t i = 0; i < sizeof(damage) / sizeof(damage[0]); i++) {
		size_t zeroes = 0;

		while (zeroes < damage[i] && !bytes[zeroes])
			zeroes++;
		if (zeroes == damage[i] &&
		    !memcmp(bytes + zeroes, own + zeroes, sizeof(*second) - zeroes))
			return false;
	}
	return true;
}

_Static_assert(sizeof(((struct kvblk_found *)0)->tenants) ==
	       KVBLK_SB_TENANTS * sizeof(((struct kvblk_found *)0)->tenants[0]),
	       "struct kvblk_found has room for each tenant of a superblock");

static void take_tenants(struct kvblk_found *found, const struct kvblk_d_super *sb)
{
	const struct kvblk_d_tenant *entry = sb->tenants;

	for (; entry < sb->tenants + KVBLK_SB_TENANTS; entry++) {
		if (!entry->flags)
			continue;
		take_name(found->tenants[found->nr_tenants].name, entry->name, sizeof(entry->name));
		found->tenants[found->nr_tenants].id = le16toh(entry->id);
		found->tenants[found->nr_tenants++].encrypted =
			le16toh(entry->flags) & KVBLK_TENANTF_ENCRYPTED;
	}
}

static struct kvblk_found *found_new(const char *path, const struct kvblk_d_super *sb)
{
	struct kvblk_found *found = found_at(path);

	if (!found)
		return NULL;
	found->other_version = le16toh(sb->version) != KVBLK_FORMAT_VERSION;
	if (found->other_version)
		return found;
	take_name(found->pool, sb->pool_name, sizeof(found->pool));
	take_name(found->owner, sb->owner, sizeof(found->owner));
	memcpy(found->pool_uuid, sb->pool_uuid, sizeof(found->pool_uuid));
	memcpy(found->uuid, sb->member_uuid, sizeof(found->uuid));
	memcpy(found->node, sb->node, sizeof(found->node));
	if (le32toh(sb->ro_compat) & KVBLK_SB_RO_POD) {
		take_name(found->pod, sb->pod_name, sizeof(found->pod));
		memcpy(found->pod_uuid, sb->pod_uuid, sizeof(found->pod_uuid));
	}
	found->epoch = le64toh(sb->epoch);
	found->roster_seq = le64toh(sb->list_seq);
	found->seq = le64toh(sb->seq);
	found->clean = le16toh(sb->state) == KVBLK_SB_CLEAN;
	found->nr_members = le32toh(sb->nr_members);
	found->data_start = le64toh(sb->data_start);
	found->data_end = found->data_start +
			  (uint64_t)le32toh(sb->nr_segments) * le32toh(sb->segment_units) * 4096;
	for (uint32_t i = 0; i < found->nr_members; i++) {
		memcpy(found->members[i].uuid, sb->members[i].uuid,
		       sizeof(found->members[i].uuid));
		take_name(found->members[i].name, sb->members[i].name,
			  sizeof(found->members[i].name));
		for (int part = 0; part < KVBLK_SB_PLACE_PARTS; part++)
			memcpy(found->places[i] + (size_t)part * KVBLK_SB_PLACE_PART,
			       sb->places[i].parts[part].text, KVBLK_SB_PLACE_PART);
		clean_text(found->places[i], sizeof(found->places[i]));
	}
	take_tenants(found, sb);
	return found;
}

/*
 * Report the superblock of @path, given its two copies and the @bytes read of each.
 * Returns NULL if there is none, or on an error in *@err.
 */
static struct kvblk_found *look(const char *path, const struct kvblk_d_super *copies,
				const int bytes[2], int *err)
{
	const struct kvblk_d_super *sb = NULL;
	struct kvblk_found *found;

	for (int i = 0; i < 2; i++) {
		if (bytes[i] != (int)sizeof(*copies) || !super_valid(&copies[i]))
			continue;
		/* as in the module, one copy of another version decides */
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
	else
		found->former = sb == &copies[1] && !super_valid(&copies[0]) &&
				given_away(&copies[0], sb);
	return found;
}


/* Devices to read at once, and the time limit for all of them together. */
#define AT_ONCE		64
#define PATIENCE_MS	5000

/* Interval at which to retry a device whose queue is full. */
#define AGAIN_NS	5000000

/* Length of the first read, which probes whether the device responds. */
#define PROBE_BYTES	4096

/* Attempts before a failing read is given up. */
#define READ_TRIES	3

/* Reads of a candidate, in order. */
enum step {
	STEP_PROBE,
	STEP_COPY_A,
	STEP_COPY_B,
	STEP_DONE,
};

/**
 * struct candidate - a device that may be a member
 * @path: path of the device
 * @copies: buffers for the two superblock copies; a late read may still write to them
 * @bytes: bytes read of each copy, or a negative errno
 * @fd: descriptor of the device, or negative
 * @res: 0 or a negative errno
 * @step: next read, or the read in flight
 * @tries: failed attempts of @step
 * @ask: the read of @step is to be submitted
 * @late: the read of @step is in flight
 */
struct candidate {
	char *path;
	struct kvblk_d_super *copies;
	int bytes[2];
	int fd;
	int res;
	enum step step;
	unsigned int tries;
	bool ask;
	bool late;
};

#define COPY_BYTES	sizeof(struct kvblk_d_super)
#define COPIES_BYTES	(2 * COPY_BYTES)

/*
 * The probe uses RWF_NOWAIT, because a read that waits for space in the device's queue
 * cannot be killed and would block this process's exit. Larger reads cannot use it: the
 * driver may have to split them, and wait.
 */
static void ask(struct io_uring *ring, struct candidate *one)
{
	/* never NULL: each candidate has one read in flight at most */
	struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
	unsigned int copy = one->step == STEP_COPY_B;

	io_uring_prep_read(sqe, one->fd, one->copies + copy,
			   one->step == STEP_PROBE ? PROBE_BYTES : COPY_BYTES,
			   copy * COPY_BYTES);
	sqe->rw_flags = one->step == STEP_PROBE ? RWF_NOWAIT : 0;
	io_uring_sqe_set_data(sqe, one);
	one->ask = false;
	one->late = true;
}

static void take_answer(struct candidate *one, int res)
{
	one->late = false;
	one->ask = true;
	if (res == -ETIMEDOUT) {
		one->res = res;
		one->ask = false;
	} else if (one->step == STEP_PROBE) {
		/* an error is a response, too; some drivers do not support RWF_NOWAIT */
		if (res != -EAGAIN)
			one->step = STEP_COPY_A;
	} else if (res >= 0 || ++one->tries == READ_TRIES) {
		one->bytes[one->step - STEP_COPY_A] = res;
		one->tries = 0;
		one->step++;
		one->ask = one->step != STEP_DONE;
	}
}

static void read_by_ring(struct io_uring *ring, struct candidate *from, unsigned int nr)
{
	const int64_t end = now_ms() + PATIENCE_MS;
	bool waiting, in_time;

	do {
		struct __kernel_timespec tick = { .tv_nsec = AGAIN_NS };
		struct io_uring_cqe *cqe;

		/* completions of the last wait count, too */
		in_time = now_ms() < end;
		waiting = false;
		for (unsigned int i = 0; i < nr; i++) {
			waiting |= from[i].ask || from[i].late;
			if (from[i].ask)
				ask(ring, &from[i]);
		}
		if (waiting)
			io_uring_submit_and_wait_timeout(ring, &cqe, 1, &tick, NULL);
		while (!io_uring_peek_cqe(ring, &cqe)) {
			take_answer(io_uring_cqe_get_data(cqe), cqe->res);
			io_uring_cqe_seen(ring, cqe);
		}
	} while (waiting && in_time);
}

/* Read one device after the other, without io_uring. */
static void read_plainly(struct candidate *from, unsigned int nr)
{
	for (unsigned int i = 0; i < nr; i++) {
		struct candidate *one = &from[i];

		if (one->fd < 0)
			continue;
		one->step = STEP_COPY_A;
		while (one->ask) {
			unsigned int copy = one->step - STEP_COPY_A;
			ssize_t len = pread(one->fd, one->copies + copy, COPY_BYTES,
					    (off_t)(copy * COPY_BYTES));

			take_answer(one, len < 0 ? -errno : (int)len);
		}
	}
}

static int candidate_open(struct candidate *one)
{
	/* do not wait for a medium or carrier in open(); reads must block */
	one->fd = open(one->path, O_RDONLY | O_DIRECT | O_NONBLOCK | O_CLOEXEC);
	if (one->fd < 0) {
		one->res = -errno;
		return errno == EMFILE || errno == ENFILE ? -errno : 0;
	}
	fcntl(one->fd, F_SETFL, O_DIRECT);
	one->copies = mmap(NULL, COPIES_BYTES, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (one->copies == MAP_FAILED) {
		close(one->fd);
		one->fd = -1;
		return -ENOMEM;
	}
	one->ask = true;
	return 0;
}

/* Close a candidate. If it is a member, append it to the list at *@last. */
static int candidate_close(struct candidate *one, struct kvblk_found ***last)
{
	struct kvblk_found *found = NULL;
	int err = 0;

	if (one->fd < 0)
		return 0;
	close(one->fd);
	if (one->ask || one->late)
		one->res = -ETIMEDOUT;
	if (one->res == -ETIMEDOUT) {
		found = found_silent(one->path);
		if (!found)
			err = -ENOMEM;
	} else {
		found = look(one->path, one->copies, one->bytes, &err);
		/* report the error, because the unreadable copy may have been valid */
		for (int i = 0; i < 2 && !found; i++) {
			if (one->bytes[i] < 0)
				one->res = one->bytes[i];
		}
	}
	/* never free the buffer of a read in flight, or else it would overwrite reused memory */
	if (!one->late)
		munmap(one->copies, COPIES_BYTES);
	if (found) {
		**last = found;
		*last = &found->next;
	}
	return err;
}

/* Read up to AT_ONCE candidates, and append the members to the list at *@last. */
static int look_at(struct candidate *from, unsigned int nr, struct kvblk_found ***last)
{
	struct io_uring ring;
	int err = 0;

	for (unsigned int i = 0; i < nr; i++)
		from[i].fd = -1;
	for (unsigned int i = 0; i < nr && !err; i++)
		err = candidate_open(&from[i]);
	if (!err && !io_uring_queue_init(AT_ONCE, &ring, 0)) {
		read_by_ring(&ring, from, nr);
		io_uring_queue_exit(&ring);
	} else if (!err) {
		read_plainly(from, nr);
	}
	for (unsigned int i = 0; i < nr; i++)
		err = candidate_close(&from[i], last) ?: err;
	return err;
}

/* Check for a device on top (dm, md): that device is the one to use. */
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

/* Build the path of the device @name in /dev. */
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
	/* sysfs replaces '/' in names by '!' */
	for (char *c = path; (c = strchr(c, '!'));)
		*c = '/';
}

/* List all devices that no other device is built on. The caller frees the paths. */
static int candidates(struct candidate **list, unsigned int *nr)
{
	struct dirent **names;
	char path[512];
	int found;

	*nr = 0;
	found = scandir(BLOCK_DIR, &names, not_hidden, by_path);
	if (found < 0)
		return -errno;
	*list = calloc(found ?: 1, sizeof(**list));
	for (int i = 0; i < found; i++) {
		if (*list && !is_held(names[i]->d_name)) {
			device_path(names[i]->d_name, path, sizeof(path));
			(*list)[*nr].path = strdup(path);
			*nr += !!(*list)[*nr].path;
		}
		free(names[i]);
	}
	free(names);
	return *list ? 0 : -ENOMEM;
}

static int scan_all(struct kvblk_found **last)
{
	unsigned int nr, denied = 0;
	struct candidate *list = NULL;
	int err;

	err = candidates(&list, &nr);
	for (unsigned int i = 0; i < nr; i++) {
		if (i % AT_ONCE == 0 && !err)
			err = look_at(&list[i], nr - i < AT_ONCE ? nr - i : AT_ONCE, &last);
		/* unreadable devices are skipped, unless all are */
		denied += list[i].res == -EACCES;
	}
	for (unsigned int i = 0; i < nr; i++)
		free(list[i].path);
	free(list);
	return err ?: nr && denied == nr ? -EACCES : 0;
}

static int scan_these(const char *const *paths, size_t nr, struct kvblk_found **last)
{
	int err = 0;

	for (size_t i = 0; i < nr && !err; i++) {
		struct candidate one = { .path = (char *)paths[i] };

		err = look_at(&one, 1, &last);
		if (!err && one.res < 0)
			err = one.res;
	}
	return err;
}

/* Mark the members of the host. Uses the module's rule. */
static void mark_own(struct kvblk_found *found)
{
	static const uint8_t unknown[16];
	char name[sizeof(found->owner)] = "";
	struct utsname host;
	uint8_t id[16];

	if (kvblk_host_id(id))
		memset(id, 0, sizeof(id));
	if (!uname(&host))
		take_name(name, (const uint8_t *)host.nodename, sizeof(name));
	for (; found; found = found->next) {
		if (found->silent || found->other_version)
			continue;
		if (memcmp(id, unknown, sizeof(id)) != 0 &&
		    memcmp(found->node, unknown, sizeof(id)) != 0)
			found->own = !memcmp(found->node, id, sizeof(id));
		else
			found->own = !strcmp(found->owner, name);
	}
}

int kvblk_scan(const char *const *paths, size_t nr_paths, struct kvblk_found **list)
{
	struct kvblk_found *first = NULL;
	int err;

	err = paths ? scan_these(paths, nr_paths, &first) : scan_all(&first);
	if (err)
		kvblk_list_free(first);
	else
		mark_own(first);
	*list = err ? NULL : first;
	return err;
}
