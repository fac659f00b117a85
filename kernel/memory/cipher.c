// SPDX-License-Identifier: GPL-2.0
/* Computations of ciphers, by the kernel's crypto API. A driver may work asynchronously: wait. */
#include <crypto/aead.h>
#include <crypto/hash.h>
#include <linux/bvec.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>
#include <linux/xarray.h>

#include "memory/cipher.h"

#define CIPHERS_MAX	64	/* of a key; the least recently used one beyond is freed */

struct kvblk_cipher {
	struct list_head link;		/* in key->ciphers */
	refcount_t refs;		/* @link has one */
	u64 activation;
	u16 epoch;
	struct crypto_aead *aead;
};

struct kvblk_key {
	refcount_t refs;
	struct mutex lock;		/* protects @ciphers and @nr */
	struct list_head ciphers;	/* the one used last first */
	u32 nr;				/* in @ciphers */
	u8 bytes[KVBLK_KEY_BYTES];
};

/* ---- keys ---- */

static int hash_keyed(const u8 bytes[KVBLK_KEY_BYTES], const void *data, size_t size,
		      u8 digest[KVBLK_KEY_BYTES])
{
	struct crypto_shash *shash = crypto_alloc_shash("hmac(sha256)", 0, 0);
	int err;

	if (IS_ERR(shash))
		return PTR_ERR(shash);
	err = crypto_shash_setkey(shash, bytes, KVBLK_KEY_BYTES) ?:
	      crypto_shash_tfm_digest(shash, data, size, digest);
	crypto_free_shash(shash);
	return err;
}

int kvblk_key_check(const u8 bytes[KVBLK_KEY_BYTES], const void *data, size_t size, __le64 *check)
{
	u8 digest[KVBLK_KEY_BYTES];
	int err = hash_keyed(bytes, data, size, digest);

	if (!err)
		memcpy(check, digest, sizeof(*check));
	memzero_explicit(digest, sizeof(digest));
	return err;
}

static int subkey_derive(const u8 bytes[KVBLK_KEY_BYTES], u64 activation, u16 epoch,
			 u8 subkey[KVBLK_KEY_BYTES])
{
	struct {
		char label[16] __nonstring;
		__le64 activation;
		__le16 epoch;
	} __packed input = {
		/* without its NUL */
		.label = "kvblk record key",
		.activation = cpu_to_le64(activation),
		.epoch = cpu_to_le16(epoch),
	};

	return hash_keyed(bytes, &input, sizeof(input), subkey);
}

static struct kvblk_cipher *cipher_new(const struct kvblk_key *key, u64 activation, u16 epoch)
{
	struct kvblk_cipher *cipher __free(kfree) = kzalloc(sizeof(*cipher), GFP_KERNEL);
	u8 subkey[KVBLK_KEY_BYTES];
	int err;

	if (!cipher)
		return ERR_PTR(-ENOMEM);
	cipher->activation = activation;
	cipher->epoch = epoch;
	refcount_set(&cipher->refs, 1);
	cipher->aead = crypto_alloc_aead("gcm(aes)", 0, 0);
	if (IS_ERR(cipher->aead))
		return ERR_CAST(cipher->aead);
	err = subkey_derive(key->bytes, activation, epoch, subkey) ?:
	      crypto_aead_setkey(cipher->aead, subkey, sizeof(subkey)) ?:
	      crypto_aead_setauthsize(cipher->aead, KVBLK_TAG_BYTES);
	memzero_explicit(subkey, sizeof(subkey));
	if (err) {
		crypto_free_aead(cipher->aead);
		return ERR_PTR(err);
	}
	return_ptr(cipher);
}

void kvblk_cipher_put(struct kvblk_cipher *cipher)
{
	if (!refcount_dec_and_test(&cipher->refs))
		return;
	/* zeroes the subkey */
	crypto_free_aead(cipher->aead);
	kfree(cipher);
}

static void cipher_drop(struct kvblk_key *key, struct kvblk_cipher *cipher)
{
	list_del(&cipher->link);
	key->nr--;
	kvblk_cipher_put(cipher);
}

static struct kvblk_cipher *cipher_find(struct kvblk_key *key, u64 activation, u16 epoch)
{
	struct kvblk_cipher *cipher;

	list_for_each_entry(cipher, &key->ciphers, link)
		if (cipher->activation == activation && cipher->epoch == epoch)
			return cipher;
	return NULL;
}

struct kvblk_cipher *kvblk_cipher_get(struct kvblk_key *key, u64 activation, u16 epoch)
{
	struct kvblk_cipher *cipher;

	guard(mutex)(&key->lock);
	cipher = cipher_find(key, activation, epoch);
	if (!cipher) {
		cipher = cipher_new(key, activation, epoch);
		if (IS_ERR(cipher))
			return cipher;
		list_add(&cipher->link, &key->ciphers);
		if (++key->nr > CIPHERS_MAX)
			cipher_drop(key, list_last_entry(&key->ciphers, struct kvblk_cipher, link));
	}
	list_move(&cipher->link, &key->ciphers);
	refcount_inc(&cipher->refs);
	return cipher;
}

struct kvblk_key *kvblk_key_new(const u8 bytes[KVBLK_KEY_BYTES], u64 activation, u16 epoch)
{
	struct kvblk_key *key = kzalloc(sizeof(*key), GFP_KERNEL);
	struct kvblk_cipher *cipher;

