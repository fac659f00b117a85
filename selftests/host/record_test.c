// SPDX-License-Identifier: GPL-2.0
/*
 * Structures on media: they decode as they were encoded. Damage of every kind, headers made by a
 * tenant, valid headers at a wrong place and sealed structures with bad fields are rejected.
 */
#include <linux/array_size.h>
#include <linux/crc32c.h>
#include <linux/errno.h>
#include <linux/kvblk.h>
#include <linux/siphash.h>
#include <linux/string.h>
#include <asm/byteorder.h>

#include "entry.h"
#include "format/geometry.h"
#include "format/record.h"
#include "hash_key.h"
#include "kvblk_test.h"
#include "reseal.h"

#define MIB			0x100000u
#define SEGMENT_UNITS		65536u
#define HEADER_MAX		(2 * KVBLK_UNIT)	/* of a plain record */

/* A test of headers, run for both forms. */
#define TEST_FORMS(test)						\
	static void test(void);						\
	TEST(test##_full)						\
	{								\
		short_crc = false;					\
		test();							\
	}								\
	TEST(test##_short)						\
	{								\
		short_crc = true;					\
		test();							\
	}								\
	static void test(void)

static struct kvblk_secret secret;
static u8 pattern[KVBLK_KEY_MAX];
static bool short_crc;		/* form of the headers that are encoded */

static const struct kvblk_place place = {
	.incarnation = 0x1122334455667788,
	.generation = 0xa1a2a3a4a5a6a7a8,
	.segment = 5,
	.unit = 77,
};

static struct kvblk_rec sample(u32 length)
{
	return (struct kvblk_rec) {
		.id = kvblk_hash_key(&secret, 7, "golden key", 10),
		.seq = 0xb1b2,
		.layout_tag = 0xc1c2c3c4c5c6c7c8,
		.caller_tag = 0xd1d2d3d4d5d6d7d8,
		.parent = 0xe1e2e3e4e5e6e7e8,
		.length = length,
		.expiry = 0x01020304,
		.tenant = 7,
		.key_len = 10,
		.priority = 2,
		.integrity = KVBLK_INTEGRITY_CRC32C,
		.key = "golden key",
	};
}

/*
 * Allocate exactly @size bytes, so that the sanitizer detects reads behind the buffer, filled
 * with bytes that an encoder must overwrite.
 */
static void *dirty(size_t size)
{
	void *buf = malloc(size);

	assert_non_null(buf);
	memset(buf, 0xee, size);
	return buf;
}

static size_t header_size(u32 length)
{
	return (size_t)kvblk_header_units(false, length) * KVBLK_UNIT;
}

static void *encoded(const struct kvblk_rec *rec)
{
	bool encrypted = kvblk_rec_encrypted(rec);
	void *buf = dirty(kvblk_header_bytes(encrypted, rec->length));
	__le32 *crcs = buf + KVBLK_HDR_CRCS;

	for (u32 i = 0; i < kvblk_proof_bytes(encrypted, rec->length) / sizeof(*crcs); i++)
		crcs[i] = cpu_to_le32(0x01020304 * (i + 1));
	kvblk_record_encode(buf, rec, &place, &secret, short_crc);
	return buf;
}

/* Return whether an index entry with the id and length of the header itself proves it. */
static bool named(const void *buf)
{
	const struct kvblk_d_record *hdr = buf;
	struct kvblk_id id = { le64_to_cpu(hdr->id_hi), le64_to_cpu(hdr->id_lo) };

	return kvblk_record_named(hdr, place, id, hdr->integrity == KVBLK_INTEGRITY_AES_GCM,
				  le32_to_cpu(hdr->length));
}

/* Decode, and check that what a MAC proves is also proven by an index entry. */
static enum kvblk_decoded decode(const void *buf, size_t size)
{
	enum kvblk_decoded decoded;
	struct kvblk_rec rec;

	decoded = kvblk_record_decode(buf, size, &place, &secret, &rec);
	if (decoded == KVBLK_DEC_RECORD) {
		bool encrypted = kvblk_rec_encrypted(&rec);

		assert_true(kvblk_record_named(buf, place, rec.id, encrypted, rec.length));
		assert_false(kvblk_record_named(buf, place, rec.id, !encrypted, rec.length));
	}
	if (decoded == KVBLK_DEC_FILLER)
		assert_false(named(buf));
	return decoded;
}

/* Return whether a checksum covers a byte of the header of @rec: padding has no meaning. */
static bool covered(const struct kvblk_rec *rec, size_t byte)
{
	return !short_crc || byte < offsetof(struct kvblk_d_record, activation) ||
	       (kvblk_rec_encrypted(rec) && byte < offsetof(struct kvblk_d_record, pad)) ||
	       (byte >= KVBLK_HDR_KEY && byte < (size_t)KVBLK_HDR_KEY + rec->key_len) ||
	       (byte >= KVBLK_HDR_CRCS &&
		byte < KVBLK_HDR_CRCS + kvblk_proof_bytes(kvblk_rec_encrypted(rec), rec->length));
}

/* Return whether a byte of a header is part of the MAC, which an index entry replaces. */
static bool in_mac(size_t byte)
{
	return byte >= offsetof(struct kvblk_d_record, mac) &&
	       byte < offsetof(struct kvblk_d_record, activation);
}

static void assert_same_rec(const struct kvblk_rec *a,
			    const struct kvblk_rec *b)
{
	assert_int_equal(a->id.hi, b->id.hi);
	assert_int_equal(a->id.lo, b->id.lo);
	assert_int_equal(a->seq, b->seq);
	assert_int_equal(a->layout_tag, b->layout_tag);
	assert_int_equal(a->caller_tag, b->caller_tag);
	assert_int_equal(a->parent, b->parent);
	assert_int_equal(a->length, b->length);
	assert_int_equal(a->expiry, b->expiry);
	assert_int_equal(a->tenant, b->tenant);
	assert_int_equal(a->key_len, b->key_len);
	assert_int_equal(a->priority, b->priority);
	assert_int_equal(a->integrity, b->integrity);
	assert_int_equal(a->durable, b->durable);
	assert_int_equal(a->activation, b->activation);
	assert_int_equal(a->key_epoch, b->key_epoch);
}

TEST(sizes)
{
	static const struct {
		u32 length, chunks, header, units1, units16;
	} vectors[] = {
		{ 1, 1, 1, 2, 16 },
		{ 4096, 1, 1, 2, 16 },
		{ 4097, 1, 1, 3, 16 },
		{ 61440, 1, 1, 16, 16 },
		{ 61441, 1, 1, 17, 32 },
		{ 65536, 1, 1, 17, 32 },
		{ 65537, 2, 1, 18, 32 },
		{ 48 * MIB, 768, 1, 12289, 12304 },
		{ 48 * MIB + 1, 769, 2, 12291, 12304 },
		{ 64 * MIB - 1, 1024, 2, 16386, 16400 },
		{ 64 * MIB, 1024, 2, 16386, 16400 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(vectors); i++) {
		u32 length = vectors[i].length;

		assert_int_equal(kvblk_nr_chunks(length), vectors[i].chunks);
		assert_int_equal(kvblk_header_units(false, length), vectors[i].header);
		assert_int_equal(kvblk_record_units(false, length, 1),
				 vectors[i].units1);
		assert_int_equal(kvblk_record_units(false, length, 16),
				 vectors[i].units16);
	}
	/* a tag has 16 bytes */
	assert_int_equal(kvblk_header_units(true, 1), 1);
	assert_int_equal(kvblk_header_units(true, 12 * MIB), 1);
	assert_int_equal(kvblk_header_units(true, 12 * MIB + 1), 2);
	assert_int_equal(kvblk_header_units(true, 28 * MIB), 2);
	assert_int_equal(kvblk_header_units(true, 28 * MIB + 1), 3);
	assert_int_equal(kvblk_header_units(true, 64 * MIB), KVBLK_HDR_UNITS_MAX);
	assert_int_equal(kvblk_record_units(true, 64 * MIB, 1), 16389);
	assert_int_equal(kvblk_summary_pages(0), 1);
	assert_int_equal(kvblk_summary_pages(1), 1);
	assert_int_equal(kvblk_summary_pages(63), 1);
	assert_int_equal(kvblk_summary_pages(64), 2);
	assert_int_equal(kvblk_summary_pages(126), 2);
	assert_int_equal(kvblk_summary_pages(127), 3);
}

TEST_FORMS(record_round_trip)
{
	static const u32 lengths[] = {
		1, 4096, 65536, 65537, 640 << 10, 48 * MIB, 48 * MIB + 1,
		64 * MIB,
	};
	static const u16 key_lens[] = { 1, 2, 32, 511, 512 };

	for (int i = 0; i < 8 * 5 * 4; i++) {
		u32 length = lengths[i / 20];
		size_t size = header_size(length);
		struct kvblk_rec in = sample(length), out;
		u8 *buf;

		in.key = pattern;
		in.key_len = key_lens[i / 4 % 5];
		in.priority = i % 4;
		in.integrity = i % 3;
		in.durable = i & 1;
		in.tenant = i % 3 ? i : KVBLK_TENANT_IDS - 1;
		buf = encoded(&in);
		assert_int_equal(kvblk_record_decode(buf, size, &place, &secret,
						     &out),
				 KVBLK_DEC_RECORD);
		assert_same_rec(&in, &out);
		assert_ptr_equal(out.key, buf + KVBLK_HDR_KEY);
		assert_memory_equal(out.key, pattern, in.key_len);
		assert_ptr_equal(out.crcs, buf + KVBLK_HDR_CRCS);
		for (u32 c = 0; c < kvblk_nr_chunks(length); c++)
			assert_int_equal(le32_to_cpu(out.crcs[c]),
					 0x01020304 * (c + 1));
		/* bytes behind the header do not matter */
		buf = realloc(buf, HEADER_MAX);
		assert_non_null(buf);
		assert_int_equal(decode(buf, HEADER_MAX), KVBLK_DEC_RECORD);
		free(buf);
	}
}

TEST_FORMS(encrypted_record_round_trip)
{
	static const u32 lengths[] = {
		1, 65537, 12 * MIB, 12 * MIB + 1, 28 * MIB, 28 * MIB + 1, 44 * MIB, 44 * MIB + 1,
		60 * MIB, 60 * MIB + 1, 64 * MIB
	};

	for (size_t i = 0; i < ARRAY_SIZE(lengths); i++) {
		struct kvblk_rec in = sample(lengths[i]), out, entry;
		size_t size = kvblk_header_bytes(true, in.length);
		struct kvblk_d_entry of_header;
		u32 unit;
		u8 *buf;

		in.integrity = KVBLK_INTEGRITY_AES_GCM;
		in.activation = 0x0123456789abcdef;
		buf = encoded(&in);
		assert_int_equal(decode(buf, size), KVBLK_DEC_RECORD);
		kvblk_record_decode(buf, size, &place, &secret, &out);
		assert_same_rec(&in, &out);
		kvblk_entry_of_header(&of_header, (void *)buf);
		assert_true(kvblk_entry_decode(&of_header, 1 << 18, &entry, &unit));
		assert_int_equal(kvblk_rec_units(&entry, 1), kvblk_rec_units(&in, 1));
		/* the last tag's last byte is covered */
		buf[KVBLK_HDR_CRCS + kvblk_proof_bytes(true, in.length) - 1] ^= 1;
		assert_int_equal(decode(buf, size), KVBLK_DEC_NONE);
		free(buf);
	}
}

/* Only an encrypted record names a subkey. */
TEST_FORMS(plain_record_has_no_subkey)
{
	struct kvblk_rec in = sample(1), out;
	u8 *buf;

	in.activation = 1;
	buf = encoded(&in);
	assert_int_equal(kvblk_record_decode(buf, KVBLK_UNIT, &place, &secret, &out),
			 KVBLK_DEC_RECORD);
	assert_int_equal(out.activation, 0);
	free(buf);
}

/* Seq and number of the chunk: two chunks of an activation never share a nonce. */
TEST(nonce)
{
	struct kvblk_d_nonce nonce;

	static_assert(sizeof(nonce) == 12);
	kvblk_nonce_fill(&nonce, 0x0807060504030201, 0x0c0b0a09);
	for (u8 i = 0; i < sizeof(nonce); i++)
		assert_int_equal(((u8 *)&nonce)[i], i + 1);
}

/* Return whether a record with one bit of a field flipped has other additional data. */
#define BOUND(field) ({							\
	struct kvblk_rec rec = sample(70000);				\
	struct kvblk_d_aad aad, other;					\
	bool bound = true;						\
									\
	kvblk_aad_fill(&aad, &rec);					\
	for (size_t bit = 0; bit < 8 * sizeof(rec.field); bit++) {	\
		rec = sample(70000);					\
		((u8 *)&rec.field)[bit / 8] ^= 1 << bit % 8;		\
		kvblk_aad_fill(&other, &rec);				\
		bound &= !!memcmp(&aad, &other, sizeof(aad));		\
	}								\
	bound;								\
})

/*
 * A tag authenticates each bit of what a get relies on, so that a payload opens in no other
 * record, and nothing of what reclaim changes.
 */
TEST(additional_data)
{
	static const u8 want[] = {
		0xc8, 0xc7, 0xc6, 0xc5, 0xc4, 0xc3, 0xc2, 0xc1, 0xd8, 0xd7, 0xd6, 0xd5, 0xd4,
		0xd3, 0xd2, 0xd1, 0xe8, 0xe7, 0xe6, 0xe5, 0xe4, 0xe3, 0xe2, 0xe1, 0x70, 0x11,
		0x01, 0x00, 0x04, 0x03, 0x02, 0x01, 0x07, 0x00, 0x02, 0x03, 0x00, 0x00, 0x00,
		0x00
	};
	struct kvblk_rec rec = sample(70000);
	struct kvblk_d_aad aad;
	__le64 id[2];

	rec.key_epoch = 0x0302;
	kvblk_aad_fill(&aad, &rec);
	id[0] = cpu_to_le64(rec.id.hi);
	id[1] = cpu_to_le64(rec.id.lo);
	assert_int_equal(sizeof(aad), sizeof(id) + sizeof(want));
	assert_memory_equal(&aad, id, sizeof(id));
	assert_memory_equal((u8 *)&aad + sizeof(id), want, sizeof(want));

	assert_true(BOUND(id));
	assert_true(BOUND(layout_tag));
	assert_true(BOUND(caller_tag));
	assert_true(BOUND(parent));
	assert_true(BOUND(length));
	assert_true(BOUND(expiry));
	assert_true(BOUND(tenant));
	assert_true(BOUND(key_epoch));
	/* in the nonce, in the subkey, or set anew for a copy */
	assert_false(BOUND(seq));
	assert_false(BOUND(activation));
	assert_false(BOUND(durable));
}

/* Zero is a valid id, parent, tag and seq. */
TEST_FORMS(zeroes_are_values)
{
	struct kvblk_rec in = {
		.length = 1, .key_len = 1, .key = "\0",
	}, out;
	void *buf = encoded(&in);

	assert_int_equal(kvblk_record_decode(buf, KVBLK_UNIT, &place, &secret,
					     &out),
			 KVBLK_DEC_RECORD);
	assert_same_rec(&in, &out);
	free(buf);
}

/*
 * An encoder that skips bytes would leak kernel memory to the device: encode into two differently
 * filled buffers and compare.
 */
TEST_FORMS(encoders_write_every_byte)
{
	struct kvblk_rec rec = sample(48 * MIB + 1);
	u8 *a = dirty(HEADER_MAX), *b = dirty(HEADER_MAX);
	struct kvblk_sum sum = { .nr_records = 1 };
	u32 crcs = 4 * kvblk_nr_chunks(rec.length);

	memset(b, 0x11, HEADER_MAX);
	memset(a + KVBLK_HDR_CRCS, 7, crcs);
	memset(b + KVBLK_HDR_CRCS, 7, crcs);
	kvblk_record_encode(a, &rec, &place, &secret, short_crc);
	kvblk_record_encode(b, &rec, &place, &secret, short_crc);
	assert_memory_equal(a, b, HEADER_MAX);

	memset(b, 0x11, HEADER_MAX);
	kvblk_filler_encode(a, 9, &place, &secret);
	kvblk_filler_encode(b, 9, &place, &secret);
	assert_memory_equal(a, b, KVBLK_UNIT);

	memset(b, 0x11, KVBLK_UNIT);
	memset(b + 64, 0, KVBLK_UNIT - 64);
	memset(a, 0x22, KVBLK_UNIT);
	memset(a + 64, 0, KVBLK_UNIT - 64);
	kvblk_entry_encode((void *)(b + 64), &rec, 3);
	kvblk_entry_encode((void *)(a + 64), &rec, 3);
	kvblk_summary_encode((void *)a, 0, &sum, &place, &secret);
	kvblk_summary_encode((void *)b, 0, &sum, &place, &secret);
	assert_memory_equal(a, b, KVBLK_UNIT);
	free(a);
	free(b);
}

/* A record that moves is decoded and encoded in the same buffer. */
TEST_FORMS(reinsertion_in_place)
{
	struct kvblk_place there = {
		.incarnation = 4, .generation = 3, .segment = 2, .unit = 1,
	};
	struct kvblk_rec in = sample(50 * MIB), moved, out;
	void *buf;

	in.key = pattern;
	in.key_len = KVBLK_KEY_MAX;
	buf = encoded(&in);
	assert_int_equal(kvblk_record_decode(buf, HEADER_MAX, &place, &secret,
					     &moved),
			 KVBLK_DEC_RECORD);
	/* perhaps to a member that needs the other form */
	kvblk_record_encode(buf, &moved, &there, &secret, !short_crc);
	assert_int_equal(decode(buf, HEADER_MAX), KVBLK_DEC_NONE);
	assert_int_equal(kvblk_record_decode(buf, HEADER_MAX, &there, &secret,
					     &out),
			 KVBLK_DEC_RECORD);
	assert_same_rec(&in, &out);
	assert_memory_equal(out.key, pattern, KVBLK_KEY_MAX);
	assert_int_equal(le32_to_cpu(out.crcs[799]), 0x01020304u * 800);
	free(buf);
}

TEST(filler_round_trip)
{
	static const u32 units[] = { 1, 2, 12291, KVBLK_SEGMENT_UNITS_MAX };
	u8 *buf = dirty(KVBLK_UNIT);
	struct kvblk_rec rec;

	for (int i = 0; i < 4; i++) {
		kvblk_filler_encode(buf, units[i], &place, &secret);
		assert_int_equal(kvblk_record_decode(buf, KVBLK_UNIT, &place,
						     &secret, &rec),
				 KVBLK_DEC_FILLER);
		assert_int_equal(rec.length, units[i]);
	}
	kvblk_filler_encode(buf, 0, &place, &secret);
	assert_int_equal(decode(buf, KVBLK_UNIT), KVBLK_DEC_NONE);
	kvblk_filler_encode(buf, KVBLK_SEGMENT_UNITS_MAX + 1, &place, &secret);
	assert_int_equal(decode(buf, KVBLK_UNIT), KVBLK_DEC_NONE);
	/* flags are valid only with a payload */
	kvblk_filler_encode(buf, 1, &place, &secret);
	((struct kvblk_d_record *)buf)->flags = cpu_to_le32(KVBLK_RECF_DURABLE);
	reseal_header((void *)buf, KVBLK_UNIT, &secret);
	assert_int_equal(decode(buf, KVBLK_UNIT), KVBLK_DEC_NONE);
	free(buf);
}

/* Check that nothing was decoded; a flip in header_units may ask for more bytes. */
static void assert_not_valid(enum kvblk_decoded decoded, size_t byte)
{
	if (byte == offsetof(struct kvblk_d_record, header_units) &&
	    decoded == KVBLK_DEC_MORE)
		return;
	assert_int_equal(decoded, KVBLK_DEC_NONE);
}

/* @rec: the header's record, NULL for a filler */
static void flip_every_bit(u8 *buf, size_t size, const struct kvblk_rec *rec)
{
	for (size_t bit = 0; bit < 8 * size; bit++) {
		buf[bit / 8] ^= 1 << bit % 8;
		if (!rec || covered(rec, bit / 8))
			assert_not_valid(decode(buf, size), bit / 8);
		else
			assert_int_equal(decode(buf, size), KVBLK_DEC_RECORD);
		if (rec && covered(rec, bit / 8))
			assert_int_equal(kvblk_record_named((void *)buf, place, rec->id,
							    kvblk_rec_encrypted(rec),
							    rec->length), in_mac(bit / 8));
		buf[bit / 8] ^= 1 << bit % 8;
	}
	assert_int_not_equal(decode(buf, size), KVBLK_DEC_NONE);
}

TEST_FORMS(every_flipped_bit_of_a_header_is_seen)
{
	struct kvblk_rec rec = sample(200000);
	u8 *buf = encoded(&rec);

	flip_every_bit(buf, KVBLK_UNIT, &rec);
	kvblk_filler_encode(buf, 17, &place, &secret);
	flip_every_bit(buf, KVBLK_UNIT, NULL);
	free(buf);

	rec = sample(48 * MIB + 1);
	buf = encoded(&rec);
	flip_every_bit(buf, HEADER_MAX, &rec);
	free(buf);
}

/* Check that a torn header is seen, unless the damage is in padding. */
static void assert_tear_seen(const u8 *torn, const u8 *whole, const struct kvblk_rec *rec)
{
	for (size_t i = 0; i < HEADER_MAX; i++) {
		if (torn[i] == whole[i] || !covered(rec, i))
			continue;
		assert_not_valid(decode(torn, HEADER_MAX), 0);
		return;
	}
	assert_int_equal(decode(torn, HEADER_MAX), KVBLK_DEC_RECORD);
}

/* A torn write: the first @n bytes are new, the rest is old or zero. */
TEST_FORMS(torn_headers)
{
	struct kvblk_rec rec = sample(48 * MIB + 1);
	u8 *whole = encoded(&rec), *torn = dirty(HEADER_MAX);

	for (size_t n = 0; n < HEADER_MAX; n++) {
		if (n % 512 && n > 256)
			continue;
		memcpy(torn, whole, n);
		memset(torn + n, 0, HEADER_MAX - n);
		assert_tear_seen(torn, whole, &rec);
		memset(torn + n, 0xff, HEADER_MAX - n);
		assert_tear_seen(torn, whole, &rec);
	}
	free(torn);
	free(whole);
}

/* Short reads, each in a buffer of exactly that size. */
TEST_FORMS(every_truncated_header_is_refused)
{
	struct kvblk_rec rec = sample(200000);
	u8 *whole = encoded(&rec);

	for (size_t size = 0; size < KVBLK_UNIT; size++) {
		u8 *buf = dirty(size ? size : 1);

		memcpy(buf, whole, size);
		assert_int_equal(decode(buf, size), KVBLK_DEC_NONE);
		free(buf);
	}
	free(whole);

	rec = sample(64 * MIB);
	whole = encoded(&rec);
	for (size_t size = KVBLK_UNIT; size < HEADER_MAX; size += 64) {
		u8 *buf = dirty(size);

		memcpy(buf, whole, size);
		assert_int_equal(decode(buf, size), KVBLK_DEC_MORE);
		free(buf);
	}
	free(whole);
}

/* MORE requires a header of two units, or up to five if encrypted, so that no caller reads without end. */
TEST_FORMS(more_is_told_only_where_there_is_more)
{
	struct kvblk_rec rec = sample(64 * MIB);
	u8 *buf = encoded(&rec);
	struct kvblk_d_record *hdr = (void *)buf;

	for (int units = 0; units < 256; units++) {
		hdr->header_units = units;
		assert_int_equal(decode(buf, KVBLK_UNIT), units == 2 ?
				 KVBLK_DEC_MORE : KVBLK_DEC_NONE);
		assert_int_equal(decode(buf, HEADER_MAX), units == 2 ?
				 KVBLK_DEC_RECORD : KVBLK_DEC_NONE);
	}
	hdr->integrity = KVBLK_INTEGRITY_AES_GCM;
	for (int units = 0; units < 256; units++) {
		hdr->header_units = units;
		assert_int_equal(decode(buf, KVBLK_UNIT), units >= 2 && units <= 5 ?
				 KVBLK_DEC_MORE : KVBLK_DEC_NONE);
	}
	hdr->header_units = 2;
	hdr->magic = cpu_to_le64(KVBLK_FILLER_MAGIC);
	assert_int_equal(decode(buf, KVBLK_UNIT), KVBLK_DEC_NONE);
	free(buf);
}

/*
 * A tenant writes forged headers into a payload. The tenant knows the place, the target tenant
 * and everything else except the secret.
 */
TEST_FORMS(forged_headers_are_refused)
{
	struct kvblk_rec rec = sample(4096);
	u8 *good = encoded(&rec), *forged = dirty(KVBLK_UNIT);
	struct kvblk_d_record *hdr = (void *)forged;
	struct kvblk_place elsewhere = place;
	struct kvblk_id other = rec.id;
	struct kvblk_secret guess;
	static const u8 zero_seed[32];
	u64 mac;

	/* sealed with another secret */
	kvblk_secret_derive(&guess, zero_seed);
	kvblk_record_encode(forged, &rec, &place, &guess, short_crc);
	assert_int_equal(decode(forged, KVBLK_UNIT), KVBLK_DEC_NONE);
	kvblk_filler_encode(forged, 100, &place, &guess);
	assert_int_equal(decode(forged, KVBLK_UNIT), KVBLK_DEC_NONE);

	/* all right except for the MAC: one bit off, zero, all ones */
	memcpy(forged, good, KVBLK_UNIT);
	mac = le64_to_cpu(hdr->mac);
	for (int bit = 0; bit < 64; bit++) {
		hdr->mac = cpu_to_le64(mac ^ 1ULL << bit);
		assert_int_equal(decode(forged, KVBLK_UNIT), KVBLK_DEC_NONE);
	}
	hdr->mac = 0;
	assert_int_equal(decode(forged, KVBLK_UNIT), KVBLK_DEC_NONE);
	hdr->mac = cpu_to_le64(~0ULL);
	assert_int_equal(decode(forged, KVBLK_UNIT), KVBLK_DEC_NONE);
	/* an index entry proves the record that it describes, and no other */
	assert_true(kvblk_record_named(hdr, place, rec.id, false, 4096));
	assert_false(kvblk_record_named(hdr, place, rec.id, false, 4097));
	other.hi++;
	assert_false(kvblk_record_named(hdr, place, other, false, 4096));
	other = rec.id;
	other.lo++;
	assert_false(kvblk_record_named(hdr, place, other, false, 4096));

	/* the tenant's own record, moved: new place and checksum, old MAC */
	elsewhere.unit++;
	kvblk_record_encode(forged, &rec, &elsewhere, &secret, short_crc);
	mac = le64_to_cpu(hdr->mac);
	hdr->unit = cpu_to_le32(place.unit);
	reseal_header((void *)forged, KVBLK_UNIT, &secret);
	assert_int_equal(decode(forged, KVBLK_UNIT), KVBLK_DEC_RECORD);
	hdr->mac = cpu_to_le64(mac);
	assert_int_equal(decode(forged, KVBLK_UNIT), KVBLK_DEC_NONE);

	/* changed key or payload checksums, old MAC */
	memcpy(forged, good, KVBLK_UNIT);
	forged[KVBLK_HDR_KEY] ^= 1;
	mac = le64_to_cpu(hdr->mac);
	reseal_header((void *)forged, KVBLK_UNIT, &secret);
	hdr->mac = cpu_to_le64(mac);
	assert_int_equal(decode(forged, KVBLK_UNIT), KVBLK_DEC_NONE);
	free(forged);
	free(good);
}

/* The MAC of a summary is invalid for a header and vice versa. */
TEST_FORMS(a_summary_is_no_header)
{
	struct kvblk_rec rec = sample(4096);
	struct kvblk_sum sum = { .nr_records = 1, .sealed = true };
	void *header = encoded(&rec), *page = dirty(KVBLK_UNIT);

	memset(page, 0, KVBLK_UNIT);
	kvblk_summary_encode(page, 0, &sum, &place, &secret);
	assert_int_equal(decode(page, KVBLK_UNIT), KVBLK_DEC_NONE);
	assert_false(kvblk_summary_decode(header, 0, &place, &secret, &sum));
	free(page);
	free(header);
}

TEST_FORMS(a_record_elsewhere_is_refused)
{
	struct kvblk_rec rec = sample(4096), out;
	void *buf = encoded(&rec), *filler = dirty(KVBLK_UNIT);

	kvblk_filler_encode(filler, 5, &place, &secret);
	for (int bit = 0; bit < 64; bit++) {
		struct kvblk_place wrong[4] = { place, place, place, place };
		int nr = bit < 32 ? 4 : 2;

		wrong[0].incarnation ^= 1ULL << bit;
		wrong[1].generation ^= 1ULL << bit;
		wrong[2].segment ^= 1u << bit % 32;
		wrong[3].unit ^= 1u << bit % 32;
		for (int i = 0; i < nr; i++) {
			assert_false(kvblk_record_decode(buf, KVBLK_UNIT,
							 &wrong[i], &secret,
							 &out));
			assert_false(kvblk_record_decode(filler, KVBLK_UNIT,
							 &wrong[i], &secret,
							 &out));
			assert_false(kvblk_record_named(buf, wrong[i], rec.id, false, 4096));
		}
	}
	free(filler);
	free(buf);
}

/* Bad fields under a valid seal, as from a bug or a later version: still rejected. */
TEST_FORMS(fields_out_of_range_are_refused)
{
	struct kvblk_rec rec = sample(200000);
	u8 *good = encoded(&rec), *buf = dirty(HEADER_MAX);
	struct kvblk_d_record *hdr = (void *)buf;

#define REFUSED(change) do {						\
		memset(buf, 0, HEADER_MAX);				\
		memcpy(buf, good, KVBLK_UNIT);				\
		change;							\
		reseal_header((void *)buf, hdr->header_units * KVBLK_UNIT, &secret);		\
		assert_int_equal(decode(buf, HEADER_MAX), KVBLK_DEC_NONE); \
		assert_false(named(buf));				\
	} while (0)

	REFUSED(hdr->version = 0);
	REFUSED(hdr->version = cpu_to_le16(2));
	REFUSED(hdr->header_units = 2);
	REFUSED(hdr->integrity = 4);
	REFUSED(hdr->integrity = KVBLK_INTEGRITY_AES_GCM; hdr->header_units = 2);
	REFUSED(hdr->integrity = KVBLK_INTEGRITY_AES_GCM; hdr->length = cpu_to_le32(12 * MIB + 1));
	REFUSED(hdr->integrity = 255);
	REFUSED(hdr->chunk_shift = 15);
	REFUSED(hdr->chunk_shift = 17);
	REFUSED(hdr->chunk_shift = 255);
	REFUSED(hdr->priority = 4);
	REFUSED(hdr->priority = 255);
	REFUSED(hdr->tenant = cpu_to_le16(0x4000));
	REFUSED(hdr->tenant = cpu_to_le16(0xffff));
	REFUSED(hdr->flags = cpu_to_le32(4));
	REFUSED(hdr->flags = cpu_to_le32(1u << 31));
	REFUSED(hdr->length = 0);
	REFUSED(hdr->length = cpu_to_le32(48 * MIB + 1));
	REFUSED(hdr->length = cpu_to_le32(64 * MIB + 1));
	REFUSED(hdr->length = cpu_to_le32(~0u));
	REFUSED(hdr->header_units = 2; hdr->length = cpu_to_le32(64 * MIB + 1));
	REFUSED(hdr->key_len = 0);
	REFUSED(hdr->key_len = cpu_to_le16(513));
	REFUSED(hdr->key_len = cpu_to_le16(0xffff));
	REFUSED(hdr->key_epoch = cpu_to_le16(1));
	REFUSED(hdr->reserved = cpu_to_le32(1));
	REFUSED(hdr->magic = cpu_to_le64(KVBLK_FILLER_MAGIC + 1));
	REFUSED(hdr->magic = cpu_to_le64(KVBLK_FILLER_MAGIC);
		hdr->header_units = 2; hdr->length = cpu_to_le32(3));
#undef REFUSED

	/* check that reseal() seals as the code does */
	memcpy(buf, good, KVBLK_UNIT);
	reseal_header((void *)buf, KVBLK_UNIT, &secret);
	assert_memory_equal(buf, good, KVBLK_UNIT);
	free(buf);
	free(good);
}

