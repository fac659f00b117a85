/* SPDX-License-Identifier: MIT */
/*
 * HTTP: listeners in an sd_event loop, without a thread. Rule: it never waits for a
 * client.
 */
#ifndef KVBLKD_HTTP_H
#define KVBLKD_HTTP_H

#include <stddef.h>
#include <sys/types.h>
#include <systemd/sd-event.h>

/**
 * struct http_request - what is asked
 * @method: GET, HEAD, or another one that struct http_rules allows
 * @path: without what follows a ?
 * @accept: the header, or NULL
 * @body: @len bytes, and a 0 behind them; NULL: none
 * @uid: whose process it is, of a socket in the file system
 */
struct http_request {
	const char *method;
	const char *path;
	const char *accept;
	const char *body;
	size_t len;
	uid_t uid;
};

/**
 * struct http_answer - what a request is answered with
 * @status: of HTTP; 0 when there is nothing at this path
 * @type: of @body, a constant string
 * @body: allocated, http.c frees it
 * @len: bytes there
 * @allow: with status 405: what is
 */
struct http_answer {
	unsigned int status;
	const char *type;
	char *body;
	size_t len;
	const char *allow;
};

/* @answer is empty before. */
typedef void http_answer_fn(void *arg, const struct http_request *request,
			    struct http_answer *answer);

/**
 * struct http_rules - of a listener
 * @answer: called for each request, with @arg
 * @pages: in words, for those who ask for another one
 * @body_max: longest body; of a user, four of them at a time; 0: other methods than GET
 *	and HEAD are refused
 */
struct http_rules {
	http_answer_fn *answer;
	void *arg;
	const char *pages;
	size_t body_max;
};

struct http;

/*
 * A socket that is bound and listens, or a negative errno: of socket(2), bind(2) and so
 * on. @address is one of IPv4 or IPv6. One at @path is replaced if nobody listens there;
 * @group may be NULL.
 */
int http_listen_ip(const char *address, unsigned int port);
int http_listen_unix(const char *path, const char *group, mode_t mode);

/* Answers at the socket @fd, which is the handle's from then on: 0, or a negative errno. */
int http_open(sd_event *event, int fd, const struct http_rules *rules, struct http **handle);
/* From the next request on. */
void http_set_body_max(struct http *http, size_t body_max);
/* NULL is allowed. Connections are closed. */
void http_close(struct http *http);

#endif
