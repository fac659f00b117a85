// SPDX-License-Identifier: MIT
/*
 * The C part of the Python package: fills batches from Python's lists in one call, because a
 * call for each field would take longer than the I/O of a block.
 *
 * build_native.py passes the part between the cdef marks to cffi, so that part contains no
 * includes. The compiler skips what kvblk.h declares; cffi compares it with kvblk.h.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/queue.h>

#include <kvblk.h>
#include <kvblk_keys.h>

#define KVPY static

/* cdef */
#if 0
#define KVBLK_KEY_MAX ...
#define KVBLK_VALUE_MAX ...
#define KVBLK_PIECES_MAX ...
#define KVBLK_OPS_MAX ...
#define KVBLK_LOOKUP_MAX ...
#define KVBLK_OP_PUT ...
#define KVBLK_OP_GET ...
#define KVBLK_OP_DELETE ...
#define KVBLK_OP_PREFETCH ...
#define KVBLK_OPF_PARTIAL ...
#define KVBLK_OPF_LAYOUT ...
#define KVBLK_OPF_HARD_DEADLINE ...
#define KVBLK_OPF_DURABLE ...
#define KVBLK_OPF_PRIORITY ...
#define KVBLK_OPF_RETAIN ...
#define KVBLK_OPF_DEMOTE ...
#define KVBLK_OPF_RELEASE ...
#define KVBLK_OPF_CALLER_CHECKS ...
#define KVBLK_FEAT_CALLER_CHECKS ...
#define KVBLK_CHECK_HEADER ...
#define KVBLK_HINT_CONTINUES ...
#define KVBLK_HINT_MISSED ...
#define KVBLK_RES_LEN_DIFFERS ...
#define KVBLK_LOOKUP_LEASE ...
#define KVBLK_LOOKUP_PREFIX ...
#define KVBLK_LOOKUP_QUIET ...
#define KVBLK_FEAT_TIMES ...
#define KVBLK_OPEN_RDONLY ...
#define KVBLK_DO_NOTHING ...
#define KVBLK_DO_RETRY ...
#define KVBLK_DO_SKIP ...
#define KVBLK_DO_RECOMPUTE ...
#define KVBLK_DO_REPORT ...

struct kvblk_info {
	uint32_t size;
	uint32_t tenant;
	uint32_t pool_flags;
	uint64_t features;
	uint32_t value_max;
	uint32_t key_max;
	uint32_t pieces_max;
	uint32_t ops_max;
	uint32_t lookup_max;
	uint32_t dma_align;
	uint32_t chunk_size;
	uint32_t lease_ms_max;
	uint64_t capacity;
	uint8_t pool_uuid[16];
	char pool_name[32];
	uint32_t checksum;
	uint32_t integrity;
	...;
};

struct kvblk_mem_options {
	uint32_t size;
	uint32_t lanes;
	uint64_t block_max;
	...;
};

struct kvblk_mem_info {
	uint32_t size;
	uint32_t kind;
	...;
};

struct kvblk_prestage_options {
	uint32_t size;
	uint32_t lease_ms;
	uint64_t max_bytes;
	uint64_t deadline_ns;
	uint64_t cookie;
	uint32_t priority;
	uint32_t stop_at_miss;
	...;
};

struct kvblk_hint {
	uint32_t size;
	uint32_t flags;
	uint32_t priority;
	uint32_t retain_s;
	...;
};

struct kvblk_prestaged {
	uint32_t state;
	uint32_t length;
};

struct kvblk_prestage_sum {
	uint32_t size;
	uint32_t nr_leading;
	uint32_t nr_here;
	uint32_t nr_leased;
	uint64_t loaded_bytes;
	uint64_t lease;
	uint64_t lease_end_ns;
	...;
};

