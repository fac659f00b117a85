// SPDX-License-Identifier: MIT
/* kvblk member: add devices to pools and remove them. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/confirm.h"
#include "cli/options.h"
#include "common/signature.h"
#include "common/snapshot.h"
#include "common/uuid.h"
#include "pool/member.h"

const char *member_condition(const struct kvblk_member_state *member)
{
	const char *trouble = snapshot_trouble(member);

	return trouble ? trouble : kvblk_name(KVBLK_NAME_MEMBER_STATUS, member->state);
}

void member_print(const struct cli_list *list, const struct kvblk_member_state *member)
{
	static const struct cli_column columns[] = {
		{ "POOL", -12 }, { "MEMBER", -12 }, { "STATE", -10 }, { "SIZE", 10 },
		{ "SEGMENT", 10 }, { "SEGMENTS", 9 }, { "FREE", 7 }, { "SEALED", 7 },
		{ "PATH", -16 }, { "DEVICE", -10 }, { "UUID", -36 }, { "PLACE", -1 }, { 0 },
	};
	const char *none = list->bare ? "" : "-";
	char size[32], segment[32], nr[3][16], uuid[40];

	cli_print_head(list, columns);
	for (; member; member = member->next) {
		const char *cells[] = {
			member->pool, member->name, member_condition(member), size, segment,
			nr[0], member->has_use ? nr[1] : none, member->has_use ? nr[2] : none,
			*member->path ? member->path : none,
			*member->device ? member->device : none,
			uuid_format(member->uuid, uuid),
			*member->place ? member->place : none,
		};

		cli_list_bytes(list, member->size, size, sizeof(size));
		cli_list_bytes(list, member->segment_size, segment, sizeof(segment));
		snprintf(nr[0], sizeof(nr[0]), "%u", member->nr_segments);
		snprintf(nr[1], sizeof(nr[1]), "%u", member->free_segments);
		snprintf(nr[2], sizeof(nr[2]), "%u", member->sealed_segments);
		cli_print_row(list, columns, cells);
	}
}

static json_t *json_member(const struct kvblk_member_state *member)
{
	char uuid[40], incarnation[20];

	/* as text, because JSON readers turn numbers above 2^53 into doubles */
	snprintf(incarnation, sizeof(incarnation), "%016" PRIx64,
		 member->incarnation);
	return json_pack("{s:s, s:s, s:s, s:s, s:I, s:s, s:b, s:b, s:I, s:I, s:I,"
			 " s:o, s:o, s:o, s:o, s:I, s:o, s:s, s:o, s:b, s:b, s:b, s:s, s:s, s:o}",
		"pool", member->pool,
		"name", member->name,
		"path", member->path,
		"uuid", uuid_format(member->uuid, uuid),
		"slot", (json_int_t)member->slot,
		"state", kvblk_name(KVBLK_NAME_MEMBER_STATUS, member->state),
		"suspect", (int)member->suspect,
		"failing", (int)member->failing,
		"size", (json_int_t)member->size,
		"segment_size", (json_int_t)member->segment_size,
		"nr_segments", (json_int_t)member->nr_segments,
		"free_segments", cli_json_use(member->has_use, member->free_segments),
		"ready_segments", cli_json_use(member->has_use, member->ready_segments),
		"open_segments", cli_json_use(member->has_use, member->open_segments),
		"sealed_segments", cli_json_use(member->has_use, member->sealed_segments),
		"record_align", (json_int_t)member->record_align,
		"inflight", cli_json_use(member->has_use, member->inflight),
		"incarnation", incarnation,
		"restored", cli_json_use(member->has_use, member->restored),
		"formatted", (int)member->formatted,
		"read_only", (int)member->read_only,
		"fenced", (int)member->fenced,
		"device", member->device,
		"place", member->place,
		"unread_segments", cli_json_use(member->has_use, member->unread_segments));
}

json_t *member_json(const struct kvblk_member_state *member)
{
	json_t *array = json_array();

	for (; member; member = member->next)
		json_array_append_new(array, json_member(member));
	return array;
}

