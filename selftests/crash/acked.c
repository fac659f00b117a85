// SPDX-License-Identifier: GPL-2.0
/*
 * Puts and deletes whose acknowledgments survive a crash, and the check of the blocks that return
 * after it.
 *
 * The journal has one page per batch. It is written, durably, before the batch is submitted, so
 * that the check knows which operations may have been in flight, and again with the results.
 * After a crash, for each key:
 *  - a block whose delete was acknowledged, and that was not put again, is not present;
 *  - otherwise it is not present, or is one of the blocks put since the last acknowledged
 *    delete, whole;
 *  - a block whose time to live is over is not present;
 *  - a block is present if its put was durable, and acknowledged as stored or as existing:
 *    a run with -d must have space for all its blocks.
 * The caller chooses how many of the acknowledged blocks must be present.
 *
 * usage: crash_acked run NODE JOURNAL [-t THREADS] [-n BATCHES] [-k KEYS]
 *		[-l BYTES] [-w BYTES] [-d PERCENT] [-m DM_DEVICE]
 *	or: crash_acked check NODE JOURNAL [-t THREADS] [-a ACKED] [-p PERCENT]
 *
 *  -n 0: run until the power is cut, and print the progress
 *  -w: continue after BATCHES until each thread has stored this many bytes
 *  -d: this percentage of puts is durable, and of existing blocks as many get a durable put
 *      of the same; deletes, which flush, are then ten times rarer
 *  -m: send the mark "ack-N" to the dm-log-writes device after batch N
 *  -a: read the journal as it was at that mark
 */
#include <linux/dm-ioctl.h>
#include <linux/fs.h>
#include <pthread.h>
#include <stdarg.h>
#include <sys/stat.h>

#include "../guest/complain.h"
#include "../guest/kv_io.h"

#define MAGIC		0x6c616e72756f6aull	/* "journal" */
#define PAGES		4096u	/* per thread */
#define OPS		24u
#define KEYS_MAX	4096u
#define TAGS_MAX	64u	/* possible tags of a key */
#define TTL		1u

struct entry {
	uint64_t key, tag;
	int32_t res;
	uint8_t op, ttl, durable, pad;
};

struct page {
	uint64_t magic;
	uint64_t time;		/* seconds since 1970 */
	uint32_t thread, index;
	uint32_t acked, nr_ops;
	uint32_t keys, max_len;
	uint64_t pad;
	struct entry entries[OPS];
	uint8_t rest[PAGE - 48 - OPS * sizeof(struct entry)];
};

_Static_assert(sizeof(struct page) == PAGE, "a page");

static const char *node;
static const char *dm_name;
static unsigned int threads = 1, batches = 50, keys = 64, durables;
static size_t max_len = 40000;
static uint64_t want_stored, seed;
static unsigned int acked_limit = UINT32_MAX, percent;
static int journal;

static uint64_t key_nr(unsigned int thread, unsigned int i)
{
	return 7000000ull + thread * 100000ull + i;
}

static size_t len_of(uint64_t nr, uint64_t tag, size_t max)
{
	uint64_t mixed = kv_mix(nr * 3 + tag);

	/* a long block in 8, so that small and large records share segments */
	return 1 + (mixed >> 8) % (mixed % 8 ? (max + 7) / 8 : max);
}

static void open_journal(const char *path)
{
	struct stat st;
	int flags = O_RDWR | O_CLOEXEC;

	if (!stat(path, &st) && S_ISBLK(st.st_mode))
		flags |= O_DIRECT | O_SYNC;
	else
		flags |= O_CREAT;
	journal = open(path, flags, 0600);
	if (journal < 0)
		kv_die("can't open the journal %s", path);
}

static off_t page_at(unsigned int thread, unsigned int index)
{
	return (off_t)(((uint64_t)thread * PAGES + index) * PAGE);
}

static void write_page(const struct page *page)
{
	if (pwrite(journal, page, PAGE, page_at(page->thread, page->index)) !=
	    (ssize_t)PAGE)
		kv_die("can't write to the journal");
}

