// SPDX-License-Identifier: MIT
/*
 * The socket for hints, see hint_socket.h: requests in, orders for the prefetcher out.
 * Everything runs in the main loop and never blocks.
 *
 * A rejected request changes nothing. A client sees the orders and sessions of its own user, and
 * may use the pools that the configuration lists.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "http/http.h"
#include "log/log.h"
#include "prestage/hint_socket.h"

#define ORDERS	"/l2/prefetch"
/* Limits of a request: 1024 actions of three groups each, four times the keys of a lookup. */
#define GROUPS_MAX	4096u
#define VALUES_MAX	(4u * KVBLK_LOOKUP_MAX)

static const char *const outcomes[] = {
#define X(NAME, name)	[PRESTAGE_##NAME] = name,
	PRESTAGE_OUTCOME_TABLE(X)
#undef X
};

static struct {
	int fd;				/* listening socket not served yet; 0: none */
	struct http *http;		/* NULL: not serving */
	/* path, group and mode of the existing socket; path NULL: none */
	struct config_prestage made;
	const struct config_prestage *config;
	struct sessions *sessions;
	uint64_t requests[PRESTAGE_OUTCOMES];
	uint32_t hint_keys;		/* keys at which the present request may still hint */
} prestage;

/**
 * struct verdict - result of a request for blocks
 * @outcome: &enum prestage_outcome
 * @why: reason, unless PRESTAGE_ACCEPTED
 * @id: id of the order, "": none
 * @nr: keys of the order
 */
struct verdict {
	enum prestage_outcome outcome;
	char why[WANTS_WHY_LEN];
	char id[PREFETCHER_ID_LEN];
	unsigned int nr;
};

static void answer_json(struct http_answer *answer, unsigned int status, json_t *json)
{
	answer->body = json ? json_dumps(json, JSON_COMPACT) : NULL;
	json_decref(json);
	answer->status = answer->body ? status : 500;
	answer->type = "application/json";
	answer->len = answer->body ? strlen(answer->body) : 0;
}

static void answer_error(struct http_answer *answer, unsigned int status, const char *why)
{
	json_t *json = json_pack("{s:s}", "error", why);

	/* @why is invalid UTF-8: a word of the request was cut within a character */
	answer_json(answer, status, json ? json : json_pack("{s:s}", "error", "invalid request"));
}

/* Limit the number of values: 3 bytes of text may take 200 bytes of memory. */
static bool is_modest(const char *text, size_t len)
{
	size_t groups = 0, values = 0;

	for (size_t i = 0; i < len; i++) {
		groups += text[i] == '{' || text[i] == '[';
		values += text[i] == ',';
	}
	return groups <= GROUPS_MAX && values <= VALUES_MAX;
}

/* Parse the body. Returns NULL after answering with an error. */
static json_t *body_of(const struct http_request *request, struct http_answer *answer)
{
	char why[WANTS_WHY_LEN + JSON_ERROR_TEXT_LENGTH];
	json_error_t error;
	json_t *json;

	if (!is_modest(request->body, request->len)) {
		snprintf(why, sizeof(why), "the request has more than %u lists and objects, or %u values",
			 GROUPS_MAX, VALUES_MAX);
		answer_error(answer, 413, why);
		return NULL;
	}
	json = json_loadb(request->body ? request->body : "", request->len, JSON_REJECT_DUPLICATES, &error);
	if (json)
		return json;
	snprintf(why, sizeof(why), "the request is not JSON: line %d: %s", error.line, error.text);
	answer_error(answer, 400, why);
	return NULL;
}

__attribute__((format(printf, 3, 4)))
static bool judge(struct verdict *verdict, enum prestage_outcome outcome, const char *format, ...)
{
	va_list args;

	verdict->outcome = outcome;
	va_start(args, format);
	vsnprintf(verdict->why, sizeof(verdict->why), format, args);
	va_end(args);
	return false;
}

static bool check_pool(struct want *want, struct verdict *verdict)
{
	const struct texts *pools = &prestage.config->pools;

	if (!*want->pool && pools->nr != 1)
		return judge(verdict, PRESTAGE_REJECTED, "pool is missing");
	if (!*want->pool)
		snprintf(want->pool, sizeof(want->pool), "%s", pools->text[0]);
	return texts_has(pools, want->pool) ||
	       judge(verdict, PRESTAGE_REJECTED, "pool %s is not available at this socket", want->pool);
}