struct member_args {
	struct cli_list list;
	bool yes;
	bool foreign;
	bool hinted;
	const char *pool;
	const char *member;
	const char *name;
	uint32_t segment_size;
	uint32_t add_flags;
};

#define AT(field)	CLI_FIELD(struct member_args, field)
#define YES(help)	{ "yes", 'y', CLI_FLAG, AT(yes), NULL, help }
#define FORCE(help)	{ "force", 'f', CLI_FLAG, AT(add_flags), NULL, help, .bits = KVBLK_ADD_FLAG_FORCE }

static const struct cli_option add_options[] = {
	{ "format", 0, CLI_FLAG, AT(add_flags), NULL,
	  "Create a new, empty member; asks before data on the device is lost",
	  .bits = KVBLK_ADD_FLAG_FORMAT },
	YES("Don't ask"),
	FORCE("Take a device that another node owns and did not release cleanly"),
	{ "segment-size", 0, CLI_SEGMENT_SIZE, AT(segment_size), "BYTES",
	  "Size of the segments: 8M to 1G, a power of two (default: by the device's size)" },
	{ "name", 0, CLI_MEMBER, AT(name), "NAME",
	  "Permanent name of the new member (default: the last part of DEVICE)" },
	{ 0 },
};

static const struct cli_option add_arguments[] = {
	{ "POOL", 0, CLI_POOL, AT(pool), .required = true },
	{ "DEVICE", 0, CLI_DEVICE, AT(member), .required = true },
	{ 0 },
};

static const struct cli_syntax add_syntax = {
	.options = add_options,
	.arguments = add_arguments,
	.usage = "POOL DEVICE",
	.doc = "Add DEVICE to POOL while POOL is in use. A blank device becomes a new, empty member. A member that was missing keeps its blocks, except blocks that were put or deleted meanwhile. Any other device is refused without --format.\v"
	       "Example:\n  kvblk member add kv0 --format /dev/nvme3n1",
};

/* Refuse a device with a foreign signature that is to be a member again. */
static int check_signature(const char *path)
{
	struct kvblk_found *found = NULL;
	char what[64];
	int ret = CLI_OK;

	/* the module reports all other errors */
	if (!kvblk_scan(&path, 1, &found) && found && found->data_end &&
	    signature_find(found, what, sizeof(what)))
		ret = cli_fail("%s holds %s, too: if that is left over, remove it with wipefs",
			       path, what);
	kvblk_list_free(found);
	return ret;
}

static int add_main(int argc, char **argv)
{
	struct member_args args = { 0 };
	struct kvblk_member_spec spec;
	struct kvblk_admin *admin;
	int err, ret;

	cli_parse(&add_syntax, argc, argv, &args);
	admin = cli_open_admin();
	spec = (struct kvblk_member_spec){
		.size = sizeof(spec),
		.path = args.member,
		.segment_size = args.segment_size,
		.name = args.name,
	};
	if (args.add_flags & KVBLK_ADD_FLAG_FORMAT)
		ret = confirm_format(args.yes, args.pool, &spec, 1);
	else
		ret = check_signature(args.member);
	if (ret)
		goto close_admin;
	err = kvblk_member_add(admin, args.pool, &spec, args.add_flags);
	if (err)
		ret = cli_admin_fail(admin, err, args.member);
	else if (args.list.json)
		ret = cli_print_json(json_pack("{s:s, s:s, s:b}",
			"pool", args.pool, "path", args.member, "added", 1));
close_admin:
	kvblk_admin_close(admin);
	return ret;
}

static const struct cli_option follow_options[] = {
	{ "name", 0, CLI_MEMBER, AT(name), "NAME",
	  "Name of the member in POOL (default: the last part of DEVICE)" },
	{ "hinted", 0, CLI_FLAG, AT(hinted), NULL,
	  "Find only blocks near those that the directory of the pod names: the index has no room for all" },
	{ 0 },
};