const char *kvblk_version(void);
const char *kvblk_result_text(int res);
int kvblk_result_action(int res);
int kvblk_open(const char *pool, unsigned int flags, struct kvblk **handle);
int kvblk_open_fd(int fd, struct kvblk **handle);
void kvblk_close(struct kvblk *kv);
int kvblk_fd(const struct kvblk *kv);
int kvblk_get_info(struct kvblk *kv, struct kvblk_info *info, size_t size);
int kvblk_lease_release(struct kvblk *kv, uint64_t lease);
int kvblk_cancel(struct kvblk *kv, uint64_t cookie, unsigned int *nr_found);
int kvblk_drain(struct kvblk *kv, uint64_t deadline_ns);
int kvblk_mem_register(struct kvblk *kv, void *addr, size_t len,
		       const struct kvblk_mem_options *options, struct kvblk_mem **mem);
int kvblk_mem_alloc(struct kvblk *kv, const char *from, size_t len,
		    const struct kvblk_mem_options *options, struct kvblk_mem **mem);
void kvblk_mem_unregister(struct kvblk_mem *mem);
void *kvblk_mem_addr(const struct kvblk_mem *mem);
int kvblk_mem_get_info(const struct kvblk_mem *mem, struct kvblk_mem_info *info);
const char *kvblk_prestage_state_name(unsigned int state);
int kvblk_prestage(struct kvblk *kv, const void *keys, const uint16_t *key_lens,
		   unsigned int nr_keys, const struct kvblk_prestage_options *options,
		   struct kvblk_prestaged *prestaged, struct kvblk_prestage_sum *sum);
int kvblk_hint_keys(struct kvblk *kv, const void *keys, const uint16_t *key_lens,
		    unsigned int nr_keys, const struct kvblk_hint *hint,
		    unsigned int *nr_present);
int kvblk_keyspace_salt(const char *path, char *salt, const char **why);
#endif

struct kvblk;
struct kvblk_mem;
struct kvpy_queue;

struct kvpy_batch {
	unsigned int nr;
	unsigned int left;	/* operations without a result */
	int32_t *res;		/* entry per operation, like the arrays below */
	uint32_t *flags;
	uint32_t *lens;
	uint64_t *layout_tags;
};

struct kvpy_options {
	uint8_t opcode;
	uint8_t priority;
	uint8_t chain;
	uint32_t op_flags;
	uint32_t ttl_s;
	uint32_t offset;
	uint32_t hints;
	uint64_t layout_tag;
	uint64_t caller_tag;
	uint64_t deadline_ns;
	uint32_t chunk;		/* bytes under a checksum that a GPU computes; 0: none does */
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
	uint64_t lease_end_ns;
};

struct kvpy_result {
	int32_t res;
	uint32_t flags;
	uint32_t value_len;
};

KVPY int kvpy_lookup(struct kvblk *kv, unsigned int nr, const char *keys, uint32_t stride,
		     const uint16_t *lens, unsigned int flags, unsigned int lease_ms,
		     uint8_t *bitmap, uint32_t *sizes, uint64_t *tags, uint8_t *tiers,
		     uint32_t *times, struct kvpy_lookup *answer);
KVPY struct kvpy_batch *kvpy_batch_new(const struct kvpy_options *options, unsigned int nr,
				       const char *keys, const uint16_t *key_lens,
				       const char *parent, unsigned int parent_len,
				       const uint16_t *nr_pieces, unsigned int all_pieces,
				       const uint64_t *places, const uint64_t *mems,
				       const struct kvpy_ranges *ranges);
KVPY void kvpy_batch_free(struct kvpy_batch *batch);
KVPY void kvpy_batch_run(struct kvblk *kv, struct kvpy_batch *batch);
KVPY void kvpy_batch_checksums(struct kvblk *kv, struct kvpy_batch *batch);
KVPY void kvpy_batch_verify(struct kvblk *kv, struct kvpy_batch *batch);
KVPY int kvpy_gpu_sums(struct kvblk *kv, uint64_t mem);
KVPY void kvpy_one(struct kvblk *kv, uint8_t opcode, const char *key, unsigned int key_len,
		   uint64_t addr, uint64_t len, uint64_t mem, uint8_t priority,
		   uint32_t ttl_s, uint64_t deadline_ns, struct kvpy_result *result);
