// SPDX-License-Identifier: MIT
/* Log lines of pools and events, see event_log.h. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/snapshot.h"
#include "log/event_log.h"
#include "log/log.h"

static void log_members(struct kvblk_admin *admin, const char *pool)
{
	struct kvblk_member_state *members;

	if (kvblk_member_list(admin, pool, &members))
		return;
	for (struct kvblk_member_state *m = members; m; m = m->next) {
		const char *trouble = snapshot_trouble(m);

		log_line(LOG_LINE_INFO, "pool %s, member %s: %s%s%s, %u of %u segments free%s%s",
			 pool, m->name, kvblk_name(KVBLK_NAME_MEMBER_STATUS, m->state),
			 trouble ? ", " : "", trouble ? trouble : "",
			 m->free_segments, m->nr_segments, *m->place ? "; its device: " : "",
			 m->place);
	}
	kvblk_list_free(members);
}

void report_pools(void)
{
	struct kvblk_pool_state *pools;
	struct kvblk_admin *admin;
	int err;

	err = kvblk_admin_open(&admin);
	if (err) {
		log_line(LOG_LINE_WARNING, "cannot query the module for pools: %s",
			 strerror(-err));
		return;
	}
	err = kvblk_pool_list(admin, NULL, &pools);
	if (err) {
		log_line(LOG_LINE_WARNING, "cannot list pools: %s",
			 *kvblk_admin_message(admin) ?
			 kvblk_admin_message(admin) : strerror(-err));
		goto close_admin;
	}
	if (!pools)
		log_line(LOG_LINE_INFO, "no pools yet");
	for (struct kvblk_pool_state *p = pools; p; p = p->next) {
		log_line(LOG_LINE_INFO, "pool %s: %u members, %u of %u segments free",
			 p->name, p->nr_members, p->free_segments,
			 p->nr_segments);
		log_members(admin, p->name);
	}
	kvblk_list_free(pools);
close_admin:
	kvblk_admin_close(admin);
}

/* Advice by event type. An event with a row is logged as a warning, any other as information. */
static const char *const advice[] = {
	[KVBLK_EVENT_MEMBER_DEAD] = "kvblkd adds the member again when its device returns",
	[KVBLK_EVENT_MEMBER_SUSPECT] = "check the target and the network",
	[KVBLK_EVENT_MEMBER_READ_ONLY] = "check whether the device is full or worn out, and its lines in the kernel log",
	[KVBLK_EVENT_MEMBER_FAILING] = "check the target, and the device's lines in the kernel log",
	[KVBLK_EVENT_CHECKSUM] = "if more blocks are damaged, replace the device",
	[KVBLK_EVENT_READ_ERROR] = "check the device's lines in the kernel log",
	[KVBLK_EVENT_WRITE_ERROR] = "check the device's lines in the kernel log",
	[KVBLK_EVENT_RESTORE_FAILED] = "the blocks stay on the device, and kvblkd retries to read them; check the device's lines in the kernel log",
	[KVBLK_EVENT_MEMBER_FENCED] = "see the kernel log for the node that has the device now; if none has, kvblk takes the reservation again",
	[KVBLK_EVENT_NO_SPACE] = "reclaim is slower than the puts: add members or put less",
	[KVBLK_EVENT_REQUEST_DONE] = "see the kernel log",
};

static const char *advice_for(const struct kvblk_notice *notice)
{
	if (notice->type == KVBLK_EVENT_REQUEST_DONE &&
	    !notice->number[KVBLK_A_EVENT_ERROR])
		return NULL;
	return notice->type < sizeof(advice) / sizeof(advice[0]) ? advice[notice->type] : NULL;
}

void report_event(struct limit *limit, const struct kvblk_notice *notice, int64_t now)
{
	const char *what_to_do = advice_for(notice);
	int level = what_to_do ? LOG_LINE_WARNING : LOG_LINE_INFO;
	const char *place = what_to_do ? notice->place : "";
	char event[256], text[sizeof(((struct limit_kind *)0)->text)];

	kvblk_event_text(notice, event, sizeof(event));
	snprintf(text, sizeof(text), "%s: %s%s%s%s%s", kvblk_name(KVBLK_NAME_EVENT, notice->type), event,
		 what_to_do ? "; " : "", what_to_do ? what_to_do : "",
		 *place ? "; its device: " : "", place);
	if (limit_take(limit, notice, level, text, now))
		log_of(notice->pool, notice->member, level, "%s", text);
}

void report_storms(struct limit *limit, int64_t now)
{
	const struct limit_kind *kind;
	uint64_t more;

	while ((kind = limit_next(limit, now, &more)))
		log_of(kind->pool, kind->member, kind->level, "%s (last of %" PRIu64 " more in %d s)", kind->text,
			 more, LIMIT_SECONDS);
}
