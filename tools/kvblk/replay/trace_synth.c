// SPDX-License-Identifier: MIT
/*
 * Build traces, and generate traffic that resembles chat: sessions arrive by a Poisson
 * process, share system prompts by Zipf's law, and grow turn by turn, answers included.
 */
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "replay/trace.h"

static int grow(void **array, size_t *max, size_t want, size_t size)
{
	size_t n = *max ? *max : 1024;
	void *bigger;

	if (want <= *max)
		return 0;
	while (n < want)
		n *= 2;
	bigger = reallocarray(*array, n, size);
	if (!bigger)
		return -ENOMEM;
	*array = bigger;
	*max = n;
	return 0;
}

int trace_add_id(struct trace_builder *b, uint64_t id)
{
	int ret = grow((void **)&b->ids, &b->max_ids, b->nr_ids + 1,
		       sizeof(*b->ids));

	if (!ret)
		b->ids[b->nr_ids++] = id;
	return ret;
}

int trace_add_req(struct trace_builder *b, uint64_t timestamp_ms)
{
	uint64_t nr = b->nr_ids - b->nr_taken;
	int ret = nr > UINT32_MAX ? -EINVAL : 0;

	if (!ret)
		ret = grow((void **)&b->reqs, &b->max_reqs, b->nr_reqs + 1,
			   sizeof(*b->reqs));
	if (ret)
		return ret;
	b->reqs[b->nr_reqs++] = (struct trace_req){
		.timestamp_ms = timestamp_ms,
		.nr = (uint32_t)nr,
	};
	b->nr_taken = b->nr_ids;
	return 0;
}

void trace_discard(struct trace_builder *b)
{
	free(b->reqs);
	free(b->ids);
	*b = (struct trace_builder){ 0 };
}

static uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15ULL;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
	return x ^ (x >> 31);
}

static int count_distinct(struct trace *t)
{
	size_t slots = 16;
	uint64_t *set;
	bool zero = false;

	while (slots < 2 * t->nr_refs)
		slots *= 2;
	set = calloc(slots, sizeof(*set));
	if (!set)
		return -ENOMEM;
	for (uint64_t i = 0; i < t->nr_refs; i++) {
		uint64_t id = t->ids[i];
		size_t s = mix(id) & (slots - 1);

		if (!id) {
			t->nr_distinct += !zero;
			zero = true;
			continue;
		}
		while (set[s] && set[s] != id)
			s = (s + 1) & (slots - 1);
		t->nr_distinct += !set[s];
		set[s] = id;
	}
	free(set);
	return 0;
}

int trace_finish(struct trace_builder *b, struct trace *t)
{
	uint64_t first = 0;
	int ret;

	*t = (struct trace){
		.reqs = b->reqs,
		.nr_reqs = b->nr_reqs,
		.nr_refs = b->nr_taken,
		.ids = b->ids,
	};
	*b = (struct trace_builder){ 0 };
	for (size_t i = 0; i < t->nr_reqs; i++) {
		t->reqs[i].ids = t->ids + first;
		first += t->reqs[i].nr;
	}
	ret = count_distinct(t);
	if (ret)
		trace_free(t);
	return ret;
}

void trace_free(struct trace *t)
{
	free(t->reqs);
	free(t->ids);
	*t = (struct trace){ 0 };
}

/**
 * struct session - a conversation in progress
 * @when: time of the next turn
 * @prompt: system prompt, or NO_PROMPT
 * @document: seed of the ids of a shared document's blocks
 * @document_nr: blocks of that document; 0: none
 * @name: seed of the ids of the session's own blocks
 * @nr: own blocks so far
 * @scan: a batch job: one turn, never used again
 */
struct session {
	double when;
	uint32_t prompt;
	uint64_t document;
	uint32_t document_nr;
	uint64_t name;
	uint32_t nr;
	bool scan;
};

#define NO_PROMPT	UINT32_MAX
#define BLOCKS_MAX	4096	/* limit of a session's blocks */

