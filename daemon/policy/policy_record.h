/* SPDX-License-Identifier: MIT */
/*
 * A record of what the policy looked at and what it decided: a line of JSON for each
 * look at a pool. Rule: it has all that a decision is made from, so that policy_test
 * decides the same again from the lines alone.
 */
#ifndef KVBLKD_POLICY_RECORD_H
#define KVBLKD_POLICY_RECORD_H

#include <stdio.h>

#include "policy/policy.h"

/*
 * Appends a line to @to. @files: how often the file was read by now. 0, or a negative
 * errno: the line may be there in part.
 */
int policy_record(FILE *to, unsigned int files, const struct policy_look *look,
		  const struct policy_verdict *verdict);

#endif
