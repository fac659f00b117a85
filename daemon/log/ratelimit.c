// SPDX-License-Identifier: MIT
/* Rate limit of log lines, see ratelimit.h. */
#include <stdio.h>
#include <string.h>

#include "log/ratelimit.h"

static struct limit_kind *find(struct limit *limit, const struct kvblk_notice *notice)
{
	struct limit_kind *kind, *oldest = limit->kinds;

	for (kind = limit->kinds; kind < limit->kinds + LIMIT_KINDS; kind++) {
		if (kind->used && kind->type == notice->type &&
		    !strcmp(kind->pool, notice->pool) && !strcmp(kind->member, notice->member))
			return kind;
		if (!kind->used || (oldest->used && kind->told < oldest->told))
			oldest = kind;
	}
	*oldest = (struct limit_kind){ .type = notice->type };
	snprintf(oldest->pool, sizeof(oldest->pool), "%s", notice->pool);
	snprintf(oldest->member, sizeof(oldest->member), "%s", notice->member);
	return oldest;
}

bool limit_take(struct limit *limit, const struct kvblk_notice *notice, int level,
		const char *text, int64_t now)
{
	struct limit_kind *kind = find(limit, notice);

	if (kind->used && now - kind->told < LIMIT_SECONDS) {
		kind->more++;
		kind->level = level;
		snprintf(kind->text, sizeof(kind->text), "%s", text);
		return false;
	}
	kind->used = true;
	kind->told = now;
	return true;
}

const struct limit_kind *limit_next(struct limit *limit, int64_t now, uint64_t *more)
{
	struct limit_kind *kind;

	for (kind = limit->kinds; kind < limit->kinds + LIMIT_KINDS; kind++) {
		if (!kind->more || now - kind->told < LIMIT_SECONDS)
			continue;
		*more = kind->more;
		kind->more = 0;
		kind->told = now;
		return kind;
	}
	return NULL;
}

int64_t limit_due(const struct limit *limit, int64_t now)
{
	const struct limit_kind *kind;
	int64_t due = -1, left;

	for (kind = limit->kinds; kind < limit->kinds + LIMIT_KINDS; kind++) {
		if (!kind->more)
			continue;
		left = kind->told + LIMIT_SECONDS - now;
		left = left > 0 ? left : 0;
		if (due < 0 || left < due)
			due = left;
	}
	return due;
}
