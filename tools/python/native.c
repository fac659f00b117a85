// SPDX-License-Identifier: MIT
/*
 * The C part of the Python package: fills batches from Python's lists in one call, because a
 * call for each field would take longer than the I/O of a block.
 *
 * build_native.py passes the part between the cdef marks to cffi, so that part contains neither
 * macros nor includes.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <kvblk.h>
#include <kvblk_keys.h>

#define KVPY static

/* cdef */
struct kvblk;
struct kvblk_mem;
struct kvblk_async;

struct kvpy_batch {
	int err;		/* result of the batch as a whole, valid after it ran */
	unsigned int nr;
	int32_t *res;		/* entry per operation, like the arrays below */
	uint32_t *flags;
	uint32_t *lens;
	uint64_t *layout_tags;
	uint64_t *caller_tags;
};

struct kvpy_options {
	uint8_t opcode;
	uint8_t priority;
	uint32_t op_flags;
	uint32_t ttl_s;
	uint32_t offset;
	uint32_t submit_flags;
	uint32_t hints;
	uint64_t cookie;
	uint64_t layout_tag;
	uint64_t caller_tag;
	uint64_t deadline_ns;
	uint64_t session;
};

struct kvpy_info {
	char pool_name[32];
	unsigned char pool_uuid[16];
	uint64_t features;
	uint64_t capacity;
	uint32_t value_max;
	uint32_t ops_max;
	uint32_t lookup_max;
	uint32_t lease_ms_max;
	uint32_t dma_align;
	uint32_t chunk_size;
};

/* Registered memory, sorted by address. */
struct kvpy_ranges {
	unsigned int nr;
	const uint64_t *starts;
	const uint64_t *lens;
	const uint64_t *handles;
};

struct kvpy_lookup {
	uint32_t nr_leading;
	uint32_t nr_present;
	uint32_t nr_leased;
	uint64_t lease;
};

struct kvpy_prefetch {
	uint64_t max_bytes;
	uint64_t deadline_ns;
	uint64_t cookie;
	uint32_t lease_ms;
	uint8_t stop_at_miss;
	uint8_t priority;
	/* out: */
	uint32_t nr_leading;
	uint32_t nr_here;
	uint32_t nr_leased;
	uint64_t loaded_bytes;
	uint64_t lease;
};

const char *kvblk_version(void);
const char *kvblk_strerror(int err);
int kvblk_open(const char *pool, struct kvblk **handle);
void kvblk_close(struct kvblk *kv);
int kvblk_fd(const struct kvblk *kv);
int kvblk_lease_release(struct kvblk *kv, uint64_t lease);
int kvblk_cancel(struct kvblk *kv, uint64_t cookie, unsigned int *nr_found);
int kvblk_drain(struct kvblk *kv, uint64_t deadline_ns);
void kvblk_mem_unregister(struct kvblk_mem *mem);
void *kvblk_mem_addr(const struct kvblk_mem *mem);
unsigned int kvblk_mem_kind(const struct kvblk_mem *mem);
int kvblk_async_create(struct kvblk *kv, unsigned int nr_threads, struct kvblk_async **async);
void kvblk_async_stop(struct kvblk_async *async);
void kvblk_async_destroy(struct kvblk_async *async);
int kvblk_async_eventfd(const struct kvblk_async *async);

KVPY int kvpy_info(struct kvblk *kv, struct kvpy_info *info);
KVPY int kvpy_register(struct kvblk *kv, uint64_t addr, size_t len, size_t block_max,
		       struct kvblk_mem **mem);
KVPY int kvpy_alloc(struct kvblk *kv, const char *from, size_t len, size_t block_max,
		    struct kvblk_mem **mem);
KVPY int kvpy_lookup(struct kvblk *kv, unsigned int nr, const char *keys, uint32_t stride,
		     const uint16_t *lens, unsigned int flags, unsigned int lease_ms,
		     uint8_t *bitmap, uint32_t *sizes, uint64_t *tags, struct kvpy_lookup *answer);
KVPY int kvpy_prefetch(struct kvblk *kv, unsigned int nr, const char *keys, const uint16_t *lens,
		       struct kvpy_prefetch *prefetch, uint32_t *states);