static const struct cli_syntax follow_syntax = {
	.options = follow_options,
	.arguments = add_arguments,
	.usage = "POOL DEVICE",
	.doc = "Read DEVICE, which another node of POOL's pod owns: its blocks are found and got here. DEVICE is never written.\v"
	       "Example:\n  kvblk member follow kv0 /dev/nvme7n1",
};

static int follow_main(int argc, char **argv)
{
	struct member_args args = { 0 };
	struct kvblk_member_spec spec;
	struct kvblk_admin *admin;
	int err, ret = CLI_OK;

	cli_parse(&follow_syntax, argc, argv, &args);
	admin = cli_open_admin();
	spec = (struct kvblk_member_spec){
		.size = sizeof(spec),
		.path = args.member,
		.name = args.name,
		.hinted = args.hinted,
	};
	err = kvblk_member_follow(admin, args.pool, &spec);
	if (err)
		ret = cli_admin_fail(admin, err, args.member);
	else if (args.list.json)
		ret = cli_print_json(json_pack("{s:s, s:s, s:b}",
			"pool", args.pool, "path", args.member, "followed", 1));
	kvblk_admin_close(admin);
	return ret;
}

static const struct cli_option unfollow_arguments[] = {
	{ "POOL", 0, CLI_POOL, AT(pool), .required = true },
	{ "MEMBER", 0, CLI_MEMBER, AT(member), .required = true },
	{ 0 },
};

static const struct cli_syntax unfollow_syntax = {
	.arguments = unfollow_arguments,
	.usage = "POOL MEMBER",
	.doc = "Stop reading MEMBER, a name of \"kvblk member list --foreign\": gets of its blocks miss. Nothing on it changes.\v"
	       "Example:\n  kvblk member unfollow kv0 nvme7n1",
};

static int unfollow_main(int argc, char **argv)
{
	struct member_args args = { 0 };
	struct kvblk_member_state *members, *member;
	struct kvblk_member_spec spec;
	struct kvblk_admin *admin;
	int err, ret = CLI_OK;

	cli_parse(&unfollow_syntax, argc, argv, &args);
	admin = cli_open_admin();
	err = kvblk_foreign_list(admin, args.pool, &members);
	/* or else an own member of this name would be removed */
	for (member = members; member && strcmp(member->name, args.member) != 0;)
		member = member->next;
	if (!err && member) {
		spec = (struct kvblk_member_spec){ .size = sizeof(spec), .uuid = member->uuid };
		err = kvblk_member_remove(admin, args.pool, &spec);
	}
	if (err)
		ret = cli_admin_fail(admin, err, args.member);
	else if (!member)
		ret = cli_fail("%s: pool %s follows no such member: see \"kvblk member list --foreign\"",
			       args.member, args.pool);
	else if (args.list.json)
		ret = cli_print_json(json_pack("{s:s, s:s, s:b}",
			"pool", args.pool, "name", args.member, "unfollowed", 1));
	kvblk_list_free(members);
	kvblk_admin_close(admin);
	return ret;
}

/* bytes at a device's end that the module zeroes, too */
#define TAIL_BYTES	(1u << 20)

static const struct cli_option wipe_options[] = {
	YES("Don't ask"),
	FORCE("Even if the pool was not stopped cleanly, and so may be up on another node"),
	{ 0 },
};

static const struct cli_option wipe_arguments[] = {
	{ "DEVICE", 0, CLI_DEVICE, AT(member), .required = true },
	{ 0 },
};

static const struct cli_syntax wipe_syntax = {
	.options = wipe_options,
	.arguments = wipe_arguments,
	.usage = "DEVICE",
	.doc = "Retire DEVICE, a member of a pool that is not up: overwrite both superblocks and the segment table, with the secret that kvblk needs to find the blocks. Their bytes stay: erase the device before others get it. Asks for confirmation.\v"
	       "Example:\n  kvblk member wipe /dev/nvme3n1",
};

