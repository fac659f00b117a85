/* SPDX-License-Identifier: MIT */
/*
 * Deletes of other nodes' blocks. This host publishes a question, which only the owner's node
 * answers. A thread runs the questions of other nodes, one after the other, because the module
 * writes to flash. A question is sent once and run at most once. Without an answer, the blocks may
 * be deleted or not. All functions belong to the pod's thread.
 */
#ifndef KVBLKD_POD_DELETES_H
#define KVBLKD_POD_DELETES_H

#include <systemd/sd-event.h>

#include "pod/bus.h"
#include "pod/delete_wire.h"

#define DELETES_SECONDS	5	/* an answer comes within this time or never */

/* Take @nr results, in the order of the question; none: there is no answer, or a refusal. */
typedef void deletes_fn(void *arg, const int32_t *results, unsigned int nr);

/* Start the thread; @event is the pod's loop. Call once. Returns 0 or a negative errno. */
int deletes_start(sd_event *event);

/* Use @bus from now on; NULL: none. Ends all open questions of this host without results. */
void deletes_use(struct bus *bus);

/* End questions of this host that have waited for too long. Call each second. */
void deletes_expire(void);

/**
 * deletes_ask() - let the owner delete blocks
 * @question: the owner's pool and node, and the blocks; the rest is ignored
 * @own: name of the owner's pool if it is this host's, or NULL
 * @fn: called once, perhaps before the return
 * @arg: argument of @fn
 */
void deletes_ask(const struct deletewire_question *question, const char *own, deletes_fn *fn,
		 void *arg);

/**
 * deletes_take() - delete blocks for another node
 * @question: the question
 * @pool: name of the pool
 * @peer: number of the peer that sent the question
 *
 * A peer with too many open questions gets an answer without results.
 */
void deletes_take(const struct deletewire_question *question, const char *pool, unsigned int peer);

/* Take an answer to a question of this host. Returns false if it has not one result a block. */
bool deletes_answered(const struct deletewire_answer *answer);

#endif
