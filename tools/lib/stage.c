// SPDX-License-Identifier: MIT
/*
 * Staging: transfers for device memory that the kernel cannot reach, through a lane. A
 * lane has pinned host memory and a CUDA stream for copies. All memory registered with one
 * handle, CUDA context and options shares the lanes of one stage.
 *
 * A batch is split into loads of half a lane's memory: the device copies one load while
 * the kernel works on the next.
 *
 * A lane has one user at a time, and becomes free only when neither the kernel nor the
 * device can touch its memory. A batch that waits for a lane keeps its deadlines and can
 * be canceled. Nothing is allocated after kvblk_stage_open().
 */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cuda.h"
#include "lib.h"

#define LANES		2u
#define BLOCK_MAX	(16u << 20)
#define LOAD_OPS	256u
#define COPIES		1024u

/* Pending copies, all to the device or all from it. */
struct copies {
	unsigned int nr;
	device_ptr to[COPIES], from[COPIES];
	size_t lens[COPIES];
};

struct lane {
	struct lane *next;	/* next free lane */
	char *stage;		/* pinned memory of stage_size() bytes: two halves */
	void *stream;
	uint32_t region;	/* handle of @stage; 0: pinned for each operation */
	struct kvblk_op *ops;	/* an entry for each operation of a load, like the next two */
	struct kvblk_piece *pieces;
	struct kvblk_result *results;
	struct copies *copies;
	bool unsure;		/* stream_wait() failed: copies may still be running */
};

struct kvblk_stage {
	struct kvblk_stage *next;
	unsigned int users;
	uint32_t id;
	struct kvblk *kv;
	void *context;
	struct kvblk_mem_options given, options;	/* @options: with defaults for zeroes */
	size_t page;
	struct lane lanes[KVBLK_MEM_LANES_MAX];
	unsigned int nr_lanes;
	pthread_mutex_t lock;	/* protects the fields below; taken after stages_lock */
	pthread_cond_t changed;	/* signaled when a lane is given back, and by cancels */
	struct lane *free;
	unsigned int nr_lost;	/* lanes never reused: still in use by the GPU */
	struct batch *batches;	/* batches that wait for a lane or have one */
};

static struct kvblk_stage *stages;
static atomic_uint nr_stages;	/* in @stages; written under stages_lock */
static pthread_mutex_t stages_lock = PTHREAD_MUTEX_INITIALIZER;	/* protects @stages, @users */
static uint32_t last_id;
/* protects @last_id; held across lookup and creation of a stage; taken before stages_lock */
static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;

static size_t page_up(const struct kvblk_stage *stage, size_t len)
{
	return (len + stage->page - 1) & ~(stage->page - 1);
}

/* The extra page allows a get to detect that a block has grown. */
static size_t stage_size(const struct kvblk_stage *stage)
{
	return 2 * stage->options.block_max + stage->page;
}

static void lane_destroy(struct kvblk_stage *stage, struct lane *lane)
{
	if (lane->region)
		kvblk_region_unregister(stage->kv, lane->region);
	if (lane->stream)
		kvblk_cu.stream_destroy(lane->stream);
	if (lane->stage) {
		kvblk_cu.host_unregister(lane->stage);
		munmap(lane->stage, stage_size(stage));
	}
	free(lane->ops);
	free(lane->pieces);
	free(lane->results);
	free(lane->copies);
}

static int lane_create(struct kvblk_stage *stage, struct lane *lane)
{
	size_t size = stage_size(stage);
	void *p;
	int err;

	lane->ops = calloc(LOAD_OPS, sizeof(*lane->ops));
	lane->pieces = calloc(LOAD_OPS, sizeof(*lane->pieces));
	lane->results = calloc(LOAD_OPS, sizeof(*lane->results));
	lane->copies = calloc(1, sizeof(*lane->copies));
	if (!lane->ops || !lane->pieces || !lane->results || !lane->copies)
		return -ENOMEM;
	p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return -ENOMEM;
	err = kvblk_cu_errno(kvblk_cu.host_register(p, size, HOST_REGISTER_PORTABLE));
	if (err) {
		munmap(p, size);
		return err;
	}
	lane->stage = p;
	err = kvblk_cu_errno(kvblk_cu.stream_create(&lane->stream, STREAM_NON_BLOCKING));
	if (err) {
		lane->stream = NULL;
		return err;
	}
	/* optional: saves pinning for each operation, and may be forbidden */
	if (kvblk_region_register(stage->kv, p, size, &lane->region))
		lane->region = 0;
	return 0;
}

