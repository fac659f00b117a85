/* SPDX-License-Identifier: MIT */
/*
 * The plan: the fewest steps from the host's present state to the configured one. The
 * planner does no I/O and changes nothing, so that tests can run it on recorded states. No
 * step formats a device, destroys a pool, removes a tenant or disconnects a controller: a note
 * asks the operator instead.
 */
#ifndef KVBLKD_APPLY_PLAN_H
#define KVBLKD_APPLY_PLAN_H

#include "lib/kvblk_admin.h"
#include "config/config.h"
#include "host/tenant_keys.h"

/**
 * struct state_controller - a connection to an NVMe-oF subsystem, as sysfs shows it
 * @name: name of the controller, such as "nvme0"
 * @nqn: NQN of the subsystem
 * @transport: transport, such as "tcp"
 * @address: address of the target
 * @port: port of the target
 * @host_address: source address, or ""
 * @host_interface: source interface, or ""
 * @fast_io_fail: fast_io_fail_tmo: seconds, or "off"
 * @ctrl_loss: ctrl_loss_tmo: seconds, or "off"
 * @reconnect_delay: reconnect_delay: seconds, or "off"
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
 * struct state_tunables - tunables of a running pool
 * @pool: name of the pool
 * @value: values, by row of tunables[]
 */
struct state_tunables {
	char pool[KVBLK_NAME_LEN_MAX + 1];
	char value[TUNABLES_MAX][TUNABLE_LEN];
};

/**
 * struct state_link - a path named by the configuration or by a member
 * @path: the path
 * @device: resolved path; NULL: dangling
 */
struct state_link {
	const char *path;
	char *device;
};

/**
 * struct state_silence - a pool that another node of a pod has in use
 * @pool_uuid: the pool
 * @seconds: time since a member's last beat, or since kvblkd looked first
 */
struct state_silence {
	uint8_t pool_uuid[16];
	int64_t seconds;
};

/* Most members in &struct state_newest: all members of a pool, and some former ones. */
#define NEWEST_MEMBERS	128

/**
 * struct state_newest - newest state of a pool, as seen in this or an earlier run
 * @pool_uuid: the pool
 * @epoch: epoch of the pool
 * @list_seq: number of the list of members and tenants, in @epoch
 * @nr_members: entries of @members
 * @members: members, and the numbers of the superblocks
 */
struct state_newest {
	uint8_t pool_uuid[16];
	uint64_t epoch;
	uint64_t list_seq;
	size_t nr_members;
	struct {
		uint8_t uuid[16];
		uint64_t seq;
	} members[NEWEST_MEMBERS];
};

/**
 * struct state - state of the host
 * @modules: loaded modules, of those that plan_modules() lists
 * @controllers: NVMe-oF connections
 * @nr_controllers: entries of @controllers
 * @discovered: subsystems that the discovery controllers report
 * @nr_discovered: entries of @discovered
 * @pools: running pools
 * @members: members of all running pools
 * @foreign: members of other nodes that the running pools follow
 * @tenants: tenants of all running pools
 * @tunables: tunables of all running pools
 * @nr_tunables: entries of @tunables
 * @keys: tenants with kept keys, of running and found pools of the configuration
 * @nr_keys: entries of @keys
 * @newest: kept newest states of the configuration's pools
 * @nr_newest: entries of @newest
 * @found: members found on devices; NULL: none, or no scan was needed
 * @links: resolved paths
 * @nr_links: entries of @links
 * @settled: pools, controllers, modules (by plan_module()), foreign members (by
 *	plan_foreign()) and tenants (by plan_tenant()) whose settings were applied and are now
 *	left alone; a pool, module, foreign member or tenant listed here but missing was removed
 *	by the operator
 * @silences: pools of other nodes in @found, if plan_needs_beats()
 * @nr_silences: entries of @silences
 * @waited: seconds that each pool of the configuration has been awaited; NULL: none
 */
struct state {
	struct texts modules;
	struct state_controller *controllers;
	size_t nr_controllers;
	struct config_fabric *discovered;
	size_t nr_discovered;
	struct kvblk_pool_state *pools;
	struct kvblk_member_state *members;
	struct kvblk_member_state *foreign;
	struct kvblk_tenant_state *tenants;
	struct state_tunables *tunables;
	size_t nr_tunables;
	struct kept_key *keys;
	size_t nr_keys;
	struct state_newest *newest;
	size_t nr_newest;
	struct kvblk_found *found;
	struct state_link *links;
	size_t nr_links;
	struct texts settled;
	struct state_silence *silences;
	size_t nr_silences;
	int64_t *waited;
};

