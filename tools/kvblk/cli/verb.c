// SPDX-License-Identifier: MIT
/*
 * Verbs and options: who runs what, help, and what was meant by a word that is
 * none. The rule: a word that nobody knows is refused; the nearest one is named,
 * never taken in its place.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

/* ---- the nearest word ---- */

#define WORD_MAX	32u	/* longer ones are nobody's typing error */

static unsigned int least(unsigned int a, unsigned int b)
{
	return a < b ? a : b;
}

/* Letters to change, add, drop or swap with their neighbour to get from @a to @b. */
static unsigned int distance(const char *a, const char *b)
{
	unsigned int rows[3][WORD_MAX + 1], *swap;
	unsigned int *now = rows[0], *last = rows[1], *before = rows[2];
	size_t na = strlen(a), nb = strlen(b);

	if (na > WORD_MAX || nb > WORD_MAX)
		return WORD_MAX;
	for (size_t j = 0; j <= nb; j++)
		last[j] = (unsigned int)j;
	for (size_t i = 1; i <= na; i++) {
		now[0] = (unsigned int)i;
		for (size_t j = 1; j <= nb; j++) {
			now[j] = least(least(now[j - 1], last[j]) + 1,
				       last[j - 1] + (a[i - 1] != b[j - 1]));
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] &&
			    a[i - 2] == b[j - 1])
				now[j] = least(now[j], before[j - 2] + 1);
		}
		swap = before;
		before = last;
		last = now;
		now = swap;
	}
	return last[nb];
}

/* @name instead of @best when it is nearer to @word, and near enough to be meant. */
static const char *nearer(const char *word, const char *name, const char *best)
{
	unsigned int d = distance(word, name);

	if (d > (strlen(word) < 5 ? 1 : 2))
		return best;
	return !best || d < distance(word, best) ? name : best;
}

/* ---- verbs ---- */

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
		best = nearer(word, verbs->name, best);
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
	fprintf(to, "\n\"%s VERB --help\" tells a verb's options.\n\n%s", noun,
		example);
}

static bool is_help(const char *word)
{
	return !strcmp(word, "--help") || !strcmp(word, "-?") || !strcmp(word, "-h");
}

/* How many arguments from @argv on are options that any verb may have; *@help: one asks for help. */
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
		/* "help VERB" is "VERB --help" */
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
		/* its options stand before it, or after */
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

/* ---- options ---- */

/*
 * What is long option @name, without "--" and "=", among those of @argp; it may be
 * abbreviated. If there is none, *@meant gets the nearest one.
 */
static const struct argp_option *find_long(const struct argp *argp, const char *name,
					   const char **meant)
{
	const struct argp_option *found;

	for (const struct argp_option *o = argp->options; o && (o->name || o->key || o->doc); o++) {
		if (o->name && !strncmp(o->name, name, strlen(name)))
			return o;
		if (o->name)
			*meant = nearer(name, o->name, *meant);
	}
	for (const struct argp_child *child = argp->children; child && child->argp; child++) {
		found = find_long(child->argp, name, meant);
		if (found)
			return found;
	}
	return NULL;
}

static const struct argp_option *find_letter(const struct argp *argp, char letter)
{
	const struct argp_option *found;

	for (const struct argp_option *o = argp->options; o && (o->name || o->key || o->doc); o++) {
		if (o->key == letter)
			return o;
	}
	for (const struct argp_child *child = argp->children; child && child->argp; child++) {
		found = find_letter(child->argp, letter);
		if (found)
			return found;
	}
	return NULL;
}

static bool wants_argument(const struct argp_option *option)
{
	return option && option->arg && !(option->flags & OPTION_ARG_OPTIONAL);
}

/* Does the cluster of letters @text end with one that takes the next word? */
static bool takes_next(const struct argp *argp, const char *text)
{
	for (; *text; text++) {
		const struct argp_option *option = find_letter(argp, *text);

		if (option && option->arg)
			return wants_argument(option) && !text[1];
	}
	return false;
}

void cli_check_options(const struct argp *argp, char **argv)
{
	const struct argp_option *option;
	const char *meant;
	char name[64];

	for (char **at = argv + 1; *at && strcmp(*at, "--") != 0; at++) {
		if ((*at)[0] != '-' || !(*at)[1])
			continue;
		if ((*at)[1] != '-') {
			at += takes_next(argp, *at + 1) && at[1];
			continue;
		}
		snprintf(name, sizeof(name), "%.*s", (int)strcspn(*at + 2, "="), *at + 2);
		meant = NULL;
		option = find_long(argp, name, &meant);
		if (option) {
			at += wants_argument(option) && !strchr(*at, '=') && at[1];
			continue;
		}
		fprintf(stderr, "%s: unrecognized option \"--%s\"", argv[0], name);
		if (meant)
			fprintf(stderr, "; did you mean \"--%s\"?\n", meant);
		else
			fprintf(stderr, "; see: %s --help\n", argv[0]);
		exit(CLI_USAGE);
	}
}
