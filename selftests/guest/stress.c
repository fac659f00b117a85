// SPDX-License-Identifier: GPL-2.0
/*
 * Threads that mix all operations on one pool. Each byte of a get is checked against the key and
 * tag of its result. A failed get must leave zeroes or an unchanged buffer.
 *
 * usage: guest_stress NODE [OPTION...]
 *  -t N	threads (4)
 *  -s N	seconds (10); a file at -f ends it sooner
 *  -f FILE	stop when FILE exists
 *  -b BYTES	stop after BYTES were put, instead of by time
 *  -k N	keys (2000)
 *  -l BYTES	longest block (200000)
 *  -m MIX	all (default), or write: puts and a few gets
 *  -d		members leave: deletes may get -EIO
 *  -e		members fail: puts too may get -EIO
 *  -n		the pool may be full: puts may get -ENOSPC
 *  -o		allocations fail: anything may get -ENOMEM
 *  -p MS	pause after each batch
 *  -w MS	longest time that a batch may take
 */
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>

#include "complain.h"
#include "kv_io.h"

#define BATCH		16u
#define TAGS		3u
#define BASE		5000000ull
#define COOKIES		32u
#define SLACK		8192u	/* guard bytes before and after each buffer */

static const char *node, *stop_file;
static unsigned int threads = 4, seconds = 10, keys = 2000, worst_ms;
static size_t max_len = 200000;
static unsigned int pause_ms;
static uint64_t bytes_wanted;
static bool deletes_may_fail, errors_allowed, full_allowed, writes_only,
	    memory_short;
static uint64_t start_ms, end_ms;

static atomic_ullong hits, misses, stored, exists, refused, failed, deleted;
static atomic_ullong canceled, late, leases, lookups, bytes_put, bytes_got;
static atomic_ullong slowest, full, starved, prefetched;

static bool no_memory(int err)
{
	if (err != -ENOMEM || !memory_short)
		return false;
	starved++;
	return true;
}

static size_t len_of(uint64_t nr, uint64_t tag)
{
	uint64_t mixed = kv_mix(nr * 7 + tag);
	size_t top = mixed % 4 ? max_len / 4 : max_len;

	return 1 + (mixed >> 8) % (top ? top : 1);
}

struct slot {		/* an operation of a batch and its memory */
	uint64_t nr, tag;
	struct kv_key key;
	struct kvblk_piece pieces[2];
	struct kvblk_op_ext ext;
	uint8_t *area, *at;
	size_t room;
};

static struct worker {
	pthread_t thread;
	unsigned int id;
	int fd;
	uint64_t dice;
	struct slot slots[BATCH];
	struct kvblk_op ops[BATCH];
	struct kvblk_result res[BATCH];
	uint64_t lease;
} *workers;

static void random_op(struct worker *w, unsigned int i, uint8_t opcode)
{
	static const size_t starts[] = { 0, 0, 0, 512, 4, 1, 4095 };
	struct slot *s = &w->slots[i];
	struct kvblk_op *op = &w->ops[i];
	unsigned int nr_pieces = 1;

	s->nr = BASE + kv_below(&w->dice, keys);
	s->tag = kv_below(&w->dice, TAGS);
	s->key = kv_key(s->nr);
	s->at = s->area + starts[kv_below(&w->dice, ARRAY_SIZE(starts))];
	s->room = opcode == KVBLK_OP_PUT ? len_of(s->nr, s->tag) : max_len;
	s->pieces[0] = kv_piece(s->at, s->room);
	if (s->room > 8192 && !kv_below(&w->dice, 4)) {
		/* two adjacent pieces, split at a page boundary or not */
		size_t first = kv_below(&w->dice, 2) ? 4096 : 777;

		s->pieces[0].length = first;
		s->pieces[1] = kv_piece(s->at + first, s->room - first);
		nr_pieces = 2;
	}
	*op = kv_op(opcode, &s->key, s->pieces, (uint16_t)nr_pieces);
	op->cookie = kv_below(&w->dice, COOKIES);
	switch (opcode) {
	case KVBLK_OP_PUT:
		kv_fill(kv_seed(s->nr, s->tag), 0, s->at, s->room);
		kv_tags(op, &s->ext, s->tag + 100, s->tag);
		op->priority = (uint8_t)kv_below(&w->dice, 4);
		if (!kv_below(&w->dice, 20))
			op->ttl_s = 1 + (uint32_t)kv_below(&w->dice, 3);
		if (!kv_below(&w->dice, 12))
			op->flags |= KVBLK_OPF_DURABLE;
		break;
	case KVBLK_OP_GET:
		memset(s->area, KV_UNTOUCHED, max_len + SLACK);
		if (!kv_below(&w->dice, 4)) {
			op->flags |= KVBLK_OPF_PARTIAL;
			op->offset = (uint32_t)kv_below(&w->dice, max_len / 4);
			op->length = (uint32_t)kv_below(&w->dice, s->room);
		}
		if (!kv_below(&w->dice, 8)) {
			op->flags |= KVBLK_OPF_HARD_DEADLINE;
			op->deadline_ns = kv_now_ms() * 1000000 +
					  kv_below(&w->dice, 20000000);
		}
		break;
	default:
		op->pieces = 0;
		op->nr_pieces = 0;
	}
}

