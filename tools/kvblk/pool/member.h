/* SPDX-License-Identifier: MIT */
/* Parts of kvblk member that other commands use. */
#ifndef KVBLK_MEMBER_H
#define KVBLK_MEMBER_H

#include "cli/cli.h"

/* Returns the state of @member, or its trouble while it is up. */
const char *member_condition(const struct kvblk_member_state *member);

/* Print @members as a list; return them as a JSON array. */
void member_print(const struct cli_list *list, const struct kvblk_member_state *members);
json_t *member_json(const struct kvblk_member_state *members);

#endif
