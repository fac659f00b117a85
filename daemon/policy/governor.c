// SPDX-License-Identifier: MIT
/*
 * An integral controller on a logarithmic scale: the number of doublings between the write rate
 * and the allowed rate moves admission by a proportional step. How admission changes the rate
 * depends on the traffic, but admitting more never writes less.
 *
 * The budget is per day. What a quiet night leaves may be written by day, and an excess is saved
 * on the next day: the account holds at most the budget of a day. The controller is slow on
 * purpose, because a setting that follows day and night costs hits.
 */
#include <math.h>

#include "policy/governor.h"

#define RATE_SECONDS	21600.0		/* time constant of the mean rate */
#define BALANCE_SECONDS	GOVERNOR_DAY
/* least allowed rate, as a share of the budget, whatever the debt */
#define ALLOWED_LEAST	0.25
/*
 * Generosity of admission as a single number. Up to SECOND it moves second_permille, up to FIRST
 * first_permille, above FIRST admit_permille. admit_permille stays at SPARING or more: below, it
 * costs more hits than rejecting first offers does.
 */
#define PERMILLE	1000.0
#define SECOND		1000.0
#define FIRST		2000.0
#define MOST		3000.0
#define SPARING		400.0
#define DOUBLING	20.0		/* step per doubling */
#define STEP		200.0		/* largest step of a decision */
#define CLOSE		0.1		/* deviation in doublings that causes no step */

static double within(double value, double least, double most)
{
	return value < least ? least : value > most ? most : value;
}

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

/* Returns the reason for a step @moved, when the rate is @doublings above the allowed one. */
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

const char *governor_words(enum governor_reason reason)
{
	static const char *const words[] = {
		[GOVERNOR_WAITS] = "as configured",
		[GOVERNOR_KEEPS] = "admission unchanged",
		[GOVERNOR_LOWERS] = "admits less",
		[GOVERNOR_RAISES] = "admits more",
		[GOVERNOR_OPEN] = "admission at its upper limit",
		[GOVERNOR_AT_FLOOR] = "admission at its lower limit and still above budget: the flash wears faster than budgeted; raise the budget or put less",
	};

	return words[reason];
}
