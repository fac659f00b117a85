// SPDX-License-Identifier: GPL-2.0
/* The choice of a get's sink, and the last resort: kernel memory for the whole payload. */
#include "memory/cipher.h"
#include "read/read.h"

static int copy_prepare(struct kvblk_req *req)
{
	return kvblk_req_mem_alloc(req, kvblk_read_end(req) - req->read.from,
				   kvblk_read_restarted(req));
}

static int copy_deliver(struct kvblk_req *req)
{
	return kvblk_vectors_copy(&req->mem.bv[1], req->op.offset - req->read.from, req->read.want,
				  &req->src, false);
}

/*
 * Decrypts all chunks that were read, in place. Returns 0, -EBADMSG, -ENOMEM, or -ENOENT if the
 * tenant's key is gone.
 */
static noinline int copy_decrypt(struct kvblk_req *req)
{
	const struct kvblk_rec rec = kvblk_record_unpack(req->header);
	const u32 first = req->read.from >> KVBLK_CHUNK_SHIFT;
	struct kvblk_cipher *cipher;
	int err;

	cipher = kvblk_tenant_cipher(req->pool, req->tenant, rec.activation, rec.key_epoch);
	if (IS_ERR(cipher)) {
		err = PTR_ERR(cipher);
	} else {
		err = kvblk_cipher_open(cipher, &rec, first, req->mem.bv,
					kvblk_mem_payload(&req->mem),
					kvblk_header_tags(req->header) + first * KVBLK_TAG_BYTES);
		kvblk_cipher_put(cipher);
	}
	if (!err || err == -EBADMSG || err == -ENOMEM)
		return err;
	return kvblk_read_miss(req, KVBLK_C_MISS_UNPROVEN);
}

static int copy_check(struct kvblk_req *req)
{
	return unlikely(kvblk_proofs[req->integrity].tags) ? copy_decrypt(req) :
							     kvblk_sink_check(req);
}

const struct kvblk_sink kvblk_sink_copy = {
	.cpu_sees = true,
	.prepare = copy_prepare,
	.check = copy_check,
	.finish = kvblk_sink_try,	/* for the second read of a trial */
	.deliver = copy_deliver,
};

/* In order of preference. Each but the last may be unsuitable. */
static const struct kvblk_sink *const sinks[] = {
	&kvblk_sink_dram,
	&kvblk_sink_direct,
	&kvblk_sink_bounce,
	&kvblk_sink_copy,
};

int kvblk_sink_prepare(struct kvblk_req *req)
{
	/* the first one is DRAM: a pool without needs no indirect call to find it unsuitable */
	u32 i = !READ_ONCE(req->pool->tun.dram_bytes);
	int err;

	/* an encrypted payload is decrypted in place before any of it is delivered */
	if (req->read.state == KVBLK_READ_AGAIN || kvblk_req_encrypted(req))
		i = ARRAY_SIZE(sinks) - 1;
	do {
		req->read.sink = sinks[i];
		err = req->read.sink->prepare(req);
	} while (err == -EREMOTEIO && ++i < ARRAY_SIZE(sinks));
	return err;
}
