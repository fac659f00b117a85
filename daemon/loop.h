/* SPDX-License-Identifier: MIT */
/* kvblkd's loop: events are logged, and the host is kept as the configuration has it. */
#ifndef KVBLKD_LOOP_H
#define KVBLKD_LOOP_H

/* Returns when a signal asks for it: an exit code. */
int loop(const char *config_path);

#endif
