/* SPDX-License-Identifier: MIT */
/* Main loop of kvblkd: log events and apply the configuration to the host. */
#ifndef KVBLKD_LOOP_H
#define KVBLKD_LOOP_H

/* Run until SIGTERM or SIGINT. Returns an exit code. */
int loop(const char *config_path);

#endif