/* Translate an error of the prefetcher to a verdict. Returns true for 0. */
static bool judge_order(struct verdict *verdict, int err)
{
	if (err == -EAGAIN)
		return judge(verdict, PRESTAGE_DEFERRED, "too many requests of this user are queued; retry later");
	if (err == -E2BIG)
		return judge(verdict, PRESTAGE_REJECTED, "the keys of the request exceed waiting_bytes");
	return !err || judge(verdict, PRESTAGE_DEFERRED, "%s", strerror(-err));
}

/* Find the keys of a request: its own, or its session's, whose pool it takes. Returns NULL if none. */
static const struct chain *chain_of(struct want *want, uid_t uid, struct verdict *verdict)
{
	const struct session *session;

	if (want->chain.nr)
		return &want->chain;
	session = sessions_get(prestage.sessions, uid, want->session);
	if (!session) {
		judge(verdict, PRESTAGE_MISSING, "unknown session %s", want->session);
		return NULL;
	}
	if (*want->pool && strcmp(want->pool, session->pool) != 0) {
		judge(verdict, PRESTAGE_REJECTED, "session %s belongs to pool %s", want->session, session->pool);
		return NULL;
	}
	snprintf(want->pool, sizeof(want->pool), "%s", session->pool);
	return &session->chain;
}

/* Find the keys of an order. A session's are copied only if the prefetcher has space for it. */
static bool find_chain(struct want *want, uid_t uid, struct verdict *verdict)
{
	const struct chain *chain = chain_of(want, uid, verdict);

	if (!chain || chain == &want->chain)
		return chain;
	return judge_order(verdict, prefetcher_room(chain, uid)) &&
	       (chain_copy(chain, &want->chain) || judge(verdict, PRESTAGE_DEFERRED, "out of memory"));
}

static bool remember(const struct want *want, uid_t uid, struct verdict *verdict)
{
	int err = sessions_set(prestage.sessions, uid, want->session, want->pool, &want->chain);

	if (err == -E2BIG)
		return judge(verdict, PRESTAGE_REJECTED, "the keys of the session exceed session_bytes, or sessions is 0");
	return !err || judge(verdict, PRESTAGE_DEFERRED, "out of memory");
}

static bool order(struct want *want, uid_t uid, struct verdict *verdict)
{
	uint64_t most = (uint64_t)prestage.config->request_bytes;
	bool clipped = most && want->max_bytes > most;
	int err;

	if (most && (!want->max_bytes || clipped))
		want->max_bytes = most;
	verdict->nr = want->chain.nr;
	err = prefetcher_order(want, uid, verdict->id);
	if (!judge_order(verdict, err))
		return false;
	if (clipped)
		judge(verdict, PRESTAGE_CLIPPED, "clipped to %" PRIu64 " bytes", most);
	return true;
}

/* Handle a request for blocks. A rejected or deferred one may still store its session. */
static void take(const json_t *json, uid_t uid, struct verdict *verdict)
{
	bool given;
	struct want want;

	*verdict = (struct verdict){ .outcome = PRESTAGE_ACCEPTED };
	if (!want_read(json, (uint32_t)prestage.config->lease * 1000, &want, verdict->why)) {
		verdict->outcome = PRESTAGE_REJECTED;
	} else {
		given = want.chain.nr && *want.session;
		if (find_chain(&want, uid, verdict) && check_pool(&want, verdict) &&
		    (!given || remember(&want, uid, verdict)))
			order(&want, uid, verdict);
	}
	want_free(&want);
	prestage.requests[verdict->outcome]++;
}