/* As dmsetup message DM_DEVICE 0 mark "ack-N", without a process. */
static void mark(unsigned int nr)
{
	static int control = -1;
	struct {
		struct dm_ioctl io;
		struct dm_target_msg target;
		char text[64];
	} message;

	if (control < 0)
		control = open("/dev/mapper/control", O_RDWR | O_CLOEXEC);
	memset(&message, 0, sizeof(message));
	message.io.version[0] = DM_VERSION_MAJOR;
	message.io.data_size = sizeof(message);
	message.io.data_start = offsetof(typeof(message), target);
	snprintf(message.io.name, sizeof(message.io.name), "%s", dm_name);
	/* message.text is where target.message, a flexible array, begins */
	snprintf(message.text, sizeof(message.text), "mark ack-%u", nr);
	if (ioctl(control, DM_TARGET_MSG, &message) < 0)
		kv_die("can't mark the log of %s", dm_name);
}

struct worker {
	pthread_t thread;
	unsigned int id;
	unsigned int counts[5];		/* stored, deleted, got, missed, made durable */
};

static void *run(void *arg)
{
	struct worker *w = arg;
	struct page *page = kv_alloc(PAGE);
	uint64_t tags[KEYS_MAX] = { 0 }, next_tag = 1;
	bool mortal[KEYS_MAX] = { false };
	uint64_t dice = kv_mix(seed + w->id), stored = 0;
	size_t area = (max_len + PAGE - 1) / PAGE * PAGE;
	uint8_t *buf = kv_alloc(area * OPS);
	int fd = kv_open(node);

	for (unsigned int b = 0; b < PAGES && (!batches || b < batches ||
					       stored < want_stored); b++) {
		struct kv_key op_keys[OPS];
		struct kvblk_piece pieces[OPS];
		struct kvblk_op_ext exts[OPS];
		struct kvblk_op ops[OPS];
		struct kvblk_result res[OPS];
		unsigned int first = (unsigned int)kv_below(&dice, keys);
		unsigned int nr = 4 + (unsigned int)kv_below(&dice, OPS - 4);

		if (nr > keys)
			nr = keys;
		memset(page, 0, PAGE);
		page->magic = MAGIC;
		page->time = (uint64_t)time(NULL);
		page->thread = w->id;
		page->index = b;
		page->nr_ops = nr;
		page->keys = keys;
		page->max_len = (uint32_t)max_len;
		for (unsigned int i = 0; i < nr; i++) {
			/* no key twice, because a batch has no order */
			unsigned int k = (first + i) % keys;
			struct entry *e = &page->entries[i];
			size_t len;

			e->key = key_nr(w->id, k);
			op_keys[i] = kv_key(e->key);
			e->tag = tags[k];
			e->op = KVBLK_OP_GET;
			if (!tags[k]) {
				e->op = KVBLK_OP_PUT;
				e->tag = next_tag++;
				e->ttl = kv_below(&dice, 25) ? 0 : TTL;
			} else if (!kv_below(&dice, durables ? 50 : 5)) {
				e->op = KVBLK_OP_DELETE;
			} else if (!mortal[k] && kv_below(&dice, 100) < durables) {
				e->op = KVBLK_OP_PUT;
				e->durable = 1;
			}
			if (!tags[k] && durables)
				e->durable = kv_below(&dice, 100) < durables;
			len = e->op == KVBLK_OP_PUT ?
			      len_of(e->key, e->tag, max_len) : max_len;
			pieces[i] = kv_piece(buf + i * area, len);
			ops[i] = kv_op(e->op, &op_keys[i], &pieces[i], 1);
			if (e->op == KVBLK_OP_PUT) {
				kv_tags(&ops[i], &exts[i], 0, e->tag);
				ops[i].ttl_s = e->ttl;
				if (e->durable)
					ops[i].flags |= KVBLK_OPF_DURABLE;
				kv_fill(kv_seed(e->key, e->tag), 0,
					buf + i * area, len);
			} else if (e->op == KVBLK_OP_DELETE) {
				ops[i].nr_pieces = 0;
				ops[i].pieces = 0;
			}
		}
		write_page(page);
		if (kv_submit(fd, ops, res, nr, 0))
			kv_die("a batch failed");
		for (unsigned int i = 0; i < nr; i++) {
			struct entry *e = &page->entries[i];
			unsigned int k = (first + i) % keys;

			e->res = res[i].res;
			if (e->op == KVBLK_OP_PUT && res[i].res > 0) {
				tags[k] = e->tag;
				mortal[k] = e->ttl;
				w->counts[0]++;
				stored += pieces[i].length;
				w->counts[4] += e->durable;
			} else if (e->op == KVBLK_OP_PUT && tags[k]) {
				/* the block exists */
				w->counts[4] += res[i].res == -EEXIST;
			} else if (e->op == KVBLK_OP_PUT) {
				/*
				 * another tag, unknown here, has the key (a get missed it,
				 * because it had expired), or the pool is full
				 */
				tags[k] = 0;
			} else if (e->op == KVBLK_OP_DELETE) {
				tags[k] = 0;
				w->counts[1]++;
			} else if (res[i].res > 0) {
				w->counts[2]++;
				if (kv_wrong(kv_seed(e->key, res[i].caller_tag),
					     0, buf + i * area,
					     (size_t)res[i].res) >= 0)
					kv_die("a wrong byte in block %llu",
					       (unsigned long long)e->key);
			} else {
				tags[k] = 0;
				w->counts[3]++;
			}
		}
		page->acked = 1;
		page->time = (uint64_t)time(NULL);
		write_page(page);
		if (dm_name)
			mark(b + 1);
		if (!w->id && !batches && b % 10 == 9) {
			printf("%u batches acknowledged\n", b + 1);
			fflush(stdout);
		}
	}
	return NULL;
}

