/* SPDX-License-Identifier: MIT */
/*
 * HTTP for those who scrape: a listener in an sd_event loop, without a thread. Rule: it
 * never waits for a client.
 */
#ifndef KVBLKD_HTTP_H
#define KVBLKD_HTTP_H

#include <stddef.h>
#include <systemd/sd-event.h>

/**
 * struct http_answer - what a request is answered with
 * @status: of HTTP; 0 when there is nothing at this path
 * @type: of @body, a constant string
 * @body: allocated, http.c frees it
 * @len: bytes there
 */
struct http_answer {
	unsigned int status;
	const char *type;
	char *body;
	size_t len;
};

/* Answers GET and HEAD of @path; @accept may be NULL. It is empty before. */
typedef void http_answer_fn(void *arg, const char *path, const char *accept,
			    struct http_answer *answer);

struct http;

/*
 * Listens: 0, or a negative errno: of socket(2), bind(2) and so on. @address is one of
 * IPv4 or IPv6.
 */
int http_open(sd_event *event, const char *address, unsigned int port,
	      http_answer_fn *answer, void *arg, struct http **handle);
/* NULL is allowed. Connections are closed. */
void http_close(struct http *http);

#endif
