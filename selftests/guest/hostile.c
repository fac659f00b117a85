// SPDX-License-Identifier: GPL-2.0
/*
 * Callers that attack the pool by writing to buffers, payloads and media.
 *
 * usage: guest_hostile scribble NODE
 *	a reader writes to its buffers while gets fill them: each get succeeds,
 *	and no block is lost
 *	or: guest_hostile forge NODE MEMBER
 *	a writer with read access to the raw MEMBER puts blocks made of records,
 *	summaries and superblocks: copies of real and of deleted ones, and new
 *	ones for the exact place where the block will be written
 *	or: guest_hostile wipe MEMBER
 *	zeroes the headers of half the blocks of "forge" and the summaries of
 *	open segments, as a crash may lose both: a scan for records now reads
 *	the payloads
 *	or: guest_hostile verify NODE [wiped]
 *	after a restart: the honest and the hostile blocks are unchanged, the
 *	deleted and forged ones are not found
 */
#include <endian.h>
#include <linux/fs.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>

#include "kv_test.h"
#include "kv_io.h"

#define __packed __attribute__((packed))
typedef uint64_t u64;
#include "../../kernel/format/format.h"

static int fd, member;
static const char *node;
static bool wiped;

#define SCRIBBLED	32u
#define SCRIBBLE_LEN	300000u

static uint8_t *scribbled;
static atomic_bool stop;

static void *scribble(void *arg)
{
	uint64_t dice = 1;

	while (!stop) {
		size_t at = kv_below(&dice, (size_t)SCRIBBLED * SCRIBBLE_LEN);

		((volatile uint8_t *)scribbled)[at] = 0x5a;
	}
	return NULL;
}

static void get_all(uint32_t flags, const char *when, bool check)
{
	static struct kv_key keys[SCRIBBLED];
	static struct kvblk_piece pieces[SCRIBBLED];
	struct kvblk_op ops[SCRIBBLED];
	struct kvblk_result res[SCRIBBLED];

	for (unsigned int i = 0; i < SCRIBBLED; i++) {
		keys[i] = kv_key(8000000 + i);
		pieces[i] = kv_piece(scribbled + (size_t)i * SCRIBBLE_LEN,
				     SCRIBBLE_LEN);
		/* an odd address takes the bounce path */
		if (i % 8 == 3)
			pieces[i] = kv_piece((void *)(uintptr_t)
					     (pieces[i].addr + 1),
					     SCRIBBLE_LEN - 1);
		ops[i] = kv_op(KVBLK_OP_GET, &keys[i], &pieces[i], 1);
		ops[i].flags = flags;
	}
	ASSERT_EQ(kv_submit(fd, ops, res, SCRIBBLED, 0), 0, "gets");
	for (unsigned int i = 0; i < SCRIBBLED; i++) {
		const uint8_t *p = (void *)(uintptr_t)pieces[i].addr;
		uint64_t seed = kv_seed(8000000 + i, 0);

		if (!EXPECT_EQ(res[i].res, 290000, "get of block %u %s", i, when))
			continue;
		for (unsigned int j = 0; j < 290000; j++) {
			if (p[j] == kv_byte(seed, j) || (!check && p[j] == 0x5a))
				continue;
			EXPECT(false, "byte %u of block %u %s", j, i, when);
			break;
		}
	}
}

TEST(reader_scribbles_on_his_buffer)
{
	pthread_t thread;

	scribbled = kv_alloc((size_t)SCRIBBLED * SCRIBBLE_LEN);
	for (unsigned int i = 0; i < SCRIBBLED; i++) {
		int res;

		kv_fill(kv_seed(8000000 + i, 0), 0, scribbled, 290000);
		res = kv_put(fd, 8000000 + i, scribbled, 290000).res;
		ASSERT(res == 290000 || res == -EEXIST, "put of block %u: %d",
		       i, res);
	}
	pthread_create(&thread, NULL, scribble, NULL);
	for (unsigned int round = 0; round < 4; round++)
		get_all(0, "while its buffer is written to", false);
	stop = true;
	pthread_join(thread, NULL);
	get_all(0, "afterwards", true);
	PASSED("%u blocks, got 4 times under fire, all still there", SCRIBBLED);
}