/**
 * enum step_kind - kinds of steps
 * @STEP_NOTE: no action; reports what is awaited or what the operator has to do
 * @STEP_LOAD: load the module @value
 * @STEP_CONNECT: connect to @fabric
 * @STEP_IMPORT: import @pool from @paths
 * @STEP_ADOPT: import @pool from @paths, the members of @node, whose reservations it preempts
 * @STEP_ADD: add the only entry of @paths to @pool
 * @STEP_FOLLOW: unfollow @replaced in @pool, then follow the only entry of @paths by the name
 *	@value
 * @STEP_SET: write @value to the only entry of @paths
 * @STEP_TENANT: create the tenant @value of @pool, with the node of @change; encrypted if there is
 *	@master
 * @STEP_TENANT_SET: change the tenant @value of @pool as @change says
 * @STEP_TENANT_KEY: give the kept key of the tenant @value of @pool
 * @STEP_KEY_REMOVE: remove the kept keys of @value, a removed tenant of @pool
 */
enum step_kind {
	STEP_NOTE,
	STEP_LOAD,
	STEP_CONNECT,
	STEP_IMPORT,
	STEP_ADOPT,
	STEP_ADD,
	STEP_FOLLOW,
	STEP_SET,
	STEP_TENANT,
	STEP_TENANT_SET,
	STEP_TENANT_KEY,
	STEP_KEY_REMOVE,
};

/**
 * struct step - a step of the plan
 * @next: next step, or NULL
 * @kind: &enum step_kind
 * @text: description; unique within the plan
 * @pool: name of the pool
 * @fabric: target of the connection; owned by configuration or state
 * @replaced: UUID of a foreign member, or NULL; owned by the state
 * @pool_uuid: UUID of @pool, of steps that use keys
 * @master: master key of a new encrypted tenant, or NULL; owned by the configuration
 * @paths: devices, or a file
 * @node: identity of the lost node
 * @degraded: import without the missing members
 * @hinted: follow only what the directory names
 * @may_fail: success of the step does not prove that it helped: a later plan shows that
 * @index_slots: index entries of an import, 0: unchanged
 * @value: value to write, module to load, or name of a member or tenant
 * @change: changes of a tenant; the text is owned by the configuration
 */
struct step {
	struct step *next;
	enum step_kind kind;
	char *text;
	char *pool;
	struct config_fabric *fabric;
	const uint8_t *replaced;
	uint8_t pool_uuid[16];
	const char *master;
	struct texts paths;
	uint8_t node[16];
	bool degraded;
	bool hinted;
	bool may_fail;
	uint64_t index_slots;
	char *value;
	struct kvblk_tenant_change change;
};

#define PLAN_MODULES	80

/* List the modules that @config needs, at most PLAN_MODULES. Returns their number. */
size_t plan_modules(const struct config *config, const char *names[PLAN_MODULES]);

#define PLAN_MODULE_LEN	72

/* Format the name of a module as state->settled lists it. Returns @buf. */
char *plan_module(const char *name, char buf[PLAN_MODULE_LEN]);

#define PLAN_FOREIGN_LEN	(KVBLK_NAME_LEN_MAX + 50)

/* Format @member of another node that @pool follows as state->settled lists it. Returns @buf. */
char *plan_foreign(const char *pool, const uint8_t member[16], char buf[PLAN_FOREIGN_LEN]);

#define PLAN_TENANT_LEN	(2 * KVBLK_NAME_LEN_MAX + 10)

/* Format the tenant @name of @pool as state->settled lists it. Returns @buf. */
char *plan_tenant(const char *pool, const char *name, char buf[PLAN_TENANT_LEN]);

/*
 * Returns true if a pool of @config follows others. The caller then plans every
 * PLAN_FOLLOW_GAP seconds, because no event reports what another node formats.
 */
bool plan_follows(const struct config *config, const struct state *state);

#define PLAN_FOLLOW_GAP	30

/*
 * Returns true if a pool of @config is down or incomplete, follows others, or adopts pools of
 * lost nodes, so that devices must be scanned.
 */
bool plan_needs_scan(const struct config *config, const struct state *state);

/* Returns true if a pool of @config adopts pools of lost nodes, so that beats must be read. */
bool plan_needs_beats(const struct config *config);

/* Returns true if @pool has encrypted tenants by the file: the newest state is then kept. */
bool plan_keeps(const struct config_pool *pool);

#define PLAN_KEEP_GAP	30

/* Returns whether @found may be used. */
bool plan_is_usable(const struct kvblk_found *found);

/* Returns whether a pool at @epoch with the list @list_seq is older than the other. */
bool plan_is_older(uint64_t epoch, uint64_t list_seq, uint64_t other_epoch,
		   uint64_t other_list_seq);

/*
 * Returns true if the pool, at @epoch with the list @list_seq, or a found member is older than the
 * kept state. Adds a note then, unless @steps is NULL.
 */
struct steps;
bool plan_is_rolled_back(const struct config_pool *wanted, const uint8_t uuid[16], uint64_t epoch,
			 uint64_t list_seq, const struct state *state, struct steps *steps);

/* Plan the steps from @state to @config. Returns 0 or -ENOMEM; free with steps_free(). */
int plan(const struct config *config, const struct state *state, struct step **steps);
void steps_free(struct step *steps);

/* Returns the connection to @fabric, or NULL. */
const struct state_controller *plan_controller(const struct state *state,
					       const struct config_fabric *fabric);

#endif
