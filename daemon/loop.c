// SPDX-License-Identifier: MIT
/*
 * The loop, see loop.h. One sd_event loop handles signals, the module's events, uevents and
 * timers, and never waits for a device. A thread runs apply(), one pass at a time, because
 * a pass may block.
 *
 * All state is in memory only, so the daemon may be killed at any time. The configuration
 * and struct apply belong to the thread during a pass (d->working), to the loop between
 * passes.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <systemd/sd-daemon.h>
#include <systemd/sd-event.h>
#include <unistd.h>

#include "apply/apply.h"
#include "apply/host_state.h"
#include "common/clock.h"
#include "common/salt.h"
#include "host/capabilities.h"
#include "host/genl_families.h"
#include "host/uevents.h"
#include "kv_events/publisher.h"
#include "kvblk_keys.h"
#include "log/event_log.h"
#include "log/log.h"
#include "loop.h"
#include "metrics/exporter.h"
#include "pod/pod.h"
#include "policy/policy_thread.h"
#include "prestage/hint_socket.h"

#define SETTLE_US	200000ull	/* collect uevents: devices appear in bursts */
#define SECOND_US	1000000ull
#define STACK_BYTES	(1u << 20)
#define EXIT_CONFIG	78		/* EX_CONFIG of sysexits.h */

/**
 * struct daemon - state of the loop
 * @config: configuration in force
 * @facts: inputs of the exporter
 * @apply: state that apply() keeps between passes
 * @result: result of the last pass
 * @apply_error: error of the last pass
 * @working: a pass is under way
 * @worker: thread of the pass
 * @done_fd: eventfd, written by the thread at the end of a pass
 * @again: another pass is needed
 * @reload: SIGHUP arrived; the next pass loads the file first
 * @restart: the next pass applies every setting again
 * @came_up: pools that appeared since the last pass began
 * @ready: READY=1 has been sent to the service manager
 */
struct daemon {
	sd_event *event;
	sd_event_source *pass_timer;
	sd_event_source *storm_timer;
	sd_event_source *events_source;
	struct families *families;
	struct exporter *exporter;
	struct kvblk_feed *events;	/* NULL while the module is not loaded */
	int uevent_fd;
	struct limit limit;
	const char *config_path;

	struct config config;
	struct exporter_facts facts;
	struct apply apply;
	struct apply_result result;
	int apply_error;
	bool working;
	pthread_t worker;
	int done_fd;
	bool again;
	bool reload;
	bool restart;
	struct texts came_up;
	bool ready;
};

static void arm(sd_event_source *timer, uint64_t us)
{
	sd_event_source_set_time_relative(timer, us);
	sd_event_source_set_enabled(timer, SD_EVENT_ONESHOT);
}

static void log_errors(char *said)
{
	char *line;

	while (said && (line = strsep(&said, "\n"))) {
		if (*line)
			log_line(LOG_LINE_WARNING, "%s", line);
	}
}

/* Load the file into @config, which the caller frees. Returns the number of errors logged. */
static unsigned int load_config(struct daemon *d, struct config *config)
{
	char *said = NULL;
	unsigned int errors;
	size_t len;
	FILE *to;

	if (!strcmp(d->config_path, CONFIG_PATH) && access(CONFIG_PATH, F_OK)) {
		log_line(LOG_LINE_INFO, "no " CONFIG_PATH ": pools and subsystems stay unchanged");
		*config = (struct config){ 0 };
		errors = 0;
	} else {
		to = open_memstream(&said, &len);
		errors = config_load(d->config_path, config, to ? to : stderr);
		if (to)
			fclose(to);
		log_errors(said);
		free(said);
	}
	d->facts.config_valid = !errors;
	return errors;
}

/*
 * Load the first configuration. Invalid settings are skipped: without kvblkd the host would have
 * no pools at all. Returns false if no file can be read.
 */
static bool read_first_config(struct daemon *d)
{
	if (!load_config(d, &d->config))
		return true;
	if (d->config.unreadable)
		return false;
	log_line(LOG_LINE_WARNING, "%s has errors; invalid settings are skipped, the rest is in force",
		 d->config_path);
	return true;
}

