// SPDX-License-Identifier: MIT
/* kvblk member: devices in and out of pools. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "cli.h"
#include "member.h"

enum {
	OPT_FORMAT = CLI_OPT_FIRST,
	OPT_SEGMENT_SIZE,
};

static const struct argp_child output_children[] = {
	{ &cli_output_argp, 0, NULL, 0 },
	{ 0 },
};

void member_check_device(const struct argp_state *state, const char *device)
{
	size_t len = strlen(device);

	if (device[0] != '/')
		cli_usage(state, "device \"%s\": must be a path like /dev/nvme1n1",
			   device);
	if (len > KVBLK_PATH_LEN_MAX)
		cli_usage(state, "device %.40s...: a path has at most %d bytes",
			   device, KVBLK_PATH_LEN_MAX);
}

uint32_t member_segment_size(const struct argp_state *state, const char *text)
{
	uint64_t size = cli_size(state, "--segment-size", text, 8u << 20,
				 1u << 30);

	if (size & (size - 1))
		cli_usage(state, "--segment-size %s: must be a power of two",
			   text);
	return (uint32_t)size;
}

char *member_format_uuid(const uint8_t uuid[16], char buf[40])
{
	char *to = buf;

	for (int i = 0; i < 16; i++) {
		if (i == 4 || i == 6 || i == 8 || i == 10)
			*to++ = '-';
		to += sprintf(to, "%02x", uuid[i]);
	}
	return buf;
}

bool member_parse_uuid(const char *text, uint8_t uuid[16])
{
	const char *at = text;
	char usual[40];

	for (int i = 0; i < 16; i++, at += 2) {
		at += *at == '-';
		if (sscanf(at, "%2hhx", &uuid[i]) != 1)
			return false;
	}
	return !strcasecmp(member_format_uuid(uuid, usual), text);
}

static const char *status_text(const struct kvblk_member_state *member)
{
	/* one that is dead or on its way out may have failed before */
	if (member->state <= KVBLK_MEMBER_STATUS_UP && member->suspect)
		return "suspect";
	if (member->state <= KVBLK_MEMBER_STATUS_UP && member->failing)
		return "failing";
	return kvblk_member_status_name(member->state);
}

void member_print(const struct kvblk_member_state *member)
{
	char size[32], segment[32];

	printf("%-12s %-12s %-10s %10s %10s %9s %7s %7s  %s\n", "POOL", "MEMBER",
	       "STATE", "SIZE", "SEGMENT", "SEGMENTS", "FREE", "SEALED", "PATH");
	for (; member; member = member->next)
		printf("%-12s %-12s %-10s %10s %10s %9u %7u %7u  %s\n",
		       member->pool, member->name, status_text(member),
		       cli_format_bytes(member->size, size, sizeof(size)),
		       cli_format_bytes(member->segment_size, segment,
					sizeof(segment)),
		       member->nr_segments, member->free_segments,
		       member->sealed_segments, member->path);
}

static json_t *json_member(const struct kvblk_member_state *member)
{
	char uuid[40], incarnation[20];

	/* as text: JSON readers take numbers above 2^53 for doubles */
	snprintf(incarnation, sizeof(incarnation), "%016" PRIx64,
		 member->incarnation);
	return json_pack("{s:s, s:s, s:s, s:s, s:I, s:s, s:b, s:b, s:I, s:I, s:I,"
			 " s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:I, s:b}",
		"pool", member->pool,
		"name", member->name,
		"path", member->path,
		"uuid", member_format_uuid(member->uuid, uuid),
		"slot", (json_int_t)member->slot,
		"state", kvblk_member_status_name(member->state),
		"suspect", (int)member->suspect,
		"failing", (int)member->failing,
		"size", (json_int_t)member->size,
		"segment_size", (json_int_t)member->segment_size,
		"nr_segments", (json_int_t)member->nr_segments,
		"free_segments", (json_int_t)member->free_segments,
		"ready_segments", (json_int_t)member->ready_segments,
		"open_segments", (json_int_t)member->open_segments,
		"sealed_segments", (json_int_t)member->sealed_segments,
		"record_align", (json_int_t)member->record_align,
		"inflight", (json_int_t)member->inflight,
		"incarnation", incarnation,
		"restored", (json_int_t)member->restored,
		"formatted", (int)member->formatted);
}

json_t *member_json(const struct kvblk_member_state *member)
{
	json_t *array = json_array();

	for (; member; member = member->next)
		json_array_append_new(array, json_member(member));
	return array;
}

struct member_args {
	bool json;
	bool pool_only;
	const char *pool;
	const char *member;
	uint32_t segment_size;
	uint32_t add_flags;
};

