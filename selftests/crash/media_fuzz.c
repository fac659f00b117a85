// SPDX-License-Identifier: GPL-2.0
/*
 * Import of damaged members. Make a pool of two members, damage images of them so that every
 * checksum passes (host/media.c), one member at a time, and import the pool from each image.
 *
 * The rules: the kernel does not complain; the pool is imported, or rejected with a message, and
 * can be destroyed; a get returns the block that was put, or misses, and misses if the module's
 * scan, run here, finds no record; no block of the other member misses.
 *
 * The members are loop devices over files in memory, which are mapped here. So an image is
 * damaged, compared and repaired without I/O.
 *
 * With "follow" the damaged members are those of a pod's other node, which is down, and nothing is
 * imported: a second pool follows both members, every fourth time before the damage. Further rules:
 * no byte of a member is written, and each block of the sound member is found.
 *
 * usage: crash_media_fuzz [follow] POOL DIRECTORY FIRST COUNT
 *	or: crash_media_fuzz claim|feature|version DEVICE
 *	or: crash_media_fuzz field DEVICE NAME[=VALUE]...
 *
 * FIRST and COUNT select images by number, which determines everything random. Each run begins
 * with images without a number: no damage, and a flood of holes.
 * claim    make the superblocks claim all of DEVICE, in segments of the smallest size
 * feature  make the superblocks use an unknown feature
 * version  make the superblocks ones of the next version
 * field    print or change fields, see media_field()
 */
#include <linux/fs.h>
#include <linux/loop.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/stat.h>

#include "../guest/kv_io.h"

#include <kvblk.h>
#include <kvblk_admin.h>

#include "../host/media.h"

#define MEMBERS		2u
#define MEMBER_BYTES	(98ul << 20)	/* twelve segments, enough to avoid reclaim */
#define SEGMENT_BYTES	(8u << 20)
#define KEYS		96u		/* keys put before the damage */
#define NEW_KEYS	2u		/* keys put afterwards, per image */
#define BATCH		32u
#define ROOM		(160u << 10)	/* longest block */
#define FAILURES_MOST	20u
#define PATIENCE_S	120		/* an image that takes longer hangs */
#define NOBODY		255

/* State that the pool was left in. */
enum base {
	CRASHED,
	STOPPED,
	BASES,
};

/* Saved state of a member. */
struct image {
	uint8_t *bytes;
	size_t *pages;		/* offsets of pages that are not holes, ascending */
	size_t nr_pages;
	struct media *media;
	uint64_t epoch;
	uint64_t incarnation;
};

static struct member {
	char file[128];
	char device[32];
	int fd;
	int loop;
	uint8_t *live;		/* mapped content of the device */
	struct image older;
	struct image base[BASES];
} members[MEMBERS];

static struct block {
	uint8_t owner;		/* member that has, or had, the block */
	bool deleted;
	bool expires;		/* has a short time to live */
} blocks[KEYS];

static const char *pool, *pod;	/* @pod: NULL for a pool in none */
static char node[64];
static struct kvblk_admin *admin;
static uint8_t *buffer;		/* for a batch */
static int kmsg;
static uint64_t image;		/* number of the image */
static enum base base;
static struct media_change change;
static unsigned int damaged;	/* number of the damaged member */
static unsigned int failures;
static bool may_fail;		/* another image follows */
static jmp_buf next_image;
static int fd = -1;		/* node of the pool */
static unsigned int refused, came_back, alone, hits, lost;
static struct media_records *records;	/* of the damaged member, by the module's scan */

/* Report a failed image and continue with the next: several failures tell more than one. */
static void __attribute__((format(printf, 1, 2), noreturn)) wrong(const char *format, ...)
{
	va_list args;

	printf("image %llu, member %u, %s: %s\n  ", (unsigned long long)image, damaged,
	       base == CRASHED ? "after a crash" : "after a clean stop", change.text);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	printf("\n  this image alone: KV_SEED=%llu\n", (unsigned long long)image);
	if (++failures == FAILURES_MOST || !may_fail)
		exit(1);
	longjmp(next_image, 1);
}

static void hangs(int signal)
{
	static const char text[] = "an image hangs, it is the last one in the kernel's log\n";
	ssize_t n = write(STDOUT_FILENO, text, sizeof(text) - 1);

	_exit(n > 0 ? 1 : 2);
}

