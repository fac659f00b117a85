/* SPDX-License-Identifier: GPL-2.0 */
/*
 * On-media format, byte for byte; Documentation/format.rst explains it. All integers are
 * little endian. Offsets "in units" are multiples of 4 KiB.
 *
 *   0            superblock A (64 KiB)
 *   64 KiB       superblock B
 *   128 KiB      segment table: for each page of 127 entries two 4 KiB slots
 *                in a pod: a change page, the 4 KiB before data_start
 *   data_start   segment 0, segment 1, ... (data_start: multiple of 1 MiB)
 *
 * A segment holds records from its front and summary pages from its end downwards. Page i is the
 * 4 KiB block i + 1 before the end; it lists records 63 * i to 63 * i + 62 in reservation order.
 */
#ifndef KVBLK_FORMAT_H
#define KVBLK_FORMAT_H

#include <linux/types.h>

#include <linux/kvblk_media.h>

#define KVBLK_UNIT_SHIFT	12
#define KVBLK_UNIT		4096u
#define KVBLK_CHUNK_SHIFT	16	/* bytes under one payload checksum */

#define KVBLK_TABLE_MAGIC	0x4254564b		/* "KVTB" */
#define KVBLK_RECORD_MAGIC	0x4443455256564bULL	/* "KVVRECD" */
#define KVBLK_FILLER_MAGIC	0x4c4c494656564bULL	/* "KVVFILL" */
#define KVBLK_SUMMARY_MAGIC	0x4d4d555356564bULL	/* "KVVSUMM" */

#define KVBLK_EPOCH_MAX		((1u << 24) - (1u << 16))	/* in a superblock */
#define KVBLK_EPOCH_UP_MAX	(KVBLK_EPOCH_MAX - (1u << 16))	/* of a pool to be imported */
/* Largest lead of an activation that wrote only superblocks over the pool's last life. */
#define KVBLK_EPOCH_LEAD	0x10000u
#define KVBLK_TABLE_OFFSET	(2ULL * KVBLK_SB_BYTES)
#define KVBLK_DATA_ALIGN	0x100000	/* alignment of data_start, bytes */

#define KVBLK_SEGMENT_UNITS_MIN	(8u << 8)	/* 8 MiB */
#define KVBLK_SEGMENT_UNITS_MAX	(1024u << 8)	/* 1 GiB */
#define KVBLK_SEGMENT_RECORDS_MAX	(KVBLK_SEGMENT_UNITS_MAX / 2)	/* of 2 units or more */
#define KVBLK_RECORD_ALIGN_MIN	4096u		/* bytes */
#define KVBLK_RECORD_ALIGN_MAX	65536u

#define KVBLK_TENANT_IDS	0x4000	/* ids are below this */
/* Tenant of the node for NVMe commands; in no table, so that it cannot be removed or cleared. */
#define KVBLK_NVME_TENANT	(KVBLK_TENANT_IDS - 1)

#define KVBLK_SLOTS_MIN		64ull		/* entries of an index */
#define KVBLK_SLOTS_MAX		0x1000000000ull	/* 2^36 */

/* Every CRC on media is CRC32C as in RFC 3720: ~crc32c(KVBLK_CRC_INIT, bytes, length). */
#define KVBLK_CRC_INIT		(~0u)

/* Limit of the clock and of numbers that grow by one (generation, opened, seqs but a record's). */
#define KVBLK_COUNT_MAX		((1ULL << 48) - 1)
#define KVBLK_COUNT_FOUND_MAX	(KVBLK_COUNT_MAX / 2)	/* of what is read: a next one exists */

/* No bits of compat are defined yet. Unknown ones are preserved. */
#define KVBLK_SB_RO_ALL		KVBLK_SB_RO_POD
#define KVBLK_SB_IN_ALL		(KVBLK_SB_IN_SHORT_CRC | KVBLK_SB_IN_TENANTS | \
				 KVBLK_SB_IN_ENCRYPTED)

/* Limits of a superblock's reuse_grace, ms. A follower reads a table page each second. */
#define KVBLK_REUSE_GRACE_MIN	3000u
#define KVBLK_FOLLOW_SUPER_MS	10000u	/* longest use of a reuse_grace without a look at it */
#define KVBLK_REUSE_GRACE_MAX	600000u
#define KVBLK_SBF_STRICT	0x01 /* pool_flags: all transfers go through kernel memory */
#define KVBLK_SBF_ALL		KVBLK_SBF_STRICT

/* State of a segment, on media and in memory. */
enum kvblk_segment_state {
	KVBLK_SEG_FREE		= 0,	/* may be opened under its generation */
	KVBLK_SEG_OPEN		= 1,	/* takes records */
	KVBLK_SEG_SEALED	= 2,	/* full; all its summary pages are durable */
};

#define KVBLK_SEGF_KILLS	0x01 /* headers may differ from the summary */
#define KVBLK_SEGF_UNPROVEN	0x02 /* was open at a crash: always check payloads */
#define KVBLK_SEGF_ALL		(KVBLK_SEGF_KILLS | KVBLK_SEGF_UNPROVEN)

#define KVBLK_TAG_BYTES		16

/* Nonce of a chunk. A seq is given once in an activation, which the subkey is of. */
struct kvblk_d_nonce {
	__le64 seq;
	__le32 chunk;
} __packed;

