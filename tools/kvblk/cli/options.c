// SPDX-License-Identifier: MIT
/*
 * Parses a verb's rows, see options.h. argp does the rest beneath: short forms,
 * abbreviations, order, the layout of the help.
 */
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/options.h"
#include "common/tunables.h"

#define ROWS_MAX	64
#define SEGMENT_MIN	(8u << 20)
#define SEGMENT_MAX	(1u << 30)

enum {
	/* keys of options that have no letter: this and the row's number */
	OPT_ROW = 0x100,
	OPT_USAGE = 0x1000,
};

/* A row, the structure that its field is part of, and whether it was given. */
struct row {
	const struct cli_option *option;
	char *base;
	bool given;
};

/**
 * struct parse - one run of argp
 * @syntax: of the verb
 * @values: the verb's structure
 * @rows: options, then arguments
 * @nr_options: options in @rows
 * @nr: entries of @rows
 * @next: the entry of @rows that the next argument is for
 * @known: @rows as argp knows them, with --help and --usage
 * @nr_known: entries of @known
 */
struct parse {
	const struct cli_syntax *syntax;
	void *values;
	struct row rows[ROWS_MAX];
	size_t nr_options;
	size_t nr;
	size_t next;
	struct argp_option known[ROWS_MAX + 5];
	size_t nr_known;
};

/* ---- values ---- */

void cli_usage(const struct argp_state *state, const char *format, ...)
{
	char text[512];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	argp_error(state, "%s", text);
	exit(CLI_USAGE);
}

static bool parse_number(const char *text, uint64_t *value)
{
	bool hex = text[0] == '0' && tolower((unsigned char)text[1]) == 'x';
	char *end;

	/* strtoull() would take a sign and blanks */
	if (!isdigit((unsigned char)*text))
		return false;
	errno = 0;
	*value = strtoull(text, &end, hex ? 16 : 10);
	return !errno && !*end;
}

static uint64_t take_number(const struct argp_state *state, const char *what, const char *text,
			    uint64_t min, uint64_t max)
{
	uint64_t value = 0;

	if (!parse_number(text, &value) || value < min || value > max)
		cli_usage(state, "%s %s: must be a number from %llu to %llu", what, text,
			  (unsigned long long)min, (unsigned long long)max);
	return value;
}

static uint64_t take_size(const struct argp_state *state, const char *what, const char *text,
			  uint64_t min, uint64_t max)
{
	char low[32], high[32];
	uint64_t value = 0;

	if (!tunable_number(text, &value) || value < min || value > max)
		cli_usage(state, "%s %s: must be a size from %s to %s, like 4096, 640K or 2M", what,
			  text, cli_format_bytes(min, low, sizeof(low)),
			  cli_format_bytes(max, high, sizeof(high)));
	return value;
}

static uint64_t take_segment_size(const struct argp_state *state, const char *what,
				  const char *text)
{
	uint64_t size = take_size(state, what, text, SEGMENT_MIN, SEGMENT_MAX);

	if (size & (size - 1))
		cli_usage(state, "%s %s: must be a power of two", what, text);
	return size;
}

double cli_real(const struct argp_state *state, const char *what, const char *text, double min,
		double max)
{
	char *end = NULL;
	double value = 0;

	errno = 0;
	if (isdigit((unsigned char)*text) || *text == '.')
		value = strtod(text, &end);
	/* not "<": a NaN must not pass */
	if (!end || end == text || *end || errno || !(value >= min && value <= max))
		cli_usage(state, "%s %s: must be a number from %g to %g", what, text, min, max);
	return value;
}

/* "30", "30s", "500ms", "1.5h" */
bool cli_is_time(const char *text, double *seconds)
{
	static const struct {
		const char *name;
		double seconds;
	} units[] = {
		{ "", 1 }, { "s", 1 }, { "ms", 1e-3 }, { "us", 1e-6 },
		{ "m", 60 }, { "min", 60 }, { "h", 3600 }, { "d", 86400 },
	};
	char *end;

	if (!isdigit((unsigned char)*text) && *text != '.')
		return false;
	errno = 0;
	*seconds = strtod(text, &end);
	if (errno || end == text)
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(units); i++) {
		if (!strcmp(end, units[i].name)) {
			*seconds *= units[i].seconds;
			return true;
		}
	}
	return false;
}

