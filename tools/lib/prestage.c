// SPDX-License-Identifier: MIT
/*
 * Prestaging of many blocks: one lookup finds lengths and tiers, then batches load the
 * blocks that are not in memory, in the caller's order. Each key's state is set once.
 */
#include <stdlib.h>

#include "lib.h"

/**
 * struct plan - prestaging in progress
 * @kv: the pool's handle
 * @options: the caller's options
 * @keys: the caller's keys
 * @lens: length of each key
 * @nr: number of keys
 * @out: result of each key; state 0: to be loaded
 * @sizes: block lengths from the lookup
 * @tiers: &enum kvblk_tier of each block from the lookup
 * @ops: operations of a batch
 * @results: results of @ops
 * @of: index of the key of each operation
 */
struct plan {
	struct kvblk *kv;
	const struct kvblk_prestage_options *options;
	const unsigned char *keys;
	const uint16_t *lens;
	unsigned int nr;
	struct kvblk_prestaged *out;
	uint32_t *sizes;
	uint8_t *tiers;
	struct kvblk_op *ops;
	struct kvblk_result *results;
	unsigned int *of;
};

static bool came(const struct kvblk_prestaged *key)
{
	return key->state == KVBLK_PRESTAGE_LOADED || key->state == KVBLK_PRESTAGE_RESIDENT;
}

static int plan_alloc(struct plan *p)
{
	unsigned int batch = p->nr < KVBLK_OPS_MAX ? p->nr : KVBLK_OPS_MAX;

	p->out = calloc(p->nr, sizeof(*p->out));
	p->sizes = calloc(p->nr, sizeof(*p->sizes));
	p->tiers = calloc(p->nr, sizeof(*p->tiers));
	p->ops = calloc(batch, sizeof(*p->ops));
	p->results = calloc(batch, sizeof(*p->results));
	p->of = calloc(batch, sizeof(*p->of));
	return p->out && p->sizes && p->tiers && p->ops && p->results && p->of ? 0 : -ENOMEM;
}

static void plan_free(struct plan *p)
{
	free(p->out);
	free(p->sizes);
	free(p->tiers);
	free(p->ops);
	free(p->results);
	free(p->of);
}

static int plan_lookup(struct plan *p)
{
	struct kvblk_lookup lookup = {
		.flags = p->options->stop_at_miss ? KVBLK_LOOKUP_PREFIX : 0,
		.nr_keys = p->nr,
		.keys = (uintptr_t)p->keys,
		.key_lens = (uintptr_t)p->lens,
		.sizes = (uintptr_t)p->sizes,
		.tiers = (uintptr_t)p->tiers,
	};

	return kvblk_lookup_keys(p->kv, &lookup, sizeof(lookup));
}

/* Set the state of each key that needs no operation. */
static void plan_states(struct plan *p)
{
	uint64_t left = p->options->max_bytes ? p->options->max_bytes : UINT64_MAX;
	bool stopped = false;

	for (unsigned int i = 0; i < p->nr; i++) {
		struct kvblk_prestaged *key = &p->out[i];

		*key = (struct kvblk_prestaged){ .length = p->sizes[i] };
		if (stopped) {
			key->state = KVBLK_PRESTAGE_CLIPPED;
		} else if (!p->sizes[i]) {
			key->state = KVBLK_PRESTAGE_MISSING;
			stopped = p->options->stop_at_miss;
		} else if (p->tiers[i] == KVBLK_TIER_MEMORY) {
			continue;
		} else if (p->sizes[i] > left) {
			key->state = KVBLK_PRESTAGE_CLIPPED;
			left = 0;
		} else {
			left -= p->sizes[i];
		}
	}
}

/* Fill in the next batch, from key number *@at, at @key. Returns the number of operations. */
static unsigned int next_batch(struct plan *p, unsigned int *at, const unsigned char **key)
{
	unsigned int nr = 0;

	for (; *at < p->nr && nr < KVBLK_OPS_MAX; *key += p->lens[(*at)++]) {
		if (p->out[*at].state)
			continue;
		kvblk_prep_prefetch(&p->ops[nr], *key, p->lens[*at]);
		p->ops[nr].cookie = p->options->cookie;
		p->ops[nr].deadline_ns = p->options->deadline_ns;
		p->ops[nr].priority = (uint8_t)p->options->priority;
		p->of[nr++] = *at;
	}
	return nr;
}

/* Returns the state for an operation's result, or a negative errno. */
static int state_of(int res)
{
	if (res > 0)
		return KVBLK_PRESTAGE_LOADED;
	switch (res) {
	case 0:
		return KVBLK_PRESTAGE_RESIDENT;
	case -ENOENT:
		return KVBLK_PRESTAGE_MISSING;
	case -ETIME:
		return KVBLK_PRESTAGE_EXPIRED;
	case -ENOSPC:
	case -ENOMEM:
	case -ECANCELED:
		return KVBLK_PRESTAGE_CLIPPED;
	default:
		return res;
	}
}