/* Additional data that the tags of a record authenticate. */
struct kvblk_d_aad {
	__le64 id_hi;		/* of tenant and key */
	__le64 id_lo;
	__le64 layout_tag;
	__le64 caller_tag;
	__le64 parent;
	__le32 length;
	__le32 expiry;
	__le16 tenant;
	__le16 key_epoch;
	__le32 reserved;
} __packed;

struct kvblk_d_segment {
	__le64 generation;	/* increased when the segment is retired */
	__u8   state;
	__u8   class;
	__le16 flags;		/* KVBLK_SEGF_* */
	__le32 nr_records;	/* valid if SEALED */
	__le64 opened;		/* position in the member's order of opening */
	__le64 reserved;
} __packed;			/* 32 bytes */

#define KVBLK_TABLE_ENTRIES	127

struct kvblk_d_table {		/* 4096 bytes */
	__le32 magic;
	__le32 crc;		/* crc32c of the page, this field zero */
	__le64 seq;		/* the slot with the larger seq is valid */
	__le64 incarnation;
	__le32 page;
	__le32 time;		/* low bits of the pool's clock when written */
	struct kvblk_d_segment segments[KVBLK_TABLE_ENTRIES];
} __packed;

#define KVBLK_CHANGES_MAGIC	0x4843564b		/* "KVCH" */
#define KVBLK_CHANGES		1016u

/*
 * The change page: which pages of the table were written last, for followers. Its owner writes it
 * each second, with a higher @beat, so that a page that was lost or is old is known by its beat.
 */
struct kvblk_d_change_page {	/* 4096 bytes */
	__le32 magic;
	__le32 crc;		/* crc32c of the page, this field zero */
	__le64 incarnation;
	__le64 beat;		/* number of this write; begins with the epoch of the activation */
	__le64 nr;		/* number of table writes; begins as @beat */
	__le32 pages[KVBLK_CHANGES];	/* table page of write i at i % KVBLK_CHANGES */
} __packed;

/* Checksums of the payload. */
enum kvblk_integrity {
	KVBLK_INTEGRITY_NONE	= 0,
	KVBLK_INTEGRITY_CRC32C	= 1,	/* a CRC32C for each chunk */
	KVBLK_INTEGRITY_PRODUCER = 2,	/* CRC32Cs that the caller gave */
	KVBLK_INTEGRITY_AES_GCM	= 3,	/* encrypted, with a tag for each chunk */
	KVBLK_INTEGRITIES,
};

#define KVBLK_HDR_KEY		512	/* offset of the key */
#define KVBLK_HDR_CRCS		1024	/* offset of the chunk checksums */
#define KVBLK_HDR_UNITS_MAX	5	/* units of a header with all 1024 tags */

struct kvblk_d_record {
	__le64 magic;		/* RECORD or FILLER */
	__le16 version;
	__u8   header_units;	/* length of the header */
	__u8   integrity;
	__u8   chunk_shift;
	__u8   priority;
	__le16 tenant;
	__le64 incarnation;
	__le32 segment;		/* of this member */
	__le32 unit;		/* offset of this header in the segment */
	__le64 generation;
	__le64 seq;
	__le32 flags;		/* KVBLK_RECF_* */
	__le32 length;		/* payload bytes; in a filler: units covered, header included */
	__le64 layout_tag;
	__le64 caller_tag;
	__le64 id_hi;
	__le64 id_lo;
	__le64 parent;		/* id_lo of the parent, 0 for none */
	__le32 expiry;		/* low bits of the pool's clock, 0 for never */
	__le16 key_len;
	__le16 key_epoch;	/* encrypted: of the subkey */
	__le32 reserved;
	__le32 crc;		/* crc32c of the header, this field and mac zero; or SHORT_CRC */
	__le64 mac;		/* SipHash of the bytes before it; or SHORT_CRC */
	__le64 activation;	/* encrypted: of the subkey, the put's; else 0 */
	__u8   pad[384];	/* up to KVBLK_HDR_KEY */
} __packed;

#define KVBLK_RECF_DURABLE	0x01 /* written past volatile caches */
/* The crc covers only the bytes in use; the mac covers the place and the crc. */
#define KVBLK_RECF_SHORT_CRC	0x02
#define KVBLK_RECF_ALL		(KVBLK_RECF_DURABLE | KVBLK_RECF_SHORT_CRC)

struct kvblk_d_entry {
	__le64 id_hi;
	__le64 id_lo;
	__le64 seq;
	__le64 caller_tag;
	__le64 parent;
	__le32 unit;
	__le32 length;
	__le32 expiry;
	__le16 tenant;
	__u8   priority;
	__u8   flags;		/* KVBLK_ENTF_* */
	__le64 reserved;
} __packed;			/* 64 bytes */

#define KVBLK_ENTF_VALID	0x01 /* the entry lists a record */
#define KVBLK_ENTF_ENCRYPTED	0x04 /* VALID: of an encrypted record */
#define KVBLK_ENTF_HOLE		0x02 /* no record in @length units from @unit on */

#define KVBLK_SUMMARY_ENTRIES	63

struct kvblk_d_summary {	/* 4096 bytes */
	__le64 magic;
	__le64 incarnation;
	__le64 generation;
	__le32 segment;
	__le32 page;
	__le32 nr_records;	/* of the segment; final only in page 0 of a sealed one */
	__le32 sealed;		/* 1: segment is sealed */
	__le32 reserved;
	__le32 crc;		/* crc32c of the page, this field and mac zero */
	__le64 mac;		/* SipHash of the bytes before it */
	__u8   pad[8];
	struct kvblk_d_entry entries[KVBLK_SUMMARY_ENTRIES];
} __packed;

#endif
