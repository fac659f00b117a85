/* SPDX-License-Identifier: MIT */
/* For how long the owners of other nodes' pools have written no beat. */
#ifndef KVBLKD_APPLY_SILENCE_H
#define KVBLKD_APPLY_SILENCE_H

#include "apply/plan.h"

/**
 * struct silence - beats of a pool of another node
 * @next: next in the list, or NULL
 * @pool_uuid: the pool
 * @beats: sum of the members' beats
 * @since: when @beats was first read, seconds
 * @seen: the last scan found the pool in use
 */
struct silence {
	struct silence *next;
	uint8_t pool_uuid[16];
	uint64_t beats;
	int64_t since;
	bool seen;
};

/*
 * Read the beats of the pools in @state->found that other nodes of a pod have in use, and set
 * @state->silences. A pool with an unreadable member counts as written. Returns 0 or -ENOMEM.
 */
int silence_watch(struct silence **list, struct state *state, int64_t now);
void silence_free(struct silence **list);

#endif
