// SPDX-License-Identifier: GPL-2.0
/*
 * The module's scan on an image in memory: a segment with a whole summary, one whose summary is
 * behind its records, as after a crash, and one with invalidated records. Then places that cannot
 * be read, and damage that passes every checksum.
 */
#include <linux/errno.h>
#include <linux/kvblk.h>
#include <asm/byteorder.h>

#include "entry.h"
#include "hash_key.h"
#include "kvblk_test.h"

#include "log/scan.h"
#include "media.h"

#define UNITS		KVBLK_SEGMENT_UNITS_MIN
#define SEGMENTS	4u
#define DATA_START	(1u << 20)
#define BYTES		(DATA_START + ((size_t)SEGMENTS * UNITS << KVBLK_UNIT_SHIFT))
#define WHOLE		0u	/* segments */
#define OPEN		1u
#define KILLED		2u
#define UNUSED		3u
#define RECORDS		130u	/* of a segment: three pages of a summary */
#define LISTED		70u	/* in the summary of OPEN */
#define EACH		3u	/* units of a record */
#define LENGTH		5000u
#define GENERATION	7u
#define INCARNATION	0x1122334455667788ull
#define ACTIVATION	0x8877665544332211ull

static u8 *image;
static struct kvblk_secret secret;

/* Units that cannot be read, by their number on the device. */
static u32 bad[65], nr_bad, nr_counted;

static struct visit {
	struct kvblk_scan scan;
	u32 nr, entries, pages;
	bool no_summary, alone, differs;
	u32 units[RECORDS];
	u64 seq[RECORDS];
} visit;

static struct kvblk_place place_of(u32 segment, u32 unit)
{
	return (struct kvblk_place) {
		.incarnation = INCARNATION, .generation = GENERATION,
		.segment = segment, .unit = unit,
	};
}

static u64 pos_of(u32 segment, u32 unit)
{
	return kvblk_unit_pos(DATA_START, UNITS, segment, unit);
}

static struct kvblk_rec rec_of(u32 segment, u32 nr)
{
	static char key[32];
	struct kvblk_rec rec = {
		.seq = 1000 * segment + nr + 1, .length = LENGTH, .key = key,
		/* records of encrypted tenants and of others share segments */
		.integrity = nr % 3 ? KVBLK_INTEGRITY_NONE : KVBLK_INTEGRITY_AES_GCM,
		.activation = nr % 3 ? 0 : ACTIVATION,
	};

	rec.key_len = snprintf(key, sizeof(key), "block %u of segment %u", nr, segment);
	rec.id = kvblk_hash_key(&secret, 0, key, rec.key_len);
	return rec;
}

static void put_summary(u32 segment, u32 page, u32 listed, bool sealed)
{
	struct kvblk_d_summary *buf = (void *)(image + pos_of(segment, UNITS - 1 - page));
	struct kvblk_sum sum = { .nr_records = listed, .sealed = sealed };
	struct kvblk_place place = place_of(segment, 0);

	for (u32 i = 0; i < KVBLK_SUMMARY_ENTRIES; i++) {
		u32 nr = page * KVBLK_SUMMARY_ENTRIES + i;
		struct kvblk_rec rec = rec_of(segment, nr);

		if (nr < listed)
			kvblk_entry_encode(&buf->entries[i], &rec, nr * EACH);
	}
	kvblk_summary_encode(buf, page, &sum, &place, &secret);
}

static void put_segment(u32 segment, u32 listed, bool sealed)
{
	for (u32 nr = 0; nr < RECORDS; nr++) {
		struct kvblk_place place = place_of(segment, nr * EACH);
		struct kvblk_rec rec = rec_of(segment, nr);

		/* a pool may have records of both forms */
		kvblk_record_encode(image + pos_of(segment, nr * EACH), &rec, &place, &secret,
				    nr % 2);
	}
	for (u32 page = 0; page < kvblk_summary_pages(listed); page++)
		put_summary(segment, page, listed, sealed);
}

static void put_filler(u32 segment, u32 nr)
{
	struct kvblk_place place = place_of(segment, nr * EACH);

	kvblk_filler_encode(image + pos_of(segment, nr * EACH), EACH, &place, &secret);
}

