/* SPDX-License-Identifier: MIT */
/*
 * What this host's pools exchange with the other nodes of their pods, in a thread with a copy of
 * the configuration. A dead kvblkd costs hits and deletes of foreign blocks, and nothing else.
 */
#ifndef KVBLKD_POD_POD_H
#define KVBLKD_POD_POD_H

#include "config/config.h"

/* Set the configuration. Errors are logged, and the failed action is retried. */
void pod_configure(const struct config *config);

#endif