static struct kvblk_d_summary *summary(u32 page, u32 nr_records, bool sealed)
{
	struct kvblk_sum sum = { .nr_records = nr_records, .sealed = sealed };
	struct kvblk_d_summary *buf = dirty(sizeof(*buf));
	struct kvblk_rec rec = sample(200000);

	memset(buf->entries, 0, sizeof(buf->entries));
	kvblk_entry_encode(&buf->entries[0], &rec, 77);
	kvblk_summary_encode(buf, page, &sum, &place, &secret);
	return buf;
}

TEST(summary_round_trip)
{
	static const u32 nr[] = { 0, 1, 65, KVBLK_SEGMENT_RECORDS_MAX };

	for (int i = 0; i < 8; i++) {
		struct kvblk_place anywhere = place;
		struct kvblk_d_summary *buf;
		struct kvblk_sum sum;

		buf = summary(i, nr[i / 2], i % 2);
		anywhere.unit = i;
		assert_true(kvblk_summary_decode(buf, i, &anywhere, &secret,
						 &sum));
		assert_int_equal(sum.nr_records, nr[i / 2]);
		assert_int_equal(sum.sealed, i % 2);
		free(buf);
	}
}

TEST(every_flipped_bit_of_a_summary_is_seen)
{
	struct kvblk_d_summary *page = summary(1, 65, true);
	struct kvblk_sum sum;
	u8 *buf = (void *)page;

	for (size_t bit = 0; bit < 8 * sizeof(*page); bit++) {
		buf[bit / 8] ^= 1 << bit % 8;
		assert_false(kvblk_summary_decode(page, 1, &place, &secret,
						  &sum));
		buf[bit / 8] ^= 1 << bit % 8;
	}
	assert_true(kvblk_summary_decode(page, 1, &place, &secret, &sum));

	/* cut off at any byte, zeroes behind */
	for (size_t n = sizeof(*page); n-- > 0;) {
		if (!buf[n])
			continue;
		buf[n] = 0;
		assert_false(kvblk_summary_decode(page, 1, &place, &secret,
						  &sum));
	}
	free(page);
}

