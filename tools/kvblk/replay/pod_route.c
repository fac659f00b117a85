// SPDX-License-Identifier: MIT
/* The choice of a request's node, among those that are up. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "replay/pod_node.h"

#define SHARED		3	/* children that make a block a shared prompt, as in policy.c */
#define WORK_S		1.0	/* time in which recent work fades to 1/e */

int pod_router_init(struct pod *pod, size_t nr_reqs)
{
	struct pod_router *r = &pod->router;
	size_t nr = (size_t)pod->n.nr + 1;

	r->work = calloc(pod->o->nr_nodes, sizeof(*r->work));
	if (!r->work)
		return -ENOMEM;
	if (pod->o->route != POD_SESSION)
		return 0;
	r->session = malloc(nr * sizeof(*r->session));
	r->children = calloc(nr, sizeof(*r->children));
	r->home = calloc(nr_reqs + 1, sizeof(*r->home));
	if (!r->session || !r->children || !r->home)
		return -ENOMEM;
	memset(r->session, 0xff, nr * sizeof(*r->session));
	return 0;
}

void pod_router_destroy(struct pod *pod)
{
	free(pod->router.work);
	free(pod->router.session);
	free(pod->router.children);
	free(pod->router.home);
}

static struct pod_node *route_in_turn(struct pod *pod)
{
	struct pod_node *node;

	do
		node = &pod->nodes[pod->router.turn++ % pod->o->nr_nodes];
	while (node->down);
	return node;
}

/*
 * Returns the session of a request. It continues the session that used the last known block
 * of its prompt first, unless that block is a shared prompt.
 */
static uint32_t session_of(struct pod *pod, const uint32_t *names, uint32_t nr)
{
	struct pod_router *r = &pod->router;
	uint32_t known = 0, session;

	while (known < nr && r->session[names[known]] != POD_NOBODY)
		known++;
	if (known && r->children[names[known - 1]] < SHARED) {
		session = r->session[names[known - 1]];
	} else {
		session = r->nr_sessions++;
		r->home[session] = route_in_turn(pod)->nr;
	}
	for (uint32_t i = known; i < nr; i++) {
		if (r->session[names[i]] != POD_NOBODY)
			continue;
		r->session[names[i]] = session;
		if (i && r->children[names[i - 1]] < UINT8_MAX)
			r->children[names[i - 1]]++;
	}
	return session;
}

static struct pod_node *route_session(struct pod *pod, const uint32_t *names, uint32_t nr)
{
	uint32_t *home = &pod->router.home[session_of(pod, names, nr)];

	if (pod->nodes[*home].down)
		*home = route_in_turn(pod)->nr;
	return &pod->nodes[*home];
}

/* Returns how many leading blocks the node's own log has. */
static uint32_t own_run(const struct pod_node *node, const uint32_t *names, uint32_t nr)
{
	struct kvblk_slot slot;
	uint32_t lead = 0;

	while (lead < nr && node->pod->copies[names[lead]] && sim_find(node->log, names[lead], &slot))
		lead++;
	return lead;
}

static struct pod_node *route_prefix(struct pod *pod, const uint32_t *names, uint32_t nr)
{
	struct pod_router *r = &pod->router;
	double fade = exp((r->work_s - pod->now_s) / WORK_S), least = INFINITY;
	struct pod_node *best = pod->nodes;

	r->work_s = pod->now_s;
	for (uint32_t i = 0; i < pod->o->nr_nodes; i++) {
		struct pod_node *node = &pod->nodes[i];
		double work;

		r->work[i] *= fade;
		/* a log with all of the blocks would not do */
		if (node->down || r->work[i] >= least)
			continue;
		work = r->work[i] + nr - own_run(node, names, nr);
		if (work < least) {
			least = work;
			best = node;
		}
	}
	r->work[best->nr] = least;
	return best;
}

struct pod_node *pod_route(struct pod *pod, const uint32_t *names, uint32_t nr)
{
	switch (pod->o->route) {
	case POD_SESSION:
		return route_session(pod, names, nr);
	case POD_PREFIX:
		return route_prefix(pod, names, nr);
	default:
		return route_in_turn(pod);
	}
}
