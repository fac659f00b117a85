// SPDX-License-Identifier: MIT
/*
 * Confirmation before data is lost, or taken from another node. The rule: no question without
 * a loss; without a terminal the answer is no.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/confirm.h"
#include "common/uuid.h"

/* the module's test for a blank device: the first and the last MiB are zero */
#define BLANK_BYTES	(1u << 20)

/* Ask about @lines, of what happens: @what, such as "be lost". */
static int ask(const char *subject, const char *what, const char *lines)
{
	char answer[16];

	if (!isatty(STDIN_FILENO))
		return cli_fail("%s: this would %s:\n%sNothing was changed. Pass --yes to proceed.",
				subject, what, lines);
	fprintf(stderr, "%s: this will %s:\n%sContinue? [y/N] ", subject, what, lines);
	if (fgets(answer, sizeof(answer), stdin) &&
	    (!strcasecmp(answer, "y\n") || !strcasecmp(answer, "yes\n")))
		return CLI_OK;
	return cli_fail("%s: nothing was changed", subject);
}

int confirm(bool yes, const char *subject, const char *lost)
{
	return yes || !*lost ? CLI_OK : ask(subject, "be lost", lost);
}

int confirm_plan(bool yes, const char *subject, const char *plan)
{
	return yes ? CLI_OK : ask(subject, "be done", plan);
}

static bool all_zero(int fd, char *bytes, off_t at)
{
	ssize_t len = pread(fd, bytes, BLANK_BYTES, at), i = 0;

	while (i < len && !bytes[i])
		i++;
	return i >= len;
}

/*
 * Returns whether @path holds data, and sets *@size. Returns false if the device cannot be
 * read.
 */
static bool holds_data(const char *path, uint64_t *size)
{
	char *bytes = NULL;
	bool data = false;
	off_t end;
	int fd;

	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	end = lseek(fd, 0, SEEK_END);
	*size = end > 0 ? (uint64_t)end : 0;
	bytes = malloc(BLANK_BYTES);
	if (bytes)
		data = !all_zero(fd, bytes, 0) ||
		       !all_zero(fd, bytes, end > (off_t)BLANK_BYTES ? end - BLANK_BYTES : 0);
	free(bytes);
	close(fd);
	return data;
}

/* Print one line about the data lost when @path is formatted; nothing for a blank device. */
static void tell_device(FILE *to, const char *path)
{
	struct kvblk_found *found = NULL;
	uint64_t size = 0;
	char text[32];

	/* the module reports a device that fails; do not wait twice for a silent one */
	if (kvblk_scan(&path, 1, &found) == -ETIMEDOUT || !holds_data(path, &size))
		goto out;
	fprintf(to, "  %s, %s: ", path, cli_format_bytes(size, text, sizeof(text)));
	if (found && found->other_version)
		fprintf(to, "blocks of another version of kvblk\n");
	else if (found)
		fprintf(to, "blocks of pool %s, one of its %u member%s, %s by node %s\n",
			found->pool, found->nr_members, found->nr_members == 1 ? "" : "s",
			found->clean ? "last used" : "in use, or left in a crash,",
			found->owner);
	else
		fprintf(to, "data that is not kvblk's\n");
out:
	kvblk_list_free(found);
}

int confirm_format(bool yes, const char *subject, const struct kvblk_member_spec *specs,
		   size_t nr)
{
	char *lost = NULL;
	size_t len = 0;
	FILE *to;
	int ret;

	if (yes)
		return CLI_OK;
	to = open_memstream(&lost, &len);
	if (!to)
		return cli_fail("no memory for the list of devices");
	for (size_t i = 0; i < nr; i++)
		tell_device(to, specs[i].path);
	fclose(to);
	ret = confirm(false, subject, lost);
	free(lost);
	return ret;
}

int confirm_remove(bool yes, const struct kvblk_member_state *member)
{
	uint32_t segments = member->sealed_segments + member->open_segments;
	char subject[512], lost[256] = "", text[32], uuid[40];

	/* a member may bear the name of another device, so print uuid and place, too */
	snprintf(subject, sizeof(subject), "member %s of pool %s (uuid %s; device now: %s; place: %s)",
		 member->name, member->pool, uuid_format(member->uuid, uuid),
		 *member->device ? member->device : "none",
		 *member->place ? member->place : "not known");
	if (member->state <= KVBLK_MEMBER_STATUS_UP && segments)
		snprintf(lost, sizeof(lost), "  up to %s of blocks, in %" PRIu32 " of %" PRIu32 " segments\n",
			 cli_format_bytes((uint64_t)segments * member->segment_size,
					  text, sizeof(text)),
			 segments, member->nr_segments);
	else if (member->state == KVBLK_MEMBER_STATUS_UNRESTORED)
		snprintf(lost, sizeof(lost), "  all its blocks, which are there once its device reads well\n");
	else if (member->state == KVBLK_MEMBER_STATUS_DEAD ||
		 member->state == KVBLK_MEMBER_STATUS_MISSING)
		snprintf(lost, sizeof(lost), "  the blocks that it would have if its device came back\n");
	return confirm(yes, subject, lost);
}