KVPY int kvpy_queue_create(struct kvblk *kv, unsigned int threads, struct kvpy_queue **queue);
KVPY int kvpy_queue_eventfd(const struct kvpy_queue *queue);
KVPY void kvpy_queue_start(struct kvpy_queue *queue, struct kvpy_batch *batch);
KVPY void kvpy_queue_collect(struct kvpy_queue *queue);
KVPY struct kvpy_batch *kvpy_queue_take(struct kvpy_queue *queue);
KVPY int kvpy_queue_cancel(struct kvpy_queue *queue, struct kvpy_batch *batch);
KVPY int kvpy_queue_drain(struct kvpy_queue *queue, uint64_t deadline_ns);
KVPY void kvpy_queue_stop(struct kvpy_queue *queue);
KVPY void kvpy_queue_destroy(struct kvpy_queue *queue);
KVPY int kvpy_keyspace(uint8_t *prefix, const char *runtime, const char *model,
		       const char *tokenizer, const char *dtype, const char *layout,
		       const char *salt, const char *secret, uint32_t block_tokens,
		       const uint32_t *ranks);
KVPY void kvpy_block_id(const char *parent, const uint32_t *tokens, size_t nr_tokens,
			const char *extra, size_t extra_len, uint8_t *id);
/* end of cdef */

#define FIND	1	/* search @ranges; no handle has this value, because handles are addresses */

/* Operations of a batch that one call submits: up to KVBLK_OPS_MAX. */
struct chunk {
	struct batch *batch;
	unsigned int first;	/* index in batch->ops */
	unsigned int nr;
};

/* A batch of any length; Python sees only the first field. */
struct batch {
	struct kvpy_batch seen;
	STAILQ_ENTRY(batch) next;	/* in queue->backlog or queue->done */
	unsigned int flags;	/* of kvblk_submit() */
	unsigned int nr_ops;	/* valid operations; the others of @seen.nr have an error in @seen.res */
	unsigned int nr_chunks;
	unsigned int begun;	/* chunks submitted to a queue */
	unsigned int *place;	/* index of each valid operation in @seen */
	struct chunk *chunks;
	struct kvblk_op *ops;
	struct kvblk_op_ext *exts;
};

STAILQ_HEAD(batches, batch);

/* A queue of batches, protected by a lock of Python, except for kvpy_queue_drain(). */
struct kvpy_queue {
	struct kvblk_queue *queue;
	int event;
	struct batches backlog;	/* batches with chunks that did not fit into @queue */
	struct batches done;	/* batches for kvpy_queue_take() */
};

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

/* Return the extension of an operation; attach @ext if it has none. */
static struct kvblk_op_ext *ext_of(struct kvblk_op *op, struct kvblk_op_ext *ext)
{
	if (!op->ext)
		kvblk_prep_ext(op, ext);
	return ext;
}

static void set_options(struct kvblk_op *op, struct kvblk_op_ext *ext, const struct kvpy_options *o)
{
	op->opcode = o->opcode;
	op->priority = o->priority;
	op->flags = o->op_flags;
	op->ttl_s = o->ttl_s;
	op->offset = o->offset;
	op->deadline_ns = o->deadline_ns;
	if (!o->layout_tag && !o->caller_tag && !o->hints && !(o->op_flags & KVBLK_OPF_LAYOUT))
		return;
	ext_of(op, ext);
	ext->layout_tag = o->layout_tag;
	ext->caller_tag = o->caller_tag;
	ext->hints = o->hints;
}

static void set_parent(struct kvblk_op *op, struct kvblk_op_ext *ext, const char *parent,
		       unsigned int len)
{
	ext_of(op, ext);
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
	if (!low || len > ranges->lens[low - 1] ||
	    *addr - ranges->starts[low - 1] > ranges->lens[low - 1] - len)
		return NULL;
	*addr -= ranges->starts[low - 1];
	return (struct kvblk_mem *)(uintptr_t)ranges->handles[low - 1];
}