TEST(a_summary_elsewhere_is_refused)
{
	struct kvblk_d_summary *page = summary(3, 200, true);
	struct kvblk_secret guess;
	static const u8 zero_seed[32];
	struct kvblk_place wrong[3] = { place, place, place };
	struct kvblk_sum sum = { .nr_records = 200, .sealed = true };

	wrong[0].incarnation++;
	wrong[1].generation++;
	wrong[2].segment++;
	for (int i = 0; i < 3; i++)
		assert_false(kvblk_summary_decode(page, 3, &wrong[i], &secret,
						  &sum));
	assert_false(kvblk_summary_decode(page, 2, &place, &secret, &sum));

	kvblk_secret_derive(&guess, zero_seed);
	kvblk_summary_encode(page, 3, &sum, &place, &guess);
	assert_false(kvblk_summary_decode(page, 3, &place, &secret, &sum));
	free(page);
}

TEST(summary_fields_out_of_range_are_refused)
{
	struct kvblk_d_summary *page = summary(3, 200, true), good = *page;
	struct kvblk_sum sum;

	reseal_summary(page, &secret);
	assert_memory_equal(page, &good, sizeof(good));

#define REFUSED(change) do {						\
		*page = good;						\
		change;							\
		reseal_summary(page, &secret);					\
		assert_false(kvblk_summary_decode(page, 3, &place, &secret, \
						  &sum));		\
	} while (0)

	REFUSED(page->magic = 0);
	REFUSED(page->sealed = cpu_to_le32(2));
	REFUSED(page->reserved = cpu_to_le32(1));
	REFUSED(page->nr_records = cpu_to_le32(KVBLK_SEGMENT_RECORDS_MAX + 1));
	REFUSED(page->nr_records = cpu_to_le32(~0u));