static void kmsg_open(void)
{
	kmsg = open("/dev/kmsg", O_RDWR | O_NONBLOCK | O_CLOEXEC);
	if (kmsg < 0 || lseek(kmsg, 0, SEEK_END) < 0)
		kv_die("/dev/kmsg");
}

/* Log the image's number, which is the only trace if the kernel oopses. */
static void kmsg_tell(void)
{
	dprintf(kmsg, "<5>media: image %llu\n", (unsigned long long)image);
}

/* Check the kernel log since the previous call. */
static void kmsg_look(void)
{
	static const char *const words[] = {
		"WARNING:", "BUG:", "KASAN", "UBSAN", "Call Trace:", "INFO: task",
		"possible circular", "corruption",
	};
	static char line[4096];
	ssize_t n;

	while ((n = read(kmsg, line, sizeof(line) - 1)) > 0 || errno == EPIPE) {
		if (n <= 0)
			continue;
		line[n] = '\0';
		for (unsigned int i = 0; i < ARRAY_SIZE(words); i++) {
			if (!strstr(line, words[i]))
				continue;
			may_fail = false;
			wrong("the kernel complains: %s", line);
		}
	}
}

/* Attach a loop device that disappears when this program has exited and the pool is destroyed. */
static void attach(struct member *m)
{
	struct loop_config config = { .info.lo_flags = LO_FLAGS_AUTOCLEAR };
	int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC), nr, sysfs;
	char path[80];

	m->fd = open(m->file, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (m->fd < 0 || ftruncate(m->fd, MEMBER_BYTES))
		kv_die("%s", m->file);
	nr = control < 0 ? -1 : ioctl(control, LOOP_CTL_GET_FREE);
	if (nr < 0)
		kv_die("no loop device");
	close(control);
	snprintf(m->device, sizeof(m->device), "/dev/loop%d", nr);
	m->loop = open(m->device, O_RDWR | O_CLOEXEC);
	config.fd = (uint32_t)m->fd;
	if (m->loop < 0 || ioctl(m->loop, LOOP_CONFIGURE, &config))
		kv_die("%s", m->device);
	/*
	 * no discards: punching holes into a mapped file triggers a warning of user-mode Linux
	 * 7.3
	 */
	snprintf(path, sizeof(path), "/sys/block/%s/queue/discard_max_bytes", m->device + 5);
	sysfs = open(path, O_WRONLY | O_CLOEXEC);
	if (sysfs < 0 || write(sysfs, "0", 1) != 1)
		kv_die("%s", path);
	close(sysfs);
	m->live = mmap(NULL, MEMBER_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, m->fd, 0);
	if (m->live == MAP_FAILED)
		kv_die("mmap");
}

/* Call @with for each range of the member that is not a hole. */
static void each_stretch(const struct member *m, void (*with)(size_t from, size_t to, void *arg),
			 void *arg)
{
	off_t from, to = 0;

	while ((from = lseek(m->fd, to, SEEK_DATA)) >= 0) {
		to = lseek(m->fd, from, SEEK_HOLE);
		with((size_t)from, (size_t)to, arg);
	}
}

struct copy {
	const uint8_t *from;
	struct image *to;
};

static void copy_stretch(size_t from, size_t to, void *arg)
{
	const struct copy *copy = arg;
	struct image *to_image = copy->to;

	memcpy(to_image->bytes + from, copy->from + from, to - from);
	for (; from < to; from += PAGE)
		to_image->pages[to_image->nr_pages++] = from;
}

static struct image snapshot(const struct member *m)
{
	struct image now = {
		.bytes = kv_map(MEMBER_BYTES, 0),
		.pages = kv_map(MEMBER_BYTES / PAGE * sizeof(size_t), 0),
	};
	struct copy copy = { m->live, &now };

	each_stretch(m, copy_stretch, &copy);
	now.media = media_scan(now.bytes, MEMBER_BYTES, now.pages, now.nr_pages);
	media_life(now.bytes, MEMBER_BYTES, &now.epoch, &now.incarnation);
	return now;
}

static void forget(struct image *image)
{
	media_free(image->media);
	munmap(image->bytes, MEMBER_BYTES);
	munmap(image->pages, MEMBER_BYTES / PAGE * sizeof(size_t));
}

/* Comparison of a member with its image. */
struct repair {
	struct member *m;
	bool keep;		/* compare only */
	size_t differs;		/* number of different bytes, by whole pages, without @change's */
};

