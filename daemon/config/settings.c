// SPDX-License-Identifier: MIT
/* Read and check settings, see settings.h. */
#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <linux/kvblk_netlink.h>

#include "common/tunables.h"
#include "common/uuid.h"
#include "config/settings.h"

/* Print the path of a setting, as "pools[1].tunables.suspect_ms". */
static void print_path(FILE *to, const config_setting_t *at)
{
	const config_setting_t *parent = config_setting_parent(at);
	const char *name = config_setting_name(at);

	if (!parent)
		return;
	print_path(to, parent);
	if (name)
		fprintf(to, "%s%s", config_setting_is_root(parent) ? "" : ".", name);
	else
		fprintf(to, "[%d]", config_setting_index(at));
}

__attribute__((format(printf, 3, 0)))
static void print_error(struct config_errors *errors, const config_setting_t *at,
			const char *format, va_list args)
{
	errors->nr++;
	if (!errors->to)
		return;
	fprintf(errors->to, "%s:%u: ", config_setting_source_file(at),
		config_setting_source_line(at));
	print_path(errors->to, at);
	fputs(config_setting_is_root(at) ? "" : ": ", errors->to);
	vfprintf(errors->to, format, args);
	fputc('\n', errors->to);
}

void config_error(struct config_errors *errors, const config_setting_t *at,
		  const char *format, ...)
{
	va_list args;

	va_start(args, format);
	print_error(errors, at, format, args);
	va_end(args);
}

void config_vital_error(struct config_errors *errors, const config_setting_t *at,
			const char *format, ...)
{
	va_list args;

	errors->vital++;
	va_start(args, format);
	print_error(errors, at, format, args);
	va_end(args);
}

char *setting_allowed(const struct setting *row, char *buf, size_t len)
{
	switch (row->type) {
	case SETTING_BOOL:
		snprintf(buf, len, "true or false");
		break;
	case SETTING_NUMBER:
		snprintf(buf, len, "a number from %" PRId64 " to %" PRId64,
			 row->least, row->most);
		break;
	case SETTING_SIZE:
		snprintf(buf, len, "a number from %" PRId64 " to %" PRId64
			 ", or a string with a suffix, such as 2M", row->least, row->most);
		break;
	case SETTING_TEXT:
		snprintf(buf, len, "a string: %s", row->allowed);
		break;
	case SETTING_LIST:
		snprintf(buf, len, "a list of at most %" PRId64 " strings, each %s",
			 row->most, row->allowed);
		break;
	case SETTING_TUNABLES:
		snprintf(buf, len, "a group of tunables, with values as in sysfs");
		break;
	case SETTING_REAL:
		snprintf(buf, len, "a number above %" PRId64 ", up to %" PRId64,
			 row->least, row->most);
		break;
	case SETTING_GROUP:
		snprintf(buf, len, "a group of settings");
		break;
	case SETTING_GROUPS:
		snprintf(buf, len, "a list of at most %" PRId64 " groups of settings", row->most);
		break;
	}
	return buf;
}

static void not_allowed(struct config_errors *errors, const config_setting_t *at,
			const struct setting *row, const char *given)
{
	char allowed[256];

	config_error(errors, at, "%.80s%smust be %s", given, *given ? " is not allowed, it " : "",
		     setting_allowed(row, allowed, sizeof(allowed)));
}

bool texts_add(struct texts *texts, const char *text)
{
	char **more = reallocarray(texts->text, texts->nr + 1, sizeof(*more));

	if (!more)
		return false;
	texts->text = more;
	more[texts->nr] = strdup(text);
	if (!more[texts->nr])
		return false;
	texts->nr++;
	return true;
}

void texts_remove(struct texts *texts, const char *text)
{
	for (size_t i = 0; i < texts->nr; i++) {
		if (strcmp(texts->text[i], text) != 0)
			continue;
		free(texts->text[i]);
		texts->text[i] = texts->text[--texts->nr];
		return;
	}
}

void texts_free(struct texts *texts)
{
	for (size_t i = 0; i < texts->nr; i++)
		free(texts->text[i]);
	free(texts->text);
	*texts = (struct texts){ 0 };
}

bool texts_has(const struct texts *texts, const char *text)
{
	for (size_t i = 0; i < texts->nr; i++) {
		if (strcmp(texts->text[i], text) == 0)
			return true;
	}
	return false;
}

