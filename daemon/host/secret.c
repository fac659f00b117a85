// SPDX-License-Identifier: MIT
/* Read secrets, see secret.h. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "host/secret.h"

int secret_read(const char *path, char secret[SECRET_LEN], char *why, size_t len)
{
	FILE *file = fopen(path, "re");
	struct stat st;
	int ret = -1;

	if (!file || fstat(fileno(file), &st))
		snprintf(why, len, "%s: %s", path, strerror(errno));
	else if (st.st_mode & 077)
		snprintf(why, len, "%s holds a secret and others may read it: chmod 600 %s",
			 path, path);
	else if (!fgets(secret, SECRET_LEN, file) || !secret[strcspn(secret, "\r\n")])
		snprintf(why, len, "%s holds no line with a secret", path);
	else
		ret = 0;
	if (ret)
		explicit_bzero(secret, SECRET_LEN);
	else
		secret[strcspn(secret, "\r\n")] = '\0';
	if (file)
		fclose(file);
	return ret;
}
