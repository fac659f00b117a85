// SPDX-License-Identifier: GPL-2.0
/*
 * Makes a member look as if many small blocks had been put and its pool stopped: a summary for
 * each segment, and the segment table. The records are not written, because a restart does not
 * read those of sealed segments; gets of these blocks miss.
 *
 * usage: fill DEVICE BLOCKS [PER_SEGMENT]: the only member of a new pool that was destroyed;
 *	  PER_SEGMENT: blocks in each segment, as many as fit by default
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <asm/byteorder.h>
#include <linux/kernel.h>

#include "format/record.h"
#include "../host/entry.h"
#include "../host/hash_key.h"

#define BLKGETSIZE64	_IOR(0x12, 114, size_t)
#define UNITS		2	/* per record of up to 4 KiB */

static int fd;

static void die(const char *what)
{
	fprintf(stderr, "fill: %s\n", what);
	exit(1);
}

static void *room(size_t bytes)
{
	void *buf;

	if (posix_memalign(&buf, KVBLK_UNIT, bytes))
		die("no memory");
	memset(buf, 0, bytes);
	return buf;
}

static void get(void *buf, size_t bytes, u64 at)
{
	if (pread(fd, buf, bytes, (off_t)at) != (ssize_t)bytes)
		die("can't read the device");
}

static void put(const void *buf, size_t bytes, u64 at)
{
	if (pwrite(fd, buf, bytes, (off_t)at) != (ssize_t)bytes)
		die("can't write to the device");
}

/* Return the newer of the two superblocks. */
static struct kvblk_d_super *super(void)
{
	struct kvblk_d_super *sb[2], *newer = NULL;
	size_t size;
	int i;

	if (ioctl(fd, BLKGETSIZE64, &size) < 0)
		die("no block device");
	for (i = 0; i < 2; i++) {
		sb[i] = room(sizeof(*sb[i]));
		get(sb[i], sizeof(*sb[i]), KVBLK_SB_OFFSET(i));
		if (!kvblk_super_check(sb[i], size) &&
		    (!newer || le64_to_cpu(sb[i]->seq) > le64_to_cpu(newer->seq)))
			newer = sb[i];
	}
	if (!newer || le16_to_cpu(newer->state) != KVBLK_SB_CLEAN)
		die("no member of a stopped pool");
	return newer;
}

/* Write the summary of @nr records that fill a segment from its front. */
static void summary(const struct kvblk_d_super *sb,
		    const struct kvblk_secret *secret,
		    const struct kvblk_place *place, u32 nr, u64 first)
{
	u32 pages = kvblk_summary_pages(nr), units = le32_to_cpu(sb->segment_units);
	struct kvblk_sum sum = { .nr_records = nr, .sealed = true };
	struct kvblk_d_summary *buf = room(pages * sizeof(*buf));
	u32 i, page;

	for (i = 0; i < nr; i++) {
		u64 number = first + i;
		struct kvblk_rec rec = {
			.id = kvblk_hash_key(secret, 0, &number, sizeof(number)),
			.seq = (le64_to_cpu(sb->epoch) << 40) + number + 1,
			.length = KVBLK_UNIT,
		};

		/* page 0 is the last one of the segment */
		page = pages - 1 - i / KVBLK_SUMMARY_ENTRIES;
		kvblk_entry_encode(&buf[page].entries[i % KVBLK_SUMMARY_ENTRIES],
				   &rec, i * UNITS);
	}
	for (page = 0; page < pages; page++)
		kvblk_summary_encode(&buf[pages - 1 - page], page, &sum, place, secret);
	put(buf, pages * sizeof(*buf),
	    le64_to_cpu(sb->data_start) +
	    (((u64)place->segment * units + units - pages) << KVBLK_UNIT_SHIFT));
	free(buf);
}

int main(int argc, char **argv)
{
	u64 left, first = 0, data;
	struct kvblk_d_table *table;
	struct kvblk_secret secret;
	struct kvblk_d_super *sb;
	u32 most = 0, page, i, s, per_segment = 0;

	if (argc < 3 || argc > 4 || !(left = strtoull(argv[2], NULL, 0)) ||
	    (argc > 3 && !(per_segment = (u32)strtoul(argv[3], NULL, 0))))
		die("usage: fill DEVICE BLOCKS [PER_SEGMENT]");
	fd = open(argv[1], O_RDWR | O_DIRECT | O_CLOEXEC);
	if (fd < 0)
		die("can't open the device");
	sb = super();
	kvblk_secret_derive(&secret, sb->seed);
	while (most * UNITS + kvblk_summary_pages(most) <=
	       le32_to_cpu(sb->segment_units))
		most++;
	most--;
	if (per_segment && per_segment < most)
		most = per_segment;
	table = room(2 * sizeof(*table));
	for (s = 0, page = 0; left; page++) {
		data = KVBLK_TABLE_OFFSET + ((u64)page * 2 << KVBLK_UNIT_SHIFT);
		get(table, 2 * sizeof(*table), data);
		/* move the newer copy to the front; it is written to both places */
		if (!kvblk_table_valid(table, le64_to_cpu(sb->incarnation), page) ||
		    (kvblk_table_valid(table + 1, le64_to_cpu(sb->incarnation), page) &&
		     le64_to_cpu(table[1].seq) > le64_to_cpu(table[0].seq)))
			memcpy(table, table + 1, sizeof(*table));
		if (!kvblk_table_valid(table, le64_to_cpu(sb->incarnation), page))
			die("a page of the segment table is damaged");
		for (i = 0; i < KVBLK_TABLE_ENTRIES && left; i++, s++) {
			struct kvblk_d_segment *seg = &table->segments[i];
			u32 nr = left < most ? left : most;
			struct kvblk_place place = {
				.incarnation = le64_to_cpu(sb->incarnation),
				.generation = le64_to_cpu(seg->generation),
				.segment = s,
			};

			if (s == (u32)le32_to_cpu(sb->nr_segments))
				die("the device is too small for so many");
			summary(sb, &secret, &place, nr, first);
			seg->state = KVBLK_SEG_SEALED;
			seg->nr_records = cpu_to_le32(nr);
			seg->opened = cpu_to_le64(s + 1);
			first += nr;
			left -= nr;
		}
		kvblk_table_seal(table);
		memcpy(table + 1, table, sizeof(*table));
		put(table, 2 * sizeof(*table), data);
	}
	printf("%llu blocks in %u segments\n", (unsigned long long)first, s);
	return 0;
}