bool texts_same(const struct texts *a, const struct texts *b)
{
	for (size_t i = 0; i < a->nr && a->nr == b->nr; i++) {
		if (strcmp(a->text[i], b->text[i]) != 0)
			return false;
	}
	return a->nr == b->nr;
}

bool texts_copy(struct texts *to, const struct texts *from)
{
	bool whole = true;

	*to = (struct texts){ 0 };
	for (size_t i = 0; i < from->nr; i++)
		whole &= texts_add(to, from->text[i]);
	return whole;
}

bool text_same(const char *a, const char *b)
{
	return a && b ? !strcmp(a, b) : a == b;
}

bool text_copy(char **to, const char *from)
{
	*to = from ? strdup(from) : NULL;
	return !from || *to;
}

static bool is_number(const config_setting_t *setting)
{
	return config_setting_type(setting) == CONFIG_TYPE_INT ||
	       config_setting_type(setting) == CONFIG_TYPE_INT64;
}

static void *field(const struct setting *row, void *object)
{
	return (char *)object + row->offset;
}

static void read_number(const struct setting *row, const config_setting_t *setting,
			int64_t *value, struct config_errors *errors)
{
	const char *text = config_setting_get_string(setting);
	char given[24] = "";
	uint64_t number;

	if (is_number(setting)) {
		number = (uint64_t)config_setting_get_int64(setting);
		snprintf(given, sizeof(given), "%" PRId64, (int64_t)number);
	} else if (row->type != SETTING_SIZE || !text ||
		   !tunable_number(text, &number) || number > INT64_MAX) {
		not_allowed(errors, setting, row, text ? text : "");
		return;
	}
	if ((int64_t)number < row->least || (int64_t)number > row->most)
		not_allowed(errors, setting, row, text ? text : given);
	else
		*value = (int64_t)number;
}

static void read_real(const struct setting *row, const config_setting_t *setting,
		      double *value, struct config_errors *errors)
{
	bool real = config_setting_type(setting) == CONFIG_TYPE_FLOAT;
	double number = real ? config_setting_get_float(setting) :
			       (double)config_setting_get_int64(setting);
	char given[32];

	snprintf(given, sizeof(given), "%g", number);
	if (!real && !is_number(setting))
		not_allowed(errors, setting, row, "");
	else if (!(number > (double)row->least && number <= (double)row->most))
		not_allowed(errors, setting, row, given);
	else
		*value = number;
}

static void read_text(const struct setting *row, const config_setting_t *setting,
		      char **value, struct config_errors *errors)
{
	const char *text = config_setting_get_string(setting);

	if (!text || !row->valid(text)) {
		not_allowed(errors, setting, row, text ? text : "");
		return;
	}
	free(*value);
	*value = strdup(text);
	if (!*value)
		config_error(errors, setting, "out of memory");
}

/* Read a list. A list in a later file replaces the one of an earlier file. */
static void read_list(const struct setting *row, const config_setting_t *setting,
		      struct texts *value, struct config_errors *errors)
{
	int length = config_setting_is_aggregate(setting) ?
		     config_setting_length(setting) : -1;

	if (config_setting_is_group(setting) || length < 0 || length > row->most) {
		not_allowed(errors, setting, row, "");
		return;
	}
	texts_free(value);
	value->text = calloc((size_t)length + 1, sizeof(*value->text));
	if (!value->text) {
		config_error(errors, setting, "out of memory");
		return;
	}
	for (int i = 0; i < length; i++) {
		read_text(row, config_setting_get_elem(setting, (unsigned int)i),
			  &value->text[value->nr], errors);
		value->nr += !!value->text[value->nr];
	}
}

static void read_tunable(const struct tunable *tunable, const config_setting_t *setting,
			 char **value, struct config_errors *errors)
{
	char number[24], found[TUNABLE_LEN], allowed[80];
	const char *text = config_setting_get_string(setting);

	if (is_number(setting)) {
		snprintf(number, sizeof(number), "%lld", config_setting_get_int64(setting));
		text = number;
	}
	if (!text || !tunable_parse(tunable, text, found)) {
		config_error(errors, setting, "%s%smust be %s", text ? text : "",
			     text ? " is not allowed, it " : "",
			     tunable_allowed(tunable, allowed, sizeof(allowed)));
		/* fall back to full, or else blocks would be verified less than requested */
		if (strcmp(tunable->name, "integrity") != 0)
			return;
		snprintf(found, sizeof(found), "full");
	}
	free(*value);
	*value = strdup(found);
	if (!*value)
		config_error(errors, setting, "out of memory");
}

