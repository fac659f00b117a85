/* SPDX-License-Identifier: MIT */
/*
 * Health of drives, from the members' SMART and endurance group logs. A separate thread reads
 * the logs, because a device may be silent for minutes. A device that is not an NVMe drive has
 * no such log, without an error. Each deterioration is one log line with advice.
 */
#ifndef KVBLKD_HOST_SMART_H
#define KVBLKD_HOST_SMART_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/kvblk_admin.h"

#define SMART_SECONDS	600	/* between two readings */

/**
 * struct smart - health of a drive
 * @asked: a reading was tried, or there is no drive to read
 * @valid: the drive responded
 * @rated: the drive reports wear and spare blocks; a target may report neither
 * @warning: critical warnings, bits of the SMART log
 * @used: percentage used of the drive's life, may exceed 100
 * @spare: percent of the spare blocks that are left
 * @spare_least: threshold of @spare, percent
 * @written: bytes written in the drive's life
 * @time: time of the last response, seconds since 1970
 */
struct smart {
	bool asked;
	bool valid;
	bool rated;
	unsigned int warning;
	unsigned int used;
	unsigned int spare;
	unsigned int spare_least;
	double written;
	int64_t time;
};

/* Start reading the members' logs if due or if a member is new. Never blocks, never overlaps. */
void smart_look(const struct kvblk_member_state *members, double now_s);

/* Returns the last reading of the member's drive, zeroes if there was none. */
struct smart smart_of(const char *pool, const char *member);

/* Describe in @buf what deteriorated since @was, with advice. Returns false if nothing did. */
bool smart_worse(const struct smart *was, const struct smart *is, char *buf, size_t len);

#endif
