// SPDX-License-Identifier: MIT
/* What all nouns share: options, keys, messages, output. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "common/tunables.h"
#include "common/uuid.h"

#define MODULE_HINT	"is the module loaded? try: modprobe kvblk"

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

bool cli_parse_uuid(const char *text, uint8_t uuid[16])
{
	const char *at = text;
	char usual[40];

	for (int i = 0; i < 16; i++, at += 2) {
		at += *at == '-';
		if (sscanf(at, "%2hhx", &uuid[i]) != 1)
			return false;
	}
	return !strcasecmp(uuid_format(uuid, usual), text);
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

int cli_fail(const char *format, ...)
{
	va_list args;

	fflush(stdout);
	fputs("kvblk: ", stderr);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	return CLI_ERROR;
}

/* Copies @message. What the module quotes, as "force", is an option here: --force. */
static void say_option(const char *message, char *to, size_t size)
{
	static const char *const options[] = { "\"format\"", "\"force\"", "\"degraded\"" };
	size_t n = 0, len, i;

	while (*message && n + 1 < size) {
		for (i = 0; i < ARRAY_SIZE(options); i++) {
			len = strlen(options[i]);
			if (!strncmp(message, options[i], len))
				break;
		}
		if (i < ARRAY_SIZE(options)) {
			snprintf(to + n, size - n, "--%.*s", (int)len - 2, message + 1);
			n += strlen(to + n);
			message += len;
		} else {
			to[n++] = *message++;
		}
	}
	to[n] = '\0';
}

int cli_admin_fail(struct kvblk_admin *admin, int err, const char *subject)
{
	const char *message = kvblk_admin_message(admin);
	char text[512];

	say_option(message, text, sizeof(text));
	if (*text)
		return cli_fail("%s: %s", subject, text);
	if (err == -EPERM || err == -EACCES)
		return cli_fail("%s: this needs CAP_SYS_ADMIN; run it as root",
				subject);
	return cli_fail("%s: %s", subject, strerror(-err));
}

int cli_admin_warn(struct kvblk_admin *admin, const char *subject)
{
	const char *message = kvblk_admin_message(admin);

	if (!*message)
		return CLI_OK;
	cli_fail("%s: %s", subject, message);
	return CLI_DEGRADED;
}

int cli_no_module(const char *pool)
{
	if (pool)
		return cli_fail("no pool %s: there is no kvblk on this host; "
				MODULE_HINT, pool);
	return cli_fail("there is no kvblk on this host; " MODULE_HINT);
}

int cli_no_pool(const char *pool)
{
	DIR *dir = opendir("/sys/class/kvblk");
	const struct dirent *entry;
	char names[1024] = "";
	size_t len = 0;

	while (dir && (entry = readdir(dir))) {
		if (entry->d_name[0] != '.' && len < sizeof(names))
			len += (size_t)snprintf(names + len, sizeof(names) - len,
						"%s%s", len ? ", " : "", entry->d_name);
	}
	if (dir)
		closedir(dir);
	return cli_fail("no pool %s; pools here: %s", pool, *names ? names : "none");
}

int cli_open_pool(const char *pool, struct kvblk **kv)
{
	int err = kvblk_open(pool, kv);
	char node[64];

	switch (err) {
	case 0:
		return CLI_OK;
	case -ENOTTY:
		return cli_fail("%s: is no node of a pool", pool);
	case -ENODEV:
		if (strchr(pool, '/'))
			return cli_fail("%s: there is no such node, or its pool is gone", pool);
		if (access("/dev/kvblk", F_OK) && access("/sys/module/kvblk", F_OK))
			return cli_no_module(pool);
		snprintf(node, sizeof(node), "/dev/kvblk/%s", pool);
		if (access(node, F_OK))
			return cli_no_pool(pool);
		return cli_fail("pool %s: is just being destroyed; see: kvblk pool list",
				pool);
	case -EACCES:
	case -EPERM:
		return cli_fail("pool %s: no right to open its device node; run as root, or join its group (usermod -aG kvblk USER, then log in again)",
				pool);
	default:
		return cli_fail("pool %s: %s", pool, kvblk_strerror(err));
	}
}

int cli_no_family(void)
{
	if (!access("/sys/module/kvblk", F_OK))
		return cli_fail("the module answers in the initial network namespace only; leave the container, or run it with the host's network");
	return cli_fail("the kernel has no netlink family \"kvblk\": "
			MODULE_HINT);
}

int cli_open_admin(struct kvblk_admin **admin)
{
	int err = kvblk_admin_open(admin);

	if (!err)
		return CLI_OK;
	if (err == -ENOENT)
		return cli_no_family();
	return cli_fail("can't talk to the kernel: %s", strerror(-err));
}

int cli_flush(void)
{
	if (fflush(stdout) || ferror(stdout))
		return cli_fail("can't write to stdout: %s", strerror(errno));
	return CLI_OK;
}

static int print_json(json_t *json, size_t flags)
{
	int err;

	if (!json)
		return cli_fail("no memory for the output");
	err = json_dumpf(json, stdout, flags);
	json_decref(json);
	if (err)
		return cli_fail("can't write to stdout");
	putchar('\n');
	return cli_flush();
}

int cli_print_json(json_t *json)
{
	return print_json(json, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
}

int cli_print_json_line(json_t *json)
{
	return print_json(json, JSON_COMPACT | JSON_REAL_PRECISION(15));
}

char *cli_format_bytes(uint64_t bytes, char *buf, size_t len)
{
	static const char *const units[] = {
		"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB",
	};
	double value = (double)bytes;
	size_t unit = 0;

	while (value >= 1024 && unit < ARRAY_SIZE(units) - 1) {
		value /= 1024;
		unit++;
	}
	/* as many digits as tell: 640 KiB, 2.5 GiB */
	if (value == (double)(uint64_t)value || value >= 100)
		snprintf(buf, len, "%.0f %s", value, units[unit]);
	else
		snprintf(buf, len, "%.2f %s", value, units[unit]);
	return buf;
}

double cli_mib(double bytes)
{
	return bytes / (1 << 20);
}

char *cli_format_ns(uint64_t ns, char *buf, size_t len)
{
	static const char *const units[] = { "ns", "us", "ms", "s" };
	double value = (double)ns;
	size_t unit = 0;

	while (value >= 1000 && unit < ARRAY_SIZE(units) - 1) {
		value /= 1000;
		unit++;
	}
	snprintf(buf, len, value >= 100 || !unit ? "%.0f %s" : "%.2f %s", value,
		 units[unit]);
	return buf;
}
