// SPDX-License-Identifier: MIT
/*
 * An integral controller in logarithms: how far the rate is from what is allowed,
 * in doublings, moves admission by so many steps. What admission does to the rate
 * differs from one traffic to the next, but more of it never writes less.
 *
 * A budget is a day's. What a quiet night leaves may be written by day, and what was
 * written too much is saved on the next day: the account holds a day's budget at most.
 * Slow on purpose: a setting that follows day and night costs hits.
 */
#include <math.h>
#include <stdio.h>

#include "policy/governor.h"

#define RATE_SECONDS	21600.0		/* that the rate is a mean of */
#define BALANCE_SECONDS	GOVERNOR_DAY
#define ALLOWED_LEAST	0.25		/* of the budget, however much is owed */
/*
 * How generous admission is, in one number: up to SECOND by second_permille, up to
 * FIRST by first_permille, above it by admit_permille, which is no less than SPARING:
 * from there on it costs more hits than not to admit first offers.
 */
#define PERMILLE	1000.0
#define SECOND		1000.0
#define FIRST		2000.0
#define MOST		3000.0
#define SPARING		400.0
#define DOUBLING	20.0		/* moved for each doubling, in a look */
#define STEP		200.0		/* moved at most, in a look */
#define CLOSE		0.1		/* doublings that are not worth a step */

static double within(double value, double least, double most)
{
	return value < least ? least : value > most ? most : value;
}

/* Brings rate and account up to date. */
static void governor_account(struct governor *g, const struct governor_look *look)
{
	double seconds = look->now_s - g->last_s, bytes = look->bytes - g->last_bytes;
	double weight = -expm1(-seconds / RATE_SECONDS);

	g->last_s = look->now_s;
	g->last_bytes = look->bytes;
	g->rate += (bytes / seconds - g->rate) * weight;
	g->saved = within(g->saved + look->budget * seconds / GOVERNOR_DAY - bytes,
			 -look->budget, look->budget);
}

static double generosity(const struct governor_look *look)
{
	double range = look->admit_most - SPARING;

	if (look->now.second < PERMILLE)
		return look->now.second;
	if (look->now.first < PERMILLE || range <= 0)
		return SECOND + look->now.first;
	return within(FIRST + (look->now.admit - SPARING) / range * PERMILLE, FIRST, MOST);
}

static struct governor_setting setting(const struct governor_look *look, double generosity)
{
	double range = fmax(look->admit_most - SPARING, 0);
	double share = within(generosity - FIRST, 0, PERMILLE) / PERMILLE;

	return (struct governor_setting){
		.admit = (unsigned int)lround(fmin(look->admit_most, SPARING) + range * share),
		.first = (unsigned int)lround(within(generosity - SECOND, 0, PERMILLE)),
		.second = (unsigned int)lround(within(generosity, 0, PERMILLE)),
	};
}

/* @doublings: of the rate above what is allowed; @moved: by how much, up or down */
static enum governor_reason reason(double doublings, double moved)
{
	if (moved < 0)
		return GOVERNOR_LOWERS;
	if (moved > 0)
		return GOVERNOR_RAISES;
	return doublings >= CLOSE ? GOVERNOR_AT_FLOOR :
	       doublings <= -CLOSE ? GOVERNOR_OPEN : GOVERNOR_KEEPS;
}

struct governor_verdict governor_decide(struct governor *g,
					const struct governor_look *look)
{
	double per_s = look->budget / GOVERNOR_DAY, allowed, doublings, before, after;
	struct governor_verdict v = {
		.set = look->now, .rate = look->budget, .allowed = look->budget,
	};
	bool counts = g->started && look->bytes >= g->last_bytes && look->now_s > g->last_s;

	if (!g->started)
		g->rate = per_s;
	if (!counts) {
		g->started = true;
		g->last_s = look->now_s;
		g->last_bytes = look->bytes;
		return v;
	}
	governor_account(g, look);
	allowed = fmax(per_s + g->saved / BALANCE_SECONDS, per_s * ALLOWED_LEAST);
	doublings = log2(fmax(g->rate, per_s / 1024) / allowed);
	before = generosity(look);
	after = fabs(doublings) < CLOSE ? before :
		within(before - within(doublings * DOUBLING, -STEP, STEP), 0,
		      look->admit_most > SPARING ? MOST : FIRST);
	if (after != before)
		v.set = setting(look, after);
	v.reason = reason(doublings, after - before);
	v.rate = g->rate * GOVERNOR_DAY;
	v.allowed = allowed * GOVERNOR_DAY;
	return v;
}

double governor_life_budget(double written, unsigned int used_percent, double days)
{
	if (!used_percent)
		return INFINITY;
	if (used_percent >= 100)
		return 0;
	return written * (100 - used_percent) / used_percent / days;
}

char *governor_words(const struct governor_verdict *verdict, char *buf, size_t len)
{
	static const char *const words[] = {
		[GOVERNOR_WAITS] = "begins to count",
		[GOVERNOR_KEEPS] = "admission stays",
		[GOVERNOR_LOWERS] = "admits less",
		[GOVERNOR_RAISES] = "admits more",
		[GOVERNOR_OPEN] = "admits all that it may",
		[GOVERNOR_AT_FLOOR] = "admits as little as it can",
	};
	double gib = 1024.0 * 1024 * 1024;

	snprintf(buf, len, "writes %.1f of %.1f GiB a day: %s (admit_permille %u, first_permille %u, second_permille %u)",
		 verdict->rate / gib, verdict->allowed / gib, words[verdict->reason],
		 verdict->set.admit, verdict->set.first, verdict->set.second);
	return buf;
}
