/* SPDX-License-Identifier: MIT */
/* List of steps under construction, shared by plan.c and plan_*.c. */
#ifndef KVBLKD_APPLY_PLAN_LIST_H
#define KVBLKD_APPLY_PLAN_LIST_H

#include "apply/plan.h"

struct steps {
	struct step *first;
	struct step **last;
	bool no_memory;
};

/* Append a step. Returns NULL without memory. */
struct step *add_step(struct steps *steps, enum step_kind kind, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

void keep_text(struct steps *steps, char **text, const char *value);
void keep_path(struct steps *steps, struct step *step, const char *path);

/* Append a STEP_SET of @file in @directory. */
void add_setting(struct steps *steps, const char *what, const char *whose,
		 const char *was, const char *value, const char *directory, const char *file);

bool same_uuid(const uint8_t a[16], const uint8_t b[16]);

/* Returns the device that @path resolves to, NULL if the link is dangling. */
const char *device_of(const struct state *state, const char *path);

/* Returns the running pool @name, or NULL. */
const struct kvblk_pool_state *plan_running(const struct state *state, const char *name);

bool is_settled(const struct state *state, const char *name);

void plan_pools(const struct config *config, const struct state *state,
		struct steps *steps);
void plan_adopt(const struct config *config, const struct state *state, struct steps *steps);

/* Plan what @pool follows. @hinted: follow only what the directory names. */
void plan_following(const struct kvblk_pool_state *pool, const struct state *state, bool hinted,
		    struct steps *steps);

/* Plan the tenants of @pool, which is @wanted in the file. */
void plan_tenants(const struct config *config, const struct config_pool *wanted,
		  const struct kvblk_pool_state *pool, const struct state *state,
		  struct steps *steps);

/* Returns true if the tenant must be encrypted, by the file or because kvblkd keeps a key. */
bool plan_is_secret(const struct config_pool *wanted, const uint8_t uuid[16],
		    const struct state *state, const char *tenant);

/* Returns true, with a note, if @best has a plain tenant that must be encrypted. */
bool plan_is_forged(const struct config_pool *wanted, const struct kvblk_found *best,
		    const struct state *state, struct steps *steps);

#endif
