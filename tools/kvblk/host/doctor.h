/* SPDX-License-Identifier: MIT */
/*
 * kvblk doctor: check whether this host suits kvblk. doctor_scan.c checks, doctor.c parses
 * options and prints.
 *
 * The rule: nothing is changed, and each line with a fault names the remedy.
 */
#ifndef KVBLK_DOCTOR_H
#define KVBLK_DOCTOR_H

#include "common/snapshot.h"
#include "pool/health.h"

/**
 * struct doctor_line - result of one check
 * @health: %HEALTH_DEGRADED: change something; %HEALTH_DOWN: kvblk cannot work
 * @check: name of the check, as "memlock"
 * @what: the finding
 * @act: the remedy, or ""
 */
struct doctor_line {
	enum health health;
	char check[16];
	char what[256];
	char act[288];
};

#define DOCTOR_LINES_MAX	512

/**
 * struct doctor - result of all checks
 * @health: worst health of the lines
 * @nr: entries of @lines
 * @lines: results, in the order of reading
 */
struct doctor {
	enum health health;
	size_t nr;
	struct doctor_line lines[DOCTOR_LINES_MAX];
};

/*
 * Check the files below @root, "" for this host, and the module's answers @told; NULL if
 * there are none. @version is the command's version.
 */
void doctor_look(const char *root, const char *version, const struct snapshot *snapshot,
		 struct doctor *doctor);

/* Returns "ok", "note", "change" or "fails". */
const char *doctor_verdict(enum health health);

#endif