/* Pass a hint on @chain to the pool, which does no I/O for it. */
static bool pass_on(const struct want *want, const struct chain *chain, uint32_t flags, struct verdict *verdict)
{
	const struct kvblk_hint hint = {
		.size = sizeof(hint),
		.flags = flags,
		.retain_s = (uint32_t)want->retain_s,
	};
	unsigned int nr = 0;
	struct kvblk *kv;
	int err = kvblk_open(want->pool, 0, &kv);

	if (!err) {
		err = kvblk_hint_keys(kv, chain->keys, chain->lens, chain->nr, &hint, &nr);
		kvblk_close(kv);
	}
	if (err == -EOPNOTSUPP)
		return judge(verdict, PRESTAGE_REJECTED, "not supported by the kernel module");
	if (err)
		return judge(verdict, PRESTAGE_DEFERRED, "pool %s: %s", want->pool, strerror(-err));
	return nr || judge(verdict, PRESTAGE_MISSING, "the pool has none of the blocks");
}

/* Handle a hint on stored blocks, of flags KVBLK_OPF_*. */
static void take_hint(const json_t *json, uid_t uid, uint32_t flags, struct verdict *verdict)
{
	const struct chain *chain;
	struct want want;

	*verdict = (struct verdict){ .outcome = PRESTAGE_ACCEPTED };
	if (!want_read_hint(json, flags & KVBLK_OPF_RETAIN, &want, verdict->why)) {
		verdict->outcome = PRESTAGE_REJECTED;
	} else {
		chain = chain_of(&want, uid, verdict);
		if (chain && chain->nr > prestage.hint_keys) {
			judge(verdict, PRESTAGE_DEFERRED, "hints on more than %u keys in a request", VALUES_MAX);
		} else if (chain && check_pool(&want, verdict)) {
			/* or else the main loop would stand still for many sessions */
			prestage.hint_keys -= chain->nr;
			pass_on(&want, chain, flags, verdict);
		}
	}
	want_free(&want);
	prestage.requests[verdict->outcome]++;
}

static void on_order(const struct http_request *request, const char *rest, struct http_answer *answer)
{
	static const unsigned int status[] = {
		[PRESTAGE_ACCEPTED] = 202, [PRESTAGE_CLIPPED] = 202, [PRESTAGE_DEFERRED] = 429,
		[PRESTAGE_REJECTED] = 400, [PRESTAGE_MISSING] = 404,
	};
	json_t *json = body_of(request, answer);
	struct verdict verdict;

	if (!json) {
		prestage.requests[PRESTAGE_REJECTED]++;
		return;
	}
	take(json, request->uid, &verdict);
	json_decref(json);
	if (*verdict.id)
		answer_json(answer, status[verdict.outcome],
			    json_pack("{s:s, s:s, s:I}", "request_id", verdict.id, "status", "submitted",
				      "chunks", (json_int_t)verdict.nr));
	else
		answer_error(answer, status[verdict.outcome], verdict.why);
}

static void on_tell(const struct http_request *request, const char *rest, struct http_answer *answer)
{
	json_t *json = prefetcher_tell(rest, request->uid);

	if (json)
		answer_json(answer, 200, json);
	else
		answer_error(answer, 404, "no such request");
}

static void on_drop(const struct http_request *request, const char *rest, struct http_answer *answer)
{
	const char *done = prefetcher_drop(rest, request->uid);

	if (done)
		answer_json(answer, 200, json_pack("{s:s, s:s}", "request_id", rest, "status", done));
	else
		answer_error(answer, 404, "no such request");
}

static bool is_version_1(const char *version)
{
	return version[0] == '1' && (!version[1] || version[1] == '.');
}

/**
 * struct action - a known action
 * @flags: hint on stored blocks, KVBLK_OPF_*; 0: a prefetch
 */
static const struct action {
	const char *type;
	uint32_t flags;
} actions[] = {
	{ "kv_hint.prefetch.v1", 0 },
	{ "kv_hint.demote.v1", KVBLK_OPF_DEMOTE },
	{ "kv_hint.deref.v1", KVBLK_OPF_RELEASE },
	{ "kv_hint.retain.v1", KVBLK_OPF_RETAIN },
};

static const struct action *action_of(const char *type)
{
	for (size_t i = 0; i < sizeof(actions) / sizeof(actions[0]); i++) {
		if (!strcmp(type, actions[i].type))
			return &actions[i];
	}
	return NULL;
}

