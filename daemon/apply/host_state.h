/* SPDX-License-Identifier: MIT */
/* Reader of the host's state: kernel, sysfs and devices; see struct state in plan.h. */
#ifndef KVBLKD_APPLY_HOST_STATE_H
#define KVBLKD_APPLY_HOST_STATE_H

#include "apply/plan.h"

/*
 * Read what a plan for @config needs. Devices are scanned only if a pool of @config is down
 * or incomplete. state->settled and state->waited are left to the caller. Returns 0 or a
 * negative errno; state_free() is needed in both cases.
 */
int state_read(const struct config *config, struct state *state);
void state_free(struct state *state);

#endif
