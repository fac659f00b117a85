// SPDX-License-Identifier: MIT
/*
 * Decisions, see policy.h.
 *
 * The governor's constants assume a decision each 300 s. With another interval its time is
 * stretched: the governor sees intervals of 300 s and a budget of 288 intervals as a daily one.
 * Its results are converted back to days.
 *
 * Admission cannot direct writes to a member. The pool's budget is therefore the budget of the
 * tightest member, divided by this member's share of the writes; with equal members it is the
 * sum.
 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policy/policy.h"

#define HOUR		3600.0
#define MEAN_LOOKS	72.0
#define WORTH_PERMILLE	5u	/* smallest step of low_permille */
#define WORTH_A_LINE	200	/* change since the last log line that is logged, permille */
#define ROOM_SECONDS	60.0	/* alert if puts run out of free segments within this time */
#define MIB		(1024.0 * 1024)
#define GIB		(1024.0 * MIB)

const char *const policy_tunables[POLICY_TUNABLES] = {
	[POLICY_ADMIT] = "admit_permille",
	[POLICY_FIRST] = "first_permille",
	[POLICY_SECOND] = "second_permille",
	[POLICY_LOW] = "low_permille",
	[POLICY_HIGH] = "high_permille",
};

static struct policy_line *tell(struct policy_verdict *v, const char *kind, bool warning,
				const char *format, ...)
	__attribute__((format(printf, 4, 5)));
static struct policy_line *tell(struct policy_verdict *v, const char *kind, bool warning,
				const char *format, ...)
{
	struct policy_line *line = &v->lines[v->nr_lines < POLICY_LINES ? v->nr_lines++ :
					     POLICY_LINES - 1];
	va_list args;

	*line = (struct policy_line){ .kind = kind, .warning = warning };
	va_start(args, format);
	vsnprintf(line->text, sizeof(line->text), format, args);
	va_end(args);
	return line;
}

static unsigned int least(unsigned int a, unsigned int b)
{
	return a < b ? a : b;
}

static struct policy_flow *flow_of(struct policy_memory *m, const char *name)
{
	for (size_t i = 0; i < m->nr_flows; i++) {
		if (!strcmp(m->flows[i].name, name))
			return &m->flows[i];
	}
	return NULL;
}

/* Drop the flows of removed members, and start new ones at the present counters. */
static void match_flows(struct policy_memory *m, const struct policy_look *look)
{
	struct policy_flow flows[POLICY_MEMBERS], *old;

	for (size_t i = 0; i < look->nr_members; i++) {
		const struct policy_member *member = &look->members[i];

		old = flow_of(m, member->name);
		if (old && old->written <= member->written) {
			flows[i] = *old;
			continue;
		}
		flows[i] = (struct policy_flow){ .written = member->written,
						 .reclaimed = member->reclaimed };
		snprintf(flows[i].name, sizeof(flows[i].name), "%s", member->name);
	}
	m->nr_flows = look->nr_members;
	memcpy(m->flows, flows, m->nr_flows * sizeof(flows[0]));
}

static void alert_room(struct policy_flow *flow, const struct policy_member *member,
		       double write_rate, double reclaim_rate, const struct policy_look *look,
		       struct policy_verdict *v)
{
	double drain = write_rate - reclaim_rate;
	double left = member->free_segments * member->segment_size;
	double low = fmax(2, member->nr_segments * (double)look->now[POLICY_LOW] / 1000);

	if (member->free_segments >= low)
		flow->short_of_room = false;
	/* reclaim starts at the low watermark, in bursts: below half of it, reclaim is behind */
	if (!member->up || member->free_segments * 2 >= low || drain <= 0 ||
	    left / drain > ROOM_SECONDS || flow->short_of_room)
		return;
	flow->short_of_room = true;
	tell(v, "alert", true,
	     "member %s: no free segments in %.0f s: %.1f MiB/s are written, reclaim frees %.1f MiB/s; raise reserve or put less",
	     member->name, left / drain, write_rate / MIB, reclaim_rate / MIB);
}

/* Update rates and peaks. Skipped if no time has passed since the last look. */
static void account_flows(struct policy_memory *m, const struct policy_look *look,
			  struct policy_verdict *v)
{
	double seconds = look->now_s - m->last_s;
	double fade = exp(-seconds / HOUR);
	double weight = -expm1(-seconds / (MEAN_LOOKS * (double)look->pool->budget.interval));

