// SPDX-License-Identifier: MIT
/*
 * Options and arguments of a verb, and what they may be. A wrong value ends the process
 * with CLI_USAGE.
 */
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "common/tunables.h"

enum {
	/* above those of the verbs, which come from CLI_OPT_FIRST on */
	OPT_USAGE = 0x1000,
};

static error_t parse_output(int key, char *arg, struct argp_state *state)
{
	bool *json = state->input;

	switch (key) {
	case 'o':
		if (strcmp(arg, "json") != 0 && strcmp(arg, "text") != 0)
			cli_usage(state, "-o %s: the formats are json and text", arg);
		*json = !strcmp(arg, "json");
		return 0;
	case 'h':
	case '?':
		argp_state_help(state, stdout, ARGP_HELP_STD_HELP);
		return 0;
	case OPT_USAGE:
		argp_state_help(state, stdout, ARGP_HELP_USAGE | ARGP_HELP_EXIT_OK);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_option output_options[] = {
	{ "output", 'o', "FORMAT", 0, "json, or text (the default)", 0 },
	{ "help", 'h', NULL, 0, "Give this help list", -1 },
	{ NULL, '?', NULL, OPTION_ALIAS | OPTION_HIDDEN, NULL, 0 },
	{ "usage", OPT_USAGE, NULL, 0, "Give a short usage message", -1 },
	{ 0 },
};

const struct argp cli_output_argp = {
	.options = output_options,
	.parser = parse_output,
};

const struct argp_child cli_output_children[] = {
	{ &cli_output_argp, 0, NULL, 0 },
	{ 0 },
};

void cli_at_most(const struct argp_state *state, unsigned int most, const char *arg)
{
	if (state->arg_num >= most)
		cli_usage(state, "too many arguments, from \"%s\" on", arg);
}

error_t cli_parse_nothing(int key, char *arg, struct argp_state *state)
{
	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = state->input;
		return 0;
	case ARGP_KEY_ARG:
		cli_usage(state, "\"%s\": there is nothing to give here", arg);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

void cli_parse(const struct argp *argp, int argc, char **argv, void *input)
{
	error_t err;

	argp_err_exit_status = CLI_USAGE;
	cli_check_options(argp, argv);
	err = argp_parse(argp, argc, argv, ARGP_NO_HELP, NULL, input);
	if (err) {
		cli_fail("%s", strerror(err));
		exit(CLI_ERROR);
	}
}

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

uint64_t cli_number(const struct argp_state *state, const char *what,
		    const char *text, uint64_t min, uint64_t max)
{
	uint64_t value = 0;

	if (!parse_number(text, &value) || value < min || value > max)
		cli_usage(state,
			   "%s %s: must be a number from %llu to %llu", what,
			   text, (unsigned long long)min,
			   (unsigned long long)max);
	return value;
}

uint64_t cli_size(const struct argp_state *state, const char *what,
		  const char *text, uint64_t min, uint64_t max)
{
	char low[32], high[32];
	uint64_t value = 0;

	if (!tunable_number(text, &value) || value < min || value > max)
		cli_usage(state,
			   "%s %s: must be a size from %s to %s, like 4096, 640K or 2M",
			   what, text, cli_format_bytes(min, low, sizeof(low)),
			   cli_format_bytes(max, high, sizeof(high)));
	return value;
}

double cli_real(const struct argp_state *state, const char *what,
		const char *text, double min, double max)
{
	char *end = NULL;
	double value = 0;

	errno = 0;
	if (isdigit((unsigned char)*text) || *text == '.')
		value = strtod(text, &end);
	/* not "<": a NaN must not pass */
	if (!end || end == text || *end || errno ||
	    !(value >= min && value <= max))
		cli_usage(state, "%s %s: must be a number from %g to %g", what,
			   text, min, max);
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

double cli_time(const struct argp_state *state, const char *what,
		const char *text, double min, double max)
{
	double value = 0;

	if (!cli_is_time(text, &value) || !(value >= min && value <= max))
		cli_usage(state, "%s %s: must be a time from %g to %.10g seconds, like 500ms, 30, 10m or 1h",
			   what, text, min, max);
	return value;
}

double cli_next_time(struct argp_state *state, const char *what, double min, double max)
{
	const char *text = state->next < state->argc ? state->argv[state->next] : NULL;
	double value;

	if (!text || !cli_is_time(text, &value))
		return 0;
	state->next++;
	return cli_time(state, what, text, min, max);
}

void cli_check_name(const struct argp_state *state, const char *whose, const char *name)
{
	size_t len = strlen(name);
	size_t plain = strspn(name, "abcdefghijklmnopqrstuvwxyz"
				    "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.");

	if (!len || len >= sizeof(((struct kvblk_info *)0)->pool_name) ||
	    plain != len || name[0] == '.' || name[0] == '-')
		cli_usage(state,
			   "%s name \"%s\": must be 1 to 31 letters, digits, '-', '_' or '.', and begin with none of '-' and '.'",
			   whose, name);
}

void cli_check_pool_name(const struct argp_state *state, const char *name)
{
	cli_check_name(state, "pool", name);
}

void cli_check_pool_or_node(const struct argp_state *state, const char *name)
{
	if (!strchr(name, '/'))
		cli_check_pool_name(state, name);
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

void cli_key(const struct argp_state *state, const char *text, bool hex,
	     struct cli_key *key)
{
	size_t len = strlen(text);

	key->text = text;
	key->len = hex ? len / 2 : len;
	if (hex && len % 2)
		cli_usage(state, "key %s: an odd number of hex digits", text);
	if (!key->len || key->len > KVBLK_KEY_MAX)
		cli_usage(state, "key \"%.40s%s\": must have 1 to %d bytes",
			   text, len > 40 ? "..." : "", KVBLK_KEY_MAX);
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
