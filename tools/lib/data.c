// SPDX-License-Identifier: MIT
/*
 * The data path: one ioctl per call on an open device node, without allocations. A handle
 * holds no state but its descriptor, so many threads may use it at once.
 */
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

/* Constant after kvblk_open(). */
struct kvblk {
	int fd;
};

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

int kvblk_open(const char *pool, struct kvblk **handle)
{
	char path[256];
	struct kvblk_info info;
	struct stat st;
	struct kvblk *kv;
	int err;

	if (!pool || !*pool || !handle)
		return -EINVAL;
	err = node_path(pool, path, sizeof(path));
	if (err)
		return err;

	kv = malloc(sizeof(*kv));
	if (!kv)
		return -ENOMEM;
	/* O_NONBLOCK, or else open() of a FIFO would block */
	kv->fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
	if (kv->fd < 0) {
		/* -ENODEV, because -ENOENT means a missing block in other calls */
		err = errno == ENOENT || errno == ENOTDIR || errno == ENXIO ?
		      -ENODEV : -errno;
		goto free_handle;
	}
	if (fstat(kv->fd, &st) < 0) {
		err = -errno;
		goto close_node;
	}
	if (!S_ISCHR(st.st_mode)) {
		err = -ENOTTY;
		goto close_node;
	}
	err = kvblk_info(kv, &info);
	if (err)
		goto close_node;
	*handle = kv;
	return 0;

close_node:
	close(kv->fd);
free_handle:
	free(kv);
	return err;
}

void kvblk_close(struct kvblk *kv)
{
	if (!kv)
		return;
	close(kv->fd);
	free(kv);
}

int kvblk_fd(const struct kvblk *kv)
{
	return kv->fd;
}

int kvblk_info(struct kvblk *kv, struct kvblk_info *info)
{
	memset(info, 0, sizeof(*info));
	info->size = sizeof(*info);
	return command(kv, KVBLK_IOC_INFO, info);
}

int kvblk_submit(struct kvblk *kv, const struct kvblk_op *ops,
		 unsigned int nr_ops, struct kvblk_result *results,
		 unsigned int flags)
{
	struct kvblk_submit submit = {
		.size = sizeof(submit),
		.flags = flags,
		.nr_ops = nr_ops,
		.op_size = sizeof(*ops),
		.result_size = sizeof(*results),
		.ops = (uintptr_t)ops,
		.results = (uintptr_t)results,
	};

	return command(kv, KVBLK_IOC_SUBMIT, &submit);
}

int kvblk_put(struct kvblk *kv, const void *key, size_t key_len,
	      const void *data, size_t len,
	      const struct kvblk_put_options *options)
{
	struct kvblk_result result;
	struct kvblk_op_ext ext;
	struct kvblk_piece piece;
	struct kvblk_op op;
	int err;

	/* the cast is safe: a put only reads the piece */
	kvblk_piece_user(&piece, (void *)(uintptr_t)data, len);
	kvblk_prep_put(&op, key, key_len, &piece, 1);
	err = put_options(&op, &ext, options);
	if (err)
		return err;
	return submit_one(kv, &op, &result);
}

int kvblk_get(struct kvblk *kv, const void *key, size_t key_len, void *buf,
	      size_t *len)
{
	struct kvblk_result result;
	struct kvblk_piece piece;
	struct kvblk_op op;
	int err;

	kvblk_piece_user(&piece, buf, *len);
	kvblk_prep_get(&op, key, key_len, &piece, 1);
	err = submit_one(kv, &op, &result);
	if (!err || err == -EMSGSIZE)
		*len = result.value_len;
	return err;
}

int kvblk_get_range(struct kvblk *kv, const void *key, size_t key_len,
		    uint32_t offset, void *buf, size_t *len)
{
	struct kvblk_result result;
	struct kvblk_piece piece;
	struct kvblk_op op;
	int err;

	kvblk_piece_user(&piece, buf, *len);
	kvblk_prep_get(&op, key, key_len, &piece, 1);
	op.flags = KVBLK_OPF_PARTIAL;
	op.offset = offset;
	err = submit_one(kv, &op, &result);
	if (!err)
		*len = result.res;
	return err;
}

int kvblk_delete(struct kvblk *kv, const void *key, size_t key_len)
{
	struct kvblk_result result;
	struct kvblk_op op;

	kvblk_prep_delete(&op, key, key_len);
	return submit_one(kv, &op, &result);
}