static void repair_stretch(size_t from, size_t to, void *arg)
{
	struct repair *r = arg;
	const uint8_t *was = r->m->base[base].bytes;
	bool mine = r->m == &members[damaged];

	for (; from < to; from += PAGE) {
		if (!memcmp(r->m->live + from, was + from, PAGE))
			continue;
		if (!mine || from + PAGE <= change.at || from >= change.at + change.bytes)
			r->differs += PAGE;
		if (!r->keep)
			memcpy(r->m->live + from, was + from, PAGE);
	}
}

/* Restore a member from its image, unless @keep. Returns the number of different bytes. */
static size_t repair(struct member *m, bool keep)
{
	struct repair r = { .m = m, .keep = keep };

	each_stretch(m, repair_stretch, &r);
	/* pages discarded since are holes, which the loop above skips */
	for (size_t i = 0; i < m->base[base].nr_pages; i++)
		repair_stretch(m->base[base].pages[i], m->base[base].pages[i] + PAGE, &r);
	return r.differs;
}

struct sum {
	const struct member *m;
	uint64_t sum;
};

static void sum_stretch(size_t from, size_t to, void *arg)
{
	struct sum *s = arg;
	uint64_t word;

	for (; from < to; from += sizeof(word)) {
		memcpy(&word, s->m->live + from, sizeof(word));
		/* without zeroes, because a look through the mapping fills holes with them */
		if (word)
			s->sum = kv_mix(s->sum ^ word ^ from);
	}
}

/*
 * Return a checksum of the member. Holes are not read: in user-mode Linux each page of a process
 * is a mapping of the host, which allows 65530.
 */
static uint64_t sum(const struct member *m)
{
	struct sum s = { .m = m };

	each_stretch(m, sum_stretch, &s);
	return s.sum;
}

static bool pool_is_there(void)
{
	struct kvblk_pool_state *list = NULL;
	int err = kvblk_pool_list(admin, pool, &list);

	kvblk_list_free(list);
	if (err && err != -ENOENT)
		wrong("kvblk_pool_list: %d", err);
	return !err;
}

static void nap(void)
{
	usleep(1000);
}

static void destroy(void)
{
	int err;

	if (fd >= 0)
		close(fd);
	fd = -1;
	err = kvblk_pool_destroy(admin, pool, false);
	if (err == -EINPROGRESS)
		err = kvblk_admin_wait(admin, -1);
	if (err) {
		may_fail = false;
		wrong("the pool can't be destroyed: %d, %s", err, kvblk_admin_message(admin));
	}
}

/*
 * Wait until no member is restoring. Returns a bit for each member that is up. @ready: also wait
 * for ready segments, so that blocks alternate between the members in the same way in each run.
 */
static unsigned int members_up(bool ready)
{
	struct kvblk_member_state *list, *m;
	unsigned int up;
	bool busy;
	int err;

	do {
		up = 0;
		busy = false;
		err = kvblk_member_list(admin, pool, &list);
		if (err)
			wrong("kvblk_member_list: %d", err);
		for (m = list; m; m = m->next) {
			busy |= m->state == KVBLK_MEMBER_STATUS_RESTORING ||
				(ready && !m->ready_segments);
			for (unsigned int i = 0; i < MEMBERS; i++) {
				if (m->state == KVBLK_MEMBER_STATUS_UP &&
				    !strcmp(m->path, members[i].device))
					up |= 1u << i;
			}
		}
		kvblk_list_free(list);
		if (busy)
			nap();
	} while (busy);
	return up;
}

static void tune(const char *name, const char *value)
{
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "/sys/class/kvblk/%s/%s", pool, name);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, value, strlen(value)) < 0)
		kv_die("%s", path);
	close(fd);
}

/* Create or import the pool from the members in @which. Returns 0, or the errno of a rejection. */
static int assemble(unsigned int which, uint32_t add_flags)
{
	struct kvblk_member_spec specs[MEMBERS];
	struct kvblk_pool_spec spec = {
		.size = sizeof(spec),
		.name = pool, .add_flags = add_flags, .index_slots = 4096,
		.members = specs,
	};
	int err;

	/* loop devices have no reservations */
	if (pod)
		spec.add_flags |= KVBLK_ADD_FLAG_FORCE;
	if (add_flags & KVBLK_ADD_FLAG_FORMAT)
		spec.pod = pod;

	for (unsigned int i = 0; i < MEMBERS; i++) {
		if (which & 1u << i)
			specs[spec.nr_members++] = (struct kvblk_member_spec) {
				.size = sizeof(specs[0]),
				.path = members[i].device,
				.segment_size = add_flags & KVBLK_ADD_FLAG_FORMAT ?
						SEGMENT_BYTES : 0,
			};
	}
	err = add_flags & KVBLK_ADD_FLAG_FORMAT ? kvblk_pool_create(admin, &spec) :
						  kvblk_pool_import(admin, &spec);
	if (err == -EINPROGRESS)
		err = kvblk_admin_wait(admin, -1);
	if (err && !kvblk_admin_message(admin)[0])
		wrong("refused without a word: %d", err);
	/* long enough for a slow machine */
	if (!err)
		tune("suspect_ms", "60000");
	/* or else each import waits for 10 s */
	if (!err && pod)
		tune("reuse_grace_ms", "3000");
	return err;
}