static void put_table(u32 slot, u64 seq)
{
	struct kvblk_d_table *table = (void *)(image + KVBLK_TABLE_OFFSET + slot * KVBLK_UNIT);

	memset(table, 0, sizeof(*table));
	table->magic = cpu_to_le32(KVBLK_TABLE_MAGIC);
	table->seq = cpu_to_le64(seq);
	table->incarnation = cpu_to_le64(INCARNATION);
	for (u32 i = 0; i < SEGMENTS; i++) {
		table->segments[i].generation = cpu_to_le64(GENERATION);
		table->segments[i].opened = cpu_to_le64(i + 1);
	}
	table->segments[WHOLE].state = KVBLK_SEG_SEALED;
	table->segments[OPEN].state = KVBLK_SEG_OPEN;
	table->segments[KILLED].state = KVBLK_SEG_SEALED;
	table->segments[KILLED].flags = cpu_to_le16(KVBLK_SEGF_KILLS);
	kvblk_table_seal(table);
}

static void put_super(u32 slot)
{
	struct kvblk_d_super *sb = (void *)(image + KVBLK_SB_OFFSET(slot));

	memset(sb, 0, sizeof(*sb));
	sb->magic = cpu_to_le64(KVBLK_SB_MAGIC);
	sb->version = cpu_to_le16(KVBLK_FORMAT_VERSION);
	sb->state = cpu_to_le16(KVBLK_SB_ACTIVE);
	sb->seq = cpu_to_le64(6 + slot);
	sb->epoch = cpu_to_le64(3);
	sb->incarnation = cpu_to_le64(INCARNATION);
	sb->birth = cpu_to_le64(1700000000);
	memset(sb->pool_uuid, 0xaa, 16);
	memset(sb->member_uuid, 0xbb, 16);
	for (int i = 0; i < 32; i++)
		sb->seed[i] = i;
	memcpy(sb->pool_name, "pool", 4);
	memcpy(sb->owner, "node", 4);
	sb->size = cpu_to_le64(BYTES);
	sb->data_start = cpu_to_le64(DATA_START);
	sb->segment_units = cpu_to_le32(UNITS);
	sb->nr_segments = cpu_to_le32(SEGMENTS);
	sb->record_align = cpu_to_le32(KVBLK_UNIT);
	sb->activation = cpu_to_le64(0x1234);
	sb->nr_members = cpu_to_le32(1);
	memset(sb->members[0].uuid, 0xbb, 16);
	memcpy(sb->members[0].name, "nvme0n1", 7);
	sb->members[0].incarnation = sb->incarnation;
	sb->tenants[0].flags = cpu_to_le16(KVBLK_TENANTF_USED);
	memcpy(sb->tenants[0].name, "default", 7);
	kvblk_super_seal(sb);
	kvblk_secret_derive(&secret, sb->seed);
}

static int image_make(void **state)
{
	free(image);
	image = calloc(1, BYTES);
	if (!image)
		return -1;
	nr_bad = 0;
	put_super(0);
	put_super(1);
	put_table(0, 1);
	put_table(1, 1);
	put_segment(WHOLE, RECORDS, true);
	put_segment(OPEN, LISTED, false);
	put_segment(KILLED, RECORDS, true);
	put_filler(KILLED, 5);
	put_filler(KILLED, 129);
	return 0;
}

static int read_at(const struct kvblk_reader *reader, u64 pos, void *buf, size_t len)
{
	assert_true(pos <= BYTES && len <= BYTES - pos);
	for (u32 i = 0; i < nr_bad; i++)
		if (bad[i] >= pos >> KVBLK_UNIT_SHIFT &&
		    bad[i] < (pos + len) >> KVBLK_UNIT_SHIFT)
			return -EIO;
	memcpy(buf, image + pos, len);
	return 0;
}

static int read_units(const struct kvblk_reader *reader, u32 segment, const u32 *units, u32 nr,
		      void *buf)
{
	int err = 0;

	for (u32 i = 0; i < nr && !err; i++)
		err = read_at(reader, kvblk_reader_pos(reader, segment, units[i]),
			      buf + i * KVBLK_UNIT, KVBLK_UNIT);
	return err;
}

static void count_bad(const struct kvblk_reader *reader, u32 segment)
{
	nr_counted++;
}

static const struct kvblk_reader_ops reader_ops = {
	.read = read_at,
	.read_units = read_units,
	.bad = count_bad,
};

static bool visit_page_known(struct kvblk_scan *scan, u32 page)
{
	return false;
}

static void visit_page(struct kvblk_scan *scan, u32 page, const struct kvblk_d_table *table,
		       bool alone, bool differs)
{
	assert_int_equal(le64_to_cpu(table->segments[0].generation), GENERATION);
	visit.pages++;
	visit.alone = alone;
	visit.differs = differs;
}

