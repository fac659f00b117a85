/* SPDX-License-Identifier: MIT */
/* The beats of members: the owner of a pool in a pod writes a higher one each second. */
#ifndef KVBLK_BEAT_H
#define KVBLK_BEAT_H

#include <stdbool.h>
#include <stdint.h>

struct kvblk_found;

/* Read the last beat of a member found. Returns false if it cannot be read, or there is none. */
bool beat_read(const struct kvblk_found *member, uint64_t *beat);

#endif
