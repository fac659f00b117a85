/* SPDX-License-Identifier: GPL-2.0 */
/* Recompute checksums and MACs of structures that a test changed. */
#ifndef KVBLK_RESEAL_H
#define KVBLK_RESEAL_H

#include <linux/crc32c.h>
#include <linux/siphash.h>
#include <linux/string.h>

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

/* Seal a header as KVBLK_RECF_SHORT_CRC says, if its lengths are within @size bytes. */
static inline void reseal_short_header(struct kvblk_d_record *hdr, size_t size,
				       const struct kvblk_secret *secret)
{
	bool encrypted = hdr->integrity == KVBLK_INTEGRITY_AES_GCM;
	u64 crcs = ((u64)le32_to_cpu(hdr->length) + 0xffff) / 0x10000 * (encrypted ? 16 : 4);
	u32 crc = crc32c(KVBLK_CRC_INIT, hdr, offsetof(struct kvblk_d_record, crc));
	__le64 words[4] = { hdr->incarnation, hdr->generation };

	if (KVBLK_HDR_CRCS + crcs > size || le16_to_cpu(hdr->key_len) > KVBLK_KEY_MAX)
		return;
	crc = crc32c(crc, (u8 *)hdr + KVBLK_HDR_KEY, le16_to_cpu(hdr->key_len));
	if (encrypted)
		crc = crc32c(crc, &hdr->activation, sizeof(hdr->activation));
	hdr->crc = cpu_to_le32(~crc32c(crc, (u8 *)hdr + KVBLK_HDR_CRCS, crcs));
	memcpy(&words[2], (u8 *)hdr + offsetof(struct kvblk_d_record, segment), sizeof(words[2]));
	memcpy(&words[3], &hdr->crc, sizeof(hdr->crc));
	if (secret)
		hdr->mac = cpu_to_le64(siphash(words, sizeof(words), &secret->mac));
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
	if (le32_to_cpu(hdr->flags) & KVBLK_RECF_SHORT_CRC) {
		reseal_short_header(hdr, size, secret);
		return;
	}
	hdr->crc = 0;
	hdr->mac = 0;
	hdr->crc = cpu_to_le32(~crc32c(KVBLK_CRC_INIT, hdr, size));
	hdr->mac = secret ?
		cpu_to_le64(siphash(hdr, offsetof(struct kvblk_d_record, mac),
				    &secret->mac)) : mac;
}

#endif
