// SPDX-License-Identifier: MIT
/*
 * The plan: modules and connections, see plan.h. plan_pool.c plans the pools, plan_follow.c what
 * they follow, plan_tenants.c their tenants.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "apply/plan_list.h"

struct step *add_step(struct steps *steps, enum step_kind kind, const char *format, ...)
{
	struct step *step = calloc(1, sizeof(*step));
	va_list args;
	int len;

	if (!step) {
		steps->no_memory = true;
		return NULL;
	}
	va_start(args, format);
	len = vasprintf(&step->text, format, args);
	va_end(args);
	if (len < 0) {
		free(step);
		steps->no_memory = true;
		return NULL;
	}
	step->kind = kind;
	*steps->last = step;
	steps->last = &step->next;
	return step;
}

void keep_text(struct steps *steps, char **text, const char *value)
{
	*text = strdup(value);
	steps->no_memory |= !*text;
}

void keep_path(struct steps *steps, struct step *step, const char *path)
{
	char **more = reallocarray(step->paths.text, step->paths.nr + 1, sizeof(*more));

	if (!more) {
		steps->no_memory = true;
		return;
	}
	step->paths.text = more;
	keep_text(steps, &more[step->paths.nr], path);
	step->paths.nr += !!more[step->paths.nr];
}

void add_setting(struct steps *steps, const char *what, const char *whose,
		 const char *was, const char *value, const char *directory, const char *file)
{
	struct step *step = add_step(steps, STEP_SET, "set %s of %s from %s to %s", what,
				     whose, was, value);
	char path[512];

	if (!step)
		return;
	snprintf(path, sizeof(path), "%s/%s", directory, file);
	keep_path(steps, step, path);
	keep_text(steps, &step->value, value);
}

void steps_free(struct step *steps)
{
	struct step *next;

	for (; steps; steps = next) {
		next = steps->next;
		for (size_t i = 0; i < steps->paths.nr; i++)
			free(steps->paths.text[i]);
		free(steps->paths.text);
		free(steps->text);
		free(steps->pool);
		free(steps->value);
		free(steps);
	}
}

bool is_settled(const struct state *state, const char *name)
{
	return texts_has(&state->settled, name);
}

static const struct {
	const char *transport;
	const char *module;
} transports[] = {
	{ "tcp", "nvme-tcp" },
	{ "rdma", "nvme-rdma" },
	{ "fc", "nvme-fc" },
	{ "loop", "nvme-loop" },
};

static size_t need(const char *names[PLAN_MODULES], size_t nr, const char *name)
{
	for (size_t i = 0; i < nr; i++) {
		if (!strcmp(names[i], name))
			return nr;
	}
	names[nr] = name;
	return nr + 1;
}

static bool uses(const struct config_fabric *fabrics, size_t nr, const char *transport)
{
	for (size_t i = 0; i < nr; i++) {
		if (!strcmp(fabrics[i].transport, transport))
			return true;
	}
	return false;
}

size_t plan_modules(const struct config *config, const char *names[PLAN_MODULES])
{
	size_t nr = 0;

	for (size_t i = 0; i < config->modules.nr; i++)
		nr = need(names, nr, config->modules.text[i]);
	for (size_t i = 0; i < sizeof(transports) / sizeof(transports[0]); i++) {
		if (uses(config->subsystems, config->nr_subsystems, transports[i].transport) ||
		    uses(config->discovery, config->nr_discovery, transports[i].transport))
			nr = need(names, nr, transports[i].module);
	}
	return config->nr_pools ? need(names, nr, "kvblk") : nr;
}

char *plan_module(const char *name, char buf[PLAN_MODULE_LEN])
{
	/* the space keeps module names apart from pool names, which never contain one */
	snprintf(buf, PLAN_MODULE_LEN, "module %s", name);
	return buf;
}

static void plan_loads(const struct config *config, const struct state *state,
		       struct steps *steps)
{
	const char *names[PLAN_MODULES];
	size_t nr = plan_modules(config, names), i, have;
	char settled[PLAN_MODULE_LEN];
	struct step *step;

	for (i = 0; i < nr; i++) {
		for (have = 0; have < state->modules.nr; have++) {
			if (!strcmp(state->modules.text[have], names[i]))
				break;
		}
		if (have < state->modules.nr)
			continue;
		if (is_settled(state, plan_module(names[i], settled))) {
			add_step(steps, STEP_NOTE, "module %s was unloaded; to load it again, run modprobe or reload kvblkd",
				 names[i]);
			continue;
		}
		step = add_step(steps, STEP_LOAD, "load module %s", names[i]);
		if (step)
			keep_text(steps, &step->value, names[i]);
	}
}

static bool same_address(const char *a, const char *b)
{
	struct in6_addr six[2];

	if (inet_pton(AF_INET6, a, &six[0]) == 1 && inet_pton(AF_INET6, b, &six[1]) == 1)
		return !memcmp(&six[0], &six[1], sizeof(six[0]));
	return !strcmp(a, b);
}

/* Returns the address as sysfs shows it: a host name resolved, "" if that failed. */
static const char *address_of(const struct config_fabric *fabric)
{
	return fabric->named ? fabric->ip : fabric->address;
}

