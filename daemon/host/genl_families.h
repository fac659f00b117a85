/* SPDX-License-Identifier: MIT */
/* Generic netlink families that come and go: modules loaded and unloaded. */
#ifndef KVBLKD_FAMILIES_H
#define KVBLKD_FAMILIES_H

struct families;

enum family_change {
	FAMILY_CAME,
	FAMILY_GONE,
};

/* 0 or a negative errno. */
int families_open(struct families **handle);
void families_close(struct families *families);

/* Readable when there is a notice; it stays the handle's. */
int families_fd(const struct families *families);

/* The next change of family @name: 0; -EAGAIN when there is none now. */
int families_read(struct families *families, const char *name,
		  enum family_change *change);

#endif
