/* SPDX-License-Identifier: MIT */
/*
 * Record of the policy's inputs and decisions: a line of JSON for each look at a pool. The
 * record has all inputs, so that policy_test can repeat each decision from the lines.
 */
#ifndef KVBLKD_POLICY_POLICY_RECORD_H
#define KVBLKD_POLICY_POLICY_RECORD_H

#include <stdio.h>

#include "policy/policy.h"

/*
 * Append a line to @to. @files: number of configurations read so far. Returns 0, or a negative
 * errno, possibly after a partial line.
 */
int policy_record(FILE *to, unsigned int files, const struct policy_look *look,
		  const struct policy_verdict *verdict);

#endif
