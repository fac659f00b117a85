// SPDX-License-Identifier: GPL-2.0
/*
 * An oracle for gets under concurrent puts and deletes. A writer notes in a journal, a file that
 * all machines see, what it begins and what was acknowledged. Readers, on any machine, read a
 * block's record before and after each get, and judge the get by both.
 *
 * usage: guest_oracle NODE write FILE FIRST COUNT LEN BYTES SECONDS [SALT]
 *	or: guest_oracle NODE read FILE STALE_MS LASTING_MS
 *
 * The writer puts, deletes and puts again COUNT blocks of at most LEN bytes, BYTES in all. It takes
 * SECONDS for it, or longer on a slow machine. Readers end with it. Writers with other SALTs put
 * other bytes under the same keys.
 *
 * The rule: a hit has the bytes of one version of this block, which was present, or being put or
 * deleted, at some moment of the get. A version whose delete was acknowledged before is allowed to
 * readers with STALE_MS, if the get began at most this long after the reader saw so. Clocks of
 * machines are not compared.
 *
 * Counts are printed as shell assignments: stale= hits within STALE_MS; lasting= gets of versions
 * that the reader has seen present for LASTING_MS, and lasting_hits= their hits. The exit code is 1
 * if a result was wrong.
 */
#include "complain.h"
#include "kv_io.h"

#define BATCH		8u
#define SCAN_MS		100u	/* between two reads of the whole journal */
#define SILENT_MS	120000u	/* a writer that notes nothing is dead */
#define VERSIONS	16u	/* of a block, whose ends a reader remembers */

enum state {
	ABSENT,		/* the delete was acknowledged, or the put failed */
	PUTTING,
	PRESENT,	/* the put was acknowledged */
	DELETING,
};

struct record {
	uint64_t order;		/* counts the writes to the journal */
	uint32_t version;	/* of the last put; the block's caller tag */
	uint32_t state;
	uint64_t check;		/* proves that the record was not read during its write */
	uint64_t pad;
};

/* The first page of the journal; the records are in the next ones. */
struct head {
	uint64_t first, salt;
	uint32_t count, len, ended;
};

#define RECORD_AT(i)	(PAGE + (i) * sizeof(struct record))

/* A reader's knowledge of a block. */
struct known {
	uint64_t order;
	uint32_t present;		/* version that is present */
	uint64_t present_since;
	uint32_t deleted_to;		/* this and all earlier versions were deleted */
	uint64_t deleted_at[VERSIONS];	/* when the reader saw so, by version */
};

static const char *file;
static int fd, journal;
static struct head head;
static uint64_t dice;

