// SPDX-License-Identifier: MIT
/* kvblk topo: options, routes and output; topo_scan.c collects the rest. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/options.h"
#include "host/topo.h"

#define POOLS_MAX	256
/* width of the members' names in a line, unless a name is longer */
#define MEMBERS_WIDTH	40

struct topo_args {
	struct cli_list list;
	bool lines;
	struct cli_words pools;
};

/*
 * struct pair - a device, a pool and one of its members @words: why blocks do not move
 * directly @next: another pair with the same route, see link_groups() @linked: the pair is
 * the @next of another pair
 */
struct pair {
	const struct topo_device *device;
	const struct topo_pool *pool;
	const struct topo_member *member;
	struct kvblk_route_state route;
	const char *words;
	const struct pair *next;
	bool linked;
};

#define AT(field) CLI_FIELD(struct topo_args, field)

static const struct cli_option topo_options[] = {
	{ "lines", 'l', CLI_FLAG, AT(lines), NULL,
	  "One line for each device and member, instead of grouping members with the same route" },
	{ 0 },
};

static const struct cli_option topo_arguments[] = {
	{ "POOL", 0, CLI_WORDS, AT(pools) },
	{ 0 },
};

static void check_topo(const struct argp_state *state, void *values)
{
	const struct topo_args *args = values;

	if (args->pools.nr > POOLS_MAX)
		cli_usage(state, "at most %d pools", POOLS_MAX);
	for (size_t i = 0; i < args->pools.nr; i++)
		cli_check_name(state, "pool", args->pools.words[i]);
}

static const struct cli_syntax topo_syntax = {
	.options = topo_options,
	.arguments = topo_arguments,
	.check = check_topo,
	.usage = "[POOL...]",
	.doc = "Show the GPUs and other PCI devices with memory that members of POOL, or of all pools, can reach directly: which members do, and why others do not.\v"
	       "Example:\n  kvblk topo kv0\n\n"
	       "Nothing is tried: a route is unknown until a put or get has used the device's memory.",
};

static bool is_wanted(const struct topo_args *args, const char *pool)
{
	for (size_t i = 0; i < args->pools.nr; i++) {
		if (!strcmp(args->pools.words[i], pool))
			return true;
	}
	return !args->pools.nr;
}

/* Print which requested pool does not exist. Returns an enum cli_exit. */
static int check_pools(const struct topo_args *args, const struct topo *topo)
{
	for (size_t i = 0; i < args->pools.nr; i++) {
		bool found = false;

		for (size_t j = 0; j < topo->nr_pools; j++)
			found |= !strcmp(topo->pools[j].name, args->pools.words[i]);
		if (found)
			continue;
		if (!topo->module)
			return cli_no_module(args->pools.words[i]);
		return cli_no_pool(args->pools.words[i]);
	}
	return CLI_OK;
}

/* Read the routes of a member. A dead or removed member has none. */
static int ask_member(struct kvblk_admin *admin, const char *pool,
		      struct topo_member *member)
{
	int err = kvblk_route_list(admin, pool, member->name, &member->routes);

	member->gone = err == -ENOENT;
	if (err && err != -ENOENT)
		return cli_admin_fail(admin, err, member->name);
	return CLI_OK;
}

/* Add the routes, if any device can have one. Returns an enum cli_exit. */
static int ask_routes(const struct topo_args *args, struct topo *topo)
{
	struct kvblk_admin *admin;
	int ret = CLI_OK;

	if (!topo->nr_pools || !topo->nr_devices || !topo->devices[0].provider)
		return CLI_OK;
	admin = cli_open_admin();
	for (size_t i = 0; i < topo->nr_pools; i++) {
		struct topo_pool *pool = &topo->pools[i];

		for (size_t j = 0; !ret && j < pool->nr_members; j++) {
			if (is_wanted(args, pool->name))
				ret = ask_member(admin, pool->name,
						 &pool->members[j]);
		}
	}
	kvblk_admin_close(admin);
	return ret;
}

/* ---- JSON ---- */

static json_t *text_or_null(const char *text)
{
	return *text ? json_string(text) : json_null();
}

static json_t *json_device(const struct topo *topo,
			   const struct topo_device *device)
{
	char kind[64], words[160], pci[10];
	json_t *memory = json_null();

	if (device->provider)
		memory = json_pack("{s:I, s:I, s:b}",
			"size", (json_int_t)device->size,
			"available", (json_int_t)device->available,
			"published", (int)device->published);
	snprintf(pci, sizeof(pci), "%04x:%04x", device->vendor, device->device);
	return json_pack("{s:s, s:s, s:s, s:o, s:o, s:o, s:o}",
		"address", device->address,
		"pci_id", pci,
		"kind", topo_kind(device, kind, sizeof(kind)),
		"driver", text_or_null(device->driver),
		"numa_node", device->numa_node < 0 ? json_null() :
						     json_integer(device->numa_node),
		"p2pmem", memory,
		"reason", text_or_null(topo_device_words(topo, device, words,
							 sizeof(words))));
}

