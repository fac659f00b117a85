// SPDX-License-Identifier: MIT
/* Newest states of pools, see newest.h. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "apply/newest.h"
#include "common/uuid.h"

#define NAME_LEN	(40 + sizeof("pools/"))
#define LINE_LEN	80
#define TEXT_LEN	((NEWEST_MEMBERS + 2) * LINE_LEN)

static char *file_name(const uint8_t pool_uuid[16], char name[NAME_LEN])
{
	char uuid[40];

	snprintf(name, NAME_LEN, "pools/%s", uuid_format(pool_uuid, uuid));
	return name;
}

char *newest_path(const uint8_t pool_uuid[16], char buf[KEPT_PATH_LEN])
{
	char name[NAME_LEN];

	return kept_path(file_name(pool_uuid, name), buf);
}

static bool parse_line(const char *line, struct state_newest *newest)
{
	char uuid[40];
	uint64_t seq;

	if (sscanf(line, "epoch %" SCNu64, &newest->epoch) == 1 ||
	    sscanf(line, "list %" SCNu64, &newest->list_seq) == 1)
		return true;
	if (sscanf(line, "member %39s %" SCNu64, uuid, &seq) != 2 ||
	    newest->nr_members == NEWEST_MEMBERS ||
	    !uuid_parse(uuid, newest->members[newest->nr_members].uuid))
		return false;
	newest->members[newest->nr_members++].seq = seq;
	return true;
}

int newest_read(const uint8_t pool_uuid[16], struct state_newest *newest)
{
	char name[NAME_LEN], text[TEXT_LEN], *rest = text, *line;
	int err = kept_read(file_name(pool_uuid, name), text, sizeof(text));

	*newest = (struct state_newest){ 0 };
	memcpy(newest->pool_uuid, pool_uuid, sizeof(newest->pool_uuid));
	while (!err && (line = strsep(&rest, "\n"))) {
		/* or else a damaged file would allow any state */
		if (*line && !parse_line(line, newest))
			err = -EBADMSG;
	}
	return err;
}

static int newest_write(const struct state_newest *newest)
{
	char name[NAME_LEN], uuid[40], *text;
	size_t len;
	FILE *to = open_memstream(&text, &len);
	int err;

	if (!to)
		return -ENOMEM;
	fprintf(to, "epoch %" PRIu64 "\nlist %" PRIu64 "\n", newest->epoch, newest->list_seq);
	for (size_t i = 0; i < newest->nr_members; i++)
		fprintf(to, "member %s %" PRIu64 "\n", uuid_format(newest->members[i].uuid, uuid),
			newest->members[i].seq);
	fclose(to);
	err = kept_write(file_name(newest->pool_uuid, name), text);
	free(text);
	return err;
}

/* Raise @newest to the state of @found. Returns true if @newest changed. */
static bool raise(struct state_newest *newest, const struct kvblk_found *found)
{
	bool changed = false;
	size_t i;

	if (plan_is_older(newest->epoch, newest->list_seq, found->epoch, found->roster_seq)) {
		newest->epoch = found->epoch;
		newest->list_seq = found->roster_seq;
		changed = true;
	}
	for (i = 0; i < newest->nr_members; i++) {
		if (!memcmp(newest->members[i].uuid, found->uuid, sizeof(found->uuid)))
			break;
	}
	if (i == NEWEST_MEMBERS)
		return changed;
	if (i == newest->nr_members) {
		memcpy(newest->members[i].uuid, found->uuid, sizeof(found->uuid));
		newest->nr_members++;
		changed = true;
	}
	if (newest->members[i].seq < found->seq) {
		newest->members[i].seq = found->seq;
		changed = true;
	}
	return changed;
}

int newest_keep(const uint8_t pool_uuid[16], const struct state *state)
{
	struct state_newest newest;
	bool changed = false;
	int lock = kept_lock();
	int err;

	if (lock < 0)
		return lock;
	err = newest_read(pool_uuid, &newest);
	if (err == -ENOENT)
		err = 0;
	for (const struct kvblk_found *found = state->found; found; found = found->next) {
		if (plan_is_usable(found) && !memcmp(found->pool_uuid, pool_uuid, 16))
			changed |= raise(&newest, found);
	}
	if (!err && changed)
		err = newest_write(&newest);
	close(lock);
	return err;
}
