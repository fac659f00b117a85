// SPDX-License-Identifier: GPL-2.0
/*
 * Decoders against hostile media. Format of an input:
 *
 *	byte 0	structure to decode: enum target, modulo their number
 *	byte 1	origin of the damage: enum damage, modulo their number
 *	then	patches of 4 bytes each to a valid image: offset (le16), byte to
 *		xor, count of bytes from there on less 1;
 *		with RAW, the buffer itself
 *
 * The promises: no access outside of the buffer; no verdict "valid" unless every byte is
 * unchanged, except for padding that no checksum covers; if the damage is sealed with the pool's secret, no field out of range.
 *
 * With libFuzzer: clang -fsanitize=fuzzer,address,undefined, together with
 * kernel/format/record.c, kernel/format/hash.c and shim/shim.c. Without: fuzz_record_test.c.
 */
#include <linux/kvblk.h>
#include <linux/unaligned.h>
#include <asm/byteorder.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "entry.h"
#include "format/record.h"
#include "reseal.h"

enum target {
	RECORD,			/* header of 1 unit */
	LONG_RECORD,		/* header of 2 units */
	LONG_RECORD_HEAD,	/* header of 2 units, only the first one read */
	SHORT_CRC,		/* header of 1 unit with KVBLK_RECF_SHORT_CRC */
	LONG_SHORT_CRC,		/* header of 2 units with KVBLK_RECF_SHORT_CRC */
	ENCRYPTED,		/* header of 1 unit with tags */
	LONG_ENCRYPTED,		/* header of 2 units with tags */
	ENCRYPTED_SHORT_CRC,	/* header of 1 unit with tags and KVBLK_RECF_SHORT_CRC */
	FILLER,
	SUMMARY,
	TABLE,
	SUPER,
	TARGETS,
};

enum damage {
	PLAIN,			/* by the device: checksum wrong */
	CHECKSUMMED,		/* by a tenant: checksum right */
	SEALED,			/* checksum and MAC right */
	RAW,			/* unrelated bytes */
	DAMAGES,
};

#define DEV_BYTES	((1ULL << 40) + (16 << 20))
#define MUST(condition) do {						\
		if (!(condition)) {					\
			fprintf(stderr, "broken promise: %s\n", #condition); \
			abort();					\
		}							\
	} while (0)

static const struct kvblk_place place = {
	.incarnation = 0x0123456789abcdef, .generation = 42,
	.segment = 3, .unit = 1000,
};

static struct kvblk_secret secret;
static u8 *images[TARGETS];
static size_t image_sizes[TARGETS];

static u8 *image_new(enum target target, size_t size)
{
	image_sizes[target] = size;
	images[target] = calloc(1, size);
	MUST(images[target]);
	return images[target];
}

static void record_image(enum target target, u32 length, u8 integrity, bool short_crc)
{
	struct kvblk_rec rec = {
		.id = { 1, 2 }, .seq = 3, .layout_tag = 4, .caller_tag = 5,
		.parent = 6, .length = length, .expiry = 7, .tenant = 8,
		.key_len = 9, .priority = 1, .integrity = integrity, .activation = 10,
		.key = "ninebytes",
	};
	size_t size = kvblk_header_bytes(kvblk_rec_encrypted(&rec), length);

	kvblk_record_encode(image_new(target, size), &rec, &place, &secret, short_crc);
}

static void summary_image(void)
{
	struct kvblk_d_summary *page = (void *)image_new(SUMMARY, sizeof(*page));
	struct kvblk_sum sum = { .nr_records = 70, .sealed = true };

	for (u32 i = 0; i < KVBLK_SUMMARY_ENTRIES; i++) {
		struct kvblk_rec rec = {
			.id = { i, i }, .length = 4096 * (i + 1), .tenant = i,
		};

		kvblk_entry_encode(&page->entries[i], &rec, 70 * i);
	}
	kvblk_summary_encode(page, 0, &sum, &place, &secret);
}

static void table_image(void)
{
	struct kvblk_d_table *table = (void *)image_new(TABLE, sizeof(*table));

	table->magic = cpu_to_le32(KVBLK_TABLE_MAGIC);
	table->incarnation = cpu_to_le64(place.incarnation);
	for (int i = 0; i < KVBLK_TABLE_ENTRIES; i++) {
		table->segments[i].generation = cpu_to_le64(i);
		table->segments[i].state = i % 3;
	}
	kvblk_table_seal(table);
}