/* Returns the number of checksums of an operation with these pieces. */
static size_t sums_of(const struct kvpy_options *o, const uint64_t *places, unsigned int nr_pieces)
{
	uint64_t len = o->chunk ? o->offset % o->chunk : 0;

	for (unsigned int i = 0; i < nr_pieces; i++)
		len += places[2 * i + 1];
	len = o->chunk ? (len + o->chunk - 1) / o->chunk : 0;
	return len < KVBLK_CHECKSUMS_MAX ? len : KVBLK_CHECKSUMS_MAX;
}

/* Divide the operations of a batch into chunks. */
static void set_chunks(struct batch *b)
{
	for (unsigned int at = 0; at < b->nr_ops; at += KVBLK_OPS_MAX) {
		struct chunk *chunk = &b->chunks[b->nr_chunks++];

		chunk->batch = b;
		chunk->first = at;
		chunk->nr = b->nr_ops - at < KVBLK_OPS_MAX ? b->nr_ops - at : KVBLK_OPS_MAX;
		if (!(b->flags & KVBLK_SUBMIT_CHAIN) || at + chunk->nr == b->nr_ops)
			continue;
		/* or else the pool would take the end of this chunk for the end of a prompt */
		for (unsigned int i = at; i < at + chunk->nr; i++)
			ext_of(&b->ops[i], &b->exts[i])->hints |= KVBLK_HINT_CONTINUES;
	}
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
	unsigned int max_chunks = nr / KVBLK_OPS_MAX + 1;
	struct kvblk_piece *pieces;
	size_t key_bytes = 0, nr_sums = 0;
	const uint64_t *place = places;
	struct batch *b;
	char *at, *key;
	uint32_t *sums;

	for (unsigned int i = 0; i < nr; i++) {
		key_bytes += key_lens[i];
		nr_sums += sums_of(options, place, nr_pieces[i]);
		place += 2 * nr_pieces[i];
	}
	b = calloc(1, sizeof(*b) + room(nr, sizeof(*b->ops)) + room(nr, sizeof(*b->exts)) +
		      room(max_chunks, sizeof(*b->chunks)) + room(all_pieces, sizeof(*pieces)) +
		      room(nr, 4) * 4 + room(nr, 8) + room(nr_sums, 4) + room(key_bytes + parent_len, 1));
	if (!b)
		return NULL;
	at = (char *)(b + 1);
	b->ops = carve(&at, nr, sizeof(*b->ops));
	b->exts = carve(&at, nr, sizeof(*b->exts));
	b->chunks = carve(&at, max_chunks, sizeof(*b->chunks));
	pieces = carve(&at, all_pieces, sizeof(*pieces));
	b->place = carve(&at, nr, 4);
	b->seen.res = carve(&at, nr, 4);
	b->seen.flags = carve(&at, nr, 4);
	b->seen.lens = carve(&at, nr, 4);
	b->seen.layout_tags = carve(&at, nr, 8);
	sums = carve(&at, nr_sums, 4);
	key = at;
	memcpy(key, keys, key_bytes);
	memcpy(key + key_bytes, parent, parent_len);
	b->seen.nr = nr;
	b->flags = options->chain ? KVBLK_SUBMIT_CHAIN : 0;

	for (unsigned int i = 0; i < nr; i++, key += key_lens[i - 1]) {
		struct kvblk_op *op = &b->ops[b->nr_ops];
		struct kvblk_op_ext *ext = &b->exts[b->nr_ops];
		int err = 0;

		kvblk_prep_put(op, key, key_lens[i], nr_pieces[i] ? pieces : NULL, nr_pieces[i]);
		set_options(op, ext, options);
		if (!i && parent_len)
			set_parent(op, ext, at + key_bytes, parent_len);
		else if (i && options->chain)
			set_parent(op, ext, key - key_lens[i - 1], key_lens[i - 1]);
		if (options->chunk && nr_pieces[i]) {
			ext_of(op, ext)->nr_checksums =
				(uint32_t)sums_of(options, places, nr_pieces[i]);
			ext->checksums = (uintptr_t)sums;
			sums += ext->nr_checksums;
		}
		for (unsigned int j = 0; j < nr_pieces[i]; j++) {
			uint64_t addr = *places++, len = *places++, handle = *mems++;
			struct kvblk_mem *mem = (struct kvblk_mem *)(uintptr_t)handle;
			int refused;

			if (handle == FIND)
				mem = find(ranges, &addr, len);
			refused = kvblk_prep_piece(pieces++, mem, addr, len);
			err = err ? err : refused;
		}
		b->seen.res[i] = err;
		if (!err)
			b->place[b->nr_ops++] = i;
	}
	b->seen.left = b->nr_ops;
	set_chunks(b);
	return &b->seen;
}