static void stage_destroy(struct kvblk_stage *stage)
{
	bool inside = !kvblk_cu_enter(stage->context);

	for (unsigned int i = 0; i < stage->nr_lanes; i++)
		lane_destroy(stage, &stage->lanes[i]);
	if (inside)
		kvblk_cu_leave();
	pthread_cond_destroy(&stage->changed);
	pthread_mutex_destroy(&stage->lock);
	free(stage);
}

/* Replace zeroes in @options by defaults. */
static int complete(struct kvblk *kv, size_t page, struct kvblk_mem_options *options)
{
	struct kvblk_info info;
	int err = kvblk_get_info(kv, &info, sizeof(info));

	if (err)
		return err;
	if (!options->block_max)
		options->block_max = info.value_max && info.value_max < BLOCK_MAX ?
				     info.value_max : BLOCK_MAX;
	if (!options->lanes)
		options->lanes = LANES;
	options->block_max = (options->block_max + page - 1) & ~(page - 1);
	return 0;
}

static int stage_create(struct kvblk *kv, void *context, const struct kvblk_mem_options *given,
			struct kvblk_stage **stage)
{
	struct kvblk_stage *s = calloc(1, sizeof(*s));
	int err;

	if (!s)
		return -ENOMEM;
	s->kv = kv;
	s->context = context;
	s->given = s->options = *given;
	s->page = (size_t)sysconf(_SC_PAGESIZE);
	pthread_mutex_init(&s->lock, NULL);
	cond_init(&s->changed);
	err = complete(kv, s->page, &s->options);
	if (!err)
		err = kvblk_cu_enter(s->context);
	if (!err) {
		while (!err && s->nr_lanes < s->options.lanes) {
			struct lane *lane = &s->lanes[s->nr_lanes++];

			err = lane_create(s, lane);
			lane->next = s->free;
			s->free = lane;
		}
		kvblk_cu_leave();
	}
	if (err) {
		stage_destroy(s);
		return err;
	}
	s->id = ++last_id;
	*stage = s;
	return 0;
}

static bool are_same(const struct kvblk_mem_options *a, const struct kvblk_mem_options *b)
{
	return a->block_max == b->block_max && a->lanes == b->lanes;
}

int kvblk_stage_open(struct kvblk *kv, void *context, const struct kvblk_mem_options *options,
		     struct kvblk_stage **stage)
{
	struct kvblk_stage *s;
	int err = 0;

	pthread_mutex_lock(&open_lock);
	pthread_mutex_lock(&stages_lock);
	for (s = stages; s; s = s->next) {
		if (s->kv == kv && s->context == context && are_same(&s->given, options)) {
			s->users++;
			break;
		}
	}
	pthread_mutex_unlock(&stages_lock);
	if (!s) {
		err = stage_create(kv, context, options, &s);
		if (!err) {
			s->users = 1;
			pthread_mutex_lock(&stages_lock);
			s->next = stages;
			stages = s;
			atomic_fetch_add(&nr_stages, 1);
			pthread_mutex_unlock(&stages_lock);
		}
	}
	pthread_mutex_unlock(&open_lock);
	if (!err)
		*stage = s;
	return err;
}

void kvblk_stage_close(struct kvblk_stage *stage)
{
	struct kvblk_stage **s;
	bool last;

	if (!stage)
		return;
	pthread_mutex_lock(&stages_lock);
	last = !--stage->users;
	if (last) {
		for (s = &stages; *s != stage; s = &(*s)->next)
			;
		*s = stage->next;
		atomic_fetch_sub(&nr_stages, 1);
	}
	pthread_mutex_unlock(&stages_lock);
	if (last)
		stage_destroy(stage);
}

void kvblk_stage_info(const struct kvblk_stage *stage, struct kvblk_mem_info *info)
{
	info->block_max = stage->options.block_max;
	info->lanes = stage->options.lanes;
}

void kvblk_stage_piece(const struct kvblk_stage *stage, uint64_t ptr, size_t len,
		       struct kvblk_piece *piece)
{
	piece_user(piece, NULL, len);
	piece->type = PIECE_STAGED;
	piece->handle = stage->id;
	piece->addr = ptr;
}

static void lane_piece(const struct lane *lane, size_t offset, size_t len,
		       struct kvblk_piece *piece)
{
	if (lane->region)
		piece_region(piece, lane->region, offset, len);
	else
		piece_user(piece, lane->stage + offset, len);
}