static void follow_prestage(struct daemon *d)
{
	int err = prestage_follow(d->event, &d->config);

	if (err < 0)
		log_line(LOG_LINE_WARNING, "prestage: cannot open hint socket: %s; hints disabled", strerror(-err));
}

static void reload(struct daemon *d)
{
	struct config config;

	d->reload = false;
	if (!load_config(d, &config)) {
		config_free(&d->config);
		d->config = config;
		log_line(LOG_LINE_INFO, "%s: in force", d->config_path);
		policy_configure(&d->config);
		kvfeed_configure(&d->config);
		pod_configure(&d->config);
		d->restart = true;
		exporter_follow(d->exporter);
		follow_prestage(d);
	} else {
		config_free(&config);
		log_line(LOG_LINE_WARNING, "%s has errors; keeping the previous configuration",
			 d->config_path);
	}
}

static void tell_step(void *arg, const struct step *step, enum apply_outcome outcome,
		      const char *why)
{
	if (outcome == APPLY_FAILED)
		log_line(LOG_LINE_WARNING, "%s: failed: %s; retrying within %d s", step->text, why,
			 APPLY_LONGEST_GAP);
	else
		log_line(LOG_LINE_INFO, "%s%s", step->text, outcome == APPLY_DONE ? ": done" : "");
}

static void *work(void *arg)
{
	struct daemon *d = arg;

	d->apply_error = apply(&d->apply, &d->config, false, &d->result);
	eventfd_write(d->done_fd, 1);
	return NULL;
}

/* Handle what arrived during the last pass. Called between passes only. */
static void catch_up(struct daemon *d)
{
	if (d->reload)
		reload(d);
	if (d->restart)
		apply_forget(&d->apply);
	d->restart = false;
	for (size_t i = 0; i < d->came_up.nr; i++)
		apply_unsettle(&d->apply, d->came_up.text[i]);
	texts_free(&d->came_up);
}

static int on_pass_timer(sd_event_source *source, uint64_t us, void *arg)
{
	struct daemon *d = arg;
	pthread_attr_t attr;

	if (d->working) {
		d->again = true;
		return 0;
	}
	catch_up(d);
	d->again = false;
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	d->working = !pthread_create(&d->worker, &attr, work, d);
	pthread_attr_destroy(&attr);
	if (!d->working)
		arm(d->pass_timer, SECOND_US);
	return 0;
}

static void want_pass(struct daemon *d)
{
	d->again = true;
	if (!d->working)
		arm(d->pass_timer, SETTLE_US);
}

static void tell_manager(struct daemon *d)
{
	if (d->apply_error)
		sd_notify(0, "STATUS=cannot read host state; retrying");
	else if (d->result.nr_failed || d->result.nr_notes)
		sd_notifyf(0, "STATUS=%u steps failed and are retried, %u notes; see the log",
			   d->result.nr_failed, d->result.nr_notes);
	else
		sd_notify(0, "STATUS=host matches the configuration");
	/* not ready if the pass failed, or if it used a file that is to be loaded again */
	if (d->apply_error || d->reload)
		return;
	if (!d->ready)
		sd_notify(0, "READY=1");
	d->ready = true;
}

static int on_done(sd_event_source *source, int fd, uint32_t revents, void *arg)
{
	struct daemon *d = arg;
	eventfd_t n;

	eventfd_read(fd, &n);
	pthread_join(d->worker, NULL);
	d->working = false;
	/* reading the host state counts as a step */
	d->facts.steps_failed = d->result.nr_failed + !!d->apply_error;
	if (d->apply_error) {
		log_line(LOG_LINE_WARNING, "cannot read host state: %s; retrying in %d s",
			 strerror(-d->apply_error), LIMIT_SECONDS);
		d->result.next = LIMIT_SECONDS;
	}
	tell_manager(d);
	policy_wake();
	if (d->again || d->reload)
		arm(d->pass_timer, SETTLE_US);
	else if (d->result.next >= 0)
		arm(d->pass_timer, (uint64_t)(d->result.next > 0 ? d->result.next : 1) * SECOND_US);
	return 0;
}

static void stop_listening(struct daemon *d)
{
	d->events_source = sd_event_source_disable_unref(d->events_source);
	kvblk_feed_close(d->events);
	d->events = NULL;
}

static void start_listening(struct daemon *d);

