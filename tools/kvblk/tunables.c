// SPDX-License-Identifier: MIT
/* The rows of kernel/tunables.h for user space, see tunables.h. */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <linux/kvblk.h>
/* the module's, seen through the host tests' shim */
#include "../../kernel/tunables.h"
#include "tunables.h"

const struct tunable tunables[] = {
#define X(_name, _type, _standard, _least, _most) {			\
	.name = #_name,							\
	.standard = (_standard),					\
	.least = (_least),						\
	.most = (_most),						\
},
	KVBLK_TUNABLES(X)
#undef X
};
const size_t nr_tunables = sizeof(tunables) / sizeof(tunables[0]);
_Static_assert(sizeof(tunables) / sizeof(tunables[0]) <= TUNABLES_MAX,
	       "TUNABLES_MAX is too small");

static const char *const integrity_words[] = {
	[KVBLK_CHECK_HEADER] = "header",
	[KVBLK_CHECK_FULL] = "full",
	[KVBLK_CHECK_PRODUCER] = "producer",
};

static const char *const dram_words[] = {
	[KVBLK_DRAM_THROUGH] = "through",
	[KVBLK_DRAM_EVICT] = "evict",
	[KVBLK_DRAM_TOUCHED] = "touched",
};

/* Of its values from 0 on; NULL: it is a number. */
static const char *const *words_of(const struct tunable *tunable)
{
	if (!strcmp(tunable->name, "integrity"))
		return integrity_words;
	return strcmp(tunable->name, "dram_mode") ? NULL : dram_words;
}

const struct tunable *tunable_find(const char *name)
{
	for (size_t i = 0; i < nr_tunables; i++) {
		if (!strcmp(tunables[i].name, name))
			return &tunables[i];
	}
	return NULL;
}

bool tunable_number(const char *text, uint64_t *value)
{
	static const char letters[] = "KMGT";
	const char *letter;
	char *end;

	/* strtoull() would take a sign and blanks */
	if (!isdigit((unsigned char)*text))
		return false;
	errno = 0;
	*value = strtoull(text, &end, text[0] == '0' && text[1] ? 16 : 10);
	if (errno || (text[0] == '0' && text[1] && tolower((unsigned char)text[1]) != 'x'))
		return false;
	if (!*end)
		return true;
	letter = strchr(letters, toupper((unsigned char)*end));
	return letter && !end[1] &&
	       !__builtin_mul_overflow(*value, 1ull << 10 * (letter - letters + 1), value);
}

bool tunable_parse(const struct tunable *tunable, const char *text,
		   char value[TUNABLE_LEN])
{
	const char *const *words = words_of(tunable);
	uint64_t number;

	for (uint64_t i = 0; words && i <= tunable->most; i++) {
		if (!strcmp(words[i], text)) {
			snprintf(value, TUNABLE_LEN, "%s", text);
			return true;
		}
	}
	if (words || !tunable_number(text, &number) ||
	    number < tunable->least || number > tunable->most)
		return false;
	snprintf(value, TUNABLE_LEN, "%" PRIu64, number);
	return true;
}

char *tunable_allowed(const struct tunable *tunable, char *buf, size_t len)
{
	const char *const *words = words_of(tunable);

	if (words)
		snprintf(buf, len, "%s, %s or %s", words[0], words[1], words[2]);
	else
		snprintf(buf, len, "a number from %" PRIu64 " to %" PRIu64,
			 tunable->least, tunable->most);
	return buf;
}