struct maker {
	const struct trace_synthetic_opts *o;
	struct trace_builder b;
	uint64_t dice;
	double *prompt_zipf, *popular_zipf;	/* cumulative shares */
	struct session *heap;			/* ordered by @when, earliest first */
	size_t nr, max;
};

static double uniform(struct maker *m)
{
	m->dice = mix(m->dice);
	return (double)(m->dice >> 11) / (double)(1ULL << 53);
}

/*
 * Draw from an exponential distribution by von Neumann's method (runs of falling numbers),
 * without a logarithm.
 */
static double exponential(struct maker *m, double mean)
{
	for (double whole = 0;; whole++) {
		double first = uniform(m), low = first, next;
		bool odd = true;

		while ((next = uniform(m)) < low) {
			low = next;
			odd = !odd;
		}
		if (odd)
			return (whole + first) * mean;
	}
}

static double *zipf_make(uint32_t n)
{
	double *share = calloc(n ? n : 1, sizeof(*share)), sum = 0;

	for (uint32_t i = 0; share && i < n; i++)
		share[i] = sum += 1.0 / (i + 1);
	for (uint32_t i = 0; share && i < n; i++)
		share[i] /= sum;
	return share;
}

static uint32_t zipf_draw(struct maker *m, const double *share, uint32_t n)
{
	double u = uniform(m);
	uint32_t lo = 0, hi = n - 1;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (share[mid] < u)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static int heap_push(struct maker *m, struct session s)
{
	size_t i = m->nr;
	int ret = grow((void **)&m->heap, &m->max, m->nr + 1, sizeof(*m->heap));

	if (ret)
		return ret;
	m->nr++;
	for (; i && m->heap[(i - 1) / 2].when > s.when; i = (i - 1) / 2)
		m->heap[i] = m->heap[(i - 1) / 2];
	m->heap[i] = s;
	return 0;
}

static struct session heap_pop(struct maker *m)
{
	struct session top = m->heap[0], last = m->heap[--m->nr];
	size_t i = 0, kid;

	while ((kid = 2 * i + 1) < m->nr) {
		if (kid + 1 < m->nr && m->heap[kid + 1].when < m->heap[kid].when)
			kid++;
		if (m->heap[kid].when >= last.when)
			break;
		m->heap[i] = m->heap[kid];
		i = kid;
	}
	m->heap[i] = last;
	return top;
}

static struct session session_new(struct maker *m, double when, uint64_t serial)
{
	const struct trace_synthetic_opts *o = m->o;
	struct session s = { .when = when, .prompt = NO_PROMPT };
	bool popular = uniform(m) * 1000 < o->popular_permille;

	s.scan = uniform(m) * 1000 < o->scan_permille;
	s.name = mix(o->seed ^ mix(serial + (1ULL << 40)));
	s.nr = 1 + (uint32_t)exponential(m, o->first_blocks);
	if (s.scan) {
		s.nr *= 8;
		return s;
	}
	if (o->nr_prompts)
		s.prompt = zipf_draw(m, m->prompt_zipf, o->nr_prompts);
	if (popular && o->popular) {
		uint64_t d = zipf_draw(m, m->popular_zipf, o->popular);

		s.document = mix(o->seed ^ mix(d + (2ULL << 40)));
		s.document_nr = 1 + s.document % (2 * o->first_blocks);
		if (o->nr_prompts)
			s.prompt = s.document % o->nr_prompts;
		s.nr = 1;
	}
	return s;
}

static int add_blocks(struct maker *m, uint64_t name, uint32_t nr)
{
	for (uint32_t i = 0; i < nr; i++) {
		int ret = trace_add_id(&m->b, mix(name + i) >> 1);

		if (ret)
			return ret;
	}
	return 0;
}

static int add_turn(struct maker *m, const struct session *s)
{
	const struct trace_synthetic_opts *o = m->o;
	int ret = 0;

	if (s->prompt != NO_PROMPT)
		ret = add_blocks(m, mix(o->seed + s->prompt), o->prompt_blocks);
	if (!ret)
		ret = add_blocks(m, s->document, s->document_nr);
	if (!ret)
		ret = add_blocks(m, s->name, s->nr);
	/* the last block is not full, so the next turn replaces it */
	if (!ret)
		ret = trace_add_id(&m->b, mix(~s->name + s->nr) >> 1);
	return ret ? ret : trace_add_req(&m->b, (uint64_t)s->when);
}

/*
 * Returns the rate of arrivals relative to the mean; the minimum is at the trace's start,
 * midnight.
 */
static double rate_at(const struct trace_synthetic_opts *o, double when_ms)
{
	double days = when_ms / (24 * 3600 * 1000.0);

	return 1 - o->daily_permille / 1000.0 * cos(2 * M_PI * days);
}

static int make(struct maker *m)
{
	const struct trace_synthetic_opts *o = m->o;
	double arrival = 0, gap_ms = (double)o->gap_ms / (o->nr_nodes ? o->nr_nodes : 1);
	uint64_t serial = 0;
	int ret;

	while (m->b.nr_reqs < o->nr_reqs) {
		struct session s;

		while (!m->nr || m->heap[0].when > arrival) {
			ret = heap_push(m, session_new(m, arrival, serial++));
			if (ret)
				return ret;
			arrival += exponential(m, gap_ms) / rate_at(o, arrival);
		}
		s = heap_pop(m);
		ret = add_turn(m, &s);
		if (ret)
			return ret;
		s.nr += 1 + (uint32_t)exponential(m, o->turn_blocks);
		s.when += exponential(m, o->think_ms);
		if (s.scan || s.nr > BLOCKS_MAX ||
		    uniform(m) * 1000 >= o->continue_permille)
			continue;
		ret = heap_push(m, s);
		if (ret)
			return ret;
	}
	return 0;
}

int trace_synthetic(const struct trace_synthetic_opts *o, struct trace *t)
{
	struct maker m = { .o = o, .dice = mix(o->seed) };
	int ret = -ENOMEM;

	*t = (struct trace){ 0 };
	if (!o->nr_reqs || !o->first_blocks || o->continue_permille >= 1000 ||
	    o->first_blocks > BLOCKS_MAX || o->prompt_blocks > BLOCKS_MAX)
		return -EINVAL;
	m.prompt_zipf = zipf_make(o->nr_prompts);
	m.popular_zipf = zipf_make(o->popular);
	if (m.prompt_zipf && m.popular_zipf)
		ret = make(&m);
	free(m.prompt_zipf);
	free(m.popular_zipf);
	free(m.heap);
	if (!ret)
		return trace_finish(&m.b, t);
	trace_discard(&m.b);
	return ret;
}

int trace_synthetic_preset(const char *name, struct trace_synthetic_opts *o)
{
	*o = (struct trace_synthetic_opts)TRACE_SYNTHETIC_CHAT;
	if (!strcmp(name, "chat"))
		return 0;
	if (!strcmp(name, "prompts")) {
		o->nr_prompts = 200;
		o->prompt_blocks = 24;
		o->first_blocks = 4;
		o->turn_blocks = 2;
		return 0;
	}
	if (!strcmp(name, "long")) {
		o->first_blocks = 6;
		o->turn_blocks = 3;
		o->continue_permille = 900;
		return 0;
	}
	if (!strcmp(name, "once")) {
		o->continue_permille = 80;
		o->popular = 400;
		o->popular_permille = 60;
		return 0;
	}
	if (!strcmp(name, "scan")) {
		o->scan_permille = 80;
		o->continue_permille = 700;
		return 0;
	}
	if (!strcmp(name, "documents")) {
		o->popular = 2000;
		o->popular_permille = 600;
		o->continue_permille = 300;
		return 0;
	}
	if (!strcmp(name, "week")) {
		o->popular = 2000;
		o->popular_permille = 300;
		o->scan_permille = 40;
		o->gap_ms = 6000;
		o->daily_permille = 800;
		o->nr_reqs = 180000;
		return 0;
	}
	return -ENOENT;
}
