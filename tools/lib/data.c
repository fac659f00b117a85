// SPDX-License-Identifier: MIT
/* The data path: one ioctl per call on an open device node. */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib.h"

#define DEVICE_DIR	"/dev/kvblk"

_Static_assert(sizeof(struct kvblk_op) == 80, "struct kvblk_op is ABI");
_Static_assert(sizeof(struct kvblk_result) == 40, "struct kvblk_result is ABI");

static int node_path(const char *pool, char *path, size_t len)
{
	int n;

	if (strchr(pool, '/'))
		n = snprintf(path, len, "%s", pool);
	else
		n = snprintf(path, len, DEVICE_DIR "/%s/default", pool);
	if (n < 0 || (size_t)n >= len)
		return -ENAMETOOLONG;
	return 0;
}

static int command(const struct kvblk *kv, unsigned long request, void *arg)
{
	if (ioctl(kv->fd, request, arg) < 0)
		return -errno;
	return 0;
}

/* Make a handle of @fd. Leaves the descriptor open after an error. */
static int handle_create(int fd, struct kvblk **handle)
{
	struct kvblk_info info;
	struct stat st;
	struct kvblk *kv;
	int err;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISCHR(st.st_mode))
		return -ENOTTY;
	kv = calloc(1, sizeof(*kv));
	if (!kv)
		return -ENOMEM;
	kv->fd = fd;
	err = kvblk_get_info(kv, &info, sizeof(info));
	if (err) {
		free(kv);
		return err;
	}
	pthread_mutex_init(&kv->lock, NULL);
	*handle = kv;
	return 0;
}

