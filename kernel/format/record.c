// SPDX-License-Identifier: GPL-2.0
/*
 * Codecs of the on-media format.
 *
 * The rule: check a buffer's checksum first (and its MAC, where a tenant's payload could lie),
 * then its place, then each field. A decoder's results are in range, whatever the device
 * returned. The exception is KVBLK_DEC_MORE, which only costs the reader 4 KiB.
 *
 * A MAC covers place and CRC, hence the rest. A forged CRC does not help: the MACed bytes name the
 * place, and the module wrote that place's contents. So the MAC of KVBLK_RECF_SHORT_CRC, which
 * covers nothing else, proves as much as the former one of all bytes before it. Changes of the
 * media itself are not detected, because the media hold the secret in the superblock.
 *
 * MACs are compared with ==, because timing reveals nothing: the tag is one word, a guess costs a
 * put, and the attacker never learns whether the module read the forgery.
 */
#include <linux/build_bug.h>
#include <linux/crc32c.h>
#include <linux/errno.h>
#include <linux/minmax.h>
#include <linux/siphash.h>
#include <linux/stddef.h>
#include <linux/string.h>
#include <linux/types.h>
#include <asm/byteorder.h>

#include <linux/kvblk.h>

#include "format/record.h"

static_assert(sizeof(struct kvblk_d_tenant) == 64);
static_assert(sizeof(struct kvblk_d_super) == KVBLK_SB_BYTES);
static_assert(sizeof(struct kvblk_d_member) == 56);
static_assert(sizeof(struct kvblk_d_place) == KVBLK_SB_PLACE_PARTS * sizeof(struct kvblk_d_tenant));
static_assert(offsetof(struct kvblk_d_super, tenants) == KVBLK_UNIT);
static_assert(sizeof(struct kvblk_d_segment) == 32);
static_assert(sizeof(struct kvblk_d_table) == KVBLK_UNIT);
static_assert(sizeof(struct kvblk_d_record) == KVBLK_HDR_KEY);
static_assert(offsetof(struct kvblk_d_record, mac) == 112);
static_assert(KVBLK_HDR_KEY + KVBLK_KEY_MAX == KVBLK_HDR_CRCS);
static_assert(sizeof(struct kvblk_d_entry) == 64);
static_assert(sizeof(struct kvblk_d_summary) == KVBLK_UNIT);
static_assert(offsetof(struct kvblk_d_summary, mac) == 48);

static const u8 zeroes[16];

/* Return the CRC32C of @size bytes, with those from @hole to @end (at most 16) as zeroes. */
static u32 crc_with_hole(const void *buf, size_t size, size_t hole, size_t end)
{
	u32 crc = crc32c(KVBLK_CRC_INIT, buf, hole);

	crc = crc32c(crc, zeroes, end - hole);
	return ~crc32c(crc, buf + end, size - end);
}

/* CRC32C of @size bytes of a structure, with its fields from crc to @last as zeroes. */
#define crc_of(ptr, size, last)							\
	crc_with_hole(ptr, size, offsetof(typeof(*(ptr)), crc),			\
		      offsetofend(typeof(*(ptr)), last))

/* MAC of a header or summary page: of all bytes before it, the crc included. */
#define mac_of(ptr, secret)	siphash(ptr, offsetof(typeof(*(ptr)), mac), &(secret)->mac)

static bool header_short(const struct kvblk_d_record *hdr)
{
	return hdr->flags & cpu_to_le32(KVBLK_RECF_SHORT_CRC);
}

static bool header_encrypted(const struct kvblk_d_record *hdr)
{
	return hdr->integrity == KVBLK_INTEGRITY_AES_GCM;
}

/* Return the CRC32C of the bytes in use: fields, key and chunk checksums; lengths in range. */
static __always_inline u32 header_crc_short(const struct kvblk_d_record *hdr)
{
	u32 crc = crc32c(KVBLK_CRC_INIT, hdr, offsetof(struct kvblk_d_record, crc));

	crc = crc32c(crc, (const void *)hdr + KVBLK_HDR_KEY, le16_to_cpu(hdr->key_len));
	if (unlikely(header_encrypted(hdr)))
		crc = crc32c(crc, &hdr->activation, sizeof(hdr->activation));
	return ~crc32c(crc, (const void *)hdr + KVBLK_HDR_CRCS,
		       kvblk_proof_bytes(header_encrypted(hdr), le32_to_cpu(hdr->length)));
}

