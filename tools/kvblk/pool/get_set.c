// SPDX-License-Identifier: MIT
/*
 * kvblk pool get, kvblk pool set: tunables of a pool, live through sysfs. --save also writes
 * them to a drop-in of kvblkd.conf, one file for each pool.
 *
 * The rule: all values are checked before the first one is written. A file appears under its
 * name only when it is complete.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libconfig.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/options.h"
#include "common/tunables.h"
#include "pool/pool.h"

#define DROP_IN_DIR	"/etc/kvblk/kvblkd.conf.d"

struct tunable_args {
	struct cli_list list;
	bool save;
	const char *dir;
	const char *pool;
	const struct tunable *only;		/* get: the tunable to print; NULL: all */
	char value[TUNABLES_MAX][TUNABLE_LEN];	/* set: the new values; "": unchanged */
};

/* ---- sysfs ---- */

static int open_tunable(const char *pool, const struct tunable *tunable, int flags)
{
	char path[128];

	snprintf(path, sizeof(path), "/sys/class/kvblk/%s/%s", pool, tunable->name);
	return open(path, flags | O_CLOEXEC);
}

/* Returns 0 or an errno. */
static int read_tunable(const char *pool, const struct tunable *tunable,
			char value[TUNABLE_LEN])
{
	int fd = open_tunable(pool, tunable, O_RDONLY), err = 0;
	ssize_t len = 0;

	if (fd < 0)
		return errno;
	len = read(fd, value, TUNABLE_LEN - 1);
	if (len < 0)
		err = errno;
	close(fd);
	value[len < 0 ? 0 : len] = '\0';
	value[strcspn(value, "\n")] = '\0';
	return err;
}

static int write_tunable(const char *pool, const struct tunable *tunable, const char *value)
{
	int fd = open_tunable(pool, tunable, O_WRONLY), err = 0;

	if (fd < 0)
		return errno;
	if (write(fd, value, strlen(value)) < 0)
		err = errno;
	close(fd);
	return err;
}

/* Print whether the pool, the module or only this tunable is missing. Returns CLI_ERROR. */
static int no_tunable(const char *pool, const struct tunable *tunable, int err)
{
	char path[128];

	snprintf(path, sizeof(path), "/sys/class/kvblk/%s", pool);
	if (err == ENOENT && access("/sys/class/kvblk", F_OK))
		return cli_no_module(pool);
	if (err == ENOENT && access(path, F_OK))
		return cli_no_pool(pool);
	if (err == ENOENT)
		return cli_fail("%s: the module that is loaded has no %s", pool, tunable->name);
	return cli_fail("%s: %s: %s", pool, tunable->name, strerror(err));
}

/* ---- get ---- */

static const struct tunable *find_tunable(const struct argp_state *state, const char *name)
{
	const struct tunable *tunable = tunable_find(name);
	char names[512] = "";
	size_t len = 0;

	for (size_t i = 0; !tunable && i < nr_tunables; i++)
		len += (size_t)snprintf(names + len, sizeof(names) - len, "%s%s",
					i ? ", " : "", tunables[i].name);
	if (!tunable)
		cli_usage(state, "there is no tunable \"%s\"; there are %s", name, names);
	return tunable;
}

static void take_tunable(struct argp_state *state, const char *name, void *field)
{
	*(const struct tunable **)field = find_tunable(state, name);
}

#define AT(field) CLI_FIELD(struct tunable_args, field)

static const struct cli_option get_arguments[] = {
	{ "POOL", 0, CLI_POOL, AT(pool), .required = true },
	{ "NAME", 0, CLI_CALL, AT(only), .take = take_tunable },
	{ 0 },
};

static const struct cli_syntax get_syntax = {
	.arguments = get_arguments,
	.list = true,
	.usage = "POOL [NAME]",
	.doc = "Print the tunables of POOL with defaults and allowed values, or the value of the tunable NAME.\v"
	       "Example:\n  kvblk pool get kv0 suspect_ms",
};

static const struct cli_column columns[] = {
	{ "NAME", -18 }, { "VALUE", -12 }, { "SOURCE", -7 }, { "DEFAULT", -12 }, { "UNIT", -8 },
	{ "ALLOWED", -1 }, { 0 },
};

