// SPDX-License-Identifier: MIT
/*
 * Fetch the blocks that a pool of a pod got from others, and count them as hits of their owner's
 * pool on the same machine, or delete them there, in a program that uses only the library.
 *
 * usage: library_touches POOL [OWNER [delete]]
 *
 * Prints "fetched=COUNT entries=COUNT owners=COUNT", then a line "owner POOL NODE COUNT" for each
 * entry. Without OWNER, the blocks are lost. With delete, prints "deleted=COUNT missing=COUNT" for
 * each entry, twice: of two deletes the second finds nothing. Exit code 1: an error, whose text is
 * printed.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <kvblk_admin.h>

static void print_id(const uint8_t id[16])
{
	for (int i = 0; i < 16; i++)
		printf("%02x", id[i]);
	putchar(' ');
}

static void print(const struct kvblk_touched *list)
{
	unsigned int fetched = 0, entries = 0, owners = 0;

	for (const struct kvblk_touched *t = list; t; t = t->next) {
		const struct kvblk_touched *first = list;

		while (memcmp(first->owner_pool, t->owner_pool, sizeof(t->owner_pool)) != 0)
			first = first->next;
		fetched += t->nr;
		entries++;
		owners += first == t;
	}
	printf("fetched=%u entries=%u owners=%u\n", fetched, entries, owners);
	for (const struct kvblk_touched *t = list; t; t = t->next) {
		printf("owner ");
		print_id(t->owner_pool);
		print_id(t->owner_node);
		printf("%" PRIu32 "\n", t->nr);
	}
}

/* Delete the blocks of @t in @owner, and print how many results were 0 and -ENOENT. */
static int delete(struct kvblk_admin *admin, const char *owner, const struct kvblk_touched *t)
{
	static int32_t results[KVBLK_TOUCH_LEN_MAX / 16];
	unsigned int deleted = 0, missing = 0;
	int err;

	err = kvblk_pool_delete(admin, owner, t->ids, t->nr, results);
	for (uint32_t i = 0; i < t->nr && !err; i++) {
		deleted += results[i] == 0;
		missing += results[i] == -ENOENT;
	}
	if (!err)
		printf("deleted=%u missing=%u\n", deleted, missing);
	return err;
}

int main(int argc, char **argv)
{
	struct kvblk_touched *list = NULL;
	struct kvblk_admin *admin;
	int err;

	if (argc < 2 || argc > 4 || (argc == 4 && strcmp(argv[3], "delete") != 0)) {
		fprintf(stderr, "usage: library_touches POOL [OWNER [delete]]\n");
		return 2;
	}
	err = kvblk_admin_open(&admin);
	if (err) {
		printf("%s\n", strerror(-err));
		return 1;
	}
	err = kvblk_touched_list(admin, argv[1], &list);
	if (!err)
		print(list);
	for (const struct kvblk_touched *t = list; t && argc > 2 && !err; t = t->next) {
		err = argc == 3 ? kvblk_touch(admin, argv[2], t->ids, t->nr) :
				  delete(admin, argv[2], t);
		if (!err && argc == 4)
			err = delete(admin, argv[2], t);
	}
	if (err)
		printf("%s: %s\n", strerror(-err), kvblk_admin_message(admin));
	kvblk_list_free(list);
	kvblk_admin_close(admin);
	return err != 0;
}
