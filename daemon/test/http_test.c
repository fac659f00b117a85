// SPDX-License-Identifier: MIT
/*
 * HTTP in its loop: what a long body waits for. Rule: the test runs the loop without letting it wait, so that what needs
 * a timer is seen as a turn in which neither side could do anything.
 */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "../http.h"

#define BODY_MAX	((size_t)16 << 20)

static sd_event *event;
static struct http *http;
static unsigned int answered;
static size_t body_len;
static bool armed;		/* the loop waits */
static struct sockaddr_un local = { .sun_family = AF_UNIX };

/* ---- the server ---- */

static void on_request(void *arg, const struct http_request *request, struct http_answer *answer)
{
	assert_ptr_equal(arg, &answered);
	body_len = request->len;
	answered++;
	answer->status = 200;
	answer->type = "text/plain";
	answer->body = strdup("ok");
	answer->len = 2;
}

static void open_at(int fd)
{
	const struct http_rules rules = { .answer = on_request, .arg = &answered, .pages = "", .body_max = BODY_MAX };

	armed = false;
	answered = 0;
	assert_true(fd >= 0);
	assert_true(sd_event_new(&event) >= 0);
	assert_int_equal(http_open(event, fd, &rules, &http), 0);
}

static int begin(void **state)
{
	char path[] = "/tmp/http_test-XXXXXX";

	(void)state;
	assert_non_null(mkdtemp(path));
	snprintf(local.sun_path, sizeof(local.sun_path), "%s/s", path);
	open_at(http_listen_unix(local.sun_path, NULL, 0600));
	return 0;
}

static int end(void **state)
{
	(void)state;
	http_close(http);
	event = sd_event_unref(event);
	if (*local.sun_path) {
		unlink(local.sun_path);
		rmdir(dirname(local.sun_path));
		*local.sun_path = '\0';
	}
	return 0;
}

/*
 * Runs the loop as long as it has something to do, and lets it wait for @ms before.
 * Returns whether it had. sd_event_run(event, 0) would not do: it runs timers whose time
 * has come, for which the loop would have slept on.
 */
static bool turn_after(int ms)
{
	bool did = false;
	int pending;

	for (;; ms = 0) {
		pending = armed ? 0 : sd_event_prepare(event);
		assert_true(pending >= 0);
		armed = !pending;
		if (armed) {
			if (!poll(&(struct pollfd){ sd_event_get_fd(event), POLLIN, 0 }, 1, ms))
				return did;
			pending = sd_event_wait(event, 0);
			armed = false;
		}
		if (pending) {
			assert_true(sd_event_dispatch(event) >= 0);
			did = true;
		}
	}
}

static bool turn(void)
{
	return turn_after(0);
}

/* ---- tests ---- */

/* A body of 9 MB needs no timer: while there is something to read, it is read. */
static void test_body(void **state)
{
	static char part[1 << 16];
	size_t len = (size_t)9 << 20, sent = 0;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	unsigned int waits = 0;
	char head[128];
	ssize_t n = 0;

	(void)state;
	assert_int_equal(connect(fd, (struct sockaddr *)&local, sizeof(local)), 0);
	assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
	memset(part, 'x', sizeof(part));
	snprintf(head, sizeof(head), "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %zu\r\n\r\n", len);
	assert_int_equal(send(fd, head, strlen(head), MSG_NOSIGNAL), strlen(head));
	while (!answered && waits < 3) {
		bool did = false;

		while (sent < len && (n = send(fd, part, len - sent < sizeof(part) ? len - sent : sizeof(part),
					       MSG_NOSIGNAL)) > 0) {
			sent += (size_t)n;
			did = true;
		}
		/* the peer has what was sent: if nothing can be sent, nor read, a timer is waited for */
		waits += !turn() && !did;
	}
	assert_int_equal(waits, 0);
	assert_int_equal(body_len, len);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_body, begin, end),
	};

	return cmocka_run_group_tests_name("http", tests, NULL, NULL);
}
