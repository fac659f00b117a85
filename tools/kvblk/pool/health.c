// SPDX-License-Identifier: MIT
/*
 * Findings about a pool. The rule: a finding is true now, or its text names the time since
 * when it counts. Each finding comes with a remedy.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/uuid.h"
#include "pool/health.h"

/* fill level from which the index evicts blocks to insert others, percent of the slots */
#define INDEX_FULL	85
/* share of free flash that counts as wasted, percent */
#define FLASH_UNUSED	20

const char *health_name(enum health health)
{
	static const char *const names[] = {
		[HEALTH_OK] = "ok",
		[HEALTH_NOTE] = "note",
		[HEALTH_DEGRADED] = "degraded",
		[HEALTH_DOWN] = "down",
	};

	return names[health];
}

enum cli_exit health_exit(enum health health)
{
	if (health == HEALTH_DOWN)
		return CLI_DOWN;
	return health == HEALTH_DEGRADED ? CLI_DEGRADED : CLI_OK;
}

static struct finding *add(struct health_report *report, enum health health,
			   const char *member)
{
	static struct finding spare;
	struct finding *finding = report->nr_findings < HEALTH_FINDINGS_MAX ?
				  &report->findings[report->nr_findings++] : &spare;

	if (health > report->health)
		report->health = health;
	finding->health = health;
	snprintf(finding->member, sizeof(finding->member), "%s", member);
	return finding;
}

static void check_member(const struct kvblk_member_state *member,
			 struct health_report *report)
{
	struct finding *finding;
	const char *what, *act = NULL;
	char uuid[40];

	report->nr_members++;
	switch (member->state) {
	case KVBLK_MEMBER_STATUS_MISSING:
		what = "is missing: its blocks are misses";
		break;
	case KVBLK_MEMBER_STATUS_DEAD:
		what = "is dead, its device is gone: its blocks are misses";
		break;
	case KVBLK_MEMBER_STATUS_REMOVING:
		what = "is being removed";
		act = "wait for the event member-down (kvblk events)";
		break;
	case KVBLK_MEMBER_STATUS_RESTORING:
		what = "is finding its blocks again";
		act = "wait; they are misses until then";
		break;
	case KVBLK_MEMBER_STATUS_UNRESTORED:
		what = "is unrestored, it could not be read: its blocks are misses, and still there";
		break;
	default:
		if (!member->suspect && !member->failing && member->unread_segments) {
			report->nr_up++;
			what = "has segments that could not be read: their blocks are misses, and still there";
			break;
		}
		if (!member->suspect && !member->failing) {
			report->nr_up++;
			return;
		}
		report->nr_up += member->read_only;
		what = member->suspect ? "does not answer: its blocks are misses until it does" :
		       member->fenced ? "is fenced, its reservation is lost: its blocks are served, nothing is written" :
		       member->read_only ? "answers writes with errors: its blocks are served, puts go to other members" :
					 "answers with errors: its blocks are misses until it answers well";
		act = member->fenced ? "see dmesg for the node that has it now; if this node is to have it, destroy the pool on both and import it here" :
		      "look at its path and its device: dmesg, nvme list-subsys, nvme smart-log";
	}
	finding = add(report, HEALTH_DEGRADED, member->name);
	snprintf(finding->what, sizeof(finding->what), "member %s %s", member->name, what);
	if (act)
		snprintf(finding->act, sizeof(finding->act), "%s", act);
	else if (member->state == KVBLK_MEMBER_STATUS_UNRESTORED ||
		 member->state == KVBLK_MEMBER_STATUS_UP)
		snprintf(finding->act, sizeof(finding->act),
			 "see dmesg, and once its device reads well add it again (kvblk member add %s %.600s)",
			 member->pool, strlen(member->path) <= 600 ? member->path : "DEVICE");
	else
		snprintf(finding->act, sizeof(finding->act),
			 "to get them back bring its device back, which was at: %s; kvblkd or \"kvblk member add %s DEVICE\" then adds it. Only if that drive is lost for good: kvblk member remove %s %s",
			 *member->place ? member->place : "a place that is not known",
			 member->pool, member->pool, uuid_format(member->uuid, uuid));
}

/* Add notes at most: the pool serves all own blocks, and the owner reports the same fault. */
static void check_foreign(const struct kvblk_member_state *foreign, struct health_report *report)
{
	const char *what, *act = "look at its path and its device: dmesg, nvme list-subsys";
	struct finding *finding;

	report->nr_foreign++;
	switch (foreign->state) {
	case KVBLK_MEMBER_STATUS_DEAD:
		what = "is dead, its device is gone: its blocks are misses";
		act = "connect its device again, then kvblkd or \"kvblk member follow\" follows it";
		break;
	case KVBLK_MEMBER_STATUS_UNRESTORED:
		what = "was formatted anew, or is of another version: its blocks are misses";
		act = "kvblkd or \"kvblk member follow\" follows it again";
		break;
	case KVBLK_MEMBER_STATUS_RESTORING:
		what = "is being read: blocks that were not found yet are misses";
		act = "wait; if it takes long, look at dmesg";
		break;
	default:
		if (!foreign->suspect && !foreign->failing) {
			report->nr_foreign_up++;
			return;
		}
		what = foreign->suspect ? "does not answer: its blocks are misses until it does" :
					  "answers with errors: its blocks are misses until it answers well";
	}
	finding = add(report, HEALTH_NOTE, foreign->name);
	snprintf(finding->what, sizeof(finding->what), "followed member %s of node %s %s",
		 foreign->name, foreign->owner, what);
	snprintf(finding->act, sizeof(finding->act),
		 "%s. To follow it no longer: kvblk member unfollow %s %s", act, foreign->pool,
		 foreign->name);
}