#define HONEST		9100000ull	/* 8 blocks that stay */
#define DELETED		9200000ull	/* 8 blocks, deleted after their headers were copied */
#define FORGED		9300000ull	/* keys that were never put */
#define HOSTILE		9400000ull	/* 16 blocks made of forgeries */
#define NR		8u
#define NR_HOSTILE	16u
#define HONEST_LEN	20000u
#define HOSTILE_LEN	(512u << 10)

static void open_member(const char *path)
{
	member = open(path, O_RDWR | O_DIRECT | O_CLOEXEC);
	if (member < 0)		/* member in use: reading is enough */
		member = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
	if (member < 0)
		kv_die("can't open %s", path);
}

/*
 * Call @found() for each page of the member that begins with @magic, until @found() returns true.
 * The page is a private copy and may be changed.
 */
static void scan(uint64_t magic, bool (*found)(uint64_t at, uint8_t *page))
{
	static uint8_t *area;
	const size_t step = 1 << 20;
	ssize_t got;

	if (!area)
		area = kv_alloc(step);
	for (uint64_t at = 0; (got = pread(member, area, step, (off_t)at)) > 0;
	     at += step) {
		for (size_t i = 0; i < (size_t)got; i += PAGE) {
			uint64_t first;

			memcpy(&first, area + i, 8);
			if (le64toh(first) == magic && found(at + i, area + i))
				return;
		}
	}
}

static bool is_header_of(const uint8_t *page, uint64_t nr)
{
	const struct kvblk_d_record *rec = (const void *)page;
	struct kv_key key = kv_key(nr);

	return le16toh(rec->key_len) == key.len &&
	       !memcmp(page + KVBLK_HDR_KEY, key.bytes, key.len);
}

static struct kvblk_d_record headers[3 * NR][8];
static unsigned int nr_headers;
static uint8_t summaries[4][PAGE];
static unsigned int nr_summaries;

static bool keep_header(uint64_t at, uint8_t *page)
{
	for (unsigned int i = 0; i < NR; i++) {
		if (is_header_of(page, HONEST + i) ||
		    is_header_of(page, DELETED + i))
			memcpy(headers[nr_headers++], page, PAGE);
	}
	return nr_headers == 2 * NR;
}

static bool keep_summary(uint64_t at, uint8_t *page)
{
	memcpy(summaries[nr_summaries++], page, PAGE);
	return nr_summaries == ARRAY_SIZE(summaries);
}

/* header found of the block @looked_for; the next record begins behind the block */
static uint64_t looked_for;
static struct kvblk_d_record last;
static uint64_t last_at;
static bool last_found;

static bool find_last(uint64_t at, uint8_t *page)
{
	if (!is_header_of(page, looked_for))
		return false;
	memcpy(&last, page, sizeof(last));
	/*
	 * a forgery has the same bytes, but only the real header lies at the unit in its own
	 * field
	 */
	if (at % KVBLK_DATA_ALIGN / PAGE != le32toh(last.unit) % 256)
		return false;
	last_at = at;
	last_found = true;
	return true;
}

static uint32_t units_of(uint32_t length)
{
	return le32toh(length) / PAGE + !!(le32toh(length) % PAGE);
}

static void seal_forgery(uint8_t *page)
{
	struct kvblk_d_record *rec = (void *)page;
	uint64_t mac = rec->mac;

	/* the attacker can compute the CRC, but not the MAC: its key is secret */
	rec->crc = 0;
	rec->mac = 0;
	rec->crc = htole32(kv_crc32c(page, rec->header_units * PAGE));
	rec->mac = mac;
}

/*
 * Fill a payload with forgeries. Its pages are, in turn: a copied header, a header moved to the
 * place of this page, the same for a key that was never put, a summary page, a superblock.
 */