static int visit_no_summary(struct kvblk_scan *scan, const struct kvblk_scan_segment *seg)
{
	visit.no_summary = true;
	return 0;
}

static void visit_ahead(struct kvblk_scan *scan, const struct kvblk_d_summary *sum, u32 i)
{
	assert_true(i < KVBLK_SUMMARY_ENTRIES);
}

static int visit_record(struct kvblk_scan *scan, const struct kvblk_rec *rec, u32 unit)
{
	assert_true(visit.nr < RECORDS);
	visit.units[visit.nr] = unit;
	visit.seq[visit.nr++] = rec->seq;
	return 0;
}

static void visit_entry(struct kvblk_scan *scan, u32 index, const struct kvblk_d_entry *entry)
{
	assert_int_equal(index, visit.entries++);
}

static const struct kvblk_scan_ops visit_ops = {
	.page_known = visit_page_known,
	.page = visit_page,
	.no_summary = visit_no_summary,
	.ahead = visit_ahead,
	.record = visit_record,
	.entry = visit_entry,
};

static void visit_begin(void)
{
	memset(&visit, 0, sizeof(visit));
	visit.scan.ops = &visit_ops;
	visit.scan.reader = (struct kvblk_reader) {
		.ops = &reader_ops, .secret = &secret, .incarnation = INCARNATION,
		.data_start = DATA_START, .segment_units = UNITS, .nr_segs = SEGMENTS,
		.align_units = 1,
	};
	nr_counted = 0;
	assert_int_equal(kvblk_scan_begin(&visit.scan), 0);
}

static struct kvblk_scan_segment scan_segment(u32 segment)
{
	static const u16 killed = KVBLK_SEGF_KILLS, none;
	struct kvblk_scan_segment found = {
		.place = place_of(segment, 0),
		.flags = segment == KILLED ? &killed : &none,
		.sealed = segment != OPEN,
	};

	visit_begin();
	assert_int_equal(kvblk_scan_segment(&visit.scan, &found), 0);
	kvblk_scan_end(&visit.scan);
	return found;
}

/* Check that all records of @segment were found, in order, but for the two of @lost. */
static void found_all_but(u32 segment, u32 lost, u32 lost2)
{
	u32 nr = 0;

	for (u32 i = 0; i < RECORDS; i++) {
		if (i == lost || i == lost2)
			continue;
		assert_int_equal(visit.units[nr], i * EACH);
		assert_int_equal(visit.seq[nr], 1000 * segment + i + 1);
		nr++;
	}
	assert_int_equal(visit.nr, nr);
}

TEST_WITH(a_summary_lists_all, image_make, NULL)
{
	struct kvblk_scan_segment found = scan_segment(WHOLE);

	assert_true(found.whole && found.sealed && !visit.no_summary);
	assert_int_equal(found.nr, RECORDS);
	found_all_but(WHOLE, -1, -1);
}

TEST_WITH(headers_follow_the_listed_records, image_make, NULL)
{
	struct kvblk_scan_segment found;

	/* a hole in front of a record, and a record replaced by a filler */
	memset(image + pos_of(OPEN, 80 * EACH), 0, KVBLK_UNIT);
	put_filler(OPEN, 90);
	found = scan_segment(OPEN);
	assert_true(!found.whole && !found.sealed && !found.missed && visit.no_summary);
	assert_int_equal(found.nr, RECORDS - 2);
	assert_int_equal(visit.entries, RECORDS - 2);
	found_all_but(OPEN, 80, 90);
}

TEST_WITH(invalidated_records_are_holes, image_make, NULL)
{
	struct kvblk_scan_segment found = scan_segment(KILLED);

	assert_true(found.whole);
	assert_int_equal(found.nr, RECORDS);
	found_all_but(KILLED, 5, 129);
}

TEST_WITH(an_unreadable_header_keeps_its_entry, image_make, NULL)
{
	bad[nr_bad++] = pos_of(KILLED, 5 * EACH) >> KVBLK_UNIT_SHIFT;
	scan_segment(KILLED);
	assert_int_equal(nr_counted, 1);
	found_all_but(KILLED, 129, -1);
}

