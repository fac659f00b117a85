// SPDX-License-Identifier: GPL-2.0
/*
 * Lookups report exactly the blocks that are present. Leased blocks stay until the lease ends,
 * however much is written.
 *
 * usage: guest_lookup_lease NODE [TEST...]
 *
 * The tests of leases write the pool several times over, and set the pool's lease_keys_max
 * through sysfs. KV_DRAM: puts are stored in host memory first. KV_STARVE: fault injection is set
 * up, silent, and limited to the module's allocations. KV_OWNER: node of a pool whose members
 * NODE's pool follows, with the same reuse grace; only then is foreign_blocks not skipped.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/wait.h>

#include "kv_test.h"
#include "kv_io.h"

static const char *node;
static int fd;
static struct kvblk_info info;
static uint64_t next_key = 2000000;
static uint8_t *buf;
static bool in_memory;	/* puts are stored in DRAM first */
#define BUF_LEN		(8ul << 20)

static uint64_t new_keys(unsigned int nr)
{
	next_key += nr;
	return next_key - nr;
}

/* A lookup's output arrays, each with spare bytes that must stay untouched. */
struct answer {
	struct kvblk_lookup io;
	uint8_t *bitmap;
	uint32_t *sizes;
	uint64_t *tags;
	uint8_t *tiers;
	uint32_t *times;
};

static bool bit(const struct answer *a, unsigned int i)
{
	return a->bitmap[i / 8] >> i % 8 & 1;
}

static void free_answer(struct answer *a)
{
	free(a->bitmap);
	free(a->sizes);
	free(a->tags);
	free(a->tiers);
	free(a->times);
}

static int lookup(int file, struct answer *a, const void *keys,
		  unsigned int stride, const uint16_t *lens, unsigned int nr,
		  uint32_t flags, uint32_t lease_ms)
{
	a->bitmap = malloc((nr + 7) / 8 + 1);
	a->sizes = malloc((nr + 1) * sizeof(*a->sizes));
	a->tags = malloc((nr + 1) * sizeof(*a->tags));
	a->tiers = malloc(nr + 1);
	a->times = malloc((nr + 1) * sizeof(*a->times));
	memset(a->tiers, 0xa5, nr + 1);
	memset(a->times, 0xa5, (nr + 1) * sizeof(*a->times));
	memset(a->bitmap, 0xa5, (nr + 7) / 8 + 1);
	memset(a->sizes, 0xa5, (nr + 1) * sizeof(*a->sizes));
	memset(a->tags, 0xa5, (nr + 1) * sizeof(*a->tags));
	a->io = (struct kvblk_lookup){
		.size = sizeof(a->io),
		.flags = flags,
		.nr_keys = nr,
		.key_stride = stride,
		.keys = kv_addr(keys),
		.key_lens = kv_addr(lens),
		.bitmap = kv_addr(a->bitmap),
		.sizes = kv_addr(a->sizes),
		.caller_tags = kv_addr(a->tags),
		.lease_ms = lease_ms,
		.lease_end_ns = 7,
		.tiers = kv_addr(a->tiers),
		.times = kv_addr(a->times),
	};
	return kv_ioctl(file, KVBLK_IOC_LOOKUP, &a->io);
}

/* Return keys @nr to @nr + @count - 1, packed, and their lengths in @lens. */
static uint8_t *pack(uint64_t nr, unsigned int count, uint16_t *lens)
{
	uint8_t *blob = malloc((size_t)count * KVBLK_KEY_MAX + 1), *p = blob + 1;

	for (unsigned int i = 0; i < count; i++) {
		struct kv_key key = kv_key(nr + i);

		lens[i] = key.len;
		memcpy(p, key.bytes, key.len);
		p += key.len;
	}
	return blob;	/* the keys begin at blob + 1, an odd address */
}

static int lookup_keys(int file, struct answer *a, uint64_t nr,
		       unsigned int count, uint32_t flags, uint32_t lease_ms)
{
	uint16_t *lens = malloc(count * sizeof(*lens));
	uint8_t *blob = pack(nr, count, lens);
	int err = lookup(file, a, blob + 1, 0, lens, count, flags, lease_ms);

	free(blob);
	free(lens);
	return err;
}

static size_t len_of(uint64_t nr)
{
	return 1 + kv_mix(nr) % 20000;
}

static void put_to(int file, uint64_t nr)
{
	kv_fill(kv_seed(nr, nr * 3), 0, buf, len_of(nr));
	ASSERT_EQ(kv_put_tagged(file, nr, buf, len_of(nr), nr * 3).res,
		  len_of(nr), "put of block %llu", (unsigned long long)nr);
}

static void put_nr(uint64_t nr)
{
	put_to(fd, nr);
}

static bool none(unsigned int i)
{
	return i == UINT32_MAX;
}

/* keys of check_answer() whose blocks are another node's */
static bool (*foreign)(unsigned int) = none;

/* Check all of an answer about keys from @nr on, of which those with @present() are stored. */
static void check_answer(const struct answer *a, uint64_t nr, unsigned int count,
			 bool (*present)(unsigned int), bool prefix)
{
	unsigned int leading = 0, total = 0;
	uint32_t latest = 0;
	bool hole = false;

	for (unsigned int i = 0; i < count; i++) {
		bool here = present(i) && !(prefix && hole);

		hole |= !here;
		leading += !hole;
		total += here;
		EXPECT_EQ(bit(a, i), here, "bit of key %u of %u", i, count);
		EXPECT_EQ(a->sizes[i], here ? len_of(nr + i) : 0,
			  "size of key %u", i);
		EXPECT_EQ(a->tags[i], here ? (nr + i) * 3 : 0,
			  "caller tag of key %u", i);
		EXPECT_EQ(a->tiers[i], !here ? KVBLK_TIER_NONE : foreign(i) ?
			  KVBLK_TIER_FOREIGN : in_memory ? KVBLK_TIER_MEMORY :
			  KVBLK_TIER_MEMBER, "tier of key %u", i);
		EXPECT(here ? a->times[i] >= latest : !a->times[i], "time of key %u: %u", i,
		       a->times[i]);
		if (here)
			latest = a->times[i];
	}
	for (unsigned int i = count; i % 8; i++)
		EXPECT_EQ(bit(a, i), 0, "bit behind the last key");
	EXPECT_EQ(a->bitmap[(count + 7) / 8], 0xa5, "byte behind the bitmap");
	EXPECT_EQ(a->sizes[count], 0xa5a5a5a5, "word behind the sizes");
	EXPECT_EQ(a->tags[count], (long long)0xa5a5a5a5a5a5a5a5,
		  "word behind the tags");
	EXPECT_EQ(a->tiers[count], 0xa5, "byte behind the tiers");
	EXPECT_EQ(a->times[count], 0xa5a5a5a5, "word behind the times");
	EXPECT_EQ(a->io.nr_leading, leading, "nr_leading of %u", count);
	EXPECT_EQ(a->io.nr_present, total, "nr_present of %u", count);
}

