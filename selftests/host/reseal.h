/* SPDX-License-Identifier: GPL-2.0 */
/* Recompute checksums and MACs of structures that a test changed. */
#ifndef KVBLK_RESEAL_H
#define KVBLK_RESEAL_H

#include <linux/crc32c.h>
#include <linux/siphash.h>

#include "format/record.h"

/* @secret NULL keeps the MAC, because a tenant cannot compute one. */
static inline void reseal_summary(struct kvblk_d_summary *page,
				  const struct kvblk_secret *secret)
{
	__le64 mac = page->mac;

	page->crc = 0;
	page->mac = 0;
	page->crc = cpu_to_le32(~crc32c(KVBLK_CRC_INIT, page, sizeof(*page)));
	page->mac = secret ?
		cpu_to_le64(siphash(page, offsetof(struct kvblk_d_summary, mac),
				    &secret->mac)) : mac;
}

/* Seal a header within @size bytes; the header's own header_units may claim more. */
static inline void reseal_header(struct kvblk_d_record *hdr, size_t size,
				 const struct kvblk_secret *secret)
{
	__le64 mac = hdr->mac;

	if (size > (size_t)hdr->header_units * KVBLK_UNIT)
		size = (size_t)hdr->header_units * KVBLK_UNIT;
	if (size < KVBLK_UNIT)
		return;
	hdr->crc = 0;
	hdr->mac = 0;
	hdr->crc = cpu_to_le32(~crc32c(KVBLK_CRC_INIT, hdr, size));
	hdr->mac = secret ?
		cpu_to_le64(siphash(hdr, offsetof(struct kvblk_d_record, mac),
				    &secret->mac)) : mac;
}

#endif
