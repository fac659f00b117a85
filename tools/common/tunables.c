// SPDX-License-Identifier: MIT
/* The rows of kernel/tunables.h for user space: see tunables.h. */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <linux/kvblk.h>
/* the module's header, through the shim of the host tests */
#include "../../kernel/tunables.h"
#include "common/tunables.h"

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

/* Returns the names of the tunable's values from 0 on, or NULL if it is a number. */
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

const char *tunable_unit(const struct tunable *tunable)
{
	static const char *const units[] = { "bytes", "ms", "permille" };
	const char *last = strrchr(tunable->name, '_');

	for (size_t i = 0; last && i < sizeof(units) / sizeof(units[0]); i++) {
		if (!strcmp(last + 1, units[i]))
			return units[i];
	}
	return "";
}

/*
 * Parse the number at the start of @text; sets *@rest behind it. Returns false if there is
 * none.
 */
static bool read_digits(const char *text, uint64_t *value, char **rest)
{
	bool hex = text[0] == '0' && tolower((unsigned char)text[1]) == 'x';

	/* reject signs and blanks, which strtoull() accepts, and 010, which could mean 8 or 10 */
	if (!isdigit((unsigned char)*text) || (text[0] == '0' && isdigit((unsigned char)text[1])))
		return false;
	errno = 0;
	*value = strtoull(text, rest, hex ? 16 : 10);
	return !errno;
}

bool tunable_number(const char *text, uint64_t *value)
{
	static const char letters[] = "KMGT";
	const char *letter;
	char *rest;

	if (!read_digits(text, value, &rest))
		return false;
	if (!*rest)
		return true;
	letter = strchr(letters, toupper((unsigned char)*rest));
	if (!letter || __builtin_mul_overflow(*value, 1ull << 10 * (letter - letters + 1), value))
		return false;
	return !rest[1] || !strcmp(rest + 1, "B") || !strcmp(rest + 1, "iB");
}

static bool read_ms(const char *text, uint64_t *value)
{
	static const struct {
		const char *suffix;
		uint64_t ms;
	} units[] = { { "", 1 }, { "ms", 1 }, { "s", 1000 }, { "min", 60000 }, { "h", 3600000 } };
	char *rest;

	if (!read_digits(text, value, &rest))
		return false;
	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
		if (!strcmp(rest, units[i].suffix))
			return !__builtin_mul_overflow(*value, units[i].ms, value);
	}
	return false;
}

bool tunable_parse(const struct tunable *tunable, const char *text,
		   char value[TUNABLE_LEN])
{
	bool (*read)(const char *, uint64_t *) = strcmp(tunable_unit(tunable), "ms") ? tunable_number : read_ms;
	const char *const *words = words_of(tunable);
	bool negative = tunable->least < 0 && *text == '-';
	uint64_t number;
	int64_t result;

	for (int64_t i = 0; words && i <= tunable->most; i++) {
		if (!strcmp(words[i], text)) {
			snprintf(value, TUNABLE_LEN, "%s", text);
			return true;
		}
	}
	if (words || !read(text + negative, &number) || number > INT64_MAX)
		return false;
	result = negative ? -(int64_t)number : (int64_t)number;
	if (result < tunable->least || result > tunable->most)
		return false;
	snprintf(value, TUNABLE_LEN, "%" PRId64, result);
	return true;
}

void tunable_show(const struct tunable *tunable, int64_t number, char value[TUNABLE_LEN])
{
	const char *const *words = words_of(tunable);

	if (words)
		snprintf(value, TUNABLE_LEN, "%s", words[number]);
	else
		snprintf(value, TUNABLE_LEN, "%" PRId64, number);
}

char *tunable_allowed(const struct tunable *tunable, char *buf, size_t len)
{
	const char *const *words = words_of(tunable), *unit = tunable_unit(tunable);

	if (words)
		snprintf(buf, len, "%s, %s or %s", words[0], words[1], words[2]);
	else
		snprintf(buf, len, "a number from %" PRId64 " to %" PRId64 "%s",
			 tunable->least, tunable->most,
			 !strcmp(unit, "ms") ? ", or with a unit, as 3s" :
			 !strcmp(unit, "bytes") ? ", or with a suffix, as 16M" : "");
	return buf;
}
