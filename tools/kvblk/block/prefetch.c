// SPDX-License-Identifier: MIT
/* kvblk prefetch: load blocks into host memory, in the given order, before they are needed. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/cli.h"
#include "cli/options.h"

#define NR_STATES	(KVBLK_PRESTAGE_EXPIRED + 1)

struct prefetch_args {
	struct cli_list list;
	bool hex;
	const char *pool;
	const char *file;
	double deadline;
	bool stop;
	struct kvblk_prestage_options options;
	struct cli_words words;
	/* the keys as typed: those of @words, then those of @file */
	char **texts;
	size_t nr;
	/* the parsed keys, concatenated */
	unsigned char *keys;
	uint16_t *lens;
	struct kvblk_prestaged *got;
};

/* ---- the keys ---- */

static void no_memory(void)
{
	cli_fail("no memory for the keys");
	exit(CLI_ERROR);
}

/* Append a key; @text must stay allocated. */
static void add_text(struct prefetch_args *args, const struct argp_state *state, char *text)
{
	if (args->nr == KVBLK_LOOKUP_MAX)
		cli_usage(state, "at most %d keys", KVBLK_LOOKUP_MAX);
	args->texts[args->nr++] = text;
}

/* Read the keys of @file, one a line. */
static void read_keys(struct prefetch_args *args, const struct argp_state *state)
{
	FILE *in = strcmp(args->file, "-") != 0 ? fopen(args->file, "r") : stdin;
	char *line = NULL;
	size_t room = 0;
	ssize_t len;

	if (!in) {
		cli_fail("%s: %s", args->file, strerror(errno));
		exit(CLI_ERROR);
	}
	while ((len = getline(&line, &room, in)) >= 0) {
		if (len && line[len - 1] == '\n')
			line[len - 1] = '\0';
		add_text(args, state, line);
		line = NULL;
		room = 0;
	}
	if (ferror(in)) {
		cli_fail("%s: %s", args->file, strerror(errno));
		exit(CLI_ERROR);
	}
	free(line);
	if (in != stdin)
		fclose(in);
}

static void check_prefetch(const struct argp_state *state, void *values)
{
	struct prefetch_args *args = values;
	struct cli_key key;
	size_t used = 0;

	args->texts = calloc(KVBLK_LOOKUP_MAX, sizeof(*args->texts));
	if (!args->texts)
		no_memory();
	for (size_t i = 0; i < args->words.nr; i++)
		add_text(args, state, args->words.words[i]);
	if (args->file)
		read_keys(args, state);
	if (!args->nr)
		cli_usage(state, "missing KEY or --keys");
	args->keys = malloc(args->nr * KVBLK_KEY_MAX);
	args->lens = calloc(args->nr, sizeof(*args->lens));
	args->got = calloc(args->nr, sizeof(*args->got));
	if (!args->keys || !args->lens || !args->got)
		no_memory();
	for (size_t i = 0; i < args->nr; i++) {
		cli_key(state, args->texts[i], args->hex, &key);
		memcpy(args->keys + used, key.bytes, key.len);
		args->lens[i] = (uint16_t)key.len;
		used += key.len;
	}
}

/* ---- the options ---- */

#define AT(field) CLI_FIELD(struct prefetch_args, field)

static const struct cli_option prefetch_options[] = {
	{ "hex", 0, CLI_FLAG, AT(hex), NULL, "KEYs are hex digits" },
	{ "keys", 0, CLI_STRING, AT(file), "FILE", "Read further KEYs from FILE, one a line; - is stdin" },
	{ "max-bytes", 0, CLI_SIZE, AT(options.max_bytes), "BYTES", "Load at most this much into memory",
	  1, 1ull << 50 },
	{ "stop", 0, CLI_FLAG, AT(stop), NULL,
	  "Stop at the first missing block" },
	{ "deadline", 0, CLI_TIME, AT(deadline), "TIME", "Give up after this time", 0.001, 86400 },
	{ "priority", 0, CLI_NUMBER, AT(options.priority), "N",
	  "0 (the default) to 3; a higher priority is loaded first", 0, KVBLK_PRIORITY_MAX },
	{ 0 },
};