/* A page of the summary cannot be read: the headers replace the summary. */
TEST_WITH(headers_replace_an_unreadable_summary, image_make, NULL)
{
	struct kvblk_scan_segment found;

	for (u32 page = 0; page < 3; page++) {
		nr_bad = 1;
		bad[0] = pos_of(WHOLE, UNITS - 1 - page) >> KVBLK_UNIT_SHIFT;
		found = scan_segment(WHOLE);
		assert_true(!found.whole && found.sealed && !found.missed);
		assert_int_equal(found.nr, RECORDS);
		found_all_but(WHOLE, -1, -1);
	}
	/* and a header behind the listed ones costs its record */
	bad[nr_bad++] = pos_of(WHOLE, 129 * EACH) >> KVBLK_UNIT_SHIFT;
	found = scan_segment(WHOLE);
	assert_true(found.missed);
	assert_int_equal(found.nr, RECORDS - 1);
	found_all_but(WHOLE, 129, -1);
}

TEST_WITH(unreadable_units_are_no_records, image_make, NULL)
{
	struct kvblk_scan_segment found;

	for (nr_bad = 0; nr_bad < 64; nr_bad++)
		bad[nr_bad] = (pos_of(UNUSED, 0) >> KVBLK_UNIT_SHIFT) + 10 + nr_bad;
	found = scan_segment(UNUSED);
	assert_true(found.missed && !found.nr);
	assert_int_equal(nr_counted, 64);

	/* a further one is too many: the scan must fail, to be tried again later */
	bad[nr_bad++] = pos_of(UNUSED, 1000) >> KVBLK_UNIT_SHIFT;
	visit_begin();
	found = (struct kvblk_scan_segment) { .place = place_of(UNUSED, 0) };
	assert_int_equal(kvblk_scan_segment(&visit.scan, &found), -EIO);
	kvblk_scan_end(&visit.scan);
}

TEST_WITH(the_newer_slot_of_the_table_counts, image_make, NULL)
{
	visit_begin();
	assert_int_equal(kvblk_scan_table(&visit.scan), 0);
	assert_true(visit.pages == 1 && !visit.alone && !visit.differs);

	put_table(1, 2);
	((struct kvblk_d_table *)(image + KVBLK_TABLE_OFFSET))->segments[0].generation = 99;
	assert_int_equal(kvblk_scan_table(&visit.scan), 0);
	assert_true(visit.pages == 2 && !visit.alone && visit.differs);

	bad[nr_bad++] = KVBLK_TABLE_OFFSET >> KVBLK_UNIT_SHIFT;
	assert_int_equal(kvblk_scan_table(&visit.scan), 0);
	assert_true(visit.pages == 3 && visit.alone && visit.differs && nr_counted == 1);

	bad[nr_bad++] = (KVBLK_TABLE_OFFSET >> KVBLK_UNIT_SHIFT) + 1;
	assert_int_equal(kvblk_scan_table(&visit.scan), -EIO);
	nr_bad = 0;
	memset(image + KVBLK_TABLE_OFFSET, 0, 2 * KVBLK_UNIT);
	assert_int_equal(kvblk_scan_table(&visit.scan), -EUCLEAN);
	assert_int_equal(visit.pages, 3);
	kvblk_scan_end(&visit.scan);
}

static void read_live(void *arg, uint64_t at, void *buf, size_t bytes)
{
	memcpy(buf, (u8 *)arg + at, bytes);
}

/* Whatever the media say, media_records() checks what the scan reports. */
TEST_WITH(damage_is_survived, image_make, NULL)
{
	size_t *pages = calloc(BYTES / KVBLK_UNIT, sizeof(*pages)), nr_pages = 0;
	u8 *live = malloc(BYTES), *older = malloc(BYTES);
	struct media_change change;
	struct media_records *records;
	struct kvblk_rec rec = rec_of(OPEN, 129);
	struct media *media;

	assert_true(pages && live && older);
	for (size_t at = 0; at < BYTES; at += KVBLK_UNIT)
		if (*(u64 *)(image + at) || at < MEDIA_HEAD)
			pages[nr_pages++] = at;
	media = media_scan(image, BYTES, pages, nr_pages);
	memcpy(live, image, BYTES);
	memcpy(older, image, BYTES);
	records = media_records(media, read_live, live);
	assert_true(media_has(records, rec.key, rec.key_len));
	assert_false(media_has(records, "another", 7));
	media_records_free(records);
	for (u64 seed = 0; seed < 500; seed++) {
		media_damage(media, older, live, seed, &change);
		media_records_free(media_records(media, read_live, live));
		memcpy(live + change.at, image + change.at, change.bytes);
	}
	assert_true(media_flood(media, live, &change));
	media_records_free(media_records(media, read_live, live));
	media_free(media);
	free(older);
	free(live);
	free(pages);
}

TEST_MAIN("scan")
