// SPDX-License-Identifier: MIT
/*
 * Staging: transfers for device memory that the kernel cannot reach, through a lane. A
 * lane has pinned host memory, a CUDA stream for copies and a queue for parts of a block.
 * All memory registered with one handle, CUDA context and options shares the lanes of one
 * stage.
 *
 * A batch is split into loads of half a lane's memory: the device copies one load while
 * the kernel works on the next. A single get is split into parts: each part is copied to
 * the device while the drives read later parts.
 *
 * A lane has one user at a time, and becomes free only when neither the kernel nor the
 * device can touch its memory. Nothing is allocated after kvblk_stage_open().
 */
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cuda.h"
#include "lib.h"

#define LANES		2u
#define BLOCK_MAX	(16u << 20)
#define PART_SIZE	(1u << 20)
#define BATCH_PARTS	4u	/* parts in flight if the lane has no queue */
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
	struct kvblk_queue *queue;	/* NULL if io_uring is not available */
	uint32_t region;	/* handle of @stage; 0: pinned for each operation */
	struct kvblk_op *ops;	/* entry per part or operation of a load, like the next two */
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
	pthread_mutex_t lock;	/* protects the fields below */
	pthread_cond_t given_back;
	struct lane *free;
	unsigned int nr_lost;	/* lanes never reused: still in use by kernel or GPU */
};

static struct kvblk_stage *stages;
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
	kvblk_queue_destroy(lane->queue);
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
	size_t part_size = stage->options.part_size, size = stage_size(stage);
	size_t nr_parts = (stage->options.block_max + part_size - 1) / part_size;
	size_t nr = nr_parts > LOAD_OPS ? nr_parts : LOAD_OPS;
	void *p;
	int err;

	lane->ops = calloc(nr, sizeof(*lane->ops));
	lane->pieces = calloc(nr, sizeof(*lane->pieces));
	lane->results = calloc(nr, sizeof(*lane->results));
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
	/* optional: both only improve performance, and may be forbidden */
	if (kvblk_region_register(stage->kv, p, size, &lane->region))
		lane->region = 0;
	if (kvblk_queue_create(stage->kv, (unsigned int)nr_parts, KVBLK_QUEUE_ANY_THREAD, &lane->queue))
		lane->queue = NULL;
	return 0;
}

static void stage_destroy(struct kvblk_stage *stage)
{
	bool inside = !kvblk_cu_enter(stage->context);

	for (unsigned int i = 0; i < stage->nr_lanes; i++)
		lane_destroy(stage, &stage->lanes[i]);
	if (inside)
		kvblk_cu_leave();
	pthread_cond_destroy(&stage->given_back);
	pthread_mutex_destroy(&stage->lock);
	free(stage);
}

/* Replace zeroes in @options by defaults. */
static int complete(struct kvblk *kv, size_t page, struct kvblk_mem_options *options)
{
	struct kvblk_info info;
	int err = kvblk_info(kv, &info);

	if (err)
		return err;
	if (!options->block_max)
		options->block_max = info.value_max && info.value_max < BLOCK_MAX ? info.value_max : BLOCK_MAX;
	if (!options->part_size)
		options->part_size = PART_SIZE;
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
	pthread_cond_init(&s->given_back, NULL);
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
	return a->block_max == b->block_max && a->part_size == b->part_size && a->lanes == b->lanes;
}

int kvblk_stage_open(struct kvblk *kv, void *context, const struct kvblk_mem_options *options,
		     struct kvblk_stage **stage)
{
	const struct kvblk_mem_options given = options ? *options : (struct kvblk_mem_options){ 0 };
	struct kvblk_stage *s;
	int err = 0;