static const struct cli_option prefetch_arguments[] = {
	{ "POOL", 0, CLI_POOL, AT(pool), .required = true },
	{ "KEY", 0, CLI_WORDS, AT(words) },
	{ 0 },
};

static const struct cli_syntax prefetch_syntax = {
	.options = prefetch_options,
	.arguments = prefetch_arguments,
	.list = true,
	.check = check_prefetch,
	.usage = "POOL KEY...",
	.doc = "Load the blocks KEY of POOL into host memory, in this order, before they are needed.\v"
	       "Example:\n  kvblk prefetch kv0 prefix/1 prefix/2 --stop\n\n"
	       "Exits with 3 if a block is missing.",
};

/* ---- the report ---- */

static int print_json(const struct prefetch_args *args, const struct kvblk_prestage_sum *sum,
		      const unsigned int *count)
{
	json_t *keys = json_array(), *json;

	for (size_t i = 0; i < args->nr; i++) {
		json_t *key = json_string(args->texts[i]);

		json_array_append_new(keys, json_pack("{s:o, s:s, s:I}",
			"key", key ? key : json_string("(not UTF-8)"),
			"result", kvblk_prestage_state_name(args->got[i].state),
			"length", (json_int_t)args->got[i].length));
	}
	json = json_pack("{s:s, s:o, s:I, s:I}", "pool", args->pool, "keys", keys,
			 "leading", (json_int_t)sum->nr_leading,
			 "loaded_bytes", (json_int_t)sum->loaded_bytes);
	for (unsigned int i = 1; i < NR_STATES; i++)
		json_object_set_new(json, kvblk_prestage_state_name(i), json_integer(count[i]));
	return cli_print_json(json);
}

static int print_text(const struct prefetch_args *args, const struct kvblk_prestage_sum *sum,
		      const unsigned int *count)
{
	static const struct cli_column columns[] = {
		{ "RESULT", -8 }, { "LENGTH", 10 }, { "KEY", -1 }, { 0 },
	};
	char bytes[32];

	cli_print_head(&args->list, columns);
	for (size_t i = 0; i < args->nr; i++) {
		const struct kvblk_prestaged *got = &args->got[i];
		const char *const cells[] = {
			kvblk_prestage_state_name(got->state),
			cli_list_bytes(&args->list, got->length, bytes, sizeof(bytes)),
			args->texts[i],
		};

		cli_print_row(&args->list, columns, cells);
	}
	if (!args->list.bare) {
		for (unsigned int i = 1; i < NR_STATES; i++)
			printf("%u %s, ", count[i], kvblk_prestage_state_name(i));
		printf("the first %u in memory; %s brought there\n", sum->nr_leading,
		       cli_format_bytes(sum->loaded_bytes, bytes, sizeof(bytes)));
	}
	return cli_flush();
}

static uint64_t deadline_of(double seconds)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec + (uint64_t)(seconds * 1e9);
}

int prefetch_main(int argc, char **argv)
{
	struct prefetch_args args = { .options.size = sizeof(args.options) };
	struct kvblk_prestage_sum sum = { .size = sizeof(sum) };
	unsigned int count[NR_STATES] = { 0 };
	struct kvblk *kv;
	int err, ret;

	cli_parse(&prefetch_syntax, argc, argv, &args);
	kv = cli_open_pool(args.pool);
	if (args.deadline > 0)
		args.options.deadline_ns = deadline_of(args.deadline);
	args.options.stop_at_miss = args.stop;
	err = kvblk_prestage(kv, args.keys, args.lens, (unsigned int)args.nr, &args.options, args.got,
			     &sum);
	kvblk_close(kv);
	if (err == -EOPNOTSUPP)
		return cli_fail("pool %s keeps no blocks in the host's memory; see: kvblk pool get %s dram_bytes",
				args.pool, args.pool);
	if (err)
		return cli_fail("pool %s: %s", args.pool, kvblk_result_text(err));
	for (size_t i = 0; i < args.nr; i++)
		count[args.got[i].state]++;
	ret = args.list.json ? print_json(&args, &sum, count) : print_text(&args, &sum, count);
	return ret == CLI_OK && count[KVBLK_PRESTAGE_MISSING] ? CLI_MISS : ret;
}
