/* SPDX-License-Identifier: MIT */
/* Functions of kvblk pool, and the parts that its files share. */
#ifndef KVBLK_POOL_H
#define KVBLK_POOL_H

#include "cli/cli.h"

#define POOL_MEMBERS_MAX	64

int pool_create_main(int argc, char **argv);
int import_main(int argc, char **argv);
int adopt_main(int argc, char **argv);
int pool_destroy_main(int argc, char **argv);
int pool_clear_main(int argc, char **argv);
int pool_list_main(int argc, char **argv);
int pool_show_main(int argc, char **argv);
int pool_plan_main(int argc, char **argv);
int tunable_get_main(int argc, char **argv);
int tunable_set_main(int argc, char **argv);

/* devices given on the command line */
struct pool_devices {
	struct kvblk_member_spec *specs;
	size_t nr;
	const char *names[POOL_MEMBERS_MAX];	/* names of the first members */
	size_t nr_names;
};

struct argp_state;

/* Add a device or a member's name to the struct pool_devices @field, for CLI_CALL. */
void pool_take_device(struct argp_state *state, const char *device, void *field);
void pool_take_name(struct argp_state *state, const char *name, void *field);

/* Set *@size to the size of a device or file. Returns false and sets errno on failure. */
bool pool_device_size(const char *path, uint64_t *size);

/* largest number of entries of an index */
#define POOL_INDEX_MAX		(1ull << 36)

/*
 * Wait until the members have found their blocks, and print the state of each member.
 * Returns CLI_OK or CLI_ERROR.
 */
int pool_report(struct kvblk_admin *admin, const char *name, bool json);

#endif