static void super_image(void)
{
	struct kvblk_d_super *sb = (void *)image_new(SUPER, sizeof(*sb));

	sb->magic = cpu_to_le64(KVBLK_SB_MAGIC);
	sb->version = cpu_to_le16(KVBLK_FORMAT_VERSION);
	sb->state = cpu_to_le16(KVBLK_SB_CLEAN);
	memcpy(sb->pool_name, "pool", 4);
	sb->size = cpu_to_le64(DEV_BYTES);
	sb->data_start = cpu_to_le64(16 << 20);
	sb->segment_units = cpu_to_le32(65536);
	sb->nr_segments = cpu_to_le32(4096);
	sb->record_align = cpu_to_le32(4096);
	sb->epoch = cpu_to_le64(3);
	sb->ro_compat = cpu_to_le32(KVBLK_SB_RO_POD);
	sb->node[0] = 1;
	sb->pod_uuid[0] = 1;
	memcpy(sb->pod_name, "pod", 3);
	sb->reuse_grace = cpu_to_le32(KVBLK_REUSE_GRACE_MIN);
	sb->nr_members = cpu_to_le32(2);
	for (int i = 0; i < 2; i++) {
		sb->members[i].uuid[0] = i + 1;
		sb->members[i].name[0] = 'a' + i;
	}
	sb->member_uuid[0] = 1;
	sb->incompat = cpu_to_le32(KVBLK_SB_IN_TENANTS);
	sb->next_tenant = cpu_to_le32(20);
	for (int i = 0; i < 20; i++) {
		sb->tenants[i].id = cpu_to_le16(i);
		sb->tenants[i].flags = cpu_to_le16(KVBLK_TENANTF_USED);
		sb->tenants[i].mode = cpu_to_le16(0660);
		sb->tenants[i].uid = cpu_to_le32(1000 + i);
		sb->tenants[i].gid = cpu_to_le32(2000 + i);
		sb->tenants[i].name[0] = 'a' + i;
	}
	memcpy(sb->tenants[0].name, "default", 8);
	kvblk_super_seal(sb);
	MUST(!kvblk_super_check(sb, DEV_BYTES));
}

static void images_make(void)
{
	static const u8 seed[32] = { 1, 2, 3 };

	kvblk_secret_derive(&secret, seed);
	record_image(RECORD, 300000, KVBLK_INTEGRITY_CRC32C, false);
	record_image(LONG_RECORD, 60 << 20, KVBLK_INTEGRITY_CRC32C, false);
	record_image(LONG_RECORD_HEAD, 60 << 20, KVBLK_INTEGRITY_CRC32C, false);
	record_image(SHORT_CRC, 300000, KVBLK_INTEGRITY_CRC32C, true);
	record_image(LONG_SHORT_CRC, 60 << 20, KVBLK_INTEGRITY_CRC32C, true);
	record_image(ENCRYPTED, 300000, KVBLK_INTEGRITY_AES_GCM, false);
	record_image(LONG_ENCRYPTED, 20 << 20, KVBLK_INTEGRITY_AES_GCM, false);
	record_image(ENCRYPTED_SHORT_CRC, 300000, KVBLK_INTEGRITY_AES_GCM, true);
	image_sizes[LONG_RECORD_HEAD] = KVBLK_UNIT;
	kvblk_filler_encode(image_new(FILLER, KVBLK_UNIT), 12, &place, &secret);
	summary_image();
	table_image();
	super_image();
}

/* Make the checksum right again; with SEALED also the MAC. */
static void repair(u8 *buf, size_t size, enum target target, enum damage damage)
{
	const struct kvblk_secret *known = damage == SEALED ? &secret : NULL;

	switch (target) {
	case TABLE:
		kvblk_table_seal((void *)buf);
		break;
	case SUPER:
		kvblk_super_seal((void *)buf);
		break;
	case SUMMARY:
		reseal_summary((void *)buf, known);
		break;
	default:
		reseal_header((void *)buf, size, known);
	}
}