static bool one_hole(unsigned int i)
{
	return i != 5;
}

static bool first_absent(unsigned int i)
{
	return i;
}

static bool every_third(unsigned int i)
{
	return i % 3 == 0;
}

static bool all(unsigned int i)
{
	return i != UINT32_MAX;
}

TEST(what_is_there)
{
	static bool (*const patterns[])(unsigned int) = {
		one_hole, none, first_absent, every_third, all,
	};
	static const unsigned int counts[] = { 1, 7, 8, 9, 100 };
	struct answer a;

	for (size_t i = 0; i < ARRAY_SIZE(patterns); i++) {
		for (size_t j = 0; j < ARRAY_SIZE(counts); j++) {
			uint64_t nr = new_keys(counts[j]);

			for (unsigned int k = 0; k < counts[j]; k++) {
				if (patterns[i](k))
					put_nr(nr + k);
			}
			ASSERT_EQ(lookup_keys(fd, &a, nr, counts[j], 0, 0), 0,
				  "lookup");
			check_answer(&a, nr, counts[j], patterns[i], false);
			EXPECT_EQ(a.io.lease, 0, "a lease nobody asked for");
			EXPECT_EQ(a.io.lease_end_ns, 0, "the end of no lease");
			free_answer(&a);
			ASSERT_EQ(lookup_keys(fd, &a, nr, counts[j],
					      KVBLK_LOOKUP_PREFIX, 0), 0, "lookup");
			check_answer(&a, nr, counts[j], patterns[i], true);
			free_answer(&a);
		}
	}
	PASSED("run, bitmap, sizes, tags; with and without PREFIX");
}

TEST(stride)
{
	/* kv_key() returns 16 bytes, unless the number is 7 modulo 8 */
	uint64_t nr = (new_keys(16) + 7) / 8 * 8;
	uint8_t blob[7 * 16 + 1];
	struct answer a;

	for (unsigned int i = 0; i < 7; i++) {
		struct kv_key key = kv_key(nr + i);

		memcpy(blob + 1 + i * 16, key.bytes, 16);
		if (one_hole(i))
			put_nr(nr + i);
	}
	ASSERT_EQ(lookup(fd, &a, blob + 1, 16, NULL, 7, 0, 0), 0, "lookup");
	check_answer(&a, nr, 7, one_hole, false);
	free_answer(&a);
	PASSED("keys of one length");
}

TEST(nothing_wanted)
{
	uint64_t nr = new_keys(3);
	uint16_t lens[3];
	uint8_t *blob = pack(nr, 3, lens);
	struct kvblk_lookup io = {
		.size = sizeof(io),
		.nr_keys = 3,
		.keys = kv_addr(blob + 1),
		.key_lens = kv_addr(lens),
	};

	put_nr(nr);
	put_nr(nr + 2);
	EXPECT_EQ(kv_ioctl(fd, KVBLK_IOC_LOOKUP, &io), 0, "no arrays");
	EXPECT_EQ(io.nr_leading, 1, "nr_leading");
	EXPECT_EQ(io.nr_present, 2, "nr_present");
	free(blob);
	PASSED("counts alone");
}

TEST(as_many_as_allowed)
{
	const unsigned int nr = KVBLK_LOOKUP_MAX;
	uint8_t *blob = malloc((size_t)nr * 16);
	uint64_t first = new_keys(nr), here = 0;
	uint64_t start;
	struct answer a;

	for (unsigned int i = 0; i < nr; i++) {
		struct kv_key key = kv_key(first + i);

		memcpy(blob + (size_t)i * 16, key.bytes, 16);
		if (i % 1000 || key.len != 16)
			continue;
		put_nr(first + i);
		here++;
	}
	start = kv_now_ms();
	ASSERT_EQ(lookup(fd, &a, blob, 16, NULL, nr, 0, 0), 0, "lookup");
	start = kv_now_ms() - start;
	EXPECT_EQ(a.io.nr_present, here, "present ones of %u", nr);
	for (unsigned int i = 0; i < nr; i++)
		EXPECT_EQ(bit(&a, i), i % 1000 == 0 &&
			  kv_key(first + i).len == 16, "key %u", i);
	free_answer(&a);
	free(blob);
	PASSED("%u keys in %llu ms", nr, (unsigned long long)start);
}

#define PRESSURE_LEN	(256ul << 10)
#define PRESSURE_BATCH	16u

/*
 * Write @times the pool's capacity. If @hot, look each block up once more, so that reclaim
 * reinserts many of them and their segments are rewritten too.
 */