static void forge(uint8_t *buf, unsigned int i, uint32_t first_unit)
{
	struct kvblk_d_super *super = kv_alloc(KVBLK_SB_BYTES);
	struct kv_key key = kv_key(FORGED + i % NR);

	if (pread(member, super, PAGE, 0) != (ssize_t)PAGE)
		kv_die("can't read the superblock");
	for (unsigned int page = 0; page < HOSTILE_LEN / PAGE; page++) {
		uint8_t *p = buf + page * PAGE;
		struct kvblk_d_record *rec = (void *)p;

		memcpy(p, headers[(i + page / 5) % nr_headers], PAGE);
		switch (page % 5) {
		case 2:
			memset(p + KVBLK_HDR_KEY, 0, KVBLK_KEY_MAX);
			memcpy(p + KVBLK_HDR_KEY, key.bytes, key.len);
			rec->key_len = htole16(key.len);
			rec->id_hi = htole64(kv_mix(page));
			rec->id_lo = htole64(kv_mix(page + i));
			/* fall through */
		case 1:
			rec->segment = last.segment;
			rec->generation = last.generation;
			rec->unit = htole32(first_unit + page);
			rec->seq = htole64(~0ull >> 2);
			if (i % 2)
				rec->seq = last.seq;
			seal_forgery(p);
			break;
		case 3:
			if (nr_summaries)
				memcpy(p, summaries[page % nr_summaries], PAGE);
			break;
		case 4:
			memcpy(p, super, PAGE);
			break;
		}
	}
	munmap(super, KVBLK_SB_BYTES);
}

static void put_block(uint64_t nr, unsigned int len)
{
	uint8_t *buf = kv_alloc(len);

	kv_fill(kv_seed(nr, 0), 0, buf, len);
	ASSERT_EQ(kv_put(fd, nr, buf, len).res, len, "put of %llu",
		  (unsigned long long)nr);
	munmap(buf, len);
}

TEST(writer_forges_records)
{
	uint8_t *buf = kv_alloc(HOSTILE_LEN + PAGE), *back = kv_alloc(HOSTILE_LEN);
	unsigned int right = 0;

	for (unsigned int i = 0; i < NR; i++) {
		put_block(HONEST + i, HONEST_LEN);
		put_block(DELETED + i, HONEST_LEN);
	}
	scan(KVBLK_RECORD_MAGIC, keep_header);
	ASSERT_EQ(nr_headers, 2 * NR, "headers found on the member");
	scan(KVBLK_SUMMARY_MAGIC, keep_summary);
	for (unsigned int i = 0; i < NR; i++)
		ASSERT_EQ(kv_delete(fd, DELETED + i).res, 0, "delete");

	looked_for = DELETED + NR - 1;
	memcpy(&last, headers[nr_headers - 1], sizeof(last));
	for (unsigned int i = 0; i < NR_HOSTILE; i++) {
		uint32_t next = le32toh(last.unit) + last.header_units +
				units_of(last.length);

		/* @next + 1: the unit where the payload of the next record will begin */
		forge(buf, i, next + 1);
		ASSERT_EQ(kv_put(fd, HOSTILE + i, buf, HOSTILE_LEN).res,
			  HOSTILE_LEN, "put of a block of forgeries");
		ASSERT_EQ(kv_get(fd, HOSTILE + i, back, HOSTILE_LEN).res,
			  HOSTILE_LEN, "get of it");
		EXPECT_EQ(memcmp(buf, back, HOSTILE_LEN), 0, "its bytes");
		looked_for = HOSTILE + i;
		last_found = false;
		scan(KVBLK_RECORD_MAGIC, find_last);
		ASSERT(last_found, "the block's header is not on the member");
		right += le32toh(last.unit) == next;
	}
	EXPECT(right > NR_HOSTILE / 2,
	       "only %u places were foreseen: this test forges for nothing",
	       right);
	PASSED("%u blocks of %u pages, place foreseen for %u; %u summaries copied",
	       NR_HOSTILE, (unsigned int)(HOSTILE_LEN / PAGE), right,
	       nr_summaries);
}

static unsigned int nr_wiped;

