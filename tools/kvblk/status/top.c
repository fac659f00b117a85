// SPDX-License-Identifier: MIT
/*
 * kvblk top: pools and members, live, on a screen of at least 80 columns and 24 lines.
 *
 * Each frame is drawn from the first line to the last. A dozen escape sequences that every
 * terminal knows suffice, so the command needs no terminal library.
 *
 * The rule: whatever ends the command, the terminal is restored.
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/options.h"
#include "pool/health.h"
#include "pool/member.h"
#include "status/rates.h"

#define ESC		"\033"
/* switch to the alternate screen and hide the cursor; switch back */
#define SCREEN_BEGIN	ESC "[?1049h" ESC "[?25l"
#define SCREEN_END	ESC "[?25h" ESC "[?1049l"
#define SCREEN_HOME	ESC "[H"
#define LINE_END	ESC "[K"
#define SCREEN_REST	ESC "[J"
#define BOLD		ESC "[1m"
#define PLAIN		ESC "[0m"

struct top_args {
	struct cli_list list;
	const char *pool;
	double interval_s;
};

#define AT(field) CLI_FIELD(struct top_args, field)

static const struct cli_option top_arguments[] = {
	{ "POOL", 0, CLI_POOL, AT(pool) },
	{ "INTERVAL", 0, CLI_TIME, AT(interval_s), .min = 0.1, .max = 3600 },
	{ 0 },
};

static void check_top(const struct argp_state *state, void *values)
{
	const struct top_args *args = values;

	if (args->list.json)
		cli_usage(state, "top is for eyes; for programs there is: kvblk iostat -o json");
}

static const struct cli_syntax top_syntax = {
	.arguments = top_arguments,
	.check = check_top,
	.usage = "[POOL] [INTERVAL]",
	.doc = "Show POOL, or each pool, live: rates, members and findings. The screen is drawn every second or every INTERVAL. q quits.\v"
	       "Example:\n  kvblk top kv0 5",
};

/* ---- the screen ---- */

/**
 * struct screen - one frame
 * @to: output
 * @columns: columns of the terminal
 * @rows: lines of the terminal
 * @row: lines written so far
 */
struct screen {
	FILE *to;
	unsigned int columns;
	unsigned int rows;
	unsigned int row;
};

/* Returns the number of lines left. */
static unsigned int room(const struct screen *s)
{
	return s->rows - s->row;
}

/* Print a line, cut at the edge of the screen; nothing if the screen is full. */
__attribute__((format(printf, 3, 4)))
static void line(struct screen *s, bool bold, const char *format, ...)
{
	char text[1024];
	va_list args;

	if (!room(s))
		return;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	/* no line feed after the last line: the terminal would scroll */
	fprintf(s->to, "%s%s%.*s%s" LINE_END, s->row ? "\r\n" : "", bold ? BOLD : "",
		(int)s->columns, text, bold ? PLAIN : "");
	s->row++;
}

static char *latency(uint64_t ns, char *buf, size_t len)
{
	if (ns)
		return cli_format_ns(ns, buf, len);
	snprintf(buf, len, "-");
	return buf;
}

static void draw_pool(struct screen *s, const struct kvblk_pool_state *pool,
		      const struct health_report *report, const struct rates *r)
{
	char hit[16] = "-", text[3][32], unused[16], index[16];

	if (r->hit_ratio >= 0)
		snprintf(hit, sizeof(hit), "%.1f", 100 * r->hit_ratio);
	snprintf(unused, sizeof(unused), "%.0f %%",
		 pool->capacity ? 100.0 * (double)pool->free / (double)pool->capacity : 0);
	snprintf(index, sizeof(index), "%.0f %%",
		 pool->index_slots ? 100.0 * (double)pool->index_used / (double)pool->index_slots : 0);
	line(s, false, "%-10.10s %-8s %7.1f %7.1f %5s %8s %8s %8s %5s %5s", pool->name,
	     health_name(report->health), cli_mib(r->put_bytes_s), cli_mib(r->get_bytes_s), hit,
	     latency(r->get_p50_ns, text[0], sizeof(text[0])),
	     latency(r->get_p99_ns, text[1], sizeof(text[1])),
	     latency(r->put_p99_ns, text[2], sizeof(text[2])), unused, index);
}

static void draw_pools(struct screen *s, const struct snapshot *now, const struct snapshot *then)
{
	struct health_report report;
	struct rates none = { .hit_ratio = -1 }, rates;
	unsigned int more = 0;

	line(s, true, "%-10s %-8s %7s %7s %5s %8s %8s %8s %5s %5s", "POOL", "HEALTH", "PUT MiB",
	     "GET MiB", "HIT %", "GET p50", "GET p99", "PUT p99", "FREE", "INDEX");
	for (const struct kvblk_pool_state *p = now->pools; p; p = p->next) {
		/* leave half of the screen to members and findings */
		if (s->row >= s->rows / 2 && p->next) {
			more++;
			continue;
		}
		health_of(p, now, &report);
		draw_pool(s, p, &report, snapshot_rates(now, then, p->name, &rates) ? &rates : &none);
	}
	if (more)
		line(s, false, "... and %u more; name one: kvblk top POOL", more);
	if (!now->pools)
		line(s, false, "no pools");
}

