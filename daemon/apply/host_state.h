/* SPDX-License-Identifier: MIT */
/* The state that a host has: of the kernel, sysfs and the devices, see plan.h. */
#ifndef KVBLKD_STATE_H
#define KVBLKD_STATE_H

#include "apply/plan.h"

/*
 * Reads what a plan for @config needs: 0 or a negative errno. Devices are read only if
 * a pool of @config is not up or not whole. state_free() is due in any case; settled
 * and waited are left alone by both.
 */
int state_read(const struct config *config, struct state *state);
void state_free(struct state *state);

#endif