static uint64_t now_ms(void)
{
	struct timespec now;

	/* the clock by which a follower believes its reads */
	clock_gettime(CLOCK_BOOTTIME, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Returns the number that length and bytes of block @i follow from; its key is head.first + @i. */
static uint64_t content_of(uint32_t i)
{
	return head.first + i + (head.salt << 32);
}

static size_t len_of(uint32_t i, uint64_t version)
{
	return 1 + kv_mix(content_of(i) * 7 + version) % head.len;
}

/* Choose different blocks. Half of the choices are among few blocks, which change often. */
static void choose(uint32_t chosen[BATCH])
{
	for (unsigned int i = 0; i < BATCH;) {
		uint32_t among = kv_below(&dice, 2) ? head.count : head.count / 8;
		bool again = false;

		chosen[i] = (uint32_t)kv_below(&dice, among);
		for (unsigned int j = 0; j < i; j++)
			again |= chosen[j] == chosen[i];
		i += !again;
	}
}

static uint64_t check_of(const struct record *record, uint32_t i)
{
	return kv_mix(record->order ^ kv_mix(((uint64_t)record->version << 32 | record->state) ^
					     kv_mix(i)));
}

/* ---- the writer ---- */

static struct {
	uint64_t puts, replaced, deletes, absent, declined, full, bytes;
} wrote;

static struct record *records;

static void journal_write(const void *data, size_t len, size_t at)
{
	/* hostfs passes writes to the host before it returns */
	if (pwrite(journal, data, len, (off_t)at) != (ssize_t)len)
		kv_die("can't write %s", file);
}

static void note(uint32_t i, enum state state)
{
	static uint64_t order;
	struct record *record = &records[i];

	record->order = ++order;
	record->state = state;
	record->check = check_of(record, i);
	journal_write(record, sizeof(*record), RECORD_AT(i));
}

/* Create the journal under its name only when all records are there. */
static void journal_create(void)
{
	char name[256];

	snprintf(name, sizeof(name), "%s.new", file);
	journal = open(name, O_RDWR | O_CREAT | O_EXCL, 0644);
	if (journal < 0)
		kv_die("can't create %s", name);
	records = calloc(head.count, sizeof(*records));
	for (uint32_t i = 0; i < head.count; i++)
		note(i, ABSENT);
	journal_write(&head, sizeof(head), 0);
	if (rename(name, file))
		kv_die("can't rename %s", name);
}

static void put_ended(uint32_t i, const struct kvblk_result *res)
{
	size_t len = len_of(i, records[i].version);

	if (res->res == (int)len) {
		wrote.puts++;
		wrote.replaced += records[i].version > 1;
		wrote.bytes += len;
	} else if (res->res == -ENOBUFS || res->res == -EDQUOT) {
		wrote.declined++;
	} else if (res->res == -ENOSPC) {
		wrote.full++;
	} else {
		complain("put of %u returned %d", i, res->res);
	}
	note(i, res->res > 0 ? PRESENT : ABSENT);
}

static void delete_ended(uint32_t i, const struct kvblk_result *res)
{
	wrote.deletes += !res->res;
	/* reclaim has dropped the block */
	wrote.absent += res->res == -ENOENT;
	if (res->res && res->res != -ENOENT) {
		complain("delete of %u returned %d", i, res->res);
		return;
	}
	note(i, ABSENT);
}

/* Put or delete the chosen blocks that are absent or present. */
static void write_batch(uint8_t opcode, const uint32_t chosen[BATCH], uint8_t *buf)
{
	struct kv_key keys[BATCH];
	struct kvblk_piece pieces[BATCH];
	struct kvblk_op ops[BATCH];
	struct kvblk_op_ext exts[BATCH];
	struct kvblk_result res[BATCH];
	uint32_t blocks[BATCH], nr = 0;
	bool puts = opcode == KVBLK_OP_PUT;
	int err;

	for (unsigned int j = 0; j < BATCH; j++) {
		struct record *record = &records[chosen[j]];
		uint8_t *at = buf + nr * head.len;

		if (record->state != (puts ? ABSENT : PRESENT))
			continue;
		keys[nr] = kv_key(head.first + chosen[j]);
		if (puts) {
			record->version++;
			pieces[nr] = kv_piece(at, len_of(chosen[j], record->version));
			kv_fill(kv_seed(content_of(chosen[j]), record->version), 0, at,
				pieces[nr].length);
		}
		ops[nr] = kv_op(opcode, &keys[nr], &pieces[nr], puts);
		if (puts)
			kv_tags(&ops[nr], &exts[nr], 0, record->version);
		else
			ops[nr].pieces = 0;
		note(chosen[j], puts ? PUTTING : DELETING);
		blocks[nr++] = chosen[j];
	}
	if (!nr)
		return;
	err = kv_submit(fd, ops, res, nr, 0);
	if (err)
		complain("submit returned %d", err);
	for (unsigned int j = 0; j < nr && !err; j++) {
		if (puts)
			put_ended(blocks[j], &res[j]);
		else
			delete_ended(blocks[j], &res[j]);
	}
}

static void write_all(uint64_t bytes, uint64_t seconds)
{
	uint8_t *buf = kv_alloc(BATCH * head.len);
	uint64_t began = now_ms(), took;
	uint32_t chosen[BATCH];

	journal_create();
	while (!bad) {
		took = now_ms() - began;
		if (wrote.bytes >= bytes && took >= seconds * 1000)
			break;
		/* not faster than asked for */
		if (wrote.bytes * seconds * 1000 > took * bytes) {
			usleep(1000);
			continue;
		}
		choose(chosen);
		write_batch(KVBLK_OP_DELETE, chosen, buf);
		/* or else nothing stays absent */
		if (kv_below(&dice, 4))
			write_batch(KVBLK_OP_PUT, chosen, buf);
	}
	head.ended = 1;
	journal_write(&head, sizeof(head), 0);
	printf("puts=%llu replaced=%llu deletes=%llu absent=%llu declined=%llu full=%llu bytes=%llu took=%llu bad=%u\n",
	       (unsigned long long)wrote.puts, (unsigned long long)wrote.replaced,
	       (unsigned long long)wrote.deletes, (unsigned long long)wrote.absent,
	       (unsigned long long)wrote.declined, (unsigned long long)wrote.full,
	       (unsigned long long)wrote.bytes, (unsigned long long)(now_ms() - began), bad);
}

/* ---- readers ---- */

static struct {
	uint64_t gets, hits, foreign, stale, misses, lasting, lasting_hits, slowest;
} n;

static struct known *known;
static uint64_t newest;		/* order of any record */
static uint64_t stale_ms, lasting_ms;

static void journal_read(void *data, size_t len, size_t at)
{
	size_t from = at / PAGE * PAGE, end = (at + len + PAGE - 1) / PAGE * PAGE;

	/* or else the guest's cache has what another machine has changed since */
	posix_fadvise(journal, (off_t)from, (off_t)(end - from), POSIX_FADV_DONTNEED);
	if (pread(journal, data, len, (off_t)at) != (ssize_t)len)
		kv_die("can't read %s", file);
}

static uint32_t deleted_to(const struct record *record)
{
	return record->state == ABSENT ? record->version : record->version - 1;
}

/* Remember when the record of block @i was first seen so. The time is taken after its read. */
static void learn(uint32_t i, const struct record *record)
{
	struct known *k = &known[i];
	uint32_t to = deleted_to(record), v;
	uint64_t now = now_ms();

	if (record->order < k->order)
		kv_die("the record of block %u went back from %llu to %llu", i,
		       (unsigned long long)k->order, (unsigned long long)record->order);
	k->order = record->order;
	if (record->order > newest)
		newest = record->order;
	v = to > VERSIONS && to - VERSIONS > k->deleted_to ? to - VERSIONS : k->deleted_to;
	while (v++ < to)
		k->deleted_at[v % VERSIONS] = now;
	k->deleted_to = to;
	if (record->state != PRESENT) {
		k->present = 0;
	} else if (k->present != record->version) {
		k->present = record->version;
		k->present_since = now;
	}
}

static struct record look_at(uint32_t i)
{
	struct record record;

	do
		journal_read(&record, sizeof(record), RECORD_AT(i));
	while (record.check != check_of(&record, i));
	learn(i, &record);
	return record;
}

/* Read the whole journal. Returns false when the writer has ended. */
static bool scan(struct record *all)
{
	journal_read(all, head.count * sizeof(*all), RECORD_AT(0));
	for (uint32_t i = 0; i < head.count; i++)
		if (all[i].check == check_of(&all[i], i))
			learn(i, &all[i]);
	journal_read(&head, sizeof(head), 0);
	return !head.ended;
}

/* Returns for how many ms the reader knew, when the get began, that @version was deleted. */
static uint64_t known_deleted(uint32_t i, uint32_t version, uint64_t began)
{
	const struct known *k = &known[i];

	if (version + VERSIONS <= k->deleted_to)
		version = k->deleted_to + 1 - VERSIONS;
	return began - k->deleted_at[version % VERSIONS];
}

static void judge_hit(uint32_t i, const struct kvblk_result *res, const uint8_t *buf,
		      const struct record *before, const struct record *after, uint64_t began)
{
	uint64_t version = res->caller_tag, late;
	ssize_t wrong;

	n.hits++;
	n.foreign += !!(res->flags & KVBLK_RES_FOREIGN);
	if (!version || version > after->version) {
		complain("block %u has version %llu, of %u: NEVER PUT", i,
			 (unsigned long long)version, after->version);
		return;
	}
	if ((size_t)res->res != len_of(i, version) || res->value_len != (uint32_t)res->res)
		complain("block %u, version %llu: LENGTH %d", i, (unsigned long long)version,
			 res->res);
	wrong = kv_wrong(kv_seed(content_of(i), version), 0, buf, (size_t)res->res);
	if (wrong >= 0)
		complain("block %u, version %llu: WRONG BYTE at %zd of %d", i,
			 (unsigned long long)version, wrong, res->res);
	if (version > deleted_to(before))
		return;
	late = known_deleted(i, (uint32_t)version, began);
	if (stale_ms && late <= stale_ms)
		n.stale++;
	else
		complain("block %u, version %llu: DELETED %llu ms before the get; version %u, state %u before it, %u, %u after it; flags %#x",
			 i, (unsigned long long)version, (unsigned long long)late, before->version,
			 before->state, after->version, after->state, res->flags);
}

static void get_batch(uint8_t *buf)
{
	struct kv_key keys[BATCH];
	struct kvblk_piece pieces[BATCH];
	struct kvblk_op ops[BATCH];
	struct kvblk_result res[BATCH];
	struct record before[BATCH], after;
	uint32_t chosen[BATCH];
	uint64_t began, took;
	int err;

	choose(chosen);
	memset(buf, KV_UNTOUCHED, BATCH * head.len);
	for (unsigned int j = 0; j < BATCH; j++) {
		keys[j] = kv_key(head.first + chosen[j]);
		pieces[j] = kv_piece(buf + j * head.len, head.len);
		ops[j] = kv_op(KVBLK_OP_GET, &keys[j], &pieces[j], 1);
		before[j] = look_at(chosen[j]);
	}
	began = now_ms();
	err = kv_submit(fd, ops, res, BATCH, 0);
	took = now_ms() - began;
	if (took > n.slowest)
		n.slowest = took;
	if (err) {
		complain("submit returned %d", err);
		return;
	}
	for (unsigned int j = 0; j < BATCH; j++) {
		uint32_t i = chosen[j];
		const uint8_t *at = buf + j * head.len;
		bool lasting;

		after = look_at(i);
		lasting = after.state == PRESENT && before[j].order == after.order &&
			  known[i].present_since + lasting_ms <= began;
		n.gets++;
		n.lasting += lasting;
		n.lasting_hits += lasting && res[j].res > 0;
		if (res[j].res > 0) {
			judge_hit(i, &res[j], at, &before[j], &after, began);
			continue;
		}
		n.misses++;
		if (res[j].res != -ENOENT)
			complain("get of %u returned %d", i, res[j].res);
		if (kv_leaked(at, head.len) >= 0)
			complain("get of %u: A MISS LEFT BYTES", i);
	}
}

static void read_all(void)
{
	uint64_t scanned = 0, heard = now_ms(), last = 0, now;
	struct record *all;
	uint8_t *buf;

	while ((journal = open(file, O_RDONLY)) < 0) {
		if (now_ms() > heard + SILENT_MS * kv_slow())
			kv_die("can't open %s", file);
		usleep(10000);
	}
	posix_fadvise(journal, 0, 0, POSIX_FADV_RANDOM);
	journal_read(&head, sizeof(head), 0);
	known = calloc(head.count, sizeof(*known));
	all = calloc(head.count, sizeof(*all));
	buf = kv_alloc(BATCH * head.len);
	while (!bad) {
		now = now_ms();
		if (now >= scanned + SCAN_MS) {
			if (!scan(all))
				break;
			scanned = now;
			if (newest != last)
				heard = now;
			last = newest;
			if (now > heard + SILENT_MS * kv_slow())
				complain("the writer is silent");
		}
		get_batch(buf);
	}
	printf("gets=%llu hits=%llu foreign=%llu stale=%llu misses=%llu lasting=%llu lasting_hits=%llu slowest=%llu bad=%u\n",
	       (unsigned long long)n.gets, (unsigned long long)n.hits,
	       (unsigned long long)n.foreign, (unsigned long long)n.stale,
	       (unsigned long long)n.misses, (unsigned long long)n.lasting,
	       (unsigned long long)n.lasting_hits, (unsigned long long)n.slowest, bad);
}

int main(int argc, char **argv)
{
	bool writes = (argc == 9 || argc == 10) && !strcmp(argv[2], "write");

	if (!writes && !(argc == 6 && !strcmp(argv[2], "read"))) {
		fprintf(stderr, "usage: %s NODE write FILE FIRST COUNT LEN BYTES SECONDS [SALT], or NODE read FILE STALE_MS LASTING_MS\n",
			argv[0]);
		return 2;
	}
	fd = kv_open(argv[1]);
	file = argv[3];
	dice = kv_mix(kv_run_seed() + writes);
	if (writes) {
		head = (struct head){
			.first = strtoull(argv[4], NULL, 0),
			.salt = argc == 10 ? strtoull(argv[9], NULL, 0) : 0,
			.count = (uint32_t)strtoul(argv[5], NULL, 0),
			.len = (uint32_t)strtoul(argv[6], NULL, 0),
		};
		write_all(strtoull(argv[7], NULL, 0), strtoull(argv[8], NULL, 0));
	} else {
		stale_ms = strtoull(argv[4], NULL, 0);
		lasting_ms = strtoull(argv[5], NULL, 0);
		read_all();
	}
	return bad != 0;
}