#undef REFUSED
	free(page);
}

TEST(entry_round_trip)
{
	struct kvblk_rec in = sample(48 * MIB + 1), out;
	u32 units = kvblk_record_units(false, in.length, 1), unit;
	struct kvblk_d_entry entry;

	kvblk_entry_encode(&entry, &in, SEGMENT_UNITS - units);
	assert_true(kvblk_entry_decode(&entry, SEGMENT_UNITS, &out, &unit));
	assert_int_equal(unit, SEGMENT_UNITS - units);
	in.layout_tag = 0;
	in.key_len = 0;
	in.integrity = 0;
	assert_same_rec(&in, &out);
	assert_null(out.key);
	assert_null(out.crcs);
}

/* The summary lists what the header says. */
TEST(entry_of_header)
{
	struct kvblk_rec in = sample(200000);
	struct kvblk_d_entry entry, of_header;
	u8 *header = encoded(&in);

	memset(&of_header, 0x5a, sizeof(of_header));
	kvblk_entry_of_header(&of_header, (void *)header);
	kvblk_entry_encode(&entry, &in, place.unit);
	assert_memory_equal(&of_header, &entry, sizeof(entry));
	free(header);
}

TEST(entries_out_of_range_are_refused)
{
	struct kvblk_rec rec = sample(200000);
	struct kvblk_d_entry good, entry;
	u32 unit;

	kvblk_entry_encode(&good, &rec, 100);
	memset(&entry, 0, sizeof(entry));
	assert_false(kvblk_entry_decode(&entry, SEGMENT_UNITS, &rec, &unit));

#define REFUSED(change) do {						\
		entry = good;						\
		change;							\
		assert_false(kvblk_entry_decode(&entry, SEGMENT_UNITS,	\
						&rec, &unit));		\
	} while (0)

	REFUSED(entry.flags = 0);
	REFUSED(entry.flags = KVBLK_ENTF_HOLE);
	REFUSED(entry.flags = KVBLK_ENTF_VALID | KVBLK_ENTF_HOLE);
	REFUSED(entry.flags = KVBLK_ENTF_ENCRYPTED);
	REFUSED(entry.flags = KVBLK_ENTF_HOLE | KVBLK_ENTF_ENCRYPTED);
	REFUSED(entry.flags = KVBLK_ENTF_VALID | 0x80);
	REFUSED(entry.length = 0);
	REFUSED(entry.length = cpu_to_le32(64 * MIB + 1));
	REFUSED(entry.length = cpu_to_le32(~0u));
	REFUSED(entry.tenant = cpu_to_le16(0x4000));
	REFUSED(entry.priority = 4);
	REFUSED(entry.reserved = cpu_to_le64(1));
	REFUSED(entry.unit = cpu_to_le32(SEGMENT_UNITS - 49));
	REFUSED(entry.unit = cpu_to_le32(SEGMENT_UNITS));
	REFUSED(entry.unit = cpu_to_le32(~0u));
	REFUSED(entry.unit = cpu_to_le32(~0u - 48));