KVPY struct kvpy_batch *kvpy_batch_new(const struct kvpy_options *options, unsigned int nr,
				       const char *keys, const uint16_t *key_lens,
				       const char *parent, unsigned int parent_len,
				       const uint16_t *nr_pieces, unsigned int all_pieces,
				       const uint64_t *places, const uint64_t *mems,
				       const struct kvpy_ranges *ranges);
KVPY void kvpy_batch_free(struct kvpy_batch *batch);
KVPY void kvpy_batch_cancel(struct kvpy_batch *batch);
KVPY int kvpy_batch_run(struct kvblk *kv, struct kvpy_batch *batch);
KVPY int64_t kvpy_one(struct kvblk *kv, uint8_t opcode, const char *key, unsigned int key_len,
		      uint64_t addr, uint64_t len, uint64_t mem, uint8_t priority,
		      uint32_t ttl_s, uint64_t deadline_ns);
KVPY void kvpy_batch_start(struct kvblk_async *async, struct kvpy_batch *batch);
KVPY struct kvpy_batch *kvpy_batch_take(struct kvblk_async *async);
KVPY int kvpy_keyspace(uint8_t *prefix, const char *runtime, const char *model,
		       const char *tokenizer, const char *dtype, const char *layout,
		       const char *salt, const char *secret, uint32_t block_tokens,
		       const uint32_t *ranks);
KVPY int kvpy_salt(const char *path, char *salt, const char **why);
KVPY void kvpy_block_id(const char *parent, const uint32_t *tokens, size_t nr_tokens,
			const char *extra, size_t extra_len, uint8_t *id);
/* end of cdef */

#define FIND	1	/* search @ranges; no handle has this value, because handles are addresses */

/* A batch; Python sees only the first field. */
struct batch {
	struct kvpy_batch seen;
	struct kvblk_job job;
	atomic_bool cancelled;	/* set by any thread, before or during the run */
	unsigned int nr_ops;	/* valid operations; the others of @seen.nr have an error in @seen.res */
	unsigned int *place;	/* index of each valid operation in @seen */
	struct kvblk_op *ops;
	struct kvblk_op_ext *exts;
	struct kvblk_result *results;
	struct kvblk_mem **into;	/* registered destinations of gets, to flush */
	unsigned int nr_into;
};

static struct batch *batch_of(struct kvblk_job *job)
{
	return (struct batch *)((char *)job - offsetof(struct batch, job));
}

static int run(struct kvblk *kv, struct kvblk_job *job)
{
	struct batch *b = batch_of(job);
	int err = 0;

	if (b->cancelled)
		err = -ECANCELED;
	else if (b->nr_ops)
		err = kvblk_mem_submit(kv, b->ops, b->nr_ops, b->results, job->flags);
	/* make the data visible to GPU work that starts after the get */
	for (unsigned int i = 0; i < b->nr_into && !err; i++)
		err = kvblk_mem_flush(b->into[i]);
	b->seen.err = err;
	for (unsigned int i = 0; i < b->nr_ops && !err; i++) {
		unsigned int at = b->place[i];

		b->seen.res[at] = b->results[i].res;
		b->seen.flags[at] = b->results[i].flags;
		b->seen.lens[at] = b->results[i].value_len;
		b->seen.layout_tags[at] = b->results[i].layout_tag;
		b->seen.caller_tags[at] = b->results[i].caller_tag;
	}
	return err;
}

static size_t room(size_t nr, size_t size)
{
	return (nr * size + 7) & ~(size_t)7;
}

/* Take an array of @nr items from the batch's single allocation. */
static void *carve(char **at, size_t nr, size_t size)
{
	char *from = *at;

	*at += room(nr, size);
	return from;
}

static void hand_over(struct kvblk_op *op, struct kvblk_op_ext *ext,
		      const struct kvpy_options *o)
{
	op->opcode = o->opcode;
	op->priority = o->priority;
	op->flags = o->op_flags;
	op->ttl_s = o->ttl_s;
	op->offset = o->offset;
	op->cookie = o->cookie;
	op->layout_tag = o->layout_tag;
	op->caller_tag = o->caller_tag;
	op->deadline_ns = o->deadline_ns;
	if (!o->session && !o->hints)
		return;
	kvblk_prep_ext(op, ext);
	ext->session = o->session;
	ext->hints = o->hints;
}

static void follow(struct kvblk_op *op, struct kvblk_op_ext *ext, const char *parent,
		   unsigned int len)
{
	if (!op->ext)
		kvblk_prep_ext(op, ext);
	ext->parent = (uintptr_t)parent;
	ext->parent_len = len;
}

