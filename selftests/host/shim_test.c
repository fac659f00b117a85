// SPDX-License-Identifier: GPL-2.0
/*
 * The shim's hashes against published vectors: records and ids made by the tests and by `kvblk
 * replay` must equal the kernel's.
 */
#include <linux/crc32c.h>
#include <linux/siphash.h>
#include <linux/unaligned.h>

#include "kvblk_test.h"

/* Vectors of the SipHash paper: key 00 01 ... 0f, message 00 01 ... of the length. */
static const u64 sip_vectors[] = {
	0x726fdb47dd0e0e31, 0x74f839c593dc67fd, 0x0d6c8009d9a94f5a,
	0x85676696d7fb7e2d, 0xcf2794e0277187b7, 0x18765564cd99a68d,
	0xcbc9466e58fee3ce, 0xab0200f58b01d137, 0x93f5f5799a932462,
	0x9e0082df0ba9e4b0, 0x7a5dbbc594ddb9f3, 0xf4b32f46226bada7,
	0x751e8fbc860ee5fb, 0x14ea5627c0843d90, 0xf723ca908e7af2ee,
	0xa129ca6149be45e5, 0x3f2acc7f57c29bdb,
};

TEST(siphash_vectors)
{
	u8 bytes[64];
	siphash_key_t key;

	for (int i = 0; i < 64; i++)
		bytes[i] = i;
	key.key[0] = get_unaligned_le64(bytes);
	key.key[1] = get_unaligned_le64(bytes + 8);
	for (size_t i = 0; i < sizeof(sip_vectors) / sizeof(u64); i++)
		assert_int_equal(siphash(bytes, i, &key), sip_vectors[i]);

	assert_int_equal(siphash_1u64(get_unaligned_le64(bytes), &key),
			 sip_vectors[8]);
	assert_int_equal(siphash_2u64(get_unaligned_le64(bytes),
				      get_unaligned_le64(bytes + 8), &key),
			 sip_vectors[16]);
}

/* RFC 3720, B.4; the kernel's function does not invert. */
TEST(crc32c_vectors)
{
	u8 bytes[37];

	assert_int_equal((u32)~crc32c(~0u, "123456789", 9), 0xe3069283);
	memset(bytes, 0, sizeof(bytes));
	assert_int_equal((u32)~crc32c(~0u, bytes, 32), 0x8a9136aa);
	memset(bytes, 0xff, sizeof(bytes));
	assert_int_equal((u32)~crc32c(~0u, bytes, 32), 0x62a8ab43);
	for (int i = 0; i < 37; i++)
		bytes[i] = i;
	assert_int_equal((u32)~crc32c(~0u, bytes, 32), 0x46dd794e);
	/* in parts, at odd addresses */
	assert_int_equal(crc32c(crc32c(5, bytes, 11), bytes + 11, 26),
			 crc32c(5, bytes, 37));
}

TEST_MAIN("shim")
