// SPDX-License-Identifier: GPL-2.0
/* Identify data of the node for NVMe commands: a controller with a single key-value namespace. */
#include <linux/nvme.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/unaligned.h>

#include "nvme_kv/nvme_kv.h"

/* Base Specification 2.0; not in every <linux/nvme.h>. */
enum {
	CNS_NS_ACTIVE_LIST_CS	= 0x07,
	CNS_COMMAND_SETS	= 0x1c,
};

#define NS_READY		BIT(0)

/* Key Value Command Set Specification 1.0c, figures 39 and 40. Fields that stay 0 are unused. */
struct kv_format {
	__le16 key_max;
	__u8 unused2[2];
	__le32 value_max;
	__u8 unused8[8];
};

struct id_ns_kv {
	__le64 size;
	__u8 unused8[8];
	__le64 used;
	__u8 unused24[8];
	__le32 granularity;
	__u8 unused36[12];
	__u8 nguid[16];
	__u8 unused64[8];
	struct kv_format formats[16];
	__u8 unused328[3768];
};

static_assert(sizeof(struct id_ns_kv) == NVME_IDENTIFY_DATA_SIZE);

static u64 used_bytes(struct kvblk_pool *pool)
{
	struct kvblk_space space = kvblk_pool_space(pool);

	return space.bytes - min(space.bytes, space.free_bytes);
}

static void id_ctrl(struct kvblk_pool *pool, struct nvme_id_ctrl *id)
{
	char text[48];

	snprintf(text, sizeof(text), "%*phN", UUID_SIZE, &pool->uuid);
	memcpy_and_pad(id->sn, sizeof(id->sn), text, strlen(text), ' ');
	snprintf(text, sizeof(text), "kvblk %s", pool->name);
	memcpy_and_pad(id->mn, sizeof(id->mn), text, strlen(text), ' ');
	memcpy_and_pad(id->fr, sizeof(id->fr), "1", 1, ' ');
	id->cntrltype = NVME_CTRL_IO;
	id->ver = cpu_to_le32(NVME_VS(2, 0, 0));
	put_unaligned_le64(kvblk_pool_space(pool).bytes, id->tnvmcap);
	/* entries of 64 and of 16 bytes */
	id->sqes = 0x66;
	id->cqes = 0x44;
	id->nn = cpu_to_le32(KVBLK_NVME_NSID);
	id->mnan = cpu_to_le32(KVBLK_NVME_NSID);
	snprintf(id->subnqn, sizeof(id->subnqn), "nqn.2014-08.org.nvmexpress:uuid:%pUb",
		 &pool->uuid);
}

/* Describes a namespace of blocks, for tools that request it of each namespace. */
static void id_ns(struct kvblk_pool *pool, struct nvme_id_ns *id)
{
	u64 size = kvblk_pool_space(pool).bytes >> KVBLK_UNIT_SHIFT;

	id->nsze = cpu_to_le64(size);
	id->ncap = cpu_to_le64(size);
	id->nuse = cpu_to_le64(used_bytes(pool) >> KVBLK_UNIT_SHIFT);
	id->lbaf[0].ds = KVBLK_UNIT_SHIFT;
	memcpy(id->nguid, &pool->uuid, sizeof(id->nguid));
}

static void id_ns_kv(struct kvblk_pool *pool, struct id_ns_kv *id)
{
	id->size = cpu_to_le64(kvblk_pool_space(pool).bytes);
	id->used = cpu_to_le64(used_bytes(pool));
	id->granularity = cpu_to_le32(KVBLK_UNIT);
	memcpy(id->nguid, &pool->uuid, sizeof(id->nguid));
	id->formats[0].key_max = cpu_to_le16(KVBLK_NVME_KEY_MAX);
	id->formats[0].value_max = cpu_to_le32(kvblk_pool_value_max(pool, false));
}

static void *desc_add(void *at, u8 type, const void *value, u8 len)
{
	struct nvme_ns_id_desc *desc = at;

	desc->nidt = type;
	desc->nidl = len;
	memcpy(desc + 1, value, len);
	return at + sizeof(*desc) + len;
}

static void id_descs(struct kvblk_pool *pool, void *at)
{
	const u8 csi = KVBLK_NVME_CSI;

	at = desc_add(at, NVME_NIDT_UUID, &pool->uuid, NVME_NIDT_UUID_LEN);
	desc_add(at, NVME_NIDT_CSI, &csi, NVME_NIDT_CSI_LEN);
}

static int identify(struct kvblk_pool *pool, const struct nvme_uring_cmd *cmd, void *data)
{
	int ns = cmd->nsid == KVBLK_NVME_NSID ? 0 : NVME_SC_INVALID_NS;
	bool kv = cmd->cdw11 >> 24 == KVBLK_NVME_CSI;

	switch (cmd->cdw10 & 0xff) {
	case NVME_ID_CNS_CTRL:
		id_ctrl(pool, data);
		return 0;
	case NVME_ID_CNS_CS_CTRL:
		return kv ? 0 : NVME_SC_INVALID_FIELD;
	case NVME_ID_CNS_NS_ACTIVE_LIST:
		kv = true;
		fallthrough;
	case CNS_NS_ACTIVE_LIST_CS:
		/* the list has namespaces above nsid */
		if (kv && cmd->nsid < KVBLK_NVME_NSID)
			*(__le32 *)data = cpu_to_le32(KVBLK_NVME_NSID);
		return 0;
	case CNS_COMMAND_SETS:
		*(__le64 *)data = cpu_to_le64(BIT(KVBLK_NVME_CSI));
		return 0;
	case NVME_ID_CNS_NS:
		id_ns(pool, data);
		return ns;
	case NVME_ID_CNS_NS_DESC_LIST:
		id_descs(pool, data);
		return ns;
	case NVME_ID_CNS_CS_NS:
		id_ns_kv(pool, data);
		return ns || kv ? ns : NVME_SC_INVALID_FIELD;
	case NVME_ID_CNS_NS_CS_INDEP:
		((struct nvme_id_ns_cs_indep *)data)->nstat = NS_READY;
		return ns;
	default:
		return NVME_SC_INVALID_FIELD;
	}
}

int kvblk_nvme_admin(struct kvblk_file *file, const struct nvme_uring_cmd *cmd)
{
	void *data __free(kfree) = NULL;
	int status;

	if (cmd->flags)
		return -EINVAL;
	if (cmd->opcode != nvme_admin_identify)
		return NVME_SC_INVALID_OPCODE;
	if (cmd->metadata || cmd->metadata_len)
		return NVME_SC_INVALID_FIELD;
	if (cmd->data_len < NVME_IDENTIFY_DATA_SIZE)
		return NVME_SC_SGL_INVALID_DATA;
	if (kvblk_file_ended(file))
		return -ENODEV;
	data = kzalloc(NVME_IDENTIFY_DATA_SIZE, GFP_KERNEL);
	if (!data)
		return -ENOMEM;
	status = identify(file->pool, cmd, data);
	if (!status && copy_to_user(u64_to_user_ptr(cmd->addr), data, NVME_IDENTIFY_DATA_SIZE))
		return -EFAULT;
	return status;
}