#undef REFUSED

	entry = good;
	entry.unit = cpu_to_le32(SEGMENT_UNITS - 50);
	assert_true(kvblk_entry_decode(&entry, SEGMENT_UNITS, &rec, &unit));
	assert_false(kvblk_entry_decode(&entry, 49, &rec, &unit));
	assert_false(kvblk_entry_decode(&entry, 0, &rec, &unit));
}

static void table_sample(struct kvblk_d_table *table)
{
	memset(table, 0, sizeof(*table));
	table->magic = cpu_to_le32(KVBLK_TABLE_MAGIC);
	table->seq = cpu_to_le64(9);
	table->incarnation = cpu_to_le64(place.incarnation);
	table->page = cpu_to_le32(3);
	table->time = cpu_to_le32(1234);
	table->segments[4] = (struct kvblk_d_segment) {
		.generation = cpu_to_le64(11),
		.state = KVBLK_SEG_SEALED,
		.class = 1,
		.flags = cpu_to_le16(KVBLK_SEGF_KILLS),
		.nr_records = cpu_to_le32(300),
		.opened = cpu_to_le64(17),
	};
	kvblk_table_seal(table);
}

TEST(change_page_is_checked)
{
	struct kvblk_d_change_page *page = dirty(sizeof(*page));
	u8 *buf = (void *)page;

	page->magic = cpu_to_le32(KVBLK_CHANGES_MAGIC);
	page->incarnation = cpu_to_le64(place.incarnation);
	kvblk_change_page_seal(page);
	assert_true(kvblk_change_page_valid(page, place.incarnation));
	assert_false(kvblk_change_page_valid(page, place.incarnation + 1));
	for (size_t bit = 0; bit < 8 * sizeof(*page); bit++) {
		buf[bit / 8] ^= 1 << bit % 8;
		assert_false(kvblk_change_page_valid(page, place.incarnation));
		buf[bit / 8] ^= 1 << bit % 8;
	}
	page->magic = cpu_to_le32(KVBLK_TABLE_MAGIC);
	kvblk_change_page_seal(page);
	assert_false(kvblk_change_page_valid(page, place.incarnation));
	free(page);
}

TEST(table_is_checked)
{
	struct kvblk_d_table *table = dirty(sizeof(*table)), good;
	u8 *buf = (void *)table;

	table_sample(table);
	good = *table;
	assert_true(kvblk_table_valid(table, place.incarnation, 3));
	assert_false(kvblk_table_valid(table, place.incarnation + 1, 3));
	assert_false(kvblk_table_valid(table, place.incarnation, 4));
	assert_false(kvblk_table_valid(table, place.incarnation, 0));

	for (size_t bit = 0; bit < 8 * sizeof(*table); bit++) {
		buf[bit / 8] ^= 1 << bit % 8;
		assert_false(kvblk_table_valid(table, place.incarnation, 3));
		buf[bit / 8] ^= 1 << bit % 8;
	}
	for (size_t n = sizeof(*table); n-- > 0;) {
		if (!buf[n])
			continue;
		buf[n] = 0;
		assert_false(kvblk_table_valid(table, place.incarnation, 3));
	}

#define REFUSED(change) do {						\
		*table = good;						\
		change;							\
		kvblk_table_seal(table);				\
		assert_false(kvblk_table_valid(table, place.incarnation, 3)); \
	} while (0)

	REFUSED(table->magic = 0);
	REFUSED(table->segments[0].state = 3);
	REFUSED(table->segments[126].state = 255);
	REFUSED(table->seq = cpu_to_le64(KVBLK_COUNT_FOUND_MAX + 1));
	REFUSED(table->segments[0].generation = cpu_to_le64(KVBLK_COUNT_FOUND_MAX + 1));
	REFUSED(table->segments[126].opened = cpu_to_le64(~0ULL));
	REFUSED(table->segments[126].flags = cpu_to_le16(KVBLK_SEGF_ALL + 1));
	REFUSED(table->segments[126].reserved = cpu_to_le64(1));
	REFUSED(table->segments[4].nr_records =
		cpu_to_le32(KVBLK_SEGMENT_RECORDS_MAX + 1));
#undef REFUSED
	free(table);
}

#define DEV_BYTES		((1ULL << 30) + MIB)

static void super_sample(struct kvblk_d_super *sb)
{
	memset(sb, 0, sizeof(*sb));
	sb->magic = cpu_to_le64(KVBLK_SB_MAGIC);
	sb->version = cpu_to_le16(KVBLK_FORMAT_VERSION);
	sb->state = cpu_to_le16(KVBLK_SB_ACTIVE);
	sb->seq = cpu_to_le64(6);
	sb->epoch = cpu_to_le64(3);
	sb->incarnation = cpu_to_le64(place.incarnation);
	sb->birth = cpu_to_le64(1700000000);
	memset(sb->pool_uuid, 0xaa, 16);
	memset(sb->member_uuid, 0xbb, 16);
	for (int i = 0; i < 32; i++)
		sb->seed[i] = i;
	memcpy(sb->pool_name, "pool", 4);
	memcpy(sb->owner, "node", 4);
	sb->size = cpu_to_le64(DEV_BYTES);
	sb->data_start = cpu_to_le64(MIB);
	sb->segment_units = cpu_to_le32(SEGMENT_UNITS);
	sb->nr_segments = cpu_to_le32(4);
	sb->record_align = cpu_to_le32(4096);
	sb->activation = cpu_to_le64(0x1234);
	sb->prev_epoch = cpu_to_le64(2);
	sb->time = cpu_to_le64(5000000000);
	sb->wall = cpu_to_le64(1750000000);
	sb->list_seq = cpu_to_le64(9);
	sb->nr_members = cpu_to_le32(2);
	memset(sb->members[0].uuid, 0xcc, 16);
	memcpy(sb->members[0].name, "nvme0n1", 7);
	memset(sb->members[1].uuid, 0xbb, 16);
	memcpy(sb->members[1].name, "nvme1n1", 7);
	sb->members[1].incarnation = sb->incarnation;
	sb->tenants[0].flags = cpu_to_le16(KVBLK_TENANTF_USED);
	memcpy(sb->tenants[0].name, "default", 7);
	sb->tenants[1].id = cpu_to_le16(12);
	sb->tenants[1].flags = cpu_to_le16(KVBLK_TENANTF_USED);
	/* of a later version: the check leaves it to the caller */
	sb->tenants[1].min_seq = cpu_to_le64(99);
	sb->tenants[1].mode = cpu_to_le16(0640);
	sb->tenants[1].uid = cpu_to_le32(1000);
	sb->tenants[1].gid = cpu_to_le32(2000);
	memcpy(sb->tenants[1].name, "blue", 4);
	sb->incompat = cpu_to_le32(KVBLK_SB_IN_TENANTS);
	sb->next_tenant = cpu_to_le32(13);
	kvblk_super_seal(sb);
}

static void pod_sample(struct kvblk_d_super *sb)
{
	sb->ro_compat = cpu_to_le32(KVBLK_SB_RO_POD);
	memset(sb->node, 0xdd, sizeof(sb->node));
	memset(sb->pod_uuid, 0xee, sizeof(sb->pod_uuid));
	memcpy(sb->pod_name, "pod", 3);
	sb->reuse_grace = cpu_to_le32(KVBLK_REUSE_GRACE_MIN);
}

