/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Codecs of superblocks, segment table, record headers and summaries: pure logic, also built in
 * selftests/host. Encoders fill whole buffers, or else stale kernel memory would reach a device.
 */
#ifndef KVBLK_RECORD_H
#define KVBLK_RECORD_H

#include <linux/math.h>
#include <linux/minmax.h>
#include <linux/types.h>
#include <asm/byteorder.h>

#include "format/format.h"
#include "format/hash.h"

/* Position of a header; elsewhere the header is invalid. */
struct kvblk_place {
	u64 incarnation;	/* of the member's format */
	u64 generation;		/* of the segment */
	u32 segment;		/* number in the member */
	u32 unit;		/* from the segment's start */
};

/* A decoded record header. */
struct kvblk_rec {
	struct kvblk_id id;	/* hash of tenant and key */
	u64 seq;		/* pool-wide order of puts */
	u64 activation;		/* encrypted: names the subkey, with @key_epoch */
	u64 layout_tag;
	u64 caller_tag;
	u64 parent;		/* id.lo of the parent's key, 0 for none */
	u32 length;		/* payload bytes, 1 to KVBLK_VALUE_MAX */
	u32 expiry;		/* seconds since the pool's birth, 0 for never */
	u16 tenant;
	u16 key_len;		/* bytes at @key */
	u16 key_epoch;
	u8 priority;		/* 0 to 3 */
	u8 integrity;		/* &enum kvblk_integrity */
	bool durable;		/* written past volatile write caches */
	const void *key;	/* in the caller's memory or in the buffer */
	const __le32 *crcs;	/* of each chunk, or tags; in the buffer */
};

/* @length, as below: at most KVBLK_VALUE_MAX, or else the sum wraps. */
static inline u32 kvblk_nr_chunks(u32 length)
{
	return DIV_ROUND_UP(length, 1u << KVBLK_CHUNK_SHIFT);
}

static inline u32 kvblk_crcs_bytes(u32 length)
{
	return kvblk_nr_chunks(length) * sizeof(__le32);
}

/* Return the bytes in a header at KVBLK_HDR_CRCS: checksums, or the tags of an encrypted record. */
static inline u32 kvblk_proof_bytes(bool encrypted, u32 length)
{
	return kvblk_nr_chunks(length) * (encrypted ? KVBLK_TAG_BYTES : sizeof(__le32));
}

/*
 * Return 1 to KVBLK_HDR_UNITS_MAX: 2 above 48 MiB or, encrypted, 12 MiB. By length and the kind of
 * tenant alone, as index entries do not name the integrity.
 */
static inline u32 kvblk_header_units(bool encrypted, u32 length)
{
	return DIV_ROUND_UP(KVBLK_HDR_CRCS + kvblk_proof_bytes(encrypted, length), KVBLK_UNIT);
}

static inline u32 kvblk_header_bytes(bool encrypted, u32 length)
{
	return kvblk_header_units(encrypted, length) << KVBLK_UNIT_SHIFT;
}

static inline __le32 *kvblk_header_crcs(void *header)
{
	return header + KVBLK_HDR_CRCS;
}

static inline u8 *kvblk_header_tags(void *header)
{
	return header + KVBLK_HDR_CRCS;
}

/* Return the units of header and padded payload, rounded up to @align_units, a power of two. */
static inline u32 kvblk_record_units(bool encrypted, u32 length, u32 align_units)
{
	return round_up(kvblk_header_units(encrypted, length) + DIV_ROUND_UP(length, KVBLK_UNIT),
			align_units);
}

static inline bool kvblk_rec_encrypted(const struct kvblk_rec *rec)
{
	return rec->integrity == KVBLK_INTEGRITY_AES_GCM;
}

/* kvblk_record_units() of @rec, also of a summary's entry. */
static inline u32 kvblk_rec_units(const struct kvblk_rec *rec, u32 align_units)
{
	return kvblk_record_units(kvblk_rec_encrypted(rec), rec->length, align_units);
}

/* Set the nonce of a chunk. */
static inline void kvblk_nonce_fill(struct kvblk_d_nonce *nonce, u64 seq, u32 chunk)
{
	nonce->seq = cpu_to_le64(seq);
	nonce->chunk = cpu_to_le32(chunk);
}

/* Set what tags authenticate besides the payload: not the place, which reclaim changes. */
void kvblk_aad_fill(struct kvblk_d_aad *aad, const struct kvblk_rec *rec);