static int stream_wait(struct lane *lane)
{
	int err = kvblk_cu_errno(kvblk_cu.stream_wait(lane->stream));

	lane->unsure = err;
	return err;
}

/* Batches, in loads. */

/* Consecutive operations on memory of one stage. A negative res in @results: complete. */
struct batch {
	struct batch *next;	/* in stage->batches, under stage->lock */
	struct kvblk_stage *stage;
	struct lane *lane;
	const struct kvblk_op *ops;
	struct kvblk_result *results;
	unsigned int nr, flags;
	uint32_t hints;		/* union of the puts' hints, if they are a chain */
	unsigned int begun;	/* operations before were submitted; under stage->lock */
	bool canceled[KVBLK_OPS_MAX];	/* by kvblk_stage_cancel(); under stage->lock */
};

/* Consecutive puts or gets of a batch that share one half of the lane's memory. */
struct load {
	unsigned int first, end;
	size_t at;
};

/* Returns the stage id of the first staged piece, or 0 if none is staged. */
static uint32_t id_of(const struct kvblk_op *op)
{
	/* missing pieces are an error that the kernel reports */
	for (unsigned int i = 0; op->pieces && i < op->nr_pieces; i++) {
		if (pieces_of(op)[i].type == PIECE_STAGED)
			return pieces_of(op)[i].handle;
	}
	return 0;
}

/* Returns the bytes that an operation needs in the lane. A get's buffer may exceed any block. */
static size_t room_of(const struct kvblk_stage *stage, const struct kvblk_op *op)
{
	size_t len = length_of(op);

	if (op->opcode != KVBLK_OP_GET)
		return len;
	if (op->flags & KVBLK_OPF_PARTIAL)
		return op->length && op->length < len ? op->length : len;
	return len < stage->options.block_max ? len : stage->options.block_max;
}

/* Check the limits of staging; the kernel checks the rest. Returns 0 or a negative errno. */
static int refusal(const struct kvblk_stage *stage, const struct kvblk_op *op)
{
	if (op->opcode != KVBLK_OP_PUT && op->opcode != KVBLK_OP_GET)
		return -EINVAL;
	if (op->nr_pieces > KVBLK_PIECES_MAX)
		return -EINVAL;
	for (unsigned int i = 0; i < op->nr_pieces; i++) {
		const struct kvblk_piece *piece = &pieces_of(op)[i];

		if (!piece->length)
			return -EINVAL;
		if (piece->type != PIECE_STAGED || piece->handle != stage->id)
			return -EXDEV;
	}
	return room_of(stage, op) > stage->options.block_max ? -EFBIG : 0;
}

static void finish(const struct batch *b, unsigned int i, int err)
{
	b->results[i] = (struct kvblk_result){ .cookie = b->ops[i].cookie, .res = err };
}

static bool is_get(const struct batch *b, unsigned int i)
{
	return b->ops[i].opcode == KVBLK_OP_GET;
}

static bool is_put(const struct batch *b, unsigned int i)
{
	return b->ops[i].opcode == KVBLK_OP_PUT;
}

/* Build a load in half number @half from operation @first on; skips completed operations. */
static struct load load_of(const struct batch *b, unsigned int first, unsigned int half)
{
	struct load load;
	size_t len = 0;

	while (first < b->nr && b->results[first].res < 0)
		first++;
	load = (struct load){ first, first, half * b->stage->options.block_max };
	while (load.end < b->nr && load.end - first < LOAD_OPS && b->results[load.end].res >= 0 &&
	       b->ops[load.end].opcode == b->ops[first].opcode) {
		len += page_up(b->stage, room_of(b->stage, &b->ops[load.end]));
		if (len > b->stage->options.block_max)
			break;
		load.end++;
	}
	return load;
}

/*
 * Start the pending copies. Uses one batch call, because a call for each piece takes
 * longer than the copy if pieces are short (selftests/bench/cuda_bench).
 */
static int copies_start(const struct lane *lane, bool to_device)
{
	struct copy_attributes attributes = { .order = COPY_IN_STREAM_ORDER };
	struct copies *c = lane->copies;
	size_t first_of = 0, failed;
	int result = 0;

	if (c->nr > 1 && kvblk_cu.batch) {
		result = kvblk_cu.batch(c->to, c->from, c->lens, c->nr, &attributes, &first_of, 1,
					&failed, lane->stream);
	} else {
		for (unsigned int i = 0; i < c->nr && !result; i++) {
			if (to_device)
				result = kvblk_cu.to_device(c->to[i], (void *)(uintptr_t)c->from[i],
							    c->lens[i], lane->stream);
			else
				result = kvblk_cu.to_host((void *)(uintptr_t)c->to[i], c->from[i],
							  c->lens[i], lane->stream);
		}
	}
	c->nr = 0;
	return kvblk_cu_errno(result);
}

