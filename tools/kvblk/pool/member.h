/* SPDX-License-Identifier: MIT */
/* What kvblk member shares with kvblk pool. */
#ifndef KVBLK_MEMBER_H
#define KVBLK_MEMBER_H

#include "cli/cli.h"

/* The state of @member, or what it does wrong while it is up. */
const char *member_condition(const struct kvblk_member_state *member);

/* @members as @list says, or as a JSON array. */
void member_print(const struct cli_list *list, const struct kvblk_member_state *members);
json_t *member_json(const struct kvblk_member_state *members);

#endif