static struct kvblk_d_super *new_super(void)
{
	struct kvblk_d_super *sb = dirty(sizeof(*sb));

	super_sample(sb);
	return sb;
}

TEST(super_is_accepted)
{
	struct kvblk_d_super *sb = new_super();

	assert_int_equal(kvblk_super_check(sb, DEV_BYTES), 0);
	assert_int_equal(kvblk_super_check(sb, DEV_BYTES + 1), 0);
	assert_int_equal(kvblk_super_check(sb, DEV_BYTES - 1), -ERANGE);
	assert_int_equal(kvblk_super_check(sb, 0), -ERANGE);

	/* compat bits are ignored */
	sb->compat = cpu_to_le32(~0u);
	sb->state = cpu_to_le16(KVBLK_SB_CLEAN);
	kvblk_super_seal(sb);
	assert_int_equal(kvblk_super_check(sb, DEV_BYTES), 0);

	/* a free tenant slot may have any content */
	memset(&sb->tenants[5], 0xff, sizeof(sb->tenants[5]));
	sb->tenants[5].flags = 0;
	sb->tenants[6] = sb->tenants[1];
	sb->tenants[1].flags = 0;
	kvblk_super_seal(sb);
	assert_int_equal(kvblk_super_check(sb, DEV_BYTES), 0);
	/* the bit of tenants is needed only while there are some */
	sb->tenants[6].flags = 0;
	kvblk_super_seal(sb);
	assert_int_equal(kvblk_super_check(sb, DEV_BYTES), 0);
	sb->incompat = 0;
	kvblk_super_seal(sb);
	assert_int_equal(kvblk_super_check(sb, DEV_BYTES), 0);
	sb->tenants[0].flags = 0;
	kvblk_super_seal(sb);
	assert_int_equal(kvblk_super_check(sb, DEV_BYTES), 0);
	free(sb);
}

/*
 * Flipping each of 512 Ki bits would take too long: flip one bit in each byte of the fixed part,
 * and in every 61st byte behind it.
 */
TEST(flipped_bits_of_a_superblock_are_seen)
{
	struct kvblk_d_super *sb = new_super();
	u8 *buf = (void *)sb;

	for (size_t byte = 0; byte < sizeof(*sb);
	     byte += byte < 4096 ? 1 : 61) {
		buf[byte] ^= 1 << byte % 8;
		assert_int_equal(kvblk_super_check(sb, DEV_BYTES),
				 byte < 8 ? -ENODATA : -EBADMSG);
		buf[byte] ^= 1 << byte % 8;
	}
	buf[sizeof(*sb) - 1] ^= 0x80;
	assert_int_equal(kvblk_super_check(sb, DEV_BYTES), -EBADMSG);
	buf[sizeof(*sb) - 1] ^= 0x80;
	for (size_t n = sizeof(*sb); n-- > 8;) {
		if (!buf[n])
			continue;
		buf[n] = 0;
		assert_int_equal(kvblk_super_check(sb, DEV_BYTES), -EBADMSG);
	}
	free(sb);
}

TEST(hostile_superblocks_are_refused)
{
	struct kvblk_d_super *sb = new_super();

#define ANSWER(error, change) do {					\
		super_sample(sb);					\
		change;							\
		kvblk_super_seal(sb);					\
		assert_int_equal(kvblk_super_check(sb, DEV_BYTES), error); \
	} while (0)
#define REFUSED(change) ANSWER(-ERANGE, change)

	ANSWER(-ENODATA, sb->magic = 0);
	ANSWER(-EPROTONOSUPPORT, sb->version = cpu_to_le16(2));
	ANSWER(-EPROTONOSUPPORT, sb->version = 0);
	ANSWER(0, sb->incompat |= cpu_to_le32(KVBLK_SB_IN_SHORT_CRC));
	ANSWER(0, sb->incompat |= cpu_to_le32(KVBLK_SB_IN_ENCRYPTED));
	ANSWER(-EPROTONOSUPPORT, sb->incompat |= cpu_to_le32(8));
	ANSWER(-EROFS, sb->ro_compat = cpu_to_le32(1u << 31));
	/* readers do not know the feature either */
	ANSWER(-EPROTONOSUPPORT, sb->ro_compat = cpu_to_le32(2);
	       sb->incompat = cpu_to_le32(KVBLK_SB_IN_ALL | 8));
	REFUSED(sb->ro_compat = cpu_to_le32(2); sb->state = 0);
	ANSWER(0, sb->pool_flags = cpu_to_le32(KVBLK_SBF_STRICT));
	ANSWER(-EPROTONOSUPPORT, sb->pool_flags = cpu_to_le32(KVBLK_SBF_STRICT << 1));
	REFUSED(sb->state = 0);
	REFUSED(sb->state = cpu_to_le16(4));
	REFUSED(sb->seq = cpu_to_le64(KVBLK_COUNT_FOUND_MAX + 1));

	REFUSED(sb->size = cpu_to_le64(DEV_BYTES + 1));
	REFUSED(sb->size = cpu_to_le64(DEV_BYTES - 1));
	REFUSED(sb->size = cpu_to_le64(~0ULL));
	REFUSED(sb->size = 0);
	REFUSED(sb->data_start = 0);
	REFUSED(sb->data_start = cpu_to_le64(2 * MIB));
	REFUSED(sb->data_start = cpu_to_le64(MIB + 4096);
		sb->nr_segments = cpu_to_le32(1));
	REFUSED(sb->data_start = cpu_to_le64(0ULL - MIB));
	REFUSED(sb->data_start = cpu_to_le64(DEV_BYTES);
		sb->nr_segments = cpu_to_le32(1));
	REFUSED(sb->nr_segments = 0);
	REFUSED(sb->nr_segments = cpu_to_le32(5));
	REFUSED(sb->nr_segments = cpu_to_le32(~0u));
	/* equal to 4 segments modulo 2^32 bytes, units or pages */
	REFUSED(sb->nr_segments = cpu_to_le32(16 + 4));
	REFUSED(sb->nr_segments = cpu_to_le32(65536 + 4));
	REFUSED(sb->nr_segments = cpu_to_le32((1u << 31) + 4));
	REFUSED(sb->segment_units = 0);
	REFUSED(sb->segment_units = cpu_to_le32(1024));
	REFUSED(sb->segment_units = cpu_to_le32(3 << 12));
	REFUSED(sb->segment_units = cpu_to_le32(1u << 19);
		sb->nr_segments = cpu_to_le32(1));
	REFUSED(sb->segment_units = cpu_to_le32(1u << 31));
	REFUSED(sb->record_align = 0);
	REFUSED(sb->record_align = cpu_to_le32(512));
	REFUSED(sb->record_align = cpu_to_le32(12288));
	REFUSED(sb->record_align = cpu_to_le32(131072));

	REFUSED(memset(sb->pool_name, 'x', sizeof(sb->pool_name)));
	REFUSED(memset(sb->pool_name, 0, sizeof(sb->pool_name)));
	REFUSED(memcpy(sb->pool_name, "..", 3));
	REFUSED(memcpy(sb->pool_name, ".", 2));
	REFUSED(memcpy(sb->pool_name, "../a", 5));
	REFUSED(memcpy(sb->pool_name, "a\nb", 4));
	REFUSED(memcpy(sb->pool_name, "a\x7f", 3));
	REFUSED(memcpy(sb->pool_name, "..a", 4));
	REFUSED(memcpy(sb->pool_name, "-a", 3));
	REFUSED(memcpy(sb->pool_name, "a b", 4));
	REFUSED(memcpy(sb->pool_name, "a\xc4", 3));
	ANSWER(0, memcpy(sb->pool_name, "9a_-.Z", 7));
	ANSWER(0, memset(sb->pool_name, 'x', sizeof(sb->pool_name) - 1));
	REFUSED(memset(sb->owner, 'x', sizeof(sb->owner)));
	REFUSED(memcpy(sb->owner, "no\033[2Jde", 9));
	REFUSED(memcpy(sb->owner, "n\xc4", 3));
	ANSWER(0, memset(sb->owner, 0, sizeof(sb->owner)));
	ANSWER(0, (memcpy(sb->owner, "n\xc4\033~", 5), kvblk_text_clean(sb->owner)));
	ANSWER(0, (memset(sb->owner, 7, 63), kvblk_text_clean(sb->owner)));

	/* a seq has 24 bits for the epoch */
	REFUSED(sb->epoch = 0);
	REFUSED(sb->epoch = cpu_to_le64(KVBLK_EPOCH_MAX + 1));
	REFUSED(sb->epoch = cpu_to_le64(~0ULL));
	ANSWER(0, sb->epoch = cpu_to_le64(KVBLK_EPOCH_MAX));
	REFUSED(sb->prev_epoch = cpu_to_le64(4));
	ANSWER(0, sb->prev_epoch = sb->epoch);

	REFUSED(sb->list_seq = cpu_to_le64(KVBLK_COUNT_FOUND_MAX + 1));
	ANSWER(0, sb->list_seq = cpu_to_le64(KVBLK_COUNT_FOUND_MAX));
	assert_int_equal(kvblk_super_within(sb, DEV_BYTES, KVBLK_COUNT_MAX), 0);
	sb->list_seq = cpu_to_le64(KVBLK_COUNT_FOUND_MAX + 1);
	kvblk_super_seal(sb);
	assert_int_equal(kvblk_super_within(sb, DEV_BYTES, KVBLK_COUNT_MAX), 0);
	REFUSED(sb->time = cpu_to_le64(KVBLK_COUNT_FOUND_MAX + 1));
	ANSWER(0, sb->wall = cpu_to_le64(~0ULL));

	ANSWER(0, sb->index_slots = cpu_to_le64(KVBLK_SLOTS_MIN));
	ANSWER(0, sb->index_slots = cpu_to_le64(KVBLK_SLOTS_MAX));
	REFUSED(sb->index_slots = cpu_to_le64(KVBLK_SLOTS_MIN - 1));
	REFUSED(sb->index_slots = cpu_to_le64(KVBLK_SLOTS_MAX + 1));
	REFUSED(sb->index_slots = cpu_to_le64(~0ULL));

	REFUSED(sb->nr_members = 0);
	REFUSED(sb->nr_members = cpu_to_le32(1));
	REFUSED(sb->nr_members = cpu_to_le32(3));
	REFUSED(sb->nr_members = cpu_to_le32(65));
	REFUSED(sb->nr_members = cpu_to_le32(~0u));
	REFUSED(sb->reserved1 = cpu_to_le32(1));
	REFUSED(memset(sb->members[0].uuid, 0, 16));
	REFUSED(memset(sb->members[0].uuid, 0xbb, 16));
	REFUSED(memset(sb->members[0].name, 0, 32));
	REFUSED(memset(sb->members[0].name, 'x', 32));
	REFUSED(sb->members[0].name[2] = '\n');
	ANSWER(0, sb->members[0].name[2] = ' ');
	REFUSED(sb->members[1].uuid[15] = 0);
	REFUSED(sb->members[1].incarnation ^= cpu_to_le64(1));
	ANSWER(0, sb->members[0].incarnation = cpu_to_le64(1));

	/* places of listed members: printable ASCII, terminated */
	REFUSED(memcpy(sb->places[0].parts[0].text, "ab\n", 3));
	REFUSED(sb->places[1].parts[0].text[0] = 0xc4);
	REFUSED(sb->places[1].parts[3].zero = cpu_to_le32(1));
	REFUSED(for (int i = 0; i < 4; i++)
			memset(sb->places[0].parts[i].text, 'x', 60));
	ANSWER(0, memset(&sb->places[2], 0xff, sizeof(sb->places[2])));
