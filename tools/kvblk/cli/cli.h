/* SPDX-License-Identifier: MIT */
/*
 * kvblk(8): the map of the command. main.c lists the commands; each noun has a folder. The
 * folder cli/ is shared: verb.c runs verbs, options.c parses a verb's options and arguments
 * (options.h), cli.c prints messages and output, table.c prints lists.
 *
 * The rule: results go to stdout, everything else to stderr. A wrong option or argument is
 * reported before anything is opened or changed.
 */
#ifndef KVBLK_CLI_H
#define KVBLK_CLI_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "lib/kvblk.h"
#include "lib/kvblk_admin.h"

#define ARRAY_SIZE(array)	(sizeof(array) / sizeof((array)[0]))

/**
 * enum cli_exit - exit codes
 * @CLI_OK: done
 * @CLI_ERROR: refused or failed; the reason is on stderr
 * @CLI_USAGE: wrong option or argument; nothing was tried
 * @CLI_MISS: get, exists, rm, prefetch, hint: no such block
 * @CLI_DEGRADED: status, doctor: a part of a pool does not serve, or something needs a
 *	change; keyspace: there is no salt; pool destroy, member remove, changes of tenants:
 *	done, with a warning
 * @CLI_DOWN: status, doctor: a pool serves nothing, or kvblk cannot work
 */
enum cli_exit {
	CLI_OK		= 0,
	CLI_ERROR	= 1,
	CLI_USAGE	= 2,
	CLI_MISS	= 3,
	CLI_DEGRADED	= 4,
	CLI_DOWN	= 5,
};

/* Each command parses its arguments, runs, and returns an enum cli_exit. */
int pool_main(int argc, char **argv);
int member_main(int argc, char **argv);
int tenant_main(int argc, char **argv);
int put_main(int argc, char **argv);
int get_main(int argc, char **argv);
int exists_main(int argc, char **argv);
int rm_main(int argc, char **argv);
int prefetch_main(int argc, char **argv);
int hint_main(int argc, char **argv);
int keyspace_main(int argc, char **argv);
int status_main(int argc, char **argv);
int stat_main(int argc, char **argv);
int iostat_main(int argc, char **argv);
int top_main(int argc, char **argv);
int events_main(int argc, char **argv);
int replay_main(int argc, char **argv);
int report_main(int argc, char **argv);
int bench_main(int argc, char **argv);
int topo_main(int argc, char **argv);
int doctor_main(int argc, char **argv);
int apply_main(int argc, char **argv);
int policy_main(int argc, char **argv);

/**
 * struct cli_verb - a verb of a noun, or a noun
 * @name: name as typed
 * @run: function of the verb
 * @summary: line in the noun's help; NULL: an alias of a verb with the same @run
 */
struct cli_verb {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *summary;
};

/*
 * Run the verb that the first word of @argv names, with argv[0] "NOUN VERB". An empty entry
 * ends @verbs. Options that every verb knows may stand before the verb. "help" and -h print
 * the verbs followed by @example, or the help of a verb.
 */
int cli_run_verb(const struct cli_verb *verbs, const char *example, int argc,
		 char **argv);

#define CLI_COLUMNS_MAX		16

/**
 * struct cli_list - how output is printed
 * @json: -o json, which the verb prints itself
 * @bare: -H: no headings, a tab between cells
 * @exact: -p: sizes in bytes
 */
struct cli_list {
	bool json;
	bool bare;
	bool exact;
};

/**
 * struct cli_column - a column of a list; an empty one ends an array of up to
 * %CLI_COLUMNS_MAX
 * @title: heading
 * @width: minimum number of letters; negative: cells are aligned to the left
 */
struct cli_column {
	const char *title;
	int width;
};

/* Print the headings, unless -H was given; print one line with a cell for each column. */
void cli_print_head(const struct cli_list *list, const struct cli_column *columns);
void cli_print_row(const struct cli_list *list, const struct cli_column *columns,
		   const char *const *cells);
/* Write "1.5 GiB", or with -p "1610612736", to @buf. Returns @buf. */
char *cli_list_bytes(const struct cli_list *list, uint64_t bytes, char *buf, size_t len);

/**
 * struct cli_key - a key as given on the command line
 * @text: text as typed
 * @len: bytes in @bytes
 * @bytes: the key
 */
struct cli_key {
	const char *text;
	size_t len;
	unsigned char bytes[KVBLK_KEY_MAX];
};

/* Print "kvblk: ..." to stderr. Returns CLI_ERROR. */
int cli_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Print the module's answer to a failed admin call about @subject. Returns CLI_ERROR. */
int cli_admin_fail(struct kvblk_admin *admin, int err, const char *subject);

/*
 * Print the module's warning after a successful call. Returns CLI_DEGRADED with a warning,
 * else CLI_OK.
 */
int cli_admin_warn(struct kvblk_admin *admin, const char *subject);

/* Returns whether @node is a path: '/' or '.' first, not a pool's name, ".." or POOL/TENANT. */
static inline bool cli_is_path(const char *node)
{
	return *node == '/' || (*node == '.' && strchr(node, '/'));
}

/*
 * Return a new handle, or print the reason and a remedy and end the process with CLI_ERROR.
 * @pool is a pool's name, POOL/TENANT or the path of a node.
 */
struct kvblk *cli_open_pool(const char *pool);
struct kvblk_admin *cli_open_admin(void);

/* Print why the netlink family is missing, and a remedy. Returns CLI_ERROR. */
int cli_no_family(void);

/* Print that @pool does not exist, and the pools that do. Returns CLI_ERROR. */
int cli_no_pool(const char *pool);

/*
 * Print that the module is not loaded; @pool is the pool asked for, or NULL. Returns
 * CLI_ERROR.
 */
int cli_no_module(const char *pool);

/* Returns @n, or null if the caller may not read it. */
static inline json_t *cli_json_use(bool has_use, uint64_t n)
{
	return has_use ? json_integer((json_int_t)n) : json_null();
}

/* Print and free @json. Returns CLI_ERROR if stdout fails, else CLI_OK. */
int cli_print_json(json_t *json);
/* Print and free @json on one flushed line, for streams. Returns as cli_print_json() does. */
int cli_print_json_line(json_t *json);

/* Flush stdout. Returns CLI_ERROR after a message if stdout fails, else CLI_OK. */
int cli_flush(void);

/* Convert bytes to MiB: throughput is in MiB/s everywhere, in text and JSON. */
double cli_mib(double bytes);
/* Write "1.5 GiB", "640 KiB" or "17 B" to @buf. Returns @buf. */
char *cli_format_bytes(uint64_t bytes, char *buf, size_t len);
/* Write "830 ns", "1.25 ms" or "2.1 s" to @buf. Returns @buf. */
char *cli_format_ns(uint64_t ns, char *buf, size_t len);

#endif
