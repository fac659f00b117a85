// SPDX-License-Identifier: MIT
/* Kernel modules, see kmod.h. */
#include <errno.h>
#include <libkmod.h>
#include <stddef.h>

#include "apply/kmod.h"

bool modules_loaded(const char *name)
{
	struct kmod_module *module = NULL;
	struct kmod_ctx *ctx;
	int state = -ENOMEM;

	ctx = kmod_new(NULL, NULL);
	if (!ctx)
		return false;
	if (!kmod_module_new_from_name(ctx, name, &module))
		state = kmod_module_get_initstate(module);
	kmod_module_unref(module);
	kmod_unref(ctx);
	return state == KMOD_MODULE_BUILTIN || state == KMOD_MODULE_LIVE;
}

int modules_load(const char *name)
{
	struct kmod_list *list = NULL, *item;
	struct kmod_ctx *ctx;
	int err;

	ctx = kmod_new(NULL, NULL);
	if (!ctx)
		return -ENOMEM;
	/* look up as modprobe does: aliases, dependencies, modprobe.d */
	err = kmod_module_new_from_lookup(ctx, name, &list);
	if (!err && !list)
		err = -ENOENT;
	kmod_list_foreach(item, list) {
		struct kmod_module *module = kmod_module_get_module(item);

		if (!err)
			err = kmod_module_probe_insert_module(module, 0, NULL, NULL, NULL, NULL);
		kmod_module_unref(module);
	}
	kmod_module_unref_list(list);
	kmod_unref(ctx);
	return err;
}
