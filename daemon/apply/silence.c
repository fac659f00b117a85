// SPDX-License-Identifier: MIT
/*
 * For how long the owners of other nodes' pools have written no beat, see silence.h. The rule:
 * what is not known counts as a beat, as after a start of kvblkd.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "apply/silence.h"
#include "common/beat.h"

/* Returns whether another node of a pod has @found in use, as far as the superblock tells. */
static bool is_watched(const struct kvblk_found *found)
{
	return !found->silent && !found->other_version && !found->former && *found->pod &&
	       !found->own && !found->clean;
}

/* Sum up the beats of the pool of @pool. Returns false if a member cannot be read. */
static bool sum_beats(const struct kvblk_found *pool, uint64_t *sum)
{
	const struct kvblk_found *found;
	uint64_t beat;

	*sum = 0;
	for (found = pool; found; found = found->next) {
		if (!is_watched(found) || memcmp(found->pool_uuid, pool->pool_uuid, 16) != 0)
			continue;
		if (!beat_read(found, &beat))
			return false;
		*sum += beat;
	}
	return true;
}

static struct silence *silence_of(struct silence **list, const uint8_t pool_uuid[16])
{
	struct silence *silence = *list;

	while (silence && memcmp(silence->pool_uuid, pool_uuid, 16) != 0)
		silence = silence->next;
	if (silence)
		return silence;
	silence = calloc(1, sizeof(*silence));
	if (!silence)
		return NULL;
	memcpy(silence->pool_uuid, pool_uuid, 16);
	silence->next = *list;
	*list = silence;
	return silence;
}

/* Free the pools that were not found, so that their silence begins anew. */
static void drop_unseen(struct silence **list)
{
	struct silence *silence;

	while ((silence = *list)) {
		if (silence->seen) {
			silence->seen = false;
			list = &silence->next;
			continue;
		}
		*list = silence->next;
		free(silence);
	}
}

int silence_watch(struct silence **list, struct state *state, int64_t now)
{
	const struct kvblk_found *found;
	struct state_silence *more;
	struct silence *silence;
	uint64_t beats;

	for (found = state->found; found; found = found->next) {
		if (!is_watched(found))
			continue;
		silence = silence_of(list, found->pool_uuid);
		if (!silence)
			return -ENOMEM;
		/* a later member of the same pool */
		if (silence->seen)
			continue;
		silence->seen = true;
		if (!sum_beats(found, &beats) || beats != silence->beats || !silence->since) {
			silence->beats = beats;
			silence->since = now;
		}
		more = reallocarray(state->silences, state->nr_silences + 1, sizeof(*more));
		if (!more)
			return -ENOMEM;
		state->silences = more;
		more += state->nr_silences++;
		memcpy(more->pool_uuid, found->pool_uuid, 16);
		more->seconds = now - silence->since;
	}
	drop_unseen(list);
	return 0;
}

void silence_free(struct silence **list)
{
	struct silence *silence;

	while ((silence = *list)) {
		*list = silence->next;
		free(silence);
	}
}