/*
 * Find the registered memory that contains the bytes at *@addr, and make *@addr an offset into
 * it. Returns NULL if there is none.
 */
static struct kvblk_mem *find(const struct kvpy_ranges *ranges, uint64_t *addr, uint64_t len)
{
	unsigned int low = 0, high = ranges->nr;

	while (low < high) {
		unsigned int middle = low + (high - low) / 2;

		if (ranges->starts[middle] > *addr)
			high = middle;
		else
			low = middle + 1;
	}
	if (!low || len > ranges->lens[low - 1] || *addr - ranges->starts[low - 1] > ranges->lens[low - 1] - len)
		return NULL;
	*addr -= ranges->starts[low - 1];
	return (struct kvblk_mem *)(uintptr_t)ranges->handles[low - 1];
}

static int fill(struct kvblk_piece *piece, uint64_t addr, uint64_t len, struct kvblk_mem *mem)
{
	if (!len || len > UINT32_MAX)
		return len ? -EFBIG : -EINVAL;
	if (mem)
		return kvblk_mem_piece(mem, addr, len, piece);
	kvblk_piece_user(piece, (void *)(uintptr_t)addr, len);
	return 0;
}

/*
 * Build a batch. @places has an address and a length for each piece. @mems has for each piece
 * 0, a handle that the address is an offset into, or FIND: search @ranges. An invalid operation
 * gets its error in @res and is not submitted. Keys and parent are copied; the memory of pieces
 * must stay valid. Returns NULL if there is no memory.
 */
KVPY struct kvpy_batch *kvpy_batch_new(const struct kvpy_options *options, unsigned int nr,
				       const char *keys, const uint16_t *key_lens,
				       const char *parent, unsigned int parent_len,
				       const uint16_t *nr_pieces, unsigned int all_pieces,
				       const uint64_t *places, const uint64_t *mems,
				       const struct kvpy_ranges *ranges)
{
	bool chain = options->submit_flags & KVBLK_SUBMIT_CHAIN;
	struct kvblk_piece *pieces;
	size_t key_bytes = 0;
	struct batch *b;
	char *at, *key;

	for (unsigned int i = 0; i < nr; i++)
		key_bytes += key_lens[i];
	b = calloc(1, sizeof(*b) + room(nr, sizeof(*b->ops)) + room(nr, sizeof(*b->exts)) +
		      room(nr, sizeof(*b->results)) + room(all_pieces, sizeof(*pieces)) +
		      room(all_pieces, sizeof(void *)) + room(nr, 4) * 4 + room(nr, 8) * 2 +
		      room(key_bytes + parent_len, 1));
	if (!b)
		return NULL;
	at = (char *)(b + 1);
	b->ops = carve(&at, nr, sizeof(*b->ops));
	b->exts = carve(&at, nr, sizeof(*b->exts));
	b->results = carve(&at, nr, sizeof(*b->results));
	pieces = carve(&at, all_pieces, sizeof(*pieces));
	b->into = carve(&at, all_pieces, sizeof(void *));
	b->place = carve(&at, nr, 4);
	b->seen.res = carve(&at, nr, 4);
	b->seen.flags = carve(&at, nr, 4);
	b->seen.lens = carve(&at, nr, 4);
	b->seen.layout_tags = carve(&at, nr, 8);
	b->seen.caller_tags = carve(&at, nr, 8);
	key = at;
	memcpy(key, keys, key_bytes);
	memcpy(key + key_bytes, parent, parent_len);
	/* the result of a batch that never runs */
	b->seen.err = -ECANCELED;
	b->seen.nr = nr;

	for (unsigned int i = 0; i < nr; i++, key += key_lens[i - 1]) {
		struct kvblk_op *op = &b->ops[b->nr_ops];
		struct kvblk_op_ext *ext = &b->exts[b->nr_ops];
		int err = 0;

		kvblk_prep_put(op, key, key_lens[i], nr_pieces[i] ? pieces : NULL, nr_pieces[i]);
		hand_over(op, ext, options);
		if (!i && parent_len)
			follow(op, ext, at + key_bytes, parent_len);
		else if (i && chain)
			follow(op, ext, key - key_lens[i - 1], key_lens[i - 1]);
		for (unsigned int j = 0; j < nr_pieces[i]; j++) {
			uint64_t addr = *places++, len = *places++, handle = *mems++;
			struct kvblk_mem *mem = handle == FIND ? find(ranges, &addr, len) :
								 (struct kvblk_mem *)(uintptr_t)handle;
			int refused = fill(pieces++, addr, len, mem);

			err = err ? err : refused;
			if (mem && options->opcode == KVBLK_OP_GET &&
			    (!b->nr_into || b->into[b->nr_into - 1] != mem))
				b->into[b->nr_into++] = mem;
		}
		b->seen.res[i] = err;
		if (!err)
			b->place[b->nr_ops++] = i;
	}
	b->job.ops = b->ops;
	b->job.nr_ops = b->nr_ops;
	b->job.flags = options->submit_flags;
	b->job.results = b->results;
	b->job.run = run;
	return &b->seen;
}