static u32 header_crc(const struct kvblk_d_record *hdr, size_t size)
{
	return header_short(hdr) ? header_crc_short(hdr) : crc_of(hdr, size, mac);
}

static u64 header_mac(const struct kvblk_d_record *hdr, const struct kvblk_secret *secret)
{
	if (!header_short(hdr))
		return mac_of(hdr, secret);
	return siphash_4u64(le64_to_cpu(hdr->incarnation), le64_to_cpu(hdr->generation),
			    (u64)le32_to_cpu(hdr->unit) << 32 | le32_to_cpu(hdr->segment),
			    le32_to_cpu(hdr->crc), &secret->mac);
}

/* Set place, checksum and MAC of a header whose other fields are set. */
static __always_inline void header_seal(struct kvblk_d_record *hdr, size_t size,
					const struct kvblk_place *place,
					const struct kvblk_secret *secret)
{
	hdr->version = cpu_to_le16(KVBLK_FORMAT_VERSION);
	hdr->header_units = size >> KVBLK_UNIT_SHIFT;
	hdr->incarnation = cpu_to_le64(place->incarnation);
	hdr->segment = cpu_to_le32(place->segment);
	hdr->unit = cpu_to_le32(place->unit);
	hdr->generation = cpu_to_le64(place->generation);
	hdr->crc = cpu_to_le32(header_crc(hdr, size));
	hdr->mac = cpu_to_le64(header_mac(hdr, secret));
}

void kvblk_record_encode(void *buf, const struct kvblk_rec *rec, const struct kvblk_place *place,
			 const struct kvblk_secret *secret, bool short_crc)
{
	bool encrypted = kvblk_rec_encrypted(rec);
	size_t size = kvblk_header_bytes(encrypted, rec->length);
	size_t end = KVBLK_HDR_CRCS + kvblk_proof_bytes(encrypted, rec->length);
	struct kvblk_d_record *hdr = buf;
	u8 *key = buf + KVBLK_HDR_KEY;

	/* the key of a reinserted record comes from this very buffer */
	memmove(key, rec->key, rec->key_len);
	memset(key + rec->key_len, 0, KVBLK_KEY_MAX - rec->key_len);
	memset(buf + end, 0, size - end);
	memset(hdr, 0, sizeof(*hdr));

	hdr->magic = cpu_to_le64(KVBLK_RECORD_MAGIC);
	hdr->integrity = rec->integrity;
	hdr->chunk_shift = KVBLK_CHUNK_SHIFT;
	hdr->priority = rec->priority;
	hdr->tenant = cpu_to_le16(rec->tenant);
	hdr->seq = cpu_to_le64(rec->seq);
	hdr->flags = cpu_to_le32((rec->durable ? KVBLK_RECF_DURABLE : 0) |
				 (short_crc ? KVBLK_RECF_SHORT_CRC : 0));
	hdr->length = cpu_to_le32(rec->length);
	hdr->layout_tag = cpu_to_le64(rec->layout_tag);
	hdr->caller_tag = cpu_to_le64(rec->caller_tag);
	hdr->id_hi = cpu_to_le64(rec->id.hi);
	hdr->id_lo = cpu_to_le64(rec->id.lo);
	hdr->parent = cpu_to_le64(rec->parent);
	hdr->expiry = cpu_to_le32(rec->expiry);
	hdr->key_len = cpu_to_le16(rec->key_len);
	hdr->key_epoch = cpu_to_le16(encrypted ? rec->key_epoch : 0);
	hdr->activation = cpu_to_le64(encrypted ? rec->activation : 0);
	header_seal(hdr, size, place, secret);
}