KVPY void kvpy_batch_free(struct kvpy_batch *batch)
{
	free(batch);
}

/* Fail all operations of a chunk. */
static void chunk_fail(const struct chunk *chunk, int err)
{
	struct batch *b = chunk->batch;

	for (unsigned int i = 0; i < chunk->nr; i++)
		b->seen.res[b->place[chunk->first + i]] = err;
	b->seen.left -= chunk->nr;
}

/* Set the result of a valid operation. */
static void seen_set(struct batch *b, unsigned int op, const struct kvblk_result *result)
{
	unsigned int at = b->place[op];

	b->seen.res[at] = result->res;
	b->seen.flags[at] = result->flags;
	b->seen.lens[at] = result->value_len;
	b->seen.layout_tags[at] = result->layout_tag;
}

/* Run a batch, chunk by chunk. An error of a whole chunk is the result of its operations. */
KVPY void kvpy_batch_run(struct kvblk *kv, struct kvpy_batch *batch)
{
	struct batch *b = (struct batch *)batch;
	unsigned int most = b->nr_ops < KVBLK_OPS_MAX ? b->nr_ops : KVBLK_OPS_MAX;
	struct kvblk_result *results = calloc(most, sizeof(*results));

	for (unsigned int c = 0; c < b->nr_chunks; c++) {
		const struct chunk *chunk = &b->chunks[c];
		int err = -ENOMEM;

		if (results)
			err = kvblk_submit(kv, b->ops + chunk->first, chunk->nr, results, b->flags);
		if (err) {
			chunk_fail(chunk, err);
			continue;
		}
		for (unsigned int i = 0; i < chunk->nr; i++)
			seen_set(b, chunk->first + i, &results[i]);
		b->seen.left -= chunk->nr;
	}
	free(results);
}

/* Compute the checksums of puts on the GPU. If it cannot, the kernel does. */
KVPY void kvpy_batch_checksums(struct kvblk *kv, struct kvpy_batch *batch)
{
	struct batch *b = (struct batch *)batch;

	if (!b->nr_ops || !kvblk_gpu_checksums(kv, b->ops, b->nr_ops, NULL))
		return;
	for (unsigned int i = 0; i < b->nr_ops; i++) {
		b->exts[i].checksums = 0;
		b->exts[i].nr_checksums = 0;
	}
}

/* Verify a completed batch of gets on the GPU. */
KVPY void kvpy_batch_verify(struct kvblk *kv, struct kvpy_batch *batch)
{
	struct batch *b = (struct batch *)batch;
	struct kvblk_result *results = calloc(b->nr_ops, sizeof(*results));

	for (unsigned int i = 0; i < b->nr_ops; i++) {
		unsigned int at = b->place[i];

		if (results)
			results[i] = (struct kvblk_result){
				.res = b->seen.res[at],
				.flags = b->seen.flags[at],
				.value_len = b->seen.lens[at],
				.layout_tag = b->seen.layout_tags[at],
			};
		else if (b->seen.res[at] > 0)
			b->seen.res[at] = -ENOMEM;
	}
	if (!results)
		return;
	kvblk_gpu_verify(kv, b->ops, b->nr_ops, results, sizeof(*results), NULL);
	for (unsigned int i = 0; i < b->nr_ops; i++)
		seen_set(b, i, &results[i]);
	free(results);
}

