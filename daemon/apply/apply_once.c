// SPDX-License-Identifier: MIT
/* kvblkd --apply: run one pass and print its steps on stdout. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "apply/apply.h"
#include "apply/apply_once.h"

#define PATIENCE	5	/* seconds to wait for namespaces after connecting */
#define EXAMPLE	"/usr/share/doc/kvblk/kvblkd.conf"

static const char *const kinds[] = {
	[STEP_NOTE] = "note",
	[STEP_LOAD] = "load",
	[STEP_CONNECT] = "connect",
	[STEP_IMPORT] = "import",
	[STEP_ADOPT] = "adopt",
	[STEP_ADD] = "add",
	[STEP_FOLLOW] = "follow",
	[STEP_SET] = "set",
	[STEP_TENANT] = "tenant",
	[STEP_TENANT_SET] = "tenant",
	[STEP_TENANT_KEY] = "key",
	[STEP_KEY_REMOVE] = "key",
};

static const char *const outcomes[] = {
	[APPLY_NOTE] = "note",
	[APPLY_PLANNED] = "planned",
	[APPLY_DONE] = "done",
	[APPLY_FAILED] = "failed",
};

struct once {
	json_t *json;
	unsigned int nr_steps;
};

static void tell(void *arg, const struct step *step, enum apply_outcome outcome,
		 const char *why)
{
	struct once *once = arg;

	once->nr_steps += outcome != APPLY_NOTE;
	if (once->json)
		json_array_append_new(once->json, json_pack("{s:s, s:s, s:s, s:s}",
			"step", kinds[step->kind], "text", step->text,
			"outcome", outcomes[outcome], "reason", why));
	else if (outcome == APPLY_NOTE)
		printf("note: %s\n", step->text);
	else if (outcome == APPLY_PLANNED)
		printf("%s\n", step->text);
	else
		printf("%s: %s%s%s\n", step->text, outcomes[outcome], *why ? ": " : "", why);
	fflush(stdout);
}

int apply_once(const char *path, bool dry_run, bool json)
{
	struct once once = { .json = json ? json_array() : NULL };
	struct apply all = { .told = tell, .arg = &once, .patience = PATIENCE };
	struct apply_result result = { 0 };
	struct config config;
	unsigned int errors;
	int err = 0;

	if (access(path, F_OK)) {
		fprintf(stderr, "kvblkd: nothing was changed: %s: %s; " EXAMPLE " is an example\n", path,
			strerror(errno));
		json_decref(once.json);
		return EXIT_FAILURE;
	}
	errors = config_load(path, &config, stderr);
	if (errors)
		fprintf(stderr, "kvblkd: nothing was changed: the configuration has errors\n");
	else
		err = apply(&all, &config, dry_run, &result);
	if (err)
		fprintf(stderr, "kvblkd: cannot read host state: %s\n",
			strerror(-err));
	if (once.json) {
		json_dumpf(once.json, stdout, JSON_INDENT(2));
		printf("\n");
		json_decref(once.json);
	} else if (!errors && !err && !once.nr_steps) {
		printf("nothing to do\n");
	}
	apply_forget(&all);
	config_free(&config);
	return errors || err || result.nr_failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
