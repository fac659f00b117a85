/* SPDX-License-Identifier: MIT */
/*
 * A simulated log as a part of a pod: simulate.c runs it, pod.c connects many of them. The
 * rule: a log knows only its own blocks; all it has of others comes through struct sim_peers.
 */
#ifndef KVBLK_SIM_LOG_H
#define KVBLK_SIM_LOG_H

#include "index/index.h"
#include "replay/simulate.h"

/**
 * struct renamed - a trace with dense names
 * @names: blocks of all requests
 * @hashes: hashed id of each name
 * @nr: number of names
 * @longest: blocks of the longest request
 */
struct renamed {
	uint32_t *names;
	uint64_t *hashes;
	uint32_t nr;
	uint32_t longest;
};

/* Fill the zeroed @n. Returns 0, -EINVAL or -ENOMEM; call renamed_free() in any case. */
int rename_ids(const struct trace *t, uint64_t salt, struct renamed *n);
void renamed_free(struct renamed *n);
struct kvblk_id renamed_id(const struct renamed *n, uint32_t name);

/**
 * struct sim_peers - the other logs of a pod, and what they hear from a log
 * @get: return whether a peer has @names[0], which is then read; @nr blocks of the request
 *	are left
 * @exists: return whether a peer has @name, which is then not put
 * @written: @name was written to @seg; @came: the log had no entry before
 * @dropped: reclaim dropped @name
 * @retired: all entries of @seg are dead
 */
struct sim_peers {
	bool (*get)(void *node, const uint32_t *names, uint32_t nr);
	bool (*exists)(void *node, uint32_t name);
	void (*written)(void *node, uint32_t name, uint32_t seg, bool came);
	void (*dropped)(void *node, uint32_t name);
	void (*retired)(void *node, uint32_t seg);
};

struct sim;

/*
 * Open an empty log of @r->capacity_blocks; @node goes to the functions of @peers. Returns 0,
 * -EINVAL or -ENOMEM.
 */
int sim_open(struct sim **log, const struct renamed *n, const struct sim_opts *o,
	     const struct sim_peers *peers, void *node, struct sim_result *r);
void sim_close(struct sim *s);
/* Look up a request's blocks and put the missing ones. Returns 0 or a negative errno. */
int sim_request(struct sim *s, const uint32_t *names, uint32_t nr);
uint32_t sim_segments(const struct sim *s);
/* Returns the blocks in all segments, dead ones included. */
uint64_t sim_written(const struct sim *s);
/* Returns the policy's tick, 1 to 255. */
uint8_t sim_tick(const struct sim *s);
/* Copy the entry of @name to @slot. Returns false if there is none on flash. */
bool sim_find(const struct sim *s, uint32_t name, struct kvblk_slot *slot);
/* Touch the entry of @name, if there is one. */
void sim_touch(struct sim *s, uint32_t name);
typedef void sim_visitor(void *data, uint32_t name, const struct kvblk_slot *slot);
/* Call @visit for each live entry of @seg. Returns the entries of its summary. */
uint32_t sim_visit(struct sim *s, uint32_t seg, sim_visitor *visit, void *data);
/* Call @visit for each live entry. */
void sim_walk(struct sim *s, sim_visitor *visit, void *data);
/* Compute the ratios of @r from its counts. */
void sim_finish(struct sim_result *r);

#endif
