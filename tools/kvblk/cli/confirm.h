/* SPDX-License-Identifier: MIT */
/* Questions before what is lost for good: CLI_OK to go on, or CLI_ERROR. */
#ifndef KVBLK_CONFIRM_H
#define KVBLK_CONFIRM_H

#include "cli/cli.h"

/*
 * Asks whether @subject may lose @lost, lines that tell how much; "" is nothing to
 * ask about. With @yes it may. Without a terminal it may not.
 */
int confirm(bool yes, const char *subject, const char *lost);

/* The same of what @nr devices hold that are to be formatted. */
int confirm_format(bool yes, const char *subject, const struct kvblk_member_spec *specs,
		   size_t nr);

/* The same of the blocks of a member that is to be removed. */
int confirm_remove(bool yes, const struct kvblk_member_state *member);

#endif
