/* SPDX-License-Identifier: MIT */
/*
 * Options and arguments of a verb, as rows of tables. A row names a field of the verb's
 * structure; cli_parse() checks each value and stores it there.
 *
 * The rules: a verb's structure begins with a struct cli_list, of which a verb that prints
 * no list uses only @json. The help, the checks and the messages are made from the row. A
 * wrong value ends the process with CLI_USAGE.
 */
#ifndef KVBLK_OPTIONS_H
#define KVBLK_OPTIONS_H

#include <argp.h>
#include <stddef.h>

#include "cli/cli.h"

/**
 * enum cli_type - what a value may be, and the type of its field
 * @CLI_FLAG: no value; sets a bool, or @bits of a uint32_t
 * @CLI_NUMBER: a number, decimal or hex: an integer of any size
 * @CLI_SIZE: a number, maybe with suffix K, M, G or T (powers of 1024): an integer of any size
 * @CLI_SEGMENT_SIZE: the size of a segment: an integer of any size
 * @CLI_REAL: a number, maybe with a fraction: double
 * @CLI_TIME: a number, maybe with suffix us, ms, s, m, h or d: double, in seconds
 * @CLI_STRING: anything: const char *
 * @CLI_WORD: a word of @words: its index, in an integer of any size; no value means the first
 * @CLI_ROW: the name of an entry of a table that begins at @words: a pointer to the entry
 * @CLI_POOL: a pool's name: const char *
 * @CLI_NODE: a pool's name, POOL/TENANT or the path of a node, for cli_open_pool(): const char *
 * @CLI_TENANT: a tenant's name: const char *
 * @CLI_MEMBER: a member's name: const char *
 * @CLI_DEVICE: a device's path: const char *
 * @CLI_WORDS: all arguments that are left: struct cli_words
 * @CLI_CALL: checked and stored by @take
 */
enum cli_type {
	CLI_FLAG,
	CLI_NUMBER,
	CLI_SIZE,
	CLI_SEGMENT_SIZE,
	CLI_REAL,
	CLI_TIME,
	CLI_STRING,
	CLI_WORD,
	CLI_ROW,
	CLI_POOL,
	CLI_NODE,
	CLI_TENANT,
	CLI_MEMBER,
	CLI_DEVICE,
	CLI_WORDS,
	CLI_CALL,
};

/* Arguments as they stand in argv. */
struct cli_words {
	char **words;
	size_t nr;
};

/* The members @at and @size of a row, for a field of a structure. */
#define CLI_FIELD(type, field)							\
	.at = offsetof(type, field),						\
	.size = sizeof(((type *)0)->field) /* NOLINT(bugprone-sizeof-expression) */

/**
 * struct cli_option - an option or an argument; an empty one ends a table
 * @name: of an option, without "--", in lower case; of an argument, in upper case
 * @letter: the option's short form, or 0
 * @type: &enum cli_type
 * @at: offset of the field; of @rows, of their structure
 * @size: size of the field
 * @value: name of the option's value in the help
 * @help: for the help; NULL: a hidden option. Without @name and @letter: a heading
 * @min: smallest number, size or time
 * @max: largest one; 0: whatever the field holds
 * @words: CLI_WORD, CLI_ROW: the first word; a NULL ends them
 * @stride: bytes from one word to the next; 0: @words is an array of words
 * @take: CLI_CALL: checks @text and stores it in @field; @text is NULL if @optional
 * @rows: a table of further options, of a structure within the verb's
 * @with: name of an option without which this one has no meaning
 * @without: name of an option that excludes this one
 * @marks: offset of a uint32_t whose @bits are set if the option is given; 0: none
 * @bits: CLI_FLAG: bits to set; others: bits to set at @marks
 * @required: must be given
 * @optional: the option may be given without its value
 * @repeat: CLI_CALL: takes all arguments that are left
 */
struct cli_option {
	const char *name;
	char letter;
	enum cli_type type;
	size_t at;
	size_t size;
	const char *value;
	const char *help;
	double min;
	double max;
	const char *const *words;
	size_t stride;
	void (*take)(struct argp_state *state, const char *text, void *field);
	const struct cli_option *rows;
	const char *with;
	const char *without;
	size_t marks;
	uint32_t bits;
	bool required;
	bool optional;
	bool repeat;
};

/**
 * struct cli_syntax - what a verb takes
 * @options: table of its options, or NULL; all verbs have --output, --help and --usage
 * @arguments: table of its arguments, in order, or NULL. A pool before a time may be left out
 * @list: it prints a list: has -H and -p
 * @usage: the arguments, for the help
 * @doc: what it does; behind a \v, an example
 * @check: checks and completes what all rows together have stored in @values; or NULL
 */
struct cli_syntax {
	const struct cli_option *options;
	const struct cli_option *arguments;
	bool list;
	const char *usage;
	const char *doc;
	void (*check)(const struct argp_state *state, void *values);
};

/* Stores what is given, in @values, which holds the defaults. */
void cli_parse(const struct cli_syntax *syntax, int argc, char **argv, void *values);

/* Prints what is wrong with the usage, and ends the process with CLI_USAGE. */
void cli_usage(const struct argp_state *state, const char *format, ...)
	__attribute__((format(printf, 2, 3), noreturn));

/*
 * Check a value outside of a row. @what names the option or argument in the message;
 * times are in seconds.
 */
double cli_real(const struct argp_state *state, const char *what, const char *text, double min,
		double max);
double cli_time(const struct argp_state *state, const char *what, const char *text, double min,
		double max);
void cli_check_name(const struct argp_state *state, const char *whose, const char *name);
void cli_check_device(const struct argp_state *state, const char *device);

/* Sets *@seconds if @text is a time. */
bool cli_is_time(const char *text, double *seconds);

/* Parses a key: hex digits, or any text. */
void cli_key(const struct argp_state *state, const char *text, bool hex, struct cli_key *key);

/* Ends the process with CLI_USAGE, and names the nearest option, if @argp lacks a long one. */
void cli_check_options(const struct argp *argp, char **argv);

/* Returns @name instead of @best if it is nearer to @word, and near enough to be meant. */
const char *cli_nearer(const char *word, const char *name, const char *best);

#endif
