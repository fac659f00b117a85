// SPDX-License-Identifier: GPL-2.0
/*
 * Damage that no checksum detects: change a field of a superblock, a page of the segment table, a
 * summary page, a header or a pod's change page, and seal it again with the pool's secret.
 *
 * The fields are listed below. An assertion sums their bytes, so that a new field in
 * format/format.h cannot be forgotten.
 */
#include <asm/byteorder.h>
#include <linux/build_bug.h>
#include <linux/stddef.h>
#include <linux/kvblk.h>
#include <linux/unaligned.h>

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "log/scan.h"
#include "hash_key.h"
#include "media.h"
#include "reseal.h"

/* First unit of a header. */
struct header {
	struct kvblk_d_record rec;
	u8 key[KVBLK_KEY_MAX];
	__le32 crcs[(KVBLK_UNIT - KVBLK_HDR_CRCS) / 4];
};

/**
 * struct field - field of a structure
 * @name: name in format/format.h
 * @at: offset
 * @size: bytes, of one element
 * @nr: elements of an array of structures, else 1
 * @of: fields of an element, or NULL
 * @nr_of: number of fields in @of
 */
struct field {
	const char *name;
	u32 at, size, nr;
	const struct field *of;
	u32 nr_of;
};

#define COUNT(array)		(sizeof(array) / sizeof((array)[0]))
#define BYTES(type, name)	sizeof(((struct type *)NULL)->name)

/* X(type, field); Y(type, field, element's fields) for arrays of structures */
#define TENANT(X, Y, t)							\
	X(t, id) X(t, flags) X(t, mode) X(t, key_epoch) X(t, min_seq)	\
	X(t, name) X(t, uid) X(t, gid) X(t, key_check)
#define LISTED(X, Y, t)							\
	X(t, uuid) X(t, name) X(t, incarnation)
#define SUPER(X, Y, t)							\
	X(t, magic) X(t, crc) X(t, version) X(t, state) X(t, compat)	\
	X(t, ro_compat) X(t, incompat) X(t, pool_flags) X(t, seq)	\
	X(t, epoch) X(t, incarnation) X(t, birth) X(t, pool_uuid)	\
	X(t, member_uuid) X(t, seed) X(t, pool_name) X(t, owner)	\
	X(t, size) X(t, data_start) X(t, segment_units)			\
	X(t, nr_segments) X(t, record_align) X(t, reserved0)		\
	X(t, activation) X(t, prev_epoch) X(t, prev_activation)		\
	X(t, time) X(t, wall) X(t, list_seq) X(t, nr_members)		\
	X(t, reserved1) Y(t, members, listed) X(t, index_slots)		\
	X(t, node) X(t, pod_uuid) X(t, pod_name) X(t, reuse_grace)	\
	X(t, held_grace) X(t, next_tenant) X(t, reserved)		\
	Y(t, tenants, tenant) X(t, places)
#define SEGMENT(X, Y, t)						\
	X(t, generation) X(t, state) X(t, class) X(t, flags)		\
	X(t, nr_records) X(t, opened) X(t, reserved)
#define TABLE(X, Y, t)							\
	X(t, magic) X(t, crc) X(t, seq) X(t, incarnation) X(t, page)	\
	X(t, time) Y(t, segments, segment)
#define RECORD(X, Y, t)							\
	X(t, rec.magic) X(t, rec.version) X(t, rec.header_units)	\
	X(t, rec.integrity) X(t, rec.chunk_shift) X(t, rec.priority)	\
	X(t, rec.tenant) X(t, rec.incarnation) X(t, rec.segment)	\
	X(t, rec.unit) X(t, rec.generation) X(t, rec.seq) X(t, rec.flags) \
	X(t, rec.length) X(t, rec.layout_tag) X(t, rec.caller_tag)	\
	X(t, rec.id_hi) X(t, rec.id_lo) X(t, rec.parent) X(t, rec.expiry) \
	X(t, rec.key_len) X(t, rec.key_epoch) X(t, rec.reserved)	\
	X(t, rec.crc) X(t, rec.mac) X(t, rec.activation) X(t, rec.pad) X(t, key) X(t, crcs)
#define ENTRY(X, Y, t)							\
	X(t, id_hi) X(t, id_lo) X(t, seq) X(t, caller_tag) X(t, parent)	\
	X(t, unit) X(t, length) X(t, expiry) X(t, tenant) X(t, priority) \
	X(t, flags) X(t, reserved)