	match_flows(m, look);
	if (!m->seen || seconds <= 0)
		return;
	for (size_t i = 0; i < m->nr_flows; i++) {
		const struct policy_member *member = &look->members[i];
		struct policy_flow *flow = &m->flows[i];
		double write_rate = (member->written - flow->written) / seconds;
		double reclaim_rate = (member->reclaimed - flow->reclaimed) / seconds;

		flow->rate += (write_rate - flow->rate) * weight;
		flow->write_peak = fmax(flow->write_peak * fade, write_rate);
		flow->reclaim_peak = fmax(flow->reclaim_peak * fade, reclaim_rate);
		flow->written = member->written;
		flow->reclaimed = member->reclaimed;
		alert_room(flow, member, write_rate, reclaim_rate, look, v);
	}
}

static double member_budget(const struct config_budget *budget,
			    const struct policy_member *member, const char **why)
{
	double all = INFINITY, life;

	*why = "";
	if (budget->drive_writes > 0) {
		all = budget->drive_writes * member->size;
		*why = "drive_writes";
	}
	if (budget->bytes && (double)budget->bytes < all) {
		all = (double)budget->bytes;
		*why = "bytes";
	}
	if (!budget->life_days || !member->smart.valid || !member->smart.rated)
		return all;
	life = governor_life_budget(member->smart.written, member->smart.used,
				    (double)budget->life_days);
	if (life < all) {
		all = life;
		*why = "life_days";
	}
	return all;
}

double policy_budget(const struct policy_memory *m, const struct policy_look *look,
		     char *why, size_t len)
{
	double pool = INFINITY, rates = 0, share, budget, nr_up = 0;
	const char *from;

	snprintf(why, len, "no member reports its wear, so life_days sets no budget yet");
	for (size_t i = 0; i < look->nr_members; i++) {
		nr_up += look->members[i].up;
		rates += m->flows[i].rate;
	}
	for (size_t i = 0; i < look->nr_members; i++) {
		const struct policy_member *member = &look->members[i];

		/* nothing written yet: assume equal shares, because puts go round the members */
		share = rates > 0 ? m->flows[i].rate / rates : member->up / fmax(nr_up, 1);
		budget = member_budget(&look->pool->budget, member, &from);
		if (share <= 0 || isinf(budget) || budget / share >= pool)
			continue;
		pool = budget / share;
		snprintf(why, len, "member %s may be written %.2f GiB a day (%s) and has %.0f %% of the writes",
			 member->name, budget / GIB, from, share * 100);
	}
	return pool;
}

static bool from_file(const struct config_pool *pool, int i, unsigned int *value)
{
	const char *text = pool->tunables[tunable_find(policy_tunables[i]) - tunables];

	if (text)
		*value = (unsigned int)strtoul(text, NULL, 10);
	return text;
}

void policy_reread(struct policy_memory *m, const struct config_pool *pool)
{
	for (int i = 0; i < POLICY_TUNABLES; i++)
		from_file(pool, i, &m->bound[i]);
	m->hands = false;
	m->budget_told = POLICY_NOT_TOLD;
	m->reserve_told = false;
	/* decide at once: the previous interval may have been long */
	m->next_s = 0;
}

/* Start with a newly assembled pool: the bounds are the file's values, or else the present ones. */
static void begin(struct policy_memory *m, const struct policy_look *look)
{
	memcpy(m->bound, look->now, sizeof(m->bound));
	memcpy(m->set, look->now, sizeof(m->set));
	memcpy(m->told_set, look->now, sizeof(m->told_set));
	for (int i = 0; m->lost && i < POLICY_TUNABLES; i++)
		m->bound[i] = (unsigned int)tunable_find(policy_tunables[i])->standard;
	m->lost = false;
	policy_reread(m, look->pool);
	m->nr_flows = 0;
	m->governed = false;
	m->reserved = false;
}

/* Take a value that was set by hand since the last look as the new bound. */
static void notice(struct policy_memory *m, const struct policy_look *look,
		   struct policy_verdict *v)
{
	unsigned int is;

	for (int i = 0; i < POLICY_TUNABLES; i++) {
		bool watermark = i >= POLICY_LOW;

		is = look->now[i];
		if (is == m->set[i])
			continue;
		m->set[i] = is;
		m->next_s = 0;
		if (!watermark)
			m->told_set[i] = is;
		/* assembling the pool reset its tunables: the file's value is the bound */
		if (look->assembly != m->assembly)
			from_file(look->pool, i, &is);
		m->bound[i] = is;
		if (watermark && m->reserved) {
			m->hands = true;
			tell(v, "operator", false, "%s was set to %u by hand; kvblkd does not change it until the configuration is read again",
			     policy_tunables[i], is);
		} else if (!watermark && m->governed) {
			tell(v, "operator", false, "%s was set to %u by hand; this is its upper limit until the configuration is read again",
			     policy_tunables[i], is);
		}
	}
}

