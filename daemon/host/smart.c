// SPDX-License-Identifier: MIT
/* Health of drives, see smart.h. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "common/thread.h"
#include "host/fabrics.h"
#include "host/smart.h"
#include "log/log.h"

#define MEMBERS_MAX	1024
#define LINE_LEN	400

/**
 * struct health - health of a member's drive
 * @pool: name of the pool
 * @member: name of the member
 * @uuid: UUID of the member, because a new member may reuse a removed one's name
 * @path: path of the present device
 * @smart: last reading
 */
struct health {
	char pool[KVBLK_NAME_LEN_MAX + 1];
	char member[KVBLK_NAME_LEN_MAX + 1];
	uint8_t uuid[16];
	char path[KVBLK_PATH_LEN_MAX + 1];
	struct smart smart;
};

/**
 * struct drives - drives of all members
 * @lock: protects the struct, but not @nr, names and paths while @reading
 * @reading: the thread is running; the list must not change
 * @next_s: time of the next reading
 * @all: the members
 * @nr: entries of @all
 */
static struct drives {
	pthread_mutex_t lock;
	bool reading;
	double next_s;
	struct health all[MEMBERS_MAX];
	size_t nr;
} drives = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* Advice by bit of the critical warnings. */
static const char *const warnings[] = {
	"few spare blocks are left: replace the drive",
	"temperature out of range: check the cooling",
	"reliability degraded: replace the drive",
	"media is read-only: replace the drive",
	"backup of volatile memory failed: replace the drive",
	"persistent memory is unreliable: replace the drive",
};

/* Returns the highest wear threshold that @used has reached, or 0. */
static unsigned int mark(unsigned int used)
{
	return used >= 100 ? 100 : used >= 90 ? 90 : used >= 80 ? 80 : 0;
}

static void add(char *buf, size_t len, const char *text)
{
	size_t at = strlen(buf);

	snprintf(buf + at, len - at, "%s%s", at ? "; " : "", text);
}

bool smart_worse(const struct smart *was, const struct smart *is, char *buf, size_t len)
{
	unsigned int before = was->valid ? was->warning : 0;
	bool was_low = was->valid && was->spare < was->spare_least;
	char text[LINE_LEN / 2];

	*buf = '\0';
	if (!is->valid || !is->rated)
		return false;
	for (size_t i = 0; i < sizeof(warnings) / sizeof(warnings[0]); i++) {
		if ((is->warning & ~before) >> i & 1)
			add(buf, len, warnings[i]);
	}
	if (is->spare < is->spare_least && !was_low && !(is->warning & 1)) {
		snprintf(text, sizeof(text), "%u %% of the spare blocks left, below the threshold of %u %%: replace the drive",
			 is->spare, is->spare_least);
		add(buf, len, text);
	}
	if (mark(is->used) > (was->valid ? mark(was->used) : 0)) {
		snprintf(text, sizeof(text), "%u %% of the rated life used: %s", is->used,
			 is->used >= 100 ? "replace the drive" :
			 "plan to replace it, or give the pool a smaller budget");
		add(buf, len, text);
	}
	return *buf;
}

static void *read_all(void *arg)
{
	char text[LINE_LEN];
	struct smart now;

	for (size_t i = 0; i < drives.nr; i++) {
		struct health *health = &drives.all[i];

		now = (struct smart){ 0 };
		fabrics_smart(health->path, &now);
		now.asked = true;
		if (now.valid && now.rated && !health->smart.valid)
			log_line(LOG_LINE_INFO, "drive: pool %s, member %s, %s: %u %% of the rated life used, %.1f MiB written",
				 health->pool, health->member, health->path, now.used,
				 now.written / (1024 * 1024));
		if (smart_worse(&health->smart, &now, text, sizeof(text)))
			log_line(LOG_LINE_WARNING, "drive: pool %s, member %s, %s: %s", health->pool,
				 health->member, health->path, text);
		pthread_mutex_lock(&drives.lock);
		/* keep the last valid reading, or else a drive that failed once is logged as new */
		if (now.valid || !health->smart.valid)
			health->smart = now;
		pthread_mutex_unlock(&drives.lock);
	}
	pthread_mutex_lock(&drives.lock);
	drives.reading = false;
	pthread_mutex_unlock(&drives.lock);
	return NULL;
}

static const struct health *find(const char *pool, const char *member)
{
	for (size_t i = 0; i < drives.nr; i++) {
		if (!strcmp(drives.all[i].pool, pool) && !strcmp(drives.all[i].member, member))
			return &drives.all[i];
	}
	return NULL;
}

/* Rebuild the list from @members and keep known readings. Returns true if a member is new. */
static bool list(const struct kvblk_member_state *members)
{
	static struct health next[MEMBERS_MAX];
	const struct health *old;
	size_t nr = 0;
	bool new = false;

	for (; members && nr < MEMBERS_MAX; members = members->next) {
		if (members->state != KVBLK_MEMBER_STATUS_UP)
			continue;
		next[nr] = (struct health){ 0 };
		snprintf(next[nr].pool, sizeof(next[nr].pool), "%s", members->pool);
		snprintf(next[nr].member, sizeof(next[nr].member), "%s", members->name);
		memcpy(next[nr].uuid, members->uuid, sizeof(next[nr].uuid));
		/* prefer the device's name: the path may have moved to another device */
		if (*members->device)
			snprintf(next[nr].path, sizeof(next[nr].path), "/dev/%s", members->device);
		else
			snprintf(next[nr].path, sizeof(next[nr].path), "%s", members->path);
		old = find(members->pool, members->name);
		if (old && !memcmp(old->uuid, members->uuid, sizeof(old->uuid)))
			next[nr].smart = old->smart;
		new |= !next[nr++].smart.asked;
	}
	memcpy(drives.all, next, nr * sizeof(next[0]));
	drives.nr = nr;
	return new;
}

void smart_look(const struct kvblk_member_state *members, double now_s)
{
	pthread_mutex_lock(&drives.lock);
	if (!drives.reading && (list(members) || now_s >= drives.next_s)) {
		drives.reading = !thread_start(read_all, NULL);
		drives.next_s = now_s + SMART_SECONDS;
	}
	pthread_mutex_unlock(&drives.lock);
}

struct smart smart_of(const char *pool, const char *member)
{
	const struct health *health;
	struct smart smart = { 0 };

	pthread_mutex_lock(&drives.lock);
	health = find(pool, member);
	if (health)
		smart = health->smart;
	pthread_mutex_unlock(&drives.lock);
	return smart;
}
