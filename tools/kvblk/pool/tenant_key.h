/* SPDX-License-Identifier: MIT */
/* Keys of encrypted tenants on their way to the module. */
#ifndef KVBLK_TENANT_KEY_H
#define KVBLK_TENANT_KEY_H

#include <stdint.h>

/*
 * Add a key of the 32 bytes in @file, or of random ones if it is NULL, to the keyring of this
 * process. Returns its serial number, or 0 after a message.
 */
int32_t tenant_key_add(const char *file);

#endif