static void clamp(const struct policy_memory *m, struct policy_verdict *v)
{
	for (int i = POLICY_ADMIT; i <= POLICY_SECOND; i++)
		v->to[i] = least(v->to[i], m->bound[i]);
}

static bool admission_moves(const struct policy_verdict *v, const struct policy_look *look)
{
	return memcmp(v->to, look->now, POLICY_LOW * sizeof(v->to[0])) != 0;
}

/* Returns true if a step is worth a log line: a new reason, or far from the last logged values. */
static bool is_news(const struct policy_memory *m, enum governor_reason reason,
		    const struct policy_verdict *v, const struct policy_look *look)
{
	if (reason == GOVERNOR_AT_FLOOR)
		return m->told != reason;
	if (!admission_moves(v, look))
		return false;
	for (int i = 0; i < POLICY_LOW; i++) {
		if (abs((int)v->to[i] - (int)m->told_set[i]) >= WORTH_A_LINE)
			return true;
	}
	return m->told != reason;
}

static void open_admission(const struct policy_memory *m, struct policy_verdict *v)
{
	memcpy(v->to, m->bound, POLICY_LOW * sizeof(v->to[0]));
}

static void tell_budget(struct policy_memory *m, const struct policy_look *look,
			const struct governor_verdict *g, const char *why,
			struct policy_verdict *v)
{
	bool floor = g->reason == GOVERNOR_AT_FLOOR;
	struct policy_line *line;

	if (!is_news(m, g->reason, v, look))
		return;
	memcpy(v->from, m->told_set, sizeof(m->told_set));
	memcpy(m->told_set, v->to, sizeof(m->told_set));
	m->told = g->reason;
	line = tell(v, floor ? "alert" : "budget", floor,
		    "%s: writes %.2f of %.2f GiB a day: %s%s%s", floor ? "budget exhausted" : "budget",
		    g->rate / GIB, g->allowed / GIB, governor_words(g->reason), *why ? "; " : "", why);
	line->nr_moves = POLICY_LOW;
	line->measured = g->rate;
	line->budget = g->allowed;
}

/* Convert the governor's state to another interval. */
static void stretch_time(struct policy_memory *m, double stretch)
{
	if (m->stretch > 0) {
		m->governor.last_s *= stretch / m->stretch;
		m->governor.rate *= m->stretch / stretch;
	}
	m->stretch = stretch;
}

/* Run a decision of the governor, in its stretched time. */
static void govern(struct policy_memory *m, const struct policy_look *look, double budget,
		   const char *why, struct policy_verdict *v)
{
	double stretch = GOVERNOR_STEP / (double)look->pool->budget.interval;
	struct governor_look g = {
		.now_s = look->now_s * stretch,
		.bytes = look->written,
		/* the budget of a worn-out drive is 0, but the governor needs more than 0 */
		.budget = fmax(budget, 1) / stretch,
		.now = { v->to[POLICY_ADMIT], v->to[POLICY_FIRST], v->to[POLICY_SECOND] },
		.admit_most = m->bound[POLICY_ADMIT],
	};
	struct governor_verdict said;

	stretch_time(m, stretch);
	said = governor_decide(&m->governor, &g);
	v->to[POLICY_ADMIT] = said.set.admit;
	v->to[POLICY_FIRST] = said.set.first;
	v->to[POLICY_SECOND] = said.set.second;
	clamp(m, v);
	said.rate *= stretch;
	said.allowed *= stretch;
	tell_budget(m, look, &said, said.reason == GOVERNOR_AT_FLOOR ? why : "", v);
}

/* Returns false while a serving drive's wear is unknown, because the budget depends on it. */
static bool all_were_asked(const struct policy_look *look)
{
	for (size_t i = 0; i < look->nr_members; i++) {
		if (look->members[i].up && !look->members[i].smart.asked)
			return false;
	}
	return true;
}

static void tell_known(enum policy_budget_told known, double budget, const char *why,
		       struct policy_verdict *v)
{
	struct policy_line *line;

	if (known == POLICY_UNKNOWN) {
		tell(v, "budget", false, "admission at its upper limit: %s", why)->nr_moves = POLICY_LOW;
		return;
	}
	line = tell(v, "budget", false, "budget of %.2f GiB a day: %s", budget / GIB, why);
	line->budget = budget;
}

static void keep_budget(struct policy_memory *m, const struct policy_look *look,
			struct policy_verdict *v)
{
	double interval = (double)look->pool->budget.interval, budget;
	enum policy_budget_told known;
	char why[POLICY_TEXT_LEN / 2];