double cli_time(const struct argp_state *state, const char *what, const char *text, double min,
		double max)
{
	double value = 0;

	if (!cli_is_time(text, &value) || !(value >= min && value <= max))
		cli_usage(state, "%s %s: must be a time from %g to %.10g seconds, like 500ms, 30, 10m or 1h",
			  what, text, min, max);
	return value;
}

void cli_check_name(const struct argp_state *state, const char *whose, const char *name)
{
	size_t len = strlen(name);
	size_t plain = strspn(name, "abcdefghijklmnopqrstuvwxyz"
				    "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.");

	if (!len || len >= sizeof(((struct kvblk_info *)0)->pool_name) || plain != len ||
	    name[0] == '.' || name[0] == '-')
		cli_usage(state, "%s name \"%s\": must be 1 to 31 letters, digits, '-', '_' or '.', and begin with none of '-' and '.'",
			  whose, name);
}

/* Check a pool's name or POOL/TENANT. A path is checked when it is opened. */
static void check_node(const struct argp_state *state, const char *text)
{
	const char *slash = strchr(text, '/');
	char pool[KVBLK_NAME_LEN_MAX + 2];

	if (cli_is_path(text))
		return;
	if (!slash) {
		cli_check_name(state, "pool", text);
		return;
	}
	/* the buffer holds one letter too many, by which a longer name is rejected */
	snprintf(pool, sizeof(pool), "%.*s", (int)(slash - text), text);
	cli_check_name(state, "pool", pool);
	cli_check_name(state, "tenant", slash + 1);
}

void cli_check_device(const struct argp_state *state, const char *device)
{
	if (device[0] != '/')
		cli_usage(state, "device \"%s\": must be a path like /dev/nvme1n1", device);
	if (strlen(device) > KVBLK_PATH_LEN_MAX)
		cli_usage(state, "device %.40s...: a path has at most %d bytes", device,
			  KVBLK_PATH_LEN_MAX);
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c = (char)tolower((unsigned char)c);
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return -1;
}

void cli_key(const struct argp_state *state, const char *text, bool hex, struct cli_key *key)
{
	size_t len = strlen(text);

	key->text = text;
	key->len = hex ? len / 2 : len;
	if (hex && len % 2)
		cli_usage(state, "key %s: an odd number of hex digits", text);
	if (!key->len || key->len > KVBLK_KEY_MAX)
		cli_usage(state, "key \"%.40s%s\": must have 1 to %d bytes", text,
			  len > 40 ? "..." : "", KVBLK_KEY_MAX);
	if (!hex) {
		memcpy(key->bytes, text, len);
		return;
	}
	for (size_t i = 0; i < key->len; i++) {
		int high = hex_digit(text[2 * i]);
		int low = hex_digit(text[2 * i + 1]);

		if (high < 0 || low < 0)
			cli_usage(state, "key %s: not hex digits", text);
		key->bytes[i] = (unsigned char)(high << 4 | low);
	}
}

static const char *word_at(const struct cli_option *o, size_t i)
{
	size_t stride = o->stride ? o->stride : sizeof(*o->words);

	return *(const char *const *)((const char *)o->words + i * stride);
}

/* Returns the index of @text among the words of @o. */
static size_t take_word(const struct argp_state *state, const char *what, const char *text,
			const struct cli_option *o)
{
	char words[256] = "";
	size_t i, len = 0;

	for (i = 0; word_at(o, i); i++) {
		if (!strcmp(word_at(o, i), text))
			return i;
	}
	for (i = 0; word_at(o, i) && len < sizeof(words); i++)
		len += (size_t)snprintf(words + len, sizeof(words) - len, "%s%s",
					!i ? "" : word_at(o, i + 1) ? ", " : " or ", word_at(o, i));
	cli_usage(state, "%s %s: must be %s", what, text, words);
}

/* ---- rows ---- */

/* The largest number that @o takes. */
static uint64_t most(const struct cli_option *o)
{
	if (o->max > 0)
		return (uint64_t)o->max;
	return o->size < sizeof(uint64_t) ? (1ull << 8 * o->size) - 1 : UINT64_MAX;
}

static void store(void *field, size_t size, uint64_t value)
{
	switch (size) {
	case sizeof(uint8_t):
		*(uint8_t *)field = (uint8_t)value;
		break;
	case sizeof(uint16_t):
		*(uint16_t *)field = (uint16_t)value;
		break;
	case sizeof(uint32_t):
		*(uint32_t *)field = (uint32_t)value;
		break;
	default:
		*(uint64_t *)field = value;
	}
}

