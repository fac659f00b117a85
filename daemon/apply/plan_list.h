/* SPDX-License-Identifier: MIT */
/* List of steps under construction, shared by plan.c and plan_pool.c. */
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

bool is_settled(const struct state *state, const char *name);

void plan_pools(const struct config *config, const struct state *state,
		struct steps *steps);

#endif
