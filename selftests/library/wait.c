// SPDX-License-Identifier: MIT
/*
 * Wait for a request that continues in the background, in a program that uses only libkvblk-admin.
 *
 * usage: library_wait POOL PATH
 *
 * Adds the device PATH, which does not respond, to POOL. Prints "waits" after a wait has timed
 * out; the device must then respond. The last line is the request's errno. Exit code 1: something
 * was wrong.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <kvblk_admin.h>

static int wrong(const char *what, int err)
{
	printf("%s: %d (%s)\n", what, err, strerror(err < 0 ? -err : err));
	return 1;
}

int main(int argc, char **argv)
{
	struct kvblk_member_spec spec = { .size = sizeof(spec), .segment_size = 8 << 20 };
	struct kvblk_admin *admin;
	int err;

	if (argc != 3)
		return wrong("usage: library_wait POOL PATH", 0);
	spec.path = argv[2];
	err = kvblk_admin_open(&admin);
	if (err)
		return wrong("kvblk_admin_open", err);
	err = kvblk_admin_wait(admin, 0);
	if (err != -EINVAL || kvblk_admin_request(admin))
		return wrong("a wait for nothing", err);
	err = kvblk_member_add(admin, argv[1], &spec, KVBLK_ADD_FLAG_FORMAT);
	if (err != -EINPROGRESS || !kvblk_admin_request(admin))
		return wrong("kvblk_member_add", err);
	err = kvblk_admin_wait(admin, 100);
	if (err != -ETIMEDOUT)
		return wrong("a wait in vain", err);
	puts("waits");
	fflush(stdout);
	err = kvblk_admin_wait(admin, 60000);
	if (kvblk_admin_request(admin))
		return wrong("kvblk_admin_wait", err);
	printf("%d\n", -err);
	kvblk_admin_close(admin);
	return 0;
}