/*
 * Write the header of @rec, kvblk_header_units() units, to @buf. The chunk checksums must be at
 * @buf + KVBLK_HDR_CRCS already; @rec->crcs is ignored. @rec->key may point into @buf, so that a
 * decoded header can be encoded in place for another position. @rec is trusted. @short_crc: for a
 * member with KVBLK_SB_IN_SHORT_CRC.
 */
void kvblk_record_encode(void *buf, const struct kvblk_rec *rec, const struct kvblk_place *place,
			 const struct kvblk_secret *secret, bool short_crc);
/* Write a filler that covers @units (header included) to @buf, 4 KiB. */
void kvblk_filler_encode(void *buf, u32 units, const struct kvblk_place *place,
			 const struct kvblk_secret *secret);

enum kvblk_decoded {
	KVBLK_DEC_NONE,		/* no valid header for this place */
	KVBLK_DEC_MORE,		/* perhaps a record, whose header is longer than the buffer */
	KVBLK_DEC_RECORD,	/* a record */
	KVBLK_DEC_FILLER,	/* a filler; rec->length is the number of units it covers */
};

/* Return the fields of a valid record header, which must remain at @hdr. */
static inline struct kvblk_rec kvblk_record_unpack(const struct kvblk_d_record *hdr)
{
	return (struct kvblk_rec) {
		.id.hi = le64_to_cpu(hdr->id_hi),
		.id.lo = le64_to_cpu(hdr->id_lo),
		.seq = le64_to_cpu(hdr->seq),
		.activation = le64_to_cpu(hdr->activation),
		.key_epoch = le16_to_cpu(hdr->key_epoch),
		.layout_tag = le64_to_cpu(hdr->layout_tag),
		.caller_tag = le64_to_cpu(hdr->caller_tag),
		.parent = le64_to_cpu(hdr->parent),
		.length = le32_to_cpu(hdr->length),
		.expiry = le32_to_cpu(hdr->expiry),
		.tenant = le16_to_cpu(hdr->tenant),
		.key_len = le16_to_cpu(hdr->key_len),
		.priority = hdr->priority,
		.integrity = hdr->integrity,
		.durable = le32_to_cpu(hdr->flags) & KVBLK_RECF_DURABLE,
		.key = (const u8 *)hdr + KVBLK_HDR_KEY,
		.crcs = (const void *)hdr + KVBLK_HDR_CRCS,
	};
}

/*
 * Decode a header in @size bytes (a multiple of 4 KiB) at @buf. Sets @rec, which points into
 * @buf, for RECORD and FILLER only. The caller must check that a filler ends in its segment.
 * A record without a MAC by @secret is NONE: a tenant may have written it within a payload.
 */
enum kvblk_decoded kvblk_record_decode(const void *buf, size_t size,
				       const struct kvblk_place *place,
				       const struct kvblk_secret *secret, struct kvblk_rec *rec);
/*
 * Return whether @hdr, kvblk_header_bytes(@encrypted, @length), is the valid header of the record
 * of @id and @length bytes at @place. An index entry must name them: this replaces the MAC, because
 * the id is secret and a record begins there. Make nothing else of the header: use
 * kvblk_record_unpack().
 */
bool kvblk_record_named(const struct kvblk_d_record *hdr, struct kvblk_place place,
			struct kvblk_id id, bool encrypted, u32 length);

/* Decoded head of a summary page. */
struct kvblk_sum {
	u32 nr_records;		/* in the segment when the page was written */
	bool sealed;		/* the segment is complete; @nr_records is final */
};

/* Return the summary pages of @nr records (at least 1). */
static inline u32 kvblk_summary_pages(u32 nr)
{
	return DIV_ROUND_UP(max(nr, 1u), KVBLK_SUMMARY_ENTRIES);
}

/* Set head, checksum and MAC of page @page at @buf, whose entries are set. Ignores @place->unit. */
void kvblk_summary_encode(struct kvblk_d_summary *buf, u32 page,
			  const struct kvblk_sum *sum, const struct kvblk_place *place,
			  const struct kvblk_secret *secret);
bool kvblk_summary_decode(const struct kvblk_d_summary *buf, u32 page,
			  const struct kvblk_place *place, const struct kvblk_secret *secret,
			  struct kvblk_sum *sum);

#define KVBLK_SEQ_EPOCH_SHIFT	40	/* epoch in a record's seq; lower bits count records */

/* Return the epoch of the seqs after @seq: the next one once half of an epoch's are used. */
static inline u64 kvblk_seq_epoch(u64 seq)
{
	return (seq >> KVBLK_SEQ_EPOCH_SHIFT) + (seq >> (KVBLK_SEQ_EPOCH_SHIFT - 1) & 1);
}

