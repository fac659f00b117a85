/* SPDX-License-Identifier: MIT */
/*
 * kvblk(8): the map of the command. main.c lists the commands; each noun has a
 * folder. What they share is here: verb.c runs verbs, options.c parses a verb's
 * options and arguments (options.h), cli.c has messages and output, table.c lists.
 *
 * The rule: results go to stdout, everything else to stderr; a wrong option or
 * argument is found before anything is opened, let alone changed.
 */
#ifndef KVBLK_CLI_H
#define KVBLK_CLI_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "lib/kvblk.h"

#define ARRAY_SIZE(array)	(sizeof(array) / sizeof((array)[0]))

/**
 * enum cli_exit - exit codes
 * @CLI_OK: done
 * @CLI_ERROR: refused or failed; the reason is on stderr
 * @CLI_USAGE: wrong option or argument; nothing was tried
 * @CLI_MISS: get, exists, rm, prefetch: no such block
 * @CLI_DEGRADED: status, doctor: a part of a pool does not serve; something is to be changed;
 *	pool destroy, member remove: done, with a warning
 * @CLI_DOWN: status, doctor: nothing of a pool serves; kvblk can't work
 */
enum cli_exit {
	CLI_OK		= 0,
	CLI_ERROR	= 1,
	CLI_USAGE	= 2,
	CLI_MISS	= 3,
	CLI_DEGRADED	= 4,
	CLI_DOWN	= 5,
};

/* One for each noun: parses its arguments, runs, returns an enum cli_exit. */
int pool_main(int argc, char **argv);
int member_main(int argc, char **argv);
int put_main(int argc, char **argv);
int get_main(int argc, char **argv);
int exists_main(int argc, char **argv);
int rm_main(int argc, char **argv);
int prefetch_main(int argc, char **argv);
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
 * @name: as typed
 * @run: its function
 * @summary: for the noun's help; NULL: another word for a verb with this function
 */
struct cli_verb {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *summary;
};

/*
 * Runs the verb that the first word of @argv names, from the list @verbs that ends
 * with an empty one, with argv[0] "NOUN VERB". Options that any verb may have may
 * stand before it. "help" and -h print the verbs, or a verb's help; @example ends it.
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
 * struct cli_column - of a list; an empty one ends an array of up to %CLI_COLUMNS_MAX
 * @title: its heading
 * @width: at least so many letters; negative: cells stand to the left
 */
struct cli_column {
	const char *title;
	int width;
};

/* The headings, unless there are none; a line with a cell for each of @columns. */
void cli_print_head(const struct cli_list *list, const struct cli_column *columns);
void cli_print_row(const struct cli_list *list, const struct cli_column *columns,
		   const char *const *cells);
/* "1.5 GiB" or "1610612736", to @buf, which is returned */
char *cli_list_bytes(const struct cli_list *list, uint64_t bytes, char *buf, size_t len);

/* Reads @text, a uuid in its usual form. Returns whether it is one. */
bool cli_parse_uuid(const char *text, uint8_t uuid[16]);

/**
 * struct cli_key - a key as given on the command line
 * @text: what was typed
 * @len: bytes in @bytes
 * @bytes: the key
 */
struct cli_key {
	const char *text;
	size_t len;
	unsigned char bytes[KVBLK_KEY_MAX];
};

/* Says "kvblk: ..." on stderr; returns CLI_ERROR. */
int cli_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The same for what the module answered to an admin call about @subject. */
int cli_admin_fail(struct kvblk_admin *admin, int err, const char *subject);

/* After success: says what the kernel warns of, and returns CLI_DEGRADED; else CLI_OK. */
int cli_admin_warn(struct kvblk_admin *admin, const char *subject);

/* Open a handle, or say why not and what to do: 0 or CLI_ERROR. */
int cli_open_pool(const char *pool, struct kvblk **kv);
int cli_open_admin(struct kvblk_admin **admin);

/* Says why there is no netlink family, and what to do; returns CLI_ERROR. */
int cli_no_family(void);

/* Says that there is no @pool, and which there are; returns CLI_ERROR. */
int cli_no_pool(const char *pool);

/* Says that there is no module, so no @pool (NULL: none was asked for): CLI_ERROR */
int cli_no_module(const char *pool);

/* Prints and frees @json. CLI_OK, or CLI_ERROR when stdout can't take it. */
int cli_print_json(json_t *json);
/* The same on one line, flushed, for streams. */
int cli_print_json_line(json_t *json);

/* What is buffered for stdout goes out: CLI_OK, or CLI_ERROR and a message. */
int cli_flush(void);

/* The one unit of throughput, in text and JSON, is MiB/s. */
double cli_mib(double bytes);
/* "1.5 GiB", "640 KiB", "17 B": to @buf, which is returned */
char *cli_format_bytes(uint64_t bytes, char *buf, size_t len);
/* "830 ns", "1.25 ms", "2.1 s" */
char *cli_format_ns(uint64_t ns, char *buf, size_t len);

#endif
