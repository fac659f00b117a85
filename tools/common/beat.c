// SPDX-License-Identifier: MIT
/* The beats of members: see beat.h. */
#include <endian.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/beat.h"
#include "lib/kvblk_admin.h"

/* the change page, kernel/format/format.h: the 4 KiB before the first segment */
#define PAGE_BYTES	4096
#define PAGE_MAGIC	0x4843564bu
#define BEAT_OFFSET	16

bool beat_read(const struct kvblk_found *member, uint64_t *beat)
{
	/* not through the page cache, which does not see what other nodes write */
	int fd = open(member->path, O_RDONLY | O_DIRECT | O_CLOEXEC);
	char *page = aligned_alloc(PAGE_BYTES, PAGE_BYTES);
	bool read = false;
	uint32_t magic;

	if (fd >= 0 && page && member->data_start >= PAGE_BYTES &&
	    pread(fd, page, PAGE_BYTES, (off_t)(member->data_start - PAGE_BYTES)) == PAGE_BYTES) {
		memcpy(&magic, page, sizeof(magic));
		memcpy(beat, page + BEAT_OFFSET, sizeof(*beat));
		*beat = le64toh(*beat);
		read = le32toh(magic) == PAGE_MAGIC;
	}
	if (fd >= 0)
		close(fd);
	free(page);
	return read;
}
