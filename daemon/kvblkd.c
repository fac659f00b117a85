// SPDX-License-Identifier: MIT
/*
 * kvblkd: hears what happens to the pools of this host and logs it. It waits
 * for the module where it is not loaded, and again when it was unloaded. It
 * changes nothing, and needs no privilege.
 *
 * One thread, one poll loop over three descriptors: signals, the module's
 * events (while there is a module), the kernel's notices of families that
 * come and go.
 */
#include <argp.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "kvblk.h"
#include "config.h"
#include "families.h"
#include "log.h"
#include "once.h"

struct daemon {
	struct families *families;
	/* NULL while the module is not loaded */
	struct kvblk_events *events;
	int signal_fd;
};

static void log_members(struct kvblk_admin *admin, const char *pool)
{
	struct kvblk_member_state *members;

	if (kvblk_member_get(admin, pool, &members))
		return;
	for (struct kvblk_member_state *m = members; m; m = m->next)
		log_line(LOG_LINE_INFO, "pool %s, member %s: %s%s, %u of %u segments free",
			 pool, m->name, kvblk_member_status_name(m->state),
			 m->suspect ? ", suspect" : m->failing ? ", failing" : "",
			 m->free_segments,
			 m->nr_segments);
	kvblk_member_free(members);
}

/* What there is now: at the start, and after events were lost. */
static void log_pools(void)
{
	struct kvblk_pool_state *pools;
	struct kvblk_admin *admin;
	int err;

	err = kvblk_admin_open(&admin);
	if (err) {
		log_line(LOG_LINE_WARNING, "can't ask for the pools: %s",
			 strerror(-err));
		return;
	}
	err = kvblk_pool_get(admin, NULL, &pools);
	if (err) {
		log_line(LOG_LINE_WARNING, "can't list the pools: %s",
			 *kvblk_admin_message(admin) ?
			 kvblk_admin_message(admin) : strerror(-err));
		goto close_admin;
	}
	if (!pools)
		log_line(LOG_LINE_INFO, "no pools yet");
	for (struct kvblk_pool_state *p = pools; p; p = p->next) {
		log_line(LOG_LINE_INFO, "pool %s: %u members, %u of %u segments free",
			 p->name, p->nr_members, p->free_segments,
			 p->nr_segments);
		log_members(admin, p->name);
	}
	kvblk_pool_free(pools);
close_admin:
	kvblk_admin_close(admin);
}

static int weight(const struct kvblk_notice *notice)
{
	switch (notice->type) {
	case KVBLK_EVENT_MEMBER_DEAD:
	case KVBLK_EVENT_MEMBER_SUSPECT:
	case KVBLK_EVENT_MEMBER_FAILING:
	case KVBLK_EVENT_CHECKSUM:
	case KVBLK_EVENT_READ_ERROR:
	case KVBLK_EVENT_WRITE_ERROR:
	case KVBLK_EVENT_LOW_SPACE:
	case KVBLK_EVENT_RESTORE_FAILED:
		return LOG_LINE_WARNING;
	case KVBLK_EVENT_REQUEST_DONE:
		return notice->number[KVBLK_A_EVENT_ERROR] ? LOG_LINE_WARNING :
							     LOG_LINE_INFO;
	default:
		return LOG_LINE_INFO;
	}
}

static void start_listening(struct daemon *d)
{
	int err;

	if (d->events)
		return;
	err = kvblk_events_open(&d->events);
	if (!err) {
		log_line(LOG_LINE_INFO, "listening to the module's events");
		log_pools();
		return;
	}
	d->events = NULL;
	if (err == -ENOENT)
		log_line(LOG_LINE_INFO, "the module kvblk is not loaded; waiting for it");
	else
		log_line(LOG_LINE_WARNING, "can't listen to the module's events: %s",
			 strerror(-err));
}

static void stop_listening(struct daemon *d)
{
	kvblk_events_close(d->events);
	d->events = NULL;
}

static void read_events(struct daemon *d)
{
	const struct kvblk_notice *notice;
	char text[256];
	int err;

	for (;;) {
		err = kvblk_events_read(d->events, &notice);
		if (err == -EAGAIN)
			return;
		if (err == -ENOBUFS) {
			log_line(LOG_LINE_WARNING, "events were lost; this is how things are:");
			log_pools();
			continue;
		}
		if (err) {
			log_line(LOG_LINE_WARNING, "events: %s; listening anew",
				 strerror(-err));
			stop_listening(d);
			start_listening(d);
			return;
		}
		kvblk_event_text(notice, text, sizeof(text));
		log_line(weight(notice), "%s: %s",
			 kvblk_event_name(notice->type), text);
	}
}

static void read_families(struct daemon *d)
{
	enum family_change change;

	while (!families_read(d->families, KVBLK_FAMILY_NAME, &change)) {
		if (change == FAMILY_GONE) {
			/* events from before it went may still be there */
			if (d->events)
				read_events(d);
			stop_listening(d);
			log_line(LOG_LINE_INFO, "the module kvblk was unloaded; waiting for it");
		} else {
			stop_listening(d);
			start_listening(d);
		}
	}
}

