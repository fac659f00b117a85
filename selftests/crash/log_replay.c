// SPDX-License-Identifier: GPL-2.0
/*
 * Rewrite a device to the states that a crash could have left: replay a log of dm-log-writes up
 * to one entry after another.
 *
 * For each chosen boundary, rewrite TARGET, print "ENTRY ACKED KIND" and wait for a line on
 * stdin. ACKED is the number in the last mark "ack-N" before the boundary. Boundaries are all
 * flushes and FUA writes (or HARD of them, evenly spaced), and every NTH of the other writes.
 * With "-x" a random half of the writes that no flush covers is lost, because a device may
 * complete a write and lose it.
 *
 * dm-log-writes logs a FUA write at once and other writes when a flush makes them durable, so a
 * prefix of its log already lacks the unflushed writes. But a write that preceded a FUA write of
 * the same place follows it in the log. The rule for that: between two flushes FUA writes win.
 *
 * usage: crash_log_replay [-e NTH] [-h HARD] [-x SEED] [-f FIRST] LOG TARGET
 */
#include <endian.h>
#include <linux/fs.h>
#include <stdarg.h>

#include "../guest/kv_io.h"

#define LOG_MAGIC	0x6a736677736872ull
#define LOG_FLUSH	1u
#define LOG_FUA		2u
#define LOG_DISCARD	4u
#define LOG_MARK	8u

struct log_super {
	uint64_t magic, version, nr_entries;
	uint32_t sectorsize;
} __attribute__((packed));

struct log_entry {
	uint64_t sector, nr_sectors, flags, data_len;
	char mark[64];
};

static int log_fd, target;
static uint64_t target_size;
static uint8_t *stable;		/* state made durable by flushes */
static uint8_t *image;		/* state to write to the target */

struct write {
	uint64_t at, length, data;
	bool discard, fua;
};

static struct write *pending;
static size_t nr_pending, room_pending;

static void apply(const struct write *w, uint8_t *to)
{
	if (w->at + w->length > target_size)
		kv_die("the log goes behind the end of the target");
	if (w->discard)
		memset(to + w->at, 0, w->length);
	else if (pread(log_fd, to + w->at, w->length, (off_t)w->data) !=
		 (ssize_t)w->length)
		kv_die("can't read the log");
}

/* Apply the writes since the last flush; with @dice a random half of them, and all FUA writes. */
static void apply_pending(uint8_t *to, uint64_t *dice)
{
	for (size_t i = 0; i < nr_pending; i++) {
		if (!pending[i].fua && (!dice || kv_below(dice, 2)))
			apply(&pending[i], to);
	}
	for (size_t i = 0; i < nr_pending; i++) {
		if (pending[i].fua)
			apply(&pending[i], to);
	}
}

/* Make the target equal to @image: discard it, then write everything that is not zero. */
static void show(void)
{
	static const uint8_t zeroes[65536];
	uint64_t range[2] = { 0, target_size };

	if (ioctl(target, BLKDISCARD, range) < 0)
		kv_die("can't discard the target");
	for (uint64_t at = 0; at < target_size; at += sizeof(zeroes)) {
		uint64_t from = at, end = at + sizeof(zeroes);

		if (end > target_size)
			end = target_size;
		if (!memcmp(image + at, zeroes, end - at))
			continue;
		if (pwrite(target, image + from, end - from, (off_t)from) !=
		    (ssize_t)(end - from))
			kv_die("can't write to the target");
	}
}

static void boundary(uint64_t entry, unsigned int acked, const char *kind,
		     bool lossy, uint64_t *dice)
{
	char line[16];

	memcpy(image, stable, target_size);
	apply_pending(image, lossy ? dice : NULL);
	show();
	printf("%llu %u %s%s\n", (unsigned long long)entry, acked, kind,
	       lossy ? "-lossy" : "");
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		exit(0);
}

/* Read the entry at @at, which its data follows. Returns the position of the next entry. */
static uint64_t read_entry(uint64_t at, struct log_entry *e,
			   const struct log_super *super)
{
	if (pread(log_fd, e, sizeof(*e), (off_t)at) != sizeof(*e))
		kv_die("can't read the log");
	at += super->sectorsize;
	if (e->flags & (LOG_DISCARD | LOG_MARK))
		return at;
	return at + e->nr_sectors * super->sectorsize;
}

int main(int argc, char **argv)
{
	uint64_t nth = 1, want_hard = UINT64_MAX, seed = 0, first = 0, dice;
	uint64_t since = 0, nr_hard = 0, hards = 0, at, i;
	unsigned int acked = 0;
	struct log_super super;
	bool lossy = false;
	int option;

	while ((option = getopt(argc, argv, "e:h:x:f:")) > 0) {
		uint64_t number = strtoull(optarg, NULL, 0);

		if (option == 'e')
			nth = number;
		else if (option == 'f')
			first = number;
		else if (option == 'h')
			want_hard = number;
		else
			seed = number;
		lossy |= option == 'x';
	}
	if (argc - optind != 2)
		return 2;
	dice = kv_mix(seed);
	log_fd = open(argv[optind], O_RDONLY | O_CLOEXEC);
	target = open(argv[optind + 1], O_RDWR | O_DIRECT | O_CLOEXEC);
	if (log_fd < 0 || target < 0)
		kv_die("can't open %s or %s", argv[optind], argv[optind + 1]);
	if (ioctl(target, BLKGETSIZE64, &target_size) < 0)
		kv_die("%s is no block device", argv[optind + 1]);
	if (pread(log_fd, &super, sizeof(super), 0) != sizeof(super) ||
	    le64toh(super.magic) != LOG_MAGIC)
		kv_die("%s is no log of dm-log-writes", argv[optind]);
	stable = kv_alloc(target_size);
	image = kv_alloc(target_size);
	for (i = 0, at = super.sectorsize; i < super.nr_entries; i++) {
		struct log_entry e;

		at = read_entry(at, &e, &super);
		nr_hard += !!(e.flags & (LOG_FLUSH | LOG_FUA));
	}
	if (want_hard > nr_hard)
		want_hard = nr_hard;
	for (i = 0, at = super.sectorsize; i < super.nr_entries; i++) {
		struct log_entry e;
		struct write w;
		uint64_t data = at + super.sectorsize;
		bool hard, chosen;

		at = read_entry(at, &e, &super);
		if (e.flags & LOG_MARK) {
			e.mark[sizeof(e.mark) - 1] = '\0';
			sscanf(e.mark, "ack-%u", &acked);
			continue;
		}
		w = (struct write){
			.at = e.sector * super.sectorsize,
			.length = e.nr_sectors * super.sectorsize,
			.data = data,
			.discard = e.flags & LOG_DISCARD,
			.fua = e.flags & LOG_FUA,
		};
		/* writes completed before the flush are durable now */
		if (e.flags & LOG_FLUSH) {
			apply_pending(stable, NULL);
			nr_pending = 0;
		}
		if (w.length && nr_pending == room_pending) {
			room_pending = room_pending * 2 + 64;
			pending = realloc(pending,
					  room_pending * sizeof(*pending));
		}
		if (w.length)
			pending[nr_pending++] = w;
		hard = e.flags & (LOG_FLUSH | LOG_FUA);
		if (hard) {
			chosen = hards * want_hard / nr_hard !=
				 (hards + 1) * want_hard / nr_hard;
			hards++;
		} else {
			chosen = ++since >= nth;
		}
		if (!chosen || i < first)
			continue;
		if (!hard)
			since = 0;
		boundary(i, acked, hard ? "hard" : "write", lossy, &dice);
	}
	return 0;
}