/* Overwrite the bytes from @from to @to with zeroes. Returns 0 or a negative errno. */
static int zero_range(int fd, uint64_t from, uint64_t to)
{
	static const char zeroes[1 << 16];

	while (from < to) {
		size_t most = to - from < sizeof(zeroes) ? to - from : sizeof(zeroes);
		ssize_t len = pwrite(fd, zeroes, most, (off_t)from);

		if (len < 0)
			return -errno;
		from += (size_t)len;
	}
	return 0;
}

static int wipe_found(const struct kvblk_found *found)
{
	/* exclusively: fails if the device is mounted, or a member of a pool that is up here */
	int fd = open(found->path, O_RDWR | O_EXCL | O_CLOEXEC), err = 0;
	off_t end = fd < 0 ? -1 : lseek(fd, 0, SEEK_END);

	if (end < 0)
		err = -errno;
	if (!err && (uint64_t)end < found->data_start)
		err = -ENOSPC;
	if (!err)
		err = zero_range(fd, (uint64_t)end - TAIL_BYTES, (uint64_t)end);
	if (!err)
		err = zero_range(fd, 0, found->data_start);
	if (!err && fsync(fd))
		err = -errno;
	if (fd >= 0)
		close(fd);
	return err ? cli_fail("cannot wipe %s: %s", found->path, strerror(-err)) : CLI_OK;
}

static int wipe_main(int argc, char **argv)
{
	struct kvblk_found *found = NULL;
	struct member_args args = { 0 };
	char lost[256];
	int err, ret;

	cli_parse(&wipe_syntax, argc, argv, &args);
	err = kvblk_scan(&args.member, 1, &found);
	if (err)
		return cli_fail("cannot read %s: %s", args.member, strerror(-err));
	if (!found || !found->data_end) {
		ret = cli_fail("%s is not a member of a pool, or is of another version: nothing was changed",
			       args.member);
	} else if (!found->clean && !(args.add_flags & KVBLK_ADD_FLAG_FORCE)) {
		/* a pool may be up on another node, which this kernel does not know */
		ret = cli_fail("%s is a member of pool %s, in use, or left in a crash, by node %s: nothing was changed; destroy the pool there, or pass --force if it is not up on any node",
			       args.member, found->pool, found->owner);
	} else if (found->former) {
		ret = cli_fail("%s was a member of pool %s, and holds something else now: nothing was changed",
			       args.member, found->pool);
	} else {
		snprintf(lost, sizeof(lost), "  the blocks of a member of pool %s, %s by node %s\n",
			 found->pool, found->clean ? "last used" : "in use, or left in a crash,",
			 found->owner);
		ret = confirm(args.yes, args.member, lost);
		if (ret == CLI_OK)
			ret = wipe_found(found);
		if (ret == CLI_OK && args.list.json)
			ret = cli_print_json(json_pack("{s:s, s:b}", "path", args.member,
						       "wiped", 1));
	}
	kvblk_list_free(found);
	return ret;
}

static const struct cli_option remove_options[] = {
	YES("Don't ask whether the blocks may be lost"),
	{ 0 },
};

static const struct cli_option remove_arguments[] = {
	{ "POOL", 0, CLI_POOL, AT(pool), .required = true },
	{ "MEMBER", 0, CLI_STRING, AT(member), .required = true },
	{ 0 },
};

static const struct cli_syntax remove_syntax = {
	.options = remove_options,
	.arguments = remove_arguments,
	.usage = "POOL MEMBER",
	.doc = "Remove MEMBER, a name, a uuid or a device's path, from POOL while POOL is in use. The blocks of the member are lost, after confirmation. Gets of these blocks miss at once; the event member-down reports when the device is free. A missing member can be removed, too. A word that is the name of one member and the device of another is refused: give a uuid.\v"
	       "Example:\n  kvblk member remove kv0 nvme3n1",
};

/*
 * Returns whether @text is the member's uuid, name or path, or the name or path of its
 * device now.
 */