int kvblk_exists(struct kvblk *kv, const void *key, size_t key_len,
		 uint32_t *size)
{
	struct kvblk_lookup lookup = {
		.nr_keys = 1,
		.keys = (uintptr_t)key,
		.sizes = (uintptr_t)size,
	};
	int err;

	if (!key_len || key_len > KVBLK_KEY_MAX)
		return -EINVAL;
	lookup.key_stride = key_len;
	err = kvblk_lookup(kv, &lookup);
	if (err)
		return err;
	return lookup.nr_present ? 0 : -ENOENT;
}

int kvblk_lookup(struct kvblk *kv, struct kvblk_lookup *lookup)
{
	lookup->size = sizeof(*lookup);
	return command(kv, KVBLK_IOC_LOOKUP, lookup);
}

int kvblk_lookup_prefix(struct kvblk *kv, const void *keys, size_t key_len,
			unsigned int nr_keys, unsigned int lease_ms,
			unsigned int *nr_leading, uint64_t *lease)
{
	struct kvblk_lookup lookup = {
		.flags = KVBLK_LOOKUP_PREFIX,
		.nr_keys = nr_keys,
		.keys = (uintptr_t)keys,
		.lease_ms = lease_ms,
	};
	int err;

	if (!key_len || key_len > KVBLK_KEY_MAX)
		return -EINVAL;
	lookup.key_stride = key_len;
	if (lease_ms)
		lookup.flags |= KVBLK_LOOKUP_LEASE;
	err = kvblk_lookup(kv, &lookup);
	if (err)
		return err;
	*nr_leading = lookup.nr_leading;
	if (lease)
		*lease = lookup.lease;
	return 0;
}

int kvblk_lease_release(struct kvblk *kv, uint64_t lease)
{
	struct kvblk_lease_release release = {
		.size = sizeof(release),
		.lease = lease,
	};

	return command(kv, KVBLK_IOC_LEASE_RELEASE, &release);
}

int kvblk_region_register(struct kvblk *kv, void *addr, size_t len, uint32_t *region)
{
	struct kvblk_reg_buf reg = {
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
	struct kvblk_unreg_buf unreg = { .size = sizeof(unreg), .handle = region };

	return command(kv, KVBLK_IOC_UNREG_BUF, &unreg);
}

int kvblk_drain(struct kvblk *kv, uint64_t deadline_ns)
{
	struct kvblk_drain drain = { .size = sizeof(drain), .deadline_ns = deadline_ns };

	return command(kv, KVBLK_IOC_DRAIN, &drain);
}

int kvblk_journal_open(struct kvblk *kv, uint32_t nr_records, uint32_t flags)
{
	struct kvblk_journal journal = {
		.size = sizeof(journal),
		.flags = flags,
		.nr_records = nr_records,
	};
	int fd = ioctl(kv->fd, KVBLK_IOC_JOURNAL, &journal);

	return fd < 0 ? -errno : fd;
}

int kvblk_cancel(struct kvblk *kv, uint64_t cookie, unsigned int *nr_found)
{
	struct kvblk_cancel cancel = {
		.size = sizeof(cancel),
		.cookie = cookie,
	};
	int err = command(kv, KVBLK_IOC_CANCEL, &cancel);

	if (!err && nr_found)
		*nr_found = cancel.nr_found;
	return err;
}

static const struct {
	int err;
	const char *text;
} data_errors[] = {
	{ ENOENT,	"no such block" },
	{ EEXIST,	"the block is stored already" },
	{ EALREADY,	"another put of this key is under way" },
	{ EBUSY,	"the block is just being written" },
	{ ENOBUFS,	"declined by the pool's admission policy" },
	{ ENOSPC,	"no room in the pool and none can be made, or its members did not answer in time" },
	{ EFBIG,	"the block is longer than a segment of the pool holds" },
	{ EMSGSIZE,	"the block is longer than the buffer" },
	{ ERANGE,	"the range begins behind the block's end" },
	{ EIO,		"the pool's member failed" },
	{ ETIME,	"the deadline passed" },
	{ ECANCELED,	"canceled" },
	{ EOPNOTSUPP,	"not supported by this kernel module" },
	{ ENODEV,	"no such pool, or it is being destroyed" },
	{ ENOMEM,	"no memory, or no room in RLIMIT_MEMLOCK: raise it (ulimit -l)" },
	{ ENOTTY,	"not a kvblk device node" },
	{ EPROTO,	"the kernel module's answer makes no sense" },
};

const char *kvblk_strerror(int err)
{
	if (err < 0)
		err = -err;
	for (size_t i = 0; i < sizeof(data_errors) / sizeof(data_errors[0]); i++) {
		if (data_errors[i].err == err)
			return data_errors[i].text;
	}
	return strerrordesc_np(err) ? strerrordesc_np(err) : "unknown error";
}

const char *kvblk_version(void)
{
	return KVBLK_VERSION;
}