	if (m->next_s > look->now_s && m->next_s <= look->now_s + interval)
		return;
	if (look->pool->budget.life_days && !all_were_asked(look))
		return;
	m->next_s = look->now_s + interval;
	budget = policy_budget(m, look, why, sizeof(why));
	known = isinf(budget) ? POLICY_UNKNOWN : POLICY_KNOWN;
	if (!m->governed || m->budget_told == POLICY_UNKNOWN || known == POLICY_UNKNOWN)
		open_admission(m, v);
	if (known != m->budget_told || (known == POLICY_UNKNOWN && admission_moves(v, look)))
		tell_known(known, budget, why, v);
	m->governed = true;
	m->budget_told = known;
	clamp(m, v);
	if (known == POLICY_KNOWN)
		govern(m, look, budget, why, v);
}

/* Returns the reserve of the member that needs most, permille of its segments; sets *@worst. */
static unsigned int reserve_needed(const struct policy_memory *m, const struct policy_look *look,
				   size_t *worst)
{
	double most = 0, bytes, permille;

	*worst = 0;
	for (size_t i = 0; i < look->nr_members; i++) {
		const struct policy_member *member = &look->members[i];

		bytes = fmax(m->flows[i].write_peak - m->flows[i].reclaim_peak, 0) *
			(double)look->pool->reserve.seconds;
		if (!member->nr_segments)
			continue;
		permille = ceil(bytes / member->segment_size) * 1000 / member->nr_segments;
		if (permille > most) {
			most = permille;
			*worst = i;
		}
	}
	return (unsigned int)ceil(fmin(most, 998));
}

static void keep_reserve(struct policy_memory *m, const struct policy_look *look,
			 struct policy_verdict *v)
{
	const struct config_reserve *reserve = &look->pool->reserve;
	unsigned int gap = m->bound[POLICY_HIGH] - m->bound[POLICY_LOW];
	unsigned int floor = m->bound[POLICY_LOW], low, needed;
	const struct policy_flow *flow;
	struct policy_line *line;
	size_t worst;

	m->reserved = true;
	if (m->hands || !look->nr_members)
		return;
	needed = reserve_needed(m, look, &worst);
	flow = &m->flows[worst];
	if (needed > (unsigned int)reserve->most_permille && !m->reserve_told) {
		tell(v, "alert", true, "reserve: member %s needs %u permille free for %lld s at %.1f MiB/s, but most_permille is %u; raise most_permille or put less at once",
		     flow->name, needed, (long long)reserve->seconds, flow->write_peak / MIB,
		     (unsigned int)reserve->most_permille);
		m->reserve_told = true;
	}
	m->reserve_told &= needed > (unsigned int)reserve->most_permille;
	low = least(needed, (unsigned int)reserve->most_permille);
	low = least(low < floor ? floor : low, 998);
	if (abs((int)low - (int)look->now[POLICY_LOW]) < (int)WORTH_PERMILLE && low != floor)
		return;
	if (low == look->now[POLICY_LOW])
		return;
	v->to[POLICY_LOW] = low;
	v->to[POLICY_HIGH] = least(low + gap, 999);
	line = tell(v, "reserve", false, "reserve for %lld s: member %s has peaks of %.1f MiB/s written and %.1f MiB/s reclaimed: reclaim begins %s",
	     (long long)reserve->seconds, flow->name, flow->write_peak / MIB,
	     flow->reclaim_peak / MIB, low > look->now[POLICY_LOW] ? "earlier" : "later");
	line->moves = POLICY_LOW;
	line->nr_moves = 2;
}

void policy_decide(struct policy_memory *m, const struct policy_look *look,
		   struct policy_verdict *v)
{
	bool anew = !m->seen || look->written < m->written;

	*v = (struct policy_verdict){ 0 };
	if (anew)
		begin(m, look);
	else
		notice(m, look, v);
	memcpy(v->to, look->now, sizeof(v->to));
	memcpy(v->from, look->now, sizeof(v->from));
	account_flows(m, look, v);
	if (config_has_budget(look->pool)) {
		keep_budget(m, look, v);
	} else if (m->governed) {
		open_admission(m, v);
		tell(v, "budget", false, "budget removed: admission at its upper limit")
			->nr_moves = POLICY_LOW;
		m->governed = false;
	}
	if (look->pool->reserve.seconds) {
		keep_reserve(m, look, v);
	} else if (m->reserved) {
		v->to[POLICY_LOW] = m->bound[POLICY_LOW];
		v->to[POLICY_HIGH] = m->bound[POLICY_HIGH];
		tell(v, "reserve", false, "reserve removed");
		m->reserved = false;
	}
	snprintf(m->pool, sizeof(m->pool), "%s", look->pool->name);
	m->seen = true;
	m->assembly = look->assembly;
	m->last_s = look->now_s;
	m->written = look->written;
	memcpy(m->set, v->to, sizeof(m->set));
}