/* Returns 1 if a GPU computes checksums of this registered memory, else 0. */
KVPY int kvpy_gpu_sums(struct kvblk *kv, uint64_t mem)
{
	struct kvblk_piece piece;
	struct kvblk_op_ext ext;
	struct kvblk_op op;
	uint32_t sum;

	if (kvblk_prep_piece(&piece, (struct kvblk_mem *)(uintptr_t)mem, 0, 1))
		return 0;
	kvblk_prep_put(&op, "", 1, &piece, 1);
	kvblk_prep_ext(&op, &ext);
	ext.checksums = (uintptr_t)&sum;
	ext.nr_checksums = 1;
	return !kvblk_gpu_checksums(kv, &op, 1, NULL);
}

/* Run one operation on one piece, without an allocation. */
KVPY void kvpy_one(struct kvblk *kv, uint8_t opcode, const char *key, unsigned int key_len,
		   uint64_t addr, uint64_t len, uint64_t mem, uint8_t priority,
		   uint32_t ttl_s, uint64_t deadline_ns, struct kvpy_result *result)
{
	struct kvblk_result got = { 0 };
	struct kvblk_piece piece;
	struct kvblk_op op;
	int err = kvblk_prep_piece(&piece, (struct kvblk_mem *)(uintptr_t)mem, addr, len);

	if (!err) {
		kvblk_prep_put(&op, key, key_len, &piece, 1);
		op.opcode = opcode;
		op.priority = priority;
		op.ttl_s = ttl_s;
		op.deadline_ns = deadline_ns;
		err = kvblk_submit(kv, &op, 1, &got, 0);
	}
	*result = (struct kvpy_result){
		.res = err ? err : got.res,
		.flags = got.flags,
		.value_len = got.value_len,
	};
}

KVPY int kvpy_queue_create(struct kvblk *kv, unsigned int threads, struct kvpy_queue **queue)
{
	const struct kvblk_queue_options options = {
		.size = sizeof(options),
		.depth = KVBLK_QUEUE_DEPTH_MAX,
		.threads = threads,
	};
	struct kvpy_queue *q = calloc(1, sizeof(*q));
	int err;

	if (!q)
		return -ENOMEM;
	STAILQ_INIT(&q->backlog);
	STAILQ_INIT(&q->done);
	err = kvblk_queue_create(kv, &options, &q->queue);
	if (err)
		goto free;
	q->event = kvblk_queue_eventfd(q->queue);
	if (q->event < 0) {
		err = q->event;
		goto destroy;
	}
	*queue = q;
	return 0;
destroy:
	kvblk_queue_destroy(q->queue);
free:
	free(q);
	return err;
}

KVPY int kvpy_queue_eventfd(const struct kvpy_queue *queue)
{
	return queue->event;
}

/* Make the eventfd readable if there are batches to take. kvblk_queue_wait() resets it. */
static void queue_wake(const struct kvpy_queue *q)
{
	if (!STAILQ_EMPTY(&q->done))
		eventfd_write(q->event, 1);
}

/* Submit chunks of the backlog until the queue is full. */
static void queue_fill(struct kvpy_queue *q)
{
	struct batch *b;

	while ((b = STAILQ_FIRST(&q->backlog))) {
		while (b->begun < b->nr_chunks) {
			struct chunk *chunk = &b->chunks[b->begun];
			int err = kvblk_queue_submit(q->queue, b->ops + chunk->first, chunk->nr,
						     b->flags, chunk);

			if (err == -EAGAIN)
				return;
			b->begun++;
			if (err)
				chunk_fail(chunk, err);
		}
		STAILQ_REMOVE_HEAD(&q->backlog, next);
		if (!b->seen.left)
			STAILQ_INSERT_TAIL(&q->done, b, next);
	}
}

KVPY void kvpy_queue_start(struct kvpy_queue *q, struct kvpy_batch *batch)
{
	STAILQ_INSERT_TAIL(&q->backlog, (struct batch *)batch, next);
	queue_fill(q);
	queue_wake(q);
}

static void queue_complete(struct kvpy_queue *q, const struct kvblk_completion *c)
{
	struct chunk *chunk = c->tag;
	struct batch *b = chunk->batch;
	unsigned int at = b->place[chunk->first + c->index];

	b->seen.res[at] = c->res;
	b->seen.flags[at] = c->flags;
	b->seen.lens[at] = c->value_len;
	b->seen.layout_tags[at] = c->layout_tag;
	/* a batch of the backlog has operations left */
	if (!--b->seen.left)
		STAILQ_INSERT_TAIL(&q->done, b, next);
}