static void print_one(const struct cli_list *list, const struct tunable *tunable,
		      const char *value)
{
	const char *unit = tunable_unit(tunable);
	char allowed[96], standard[TUNABLE_LEN];
	const char *cells[] = {
		tunable->name, value, "set", standard, *unit || list->bare ? unit : "-",
		tunable_allowed(tunable, allowed, sizeof(allowed)),
	};

	tunable_show(tunable, tunable->standard, standard);
	if (!strcmp(value, standard))
		cells[2] = "default";
	cli_print_row(list, columns, cells);
}

/* Returns @value as a number if it is one, else as a string. */
static json_t *json_value(const char *value)
{
	bool negative = *value == '-';
	uint64_t number;

	if (!tunable_number(value + negative, &number))
		return json_string(value);
	return json_integer(negative ? -(json_int_t)number : (json_int_t)number);
}

int tunable_get_main(int argc, char **argv)
{
	struct tunable_args args = { 0 };
	char value[TUNABLE_LEN] = "";
	json_t *object;
	int err;

	cli_parse(&get_syntax, argc, argv, &args);
	object = json_object();
	for (size_t i = 0; i < nr_tunables; i++) {
		if (args.only && args.only != &tunables[i])
			continue;
		err = read_tunable(args.pool, &tunables[i], value);
		if (err) {
			json_decref(object);
			return no_tunable(args.pool, &tunables[i], err);
		}
		json_object_set_new(object, tunables[i].name, json_value(value));
		if (args.list.json)
			continue;
		if (!args.only && !i)
			cli_print_head(&args.list, columns);
		if (args.only)
			printf("%s\n", value);
		else
			print_one(&args.list, &tunables[i], value);
	}
	if (args.list.json)
		return cli_print_json(object);
	json_decref(object);
	return cli_flush();
}

/* ---- save ---- */

/*
 * Find or create the group of the pool's tunables in a drop-in. Returns NULL if the file has
 * another structure.
 */
static config_setting_t *drop_in_tunables(config_t *file, const char *pool)
{
	config_setting_t *root = config_root_setting(file), *pools, *group, *name, *found;

	pools = config_setting_get_member(root, "pools");
	if (!pools)
		pools = config_setting_add(root, "pools", CONFIG_TYPE_LIST);
	group = pools ? config_setting_get_elem(pools, 0) : NULL;
	if (pools && !group)
		group = config_setting_add(pools, NULL, CONFIG_TYPE_GROUP);
	name = group ? config_setting_get_member(group, "name") : NULL;
	if (group && !name)
		name = config_setting_add(group, "name", CONFIG_TYPE_STRING);
	if (!name || !config_setting_set_string(name, pool))
		return NULL;
	found = config_setting_get_member(group, "tunables");
	return found ? found : config_setting_add(group, "tunables", CONFIG_TYPE_GROUP);
}

/* Write the value as text: not all versions of libconfig read large numbers. */
static bool drop_in_set(config_setting_t *group, const char *name, const char *value)
{
	config_setting_t *setting;

	config_setting_remove(group, name);
	setting = config_setting_add(group, name, CONFIG_TYPE_STRING);
	return setting && config_setting_set_string(setting, value);
}

/*
 * Write a temporary file and rename it: readers see the old file or the new one. Returns 0
 * or an errno.
 */
static int write_drop_in(config_t *file, const char *path)
{
	char temporary[512];
	FILE *to;
	int err = 0;

	snprintf(temporary, sizeof(temporary), "%s.new", path);
	to = fopen(temporary, "we");
	if (!to)
		return errno;
	fputs("# Written by \"kvblk pool set --save\", which keeps no comments.\n", to);
	config_write(file, to);
	if (fflush(to) || fsync(fileno(to)) || ferror(to))
		err = errno;
	if (fclose(to) && !err)
		err = errno;
	if (!err && rename(temporary, path))
		err = errno;
	if (err)
		unlink(temporary);
	return err;
}

static int save(const struct tunable_args *args)
{
	config_setting_t *group;
	char path[480];
	config_t file;
	int ret = CLI_OK, err;

	snprintf(path, sizeof(path), "%s/90-pool-set-%s.conf", args->dir, args->pool);
	mkdir("/etc/kvblk", 0755);
	if (mkdir(args->dir, 0755) && errno != EEXIST)
		return cli_fail("%s: %s", args->dir, strerror(errno));
	config_init(&file);
	if (!access(path, F_OK) && !config_read_file(&file, path)) {
		ret = cli_fail("%s:%d: %s. The value is set but not saved; fix or remove the file.", path,
			       config_error_line(&file), config_error_text(&file));
		goto destroy;
	}
	group = drop_in_tunables(&file, args->pool);
	for (size_t i = 0; group && i < nr_tunables; i++) {
		if (*args->value[i] && !drop_in_set(group, tunables[i].name, args->value[i]))
			group = NULL;
	}
	err = group ? write_drop_in(&file, path) : EINVAL;
	if (err)
		ret = cli_fail("%s: the value is set but not saved: %s", path, group ? strerror(err) :
			       "unknown structure; remove the file");
destroy:
	config_destroy(&file);
	return ret;
}