static bool wipe_header(uint64_t at, uint8_t *page)
{
	static uint8_t *zeroes;

	if (!zeroes)
		zeroes = kv_alloc(PAGE);
	for (unsigned int i = 0; i < NR_HOSTILE; i += 2) {
		const struct kvblk_d_record *rec = (const void *)page;

		if (!is_header_of(page, HOSTILE + i) ||
		    at % KVBLK_DATA_ALIGN / PAGE != le32toh(rec->unit) % 256)
			continue;
		if (pwrite(member, zeroes, PAGE, (off_t)at) != (ssize_t)PAGE)
			kv_die("can't write to the member");
		nr_wiped++;
	}
	return false;
}

static unsigned int nr_unlisted;

/*
 * Zero a summary of an open segment. Page i of a summary is the last page but i of its segment,
 * and no flush covers it.
 */
static bool wipe_summary(uint64_t at, uint8_t *page)
{
	const struct kvblk_d_summary *sum = (const void *)page;
	static struct kvblk_d_super *super;
	uint64_t units, unit;
	uint8_t *zeroes;

	if (!super) {
		super = kv_alloc(KVBLK_SB_BYTES);
		if (pread(member, super, PAGE, 0) != (ssize_t)PAGE)
			kv_die("can't read the superblock");
	}
	units = le32toh(super->segment_units);
	unit = (at - le64toh(super->data_start)) / PAGE % units;
	if (le32toh(sum->sealed) || unit + 1 + le32toh(sum->page) != units)
		return false;
	zeroes = kv_alloc(PAGE);
	if (pwrite(member, zeroes, PAGE, (off_t)at) != (ssize_t)PAGE)
		kv_die("can't write to the member");
	munmap(zeroes, PAGE);
	nr_unlisted++;
	return false;
}

TEST(wipe)
{
	scan(KVBLK_RECORD_MAGIC, wipe_header);
	EXPECT_EQ(nr_wiped, NR_HOSTILE / 2, "headers wiped");
	scan(KVBLK_SUMMARY_MAGIC, wipe_summary);
	PASSED("%u headers, %u summary pages", nr_wiped, nr_unlisted);
}

TEST(verify)
{
	uint8_t *buf = kv_alloc(HOSTILE_LEN);
	unsigned int hostile = 0;

	for (unsigned int i = 0; i < NR; i++) {
		if (EXPECT_EQ(kv_get(fd, HONEST + i, buf, HOSTILE_LEN).res,
			      HONEST_LEN, "honest block %u", i))
			EXPECT_EQ(kv_wrong(kv_seed(HONEST + i, 0), 0, buf,
					   HONEST_LEN), -1, "its bytes");
		EXPECT_EQ(kv_size(fd, DELETED + i), 0,
			  "lookup of deleted block %u", i);
		EXPECT_EQ(kv_get(fd, DELETED + i, buf, HOSTILE_LEN).res, -ENOENT,
			  "deleted block %u", i);
		EXPECT_EQ(kv_size(fd, FORGED + i), 0, "lookup of forged block %u",
			  i);
		EXPECT_EQ(kv_get(fd, FORGED + i, buf, HOSTILE_LEN).res, -ENOENT,
			  "forged block %u", i);
	}
	for (unsigned int i = 0; i < NR_HOSTILE; i++) {
		int res = kv_get(fd, HOSTILE + i, buf, HOSTILE_LEN).res;

		hostile += res == HOSTILE_LEN;
		EXPECT(res == HOSTILE_LEN || (wiped && !(i % 2)),
		       "hostile block %u got %d", i, res);
	}
	PASSED("honest ones right, deleted and forged ones absent, %u hostile ones as put",
	       hostile);
}

int main(int argc, char **argv)
{
	char *name = argc > 2 ? argv[1] : "";

	if (!strcmp(name, "wipe")) {
		open_member(argv[2]);
	} else if (argc > 2) {
		node = argv[2];
		fd = kv_open(node);
	}
	if (!strcmp(name, "scribble")) {
		name = "reader_scribbles_on_his_buffer";
	} else if (!strcmp(name, "forge") && argc > 3) {
		open_member(argv[3]);
		name = "writer_forges_records";
	} else if (!strcmp(name, "verify")) {
		wiped = argc > 3;
	} else if (strcmp(name, "wipe")) {
		fprintf(stderr, "usage: %s scribble|forge|wipe|verify ...\n",
			argv[0]);
		return 2;
	}
	return kv_run_tests(1, &name);
}
