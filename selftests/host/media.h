/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A member's image in memory: find its structures, and damage them so that every checksum still
 * passes. Compiled with the module's codecs and the shim; the callers need neither.
 */
#ifndef KVBLK_MEDIA_H
#define KVBLK_MEDIA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct media;

struct media_change {
	size_t at;
	size_t bytes;		/* all differences are within these bytes from @at on */
	bool record;		/* a record header changed: a deleted block may be back */
	char text[1200];
};

/*
 * Scan @image, which must be a valid member and must outlive the result; exits if it is not
 * valid. All of it is zero except for the given 4 KiB @pages.
 */
struct media *media_scan(const void *image, size_t bytes, const size_t *pages,
			 size_t nr_pages);
void media_free(struct media *media);
/* Call @found with the key of each record in a used segment. */
void media_keys(const struct media *media,
		void (*found)(const void *key, size_t len, void *arg), void *arg);
/*
 * Scan a member as a restart does, with the module's scan, and check what the scan reports:
 * records are in order and within their segments. @base: scan of an image before its damage;
 * @read reads the member. Exits if a check fails.
 */
struct media_records *media_records(const struct media *base,
				    void (*read)(void *arg, uint64_t at, void *buf, size_t bytes),
				    void *arg);
/* Return whether a header with this key's id is where the scan found a record. */
bool media_has(const struct media_records *records, const void *key, size_t len);
void media_records_free(struct media_records *records);
/* Return epoch and incarnation of the newest superblock; false if there is none. */
bool media_life(const void *image, size_t bytes, uint64_t *epoch,
		uint64_t *incarnation);
/*
 * Damage one or several structures of @live, a copy of the scanned image. @older is an earlier
 * image of the same member. @seed determines the damage.
 */
void media_damage(const struct media *media, const void *older, void *live,
		  uint64_t seed, struct media_change *change);
/*
 * Fill all summary pages of an open segment with holes that overlap, and put a record in front.
 * Returns false if no segment is open.
 */
bool media_flood(const struct media *media, void *live, struct media_change *change);
/*
 * Set or read a field: its first 8 bytes. @head has the first MEDIA_HEAD bytes of a member of
 * @bytes. @name is a field of the newest superblock; "table.FIELD" is of the first table page,
 * "segment.FIELD" of the first used segment. Returns false if there is no such field.
 */
#define MEDIA_HEAD	(192u << 10)
bool media_field(void *head, uint64_t bytes, const char *name, bool set, uint64_t *value);
/* Check that all counters that only grow have values that a young pool could have. */
bool media_modest(const void *image, uint64_t bytes);
/* Make a superblock claim all @bytes of a device, in segments of the smallest size. */
void media_claim(void *sb, uint64_t bytes);
/* Make a superblock one of the next version, or of this version with an unknown feature. */
void media_newer(void *sb, bool feature);

#endif