static void queue_collect(struct kvpy_queue *q)
{
	struct kvblk_completion completions[64];
	int nr;

	while ((nr = kvblk_queue_wait(q->queue, completions, 64, 0, 0)) > 0) {
		for (int i = 0; i < nr; i++)
			queue_complete(q, &completions[i]);
		queue_fill(q);
	}
}

/* Collect completions for kvpy_queue_take(), and submit what did not fit into the queue. */
KVPY void kvpy_queue_collect(struct kvpy_queue *q)
{
	queue_collect(q);
	queue_wake(q);
}

/* Return a batch all of whose operations have results, or NULL. */
KVPY struct kvpy_batch *kvpy_queue_take(struct kvpy_queue *q)
{
	struct batch *b;

	if (STAILQ_EMPTY(&q->done))
		queue_collect(q);
	b = STAILQ_FIRST(&q->done);
	if (!b)
		return NULL;
	STAILQ_REMOVE_HEAD(&q->done, next);
	return &b->seen;
}

/* Cancel the chunks of a batch that were not submitted. */
static void backlog_cancel(struct kvpy_queue *q, struct batch *b)
{
	STAILQ_REMOVE(&q->backlog, b, batch, next);
	while (b->begun < b->nr_chunks)
		chunk_fail(&b->chunks[b->begun++], -ECANCELED);
	if (!b->seen.left)
		STAILQ_INSERT_TAIL(&q->done, b, next);
}

/* Cancel a batch that was not taken. Returns 1 if an operation can be canceled, else 0. */
KVPY int kvpy_queue_cancel(struct kvpy_queue *q, struct kvpy_batch *batch)
{
	struct batch *b = (struct batch *)batch;
	unsigned int begun = b->begun;
	int found = begun < b->nr_chunks;

	if (found)
		backlog_cancel(q, b);
	for (unsigned int i = 0; i < begun; i++)
		found |= !kvblk_queue_cancel(q->queue, &b->chunks[i]);
	queue_wake(q);
	return found;
}

KVPY int kvpy_queue_drain(struct kvpy_queue *q, uint64_t deadline_ns)
{
	return kvblk_queue_drain(q->queue, deadline_ns);
}

/* Cancel all batches, and refuse others. May be repeated. */
KVPY void kvpy_queue_stop(struct kvpy_queue *q)
{
	while (!STAILQ_EMPTY(&q->backlog))
		backlog_cancel(q, STAILQ_FIRST(&q->backlog));
	kvblk_queue_stop(q->queue);
	queue_wake(q);
}

KVPY void kvpy_queue_destroy(struct kvpy_queue *q)
{
	kvblk_queue_destroy(q->queue);
	free(q);
}

/* @stride: length of all keys, or 0 to use @lens. */
KVPY int kvpy_lookup(struct kvblk *kv, unsigned int nr, const char *keys, uint32_t stride,
		     const uint16_t *lens, unsigned int flags, unsigned int lease_ms,
		     uint8_t *bitmap, uint32_t *sizes, uint64_t *tags, uint8_t *tiers,
		     uint32_t *times, struct kvpy_lookup *answer)
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
		.tiers = (uintptr_t)tiers,
		.lease_ms = lease_ms,
		.times = (uintptr_t)times,
	};
	int err = kvblk_lookup_keys(kv, &lookup, sizeof(lookup));

	if (err)
		return err;
	*answer = (struct kvpy_lookup){
		.nr_leading = lookup.nr_leading,
		.nr_present = lookup.nr_present,
		.nr_leased = lookup.nr_leased,
		.lease = lookup.lease,
		.lease_end_ns = lookup.lease_end_ns,
	};
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

KVPY void kvpy_block_id(const char *parent, const uint32_t *tokens, size_t nr_tokens,
			const char *extra, size_t extra_len, uint8_t *id)
{
	kvblk_block_id((const uint8_t *)parent, tokens, nr_tokens, extra, extra_len, id);
}