/* Returns when a signal asks for it. */
static void serve(struct daemon *d)
{
	for (;;) {
		struct pollfd fds[] = {
			{ .fd = d->signal_fd, .events = POLLIN },
			{ .fd = families_fd(d->families), .events = POLLIN },
			{
				/* poll() skips negative ones */
				.fd = d->events ? kvblk_events_fd(d->events) : -1,
				.events = POLLIN,
			},
		};

		if (poll(fds, 3, -1) < 0 && errno != EINTR) {
			log_line(LOG_LINE_WARNING, "poll: %s", strerror(errno));
			return;
		}
		if (fds[0].revents) {
			log_line(LOG_LINE_INFO, "asked to end");
			return;
		}
		/* families first would close what fds[2] is about */
		if (fds[2].revents)
			read_events(d);
		if (fds[1].revents)
			read_families(d);
	}
}

static int open_signals(void)
{
	sigset_t signals;

	sigemptyset(&signals);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGTERM);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	return signalfd(-1, &signals, SFD_CLOEXEC);
}

/* ---- the command line ---- */

enum {
	OPT_APPLY = 0x100,
	OPT_CHECK,
	OPT_CONFIG,
	OPT_DRY_RUN,
	OPT_SETTINGS,
};

struct args {
	const char *config;
	bool apply;
	bool dry_run;
	bool json;
};

static int check_file(const char *path)
{
	struct config config;
	unsigned int errors = config_load(path, &config, stderr);

	config_free(&config);
	return errors ? EXIT_FAILURE : EXIT_SUCCESS;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct args *args = state->input;

	switch (key) {
	case OPT_APPLY:
		args->apply = true;
		return 0;
	case OPT_CONFIG:
		args->config = arg;
		return 0;
	case OPT_DRY_RUN:
		args->dry_run = true;
		return 0;
	case 'o':
		args->json = !strcmp(arg, "json");
		if (!args->json && strcmp(arg, "text") != 0)
			argp_error(state, "-o %s: the formats are json and text", arg);
		return 0;
	case OPT_CHECK:
		exit(check_file(arg));
	case OPT_SETTINGS:
		config_print_settings(stdout);
		exit(EXIT_SUCCESS);
	case ARGP_KEY_ARG:
		argp_error(state, "\"%s\": there is nothing to give here", arg);
		return 0;
	case ARGP_KEY_END:
		if (!args->apply && (args->dry_run || args->json))
			argp_error(state, "--dry-run and -o are for --apply");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_option options[] = {
	{ "config", OPT_CONFIG, "FILE", 0,
	  "The configuration is in FILE and FILE.d/*.conf (default: " CONFIG_PATH ")", 0 },
	{ "apply", OPT_APPLY, NULL, 0,
	  "Bring the host to what the configuration describes, once, and end: what \"kvblk apply\" does", 0 },
	{ "dry-run", OPT_DRY_RUN, NULL, 0, "With --apply: print what would be done", 0 },
	{ "output", 'o', "FORMAT", 0, "With --apply: json, or text (the default)", 0 },
	{ "check", OPT_CHECK, "FILE", 0,
	  "Check the configuration in FILE and FILE.d/*.conf, print what is wrong, and end", 0 },
	/* what the man page is compared with */
	{ "settings", OPT_SETTINGS, NULL, OPTION_HIDDEN, NULL, 0 },
	{ 0 },
};

static void print_version(FILE *to, struct argp_state *state)
{
	(void)state;
	fprintf(to, "kvblkd %s\n", kvblk_version());
}

static const struct argp argp = {
	.options = options,
	.parser = parse,
	.doc = "Log what happens to the kvblk pools of this host.\v"
	       "Stays in the foreground and logs to stderr; under systemd with levels for the journal. Ends cleanly on SIGTERM and SIGINT.\n\n"
	       "Example:\n  systemctl enable --now kvblkd; journalctl -fu kvblkd",
};

int main(int argc, char **argv)
{
	struct args args = { .config = CONFIG_PATH };
	struct daemon d = { 0 };
	int err, ret = EXIT_FAILURE;

	argp_program_version_hook = print_version;
	argp_err_exit_status = 2;
	argp_parse(&argp, argc, argv, 0, NULL, &args);
	if (args.apply)
		return apply_once(args.config, args.dry_run, args.json);

	d.signal_fd = open_signals();
	if (d.signal_fd < 0) {
		log_line(LOG_LINE_WARNING, "signalfd: %s", strerror(errno));
		return EXIT_FAILURE;
	}
	/* before the first try to listen, so that no module is overlooked */
	err = families_open(&d.families);
	if (err) {
		log_line(LOG_LINE_WARNING, "can't watch for the module: %s",
			 strerror(-err));
		goto close_signals;
	}
	start_listening(&d);
	serve(&d);
	stop_listening(&d);
	families_close(d.families);
	ret = EXIT_SUCCESS;
close_signals:
	close(d.signal_fd);
	return ret;
}
