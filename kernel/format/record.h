/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Codecs of what lies on media: superblock, segment table, record headers,
 * summaries. Encoders fill whole buffers, so no stale kernel memory reaches a
 * device; decoders trust nothing: a buffer is read only after its checksum,
 * MAC and place have been checked, and every field is range-checked.
 *
 * Pure logic: compiled for user space by selftests/host.
 */
#ifndef KVBLK_RECORD_H
#define KVBLK_RECORD_H

#include <linux/types.h>

#include "format/format.h"
#include "format/hash.h"

/**
 * struct kvblk_place - where a header lies; a header elsewhere is not valid
 * @incarnation: of the member's format
 * @segment: of the member
 * @generation: the segment's
 * @unit: 4 KiB units from the segment's start
 */
struct kvblk_place {
	u64 incarnation;
	u64 generation;
	u32 segment;
	u32 unit;
};

/**
 * struct kvblk_rec - a record's header, decoded
 * @id: from the key
 * @seq: pool-wide order of puts
 * @layout_tag: the caller's layout
 * @caller_tag: the caller's tag
 * @parent: id.lo of the parent's key, 0 for none
 * @length: payload bytes, 1 to KVBLK_VALUE_MAX
 * @expiry: seconds since the pool's birth, 0 for never
 * @tenant: tenant id
 * @key_len: bytes at @key
 * @priority: 0 to 3
 * @integrity: &enum kvblk_integrity
 * @durable: it was written past volatile write caches
 * @key: the key; points into the caller's memory or into the buffer
 * @crcs: crc32c of each chunk, little endian; points into the buffer
 */
struct kvblk_rec {
	struct kvblk_id id;
	u64 seq;
	u64 layout_tag;
	u64 caller_tag;
	u64 parent;
	u32 length;
	u32 expiry;
	u16 tenant;
	u16 key_len;
	u8 priority;
	u8 integrity;
	bool durable;
	const void *key;
	const __le32 *crcs;
};

/* Units of the header of a record with @length bytes: 1, or 2 above 48 MiB. */
unsigned int kvblk_header_units(u32 length);
/*
 * Units of the whole record: header and padded payload, rounded up to a
 * multiple of @align_units, a power of two. @length: at most KVBLK_VALUE_MAX.
 */
u32 kvblk_record_units(u32 length, u32 align_units);
/* Payload checksums of a record with @length bytes. */
u32 kvblk_nr_chunks(u32 length);

/*
 * Writes the header of @rec at @buf (kvblk_header_units() units, each byte is
 * set). The chunk checksums must be at @buf + KVBLK_HDR_CRCS already; @rec's
 * own @crcs is ignored. @rec's key may be the one in @buf, so a decoded header
 * can be encoded again in its buffer for another place. @rec is trusted.
 */
void kvblk_record_encode(void *buf, const struct kvblk_rec *rec,
			 const struct kvblk_place *place,
			 const struct kvblk_secret *secret);
/* Writes a filler that covers @units (header included) at one 4 KiB @buf. */
void kvblk_filler_encode(void *buf, u32 units, const struct kvblk_place *place,
			 const struct kvblk_secret *secret);

/**
 * enum kvblk_decoded - what a header turned out to be
 * @KVBLK_DEC_NONE: nothing valid for this place
 * @KVBLK_DEC_MORE: looks like a record whose header is longer than @size
 * @KVBLK_DEC_RECORD: a record; @rec is filled
 * @KVBLK_DEC_FILLER: a filler; @rec->length is the units it covers
 */
enum kvblk_decoded {
	KVBLK_DEC_NONE,
	KVBLK_DEC_MORE,
	KVBLK_DEC_RECORD,
	KVBLK_DEC_FILLER,
};

/*
 * Decodes @size bytes (a multiple of 4 KiB) at @buf. Never reads behind. @rec
 * is set with RECORD (it points into @buf) and FILLER only. A filler's units
 * may reach behind the segment: the caller knows where that ends. @secret may
 * be NULL if the caller knows that a record begins there and compares its id,
 * which is secret: then the MAC is not looked at.
 */
enum kvblk_decoded kvblk_record_decode(const void *buf, size_t size,
				       const struct kvblk_place *place,
				       const struct kvblk_secret *secret,
				       struct kvblk_rec *rec);