static void pressure(unsigned int times, bool hot)
{
	struct kv_key keys[PRESSURE_BATCH];
	struct kvblk_piece pieces[PRESSURE_BATCH];
	struct kvblk_op ops[PRESSURE_BATCH];
	struct kvblk_result res[PRESSURE_BATCH];
	uint64_t left = info.capacity * times;

	while (left) {
		uint64_t nr = new_keys(PRESSURE_BATCH);
		unsigned int full = 0;

		for (unsigned int i = 0; i < PRESSURE_BATCH; i++) {
			keys[i] = kv_key(nr + i);
			pieces[i] = kv_piece(buf + i * PRESSURE_LEN,
					     PRESSURE_LEN);
			ops[i] = kv_op(KVBLK_OP_PUT, &keys[i], &pieces[i], 1);
		}
		ASSERT_EQ(kv_submit(fd, ops, res, PRESSURE_BATCH, 0), 0, "puts");
		for (unsigned int i = 0; i < PRESSURE_BATCH; i++) {
			full += res[i].res == -ENOSPC;
			EXPECT(res[i].res == (int)PRESSURE_LEN,
			       "put %u under pressure got %d", i, res[i].res);
		}
		if (full)
			return;
		for (unsigned int i = 0; hot && i < PRESSURE_BATCH; i++)
			kv_size(fd, nr + i);
		left -= left < PRESSURE_BATCH * PRESSURE_LEN ?
			left : PRESSURE_BATCH * PRESSURE_LEN;
	}
}

#define LEASED	60u

static void put_many(uint64_t nr, unsigned int count)
{
	for (unsigned int i = 0; i < count; i++)
		put_nr(nr + i);
}

static unsigned int count_present(uint64_t nr, unsigned int count)
{
	struct answer a;
	unsigned int present;

	ASSERT_EQ(lookup_keys(fd, &a, nr, count, 0, 0), 0, "lookup");
	present = a.io.nr_present;
	free_answer(&a);
	return present;
}

static uint64_t lease(int file, uint64_t nr, unsigned int count,
		      uint32_t lease_ms, unsigned int want)
{
	struct answer a;
	uint64_t id;

	ASSERT_EQ(lookup_keys(file, &a, nr, count, KVBLK_LOOKUP_LEASE, lease_ms),
		  0, "lookup with a lease");
	ASSERT_EQ(a.io.nr_leased, want, "leased ones of %u", count);
	ASSERT_EQ(!a.io.lease, !want, "is there a lease");
	id = a.io.lease;
	free_answer(&a);
	return id;
}

static int release(int file, uint64_t id)
{
	struct kvblk_lease_release_arg io = { .size = sizeof(io), .lease = id };

	return kv_ioctl(file, KVBLK_IOC_LEASE_RELEASE, &io);
}

static void check_all_right(uint64_t nr, unsigned int count)
{
	for (unsigned int i = 0; i < count; i++) {
		if (!EXPECT_EQ(kv_get(fd, nr + i, buf, BUF_LEN).res,
			       len_of(nr + i), "leased block %u", i))
			continue;
		EXPECT_EQ(kv_wrong(kv_seed(nr + i, (nr + i) * 3), 0, buf,
				   len_of(nr + i)), -1, "its bytes");
	}
}

TEST(release_a_lease)
{
	int other = kv_open(node);
	uint64_t nr = new_keys(10), first, second;

	put_many(nr, 9);
	first = lease(fd, nr, 10, 3600000, 9);
	second = lease(other, nr, 10, 3600000, 9);
	EXPECT_EQ(release(other, first), first == second ? 0 : -ENOENT,
		  "release through another file");
	EXPECT_EQ(release(fd, first), 0, "release");
	EXPECT_EQ(release(fd, first), -ENOENT, "second release");
	EXPECT_EQ(release(fd, 0), -EINVAL, "release of no lease");
	EXPECT_EQ(release(fd, UINT64_MAX), -ENOENT, "release of the last lease");
	if (first != second)
		EXPECT_EQ(release(other, second), 0, "release of the other");
	EXPECT_EQ(lease(fd, new_keys(4), 4, 1000, 0), 0, "lease of nothing");
	close(other);
	PASSED("once, and only through its own file");
}

TEST(lease_of_a_run)
{
	uint64_t nr = new_keys(10);
	struct answer a;

	for (unsigned int i = 0; i < 10; i++) {
		if (one_hole(i))
			put_nr(nr + i);
	}
	ASSERT_EQ(lookup_keys(fd, &a, nr, 10,
			      KVBLK_LOOKUP_LEASE | KVBLK_LOOKUP_PREFIX, 60000),
		  0, "lookup");
	EXPECT_EQ(a.io.nr_leased, 5, "leased ones before the hole");
	check_answer(&a, nr, 10, one_hole, true);
	EXPECT_EQ(release(fd, a.io.lease), 0, "release");
	free_answer(&a);
	PASSED("PREFIX leases the leading run alone");
}

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Lease a key for @ms. Returns the answer if the end of the lease is right, or exits. */
static struct kvblk_lookup timed_lease(uint64_t nr, uint32_t ms)
{
	uint64_t before = now_ns(), after;
	struct answer a;

	if (lookup_keys(fd, &a, nr, 1, KVBLK_LOOKUP_LEASE, ms) || a.io.nr_leased != 1)
		kv_die("a lease of %u ms", ms);
	after = now_ns();
	if (a.io.lease_end_ns < before + ms * 1000000ull ||
	    a.io.lease_end_ns > after + ms * 1000000ull) {
		printf("# end %llu, asked from %llu to %llu for %u ms\n",
		       (unsigned long long)a.io.lease_end_ns, (unsigned long long)before,
		       (unsigned long long)after, ms);
		exit(1);
	}
	free_answer(&a);
	return a.io;
}

/* The pool frees leases once a second, but a lease has ended when its time is over. */
TEST(a_lease_ends_by_time)
{
	uint64_t nr = new_keys(1), id;

	put_many(nr, 1);
	id = timed_lease(nr, KVBLK_LEASE_MS_MAX).lease;
	for (unsigned int i = 0; i < 5; i++) {
		struct kvblk_lookup timed = timed_lease(nr, 1 + i);

		while (now_ns() < timed.lease_end_ns)
			;
		EXPECT_EQ(release(fd, timed.lease), -ENOENT, "release at its end");
	}
	EXPECT_EQ(release(fd, id), 0, "the longer one");
	PASSED("from its end on there is no such lease");
}