static void judge_get(const struct slot *s, const struct kvblk_op *op,
		      const struct kvblk_result *res)
{
	ssize_t wrong;

	if (res->res <= 0) {
		misses++;
		if (res->res == -ECANCELED)
			canceled++;
		else if (res->res == -ETIME && op->deadline_ns)
			late++;
		else if (res->res != -ENOENT && !no_memory(res->res) &&
			 !(res->res == -ERANGE && op->offset))
			complain("get of %llu got %d (%s)",
				 (unsigned long long)s->nr, res->res,
				 strerror(-res->res));
		wrong = kv_leaked(s->area, max_len + SLACK);
		if (wrong >= 0)
			complain("A GET OF %llu THAT GOT %d LEFT BYTES at %zd, asked for %u from %u, flags %#x",
				 (unsigned long long)s->nr, res->res, wrong,
				 op->length, op->offset, op->flags);
		return;
	}
	hits++;
	bytes_got += (unsigned int)res->res;
	if (res->caller_tag >= TAGS ||
	    res->layout_tag != res->caller_tag + 100 ||
	    res->value_len != len_of(s->nr, res->caller_tag)) {
		complain("A FOREIGN BLOCK for key %llu: tag %llu, layout %llu, length %u",
			 (unsigned long long)s->nr,
			 (unsigned long long)res->caller_tag,
			 (unsigned long long)res->layout_tag, res->value_len);
		return;
	}
	if (!(op->flags & KVBLK_OPF_PARTIAL) &&
	    (uint32_t)res->res != res->value_len)
		complain("a get of all %u bytes brought %d", res->value_len,
			 res->res);
	wrong = kv_wrong(kv_seed(s->nr, res->caller_tag), op->offset, s->at,
			 (size_t)res->res);
	if (wrong >= 0)
		complain("A WRONG BYTE at %zd of %d from %u of block %llu, flags %#x",
			 wrong, res->res, op->offset,
			 (unsigned long long)s->nr, res->flags);
}

static void judge_put(const struct slot *s, const struct kvblk_op *op,
		      const struct kvblk_result *res)
{
	if (no_memory(res->res))
		return;
	if (op->flags & KVBLK_OPF_DURABLE && res->flags & KVBLK_RES_MEMORY)
		complain("a durable put of %llu is in memory only",
			 (unsigned long long)s->nr);
	switch (res->res) {
	case -EEXIST:
	case -EALREADY:
		exists++;
		return;
	case -ENOBUFS:
		refused++;
		return;
	case -ECANCELED:
		canceled++;
		return;
	case -EIO:
		failed++;
		if (!errors_allowed)
			complain("put of %llu failed", (unsigned long long)s->nr);
		return;
	case -ENOSPC:
		full++;
		if (!full_allowed)
			complain("no room for put of %llu",
				 (unsigned long long)s->nr);
		return;
	}
	if (res->res != (int)len_of(s->nr, s->tag)) {
		complain("put of %llu got %d (%s)", (unsigned long long)s->nr,
			 res->res, res->res < 0 ? strerror(-res->res) : "");
		return;
	}
	stored++;
	bytes_put += (unsigned int)res->res;
}

static void judge_delete(const struct slot *s, const struct kvblk_result *res)
{
	if (!res->res)
		deleted++;
	else if (res->res == -ECANCELED)
		canceled++;
	else if (res->res == -EIO && deletes_may_fail)
		failed++;
	else if (res->res != -ENOENT && res->res != -EBUSY &&
		 !no_memory(res->res))
		complain("delete of %llu got %d", (unsigned long long)s->nr,
			 res->res);
}

static void judge_prefetch(const struct slot *s, const struct kvblk_result *res)
{
	bool known = !res->res;

	switch (res->res) {
	case -ENOENT:
	case -ENOSPC:
	case -EOPNOTSUPP:
	case -ECANCELED:
		return;
	}
	if (no_memory(res->res))
		return;
	for (uint64_t tag = 0; tag < TAGS; tag++)
		known |= res->res == (int)len_of(s->nr, tag);
	if (!known || !(res->flags & KVBLK_RES_MEMORY))
		complain("prefetch of %llu got %d, flags %#x", (unsigned long long)s->nr,
			 res->res, res->flags);
	prefetched += res->res > 0;
}

