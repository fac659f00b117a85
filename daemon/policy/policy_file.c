// SPDX-License-Identifier: MIT
/* The policy's files, see policy_file.h. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/jsonl.h"
#include "policy/policy_file.h"

#define VERSION	1

/**
 * struct policy_file - the directory of the files
 * @dir: descriptor of the directory
 * @lock: descriptor of the lock file
 * @group: group that may read the files; -1: the owner only
 * @decisions: array of the last decisions
 */
struct policy_file {
	int dir;
	int lock;
	gid_t group;
	json_t *decisions;
};

static int finish(int dir, const char *name, const char *next, FILE *to, bool whole)
{
	whole &= !fclose(to);
	if (whole && !renameat(dir, next, dir, name))
		return 0;
	unlinkat(dir, next, 0);
	return -EIO;
}

/* Set the readers of @fd, whatever the umask: the group, or else the owner only. Returns 0 or -1. */
static int restrict_readers(const struct policy_file *file, int fd)
{
	const bool given = file->group != (gid_t)-1 && !fchown(fd, (uid_t)-1, file->group);

	return fchmod(fd, given ? 0640 : 0600);
}

/* Open the file @next for writing. Returns NULL with errno set after a failure. */
static FILE *start(const struct policy_file *file, const char *next)
{
	int fd = openat(file->dir, next, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	FILE *to = NULL;

	/* before a byte is written, because an interrupted daemon may have left the file */
	if (fd >= 0 && !restrict_readers(file, fd))
		to = fdopen(fd, "w");
	if (fd >= 0 && !to)
		close(fd);
	return to;
}

/* Set the readers of a file that an earlier daemon left. Returns 0 or -1. */
static int restrict_left(const struct policy_file *file, const char *name)
{
	int fd = openat(file->dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	int ret;

	if (fd < 0)
		return errno == ENOENT ? 0 : -1;
	ret = restrict_readers(file, fd);
	close(fd);
	return ret;
}

static json_t *load(int dir, const char *name)
{
	int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
	json_t *json;

	if (fd < 0)
		return NULL;
	json = json_loadfd(fd, JSON_REJECT_DUPLICATES, NULL);
	close(fd);
	return json;
}

int policy_file_open(struct policy_file **where, const char *dir, gid_t group)
{
	struct policy_file *file = calloc(1, sizeof(*file));
	int err = 0;

	if (!file)
		return -ENOMEM;
	mkdir(dir, 0755);
	file->lock = -1;
	file->group = group;
	file->dir = open(dir, O_DIRECTORY | O_CLOEXEC);
	if (file->dir >= 0)
		file->lock = openat(file->dir, POLICY_LOCK, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (file->lock < 0 || flock(file->lock, LOCK_EX | LOCK_NB))
		err = errno == EWOULDBLOCK ? -EBUSY : -errno;
	else if (restrict_readers(file, file->lock) || restrict_left(file, POLICY_MEMORY) ||
		 restrict_left(file, POLICY_DECISIONS))
		err = -errno;
	if (!err) {
		file->decisions = json_lines_load(file->dir, POLICY_DECISIONS);
		err = file->decisions ? 0 : -ENOMEM;
	}
	if (err)
		policy_file_close(file);
	else
		*where = file;
	return err;
}

void policy_file_close(struct policy_file *file)
{
	if (!file)
		return;
	if (file->lock >= 0)
		close(file->lock);
	if (file->dir >= 0)
		close(file->dir);
	json_decref(file->decisions);
	free(file);
}

json_t *policy_pack_numbers(const unsigned int *numbers, size_t nr)
{
	json_t *array = json_array();

	for (size_t i = 0; i < nr; i++)
		json_array_append_new(array, json_integer(numbers[i]));
	return array;
}

static json_t *pack_memory(const struct policy_memory *m)
{
	json_t *flows = json_array();

	for (size_t i = 0; i < m->nr_flows; i++) {
		const struct policy_flow *flow = &m->flows[i];

		json_array_append_new(flows, json_pack("{s:s, s:f, s:f, s:f, s:f, s:f, s:b}",
			"name", flow->name, "written", flow->written,
			"reclaimed", flow->reclaimed, "rate", flow->rate,
			"write_peak", flow->write_peak, "reclaim_peak", flow->reclaim_peak,
			"short_of_room", flow->short_of_room));
	}
	return json_pack("{s:s, s:b, s:b, s:b, s:I, s:f, s:f, s:f, s:f, s:{s:f, s:f, s:f, s:f, s:b}, s:o, s:o, s:o, s:i, s:i, s:b, s:o}",
		"pool", m->pool, "governed", m->governed, "reserved", m->reserved,
		"hands", m->hands, "assembly", (json_int_t)m->assembly, "last_s", m->last_s,
		"written", m->written, "next_s", m->next_s, "stretch", m->stretch,
		"governor", "last_s", m->governor.last_s, "last_bytes", m->governor.last_bytes,
		"rate", m->governor.rate, "saved", m->governor.saved,
		"started", m->governor.started,
		"set", policy_pack_numbers(m->set, POLICY_TUNABLES),
		"bound", policy_pack_numbers(m->bound, POLICY_TUNABLES),
		"told_set", policy_pack_numbers(m->told_set, POLICY_LOW),
		"told", (int)m->told, "budget_told", (int)m->budget_told,
		"reserve_told", m->reserve_told, "flows", flows);
}

int policy_file_save(struct policy_file *file, const struct policy_memory *pools, size_t nr)
{
	static const char next[] = POLICY_MEMORY ".next";
	json_t *all = json_array(), *root;
	FILE *to;
	bool whole;

	for (size_t i = 0; i < nr; i++)
		json_array_append_new(all, pack_memory(&pools[i]));
	root = json_pack("{s:i, s:o}", "version", VERSION, "pools", all);
	to = root ? start(file, next) : NULL;
	if (!to) {
		/* before json_decref(), which may change errno */
		int err = root ? -errno : -ENOMEM;

		json_decref(root);
		return err;
	}
	whole = !json_dumpf(root, to, JSON_INDENT(1));
	json_decref(root);
	return finish(file->dir, POLICY_MEMORY, next, to, whole);
}

static bool unpack_numbers(json_t *array, unsigned int *numbers, size_t nr)
{
	json_int_t number;

	if (json_array_size(array) != nr)
		return false;
	for (size_t i = 0; i < nr; i++) {
		number = json_integer_value(json_array_get(array, i));
		if (!json_is_integer(json_array_get(array, i)) || number < 0 || number > 1000)
			return false;
		numbers[i] = (unsigned int)number;
	}
	return true;
}

static bool unpack_name(const char *text, char name[POLICY_NAME_LEN])
{
	size_t len = strlen(text);

	if (!len || len >= POLICY_NAME_LEN)
		return false;
	memcpy(name, text, len + 1);
	return true;
}

static bool unpack_flow(json_t *json, struct policy_flow *flow)
{
	const char *name;
	int alert;

	*flow = (struct policy_flow){ 0 };
	if (json_unpack(json, "{s:s, s:F, s:F, s:F, s:F, s:F, s:b}", "name", &name,
			"written", &flow->written, "reclaimed", &flow->reclaimed,
			"rate", &flow->rate, "write_peak", &flow->write_peak,
			"reclaim_peak", &flow->reclaim_peak, "short_of_room", &alert))
		return false;
	flow->short_of_room = alert;
	return unpack_name(name, flow->name);
}

static bool unpack_memory(json_t *json, struct policy_memory *m)
{
	int governed, reserved, hands, started, told, budget_told, reserve_told;
	json_t *set, *bound, *told_set, *flows;
	json_int_t assembly;
	const char *name;

	*m = (struct policy_memory){ .seen = true };
	if (json_unpack(json, "{s:s, s:b, s:b, s:b, s:I, s:F, s:F, s:F, s:F, s:{s:F, s:F, s:F, s:F, s:b}, s:o, s:o, s:o, s:i, s:i, s:b, s:o}",
			"pool", &name, "governed", &governed, "reserved", &reserved,
			"hands", &hands, "assembly", &assembly, "last_s", &m->last_s,
			"written", &m->written, "next_s", &m->next_s,
			"stretch", &m->stretch,
			"governor", "last_s", &m->governor.last_s,
			"last_bytes", &m->governor.last_bytes, "rate", &m->governor.rate,
			"saved", &m->governor.saved, "started", &started,
			"set", &set, "bound", &bound, "told_set", &told_set, "told", &told,
			"budget_told", &budget_told, "reserve_told", &reserve_told,
			"flows", &flows))
		return false;
	m->governed = governed;
	m->reserved = reserved;
	m->hands = hands;
	m->assembly = (uint64_t)assembly;
	m->governor.started = started;
	m->told = told >= 0 && told <= GOVERNOR_AT_FLOOR ? (enum governor_reason)told :
							   GOVERNOR_WAITS;
	m->budget_told = budget_told == POLICY_KNOWN ? POLICY_KNOWN : POLICY_NOT_TOLD;
	m->reserve_told = reserve_told;
	if (!json_is_array(flows) || json_array_size(flows) > POLICY_MEMBERS)
		return false;
	for (; m->nr_flows < json_array_size(flows); m->nr_flows++) {
		if (!unpack_flow(json_array_get(flows, m->nr_flows), &m->flows[m->nr_flows]))
			return false;
	}
	return unpack_numbers(set, m->set, POLICY_TUNABLES) &&
	       unpack_numbers(bound, m->bound, POLICY_TUNABLES) &&
	       unpack_numbers(told_set, m->told_set, POLICY_LOW) && unpack_name(name, m->pool);
}

int policy_file_load(struct policy_file *file, struct policy_memory *pools, size_t most)
{
	json_t *root, *all = NULL;
	int version = 0, nr = 0;

	if (faccessat(file->dir, POLICY_MEMORY, F_OK, 0))
		return -ENOENT;
	root = load(file->dir, POLICY_MEMORY);
	if (json_unpack(root, "{s:i, s:o}", "version", &version, "pools", &all) ||
	    version != VERSION || !json_is_array(all) || json_array_size(all) > most)
		nr = -EBADMSG;
	while (nr >= 0 && (size_t)nr < json_array_size(all)) {
		if (unpack_memory(json_array_get(all, (size_t)nr), &pools[nr]))
			nr++;
		else
			nr = -EBADMSG;
	}
	json_decref(root);
	return nr;
}

static json_t *pack_changes(const struct policy_line *line, const unsigned int *of,
			    const unsigned int *other)
{
	json_t *changes = json_object();

	for (int i = line->moves; i < (int)line->moves + line->nr_moves; i++) {
		if (of[i] != other[i])
			json_object_set_new(changes, policy_tunables[i], json_integer(of[i]));
	}
	return changes;
}

int policy_file_tell(struct policy_file *file, double time, const char *pool,
		     const struct policy_line *line, const unsigned int *from,
		     const unsigned int *to)
{
	static const char next[] = POLICY_DECISIONS ".next";
	json_t *one = json_pack("{s:f, s:s, s:s, s:b, s:f, s:f, s:o, s:o, s:s}",
		"time", time, "pool", pool, "kind", line->kind, "warning", line->warning,
		"written_a_day", line->measured, "budget_a_day", line->budget,
		"from", pack_changes(line, from, to),
		"to", pack_changes(line, to, from),
		"reason", line->text);
	bool whole = true;
	FILE *out;

	if (json_array_append_new(file->decisions, one))
		return -ENOMEM;
	while (json_array_size(file->decisions) > POLICY_KEPT)
		json_array_remove(file->decisions, 0);
	out = start(file, next);
	if (!out)
		return -errno;
	for (size_t i = 0; i < json_array_size(file->decisions); i++) {
		whole &= !json_dumpf(json_array_get(file->decisions, i), out, JSON_COMPACT);
		whole &= fputc('\n', out) != EOF;
	}
	return finish(file->dir, POLICY_DECISIONS, next, out, whole);
}
