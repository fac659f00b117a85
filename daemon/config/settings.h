/* SPDX-License-Identifier: MIT */
/*
 * Settings of a configuration file: a row says what a setting is called, what it
 * may be and where its value goes. The rule: what is checked, what an error says is
 * allowed and what the man page tells are made from the row.
 */
#ifndef KVBLKD_SETTINGS_H
#define KVBLKD_SETTINGS_H

#include <libconfig.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/**
 * enum setting_type - what a setting is, and what it becomes
 * @SETTING_BOOL: true or false: bool
 * @SETTING_NUMBER: int64_t
 * @SETTING_SIZE: a number, or a text such as "256M": int64_t
 * @SETTING_TEXT: char *, allocated
 * @SETTING_LIST: a list of texts: struct texts
 * @SETTING_TUNABLES: a group of a pool's tunables: char *[TUNABLES_MAX], allocated
 * @SETTING_REAL: a number, with a fraction or without: double, 0 if it is not given
 * @SETTING_GROUP: a group with rows of its own: a struct
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
};

struct texts {
	char **text;
	size_t nr;
};

/* Adds a copy of @text; false: no memory. */
bool texts_add(struct texts *texts, const char *text);
void texts_remove(struct texts *texts, const char *text);
void texts_free(struct texts *texts);

/**
 * struct setting - a row
 * @name: in the file
 * @type: &enum setting_type
 * @required: it has no default, and must be in the group unless an earlier file had it
 * @vital: a value that is wrong costs the group: without it, the group would mean
 *	something else
 * @offset: of the value in the struct of its section
 * @least: allowed, of a number or a size; of a REAL, the first that is not allowed
 * @most: likewise; of a list, how many texts it may have
 * @valid: TEXT, LIST: what each text must be
 * @allowed: TEXT, LIST: the same in words
 * @standard: NUMBER, SIZE, BOOL: default
 * @rows: GROUP: its settings
 * @doc: what it does
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
	const char *doc;
};

/**
 * struct config_errors - what is wrong
 * @to: where errors are written, or NULL
 * @nr: how many there were
 * @vital: those of them that cost more than one setting
 */
struct config_errors {
	FILE *to;
	unsigned int nr;
	unsigned int vital;
};

/* "FILE:LINE: SETTING: TEXT", counted; the second one as vital, too. */
void config_error(struct config_errors *errors, const config_setting_t *at,
		  const char *format, ...)
	__attribute__((format(printf, 3, 4)));
void config_vital_error(struct config_errors *errors, const config_setting_t *at,
			const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* What the row allows, in words: to @buf, which is returned. */
char *setting_allowed(const struct setting *row, char *buf, size_t len);

/* Puts the defaults of all @rows, which end with an empty one, into @object. */
void settings_default(const struct setting *rows, void *object);

/*
 * Puts each setting of @group that has a row into @object. Those that have none are
 * errors, but for those named in @others, which ends with NULL. What is wrong leaves
 * @object as it is.
 */
void settings_read(const struct setting *rows, const config_setting_t *group,
		   const char *const *others, void *object,
		   struct config_errors *errors);

/* Frees what the values have allocated. */
void settings_free(const struct setting *rows, void *object);

/*
 * Makes the texts and lists of @object, which is the copy of another one, its own. Returns
 * false if there is no memory; settings_free() is due in any case. Not for TUNABLES.
 */
bool settings_own(const struct setting *rows, void *object);

/* The port that @text is; 0: it is none. */
int64_t port_of(const char *text);

/* For struct setting's @valid. */
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