static void take_event(struct daemon *d, const struct kvblk_notice *notice)
{
	report_event(&d->limit, notice, clock_s());
	switch (notice->type) {
	case KVBLK_EVENT_POOL_UP:
		texts_add(&d->came_up, notice->pool);
		kvfeed_wake();
		want_pass(d);
		break;
	case KVBLK_EVENT_POOL_DOWN:
	case KVBLK_EVENT_MEMBER_DEAD:
	case KVBLK_EVENT_MEMBER_DOWN:
	case KVBLK_EVENT_RESTORE_FAILED:
		want_pass(d);
		break;
	default:
		break;
	}
}

static void arm_storm_timer(struct daemon *d)
{
	int64_t due = limit_due(&d->limit, clock_s());

	if (due >= 0)
		arm(d->storm_timer, (uint64_t)(due + 1) * SECOND_US);
}

static int on_storm_timer(sd_event_source *source, uint64_t us, void *arg)
{
	struct daemon *d = arg;

	report_storms(&d->limit, clock_s());
	arm_storm_timer(d);
	return 0;
}

static void read_events(struct daemon *d)
{
	const struct kvblk_notice *notice;
	int err;

	while (d->events) {
		err = kvblk_feed_read(d->events, &notice, NULL);
		if (!err) {
			take_event(d, notice);
		} else if (err == -EAGAIN) {
			break;
		} else if (err == -ENOBUFS) {
			log_line(LOG_LINE_WARNING, "events were lost; present state of the pools:");
			report_pools();
			want_pass(d);
		} else {
			log_line(LOG_LINE_WARNING, "events: %s; subscribing again", strerror(-err));
			stop_listening(d);
			start_listening(d);
		}
	}
	arm_storm_timer(d);
}

static int on_events(sd_event_source *source, int fd, uint32_t revents, void *arg)
{
	read_events(arg);
	return 0;
}

static void start_listening(struct daemon *d)
{
	int err;

	if (d->events)
		return;
	err = kvblk_feed_open(KVBLK_FEED_EVENTS, &d->events);
	if (!err)
		err = sd_event_add_io(d->event, &d->events_source, kvblk_feed_fd(d->events),
				      EPOLLIN, on_events, d);
	if (err >= 0) {
		log_line(LOG_LINE_INFO, "listening to the module's events");
		report_pools();
		return;
	}
	stop_listening(d);
	if (err == -ENOENT)
		log_line(LOG_LINE_INFO, "the module kvblk is not loaded; waiting for it");
	else
		log_line(LOG_LINE_WARNING, "cannot listen to the module's events: %s",
			 strerror(-err));
}

static int on_families(sd_event_source *source, int fd, uint32_t revents, void *arg)
{
	struct daemon *d = arg;
	enum family_change change;

	while (!families_read(d->families, KVBLK_FAMILY_NAME, &change)) {
		/* read the queued events first, because stop_listening() drops them */
		if (d->events)
			read_events(d);
		stop_listening(d);
		if (change == FAMILY_GONE) {
			log_line(LOG_LINE_INFO, "the module kvblk was unloaded; waiting for it");
			continue;
		}
		start_listening(d);
		/* the old module's pools ended without an event: apply every setting again */
		d->restart = true;
		want_pass(d);
	}
	return 0;
}

static int on_uevents(sd_event_source *source, int fd, uint32_t revents, void *arg)
{
	if (uevents_read(fd))
		want_pass(arg);
	return 0;
}

static int on_hangup(sd_event_source *source, const struct signalfd_siginfo *si, void *arg)
{
	struct daemon *d = arg;

	sd_notifyf(0, "RELOADING=1\nMONOTONIC_USEC=%llu", (unsigned long long)clock_us());
	d->ready = false;
	d->reload = true;
	want_pass(d);
	return 0;
}

static int on_end(sd_event_source *source, const struct signalfd_siginfo *si, void *arg)
{
	struct daemon *d = arg;

	log_line(LOG_LINE_INFO, "received %s; exiting",
		 si->ssi_signo == SIGINT ? "SIGINT" : "SIGTERM");
	sd_notify(0, "STOPPING=1");
	return sd_event_exit(d->event, 0);
}