#undef REFUSED
#undef ANSWER
	free(sb);
}

/* The sample has the tenants "default", 0, and "blue", 12; the next id is 13. */
TEST(hostile_tenants_are_refused)
{
	struct kvblk_d_super *sb = new_super();
	struct kvblk_d_tenant *blue = &sb->tenants[1], *last = &sb->tenants[703];
	static const char *const reserved[] = { "default", "nvme-kv", "changes", "peers" };

#define ANSWER(error, change) do {					\
		super_sample(sb);					\
		change;							\
		kvblk_super_seal(sb);					\
		assert_int_equal(kvblk_super_check(sb, DEV_BYTES), error); \
	} while (0)
#define REFUSED(change) ANSWER(-ERANGE, change)
#define NAME(tenant, text) strncpy((char *)(tenant)->name, text, 31)

	REFUSED(memset(blue->name, 'x', 32));
	REFUSED(memset(blue->name, 0xc4, 3));
	REFUSED(memset(blue->name, 0, 32));
	REFUSED(NAME(blue, "a/b"));
	ANSWER(0, memset(blue->name, 'x', 31));
	for (size_t i = 0; i < ARRAY_SIZE(reserved); i++) {
		REFUSED(NAME(blue, reserved[i]));
		/* nor if no other slot has the name */
		REFUSED(NAME(blue, reserved[i]); sb->tenants[0].flags = 0);
		assert_true(kvblk_tenant_name_reserved(reserved[i]));
	}
	ANSWER(0, NAME(blue, "Default"));
	ANSWER(0, NAME(blue, "default2"));
	ANSWER(0, NAME(blue, "peer"));
	assert_false(kvblk_tenant_name_reserved("peer"));
	assert_false(kvblk_tenant_name_reserved("changes2"));
	assert_false(kvblk_tenant_name_reserved(""));

	/* the first slot is "default" or free */
	ANSWER(0, sb->tenants[0].flags = 0);
	REFUSED(NAME(&sb->tenants[0], "green"));
	REFUSED(NAME(&sb->tenants[0], "peers"));
	REFUSED(sb->tenants[0].id = cpu_to_le16(1));
	REFUSED(sb->tenants[0] = *blue; blue->flags = 0);
	REFUSED(*last = sb->tenants[0]; sb->tenants[0].flags = 0);
	REFUSED(*last = sb->tenants[0]);
	REFUSED(blue->id = 0; sb->tenants[0].flags = 0);

	/* below the next id; the NVMe node's tenant is in no table */
	REFUSED(blue->id = 0);
	REFUSED(blue->id = cpu_to_le16(13));
	ANSWER(0, blue->id = cpu_to_le16(13); sb->next_tenant = cpu_to_le32(14));
	REFUSED(sb->next_tenant = 0);
	REFUSED(sb->next_tenant = cpu_to_le32(12));
	ANSWER(0, sb->next_tenant = 0; blue->flags = 0);
	ANSWER(0, sb->next_tenant = cpu_to_le32(1); blue->flags = 0);
	REFUSED(sb->next_tenant = 0; blue->id = cpu_to_le16(1));
	ANSWER(0, sb->next_tenant = cpu_to_le32(2); blue->id = cpu_to_le16(1));
	ANSWER(0, sb->next_tenant = cpu_to_le32(0x3fff));
	REFUSED(sb->next_tenant = cpu_to_le32(0x4000));
	REFUSED(sb->next_tenant = cpu_to_le32(0x4000); blue->flags = 0);
	REFUSED(sb->next_tenant = cpu_to_le32(0x10000 + 13));
	REFUSED(sb->next_tenant = cpu_to_le32(~0u));
	ANSWER(0, sb->next_tenant = cpu_to_le32(0x3fff); blue->id = cpu_to_le16(0x3ffe));
	REFUSED(sb->next_tenant = cpu_to_le32(0x3fff); blue->id = cpu_to_le16(0x3fff));
	REFUSED(sb->next_tenant = cpu_to_le32(0x4000); blue->id = cpu_to_le16(0x3fff));

	/* modules that do not know tenants must not use the member */
	REFUSED(sb->incompat = 0);
	REFUSED(sb->incompat = cpu_to_le32(KVBLK_SB_IN_SHORT_CRC));

	for (int i = 0; i < 2; i++) {
		struct kvblk_d_tenant *tenant = &sb->tenants[i];

		REFUSED(tenant->flags = cpu_to_le16(2));
		REFUSED(tenant->flags = cpu_to_le16(3));
		ANSWER(i ? 0 : -ERANGE, tenant->flags = cpu_to_le16(3);
		       tenant->key_check = cpu_to_le64(~0);
		       sb->incompat |= cpu_to_le32(KVBLK_SB_IN_ENCRYPTED));
		/* a later version may have other keys */
		REFUSED(tenant->flags = cpu_to_le16(3); tenant->key_epoch = cpu_to_le16(1);
			sb->incompat |= cpu_to_le32(KVBLK_SB_IN_ENCRYPTED));
		REFUSED(tenant->flags = cpu_to_le16(5));
		REFUSED(tenant->flags = cpu_to_le16(0x8001));
		ANSWER(i ? -ERANGE : 0, tenant->mode = 0);
		ANSWER(0, tenant->mode = cpu_to_le16(0777));
		REFUSED(tenant->mode = cpu_to_le16(01000));
		REFUSED(tenant->mode = cpu_to_le16(0100660));
		ANSWER(0, tenant->uid = tenant->gid = 0);
		ANSWER(0, tenant->uid = tenant->gid = cpu_to_le32(~1u));
		REFUSED(tenant->uid = cpu_to_le32(~0u));
		REFUSED(tenant->gid = cpu_to_le32(~0u));
		REFUSED(tenant->key_epoch = cpu_to_le16(1));
		REFUSED(tenant->key_check = cpu_to_le64(1));
		REFUSED(tenant->key_check = cpu_to_le64(1ULL << 63));
	}

	REFUSED(*last = *blue);
	REFUSED(*last = *blue; last->id = cpu_to_le16(11));
	REFUSED(*last = *blue; last->name[0] = 'B');
	ANSWER(0, *last = *blue; last->name[0] = 'B'; last->id = cpu_to_le16(11));
	/* a name ends with its NUL */
	REFUSED(*last = *blue; last->name[20] = 'B'; last->id = cpu_to_le16(11));
#undef NAME
#undef REFUSED
#undef ANSWER
	free(sb);
}

/* A table without a free slot is accepted, unless any two of its tenants are the same. */
TEST(tenants_fill_the_table)
{
	struct kvblk_d_super *sb = new_super();

	sb->next_tenant = cpu_to_le32(KVBLK_NVME_TENANT);
	for (int i = 1; i < KVBLK_SB_TENANTS; i++) {
		struct kvblk_d_tenant *tenant = &sb->tenants[i];

		*tenant = sb->tenants[1];
		tenant->id = cpu_to_le16(KVBLK_NVME_TENANT - i);
		snprintf((char *)tenant->name, sizeof(tenant->name), "tenant-%d", i);
	}
	kvblk_super_seal(sb);
	assert_int_equal(kvblk_super_check(sb, DEV_BYTES), 0);
	for (int i = 1; i < KVBLK_SB_TENANTS; i += 101) {
		for (int j = i + 1; j < KVBLK_SB_TENANTS; j += 67) {
			struct kvblk_d_tenant kept = sb->tenants[j];

			sb->tenants[j].id = sb->tenants[i].id;
			kvblk_super_seal(sb);
			assert_int_equal(kvblk_super_check(sb, DEV_BYTES), -ERANGE);
			sb->tenants[j] = kept;
			memcpy(sb->tenants[j].name, sb->tenants[i].name, 32);
			kvblk_super_seal(sb);
			assert_int_equal(kvblk_super_check(sb, DEV_BYTES), -ERANGE);
			sb->tenants[j] = kept;
		}
	}
	free(sb);
}