static bool is_argument(const struct cli_option *o)
{
	return isupper((unsigned char)o->name[0]);
}

/* Writes the name of @o as it is typed to @buf, and returns it. */
static char *typed(const struct cli_option *o, char buf[40])
{
	snprintf(buf, 40, "%s%s", is_argument(o) ? "" : "--", o->name);
	return buf;
}

/* Checks @text, the value of @row or NULL, and stores it. */
static void take(struct argp_state *state, struct row *row, const char *text)
{
	const struct cli_option *o = row->option;
	uint64_t min = (uint64_t)o->min, max = most(o);
	void *field = row->base + o->at;
	struct cli_words *words = field;
	char what[40] = "";

	row->given = true;
	if (o->marks)
		*(uint32_t *)(row->base + o->marks) |= o->bits;
	if (o->name)
		typed(o, what);
	switch (o->type) {
	case CLI_FLAG:
		if (o->bits)
			*(uint32_t *)field |= o->bits;
		else
			*(bool *)field = true;
		return;
	case CLI_NUMBER:
		store(field, o->size, take_number(state, what, text, min, max));
		return;
	case CLI_SIZE:
		store(field, o->size, take_size(state, what, text, min, max));
		return;
	case CLI_SEGMENT_SIZE:
		store(field, o->size, take_segment_size(state, what, text));
		return;
	case CLI_REAL:
		*(double *)field = cli_real(state, what, text, o->min, o->max);
		return;
	case CLI_TIME:
		*(double *)field = cli_time(state, what, text, o->min, o->max);
		return;
	case CLI_WORD:
		store(field, o->size, text ? take_word(state, what, text, o) : 0);
		return;
	case CLI_ROW:
		*(const void **)field = (const char *)o->words +
					take_word(state, what, text, o) * o->stride;
		return;
	case CLI_WORDS:
		if (!words->nr++)
			words->words = &state->argv[state->next - 1];
		return;
	case CLI_CALL:
		o->take(state, text, field);
		return;
	case CLI_POOL:
		cli_check_name(state, "pool", text);
		break;
	case CLI_NODE:
		check_node(state, text);
		break;
	case CLI_TENANT:
		cli_check_name(state, "tenant", text);
		break;
	case CLI_MEMBER:
		cli_check_name(state, "member", text);
		break;
	case CLI_DEVICE:
		cli_check_device(state, text);
		break;
	case CLI_STRING:
		break;
	}
	*(const char **)field = text;
}

static void take_argument(struct argp_state *state, struct parse *parse, const char *text)
{
	struct row *row = &parse->rows[parse->next];
	double seconds;

	/* the pool is left out */
	if (parse->next + 1 < parse->nr && row->option->type == CLI_POOL &&
	    row[1].option->type == CLI_TIME && cli_is_time(text, &seconds)) {
		parse->next++;
		row++;
	}
	if (parse->next == parse->nr)
		cli_usage(state, "unexpected argument \"%s\"", text);
	if (row->option->type != CLI_WORDS && !row->option->repeat)
		parse->next++;
	take(state, row, text);
}

/* The row of option or argument @name; NULL: @name is NULL. */
static const struct row *row_named(const struct parse *parse, const char *name)
{
	for (size_t i = 0; name && i < parse->nr; i++) {
		const char *other = parse->rows[i].option->name;

		if (other && !strcmp(other, name))
			return &parse->rows[i];
	}
	return NULL;
}

/* Checks what was given as a whole. */
static void check_all(const struct argp_state *state, const struct parse *parse)
{
	char missing[256] = "", what[40], other[40];
	size_t len = 0, nr = 0;

	for (size_t i = 0; i < parse->nr; i++)
		nr += parse->rows[i].option->required && !parse->rows[i].given;
	for (size_t i = 0; i < parse->nr; i++) {
		const struct row *row = &parse->rows[i];
		const struct row *with = row_named(parse, row->option->with);
		const struct row *without = row_named(parse, row->option->without);

		if (row->option->required && !row->given)
			len += (size_t)snprintf(missing + len, sizeof(missing) - len, "%s%s",
						typed(row->option, what),
						!--nr ? "" : nr > 1 ? ", " : " and ");
		if (row->given && with && !with->given)
			cli_usage(state, "%s needs %s", typed(row->option, what),
				  typed(with->option, other));
		if (row->given && without && without->given)
			cli_usage(state, "%s cannot be used with %s", typed(row->option, what),
				  typed(without->option, other));
	}
	if (*missing)
		cli_usage(state, "missing %s", missing);
	if (parse->syntax->check)
		parse->syntax->check(state, parse->values);
}