static json_t *json_member(const struct topo *topo, const struct topo_pool *pool,
			   const struct topo_member *member)
{
	json_t *routes = json_array();

	for (size_t i = 0; i < topo->nr_devices; i++) {
		const struct topo_device *device = &topo->devices[i];
		struct kvblk_route_state route;

		if (!device->provider)
			continue;
		route = topo_route(device, member);
		json_array_append_new(routes, json_pack("{s:s, s:o, s:s, s:o, s:o}",
			"device", device->address,
			"distance", route.distance < 0 ? json_null() :
							 json_integer(route.distance),
			"route", kvblk_name(KVBLK_NAME_ROUTE_STATUS, route.state),
			"why", text_or_null(route.why),
			"reason", text_or_null(topo_route_words(pool, member,
								&route))));
	}
	return json_pack("{s:s, s:o, s:o}", "name", member->name,
			 "transport", text_or_null(member->transport),
			 "routes", routes);
}

static json_t *json_topo(const struct topo_args *args, const struct topo *topo)
{
	json_t *devices = json_array(), *pools = json_array();

	for (size_t i = 0; i < topo->nr_devices; i++)
		json_array_append_new(devices,
				      json_device(topo, &topo->devices[i]));
	for (size_t i = 0; i < topo->nr_pools; i++) {
		const struct topo_pool *pool = &topo->pools[i];
		json_t *members = json_array();

		if (!is_wanted(args, pool->name)) {
			json_decref(members);
			continue;
		}
		for (size_t j = 0; j < pool->nr_members; j++)
			json_array_append_new(members,
				json_member(topo, pool, &pool->members[j]));
		json_array_append_new(pools, json_pack("{s:s, s:s, s:b, s:o}",
			"name", pool->name, "integrity", pool->integrity,
			"strict", (int)pool->strict, "members", members));
	}
	return json_pack("{s:b, s:o, s:o, s:o}", "module", (int)topo->module,
			 "p2pdma", topo->p2pdma < 0 ? json_null() :
						      json_boolean(topo->p2pdma),
			 "devices", devices, "pools", pools);
}

/* ---- text ---- */

static void print_devices(const struct topo *topo)
{
	char kind[64], words[160];

	printf("%-12s  %-20s %-14s %4s %10s %10s  %s\n", "DEVICE", "KIND",
	       "DRIVER", "NUMA", "P2P MEMORY", "AVAILABLE", "NOTE");
	for (size_t i = 0; i < topo->nr_devices; i++) {
		const struct topo_device *device = &topo->devices[i];
		char size[32] = "-", available[32] = "-", node[16] = "-";

		if (device->provider) {
			cli_format_bytes(device->size, size, sizeof(size));
			cli_format_bytes(device->available, available,
					 sizeof(available));
		}
		if (device->numa_node >= 0)
			snprintf(node, sizeof(node), "%d", device->numa_node);
		topo_device_words(topo, device, words, sizeof(words));
		printf("%-12s  %-20s %-14s %4s %10s %10s%s%s\n", device->address,
		       topo_kind(device, kind, sizeof(kind)),
		       *device->driver ? device->driver : "-", node, size,
		       available, *words ? "  " : "", words);
	}
}

static bool same_route(const struct pair *a, const struct pair *b)
{
	return a->device == b->device && a->pool == b->pool &&
	       a->route.distance == b->route.distance &&
	       a->route.state == b->route.state &&
	       !strcmp(a->words, b->words);
}

/*
 * Write as many names of the group to @line as fit, at least one. Returns the first pair
 * that does not fit.
 */
static const struct pair *join_names(const struct pair *pair, char *line,
				     size_t len)
{
	const struct pair *first = pair;
	size_t used = 0;

	for (; pair; pair = pair->next) {
		const char *name = pair->member->name;

		if (pair != first && used + 1 + strlen(name) > MEMBERS_WIDTH)
			break;
		used += (size_t)snprintf(line + used, len - used, "%s%s",
					 pair != first ? " " : "", name);
	}
	return pair;
}

/* Print members with the same route: the first line, then the remaining names. */
static void print_group(const struct pair *first, int width)
{
	char names[MEMBERS_WIDTH + TOPO_NAME], distance[16] = "-";
	const struct pair *rest = join_names(first, names, sizeof(names));

	if (first->route.distance >= 0)
		snprintf(distance, sizeof(distance), "%d", first->route.distance);
	printf("%-12s  %-12s %-8s %8s  ", first->device->address,
	       first->pool->name, kvblk_name(KVBLK_NAME_ROUTE_STATUS, first->route.state), distance);
	if (*first->words)
		printf("%-*s  %s\n", width, names, first->words);
	else
		printf("%s\n", names);
	while (rest) {
		rest = join_names(rest, names, sizeof(names));
		printf("%46s%s\n", "", names);
	}
}