static void read_tunables(const struct setting *row, const config_setting_t *group,
			  char **values, struct config_errors *errors)
{
	const struct tunable *tunable;
	config_setting_t *setting;

	if (!config_setting_is_group(group)) {
		not_allowed(errors, group, row, "");
		return;
	}
	for (unsigned int i = 0; (setting = config_setting_get_elem(group, i)); i++) {
		tunable = tunable_find(config_setting_name(setting));
		if (tunable) {
			read_tunable(tunable, setting, &values[tunable - tunables], errors);
			continue;
		}
		config_error(errors, setting, "unknown tunable; known tunables:");
		for (size_t t = 0; t < nr_tunables && errors->to; t++)
			fprintf(errors->to, "\t%s\n", tunables[t].name);
	}
}

void settings_default(const struct setting *rows, void *object)
{
	for (; rows->name; rows++) {
		if (rows->type == SETTING_NUMBER || rows->type == SETTING_SIZE)
			*(int64_t *)field(rows, object) = rows->standard;
		if (rows->type == SETTING_BOOL)
			*(bool *)field(rows, object) = rows->standard;
		if (rows->type == SETTING_GROUP)
			settings_default(rows->rows, field(rows, object));
	}
}

static void free_groups(const struct setting *row, struct groups *groups)
{
	for (size_t i = 0; i < groups->nr; i++)
		settings_free(row->rows, (char *)groups->item + i * row->size);
	free(groups->item);
	*groups = (struct groups){ 0 };
}

/* Read a list of groups, without those of vital errors. It replaces the one of an earlier file. */
static void read_groups(const struct setting *row, const config_setting_t *setting,
			struct groups *value, struct config_errors *errors)
{
	static const char *const others[] = { NULL };
	const unsigned int vital = errors->vital;
	const config_setting_t *group;
	void *item;

	if (!config_setting_is_list(setting) || config_setting_length(setting) > row->most) {
		not_allowed(errors, setting, row, "");
		return;
	}
	free_groups(row, value);
	value->item = calloc((size_t)config_setting_length(setting) + 1, row->size);
	if (!value->item) {
		config_error(errors, setting, "out of memory");
		return;
	}
	for (unsigned int i = 0; (group = config_setting_get_elem(setting, i)); i++) {
		if (!config_setting_is_group(group)) {
			config_error(errors, group, "must be a group: { ... }");
			continue;
		}
		item = memset((char *)value->item + value->nr * row->size, 0, row->size);
		settings_default(row->rows, item);
		settings_read(row->rows, group, others, item, errors);
		row->check(group, value, item, errors);
		if (errors->vital == vital)
			value->nr++;
		else
			settings_free(row->rows, item);
		errors->vital = vital;
	}
}

static void read_setting(const struct setting *row, const config_setting_t *setting,
			 void *object, struct config_errors *errors)
{
	static const char *const others[] = { NULL };
	void *value = field(row, object);

	switch (row->type) {
	case SETTING_BOOL:
		if (config_setting_type(setting) == CONFIG_TYPE_BOOL)
			*(bool *)value = config_setting_get_bool(setting);
		else
			not_allowed(errors, setting, row, "");
		break;
	case SETTING_NUMBER:
	case SETTING_SIZE:
		read_number(row, setting, value, errors);
		break;
	case SETTING_TEXT:
		read_text(row, setting, value, errors);
		break;
	case SETTING_LIST:
		read_list(row, setting, value, errors);
		break;
	case SETTING_TUNABLES:
		read_tunables(row, setting, value, errors);
		break;
	case SETTING_REAL:
		read_real(row, setting, value, errors);
		break;
	case SETTING_GROUP:
		if (config_setting_is_group(setting))
			settings_read(row->rows, setting, others, value, errors);
		else
			not_allowed(errors, setting, row, "");
		break;
	case SETTING_GROUPS:
		read_groups(row, setting, value, errors);
		break;
	}
}

static bool is_among(const char *name, const char *const *names)
{
	for (; *names; names++) {
		if (!strcmp(*names, name))
			return true;
	}
	return false;
}

static void tell_unknown(const struct setting *rows, const config_setting_t *setting,
			 const char *const *others, struct config_errors *errors)
{
	config_error(errors, setting, "unknown setting; known settings:");
	for (; *others && errors->to; others++)
		fprintf(errors->to, "\t%s\n", *others);
	for (; rows->name && errors->to; rows++)
		fprintf(errors->to, "\t%s\n", rows->name);
}

