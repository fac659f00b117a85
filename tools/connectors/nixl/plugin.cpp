// SPDX-License-Identifier: MIT
/* The entry points that NIXL's plugin manager looks up in libplugin_KVBLK.so. */
#include "backend/backend_plugin.h"
#include "engine.h"

#ifndef KVBLK_PLUGIN_NAME
#define KVBLK_PLUGIN_NAME "KVBLK"
#endif

extern "C" NIXL_PLUGIN_EXPORT nixlBackendPlugin *nixl_plugin_init()
{
	return nixlBackendPluginCreator<kvblk_nixl::Engine>::create(
		NIXL_PLUGIN_API_VERSION, KVBLK_PLUGIN_NAME, KVBLK_VERSION,
		kvblk_nixl::default_params(), kvblk_nixl::Engine::mems());
}

extern "C" NIXL_PLUGIN_EXPORT void nixl_plugin_fini()
{
}