/* The fields of a pod are checked with its bit, and void without it. */
TEST(hostile_pods_are_refused)
{
	struct kvblk_d_super *sb = new_super();

#define ANSWER(error, change) do {					\
		super_sample(sb);					\
		pod_sample(sb);						\
		change;							\
		kvblk_super_seal(sb);					\
		assert_int_equal(kvblk_super_check(sb, DEV_BYTES), error); \
	} while (0)
#define REFUSED(change) do {						\
		ANSWER(-ERANGE, change);				\
		ANSWER(0, change; sb->ro_compat = 0);			\
	} while (0)

	ANSWER(0, assert_true(kvblk_super_in_pod(sb)));
	ANSWER(0, sb->ro_compat = 0; assert_false(kvblk_super_in_pod(sb)));
	ANSWER(-EROFS, sb->ro_compat = cpu_to_le32(KVBLK_SB_RO_POD | 2));
	REFUSED(memset(sb->pod_uuid, 0, sizeof(sb->pod_uuid)));
	ANSWER(0, memset(sb->pod_uuid, 0, sizeof(sb->pod_uuid) - 1));
	REFUSED(memset(sb->pod_name, 0, sizeof(sb->pod_name)));
	REFUSED(memset(sb->pod_name, 'x', sizeof(sb->pod_name)));
	REFUSED(memcpy(sb->pod_name, "a b", 4));
	REFUSED(memcpy(sb->pod_name, "..", 3));
	ANSWER(0, memset(sb->pod_name, 'x', sizeof(sb->pod_name) - 1));
	REFUSED(memset(sb->node, 0, sizeof(sb->node)));
	REFUSED(sb->reuse_grace = 0);
	REFUSED(sb->reuse_grace = cpu_to_le32(KVBLK_REUSE_GRACE_MIN - 1));
	ANSWER(0, sb->reuse_grace = cpu_to_le32(KVBLK_REUSE_GRACE_MIN));
	ANSWER(0, sb->reuse_grace = cpu_to_le32(KVBLK_REUSE_GRACE_MAX));
	REFUSED(sb->reuse_grace = cpu_to_le32(KVBLK_REUSE_GRACE_MAX + 1));
	REFUSED(sb->reuse_grace = cpu_to_le32(~0u));
	ANSWER(0, sb->held_grace = 0);
	ANSWER(0, sb->held_grace = cpu_to_le32(KVBLK_REUSE_GRACE_MAX));
	REFUSED(sb->held_grace = cpu_to_le32(KVBLK_REUSE_GRACE_MAX + 1));
#undef REFUSED
#undef ANSWER
	free(sb);
}

/* A place is kept, cut at its maximum. A module without places reads it as free tenant slots. */
TEST(places_are_kept)
{
	struct kvblk_d_super *sb = new_super();
	char long_one[300], text[KVBLK_PLACE_MAX];
	const struct kvblk_d_tenant *slots = (const void *)&sb->places[1];

	memset(long_one, '~', sizeof(long_one));
	for (size_t len = 0; len < sizeof(long_one); len++) {
		long_one[len] = '\0';
		kvblk_place_set(&sb->places[1], long_one);
		kvblk_place_get(&sb->places[1], text);
		assert_int_equal(strlen(text), len < 239 ? len : 239);
		assert_memory_equal(text, long_one, strlen(text));
		for (int i = 0; i < 4; i++)
			assert_int_equal(slots[i].flags, 0);
		kvblk_super_seal(sb);
		assert_int_equal(kvblk_super_check(sb, DEV_BYTES), 0);
		long_one[len] = '~';
	}
	free(sb);
}

/* A table of many segments must not reach data_start. */
TEST(table_must_end_before_the_data)
{
	struct kvblk_d_super *sb = new_super();
	/* 896 KiB from 128 KiB to 1 MiB: 112 pages */
	u32 most = 112 * KVBLK_TABLE_ENTRIES;
	u64 dev_bytes = 1ULL << 40;

	sb->size = cpu_to_le64(dev_bytes);
	sb->segment_units = cpu_to_le32(KVBLK_SEGMENT_UNITS_MIN);
	sb->nr_segments = cpu_to_le32(most);
	kvblk_super_seal(sb);
	assert_int_equal(kvblk_super_check(sb, dev_bytes), 0);
	/* in a pod, the change page is behind the table */
	pod_sample(sb);
	kvblk_super_seal(sb);
	assert_int_equal(kvblk_super_check(sb, dev_bytes), -ERANGE);
	sb->nr_segments = cpu_to_le32(most - KVBLK_TABLE_ENTRIES);
	kvblk_super_seal(sb);
	assert_int_equal(kvblk_super_check(sb, dev_bytes), 0);
	sb->ro_compat = 0;
	sb->nr_segments = cpu_to_le32(most + 1);
	kvblk_super_seal(sb);
	assert_int_equal(kvblk_super_check(sb, dev_bytes), -ERANGE);
	sb->data_start = cpu_to_le64(2 * MIB);
	kvblk_super_seal(sb);
	assert_int_equal(kvblk_super_check(sb, dev_bytes), 0);
	/* no segment: rejected although any table fits before data_start */
	sb->nr_segments = 0;
	sb->data_start = cpu_to_le64(dev_bytes / 2);
	kvblk_super_seal(sb);
	assert_int_equal(kvblk_super_check(sb, dev_bytes), -ERANGE);
	free(sb);
}

/* New members have room for a change page, whatever the length of their table. */
TEST(a_change_page_fits)
{
	const u64 seg = KVBLK_SEGMENT_MIN;

	for (u64 nr = 1; nr < 130 * KVBLK_TABLE_ENTRIES; nr++) {
		u64 pages = (nr - 1) / KVBLK_TABLE_ENTRIES + 1;
		u64 table_end = KVBLK_TABLE_OFFSET + 2 * KVBLK_UNIT * pages;
		u64 start = kvblk_data_start(nr * seg, seg);

		assert_true(start - KVBLK_UNIT >= table_end);
		assert_int_equal(start, pages < 112 ? MIB : 2 * MIB);
	}
}

/* Seqs never run out: the next epoch begins when half of an epoch's seqs are used. */
TEST(seqs_move_on)
{
	const u64 first = 7ull << KVBLK_SEQ_EPOCH_SHIFT, half = 1ull << (KVBLK_SEQ_EPOCH_SHIFT - 1);

	assert_int_equal(kvblk_seq_epoch(first), 7);
	assert_int_equal(kvblk_seq_epoch(first + half - 1), 7);
	assert_int_equal(kvblk_seq_epoch(first + half), 8);
	assert_int_equal(kvblk_seq_epoch(first + 2 * half - 1), 8);
	assert_int_equal(kvblk_seq_epoch(first + 2 * half), 8);
}

/*
 * Checksum and MAC of one structure of each kind, made by a second implementation, in Python,
 * from Documentation/format.rst. Every byte is covered, so a field that moves changes both.
 */
TEST(format_never_changes)
{
	struct kvblk_rec rec = sample(200000);
	struct kvblk_d_summary *page = summary(1, 65, true);
	struct kvblk_d_super *sb = new_super();
	struct kvblk_d_record *hdr;
	struct kvblk_d_table table;

	short_crc = false;
	hdr = encoded(&rec);
	assert_int_equal(le32_to_cpu(hdr->crc), 0x3bb34f2e);
	assert_int_equal(le64_to_cpu(hdr->mac), 0x66f13947dba82ee5);
	kvblk_record_encode(hdr, &rec, &place, &secret, true);
	assert_int_equal(le32_to_cpu(hdr->crc), 0x793cb6a3);
	assert_int_equal(le64_to_cpu(hdr->mac), 0x329e1322618db251);
	kvblk_filler_encode(hdr, 50, &place, &secret);
	assert_int_equal(le32_to_cpu(hdr->crc), 0x96cc204b);
	assert_int_equal(le64_to_cpu(hdr->mac), 0x84ac47fb6b8b1f39);
	assert_int_equal(le32_to_cpu(page->crc), 0xabea47c7);
	assert_int_equal(le64_to_cpu(page->mac), 0x81a5a8e6569af4c5);
	table_sample(&table);
	assert_int_equal(le32_to_cpu(table.crc), 0x6ba99da9);
	assert_int_equal(le32_to_cpu(sb->crc), 0x81ad017c);
	free(sb);
	free(page);
	free(hdr);
}

int main(void)
{
	u8 seed[32];

	for (int i = 0; i < 32; i++)
		seed[i] = i;
	kvblk_secret_derive(&secret, seed);
	for (int i = 0; i < KVBLK_KEY_MAX; i++)
		pattern[i] = i * 7 + 1;
	return RUN_TESTS("record");
}
