// SPDX-License-Identifier: MIT
/* Read the state of the host, see host_state.h. Changes nothing. */
#include <errno.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>

#include "apply/host_state.h"
#include "apply/kmod.h"
#include "apply/newest.h"
#include "host/fabrics.h"

/* Read the first line of a file into @line; "" if there is no such file. */
static void read_line(const char *directory, const char *name, char *line, size_t len)
{
	char path[512];
	FILE *file;

	*line = '\0';
	snprintf(path, sizeof(path), "%s/%s", directory, name);
	file = fopen(path, "re");
	if (!file)
		return;
	if (fgets(line, (int)len, file))
		line[strcspn(line, "\n")] = '\0';
	else
		*line = '\0';
	fclose(file);
}

#define READ_LINE(directory, name, line) read_line(directory, name, line, sizeof(line))

/* Copy the value of @key from an address such as "traddr=192.0.2.1,trsvcid=4420". */
static void address_part(const char *address, const char *key, char *part, size_t len)
{
	size_t key_len = strlen(key);

	*part = '\0';
	while (address) {
		address += strspn(address, ",");
		if (!strncmp(address, key, key_len) && address[key_len] == '=') {
			address += key_len + 1;
			snprintf(part, len, "%.*s", (int)strcspn(address, ","), address);
			return;
		}
		address = strchr(address, ',');
	}
}

#define ADDRESS_PART(address, key, part) address_part(address, key, part, sizeof(part))

static void read_controller(const char *directory, struct state_controller *controller)
{
	char address[1024];

	*controller = (struct state_controller){ 0 };
	snprintf(controller->name, sizeof(controller->name), "%s", strrchr(directory, '/') + 1);
	READ_LINE(directory, "subsysnqn", controller->nqn);
	READ_LINE(directory, "transport", controller->transport);
	READ_LINE(directory, "fast_io_fail_tmo", controller->fast_io_fail);
	READ_LINE(directory, "ctrl_loss_tmo", controller->ctrl_loss);
	READ_LINE(directory, "reconnect_delay", controller->reconnect_delay);
	READ_LINE(directory, "address", address);
	ADDRESS_PART(address, "traddr", controller->address);
	ADDRESS_PART(address, "trsvcid", controller->port);
	ADDRESS_PART(address, "host_traddr", controller->host_address);
	ADDRESS_PART(address, "host_iface", controller->host_interface);
}

static int read_controllers(struct state *state)
{
	glob_t found;
	int err = glob("/sys/class/nvme/nvme*", 0, NULL, &found);

	if (err)
		return err == GLOB_NOMATCH ? 0 : -ENOMEM;
	state->controllers = calloc(found.gl_pathc, sizeof(*state->controllers));
	for (size_t i = 0; state->controllers && i < found.gl_pathc; i++)
		read_controller(found.gl_pathv[i], &state->controllers[state->nr_controllers++]);
	globfree(&found);
	return state->controllers ? 0 : -ENOMEM;
}

/*
 * Find the IP address of @fabric's host name if a connection made earlier or by hand may
 * exist. Tried once only, because a resolver that does not respond would delay every pass.
 */
static void look_up(const struct state *state, struct config_fabric *fabric)
{
	char ips[FABRICS_IPS][CONFIG_IP_LEN], why[256];
	size_t i, nr = 0;

	if (!fabric->named || *fabric->ip || fabric->looked)
		return;
	for (i = 0; i < state->nr_controllers; i++) {
		if (!strcmp(state->controllers[i].nqn, fabric->nqn))
			break;
	}
	fabric->looked = i < state->nr_controllers;
	if (fabric->looked)
		nr = fabrics_resolve(fabric->address, ips, why, sizeof(why));
	for (i = 0; i < nr; i++) {
		memcpy(fabric->ip, ips[i], sizeof(fabric->ip));
		if (plan_controller(state, fabric))
			return;
	}
	*fabric->ip = '\0';
}

static void look_up_names(const struct config *config, const struct state *state)
{
	for (size_t i = 0; i < config->nr_discovery; i++)
		look_up(state, &config->discovery[i]);
	for (size_t i = 0; i < config->nr_subsystems; i++)
		look_up(state, &config->subsystems[i]);
}

/* Read the log pages of the live discovery controllers. A controller that fails adds no entries. */
static void read_discovered(const struct config *config, struct state *state)
{
	const struct state_controller *controller;
	char directory[64], live[16];

	for (size_t i = 0; i < config->nr_discovery; i++) {
		controller = plan_controller(state, &config->discovery[i]);
		if (!controller)
			continue;
		snprintf(directory, sizeof(directory), "/sys/class/nvme/%s", controller->name);
		READ_LINE(directory, "state", live);
		if (!strcmp(live, "live"))
			fabrics_discover(controller->name, &config->discovery[i],
					 &state->discovered, &state->nr_discovered);
	}
}

static int read_modules(const struct config *config, struct state *state)
{
	const char *names[PLAN_MODULES];
	size_t nr = plan_modules(config, names);

	for (size_t i = 0; i < nr; i++) {
		if (modules_loaded(names[i]) && !texts_add(&state->modules, names[i]))
			return -ENOMEM;
	}
	return 0;
}

static int read_tunables(struct state *state)
{
	struct state_tunables *now;
	char directory[64];
	size_t nr = 0;

	for (const struct kvblk_pool_state *pool = state->pools; pool; pool = pool->next)
		nr++;
	if (!nr)
		return 0;
	state->tunables = calloc(nr, sizeof(*state->tunables));
	if (!state->tunables)
		return -ENOMEM;
	for (const struct kvblk_pool_state *pool = state->pools; pool; pool = pool->next) {
		now = &state->tunables[state->nr_tunables++];
		snprintf(now->pool, sizeof(now->pool), "%s", pool->name);
		snprintf(directory, sizeof(directory), "/sys/class/kvblk/%s", pool->name);
		for (size_t i = 0; i < nr_tunables; i++)
			READ_LINE(directory, tunables[i].name, now->value[i]);
	}
	return 0;
}

