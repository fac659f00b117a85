/* SPDX-License-Identifier: MIT */
/* HTTP listeners in an sd_event loop, without a thread. The loop never waits for a client. */
#ifndef KVBLKD_HTTP_HTTP_H
#define KVBLKD_HTTP_HTTP_H

#include <stddef.h>
#include <sys/types.h>
#include <systemd/sd-event.h>

/**
 * struct http_request - a request
 * @method: GET, HEAD, or another method if &struct http_rules.body_max allows it
 * @path: path of the URL, without the query
 * @accept: header Accept, or NULL
 * @body: body of @len bytes, terminated by a 0; NULL: none
 * @len: bytes of @body
 * @uid: uid of the peer process, for a Unix socket
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
 * struct http_answer - an answer
 * @status: HTTP status; 0 if there is no page at this path
 * @type: content type of @body, a constant string
 * @body: allocated body; http.c frees it
 * @len: bytes of @body
 * @allow: allowed methods, for status 405
 */
struct http_answer {
	unsigned int status;
	const char *type;
	char *body;
	size_t len;
	const char *allow;
};

/* Answer @request. @answer is zeroed. */
typedef void http_answer_fn(void *arg, const struct http_request *request,
			    struct http_answer *answer);

/**
 * struct http_rules - settings of a listener
 * @answer: callback for each request
 * @arg: argument of @answer
 * @pages: list of the pages, sent with status 404
 * @body_max: longest body, of which a user may send four at a time; 0: GET and HEAD only
 */
struct http_rules {
	http_answer_fn *answer;
	void *arg;
	const char *pages;
	size_t body_max;
};

struct http;

/*
 * Bind a socket and listen. @address is an IPv4 or IPv6 address. A socket at @path that no
 * process listens on is replaced; @group may be NULL. Returns a descriptor or a negative errno.
 */
int http_listen_ip(const char *address, unsigned int port);
int http_listen_unix(const char *path, const char *group, mode_t mode);

/* Answer requests at @fd, which the handle owns from now on. Returns 0 or a negative errno. */
int http_open(sd_event *event, int fd, const struct http_rules *rules, struct http **handle);
/* Change body_max, from the next request on. */
void http_set_body_max(struct http *http, size_t body_max);
/* Close the listener and its connections. NULL is ignored. */
void http_close(struct http *http);

#endif