static void entries_are_in_range(const struct kvblk_d_summary *page)
{
	static const u32 segments[] = { 0, 1, 2048, 65536, 262144 };
	struct kvblk_rec rec;
	u32 unit;

	for (int i = 0; i < KVBLK_SUMMARY_ENTRIES; i++) {
		u32 units = segments[i % 5];

		if (!kvblk_entry_decode(&page->entries[i], units, &rec, &unit))
			continue;
		MUST(rec.length && rec.length <= KVBLK_VALUE_MAX);
		MUST(rec.tenant < KVBLK_TENANT_IDS);
		MUST(rec.priority <= KVBLK_PRIORITY_MAX);
		MUST(unit < units);
		MUST(kvblk_rec_units(&rec, 1) <= units - unit);
	}
}

/* Return whether a header has the bytes that its checksum covers as in @image. */
static bool record_used_same(const u8 *buf, const u8 *image)
{
	const struct kvblk_d_record *hdr = (const void *)image;

	return le32_to_cpu(hdr->flags) & KVBLK_RECF_SHORT_CRC &&
	       !memcmp(buf, image, hdr->integrity == KVBLK_INTEGRITY_AES_GCM ?
				   offsetof(struct kvblk_d_record, pad) :
				   offsetof(struct kvblk_d_record, activation)) &&
	       !memcmp(buf + KVBLK_HDR_KEY, image + KVBLK_HDR_KEY, le16_to_cpu(hdr->key_len)) &&
	       !memcmp(buf + KVBLK_HDR_CRCS, image + KVBLK_HDR_CRCS,
		       kvblk_proof_bytes(hdr->integrity == KVBLK_INTEGRITY_AES_GCM,
					 le32_to_cpu(hdr->length)));
}

static void record_is_in_range(const u8 *buf, size_t size,
			       const struct kvblk_rec *rec)
{
	size_t header = (size_t)kvblk_header_units(kvblk_rec_encrypted(rec), rec->length) * KVBLK_UNIT;
	const u8 *key = rec->key, *crcs = (const void *)rec->crcs;

	MUST(rec->length && rec->length <= KVBLK_VALUE_MAX);
	MUST(rec->key_len && rec->key_len <= KVBLK_KEY_MAX);
	MUST(rec->tenant < KVBLK_TENANT_IDS);
	MUST(rec->priority <= KVBLK_PRIORITY_MAX);
	MUST(rec->integrity < KVBLK_INTEGRITIES);
	MUST(header <= size);
	MUST(key >= buf && key + rec->key_len <= buf + size);
	MUST(crcs >= buf &&
	     crcs + kvblk_proof_bytes(kvblk_rec_encrypted(rec), rec->length) <= buf + header);
}

static void table_is_in_range(const struct kvblk_d_table *table)
{
	MUST(le64_to_cpu(table->seq) <= KVBLK_COUNT_MAX);
	for (int i = 0; i < KVBLK_TABLE_ENTRIES; i++) {
		MUST(table->segments[i].state <= KVBLK_SEG_SEALED);
		MUST(le64_to_cpu(table->segments[i].generation) <= KVBLK_COUNT_MAX);
		MUST(le64_to_cpu(table->segments[i].opened) <= KVBLK_COUNT_MAX);
		MUST(le32_to_cpu(table->segments[i].nr_records) <=
		     KVBLK_SEGMENT_RECORDS_MAX);
	}
}

static void tenants_are_in_range(const struct kvblk_d_super *sb)
{
	for (int i = 0; i < KVBLK_SB_TENANTS; i++) {
		const struct kvblk_d_tenant *tenant = &sb->tenants[i];

		if (!tenant->flags)
			continue;
		MUST(le16_to_cpu(tenant->id) < KVBLK_NVME_TENANT);
		MUST(!le16_to_cpu(tenant->id) == !i);
		MUST(le16_to_cpu(tenant->mode) <= 0777);
		MUST(memchr(tenant->name, 0, sizeof(tenant->name)));
	}
}