static void run_batch(struct worker *w, unsigned int nr, uint32_t flags)
{
	unsigned long long seen = slowest;
	uint64_t start = kv_now_ms(), took;
	int err = kv_submit(w->fd, w->ops, w->res, nr, flags);

	took = kv_now_ms() - start;
	while (took > seen &&
	       !atomic_compare_exchange_weak(&slowest, &seen, took))
		;
	if (no_memory(err))
		return;
	if (err) {
		complain("a batch of %u got %d (%s)", nr, err, strerror(-err));
		return;
	}
	for (unsigned int i = 0; i < nr; i++) {
		const struct kvblk_op *op = &w->ops[i];

		if (w->res[i].cookie != op->cookie)
			complain("the result of %u has another cookie", i);
		else if (op->opcode == KVBLK_OP_GET)
			judge_get(&w->slots[i], op, &w->res[i]);
		else if (op->opcode == KVBLK_OP_PUT)
			judge_put(&w->slots[i], op, &w->res[i]);
		else if (op->opcode == KVBLK_OP_PREFETCH)
			judge_prefetch(&w->slots[i], &w->res[i]);
		else
			judge_delete(&w->slots[i], &w->res[i]);
	}
}

static void batch_of(struct worker *w, uint8_t opcode, unsigned int max,
		     uint32_t flags)
{
	unsigned int nr = 1 + (unsigned int)kv_below(&w->dice, max);

	for (unsigned int i = 0; i < nr; i++)
		random_op(w, i, opcode ? opcode :
			  (uint8_t)(1 + kv_below(&w->dice, 4)));
	run_batch(w, nr, flags);
}

static void look_up(struct worker *w)
{
	unsigned int nr = 1 + (unsigned int)kv_below(&w->dice, 64), present = 0;
	uint64_t first = BASE + kv_below(&w->dice, keys);
	uint8_t blob[64 * KVBLK_KEY_MAX], bitmap[8], *p = blob;
	uint16_t lens[64];
	uint32_t sizes[64];
	int err;
	struct kvblk_lookup io = {
		.size = sizeof(io),
		.nr_keys = nr,
		.keys = kv_addr(blob),
		.key_lens = kv_addr(lens),
		.bitmap = kv_addr(bitmap),
		.sizes = kv_addr(sizes),
	};

	for (unsigned int i = 0; i < nr; i++) {
		struct kv_key key = kv_key(first + i);

		memcpy(p, key.bytes, key.len);
		p += key.len;
		lens[i] = key.len;
	}
	if (kv_below(&w->dice, 2)) {
		io.flags = KVBLK_LOOKUP_LEASE;
		io.lease_ms = 1 + (uint32_t)kv_below(&w->dice, 300);
	}
	if (kv_below(&w->dice, 2))
		io.flags |= KVBLK_LOOKUP_PREFIX;
	err = kv_ioctl(w->fd, KVBLK_IOC_LOOKUP, &io);
	if (no_memory(err))
		return;
	if (err) {
		complain("a lookup failed: %s", strerror(-err));
		return;
	}
	lookups++;
	for (unsigned int i = 0; i < nr; i++) {
		bool here = bitmap[i / 8] >> i % 8 & 1, known = false;

		present += here;
		for (uint64_t tag = 0; tag < TAGS; tag++)
			known |= sizes[i] == len_of(first + i, tag);
		if (here ? !known : sizes[i] != 0)
			complain("a lookup tells size %u of key %llu", sizes[i],
				 (unsigned long long)(first + i));
	}
	if (present != io.nr_present || io.nr_leading > present)
		complain("a lookup counts %u present, %u leading, but has %u bits",
			 io.nr_present, io.nr_leading, present);
	if (!io.lease)
		return;
	leases++;
	if (w->lease && kv_below(&w->dice, 2)) {
		struct kvblk_lease_release_arg r = {
			.size = sizeof(r), .lease = w->lease
		};

		err = kv_ioctl(w->fd, KVBLK_IOC_LEASE_RELEASE, &r);
		if (err && err != -ENOENT && !no_memory(err))
			complain("a release of a lease got %d", err);
	}
	w->lease = io.lease;
}

static void cancel_some(struct worker *w)
{
	struct kvblk_cancel_arg io = {
		.size = sizeof(io), .cookie = 1 + kv_below(&w->dice, COOKIES - 1)
	};
	/* cancel on a neighbour's file, because our own has no operation in flight here */
	int err = kv_ioctl(workers[(w->id + 1) % threads].fd, KVBLK_IOC_CANCEL,
			   &io);

	/* the neighbour may have just closed the file */
	if (err && err != -ENOENT && err != -EBADF && !no_memory(err))
		complain("a cancel got %d", err);
}

