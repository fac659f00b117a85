/* SPDX-License-Identifier: MIT */
/*
 * Settings of a configuration file. A row defines a setting's name, type, allowed values and
 * destination. Checks, error messages and the man page are made from the row.
 */
#ifndef KVBLKD_CONFIG_SETTINGS_H
#define KVBLKD_CONFIG_SETTINGS_H

#include <libconfig.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/**
 * enum setting_type - type of a setting in the file, and of its value
 * @SETTING_BOOL: true or false: bool
 * @SETTING_NUMBER: an integer: int64_t
 * @SETTING_SIZE: an integer, or a text such as "256M": int64_t
 * @SETTING_TEXT: a text: char *, allocated
 * @SETTING_LIST: a list of texts: struct texts
 * @SETTING_TUNABLES: a group of a pool's tunables: char *[TUNABLES_MAX], allocated
 * @SETTING_REAL: a number, with or without a fraction: double, 0 if not set
 * @SETTING_GROUP: a group with its own rows: a struct
 * @SETTING_GROUPS: a list of such groups: struct groups
 */
enum setting_type {
	SETTING_BOOL,
	SETTING_NUMBER,
	SETTING_SIZE,
	SETTING_TEXT,
	SETTING_LIST,
	SETTING_TUNABLES,
	SETTING_REAL,
	SETTING_GROUP,
	SETTING_GROUPS,
};

struct texts {
	char **text;
	size_t nr;
};

/* An array of structs, allocated. */
struct groups {
	void *item;
	size_t nr;
};

struct config_errors;

/* Add a copy of @text. Returns false without memory. */
bool texts_add(struct texts *texts, const char *text);
void texts_remove(struct texts *texts, const char *text);
void texts_free(struct texts *texts);
bool texts_has(const struct texts *texts, const char *text);
/* Returns whether both have the same texts in the same order. */
bool texts_same(const struct texts *a, const struct texts *b);
/* Set @to to a copy. Returns false without memory: @to must be freed all the same. */
bool texts_copy(struct texts *to, const struct texts *from);

/* For single texts: NULL equals NULL alone, and the copy of NULL is NULL. */
bool text_same(const char *a, const char *b);
bool text_copy(char **to, const char *from);

/**
 * struct setting - a row
 * @name: name in the file
 * @type: &enum setting_type
 * @required: must be set in the group, unless an earlier file set it; there is no default
 * @vital: an invalid value invalidates the group, which would mean something else without it
 * @offset: offset of the value in the struct of its section
 * @least: NUMBER, SIZE: lowest allowed value; REAL: exclusive lower limit
 * @most: highest allowed value; LIST, GROUPS: most entries
 * @valid: TEXT, LIST: check of each text
 * @allowed: TEXT, LIST: description of @valid
 * @standard: NUMBER, SIZE, BOOL: default
 * @rows: GROUP, GROUPS: rows of the group
 * @size: GROUPS: size of a group's struct
 * @check: GROUPS: check and complete the struct of a group, which follows those of @former, the
 *	groups before it; a vital error drops this group of the list
 * @doc: text of the man page
 */
struct setting {
	const char *name;
	enum setting_type type;
	bool required;
	bool vital;
	size_t offset;
	int64_t least;
	int64_t most;
	bool (*valid)(const char *text);
	const char *allowed;
	int64_t standard;
	const struct setting *rows;
	size_t size;
	void (*check)(const config_setting_t *group, const struct groups *former, void *item,
		      struct config_errors *errors);
	const char *doc;
};

/**
 * struct config_errors - errors of a configuration
 * @to: destination of the messages, or NULL
 * @nr: number of errors
 * @vital: number of errors that invalidate a group
 */
struct config_errors {
	FILE *to;
	unsigned int nr;
	unsigned int vital;
};

/* Report and count "FILE:LINE: SETTING: TEXT"; config_vital_error() counts it as vital, too. */
void config_error(struct config_errors *errors, const config_setting_t *at,
		  const char *format, ...)
	__attribute__((format(printf, 3, 4)));
void config_vital_error(struct config_errors *errors, const config_setting_t *at,
			const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Describe in @buf what the row allows. Returns @buf. */
char *setting_allowed(const struct setting *row, char *buf, size_t len);

/* Store the defaults of all @rows, which end with an empty row, in @object. */
void settings_default(const struct setting *rows, void *object);

/*
 * Read the settings of @group that have a row into @object. A setting without a row is an error
 * unless @others, which ends with NULL, names it. An invalid setting leaves @object unchanged.
 */
void settings_read(const struct setting *rows, const config_setting_t *group,
		   const char *const *others, void *object,
		   struct config_errors *errors);

/* Free the values' allocations. */
void settings_free(const struct setting *rows, void *object);

/*
 * Duplicate the texts and lists of @object, a copy of another struct; TUNABLES and GROUPS are not
 * supported. Returns false without memory; settings_free() is needed in any case.
 */
bool settings_own(const struct setting *rows, void *object);

/* Returns the port number in @text, 0 if it is none. */
int64_t port_of(const char *text);

/* checks for @valid of struct setting */
bool is_nqn(const char *text);
bool is_uuid(const char *text);
bool is_path(const char *text);
bool is_pool_name(const char *text);
bool is_transport(const char *text);
bool is_address(const char *text);
bool is_module_name(const char *text);
bool is_member(const char *text);
bool is_share(const char *text);
bool is_any(const char *text);

#endif