static void super_is_in_range(const struct kvblk_d_super *sb)
{
	u64 size = le64_to_cpu(sb->size), start = le64_to_cpu(sb->data_start);
	u64 nr = le32_to_cpu(sb->nr_segments), units = le32_to_cpu(sb->segment_units);

	MUST(units >= KVBLK_SEGMENT_UNITS_MIN && units <= KVBLK_SEGMENT_UNITS_MAX);
	MUST(le32_to_cpu(sb->record_align) >= KVBLK_RECORD_ALIGN_MIN);
	MUST(le32_to_cpu(sb->record_align) <= KVBLK_RECORD_ALIGN_MAX);
	MUST(nr && size <= DEV_BYTES && start <= size);
	MUST(nr * units * KVBLK_UNIT <= size - start);
	MUST(KVBLK_TABLE_OFFSET + (nr + KVBLK_TABLE_ENTRIES - 1) / KVBLK_TABLE_ENTRIES *
	     2 * KVBLK_UNIT <= start);
	MUST(memchr(sb->pool_name, 0, sizeof(sb->pool_name)));
	MUST(memchr(sb->owner, 0, sizeof(sb->owner)));
	MUST(le64_to_cpu(sb->seq) <= KVBLK_COUNT_MAX);
	tenants_are_in_range(sb);
}

/* Decode @buf and check the verdict; @same: the image is unchanged. */
static void judge(const u8 *buf, size_t size, enum target target,
		  enum damage damage, bool same)
{
	struct kvblk_rec rec;
	struct kvblk_sum sum;
	bool valid;

	switch (target) {
	case TABLE:
		valid = kvblk_table_valid((const void *)buf, place.incarnation,
					  0);
		/* tables have no MAC: tenants cannot write to them */
		MUST(same ? valid : !valid || damage == CHECKSUMMED ||
		     damage == SEALED);
		if (valid)
			table_is_in_range((const void *)buf);
		break;
	case SUPER:
		valid = !kvblk_super_check((const void *)buf, DEV_BYTES);
		MUST(same ? valid : !valid || damage == CHECKSUMMED ||
		     damage == SEALED);
		if (valid)
			super_is_in_range((const void *)buf);
		break;
	case SUMMARY:
		valid = kvblk_summary_decode((const void *)buf, 0, &place,
					     &secret, &sum);
		MUST(same ? valid : !valid || damage == SEALED);
		MUST(!valid || sum.nr_records <= KVBLK_SEGMENT_RECORDS_MAX);
		entries_are_in_range((const void *)buf);
		break;
	default:
		switch (kvblk_record_decode(buf, size, &place, &secret, &rec)) {
		case KVBLK_DEC_NONE:
			MUST(!same);
			break;
		case KVBLK_DEC_MORE:
			MUST(size < KVBLK_HDR_UNITS_MAX * KVBLK_UNIT);
			break;
		case KVBLK_DEC_RECORD:
			MUST(same || damage == SEALED || record_used_same(buf, images[target]));
			MUST(kvblk_record_named((const void *)buf, place, rec.id,
						kvblk_rec_encrypted(&rec), rec.length));
			record_is_in_range(buf, size, &rec);
			break;
		case KVBLK_DEC_FILLER:
			MUST(same || damage == SEALED);
			MUST(rec.length &&
			     rec.length <= KVBLK_SEGMENT_UNITS_MAX);
			break;
		}
	}
}

static void patch(u8 *buf, size_t size, const u8 *data, size_t left)
{
	for (; left >= 4; data += 4, left -= 4) {
		size_t at = get_unaligned_le16(data);

		for (int n = data[3]; n >= 0 && at < size; n--)
			buf[at++] ^= data[2];
	}
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size);

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	enum target target;
	enum damage damage;
	size_t buf_size;
	u8 *buf;

	if (!images[0])
		images_make();
	if (size < 2)
		return 0;
	target = data[0] % TARGETS;
	damage = data[1] % DAMAGES;
	data += 2;
	size -= 2;

	/* allocate exactly the size passed to the decoder, or else the sanitizer misses overruns */
	buf_size = image_sizes[target];
	if (damage == RAW && target <= FILLER)
		buf_size = size < buf_size ? size : buf_size;
	buf = calloc(1, buf_size ? buf_size : 1);
	MUST(buf);
	if (damage == RAW) {
		memcpy(buf, data, size < buf_size ? size : buf_size);
	} else {
		memcpy(buf, images[target], buf_size);
		patch(buf, buf_size, data, size);
		if (damage != PLAIN)
			repair(buf, buf_size, target, damage);
	}
	judge(buf, buf_size, target, damage, buf_size == image_sizes[target] &&
	      !memcmp(buf, images[target], buf_size));
	free(buf);
	return 0;
}