TEST(lease_of_a_time_namespace)
{
	uint64_t nr = new_keys(1);
	int file, status = 0;
	pid_t pid;

	put_many(nr, 1);
	pid = fork();
	if (!pid) {
		file = open("/proc/self/timens_offsets", O_WRONLY);
		if (file < 0 || unshare(CLONE_NEWTIME))
			_exit(77);
		if (write(file, "monotonic 1000 0", 16) != 16)
			_exit(78);
		/* unshare() applies to the next child */
		pid = fork();
		if (!pid) {
			kv_ring_forget();
			_exit(release(fd, timed_lease(nr, 60000).lease) ? 2 : 0);
		}
		waitpid(pid, &status, 0);
		_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 79);
	}
	waitpid(pid, &status, 0);
	if (status == 77 << 8)
		SKIP("no time namespaces to be had");
	EXPECT_EQ(status, 0, "a child whose clock is 1000 s ahead");
	PASSED("the end is by the caller's clock");
}

TEST(delete_of_a_leased_block)
{
	uint64_t nr = new_keys(2), id;

	put_many(nr, 2);
	id = lease(fd, nr, 2, 60000, 2);
	EXPECT_EQ(kv_delete(fd, nr).res, 0, "delete of a leased block");
	EXPECT_EQ(kv_get(fd, nr, buf, BUF_LEN).res, -ENOENT, "get of it");
	put_nr(nr);
	check_all_right(nr, 2);
	EXPECT_EQ(release(fd, id), 0, "release");
	check_all_right(nr, 2);
	PASSED("it is gone, and its key can be used again");
}

TEST(lease_of_a_larger_block)
{
	uint64_t nr = new_keys(1), id;

	EXPECT_EQ(kv_put_tagged(fd, nr, buf, 1, 0).res, 1, "put of a byte");
	id = lease(fd, nr, 1, 60000, 1);
	EXPECT_EQ(kv_delete(fd, nr).res, 0, "delete");
	EXPECT_EQ(kv_put_tagged(fd, nr, buf, 1 << 20, 0).res, 1 << 20, "put of 1 MiB");
	lease(fd, nr, 1, 60000, 0);
	EXPECT_EQ(release(fd, id), 0, "release");
	id = lease(fd, nr, 1, 60000, 1);
	EXPECT_EQ(release(fd, id), 0, "second release");
	PASSED("a key's lease does not cover a larger block put later");
}

TEST(leased_blocks_survive_pressure)
{
	uint64_t kept = new_keys(LEASED), dropped, closed, id;
	int other = kv_open(node);
	unsigned int left;

	put_many(kept, LEASED);
	dropped = new_keys(LEASED);
	put_many(dropped, LEASED);
	closed = new_keys(LEASED);
	put_many(closed, LEASED);
	id = lease(fd, kept, LEASED, KVBLK_LEASE_MS_MAX, LEASED);
	lease(other, closed, LEASED, KVBLK_LEASE_MS_MAX, LEASED);
	/* ends with the file, and leaves the other lease of these blocks */
	lease(other, kept, LEASED, KVBLK_LEASE_MS_MAX, LEASED);
	pressure(3, false);
	EXPECT_EQ(count_present(kept, LEASED), LEASED, "leased blocks left");
	EXPECT_EQ(count_present(closed, LEASED), LEASED,
		  "blocks leased through another file left");
	left = count_present(dropped, LEASED);
	EXPECT(left < LEASED, "nothing was dropped: there was no pressure");
	check_all_right(kept, LEASED);

	close(other);
	for (unsigned int i = 0; i < 6; i++) {
		pressure(1, true);
		left = count_present(closed, LEASED);
		if (left < LEASED)
			break;
	}
	EXPECT(left < LEASED, "all blocks of a closed file's lease are still here");
	EXPECT_EQ(count_present(kept, LEASED), LEASED, "leased blocks left");
	check_all_right(kept, LEASED);

	EXPECT_EQ(release(fd, id), 0, "release");
	for (unsigned int i = 0; i < 6; i++) {
		pressure(1, true);
		left = count_present(kept, LEASED);
		if (left < LEASED)
			break;
	}
	EXPECT(left < LEASED, "all blocks of a released lease are still here");
	PASSED("%u blocks, with the pool written several times", LEASED);
}

static void set_text(const char *name, const char *text)
{
	char path[128];
	FILE *file;

	snprintf(path, sizeof(path), "/sys/class/kvblk/%s/%s", info.pool_name, name);
	file = fopen(path, "r+");
	if (!file || fputs(text, file) < 0 || fclose(file))
		kv_die("can't write %s to %s", text, path);
}

static void set_value(const char *name, unsigned long long value)
{
	char text[24];

	snprintf(text, sizeof(text), "%llu", value);
	set_text(name, text);
}

static void set_limit(unsigned int keys)
{
	set_value("lease_keys_max", keys);
}

TEST(limit_of_leases)
{
	uint64_t nr = new_keys(20), id, more;
	int other = kv_open(node);
	struct answer a;

	put_many(nr, 20);
	set_limit(12);
	id = lease(fd, nr, 20, 60000, 12);
	ASSERT_EQ(lookup_keys(fd, &a, nr, 20, KVBLK_LOOKUP_LEASE, 60000), 0,
		  "lookup above the limit");
	EXPECT_EQ(a.io.nr_leased, 0, "leased above the limit");
	EXPECT_EQ(a.io.lease, 0, "a lease of nothing");
	EXPECT_EQ(a.io.nr_present, 20, "nr_present above the limit");
	free_answer(&a);
	more = lease(other, nr, 20, 60000, 12);
	EXPECT_EQ(release(other, more), 0, "release");
	EXPECT_EQ(release(fd, id), 0, "release");
	id = lease(fd, nr, 8, 60000, 8);
	more = lease(fd, nr + 8, 12, 60000, 4);
	EXPECT_EQ(release(fd, id), 0, "release");
	EXPECT_EQ(release(fd, more), 0, "release");
	set_limit(65536);
	close(other);
	PASSED("the first ones are leased, each file has its own limit");
}