void kvblk_aad_fill(struct kvblk_d_aad *aad, const struct kvblk_rec *rec)
{
	*aad = (struct kvblk_d_aad) {
		.id_hi = cpu_to_le64(rec->id.hi),
		.id_lo = cpu_to_le64(rec->id.lo),
		.layout_tag = cpu_to_le64(rec->layout_tag),
		.caller_tag = cpu_to_le64(rec->caller_tag),
		.parent = cpu_to_le64(rec->parent),
		.length = cpu_to_le32(rec->length),
		.expiry = cpu_to_le32(rec->expiry),
		.tenant = cpu_to_le16(rec->tenant),
		.key_epoch = cpu_to_le16(rec->key_epoch),
	};
}

void kvblk_filler_encode(void *buf, u32 units, const struct kvblk_place *place,
			 const struct kvblk_secret *secret)
{
	struct kvblk_d_record *hdr = buf;

	memset(buf, 0, KVBLK_UNIT);
	hdr->magic = cpu_to_le64(KVBLK_FILLER_MAGIC);
	hdr->chunk_shift = KVBLK_CHUNK_SHIFT;
	hdr->length = cpu_to_le32(units);
	header_seal(hdr, KVBLK_UNIT, place, secret);
}

static bool value_in_range(u32 length, u16 tenant, u8 priority)
{
	return length && length <= KVBLK_VALUE_MAX && tenant < KVBLK_TENANT_IDS &&
	       priority <= KVBLK_PRIORITY_MAX;
}

/* Return whether the bytes in use, by the header's lengths, lie within the header. */
static bool header_lengths_valid(const struct kvblk_d_record *hdr)
{
	u16 key_len = le16_to_cpu(hdr->key_len);
	u32 length = le32_to_cpu(hdr->length);

	return key_len && key_len <= KVBLK_KEY_MAX && length && length <= KVBLK_VALUE_MAX &&
	       hdr->header_units == kvblk_header_units(header_encrypted(hdr), length);
}

static enum kvblk_decoded filler_decode(const struct kvblk_d_record *hdr,
					struct kvblk_rec *rec)
{
	u32 units = le32_to_cpu(hdr->length);

	if (hdr->header_units != 1 || hdr->flags || !units || units > KVBLK_SEGMENT_UNITS_MAX)
		return KVBLK_DEC_NONE;

	*rec = (struct kvblk_rec) { .length = units };
	return KVBLK_DEC_FILLER;
}

/* Return whether the record's fields are in range, other than those of header_placed(). */
static bool record_in_range(const struct kvblk_d_record *hdr)
{
	return le16_to_cpu(hdr->tenant) < KVBLK_TENANT_IDS &&
	       hdr->priority <= KVBLK_PRIORITY_MAX && hdr->integrity < KVBLK_INTEGRITIES;
}

/* Return whether the header is valid at @place, and for this version. */
static __always_inline bool header_placed(const struct kvblk_d_record *hdr,
					  const struct kvblk_place *place)
{
	return le64_to_cpu(hdr->incarnation) == place->incarnation &&
	       le64_to_cpu(hdr->generation) == place->generation &&
	       le32_to_cpu(hdr->segment) == place->segment &&
	       le32_to_cpu(hdr->unit) == place->unit &&
	       /* unknown values change the meaning of the payload (encrypted, without checksums) */
	       le16_to_cpu(hdr->version) == KVBLK_FORMAT_VERSION &&
	       !(le32_to_cpu(hdr->flags) & ~KVBLK_RECF_ALL) && !hdr->key_epoch &&
	       !hdr->reserved && hdr->chunk_shift == KVBLK_CHUNK_SHIFT;
}

bool kvblk_record_named(const struct kvblk_d_record *hdr, struct kvblk_place place,
			struct kvblk_id id, bool encrypted, u32 length)
{
	u32 crc;

	if (le64_to_cpu(hdr->magic) != KVBLK_RECORD_MAGIC ||
	    le32_to_cpu(hdr->length) != length || header_encrypted(hdr) != encrypted ||
	    !header_lengths_valid(hdr))
		return false;

	crc = likely(header_short(hdr)) ? header_crc_short(hdr) :
					  crc_of(hdr, kvblk_header_bytes(encrypted, length), mac);
	return le32_to_cpu(hdr->crc) == crc && header_placed(hdr, &place) &&
	       le64_to_cpu(hdr->id_hi) == id.hi && le64_to_cpu(hdr->id_lo) == id.lo &&
	       record_in_range(hdr);
}

