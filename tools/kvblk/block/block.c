// SPDX-License-Identifier: MIT
/*
 * kvblk put, get, exists, rm, hint: single blocks, to and from files. get opens its file only
 * after the block has arrived and was checked.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/options.h"

/* put and get use @key_text, exists, rm and hint use @keys */
struct block_args {
	struct cli_list list;
	bool hex;
	const char *pool;
	const char *key_text;
	const char *parent_text;
	const char *file;
	struct cli_words keys;
	struct cli_key key;
	struct cli_key parent;
	uint8_t priority;
	double ttl_s;
	uint32_t offset;
	uint32_t length;	/* bytes of a part; 0: up to the end */
	uint64_t caller_tag;
	uint64_t layout_tag;
	double retain_s;	/* below 0: not given; then @priority may be UINT8_MAX, too */
	bool demote;
	bool release;
	bool times;
	uint32_t *us;		/* predicted time of each key, with @times */
	size_t at;		/* index of the key that is handled */
};

#define AT(field) CLI_FIELD(struct block_args, field)

static const struct cli_option one_key[] = {
	{ "POOL", 0, CLI_NODE, AT(pool), .required = true },
	{ "KEY", 0, CLI_STRING, AT(key_text), .required = true },
	{ "FILE", 0, CLI_STRING, AT(file) },
	{ 0 },
};

static const struct cli_option many_keys[] = {
	{ "POOL", 0, CLI_NODE, AT(pool), .required = true },
	{ "KEY", 0, CLI_WORDS, AT(keys), .required = true },
	{ 0 },
};

/* Parse the keys. --hex is known only when all options have been read. */
static void check_key(const struct argp_state *state, void *values)
{
	struct block_args *args = values;

	cli_key(state, args->key_text, args->hex, &args->key);
	if (args->parent_text)
		cli_key(state, args->parent_text, args->hex, &args->parent);
}

/* Require a FILE with JSON, because the block itself would go to stdout. */
static void check_get(const struct argp_state *state, void *values)
{
	const struct block_args *args = values;

	if (args->list.json && (!args->file || !strcmp(args->file, "-")))
		cli_usage(state, "-o json needs a FILE, for the block itself would go to stdout too");
	check_key(state, values);
}

/* Check all keys, so that rm removes nothing if any key is wrong. */
static void check_keys(const struct argp_state *state, void *values)
{
	struct block_args *args = values;

	for (size_t i = 0; i < args->keys.nr; i++)
		cli_key(state, args->keys.words[i], args->hex, &args->key);
}

/* Returns the key as JSON: its text, or its hex digits. */
static json_t *json_key(const struct block_args *args, const char *text)
{
	json_t *json = json_string(text);

	if (json || args->hex)
		return json;
	/* the bytes are not UTF-8 */
	return json_string("(not UTF-8)");
}

/* Write a tag as text, because JSON readers turn numbers above 2^53 into doubles. */
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
	/* an extra byte reveals a file that is too long */
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

static const struct cli_option put_options[] = {
	{ "hex", 0, CLI_FLAG, AT(hex), NULL, "KEY and PARENT are hex digits" },
	{ "parent", 0, CLI_STRING, AT(parent_text), "PARENT",
	  "Key of the previous block in the prefix chain" },
	{ "priority", 0, CLI_NUMBER, AT(priority), "N", "0 (dropped first, the default) to 3",
	  0, KVBLK_PRIORITY_MAX },
	{ "ttl", 0, CLI_TIME, AT(ttl_s), "TIME", "The block expires after this time, like 30s or 1h",
	  0.001, KVBLK_TTL_MAX },
	{ "caller-tag", 0, CLI_NUMBER, AT(caller_tag), "N", "Number stored with the block" },
	{ "layout-tag", 0, CLI_NUMBER, AT(layout_tag), "N", "Number stored with the block" },
	{ 0 },
};

static const struct cli_syntax put_syntax = {
	.options = put_options,
	.arguments = one_key,
	.check = check_key,
	.usage = "POOL KEY [FILE]",
	.doc = "Store FILE or stdin as the block KEY of POOL. POOL is the name of a pool or the path of a node.\v"
	       "Example:\n  kvblk put kv0 prefix/42 block.bin\n\n"
	       "A block that already exists is left unchanged; a different length is an error.",
};