static void take_action(const json_t *action, uid_t uid, struct verdict *verdict)
{
	const char *type = json_string_value(json_object_get(action, "action_type"));
	const char *version = json_string_value(json_object_get(action, "action_version"));
	const json_t *payload = json_object_get(action, "payload");
	const struct action *known = action_of(type);

	*verdict = (struct verdict){ .outcome = PRESTAGE_ACCEPTED };
	if (!known) {
		judge(verdict, PRESTAGE_REJECTED, "unknown action_type %.60s; known: kv_hint.prefetch.v1, .demote.v1, .deref.v1, .retain.v1",
		      type);
	} else if (!is_version_1(version)) {
		judge(verdict, PRESTAGE_REJECTED, "unknown action_version %.40s; known: 1", version);
	} else if (known->flags) {
		take_hint(payload, uid, known->flags, verdict);
		return;
	} else {
		take(payload, uid, verdict);
		return;
	}
	prestage.requests[PRESTAGE_REJECTED]++;
}

static json_t *outcome_json(const json_t *action, const struct verdict *verdict)
{
	json_t *json = json_pack("{s:O, s:s}", "action_id", json_object_get(action, "action_id"),
				 "outcome", outcomes[verdict->outcome]);

	if (*verdict->why)
		json_object_set_new(json, "reason", json_string(verdict->why));
	if (*verdict->id)
		json_object_set_new(json, "request_id", json_string(verdict->id));
	return json;
}

static void on_hints(const struct http_request *request, const char *rest, struct http_answer *answer)
{
	json_t *json = body_of(request, answer), *list, *action;
	char why[WANTS_WHY_LEN];
	struct verdict verdict;
	size_t i;

	if (!json || !hints_check(json, why)) {
		if (json)
			answer_error(answer, 400, why);
		prestage.requests[PRESTAGE_REJECTED]++;
		json_decref(json);
		return;
	}
	list = json_array();
	prestage.hint_keys = VALUES_MAX;
	json_array_foreach(json_object_get(json, "actions"), i, action) {
		take_action(action, request->uid, &verdict);
		json_array_append_new(list, outcome_json(action, &verdict));
	}
	answer_json(answer, 200, json_pack("{s:s, s:O, s:o}", "protocol_version", "0.1", "message_id",
					   json_object_get(json, "message_id"), "outcomes", list));
	json_decref(json);
}

static void on_session(const struct http_request *request, const char *rest, struct http_answer *answer)
{
	json_t *json = body_of(request, answer);
	struct verdict verdict = { .outcome = PRESTAGE_ACCEPTED };
	struct want want;

	if (!json) {
		prestage.requests[PRESTAGE_REJECTED]++;
		return;
	}
	if (!want_read_keys(json, &want, verdict.why))
		verdict.outcome = PRESTAGE_REJECTED;
	else if (!sessions_is_id(rest))
		judge(&verdict, PRESTAGE_REJECTED, "a session ID must have 1 to %d characters without blanks and slashes",
		      CHAINS_SESSION_MAX);
	else if (check_pool(&want, &verdict)) {
		snprintf(want.session, sizeof(want.session), "%s", rest);
		remember(&want, request->uid, &verdict);
	}
	prestage.requests[verdict.outcome]++;
	if (verdict.outcome == PRESTAGE_ACCEPTED)
		answer_json(answer, 200, json_pack("{s:s, s:s, s:I}", "session_id", rest, "pool", want.pool,
						   "keys", (json_int_t)want.chain.nr));
	else
		answer_error(answer, verdict.outcome == PRESTAGE_REJECTED ? 400 : 429, verdict.why);
	want_free(&want);
	json_decref(json);
}

/**
 * struct route - a method of a path
 * @path: path; the text after a trailing / is the argument
 * @allow: methods of the path
 */
static const struct route {
	const char *method;
	const char *path;
	const char *allow;
	void (*run)(const struct http_request *request, const char *rest, struct http_answer *answer);
} routes[] = {
	{ "POST", ORDERS, "POST", on_order },
	{ "GET", ORDERS "/", "GET, DELETE", on_tell },
	{ "DELETE", ORDERS "/", "GET, DELETE", on_drop },
	{ "POST", "/v1/hints", "POST", on_hints },
	{ "POST", "/v1/sessions/", "POST", on_session },
};