/* Return how many of the @count blocks from @nr on a new file can lease, @step with each call. */
static unsigned int leases_by(unsigned int step, uint64_t nr, unsigned int count)
{
	unsigned int total = 0, want, got;
	int file = kv_open(node);
	struct answer a;

	do {
		want = count - total < step ? count - total : step;
		ASSERT_EQ(lookup_keys(file, &a, nr + total, want, KVBLK_LOOKUP_LEASE, 60000), 0,
			  "lookup with a lease");
		got = a.io.nr_leased;
		total += got;
		free_answer(&a);
	} while (got == want && total < count);
	close(file);
	return total;
}

/* A file with as many leases as permitted leaves a share for other files. */
TEST(shares_of_leases)
{
	const unsigned int count = 80, files = 4;
	unsigned int total = 0, present = 0;
	uint64_t nr = 0, all;
	int file[4];

	/* the pool is full: reclaim may evict some of these blocks while it frees segments */
	for (unsigned int tries = 0; present < count && tries < 20; tries++) {
		struct answer a;

		nr = new_keys(count);
		for (unsigned int i = 0; i < count; i++)
			ASSERT_EQ(kv_put(fd, nr + i, buf, PRESSURE_LEN).res, (int)PRESSURE_LEN,
				  "put %u", i);
		usleep(200000);
		ASSERT_EQ(lookup_keys(fd, &a, nr, count, 0, 0), 0, "lookup");
		present = a.io.nr_present;
		free_answer(&a);
	}
	ASSERT_EQ(present, count, "blocks that are there");
	for (unsigned int f = 0; f < files; f++) {
		unsigned int got = 0;

		file[f] = kv_open(node);
		/* a block cannot be leased during its demotion */
		for (unsigned int tries = 0; !got && tries < 100; tries++) {
			for (unsigned int i = total; i < count; i++) {
				struct answer a;

				ASSERT_EQ(lookup_keys(file[f], &a, nr + i, 1,
						      KVBLK_LOOKUP_LEASE, 60000), 0,
					  "lookup with a lease");
				got += a.io.nr_leased;
				free_answer(&a);
				if (!a.io.nr_leased)
					break;
			}
			if (!got)
				usleep(50000);
		}
		EXPECT(got || total == count, "file %u could lease nothing", f);
		total += got;
	}
	/* a lease moves to a member with its DRAM block, and memory may be leased anew */
	EXPECT(total < count || getenv("KV_DRAM"), "all %u blocks could be leased", count);
	/* a block that another file has leased costs nothing */
	all = lease(fd, nr, total, 60000, total);
	EXPECT_EQ(release(fd, all), 0, "release");
	for (unsigned int f = 0; f < files; f++)
		close(file[f]);
	PASSED("%u blocks by %u files, each at most half of what was left", total, files);

	if (in_memory)
		return;
	/* reclaim may still be moving some of the blocks */
	for (unsigned int tries = 0, singly; tries < 100; tries++) {
		singly = leases_by(1, nr, count);
		if (singly && singly < count && leases_by(7, nr, count) == singly &&
		    leases_by(count, nr, count) == singly) {
			PASSED("%u blocks singly, by seven, or at once", singly);
			return;
		}
		usleep(50000);
	}
	EXPECT(false, "calls for several keys lease fewer or more blocks than single ones");
}

#define SHARE_BLOCKS	400u
#define SHARE_LEN	(60ul << 10)
#define STEP		64u	/* keys that the kernel leases under one lock */

/*
 * Returns how many of the STEP blocks from @nr a file can lease after block @nr - 1 and the
 * @others from @theirs: by one lookup, in which each group begins a step, or by one for each.
 */
static unsigned int leases_after(uint64_t nr, uint64_t theirs, unsigned int others, bool at_once)
{
	unsigned int first = STEP + (others + STEP - 1) / STEP * STEP, from = at_once ? 0 : first;
	uint8_t *keys = malloc((size_t)(first + STEP) * KVBLK_KEY_MAX), *end = keys;
	uint16_t *lens = calloc(first + STEP, sizeof(*lens));
	unsigned int got;
	int file = kv_open(node);
	struct answer a;

	for (unsigned int i = from; i < first + STEP; i++) {
		struct kv_key key = kv_key(i >= first ? nr + i - first :
					   i >= STEP && i < STEP + others ? theirs + i - STEP :
					   nr - 1);

		memcpy(end, key.bytes, key.len);
		end += key.len;
		lens[i] = key.len;
	}
	if (!at_once) {
		lease(file, nr - 1, 1, 60000, 1);
		lease(file, theirs, others, 60000, others);
	}
	ASSERT_EQ(lookup(file, &a, keys, 0, lens + from, first + STEP - from,
			 KVBLK_LOOKUP_LEASE, 60000), 0, "lookup with a lease");
	got = a.io.nr_leased - (first - from);
	free_answer(&a);
	free(keys);
	free(lens);
	close(file);
	return got;
}

