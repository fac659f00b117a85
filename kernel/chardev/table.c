// SPDX-License-Identifier: GPL-2.0
/* The operations, by opcode. */
#include <linux/array_size.h>
#include <linux/nospec.h>

#include "request.h"

static const struct kvblk_op_type *const op_types[] = {
	[KVBLK_OP_PUT] = &kvblk_op_put,
	[KVBLK_OP_GET] = &kvblk_op_get,
	[KVBLK_OP_DELETE] = &kvblk_op_delete,
	[KVBLK_OP_PREFETCH] = &kvblk_op_prefetch,
};

const struct kvblk_op_type *kvblk_op_type(u32 opcode)
{
	if (opcode >= ARRAY_SIZE(op_types))
		return NULL;
	return op_types[array_index_nospec(opcode, ARRAY_SIZE(op_types))];
}