enum kvblk_decoded kvblk_record_decode(const void *buf, size_t size,
				       const struct kvblk_place *place,
				       const struct kvblk_secret *secret, struct kvblk_rec *rec)
{
	const struct kvblk_d_record *hdr = buf;
	size_t header_size;
	u64 magic;

	if (size < KVBLK_UNIT)
		return KVBLK_DEC_NONE;

	magic = le64_to_cpu(hdr->magic);
	header_size = (size_t)hdr->header_units * KVBLK_UNIT;
	if ((magic != KVBLK_RECORD_MAGIC && magic != KVBLK_FILLER_MAGIC) ||
	    !header_size ||
	    hdr->header_units > kvblk_header_units(header_encrypted(hdr), KVBLK_VALUE_MAX))
		return KVBLK_DEC_NONE;
	if (header_size > size)
		return magic == KVBLK_RECORD_MAGIC ? KVBLK_DEC_MORE : KVBLK_DEC_NONE;

	if (header_short(hdr) && !header_lengths_valid(hdr))
		return KVBLK_DEC_NONE;
	if (le32_to_cpu(hdr->crc) != header_crc(hdr, header_size) ||
	    le64_to_cpu(hdr->mac) != header_mac(hdr, secret) || !header_placed(hdr, place))
		return KVBLK_DEC_NONE;

	if (magic == KVBLK_FILLER_MAGIC)
		return filler_decode(hdr, rec);
	if (!header_lengths_valid(hdr) || !record_in_range(hdr))
		return KVBLK_DEC_NONE;
	*rec = kvblk_record_unpack(hdr);
	return KVBLK_DEC_RECORD;
}

void kvblk_summary_encode(struct kvblk_d_summary *buf, u32 page,
			  const struct kvblk_sum *sum, const struct kvblk_place *place,
			  const struct kvblk_secret *secret)
{
	memset(buf, 0, offsetof(struct kvblk_d_summary, entries));
	buf->magic = cpu_to_le64(KVBLK_SUMMARY_MAGIC);
	buf->incarnation = cpu_to_le64(place->incarnation);
	buf->generation = cpu_to_le64(place->generation);
	buf->segment = cpu_to_le32(place->segment);
	buf->page = cpu_to_le32(page);
	buf->nr_records = cpu_to_le32(sum->nr_records);
	buf->sealed = cpu_to_le32(sum->sealed);
	buf->crc = cpu_to_le32(crc_of(buf, sizeof(*buf), mac));
	buf->mac = cpu_to_le64(mac_of(buf, secret));
}

bool kvblk_summary_decode(const struct kvblk_d_summary *buf, u32 page,
			  const struct kvblk_place *place, const struct kvblk_secret *secret,
			  struct kvblk_sum *sum)
{
	u32 nr_records = le32_to_cpu(buf->nr_records), sealed = le32_to_cpu(buf->sealed);

	if (le64_to_cpu(buf->magic) != KVBLK_SUMMARY_MAGIC ||
	    le32_to_cpu(buf->crc) != crc_of(buf, sizeof(*buf), mac) ||
	    le64_to_cpu(buf->mac) != mac_of(buf, secret))
		return false;

	if (le64_to_cpu(buf->incarnation) != place->incarnation ||
	    le64_to_cpu(buf->generation) != place->generation ||
	    le32_to_cpu(buf->segment) != place->segment ||
	    le32_to_cpu(buf->page) != page)
		return false;

	if (nr_records > KVBLK_SEGMENT_RECORDS_MAX || sealed > 1 || buf->reserved)
		return false;

	sum->nr_records = nr_records;
	sum->sealed = sealed;
	return true;
}

bool kvblk_entry_decode(const struct kvblk_d_entry *entry, u32 segment_units,
			struct kvblk_rec *rec, u32 *unit)
{
	u32 at = le32_to_cpu(entry->unit);
	u32 length = le32_to_cpu(entry->length);
	u16 tenant = le16_to_cpu(entry->tenant);
	bool encrypted = entry->flags & KVBLK_ENTF_ENCRYPTED;

	if ((entry->flags & ~KVBLK_ENTF_ENCRYPTED) != KVBLK_ENTF_VALID || entry->reserved ||
	    !value_in_range(length, tenant, entry->priority) ||
	    (u64)at + kvblk_record_units(encrypted, length, 1) > segment_units)
		return false;