static size_t length(uint64_t nr)
{
	uint64_t mixed = kv_mix(nr ^ 0x1e4);

	/* most are short, some have several checksums */
	return 1 + (size_t)(mixed % (nr % 12 ? 12000 : ROOM - 1)) / 2 * 2;
}

static int put_blocks(uint64_t first, unsigned int nr)
{
	for (uint64_t n = first; n < first + nr; n++) {
		struct kv_key key = kv_key(n);
		struct kvblk_piece piece = kv_piece(buffer, length(n));
		struct kvblk_op op = kv_op(KVBLK_OP_PUT, &key, &piece, 1);
		struct kvblk_op_ext ext;
		int res;

		kv_fill(kv_seed(n, 0), 0, buffer, length(n));
		kv_tags(&op, &ext, 0, n % 4 ? 0 : n);
		op.priority = n % 7 == 6;
		/* 200 days, more than a damaged field can change the pool's clock */
		op.ttl_s = n % 9 == 4 ? 1 : n % 3 ? 0 : 200 * 86400;
		if (n < KEYS)
			blocks[n].expires = op.ttl_s == 1;
		res = kv_one(fd, &op).res;
		if (res != (int)length(n))
			return res;
	}
	return 0;
}

static void put_or_die(uint64_t first, unsigned int nr)
{
	int err = put_blocks(first, nr);

	if (err)
		wrong("a put into a healthy pool: %d", err);
}

/* Check the result of a get of block @n. */
static void judge(uint64_t n, const struct kvblk_result *res, const uint8_t *buf,
		  size_t room)
{
	ssize_t at;

	/* a damaged member may claim a length that exceeds the buffer */
	if (res->res == -ENOENT ||
	    (res->res == -EMSGSIZE && n < KEYS && blocks[n].owner == damaged)) {
		at = kv_leaked(buf, room);
		if (at >= 0)
			wrong("block %llu: a miss left a byte at %zd", (unsigned long long)n, at);
		return;
	}
	if (res->res != (int)length(n))
		wrong("block %llu: %d, should be %zu", (unsigned long long)n, res->res, length(n));
	at = kv_wrong(kv_seed(n, 0), 0, buf, length(n));
	if (at >= 0)
		wrong("block %llu: wrong byte at %zd", (unsigned long long)n, at);
}

/* Get blocks from @first on; @hit: which of them were hits. */
static void get_blocks(uint64_t first, unsigned int nr, bool *hit)
{
	struct kvblk_piece pieces[BATCH];
	struct kvblk_result res[BATCH];
	struct kvblk_op ops[BATCH];
	struct kv_key keys[BATCH];

	for (unsigned int i = 0; i < nr; i++) {
		keys[i] = kv_key(first + i);
		pieces[i] = kv_piece(buffer + i * ROOM, length(first + i) + 1);
		ops[i] = kv_op(KVBLK_OP_GET, &keys[i], &pieces[i], 1);
		memset(buffer + i * ROOM, KV_UNTOUCHED, pieces[i].length);
	}
	if (kv_submit(fd, ops, res, nr, 0))
		wrong("KVBLK_IOC_SUBMIT fails");
	for (unsigned int i = 0; i < nr; i++) {
		judge(first + i, &res[i], buffer + i * ROOM, pieces[i].length);
		hit[i] = res[i].res > 0;
	}
}

static void read_member(void *arg, uint64_t at, void *buf, size_t bytes)
{
	const struct member *m = arg;

	/* not from the mapping, where a read would fill holes */
	if (pread(m->fd, buf, bytes, (off_t)at) != (ssize_t)bytes)
		kv_die("%s", m->file);
}