/* Run a batch and set its keys' states. Sets *@stop if no batch may follow. */
static int run_batch(struct plan *p, unsigned int nr, bool *stop)
{
	int err = kvblk_batch(p->kv, p->ops, nr, p->results, sizeof(*p->results), 0);

	for (unsigned int i = 0; i < nr && !err; i++) {
		int res = p->results[i].res, state = state_of(res);

		if (state < 0)
			return state;
		p->out[p->of[i]].state = (uint32_t)state;
		*stop |= res == -ECANCELED || (res == -ENOENT && p->options->stop_at_miss);
	}
	return err;
}

static int plan_run(struct plan *p)
{
	const unsigned char *key = p->keys;
	unsigned int at = 0, nr;
	bool stop = false;
	int err = 0;

	while (!err && !stop && (nr = next_batch(p, &at, &key)))
		err = run_batch(p, nr, &stop);
	for (; at < p->nr; at++) {
		if (!p->out[at].state)
			p->out[at].state = KVBLK_PRESTAGE_CLIPPED;
	}
	return err;
}

static void plan_sum(const struct plan *p, struct kvblk_prestage_sum *sum)
{
	bool hole = false;

	for (unsigned int i = 0; i < p->nr; i++) {
		hole |= !came(&p->out[i]);
		sum->nr_leading += !hole;
		sum->nr_here += came(&p->out[i]);
		if (p->out[i].state == KVBLK_PRESTAGE_LOADED)
			sum->loaded_bytes += p->out[i].length;
	}
}

/* Lease the blocks that are in memory now. */
static int plan_lease(const struct plan *p, struct kvblk_prestage_sum *sum)
{
	struct kvblk_lookup lookup = {
		.flags = KVBLK_LOOKUP_LEASE,
		.lease_ms = p->options->lease_ms,
	};
	uint16_t *lens = calloc(p->nr, sizeof(*lens));
	unsigned char *keys = calloc(p->nr, KVBLK_KEY_MAX), *to = keys;
	const unsigned char *key = p->keys;
	int err = -ENOMEM;

	if (!lens || !keys)
		goto out;
	for (unsigned int i = 0; i < p->nr; key += p->lens[i++]) {
		if (!came(&p->out[i]))
			continue;
		memcpy(to, key, p->lens[i]);
		to += p->lens[i];
		lens[lookup.nr_keys++] = p->lens[i];
	}
	lookup.keys = (uintptr_t)keys;
	lookup.key_lens = (uintptr_t)lens;
	err = kvblk_lookup_keys(p->kv, &lookup, sizeof(lookup));
	if (!err) {
		sum->lease = lookup.lease;
		sum->lease_end_ns = lookup.lease_end_ns;
		sum->nr_leased = lookup.nr_leased;
	}
out:
	free(lens);
	free(keys);
	return err;
}

static bool lens_are_right(const uint16_t *lens, unsigned int nr)
{
	if (!nr || nr > KVBLK_LOOKUP_MAX)
		return false;
	for (unsigned int i = 0; i < nr; i++) {
		if (!lens[i] || lens[i] > KVBLK_KEY_MAX)
			return false;
	}
	return true;
}

const char *kvblk_prestage_state_name(unsigned int state)
{
	static const char *const names[] = { "unknown", "loaded", "resident", "missing", "clipped",
					     "expired" };

	return state <= KVBLK_PRESTAGE_EXPIRED ? names[state] : names[0];
}

int kvblk_prestage(struct kvblk *kv, const void *keys, const uint16_t *key_lens,
		   unsigned int nr_keys, const struct kvblk_prestage_options *options,
		   struct kvblk_prestaged *prestaged, struct kvblk_prestage_sum *sum)
{
	struct kvblk_prestage_sum total = { 0 };
	struct kvblk_prestage_options own;
	struct plan p = {
		.kv = kv,
		.options = &own,
		.keys = keys,
		.lens = key_lens,
		.nr = nr_keys,
	};
	int err = options_copy(&own, sizeof(own), options,
			       END_OF(struct kvblk_prestage_options, stop_at_miss));

	if (err)
		return err;
	/* without @sum the caller could not release the lease */
	if (!lens_are_right(key_lens, nr_keys) || own.lease_ms > KVBLK_LEASE_MS_MAX ||
	    own.priority > KVBLK_PRIORITY_MAX || (own.lease_ms && !sum) ||
	    (sum && sum->size < END_OF(struct kvblk_prestage_sum, lease_end_ns)))
		return -EINVAL;
	err = plan_alloc(&p);
	if (!err)
		err = plan_lookup(&p);
	if (!err) {
		plan_states(&p);
		err = plan_run(&p);
	}
	if (!err)
		plan_sum(&p, &total);
	if (!err && own.lease_ms && total.nr_here)
		err = plan_lease(&p, &total);
	if (!err && prestaged)
		memcpy(prestaged, p.out, p.nr * sizeof(*p.out));
	if (!err && sum)
		out_copy(sum, &total, sizeof(total));
	plan_free(&p);
	return err;
}