	*rec = (struct kvblk_rec) {
		.id.hi = le64_to_cpu(entry->id_hi),
		.id.lo = le64_to_cpu(entry->id_lo),
		.seq = le64_to_cpu(entry->seq),
		.integrity = encrypted ? KVBLK_INTEGRITY_AES_GCM : KVBLK_INTEGRITY_NONE,
		.caller_tag = le64_to_cpu(entry->caller_tag),
		.parent = le64_to_cpu(entry->parent),
		.length = length,
		.expiry = le32_to_cpu(entry->expiry),
		.tenant = tenant,
		.priority = entry->priority,
	};
	*unit = at;
	return true;
}

void kvblk_table_seal(struct kvblk_d_table *table)
{
	table->crc = cpu_to_le32(crc_of(table, sizeof(*table), crc));
}

/* All orders of opening are valid. */
bool kvblk_table_within(const struct kvblk_d_table *table, u64 incarnation, u32 page, u64 most)
{
	const struct kvblk_d_segment *seg = table->segments;
	const struct kvblk_d_segment *end = seg + KVBLK_TABLE_ENTRIES;

	if (le32_to_cpu(table->magic) != KVBLK_TABLE_MAGIC ||
	    le32_to_cpu(table->crc) != crc_of(table, sizeof(*table), crc) ||
	    le64_to_cpu(table->incarnation) != incarnation ||
	    le32_to_cpu(table->page) != page || le64_to_cpu(table->seq) > most)
		return false;

	for (; seg < end; seg++)
		if (seg->state > KVBLK_SEG_SEALED || le64_to_cpu(seg->generation) > most ||
		    le64_to_cpu(seg->opened) > KVBLK_COUNT_MAX ||
		    le16_to_cpu(seg->flags) & ~KVBLK_SEGF_ALL ||
		    le32_to_cpu(seg->nr_records) > KVBLK_SEGMENT_RECORDS_MAX || seg->reserved)
			return false;
	return true;
}

void kvblk_change_page_seal(struct kvblk_d_change_page *changes)
{
	changes->crc = cpu_to_le32(crc_of(changes, sizeof(*changes), crc));
}

bool kvblk_change_page_valid(const struct kvblk_d_change_page *changes, u64 incarnation)
{
	return le32_to_cpu(changes->magic) == KVBLK_CHANGES_MAGIC &&
	       le32_to_cpu(changes->crc) == crc_of(changes, sizeof(*changes), crc) &&
	       le64_to_cpu(changes->incarnation) == incarnation;
}

void kvblk_super_seal(struct kvblk_d_super *sb)
{
	sb->crc = cpu_to_le32(crc_of(sb, sizeof(*sb), crc));
}