/* Returns how many lines the findings of all pools take. */
static unsigned int count_findings(const struct snapshot *now)
{
	struct health_report report;
	unsigned int n = 0;

	for (const struct kvblk_pool_state *p = now->pools; p; p = p->next) {
		health_of(p, now, &report);
		n += (unsigned int)report.nr_findings;
	}
	return n;
}

static void draw_members(struct screen *s, const struct snapshot *now, unsigned int findings)
{
	unsigned int keep = findings ? (findings < s->rows / 4 ? findings : s->rows / 4) + 2 : 0;
	unsigned int left = 0;
	char size[32];

	for (const struct kvblk_member_state *m = now->members; m; m = m->next)
		left++;
	if (!left || room(s) < keep + 3)
		return;
	line(s, false, "%s", "");
	line(s, true, "%-10s %-14s %-10s %10s %9s %6s %6s %8s", "POOL", "MEMBER", "STATE", "SIZE",
	     "SEGMENTS", "FREE", "SEALED", "INFLIGHT");
	for (const struct kvblk_member_state *m = now->members; m; m = m->next) {
		if (room(s) <= keep + 1 && left > 1) {
			line(s, false, "... and %u more; see: kvblk member list", left);
			return;
		}
		left--;
		line(s, false, "%-10.10s %-14.14s %-10s %10s %9u %6u %6u %8u", m->pool, m->name,
		     member_condition(m),
		     cli_format_bytes(m->size, size, sizeof(size)), m->nr_segments,
		     m->free_segments, m->sealed_segments, m->inflight);
	}
}

/* Returns the entry of @foreign in an earlier snapshot, NULL if it is new. */
static const struct kvblk_member_state *foreign_then(const struct snapshot *then,
						     const struct kvblk_member_state *foreign)
{
	const struct kvblk_member_state *f = then->foreign;

	while (f && (strcmp(f->pool, foreign->pool) != 0 ||
		     memcmp(f->uuid, foreign->uuid, sizeof(f->uuid)) != 0))
		f = f->next;
	/* counters restart when it is followed again */
	return f && f->gets <= foreign->gets && f->get_misses <= foreign->get_misses ? f : NULL;
}

static void draw_foreign(struct screen *s, const struct snapshot *now,
			 const struct snapshot *then, unsigned int findings)
{
	unsigned int keep = findings ? (findings < s->rows / 4 ? findings : s->rows / 4) + 2 : 0;
	double seconds = (double)(now->ns - then->ns) / 1e9;
	const struct kvblk_member_state *f, *was;
	double gets, bytes, misses;
	unsigned int left = 0;

	for (f = now->foreign; f; f = f->next)
		left++;
	if (!left || room(s) < keep + 3)
		return;
	line(s, false, "%s", "");
	line(s, true, "%-10s %-14s %-10s %-13s %8s %8s %7s", "POOL", "FOLLOWED", "STATE", "OWNER",
	     "GET/s", "GET MiB", "MISS/s");
	for (f = now->foreign; f; f = f->next) {
		if (room(s) <= keep + 1 && left > 1) {
			line(s, false, "... and %u more; see: kvblk member list --foreign", left);
			return;
		}
		left--;
		was = foreign_then(then, f);
		gets = was && seconds > 0 ? (double)(f->gets - was->gets) / seconds : 0;
		bytes = was && seconds > 0 ? (double)(f->get_bytes - was->get_bytes) / seconds : 0;
		misses = was && seconds > 0 ? (double)(f->get_misses - was->get_misses) / seconds : 0;
		line(s, false, "%-10.10s %-14.14s %-10s %-13.13s %8.1f %8.1f %7.1f", f->pool,
		     f->name, member_condition(f), f->owner, gets, cli_mib(bytes), misses);
	}
}

static void draw_findings(struct screen *s, const struct snapshot *now)
{
	struct health_report report;

	line(s, false, "%s", "");
	for (const struct kvblk_pool_state *p = now->pools; p; p = p->next) {
		health_of(p, now, &report);
		for (size_t i = 0; i < report.nr_findings; i++)
			line(s, report.findings[i].health >= HEALTH_DEGRADED, "%s: %s",
			     p->name, report.findings[i].what);
	}
}

