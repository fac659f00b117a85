/* SPDX-License-Identifier: MIT */
/*
 * The health of drives: SMART and endurance group logs of members, read now and then by
 * a thread of their own, because a device may be silent for minutes. Rules: a device
 * that is no NVMe drive has no such log, which is no error; what gets worse is one line
 * in the log, with what to do.
 */
#ifndef KVBLKD_SMART_H
#define KVBLKD_SMART_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvblk.h"

#define SMART_SECONDS	600	/* between two readings */

/**
 * struct smart - what a drive tells of its health
 * @asked: it was asked, or there is no drive to ask
 * @valid: it answered
 * @rated: it told of wear and spare blocks; a target that stands for a drive may tell
 *	of neither
 * @warning: critical warnings, a bit each, as in the SMART log
 * @used: percent of its life, may be over 100
 * @spare: percent of its spare blocks that are left
 * @spare_least: percent below which that is too few
 * @written: bytes written to it in its life
 * @time: when it answered last, seconds since 1970
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

/*
 * Has the logs of these members read, if it is time or one of them is new. Never waits:
 * nothing is begun while a device of the last time has not answered.
 */
void smart_look(const struct kvblk_member_state *members, double now_s);

/* What the member's drive told last; zeroes: it was not asked yet. */
struct smart smart_of(const char *pool, const char *member);

/* What got worse since @was, and what to do, to @buf; false: nothing did. */
bool smart_worse(const struct smart *was, const struct smart *is, char *buf, size_t len);

#endif