/* ---- set ---- */

/* Store NAME=VALUE in the array @field. */
static void take_value(struct argp_state *state, const char *text, void *field)
{
	char (*values)[TUNABLE_LEN] = field;
	const char *equals = strchr(text, '=');
	const struct tunable *tunable;
	char name[64], allowed[80];

	if (!equals)
		cli_usage(state, "\"%s\": give NAME=VALUE", text);
	snprintf(name, sizeof(name), "%.*s", (int)(equals - text), text);
	tunable = find_tunable(state, name);
	if (!tunable_parse(tunable, equals + 1, values[tunable - tunables]))
		cli_usage(state, "%s: must be %s", text,
			  tunable_allowed(tunable, allowed, sizeof(allowed)));
}

static const struct cli_option set_options[] = {
	{ "save", 0, CLI_FLAG, AT(save), NULL,
	  "Also save the values for the next start of the pool, in a file in " DROP_IN_DIR },
	{ "save-dir", 0, CLI_STRING, AT(dir), "DIRECTORY" },
	{ 0 },
};

static const struct cli_option set_arguments[] = {
	{ "POOL", 0, CLI_POOL, AT(pool), .required = true },
	{ "NAME=VALUE", 0, CLI_CALL, AT(value), .take = take_value, .repeat = true, .required = true },
	{ 0 },
};

static const struct cli_syntax set_syntax = {
	.options = set_options,
	.arguments = set_arguments,
	.usage = "POOL NAME=VALUE...",
	.doc = "Set tunables of POOL while POOL is in use. A number may have a suffix: K, M, G or T, powers of 1024.\v"
	       "Example:\n  kvblk pool set kv0 suspect_ms=3000 --save",
};

/* Set *@value to the value of @tunable after "set": the given one, or the current one. */
static int future(const struct tunable_args *args, const struct tunable *tunable,
		  unsigned long *value)
{
	char now[TUNABLE_LEN];
	int err = read_tunable(args->pool, tunable, now);

	if (err)
		return no_tunable(args->pool, tunable, err);
	*value = strtoul(*args->value[tunable - tunables] ? args->value[tunable - tunables] : now,
			 NULL, 10);
	return CLI_OK;
}

static int set_one(const struct tunable_args *args, const struct tunable *tunable)
{
	const char *value = args->value[tunable - tunables];
	int err = *value ? write_tunable(args->pool, tunable, value) : 0;

	return err ? no_tunable(args->pool, tunable, err) : CLI_OK;
}

static int set_all(const struct tunable_args *args)
{
	const struct tunable *low = tunable_find("low_permille");
	const struct tunable *high = tunable_find("high_permille");
	unsigned long low_value = 0, high_value = 0, high_now = 0;
	struct tunable_args as_is = { .pool = args->pool };
	int ret = future(args, low, &low_value);

	if (ret == CLI_OK)
		ret = future(args, high, &high_value);
	if (ret == CLI_OK)
		ret = future(&as_is, high, &high_now);
	if (ret == CLI_OK && low_value >= high_value)
		ret = cli_fail("%s: low_permille, %lu, must be below high_permille, %lu; nothing was changed",
			       args->pool, low_value, high_value);
	/* low must stay below high at each moment: raise high first */
	if (ret == CLI_OK && high_value > high_now)
		ret = set_one(args, high);
	for (size_t i = 0; ret == CLI_OK && i < nr_tunables; i++)
		ret = set_one(args, &tunables[i]);
	return ret;
}

int tunable_set_main(int argc, char **argv)
{
	struct tunable_args args = { .dir = DROP_IN_DIR };
	json_t *object;
	int ret;

	cli_parse(&set_syntax, argc, argv, &args);
	ret = set_all(&args);
	if (ret == CLI_OK && args.save)
		ret = save(&args);
	if (ret != CLI_OK || !args.list.json)
		return ret;
	object = json_object();
	for (size_t i = 0; i < nr_tunables; i++) {
		if (*args.value[i])
			json_object_set_new(object, tunables[i].name, json_value(args.value[i]));
	}
	return cli_print_json(object);
}
