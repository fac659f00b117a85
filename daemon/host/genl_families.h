/* SPDX-License-Identifier: MIT */
/* Notifications about generic netlink families, which appear and vanish with their modules. */
#ifndef KVBLKD_HOST_GENL_FAMILIES_H
#define KVBLKD_HOST_GENL_FAMILIES_H

struct families;

enum family_change {
	FAMILY_CAME,
	FAMILY_GONE,
};

/* Returns 0 or a negative errno. */
int families_open(struct families **handle);

/* Returns a descriptor that is readable if there are notifications; the handle owns it. */
int families_fd(const struct families *families);

/* Read the next change of family @name. Returns 0, or -EAGAIN if there is none. */
int families_read(struct families *families, const char *name,
		  enum family_change *change);

#endif