static void on_request(void *arg, const struct http_request *request, struct http_answer *answer)
{
	for (size_t i = 0; i < sizeof(routes) / sizeof(routes[0]); i++) {
		size_t len = strlen(routes[i].path);
		bool more = routes[i].path[len - 1] == '/';

		if (strncmp(request->path, routes[i].path, len) != 0 || (request->path[len] && !more))
			continue;
		if (!strcmp(request->method, routes[i].method)) {
			routes[i].run(request, request->path + len, answer);
			return;
		}
		answer->allow = routes[i].allow;
	}
	if (answer->allow)
		answer_error(answer, 405, "method not allowed; see the header Allow");
	else
		answer_error(answer, 404, "not found; paths: /l2/prefetch, /l2/prefetch/ID, /v1/hints, /v1/sessions/ID");
}

void prestage_listen(const struct config *config)
{
	const struct config_prestage *want = &config->prestage;
	int fd;

	if (!want->socket)
		return;
	fd = http_listen_unix(want->socket, want->group, (mode_t)strtoul(want->mode, NULL, 8));
	if (fd < 0) {
		log_line(LOG_LINE_WARNING, "prestage: cannot listen at %s: %s", want->socket,
			 fd == -ESRCH ? "no such group" : strerror(-fd));
		return;
	}
	prestage.fd = fd;
	prestage.made = (struct config_prestage){
		.socket = strdup(want->socket),
		.group = want->group ? strdup(want->group) : NULL,
		.mode = strdup(want->mode),
	};
}

static bool same(const char *a, const char *b)
{
	return a && b ? !strcmp(a, b) : a == b;
}

static void forget_socket(void)
{
	struct config_prestage *made = &prestage.made;

	free(made->socket);
	free(made->group);
	free(made->mode);
	*made = (struct config_prestage){ 0 };
}

static void stop(void)
{
	http_close(prestage.http);
	prestage.http = NULL;
	unlink(prestage.made.socket);
	log_line(LOG_LINE_INFO, "prestage: no longer listening at %s", prestage.made.socket);
	forget_socket();
}

static int start(sd_event *event)
{
	const struct http_rules rules = {
		.answer = on_request,
		.pages = "",
		.body_max = (size_t)prestage.config->body,
	};
	int err;

	if (prestage.http)
		http_set_body_max(prestage.http, rules.body_max);
	if (!prestage.fd)
		return 0;
	err = http_open(event, prestage.fd, &rules, &prestage.http);
	prestage.fd = 0;
	if (!err) {
		log_line(LOG_LINE_INFO, "prestage: listening at %s", prestage.made.socket);
		return 0;
	}
	unlink(prestage.made.socket);
	forget_socket();
	return err;
}

int prestage_follow(sd_event *event, const struct config *config)
{
	const struct config_prestage *want = &config->prestage;
	const struct prefetcher_rules rules = {
		.parallel = (unsigned int)want->parallel,
		.waiting = (unsigned int)want->waiting,
		.bytes = (uint64_t)want->waiting_bytes,
		.bandwidth = (uint64_t)want->bandwidth,
	};

	prestage.config = want;
	if (prestage.http && !(same(want->socket, prestage.made.socket) && same(want->group, prestage.made.group) &&
			       same(want->mode, prestage.made.mode)))
		stop();
	if (!want->socket)
		return 0;
	if (!prestage.sessions)
		prestage.sessions = sessions_new();
	if (!prestage.sessions)
		return -ENOMEM;
	sessions_configure(prestage.sessions, &(struct sessions_rules){
		.sessions = (size_t)want->sessions, .bytes = (size_t)want->session_bytes });
	prefetcher_configure(&rules);
	if (!prestage.fd && !prestage.http)
		prestage_listen(config);
	return start(event);
}

bool prestage_counts(struct prestage_counts *counts)
{
	*counts = (struct prestage_counts){ 0 };
	if (!prestage.http)
		return false;
	memcpy(counts->requests, prestage.requests, sizeof(counts->requests));
	counts->sessions = sessions_nr(prestage.sessions);
	prefetcher_counts(&counts->prefetches);
	return true;
}