int kvblk_open(const char *pool, unsigned int flags, struct kvblk **handle)
{
	char path[256];
	int err, fd;

	if (!pool || !*pool || !handle || flags & ~(unsigned int)KVBLK_OPEN_RDONLY)
		return -EINVAL;
	err = node_path(pool, path, sizeof(path));
	if (err)
		return err;
	/* O_NONBLOCK, or else open() of a FIFO would block */
	fd = open(path, (flags & KVBLK_OPEN_RDONLY ? O_RDONLY : O_RDWR) | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		/* -ENODEV, because -ENOENT means a missing block in other calls */
		return errno == ENOENT || errno == ENOTDIR || errno == ENXIO ? -ENODEV : -errno;
	err = handle_create(fd, handle);
	if (err)
		close(fd);
	return err;
}

int kvblk_open_fd(int fd, struct kvblk **handle)
{
	return handle ? handle_create(fd, handle) : -EINVAL;
}

void kvblk_close(struct kvblk *kv)
{
	if (!kv)
		return;
	close(kv->fd);
	pthread_mutex_destroy(&kv->lock);
	free(kv);
}

int kvblk_fd(const struct kvblk *kv)
{
	return kv->fd;
}

int kvblk_get_info(struct kvblk *kv, struct kvblk_info *info, size_t size)
{
	if (size < KVBLK_INFO_SIZE_VER0 || size > KVBLK_STRUCT_MAX)
		return -EINVAL;
	memset(info, 0, size);
	info->size = (uint32_t)size;
	return command(kv, KVBLK_IOC_INFO, info);
}

int kvblk_prep_piece(struct kvblk_piece *piece, const struct kvblk_mem *mem, uintptr_t at,
		     size_t len)
{
	if (!len || len > UINT32_MAX)
		return -EINVAL;
	if (mem)
		return kvblk_mem_piece(mem, at, len, piece);
	piece_user(piece, (const void *)at, len);
	return 0;
}

int kvblk_batch(struct kvblk *kv, const struct kvblk_op *ops, unsigned int nr_ops,
		struct kvblk_result *results, size_t result_size, unsigned int flags)
{
	struct kvblk_submit_arg submit = {
		.size = sizeof(submit),
		.flags = flags,
		.nr_ops = nr_ops,
		.op_size = sizeof(*ops),
		.result_size = (uint32_t)result_size,
		.ops = (uintptr_t)ops,
		.results = (uintptr_t)results,
	};

	return command(kv, KVBLK_IOC_SUBMIT, &submit);
}

/* Fail the gets that wrote to memory of a GPU, whose data the GPU may not see. */
static void flush_results(struct kvblk *kv, const struct kvblk_op *ops, unsigned int nr_ops,
			  struct kvblk_result *results, size_t result_size)
{
	bool flushed = false;
	int err = 0;

	for (unsigned int i = 0; i < nr_ops; i++) {
		struct kvblk_result *result = result_at(results, result_size, i);

		if (ops[i].opcode != KVBLK_OP_GET || result->res < 0)
			continue;
		if (!flushed)
			err = kvblk_flush_gpus(kv);
		flushed = true;
		if (!err)
			return;
		result->res = err;
	}
}

/* Run a batch with staged pieces, whose results are those of this library's version. */
static int submit_staged(struct kvblk *kv, const struct kvblk_op *ops, unsigned int nr_ops,
			 struct kvblk_result *results, size_t result_size, unsigned int flags)
{
	struct kvblk_result *own = results;

	if (result_size != sizeof(*own)) {
		own = malloc(nr_ops * sizeof(*own));
		if (!own)
			return -ENOMEM;
	}
	kvblk_stage_submit(kv, ops, nr_ops, own, flags);
	if (own == results)
		return 0;
	for (unsigned int i = 0; i < nr_ops; i++)
		element_copy(result_at(results, result_size, i), result_size, &own[i],
			     sizeof(*own));
	free(own);
	return 0;
}

int kvblk_submit_sized(struct kvblk *kv, const struct kvblk_op *ops, unsigned int nr_ops,
		       struct kvblk_result *results, size_t result_size, unsigned int flags)
{
	int err;

	if (nr_ops > KVBLK_OPS_MAX || result_size < KVBLK_RESULT_SIZE_VER0 ||
	    result_size > KVBLK_STRUCT_MAX || result_size % sizeof(uint64_t))
		return -EINVAL;
	if (kvblk_is_staged(ops, nr_ops))
		err = submit_staged(kv, ops, nr_ops, results, result_size, flags);
	else
		err = kvblk_batch(kv, ops, nr_ops, results, result_size, flags);
	if (!err && atomic_load(&kv->nr_gpus))
		flush_results(kv, ops, nr_ops, results, result_size);
	return err;
}

/* Describe the memory of one block, which is in @mem if that is not NULL. */
static int block_piece(struct kvblk_piece *piece, const struct kvblk_mem *mem, const void *data,
		       size_t len)
{
	uintptr_t at = (uintptr_t)data;

	return kvblk_prep_piece(piece, mem, mem ? at - (uintptr_t)kvblk_mem_addr(mem) : at, len);
}

/* Run one operation and wait. Returns its result, or an errno of the whole ioctl. */
static int submit_one(struct kvblk *kv, const struct kvblk_op *op, struct kvblk_result *result)
{
	int err = kvblk_submit(kv, op, 1, result, 0);

	return err ? err : result->res;
}

int kvblk_put(struct kvblk *kv, const void *key, size_t key_len, const void *data, size_t len,
	      const struct kvblk_put_options *options)
{
	struct kvblk_put_options o;
	struct kvblk_result result;
	struct kvblk_op_ext ext;
	struct kvblk_piece piece;
	struct kvblk_op op;
	int res = options_copy(&o, sizeof(o), options,
			       END_OF(struct kvblk_put_options, caller_tag));

	if (!res && (o.priority > KVBLK_PRIORITY_MAX || o.parent_len > KVBLK_KEY_MAX))
		res = -EINVAL;
	if (!res)
		res = block_piece(&piece, o.mem, data, len);
	if (res)
		return res;
	kvblk_prep_put(&op, key, key_len, &piece, 1);
	op.flags = o.flags;
	op.ttl_s = o.ttl_s;
	op.priority = (uint8_t)o.priority;
	op.deadline_ns = o.deadline_ns;
	if (o.parent || o.parent_len || o.layout_tag || o.caller_tag) {
		kvblk_prep_ext(&op, &ext);
		ext.parent = (uintptr_t)o.parent;
		ext.parent_len = (uint32_t)o.parent_len;
		ext.layout_tag = o.layout_tag;
		ext.caller_tag = o.caller_tag;
	}
	res = submit_one(kv, &op, &result);
	return res < 0 ? res : 0;
}

int kvblk_get(struct kvblk *kv, const void *key, size_t key_len, void *buf, size_t *len,
	      const struct kvblk_get_options *options)
{
	struct kvblk_get_options o;
	struct kvblk_result result;
	struct kvblk_op_ext ext;
	struct kvblk_piece piece;
	struct kvblk_op op;
	uint32_t size;
	int res = options_copy(&o, sizeof(o), options,
			       END_OF(struct kvblk_get_options, layout_tag));

	if (!res && o.reserved)
		res = -EINVAL;
	if (!res && !*len) {
		res = kvblk_exists(kv, key, key_len, &size);
		if (!res) {
			*len = size;
			res = -EMSGSIZE;
		}
		return res;
	}
	if (!res)
		res = block_piece(&piece, o.mem, buf, *len);
	if (res)
		return res;
	kvblk_prep_get(&op, key, key_len, &piece, 1);
	op.flags = o.flags;
	op.offset = o.offset;
	op.deadline_ns = o.deadline_ns;
	if (o.flags & KVBLK_OPF_LAYOUT || o.layout_tag) {
		kvblk_prep_ext(&op, &ext);
		ext.layout_tag = o.layout_tag;
	}
	res = submit_one(kv, &op, &result);
	if (res >= 0)
		*len = (size_t)res;
	else if (res == -EMSGSIZE)
		*len = result.value_len;
	return res < 0 ? res : 0;
}

int kvblk_delete(struct kvblk *kv, const void *key, size_t key_len)
{
	struct kvblk_result result;
	struct kvblk_op op;

	kvblk_prep_delete(&op, key, key_len);
	return submit_one(kv, &op, &result);
}

int kvblk_exists(struct kvblk *kv, const void *key, size_t key_len, uint32_t *size)
{
	struct kvblk_lookup lookup = {
		.nr_keys = 1,
		.keys = (uintptr_t)key,
		.sizes = (uintptr_t)size,
	};
	int err;

	if (!key_len || key_len > KVBLK_KEY_MAX)
		return -EINVAL;
	lookup.key_stride = (uint32_t)key_len;
	err = kvblk_lookup_keys(kv, &lookup, sizeof(lookup));
	if (err)
		return err;
	return lookup.nr_present ? 0 : -ENOENT;
}

int kvblk_lookup_keys(struct kvblk *kv, struct kvblk_lookup *lookup, size_t size)
{
	if (size < KVBLK_LOOKUP_SIZE_VER0 || size > KVBLK_STRUCT_MAX)
		return -EINVAL;
	lookup->size = (uint32_t)size;
	return command(kv, KVBLK_IOC_LOOKUP, lookup);
}

int kvblk_lookup_prefix(struct kvblk *kv, const void *keys, size_t key_len,
			unsigned int nr_keys, unsigned int lease_ms, struct kvblk_prefix *prefix)
{
	struct kvblk_lookup lookup = {
		.flags = KVBLK_LOOKUP_PREFIX | (lease_ms ? KVBLK_LOOKUP_LEASE : 0),
		.nr_keys = nr_keys,
		.keys = (uintptr_t)keys,
		.lease_ms = lease_ms,
	};
	struct kvblk_prefix found = { 0 };
	int err;

	if (!key_len || key_len > KVBLK_KEY_MAX ||
	    prefix->size < END_OF(struct kvblk_prefix, lease_end_ns))
		return -EINVAL;
	lookup.key_stride = (uint32_t)key_len;
	err = kvblk_lookup_keys(kv, &lookup, sizeof(lookup));
	if (err)
		return err;
	found.nr_leading = lookup.nr_leading;
	found.nr_leased = lookup.nr_leased;
	found.lease = lookup.lease;
	found.lease_end_ns = lookup.lease_end_ns;
	/* a block behind the leased ones may be evicted before the caller fetches it */
	if (lease_ms && found.nr_leading > found.nr_leased)
		found.nr_leading = found.nr_leased;
	out_copy(prefix, &found, sizeof(found));
	return 0;
}

#define HINT_BATCH	64u	/* operations on the stack */

/* Hint at the keys of one batch. Returns 0, with the present ones added to @nr_present. */
static int hint_batch(struct kvblk *kv, const struct kvblk_op *ops, unsigned int nr,
		      unsigned int *nr_present)
{
	struct kvblk_result results[HINT_BATCH];
	int err = kvblk_submit(kv, ops, nr, results, 0);

	for (unsigned int i = 0; i < nr && !err; i++) {
		*nr_present += !results[i].res;
		if (results[i].res != -ENOENT)
			err = results[i].res;
	}
	return err;
}

int kvblk_hint_keys(struct kvblk *kv, const void *keys, const uint16_t *key_lens,
		    unsigned int nr_keys, const struct kvblk_hint *hint, unsigned int *nr_present)
{
	const unsigned char *key = keys;
	struct kvblk_op ops[HINT_BATCH];
	unsigned int nr = 0, present = 0;
	struct kvblk_hint own;
	int err = options_copy(&own, sizeof(own), hint, END_OF(struct kvblk_hint, retain_s));

	if (!err && (!hint || !nr_keys || nr_keys > KVBLK_LOOKUP_MAX ||
		     own.priority > KVBLK_PRIORITY_MAX))
		err = -EINVAL;
	for (unsigned int i = 0; i < nr_keys && !err; i++) {
		kvblk_prep_hint(&ops[nr], key, key_lens[i], own.flags);
		ops[nr].priority = (uint8_t)own.priority;
		ops[nr++].ttl_s = own.retain_s;
		key += key_lens[i];
		if (nr < HINT_BATCH && i + 1 < nr_keys)
			continue;
		err = hint_batch(kv, ops, nr, &present);
		nr = 0;
	}
	if (!err && nr_present)
		*nr_present = present;
	return err;
}

int kvblk_lease_release(struct kvblk *kv, uint64_t lease)
{
	struct kvblk_lease_release_arg release = {
		.size = sizeof(release),
		.lease = lease,
	};

	return lease ? command(kv, KVBLK_IOC_LEASE_RELEASE, &release) : 0;
}

int kvblk_region_register(struct kvblk *kv, void *addr, size_t len, uint32_t *region)
{
	struct kvblk_reg_buf_arg reg = {
		.size = sizeof(reg),
		.addr = (uintptr_t)addr,
		.length = len,
	};
	int err;

	/* retry: any signal interrupts the kernel while it sets up its MMU notifier */
	do
		err = command(kv, KVBLK_IOC_REG_BUF, &reg);
	while (err == -EINTR);
	if (!err)
		*region = reg.handle;
	return err;
}

int kvblk_region_unregister(struct kvblk *kv, uint32_t region)
{
	struct kvblk_unreg_buf_arg unreg = { .size = sizeof(unreg), .handle = region };

	return command(kv, KVBLK_IOC_UNREG_BUF, &unreg);
}

int kvblk_drain(struct kvblk *kv, uint64_t deadline_ns)
{
	struct kvblk_drain_arg drain = { .size = sizeof(drain), .deadline_ns = deadline_ns };

	return command(kv, KVBLK_IOC_DRAIN, &drain);
}

int kvblk_cancel(struct kvblk *kv, uint64_t cookie, unsigned int *nr_found)
{
	struct kvblk_cancel_arg cancel = {
		.size = sizeof(cancel),
		.cookie = cookie,
	};
	/* first, because operations move from the stages to the kernel */
	unsigned int nr_staged = kvblk_stage_cancel(kv, cookie);
	int err = command(kv, KVBLK_IOC_CANCEL, &cancel);

	if (nr_found)
		*nr_found = nr_staged + cancel.nr_found;
	return err == -ENOENT && nr_staged ? 0 : err;
}

#define STRING(x)	STRING_OF(x)
#define STRING_OF(x)	#x

const char *kvblk_version(void)
{
	return STRING(KVBLK_VERSION_MAJOR) "." STRING(KVBLK_VERSION_MINOR);
}