/* Scan the damaged member before the module may change it. */
static void scan_records(void)
{
	struct member *m = &members[damaged];

	if (records)
		media_records_free(records);
	records = media_records(m->base[base].media, read_member, m);
}

static bool has_record(unsigned int n)
{
	struct kv_key key = kv_key(n);

	return media_has(records, key.bytes, key.len);
}

/*
 * Check all blocks. @scanned: those of the damaged member must be found by the scan; @whole: those
 * of the members in @sound must be present.
 */
static void check_blocks(unsigned int sound, bool scanned, bool whole)
{
	bool hit[KEYS];

	for (unsigned int n = 0; n < KEYS; n += BATCH)
		get_blocks(n, BATCH, hit + n);
	for (unsigned int n = 0; n < KEYS; n++) {
		const struct block *b = &blocks[n];
		bool is_sound = b->owner != NOBODY && sound & 1u << b->owner;

		if (scanned && hit[n] && b->owner == damaged && !has_record(n))
			wrong("block %u is served, and the scan of its member has no record", n);
		hits += hit[n];
		lost += !hit[n] && !b->deleted && !b->expires;
		if (whole && is_sound && !hit[n] && !b->deleted && !b->expires)
			wrong("block %u of member %u, which is sound, is a miss", n, b->owner);
		if (hit[n] && b->deleted && (is_sound || !change.record))
			wrong("block %u was deleted, and is back", n);
	}
}

static void find_owner(const void *key, size_t len, void *arg)
{
	struct kv_key one;

	for (unsigned int n = 0; n < KEYS; n++) {
		one = kv_key(n);
		if (one.len == len && !memcmp(one.bytes, key, len))
			blocks[n].owner = (uint8_t)(uintptr_t)arg;
	}
}

static void find_owners(void)
{
	for (unsigned int i = 0; i < MEMBERS; i++) {
		struct image now = snapshot(&members[i]);

		media_keys(now.media, find_owner, (void *)(uintptr_t)i);
		forget(&now);
	}
}

static void delete_blocks(unsigned int first, unsigned int end)
{
	for (unsigned int n = first; n < end; n += 10) {
		int res = kv_delete(fd, n).res;

		if (res && !(res == -ENOENT && blocks[n].expires))
			wrong("a delete in a healthy pool: %d", res);
		blocks[n].deleted = !res;
	}
}

static void keep(enum base which)
{
	for (unsigned int i = 0; i < MEMBERS; i++)
		members[i].base[which] = snapshot(&members[i]);
}

/*
 * Run the pool four times, to have sealed and open segments; keep images of a crash and of a
 * clean stop.
 */
static void make_images(void)
{
	const unsigned int each = KEYS / 4, all = (1u << MEMBERS) - 1;

	for (unsigned int n = 0; n < KEYS; n++)
		blocks[n].owner = NOBODY;
	for (unsigned int life = 0; life < 4; life++) {
		if (assemble(all, life ? 0 : KVBLK_ADD_FLAG_FORMAT) || members_up(true) != all)
			wrong("a healthy pool does not come: %s", kvblk_admin_message(admin));
		fd = kv_open(node);
		put_or_die(life * each, each / 2);
		/* let a checkpoint be written, which does not cover the following puts */
		if (life == 3)
			usleep(1500000);
		put_or_die(life * each + each / 2, each / 2);
		/* owners must be found before deletes, which leave no key */
		find_owners();
		/* delete in sealed and in open segments */
		if (life == 3)
			delete_blocks(1, KEYS);
		if (life == 3)
			keep(CRASHED);
		destroy();
		for (unsigned int i = 0; i < MEMBERS && life == 1; i++)
			members[i].older = snapshot(&members[i]);
	}
	keep(STOPPED);
}

static void check_lives(void)
{
	uint64_t epoch, incarnation;

	for (unsigned int i = 0; i < MEMBERS; i++) {
		const struct member *m = &members[i];

		if (i == damaged && change.bytes)
			continue;
		if (!media_life(m->live, MEMBER_BYTES, &epoch, &incarnation))
			wrong("member %u, which is sound, has no superblock any more", i);
		if (!media_modest(m->live, MEMBER_BYTES))
			wrong("member %u, which is sound, has numbers that another one made up", i);
		if (incarnation != m->base[base].incarnation)
			wrong("member %u, which is sound, was emptied", i);
		if (epoch < m->base[base].epoch || epoch > m->base[base].epoch + 100)
			wrong("member %u, which is sound, has epoch %llu, was %llu", i,
			      (unsigned long long)epoch, (unsigned long long)m->base[base].epoch);
	}
}