static int put_report(const struct block_args *args,
		      const struct kvblk_result *result, size_t len)
{
	const char *what = "stored";

	if (result->res == -EEXIST && !(result->flags & KVBLK_RES_LEN_DIFFERS))
		what = "exists";
	else if (result->res == -EEXIST)
		return cli_fail("%s: a block of another length is stored already; kvblk rm it first",
				args->key_text);
	else if (result->res == -ENOBUFS)
		return cli_fail("%s: declined by the pool's admission policy, nothing was written; put it again when it is used again",
				args->key_text);
	else if (result->res < 0)
		return cli_fail("%s: %s", args->key_text,
				kvblk_result_text(result->res));
	if (args->list.json)
		return cli_print_json(json_pack("{s:s, s:o, s:s, s:I, s:b}",
			"pool", args->pool,
			"key", json_key(args, args->key_text),
			"result", what,
			"length", (json_int_t)len,
			"direct", !!(result->flags & KVBLK_RES_DIRECT)));
	if (result->res == -EEXIST)
		fprintf(stderr, "kvblk: %s: is stored already\n",
			args->key_text);
	return CLI_OK;
}

int put_main(int argc, char **argv)
{
	struct block_args args = { 0 };
	struct kvblk_piece piece;
	struct kvblk_result result;
	struct kvblk_op_ext ext;
	struct kvblk_op op;
	struct kvblk *kv;
	void *data = NULL;
	size_t len = 0;
	int err, ret;

	cli_parse(&put_syntax, argc, argv, &args);

	kv = cli_open_pool(args.pool);
	ret = read_all(args.file, &data, &len);
	if (ret)
		goto close_pool;

	/* cannot fail: read_all() has checked the length */
	kvblk_prep_piece(&piece, NULL, (uintptr_t)data, len);
	kvblk_prep_put(&op, args.key.bytes, args.key.len, &piece, 1);
	kvblk_prep_ext(&op, &ext);
	op.priority = args.priority;
	/* round up: a block must live at least as long as requested */
	op.ttl_s = (uint32_t)ceil(args.ttl_s);
	ext.caller_tag = args.caller_tag;
	ext.layout_tag = args.layout_tag;
	if (args.parent_text) {
		ext.parent = (uintptr_t)args.parent.bytes;
		ext.parent_len = (uint32_t)args.parent.len;
	}
	err = kvblk_submit(kv, &op, 1, &result, 0);
	if (err)
		ret = cli_fail("%s: %s", args.key_text, strerror(-err));
	else
		ret = put_report(&args, &result, len);
	free(data);
close_pool:
	kvblk_close(kv);
	return ret;
}

static const struct cli_option get_options[] = {
	{ "hex", 0, CLI_FLAG, AT(hex), NULL, "KEY is hex digits" },
	{ "offset", 0, CLI_SIZE, AT(offset), "BYTES", "Fetch a part that begins at this offset", 0, KVBLK_VALUE_MAX },
	{ "length", 0, CLI_SIZE, AT(length), "BYTES", "Fetch a part of this many bytes",
	  1, KVBLK_VALUE_MAX },
	{ 0 },
};

static const struct cli_syntax get_syntax = {
	.options = get_options,
	.arguments = one_key,
	.check = check_get,
	.usage = "POOL KEY [FILE]",
	.doc = "Fetch the block KEY of POOL to FILE or stdout. POOL is the name of a pool or the path of a node.\v"
	       "Example:\n  kvblk get kv0 prefix/42 block.bin\n\n"
	       "Exits with 3 if there is no such block; FILE is then left unchanged.",
};

/*
 * Fetch the block into a new buffer. Retry with a larger buffer if a longer block has
 * replaced the block since its length was read.
 */
