/* SPDX-License-Identifier: MIT */
/* The exporter: metrics and readiness by HTTP, where the configuration has it. */
#ifndef KVBLKD_EXPORTER_H
#define KVBLKD_EXPORTER_H

#include <systemd/sd-event.h>

#include "config/config.h"

/**
 * struct exporter_facts - what kvblkd has to say of itself
 * @config_valid: the configuration that was read last had no error
 * @steps_failed: steps to what it describes, reading the state among them, that failed and are tried again
 */
struct exporter_facts {
	bool config_valid;
	unsigned int steps_failed;
};

struct exporter;

/* @config may change; exporter_follow() is due then. @facts may, too. 0 or a negative errno. */
int exporter_new(sd_event *event, const struct config *config, const struct exporter_facts *facts,
		 struct exporter **handle);

/* Listens as the configuration has it now. */
void exporter_follow(struct exporter *exporter);

#endif