struct known {
	uint64_t tags[TAGS_MAX];	/* tags that may be present */
	unsigned int nr_tags;
	bool expected;			/* only tags[0] may be present, and should be */
	bool deleted;			/* by the last acknowledged operation */
	bool durable;			/* must be present */
};


static void learn(struct known *k, const struct entry *e, bool acked)
{
	switch (e->op) {
	case KVBLK_OP_PUT:
		if (acked && e->res == -EEXIST && e->durable)
			k->durable |= k->expected;
		if (acked && e->res <= 0)
			return;	/* rejected */
		if (!e->ttl) {
			if (k->nr_tags == TAGS_MAX)
				kv_die("too many puts of a key");
			k->tags[k->nr_tags++] = e->tag;
		}
		k->expected = acked && !e->ttl;
		k->durable |= k->expected && e->durable;
		k->deleted = false;
		break;
	case KVBLK_OP_DELETE:
		/* -ENOENT counts as a delete, too: the block must not return */
		if (acked && (!e->res || e->res == -ENOENT)) {
			k->nr_tags = 0;
			k->deleted = !e->res;
		}
		k->expected = k->durable = false;
		break;
	default:
		if (acked && e->res <= 0)
			k->expected = false;	/* evicted before the crash */
	}
}

static void check_thread(int fd, unsigned int thread, unsigned int *expected,
			 unsigned int *present, unsigned int *gone,
			 unsigned int *read_back)
{
	static struct known known[KEYS_MAX];
	struct page *page = kv_alloc(PAGE);
	unsigned int nr_keys = 0, max = 0, nr = 0;
	uint8_t *buf;

	memset(known, 0, sizeof(known));
	for (; nr < PAGES && nr <= acked_limit; nr++) {
		bool acked;

		if (pread(journal, page, PAGE, page_at(thread, nr)) !=
		    (ssize_t)PAGE || page->magic != MAGIC ||
		    page->thread != thread || page->index != nr)
			break;
		nr_keys = page->keys;
		max = page->max_len;
		acked = page->acked && nr < acked_limit;
		for (unsigned int i = 0; i < page->nr_ops; i++)
			learn(&known[page->entries[i].key - key_nr(thread, 0)],
			      &page->entries[i], acked);
		/* wait until the times to live are over */
		while ((uint64_t)time(NULL) <= page->time + TTL + 1)
			usleep(50000);
	}
	buf = kv_alloc(max ? max : 1);
	for (unsigned int i = 0; i < nr_keys; i++) {
		struct known *k = &known[i];
		uint64_t key = key_nr(thread, i);
		struct kvblk_result res;
		bool may = false;
		ssize_t wrong;
		size_t room;

		*expected += k->expected;
		/* the smallest sufficient buffer, because all of it is checked */
		room = kv_size(fd, key);
		if (!room || room > max)
			room = max < PAGE ? max : PAGE;
		memset(buf, KV_UNTOUCHED, room);
		res = kv_get(fd, key, buf, room);
		if (res.res <= 0) {
			*gone += k->deleted;
			if (k->durable)
				complain("block %llu, which was told to be DURABLE, is not there",
					 (unsigned long long)key);
			if (res.res != -ENOENT)
				complain("get of %llu: %d",
					 (unsigned long long)key, res.res);
			wrong = kv_leaked(buf, room);
			if (wrong >= 0)
				complain("a miss of %llu left bytes",
					 (unsigned long long)key);
			continue;
		}
		(*read_back)++;
		for (unsigned int j = 0; j < k->nr_tags; j++)
			may |= k->tags[j] == res.caller_tag;
		if (!may) {
			complain("block %llu came back with tag %llu, %s (%u tags may be)",
				 (unsigned long long)key,
				 (unsigned long long)res.caller_tag,
				 k->deleted ? "but it was DELETED" :
				 "which was deleted, has expired or was never stored",
				 k->nr_tags);
			continue;
		}
		if ((size_t)res.res != len_of(key, res.caller_tag, max) ||
		    kv_wrong(kv_seed(key, res.caller_tag), 0, buf,
			     (size_t)res.res) >= 0) {
			complain("A WRONG BYTE in block %llu, tag %llu",
				 (unsigned long long)key,
				 (unsigned long long)res.caller_tag);
			continue;
		}
		*present += k->expected;
	}
}

