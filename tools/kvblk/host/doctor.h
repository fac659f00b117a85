/* SPDX-License-Identifier: MIT */
/*
 * kvblk doctor: whether this host is fit for kvblk. doctor_scan.c looks, doctor.c
 * parses options and prints.
 *
 * The rule: nothing is changed, and each line that is not well says what to change.
 */
#ifndef KVBLK_DOCTOR_H
#define KVBLK_DOCTOR_H

#include "common/snapshot.h"
#include "pool/health.h"

/**
 * struct doctor_line - what came of one look
 * @health: %HEALTH_DEGRADED: something is to be changed; %HEALTH_DOWN: kvblk can't work
 * @check: what was looked at, as "memlock"
 * @what: was found
 * @act: what to change, or ""
 */
struct doctor_line {
	enum health health;
	char check[16];
	char what[256];
	char act[288];
};

#define DOCTOR_LINES_MAX	512

/**
 * struct doctor - all of it
 * @health: the worst
 * @nr: of @lines
 * @lines: in the order in which they are to be read
 */
struct doctor {
	enum health health;
	size_t nr;
	struct doctor_line lines[DOCTOR_LINES_MAX];
};

/*
 * Looks at what is below @root, "" for this host, and at what the module told, if it
 * did (else NULL). @version is the command's.
 */
void doctor_look(const char *root, const char *version, const struct snapshot *snapshot,
		 struct doctor *doctor);

/* "ok", "note", "change", "fails" */
const char *doctor_verdict(enum health health);

#endif
