/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A member's image in memory: what lies where, and how to damage it so that it
 * passes each checksum. Compiled with the module's codecs and the shim; those who
 * call it need neither.
 */
#ifndef KVBLK_MEDIA_H
#define KVBLK_MEDIA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct media;

/* What was done to an image. */
struct media_change {
	size_t at;
	size_t bytes;		/* among them, from @at on, is all that differs */
	bool record;		/* the header of a record: a deleted one may be back */
	char text[1200];
};

/*
 * What is on @image, which has to be a member's and to stay; ends the program if not.
 * But for @pages of 4 KiB it is all zeroes.
 */
struct media *media_scan(const void *image, size_t bytes, const size_t *pages,
			 size_t nr_pages);
/* Calls @found with the key of each record in a segment that is in use. */
void media_keys(const struct media *media,
		void (*found)(const void *key, size_t len, void *arg), void *arg);
/* The newest superblock on @image: false, there is none. */
bool media_life(const void *image, size_t bytes, uint64_t *epoch,
		uint64_t *incarnation);
/*
 * Changes one structure of @live, a copy of the scanned image, or several. @older is
 * an image of the same member in its past. What is done follows from @seed.
 */
void media_damage(const struct media *media, const void *older, void *live,
		  uint64_t seed, struct media_change *change);
/*
 * All summary pages that a segment can have, each full of holes of which none leaves
 * its place, and behind them a record. False: there is no open segment.
 */
bool media_flood(const struct media *media, void *live, struct media_change *change);
/*
 * A field of the newest superblock on @head, which are the first MEDIA_HEAD bytes of a
 * member of @bytes; behind "table." one of the first page of the table, behind
 * "segment." one of the first segment in use. It is set, or read: its first 8 bytes.
 * False: there is no such field.
 */
#define MEDIA_HEAD	(192u << 10)
bool media_field(void *head, uint64_t bytes, const char *name, bool set, uint64_t *value);
/* The numbers that only grow are such as a pool of some lives has. */
bool media_modest(const void *image, uint64_t bytes);
/* A superblock that cuts all @bytes of a device into the smallest segments. */
void media_claim(void *sb, uint64_t bytes);
/* A superblock of the next version, or (@feature) with a feature of a later one. */
void media_newer(void *sb, bool feature);

#endif
