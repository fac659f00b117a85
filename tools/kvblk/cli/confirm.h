/* SPDX-License-Identifier: MIT */
/* Confirmation before data is lost or taken away. Each function returns CLI_OK to proceed, else CLI_ERROR. */
#ifndef KVBLK_CONFIRM_H
#define KVBLK_CONFIRM_H

#include "cli/cli.h"

/*
 * Ask whether @lost, lines that describe a loss to @subject, is acceptable. An empty @lost
 * or @yes needs no question. Without a terminal the answer is no.
 */
int confirm(bool yes, const char *subject, const char *lost);

/* Ask whether to do @plan, lines that describe a change to @subject which another node feels. */
int confirm_plan(bool yes, const char *subject, const char *plan);

/* Ask about the data on the @nr devices that will be formatted. */
int confirm_format(bool yes, const char *subject, const struct kvblk_member_spec *specs,
		   size_t nr);

/* Ask about the blocks of the member that will be removed. */
int confirm_remove(bool yes, const struct kvblk_member_state *member);

#endif
