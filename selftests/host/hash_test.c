// SPDX-License-Identifier: GPL-2.0
/*
 * Ids and derived keys. A second implementation, in Python with OpenSSL's SipHash, made the
 * vectors from the comment in kernel/format/hash.c. Every pool has such ids on media: if a vector
 * fails, the code is wrong.
 */
#include <linux/array_size.h>
#include <linux/kvblk.h>
#include <linux/siphash.h>

#include "format/format.h"
#include "format/hash.h"
#include "hash_key.h"
#include "kvblk_test.h"

static struct kvblk_secret secret;

static int derive(void **state)
{
	u8 seed[32];

	for (int i = 0; i < 32; i++)
		seed[i] = i;
	kvblk_secret_derive(&secret, seed);
	return 0;
}

/* Vectors of the SipHash paper: key 00 01 ... 0f, message 00 01 ... of the length. */
TEST(siphash_is_siphash_2_4)
{
	static const siphash_key_t key = {
		.key = { 0x0706050403020100, 0x0f0e0d0c0b0a0908 },
	};
	static const struct {
		u8 length;
		u64 hash;
	} vectors[] = {
		{ 0, 0x726fdb47dd0e0e31 }, { 1, 0x74f839c593dc67fd },
		{ 7, 0xab0200f58b01d137 }, { 8, 0x93f5f5799a932462 },
		{ 15, 0xa129ca6149be45e5 }, { 63, 0x958a324ceb064572 },
	};
	u8 message[64];

	for (int i = 0; i < 64; i++)
		message[i] = i;
	for (size_t i = 0; i < ARRAY_SIZE(vectors); i++)
		assert_int_equal(siphash(message, vectors[i].length, &key),
				 vectors[i].hash);
}

/* Vectors of OpenSSL with 128 bits of output, for the same messages, low word first. */
TEST(ids_are_siphash_2_4_128)
{
	static const siphash_key_t key = {
		.key = { 0x0706050403020100, 0x0f0e0d0c0b0a0908 },
	};
	static const struct {
		u8 length;
		struct kvblk_id id;
	} vectors[] = {
		{ 0, { 0xe6a825ba047f81a3, 0x930255c71472f66d } },
		{ 1, { 0x44af996bd8c187da, 0x45fc229b11597634 } },
		{ 7, { 0x53c1dbd8beebf1a1, 0x3982f01fa64ab8c0 } },
		{ 8, { 0x61f55862baa9623b, 0xb49714f364e2830f } },
		{ 9, { 0xabbad90a06994426, 0xed716dbb028b7fc4 } },
		{ 10, { 0x56691478c30d1100, 0xbafbd0f3d34754c9 } },
		{ 11, { 0x77666b3868c55101, 0x18dce5816fdcb4a2 } },
		{ 12, { 0x58f35e9066b226d6, 0x25c13285f64d6382 } },
		{ 13, { 0x108bc0e947e26998, 0xf752b9c44f9329d0 } },
		{ 14, { 0x9cded766aceffc31, 0x024949e45f48c77e } },
		{ 15, { 0x11a8b03399e99354, 0xd9c3cf970fec087e } },
		{ 33, { 0x321cf0467107c677, 0xcfffa94e5f9db6b6 } },
		{ 63, { 0x4a83502f77d15051, 0x7cbd3f979a063e50 } },
	};
	u8 message[64];

	for (int i = 0; i < 64; i++)
		message[i] = i;
	for (size_t i = 0; i < ARRAY_SIZE(vectors); i++) {
		struct kvblk_id id = kvblk_tenant_hash(&key, message,
						       vectors[i].length);

		assert_int_equal(id.hi, vectors[i].id.hi);
		assert_int_equal(id.lo, vectors[i].id.lo);
	}
}

TEST_WITH(secret_never_changes, derive, NULL)
{
	assert_int_equal(secret.id[0].key[0], 0x1f25e0c39de13d14);
	assert_int_equal(secret.id[0].key[1], 0x2ffc9dc7d15cd137);
	assert_int_equal(secret.id[1].key[0], 0xd5075d646e354799);
	assert_int_equal(secret.id[1].key[1], 0xd05bd7c570b1a209);
	assert_int_equal(secret.mac.key[0], 0x856e4cfa5e1035e6);
	assert_int_equal(secret.mac.key[1], 0xa7101ca179affbb6);
}

TEST_WITH(secret_depends_on_each_seed_bit, derive, NULL)
{
	struct kvblk_secret other;
	u8 seed[32];

	for (int bit = 0; bit < 256; bit++) {
		for (int i = 0; i < 32; i++)
			seed[i] = i;
		seed[bit / 8] ^= 1 << bit % 8;
		kvblk_secret_derive(&other, seed);
		for (int i = 0; i < 2; i++) {
			assert_int_not_equal(other.id[0].key[i],
					     secret.id[0].key[i]);
			assert_int_not_equal(other.id[1].key[i],
					     secret.id[1].key[i]);
			assert_int_not_equal(other.mac.key[i],
					     secret.mac.key[i]);
		}
	}
}