static bool is_alnum(u8 c)
{
	return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

static bool is_printable(u8 c)
{
	return c >= ' ' && c <= '~';
}

bool kvblk_text_printable(const u8 *text)
{
	for (; *text; text++)
		if (!is_printable(*text))
			return false;
	return true;
}

/* Check that a text ends, and is printable ASCII, because texts are shown in terminals. */
static bool text_valid(const u8 *text, size_t size)
{
	return memchr(text, '\0', size) && kvblk_text_printable(text);
}

void kvblk_text_clean(u8 *text)
{
	for (; *text; text++)
		if (!is_printable(*text))
			*text = '?';
}

bool kvblk_name_valid(const u8 *name, size_t size)
{
	if (!is_alnum(name[0]) || !memchr(name, '\0', size))
		return false;
	for (; *name; name++)
		if (!is_alnum(*name) && *name != '_' && *name != '-' && *name != '.')
			return false;
	return true;
}

void kvblk_place_get(const struct kvblk_d_place *place, char text[KVBLK_PLACE_MAX])
{
	int i;

	for (i = 0; i < KVBLK_SB_PLACE_PARTS; i++)
		memcpy(text + i * KVBLK_SB_PLACE_PART, place->parts[i].text,
		       KVBLK_SB_PLACE_PART);
	text[KVBLK_PLACE_MAX - 1] = '\0';
}

void kvblk_place_set(struct kvblk_d_place *place, const char *text)
{
	size_t len = strnlen(text, KVBLK_PLACE_MAX - 1), part;
	int i;

	memset(place, 0, sizeof(*place));
	for (i = 0; i < KVBLK_SB_PLACE_PARTS; i++, text += part, len -= part) {
		part = min_t(size_t, len, KVBLK_SB_PLACE_PART);
		memcpy(place->parts[i].text, text, part);
	}
}

static bool place_valid(const struct kvblk_d_place *place)
{
	u8 text[KVBLK_PLACE_MAX];
	int i;

	kvblk_place_get(place, (char *)text);
	for (i = 0; i < KVBLK_SB_PLACE_PARTS; i++)
		if (place->parts[i].zero)
			return false;
	return !place->parts[KVBLK_SB_PLACE_PARTS - 1].text[KVBLK_SB_PLACE_PART - 1] &&
	       kvblk_text_printable(text);
}

static bool power_of_two_within(u32 n, u32 min, u32 max)
{
	return n >= min && n <= max && !(n & (n - 1));
}

static bool geometry_valid(const struct kvblk_d_super *sb, u64 dev_bytes)
{
	u64 size = le64_to_cpu(sb->size);
	u64 data_start = le64_to_cpu(sb->data_start);
	u32 segment_units = le32_to_cpu(sb->segment_units);
	u32 nr_segments = le32_to_cpu(sb->nr_segments);
	u64 table_end, data_bytes;

	if (!power_of_two_within(segment_units, KVBLK_SEGMENT_UNITS_MIN, KVBLK_SEGMENT_UNITS_MAX) ||
	    !power_of_two_within(le32_to_cpu(sb->record_align), KVBLK_RECORD_ALIGN_MIN,
				 KVBLK_RECORD_ALIGN_MAX) || !nr_segments)
		return false;

	/* no overflow: at most 2^32 segments of 2^30 bytes; a change page follows in a pod */
	table_end = KVBLK_TABLE_OFFSET + kvblk_super_in_pod(sb) * KVBLK_UNIT +
		    2ull * KVBLK_UNIT * ((nr_segments - 1) / KVBLK_TABLE_ENTRIES + 1);
	data_bytes = (u64)nr_segments * segment_units << KVBLK_UNIT_SHIFT;

	return data_start >= table_end && !(data_start & (KVBLK_DATA_ALIGN - 1)) &&
	       size <= dev_bytes && data_start <= size && data_bytes <= size - data_start;
}

bool kvblk_tenant_name_reserved(const char *name)
{
	return !strcmp(name, "default") || !strcmp(name, "nvme-kv") ||
	       !strcmp(name, "changes") || !strcmp(name, "peers");
}

/* Check the fields of a slot in use, all but the uniqueness of id and name. */
static bool tenant_valid(const struct kvblk_d_super *sb, const struct kvblk_d_tenant *tenant)
{
	const char *name = (const char *)tenant->name;
	bool encrypted = le16_to_cpu(tenant->flags) & KVBLK_TENANTF_ENCRYPTED;
	u16 id = le16_to_cpu(tenant->id);

	if ((le16_to_cpu(tenant->flags) & ~KVBLK_TENANTF_ENCRYPTED) != KVBLK_TENANTF_USED ||
	    !kvblk_name_valid(tenant->name, sizeof(tenant->name)) ||
	    le16_to_cpu(tenant->mode) > 0777 ||
	    !~le32_to_cpu(tenant->uid) || !~le32_to_cpu(tenant->gid) ||
	    tenant->key_epoch || (!encrypted && tenant->key_check) ||
	    (encrypted && !(le32_to_cpu(sb->incompat) & KVBLK_SB_IN_ENCRYPTED)))
		return false;
	if (tenant == sb->tenants)
		return !id && !strcmp(name, "default") && !encrypted;
	return id && id < le32_to_cpu(sb->next_tenant) && tenant->mode &&
	       !kvblk_tenant_name_reserved(name) &&
	       le32_to_cpu(sb->incompat) & KVBLK_SB_IN_TENANTS;
}

/* Check that tenants in use have valid fields, and each its own id and name. */
static bool tenants_valid(const struct kvblk_d_super *sb)
{
	const struct kvblk_d_tenant *tenant = sb->tenants, *other;

	if (le32_to_cpu(sb->next_tenant) > KVBLK_NVME_TENANT)
		return false;
	for (; tenant < sb->tenants + KVBLK_SB_TENANTS; tenant++) {
		if (!tenant->flags)
			continue;
		if (!tenant_valid(sb, tenant))
			return false;
		for (other = sb->tenants; other < tenant; other++)
			if (other->flags &&
			    (other->id == tenant->id || !strcmp((const char *)other->name,
								(const char *)tenant->name)))
				return false;
	}
	return true;
}

/* Check that each member is listed once, this one included. */
static bool members_valid(const struct kvblk_d_super *sb)
{
	const struct kvblk_d_member *member = sb->members, *other;
	u32 nr = le32_to_cpu(sb->nr_members);
	bool own = false;

	if (!nr || nr > KVBLK_SB_MEMBERS || sb->reserved1)
		return false;
	for (; member < sb->members + nr; member++) {
		if (!memcmp(member->uuid, zeroes, sizeof(member->uuid)) ||
		    !member->name[0] ||
		    !text_valid(member->name, sizeof(member->name)) ||
		    !place_valid(&sb->places[member - sb->members]))
			return false;
		for (other = sb->members; other < member; other++)
			if (!memcmp(other->uuid, member->uuid, sizeof(member->uuid)))
				return false;
		own |= !memcmp(member->uuid, sb->member_uuid, sizeof(member->uuid)) &&
		       member->incarnation == sb->incarnation;
	}
	return own;
}

static bool pod_valid(const struct kvblk_d_super *sb)
{
	u32 grace = le32_to_cpu(sb->reuse_grace);

	return !kvblk_super_in_pod(sb) ||
	       (memcmp(sb->pod_uuid, zeroes, sizeof(sb->pod_uuid)) &&
		kvblk_name_valid(sb->pod_name, sizeof(sb->pod_name)) &&
		memcmp(sb->node, zeroes, sizeof(sb->node)) &&
		grace >= KVBLK_REUSE_GRACE_MIN && grace <= KVBLK_REUSE_GRACE_MAX &&
		le32_to_cpu(sb->held_grace) <= KVBLK_REUSE_GRACE_MAX);
}

int kvblk_super_within(const struct kvblk_d_super *sb, u64 dev_bytes, u64 most)
{
	u64 epoch = le64_to_cpu(sb->epoch), slots = le64_to_cpu(sb->index_slots);
	u16 state = le16_to_cpu(sb->state);

	if (le64_to_cpu(sb->magic) != KVBLK_SB_MAGIC)
		return -ENODATA;
	if (le32_to_cpu(sb->crc) != crc_of(sb, sizeof(*sb), crc))
		return -EBADMSG;
	if (le16_to_cpu(sb->version) != KVBLK_FORMAT_VERSION ||
	    le32_to_cpu(sb->incompat) & ~KVBLK_SB_IN_ALL ||
	    le32_to_cpu(sb->pool_flags) & ~KVBLK_SBF_ALL)
		return -EPROTONOSUPPORT;

	if (state < KVBLK_SB_CLEAN || state > KVBLK_SB_ACTIVATING ||
	    le64_to_cpu(sb->seq) > most || le64_to_cpu(sb->list_seq) > most ||
	    le64_to_cpu(sb->time) > most ||
	    !kvblk_name_valid(sb->pool_name, sizeof(sb->pool_name)) ||
	    !text_valid(sb->owner, sizeof(sb->owner)) ||
	    !geometry_valid(sb, dev_bytes) || !members_valid(sb) || !tenants_valid(sb) ||
	    !pod_valid(sb) ||
	    (slots && (slots < KVBLK_SLOTS_MIN || slots > KVBLK_SLOTS_MAX)))
		return -ERANGE;

	/* a seq begins with the epoch, which must not overflow */
	if (!epoch || epoch > KVBLK_EPOCH_MAX || le64_to_cpu(sb->prev_epoch) > epoch)
		return -ERANGE;
	return le32_to_cpu(sb->ro_compat) & ~KVBLK_SB_RO_ALL ? -EROFS : 0;
}
