/* SPDX-License-Identifier: MIT */
/* The exporter: metrics and readiness by HTTP, where the configuration has it. */
#ifndef KVBLKD_EXPORTER_H
#define KVBLKD_EXPORTER_H

#include <systemd/sd-event.h>

#include "config.h"

struct exporter;

/* @config may change; exporter_follow() is due then. 0 or a negative errno. */
int exporter_new(sd_event *event, const struct config *config, struct exporter **handle);

/* Listens as the configuration has it now. */
void exporter_follow(struct exporter *exporter);

#endif
