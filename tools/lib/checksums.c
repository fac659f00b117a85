// SPDX-License-Identifier: MIT
/*
 * Checksums of blocks in the memory of a GPU, which the GPU computes: crc32c.cu says how.
 *
 * A summer has the code, loaded into a CUDA context, and memory of the host and the GPU for one
 * round: the columns' factors, a checksum for each chunk, and the parts of the chunks. All
 * registrations of a handle's memory in one context share a summer, made at the first use.
 * Operations are summed in rounds.
 */
#include <stdlib.h>
#include <sys/mman.h>

#include "crc32c.h"
#include "cuda.h"
#include "lib.h"

/* any operation fits into a round */
#define SUMS	4096u	/* chunks of a round, at least KVBLK_CHECKSUMS_MAX */
#define PARTS	8192u	/* parts of a round, each the begin of a piece or a chunk */
#define BLOCKS	1024u	/* blocks of a launch: more do not run at once, and each makes a table */
#define REPEATS	64u	/* gets of a batch that repeats them */

/* layout of the memory of a round */
struct round {
	unsigned int columns[CRC_THREADS];
	unsigned int sums[SUMS];
	struct crc_part parts[PARTS];
};

struct kvblk_summer {
	pthread_mutex_t lock;	/* held during a round; protects what follows, and the round */
	void *context;
	void *module, *function, *stream;
	struct round *host;	/* pinned */
	device_ptr device;	/* a copy of the round */
	size_t chunk;		/* bytes under one checksum */
	unsigned int blank;	/* sum of a whole chunk without parts */
	atomic_uint users;	/* registrations and calls */
	bool unsure;		/* a wait failed: the GPU may still use the round */
};

/* code in the virtual instruction set of GPUs, which the driver translates */
static const char code[] =
#include "crc32c.ptx.inc"
;

/* Returns x^(8 * @bytes) mod P. */
static unsigned int power(size_t bytes)
{
	unsigned int product = CRC_ONE;

	for (unsigned int square = CRC_ONE >> 8; bytes; bytes >>= 1) {
		if (bytes & 1)
			product = crc_times(product, square);
		square = crc_times(square, square);
	}
	return product;
}

/* Returns the sum of a chunk without parts: what the initial register becomes. */
static unsigned int blank(size_t bytes)
{
	return ~crc_times(~0u, power(bytes));
}

/* In the summer's context. */
static void summer_free(struct kvblk_summer *summer)
{
	if (summer->stream)
		kvblk_cu.stream_destroy(summer->stream);
	if (summer->device)
		kvblk_cu.free(summer->device);
	if (summer->module)
		kvblk_cu.module_unload(summer->module);
	if (summer->host) {
		kvblk_cu.host_unregister(summer->host);
		munmap(summer->host, sizeof(*summer->host));
	}
}