/*
 * Import the pool from the members in @which, use and destroy it. Returns false if the import was
 * rejected.
 */
static bool try_pool(unsigned int which, unsigned int sound, uint32_t add_flags)
{
	bool hit[NEW_KEYS];
	unsigned int up;
	int err;

	if (assemble(which, add_flags))
		return false;
	up = members_up(false);
	if ((up & sound) != sound)
		wrong("a sound member is not up");
	fd = kv_open(node);
	check_blocks(sound, true, true);
	/* keys that the base does not have, equal for all images */
	err = put_blocks(KEYS, NEW_KEYS);
	if (err && err != -ENOSPC && err != -EEXIST && err != -ENOBUFS)
		wrong("a put: %d", err);
	get_blocks(KEYS, NEW_KEYS, hit);
	destroy();
	check_lives();
	return true;
}

static void try_image(void)
{
	const unsigned int all = (1u << MEMBERS) - 1;
	unsigned int sound = change.bytes ? all & ~(1u << damaged) : all;
	unsigned int i;

	kmsg_tell();
	scan_records();
	alarm(PATIENCE_S * kv_slow());
	if (try_pool(all, sound, 0) || try_pool(all, sound, KVBLK_ADD_FLAG_FORCE)) {
		came_back++;
		/* try the result of the first import, or at least the sound member */
		if (!(image % 4) && !try_pool(all, sound, 0) &&
		    !try_pool(sound, sound, KVBLK_ADD_FLAG_FORCE | KVBLK_ADD_FLAG_DEGRADED))
			wrong("it came once, and is refused then: %s", kvblk_admin_message(admin));
	} else {
		refused++;
		for (i = 0; i < MEMBERS; i++) {
			if (repair(&members[i], true))
				wrong("the pool was refused (%s), and member %u was written to",
				      kvblk_admin_message(admin), i);
		}
		if (!try_pool(sound, sound, KVBLK_ADD_FLAG_FORCE | KVBLK_ADD_FLAG_DEGRADED))
			wrong("the sound member alone is refused: %s", kvblk_admin_message(admin));
		alone++;
	}
	kmsg_look();
}

#define POLL_MS		1000	/* time between two polls of a follower */

static struct member own;	/* of the follower */

static void follower_create(void)
{
	static char name[KVBLK_NAME_LEN_MAX + 1];
	struct kvblk_member_spec member = {
		.size = sizeof(member), .path = own.device, .segment_size = SEGMENT_BYTES,
	};
	struct kvblk_pool_spec spec = {
		.size = sizeof(spec), .name = name, .index_slots = 4096,
		.add_flags = KVBLK_ADD_FLAG_FORMAT | KVBLK_ADD_FLAG_FORCE,
		.nr_members = 1, .members = &member, .pod = pod, .pod_of = members[0].device,
	};
	int err;

	snprintf(name, sizeof(name), "%.20s-f", pool);
	pool = name;
	snprintf(node, sizeof(node), "/dev/kvblk/%s/default", pool);
	err = kvblk_pool_create(admin, &spec);
	if (err == -EINPROGRESS)
		err = kvblk_admin_wait(admin, -1);
	if (err)
		wrong("the follower: %d, %s", err, kvblk_admin_message(admin));
	tune("suspect_ms", "60000");
	fd = kv_open(node);
}

/* Returns whether the follower accepts the member. */
static bool follow(unsigned int nr)
{
	struct kvblk_member_spec spec = { .size = sizeof(spec), .path = members[nr].device };
	int err = kvblk_member_follow(admin, pool, &spec);

	if (err == -EINPROGRESS)
		err = kvblk_admin_wait(admin, -1);
	if (err && !kvblk_admin_message(admin)[0])
		wrong("member %u is refused without a word: %d", nr, err);
	if (err && (nr != damaged || !change.bytes))
		wrong("member %u, which is sound, is refused: %s", nr, kvblk_admin_message(admin));
	return !err;
}

static void unfollow(unsigned int nr)
{
	struct kvblk_member_spec spec = { .size = sizeof(spec), .name = members[nr].device + 5 };
	int err = kvblk_member_remove(admin, pool, &spec);

	if (err == -EINPROGRESS)
		err = kvblk_admin_wait(admin, -1);
	if (err)
		wrong("member %u can't be left: %d, %s", nr, err, kvblk_admin_message(admin));
}

