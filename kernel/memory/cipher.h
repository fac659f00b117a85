/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Keys and ciphers of payloads, AES-256-GCM for each chunk. The rules:
 * - A subkey seals a chunk of a seq once, or else the two plaintexts were known: a put that is
 *   tried again takes a new seq.
 * - Plaintext of a chunk that did not match its tag must not be delivered.
 */
#ifndef KVBLK_CIPHER_H
#define KVBLK_CIPHER_H

#include <linux/types.h>

#include "format/record.h"

#define KVBLK_KEY_BYTES		32	/* of a tenant's key and of subkeys */

struct bio_vec;
struct bvec_iter;
struct xarray;

/* Key of a tenant, with the ciphers of its records. */
struct kvblk_key;
/* Cipher under the subkey of an activation and a key epoch. */
struct kvblk_cipher;

/*
 * Computes the first 8 bytes of an HMAC-SHA256 of @label and @size bytes at @data, by which a key
 * is recognized. Returns 0 or an errno: -ENOENT the kernel has no HMAC-SHA256. May sleep.
 */
int kvblk_key_check(const u8 bytes[KVBLK_KEY_BYTES], const void *data, size_t size, __le64 *check);
/*
 * Returns a key with a reference and the cipher of @activation and @epoch, or an ERR_PTR(): -ENOENT
 * the kernel has no AES-GCM or HMAC-SHA256. May sleep.
 */
struct kvblk_key *kvblk_key_new(const u8 bytes[KVBLK_KEY_BYTES], u64 activation, u16 epoch);
struct kvblk_key *kvblk_key_get(struct kvblk_key *key);
/* Drops a reference, or NULL. With the last one the key and its ciphers are zeroed. May sleep. */
void kvblk_key_put(struct kvblk_key *key);

/* Returns the cipher of a record, with a reference, or an ERR_PTR(). May sleep. */
struct kvblk_cipher *kvblk_cipher_get(struct kvblk_key *key, u64 activation, u16 epoch);
/* kvblk_cipher_get() of the key of @tenant in @keys, or -ENOKEY if there is none. */
struct kvblk_cipher *kvblk_keys_cipher(struct xarray *keys, u16 tenant, u64 activation, u16 epoch);
void kvblk_cipher_put(struct kvblk_cipher *cipher);
/*
 * Seal or open whole chunks of @rec's payload in place, from chunk @first on; @part is memory that
 * the CPU may write. @tags: of these chunks. Return 0, -EBADMSG a chunk does not match its tag,
 * -ENOMEM, or an errno of the cipher. May sleep.
 */
int kvblk_cipher_seal(struct kvblk_cipher *cipher, const struct kvblk_rec *rec, u32 first,
		      const struct bio_vec *bv, struct bvec_iter part, u8 *tags);
int kvblk_cipher_open(struct kvblk_cipher *cipher, const struct kvblk_rec *rec, u32 first,
		      const struct bio_vec *bv, struct bvec_iter part, u8 *tags);

#endif