static int fetch(struct kvblk *kv, const struct block_args *args, void **data,
		 struct kvblk_result *result)
{
	const struct cli_key *key = &args->key;
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
		kvblk_prep_piece(&piece, NULL, (uintptr_t)*data, room);
		kvblk_prep_get(&op, key->bytes, key->len, &piece, 1);
		if (args->offset || args->length) {
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
	char layout_tag[24], caller_tag[24];
	struct kvblk *kv;
	void *data;
	int err, ret;

	cli_parse(&get_syntax, argc, argv, &args);
	kv = cli_open_pool(args.pool);
	err = fetch(kv, &args, &data, &result);
	kvblk_close(kv);
	if (err) {
		ret = cli_fail("%s: %s", args.key_text, kvblk_result_text(err));
		return err == -ENOENT ? CLI_MISS : ret;
	}
	ret = write_all(args.file, data, (size_t)result.res);
	free(data);
	if (ret == CLI_OK && args.list.json)
		ret = cli_print_json(json_pack("{s:s, s:o, s:s, s:I, s:I, s:s, s:s, s:b}",
			"pool", args.pool,
			"key", json_key(&args, args.key_text),
			"file", args.file,
			"fetched", (json_int_t)result.res,
			"length", (json_int_t)result.value_len,
			"layout_tag", format_tag(result.layout_tag, layout_tag),
			"caller_tag", format_tag(result.caller_tag, caller_tag),
			"direct", !!(result.flags & KVBLK_RES_DIRECT)));
	return ret;
}

static const struct cli_option key_options[] = {
	{ "hex", 0, CLI_FLAG, AT(hex), NULL, "KEYs are hex digits" },
	{ 0 },
};

static const struct cli_option hint_options[] = {
	{ "hex", 0, CLI_FLAG, AT(hex), NULL, "KEYs are hex digits" },
	{ "priority", 0, CLI_NUMBER, AT(priority), "N", "New priority, 0 (evicted first) to 3", 0,
	  KVBLK_PRIORITY_MAX },
	{ "retain", 0, CLI_TIME, AT(retain_s), "TIME",
	  "Keep the blocks for this time, as far as there is space; 0: no longer", 0, KVBLK_RETAIN_MAX },
	{ "demote", 0, CLI_FLAG, AT(demote), NULL, "The blocks need not be in memory" },
	{ "release", 0, CLI_FLAG, AT(release), NULL, "The blocks will not be used: evict them first" },
	{ 0 },
};

/* Returns the flags of the hint. */
static unsigned int hint_flags(const struct block_args *args)
{
	return (args->priority != UINT8_MAX ? KVBLK_OPF_PRIORITY : 0) |
	       (args->retain_s >= 0 ? KVBLK_OPF_RETAIN : 0) | (args->demote ? KVBLK_OPF_DEMOTE : 0) |
	       (args->release ? KVBLK_OPF_RELEASE : 0);
}

static void check_hint(const struct argp_state *state, void *values)
{
	const struct block_args *args = values;
	unsigned int flags = hint_flags(args);

	check_keys(state, values);
	if (!flags)
		cli_usage(state, "missing --priority, --retain, --demote or --release");
	if (args->release && flags != KVBLK_OPF_RELEASE)
		cli_usage(state, "--release excludes other hints");
}

static const struct cli_syntax hint_syntax = {
	.options = hint_options,
	.arguments = many_keys,
	.check = check_hint,
	.usage = "POOL KEY...",
	.doc = "Tell POOL what is known of the future of the blocks KEY. Does no I/O.\v"
	       "Example:\n  kvblk hint kv0 prefix/42 --retain 1h\n\n"
	       "Exits with 3 if a block is absent.",
};

static const struct cli_option exists_options[] = {
	{ "hex", 0, CLI_FLAG, AT(hex), NULL, "KEYs are hex digits" },
	{ "times", 0, CLI_FLAG, AT(times), NULL,
	  "Show when gets of all blocks up to this one would be complete, too" },
	{ 0 },
};

static const struct cli_syntax exists_syntax = {
	.options = exists_options,
	.arguments = many_keys,
	.check = check_keys,
	.usage = "POOL KEY...",
	.doc = "Show which of the blocks KEY are in POOL, and their lengths. Does no I/O, and does not delay their eviction.\v"
	       "Example:\n  kvblk exists kv0 prefix/42 && echo here\n\n"
	       "Exits with 3 if a block is absent.",
};

static const struct cli_syntax rm_syntax = {
	.options = key_options,
	.arguments = many_keys,
	.check = check_keys,
	.usage = "POOL KEY...",
	.doc = "Remove the blocks KEY from POOL, durably.\v"
	       "Example:\n  kvblk rm kv0 prefix/42\n\n"
	       "Exits with 3 if a block was absent.",
};

/* Predict the times of all keys by one quiet lookup. Returns 0 or an error. */
static int exists_times(struct kvblk *kv, struct block_args *args)
{
	const unsigned int nr = (unsigned int)args->keys.nr;
	uint16_t *lens = calloc(nr, sizeof(*lens));
	char *keys = malloc(args->keys.nr * KVBLK_KEY_MAX), *end = keys;
	struct kvblk_lookup lookup = {
		.flags = KVBLK_LOOKUP_QUIET,
		.nr_keys = nr,
		.keys = (uintptr_t)keys,
		.key_lens = (uintptr_t)lens,
	};
	int err = -ENOMEM;

	args->us = calloc(nr, sizeof(*args->us));
	lookup.times = (uintptr_t)args->us;
	for (unsigned int i = 0; i < nr && lens && keys && args->us; i++) {
		cli_key(NULL, args->keys.words[i], args->hex, &args->key);
		lens[i] = (uint16_t)args->key.len;
		memcpy(end, args->key.bytes, args->key.len);
		end += args->key.len;
		err = 0;
	}
	err = err ?: kvblk_lookup_keys(kv, &lookup, sizeof(lookup));
	free(lens);
	free(keys);
	return err;
}

/*
 * Handle one key: print a line, or append an object to @list. Returns 0, -ENOENT for a
 * missing block, or another error, which the caller reports.
 */
static int exists_one(struct kvblk *kv, const struct block_args *args,
		      const struct cli_key *key, json_t *list)
{
	uint32_t size = 0;
	/* quiet, or else the lookup would delay the eviction of the block */
	struct kvblk_lookup lookup = {
		.flags = KVBLK_LOOKUP_QUIET,
		.nr_keys = 1,
		.key_stride = (uint32_t)key->len,
		.keys = (uintptr_t)key->bytes,
		.sizes = (uintptr_t)&size,
	};
	int err = kvblk_lookup_keys(kv, &lookup, sizeof(lookup));
	json_t *json;

	if (!err && !lookup.nr_present)
		err = -ENOENT;
	if (err && err != -ENOENT)
		return err;
	if (args->list.json) {
		json = json_pack("{s:o, s:b, s:I}", "key", json_key(args, key->text),
				 "present", !err, "length", (json_int_t)size);
		if (args->times)
			json_object_set_new(json, "time_us", json_integer(args->us[args->at]));
		json_array_append_new(list, json);
	} else if (!err && args->times) {
		printf("%s  %u  %u us\n", key->text, size, args->us[args->at]);
	} else if (!err) {
		printf("%s  %u\n", key->text, size);
	} else {
		printf("%s  absent\n", key->text);
	}
	return err;
}

static int rm_one(struct kvblk *kv, const struct block_args *args, const struct cli_key *key,
		  json_t *list)
{
	int err = kvblk_delete(kv, key->bytes, key->len);

	if (err && err != -ENOENT)
		return err;
	if (args->list.json)
		json_array_append_new(list, json_pack("{s:o, s:b}",
			"key", json_key(args, key->text), "removed", !err));
	else if (err)
		cli_fail("%s: %s", key->text, kvblk_result_text(err));
	return err;
}

static int hint_one(struct kvblk *kv, const struct block_args *args, const struct cli_key *key,
		    json_t *list)
{
	const struct kvblk_hint hint = {
		.size = sizeof(hint),
		.flags = hint_flags(args),
		.priority = args->priority != UINT8_MAX ? args->priority : 0,
		.retain_s = args->retain_s > 0 ? (uint32_t)ceil(args->retain_s) : 0,
	};
	uint16_t len = (uint16_t)key->len;
	unsigned int present;
	int err = kvblk_hint_keys(kv, key->bytes, &len, 1, &hint, &present);

	if (err)
		return err;
	if (args->list.json)
		json_array_append_new(list, json_pack("{s:o, s:b}",
			"key", json_key(args, key->text), "present", present != 0));
	else if (!present)
		cli_fail("%s: %s", key->text, kvblk_result_text(-ENOENT));
	return present ? 0 : -ENOENT;
}

static int each_key(const struct cli_syntax *syntax, int argc, char **argv,
		    int (*one)(struct kvblk *kv, const struct block_args *args,
			       const struct cli_key *key, json_t *list))
{
	struct block_args args = { .priority = UINT8_MAX, .retain_s = -1 };
	json_t *list = NULL;
	struct kvblk *kv;
	int ret = CLI_OK, err;

	cli_parse(syntax, argc, argv, &args);
	kv = cli_open_pool(args.pool);
	err = args.times ? exists_times(kv, &args) : 0;
	if (err) {
		kvblk_close(kv);
		free(args.us);
		return cli_fail("no times are predicted: %s", kvblk_result_text(err));
	}
	if (args.list.json)
		list = json_array();
	for (size_t i = 0; i < args.keys.nr; i++) {
		args.at = i;
		cli_key(NULL, args.keys.words[i], args.hex, &args.key);
		err = one(kv, &args, &args.key, list);
		if (err == -ENOENT && ret == CLI_OK)
			ret = CLI_MISS;
		else if (err && err != -ENOENT)
			ret = cli_fail("%s: %s", args.key.text, kvblk_result_text(err));
	}
	kvblk_close(kv);
	free(args.us);
	err = args.list.json ? cli_print_json(list) : cli_flush();
	return err ? err : ret;
}

int exists_main(int argc, char **argv)
{
	return each_key(&exists_syntax, argc, argv, exists_one);
}

int rm_main(int argc, char **argv)
{
	return each_key(&rm_syntax, argc, argv, rm_one);
}

int hint_main(int argc, char **argv)
{
	return each_key(&hint_syntax, argc, argv, hint_one);
}
