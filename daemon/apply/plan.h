/* SPDX-License-Identifier: MIT */
/*
 * From the state that a host is to have and the one that it has to a list of steps, as
 * few as can be. The rules: it asks nobody and changes nothing, so that it is tested on
 * states that were written down. No step formats a device, takes a pool down or
 * disconnects anything: where that would be needed, a note says so.
 */
#ifndef KVBLKD_PLAN_H
#define KVBLKD_PLAN_H

#include "kvblk.h"
#include "config/config.h"

/**
 * struct state_controller - a connection to an NVMe-oF subsystem, as sysfs shows it
 * @name: of the controller, as "nvme0"
 * @nqn: of the subsystem
 * @transport: "tcp" and the like
 * @address: of the target
 * @port: of the target
 * @host_address: that it is reached from, or ""
 * @host_interface: likewise
 * @fast_io_fail: seconds, or "off"
 * @ctrl_loss: likewise
 * @reconnect_delay: likewise
 */
struct state_controller {
	char name[32];
	char nqn[256];
	char transport[8];
	char address[256];
	char port[32];
	char host_address[256];
	char host_interface[32];
	char fast_io_fail[16];
	char ctrl_loss[16];
	char reconnect_delay[16];
};

/**
 * struct state_tunables - those of a pool that is up
 * @pool: its name
 * @value: by row
 */
struct state_tunables {
	char pool[KVBLK_NAME_LEN_MAX + 1];
	char value[TUNABLES_MAX][TUNABLE_LEN];
};

/**
 * struct state_link - a path that the configuration names
 * @path: the path
 * @device: what it leads to; NULL: to nothing
 */
struct state_link {
	const char *path;
	char *device;
};

/**
 * struct state - the state that a host has
 * @modules: those of plan_modules() that are loaded
 * @controllers: the connections
 * @nr_controllers: how many
 * @discovered: what the discovery controllers tell of
 * @nr_discovered: how many
 * @pools: that are up
 * @members: of all of them
 * @tunables: of all of them
 * @nr_tunables: how many
 * @found: members on devices; NULL: none, or nobody had to look
 * @links: paths of the configuration
 * @nr_links: how many
 * @settled: names of pools and controllers that keep what they are set to, and of modules
 *	(plan_module()); a pool or a module that is among them and not there was taken away
 *	by somebody
 * @waited: seconds that each pool of the configuration has been waited for; NULL: none
 */
struct state {
	struct texts modules;
	struct state_controller *controllers;
	size_t nr_controllers;
	struct config_fabric *discovered;
	size_t nr_discovered;
	struct kvblk_pool_state *pools;
	struct kvblk_member_state *members;
	struct state_tunables *tunables;
	size_t nr_tunables;
	struct kvblk_found *found;
	struct state_link *links;
	size_t nr_links;
	struct texts settled;
	int64_t *waited;
};

/**
 * enum step_kind - what a step does
 * @STEP_NOTE: nothing: it tells what an operator has to do, or what is waited for
 * @STEP_LOAD: load the module @value
 * @STEP_CONNECT: connect to @fabric
 * @STEP_IMPORT: import @pool from @paths
 * @STEP_ADD: add the one of @paths to @pool
 * @STEP_SET: write @value to the one of @paths
 */
enum step_kind {
	STEP_NOTE,
	STEP_LOAD,
	STEP_CONNECT,
	STEP_IMPORT,
	STEP_ADD,
	STEP_SET,
};

/**
 * struct step - one of a list
 * @next: the next one, or NULL
 * @kind: &enum step_kind
 * @text: the step in words; no two steps have the same ones
 * @pool: its name
 * @fabric: belongs to configuration or state
 * @paths: of devices, or of a file
 * @degraded: import without the members that are missing
 * @may_fail: done does not mean that it helped: the plan shows it
 * @index_slots: entries of the index of an import, 0: as many as before
 * @value: to write, or the module
 */
struct step {
	struct step *next;
	enum step_kind kind;
	char *text;
	char *pool;
	struct config_fabric *fabric;
	struct texts paths;
	bool degraded;
	bool may_fail;
	uint64_t index_slots;
	char *value;
};

#define PLAN_MODULES	80

/* The modules that @config needs, at most PLAN_MODULES; returns how many. */
size_t plan_modules(const struct config *config, const char *names[PLAN_MODULES]);

#define PLAN_MODULE_LEN	72

/* What the module is called among what is settled: to @buf, which is returned. */
char *plan_module(const char *name, char buf[PLAN_MODULE_LEN]);

/* Whether some pool of @config is not up or not whole: devices must be looked at. */
bool plan_needs_scan(const struct config *config, const struct state *state);

/* The steps from @state to @config: 0, or -ENOMEM; steps_free() frees them. */
int plan(const struct config *config, const struct state *state, struct step **steps);
void steps_free(struct step *steps);

/* The connection to @fabric, or NULL. */
const struct state_controller *plan_controller(const struct state *state,
					       const struct config_fabric *fabric);

#endif