KVPY void kvpy_batch_free(struct kvpy_batch *batch)
{
	free(batch);
}

/* Cancel a batch that has not started; kvblk_cancel() cancels operations in the kernel. */
KVPY void kvpy_batch_cancel(struct kvpy_batch *batch)
{
	((struct batch *)batch)->cancelled = true;
}

KVPY int kvpy_batch_run(struct kvblk *kv, struct kvpy_batch *batch)
{
	return run(kv, &((struct batch *)batch)->job);
}

/*
 * Run one operation on one piece, without an allocation. Returns the result flags in the upper
 * 32 bits and the result in the lower ones, or a negative errno of the whole batch.
 */
KVPY int64_t kvpy_one(struct kvblk *kv, uint8_t opcode, const char *key, unsigned int key_len,
		      uint64_t addr, uint64_t len, uint64_t mem, uint8_t priority,
		      uint32_t ttl_s, uint64_t deadline_ns)
{
	struct kvblk_result result = { 0 };
	struct kvblk_piece piece;
	struct kvblk_op op;
	int err = fill(&piece, addr, len, (struct kvblk_mem *)(uintptr_t)mem);

	if (err)
		return (uint32_t)err;
	kvblk_prep_put(&op, key, key_len, &piece, 1);
	op.opcode = opcode;
	op.priority = priority;
	op.ttl_s = ttl_s;
	op.deadline_ns = deadline_ns;
	err = kvblk_mem_submit(kv, &op, 1, &result, 0);
	/* make the data visible to GPU work that starts after the get */
	if (!err && mem && opcode == KVBLK_OP_GET)
		err = kvblk_mem_flush((struct kvblk_mem *)(uintptr_t)mem);
	return err ? err : (int64_t)((uint64_t)result.flags << 32 | (uint32_t)result.res);
}

KVPY void kvpy_batch_start(struct kvblk_async *async, struct kvpy_batch *batch)
{
	kvblk_async_submit(async, &((struct batch *)batch)->job);
}

KVPY struct kvpy_batch *kvpy_batch_take(struct kvblk_async *async)
{
	struct kvblk_job *job = kvblk_async_take(async);

	return job ? &batch_of(job)->seen : NULL;
}

KVPY int kvpy_info(struct kvblk *kv, struct kvpy_info *info)
{
	struct kvblk_info from;
	int err = kvblk_info(kv, &from);

	if (err)
		return err;
	memcpy(info->pool_name, from.pool_name, sizeof(info->pool_name));
	memcpy(info->pool_uuid, from.pool_uuid, sizeof(info->pool_uuid));
	info->features = from.features;
	info->capacity = from.capacity;
	info->value_max = from.value_max;
	info->ops_max = from.ops_max;
	info->lookup_max = from.lookup_max;
	info->lease_ms_max = from.lease_ms_max;
	info->dma_align = from.dma_align;
	info->chunk_size = from.chunk_size;
	return 0;
}

KVPY int kvpy_register(struct kvblk *kv, uint64_t addr, size_t len, size_t block_max,
		       struct kvblk_mem **mem)
{
	const struct kvblk_mem_options options = { .block_max = block_max };

	return kvblk_mem_register(kv, (void *)(uintptr_t)addr, len, &options, mem);
}

KVPY int kvpy_alloc(struct kvblk *kv, const char *from, size_t len, size_t block_max,
		    struct kvblk_mem **mem)
{
	const struct kvblk_mem_options options = { .block_max = block_max };