TEST_WITH(ids_never_change, derive, NULL)
{
	static const struct {
		u16 tenant;
		u16 length;
		struct kvblk_id id;
	} vectors[] = {
		{ 0, 1, { 0x7d53a5a004758b2c, 0xda03952498d0554d } },
		{ 0, 16, { 0xf4f742c3e7b4b74d, 0x8a0a6000e9cdd646 } },
		{ 0, 512, { 0x0e09743e3ae9e04e, 0x5fbcc5ba4083bb01 } },
		{ 1, 16, { 0xb9360932e29d704f, 0xef31d9f988ef565e } },
		{ 1, 512, { 0x6e5fb65b3585d1a3, 0x90680897b3c86e31 } },
		{ 5, 36, { 0xba2699fbfaf5a7d1, 0x18a790790cb23db4 } },
		{ 0x3fff, 32, { 0xa037aedd81c1c7ac, 0x527773606f373b8c } },
	};
	u8 key[KVBLK_KEY_MAX];

	for (int i = 0; i < KVBLK_KEY_MAX; i++)
		key[i] = i * 7 + 1;
	for (size_t i = 0; i < ARRAY_SIZE(vectors); i++) {
		struct kvblk_id id = kvblk_hash_key(&secret, vectors[i].tenant,
						    key, vectors[i].length);

		assert_int_equal(id.hi, vectors[i].id.hi);
		assert_int_equal(id.lo, vectors[i].id.lo);
	}
}

static int compare_words(const void *a, const void *b)
{
	u64 x = *(const u64 *)a, y = *(const u64 *)b;

	return x < y ? -1 : x > y;
}

static void assert_all_differ(u64 *words, size_t nr)
{
	qsort(words, nr, sizeof(*words), compare_words);
	for (size_t i = 1; i < nr; i++)
		assert_int_not_equal(words[i - 1], words[i]);
}

/* The ids of a key under every tenant id differ, and so do the halves of each id. */
TEST_WITH(tenants_have_key_spaces_of_their_own, derive, NULL)
{
	static u64 words[2 * KVBLK_TENANT_IDS];
	static const u8 key[32];

	for (u32 tenant = 0; tenant < KVBLK_TENANT_IDS; tenant++) {
		struct kvblk_id id = kvblk_hash_key(&secret, tenant, key, 32);

		words[2 * tenant] = id.hi;
		words[2 * tenant + 1] = id.lo;
	}
	assert_all_differ(words, 2 * KVBLK_TENANT_IDS);
}

/*
 * Keys of zeroes of every length, under tenants whose numbers could be read as key bytes: length
 * and tenant must be hashed as separate values.
 */
TEST_WITH(tenant_and_key_do_not_run_together, derive, NULL)
{
	static const u16 tenants[] = { 0, 1, 0x100, 0x101 };
	static const u8 key[KVBLK_KEY_MAX];
	static u64 words[4 * KVBLK_KEY_MAX];
	size_t nr = 0;

	for (int i = 0; i < 4; i++)
		for (int len = 1; len <= KVBLK_KEY_MAX; len++)
			words[nr++] = kvblk_hash_key(&secret, tenants[i], key,
						     len).lo;
	assert_all_differ(words, nr);
}

TEST_WITH(every_key_bit_matters, derive, NULL)
{
	static u64 words[2 * (8 * KVBLK_KEY_MAX + 1)];
	u8 key[KVBLK_KEY_MAX] = { 0 };
	size_t nr = 0;

	for (int bit = -1; bit < 8 * KVBLK_KEY_MAX; bit++) {
		struct kvblk_id id;

		if (bit >= 0)
			key[bit / 8] ^= 1 << bit % 8;
		id = kvblk_hash_key(&secret, 3, key, sizeof(key));
		if (bit >= 0)
			key[bit / 8] ^= 1 << bit % 8;
		words[nr++] = id.hi;
		words[nr++] = id.lo;
	}
	assert_all_differ(words, nr);
}

TEST_WITH(kept_keys_give_the_same_ids, derive, NULL)
{
	static const u16 tenants[] = { 0, 1, 0x3fff };
	siphash_key_t key;

	for (size_t i = 0; i < ARRAY_SIZE(tenants); i++) {
		struct kvblk_id a, b;

		kvblk_tenant_key_derive(&key, &secret, tenants[i]);
		a = kvblk_tenant_hash(&key, "key", 3);
		b = kvblk_hash_key(&secret, tenants[i], "key", 3);
		assert_int_equal(a.hi, b.hi);
		assert_int_equal(a.lo, b.lo);
	}
}

/* Keys are packed in a blob, so they start at any address. */
TEST_WITH(unaligned_keys, derive, NULL)
{
	u8 blob[64 + 8];
	struct kvblk_id id, aligned;

	memset(blob, 0x5a, sizeof(blob));
	aligned = kvblk_hash_key(&secret, 1, blob, 64);
	for (int i = 1; i < 8; i++) {
		id = kvblk_hash_key(&secret, 1, blob + i, 64);
		assert_int_equal(id.hi, aligned.hi);
		assert_int_equal(id.lo, aligned.lo);
	}
}

TEST_MAIN("hash")