/* Returns a bit for each member whose first poll has ended. */
static unsigned int polled(void)
{
	struct kvblk_member_state *list, *m;
	unsigned int done = 0;
	int err = kvblk_foreign_list(admin, pool, &list);

	if (err)
		wrong("kvblk_foreign_list: %d", err);
	for (m = list; m; m = m->next)
		for (unsigned int i = 0; i < MEMBERS; i++)
			if (m->state != KVBLK_MEMBER_STATUS_RESTORING &&
			    !strcmp(m->path, members[i].device))
				done |= 1u << i;
	kvblk_list_free(list);
	return done;
}

/* Wait for the sound members; for a damaged one, whose polls may all fail, at most two polls. */
static void wait_polled(unsigned int sound, unsigned int all)
{
	uint64_t start = kv_now_ms();
	unsigned int done;

	while ((done = polled()) != all &&
	       ((done & sound) != sound || kv_now_ms() < start + 2 * POLL_MS))
		nap();
}

/* Check all blocks of the follower. @fresh: it follows only since the damage. */
static void check_followed(unsigned int sound, bool fresh)
{
	/*
	 * What was found before the damage may be read, and a header's key proves it. After a
	 * crash, the last blocks are in no summary.
	 */
	check_blocks(sound, fresh && !change.record, base == STOPPED);
}

/* Follow the members, and damage one of them: with @seed, or as it was done already. */
static void try_follow(const uint64_t *seed)
{
	const unsigned int all = (1u << MEMBERS) - 1;
	struct member *m = &members[damaged];
	bool before = seed && (image & 12) == 12, followed[MEMBERS];
	unsigned int sound = all & ~(1u << damaged), may = 0;
	uint64_t then;
	int err;

	kmsg_tell();
	alarm(PATIENCE_S * kv_slow());
	for (unsigned int i = 0; before && i < MEMBERS; i++)
		follow(i);
	if (before) {
		wait_polled(all, all);
		check_followed(all, false);
	}
	if (seed)
		media_damage(m->base[base].media, m->older.bytes, m->live, *seed, &change);
	if (getenv("KV_SEED"))
		printf("image %llu: %s\n", (unsigned long long)image, change.text);
	then = sum(m);
	scan_records();
	for (unsigned int i = 0; i < MEMBERS; i++) {
		followed[i] = before || follow(i);
		may |= (unsigned int)followed[i] << i;
	}
	if (before) {
		check_followed(sound, false);
		usleep(POLL_MS * 1500);
	} else {
		wait_polled(sound, may);
	}
	check_followed(change.bytes ? sound : all, !before);
	if (followed[damaged])
		came_back++;
	else
		refused++;
	err = put_blocks(KEYS, NEW_KEYS);
	if (err && err != -EEXIST)
		wrong("a put: %d", err);
	for (unsigned int i = 0; i < MEMBERS; i++) {
		if (followed[i])
			unfollow(i);
		if (repair(&members[i], true))
			wrong("member %u, which is another node's, was written to", i);
	}
	if (sum(m) != then)
		wrong("the damaged member was written to");
	kmsg_look();
}

static void follow_end(void)
{
	for (unsigned int i = 0; i < MEMBERS; i++) {
		struct kvblk_member_spec spec = {
			.size = sizeof(spec), .name = members[i].device + 5,
		};

		/* may be left already */
		if (kvblk_member_remove(admin, pool, &spec) == -EINPROGRESS)
			kvblk_admin_wait(admin, -1);
	}
}

static void choose(uint64_t number)
{
	image = number;
	damaged = number & 1;
	base = number >> 1 & 1 ? STOPPED : CRASHED;
	change = (struct media_change){ .text = "no damage" };
	for (unsigned int i = 0; i < MEMBERS; i++)
		repair(&members[i], false);
}

static void claim(const char *path, const char *what)
{
	int fd = open(path, O_RDWR | O_DIRECT | O_CLOEXEC);
	uint8_t *sb = kv_alloc_host(65536);
	uint64_t bytes;

	if (fd < 0 || ioctl(fd, BLKGETSIZE64, &bytes))
		kv_die("%s", path);
	for (off_t at = 0; at < 2 * 65536; at += 65536) {
		if (pread(fd, sb, 65536, at) != 65536)
			kv_die("can't read %s", path);
		if (!strcmp(what, "claim"))
			media_claim(sb, bytes);
		else
			media_newer(sb, !strcmp(what, "feature"));
		if (pwrite(fd, sb, 65536, at) != 65536)
			kv_die("can't write to %s", path);
	}
}