#define SUMMARY(X, Y, t)						\
	X(t, magic) X(t, incarnation) X(t, generation) X(t, segment)	\
	X(t, page) X(t, nr_records) X(t, sealed) X(t, reserved) X(t, crc) \
	X(t, mac) X(t, pad) Y(t, entries, entry)
#define CHANGES(X, Y, t)						\
	X(t, magic) X(t, crc) X(t, incarnation) X(t, beat) X(t, nr)	\
	Y(t, pages, page)

#define PLAIN(type, name)						\
	{ #name, offsetof(struct type, name), BYTES(type, name), 1, NULL, 0 },
#define ARRAY(type, name, fields)					\
	{ #name, offsetof(struct type, name), BYTES(type, name[0]),	\
	  COUNT(((struct type *)NULL)->name), fields, COUNT(fields) },
#define PLUS(type, name)		+ BYTES(type, name)
#define PLUS_ALL(type, name, fields)	+ BYTES(type, name)
#define FIELDS(name, LIST, type)					\
	static const struct field name[] = { LIST(PLAIN, ARRAY, type) }; \
	static_assert(0 LIST(PLUS, PLUS_ALL, type) == sizeof(struct type))

FIELDS(tenant, TENANT, kvblk_d_tenant);
FIELDS(listed, LISTED, kvblk_d_member);
FIELDS(segment, SEGMENT, kvblk_d_segment);
FIELDS(entry, ENTRY, kvblk_d_entry);
FIELDS(super, SUPER, kvblk_d_super);
FIELDS(table, TABLE, kvblk_d_table);
FIELDS(summary, SUMMARY, kvblk_d_summary);
FIELDS(header, RECORD, header);
/* an element of a change page is a plain number */
static const struct field page[] = { { "number", 0, sizeof(__le32), 1, NULL, 0 } };
FIELDS(changes, CHANGES, kvblk_d_change_page);

enum kind {
	IN_SUPER,
	IN_TABLE,
	IN_SUMMARY,
	IN_HEADER,
	IN_CHANGES,
	KINDS,
};

static const struct {
	const char *name;
	const struct field *fields;
	u32 nr, size;
} kinds[KINDS] = {
	{ "super", super, COUNT(super), sizeof(struct kvblk_d_super) },
	{ "table", table, COUNT(table), sizeof(struct kvblk_d_table) },
	{ "summary", summary, COUNT(summary), sizeof(struct kvblk_d_summary) },
	{ "header", header, COUNT(header), sizeof(struct header) },
	{ "change page", changes, COUNT(changes), sizeof(struct kvblk_d_change_page) },
};

/* Place of a valid structure; each list has the newest one first. */
struct structure {
	size_t at;
	struct kvblk_place place;	/* summaries (unit: page number) and headers only */
};

struct media {
	const u8 *image;
	size_t bytes;
	struct kvblk_d_super sb;
	struct kvblk_secret secret;
	struct structure *list[KINDS];
	u32 nr[KINDS];
};

static void __attribute__((noreturn)) die(const char *what)
{
	printf("media: %s\n", what);
	exit(1);
}

static void add(struct media *media, enum kind kind, size_t at,
		const struct kvblk_place *place)
{
	struct structure *list;

	list = realloc(media->list[kind], (media->nr[kind] + 1) * sizeof(*list));
	if (!list)
		die("no memory");
	media->list[kind] = list;
	list[media->nr[kind]++] = (struct structure) { at, *place };
}

static const struct kvblk_d_super *newest(const u8 *image, size_t bytes)
{
	const struct kvblk_d_super *found = NULL, *sb;
	int i;

	for (i = 0; i < 2; i++) {
		sb = (const void *)(image + KVBLK_SB_OFFSET(i));
		if (!kvblk_super_check(sb, bytes) &&
		    (!found || le64_to_cpu(sb->seq) > le64_to_cpu(found->seq)))
			found = sb;
	}
	return found;
}

static size_t segment_at(const struct media *media, u32 nr, u32 unit)
{
	return le64_to_cpu(media->sb.data_start) +
	       (((u64)nr * le32_to_cpu(media->sb.segment_units) + unit) <<
		KVBLK_UNIT_SHIFT);
}

static size_t changes_at(const struct media *media)
{
	return le64_to_cpu(media->sb.data_start) - KVBLK_UNIT;
}

/* Record the structure that the unit at @at of a used segment contains. */
static void scan_unit(struct media *media, const struct kvblk_d_segment *segments,
		      size_t at)
{
	u32 units = le32_to_cpu(media->sb.segment_units);
	u64 nr = (at - le64_to_cpu(media->sb.data_start)) / KVBLK_UNIT;
	struct kvblk_place place = {
		.incarnation = le64_to_cpu(media->sb.incarnation),
		.segment = nr / units, .unit = nr % units,
	};
	struct kvblk_rec rec;
	struct kvblk_sum sum;

	if (at < le64_to_cpu(media->sb.data_start) ||
	    place.segment >= le32_to_cpu(media->sb.nr_segments) ||
	    segments[place.segment].state == KVBLK_SEG_FREE)
		return;
	place.generation = le64_to_cpu(segments[place.segment].generation);
	if (kvblk_summary_decode((const void *)(media->image + at),
				 units - 1 - place.unit, &place, &media->secret, &sum))
		add(media, IN_SUMMARY, at, &place);
	if (kvblk_record_decode(media->image + at, KVBLK_UNIT, &place,
				&media->secret, &rec) != KVBLK_DEC_NONE)
		add(media, IN_HEADER, at, &place);
}

struct media *media_scan(const void *image, size_t bytes, const size_t *pages,
			 size_t nr_pages)
{
	const struct kvblk_d_super *sb = newest(image, bytes);
	struct media *media = calloc(1, sizeof(*media));
	const struct kvblk_d_table *slots, *first;
	struct kvblk_place none = {};
	size_t i;

	if (!sb || !media)
		die("no member");
	media->image = image;
	media->bytes = bytes;
	media->sb = *sb;
	kvblk_secret_derive(&media->secret, sb->seed);
	add(media, IN_SUPER, (const u8 *)sb - media->image, &none);
	add(media, IN_SUPER, media->list[IN_SUPER][0].at ^ KVBLK_SB_BYTES, &none);
	slots = (const void *)(media->image + KVBLK_TABLE_OFFSET);
	first = slots;
	if (!kvblk_table_valid(slots, le64_to_cpu(sb->incarnation), 0) ||
	    le64_to_cpu(slots[1].seq) > le64_to_cpu(slots[0].seq))
		first = slots + 1;
	if (!kvblk_table_valid(first, le64_to_cpu(sb->incarnation), 0) ||
	    le32_to_cpu(sb->nr_segments) > KVBLK_TABLE_ENTRIES)
		die("no table of one page");
	add(media, IN_TABLE, (const u8 *)first - media->image, &none);
	add(media, IN_TABLE, (const u8 *)(first == slots ? slots + 1 : slots) -
	    media->image, &none);
	for (i = 0; i < nr_pages; i++)
		scan_unit(media, first->segments, pages[i]);
	/* a member in no pod has none */
	if (kvblk_change_page_valid((const void *)(media->image + changes_at(media)),
				    le64_to_cpu(sb->incarnation)))
		add(media, IN_CHANGES, changes_at(media), &none);
	return media;
}

void media_free(struct media *media)
{
	u32 i;

	for (i = 0; i < KINDS; i++)
		free(media->list[i]);
	free(media);
}

void media_keys(const struct media *media,
		void (*found)(const void *key, size_t len, void *arg), void *arg)
{
	const struct header *hdr;
	u32 i;

	for (i = 0; i < media->nr[IN_HEADER]; i++) {
		hdr = (const void *)(media->image + media->list[IN_HEADER][i].at);
		if (le64_to_cpu(hdr->rec.magic) == KVBLK_RECORD_MAGIC)
			found(hdr->key, le16_to_cpu(hdr->rec.key_len), arg);
	}
}

/* ---- what a restart finds ---- */

struct media_records {
	struct kvblk_scan scan;
	const struct media *base;
	void (*read)(void *arg, uint64_t at, void *buf, size_t bytes);
	void *arg;
	u64 bytes;			/* of the member */
	struct kvblk_d_table table;
	bool known;			/* @table is valid */
	u32 segment;			/* being scanned */
	u32 end;			/* of the last record */
	u32 entries;			/* of the summary that the segment lacks */
	struct kvblk_id *ids;		/* as the records' headers have them */
	u32 nr;
};

static int records_read(const struct kvblk_reader *reader, u64 pos, void *buf, size_t len)
{
	struct media_records *records = reader->device;

	if (pos > records->bytes || len > records->bytes - pos)
		die("the scan reads outside of the member");
	records->read(records->arg, pos, buf, len);
	return 0;
}

static int records_read_units(const struct kvblk_reader *reader, u32 segment, const u32 *units,
			      u32 nr, void *buf)
{
	u32 i;

	for (i = 0; i < nr; i++)
		records_read(reader, kvblk_reader_pos(reader, segment, units[i]),
			     (u8 *)buf + i * KVBLK_UNIT, KVBLK_UNIT);
	return 0;
}

static void records_bad(const struct kvblk_reader *reader, u32 segment)
{
	die("a read failed");
}

static const struct kvblk_reader_ops records_reader = {
	.read = records_read,
	.read_units = records_read_units,
	.bad = records_bad,
};

static bool records_page_known(struct kvblk_scan *scan, u32 page)
{
	return false;
}

static void records_page(struct kvblk_scan *scan, u32 page, const struct kvblk_d_table *table,
			 bool alone, bool differs)
{
	struct media_records *records = scan->reader.device;

	if (!page)
		records->table = *table;
	records->known |= !page;
}

static int records_no_summary(struct kvblk_scan *scan, const struct kvblk_scan_segment *seg)
{
	return 0;
}

static void records_ahead(struct kvblk_scan *scan, const struct kvblk_d_summary *sum, u32 i)
{
}

static int records_record(struct kvblk_scan *scan, const struct kvblk_rec *rec, u32 unit)
{
	struct media_records *records = scan->reader.device;
	struct kvblk_d_record hdr;

	if (unit < records->end)
		die("records overlap");
	records_read(&scan->reader, kvblk_reader_pos(&scan->reader, records->segment, unit),
		     &hdr, sizeof(hdr));
	records->end = unit + kvblk_rec_units(rec, scan->reader.align_units);
	if (records->end >= scan->reader.segment_units)
		die("a record is where the summary belongs");
	if (!(records->nr & (records->nr + 1))) {
		records->ids = realloc(records->ids,
				       2 * (records->nr + 1) * sizeof(*records->ids));
		if (!records->ids)
			die("no memory");
	}
	/* not of @rec: the index compares only some bits of a summary's ids, then headers decide */
	records->ids[records->nr++] = (struct kvblk_id) {
		.hi = le64_to_cpu(hdr.id_hi), .lo = le64_to_cpu(hdr.id_lo),
	};
	return 0;
}

static void records_entry(struct kvblk_scan *scan, u32 index, const struct kvblk_d_entry *entry)
{
	struct media_records *records = scan->reader.device;

	if (index != records->entries++ ||
	    kvblk_summary_pages(index + 1) > scan->reader.segment_units - records->end)
		die("the summary has no space for an entry");
}

static const struct kvblk_scan_ops records_ops = {
	.page_known = records_page_known,
	.page = records_page,
	.no_summary = records_no_summary,
	.ahead = records_ahead,
	.record = records_record,
	.entry = records_entry,
};

static void records_segment(struct media_records *records, u32 nr)
{
	const struct kvblk_d_segment *seg = &records->table.segments[nr];
	const u16 flags = le16_to_cpu(seg->flags);
	struct kvblk_scan_segment found = {
		.place.incarnation = records->scan.reader.incarnation,
		.place.generation = le64_to_cpu(seg->generation),
		.place.segment = nr,
		.flags = &flags,
		.sealed = seg->state == KVBLK_SEG_SEALED,
	};

	if (seg->state == KVBLK_SEG_FREE)
		return;
	records->segment = nr;
	records->end = 0;
	records->entries = 0;
	if (kvblk_scan_segment(&records->scan, &found))
		die("a segment can't be scanned");
	if (!found.whole && found.nr != records->entries)
		die("the scan has lost count of records");
}

/* Scan the member as a copy of the superblock describes it. */
static void records_scan(struct media_records *records, const struct kvblk_d_super *sb)
{
	u32 nr = le32_to_cpu(sb->nr_segments), i;

	records->scan.ops = &records_ops;
	records->scan.reader = (struct kvblk_reader) {
		.ops = &records_reader,
		.device = records,
		.secret = &records->base->secret,
		.incarnation = le64_to_cpu(sb->incarnation),
		.data_start = le64_to_cpu(sb->data_start),
		.segment_units = le32_to_cpu(sb->segment_units),
		.nr_segs = nr,
		.align_units = le32_to_cpu(sb->record_align) >> KVBLK_UNIT_SHIFT,
	};
	records->known = false;
	if (kvblk_scan_begin(&records->scan))
		die("no memory");
	if (!kvblk_scan_table(&records->scan) && records->known)
		for (i = 0; i < nr && i < KVBLK_TABLE_ENTRIES; i++)
			records_segment(records, i);
	kvblk_scan_end(&records->scan);
}

struct media_records *media_records(const struct media *base,
				    void (*read)(void *arg, uint64_t at, void *buf, size_t bytes),
				    void *arg)
{
	struct media_records *records = calloc(1, sizeof(*records));
	struct kvblk_d_super *sb = malloc(2 * sizeof(*sb));
	const size_t size = offsetofend(struct kvblk_d_super, record_align) -
			    offsetof(struct kvblk_d_super, size);
	bool scanned = false;
	int i;

	if (!records || !sb)
		die("no memory");
	records->base = base;
	records->read = read;
	records->arg = arg;
	records->bytes = base->bytes;
	/* both copies, because the module may reject the newer one */
	for (i = 0; i < 2; i++) {
		read(arg, KVBLK_SB_OFFSET(i), &sb[i], sizeof(*sb));
		if (kvblk_super_check(&sb[i], base->bytes) ||
		    (scanned && sb[0].incarnation == sb[1].incarnation &&
		     !memcmp(&sb[0].size, &sb[1].size, size)))
			continue;
		records_scan(records, &sb[i]);
		scanned = true;
	}
	free(sb);
	return records;
}

bool media_has(const struct media_records *records, const void *key, size_t len)
{
	struct kvblk_id id = kvblk_hash_key(&records->base->secret, 0, key, len);
	u32 i;

	for (i = 0; i < records->nr; i++)
		if (records->ids[i].hi == id.hi && records->ids[i].lo == id.lo)
			return true;
	return false;
}

void media_records_free(struct media_records *records)
{
	free(records->ids);
	free(records);
}

bool media_life(const void *image, size_t bytes, uint64_t *epoch,
		uint64_t *incarnation)
{
	const struct kvblk_d_super *sb = newest(image, bytes);

	if (!sb)
		return false;
	*epoch = le64_to_cpu(sb->epoch);
	*incarnation = le64_to_cpu(sb->incarnation);
	return true;
}

static u64 dice;

/* splitmix64 */
static u64 draw(void)
{
	u64 x = dice += 0x9e3779b97f4a7c15;

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
	x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
	return x ^ (x >> 31);
}

static u32 below(u32 limit)
{
	return draw() % limit;
}

/* Return a value that the code compares fields with, or a neighbour of it. */
static u64 limit(const struct media *media)
{
	const u64 limits[] = {
		le32_to_cpu(media->sb.segment_units),
		le32_to_cpu(media->sb.nr_segments), le64_to_cpu(media->sb.size),
		le64_to_cpu(media->sb.data_start), KVBLK_SEGMENT_RECORDS_MAX,
		KVBLK_SEGMENT_UNITS_MIN, KVBLK_SEGMENT_UNITS_MAX,
		KVBLK_SUMMARY_ENTRIES, KVBLK_TABLE_ENTRIES, KVBLK_VALUE_MAX,
		KVBLK_KEY_MAX, KVBLK_TENANT_IDS, KVBLK_PRIORITY_MAX,
		KVBLK_COUNT_MAX, KVBLK_COUNT_FOUND_MAX, KVBLK_EPOCH_MAX,
		KVBLK_EPOCH_UP_MAX, KVBLK_RECORD_ALIGN_MAX, 2, 1 << 9, 1 << 16, 1 << 24,
		1ULL << 31, 1ULL << 32, 1ULL << 40, 1ULL << 63,
	};

	return limits[below(COUNT(limits))] + below(3) - 1;
}

/* A field to change, and the structure around it. */
struct spot {
	const struct media *media;
	u8 *base;			/* structure */
	u32 size;			/* bytes of the structure */
	u8 *at;				/* field */
	u32 bytes;			/* bytes of the field */
};

static void swap_bytes(u8 *a, u8 *b, u32 n)
{
	u8 byte;

	for (; n--; a++, b++) {
		byte = *a;
		*a = *b;
		*b = byte;
	}
}

static void add_to(u8 *at, u32 bytes, int by)
{
	u32 i;

	/* little endian, with carry */
	for (i = 0; i < bytes; i++) {
		at[i] += by;
		if (at[i] != (by > 0 ? 0 : 255))
			break;
	}
}

static const char *change_bytes(const struct spot *s)
{
	u64 value;
	u32 i, n;

	switch (below(9)) {
	case 0:
		s->at[below(s->bytes)] ^= 1 << below(8);
		return "a bit flipped";
	case 1:
		memset(s->at, 0, s->bytes);
		return "zero";
	case 2:
		memset(s->at, 0xff, s->bytes);
		return "all ones";
	case 3:
		add_to(s->at, s->bytes, 1);
		return "one more";
	case 4:
		add_to(s->at, s->bytes, -1);
		return "one less";
	case 5:
		/* the next bytes, or the previous ones for the last field */
		n = s->bytes;
		if (s->at + 2 * n <= s->base + s->size)
			swap_bytes(s->at, s->at + n, n);
		else if (s->at - n >= s->base)
			swap_bytes(s->at, s->at - n, n);
		return "swapped with its neighbour";
	case 6:
		for (i = 0; i < s->bytes; i++)
			s->at[i] = draw();
		return "random";
	default:
		value = cpu_to_le64(limit(s->media));
		memcpy(s->at, &value, s->bytes < 8 ? s->bytes : 8);
		return "a limit";
	}
}

static u32 text_add(char *text, size_t len, u32 at, const char *format, ...)
{
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(text + at, len - at, format, args);
	va_end(args);
	return at + n < len ? at + n : len - 1;
}

static u32 text_bytes(char *text, size_t len, u32 at, const struct spot *s)
{
	u32 i, nr = s->bytes < 8 ? s->bytes : 8;

	at = text_add(text, len, at, " ");
	for (i = 0; i < nr; i++)
		at = text_add(text, len, at, "%02x", s->at[i]);
	return at;
}

/* Choose a field at random. An array counts as one element; its first elements are preferred. */
static u32 choose(struct spot *s, const struct field *fields, u32 nr, char *text,
		  size_t len, u32 at)
{
	const struct field *field;
	u32 leaves = 0, i, n;

	for (i = 0; i < nr; i++)
		leaves += fields[i].of ? fields[i].nr_of : 1;
	n = below(leaves);
	for (field = fields; n >= (field->of ? field->nr_of : 1); field++)
		n -= field->of ? field->nr_of : 1;
	i = below(4) ? below(field->nr < 8 ? field->nr : 8) : below(field->nr);
	s->at += field->at + i * field->size;
	s->bytes = field->size;
	at = text_add(text, len, at, ".%s", field->name);
	if (!field->of)
		return at;
	at = text_add(text, len, at, "[%u]", i);
	s->base = s->at;
	s->size = s->bytes;
	/* now and then the rest of the array */
	if (!below(16)) {
		s->size *= field->nr - i;
		return at;
	}
	return choose(s, field->of, field->nr_of, text, len, at);
}

static void reseal(const struct media *media, u8 *buf, enum kind kind)
{
	switch (kind) {
	case IN_SUPER:
		kvblk_super_seal((void *)buf);
		break;
	case IN_TABLE:
		kvblk_table_seal((void *)buf);
		break;
	case IN_SUMMARY:
		reseal_summary((void *)buf, &media->secret);
		break;
	case IN_CHANGES:
		kvblk_change_page_seal((void *)buf);
		break;
	default:
		reseal_header((void *)buf, KVBLK_UNIT, &media->secret);
	}
}

/*
 * Replace a structure by its older version, half of the time with a newer seq. Returns false if
 * both are equal.
 */
static bool stale(const struct media *media, const u8 *older, u8 *buf, size_t at,
		  enum kind kind)
{
	const struct kvblk_d_super *sb = newest(older, media->bytes);
	struct kvblk_d_table *page = (void *)buf;

	if (!memcmp(buf, older + at, kinds[kind].size))
		return false;
	if (kind == IN_SUPER)
		memcpy(buf, sb, sizeof(*sb));
	else
		memcpy(buf, older + at, kinds[kind].size);
	if (below(2)) {
		if (kind == IN_SUPER)
			((struct kvblk_d_super *)buf)->seq =
				cpu_to_le64(le64_to_cpu(media->sb.seq) + 1);
		if (kind == IN_TABLE)
			page->seq = cpu_to_le64(le64_to_cpu(page->seq) + 100);
	}
	return true;
}

/* Damage one structure of @kind. Returns the end of the text. */
static u32 damage(const struct media *media, const u8 *older, u8 *live, enum kind kind,
		  struct media_change *change, u32 at)
{
	const size_t len = sizeof(change->text);
	const struct structure *structure;
	struct spot spot = { .media = media };
	size_t end = change->at + change->bytes;
	bool sealed = below(16);
	u8 *buf;
	u32 n;

	n = below(media->nr[kind]);
	/* mostly the newer of the two copies, because the older one is not used */
	if (kind <= IN_TABLE && below(4))
		n = 0;
	structure = &media->list[kind][n];
	buf = live + structure->at;
	if (!change->bytes || structure->at < change->at)
		change->at = structure->at;
	if (structure->at + kinds[kind].size > end)
		end = structure->at + kinds[kind].size;
	change->bytes = end - change->at;
	change->record |= kind == IN_HEADER;

	at = text_add(change->text, len, at, "%s%s %u", at ? "; " : "", kinds[kind].name, n);
	if (kind == IN_SUMMARY || kind == IN_HEADER)
		at = text_add(change->text, len, at, " of segment %u",
			      structure->place.segment);
	if (!below(12) && stale(media, older, buf, structure->at, kind)) {
		at = text_add(change->text, len, at, " as it was in the past");
	} else {
		spot.base = buf;
		spot.size = kinds[kind].size;
		spot.at = buf;
		at = choose(&spot, kinds[kind].fields, kinds[kind].nr, change->text,
			    len, at);
		at = text_bytes(change->text, len, at, &spot);
		at = text_add(change->text, len, at, ": %s", change_bytes(&spot));
		at = text_bytes(change->text, len, at, &spot);
	}
	if (sealed)
		reseal(media, buf, kind);
	else
		at = text_add(change->text, len, at, ", not sealed");
	return at;
}

void media_damage(const struct media *media, const void *older, void *live,
		  uint64_t seed, struct media_change *change)
{
	/* a superblock is damaged alone, because without it nothing else is read */
	static const u32 several[] = { 1, 1, 4, 8 };
	u32 nr, i, at = 0;
	enum kind kind;

	dice = seed * 0x9e3779b97f4a7c15;
	nr = several[below(COUNT(several))];
	*change = (struct media_change) {};
	for (i = 0; i < nr; i++) {
		do
			kind = nr == 1 && below(2) ? IN_SUPER : IN_TABLE + below(KINDS - IN_TABLE);
		while (!media->nr[kind]);
		at = damage(media, older, live, kind, change, at);
	}
}

bool media_flood(const struct media *media, void *live, struct media_change *change)
{
	u32 units = le32_to_cpu(media->sb.segment_units), page, i;
	u32 pages = (units + KVBLK_SUMMARY_ENTRIES) / (KVBLK_SUMMARY_ENTRIES + 1);
	const struct kvblk_d_table *table;
	struct kvblk_place place;
	struct kvblk_sum sum = {};
	struct kvblk_rec rec;

	table = (const void *)(media->image + media->list[IN_TABLE][0].at);
	for (i = 0; i < media->nr[IN_HEADER]; i++) {
		place = media->list[IN_HEADER][i].place;
		if (table->segments[place.segment].state == KVBLK_SEG_OPEN &&
		    kvblk_record_decode(media->image + media->list[IN_HEADER][i].at,
					KVBLK_UNIT, &place, &media->secret,
					&rec) == KVBLK_DEC_RECORD)
			break;
	}
	if (i == media->nr[IN_HEADER])
		return false;
	*change = (struct media_change) {
		.at = segment_at(media, place.segment, 0),
		.bytes = (size_t)units << KVBLK_UNIT_SHIFT,
		.record = true,
	};
	snprintf(change->text, sizeof(change->text), "segment %u: a flood of holes",
		 place.segment);
	place.unit = 2;
	kvblk_record_encode((u8 *)live + segment_at(media, place.segment, 2), &rec,
			    &place, &media->secret,
			    le32_to_cpu(media->sb.incompat) & KVBLK_SB_IN_SHORT_CRC);
	for (page = 0; page < pages; page++) {
		struct kvblk_d_summary *buf = (void *)((u8 *)live +
			segment_at(media, place.segment, units - 1 - page));

		memset(buf->entries, 0, sizeof(buf->entries));
		for (i = 0; i < KVBLK_SUMMARY_ENTRIES; i++) {
			buf->entries[i].length = cpu_to_le32(2);
			buf->entries[i].flags = KVBLK_ENTF_HOLE;
		}
		sum.nr_records = (page + 1) * KVBLK_SUMMARY_ENTRIES;
		kvblk_summary_encode(buf, page, &sum, &place, &media->secret);
	}
	return true;
}

static struct kvblk_d_table *first_page(u8 *head, const struct kvblk_d_super *sb)
{
	struct kvblk_d_table *slots = (void *)(head + KVBLK_TABLE_OFFSET), *found = NULL;
	int i;

	for (i = 0; i < 2; i++)
		if (kvblk_table_valid(&slots[i], le64_to_cpu(sb->incarnation), 0) &&
		    (!found || le64_to_cpu(slots[i].seq) > le64_to_cpu(found->seq)))
			found = &slots[i];
	return found;
}

static u8 *field_of(void *base, const struct field *fields, u32 nr, const char *name, u32 *size)
{
	for (; nr--; fields++)
		if (!strcmp(fields->name, name)) {
			*size = fields->size;
			return (u8 *)base + fields->at;
		}
	return NULL;
}

/* Return the field called @name, of @sb or of @page; "segment." is the first used segment. */
static u8 *field_at(struct kvblk_d_super *sb, struct kvblk_d_table *page, const char *name,
		    u32 *size)
{
	struct kvblk_d_segment *seg = page->segments;

	if (!strncmp(name, "table.", 6))
		return field_of(page, table, COUNT(table), name + 6, size);
	if (strncmp(name, "segment.", 8))
		return field_of(sb, super, COUNT(super), name, size);
	while (seg < page->segments + KVBLK_TABLE_ENTRIES - 1 && seg->state == KVBLK_SEG_FREE)
		seg++;
	return field_of(seg, segment, COUNT(segment), name + 8, size);
}

bool media_field(void *head, uint64_t bytes, const char *name, bool set, uint64_t *value)
{
	struct kvblk_d_super *sb = (void *)newest(head, bytes);
	struct kvblk_d_table *page = sb ? first_page(head, sb) : NULL;
	__le64 raw = cpu_to_le64(*value);
	u32 size;
	u8 *at;

	at = page ? field_at(sb, page, name, &size) : NULL;
	if (!at)
		return false;
	if (set) {
		memset(at, 0, size);
		memcpy(at, &raw, size < 8 ? size : 8);
	}
	raw = 0;
	memcpy(&raw, at, size < 8 ? size : 8);
	*value = le64_to_cpu(raw);
	kvblk_super_seal(sb);
	kvblk_table_seal(page);
	return true;
}

bool media_modest(const void *image, uint64_t bytes)
{
	const struct kvblk_d_super *sb = newest(image, bytes);
	const struct kvblk_d_table *page = sb ? first_page((u8 *)image, sb) : NULL;
	const u64 most = 1u << 31;
	u32 i;

	if (!page || le64_to_cpu(sb->seq) > most || le64_to_cpu(sb->list_seq) > most ||
	    le64_to_cpu(page->seq) > most)
		return false;
	for (i = 0; i < KVBLK_TABLE_ENTRIES; i++)
		if (le64_to_cpu(page->segments[i].generation) > most ||
		    le64_to_cpu(page->segments[i].opened) > most)
			return false;
	return true;
}

void media_newer(void *super, bool feature)
{
	struct kvblk_d_super *sb = super;

	if (feature)
		sb->incompat = cpu_to_le32(1u << 31);
	else
		sb->version = cpu_to_le16(KVBLK_FORMAT_VERSION + 1);
	kvblk_super_seal(sb);
}

void media_claim(void *super, uint64_t bytes)
{
	struct kvblk_d_super *sb = super;
	u64 segment = (u64)KVBLK_SEGMENT_UNITS_MIN << KVBLK_UNIT_SHIFT;
	u64 nr = bytes / segment * 1000 / 1001;
	u64 table_bytes = (nr / KVBLK_TABLE_ENTRIES + 1) * 2 * KVBLK_UNIT;

	sb->segment_units = cpu_to_le32(KVBLK_SEGMENT_UNITS_MIN);
	sb->nr_segments = cpu_to_le32(nr);
	sb->data_start = cpu_to_le64((KVBLK_TABLE_OFFSET + table_bytes +
				      KVBLK_DATA_ALIGN) & ~(u64)(KVBLK_DATA_ALIGN - 1));
	sb->size = cpu_to_le64(bytes);
	kvblk_super_seal(sb);
	if (kvblk_super_check(sb, bytes))
		die("the claim is not a valid one");
}
