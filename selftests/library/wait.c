// SPDX-License-Identifier: MIT
/*
 * A request that goes on is waited for, as a program with libkvblk alone does it.
 *
 * usage: library_wait POOL PATH
 *
 * Adds the device PATH, which does not answer, to POOL. Prints "waits" when the
 * request goes on and was waited for once in vain; then the device has to answer.
 * Exit code 1: something was wrong; else the last line is the request's errno.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <kvblk.h>

static int wrong(const char *what, int err)
{
	printf("%s: %d (%s)\n", what, err, strerror(err < 0 ? -err : err));
	return 1;
}

int main(int argc, char **argv)
{
	struct kvblk_member_spec spec = { .segment_size = 8 << 20 };
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