static int add_sources(struct daemon *d)
{
	int err = sd_event_add_signal(d->event, NULL, SIGTERM, on_end, d);

	if (err >= 0)
		err = sd_event_add_signal(d->event, NULL, SIGINT, on_end, d);
	if (err >= 0)
		err = sd_event_add_signal(d->event, NULL, SIGHUP, on_hangup, d);
	if (err >= 0)
		err = sd_event_add_io(d->event, NULL, families_fd(d->families), EPOLLIN,
				      on_families, d);
	if (err >= 0)
		err = sd_event_add_io(d->event, NULL, d->done_fd, EPOLLIN, on_done, d);
	if (err >= 0 && d->uevent_fd >= 0)
		err = sd_event_add_io(d->event, NULL, d->uevent_fd, EPOLLIN, on_uevents, d);
	if (err >= 0)
		err = sd_event_add_time_relative(d->event, &d->pass_timer, CLOCK_MONOTONIC, 0, 0,
						 on_pass_timer, d);
	if (err >= 0)
		err = sd_event_add_time_relative(d->event, &d->storm_timer, CLOCK_MONOTONIC, 0, 0,
						 on_storm_timer, d);
	if (err >= 0)
		err = sd_event_set_watchdog(d->event, true);
	return err;
}

static void block_signals(void)
{
	sigset_t signals;

	sigemptyset(&signals);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGHUP);
	pthread_sigmask(SIG_BLOCK, &signals, NULL);
}

/*
 * Raise the limit of open files, because each prefetch order that holds a lease uses a
 * descriptor. The soft limit is low only for select(2), which kvblkd does not use.
 */
static void raise_files(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit))
		return;
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
}

/*
 * Make the deployment's salt if there is none. Pools work without it, so an error is only
 * logged: kvblk keyspace and the connectors report it, too.
 */
static void make_salt(const struct config *config)
{
	const char *path = config->salt ? config->salt : KVBLK_SALT_FILE;
	gid_t group = salt_group();
	const char *why;
	int ret;

	if (!*path)
		return;
	ret = salt_make(path, group, &why);
	if (ret < 0)
		log_line(LOG_LINE_WARNING, "salt %s: %s; see kvblk keyspace --help", path, why);
	else if (ret)
		log_line(LOG_LINE_INFO, "salt %s: made; copy it to hosts that share blocks with this one%s",
			 path, group == (gid_t)-1 ? "; there is no group kvblk, so only root can read it" : "");
}

static int open_all(struct daemon *d)
{
	int err = families_open(&d->families);

	if (err)
		return err;
	d->done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (d->done_fd < 0)
		return -errno;
	d->uevent_fd = uevents_open();
	if (d->uevent_fd < 0)
		log_line(LOG_LINE_WARNING, "cannot listen to uevents: %s; new devices may be noticed late",
			 strerror(-d->uevent_fd));
	err = sd_event_new(&d->event);
	if (err >= 0)
		err = exporter_new(d->event, &d->config, &d->facts, &d->exporter);
	return err < 0 ? err : add_sources(d);
}

int loop(const char *config_path)
{
	static struct daemon d = { .apply = { .told = tell_step } };
	int err;

	d.config_path = config_path;
	block_signals();
	raise_files();
	if (!read_first_config(&d))
		return EXIT_CONFIG;
	if (policy_open(rights_join("kvblk-monitor")) == -EBUSY) {
		log_line(LOG_LINE_WARNING, "kvblkd is already running; see systemctl status kvblkd");
		return EXIT_FAILURE;
	}
	prestage_listen(&d.config);
	make_salt(&d.config);
	err = rights_drop();
	if (err)
		log_line(LOG_LINE_WARNING, "cannot drop capabilities: %s; continuing as root", strerror(-err));
	/* watch for the module first, or else a module loaded before start_listening() is missed */
	err = open_all(&d);
	if (err < 0) {
		log_line(LOG_LINE_WARNING, "cannot start: %s", strerror(-err));
		return EXIT_FAILURE;
	}
	start_listening(&d);
	policy_start();
	policy_configure(&d.config);
	kvfeed_configure(&d.config);
	pod_configure(&d.config);
	follow_prestage(&d);
	err = sd_event_loop(d.event);
	/* do not wait for a pass under way: the kernel has its state, and the next start resumes */
	return err < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