static int read_pools(struct state *state)
{
	struct kvblk_admin *admin;
	int err = kvblk_admin_open(&admin);

	/* -ENOENT: the module is not loaded, so there are no pools */
	if (err)
		return err == -ENOENT ? 0 : err;
	err = kvblk_pool_list(admin, NULL, &state->pools);
	if (!err)
		err = kvblk_member_list(admin, NULL, &state->members);
	if (!err)
		err = kvblk_foreign_list(admin, NULL, &state->foreign);
	/* an older module has no pods */
	if (err == -EOPNOTSUPP)
		err = 0;
	if (!err)
		err = kvblk_tenant_list(admin, NULL, &state->tenants);
	/* nor tenants */
	if (err == -EOPNOTSUPP)
		err = 0;
	kvblk_admin_close(admin);
	return err ? err : read_tunables(state);
}

static int add_link(struct state *state, const char *path)
{
	struct state_link *more = reallocarray(state->links, state->nr_links + 1, sizeof(*more));

	if (!more)
		return -ENOMEM;
	state->links = more;
	more[state->nr_links++] = (struct state_link){ path, realpath(path, NULL) };
	return 0;
}

static int read_links(const struct config *config, struct state *state)
{
	const struct kvblk_member_state *member;
	int err = 0;

	for (size_t i = 0; i < config->nr_pools; i++) {
		for (size_t j = 0; !err && j < config->pools[i].members.nr; j++) {
			if (*config->pools[i].members.text[j] == '/')
				err = add_link(state, config->pools[i].members.text[j]);
		}
	}
	for (member = state->members; !err && member; member = member->next)
		err = add_link(state, member->path);
	for (member = state->foreign; !err && member; member = member->next)
		err = add_link(state, member->path);
	return err;
}

/* Add the kept files of the pool @uuid, once. Returns 0 or a negative errno. */
static int read_kept_of(const uint8_t uuid[16], struct state *state)
{
	struct state_newest *more;
	int err;

	for (size_t i = 0; i < state->nr_newest; i++) {
		if (!memcmp(state->newest[i].pool_uuid, uuid, 16))
			return 0;
	}
	more = reallocarray(state->newest, state->nr_newest + 1, sizeof(*more));
	if (!more)
		return -ENOMEM;
	state->newest = more;
	more += state->nr_newest++;
	err = newest_read(uuid, more);
	/* an unreadable file allows no state at all, so that the note about the pool names the file */
	if (err && err != -ENOENT)
		more->epoch = UINT64_MAX;
	return tenant_key_list(uuid, &state->keys, &state->nr_keys);
}

/* Read the keys and newest states of the pools of @config. */
static int read_kept(const struct config *config, struct state *state)
{
	const struct config_pool *want = config->pools;
	int err = 0;

	for (; want < config->pools + config->nr_pools; want++) {
		for (const struct kvblk_pool_state *pool = state->pools; !err && pool; pool = pool->next) {
			if (!strcmp(pool->name, want->name))
				err = read_kept_of(pool->uuid, state);
		}
		for (const struct kvblk_found *found = state->found; !err && found; found = found->next) {
			if (plan_is_usable(found) && !strcmp(found->pool, want->name))
				err = read_kept_of(found->pool_uuid, state);
		}
	}
	return err;
}

/* Read the superblocks of running pools of @config with encrypted tenants. */
static int scan_kept(const struct config *config, struct state *state)
{
	const struct config_pool *want = config->pools;
	const struct kvblk_member_state *member;
	struct texts paths = { 0 };
	int err = 0;

	for (; want < config->pools + config->nr_pools; want++) {
		for (member = plan_keeps(want) ? state->members : NULL; !err && member;
		     member = member->next) {
			/* a silent device would delay the pass */
			if (!strcmp(member->pool, want->name) &&
			    member->state == KVBLK_MEMBER_STATUS_UP && !member->suspect &&
			    !texts_add(&paths, member->path))
				err = -ENOMEM;
		}
	}
	/* ignore errors: the module reports failing devices */
	if (!err && paths.nr)
		kvblk_scan((const char *const *)paths.text, paths.nr, &state->found);
	texts_free(&paths);
	return err;
}

int state_read(const struct config *config, struct state *state)
{
	int err = read_modules(config, state);

	if (!err)
		err = read_controllers(state);
	if (err)
		return err;
	look_up_names(config, state);
	read_discovered(config, state);
	err = read_pools(state);
	if (!err)
		err = read_links(config, state);
	if (!err && plan_needs_scan(config, state))
		err = kvblk_scan(NULL, 0, &state->found);
	else if (!err)
		err = scan_kept(config, state);
	return err ? err : read_kept(config, state);
}

void state_free(struct state *state)
{
	texts_free(&state->modules);
	free(state->controllers);
	fabrics_free(state->discovered, state->nr_discovered);
	kvblk_list_free(state->pools);
	kvblk_list_free(state->members);
	kvblk_list_free(state->foreign);
	kvblk_list_free(state->tenants);
	free(state->tunables);
	free(state->keys);
	free(state->newest);
	kvblk_list_free(state->found);
	for (size_t i = 0; i < state->nr_links; i++)
		free(state->links[i].device);
	free(state->links);
}