/* Queue copies of an operation's first @len bytes between its pieces and @at in the lane. */
static int copy(const struct lane *lane, const struct kvblk_op *op, size_t at, size_t len)
{
	const struct kvblk_piece *piece = pieces_of(op);
	bool to_device = op->opcode == KVBLK_OP_GET;
	struct copies *c = lane->copies;
	int err = 0;

	for (; len && !err; piece++) {
		size_t n = piece->length < len ? piece->length : len;
		device_ptr host = (uintptr_t)lane->stage + at;

		c->to[c->nr] = to_device ? piece->addr : host;
		c->from[c->nr] = to_device ? host : piece->addr;
		c->lens[c->nr++] = n;
		if (c->nr == COPIES)
			err = copies_start(lane, to_device);
		at += n;
		len -= n;
	}
	return err;
}

/* Copy a load between GPU and lane: puts before submission, gets after completion. */
static int load_copy(const struct batch *b, const struct load *load)
{
	size_t at = load->at;
	int err = 0;

	b->lane->copies->nr = 0;
	for (unsigned int i = load->first; i < load->end && !err; i++) {
		const struct kvblk_op *op = &b->ops[i];
		size_t room = room_of(b->stage, op), len = room;

		if (is_get(b, i)) {
			len = b->results[i].res > 0 ? (size_t)b->results[i].res : 0;
			if (len > room)
				len = room;
		}
		err = copy(b->lane, op, at, len);
		at += page_up(b->stage, room);
	}
	return err ? err : copies_start(b->lane, is_get(b, load->first));
}

/* Returns the operation's extension, or NULL if there is none that the library knows. */
static const struct kvblk_op_ext *ext_of(const struct kvblk_op *op)
{
	const struct kvblk_op_ext *ext = (const void *)(uintptr_t)op->ext;

	return ext && ext->size >= KVBLK_OP_EXT_SIZE_VER0 && ext->size <= sizeof(*ext) ? ext : NULL;
}

/*
 * Join the loads of a chain for the kernel: the first put of a load, @op, gets the
 * preceding put as its parent, and KVBLK_HINT_CONTINUES if more puts follow.
 */
static void connect(const struct batch *b, const struct load *load, struct kvblk_op *op,
		    struct kvblk_op_ext *ext)
{
	const struct kvblk_op_ext *its = ext_of(op);
	unsigned int i;

	if (op->ext && !its)
		return;
	kvblk_prep_ext(op, ext);
	if (its)
		memcpy(ext, its, its->size);
	ext->size = sizeof(*ext);
	ext->hints |= b->hints;
	for (i = load->end; i < b->nr && !(is_put(b, i) && b->results[i].res >= 0); i++)
		;
	if (i < b->nr)
		ext->hints |= KVBLK_HINT_CONTINUES;
	for (i = load->first; i-- && !ext->parent_len;) {
		if (!is_put(b, i) || refusal(b->stage, &b->ops[i]) ||
		    b->ops[i].key_len > KVBLK_KEY_MAX)
			continue;
		ext->parent = b->ops[i].key;
		ext->parent_len = b->ops[i].key_len;
	}
}

/*
 * After @result, fail later operations that must not run: of a declined chain, a canceled
 * cookie, or an interrupted batch.
 */
static void skip_later(const struct batch *b, unsigned int first, const struct kvblk_result *result)
{
	bool declined = result->res == -ENOBUFS && b->flags & KVBLK_SUBMIT_CHAIN;
	bool interrupted = result->res == -ECANCELED && b->flags & KVBLK_SUBMIT_INTERRUPTIBLE;
	bool canceled = result->res == -ECANCELED && result->cookie;

	for (unsigned int i = first; (declined || interrupted || canceled) && i < b->nr; i++) {
		if (b->results[i].res >= 0 &&
		    (interrupted || (declined ? is_put(b, i) : b->ops[i].cookie == result->cookie)))
			finish(b, i, result->res);
	}
}

/* Complete canceled operations from @b->begun on. Called with the stage's lock held. */
static void finish_canceled(const struct batch *b)
{
	for (unsigned int i = b->begun; i < b->nr; i++) {
		if (b->canceled[i] && b->results[i].res >= 0)
			finish(b, i, -ECANCELED);
	}
}