/* Print or change fields in the given order; seals each change. */
static void fields(const char *path, char **names)
{
	int fd = open(path, O_RDWR | O_DIRECT | O_CLOEXEC);
	uint8_t *head = kv_alloc_host(MEDIA_HEAD);
	uint64_t bytes, value;
	char *equals;

	if (fd < 0 || ioctl(fd, BLKGETSIZE64, &bytes) ||
	    pread(fd, head, MEDIA_HEAD, 0) != (ssize_t)MEDIA_HEAD)
		kv_die("%s", path);
	for (; *names; names++) {
		equals = strchr(*names, '=');
		if (equals)
			*equals++ = '\0';
		value = equals ? strtoull(equals, NULL, 0) : 0;
		if (!media_field(head, bytes, *names, equals, &value))
			kv_die("%s: no field %s", path, *names);
		if (!equals)
			printf("%llu\n", (unsigned long long)value);
	}
	if (pwrite(fd, head, MEDIA_HEAD, 0) != (ssize_t)MEDIA_HEAD)
		kv_die("can't write to %s", path);
}

int main(int argc, char **argv)
{
	uint64_t first, count, start;
	bool follows = argc == 6 && !strcmp(argv[1], "follow");
	cpu_set_t cpu;

	if (argc == 3 && (!strcmp(argv[1], "claim") || !strcmp(argv[1], "feature") ||
			  !strcmp(argv[1], "version"))) {
		claim(argv[2], argv[1]);
		return 0;
	}
	if (argc > 3 && !strcmp(argv[1], "field")) {
		fields(argv[2], argv + 3);
		return 0;
	}
	if (argc != 5 && !follows) {
		fprintf(stderr, "usage: %s [follow] POOL DIRECTORY FIRST COUNT\n", argv[0]);
		return 2;
	}
	if (follows) {
		pod = "fuzz";
		argv++;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	pool = argv[1];
	snprintf(node, sizeof(node), "/dev/kvblk/%s/default", pool);
	first = strtoull(argv[3], NULL, 0);
	count = strtoull(argv[4], NULL, 0);
	/* puts choose the member by CPU: use a single CPU, so that each run places them alike */
	CPU_ZERO(&cpu);
	CPU_SET(0, &cpu);
	sched_setaffinity(0, sizeof(cpu), &cpu);
	signal(SIGALRM, hangs);
	kmsg_open();
	if (kvblk_admin_open(&admin))
		kv_die("no netlink family");
	buffer = kv_alloc_host((size_t)BATCH * ROOM);
	for (unsigned int i = 0; i < MEMBERS; i++) {
		snprintf(members[i].file, sizeof(members[i].file), "%s/member%u", argv[2], i);
		attach(&members[i]);
	}
	snprintf(change.text, sizeof(change.text), "images are being made");
	alarm(PATIENCE_S * kv_slow());
	make_images();

	if (follows) {
		snprintf(own.file, sizeof(own.file), "%s/own", argv[2]);
		attach(&own);
		follower_create();
	}
	for (unsigned int i = 0; i < BASES; i++) {
		choose(2 * i);
		follows ? try_follow(NULL) : try_image();
	}
	choose(0);
	if (!media_flood(members[0].base[base].media, members[0].live, &change))
		wrong("no open segment");
	follows ? try_follow(NULL) : try_image();

	may_fail = true;
	start = kv_now_ms();
	for (volatile uint64_t n = first; n < first + count; n++) {
		struct member *m;

		if (setjmp(next_image)) {
			if (follows)
				follow_end();
			else if (pool_is_there())
				destroy();
			kmsg_look();
			continue;
		}
		choose(n);
		if (follows) {
			uint64_t seed = n;

			try_follow(&seed);
			continue;
		}
		m = &members[damaged];
		media_damage(m->base[base].media, m->older.bytes, m->live, n, &change);
		if (getenv("KV_SEED"))
			printf("image %llu: %s\n", (unsigned long long)n, change.text);
		try_image();
	}
	if (follows)
		destroy();
	printf("images=%llu failures=%u came_back=%u refused=%u alone=%u hits=%u lost=%u ms=%llu\n",
	       (unsigned long long)count, failures, came_back, refused, alone, hits, lost,
	       (unsigned long long)(kv_now_ms() - start));
	return failures != 0;
}