static bool over(void)
{
	/* continue until each kind has happened at least once, but for 100 s at most */
	if ((!stored || (!hits && !errors_allowed)) &&
	    kv_now_ms() < start_ms + 100000 * kv_slow())
		return false;
	if (stop_file && !access(stop_file, F_OK))
		return true;
	if (bytes_wanted)
		return bytes_put >= bytes_wanted;
	return kv_now_ms() >= end_ms;
}

static void *work(void *arg)
{
	struct worker *w = arg;

	while (!over() && bad < 10) {
		unsigned int what = (unsigned int)kv_below(&w->dice, 100);

		usleep(pause_ms * 1000);
		if (writes_only)
			batch_of(w, what < 75 ? KVBLK_OP_PUT : KVBLK_OP_GET,
				 BATCH, 0);
		else if (what < 35)
			batch_of(w, KVBLK_OP_GET, BATCH, 0);
		else if (what < 60)
			batch_of(w, KVBLK_OP_PUT, BATCH / 2, 0);
		else if (what < 65)
			batch_of(w, KVBLK_OP_PUT, BATCH, KVBLK_SUBMIT_CHAIN);
		else if (what < 70)
			batch_of(w, KVBLK_OP_DELETE, BATCH / 2, 0);
		else if (what < 74)
			batch_of(w, KVBLK_OP_PREFETCH, BATCH, 0);
		else if (what < 82)
			batch_of(w, 0, BATCH, 0);
		else if (what < 94)
			look_up(w);
		else if (what < 99)
			cancel_some(w);
		else if (!memory_short) {
			close(w->fd);
			w->fd = kv_open(node);
			w->lease = 0;
		}
	}
	return NULL;
}

int main(int argc, char **argv)
{
	uint64_t seed;
	int option;

	start_ms = kv_now_ms();
	while ((option = getopt(argc, argv, "t:s:f:b:k:l:m:denop:w:")) > 0) {
		switch (option) {
		case 't': threads = (unsigned int)atoi(optarg); break;
		case 's': seconds = (unsigned int)atoi(optarg); break;
		case 'f': stop_file = optarg; break;
		case 'b': bytes_wanted = strtoull(optarg, NULL, 0); break;
		case 'k': keys = (unsigned int)atoi(optarg); break;
		case 'l': max_len = strtoul(optarg, NULL, 0); break;
		case 'm': writes_only = !strcmp(optarg, "write"); break;
		case 'd': deletes_may_fail = true; break;
		case 'e': errors_allowed = deletes_may_fail = true; break;
		case 'n': full_allowed = true; break;
		case 'o': memory_short = true; break;
		case 'p': pause_ms = (unsigned int)atoi(optarg); break;
		case 'w': worst_ms = (unsigned int)atoi(optarg); break;
		default: return 2;
		}
	}
	if (optind + 1 != argc) {
		fprintf(stderr, "usage: %s [OPTION...] NODE\n", argv[0]);
		return 2;
	}
	node = argv[optind];
	end_ms = start_ms + seconds * 1000ull;
	seed = kv_run_seed();
	workers = calloc(threads, sizeof(*workers));
	for (unsigned int i = 0; i < threads; i++) {
		struct worker *w = &workers[i];

		w->id = i;
		while ((w->fd = open(node, O_RDWR | O_CLOEXEC)) < 0)
			if (!no_memory(-errno))
				kv_die("can't open %s", node);
		w->dice = kv_mix(seed + i);
		for (unsigned int j = 0; j < BATCH; j++)
			w->slots[j].area = kv_alloc((max_len + SLACK + PAGE) /
						    PAGE * PAGE);
	}
	for (unsigned int i = 0; i < threads; i++)
		pthread_create(&workers[i].thread, NULL, work, &workers[i]);
	for (unsigned int i = 0; i < threads; i++)
		pthread_join(workers[i].thread, NULL);
	printf("%llu ms: put %llu (%llu bytes, %llu exist, %llu declined, %llu failed, %llu full), got %llu (%llu bytes), missed %llu, deleted %llu, canceled %llu, late %llu, lookups %llu, leases %llu, prefetched %llu, no memory %llu, slowest batch %llu ms\n",
	       (unsigned long long)(kv_now_ms() - start_ms), stored, bytes_put,
	       exists, refused, failed, full, hits, bytes_got, misses, deleted,
	       canceled, late, lookups, leases, prefetched, starved, slowest);
	if (worst_ms && slowest > worst_ms)
		complain("a batch took %llu ms, longer than %u", slowest,
			 worst_ms);
	if (memory_short && !starved)
		complain("no allocation failed");
	if (!stored || (!hits && !errors_allowed))
		complain("nothing was put, or nothing was got");
	if (bad)
		printf("# %u things were wrong\n", bad);
	return bad != 0;
}