static void load_submit(struct batch *b, const struct load *load)
{
	const struct lane *lane = b->lane;
	unsigned int nr = 0, done = 0;
	struct kvblk_op_ext ext;
	size_t at = load->at;
	int err;

	pthread_mutex_lock(&b->stage->lock);
	finish_canceled(b);
	b->begun = load->end;
	pthread_mutex_unlock(&b->stage->lock);
	for (unsigned int i = load->first; i < load->end; i++) {
		struct kvblk_op *op = &lane->ops[nr];
		size_t room = room_of(b->stage, &b->ops[i]);

		/* skip operations that were completed since the load was built */
		if (b->results[i].res >= 0) {
			*op = b->ops[i];
			lane_piece(lane, at, room, &lane->pieces[nr]);
			op->pieces = (uintptr_t)&lane->pieces[nr];
			op->nr_pieces = 1;
			nr++;
		}
		at += page_up(b->stage, room);
	}
	if (!nr)
		return;
	if (b->flags & KVBLK_SUBMIT_CHAIN && is_put(b, load->first))
		connect(b, load, lane->ops, &ext);
	err = kvblk_batch(b->stage->kv, lane->ops, nr, lane->results, sizeof(*lane->results),
			  b->flags);
	for (unsigned int i = load->first; i < load->end; i++) {
		struct kvblk_result *result = &b->results[i];

		if (result->res < 0)
			continue;
		*result = lane->results[done++];
		if (err)
			finish(b, i, err);
		result->flags &= ~(uint32_t)(KVBLK_RES_DIRECT | KVBLK_RES_DEVICE_READ);
		if (result->res >= 0)
			result->flags |= KVBLK_RES_BOUNCED;
		/* the caller's buffer is long enough, but the lane is not */
		if (result->res == -EMSGSIZE && result->value_len <= length_of(&b->ops[i]))
			result->res = -EFBIG;
		skip_later(b, load->end, result);
	}
}

/*
 * Complete with @err after a CUDA failure: gets from @first on, whose data may not be on
 * the device, and puts from @next on, which were not submitted.
 */
static void give_up(const struct batch *b, unsigned int first, unsigned int next, int err)
{
	for (unsigned int i = first; i < b->nr; i++) {
		if (b->results[i].res >= 0 && (is_get(b, i) || i >= next))
			finish(b, i, err);
	}
}

static int load_prepare(const struct batch *b, const struct load *load)
{
	return load->first < b->nr && !is_get(b, load->first) ? load_copy(b, load) : 0;
}

static void batch_run(struct batch *b)
{
	struct load load = load_of(b, 0, 0), next;
	unsigned int half = 0, before = 0;
	int err = load_prepare(b, &load), wait_err;

	wait_err = stream_wait(b->lane);
	if (!err)
		err = wait_err;
	next = load;
	while (!err && load.first < b->nr) {
		half ^= 1;
		next = load_of(b, load.end, half);
		err = load_prepare(b, &next);
		load_submit(b, &load);
		/* wait for the copies of the preceding load; this load's gets are copied below */
		wait_err = stream_wait(b->lane);
		if (!err)
			err = wait_err;
		if (err)
			break;
		before = load.first;
		if (is_get(b, load.first))
			err = load_copy(b, &load);
		load = next;
	}
	wait_err = stream_wait(b->lane);
	if (err || wait_err)
		give_up(b, before, next.first, err ? err : wait_err);
}

static struct kvblk_stage *stage_find(const struct kvblk *kv, uint32_t id)
{
	struct kvblk_stage *stage;

	pthread_mutex_lock(&stages_lock);
	for (stage = stages; stage && (stage->id != id || stage->kv != kv); stage = stage->next)
		;
	pthread_mutex_unlock(&stages_lock);
	return stage;
}

/*
 * Complete operations that are past their deadline, or canceled. Called with the stage's lock
 * held. Returns false if all are complete; sets @deadline to the next deadline, 0 for none.
 */
static bool is_left(const struct batch *b, uint64_t *deadline)
{
	uint64_t now = now_ns();
	bool left = false;

	finish_canceled(b);
	*deadline = 0;
	for (unsigned int i = 0; i < b->nr; i++) {
		uint64_t until = b->ops[i].deadline_ns;

		if (b->results[i].res < 0)
			continue;
		if (until && until <= now) {
			finish(b, i, -ETIME);
			continue;
		}
		left = true;
		if (until && (!*deadline || until < *deadline))
			*deadline = until;
	}
	return left;
}