/**
 * struct kvblk_sum - a summary page's head, decoded
 * @nr_records: records in the segment when the page was written
 * @sealed: the segment is complete; @nr_records is final
 */
struct kvblk_sum {
	u32 nr_records;
	bool sealed;
};

/* Summary pages of @nr records (at least 1). */
u32 kvblk_summary_pages(u32 nr);
/*
 * Completes page @page at @buf, whose entries are filled in: head, checksum,
 * MAC. @place->unit is ignored.
 */
void kvblk_summary_encode(struct kvblk_d_summary *buf, u32 page,
			  const struct kvblk_sum *sum,
			  const struct kvblk_place *place,
			  const struct kvblk_secret *secret);
bool kvblk_summary_decode(const struct kvblk_d_summary *buf, u32 page,
			  const struct kvblk_place *place,
			  const struct kvblk_secret *secret,
			  struct kvblk_sum *sum);
/* Epochs in the upper bits of a record's seq, records in the lower. */
#define KVBLK_SEQ_EPOCH_SHIFT	40

/* The epoch of the seqs that follow @seq: the next one if half of its count is given. */
static inline u64 kvblk_seq_epoch(u64 seq)
{
	return (seq >> KVBLK_SEQ_EPOCH_SHIFT) + (seq >> (KVBLK_SEQ_EPOCH_SHIFT - 1) & 1);
}

/* Fills an entry for @rec at @unit. */
void kvblk_entry_encode(struct kvblk_d_entry *entry,
			const struct kvblk_rec *rec, u32 unit);
/*
 * Decodes an entry of a valid page (id, seq, caller_tag, parent, length,
 * expiry, tenant, priority; the rest of @rec is zero). False: a hole, or a
 * field out of range, @segment_units being the segment's size.
 */
bool kvblk_entry_decode(const struct kvblk_d_entry *entry, u32 segment_units,
			struct kvblk_rec *rec, u32 *unit);

/* Sets the checksum of a page of the segment table; all else is filled in. */
void kvblk_table_seal(struct kvblk_d_table *table);
/* True: @table is valid for this member and page, and every entry is in range. */
bool kvblk_table_valid(const struct kvblk_d_table *table, u64 incarnation,
		       u32 page);
/* The same of a page that is to be written, whose numbers have grown since. */
bool kvblk_table_writable(const struct kvblk_d_table *table, u64 incarnation,
			  u32 page);

/*
 * A name of a pool or tenant in @size bytes: letters, digits, '_', '-', '.', the
 * first one a letter or digit, and a NUL.
 */
bool kvblk_name_valid(const u8 *name, size_t size);
/* Replaces what is not printable ASCII, as a superblock has names of hosts. */
void kvblk_text_clean(u8 *text);
/* Returns whether all of @text is printable ASCII. */
bool kvblk_text_printable(const u8 *text);

/* Bytes of a member's place, its NUL included. */
#define KVBLK_PLACE_MAX		(KVBLK_SB_PLACE_PARTS * KVBLK_SB_PLACE_PART)

/* Copies a place out of a superblock, and into one. */
void kvblk_place_get(const struct kvblk_d_place *place, char text[KVBLK_PLACE_MAX]);
void kvblk_place_set(struct kvblk_d_place *place, const char *text);
/* Sets the checksum of a superblock; all else is filled in by the caller. */
void kvblk_super_seal(struct kvblk_d_super *sb);
/**
 * kvblk_super_check() - may this module use a member with this superblock?
 * @sb: 64 KiB as they were read
 * @dev_bytes: size of the device
 *
 * Makes sure of all that later code computes with: segment size and
 * record_align are powers of two within their limits, the table ends before
 * data_start, all segments lie within @sb's size and that within @dev_bytes,
 * names are terminated and fit to be file names, members and tenants are listed
 * once, this member too, epochs are within their range. Which copy or member is
 * newer is the caller's question.
 *
 * Return: 0; -ENODATA: not a kvblk superblock; -EBADMSG: damaged;
 * -EPROTONOSUPPORT: its version, an incompat or ro_compat bit (nothing is
 * read-only here), or a flag of the pool is not known; -ERANGE: a field makes no sense.
 */
int kvblk_super_check(const struct kvblk_d_super *sb, u64 dev_bytes);
/* The same of one that is to be written, whose numbers have grown since it was read. */
int kvblk_super_writable(const struct kvblk_d_super *sb, u64 dev_bytes);

#endif
