/* SPDX-License-Identifier: MIT */
/* Exporter of metrics and readiness by HTTP, if configured. */
#ifndef KVBLKD_METRICS_EXPORTER_H
#define KVBLKD_METRICS_EXPORTER_H

#include <systemd/sd-event.h>

#include "config/config.h"

/**
 * struct exporter_facts - state of kvblkd
 * @config_valid: the last configuration read had no error
 * @steps_failed: failed steps of the last pass that are retried, reading the state included
 */
struct exporter_facts {
	bool config_valid;
	unsigned int steps_failed;
};

struct exporter;

/* Create the exporter. After a change of @config call exporter_follow(). Returns 0 or -errno. */
int exporter_new(sd_event *event, const struct config *config, const struct exporter_facts *facts,
		 struct exporter **handle);

/* Apply the present configuration: start, move or stop the listener. */
void exporter_follow(struct exporter *exporter);

#endif