/* Bytes that a step has charged and not used are no more for the file to lease later. */
TEST(share_of_a_long_lookup)
{
	unsigned int most = 0, others = 0, singly = 0, at_once = 0;
	uint64_t nr = new_keys(SHARE_BLOCKS);
	int other;

	if (in_memory)
		SKIP("this is for blocks on a member");
	for (unsigned int tries = 0; tries < 100; tries++) {
		for (unsigned int i = 0; i < SHARE_BLOCKS; i++)
			kv_put(fd, nr + i, buf, SHARE_LEN);
		usleep(50000);
		if (count_present(nr, SHARE_BLOCKS) < SHARE_BLOCKS)
			continue;
		/* half of the share; the file below could charge a whole step beside the others */
		most = leases_by(1, nr, SHARE_BLOCKS);
		ASSERT(most > STEP && most < SHARE_BLOCKS - STEP - 1, "a share of %u blocks", most);
		others = most < 2 * (STEP + 2) ? 2 * most - 2 * (STEP + 2) : most;
		other = kv_open(node);
		lease(other, nr, others, 60000, others);
		singly = leases_after(nr + others + 1, nr, others, false);
		at_once = leases_after(nr + others + 1, nr, others, true);
		close(other);
		if (singly == at_once && singly < STEP) {
			PASSED("%u beside %u others", singly, others);
			return;
		}
	}
	EXPECT(false, "%u by short lookups, %u by a long one, beside %u others of %u", singly,
	       at_once, others, most);
}

static unsigned long long pool_value(const char *name)
{
	unsigned long long value = 0;
	char path[128];
	FILE *file;

	snprintf(path, sizeof(path), "/sys/class/kvblk/%s/%s", info.pool_name, name);
	file = fopen(path, "r");
	if (!file || fscanf(file, "%llu", &value) != 1)
		kv_die("can't read %s", path);
	fclose(file);
	return value;
}

/* Blocks in memory that nobody has asked for are dropped: a quiet lookup does not ask. */
TEST(quiet_lookups)
{
	const unsigned int count = 10;
	uint64_t quiet = new_keys(count), loud = new_keys(count), end;
	struct answer a;

	if (in_memory || kv_memory())
		SKIP("the pool keeps blocks in memory by itself, or never");
	set_value("dram_bytes", 16ull << 20);
	set_text("dram_mode", "touched");
	put_many(quiet, count);
	put_many(loud, count);
	ASSERT_EQ(lookup_keys(fd, &a, quiet, count, KVBLK_LOOKUP_QUIET, 0), 0, "quiet lookup");
	EXPECT_EQ(a.io.nr_leading, count, "what a quiet lookup finds");
	EXPECT_EQ(a.tiers[0], KVBLK_TIER_MEMORY, "where");
	free_answer(&a);
	ASSERT_EQ(lookup_keys(fd, &a, loud, count, 0, 0), 0, "lookup");
	EXPECT_EQ(a.io.nr_leading, count, "what a lookup finds");
	free_answer(&a);
	set_value("dram_bytes", 0);
	for (end = kv_now_ms() + 60000 * kv_slow(); pool_value("dram_used");) {
		ASSERT(kv_now_ms() < end, "memory is not empty");
		usleep(50000);
	}
	set_text("dram_mode", "evict");
	EXPECT_EQ(count_present(loud, count), count, "blocks that were asked for");
	EXPECT_EQ(count_present(quiet, count), 0, "blocks that a quiet lookup has found");
	PASSED("a quiet lookup keeps no block");
}

/* Leases in DRAM do not exceed the members' limit, since leased blocks must be demotable. */
TEST(leases_in_large_memory)
{
	const unsigned int count = 60, permille = 50;
	unsigned long long dram = pool_value("dram_bytes"), most, leased;
	uint64_t nr = new_keys(count), id;
	int other = kv_open(node);
	struct answer a;

	if (!in_memory)
		SKIP("this is for blocks in memory");
	set_value("dram_bytes", 512ull << 20);
	set_value("lease_permille", permille);
	for (unsigned int i = 0; i < count; i++)
		ASSERT_EQ(kv_put(fd, nr + i, buf, PRESSURE_LEN).res, (int)PRESSURE_LEN,
			  "put %u", i);
	most = pool_value("capacity") / 1000 * permille;
	ASSERT_EQ(lookup_keys(fd, &a, nr, count, KVBLK_LOOKUP_LEASE, 60000), 0, "lookup");
	free_answer(&a);
	EXPECT(a.io.nr_leased, "nothing could be leased");
	EXPECT_EQ(release(fd, a.io.lease), 0, "release");
	id = lease(fd, nr, count, 60000, a.io.nr_leased);
	ASSERT_EQ(lookup_keys(other, &a, nr + a.io.nr_leased, count - a.io.nr_leased,
			      KVBLK_LOOKUP_LEASE, 60000), 0, "another's lookup");
	free_answer(&a);
	EXPECT(a.io.nr_leased, "another file could lease nothing");
	leased = pool_value("leased_bytes");
	EXPECT(leased <= most, "%llu bytes are leased, of which members may have %llu", leased,
	       most);
	close(other);
	EXPECT_EQ(release(fd, id), 0, "release");
	set_value("lease_permille", 250);
	set_value("dram_bytes", dram);
	PASSED("%llu bytes", leased);
}

static unsigned long locked_memory(void)
{
	unsigned long kib, sum = 0;
	char line[128];
	FILE *file = fopen("/proc/self/status", "r");

	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "VmLck: %lu", &kib) == 1 ||
		    sscanf(line, "VmPin: %lu", &kib) == 1)
			sum += kib << 10;
	if (file)
		fclose(file);
	return sum;
}

TEST(answers_that_cannot_be_written)
{
	uint64_t nr = new_keys(4);
	uint16_t lens[4];
	uint8_t *blob = pack(nr, 4, lens);
	unsigned long locked = locked_memory();
	struct kvblk_lookup *lookup = kv_alloc_host(4096);
	void *memory = kv_alloc_host(BUF_LEN);
	struct kvblk_reg_buf_arg *reg = (void *)lookup;

	put_many(nr, 4);
	*lookup = (struct kvblk_lookup) {
		.size = sizeof(*lookup), .flags = KVBLK_LOOKUP_LEASE, .nr_keys = 4,
		.keys = kv_addr(blob + 1), .key_lens = kv_addr(lens), .lease_ms = 600000,
	};
	ASSERT_EQ(pool_value("leased_bytes"), 0, "leases before");
	ASSERT(!mprotect(lookup, 4096, PROT_READ), "mprotect");
	EXPECT_EQ(kv_ioctl(fd, KVBLK_IOC_LOOKUP, lookup), -EFAULT, "lookup");
	EXPECT_EQ(pool_value("leased_bytes"), 0, "leases that nobody knows of");

	ASSERT(!mprotect(lookup, 4096, PROT_READ | PROT_WRITE), "mprotect");
	*reg = (struct kvblk_reg_buf_arg) {
		.size = sizeof(*reg), .addr = kv_addr(memory), .length = BUF_LEN,
	};
	ASSERT(!mprotect(reg, 4096, PROT_READ), "mprotect");
	EXPECT_EQ(kv_ioctl(fd, KVBLK_IOC_REG_BUF, reg), -EFAULT, "register");
	EXPECT_EQ(locked_memory(), locked, "memory that nobody can unregister");
	munmap(memory, BUF_LEN);
	munmap(lookup, 4096);
	free(blob);
	PASSED("no lease and no registered memory is left");
}