	pthread_mutex_lock(&open_lock);
	pthread_mutex_lock(&stages_lock);
	for (s = stages; s; s = s->next) {
		if (s->kv == kv && s->context == context && are_same(&s->given, &given)) {
			s->users++;
			break;
		}
	}
	pthread_mutex_unlock(&stages_lock);
	if (!s) {
		err = stage_create(kv, context, &given, &s);
		if (!err) {
			s->users = 1;
			pthread_mutex_lock(&stages_lock);
			s->next = stages;
			stages = s;
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
	}
	pthread_mutex_unlock(&stages_lock);
	if (last)
		stage_destroy(stage);
}

void kvblk_stage_piece(const struct kvblk_stage *stage, uint64_t ptr, size_t len,
		       struct kvblk_piece *piece)
{
	kvblk_piece_user(piece, NULL, len);
	piece->type = PIECE_STAGED;
	piece->handle = stage->id;
	piece->addr = ptr;
}

/* Wait for a free lane. Returns NULL if all lanes are lost. */
static struct lane *lane_take(struct kvblk_stage *stage)
{
	struct lane *lane;

	pthread_mutex_lock(&stage->lock);
	while (!stage->free && stage->nr_lost < stage->nr_lanes)
		pthread_cond_wait(&stage->given_back, &stage->lock);
	lane = stage->free;
	if (lane)
		stage->free = lane->next;
	pthread_mutex_unlock(&stage->lock);
	return lane;
}

static void lane_give(struct kvblk_stage *stage, struct lane *lane)
{
	pthread_mutex_lock(&stage->lock);
	if (lane->unsure || (lane->queue && kvblk_queue_inflight(lane->queue))) {
		stage->nr_lost++;
		pthread_cond_broadcast(&stage->given_back);
	} else {
		lane->next = stage->free;
		stage->free = lane;
		pthread_cond_signal(&stage->given_back);
	}
	pthread_mutex_unlock(&stage->lock);
}

static void lane_piece(const struct lane *lane, size_t offset, size_t len,
		       struct kvblk_piece *piece)
{
	if (lane->region)
		region_piece(piece, lane->region, offset, len);
	else
		kvblk_piece_user(piece, lane->stage + offset, len);
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
	const struct kvblk_stage *stage;
	struct lane *lane;
	const struct kvblk_op *ops;
	struct kvblk_result *results;
	unsigned int nr, flags;
	uint32_t hints;		/* union of the puts' hints, if they are a chain */
};

/* Consecutive puts or gets of a batch that share one half of the lane's memory. */
struct load {
	unsigned int first, end;
	size_t at;
};

static const struct kvblk_piece *pieces_of(const struct kvblk_op *op)
{
	return (const struct kvblk_piece *)(uintptr_t)op->pieces;
}

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

static size_t length_of(const struct kvblk_op *op)
{
	size_t len = 0;

	for (unsigned int i = 0; i < op->nr_pieces; i++)
		len += pieces_of(op)[i].length;
	return len;
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

/* Returns the operation's extension, or NULL if there is none or it has another version's size. */
static const struct kvblk_op_ext *ext_of(const struct kvblk_op *op)
{
	const struct kvblk_op_ext *ext = (const void *)(uintptr_t)op->ext;

	return ext && ext->size == sizeof(*ext) ? ext : NULL;
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
		*ext = *its;
	ext->hints |= b->hints;
	for (i = load->end; i < b->nr && !(is_put(b, i) && b->results[i].res >= 0); i++)
		;
	if (i < b->nr)
		ext->hints |= KVBLK_HINT_CONTINUES;
	for (i = load->first; i-- && !ext->parent_len;) {
		if (!is_put(b, i) || refusal(b->stage, &b->ops[i]) || b->ops[i].key_len > KVBLK_KEY_MAX)
			continue;
		ext->parent = b->ops[i].key;
		ext->parent_len = b->ops[i].key_len;
	}
}

/*
 * After @result, fail later operations that must not run: of a declined chain or a canceled
 * cookie.
 */
static void skip_later(const struct batch *b, unsigned int first, const struct kvblk_result *result)
{
	bool declined = result->res == -ENOBUFS && b->flags & KVBLK_SUBMIT_CHAIN;
	bool canceled = result->res == -ECANCELED && result->cookie;

	for (unsigned int i = first; (declined || canceled) && i < b->nr; i++) {
		if (b->results[i].res >= 0 &&
		    (declined ? is_put(b, i) : b->ops[i].cookie == result->cookie))
			finish(b, i, result->res);
	}
}

static void load_submit(const struct batch *b, const struct load *load)
{
	const struct lane *lane = b->lane;
	unsigned int nr = 0, done = 0;
	struct kvblk_op_ext ext;
	size_t at = load->at;
	int err;

	for (unsigned int i = load->first; i < load->end; i++) {
		struct kvblk_op *op = &lane->ops[nr];
		size_t room = room_of(b->stage, &b->ops[i]);

		/* skip operations that skip_later() has completed since the load was built */
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
	err = kvblk_submit(b->stage->kv, lane->ops, nr, lane->results, b->flags);
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

static void batch_run(const struct batch *b)
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

/* Run a batch whose first staged piece belongs to stage @id; sets @b's stage and lane. */
static void submit_staged(struct kvblk *kv, uint32_t id, struct batch *b)
{
	struct kvblk_stage *stage = stage_find(kv, id);
	int err = -EINVAL;

	if (stage) {
		b->stage = stage;
		for (unsigned int i = 0; i < b->nr; i++) {
			const struct kvblk_op_ext *ext = ext_of(&b->ops[i]);

			finish(b, i, refusal(stage, &b->ops[i]));
			if (ext && b->flags & KVBLK_SUBMIT_CHAIN && is_put(b, i))
				b->hints |= ext->hints;
		}
		b->lane = lane_take(stage);
		err = b->lane ? kvblk_cu_enter(stage->context) : -EIO;
		if (!err) {
			batch_run(b);
			kvblk_cu_leave();
		}
		if (b->lane)
			lane_give(stage, b->lane);
	}
	for (unsigned int i = 0; err && i < b->nr; i++)
		finish(b, i, err);
}

int kvblk_mem_submit(struct kvblk *kv, const struct kvblk_op *ops, unsigned int nr_ops,
		     struct kvblk_result *results, unsigned int flags)
{
	unsigned int first = 0, end;

	while (first < nr_ops && !id_of(&ops[first]))
		first++;
	if (first == nr_ops)
		return kvblk_submit(kv, ops, nr_ops, results, flags);
	for (first = 0; first < nr_ops; first = end) {
		struct batch b = { .ops = &ops[first], .results = &results[first], .flags = flags };
		uint32_t id = id_of(&ops[first]);
		int err = 0;

		for (end = first + 1; end < nr_ops && id_of(&ops[end]) == id; end++)
			;
		b.nr = end - first;
		if (id)
			submit_staged(kv, id, &b);
		else
			err = kvblk_submit(kv, b.ops, b.nr, b.results, flags);
		for (unsigned int i = 0; err && i < b.nr; i++)
			finish(&b, i, err);
	}
	return 0;
}

/* A single get, in parts. */

/* State of a get that is fetched in parts. */
struct fetch {
	const struct kvblk_stage *stage;
	struct lane *lane;
	device_ptr to;
	size_t len;
	uint64_t layout_tag;
	bool started;		/* a part has arrived; @layout_tag is valid */
	int err;
};

/* Returns the length of part number @i. */
static size_t part_len(const struct fetch *fetch, size_t i)
{
	size_t left = fetch->len - i * fetch->stage->options.part_size;

	return left < fetch->stage->options.part_size ? left : fetch->stage->options.part_size;
}

static void part_prepare(struct fetch *fetch, size_t i, const void *key, size_t key_len)
{
	struct lane *lane = fetch->lane;
	struct kvblk_op *op = &lane->ops[i];
	size_t at = i * fetch->stage->options.part_size, len = part_len(fetch, i);

	/* a byte more for the last part, to detect a block that has grown */
	lane_piece(lane, at, at + len == fetch->len ? len + 1 : len, &lane->pieces[i]);
	kvblk_prep_get(op, key, key_len, &lane->pieces[i], 1);
	op->flags = KVBLK_OPF_PARTIAL;
	op->offset = (uint32_t)at;
	op->cookie = i;
}

/* Copy a part to the device, unless the get has failed. */
static void part_arrived(struct fetch *fetch, const struct kvblk_result *result)
{
	size_t i = result->cookie, at = i * fetch->stage->options.part_size;
	struct lane *lane = fetch->lane;

	if (fetch->err)
		return;
	if (result->res < 0 && result->res != -ERANGE) {
		fetch->err = result->res;
		return;
	}
	/* another block has replaced this one: its length or layout tag differs */
	if (result->res != (int)part_len(fetch, i) ||
	    (fetch->started && result->layout_tag != fetch->layout_tag)) {
		fetch->err = -ENOENT;
		return;
	}
	fetch->layout_tag = result->layout_tag;
	fetch->started = true;
	fetch->err = kvblk_cu_errno(kvblk_cu.to_device(fetch->to + at, lane->stage + at,
						 part_len(fetch, i), lane->stream));
}

/* Submit all parts at once, and copy each when it completes. */
static void fetch_queued(struct fetch *fetch, size_t nr)
{
	struct lane *lane = fetch->lane;
	int err = 0;

	for (size_t i = 0; i < nr && !err; i++)
		err = kvblk_queue_add(lane->queue, &lane->ops[i]);
	if (err)
		fetch->err = err;
	while (kvblk_queue_inflight(lane->queue)) {
		int got = kvblk_queue_wait(lane->queue, lane->results, (unsigned int)nr, 1, -1);

		if (got == -EINTR)
			continue;
		if (got < 0) {
			if (!fetch->err)
				fetch->err = got;
			return;
		}
		for (int i = 0; i < got; i++)
			part_arrived(fetch, &lane->results[i]);
	}
}

/* Without a queue: submit a few parts by ioctl while the previous ones are copied. */
static void fetch_batched(struct fetch *fetch, size_t nr)
{
	struct lane *lane = fetch->lane;

	for (size_t i = 0; i < nr && !fetch->err;) {
		size_t n = nr - i < BATCH_PARTS ? nr - i : BATCH_PARTS;

		fetch->err = kvblk_submit(fetch->stage->kv, &lane->ops[i], (unsigned int)n,
					  &lane->results[i], 0);
		for (; n && !fetch->err; n--)
			part_arrived(fetch, &lane->results[i++]);
	}
}

/* Wait for the copies. Zero the destination if the get failed. */
static int fetch_end(struct fetch *fetch)
{
	struct lane *lane = fetch->lane;
	int err = stream_wait(lane);

	if (!fetch->err && !err)
		return 0;
	if (err)
		stream_wait(lane);
	if (fetch->started && !err) {
		err = kvblk_cu_errno(kvblk_cu.fill(fetch->to, 0, fetch->len, lane->stream));
		if (!err)
			err = stream_wait(lane);
	}
	return err ? err : fetch->err;
}

int kvblk_stage_fetch(struct kvblk_stage *stage, uint64_t ptr, const void *key, size_t key_len,
		      size_t *len)
{
	struct fetch fetch = { .stage = stage, .to = ptr };
	uint32_t size = 0;
	size_t nr;
	int err;

	err = kvblk_exists(stage->kv, key, key_len, &size);
	if (err)
		return err;
	if (size > *len) {
		*len = size;
		return -EMSGSIZE;
	}
	if (size > stage->options.block_max)
		return -EFBIG;
	fetch.len = size;
	fetch.lane = lane_take(stage);
	if (!fetch.lane)
		return -EIO;
	nr = (size + stage->options.part_size - 1) / stage->options.part_size;
	for (size_t i = 0; i < nr; i++)
		part_prepare(&fetch, i, key, key_len);
	err = kvblk_cu_enter(stage->context);
	if (!err) {
		if (fetch.lane->queue)
			fetch_queued(&fetch, nr);
		else
			fetch_batched(&fetch, nr);
		err = fetch_end(&fetch);
		kvblk_cu_leave();
	}
	lane_give(stage, fetch.lane);
	if (!err)
		*len = size;
	return err;
}
