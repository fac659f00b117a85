/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SHIM_SIZES_H
#define SHIM_SIZES_H

#define SZ_8M	0x00800000
#define SZ_128M	0x08000000
#define SZ_256M	0x10000000
#define SZ_1G	0x40000000

#endif