static int check(void)
{
	unsigned int expected = 0, present = 0, gone = 0, read_back = 0;
	int fd = kv_open(node);

	for (unsigned int i = 0; i < threads; i++)
		check_thread(fd, i, &expected, &present, &gone, &read_back);
	if (present * 100ull < (uint64_t)percent * expected)
		complain("%u of %u acknowledged blocks came back, less than %u %%",
			 present, expected, percent);
	printf("expected=%u present=%u read=%u deleted=%u bad=%u\n", expected,
	       present, read_back, gone, bad);
	return bad != 0;
}

int main(int argc, char **argv)
{
	struct worker *workers;
	unsigned int sum[5] = { 0 };
	int option;

	while ((option = getopt(argc, argv, "t:n:k:l:w:d:m:a:p:")) > 0) {
		unsigned int number = (unsigned int)strtoul(optarg, NULL, 0);

		switch (option) {
		case 't': threads = number; break;
		case 'n': batches = number; break;
		case 'k': keys = number; break;
		case 'l': max_len = number; break;
		case 'w': want_stored = number; break;
		case 'd': durables = number; break;
		case 'm': dm_name = optarg; break;
		case 'a': acked_limit = number; break;
		case 'p': percent = number; break;
		default: return 2;
		}
	}
	if (argc - optind != 3 || !keys || keys > KEYS_MAX) {
		fprintf(stderr, "usage: %s [OPTION...] run|check NODE JOURNAL\n",
			argv[0]);
		return 2;
	}
	node = argv[optind + 1];
	open_journal(argv[optind + 2]);
	if (!strcmp(argv[optind], "check"))
		return check();
	seed = kv_run_seed();
	workers = calloc(threads, sizeof(*workers));
	for (unsigned int i = 0; i < threads; i++) {
		workers[i].id = i;
		pthread_create(&workers[i].thread, NULL, run, &workers[i]);
	}
	for (unsigned int i = 0; i < threads; i++) {
		pthread_join(workers[i].thread, NULL);
		for (unsigned int j = 0; j < 5; j++)
			sum[j] += workers[i].counts[j];
	}
	printf("stored=%u deleted=%u got=%u missed=%u durable=%u\n", sum[0], sum[1],
	       sum[2], sum[3], sum[4]);
	return 0;
}
