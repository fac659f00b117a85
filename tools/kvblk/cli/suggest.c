// SPDX-License-Identifier: MIT
/*
 * Suggestions for unknown words and options. The rule: an unknown word is refused; the
 * nearest known word is named, never used instead.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/options.h"

#define WORD_MAX	32u	/* a longer word is not a typing error */

static unsigned int least(unsigned int a, unsigned int b)
{
	return a < b ? a : b;
}

/* Returns how many letters to change, insert, delete or swap to turn @a into @b. */
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

const char *cli_nearer(const char *word, const char *name, const char *best)
{
	unsigned int d = distance(word, name);

	if (d > (strlen(word) < 5 ? 1 : 2))
		return best;
	return !best || d < distance(word, best) ? name : best;
}

/*
 * Find the long option @name, given without "--" and "=", possibly abbreviated. Returns NULL
 * and sets *@meant to the nearest option if @argp has none.
 */
static const struct argp_option *find_long(const struct argp *argp, const char *name,
					   const char **meant)
{
	for (const struct argp_option *o = argp->options; o && (o->name || o->key || o->doc); o++) {
		if (o->name && !strncmp(o->name, name, strlen(name)))
			return o;
		if (o->name)
			*meant = cli_nearer(name, o->name, *meant);
	}
	return NULL;
}

static const struct argp_option *find_letter(const struct argp *argp, char letter)
{
	for (const struct argp_option *o = argp->options; o && (o->name || o->key || o->doc); o++) {
		if (o->key == letter)
			return o;
	}
	return NULL;
}

static bool wants_argument(const struct argp_option *option)
{
	return option && option->arg && !(option->flags & OPTION_ARG_OPTIONAL);
}

/* Returns whether the letters @text end with an option that takes the next word. */
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