	return kvblk_mem_alloc(kv, from, len, &options, mem);
}

/* @stride: length of all keys, or 0 to use @lens. */
KVPY int kvpy_lookup(struct kvblk *kv, unsigned int nr, const char *keys, uint32_t stride,
		     const uint16_t *lens, unsigned int flags, unsigned int lease_ms,
		     uint8_t *bitmap, uint32_t *sizes, uint64_t *tags, struct kvpy_lookup *answer)
{
	struct kvblk_lookup lookup = {
		.flags = flags,
		.nr_keys = nr,
		.key_stride = stride,
		.keys = (uintptr_t)keys,
		.key_lens = stride ? 0 : (uintptr_t)lens,
		.bitmap = (uintptr_t)bitmap,
		.sizes = (uintptr_t)sizes,
		.caller_tags = (uintptr_t)tags,
		.lease_ms = lease_ms,
	};
	int err = kvblk_lookup(kv, &lookup);

	if (err)
		return err;
	*answer = (struct kvpy_lookup){
		.nr_leading = lookup.nr_leading,
		.nr_present = lookup.nr_present,
		.nr_leased = lookup.nr_leased,
		.lease = lookup.lease,
	};
	return 0;
}

/* @states: &enum kvblk_prefetch_state of each key. */
KVPY int kvpy_prefetch(struct kvblk *kv, unsigned int nr, const char *keys, const uint16_t *lens,
		       struct kvpy_prefetch *prefetch, uint32_t *states)
{
	const struct kvblk_prefetch_options options = {
		.max_bytes = prefetch->max_bytes,
		.deadline_ns = prefetch->deadline_ns,
		.cookie = prefetch->cookie,
		.lease_ms = prefetch->lease_ms,
		.stop_at_miss = prefetch->stop_at_miss,
		.priority = prefetch->priority,
	};
	struct kvblk_prefetched *prefetched = calloc(nr, sizeof(*prefetched));
	struct kvblk_prefetch_sum sum;
	int err = prefetched ? 0 : -ENOMEM;

	if (!err)
		err = kvblk_prefetch(kv, keys, lens, nr, &options, prefetched, &sum);
	for (unsigned int i = 0; i < nr && !err; i++)
		states[i] = prefetched[i].state;
	free(prefetched);
	if (err)
		return err;
	prefetch->nr_leading = sum.nr_leading;
	prefetch->nr_here = sum.nr_here;
	prefetch->nr_leased = sum.nr_leased;
	prefetch->loaded_bytes = sum.loaded_bytes;
	prefetch->lease = sum.lease;
	return 0;
}

/* @prefix: the first KVBLK_KEYSPACE_LEN bytes of all keys. */
KVPY int kvpy_keyspace(uint8_t *prefix, const char *runtime, const char *model,
		       const char *tokenizer, const char *dtype, const char *layout,
		       const char *salt, const char *secret, uint32_t block_tokens,
		       const uint32_t *ranks)
{
	const struct kvblk_keyspace_spec spec = {
		.size = sizeof(spec),
		.runtime = runtime,
		.model = model,
		.tokenizer = tokenizer,
		.dtype = dtype,
		.layout = layout,
		.salt = salt,
		.secret = secret,
		.block_tokens = block_tokens,
		.tp_rank = ranks[0],
		.tp_size = ranks[1],
		.pp_rank = ranks[2],
		.pp_size = ranks[3],
		.cp_rank = ranks[4],
		.cp_size = ranks[5],
	};
	struct kvblk_keyspace space;
	uint8_t key[KVBLK_KEYSPACE_LEN + 1];
	size_t len = sizeof(key);
	int err = kvblk_keyspace_init(&space, &spec);

	if (err)
		return err;
	err = kvblk_keyspace_key(&space, "", 1, key, &len);
	memcpy(prefix, key, KVBLK_KEYSPACE_LEN);
	return err;
}

/* @salt has room for a salt and its NUL. */
KVPY int kvpy_salt(const char *path, char *salt, const char **why)
{
	return kvblk_keyspace_salt(path, salt, why);
}

KVPY void kvpy_block_id(const char *parent, const uint32_t *tokens, size_t nr_tokens,
			const char *extra, size_t extra_len, uint8_t *id)
{
	kvblk_block_id((const uint8_t *)parent, tokens, nr_tokens, extra, extra_len, id);
}