static error_t parse_member(int key, char *arg, struct argp_state *state)
{
	struct member_args *args = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &args->json;
		return 0;
	case OPT_FORMAT:
		args->add_flags |= KVBLK_ADD_FLAG_FORMAT;
		return 0;
	case 'f':
		args->add_flags |= KVBLK_ADD_FLAG_FORCE;
		return 0;
	case OPT_SEGMENT_SIZE:
		args->segment_size = member_segment_size(state, arg);
		return 0;
	case ARGP_KEY_ARG:
		if (state->arg_num == 0) {
			cli_check_pool_name(state, arg);
			args->pool = arg;
			return 0;
		}
		if (state->arg_num > 1 || args->pool_only)
			cli_usage(state, "too many arguments, from \"%s\" on",
				   arg);
		args->member = arg;
		return 0;
	case ARGP_KEY_END:
		if (args->pool_only)
			return 0;
		if (!args->pool)
			cli_usage(state, "which pool? Give POOL and DEVICE");
		if (!args->member)
			cli_usage(state, "which device? Give POOL and DEVICE");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static error_t parse_add(int key, char *arg, struct argp_state *state)
{
	if (key == ARGP_KEY_ARG && state->arg_num == 1)
		member_check_device(state, arg);
	return parse_member(key, arg, state);
}

static const struct argp_option add_options[] = {
	{ "format", OPT_FORMAT, NULL, 0,
	  "Make a new, empty member: what the device holds is lost", 0 },
	{ "force", 'f', NULL, 0,
	  "Take a device that another node owns and did not let go of in good order", 0 },
	{ "segment-size", OPT_SEGMENT_SIZE, "BYTES", 0,
	  "Its segments: 8M to 1G, a power of two (default: by the device's size)", 0 },
	{ 0 },
};

static const struct argp add_argp = {
	.options = add_options,
	.parser = parse_add,
	.args_doc = "POOL DEVICE",
	.doc = "Add DEVICE to POOL, while it works. A blank device becomes a new, empty member. A member that was away while POOL was up keeps its blocks, but for those that were put or deleted meanwhile. Any other device is refused without --format.\v"
	       "Example:\n  kvblk member add kv0 --format /dev/nvme3n1",
	.children = output_children,
};

static int add_main(int argc, char **argv)
{
	struct member_args args = { 0 };
	struct kvblk_member_spec spec;
	struct kvblk_admin *admin;
	int err, ret;

	cli_parse(&add_argp, argc, argv, &args);
	ret = cli_open_admin(&admin);
	if (ret)
		return ret;
	spec = (struct kvblk_member_spec){
		.path = args.member,
		.segment_size = args.segment_size,
	};
	err = kvblk_member_add(admin, args.pool, &spec, args.add_flags);
	if (err)
		ret = cli_admin_fail(admin, err, args.member);
	else if (args.json)
		ret = cli_print_json(json_pack("{s:s, s:s, s:b}",
			"pool", args.pool, "path", args.member, "added", 1));
	kvblk_admin_close(admin);
	return ret;
}

static const struct argp remove_argp = {
	.parser = parse_member,
	.args_doc = "POOL MEMBER",
	.doc = "Remove MEMBER, a name, a uuid or a device's path, from POOL, while it works. Its blocks are misses at once; the event member-down tells when the device is free. A member that is missing belongs to POOL no longer.\v"
	       "Example:\n  kvblk member remove kv0 nvme3n1",
	.children = output_children,
};

/* The name of the member that was added as @path; @path if there is none. */
static const char *name_of(const struct kvblk_member_state *members,
			   const char *path)
{
	for (; members; members = members->next) {
		if (!strcmp(members->path, path))
			return members->name;
	}
	return path;
}

static int remove_main(int argc, char **argv)
{
	struct kvblk_member_state *members = NULL;
	struct member_args args = { 0 };
	struct kvblk_admin *admin;
	uint8_t uuid[16];
	const char *name;
	int err = 0, ret;

	cli_parse(&remove_argp, argc, argv, &args);
	ret = cli_open_admin(&admin);
	if (ret)
		return ret;
	if (strchr(args.member, '/'))
		err = kvblk_member_get(admin, args.pool, &members);
	name = name_of(members, args.member);
	if (err) {
		ret = cli_admin_fail(admin, err, args.pool);
	} else if (strchr(name, '/')) {
		ret = cli_fail("%s: not a member of pool %s; see: kvblk member list %s",
			       args.member, args.pool, args.pool);
	} else {
		err = member_parse_uuid(name, uuid) ?
			kvblk_member_remove_uuid(admin, args.pool, uuid) :
			kvblk_member_remove(admin, args.pool, name);
		if (err)
			ret = cli_admin_fail(admin, err, args.member);
		else if (args.json)
			ret = cli_print_json(json_pack("{s:s, s:s, s:b}",
				"pool", args.pool, "name", name, "removed", 1));
	}
	kvblk_member_free(members);
	kvblk_admin_close(admin);
	return ret;
}

static const struct argp list_argp = {
	.parser = parse_member,
	.args_doc = "[POOL]",
	.doc = "List the members of POOL, or of all pools.\v"
	       "Example:\n  kvblk member list kv0",
	.children = output_children,
};

static int list_main(int argc, char **argv)
{
	struct member_args args = { .pool_only = true };
	struct kvblk_member_state *members;
	struct kvblk_admin *admin;
	int err, ret;

	cli_parse(&list_argp, argc, argv, &args);
	ret = cli_open_admin(&admin);
	if (ret)
		return ret;
	err = kvblk_member_get(admin, args.pool, &members);
	if (err) {
		ret = cli_admin_fail(admin, err,
				     args.pool ? args.pool : "member list");
	} else if (args.json) {
		ret = cli_print_json(member_json(members));
		kvblk_member_free(members);
	} else {
		member_print(members);
		ret = cli_flush();
		kvblk_member_free(members);
	}
	kvblk_admin_close(admin);
	return ret;
}

int member_main(int argc, char **argv)
{
	static const struct cli_verb verbs[] = {
		{ "add", add_main, "add a device to a pool" },
		{ "remove", remove_main, "remove a member from a pool" },
		{ "rm", remove_main, NULL },
		{ "delete", remove_main, NULL },
		{ "list", list_main, "list members" },
		{ "ls", list_main, NULL },
		{ 0 },
	};

	return cli_run_verb(verbs,
		"Example:\n  kvblk member add kv0 --format /dev/nvme3n1\n",
		argc, argv);
}
