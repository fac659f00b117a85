// SPDX-License-Identifier: MIT
/*
 * kvblk put, get, exists, rm: single blocks, to and from files. A file that a
 * get writes is opened only when the block is here, whole and checked.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

enum {
	OPT_HEX = CLI_OPT_FIRST,
	OPT_PARENT,
	OPT_PRIORITY,
	OPT_TTL,
	OPT_CALLER_TAG,
	OPT_LAYOUT_TAG,
	OPT_OFFSET,
	OPT_LENGTH,
};

struct block_args {
	bool json;
	bool hex;
	bool partial;
	const char *pool;
	const char *file;
	const char *parent;
	/* the keys, as typed until all options are known */
	char **texts;
	size_t nr_keys;
	uint8_t priority;
	uint32_t ttl_s;
	uint32_t offset;
	uint32_t length;
	uint64_t caller_tag;
	uint64_t layout_tag;
};

static error_t parse_block(int key, char *arg, struct argp_state *state,
			   bool many_keys)
{
	struct block_args *args = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &args->json;
		return 0;
	case OPT_HEX:
		args->hex = true;
		return 0;
	case OPT_PARENT:
		args->parent = arg;
		return 0;
	case OPT_PRIORITY:
		args->priority = (uint8_t)cli_number(state, "--priority", arg, 0,
						     KVBLK_PRIORITY_MAX);
		return 0;
	case OPT_TTL:
		/* a block lives as long as was asked, so part of a second is one */
		args->ttl_s = (uint32_t)ceil(cli_time(state, "--ttl", arg, 0.001,
						      UINT32_MAX));
		return 0;
	case OPT_CALLER_TAG:
		args->caller_tag = cli_number(state, "--caller-tag", arg, 0,
					      UINT64_MAX);
		return 0;
	case OPT_LAYOUT_TAG:
		args->layout_tag = cli_number(state, "--layout-tag", arg, 0,
					      UINT64_MAX);
		return 0;
	case OPT_OFFSET:
		args->offset = (uint32_t)cli_size(state, "--offset", arg, 0,
						  KVBLK_VALUE_MAX);
		args->partial = true;
		return 0;
	case OPT_LENGTH:
		args->length = (uint32_t)cli_size(state, "--length", arg, 1,
						  KVBLK_VALUE_MAX);
		args->partial = true;
		return 0;
	case ARGP_KEY_ARG:
		if (state->arg_num == 0) {
			cli_check_pool_or_node(state, arg);
			args->pool = arg;
			return 0;
		}
		if (many_keys || state->arg_num == 1) {
			if (!args->texts)
				args->texts = &state->argv[state->next - 1];
			args->nr_keys++;
			return 0;
		}
		cli_at_most(state, 3, arg);
		args->file = arg;
		return 0;
	case ARGP_KEY_END:
		if (!args->pool)
			cli_usage(state, "which pool? Give POOL and KEY");
		if (!args->nr_keys)
			cli_usage(state, "which block? Give a KEY");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static error_t parse_one_key(int key, char *arg, struct argp_state *state)
{
	return parse_block(key, arg, state, false);
}

static error_t parse_many_keys(int key, char *arg, struct argp_state *state)
{
	return parse_block(key, arg, state, true);
}

/* Parses @text when all options are known; @program is for the message. */
static void block_key(const char *program, const struct block_args *args,
		      const char *text, struct cli_key *key)
{
	struct argp argp = { 0 };
	struct argp_state state = {
		.root_argp = &argp,
		.name = (char *)(uintptr_t)program,
		.err_stream = stderr,
		.out_stream = stdout,
	};

	cli_key(&state, text, args->hex, key);
}

/* A key in JSON: as typed, which is its text or its hex digits. */
static json_t *json_key(const struct block_args *args, const char *text)
{
	json_t *json = json_string(text);

	if (json || args->hex)
		return json;
	/* bytes that are no UTF-8 */
	return json_string("(not UTF-8)");
}

/* As text: JSON readers take numbers above 2^53 for doubles. */
static char *format_tag(uint64_t tag, char buf[24])
{
	snprintf(buf, 24, "0x%016" PRIx64, tag);
	return buf;
}

static int read_all(const char *file, void **data, size_t *len)
{
	const char *name = file && strcmp(file, "-") != 0 ? file : NULL;
	FILE *in = name ? fopen(name, "rb") : stdin;
	int ret = CLI_ERROR;

	if (!in)
		return cli_fail("%s: %s", name, strerror(errno));
	/* one byte more tells a file that is too long */
	*data = malloc(KVBLK_VALUE_MAX + 1);
	if (!*data) {
		cli_fail("no memory for the block");
		goto close_file;
	}
	*len = fread(*data, 1, KVBLK_VALUE_MAX + 1, in);
	if (ferror(in))
		cli_fail("%s: %s", name ? name : "stdin", strerror(errno));
	else if (!*len)
		cli_fail("%s is empty; a block has at least one byte",
			 name ? name : "stdin");
	else if (*len > KVBLK_VALUE_MAX)
		cli_fail("%s is longer than a block can be (%u MiB)",
			 name ? name : "stdin", KVBLK_VALUE_MAX >> 20);
	else
		ret = CLI_OK;
	if (ret != CLI_OK)
		free(*data);
close_file:
	if (name)
		fclose(in);
	return ret;
}

static int write_all(const char *file, const void *data, size_t len)
{
	const char *name = file && strcmp(file, "-") != 0 ? file : NULL;
	FILE *out = name ? fopen(name, "wb") : stdout;
	bool ok;

	if (!out)
		return cli_fail("%s: %s", name, strerror(errno));
	ok = fwrite(data, 1, len, out) == len;
	if (name)
		ok = !fclose(out) && ok;
	else
		ok = !fflush(out) && ok;
	if (!ok)
		return cli_fail("%s: %s", name ? name : "stdout",
				strerror(errno));
	return CLI_OK;
}

static const struct argp_option put_options[] = {
	{ "hex", OPT_HEX, NULL, 0, "KEY and PARENT are hex digits", 0 },
	{ "parent", OPT_PARENT, "PARENT", 0,
	  "key of the block before this one in its prefix chain", 0 },
	{ "priority", OPT_PRIORITY, "N", 0, "0 (drop first, the default) to 3", 0 },
	{ "ttl", OPT_TTL, "TIME", 0, "the block is gone after this time, like 30s or 1h", 0 },
	{ "caller-tag", OPT_CALLER_TAG, "N", 0, "kept with the block", 0 },
	{ "layout-tag", OPT_LAYOUT_TAG, "N", 0, "kept with the block", 0 },
	{ 0 },
};

static const struct argp put_argp = {
	.options = put_options,
	.parser = parse_one_key,
	.args_doc = "POOL KEY [FILE]",
	.doc = "Store FILE, or stdin, as the block KEY of POOL, a pool's name or a node's path.\v"
	       "Example:\n  kvblk put kv0 prefix/42 block.bin\n\n"
	       "A block that is stored already is left as it is; that is an error only when its length differs.",
	.children = cli_output_children,
};

static int put_report(const struct block_args *args,
		      const struct kvblk_result *result, size_t len)
{
	const char *what = "stored";

	if (result->res == -EEXIST && !(result->flags & KVBLK_RES_LEN_DIFFERS))
		what = "exists";
	else if (result->res == -EEXIST)
		return cli_fail("%s: a block of another length is stored already; kvblk rm it first",
				args->texts[0]);
	else if (result->res == -ENOBUFS)
		return cli_fail("%s: declined by the pool's admission policy, nothing was written; put it again when it is used again",
				args->texts[0]);
	else if (result->res < 0)
		return cli_fail("%s: %s", args->texts[0],
				kvblk_strerror(result->res));
	if (args->json)
		return cli_print_json(json_pack("{s:s, s:o, s:s, s:I, s:b}",
			"pool", args->pool,
			"key", json_key(args, args->texts[0]),
			"result", what,
			"length", (json_int_t)len,
			"direct", !!(result->flags & KVBLK_RES_DIRECT)));
	if (result->res == -EEXIST)
		fprintf(stderr, "kvblk: %s: is stored already\n",
			args->texts[0]);
	return CLI_OK;
}

int put_main(int argc, char **argv)
{
	struct block_args args = { 0 };
	struct cli_key key, parent;
	struct kvblk_piece piece;
	struct kvblk_result result;
	struct kvblk_op_ext ext;
	struct kvblk_op op;
	struct kvblk *kv;
	void *data = NULL;
	size_t len = 0;
	int err, ret;

	cli_parse(&put_argp, argc, argv, &args);
	block_key(argv[0], &args, args.texts[0], &key);
	if (args.parent)
		block_key(argv[0], &args, args.parent, &parent);

	ret = cli_open_pool(args.pool, &kv);
	if (ret)
		return ret;
	ret = read_all(args.file, &data, &len);
	if (ret)
		goto close_pool;

	kvblk_piece_user(&piece, data, len);
	kvblk_prep_put(&op, key.bytes, key.len, &piece, 1);
	op.priority = args.priority;
	op.ttl_s = args.ttl_s;
	op.caller_tag = args.caller_tag;
	op.layout_tag = args.layout_tag;
	if (args.parent) {
		kvblk_prep_ext(&op, &ext);
		ext.parent = (uintptr_t)parent.bytes;
		ext.parent_len = (uint32_t)parent.len;
	}
	err = kvblk_submit(kv, &op, 1, &result, 0);
	if (err)
		ret = cli_fail("%s: %s", args.texts[0], kvblk_strerror(err));
	else
		ret = put_report(&args, &result, len);
	free(data);
close_pool:
	kvblk_close(kv);
	return ret;
}

static const struct argp_option get_options[] = {
	{ "hex", OPT_HEX, NULL, 0, "KEY is hex digits", 0 },
	{ "offset", OPT_OFFSET, "BYTES", 0, "fetch a part, from here", 0 },
	{ "length", OPT_LENGTH, "BYTES", 0, "fetch a part, so many bytes", 0 },
	{ 0 },
};

static const struct argp get_argp = {
	.options = get_options,
	.parser = parse_one_key,
	.args_doc = "POOL KEY [FILE]",
	.doc = "Fetch the block KEY of POOL, a pool's name or a node's path, to FILE, or stdout.\v"
	       "Example:\n  kvblk get kv0 prefix/42 block.bin\n\n"
	       "Exits with 3 when there is no such block; FILE is then left alone.",
	.children = cli_output_children,
};

/*
 * Fetches to a new buffer. The block may be replaced by a longer one between
 * the question for its length and the get: then ask again.
 */
static int fetch(struct kvblk *kv, const struct block_args *args,
		 const struct cli_key *key, void **data,
		 struct kvblk_result *result)
{
	struct kvblk_piece piece;
	struct kvblk_op op;
	uint32_t room;
	int err;

	err = kvblk_exists(kv, key->bytes, key->len, &room);
	while (!err) {
		if (args->length)
			room = args->length;
		*data = malloc(room);
		if (!*data)
			return -ENOMEM;
		kvblk_piece_user(&piece, *data, room);
		kvblk_prep_get(&op, key->bytes, key->len, &piece, 1);
		if (args->partial) {
			op.flags = KVBLK_OPF_PARTIAL;
			op.offset = args->offset;
		}
		err = kvblk_submit(kv, &op, 1, result, 0);
		if (!err && result->res >= 0)
			return 0;
		free(*data);
		if (!err && result->res == -EMSGSIZE)
			room = result->value_len;
		else if (!err)
			err = result->res;
	}
	return err;
}

int get_main(int argc, char **argv)
{
	struct block_args args = { 0 };
	struct kvblk_result result;
	struct cli_key key;
	char layout_tag[24], caller_tag[24];
	struct kvblk *kv;
	void *data;
	int err, ret;

	cli_parse(&get_argp, argc, argv, &args);
	if (args.json && (!args.file || !strcmp(args.file, "-"))) {
		fprintf(stderr, "%s: -o json needs a FILE, for the block itself would go to stdout too\n",
			argv[0]);
		return CLI_USAGE;
	}
	block_key(argv[0], &args, args.texts[0], &key);

	ret = cli_open_pool(args.pool, &kv);
	if (ret)
		return ret;
	err = fetch(kv, &args, &key, &data, &result);
	kvblk_close(kv);
	if (err) {
		ret = cli_fail("%s: %s", args.texts[0], kvblk_strerror(err));
		return err == -ENOENT ? CLI_MISS : ret;
	}
	ret = write_all(args.file, data, (size_t)result.res);
	free(data);
	if (ret == CLI_OK && args.json)
		ret = cli_print_json(json_pack("{s:s, s:o, s:s, s:I, s:I, s:s, s:s, s:b}",
			"pool", args.pool,
			"key", json_key(&args, args.texts[0]),
			"file", args.file,
			"fetched", (json_int_t)result.res,
			"length", (json_int_t)result.value_len,
			"layout_tag", format_tag(result.layout_tag, layout_tag),
			"caller_tag", format_tag(result.caller_tag, caller_tag),
			"direct", !!(result.flags & KVBLK_RES_DIRECT)));
	return ret;
}

static const struct argp_option key_options[] = {
	{ "hex", OPT_HEX, NULL, 0, "KEYs are hex digits", 0 },
	{ 0 },
};

static const struct argp exists_argp = {
	.options = key_options,
	.parser = parse_many_keys,
	.args_doc = "POOL KEY...",
	.doc = "Tell which of the blocks KEY are in POOL, and their lengths. Does no I/O.\v"
	       "Example:\n  kvblk exists kv0 prefix/42 && echo here\n\n"
	       "Exits with 3 when one of them is absent.",
	.children = cli_output_children,
};

static const struct argp rm_argp = {
	.options = key_options,
	.parser = parse_many_keys,
	.args_doc = "POOL KEY...",
	.doc = "Remove the blocks KEY from POOL, durably.\v"
	       "Example:\n  kvblk rm kv0 prefix/42\n\n"
	       "Exits with 3 when one of them was absent.",
	.children = cli_output_children,
};

/*
 * One key of exists or rm: 0 and what to tell, or an error. @text is printed,
 * the JSON object appended to @list.
 */
static int exists_one(struct kvblk *kv, const struct block_args *args,
		      const char *text, const struct cli_key *key,
		      json_t *list)
{
	uint32_t size = 0;
	int err = kvblk_exists(kv, key->bytes, key->len, &size);

	if (err && err != -ENOENT)
		return err;
	if (args->json)
		json_array_append_new(list, json_pack("{s:o, s:b, s:I}",
			"key", json_key(args, text), "present", !err,
			"length", (json_int_t)size));
	else if (!err)
		printf("%s  %u\n", text, size);
	else
		printf("%s  absent\n", text);
	return err;
}

static int rm_one(struct kvblk *kv, const struct block_args *args,
		  const char *text, const struct cli_key *key, json_t *list)
{
	int err = kvblk_delete(kv, key->bytes, key->len);

	if (err && err != -ENOENT)
		return err;
	if (args->json)
		json_array_append_new(list, json_pack("{s:o, s:b}",
			"key", json_key(args, text), "removed", !err));
	else if (err)
		cli_fail("%s: %s", text, kvblk_strerror(err));
	return err;
}

static int each_key(const struct argp *argp, int argc, char **argv,
		    int (*one)(struct kvblk *kv, const struct block_args *args,
			       const char *text, const struct cli_key *key,
			       json_t *list))
{
	struct block_args args = { 0 };
	struct cli_key key;
	json_t *list = NULL;
	struct kvblk *kv;
	int ret, err;

	cli_parse(argp, argc, argv, &args);
	/* a wrong key must be found before the first one is removed */
	for (size_t i = 0; i < args.nr_keys; i++)
		block_key(argv[0], &args, args.texts[i], &key);

	ret = cli_open_pool(args.pool, &kv);
	if (ret)
		return ret;
	if (args.json)
		list = json_array();
	for (size_t i = 0; i < args.nr_keys; i++) {
		block_key(argv[0], &args, args.texts[i], &key);
		err = one(kv, &args, args.texts[i], &key, list);
		if (err == -ENOENT && ret == CLI_OK)
			ret = CLI_MISS;
		else if (err && err != -ENOENT)
			ret = cli_fail("%s: %s", args.texts[i],
				       kvblk_strerror(err));
	}
	kvblk_close(kv);
	err = args.json ? cli_print_json(list) : cli_flush();
	return err ? err : ret;
}

int exists_main(int argc, char **argv)
{
	return each_key(&exists_argp, argc, argv, exists_one);
}

int rm_main(int argc, char **argv)
{
	return each_key(&rm_argp, argc, argv, rm_one);
}
