// SPDX-License-Identifier: MIT
/*
 * HTTP in the loop: a long body, and the effect of a user's connections on other users. The test
 * runs the loop without letting it wait, so that waiting for a timer shows as a turn without
 * progress.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <poll.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "http/http.h"
#include "kvblk_test.h"

#define BODY_MAX	((size_t)16 << 20)
#define OTHERS		32	/* connection limit */

static sd_event *event;
static struct http *http;
static unsigned int port, answered;
static size_t body_len;
static bool armed;		/* the loop waits */
static struct sockaddr_un local = { .sun_family = AF_UNIX };

/* time runs a hundred times as fast */

int __real_sd_event_source_set_time_relative(sd_event_source *source, uint64_t us);
int __wrap_sd_event_source_set_time_relative(sd_event_source *source, uint64_t us);
int __real_sd_event_add_time_relative(sd_event *e, sd_event_source **source, clockid_t clock, uint64_t us,
				      uint64_t accuracy, sd_event_time_handler_t fn, void *arg);
int __wrap_sd_event_add_time_relative(sd_event *e, sd_event_source **source, clockid_t clock, uint64_t us,
				      uint64_t accuracy, sd_event_time_handler_t fn, void *arg);

static uint64_t hurry = 1;

int __wrap_sd_event_source_set_time_relative(sd_event_source *source, uint64_t us)
{
	return __real_sd_event_source_set_time_relative(source, us / hurry);
}

int __wrap_sd_event_add_time_relative(sd_event *e, sd_event_source **source, clockid_t clock, uint64_t us,
				      uint64_t accuracy, sd_event_time_handler_t fn, void *arg)
{
	return __real_sd_event_add_time_relative(e, source, clock, us / hurry, accuracy, fn, arg);
}

/* accept4() with forged peer addresses */

int __real_accept4(int fd, struct sockaddr *peer, socklen_t *len, int flags);
int __wrap_accept4(int fd, struct sockaddr *peer, socklen_t *len, int flags);

static const char *peer_at;	/* address of the next peer, or NULL */

int __wrap_accept4(int fd, struct sockaddr *peer, socklen_t *len, int flags)
{
	struct sockaddr_in6 at = { .sin6_family = AF_INET6 };
	int got = __real_accept4(fd, peer, len, flags);

	if (got < 0 || !peer_at)
		return got;
	assert_int_equal(inet_pton(AF_INET6, peer_at, &at.sin6_addr), 1);
	memcpy(peer, &at, sizeof(at));
	*len = sizeof(at);
	return got;
}

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

	hurry = 1;
	armed = false;
	answered = 0;
	assert_true(fd >= 0);
	assert_true(sd_event_new(&event) >= 0);
	assert_int_equal(http_open(event, fd, &rules, &http), 0);
}

static int begin(void **state)
{
	int fd = http_listen_ip("127.0.0.1", 0);
	struct sockaddr_in at = { 0 };

	assert_true(fd >= 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &(socklen_t){ sizeof(at) }), 0);
	port = ntohs(at.sin_port);
	open_at(fd);
	return 0;
}

static int begin_local(void **state)
{
	char path[] = "/tmp/http_test-XXXXXX";

	assert_non_null(mkdtemp(path));
	snprintf(local.sun_path, sizeof(local.sun_path), "%s/s", path);
	open_at(http_listen_unix(local.sun_path, NULL, 0600));
	return 0;
}