static error_t parse_key(int key, char *arg, struct argp_state *state)
{
	struct parse *parse = state->input;

	switch (key) {
	case 'h':
	case '?':
		argp_state_help(state, stdout, ARGP_HELP_STD_HELP);
		return 0;
	case OPT_USAGE:
		argp_state_help(state, stdout, ARGP_HELP_USAGE | ARGP_HELP_EXIT_OK);
		return 0;
	case ARGP_KEY_ARG:
		take_argument(state, parse, arg);
		return 0;
	case ARGP_KEY_END:
		check_all(state, parse);
		return 0;
	default:
		break;
	}
	for (size_t i = 0; i < parse->nr_options; i++) {
		if (key == OPT_ROW + (int)i || key == parse->rows[i].option->letter) {
			take(state, &parse->rows[i], arg);
			return 0;
		}
	}
	return ARGP_ERR_UNKNOWN;
}

static void add_row(struct parse *parse, const struct cli_option *option, char *base)
{
	if (parse->nr == ROWS_MAX)
		abort();
	parse->rows[parse->nr++] = (struct row){ .option = option, .base = base };
}

/* Adds @options, of the structure @base, in @group of the help; 0: that of the options before. */
static void add_options(struct parse *parse, const struct cli_option *options, char *base,
			int group)
{
	for (const struct cli_option *o = options; o && (o->name || o->letter || o->help || o->rows);
	     o++) {
		if (o->rows) {
			add_options(parse, o->rows, base + o->at, 0);
			continue;
		}
		parse->known[parse->nr_known++] = (struct argp_option){
			.name = o->name,
			.key = o->letter ? o->letter :
			       o->name ? OPT_ROW + (int)parse->nr : 0,
			.arg = o->value,
			.flags = (o->optional ? OPTION_ARG_OPTIONAL : 0) |
				 (o->help ? 0 : OPTION_HIDDEN),
			.doc = o->help,
			.group = group,
		};
		add_row(parse, o, base);
	}
}

/* Adds the options that all verbs have. */
static void add_common(struct parse *parse)
{
	static const char *const formats[] = { "text", "json", NULL };
	static const struct cli_option output[] = {
		{ "output", 'o', CLI_WORD, CLI_FIELD(struct cli_list, json), "FORMAT",
		  "json, or text (the default)", .words = formats },
		{ 0 },
	};
	static const struct cli_option list[] = {
		{ NULL, 'H', CLI_FLAG, CLI_FIELD(struct cli_list, bare), NULL,
		  "For scripts: no headings, cells separated by one tab" },
		{ NULL, 'p', CLI_FLAG, CLI_FIELD(struct cli_list, exact), NULL,
		  "For scripts: exact numbers, sizes in bytes" },
		{ 0 },
	};
	static const struct argp_option help[] = {
		{ "help", 'h', NULL, 0, "Give this help list", -1 },
		{ NULL, '?', NULL, OPTION_ALIAS | OPTION_HIDDEN, NULL, 0 },
		{ "usage", OPT_USAGE, NULL, 0, "Give a short usage message", -1 },
	};
	bool headings = false;

	for (size_t i = 0; i < parse->nr_known; i++)
		headings |= !parse->known[i].key;
	add_options(parse, output, parse->values, headings ? -1 : 0);
	if (parse->syntax->list)
		add_options(parse, list, parse->values, headings ? -1 : 0);
	memcpy(&parse->known[parse->nr_known], help, sizeof(help));
}

void cli_parse(const struct cli_syntax *syntax, int argc, char **argv, void *values)
{
	struct parse parse = { .syntax = syntax, .values = values };
	struct argp argp = {
		.options = parse.known,
		.parser = parse_key,
		.args_doc = syntax->usage,
		.doc = syntax->doc,
	};
	error_t err;

	add_options(&parse, syntax->options, values, 0);
	add_common(&parse);
	parse.nr_options = parse.nr;
	parse.next = parse.nr;
	for (const struct cli_option *o = syntax->arguments; o && o->name; o++)
		add_row(&parse, o, values);
	argp_err_exit_status = CLI_USAGE;
	cli_check_options(&argp, argv);
	err = argp_parse(&argp, argc, argv, ARGP_NO_HELP, NULL, &parse);
	if (err) {
		cli_fail("%s", strerror(err));
		exit(CLI_ERROR);
	}
}