	if (!key)
		return ERR_PTR(-ENOMEM);
	refcount_set(&key->refs, 1);
	mutex_init(&key->lock);
	INIT_LIST_HEAD(&key->ciphers);
	memcpy(key->bytes, bytes, KVBLK_KEY_BYTES);
	/* now, because a kernel without the cipher must be reported here */
	cipher = kvblk_cipher_get(key, activation, epoch);
	if (IS_ERR(cipher)) {
		kvblk_key_put(key);
		return ERR_CAST(cipher);
	}
	kvblk_cipher_put(cipher);
	return key;
}

struct kvblk_key *kvblk_key_get(struct kvblk_key *key)
{
	refcount_inc(&key->refs);
	return key;
}

void kvblk_key_put(struct kvblk_key *key)
{
	struct kvblk_cipher *cipher, *next;

	if (!key || !refcount_dec_and_test(&key->refs))
		return;
	list_for_each_entry_safe(cipher, next, &key->ciphers, link)
		cipher_drop(key, cipher);
	kfree_sensitive(key);
}

/* Returns the key of @tenant with a reference, or NULL. */
static struct kvblk_key *key_of(struct xarray *keys, u16 tenant)
{
	struct kvblk_key *key;

	xa_lock(keys);
	key = xa_load(keys, tenant);
	if (key)
		kvblk_key_get(key);
	xa_unlock(keys);
	return key;
}

struct kvblk_cipher *kvblk_keys_cipher(struct xarray *keys, u16 tenant, u64 activation, u16 epoch)
{
	struct kvblk_key *key = key_of(keys, tenant);
	struct kvblk_cipher *cipher;

	if (!key)
		return ERR_PTR(-ENOKEY);
	cipher = kvblk_cipher_get(key, activation, epoch);
	kvblk_key_put(key);
	return cipher;
}

/* ---- chunks ---- */

/* Additional data, vectors of a chunk, which kernel memory has at most one a page of, and a tag. */
#define CHUNK_SGS	((1u << KVBLK_CHUNK_SHIFT) / PAGE_SIZE + 1 + 2)

/* Memory of the cipher's work on a chunk. None is on the stack, which no scatterlist may name. */
struct chunk_work {
	struct crypto_wait wait;
	struct scatterlist sg[CHUNK_SGS];
	struct kvblk_d_aad aad;
	struct kvblk_d_nonce nonce;
	struct aead_request req;	/* last, with the driver's context behind */
};

static struct chunk_work *work_new(struct kvblk_cipher *cipher, const struct kvblk_rec *rec)
{
	struct chunk_work *work = kmalloc(sizeof(*work) + crypto_aead_reqsize(cipher->aead),
					  GFP_KERNEL);

	if (!work)
		return NULL;
	crypto_init_wait(&work->wait);
	kvblk_aad_fill(&work->aad, rec);
	aead_request_set_tfm(&work->req, cipher->aead);
	aead_request_set_callback(&work->req,
				  CRYPTO_TFM_REQ_MAY_BACKLOG | CRYPTO_TFM_REQ_MAY_SLEEP,
				  crypto_req_done, &work->wait);
	aead_request_set_ad(&work->req, sizeof(work->aad));
	return work;
}

/* Removes the first chunk from @rest, and names it and its @tag in the scatterlist. */
static int work_take(struct chunk_work *work, const struct bio_vec *bv, struct bvec_iter *rest,
		     u8 *tag, bool open)
{
	u32 bytes = min(rest->bi_size, 1u << KVBLK_CHUNK_SHIFT), left = bytes, nr = 0;

	sg_init_table(work->sg, CHUNK_SGS);
	sg_set_buf(&work->sg[nr++], &work->aad, sizeof(work->aad));
	while (left) {
		struct bio_vec here = mp_bvec_iter_bvec(bv, *rest);
		u32 len = min(here.bv_len, left);

		if (WARN_ON_ONCE(nr == CHUNK_SGS - 1))
			return -EINVAL;
		sg_set_page(&work->sg[nr++], here.bv_page, len, here.bv_offset);
		bvec_iter_advance_single(bv, rest, len);
		left -= len;
	}
	sg_set_buf(&work->sg[nr], tag, KVBLK_TAG_BYTES);
	sg_mark_end(&work->sg[nr]);
	aead_request_set_crypt(&work->req, work->sg, work->sg,
			       bytes + (open ? KVBLK_TAG_BYTES : 0), (u8 *)&work->nonce);
	return 0;
}

static int chunks_crypt(struct kvblk_cipher *cipher, const struct kvblk_rec *rec, u32 chunk,
			const struct bio_vec *bv, struct bvec_iter rest, u8 *tags, bool open)
{
	struct chunk_work *work = work_new(cipher, rec);
	int err = 0;

	if (!work)
		return -ENOMEM;
	for (; rest.bi_size && !err; chunk++, tags += KVBLK_TAG_BYTES) {
		kvblk_nonce_fill(&work->nonce, rec->seq, chunk);
		err = work_take(work, bv, &rest, tags, open);
		if (!err)
			err = crypto_wait_req(open ? crypto_aead_decrypt(&work->req) :
						     crypto_aead_encrypt(&work->req), &work->wait);
		cond_resched();
	}
	kfree_sensitive(work);
	return err;
}

int kvblk_cipher_seal(struct kvblk_cipher *cipher, const struct kvblk_rec *rec, u32 first,
		      const struct bio_vec *bv, struct bvec_iter part, u8 *tags)
{
	return chunks_crypt(cipher, rec, first, bv, part, tags, false);
}

int kvblk_cipher_open(struct kvblk_cipher *cipher, const struct kvblk_rec *rec, u32 first,
		      const struct bio_vec *bv, struct bvec_iter part, u8 *tags)
{
	return chunks_crypt(cipher, rec, first, bv, part, tags, true);
}