/* Draw a frame with a single write, because several would flicker. */
static void draw(const struct top_args *args, const struct snapshot *now,
		 const struct snapshot *then)
{
	struct winsize size = { 0 };
	struct screen s = { .columns = 80, .rows = 24 };
	unsigned int findings = count_findings(now);
	time_t clock = time(NULL);
	char when[16] = "", *frame = NULL;
	size_t len = 0;
	struct tm tm;

	if (!ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) && size.ws_col && size.ws_row) {
		s.columns = size.ws_col;
		s.rows = size.ws_row;
	}
	s.to = open_memstream(&frame, &len);
	if (!s.to)
		return;
	if (localtime_r(&clock, &tm))
		strftime(when, sizeof(when), "%T", &tm);
	fputs(SCREEN_HOME, s.to);
	line(&s, false, "kvblk top  %s  each %g s  %s  (q quits)", when, args->interval_s,
	     findings ? "what to do: kvblk status" : "all is well");
	line(&s, false, "%s", "");
	draw_pools(&s, now, then);
	draw_members(&s, now, findings);
	draw_foreign(&s, now, then, findings);
	if (findings)
		draw_findings(&s, now);
	fputs(SCREEN_REST, s.to);
	fclose(s.to);
	fwrite(frame, 1, len, stdout);
	fflush(stdout);
	free(frame);
}

/* ---- the terminal ---- */

static int terminal_begin(struct termios *was)
{
	struct termios raw;
	const char *term = getenv("TERM");

	if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO) || tcgetattr(STDIN_FILENO, was))
		return cli_fail("top needs a terminal; for files and pipes there is: kvblk iostat");
	if (!term || !strcmp(term, "dumb"))
		return cli_fail("top cannot draw on this terminal (TERM is %s); there is: kvblk iostat",
				term ? term : "not set");
	raw = *was;
	raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
	/* disable Ctrl-Z: a stopped command would leave the terminal raw */
	raw.c_cc[VSUSP] = _POSIX_VDISABLE;
	tcsetattr(STDIN_FILENO, TCSANOW, &raw);
	fputs(SCREEN_BEGIN, stdout);
	fflush(stdout);
	return CLI_OK;
}

static void terminal_end(const struct termios *was)
{
	fputs(SCREEN_END, stdout);
	fflush(stdout);
	tcsetattr(STDIN_FILENO, TCSANOW, was);
}

/* Wait until @end_ns, a key or a signal. Returns 1 to quit, 0 to draw again, -1 at @end_ns. */
static int wait_for_key(int signals, uint64_t end_ns)
{
	struct pollfd fds[] = {
		{ .fd = STDIN_FILENO, .events = POLLIN },
		{ .fd = signals, .events = POLLIN },
	};
	struct signalfd_siginfo info;
	uint64_t now = snapshot_clock();
	char key;
	int n;

	if (now >= end_ns)
		return -1;
	n = poll(fds, ARRAY_SIZE(fds), (int)((end_ns - now) / 1000000) + 1);
	if (n <= 0)
		return n < 0 && errno != EINTR ? 1 : -1;
	if (fds[1].revents && read(signals, &info, sizeof(info)) == sizeof(info))
		return info.ssi_signo != SIGWINCH;
	/* a terminal that was closed quits, too */
	if (fds[0].revents && (read(STDIN_FILENO, &key, 1) != 1 || key == 'q' || key == 'Q'))
		return 1;
	return 0;
}

/* Draw frames until the user quits. Returns 0 or the module's error. */
static int watch(struct kvblk_admin *admin, const struct top_args *args, int signals)
{
	uint64_t step = (uint64_t)(args->interval_s * 1e9);
	struct snapshot then, now;
	int err, key = 0;

	err = snapshot_get(admin, args->pool, &then);
	now = then;
	while (!err && key != 1) {
		draw(args, &now, &then);
		key = wait_for_key(signals, now.ns + step);
		if (key >= 0)
			continue;
		if (now.ns != then.ns)
			snapshot_free(&then);
		then = now;
		err = snapshot_get(admin, args->pool, &now);
	}
	if (now.ns != then.ns)
		snapshot_free(&now);
	snapshot_free(&then);
	return err;
}

int top_main(int argc, char **argv)
{
	struct top_args args = { .interval_s = 1 };
	struct kvblk_admin *admin;
	struct termios was;
	sigset_t set;
	int err, ret, signals;

	cli_parse(&top_syntax, argc, argv, &args);
	admin = cli_open_admin();
	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	sigaddset(&set, SIGWINCH);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signals = signalfd(-1, &set, SFD_CLOEXEC);
	if (signals < 0)
		ret = cli_fail("signalfd: %s", strerror(errno));
	else
		ret = terminal_begin(&was);
	if (ret == CLI_OK) {
		err = watch(admin, &args, signals);
		terminal_end(&was);
		if (err)
			ret = cli_admin_fail(admin, err, args.pool ? args.pool : "pools");
	}
	if (signals >= 0)
		close(signals);
	kvblk_admin_close(admin);
	return ret;
}