static bool is_connection(const struct state_controller *controller,
			  const struct config_fabric *fabric)
{
	char port[24];

	snprintf(port, sizeof(port), "%" PRId64, fabric->port);
	if (strcmp(controller->nqn, fabric->nqn) != 0 ||
	    strcmp(controller->transport, fabric->transport) != 0)
		return false;
	if (fabric->address && !same_address(controller->address, address_of(fabric)))
		return false;
	if (*controller->port && strcmp(controller->port, port) != 0)
		return false;
	return (!fabric->host_address ||
		same_address(controller->host_address, fabric->host_address)) &&
	       (!fabric->host_interface ||
		!strcmp(controller->host_interface, fabric->host_interface));
}

const struct state_controller *plan_controller(const struct state *state,
					       const struct config_fabric *fabric)
{
	for (size_t i = 0; i < state->nr_controllers; i++) {
		if (is_connection(&state->controllers[i], fabric))
			return &state->controllers[i];
	}
	return NULL;
}

/* Format a number of seconds as sysfs shows it. */
static const char *seconds(int64_t value, char buf[24])
{
	if (value < 0)
		return "off";
	snprintf(buf, 24, "%" PRId64, value);
	return buf;
}

/*
 * Plan the timeouts of a connection. The driver stores ctrl_loss_tmo as a number of tries:
 * it shows a multiple of reconnect_delay, and a new reconnect_delay changes the value.
 */
static void plan_timeouts(const struct state_controller *controller,
			  const struct config_fabric *fabric, struct steps *steps)
{
	int64_t delay = fabric->reconnect_delay, loss = fabric->ctrl_loss;
	char directory[64], whose[320], value[24], shown[24];
	bool delay_changes = strcmp(controller->reconnect_delay, seconds(delay, value)) != 0;

	snprintf(directory, sizeof(directory), "/sys/class/nvme/%s", controller->name);
	snprintf(whose, sizeof(whose), "%s (%s)", controller->name, controller->nqn);
	if (delay_changes)
		add_setting(steps, "reconnect_delay", whose, controller->reconnect_delay,
			    seconds(delay, value), directory, "reconnect_delay");
	seconds(loss < 0 ? loss : (loss + delay - 1) / delay * delay, shown);
	if (delay_changes || strcmp(controller->ctrl_loss, loss < 0 ? "off" : shown) != 0)
		add_setting(steps, "ctrl_loss", whose, controller->ctrl_loss,
			    loss < 0 ? "-1" : seconds(loss, value), directory, "ctrl_loss_tmo");
	if (strcmp(controller->fast_io_fail, seconds(fabric->fast_io_fail, value)) != 0)
		add_setting(steps, "fast_io_fail", whose, controller->fast_io_fail,
			    fabric->fast_io_fail < 0 ? "-1" : value, directory, "fast_io_fail_tmo");
}

static void plan_connection(const struct state *state, struct config_fabric *fabric,
			    struct steps *steps)
{
	const struct state_controller *controller = plan_controller(state, fabric);
	struct step *step;

	if (controller) {
		if (!is_settled(state, controller->name) &&
		    strcmp(fabric->nqn, CONFIG_DISCOVERY_NQN) != 0)
			plan_timeouts(controller, fabric, steps);
		return;
	}
	step = add_step(steps, STEP_CONNECT, "connect to %s, %s %s port %" PRId64,
			fabric->nqn, fabric->transport,
			fabric->address ? fabric->address : "-", fabric->port);
	if (step)
		step->fabric = fabric;
}

static bool same_target(const struct config_fabric *a, const struct config_fabric *b)
{
	return !strcmp(a->nqn, b->nqn) && !strcmp(a->transport, b->transport) &&
	       a->address && b->address && same_address(address_of(a), address_of(b)) &&
	       a->port == b->port;
}

/* Returns true if the configuration or an earlier discovery entry has the same target. */
static bool is_known(const struct config *config, const struct state *state, size_t discovered)
{
	const struct config_fabric *fabric = &state->discovered[discovered];

	for (size_t i = 0; i < config->nr_subsystems; i++) {
		if (same_target(&config->subsystems[i], fabric))
			return true;
	}
	for (size_t i = 0; i < discovered; i++) {
		if (same_target(&state->discovered[i], fabric))
			return true;
	}
	return false;
}

static void plan_connections(const struct config *config, const struct state *state,
			     struct steps *steps)
{
	for (size_t i = 0; i < config->nr_discovery; i++)
		plan_connection(state, &config->discovery[i], steps);
	for (size_t i = 0; i < config->nr_subsystems; i++)
		plan_connection(state, &config->subsystems[i], steps);
	for (size_t i = 0; i < state->nr_discovered; i++) {
		if (!is_known(config, state, i))
			plan_connection(state, &state->discovered[i], steps);
	}
}

int plan(const struct config *config, const struct state *state, struct step **list)
{
	struct steps steps = { .last = &steps.first };

	plan_loads(config, state, &steps);
	plan_connections(config, state, &steps);
	plan_pools(config, state, &steps);
	plan_adopt(config, state, &steps);
	if (steps.no_memory) {
		steps_free(steps.first);
		return -ENOMEM;
	}
	*list = steps.first;
	return 0;
}