/* Blocks that several files lease are charged once, until the last file ends its lease. */
TEST(files_lease_the_same_blocks)
{
	enum { FILES = 4, NR = 10 };
	uint64_t nr = new_keys(NR), ids[FILES];
	unsigned long long leased;
	int file[FILES];

	put_many(nr, NR);
	ASSERT_EQ(pool_value("leased_bytes"), 0, "leases before");
	for (int f = 0; f < FILES; f++) {
		file[f] = kv_open(node);
		ids[f] = lease(file[f], nr, NR, 600000, NR);
	}
	leased = pool_value("leased_bytes");
	EXPECT(leased, "nothing is charged");
	/* the first file, a new one in its place, one between, then the rest */
	close(file[0]);
	EXPECT_EQ(pool_value("leased_bytes"), leased, "leased without the first file");
	file[0] = kv_open(node);
	ids[0] = lease(file[0], nr, NR, 600000, NR);
	EXPECT_EQ(release(file[2], ids[2]), 0, "release");
	EXPECT_EQ(pool_value("leased_bytes"), leased, "leased without the third file");
	close(file[2]);
	close(file[3]);
	EXPECT_EQ(release(file[1], ids[1]), 0, "release");
	EXPECT_EQ(pool_value("leased_bytes"), leased, "leased by a file alone");
	EXPECT_EQ(release(file[0], ids[0]), 0, "release");
	EXPECT_EQ(pool_value("leased_bytes"), 0, "leased in the end");
	close(file[1]);
	close(file[0]);
	PASSED("%llu bytes, whichever file was first", leased);
}

static uint64_t crowd_key;
static atomic_uint crowd_faults;

/* Lease the crowd's blocks through a file, again and again: released, by deadline, or by close. */
static void *crowd_member(void *unused)
{
	enum { ROUNDS = 100 };
	int file = kv_open(node);
	struct answer a;

	(void)unused;
	for (unsigned int i = 0; i < ROUNDS; i++) {
		if (lookup_keys(file, &a, crowd_key, 70, KVBLK_LOOKUP_LEASE, i % 4 ? 600000 : 1))
			crowd_faults++;
		if (i % 2 && a.io.lease && release(file, a.io.lease))
			crowd_faults++;
		free_answer(&a);
		if (i % 8 == 7) {
			close(file);
			file = kv_open(node);
		}
	}
	close(file);
	return NULL;
}

TEST(crowds_lease_the_same_blocks)
{
	pthread_t thread[4];

	crowd_key = new_keys(70);
	put_many(crowd_key, 70);
	for (unsigned int i = 0; i < 4; i++)
		ASSERT_EQ(pthread_create(&thread[i], NULL, crowd_member, NULL), 0, "a thread");
	for (unsigned int i = 0; i < 4; i++)
		pthread_join(thread[i], NULL);
	EXPECT_EQ(crowd_faults, 0, "failed lookups and releases");
	/* leases that the pool was ending while their file closed */
	for (uint64_t end = kv_now_ms() + 60000 * kv_slow(); pool_value("leased_bytes");) {
		ASSERT(kv_now_ms() < end, "leases of closed files are still there");
		usleep(100000);
	}
	PASSED("none is left of 400");
}

/* Thousands of leases, released newest first, at random, or by their deadline. */
TEST(many_leases)
{
	enum { NR = 3000 };
	static uint64_t ids[NR];
	uint64_t nr = new_keys(NR / 100);

	put_many(nr, NR / 100);
	for (unsigned int i = 0; i < NR; i++)
		ids[i] = lease(fd, nr + i / 100, 1, i % 3 ? 600000 : 1, 1);
	for (unsigned int i = NR; i-- > NR / 2;)
		if (i % 3)
			EXPECT_EQ(release(fd, ids[i]), 0, "release of lease %u", i);
	for (unsigned int i = 0; i < NR / 2; i++)
		if (i * 7 % (NR / 2) % 3)
			EXPECT_EQ(release(fd, ids[i * 7 % (NR / 2)]), 0, "release");
	for (uint64_t end = kv_now_ms() + 60000 * kv_slow(); pool_value("leased_bytes");) {
		ASSERT(kv_now_ms() < end, "leases of 1 ms are still there");
		usleep(100000);
	}
	EXPECT_EQ(release(fd, ids[0]), -ENOENT, "release of one that ended");
	PASSED("%u leases over, none is left", NR);
}

/*
 * Make the task's @nth allocation or copy from now on fail; 0: none. Returns how many were left
 * of the previous setting.
 */
static unsigned int fail_nth(unsigned int nth)
{
	int file = open("/proc/thread-self/fail-nth", O_RDWR);
	char text[16] = "";

	if (file < 0 || pread(file, text, sizeof(text) - 1, 0) <= 0 ||
	    dprintf(file, "%u", nth) < 0)
		kv_die("can't have allocation %u fail", nth);
	close(file);
	return (unsigned int)atoi(text);
}