static int end(void **state)
{
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
 * Run the loop while it has work, after waiting @ms. Returns true if it had work.
 * sd_event_run(event, 0) would not do: it also runs timers that expired while the loop would
 * have slept.
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

/* Connect from @address, a user of its own. */
static int connect_from(const char *address)
{
	struct sockaddr_in from = { .sin_family = AF_INET, .sin_addr.s_addr = inet_addr(address) };
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
				  .sin_port = htons((uint16_t)port) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(bind(fd, (struct sockaddr *)&from, sizeof(from)), 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
	assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
	turn();
	return fd;
}

static void tell(int fd, const char *text)
{
	assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
	turn();
}

/* Returns true if the peer has closed @fd without an answer. */
static bool is_closed(int fd)
{
	char c;

	turn();
	return recv(fd, &c, 1, MSG_PEEK) == 0 || errno == ECONNRESET;
}

/* Wait until @fd is closed: the kernel may delay events between IP sockets. */
static void gets_closed(int fd)
{
	for (int i = 0; i < 10000 && !is_closed(fd); i++)
		turn_after(1);
	assert_true(is_closed(fd));
}

/* Send a request and expect an answer. */
static void is_answered(int fd)
{
	unsigned int before = answered;
	char got[512] = "";

	tell(fd, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
	for (int i = 0; i < 10000 && recv(fd, got, sizeof(got) - 1, 0) <= 0; i++)
		turn_after(1);
	assert_memory_equal(got, "HTTP/1.1 200", 12);
	assert_int_equal(answered, before + 1);
}

/* A body of 9 MB needs no timer: data that is available is read. */
TEST_WITH(test_body, begin_local, end)
{
	static char part[1 << 16];
	size_t len = (size_t)9 << 20, sent = 0;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	unsigned int waits = 0;
	char head[128];
	ssize_t n = 0;

	assert_int_equal(connect(fd, (struct sockaddr *)&local, sizeof(local)), 0);
	assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
	memset(part, 'x', sizeof(part));
	snprintf(head, sizeof(head), "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %zu\r\n\r\n", len);
	tell(fd, head);
	while (!answered && waits < 3) {
		bool did = false;

		while (sent < len && (n = send(fd, part, len - sent < sizeof(part) ? len - sent : sizeof(part),
					       MSG_NOSIGNAL)) > 0) {
			sent += (size_t)n;
			did = true;
		}
		/* nothing could be sent or read: a timer would be needed */
		waits += !turn() && !did;
	}
	assert_int_equal(waits, 0);
	assert_int_equal(body_len, len);
	close(fd);
}

/* Idle connections of two users: these users and a third one are answered. */
TEST_WITH(test_idle, begin, end)
{
	static const char *const users[] = { "127.0.0.1", "127.0.0.2", "127.0.0.3" };
	int idle[2 * OTHERS], fd;

	for (int i = 0; i < 2 * OTHERS; i++) {
		idle[i] = connect_from(users[i % 2]);
		tell(idle[i], "GET /healthz HT");
	}
	gets_closed(idle[0]);
	assert_false(is_closed(idle[2 * OTHERS - 1]));
	for (int i = 0; i < 3; i++) {
		fd = connect_from(users[i]);
		is_answered(fd);
		close(fd);
	}
	for (int i = 0; i < 2 * OTHERS; i++)
		close(idle[i]);
}

/* Requests under way: another one of their user is refused, another user's is not. */
TEST_WITH(test_busy, begin, end)
{
	int busy[OTHERS], fd, other;
	char got[64];

	for (int i = 0; i < OTHERS; i++) {
		busy[i] = connect_from("127.0.0.1");
		tell(busy[i], "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 100\r\n\r\n");
		for (int t = 0; t < 10000 && recv(busy[i], got, sizeof(got), 0) <= 0; t++)
			turn_after(1);
	}
	fd = connect_from("127.0.0.1");
	gets_closed(fd);
	close(fd);
	for (int i = 0; i < OTHERS; i++)
		assert_false(is_closed(busy[i]));
	other = connect_from("127.0.0.2");
	is_answered(other);
	gets_closed(busy[0]);
	for (int i = 1; i < OTHERS; i++)
		assert_false(is_closed(busy[i]));
	/* the slot is free again */
	close(other);
	turn();
	fd = connect_from("127.0.0.2");
	is_answered(fd);
	assert_false(is_closed(busy[1]));
	close(fd);
	for (int i = 0; i < OTHERS; i++)
		close(busy[i]);
}

/* As many users as connections, idle or busy: one more user is answered. */
TEST_WITH(test_crowd, begin, end)
{
	int crowd[OTHERS], fd;
	char address[32];

	for (int busy = 0; busy < 2; busy++) {
		for (int i = 0; i < OTHERS; i++) {
			snprintf(address, sizeof(address), "127.0.1.%d", i);
			crowd[i] = connect_from(address);
			tell(crowd[i], "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n");
			if (busy)
				tell(crowd[i], "\r\n");
		}
		fd = connect_from("127.0.0.1");
		is_answered(fd);
		gets_closed(crowd[0]);
		assert_false(is_closed(crowd[1]));
		for (int i = 0; i < OTHERS; i++)
			close(crowd[i]);
		close(fd);
		for (int i = 0; i < 10; i++)
			turn_after(1);
	}
}

/* An IPv6 network is a user, an IPv4 network is not; a third user's connections stay. */
TEST_WITH(test_networks, begin, end)
{
	int many[OTHERS - 2], other, mapped, fd;
	char address[64];

	peer_at = "2001:db8:0:2::1";
	other = connect_from("127.0.0.1");
	peer_at = "::ffff:192.0.2.1";
	mapped = connect_from("127.0.0.1");
	peer_at = address;
	for (int i = 0; i < OTHERS - 2; i++) {
		snprintf(address, sizeof(address), "2001:db8:0:1::%x", i + 1);
		many[i] = connect_from("127.0.0.1");
	}
	peer_at = "::ffff:192.0.2.2";
	fd = connect_from("127.0.0.1");
	peer_at = NULL;
	is_answered(fd);
	gets_closed(many[0]);
	assert_false(is_closed(other));
	assert_false(is_closed(mapped));
	for (int i = 0; i < OTHERS - 2; i++)
		close(many[i]);
	close(other);
	close(mapped);
	close(fd);
}

/* Incomplete long bodies: a user gets memory for four, and so does another user. */
TEST_WITH(test_memory, begin, end)
{
	static char part[1 << 16];
	size_t len = 12u << 20;
	int busy[8], other;
	char head[128], got[512];
	unsigned int refused = 0;

	memset(part, 'x', sizeof(part));
	snprintf(head, sizeof(head), "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %zu\r\n\r\n", len);
	for (int i = 0; i < 9; i++) {
		int fd = connect_from(i < 8 ? "127.0.0.1" : "127.0.0.2");

		*(i < 8 ? &busy[i] : &other) = fd;
		tell(fd, head);
		/* all but the last byte */
		for (size_t sent = 0; sent < len - 1;) {
			size_t want = len - 1 - sent < sizeof(part) ? len - 1 - sent : sizeof(part);
			ssize_t n = send(fd, part, want, MSG_NOSIGNAL);

			sent += n > 0 ? (size_t)n : 0;
			turn_after(n > 0 ? 0 : 1);
		}
	}
	for (int i = 0; i < 9; i++) {
		int fd = i < 8 ? busy[i] : other;

		memset(got, 0, sizeof(got));
		tell(fd, "x");
		for (int t = 0; t < 10000 && recv(fd, got, sizeof(got) - 1, 0) <= 0; t++)
			turn_after(1);
		refused += !strncmp(got, "HTTP/1.1 429", 12);
		assert_true(i < 8 || !strncmp(got, "HTTP/1.1 200", 12));
		close(fd);
	}
	assert_int_equal(refused, 4);
	assert_int_equal(answered, 5);
}

/* Header and request have a deadline, however often a byte arrives. */
TEST_WITH(test_slow, begin, end)
{
	int slow, fd;

	hurry = 100;
	slow = connect_from("127.0.0.1");
	for (int i = 0; i < 1000000 && !is_closed(slow); i++) {
		send(slow, "x", 1, MSG_NOSIGNAL);
		turn_after(1);
	}
	assert_true(is_closed(slow));
	close(slow);
	slow = connect_from("127.0.0.1");
	tell(slow, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n");
	for (int i = 0; i < 1000000 && !is_closed(slow); i++) {
		send(slow, "x", 1, MSG_NOSIGNAL);
		turn_after(1);
	}
	assert_true(is_closed(slow));
	assert_int_equal(answered, 0);
	close(slow);
	/* an answer restarts the deadline */
	fd = connect_from("127.0.0.1");
	is_answered(fd);
	is_answered(fd);
	close(fd);
}

TEST_MAIN("http")