static bool is_meant(const struct kvblk_member_state *member, const char *text)
{
	static const char dev[] = "/dev/";
	const char *device = strncmp(text, dev, strlen(dev)) ? text : text + strlen(dev);
	uint8_t uuid[16];

	if (uuid_parse(text, uuid))
		return !memcmp(member->uuid, uuid, sizeof(uuid));
	return !strcmp(member->name, text) || !strcmp(member->path, text) ||
	       (*member->device && !strcmp(member->device, device));
}

/*
 * Find the only member that @args means. Returns NULL after a message if none or several
 * match.
 */
static const struct kvblk_member_state *find_member(const struct kvblk_member_state *members,
						    const struct member_args *args)
{
	const struct kvblk_member_state *found = NULL;
	char uuid[2][40];

	for (; members; members = members->next) {
		if (!is_meant(members, args->member))
			continue;
		if (found) {
			cli_fail("%s: this is member %s (%s), and member %s (%s): give a uuid",
				 args->member, found->name, uuid_format(found->uuid, uuid[0]),
				 members->name, uuid_format(members->uuid, uuid[1]));
			return NULL;
		}
		found = members;
	}
	if (!found)
		cli_fail("%s: not a member of pool %s; see: kvblk member list %s", args->member,
			 args->pool, args->pool);
	return found;
}

static int remove_found(struct kvblk_admin *admin, const struct member_args *args,
			const struct kvblk_member_state *found)
{
	struct kvblk_member_spec spec = { .size = sizeof(spec) };
	int err;

	if (!found || confirm_remove(args->yes, found) != CLI_OK)
		return CLI_ERROR;
	/* by uuid, because another member may have taken the name of a missing one */
	spec.uuid = found->uuid;
	err = kvblk_member_remove(admin, args->pool, &spec);
	if (err)
		return cli_admin_fail(admin, err, args->member);
	err = cli_admin_warn(admin, args->member);
	if (args->list.json && cli_print_json(json_pack("{s:s, s:s, s:b}", "pool", args->pool,
							"name", found->name, "removed", 1)))
		return CLI_ERROR;
	return err;
}

static int remove_main(int argc, char **argv)
{
	struct kvblk_member_state *members = NULL;
	struct member_args args = { 0 };
	struct kvblk_admin *admin;
	int err, ret;

	cli_parse(&remove_syntax, argc, argv, &args);
	admin = cli_open_admin();
	err = kvblk_member_list(admin, args.pool, &members);
	if (err)
		ret = cli_admin_fail(admin, err, args.pool);
	else
		ret = remove_found(admin, &args, find_member(members, &args));
	kvblk_list_free(members);
	kvblk_admin_close(admin);
	return ret;
}

static const struct cli_option list_arguments[] = {
	{ "POOL", 0, CLI_POOL, AT(pool) },
	{ 0 },
};

static const struct cli_option list_options[] = {
	{ "foreign", 0, CLI_FLAG, AT(foreign), NULL,
	  "List the members of other nodes that are read here" },
	{ 0 },
};

static void foreign_print(const struct cli_list *list,
			  const struct kvblk_member_state *member)
{
	static const struct cli_column columns[] = {
		{ "POOL", -12 }, { "MEMBER", -12 }, { "STATE", -10 }, { "OWNER", -16 },
		{ "SIZE", 10 }, { "BLOCKS", 9 }, { "LACKS", 7 }, { "GETS", 9 },
		{ "BYTES", 10 }, { "MISSES", 7 }, { "FINDS", -6 }, { "PATH", -16 },
		{ "UUID", -36 }, { 0 },
	};
	const char *none = list->bare ? "" : "-";
	char size[32], bytes[32], nr[4][24], uuid[40];

	cli_print_head(list, columns);
	for (; member; member = member->next) {
		const bool use = member->has_use;
		const char *cells[] = {
			member->pool, member->name, member_condition(member),
			member->owner, size, use ? nr[0] : none, use ? nr[1] : none,
			use ? nr[2] : none, use ? bytes : none, use ? nr[3] : none,
			member->hinted ? "hinted" : "all",
			*member->path ? member->path : none,
			uuid_format(member->uuid, uuid),
		};

		cli_list_bytes(list, member->size, size, sizeof(size));
		cli_list_bytes(list, member->get_bytes, bytes, sizeof(bytes));
		snprintf(nr[0], sizeof(nr[0]), "%" PRIu64, member->blocks);
		snprintf(nr[1], sizeof(nr[1]), "%" PRIu64, member->lacks);
		snprintf(nr[2], sizeof(nr[2]), "%" PRIu64, member->gets);
		snprintf(nr[3], sizeof(nr[3]), "%" PRIu64, member->get_misses);
		cli_print_row(list, columns, cells);
	}
}