static int summer_fill(struct kvblk_summer *summer)
{
	struct round *host = mmap(NULL, sizeof(*host), PROT_READ | PROT_WRITE,
				  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int err;

	if (host == MAP_FAILED)
		return -ENOMEM;
	err = kvblk_cu_errno(kvblk_cu.host_register(host, sizeof(*host), HOST_REGISTER_PORTABLE));
	if (err) {
		munmap(host, sizeof(*host));
		return err;
	}
	summer->host = host;
	for (unsigned int i = 0; i < CRC_THREADS; i++)
		host->columns[i] = power(4 * (CRC_THREADS - i));
	err = kvblk_cu_errno(kvblk_cu.module_load(&summer->module, code));
	if (!err)
		err = kvblk_cu_errno(kvblk_cu.module_function(&summer->function, summer->module,
							      "kvblk_crc32c"));
	if (!err)
		err = kvblk_cu_errno(kvblk_cu.alloc(&summer->device, sizeof(*host)));
	if (!err)
		err = kvblk_cu_errno(kvblk_cu.stream_create(&summer->stream, STREAM_NON_BLOCKING));
	return err;
}

int kvblk_summer_create(struct kvblk *kv, void *context, struct kvblk_summer **summer)
{
	struct kvblk_summer *s;
	struct kvblk_info info;
	int err = kvblk_get_info(kv, &info, sizeof(info));

	if (!err && (info.checksum != KVBLK_CHECKSUM_CRC32C ||
		     info.chunk_size < KVBLK_VALUE_MAX / KVBLK_CHECKSUMS_MAX || !kvblk_cu.launch ||
		     !kvblk_cu.module_load || !kvblk_cu.module_function || !kvblk_cu.module_unload))
		err = -EOPNOTSUPP;
	if (err)
		return err;
	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	s->context = context;
	s->chunk = info.chunk_size;
	s->blank = blank(s->chunk);
	s->users = 1;
	pthread_mutex_init(&s->lock, NULL);
	err = kvblk_cu_enter(context);
	if (!err) {
		err = summer_fill(s);
		if (err)
			summer_free(s);
		kvblk_cu_leave();
	}
	if (err) {
		pthread_mutex_destroy(&s->lock);
		free(s);
		return err;
	}
	*summer = s;
	return 0;
}

struct kvblk_summer *kvblk_summer_hold(struct kvblk_summer *summer)
{
	atomic_fetch_add(&summer->users, 1);
	return summer;
}

void kvblk_summer_put(struct kvblk_summer *summer)
{
	if (!summer || atomic_fetch_sub(&summer->users, 1) > 1)
		return;
	/* the GPU may still write to its memory, which therefore stays */
	if (summer->unsure)
		return;
	if (!kvblk_cu_enter(summer->context)) {
		summer_free(summer);
		kvblk_cu_leave();
	}
	pthread_mutex_destroy(&summer->lock);
	free(summer);
}

/* A call: its operations, and the progress of the rounds. */
struct sums {
	struct kvblk *kv;
	struct kvblk_summer *summer;
	const struct kvblk_op *ops;
	struct kvblk_result *results;	/* of gets; NULL: puts */
	size_t result_size;
	size_t chunk;			/* bytes under one checksum, for gets */
	uint16_t *failed;		/* gets whose bytes are not known to be right; room for all */
	unsigned int nr_failed;
	void *stream;
	unsigned int first, end;	/* operations of the round */
	unsigned int nr_sums, nr_parts;	/* of the round */
};

static const struct kvblk_op_ext *table_of(const struct kvblk_op *op)
{
	return (const struct kvblk_op_ext *)(uintptr_t)op->ext;
}

/* Returns whether operation @i is a get that has delivered bytes and checksums. */
static bool is_delivered(const struct sums *s, unsigned int i)
{
	const struct kvblk_result *result = result_at(s->results, s->result_size, i);

	return s->ops[i].opcode == KVBLK_OP_GET && result->res > 0 &&
	       result->flags & KVBLK_RES_CHECKSUMS;
}

/* Returns the bytes of operation @i to sum. The kernel has checked chunks that are not whole. */
static uint64_t bytes_of(const struct sums *s, unsigned int i)
{
	const struct kvblk_op *op = &s->ops[i];
	const struct kvblk_result *result;
	uint64_t end;

	if (!s->results)
		return length_of(op);
	if (!is_delivered(s, i))
		return 0;
	result = result_at(s->results, s->result_size, i);
	end = (uint64_t)op->offset + (uint64_t)result->res;
	return op->offset % s->chunk || (end % s->chunk && end != result->value_len) ?
	       0 : (uint64_t)result->res;
}

static unsigned int chunks_of(const struct sums *s, uint64_t bytes)
{
	return (unsigned int)((bytes + s->summer->chunk - 1) / s->summer->chunk);
}

/* Add the parts of a piece, which is at @at of @bytes. Returns 0 or a negative errno. */
static int piece_add(struct sums *s, const struct kvblk_piece *piece, uint64_t at, uint64_t bytes)
{
	struct kvblk_summer *summer = s->summer;
	uint64_t len = piece->length < bytes - at ? piece->length : bytes - at, ptr;
	void *context;
	int err = kvblk_mem_device(s->kv, piece, &ptr, &context);

	if (!err && context != summer->context)
		err = -EXDEV;
	if (err)
		return err;
	for (size_t n; len; len -= n, at += n, ptr += n) {
		uint64_t end = at - at % summer->chunk + summer->chunk;

		if (end > bytes)
			end = bytes;
		n = end - at < len ? (size_t)(end - at) : (size_t)len;
		summer->host->parts[s->nr_parts++] = (struct crc_part){
			.ptr = ptr,
			.len = (unsigned int)n,
			.power = power((size_t)(end - at) - n),
			.sum = s->nr_sums + (unsigned int)(at / summer->chunk),
		};
	}
	return 0;
}

/*
 * Add an operation to the round. Returns 0 or a negative errno, with the round as before; -E2BIG:
 * no room.
 */
static int op_add(struct sums *s, const struct kvblk_op *op, uint64_t bytes)
{
	struct kvblk_summer *summer = s->summer;
	unsigned int nr_parts = s->nr_parts, chunks = chunks_of(s, bytes);
	uint64_t at = 0;
	int err = 0;

	if (s->nr_sums + chunks > SUMS || s->nr_parts + op->nr_pieces + chunks > PARTS)
		return -E2BIG;
	for (unsigned int i = 0; i < op->nr_pieces && at < bytes && !err; i++) {
		err = piece_add(s, &pieces_of(op)[i], at, bytes);
		at += pieces_of(op)[i].length;
	}
	if (err) {
		s->nr_parts = nr_parts;
		return err;
	}
	for (at = 0; at < bytes; at += summer->chunk)
		summer->host->sums[s->nr_sums++] = bytes - at < summer->chunk ?
						   blank((size_t)(bytes - at)) : summer->blank;
	return 0;
}

/* Run the round on the GPU. */
static int round_run(struct sums *s)
{
	struct kvblk_summer *summer = s->summer;
	struct round *host = summer->host;
	device_ptr columns = summer->device + offsetof(struct round, columns);
	device_ptr sums = summer->device + offsetof(struct round, sums);
	device_ptr parts = summer->device + offsetof(struct round, parts);
	size_t head = offsetof(struct round, sums) + s->nr_sums * sizeof(*host->sums);
	void *arguments[] = { &parts, &s->nr_parts, &columns, &sums };
	int err, waited;

	err = kvblk_cu_errno(kvblk_cu.to_device(summer->device, host, head, summer->stream));
	if (!err)
		err = kvblk_cu_errno(kvblk_cu.to_device(parts, host->parts,
							s->nr_parts * sizeof(*host->parts),
							summer->stream));
	if (!err)
		err = kvblk_cu_errno(kvblk_cu.launch(summer->function,
						     s->nr_parts < BLOCKS ? s->nr_parts : BLOCKS,
						     1, 1, CRC_THREADS, 1, 1, 0, summer->stream,
						     arguments, NULL));
	if (!err)
		err = kvblk_cu_errno(kvblk_cu.to_host(host->sums, sums,
						      s->nr_sums * sizeof(*host->sums),
						      summer->stream));
	/* also after an error, because what was started uses the round */
	waited = kvblk_cu_errno(kvblk_cu.stream_wait(summer->stream));
	summer->unsure = waited;
	return err ? err : waited;
}

/*
 * End the round: store the checksums of puts, and compare those of gets. @err: there are none.
 * Returns @err, or 0 for gets.
 */
static int round_end(struct sums *s, int err)
{
	const unsigned int *sums = s->summer->host->sums;

	for (unsigned int i = s->first; i < s->end; i++) {
		uint64_t bytes = bytes_of(s, i);
		size_t len = chunks_of(s, bytes) * sizeof(*sums);
		void *its = bytes ? (void *)(uintptr_t)table_of(&s->ops[i])->checksums : NULL;

		if (!bytes)
			continue;
		if (!s->results && !err)
			memcpy(its, sums, len);
		else if (s->results && (err || memcmp(its, sums, len) != 0))
			s->failed[s->nr_failed++] = (uint16_t)i;
		sums += chunks_of(s, bytes);
	}
	s->first = s->end;
	s->nr_sums = 0;
	s->nr_parts = 0;
	return s->results ? 0 : err;
}

/*
 * Add operations to the round while there is room. A get that cannot be summed fails. Returns 0 or
 * a negative errno.
 */
static int round_fill(struct sums *s, unsigned int nr_ops)
{
	for (; s->end < nr_ops; s->end++) {
		uint64_t bytes = bytes_of(s, s->end);
		int err;

		if (!bytes)
			continue;
		err = op_add(s, &s->ops[s->end], bytes);
		/* try the operation in the next round, alone, so that each round makes progress */
		if (err && s->nr_sums)
			return 0;
		if (err && !s->results)
			return err;
		if (err) {
			s->failed[s->nr_failed++] = (uint16_t)s->end;
			s->first = s->end + 1;
		}
	}
	return 0;
}

/* Sum all operations. On an error those from s->first on are not summed. */
static int sums_run(struct sums *s, unsigned int nr_ops)
{
	struct kvblk_summer *summer = s->summer;
	int err = kvblk_cu_enter(summer->context);

	if (err)
		return err;
	/* before the lock, because what is queued there may wait for another caller */
	if (s->stream)
		err = kvblk_cu_errno(kvblk_cu.stream_wait(s->stream));
	pthread_mutex_lock(&summer->lock);
	while (!err && s->first < nr_ops) {
		err = summer->unsure ? -EIO : round_fill(s, nr_ops);
		if (err)
			break;
		if (s->nr_parts)
			err = round_run(s);
		err = round_end(s, err);
	}
	pthread_mutex_unlock(&summer->lock);
	kvblk_cu_leave();
	return err;
}

static bool is_summable(const struct kvblk_op *op, size_t chunk)
{
	const struct kvblk_op_ext *ext = table_of(op);
	uint64_t len = op->nr_pieces <= KVBLK_PIECES_MAX ? length_of(op) : 0;

	return op->opcode == KVBLK_OP_PUT && len && len <= KVBLK_VALUE_MAX && ext &&
	       ext->size >= KVBLK_OP_EXT_SIZE_VER0 && ext->checksums &&
	       ext->nr_checksums == (len + chunk - 1) / chunk;
}

int kvblk_gpu_checksums(struct kvblk *kv, const struct kvblk_op *ops, unsigned int nr_ops,
			void *stream)
{
	struct sums s = { .kv = kv, .ops = ops, .stream = stream };
	int err;

	if (!kv || !ops || !nr_ops || !ops->nr_pieces || !ops->pieces)
		return -EINVAL;
	err = kvblk_mem_summer(kv, pieces_of(ops), &s.summer);
	for (unsigned int i = 0; i < nr_ops && !err; i++)
		err = is_summable(&ops[i], s.summer->chunk) ? 0 : -EINVAL;
	if (!err)
		err = sums_run(&s, nr_ops);
	kvblk_summer_put(s.summer);
	return err;
}

/* Returns whether the kernel verified delivered get @i, which passed through its memory. */
static bool kernel_verified(const struct sums *s, unsigned int i)
{
	return !(s->ops[i].flags & KVBLK_OPF_CALLER_CHECKS) &&
	       result_at(s->results, s->result_size, i)->flags & KVBLK_RES_BOUNCED;
}

/* Sum and compare gets. Fail those that neither the GPU nor the kernel verified. */
static void gets_compare(struct sums *s, unsigned int nr_ops)
{
	int err = s->summer ? sums_run(s, nr_ops) : -EXDEV;

	for (; err && s->first < nr_ops; s->first++) {
		if (bytes_of(s, s->first) && !kernel_verified(s, s->first))
			s->failed[s->nr_failed++] = (uint16_t)s->first;
	}
}

/* Returns the bytes under one checksum; 1 if unknown, so that no chunk is a partial one. */
static size_t chunk_size(const struct sums *s)
{
	struct kvblk_info info;

	if (s->summer)
		return s->summer->chunk;
	return !kvblk_get_info(s->kv, &info, sizeof(info)) && info.chunk_size ? info.chunk_size : 1;
}

/*
 * Repeat gets that failed, and replace their results. The kernel verifies what passes through its
 * memory for a caller that takes checksums and does not check them.
 */
static void gets_repeat(const struct sums *s, const uint16_t *failed, unsigned int nr)
{
	struct kvblk_result results[REPEATS] = { 0 };
	struct kvblk_op ops[REPEATS];
	int err;

	for (unsigned int i = 0; i < nr; i++) {
		ops[i] = s->ops[failed[i]];
		ops[i].flags &= ~KVBLK_OPF_CALLER_CHECKS;
		/* a get that began has met its deadline, if that is no hard one */
		if (!(ops[i].flags & KVBLK_OPF_HARD_DEADLINE) || !ops[i].deadline_ns)
			ops[i].deadline_ns = UINT64_MAX;
		ops[i].flags |= KVBLK_OPF_HARD_DEADLINE;
	}
	err = kvblk_submit(s->kv, ops, nr, results, 0);
	for (unsigned int i = 0; i < nr; i++) {
		if (err)
			results[i] = (struct kvblk_result){ .cookie = ops[i].cookie, .res = err };
		element_copy(result_at(s->results, s->result_size, failed[i]), s->result_size,
			     &results[i], sizeof(results[i]));
	}
}

/* Verify up to KVBLK_OPS_MAX operations. */
static void batch_verify(struct sums *s, unsigned int nr_ops)
{
	uint16_t failed[KVBLK_OPS_MAX];

	while (s->first < nr_ops && !is_delivered(s, s->first))
		s->first++;
	if (s->first == nr_ops)
		return;
	s->end = s->first;
	s->failed = failed;
	/* the kernel verifies gets that the GPU cannot */
	if (kvblk_mem_summer(s->kv, pieces_of(&s->ops[s->first]), &s->summer))
		s->summer = NULL;
	s->chunk = chunk_size(s);
	gets_compare(s, nr_ops);
	for (unsigned int at = 0; at < s->nr_failed; at += REPEATS)
		gets_repeat(s, &failed[at],
			    s->nr_failed - at < REPEATS ? s->nr_failed - at : REPEATS);
	kvblk_summer_put(s->summer);
}

int kvblk_gpu_verify(struct kvblk *kv, const struct kvblk_op *ops, unsigned int nr_ops,
		     struct kvblk_result *results, size_t result_size, void *stream)
{
	if (!kv || !ops || !nr_ops || !results || result_size < KVBLK_RESULT_SIZE_VER0)
		return -EINVAL;
	for (unsigned int at = 0, nr; at < nr_ops; at += nr) {
		struct sums s = { .kv = kv, .ops = ops + at, .stream = stream,
				  .results = result_at(results, result_size, at),
				  .result_size = result_size };

		nr = nr_ops - at < KVBLK_OPS_MAX ? nr_ops - at : KVBLK_OPS_MAX;
		batch_verify(&s, nr);
	}
	return 0;
}