/*
 * Wait for a lane. Returns 0; -EIO if all lanes are lost. @b->lane is NULL if all operations
 * completed meanwhile.
 */
static int lane_take(struct batch *b)
{
	struct kvblk_stage *stage = b->stage;
	uint64_t deadline;
	int err = 0;

	pthread_mutex_lock(&stage->lock);
	b->next = stage->batches;
	stage->batches = b;
	while (is_left(b, &deadline) && !b->lane && !err) {
		b->lane = stage->free;
		if (b->lane)
			stage->free = b->lane->next;
		else if (stage->nr_lost == stage->nr_lanes)
			err = -EIO;
		else
			cond_wait(&stage->changed, &stage->lock, deadline);
	}
	pthread_mutex_unlock(&stage->lock);
	return err;
}

static void lane_give(struct batch *b)
{
	struct kvblk_stage *stage = b->stage;
	struct batch **place;

	pthread_mutex_lock(&stage->lock);
	for (place = &stage->batches; *place != b; place = &(*place)->next)
		;
	*place = b->next;
	if (b->lane && b->lane->unsure) {
		stage->nr_lost++;
	} else if (b->lane) {
		b->lane->next = stage->free;
		stage->free = b->lane;
	}
	/* broadcast, because the first waiter may have no operation left */
	pthread_cond_broadcast(&stage->changed);
	pthread_mutex_unlock(&stage->lock);
}

/* Run a batch whose first staged piece belongs to stage @id. */
static void stage_run(struct kvblk *kv, uint32_t id, struct batch *b)
{
	int err = -EINVAL;

	b->stage = stage_find(kv, id);
	if (b->stage) {
		for (unsigned int i = 0; i < b->nr; i++) {
			const struct kvblk_op_ext *ext = ext_of(&b->ops[i]);

			finish(b, i, refusal(b->stage, &b->ops[i]));
			if (ext && b->flags & KVBLK_SUBMIT_CHAIN && is_put(b, i))
				b->hints |= ext->hints;
		}
		err = lane_take(b);
		if (b->lane)
			err = kvblk_cu_enter(b->stage->context);
		if (b->lane && !err) {
			batch_run(b);
			kvblk_cu_leave();
		}
		lane_give(b);
	}
	for (unsigned int i = 0; err && i < b->nr; i++) {
		if (!b->stage || b->results[i].res >= 0)
			finish(b, i, err);
	}
}

bool kvblk_is_staged(const struct kvblk_op *ops, unsigned int nr_ops)
{
	/* do not read pieces, because the kernel reports those that cannot be read */
	if (!atomic_load(&nr_stages))
		return false;
	for (unsigned int i = 0; i < nr_ops; i++) {
		if (id_of(&ops[i]))
			return true;
	}
	return false;
}

void kvblk_stage_submit(struct kvblk *kv, const struct kvblk_op *ops, unsigned int nr_ops,
			struct kvblk_result *results, unsigned int flags)
{
	for (unsigned int first = 0, end; first < nr_ops; first = end) {
		struct batch b = { .ops = &ops[first], .results = &results[first], .flags = flags };
		uint32_t id = id_of(&ops[first]);
		int err = 0;

		for (end = first + 1; end < nr_ops && id_of(&ops[end]) == id; end++)
			;
		b.nr = end - first;
		if (id)
			stage_run(kv, id, &b);
		else
			err = kvblk_batch(kv, b.ops, b.nr, b.results, sizeof(*b.results), flags);
		for (unsigned int i = 0; err && i < b.nr; i++)
			finish(&b, i, err);
	}
}

unsigned int kvblk_stage_cancel(struct kvblk *kv, uint64_t cookie)
{
	unsigned int nr = 0;

	/* no lock without stages: another thread may have held it at a fork */
	if (!cookie || !atomic_load(&nr_stages))
		return 0;
	pthread_mutex_lock(&stages_lock);
	for (struct kvblk_stage *stage = stages; stage; stage = stage->next) {
		if (stage->kv != kv)
			continue;
		pthread_mutex_lock(&stage->lock);
		for (struct batch *b = stage->batches; b; b = b->next) {
			for (unsigned int i = b->begun; i < b->nr; i++) {
				if (b->ops[i].cookie != cookie)
					continue;
				b->canceled[i] = true;
				nr++;
			}
		}
		pthread_cond_broadcast(&stage->changed);
		pthread_mutex_unlock(&stage->lock);
	}
	pthread_mutex_unlock(&stages_lock);
	return nr;
}