static json_t *foreign_json(const struct kvblk_member_state *member)
{
	json_t *array = json_array();
	char uuid[40];

	for (; member; member = member->next) {
		const bool use = member->has_use;

		json_array_append_new(array, json_pack("{s:s, s:s, s:s, s:s, s:s, s:s,"
			" s:s*, s:b, s:b, s:b, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o}",
			"pool", member->pool,
			"name", member->name,
			"path", member->path,
			"uuid", uuid_format(member->uuid, uuid),
			"owner", member->owner,
			"state", kvblk_name(KVBLK_NAME_MEMBER_STATUS, member->state),
			"conflict", *member->conflict ? member->conflict : NULL,
			"suspect", (int)member->suspect,
			"failing", (int)member->failing,
			"hinted", (int)member->hinted,
			"size", (json_int_t)member->size,
			"segment_size", (json_int_t)member->segment_size,
			"nr_segments", (json_int_t)member->nr_segments,
			"blocks", cli_json_use(use, member->blocks),
			"lacks", cli_json_use(use, member->lacks),
			"gets", cli_json_use(use, member->gets),
			"get_bytes", cli_json_use(use, member->get_bytes),
			"get_misses", cli_json_use(use, member->get_misses)));
	}
	return array;
}

static const struct cli_syntax list_syntax = {
	.options = list_options,
	.arguments = list_arguments,
	.list = true,
	.usage = "[POOL]",
	.doc = "List the members of POOL, or of all pools. MEMBER is the permanent name of a member, DEVICE the kernel's current name of the device, PLACE the last known place of the device: NQN and namespace, or serial number.\v"
	       "Example:\n  kvblk member list kv0 -H | awk -F '\\t' '$3 != \"up\"'",
};

static int list_main(int argc, char **argv)
{
	struct member_args args = { 0 };
	struct kvblk_member_state *members;
	struct kvblk_admin *admin;
	int err, ret;

	cli_parse(&list_syntax, argc, argv, &args);
	admin = cli_open_admin();
	err = (args.foreign ? kvblk_foreign_list : kvblk_member_list)(admin, args.pool,
								      &members);
	if (err) {
		ret = cli_admin_fail(admin, err,
				     args.pool ? args.pool : "member list");
	} else if (args.list.json) {
		ret = cli_print_json(args.foreign ? foreign_json(members) :
						    member_json(members));
		kvblk_list_free(members);
	} else {
		(args.foreign ? foreign_print : member_print)(&args.list, members);
		ret = cli_flush();
		kvblk_list_free(members);
	}
	kvblk_admin_close(admin);
	return ret;
}

int member_main(int argc, char **argv)
{
	static const struct cli_verb verbs[] = {
		{ "add", add_main, "add a device to a pool" },
		{ "follow", follow_main, "read another node's member" },
		{ "unfollow", unfollow_main, "stop reading another node's member" },
		{ "remove", remove_main, "remove a member from a pool" },
		{ "rm", remove_main, NULL },
		{ "delete", remove_main, NULL },
		{ "wipe", wipe_main, "retire a device that was a member" },
		{ "list", list_main, "list members" },
		{ "ls", list_main, NULL },
		{ 0 },
	};

	return cli_run_verb(verbs,
		"Example:\n  kvblk member add kv0 --format /dev/nvme3n1\n",
		argc, argv);
}
