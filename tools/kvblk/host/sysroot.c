// SPDX-License-Identifier: MIT
/* Files below a root, see sysroot.h. */
#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/sysroot.h"

void tree_path(char path[PATH_MAX], const char *root, const char *format, ...)
{
	size_t len = strlen(root);
	va_list args;
	int more = -1;

	va_start(args, format);
	if (len < PATH_MAX) {
		memcpy(path, root, len + 1);
		more = vsnprintf(path + len, PATH_MAX - len, format, args);
	}
	va_end(args);
	if (more < 0 || len + (size_t)more >= PATH_MAX)
		path[0] = '\0';
}

void tree_text(const char *path, char *text, size_t len)
{
	FILE *file = fopen(path, "re");
	size_t nr = file ? fread(text, 1, len - 1, file) : 0;

	if (file)
		fclose(file);
	text[nr] = '\0';
	text[strcspn(text, "\n")] = '\0';
}

void tree_member_block(const char *root, const char *pool, const char *member,
		       char block[TREE_NAME])
{
	char path[PATH_MAX], device[PATH_MAX], real[PATH_MAX];
	const char *name;

	tree_path(path, root, "/sys/class/kvblk/%s/members/%s/device", pool, member);
	tree_text(path, block, TREE_NAME);
	/* an older module has no such file */
	tree_path(path, root, "/sys/class/kvblk/%s/members/%s/path", pool, member);
	tree_text(path, device, sizeof(device));
	name = realpath(device, real) ? real : device;
	name = strrchr(name, '/') ? strrchr(name, '/') + 1 : name;
	if (!*block)
		snprintf(block, TREE_NAME, "%.*s", TREE_NAME - 1, name);
}

uint64_t tree_number(const char *path, int base)
{
	char text[TREE_NAME];

	tree_text(path, text, sizeof(text));
	return strtoull(text, NULL, base);
}

int tree_int(const char *path, int otherwise)
{
	char text[TREE_NAME], *end;
	long value;

	tree_text(path, text, sizeof(text));
	value = strtol(text, &end, 10);
	return end == text ? otherwise : (int)value;
}

static int visible(const struct dirent *entry)
{
	return entry->d_name[0] != '.' && strlen(entry->d_name) < TREE_NAME;
}

char **tree_names(const char *path)
{
	struct dirent **entries;
	char **names;
	int nr = scandir(path, &entries, visible, versionsort);

	if (nr < 0)
		return NULL;
	names = calloc((size_t)nr + 1, sizeof(*names));
	for (int i = 0; i < nr; i++) {
		if (names)
			names[i] = strdup(entries[i]->d_name);
		free(entries[i]);
	}
	free(entries);
	return names;
}

void tree_free_names(char **names)
{
	for (char **name = names; name && *name; name++)
		free(*name);
	free(names);
}