/* Encode the entry of the record whose encoded header is @hdr. Any context. */
static inline void kvblk_entry_of_header(struct kvblk_d_entry *entry,
					 const struct kvblk_d_record *hdr)
{
	entry->id_hi = hdr->id_hi;
	entry->id_lo = hdr->id_lo;
	entry->seq = hdr->seq;
	entry->caller_tag = hdr->caller_tag;
	entry->parent = hdr->parent;
	entry->unit = hdr->unit;
	entry->length = hdr->length;
	entry->expiry = hdr->expiry;
	entry->tenant = hdr->tenant;
	entry->priority = hdr->priority;
	entry->flags = KVBLK_ENTF_VALID |
		       (hdr->integrity == KVBLK_INTEGRITY_AES_GCM ? KVBLK_ENTF_ENCRYPTED : 0);
	entry->reserved = 0;
}

/*
 * Decode an entry of a valid page; zero the fields of @rec that an entry lacks, but the integrity
 * of an encrypted record. Returns false for a
 * hole, or a field out of range in a segment of @segment_units.
 */
bool kvblk_entry_decode(const struct kvblk_d_entry *entry, u32 segment_units,
			struct kvblk_rec *rec, u32 *unit);

void kvblk_table_seal(struct kvblk_d_table *table);	/* sets the checksum, after all fields */
/*
 * Return whether the page and all its entries are valid. @most: limit of the numbers that grow by
 * one, KVBLK_COUNT_MAX for a page to be written.
 */
bool kvblk_table_within(const struct kvblk_d_table *table, u64 incarnation, u32 page, u64 most);

static inline bool kvblk_table_valid(const struct kvblk_d_table *table, u64 incarnation, u32 page)
{
	return kvblk_table_within(table, incarnation, page, KVBLK_COUNT_FOUND_MAX);
}

void kvblk_change_page_seal(struct kvblk_d_change_page *changes);	/* sets the checksum */
bool kvblk_change_page_valid(const struct kvblk_d_change_page *changes, u64 incarnation);

/* Return whether @name ends within @size bytes and is [A-Za-z0-9][A-Za-z0-9_.-]*. */
bool kvblk_name_valid(const u8 *name, size_t size);
/* Return whether @name is "default", or would collide with another device node of a pool. */
bool kvblk_tenant_name_reserved(const char *name);
/* Replace characters that are not printable ASCII, as superblocks require of host names. */
void kvblk_text_clean(u8 *text);
bool kvblk_text_printable(const u8 *text);

/* bytes of a member's place, NUL included */
#define KVBLK_PLACE_MAX		(KVBLK_SB_PLACE_PARTS * KVBLK_SB_PLACE_PART)

void kvblk_place_get(const struct kvblk_d_place *place, char text[KVBLK_PLACE_MAX]);
void kvblk_place_set(struct kvblk_d_place *place, const char *text);
void kvblk_super_seal(struct kvblk_d_super *sb);	/* sets the checksum, after all fields */

/**
 * kvblk_super_within() - check whether this module may use a member
 * @sb: its superblock, 64 KiB
 * @dev_bytes: size of the device
 * @most: limit of the numbers that grow by one, KVBLK_COUNT_MAX for a superblock to be written
 *
 * Checks all values that later code computes with: segment size and record_align are powers of
 * two within their limits; the table, and a pod's change page, end before data_start; all
 * segments lie within @sb's size, and that within @dev_bytes; names are terminated and valid
 * file names; members and tenants are listed once, this member included; "default" is the first
 * tenant, and KVBLK_SB_IN_TENANTS announces others; epochs are in range.
 * The caller compares copies and members.
 *
 * Return: 0; -ENODATA: no kvblk superblock; -EBADMSG: damaged; -EPROTONOSUPPORT: unknown
 * version, incompat bit or pool flag; -ERANGE: a field is out of range; -EROFS: valid, but for
 * reading only, because of an unknown ro_compat bit.
 */
int kvblk_super_within(const struct kvblk_d_super *sb, u64 dev_bytes, u64 most);

static inline bool kvblk_super_in_pod(const struct kvblk_d_super *sb)
{
	return le32_to_cpu(sb->ro_compat) & KVBLK_SB_RO_POD;
}

static inline int kvblk_super_check(const struct kvblk_d_super *sb, u64 dev_bytes)
{
	return kvblk_super_within(sb, dev_bytes, KVBLK_COUNT_FOUND_MAX);
}

#endif