static void check_lacks(const struct kvblk_member_state *foreign, struct health_report *report)
{
	struct finding *finding;

	if (!foreign->lacks)
		return;
	finding = add(report, HEALTH_NOTE, foreign->name);
	snprintf(finding->what, sizeof(finding->what),
		 "%" PRIu64 " blocks of followed member %s of node %s found no free entry of the index: they are misses",
		 foreign->lacks, foreign->name, foreign->owner);
	snprintf(finding->act, sizeof(finding->act),
		 "destroy the pool, and import it with more --index-slots than all nodes have blocks");
}

static void check_conflict(const struct kvblk_member_state *foreign, struct health_report *report)
{
	struct finding *finding;

	if (!*foreign->conflict)
		return;
	finding = add(report, HEALTH_NOTE, foreign->name);
	snprintf(finding->what, sizeof(finding->what),
		 "tenant %s differs on node %s: its blocks are not shared", foreign->conflict,
		 foreign->owner);
	snprintf(finding->act, sizeof(finding->act),
		 "see dmesg, which has both ids and names, and run on one of the nodes: kvblk tenant clear %s %s",
		 foreign->pool, foreign->conflict);
}

uint64_t index_needs(const struct kvblk_pool_state *pool)
{
	return (pool->index_slots + pool->index_lacks) / 8 * 9;
}

static void check_index(const struct kvblk_pool_state *pool, struct health_report *report)
{
	struct finding *finding;
	char bytes[32];

	if (pool->index_lacks) {
		finding = add(report, HEALTH_DEGRADED, "");
		snprintf(finding->what, sizeof(finding->what),
			 "%" PRIu64 " blocks do not fit into the index: they are misses, and deletes fail",
			 pool->index_lacks);
		snprintf(finding->act, sizeof(finding->act),
			 "destroy the pool, and import it with --index-slots %" PRIu64,
			 index_needs(pool));
		return;
	}
	if (!pool->index_slots || !pool->nr_segments ||
	    pool->index_used < pool->index_slots / 100 * INDEX_FULL ||
	    pool->free_segments < pool->nr_segments / 100.0 * FLASH_UNUSED)
		return;
	finding = add(report, HEALTH_NOTE, "");
	snprintf(finding->what, sizeof(finding->what),
		 "the index is full, %" PRIu64 " of %" PRIu64 " entries, while %s of flash are free",
		 pool->index_used, pool->index_slots,
		 cli_format_bytes(pool->free, bytes, sizeof(bytes)));
	snprintf(finding->act, sizeof(finding->act),
		 "import it with more --index-slots; kvblk pool plan tells how many");
}

/* Report a counter that should be 0; @what is the singular of what was counted. */
static void check_counter(const struct kvblk_pool_state *pool, uint64_t count, const char *what,
			  const char *more, const char *act, struct health_report *report)
{
	struct finding *finding;

	if (!count)
		return;
	finding = add(report, HEALTH_NOTE, "");
	snprintf(finding->what, sizeof(finding->what), "%" PRIu64 " %s%s%s since the pool was %s",
		 count, what, count == 1 ? "" : "s", more,
		 pool->cleared ? "cleared" : "assembled");
	snprintf(finding->act, sizeof(finding->act), "%s; then: kvblk pool clear %s", act,
		 pool->name);
}

static void check_counters(const struct kvblk_pool_state *pool, struct health_report *report)
{
	static const char device[] = "dmesg and kvblk events tell the member; look at nvme smart-log";

	check_counter(pool, pool->checksum_failures, "checksum failure", ", each a miss,", device,
		      report);
	check_counter(pool, pool->read_errors, "failed read", ", each a miss,", device, report);
	check_counter(pool, pool->write_errors, "failed write", "", device, report);
	check_counter(pool, pool->put_nospace, "put", " without room",
		      "members are slower than the puts: add members, or put less", report);
}

void health_of(const struct kvblk_pool_state *pool, const struct snapshot *snapshot,
	       struct health_report *report)
{
	const struct kvblk_member_state *member;


	report->health = HEALTH_OK;
	report->nr_members = 0;
	report->nr_up = 0;
	report->nr_foreign = 0;
	report->nr_foreign_up = 0;
	report->nr_findings = 0;
	for (member = snapshot->members; member; member = member->next) {
		if (!strcmp(member->pool, pool->name))
			check_member(member, report);
	}
	if (!report->nr_up)
		report->health = HEALTH_DOWN;
	check_index(pool, report);
	check_counters(pool, report);
	for (member = snapshot->foreign; member; member = member->next) {
		if (strcmp(member->pool, pool->name) != 0)
			continue;
		check_foreign(member, report);
		check_lacks(member, report);
		check_conflict(member, report);
	}
}