static void link_groups(struct pair *pairs, size_t nr)
{
	for (size_t i = 0; i < nr; i++) {
		struct pair *last = &pairs[i];

		for (size_t j = i + 1; j < nr && !pairs[i].linked; j++) {
			if (pairs[j].linked || !same_route(&pairs[i], &pairs[j]))
				continue;
			pairs[j].linked = true;
			last->next = &pairs[j];
			last = &pairs[j];
		}
	}
}

static void print_groups(const struct pair *pairs, size_t nr)
{
	char names[MEMBERS_WIDTH + TOPO_NAME];
	int width = (int)strlen("MEMBERS");

	for (size_t i = 0; i < nr; i++) {
		join_names(&pairs[i], names, sizeof(names));
		if (!pairs[i].linked && (int)strlen(names) > width)
			width = (int)strlen(names);
	}
	printf("\n%-12s  %-12s %-8s %8s  %-*s  %s\n", "DEVICE", "POOL", "ROUTE",
	       "DISTANCE", width, "MEMBERS", "WHY");
	for (size_t i = 0; i < nr; i++) {
		if (!pairs[i].linked)
			print_group(&pairs[i], width);
	}
}

/* Sort the best routes first. */
static int by_route(const void *a, const void *b)
{
	static const unsigned int order[] = {
		KVBLK_ROUTE_STATUS_DIRECT,
		KVBLK_ROUTE_STATUS_TRIAL,
		KVBLK_ROUTE_STATUS_UNKNOWN,
	};
	const struct pair *pairs[] = { a, b };
	int rank[2];

	for (int i = 0; i < 2; i++) {
		rank[i] = 0;
		while (rank[i] < (int)ARRAY_SIZE(order) &&
		       pairs[i]->route.state != order[rank[i]])
			rank[i]++;
	}
	if (rank[0] != rank[1])
		return rank[0] - rank[1];
	return pairs[0]->member < pairs[1]->member ? -1 : 1;
}

/* Write all pairs of a device and a pool's members to @pairs. Returns their number. */
static size_t find_pairs(const struct topo_device *device,
			 const struct topo_pool *pool, struct pair *pairs)
{
	for (size_t i = 0; i < pool->nr_members; i++) {
		pairs[i].device = device;
		pairs[i].pool = pool;
		pairs[i].member = &pool->members[i];
		pairs[i].route = topo_route(device, &pool->members[i]);
	}
	qsort(pairs, pool->nr_members, sizeof(*pairs), by_route);
	return pool->nr_members;
}

static int print_routes(const struct topo_args *args, const struct topo *topo)
{
	struct pair *pairs;
	size_t room = 1, nr = 0;

	for (size_t i = 0; i < topo->nr_pools; i++)
		room += topo->nr_devices * topo->pools[i].nr_members;
	pairs = calloc(room, sizeof(*pairs));
	if (!pairs)
		return cli_fail("no memory for so many routes");
	for (size_t d = 0; d < topo->nr_devices; d++) {
		for (size_t i = 0; i < topo->nr_pools; i++) {
			if (topo->devices[d].provider &&
			    is_wanted(args, topo->pools[i].name))
				nr += find_pairs(&topo->devices[d],
						 &topo->pools[i], pairs + nr);
		}
	}
	/* the words may be part of the route, so the array must not move any more */
	for (size_t i = 0; i < nr; i++)
		pairs[i].words = topo_route_words(pairs[i].pool, pairs[i].member,
						  &pairs[i].route);
	if (!args->lines)
		link_groups(pairs, nr);
	if (nr)
		print_groups(pairs, nr);
	free(pairs);
	return cli_flush();
}

static int print_topo(const struct topo_args *args, const struct topo *topo)
{
	if (!topo->nr_devices) {
		puts("no GPU, and no other PCI device with P2P memory");
		return cli_flush();
	}
	print_devices(topo);
	return print_routes(args, topo);
}

int topo_main(int argc, char **argv)
{
	struct topo_args args = { 0 };
	struct topo topo;
	int ret;

	cli_parse(&topo_syntax, argc, argv, &args);
	if (topo_scan("", &topo)) {
		topo_free(&topo);
		return cli_fail("no memory for what sysfs tells");
	}
	ret = check_pools(&args, &topo);
	if (!ret)
		ret = ask_routes(&args, &topo);
	if (!ret)
		ret = args.list.json ? cli_print_json(json_topo(&args, &topo)) :
				  print_topo(&args, &topo);
	if (!ret && !topo.module)
		ret = cli_no_module(NULL);
	topo_free(&topo);
	return ret;
}