/* Returns true if an earlier file set a text or a list. */
static bool is_set(const struct setting *row, void *object)
{
	return row->type == SETTING_LIST ? ((struct texts *)field(row, object))->nr > 0 :
					   *(char **)field(row, object) != NULL;
}

void settings_read(const struct setting *rows, const config_setting_t *group,
		   const char *const *others, void *object,
		   struct config_errors *errors)
{
	const config_setting_t *setting;
	const struct setting *row;

	for (unsigned int i = 0; (setting = config_setting_get_elem(group, i)); i++) {
		const char *name = config_setting_name(setting);
		unsigned int before = errors->nr;

		for (row = rows; row->name && strcmp(row->name, name) != 0;)
			row++;
		if (row->name) {
			read_setting(row, setting, object, errors);
			errors->vital += row->vital && errors->nr != before;
		} else if (!is_among(name, others)) {
			tell_unknown(rows, setting, others, errors);
		}
	}
	for (row = rows; row->name; row++) {
		if (row->required && !is_set(row, object) && !config_setting_get_member(group, row->name))
			config_vital_error(errors, group, "%s is missing", row->name);
	}
}

void settings_free(const struct setting *rows, void *object)
{
	for (; rows->name; rows++) {
		char **text = field(rows, object);

		if (rows->type == SETTING_TEXT)
			free(*text);
		if (rows->type == SETTING_LIST)
			texts_free(field(rows, object));
		if (rows->type == SETTING_GROUP)
			settings_free(rows->rows, field(rows, object));
		if (rows->type == SETTING_GROUPS)
			free_groups(rows, field(rows, object));
		for (size_t i = 0; rows->type == SETTING_TUNABLES && i < nr_tunables; i++)
			free(text[i]);
	}
}

bool settings_own(const struct setting *rows, void *object)
{
	bool whole = true;

	for (; rows->name; rows++) {
		char **text = field(rows, object);
		struct texts *list = field(rows, object), from;

		if (rows->type == SETTING_TEXT && *text) {
			*text = strdup(*text);
			whole &= *text != NULL;
		}
		if (rows->type == SETTING_LIST) {
			from = *list;
			*list = (struct texts){ 0 };
			for (size_t i = 0; i < from.nr; i++)
				whole &= texts_add(list, from.text[i]);
		}
	}
	return whole;
}

/*
 * Accept printable words without commas, which separate the driver's options. Blanks and
 * terminal control characters are rejected, too.
 */
static bool is_word(const char *text, size_t most)
{
	size_t len = strlen(text);

	if (!len || len > most)
		return false;
	for (; *text; text++) {
		if (!isgraph((unsigned char)*text) || *text == ',')
			return false;
	}
	return true;
}

int64_t port_of(const char *text)
{
	size_t digits = strspn(text, "0123456789");
	long number = digits && digits <= 5 && !text[digits] ? strtol(text, NULL, 10) : 0;

	return number <= 65535 ? number : 0;
}

bool is_nqn(const char *text)
{
	return !strncmp(text, "nqn.", 4) && is_word(text, 223);
}

bool is_uuid(const char *text)
{
	uint8_t uuid[16];

	return uuid_parse(text, uuid);
}

bool is_path(const char *text)
{
	return *text == '/' && is_word(text, KVBLK_PATH_LEN_MAX);
}

bool is_pool_name(const char *text)
{
	size_t len = strlen(text);

	return len && len <= KVBLK_NAME_LEN_MAX && isalnum((unsigned char)*text) &&
	       strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_") == len;
}

bool is_transport(const char *text)
{
	static const char *const transports[] = { "tcp", "rdma", "fc", "loop", NULL };

	return is_among(text, transports);
}

bool is_address(const char *text)
{
	return is_word(text, 255);
}

bool is_module_name(const char *text)
{
	return is_word(text, 55) && !strchr(text, '/');
}

bool is_member(const char *text)
{
	return is_uuid(text) || is_path(text);
}

/* Accept "any", "all", or "1%" to "100%". */
bool is_share(const char *text)
{
	char *rest;
	unsigned long percent;

	if (!strcmp(text, "any") || !strcmp(text, "all"))
		return true;
	if (!isdigit((unsigned char)*text))
		return false;
	percent = strtoul(text, &rest, 10);
	return percent && percent <= 100 && !strcmp(rest, "%");
}

bool is_any(const char *text)
{
	for (; *text; text++) {
		if (!isprint((unsigned char)*text))
			return false;
	}
	return true;
}
