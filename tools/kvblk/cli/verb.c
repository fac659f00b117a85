// SPDX-License-Identifier: MIT
/* Verbs: look up and run a verb, print the help of a noun. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/options.h"

static const struct cli_verb *find_verb(const struct cli_verb *verbs, const char *word)
{
	for (; verbs->name; verbs++) {
		if (!strcmp(verbs->name, word))
			return verbs;
	}
	return NULL;
}

static const char *nearest_verb(const struct cli_verb *verbs, const char *word)
{
	const char *best = NULL;

	for (; verbs->name; verbs++)
		best = cli_nearer(word, verbs->name, best);
	return best;
}

static void print_verbs(FILE *to, const struct cli_verb *verbs, const char *noun,
			const char *example)
{
	fprintf(to, "Usage: %s VERB [OPTION...] [ARGUMENT...]\n\n", noun);
	for (const struct cli_verb *verb = verbs; verb->name; verb++) {
		const char *before = " (also:";

		if (!verb->summary)
			continue;
		fprintf(to, "  %-10s %s", verb->name, verb->summary);
		for (const struct cli_verb *other = verbs; other->name; other++) {
			if (other->summary || other->run != verb->run)
				continue;
			fprintf(to, "%s %s", before, other->name);
			before = ",";
		}
		fprintf(to, "%s\n", before[0] == ',' ? ")" : "");
	}
	fprintf(to, "\n\"%s VERB --help\" prints the options of a verb.\n\n%s", noun,
		example);
}

static bool is_help(const char *word)
{
	return !strcmp(word, "--help") || !strcmp(word, "-?") || !strcmp(word, "-h");
}

/* Count the options from @argv on that every verb knows. Sets *@help if one asks for help. */
static int count_options(char **argv, bool *help)
{
	static const char *const plain[] = { "-y", "--yes", "-H", "-p", "--usage" };
	int n = 0;

	for (; argv[n] && argv[n][0] == '-'; n++) {
		bool known = is_help(argv[n]) || !strncmp(argv[n], "-o", 2) ||
			     !strncmp(argv[n], "--output", 8);

		*help |= is_help(argv[n]);
		for (size_t i = 0; i < ARRAY_SIZE(plain); i++)
			known |= !strcmp(argv[n], plain[i]);
		if (!known)
			break;
		if ((!strcmp(argv[n], "-o") || !strcmp(argv[n], "--output")) && argv[n + 1])
			n++;
	}
	return n;
}

int cli_run_verb(const struct cli_verb *verbs, const char *example, int argc,
		 char **argv)
{
	const struct cli_verb *verb;
	const char *word, *meant;
	bool help = false;
	char name[64];
	int before = count_options(argv + 1, &help);

	word = argv[1 + before];
	if (word && !strcmp(word, "help")) {
		/* turn "help VERB" into "VERB --help" */
		memmove(argv + 1 + before, argv + 2 + before,
			(size_t)(argc - 2 - before) * sizeof(*argv));
		argv[argc - 1] = (char *)(uintptr_t)"--help";
		help = argv[1 + before] == argv[argc - 1];
		word = help ? NULL : argv[1 + before];
	}
	if (!word) {
		if (!help)
			fprintf(stderr, "%s: a verb is missing\n\n", argv[0]);
		print_verbs(help ? stdout : stderr, verbs, argv[0], example);
		return help ? cli_flush() : CLI_USAGE;
	}
	verb = find_verb(verbs, word);
	if (verb) {
		/* move the options that stood before the verb behind it */
		memmove(argv + 2, argv + 1, (size_t)before * sizeof(*argv));
		snprintf(name, sizeof(name), "%s %s", argv[0], verb->name);
		argv[1] = name;
		return verb->run(argc - 1, argv + 1);
	}
	meant = nearest_verb(verbs, word);
	if (word[0] == '-')
		fprintf(stderr, "%s: option \"%s\" comes after the verb; see: %s --help\n",
			argv[0], word, argv[0]);
	else if (meant)
		fprintf(stderr, "%s: there is no \"%s\"; did you mean \"%s %s\"?\n",
			argv[0], word, argv[0], meant);
	else
		fprintf(stderr, "%s: there is no \"%s\"; see: %s --help\n", argv[0],
			word, argv[0]);
	return CLI_USAGE;
}