/* Fail single allocations of leases of @count keys. Return the number of -ENOMEM. */
static unsigned int starve_leases(uint64_t nr, unsigned int count)
{
	unsigned long long leased = pool_value("leased_bytes");
	unsigned int nth = 0, enomem = 0, left;
	struct answer a;
	int err;

	do {
		/*
		 * Each one: kmemleak also allocates, for each key, and hides its failures, so a
		 * stride could miss the few allocations of a lease without other leases beside it.
		 */
		fail_nth(++nth);
		err = lookup_keys(fd, &a, nr, count, KVBLK_LOOKUP_LEASE, 60000);
		/* before the release, or else that would fail */
		left = fail_nth(0);
		if (!err) {
			EXPECT_EQ(a.io.nr_leased, count, "leased, failure %u", nth);
			EXPECT_EQ(release(fd, a.io.lease), 0, "release, failure %u", nth);
		}
		free_answer(&a);
		enomem += err == -ENOMEM;
		EXPECT(!err || err == -ENOMEM || err == -EFAULT, "failure %u: %d", nth, err);
		EXPECT_EQ(pool_value("leased_bytes"), leased, "left behind, failure %u", nth);
	} while (!left);
	return enomem;
}

/* With any one failure, either all keys are leased or an error is returned and none is. */
TEST(lease_without_memory)
{
	const unsigned int count = 150;	/* enough for several steps */
	unsigned int alone = 0, beside;
	uint64_t nr = new_keys(count);
	int other = kv_open(node);

	if (!getenv("KV_STARVE"))
		SKIP("fault injection is not set up");
	put_many(nr, count);
	/* slabs that are filled in between move the numbers of the few allocations: look again */
	for (unsigned int round = 0; round < 10 && alone < 2; round++)
		alone += starve_leases(nr, count);
	EXPECT(alone > 1, "only %u times was there no memory", alone);
	/* a second file's lease of an id takes memory of its own */
	lease(other, nr, count, 600000, count);
	beside = starve_leases(nr, count);
	EXPECT(beside > 8, "only %u times was there no memory beside another file", beside);
	close(other);
	EXPECT_EQ(pool_value("leased_bytes"), 0, "leased in the end");
	PASSED("%u and %u times -ENOMEM", alone, beside);
}

static bool odd(unsigned int i)
{
	return i % 2;
}

static bool below_100(unsigned int i)
{
	return i < 100;
}

/*
 * Lease @count blocks for an hour, foreign ones among them. Returns the lease, whose end has passed
 * if the owner was not polled for the grace.
 */
static struct kvblk_lookup foreign_lease(uint64_t nr, unsigned int count)
{
	const uint64_t grace_ns = pool_value("reuse_grace_ms") * 1000000ull;
	uint64_t start = now_ns(), now;
	struct answer a;

	ASSERT_EQ(lookup_keys(fd, &a, nr, count, KVBLK_LOOKUP_PREFIX | KVBLK_LOOKUP_LEASE,
			      KVBLK_LEASE_MS_MAX), 0, "lookup");
	now = now_ns();
	check_answer(&a, nr, count, below_100, true);
	EXPECT_EQ(a.io.nr_leased, 100, "leased ones");
	EXPECT(a.io.lease, "no lease");
	EXPECT(a.io.lease_end_ns >= start, "a lease that had ended before the lookup");
	EXPECT(a.io.lease_end_ns <= now + grace_ns / 8 * 7, "an end %lld ms from now",
	       (long long)(a.io.lease_end_ns - now) / 1000000);
	free_answer(&a);
	return a.io;
}

/* Foreign blocks are found as own ones are. Their lease ends within the reuse grace. */
TEST(foreign_blocks)
{
	const uint64_t second = 1000000000;
	const unsigned int count = 104;	/* the last four are absent */
	const char *owner = getenv("KV_OWNER");
	uint64_t nr = new_keys(count), limit;
	struct kvblk_lookup first, last;
	struct answer a;
	int file;

	if (!owner)
		SKIP("the pool follows no other");
	file = kv_open(owner);
	for (unsigned int i = 0; i < 100; i++)
		put_to(odd(i) ? file : fd, nr + i);
	limit = kv_now_ms() + 60000 * kv_slow();
	while (count_present(nr, count) < 100) {
		ASSERT(kv_now_ms() < limit, "the owner's blocks are not found");
		usleep(100000);
	}
	foreign = odd;
	ASSERT_EQ(lookup_keys(fd, &a, nr, count, 0, 0), 0, "lookup");
	check_answer(&a, nr, count, below_100, false);
	free_answer(&a);

	/* the owner is polled each second: a slow machine may see a lease that ends at once */
	while ((first = foreign_lease(nr, count)).lease_end_ns < now_ns()) {
		ASSERT(kv_now_ms() < limit, "no lease lasts");
		usleep(100000);
	}
	while ((last = foreign_lease(nr, count)).lease_end_ns < first.lease_end_ns + second) {
		ASSERT(kv_now_ms() < limit, "no lease ends later than the first one");
		usleep(100000);
	}
	foreign = none;

	/* the leases end by themselves, and return what they were charged for */
	while (now_ns() < first.lease_end_ns)
		usleep(100000);
	EXPECT_EQ(release(fd, first.lease), -ENOENT, "release at its end");
	while (pool_value("leased_bytes")) {
		ASSERT(kv_now_ms() < limit, "a lease does not end");
		usleep(100000);
	}
	EXPECT_EQ(release(fd, last.lease), -ENOENT, "release of the last lease");

	/* own blocks alone are leased for as long as the caller asks */
	timed_lease(nr, KVBLK_LEASE_MS_MAX);
	close(file);
	PASSED("the lease was renewed by %llu ms",
	       (unsigned long long)(last.lease_end_ns - first.lease_end_ns) / 1000000);
}

int main(int argc, char **argv)
{
	fd = kv_open_node(argc, argv);
	node = argv[1];
	in_memory = getenv("KV_DRAM");
	info = kv_info(fd);
	buf = kv_alloc(BUF_LEN);
	return kv_run_tests(argc - 2, argv + 2);
}
