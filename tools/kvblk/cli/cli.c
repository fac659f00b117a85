// SPDX-License-Identifier: MIT
/* Messages, handles and output of all commands. */
#include <dirent.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

#define MODULE_HINT	"is the module loaded? try: modprobe kvblk"

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

/* Copy @message with its quoted words as options: "force" of the module becomes --force. */
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

/* Print why @node, a pool's name, POOL/TENANT or a path, cannot be opened. Returns CLI_ERROR. */
static int no_pool(const char *node, int err)
{
	const char *tenant = cli_is_path(node) ? NULL : strchr(node, '/');
	char pool[KVBLK_NAME_LEN_MAX + 1], path[64];

	snprintf(pool, sizeof(pool), "%.*s", (int)strcspn(node, "/"), node);
	switch (err) {
	case -ENOTTY:
		return cli_fail("%s is not the node of a pool", node);
	case -ENODEV:
		if (cli_is_path(node))
			return cli_fail("%s: no such node", node);
		if (access("/dev/kvblk", F_OK) && access("/sys/module/kvblk", F_OK))
			return cli_no_module(pool);
		snprintf(path, sizeof(path), "/dev/kvblk/%s", pool);
		if (access(path, F_OK))
			return cli_no_pool(pool);
		if (tenant)
			return cli_fail("pool %s has no tenant %s, or it is being removed; see: kvblk tenant list %s",
					pool, tenant + 1, pool);
		return cli_fail("pool %s is being destroyed; see: kvblk pool list",
				pool);
	case -EACCES:
	case -EPERM:
		if (tenant)
			return cli_fail("%s: no permission to open its node; \"kvblk tenant list %s\" shows the owner and the group",
					node, pool);
		return cli_fail("pool %s: no permission to open its node; run as root, or join its group (usermod -aG kvblk USER, then log in again)",
				node);
	default:
		return cli_fail("pool %s: %s", node, strerror(-err));
	}
}

struct kvblk *cli_open_pool(const char *pool)
{
	char node[sizeof("/dev/") + KVBLK_TENANT_DEVNODE_LEN_MAX];
	struct kvblk *kv;
	bool tenant = strchr(pool, '/') && !cli_is_path(pool);
	int err;

	if (tenant)
		snprintf(node, sizeof(node), "/dev/kvblk/%s", pool);
	err = kvblk_open(tenant ? node : pool, 0, &kv);
	if (err)
		exit(no_pool(pool, err));
	return kv;
}

int cli_no_family(void)
{
	if (!access("/sys/module/kvblk", F_OK))
		return cli_fail("the module answers in the initial network namespace only; leave the container, or run it with the host's network");
	return cli_fail("the kernel has no netlink family \"kvblk\": "
			MODULE_HINT);
}

struct kvblk_admin *cli_open_admin(void)
{
	struct kvblk_admin *admin;
	int err = kvblk_admin_open(&admin);

	if (err)
		exit(err == -ENOENT ? cli_no_family() :
		     cli_fail("cannot open a netlink socket: %s", strerror(-err)));
	return admin;
}

int cli_flush(void)
{
	if (fflush(stdout) || ferror(stdout))
		return cli_fail("cannot write to stdout: %s", strerror(errno));
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
		return cli_fail("cannot write to stdout");
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
	/* print only digits that matter: 640 KiB, 2.5 GiB */
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
